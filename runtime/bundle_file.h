/* bundle_file.h - how a bundle lies in its file: for its reader and its writer.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_BUNDLE_FILE_H
#define WL_BUNDLE_FILE_H

#include "bundle.h"

#define BUNDLE_MAGIC "wlbundle"
#define BUNDLE_SCHEMA 1u
#define BUNDLE_PAYLOAD ((size_t)64 << 20) /* the most bytes of one, unpacked */
#define BUNDLE_HEAD ((size_t)64 << 20)    /* the most of a head: half a million entries */

typedef struct {
    char magic[8];
    uint32_t schema, head_size;
    wl_hash signer; /* all zero with its signature: unsigned */
    uint8_t signature[WL_SIGNATURE_BYTES];
    wl_hash digest; /* of schema, head_size and the head */
} bundle_prefix;
_Static_assert(sizeof(bundle_prefix) == 144, "no padding");

typedef struct {
    uint64_t file_size;
    uint32_t n_entries, names_size;
    wl_bundle_facts facts;
    uint64_t reserved;
} bundle_head;
_Static_assert(sizeof(bundle_head) == 112, "no padding");

typedef struct {
    wl_hash key, hash;
    uint64_t offset; /* in the file */
    uint32_t packed, raw, name, kind, toolkit;
    char arch[16];
    uint32_t reserved;
} bundle_record;
_Static_assert(sizeof(bundle_record) == 112, "no padding");

wl_hash bundle_digest(const bundle_prefix *prefix, const void *head);

#endif
