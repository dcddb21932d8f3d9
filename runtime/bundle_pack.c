/* bundle_pack.c - writes bundles: the same entries are the same bytes.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "bundle_file.h"

#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include "compile.h"

#define LEVEL 19 /* fixed: another one makes other bytes */

typedef struct wl_packed {
    bundle_record record;
    char *name, *bytes;
} packed;

/* ---- entries ---- */

static int by_key(const void *a, const void *b) {
    const bundle_record *x = &((const packed *)a)->record, *y = &((const packed *)b)->record;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return memcmp(&x->key, &y->key, sizeof x->key);
}

static packed *find(const wl_pack *pack, const packed *like) {
    for (size_t i = 0; i < pack->n; i++)
        if (!by_key(&pack->entry[i], like)) return &pack->entry[i];
    return NULL;
}

static wl_hash hash_of(const void *bytes, size_t size) {
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, bytes, size);
    return wl_hash_end(&hasher);
}

bool wl_pack_add(wl_pack *pack, const wl_entry *e) {
    size_t room = ZSTD_compressBound(e->size);
    packed p = {.record = {.key = e->key, .kind = (uint32_t)e->kind, .raw = (uint32_t)e->size},
                .bytes = wl_alloc(room)};
    size_t n = ZSTD_compress(p.bytes, room, e->bytes, e->size, LEVEL);
    if (ZSTD_isError(n)) abort(); /* its room suffices, so it is out of memory */
    p.record.packed = (uint32_t)n;
    p.record.hash = hash_of(p.bytes, n);
    const packed *there = find(pack, &p);
    if (there) free(p.bytes);
    if (there) return !memcmp(&there->record.hash, &p.record.hash, sizeof p.record.hash);
    if (e->kind == WL_CACHE_KERNEL) {
        if (wl_image_arch(e->bytes, e->size, p.record.arch)) clear_message();
        p.record.toolkit = (uint32_t)wl_image_toolkit(e->bytes, e->size);
    }
    p.name = wl_copy(e->name);
    pack->entry = wl_grow(pack->entry, (pack->n + 1) * sizeof p);
    pack->entry[pack->n++] = p;
    return true;
}

void wl_pack_free(wl_pack *pack) {
    for (size_t i = 0; i < pack->n; i++) free(pack->entry[i].name), free(pack->entry[i].bytes);
    free(pack->entry);
    *pack = (wl_pack){0};
}

void wl_pack_print(wl_pack *pack, const wl_bundle_facts *facts, wl_buf *out) {
    bundle_prefix prefix = {.schema = BUNDLE_SCHEMA};
    bundle_head head = {.facts = *facts, .n_entries = (uint32_t)pack->n};
    wl_buf body = {0}, names = {0};
    if (pack->n) qsort(pack->entry, pack->n, sizeof *pack->entry, by_key);
    for (size_t i = 0; i < pack->n; i++) {
        pack->entry[i].record.name = (uint32_t)names.size;
        wl_buf_add(&names, pack->entry[i].name, strlen(pack->entry[i].name) + 1);
    }
    prefix.head_size = (uint32_t)(sizeof head + pack->n * sizeof(bundle_record) + names.size);
    head.file_size = sizeof prefix + prefix.head_size;
    head.names_size = (uint32_t)names.size;
    for (size_t i = 0; i < pack->n; i++) {
        pack->entry[i].record.offset = head.file_size;
        head.file_size += pack->entry[i].record.packed;
    }
    wl_buf_add(&body, &head, sizeof head);
    for (size_t i = 0; i < pack->n; i++)
        wl_buf_add(&body, &pack->entry[i].record, sizeof(bundle_record));
    wl_buf_add(&body, names.data, names.size);
    memcpy(prefix.magic, BUNDLE_MAGIC, sizeof prefix.magic);
    prefix.digest = bundle_digest(&prefix, body.data);
    wl_buf_add(out, &prefix, sizeof prefix);
    wl_buf_add(out, body.data, body.size);
    for (size_t i = 0; i < pack->n; i++)
        wl_buf_add(out, pack->entry[i].bytes, pack->entry[i].record.packed);
    wl_buf_free(&body), wl_buf_free(&names);
}
