/* names.c - what a name means: scopes of registers, labels, parameters and variables.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

#define BUCKETS (1u << 14)

static uint32_t hash_of(const char *text, size_t size, bool prefix) {
    uint32_t h = prefix ? 7 : 2166136261u;
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ h >> 15;
}

void names_open(sim_names *t) {
    *t = (sim_names){.bucket = wl_alloc(BUCKETS * sizeof *t->bucket)};
}

void names_close(sim_names *t) {
    free(t->name);
    free(t->bucket);
}

void names_enter(sim_names *t) {
    t->scope++;
}

/* The names of a scope are the last ones, and each is the head of its chain by then. */
void names_leave(sim_names *t) {
    while (t->n && t->name[t->n - 1].scope == t->scope) {
        const sim_name *name = &t->name[--t->n];
        t->bucket[name->hash % BUCKETS] = name->next;
    }
    t->scope--;
}

const sim_name *names_find(const sim_names *t, const char *text, size_t size, bool prefix) {
    uint32_t hash = hash_of(text, size, prefix);
    for (uint32_t i = t->bucket[hash % BUCKETS]; i; i = t->name[i - 1].next) {
        const sim_name *name = &t->name[i - 1];
        if (name->hash == hash && name->size == size && (name->kind == NAME_REGISTERS) == prefix &&
            !memcmp(name->text, text, size))
            return name;
    }
    return NULL;
}

sim_name *names_add(sim_names *t, const lex_token *word, name_kind kind, uint32_t value) {
    const sim_name *old = names_find(t, word->at, word->size, kind == NAME_REGISTERS);
    if (old && old->scope == t->scope) return NULL;
    uint32_t hash = hash_of(word->at, word->size, kind == NAME_REGISTERS);
    uint32_t *head = &t->bucket[hash % BUCKETS];
    sim_name *name = SIM_PUSH(t->name, t->n, t->room);
    *name = (sim_name){word->at, (uint32_t)word->size, hash, *head, t->scope, kind, value, 0};
    *head = t->n;
    return name;
}
