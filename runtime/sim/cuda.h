/* cuda.h - the part of the CUDA driver API that the simulator answers: what programs that load PTX,
   copy, encode tensor maps and launch need. Names and numbers are the driver's.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_CUDA_H
#define WL_SIM_CUDA_H

#include "base.h"

/* X(name, number, text): the results that can come. */
#define CU_RESULT_TABLE(X)                                                                         \
    X(CUDA_SUCCESS, 0, "no error")                                                                 \
    X(CUDA_ERROR_INVALID_VALUE, 1, "invalid argument")                                             \
    X(CUDA_ERROR_OUT_OF_MEMORY, 2, "out of memory")                                                \
    X(CUDA_ERROR_NOT_INITIALIZED, 3, "initialization error")                                       \
    X(CUDA_ERROR_INVALID_DEVICE, 101, "invalid device ordinal")                                    \
    X(CUDA_ERROR_INVALID_IMAGE, 200, "device kernel image is invalid")                             \
    X(CUDA_ERROR_INVALID_CONTEXT, 201, "invalid device context")                                   \
    X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209, "no kernel image for this device")                        \
    X(CUDA_ERROR_INVALID_PTX, 218, "a PTX JIT compilation failed")                                 \
    X(CUDA_ERROR_INVALID_HANDLE, 400, "invalid resource handle")                                   \
    X(CUDA_ERROR_NOT_FOUND, 500, "named symbol not found")                                         \
    X(CUDA_ERROR_LAUNCH_FAILED, 719, "unspecified launch failure")

typedef enum {
#define X(name, number, text) name = number,
    CU_RESULT_TABLE(X)
#undef X
} CUresult;

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct sim_library *CUlibrary, *CUmodule;
typedef struct sim_kernel *CUkernel, *CUfunction;
typedef struct {
    _Alignas(64) uint64_t opaque[16];
} CUtensorMap;

enum {
    CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
    CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
    CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
    CU_POINTER_ATTRIBUTE_MEMORY_TYPE = 2,
    CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL = 9,
};

typedef struct {
    int id, pad;
    union {
        char bytes[64];
        struct {
            unsigned x, y, z;
        } clusterDim;
        int programmaticStreamSerializationAllowed;
    } value;
} CUlaunchAttribute;
typedef struct {
    unsigned gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes;
    CUstream hStream;
    CUlaunchAttribute *attrs;
    unsigned numAttrs;
} CUlaunchConfig;

/* X(name, parameters), all returning CUresult and exported. */
#define CU_ENTRY_TABLE(X)                                                                          \
    X(cuInit, (unsigned flags))                                                                    \
    X(cuDriverGetVersion, (int *version))                                                          \
    X(cuGetErrorName, (CUresult error, const char **name))                                         \
    X(cuGetErrorString, (CUresult error, const char **text))                                       \
    X(cuGetProcAddress, (const char *name, void **function, int version, uint64_t flags))          \
    X(cuGetProcAddress_v2,                                                                         \
      (const char *name, void **function, int version, uint64_t flags, int *status))               \
    X(cuDeviceGetCount, (int *n))                                                                  \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                               \
    X(cuDeviceGetName, (char *name, int size, CUdevice device))                                    \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                          \
    X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                      \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                            \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                             \
    X(cuCtxCreate_v2, (CUcontext * context, unsigned flags, CUdevice device))                      \
    X(cuCtxCreate_v4,                                                                              \
      (CUcontext * context, const void *params, unsigned flags, CUdevice device))                  \
    X(cuCtxDestroy_v2, (CUcontext context))                                                        \
    X(cuCtxGetCurrent, (CUcontext * context))                                                      \
    X(cuCtxSetCurrent, (CUcontext context))                                                        \
    X(cuCtxPushCurrent_v2, (CUcontext context))                                                    \
    X(cuCtxPopCurrent_v2, (CUcontext * context))                                                   \
    X(cuCtxGetDevice, (CUdevice * device))                                                         \
    X(cuCtxSynchronize, (void))                                                                    \
    X(cuStreamCreate, (CUstream * stream, unsigned flags))                                         \
    X(cuStreamDestroy_v2, (CUstream stream))                                                       \
    X(cuStreamSynchronize, (CUstream stream))                                                      \
    X(cuStreamIsCapturing, (CUstream stream, int *status))                                         \
    X(cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                         \
    X(cuEventCreate, (CUevent * event, unsigned flags))                                            \
    X(cuEventDestroy_v2, (CUevent event))                                                          \
    X(cuEventRecord, (CUevent event, CUstream stream))                                             \
    X(cuEventQuery, (CUevent event))                                                               \
    X(cuEventSynchronize, (CUevent event))                                                         \
    X(cuEventElapsedTime, (float *milliseconds, CUevent start, CUevent end))                       \
    X(cuEventElapsedTime_v2, (float *milliseconds, CUevent start, CUevent end))                    \
    X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                        \
    X(cuMemFree_v2, (CUdeviceptr pointer))                                                         \
    X(cuMemsetD8_v2, (CUdeviceptr pointer, unsigned char value, size_t count))                     \
    X(cuMemsetD32_v2, (CUdeviceptr pointer, unsigned value, size_t count))                         \
    X(cuMemsetD8Async, (CUdeviceptr pointer, unsigned char value, size_t count, CUstream stream))  \
    X(cuMemsetD32Async, (CUdeviceptr pointer, unsigned value, size_t count, CUstream stream))      \
    X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                           \
    X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                 \
    X(cuMemcpyDtoD_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes))                           \
    X(cuMemcpyHtoDAsync_v2, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream))     \
    X(cuMemcpyDtoHAsync_v2, (void *to, CUdeviceptr from, size_t bytes, CUstream stream))           \
    X(cuMemcpyDtoDAsync_v2, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream))     \
    X(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer))                    \
    X(cuTensorMapEncodeTiled,                                                                      \
      (CUtensorMap * map, int type, uint32_t rank, void *address, const uint64_t *dims,            \
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,              \
       int interleave, int swizzle, int promotion, int fill))                                      \
    X(cuLibraryLoadData, (CUlibrary * library, const void *image, int *jit_options,                \
                          void **jit_values, unsigned n_jit, int *options, void **values,          \
                          unsigned n))                                                             \
    X(cuLibraryUnload, (CUlibrary library))                                                        \
    X(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))                \
    X(cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                               \
    X(cuKernelGetParamInfo, (CUkernel kernel, size_t index, size_t *offset, size_t *size))         \
    X(cuKernelSetAttribute, (int attribute, int value, CUkernel kernel, CUdevice device))          \
    X(cuModuleLoadData, (CUmodule * module, const void *image))                                    \
    X(cuModuleLoadDataEx, (CUmodule * module, const void *image, unsigned n, int *options,         \
                           void **values))                                                         \
    X(cuModuleUnload, (CUmodule module))                                                           \
    X(cuModuleGetFunction, (CUfunction * function, CUmodule module, const char *name))             \
    X(cuFuncGetAttribute, (int *value, int attribute, CUfunction function))                        \
    X(cuFuncSetAttribute, (CUfunction function, int attribute, int value))                         \
    X(cuLaunchKernel, (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,     \
                       unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,      \
                       CUstream stream, void **params, void **extra))                              \
    X(cuLaunchKernelEx,                                                                            \
      (const CUlaunchConfig *config, CUfunction function, void **params, void **extra))

#define X(name, parameters) WARPLOOM_API CUresult name parameters;
CU_ENTRY_TABLE(X)
#undef X

#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuCtxCreate cuCtxCreate_v2
#define cuCtxDestroy cuCtxDestroy_v2
#define cuCtxPushCurrent cuCtxPushCurrent_v2
#define cuCtxPopCurrent cuCtxPopCurrent_v2
#define cuStreamDestroy cuStreamDestroy_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuMemFree cuMemFree_v2
#define cuMemsetD8 cuMemsetD8_v2
#define cuMemsetD32 cuMemsetD32_v2
#define cuMemcpyHtoD cuMemcpyHtoD_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuMemcpyDtoD cuMemcpyDtoD_v2
#define cuMemcpyHtoDAsync cuMemcpyHtoDAsync_v2
#define cuMemcpyDtoHAsync cuMemcpyDtoHAsync_v2
#define cuMemcpyDtoDAsync cuMemcpyDtoDAsync_v2

#endif
