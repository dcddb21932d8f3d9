// matrix.cu - ldmatrix and stmatrix of one, two and four matrices, plain and transposed.
// SPDX-License-Identifier: BSD-3-Clause
#define LOAD(x, list, trans, ...)                                                                  \
    asm volatile("ldmatrix.sync.aligned.m8n8" x trans ".shared.b16 " list ", [%4];"               \
                 : "+r"(r[0]), "+r"(r[1]), "+r"(r[2]), "+r"(r[3]) : "r"(from) : "memory");         \
    for (int i = 0; i < 4; i++) *out++ = r[i], out += 31;
#define STORE(x, list, trans)                                                                      \
    asm volatile("stmatrix.sync.aligned.m8n8" x trans ".shared.b16 [%0], " list ";" ::"r"(to),     \
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3]) : "memory");                           \
    __syncwarp();                                                                                  \
    for (int i = 0; i < 8; i++) *out++ = smem[256 + i * 32 + lane], out += 31;                     \
    __syncwarp();

extern "C" __global__ void __launch_bounds__(32) kernel(const unsigned *in, unsigned *out) {
    __shared__ __align__(128) unsigned smem[512]; // 32 rows of 16 bytes to load, as much to store
    int lane = threadIdx.x;
    for (int i = lane; i < 512; i += 32) smem[i] = in[i];
    __syncwarp();
    out += lane;
    unsigned from = (unsigned)__cvta_generic_to_shared(smem) + (lane * 13 + 5) % 32 * 16;
    unsigned to = (unsigned)__cvta_generic_to_shared(smem) + 1024 + (lane * 7 + 3) % 32 * 16;
    unsigned r[4] = {1, 2, 3, 4};
    LOAD(".x1", "{%0}", "")
    LOAD(".x2", "{%0, %1}", "")
    LOAD(".x4", "{%0, %1, %2, %3}", "")
    STORE(".x1", "{%1}", "")
    STORE(".x2", "{%1, %2}", ".trans")
    STORE(".x4", "{%1, %2, %3, %4}", "")
    LOAD(".x1", "{%3}", ".trans")
    LOAD(".x2", "{%2, %1}", ".trans")
    LOAD(".x4", "{%0, %1, %2, %3}", ".trans")
    STORE(".x1", "{%4}", ".trans")
    STORE(".x2", "{%3, %1}", "")
    STORE(".x4", "{%1, %2, %3, %4}", ".trans")
}
