// linear_tiles of the types with tables. The six entries are in linear_tiles.cuh.
#include "linear_tiles.cuh"

LINEAR_TILES_ALL(iq2_xxs, IQ2_XXS)
LINEAR_TILES_ALL(iq2_xs, IQ2_XS)
LINEAR_TILES_ALL(iq3_xxs, IQ3_XXS)
LINEAR_TILES_ALL(iq4_nl, IQ4_NL)
LINEAR_TILES_ALL(iq4_xs, IQ4_XS)
LINEAR_TILES_ALL(mxfp4, MXFP4)
