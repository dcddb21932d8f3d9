/* multiply.c - sums of products in fp32, the fast way, one loop for each kind of host.
   SPDX-License-Identifier: BSD-3-Clause

   All give the same bits: each sum takes its products by ascending k, with one rounding a step. */
#include <math.h>

#include "fragment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* Any host: one rounding a step comes from fmaf. */
static void multiply_plain(const fragment_product *p) {
    for (uint32_t i = 0; i < p->n / 2; i++) {
        uint32_t column = i / 4 * 8 + i % 2 * 4, half = i / 2 % 2;
        for (uint32_t l = 0; l < SIM_LANES; l++) {
            float sum = p->d[i][l];
            for (uint32_t k = 0; k < p->k; k++)
                sum = fmaf(p->a[(k * 2 + half) * 32 + l], p->b[k * p->n + column + l % 4], sum);
            p->d[i][l] = sum;
        }
    }
}

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
/* Eight accumulators: the four registers of eight columns, over 16 lanes. */
__attribute__((target("avx2,fma"))) static void multiply_avx2(const fragment_product *p) {
    for (uint32_t column = 0; column < p->n; column += 8)
        for (uint32_t lane = 0; lane < SIM_LANES; lane += 16) {
            float *const *d = p->d + column / 2;
            const float *a = p->a + lane, *b = p->b + column;
            __m256 s[4][2];
            for (int i = 0; i < 4; i++)
                for (int h = 0; h < 2; h++) s[i][h] = _mm256_loadu_ps(d[i] + lane + 8 * h);
            for (uint32_t k = 0; k < p->k; k++, a += 64, b += p->n) {
                __m256 even = _mm256_broadcast_ps((const __m128 *)b);
                __m256 odd = _mm256_broadcast_ps((const __m128 *)(b + 4));
                for (int h = 0; h < 2; h++) {
                    __m256 top = _mm256_loadu_ps(a + 8 * h), low = _mm256_loadu_ps(a + 32 + 8 * h);
                    s[0][h] = _mm256_fmadd_ps(top, even, s[0][h]);
                    s[1][h] = _mm256_fmadd_ps(top, odd, s[1][h]);
                    s[2][h] = _mm256_fmadd_ps(low, even, s[2][h]);
                    s[3][h] = _mm256_fmadd_ps(low, odd, s[3][h]);
                }
            }
            for (int i = 0; i < 4; i++)
                for (int h = 0; h < 2; h++) _mm256_storeu_ps(d[i] + lane + 8 * h, s[i][h]);
        }
}

/* The same over all 32 lanes. */
__attribute__((target("avx512f"))) static void multiply_avx512(const fragment_product *p) {
    for (uint32_t column = 0; column < p->n; column += 8) {
        float *const *d = p->d + column / 2;
        const float *a = p->a, *b = p->b + column;
        __m512 s[4][2];
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++) s[i][h] = _mm512_loadu_ps(d[i] + 16 * h);
        for (uint32_t k = 0; k < p->k; k++, a += 64, b += p->n) {
            __m512 even = _mm512_broadcast_f32x4(_mm_loadu_ps(b));
            __m512 odd = _mm512_broadcast_f32x4(_mm_loadu_ps(b + 4));
            for (int h = 0; h < 2; h++) {
                __m512 top = _mm512_loadu_ps(a + 16 * h), low = _mm512_loadu_ps(a + 32 + 16 * h);
                s[0][h] = _mm512_fmadd_ps(top, even, s[0][h]);
                s[1][h] = _mm512_fmadd_ps(top, odd, s[1][h]);
                s[2][h] = _mm512_fmadd_ps(low, even, s[2][h]);
                s[3][h] = _mm512_fmadd_ps(low, odd, s[3][h]);
            }
        }
        for (int i = 0; i < 4; i++)
            for (int h = 0; h < 2; h++) _mm512_storeu_ps(d[i] + 16 * h, s[i][h]);
    }
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f");
}
#endif

const fragment_loop fragment_fp32[FRAGMENT_LOOPS] = {
#if defined(__x86_64__)
    {has_avx512, multiply_avx512},
    {has_avx2, multiply_avx2},
#endif
    {always, multiply_plain},
};

const fragment_loop *fragment_best(const fragment_loop *loops) {
    while (!loops->usable()) loops++;
    return loops;
}
