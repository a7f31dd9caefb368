//! Copies between a row of a tensor and blocks of a KV pool.

use super::{Cpu, view};
use crate::check::PageSizes;
use crate::error::Result;
use crate::ops::CopyDirection;
use crate::tensor::{Tensor, shape_error};

/// The range that one op copies, in words.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) state_start: usize,
    pub(super) page_start: usize,
    pub(super) words: usize,
    pub(super) direction: CopyDirection,
}

pub(super) fn copy_pages(
    state: &Tensor<Cpu>,
    pages: &Tensor<Cpu>,
    table: &Tensor<Cpu>,
    sizes: PageSizes,
    range: Range,
) -> Result<()> {
    const OP: &str = "copy_pages";
    let table_view = view::read(OP, table)?;
    let row = table_view.int(0);
    if row < 0 {
        return Ok(());
    }
    if row as usize >= state.rows() {
        return Err(shape_error(OP, "row", state.rows(), row));
    }
    let (mut state_view, mut pages_view) = (view::write(OP, state)?, view::write(OP, pages)?);
    let state_bytes = state_view.bytes();
    let page_bytes = pages_view.bytes();
    let mut done = 0;
    while done < range.words {
        let at = range.page_start + done;
        let (index, within) = (at / sizes.block, at % sizes.block);
        let count = (sizes.block - within).min(range.words - done);
        let block = table_view.int(1 + index);
        if block >= 0 {
            if block as usize >= pages.rows() {
                return Err(shape_error(OP, "block", pages.rows(), block));
            }
            let from = 4 * (row as usize * sizes.row + range.state_start + done);
            let to = 4 * (block as usize * sizes.block + within);
            let (in_row, in_page) = (from..from + 4 * count, to..to + 4 * count);
            match range.direction {
                CopyDirection::ToPages => {
                    page_bytes[in_page].copy_from_slice(&state_bytes[in_row]);
                }
                CopyDirection::FromPages => {
                    state_bytes[in_row].copy_from_slice(&page_bytes[in_page]);
                }
            }
        }
        done += count;
    }
    Ok(())
}
