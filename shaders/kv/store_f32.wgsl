// One word a value.
@group(0) @binding(4) var<storage, read_write> pages: array<u32>;
const RUN: u32 = 4u;

fn store_run(block: u32, index: u32, plane: u32, row: u32, column: u32) {
    let word = block + index;
    let value = bitcast<vec4<u32>>(source4(plane, row, column));
    pages[word] = value.x;
    pages[word + 1u] = value.y;
    pages[word + 2u] = value.z;
    pages[word + 3u] = value.w;
}
