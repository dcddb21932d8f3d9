/* test_sim_device.c - the simulator's driver: every entry point, with a kernel of a few lines.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include <stdlib.h>

#include "cuda.h"
#include "device.h"

static const char scale[] =
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry scale(.param .u64 x, .param .f32 a, .param .u32 n)\n{\n"
    ".reg .pred %p<2>;\n.reg .b32 %r<6>;\n.reg .f32 %f<4>;\n.reg .b64 %rd<5>;\n"
    "ld.param.u64 %rd1, [x];\nld.param.f32 %f1, [a];\nld.param.u32 %r1, [n];\n"
    "mov.u32 %r2, %ctaid.x;\nmov.u32 %r3, %ntid.x;\nmov.u32 %r4, %tid.x;\n"
    "mad.lo.s32 %r5, %r2, %r3, %r4;\nsetp.ge.s32 %p1, %r5, %r1;\n@%p1 bra $done;\n"
    "cvta.to.global.u64 %rd2, %rd1;\nmul.wide.s32 %rd3, %r5, 4;\nadd.s64 %rd4, %rd2, %rd3;\n"
    "ld.global.f32 %f2, [%rd4];\nmul.f32 %f3, %f2, %f1;\nst.global.f32 [%rd4], %f3;\n"
    "$done:\nret;\n}\n";

/* What the last call of this thread was refused for. */
static const char *reason(CUresult result) {
    const char *text = NULL;
    cuGetErrorString(result, &text);
    return text;
}

#define CHECK_REFUSED(call, result, text)                                                          \
    do {                                                                                           \
        CUresult got = (call);                                                                     \
        CHECK_INT(got, result);                                                                    \
        CHECK_STR(reason(got), text);                                                              \
    } while (0)

/* Every call that needs cuInit, with NULL for what it can be given: told before its arguments. */
static void refuses_before_init(void) {
    const CUresult results[] = {
        cuDeviceGetName(NULL, 1, 0),
        cuDeviceGetAttribute(NULL, 1, 0),
        cuDeviceTotalMem(NULL, 0),
        cuDevicePrimaryCtxRetain(NULL, 0),
        cuDevicePrimaryCtxRelease(0),
        cuCtxCreate(NULL, 0, 0),
        cuCtxCreate_v4(NULL, NULL, 0, 0),
        cuCtxDestroy(NULL),
        cuCtxGetCurrent(NULL),
        cuCtxSetCurrent(NULL),
        cuCtxPushCurrent(NULL),
        cuCtxPopCurrent(NULL),
        cuCtxGetDevice(NULL),
        cuCtxSynchronize(),
        cuStreamCreate(NULL, 0),
        cuStreamDestroy(NULL),
        cuStreamSynchronize(NULL),
        cuStreamIsCapturing(NULL, NULL),
        cuStreamWaitEvent(NULL, NULL, 0),
        cuEventCreate(NULL, 0),
        cuEventDestroy(NULL),
        cuEventRecord(NULL, NULL),
        cuEventQuery(NULL),
        cuEventSynchronize(NULL),
        cuEventElapsedTime(NULL, NULL, NULL),
        cuMemAlloc(NULL, 4),
        cuMemFree(0),
        cuMemsetD8(0, 0, 1),
        cuMemsetD32(0, 0, 1),
        cuMemcpyHtoD(0, NULL, 1),
        cuMemcpyDtoH(NULL, 0, 1),
        cuMemcpyDtoD(0, 0, 1),
        cuMemcpyDtoHAsync(NULL, 0, 1, NULL),
        cuPointerGetAttribute(NULL, 2, 0),
        cuTensorMapEncodeTiled(NULL, 0, 0, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0),
        cuLibraryLoadData(NULL, NULL, NULL, NULL, 0, NULL, NULL, 0),
        cuLibraryUnload(NULL),
        cuLibraryGetKernel(NULL, NULL, NULL),
        cuKernelGetFunction(NULL, NULL),
        cuKernelGetParamInfo(NULL, 0, NULL, NULL),
        cuKernelSetAttribute(8, 0, NULL, 0),
        cuModuleLoadData(NULL, NULL),
        cuFuncGetAttribute(NULL, 0, NULL),
        cuLaunchKernelEx(NULL, NULL, NULL, NULL),
        cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
    };
    for (size_t i = 0; i < sizeof results / sizeof *results; i++)
        CHECK_INT(results[i], CUDA_ERROR_NOT_INITIALIZED);
}

TEST(before_init) {
    int n, major;
    CUdevice device;
    CUcontext context;
    CHECK_REFUSED(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED, "call cuInit");
    CHECK_REFUSED(cuDeviceGet(&device, 0), CUDA_ERROR_NOT_INITIALIZED, "call cuInit");
    refuses_before_init();
    CHECK_REFUSED(cuInit(1), CUDA_ERROR_INVALID_VALUE, "flags = 1: expected 0");
    setenv("WARPLOOM_SIM_SMS", "7", 1);
    setenv("WARPLOOM_SIM_ORDER", "lazy", 1);
    setenv("WARPLOOM_SIM_SEED", "99", 1);
    CHECK_INT(cuInit(0), CUDA_SUCCESS);
    CHECK_INT(cuDeviceGetCount(&n), CUDA_SUCCESS);
    CHECK_INT(n, 1);
    CHECK_REFUSED(cuDeviceGet(&device, 1), CUDA_ERROR_INVALID_DEVICE,
                  "device 1: there is but device 0");
    CHECK_REFUSED(cuDevicePrimaryCtxRetain(&context, 2), CUDA_ERROR_INVALID_DEVICE,
                  "device 2: there is but device 0");
    CHECK_REFUSED(cuCtxCreate(&context, 0, 2), CUDA_ERROR_INVALID_DEVICE,
                  "device 2: there is but device 0");
    CHECK_INT(cuDeviceGetAttribute(&n, 16, 0), CUDA_SUCCESS);
    CHECK_INT(n, 7);
    cuDeviceGetAttribute(&major, 75, 0);
    cuDeviceGetAttribute(&n, 97, 0);
    CHECK(major == 9 && n == 232448);
    cuDeviceGetAttribute(&n, 12345, 0);
    CHECK_INT(n, 0);
    sim_device_settings settings;
    sim_device_get(&settings);
    CHECK(settings.options.order == SIM_LAZY && settings.options.seed == 99);
    CHECK(settings.options.check);
}

TEST(null_is_refused) {
    void *function;
    CUevent event;
    float ms;
    uint64_t two[2] = {64, 32};
    uint32_t box[2] = {64, 8};
    CUtensorMap map;
    CHECK_INT(cuEventCreate(&event, 0), CUDA_SUCCESS);
    CHECK_REFUSED(cuMemAlloc(NULL, 4), CUDA_ERROR_INVALID_VALUE, "pointer is NULL");
    CHECK_REFUSED(cuEventRecord(NULL, 0), CUDA_ERROR_INVALID_HANDLE, "the handle is NULL");
    const CUresult values[] = {
        cuDriverGetVersion(NULL),
        cuGetErrorName(0, NULL),
        cuGetErrorString(0, NULL),
        cuGetProcAddress(NULL, &function, 12000, 0),
        cuGetProcAddress("cuInit", NULL, 12000, 0),
        cuDeviceGetCount(NULL),
        cuDeviceGet(NULL, 0),
        cuDeviceGetName(NULL, 1, 0),
        cuDeviceGetAttribute(NULL, 1, 0),
        cuDeviceTotalMem(NULL, 0),
        cuDevicePrimaryCtxRetain(NULL, 0),
        cuCtxCreate(NULL, 0, 0),
        cuCtxCreate_v4(NULL, NULL, 0, 0),
        cuCtxGetCurrent(NULL),
        cuCtxGetDevice(NULL),
        cuStreamCreate(NULL, 0),
        cuStreamIsCapturing(NULL, NULL),
        cuEventCreate(NULL, 0),
        cuEventElapsedTime(NULL, event, event),
        cuPointerGetAttribute(NULL, 2, 0),
        cuModuleLoadData(NULL, scale),
        cuTensorMapEncodeTiled(NULL, 9, 2, &map, two, two, box, box, 0, 0, 0, 0),
        cuTensorMapEncodeTiled(&map, 9, 2, &map, NULL, two, box, box, 0, 0, 0, 0),
        cuTensorMapEncodeTiled(&map, 9, 2, &map, two, NULL, box, box, 0, 0, 0, 0),
        cuTensorMapEncodeTiled(&map, 9, 2, &map, two, two, NULL, box, 0, 0, 0, 0),
        cuTensorMapEncodeTiled(&map, 9, 2, &map, two, two, box, NULL, 0, 0, 0, 0),
    };
    const CUresult handles[] = {
        cuStreamDestroy(NULL),
        cuStreamWaitEvent(NULL, NULL, 0),
        cuEventDestroy(NULL),
        cuEventQuery(NULL),
        cuEventSynchronize(NULL),
        cuEventElapsedTime(&ms, NULL, event),
        cuEventElapsedTime_v2(&ms, event, NULL),
        cuLibraryUnload(NULL),
        cuLibraryGetKernel(NULL, NULL, NULL),
        cuKernelGetFunction(NULL, NULL),
        cuKernelGetParamInfo(NULL, 0, NULL, NULL),
        cuKernelSetAttribute(8, 0, NULL, 0),
        cuFuncSetAttribute(NULL, 8, 0),
        cuFuncGetAttribute(NULL, 0, NULL),
        cuLaunchKernelEx(NULL, NULL, NULL, NULL),
    };
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        CHECK_INT(values[i], CUDA_ERROR_INVALID_VALUE);
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++)
        CHECK_INT(handles[i], CUDA_ERROR_INVALID_HANDLE);
    CHECK_INT(cuEventDestroy(event), CUDA_SUCCESS);
}

TEST(errors_and_names) {
    char name[64];
    size_t bytes;
    int version;
    const char *text;
    void *function;
    cuDeviceGetName(name, sizeof name, 0);
    CHECK_STR(name, "warploom simulator");
    CHECK_INT(cuDriverGetVersion(&version), CUDA_SUCCESS);
    CHECK_INT(version, 13000);
    CHECK_INT(cuDeviceTotalMem(&bytes, 0), CUDA_SUCCESS);
    CHECK(bytes > 1 << 20);
    CHECK_INT(cuGetErrorName(CUDA_ERROR_INVALID_PTX, &text), CUDA_SUCCESS);
    CHECK_STR(text, "CUDA_ERROR_INVALID_PTX");
    CHECK_INT(cuGetErrorName(77777, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuGetErrorString(77777, &text), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuGetErrorString(CUDA_ERROR_NOT_FOUND, &text), CUDA_SUCCESS);
    CHECK_STR(text, "named symbol not found");
    CHECK_INT(cuGetProcAddress("cuMemAlloc", &function, 12000, 0), CUDA_SUCCESS);
    CUresult (*alloc)(CUdeviceptr *, size_t) = cuMemAlloc_v2;
    CHECK(!memcmp(&function, &alloc, sizeof alloc));
    CUresult (*create)(CUcontext *, const void *, unsigned, CUdevice) = cuCtxCreate_v4;
    CHECK_INT(cuGetProcAddress("cuCtxCreate", &function, 13000, 0), CUDA_SUCCESS);
    CHECK(!memcmp(&function, &create, sizeof create));
    CHECK_INT(cuGetProcAddress("cuCtxCreate", &function, 12000, 0), CUDA_SUCCESS);
    CHECK(memcmp(&function, &create, sizeof create));
    CHECK_REFUSED(cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
                  CUDA_ERROR_INVALID_HANDLE, "the handle is NULL");
    int status;
    CHECK_REFUSED(cuGetProcAddress_v2("cuMemAllo", &function, 12000, 0, &status),
                  CUDA_ERROR_NOT_FOUND, "the simulator has no cuMemAllo");
    CHECK(!function && status == 1);
}

TEST(contexts) {
    CUcontext a, b, c;
    CUdevice device;
    static const char none[] = "this thread has no current context";
    CHECK_REFUSED(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT, none);
    CHECK_REFUSED(cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT, none);
    CHECK_REFUSED(cuCtxPopCurrent(&a), CUDA_ERROR_INVALID_CONTEXT, "no context to pop");
    CHECK_REFUSED(cuCtxPushCurrent(NULL), CUDA_ERROR_INVALID_CONTEXT, "context is NULL");
    CHECK_REFUSED(cuCtxDestroy(NULL), CUDA_ERROR_INVALID_CONTEXT, "context is NULL");
    CHECK_REFUSED(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT,
                  "the primary context is not retained");
    CHECK_INT(cuDevicePrimaryCtxRetain(&a, 0), CUDA_SUCCESS);
    CHECK_INT(cuDevicePrimaryCtxRetain(&b, 0), CUDA_SUCCESS);
    CHECK(a == b);
    CHECK_INT(cuCtxSetCurrent(a), CUDA_SUCCESS);
    CHECK_INT(cuCtxCreate(&b, 0, 0), CUDA_SUCCESS);
    CHECK_INT(cuCtxGetCurrent(&c), CUDA_SUCCESS);
    CHECK(c == b && b != a);
    CHECK_INT(cuCtxGetDevice(&device), CUDA_SUCCESS);
    CHECK_INT(cuCtxPushCurrent(a), CUDA_SUCCESS);
    CHECK_INT(cuCtxPopCurrent(&c), CUDA_SUCCESS);
    CHECK(c == a);
    CHECK_INT(cuCtxDestroy(b), CUDA_SUCCESS); /* current: popped, too */
    CHECK_INT(cuCtxCreate_v4(&b, NULL, 0, 0), CUDA_SUCCESS);
    CHECK_INT(cuCtxDestroy(b), CUDA_SUCCESS);
    cuCtxGetCurrent(&c);
    CHECK(c == a);
    for (int i = 1; i < 16; i++) CHECK_INT(cuCtxPushCurrent(a), CUDA_SUCCESS);
    CHECK_REFUSED(cuCtxPushCurrent(a), CUDA_ERROR_INVALID_CONTEXT, "16 contexts are on the stack");
    for (int i = 1; i < 16; i++) CHECK_INT(cuCtxPopCurrent(&c), CUDA_SUCCESS);
    CHECK_INT(cuCtxSetCurrent(NULL), CUDA_SUCCESS);
    cuCtxGetCurrent(&c);
    CHECK(!c);
    CHECK_INT(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
    CHECK_INT(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS);
}

static void open_context(void) {
    CUcontext context;
    CHECK_INT(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
    CHECK_INT(cuCtxSetCurrent(context), CUDA_SUCCESS);
}

static void close_context(void) {
    cuCtxSetCurrent(NULL);
    CHECK_INT(cuDevicePrimaryCtxRelease(0), CUDA_SUCCESS); /* frees what was left, too */
}

TEST(memory) {
    CUdeviceptr p, q;
    CUstream stream;
    uint32_t word[4] = {1, 2, 3, 4}, back[4];
    int ordinal = -1;
    char want[128];
    CHECK_REFUSED(cuMemAlloc(&p, 4), CUDA_ERROR_INVALID_CONTEXT,
                  "this thread has no current context");
    open_context();
    CHECK_REFUSED(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE, "0 bytes asked for");
    size_t total;
    cuDeviceTotalMem(&total, 0);
    snprintf(want, sizeof want, "%zu bytes asked for; this machine has %zu", total + 1, total);
    CHECK_REFUSED(cuMemAlloc(&p, total + 1), CUDA_ERROR_OUT_OF_MEMORY, want);
    CHECK_INT(cuMemAlloc(&p, 16), CUDA_SUCCESS);
    CHECK_INT(cuMemAlloc(&q, 16), CUDA_SUCCESS);
    CHECK_INT(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
    CHECK_REFUSED(cuMemcpyHtoD(p, NULL, 16), CUDA_ERROR_INVALID_VALUE,
                  "the host's pointer is NULL");
    CHECK_INT(cuMemcpyDtoH(NULL, p, 16), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuMemcpyDtoH(NULL, p, 0), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyHtoD(p, word, 16), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoD(q, p + 4, 8), CUDA_SUCCESS);
    CHECK_INT(cuMemsetD32(q + 8, 7, 2), CUDA_SUCCESS);
    CHECK_INT(cuMemsetD8(q + 12, 1, 4), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoH(back, q, 16), CUDA_SUCCESS);
    CHECK(back[0] == 2 && back[1] == 3 && back[2] == 7 && back[3] == 0x01010101);
    CHECK_INT(cuMemcpyHtoDAsync(q, word, 16, stream), CUDA_SUCCESS);
    CHECK_INT(cuMemsetD8Async(q, 0, 1, stream), CUDA_SUCCESS);
    CHECK_INT(cuMemsetD32Async(q + 4, 9, 1, stream), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoDAsync(p, q, 8, stream), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoHAsync(back, p, 16, stream), CUDA_SUCCESS);
    CHECK_INT(cuStreamSynchronize(stream), CUDA_SUCCESS);
    CHECK(back[0] == 0 && back[1] == 9 && back[2] == 3);
    snprintf(want, sizeof want, "17 bytes at 0x%llx do not lie in one allocation", p);
    CHECK_REFUSED(cuMemcpyDtoH(back, p, 17), CUDA_ERROR_INVALID_VALUE, want);
    CHECK_REFUSED(cuMemcpyHtoD(p, back, 17), CUDA_ERROR_INVALID_VALUE, want);
    CHECK_REFUSED(cuMemcpyDtoD(q, p, 17), CUDA_ERROR_INVALID_VALUE, want);
    CHECK_REFUSED(cuMemsetD8(p, 0, 17), CUDA_ERROR_INVALID_VALUE, want);
    snprintf(want, sizeof want, "1 elements of 4 bytes at 0x%llx", p + 1);
    CHECK_REFUSED(cuMemsetD32(p + 1, 0, 1), CUDA_ERROR_INVALID_VALUE, want);
    CHECK_INT(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p + 3),
              CUDA_SUCCESS);
    CHECK_INT(ordinal, 0);
    CHECK_INT(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p), CUDA_SUCCESS);
    CHECK_INT(ordinal, 2);
    CHECK_REFUSED(cuPointerGetAttribute(&ordinal, 3, p), CUDA_ERROR_INVALID_VALUE,
                  "attribute 3: the simulator knows 2 (memory type) and 9 (device ordinal)");
    CHECK_INT(cuPointerGetAttribute(&ordinal, 9, (uintptr_t)word), CUDA_ERROR_INVALID_VALUE);
    snprintf(want, sizeof want, "0x%llx is not the start of an allocation", p + 1);
    CHECK_REFUSED(cuMemFree(p + 1), CUDA_ERROR_INVALID_VALUE, want);
    CHECK_INT(cuMemFree(p), CUDA_SUCCESS);
    CHECK_INT(cuMemFree(0), CUDA_SUCCESS);
    CHECK_INT(cuStreamDestroy(stream), CUDA_SUCCESS);
    close_context();
}

TEST(events) {
    CUevent a, b;
    CUstream stream = NULL;
    float ms;
    int capturing;
    open_context();
    cuEventCreate(&a, 0);
    cuEventCreate(&b, 0);
    CHECK_REFUSED(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_INVALID_HANDLE,
                  "an event was not recorded");
    CHECK_INT(cuEventRecord(a, stream), CUDA_SUCCESS);
    CHECK_INT(cuEventRecord(b, stream), CUDA_SUCCESS);
    CHECK_INT(cuStreamWaitEvent(stream, b, 0), CUDA_SUCCESS);
    CHECK_INT(cuEventQuery(b), CUDA_SUCCESS);
    CHECK_INT(cuEventSynchronize(b), CUDA_SUCCESS);
    CHECK_INT(cuStreamIsCapturing(stream, &capturing), CUDA_SUCCESS);
    CHECK_INT(cuEventElapsedTime(&ms, a, b), CUDA_SUCCESS);
    CHECK_INT(cuEventElapsedTime_v2(&ms, a, b), CUDA_SUCCESS);
    CHECK(ms >= 0 && ms < 10000);
    cuEventDestroy(a);
    cuEventDestroy(b);
    close_context();
}

TEST(images) {
    CUmodule module;
    CUlibrary library;
    CUfunction function;
    CUkernel kernel;
    size_t offset, size;
    int value;
    CHECK_REFUSED(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE, "image is NULL");
    CHECK_REFUSED(cuModuleLoadData(&module, "\177ELF\2\1"), CUDA_ERROR_NO_BINARY_FOR_GPU,
                  "the image is machine code; the simulator takes PTX: compile with "
                  "-arch=compute_90a");
    CHECK_INT(cuModuleLoadData(&module, "no PTX"), CUDA_ERROR_INVALID_PTX);
    CHECK(strstr(reason(CUDA_ERROR_INVALID_PTX), "PTX:1"));
    CHECK_REFUSED(cuModuleUnload(NULL), CUDA_ERROR_INVALID_HANDLE, "the handle is NULL");
    CHECK_INT(cuModuleLoadData(&module, ".version 8.0 .target sm_90a .address_size 64\n"
                                        ".entry bad() {\nfrob; }\n.entry good() { ret; }"),
              CUDA_SUCCESS);
    CHECK_REFUSED(cuModuleGetFunction(&function, module, "bad"), CUDA_ERROR_INVALID_PTX,
                  "PTX:3: frob: this instruction is not known here");
    CHECK(!function);
    CHECK_INT(cuModuleGetFunction(&function, module, "good"), CUDA_SUCCESS);
    CHECK_INT(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_INT(cuModuleLoadDataEx(&module, scale, 0, NULL, NULL), CUDA_SUCCESS);
    CHECK_REFUSED(cuModuleGetFunction(&function, module, "scal"), CUDA_ERROR_NOT_FOUND,
                  "the image has no entry 'scal'");
    CHECK_REFUSED(cuModuleGetFunction(&function, NULL, "scale"), CUDA_ERROR_INVALID_HANDLE,
                  "the handle is NULL");
    CHECK_INT(cuModuleGetFunction(&function, module, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuModuleGetFunction(NULL, module, "scale"), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuModuleGetFunction(&function, module, "scale"), CUDA_SUCCESS);
    CHECK_INT(cuModuleUnload(module), CUDA_SUCCESS);
    CHECK_INT(cuLibraryLoadData(&library, scale, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
    CHECK_INT(cuLibraryGetKernel(&kernel, library, "scale"), CUDA_SUCCESS);
    CHECK_INT(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
    CHECK_INT(cuKernelGetParamInfo(kernel, 2, &offset, &size), CUDA_SUCCESS);
    CHECK(offset == 12 && size == 4);
    CHECK_INT(cuKernelGetParamInfo(kernel, 2, &offset, NULL), CUDA_SUCCESS);
    CHECK_INT(cuKernelGetParamInfo(kernel, 2, NULL, &size), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuKernelGetFunction(NULL, kernel), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuFuncGetAttribute(NULL, 0, function), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuLaunchKernelEx(NULL, function, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_INT(cuLaunchKernelEx(&(CUlaunchConfig){.numAttrs = 1}, function, NULL, NULL),
              CUDA_ERROR_INVALID_VALUE);
    CHECK_REFUSED(cuKernelGetParamInfo(kernel, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE,
                  "the kernel has no parameter 3");
    CHECK_INT(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function),
              CUDA_SUCCESS);
    CHECK_INT(value, 1024);
    CHECK_INT(cuFuncSetAttribute(function, 9, 100), CUDA_SUCCESS); /* a preference */
    CHECK_REFUSED(cuFuncSetAttribute(function, 8, 232449), CUDA_ERROR_INVALID_VALUE,
                  "232449 bytes of dynamic shared memory: at most 232448 are left");
    CHECK_INT(cuKernelSetAttribute(8, 100000, kernel, 0), CUDA_SUCCESS);
    CHECK_INT(cuFuncGetAttribute(&value, 8, function), CUDA_SUCCESS);
    CHECK_INT(value, 100000);
    CHECK_INT(cuLibraryUnload(library), CUDA_SUCCESS);
}

static void see(void *user, const char *kernel, const sim_finding *finding) {
    CHECK_STR(kernel, "scale");
    CHECK(*finding->rule && *finding->text && finding->count > 0);
    ++*(int *)user;
}

/* scale(x, 2, n) over `n` floats; x has 100. */
static CUresult launch(CUfunction f, CUdeviceptr x, uint32_t n) {
    float a = 2;
    void *params[] = {&x, &a, &n};
    return cuLaunchKernel(f, 4, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

TEST(launches) {
    CUmodule module;
    CUfunction f;
    CUdeviceptr x;
    float data[100], back[100];
    int found = 0;
    open_context();
    for (int i = 0; i < 100; i++) data[i] = (float)i;
    cuMemAlloc(&x, sizeof data);
    cuMemcpyHtoD(x, data, sizeof data);
    CHECK_INT(cuModuleLoadData(&module, scale), CUDA_SUCCESS);
    CHECK_INT(cuModuleGetFunction(&f, module, "scale"), CUDA_SUCCESS);
    CHECK_INT(launch(f, x, 100), CUDA_SUCCESS);
    CHECK_INT(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoH(back, x, sizeof back), CUDA_SUCCESS);
    for (int i = 0; i < 100; i++) CHECK(back[i] == 2 * data[i]);

    /* the parameter block as a whole, with a cluster of one */
    struct {
        CUdeviceptr x;
        float a;
        uint32_t n;
    } block = {x, 0.5f, 100};
    size_t size = sizeof block;
    void *extra[] = {(void *)1, &block, (void *)2, &size, NULL};
    CUlaunchAttribute cluster = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                 .value.clusterDim = {1, 1, 1}};
    CUlaunchConfig config = {4, 1, 1, 32, 1, 1, 0, NULL, &cluster, 1};
    CHECK_INT(cuLaunchKernelEx(&config, f, NULL, extra), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoH(back, x, sizeof back), CUDA_SUCCESS);
    for (int i = 0; i < 100; i++) CHECK(back[i] == data[i]);
    CHECK_REFUSED(
        cuLaunchKernelEx(&config, f, NULL, (void *[]){(void *)1, &block, (void *)2, NULL, NULL}),
        CUDA_ERROR_INVALID_VALUE, "0 bytes of parameters; the kernel takes 16");
    size = 15;
    CHECK_REFUSED(cuLaunchKernelEx(&config, f, NULL, extra), CUDA_ERROR_INVALID_VALUE,
                  "15 bytes of parameters; the kernel takes 16");
    CHECK_REFUSED(cuLaunchKernelEx(&config, f, NULL, NULL), CUDA_ERROR_INVALID_VALUE,
                  "parameter 0 is NULL");
    config.sharedMemBytes = 49153;
    CHECK_REFUSED(cuLaunchKernelEx(&config, f, NULL, extra), CUDA_ERROR_INVALID_VALUE,
                  "49153 bytes of dynamic shared memory: the kernel's attribute "
                  "MAX_DYNAMIC_SHARED_SIZE_BYTES is 49152");
    config.sharedMemBytes = 0;
    config.blockDimX = 2000;
    size = 16;
    CHECK_INT(cuLaunchKernelEx(&config, f, NULL, extra), CUDA_ERROR_INVALID_VALUE);

    /* beyond the end: told by the next synchronising call, once */
    CHECK_INT(launch(f, x, 120), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoHAsync(back, x, sizeof back, NULL), CUDA_SUCCESS);
    CHECK_INT(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    CHECK(strstr(reason(CUDA_ERROR_LAUNCH_FAILED), "scale: line 2"));
    CHECK_INT(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_INT(launch(f, x, 120), CUDA_SUCCESS);
    CHECK_INT(cuMemcpyDtoH(back, x, sizeof back), CUDA_ERROR_LAUNCH_FAILED);
    CHECK_INT(launch(f, x, 120), CUDA_SUCCESS);
    CHECK(sim_device_findings(see, &found) > 0);
    CHECK(found > 0);
    CHECK_INT(cuCtxSynchronize(), CUDA_SUCCESS);
    CHECK_INT(sim_device_findings(see, &found), 0);
    cuModuleUnload(module);
    close_context();
    CHECK_INT(sim_device_findings(see, &found), 0);
}

/* Just past the end of a buffer nothing lies, whatever its size: a write there is found, and its
   neighbours keep what they hold. */
TEST(past_the_end_is_no_neighbour) {
    enum { N = 24 };
    CUmodule module;
    CUfunction f;
    CUdeviceptr x[N];
    size_t bytes[N];
    char back[4096];
    int found = 0;
    open_context();
    cuModuleLoadData(&module, scale);
    cuModuleGetFunction(&f, module, "scale");
    for (int i = 0; i < N; i++) {
        bytes[i] = i % 3 ? 512 * (size_t)(i % 3) : 4096;
        CHECK_INT(cuMemAlloc(&x[i], bytes[i]), CUDA_SUCCESS);
        CHECK_INT(cuMemsetD8(x[i], 0x3f, bytes[i]), CUDA_SUCCESS);
    }
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) CHECK(x[j] <= x[i] || x[j] - x[i] >= bytes[i] + 4096);
    CHECK_INT(launch(f, x[1], 128), CUDA_SUCCESS);
    CHECK_INT(cuCtxSynchronize(), CUDA_SUCCESS);
    float a = 2;
    uint32_t n = 128 + 1024;
    CHECK_INT(cuLaunchKernel(f, 36, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&x[1], &a, &n}, NULL),
              CUDA_SUCCESS);
    CHECK_INT(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    CHECK(strstr(reason(CUDA_ERROR_LAUNCH_FAILED), "are in no allocation"));
    sim_device_findings(see, &found);
    for (int i = 0; i < N; i++) {
        CHECK_INT(cuMemcpyDtoH(back, x[i], bytes[i]), CUDA_SUCCESS);
        for (size_t k = 0; i != 1 && k < bytes[i]; k++) CHECK(back[k] == 0x3f);
    }
    cuModuleUnload(module);
    close_context();
}

/* A launch that need not wait for the one before it, and its kernel does not; memory that nothing
   has been written to. */
TEST(what_a_launch_reads_was_written) {
    CUmodule module;
    CUfunction f;
    CUdeviceptr x;
    float data[100];
    int found = 0;
    open_context();
    cuModuleLoadData(&module, scale);
    cuModuleGetFunction(&f, module, "scale");
    cuMemAlloc(&x, sizeof data);
    cuMemsetD8(x, 0, 4 * 96);
    CHECK_INT(launch(f, x, 96), CUDA_SUCCESS);
    CHECK_INT(sim_device_findings(see, &found), 0);
    CHECK_INT(launch(f, x, 100), CUDA_SUCCESS);
    CHECK_INT(cuCtxSynchronize(), CUDA_ERROR_LAUNCH_FAILED);
    CHECK(strstr(reason(CUDA_ERROR_LAUNCH_FAILED), "which nothing has written"));
    sim_device_findings(see, &found);
    struct {
        CUdeviceptr x;
        float a;
        uint32_t n;
    } block = {x, 0.5f, 96};
    size_t size = sizeof block;
    void *extra[] = {(void *)1, &block, (void *)2, &size, NULL};
    CUlaunchAttribute early = {.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                               .value.programmaticStreamSerializationAllowed = 1};
    CUlaunchConfig config = {3, 1, 1, 32, 1, 1, 0, NULL, &early, 1};
    for (int i = 1; i < 3; i++) { /* the second time it is launched to wait */
        if (i == 2) early.value.programmaticStreamSerializationAllowed = 0;
        CHECK_INT(cuLaunchKernelEx(&config, f, NULL, extra), CUDA_SUCCESS);
        CHECK_INT(cuCtxSynchronize(), CUDA_SUCCESS);
        CHECK_INT(launch(f, x, 96), CUDA_SUCCESS);
        CHECK_INT(cuLaunchKernelEx(&config, f, NULL, extra), CUDA_SUCCESS);
        CHECK_INT(cuCtxSynchronize(), i == 2 ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED);
        if (i < 2) CHECK(strstr(reason(CUDA_ERROR_LAUNCH_FAILED), "griddepcontrol: block"));
        sim_device_findings(see, &found);
    }
    cuModuleUnload(module);
    close_context();
}

TEST(tensor_maps) {
    CUtensorMap map;
    uint64_t dims[2] = {64, 32}, strides[1] = {128};
    uint32_t box[2] = {64, 8}, steps[2] = {1, 1};
    CHECK_INT(
        cuTensorMapEncodeTiled(&map, 9, 2, (void *)4096, dims, strides, box, steps, 0, 3, 0, 0),
        CUDA_SUCCESS);
    CUtensorMap *odd = (CUtensorMap *)(void *)((char *)&map + 8);
    CHECK_INT(
        cuTensorMapEncodeTiled(odd, 9, 2, (void *)4096, dims, strides, box, steps, 0, 3, 0, 0),
        CUDA_ERROR_INVALID_VALUE);
    CHECK(strstr(reason(CUDA_ERROR_INVALID_VALUE), ": expected a multiple of 64 bytes"));
    CHECK_INT(
        cuTensorMapEncodeTiled(&map, 9, 2, (void *)4100, dims, strides, box, steps, 0, 3, 0, 0),
        CUDA_ERROR_INVALID_VALUE);
}
