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

/* Bytes of the UTF-8 character at p; 0 if there is none. */
static int character(const unsigned char *p, unsigned *code) {
    static const unsigned least[] = {0, 0x80, 0x800, 0x10000};
    int more = *p < 0x80 ? 0 : *p >> 5 == 6 ? 1 : *p >> 4 == 14 ? 2 : *p >> 3 == 30 ? 3 : -1;
    if (more < 0) return 0;
    *code = more ? *p & 0x3fu >> more : *p;
    for (int i = 1; i <= more; i++) {
        if ((p[i] & 0xc0) != 0x80) return 0;
        *code = *code << 6 | (p[i] & 0x3fu);
    }
    bool good = *code >= least[more] && *code < 0x110000 && *code >> 11 != 0xd800 >> 11;
    return good ? more + 1 : 0;
}

static bool is_control(unsigned code) {
    return code < 32 || (code >= 127 && code < 160);
}

static char *escape(const char *text, bool lines) {
    wl_buf out = {0};
    unsigned code = 0;
    wl_buf_add(&out, "", 0);
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = character(p, &code);
        bool plain = n && (!is_control(code) || (lines && code == '\n'));
        if (plain) wl_buf_add(&out, p, (size_t)n);
        for (int i = 0; !plain && i < (n ? n : 1); i++) wl_buf_printf(&out, "\\x%02x", p[i]);
        p += n ? n : 1;
    }
    return out.data;
}

char *cli_escape(const char *text) {
    return escape(text, true);
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
    char **cell = wl_alloc(rows->n_cells * sizeof *cell);
    for (size_t i = 0; i < rows->n_cells; i++) cell[i] = escape(rows->cell[i], false);
    for (size_t c = 0; c < n && titles; c++) room[c] = width(rows->column[c] + is_number(rows, c));
    for (size_t i = 0; i < rows->n_cells; i++)
        if (room[i % n] < width(cell[i])) room[i % n] = width(cell[i]);
    for (size_t c = 0; c < n && titles; c++)
        print_cell(rows->column[c] + is_number(rows, c), room[c], is_number(rows, c), c + 1 == n);
    for (size_t i = 0; i < rows->n_cells; i++)
        print_cell(cell[i], room[i % n], is_number(rows, i % n), i % n + 1 == n);
    for (size_t i = 0; i < rows->n_cells; i++) free(cell[i]);
    free(cell);
    free(room);
}

static void print_string(const char *text) {
    unsigned code = 0;
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p;) {
        int n = character(p, &code);
        if (!n) fputs("\\ufffd", stdout);
        else if (code == '"' || code == '\\') printf("\\%c", *p);
        else if (code == '\n') fputs("\\n", stdout);
        else if (is_control(code)) printf("\\u%04x", code);
        else fwrite(p, 1, (size_t)n, stdout);
        p += n ? n : 1;
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
    cli_printed();
}

void cli_rows_free(cli_rows *rows) {
    for (size_t i = 0; i < rows->n_cells; i++) free(rows->cell[i]);
    free(rows->cell);
    *rows = (cli_rows){.column = rows->column};
}
