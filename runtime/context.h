/* context.h - one device: its CUDA context, kernels made so far, scratch; and what the command
   needs beyond warploom.h.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CONTEXT_H
#define WL_CONTEXT_H

#include <pthread.h>
#include <stdatomic.h>

#include "kernel.h"

#define WL_ZEROS 512   /* a row of the longest head */
#define WL_BUCKETS 256 /* of the table */
#define WL_SEEN 256    /* addresses known to be on the context's device */
#define WL_KEPT 256    /* calls whose launches are kept */

/* What is in the table: the caller's own struct begins with it. Nodes are never changed or freed
   before wl_close, so that readers need no lock. */
typedef struct wl_node {
    struct wl_node *next;
} wl_node;

/* What was made of a call's arguments, the caller's own struct (freed by wl_close). Whoever finds
   it busy does without it. */
typedef struct {
    atomic_flag busy;
    void *made;
} wl_kept;

struct wl_context {
    const wl_driver *driver;
    wl_device device;
    CUcontext cuda;
    bool primary; /* we retained the device's primary context */
    CUdeviceptr pool;  /* scratch; behind it, the zeros */
    CUdeviceptr zeros; /* WL_ZEROS bytes that nobody writes */
    int sms;           /* the most blocks' SMs of a launch */
    atomic_uint next_slot, next_captured;
    atomic_uintptr_t seen[WL_SEEN];
    _Atomic(wl_node *) table[WL_BUCKETS];
    wl_kept kept[WL_KEPT];
    atomic_uint generation; /* counts what makes kept launches stale */
    pthread_mutex_t lock; /* tools, loader, table: one thread makes a kernel, others wait */
    wl_tools *tools;
    wl_loader *loader;
    void (*log)(void *user, const char *message);
    void *log_user;
    bool told; /* that the cache has trouble */
    unsigned forks; /* of the process and its parents, when the context was opened */
};

/* False in a child of fork that inherited the context: neither CUDA nor locks survive in it. */
bool wl_context_mine(const wl_context *ctx);
/* EINVAL: ctx is NULL or not this process's. */
wl_status wl_context_check(const wl_context *ctx);

/* Makes the context's CUDA context current; returns the caller's, for leave. */
CUcontext wl_context_enter(const wl_context *ctx);
void wl_context_leave(const wl_context *ctx, CUcontext old);
/* EINVAL unless the address is memory of the context's device. */
wl_status wl_context_owns(wl_context *ctx, const char *name, const void *address);
/* Is work on the stream being recorded into a graph? */
bool wl_context_capturing(const wl_context *ctx, void *stream);
/* WL_MAX_SCRATCH zeroed bytes of the device for one call, which must leave them zero. EFAIL when
   too many calls have been captured. */
wl_status wl_context_scratch(wl_context *ctx, void *stream, CUdeviceptr *out);
/* Record and loaded kernels; *layer as in wl_made. Under the lock. */
wl_status wl_context_load(wl_context *ctx, const wl_request *request, wl_launch *launch,
                          const char **layer, CUkernel kernels[WL_MAX_KERNELS]);

const wl_driver *wl_context_driver(const wl_context *ctx);
const wl_device *wl_context_device(const wl_context *ctx);
wl_tools *wl_context_tools(wl_context *ctx);
/* Heads of a section of this problem, at so many megabytes. */
int64_t wl_context_section(const wl_problem *problem, int64_t section_mb);
/* As wl_prepare; calls like this one use that launch number from now on. */
wl_status wl_context_use_section(wl_context *ctx, const wl_forward_args *args, int64_t section_mb);
/* As wl_prepare with a hand-edited kernel: `text` (read from `file`) is compiled, and calls like
   this one launch it from now on, by the record of the candidate that its entry is named after. */
wl_status wl_context_use_source(wl_context *ctx, const wl_forward_args *args, const char *file,
                                const char *text);

#endif
