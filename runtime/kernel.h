/* kernel.h - from a question to loaded kernels: cache, else generate + compile + put.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_KERNEL_H
#define WL_KERNEL_H

#include "launch.h"
#include "tools.h"

/* ---- without a device ---- */

/* Who chooses for a problem: a record of what was measured on this device for it (tuned.h), else
   the generator, which knows no device: a table of choices, or the spec's preferences. What is
   blocked on the device is passed over. */
typedef struct {
    const char *name;          /* a candidate's name, or NULL: the one chosen for … */
    const wl_problem *problem; /* … this; with a name, what it must fit (may be NULL) */
    const char *file, *text;   /* a hand-edited source (and its path for messages) in place of the
                                  emitted one; its entry's name is then the candidate. NULL: none */
    const char *arch;          /* the device's arch; NULL: no device, what the record says */
    const wl_device *device;   /* whose tuned records count; NULL: none */
    bool fresh;                /* compile even when the cache has it */
    bool ptx;                  /* images are PTX with the source's lines, for the simulator */
} wl_request;

typedef struct {
    wl_launch launch;
    const char *layer;                    /* as wl_store_layer, or "jit" */
    wl_hash key[WL_MAX_KERNELS];          /* each kernel's key in the cache */
    wl_compiled compiled[WL_MAX_KERNELS]; /* image; the statistics only of what was compiled now */
} wl_made;

/* The launch record alone: compiles nothing. *layer (may be NULL) as in wl_made. */
wl_status wl_kernel_choose(wl_tools *tools, const wl_request *request, wl_launch *out,
                           const char **layer);
/* Record and images; what was made is put in the cache (but not from a hand-edited text). ECOMPILE
   with the layers looked at when JIT is off; EDEVICE when the record is for another arch. */
wl_status wl_kernel_get(wl_tools *tools, const wl_request *request, wl_made *out);
void wl_made_free(wl_made *made);
/* Asks every layer for the kernels of a request: what each said is then in the store
   (wl_store_said). Compiles nothing. */
wl_status wl_kernel_layers(wl_tools *tools, const wl_request *request);
/* The keys of a request's choice and of its first kernel, and what they are made of: names and
   texts as wl_hasher's fields. Compiles nothing, but opens NVRTC. */
wl_status wl_kernel_keys(wl_tools *tools, const wl_request *request, wl_hash keys[2],
                         wl_buf fields[2]);
/* Has the cache record and images of request->name? */
bool wl_kernel_cached(wl_tools *tools, const wl_request *request);
/* A hand-edited text alone, whatever its entry's name (written to entry[128]): no record, no cache.
   As in wl_kernel_get, the log gate only warns about it: experiments may spill. */
wl_status wl_kernel_compile(wl_tools *tools, const wl_request *request, char entry[128],
                            wl_compiled *out);

/* ---- with a device ---- */

/* Images loaded on one device; each key once. */
typedef struct wl_loader wl_loader;
void wl_loader_open(wl_loader **out, const wl_driver *driver, const wl_device *device);
void wl_loader_close(wl_loader *loader); /* unloads all */
/* All kernels of `made`, ready to launch, into out[made->launch.n_kernels]. EFAIL. */
wl_status wl_kernel_load(wl_loader *loader, const wl_made *made, CUkernel *out);

#endif
