/* driver.h - the entry points of libcuda and libnvrtc that we use, found by dlopen; device facts.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_DRIVER_H
#define WL_DRIVER_H

#include "base.h"
#include "sim/device.h"

/* Our own names for the driver's types, so that no toolkit header is needed to build. */
typedef int CUresult;
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUlib_st *CUlibrary;
typedef struct CUkern_st *CUkernel;
typedef struct { _Alignas(64) uint64_t opaque[16]; } CUtensorMap; /* 128 bytes */

/* cuda.h's CUlaunchAttribute and CUlaunchConfig. */
typedef struct {
    _Alignas(8) int id;
    char pad[4];
    unsigned value[16];
} wl_launch_attribute;
typedef struct {
    unsigned grid[3], block[3], shared;
    void *stream;
    wl_launch_attribute *attributes;
    unsigned n_attributes;
} wl_launch_config;

/* X(name, parameters): looked up under exactly this name. */
#define WL_DRIVER_TABLE(X)                                                                       \
    X(cuInit, (unsigned flags))                                                                   \
    X(cuDriverGetVersion, (int *version))                                                         \
    X(cuDeviceGetCount, (int *n))                                                                 \
    X(cuDeviceGet, (CUdevice * device, int ordinal))                                              \
    X(cuDeviceGetName, (char *name, int size, CUdevice device))                                   \
    X(cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))                         \
    X(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                                     \
    X(cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))                           \
    X(cuDevicePrimaryCtxRelease_v2, (CUdevice device))                                            \
    X(cuCtxGetCurrent, (CUcontext * context))                                                     \
    X(cuCtxSetCurrent, (CUcontext context))                                                       \
    X(cuCtxGetDevice, (CUdevice * device))                                                        \
    X(cuCtxSynchronize, (void))                                                                   \
    X(cuGetErrorName, (CUresult error, const char **name))                                        \
    X(cuGetErrorString, (CUresult error, const char **text))                                      \
    X(cuLibraryLoadData, (CUlibrary * library, const void *image, void *jit_options,              \
                          void **jit_values, unsigned n_jit, void *options, void **values,        \
                          unsigned n))                                                            \
    X(cuLibraryUnload, (CUlibrary library))                                                       \
    X(cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char *name))               \
    X(cuKernelSetAttribute, (int attribute, int value, CUkernel kernel, CUdevice device))         \
    X(cuLaunchKernelEx, (const void *config, CUkernel kernel, void **params, void **extra))       \
    X(cuTensorMapEncodeTiled,                                                                     \
      (CUtensorMap * map, int type, uint32_t rank, void *address, const uint64_t *dims,           \
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,             \
       int interleave, int swizzle, int promotion, int fill))                                     \
    X(cuMemAlloc_v2, (CUdeviceptr * pointer, size_t bytes))                                       \
    X(cuMemFree_v2, (CUdeviceptr pointer))                                                        \
    X(cuMemsetD8_v2, (CUdeviceptr pointer, unsigned char value, size_t bytes))                    \
    X(cuMemcpyHtoD_v2, (CUdeviceptr to, const void *from, size_t bytes))                          \
    X(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t bytes))                                \
    X(cuPointerGetAttribute, (void *value, int attribute, CUdeviceptr pointer))                   \
    X(cuStreamSynchronize, (CUstream stream))                                                     \
    X(cuStreamIsCapturing, (CUstream stream, int *status))

/* X(name): what the simulator's library has beside them (sim/device.h). */
#define WL_SIMULATOR_TABLE(X) X(sim_device_get) X(sim_device_set) X(sim_device_findings)

typedef struct {
    void *library;
    bool simulator; /* it takes PTX; the simulator's own entry points are there */
#define X(name, parameters) CUresult(*name) parameters;
    WL_DRIVER_TABLE(X)
#undef X
#define X(name) __typeof__(&name) name;
    WL_SIMULATOR_TABLE(X)
#undef X
} wl_driver;

typedef struct {
    CUdevice id;
    int ordinal;
    char name[128];
    int major, minor, sms, driver_version; /* driver_version as 12040 for 12.4 */
    int shared_optin;                      /* bytes of shared memory a block may ask for */
    int l2_bytes;
    size_t memory;
    char arch[16]; /* "sm_90a" for 9.0, else "sm_XY" */
} wl_device;

/* Opens a driver once per process and calls cuInit; a failure is not remembered. `device` "gpu":
   the machine's libcuda.so.1 (WARPLOOM_LIBCUDA names another); "sim": the simulator's,
   sim/libcuda.so.1 beside this library (WARPLOOM_SIM names another); NULL: what WARPLOOM_DEVICE
   says, else "gpu". EINVAL: another word. EDEVICE says what is missing and how to get it. *out
   stays valid for the process's life. */
wl_status wl_driver_get(const char *device, const wl_driver **out);
/* Facts of a device by ordinal. EDEVICE. */
wl_status wl_driver_device(const wl_driver *drv, int ordinal, wl_device *out);
/* "cuLaunchKernelEx: CUDA_ERROR_INVALID_VALUE (invalid argument)" as this thread's message.
   EDEVICE when the result says that there is no usable device or driver, else EFAIL. */
wl_status wl_driver_fail(const wl_driver *drv, CUresult result, const char *call);

/* The folder that holds this library (or the program it is linked into), to be freed; one that
   holds nothing when it cannot be told. */
char *wl_own_folder(void);

/* X(name, parameters), all returning int (nvrtcResult). */
#define WL_NVRTC_TABLE(X)                                                                        \
    X(nvrtcVersion, (int *major, int *minor))                                                     \
    X(nvrtcCreateProgram, (void **program, const char *source, const char *name, int n,           \
                           const char *const *headers, const char *const *names))                 \
    X(nvrtcCompileProgram, (void *program, int n, const char *const *options))                    \
    X(nvrtcDestroyProgram, (void **program))                                                      \
    X(nvrtcGetProgramLogSize, (void *program, size_t *size))                                      \
    X(nvrtcGetProgramLog, (void *program, char *log))                                             \
    X(nvrtcGetCUBINSize, (void *program, size_t *size))                                           \
    X(nvrtcGetCUBIN, (void *program, char *cubin))                                                \
    X(nvrtcGetPTXSize, (void *program, size_t *size))                                             \
    X(nvrtcGetPTX, (void *program, char *ptx))

typedef struct {
    void *library;
    char path[4096];
    int major, minor;
    char identity[64]; /* version, digest of the file's size, head and tail: in a kernel's key */
#define X(name, parameters) int(*name) parameters;
    WL_NVRTC_TABLE(X)
#undef X
} wl_nvrtc;

/* Finds and opens NVRTC: `path` alone if given, else WARPLOOM_NVRTC alone if set, else the first
   usable of CUDA_HOME/lib64, lib64 of /usr/local/cuda and cuda-*, deps/ beside this library, pip's
   nvidia folders, the loader's path; 13 before 12 in each. Opens its builtins by absolute path.
   Several may be open at once; *out stays valid for the process's life. ECOMPILE lists every place
   that was looked at. */
wl_status wl_nvrtc_get(const char *path, const wl_nvrtc **out);
/* Appends a line per place looked at, the one in use last: "PATH: NVRTC 13.0" or "PATH: reason". */
void wl_nvrtc_report(const char *path, wl_buf *out);

#endif
