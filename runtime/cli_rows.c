/* cli_rows.c - rows of output, as aligned text or as a JSON array.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

void cli_cell(cli_rows *rows, const char *format, ...) {
    char *text;
    va_list args;
    va_start(args, format);
    if (vasprintf(&text, format, args) < 0) abort();
    va_end(args);
    rows->cell = wl_grow(rows->cell, (rows->n_cells + 1) * sizeof *rows->cell);
    rows->cell[rows->n_cells++] = text;
}

static size_t columns(const cli_rows *rows) {
    size_t n = 0;
    while (rows->column[n]) n++;
    return n;
}

static bool is_number(const cli_rows *rows, size_t c) {
    return rows->column[c][0] == '#';
}

/* Length in characters: UTF-8 continuation bytes take no place. */
static int width(const char *text) {
    int n = 0;
    for (; *text; text++) n += (*text & 0xc0) != 0x80;
    return n;
}

static void pad(int n) {
    printf("%*s", n > 0 ? n : 0, "");
}

/* Numbers to the right, words to the left, nothing behind the last word. */
static void print_cell(const char *text, int room, bool number, bool last) {
    if (number) pad(room - width(text));
    fputs(text, stdout);
    if (!number && !last) pad(room - width(text));
    fputs(last ? "\n" : "  ", stdout);
}

static void print_text(const cli_rows *rows, bool titles) {
    size_t n = columns(rows);
    int *room = wl_alloc(n * sizeof *room);
    for (size_t c = 0; c < n && titles; c++) room[c] = width(rows->column[c] + is_number(rows, c));
    for (size_t i = 0; i < rows->n_cells; i++)
        if (room[i % n] < width(rows->cell[i])) room[i % n] = width(rows->cell[i]);
    for (size_t c = 0; c < n && titles; c++)
        print_cell(rows->column[c] + is_number(rows, c), room[c], is_number(rows, c), c + 1 == n);
    for (size_t i = 0; i < rows->n_cells; i++)
        print_cell(rows->cell[i], room[i % n], is_number(rows, i % n), i % n + 1 == n);
    free(room);
}

static void print_string(const char *text) {
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p == '"' || *p == '\\') printf("\\%c", *p);
        else if (*p == '\n') fputs("\\n", stdout);
        else if (*p < 32 || *p == 127) printf("\\u%04x", *p);
        else putchar(*p);
    }
    putchar('"');
}

/* JSON has no infinity and no NaN: null, as for a cell that does not apply. */
static void print_number(const char *text) {
    bool finite = *text && text[strspn(text, "0123456789.e+-")] == '\0' && strcmp(text, "-");
    fputs(finite ? text : "null", stdout);
}

static void print_json(const cli_rows *rows) {
    size_t n = columns(rows);
    fputs("[", stdout);
    for (size_t i = 0; i < rows->n_cells; i++) {
        size_t c = i % n;
        fputs(c ? ", " : i ? ",\n {" : "\n {", stdout);
        print_string(rows->column[c] + is_number(rows, c));
        fputs(": ", stdout);
        if (is_number(rows, c)) print_number(rows->cell[i]);
        else print_string(rows->cell[i]);
        if (c + 1 == n) fputs("}", stdout);
    }
    fputs(rows->n_cells ? "\n]\n" : "]\n", stdout);
}

void cli_rows_print(const cli_rows *rows, bool json, bool titles) {
    if (json) print_json(rows);
    else if (rows->n_cells) print_text(rows, titles);
}

void cli_rows_free(cli_rows *rows) {
    for (size_t i = 0; i < rows->n_cells; i++) free(rows->cell[i]);
    free(rows->cell);
    *rows = (cli_rows){.column = rows->column};
}
