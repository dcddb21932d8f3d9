/* other.c - the digest of another version's generator.
   SPDX-License-Identifier: BSD-3-Clause */
extern const char wl_generator_digest[65];
const char wl_generator_digest[65] =
    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
