/* formula.cuh - what the code of masks and scores calls; with `__device__` empty it is plain C.
   SPDX-License-Identifier: BSD-3-Clause

   Divisions floor, by 1 or more; those named _wide are for sums that need 64 bits. */
#ifndef WL_FORMULA_CUH
#define WL_FORMULA_CUH

typedef long long i64;

typedef struct {
    int low, high;
} Range;

__device__ __forceinline__ int least(int a, int b)
{
    return a < b ? a : b;
}

__device__ __forceinline__ int most(int a, int b)
{
    return a > b ? a : b;
}

__device__ __forceinline__ int distance(int a)
{
    return a < 0 ? -a : a;
}

__device__ __forceinline__ int floor_div(int a, int b)
{
    return a / b - (a % b < 0);
}

__device__ __forceinline__ int floor_mod(int a, int b)
{
    return a % b + (a % b < 0 ? b : 0);
}

__device__ __forceinline__ int pick(bool condition, int a, int b)
{
    return condition ? a : b;
}

__device__ __forceinline__ i64 least_wide(i64 a, i64 b)
{
    return a < b ? a : b;
}

__device__ __forceinline__ i64 most_wide(i64 a, i64 b)
{
    return a > b ? a : b;
}

__device__ __forceinline__ i64 distance_wide(i64 a)
{
    return a < 0 ? -a : a;
}

__device__ __forceinline__ i64 floor_div_wide(i64 a, i64 b)
{
    return a / b - (a % b < 0);
}

__device__ __forceinline__ i64 floor_mod_wide(i64 a, i64 b)
{
    return a % b + (a % b < 0 ? b : 0);
}

__device__ __forceinline__ i64 pick_wide(bool condition, i64 a, i64 b)
{
    return condition ? a : b;
}

/* With one more value. */
__device__ __forceinline__ Range joined(Range range, int value)
{
    range.low = least(range.low, value);
    range.high = most(range.high, value);
    return range;
}

__device__ __forceinline__ bool not_both(bool a, bool b)
{
    return !(a && b);
}

#endif
