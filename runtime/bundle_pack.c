/* bundle_pack.c - writes bundles and signs them: the same entries are the same bytes.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "bundle_file.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <zstd.h>

#include "compile.h"

#define LEVEL 19 /* fixed: another one makes other bytes */
#define MAX_TRUST (1 << 16)
#define SECRET crypto_sign_SECRETKEYBYTES
#define CONTEXT "warploom bundle " /* no signature of ours means anything else */

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

bool wl_pack_add(wl_pack *pack, wl_cache_kind kind, const wl_hash *key, const char *name,
                 const void *bytes, size_t size) {
    size_t room = ZSTD_compressBound(size);
    packed p = {.record = {.key = *key, .kind = (uint32_t)kind, .raw = (uint32_t)size},
                .bytes = wl_alloc(room)};
    size_t n = ZSTD_compress(p.bytes, room, bytes, size, LEVEL);
    if (ZSTD_isError(n)) abort(); /* its room suffices, so it is out of memory */
    p.record.packed = (uint32_t)n;
    p.record.hash = hash_of(p.bytes, n);
    const packed *there = find(pack, &p);
    if (there) free(p.bytes);
    if (there) return !memcmp(&there->record.hash, &p.record.hash, sizeof p.record.hash);
    if (kind == WL_CACHE_KERNEL) {
        if (wl_image_arch(bytes, size, p.record.arch)) clear_message();
        p.record.toolkit = (uint32_t)wl_image_toolkit(bytes, size);
    }
    p.name = wl_copy(name);
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
    qsort(pack->entry, pack->n, sizeof *pack->entry, by_key);
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

/* ---- signatures ---- */

/* What is signed: the context and the digest. */
typedef struct {
    char context[sizeof CONTEXT - 1];
    wl_hash digest;
} statement;

static statement state(const wl_hash *digest) {
    statement s = {.digest = *digest};
    memcpy(s.context, CONTEXT, sizeof s.context);
    return s;
}

bool wl_signature_holds(const uint8_t signature[WL_SIGNATURE_BYTES], const wl_hash *signer,
                        const wl_hash *digest) {
    statement s = state(digest);
    return !crypto_sign_verify_detached(signature, (const void *)&s, sizeof s, signer->bytes);
}

/* The secret key as libsodium has it: the seed, then the public key. */
static void unfold(const wl_hash *secret, wl_hash *shown, uint8_t both[SECRET]) {
    crypto_sign_seed_keypair(shown->bytes, both, secret->bytes);
}

/* Not libsodium's own randomness, which wants sodium_init (see base.c). */
void wl_sign_keys(wl_hash *secret, wl_hash *shown) {
    uint8_t both[SECRET];
    if (getrandom(secret->bytes, sizeof secret->bytes, 0) != (ssize_t)sizeof secret->bytes) abort();
    unfold(secret, shown, both);
    sodium_memzero(both, sizeof both);
}

void wl_bundle_sign(wl_buf *bundle, const wl_hash *secret) {
    bundle_prefix *prefix = (bundle_prefix *)(void *)bundle->data;
    uint8_t both[SECRET];
    statement s = state(&prefix->digest);
    unfold(secret, &prefix->signer, both);
    crypto_sign_detached(prefix->signature, NULL, (const void *)&s, sizeof s, both);
    sodium_memzero(both, sizeof both);
}

/* ---- whom to trust ---- */

static wl_status read_line(const char *path, int number, char *line, wl_trust *out) {
    wl_hash key;
    line[strcspn(line, "#\r")] = '\0';
    line += strspn(line, " \t");
    line[strcspn(line, " \t")] = '\0';
    if (!*line) return WL_OK;
    if (!wl_hash_parse(line, &key))
        return fail(WL_EINVAL, "%s:%d: expected a public key, 64 hexadecimal digits", path, number);
    out->key = wl_grow(out->key, (out->n + 1) * sizeof key);
    out->key[out->n++] = key;
    return WL_OK;
}

wl_status wl_trust_read(const char *path, wl_trust *out) {
    wl_buf text = {0};
    *out = (wl_trust){0};
    wl_status status = wl_file_read(path, MAX_TRUST, &text);
    char *rest = status ? NULL : text.data, *line;
    for (int number = 1; !status && (line = strsep(&rest, "\n")); number++)
        status = read_line(path, number, line, out);
    if (!status && !out->n)
        status = fail(WL_EINVAL, "%s: no public key: whom should WARPLOOM_TRUST trust?", path);
    wl_buf_free(&text);
    if (status) wl_trust_free(out);
    return status;
}

void wl_trust_free(wl_trust *trust) {
    free(trust->key);
    *trust = (wl_trust){0};
}
