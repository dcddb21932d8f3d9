/* json.c - a strict JSON parser.
   SPDX-License-Identifier: BSD-3-Clause */
#include "json.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH 64

typedef struct {
    const char *file, *at, *end, *line_start;
    int line;
} reader;

/* FILE:LINE:COLUMN: expected WHAT. */
static wl_status expected(const reader *r, const char *what) {
    return fail(WL_EINVAL, "%s:%d:%d: expected %s", r->file, r->line,
                (int)(r->at - r->line_start) + 1, what);
}

static bool at(const reader *r, char c) {
    return r->at < r->end && *r->at == c;
}

static void blanks(reader *r) {
    for (; r->at < r->end && strchr(" \t\r\n", *r->at) && *r->at; r->at++) {
        if (*r->at != '\n') continue;
        r->line++;
        r->line_start = r->at + 1;
    }
}

static bool take(reader *r, char c) {
    blanks(r);
    if (!at(r, c)) return false;
    r->at++;
    return true;
}

/* Four hexadecimal digits; -1 if they are not there. */
static int hex4(reader *r) {
    int value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        char c = r->at < r->end ? *r->at : 'x';
        if (c >= '0' && c <= '9') value = value * 16 + c - '0';
        else if ((c | 32) >= 'a' && (c | 32) <= 'f') value = value * 16 + (c | 32) - 'a' + 10;
        else return -1;
    }
    return value;
}

static void put_utf8(wl_buf *out, int code) {
    char c[3] = {(char)code};
    if (code < 0x80) {
        wl_buf_add(out, c, 1);
    } else if (code < 0x800) {
        c[0] = (char)(0xc0 | code >> 6);
        c[1] = (char)(0x80 | (code & 63));
        wl_buf_add(out, c, 2);
    } else {
        c[0] = (char)(0xe0 | code >> 12);
        c[1] = (char)(0x80 | (code >> 6 & 63));
        c[2] = (char)(0x80 | (code & 63));
        wl_buf_add(out, c, 3);
    }
}

/* What stands behind a backslash; false for what no escape is. A NUL and surrogates are none here:
   no name of a file or buffer needs them. */
static bool escape(reader *r, wl_buf *out) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *simple = r->at < r->end && *r->at ? strchr(from, *r->at) : NULL;
    if (simple) {
        wl_buf_add(out, &to[simple - from], 1);
        r->at++;
        return true;
    }
    if (!at(r, 'u')) return false;
    r->at++;
    int code = hex4(r);
    if (code <= 0 || (code >= 0xd800 && code < 0xe000)) return false;
    put_utf8(out, code);
    return true;
}

/* A character as it stands; false when it is no UTF-8. */
static bool plain(reader *r, wl_buf *out) {
    size_t size = 0;
    if (wl_utf8_next(r->at, (size_t)(r->end - r->at), &size) < 0) return false;
    wl_buf_add(out, r->at, size);
    r->at += size;
    return true;
}

/* The opening quote is taken. */
static wl_status string(reader *r, char **out) {
    wl_buf text = {0};
    wl_status status = WL_OK;
    wl_buf_add(&text, NULL, 0);
    while (!status && !at(r, '"')) {
        if (r->at >= r->end || (unsigned char)*r->at < 32)
            status = expected(r, "'\"' at the string's end");
        else if (*r->at != '\\') status = plain(r, &text) ? WL_OK : expected(r, "UTF-8");
        else if (r->at++, !escape(r, &text))
            status = expected(r, "one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX");
    }
    r->at++;
    if (status) wl_buf_free(&text);
    *out = text.data;
    return status;
}

static size_t digits(reader *r) {
    const char *start = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return (size_t)(r->at - start);
}

static wl_status number(reader *r, json *out) {
    const char *start = r->at;
    if (at(r, '-')) r->at++;
    bool zero = at(r, '0');
    size_t n = digits(r);
    if (!n || (zero && n > 1)) return expected(r, "a number without leading zeros");
    if (at(r, '.')) {
        r->at++;
        if (!digits(r)) return expected(r, "a digit behind the '.'");
    }
    if (at(r, 'e') || at(r, 'E')) {
        r->at++;
        if (at(r, '+') || at(r, '-')) r->at++;
        if (!digits(r)) return expected(r, "a digit of the exponent");
    }
    out->kind = JSON_NUMBER;
    out->text = wl_format("%.*s", (int)(r->at - start), start);
    return WL_OK;
}

static wl_status value(reader *r, int depth, json *out);

/* A member's key and ':'. */
static wl_status key(reader *r, const json *object, json *member) {
    blanks(r);
    const reader start = *r;
    if (!take(r, '"')) return expected(r, "a key in '\"'");
    wl_status status = string(r, &member->key);
    for (const json *other = object->child; other && !status; other = other->next)
        if (other != member && !strcmp(other->key, member->key))
            return fail(WL_EINVAL, "%s:%d:%d: \"%s\" is given twice", r->file, start.line,
                        (int)(start.at - start.line_start) + 1, member->key);
    if (!status && !take(r, ':')) return expected(r, "':' behind the key");
    return status;
}

/* The members of an array or object; the opening bracket is taken. */
static wl_status members(reader *r, int depth, json *out) {
    bool object = out->kind == JSON_OBJECT;
    char close = object ? '}' : ']';
    json **last = &out->child;
    wl_status status = WL_OK;
    if (take(r, close)) return WL_OK;
    for (;;) {
        *last = wl_alloc(sizeof **last);
        out->n++;
        if (object) status = key(r, out, *last);
        if (!status) status = value(r, depth + 1, *last);
        if (status) return status;
        if (take(r, close)) return WL_OK;
        if (!take(r, ',')) return expected(r, object ? "',' or '}'" : "',' or ']'");
        last = &(*last)->next;
    }
}

static wl_status word(reader *r, json *out) {
    static const struct {
        const char *text;
        json_kind kind;
    } words[] = {{"null", JSON_NULL}, {"true", JSON_TRUE}, {"false", JSON_FALSE}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t size = strlen(words[i].text);
        if ((size_t)(r->end - r->at) < size || memcmp(r->at, words[i].text, size)) continue;
        out->kind = words[i].kind;
        r->at += size;
        return WL_OK;
    }
    return expected(r, "a value");
}

static wl_status value(reader *r, int depth, json *out) {
    blanks(r);
    out->line = r->line;
    out->column = (int)(r->at - r->line_start) + 1;
    if (depth >= DEPTH) return expected(r, "no more than 64 levels");
    if (r->at < r->end && (*r->at == '-' || (*r->at >= '0' && *r->at <= '9')))
        return number(r, out);
    if (take(r, '"')) {
        out->kind = JSON_STRING;
        return string(r, &out->text);
    }
    if (!at(r, '{') && !at(r, '[')) return word(r, out);
    out->kind = *r->at++ == '{' ? JSON_OBJECT : JSON_ARRAY;
    return members(r, depth, out);
}

wl_status json_parse(const char *file, const char *text, size_t size, json **out) {
    reader r = {file, text, text + size, text, 1};
    json *top = wl_alloc(sizeof *top);
    wl_status status = value(&r, 0, top);
    blanks(&r);
    if (!status && r.at < r.end) status = expected(&r, "the end");
    if (status) json_free(top);
    *out = status ? NULL : top;
    return status;
}

void json_free(json *v) {
    while (v) {
        json *next = v->next;
        json_free(v->child);
        free(v->key);
        free(v->text);
        free(v);
        v = next;
    }
}

const json *json_find(const json *object, const char *name) {
    const json *member = object->child;
    while (member && strcmp(member->key, name)) member = member->next;
    return member;
}

const char *json_kind_name(json_kind kind) {
    static const char *const names[] = {"null",     "true",     "false",    "a number",
                                        "a string", "an array", "an object"};
    return names[kind];
}
