use super::*;
use forge_core::weights::Checkpoint;
use std::fs;

fn tiny(shape: Shape, mix: Mix, seed: u64) -> Synth {
    Synth { shape, mix, mtp: true, layers: Some(4), vocabulary: Some(600), seed }
}

#[test]
fn a_file_opens_with_the_configuration_it_was_made_from() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    let synth = tiny(Shape::B08, Mix::Q4K, 1);
    let mut last = (0, 0);
    let bytes = synth
        .write(&path, &mut |done, total| {
            last = (done, total);
            false
        })
        .unwrap();
    assert_eq!(last, (bytes, bytes));
    let checkpoint = Checkpoint::open(&path).unwrap();
    assert_eq!(checkpoint.config, synth.shape.config(Some(4), Some(600), true).unwrap());
    let stored = |name: &str| checkpoint.tensor(name).unwrap().storage;
    assert_eq!(stored("embed"), StorageType::Q6_K);
    assert_eq!(stored("layers.0.ffn.gate"), StorageType::Q4_K);
    assert_eq!(stored("layers.0.delta.a"), StorageType::Q8_0);
    assert_eq!(stored("mtp.fc"), StorageType::Q8_0);
}

#[test]
fn a_seed_is_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, seed| {
        let path = folder.path().join(name);
        tiny(Shape::B08, Mix::Iq2Xxs, seed).write(&path, &mut |_, _| false).unwrap();
        fs::read(path).unwrap()
    };
    let first = write("a", 1);
    assert!(first == write("b", 1));
    assert!(first != write("c", 2));
}

#[test]
fn an_interrupted_file_never_appears() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.gguf");
    let error = tiny(Shape::B08, Mix::Q8_0, 1).write(&path, &mut |_, _| true).unwrap_err();
    assert!(error.to_string().ends_with("a.gguf: interrupted"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn every_shape_is_a_model() {
    for shape in Shape::value_variants() {
        let config = shape.config(None, None, true).unwrap();
        for tensor in gguf_tensors(&config) {
            for mix in Mix::value_variants() {
                let storage = mix.storage(&tensor, &config);
                assert!(storage.tensor_bytes(&tensor.shape).is_some(), "{} {storage}", tensor.name);
            }
        }
    }
}
