/* cli_job.c - one forward call of the command: shapes, inputs, device memory, check.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cli_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "quantise.h"
#include "tensor.h"

#define SOURCE_MAX (1 << 20)

static int64_t number(const cli_job *j, int word) {
    return j->problem.word[word].number;
}

static size_t count(const cli_job *j, int t) {
    const int64_t *s = j->shape[t];
    return (size_t)(s[0] * s[1] * s[2] * s[3]);
}

/* Tensors of 8 bits are on the host what their output is, which holds each of their values. */
static wl_status read_dtype(cli_job *j) {
    const char *name = j->problem.word[WL_P_dtype].name;
    const char *out = j->problem.word[WL_P_out_dtype].name;
    wl_dtype dtype = WL_BF16;
    while (dtype <= WL_E5M2 && (!wl_dtype_name(dtype) || strcmp(wl_dtype_name(dtype), name)))
        dtype++;
    if (dtype > WL_E5M2)
        return fail(WL_EINVAL, "dtype: run knows bf16, fp16, e4m3 and e5m2, got '%s'", name);
    j->element = j->dtype = dtype;
    if (wl_dtype_bytes(dtype) == 1) j->dtype = strcmp(out, "fp16") ? WL_BF16 : WL_FP16;
    return WL_OK;
}

static bool is_8bit(const cli_job *j) {
    return j->element != j->dtype;
}

/* The words that C must understand. */
static wl_status read_names(cli_job *j) {
    static const struct {
        int word;
        const char *value[2];
    } table[] = {{WL_P_layout, {"bshd", "bhsd"}},
                 {WL_P_lse, {"no", "yes"}},
                 {WL_P_scales, {"tensor", "head"}}};
    int is[3];
    const char *mask = j->problem.word[WL_P_mask].name;
    wl_status status = read_dtype(j);
    for (int i = 0; i < 3 && !status; i++) {
        const char *name = j->problem.word[table[i].word].name;
        is[i] = !strcmp(name, table[i].value[1]);
        if (!is[i] && strcmp(name, table[i].value[0]))
            return fail(WL_EINVAL, "%s: run knows %s and %s, got '%s'",
                        wl_problem_table[table[i].word].name, table[i].value[0], table[i].value[1],
                        name);
    }
    if (status) return status;
    j->bhsd = is[0];
    j->causal = !strcmp(mask, "causal");
    j->masked = !j->causal && strcmp(mask, "none");
    j->tensors = is[1] ? TENSORS : LSE;
    return WL_OK;
}

/* Lays out the tensors; what does not fit into this machine's memory is refused. */
static wl_status set_shapes(cli_job *j) {
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
    for (int t = 0; t < j->tensors; t++) {
        const int64_t *s = shape[t];
        need += (double)s[0] * (double)s[1] * (double)s[2] * (double)s[3] * (t == LSE ? 4 : 2);
    }
    if (need > have)
        return fail(WL_EINVAL, "run: the tensors take %.3g GB, this machine has %.3g GB",
                    need / 1e9, have / 1e9);
    for (int t = 0; t < TENSORS; t++)
        j->bytes[t] = t < j->tensors ? count(j, t) * (t == LSE ? 4 : 2) : 0;
    if (is_8bit(j)) j->bytes[V] += 16 * count(j, V) / (size_t)seq_k; /* its keys are rounded up */
    return WL_OK;
}

wl_status cli_job_source(cli_job *j, const char *file) {
    j->file = file;
    return file ? wl_file_read(file, SOURCE_MAX, &j->source) : WL_OK;
}

wl_status cli_job_plan(cli_job *j) {
    wl_status status = read_names(j);
    return status ? status : set_shapes(j);
}

wl_status cli_job_shape(cli_job *j) {
    wl_status status = cli_job_plan(j);
    for (int t = 0; t < j->tensors && !status; t++) j->host[t] = wl_alloc(j->bytes[t]);
    return status;
}

void cli_job_file_shape(const cli_job *j, int t, int64_t out[4]) {
    memcpy(out, j->shape[t], 4 * sizeof *out);
    if (!j->bhsd) return;
    out[1] = j->shape[t][2];
    out[2] = j->shape[t][1];
}

void cli_job_random(cli_job *j, uint64_t seed) {
    for (int t = Q; t <= V; t++)
        wl_reference_random(seed, (uint64_t)t, j->dtype, count(j, t), j->host[t]);
    cli_job_quantise(j);
}

static wl_bytes bytes_of(const cli_job *j, int t) {
    wl_bytes out = {.host = j->dtype,
                    .element = j->element,
                    .bhsd = j->bhsd,
                    .by_head = !strcmp(j->problem.word[WL_P_scales].name, "head"),
                    .data = j->host[t]};
    memcpy(out.shape, j->shape[t], sizeof out.shape);
    return out;
}

void cli_job_quantise(cli_job *j) {
    for (int t = Q; t <= V && is_8bit(j); t++) {
        const wl_bytes tensor = bytes_of(j, t);
        free(j->scale[t]), free(j->whole[t]);
        j->scale[t] = wl_alloc((size_t)wl_bytes_scales(&tensor) * sizeof(float));
        j->whole[t] = wl_alloc(j->bytes[t]);
        memcpy(j->whole[t], j->host[t], j->bytes[t]);
        wl_bytes_round(&tensor, j->scale[t]);
    }
}

static wl_status done(const cli_job *j, const char *call, CUresult result) {
    return result ? wl_driver_fail(j->driver, result, call) : WL_OK;
}

/* Makes the device's primary context current and opens ours on it. */
wl_status cli_job_open(cli_job *j, const cli_args *args) {
    j->files = args->tensor;
    j->n_files = args->n_tensors;
    CUdevice device;
    CUcontext context;
    wl_status status = cli_driver(args, &j->device_name, &j->driver);
    wl_options options = {.size = sizeof options, .device = j->device_name, .log = cli_log};
    if (!status) status = done(j, "cuDeviceGet", j->driver->cuDeviceGet(&device, j->ordinal));
    if (!status)
        status = done(j, "cuDevicePrimaryCtxRetain",
                      j->driver->cuDevicePrimaryCtxRetain(&context, device));
    if (!status) status = done(j, "cuCtxSetCurrent", j->driver->cuCtxSetCurrent(context));
    if (!status) status = wl_open(&j->ctx, &options);
    for (int i = 0; i < args->n_specs && !status; i++)
        wl_tools_spec(wl_context_tools(j->ctx), args->spec[i]);
    return status;
}

/* Codes of 8 bits, and their scales. */
static wl_status upload_bytes(cli_job *j, int t) {
    const wl_bytes tensor = bytes_of(j, t);
    size_t scales = (size_t)wl_bytes_scales(&tensor) * sizeof(float);
    uint8_t *codes = wl_alloc(j->bytes[t]);
    (t == V ? wl_bytes_turned : wl_bytes_codes)(&tensor, codes);
    CUresult result = j->driver->cuMemcpyHtoD_v2(j->device[t], codes, j->bytes[t]);
    if (!result && !j->device_scale[t])
        result = j->driver->cuMemAlloc_v2(&j->device_scale[t], scales);
    if (!result) result = j->driver->cuMemcpyHtoD_v2(j->device_scale[t], j->scale[t], scales);
    free(codes);
    return done(j, "cuMemcpyHtoD", result);
}

wl_status cli_job_upload(cli_job *j) {
    wl_status status = WL_OK;
    for (int t = 0; t < j->tensors && !status; t++) {
        if (!j->device[t])
            status = done(j, "cuMemAlloc", j->driver->cuMemAlloc_v2(&j->device[t], j->bytes[t]));
        if (status) break;
        if (t <= V && is_8bit(j)) status = j->scale[t] ? upload_bytes(j, t) : WL_OK;
        else if (t <= V)
            status = done(j, "cuMemcpyHtoD",
                          j->driver->cuMemcpyHtoD_v2(j->device[t], j->host[t], j->bytes[t]));
        else
            status =
                done(j, "cuMemsetD8", j->driver->cuMemsetD8_v2(j->device[t], 0xff, j->bytes[t]));
    }
    return status;
}

wl_status cli_job_synchronize(const cli_job *j) {
    return done(j, "cuCtxSynchronize", j->driver->cuCtxSynchronize());
}

wl_status cli_job_download(const cli_job *j) {
    wl_status status = WL_OK;
    for (int t = O; t < j->tensors && !status; t++)
        status = done(j, "cuMemcpyDtoH",
                      j->driver->cuMemcpyDtoH_v2(j->host[t], j->device[t], j->bytes[t]));
    return status;
}

static wl_tensor view_turned(const cli_job *j) {
    const int64_t *s = j->shape[V], keys = wl_bytes_keys(s[1]);
    return (wl_tensor){.data = (void *)(uintptr_t)j->device[V],
                       .dtype = j->element,
                       .shape = {s[0], s[3], s[2], keys},
                       .stride = {s[2] * s[3] * keys, keys, s[3] * keys, 1}};
}

static wl_tensor view(const cli_job *j, int t) {
    int64_t s[4];
    if (t == V && is_8bit(j)) return view_turned(j);
    memcpy(s, j->shape[t], sizeof s);
    wl_tensor out = {.data = (void *)(uintptr_t)j->device[t],
                     .dtype = t <= V ? j->element : j->dtype};
    memcpy(out.shape, s, sizeof s);
    out.stride[0] = s[1] * s[2] * s[3];
    out.stride[1] = j->bhsd ? s[3] : s[2] * s[3];
    out.stride[2] = j->bhsd ? s[1] * s[3] : s[3];
    out.stride[3] = 1;
    return out;
}

static wl_status choose(const cli_job *j, wl_launch *record) {
    const wl_request request = {.name = j->kernel,
                                .problem = &j->problem,
                                .file = j->file,
                                .text = j->source.data,
                                .arch = wl_context_device(j->ctx)->arch,
                                .device = wl_context_device(j->ctx),
                                .ptx = j->driver->simulator};
    return wl_kernel_choose(wl_context_tools(j->ctx), &request, record, NULL);
}

static bool is_changed(const cli_job *j) {
    return strcmp(j->problem.word[WL_P_score].name, "none");
}

static void to_floats(const wl_value *from, float to[WL_MAX_PARAMS]) {
    for (int i = 0; i < WL_MAX_PARAMS; i++) to[i] = (float)from->reals[i];
}

static void close_formulas(cli_job *j) {
    wl_formula_close(j->keep);
    wl_formula_close(j->value);
    j->keep = j->value = NULL;
}

wl_status cli_job_formulas(cli_job *j) {
    const wl_value *word = j->problem.word;
    const wl_value *args = &word[WL_P_mask_args], *score_args = &word[WL_P_score_args];
    if (!j->masked && args->n)
        return fail(WL_EINVAL, "mask_args: mask=%s has no params", word[WL_P_mask].name);
    if (!is_changed(j) && score_args->n)
        return fail(WL_EINVAL, "score_args: score=none has no params");
    close_formulas(j);
    if (!j->masked && !is_changed(j)) return WL_OK;
    wl_launch *record = wl_alloc(sizeof *record);
    float given[WL_MAX_PARAMS];
    to_floats(score_args, given);
    wl_status status = choose(j, record);
    if (!status) status = wl_launch_params(record, args->list, args->n, j->params);
    if (!status) status = wl_launch_score_params(record, given, score_args->n, j->score_params);
    if (!status) status = cli_tensors_make(j, record);
    if (!status && j->masked)
        j->keep = wl_formula_open_tensors(record->keep, record->param, record->n_params, j->named,
                                          j->n_named);
    if (!status && is_changed(j))
        j->value = wl_formula_open_tensors(record->value, record->score_param,
                                           record->n_score_params, j->named, j->n_named);
    free(record);
    return status;
}

static wl_precision precision(const cli_job *j) {
    const char *name = j->problem.word[WL_P_precision].name;
    return !strcmp(name, "accurate") ? WL_ACCURATE : !strcmp(name, "fast") ? WL_FAST : WL_BALANCED;
}

wl_status cli_job_prepare(cli_job *j) {
    j->forward = (wl_forward_args){.size = sizeof j->forward,
                                   .q = view(j, Q),
                                   .k = view(j, K),
                                   .v = view(j, V),
                                   .o = view(j, O),
                                   .lse = (float *)(uintptr_t)j->device[LSE],
                                   .mask = j->causal ? WL_MASK_CAUSAL : WL_MASK_NONE,
                                   .scale = (float)j->problem.word[WL_P_scale].real,
                                   .variant = j->problem.word[WL_P_variant].name,
                                   .kernel = j->kernel,
                                   .mask_name =
                                       j->masked ? j->problem.word[WL_P_mask].name : NULL,
                                   .n_mask_args = j->problem.word[WL_P_mask_args].n,
                                   .score_name =
                                       is_changed(j) ? j->problem.word[WL_P_score].name : NULL,
                                   .n_score_args = j->problem.word[WL_P_score_args].n,
                                   .scale_q = (float *)(uintptr_t)j->device_scale[Q],
                                   .scale_k = (float *)(uintptr_t)j->device_scale[K],
                                   .scale_v = (float *)(uintptr_t)j->device_scale[V],
                                   .scales = bytes_of(j, Q).by_head,
                                   .precision = precision(j)};
    memcpy(j->forward.mask_args, j->problem.word[WL_P_mask_args].list,
           sizeof j->forward.mask_args);
    to_floats(&j->problem.word[WL_P_score_args], j->forward.score_args);
    wl_status status = cli_job_formulas(j);
    if (status) return status;
    j->forward.tensors = j->views;
    j->forward.n_tensors = j->n_named;
    return j->file ? wl_context_use_source(j->ctx, &j->forward, j->file, j->source.data) : WL_OK;
}

wl_reference cli_job_reference(const cli_job *j) {
    double scale = j->problem.word[WL_P_scale].real;
    return (wl_reference){.keep = j->keep,
                          .params = {j->params[0], j->params[1], j->params[2], j->params[3]},
                          .value = j->value,
                          .score_params = {j->score_params[0], j->score_params[1],
                                           j->score_params[2], j->score_params[3]},
                          .dtype = j->dtype,
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
                          .eight = is_8bit(j),
                          .by_head = bytes_of(j, Q).by_head,
                          .scale_of = {j->scale[Q], j->scale[K], j->scale[V]},
                          .o = j->host[O],
                          .lse = j->host[LSE]};
}

wl_status cli_job_check(const cli_job *j, double work, wl_difference *out) {
    const wl_reference reference = cli_job_reference(j);
    return wl_reference_check(&reference, work, out);
}

double cli_job_format_error(const cli_job *j, double work) {
    wl_reference whole = cli_job_reference(j);
    wl_difference d;
    whole.q = j->whole[Q], whole.k = j->whole[K], whole.v = j->whole[V];
    memset(whole.scale_of, 0, sizeof whole.scale_of);
    wl_reference_check(&whole, work, &d);
    clear_message();
    return d.norm_ratio;
}

void cli_job_findings(const cli_job *j, cli_findings *list) {
    const cli_origin origin = {
        .driver = j->driver, .source = j->file, .tools = wl_context_tools(j->ctx)};
    cli_findings_take(list, &origin);
}

wl_status cli_job_chosen(const cli_job *j, char name[128]) {
    wl_launch *record = wl_alloc(sizeof *record);
    wl_status status = choose(j, record);
    if (!status) memcpy(name, record->choice, 128);
    free(record);
    return status;
}

void cli_job_clear(cli_job *j) {
    for (int t = 0; t < TENSORS; t++) {
        if (j->device[t]) j->driver->cuMemFree_v2(j->device[t]);
        free(j->host[t]);
        j->device[t] = 0;
        j->host[t] = NULL;
    }
    for (int t = Q; t <= V; t++) {
        if (j->device_scale[t]) j->driver->cuMemFree_v2(j->device_scale[t]);
        free(j->scale[t]), free(j->whole[t]);
        j->device_scale[t] = 0;
        j->scale[t] = NULL;
        j->whole[t] = NULL;
    }
}

void cli_job_close(cli_job *j) {
    cli_job_clear(j);
    cli_tensors_free(j);
    wl_close(j->ctx);
    close_formulas(j);
    wl_buf_free(&j->source);
}
