/* bundle.c - opens a bundle, finds and unpacks its entries; believes no number in it.
   SPDX-License-Identifier: BSD-3-Clause

   Read with pread and not mapped: a file that is cut while it is in use gives a short read and not
   a signal. */
#define _GNU_SOURCE
#include "bundle_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

struct wl_bundle {
    char *name;
    int fd; /* -1: of bytes */
    const char *bytes;
    size_t size;
    bundle_prefix prefix;
    char *head; /* the index and the names are in it */
    bundle_head about;
    const char *index, *names;
};

/* Exactly these bytes of the file; false when they are not all there. */
static bool read_at(const wl_bundle *b, uint64_t offset, void *to, size_t size) {
    if (offset > b->size || size > b->size - offset) return false;
    if (b->fd < 0) memcpy(to, b->bytes + offset, size);
    for (char *at = to; b->fd >= 0 && size;) {
        ssize_t n = pread(b->fd, at, size, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n, size -= (size_t)n, offset += (size_t)n;
    }
    return true;
}

static bundle_record record(const wl_bundle *b, int i) {
    bundle_record r;
    memcpy(&r, b->index + (size_t)i * sizeof r, sizeof r);
    return r;
}

static int order(uint32_t kind, const wl_hash *key, const bundle_record *r) {
    if (kind != r->kind) return kind < r->kind ? -1 : 1;
    return memcmp(key, &r->key, sizeof *key);
}

/* ---- opening ---- */

wl_hash bundle_digest(const bundle_prefix *prefix, const void *head) {
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, &prefix->schema, 8); /* and head_size */
    wl_hash_field(&hasher, head, prefix->head_size);
    return wl_hash_end(&hasher);
}

static bool is_zero(const void *bytes, size_t size) {
    const char *at = bytes;
    while (size && !*at) at++, size--;
    return !size;
}

/* Before anything else is looked at: is it whole, and signed by whom it must be? */
static wl_status check_prefix(wl_bundle *b, const wl_trust *trust) {
    const bundle_prefix *p = &b->prefix;
    char hex[2 * WL_HASH_BYTES + 1];
    if (!read_at(b, 0, &b->prefix, sizeof b->prefix) || memcmp(p->magic, BUNDLE_MAGIC, 8))
        return fail(WL_EINVAL, "%s: no bundle of warploom", b->name);
    if (p->schema != BUNDLE_SCHEMA)
        return fail(WL_EINVAL, "%s: a bundle of schema %u, and warploom %s reads schema %u: build "
                    "it anew", b->name, p->schema, WARPLOOM_VERSION, BUNDLE_SCHEMA);
    size_t size = p->head_size;
    b->head = size > BUNDLE_HEAD || size > b->size ? NULL : wl_alloc(size);
    if (!b->head || !read_at(b, sizeof *p, b->head, size))
        return fail(WL_EVERIFY, "%s: damaged: it is cut off", b->name);
    wl_hash digest = bundle_digest(p, b->head);
    if (memcmp(&digest, &p->digest, sizeof digest))
        return fail(WL_EVERIFY, "%s: damaged: its head has another digest than it states", b->name);
    bool bare = is_zero((const char *)p + offsetof(bundle_prefix, signer),
                        sizeof p->signer + sizeof p->signature);
    if (!bare && !wl_signature_holds(p->signature, &p->signer, &digest))
        return fail(WL_EVERIFY, "%s: its signature is not of this bundle", b->name);
    if (!trust || !trust->n) return WL_OK;
    if (bare)
        return fail(WL_EVERIFY, "%s: unsigned, and only keys of WARPLOOM_TRUST are trusted: sign "
                    "it with `warploom bundle sign`", b->name);
    for (size_t i = 0; i < trust->n; i++)
        if (!memcmp(&trust->key[i], &p->signer, sizeof p->signer)) return WL_OK;
    wl_hash_hex(&p->signer, hex);
    return fail(WL_EVERIFY, "%s: signed by %s, which is no key of WARPLOOM_TRUST", b->name, hex);
}

/* What is wrong with entry i, whose payload must begin at *offset; NULL. */
static const char *check_record(const wl_bundle *b, int i, uint64_t *offset) {
    bundle_record r = record(b, i), before = {0};
    if (i) before = record(b, i - 1);
    if (order(before.kind, &before.key, &r) >= 0) return "its index is out of order";
    if (!r.kind || r.kind > 255 || !strchr("ckt", (int)r.kind)) return "an entry is of no kind";
    if (r.offset != *offset || r.packed > b->size - *offset) return "a payload is out of place";
    if (r.raw > BUNDLE_PAYLOAD) return "a payload is too large";
    if (r.name >= b->about.names_size) return "a name is out of place";
    if (memchr(r.arch, '\0', sizeof r.arch) == NULL || r.reserved) return "an entry is malformed";
    *offset += r.packed;
    return NULL;
}

/* What is wrong with the head; NULL. */
static const char *check_head(wl_bundle *b) {
    bundle_head *h = &b->about;
    if (b->prefix.head_size < sizeof *h) return "its head is too short";
    memcpy(h, b->head, sizeof *h);
    uint64_t index = (uint64_t)h->n_entries * sizeof(bundle_record);
    if (h->file_size != b->size) return "its size is not what it states";
    if (sizeof *h + index + h->names_size != b->prefix.head_size) return "its parts do not fit";
    if (!memchr(h->facts.version, '\0', sizeof h->facts.version) || h->reserved)
        return "its head is malformed";
    b->index = b->head + sizeof *h;
    b->names = b->index + index;
    if (h->names_size && b->names[h->names_size - 1]) return "its names have no end";
    uint64_t offset = sizeof b->prefix + b->prefix.head_size;
    for (int i = 0; i < (int)h->n_entries; i++) {
        const char *wrong = check_record(b, i, &offset);
        if (wrong) return wrong;
    }
    return offset == b->size ? NULL : "bytes follow its payloads";
}

static wl_status open_checked(wl_bundle *b, const wl_trust *trust, wl_bundle **out) {
    wl_status status = check_prefix(b, trust);
    const char *wrong = status ? NULL : check_head(b);
    if (wrong) status = fail(WL_EVERIFY, "%s: damaged: %s", b->name, wrong);
    if (status) wl_bundle_close(b);
    else *out = b;
    return status;
}

wl_status wl_bundle_open(wl_bundle **out, const char *path, const wl_trust *trust) {
    struct stat info;
    *out = NULL;
    /* O_NONBLOCK: a FIFO must be refused, not waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return fail(WL_EINVAL, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(fd, &info) || !S_ISREG(info.st_mode)) {
        close(fd);
        return fail(WL_EINVAL, "%s: not a regular file", path);
    }
    wl_bundle *b = wl_alloc(sizeof *b);
    b->name = wl_copy(path);
    b->fd = fd;
    b->size = (size_t)info.st_size;
    return open_checked(b, trust, out);
}

wl_status wl_bundle_open_bytes(wl_bundle **out, const char *name, const void *bytes, size_t size,
                               const wl_trust *trust) {
    wl_bundle *b = wl_alloc(sizeof *b);
    *out = NULL;
    b->name = wl_copy(name);
    b->fd = -1;
    b->bytes = bytes;
    b->size = size;
    return open_checked(b, trust, out);
}

void wl_bundle_close(wl_bundle *b) {
    if (!b) return;
    if (b->fd >= 0) close(b->fd);
    free(b->name), free(b->head);
    free(b);
}

/* ---- what is in it ---- */

const wl_bundle_facts *wl_bundle_about(const wl_bundle *b) {
    return &b->about.facts;
}

const wl_hash *wl_bundle_digest(const wl_bundle *b) {
    return &b->prefix.digest;
}

const wl_hash *wl_bundle_signer(const wl_bundle *b) {
    return is_zero(&b->prefix.signer, sizeof b->prefix.signer) ? NULL : &b->prefix.signer;
}

size_t wl_bundle_size(const wl_bundle *b) {
    return b->size;
}

int wl_bundle_count(const wl_bundle *b) {
    return (int)b->about.n_entries;
}

wl_bundle_entry wl_bundle_at(const wl_bundle *b, int i) {
    bundle_record r = record(b, i);
    wl_bundle_entry e = {.kind = (wl_cache_kind)r.kind,
                         .key = r.key,
                         .hash = r.hash,
                         .name = b->names + r.name,
                         .toolkit = (int)r.toolkit,
                         .packed = r.packed,
                         .raw = r.raw};
    memcpy(e.arch, r.arch, sizeof e.arch);
    return e;
}

int wl_bundle_find(const wl_bundle *b, wl_cache_kind kind, const wl_hash *key) {
    int low = 0, high = wl_bundle_count(b);
    while (low < high) {
        int middle = low + (high - low) / 2;
        bundle_record r = record(b, middle);
        int way = order((uint32_t)kind, key, &r);
        if (!way) return middle;
        if (way < 0) high = middle;
        else low = middle + 1;
    }
    return -1;
}

/* zstd sees nothing but what has the digest that the head states. */
static const char *unpack(const bundle_record *r, const char *packed, wl_buf *out) {
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, packed, r->packed);
    wl_hash hash = wl_hash_end(&hasher);
    if (memcmp(&hash, &r->hash, sizeof hash)) return "it has another digest than the index states";
    char *raw = wl_alloc(r->raw);
    size_t size = ZSTD_decompress(raw, r->raw, packed, r->packed);
    bool good = !ZSTD_isError(size) && size == r->raw;
    if (good) wl_buf_add(out, raw, size);
    free(raw);
    return good ? NULL : "it cannot be unpacked";
}

wl_status wl_bundle_take(const wl_bundle *b, int i, wl_buf *out) {
    bundle_record r = record(b, i);
    char *packed = wl_alloc(r.packed);
    const char *wrong = read_at(b, r.offset, packed, r.packed) ? unpack(&r, packed, out)
                                                               : "it cannot be read";
    free(packed);
    return wrong ? fail(WL_EVERIFY, "%s: damaged: %s: %s", b->name, b->names + r.name, wrong)
                 : WL_OK;
}
