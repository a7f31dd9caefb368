// math:     state[to] = state[from] for each pair (from, to), unless from is negative
// shapes:   state, rows of `row_len` 32-bit words, possibly split over several buffers by rows;
//           pairs i32 [N, 2]
// launch:   one invocation per word of a row, 256 a workgroup, y = pair; `copy_state` moves inside
//           one buffer, `copy_state_across` from one buffer of the tensor to another
// bytes:    8 row_len per pair copied
// limits:   N <= 65535
// numerics: a copy of bits

struct Params {
    row_words: u32,
    pairs_offset: u32,
    pairs_stride: u32,
    from_first: u32,
    from_rows: u32,
    to_first: u32,
    to_rows: u32,
    from_offset: u32,
    to_offset: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> pairs: array<i32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read> source: array<u32>;

// Start of source and target row, or 0xffffffff twice if the pair is not for these buffers.
fn row_starts(pair: u32) -> vec2<u32> {
    let from_slot = pairs[p.pairs_offset + pair * p.pairs_stride];
    let to_slot = pairs[p.pairs_offset + pair * p.pairs_stride + 1u];
    let from_row = u32(from_slot) - p.from_first;
    let to_row = u32(to_slot) - p.to_first;
    if from_slot < 0 || to_slot < 0 || from_row >= p.from_rows || to_row >= p.to_rows {
        return vec2<u32>(0xffffffffu);
    }
    return vec2<u32>(
        p.from_offset + from_row * p.row_words,
        p.to_offset + to_row * p.row_words,
    );
}

@compute @workgroup_size(WORKGROUP)
fn copy_state(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let starts = row_starts(group.y);
    if starts.x == 0xffffffffu {
        return;
    }
    for (var i = group.x * WORKGROUP + lane; i < p.row_words; i += groups.x * WORKGROUP) {
        state[starts.y + i] = state[starts.x + i];
    }
}

@compute @workgroup_size(WORKGROUP)
fn copy_state_across(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let starts = row_starts(group.y);
    if starts.x == 0xffffffffu {
        return;
    }
    for (var i = group.x * WORKGROUP + lane; i < p.row_words; i += groups.x * WORKGROUP) {
        state[starts.y + i] = source[starts.x + i];
    }
}
