//! A range of a row to or from blocks of a KV pool.

use crate::pass::{Kernel, Launch, index32};
use crate::{Cuda, Pass};
use forge_core::ops::{CopyDirection, CopyPages};
use forge_core::{Result, check};

const OP: &str = "copy_pages";
const COPY: Kernel = Kernel::new("copy_pages", "copy_pages");
/// Words that one block copies per sweep: 256 threads of 16 bytes.
const SWEEP_WORDS: usize = 1024;

pub(super) fn copy_pages(pass: &mut Pass<'_>, op: CopyPages<'_, Cuda>) -> Result<()> {
    let sizes = check::copy_pages(&op)?;
    if op.words == 0 {
        return Ok(());
    }
    let pages = &op.pool.pages;
    // Eight blocks on each SM keep enough loads in flight to reach the memory's bandwidth.
    let chunks = op.words.div_ceil(SWEEP_WORDS).min(8 * pass.sms() as usize);
    let launch = Launch::new(OP, COPY).grid(index32(OP, "words", chunks)?, 1, 1).block(256);
    pass.launch(
        launch.overlap(),
        &[
            (&*op.state).into(),
            pages.into(),
            op.table.into(),
            (sizes.row as u64).into(),
            (op.state_start as u64).into(),
            (op.page_start as u64).into(),
            (op.words as u64).into(),
            index32(OP, "block", sizes.block)?.into(),
            index32(OP, "rows", op.state.rows())?.into(),
            index32(OP, "blocks", pages.rows())?.into(),
            u32::from(op.direction == CopyDirection::ToPages).into(),
        ],
    )
}
