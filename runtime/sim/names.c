/* names.c - what a name means: scopes of registers, labels, parameters and variables.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"

static uint32_t hash_of(const char *text, size_t size, bool prefix) {
    uint32_t h = prefix ? 7 : 2166136261u;
    for (size_t i = 0; i < size; i++) h = (h ^ (unsigned char)text[i]) * 16777619u;
    return h ^ h >> 15;
}

void names_open(sim_names *t) {
    *t = (sim_names){.buckets = 1024, .bucket = wl_alloc(1024 * sizeof *t->bucket)};
}

void names_close(sim_names *t) {
    free(t->name);
    free(t->bucket);
}

/* The names of a scope are the last ones, and each is the head of its chain by then. */
void names_leave(sim_names *t) {
    while (t->n && t->name[t->n - 1].scope == t->scope) {
        const sim_name *name = &t->name[--t->n];
        t->bucket[name->hash % t->buckets] = name->next;
    }
    t->scope--;
}

const sim_name *names_find(const sim_names *t, const char *text, size_t size, bool prefix) {
    uint32_t hash = hash_of(text, size, prefix);
    for (uint32_t i = t->bucket[hash % t->buckets]; i; i = t->name[i - 1].next) {
        const sim_name *name = &t->name[i - 1];
        if (name->hash == hash && name->size == size && (name->kind == NAME_REGISTERS) == prefix &&
            !memcmp(name->text, text, size))
            return name;
    }
    return NULL;
}

/* As many buckets as names; the order of declaration is the order in a chain. */
static void grow(sim_names *t) {
    if (t->n < t->buckets) return;
    free(t->bucket);
    t->buckets *= 4;
    t->bucket = wl_alloc(t->buckets * sizeof *t->bucket);
    for (uint32_t i = 0; i < t->n; i++) {
        uint32_t *head = &t->bucket[t->name[i].hash % t->buckets];
        t->name[i].next = *head;
        *head = i + 1;
    }
}

sim_name *names_add(sim_names *t, const lex_token *word, name_kind kind, uint32_t value) {
    const sim_name *old = names_find(t, word->at, word->size, kind == NAME_REGISTERS);
    if (old && old->scope == t->scope) return NULL;
    grow(t);
    uint32_t hash = hash_of(word->at, word->size, kind == NAME_REGISTERS);
    uint32_t *head = &t->bucket[hash % t->buckets];
    sim_name *name = SIM_PUSH(t->name, t->n, t->room);
    *name = (sim_name){word->at, (uint32_t)word->size, hash, *head, t->scope, kind, value, 0, NULL};
    *head = t->n;
    return name;
}
