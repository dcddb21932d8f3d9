/* cli_kernels.c - the commands list, check, emit, compile and explain.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

#define SOURCE_MAX (1 << 20)

wl_status cli_tools(const cli_args *args, wl_tools **out) {
    wl_status status = wl_tools_open(out, NULL);
    for (int i = 0; i < args->n_specs && !status; i++) wl_tools_spec(*out, args->spec[i]);
    return status;
}

wl_status cli_subject(char **words, int n, const char **name, wl_problem *problem) {
    wl_buf text = {0};
    *name = n == 1 && !strchr(words[0], '=') ? words[0] : NULL;
    if (*name) return WL_OK;
    for (int i = 0; i < n; i++) wl_buf_printf(&text, "%s%s", i ? " " : "", words[i]);
    wl_status status = wl_problem_parse(text.data, problem);
    wl_buf_free(&text);
    return status;
}

/* Calls take(rows, line) for each line of text. */
static void each_line(char *text, cli_rows *rows, void (*take)(cli_rows *rows, char *line)) {
    for (char *line = text, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = '\0';
        take(rows, line);
    }
}

static void one_cell(cli_rows *rows, char *line) {
    cli_cell(rows, "%s", line);
}

wl_status cli_list(const cli_args *args) {
    static const char *const column[] = {"name", NULL};
    wl_tools *tools = NULL;
    wl_problem problem;
    wl_buf text = {0}, names = {0};
    cli_rows rows = {.column = column};
    for (int i = 0; i < args->n_operands; i++) wl_buf_printf(&text, "%s ", args->operand[i]);
    wl_status status = wl_problem_parse(text.data, &problem);
    if (!status) status = cli_tools(args, &tools);
    if (!status) status = wl_tools_ask(tools, "list", text.data, &names);
    if (!status) each_line(names.data, &rows, one_cell);
    if (!status) cli_rows_print(&rows, args->value[OPTION_JSON], false);
    cli_rows_free(&rows);
    wl_tools_close(tools);
    wl_buf_free(&text), wl_buf_free(&names);
    return status;
}

/* "123" and what stands behind its ':' when text begins so; else NULL. */
static char *cut_number(char *text, const char **number) {
    size_t digits = strspn(text, "0123456789");
    if (!digits || text[digits] != ':') return NULL;
    *number = text;
    text[digits] = '\0';
    return text + digits + 1;
}

/* FILE:LINE:COL: MESSAGE, or FILE:LINE: MESSAGE of a template, as four cells; FILE may hold ':'. */
static void error_cells(cli_rows *rows, char *line) {
    const char *file = "", *row = "", *column = "";
    char *colon = strchr(line, ':'), *rest = NULL;
    while (colon && !(rest = cut_number(colon + 1, &row))) colon = strchr(colon + 1, ':');
    if (rest) {
        file = line;
        *colon = '\0';
        line = rest;
        if ((rest = cut_number(line, &column))) line = rest;
    }
    cli_cell(rows, "%s", file);
    cli_cell(rows, "%s", row);
    cli_cell(rows, "%s", column);
    cli_cell(rows, "%s", line + strspn(line, " "));
}

/* One file (NULL: the built-in specs) with tools of its own, so that each gets all its errors. */
static wl_status check_file(const cli_args *args, const char *file) {
    wl_tools *tools = NULL;
    wl_buf text = {0};
    wl_status status = cli_tools(args, &tools);
    if (!status && file) wl_tools_spec(tools, file);
    if (!status) status = wl_tools_ask(tools, "check", "", &text);
    wl_tools_close(tools);
    wl_buf_free(&text);
    return status;
}

wl_status cli_check(const cli_args *args) {
    static const char *const column[] = {"file", "#line", "#column", "message", NULL};
    cli_rows rows = {.column = column};
    bool json = args->value[OPTION_JSON];
    wl_status first = WL_OK;
    for (int i = 0; i < (args->n_operands ? args->n_operands : 1); i++) {
        const char *file = args->n_operands ? args->operand[i] : NULL;
        wl_status status = check_file(args, file);
        char *shown = cli_escape(file ? file : "built-in specs");
        if (!status && !json) printf("%s: ok\n", shown);
        free(shown);
        if (!status) continue;
        char *text = wl_copy(message());
        each_line(text, &rows, error_cells);
        free(text);
        cli_complain(status);
        if (!first) first = status;
    }
    if (json) cli_rows_print(&rows, true, true);
    cli_rows_free(&rows);
    return first;
}

/* The launch record of a name or problem, and so the symbols of its kernels. */
static wl_status choose(wl_tools *tools, char **words, int n, wl_launch *out) {
    wl_problem problem;
    wl_device device;
    const char *name;
    wl_status status = cli_subject(words, n, &name, &problem);
    if (status) return status;
    wl_request request = {.name = name, .problem = name ? NULL : &problem};
    if (!name && cli_here(&device)) request.device = &device;
    return wl_kernel_choose(tools, &request, out, NULL);
}

wl_status cli_emit(const cli_args *args) {
    static const char *const column[] = {"name", "source", NULL};
    cli_rows rows = {.column = column};
    const char *file = args->value[OPTION_OUT], *json = args->value[OPTION_JSON];
    wl_tools *tools = NULL;
    wl_launch *launch = wl_alloc(sizeof *launch);
    wl_buf text = {0};
    wl_status status = cli_tools(args, &tools);
    if (!status) status = choose(tools, args->operand, args->n_operands, launch);
    for (int i = 0; !status && i < launch->n_kernels; i++) {
        size_t before = text.size;
        status = wl_tools_ask(tools, "source", launch->kernel[i].symbol, &text);
        if (!status) cli_cell(&rows, "%s", launch->kernel[i].symbol);
        if (!status) cli_cell(&rows, "%s", text.data + before);
    }
    if (!status && file) status = wl_file_write(file, text.data, text.size);
    else if (!status && !json) fwrite(text.data, 1, text.size, stdout);
    cli_printed();
    if (!status && json) cli_rows_print(&rows, true, true);
    cli_rows_free(&rows);
    wl_tools_close(tools);
    wl_buf_free(&text);
    free(launch);
    return status;
}

static const char *const compile_column[] = {
    "name",          "arch",      "#registers",   "#spill_bytes", "#stack_bytes",
    "#shared_bytes", "#barriers", "#cubin_bytes", "#compile_ms",  NULL};

/* `shared` is what the launch adds to the kernel's own; -1 when it is not known. */
static void compile_cells(cli_rows *rows, const char *name, const wl_compiled *c, int shared) {
    char arch[16] = "";
    if (wl_image_arch(c->image.data, c->image.size, arch)) clear_message();
    cli_cell(rows, "%s", name);
    cli_cell(rows, "%s", arch);
    cli_cell(rows, "%d", c->registers);
    cli_cell(rows, "%d", c->spill_bytes);
    cli_cell(rows, "%d", c->stack_bytes);
    if (shared < 0) cli_cell(rows, "-");
    else cli_cell(rows, "%d", c->shared_bytes + shared);
    cli_cell(rows, "%d", c->barriers);
    cli_cell(rows, "%zu", c->image.size);
    cli_cell(rows, "%.0f", c->compile_ms);
}

/* Each line of the log gate's reasons against a hand-edited kernel. */
static void print_warnings(const wl_compiled *c) {
    char *text = wl_copy(c->warnings.size ? c->warnings.data : ""), *rest = text, *line;
    while ((line = strsep(&rest, "\n")))
        if (*line) cli_log(NULL, line);
    free(text);
}

/* What a launch of the kernel adds to its own shared memory; -1 when the name is unknown. */
static int launch_shared(wl_tools *tools, const char *name) {
    const wl_request request = {.name = name};
    wl_launch *launch = wl_alloc(sizeof *launch);
    int shared = -1;
    if (!wl_kernel_choose(tools, &request, launch, NULL))
        for (int i = 0; i < launch->n_kernels; i++)
            if (!strcmp(launch->kernel[i].symbol, name)) shared = launch->kernel[i].shared;
    clear_message();
    free(launch);
    return shared;
}

/* --device sim: PTX for the simulator in place of cubins. */
static wl_status wants_ptx(const cli_args *args, bool *out) {
    const char *device = args->value[OPTION_DEVICE];
    *out = device && !strcmp(device, "sim");
    if (!device || *out || !strcmp(device, "gpu")) return WL_OK;
    return fail(WL_EINVAL, "device: expected gpu or sim, got '%s'", device);
}

static wl_status compile_source(wl_tools *tools, const cli_args *args, bool ptx, cli_rows *rows) {
    const char *file = args->value[OPTION_SOURCE], *cubin = args->value[OPTION_OUT];
    char entry[128];
    wl_buf text = {0};
    wl_compiled made = {0};
    wl_status status = wl_file_read(file, SOURCE_MAX, &text);
    const wl_request request = {.file = file, .text = text.data, .ptx = ptx};
    if (!status) status = wl_kernel_compile(tools, &request, entry, &made);
    if (!status) compile_cells(rows, entry, &made, launch_shared(tools, entry));
    if (!status) print_warnings(&made);
    if (!status && cubin) status = wl_file_write(cubin, made.image.data, made.image.size);
    wl_compiled_free(&made);
    wl_buf_free(&text);
    return status;
}

static wl_status compile_subject(wl_tools *tools, char **words, int n, const char *cubin, bool ptx,
                                 cli_rows *rows) {
    wl_problem problem;
    wl_device device;
    wl_request request = {.problem = &problem, .fresh = true, .ptx = ptx};
    wl_made *made = wl_alloc(sizeof *made);
    wl_status status = cli_subject(words, n, &request.name, &problem);
    if (request.name) request.problem = NULL;
    else if (!status && cli_here(&device)) request.device = &device;
    if (!status) status = wl_kernel_get(tools, &request, made);
    const char *trouble = wl_cache_reason(wl_tools_cache(tools));
    char *told = wl_format("cache: %s", trouble);
    if (!status && *trouble) cli_log(NULL, told);
    free(told);
    for (int i = 0; !status && i < made->launch.n_kernels; i++)
        compile_cells(rows, made->launch.kernel[i].symbol, &made->compiled[i],
                      made->launch.kernel[i].shared);
    if (!status && cubin)
        status = wl_file_write(cubin, made->compiled[0].image.data, made->compiled[0].image.size);
    wl_made_free(made);
    free(made);
    return status;
}

int cli_subject_size(char **words, int n) {
    int size = 1;
    if (!strchr(words[0], '=') || strpbrk(words[0], " \t\n")) return 1;
    while (size < n && strchr(words[size], '=') && !strpbrk(words[size], " \t\n")) size++;
    return size;
}

/* Each subject is tried; the first failure's status counts. */
static wl_status compile_subjects(wl_tools *tools, const cli_args *args, bool ptx, cli_rows *rows) {
    const char *cubin = args->value[OPTION_OUT];
    wl_status first = WL_OK;
    for (int i = 0, n; i < args->n_operands; i += n) {
        n = cli_subject_size(args->operand + i, args->n_operands - i);
        if (cubin && n < args->n_operands)
            return fail(WL_EINVAL, "compile: -o takes one kernel, but several are asked for");
        wl_status status = compile_subject(tools, args->operand + i, n, cubin, ptx, rows);
        if (!status) continue;
        cli_complain(status);
        if (!first) first = status;
    }
    return first;
}

wl_status cli_compile(const cli_args *args) {
    cli_rows rows = {.column = compile_column};
    wl_tools *tools = NULL;
    bool source = args->value[OPTION_SOURCE], ptx;
    if (source == (args->n_operands > 0))
        return fail(WL_EINVAL, "compile: give either NAME|PROBLEM or --source FILE.cu");
    wl_status status = wants_ptx(args, &ptx);
    if (!status) status = cli_tools(args, &tools);
    if (!status)
        status = source ? compile_source(tools, args, ptx, &rows)
                        : compile_subjects(tools, args, ptx, &rows);
    cli_rows_print(&rows, args->value[OPTION_JSON], true);
    cli_rows_free(&rows);
    wl_tools_close(tools);
    return status;
}

/* A line at the margin begins a section (the first one is the name itself); below it each line is
   "  what  meaning". */
static void explain_cells(cli_rows *rows, char *line) {
    static const char *section; /* of the line before */
    char *what = line + strspn(line, " "), *gap = strstr(what, "  ");
    if (what == line) section = rows->n_cells ? line : "name";
    if (what == line && rows->n_cells) return;
    if (gap) *gap++ = '\0';
    cli_cell(rows, "%s", section);
    cli_cell(rows, "%s", gap ? what : "");
    cli_cell(rows, "%s", gap ? gap + strspn(gap, " ") : what);
}

/* The tiles that the kernel loads, which the problem's sizes and the mask decide. */
static wl_status explain_tiles(wl_tools *tools, const wl_problem *problem, wl_buf *out) {
    wl_buf words = {0};
    wl_problem_print(problem, &words);
    char *asked = wl_format("%.*s %s", (int)strcspn(out->data, "\n"), out->data, words.data);
    wl_status status = wl_tools_ask(tools, "counts", asked, out);
    wl_buf_free(&words);
    free(asked);
    return status;
}

/* Which layer has the problem's kernels, the first that does serves it: a section before the last,
   which stays the one about the choice. */
static wl_status explain_layers(wl_tools *tools, const wl_request *request, wl_buf *out) {
    const wl_store *store = wl_tools_store(tools);
    wl_status status = wl_kernel_layers(tools, request);
    char *last = strstr(out->data, "chosen by\n"), *chosen = wl_copy(last ? last : "");
    if (last) out->size = (size_t)(last - out->data);
    if (!status) status = explain_tiles(tools, request->problem, out);
    wl_buf_text(out, "layers\n");
    for (int i = 0; i < wl_store_count(store) && !status; i++)
        wl_buf_printf(out, "  %s  %s\n", wl_store_layer(store, i),
                      wl_store_said(store, WL_CACHE_CHOICE, i));
    wl_buf_printf(out, "  JIT  %s\n%s", wl_tools_jit(tools) ? "on" : "off", chosen);
    free(chosen);
    return status;
}

/* A problem's record may have been made when another choice was in force, and the generator knows
   nothing of tuned ones: it is asked about the problem, or of a tuned one about the kernel. */
static wl_status explain_problem(wl_tools *tools, const wl_problem *problem, wl_buf *out) {
    static const char by_name[] = "chosen by\n  name given\n";
    wl_device device;
    wl_launch *launch = wl_alloc(sizeof *launch);
    wl_buf subject = {0};
    wl_request request = {.problem = problem};
    wl_status status = WL_OK;
    if (cli_here(&device)) request.device = &device;
    if (request.device) status = wl_kernel_choose(tools, &request, launch, NULL);
    bool tuned = !status && !strncmp(launch->by, "tuned here", 10);
    wl_problem_print(problem, &subject);
    if (!status)
        status = wl_tools_ask(tools, "explain", tuned ? launch->choice : subject.data, out);
    if (!status && tuned) {
        out->size -= strlen(by_name);
        wl_buf_printf(out, "chosen by\n  %s\n", launch->by);
    }
    if (!status) status = explain_layers(tools, &request, out);
    wl_buf_free(&subject);
    free(launch);
    return status;
}

wl_status cli_explain(const cli_args *args) {
    static const char *const column[] = {"section", "what", "meaning", NULL};
    cli_rows rows = {.column = column};
    wl_tools *tools = NULL;
    const char *name;
    wl_problem problem;
    wl_buf text = {0};
    wl_status status = cli_subject(args->operand, args->n_operands, &name, &problem);
    if (!status) status = cli_tools(args, &tools);
    if (!status)
        status = name ? wl_tools_ask(tools, "explain", name, &text)
                      : explain_problem(tools, &problem, &text);
    char *shown = status ? NULL : cli_escape(text.data);
    if (!status && !args->value[OPTION_JSON]) fputs(shown, stdout);
    cli_printed();
    free(shown);
    if (!status && args->value[OPTION_JSON]) {
        each_line(text.data, &rows, explain_cells);
        cli_rows_print(&rows, true, true);
        cli_rows_free(&rows);
    }
    wl_tools_close(tools);
    wl_buf_free(&text);
    return status;
}
