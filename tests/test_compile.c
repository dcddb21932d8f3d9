/* test_compile.c - NVRTC: places of errors, the log gate, statistics, keys, arch of a cubin.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "test.h"

#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "compile.h"

/* NVRTC itself (it needs no GPU), or the fake one beside this program. */
static const wl_nvrtc *nvrtc(bool fake) {
    static const wl_nvrtc *opened[2];
    char path[4096];
    if (opened[fake]) return opened[fake];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 64);
    path[size > 0 ? size : 0] = '\0';
    strcpy(strrchr(path, '/'), "/libfake_nvrtc.so");
    if (wl_nvrtc_get(fake ? path : NULL, &opened[fake])) {
        printf("%s\n", message());
        exit(1);
    }
    return opened[fake];
}

static const wl_header headers[] = {
    {"good.cuh", "float twice(float x) {\n    return x + x;\n}\n"},
    {"bad.cuh", "// one\n\nfloat half(float x) {\n    return x * y;\n}\n"},
    {"asm.cuh", "float odd(float x) {\n    asm(\"odd.f32 %0;\" : \"+f\"(x));\n    return x;\n}\n"},
    {"warn.cuh", "float same(float x) {\n    int unused;\n    return x;\n}\n"},
};

#define ENTRY "extern \"C\" __global__ void k(float *x) "

static wl_compile_input input(const char *source) {
    return (wl_compile_input){.name = "k.cu", .source = source, .headers = headers, .n_headers = 4,
                              .arch = "sm_90a", .kernel = "k"};
}

static void check_source(const char *source, const char *linemap, wl_status status,
                         const char *text) {
    wl_compile_input in = input(source);
    wl_compiled out;
    in.linemap = linemap;
    CHECK_FAIL(wl_compile(nvrtc(false), &in, &out), status, text);
    wl_compiled_free(&out);
}

TEST(a_kernel) {
    wl_compile_input in = input("#include \"good.cuh\"\n" ENTRY "{\n    __shared__ float s[64];\n"
                                "    s[threadIdx.x] = x[0];\n    __syncthreads();\n"
                                "    x[threadIdx.x] = twice(s[63 - threadIdx.x]);\n}\n");
    wl_compiled out, again;
    char arch[16];
    CHECK_INT(wl_compile(nvrtc(false), &in, &out), WL_OK);
    CHECK(out.registers > 0 && out.registers < 40);
    CHECK_INT(out.barriers, 1);
    CHECK_INT(out.shared_bytes, 256);
    CHECK_INT(out.spill_bytes, 0);
    CHECK_INT(out.stack_bytes, 0);
    CHECK_INT(out.warnings.size, 0);
    CHECK(out.compile_ms > 1);
    CHECK_INT(wl_image_arch(out.image.data, out.image.size, arch), WL_OK);
    CHECK_STR(arch, "sm_90a");
    CHECK_INT(wl_compile(nvrtc(false), &in, &again), WL_OK);
    CHECK(out.image.size == again.image.size &&
          !memcmp(out.image.data, again.image.data, out.image.size));
    wl_compiled_free(&out);
    wl_compiled_free(&again);
}

TEST(ptx) {
    wl_compile_input in = input(ENTRY "{ x[0] = 1; }\n");
    wl_compiled out;
    char arch[16];
    in.arch = "compute_90a";
    CHECK_INT(wl_compile(nvrtc(false), &in, &out), WL_OK);
    CHECK(out.image.size && strstr(out.image.data, ".target sm_90a"));
    CHECK(strlen(out.image.data) == out.image.size);
    CHECK(strstr(out.image.data, "\t.loc\t1 "));
    CHECK_INT(wl_image_arch(out.image.data, out.image.size, arch), WL_OK);
    CHECK_STR(arch, "compute_90a");
    wl_compiled_free(&out);
}

static void *compile_here(void *argument) {
    wl_compile_input in = input(ENTRY "{ x[0] = 1; }\n");
    CHECK_INT(wl_compile(nvrtc(false), &in, argument), WL_OK);
    return NULL;
}

/* Two threads of the smallest stack there is: NVRTC would overflow it. */
TEST(threads_with_small_stacks) {
    pthread_attr_t attr;
    pthread_t threads[2];
    wl_compiled out[2] = {0};
    nvrtc(false);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    for (int i = 0; i < 2; i++) CHECK(!pthread_create(&threads[i], &attr, compile_here, &out[i]));
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    CHECK(out[0].image.size && out[0].image.size == out[1].image.size);
    CHECK(!memcmp(out[0].image.data, out[1].image.data, out[0].image.size));
    for (int i = 0; i < 2; i++) wl_compiled_free(&out[i]);
    pthread_attr_destroy(&attr);
}

TEST(errors_at_the_sources_line) {
    check_source(ENTRY "{\n    x[0] = nobody;\n}\n", NULL, WL_ECOMPILE,
                 "k.cu:2: error: identifier \"nobody\" is undefined\n"
                 "      x[0] = nobody;\n"
                 "             ^");
}

TEST(errors_at_the_templates_line) {
    check_source(ENTRY "{\n    x[0] = nobody;\n}\n",
                 "templates/fwd.cu.in:10\ntemplates/parts/p.cu:77\ntemplates/fwd.cu.in:12\n",
                 WL_ECOMPILE,
                 "templates/parts/p.cu:77: error: identifier \"nobody\" is undefined\n"
                 "      x[0] = nobody;\n"
                 "             ^");
    check_source(ENTRY "{\n    x[0] = 1;\n", "t:10\nt:20\n", WL_ECOMPILE,
                 "t:20: error: expected a \"}\"");
    check_source("#include \"gone.cuh\"\n", "t:5\n", WL_ECOMPILE,
                 "t:5: catastrophic error: cannot open source file \"gone.cuh\"\n"
                 "  #include \"gone.cuh\"\n"
                 "                     ^");
}

TEST(errors_at_a_headers_line) {
    check_source("#include \"bad.cuh\"\n" ENTRY "{ x[0] = half(x[1]); }\n", "t:1\nt:2\n",
                 WL_ECOMPILE,
                 "templates/device/bad.cuh:4: error: identifier \"y\" is undefined\n"
                 "      return x * y;\n"
                 "                 ^");
}

/* ptxas knows lines of the PTX alone; a second run with line information leads back. */
TEST(errors_of_ptxas) {
    check_source(ENTRY "{\n    x[0] = 1;\n    asm volatile(\"odd.f32 %0;\" : \"+f\"(x[0]));\n}\n",
                 "t:1\nt:2\nt:30\nt:4\n", WL_ECOMPILE,
                 "t:30: error: ptxas: Not a name of any known instruction: 'odd'");
    check_source("#include \"asm.cuh\"\n" ENTRY "{\n    x[0] = odd(x[1]);\n"
                 "    x[2] = odd(x[3]);\n}\n", "t:1\nt:2\nt:30\nt:4\n", WL_ECOMPILE,
                 "templates/device/asm.cuh:2: error: ptxas: Not a name of any known instruction: "
                 "'odd'");
}

TEST(many_errors) {
    wl_buf want = {0};
    for (int i = 1; i <= 5; i++)
        wl_buf_printf(&want, "k.cu:%d: error: identifier \"a%d\" is undefined\n  %s%d; \n"
                      "  %s^\n", i, i, i == 1 ? ENTRY "{ a" : " a", i,
                      i == 1 ? "                                         " : " ");
    wl_buf_text(&want, "and 2 more errors");
    check_source(ENTRY "{ a1; \n a2; \n a3; \n a4; \n a5; \n a6; \n a7; }\n", NULL, WL_ECOMPILE,
                 want.data);
    wl_buf_free(&want);
}

TEST(no_such_kernel) {
    check_source("extern \"C\" __global__ void other(float *x) { x[0] = 1; }\n", NULL, WL_ECOMPILE,
                 "k.cu: it has no kernel extern \"C\" __global__ void k(…)");
}

#define SPILLS                                                                                    \
    "extern \"C\" __global__ __launch_bounds__(1024) void k(float *x) {\n"                        \
    "    float a[100];\n"                                                                         \
    "#pragma unroll\n    for (int i = 0; i < 100; i++) a[i] = x[i * 7];\n"                        \
    "#pragma unroll\n    for (int i = 0; i < 100; i++) asm volatile(\"\" : \"+f\"(a[i]));\n"      \
    "    __syncthreads();\n"                                                                      \
    "#pragma unroll\n    for (int i = 0; i < 100; i++) x[i] = a[i] * x[i * i];\n}\n"

TEST(spills) {
    wl_compile_input in = input(SPILLS);
    wl_compiled out;
    clear_message();
    CHECK_INT(wl_compile(nvrtc(false), &in, &out), WL_ECOMPILE);
    CHECK(!strncmp(message(), "k.cu: rejected, the compiler's log says:\nk: ", 43));
    CHECK(strstr(message(), " bytes of spills"));
    CHECK(!out.image.data && !out.warnings.data);
    in.lenient = true;
    CHECK_INT(wl_compile(nvrtc(false), &in, &out), WL_OK);
    CHECK(out.spill_bytes > 0 && out.stack_bytes > 0);
    CHECK_INT(out.registers, 64);
    CHECK(out.image.size && strstr(out.warnings.data, " bytes of spills\n"));
    wl_compiled_free(&out);
}

TEST(warnings) {
    wl_compile_input in = input("#include \"warn.cuh\"\n" ENTRY "{\n    int idle;\n"
                                "    x[0] = same(x[1]);\n}\n");
    wl_compiled out;
    static const char want[] =
        "templates/device/warn.cuh:2: warning #177-D: variable \"unused\" was declared but never "
        "referenced\nt:30: warning #177-D: variable \"idle\" was declared but never referenced";
    char text[512];
    in.linemap = "t:1\nt:2\nt:30\nt:4\nt:5\n";
    snprintf(text, sizeof text, "k.cu: rejected, the compiler's log says:\n%s", want);
    CHECK_FAIL(wl_compile(nvrtc(false), &in, &out), WL_ECOMPILE, text);
    in.lenient = true;
    CHECK_INT(wl_compile(nvrtc(false), &in, &out), WL_OK);
    snprintf(text, sizeof text, "%s\n", want);
    CHECK_STR(out.warnings.data, text);
    wl_compiled_free(&out);
}

TEST(setmaxnreg_ignored) {
    check_source(ENTRY "{\n    asm volatile(\"setmaxnreg.dec.sync.aligned.u32 24;\");\n"
                 "    x[0] = 1;\n}\n", NULL, WL_ECOMPILE,
                 "k.cu: rejected, the compiler's log says:\n"
                 "an instruction or a limit is ignored: ptxas info    : (C7508) Potential "
                 "Performance Loss: 'setmaxnreg' ignored; unable to determine register count at "
                 "entry.");
}

/* What the fake NVRTC is told for one check. */
static void tell(const char *name, const char *value) {
    value ? setenv(name, value, 1) : unsetenv(name);
}

#define PROPERTIES(kernel) "ptxas info    : Function properties for " kernel "\n"
#define USED(n) "ptxas info    : Used " #n " registers, used 3 barriers\n"
#define NO_STACK "ptxas    .   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
#define CLEAN PROPERTIES("k") NO_STACK USED(168)

TEST(the_gate) {
    static const struct {
        const char *line, *reason; /* reason NULL: accepted */
    } cases[] = {
        {"ptxas info    : (C7519) Potential fence injected in function 'k'", NULL},
        {"ptxas info    : (C7517) wait injected", "waits are injected into the wgmma pipeline"},
        {"ptxas info    : (C7512) Potential Performance Loss: wgmma.mma_async instructions are "
         "serialized due to insufficient register resources", "wgmma instructions are serialised"},
        {"ptxas warning : odd", "ptxas warns"},
        {"  a line of source with (C7517) serialized ignored", NULL},
        {"Remark: The warnings can be suppressed", NULL},
    };
    wl_compile_input in = input("");
    wl_compiled out;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *log = wl_format(CLEAN "%s\n", cases[i].line);
        char *want = wl_format("k.cu: rejected, the compiler's log says:\n%s: %s",
                               cases[i].reason, cases[i].line);
        tell("FAKE_NVRTC_LOG", log);
        CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), cases[i].reason ? WL_ECOMPILE : WL_OK,
                   cases[i].reason ? want : "");
        wl_compiled_free(&out);
        free(log);
        free(want);
    }
    tell("FAKE_NVRTC_LOG", NULL);
}

/* The statistics are the kernel's own; another function's spills reject it nevertheless. */
TEST(several_functions) {
    wl_compile_input in = input("");
    wl_compiled out;
    tell("FAKE_NVRTC_LOG", PROPERTIES("first") NO_STACK USED(40) CLEAN PROPERTIES("last") NO_STACK
         USED(50));
    CHECK_INT(wl_compile(nvrtc(true), &in, &out), WL_OK);
    CHECK_INT(out.registers, 168);
    CHECK_INT(out.barriers, 3);
    wl_compiled_free(&out);
    in.kernel = NULL; /* the last one's */
    CHECK_INT(wl_compile(nvrtc(true), &in, &out), WL_OK);
    CHECK_INT(out.registers, 50);
    wl_compiled_free(&out);
    tell("FAKE_NVRTC_LOG", CLEAN PROPERTIES("helper")
         "    16 bytes stack frame, 24 bytes spill stores, 28 bytes spill loads\n");
    in.kernel = "k";
    CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE,
               "k.cu: rejected, the compiler's log says:\n"
               "helper: 16 bytes of stack, 52 bytes of spills");
    in.kernel = NULL;
    tell("FAKE_NVRTC_LOG", "");
    CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE,
               "k.cu: it has no kernel extern \"C\" __global__ void NAME(…)");
    tell("FAKE_NVRTC_LOG", NULL);
}

TEST(calls_that_fail) {
    static const char *const calls[] = {"nvrtcCreateProgram", "nvrtcGetProgramLog",
                                        "nvrtcGetCUBINSize", "nvrtcGetCUBIN"};
    wl_compile_input in = input("");
    wl_compiled out;
    char want[128];
    tell("FAKE_NVRTC_LOG", "");
    for (size_t i = 0; i < 4; i++) {
        tell("FAKE_NVRTC_FAIL", calls[i]);
        snprintf(want, sizeof want, "k.cu: %s failed with 6",
                 i == 2 ? "nvrtcGetCUBIN" : calls[i]);
        CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE, want);
    }
    tell("FAKE_NVRTC_FAIL", "nvrtcGetPTX");
    in.arch = "compute_90a";
    CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE, "k.cu: nvrtcGetPTX failed with 6");
    tell("FAKE_NVRTC_FAIL", NULL);
    tell("FAKE_NVRTC_LOG", NULL);
}

/* Failures that are not about the source: the log as it is, or ptxas' words without a place. */
TEST(other_failures) {
    static const char *const logs[][2] = {
        {"", "k.cu: nvrtcCompileProgram failed with 7"},
        {"nvrtc: error: failed to open libnvrtc-builtins.so.13.0.\n  Make sure it is there.\n\n",
         "k.cu: nvrtcCompileProgram failed with 7: nvrtc: error: failed to open "
         "libnvrtc-builtins.so.13.0.\n  Make sure it is there."},
        {"ptxas info    : x\nptxas fatal   : (C7602) cannot allocate\n",
         "k.cu: error: ptxas: (C7602) cannot allocate"},
        {"ptxas error   : Entry function 'k' uses too much shared data\n"
         "ptxas fatal   : Ptx assembly aborted due to errors\n",
         "k.cu: error: ptxas: Entry function 'k' uses too much shared data"},
        {"elsewhere.h(7): error: odd\n", "elsewhere.h:7: error: odd"},
        {"k.cu): error: odd\n", "k.cu: nvrtcCompileProgram failed with 7: k.cu): error: odd"},
    };
    wl_compile_input in = input("");
    wl_compiled out;
    tell("FAKE_NVRTC_FAIL", "nvrtcCompileProgram");
    tell("FAKE_NVRTC_RESULT", "7");
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        tell("FAKE_NVRTC_LOG", logs[i][0]);
        CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE, logs[i][1]);
    }
    tell("FAKE_NVRTC_LOG", "ptxas application ptx input, line 4; error   : odd\n");
    tell("FAKE_NVRTC_PTX", ".file 9 \"/b/x.cu\"\n.loc 9 44 3\n.loc 12 5 2\nodd;\n.loc 9 46 1\n"
         ".file 12 \"/b/dir/k.cu\"\n");
    CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE, "k.cu:5: error: ptxas: odd");
    tell("FAKE_NVRTC_PTX", ".loc 3 44 3\n"); /* of a file that the PTX does not name */
    CHECK_FAIL(wl_compile(nvrtc(true), &in, &out), WL_ECOMPILE, "k.cu: error: ptxas: odd");
    tell("FAKE_NVRTC_PTX", NULL);
    tell("FAKE_NVRTC_FAIL", NULL);
    tell("FAKE_NVRTC_RESULT", NULL);
    tell("FAKE_NVRTC_LOG", NULL);
}

TEST(keys) {
    wl_compile_input base = input("source"), other[7];
    wl_nvrtc newer = *nvrtc(true);
    static const wl_header changed[] = {{"good.cuh", ""}, {"bad.cuh", ""}, {"asm.cuh", ""},
                                        {"warn.cuh", "changed"}};
    for (int i = 0; i < 7; i++) other[i] = base;
    other[0].source = "source ";
    other[1].n_headers = 3;
    other[2].headers = changed;
    other[3].arch = "sm_90";
    other[4].lenient = true;
    other[5].kernel = "l";
    other[6].kernel = NULL;
    wl_hash key = wl_compile_key(&base, nvrtc(true), NULL);
    for (int i = 0; i < 7; i++) {
        wl_hash differs = wl_compile_key(&other[i], nvrtc(true), NULL);
        CHECK(memcmp(&key, &differs, sizeof key));
    }
    base.linemap = "no part of it";
    base.name = "nor this";
    wl_hash same = wl_compile_key(&base, nvrtc(true), NULL);
    CHECK(!memcmp(&key, &same, sizeof key));
    newer.identity[0] ^= 1;
    wl_hash differs = wl_compile_key(&base, &newer, NULL);
    CHECK(memcmp(&key, &differs, sizeof key));
    CHECK_STR(wl_compile_options()[0], "--std=c++17");
}

/* NVRTC's own cache would keep the log from us; older ones don't know how to turn it off. */
TEST(no_cache_where_there_is_one) {
    static const int versions[][2] = {{12, 4}, {12, 9}, {13, 0}};
    wl_compile_input in = input(ENTRY "{ x[0] = 1; }\n");
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
        wl_nvrtc n = *nvrtc(true);
        wl_compiled out;
        char text[16];
        n.major = versions[i][0], n.minor = versions[i][1];
        snprintf(text, sizeof text, "%d.%d", n.major, n.minor);
        setenv("FAKE_NVRTC_VERSION", text, 1);
        CHECK_INT(wl_compile(&n, &in, &out), WL_OK);
        CHECK_INT(out.registers, 168);
        wl_compiled_free(&out);
    }
    unsetenv("FAKE_NVRTC_VERSION");
}

TEST(arch_of_cubins) {
    wl_compile_input in = input(ENTRY "{ x[0] = 1; }\n");
    wl_compiled out;
    char arch[16];
    CHECK_INT(wl_compile(nvrtc(true), &in, &out), WL_OK);
    CHECK_INT(wl_image_arch(out.image.data, out.image.size, arch), WL_OK);
    CHECK_STR(arch, "sm_90a"); /* as CUDA 12 states it */
    out.image.data[49] = 0;
    CHECK_INT(wl_image_arch(out.image.data, out.image.size, arch), WL_OK);
    CHECK_STR(arch, "sm_90");
    out.image.data[18] = 62; /* x86-64 */
    CHECK_FAIL(wl_image_arch(out.image.data, out.image.size, arch), WL_EINVAL,
               "neither a cubin nor PTX that states its arch");
    CHECK_STR(arch, "");
    wl_compiled_free(&out);
    in.arch = "sm_90";
    CHECK_INT(wl_compile(nvrtc(false), &in, &out), WL_OK);
    CHECK_INT(wl_image_arch(out.image.data, out.image.size, arch), WL_OK);
    CHECK_STR(arch, "sm_90");
    for (size_t size = 0; size < out.image.size; size += size < 200 ? 1 : 37) {
        char *part = wl_alloc(size); /* its own allocation: reading past the end would show */
        memcpy(part, out.image.data, size);
        wl_image_arch(part, size, arch);
        free(part);
    }
    for (size_t i = 0; i < 64; i++) { /* wild offsets, sizes and counts */
        out.image.data[i] ^= 0x7f;
        wl_image_arch(out.image.data, out.image.size, arch);
        out.image.data[i] ^= 0x7f;
    }
    wl_compiled_free(&out);
}
