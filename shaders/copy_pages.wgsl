// math:     word i of a range of one row of `state` <-> word (page_start + i) % block_words of pool
//           block table[1 + (page_start + i) / block_words]
// shapes:   table i32 [1 + n]: row, then blocks; state: rows of `row_words` words; pages: blocks of
//           `block_words` words; both possibly split over several buffers by rows
// launch:   one invocation per word, looping over the grid; one dispatch per pair of buffers
// bytes:    8 words
// limits:   a row or block outside these buffers is skipped; words < 2^32
// numerics: a copy of bits

struct Params {
    words: u32,
    page_start: u32,
    state_start: u32,
    row_words: u32,
    block_words: u32,
    table_offset: u32,
    table_stride: u32,
    state_first: u32,
    state_rows: u32,
    state_offset: u32,
    pages_first: u32,
    pages_rows: u32,
    pages_offset: u32,
    to_pages: u32,
}
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read> table: array<i32>;
@group(0) @binding(2) var<storage, read_write> state: array<u32>;
@group(0) @binding(3) var<storage, read_write> pages: array<u32>;

@compute @workgroup_size(WORKGROUP)
fn copy_pages(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let slot = table[p.table_offset];
    let row = u32(slot) - p.state_first;
    if slot < 0 || row >= p.state_rows {
        return;
    }
    let line = p.state_offset + row * p.row_words + p.state_start;
    for (var i = group.x * WORKGROUP + lane; i < p.words; i += groups.x * WORKGROUP) {
        let at = p.page_start + i;
        let id = table[p.table_offset + (1u + at / p.block_words) * p.table_stride];
        let block = u32(id) - p.pages_first;
        if id < 0 || block >= p.pages_rows {
            continue;
        }
        let word = p.pages_offset + block * p.block_words + at % p.block_words;
        if p.to_pages != 0u {
            pages[word] = state[line + i];
        } else {
            state[line + i] = pages[word];
        }
    }
}
