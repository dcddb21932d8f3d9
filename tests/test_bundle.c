/* test_bundle.c - bundles: written, read, damaged, forged, signed; the layers of a store.
   SPDX-License-Identifier: BSD-3-Clause */
#include "fakes.h"

#include <fcntl.h>
#include <stdarg.h>
#include <time.h>

#include "bundle_file.h"
#include "kernel.h"
#include "store.h"
#include "tuned.h"

static wl_hash key_of(int n) {
    wl_hash key = {{(uint8_t)n}};
    return key;
}

static wl_pack pack_of(const int *order) {
    static const char *const text[] = {"a choice", "an image", "", "a tuned record"};
    static const wl_cache_kind kind[] = {'c', 'k', 'k', 't'};
    wl_pack pack = {0};
    for (int i = 0; i < 4; i++) {
        int n = order[i];
        wl_hash key = key_of(n + 1);
        CHECK(wl_pack_add(&pack, &(wl_entry){kind[n], key, "a name", text[n], strlen(text[n])}));
    }
    return pack;
}

static const wl_bundle_facts facts = {.generator = {{1}}, .specs = {{2}}, .version = "0.1.0"};

/* A small bundle, unsigned. */
static wl_buf small(void) {
    static const int order[] = {0, 1, 2, 3};
    wl_buf out = {0};
    wl_pack pack = pack_of(order);
    wl_pack_print(&pack, &facts, &out);
    wl_pack_free(&pack);
    return out;
}

static wl_status open_bytes(const wl_buf *bytes, const wl_trust *trust, wl_bundle **out) {
    return wl_bundle_open_bytes(out, "b", bytes->data, bytes->size, trust);
}

TEST(what_is_packed_is_found) {
    wl_buf bytes = small(), out = {0};
    wl_bundle *b;
    CHECK_INT(open_bytes(&bytes, NULL, &b), WL_OK);
    CHECK_INT(wl_bundle_count(b), 4);
    CHECK(!wl_bundle_signer(b));
    CHECK_STR(wl_bundle_about(b)->version, "0.1.0");
    wl_hash key = key_of(2), none = key_of(9);
    int i = wl_bundle_find(b, WL_CACHE_KERNEL, &key);
    CHECK_INT(wl_bundle_take(b, i, &out), WL_OK);
    CHECK_STR(out.data, "an image");
    CHECK_STR(wl_bundle_at(b, i).name, "a name");
    CHECK_INT(wl_bundle_find(b, WL_CACHE_CHOICE, &key), -1);
    CHECK_INT(wl_bundle_find(b, WL_CACHE_TUNED, &none), -1);
    wl_bundle_close(b), wl_bundle_close(NULL);
    wl_buf_free(&bytes), wl_buf_free(&out);
}

TEST(the_same_entries_are_the_same_bytes) {
    static const int other[] = {3, 1, 0, 2};
    wl_buf a = small(), b = {0};
    wl_pack pack = pack_of(other);
    wl_hash key = key_of(2);
    CHECK(wl_pack_add(&pack, &(wl_entry){WL_CACHE_KERNEL, key, "another name", "an image", 8}));
    CHECK(!wl_pack_add(&pack, &(wl_entry){WL_CACHE_KERNEL, key, "a name", "other bytes", 11}));
    wl_pack_print(&pack, &facts, &b);
    CHECK(a.size == b.size && !memcmp(a.data, b.data, a.size));
    wl_pack_free(&pack);
    wl_buf_free(&a), wl_buf_free(&b);
}

/* Does anything of it differ from what was packed? A refusal is no difference. */
static bool serves_wrong(const wl_buf *bytes) {
    wl_buf whole = small();
    wl_bundle *good, *b;
    bool wrong = false;
    CHECK_INT(open_bytes(&whole, NULL, &good), WL_OK);
    if (!open_bytes(bytes, NULL, &b)) {
        for (int i = 0; i < wl_bundle_count(good); i++) {
            wl_bundle_entry e = wl_bundle_at(good, i);
            int k = wl_bundle_find(b, e.kind, &e.key);
            wl_buf x = {0}, y = {0};
            wl_bundle_take(good, i, &x);
            wrong |= k < 0 || (!wl_bundle_take(b, k, &y) && (x.size != y.size ||
                     (x.size && memcmp(x.data, y.data, x.size))));
            wl_buf_free(&x), wl_buf_free(&y);
        }
        wl_bundle_close(b);
    }
    wl_bundle_close(good);
    wl_buf_free(&whole);
    return wrong;
}

/* Is it found, when it is opened or when all is taken? */
static bool is_detected(const wl_buf *bytes) {
    wl_bundle *b;
    wl_buf out = {0};
    if (open_bytes(bytes, NULL, &b)) return true;
    bool found = false;
    for (int i = 0; i < wl_bundle_count(b); i++) found |= wl_bundle_take(b, i, &out) != WL_OK;
    wl_bundle_close(b);
    wl_buf_free(&out);
    return found;
}

TEST(every_single_bit_counts) {
    for (int sign = 0; sign < 2; sign++) {
        wl_buf bytes = small();
        wl_hash secret = {{7}};
        int missed = 0;
        if (sign) wl_bundle_sign(&bytes, &secret);
        for (size_t bit = 0; bit < 8 * bytes.size; bit++) {
            bytes.data[bit / 8] ^= (char)(1 << bit % 8);
            missed += !is_detected(&bytes) || serves_wrong(&bytes);
            bytes.data[bit / 8] ^= (char)(1 << bit % 8);
        }
        CHECK_INT(missed, 0);
        CHECK(!is_detected(&bytes));
        wl_buf_free(&bytes);
    }
}

TEST(every_cut_and_any_tail_is_noticed) {
    wl_buf bytes = small();
    wl_bundle *b;
    int opened = 0;
    for (size_t size = 0; size < bytes.size; size++)
        opened += !wl_bundle_open_bytes(&b, "b", bytes.data, size, NULL);
    CHECK_INT(opened, 0);
    wl_buf_text(&bytes, "x");
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY,
               "b: damaged: its size is not what it states");
    wl_buf_free(&bytes);
}

/* ---- forged: numbers that lie under a digest that is right ---- */

static void seal(wl_buf *bytes) {
    bundle_prefix *prefix = (bundle_prefix *)(void *)bytes->data;
    prefix->digest = bundle_digest(prefix, bytes->data + sizeof *prefix);
}

#define HEAD(field) (sizeof(bundle_prefix) + offsetof(bundle_head, field))
#define ENTRY(i, field)                                                                           \
    (sizeof(bundle_prefix) + sizeof(bundle_head) + (i) * sizeof(bundle_record) +                  \
     offsetof(bundle_record, field))

static const struct {
    size_t offset;
    uint64_t value;
    int bytes;
    const char *message;
} forged[] = {
    {HEAD(file_size), 1, 8, "its size is not what it states"},
    {HEAD(n_entries), 3, 4, "its parts do not fit"},
    {HEAD(n_entries), 0xffffffff, 4, "its parts do not fit"},
    {HEAD(names_size), 0xffffffff, 4, "its parts do not fit"},
    {HEAD(reserved), 1, 8, "its head is malformed"},
    {HEAD(facts.version) + 20, 0x31313131, 4, "its head is malformed"},
    {HEAD(facts.version), 0x3131313131313131, 8, NULL}, /* a long version is one */
    {ENTRY(0, kind), 't', 4, "its index is out of order"},
    {ENTRY(1, key), 9, 1, "its index is out of order"},
    {ENTRY(0, kind), 'b', 4, "an entry is of no kind"},
    {ENTRY(3, kind), 0x174, 4, "an entry is of no kind"},
    {ENTRY(0, offset), 0, 8, "a payload is out of place"},
    {ENTRY(1, offset), UINT64_MAX, 8, "a payload is out of place"},
    {ENTRY(2, packed), 0xffffffff, 4, "a payload is out of place"},
    {ENTRY(3, packed), 1, 4, "bytes follow its payloads"},
    {ENTRY(1, raw), 0xffffffff, 4, "a payload is too large"},
    {ENTRY(1, name), 0xffffff, 4, "a name is out of place"},
    {ENTRY(1, reserved), 1, 4, "an entry is malformed"},
};

TEST(forged_numbers_are_refused) {
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        wl_buf bytes = small();
        wl_bundle *b = NULL;
        char want[128];
        memcpy(bytes.data + forged[i].offset, &forged[i].value, (size_t)forged[i].bytes);
        if (forged[i].offset == HEAD(facts.version) + 20)
            memset(bytes.data + HEAD(facts.version), '1', sizeof facts.version);
        seal(&bytes);
        snprintf(want, sizeof want, "b: damaged: %s", forged[i].message);
        if (forged[i].message) CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY, want);
        else CHECK_INT(open_bytes(&bytes, NULL, &b), WL_OK);
        wl_bundle_close(b);
        wl_buf_free(&bytes);
    }
}

TEST(texts_without_an_end_are_refused) {
    wl_buf bytes = small();
    wl_bundle *b;
    bundle_prefix prefix;
    memcpy(&prefix, bytes.data, sizeof prefix);
    char *last = bytes.data + sizeof prefix + prefix.head_size - 1;
    *last = 'x', seal(&bytes);
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY, "b: damaged: its names have no end");
    *last = '\0';
    memset(bytes.data + ENTRY(1, arch), 'x', 16), seal(&bytes);
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY, "b: damaged: an entry is malformed");
    wl_buf_free(&bytes);
}

TEST(heads_of_other_sizes_are_refused) {
    wl_buf bytes = small();
    wl_bundle *b;
    bundle_prefix *prefix = (bundle_prefix *)(void *)bytes.data;
    prefix->head_size = 100, seal(&bytes);
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY, "b: damaged: its head is too short");
    prefix->head_size = 0xffffffff;
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY, "b: damaged: it is cut off");
    prefix->schema = 2;
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EINVAL,
               "b: a bundle of schema 2, and warploom " WARPLOOM_VERSION
               " reads schema 1: build it anew");
    prefix->magic[0] = 'W';
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EINVAL, "b: no bundle of warploom");
    wl_buf_free(&bytes);
}

/* The payload's digest is right, and yet it is no zstd frame, or one of another size. */
TEST(payloads_are_unpacked_with_care) {
    for (int i = 0; i < 2; i++) {
        wl_buf bytes = small(), out = {0};
        wl_bundle *b;
        bundle_record *r = (bundle_record *)(void *)(bytes.data + ENTRY(1, key));
        if (i) r->raw = 3;
        else memset(bytes.data + r->offset, 'x', r->packed);
        wl_hasher hasher;
        wl_hash_begin(&hasher);
        wl_hash_field(&hasher, bytes.data + r->offset, r->packed);
        r->hash = wl_hash_end(&hasher);
        seal(&bytes);
        CHECK_INT(open_bytes(&bytes, NULL, &b), WL_OK);
        CHECK_FAIL(wl_bundle_take(b, 1, &out), WL_EVERIFY,
                   "b: damaged: a name: it cannot be unpacked");
        CHECK_INT(out.size, 0);
        wl_bundle_close(b);
        wl_buf_free(&bytes), wl_buf_free(&out);
    }
}

/* ---- signatures ---- */

TEST(signatures_are_of_trusted_keys) {
    wl_buf bytes = small();
    wl_hash secret, shown, other_secret, other;
    wl_bundle *b;
    char want[256], hex[2 * WL_HASH_BYTES + 1];
    wl_sign_keys(&secret, &shown), wl_sign_keys(&other_secret, &other);
    CHECK(memcmp(&secret, &other_secret, sizeof secret));
    wl_trust trust = {&shown, 1}, others = {&other, 1};
    CHECK_FAIL(open_bytes(&bytes, &trust, &b), WL_EVERIFY,
               "b: unsigned, and only keys of WARPLOOM_TRUST are trusted: sign it with `warploom "
               "bundle sign`");
    wl_bundle_sign(&bytes, &secret);
    CHECK_INT(open_bytes(&bytes, &trust, &b), WL_OK);
    CHECK(wl_bundle_signer(b) && !memcmp(wl_bundle_signer(b), &shown, sizeof shown));
    wl_bundle_close(b);
    wl_hash_hex(&shown, hex);
    snprintf(want, sizeof want, "b: signed by %s, which is no key of WARPLOOM_TRUST", hex);
    CHECK_FAIL(open_bytes(&bytes, &others, &b), WL_EVERIFY, want);
    bundle_prefix *prefix = (bundle_prefix *)(void *)bytes.data;
    prefix->signer = other; /* trusted, but it did not sign */
    CHECK_FAIL(open_bytes(&bytes, &others, &b), WL_EVERIFY,
               "b: its signature is not of this bundle");
    wl_bundle_sign(&bytes, &secret);
    bytes.data[ENTRY(0, raw)] ^= 1, seal(&bytes); /* the digest is right, the signature old */
    CHECK_FAIL(open_bytes(&bytes, NULL, &b), WL_EVERIFY, "b: its signature is not of this bundle");
    wl_buf_free(&bytes);
}

static char *path_of(const char *name) {
    static char path[4][128];
    static int n;
    char *out = path[n++ % 4];
    snprintf(out, 128, "%s/%s", fake_root, name);
    return out;
}

static const char *file_of(const char *name, const void *bytes, size_t size) {
    const char *path = path_of(name);
    CHECK_INT(wl_file_write(path, bytes, size), WL_OK);
    return path;
}

static const char *text_of(const char *name, const char *text) {
    return file_of(name, text, strlen(text));
}

TEST(a_file_of_keys_is_read_or_refused) {
    wl_trust trust;
    char want[256], hex[80];
    fakes();
    memset(hex, 'a', 64), hex[64] = '\0';
    char *text = wl_format("# ours\n\n  %s \r\n%s # and this\n", hex, hex);
    CHECK_INT(wl_trust_read(text_of("trust", text), &trust), WL_OK);
    CHECK_INT(trust.n, 2);
    CHECK_INT(trust.key[1].bytes[31], 0xaa);
    wl_trust_free(&trust);
    free(text);
    snprintf(want, sizeof want, "%s/trust:2: expected a public key, 64 hexadecimal digits",
             fake_root);
    CHECK_FAIL(wl_trust_read(text_of("trust", "#\nabc\n"), &trust), WL_EINVAL, want);
    snprintf(want, sizeof want, "%s/trust: no public key: whom should WARPLOOM_TRUST trust?",
             fake_root);
    CHECK_FAIL(wl_trust_read(text_of("trust", "# none\n"), &trust), WL_EINVAL, want);
    CHECK_INT(wl_trust_read("/nowhere", &trust), WL_EINVAL);
    wl_options o = {.size = sizeof o, .trust = "/nowhere"};
    wl_tools *tools;
    CHECK_FAIL(wl_tools_open(&tools, &o), WL_EINVAL,
               "/nowhere: cannot open: No such file or directory");
}

/* ---- files ---- */

TEST(files_are_opened_with_care) {
    char want[256];
    wl_bundle *b;
    wl_buf bytes = small(), out = {0};
    fakes();
    CHECK_FAIL(wl_bundle_open(&b, "/nowhere.wlb", NULL), WL_EINVAL,
               "/nowhere.wlb: cannot open: No such file or directory");
    mkfifo(path_of("fifo"), 0600);
    snprintf(want, sizeof want, "%s/fifo: not a regular file", fake_root);
    CHECK_FAIL(wl_bundle_open(&b, path_of("fifo"), NULL), WL_EINVAL, want);
    const char *path = file_of("cut.wlb", bytes.data, bytes.size);
    CHECK_INT(wl_bundle_open(&b, path, NULL), WL_OK);
    CHECK_INT(truncate(path, (off_t)bytes.size - 1), 0);
    snprintf(want, sizeof want, "%s: damaged: a name: it cannot be read", path);
    CHECK_FAIL(wl_bundle_take(b, 3, &out), WL_EVERIFY, want);
    wl_bundle_close(b);
    wl_buf_free(&bytes), wl_buf_free(&out);
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* As large as a bundle of 36 problems with a kernel each, signed. */
TEST(open_and_find_take_less_than_a_millisecond) {
    enum { N = 72, TIMES = 21 };
    static char image[40000];
    wl_pack pack = {0};
    wl_buf bytes = {0};
    wl_hash secret, shown, key;
    double took[TIMES];
    fakes();
    for (int i = 0; i < N; i++) {
        key = key_of(i + 1);
        for (size_t k = 0; k < sizeof image; k++)
            image[k] = (char)((size_t)i * k >> 7 ^ k * k >> 9);
        wl_pack_add(&pack, &(wl_entry){i < N / 2 ? 'c' : 'k', key, "name", image,
                                       i < N / 2 ? 500 : 40000});
    }
    wl_pack_print(&pack, &facts, &bytes);
    wl_sign_keys(&secret, &shown);
    wl_bundle_sign(&bytes, &secret);
    const char *path = file_of("large.wlb", bytes.data, bytes.size);
    const wl_trust trust = {&shown, 1};
    for (int i = 0; i < TIMES; i++) {
        wl_bundle *b;
        double start = seconds();
        CHECK_INT(wl_bundle_open(&b, path, &trust), WL_OK);
        CHECK(wl_bundle_find(b, WL_CACHE_KERNEL, &key) >= 0);
        took[i] = seconds() - start;
        wl_bundle_close(b);
    }
    double median = wl_median(took, TIMES);
    printf("open and find in a signed bundle of %zu bytes: %.3f ms\n", bytes.size, 1e3 * median);
#if !defined(__SANITIZE_ADDRESS__) && defined(__OPTIMIZE__)
    CHECK(median < 1e-3);
#endif
    wl_pack_free(&pack);
    wl_buf_free(&bytes);
}

/* ---- layers ---- */

static const char problem_text[] = "head_dim=128 dtype=bf16 mask=none layout=bshd seq_q=1000";

static wl_made made;

static wl_status get(const wl_options *options, const wl_device *device) {
    wl_problem p;
    wl_tools *tools;
    CHECK_INT(wl_problem_parse(problem_text, &p), WL_OK);
    wl_status status = wl_tools_open(&tools, options);
    if (status) return status;
    if (device) wl_store_driver(wl_tools_store(tools), device->driver_version);
    status = wl_kernel_get(tools, &(wl_request){.problem = &p, .device = device}, &made);
    static char layer[256];
    if (!status) snprintf(layer, sizeof layer, "%s", made.layer);
    if (!status) made.layer = layer;
    wl_tools_close(tools);
    return status;
}

static void take(void *user, const wl_entry *entry) {
    wl_pack_add(user, entry);
}

/* A bundle of what the problem needs, made as `warploom bundle build` does. */
static const char *built(const char *name, const wl_bundle_facts *other, const wl_device *device) {
    wl_problem p;
    wl_tools *tools;
    wl_pack pack = {0};
    wl_buf bytes = {0};
    CHECK_INT(wl_problem_parse(problem_text, &p), WL_OK);
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    wl_store_listen(wl_tools_store(tools), take, &pack);
    CHECK_INT(wl_kernel_get(tools, &(wl_request){.problem = &p, .device = device}, &made), WL_OK);
    wl_made_free(&made);
    wl_bundle_facts ours = wl_store_facts(wl_tools_store(tools));
    wl_pack_print(&pack, other ? other : &ours, &bytes);
    const char *path = file_of(name, bytes.data, bytes.size);
    wl_pack_free(&pack);
    wl_buf_free(&bytes);
    wl_tools_close(tools);
    return path;
}

/* From now on: no cache, no generator, no NVRTC. */
static wl_options bare(const char *bundles) {
    setenv("WARPLOOM_GEN", "/nowhere", 1);
    setenv("WARPLOOM_NVRTC", "/nowhere", 1);
    return (wl_options){.size = sizeof(wl_options), .cache = "off", .jit = "off",
                        .bundles = bundles};
}

TEST(a_bundle_serves_where_there_is_nothing_else) {
    char layer[256], paths[400];
    fakes();
    const char *path = built("good.wlb", NULL, NULL);
    snprintf(paths, sizeof paths, "/nowhere.wlb::%s", path);
    wl_options o = bare(paths);
    CHECK_INT(get(&o, NULL), WL_OK);
    snprintf(layer, sizeof layer, "bundle %s", path);
    CHECK_STR(made.layer, layer);
    CHECK_STR(made.launch.choice, "fwd_fake");
    CHECK(strstr(made.compiled[0].image.data + 64, "void fwd_fake() {}"));
    wl_made_free(&made);
}

TEST(layers_are_asked_in_order) {
    fakes();
    const char *path = built("first.wlb", NULL, NULL);
    wl_options o = {.size = sizeof o, .bundles = path};
    CHECK_INT(get(&o, NULL), WL_OK); /* the cache has it too */
    CHECK(!strncmp(made.layer, "bundle ", 7));
    wl_made_free(&made);
    o.bundles = NULL;
    CHECK_INT(get(&o, NULL), WL_OK);
    CHECK_STR(made.layer, "cache");
    wl_made_free(&made);
}

/* Each layer says in the one error why it could not serve. */
TEST(a_miss_tells_why_each_layer_could_not_serve) {
    const wl_bundle_facts old = {.generator = {{0xab}}, .version = "0.0.9"};
    static const char *const want[] = {
        "memory: not loaded; ", "; bundle /nowhere.wlb: refused: /nowhere.wlb: cannot open: No",
        "other.wlb: refused: made by warploom 0.0.9, generator ab0000000000; this is 0.1.0, gen",
        "empty.wlb: no choice; ",
        "(off): turned off; JIT: off. For a bundle, add the line `variant="};
    char paths[600];
    wl_pack none = {0};
    wl_buf bytes = {0}, text = {0};
    wl_tools *tools;
    fakes();
    const char *other = built("other.wlb", &old, NULL);
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    wl_bundle_facts ours = wl_store_facts(wl_tools_store(tools));
    wl_tools_close(tools);
    wl_pack_print(&none, &ours, &bytes);
    snprintf(paths, sizeof paths, "/nowhere.wlb:%s:%s", other,
             file_of("empty.wlb", bytes.data, bytes.size));
    wl_options o = bare(paths);
    setenv("WARPLOOM_MISSES", path_of("misses"), 1);
    for (int i = 0; i < 2; i++) CHECK_INT(get(&o, NULL), WL_ECOMPILE);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        if (!strstr(message(), want[i])) test_str(__FILE__, __LINE__, "miss", message(), want[i]);
    CHECK_INT(wl_file_read(path_of("misses"), 4096, &text), WL_OK);
    CHECK_STR(text.data, "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
                         "lse=yes batch=1 heads=1 kv_heads=1 seq_q=1024 seq_k=1024\n");
    setenv("WARPLOOM_MISSES", "/nowhere/file", 1);
    CHECK_INT(get(&o, NULL), WL_ECOMPILE);
    wl_buf_free(&bytes), wl_buf_free(&text);
}

TEST(what_is_for_others_is_told) {
    static const wl_device here = {.name = "Fake GPU", .sms = 132, .memory = 9,
                                   .driver_version = 12040};
    fakes();
    setenv("FAKE_NVRTC_IMAGE", ".version 9.0\n.target sm_90a\n", 1);
    const char *path = built("ptx.wlb", NULL, NULL);
    wl_options o = bare(path);
    CHECK_INT(get(&o, NULL), WL_ECOMPILE);
    CHECK(strstr(message(), "it has the choice, but fwd_fake is nowhere (linked-in: "));
    CHECK(strstr(message(), "ptx.wlb: is for compute_90a, not for sm_90a"));
    fakes();
    char why[128];
    CHECK(wl_store_refuses("sm_90a", 13000, "sm_90a", here.driver_version, why));
    CHECK_STR(why, "made by CUDA 13.0: needs a driver of CUDA 13.0 or newer, this is 12.4");
    CHECK(!wl_store_refuses("sm_90a", 12080, "sm_90a", here.driver_version, why));
    CHECK(!wl_store_refuses("compute_90a", 13000, "compute_90a", here.driver_version, why));
}

/* A tuned record travels with the kernel that it names, and is for its likes alone. */
TEST(tuned_records_travel) {
    const wl_tuned_time best = {.name = "fwd_best", .section_mb = 16, .warm_us = 100, .rounds = 5};
    wl_device here = {.name = "Fake GPU", .sms = 132, .memory = 99, .driver_version = 13000};
    wl_tuned t = {.sms = 132, .memory = 99, .driver = 13000};
    wl_problem p;
    wl_hash key;
    wl_tools *tools;
    fakes();
    strcpy(t.gpu, here.name), strcpy(t.nvrtc, "13.0-x"), strcpy(t.date, "2026-11-30");
    wl_tuned_add_time(&t, &best);
    CHECK_INT(wl_problem_parse(problem_text, &p), WL_OK);
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    CHECK_INT(wl_tuned_key(tools, &p, &here, &key), WL_OK);
    CHECK_INT(wl_tuned_write(wl_tools_cache(tools), &key, &t), WL_OK);
    wl_tuned_free(&t);
    wl_tools_close(tools);
    const char *path = built("tuned.wlb", NULL, &here);
    wl_options o = bare(path);
    CHECK_INT(get(&o, &here), WL_OK);
    CHECK_STR(made.launch.choice, "fwd_best");
    CHECK(!strncmp(made.launch.by, "tuned here, 2026", 16));
    wl_made_free(&made);
    here.driver_version = 13010; /* other times: and for no record there is no choice here */
    CHECK_INT(get(&o, &here), WL_ECOMPILE);
}

/* Made with a user's specs it serves where there are none, and not where there are others. */
TEST(a_bundle_stands_for_the_specs_that_it_was_made_with) {
    fakes();
    setenv("WARPLOOM_SPECS", text_of("mine.yaml", "name: mine\n"), 1);
    const char *path = built("specs.wlb", NULL, NULL);
    wl_options o = bare(path);
    CHECK_INT(get(&o, NULL), WL_OK);
    wl_made_free(&made);
    unsetenv("WARPLOOM_SPECS");
    CHECK_INT(get(&o, NULL), WL_OK);
    wl_made_free(&made);
    setenv("WARPLOOM_SPECS", text_of("mine.yaml", "name: other\n"), 1);
    CHECK_INT(get(&o, NULL), WL_ECOMPILE);
    CHECK(strstr(message(), "made with other specs than those of WARPLOOM_SPECS here"));
}

TEST(damage_in_a_bundle_is_passed_over) {
    wl_buf bytes = {0};
    fakes();
    const char *path = built("hurt.wlb", NULL, NULL);
    CHECK_INT(wl_file_read(path, 1 << 20, &bytes), WL_OK);
    bytes.data[bytes.size - 1] ^= 1; /* of the kernel */
    wl_options o = {.size = sizeof o, .bundles = file_of("hurt.wlb", bytes.data, bytes.size)};
    CHECK_INT(get(&o, NULL), WL_OK); /* its choice, and the cache's image */
    wl_made_free(&made);
    o = bare(path);
    CHECK_INT(get(&o, NULL), WL_ECOMPILE);
    CHECK(strstr(message(), "it has another digest than the index states"));
    wl_buf_free(&bytes);
}

TEST(what_a_program_used_is_recorded_once) {
    wl_buf text = {0};
    fakes();
    setenv("WARPLOOM_RECORD", path_of("used"), 1);
    for (int i = 0; i < 2; i++) { /* made, then found: two programs */
        CHECK_INT(get(NULL, NULL), WL_OK);
        wl_made_free(&made);
    }
    CHECK_INT(wl_file_read(path_of("used"), 4096, &text), WL_OK);
    char *half = text.data + text.size / 2;
    CHECK(text.size % 2 == 0 && !memcmp(text.data, half, text.size / 2));
    CHECK(!strncmp(text.data, "c ", 2) && strstr(text.data, "\nk "));
    CHECK(strstr(text.data, " variant=fwd ") && strstr(text.data, " fwd_fake\n"));
    setenv("WARPLOOM_RECORD", "/nowhere/file", 1);
    CHECK_INT(get(NULL, NULL), WL_OK);
    wl_made_free(&made);
    wl_buf_free(&text);
}

/* Last: what is linked in stays. */
TEST(what_is_linked_in_comes_first) {
    static wl_buf bytes; /* for good */
    fakes();
    const char *path = built("linked.wlb", NULL, NULL);
    CHECK_INT(wl_file_read(path, 1 << 20, &bytes), WL_OK);
    wl_bundle_add(bytes.data, bytes.size);
    wl_bundle_add("no bundle", 9);
    wl_options o = bare(path);
    CHECK_INT(get(&o, NULL), WL_OK);
    CHECK_STR(made.layer, "linked-in");
    wl_made_free(&made);
}
