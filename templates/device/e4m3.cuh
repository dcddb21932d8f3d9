/* e4m3.cuh - probabilities of 8 bits, and the tiles that they are multiplied with.
   SPDX-License-Identifier: BSD-3-Clause

   An operand of 32 columns wants four neighbours of a row in a word, where an accumulator holds two
   of each eight. So V's keys are permuted within each 16: place 4 q + e holds key 2 q + e, for e of
   2 and 3 key 2 q + e + 6 (PTX ISA 9.7.15.5, layouts of A for .e4m3 and of D). */
#ifndef WL_E4M3_CUH
#define WL_E4M3_CUH

#include "softmax.cuh"

/* Descriptor of a tile whose rows are not the k dimension, in panels whose rows have `span` bytes,
   128, 64 or 32, and its swizzle: 8 rows are 8 * span bytes apart. */
__device__ __forceinline__ u64 tile_of_rows(const void *tile, u32 span)
{
    return (u64)(span == 128 ? 1 : span == 64 ? 2 : 3) << 62 | (u64)(8 * span / 16) << 32 |
           (u64)1 << 16 | (shared_address(tile) & 0x3ffff) / 16;
}

/* The first in the lowest byte. What is too large becomes 448; NaN stays NaN. */
__device__ __forceinline__ u32 pack_e4m3(float a, float b, float c, float d)
{
    u32 word;
    asm("{ .reg .b16 low, high; cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;"
        " cvt.rn.satfinite.e4m3x2.f32 high, %4, %3; mov.b32 %0, {low, high}; }"
        : "=r"(word) : "f"(a), "f"(b), "f"(c), "f"(d));
    return word;
}

/* words = 2^(values * scale + offset), rounded: A fragments of the next multiplication. sum: of
   this thread's columns, before they are rounded. */
__device__ __forceinline__ void exponentials_e4m3(const float *values, int count, u32 *words,
                                                  float scale, const float *offset, float *sum)
{
    float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    #pragma unroll
    for (int i = 0; i < count; i += 8)
        #pragma unroll
        for (int r = 0; r < 2; r++) {
            const float *at = values + i + 2 * r;
            const float a = exp2_approx(__fmaf_rn(at[0], scale, offset[r]));
            const float b = exp2_approx(__fmaf_rn(at[1], scale, offset[r]));
            const float c = exp2_approx(__fmaf_rn(at[4], scale, offset[r]));
            const float d = exp2_approx(__fmaf_rn(at[5], scale, offset[r]));
            part[r][0] += a;
            part[r][1] += b;
            part[r][0] += c;
            part[r][1] += d;
            words[i / 4 + r] = pack_e4m3(a, b, c, d);
        }
    sum[0] = part[0][0] + part[0][1];
    sum[1] = part[1][0] + part[1][1];
}

/* Whether a packed value is 256 or more, or NaN: with no sign, these alone are codes from 0x78. */
__device__ __forceinline__ bool reaches_256(const u32 *words, int count)
{
    u32 bits = 0;
    #pragma unroll
    for (int i = 0; i < count; i++)
        bits |= words[i] + 0x08080808;
    return (bits & 0x80808080) != 0;
}

/* The second level of sums: out, as a raised maximum counts it, and a tile's part. */
__device__ __forceinline__ void add_part(float *out, const float *part, int count,
                                         const float *factor)
{
    #pragma unroll
    for (int i = 0; i < count; i++)
        out[i] = __fmaf_rn(out[i], factor[i / 2 % 2], part[i]);
}

__device__ __forceinline__ float scale_at(const float *scales, int index)
{
    return scales ? scales[index] : 1.0f;
}

/* A zero counts as the least normal number, as -inf times it must stay what it is; NaN stays. */
__device__ __forceinline__ float scale_of_scores(float scale_log2, float scale_q, float scale_k)
{
    const float scale = scale_log2 * scale_q * scale_k;
    return scale < 1.17549435e-38f ? 1.17549435e-38f : scale;
}

/* Divides by the row sums, with V's scale, in place; the log of the sums goes to lse[0] and lse[8],
   unless it is null, as far as there are `rows_left`. */
__device__ __forceinline__ void finish_scaled(float *out, int count, Rows &rows, float scale,
                                              float *lse, int rows_left)
{
    float inverse[2];
    finish_rows(rows);
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        const float sum = rows.sum[r];
        inverse[r] = sum == 0.0f ? 0.0f : scale * __fdividef(1.0f, sum);
        if (lse && threadIdx.x % 4 == 0 && 8 * r < rows_left)
            lse[8 * r] = log2_of_row(sum, rows.offset[r]) * 0.69314718056f; /* ln 2 */
    }
    rescale(out, count, inverse);
}

#endif
