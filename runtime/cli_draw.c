/* cli_draw.c - the command draw: a mask as a picture.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static bool has_word(char **words, int n, const char *key) {
    size_t size = strlen(key);
    for (int i = 0; i < n; i++)
        if (!strncmp(words[i], key, size) && words[i][size] == '=') return true;
    return false;
}

/* MASK and any words of a problem; those that it must have and a picture does without are added. */
static wl_status read_mask(const cli_args *args, wl_problem *out) {
    static const char *const more[][2] = {{"head_dim", "64"}, {"dtype", "bf16"}, {"layout", "bshd"},
                                          {"seq_q", "48"},    {"heads", "4"}};
    wl_buf text = {0};
    wl_buf_printf(&text, "mask=%s", args->operand[0]);
    for (int i = 1; i < args->n_operands; i++) wl_buf_printf(&text, " %s", args->operand[i]);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (!has_word(args->operand + 1, args->n_operands - 1, more[i][0]))
            wl_buf_printf(&text, " %s=%s", more[i][0], more[i][1]);
    wl_status status = wl_problem_parse(text.data, out);
    wl_buf_free(&text);
    return status;
}

/* A problem's picture has the tiles of the kernel that serves it. */
static wl_status choose(wl_tools *tools, const wl_problem *problem, char name[128]) {
    wl_device device;
    wl_request request = {.problem = problem};
    wl_launch *launch = wl_alloc(sizeof *launch);
    if (cli_here(&device)) request.device = &device;
    wl_status status = wl_kernel_choose(tools, &request, launch, NULL);
    if (!status) strcpy(name, launch->choice);
    free(launch);
    return status;
}

wl_status cli_draw(const cli_args *args) {
    const char *file = args->value[OPTION_OUT];
    char name[128] = "-";
    bool is_problem = strchr(args->operand[0], '=') != NULL;
    wl_problem problem;
    wl_tools *tools = NULL;
    wl_buf words = {0}, svg = {0};
    const char *none;
    wl_status status = is_problem
                           ? cli_subject(args->operand, args->n_operands, &none, &problem)
                           : read_mask(args, &problem);
    if (!status) status = cli_tools(args, &tools);
    if (!status && is_problem) status = choose(tools, &problem, name);
    wl_buf_printf(&words, "%s ", name);
    if (!status) wl_problem_print(&problem, &words);
    if (!status) status = wl_tools_ask(tools, "draw", words.data, &svg);
    if (!status && file) status = wl_file_write(file, svg.data, svg.size);
    else if (!status) fwrite(svg.data, 1, svg.size, stdout);
    cli_printed();
    wl_tools_close(tools);
    wl_buf_free(&words), wl_buf_free(&svg);
    return status;
}
