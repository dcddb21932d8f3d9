/* tools.h - what makes kernels, opened when first needed: cache, specs, generator, NVRTC.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TOOLS_H
#define WL_TOOLS_H

#include "compile.h"
#include "driver.h"
#include "store.h"

/* Not for several threads at once: a context calls it under its lock. */
typedef struct wl_tools wl_tools;

/* options may be NULL. EINVAL: options.size, a bad `cache`, `jit` or `trust`. */
wl_status wl_tools_open(wl_tools **out, const wl_options *options);
void wl_tools_close(wl_tools *tools);
wl_cache *wl_tools_cache(wl_tools *tools);
wl_store *wl_tools_store(wl_tools *tools);
/* Adds one more spec file after those of options->specs (--spec FILE), before the first question.
 */
void wl_tools_spec(wl_tools *tools, const char *path);
/* Adds a variant by its text, behind the files, at any moment; the same text again adds nothing.
   Where JIT is off and there is no generator it is taken unread. ESPEC: every error, a line each,
   at yaml:LINE:COL; nothing is added then. */
wl_status wl_tools_variant(wl_tools *tools, const char *yaml);
/* One question to the generator (verbs in gen.h). ECOMPILE when libwarploom-gen.so is not found. */
wl_status wl_tools_ask(wl_tools *tools, const char *verb, const char *arg, wl_buf *out);

/* What makes another process open the same tools: "NAME=value" of cache, JIT, specs and NVRTC, each
   ended by a NUL. As long as these are open: it reads their texts from them. */
void wl_tools_environment(wl_tools *tools, wl_buf *out);

/* The log of wl_options, NULL when there is none. */
void wl_tools_log(const wl_tools *tools, void (**log)(void *user, const char *message),
                  void **user);
/* Is JIT on? */
bool wl_tools_jit(const wl_tools *tools);
/* Reads the user's specs in force, at the first call, and tells the store the hash of their
   bytes: a file's name is for messages alone. */
wl_status wl_tools_read_specs(wl_tools *tools);
/* Their names and texts, for wl_hash_note. */
void wl_tools_note_specs(const wl_tools *tools, wl_hasher *hasher);
/* NVRTC alone. */
wl_status wl_tools_nvrtc(wl_tools *tools, const wl_nvrtc **nvrtc);
/* NVRTC, and the device headers and arch of a compile. */
wl_status wl_tools_compiler(wl_tools *tools, const wl_nvrtc **nvrtc, wl_compile_input *in);

#endif
