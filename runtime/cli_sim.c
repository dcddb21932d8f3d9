/* cli_sim.c - the command sim: any kernel's PTX in the simulator, launched as a file says.
   SPDX-License-Identifier: BSD-3-Clause */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_findings.h"
#include "foreign.h"
#include "npy.h"

#define PTX_MAX (64 << 20)
#define LAUNCH_MAX (1 << 18)
#define MAX_DYNAMIC_SHARED 8 /* CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES */
#define CLUSTER_DIMENSION 4  /* CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION */

/* A buffer of the launch file, and its device memory. */
typedef struct {
    wl_npy host;
    CUdeviceptr device;
} buffer;

typedef struct {
    const char *ptx_file;
    const wl_driver *driver;
    foreign_launch launch;
    wl_buf ptx;
    buffer *buffer;
    CUtensorMap *block; /* all parameters, each at a multiple of 64 bytes */
    void **params;
    CUlibrary library;
    CUkernel kernel;
    cli_findings findings;
} simulation;

static wl_status done(const simulation *s, const char *call, CUresult result) {
    return result ? wl_driver_fail(s->driver, result, call) : WL_OK;
}

/* As done, with the place in the launch file in front. */
static wl_status done_at(const simulation *s, int line, int column, const char *call,
                         CUresult result) {
    if (!result) return WL_OK;
    wl_driver_fail(s->driver, result, call);
    return fail(WL_EINVAL, "%s:%d:%d: %s", s->launch.file, line, column, message());
}

static wl_status read_files(simulation *s, const cli_args *args) {
    const char *file = args->value[OPTION_LAUNCH];
    wl_buf text = {0};
    if (!file || args->n_operands != 1)
        return fail(WL_EINVAL, "sim: expected FILE.ptx --launch FILE.json");
    s->ptx_file = args->operand[0];
    wl_status status = wl_file_read(s->ptx_file, PTX_MAX, &s->ptx);
    if (!status) status = wl_file_read(file, LAUNCH_MAX, &text);
    wl_buf_add(&s->ptx, "", 0); /* an empty file, too, is ended by a NUL */
    wl_buf_add(&text, "", 0);
    if (!status) status = foreign_parse(file, text.data, text.size, &s->launch);
    wl_buf_free(&text);
    return status;
}

static wl_status open_device(simulation *s) {
    CUcontext context;
    sim_device_settings settings;
    wl_status status = wl_driver_get("sim", &s->driver);
    if (status) return status;
    const wl_driver *d = s->driver;
    d->sim_device_get(&settings);
    settings.image = s->ptx_file;
    d->sim_device_set(&settings);
    status = done(s, "cuDevicePrimaryCtxRetain", d->cuDevicePrimaryCtxRetain(&context, 0));
    return status ? status : done(s, "cuCtxSetCurrent", d->cuCtxSetCurrent(context));
}

static wl_status load_kernel(simulation *s) {
    const wl_driver *d = s->driver;
    wl_status status = done(
        s, "cuLibraryLoadData",
        d->cuLibraryLoadData(&s->library, s->ptx.data, NULL, NULL, 0, NULL, NULL, 0));
    if (!status)
        status = done_at(s, s->launch.line, s->launch.column, "cuLibraryGetKernel",
                         d->cuLibraryGetKernel(&s->kernel, s->library, s->launch.entry));
    if (!status)
        status = done(s, "cuKernelSetAttribute",
                      d->cuKernelSetAttribute(MAX_DYNAMIC_SHARED, (int)s->launch.shared, s->kernel,
                                              0));
    return status;
}

/* ---- buffers ---- */

static wl_status load_buffer(const simulation *s, const foreign_buffer *from, buffer *b) {
    if (from->in) {
        wl_status status = wl_npy_load(from->in, &b->host);
        if (status) return status;
    } else {
        memcpy(b->host.descr, from->descr, sizeof b->host.descr);
        memcpy(b->host.shape, from->shape, sizeof b->host.shape);
        b->host.n_dims = from->n_dims;
    }
    size_t bytes = from->in ? b->host.data.size : from->bytes;
    return done_at(s, from->line, from->column, "cuMemAlloc",
                   s->driver->cuMemAlloc_v2(&b->device, bytes));
}

static wl_status load_buffers(simulation *s) {
    wl_status status = WL_OK;
    s->buffer = wl_alloc((size_t)(s->launch.n_buffers + 1) * sizeof *s->buffer);
    for (int i = 0; i < s->launch.n_buffers && !status; i++)
        status = load_buffer(s, &s->launch.buffer[i], &s->buffer[i]);
    return status;
}

static wl_status upload(const simulation *s) {
    wl_status status = WL_OK;
    for (int i = 0; i < s->launch.n_buffers && !status; i++) {
        const foreign_buffer *from = &s->launch.buffer[i];
        const buffer *b = &s->buffer[i];
        if (from->in)
            status = done(s, "cuMemcpyHtoD",
                          s->driver->cuMemcpyHtoD_v2(b->device, b->host.data.data,
                                                     b->host.data.size));
        else
            status = done(s, "cuMemsetD8", s->driver->cuMemsetD8_v2(b->device, 0, from->bytes));
    }
    return status;
}

static wl_status store_outputs(const simulation *s) {
    wl_status status = WL_OK;
    for (int i = 0; i < s->launch.n_buffers && !status; i++) {
        const foreign_buffer *from = &s->launch.buffer[i];
        wl_npy *host = &s->buffer[i].host;
        if (!from->out) continue;
        size_t bytes = from->in ? host->data.size : from->bytes;
        char *data = wl_alloc(bytes);
        wl_npy out = *host;
        out.data = (wl_buf){.data = data, .size = bytes};
        status = done(s, "cuMemcpyDtoH",
                      s->driver->cuMemcpyDtoH_v2(data, s->buffer[i].device, bytes));
        if (!status) status = wl_npy_save(from->out, &out);
        free(data);
    }
    return status;
}

/* ---- parameters ---- */

static wl_status put_field(const simulation *s, const foreign_field *f, char *param) {
    uint64_t value = f->bits;
    if (f->buffer >= 0) value += s->buffer[f->buffer].device;
    if (!f->map) {
        memcpy(param + f->offset, &value, f->size);
        return WL_OK;
    }
    const foreign_map *m = f->map;
    return done_at(s, f->line, f->column, "cuTensorMapEncodeTiled",
                   s->driver->cuTensorMapEncodeTiled(
                       (CUtensorMap *)(void *)(param + f->offset), m->type, (uint32_t)m->rank,
                       (void *)(uintptr_t)value, m->dims, m->strides, m->box, m->element_strides,
                       m->interleave, m->swizzle, 0, m->fill));
}

/* The kernel's own word on parameter `i`; 0 bytes when it has none. */
static size_t param_size(const simulation *s, size_t i) {
    CUresult (*info)(CUkernel, size_t, size_t *, size_t *) = NULL;
    size_t offset = 0, size = 0;
    void *address = dlsym(s->driver->library, "cuKernelGetParamInfo");
    memcpy(&info, &address, sizeof info);
    return info && !info(s->kernel, i, &offset, &size) ? size : 0;
}

static wl_status check_params(const simulation *s) {
    const foreign_launch *l = &s->launch;
    for (int i = 0; i < l->n_params; i++) {
        size_t want = param_size(s, (size_t)i), have = l->param[i].size;
        if (want == have) continue;
        if (!want)
            return fail(WL_EINVAL, "%s:%d:%d: %s takes %d parameters", l->file, l->param[i].line,
                        l->param[i].column, l->entry, i);
        return fail(WL_EINVAL, "%s:%d:%d: parameter %d of %s has %zu bytes, this is %zu", l->file,
                    l->param[i].line, l->param[i].column, i, l->entry, want, have);
    }
    size_t next = param_size(s, (size_t)l->n_params);
    if (!next) return WL_OK;
    return fail(WL_EINVAL, "%s:%d:%d: %s takes more than %d parameters; the next has %zu bytes",
                l->file, l->line, l->column, l->entry, l->n_params, next);
}

static wl_status make_params(simulation *s) {
    const foreign_launch *l = &s->launch;
    size_t total = 1;
    wl_status status = check_params(s);
    for (int i = 0; i < l->n_params; i++) total += l->param[i].size / sizeof *s->block + 1;
    s->params = wl_alloc((size_t)(l->n_params + 1) * sizeof *s->params);
    s->block = aligned_alloc(64, total * sizeof *s->block);
    if (!s->block) abort();
    memset(s->block, 0, total * sizeof *s->block);
    CUtensorMap *at = s->block;
    for (int i = 0; i < l->n_params && !status; i++) {
        s->params[i] = at;
        for (int f = 0; f < l->param[i].n_fields && !status; f++)
            status = put_field(s, &l->param[i].field[f], (char *)at);
        at += l->param[i].size / sizeof *s->block + 1;
    }
    return status;
}

/* ---- launch ---- */

static wl_status launch(const simulation *s) {
    const foreign_launch *l = &s->launch;
    wl_launch_attribute cluster = {.id = CLUSTER_DIMENSION};
    wl_launch_config config = {.shared = l->shared, .attributes = &cluster, .n_attributes = 1};
    memcpy(cluster.value, l->cluster, sizeof l->cluster);
    memcpy(config.grid, l->grid, sizeof l->grid);
    memcpy(config.block, l->block, sizeof l->block);
    if (l->cluster[0] * (uint64_t)l->cluster[1] * l->cluster[2] == 1) config.n_attributes = 0;
    return done_at(s, l->line, l->column, "cuLaunchKernelEx",
                   s->driver->cuLaunchKernelEx(&config, s->kernel, s->params, NULL));
}

static wl_status run(simulation *s, uint64_t schedules) {
    const cli_origin origin = {.driver = s->driver, .ptx = s->ptx_file};
    wl_status status = WL_OK;
    for (uint64_t i = 0; i < schedules && !status; i++) {
        if (schedules > 1) cli_schedule(s->driver, i);
        status = upload(s);
        if (!status) status = launch(s);
        cli_findings_take(&s->findings, &origin);
    }
    return status;
}

static wl_status tell(const simulation *s, bool json) {
    const char *entry = s->launch.entry;
    if (json || s->findings.n) cli_findings_print(&s->findings, json);
    if (s->findings.n) return fail(WL_EVERIFY, "%s: %d findings", entry, s->findings.n);
    if (!json) printf("%s: nothing found in %d launches\n", entry, s->findings.launches);
    return WL_OK;
}

static void close_all(simulation *s) {
    for (int i = 0; i < s->launch.n_buffers && s->buffer; i++) {
        if (s->buffer[i].device) s->driver->cuMemFree_v2(s->buffer[i].device);
        wl_buf_free(&s->buffer[i].host.data);
    }
    if (s->library) s->driver->cuLibraryUnload(s->library);
    free(s->buffer), free(s->params), free(s->block);
    cli_findings_free(&s->findings);
    foreign_free(&s->launch);
    wl_buf_free(&s->ptx);
}

wl_status cli_sim(const cli_args *args) {
    simulation s = {0};
    uint64_t schedules;
    wl_status status = cli_schedules(args, 1, &schedules);
    if (!status) status = read_files(&s, args);
    if (!status) status = open_device(&s);
    if (!status) status = load_kernel(&s);
    if (!status) status = load_buffers(&s);
    if (!status) status = make_params(&s);
    if (!status) status = run(&s, schedules);
    if (!status) status = store_outputs(&s);
    if (!status) status = tell(&s, args->value[OPTION_JSON]);
    char *text = wl_copy(message()); /* closing must not lose it */
    close_all(&s);
    if (status) fail(status, "%s", text);
    free(text);
    return status;
}
