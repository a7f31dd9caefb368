//! `store_kv`, `paged_attention` and the fused `prepare_attention`, for every KV type.

use super::{Pair, Ragged, Random, Twin, compare};
use forge_core::backend::Backend;
use forge_core::kv::{BLOCK_TOKENS, KvLayout, KvPool, KvType};
use forge_core::ops::{Ops, PagedAttention, PrepareAttention, RopePairing, StoreKv};
use forge_core::reference::{Cpu, kv_codec};
use forge_core::tensor::Heads;

const KV_TYPES: [KvType; 5] = [KvType::F32, KvType::F16, KvType::Bf16, KvType::Q8_0, KvType::Fp8];

struct Geometry {
    query_heads: usize,
    kv_heads: usize,
    dim: usize,
    gated: bool,
}

struct Case<'a, B: Backend> {
    pair: &'a Pair<'a, B>,
    ragged: &'a Ragged,
    layout: KvLayout,
    pages: Twin<B>,
    tables: Vec<Vec<i32>>,
}

impl<'a, B: Backend> Case<'a, B> {
    fn new(pair: &'a Pair<'a, B>, ragged: &'a Ragged, layout: KvLayout) -> Self {
        let longest = ragged.sequences.iter().map(|(r, b)| r + b).max().unwrap_or(1);
        let per_sequence = longest.div_ceil(BLOCK_TOKENS);
        let blocks = per_sequence * ragged.sequences.len();
        // Blocks are dealt round robin in reverse, so neighbours in a sequence are far apart.
        let tables = (0..ragged.count())
            .map(|s| {
                (0..per_sequence)
                    .map(|i| match ragged.sequences.get(s) {
                        Some(_) => (blocks - 1 - (i * ragged.sequences.len() + s)) as i32,
                        None => 0,
                    })
                    .collect()
            })
            .collect();
        let pages = pair.bytes(&[blocks, layout.block_bytes()]);
        Self { pair, ragged, layout, pages, tables }
    }

    fn pools(&self) -> (KvPool<Cpu>, KvPool<B>) {
        (
            KvPool { pages: self.pages.cpu.clone(), layout: self.layout },
            KvPool { pages: self.pages.device.clone(), layout: self.layout },
        )
    }

    /// Random earlier tokens, encoded by the reference and written to both pools.
    fn fill(&self, random: &mut Random) {
        let bytes = self.layout.block_bytes();
        let mut all = vec![0u8; self.pages.cpu.shape.len()];
        for (s, (_, before)) in self.ragged.sequences.iter().enumerate() {
            for position in 0..*before {
                let block = self.tables[s][position / BLOCK_TOKENS] as usize;
                let page = &mut all[block * bytes..(block + 1) * bytes];
                for (plane, scale) in [(0, 0.7), (1, 1.0)] {
                    for head in 0..self.layout.kv_heads {
                        let values = random.normals(self.layout.head_dim, scale);
                        let token = position % BLOCK_TOKENS;
                        kv_codec::encode(&self.layout, page, plane, head, token, &values);
                    }
                }
            }
        }
        self.pair.cpu.write(&self.pages.cpu, &all).unwrap();
        self.pair.device.write(&self.pages.device, &all).unwrap();
    }

    fn rows(&self) -> (Vec<i32>, Vec<i32>) {
        let (mut positions, mut kv_rows) = (Vec::new(), Vec::new());
        for (s, (rows, before)) in self.ragged.sequences.iter().enumerate() {
            for position in *before..before + rows {
                let block = self.tables[s][position / BLOCK_TOKENS];
                positions.push(position as i32);
                kv_rows.push(block * BLOCK_TOKENS as i32 + (position % BLOCK_TOKENS) as i32);
            }
        }
        positions.resize(self.ragged.rows(), -1);
        kv_rows.resize(self.ragged.rows(), -1);
        (positions, kv_rows)
    }
}

/// Queries, keys and values of a pass go through the fused preparation, then attention.
fn attention_case<B: Backend>(
    pair: &Pair<'_, B>,
    seed: u64,
    ragged: &Ragged,
    kv_type: KvType,
    geometry: &Geometry,
) {
    let random = &mut Random::new(seed);
    let Geometry { query_heads, kv_heads, dim, gated } = *geometry;
    let what = format!("{ragged:?} {query_heads}/{kv_heads}x{dim} {kv_type:?}");
    let layout = KvLayout { kv_type, kv_heads, head_dim: dim };
    let case = Case::new(pair, ragged, layout);
    case.fill(random);
    let (mut cpu_pool, mut device_pool) = case.pools();
    let (positions, kv_rows) = case.rows();
    let rows = ragged.rows();
    let (positions, kv_rows) = (pair.ints(&[rows], &positions), pair.ints(&[rows], &kv_rows));
    let stride = if gated { 2 * dim } else { dim };
    let (queries, keys) = (query_heads * stride, kv_heads * dim);
    let packed = pair.random(random, rows, queries + 2 * keys, 0, 1.0);
    let norm = pair.floats(&[dim], &random.normals(dim, 1.0));
    let pairs = dim / 4;
    let table: Vec<f32> = (0..pairs).map(|i| 1e6f32.powf(-(i as f32) / pairs as f32)).collect();
    let table = pair.floats(&[pairs], &table);
    macro_rules! prepare {
        ($pass:ident, $side:ident, $pool:ident) => {{
            let t = &packed.$side;
            let q = t.columns(0..queries)?;
            let mut q = Heads::strided(q, query_heads, stride, dim)?;
            let mut k = Heads::packed(t.columns(queries..queries + keys)?, kv_heads, dim)?;
            $pass.prepare_attention(PrepareAttention {
                q: &mut q,
                k: &mut k,
                v: &t.columns(queries + keys..queries + 2 * keys)?,
                norms: (dim != 16).then_some((&norm.$side, &norm.$side)),
                eps: 1e-6,
                positions: &positions.$side,
                frequencies: &table.$side,
                pairing: if dim == 16 { RopePairing::Adjacent } else { RopePairing::Half },
                kv_rows: &kv_rows.$side,
                pool: &mut $pool,
            })
        }};
    }
    pair.run(|p| prepare!(p, cpu, cpu_pool), |p| prepare!(p, device, device_pool));
    compare_pools(pair, &format!("prepare_attention {what}"), &case);
    // From here on both read the same bytes: a rounding tie of the store is not attention's error.
    let (bytes, _) = pair.read_bytes(&case.pages);
    pair.device.write(&case.pages.device, &bytes).unwrap();

    let sequences = pair.ints(&[ragged.count(), 4], &ragged.table());
    let blocks = case.tables[0].len();
    let flat: Vec<i32> = case.tables.iter().flatten().copied().collect();
    let block_table = pair.ints(&[ragged.count(), blocks], &flat);
    let out = pair.output(rows, query_heads * dim, 0);
    macro_rules! attend {
        ($pass:ident, $side:ident, $pool:ident) => {{
            let q = packed.$side.columns(0..queries)?;
            $pass.paged_attention(PagedAttention {
                q: &Heads::strided(q, query_heads, stride, dim)?,
                pool: &$pool,
                sequences: &sequences.$side,
                block_table: &block_table.$side,
                scale: 1.0 / (dim as f32).sqrt(),
                out: &mut out.$side.clone(),
            })
        }};
    }
    pair.run(|p| attend!(p, cpu, cpu_pool), |p| attend!(p, device, device_pool));
    let real = rows - ragged.padded_rows;
    let len = real * query_heads * dim;
    let (mut expected, mut got) = (vec![0f32; len], vec![0f32; len]);
    pair.cpu.read(&out.cpu, bytemuck::cast_slice_mut(&mut expected)).unwrap();
    pair.device.read(&out.device, bytemuck::cast_slice_mut(&mut got)).unwrap();
    // Many rows may go through f16 (bf16) matrix units: 11 (8) bits in queries and weights.
    let tolerance = match kv_type {
        KvType::Bf16 => 1e-2,
        _ => 2e-3,
    };
    compare(&format!("paged_attention {what}"), &expected, &got, tolerance);
}

/// Pools agree: values within one step of their type (a rounding tie may fall either way).
fn compare_pools<B: Backend>(pair: &Pair<'_, B>, what: &str, case: &Case<'_, B>) {
    let (expected, got) = pair.read_bytes(&case.pages);
    let bytes = case.layout.block_bytes();
    let mut values = (Vec::new(), Vec::new());
    for (e, g) in expected.chunks(bytes).zip(got.chunks(bytes)) {
        for plane in 0..2 {
            for head in 0..case.layout.kv_heads {
                for token in 0..BLOCK_TOKENS {
                    let mut out = vec![0.0; case.layout.head_dim];
                    kv_codec::decode(&case.layout, e, plane, head, token, &mut out);
                    values.0.extend_from_slice(&out);
                    kv_codec::decode(&case.layout, g, plane, head, token, &mut out);
                    values.1.extend_from_slice(&out);
                }
            }
        }
    }
    let tolerance = match case.layout.kv_type {
        KvType::F32 => 1e-5,
        KvType::F16 => 6e-4,
        KvType::Bf16 => 5e-3,
        KvType::Q8_0 => 9e-3,
        KvType::Fp8 => 7e-2,
    };
    compare(what, &values.0, &values.1, tolerance);
}

/// Attention for the head counts of all models and all KV types.
pub fn attention<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let geometries = [
        Geometry { query_heads: 6, kv_heads: 2, dim: 16, gated: false },
        Geometry { query_heads: 4, kv_heads: 2, dim: 64, gated: true },
        Geometry { query_heads: 8, kv_heads: 2, dim: 32, gated: true },
        Geometry { query_heads: 16, kv_heads: 8, dim: 128, gated: false },
        Geometry { query_heads: 16, kv_heads: 4, dim: 256, gated: true },
        Geometry { query_heads: 24, kv_heads: 4, dim: 256, gated: true },
    ];
    for (i, ragged) in Ragged::table_of_shapes().into_iter().enumerate() {
        for (j, geometry) in geometries.iter().enumerate() {
            let kv_type = KV_TYPES[(i + j) % KV_TYPES.len()];
            attention_case(&pair, (i * 10 + j) as u64, &ragged, kv_type, geometry);
        }
    }
}

/// One long context: 32K tokens behind a decode row and behind a chunk.
pub fn long_attention<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    let geometry = Geometry { query_heads: 8, kv_heads: 2, dim: 256, gated: true };
    for (i, kv_type) in [KvType::F16, KvType::Q8_0].into_iter().enumerate() {
        for rows in [1, 40] {
            let ragged =
                Ragged { sequences: vec![(rows, 32_700)], padded_sequences: 0, padded_rows: 0 };
            attention_case(&pair, i as u64, &ragged, kv_type, &geometry);
        }
    }
}

/// `store_kv` alone, negative rows skipped.
pub fn store<B: Backend>(device: &B) {
    let pair = Pair::new(device);
    for (i, kv_type) in KV_TYPES.into_iter().enumerate() {
        let random = &mut Random::new(i as u64);
        let layout = KvLayout { kv_type, kv_heads: 3, head_dim: 64 };
        let ragged = Ragged { sequences: vec![(40, 3)], padded_sequences: 0, padded_rows: 2 };
        let case = Case::new(&pair, &ragged, layout);
        let (mut cpu_pool, mut device_pool) = case.pools();
        let rows = ragged.rows();
        let kv_rows = pair.ints(&[rows], &case.rows().1);
        let (k, v) =
            (pair.random(random, rows, 192, 2, 1.0), pair.random(random, rows, 192, 1, 5.0));
        pair.run(
            |p| {
                p.store_kv(StoreKv {
                    k: &k.cpu,
                    v: &v.cpu,
                    kv_rows: &kv_rows.cpu,
                    pool: &mut cpu_pool,
                })
            },
            |p| {
                p.store_kv(StoreKv {
                    k: &k.device,
                    v: &v.device,
                    kv_rows: &kv_rows.device,
                    pool: &mut device_pool,
                })
            },
        );
        compare_pools(&pair, &format!("store_kv {kv_type:?}"), &case);
    }
}
