/* score.cuh - functions of scores, by the approximations of the machine.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SCORE_CUH
#define WL_SCORE_CUH

#include "types.cuh"

/* Relative error at most 2^-11 (PTX ISA 9.7.3, tanh). */
__device__ __forceinline__ float tanh_approx(float x)
{
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* By 2^x, which small results need to be right. */
__device__ __forceinline__ float sigmoid_approx(float x)
{
    return __fdividef(1.0f, 1.0f + exp2_approx(-1.44269504f * x));
}

#endif
