/* cli.c - the `warploom` command: arguments, help, exit codes.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "cli.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *value, *what;
} option_table[OPTIONS] = {
#define X(id, option, value, what) {option, value, what},
    CLI_OPTIONS(X)
#undef X
};

typedef struct {
    const char *name, *operands;
    int min; /* operands */
    unsigned options;
    wl_status (*run)(const cli_args *args);
    const char *what;
} command;

static const command command_table[] = {
    {"list", "PROBLEM", 1, HAS(JSON) | HAS(SPEC), cli_list,
     "the candidates that the specs allow, best guess first"},
    {"check", "[SPEC...]", 0, HAS(JSON) | HAS(SPEC), cli_check,
     "validates specs and templates: all errors, in order (without SPEC: the built-in ones)"},
    {"emit", "NAME|PROBLEM", 1, HAS(JSON) | HAS(SPEC) | HAS(OUT), cli_emit, "the CUDA source"},
    {"compile", "NAME|PROBLEM... | --source FILE.cu", 0,
     HAS(JSON) | HAS(SPEC) | HAS(OUT) | HAS(SOURCE) | HAS(DEVICE), cli_compile,
     "compiles into the cache and tells what each kernel takes (quote each of several problems)"},
    {"run", "PROBLEM", 1,
     HAS(JSON) | HAS(SPEC) | HAS(OUT) | HAS(SOURCE) | HAS(KERNEL) | HAS(Q) | HAS(K) | HAS(V) |
         HAS(LSE) | HAS(RANDOM) | HAS(CHECK) | HAS(DEVICE) | HAS(TENSOR),
     cli_run, "runs on the GPU (or in the simulator), times it, checks it"},
    {"verify", "NAME|PROBLEM | --source FILE.cu [PROBLEM]", 0,
     HAS(JSON) | HAS(SPEC) | HAS(SOURCE) | HAS(SCHEDULES), cli_verify,
     "runs in the simulator under many schedules: races, deadlocks, wrong results"},
    {"sim", "FILE.ptx --launch FILE.json", 1, HAS(JSON) | HAS(LAUNCH) | HAS(SCHEDULES), cli_sim,
     "runs any kernel's PTX in the simulator and checks it (man page: the launch file)"},
    {"tune", "[PROBLEM] [--workload FILE]", 0,
     HAS(JSON) | HAS(SPEC) | HAS(WORKLOAD) | HAS(SECONDS) | HAS(ALL) | HAS(COMPILE_ONLY), cli_tune,
     "measures the candidates of problems on the GPU; later choices know the fastest"},
    {"bundle", "build|ls|verify|diff|merge|extract|record|link|keygen|sign [FILE|PROBLEM...]", 1,
     HAS(JSON) | HAS(SPEC) | HAS(OUT) | HAS(WORKLOAD) | HAS(ARCH) | HAS(RECORD) | HAS(FOR) |
         HAS(DRIVER) | HAS(KEY),
     cli_bundle, "kernels and choices in one file, for machines with neither NVRTC nor a cache"},
    {"explain", "NAME|PROBLEM", 1, HAS(JSON) | HAS(SPEC), cli_explain,
     "what each part of the name means, its plan, who chose it"},
    {"draw", "MASK [KEY=VALUE...] | PROBLEM", 1, HAS(SPEC) | HAS(OUT), cli_draw,
     "a picture (SVG) of a mask, and of which tiles are empty, full and mixed"},
    {"cache", "ls|path|verify|prune|export|explain-key A B", 1,
     HAS(JSON) | HAS(SPEC) | HAS(OUT) | HAS(SIZE), cli_cache,
     "what it holds, where, whether it is sound, less of it, a tar of it (-o); how keys differ"},
    {"doctor", "", 0, HAS(JSON) | HAS(SPEC), cli_doctor,
     "what was found where, what is missing and how to get it"},
    {"tune-worker", "", 0, HAS(SPEC) | HAS(DEVICE), cli_worker, ""}, /* hidden: wl_tune's own */
};
#define COMMANDS (sizeof command_table / sizeof *command_table)

static void print_options(unsigned options) {
    printf("\nOptions:\n");
    for (int o = 0; o < OPTIONS; o++) {
        if (!((options | HAS(HELP)) >> o & 1)) continue;
        char name[32];
        const char *value = option_table[o].value;
        snprintf(name, sizeof name, "%s%s%s", option_table[o].name, value ? " " : "",
                 value ? value : "");
        printf("  %-18s %s\n", name, option_table[o].what);
    }
}

static void print_problem(void) {
    printf("\nA PROBLEM is words key=value, in any order:\n");
    for (int w = 0; w < WL_PROBLEM_WORDS; w++) {
        const wl_word *word = &wl_problem_table[w];
        const char *initial = word->initial + (*word->initial == '=');
        printf("  %-11s %s", word->name, word->what);
        if (*initial) printf(" (%s)", initial);
        putchar('\n');
    }
}

static void print_help(const command *c) {
    if (c) {
        printf("warploom %s%s%s [options]\n%s\n", c->name, *c->operands ? " " : "", c->operands,
               c->what);
        print_options(c->options);
        if (strstr(c->operands, "PROBLEM")) print_problem();
        return;
    }
    printf("warploom %s - attention kernels for NVIDIA GPUs, made from YAML specs\n\nCommands:\n",
           WARPLOOM_VERSION);
    for (size_t i = 0; i < COMMANDS && *command_table[i].what; i++)
        printf("  %-8s %s\n           %s\n", command_table[i].name, command_table[i].operands,
               command_table[i].what);
    print_problem();
    printf("\n`warploom COMMAND -h` tells a command's options; --version the version.\n"
           "Exit codes: 0 ok, 1 failed, 2 usage, bad problem or file, 3 bad spec, 4 compile,\n"
           "5 no device, 6 verification failed, 130 interrupted.\n");
}

wl_status cli_unknown(const char *where, const char *what, const char *word,
                      const char *const *words, size_t n, const char *help) {
    const char *near = wl_nearest(word, words, n);
    if (near)
        return fail(WL_EINVAL, "%sunknown %s '%s'; did you mean '%s'?", where, what, word, near);
    return fail(WL_EINVAL, "%sunknown %s '%s'; see 'warploom %s'", where, what, word, help);
}

static wl_status find_command(const char *word, const command **out) {
    const char *names[COMMANDS];
    size_t n = 0;
    for (size_t i = 0; i < COMMANDS; i++) {
        if (*command_table[i].what) names[n++] = command_table[i].name;
        if (!strcmp(word, command_table[i].name)) *out = &command_table[i];
    }
    if (*word == '-') return fail(WL_EINVAL, "unknown option '%s'; see 'warploom -h'", word);
    return *out ? WL_OK : cli_unknown("", "command", word, names, n, "-h");
}

static wl_status find_option(const command *c, const char *word, int *out) {
    const char *names[OPTIONS];
    size_t n = 0;
    for (int o = 0; o < OPTIONS; o++) {
        if (!((c->options | HAS(HELP)) >> o & 1)) continue;
        names[n++] = option_table[o].name;
        if (!strcmp(word, names[n - 1])) *out = o;
    }
    if (*out >= 0) return WL_OK;
    char *where = wl_format("%s: ", c->name), *help = wl_format("%s -h", c->name);
    wl_status status = cli_unknown(where, "option", word, names, n, help);
    free(where), free(help);
    return status;
}

/* Takes option `word` and, where it has one, its value: behind '=' or the next argument. */
static wl_status take_option(const command *c, char *word, char *next, cli_args *out, bool *used) {
    int o = -1;
    char *value = strncmp(word, "--", 2) ? NULL : strchr(word, '=');
    if (value) *value++ = '\0';
    wl_status status = find_option(c, word, &o);
    if (status) return status;
    if (!option_table[o].value) {
        if (value) return fail(WL_EINVAL, "%s: %s takes no value", c->name, word);
        out->value[o] = option_table[o].name;
        return WL_OK;
    }
    *used = !value;
    if (!value) value = next;
    if (!value)
        return fail(WL_EINVAL, "%s: %s needs a value: %s", c->name, word, option_table[o].value);
    if (o == OPTION_TENSOR && !strchr(value, '='))
        return fail(WL_EINVAL, "%s: --tensor %s: expected NAME=FILE.npy", c->name, value);
    if (o == OPTION_SPEC) out->spec[out->n_specs++] = value;
    else if (o == OPTION_TENSOR) out->tensor[out->n_tensors++] = value;
    else if (out->value[o]) return fail(WL_EINVAL, "%s: %s is given twice", c->name, word);
    out->value[o] = value;
    return WL_OK;
}

/* Options that would be passed over in silence are refused: "build --key" signs nothing. */
static wl_status check_options(const cli_args *args, const char *name, const cli_verb *v) {
    wl_buf takes = {0};
    int wrong = 0;
    for (int o = 0; o < OPTIONS; o++) {
        if (v->options >> o & 1)
            wl_buf_printf(&takes, "%s%s", takes.size ? ", " : "", option_table[o].name);
        else if (args->value[o]) wrong = o;
    }
    wl_status status = !wrong ? WL_OK
                              : fail(WL_EINVAL, "%s %s: %s is not for it; it takes %s", name,
                                     v->name, option_table[wrong].name, takes.data);
    wl_buf_free(&takes);
    return status;
}

wl_status cli_find_verb(const cli_args *args, const char *name, const cli_verb *verbs, size_t n,
                        size_t *out) {
    const char *names[16], *word = args->operand[0];
    int given = args->n_operands - 1;
    *out = 0;
    for (size_t i = 0; i < n; i++) names[i] = verbs[i].name;
    while (*out < n && strcmp(word, names[*out])) ++*out;
    char *where = wl_format("%s: ", name), *help = wl_format("%s -h", name);
    wl_status status = *out < n ? WL_OK : cli_unknown(where, "word", word, names, n, help);
    free(where), free(help);
    if (status) return status;
    const cli_verb *v = &verbs[*out];
    if (!v->max && given)
        return fail(WL_EINVAL, "%s %s takes no operand, got '%s'", name, word, args->operand[1]);
    if (given < v->min || given > v->max)
        return fail(WL_EINVAL, "%s %s: expected %s", name, word, v->operands);
    return check_options(args, name, v);
}

wl_status cli_need_out(const cli_args *args, const char *name, const char *what) {
    if (args->value[OPTION_OUT]) return WL_OK;
    return fail(WL_EINVAL, "%s %s: -o is missing: %s", name, args->operand[0], what);
}

/* Without its comment, and the blanks around. */
static char *trimmed(char *line) {
    line[strcspn(line, "#\r")] = '\0';
    line += strspn(line, " \t");
    size_t size = strlen(line);
    while (size && strchr(" \t", line[size - 1])) line[--size] = '\0';
    return line;
}

wl_status cli_lines(const cli_text *text,
                    wl_status (*each)(void *user, const char *file, int number, char *line),
                    void *user) {
    wl_buf bytes = {0};
    wl_status status = wl_file_read(text->file, text->limit, &bytes);
    if (!status && bytes.size && memchr(bytes.data, '\0', bytes.size))
        status = fail(WL_EINVAL, "%s: has a NUL byte: expected text, %s", text->file, text->what);
    char *rest = bytes.data, *line;
    for (int number = 1; !status && (line = strsep(&rest, "\n")); number++) {
        if (text->comments) line = trimmed(line);
        if (*line) status = each(user, text->file, number, line);
    }
    wl_buf_free(&bytes);
    return status;
}

wl_status cli_number(const cli_args *args, cli_option option, uint64_t *out) {
    const char *text = args->value[option];
    char *end;
    errno = 0;
    *out = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno)
        return fail(WL_EINVAL, "%s: expected a whole number below 2^64, got '%s'",
                    option_table[option].name, text);
    return WL_OK;
}

static wl_status parse(const command *c, int argc, char **argv, cli_args *out) {
    bool only_operands = false;
    for (int i = 0; i < argc; i++) {
        if (only_operands || argv[i][0] != '-' || !argv[i][1]) {
            out->operand[out->n_operands++] = argv[i];
        } else if (!strcmp(argv[i], "--")) {
            only_operands = true;
        } else {
            bool used = false;
            wl_status status =
                take_option(c, argv[i], i + 1 < argc ? argv[i + 1] : NULL, out, &used);
            if (status) return status;
            i += used;
        }
    }
    if (out->n_operands < c->min)
        return fail(WL_EINVAL, "%s: %s is missing; see 'warploom %s -h'", c->name, c->operands,
                    c->name);
    if (out->n_operands && !*c->operands)
        return fail(WL_EINVAL, "%s takes no operand, got '%s'", c->name, out->operand[0]);
    return WL_OK;
}

void cli_complain(wl_status status) {
    /* A spec's errors begin with FILE:LINE:COL, which editors read. */
    char *text = cli_escape(message());
    if (*text) fprintf(stderr, "%s%s\n", status == WL_ESPEC ? "" : "warploom: ", text);
    free(text);
    clear_message();
}

void cli_log(void *user, const char *text) {
    (void)user;
    char *shown = cli_escape(text);
    fprintf(stderr, "warploom: %s\n", shown);
    free(shown);
}

static int lost; /* why output did not arrive */

void cli_printed(void) {
    if ((fflush(stdout) || ferror(stdout)) && !lost) lost = errno;
}

static bool is_help(const char *word) {
    return !strcmp(word, "-h") || !strcmp(word, "--help");
}

static wl_status run(int argc, char **argv) {
    const command *c = NULL;
    const char *first = argc > 1 ? argv[1] : "";
    if (!strcmp(first, "--version")) {
        printf("warploom %s\n", WARPLOOM_VERSION);
        return WL_OK;
    }
    if (is_help(first)) {
        print_help(NULL);
        return WL_OK;
    }
    if (argc < 2) return fail(WL_EINVAL, "no command; see 'warploom -h'");
    wl_status status = find_command(first, &c);
    if (status) return status;
    for (int i = 2; i < argc && strcmp(argv[i], "--"); i++) {
        if (!is_help(argv[i])) continue;
        print_help(c);
        return WL_OK;
    }
    cli_args args = {.operand = wl_alloc((size_t)argc * sizeof *args.operand),
                     .spec = wl_alloc((size_t)argc * sizeof *args.spec),
                     .tensor = wl_alloc((size_t)argc * sizeof *args.tensor)};
    status = parse(c, argc - 2, argv + 2, &args);
    if (!status) status = c->run(&args);
    free(args.operand), free(args.spec), free(args.tensor);
    return status;
}

/* The cache is safe whenever this comes: entries are renamed into place. */
static void interrupted(int number) {
    static const char text[] = "warploom: interrupted\n";
    (void)number;
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(WL_EINTR);
    _exit(WL_EINTR);
}

int main(int argc, char **argv) {
    signal(SIGINT, interrupted);
    wl_status status = run(argc, argv);
    if (status) cli_complain(status);
    cli_printed();
    if (lost && !status)
        cli_complain(status = fail(WL_EFAIL, "standard output: %s", strerror(lost)));
    return (int)status;
}
