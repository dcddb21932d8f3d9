/* cli_worker.c - tune-worker: compiles, checks and times candidates for wl_tune, which may lose it.
   SPDX-License-Identifier: BSD-3-Clause

   A line is asked, a line is answered:
     compile NAME                        good, or bad WHY
     ptx NAME                            the same, for the simulator
     problem ORDINAL WORDS               good, or bad WHY: inputs are on that device, for what
                                         comes now; kernels stay loaded
     check NAME section_mb N             good; bad WHY: wrong; crash WHY: the device is lost
     screen|time NAME section_mb N       time WARM_US COLD_US CLOCK_MHZ; bad; crash
     seconds                             what the problem has taken so far, a word a stage */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cli_job.h"
#include "cli_timer.h"
#include "npy.h"

#define CHECK_WORK 2e8    /* multiply-adds of the reference, once for all candidates */
#define SAMPLE (1 << 19)  /* elements that are compared */
#define GUARD (1 << 16)   /* bytes before and behind an output that no kernel may touch */
#define GUARD_BYTE 0xa5
#define SEED 20

/* Where time goes. */
#define STAGES(X) X(open) X(load) X(run) X(fetch) X(compare) X(time)
enum {
#define X(name) STAGE_##name,
    STAGES(X)
#undef X
    N_STAGES
};

typedef struct {
    const cli_args *args;
    wl_tools *tools; /* of compile */
    cli_job job;
    cli_timer *timer;
    char name[128], first[128]; /* first: the candidate that was found right first */
    void *right[TENSORS];       /* its outputs */
    wl_rows rows;               /* of the reference */
    double since, spent[N_STAGES];
    bool ready, over; /* ready: there is a problem */
} worker;

/* What was done since the last lap counts for the stage. */
static void lap(worker *w, int stage) {
    double now = wl_now();
    w->spent[stage] += now - w->since;
    w->since = now;
}

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

static void compile_as(worker *w, char *rest, bool ptx) {
    const wl_request request = {.name = rest, .ptx = ptx};
    wl_made *made = wl_alloc(sizeof *made);
    wl_status status = w->tools ? WL_OK : cli_tools(w->args, &w->tools);
    if (!status) status = wl_kernel_get(w->tools, &request, made);
    reply_result(status);
    wl_made_free(made);
    free(made);
}

static void compile(worker *w, char *rest) {
    const char *device = w->args->value[OPTION_DEVICE];
    compile_as(w, rest, device && !strcmp(device, "sim"));
}

static void compile_ptx(worker *w, char *rest) {
    compile_as(w, rest, true);
}

/* Outputs with a guard on each side. */
static wl_status make_outputs(worker *w) {
    const wl_driver *d = w->job.driver;
    CUresult result = 0;
    for (int t = O; t < w->job.tensors && !result; t++) {
        result = d->cuMemAlloc_v2(&w->job.device[t], w->job.bytes[t] + 2 * GUARD);
        if (!result) w->job.device[t] += GUARD;
    }
    return result ? wl_driver_fail(d, result, "cuMemAlloc") : WL_OK;
}

/* Outputs come back several times as fast into memory that the driver knows; without it is only
   slower. Forgetting begins before the memory is freed. */
static void let_know(const worker *w, bool known) {
    const cli_job *j = &w->job;
    CUresult (*know)(void *, size_t, unsigned) = (CUresult(*)(void *, size_t, unsigned))dlsym(
        j->driver->library, "cuMemHostRegister_v2");
    CUresult (*forget)(void *) =
        (CUresult(*)(void *))dlsym(j->driver->library, "cuMemHostUnregister");
    for (int t = O; t < j->tensors && know && forget; t++)
        if (known) know(j->host[t], j->bytes[t], 0);
        else if (j->host[t]) forget(j->host[t]);
}

static void forget_first(worker *w) {
    for (int t = O; t < TENSORS; t++) free(w->right[t]);
    memset(w->right, 0, sizeof w->right);
    *w->first = '\0';
    wl_rows_free(&w->rows);
}

static void clear_tensors(worker *w) {
    cli_job *j = &w->job;
    if (j->ctx) let_know(w, false);
    for (int t = O; t < TENSORS; t++)
        if (j->device[t]) j->device[t] -= GUARD;
    cli_job_clear(j);
}

static wl_status make_tensors(worker *w) {
    cli_job *j = &w->job;
    for (int t = 0; t < j->tensors; t++) j->host[t] = wl_alloc(j->bytes[t]);
    wl_status status = make_outputs(w);
    if (!status) cli_job_random(j, SEED);
    if (!status) status = cli_job_upload(j);
    if (!status) let_know(w, true);
    return status;
}

/* Tensors of the same sizes hold the same numbers: they stay. */
static wl_status open_problem(worker *w, char *rest) {
    cli_job *j = &w->job, next = {.ordinal = (int)strtol(rest, &rest, 10)};
    wl_status status = wl_problem_parse(rest, &next.problem);
    if (!status) status = cli_job_plan(&next);
    if (status) return status;
    bool stay = w->ready && next.dtype == j->dtype && next.element == next.dtype &&
                j->element == j->dtype && !memcmp(next.bytes, j->bytes, sizeof j->bytes);
    forget_first(w);
    if (!stay) clear_tensors(w);
    memcpy(next.host, j->host, sizeof next.host);
    memcpy(next.device, j->device, sizeof next.device);
    next.ctx = j->ctx;
    next.driver = j->driver;
    next.device_name = j->device_name;
    wl_formula_close(j->keep);
    *j = next;
    w->ready = false;
    if (!j->ctx) status = cli_job_open(j, w->args);
    if (!status) status = cli_job_formulas(j);
    if (!status && !stay) status = make_tensors(w);
    if (status) return status;
    const wl_reference reference = cli_job_reference(j);
    wl_reference_rows(&reference, CHECK_WORK, &w->rows);
    w->ready = true;
    return WL_OK;
}

static void problem(worker *w, char *rest) {
    memset(w->spent, 0, sizeof w->spent);
    wl_status status = open_problem(w, rest);
    lap(w, STAGE_open);
    reply_result(status);
}

/* Cuts `NAME section_mb N` up and makes calls use that candidate. */
static wl_status use(worker *w, const char *rest) {
    int64_t section_mb = 0;
    sscanf(rest, "%127s section_mb %" SCNd64, w->name, &section_mb);
    w->job.kernel = w->name;
    wl_status status = cli_job_prepare(&w->job);
    if (!status) status = wl_context_use_section(w->job.ctx, &w->job.forward, section_mb);
    lap(w, STAGE_load);
    return status;
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

/* The first that is right by the reference is the measure of the others. */
static void keep_first(worker *w) {
    memcpy(w->first, w->name, sizeof w->first);
    for (int t = O; t < w->job.tensors; t++) {
        w->right[t] = wl_alloc(w->job.bytes[t]);
        memcpy(w->right[t], w->job.host[t], w->job.bytes[t]);
    }
}

/* What is counted of the outputs, on all cores. */
typedef struct {
    const worker *w;
    size_t step;     /* between elements of O that are compared with the first candidate's */
    double lse_limit;
    pthread_mutex_t lock;
    size_t holes, off;    /* elements as they were poisoned; of LSE, that are not the first's */
    double error2, norm2; /* sums of squares: of the distance from the first's O, and of that */
} tally;

/* NaN is never right: what is still as it was poisoned needs no other mark. */
static void tally_o(void *user, int64_t from, int64_t to) {
    tally *t = user;
    const cli_job *j = &t->w->job;
    const uint16_t *got = j->host[O], *want = t->w->right[O];
    size_t holes = 0, i = (size_t)from, end = (size_t)to;
    double error2 = 0, norm2 = 0;
    for (; i < end; i++) holes += got[i] == 0xffff;
    i = ((size_t)from + t->step - 1) / t->step * t->step;
    for (; want && i < end; i += t->step) {
        double x = (double)wl_npy_decode(j->dtype, want[i]);
        double error = (double)wl_npy_decode(j->dtype, got[i]) - x;
        error2 += error * error;
        norm2 += x * x;
    }
    pthread_mutex_lock(&t->lock);
    t->holes += holes;
    t->error2 += error2;
    t->norm2 += norm2;
    pthread_mutex_unlock(&t->lock);
}

static void tally_lse(void *user, int64_t from, int64_t to) {
    tally *t = user;
    const float *got = t->w->job.host[LSE], *want = t->w->right[LSE];
    size_t holes = 0, off = 0;
    for (int64_t i = from; i < to; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], sizeof bits);
        holes += bits == 0xffffffff;
        if (!want || got[i] == want[i]) continue;
        double x = (double)want[i], error = fabs((double)got[i] - x);
        off += !(error <= 2 * t->lse_limit * fmax(1, fabs(x)));
    }
    pthread_mutex_lock(&t->lock);
    t->holes += holes;
    t->off += off;
    pthread_mutex_unlock(&t->lock);
}

/* Every element was written; O in the reference's rows and, but for both roundings, in a sample of
   elements, and all of LSE, are what the reference and the first candidate say. */
static void compare(worker *w) {
    const cli_job *j = &w->job;
    const wl_reference reference = cli_job_reference(j);
    wl_difference d;
    wl_status status = wl_reference_compare(&reference, &w->rows, &d);
    size_t n = j->bytes[O] / sizeof(uint16_t);
    tally t = {.w = w, .lock = PTHREAD_MUTEX_INITIALIZER, .lse_limit = d.lse_limit,
               .step = n / SAMPLE | 1}; /* odd: meets every column */
    wl_parallel((int64_t)n, 1 << 16, tally_o, &t);
    wl_parallel((int64_t)(j->bytes[LSE] / sizeof(float)), 1 << 16, tally_lse, &t);
    char *text = wl_format("results are not those of %s", w->first);
    bool alike = t.error2 <= 4 * d.norm_limit * d.norm_limit * t.norm2 && !t.off;
    if (!t.holes && !status && !*w->first) keep_first(w);
    lap(w, STAGE_compare);
    if (t.holes) reply("bad", "leaves elements of its outputs unwritten");
    else if (!status && !alike) reply("bad", text);
    else reply_status(w, status);
    free(text);
}

static void check(worker *w, char *rest) {
    cli_job *j = &w->job;
    bool touched = false;
    wl_status status = use(w, rest);
    if (!status) status = poison(j);
    if (!status) status = wl_forward(j->ctx, &j->forward);
    if (!status) status = cli_job_synchronize(j);
    lap(w, STAGE_run);
    if (!status) status = cli_job_download(j);
    if (!status) status = check_guards(j, &touched);
    lap(w, STAGE_fetch);
    if (status) reply_status(w, status);
    else if (touched) reply("bad", "writes outside of its outputs");
    else compare(w);
}

static void time_it(worker *w, const char *rest, bool brief) {
    cli_time t;
    char text[96];
    wl_status status = use(w, rest);
    if (!status && !w->timer) status = cli_timer_open(&w->timer, &w->job);
    if (!status) status = cli_timer_run(w->timer, &w->job, brief, &t);
    lap(w, STAGE_time);
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

static void seconds(worker *w, char *rest) {
    static const char *const name[] = {
#define X(name) #name,
        STAGES(X)
#undef X
    };
    wl_buf text = {0};
    (void)rest;
    for (int i = 0; i < N_STAGES; i++)
        wl_buf_printf(&text, "%s%s %.2f", i ? ", " : "", name[i], w->spent[i]);
    reply("seconds", text.data);
    wl_buf_free(&text);
}

static const struct {
    const char *verb;
    void (*run)(worker *w, char *rest);
    bool needs_problem;
} requests[] = {
    {"compile", compile, false}, {"ptx", compile_ptx, false},
    {"problem", problem, false},    {"check", check, true},
    {"screen", screen_request, true}, {"time", time_request, true}, {"seconds", seconds, true},
};

static void serve(worker *w, char *line) {
    char *rest = line + strcspn(line, " ");
    if (*rest) *rest++ = '\0';
    w->since = wl_now();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        if (strcmp(requests[i].verb, line)) continue;
        if (requests[i].needs_problem && !w->ready) break;
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
    cli_timer_close(w.timer);
    forget_first(&w);
    clear_tensors(&w);
    cli_job_close(&w.job);
    wl_tools_close(w.tools);
    free(line);
    return WL_OK;
}
