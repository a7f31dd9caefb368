use super::*;
use crate::config::{
    AttentionConfig, Family, FeedForwardConfig, LayerKind, RopeConfig, RopeScaling,
};
use crate::ops::RopePairing;
use crate::weights::GgufVocabulary;
use proptest::prelude::*;
use std::fs;

fn header() -> YtfHeader {
    YtfHeader {
        name: "tiny".into(),
        config: ModelConfig {
            family: Family::Llama,
            vocab_size: 3,
            hidden_size: 4,
            layers: vec![LayerKind::Attention],
            rms_norm_eps: 1e-5,
            tied_embeddings: true,
            attention: AttentionConfig {
                query_heads: 1,
                kv_heads: 1,
                head_dim: 4,
                gated: false,
                qk_norm: false,
                rope: RopeConfig {
                    dims: 4,
                    theta: 500_000.1,
                    pairing: RopePairing::Half,
                    scaling: RopeScaling::Linear { factor: 1.0 / 3.0 },
                },
            },
            delta_net: None,
            feed_forward: FeedForwardConfig::Dense { intermediate: 8 },
            mtp: false,
            max_positions: 16,
        },
        tokenizer: TokenizerSource::Gguf(Box::new(GgufVocabulary {
            model: "llama".into(),
            tokens: vec!["a".into(), "\n\"\u{1f600}".into()],
            scores: vec![-0.1, f32::MIN_POSITIVE],
            eos: vec![1],
            ..GgufVocabulary::default()
        })),
        chat_template: Some("{{ messages }}".into()),
        tokenizer_config: None,
        generation: GenerationDefaults { top_p: Some(0.95), ..GenerationDefaults::default() },
        provenance: Provenance {
            source: "tiny.gguf".into(),
            source_format: Format::Gguf,
            forge_version: "0.1.0".into(),
            calibration: None,
        },
        tensors: BTreeMap::new(),
    }
}

fn plan() -> Vec<PlannedTensor> {
    vec![
        ("norm".into(), StorageType::F32, vec![4]),
        ("matrix".into(), StorageType::Q8_0, vec![3, 32]),
        ("block".into(), StorageType::Q4_K, vec![256]),
    ]
}

fn write(path: &Path) -> Result<()> {
    let mut writer = YtfWriter::create(path, header(), &plan())?;
    writer.write_tensor("norm", &[1; 16])?;
    writer.write_tensor("matrix", &[2; 102])?;
    writer.write_tensor("block", &[3; 144])?;
    writer.finish()
}

fn written() -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tiny.ytf");
    write(&path).unwrap();
    fs::read(&path).unwrap()
}

fn parse(bytes: Vec<u8>) -> Result<YtfFile> {
    YtfFile::parse(Path::new("f.ytf"), bytes.into())
}

fn json_end(bytes: &[u8]) -> usize {
    PREAMBLE_BYTES + u64::from_le_bytes(bytes[16..24].try_into().unwrap()) as usize
}

/// Replaces the JSON, with a right checksum; the data stay where the old header put them.
fn with_json(bytes: &[u8], json: &str) -> Vec<u8> {
    let align = |len: usize| len.next_multiple_of(ALIGNMENT as usize);
    let mut changed = bytes[..16].to_vec();
    changed.extend((json.len() as u64).to_le_bytes());
    changed.extend(xxh3_64(json.as_bytes()).to_le_bytes());
    changed.extend(json.as_bytes());
    changed.resize(align(changed.len()), 0);
    changed.extend(&bytes[align(json_end(bytes))..]);
    changed
}

fn replaced(from: &str, to: &str) -> Result<YtfFile> {
    let bytes = written();
    let json = std::str::from_utf8(&bytes[PREAMBLE_BYTES..json_end(&bytes)]).unwrap();
    assert!(json.contains(from), "{from} is not in {json}");
    parse(with_json(&bytes, &json.replacen(from, to, 1)))
}

#[test]
fn what_is_written_is_read_back() {
    let file = parse(written()).unwrap();
    let expected = YtfHeader { tensors: file.header.tensors.clone(), ..header() };
    assert_eq!(file.header, expected);
    assert_eq!(file.tensors["norm"].data.as_slice(), [1; 16]);
    assert_eq!(file.tensors["matrix"].data.as_slice(), [2; 102]);
    assert_eq!(file.tensors["block"].data.as_slice(), [3; 144]);
    assert_eq!(file.tensors["matrix"].shape, [3, 32]);
    let offsets: Vec<_> =
        plan().iter().map(|(name, _, _)| file.header.tensors[name].offset).collect();
    assert_eq!(offsets, [0, 4096, 8192]);
    file.verify().unwrap();
}

#[test]
fn bytes_at_an_odd_address_are_read() {
    let shifted = HostBytes::from([vec![0], written()].concat());
    let bytes = shifted.slice(1..shifted.len()).unwrap();
    YtfFile::parse(Path::new("f"), bytes).unwrap().verify().unwrap();
}

#[test]
fn the_preamble_is_checked() {
    let changed = |at: usize, byte: u8| {
        let mut bytes = written();
        bytes[at] = byte;
        parse(bytes).unwrap_err().to_string()
    };
    assert!(changed(0, b'Y').contains("magic: is not that of a .ytf file"));
    assert_eq!(changed(8, 9), "f.ytf: version: is 9, this forge reads 1");
    assert_eq!(changed(12, 2), "f.ytf: reserved: is 2, expected 0");
    assert!(changed(23, 1).contains("header length: is"));
    assert!(changed(24, !written()[24]).contains("header checksum: is"));
    assert!(changed(PREAMBLE_BYTES + 3, b'?').contains("header checksum: is"));
    assert!(parse(MAGIC.to_vec()).unwrap_err().to_string().contains("preamble: needs 32 bytes"));
}

#[test]
fn unknown_fields_are_ignored() {
    replaced(r#""name":"tiny""#, r#""name":"tiny","later":{"a":[1]}"#).unwrap().verify().unwrap();
    replaced(r#""type":"q8_0""#, r#""type":"q8_0","later":1"#).unwrap().verify().unwrap();
}

#[test]
fn entries_that_lie_are_refused() {
    let error = |from: &str, to: &str| replaced(from, to).unwrap_err().to_string();
    assert!(error("\"offset\":4096", "\"offset\":0").contains("overlap"));
    assert!(error("\"offset\":4096", "\"offset\":96").contains("no multiple of 4096"));
    assert!(error("\"offset\":8192", "\"offset\":12288").contains("leave the file"));
    let far = error("\"offset\":8192", "\"offset\":18446744073709547520");
    assert!(far.ends_with("block: offset 18446744073709547520 overflows"), "{far}");
    assert!(error("\"bytes\":102", "\"bytes\":103").contains("takes 102 bytes"));
    assert!(error("[3,32]", "[3,31]").contains("blocks of 32 q8_0 values"));
    assert!(error("[3,32]", "[3,0]").contains("dimension of zero"));
    assert!(error("[3,32]", "[]").contains("has 0 dimensions"));
    assert!(error("[3,32]", "[1,1,1,3,32]").contains("has 5 dimensions"));
    assert!(error("[3,32]", "[4294967296,4294967296,32]").contains("overflows"));
    assert!(error("\"norm\"", "\"block\"").contains("block appears twice"));
    assert!(error("\"norm\"", "\"\"").contains("a name is empty"));
    let unknown = error("\"q8_0\"", "\"q9\"");
    assert!(unknown.starts_with("f.ytf: header: matrix: type: q9: use one of"), "{unknown}");
    assert!(error("\"checksum\":\"", "\"checksum\":\"+").contains("16 hexadecimal digits"));
}

#[test]
fn the_writer_keeps_to_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ytf");
    let create = |plan: &[PlannedTensor]| YtfWriter::create(&path, header(), plan);
    let mut writer = create(&plan()).unwrap();
    let order = writer.write_tensor("matrix", &[2; 102]).unwrap_err().to_string();
    assert_eq!(order, "matrix: the next tensor of the plan is Some(\"norm\")");
    let length = writer.write_tensor("norm", &[1; 15]).unwrap_err().to_string();
    assert_eq!(length, "norm: has 15 bytes, planned are 16");
    writer.write_tensor("norm", &[1; 16]).unwrap();
    let early = writer.finish().unwrap_err().to_string();
    assert_eq!(early, "matrix: is in the plan and was not written");
    let twice = [plan(), plan()].concat();
    assert!(create(&twice).unwrap_err().to_string().contains("planned twice"));
    let broken = [("b".to_owned(), StorageType::Q8_0, vec![31])];
    assert!(create(&broken).unwrap_err().to_string().contains("blocks of 32"));
    let mut not_finite = header();
    not_finite.config.rms_norm_eps = f32::NAN;
    let error = YtfWriter::create(&path, not_finite, &plan()).unwrap_err().to_string();
    assert!(error.contains("header: cannot be written"), "{error}");
    let is_folder = YtfWriter::create(folder.path(), header(), &plan()).unwrap_err();
    assert!(is_folder.to_string().ends_with("is a folder"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "something was left behind");
}

#[test]
fn the_target_changes_only_when_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.ytf");
    fs::write(&path, b"old").unwrap();
    let mut writer = YtfWriter::create(&path, header(), &plan()).unwrap();
    writer.write_tensor("norm", &[1; 16]).unwrap();
    drop(writer);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    write(&path).unwrap();
    YtfFile::open(&path).unwrap().verify().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let plain = folder.path().join("plain");
        fs::write(&plain, b"").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode(&path), mode(&plain), "permissions differ from those of a new file");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_changed_tensor_byte_is_found(
        tensor in 0usize..3, at in any::<prop::sample::Index>(), bit in 0u32..8,
    ) {
        let mut bytes = written();
        let data_start = json_end(&bytes).next_multiple_of(ALIGNMENT as usize);
        let (name, length) = [("norm", 16), ("matrix", 102), ("block", 144)][tensor];
        bytes[data_start + 4096 * tensor + at.index(length)] ^= 1 << bit;
        let error = parse(bytes).unwrap().verify().unwrap_err().to_string();
        prop_assert!(error.starts_with(&format!("f.ytf: {name}: checksum is")), "{error}");
        prop_assert!(error.ends_with("(1 of 3 tensors are damaged)"), "{error}");
    }

    #[test]
    fn any_changed_header_byte_is_found(at in any::<prop::sample::Index>(), bit in 0u32..8) {
        let mut bytes = written();
        let at = at.index(json_end(&bytes));
        bytes[at] ^= 1 << bit;
        prop_assert!(parse(bytes).is_err());
    }

    #[test]
    fn a_cut_file_is_an_error(len in any::<prop::sample::Index>()) {
        let mut bytes = written();
        bytes.truncate(len.index(bytes.len()));
        prop_assert!(parse(bytes).is_err());
    }

    #[test]
    fn a_changed_header_with_a_right_checksum_never_panics(
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0x20u8..0x7f), 1..4),
    ) {
        let bytes = written();
        let mut json = bytes[PREAMBLE_BYTES..json_end(&bytes)].to_vec();
        for (at, byte) in changes {
            let at = at.index(json.len());
            json[at] = byte;
        }
        if let Ok(json) = String::from_utf8(json)
            && let Ok(file) = parse(with_json(&bytes, &json))
        {
            let _ = file.verify();
        }
    }
}
