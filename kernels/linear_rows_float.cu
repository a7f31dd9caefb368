// linear_rows of F16 (and BF16, stored as F16 with a scale per row) and F32. The six entries are in
// linear_rows.cuh.
#include "linear_rows.cuh"

LINEAR_ROWS_ALL(f16, F16)
LINEAR_ROWS_ALL(f32, F32)
