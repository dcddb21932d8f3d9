// mma.cu - mma.sync of every shape and type that is known.
// SPDX-License-Identifier: BSD-3-Clause
#define F32 "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
#define MMA(form, a, b)                                                                            \
    asm("mma.sync.aligned." form " {%0, %1, %2, %3}, " a ", " b ", {%0, %1, %2, %3};"              \
        : F32 : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(v.x), "r"(v.y));                       \
    for (int i = 0; i < 4; i++) *out = d[i], out += 32, d[i] = (float)((int)threadIdx.x + i - 9);

// in: for 16-bit and 8-bit types 32 times A's registers, then 32 times B's
extern "C" __global__ void __launch_bounds__(32) kernel(const uint4 *in, float *out) {
    float d[4] = {1, 2, 3, 4};
    uint4 w = in[threadIdx.x], v = in[32 + threadIdx.x];
    unsigned h[2] = {0x3c004000, 0xbc003800}; // 2, 1, 0.5, -1
    out += threadIdx.x;
    MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "{%4, %5, %6, %7}", "{%8, %9}")
    MMA("m16n8k8.row.col.f32.bf16.bf16.f32", "{%4, %5}", "{%8}")
    w = in[64 + threadIdx.x], v = in[96 + threadIdx.x];
    MMA("m16n8k16.row.col.f32.f16.f16.f32", "{%4, %5, %6, %7}", "{%8, %9}")
    MMA("m16n8k8.row.col.f32.f16.f16.f32", "{%4, %5}", "{%8}")
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16"
        " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(h[0]), "+r"(h[1]) : "r"(w.x), "r"(w.y), "r"(w.z), "r"(w.w), "r"(v.x), "r"(v.y));
    for (int i = 0; i < 2; i++) *out = __uint_as_float(h[i]), out += 32;
    w = in[128 + threadIdx.x], v = in[160 + threadIdx.x];
    MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32", "{%4, %5, %6, %7}", "{%8, %9}")
    MMA("m16n8k32.row.col.f32.e5m2.e4m3.f32", "{%4, %5, %6, %7}", "{%8, %9}")
}
