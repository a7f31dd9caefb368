use super::super::quant::StorageType;
use super::super::samples::{Tensors, fixture, main_type, shared};
use super::*;
use crate::config::{Family, LayerKind};
use crate::ops::{HeadMap, RopePairing};
use std::fs;
use tempfile::TempDir;

fn opened(path: &Path) -> Checkpoint {
    Checkpoint::open(path).unwrap_or_else(|error| panic!("{error}"))
}

/// Every model folder and GGUF file below `root`.
fn models(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let folder = entry.unwrap().path();
        if folder.join("config.json").exists() {
            let files = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path());
            found.extend(files.filter(|file| file.extension().is_some_and(|e| e == "gguf")));
            found.push(folder);
        }
    }
    found
}

/// A copy of a fixture folder that a test may change.
fn copy(name: &str) -> TempDir {
    let target = TempDir::new().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let path = entry.unwrap().path();
        let kept = ["json", "jinja"].iter().any(|e| path.extension().is_some_and(|x| x == *e));
        if kept || path.ends_with("model.safetensors") {
            fs::copy(&path, target.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    target
}

#[test]
fn every_fixture_opens() {
    let roots = [Some(fixture("")), shared("reference/fixtures"), shared("models")];
    let mut seen = 0;
    for path in roots.into_iter().flatten().flat_map(|root| models(&root)) {
        let checkpoint = opened(&path);
        assert!(checkpoint.chat_template.is_some(), "{}", path.display());
        assert!(!checkpoint.generation.eos.is_empty(), "{}", path.display());
        assert_eq!(checkpoint.config.mtp, checkpoint.config.family.is_hybrid());
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

/// Asserts that two sets of tensors agree to `tolerance` after `arrange` has put values of the
/// second in the order of the first.
fn assert_same(
    a: &Checkpoint,
    b: &Checkpoint,
    tolerance: f32,
    arrange: impl Fn(&str, Vec<f32>, &[usize]) -> Vec<f32>,
) {
    let names = |tensors: &Tensors| -> Vec<String> {
        tensors.keys().filter(|name| *name != ROPE_FREQS).cloned().collect()
    };
    // Experts may be fused in one format and split in the other.
    if a.config.family != Family::HybridMoe {
        assert_eq!(names(&a.tensors), names(&b.tensors));
    }
    for (name, tensor) in &a.tensors {
        let Some(other) = b.tensors.get(name) else { continue };
        assert_eq!(tensor.shape, other.shape, "{name}");
        let left = tensor.to_f32().unwrap();
        let right = arrange(name, other.to_f32().unwrap(), &other.shape);
        let scale = left.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let exact = tensor.shape.len() == 1 || name.ends_with("conv");
        let allowed = if exact { 1e-6 * scale } else { tolerance * scale };
        let worst = left.iter().zip(&right).fold(0.0f32, |m, (l, r)| m.max((l - r).abs()));
        assert!(worst <= allowed, "{name}: {worst} > {allowed}");
    }
}

#[test]
fn plain_models_are_equal_in_both_formats() {
    let folder = opened(&fixture("qwen3-dense"));
    let file = opened(&fixture("qwen3-dense/model-BF16.gguf"));
    assert_same(&folder, &file, 0.0, |_, values, _| values);
    assert_eq!(main_type(&file.tensors), StorageType::Bf16);

    let folder = opened(&fixture("llama-dense"));
    let file = opened(&fixture("llama-dense/model-F16.gguf"));
    assert_eq!(folder.config.attention.rope.pairing, RopePairing::Half);
    assert_eq!(file.config.attention.rope.pairing, RopePairing::Adjacent);
    let half = folder.config.attention.head_dim / 2;
    // F16 loses the last bits of BF16 values below its normal range.
    assert_same(&folder, &file, 1e-6, |name, values, shape| {
        if !name.ends_with("attn.q") && !name.ends_with("attn.k") {
            return values;
        }
        let row = |r: usize| {
            let (head, s, i) = (r / (2 * half), r % (2 * half) / half, r % half);
            head * 2 * half + 2 * i + s
        };
        permute_rows(&values, shape[1], row)
    });
}

/// Row `r` of the result is row `from(r)` of `values`.
fn permute_rows(values: &[f32], columns: usize, from: impl Fn(usize) -> usize) -> Vec<f32> {
    let rows = values.len() / columns;
    (0..rows).flat_map(|r| values[from(r) * columns..][..columns].to_vec()).collect()
}

/// Compares a hybrid folder with its GGUF file, whose value heads are in another order.
fn assert_hybrid(folder: &Path, file: &Path, tolerance: f32) {
    let (folder, file) = (opened(folder), opened(file));
    let delta = folder.config.delta_net.clone().unwrap();
    assert_eq!(delta.head_map, HeadMap::Divide);
    assert_eq!(file.config.delta_net.as_ref().unwrap().head_map, HeadMap::Modulo);
    let ratio = delta.value_heads / delta.key_heads;
    // Value head `v` of the folder is head `place(v)` of the file: both read key head `v / ratio`.
    let place = |v: usize| (v % ratio) * delta.key_heads + v / ratio;
    let (keys, dim) = (2 * delta.key_heads * delta.key_dim, delta.value_dim);
    let wide = |r: usize| place(r / dim) * dim + r % dim;
    assert_same(&folder, &file, tolerance, |name, values, shape| {
        let columns = *shape.last().unwrap();
        match name.rsplit("delta.").next().unwrap() {
            "a" | "b" => permute_rows(&values, columns, place),
            "neg_a" | "dt_bias" => permute_rows(&values, 1, place),
            "z" => permute_rows(&values, columns, wide),
            "qkv" | "conv" => {
                permute_rows(&values, columns, |r| if r < keys { r } else { keys + wide(r - keys) })
            }
            "out" => values.chunks(columns).flat_map(|row| permute_rows(row, 1, wide)).collect(),
            _ => values,
        }
    });
    let kinds = |checkpoint: &Checkpoint| checkpoint.config.layers.clone();
    assert_eq!(kinds(&folder), kinds(&file));
    assert_eq!(kinds(&folder)[3], LayerKind::Attention);
    assert_eq!(folder.config.attention, file.config.attention);
    assert_eq!(folder.config.feed_forward, file.config.feed_forward);
}

#[test]
fn hybrid_models_are_equal_in_both_formats() {
    let tied = fixture("hybrid-dense-tied");
    assert_hybrid(&tied, &tied.join("model-Q8_0.gguf"), 0.01);
    for name in ["hybrid-dense", "hybrid-moe"] {
        if let Some(folder) = shared(&format!("reference/fixtures/{name}")) {
            assert_hybrid(&folder, &folder.join("model-Q4_K_M.gguf"), 0.15);
        }
    }
}

#[test]
fn a_folder_needs_its_files() {
    for name in ["config.json", "tokenizer.json"] {
        let folder = copy("qwen3-dense");
        fs::remove_file(folder.path().join(name)).unwrap();
        let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains(&format!("{name}: the file is missing")), "{message}");
        assert!(message.contains("model.safetensors"), "{message}");
    }
    let empty = TempDir::new().unwrap();
    let message = Checkpoint::open(empty.path()).unwrap_err().to_string();
    assert!(message.contains("the folder holds nothing"), "{message}");
    let absent = Checkpoint::open(empty.path().join("absent")).unwrap_err();
    assert!(matches!(absent, Error::Io { .. }));
}

#[test]
fn files_are_told_apart_by_their_first_bytes() {
    let folder = TempDir::new().unwrap();
    let renamed = folder.path().join("model.ytf");
    fs::copy(fixture("qwen3-dense/model-Q8_0.gguf"), &renamed).unwrap();
    assert_eq!(opened(&renamed).format, Format::Gguf);
    for (name, bytes) in
        [("a.gguf", &b"GG"[..]), ("b.ytf", b""), ("c.safetensors", b"\x08\0\0\0{}")]
    {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        let message = Checkpoint::open(&path).unwrap_err().to_string();
        assert!(message.contains("GGUF") && message.contains("\\x89YTF"), "{message}");
        assert_eq!(message.contains("open the folder"), name.starts_with('c'), "{message}");
    }
}

#[test]
fn names_come_from_the_checkpoint_or_its_path() {
    assert_eq!(opened(&fixture("qwen3-dense")).name, "qwen3-dense");
    assert_eq!(opened(&fixture("qwen3-dense/model-Q8_0.gguf")).name, "Qwen3 Dense");
}

#[test]
fn chat_templates_have_three_places() {
    let folder = copy("qwen3-dense");
    let template = || opened(folder.path()).chat_template;
    assert!(template().unwrap().contains("im_start"));
    fs::remove_file(folder.path().join("chat_template.jinja")).unwrap();
    let config = folder.path().join("tokenizer_config.json");
    let write =
        |value: &str| fs::write(&config, format!("{{\"chat_template\": {value}}}")).unwrap();
    write("\"one\"");
    assert_eq!(template().as_deref(), Some("one"));
    write(r#"[{"name":"tool_use","template":"t"},{"name":"default","template":"d"}]"#);
    assert_eq!(template().as_deref(), Some("d"));
    write("null");
    assert_eq!(template(), None);
    for wrong in ["3", r#"[{"name":"tool_use","template":"t"}]"#] {
        write(wrong);
        let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
        assert!(message.contains("tokenizer_config.json: chat_template"), "{message}");
    }
    fs::remove_file(&config).unwrap();
    assert_eq!(template(), None);
}

#[test]
fn generation_defaults_of_a_folder() {
    let folder = copy("llama-dense");
    let path = folder.path().join("generation_config.json");
    let defaults = || opened(folder.path()).generation;
    fs::write(
        &path,
        r#"{"temperature":0.6,"top_k":20,"top_p":0.95,"min_p":0.1,"repetition_penalty":1.1,
            "eos_token_id":[7,8],"bos_token_id":3,"do_sample":true}"#,
    )
    .unwrap();
    let expected = GenerationDefaultsOf {
        temperature: Some(0.6),
        top_k: Some(20),
        top_p: Some(0.95),
        min_p: Some(0.1),
        repetition_penalty: Some(1.1),
        eos: vec![7, 8],
        bos: Some(3),
    };
    assert_eq!(defaults(), expected);
    fs::write(&path, r#"{"temperature":0.6,"do_sample":false,"eos_token_id":9}"#).unwrap();
    assert_eq!((defaults().temperature, defaults().eos), (Some(0.0), vec![9]));
    // The configuration's special tokens serve if the file is silent.
    fs::write(&path, "{}").unwrap();
    assert_eq!((defaults().eos, defaults().bos), (vec![474], Some(473)));
    fs::remove_file(&path).unwrap();
    assert_eq!((defaults().eos, defaults().bos), (vec![474], Some(473)));
    for (text, field) in [
        ("[]", "top level"),
        ("{", "json"),
        (r#"{"top_p":2}"#, "top_p: 2"),
        (r#"{"top_k":1.5}"#, "top_k: 1.5"),
        (r#"{"temperature":-1}"#, "temperature: -1"),
        (r#"{"eos_token_id":[-1]}"#, "eos_token_id: expected a token id, found -1"),
        (r#"{"eos_token_id":"x"}"#, "eos_token_id"),
    ] {
        fs::write(&path, text).unwrap();
        let message = Checkpoint::open(folder.path()).unwrap_err().to_string();
        let expected = format!("generation_config.json: {field}");
        assert!(message.contains(&expected), "{message}");
    }
}

use super::super::GenerationDefaults as GenerationDefaultsOf;

#[test]
fn gguf_keys_give_vocabulary_and_defaults() {
    use super::super::gguf::GgufValue::{F32, I32, U32};
    let mut file = GgufFile::open(fixture("llama-dense/model-Q8_0.gguf")).unwrap();
    for (key, value) in [
        ("general.sampling.temp", F32(0.7)),
        ("general.sampling.top_k", I32(-1)),
        ("general.sampling.top_p", F32(0.9)),
        ("tokenizer.ggml.eot_token_id", U32(475)),
        ("tokenizer.ggml.eom_token_id", U32(474)),
    ] {
        file.metadata.insert(key.into(), value);
    }
    let checkpoint = open_gguf(&file).unwrap();
    let TokenizerSource::Gguf(vocabulary) = &checkpoint.tokenizer else { panic!("no vocabulary") };
    assert_eq!((&*vocabulary.model, &*vocabulary.pre), ("gpt2", "llama-bpe"));
    assert_eq!((vocabulary.tokens.len(), vocabulary.token_types.len()), (512, 512));
    assert_eq!((vocabulary.bos, vocabulary.add_bos), (Some(473), Some(true)));
    assert_eq!(vocabulary.eos, [474, 475]);
    let generation = &checkpoint.generation;
    assert_eq!((generation.temperature, generation.top_k), (Some(0.7), Some(0)));
    assert_eq!((generation.eos.as_slice(), generation.bos), (&[474, 475][..], Some(473)));
    file.metadata.insert("general.sampling.temp".into(), F32(f32::NAN));
    let message = open_gguf(&file).unwrap_err().to_string();
    assert!(message.contains("temperature: NaN"), "{message}");
}

#[test]
fn damaged_gguf_vocabularies_are_refused() {
    use super::super::gguf::{GgufArray, GgufValue};
    let path = fixture("llama-dense/model-Q8_0.gguf");
    let failed = |key: &str, value: GgufValue| {
        let mut file = GgufFile::open(&path).unwrap();
        file.metadata.insert(key.into(), value);
        open_gguf(&file).unwrap_err().to_string()
    };
    let types = GgufValue::Array(GgufArray::I32(vec![1; 3]));
    assert!(failed("tokenizer.ggml.token_type", types).contains("3 entries for 512 tokens"));
    let tokens = GgufValue::Array(GgufArray::String(vec!["a".into(); 513]));
    let message = failed("tokenizer.ggml.tokens", tokens);
    assert!(message.contains("513 tokens") || message.contains("513"), "{message}");
}
