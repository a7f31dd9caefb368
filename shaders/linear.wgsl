// math:     out = x W^T for one row segment of W
// shapes:   x f32 [R, in], out f32 [R, out], rows strided; W [count, in] in a storage type
// launch:   linear_mat_vec: one workgroup per OUTPUTS outputs and ROWS (<= 8) rows; each weight is
//             decoded once for all rows; 4 WORKGROUP OUTPUTS ROWS bytes of workgroup memory
//           linear_mat_mul: 256 invocations per tile of 64 outputs x 64 rows, 32 columns a step,
//             4 x 4 results each; 16 KiB of workgroup memory
// bytes:    mat_vec: bytes of W + 4 R (in outputs / OUTPUTS from cache + out);
//           mat_mul: bytes of W ceil(R / 64) + 4 R (in ceil(out / 64) + out)
// limits:   words of a segment and elements of x and out < 2^32; in a multiple of 16 or the scalar
//           activations variant
// numerics: dequantised and accumulated in f32; mat_vec: WORKGROUP partial sums and a tree,
//           mat_mul: in order of the units

struct Params {
    rows: u32,
    columns: u32,
    units: u32,
    blocks: u32,
    row_words: u32,
    count: u32,
    x_offset: u32,
    x_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> weights: array<u32>;
@group(0) @binding(2) var<storage, read> grids: array<u32>;
@group(0) @binding(4) var<storage, read_write> out: array<f32>;

const RESULTS: u32 = OUTPUTS * ROWS;
var<workgroup> partial: array<f32, WORKGROUP * OUTPUTS * ROWS>;

fn activations(start: u32, unit: u32) -> Unit {
    let column = unit_column(unit);
    return Unit(
        activation(start, column),
        activation(start, column + 4u),
        activation(start, column + GAP),
        activation(start, column + GAP + 4u),
    );
}

@compute @workgroup_size(WORKGROUP)
fn linear_mat_vec(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first = flat_group(group, groups) * OUTPUTS;
    if first >= p.count {
        return;
    }
    var sums: array<f32, RESULTS>;
    for (var unit = lane; unit < p.units; unit += WORKGROUP) {
        var decoded: array<Unit, OUTPUTS>;
        for (var o = 0u; o < OUTPUTS; o++) {
            // Outputs past the segment repeat its last row and are not stored.
            decoded[o] = decode(min(first + o, p.count - 1u) * p.row_words, p.blocks, unit);
        }
        for (var r = 0u; r < ROWS; r++) {
            let value = activations(p.x_offset + r * p.x_stride, unit);
            for (var o = 0u; o < OUTPUTS; o++) {
                let w = decoded[o];
                sums[o * ROWS + r] +=
                    dot(w.a, value.a) + dot(w.b, value.b) + dot(w.c, value.c) + dot(w.d, value.d);
            }
        }
    }
    for (var i = 0u; i < RESULTS; i++) {
        partial[i * WORKGROUP + lane] = sums[i];
    }
    workgroupBarrier();
    for (var step = WORKGROUP / 2u; step > 0u; step >>= 1u) {
        for (var i = lane; i < RESULTS * step; i += WORKGROUP) {
            let slot = i / step * WORKGROUP + i % step;
            partial[slot] += partial[slot + step];
        }
        workgroupBarrier();
    }
    if lane < RESULTS {
        let output = first + lane / ROWS;
        if output < p.count {
            out[p.out_offset + lane % ROWS * p.out_stride + output] = partial[lane * WORKGROUP];
        }
    }
}

const TILE: u32 = 64u;
var<workgroup> weight_tile: array<f32, 2048>;
var<workgroup> row_tile: array<f32, 2048>;

@compute @workgroup_size(256)
fn linear_mat_mul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_output = group.x * TILE;
    let first_row = group.y * TILE;
    let across = lane & 15u;
    let down = lane >> 4u;
    // The lower half of the workgroup loads weights, the upper half activations; each invocation
    // loads one unit of one line of the tile.
    let line = lane & 63u;
    let loads_weights = lane < 128u;
    let second_unit = (lane >> 6u) & 1u;
    let inside = select(first_row + line < p.rows, first_output + line < p.count, loads_weights);
    var sums: array<vec4<f32>, 4>;
    for (var start = 0u; start < p.units; start += 2u) {
        let unit = start + second_unit;
        var loaded = Unit();
        if inside && unit < p.units {
            if loads_weights {
                loaded = decode((first_output + line) * p.row_words, p.blocks, unit);
            } else {
                loaded = activations(p.x_offset + (first_row + line) * p.x_stride, unit);
            }
        }
        let target_index = second_unit * 16u * TILE + line;
        for (var i = 0u; i < 4u; i++) {
            let index = target_index + i * TILE;
            if loads_weights {
                weight_tile[index] = loaded.a[i];
                weight_tile[index + 4u * TILE] = loaded.b[i];
                weight_tile[index + 8u * TILE] = loaded.c[i];
                weight_tile[index + 12u * TILE] = loaded.d[i];
            } else {
                row_tile[index] = loaded.a[i];
                row_tile[index + 4u * TILE] = loaded.b[i];
                row_tile[index + 8u * TILE] = loaded.c[i];
                row_tile[index + 12u * TILE] = loaded.d[i];
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < 32u; k++) {
            let w = k * TILE + across;
            let four = vec4<f32>(
                weight_tile[w],
                weight_tile[w + 16u],
                weight_tile[w + 32u],
                weight_tile[w + 48u],
            );
            let r = k * TILE + down;
            sums[0] += row_tile[r] * four;
            sums[1] += row_tile[r + 16u] * four;
            sums[2] += row_tile[r + 32u] * four;
            sums[3] += row_tile[r + 48u] * four;
        }
        workgroupBarrier();
    }
    for (var i = 0u; i < 4u; i++) {
        let row = first_row + down + 16u * i;
        for (var j = 0u; j < 4u; j++) {
            let output = first_output + across + 16u * j;
            if row < p.rows && output < p.count {
                out[p.out_offset + row * p.out_stride + output] = sums[i][j];
            }
        }
    }
}
