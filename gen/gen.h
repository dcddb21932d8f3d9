/* gen.h - the generator: problem or name in, text out. A library of its own (libwarploom-gen.so).
   SPDX-License-Identifier: BSD-3-Clause

   The exported names are looked up by dlsym, so their types are typedefs too. */
#ifndef WL_GEN_H
#define WL_GEN_H

#include "base.h"

typedef struct wl_gen wl_gen;

/* A new generator with the built-in specs, templates and device headers. */
WARPLOOM_API wl_status wl_gen_open(wl_gen **out);
/* Adds a user's spec, or table of choices (tuned.lua). ESPEC: the message holds every error of the
   file, a line each, in order. */
WARPLOOM_API wl_status wl_gen_spec(wl_gen *gen, const char *path, const char *text, size_t size);
/* One question, one text. Verbs (arg):
     list PROBLEM       the candidates' names, best guess first, a line each
     choose PROBLEM     the launch record of the candidate that a table of choices has for it, or
                        for the problem nearest to it, else of the preferred one
     prefer PROBLEM     the same, whatever tables say
     launch NAME [NUMBER=VALUE…]    the launch record of that candidate with these launch numbers
     source NAME        the CUDA text
     linemap NAME       for each line of the source: `FILE:LINE` it comes from
     explain NAME|PROBLEM   for people
     check ""           validates every spec, renders one candidate of each, names the tables'
                        entries that no spec allows: "" or ESPEC
     check FILE's text is added by wl_gen_spec first
     numbers PROBLEM    the launch numbers of its candidates, `NAME VALUE…`, a line each
     header ""          the names of the in-memory headers, a line each
     header NAME        one header's text
     generated ""       the names that the specs want committed, a line each
     cover ""           few names that together have, for each spec, every value of every axis
                        (every step of a range) and every legal pair of listed values
     all ""             the names of every candidate at the axes' listed values
     counts NAME PROBLEM    for people: tiles that are loaded, full and mixed; sizes as given
     draw NAME|- PROBLEM    an SVG of the mask: the candidate's tiles, or (-) small ones
     formula SPEC masks|scores NAME    a mask or score as it was understood, its C, and the analysis
                        of its tiles or its derivative
     masks SPEC         the names of a spec's masks, a line each
     tiles SPEC MASK TILE_M TILE_N KEY=VALUE…    a line for each tile of rows, a character for each
                        tile of columns: . none kept, # all, / some
     variant TEXT       adds a variant, places in whose text are told as `yaml:LINE:COL`: its name
     words ""           the problem's words: `word kind default what`, a line each
   A problem's sizes (batch, heads, lengths) count rounded (wl_problem_bucket).
   EINVAL for a bad problem or an unknown name, ESPEC for a bad spec or template. */
WARPLOOM_API wl_status wl_gen_call(wl_gen *gen, const char *verb, const char *arg, wl_buf *out);
WARPLOOM_API void wl_gen_close(wl_gen *gen);
/* This library's own message of the calling thread. */
WARPLOOM_API const char *wl_gen_error(void);

/* The files a generator works from: gen/NAME.lua, specs/NAME.yaml, templates/…; the table made by
   gen/embed.c ends with a NULL name. Tests open a generator over files of their own. */
typedef struct {
    const char *name, *text;
    size_t size;
} wl_embedded_file;
extern const wl_embedded_file wl_embedded[];
typedef struct wl_box_limits wl_box_limits;
wl_status wl_gen_open_box(wl_gen **out, const wl_embedded_file *files,
                          const wl_box_limits *limits);

#endif
