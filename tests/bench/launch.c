/* launch.c - CPU time of one wl_forward, at a tiny shape: loops of 100 launches, drained between.
   SPDX-License-Identifier: BSD-3-Clause

   Prints one number, the median in nanoseconds over 10,000 launches. libcuda is opened as the
   library opens it, so that WARPLOOM_LIBCUDA can name another. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "driver.h"

enum { LOOPS = 100, CALLS = 100, ROWS = 64, DIM = 64, BYTES = ROWS * DIM * 2 };

static double now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static wl_tensor view(CUdeviceptr memory) {
    return (wl_tensor){.data = (void *)(uintptr_t)memory,
                       .dtype = WL_BF16,
                       .shape = {1, ROWS, 1, DIM},
                       .stride = {ROWS * DIM, DIM, DIM, 1}};
}

static wl_status measure(const wl_driver *cuda, wl_context *ctx, double *median) {
    CUdeviceptr memory;
    double ns[LOOPS];
    if (cuda->cuMemAlloc_v2(&memory, 5 * BYTES) || cuda->cuMemsetD8_v2(memory, 0, 5 * BYTES))
        return WL_EDEVICE;
    wl_forward_args args = {.size = sizeof args,
                            .q = view(memory),
                            .k = view(memory + BYTES),
                            .v = view(memory + 2 * BYTES),
                            .o = view(memory + 3 * BYTES),
                            .lse = (float *)(uintptr_t)(memory + 4 * BYTES)};
    wl_status status = wl_forward(ctx, &args);
    for (int loop = -5; loop < LOOPS && !status; loop++) { /* five to warm up */
        cuda->cuCtxSynchronize();
        double start = now_ns();
        for (int i = 0; i < CALLS && !status; i++) status = wl_forward(ctx, &args);
        if (loop >= 0) ns[loop] = (now_ns() - start) / CALLS;
    }
    cuda->cuCtxSynchronize();
    cuda->cuMemFree_v2(memory);
    qsort(ns, LOOPS, sizeof *ns, by_size);
    *median = ns[LOOPS / 2];
    return status;
}

int main(void) {
    const wl_driver *cuda;
    CUcontext context;
    wl_context *ctx = NULL;
    double median = 0;
    wl_status status = wl_driver_get(NULL, &cuda);
    if (!status && cuda->cuDevicePrimaryCtxRetain(&context, 0)) status = WL_EDEVICE;
    if (!status && cuda->cuCtxSetCurrent(context)) status = WL_EDEVICE;
    if (!status) status = wl_open(&ctx, NULL);
    if (!status) status = measure(cuda, ctx, &median);
    if (status)
        fprintf(stderr, "launch: %s: %s\n", wl_status_text(status), wl_error());
    else
        printf("%.0f\n", median);
    wl_close(ctx);
    return status;
}
