use super::*;
use crate::config::RopeScaling;
use crate::ops::{HeadMap, RopePairing};
use crate::weights::canonical::{Role, role};
use crate::weights::host::HostBytes;
use crate::weights::samples::{fixture, mixture};
use crate::weights::{Format, GenerationDefaults, TokenizerSource};
use tempfile::TempDir;

fn open(name: &str) -> Checkpoint {
    Checkpoint::open(fixture(name)).unwrap()
}

fn to(storage: StorageType) -> ConvertOptions<'static> {
    let types = TypeRules { base: Base::Type(storage), keep: Vec::new() };
    ConvertOptions { types, ..ConvertOptions::default() }
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

/// Options whose callback ends the conversion before tensor `count`.
fn until(count: usize, storage: StorageType) -> ConvertOptions<'static> {
    let mut calls = 0;
    ConvertOptions {
        progress: Some(Box::new(move |_| {
            calls += 1;
            if calls <= count { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })),
        ..to(storage)
    }
}

#[test]
fn an_interrupted_conversion_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ytf");
    let source = open("hybrid-dense-tied");
    let whole = folder.path().join("whole.ytf");
    assert_eq!(convert(&source, &whole, to(StorageType::Q8_0)).unwrap().resumed, 0);
    for (count, storage) in [(3, StorageType::Q8_0), (5, StorageType::Q4_0), (4, StorageType::Q8_0)]
    {
        let error = convert(&source, &path, until(count, storage)).unwrap_err().to_string();
        assert!(error.starts_with("conversion: interrupted"), "{error}");
        assert!(!path.exists());
        let part = folder.path().join(".a.ytf.part");
        assert!(Checkpoint::open(&part).is_err(), "an unfinished file must not load");
    }
    // Four tensors of this type are there; those of the other type were thrown away.
    let report = convert(&source, &path, to(StorageType::Q8_0)).unwrap();
    assert_eq!(report.resumed, 4);
    assert_eq!(fs::read(&path).unwrap(), fs::read(&whole).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
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
        let exact = |t: &ConvertedTensor| t.deviation == Deviation::default() && t.within_limits;
        assert!(report.tensors.iter().all(|t| exact(t) && t.fallback.is_none()));
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
    let worst = report.worst().unwrap().deviation;
    assert!(worst.relative_rms > 0.003 && worst.relative_rms < 0.012, "{worst:?}");
    assert!(report.tensors.iter().all(|t| (t.to == "f32") == (t.deviation.relative_rms == 0.0)));
    assert_eq!(report.failures().count(), 0);
    assert_eq!(verify(&path, &source, None).unwrap().tensors, report.tensors);
}

#[test]
fn types_that_do_not_fit_fall_back() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    // Rows of 96 and 192 are no blocks of 256, rows of 16 no blocks of 32.
    let (config, tensors) = mixture(false);
    let source = checkpoint(config, tensors);
    let report = convert(&source, &path, to(StorageType::Q8_0)).unwrap();
    let of = |report: &ConvertReport, name: &str| {
        report.tensors.iter().find(|t| t.name == name).cloned().unwrap()
    };
    let shared = of(&report, "layers.0.moe.shared.down");
    assert_eq!((shared.to, shared.deviation), ("f32", Deviation::default()));
    assert_eq!(shared.fallback.as_deref(), Some("rows of 16 are not blocks of q8_0"));
    assert_eq!(of(&report, "layers.0.moe.router").to, "f32");
    assert_eq!(of(&report, "layers.0.moe.shared_gate").to, "f32");
    assert_eq!(of(&report, "layers.0.moe.experts.gate_up").to, "q8_0");

    assert!(convert(&source, &path, to(StorageType::Q4_0)).is_err(), "the file exists");
    let options = ConvertOptions { overwrite: true, ..to(StorageType::Iq2Xxs) };
    let report = convert(&source, &path, options).unwrap();
    let matrix = of(&report, "layers.0.moe.experts.gate_up");
    assert_eq!(matrix.fallback.as_deref(), Some("rows of 128 are not blocks of iq2_xxs"));
    assert_eq!(matrix.to, "q4_0");
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
    assert!(report.worst().unwrap().deviation.relative_rms < 1e-3);
    let options =
        ConvertOptions { overwrite: true, allow_requantise: true, ..to(StorageType::Q4_0) };
    let report = convert(&source, &path, options).unwrap();
    let worst = report.worst().unwrap().deviation;
    assert!(worst.relative_rms > 0.05 && worst.relative_rms < 0.12, "{worst:?}");
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
fn patterns_keep_a_type() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let source = open("hybrid-dense-tied");
    let keep = ["*.attn.v=f16", "layers.1.*=q4_1", "mtp.fc=bf16"];
    let mut options = to(StorageType::Q4_0);
    options.types.keep = keep.iter().map(|rule| rule.parse().unwrap()).collect();
    let report = convert(&source, &path, options).unwrap();
    let of = |name: &str| report.tensors.iter().find(|t| t.name == name).unwrap().to;
    assert_eq!((of("layers.3.attn.v"), of("mtp.attn.v"), of("mtp.fc")), ("f16", "f16", "bf16"));
    assert_eq!((of("layers.1.ffn.up"), of("layers.1.attn_norm")), ("q4_1", "f32"));
    assert_eq!(of("layers.2.ffn.up"), "q4_0");
    let mut options = to(StorageType::Q4_0);
    options.overwrite = true;
    options.types.keep = vec!["*.norm=q8_0".parse().unwrap()];
    let message = convert(&source, &path, options).unwrap_err().to_string();
    assert_eq!(message, "keep: *.norm=q8_0 fits no matrix");
}

#[test]
fn the_draft_block_stays_unless_it_is_left_out() {
    let folder = TempDir::new().unwrap();
    let source = open("hybrid-dense-tied");
    for (name, without) in [("a.ytf", false), ("b.ytf", true), ("c.gguf", false), ("d.gguf", true)]
    {
        let path = folder.path().join(name);
        let options = ConvertOptions { without_mtp: without, ..to(StorageType::Q8_0) };
        convert(&source, &path, options).unwrap();
        let written = Checkpoint::open(&path).unwrap();
        assert_eq!(written.config.mtp, !without, "{name}");
        assert_eq!(written.tensors.keys().any(|name| name.starts_with("mtp.")), !without);
        assert_eq!(verify(&path, &source, None).unwrap().failures().count(), 0);
    }
}

/// Every fixture as GGUF: heads and rows in the format's order, nothing lost.
#[test]
fn gguf_files_hold_the_same_model() {
    let folder = TempDir::new().unwrap();
    for name in ["hybrid-dense-tied", "qwen3-dense", "llama-dense", "llama-dense/model-F16.gguf"] {
        let source = open(name);
        let path = folder.path().join(format!("{}.gguf", name.replace('/', "-")));
        let report = convert(&source, &path, ConvertOptions::default()).unwrap();
        assert!(report.tensors.iter().all(|t| t.deviation == Deviation::default()), "{name}");
        let written = Checkpoint::open(&path).unwrap();
        assert_eq!(written.format, Format::Gguf);
        assert_eq!(written.name, source.name);
        assert_eq!(written.chat_template, source.chat_template);
        assert_eq!(written.generation.temperature, source.generation.temperature);
        assert_eq!(written.config.attention.rope.scaling, RopeScaling::None);
        if let Some(delta) = &written.config.delta_net {
            assert_eq!(delta.head_map, HeadMap::Modulo);
        }
        if name.starts_with("llama") {
            assert_eq!(written.config.attention.rope.pairing, RopePairing::Adjacent);
        }
        // What is GGUF already stays as it is, and the way back needs no change either.
        let again = folder.path().join("again.gguf");
        let options = ConvertOptions { overwrite: true, ..ConvertOptions::default() };
        convert(&written, &again, options).unwrap();
        assert_eq!(fs::read(&again).unwrap(), fs::read(&path).unwrap(), "{name}");
    }
}

/// The files that other tools made of the same weights.
#[test]
fn gguf_files_equal_those_of_the_reference_converter() {
    let folder = TempDir::new().unwrap();
    for (name, file, storage) in [
        ("hybrid-dense-tied", "model-Q8_0.gguf", StorageType::Q8_0),
        ("qwen3-dense", "model-BF16.gguf", StorageType::Bf16),
        ("llama-dense", "model-F16.gguf", StorageType::F16),
    ] {
        let path = folder.path().join(format!("{name}.gguf"));
        convert(&open(name), &path, to(storage)).unwrap();
        let (ours, golden) = (Checkpoint::open(&path).unwrap(), open(&format!("{name}/{file}")));
        assert_eq!(ours.config, golden.config, "{name}");
        assert!(ours.tensors.keys().eq(golden.tensors.keys()), "{name}");
        for (key, tensor) in &golden.tensors {
            let written = &ours.tensors[key];
            assert_eq!(written.shape, tensor.shape, "{name} {key}");
            if written.storage == tensor.storage {
                assert!(written.data.as_slice() == tensor.data.as_slice(), "{name} {key}");
            } else {
                println!("{name} {key}: {} there, {} here", tensor.storage, written.storage);
            }
        }
        let (TokenizerSource::Gguf(ours), TokenizerSource::Gguf(golden)) =
            (&ours.tokenizer, &golden.tokenizer)
        else {
            panic!("{name}: a GGUF file has a vocabulary")
        };
        assert_eq!(ours.tokens, golden.tokens, "{name}");
        // That converter takes whatever looks like one for a control token; here the flag decides.
        let types = ours.token_types.iter().zip(&golden.token_types).zip(&ours.tokens);
        for ((own, other), token) in types {
            assert!(own == other || token.starts_with("<|"), "{name}: {token} is {own}, {other}");
        }
        assert_eq!(ours.merges, golden.merges, "{name}");
        assert_eq!((&ours.pre, &ours.model), (&golden.pre, &golden.model), "{name}");
    }
}

/// Experts in one tensor become two, those in two stay.
#[test]
fn experts_become_gate_and_up() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.gguf");
    let (config, tensors) = mixture(false);
    let source = Contents::new(&checkpoint(config, tensors), Format::Gguf, false).unwrap();
    let find = |name: &str| source.views.iter().find(|v| v.canonical == name).unwrap();
    let both = find("layers.0.moe.experts.gate").tensor.to_f32().unwrap();
    for (name, first) in [("layers.0.moe.experts.gate", 0), ("layers.0.moe.experts.up", 32)] {
        let view = find(name);
        assert_eq!((view.total_rows(), view.shape.as_slice()), (3 * 32, &[3, 32, 128][..]));
        // Row 1 of the second expert, whose rows begin at 64.
        let row = (64 + first + 1) * 128;
        assert_eq!(view.values(33..34).unwrap(), both[row..row + 128]);
    }
    assert_eq!(find("layers.0.moe.shared_gate").shape, [128]);
    assert!(!path.exists());
}

#[test]
fn column_moves_do_not_requantise_unasked() {
    let folder = TempDir::new().unwrap();
    let (config, tensors) = crate::weights::samples::folder("hybrid-dense-tied");
    let mut source = checkpoint(config, tensors);
    source.config.delta_net.as_mut().unwrap().head_map = HeadMap::Divide;
    let name = "layers.0.delta.out";
    // Heads of 16 columns cannot move in blocks of 32.
    let plain = source.tensors[name].clone();
    let mut blocks = Vec::new();
    StorageType::Q8_0.quantize(&plain.to_f32().unwrap(), &mut blocks).unwrap();
    let quantised = crate::weights::host::HostTensor::new(
        name,
        StorageType::Q8_0,
        plain.shape.clone(),
        blocks.into(),
    );
    source.tensors.insert(name.into(), quantised.unwrap());
    let path = folder.path().join("model.gguf");
    let message = convert(&source, &path, ConvertOptions::default()).unwrap_err().to_string();
    assert!(message.contains("columns change their places"), "{message}");
}

#[test]
fn verify_finds_what_changed() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let source = open("qwen3-dense");
    convert(&source, &path, to(StorageType::Q4_0)).unwrap();
    let mut other = source.clone();
    let up = source.tensors["layers.1.ffn.up"].clone();
    other.tensors.insert("layers.1.ffn.gate".into(), up);
    let report = verify(&path, &other, None).unwrap();
    let failed: Vec<_> = report.failures().map(|t| t.name.as_str()).collect();
    assert_eq!(failed, ["layers.1.ffn.gate"]);
    let hybrid = open("hybrid-dense-tied");
    let message = verify(&path, &hybrid, None).unwrap_err().to_string();
    assert!(message.contains("configuration of the source"), "{message}");
    let mut bytes = fs::read(&path).unwrap();
    let last = bytes.len() - 5;
    bytes[last] ^= 4;
    fs::write(&path, bytes).unwrap();
    let message = verify(&path, &source, None).unwrap_err().to_string();
    assert!(message.contains("checksum"), "{message}");
}

#[test]
fn importance_reaches_the_quantisers() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("model.ytf");
    let source = open("qwen3-dense");
    let name = "layers.0.ffn.up";
    let columns = source.tensors[name].columns();
    let weights: Vec<f32> = (0..columns).map(|c| if c % 32 == 5 { 100.0 } else { 1.0 }).collect();
    let mut importance = Importance { text: "notes.txt".into(), ..Importance::default() };
    importance.columns.insert(name.into(), weights.clone());
    let error_of_column = |path: &Path| {
        let stored = Checkpoint::open(path).unwrap().tensors[name].to_f32().unwrap();
        let plain = source.tensors[name].to_f32().unwrap();
        let pairs = stored.iter().zip(&plain).enumerate();
        pairs.filter(|(at, _)| at % 32 == 5).map(|(_, (a, b))| (a - b).powi(2)).sum::<f32>()
    };
    convert(&source, &path, to(StorageType::Q4_0)).unwrap();
    let plain = error_of_column(&path);
    let options = || ConvertOptions { overwrite: true, ..to(StorageType::Q4_0) };
    convert(&source, &path, ConvertOptions { importance: Some(&importance), ..options() }).unwrap();
    assert!(error_of_column(&path) < 0.3 * plain);
    let header = YtfFile::open(&path).unwrap().header;
    assert_eq!(header.provenance.calibration.as_deref(), Some("notes.txt"));
    importance.columns.insert(name.into(), vec![1.0; columns - 1]);
    let wrong = ConvertOptions { importance: Some(&importance), ..options() };
    let message = convert(&source, &path, wrong).unwrap_err().to_string();
    assert!(message.starts_with("importance of layers.0.ffn.up"), "{message}");
}
