/* store.c - looks entries up in the layers; keeps why each could not serve; notes what was used.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "store.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compile.h"

#define KINDS 3
#define MAX_MISSES (1 << 20)

extern const char wl_generator_digest[65]; /* build/digest.c */

static const struct {
    wl_cache_kind kind;
    const char *none;
} kinds[KINDS] = {{WL_CACHE_CHOICE, "no choice"},
                  {WL_CACHE_KERNEL, "no kernel"},
                  {WL_CACHE_TUNED, "no tuned record"}};

typedef struct {
    char *name;        /* "linked-in", "bundle PATH", "cache" */
    wl_bundle *bundle; /* NULL: refused, or the cache */
    char *refused;
    bool cache;
    char *why[KINDS]; /* of the last look-up */
} layer;

typedef struct {
    wl_cache_kind kind;
    wl_hash key;
} mark;

struct wl_store {
    wl_cache *cache;
    layer *layer;
    int n;
    wl_hash specs; /* all zero: none */
    int driver;    /* 0: not known */
    wl_store_sink *sink;
    void *user;
    char *record, *misses; /* files */
    mark *used;            /* is in the record */
    size_t n_used;
};

static int kind_index(wl_cache_kind kind) {
    int i = 0;
    while (kinds[i].kind != kind) i++;
    return i;
}

/* ---- linked-in bundles: a list that only grows, as programs' constructors add to it ---- */

typedef struct linked {
    struct linked *next;
    const void *bytes;
    size_t size;
} linked;
static _Atomic(linked *) first_linked;

/* A library that has one inside stays loaded when it is closed: contexts read these bytes. */
static void keep_loaded(const void *bytes) {
    Dl_info info;
    if (dladdr(bytes, &info) && !dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE))
        dlerror(); /* a program, which stays anyway: its caller is to find no error of ours */
}

void wl_bundle_add(const void *bytes, size_t size) {
    linked *node = wl_alloc(sizeof *node);
    keep_loaded(bytes);
    *node = (linked){atomic_load(&first_linked), bytes, bytes ? size : 0};
    while (!atomic_compare_exchange_weak(&first_linked, &node->next, node)) continue;
}

/* ---- open and close ---- */

static const wl_hash no_specs;

static bool same(const wl_hash *a, const wl_hash *b) {
    return !memcmp(a, b, sizeof *a);
}

wl_bundle_facts wl_store_facts(const wl_store *store) {
    wl_bundle_facts facts = {.specs = store->specs};
    wl_hash_parse(wl_generator_digest, &facts.generator);
    strncpy(facts.version, WARPLOOM_VERSION, sizeof facts.version - 1);
    return facts;
}

/* Why a whole bundle is of no use here, for as long as it is open; NULL. To be freed. */
static char *foreign(const wl_store *store, const wl_bundle *bundle) {
    const wl_bundle_facts *theirs = wl_bundle_about(bundle), ours = wl_store_facts(store);
    char hex[2 * WL_HASH_BYTES + 1];
    if (same(&theirs->generator, &ours.generator)) return NULL;
    wl_hash_hex(&theirs->generator, hex);
    return wl_format("refused: made by warploom %s, generator %.12s; this is %s, generator %.12s: "
                     "build it anew", theirs->version, hex, ours.version, wl_generator_digest);
}

static layer *add_layer(wl_store *store, const char *name) {
    store->layer = wl_grow(store->layer, ((size_t)store->n + 1) * sizeof *store->layer);
    layer *l = &store->layer[store->n++];
    *l = (layer){.name = wl_copy(name)};
    return l;
}

static void add_bundle(wl_store *store, const char *name, wl_bundle *bundle) {
    layer *l = add_layer(store, name);
    l->refused = bundle ? foreign(store, bundle) : wl_format("refused: %s", message());
    l->bundle = l->refused ? NULL : bundle;
    if (l->refused) wl_bundle_close(bundle);
    clear_message();
}

static void add_linked(wl_store *store, const wl_trust *trust) {
    int before = store->n;
    for (linked *node = atomic_load(&first_linked); node; node = node->next) {
        wl_bundle *bundle;
        wl_bundle_open_bytes(&bundle, "linked-in", node->bytes, node->size, trust);
        add_bundle(store, "linked-in", bundle);
    }
    if (store->n == before) add_layer(store, "linked-in")->refused = wl_copy("none");
}

static void add_files(wl_store *store, const char *bundles, const wl_trust *trust) {
    int before = store->n;
    char *paths = wl_copy(bundles), *rest = paths, *path;
    while ((path = strsep(&rest, ":"))) {
        wl_bundle *bundle;
        char *name = wl_format("bundle %s", path);
        if (*path) wl_bundle_open(&bundle, path, trust);
        if (*path) add_bundle(store, name, bundle);
        free(name);
    }
    if (store->n == before) add_layer(store, "bundles")->refused = wl_copy("none");
    free(paths);
}

static char *file_of(const char *variable) {
    const char *value = wl_env(variable);
    return value ? wl_absolute(value) : NULL;
}

wl_status wl_store_open(wl_store **out, wl_cache *cache, const char *bundles, const char *trust) {
    wl_trust keys = {0};
    *out = NULL;
    wl_status status = trust ? wl_trust_read(trust, &keys) : WL_OK;
    if (status) return status;
    wl_store *store = wl_alloc(sizeof *store);
    store->cache = cache;
    add_linked(store, &keys);
    add_files(store, bundles, &keys);
    add_layer(store, "cache")->cache = true;
    wl_trust_free(&keys);
    store->record = file_of("WARPLOOM_RECORD");
    store->misses = file_of("WARPLOOM_MISSES");
    *out = store;
    return WL_OK;
}

void wl_store_close(wl_store *store) {
    if (!store) return;
    for (int i = 0; i < store->n; i++) {
        layer *l = &store->layer[i];
        wl_bundle_close(l->bundle);
        for (int k = 0; k < KINDS; k++) free(l->why[k]);
        free(l->name), free(l->refused);
    }
    free(store->layer), free(store->record), free(store->misses), free(store->used);
    free(store);
}

void wl_store_specs(wl_store *store, const wl_hash *specs) {
    store->specs = specs ? *specs : no_specs;
}

void wl_store_driver(wl_store *store, int version) {
    store->driver = version;
}

/* A newer minor version's code runs on an older driver of the same major one; PTX is for the
   simulator. */
bool wl_store_refuses(const char *states, int toolkit, const char *arch, int driver,
                      char why[128]) {
    if (strcmp(states, arch)) {
        snprintf(why, 128, "is for %s, not for %s", states, arch);
        return true;
    }
    if (!driver || *states == 'c' || toolkit / 1000 <= driver / 1000) return false;
    snprintf(why, 128, "made by CUDA %d.%d: needs a driver of CUDA %d.0 or newer, this is %d.%d",
             toolkit / 1000, toolkit % 1000 / 10, toolkit / 1000, driver / 1000,
             driver % 1000 / 10);
    return true;
}

const char *wl_store_unfit(const wl_store *store, const wl_buf *image, const char *arch) {
    static _Thread_local char why[128];
    char states[16];
    int toolkit = wl_image_toolkit(image->data, image->size);
    bool none = wl_image_arch(image->data, image->size, states);
    if (none) snprintf(why, sizeof why, "%s", message());
    clear_message();
    return none || wl_store_refuses(states, toolkit, arch, store->driver, why) ? why : NULL;
}

/* ---- looking up ---- */

wl_hash wl_store_cache_key(const wl_store *store, wl_cache_kind kind, const wl_hash *key) {
    wl_hasher hasher;
    if (kind == WL_CACHE_KERNEL || same(&store->specs, &no_specs)) return *key;
    wl_hash_begin(&hasher);
    wl_hash_field(&hasher, key, sizeof *key);
    wl_hash_field(&hasher, &store->specs, sizeof store->specs);
    return wl_hash_end(&hasher);
}

static void set_why(layer *l, wl_cache_kind kind, const char *why) {
    char **at = &l->why[kind_index(kind)];
    free(*at);
    *at = wl_copy(why);
}

void wl_store_refuse(wl_store *store, wl_cache_kind kind, int number, const char *why) {
    set_why(&store->layer[number], kind, why);
}

/* Where no specs are in force, a bundle stands for those that it was made with: the machine that it
   is for needs no spec file. Kernels are what their sources make them, whoever's they are. */
static const char *other_specs(const wl_store *store, const wl_bundle *bundle, wl_cache_kind kind) {
    const wl_hash *theirs = &wl_bundle_about(bundle)->specs;
    bool none = same(&store->specs, &no_specs);
    if (none || kind == WL_CACHE_KERNEL || same(theirs, &store->specs))
        return NULL;
    return "made with other specs than those of WARPLOOM_SPECS here";
}

/* NULL and the payload, or why there is none. */
static const char *from_bundle(const wl_store *store, const wl_bundle *bundle, wl_cache_kind kind,
                               const wl_hash *key, wl_buf *out) {
    const char *why = other_specs(store, bundle, kind);
    int i = why ? -1 : wl_bundle_find(bundle, kind, key);
    if (i < 0) return why ? why : kinds[kind_index(kind)].none;
    return wl_bundle_take(bundle, i, out) ? message() : NULL;
}

static const char *from_cache(const wl_store *store, wl_cache_kind kind, const wl_hash *key,
                              wl_buf *out) {
    wl_hash own = wl_store_cache_key(store, kind, key);
    if (wl_cache_get(store->cache, kind, &own, out)) return NULL;
    if (*wl_cache_reason(store->cache)) return wl_cache_reason(store->cache);
    return strcmp(wl_cache_mode(store->cache), "off") ? kinds[kind_index(kind)].none : "turned off";
}

bool wl_store_get(wl_store *store, wl_cache_kind kind, const wl_hash *key, int *number,
                  wl_buf *out) {
    for (int i = *number; i < store->n; i++) {
        layer *l = &store->layer[i];
        const char *why = l->refused;
        if (l->bundle) why = from_bundle(store, l->bundle, kind, key, out);
        if (l->cache) why = from_cache(store, kind, key, out);
        *number = i;
        if (!why) return true;
        set_why(l, kind, why);
        clear_message();
    }
    return false;
}

bool wl_store_put(wl_store *store, wl_cache_kind kind, const wl_hash *key, const void *bytes,
                  size_t size) {
    wl_hash own = wl_store_cache_key(store, kind, key);
    return wl_cache_put(store->cache, kind, &own, bytes, size);
}

/* ---- for people ---- */

int wl_store_count(const wl_store *store) {
    return store->n;
}

const char *wl_store_layer(const wl_store *store, int number) {
    return store->layer[number].name;
}

const wl_bundle *wl_store_bundle(const wl_store *store, int number, const char **refused) {
    *refused = store->layer[number].refused;
    return store->layer[number].bundle;
}

const char *wl_store_said(const wl_store *store, wl_cache_kind kind, int number) {
    const layer *l = &store->layer[number];
    const char *why = l->why[kind_index(kind)];
    return why ? why : l->refused ? l->refused : "not asked";
}

void wl_store_report(const wl_store *store, wl_cache_kind kind, wl_buf *out) {
    const char *dir = wl_cache_dir(store->cache);
    for (int i = 0; i < store->n; i++) {
        const layer *l = &store->layer[i];
        wl_buf_printf(out, "%s%s", i ? "; " : "", l->name);
        if (l->cache)
            wl_buf_printf(out, " %s (%s)", *dir ? dir : "(no folder)", wl_cache_mode(store->cache));
        wl_buf_printf(out, ": %s", wl_store_said(store, kind, i));
    }
}

/* ---- what was used and what was lacking ---- */

void wl_store_listen(wl_store *store, wl_store_sink *sink, void *user) {
    store->sink = sink;
    store->user = user;
}

/* For others to append to, too: a line is one write. A FIFO would be waited for. */
static int open_log(const char *path) {
    struct stat info;
    int flags = O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int fd = open(path, flags, 0666);
    if (fd < 0 || (!fstat(fd, &info) && S_ISREG(info.st_mode))) return fd;
    close(fd);
    return -1;
}

static void record(wl_store *store, const wl_entry *e) {
    char hex[2 * WL_HASH_BYTES + 1];
    for (size_t i = 0; i < store->n_used; i++)
        if (store->used[i].kind == e->kind && same(&store->used[i].key, &e->key))
            return;
    store->used = wl_grow(store->used, (store->n_used + 1) * sizeof *store->used);
    store->used[store->n_used++] = (mark){e->kind, e->key};
    int fd = open_log(store->record);
    if (fd < 0) return; /* the call is what matters; an empty record says the rest */
    wl_hash_hex(&e->key, hex);
    char *line = wl_format("%c %s %s\n", e->kind, hex, e->name);
    wl_write_all(fd, line, strlen(line));
    close(fd);
    free(line);
}

void wl_store_used(wl_store *store, const wl_entry *entry) {
    if (store->sink) store->sink(store->user, entry);
    if (store->record) record(store, entry);
}

static bool has_line(const char *text, const char *line) {
    size_t size = strlen(line);
    for (const char *at = text; at && *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (!strncmp(at, line, size) && (at[size] == '\n' || !at[size])) return true;
    return false;
}

void wl_store_missed(wl_store *store, const char *line) {
    int fd = store->misses ? open_log(store->misses) : -1;
    wl_buf text = {0};
    if (fd < 0) return;
    flock(fd, LOCK_EX);
    bool known = !wl_read_all(fd, MAX_MISSES, &text) || has_line(text.data, line);
    bool ended = !text.size || text.data[text.size - 1] == '\n'; /* a person may have written it */
    char *whole = wl_format("%s%s\n", ended ? "" : "\n", line);
    if (!known) wl_write_all(fd, whole, strlen(whole));
    close(fd);
    free(whole);
    wl_buf_free(&text);
}
