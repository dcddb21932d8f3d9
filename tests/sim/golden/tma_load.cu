// tma_load.cu - one box of a tensor to shared memory: swizzles, elements outside, element strides.
// SPDX-License-Identifier: BSD-3-Clause
// RANK: text, COORDS: the operands' text (golden.py). BOX: where the box goes; MOVED: bytes by
// which the map's address is wrong.
#ifndef BOX
#define BOX 1024
#endif
#ifndef MOVED
#define MOVED 0
#endif
struct __align__(64) Map {
    unsigned char bytes[128];
};

extern "C" __global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ Map map, int c0, int c1, int c2, int c3, int c4, unsigned bytes,
           unsigned room, unsigned *out) {
    extern __shared__ __align__(1024) unsigned char smem[]; // the barrier, then the box
    unsigned bar = (unsigned)__cvta_generic_to_shared(smem), box = bar + BOX, done = 0;
    unsigned *words = (unsigned *)(smem + 1024);
    for (unsigned i = threadIdx.x; i < room / 4; i += 128) words[i] = 0xeeeeeeee;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.tensor." RANK
                     "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, " COORDS
                     "], [%2];" ::"r"(box), "l"(map.bytes + MOVED), "r"(bar), "r"(c0), "r"(c1),
                     "r"(c2), "r"(c3), "r"(c4)
                     : "memory");
    }
    for (int i = 0; i < 2000 && !done; i++) // gives up: the bytes may be counted otherwise
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                     " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
    for (unsigned i = threadIdx.x; i < room / 4; i += 128) out[i] = words[i];
    if (threadIdx.x == 0) out[room / 4] = done;
}
