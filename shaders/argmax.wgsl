// math:     out = index of the largest value of each row; the lowest index wins ties; -1 on a NaN
// shapes:   logits f32 [N, V], rows strided; out i32 [N]
// launch:   one workgroup of 256 per row; 2 KiB of workgroup memory
// bytes:    4 N V
// limits:   N < 2^32, folded; V < 2^31
// numerics: compared as integers of the same order, since WGSL may assume that no NaN exists

struct Params {
    rows: u32,
    columns: u32,
    logits_offset: u32,
    logits_stride: u32,
    out_offset: u32,
    out_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<i32>;

var<workgroup> keys: array<u32, WORKGROUP>;
var<workgroup> indices: array<u32, WORKGROUP>;

// Ascending with the value; a NaN of either sign is above all.
fn order_key(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return 0xffffffffu;
    }
    // Both zeros are equal.
    if bits == 0x80000000u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

@compute @workgroup_size(WORKGROUP)
fn argmax(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if row >= p.rows {
        return;
    }
    let start = p.logits_offset + row * p.logits_stride;
    var best = 0u;
    var best_index = 0xffffffffu;
    for (var i = lane; i < p.columns; i += WORKGROUP) {
        let key = order_key(logits[start + i]);
        if key > best {
            best = key;
            best_index = i;
        }
    }
    keys[lane] = best;
    indices[lane] = best_index;
    workgroupBarrier();
    for (var step = WORKGROUP / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            let key = keys[lane + step];
            let index = indices[lane + step];
            if key > keys[lane] || (key == keys[lane] && index < indices[lane]) {
                keys[lane] = key;
                indices[lane] = index;
            }
        }
        workgroupBarrier();
    }
    if lane == 0u {
        out[p.out_offset + row * p.out_stride] =
            select(i32(indices[0]), -1, keys[0] == 0xffffffffu);
    }
}
