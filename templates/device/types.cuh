/* types.cuh - the few types and conversions that every kernel uses; no toolkit header is needed.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TYPES_CUH
#define WL_TYPES_CUH

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

/* A CUtensorMap, opaque; passed as a __grid_constant__ parameter. */
struct alignas(64) TensorMap {
    u64 opaque[16];
};

constexpr u32 full_warp = 0xffffffffu;

/* The 32-bit address that shared-memory instructions take. */
__device__ __forceinline__ u32 shared_address(const void *pointer)
{
    return (u32)__cvta_generic_to_shared(pointer);
}

__device__ __forceinline__ float minus_infinity()
{
    return __int_as_float(0xff800000);
}

__device__ __forceinline__ float not_a_number()
{
    return __int_as_float(0x7fffffff);
}

/* 2^x; MUFU alone, because of .ftz (PTX ISA 9.7.3, ex2). */
__device__ __forceinline__ float exp2_approx(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* log2 x (PTX ISA 9.7.3, lg2). */
__device__ __forceinline__ float log2_approx(float x)
{
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* Two floats to a packed pair, the first in the low half: cvt puts its first source high. */
__device__ __forceinline__ u32 pack_bf16(float low, float high)
{
    u32 pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

__device__ __forceinline__ u32 pack_fp16(float low, float high)
{
    u32 pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}

#endif
