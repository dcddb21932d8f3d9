// bulk.cu - bytes from global to shared memory and back, or added to what is there.
// SPDX-License-Identifier: BSD-3-Clause
// BACK: the way back up to its operands (golden.py).
extern "C" __global__ void __launch_bounds__(128)
    kernel(const unsigned *in, unsigned *out, unsigned offset, unsigned bytes) {
    extern __shared__ __align__(128) unsigned char smem[]; // the barrier, at 128 the bytes
    unsigned bar = (unsigned)__cvta_generic_to_shared(smem), done = 0, box = bar + 128 + offset;
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(bar) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1],"
                     " %2, [%3];" ::"r"(box), "l"((const char *)in + offset), "r"(bytes), "r"(bar)
                     : "memory");
        for (int i = 0; i < 2000 && !done; i++)
            asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;"
                         " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar) : "memory");
        asm volatile(BACK " [%0], [%1], %2;" ::"l"((char *)out + offset), "r"(box), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}
