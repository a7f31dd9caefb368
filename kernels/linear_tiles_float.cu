// linear_tiles of F16 (and BF16, stored as F16 with a scale per row) and F32. The six entries are in
// linear_tiles.cuh.
#include "linear_tiles.cuh"

LINEAR_TILES_ALL(f16, F16)
LINEAR_TILES_ALL(f32, F32)
