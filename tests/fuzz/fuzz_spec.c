/* fuzz_spec.c - any YAML is a spec or a list of errors; what it allows is CUDA without its text.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"
#include "gen.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s: %s\n", what, wl_gen_error());
    abort();
}

/* A candidate's text: a line a line, of characters that the templates have, with no more quotes
   than they. */
static void check_text(const char *text) {
    int quotes = 0;
    for (const char *at = text; *at; at++) {
        unsigned char c = (unsigned char)*at;
        check(c == '\n' || (c >= ' ' && c < 127), "a character that no template has");
        quotes += c == '"';
    }
    check(quotes % 2 == 0, "an odd number of quotes");
    check(!strstr(text, "wlevil"), "a word of the spec is in the text");
}

static void ask(wl_gen *gen, const char *verb, const char *arg, wl_buf *out) {
    out->size = 0;
    wl_buf_text(out, "");
    wl_status status = wl_gen_call(gen, verb, arg, out);
    check(!status || ((status == WL_EINVAL || status == WL_ESPEC) && *wl_gen_error()),
          "a failure without a message");
    if (status) out->size = 0, wl_buf_text(out, "");
}

/* The first candidates of a problem, by their launch record and their text. */
static void ask_candidates(wl_gen *gen, const char *problem) {
    wl_buf names = {0}, out = {0};
    ask(gen, "list", problem, &names);
    char *rest = names.data;
    for (int i = 0; i < 3 && *rest; i++) {
        char *name = strsep(&rest, "\n");
        ask(gen, "source", name, &out);
        check_text(out.data);
        ask(gen, "launch", name, &out);
        check_text(out.data);
        ask(gen, "explain", name, &out);
        if (!rest) break;
    }
    ask(gen, "choose", problem, &out);
    wl_buf_free(&names);
    wl_buf_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const wl_box_limits limits = {48 << 20, 2 << 20, 100000000, 20};
    static const char *const problems[] = {
        "head_dim=64 dtype=bf16 mask=causal layout=bshd seq_q=4096",
        "variant=mine head_dim=128 dtype=bf16 mask=none layout=bhsd seq_q=777 lse=no"};
    static wl_gen *gen;
    if (!gen) check(!wl_gen_open_box(&gen, wl_embedded, &limits), "open");
    wl_status status = wl_gen_spec(gen, "mine.yaml", (const char *)data, size);
    check(!status || (status == WL_ESPEC && *wl_gen_error()), "a failure without a message");
    for (size_t i = 0; !status && i < sizeof problems / sizeof *problems; i++)
        ask_candidates(gen, problems[i]);
    if (!status) wl_gen_close(gen), gen = NULL; /* a file that was refused left nothing behind */
    return 0;
}
