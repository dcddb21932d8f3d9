/* launch.c - CPU time of one wl_forward, at a tiny shape: loops of 100 launches, drained between.
   SPDX-License-Identifier: BSD-3-Clause

   Prints two numbers, medians in nanoseconds over 10,000 launches each: of the same call again, and
   of a call of the same shapes whose queries lie elsewhere each time. For half a second nothing
   counts: CPU, link and GPU wake up. libcuda is opened as the library opens it, so that
   WARPLOOM_LIBCUDA can name another. */
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

enum { LOOPS = 100, CALLS = 100, ROWS = 64, DIM = 64, BYTES = ROWS * DIM * 2, PLACES = 1000 };
#define WAKE 0.5 /* seconds */

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

static wl_forward_args call_at(CUdeviceptr memory) {
    return (wl_forward_args){.size = sizeof(wl_forward_args),
                             .q = view(memory),
                             .k = view(memory + BYTES),
                             .v = view(memory + 2 * BYTES),
                             .o = view(memory + 3 * BYTES),
                             .lse = (float *)(uintptr_t)(memory + 4 * BYTES)};
}

/* Queries at so many places in turn, behind the other tensors. */
static wl_status time_calls(const wl_driver *cuda, wl_context *ctx, CUdeviceptr memory, int places,
                            double *median) {
    double ns[LOOPS], wake = wl_now() + WAKE;
    wl_forward_args args = call_at(memory);
    wl_status status = WL_OK;
    int at = 0;
    for (int loop = 0; loop < LOOPS && !status;) {
        cuda->cuCtxSynchronize();
        double start = wl_now();
        for (int i = 0; i < CALLS && !status; i++) {
            if (places) args.q = view(memory + (5 + (CUdeviceptr)(at++ % places)) * BYTES);
            status = wl_forward(ctx, &args);
        }
        ns[loop] = 1e9 * (wl_now() - start) / CALLS;
        loop += start > wake;
    }
    cuda->cuCtxSynchronize();
    qsort(ns, LOOPS, sizeof *ns, by_size);
    *median = ns[LOOPS / 2];
    return status;
}

static wl_status measure(const wl_driver *cuda, wl_context *ctx, double median[2]) {
    CUdeviceptr memory;
    size_t bytes = (5 + PLACES) * BYTES;
    if (cuda->cuMemAlloc_v2(&memory, bytes) || cuda->cuMemsetD8_v2(memory, 0, bytes))
        return WL_EDEVICE;
    wl_status status = time_calls(cuda, ctx, memory, 0, &median[0]);
    if (!status) status = time_calls(cuda, ctx, memory, PLACES, &median[1]);
    cuda->cuMemFree_v2(memory);
    return status;
}

int main(void) {
    const wl_driver *cuda;
    CUcontext context;
    wl_context *ctx = NULL;
    double median[2] = {0};
    wl_status status = wl_driver_get(NULL, &cuda);
    if (!status && cuda->cuDevicePrimaryCtxRetain(&context, 0)) status = WL_EDEVICE;
    if (!status && cuda->cuCtxSetCurrent(context)) status = WL_EDEVICE;
    if (!status) status = wl_open(&ctx, NULL);
    if (!status) status = measure(cuda, ctx, median);
    if (status)
        fprintf(stderr, "launch: %s: %s\n", wl_status_text(status), wl_error());
    else
        printf("%.0f %.0f\n", median[0], median[1]);
    wl_close(ctx);
    return status;
}
