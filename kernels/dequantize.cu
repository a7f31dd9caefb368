// dequantize for every type. The six entries are in dequantize.cuh.
#include "dequantize.cuh"

DEQUANTIZE(q8_0, Q8_0)
DEQUANTIZE(q4_0, Q4_0)
DEQUANTIZE(q4_1, Q4_1)
DEQUANTIZE(q5_0, Q5_0)
DEQUANTIZE(q5_1, Q5_1)
DEQUANTIZE(q2_k, Q2_K)
DEQUANTIZE(q3_k, Q3_K)
DEQUANTIZE(q4_k, Q4_K)
DEQUANTIZE(q5_k, Q5_K)
DEQUANTIZE(q6_k, Q6_K)
DEQUANTIZE(iq2_xxs, IQ2_XXS)
DEQUANTIZE(iq2_xs, IQ2_XS)
DEQUANTIZE(iq3_xxs, IQ3_XXS)
DEQUANTIZE(iq4_nl, IQ4_NL)
DEQUANTIZE(iq4_xs, IQ4_XS)
DEQUANTIZE(mxfp4, MXFP4)
