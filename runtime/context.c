/* context.c - opens and closes a context; finds its device; loads kernels; hands out scratch.
   SPDX-License-Identifier: BSD-3-Clause */
#include "context.h"

#include <stdlib.h>
#include <string.h>

/* Slots of scratch: so many launches may be in flight before one is used again, and so many may be
   captured into graphs, whose slots are theirs for good. */
#define SLOTS 4096
#define CAPTURED_SLOTS 4096

static atomic_uint forks; /* how often this process is a child of a child */

static void count_fork(void) {
    atomic_fetch_add(&forks, 1);
}
static void watch_forks(void) {
    pthread_atfork(NULL, NULL, count_fork);
}

bool wl_context_mine(const wl_context *ctx) {
    return ctx->forks == atomic_load_explicit(&forks, memory_order_relaxed);
}

wl_status wl_context_check(const wl_context *ctx) {
    if (!ctx) return fail(WL_EINVAL, "ctx is NULL: wl_open makes one");
    if (wl_context_mine(ctx)) return WL_OK;
    return fail(WL_EINVAL, "ctx was opened before fork(): a child process opens one of its own");
}

static wl_status check(const wl_driver *driver, CUresult result, const char *what) {
    return result ? wl_driver_fail(driver, result, what) : WL_OK;
}

CUcontext wl_context_enter(const wl_context *ctx) {
    CUcontext old = NULL;
    ctx->driver->cuCtxGetCurrent(&old);
    if (old != ctx->cuda) ctx->driver->cuCtxSetCurrent(ctx->cuda);
    return old;
}

void wl_context_leave(const wl_context *ctx, CUcontext old) {
    if (old != ctx->cuda) ctx->driver->cuCtxSetCurrent(old);
}

/* The current CUDA context and its device, else device 0's primary context. */
static wl_status find_device(wl_context *ctx) {
    const wl_driver *d = ctx->driver;
    CUdevice device = 0; /* a CUdevice is its ordinal */
    wl_status status = check(d, d->cuCtxGetCurrent(&ctx->cuda), "cuCtxGetCurrent");
    if (!status && ctx->cuda) status = check(d, d->cuCtxGetDevice(&device), "cuCtxGetDevice");
    if (!status) status = wl_driver_device(d, device, &ctx->device);
    if (status || ctx->cuda) return status;
    status = check(d, d->cuDevicePrimaryCtxRetain(&ctx->cuda, device), "cuDevicePrimaryCtxRetain");
    ctx->primary = !status;
    return status;
}

static wl_status make_pool(wl_context *ctx) {
    const wl_driver *d = ctx->driver;
    size_t scratch = (SLOTS + CAPTURED_SLOTS) * WL_MAX_SCRATCH, bytes = scratch + WL_ZEROS;
    CUcontext old = wl_context_enter(ctx);
    wl_status status = check(d, d->cuMemAlloc_v2(&ctx->pool, bytes), "cuMemAlloc");
    if (!status) status = check(d, d->cuMemsetD8_v2(ctx->pool, 0, bytes), "cuMemsetD8");
    if (!status) status = check(d, d->cuStreamSynchronize(NULL), "cuStreamSynchronize");
    wl_context_leave(ctx, old);
    ctx->zeros = ctx->pool + scratch;
    return status;
}

/* The device's SMs, or fewer when the caller wants some for others. */
static wl_status limit_sms(wl_context *ctx, int asked) {
    if (asked < 0)
        return fail(WL_EINVAL, "options.sms = %d: expected 0, which means all, or the most SMs to "
                    "use", asked);
    ctx->sms = asked && asked < ctx->device.sms ? asked : ctx->device.sms;
    return WL_OK;
}

/* Each line of a text is a message. */
static void tell(wl_context *ctx, const char *text) {
    char *lines = wl_copy(text), *rest = lines, *line;
    while (ctx->log && (line = strsep(&rest, "\n")))
        if (*line) ctx->log(ctx->log_user, line);
    free(lines);
}

/* Bundles that are of no use here: no call fails by that. */
static void tell_refused(wl_context *ctx) {
    wl_store *store = wl_tools_store(ctx->tools);
    const char *refused;
    for (int i = 0; i < wl_store_count(store); i++) {
        bool bundle = wl_store_bundle(store, i, &refused);
        char *text = wl_format("%s: %s", wl_store_layer(store, i), refused ? refused : "");
        if (!bundle && refused && strcmp(refused, "none")) tell(ctx, text);
        free(text);
    }
}

wl_status wl_open(wl_context **out, const wl_options *options) {
    clear_message();
    if (!out) return fail(WL_EINVAL, "out is NULL");
    *out = NULL;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    wl_context *ctx = wl_alloc(sizeof *ctx);
    ctx->forks = atomic_load(&forks);
    pthread_mutex_init(&ctx->lock, NULL);
    wl_status status = wl_tools_open(&ctx->tools, options);
    if (!status) status = wl_driver_get(options ? options->device : NULL, &ctx->driver);
    if (!status) status = find_device(ctx);
    if (!status) status = limit_sms(ctx, options ? options->sms : 0);
    if (!status) status = make_pool(ctx);
    if (!status) wl_loader_open(&ctx->loader, ctx->driver, &ctx->device);
    if (options && !status) {
        ctx->log = options->log;
        ctx->log_user = options->log_user;
        tell_refused(ctx);
    }
    if (!status) wl_store_driver(wl_tools_store(ctx->tools), ctx->device.driver_version);
    if (status) wl_close(ctx);
    else *out = ctx;
    return status;
}

static void close_device(wl_context *ctx) {
    CUcontext old = wl_context_enter(ctx);
    wl_loader_close(ctx->loader);
    if (ctx->pool) ctx->driver->cuMemFree_v2(ctx->pool);
    wl_context_leave(ctx, old);
    if (ctx->primary) ctx->driver->cuDevicePrimaryCtxRelease_v2(ctx->device.id);
}

void wl_close(wl_context *ctx) {
    if (!ctx) return;
    if (ctx->cuda && wl_context_mine(ctx)) close_device(ctx);
    for (int i = 0; i < WL_BUCKETS; i++)
        for (wl_node *node = atomic_load(&ctx->table[i]), *next; node; node = next) {
            next = node->next;
            free(node);
        }
    for (int i = 0; i < WL_KEPT; i++) free(ctx->kept[i].made);
    wl_tools_close(ctx->tools);
    pthread_mutex_destroy(&ctx->lock);
    free(ctx);
}

/* Asks the driver only when an address is new: its answer takes a good part of a launch's time. */
wl_status wl_context_owns(wl_context *ctx, const char *name, const void *data) {
    uintptr_t address = (uintptr_t)data;
    atomic_uintptr_t *seen = &ctx->seen[(uint64_t)address * 0x9E3779B97F4A7C15u >> 56];
    if (atomic_load_explicit(seen, memory_order_relaxed) == address) return WL_OK;
    int ordinal;
    if (ctx->driver->cuPointerGetAttribute(&ordinal, 9 /* DEVICE_ORDINAL */, address))
        return fail(WL_EINVAL, "%s = %p is not memory of a CUDA device", name, data);
    if (ordinal != ctx->device.ordinal)
        return fail(WL_EINVAL, "%s is on device %d, the context on device %d: open a context there",
                    name, ordinal, ctx->device.ordinal);
    atomic_store_explicit(seen, address, memory_order_relaxed);
    return WL_OK;
}

bool wl_context_capturing(const wl_context *ctx, void *stream) {
    int status = 0;
    return !ctx->driver->cuStreamIsCapturing(stream, &status) && status;
}

/* Slots go round: the launch that had this one is SLOTS calls ago, long done. A graph may replay
   its launches at any time, so what it captured goes to no other. */
wl_status wl_context_scratch(wl_context *ctx, void *stream, CUdeviceptr *out) {
    bool captured = wl_context_capturing(ctx, stream);
    atomic_uint *next = captured ? &ctx->next_captured : &ctx->next_slot;
    unsigned slot = atomic_fetch_add_explicit(next, 1, memory_order_relaxed);
    if (captured && slot >= CAPTURED_SLOTS)
        return fail(WL_EFAIL,
                    "stream: %d launches of this context are captured into graphs already, each "
                    "with scratch of its own: open another context for more",
                    CAPTURED_SLOTS);
    *out = ctx->pool + (captured ? SLOTS + slot : slot % SLOTS) * WL_MAX_SCRATCH;
    return WL_OK;
}

/* Trouble with the cache is told once: it never fails a call. */
static void tell_cache(wl_context *ctx) {
    const char *reason = wl_cache_reason(wl_tools_cache(ctx->tools));
    char *text = wl_format("cache: %s", reason);
    if (*reason && !ctx->told) tell(ctx, text);
    if (*reason) ctx->told = true;
    free(text);
}

static wl_status load(wl_context *ctx, const wl_request *request, wl_launch *launch,
                      const char **layer, CUkernel *kernels) {
    wl_made made;
    wl_status status = wl_kernel_get(ctx->tools, request, &made);
    tell_cache(ctx);
    if (status) return status;
    for (int i = 0; i < made.launch.n_kernels; i++)
        if (made.compiled[i].warnings.size) tell(ctx, made.compiled[i].warnings.data);
    status = wl_kernel_load(ctx->loader, &made, kernels);
    *launch = made.launch;
    *layer = made.layer;
    wl_made_free(&made);
    return status;
}

/* An image from a layer that the driver refuses is compiled anew, once. */
wl_status wl_context_load(wl_context *ctx, const wl_request *request, wl_launch *launch,
                          const char **layer, CUkernel kernels[WL_MAX_KERNELS]) {
    wl_request own = *request;
    own.ptx = ctx->driver->simulator;
    *layer = "";
    wl_status status = load(ctx, &own, launch, layer, kernels);
    if (!status || !**layer || !strcmp(*layer, "jit") || !wl_tools_jit(ctx->tools)) return status;
    own.fresh = true;
    clear_message();
    return load(ctx, &own, launch, layer, kernels);
}

const wl_driver *wl_context_driver(const wl_context *ctx) {
    return ctx->driver;
}

const wl_device *wl_context_device(const wl_context *ctx) {
    return &ctx->device;
}

wl_tools *wl_context_tools(wl_context *ctx) {
    return ctx->tools;
}

wl_status wl_variant_add(wl_context *ctx, const char *yaml) {
    clear_message();
    wl_status status = wl_context_check(ctx);
    if (!status && !yaml) status = fail(WL_EINVAL, "yaml is NULL: expected a variant's text");
    if (status) return status;
    pthread_mutex_lock(&ctx->lock);
    status = wl_tools_variant(ctx->tools, yaml);
    pthread_mutex_unlock(&ctx->lock);
    return status;
}

const char *wl_error(void) {
    return message();
}

const char *wl_status_text(wl_status status) {
    static const struct {
        wl_status status;
        const char *text;
    } table[] = {
#define X(name, number, text) {WL_##name, text},
        WL_STATUS_TABLE(X)
#undef X
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].status == status) return table[i].text;
    return "unknown status";
}

const char *wl_version(void) {
    return WARPLOOM_VERSION;
}
