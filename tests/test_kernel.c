/* test_kernel.c - launch records; get from cache, generator and NVRTC; loading.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "fakes.h"

#include <fcntl.h>

#include "kernel.h"
#include "tuned.h"

static const char good[] =
    "choice fwd_x\nby prefer fwd.yaml:3\narch sm_90a\naxis head_dim 128\naxis dtype bf16\n"
    "scratch 8\nset tile_m 192\nset section_mb 72\nkernel fwd_x\nparams fwd\nthreads 512\n"
    "shared 200704\ncluster 2\nmap q 64 64\nmap k 64 128\n";

static const char problem_text[] =
    "head_dim=128 dtype=bf16 mask=none layout=bshd batch=3 heads=6 kv_heads=2 seq_q=1000";

TEST(record_is_read) {
    wl_launch l;
    CHECK_INT(wl_launch_parse(good, &l), WL_OK);
    CHECK_STR(l.choice, "fwd_x");
    CHECK_STR(l.by, "prefer fwd.yaml:3");
    CHECK_STR(l.arch, "sm_90a");
    CHECK_INT(l.scratch, 8);
    CHECK_INT(l.n_axes, 2);
    CHECK_INT(l.n_kernels, 1);
    CHECK_INT(l.kernel[0].threads, 512);
    CHECK_INT(l.kernel[0].shared, 200704);
    CHECK_INT(l.kernel[0].cluster, 2);
    CHECK_INT(l.kernel[0].n_maps, 2);
    CHECK_STR(l.kernel[0].map[1].tensor, "k");
    CHECK_INT(l.kernel[0].map[1].rows, 128);
    CHECK_INT(wl_launch_set(&l, "tile_m", 0), 192);
    CHECK_INT(wl_launch_set(&l, "tile_n", -1), -1);
}

TEST(record_has_defaults_and_several_kernels) {
    wl_launch l;
    CHECK_INT(wl_launch_parse("choice two\nkernel a\nparams fwd\nthreads 32\nkernel b\nparams fwd\n"
                              "threads 64",
                              &l),
              WL_OK);
    CHECK_STR(l.arch, "sm_90a");
    CHECK_INT(l.n_kernels, 2);
    CHECK_INT(l.kernel[1].cluster, 1);
    CHECK_INT(l.kernel[1].threads, 64);
}

TEST(long_reason_is_cut) {
    wl_launch l;
    char text[700];
    snprintf(text, sizeof text, "by %0500d\nchoice x\nkernel x\nparams fwd\nthreads 32\n", 7);
    CHECK_INT(wl_launch_parse(text, &l), WL_OK);
    CHECK_INT(strlen(l.by), sizeof l.by - 1);
}

static const struct {
    const char *text, *message;
} bad_records[] = {
    {"colour red", "launch record, line 1, 'colour red': unknown word"},
    {"\nchoice x", "launch record, line 1, '': unknown word"},
    {"choice ", "launch record, line 1, 'choice ': a word is missing"},
    {"arch sm_90_and_much_more", "launch record, line 1, 'arch sm_90_and_much_more': too long"},
    {"choice x\nthreads 32", "launch record, line 2, 'threads 32': no kernel line before it"},
    {"scratch many", "launch record, line 1, 'scratch many': expected a whole number"},
    {"scratch 65", "launch record, line 1, 'scratch 65': number out of range"},
    {"axis colour red", "launch record, line 1, 'axis colour red': no such word in a problem"},
    {"axis dtype", "launch record, line 1, 'axis dtype': a word is missing"},
    {"set tile_m 1.5", "launch record, line 1, 'set tile_m 1.5': expected a whole number"},
    {"set ", "launch record, line 1, 'set ': a word is missing"},
    {"kernel a\nmap q 129 64", "launch record, line 2, 'map q 129 64': number out of range"},
    {"kernel a\nmap q 64 64 256", "launch record, line 2, 'map q 64 64 256': number out of range"},
    {"kernel a\nmap q 64 64 96",
     "launch record, line 2, 'map q 64 64 96': the span is 32, 64 or 128"},
    {"kernel a\nmap q 64 257", "launch record, line 2, 'map q 64 257': number out of range"},
    {"param left 1 0", "launch record, line 1, 'param left 1 0': expected a whole number"},
    {"param left 1 0 3000000000",
     "launch record, line 1, 'param left 1 0 3000000000': number out of range"},
    {"param ", "launch record, line 1, 'param ': a word is missing"},
    {"tensor doc int32", "launch record, line 1, 'tensor doc int32': an index is missing"},
    {"tensor doc int8 p", "launch record, line 1, 'tensor doc int8 p': no such type"},
    {"tensor doc int32 x",
     "launch record, line 1, 'tensor doc int32 x': expected up to 3 of p, b, h and k"},
    {"tensor doc int32 p0", "launch record, line 1, 'tensor doc int32 p0': number out of range"},
    {"tensor doc int32 p b h k",
     "launch record, line 1, 'tensor doc int32 p b h k': expected up to 3 of p, b, h and k"},
    {"score_param a 1 x 2", "launch record, line 1, 'score_param a 1 x 2': expected a number"},
    {"score_param a 1 2", "launch record, line 1, 'score_param a 1 2': expected a number"},
    {"kernel a\nkernel b\nkernel c\nkernel d",
     "launch record, line 4, 'kernel d': too many kernels"},
    {"kernel a\nparams fwd\nthreads 32", "launch record: no 'choice' line"},
    {"choice x", "launch record: no 'kernel' line"},
    {"choice x\nkernel a\nthreads 32", "launch record: no 'params' line"},
    {"choice x\nkernel a\nparams fwd", "launch record: no 'threads' line"},
};

TEST(bad_records_are_refused) {
    wl_launch l;
    for (size_t i = 0; i < sizeof bad_records / sizeof *bad_records; i++)
        CHECK_FAIL(wl_launch_parse(bad_records[i].text, &l), WL_ESPEC, bad_records[i].message);
}

TEST(too_much_is_refused) {
    static const struct {
        const char *line, *message;
        int times;
    } rows[] = {
        {"axis dtype bf16\n", "launch record, line 20, 'axis dtype bf16': too many axes", 20},
        {"param x 1 0 2\n", "launch record, line 5, 'param x 1 0 2': too many params", 5},
        {"score_param x 1.5 0 2\n",
         "launch record, line 5, 'score_param x 1.5 0 2': too many params", 5},
        {"tensor x bool p\n", "launch record, line 5, 'tensor x bool p': too many tensors", 5},
        {"set x 1\n", "launch record, line 17, 'set x 1': too many numbers", 17},
        {"map q 8 1\n", "launch record, line 10, 'map q 8 1': too many maps", 9},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_launch l;
        wl_buf text = {0};
        if (*rows[i].line == 'm') wl_buf_text(&text, "kernel a\n");
        for (int n = 0; n < rows[i].times; n++) wl_buf_text(&text, rows[i].line);
        CHECK_FAIL(wl_launch_parse(text.data, &l), WL_ESPEC, rows[i].message);
        wl_buf_free(&text);
    }
}

static wl_problem problem(const char *text) {
    wl_problem p;
    CHECK_INT(wl_problem_parse(text, &p), WL_OK);
    return p;
}

TEST(record_must_fit_the_problem) {
    wl_launch l;
    wl_problem p = problem(problem_text);
    CHECK_INT(wl_launch_parse(good, &l), WL_OK);
    CHECK_INT(wl_launch_fits(&l, &p), WL_OK);
    p = problem("head_dim=64 dtype=bf16 mask=none layout=bshd seq_q=1");
    CHECK_FAIL(wl_launch_fits(&l, &p), WL_EINVAL,
               "kernel fwd_x is for head_dim=128; the problem asks head_dim=64");
    p = problem("head_dim=128 dtype=fp16 mask=none layout=bshd seq_q=1");
    CHECK_FAIL(wl_launch_fits(&l, &p), WL_EINVAL,
               "kernel fwd_x is for dtype=bf16; the problem asks dtype=fp16");
    CHECK_INT(wl_launch_parse("choice fwd_x\naxis lse no\nkernel a\nparams fwd\nthreads 32\n", &l),
              WL_OK);
    CHECK_FAIL(wl_launch_fits(&l, &p), WL_EINVAL,
               "kernel fwd_x sums rounded probabilities: its LSE would be off by 1e-3; leave lse "
               "out (lse=no), or take another kernel");
    p = problem("head_dim=128 dtype=fp16 mask=none layout=bshd seq_q=1 lse=no");
    CHECK_INT(wl_launch_fits(&l, &p), WL_OK);
}

/* ---- tools ---- */

TEST(options_are_checked) {
    wl_tools *tools;
    wl_options o = {.size = 8};
    char want[128];
    fakes();
    snprintf(want, sizeof want,
             "options.size = 8: set it to sizeof(wl_options), %zu in warploom %s", sizeof o,
             WARPLOOM_VERSION);
    CHECK_FAIL(wl_tools_open(&tools, &o), WL_EINVAL, want);
    o = (wl_options){.size = offsetof(wl_options, bundles), .bundles = "/none", .trust = "/none"};
    CHECK_INT(wl_tools_open(&tools, &o), WL_OK); /* of a program that knew of neither */
    wl_tools_close(tools);
    o = (wl_options){.size = sizeof o, .jit = "maybe"};
    CHECK_FAIL(wl_tools_open(&tools, &o), WL_EINVAL, "jit: expected on or off, got 'maybe'");
    o = (wl_options){.size = sizeof o, .cache = "sometimes"};
    CHECK_INT(wl_tools_open(&tools, &o), WL_EINVAL);
    CHECK(!tools);
    o = (wl_options){.size = sizeof o, .nvrtc = "/nowhere", .jit = "on", .cache = "off"};
    CHECK_INT(wl_tools_open(&tools, &o), WL_OK);
    CHECK(wl_tools_jit(tools));
    wl_tools_close(tools);
    wl_tools_close(NULL);
}

static wl_tools *tools_now(void) {
    wl_tools *tools;
    CHECK_INT(wl_tools_open(&tools, NULL), WL_OK);
    return tools;
}

TEST(generator_is_asked) {
    wl_buf out = {0};
    fakes();
    wl_tools *tools = tools_now();
    CHECK_INT(wl_tools_ask(tools, "header", "", &out), WL_OK);
    CHECK_STR(out.data, "one.cuh\ntwo.cuh\n");
    setenv("FAKE_GEN_FAIL", "check", 1);
    CHECK_FAIL(wl_tools_ask(tools, "check", "", &out), WL_ESPEC, "fake.yaml:1:1: check fails");
    wl_tools_close(tools);
    wl_buf_free(&out);
}

TEST(generator_may_be_missing_or_foreign) {
    wl_buf out = {0};
    fakes();
    wl_tools *tools = tools_now();
    setenv("WARPLOOM_GEN", "/nowhere/gen.so", 1);
    CHECK_FAIL(
        wl_tools_ask(tools, "check", "", &out), WL_ECOMPILE,
        "no generator: /nowhere/gen.so: cannot open shared object file: No such file or "
        "directory; put libwarploom-gen.so beside libwarploom.so, or name it in WARPLOOM_GEN");
    setenv("WARPLOOM_GEN", fake_path("libfake_cuda.so"), 1);
    CHECK_FAIL(wl_tools_ask(tools, "check", "", &out), WL_ECOMPILE,
               "no generator: the library has no wl_gen_error; WARPLOOM_GEN must name a "
               "libwarploom-gen.so of the same build");
    fakes();
    CHECK_INT(wl_tools_ask(tools, "check", "", &out), WL_OK);
    wl_tools_close(tools);
    wl_buf_free(&out);
}

TEST(generator_is_found_beside_the_program) {
    wl_buf out = {0};
    fakes();
    unsetenv("WARPLOOM_GEN");
    wl_tools *tools = tools_now();
    CHECK_INT(wl_tools_ask(tools, "words", "", &out), WL_OK);
    CHECK(out.data && strstr(out.data, "head_dim"));
    wl_tools_close(tools);
    wl_buf_free(&out);
}

static void spec_file(const char *name, const char *text) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", fake_root, name);
    CHECK_INT(wl_file_write(path, text, strlen(text)), WL_OK);
}

/* The hash of the specs that `places` names. */
static wl_hash specs_hash(const char *places, const char *more) {
    setenv("WARPLOOM_SPECS", places, 1);
    wl_tools *tools = tools_now();
    if (more) wl_tools_spec(tools, more);
    CHECK_INT(wl_tools_read_specs(tools), WL_OK);
    wl_hash hash = wl_store_facts(wl_tools_store(tools)).specs;
    wl_tools_close(tools);
    return hash;
}

TEST(specs_in_force_are_hashed) {
    char folder[128], file[192], both[400], missing[256];
    fakes();
    snprintf(folder, sizeof folder, "%s/specs", fake_root);
    mkdir(folder, 0700);
    spec_file("specs/b.yaml", "name: b\n");
    spec_file("specs/a.yaml", "name: a\n");
    spec_file("specs/.hidden.yaml", "name: h\n");
    spec_file("specs/notes.txt", "no spec\n");
    snprintf(file, sizeof file, "%s/a.yaml", folder);
    snprintf(both, sizeof both, "%s::%s/b.yaml", file, folder);
    wl_hash none = specs_hash("", NULL), all = specs_hash(folder, NULL),
            one = specs_hash(file, NULL);
    wl_hash two = specs_hash(both, NULL), late = specs_hash("", file);
    CHECK(memcmp(&none, &one, sizeof one));
    CHECK(memcmp(&one, &all, sizeof one));
    CHECK(!memcmp(&all, &two, sizeof two));
    CHECK(!memcmp(&one, &late, sizeof one));
    spec_file("other.yaml", "name: a\n"); /* names are for messages */
    snprintf(both, sizeof both, "%s/other.yaml", fake_root);
    wl_hash renamed = specs_hash(both, NULL);
    CHECK(!memcmp(&one, &renamed, sizeof one));
    spec_file("specs/a.yaml", "name: c\n");
    wl_hash other = specs_hash(file, NULL);
    CHECK(memcmp(&one, &other, sizeof one));

    wl_buf out = {0};
    setenv("WARPLOOM_SPECS", folder, 1);
    wl_tools *tools = tools_now();
    setenv("FAKE_GEN_FAIL", "spec", 1);
    CHECK_FAIL(wl_tools_ask(tools, "check", "", &out), WL_ESPEC, "fake.yaml:1:1: spec fails");
    unsetenv("FAKE_GEN_FAIL");
    CHECK_INT(wl_tools_ask(tools, "check", "", &out), WL_OK);
    wl_tools_close(tools);

    setenv("WARPLOOM_SPECS", "/nowhere.yaml", 1);
    tools = tools_now();
    snprintf(missing, sizeof missing, "/nowhere.yaml: cannot open: No such file or directory");
    CHECK_FAIL(wl_tools_ask(tools, "check", "", &out), WL_EINVAL, missing);
    wl_tools_close(tools);
    wl_buf_free(&out);
}

/* The specs in force are hashed alike, whether they come from files or as texts. */
TEST(variants_by_their_text) {
    fakes();
    spec_file("v.yaml", "name: v\n");
    char *path = wl_format("%s/v.yaml", fake_root);
    wl_hash file = specs_hash(path, NULL), hash;
    unsetenv("WARPLOOM_SPECS");
    wl_tools *tools = tools_now();
    CHECK_INT(wl_tools_variant(tools, "name: v\n"), WL_OK);
    hash = wl_store_facts(wl_tools_store(tools)).specs;
    CHECK(!memcmp(&file, &hash, sizeof hash));
    CHECK_INT(wl_tools_variant(tools, "name: v\n"), WL_OK);
    hash = wl_store_facts(wl_tools_store(tools)).specs;
    CHECK(!memcmp(&file, &hash, sizeof hash));
    setenv("FAKE_GEN_FAIL", "variant", 1);
    CHECK_FAIL(wl_tools_variant(tools, "name: w\n"), WL_ESPEC, "fake.yaml:1:1: variant fails");
    unsetenv("FAKE_GEN_FAIL");
    hash = wl_store_facts(wl_tools_store(tools)).specs;
    CHECK(!memcmp(&file, &hash, sizeof hash));
    CHECK_INT(wl_tools_variant(tools, "name: w\n"), WL_OK);
    hash = wl_store_facts(wl_tools_store(tools)).specs;
    CHECK(memcmp(&file, &hash, sizeof hash));
    char *large = wl_alloc((1 << 20) + 2);
    memset(large, 'x', (1 << 20) + 1);
    CHECK_FAIL(wl_tools_variant(tools, large), WL_ESPEC,
               "yaml:1:1: too large: a spec has at most 1048576 bytes");
    wl_tools_close(tools);

    setenv("WARPLOOM_GEN", "/nowhere.so", 1); /* there kernels come from the layers alone */
    setenv("WARPLOOM_JIT", "off", 1);
    tools = tools_now();
    CHECK_INT(wl_tools_variant(tools, "name: v\n"), WL_OK);
    CHECK_STR(message(), "");
    hash = wl_store_facts(wl_tools_store(tools)).specs;
    CHECK(!memcmp(&file, &hash, sizeof hash));
    wl_tools_close(tools);
    setenv("WARPLOOM_JIT", "on", 1);
    tools = tools_now();
    CHECK_INT(wl_tools_variant(tools, "name: v\n"), WL_ECOMPILE);
    wl_tools_close(tools);
    setenv("WARPLOOM_SPECS", "/nowhere.yaml", 1);
    tools = tools_now();
    CHECK_FAIL(wl_tools_variant(tools, "name: v\n"), WL_EINVAL,
               "/nowhere.yaml: cannot open: No such file or directory");
    wl_tools_close(tools);
    free(large), free(path);
    fakes();
}

/* ---- get ---- */

static wl_made made;

static wl_status get(wl_tools *tools, const wl_request *request) {
    return wl_kernel_get(tools, request, &made);
}

static int calls(void) {
    int (*count)(void) = (int (*)(void))fake_symbol("libfake_gen.so", "fake_gen_calls");
    return count();
}

TEST(made_once_then_found) {
    fakes();
    wl_problem p = problem(problem_text),
               same_bucket = problem("head_dim=128 dtype=bf16 mask=none layout=bshd batch=3 "
                                     "heads=6 kv_heads=2 seq_q=900 seq_k=1023");
    wl_request r = {.problem = &p};
    wl_tools *tools = tools_now();
    CHECK_INT(get(tools, &r), WL_OK);
    CHECK_STR(made.layer, "jit");
    CHECK_STR(made.launch.choice, "fwd_fake");
    CHECK(strstr(made.compiled[0].image.data + 64, "void fwd_fake() {}"));
    wl_made_free(&made);
    wl_tools_close(tools);

    /* A second process: no generator, no NVRTC, JIT off. */
    int before = calls();
    setenv("WARPLOOM_GEN", "/nowhere", 1);
    setenv("WARPLOOM_JIT", "off", 1);
    tools = tools_now();
    r = (wl_request){.problem = &same_bucket, .arch = "sm_90a"};
    CHECK_INT(get(tools, &r), WL_OK);
    CHECK_STR(made.layer, "cache");
    CHECK_STR(made.launch.by, "prefer fake");
    CHECK(strstr(made.compiled[0].image.data + 64, "void fwd_fake() {}"));
    CHECK_INT(calls(), before);
    wl_made_free(&made);
    wl_tools_close(tools);
}

TEST(another_problem_shares_the_kernel_but_not_the_choice) {
    fakes();
    wl_problem p = problem(problem_text), q = p;
    q.word[WL_P_seq_k].number = 100000;
    wl_tools *tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.problem = &p}), WL_OK);
    wl_hash key = made.key[0];
    wl_made_free(&made);
    setenv("FAKE_NVRTC_FAIL", "nvrtcCompileProgram", 1); /* the image is there already */
    CHECK_INT(get(tools, &(wl_request){.problem = &q}), WL_OK);
    CHECK_STR(made.layer, "jit");
    CHECK(!memcmp(&key, &made.key[0], sizeof key));
    wl_made_free(&made);
    CHECK_INT(get(tools, &(wl_request){.problem = &q, .fresh = true}), WL_ECOMPILE);
    wl_tools_close(tools);
}

/* Nothing but the fields is in a key: no variable, no time of a file, no folder. */
TEST(keys_are_of_their_fields) {
    wl_hash keys[4][2];
    wl_buf fields[4][2] = {0};
    char path[128];
    fakes();
    spec_file("s.yaml", "name: s\n");
    snprintf(path, sizeof path, "%s/s.yaml", fake_root);
    setenv("WARPLOOM_SPECS", path, 1);
    for (int i = 0; i < 4; i++) {
        wl_request r = {.name = i == 3 ? "fwd_two" : "fwd_one"};
        wl_tools *tools = tools_now();
        CHECK_INT(wl_kernel_keys(tools, &r, keys[i], fields[i]), WL_OK);
        wl_tools_close(tools);
        const struct timespec old[2] = {{i, 0}, {i, 0}};
        CHECK(!utimensat(AT_FDCWD, path, old, 0));
        setenv("UNRELATED", i ? "a" : "b", 1);
        setenv("WARPLOOM_CACHE_SIZE", "5M", 1);
        CHECK(!chdir(i ? "/usr" : "/"));
    }
    for (int i = 1; i < 4; i++)
        for (int r = 0; r < 2; r++)
            CHECK_INT(memcmp(&keys[0][r], &keys[i][r], sizeof(wl_hash)) != 0, i == 3);
    CHECK(!memcmp(fields[0][0].data, "schema\0warploom choice 1\0generator", 34));
    static const char spec[] = "\0s.yaml\0name: s\n";
    static const char header[] = "\0one.cuh\0// a header\n";
    CHECK(memmem(fields[0][0].data, fields[0][0].size, spec, sizeof spec));
    CHECK(memmem(fields[0][1].data, fields[0][1].size, header, sizeof header));
    setenv("FAKE_GEN_FAIL", "source", 1);
    wl_tools *tools = tools_now();
    CHECK_INT(wl_kernel_keys(tools, &(wl_request){.name = "fwd_one"}, keys[0], fields[0]),
              WL_ESPEC);
    wl_tools_close(tools);
    for (int i = 0; i < 8; i++) wl_buf_free(&fields[i / 2][i % 2]);
    fakes();
}

/* ---- tuned records ---- */

static const wl_device here = {
    .name = "Fake GPU", .sms = 132, .memory = 99, .driver_version = 13000};

/* Stores that fwd_best was measured to be the fastest for the problem on the device. */
static void put_tuned(wl_tools *tools, const wl_problem *p, const wl_device *device) {
    const wl_tuned_time times[] = {
        {.name = "fwd_best", .section_mb = 16, .warm_us = 100, .rounds = 5, .rank = 3},
        {.name = "fwd_guess", .section_mb = 48, .warm_us = 125, .rounds = 5}};
    wl_tuned t = {.sms = device->sms, .memory = device->memory, .driver = device->driver_version};
    wl_hash key;
    strcpy(t.gpu, device->name), strcpy(t.nvrtc, "13.0-x"), strcpy(t.date, "2026-11-30");
    for (int i = 0; i < 2; i++) wl_tuned_add_time(&t, &times[i]);
    CHECK_INT(wl_tuned_key(tools, p, device, &key), WL_OK);
    CHECK_INT(wl_tuned_write(wl_tools_cache(tools), &key, &t), WL_OK);
    wl_tuned_free(&t);
}

TEST(what_was_measured_here_is_taken) {
    fakes();
    wl_problem p = problem(problem_text);
    wl_device other = here, newer = here;
    strcpy(other.name, "Other GPU"), newer.driver_version = 13010;
    wl_request r = {.problem = &p, .device = &here};
    wl_tools *tools = tools_now();
    wl_launch l;
    put_tuned(tools, &p, &here);
    CHECK_INT(wl_kernel_choose(tools, &r, &l, NULL), WL_OK);
    CHECK_STR(l.choice, "fwd_best");
    CHECK_STR(l.by, "tuned here, 2026-11-30: 100.0 us; next fwd_guess section_mb=48, +25.0 %");
    CHECK_INT(wl_launch_set(&l, "section_mb", 0), 16);
    CHECK_INT(get(tools, &r), WL_OK);
    CHECK_STR(made.layer, "jit");
    CHECK_STR(made.launch.choice, "fwd_best");
    wl_made_free(&made);
    wl_tools_close(tools);

    /* A second process: three small files, and nothing else. */
    int before = calls();
    setenv("WARPLOOM_GEN", "/nowhere", 1);
    setenv("WARPLOOM_JIT", "off", 1);
    tools = tools_now();
    CHECK_INT(get(tools, &r), WL_OK);
    CHECK_STR(made.layer, "cache");
    CHECK_STR(made.launch.choice, "fwd_best");
    CHECK_INT(wl_launch_set(&made.launch, "section_mb", 0), 16);
    CHECK(!strncmp(made.launch.by, "tuned here, ", 12));
    wl_made_free(&made);
    CHECK_INT(calls(), before);
    wl_tools_close(tools);

    setenv("WARPLOOM_GEN", fake_path("libfake_gen.so"), 1);
    unsetenv("WARPLOOM_JIT");
    tools = tools_now();
    const wl_device *devices[] = {NULL, &other, &newer}; /* none of theirs */
    for (size_t i = 0; i < 3; i++) {
        r.device = devices[i];
        CHECK_INT(get(tools, &r), WL_OK);
        CHECK_STR(made.launch.choice, "fwd_fake");
        CHECK_STR(made.launch.by, "prefer fake");
        wl_made_free(&made);
    }
    r = (wl_request){.problem = &p, .name = "fwd_mine", .device = &here};
    CHECK_INT(get(tools, &r), WL_OK); /* the caller's own choice comes before all */
    CHECK_STR(made.launch.by, "prefer fake");
    wl_made_free(&made);
    wl_tools_close(tools);
}

TEST(a_tuned_kernel_that_is_lost_gives_way_without_jit) {
    fakes();
    wl_problem p = problem(problem_text);
    wl_tools *tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.problem = &p}), WL_OK);
    wl_made_free(&made);
    put_tuned(tools, &p, &here);
    wl_tools_close(tools);
    setenv("WARPLOOM_JIT", "off", 1);
    tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.problem = &p, .device = &here}), WL_OK);
    CHECK_STR(made.launch.choice, "fwd_fake");
    wl_made_free(&made);
    wl_launch l;
    CHECK_INT(wl_kernel_choose(tools, &(wl_request){.problem = &p, .device = &here}, &l, NULL),
              WL_ECOMPILE);
    CHECK(strstr(message(), "no kernel for variant=fwd "));
    wl_tools_close(tools);
}

/* What was measured, or with JIT off compiled, for calls with LSE serves those without: not the
   other way. */
TEST(what_is_there_with_lse_serves_without) {
    fakes();
    wl_problem with = problem(problem_text), without = with;
    strcpy(without.word[WL_P_lse].name, "no");
    wl_tools *tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.problem = &with}), WL_OK);
    wl_made_free(&made);
    wl_tools_close(tools);
    setenv("WARPLOOM_JIT", "off", 1);
    tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.problem = &without}), WL_OK);
    CHECK_STR(made.layer, "cache");
    wl_made_free(&made);
    wl_launch l;
    wl_request r = {.problem = &without};
    CHECK_INT(wl_kernel_choose(tools, &r, &l, NULL), WL_OK);
    strcpy(without.word[WL_P_mask].name, "causal");
    CHECK_INT(get(tools, &(wl_request){.problem = &without}), WL_ECOMPILE);
    CHECK(strstr(message(), " lse=no "));
    strcpy(without.word[WL_P_mask].name, "none");
    wl_tools_close(tools);
    setenv("WARPLOOM_JIT", "on", 1);
    tools = tools_now();
    put_tuned(tools, &with, &here);
    r.device = &here;
    CHECK_INT(wl_kernel_choose(tools, &r, &l, NULL), WL_OK);
    CHECK(strstr(l.by, "tuned here"));
    strcpy(with.word[WL_P_mask].name, "causal");
    strcpy(without.word[WL_P_mask].name, "causal");
    put_tuned(tools, &without, &here);
    r.problem = &with;
    CHECK_INT(wl_kernel_choose(tools, &r, &l, NULL), WL_OK);
    CHECK(!strstr(l.by, "tuned here"));
    wl_tools_close(tools);
}

/* line: what a workload is to hold. */
static void check_miss(wl_tools *tools, const wl_request *r, const char *what, const char *line,
                       const char *layers) {
    char want[2048];
    snprintf(want, sizeof want,
             "no kernel for %s: memory: not loaded; %s; JIT: off. For a bundle, add the line `%s` "
             "to its workload; for this cache, run `warploom compile \"%s\"` on a machine with "
             "NVRTC; or set WARPLOOM_JIT=on",
             what, layers, line, line);
    CHECK_FAIL(get(tools, r), WL_ECOMPILE, want);
}

TEST(a_miss_with_jit_off_tells_the_layers) {
    fakes();
    setenv("WARPLOOM_JIT", "off", 1);
    wl_tools *tools = tools_now();
    wl_problem p = problem(problem_text);
    char layers[256];
    snprintf(layers, sizeof layers, "linked-in: none; bundles: none; cache %s (rw): no choice",
             fake_cache);
    check_miss(tools, &(wl_request){.name = "fwd_named"}, "fwd_named", "fwd_named", layers);
    check_miss(tools, &(wl_request){.problem = &p},
               "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
               "lse=yes batch=3 heads=6 kv_heads=2 seq_q=1000 seq_k=1000 scale=0",
               "variant=fwd head_dim=128 head_dim_v=128 dtype=bf16 mask=none layout=bshd "
               "lse=yes batch=3 heads=6 kv_heads=2 seq_q=1024 seq_k=1024", layers);
    check_miss(tools, &(wl_request){.file = "a.cu", .text = "__global__ void mine() {}"}, "mine",
               "mine", "a hand-edited source is in no layer");
    wl_tools_close(tools);
    setenv("WARPLOOM_CACHE", "off", 1);
    tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_ECOMPILE);
    CHECK(strstr(message(), "(off)"));
    wl_tools_close(tools);
}

TEST(names_have_a_choice_of_their_own) {
    fakes();
    wl_tools *tools = tools_now();
    wl_launch launch;
    const char *layer;
    CHECK_INT(wl_kernel_choose(tools, &(wl_request){.name = "fwd_named"}, &launch, &layer), WL_OK);
    CHECK_STR(layer, "jit");
    CHECK_STR(launch.kernel[0].symbol, "fwd_named");
    CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_OK);
    wl_made_free(&made);
    CHECK_INT(wl_kernel_choose(tools, &(wl_request){.name = "fwd_named"}, &launch, &layer), WL_OK);
    CHECK_STR(layer, "cache");
    CHECK_INT(wl_kernel_choose(tools, &(wl_request){.name = "fwd_other"}, &launch, NULL), WL_OK);
    CHECK_STR(launch.choice, "fwd_other");
    wl_tools_close(tools);
}

TEST(records_of_another_arch_or_problem_are_refused) {
    fakes();
    wl_tools *tools = tools_now();
    wl_problem p = problem("head_dim=64 dtype=bf16 mask=none layout=bshd seq_q=1");
    CHECK_FAIL(get(tools, &(wl_request){.name = "fwd_x", .arch = "sm_80"}), WL_EDEVICE,
               "kernel fwd_x is for sm_90a, and this device is sm_80");
    setenv("FAKE_GEN_RECORD", good, 1);
    CHECK_FAIL(get(tools, &(wl_request){.problem = &p}), WL_EINVAL,
               "kernel fwd_x is for head_dim=128; the problem asks head_dim=64");
    setenv("FAKE_GEN_RECORD", "nonsense", 1);
    CHECK_FAIL(get(tools, &(wl_request){.problem = &p}), WL_ESPEC,
               "launch record, line 1, 'nonsense': unknown word");
    wl_tools_close(tools);
}

/* Puts `text` where the choice for `r` is. */
static void plant(wl_tools *tools, const char *text) {
    wl_hasher h; /* kernel.c's key, said again: a change of it must be meant */
    wl_hash_begin(&h);
    extern const char wl_generator_digest[65];
    wl_hash_text(&h, "warploom choice 1");
    wl_hash_text(&h, wl_generator_digest);
    wl_hash_text(&h, "launch");
    wl_hash_text(&h, "fwd_named");
    wl_hash_text(&h, "sm_90a");
    wl_hash key = wl_hash_end(&h);
    CHECK(wl_cache_put(wl_tools_cache(tools), WL_CACHE_CHOICE, &key, text, strlen(text)));
}

TEST(senseless_choices_are_misses_that_heal) {
    static const char hex[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    fakes();
    wl_tools *tools = tools_now();
    char no_key[600], two_keys[600], gone[600];
    snprintf(no_key, sizeof no_key, "kernelkey zz\nnvrtc x\n%s", good);
    snprintf(two_keys, sizeof two_keys, "kernelkey %s\nkernelkey %s\nnvrtc x\n%s", hex, hex, good);
    snprintf(gone, sizeof gone, "kernelkey %s\nnvrtc x\n%s", hex, good);
    const char *texts[] = {"", "nonsense", "nvrtc x", no_key, two_keys, gone};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        plant(tools, texts[i]);
        clear_message();
        CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_OK);
        CHECK_STR(made.layer, "jit");
        CHECK_STR(message(), "");
        wl_made_free(&made);
        CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_OK);
        CHECK_STR(made.layer, "cache");
        wl_made_free(&made);
    }
    wl_tools_close(tools);
}

TEST(an_image_for_another_machine_is_a_miss) {
    fakes();
    wl_tools *tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_OK);
    CHECK(wl_cache_put(wl_tools_cache(tools), WL_CACHE_KERNEL, &made.key[0], "no cubin", 8));
    wl_made_free(&made);
    CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_OK);
    CHECK_STR(made.layer, "jit");
    wl_made_free(&made);
    wl_tools_close(tools);
}

TEST(every_answer_of_the_generator_may_fail) {
    static const char *const verbs[] = {"open", "launch", "header", "source", "linemap"};
    fakes();
    setenv("WARPLOOM_CACHE", "off", 1);
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++) {
        char want[64];
        wl_tools *tools = tools_now();
        setenv("FAKE_GEN_FAIL", verbs[i], 1);
        snprintf(want, sizeof want, "fake.yaml:1:1: %s fails", verbs[i]);
        CHECK_FAIL(get(tools, &(wl_request){.name = "fwd_named"}), WL_ESPEC, want);
        unsetenv("FAKE_GEN_FAIL");
        CHECK_INT(get(tools, &(wl_request){.name = "fwd_named"}), WL_OK);
        wl_made_free(&made);
        wl_tools_close(tools);
    }
}

/* ---- hand-edited sources ---- */

static const char hand[] = "// __device__\nextern \"C\" __global__ void\n"
                           "__launch_bounds__(384, 1) fwd_hand(float *x) { f(); }\n";

TEST(a_hand_edited_source_takes_the_place) {
    fakes();
    wl_tools *tools = tools_now();
    wl_problem p = problem(problem_text);
    CHECK_INT(get(tools, &(wl_request){.problem = &p, .file = "fwd_hand.cu", .text = hand}), WL_OK);
    CHECK_STR(made.layer, "jit");
    CHECK_STR(made.launch.kernel[0].symbol, "fwd_hand");
    CHECK_STR(made.compiled[0].image.data + 64, hand);
    wl_made_free(&made);
    /* It never becomes the choice. */
    CHECK_INT(get(tools, &(wl_request){.name = "fwd_hand"}), WL_OK);
    CHECK_STR(made.layer, "jit");
    CHECK(strcmp(made.compiled[0].image.data + 64, hand));
    wl_made_free(&made);
    CHECK_FAIL(get(tools, &(wl_request){.problem = &p, .file = "f.cu", .text = "int x;"}),
               WL_EINVAL, "f.cu: no kernel: expected extern \"C\" __global__ void NAME(…)");
    setenv("FAKE_GEN_RECORD",
           "choice two\nkernel a\nparams fwd\nthreads 32\nkernel b\nparams fwd\n"
           "threads 64",
           1);
    CHECK_FAIL(get(tools, &(wl_request){.problem = &p, .file = "f.cu", .text = hand}), WL_EINVAL,
               "f.cu: two launches 2 kernels; a hand-edited source replaces the only one");
    wl_tools_close(tools);
}

static wl_status compile_text(wl_tools *tools, const char *file, const char *text, char *entry,
                              wl_compiled *out) {
    return wl_kernel_compile(tools, &(wl_request){.file = file, .text = text}, entry, out);
}

TEST(a_hand_edited_source_compiles_alone) {
    fakes();
    char entry[128];
    wl_compiled out = {0};
    wl_tools *tools = tools_now();
    CHECK_INT(compile_text(tools, "fwd_hand.cu", hand, entry, &out), WL_OK);
    CHECK_STR(entry, "fwd_hand");
    CHECK_STR(out.image.data + 64, hand);
    wl_compiled_free(&out);
    static const char *const same[] = {
        "// __global__ void f(\n__global__ void g(int *p) {}",
        "/* __global__ void f( */ __global__ void g(int *p) {}",
        "__global__ /* f( */ void g(int *p) {}",
        "const char *s = \"/*\\\"//\", c = '\"'; extern \"C\" __global__ void g(int *p) {} // \"",
    };
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        CHECK_INT(compile_text(tools, "g.cu", same[i], entry, &out), WL_OK);
        CHECK_STR(entry, "g");
        wl_compiled_free(&out);
    }
    CHECK_INT(compile_text(tools, "x.cu", "", entry, &out), WL_EINVAL);
    CHECK_INT(compile_text(tools, "x.cu", "/* __global__ void f(", entry, &out), WL_EINVAL);
    wl_tools_close(tools);
}

/* ---- loading ---- */

TEST(several_kernels_are_made_and_loaded_once) {
    fakes();
    setenv("FAKE_GEN_RECORD",
           "choice two\nkernel a\nparams fwd\nthreads 32\nkernel b\nparams fwd\n"
           "threads 64\nshared 1000",
           1);
    const wl_driver *driver;
    wl_device device;
    wl_loader *loader;
    CUkernel kernels[WL_MAX_KERNELS], again[WL_MAX_KERNELS];
    CHECK_INT(wl_driver_get(NULL, &driver), WL_OK);
    CHECK_INT(wl_driver_device(driver, 0, &device), WL_OK);
    wl_tools *tools = tools_now();
    CHECK_INT(get(tools, &(wl_request){.name = "two"}), WL_OK);
    wl_loader_open(&loader, driver, &device);
    CHECK_INT(wl_kernel_load(loader, &made, kernels), WL_OK);
    CHECK_INT(wl_kernel_load(loader, &made, again), WL_OK);
    CHECK(kernels[0] == again[0] && kernels[1] == again[1] && kernels[0] != kernels[1]);
    wl_loader_close(loader);
    wl_loader_open(&loader, driver, &device);
    static const char *const entries[] = {"cuLibraryLoadData", "cuLibraryGetKernel",
                                          "cuKernelSetAttribute"};
    for (int i = 0; i < 3; i++) {
        char want[128], inject[64];
        snprintf(inject, sizeof inject, "%s:200", entries[i]);
        snprintf(want, sizeof want, "%s: CUDA_ERROR_INVALID_IMAGE (a fake error)", entries[i]);
        setenv("FAKE_CUDA_FAIL", inject, 1);
        CHECK_FAIL(wl_kernel_load(loader, &made, kernels), WL_EFAIL, want);
    }
    unsetenv("FAKE_CUDA_FAIL");
    wl_loader_close(loader);
    wl_loader_close(NULL);
    wl_made_free(&made);
    wl_tools_close(tools);
}
