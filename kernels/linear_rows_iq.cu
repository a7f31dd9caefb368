// linear_rows of the types with tables. The six entries are in linear_rows.cuh.
#include "linear_rows.cuh"

LINEAR_ROWS_ALL(iq2_xxs, IQ2_XXS)
LINEAR_ROWS_ALL(iq2_xs, IQ2_XS)
LINEAR_ROWS_ALL(iq3_xxs, IQ3_XXS)
LINEAR_ROWS_ALL(iq4_nl, IQ4_NL)
LINEAR_ROWS_ALL(iq4_xs, IQ4_XS)
LINEAR_ROWS_ALL(mxfp4, MXFP4)
