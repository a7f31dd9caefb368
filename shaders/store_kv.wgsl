// math:     pool[kv_rows[r]] = k[r], v[r] in the pool's storage type
// shapes:   k, v f32 [R, kv_heads DIM], rows strided; kv_rows i32 [R] = block 16 + token, negative
//           = do not store; pages: one segment of `block_count` blocks from `block_first` on, layout
//           of `core/src/kv.rs`
// launch:   one invocation per RUN values of a head, plane and row, 64 a workgroup, grid folded
// bytes:    R 2 kv_heads DIM (4 + bytes of a stored value)
// limits:   DIM a multiple of RUN; words of a segment < 2^32
// numerics: rounds to nearest even; fp8 and q8_0 as in the reference codec

struct Params {
    rows: u32,
    kv_heads: u32,
    block_first: u32,
    block_count: u32,
    block_words: u32,
    pages_offset: u32,
    k_offset: u32,
    k_stride: u32,
    v_offset: u32,
    v_stride: u32,
    kv_rows_offset: u32,
    kv_rows_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> k: array<f32>;
@group(0) @binding(2) var<storage, read> v: array<f32>;
@group(0) @binding(3) var<storage, read> kv_rows: array<i32>;

fn source(plane: u32, row: u32, column: u32) -> f32 {
    if plane == 0u {
        return k[p.k_offset + row * p.k_stride + column];
    }
    return v[p.v_offset + row * p.v_stride + column];
}

fn source4(plane: u32, row: u32, column: u32) -> vec4<f32> {
    return vec4<f32>(
        source(plane, row, column),
        source(plane, row, column + 1u),
        source(plane, row, column + 2u),
        source(plane, row, column + 3u),
    );
}

@compute @workgroup_size(WORKGROUP)
fn store_kv(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let runs = DIM / RUN;
    let index = flat_group(group, groups) * WORKGROUP + lane;
    if index >= p.rows * 2u * p.kv_heads * runs {
        return;
    }
    let run = index % runs;
    let head = index / runs % p.kv_heads;
    let plane = index / runs / p.kv_heads % 2u;
    let row = index / runs / p.kv_heads / 2u;
    let kv_row = kv_rows[p.kv_rows_offset + row * p.kv_rows_stride];
    if kv_row < 0 {
        return;
    }
    let block = u32(kv_row) / 16u - p.block_first;
    if block >= p.block_count {
        return;
    }
    let value_index = ((plane * p.kv_heads + head) * 16u + u32(kv_row) % 16u) * DIM + run * RUN;
    store_run(
        p.pages_offset + block * p.block_words,
        value_index,
        plane,
        row,
        head * DIM + run * RUN,
    );
}
