// linear_tiles of the types with blocks of 32. The six entries are in linear_tiles.cuh.
#include "linear_tiles.cuh"

LINEAR_TILES_ALL(q8_0, Q8_0)
LINEAR_TILES_ALL(q4_0, Q4_0)
LINEAR_TILES_ALL(q4_1, Q4_1)
LINEAR_TILES_ALL(q5_0, Q5_0)
LINEAR_TILES_ALL(q5_1, Q5_1)
