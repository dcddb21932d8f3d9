/* wgmma.cuh - what surrounds the warpgroup multiplications: descriptors, fences, waits, fragments.
   SPDX-License-Identifier: BSD-3-Clause
   The multiplications' operand lists change with N: templates/parts/wgmma.in. */
#ifndef WL_WGMMA_CUH
#define WL_WGMMA_CUH

#include "types.cuh"

/* Descriptor of a 128-byte-swizzled tile of 64-column panels (PTX ISA 9.7.15.5.1): 8 rows are 1024
   bytes apart (SBO). `panel_bytes` (LBO) matters only to an operand whose rows are the k dimension;
   the others ignore it. The address is cut to 18 bits: in a cluster the higher ones are set, and
   would run into the LBO field. Adding bytes / 16 to a descriptor moves its start. */
__device__ __forceinline__ u64 swizzled_tile(const void *tile, u32 panel_bytes)
{
    return (u64)1 << 62 | (u64)(1024 / 16) << 32 | (u64)(panel_bytes / 16) << 16 |
           (shared_address(tile) & 0x3ffff) / 16;
}

__device__ __forceinline__ void wgmma_fence()
{
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit()
{
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

/* Waits for every group in flight. */
__device__ __forceinline__ void wgmma_wait_all()
{
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

/* Waits for every group but the last. */
__device__ __forceinline__ void wgmma_wait_but_one()
{
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

/* Four 8x8 matrices of 16-bit elements from fragments to shared memory (PTX ISA 9.7.14.5.16):
   lane l gives the address of row l % 8 of matrix l / 8. */
__device__ __forceinline__ void store_matrix_x4(u32 address, u32 a, u32 b, u32 c, u32 d)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

__device__ __forceinline__ void store_matrix_x2(u32 address, u32 a, u32 b)
{
    asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
                 :: "r"(address), "r"(a), "r"(b) : "memory");
}

#endif
