/* cli_verify.c - the command verify: a kernel in the simulator, over shapes and schedules.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_job.h"

#define SCHEDULES 8
#define CHECK_WORK 2e8 /* multiply-adds of the reference, a launch */

/* What a kernel is run on when no problem is given: ragged tiles, shared K and V heads, fewer keys
   than a tile, one row. */
static const char *const shapes[] = {
    "batch=1 heads=2 kv_heads=1 seq_q=200 seq_k=333",
    "batch=2 heads=2 seq_q=515 seq_k=515",
    "batch=1 heads=4 kv_heads=2 seq_q=70 seq_k=17",
    "batch=1 heads=1 seq_q=1 seq_k=129",
};
#define SHAPES (int)(sizeof shapes / sizeof *shapes)

typedef struct {
    const cli_args *args;
    cli_job job;
    uint64_t schedules;
    char name[128];
    wl_buf axes; /* the problem's words that the kernel is made for; empty: a problem is given */
    cli_findings findings;
} verification;

static wl_status read_args(verification *v) {
    const cli_args *a = v->args;
    const char *name = NULL;
    wl_status status = cli_schedules(a, SCHEDULES, &v->schedules);
    if (!status) status = cli_job_source(&v->job, a->value[OPTION_SOURCE]);
    if (status) return status;
    if (!a->n_operands && !a->value[OPTION_SOURCE])
        return fail(WL_EINVAL, "verify: give PROBLEM, NAME or --source FILE.cu");
    if (a->n_operands)
        status = cli_subject(a->operand, a->n_operands, &name, &v->job.problem);
    if (name && v->job.file)
        return fail(WL_EINVAL, "verify: --source names its kernel itself; leave %s out", name);
    v->job.kernel = name;
    return status;
}

/* The candidate's name; without a whole problem, the words that it is made for. */
static wl_status choose(verification *v) {
    bool whole = v->args->n_operands && !v->job.kernel;
    wl_launch *record = wl_alloc(sizeof *record);
    const wl_request request = {.name = v->job.kernel,
                                .problem = whole ? &v->job.problem : NULL,
                                .file = v->job.file,
                                .text = v->job.source.data,
                                .ptx = true};
    wl_status status = wl_kernel_choose(wl_context_tools(v->job.ctx), &request, record, NULL);
    if (!status) memcpy(v->name, record->choice, sizeof v->name);
    for (int i = 0; i < record->n_axes && !status && !whole; i++)
        wl_buf_printf(&v->axes, "%s=%s ", record->axis[i].word, record->axis[i].value);
    free(record);
    return status;
}

/* Inputs and the number of SMs change from schedule to schedule, too. */
static wl_status schedule(verification *v, uint64_t number) {
    static const int sms[] = {0, 1, 2, 7}; /* 0: all */
    cli_job *j = &v->job;
    wl_difference difference = {0};
    cli_schedule(j->driver, number);
    j->forward.sms = sms[number % 4]; /* few: a block has several tiles to do */
    cli_job_random(j, number);
    wl_status status = cli_job_upload(j);
    if (!status) status = wl_forward(j->ctx, &j->forward);
    cli_job_findings(j, &v->findings);
    if (!status) status = cli_job_download(j);
    if (status) return status;
    if (cli_job_check(j, CHECK_WORK, &difference))
        cli_findings_add(&v->findings, "result", message());
    clear_message();
    return WL_OK;
}

static wl_status run_shape(verification *v) {
    wl_status status = cli_job_shape(&v->job);
    if (!status) status = cli_job_upload(&v->job);
    if (!status) status = cli_job_prepare(&v->job);
    for (uint64_t i = 0; i < v->schedules && !status; i++) status = schedule(v, i);
    cli_job_clear(&v->job);
    return status;
}

static wl_status run_shapes(verification *v) {
    wl_status status = WL_OK;
    if (!v->axes.size) return run_shape(v);
    for (int i = 0; i < SHAPES && !status; i++) {
        char *text = wl_format("%s%s layout=%s", v->axes.data, shapes[i], i % 2 ? "bhsd" : "bshd");
        status = wl_problem_parse(text, &v->job.problem);
        if (!status) status = run_shape(v);
        free(text);
    }
    return status;
}

static wl_status tell(const verification *v) {
    const char *json = v->args->value[OPTION_JSON];
    if (json || v->findings.n) cli_findings_print(&v->findings, json);
    if (v->findings.n)
        return fail(WL_EVERIFY, "%s: %d findings in %d launches", v->name, v->findings.n,
                    v->findings.launches);
    if (!json)
        printf("%s: nothing found in %d launches: %d schedules, %d shapes\n", v->name,
               v->findings.launches, (int)v->schedules, v->findings.launches / (int)v->schedules);
    return WL_OK;
}

wl_status cli_verify(const cli_args *args) {
    verification v = {.args = args, .job = {.device_name = "sim"}};
    wl_status status = read_args(&v);
    if (!status) status = cli_job_open(&v.job, args);
    if (!status) status = choose(&v);
    if (!status) status = run_shapes(&v);
    if (!status) status = tell(&v);
    char *text = wl_copy(message()); /* closing must not lose it */
    cli_findings_free(&v.findings);
    cli_job_close(&v.job);
    wl_buf_free(&v.axes);
    if (status) fail(status, "%s", text);
    free(text);
    return status;
}
