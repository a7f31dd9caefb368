// math:     p = softmax(logits); the k largest, largest first (ties: lower index), weights
//           renormalised to sum 1, which equals the softmax over the k chosen logits
// shapes:   logits f32 [R, E], ids i32 [R, k], weights f32 [R, k], rows strided
// launch:   one workgroup of 64 per row; 4 E + 768 bytes of workgroup memory
// bytes:    4 R (E + 2 k)
// limits:   k <= E <= EXPERTS = 1024, k <= 64; R < 2^32, folded
// numerics: f32; the largest logit is subtracted before exp

struct Params {
    rows: u32,
    experts: u32,
    top_k: u32,
    logits_offset: u32,
    logits_stride: u32,
    ids_offset: u32,
    ids_stride: u32,
    weights_offset: u32,
    weights_stride: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> logits: array<f32>;
@group(0) @binding(2) var<storage, read_write> ids: array<i32>;
@group(0) @binding(3) var<storage, read_write> weights: array<f32>;

const LOWEST = -3.4028234e38;

var<workgroup> values: array<f32, EXPERTS>;
var<workgroup> taken: array<u32, EXPERTS>;
var<workgroup> best_values: array<f32, WORKGROUP>;
var<workgroup> best_ids: array<u32, WORKGROUP>;
var<workgroup> chosen: array<f32, WORKGROUP>;

// True if (value, id) comes before (other, other_id).
fn before(value: f32, id: u32, other: f32, other_id: u32) -> bool {
    return value > other || (value == other && id < other_id);
}

@compute @workgroup_size(WORKGROUP)
fn moe_route(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = flat_group(group, groups);
    if row >= p.rows {
        return;
    }
    for (var i = lane; i < p.experts; i += WORKGROUP) {
        values[i] = max(logits[p.logits_offset + row * p.logits_stride + i], LOWEST);
        taken[i] = 0u;
    }
    workgroupBarrier();
    for (var j = 0u; j < p.top_k; j++) {
        var best = LOWEST;
        var best_id = 0xffffffffu;
        for (var i = lane; i < p.experts; i += WORKGROUP) {
            if taken[i] == 0u && before(values[i], i, best, best_id) {
                best = values[i];
                best_id = i;
            }
        }
        best_values[lane] = best;
        best_ids[lane] = best_id;
        workgroupBarrier();
        for (var step = WORKGROUP / 2u; step > 0u; step >>= 1u) {
            if lane < step
                && before(best_values[lane + step], best_ids[lane + step], best_values[lane], best_ids[lane]) {
                best_values[lane] = best_values[lane + step];
                best_ids[lane] = best_ids[lane + step];
            }
            workgroupBarrier();
        }
        if lane == 0u {
            // A row of NaN has no winner; any expert will do, the logits at the end report it.
            let id = min(best_ids[0], p.experts - 1u);
            taken[id] = 1u;
            chosen[j] = best_values[0];
            ids[p.ids_offset + row * p.ids_stride + j] = i32(id);
        }
        workgroupBarrier();
    }
    var total = 0.0;
    for (var j = 0u; j < p.top_k; j++) {
        total += exp(chosen[j] - chosen[0]);
    }
    if lane < p.top_k {
        weights[p.weights_offset + row * p.weights_stride + lane] =
            exp(chosen[lane] - chosen[0]) / total;
    }
}
