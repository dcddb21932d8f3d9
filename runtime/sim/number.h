/* number.h - the approximate functions, for one lane and for the 32 lanes of a register slot.
   SPDX-License-Identifier: BSD-3-Clause

   Written with plain multiplications and additions of vectors: the same bits on every host and for
   every target of the includer (avx2 is the fastest), if nothing is contracted (-std=c17). */
#ifndef WL_SIM_NUMBER_H
#define WL_SIM_NUMBER_H

#include <string.h>

#include "tensor.h"

/* What the hardware gives for every NaN that it makes. */
#define NUM_NAN 0x7fffffffu

typedef float num_f8 __attribute__((vector_size(32)));
typedef int32_t num_i8 __attribute__((vector_size(32)));

/* 2^s of eight lanes: 2^n times a polynomial in the rest f of at most 1/2. The polynomial is 1 at
   f = 0, so that powers of two are exact; below 0.8 ulp elsewhere (the ISA grants about 2). The
   scaling is done in two steps so that subnormal results are rounded once. */
static inline void num_ex2_eight(float *d, const float *s, bool ftz) {
    num_f8 x, y;
    memcpy(&x, s, sizeof x);
    num_i8 nan = x != x, low = x < -152.0f, high = x > 129.0f;
    num_i8 clamp = (low & (num_i8)((num_f8){} - 152.0f)) | (high & (num_i8)((num_f8){} + 129.0f));
    num_f8 t = (num_f8)((~(low | high | nan) & (num_i8)x) | clamp);
    num_f8 shifted = t + 0x1.8p23f; /* rounds to an integer, which its low bits then hold */
    num_i8 n = (num_i8)shifted - 0x4b400000;
    num_f8 f = t - (shifted - 0x1.8p23f);
    num_f8 p = f * 0x1.470b4ap-13f + 0x1.5f7276p-10f;
    p = p * f + 0x1.3b270ep-7f;
    p = p * f + 0x1.c6ae72p-5f;
    p = p * f + 0x1.ebfbe2p-3f;
    p = p * f + 0x1.62e432p-1f;
    p = p * f + 1.0f;
    num_i8 half = n >> 1;
    y = p * (num_f8)((half + 127) << 23) * (num_f8)((n - half + 127) << 23);
    num_i8 keep = ~nan;
    if (ftz) keep &= y >= 0x1p-126f;
    y = (num_f8)((keep & (num_i8)y) | (nan & (int32_t)NUM_NAN));
    memcpy(d, &y, sizeof y);
}

/* The 32 lanes of a slot; d may be s. */
static inline void num_ex2_lanes(float *d, const float *s, bool ftz) {
    for (int l = 0; l < SIM_LANES; l += 8) num_ex2_eight(d + l, s + l, ftz);
}

static inline void num_lg2_lanes(float *d, const float *s, bool ftz) {
    for (int l = 0; l < SIM_LANES; l++) d[l] = num_lg2(s[l], ftz);
}

static inline void num_rcp_lanes(float *d, const float *s, bool ftz) {
    for (int l = 0; l < SIM_LANES; l++) d[l] = num_rcp(s[l], ftz);
}

/* A small format: bits of mantissa, bias of the exponent, the code of the largest number or of
   infinity (rounding stops there), the code of its NaN, and its sign bit. */
typedef struct {
    int mantissa, bias;
    uint32_t limit, nan, sign;
} num_format;
#define NUM_F16 ((num_format){10, 15, 0x7c00, 0x7fff, 0x8000})
#define NUM_BF16 ((num_format){7, 127, 0x7f80, 0x7fff, 0x8000})
#define NUM_E4M3 ((num_format){3, 7, 0x7e, 0x7f, 0x80})   /* satfinite */
#define NUM_E5M2 ((num_format){2, 15, 0x7b, 0x7f, 0x80}) /* satfinite */

/* Codes of eight numbers, to nearest even. A subnormal result is rounded by adding the power of two
   whose last place is the format's smallest number; bf16 has fp32's exponent and needs it not. */
static inline void num_code_eight(uint32_t *d, const float *s, num_format to) {
    typedef uint32_t u8 __attribute__((vector_size(32)));
    num_f8 x;
    memcpy(&x, s, sizeof x);
    u8 a = (u8)x & 0x7fffffffu, negative = (u8)((num_i8)x < 0), nan = (u8)(x != x);
    int drop = 23 - to.mantissa;
    u8 code = a - ((uint32_t)(127 - to.bias) << 23);
    code = (code + (1u << (drop - 1)) - 1 + (a >> drop & 1)) >> drop;
    if (to.bias != 127) {
        u8 small = (u8)(a < (uint32_t)(128 - to.bias) << 23), magic = (u8){};
        magic += (uint32_t)(151 - to.bias - to.mantissa) << 23;
        code = (small & ((u8)((num_f8)a + (num_f8)magic) - magic)) | (code & ~small);
    }
    u8 over = (u8)(code > to.limit);
    code = (code & ~over) | (over & to.limit);
    code = (code & ~nan) | (nan & to.nan) | (negative & ~nan & to.sign);
    memcpy(d, &code, sizeof code);
}

/* As cvt.rn.TYPEx2.f32 d, high, low on the lanes of a slot; d may be either source. */
static inline void num_pair_lanes(uint32_t *d, const float *high, const float *low, num_format to) {
    int shift = to.sign == 0x80 ? 8 : 16;
    for (int l = 0; l < SIM_LANES; l += 8) {
        uint32_t h[8], o[8];
        num_code_eight(h, high + l, to);
        num_code_eight(o, low + l, to);
        for (int i = 0; i < 8; i++) d[l + i] = h[i] << shift | o[i];
    }
}

#endif
