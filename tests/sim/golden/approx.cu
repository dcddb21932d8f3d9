// approx.cu - the approximate functions.
// SPDX-License-Identifier: BSD-3-Clause
#define CALL(name) asm(name " %0, %1;" : "=f"(y) : "f"(x)); *out = y, out += n;

extern "C" __global__ void kernel(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i], y;
    out += i;
    CALL("ex2.approx.ftz.f32")
    CALL("ex2.approx.f32")
    CALL("lg2.approx.ftz.f32")
    CALL("lg2.approx.f32")
    CALL("rcp.approx.ftz.f32")
    CALL("rcp.approx.f32")
    CALL("rsqrt.approx.ftz.f32")
    CALL("tanh.approx.f32")
}
