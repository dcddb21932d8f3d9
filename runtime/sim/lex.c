/* lex.c - PTX text as tokens: words, literals, marks, comments.
   SPDX-License-Identifier: BSD-3-Clause */
#include "lex.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lex_fail(lexer *l, int line, const char *format, ...) {
    if (l->status) return;
    l->at = l->end;
    l->token = (lex_token){l->end, 0, LEX_END, line};
    va_list args;
    va_start(args, format);
    char text[512];
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    l->status = fail(WL_EINVAL, "%s:%d: %s", l->name, line, text);
}

static bool letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$';
}

static bool digit(char c) {
    return c >= '0' && c <= '9';
}

static const char *skip_comment(lexer *l, const char *at) {
    if (at[1] == '/') {
        while (at < l->end && *at != '\n') at++;
        return at;
    }
    int line = l->line;
    for (at += 2; at + 1 < l->end && (at[0] != '*' || at[1] != '/'); at++)
        if (*at == '\n') l->line++;
    if (at + 1 >= l->end) {
        lex_fail(l, line, "comment without end");
        return l->end;
    }
    return at + 2;
}

static void skip_blanks(lexer *l) {
    const char *at = l->at;
    for (; at < l->end; at++) {
        if (*at == '\n') l->line++;
        else if (*at == '/' && at + 1 < l->end && (at[1] == '/' || at[1] == '*'))
            at = skip_comment(l, at) - 1;
        else if (*at != ' ' && *at != '\t' && *at != '\r') break;
    }
    l->at = at;
}

/* Words hold dots and `::`, so that an opcode with its modifiers is one. */
static const char *word_end(const lexer *l, const char *at) {
    for (at++; at < l->end; at++) {
        if (letter(*at) || digit(*at) || *at == '.') continue;
        if (*at != ':' || at + 2 >= l->end || at[1] != ':' || (!letter(at[2]) && !digit(at[2])))
            break;
        at++;
    }
    return at;
}

static const char *number_end(const lexer *l, const char *at) {
    bool hex = *at == '0' && at + 1 < l->end && strchr("xXfFdD", at[1]);
    for (; at < l->end; at++) {
        bool exponent = !hex && (*at == '+' || *at == '-') && (at[-1] == 'e' || at[-1] == 'E');
        if (!letter(*at) && !digit(*at) && *at != '.' && !exponent) break;
    }
    return at;
}

static const char *string_end(lexer *l, const char *at) {
    const char *start = at++;
    while (at < l->end && *at != '"' && *at != '\n') at++;
    if (at < l->end && *at == '"') return at + 1;
    lex_fail(l, l->line, "string without end: %.*s", (int)(at - start > 40 ? 40 : at - start),
             start);
    return l->end;
}

void lex_next(lexer *l) {
    skip_blanks(l);
    const char *at = l->at;
    l->token = (lex_token){at, 0, LEX_END, l->line};
    if (at >= l->end || l->status) return;
    if (letter(*at) || *at == '%' || *at == '.') {
        l->token.kind = LEX_WORD;
        l->at = word_end(l, at);
    } else if (digit(*at)) {
        l->token.kind = LEX_NUMBER;
        l->at = number_end(l, at);
    } else if (*at == '"') {
        l->token.kind = LEX_STRING;
        l->at = string_end(l, at);
    } else if (strchr("{}[](),;:@!|<>=+-*", *at)) {
        l->token.kind = LEX_MARK;
        l->at = at + 1;
    } else {
        lex_fail(l, l->line, "character 0x%02x is not PTX", (unsigned char)*at);
    }
    if (l->status) l->token.kind = LEX_END;
    else l->token.size = (size_t)(l->at - at);
}

void lex_open(lexer *l, const char *name, const char *text, size_t size) {
    const char *nul = memchr(text, 0, size);
    *l = (lexer){.name = name, .at = text, .end = nul ? nul : text + size, .line = 1};
    lex_next(l);
}

int lex_shown(const lex_token *token) {
    return (int)(token->size > 60 ? 60 : token->size);
}

bool lex_same(const lex_token *token, const char *text) {
    return token->size == strlen(text) && !memcmp(token->at, text, token->size);
}

bool lex_is(const lexer *l, const char *text) {
    return lex_same(&l->token, text) && l->token.kind != LEX_END;
}

bool lex_take(lexer *l, const char *text) {
    if (!lex_is(l, text)) return false;
    lex_next(l);
    return true;
}

/* Leaves an empty token. */
static void fail_expected(lexer *l, const char *quote, const char *what) {
    if (l->token.kind == LEX_END)
        lex_fail(l, l->token.line, "%s%s%s expected, but the text ends", quote, what, quote);
    else
        lex_fail(l, l->token.line, "%s%s%s expected, not '%.*s'", quote, what, quote,
                 lex_shown(&l->token), l->token.at);
}

void lex_want(lexer *l, const char *text) {
    if (!lex_take(l, text)) fail_expected(l, "'", text);
}

lex_token lex_word(lexer *l, const char *what) {
    lex_token word = l->token;
    if (word.kind == LEX_WORD) {
        lex_next(l);
        return word;
    }
    fail_expected(l, "", what);
    return l->token;
}

void lex_skip(lexer *l, const char *mark) {
    for (int depth = 0; l->token.kind != LEX_END; lex_next(l)) {
        if (depth == 0 && lex_take(l, mark)) return;
        depth += lex_is(l, "{") - lex_is(l, "}");
    }
    fail_expected(l, "'", mark);
}

bool lex_is_literal(const lexer *l) {
    return l->token.kind == LEX_NUMBER || lex_is(l, "-") || lex_is(l, "WARP_SZ");
}

static uint64_t bits_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The digits of a literal, NUL-terminated; false when they don't fit, which no literal needs. */
static bool copy_digits(const lex_token *token, char *out, size_t room) {
    if (token->size >= room) return false;
    memcpy(out, token->at, token->size);
    out[token->size] = 0;
    return true;
}

static bool parse_bits(const char *digits, size_t count, uint64_t *out) {
    char *end;
    *out = strtoull(digits, &end, 16);
    return strlen(digits) == count && !*end;
}

static bool parse_integer(const char *text, uint64_t *out) {
    bool binary = text[0] == '0' && (text[1] == 'b' || text[1] == 'B');
    char *end;
    errno = 0;
    *out = strtoull(binary ? text + 2 : text, &end, binary ? 2 : 0);
    if (*end == 'U') end++;
    return !*end && !errno && (!binary || text[2]);
}

static bool parse_decimal(const char *text, uint64_t *out) {
    if (!strpbrk(text, ".eE") || !strncmp(text, "0x", 2)) return false;
    char *end;
    *out = bits_of(strtod(text, &end));
    return !*end;
}

static bool parse_literal(const lex_token *token, lex_value *v) {
    char text[80];
    if (!copy_digits(token, text, sizeof text)) return false;
    if (text[0] == '0' && (text[1] == 'f' || text[1] == 'F')) {
        v->kind = LEX_FLOAT;
        return parse_bits(text + 2, 8, &v->bits);
    }
    if (text[0] == '0' && (text[1] == 'd' || text[1] == 'D')) {
        v->kind = LEX_DOUBLE;
        return parse_bits(text + 2, 16, &v->bits);
    }
    v->kind = LEX_INTEGER;
    if (parse_integer(text, &v->bits)) return true;
    v->kind = LEX_DOUBLE;
    return parse_decimal(text, &v->bits);
}

lex_value lex_literal(lexer *l) {
    lex_value v = {LEX_INTEGER, 0, lex_take(l, "-")};
    lex_token token = l->token;
    if (lex_take(l, "WARP_SZ")) v.bits = 32;
    else if (token.kind != LEX_NUMBER) fail_expected(l, "", "a number");
    else if (!parse_literal(&token, &v))
        lex_fail(l, token.line, "'%.*s' is no number of 64 bits", lex_shown(&token), token.at);
    else lex_next(l);
    if (!v.negative) return v;
    if (v.kind == LEX_INTEGER) v.bits = 0 - v.bits;
    else v.bits ^= 1ull << (v.kind == LEX_FLOAT ? 31 : 63);
    return v;
}

uint32_t lex_count(lexer *l, uint32_t most, const char *what) {
    int line = l->token.line;
    lex_value v = lex_literal(l);
    if (v.kind == LEX_INTEGER && !v.negative && v.bits <= most) return (uint32_t)v.bits;
    lex_fail(l, line, "%s must be an integer in 0 … %u", what, most);
    return 0;
}
