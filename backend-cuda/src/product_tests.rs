//! Launches of the products against the compiled signatures, on the driver in host memory.

use crate::tests::open;
use crate::*;
use forge_core::ops::Ops;
use forge_core::weights::quant::StorageType;

fn part(storage: StorageType, shape: &[usize]) -> HostTensor {
    let bytes = storage.tensor_bytes(shape).unwrap();
    HostTensor::new("part", storage, shape.to_vec(), vec![0x11; bytes].into()).unwrap()
}

fn zeros(cuda: &Cuda, dims: &[usize], dtype: DType) -> Tensor<Cuda> {
    cuda.zeros(Shape::new(dims), dtype).unwrap()
}

/// Launches of one product of `rows` rows.
fn launches(cuda: &Cuda, weight: &Weight<Cuda>, rows: usize) -> usize {
    let x = zeros(cuda, &[rows, weight.columns], DType::F32);
    let mut out = zeros(cuda, &[rows, weight.rows], DType::F32);
    cuda.record(|pass| pass.linear(&x, weight, &mut out)).unwrap().launches()
}

#[test]
fn products_launch_for_every_storage_type() {
    let Some(cuda) = open() else { return };
    for storage in StorageType::ALL {
        let parts = [part(storage, &[40, 768]), part(storage, &[3, 768])];
        let weight = cuda.upload(&parts, Residence::Device).unwrap();
        assert_eq!((weight.rows, weight.columns, weight.experts), (43, 768, 1));
        for rows in [1, 8, 9, 20, 64, 65, 130, 1024] {
            assert_eq!(launches(&cuda, &weight, rows), 2, "{storage}: convert, multiply");
        }
        assert_eq!(launches(&cuda, &weight, 0), 0);
    }
}

#[test]
fn parts_of_two_types_share_converted_activations() {
    let Some(cuda) = open() else { return };
    let types = [StorageType::Q8_0, StorageType::Q4_K, StorageType::F16, StorageType::Bf16];
    let parts = types.map(|storage| part(storage, &[16, 256]));
    let weight = cuda.upload(&parts, Residence::Device).unwrap();
    // Two forms of the activations; the floats are one part.
    assert_eq!(launches(&cuda, &weight, 2), 5);
}

#[test]
fn experts_launch_with_and_without_shared_rows() {
    let Some(cuda) = open() else { return };
    for storage in StorageType::ALL {
        let weight = cuda.upload(&[part(storage, &[5, 24, 256])], Residence::Device).unwrap();
        assert_eq!((weight.rows, weight.experts), (24, 5));
        for (rows, k, x_rows) in [(1, 2, 1), (3, 2, 6), (40, 4, 40)] {
            let x = zeros(&cuda, &[x_rows, 256], DType::F32);
            let ids = zeros(&cuda, &[rows, k], DType::I32);
            let mut out = zeros(&cuda, &[rows * k, 24], DType::F32);
            let program = cuda.record(|pass| pass.moe_linear(&x, &weight, &ids, &mut out));
            assert_eq!(program.unwrap().launches(), 3, "{storage}: group, convert, multiply");
        }
    }
}

#[test]
fn a_lookup_table_is_no_operand() {
    let Some(cuda) = open() else { return };
    let table = cuda.upload(&[part(StorageType::Q8_0, &[16, 256])], Residence::Lookup).unwrap();
    let x = zeros(&cuda, &[1, 256], DType::F32);
    let mut out = zeros(&cuda, &[1, 16], DType::F32);
    let error = cuda.record(|pass| pass.linear(&x, &table, &mut out)).err().unwrap();
    assert!(error.to_string().contains("lookups only"), "{error}");
}
