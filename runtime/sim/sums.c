/* sums.c - sums of products as the hardware makes them, one loop for each kind of host.
   SPDX-License-Identifier: BSD-3-Clause

   A sum is made as an H200 makes it, which its results on random operands of every kind show bit by
   bit. The terms are the exact products of an instruction's k and the accumulator. The largest
   exponent among those that are not zero, a product's being the sum of its factors' exponents,
   gives the unit: 2^-25 of it (fp8: 2^-13). Each term is cut, toward zero, to whole units; they are
   added exactly; the sum is cut to fp32 (fp8: to 13 bits of fraction), or, whole, rounded to f16.

   So the vector loops take the largest exponents first, and then cut and add 32-bit integers. What
   these or fp32 cannot hold is left to sum_one: infinities, NaN, magnitudes near the ends of fp32,
   sums beyond 2^31 units. */
#include <math.h>

#include "fragment.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* What a vector loop handles: |exponent| up to FAST; FRAGMENT_ZERO + FAST and less is no number. */
enum { FAST = 100, NOTHING = -500 };

static float cut(double sum, const fragment_product *p) {
    float f = (float)sum;
    if (fabs(sum) >= 0x1p128) return f;
    if (fabs((double)f) > fabs(sum)) f = nextafterf(f, 0);
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    if (p->fraction < 23 && !p->odd) bits &= ~0u << (23 - p->fraction);
    bits |= p->odd && (double)f != sum;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* The sum in one lane of register i, whatever the numbers. */
static float sum_one(const fragment_product *p, uint32_t i, uint32_t lane) {
    const uint32_t column = i / 4 * 8 + i % 2 * 4 + lane % 4, row = i / 2 % 2 * 32 + lane;
    double terms[33], plain = 0, sum = 0;
    int largest = FRAGMENT_ZERO;
    for (uint32_t k = 0; k < p->k; k++) {
        int e = p->a_exponent[k * 64 + row] + p->b_exponent[k * p->n + column];
        if (e > largest) largest = e;
        terms[k] = (double)p->a[k * 64 + row] * (double)p->b[k * p->n + column];
    }
    terms[p->k] = (double)p->d[i][lane];
    if (terms[p->k] != 0) {
        int e = ilogb(terms[p->k]);
        if (e < -126) e = -126;
        if (e > largest) largest = e;
    }
    for (uint32_t k = 0; k <= p->k; k++) plain += terms[k];
    if (!isfinite(plain)) return plain != plain ? num_from_f16(0x7fff) : (float)plain;
    for (uint32_t k = 0; k <= p->k; k++) sum += trunc(ldexp(terms[k], p->fraction - largest));
    return sum == 0 ? 0 : cut(ldexp(sum, largest - p->fraction), p);
}

static void sums_plain(const fragment_product *p) {
    for (uint32_t i = 0; i < p->n / 2; i++)
        for (uint32_t l = 0; l < SIM_LANES; l++) p->d[i][l] = sum_one(p, i, l);
}

FRAGMENT_CLONES
static void exponents(int lowest, const float *from, uint32_t count, int16_t *to) {
    typedef int16_t short8 __attribute__((vector_size(16)));
    typedef int32_t int8 __attribute__((vector_size(32)));
    for (uint32_t i = 0; i < count; i += 8) {
        int8 x;
        memcpy(&x, from + i, sizeof x);
        x &= 0x7fffffff;
        int8 e = (x >> 23) - 127, low = e < lowest, zero = x == 0, beyond = e == 128;
        e = (e & ~low) | (low & lowest);
        e = (e & ~zero & ~beyond) | (zero & FRAGMENT_ZERO) | (beyond & FRAGMENT_BEYOND);
        short8 s = __builtin_convertvector(e, short8);
        memcpy(to + i, &s, sizeof s);
    }
}

void fragment_exponents(int type, const float *from, uint32_t count, int16_t *to) {
    exponents(type == SIM_BF16 ? -126 : type == SIM_E4M3 ? -6 : -14, from, count, to);
}

static bool always(void) {
    return true;
}

#if defined(__x86_64__)
/* Lanes `from` … of register i whose sums have another way: into the results r. */
static void mend(const fragment_product *p, uint32_t i, uint32_t from, uint32_t lanes, float *r) {
    for (; lanes; lanes &= lanes - 1) {
        uint32_t l = (uint32_t)__builtin_ctz(lanes);
        r[l] = sum_one(p, i, from + l);
    }
}

#define AVX2 __attribute__((target("avx2"), always_inline)) static inline
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512dq"), always_inline)) static inline

/* From the largest exponent of the products, e, and the accumulator: what a term is multiplied with
   to be counted in units; the lanes that are not for a vector loop. */
AVX512 __m512 unit_512(__m512i e, __m512 c, int fraction, __mmask16 *slow) {
    __m512i field = _mm512_and_si512(_mm512_srli_epi32(_mm512_castps_si512(c), 23),
                                     _mm512_set1_epi32(255));
    __mmask16 some = _mm512_test_epi32_mask(_mm512_castps_si512(c), _mm512_set1_epi32(0x7fffffff));
    e = _mm512_mask_max_epi32(e, some, e, _mm512_sub_epi32(field, _mm512_set1_epi32(127)));
    __m512i limit = _mm512_set1_epi32(FAST);
    *slow = _mm512_cmpgt_epi32_mask(_mm512_abs_epi32(e), limit);
    *slow = _mm512_mask_cmpgt_epi32_mask(*slow, e, _mm512_set1_epi32(NOTHING));
    e = _mm512_max_epi32(e, _mm512_set1_epi32(-FAST));
    e = _mm512_sub_epi32(_mm512_set1_epi32(127 + fraction), e);
    return _mm512_castsi512_ps(_mm512_slli_epi32(e, 23));
}

AVX512 __m512i units_512(__m512 a, __m512 b, __m512 unit) {
    return _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_mul_ps(a, b), unit));
}

/* Register i, lanes `from` …: the accumulator is added to the sum of the products. */
AVX512 void finish_512(const fragment_product *p, uint32_t i, uint32_t from, __m512i sum,
                       __m512 unit, __mmask16 slow) {
    float *d = p->d[i] + from;
    __m512i c = _mm512_cvttps_epi32(_mm512_mul_ps(_mm512_loadu_ps(d), unit));
    __m512i all = _mm512_add_epi32(sum, c);
    __m512i overflow = _mm512_ternarylogic_epi32(all, sum, c, 0x18); /* other sign than both */
    slow |= _mm512_movepi32_mask(overflow);
    __m512 r = _mm512_cvt_roundepi32_ps(all, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    __m512i bits = _mm512_castps_si512(r);
    if (p->odd) {
        __mmask16 inexact = _mm512_cmpneq_epi32_mask(_mm512_cvttps_epi32(r), all);
        bits = _mm512_mask_or_epi32(bits, inexact, bits, _mm512_set1_epi32(1));
    } else if (p->fraction < 23) {
        bits = _mm512_and_si512(bits, _mm512_set1_epi32((int)(~0u << (23 - p->fraction))));
    }
    __m512i back = _mm512_sub_epi32(_mm512_set1_epi32(254 << 23), _mm512_castps_si512(unit));
    r = _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_castsi512_ps(back));
    if (__builtin_expect(slow, 0)) {
        float lanes[16];
        _mm512_storeu_ps(lanes, r);
        mend(p, i, from, slow, lanes);
        r = _mm512_loadu_ps(lanes);
    }
    _mm512_storeu_ps(d, r);
}

/* The largest exponents of the products of eight columns: four registers of 32 lanes. */
AVX512 void exponents_512(const fragment_product *p, uint32_t column, __m512i *most) {
    const int16_t *a = p->a_exponent, *b = p->b_exponent + column;
    for (int i = 0; i < 4; i++) most[i] = _mm512_set1_epi16(FRAGMENT_ZERO);
    for (uint32_t k = 0; k < p->k; k++, a += 64, b += p->n) {
        __m512i top = _mm512_loadu_si512(a), low = _mm512_loadu_si512(a + 32);
        __m512i even = _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)b));
        __m512i odd = _mm512_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(b + 4)));
        most[0] = _mm512_max_epi16(most[0], _mm512_add_epi16(top, even));
        most[1] = _mm512_max_epi16(most[1], _mm512_add_epi16(top, odd));
        most[2] = _mm512_max_epi16(most[2], _mm512_add_epi16(low, even));
        most[3] = _mm512_max_epi16(most[3], _mm512_add_epi16(low, odd));
    }
}

__attribute__((target("avx512f,avx512bw,avx512dq"))) static void sums_avx512(
    const fragment_product *p) {
    for (uint32_t column = 0; column < p->n; column += 8) {
        const float *a = p->a, *b = p->b + column;
        __m512i most[4], s[4][2];
        __m512 unit[4][2];
        __mmask16 slow[4][2];
        exponents_512(p, column, most);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++) {
            const float *c = p->d[column / 2 + i];
            __m512i first = _mm512_cvtepi16_epi32(_mm512_castsi512_si256(most[i]));
            __m512i second = _mm512_cvtepi16_epi32(_mm512_extracti64x4_epi64(most[i], 1));
            unit[i][0] = unit_512(first, _mm512_loadu_ps(c), p->fraction, &slow[i][0]);
            unit[i][1] = unit_512(second, _mm512_loadu_ps(c + 16), p->fraction, &slow[i][1]);
            s[i][0] = s[i][1] = _mm512_setzero_si512();
        }
        for (uint32_t k = 0; k < p->k; k++, a += 64, b += p->n) {
            __m512 even = _mm512_broadcast_f32x4(_mm_loadu_ps(b));
            __m512 odd = _mm512_broadcast_f32x4(_mm_loadu_ps(b + 4));
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m512 top = _mm512_loadu_ps(a + 16 * h), low = _mm512_loadu_ps(a + 32 + 16 * h);
                s[0][h] = _mm512_add_epi32(s[0][h], units_512(top, even, unit[0][h]));
                s[1][h] = _mm512_add_epi32(s[1][h], units_512(top, odd, unit[1][h]));
                s[2][h] = _mm512_add_epi32(s[2][h], units_512(low, even, unit[2][h]));
                s[3][h] = _mm512_add_epi32(s[3][h], units_512(low, odd, unit[3][h]));
            }
        }
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++)
#pragma GCC unroll 2
            for (uint32_t h = 0; h < 2; h++)
                finish_512(p, column / 2 + i, 16 * h, s[i][h], unit[i][h], slow[i][h]);
    }
}

/* The same of eight lanes, and in the loop of sixteen. */
AVX2 __m256 unit_256(__m256i e, __m256 c, int fraction, __m256i *slow) {
    __m256i bits = _mm256_and_si256(_mm256_castps_si256(c), _mm256_set1_epi32(0x7fffffff));
    __m256i none = _mm256_cmpeq_epi32(bits, _mm256_setzero_si256());
    __m256i of_c = _mm256_sub_epi32(_mm256_srli_epi32(bits, 23), _mm256_set1_epi32(127));
    e = _mm256_max_epi32(e, _mm256_add_epi32(of_c, _mm256_and_si256(none, _mm256_set1_epi32(
                                                                              FRAGMENT_ZERO))));
    *slow = _mm256_and_si256(_mm256_cmpgt_epi32(_mm256_abs_epi32(e), _mm256_set1_epi32(FAST)),
                             _mm256_cmpgt_epi32(e, _mm256_set1_epi32(NOTHING)));
    e = _mm256_max_epi32(e, _mm256_set1_epi32(-FAST));
    e = _mm256_sub_epi32(_mm256_set1_epi32(127 + fraction), e);
    return _mm256_castsi256_ps(_mm256_slli_epi32(e, 23));
}

AVX2 __m256i units_256(__m256 a, __m256 b, __m256 unit) {
    return _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_mul_ps(a, b), unit));
}

/* Rounding to nearest after all bits that a cut could see are gone is a cut. */
AVX2 void finish_256(const fragment_product *p, uint32_t i, uint32_t from, __m256i sum, __m256 unit,
                     __m256i slow) {
    float *d = p->d[i] + from;
    __m256i c = _mm256_cvttps_epi32(_mm256_mul_ps(_mm256_loadu_ps(d), unit));
    __m256i all = _mm256_add_epi32(sum, c), size = _mm256_abs_epi32(all);
    slow = _mm256_or_si256(slow, _mm256_and_si256(_mm256_xor_si256(all, sum),
                                                  _mm256_xor_si256(all, c)));
    slow = _mm256_or_si256(slow, size); /* 2^31 stays negative */
    __m256i kept = _mm256_andnot_si256(_mm256_srli_epi32(size, 24), size);
    __m256 r = _mm256_cvtepi32_ps(kept);
    __m256i bits = _mm256_castps_si256(r);
    if (p->odd) {
        __m256i exact = _mm256_cmpeq_epi32(_mm256_cvttps_epi32(r), size);
        bits = _mm256_or_si256(bits, _mm256_andnot_si256(exact, _mm256_set1_epi32(1)));
    } else if (p->fraction < 23) {
        bits = _mm256_and_si256(bits, _mm256_set1_epi32((int)(~0u << (23 - p->fraction))));
    }
    bits = _mm256_or_si256(bits, _mm256_and_si256(all, _mm256_set1_epi32(INT32_MIN)));
    __m256i back = _mm256_sub_epi32(_mm256_set1_epi32(254 << 23), _mm256_castps_si256(unit));
    r = _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_castsi256_ps(back));
    uint32_t lanes = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(slow));
    if (__builtin_expect(lanes, 0)) {
        float to[8];
        _mm256_storeu_ps(to, r);
        mend(p, i, from, lanes, to);
        r = _mm256_loadu_ps(to);
    }
    _mm256_storeu_ps(d, r);
}

AVX2 void exponents_256(const fragment_product *p, uint32_t column, uint32_t lane, __m256i *most) {
    const int16_t *a = p->a_exponent + lane, *b = p->b_exponent + column;
    for (int i = 0; i < 4; i++) most[i] = _mm256_set1_epi16(FRAGMENT_ZERO);
    for (uint32_t k = 0; k < p->k; k++, a += 64, b += p->n) {
        __m256i top = _mm256_loadu_si256((const __m256i *)a);
        __m256i low = _mm256_loadu_si256((const __m256i *)(a + 32));
        __m256i even = _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)b));
        __m256i odd = _mm256_broadcastq_epi64(_mm_loadl_epi64((const __m128i *)(b + 4)));
        most[0] = _mm256_max_epi16(most[0], _mm256_add_epi16(top, even));
        most[1] = _mm256_max_epi16(most[1], _mm256_add_epi16(top, odd));
        most[2] = _mm256_max_epi16(most[2], _mm256_add_epi16(low, even));
        most[3] = _mm256_max_epi16(most[3], _mm256_add_epi16(low, odd));
    }
}

AVX2 void sixteen_lanes_256(const fragment_product *p, uint32_t column, uint32_t lane) {
    const float *a = p->a + lane, *b = p->b + column;
    __m256i most[4], s[4][2], slow[4][2];
    __m256 unit[4][2];
    exponents_256(p, column, lane, most);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++) {
        const float *c = p->d[column / 2 + i] + lane;
        __m256i first = _mm256_cvtepi16_epi32(_mm256_castsi256_si128(most[i]));
        __m256i second = _mm256_cvtepi16_epi32(_mm256_extracti128_si256(most[i], 1));
        unit[i][0] = unit_256(first, _mm256_loadu_ps(c), p->fraction, &slow[i][0]);
        unit[i][1] = unit_256(second, _mm256_loadu_ps(c + 8), p->fraction, &slow[i][1]);
        s[i][0] = s[i][1] = _mm256_setzero_si256();
    }
    for (uint32_t k = 0; k < p->k; k++, a += 64, b += p->n) {
        __m256 even = _mm256_broadcast_ps((const __m128 *)b);
        __m256 odd = _mm256_broadcast_ps((const __m128 *)(b + 4));
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 top = _mm256_loadu_ps(a + 8 * h), low = _mm256_loadu_ps(a + 32 + 8 * h);
            s[0][h] = _mm256_add_epi32(s[0][h], units_256(top, even, unit[0][h]));
            s[1][h] = _mm256_add_epi32(s[1][h], units_256(top, odd, unit[1][h]));
            s[2][h] = _mm256_add_epi32(s[2][h], units_256(low, even, unit[2][h]));
            s[3][h] = _mm256_add_epi32(s[3][h], units_256(low, odd, unit[3][h]));
        }
    }
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
#pragma GCC unroll 2
        for (uint32_t h = 0; h < 2; h++)
            finish_256(p, column / 2 + i, lane + 8 * h, s[i][h], unit[i][h], slow[i][h]);
}

__attribute__((target("avx2"))) static void sums_avx2(const fragment_product *p) {
    for (uint32_t column = 0; column < p->n; column += 8)
        for (uint32_t lane = 0; lane < SIM_LANES; lane += 16) sixteen_lanes_256(p, column, lane);
}

static bool has_avx2(void) {
    return __builtin_cpu_supports("avx2");
}

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq");
}
#endif

const fragment_loop fragment_hardware[FRAGMENT_LOOPS] = {
#if defined(__x86_64__)
    {has_avx512, sums_avx512},
    {has_avx2, sums_avx2},
#endif
    {always, sums_plain},
};
