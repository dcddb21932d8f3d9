// cvt.cu - conversions to and from the small formats.
// SPDX-License-Identifier: BSD-3-Clause
#define PAIR(type) asm("cvt.rn." type ".f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(y)); *out++ = r;
#define BYTES(type)                                                                                \
    asm("cvt.rn.satfinite." type ".f32 %0, %1, %2;" : "=h"(h) : "f"(x), "f"(y));                   \
    *out++ = h;                                                                                    \
    asm("cvt.rn.f16x2." type " %0, %1;" : "=r"(r) : "h"((unsigned short)bits));                    \
    *out++ = r;                                                                                    \
    asm("cvt.rn.satfinite." type ".f16x2 %0, %1;" : "=h"(h) : "r"(bits));                          \
    *out++ = h;

extern "C" __global__ void kernel(const float *in, unsigned *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[2 * i], y = in[2 * i + 1], z;
    unsigned bits = __float_as_uint(x) >> 16 | __float_as_uint(y) << 16, r;
    unsigned short h;
    out += 10 * i;
    PAIR("bf16x2")
    PAIR("f16x2")
    BYTES("e4m3x2")
    BYTES("e5m2x2")
    asm("cvt.f32.f16 %0, %1;" : "=f"(z) : "h"((unsigned short)bits));
    *out++ = __float_as_uint(z);
    asm("cvt.f32.bf16 %0, %1;" : "=f"(z) : "h"((unsigned short)bits));
    *out++ = __float_as_uint(z);
}
