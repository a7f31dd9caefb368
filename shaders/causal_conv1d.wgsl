// math:     out_t[c] = silu(sum_j w[c, j] x_{t-K+1+j}[c]) per sequence; the K - 1 rows before the
//           pass come from the state, zeros before position 0; state <- the last K - 1 raw rows
// shapes:   x, out f32 [R, C], rows strided; weight f32 [C, K]; state f32 [slots, K - 1, C], one
//           segment of `slot_count` slots from `slot_first` on; sequences i32 [S, 4]
// launch:   one invocation per channel of a sequence (y), which walks the rows with the window in
//           registers, 64 a workgroup; line S of the grid writes zeros into padded rows
// bytes:    8 R C + 8 S (K - 1) C + 4 K C
// limits:   S < 65535; K = KERNEL
// numerics: f32, taps in order

struct Params {
    rows: u32,
    channels: u32,
    sequences: u32,
    slot_first: u32,
    slot_count: u32,
    x_offset: u32,
    x_stride: u32,
    weight_offset: u32,
    state_offset: u32,
    sequences_offset: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> weight: array<f32>;
@group(0) @binding(3) var<storage, read> sequences: array<i32>;
@group(0) @binding(4) var<storage, read_write> state: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

const HISTORY: u32 = KERNEL - 1u;

fn sequence_line(index: u32) -> vec4<i32> {
    let start = p.sequences_offset + index * 4u;
    return vec4<i32>(
        sequences[start], sequences[start + 1u], sequences[start + 2u], sequences[start + 3u],
    );
}

fn clear_padding(channel: u32) {
    for (var row = 0u; row < p.rows; row++) {
        var padded = true;
        for (var s = 0u; s < p.sequences; s++) {
            padded = padded && !holds_row(sequence_line(s), row);
        }
        if padded {
            out[p.out_offset + row * p.out_stride + channel] = 0.0;
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn causal_conv1d(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let channel = group.x * WORKGROUP + lane;
    if channel >= p.channels {
        return;
    }
    if group.y == p.sequences {
        if p.slot_first == 0u {
            clear_padding(channel);
        }
        return;
    }
    let line = sequence_line(group.y);
    let slot = u32(line.w) - p.slot_first;
    if line.y <= 0 || line.w < 0 || slot >= p.slot_count {
        return;
    }
    let slot_start = p.state_offset + slot * HISTORY * p.channels + channel;
    var window: array<f32, KERNEL>;
    var taps: array<f32, KERNEL>;
    for (var j = 0u; j < KERNEL; j++) {
        taps[j] = weight[p.weight_offset + channel * KERNEL + j];
    }
    if line.z > line.y {
        for (var j = 0u; j < HISTORY; j++) {
            window[j + 1u] = state[slot_start + j * p.channels];
        }
    }
    for (var t = 0; t < line.y; t++) {
        let row = u32(line.x + t);
        for (var j = 0u; j < HISTORY; j++) {
            window[j] = window[j + 1u];
        }
        window[HISTORY] = x[p.x_offset + row * p.x_stride + channel];
        var sum = 0.0;
        for (var j = 0u; j < KERNEL; j++) {
            sum += taps[j] * window[j];
        }
        out[p.out_offset + row * p.out_stride + channel] = silu(sum);
    }
    for (var j = 0u; j < HISTORY; j++) {
        state[slot_start + j * p.channels] = window[j + 1u];
    }
}
