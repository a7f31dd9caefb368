use super::*;
use crate::weights::host::HostBytes;
use crate::weights::samples::{fixture, mixture};
use crate::weights::{Format, GenerationDefaults, TokenizerSource};
use tempfile::TempDir;

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(fixture(name)).unwrap()
}

fn to(storage: StorageType) -> ConvertOptions<'static> {
    ConvertOptions { storage: Some(storage), ..ConvertOptions::default() }
}

/// Everything but path, format and name of the files that tensors come from.
fn assert_equal(a: &Checkpoint, b: &Checkpoint) {
    assert_eq!(a.config, b.config);
    assert_eq!(a.tokenizer, b.tokenizer);
    assert_eq!(a.chat_template, b.chat_template);
    assert_eq!(a.tokenizer_config, b.tokenizer_config);
    assert_eq!(a.generation, b.generation);
    assert_eq!(a.name, b.name);
    assert!(a.tensors.keys().eq(b.tensors.keys()));
}

#[test]
fn an_interrupted_conversion_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = to(StorageType::Q8_0);
    let mut calls = 0;
    options.progress = Some(Box::new(|_| {
        calls += 1;
        if calls < 3 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }));
    let result = convert(&open("hybrid-dense-tied"), &folder.path().join("a.ytf"), options);
    assert_eq!(result.unwrap_err().to_string(), "conversion: interrupted");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn copies_are_exact() {
    let folder = TempDir::new().unwrap();
    for name in [
        "hybrid-dense-tied",
        "hybrid-dense-tied/model-Q8_0.gguf",
        "llama-dense",
        "llama-dense/model-F16.gguf",
        "qwen3-dense/model-Q8_0.gguf",
    ] {
        let source = open(name);
        let path = folder.path().join(format!("{}.ytf", name.replace('/', "-")));
        let report = convert(&source, &path, ConvertOptions::default()).unwrap();
        let copy = Checkpoint::open(&path).unwrap();
        assert_eq!(copy.format, Format::Ytf);
        assert_equal(&source, &copy);
        for (name, tensor) in &source.tensors {
            let other = &copy.tensors[name];
            assert_eq!((tensor.storage, &tensor.shape), (other.storage, &other.shape));
            assert_eq!(tensor.data.as_slice(), other.data.as_slice(), "{name}");
        }
        assert!(report.tensors.iter().all(|t| t.error == 0.0 && t.fallback.is_none()));
        assert_eq!(report.file_bytes, std::fs::metadata(&path).unwrap().len());
        let bytes: HostBytes = std::fs::read(&path).unwrap().into();
        assert_equal(&source, &Checkpoint::from_ytf_bytes("embedded", bytes).unwrap());
    }
}

#[test]
fn matrices_change_their_type_and_vectors_do_not() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let source = open("hybrid-dense-tied");
    let mut seen = Vec::new();
    let mut options = to(StorageType::Q8_0);
    options.progress = Some(Box::new(|p| {
        seen.push((p.tensor.to_owned(), p.done_bytes));
        ControlFlow::Continue(())
    }));
    let report = convert(&source, &path, options).unwrap();
    assert_eq!(seen.len(), source.tensors.len());
    assert!(seen.windows(2).all(|pair| pair[0].1 < pair[1].1));
    let copy = Checkpoint::open(&path).unwrap();
    for (name, tensor) in &copy.tensors {
        let expected = match role(name) {
            Role::Matrix => StorageType::Q8_0,
            Role::Vector | Role::Router => StorageType::F32,
        };
        assert_eq!(tensor.storage, expected, "{name}");
    }
    let worst = report.worst().unwrap();
    // Half a step of 127, and the rounding of the scale.
    assert!(worst.error > 0.001 && worst.error < 0.006, "{worst:?}");
    assert!(report.tensors.iter().all(|t| (t.to == "f32") == (t.error == 0.0)));
}

#[test]
fn types_that_do_not_fit_fall_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    // Rows of 96 and 192 are no blocks of 256, rows of 16 no blocks of 32.
    let (config, tensors) = mixture(false);
    let mut source = checkpoint(config, tensors);
    let report = convert(&source, &path, to(StorageType::Q8_0)).unwrap();
    let of = |report: &ConvertReport, name: &str| {
        report.tensors.iter().find(|t| t.name == name).cloned().unwrap()
    };
    let shared = of(&report, "layers.0.moe.shared.down");
    assert_eq!((shared.to, shared.error), ("f32", 0.0));
    assert_eq!(shared.fallback.as_deref(), Some("rows of 16 are not blocks of q8_0"));
    assert_eq!(of(&report, "layers.0.moe.router").to, "f32");
    assert_eq!(of(&report, "layers.0.moe.shared_gate").to, "f32");
    assert_eq!(of(&report, "layers.0.moe.experts.gate_up").to, "q8_0");

    source.tensors.retain(|name, _| !name.contains("shared.down"));
    assert!(convert(&source, &path, to(StorageType::Q4_0)).is_err(), "the file exists");
    let options = ConvertOptions { overwrite: true, ..to(StorageType::Iq2Xxs) };
    let report = convert(&source, &path, options).unwrap();
    let matrix = of(&report, "layers.0.moe.experts.gate_up");
    assert_eq!(matrix.fallback.as_deref(), Some("iq2_xxs has no quantiser"));
    assert_ne!(matrix.to, "iq2_xxs");
}

/// A checkpoint of hand-made tensors.
fn checkpoint(
    mut config: crate::ModelConfig,
    tensors: crate::weights::samples::Tensors,
) -> Checkpoint {
    let path = PathBuf::from("made");
    let tensors = crate::weights::names_hf::assemble(&path, tensors, &mut config).unwrap();
    Checkpoint {
        path,
        format: Format::Safetensors,
        name: "made".into(),
        config,
        tokenizer: TokenizerSource::Json("{}".into()),
        chat_template: None,
        tokenizer_config: None,
        generation: GenerationDefaults::default(),
        tensors,
    }
}

#[test]
fn destinations_are_guarded() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let source = open("qwen3-dense");
    convert(&source, &path, ConvertOptions::default()).unwrap();
    let before = std::fs::read(&path).unwrap();
    let message = convert(&source, &path, ConvertOptions::default()).unwrap_err().to_string();
    assert!(message.contains("model.ytf exists"), "{message}");
    let over = || ConvertOptions { overwrite: true, ..ConvertOptions::default() };
    let itself = Checkpoint::open(&path).unwrap();
    let message = convert(&itself, &path, over()).unwrap_err().to_string();
    assert!(message.contains("is the source"), "{message}");
    let inside = fixture("qwen3-dense").join("model.safetensors");
    let message = convert(&source, &inside, over()).unwrap_err().to_string();
    assert!(message.contains("part of it"), "{message}");
    assert_eq!(std::fs::read(&path).unwrap(), before);
    convert(&source, &path, over()).unwrap();
    let nowhere = folder.path().join("absent/model.ytf");
    assert!(matches!(convert(&source, &nowhere, over()), Err(Error::Io { .. })));
}

#[test]
fn quantised_sources_are_not_quantised_again_unasked() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let source = open("qwen3-dense/model-Q8_0.gguf");
    let error = convert(&source, &path, to(StorageType::Q4_0)).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    assert!(!path.exists());
    let report = convert(&source, &path, to(StorageType::F16)).unwrap();
    assert!(report.worst().unwrap().error < 1e-3);
    let options =
        ConvertOptions { overwrite: true, allow_requantise: true, ..to(StorageType::Q4_0) };
    let report = convert(&source, &path, options).unwrap();
    let worst = report.worst().unwrap();
    assert!(worst.error > 0.01 && worst.error < 0.2, "{worst:?}");
}

#[test]
fn values_without_a_place_in_the_type_are_errors() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let mut source = open("qwen3-dense");
    let embed = source.tensors["embed"].clone();
    for (value, expected) in [(f32::NAN, "value NaN at index 70 is not finite"), (1e6, "range")] {
        let changed = crate::weights::samples::with_value(&embed, 70, value);
        source.tensors.insert("embed".into(), changed);
        let message = convert(&source, &path, to(StorageType::F16)).unwrap_err().to_string();
        assert!(
            message.contains("model.embed_tokens.weight") && message.contains(expected),
            "{message}"
        );
        assert!(!path.exists());
    }
}

#[test]
fn row_errors_are_relative() {
    assert_eq!(row_error(&[2.0, -4.0], &[2.0, -3.0]), 0.25);
    assert_eq!(row_error(&[0.0, 0.0], &[0.0, 0.0]), 0.0);
    assert_eq!(row_error(&[0.0], &[1.0]), f32::INFINITY);
    assert_eq!(row_error(&[1.0], &[f32::NAN]), f32::INFINITY);
}
