// math:     out = x W^T for one row segment of W
// shapes:   x f32 [R, in], out f32 [R, out], rows strided; W [count, in] in a storage type
// launch:   linear_mat_vec: one workgroup per OUTPUTS outputs and ROWS (<= 8) rows; each weight is
//             decoded once for all rows; 4 WORKGROUP OUTPUTS ROWS bytes of workgroup memory
//           linear_mat_mul: 256 invocations per tile of 16 LANE_OUTPUTS outputs x 16 LANE_ROWS
//             rows; an invocation owns LANE_OUTPUTS x LANE_ROWS results and loads one unit of one
//             line a step, of which there are 256 for 8 x 8, so a step is 16 columns, and 128 for
//             4 x 4, so a step is 32; 16 KiB of workgroup memory
// bytes:    mat_vec: bytes of W + 4 R (in outputs / OUTPUTS from cache + out);
//           mat_mul: bytes of W ceil(R / tile rows) + 4 R (in ceil(out / tile outputs) + out)
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

// Lines of a tile, and quads of columns in a step.
const TILE_OUTPUTS: u32 = 16u * LANE_OUTPUTS;
const TILE_ROWS: u32 = 16u * LANE_ROWS;
const LINES: u32 = TILE_OUTPUTS + TILE_ROWS;
const STEP: u32 = 256u / LINES;
const QUADS: u32 = 4u * STEP;
var<workgroup> weight_tile: array<vec4<f32>, QUADS * TILE_OUTPUTS>;
var<workgroup> row_tile: array<vec4<f32>, QUADS * TILE_ROWS>;

// One unit of one line of a tile: the first lines are weights, the others activations.
fn load_line(line: u32, first_output: u32, first_row: u32, unit: u32) -> Unit {
    if unit < p.units {
        if line < TILE_OUTPUTS {
            if first_output + line < p.count {
                return decode((first_output + line) * p.row_words, p.blocks, unit);
            }
        } else {
            let row = first_row + line - TILE_OUTPUTS;
            if row < p.rows {
                return activations(p.x_offset + row * p.x_stride, unit);
            }
        }
    }
    return Unit();
}

@compute @workgroup_size(256)
fn linear_mat_mul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_output = group.x * TILE_OUTPUTS;
    let first_row = group.y * TILE_ROWS;
    let across = lane & 15u;
    let down = lane >> 4u;
    let line = lane % LINES;
    let quad = lane / LINES * 4u;
    var sums: array<f32, LANE_OUTPUTS * LANE_ROWS>;
    var loaded = load_line(line, first_output, first_row, lane / LINES);
    for (var start = 0u; start < p.units; start += STEP) {
        if line < TILE_OUTPUTS {
            let place = quad * TILE_OUTPUTS + line;
            weight_tile[place] = loaded.a;
            weight_tile[place + TILE_OUTPUTS] = loaded.b;
            weight_tile[place + 2u * TILE_OUTPUTS] = loaded.c;
            weight_tile[place + 3u * TILE_OUTPUTS] = loaded.d;
        } else {
            let place = quad * TILE_ROWS + line - TILE_OUTPUTS;
            row_tile[place] = loaded.a;
            row_tile[place + TILE_ROWS] = loaded.b;
            row_tile[place + 2u * TILE_ROWS] = loaded.c;
            row_tile[place + 3u * TILE_ROWS] = loaded.d;
        }
        workgroupBarrier();
        // The next step's loads are under way while this one is computed.
        loaded = load_line(line, first_output, first_row, start + STEP + lane / LINES);
        for (var k = 0u; k < QUADS; k++) {
            var w: array<vec4<f32>, LANE_OUTPUTS>;
            for (var i = 0u; i < LANE_OUTPUTS; i++) {
                w[i] = weight_tile[k * TILE_OUTPUTS + across + 16u * i];
            }
            for (var j = 0u; j < LANE_ROWS; j++) {
                let value = row_tile[k * TILE_ROWS + down + 16u * j];
                for (var i = 0u; i < LANE_OUTPUTS; i++) {
                    sums[j * LANE_OUTPUTS + i] += dot(w[i], value);
                }
            }
        }
        workgroupBarrier();
    }
    for (var j = 0u; j < LANE_ROWS; j++) {
        let row = first_row + down + 16u * j;
        for (var i = 0u; i < LANE_OUTPUTS; i++) {
            let output = first_output + across + 16u * i;
            if row < p.rows && output < p.count {
                out[p.out_offset + row * p.out_stride + output] = sums[j * LANE_OUTPUTS + i];
            }
        }
    }
}
