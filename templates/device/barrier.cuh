/* barrier.cuh - mbarriers, named barriers, register hand-over between warpgroups.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_BARRIER_CUH
#define WL_BARRIER_CUH

#include "types.cuh"

/* A phase completes when `arrivals` arrivals and all expected bytes are in (PTX ISA 9.7.13.15). */
__device__ __forceinline__ void mbarrier_init(u64 *bar, u32 arrivals)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
                 :: "r"(shared_address(bar)), "r"(arrivals) : "memory");
}

/* Makes the inits visible to the copy engine; a block barrier must follow. */
__device__ __forceinline__ void mbarrier_init_fence()
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(u64 *bar)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }"
                 :: "r"(shared_address(bar)) : "memory");
}

/* The arrival of one lane of a warp: pass `lane == 0`. */
__device__ __forceinline__ void mbarrier_arrive_by(bool chosen, u64 *bar)
{
    if (chosen)
        mbarrier_arrive(bar);
}

/* One arrival, and `bytes` more to come from copies that name this barrier. */
__device__ __forceinline__ void mbarrier_arrive_expect(u64 *bar, u32 bytes)
{
    asm volatile("{ .reg .b64 state; mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }"
                 :: "r"(shared_address(bar)), "r"(bytes) : "memory");
}

__device__ __forceinline__ u32 mbarrier_try_wait(u64 *bar, u32 parity)
{
    u32 done;
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                 " selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(shared_address(bar)), "r"(parity) : "memory");
    return done;
}

/* Returns once the phase of this parity has completed; a fresh barrier is in phase 0, so a wait
   for parity 1 passes at once. No trap in the loop: it would make ptxas serialise the wgmma. */
__device__ __forceinline__ void mbarrier_wait(u64 *bar, u32 parity)
{
    while (!mbarrier_try_wait(bar, parity)) {
    }
}

/* Named barriers 1..15 (0 is __syncthreads): completes when `threads` synced or arrived. */
__device__ __forceinline__ void named_sync(u32 id, u32 threads)
{
    asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_arrive(u32 id, u32 threads)
{
    asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory");
}

/* A position in a ring of slots, and the parity of its current lap. */
struct Ring {
    int slot;
    u32 parity;
};

__device__ __forceinline__ void advance(Ring &ring, int slots)
{
    if (++ring.slot == slots) {
        ring.slot = 0;
        ring.parity ^= 1;
    }
}

#endif
