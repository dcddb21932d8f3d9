/* compile.h - CUDA text to cubin or PTX by NVRTC, with a gate on its log.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_COMPILE_H
#define WL_COMPILE_H

#include "driver.h"

typedef struct {
    const char *name, *text;
} wl_header;

typedef struct {
    const char *name;    /* program name in messages: "fwd_….cu" or the user's file */
    const char *source;
    const char *linemap; /* a line `FILE:LINE` per line of source; NULL: the source's own lines */
    const wl_header *headers; /* as included; messages call them templates/device/NAME */
    size_t n_headers;
    const char *arch;   /* "sm_90a" for a cubin, "compute_90a" for PTX with the source's lines */
    const char *kernel; /* the entry's name, to read its statistics; NULL: the last one's */
    bool lenient;       /* the log gate's reasons are returned as warnings and reject nothing */
} wl_compile_input;

typedef struct {
    wl_buf image;    /* cubin or PTX */
    wl_buf warnings; /* the gate's reasons, a line each; empty unless lenient */
    int registers, barriers;
    int spill_bytes, stack_bytes; /* spill stores and loads; stack frame */
    int shared_bytes;             /* the static part: the caller adds what a launch asks for */
    double compile_ms;
} wl_compiled;

/* The options in their fixed order, after --gpu-architecture=ARCH; ends with NULL. */
const char *const *wl_compile_options(void);
/* Hash of schema, source, headers, options, arch, entry, gate, NVRTC identity: a kernel's key.
   fields, if not NULL, gets what was hashed, as wl_hasher says. */
wl_hash wl_compile_key(const wl_compile_input *in, const wl_nvrtc *nvrtc, wl_buf *fields);
/* Compiles in a thread of its own with a big stack. ECOMPILE: NVRTC's and ptxas' errors (the first
   five), moved to the template's file and line; or the log gate's reasons, which reject the kernel:
   spills, a stack frame, serialised wgmma, setmaxnreg ignored, injected waits (C7517), any warning;
   or that the source has no such entry. */
wl_status wl_compile(const wl_nvrtc *nvrtc, const wl_compile_input *in, wl_compiled *out);
void wl_compiled_free(wl_compiled *out);
/* The arch that an image states: "sm_90a" in a cubin's ELF header and notes, "compute_90a" for PTX
   with the target sm_90a. EINVAL if it is neither. */
wl_status wl_image_arch(const void *image, size_t size, char arch[16]);
/* The CUDA version of the compiler that made it, as 13000 for 13.0; 0: it does not say. */
int wl_image_toolkit(const void *image, size_t size);

#endif
