// math:     gated delta rule (Yang et al., "Gated Delta Networks", 2024), per value head and token:
//           q = l2norm(q) / sqrt(key_dim), k = l2norm(k), beta = sigmoid(b),
//           g = -exp(A_log) softplus(a + dt_bias);
//           S <- e^g S; delta = beta (v - S^T k); S <- S + k delta^T; out = S^T q
// shapes:   qkv f32 [R, 2 key_heads KEY_DIM + value_heads VALUE_DIM], ba f32 [R, 2 value_heads],
//           rows strided; head_constants f32 [2, value_heads]; state f32 [slots, value_heads,
//           KEY_DIM, VALUE_DIM], one segment of `slot_count` slots from `slot_first` on; sequences
//           i32 [S, 4]; out f32 [R, value_heads VALUE_DIM]
// launch:   one workgroup of 128 per 32 value columns (x), value head (y) and sequence (z): an
//           invocation keeps a quarter of one state column in registers for the whole pass;
//           line S of the grid writes zeros into padded rows; 16 KEY_DIM + 2.5 KiB of workgroup memory
// bytes:    8 S value_heads KEY_DIM VALUE_DIM + 4 R (2 key_heads KEY_DIM ceil(VALUE_DIM / 32) r +
//           2 value_heads VALUE_DIM), r = value heads of a key head
// limits:   S < 65535, value_heads <= 65535; KEY_DIM <= 512
// numerics: f32; softplus(u) = u above 20; sums of key columns: quarters in order, then their sum

struct Params {
    rows: u32,
    sequences: u32,
    key_heads: u32,
    value_heads: u32,
    modulo: u32,
    slot_first: u32,
    slot_count: u32,
    qkv_offset: u32,
    qkv_stride: u32,
    ba_offset: u32,
    ba_stride: u32,
    constants_offset: u32,
    state_offset: u32,
    sequences_offset: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> qkv: array<f32>;
@group(0) @binding(2) var<storage, read> ba: array<f32>;
@group(0) @binding(3) var<storage, read> head_constants: array<f32>;
@group(0) @binding(4) var<storage, read> sequences: array<i32>;
@group(0) @binding(5) var<storage, read_write> state: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

const COLUMNS: u32 = 32u;
const PARTS: u32 = WORKGROUP / COLUMNS;
const PART: u32 = (KEY_DIM + PARTS - 1u) / PARTS;
// Two rows each, so that a row is loaded while the slowest invocation still reads the last one.
var<workgroup> queries: array<f32, 2u * PARTS * PART>;
var<workgroup> keys: array<f32, 2u * PARTS * PART>;
// Per invocation: its part of S^T k, of the sum of k^2 and of the sum of q^2.
var<workgroup> read_parts: array<vec3<f32>, WORKGROUP>;
var<workgroup> out_parts: array<f32, WORKGROUP>;

fn sequence_line(index: u32) -> vec4<i32> {
    let start = p.sequences_offset + index * 4u;
    return vec4<i32>(
        sequences[start], sequences[start + 1u], sequences[start + 2u], sequences[start + 3u],
    );
}

fn softplus(u: f32) -> f32 {
    if u > 20.0 {
        return u;
    }
    let e = exp(u);
    // log(1 + e) would lose the digits of a small e.
    return select(log(1.0 + e), e - 0.5 * e * e, e < 1e-3);
}

fn clear_padding(column: u32, part: u32) {
    for (var row = part; row < p.rows; row += PARTS) {
        var padded = true;
        for (var s = 0u; s < p.sequences; s++) {
            padded = padded && !holds_row(sequence_line(s), row);
        }
        if padded {
            out[p.out_offset + row * p.out_stride + column] = 0.0;
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn gated_delta_rule(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let head = group.y;
    let place = lane % COLUMNS;
    let part = lane / COLUMNS;
    let column = group.x * COLUMNS + place;
    let inside = column < VALUE_DIM;
    if group.z == p.sequences {
        if p.slot_first == 0u && inside {
            clear_padding(head * VALUE_DIM + column, part);
        }
        return;
    }
    let line = sequence_line(group.z);
    let slot = u32(line.w) - p.slot_first;
    if line.y <= 0 || line.w < 0 || slot >= p.slot_count {
        return;
    }
    let state_start = p.state_offset
        + ((slot * p.value_heads + head) * KEY_DIM + part * PART) * VALUE_DIM + column;
    var own: array<f32, PART>;
    if line.z > line.y && inside {
        for (var i = 0u; i < PART; i++) {
            if part * PART + i < KEY_DIM {
                own[i] = state[state_start + i * VALUE_DIM];
            }
        }
    }
    let key_head = select(head / (p.value_heads / p.key_heads), head % p.key_heads, p.modulo == 1u);
    let negative_a = head_constants[p.constants_offset + head];
    let bias = head_constants[p.constants_offset + p.value_heads + head];
    for (var t = 0; t < line.y; t++) {
        let row = u32(line.x + t);
        let row_start = p.qkv_offset + row * p.qkv_stride;
        let half = (u32(t) & 1u) * PARTS * PART;
        let query_start = row_start + key_head * KEY_DIM;
        for (var i = lane; i < PARTS * PART; i += WORKGROUP) {
            var query = 0.0;
            var key = 0.0;
            if i < KEY_DIM {
                query = qkv[query_start + i];
                key = qkv[query_start + p.key_heads * KEY_DIM + i];
            }
            queries[half + i] = query;
            keys[half + i] = key;
        }
        let ba_start = p.ba_offset + row * p.ba_stride;
        let beta = sigmoid(ba[ba_start + head]);
        let decay = exp(negative_a * softplus(ba[ba_start + p.value_heads + head] + bias));
        var value = 0.0;
        if inside {
            value = qkv[row_start + 2u * p.key_heads * KEY_DIM + head * VALUE_DIM + column];
        }
        workgroupBarrier();
        let first = half + part * PART;
        var sums = vec3<f32>();
        for (var i = 0u; i < PART; i++) {
            let key = keys[first + i];
            let query = queries[first + i];
            own[i] *= decay;
            sums += vec3<f32>(own[i] * key, key * key, query * query);
        }
        read_parts[lane] = sums;
        workgroupBarrier();
        sums = vec3<f32>();
        for (var q = 0u; q < PARTS; q++) {
            sums += read_parts[q * COLUMNS + place];
        }
        // The norms are factors of the raw key and query.
        let key_factor = 1.0 / sqrt(sums.y + 1e-6);
        let query_factor = 1.0 / (sqrt(sums.z + 1e-6) * sqrt(f32(KEY_DIM)));
        let delta = key_factor * beta * (value - key_factor * sums.x);
        var result = 0.0;
        for (var i = 0u; i < PART; i++) {
            own[i] += keys[first + i] * delta;
            result += own[i] * queries[first + i];
        }
        out_parts[lane] = result;
        workgroupBarrier();
        if part == 0u && inside {
            result = 0.0;
            for (var q = 0u; q < PARTS; q++) {
                result += out_parts[q * COLUMNS + place];
            }
            out[p.out_offset + row * p.out_stride + head * VALUE_DIM + column] =
                result * query_factor;
        }
    }
    if inside {
        for (var i = 0u; i < PART; i++) {
            if part * PART + i < KEY_DIM {
                state[state_start + i * VALUE_DIM] = own[i];
            }
        }
    }
}
