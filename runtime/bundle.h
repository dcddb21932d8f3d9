/* bundle.h - a bundle: many entries of a cache in one read-only file, signed or not.
   SPDX-License-Identifier: BSD-3-Clause

   The file, little endian, without padding, times or paths, so that the same entries are the same
   bytes:
     144 bytes   magic, schema, size of the head; signer, signature; digest of the head
     the head    sizes, digests of the generator and of the user's specs, version; the index, sorted
                 by kind and key: key, digest, place and sizes of the payload, name, arch, toolkit;
                 the names
     payloads    a zstd frame each, in the index's order, with nothing between
   The head holds the digest of every payload, and its own digest is what is signed: so one of 32
   bytes is that of the whole file, and a big bundle is opened at the cost of a small one. */
#ifndef WL_BUNDLE_H
#define WL_BUNDLE_H

#include "cache.h"

#define WL_BUNDLE_LIMIT ((size_t)UINT32_MAX) /* bytes of a file that is signed or linked */
#define WL_SIGNATURE_BYTES 64

/* What a bundle's choices depend on but do not have in their keys: both must be those in force. */
typedef struct {
    wl_hash generator;
    wl_hash specs;    /* of the user's own; all zero: there are none */
    char version[24]; /* of warploom, for people */
} wl_bundle_facts;

typedef struct {
    wl_cache_kind kind;
    wl_hash key;  /* of a choice or a tuned record: without the user's specs */
    wl_hash hash; /* of the packed payload */
    const char *name; /* for people: the question, the kernel, the problem and the GPU */
    char arch[16];    /* of a kernel: as wl_image_arch says it; else "" */
    int toolkit;      /* of a kernel: as 13000 for 13.0; 0: not known */
    size_t packed, raw; /* bytes */
} wl_bundle_entry;

/* Public keys whose signatures count; none: a signature is checked, and whose it is doesn't matter.
 */
typedef struct {
    wl_hash *key;
    size_t n;
} wl_trust;
/* A line of the file is a public key in hexadecimal; # begins a comment. EINVAL: a line that is
   none, no line at all, no file. */
wl_status wl_trust_read(const char *path, wl_trust *out);
void wl_trust_free(wl_trust *trust);

typedef struct wl_bundle wl_bundle;
/* The file stays open, and its payloads are read when they are taken. With trust, nothing of it is
   parsed unless one of these keys has signed it. EINVAL: it cannot be opened, or is none; EVERIFY:
   what is wrong with it. */
wl_status wl_bundle_open(wl_bundle **out, const char *path, const wl_trust *trust);
/* The same of bytes that stay where they are; `name` for messages. */
wl_status wl_bundle_open_bytes(wl_bundle **out, const char *name, const void *bytes, size_t size,
                               const wl_trust *trust);
void wl_bundle_close(wl_bundle *bundle);
const wl_bundle_facts *wl_bundle_about(const wl_bundle *bundle);
const wl_hash *wl_bundle_digest(const wl_bundle *bundle);
const wl_hash *wl_bundle_signer(const wl_bundle *bundle); /* NULL: unsigned */
size_t wl_bundle_size(const wl_bundle *bundle);           /* bytes of the file */
int wl_bundle_count(const wl_bundle *bundle);
/* Entry i of the index. */
wl_bundle_entry wl_bundle_at(const wl_bundle *bundle, int i);
/* Its number; -1. */
int wl_bundle_find(const wl_bundle *bundle, wl_cache_kind kind, const wl_hash *key);
/* Appends its payload, when it is what the index says. EVERIFY. */
wl_status wl_bundle_take(const wl_bundle *bundle, int i, wl_buf *out);

/* ---- writing ---- */

/* Entries to be written; zero-initialise. */
typedef struct {
    struct wl_packed *entry;
    size_t n, room;
} wl_pack;
/* An entry and its payload, as a store has them. */
typedef struct {
    wl_cache_kind kind;
    wl_hash key;
    const char *name;
    const void *bytes;
    size_t size;
} wl_entry;
/* False when another payload is there under the same key: it stays. */
bool wl_pack_add(wl_pack *pack, const wl_entry *entry);
/* The bundle's bytes, unsigned. */
void wl_pack_print(wl_pack *pack, const wl_bundle_facts *facts, wl_buf *out);
void wl_pack_free(wl_pack *pack);

/* ---- signatures: Ed25519 ---- */

/* A new pair. */
void wl_sign_keys(wl_hash *secret, wl_hash *shown);
/* Signs a bundle's bytes in place. */
void wl_bundle_sign(wl_buf *bundle, const wl_hash *secret);
/* For the reader alone: is it the key's signature of the digest? */
bool wl_signature_holds(const uint8_t signature[WL_SIGNATURE_BYTES], const wl_hash *signer,
                        const wl_hash *digest);

#endif
