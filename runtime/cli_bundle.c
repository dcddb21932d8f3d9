/* cli_bundle.c - the command bundle: what is in one, whether it is sound, others out of it; keys.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "tuned.h"

/* The keys of WARPLOOM_TRUST, as the library has them. */
static wl_status read_trust(wl_trust *out) {
    const char *file = wl_env("WARPLOOM_TRUST");
    *out = (wl_trust){0};
    return file ? wl_trust_read(file, out) : WL_OK;
}

static wl_status open_bundle(const char *path, wl_bundle **out) {
    wl_trust trust;
    *out = NULL;
    wl_status status = read_trust(&trust);
    if (!status) status = wl_bundle_open(out, path, &trust);
    wl_trust_free(&trust);
    return status;
}

/* "unsigned", or by whom. */
static void tell_signer(const wl_bundle *b, char out[96]) {
    char hex[2 * WL_HASH_BYTES + 1] = "";
    if (wl_bundle_signer(b)) wl_hash_hex(wl_bundle_signer(b), hex);
    snprintf(out, 96, "%s%s", *hex ? "signed by " : "unsigned", hex);
}

static void tell_bundle(const wl_bundle *b, wl_buf *out) {
    char hex[2 * WL_HASH_BYTES + 1], signer[96];
    wl_hash_hex(wl_bundle_digest(b), hex);
    tell_signer(b, signer);
    wl_buf_printf(out, "%d entries, %zu bytes, digest %s, %s", wl_bundle_count(b),
                  wl_bundle_size(b), hex, signer);
}

void cli_layer_cells(wl_tools *tools, cli_rows *rows) {
    wl_store *store = wl_tools_store(tools);
    for (int i = 0; i + 1 < wl_store_count(store); i++) {
        const char *refused;
        const wl_bundle *b = wl_store_bundle(store, i, &refused);
        wl_buf text = {0};
        if (b) tell_bundle(b, &text);
        else wl_buf_text(&text, refused);
        cli_cell(rows, "%s", wl_store_layer(store, i));
        cli_cell(rows, "%s", b || !strcmp(refused, "none") ? "ok" : "missing");
        cli_cell(rows, "%s", text.data);
        wl_buf_free(&text);
    }
}

/* ---- ls ---- */

typedef struct {
    const char *arch; /* NULL: any */
    int driver;       /* 0: any */
} target;

static wl_status read_target(const cli_args *args, target *out) {
    const char *driver = args->value[OPTION_DRIVER];
    int major = 0, minor = 0, end = 0;
    *out = (target){.arch = args->value[OPTION_FOR]};
    if (!driver) return WL_OK;
    if (sscanf(driver, "%2d.%1d%n", &major, &minor, &end) != 2 || driver[end] || major < 1)
        return fail(WL_EINVAL, "--driver: expected a CUDA version, as 12.4, got '%s'", driver);
    out->driver = 1000 * major + 10 * minor;
    return WL_OK;
}

static bool kernel_refused(const wl_bundle *b, int i, const target *t, char why[128]) {
    wl_bundle_entry e = wl_bundle_at(b, i);
    return wl_store_refuses(e.arch, e.toolkit, t->arch ? t->arch : e.arch, t->driver, why);
}

/* A choice serves if its kernels do. */
static void judge_choice(const wl_bundle *b, const char *text, const target *t, wl_buf *out) {
    char hex[2 * WL_HASH_BYTES + 1], why[128];
    wl_hash key;
    while (text && !out->size && sscanf(text, "kernelkey %64s", hex) == 1) {
        int i = wl_hash_parse(hex, &key) ? wl_bundle_find(b, WL_CACHE_KERNEL, &key) : -1;
        if (i < 0) wl_buf_printf(out, "its kernel %.12s is not in the bundle", hex);
        else if (kernel_refused(b, i, t, why)) wl_buf_printf(out, "its kernel: %s", why);
        text += strcspn(text, "\n");
        text += *text == '\n';
    }
}

static void judge_tuned(const char *text, const target *t, wl_buf *out) {
    wl_tuned tuned;
    if (!text || !wl_tuned_parse(text, &tuned)) {
        wl_buf_text(out, "it cannot be read");
        return;
    }
    const char *stale = t->driver ? wl_tuned_stale(&tuned, t->driver, NULL) : NULL;
    if (stale) wl_buf_text(out, stale);
    wl_tuned_free(&tuned);
}

/* Why entry i can't serve the target; nothing when it can. EVERIFY: it is damaged. */
static wl_status judge(const wl_bundle *b, int i, const target *t, wl_buf *out) {
    wl_bundle_entry e = wl_bundle_at(b, i);
    wl_buf text = {0};
    char why[128];
    wl_status status = WL_OK;
    if (e.kind == WL_CACHE_KERNEL) {
        if (kernel_refused(b, i, t, why)) wl_buf_text(out, why);
        return WL_OK;
    }
    status = wl_bundle_take(b, i, &text);
    if (!status && e.kind == WL_CACHE_CHOICE) judge_choice(b, text.data, t, out);
    else if (!status) judge_tuned(text.data, t, out);
    wl_buf_free(&text);
    return status;
}

static wl_status list(const cli_args *args) {
    static const char *const column[] = {"kind",   "name", "arch",    "toolkit", "#bytes",
                                         "#packed", "key",  "refused", NULL};
    cli_rows rows = {.column = column};
    wl_bundle *b;
    target t;
    wl_status status = read_target(args, &t);
    if (!status) status = open_bundle(args->operand[1], &b);
    if (status) return status;
    for (int i = 0; i < wl_bundle_count(b) && !status; i++) {
        wl_bundle_entry e = wl_bundle_at(b, i);
        char hex[2 * WL_HASH_BYTES + 1];
        wl_buf why = {0};
        status = judge(b, i, &t, &why);
        wl_hash_hex(&e.key, hex);
        cli_cell(&rows, "%s", wl_cache_kind_name(e.kind));
        cli_cell(&rows, "%s", e.name);
        cli_cell(&rows, "%s", *e.arch ? e.arch : "-");
        if (e.toolkit) cli_cell(&rows, "%d.%d", e.toolkit / 1000, e.toolkit % 1000 / 10);
        else cli_cell(&rows, "-");
        cli_cell(&rows, "%zu", e.raw);
        cli_cell(&rows, "%zu", e.packed);
        cli_cell(&rows, "%.12s", hex);
        cli_cell(&rows, "%s", why.size ? why.data : "-");
        wl_buf_free(&why);
    }
    if (!status) cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    wl_bundle_close(b);
    return status;
}

/* ---- verify ---- */

/* What the index says of a kernel must be what its image says. */
static wl_status verify_entry(const wl_bundle *b, int i) {
    static const target any;
    wl_bundle_entry e = wl_bundle_at(b, i);
    wl_buf text = {0}, why = {0};
    char arch[16] = "";
    wl_status status = wl_bundle_take(b, i, &text);
    if (!status && e.kind != WL_CACHE_KERNEL) status = judge(b, i, &any, &why);
    if (!status && e.kind == WL_CACHE_KERNEL) {
        if (wl_image_arch(text.data, text.size, arch)) clear_message();
        if (strcmp(arch, e.arch) || wl_image_toolkit(text.data, text.size) != e.toolkit)
            wl_buf_text(&why, "its image is of another arch or toolkit than the index states");
    }
    if (!status && why.size)
        status = fail(WL_EVERIFY, "%s: %s: %s", wl_cache_kind_name(e.kind), e.name, why.data);
    wl_buf_free(&text), wl_buf_free(&why);
    return status;
}

static void print_verified(const wl_bundle *b, const cli_args *args) {
    static const char *const column[] = {"file", "#entries", "#bytes", "digest", "signer", NULL};
    const char *json = args->value[OPTION_JSON], *file = args->operand[1];
    cli_rows rows = {.column = column};
    wl_buf text = {0};
    char hex[2 * WL_HASH_BYTES + 1], *shown = cli_escape(file);
    tell_bundle(b, &text);
    if (!json) printf("%s: ok: %s\n", shown, text.data);
    cli_cell(&rows, "%s", file);
    cli_cell(&rows, "%d", wl_bundle_count(b));
    cli_cell(&rows, "%zu", wl_bundle_size(b));
    wl_hash_hex(wl_bundle_digest(b), hex);
    cli_cell(&rows, "%s", hex);
    if (wl_bundle_signer(b)) wl_hash_hex(wl_bundle_signer(b), hex);
    cli_cell(&rows, "%s", wl_bundle_signer(b) ? hex : "-");
    if (json) cli_rows_print(&rows, json, true);
    cli_rows_free(&rows);
    wl_buf_free(&text);
    free(shown);
}

static wl_status verify(const cli_args *args) {
    wl_bundle *b;
    wl_status status = open_bundle(args->operand[1], &b);
    for (int i = 0; !status && i < wl_bundle_count(b); i++) status = verify_entry(b, i);
    if (!status) print_verified(b, args);
    wl_bundle_close(b);
    return status;
}

/* It must be whole; what is looked at are the bytes that the caller gets. */
wl_status cli_bundle_read(const char *path, bool trusted, wl_buf *out) {
    wl_bundle *b = NULL;
    wl_trust trust = {0};
    wl_status status = trusted ? read_trust(&trust) : WL_OK;
    if (!status) status = wl_file_read(path, WL_BUNDLE_LIMIT, out);
    if (!status) status = wl_bundle_open_bytes(&b, path, out->data, out->size, &trust);
    for (int i = 0; !status && i < wl_bundle_count(b); i++) {
        wl_buf payload = {0};
        status = wl_bundle_take(b, i, &payload);
        wl_buf_free(&payload);
    }
    wl_trust_free(&trust);
    wl_bundle_close(b);
    return status;
}

/* ---- diff, merge, extract ---- */

static wl_status same_payload(const wl_bundle *a, int i, const wl_bundle *b, int k, bool *same) {
    wl_buf x = {0}, y = {0};
    wl_status status = wl_bundle_take(a, i, &x);
    if (!status) status = wl_bundle_take(b, k, &y);
    *same = !status && x.size == y.size && (!x.size || !memcmp(x.data, y.data, x.size));
    wl_buf_free(&x), wl_buf_free(&y);
    return status;
}

/* Rows of what `a` has and `b` has not, or (when asked) other. */
static wl_status compare(const wl_bundle *a, const wl_bundle *b, const char *where, bool other,
                         cli_rows *rows) {
    wl_status status = WL_OK;
    for (int i = 0; i < wl_bundle_count(a) && !status; i++) {
        wl_bundle_entry e = wl_bundle_at(a, i);
        int k = wl_bundle_find(b, e.kind, &e.key);
        bool same = true;
        if (k >= 0 && other) status = same_payload(a, i, b, k, &same);
        if (k >= 0 && same) continue;
        cli_cell(rows, "%s", k < 0 ? where : "differs");
        cli_cell(rows, "%s", wl_cache_kind_name(e.kind));
        cli_cell(rows, "%s", e.name);
    }
    return status;
}

static wl_status diff(const cli_args *args) {
    static const char *const column[] = {"where", "kind", "name", NULL};
    char **file = args->operand + 1;
    cli_rows rows = {.column = column};
    wl_bundle *a = NULL, *b = NULL;
    wl_status status = open_bundle(file[0], &a);
    if (!status) status = open_bundle(file[1], &b);
    if (!status) status = compare(a, b, "only in the first", true, &rows);
    if (!status) status = compare(b, a, "only in the second", false, &rows);
    if (!status) cli_rows_print(&rows, args->value[OPTION_JSON], true);
    size_t n = rows.n_cells / 3;
    cli_rows_free(&rows);
    wl_bundle_close(a), wl_bundle_close(b);
    if (status || !n) return status;
    return fail(WL_EFAIL, "%s and %s differ in %zu entries", file[0], file[1], n);
}

static wl_status add_all(const wl_bundle *b, const char *path, wl_pack *pack) {
    wl_status status = WL_OK;
    for (int i = 0; i < wl_bundle_count(b) && !status; i++) {
        wl_bundle_entry e = wl_bundle_at(b, i);
        wl_buf bytes = {0};
        status = wl_bundle_take(b, i, &bytes);
        const wl_entry own = {e.kind, e.key, e.name, bytes.data, bytes.size};
        if (!status && !wl_pack_add(pack, &own)) {
            char *text = wl_format("%s: %s: another one is there already, and stays", path, e.name);
            cli_log(NULL, text);
            free(text);
        }
        wl_buf_free(&bytes);
    }
    return status;
}

static wl_status merge(const cli_args *args) {
    wl_bundle_facts facts = {0};
    wl_pack pack = {0};
    wl_buf bytes = {0};
    wl_status status = cli_need_out(args, "bundle", "the bundle to write");
    for (int i = 1; i < args->n_operands && !status; i++) {
        wl_bundle *b;
        status = open_bundle(args->operand[i], &b);
        if (!status && i == 1) facts = *wl_bundle_about(b);
        if (!status && memcmp(&facts, wl_bundle_about(b), 2 * WL_HASH_BYTES))
            status = fail(WL_EINVAL, "%s and %s: made by other generators or with other specs",
                          args->operand[1], args->operand[i]);
        if (!status) status = add_all(b, args->operand[i], &pack);
        wl_bundle_close(b);
    }
    if (!status) wl_pack_print(&pack, &facts, &bytes);
    if (!status) status = wl_file_write(args->value[OPTION_OUT], bytes.data, bytes.size);
    wl_pack_free(&pack);
    wl_buf_free(&bytes);
    return status;
}

/* FOLDER/NAME-KEY.cubin and the like: names are of the bundle's maker, so nothing but letters. */
static wl_status extract_entry(const wl_bundle *b, int i, const char *folder) {
    wl_bundle_entry e = wl_bundle_at(b, i);
    wl_buf bytes = {0};
    char hex[2 * WL_HASH_BYTES + 1];
    char *name = wl_format("%.100s", e.name);
    wl_hash_hex(&e.key, hex);
    for (char *at = name; *at; at++)
        if (!strchr("abcdefghijklmnopqrstuvwxyz0123456789_=", *at)) *at = '-';
    const char *kind = wl_cache_kind_name(e.kind);
    if (e.kind == WL_CACHE_KERNEL) kind = *e.arch == 'c' ? "ptx" : "cubin";
    char *path = wl_format("%s/%s-%.12s.%s", folder, name, hex, kind);
    wl_status status = wl_bundle_take(b, i, &bytes);
    if (!status) status = wl_file_write(path, bytes.data, bytes.size);
    free(name), free(path);
    wl_buf_free(&bytes);
    return status;
}

static wl_status extract(const cli_args *args) {
    const char *folder = args->value[OPTION_OUT];
    wl_bundle *b = NULL;
    wl_status status = cli_need_out(args, "bundle", "the folder to write to");
    if (!status) status = open_bundle(args->operand[1], &b);
    if (!status && mkdir(folder, 0777) && errno != EEXIST)
        status = fail(WL_EFAIL, "%s: cannot make the folder: %s", folder, strerror(errno));
    for (int i = 0; !status && i < wl_bundle_count(b); i++) status = extract_entry(b, i, folder);
    wl_bundle_close(b);
    return status;
}

/* ---- keys ---- */

#define SECRET "secret " /* so that neither file is taken for the other */

/* A new file: no key is written over, and half a one is taken away. */
static wl_status write_key(const char *path, mode_t mode, const char *what, const wl_hash *key) {
    char hex[sizeof SECRET + 2 * WL_HASH_BYTES + 2];
    strcpy(hex, what);
    wl_hash_hex(key, hex + strlen(what));
    strcat(hex, "\n");
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    bool good = fd >= 0 && wl_write_all(fd, hex, strlen(hex));
    int reason = errno;
    if (fd >= 0) close(fd);
    if (fd >= 0 && !good) unlink(path);
    explicit_bzero(hex, sizeof hex);
    return good ? WL_OK : fail(WL_EFAIL, "%s: cannot write the key: %s", path, strerror(reason));
}

static wl_status keygen(const cli_args *args) {
    wl_hash secret, shown;
    char hex[2 * WL_HASH_BYTES + 1];
    wl_status status =
        cli_need_out(args, "bundle", "the file of the secret key; FILE.pub will be the public one");
    if (status) return status;
    wl_sign_keys(&secret, &shown);
    const char *file = args->value[OPTION_OUT];
    char *path = wl_format("%s.pub", file);
    status = write_key(file, 0600, SECRET, &secret);
    if (!status && (status = write_key(path, 0666, "", &shown))) unlink(file);
    explicit_bzero(&secret, sizeof secret);
    wl_hash_hex(&shown, hex);
    if (!status) printf("%s\n", hex);
    free(path);
    return status;
}

static wl_status read_secret(const char *path, wl_hash *out) {
    wl_buf text = {0};
    wl_status status = wl_file_read(path, 256, &text);
    if (!status && text.size) text.data[strcspn(text.data, "\r\n")] = '\0';
    size_t mark = strlen(SECRET);
    if (!status && (text.size < mark || memcmp(text.data, SECRET, mark) ||
                    !wl_hash_parse(text.data + mark, out)))
        status = fail(WL_EINVAL, "%s: no secret key of `warploom bundle keygen`", path);
    wl_buf_free(&text);
    return status;
}

/* In place, or -o elsewhere. */
static wl_status sign(const cli_args *args) {
    const char *path = args->operand[1], *out = args->value[OPTION_OUT];
    wl_hash secret;
    wl_buf bytes = {0};
    if (!args->value[OPTION_KEY])
        return fail(WL_EINVAL, "bundle sign: --key is missing: the secret key's file");
    wl_status status = read_secret(args->value[OPTION_KEY], &secret);
    if (!status) status = cli_bundle_read(path, false, &bytes);
    if (!status) wl_bundle_sign(&bytes, &secret);
    if (!status) status = wl_file_write(out ? out : path, bytes.data, bytes.size);
    wl_buf_free(&bytes);
    return status;
}

/* ---- the command ---- */

static const cli_verb verbs[] = {
    {"build", "[PROBLEM...]", 0, INT_MAX,
     HAS(JSON) | HAS(SPEC) | HAS(OUT) | HAS(WORKLOAD) | HAS(ARCH) | HAS(RECORD)},
    {"ls", "FILE", 1, 1, HAS(JSON) | HAS(FOR) | HAS(DRIVER)},
    {"verify", "FILE", 1, 1, HAS(JSON)},
    {"diff", "FILE FILE", 2, 2, HAS(JSON)},
    {"merge", "FILE...", 1, INT_MAX, HAS(OUT)},
    {"extract", "FILE", 1, 1, HAS(OUT)},
    {"record", "COMMAND...", 1, INT_MAX, HAS(JSON) | HAS(SPEC) | HAS(OUT)},
    {"link", "FILE", 1, 1, HAS(OUT)},
    {"keygen", NULL, 0, 0, HAS(OUT)},
    {"sign", "FILE", 1, 1, HAS(OUT) | HAS(KEY)},
};
#define VERBS (sizeof verbs / sizeof *verbs)
static wl_status (*const runs[VERBS])(const cli_args *args) = {
    cli_bundle_build, list, verify, diff, merge, extract, cli_bundle_record, cli_bundle_link,
    keygen, sign};

wl_status cli_bundle(const cli_args *args) {
    size_t v;
    wl_status status = cli_find_verb(args, "bundle", verbs, VERBS, &v);
    return status ? status : runs[v](args);
}
