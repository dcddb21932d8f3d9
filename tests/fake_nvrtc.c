/* fake_nvrtc.c - a libnvrtc that compiles nothing: what it answers is in environment variables.
   SPDX-License-Identifier: BSD-3-Clause

     FAKE_NVRTC_VERSION  what nvrtcVersion says; 13.0 if unset
     FAKE_NVRTC_FAIL     name of the call that fails, with the result FAKE_NVRTC_RESULT (6)
     FAKE_NVRTC_LOG      the log; else statistics of a kernel named as the program without ".cu"
     FAKE_NVRTC_PTX      the PTX; else none
     FAKE_NVRTC_COUNT    a file that each compile appends a line to
     FAKE_NVRTC_MS       how long a compile takes, in milliseconds
     FAKE_NVRTC_IMAGE    the cubin; else an ELF header for sm_90a and the source behind it */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

typedef struct {
    char *image, *log;
    size_t image_size;
} program;

int nvrtcVersion(int *major, int *minor);
int nvrtcCreateProgram(void **out, const char *source, const char *name, int n,
                       const char *const *headers, const char *const *names);
int nvrtcCompileProgram(void *p, int n, const char *const *options);
int nvrtcDestroyProgram(void **p);
int nvrtcGetProgramLogSize(void *p, size_t *size);
int nvrtcGetProgramLog(void *p, char *log);
int nvrtcGetCUBINSize(void *p, size_t *size);
int nvrtcGetCUBIN(void *p, char *cubin);
int nvrtcGetPTXSize(void *p, size_t *size);
int nvrtcGetPTX(void *p, char *ptx);

static const char *env(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static int result_of(const char *call) {
    if (strcmp(env("FAKE_NVRTC_FAIL", ""), call)) return 0;
    return atoi(env("FAKE_NVRTC_RESULT", "6"));
}

EXPORT int nvrtcVersion(int *major, int *minor) {
    sscanf(env("FAKE_NVRTC_VERSION", "13.0"), "%d.%d", major, minor);
    return 0;
}

/* The smallest ELF header of a cubin for sm_90a, then the source: other sources, other images. */
static void make_image(program *p, const char *source) {
    static const unsigned char head[64] = {0x7f, 'E', 'L', 'F', 2, 1, 1, 0x33, [18] = 190,
                                           [48] = 90, [49] = 8};
    const char *given = getenv("FAKE_NVRTC_IMAGE");
    size_t size = given ? 0 : sizeof head;
    if (given) source = given;
    p->image_size = size + strlen(source);
    p->image = malloc(p->image_size + 1);
    memcpy(p->image, head, size);
    strcpy(p->image + size, source);
}

static void make_log(program *p, const char *name) {
    static const char form[] = "ptxas info    : Compiling entry function '%.*s' for 'sm_90a'\n"
                               "ptxas info    : Function properties for %.*s\n"
                               "ptxas         .     0 bytes stack frame, 0 bytes spill stores, "
                               "0 bytes spill loads\n"
                               "ptxas info    : Used 168 registers, used 9 barriers\n";
    const char *given = getenv("FAKE_NVRTC_LOG");
    size_t size = sizeof form + 2 * strlen(name) + (given ? strlen(given) : 0);
    int stem = (int)(strstr(name, ".cu") ? strstr(name, ".cu") - name : (ptrdiff_t)strlen(name));
    p->log = malloc(size);
    if (given)
        strcpy(p->log, given);
    else
        snprintf(p->log, size, form, stem, name, stem, name);
}

EXPORT int nvrtcCreateProgram(void **out, const char *source, const char *name, int n,
                              const char *const *headers, const char *const *names) {
    (void)n, (void)headers, (void)names;
    int result = result_of("nvrtcCreateProgram");
    if (result) return result;
    program *p = calloc(1, sizeof *p);
    make_image(p, source);
    make_log(p, name);
    *out = p;
    return 0;
}

static void count(void) {
    const char *path = getenv("FAKE_NVRTC_COUNT");
    FILE *file = path ? fopen(path, "ae") : NULL;
    if (file) fputs("compiled\n", file);
    if (file) fclose(file);
    usleep((unsigned)atoi(env("FAKE_NVRTC_MS", "0")) * 1000);
}

/* Like the real ones: from 12.9 on a cache answers with an empty log unless it is forbidden, and
   before that the option that forbids it is an error. */
EXPORT int nvrtcCompileProgram(void *p, int n, const char *const *options) {
    int major, minor, no_cache = 0;
    nvrtcVersion(&major, &minor);
    for (int i = 0; i < n; i++) no_cache |= !strcmp(options[i], "--no-cache");
    int has_cache = major > 12 || (major == 12 && minor >= 9);
    if (no_cache && !has_cache) return 5; /* NVRTC_ERROR_INVALID_OPTION */
    if (has_cache && !no_cache) ((program *)p)->log[0] = 0;
    count();
    return result_of("nvrtcCompileProgram");
}

EXPORT int nvrtcDestroyProgram(void **out) {
    program *p = *out;
    free(p->image);
    free(p->log);
    free(p);
    *out = NULL;
    return 0;
}

EXPORT int nvrtcGetProgramLogSize(void *p, size_t *size) {
    *size = strlen(((program *)p)->log) + 1;
    return 0;
}

EXPORT int nvrtcGetProgramLog(void *p, char *log) {
    strcpy(log, ((program *)p)->log);
    return result_of("nvrtcGetProgramLog");
}

EXPORT int nvrtcGetCUBINSize(void *p, size_t *size) {
    *size = ((program *)p)->image_size;
    return result_of("nvrtcGetCUBINSize");
}

EXPORT int nvrtcGetCUBIN(void *p, char *cubin) {
    memcpy(cubin, ((program *)p)->image, ((program *)p)->image_size);
    return result_of("nvrtcGetCUBIN");
}

EXPORT int nvrtcGetPTXSize(void *p, size_t *size) {
    (void)p;
    *size = strlen(env("FAKE_NVRTC_PTX", "")) + 1;
    return 0;
}

EXPORT int nvrtcGetPTX(void *p, char *ptx) {
    (void)p;
    strcpy(ptx, env("FAKE_NVRTC_PTX", ""));
    return result_of("nvrtcGetPTX");
}
