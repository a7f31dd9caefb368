use super::*;
use crate::backend::{upload_f32, upload_i32};
use crate::ops::Ops;

fn floats(t: &Tensor<Cpu>) -> Vec<f32> {
    let mut bytes = vec![0u8; t.shape.len() * 4];
    Cpu::new().read(t, &mut bytes).unwrap();
    bytemuck::cast_slice(&bytes).to_vec()
}

#[test]
fn linear_writes_parts_side_by_side_into_strided_columns() {
    let cpu = Cpu::new();
    let x = upload_f32(&cpu, &[1.0, 2.0, 3.0, 4.0], Shape::new(&[2, 2])).unwrap();
    let part = |name: &str, rows: usize, v: &[f32]| HostTensor::from_f32(name, vec![rows, 2], v);
    let w = cpu
        .upload(
            &[part("a", 1, &[1.0, 0.0]).unwrap(), part("b", 2, &[0.0, 1.0, 1.0, 1.0]).unwrap()],
            Residence::Device,
        )
        .unwrap();
    let out = cpu.zeros(Shape::new(&[2, 5]), DType::F32).unwrap();
    let mut columns = out.columns(1..4).unwrap();
    let program = cpu.record(|pass| pass.linear(&x, &w, &mut columns)).unwrap();
    cpu.submit(&program).unwrap();
    assert_eq!(floats(&out), [0.0, 1.0, 2.0, 3.0, 0.0, 0.0, 3.0, 4.0, 7.0, 0.0]);
}

#[test]
fn an_output_that_shares_a_buffer_with_an_input_is_an_error() {
    let cpu = Cpu::new();
    let x = cpu.zeros(Shape::new(&[1, 4]), DType::F32).unwrap();
    let (left, mut right) = (x.columns(0..2).unwrap(), x.columns(2..4).unwrap());
    let program = cpu.record(|pass| pass.add(&left, &mut right)).unwrap();
    assert!(cpu.submit(&program).is_err());
}

#[test]
fn wrong_shapes_fail_at_recording_and_name_the_op() {
    let cpu = Cpu::new();
    let x = cpu.zeros(Shape::new(&[2, 4]), DType::F32).unwrap();
    let mut out = cpu.zeros(Shape::new(&[2, 3]), DType::F32).unwrap();
    let error = cpu.record(|pass| pass.add(&x, &mut out)).err().unwrap();
    assert!(error.to_string().starts_with("add: "), "{error}");
}

#[test]
fn argmax_takes_the_lowest_index_and_marks_nan() {
    let cpu = Cpu::new();
    let rows = [1.0, 3.0, 3.0, f32::NAN, 1.0, 2.0];
    let logits = upload_f32(&cpu, &rows, Shape::new(&[2, 3])).unwrap();
    let mut out = upload_i32(&cpu, &[7, 7], Shape::new(&[2])).unwrap();
    let program = cpu.record(|pass| pass.argmax(&logits, &mut out)).unwrap();
    cpu.submit(&program).unwrap();
    let mut bytes = [0u8; 8];
    cpu.read(&out, &mut bytes).unwrap();
    assert_eq!(bytemuck::cast_slice::<u8, i32>(&bytes), [1, -1]);
}
