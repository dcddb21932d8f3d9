// cvt_more.cu - conversions between floats and integers, and roundings of the small formats.
// SPDX-License-Identifier: BSD-3-Clause
#define TO_32(name) asm("cvt." name ".f32 %0, %1;" : "=r"(r) : "f"(x)); *out++ = r;
#define TO_16(name) asm("cvt." name ".f32 %0, %1;" : "=h"(h) : "f"(x)); *out++ = h;
#define PAIR(name) asm("cvt." name ".f32 %0, %1, %2;" : "=r"(r) : "f"(x), "f"(y)); *out++ = r;
#define BYTES(name) asm("cvt." name ".f32 %0, %1, %2;" : "=h"(h) : "f"(x), "f"(y)); *out++ = h;
#define FROM_32(name)                                                                              \
    asm("cvt." name " %0, %1;" : "=f"(z) : "r"(bits));                                             \
    *out++ = __float_as_uint(z);

extern "C" __global__ void kernel(const float *in, unsigned *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[2 * i], y = in[2 * i + 1], z;
    unsigned bits = __float_as_uint(x) * 2654435761u, r;
    unsigned short h;
    long long l;
    out += 40 * i;
    TO_32("rni.s32") TO_32("rzi.s32") TO_32("rmi.s32") TO_32("rpi.s32")
    TO_32("rni.u32") TO_32("rzi.ftz.u32") TO_32("rmi.u32") TO_32("rpi.ftz.u32")
    asm("cvt.rzi.s64.f32 %0, %1;" : "=l"(l) : "f"(x));
    *out++ = (unsigned)l, *out++ = (unsigned)(l >> 32);
    asm("cvt.rni.u64.f32 %0, %1;" : "=l"(l) : "f"(x));
    *out++ = (unsigned)l, *out++ = (unsigned)(l >> 32);
    TO_32("rni.f32") TO_32("rzi.f32") TO_32("rmi.ftz.f32") TO_32("rpi.f32") TO_32("sat.f32")
    TO_16("rn.f16") TO_16("rz.f16") TO_16("rn.relu.f16") TO_16("rn.bf16") TO_16("rz.bf16")
    TO_16("rn.relu.bf16")
    PAIR("rn.relu.f16x2") PAIR("rz.f16x2") PAIR("rz.bf16x2") PAIR("rz.relu.bf16x2")
    BYTES("rn.satfinite.relu.e4m3x2") BYTES("rn.satfinite.relu.e5m2x2")
    FROM_32("rn.f32.s32") FROM_32("rz.f32.s32") FROM_32("rm.f32.u32") FROM_32("rp.f32.u32")
    asm("cvt.rn.f32.s64 %0, %1;" : "=f"(z) : "l"((long long)bits << 20 ^ (long long)bits << 31));
    *out++ = __float_as_uint(z);
    asm("cvt.rn.f32.u64 %0, %1;" : "=f"(z) : "l"((long long)bits << 32 | bits));
    *out++ = __float_as_uint(z);
    asm("cvt.rn.f32.s16 %0, %1;" : "=f"(z) : "h"((unsigned short)bits));
    *out++ = __float_as_uint(z);
    asm("cvt.rn.relu.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"((unsigned short)bits));
    *out++ = r;
    asm("cvt.rn.relu.f16x2.e5m2x2 %0, %1;" : "=r"(r) : "h"((unsigned short)bits));
    *out++ = r;
}
