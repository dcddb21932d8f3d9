/* tma.cuh - tensor copies between global and shared memory (PTX ISA 9.7.9.27).
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TMA_CUH
#define WL_TMA_CUH

#include "types.cuh"

/* Where a box starts in a tensor seen as [batch][head][row][column]. */
struct BoxAt {
    int column, row, head, batch;
};

/* Has the copy engine fetch a map, so that its first copy need not wait for it. */
__device__ __forceinline__ void tma_prefetch(const TensorMap &map)
{
    asm volatile("prefetch.tensormap [%0];" :: "l"(&map) : "memory");
}

/* Loads one box; rows and columns outside the tensor arrive as zeros and count as bytes. */
__device__ __forceinline__ void tma_load(void *to, const TensorMap &map, BoxAt at, u64 *bar)
{
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4, %5}], [%6];"
                 :: "r"(shared_address(to)), "l"(&map), "r"(at.column), "r"(at.row), "r"(at.head),
                    "r"(at.batch), "r"(shared_address(bar)) : "memory");
}

/* Stores one box as a bulk group of its own; what lies outside the tensor is dropped. */
__device__ __forceinline__ void tma_store(const TensorMap &map, BoxAt at, const void *from)
{
    asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group"
                 " [%0, {%1, %2, %3, %4}], [%5]; cp.async.bulk.commit_group;"
                 :: "l"(&map), "r"(at.column), "r"(at.row), "r"(at.head), "r"(at.batch),
                    "r"(shared_address(from)) : "memory");
}

/* Waits until none of this thread's stores reads shared memory any more. */
__device__ __forceinline__ void tma_store_wait_read_all()
{
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

/* The same for all its stores but the last. */
__device__ __forceinline__ void tma_store_wait_read_but_one()
{
    asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
}

/* Waits until all stores of this thread are done. */
__device__ __forceinline__ void tma_store_wait()
{
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

/* Between ordinary writes to shared memory and a copy or wgmma that reads them. */
__device__ __forceinline__ void fence_async_shared()
{
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#endif
