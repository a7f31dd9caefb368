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

/// Values of a normal distribution by the sum of uniform ones, the same on every machine.
fn gaussian(count: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    (0..count).map(|_| (0..12).map(|_| uniform()).sum()).collect()
}

fn quantised(storage: StorageType, values: &[f32], importance: &[f32]) -> Vec<f32> {
    let mut blocks = Vec::new();
    storage.quantize_weighted(values, importance, &mut blocks).unwrap();
    decoded(storage, &blocks)
}

/// The golden blocks come from quantisers that also search for their scales.
#[test]
fn quantisers_lose_no_more_than_those_of_gguf() {
    let bytes = fixture();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let source = floats(&file, "source");
    for storage in StorageType::ALL.into_iter().filter(|&storage| storage != StorageType::F32) {
        let name = format!("{}.quantized.f32", storage.name().to_uppercase());
        let ours = rms_error(&quantised(storage, &source, &[]), &source);
        let golden = rms_error(&floats(&file, &name), &source);
        println!("{storage}: rms error {ours:.5}, golden {golden:.5}, ratio {:.3}", ours / golden);
        assert!(ours <= golden * 1.05, "{storage}: rms error {ours}, golden {golden}");
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
    let weighted = |importance: &[f32], out: &mut Vec<u8>| {
        StorageType::Q4_0.quantize_weighted(&[1.0; 32], importance, out).unwrap_err().to_string()
    };
    assert!(weighted(&[1.0; 31], &mut out).contains("31 weights"));
    assert!(weighted(&[-1.0; 32], &mut out).contains("importance 0 is -1"));
    assert!(weighted(&[f32::NAN; 32], &mut out).contains("importance 0 is NaN"));
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

/// Relative errors of public quantisers on [`gaussian`] values and on a matrix of forge-tiny, as
/// `tests/tools/quant_bounds.py` prints them (package `gguf` of PyPI).
const BOUNDS: [(StorageType, f64, f64); 6] = [
    (StorageType::Q4_0, 0.084677, 0.085795),
    (StorageType::Q4_1, 0.077268, 0.078822),
    (StorageType::Q5_0, 0.042895, 0.042275),
    (StorageType::Q5_1, 0.037655, 0.037827),
    (StorageType::Q8_0, 0.005273, 0.005320),
    (StorageType::Mxfp4, 0.115425, 0.115719),
];

fn check_bounds(values: &[f32], pick: fn(&(StorageType, f64, f64)) -> f64) {
    let rms = rms_error(values, &vec![0.0; values.len()]);
    for bound in &BOUNDS {
        let (storage, most) = (bound.0, pick(bound));
        let ours = rms_error(&quantised(storage, values, &[]), values) / rms;
        println!("{storage}: {ours:.6} of {most}");
        assert!(ours <= 1.05 * most, "{storage}: {ours}, elsewhere {most}");
    }
}

#[test]
fn normal_values_lose_no_more_than_elsewhere() {
    check_bounds(&gaussian(1 << 14, 7), |bound| bound.1);
}

#[test]
fn trained_values_lose_no_more_than_elsewhere() {
    let Some(path) = crate::weights::testing::shared("models/forge-tiny") else { return };
    let checkpoint = crate::weights::Checkpoint::open(path).unwrap();
    let matrix = checkpoint.tensors["layers.0.ffn.gate"].to_f32().unwrap();
    check_bounds(&matrix[..32 * 512], |bound| bound.2);
}

/// Each type costs what its bits let expect: more bits, less error, up to the halves.
#[test]
fn more_bits_lose_less() {
    use StorageType::{Iq2Xs, Iq2Xxs, Iq3Xxs, Iq4Xs, Q3_K, Q5_K, Q6_K, Q8_0};
    let values = gaussian(1 << 13, 5);
    let error = |storage| rms_error(&quantised(storage, &values, &[]), &values);
    let ladder = [Iq2Xxs, Iq2Xs, Iq3Xxs, Q3_K, Iq4Xs, Q5_K, Q6_K, Q8_0, StorageType::F16];
    for pair in ladder.windows(2) {
        assert!(error(pair[1]) < 0.9 * error(pair[0]), "{pair:?}");
        assert!(pair[1].row_bytes(256) > pair[0].row_bytes(256), "{pair:?}");
    }
}

/// The error that counts is the weighted one: it falls when the weights are known.
#[test]
fn importance_moves_the_error_to_where_it_matters_less() {
    let values = gaussian(1 << 13, 3);
    let importance: Vec<f32> = gaussian(512, 9).iter().map(|v| (2.0 * v).exp()).collect();
    let error = |stored: &[f32]| {
        let terms = stored.iter().zip(&values).zip(importance.iter().cycle());
        terms.map(|((a, b), w)| f64::from(w * (a - b).powi(2))).sum::<f64>()
    };
    for storage in StorageType::ALL.into_iter().filter(|&storage| storage.block().0 > 1) {
        let plain = error(&quantised(storage, &values, &[]));
        let weighted = error(&quantised(storage, &values, &importance));
        println!("{storage}: {:.3} of the plain error", weighted / plain);
        let most = if storage == StorageType::Q8_0 { 1.0 } else { 0.97 };
        assert!(weighted <= plain * most, "{storage}: {weighted} of {plain}");
    }
}

/// Blocks that hold what the format can hold come back as they were.
#[test]
fn values_on_the_levels_are_kept() {
    for storage in StorageType::ALL.into_iter().filter(|&storage| storage.block().0 > 1) {
        let start = quantised(storage, &gaussian(1 << 10, 11), &[]);
        let again = quantised(storage, &start, &[]);
        let rms = (start.iter().map(|v| f64::from(v * v)).sum::<f64>() / start.len() as f64).sqrt();
        let error = rms_error(&again, &start) / rms;
        assert!(error < 0.02, "{storage}: {error}");
    }
}
