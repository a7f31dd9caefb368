//! Public reports on files that broke other engines, as inputs for ours: each is an error that names
//! the fault, before anything of the size that the file claims is allocated. The letters and numbers
//! are those of the project's list of reports.

use super::gguf::GgufFile;
use super::gguf::builder::{GgufBuilder, array, string};
use super::host::HostTensor;
use super::quant::StorageType;
use super::safetensors::{SafetensorsFolder, parse_raw};
use super::testing::fixture;
use crate::error::{Error, Result};
use crate::weights::Checkpoint;
use std::fs;
use std::path::Path;

fn gguf(bytes: Vec<u8>) -> Result<GgufFile> {
    GgufFile::parse(Path::new("f.gguf"), bytes.into())
}

fn gguf_error(bytes: Vec<u8>) -> String {
    gguf(bytes).unwrap_err().to_string()
}

/// A header without its keys and tensors.
fn counts(tensors: u64, keys: u64) -> Vec<u8> {
    [b"GGUF\x03\0\0\0".as_slice(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
}

/// D01: the length of a string is taken on trust.
#[test]
fn d01_string_lengths() {
    for length in [1u64 << 63, u64::MAX, 1 << 31, 37] {
        let bytes = [counts(0, 1), length.to_le_bytes().to_vec(), vec![b'x'; 4]].concat();
        let message = gguf_error(bytes);
        assert!(message.contains("remain") || message.contains("ends"), "{length}: {message}");
    }
}

/// D02: counts size an allocation.
#[test]
fn d02_counts() {
    for count in [1u64 << 32, 1 << 63, 2] {
        for bytes in [counts(count, 0), counts(0, count)] {
            let message = gguf_error(bytes);
            assert!(message.starts_with("f.gguf: "), "{count}: {message}");
        }
    }
    let tokens: Vec<Vec<u8>> = (0..250_000u32).map(|at| string(at.to_string())).collect();
    let large = GgufBuilder::default().raw("tokens", 9, &array(8, &tokens));
    assert_eq!(gguf(large.build()).unwrap().require_strings("tokens").unwrap().len(), 250_000);
}

/// D03, D07, D12: dimensions of zero, too many of them, products that wrap. A tensor without values
/// is refused: no model needs one.
#[test]
fn d03_d07_d12_dimensions() {
    let of =
        |dims: &[u64]| gguf_error(GgufBuilder::default().tensor("t", dims, 0, &[0; 16]).build());
    for dims in [&[4, 0][..], &[0], &[0, 0, 0, 0], &[1; 5], &[1; 9], &[1 << 32, 1 << 32]] {
        assert!(of(dims).contains("t"), "{dims:?}");
    }
    assert!(of(&[1 << 61, 2]).contains("overflows"));
    // A count of dimensions of 2^32 - 1.
    let mut bytes = GgufBuilder::default().tensor("t", &[4], 0, &[0; 16]).build();
    let at = 8 + 16 + 8 + 1;
    bytes[at..at + 4].copy_from_slice(&u32::MAX.to_le_bytes());
    assert!(gguf_error(bytes).contains("dimensions"));
}

/// D05, D06: alignments that are none, or pad every tensor to a GiB.
#[test]
fn d05_d06_alignments() {
    for alignment in [0u32, 3, 1 << 30, 1 << 31] {
        let builder = GgufBuilder::default().u32("general.alignment", alignment);
        let message = gguf_error(builder.tensor("t", &[8], 0, &[0; 32]).build());
        // A large power of two is no fault in itself, but puts the data behind the end of the file.
        let named = message.contains("general.alignment");
        assert!(named || message.contains("leave the file"), "{alignment}: {message}");
    }
    let text = GgufBuilder::default().str("general.alignment", "32");
    assert!(gguf_error(text.tensor("t", &[8], 0, &[0; 32]).build()).contains("general.alignment"));
}

/// D09: arrays of another type than expected are not reinterpreted.
#[test]
fn d09_types_of_arrays() {
    let ints = GgufBuilder::default().i32s("tokenizer.ggml.tokens", &[1, 2]);
    let file = gguf(ints.build()).unwrap();
    let message = file.require_strings("tokenizer.ggml.tokens").unwrap_err().to_string();
    assert!(message.contains("array of i32") && message.contains("expected"), "{message}");
    let texts = GgufBuilder::default().strings("tokenizer.ggml.scores", &["a"]);
    assert!(gguf(texts.build()).unwrap().optional_f32s("tokenizer.ggml.scores").is_err());
}

/// D11: an architecture that nobody knows, or none.
#[test]
fn d11_architectures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let open = |builder: GgufBuilder| {
        fs::write(&path, builder.build()).unwrap();
        Checkpoint::open(&path).unwrap_err().to_string()
    };
    let known = |message: &str| message.contains("qwen35") && message.contains("llama");
    let message = open(GgufBuilder::default().str("general.architecture", "gemma9"));
    assert!(known(&message) && message.contains("gemma9"), "{message}");
    let message = open(GgufBuilder::default().u32("x", 1));
    assert!(message.contains("general.architecture"), "{message}");
    let name = [0xff, 0xfe].as_slice();
    let message = open(GgufBuilder::default().raw("general.architecture", 8, &string(name)));
    assert!(message.contains("general.architecture"), "{message}");
}

/// D15: a file of the other byte order.
#[test]
fn d15_big_endian() {
    let bytes = [b"GGUF\0\0\0\x03".as_slice(), &[0; 16]].concat();
    assert!(gguf_error(bytes).contains("big-endian"));
}

/// D16: types are read tensor by tensor, whatever the label says.
#[test]
fn d16_mixed_types() {
    let mut builder = GgufBuilder::default().u32("general.file_type", 2);
    for storage in StorageType::ALL {
        let (values, bytes) = storage.block();
        let (name, dims) = (storage.name(), [values as u64, 1]);
        builder = builder.tensor(name, &dims, storage.gguf_id(), &vec![0; bytes]);
    }
    let file = gguf(builder.build()).unwrap();
    assert!(StorageType::ALL.iter().all(|s| file.tensors[s.name()].storage == *s));
}

/// D17: type numbers that were removed, or never were.
#[test]
fn d17_unknown_types() {
    for id in [4u32, 5, 31, 32, 33, 36, 40, 41, 42, 255, u32::MAX] {
        let result = gguf(GgufBuilder::default().tensor("odd", &[256], id, &[0; 512]).build());
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. } | Error::Format { .. }), "{id}: {error}");
        let message = error.to_string();
        assert!(message.contains("odd") && message.contains(&id.to_string()), "{message}");
    }
}

/// A safetensors file of this header and so many bytes.
fn safetensors(header: &str, data: usize) -> Vec<u8> {
    let length = (header.len() as u64).to_le_bytes();
    [&length, header.as_bytes(), &vec![0; data]].concat()
}

fn tensors(header: &str, data: usize) -> Result<usize> {
    parse_raw(Path::new("f.safetensors"), safetensors(header, data).into()).map(|t| t.len())
}

/// E01, E02: ranges that overlap, leave gaps or the file, run backwards, or do not fit the shape.
#[test]
fn e01_e02_ranges() {
    let two = |first: &str, second: &str| {
        let entry = |range| format!(r#"{{"dtype":"F32","shape":[4],"data_offsets":{range}}}"#);
        tensors(&format!(r#"{{"a":{},"b":{}}}"#, entry(first), entry(second)), 32)
    };
    assert_eq!(two("[0,16]", "[16,32]").unwrap(), 2);
    for (first, second) in
        [("[0,16]", "[8,24]"), ("[0,16]", "[0,16]"), ("[0,16]", "[20,36]"), ("[16,0]", "[16,32]")]
    {
        assert!(two(first, second).is_err(), "{first} {second}");
    }
    let wrong = r#"{"a":{"dtype":"F32","shape":[1024,1024],"data_offsets":[0,4]}}"#;
    assert!(tensors(wrong, 4).is_err());
}

/// E03: the length of the header is taken on trust.
#[test]
fn e03_header_lengths() {
    for length in [1u64 << 63, 40, 33, 0] {
        let bytes = [&length.to_le_bytes()[..], &[b' '; 32]].concat();
        let result = parse_raw(Path::new("f.safetensors"), bytes.into());
        assert!(result.is_err(), "{length}");
    }
}

/// E05: metadata that is empty or absent, spaces behind the header.
#[test]
fn e05_metadata() {
    let entry = r#""a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}"#;
    for header in [
        format!("{{{entry}}}"),
        format!(r#"{{"__metadata__":{{}},{entry}}}"#),
        format!(r#"{{"__metadata__":{{"format":"pt"}},{entry}}}"#),
        format!("{{{entry}}}       "),
    ] {
        assert_eq!(tensors(&header, 4).unwrap(), 1, "{header}");
    }
}

/// D23: a layer that the metadata promise and the file lacks.
#[test]
fn d23_missing_tensors() {
    let source = SafetensorsFolder::open(fixture("qwen3-dense")).unwrap();
    assert!(source.tensors.contains_key("model.norm.weight"));
    for lost in ["model.norm.weight", "model.layers.1.self_attn.k_proj.weight"] {
        let path = fixture("qwen3-dense").join("config.json");
        let text = fs::read_to_string(&path).unwrap();
        let mut config = crate::ModelConfig::from_hf(&path, &text).unwrap();
        let mut tensors = source.tensors.clone();
        let removed: Option<HostTensor> = tensors.remove(lost);
        assert!(removed.is_some());
        let result = super::names_hf::assemble(Path::new("f"), tensors, &mut config);
        let message = result.unwrap_err().to_string();
        assert!(message.contains(lost), "{message}");
    }
}
