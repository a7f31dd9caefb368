use super::builder::{GgufBuilder, array, string};
use super::*;
use crate::weights::quant::StorageType;
use crate::weights::testing::{fixture, fixtures, shared};
use proptest::prelude::*;
use std::fs;

fn parse(bytes: Vec<u8>) -> Result<GgufFile> {
    GgufFile::parse(Path::new("f.gguf"), bytes.into())
}

fn message(builder: &GgufBuilder) -> String {
    parse(builder.build()).unwrap_err().to_string()
}

/// Two tensors and one key of most types.
fn small() -> GgufBuilder {
    GgufBuilder::default()
        .str("general.architecture", "llama")
        .u32("llama.block_count", 2)
        .f32("llama.eps", 1e-5)
        .bool("tokenizer.ggml.add_bos_token", true)
        .raw("i8", 1, &[0xff])
        .raw("u64", 10, &u64::MAX.to_le_bytes())
        .raw("f64", 12, &0.5f64.to_le_bytes())
        .strings("tokenizer.ggml.tokens", &["a", "Ġb", "<|end|>"])
        .i32s("tokenizer.ggml.token_type", &[1, 1, 3])
        .raw("bools", 9, &array(7, &[vec![1], vec![0]]))
        .raw("floats", 9, &array(6, &[1.5f32.to_le_bytes().to_vec()]))
        .tensor("norm", &[4], 0, &[1; 16])
        .tensor("matrix", &[32, 3], 8, &[2; 102])
}

#[test]
fn reads_values_and_tensors() {
    let file = parse(small().build()).unwrap();
    assert_eq!(file.version, 3);
    assert_eq!(file.require_str("general.architecture").unwrap(), "llama");
    assert_eq!(file.require_u32("llama.block_count").unwrap(), 2);
    assert_eq!(file.require_f32("llama.eps").unwrap(), 1e-5);
    assert_eq!(file.require_f32("f64").unwrap(), 0.5);
    assert!(file.require_bool("tokenizer.ggml.add_bos_token").unwrap());
    assert_eq!(file.require_strings("tokenizer.ggml.tokens").unwrap(), ["a", "Ġb", "<|end|>"]);
    assert_eq!(file.require_i32s("tokenizer.ggml.token_type").unwrap(), [1, 1, 3]);
    assert_eq!(file.require_u32s("tokenizer.ggml.token_type").unwrap(), [1, 1, 3]);
    assert_eq!(file.require_bools("bools").unwrap(), [true, false]);
    assert_eq!(file.require_f32s("floats").unwrap(), [1.5]);
    assert_eq!(file.get("i8").and_then(GgufValue::as_i32), Some(-1));
    assert_eq!(file.get("i8").and_then(GgufValue::as_u32), None);
    assert_eq!(file.get("u64").and_then(GgufValue::as_u64), Some(u64::MAX));
    let matrix = &file.tensors["matrix"];
    assert_eq!((matrix.storage, &*matrix.shape), (StorageType::Q8_0, &[3, 32][..]));
    assert_eq!(matrix.data.as_slice(), [2; 102]);
    assert_eq!(file.tensors["norm"].shape, [4]);
    assert_eq!(file.tensors["norm"].data.as_slice(), [1; 16]);
}

#[test]
fn lookups_name_file_and_key() {
    let file = parse(small().build()).unwrap();
    let absent = file.require_u32("llama.context_length").unwrap_err().to_string();
    assert_eq!(absent, "f.gguf: llama.context_length: metadata key is missing");
    let wrong = file.require_u32("general.architecture").unwrap_err().to_string();
    assert_eq!(
        wrong,
        "f.gguf: general.architecture: is \"llama\", expected an integer from 0 to 4294967295"
    );
    let array = file.optional_str("tokenizer.ggml.tokens").unwrap_err().to_string();
    assert!(array.ends_with("is array of string (3 elements), expected a string"), "{array}");
    assert_eq!(file.optional_f32s("none").unwrap(), None);
}

#[test]
fn keeps_dimensions_of_one_and_any_alignment() {
    let builder = small().alignment(64).tensor("taps", &[1, 3, 1], 0, &[7; 12]);
    let file = parse(builder.build()).unwrap();
    assert_eq!(file.tensors["taps"].shape, [1, 3, 1]);
    assert_eq!(file.tensors["matrix"].data.as_slice(), [2; 102]);
}

#[test]
fn version_2_is_read_and_others_are_named() {
    let with_version = |version: u32| {
        let mut bytes = small().build();
        bytes[4..8].copy_from_slice(&version.to_le_bytes());
        parse(bytes)
    };
    assert_eq!(with_version(2).unwrap().version, 2);
    let one = with_version(1).unwrap_err().to_string();
    assert_eq!(one, "f.gguf: version: is 1, supported are 2 and 3");
    let swapped = with_version(3u32.swap_bytes()).unwrap_err().to_string();
    assert!(swapped.contains("big-endian"), "{swapped}");
    assert!(parse(b"GGML\x03\0\0\0".to_vec()).unwrap_err().to_string().contains("magic"));
}

#[test]
fn unsupported_types_are_named_with_the_supported_ones() {
    let error = parse(small().tensor("odd", &[256], 21, &[0; 110]).build()).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    let text = error.to_string();
    assert!(text.contains("tensor odd of type iq3_s (id 21)"), "{text}");
    assert!(text.contains("q4_k"), "{text}");
}

#[test]
fn equal_keys_and_names_are_refused() {
    let key = message(&small().u32("llama.block_count", 2));
    assert_eq!(key, "f.gguf: llama.block_count: appears twice");
    let tensor = message(&small().tensor("norm", &[4], 0, &[1; 16]));
    assert_eq!(tensor, "f.gguf: norm: appears twice");
}

#[test]
fn text_must_be_utf8() {
    let token = array(8, &[string("ok"), string([0xff, 0xfe])]);
    let value = message(&GgufBuilder::default().raw("tokenizer.ggml.tokens", 9, &token));
    assert!(value.starts_with("f.gguf: tokenizer.ggml.tokens: element 1: string at byte"));
    let key = message(&GgufBuilder::default().u32("first", 1).raw([0xff], 0, &[0]));
    assert!(key.starts_with("f.gguf: key 1: string at byte"), "{key}");
    let empty = message(&GgufBuilder::default().u32("", 1));
    assert!(empty.contains("key 0: name of 0 bytes"), "{empty}");
}

#[test]
fn claims_beyond_the_file_are_refused_without_reserving() {
    let huge = 1u64 << 60;
    for element in [0u32, 5, 7, 8, 12] {
        let value = [&element.to_le_bytes()[..], &huge.to_le_bytes()].concat();
        let text = message(&GgufBuilder::default().raw("many", 9, &value));
        assert!(text.starts_with("f.gguf: many: "), "{text}");
    }
    let text = message(&GgufBuilder::default().raw("long", 8, &u64::MAX.to_le_bytes()));
    assert!(text.contains("needs 18446744073709551615 bytes"), "{text}");
    for field in [8, 16] {
        let mut bytes = small().build();
        bytes[field..field + 8].copy_from_slice(&huge.to_le_bytes());
        let text = parse(bytes).unwrap_err().to_string();
        assert!(text.contains("count: claims 1152921504606846976 items"), "{text}");
    }
}

#[test]
fn values_that_cannot_be_are_refused() {
    let builder = GgufBuilder::default();
    let nested = array(9, &[array(4, &[vec![0; 4]])]);
    assert!(message(&builder.clone().raw("k", 9, &nested)).contains("array of arrays"));
    assert!(message(&builder.clone().raw("k", 7, &[2])).contains("holds 2, expected a bool"));
    assert!(message(&builder.clone().raw("k", 13, &[0; 8])).contains("unknown value type 13"));
    assert!(message(&builder.raw("k", 9, &array(77, &[]))).contains("unknown element type 77"));
}

#[test]
fn alignment_must_be_a_power_of_two() {
    for wrong in [0u32, 24, u32::MAX] {
        let builder = GgufBuilder::default().u32("general.alignment", wrong);
        let text = message(&builder.tensor("norm", &[4], 0, &[1; 16]));
        assert!(text.starts_with("f.gguf: general.alignment: is"), "{text}");
    }
    // The data start of a file with the greatest alignment lies far behind its end.
    let builder = GgufBuilder::default().u32("general.alignment", 1 << 31);
    let text = message(&builder.tensor("norm", &[4], 0, &[1; 16]));
    assert!(text.contains("leave the file"), "{text}");
}

#[test]
fn impossible_shapes_are_refused() {
    let with = |dims: &[u64], type_id| message(&small().tensor("t", dims, type_id, &[0; 64]));
    assert!(with(&[], 0).contains("t: has 0 dimensions"));
    assert!(with(&[1; 5], 0).contains("t: has 5 dimensions"));
    assert!(with(&[2, 0], 0).contains("dimension of zero"));
    assert!(with(&[33], 8).contains("blocks of 32 q8_0 values"));
    assert!(with(&[1 << 32, 1 << 32], 0).contains("overflows"));
    assert!(with(&[u64::MAX], 0).contains("overflows"));
    assert!(with(&[1 << 20], 0).contains("leave the file"));
}

/// Overwrites the data offset of the last tensor, whose info ends at the padding before the data.
fn with_last_offset(offset: u64) -> String {
    let builder = GgufBuilder::default();
    let builder = builder.tensor("a", &[8], 0, &[1; 32]).tensor("b", &[8], 0, &[2; 32]);
    let mut bytes = builder.build();
    let infos_end = 24 + 2 * (8 + 1 + 4 + 8 + 4 + 8);
    bytes[infos_end - 8..infos_end].copy_from_slice(&offset.to_le_bytes());
    parse(bytes).map(|_| "accepted".to_owned()).unwrap_or_else(|e| e.to_string())
}

#[test]
fn offsets_are_checked() {
    assert_eq!(with_last_offset(32), "accepted");
    assert!(with_last_offset(0).contains("overlap"));
    assert!(with_last_offset(16).contains("no multiple of 32"));
    assert!(with_last_offset(64).contains("leave the file"));
    assert!(with_last_offset(!31).contains("leave the file"));
}

/// Writes a set of three files of one tensor each, the second with the given place.
fn write_split(folder: &Path, second: (u32, u32), tensors: u32) -> PathBuf {
    for (index, place) in [(0, 3), second, (2, 3)].into_iter().enumerate() {
        let builder = GgufBuilder::default()
            .u32("split.no", place.0)
            .u32("split.count", place.1)
            .u32("split.tensors.count", tensors)
            .tensor(&format!("t{index}"), &[1], 0, &[index as u8; 4]);
        fs::write(folder.join(format!("m-{:05}-of-00003.gguf", index + 1)), builder.build())
            .unwrap();
    }
    folder.join("m-00001-of-00003.gguf")
}

#[test]
fn a_split_set_is_one_file() {
    let folder = tempfile::tempdir().unwrap();
    let first = write_split(folder.path(), (1, 3), 3);
    let file = GgufFile::open(&first).unwrap();
    assert_eq!(file.tensors.keys().collect::<Vec<_>>(), ["t0", "t1", "t2"]);
    assert_eq!(file.tensors["t2"].data.as_slice(), [2; 4]);
    let second = GgufFile::open(folder.path().join("m-00002-of-00003.gguf")).unwrap_err();
    let text = second.to_string();
    assert!(text.ends_with("is file 2 of a split set, open m-00001-of-00003.gguf"), "{text}");
    let in_memory = parse(fs::read(&first).unwrap()).unwrap_err().to_string();
    assert!(in_memory.contains("one of 3 files"), "{in_memory}");
}

#[test]
fn broken_split_sets_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = |second, tensors| {
        GgufFile::open(write_split(folder.path(), second, tensors)).unwrap_err().to_string()
    };
    assert!(open((2, 3), 3).ends_with("m-00002-of-00003.gguf: split.no: is 2, expected 1"));
    assert!(open((1, 4), 3).ends_with("split.count: is 4, expected 3"));
    assert!(open((1, 1), 3).ends_with("split.count: is missing or 1, expected 3"));
    assert!(open((1, 3), 4).ends_with("split.tensors.count: is 4, the files hold 3"));
    let first = write_split(folder.path(), (1, 3), 3);
    let alone = folder.path().join("renamed.gguf");
    fs::copy(&first, &alone).unwrap();
    let renamed = GgufFile::open(&alone).unwrap_err().to_string();
    assert!(renamed.ends_with("its name must end in -00001-of-00003.gguf"), "{renamed}");
    fs::copy(&first, folder.path().join("m-00002-of-00003.gguf")).unwrap();
    assert!(GgufFile::open(&first).is_err());
    fs::remove_file(folder.path().join("m-00003-of-00003.gguf")).unwrap();
    write_split(folder.path(), (1, 3), 3);
    fs::remove_file(folder.path().join("m-00003-of-00003.gguf")).unwrap();
    let missing = GgufFile::open(&first).unwrap_err().to_string();
    assert!(missing.contains("m-00003-of-00003.gguf of the split set is missing"), "{missing}");
}

#[test]
fn reads_the_fixtures() {
    let hybrid = GgufFile::open(fixture("hybrid-dense-tied/model-Q8_0.gguf")).unwrap();
    assert_eq!((hybrid.metadata.len(), hybrid.tensors.len()), (35, 123));
    assert_eq!(hybrid.require_str("general.architecture").unwrap(), "qwen35");
    assert_eq!(hybrid.require_i32s("qwen35.rope.dimension_sections").unwrap(), [2, 1, 1, 0]);
    assert_eq!(hybrid.require_bools("qwen35.attention.recurrent_layers").unwrap().len(), 9);
    assert_eq!(hybrid.tensors["blk.0.ssm_conv1d.weight"].shape, [192, 4]);
    assert_eq!(hybrid.tensors["token_embd.weight"].storage, StorageType::Q8_0);
    let mut seen = 0;
    for path in fixtures("gguf") {
        let file = GgufFile::open(&path).unwrap();
        assert_eq!(file.require_strings("tokenizer.ggml.tokens").unwrap().len(), 512);
        seen += 1;
    }
    assert!(seen >= 5, "{seen} fixtures");
}

#[test]
fn reads_whole_vocabularies() {
    let Some(folder) = shared("cases/tokenizers") else { return };
    for (name, tokens, merges) in
        [("ggml-vocab-gpt-2.gguf", 50257, 50000), ("ggml-vocab-qwen35.gguf", 151936, 151387)]
    {
        let file = GgufFile::open(folder.join(name)).unwrap();
        assert!(file.tensors.is_empty());
        assert_eq!(file.require_strings("tokenizer.ggml.tokens").unwrap().len(), tokens);
        assert_eq!(file.require_strings("tokenizer.ggml.merges").unwrap().len(), merges);
        assert_eq!(file.require_i32s("tokenizer.ggml.token_type").unwrap().len(), tokens);
    }
}

/// Looks at everything that a reader may look at.
fn touch(file: Result<GgufFile>) {
    let Ok(file) = file else { return };
    for tensor in file.tensors.values() {
        assert_eq!(tensor.data.as_slice().len(), tensor.total_rows() * tensor.row_bytes());
    }
    for value in file.metadata.values() {
        let _ = (value.to_string(), value.as_u32s(), value.as_i32(), value.as_f32s());
    }
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = small().build();
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        touch(parse(bytes));
    }

    #[test]
    fn changed_words_never_panic(
        at in any::<prop::sample::Index>(), word in any::<u64>(), shift in 0u32..64,
    ) {
        let mut bytes = small().build();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&(word >> shift).to_le_bytes());
        touch(parse(bytes));
    }

    #[test]
    fn a_cut_file_is_an_error(len in any::<prop::sample::Index>()) {
        let mut bytes = small().build();
        // The padding behind the last tensor may be missing.
        let padding = 128 - 102;
        bytes.truncate(len.index(bytes.len() - padding));
        prop_assert!(parse(bytes).is_err());
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        touch(parse([&b"GGUF\x03\0\0\0"[..], &noise].concat()));
    }
}
