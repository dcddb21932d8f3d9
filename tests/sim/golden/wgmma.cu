// wgmma.cu - one wgmma on an image of shared memory: which bytes are which elements of A and B.
// SPDX-License-Identifier: BSD-3-Clause
// D: type of an accumulator's register, R of which a thread has; START(i): its first value;
// MMA: the instruction; OUTS, INS: its operands (golden.py).
typedef unsigned long long u64;

extern "C" __global__ void __launch_bounds__(128)
    kernel(const uint4 *in, const uint4 *a_registers, D *out, u64 da, u64 db, int add) {
    extern __shared__ __align__(1024) unsigned char smem[];
    for (int i = threadIdx.x; i < 4096; i += 128) ((uint4 *)smem)[i] = in[i];
    uint4 a = a_registers[threadIdx.x];
    D d[R];
#pragma unroll
    for (int i = 0; i < R; i++) d[i] = START(threadIdx.x * 3 + i * 5);
    unsigned base = (unsigned)__cvta_generic_to_shared(smem);
    da += base >> 4;
    db += base >> 4;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile(MMA : OUTS : INS : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
    for (int i = 0; i < R; i++) {
        asm volatile("" : "+" CONSTRAINT(d[i])::"memory");
        out[i * 128 + threadIdx.x] = d[i];
    }
}
