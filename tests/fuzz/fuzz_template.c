/* fuzz_template.c - any template is rendered or refused at its line; a family's Lua the same.
   SPDX-License-Identifier: BSD-3-Clause

   The input is a template; behind a line "=====" a family's Lua, if there is one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"
#include "gen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char spec[] =
    "family: toy\narch: sm_90a\n"
    "names: {head_dim: d, tile: [m, n], stages: s}\n"
    "axes: {head_dim: [32, 64], mask: [none, causal], layout: [bshd]}\nlaunch_axes: [layout]\n"
    "tune: {tile: [[128, 64], [64, 64]], stages: [4, 2]}\nlaunch: {section_mb: [72, 16]}\n"
    "require:\n  - {rule: shared_bytes <= 65536, why: the memory there is}\n";
static const char lua[] =
    "local M = {}\n"
    "function M.plan(c) return {shared_bytes = c.stages * c.head_dim * c.tile_n * 4} end\n"
    "function M.launch(c, p, name) return {'kernel ' .. name} end\n"
    "function M.explain(c, p) return {{'ring', 'slots'}} end\n"
    "function M.render(c, p) return {list = {1, 2, 3}} end\n"
    "return M\n";
static const char body[] = "int body = ${head_dim};\n$ if mask == 'causal' then\n"
                           "    int causal = ${stages};\n$ end\n";

static void add(wl_embedded_file *table, int *n, const char *name, const char *text, size_t size) {
    table[(*n)++] = (wl_embedded_file){name, text, size};
}

static void check(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, wl_gen_error());
    abort();
}

static size_t lines(const wl_buf *text) {
    size_t n = 0;
    for (size_t i = 0; i < text->size; i++) n += text->data[i] == '\n';
    return n;
}

static bool ask(wl_gen *gen, const char *verb, wl_buf *out) {
    wl_status status = wl_gen_call(gen, verb, "toy_d32_causal_m64n64_s2", out);
    check(!status || ((status == WL_ESPEC || status == WL_EINVAL) && *wl_gen_error()),
          "a failure without a message");
    return !status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const wl_box_limits limits = {24 << 20, 1 << 20, 20000000, 20};
    static const char mark[] = "\n=====\n";
    const char *text = (const char *)data, *cut = memmem(text, size, mark, sizeof mark - 1);
    wl_embedded_file table[40];
    int n = 0;
    for (const wl_embedded_file *file = wl_embedded; file->name; file++)
        if (!strncmp(file->name, "gen/", 4)) table[n++] = *file;
    add(table, &n, "specs/toy.yaml", spec, sizeof spec - 1);
    add(table, &n, "templates/parts/body.in", body, sizeof body - 1);
    add(table, &n, "templates/toy.cu.in", text, cut ? (size_t)(cut + 1 - text) : size);
    if (cut) {
        cut += sizeof mark - 1;
        add(table, &n, "templates/toy.lua", cut, size - (size_t)(cut - text));
    } else {
        add(table, &n, "templates/toy.lua", lua, sizeof lua - 1);
    }
    table[n] = (wl_embedded_file){NULL, NULL, 0};
    wl_gen *gen;
    wl_buf source = {0}, map = {0}, other = {0};
    if (!wl_gen_open_box(&gen, table, &limits)) {
        bool both = ask(gen, "source", &source) && ask(gen, "linemap", &map);
        check(!both || lines(&source) == lines(&map), "text and line map differ in lines");
        ask(gen, "launch", &other);
        ask(gen, "explain", &other);
    }
    wl_gen_close(gen);
    wl_buf_free(&source);
    wl_buf_free(&map);
    wl_buf_free(&other);
    return 0;
}
