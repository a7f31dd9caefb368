//! Stores keys and values of each row at `kv_rows[r]` of the pool.

use super::{Cpu, kv_codec, view};
use crate::error::{Error, Result};
use crate::kv::{BLOCK_TOKENS, KvPool};
use crate::tensor::Tensor;

pub(super) fn store_kv(
    k: &Tensor<Cpu>,
    v: &Tensor<Cpu>,
    kv_rows: &Tensor<Cpu>,
    pool: &KvPool<Cpu>,
) -> Result<()> {
    const OP: &str = "store_kv";
    let (keys, values, targets) =
        (view::read(OP, k)?, view::read(OP, v)?, view::read(OP, kv_rows)?);
    let mut pages = view::write(OP, &pool.pages)?;
    let (layout, bytes) = (pool.layout, pool.layout.block_bytes());
    for r in 0..k.rows() {
        let target = targets.int(r);
        if target < 0 {
            continue;
        }
        let (block, token) = (target as usize / BLOCK_TOKENS, target as usize % BLOCK_TOKENS);
        if block >= pool.pages.rows() {
            return Err(Error::device(OP, format!("block {block} of {}", pool.pages.rows())));
        }
        let page = &mut pages.bytes()[block * bytes..(block + 1) * bytes];
        for (plane, row) in [keys.row(r), values.row(r)].into_iter().enumerate() {
            for (head, row) in row.chunks(layout.head_dim).enumerate() {
                kv_codec::encode(&layout, page, plane, head, token, row);
            }
        }
    }
    Ok(())
}
