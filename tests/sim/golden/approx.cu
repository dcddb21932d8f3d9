// approx.cu - the approximate functions. CALLS: of CALL, for each (golden_cases.py).
// SPDX-License-Identifier: BSD-3-Clause
#define CALL(name) asm(name " %0, %1;" : "=f"(y) : "f"(x)); *out = y, out += n;

extern "C" __global__ void kernel(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i], y;
    out += i;
    CALLS
}
