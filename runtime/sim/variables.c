/* variables.c - declarations of parameters and variables, types of registers.
   SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include "ptx.h"

#define MOST_BYTES (1u << 28) /* of one variable: far more than any memory here has */

static const struct {
    const char *name;
    uint8_t bytes;
    char kind;
} types[] = {
    {".b8", 1, 0},    {".u8", 1, 0},    {".s8", 1, 0},      {".b16", 2, 'h'},    {".u16", 2, 'h'},
    {".s16", 2, 'h'}, {".f16", 2, 'h'}, {".bf16", 2, 'h'},  {".b32", 4, 'i'},    {".u32", 4, 'i'},
    {".s32", 4, 'i'}, {".f32", 4, 'i'}, {".f16x2", 4, 'i'}, {".bf16x2", 4, 'i'}, {".b64", 8, 'l'},
    {".u64", 8, 'l'}, {".s64", 8, 'l'}, {".f64", 8, 'l'},   {".pred", 0, 'p'},
};

static int find_type(const lex_token *word) {
    for (int i = 0; i < (int)(sizeof types / sizeof *types); i++)
        if (lex_same(word, types[i].name)) return i;
    return -1;
}

char type_kind(const lex_token *word) {
    int i = find_type(word);
    return i < 0 ? 0 : types[i].kind;
}

uint32_t type_bytes(const lex_token *word) {
    int i = find_type(word);
    return i < 0 ? 0 : types[i].bytes;
}

/* `[4][8]`, or `[]` for what is as large as the launch says. */
static void read_dimensions(lexer *l, sim_declaration *d) {
    uint64_t size = d->bytes;
    int line = l->token.line;
    while (lex_take(l, "[")) {
        d->array = true;
        if (lex_is_literal(l)) size *= lex_count(l, MOST_BYTES, "the length of an array");
        else size = 0;
        lex_want(l, "]");
        if (size > MOST_BYTES) lex_fail(l, line, "the array is larger than %u bytes", MOST_BYTES);
    }
    d->size = (uint32_t)size;
}

/* [.align N] TYPE [.ptr …] NAME [dimensions]; an alignment after .ptr is that of what it points to.
 */
sim_declaration declaration_read(lexer *l) {
    sim_declaration d = {.bytes = 0};
    bool pointer = false;
    uint32_t vector = 1;
    while (l->token.kind == LEX_WORD && *l->token.at == '.') {
        lex_token word = lex_word(l, "a type");
        if (lex_same(&word, ".align")) {
            uint32_t align = lex_count(l, 1024, "an alignment");
            if (!pointer) d.align = align;
            if (align & (align - 1))
                lex_fail(l, word.line, "alignment %u is no power of two", align);
        } else if (lex_same(&word, ".ptr")) {
            pointer = true;
        } else if (lex_same(&word, ".v2") || lex_same(&word, ".v4")) {
            vector = (uint32_t)(word.at[2] - '0');
        } else if (type_bytes(&word)) {
            d.bytes = type_bytes(&word);
        } else if (!pointer) {
            lex_fail(l, word.line, "'%.*s' is not a type of memory", lex_shown(&word), word.at);
        }
    }
    d.bytes *= vector;
    d.word = lex_word(l, "a name");
    if (!d.bytes && d.word.size)
        lex_fail(l, d.word.line, "'%.*s' has no type", lex_shown(&d.word), d.word.at);
    if (!d.align) d.align = d.bytes;
    read_dimensions(l, &d);
    return d;
}

void shared_read(sim_front *f, bool external) {
    lexer *l = &f->lex;
    sim_declaration d = declaration_read(l);
    lex_want(l, ";");
    if (l->status) return;
    bool dynamic = external && d.array && !d.size;
    if (!d.size && !dynamic) {
        lex_fail(l, d.word.line, "'%.*s' has no bytes; only an .extern .shared array may say []",
                 lex_shown(&d.word), d.word.at);
        return;
    }
    if (!names_add(&f->names, &d.word, NAME_SHARED, f->n_variables)) {
        lex_fail(l, d.word.line, "'%.*s' is declared twice", lex_shown(&d.word), d.word.at);
        return;
    }
    sim_variable *v = SIM_PUSH(f->variable, f->n_variables, f->variable_room);
    *v = (sim_variable){d.size, d.align, 0, 0, dynamic};
}
