/* fake_gen.c - a libwarploom-gen.so that knows one candidate.
   SPDX-License-Identifier: BSD-3-Clause

   Named by WARPLOOM_GEN. The environment is read at each call:
     FAKE_GEN_RECORD   the launch record for any question, else the one below
     FAKE_GEN_LIST     the candidates, blanks between; the first is chosen (fwd_fake)
     FAKE_GEN_FAIL     the verb that fails ("open", "spec", "choose", …)
     FAKE_GEN_SOURCE   what stands behind the kernel in its source */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gen.h"

WARPLOOM_API int fake_gen_calls(void); /* how many questions so far */

static int calls;
static char error[256];

static const char *const record =
    "choice %.*s\nby prefer fake\nscratch 8\nset tile_m 128\nset section_mb %s\nkernel %.*s\n"
    "params fwd\nthreads 384\nshared 200000\nmap q 64 64\nmap k 64 128\nmap v 64 128\nmap o 64 "
    "16\n";

int fake_gen_calls(void) {
    return calls;
}

static const char *env(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value ? value : otherwise;
}

static wl_status answer(const char *verb) {
    if (strcmp(env("FAKE_GEN_FAIL", ""), verb)) return WL_OK;
    snprintf(error, sizeof error, "fake.yaml:1:1: %s fails", verb);
    return WL_ESPEC;
}

static void add(wl_buf *out, const char *text) {
    size_t size = strlen(text);
    out->room = out->size + size + 1;
    out->data = realloc(out->data, out->room);
    memcpy(out->data + out->size, text, size + 1);
    out->size += size;
}

wl_status wl_gen_open(wl_gen **out) {
    *out = (wl_gen *)error;
    return answer("open");
}

wl_status wl_gen_spec(wl_gen *gen, const char *path, const char *text, size_t size) {
    (void)gen, (void)path, (void)text, (void)size;
    return answer("spec");
}

wl_status wl_gen_call(wl_gen *gen, const char *verb, const char *arg, wl_buf *out) {
    char text[4096];
    const char *listed = env("FAKE_GEN_LIST", "fwd_fake");
    bool chooses = !strcmp(verb, "choose") || !strcmp(verb, "prefer");
    const char *name = chooses ? listed : arg;
    (void)gen;
    calls++;
    if (chooses || !strcmp(verb, "launch")) {
        const char *given = strstr(name, " section_mb=");
        int size = (int)strcspn(name, " ");
        snprintf(text, sizeof text, record, size, name, given ? given + 12 : "32", size, name);
        add(out, env("FAKE_GEN_RECORD", text));
    } else if (!strcmp(verb, "header")) {
        add(out, *arg ? "// a header\n" : "one.cuh\ntwo.cuh\n");
    } else if (!strcmp(verb, "source")) {
        snprintf(text, sizeof text, "extern \"C\" __global__ void %s() {}\n%s", arg,
                 env("FAKE_GEN_SOURCE", ""));
        add(out, text);
    } else if (!strcmp(verb, "list")) {
        snprintf(text, sizeof text, "%s\n", listed);
        for (char *at = text; *at; at++)
            if (*at == ' ') *at = '\n';
        add(out, text);
    } else if (!strcmp(verb, "numbers")) {
        add(out, "section_mb 32 16 8\n");
    } else if (!strcmp(verb, "variant")) {
        add(out, "added");
    } else if (!strcmp(verb, "linemap")) {
        add(out, "fake.cu.in:1\n");
    }
    return answer(verb);
}

void wl_gen_close(wl_gen *gen) {
    (void)gen;
}

const char *wl_gen_error(void) {
    return error;
}
