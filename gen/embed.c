/* embed.c - the build-time tool that turns the generator's files into C, and hashes them.
   SPDX-License-Identifier: BSD-3-Clause

   embed EMBED.c DIGEST.c FILE… writes EMBED.c (the table wl_embedded of gen.h) and DIGEST.c
   (wl_generator_digest, a part of every choice's key). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

#define FILE_LIMIT (16 << 20)

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* A string literal, a line of text each; '?' escaped because C17 has trigraphs. */
static void add_literal(wl_buf *out, const wl_buf *file) {
    wl_buf_text(out, "\n     \"");
    for (size_t i = 0; i < file->size; i++) {
        unsigned char c = (unsigned char)file->data[i];
        if (c == '\n') wl_buf_text(out, i + 1 < file->size ? "\\n\"\n     \"" : "\\n");
        else if (c == '"' || c == '\\' || c == '?') wl_buf_printf(out, "\\%c", c);
        else if (c < 32 || c > 126) wl_buf_printf(out, "\\%03o", c);
        else wl_buf_add(out, &c, 1);
    }
    wl_buf_text(out, "\"");
}

static void add_file(wl_buf *out, wl_hasher *hasher, const char *name, const wl_buf *file) {
    wl_hash_text(hasher, name);
    wl_hash_field(hasher, file->data, file->size);
    wl_buf_printf(out, "    {\"%s\",", name);
    add_literal(out, file);
    wl_buf_printf(out, ", %zu},\n", file->size);
}

static void finish(wl_buf *embed, wl_buf *digest, wl_hasher *hasher) {
    wl_hash hash = wl_hash_end(hasher);
    char hex[2 * WL_HASH_BYTES + 1];
    wl_hash_hex(&hash, hex);
    wl_buf_text(embed, "    {NULL, NULL, 0},\n};\n");
    wl_buf_printf(digest,
                  "/* Made by gen/embed.c. */\n"
                  "extern const char wl_generator_digest[%d];\n"
                  "const char wl_generator_digest[%d] =\n    \"%s\";\n",
                  2 * WL_HASH_BYTES + 1, 2 * WL_HASH_BYTES + 1, hex);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: embed EMBED.c DIGEST.c FILE...\n");
        return WL_EINVAL;
    }
    wl_buf embed = {0}, digest = {0};
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    wl_buf_text(&embed, "/* Made by gen/embed.c. */\n#include \"gen.h\"\n\n"
                        "const wl_embedded_file wl_embedded[] = {\n");
    qsort(argv + 3, (size_t)argc - 3, sizeof *argv, by_name);
    wl_status status = WL_OK;
    for (int i = 3; i < argc && !status; i++) {
        wl_buf file = {0};
        status = wl_file_read(argv[i], FILE_LIMIT, &file);
        if (!status) add_file(&embed, &hasher, argv[i], &file);
        wl_buf_free(&file);
    }
    finish(&embed, &digest, &hasher);
    if (!status) status = wl_file_write(argv[1], embed.data, embed.size);
    if (!status) status = wl_file_write(argv[2], digest.data, digest.size);
    if (status) fprintf(stderr, "embed: %s\n", message());
    wl_buf_free(&embed);
    wl_buf_free(&digest);
    return (int)status;
}
