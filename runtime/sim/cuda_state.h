/* cuda_state.h - what the parts of the driver's face share: contexts, refusals, settings.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_CUDA_STATE_H
#define WL_SIM_CUDA_STATE_H

#include "cuda.h"
#include "device.h"

#define CUDA_MAX_SHARED 232448 /* bytes of a block's shared memory, opt-in */

/* One allocation of a context. */
typedef struct allocation {
    struct allocation *next;
    char *start;
    size_t bytes;
} allocation;

/* What the launches of one kernel found since the findings were last taken. */
typedef struct launched {
    struct launched *next;
    char *kernel;
    sim_result result;
} launched;

struct CUctx_st {
    sim_memory *memory;
    allocation *allocations;
    launched *launched;
    CUdevice device;
    bool failed; /* a launch had findings that no synchronising call has told yet */
    int users;   /* of the primary context */
};

/* Sets what cuGetErrorString tells of this result on this thread, and returns it. */
CUresult cuda_refuse(CUresult result, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same with the message that is set already. */
CUresult cuda_refused(CUresult result);
/* What a call asks first, in this order: NOT_INITIALIZED before cuInit; INVALID_VALUE,
   INVALID_HANDLE: it is NULL. */
CUresult cuda_ready(void);
CUresult cuda_given(const void *pointer, const char *name);
CUresult cuda_handle(const void *handle);
/* Locks the device, gives the current context; NOT_INITIALIZED, INVALID_CONTEXT: not locked. */
CUresult cuda_enter(CUcontext *out);
/* Unlocks; returns the result. */
CUresult cuda_leave(CUresult result);
/* As cuda_leave, for calls that synchronise: a failed launch is told here, once. */
CUresult cuda_settle(CUcontext context, CUresult result);
/* Frees what the context holds, under the lock. */
void cuda_memory_drop(CUcontext context);
void cuda_findings_drop(CUcontext context);

#endif
