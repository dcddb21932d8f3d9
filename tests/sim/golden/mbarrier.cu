// mbarrier.cu - phases of an mbarrier, tested after each step by one thread.
// SPDX-License-Identifier: BSD-3-Clause
typedef unsigned long long u64;

__device__ void test(unsigned bar, unsigned *&out) {
    for (unsigned parity = 0, done; parity < 2; parity++) {
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
                     " selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"(bar), "r"(parity) : "memory");
        *out++ = done;
    }
}
#define STEP(text, ...) asm volatile(text ::"r"(bar), ##__VA_ARGS__ : "memory"); test(bar, out);
#define ARRIVE(text)                                                                               \
    asm volatile(text : "=l"(state) : "r"(bar) : "memory");                                        \
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(*out) : "l"(state));                  \
    out++;                                                                                         \
    test(bar, out);

extern "C" __global__ void __launch_bounds__(32) kernel(unsigned *out) {
    __shared__ u64 word;
    unsigned bar = (unsigned)__cvta_generic_to_shared(&word);
    u64 state;
    if (threadIdx.x) return;
    STEP("mbarrier.init.shared::cta.b64 [%0], 3;")
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1];")
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1], 2;") // ends phase 0
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1], 3;") // ends phase 1
    STEP("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 96;")
    STEP("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;")
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1], 3;") // bytes are missing
    STEP("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 64;") // ends phase 2
    ARRIVE("mbarrier.arrive.expect_tx.shared::cta.b64 %0, [%1], 16;")
    STEP("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 16;") // arrivals are missing
    ARRIVE("mbarrier.arrive_drop.shared::cta.b64 %0, [%1];")
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1];") // ends phase 3; the next expect 2
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1], 2;") // ends phase 4
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
    STEP("mbarrier.init.shared::cta.b64 [%0], 1;")
    ARRIVE("mbarrier.arrive.shared::cta.b64 %0, [%1];")
}
