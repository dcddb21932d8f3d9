/* schedule.cuh - work items handed from the thread that takes them to the block's other roles.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SCHEDULE_CUH
#define WL_SCHEDULE_CUH

#include "barrier.cuh"

/* Two places, so that the next item is known before the last one is done. */
struct Handout {
    u64 full[2], empty[2];
    int item[2];
};

/* `readers` arrivals free a place. */
__device__ __forceinline__ void init_handout(Handout &h, u32 readers)
{
    for (int i = 0; i < 2; i++) {
        mbarrier_init(&h.full[i], 1);
        mbarrier_init(&h.empty[i], readers);
    }
}

__device__ __forceinline__ void hand_out(Handout &h, u32 turn, int item)
{
    const u32 place = turn & 1;
    mbarrier_wait(&h.empty[place], turn / 2 % 2 ^ 1);
    h.item[place] = item;
    mbarrier_arrive(&h.full[place]);
}

/* One thread of each reader. */
__device__ __forceinline__ int receive(Handout &h, u32 turn)
{
    mbarrier_wait(&h.full[turn & 1], turn / 2 % 2);
    const int item = h.item[turn & 1];
    mbarrier_arrive(&h.empty[turn & 1]);
    return item;
}

/* The next item of a launch that counts in work[0]. */
__device__ __forceinline__ int take(int *work)
{
    return atomicAdd(work, 1) + gridDim.x;
}

/* The last block to come here leaves the two counters as it found them: zero. */
__device__ __forceinline__ void leave(int *work)
{
    __threadfence();
    if (atomicAdd(work + 1, 1) == gridDim.x - 1) {
        __threadfence(); /* what the others did with the counters comes before */
        work[0] = 0;
        work[1] = 0;
    }
}

#endif
