/* cli_timer.c - events, a buffer that flushes L2, NVML's clock.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cli_timer.h"

#include <dlfcn.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 1e-3      /* seconds that a batch of launches takes at least */
#define BRIEF 0.25e-3
#define MOST 200        /* launches of a batch: fewer in all than the driver queues */
#define BATCHES 3       /* of a timing; their median counts */
#define COLD 5          /* launches with a cold L2 cache, fewer of long ones; their median counts */
#define HEAT 0.3        /* seconds of launches after which power has settled the clock … */
#define COOL 0.05       /* … for as long as the GPU does not rest longer */
#define LAUNCH 5e-6     /* CPU seconds of a launch, at most */
#define FLUSH_RATE 4e12 /* bytes a second of a memset, at most */

/* What is asked of the driver only here. */
#define EVENTS(X)                                                                                  \
    X(cuEventCreate, (void **event, unsigned flags))                                               \
    X(cuEventRecord, (void *event, void *stream))                                                  \
    X(cuEventSynchronize, (void *event))                                                           \
    X(cuEventElapsedTime, (float *ms, void *from, void *to))

struct cli_timer {
    const wl_driver *driver;
#define X(name, parameters) CUresult(*name) parameters;
    EVENTS(X)
#undef X
    void *event[2 * COLD]; /* of a run BATCHES + 1 */
    CUdeviceptr flush;
    size_t flush_bytes;
    double last; /* when the last timing ended that was not brief */
    void *nvml_device;
    int (*clock)(void *device, int type, unsigned *mhz);
};

static wl_status done(const cli_timer *t, const char *call, CUresult result) {
    return result ? wl_driver_fail(t->driver, result, call) : WL_OK;
}

/* Without NVML clocks are not known. It is never closed: the process ends first. */
static void open_clock(cli_timer *t, CUdevice device) {
    char id[32] = "";
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    CUresult (*id_of)(char *, int, CUdevice) =
        (CUresult(*)(char *, int, CUdevice))dlsym(t->driver->library, "cuDeviceGetPCIBusId");
    int (*find)(const char *, void **) =
        (int (*)(const char *, void **))dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    t->clock = (int (*)(void *, int, unsigned *))dlsym(library, "nvmlDeviceGetClockInfo");
    if (!init || !find || !id_of || init() || id_of(id, sizeof id, device) ||
        find(id, &t->nvml_device))
        t->clock = NULL;
}

static double clock_of(const cli_timer *t) {
    unsigned mhz = 0;
    return t->clock && !t->clock(t->nvml_device, 1 /* NVML_CLOCK_SM */, &mhz) ? mhz : 0;
}

wl_status cli_timer_open(cli_timer **out, const cli_job *job) {
    const wl_device *device = wl_context_device(job->ctx);
    cli_timer *t = wl_alloc(sizeof *t);
    const char *lacking = job->driver->simulator ? "GPU" : NULL;
    *out = t;
    t->driver = job->driver;
#define X(name, parameters)                                                                        \
    if (!(t->name = (CUresult(*) parameters)dlsym(t->driver->library, #name))) lacking = #name;
    EVENTS(X)
#undef X
    if (lacking) return fail(WL_EINVAL, "this driver has no %s: nothing can be timed", lacking);
    t->flush_bytes = 2 * (size_t)device->l2_bytes;
    wl_status status =
        done(t, "cuMemAlloc", t->driver->cuMemAlloc_v2(&t->flush, t->flush_bytes));
    for (int i = 0; i < 2 * COLD && !status; i++)
        status = done(t, "cuEventCreate", t->cuEventCreate(&t->event[i], 0));
    open_clock(t, device->id);
    return status;
}

static wl_status flush(const cli_timer *t, int times) {
    wl_status status = WL_OK;
    for (int i = 0; i < times && !status; i++)
        status = done(t, "cuMemsetD8",
                      t->driver->cuMemsetD8_v2(t->flush, (unsigned char)i, t->flush_bytes));
    return status;
}

static wl_status launch(const cli_job *job, int n) {
    wl_status status = WL_OK;
    for (int i = 0; i < n && !status; i++) status = wl_forward(job->ctx, &job->forward);
    return status;
}

static wl_status mark(const cli_timer *t, int i) {
    return done(t, "cuEventRecord", t->cuEventRecord(t->event[i], NULL));
}

/* Seconds between event i and the next. */
static wl_status seconds_behind(const cli_timer *t, int i, double *out) {
    float ms = 0;
    wl_status status = done(t, "cuEventSynchronize", t->cuEventSynchronize(t->event[i + 1]));
    if (!status)
        status = done(t, "cuEventElapsedTime",
                      t->cuEventElapsedTime(&ms, t->event[i], t->event[i + 1]));
    *out = 1e-3 * (double)ms;
    return status;
}

/* Seconds of a launch in each of so many batches of n, one behind the other. Before them the GPU is
   kept busy for as long as the CPU takes to queue them, and one more launch warms L2. */
static wl_status run(const cli_timer *t, const cli_job *job, int n, int batches, double *out,
                     double *clock) {
    double ahead = LAUNCH * (n * batches + 1) * FLUSH_RATE / (double)t->flush_bytes;
    wl_status status = flush(t, 1 + (int)ahead);
    if (!status) status = launch(job, 1);
    if (!status) status = mark(t, 0);
    for (int i = 0; i < batches && !status; i++) {
        status = launch(job, n);
        if (!status) status = mark(t, i + 1);
    }
    *clock = clock_of(t);
    for (int i = 0; i < batches && !status; i++) {
        status = seconds_behind(t, i, &out[i]);
        out[i] /= n;
    }
    return status;
}

/* Queued at once: each flush covers the CPU time of the launch behind it. */
static wl_status cold(const cli_timer *t, const cli_job *job, int n, double *out) {
    double seconds[COLD];
    wl_status status = WL_OK;
    for (int i = 0; i < n && !status; i++) {
        status = flush(t, 2);
        if (!status) status = mark(t, 2 * i);
        if (!status) status = launch(job, 1);
        if (!status) status = mark(t, 2 * i + 1);
    }
    for (int i = 0; i < n && !status; i++) status = seconds_behind(t, 2 * i, &seconds[i]);
    if (status) return status;
    *out = 1e6 * wl_median(seconds, n);
    return WL_OK;
}

void cli_timer_close(cli_timer *t) {
    free(t);
}

/* Whoever is timed first, and after a rest, has a cool GPU of a higher clock: nobody shall. */
static wl_status heat(cli_timer *t, const cli_job *job, int n) {
    double seconds = 0, spent = wl_now() - t->last < COOL ? HEAT : 0;
    wl_status status = WL_OK;
    while (spent < HEAT && !status) {
        status = mark(t, 0);
        if (!status) status = launch(job, n);
        if (!status) status = mark(t, 1);
        if (!status) status = seconds_behind(t, 0, &seconds);
        spent += seconds;
    }
    return status;
}

/* Of the brief, a launch as long as a batch is the first batch. */
wl_status cli_timer_run(cli_timer *t, const cli_job *job, bool brief, cli_time *out) {
    double least = brief ? BRIEF : BATCH, seconds[BATCHES];
    int batches = brief ? 2 : BATCHES;
    *out = (cli_time){0};
    wl_status status = run(t, job, 1, 1, seconds, &out->clock_mhz);
    if (status) return status;
    double once = seconds[0];
    int n = once * MOST < least ? MOST : (int)ceil(least / once), known = brief && n == 1;
    if (!brief) status = heat(t, job, n);
    if (!status) status = run(t, job, n, batches - known, seconds + known, &out->clock_mhz);
    if (status) return status;
    out->warm_us = 1e6 * (brief ? fmin(seconds[0], seconds[1]) : wl_median(seconds, BATCHES));
    if (brief) return WL_OK;
    status = cold(t, job, (int)fmin(ceil(BATCH / once), COLD), &out->cold_us);
    t->last = wl_now();
    return status;
}
