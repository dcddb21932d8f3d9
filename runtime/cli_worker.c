/* cli_worker.c - tune-worker: compiles, checks and times candidates for wl_tune, which may lose it.
   SPDX-License-Identifier: BSD-3-Clause

   A line is asked, a line is answered:
     compile NAME                        good, or bad WHY
     problem ORDINAL WORDS               good, or bad WHY: inputs are on that device
     check NAME section_mb N             good; bad WHY: wrong; crash WHY: the device is lost
     screen|time NAME section_mb N       time WARM_US COLD_US CLOCK_MHZ; bad; crash */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cli_job.h"
#include "cli_timer.h"
#include "npy.h"

#define FIRST_WORK 2e8    /* multiply-adds of the reference for the first right candidate … */
#define CHECK_WORK 1e7    /* … and the others, which are compared with the first, too: some ms */
#define SAMPLE (1 << 19)  /* elements that are compared */
#define GUARD (1 << 16)   /* bytes before and behind an output that no kernel may touch */
#define GUARD_BYTE 0xa5
#define SEED 20

typedef struct {
    const cli_args *args;
    wl_tools *tools; /* of compile */
    cli_job job;
    cli_timer *timer;
    char name[128], first[128]; /* first: the candidate that was found right first */
    void *right[TENSORS];       /* its outputs */
    bool over;
} worker;

/* One line, whatever is in the text. */
static void reply(const char *what, const char *text) {
    char *line = wl_format("%s%s%s", what, *text ? " " : "", text);
    for (char *at = line; *at; at++)
        if (*at == '\n') *at = ' ';
    puts(line);
    cli_printed();
    free(line);
}

static void reply_result(wl_status status) {
    reply(status ? "bad" : "good", status ? message() : "");
}

/* Trouble with the device is a crash: nothing works any more in its CUDA context. */
static void reply_status(worker *w, wl_status status) {
    bool crash = status == WL_EFAIL || status == WL_EDEVICE;
    if (crash) reply("crash", message());
    else reply_result(status);
    w->over = crash;
}

static void compile(worker *w, char *rest) {
    const char *device = w->args->value[OPTION_DEVICE];
    const wl_request request = {.name = rest, .ptx = device && !strcmp(device, "sim")};
    wl_made *made = wl_alloc(sizeof *made);
    wl_status status = w->tools ? WL_OK : cli_tools(w->args, &w->tools);
    if (!status) status = wl_kernel_get(w->tools, &request, made);
    reply_result(status);
    wl_made_free(made);
    free(made);
}

/* Outputs with a guard on each side; they live as long as the process. */
static wl_status make_outputs(worker *w) {
    const wl_driver *d = w->job.driver;
    CUresult result = 0;
    for (int t = O; t < w->job.tensors && !result; t++) {
        result = d->cuMemAlloc_v2(&w->job.device[t], w->job.bytes[t] + 2 * GUARD);
        if (!result) w->job.device[t] += GUARD;
    }
    return result ? wl_driver_fail(d, result, "cuMemAlloc") : WL_OK;
}

static void problem(worker *w, char *rest) {
    cli_job *j = &w->job;
    j->ordinal = (int)strtol(rest, &rest, 10);
    wl_status status = wl_problem_parse(rest, &j->problem);
    if (!status) status = cli_job_shape(j);
    if (!status) status = cli_job_open(j, w->args);
    if (!status) status = make_outputs(w);
    if (!status) cli_job_random(j, SEED);
    if (!status) status = cli_job_upload(j);
    reply_result(status);
}

/* Cuts `NAME section_mb N` up and makes calls use that candidate. */
static wl_status use(worker *w, const char *rest) {
    int64_t section_mb = 0;
    sscanf(rest, "%127s section_mb %" SCNd64, w->name, &section_mb);
    w->job.kernel = w->name;
    wl_status status = cli_job_prepare(&w->job);
    return status ? status : wl_context_use_section(w->job.ctx, &w->job.forward, section_mb);
}

/* NaN in the outputs, a pattern around them. */
static wl_status poison(const cli_job *j) {
    const wl_driver *d = j->driver;
    CUresult result = 0;
    for (int t = O; t < j->tensors && !result; t++) {
        result = d->cuMemsetD8_v2(j->device[t] - GUARD, GUARD_BYTE, j->bytes[t] + 2 * GUARD);
        if (!result) result = d->cuMemsetD8_v2(j->device[t], 0xff, j->bytes[t]);
    }
    return result ? wl_driver_fail(d, result, "cuMemsetD8") : WL_OK;
}

/* Was anything written around the outputs? */
static wl_status check_guards(const cli_job *j, bool *touched) {
    unsigned char *seen = wl_alloc(GUARD);
    CUresult result = 0;
    for (int i = 0; i < 2 * (j->tensors - O) && !result; i++) {
        int t = O + i / 2;
        CUdeviceptr at = i % 2 ? j->device[t] + j->bytes[t] : j->device[t] - GUARD;
        result = j->driver->cuMemcpyDtoH_v2(seen, at, GUARD);
        for (int b = 0; b < GUARD && !result; b++) *touched |= seen[b] != GUARD_BYTE;
    }
    free(seen);
    return result ? wl_driver_fail(j->driver, result, "cuMemcpyDtoH") : WL_OK;
}

/* Is an element still as it was poisoned? NaN is never right, either. */
static bool has_holes(const cli_job *j) {
    const uint16_t *o = j->host[O];
    const uint32_t *lse = j->host[LSE];
    size_t holes = 0;
    for (size_t i = 0; i < j->bytes[O] / sizeof *o; i++) holes += o[i] == 0xffff;
    for (size_t i = 0; i < j->bytes[LSE] / sizeof *lse; i++) holes += lse[i] == 0xffffffff;
    return holes;
}

/* The first that is right by the reference is the measure of the others. */
static void keep_first(worker *w) {
    memcpy(w->first, w->name, sizeof w->first);
    for (int t = O; t < w->job.tensors; t++) {
        w->right[t] = wl_alloc(w->job.bytes[t]);
        memcpy(w->right[t], w->job.host[t], w->job.bytes[t]);
    }
}

/* Is LSE, and O in a sample of elements, what the first candidate has, but for both roundings? */
static bool agrees(const worker *w, double norm_limit, double lse_limit) {
    const float *lse = w->job.host[LSE], *want_lse = w->right[LSE];
    const uint16_t *got = w->job.host[O], *want = w->right[O];
    size_t n = w->job.bytes[O] / sizeof *got, step = n / SAMPLE | 1; /* odd: meets every column */
    double error2 = 0, norm2 = 0;
    for (size_t i = 0; i < n; i += step) {
        double x = (double)wl_npy_decode(w->job.dtype, want[i]);
        double error = (double)wl_npy_decode(w->job.dtype, got[i]) - x;
        error2 += error * error;
        norm2 += x * x;
    }
    for (size_t i = 0; i < w->job.bytes[LSE] / sizeof *lse; i++) {
        double x = (double)want_lse[i], error = fabs((double)lse[i] - x);
        if (lse[i] != want_lse[i] && !(error <= 2 * lse_limit * fmax(1, fabs(x)))) return false;
    }
    return error2 <= 4 * norm_limit * norm_limit * norm2;
}

/* The reference sees a few rows of a large problem; what it has found right stands for the rest. */
static void compare(worker *w) {
    wl_difference difference;
    wl_status status = cli_job_check(&w->job, *w->first ? CHECK_WORK : FIRST_WORK, &difference);
    char *text = wl_format("results are not those of %s", w->first);
    bool alike = status || !*w->first || agrees(w, difference.norm_limit, difference.lse_limit);
    if (!alike) reply("bad", text);
    else reply_status(w, status);
    if (!status && !*w->first) keep_first(w);
    free(text);
}

static void check(worker *w, char *rest) {
    cli_job *j = &w->job;
    bool touched = false;
    wl_status status = use(w, rest);
    if (!status) status = poison(j);
    if (!status) status = wl_forward(j->ctx, &j->forward);
    if (!status) status = cli_job_synchronize(j);
    if (!status) status = cli_job_download(j);
    if (!status) status = check_guards(j, &touched);
    if (status) reply_status(w, status);
    else if (touched) reply("bad", "writes outside of its outputs");
    else if (has_holes(j)) reply("bad", "leaves elements of its outputs unwritten");
    else compare(w);
}

static void time_it(worker *w, const char *rest, bool brief) {
    cli_time t;
    char text[96];
    wl_status status = use(w, rest);
    if (!status && !w->timer) status = cli_timer_open(&w->timer, &w->job);
    if (!status) status = cli_timer_run(w->timer, &w->job, brief, &t);
    if (status) {
        cli_timer_close(w->timer);
        w->timer = NULL;
        reply_status(w, status);
        return;
    }
    snprintf(text, sizeof text, "%.4f %.4f %.0f", t.warm_us, t.cold_us, t.clock_mhz);
    reply("time", text);
}

static void screen_request(worker *w, char *rest) {
    time_it(w, rest, true);
}

static void time_request(worker *w, char *rest) {
    time_it(w, rest, false);
}

static const struct {
    const char *verb;
    void (*run)(worker *w, char *rest);
    bool needs_problem;
} requests[] = {
    {"compile", compile, false}, {"problem", problem, false},    {"check", check, true},
    {"screen", screen_request, true}, {"time", time_request, true},
};

static void serve(worker *w, char *line) {
    char *rest = line + strcspn(line, " ");
    if (*rest) *rest++ = '\0';
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (strcmp(requests[i].verb, line)) continue;
        if (requests[i].needs_problem && !w->job.ctx) break;
        requests[i].run(w, rest);
        clear_message();
        return;
    }
    reply("bad", "tune-worker: no such request, or no problem yet");
}

wl_status cli_worker(const cli_args *args) {
    worker w = {.args = args};
    char *line = NULL;
    size_t room = 0;
    ssize_t size;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!w.over && (size = getline(&line, &room, stdin)) > 0) {
        if (line[size - 1] == '\n') line[size - 1] = '\0';
        serve(&w, line);
    }
    for (int t = O; t < TENSORS; t++)
        if (w.job.device[t]) w.job.device[t] -= GUARD;
    for (int t = O; t < TENSORS; t++) free(w.right[t]);
    cli_timer_close(w.timer);
    cli_job_close(&w.job);
    wl_tools_close(w.tools);
    free(line);
    return WL_OK;
}
