/* fuzz_problem.c - any text is a problem, which is printed and read to the same, or a clear error.
   SPDX-License-Identifier: BSD-3-Clause */
#include <stdlib.h>
#include <string.h>

#include "problem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool holds) {
    if (!holds) abort();
}

static void again(const wl_problem *problem, void (*print)(const wl_problem *, wl_buf *)) {
    wl_problem other;
    wl_buf text = {0}, same = {0};
    print(problem, &text);
    check(!wl_problem_parse(text.data, &other));
    print(&other, &same);
    check(!strcmp(text.data, same.data) && !strchr(text.data, '\n') && text.size < 1000);
    wl_buf_free(&text);
    wl_buf_free(&same);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    wl_problem problem;
    char *text = wl_alloc(size + 1); /* and a NUL */
    if (size) memcpy(text, data, size);
    clear_message();
    if (wl_problem_parse(text, &problem)) {
        check(*message());
    } else {
        again(&problem, wl_problem_print);
        again(&problem, wl_problem_bucket);
    }
    free(text);
    return 0;
}
