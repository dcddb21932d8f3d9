/* forward.c - one attention forward in C: memory by the CUDA driver API, a few rows checked.
   SPDX-License-Identifier: BSD-3-Clause

   cc -std=c17 -Iruntime -I$CUDA_HOME/include examples/forward.c -o build/forward \
      -Lbuild -Wl,-rpath,$PWD/build -lwarploom -lcuda -lm                                     */
#include <cuda.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "warploom.h"

enum { BATCH = 2, SEQ_Q = 1000, SEQ_K = 1200, HEADS = 8, KV_HEADS = 2, DIM = 128 };

static void check(CUresult result, const char *what) {
    if (!result) return;
    const char *name = "unknown error";
    cuGetErrorName(result, &name);
    fprintf(stderr, "%s: %s\n", what, name);
    exit(1);
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest, ties to even */
}

static float from_bf16(uint16_t x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

/* A tensor on the host and on the device: [BATCH][rows][heads][DIM], contiguous. */
typedef struct {
    int rows, heads;
    size_t count;
    uint16_t *host;
    CUdeviceptr device;
} tensor;

static tensor make(int rows, int heads, unsigned seed) {
    tensor t = {rows, heads, (size_t)BATCH * rows * heads * DIM, NULL, 0};
    t.host = malloc(t.count * 2);
    for (size_t i = 0; i < t.count; i++) {
        seed = seed * 1664525u + 1013904223u;
        t.host[i] = to_bf16((float)(seed >> 8) / (1 << 23) - 1); /* -1 to 1 */
    }
    check(cuMemAlloc(&t.device, t.count * 2), "cuMemAlloc");
    check(cuMemcpyHtoD(t.device, t.host, t.count * 2), "cuMemcpyHtoD");
    return t;
}

static wl_tensor view(const tensor *t) {
    int64_t row = (int64_t)t->heads * DIM;
    return (wl_tensor){.data = (void *)(uintptr_t)t->device,
                       .dtype = WL_BF16,
                       .shape = {BATCH, t->rows, t->heads, DIM},
                       .stride = {t->rows * row, row, DIM, 1}};
}

static double at(const tensor *t, int b, int row, int head, int d) {
    return from_bf16(t->host[(((size_t)b * t->rows + row) * t->heads + head) * DIM + d]);
}

/* The largest error of one output row, against attention in double; causal, bottom-right. */
static double row_error(const tensor *q, const tensor *k, const tensor *v, const tensor *o,
                        float lse, int b, int row, int head) {
    int kv = head / (HEADS / KV_HEADS), keys = row + 1 + SEQ_K - SEQ_Q;
    double *p = malloc((size_t)keys * sizeof *p), top = -INFINITY, sum = 0, worst = 0;
    for (int j = 0; j < keys; j++) {
        p[j] = 0;
        for (int d = 0; d < DIM; d++) p[j] += at(q, b, row, head, d) * at(k, b, j, kv, d);
        p[j] /= sqrt(DIM);
        if (p[j] > top) top = p[j];
    }
    for (int j = 0; j < keys; j++) sum += p[j] = exp(p[j] - top);
    for (int d = 0; d < DIM; d++) {
        double want = 0;
        for (int j = 0; j < keys; j++) want += p[j] / sum * at(v, b, j, kv, d);
        worst = fmax(worst, fabs(want - at(o, b, row, head, d)));
    }
    free(p);
    return fmax(worst, fabs(top + log(sum) - lse));
}

static int run(wl_context *ctx) {
    tensor q = make(SEQ_Q, HEADS, 1), k = make(SEQ_K, KV_HEADS, 2), v = make(SEQ_K, KV_HEADS, 3);
    tensor o = make(SEQ_Q, HEADS, 4);
    size_t lse_bytes = (size_t)BATCH * HEADS * SEQ_Q * sizeof(float);
    float *lse = malloc(lse_bytes);
    CUdeviceptr lse_device;
    double worst = 0;
    check(cuMemAlloc(&lse_device, lse_bytes), "cuMemAlloc");

    wl_forward_args args = {.size = sizeof args,
                            .q = view(&q),
                            .k = view(&k),
                            .v = view(&v),
                            .o = view(&o),
                            .lse = (float *)(uintptr_t)lse_device,
                            .mask = WL_MASK_CAUSAL};
    char text[4096];
    if (wl_forward(ctx, &args) || wl_explain(ctx, &args, text, sizeof text)) {
        fprintf(stderr, "%s\n", wl_error());
        return 1;
    }
    printf("%s", text);
    check(cuMemcpyDtoH(o.host, o.device, o.count * 2), "cuMemcpyDtoH");
    check(cuMemcpyDtoH(lse, lse_device, lse_bytes), "cuMemcpyDtoH");
    for (int row = 0; row < SEQ_Q; row += 111)
        for (int head = 0; head < HEADS; head += 3) {
            float row_lse = lse[((size_t)1 * HEADS + head) * SEQ_Q + row];
            worst = fmax(worst, row_error(&q, &k, &v, &o, row_lse, 1, row, head));
        }
    printf("largest error of the rows looked at: %.2e\n", worst);
    return worst < 1e-2 ? 0 : 6;
}

int main(void) {
    CUdevice device;
    CUcontext cuda;
    wl_context *ctx;
    check(cuInit(0), "cuInit");
    check(cuDeviceGet(&device, 0), "cuDeviceGet");
    check(cuDevicePrimaryCtxRetain(&cuda, device), "cuDevicePrimaryCtxRetain");
    check(cuCtxSetCurrent(cuda), "cuCtxSetCurrent");
    wl_status status = wl_open(&ctx, NULL);
    if (status) {
        fprintf(stderr, "%s\n", wl_error());
        return status;
    }
    int result = run(ctx);
    wl_close(ctx);
    return result;
}
