/* cli_run.c - the command run: inputs, launch, time, check, outputs.
   SPDX-License-Identifier: BSD-3-Clause */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_job.h"
#include "npy.h"

#define CHECK_WORK 4e9 /* multiply-adds of --check: some seconds of one core */
#define GROUPS 5       /* of launches that are timed; their median counts */

static wl_status check_options(const cli_args *args) {
    const char *const *v = args->value;
    int files = !!v[OPTION_Q] + !!v[OPTION_K] + !!v[OPTION_V];
    if (v[OPTION_RANDOM] ? files > 0 : files < 3)
        return fail(WL_EINVAL, "run: give --q, --k and --v, or --random SEED");
    if (!v[OPTION_RANDOM] && !v[OPTION_OUT])
        return fail(WL_EINVAL, "run: -o FILE.npy is missing: where O goes");
    if (v[OPTION_SOURCE] && v[OPTION_KERNEL])
        return fail(WL_EINVAL, "run: --source names its kernel itself; leave --kernel out");
    return WL_OK;
}

static wl_status make_random(const cli_args *args, cli_job *j) {
    uint64_t seed;
    wl_status status = cli_number(args, OPTION_RANDOM, &seed);
    if (!status) cli_job_random(j, seed);
    return status;
}

static wl_status read_files(const cli_args *args, cli_job *j) {
    wl_status status = WL_OK;
    for (int t = Q; t <= V && !status; t++) {
        int64_t shape[4];
        cli_job_file_shape(j, t, shape);
        status = wl_npy_read(args->value[OPTION_Q + t], j->dtype, shape, j->host[t]);
    }
    if (!status) cli_job_quantise(j);
    return status;
}

/* Asks the generator whether there is a kernel: what it refuses needs no GPU. */
static wl_status judge(const cli_args *args, const cli_job *j) {
    wl_tools *tools = NULL;
    wl_launch *record = wl_alloc(sizeof *record);
    const wl_request request = {
        .name = j->kernel, .problem = &j->problem, .file = j->file, .text = j->source.data};
    wl_status status = cli_tools(args, &tools);
    if (!status && wl_tools_jit(tools)) status = wl_kernel_choose(tools, &request, record, NULL);
    wl_tools_close(tools);
    free(record);
    return status;
}

/* Everything that can be wrong without a GPU comes before the GPU is asked for. */
static wl_status prepare(const cli_args *args, cli_job *j) {
    wl_buf text = {0};
    wl_status status = check_options(args);
    for (int i = 0; i < args->n_operands; i++) wl_buf_printf(&text, "%s ", args->operand[i]);
    if (!status) status = wl_problem_parse(text.data, &j->problem);
    if (!status) status = cli_job_source(j, args->value[OPTION_SOURCE]);
    wl_buf_free(&text);
    if (!status) status = cli_job_shape(j);
    if (!status && args->value[OPTION_LSE] && j->tensors <= LSE)
        status = fail(WL_EINVAL, "run: --lse FILE, but the problem says lse=no; leave one out");
    if (!status) status = judge(args, j);
    if (status) return status;
    return args->value[OPTION_RANDOM] ? make_random(args, j) : read_files(args, j);
}

/* Seconds of a launch: n launches and one synchronise, by the wall. */
static wl_status time_group(cli_job *j, int n, double *out) {
    double start = wl_now();
    wl_status status = WL_OK;
    for (int i = 0; i < n && !status; i++) status = wl_forward(j->ctx, &j->forward);
    if (!status) status = cli_job_synchronize(j);
    *out = (wl_now() - start) / n;
    return status;
}

/* The first launch made the result; the next sizes the groups, some 10 ms each. */
static wl_status time_groups(cli_job *j, double *out) {
    double group[GROUPS], once = 0;
    wl_status status = time_group(j, 1, &once);
    if (status) return status;
    int n = once < 1e-4 ? 100 : (int)ceil(1e-2 / once);
    for (int i = 0; i < GROUPS && !status; i++) status = time_group(j, n, &group[i]);
    if (status) return status;
    *out = wl_median(group, GROUPS);
    return WL_OK;
}

/* In the simulator: one launch, and what it found. */
static wl_status simulate(cli_job *j, cli_findings *findings, double *seconds) {
    wl_status status = wl_prepare(j->ctx, &j->forward);
    double start = wl_now();
    if (!status) status = wl_forward(j->ctx, &j->forward);
    *seconds = wl_now() - start;
    cli_job_findings(j, findings);
    return status ? status : cli_job_download(j);
}

static wl_status launch(cli_job *j, cli_findings *findings, double *seconds) {
    wl_status status = cli_job_prepare(j);
    if (!status && j->driver->simulator) return simulate(j, findings, seconds);
    if (!status) status = time_group(j, 1, seconds);
    if (!status) status = cli_job_download(j);
    return status ? status : time_groups(j, seconds);
}

static wl_status write_outputs(const cli_args *args, const cli_job *j) {
    const char *o = args->value[OPTION_OUT], *lse = args->value[OPTION_LSE];
    int64_t o_shape[4], lse_shape[3] = {j->shape[LSE][0], j->shape[LSE][2], j->shape[LSE][1]};
    cli_job_file_shape(j, O, o_shape);
    wl_status status = o ? wl_npy_write(o, j->dtype, 4, o_shape, j->host[O]) : WL_OK;
    if (!status && lse) status = wl_npy_write(lse, WL_FP32, 3, lse_shape, j->host[LSE]);
    return status;
}

/* The pairs that a row of a batch and head keeps. */
static double kept(const wl_reference *r, int64_t row) {
    double name[WL_F_params + WL_MAX_PARAMS], pairs = 0;
    wl_reference_names(r, row / r->seq_q / r->heads, row / r->seq_q % r->heads, row % r->seq_q,
                       name);
    for (int64_t col = 0; col < r->seq_k; col++) pairs += wl_reference_kept(r, name, col);
    return pairs;
}

/* The pairs that a spec's mask keeps: counted, or where that are many, of rows spread evenly. */
static double kept_pairs(const cli_job *j) {
    const wl_reference r = cli_job_reference(j);
    int64_t rows = r.batch * r.heads * r.seq_q, step = 1 + rows * r.seq_k / (1 << 24);
    double pairs = 0, looked = 0;
    for (int64_t row = 0; row < rows; row += step, looked++) pairs += kept(&r, row);
    return pairs * (double)rows / looked;
}

/* Two matrix products, over the pairs that the mask lets through. */
static double flops(const cli_job *j) {
    double seq_q = (double)j->shape[Q][1], seq_k = (double)j->shape[K][1], pairs = seq_q * seq_k;
    if (j->causal && seq_q <= seq_k) pairs -= seq_q * (seq_q - 1) / 2;
    else if (j->causal) pairs = seq_k * (seq_k + 1) / 2;
    pairs *= (double)j->shape[Q][0] * (double)j->shape[Q][2];
    if (j->keep) pairs = kept_pairs(j);
    return 2 * (double)(j->shape[Q][3] + j->shape[V][3]) * pairs;
}

static void print(const cli_args *args, const cli_job *j, const char *name, double seconds,
                  const wl_difference *d) {
    static const char *const column[] = {"name",        "#time_us",    "#tflops",
                                         "#rows",       "#checked",    "#norm_ratio",
                                         "#max_error",  "#lse_error",  NULL};
    static const char *const eight[] = {"name",         "#time_us",    "#tflops",
                                        "#rows",        "#checked",    "#norm_ratio",
                                        "#max_error",   "#lse_error",  "#format_error", NULL};
    static const char *const bare[] = {"name", "#time_us", "#tflops", NULL};
    bool is_8bit = j->element != j->dtype;
    cli_rows rows = {.column = !d->checked ? bare : is_8bit ? eight : column};
    cli_cell(&rows, "%s", name);
    cli_cell(&rows, "%.1f", 1e6 * seconds);
    cli_cell(&rows, "%.*f", j->driver->simulator ? 6 : 1, 1e-12 * flops(j) / seconds);
    if (d->checked) {
        cli_cell(&rows, "%lld", (long long)d->rows);
        cli_cell(&rows, "%lld", (long long)d->checked);
        cli_cell(&rows, "%.3g", d->norm_ratio);
        cli_cell(&rows, "%.3g", d->max_error);
        if (j->tensors > LSE) cli_cell(&rows, "%.3g", d->lse_error);
        else cli_cell(&rows, "-");
        if (is_8bit) cli_cell(&rows, "%.3g", cli_job_format_error(j, CHECK_WORK));
    }
    cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
}

wl_status cli_run(const cli_args *args) {
    cli_job j = {.kernel = args->value[OPTION_KERNEL]};
    char name[128] = "";
    double seconds = 0;
    cli_findings findings = {0};
    wl_difference difference = {0};
    wl_status status = prepare(args, &j), verdict = WL_OK;
    if (!status) status = cli_job_open(&j, args);
    if (!status) status = cli_job_upload(&j);
    if (!status) status = launch(&j, &findings, &seconds);
    if (!status) status = cli_job_chosen(&j, name);
    if (!status) status = write_outputs(args, &j);
    if (!status && args->value[OPTION_CHECK]) verdict = cli_job_check(&j, CHECK_WORK, &difference);
    if (!status) print(args, &j, name, seconds, &difference);
    if (!status && findings.n) verdict = cli_findings_fail(&findings, name);
    char *text = wl_copy(message()); /* closing must not lose it */
    cli_findings_free(&findings);
    cli_job_close(&j);
    if (status || verdict) fail(status ? status : verdict, "%s", text);
    free(text);
    return status ? status : verdict;
}
