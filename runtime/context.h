/* context.h - what the command needs of a context beyond warploom.h.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_CONTEXT_H
#define WL_CONTEXT_H

#include "kernel.h"

const wl_driver *wl_context_driver(const wl_context *ctx);
const wl_device *wl_context_device(const wl_context *ctx);
wl_tools *wl_context_tools(wl_context *ctx);
/* wl_forward with a hand-edited kernel: `text` (read from `file`) is compiled now and launched by
   the record of the candidate that its entry is named after. */
wl_status wl_context_forward_source(wl_context *ctx, const wl_forward_args *args, const char *file,
                                    const char *text);

#endif
