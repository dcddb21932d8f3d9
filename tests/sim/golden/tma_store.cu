// tma_store.cu - a box of shared memory stored or added to a tensor: elements outside are dropped.
// SPDX-License-Identifier: BSD-3-Clause
// COPY: the instruction up to its operands, COORDS: the operands' text (golden.py).
struct __align__(64) Map {
    unsigned char bytes[128];
};

extern "C" __global__ void __launch_bounds__(128)
    kernel(const __grid_constant__ Map map, int c0, int c1, int c2, int c3, int c4, unsigned room,
           const unsigned *in) {
    extern __shared__ __align__(1024) unsigned char smem[];
    unsigned box = (unsigned)__cvta_generic_to_shared(smem);
    for (unsigned i = threadIdx.x; i < room / 4; i += 128) ((unsigned *)smem)[i] = in[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile(COPY " [%1, " COORDS "], [%0];" ::"r"(box), "l"(&map), "r"(0), "r"(c0),
                     "r"(c1), "r"(c2), "r"(c3), "r"(c4)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
