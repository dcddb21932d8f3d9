/* tools.c - opens the cache, the user's specs, the generator library and NVRTC when needed.
   SPDX-License-Identifier: BSD-3-Clause */
#include "tools.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gen.h"

#define SPEC_LIMIT (1 << 20)
/* Programs that were built with the first options go on working: new ones come behind. */
#define FIRST_OPTIONS offsetof(wl_options, bundles)

#define GEN_TABLE(X) X(wl_gen_open) X(wl_gen_spec) X(wl_gen_call) X(wl_gen_close) X(wl_gen_error)

typedef struct {
    char *path;
    wl_buf text;
    dev_t device; /* with inode: the file, whatever it is called */
    ino_t inode;
    bool is_text; /* of wl_tools_variant: the path is only what messages say */
    int fd;       /* a text's, for workers; -1: none so far */
} spec_file;

struct wl_tools {
    wl_cache *cache;
    wl_store *store;
    bool jit, specs_read;
    char *specs, *nvrtc, *bundles, *trust; /* options */
    char **more;         /* of wl_tools_spec */
    void (*log)(void *user, const char *message);
    void *log_user;
    spec_file *spec;
    size_t n_specs, n_more;
    void *library; /* libwarploom-gen.so */
    wl_gen *gen;
    wl_buf header_text; /* names and texts, each ended by a NUL */
    wl_header *headers;
    size_t n_headers;
#define X(name) __typeof__(&name) name;
    GEN_TABLE(X)
#undef X
};

/* ---- open and close ---- */

static const char *option(const char *given, const char *variable, const char *otherwise) {
    if (!given) given = wl_env(variable);
    return given && *given ? given : otherwise;
}

wl_status wl_tools_open(wl_tools **out, const wl_options *options) {
    wl_options own = {.size = sizeof own};
    *out = NULL;
    if (options && (options->size < FIRST_OPTIONS || options->size > sizeof own))
        return fail(WL_EINVAL,
                    "options.size = %zu: set it to sizeof(wl_options), %zu in warploom %s",
                    options->size, sizeof *options, WARPLOOM_VERSION);
    if (options) memcpy(&own, options, options->size);
    options = &own;
    const char *jit = option(options->jit, "WARPLOOM_JIT", "on");
    if (strcmp(jit, "on") && strcmp(jit, "off"))
        return fail(WL_EINVAL, "jit: expected on or off, got '%s'", jit);
    wl_tools *tools = wl_alloc(sizeof *tools);
    tools->bundles = wl_copy(option(options->bundles, "WARPLOOM_BUNDLES", ""));
    tools->trust = wl_copy(option(options->trust, "WARPLOOM_TRUST", ""));
    wl_status status = wl_cache_open(&tools->cache, options->cache_dir, options->cache,
                                    options->cache_size);
    if (!status)
        status = wl_store_open(&tools->store, tools->cache, tools->bundles,
                               *tools->trust ? tools->trust : NULL);
    tools->jit = !strcmp(jit, "on");
    tools->specs = wl_copy(option(options->specs, "WARPLOOM_SPECS", ""));
    if (options->nvrtc) tools->nvrtc = wl_copy(options->nvrtc);
    tools->log = options->log;
    tools->log_user = options->log_user;
    if (status) wl_tools_close(tools);
    else *out = tools;
    return status;
}

static void close_gen(wl_tools *tools) {
    if (tools->gen) tools->wl_gen_close(tools->gen);
    tools->gen = NULL; /* the library stays open: Lua's and libyaml's own dependencies */
}

void wl_tools_close(wl_tools *tools) {
    if (!tools) return;
    close_gen(tools);
    for (size_t i = 0; i < tools->n_specs; i++) {
        free(tools->spec[i].path);
        wl_buf_free(&tools->spec[i].text);
        if (tools->spec[i].fd >= 0) close(tools->spec[i].fd);
    }
    for (size_t i = 0; i < tools->n_more; i++) free(tools->more[i]);
    wl_store_close(tools->store);
    if (tools->cache) wl_cache_close(tools->cache);
    free(tools->bundles), free(tools->trust);
    wl_buf_free(&tools->header_text);
    free(tools->headers);
    free(tools->spec);
    free(tools->more);
    free(tools->specs);
    free(tools->nvrtc);
    free(tools);
}

wl_cache *wl_tools_cache(wl_tools *tools) {
    return tools->cache;
}

wl_store *wl_tools_store(wl_tools *tools) {
    return tools->store;
}

void wl_tools_spec(wl_tools *tools, const char *path) {
    tools->more = wl_grow(tools->more, (tools->n_more + 1) * sizeof *tools->more);
    tools->more[tools->n_more++] = wl_copy(path);
}

/* ---- the user's specs ---- */

/* A file that is named twice is read once. */
static bool is_read(const wl_tools *tools, const struct stat *info) {
    for (size_t i = 0; i < tools->n_specs; i++)
        if (tools->spec[i].device == info->st_dev && tools->spec[i].inode == info->st_ino)
            return true;
    return false;
}

static void keep_spec(wl_tools *tools, const spec_file *file) {
    tools->spec = wl_grow(tools->spec, (tools->n_specs + 1) * sizeof *file);
    tools->spec[tools->n_specs++] = *file;
}

static wl_status read_spec(wl_tools *tools, const char *path) {
    struct stat info = {0};
    bool exists = !stat(path, &info);
    if (exists && is_read(tools, &info)) return WL_OK;
    if (exists && S_ISREG(info.st_mode) && info.st_size > SPEC_LIMIT)
        return fail(WL_ESPEC, "%s:1:1: too large: a spec has at most %d bytes", path, SPEC_LIMIT);
    spec_file file = {.device = info.st_dev, .inode = info.st_ino, .fd = -1};
    wl_status status = wl_file_read(path, SPEC_LIMIT, &file.text);
    if (status) {
        wl_buf_free(&file.text);
        return status;
    }
    file.path = wl_copy(path);
    keep_spec(tools, &file);
    return WL_OK;
}

static int is_yaml(const struct dirent *entry) {
    size_t size = strlen(entry->d_name);
    return size > 5 && *entry->d_name != '.' && !strcmp(entry->d_name + size - 5, ".yaml");
}

/* By bytes: the order is in a choice's key and must not follow the locale. */
static int by_name(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* A folder's *.yaml; what is no folder is read as a file, which also tells the errors. */
static wl_status read_place(wl_tools *tools, const char *place) {
    struct dirent **names;
    int n = scandir(place, &names, is_yaml, by_name);
    if (n < 0) return read_spec(tools, place);
    wl_status status = n ? WL_OK : fail(WL_EINVAL, "%s: a folder without a spec, *.yaml", place);
    for (int i = 0; i < n; i++) {
        char *path = wl_format("%s/%s", place, names[i]->d_name);
        if (!status) status = read_spec(tools, path);
        free(path);
        free(names[i]);
    }
    free(names);
    return status;
}

static void tell_specs(const wl_tools *tools) {
    wl_hasher hasher;
    wl_hash_begin(&hasher);
    for (size_t i = 0; i < tools->n_specs; i++)
        wl_hash_field(&hasher, tools->spec[i].text.data, tools->spec[i].text.size);
    wl_hash hash = wl_hash_end(&hasher);
    wl_store_specs(tools->store, tools->n_specs ? &hash : NULL);
}

/* Once, before the first key: the bytes in force are those of the first question. */
wl_status wl_tools_read_specs(wl_tools *tools) {
    char *places = wl_copy(tools->specs), *rest = places, *place;
    wl_status status = WL_OK;
    while (!tools->specs_read && !status && (place = strsep(&rest, ":")))
        if (*place) status = read_place(tools, place);
    for (size_t i = 0; !tools->specs_read && !status && i < tools->n_more; i++)
        status = *tools->more[i] ? read_place(tools, tools->more[i])
                                 : fail(WL_EINVAL, "spec: the path is empty");
    if (!tools->specs_read && !status) tell_specs(tools);
    tools->specs_read = !status;
    free(places);
    return status;
}

/* ---- the generator ---- */

/* Beside this library (or the program that it is linked into); else by RUNPATH. */
static char *gen_path(void) {
    const char *given = wl_env("WARPLOOM_GEN"), *name = "libwarploom-gen.so";
    Dl_info info;
    if (given) return wl_copy(given);
    char *self = dladdr((void *)wl_tools_open, &info) ? realpath(info.dli_fname, NULL) : NULL;
    char *slash = self ? strrchr(self, '/') : NULL;
    char *path = slash ? wl_format("%.*s/%s", (int)(slash - self), self, name) : wl_copy(name);
    free(self);
    return path;
}

static wl_status open_gen_library(wl_tools *tools) {
    if (tools->library) return WL_OK;
    char *path = gen_path();
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    free(path);
    if (!library)
        return fail(WL_ECOMPILE,
                    "no generator: %s; put libwarploom-gen.so beside libwarploom.so, or "
                    "name it in WARPLOOM_GEN",
                    dlerror());
    const char *missing = NULL;
#define X(name)                                                                                    \
    if (!(tools->name = (__typeof__(&name))dlsym(library, #name))) missing = #name;
    GEN_TABLE(X)
#undef X
    if (missing) {
        dlclose(library);
        return fail(WL_ECOMPILE,
                    "no generator: the library has no %s; WARPLOOM_GEN must name a "
                    "libwarploom-gen.so of the same build",
                    missing);
    }
    tools->library = library;
    return WL_OK;
}

/* The generator's message lives in its own library: bring it over. */
static wl_status gen_result(wl_tools *tools, wl_status status) {
    return status ? fail(status, "%s", tools->wl_gen_error()) : WL_OK;
}

static wl_status ask_variant(wl_tools *tools, const char *yaml) {
    wl_buf name = {0};
    wl_status status =
        gen_result(tools, tools->wl_gen_call(tools->gen, "variant", yaml, &name));
    wl_buf_free(&name);
    return status;
}

static wl_status open_gen(wl_tools *tools) {
    wl_status status = WL_OK;
    if (tools->gen) return WL_OK;
    if (!status) status = wl_tools_read_specs(tools);
    if (!status) status = open_gen_library(tools);
    if (!status) status = gen_result(tools, tools->wl_gen_open(&tools->gen));
    for (size_t i = 0; i < tools->n_specs && !status; i++) {
        spec_file *s = &tools->spec[i];
        if (s->is_text) status = ask_variant(tools, s->text.data);
        else
            status = gen_result(
                tools, tools->wl_gen_spec(tools->gen, s->path, s->text.data, s->text.size));
    }
    if (status) close_gen(tools);
    return status;
}

wl_status wl_tools_ask(wl_tools *tools, const char *verb, const char *arg, wl_buf *out) {
    wl_status status = open_gen(tools);
    if (status) return status;
    wl_buf_add(out, NULL, 0);
    return gen_result(tools, tools->wl_gen_call(tools->gen, verb, arg, out));
}

static bool has_text(const wl_tools *tools, const char *yaml) {
    for (size_t i = 0; i < tools->n_specs; i++)
        if (tools->spec[i].is_text && !strcmp(tools->spec[i].text.data, yaml)) return true;
    return false;
}

/* A generator that refused a text is not asked again: the next one is given what was kept. */
wl_status wl_tools_variant(wl_tools *tools, const char *yaml) {
    if (strnlen(yaml, SPEC_LIMIT + 1) > SPEC_LIMIT)
        return fail(WL_ESPEC, "yaml:1:1: too large: a spec has at most %d bytes", SPEC_LIMIT);
    wl_status status = wl_tools_read_specs(tools);
    if (status || has_text(tools, yaml)) return status;
    status = open_gen(tools);
    if (status && !tools->jit && !tools->library) {
        clear_message();
        status = WL_OK;
    } else if (!status && (status = ask_variant(tools, yaml))) {
        close_gen(tools);
    }
    if (status) return status;
    spec_file file = {.path = wl_copy("yaml"), .is_text = true, .fd = -1};
    wl_buf_text(&file.text, yaml);
    keep_spec(tools, &file);
    tell_specs(tools);
    return WL_OK;
}

static wl_status add_header(wl_tools *tools, const char *name, wl_buf *at) {
    wl_buf_add(&tools->header_text, name, strlen(name) + 1);
    size_t start = tools->header_text.size;
    wl_status status = wl_tools_ask(tools, "header", name, &tools->header_text);
    if (status) return status;
    wl_buf_add(&tools->header_text, "", 1);
    wl_buf_add(at, &start, sizeof start);
    return WL_OK;
}

/* The device headers, once: a text moves while the buffer grows, so positions first. */
static wl_status read_headers(wl_tools *tools) {
    if (tools->headers) return WL_OK;
    wl_buf names = {0}, at = {0};
    char *name, *rest;
    tools->header_text.size = 0;
    wl_status status = wl_tools_ask(tools, "header", "", &names);
    for (rest = names.data; !status && (name = strsep(&rest, "\n"));)
        if (*name) status = add_header(tools, name, &at);
    size_t n = at.size / sizeof(size_t);
    if (!status) tools->headers = wl_alloc((n + 1) * sizeof *tools->headers);
    const char *text = tools->header_text.data;
    for (size_t i = 0; i < n && !status; i++) {
        tools->headers[i].name = text;
        text = tools->header_text.data + ((size_t *)(void *)at.data)[i];
        tools->headers[i].text = text;
        text += strlen(text) + 1;
    }
    tools->n_headers = n;
    wl_buf_free(&names);
    wl_buf_free(&at);
    return status;
}

/* What another process reads a text by: a file in no folder. */
static void add_text_path(spec_file *s, wl_buf *places) {
    if (s->fd < 0) s->fd = memfd_create("warploom", MFD_CLOEXEC);
    if (s->fd >= 0 && lseek(s->fd, 0, SEEK_END) == 0)
        wl_write_all(s->fd, s->text.data, s->text.size);
    wl_buf_printf(places, "%s/proc/%d/fd/%d", places->size ? ":" : "", (int)getpid(), s->fd);
}

void wl_tools_environment(wl_tools *tools, wl_buf *out) {
    wl_buf specs = {0};
    char size[24];
    snprintf(size, sizeof size, "%llu", (unsigned long long)wl_cache_limit(tools->cache));
    wl_buf_text(&specs, tools->specs);
    for (size_t i = 0; i < tools->n_more; i++)
        wl_buf_printf(&specs, "%s%s", specs.size ? ":" : "", tools->more[i]);
    for (size_t i = 0; i < tools->n_specs; i++)
        if (tools->spec[i].is_text) add_text_path(&tools->spec[i], &specs);
    const char *const rows[][2] = {{"CACHE_DIR", wl_cache_dir(tools->cache)},
                                   {"CACHE", wl_cache_mode(tools->cache)},
                                   {"CACHE_SIZE", size},
                                   {"JIT", tools->jit ? "on" : "off"},
                                   {"SPECS", specs.data},
                                   {"NVRTC", tools->nvrtc},
                                   {"BUNDLES", tools->bundles},
                                   {"TRUST", tools->trust},
                                   {"RECORD", ""}, /* what a worker tries is nobody's use */
                                   {"MISSES", ""}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i][1]) wl_buf_printf(out, "WARPLOOM_%s=%s", rows[i][0], rows[i][1]);
        if (rows[i][1]) wl_buf_add(out, "", 1);
    }
    wl_buf_free(&specs);
}

void wl_tools_log(const wl_tools *tools, void (**log)(void *user, const char *message),
                  void **user) {
    *log = tools->log;
    *user = tools->log_user;
}

bool wl_tools_jit(const wl_tools *tools) {
    return tools->jit;
}

void wl_tools_note_specs(const wl_tools *tools, wl_hasher *hasher) {
    for (size_t i = 0; i < tools->n_specs; i++) {
        const char *slash = strrchr(tools->spec[i].path, '/');
        const char *name = slash ? slash + 1 : tools->spec[i].path;
        wl_hash_note(hasher, name, tools->spec[i].text.data);
    }
}

wl_status wl_tools_nvrtc(wl_tools *tools, const wl_nvrtc **nvrtc) {
    return wl_nvrtc_get(tools->nvrtc, nvrtc);
}

wl_status wl_tools_compiler(wl_tools *tools, const wl_nvrtc **nvrtc, wl_compile_input *in) {
    wl_status status = wl_tools_nvrtc(tools, nvrtc);
    if (!status) status = read_headers(tools);
    in->headers = tools->headers;
    in->n_headers = tools->n_headers;
    return status;
}
