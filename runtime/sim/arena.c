/* arena.c - the memory of one module: taken piece by piece, given back at once.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

struct sim_chunk {
    struct sim_chunk *before;
    size_t used, size;
    _Alignas(64) char bytes[];
};

static struct sim_chunk *more(sim_arena *a, size_t size) {
    size_t whole =
        size > 65536 - sizeof(struct sim_chunk) ? size : 65536 - sizeof(struct sim_chunk);
    size_t bytes = (sizeof(struct sim_chunk) + whole + 63) & ~(size_t)63;
    struct sim_chunk *chunk = aligned_alloc(64, bytes);
    if (!chunk) abort();
    memset(chunk, 0, bytes);
    chunk->before = a->last;
    chunk->size = whole;
    return a->last = chunk;
}

void *sim_take(sim_arena *a, size_t size) {
    size_t align = size >= 64 ? 64 : 8;
    struct sim_chunk *chunk = a->last;
    size_t at = chunk ? (chunk->used + align - 1) & ~(align - 1) : 0;
    if (!chunk || at > chunk->size || chunk->size - at < size) chunk = more(a, size), at = 0;
    chunk->used = at + size;
    return chunk->bytes + at;
}

char *sim_take_text(sim_arena *a, const char *text, size_t size) {
    char *copy = sim_take(a, size + 1);
    memcpy(copy, text, size);
    return copy;
}

void sim_arena_free(sim_arena *a) {
    for (struct sim_chunk *chunk = a->last, *before; chunk; chunk = before) {
        before = chunk->before;
        free(chunk);
    }
    a->last = NULL;
}
