// math:     out[r k + j] = W[ids[r, j]] x for the experts of one segment of W
// shapes:   x f32 [R, in] (shared by the k pairs of a row) or [R k, in]; W [E, out, in] in a storage
//           type, a segment holds `experts` experts from `first_expert` on and `count` of their
//           rows; ids i32 [R, k]; out f32 [R k, out]; rows strided
// launch:   one workgroup per OUTPUTS outputs of one pair (y = pair), which returns at once if its
//           expert is in another segment; 4 WORKGROUP OUTPUTS bytes of workgroup memory
// bytes:    R k bytes of an expert, repeated experts mostly from cache
// limits:   R k <= 65535; words of a segment < 2^32; a negative id gives zeros, one of E or more nothing
// numerics: as linear_mat_vec

struct Params {
    columns: u32,
    units: u32,
    blocks: u32,
    row_words: u32,
    count: u32,
    first_expert: u32,
    experts: u32,
    top_k: u32,
    pairs_per_row: u32,
    ids_offset: u32,
    ids_stride: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read> grids: array<u32>;
@group(0) @binding(4) var<storage, read> ids: array<i32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

var<workgroup> partial: array<f32, WORKGROUP * OUTPUTS>;

@compute @workgroup_size(WORKGROUP)
fn moe_linear(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = group.x * OUTPUTS;
    let pair = group.y;
    let id = ids[p.ids_offset + pair / p.top_k * p.ids_stride + pair % p.top_k];
    let expert = u32(id) - p.first_expert;
    if id < 0 && p.first_expert == 0u && lane < OUTPUTS && first + lane < p.count {
        out[p.out_offset + pair * p.out_stride + first + lane] = 0.0;
    }
    if first >= p.count || id < 0 || expert >= p.experts {
        return;
    }
    let start = p.x_offset + pair / p.pairs_per_row * p.x_stride;
    var sums: array<f32, OUTPUTS>;
    for (var unit = lane; unit < p.units; unit += WORKGROUP) {
        let column = unit_column(unit);
        let a = activation(start, column);
        let b = activation(start, column + 4u);
        let c = activation(start, column + GAP);
        let d = activation(start, column + GAP + 4u);
        for (var o = 0u; o < OUTPUTS; o++) {
            let row = expert * p.count + min(first + o, p.count - 1u);
            let w = decode(row * p.row_words, p.blocks, unit);
            sums[o] += dot(w.a, a) + dot(w.b, b) + dot(w.c, c) + dot(w.d, d);
        }
    }
    for (var o = 0u; o < OUTPUTS; o++) {
        partial[o * WORKGROUP + lane] = sums[o];
    }
    workgroupBarrier();
    for (var step = WORKGROUP / 2u; step > 0u; step >>= 1u) {
        for (var i = lane; i < OUTPUTS * step; i += WORKGROUP) {
            let slot = i / step * WORKGROUP + i % step;
            partial[slot] += partial[slot + step];
        }
        workgroupBarrier();
    }
    if lane < OUTPUTS && first + lane < p.count {
        out[p.out_offset + pair * p.out_stride + first + lane] = partial[lane * WORKGROUP];
    }
}
