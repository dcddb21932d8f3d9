/* fragment.h - what operand.c, multiply.c and tensor.c share: elements to floats, operands as lanes
   see them.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_FRAGMENT_H
#define WL_SIM_FRAGMENT_H

#include <string.h>

#include "tensor.h"

typedef uint16_t half8 __attribute__((vector_size(16)));
typedef uint32_t word8 __attribute__((vector_size(32)));
typedef float float8 __attribute__((vector_size(32)));

/* For loops over vectors, which no clone may contract: the same bits from all. */
/* (clang's clones have other names; ThreadSanitizer is not ready when the loader chooses.) */
#if defined(__x86_64__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__)
#define FRAGMENT_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define FRAGMENT_CLONES
#endif

/* Eight elements, each alone in a word, to floats. Small formats are moved to fp32's place and
   multiplied by the ratio of the biases, which also makes their subnormals right. */
__attribute__((always_inline)) static inline void fragment_numbers(int type, const word8 *words,
                                                                   float *to) {
    word8 w = *words;
    if (type == SIM_BF16) {
        w <<= 16;
    } else {
        if (type == SIM_E5M2) w <<= 8;
        uint32_t top = type == SIM_E4M3 ? 0x80 : 0x8000, special = type == SIM_E4M3 ? 0x7f : 0x7c00;
        int shift = type == SIM_E4M3 ? 20 : 13;
        float scale = type == SIM_E4M3 ? 0x1p120f : 0x1p112f;
        word8 rest = w & (top - 1), beyond = (word8)(rest >= special) & 0x7f800000u;
        w = (w & top) << (type == SIM_E4M3 ? 24 : 16);
        w |= (word8)((float8)(rest << shift) * scale) | beyond;
    }
    memcpy(to, &w, sizeof w);
}

/* D += A B for one warp: a[k][half][lane], b[k][column in its order], d: n / 2 slots. For sums as
   the hardware's: exponents, which lie as the numbers; how many bits of a term are kept after the
   largest term's first; odd: a sum that is not exact ends in 1, so that it can be rounded again. */
typedef struct {
    uint32_t n, k;
    const float *a, *b;
    float *const *d;
    const int16_t *a_exponent, *b_exponent;
    int fraction;
    bool odd;
} fragment_product;
/* The fastest first; the last is always usable. */
typedef struct {
    bool (*usable)(void);
    void (*multiply)(const fragment_product *p);
} fragment_loop;
#if defined(__x86_64__)
#define FRAGMENT_LOOPS 3
#else
#define FRAGMENT_LOOPS 1
#endif
extern const fragment_loop fragment_fp32[FRAGMENT_LOOPS], fragment_hardware[FRAGMENT_LOOPS];
const fragment_loop *fragment_best(const fragment_loop *loops);

/* Exponents of `count` numbers (a multiple of 16) of a type: a subnormal has the type's lowest; the
   sum of two tells whether a factor is zero, or infinite or no number. */
enum { FRAGMENT_ZERO = -1000, FRAGMENT_BEYOND = 3000 };
void fragment_exponents(int type, const float *from, uint32_t count, int16_t *to);
/* Where the exponents of decoded B are: behind the numbers. */
static inline int16_t *fragment_b_exponents(const float *b) {
    return (int16_t *)(b + 32 * 256);
}

#endif
