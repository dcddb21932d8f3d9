/* fuzz_launch.c - any bytes are a launch file or a clear error: for libFuzzer.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

/* What the command sim relies on. */
static void check_launch(const foreign_launch *l) {
    check(l->entry && *l->entry);
    for (int i = 0; i < 3; i++) check(l->grid[i] && l->block[i] && l->cluster[i]);
    for (int i = 0; i < l->n_buffers; i++) check(l->buffer[i].in || l->buffer[i].bytes);
    for (int i = 0; i < l->n_params; i++)
        for (int k = 0; k < l->param[i].n_fields; k++) {
            const foreign_field *f = &l->param[i].field[k];
            check(f->offset + f->size <= l->param[i].size && f->buffer < l->n_buffers);
            check(f->map ? f->size == 128 && f->buffer >= 0 && !(f->offset % 64) : f->size <= 8);
            check(!f->map || (f->map->rank >= 1 && f->map->rank <= 5));
        }
}

/* FILE:LINE:COLUMN: WHAT, within the text. */
static void check_message(size_t size) {
    char *rest;
    check(!strncmp(message(), "launch:", 7));
    long line = strtol(message() + 7, &rest, 10);
    check(line >= 1 && (size_t)line <= size + 1 && *rest == ':');
    long column = strtol(rest + 1, &rest, 10);
    check(column >= 1 && (size_t)column <= size + 1 && !strncmp(rest, ": ", 2) && rest[2]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    foreign_launch launch;
    char *text = malloc(size ? size : 1); /* its end is where reading beyond it shows */
    memcpy(text, data, size);
    clear_message();
    if (foreign_parse("launch", text, size, &launch)) {
        check_message(size);
    } else {
        check_launch(&launch);
        foreign_free(&launch);
    }
    free(text);
    return 0;
}
