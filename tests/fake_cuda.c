/* fake_cuda.c - a libcuda.so.1 of malloc: every entry point that we use, launches recorded.
   SPDX-License-Identifier: BSD-3-Clause

   Named by WARPLOOM_LIBCUDA. The environment is read at each call:
     FAKE_CUDA_FAIL=NAME:CODE[:N]   that entry point returns CODE (N times)
     FAKE_CUDA_DEVICES=N        how many devices there are (1)
     FAKE_CUDA_CC=90            compute capability
     FAKE_CUDA_ALLOC=N          device on which memory is allocated (0)
   A test reads what happened through fake_cuda_state. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_cuda.h"

#define X(name, parameters) WARPLOOM_API CUresult name parameters;
WL_DRIVER_TABLE(X)
#undef X
WARPLOOM_API fake_state *fake_cuda_state(void);

/* What only the timer asks for: between two events each launch takes 10 us. */
WARPLOOM_API CUresult cuEventCreate(int **event, unsigned flags);
WARPLOOM_API CUresult cuEventRecord(int *event, void *stream);
WARPLOOM_API CUresult cuEventSynchronize(int *event);
WARPLOOM_API CUresult cuEventElapsedTime(float *ms, const int *from, const int *to);

enum {
    OK,
    INVALID_VALUE,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    NOT_FOUND = 500
};

static fake_state state;
static _Thread_local CUcontext current;
static struct {
    char *at;
    size_t bytes;
    int device;
} memory[4096];
static int devices_of_context[8] = {0, 1, 2, 3, 4, 5, 6, 7};

fake_state *fake_cuda_state(void) {
    return &state;
}

static int number(const char *variable, int otherwise) {
    const char *text = getenv(variable);
    return text && *text ? atoi(text) : otherwise;
}

static CUresult injected(const char *name) {
    char text[128];
    int code = 0, times = -1;
    snprintf(text, sizeof text, "%s", getenv("FAKE_CUDA_FAIL") ? getenv("FAKE_CUDA_FAIL") : "");
    char *colon = strchr(text, ':');
    if (!colon || (size_t)(colon - text) != strlen(name) || strncmp(text, name, strlen(name)))
        return OK;
    sscanf(colon, ":%d:%d", &code, &times);
    snprintf(colon, sizeof text - (size_t)(colon - text), ":%d:%d", times ? code : 0, times - 1);
    if (times >= 0) setenv("FAKE_CUDA_FAIL", text, 1);
    return times ? code : OK;
}
#define ENTER()                                                                                    \
    do {                                                                                           \
        CUresult bad = injected(__func__);                                                         \
        if (bad) return bad;                                                                       \
    } while (0)

CUresult cuInit(unsigned flags) {
    ENTER();
    return flags ? INVALID_VALUE : OK;
}

CUresult cuDriverGetVersion(int *version) {
    ENTER();
    *version = 13000;
    return OK;
}

CUresult cuDeviceGetCount(int *n) {
    ENTER();
    *n = number("FAKE_CUDA_DEVICES", 1);
    return OK;
}

CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER();
    *device = ordinal;
    return ordinal < number("FAKE_CUDA_DEVICES", 1) ? OK : INVALID_DEVICE;
}

CUresult cuDeviceGetName(char *name, int size, CUdevice device) {
    ENTER();
    snprintf(name, (size_t)size, "Fake GPU %d", device);
    return OK;
}

CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    static const struct {
        int attribute, value;
    } table[] = {
        {16, 132},      /* multiprocessors */
        {97, 232448},   /* bytes of shared memory that a block may ask for */
        {38, 50 << 20}, /* L2 */
    };
    ENTER();
    (void)device;
    int cc = number("FAKE_CUDA_CC", 90);
    if (attribute == 75) *value = cc / 10;
    if (attribute == 76) *value = cc % 10;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].attribute == attribute) *value = table[i].value;
    return OK;
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device) {
    ENTER();
    (void)device;
    *bytes = (size_t)139 << 30;
    return OK;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device) {
    ENTER();
    *context = (CUcontext)(void *)&devices_of_context[device];
    state.retained++;
    return OK;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    ENTER();
    (void)device;
    state.retained--;
    return OK;
}

CUresult cuCtxGetCurrent(CUcontext *context) {
    ENTER();
    *context = current;
    return OK;
}

CUresult cuCtxSetCurrent(CUcontext context) {
    ENTER();
    current = context;
    return OK;
}

CUresult cuCtxGetDevice(CUdevice *device) {
    ENTER();
    *device = current ? *(int *)(void *)current : -1;
    return OK;
}

CUresult cuCtxSynchronize(void) {
    ENTER();
    return OK;
}

CUresult cuGetErrorName(CUresult error, const char **name) {
    static const struct {
        CUresult error;
        const char *name;
    } table[] = {
        {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"},
        {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE"}, {NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {700, "CUDA_ERROR_ILLEGAL_ADDRESS"},         {NO_DEVICE, "CUDA_ERROR_NO_DEVICE"},
    };
    *name = NULL;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].error == error) *name = table[i].name;
    return *name ? OK : INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text) {
    *text = "a fake error";
    return cuGetErrorName(error, &(const char *){NULL});
}

struct CUlib_st {
    char magic[4];
};
struct CUkern_st {
    char name[128];
    int shared;
};

CUresult cuLibraryLoadData(CUlibrary *library, const void *image, void *jit_options,
                           void **jit_values, unsigned n_jit, void *options, void **values,
                           unsigned n) {
    ENTER();
    if (jit_options || jit_values || n_jit || options || values || n) return INVALID_VALUE;
    if (memcmp(image, "\177ELF", 4)) return INVALID_IMAGE;
    *library = malloc(sizeof **library);
    state.libraries++;
    return OK;
}

CUresult cuLibraryUnload(CUlibrary library) {
    ENTER();
    free(library);
    state.libraries--;
    return OK;
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    static struct CUkern_st kernels[256];
    ENTER();
    if (!library) return NOT_FOUND;
    *kernel = &kernels[state.kernels++ % 256];
    snprintf((*kernel)->name, sizeof(*kernel)->name, "%s", name);
    return OK;
}

CUresult cuKernelSetAttribute(int attribute, int value, CUkernel kernel, CUdevice device) {
    ENTER();
    if (attribute != 8 || value > 232448 || device < 0) return INVALID_VALUE;
    kernel->shared = value;
    return OK;
}

/* cuda.h's CUlaunchConfig and CUlaunchAttribute. */
typedef struct {
    int id, pad;
    unsigned value[16];
} attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    const attribute *attributes;
    unsigned n_attributes;
} configuration;

CUresult cuLaunchKernelEx(const void *config, CUkernel kernel, void **params, void **extra) {
    const configuration *c = config;
    ENTER();
    if (extra || kernel->shared < (int)c->shared || !current) return INVALID_VALUE;
    fake_launch *l = &state.launch[state.launches++ % FAKE_LAUNCHES];
    memset(l, 0, sizeof *l);
    snprintf(l->name, sizeof l->name, "%s", kernel->name);
    memcpy(l->grid, c->grid, sizeof l->grid);
    memcpy(l->block, c->block, sizeof l->block);
    l->shared = c->shared;
    l->stream = c->stream;
    l->cluster = c->n_attributes && c->attributes[0].id == 4 ? c->attributes[0].value[0] : 1;
    if (!strncmp(l->name, "quantize", 8)) {
        memcpy(&l->quantize, params[0], sizeof l->quantize);
        return OK;
    }
    for (int i = 0; i < 4; i++) memcpy(&l->map[i], params[i], sizeof l->map[i]);
    memcpy(&l->fwd, params[4], sizeof l->fwd);
    return OK;
}

/* The rules of the driver that a map must keep; what it was made of is the map. */
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, uint32_t rank, void *address,
                                const uint64_t *dims, const uint64_t *strides, const uint32_t *box,
                                const uint32_t *element_strides, int interleave, int swizzle,
                                int promotion, int fill) {
    ENTER();
    fake_map m = {.address = address, .type = type, .swizzle = swizzle, .promotion = promotion};
    if ((uintptr_t)map % 64 || (uintptr_t)address % 16 || rank != 4 || interleave || fill)
        return INVALID_VALUE;
    for (int i = 0; i < 4; i++) {
        if (!dims[i] || dims[i] > (uint64_t)1 << 32 || !box[i] || box[i] > 256 ||
            element_strides[i] != 1)
            return INVALID_VALUE;
        m.dims[i] = dims[i];
        m.box[i] = box[i];
    }
    for (int i = 0; i < 3; i++) {
        if (strides[i] % 16 || strides[i] >= (uint64_t)1 << 40) return INVALID_VALUE;
        m.strides[i] = strides[i];
    }
    uint32_t row = box[0] * (type ? 2 : 1);
    if (row % 16 || row > 16u << swizzle) return INVALID_VALUE;
    _Static_assert(sizeof m <= sizeof *map, "room");
    memset(map, 0, sizeof *map);
    memcpy(map, &m, sizeof m);
    return OK;
}

CUresult cuMemAlloc_v2(CUdeviceptr *pointer, size_t bytes) {
    ENTER();
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        if (memory[i].at) continue;
        memory[i].at = aligned_alloc(256, (bytes + 255) / 256 * 256);
        memory[i].bytes = bytes;
        memory[i].device = number("FAKE_CUDA_ALLOC", 0);
        *pointer = (CUdeviceptr)(uintptr_t)memory[i].at;
        state.allocations++;
        return OK;
    }
    return 2;
}

CUresult cuMemFree_v2(CUdeviceptr pointer) {
    ENTER();
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        if ((CUdeviceptr)(uintptr_t)memory[i].at != pointer) continue;
        free(memory[i].at);
        memory[i].at = NULL;
        state.allocations--;
        return OK;
    }
    return INVALID_VALUE;
}

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t bytes) {
    ENTER();
    memset((void *)(uintptr_t)pointer, value, bytes);
    return OK;
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    ENTER();
    memcpy((void *)(uintptr_t)to, from, bytes);
    return OK;
}

CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    ENTER();
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return OK;
}

CUresult cuPointerGetAttribute(void *value, int attribute_id, CUdeviceptr pointer) {
    ENTER();
    state.pointer_queries++;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        CUdeviceptr at = (CUdeviceptr)(uintptr_t)memory[i].at;
        if (!at || pointer < at || pointer >= at + memory[i].bytes || attribute_id != 9) continue;
        *(int *)value = memory[i].device;
        return OK;
    }
    return INVALID_VALUE;
}

CUresult cuStreamSynchronize(CUstream stream) {
    ENTER();
    (void)stream;
    return OK;
}

CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    ENTER();
    (void)stream;
    *status = getenv("FAKE_CUDA_CAPTURING") != NULL;
    return OK;
}

CUresult cuEventCreate(int **event, unsigned flags) {
    static int events[64], n;
    ENTER();
    *event = &events[n++ % 64];
    return flags ? INVALID_VALUE : OK;
}

CUresult cuEventRecord(int *event, void *stream) {
    ENTER();
    *event = state.launches;
    return stream ? INVALID_VALUE : OK;
}

CUresult cuEventSynchronize(int *event) {
    ENTER();
    return event ? OK : INVALID_VALUE;
}

CUresult cuEventElapsedTime(float *ms, const int *from, const int *to) {
    ENTER();
    *ms = 0.01f * (float)(*to - *from);
    return OK;
}
