//! Converted models compute what their sources compute.

use crate::fixtures::{Golden, MODELS, model};
use crate::runner::{Part, Runner};
use forge_core::backend::Backend;
use forge_core::convert::{ConvertOptions, convert};
use forge_core::kv::KvType;
use forge_core::weights::Checkpoint;
use std::path::Path;

/// Rounding of the sums whose terms come in another order in a GGUF file: the value heads of delta
/// nets, in a model of random weights with logits of about 1.
const ORDER: f32 = 2e-4;

fn logits<B: Backend>(backend: B, path: &Path, ids: &[i32]) -> Vec<f32> {
    let checkpoint = Checkpoint::open(path).unwrap();
    let mut runner = Runner::new(backend, &checkpoint, KvType::F32).unwrap();
    runner.pass(&[Part { slot: 0, ids }], 0).unwrap()
}

/// See the name.
pub fn logits_survive_the_container<B: Backend>(open: impl Fn() -> B) {
    let folder = tempfile::tempdir().unwrap();
    for name in MODELS {
        let Some(path) = model(name) else { continue };
        let source = Checkpoint::open(&path).unwrap();
        let ids = Golden::open(&path.join("golden.safetensors")).unwrap().ints("short.input_ids");
        let expected = logits(open(), &path, &ids);
        for (end, most) in [("ytf", 0.0), ("gguf", ORDER)] {
            let copy = folder.path().join(format!("{name}.{end}"));
            convert(&source, &copy, ConvertOptions::default()).unwrap();
            let got = logits(open(), &copy, &ids);
            let difference = |(a, b): (&f32, &f32)| (a - b).abs();
            let worst = got.iter().zip(&expected).map(difference).fold(0.0, f32::max);
            println!("{name}.{end}: largest difference {worst:.1e}");
            assert!(got.len() == expected.len() && worst <= most, "{name}.{end}: {worst}");
        }
    }
}
