// linear_tiles of the K types. The six entries are in linear_tiles.cuh.
#include "linear_tiles.cuh"

LINEAR_TILES_ALL(q2_k, Q2_K)
LINEAR_TILES_ALL(q3_k, Q3_K)
LINEAR_TILES_ALL(q4_k, Q4_K)
LINEAR_TILES_ALL(q5_k, Q5_K)
LINEAR_TILES_ALL(q6_k, Q6_K)
