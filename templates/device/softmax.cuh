/* softmax.cuh - online softmax of a warpgroup's 64 rows, on accumulator fragments.
   SPDX-License-Identifier: BSD-3-Clause

   A thread holds `count` values of two rows, 8 apart: value i is row i / 2 % 2, and column
   i / 4 * 8 + i % 2 from the thread's first (PTX ISA 9.7.15.5, accumulator layout). Four
   neighbouring threads share a row. `count` is a constant at every call, so that all loops unroll
   and the arrays stay in registers. */
#ifndef WL_SOFTMAX_CUH
#define WL_SOFTMAX_CUH

#include "types.cuh"

struct Rows {
    float top[2];    /* maximum of the scores seen */
    float offset[2]; /* -top * scale */
    float sum[2];    /* of this thread's columns; zero where a multiplication adds them */
};

/* Keeps the compiler from moving uses of registers that wgmma writes across this point. */
__device__ __forceinline__ void pin(float *values, int count)
{
    #pragma unroll
    for (int i = 0; i < count; i++)
        asm volatile("" : "+f"(values[i]) :: "memory");
}

/* Columns at or past a row's limit see nothing. */
__device__ __forceinline__ void mask_scores(float *scores, int count, int limit0, int limit1)
{
    #pragma unroll
    for (int i = 0; i < count; i++)
        if (i / 4 * 8 + i % 2 >= (i / 2 % 2 ? limit1 : limit0))
            scores[i] = minus_infinity();
}

__device__ __forceinline__ void row_maximum(const float *scores, int count, float *top)
{
    float part[2][4];
    #pragma unroll
    for (int i = 0; i < count; i++) {
        float &best = part[i / 2 % 2][i / 4 % 2 * 2 + i % 2];
        best = i < 8 ? scores[i] : fmaxf(best, scores[i]);
    }
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        top[r] = fmaxf(fmaxf(part[r][0], part[r][1]), fmaxf(part[r][2], part[r][3]));
        top[r] = fmaxf(top[r], __shfl_xor_sync(full_warp, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(full_warp, top[r], 2));
    }
}

/* A row that has seen nothing gets offset 0: 2^(-inf) is 0, where -inf + inf would be NaN. */
__device__ __forceinline__ float offset_of(float top, float scale)
{
    return top == minus_infinity() ? 0.0f : -top * scale;
}

/* The first tile of an item: the maximum is its own. */
__device__ __forceinline__ void start_rows(Rows &rows, const float *scores, int count, float scale)
{
    row_maximum(scores, count, rows.top);
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        rows.offset[r] = offset_of(rows.top[r], scale);
        rows.sum[r] = 0.0f;
    }
}

/* Raises the maximum to `top` where that is higher; what was summed before counts `factor` now. */
__device__ __forceinline__ void raise_rows(Rows &rows, const float *top, float scale, float *factor)
{
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        const float higher = fmaxf(rows.top[r], top[r]);
        rows.offset[r] = offset_of(higher, scale);
        factor[r] = exp2_approx(__fmaf_rn(rows.top[r], scale, rows.offset[r]));
        rows.top[r] = higher;
        rows.sum[r] *= factor[r];
    }
}

/* Makes every P of these offsets 2^steps times smaller. */
__device__ __forceinline__ void lower_rows(Rows &rows, float steps)
{
    rows.offset[0] -= steps;
    rows.offset[1] -= steps;
}

/* Optimistic softmax: a row that has seen nothing has no maximum to rely on, so the sums of its
   next tile must fail the test. */
__device__ __forceinline__ void distrust_empty_rows(Rows &rows)
{
    rows.offset[0] = rows.top[0] == minus_infinity() ? not_a_number() : rows.offset[0];
    rows.offset[1] = rows.top[1] == minus_infinity() ? not_a_number() : rows.offset[1];
}

/* Whether a packed pair has a value of 2 or more, infinity or NaN: with no sign, these alone have
   the first bit of the exponent. */
__device__ __forceinline__ bool reaches_two(const u32 *pairs, int count)
{
    u32 bits = 0;
    #pragma unroll
    for (int i = 0; i < count; i++)
        bits |= pairs[i];
    return (bits & 0x40004000) != 0;
}

/* pairs = 2^(values * scale + offset), rounded: A fragments of the next multiplication, whose
   layout is the accumulator's. The values stay. sum: of this thread's columns, before they are
   rounded; null: not wanted. */
__device__ __forceinline__ void exponentials_packed(const float *values, int count, u32 *pairs,
                                                    u32 (*pack)(float, float), float scale,
                                                    const float *offset, float *sum)
{
    float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
    #pragma unroll
    for (int i = 0; i < count; i += 2) {
        const int r = i / 2 % 2;
        const float a = exp2_approx(__fmaf_rn(values[i], scale, offset[r]));
        const float b = exp2_approx(__fmaf_rn(values[i + 1], scale, offset[r]));
        part[r][0] += a;
        part[r][1] += b;
        pairs[i / 2] = pack(a, b);
    }
    if (sum) {
        sum[0] = part[0][0] + part[0][1];
        sum[1] = part[1][0] + part[1][1];
    }
}

__device__ __forceinline__ void rescale(float *out, int count, const float *factor)
{
    #pragma unroll
    for (int i = 0; i < count; i++)
        out[i] *= factor[i / 2 % 2];
}

/* The sums of whole rows. */
__device__ __forceinline__ void finish_rows(Rows &rows)
{
    #pragma unroll
    for (int r = 0; r < 2; r++) {
        rows.sum[r] += __shfl_xor_sync(full_warp, rows.sum[r], 1);
        rows.sum[r] += __shfl_xor_sync(full_warp, rows.sum[r], 2);
    }
}

/* The log2 of what the sum of a whole row stands for: the very offset that its P were made with
   is taken back. */
__device__ __forceinline__ float log2_of_row(float sum, float offset)
{
    return sum == 0.0f ? minus_infinity() : log2_approx(sum) - offset;
}

#endif
