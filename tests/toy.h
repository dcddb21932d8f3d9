/* toy.h - a small family for the generator's tests, and a generator over chosen files.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TOY_H
#define WL_TOY_H

#include <stdlib.h>

#include "box.h"
#include "gen.h"
#include "test.h"

#define TOY_AXES                                                                                   \
    "family: toy\n"                                                                                \
    "arch: sm_90a\n"                                                                               \
    "names: {head_dim: d, head_dim_v: v, tile: [m, n], stages: s, softmax: {optimistic: opt}}\n"   \
    "axes:\n"                                                                                      \
    "  head_dim: {from: 16, to: 64, step: 16, listed: [32, 64]}\n"                                 \
    "  head_dim_v: {from: 16, to: 64, step: 16, listed: [32, 64]}\n"                               \
    "  mask: [none, causal]\n"                                                                     \
    "  layout: [bshd, bhsd]\n"                                                                     \
    "launch_axes: [layout]\n"

#define TOY_SPEC                                                                                   \
    TOY_AXES                                                                                       \
        "tune: {tile: [[128, 64], [64, 64]], stages: [4, 2], softmax: [exact, optimistic]}\n"      \
        "launch: {section_mb: [72, 16]}\n"                                                         \
        "require:\n"                                                                               \
        "  - {rule: shared_bytes <= 65536, why: the memory there is}\n"                            \
        "  - {rule: mask == none or stages == 4, why: causal needs four}\n"                        \
        "  - {rule: tile_m + tile_n <= 192 and head_dim_v <= head_dim, why: the toy is small}\n"   \
        "prefer:\n"                                                                                \
        "  - {when: seq_k > 2048 and layout == bshd, use: {tile: [64, 64], section_mb: 16}}\n"     \
        "  - {when: mask == causal, use: {softmax: optimistic, stages: 2, section_mb: 16}}\n"      \
        "generated: [toy_d32_none_m64n64_s2_opt]\n"

#define TOY_LUA                                                                                    \
    "local M = {}\n"                                                                               \
    "function M.plan(c)\n"                                                                         \
    "    return {slot_bytes = c.head_dim * c.tile_n * 2, list = {1, 2},\n"                         \
    "        shared_bytes = c.stages * c.head_dim * c.tile_n * 4}\n"                               \
    "end\n"                                                                                        \
    "function M.launch(c, p, name)\n"                                                              \
    "    return {'scratch 0', ('set section_mb %d'):format(c.section_mb), 'kernel ' .. name,\n"    \
    "        ('shared %d'):format(p.shared_bytes)}\n"                                              \
    "end\n"                                                                                        \
    "function M.explain(c, p) return {{'ring', ('%d slots'):format(c.stages)}} end\n"              \
    "return M\n"

#define TOY_CU                                                                                     \
    "// ${name} for ${arch}, ${family}\n"                                                          \
    "$ if mask == 'causal' then\n"                                                                 \
    "    int causal = ${stages};\n"                                                                \
    "$ end\n"                                                                                      \
    "$ include \"body\"\n"                                                                         \
    "int m = ${tile_m}, n = ${tile[2]}, bytes = ${shared_bytes};\n"

#define TOY_BODY "int body = ${head_dim_v};\n"

typedef struct {
    const char *spec, *lua, *cu, *body, *table;
} toy_files;

static wl_embedded_file toy_table[40];
static const wl_box_limits *toy_limits; /* NULL: the usual ones */

static void toy_add(int *n, const char *name, const char *text) {
    toy_table[(*n)++] = (wl_embedded_file){name, text, strlen(text)};
}

/* Opens a generator over the real modules and the toy's files; a NULL one is TOY_…'s. */
static wl_status toy_open(wl_gen **out, toy_files files) {
    int n = 0;
    for (const wl_embedded_file *file = wl_embedded; file->name; file++)
        if (!strncmp(file->name, "gen/", 4)) toy_table[n++] = *file;
    toy_add(&n, "specs/toy.yaml", files.spec ? files.spec : TOY_SPEC);
    if (files.table) toy_add(&n, "specs/tuned/toy.yaml", files.table);
    toy_add(&n, "templates/device/one.cuh", "int one;\n");
    toy_add(&n, "templates/device/two.cuh", "int two;\n");
    toy_add(&n, "templates/parts/body.in", files.body ? files.body : TOY_BODY);
    toy_add(&n, "templates/toy.cu.in", files.cu ? files.cu : TOY_CU);
    toy_add(&n, "templates/toy.lua", files.lua ? files.lua : TOY_LUA);
    toy_table[n] = (wl_embedded_file){NULL, NULL, 0};
    return wl_gen_open_box(out, toy_table, toy_limits ? toy_limits : &wl_box_usual);
}

/* The answer, in a buffer that the next call reuses; its message if it failed. */
__attribute__((unused)) static const char *ask(wl_gen *gen, const char *verb, const char *arg) {
    static wl_buf out;
    if (!gen) return "no generator";
    out.size = 0;
    wl_buf_text(&out, "");
    return wl_gen_call(gen, verb, arg, &out) ? wl_gen_error() : out.data;
}

__attribute__((unused)) static wl_status spec(wl_gen *gen, const char *text) {
    return wl_gen_spec(gen, "mine.yaml", text, strlen(text));
}

#endif
