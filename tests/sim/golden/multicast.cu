// multicast.cu - a cluster of two: each block loads a box into both, at its rank's place.
// SPDX-License-Identifier: BSD-3-Clause
struct __align__(64) Map {
    unsigned char bytes[128];
};

extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(128)
    kernel(const __grid_constant__ Map map, unsigned bytes, unsigned *out) {
    extern __shared__ __align__(1024) unsigned char smem[]; // the barrier, at 1024 the boxes
    unsigned bar = (unsigned)__cvta_generic_to_shared(smem), rank, done = 0;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    unsigned box = bar + 1024 + rank * bytes;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar),
                     "r"(2 * bytes) : "memory");
    }
    __syncthreads();
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile"
                     ".mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}],"
                     " [%2], %5;" ::"r"(box),
                     "l"(&map), "r"(bar), "r"(0), "r"((int)rank * 8), "h"((unsigned short)3)
                     : "memory");
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                     " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
    unsigned *words = (unsigned *)(smem + 1024);
    for (unsigned i = threadIdx.x; i < bytes / 2; i += 128)
        out[blockIdx.x * bytes / 2 + i] = words[i] + (rank << 16);
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
