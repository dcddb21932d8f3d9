/* offline.c - a forward on a machine with nothing but a bundle: is it right, and what was loaded?
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "warploom.h"

enum { ROWS = 64, DIM = 64, COUNT = ROWS * DIM };

static void *cuda;
static _Float16 host[4][COUNT]; /* q, k, v, o */
static unsigned long long device[4];

static void need(int result, const char *what) {
    if (!result) return;
    printf("%s: %d: %s\n", what, result, wl_error());
    exit(1);
}

#define CU(name, types, ...) need(((int (*) types)dlsym(cuda, #name))(__VA_ARGS__), #name)

static void open_device(void) {
    int id;
    void *context;
    cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cuda) need(1, dlerror());
    CU(cuInit, (unsigned), 0);
    CU(cuDeviceGet, (int *, int), &id, 0);
    CU(cuDevicePrimaryCtxRetain, (void **, int), &context, id);
    CU(cuCtxSetCurrent, (void *), context);
    for (int t = 0; t < 4; t++) {
        CU(cuMemAlloc_v2, (unsigned long long *, size_t), &device[t], sizeof host[t]);
        CU(cuMemcpyHtoD_v2, (unsigned long long, const void *, size_t), device[t], host[t],
           sizeof host[t]);
    }
}

static wl_tensor view(int t) {
    return (wl_tensor){(void *)(uintptr_t)device[t], WL_FP16, {1, ROWS, 1, DIM},
                       {COUNT, DIM, DIM, 1}};
}

/* The largest difference from attention in double. */
static double difference(void) {
    double worst = 0;
    for (int i = 0; i < ROWS; i++) {
        double p[ROWS], sum = 0;
        for (int j = 0; j < ROWS; j++) {
            double s = 0;
            for (int d = 0; d < DIM; d++)
                s += (double)host[0][i * DIM + d] * (double)host[1][j * DIM + d];
            sum += p[j] = exp(s / sqrt(DIM));
        }
        for (int d = 0; d < DIM; d++) {
            double o = 0;
            for (int j = 0; j < ROWS; j++) o += p[j] * (double)host[2][j * DIM + d] / sum;
            worst = fmax(worst, fabs(o - (double)host[3][i * DIM + d]));
        }
    }
    return worst;
}

static int tell(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size, (void)user;
    if (*info->dlpi_name) printf("loaded %s\n", info->dlpi_name);
    return 0;
}

int main(void) {
    unsigned seed = 1;
    wl_context *ctx;
    int fd = open("/probe", O_WRONLY | O_CREAT, 0600);
    if (fd >= 0) puts("the root can be written"), close(fd), unlink("/probe");
    for (int i = 0; i < 4 * COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        host[i / COUNT][i % COUNT] = (_Float16)((double)(seed >> 8) / (1 << 23) - 1);
    }
    open_device();
    need((int)wl_open(&ctx, NULL), "wl_open");
    const wl_forward_args args = {.size = sizeof args, .q = view(0), .k = view(1), .v = view(2),
                                  .o = view(3)};
    need((int)wl_forward(ctx, &args), "wl_forward");
    CU(cuCtxSynchronize, (void));
    CU(cuMemcpyDtoH_v2, (void *, unsigned long long, size_t), host[3], device[3], sizeof host[3]);
    wl_close(ctx);
    dl_iterate_phdr(tell, NULL);
    double worst = difference();
    printf("%s: %.2g off\n", worst < 2e-3 ? "right" : "wrong", worst);
    return worst >= 2e-3;
}
