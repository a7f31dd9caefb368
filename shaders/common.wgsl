// Helpers shared by every shader. The backend puts the constants of a variant in front
// (`WORKGROUP` always: invocations of a workgroup, a power of two), then this file, then the
// snippets that the variant names, then the op.

// Index of a workgroup in a grid folded into two dimensions, because one dimension holds at most
// 65535 workgroups.
fn flat_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.x + group.y * groups.x;
}

// exp(80) is finite, so the quotient underflows to zero instead of dividing by infinity.
fn sigmoid(x: f32) -> f32 {
    return 1.0 / (1.0 + exp(min(-x, 80.0)));
}

fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}

var<workgroup> reduction: array<f32, WORKGROUP>;

// Sum over the workgroup in a fixed order; every invocation gets it. Uniform control flow only.
fn workgroup_sum(value: f32, lane: u32) -> f32 {
    reduction[lane] = value;
    workgroupBarrier();
    for (var step = WORKGROUP / 2u; step > 0u; step >>= 1u) {
        if lane < step {
            reduction[lane] += reduction[lane + step];
        }
        workgroupBarrier();
    }
    let total = reduction[0];
    // The next use must not overwrite the total before all have read it.
    workgroupBarrier();
    return total;
}

// True if row `row` of the pass belongs to the sequence line (first row, rows, length, slot).
fn holds_row(line: vec4<i32>, row: u32) -> bool {
    let distance = i32(row) - line.x;
    return distance >= 0 && distance < line.y;
}
