//! Any bytes as a .ytf file, once as they are and once with a right header checksum, without which
//! no changed header would be looked at.
#![no_main]

use forge_core::weights::ytf::YtfFile;
use libfuzzer_sys::fuzz_target;
use std::path::Path;
use xxhash_rust::xxh3::xxh3_64;

/// Magic, version, reserved word, header length, header checksum.
const PREAMBLE_BYTES: usize = 32;

fn open(bytes: Vec<u8>) {
    let Ok(file) = YtfFile::parse(Path::new("fuzz.ytf"), bytes.into()) else { return };
    for tensor in file.tensors.values() {
        assert_eq!(tensor.data.as_slice().len(), tensor.total_rows() * tensor.row_bytes());
    }
    let _ = file.verify();
}

fuzz_target!(|bytes: &[u8]| {
    open(bytes.to_vec());
    let Some((preamble, rest)) = bytes.split_first_chunk::<PREAMBLE_BYTES>() else { return };
    let mut length = [0; 8];
    length.copy_from_slice(&preamble[16..24]);
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    let Some(json) = rest.get(..length) else { return };
    let mut repaired = bytes.to_vec();
    repaired[24..32].copy_from_slice(&xxh3_64(json).to_le_bytes());
    open(repaired);
});
