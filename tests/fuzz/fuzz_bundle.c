/* fuzz_bundle.c - any bytes are a bundle or a clear error: for libFuzzer.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "bundle_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

/* What its users rely on. */
static void check_bundle(const wl_bundle *b) {
    for (int i = 0; i < wl_bundle_count(b); i++) {
        wl_bundle_entry e = wl_bundle_at(b, i);
        wl_buf out = {0};
        check(wl_bundle_find(b, e.kind, &e.key) == i && strlen(e.name) < (size_t)1 << 26);
        if (!wl_bundle_take(b, i, &out)) check(out.size == e.raw);
        else check(!out.size && !strncmp(message(), "fuzz: damaged: ", 15));
        wl_buf_free(&out);
    }
}

static void open_one(const char *bytes, size_t size) {
    wl_bundle *b;
    clear_message();
    if (wl_bundle_open_bytes(&b, "fuzz", bytes, size, NULL)) {
        check(!b && !strncmp(message(), "fuzz: ", 6));
        return;
    }
    check_bundle(b);
    wl_bundle_close(b);
}

/* As it is, and with digests that are right, as a maker of bad will would have them. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *bytes = malloc(size ? size : 1); /* its end is where reading beyond it shows */
    memcpy(bytes, data, size);
    open_one(bytes, size);
    bundle_prefix p;
    if (size >= sizeof p) {
        memcpy(&p, bytes, sizeof p);
        memcpy(p.magic, BUNDLE_MAGIC, sizeof p.magic);
        p.schema = BUNDLE_SCHEMA;
        p.head_size %= (uint32_t)(size - sizeof p + 1);
        memset(&p.signer, 0, sizeof p.signer);
        memset(p.signature, 0, sizeof p.signature);
        bundle_head *head = (bundle_head *)(void *)(bytes + sizeof p);
        if (p.head_size >= sizeof *head) head->file_size = size;
        uint32_t n = p.head_size >= sizeof *head ? head->n_entries : 0;
        for (uint32_t i = 0; i < n && sizeof *head + (i + 1) * sizeof(bundle_record) <= p.head_size;
             i++) {
            bundle_record *r = (bundle_record *)(void *)(bytes + sizeof p + sizeof *head) + i;
            if (r->offset > size || r->packed > size - r->offset) continue;
            wl_hasher hasher;
            wl_hash_begin(&hasher);
            wl_hash_field(&hasher, bytes + r->offset, r->packed);
            r->hash = wl_hash_end(&hasher);
        }
        p.digest = bundle_digest(&p, bytes + sizeof p);
        memcpy(bytes, &p, sizeof p);
        open_one(bytes, size);
    }
    free(bytes);
    return 0;
}
