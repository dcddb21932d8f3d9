/* test.h - the whole test framework: TEST, CHECK, one line of totals.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_TEST_H
#define WL_TEST_H

#include <stdio.h>
#include <string.h>

#include "base.h"

typedef struct test {
    const char *name;
    void (*run)(void);
    struct test *next;
} test;
static test *test_list, **test_end = &test_list;
static int test_bad; /* failed checks of the running test */

/* TEST(name) { … }: registers itself; runs in the file's order. */
#define TEST(id)                                                                                  \
    static void id(void);                                                                         \
    __attribute__((constructor)) static void register_##id(void) {                                \
        static test t = {#id, id, NULL};                                                          \
        *test_end = &t;                                                                           \
        test_end = &t.next;                                                                       \
    }                                                                                             \
    static void id(void)

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            test_bad++;                                                                           \
            printf("%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);                      \
        }                                                                                         \
    } while (0)
#define CHECK_INT(got, want) test_int(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))
#define CHECK_STR(got, want) test_str(__FILE__, __LINE__, #got, (got), (want))
/* The call must return `status` and leave exactly this message. */
#define CHECK_FAIL(call, status, text)                                                            \
    do {                                                                                          \
        clear_message();                                                                          \
        test_int(__FILE__, __LINE__, #call, (long long)(call), (long long)(status));              \
        test_str(__FILE__, __LINE__, #call, message(), (text));                                   \
    } while (0)

__attribute__((unused)) static void test_int(const char *file, int line, const char *what,
                                             long long got, long long want) {
    if (got == want) return;
    test_bad++;
    printf("%s:%d: %s\n  got  %lld  (%s)\n  want %lld\n", file, line, what, got, message(), want);
}

__attribute__((unused)) static void test_str(const char *file, int line, const char *what,
                                             const char *got, const char *want) {
    if (got && want && !strcmp(got, want)) return;
    test_bad++;
    printf("%s:%d: %s\n  got  %s\n  want %s\n", file, line, what, got ? got : "(null)",
           want ? want : "(null)");
}

int main(int argc, char **argv) {
    int passed = 0, failed = 0;
    for (test *t = test_list; t; t = t->next) {
        if (argc > 1 && strcmp(argv[1], t->name)) continue;
        test_bad = 0;
        t->run();
        if (test_bad) printf("FAIL %s\n", t->name);
        test_bad ? failed++ : passed++;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}

#endif
