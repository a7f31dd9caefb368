//! Any bytes as a GGUF file: opened or refused, and what was opened can be read.
#![no_main]

use forge_core::weights::gguf::GgufFile;
use libfuzzer_sys::fuzz_target;
use std::path::Path;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = GgufFile::parse(Path::new("fuzz.gguf"), bytes.to_vec().into()) else { return };
    for tensor in file.tensors.values() {
        assert_eq!(tensor.data.as_slice().len(), tensor.total_rows() * tensor.row_bytes());
    }
    for (key, value) in &file.metadata {
        let _ = (value.to_string(), value.as_u32s(), value.as_i32s(), value.as_f32s());
        let _ = (file.require_u32(key), file.require_str(key), file.require_strings(key));
    }
});
