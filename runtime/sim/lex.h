/* lex.h - PTX text as tokens, with the first fault kept.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_LEX_H
#define WL_SIM_LEX_H

#include "base.h"

typedef enum { LEX_END, LEX_WORD, LEX_NUMBER, LEX_STRING, LEX_MARK } lex_kind;
typedef struct {
    const char *at;
    size_t size;
    lex_kind kind;
    int line;
} lex_token;

/* After a fault every token is LEX_END, so that readers unwind without asking for it. */
typedef struct {
    const char *name; /* of the text, for messages */
    const char *at, *end;
    int line;
    wl_status status;
    bool unknown; /* the fault is a form that is not known: that of an entry, not of the text */
    lex_token token;
} lexer;

void lex_open(lexer *l, const char *name, const char *text, size_t size);
void lex_next(lexer *l);
/* "NAME:LINE: …", EINVAL; the first of a text stays. */
void lex_fail(lexer *l, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
#define lex_unknown(l, ...) ((l)->unknown |= !(l)->status, lex_fail(l, __VA_ARGS__))
bool lex_is(const lexer *l, const char *text);
/* Goes past the token if it is this one; lex_want: it must be. */
bool lex_take(lexer *l, const char *text);
void lex_want(lexer *l, const char *text);
/* A word, which it goes past; what it should be is for the message. */
lex_token lex_word(lexer *l, const char *what);
bool lex_same(const lex_token *token, const char *text);
int lex_shown(const lex_token *token); /* how much of it a message quotes, for %.*s */
/* Goes past everything up to `mark` and past it, over nested braces. */
void lex_skip(lexer *l, const char *mark);

typedef struct {
    enum { LEX_INTEGER, LEX_FLOAT, LEX_DOUBLE } kind;
    uint64_t bits; /* of the integer (two's complement), of the float or of the double */
    bool negative; /* an integer written with a minus */
} lex_value;
/* A literal with its sign. WARP_SZ is one. */
bool lex_is_literal(const lexer *l);
lex_value lex_literal(lexer *l);
/* An integer literal in 0 … most. */
uint32_t lex_count(lexer *l, uint32_t most, const char *what);

#endif
