/* fuzz_tmap.c - libFuzzer: any arguments are encoded or refused; a box's runs tile it exactly.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "sim/tmap.h"

#define BASE 1024u
#define ROOM 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct {
    const uint8_t *data;
    size_t size;
} input;

/* The next number: a byte that says how many bytes (up to 8) and which shift, then they. */
static uint64_t take(input *in) {
    if (!in->size) return 1;
    uint8_t head = *in->data++;
    uint64_t x = 0;
    in->size--;
    for (int n = head & 7; n && in->size; n--, in->size--) x = x << 8 | *in->data++;
    return (head & 7) ? x << (head >> 4 & 15) : head >> 3;
}

typedef struct {
    const tmap *map;
    uint8_t seen[ROOM];
    uint32_t bytes;
} box;

static void visit(void *user, const tmap_run *run) {
    box *b = user;
    if (!run->bytes || run->shared < BASE || run->shared + run->bytes > BASE + ROOM) abort();
    if (run->shared / 128 != (run->shared + run->bytes - 1) / 128) abort();
    if (run->bytes % b->map->element_bytes) abort();
    for (uint32_t i = 0; i < run->bytes; i++)
        if (b->seen[run->shared - BASE + i]++) abort();
    b->bytes += run->bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    input in = {data, size};
    uint64_t dims[5], strides[5];
    uint32_t boxes[5], steps[5];
    int32_t at[5];
    int type = (int)take(&in), interleave = (int)take(&in) % 4, swizzle = (int)take(&in);
    int promotion = (int)take(&in), fill = (int)take(&in);
    uint32_t rank = (uint32_t)take(&in);
    uint64_t address = take(&in);
    for (int i = 0; i < 5; i++) {
        dims[i] = take(&in), strides[i] = take(&in);
        boxes[i] = (uint32_t)take(&in), steps[i] = (uint32_t)take(&in), at[i] = (int32_t)take(&in);
    }
    tmap map;
    clear_message();
    wl_status status = tmap_encode(&map, type, rank, address, dims, strides, boxes, steps,
                                   interleave, swizzle, promotion, fill);
    if ((status == WL_OK) == (*message() != 0)) abort();
    if (status) return 0;
    static box b;
    memset(&b, 0, sizeof b);
    b.map = &map;
    if (!tmap_valid(&map)) abort();
    if (tmap_room(&map) > ROOM) return 0;
    tmap_walk(&map, BASE, at, size & 1, visit, &b);
    if (b.bytes != tmap_box_bytes(&map)) abort();
    memcpy(&map, data, size < sizeof map ? size : sizeof map);
    tmap_valid(&map);
    return 0;
}
