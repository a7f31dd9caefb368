//! Against the golden blocks of `tests/fixtures/quants` (made by GGUF's own C code).

use super::*;
use safetensors::SafeTensors;

fn fixture() -> Vec<u8> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/quants");
    std::fs::read(format!("{root}/quants.safetensors")).unwrap()
}

fn floats(file: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let data = file.tensor(name).unwrap().data().to_vec();
    data.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

fn decoded(storage: StorageType, bytes: &[u8]) -> Vec<f32> {
    let (values, block_bytes) = storage.block();
    let mut out = vec![f32::NAN; bytes.len() / block_bytes * values];
    storage.dequantize(bytes, &mut out).unwrap();
    out
}

fn rms_error(left: &[f32], right: &[f32]) -> f64 {
    let squares = left.iter().zip(right).map(|(a, b)| f64::from(a - b).powi(2));
    (squares.sum::<f64>() / left.len() as f64).sqrt()
}

#[test]
fn dequantisation_is_bit_exact() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    for storage in StorageType::ALL.into_iter().filter(|&storage| storage != StorageType::F32) {
        let name = storage.name().to_uppercase();
        for kind in ["quantized", "random"] {
            let raw = file.tensor(&format!("{name}.{kind}.raw")).unwrap();
            let expected = floats(&file, &format!("{name}.{kind}.f32"));
            let got = decoded(storage, raw.data());
            assert_eq!(got.len(), expected.len(), "{name} {kind}");
            for (index, (got, expected)) in got.iter().zip(&expected).enumerate() {
                assert_eq!(got.to_bits(), expected.to_bits(), "{name} {kind} {index}");
            }
        }
    }
}

#[test]
fn half_floats_convert_exactly() {
    for bits in 0..=u16::MAX {
        let expected = half::f16::from_bits(bits).to_f32();
        let [got] = decoded(StorageType::F16, &bits.to_le_bytes())[..] else { unreachable!() };
        assert!(got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan()));
    }
}

#[test]
fn q8_0_blocks_are_those_of_gguf() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let source = floats(&file, "source");
    for storage in [StorageType::F16, StorageType::Bf16, StorageType::Q8_0] {
        let name = format!("{}.quantized.raw", storage.name().to_uppercase());
        let mut got = Vec::new();
        storage.quantize(&source, &mut got).unwrap();
        assert_eq!(got, file.tensor(&name).unwrap().data(), "{storage}");
    }
}

/// The golden blocks come from quantisers that also search for their scales.
#[test]
fn quantisers_lose_no_more_than_those_of_gguf() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let source = floats(&file, "source");
    use StorageType::{Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    for storage in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Iq4Nl] {
        let name = format!("{}.quantized.f32", storage.name().to_uppercase());
        let mut blocks = Vec::new();
        storage.quantize(&source, &mut blocks).unwrap();
        let ours = rms_error(&decoded(storage, &blocks), &source);
        let golden = rms_error(&floats(&file, &name), &source);
        println!("{storage}: rms error {ours:.5}, golden {golden:.5}");
        assert!(ours <= golden * 1.03, "{storage}: rms error {ours}, golden {golden}");
    }
}

#[test]
fn edge_values_quantise() {
    use StorageType::{Iq4Nl, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};
    for storage in [Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Iq4Nl] {
        for value in [0.0, -0.0, 1.0, -3.5, 1e-42, 1e-9] {
            let mut blocks = vec![7];
            storage.quantize(&[value; 32], &mut blocks).unwrap();
            for got in decoded(storage, &blocks[1..]) {
                assert!(
                    (got - value).abs() <= 0.002 * value.abs() + 1e-7,
                    "{storage} {value} {got}"
                );
            }
        }
        let mut blocks = vec![7];
        let mut values = [0.5; 64];
        values[40] = f32::MAX;
        values[41] = f32::MIN;
        let error = storage.quantize(&values, &mut blocks).unwrap_err().to_string();
        assert!(error.contains("block at 32"), "{error}");
        assert_eq!(blocks, [7]);
    }
}

#[test]
fn bad_input_is_an_error() {
    let mut out = Vec::new();
    let mut values = [1.0; 256];
    values[77] = f32::NAN;
    let error = StorageType::Q8_0.quantize(&values, &mut out).unwrap_err().to_string();
    assert!(error.contains("value 77 is NaN"), "{error}");
    assert!(StorageType::Q8_0.quantize(&[1.0; 33], &mut out).is_err());
    let error = StorageType::Q4_K.quantize(&[1.0; 256], &mut out).unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }));
    assert!(StorageType::F16.quantize(&[1e6], &mut out).is_err());
    assert!(out.is_empty());
    for storage in StorageType::ALL {
        let (values, bytes) = storage.block();
        assert!(storage.dequantize(&vec![0; bytes], &mut vec![0.0; values + 1]).is_err());
        assert!(storage.dequantize(&vec![0; bytes + 1], &mut vec![0.0; values]).is_err());
    }
}

proptest::proptest! {
    #[test]
    fn any_bits_decode(seed in proptest::collection::vec(proptest::num::u8::ANY, 210)) {
        for storage in StorageType::ALL {
            let (values, bytes) = storage.block();
            let got = decoded(storage, &seed[..bytes]);
            assert_eq!(got.len(), values);
        }
    }
}
