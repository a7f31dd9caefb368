// math:     out[r] = table[ids[r]]; zeros for a negative id
// shapes:   ids i32 [R]; table = one row segment of [V, H] in a storage type; out f32 [R, H], rows
//           strided. A table of several segments takes one dispatch each, and each writes only the
//           rows whose id it holds; the first one writes the zeros
// launch:   one invocation per unit of 16 values, 64 a workgroup, grid folded to two dimensions
// bytes:    R (bytes of a table row + 4 H)
// limits:   R H / 16 < 2^32; words of a segment < 2^32; an id of V or more is clamped
// numerics: dequantised in f32

struct Params {
    rows: u32,
    columns: u32,
    units: u32,
    blocks: u32,
    row_words: u32,
    first: u32,
    count: u32,
    vocabulary: u32,
    ids_offset: u32,
    ids_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(2) var<storage, read> grids: array<u32>;
@group(0) @binding(3) var<storage, read> ids: array<i32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

fn store(start: u32, column: u32, value: vec4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if column + i < p.columns {
            out[start + column + i] = value[i];
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn embed(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups) * WORKGROUP + lane;
    if index >= p.rows * p.units {
        return;
    }
    let row = index / p.units;
    let unit = index % p.units;
    let id = ids[p.ids_offset + row * p.ids_stride];
    var value = Unit();
    if id < 0 {
        if p.first != 0u {
            return;
        }
    } else {
        let local = min(u32(id), p.vocabulary - 1u) - p.first;
        if local >= p.count {
            return;
        }
        value = decode(local * p.row_words, p.blocks, unit);
    }
    let start = p.out_offset + row * p.out_stride;
    let column = unit_column(unit);
    store(start, column, value.a);
    store(start, column + 4u, value.b);
    store(start, column + GAP, value.c);
    store(start, column + GAP + 4u, value.d);
}
