// math:     out = softmax(scale q K^T) V over positions 0..=position of the row's sequence, by the
//           online softmax (Milakov and Gimelshein 2018) over splits of the context, then merged
// shapes:   q f32 [R, ..], query_heads heads at `head_stride`; pages: one segment of `block_count`
//           blocks from `block_first` on; sequences i32 [S, 4]; block_table i32 [S, max_blocks];
//           scratch f32x4 [R, query_heads, parts, DIM / 4 + 1] (sum, then maximum and weight);
//           out f32 [R, query_heads DIM]
// launch:   paged_attention: 128 invocations per TILE_ROWS rows of a sequence (x), HEADS query heads
//             of one KV head (y), split of one sequence (z); a step is one block of 16 tokens;
//             16 LANES (DIM / 4) + 76 LANES bytes of workgroup memory
//           paged_attention_merge: 64 invocations per query head of a row; padded rows get zeros
// bytes:    K and V of the context once per tile + 8 R query_heads parts (DIM + 4)
// limits:   DIM a multiple of 4; LANES = TILE_ROWS HEADS <= 8; segments of pages are separate
//           dispatches with their own parts; S splits <= 65535
// numerics: f32; tokens in order inside a split, splits in order

struct Params {
    rows: u32,
    sequences: u32,
    query_heads: u32,
    kv_heads: u32,
    heads_per_kv: u32,
    head_chunks: u32,
    splits: u32,
    part_first: u32,
    parts: u32,
    block_first: u32,
    block_count: u32,
    block_words: u32,
    pages_offset: u32,
    q_offset: u32,
    q_stride: u32,
    head_stride: u32,
    sequences_offset: u32,
    table_offset: u32,
    table_stride: u32,
    out_offset: u32,
    out_stride: u32,
    scale: f32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read> pages: array<u32>;
@group(0) @binding(3) var<storage, read> sequences: array<i32>;
@group(0) @binding(4) var<storage, read> block_table: array<i32>;
@group(0) @binding(5) var<storage, read_write> scratch: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

const TOKENS: u32 = 16u;
const QUADS: u32 = DIM / 4u;
const LANES: u32 = TILE_ROWS * HEADS;
const ITEMS: u32 = (QUADS * LANES + WORKGROUP - 1u) / WORKGROUP;
// Stands for minus infinity, which WGSL may assume not to exist.
const LOWEST: f32 = -1e30;

var<workgroup> queries: array<vec4<f32>, LANES * QUADS>;
var<workgroup> scores: array<f32, LANES * TOKENS>;
var<workgroup> maxima: array<f32, LANES>;
var<workgroup> totals: array<f32, LANES>;
var<workgroup> factors: array<f32, LANES>;

fn sequence_line(index: u32) -> vec4<i32> {
    let start = p.sequences_offset + index * 4u;
    return vec4<i32>(
        sequences[start], sequences[start + 1u], sequences[start + 2u], sequences[start + 3u],
    );
}

fn scratch_start(row: u32, head: u32, part: u32) -> u32 {
    return ((row * p.query_heads + head) * p.parts + part) * (QUADS + 1u);
}

@compute @workgroup_size(WORKGROUP)
fn paged_attention(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let sequence = group.z / p.splits;
    let split = group.z % p.splits;
    let line = sequence_line(sequence);
    let tile_row = group.x * TILE_ROWS;
    if line.y <= 0 || tile_row >= u32(line.y) {
        return;
    }
    let rows = min(TILE_ROWS, u32(line.y) - tile_row);
    let first_row = u32(line.x) + tile_row;
    let first_position = u32(line.z - line.y) + tile_row;
    let kv_head = group.y / p.head_chunks;
    let chunk_head = group.y % p.head_chunks * HEADS;
    let first_head = kv_head * p.heads_per_kv + chunk_head;

    for (var i = lane; i < LANES * QUADS; i += WORKGROUP) {
        let row = i / QUADS / HEADS;
        let head = i / QUADS % HEADS;
        var value = vec4<f32>();
        if row < rows && chunk_head + head < p.heads_per_kv {
            let start = p.q_offset + (first_row + row) * p.q_stride
                + (first_head + head) * p.head_stride + i % QUADS * 4u;
            value = vec4<f32>(q[start], q[start + 1u], q[start + 2u], q[start + 3u]) * p.scale;
        }
        queries[i] = value;
    }
    if lane < LANES {
        maxima[lane] = LOWEST;
        totals[lane] = 0.0;
    }
    var sums: array<vec4<f32>, ITEMS>;
    workgroupBarrier();

    // Splits follow the real length, in whole blocks.
    let length = first_position + rows;
    let per_split = ((u32(line.z) + p.splits * TOKENS - 1u) / (p.splits * TOKENS)) * TOKENS;
    let begin = split * per_split;
    let end = min(begin + per_split, length);
    for (var first = begin; first < end; first += TOKENS) {
        let block = u32(block_table[p.table_offset + sequence * p.table_stride + first / TOKENS])
            - p.block_first;
        if block >= p.block_count {
            continue;
        }
        let block_start = p.pages_offset + block * p.block_words;
        let tokens = min(TOKENS, end - first);
        if lane < LANES * TOKENS {
            let token = lane % TOKENS;
            let owner = lane / TOKENS;
            var score = LOWEST;
            if token < tokens && first + token <= first_position + owner / HEADS {
                let index = (kv_head * TOKENS + token) * DIM;
                score = 0.0;
                for (var i = 0u; i < QUADS; i++) {
                    score += dot(queries[owner * QUADS + i], kv4(block_start, index + i * 4u));
                }
            }
            scores[lane] = score;
        }
        workgroupBarrier();
        if lane < LANES {
            let previous = maxima[lane];
            var largest = previous;
            for (var i = 0u; i < TOKENS; i++) {
                largest = max(largest, scores[lane * TOKENS + i]);
            }
            let factor = exp(previous - largest);
            var total = totals[lane] * factor;
            for (var i = 0u; i < TOKENS; i++) {
                let score = scores[lane * TOKENS + i];
                let weight = select(0.0, exp(score - largest), score > LOWEST);
                scores[lane * TOKENS + i] = weight;
                total += weight;
            }
            maxima[lane] = largest;
            totals[lane] = total;
            factors[lane] = factor;
        }
        workgroupBarrier();
        for (var n = 0u; n < ITEMS; n++) {
            let item = lane + n * WORKGROUP;
            if item < LANES * QUADS {
                let owner = item / QUADS;
                let quad = item % QUADS;
                var sum = sums[n] * factors[owner];
                // Only written tokens are read: zero times a stale NaN would still be one.
                for (var token = 0u; token < tokens; token++) {
                    let index = ((p.kv_heads + kv_head) * TOKENS + token) * DIM + quad * 4u;
                    sum += scores[owner * TOKENS + token] * kv4(block_start, index);
                }
                sums[n] = sum;
            }
        }
        workgroupBarrier();
    }

    for (var n = 0u; n < ITEMS; n++) {
        let item = lane + n * WORKGROUP;
        let owner = item / QUADS;
        let row = owner / HEADS;
        let head = owner % HEADS;
        if item < LANES * QUADS && row < rows && chunk_head + head < p.heads_per_kv {
            let start = scratch_start(first_row + row, first_head + head, p.part_first + split);
            scratch[start + item % QUADS] = sums[n];
            if item % QUADS == 0u {
                scratch[start + QUADS] = vec4<f32>(maxima[owner], totals[owner], 0.0, 0.0);
            }
        }
    }
}

@compute @workgroup_size(WORKGROUP)
fn paged_attention_merge(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = flat_group(group, groups);
    if index >= p.rows * p.query_heads {
        return;
    }
    let row = index / p.query_heads;
    let head = index % p.query_heads;
    var padded = true;
    for (var s = 0u; s < p.sequences; s++) {
        padded = padded && !holds_row(sequence_line(s), row);
    }
    var largest = LOWEST;
    for (var part = 0u; part < p.parts && !padded; part++) {
        largest = max(largest, scratch[scratch_start(row, head, part) + QUADS].x);
    }
    for (var quad = lane; quad < QUADS; quad += WORKGROUP) {
        var sum = vec4<f32>();
        var total = 0.0;
        for (var part = 0u; part < p.parts && !padded; part++) {
            let start = scratch_start(row, head, part);
            let end = scratch[start + QUADS];
            // A split beyond the row's context holds zeros.
            let factor = exp(end.x - largest);
            total += end.y * factor;
            sum += scratch[start + quad] * factor;
        }
        if total > 0.0 {
            sum = sum / total;
        }
        let target_quad = p.out_offset + row * p.out_stride + head * DIM + quad * 4u;
        out[target_quad] = sum.x;
        out[target_quad + 1u] = sum.y;
        out[target_quad + 2u] = sum.z;
        out[target_quad + 3u] = sum.w;
    }
}
