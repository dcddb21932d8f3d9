/* bundle_sign.c - signs bundles and checks signatures (Ed25519); whose count.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "bundle_file.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SECRET crypto_sign_SECRETKEYBYTES
#define MAX_TRUST (1 << 16)
#define CONTEXT "warploom bundle " /* no signature of ours means anything else */

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
