/* formula.cuh - what the code of masks and scores calls; with `__device__` empty it is plain C.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_FORMULA_CUH
#define WL_FORMULA_CUH

typedef long long i64;

#define WL_WHOLE(type, suffix)                                                                   \
    __device__ __forceinline__ type least##suffix(type a, type b) { return a < b ? a : b; }      \
    __device__ __forceinline__ type most##suffix(type a, type b) { return a > b ? a : b; }       \
    __device__ __forceinline__ type distance##suffix(type a) { return a < 0 ? -a : a; }          \
    /* Both floor; b is 1 or more. */                                                            \
    __device__ __forceinline__ type floor_div##suffix(type a, type b)                            \
    {                                                                                            \
        return a / b - (a % b < 0);                                                              \
    }                                                                                            \
    __device__ __forceinline__ type floor_mod##suffix(type a, type b)                            \
    {                                                                                            \
        return a % b + (a % b < 0 ? b : 0);                                                      \
    }                                                                                            \
    __device__ __forceinline__ type pick##suffix(bool condition, type a, type b)                 \
    {                                                                                            \
        return condition ? a : b;                                                                \
    }
WL_WHOLE(int, )
WL_WHOLE(i64, _wide)
#undef WL_WHOLE

__device__ __forceinline__ bool not_both(bool a, bool b)
{
    return !(a && b);
}

#endif
