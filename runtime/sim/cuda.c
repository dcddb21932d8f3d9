/* cuda.c - the driver's face: errors, the device, contexts, streams and events.
   SPDX-License-Identifier: BSD-3-Clause */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cuda_state.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define DRIVER_VERSION 13000

/* The process's devices, as a driver has them: alike, each with memory of its own. */
#define MAX_DEVICES 8
static struct {
    pthread_mutex_t lock;
    bool ready; /* the settings are read */
    atomic_bool initialized;
    int count;
    sim_device_settings settings;
    struct CUctx_st *primary[MAX_DEVICES];
} device = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local struct {
    CUcontext at[16];
    int n;
} stack; /* of current contexts */
static _Thread_local CUresult last; /* whose message is set */

/* ---- errors ---- */

static const struct {
    CUresult result;
    const char *name, *text;
} results[] = {
#define X(name, number, text) {name, #name, text},
    CU_RESULT_TABLE(X)
#undef X
};

CUresult cuda_refused(CUresult result) {
    return last = result;
}

CUresult cuda_refuse(CUresult result, const char *format, ...) {
    va_list args;
    char text[512];
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail(WL_EFAIL, "%s", text);
    return cuda_refused(result);
}

CUresult cuda_ready(void) {
    if (device.initialized) return CUDA_SUCCESS;
    return cuda_refuse(CUDA_ERROR_NOT_INITIALIZED, "call cuInit");
}

static CUresult null_pointer(const char *name) {
    return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "%s is NULL", name);
}

CUresult cuda_given(const void *pointer, const char *name) {
    CUresult result = cuda_ready();
    return result || pointer ? result : null_pointer(name);
}

CUresult cuda_handle(const void *handle) {
    CUresult result = cuda_ready();
    if (result || handle) return result;
    return cuda_refuse(CUDA_ERROR_INVALID_HANDLE, "the handle is NULL");
}

static CUresult look_up(CUresult error, bool text, const char **out) {
    if (!out) return null_pointer(text ? "text" : "name");
    *out = NULL;
    for (size_t i = 0; i < COUNT(results); i++)
        if (results[i].result == error) *out = text ? results[i].text : results[i].name;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    return look_up(error, false, name);
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    CUresult result = look_up(error, true, text);
    if (!result && error && error == last && *message()) *text = message();
    return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                             int *status) {
    static const struct {
        const char *name;
        void (*function)(void);
    } table[] = {
#define X(entry, parameters) {#entry, (void (*)(void))entry},
        CU_ENTRY_TABLE(X)
#undef X
    };
    (void)flags;
    if (!name || !function) return null_pointer(name ? "function" : "name");
    size_t size = strlen(name);
    *function = NULL;
    for (size_t i = 0; i < COUNT(table); i++) {
        const char *rest = strncmp(table[i].name, name, size) ? "?" : table[i].name + size;
        bool is = !*rest || !strcmp(rest, "_v2") || (version >= 13000 && !strcmp(rest, "_v4"));
        if (is) memcpy(function, &table[i].function, sizeof *function);
    }
    if (status) *status = !*function; /* 1: symbol not found */
    if (*function) return CUDA_SUCCESS;
    return cuda_refuse(CUDA_ERROR_NOT_FOUND, "the simulator has no %s", name);
}

CUresult cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

/* ---- the device ---- */

/* A whole number of the environment; `otherwise` when unset or something else. */
static uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = getenv(variable);
    char *end;
    uint64_t value = text ? strtoull(text, &end, 10) : 0;
    return text && *text >= '0' && *text <= '9' && !*end ? value : otherwise;
}

static sim_order order_of(const char *text) {
    static const char *const names[] = {"eager", "lazy", "random"};
    for (size_t i = 0; text && i < COUNT(names); i++)
        if (!strcmp(text, names[i])) return (sim_order)i;
    return SIM_EAGER;
}

static void read_settings(sim_device_settings *out) {
    uint64_t sms = number("WARPLOOM_SIM_SMS", 132);
    const char *sums = getenv("WARPLOOM_SIM_SUMS");
    *out = (sim_device_settings){.sms = sms && sms <= 1024 ? (int)sms : 132};
    out->options = (sim_options){.check = number("WARPLOOM_SIM_CHECK", 1) != 0,
                                 .order = order_of(getenv("WARPLOOM_SIM_ORDER")),
                                 .seed = number("WARPLOOM_SIM_SEED", 0),
                                 .max_steps = number("WARPLOOM_SIM_STEPS", 0),
                                 .hardware_sums = sums && !strcmp(sums, "hardware"),
                                 .threads = (int)(number("WARPLOOM_SIM_THREADS", 0) & 0x3ff)};
}

static void make_ready(void) {
    uint64_t count = number("WARPLOOM_SIM_DEVICES", 1);
    if (!device.ready) read_settings(&device.settings);
    if (!device.count) device.count = count && count <= MAX_DEVICES ? (int)count : 1;
    device.ready = true;
}

CUresult cuInit(unsigned flags) {
    if (flags) return cuda_refuse(CUDA_ERROR_INVALID_VALUE, "flags = %u: expected 0", flags);
    pthread_mutex_lock(&device.lock);
    make_ready();
    device.initialized = true;
    return cuda_leave(CUDA_SUCCESS);
}

void sim_device_get(sim_device_settings *out) {
    pthread_mutex_lock(&device.lock);
    make_ready();
    *out = device.settings;
    pthread_mutex_unlock(&device.lock);
}

void sim_device_set(const sim_device_settings *settings) {
    pthread_mutex_lock(&device.lock);
    make_ready();
    device.settings = *settings;
    pthread_mutex_unlock(&device.lock);
}

CUresult cuDriverGetVersion(int *version) {
    if (!version) return null_pointer("version");
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *n) {
    CUresult result = cuda_given(n, "n");
    if (!result) *n = device.count ? device.count : 1;
    return result;
}

CUresult cuDeviceGet(CUdevice *out, int ordinal) {
    CUresult result = cuda_given(out, "device");
    if (!result) *out = ordinal;
    if (result || (ordinal >= 0 && ordinal < (device.count ? device.count : 1))) return result;
    return cuda_refuse(CUDA_ERROR_INVALID_DEVICE, "device %d: %s", ordinal,
                       device.count > 1 ? "WARPLOOM_SIM_DEVICES says how many there are"
                                        : "there is but device 0");
}

CUresult cuDeviceGetName(char *name, int size, CUdevice id) {
    CUresult result = cuda_given(name, "name");
    (void)id;
    if (!result) snprintf(name, size > 0 ? (size_t)size : 0, "warploom simulator");
    return result;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice id) {
    static const struct {
        int attribute, value;
    } table[] = {
        {1, 1024},                            /* threads of a block */
        {2, 1024}, {3, 1024}, {4, 64},        /* blockDim */
        {5, 2147483647}, {6, 65535}, {7, 65535}, /* gridDim */
        {8, 49152},            /* shared memory of a block */
        {9, 65536},            /* constant memory */
        {10, 32},              /* lanes */
        {12, 65536},           /* registers of a block */
        {13, 1980000},         /* kHz */
        {38, 50 << 20},        /* L2 */
        {39, 2048},            /* threads of a multiprocessor */
        {41, 1},               /* unified addressing */
        {75, 9}, {76, 0},      /* compute capability */
        {81, 233472},          /* shared memory of a multiprocessor */
        {82, 65536},           /* registers of a multiprocessor */
        {97, CUDA_MAX_SHARED}, /* shared memory of a block, opt-in */
        {106, 32},             /* blocks of a multiprocessor */
        {111, 1024},           /* shared memory reserved in each block */
        {120, 1},              /* clusters */
        {127, 1},              /* tensor maps */
    };
    CUresult result = cuda_given(value, "value");
    (void)id;
    if (result) return result;
    *value = attribute == 16 ? device.settings.sms : 0; /* what isn't listed isn't supported */
    for (size_t i = 0; i < COUNT(table); i++)
        if (table[i].attribute == attribute) *value = table[i].value;
    return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice id) {
    CUresult result = cuda_given(bytes, "bytes");
    (void)id;
    if (!result) *bytes = (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    return result;
}

/* ---- contexts ---- */

static CUcontext current(void) {
    return stack.n ? stack.at[stack.n - 1] : NULL;
}

CUresult cuda_enter(CUcontext *out) {
    CUresult result = cuda_ready();
    if (result) return result;
    *out = current();
    if (!*out)
        return cuda_refuse(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
    pthread_mutex_lock(&device.lock);
    return CUDA_SUCCESS;
}

CUresult cuda_leave(CUresult result) {
    pthread_mutex_unlock(&device.lock);
    return result;
}

static const sim_finding *first_finding(const launched *list, const char **kernel) {
    const sim_finding *first = NULL;
    for (; list; list = list->next) {
        if (!list->result.n_findings) continue;
        first = &list->result.finding[0];
        *kernel = list->kernel;
    }
    return first;
}

CUresult cuda_settle(CUcontext context, CUresult result) {
    const char *kernel = NULL;
    const sim_finding *first = first_finding(context->launched, &kernel);
    bool failed = context->failed && first;
    sim_memory_settle(context->memory);
    context->failed = false;
    if (failed)
        result = cuda_refuse(CUDA_ERROR_LAUNCH_FAILED, "%s: line %d of the PTX, %d of the source: "
                             "%s: %s", kernel, first->ptx_line, first->source_line, first->rule,
                             first->text);
    return cuda_leave(result);
}

static CUcontext make_context(CUdevice id) {
    CUcontext context = wl_alloc(sizeof *context);
    context->device = id;
    context->memory = sim_memory_open();
    return context;
}

static void drop_context(CUcontext context) {
    cuda_memory_drop(context);
    cuda_findings_drop(context);
    sim_memory_close(context->memory);
    if (current() == context) stack.n--;
    free(context);
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice id) {
    CUresult result = cuda_given(context, "context");
    if (!result) *context = NULL, result = cuDeviceGet(&id, id);
    if (result) return result;
    pthread_mutex_lock(&device.lock);
    CUcontext *primary = &device.primary[id];
    if (!*primary) *primary = make_context(id);
    (*primary)->users++;
    *context = *primary;
    return cuda_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice id) {
    CUresult result = cuda_ready();
    if (!result) result = cuDeviceGet(&id, id);
    if (result) return result;
    CUcontext *primary = &device.primary[id];
    pthread_mutex_lock(&device.lock);
    if (!*primary)
        return cuda_leave(
            cuda_refuse(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained"));
    if (!--(*primary)->users) {
        drop_context(*primary);
        *primary = NULL;
    }
    return cuda_leave(CUDA_SUCCESS);
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice id) {
    (void)flags;
    CUresult result = cuda_given(context, "context");
    if (!result) *context = NULL, result = cuDeviceGet(&id, id);
    if (result) return result;
    *context = make_context(id);
    return cuCtxPushCurrent_v2(*context);
}

/* CUDA 13's; what `params` asks for is a share of the hardware. */
CUresult cuCtxCreate_v4(CUcontext *context, const void *params, unsigned flags, CUdevice id) {
    (void)params;
    return cuCtxCreate_v2(context, flags, id);
}

CUresult cuCtxDestroy_v2(CUcontext context) {
    CUresult result = cuda_ready();
    if (result) return result;
    if (!context) return cuda_refuse(CUDA_ERROR_INVALID_CONTEXT, "context is NULL");
    pthread_mutex_lock(&device.lock);
    drop_context(context);
    return cuda_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    CUresult result = cuda_given(context, "context");
    if (!result) *context = current();
    return result;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    CUresult result = cuda_ready();
    if (!result && stack.n) stack.n--;
    return context && !result ? cuCtxPushCurrent_v2(context) : result;
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
    CUresult result = cuda_ready();
    if (result) return result;
    if (!context || stack.n == (int)COUNT(stack.at))
        return cuda_refuse(CUDA_ERROR_INVALID_CONTEXT,
                           context ? "16 contexts are on the stack" : "context is NULL");
    stack.at[stack.n++] = context;
    return CUDA_SUCCESS;
}

/* A caller that does not ask which it was gives NULL. */
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    CUresult result = cuda_ready();
    if (result) return result;
    if (context) *context = current();
    if (!stack.n) return cuda_refuse(CUDA_ERROR_INVALID_CONTEXT, "no context to pop");
    stack.n--;
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *id) {
    CUresult result = cuda_given(id, "device");
    if (!result) *id = stack.n ? current()->device : 0;
    if (result || stack.n) return result;
    return cuda_refuse(CUDA_ERROR_INVALID_CONTEXT, "this thread has no current context");
}

CUresult cuCtxSynchronize(void) {
    CUcontext context;
    CUresult result = cuda_enter(&context);
    return result ? result : cuda_settle(context, CUDA_SUCCESS);
}

/* ---- streams and events: everything is done when its call returns ---- */

struct CUstream_st {
    unsigned flags;
};
struct CUevent_st {
    double milliseconds;
    bool recorded;
};

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    CUresult result = cuda_given(stream, "stream");
    if (!result) (*stream = wl_alloc(sizeof **stream))->flags = flags;
    return result;
}

CUresult cuStreamDestroy_v2(CUstream stream) {
    CUresult result = cuda_handle(stream);
    free(stream);
    return result;
}

CUresult cuStreamSynchronize(CUstream stream) {
    (void)stream;
    return cuCtxSynchronize();
}

/* No graphs here. */
CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    CUresult result = cuda_given(status, "status");
    (void)stream;
    if (!result) *status = 0;
    return result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    (void)stream, (void)flags;
    return cuda_handle(event);
}

CUresult cuEventCreate(CUevent *event, unsigned flags) {
    CUresult result = cuda_given(event, "event");
    (void)flags;
    if (!result) *event = wl_alloc(sizeof **event);
    return result;
}

CUresult cuEventDestroy_v2(CUevent event) {
    CUresult result = cuda_handle(event);
    free(event);
    return result;
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    struct timespec t;
    CUresult result = cuda_handle(event);
    (void)stream;
    if (result) return result;
    clock_gettime(CLOCK_MONOTONIC, &t);
    event->milliseconds = 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
    event->recorded = true;
    return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent event) {
    return cuda_handle(event);
}

CUresult cuEventSynchronize(CUevent event) {
    CUresult result = cuda_handle(event);
    return result ? result : cuCtxSynchronize();
}

CUresult cuEventElapsedTime(float *milliseconds, CUevent start, CUevent end) {
    CUresult result = cuda_given(milliseconds, "milliseconds");
    if (result || (result = cuda_handle(start)) || (result = cuda_handle(end))) return result;
    if (!start->recorded || !end->recorded)
        return cuda_refuse(CUDA_ERROR_INVALID_HANDLE, "an event was not recorded");
    *milliseconds = (float)(end->milliseconds - start->milliseconds);
    return CUDA_SUCCESS;
}

/* CUDA 13's name for it. */
CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end) {
    return cuEventElapsedTime(milliseconds, start, end);
}
