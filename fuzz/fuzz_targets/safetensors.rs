//! Any bytes as a safetensors file: opened or refused, and what was opened can be read.
#![no_main]

use forge_core::weights::safetensors::{parse, parse_raw};
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("fuzz.safetensors");
    for tensor in parse_raw(path, bytes.to_vec().into()).into_iter().flat_map(|t| t.into_values()) {
        let _ = (tensor.to_f32s(), tensor.to_i64s());
    }
    for tensor in parse(path, bytes.to_vec().into()).into_iter().flat_map(|t| t.into_values()) {
        assert_eq!(tensor.data.as_slice().len(), tensor.total_rows() * tensor.row_bytes());
    }
});
