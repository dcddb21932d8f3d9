/* number.h - the approximate functions, for one lane and for the 32 lanes of a register slot.
   SPDX-License-Identifier: BSD-3-Clause

   ex2, lg2 and rcp are an H200's bit by bit. Written with plain operations of vectors: the same
   bits on every host and for every target of the includer (avx2 is the fastest), if nothing is
   contracted (-std=c17). */
#ifndef WL_SIM_NUMBER_H
#define WL_SIM_NUMBER_H

#include <string.h>

#include "tensor.h"

/* What the hardware gives for every NaN that it makes. */
#define NUM_NAN 0x7fffffffu

typedef float num_f8 __attribute__((vector_size(32)));
typedef int32_t num_i8 __attribute__((vector_size(32)));
typedef float num_f16 __attribute__((vector_size(64)));
typedef int32_t num_i16 __attribute__((vector_size(64)));

/* The special function unit finds a value between those of its tables: a mantissa's first bits (6;
   of a reciprocal 7) choose a row, and with the rest x, of 17 bits, the value is first + second x +
   third num_square(x), cut. In units of 2^-15 of the result's last place (of a logarithm: 2^-38)
   `first` counts 2^13 (2^12), `second` and `third` 1. */
extern const int32_t num_ex2_table[3][64] __attribute__((aligned(64)));
extern const int32_t num_lg2_table[3][64], num_rcp_table[3][128];

/* x^2 in units of 2^19, of the partial products of bits i < j those with i + j >= 18 alone. */
#define NUM_SQUARE(x) \
    ((((x) >> 9) * ((x) >> 9) >> 1) + NUM_CROSS(x, 10) + NUM_CROSS(x, 11) + NUM_CROSS(x, 12) + \
     NUM_CROSS(x, 13) + NUM_CROSS(x, 14) + NUM_CROSS(x, 15) + NUM_CROSS(x, 16))
#define NUM_CROSS(x, j) ((x) << (31 - (j)) >> 31 & ((x) & 511) >> (18 - (j)))

#define NUM_INLINE __attribute__((always_inline)) static inline
/* A subnormal becomes a zero of its sign. */
static inline float num_flush(float x, bool ftz) {
    return ftz && __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x;
}
/* All bits where a < b, no 2^31 apart. GCC 12 cannot compare such vectors for a pragma's target. */
#define NUM_LESS(a, b) (((a) - (b)) >> 31)

/* Of 16 lanes: an entry of 64. `shuffles`: the target's are fast (AVX-512). */
NUM_INLINE void num_look_up(num_i16 *to, const int32_t *table, const num_i16 *row, bool shuffles) {
#ifndef __clang__
    const num_i16 *part = (const num_i16 *)table;
    if (shuffles) {
        num_i16 low = __builtin_shuffle(part[0], part[1], *row), upper = -(*row >> 5);
        *to = (low & ~upper) | (__builtin_shuffle(part[2], part[3], *row) & upper);
        return;
    }
#endif
    for (int l = 0; l < 16; l++) (*to)[l] = table[(*row)[l]];
}

/* 2^s of 16 lanes: s as a fixed-point number of 23 fractional bits, cut; a negative one that has a
   fraction becomes its complement. All products fit 32 bits when the last two bits of x are
   multiplied on their own. */
NUM_INLINE void num_ex2_unit(num_f16 *to, const num_f16 *from, bool shuffles) {
    num_i16 bits = (num_i16)*from, negative = bits >> 31, size = bits & 0x7fffffff;
    num_i16 nan = NUM_LESS(0x7f800000, size), large = NUM_LESS(0x43480000, size); /* 200 */
    size = (size & ~large) | (large & 0x43480000);
    num_i16 t = __builtin_convertvector((num_f16)size * 0x1p23f, num_i16);
    t = (t ^ negative) - (negative & NUM_LESS(t & 0x7fffff, 1));
    num_i16 n = t >> 23, row = t >> 17 & 63, x = t & 0x1ffff, first, second, third;
    num_look_up(&first, num_ex2_table[0], &row, shuffles);
    num_look_up(&second, num_ex2_table[1], &row, shuffles);
    num_look_up(&third, num_ex2_table[2], &row, shuffles);
    num_i16 low = second * (x & 3) + third * NUM_SQUARE(x) + ((first & 3) << 13) + 6114;
    num_i16 y = (first >> 2) + ((second * (x >> 2) + (low >> 2)) >> 13);
    num_i16 over = NUM_LESS(127, n), under = NUM_LESS(n, -126);
    y = (y + ((n + 126) << 23)) & ~under & ~over & ~nan;
    *to = (num_f16)(y | (over & ~nan & 0x7f800000) | (nan & (int32_t)NUM_NAN));
}

/* The 32 lanes of a slot; d may be s. Without .ftz, small powers are squares of the half's. */
NUM_INLINE void num_ex2_lanes(float *d, const float *s, bool ftz, bool shuffles) {
    for (int l = 0; l < SIM_LANES; l += 16) {
        num_f16 x, y;
        memcpy(&x, s + l, sizeof x);
        num_i16 size = (num_i16)x & 0x7fffffff;
        num_i16 small = (num_i16)x >> 31 & NUM_LESS(0x42fc0000, size); /* less than -126 */
        if (!ftz) x *= (num_f16)((small & 0x3f000000) | (~small & 0x3f800000));
        num_ex2_unit(&y, &x, shuffles);
        if (!ftz) y = (num_f16)((small & (num_i16)(y * y)) | (~small & (num_i16)y));
        memcpy(d + l, &y, sizeof y);
    }
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
