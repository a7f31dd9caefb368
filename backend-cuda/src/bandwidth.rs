//! Read bandwidth of the device, measured.

use crate::Cuda;
use crate::memory::Buffer;
use crate::pass::{Kernel, Launch};
use forge_core::{Backend, Result};

const READ: Kernel = Kernel::new("read_bandwidth", "read_bandwidth");
const THREADS: u32 = 512;
/// Loads of 16 bytes that a thread has in flight.
const UNROLL: usize = 8;
/// Far more than any second-level cache holds.
const WANTED_BYTES: usize = 1 << 30;
/// Passes over the memory; the fastest counts.
const PASSES: usize = 6;

/// Bytes per second of reading memory from end to end.
///
/// # Errors
/// Device errors; too little free memory.
pub(crate) fn measure(cuda: &Cuda) -> Result<f64> {
    let (free, _) = cuda.device.context.memory()?;
    let bytes = WANTED_BYTES.min(free as usize / 4);
    let source = Buffer::device(&cuda.device.context, bytes)?;
    cuda.device.stream.zero("read_bandwidth", source.memory(), 0, bytes)?;
    let mut read = 0;
    let program = cuda.record(|pass| {
        let launch = Launch::new("read_bandwidth", READ).block(THREADS);
        let blocks = pass.resident_blocks(&launch)?;
        let out = pass.scratch(blocks as usize * 4)?;
        let round = UNROLL * (blocks.max(1) * THREADS) as usize;
        let count = bytes / 16 / round * round;
        read = count * 16;
        for _ in 0..PASSES {
            pass.mark()?;
            let launch = launch.grid(blocks, 1, 1);
            pass.launch(launch, &[(&source).into(), (count as u64).into(), (&out).into()])?;
        }
        pass.mark()
    })?;
    let fastest = cuda.op_times(&program)?.into_iter().fold(f64::INFINITY, f64::min);
    Ok(read as f64 / fastest)
}
