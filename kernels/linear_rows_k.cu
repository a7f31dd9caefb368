// linear_rows of the K types. The six entries are in linear_rows.cuh.
#include "linear_rows.cuh"

LINEAR_ROWS_ALL(q2_k, Q2_K)
LINEAR_ROWS_ALL(q3_k, Q3_K)
LINEAR_ROWS_ALL(q4_k, Q4_K)
LINEAR_ROWS_ALL(q5_k, Q5_K)
LINEAR_ROWS_ALL(q6_k, Q6_K)
