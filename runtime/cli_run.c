/* cli_run.c - the command run: inputs, launch, time, check, outputs.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "context.h"
#include "npy.h"
#include "reference.h"

#define SOURCE_MAX (1 << 20)
#define CHECK_WORK 4e9 /* multiply-adds of --check: some seconds of one core */
#define GROUPS 5       /* of launches that are timed; their median counts */

enum { Q, K, V, O, LSE, TENSORS };

/* One run: host and device copies of the five tensors, all in the problem's layout. */
typedef struct {
    const cli_args *args;
    wl_problem problem;
    wl_dtype dtype;
    bool bhsd, causal;
    int64_t shape[TENSORS][4]; /* [batch][seq][heads][dim] */
    size_t bytes[TENSORS];
    void *host[TENSORS];
    CUdeviceptr device[TENSORS];
    wl_buf source;
    wl_context *ctx;
    const wl_driver *driver;
    wl_forward_args forward;
    double seconds;
} job;

static int64_t number(const job *j, int word) {
    return j->problem.word[word].number;
}

static size_t count(const job *j, int t) {
    const int64_t *s = j->shape[t];
    return (size_t)(s[0] * s[1] * s[2] * s[3]);
}

/* The words that C must understand: memory order, element type and mask. */
static wl_status read_names(job *j) {
    static const struct {
        int word;
        const char *value[2];
    } table[] = {{WL_P_dtype, {"bf16", "fp16"}},
                 {WL_P_layout, {"bshd", "bhsd"}},
                 {WL_P_mask, {"none", "causal"}}};
    int is[3];
    for (int i = 0; i < 3; i++) {
        const char *name = j->problem.word[table[i].word].name;
        is[i] = !strcmp(name, table[i].value[1]);
        if (!is[i] && strcmp(name, table[i].value[0]))
            return fail(WL_EINVAL, "%s: run knows %s and %s, got '%s'",
                        wl_problem_table[table[i].word].name, table[i].value[0], table[i].value[1],
                        name);
    }
    j->dtype = is[0] ? WL_FP16 : WL_BF16;
    j->bhsd = is[1];
    j->causal = is[2];
    return WL_OK;
}

/* Lays out the tensors; what does not fit into this machine's memory is refused. */
static wl_status set_shapes(job *j) {
    int64_t batch = number(j, WL_P_batch), heads = number(j, WL_P_heads);
    int64_t kv_heads = number(j, WL_P_kv_heads);
    int64_t seq_q = number(j, WL_P_seq_q), seq_k = number(j, WL_P_seq_k);
    int64_t dim = number(j, WL_P_head_dim), dim_v = number(j, WL_P_head_dim_v);
    const int64_t shape[TENSORS][4] = {{batch, seq_q, heads, dim},
                                       {batch, seq_k, kv_heads, dim},
                                       {batch, seq_k, kv_heads, dim_v},
                                       {batch, seq_q, heads, dim_v},
                                       {batch, seq_q, heads, 1}};
    memcpy(j->shape, shape, sizeof shape);
    double need = 0, have = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    for (int t = 0; t < TENSORS; t++) {
        const int64_t *s = shape[t];
        need += (double)s[0] * (double)s[1] * (double)s[2] * (double)s[3] * (t == LSE ? 4 : 2);
    }
    if (need > have)
        return fail(WL_EINVAL, "run: the tensors take %.3g GB, this machine has %.3g GB",
                    need / 1e9, have / 1e9);
    for (int t = 0; t < TENSORS; t++) j->bytes[t] = count(j, t) * (t == LSE ? 4 : 2);
    return WL_OK;
}

/* The shape of a tensor as it lies in memory and in a file. */
static void file_shape(const job *j, int t, int64_t out[4]) {
    memcpy(out, j->shape[t], 4 * sizeof *out);
    if (!j->bhsd) return;
    out[1] = j->shape[t][2];
    out[2] = j->shape[t][1];
}

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

static wl_status make_random(job *j) {
    const char *text = j->args->value[OPTION_RANDOM];
    char *end;
    errno = 0;
    uint64_t seed = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return fail(WL_EINVAL, "--random: expected a whole number below 2^64, got '%s'", text);
    for (int t = Q; t <= V; t++)
        wl_reference_random(seed, (uint64_t)t, j->dtype, count(j, t), j->host[t]);
    return WL_OK;
}

static wl_status read_files(job *j) {
    wl_status status = WL_OK;
    for (int t = Q; t <= V && !status; t++) {
        int64_t shape[4];
        file_shape(j, t, shape);
        status = wl_npy_read(j->args->value[OPTION_Q + t], j->dtype, shape, j->host[t]);
    }
    return status;
}

/* Asks the generator whether there is a kernel: what it refuses needs no GPU. */
static wl_status judge(const job *j) {
    wl_tools *tools = NULL;
    wl_launch *record = wl_alloc(sizeof *record);
    const wl_request request = {.name = j->args->value[OPTION_KERNEL],
                                .problem = &j->problem,
                                .file = j->args->value[OPTION_SOURCE],
                                .text = j->source.data};
    wl_status status = cli_tools(j->args, &tools);
    if (!status && wl_tools_jit(tools)) status = wl_kernel_choose(tools, &request, record, NULL);
    wl_tools_close(tools);
    free(record);
    return status;
}

/* Everything that can be wrong without a GPU comes before the GPU is asked for. */
static wl_status prepare(job *j) {
    const char *source = j->args->value[OPTION_SOURCE];
    wl_buf text = {0};
    wl_status status = check_options(j->args);
    for (int i = 0; i < j->args->n_operands; i++) wl_buf_printf(&text, "%s ", j->args->operand[i]);
    if (!status) status = wl_problem_parse(text.data, &j->problem);
    if (!status) status = read_names(j);
    if (!status && source) status = wl_file_read(source, SOURCE_MAX, &j->source);
    wl_buf_free(&text);
    if (!status) status = set_shapes(j);
    if (!status) status = judge(j);
    if (status) return status;
    for (int t = 0; t < TENSORS; t++) j->host[t] = wl_alloc(j->bytes[t]);
    return j->args->value[OPTION_RANDOM] ? make_random(j) : read_files(j);
}

static wl_status done(const job *j, const char *call, CUresult result) {
    return result ? wl_driver_fail(j->driver, result, call) : WL_OK;
}

/* Makes device 0's primary context current and opens ours on it. */
static wl_status open_device(job *j) {
    CUdevice device;
    CUcontext context;
    wl_status status = wl_driver_get(&j->driver);
    if (!status) status = done(j, "cuDeviceGet", j->driver->cuDeviceGet(&device, 0));
    if (!status)
        status = done(j, "cuDevicePrimaryCtxRetain",
                      j->driver->cuDevicePrimaryCtxRetain(&context, device));
    if (!status) status = done(j, "cuCtxSetCurrent", j->driver->cuCtxSetCurrent(context));
    const wl_options options = {.size = sizeof options, .log = cli_log};
    if (!status) status = wl_open(&j->ctx, &options);
    for (int i = 0; i < j->args->n_specs && !status; i++)
        wl_tools_spec(wl_context_tools(j->ctx), j->args->spec[i]);
    return status;
}

/* The outputs are NaN beforehand, so that what is not written cannot pass. */
static wl_status upload(job *j) {
    wl_status status = WL_OK;
    for (int t = 0; t < TENSORS && !status; t++) {
        status = done(j, "cuMemAlloc", j->driver->cuMemAlloc_v2(&j->device[t], j->bytes[t]));
        if (status) break;
        if (t <= V)
            status = done(j, "cuMemcpyHtoD",
                          j->driver->cuMemcpyHtoD_v2(j->device[t], j->host[t], j->bytes[t]));
        else
            status =
                done(j, "cuMemsetD8", j->driver->cuMemsetD8_v2(j->device[t], 0xff, j->bytes[t]));
    }
    return status;
}

static wl_status download(const job *j) {
    wl_status status = WL_OK;
    for (int t = O; t < TENSORS && !status; t++)
        status = done(j, "cuMemcpyDtoH",
                      j->driver->cuMemcpyDtoH_v2(j->host[t], j->device[t], j->bytes[t]));
    return status;
}

static wl_tensor view(const job *j, int t) {
    int64_t s[4];
    memcpy(s, j->shape[t], sizeof s);
    wl_tensor out = {.data = (void *)(uintptr_t)j->device[t], .dtype = j->dtype};
    memcpy(out.shape, s, sizeof s);
    out.stride[0] = s[1] * s[2] * s[3];
    out.stride[1] = j->bhsd ? s[3] : s[2] * s[3];
    out.stride[2] = j->bhsd ? s[1] * s[3] : s[3];
    out.stride[3] = 1;
    return out;
}

static void set_forward(job *j) {
    j->forward = (wl_forward_args){.size = sizeof j->forward,
                                   .q = view(j, Q),
                                   .k = view(j, K),
                                   .v = view(j, V),
                                   .o = view(j, O),
                                   .lse = (float *)(uintptr_t)j->device[LSE],
                                   .mask = j->causal ? WL_MASK_CAUSAL : WL_MASK_NONE,
                                   .scale = (float)j->problem.word[WL_P_scale].real,
                                   .variant = j->problem.word[WL_P_variant].name,
                                   .kernel = j->args->value[OPTION_KERNEL]};
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds of a launch: n launches and one synchronise, by the wall. */
static wl_status time_group(job *j, int n, double *out) {
    double start = now();
    wl_status status = WL_OK;
    for (int i = 0; i < n && !status; i++) status = wl_forward(j->ctx, &j->forward);
    if (!status) status = done(j, "cuCtxSynchronize", j->driver->cuCtxSynchronize());
    *out = (now() - start) / n;
    return status;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The first launch makes the result (and may compile); the next sizes the groups, some 10 ms each.
 */
static wl_status launch_and_time(job *j) {
    double group[GROUPS], once = 0;
    wl_status status = WL_OK;
    if (j->source.data)
        status = wl_context_use_source(j->ctx, &j->forward, j->args->value[OPTION_SOURCE],
                                       j->source.data);
    if (!status) status = time_group(j, 1, &once);
    if (!status) status = download(j);
    if (!status) status = time_group(j, 1, &once);
    if (status) return status;
    int n = once < 1e-4 ? 100 : (int)ceil(1e-2 / once);
    for (int i = 0; i < GROUPS && !status; i++) status = time_group(j, n, &group[i]);
    if (status) return status;
    qsort(group, GROUPS, sizeof *group, by_size);
    j->seconds = group[GROUPS / 2];
    return WL_OK;
}

static wl_status write_outputs(const job *j) {
    const char *o = j->args->value[OPTION_OUT], *lse = j->args->value[OPTION_LSE];
    int64_t o_shape[4], lse_shape[3] = {j->shape[LSE][0], j->shape[LSE][2], j->shape[LSE][1]};
    file_shape(j, O, o_shape);
    wl_status status = o ? wl_npy_write(o, j->dtype, 4, o_shape, j->host[O]) : WL_OK;
    if (!status && lse) status = wl_npy_write(lse, WL_FP32, 3, lse_shape, j->host[LSE]);
    return status;
}

static wl_status check(const job *j, wl_difference *out) {
    double scale = j->problem.word[WL_P_scale].real;
    const wl_reference reference = {.dtype = j->dtype,
                                    .causal = j->causal,
                                    .bhsd = j->bhsd,
                                    .batch = j->shape[Q][0],
                                    .heads = j->shape[Q][2],
                                    .kv_heads = j->shape[K][2],
                                    .seq_q = j->shape[Q][1],
                                    .seq_k = j->shape[K][1],
                                    .dim = j->shape[Q][3],
                                    .dim_v = j->shape[V][3],
                                    .scale = scale > 0 ? scale : 1 / sqrt((double)j->shape[Q][3]),
                                    .q = j->host[Q],
                                    .k = j->host[K],
                                    .v = j->host[V],
                                    .o = j->host[O],
                                    .lse = j->host[LSE]};
    return wl_reference_check(&reference, CHECK_WORK, out);
}

/* Two matrix products, over the pairs that the mask lets through. */
static double flops(const job *j) {
    double seq_q = (double)j->shape[Q][1], seq_k = (double)j->shape[K][1], pairs = seq_q * seq_k;
    if (j->causal && seq_q <= seq_k) pairs -= seq_q * (seq_q - 1) / 2;
    else if (j->causal) pairs = seq_k * (seq_k + 1) / 2;
    double dims = (double)(j->shape[Q][3] + j->shape[V][3]);
    return 2 * dims * pairs * (double)j->shape[Q][0] * (double)j->shape[Q][2];
}

/* The candidate that was launched. */
static wl_status chosen(job *j, char name[128]) {
    wl_launch *record = wl_alloc(sizeof *record);
    const wl_request request = {.name = j->args->value[OPTION_KERNEL],
                                .problem = &j->problem,
                                .file = j->args->value[OPTION_SOURCE],
                                .text = j->source.data,
                                .arch = wl_context_device(j->ctx)->arch};
    wl_status status = wl_kernel_choose(wl_context_tools(j->ctx), &request, record, NULL);
    if (!status) memcpy(name, record->choice, 128);
    free(record);
    return status;
}

static void print(const job *j, const char *name, const wl_difference *d) {
    static const char *const column[] = {"name",       "#time_us",   "#tflops",
                                         "#rows",      "#checked",   "#norm_ratio",
                                         "#max_error", "#lse_error", NULL};
    static const char *const bare[] = {"name", "#time_us", "#tflops", NULL};
    cli_rows rows = {.column = d->checked ? column : bare};
    cli_cell(&rows, "%s", name);
    cli_cell(&rows, "%.1f", 1e6 * j->seconds);
    cli_cell(&rows, "%.1f", 1e-12 * flops(j) / j->seconds);
    if (d->checked) {
        cli_cell(&rows, "%lld", (long long)d->rows);
        cli_cell(&rows, "%lld", (long long)d->checked);
        cli_cell(&rows, "%.3g", d->norm_ratio);
        cli_cell(&rows, "%.3g", d->max_error);
        cli_cell(&rows, "%.3g", d->lse_error);
    }
    cli_rows_print(&rows, j->args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
}

static void close_job(job *j) {
    for (int t = 0; t < TENSORS; t++) {
        if (j->device[t]) j->driver->cuMemFree_v2(j->device[t]);
        free(j->host[t]);
    }
    wl_close(j->ctx);
    wl_buf_free(&j->source);
}

wl_status cli_run(const cli_args *args) {
    job j = {.args = args};
    char name[128] = "";
    wl_difference difference = {0};
    wl_status status = prepare(&j), verdict = WL_OK;
    if (!status) status = open_device(&j);
    if (!status) status = upload(&j);
    if (!status) set_forward(&j);
    if (!status) status = launch_and_time(&j);
    if (!status) status = chosen(&j, name);
    if (!status) status = write_outputs(&j);
    if (!status && args->value[OPTION_CHECK]) verdict = check(&j, &difference);
    if (!status) print(&j, name, &difference);
    char *text = wl_copy(message()); /* closing must not lose it */
    close_job(&j);
    if (status || verdict) fail(status ? status : verdict, "%s", text);
    free(text);
    return status ? status : verdict;
}
