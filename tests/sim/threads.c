/* threads.c - 16 threads on one context and 4 on another device's, in the simulator.
   SPDX-License-Identifier: BSD-3-Clause

   threads CALLS: each thread makes so many calls of problems that it shares with the others, and
   asks all other functions of warploom.h that may run beside them; each must give the bits that a
   thread alone got. Ends with `N passed, N failed`; ThreadSanitizer tells the rest. */
#include <pthread.h>
#include <stdatomic.h>

#include "harness.h"

enum { THREADS = 16, OTHERS = 4, ROWS = 70, PROBLEMS = 3 };

static const struct {
    int dim, heads;
    wl_mask mask;
} problems[PROBLEMS] = {{64, 1, WL_MASK_CAUSAL}, {64, 2, WL_MASK_CAUSAL}, {64, 1, WL_MASK_NONE}};

static const wl_driver *driver;
static atomic_int passed, failed;

static void expect(bool holds, const char *what) {
    atomic_fetch_add(holds ? &passed : &failed, 1);
    if (!holds) printf("%s: %s\n", what, wl_error());
}

typedef struct {
    wl_context *ctx;
    CUcontext cuda;
    int device;
} place;

static place open_place(int device) {
    place p = {.device = device};
    const wl_options options = {.size = sizeof options, .device = "sim"};
    expect(!driver->cuDevicePrimaryCtxRetain(&p.cuda, device), "retain");
    driver->cuCtxSetCurrent(p.cuda);
    need(wl_open(&p.ctx, &options), "wl_open");
    return p;
}

static void close_place(place *p) {
    wl_close(p->ctx);
    driver->cuCtxSetCurrent(NULL);
    driver->cuDevicePrimaryCtxRelease_v2(p->device);
}

/* The tensors of one problem, in the current context's memory. */
typedef struct {
    CUdeviceptr memory;
    size_t bytes; /* of a tensor */
    wl_forward_args args;
} call;

static call make_call(int problem) {
    int64_t d = problems[problem].dim, h = problems[problem].heads;
    call c = {.bytes = (size_t)(ROWS * h * d) * 2};
    uint16_t *host = wl_alloc(c.bytes);
    expect(!driver->cuMemAlloc_v2(&c.memory, 5 * c.bytes), "alloc");
    wl_tensor *tensors[] = {&c.args.q, &c.args.k, &c.args.v, &c.args.o};
    c.args.size = sizeof c.args;
    c.args.mask = problems[problem].mask;
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < c.bytes / 2; i++) /* about -1 to 1 */
            host[i] = (uint16_t)(0x3f00 + (i * 7919 + (size_t)t * 31) % 128 + ((i % 3) << 15));
        CUdeviceptr at = c.memory + (size_t)t * c.bytes;
        expect(!driver->cuMemcpyHtoD_v2(at, host, c.bytes), "copy");
        *tensors[t] = (wl_tensor){(void *)(uintptr_t)at, WL_BF16, {1, ROWS, h, d},
                                  {ROWS * h * d, h * d, d, 1}};
    }
    c.args.lse = (float *)(uintptr_t)(c.memory + 4 * c.bytes);
    free(host);
    return c;
}

/* O of a call, for the caller to free. */
static void *run_call(wl_context *ctx, const call *c) {
    void *out = wl_alloc(c->bytes);
    expect(!wl_forward(ctx, &c->args), "wl_forward");
    expect(!driver->cuMemcpyDtoH_v2(out, (CUdeviceptr)(uintptr_t)c->args.o.data, c->bytes),
           "copy back");
    return out;
}

static void *alone[PROBLEMS]; /* what a thread alone got */
static place places[2];
static int calls;

static void ask_the_rest(wl_context *ctx, const call *c) {
    char text[2000];
    size_t bytes;
    wl_context *own;
    const wl_options options = {.size = sizeof options, .device = "sim", .cache = "bad"};
    expect(!wl_prepare(ctx, &c->args), "wl_prepare");
    expect(!wl_scratch(ctx, &c->args, &bytes), "wl_scratch");
    expect(!wl_explain(ctx, &c->args, text, sizeof text), "wl_explain");
    expect(wl_open(&own, &options) == WL_EINVAL && strstr(wl_error(), "cache"), "a bad option");
    expect(!wl_variant_add(ctx, "extends: fwd\nname: shared\n"), "wl_variant_add");
    expect(wl_variant_add(ctx, "name: x") == WL_ESPEC && strstr(wl_error(), "yaml:1:1:"),
           "a bad variant");
    expect(*wl_version() && *wl_status_text(WL_EINVAL), "constants");
    wl_forward_args bad = c->args;
    bad.size = 1;
    expect(wl_forward(ctx, &bad) == WL_EINVAL && strstr(wl_error(), "size"), "a bad call");
}

static void *work(void *number) {
    int me = (int)(intptr_t)number;
    place *p = &places[me >= THREADS];
    call made[PROBLEMS];
    driver->cuCtxSetCurrent(p->cuda);
    for (int i = 0; i < PROBLEMS; i++) made[i] = make_call(i);
    if (me % 2) driver->cuCtxSetCurrent(places[me < THREADS].cuda); /* not its own: no matter */
    for (int i = 0; i < calls; i++) {
        int problem = (me + i) % PROBLEMS;
        expect(!wl_forward(p->ctx, &made[problem].args), "wl_forward");
        ask_the_rest(p->ctx, &made[problem]);
    }
    driver->cuCtxSetCurrent(p->cuda);
    for (int i = 0; i < PROBLEMS; i++) {
        void *got = run_call(p->ctx, &made[i]);
        expect(!memcmp(got, alone[i], made[i].bytes), "other bits than alone");
        free(got);
        driver->cuMemFree_v2(made[i].memory);
    }
    driver->cuCtxSetCurrent(NULL);
    return NULL;
}

/* Memory of the other device is refused by name. */
static void check_other_device(void) {
    driver->cuCtxSetCurrent(places[1].cuda);
    call c = make_call(0);
    expect(wl_forward(places[0].ctx, &c.args) == WL_EINVAL, "memory of another device");
    CUcontext now = NULL;
    driver->cuCtxGetCurrent(&now);
    expect(now == places[1].cuda, "the caller's context is restored");
    driver->cuMemFree_v2(c.memory);
}

int main(int argc, char **argv) {
    pthread_t threads[THREADS + OTHERS];
    calls = argc > 1 ? atoi(argv[1]) : 2;
    setenv("WARPLOOM_SIM_DEVICES", "2", 1);
    setenv("WARPLOOM_SIM_THREADS", "1", 0);
    need(wl_driver_get("sim", &driver), "simulator");
    for (int d = 0; d < 2; d++) places[d] = open_place(d);
    check_other_device();
    place lone = open_place(0); /* whose kernels nobody else has */
    for (int i = 0; i < PROBLEMS; i++) {
        call c = make_call(i);
        alone[i] = run_call(lone.ctx, &c);
        driver->cuMemFree_v2(c.memory);
    }
    for (intptr_t i = 0; i < THREADS + OTHERS; i++)
        expect(!pthread_create(&threads[i], NULL, work, (void *)i), "a thread");
    for (int i = 0; i < THREADS + OTHERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < PROBLEMS; i++) free(alone[i]);
    close_place(&lone);
    for (int d = 0; d < 2; d++) close_place(&places[d]);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
