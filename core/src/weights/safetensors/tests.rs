use super::*;
use crate::weights::testing::{fixture, fixtures};
use proptest::prelude::*;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

/// A file of tensors filled with one byte each.
fn file(tensors: &[(&str, Dtype, &[usize])]) -> Vec<u8> {
    let data: Vec<_> = tensors
        .iter()
        .map(|(_, dtype, shape)| vec![7u8; shape.iter().product::<usize>() * dtype.bitsize() / 8])
        .collect();
    let views = tensors.iter().zip(&data).map(|((name, dtype, shape), data)| {
        (name.to_string(), TensorView::new(*dtype, shape.to_vec(), data).unwrap())
    });
    safetensors::serialize(views, None).unwrap()
}

/// A file with this header and so many bytes of data.
fn with_header(json: &str, data_bytes: usize) -> Vec<u8> {
    [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), &vec![0; data_bytes]].concat()
}

fn read(bytes: Vec<u8>) -> Result<BTreeMap<String, HostTensor>> {
    parse(Path::new("f"), bytes.into())
}

fn message(bytes: Vec<u8>) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn reads_weights_of_three_types() {
    let bytes = file(&[
        ("a", Dtype::F32, &[2, 3]),
        ("b", Dtype::BF16, &[4]),
        ("c", Dtype::F16, &[1, 1, 2]),
    ]);
    let tensors = read(bytes).unwrap();
    let found: Vec<_> = tensors.values().map(|t| (t.storage, &*t.shape, t.data.len())).collect();
    assert_eq!(
        found,
        [
            (StorageType::F32, &[2, 3][..], 24),
            (StorageType::Bf16, &[4], 8),
            (StorageType::F16, &[1, 1, 2], 4)
        ]
    );
}

#[test]
fn other_types_are_refused_outside_the_vision_tower() {
    let error = read(file(&[("ids", Dtype::I32, &[2])])).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(error.to_string().contains("tensor ids of type I32"), "{error}");
    let vision = file(&[("model.visual.x", Dtype::I64, &[1; 6]), ("w", Dtype::F32, &[1])]);
    assert_eq!(read(vision).unwrap().keys().collect::<Vec<_>>(), ["w"]);
    let scalar = message(file(&[("s", Dtype::F32, &[])]));
    assert_eq!(scalar, "f: s: has 0 dimensions, expected 1 to 4");
}

#[test]
fn raw_tensors_keep_their_type() {
    let tensors = parse_raw(Path::new("f"), file(&[("i", Dtype::I32, &[2])]).into()).unwrap();
    assert_eq!(tensors["i"].dtype, "I32");
    assert_eq!(tensors["i"].to_i64s(), Some(vec![0x0707_0707; 2]));
    assert_eq!(tensors["i"].to_f32s(), None);
}

#[test]
fn headers_that_lie_are_refused() {
    let entry = |range: &str| format!(r#"{{"dtype":"F32","shape":[1],"data_offsets":{range}}}"#);
    let (one, good) = (entry("[0,4]"), with_header(&format!("{{\"a\":{}}}", entry("[0,4]")), 4));
    assert!(read(good.clone()).is_ok());
    let twice = message(with_header(&format!("{{\"a\":{one},\"a\":{one}}}"), 4));
    assert!(twice.contains("a appears twice"), "{twice}");
    let outside = message(with_header(&format!("{{\"a\":{}}}", entry("[0,8]")), 4));
    assert!(outside.contains("a: data offsets 0..8 leave the 4 bytes"), "{outside}");
    let overlap = with_header(&format!("{{\"a\":{one},\"b\":{one}}}"), 4);
    assert!(message(overlap).contains("invalid offset for tensor"));
    let gap = with_header(&format!("{{\"a\":{}}}", entry("[4,8]")), 8);
    assert!(message(gap).contains("invalid offset for tensor"));
    let trailing = [good.clone(), vec![0]].concat();
    assert!(message(trailing).contains("not fully covered"));
    let shape = with_header(r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, 4);
    assert!(message(shape).contains("invalid shape"));
    let overflow = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}}"#;
    assert!(message(with_header(overflow, 4)).contains("overflow"));
    assert!(message(u64::MAX.to_le_bytes().to_vec()).contains("header: claims"));
    assert!(message(vec![1, 2]).contains("header: needs 8 bytes"));
    assert!(message(with_header("[]", 0)).contains("header: "));
}

#[test]
fn offsets_that_add_up_to_an_overflow_are_refused() {
    // Eight tensors of 2^61 - 1 bytes end within 2^64, but not when the header is added.
    let size = (1u64 << 61) - 1;
    let entries: Vec<_> = (0..8)
        .map(|i| {
            let (start, end) = (i * size, (i + 1) * size);
            format!(r#""{i}":{{"dtype":"U8","shape":[{size}],"data_offsets":[{start},{end}]}}"#)
        })
        .collect();
    let text = message(with_header(&format!("{{{}}}", entries.join(",")), 0));
    assert!(text.contains("leave the 0 bytes of data"), "{text}");
}

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(dir.join(name), bytes).unwrap();
}

fn open_error(dir: &Path) -> String {
    SafetensorsFolder::open(dir).unwrap_err().to_string()
}

#[test]
fn an_index_is_followed_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    assert!(open_error(dir).ends_with("folder: holds no .safetensors file"));
    write(dir, "s-1.safetensors", file(&[("a", Dtype::F32, &[1])]));
    write(
        dir,
        "s-2.safetensors",
        file(&[("b", Dtype::F32, &[1]), ("model.visual.v", Dtype::U8, &[1])]),
    );
    let index = |map: &str| {
        let text = format!(r#"{{"metadata":{{"total_size":8}},"weight_map":{{{map}}}}}"#);
        write(dir, "model.safetensors.index.json", text);
    };
    index(r#""a":"s-1.safetensors","b":"s-2.safetensors","model.visual.v":"s-2.safetensors""#);
    let open = SafetensorsFolder::open(dir).unwrap();
    assert_eq!(open.tensors.keys().collect::<Vec<_>>(), ["a", "b"]);
    index(r#""a":"s-1.safetensors","b":"s-3.safetensors""#);
    assert!(open_error(dir).ends_with("b: its shard s-3.safetensors is missing"));
    index(r#""a":"s-2.safetensors","b":"s-1.safetensors""#);
    assert!(open_error(dir).ends_with("a: is not in its shard s-2.safetensors"));
    index(r#""a":"../s-1.safetensors""#);
    assert!(open_error(dir).ends_with("is no plain file name"));
    index("");
    assert!(open_error(dir).ends_with("weight_map: names no tensor"));
    write(dir, "model.safetensors.index.json", "{}");
    assert!(open_error(dir).contains("weight_map: missing field"));
}

#[test]
fn without_an_index_every_shard_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path();
    write(dir, "x.safetensors", file(&[("a", Dtype::F32, &[1])]));
    write(dir, "y.safetensors", file(&[("b", Dtype::F32, &[1])]));
    assert_eq!(SafetensorsFolder::open(dir).unwrap().tensors.len(), 2);
    write(dir, "z.safetensors", file(&[("b", Dtype::F32, &[1])]));
    assert!(open_error(dir).ends_with("b: is in y.safetensors and in z.safetensors"));
    write(dir, "model.safetensors", file(&[("c", Dtype::F32, &[1])]));
    assert_eq!(SafetensorsFolder::open(dir).unwrap().tensors.keys().next().unwrap(), "c");
}

#[test]
fn reads_the_fixtures() {
    let hybrid = SafetensorsFolder::open(fixture("hybrid-dense-tied")).unwrap();
    let embed = &hybrid.tensors["model.embed_tokens.weight"];
    assert_eq!(embed.shape, [512, 128]);
    assert!(fixtures("safetensors").len() >= 3);
    for path in fixtures("safetensors") {
        assert!(parse(&path, map_file(&path).unwrap()).unwrap().len() > 10);
    }
    for golden in ["hybrid-dense-tied/golden.safetensors", "quants/quants.safetensors"] {
        let path = fixture(golden);
        assert!(!parse_raw(&path, map_file(&path).unwrap()).unwrap().is_empty());
    }
}

fn json_byte() -> impl Strategy<Value = u8> {
    prop::sample::select(&b"0123456789,[]{}\":ae-."[..])
}

proptest! {
    #[test]
    fn changed_bytes_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
    ) {
        let mut bytes = file(&[("a", Dtype::F32, &[2, 3]), ("b", Dtype::BF16, &[4])]);
        for (index, value) in changes {
            let at = index.index(bytes.len());
            bytes[at] = value;
        }
        let _ = read(bytes);
    }

    #[test]
    fn changed_digits_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), json_byte()), 1..6),
    ) {
        let mut bytes = file(&[("a", Dtype::F32, &[2, 3]), ("b", Dtype::BF16, &[4])]);
        for (index, value) in changes {
            let at = 8 + index.index(bytes.len() - 8);
            bytes[at] = value;
        }
        let _ = read(bytes);
    }

    #[test]
    fn a_cut_file_is_an_error(len in any::<prop::sample::Index>()) {
        let mut bytes = file(&[("a", Dtype::F32, &[2, 3]), ("b", Dtype::BF16, &[4])]);
        bytes.truncate(len.index(bytes.len()));
        prop_assert!(read(bytes).is_err());
    }
}
