// multicast.cu - each block of a cluster loads a box into some of them, at its rank's place.
// SPDX-License-Identifier: BSD-3-Clause
// CLUSTER: blocks (golden.py).
struct __align__(64) Map {
    unsigned char bytes[128];
};

// bytes: that a box counts; room: that it takes; masks: a byte for each block's copy.
extern "C" __global__ void __cluster_dims__(CLUSTER, 1, 1) __launch_bounds__(128)
    kernel(const __grid_constant__ Map map, unsigned bytes, unsigned room, unsigned long long masks,
           unsigned *out) {
    extern __shared__ __align__(1024) unsigned char smem[]; // the barrier, at 1024 the boxes
    unsigned bar = (unsigned)__cvta_generic_to_shared(smem), rank, done = 0, boxes = 0;
    unsigned *words = (unsigned *)(smem + 1024), size = CLUSTER * room / 4;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    for (unsigned i = threadIdx.x; i < size; i += 128) words[i] = 0xeeeeeeee;
    for (int i = 0; i < CLUSTER; i++) boxes += masks >> 8 * i >> rank & 1;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                     "r"(boxes * bytes) : "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                     ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}],"
                     " [%2], %5;" ::"r"(bar + 1024 + rank * room),
                     "l"(&map), "r"(bar), "r"(0), "r"((int)rank * 8),
                     "h"((unsigned short)(masks >> 8 * rank & 0xff))
                     : "memory");
    for (int i = 0; i < 2000 && !done; i++)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                     " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
    for (unsigned i = threadIdx.x; i < size; i += 128)
        out[blockIdx.x * size + i] = done ? words[i] : 0;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
