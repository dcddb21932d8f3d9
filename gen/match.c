/* match.c - Lua's patterns, matched by steps that are paid for: none of them hangs.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* memmem */
#include <ctype.h>
#include <lauxlib.h>
#include <stdbool.h>
#include <string.h>

#include "box.h"

#define CAPTURES 32
#define DEPTH 150 /* of matches within matches */
#define SHARE 1024 /* steps that are paid at a time */

typedef struct {
    const char *start;
    ptrdiff_t size; /* or: */
} capture;
#define IS_OPEN (-1)  /* its ')' is still to come */
#define IS_PLACE (-2) /* '()': the number of its byte */

typedef struct {
    lua_State *L;
    const char *text, *end, *pattern_end;
    int captures, depth;
    size_t steps;
    capture capture[CAPTURES];
} matcher;

static void step(matcher *m, size_t n) {
    m->steps += n;
    if (m->steps < SHARE) return;
    wl_box_pay(m->L, m->steps);
    m->steps = 0;
}

/* The rest; gives the number of results. */
static int settle(matcher *m, int results) {
    wl_box_pay(m->L, m->steps);
    return results;
}

/* ---- one character ---- */

static bool in_class(int c, int class) {
    static const struct {
        char letter;
        int (*holds)(int);
    } classes[] = {{'a', isalpha}, {'c', iscntrl}, {'d', isdigit}, {'g', isgraph}, {'l', islower},
                   {'p', ispunct}, {'s', isspace}, {'u', isupper}, {'w', isalnum}, {'x', isxdigit}};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (classes[i].letter == tolower(class))
            return (classes[i].holds(c) != 0) == (islower(class) != 0);
    return class == c;
}

/* Behind the set that begins at p, with its '['. */
static const char *set_end(const matcher *m, const char *p) {
    const char *first = p + 1 + (p + 1 < m->pattern_end && p[1] == '^');
    for (p = first;; p++) {
        if (p < m->pattern_end && *p == ']' && p > first) return p + 1;
        p += p < m->pattern_end && *p == '%';
        if (p >= m->pattern_end) luaL_error(m->L, "malformed pattern (missing ']')");
    }
}

/* Behind the item for one character that begins at p. */
static const char *item_end(const matcher *m, const char *p) {
    if (*p == '[') return set_end(m, p);
    if (*p != '%') return p + 1;
    if (p + 1 == m->pattern_end) luaL_error(m->L, "malformed pattern (ends with '%%')");
    return p + 2;
}

/* Is c in the set from p, with its '[', to the ']' at end? */
static bool in_set(int c, const char *p, const char *end) {
    bool outside = p[1] == '^';
    for (p += 1 + outside; p < end; p++) {
        if (*p == '%' && p + 1 < end) {
            if (in_class(c, (unsigned char)*++p)) return !outside;
        } else if (p + 2 < end && p[1] == '-') {
            if ((unsigned char)p[0] <= c && c <= (unsigned char)p[2]) return !outside;
            p += 2;
        } else if ((unsigned char)*p == c) {
            return !outside;
        }
    }
    return outside;
}

static bool is_one(matcher *m, const char *at, const char *p, const char *end) {
    step(m, 1);
    if (at >= m->end) return false;
    int c = (unsigned char)*at;
    if (*p == '.') return true;
    if (*p == '%') return in_class(c, (unsigned char)p[1]);
    if (*p == '[') return step(m, (size_t)(end - p) / 4), in_set(c, p, end - 1);
    return (unsigned char)*p == c;
}

/* ---- all of a pattern: where the text that it matches ends, or NULL ---- */

static const char *match(matcher *m, const char *at, const char *p);

/* As many as there are, then fewer, until the rest fits. */
static const char *longest(matcher *m, const char *at, const char *p, const char *end) {
    ptrdiff_t n = 0;
    while (is_one(m, at + n, p, end)) n++;
    for (; n >= 0; n--) {
        const char *found = match(m, at + n, end + 1);
        if (found) return found;
    }
    return NULL;
}

static const char *shortest(matcher *m, const char *at, const char *p, const char *end) {
    for (;; at++) {
        const char *found = match(m, at, end + 1);
        if (found || !is_one(m, at, p, end)) return found;
    }
}

static const char *open_capture(matcher *m, const char *at, const char *p) {
    bool place = p + 1 < m->pattern_end && p[1] == ')';
    if (m->captures == CAPTURES) luaL_error(m->L, "too many captures");
    m->capture[m->captures++] = (capture){at, place ? IS_PLACE : IS_OPEN};
    const char *found = match(m, at, p + 1 + place);
    if (!found) m->captures--;
    return found;
}

static const char *close_capture(matcher *m, const char *at, const char *p) {
    int i = m->captures - 1;
    while (i >= 0 && m->capture[i].size != IS_OPEN) i--;
    if (i < 0) luaL_error(m->L, "invalid pattern capture");
    m->capture[i].size = at - m->capture[i].start;
    const char *found = match(m, at, p + 1);
    if (!found) m->capture[i].size = IS_OPEN;
    return found;
}

/* %b(): from the first to the second that balances it. */
static const char *balanced(matcher *m, const char *at, const char *p) {
    if (p + 3 >= m->pattern_end)
        luaL_error(m->L, "malformed pattern (missing arguments to '%%b')");
    if (at >= m->end || *at != p[2]) return NULL;
    for (int open = 1; ++at < m->end;) {
        step(m, 1);
        if (*at == p[3]) open--;
        else if (*at == p[2]) open++;
        if (!open) return at + 1;
    }
    return NULL;
}

/* %f[set]: between a character outside and one inside; the text has NULs around it. */
static bool frontier(matcher *m, const char *at, const char *p, const char **end) {
    if (p + 2 >= m->pattern_end || p[2] != '[')
        luaL_error(m->L, "missing '[' after '%%f' in pattern");
    *end = set_end(m, p + 2);
    int before = at == m->text ? 0 : (unsigned char)at[-1];
    int after = at == m->end ? 0 : (unsigned char)*at;
    return !in_set(before, p + 2, *end - 1) && in_set(after, p + 2, *end - 1);
}

/* %1: what the capture holds, again. */
static const char *again(matcher *m, const char *at, int digit) {
    int i = digit - '1';
    if (i < 0 || i >= m->captures || m->capture[i].size == IS_OPEN)
        luaL_error(m->L, "invalid capture index %%%d", i + 1);
    const capture *c = &m->capture[i];
    if (c->size < 0) return NULL; /* a place is no text */
    step(m, (size_t)c->size / WL_BOX_BYTES);
    bool same = m->end - at >= c->size && !memcmp(at, c->start, (size_t)c->size);
    return same ? at + c->size : NULL;
}

/* '%' and what is no class: true if it was that, with *at behind what matched, or NULL. */
static bool special(matcher *m, const char **at, const char **p) {
    int kind = *p + 1 < m->pattern_end ? (unsigned char)(*p)[1] : 0;
    if (kind == 'b') {
        *at = balanced(m, *at, *p);
        *p += 4;
    } else if (kind == 'f') {
        const char *end;
        if (!frontier(m, *at, *p, &end)) *at = NULL;
        *p = end;
    } else if (isdigit(kind)) {
        *at = again(m, *at, kind);
        *p += 2;
    } else {
        return false;
    }
    return true;
}

static const char *match_items(matcher *m, const char *at, const char *p) {
    while (p < m->pattern_end) {
        step(m, 1);
        if (*p == '(') return open_capture(m, at, p);
        if (*p == ')') return close_capture(m, at, p);
        if (*p == '$' && p + 1 == m->pattern_end) return at == m->end ? at : NULL;
        if (*p == '%' && special(m, &at, &p)) {
            if (!at) return NULL;
            continue;
        }
        const char *end = item_end(m, p);
        int how = end < m->pattern_end ? *end : 0;
        if (how == '*') return longest(m, at, p, end);
        if (how == '-') return shortest(m, at, p, end);
        bool one = is_one(m, at, p, end);
        if (how == '+') return one ? longest(m, at + 1, p, end) : NULL;
        if (how == '?') {
            const char *found = one ? match(m, at + 1, end + 1) : NULL;
            if (found) return found;
            p = end + 1;
        } else if (one) {
            at++, p = end;
        } else {
            return NULL;
        }
    }
    return at;
}

static const char *match(matcher *m, const char *at, const char *p) {
    if (++m->depth > DEPTH) luaL_error(m->L, "pattern too complex");
    const char *found = match_items(m, at, p);
    m->depth--;
    return found;
}

/* A match that begins at `at`. */
static const char *begin(matcher *m, const char *at, const char *pattern) {
    m->captures = m->depth = 0;
    step(m, 1);
    return match(m, at, pattern);
}

/* ---- results ---- */

/* The i-th capture; the whole match is the first of a pattern that has none. */
static void push_capture(matcher *m, int i, const char *start, const char *end) {
    if (i >= m->captures) {
        if (i) luaL_error(m->L, "invalid capture index %%%d", i + 1);
        lua_pushlstring(m->L, start, (size_t)(end - start));
        return;
    }
    const capture *c = &m->capture[i];
    if (c->size == IS_OPEN) luaL_error(m->L, "unfinished capture");
    if (c->size == IS_PLACE) lua_pushinteger(m->L, c->start - m->text + 1);
    else lua_pushlstring(m->L, c->start, (size_t)c->size);
}

/* All captures; with `whole`, the match when there are none. */
static int push_captures(matcher *m, const char *start, const char *end, bool whole) {
    int n = m->captures ? m->captures : whole;
    luaL_checkstack(m->L, n, "too many captures");
    for (int i = 0; i < n; i++) push_capture(m, i, start, end);
    return n;
}

/* The text and the pattern, arguments 1 and 2. */
static matcher prepare(lua_State *L, const char **pattern) {
    size_t size, pattern_size;
    matcher m = {.L = L, .text = luaL_checklstring(L, 1, &size)};
    *pattern = luaL_checklstring(L, 2, &pattern_size);
    m.end = m.text + size;
    m.pattern_end = *pattern + pattern_size;
    return m;
}

/* Where to begin: argument n, from the end when negative; behind the end: NULL. */
static const char *start_at(lua_State *L, int n, const matcher *m) {
    lua_Integer from = luaL_optinteger(L, n, 1), size = m->end - m->text;
    if (from > size + 1) return NULL;
    if (from < 0) from = from < -size ? 1 : size + from + 1;
    return m->text + (from ? from - 1 : 0);
}

static int find_plain(matcher *m, const char *at, const char *words) {
    size_t size = (size_t)(m->pattern_end - words);
    wl_box_pay(m->L, (size_t)(m->end - at) / 8);
    const char *found = memmem(at, (size_t)(m->end - at), words, size);
    if (!found) return lua_pushnil(m->L), 1;
    lua_pushinteger(m->L, found - m->text + 1);
    lua_pushinteger(m->L, found - m->text + (lua_Integer)size);
    return 2;
}

static int search(lua_State *L, bool find) {
    const char *pattern;
    matcher m = prepare(L, &pattern);
    const char *at = start_at(L, 3, &m);
    if (!at) return lua_pushnil(L), 1;
    if (find && (lua_toboolean(L, 4) ||
                 strcspn(pattern, "^$*+?.([%-") == (size_t)(m.pattern_end - pattern)))
        return find_plain(&m, at, pattern);
    bool anchored = pattern < m.pattern_end && *pattern == '^';
    do {
        const char *end = begin(&m, at, pattern + anchored);
        if (end && !find) return settle(&m, push_captures(&m, at, end, true));
        if (end) {
            lua_pushinteger(L, at - m.text + 1);
            lua_pushinteger(L, end - m.text);
            return settle(&m, 2 + push_captures(&m, at, end, false));
        }
    } while (at++ < m.end && !anchored);
    lua_pushnil(L);
    return settle(&m, 1);
}

int wl_match_find(lua_State *L) {
    return search(L, true);
}

int wl_match_match(lua_State *L) {
    return search(L, false);
}

/* ---- gmatch ---- */

/* The iterator; upvalues: text, pattern, where to go on, where the last match ended. */
static int next_match(lua_State *L) {
    const char *pattern;
    lua_settop(L, 0);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_pushvalue(L, lua_upvalueindex(2));
    matcher m = prepare(L, &pattern);
    lua_Integer from = lua_tointeger(L, lua_upvalueindex(3));
    lua_Integer last = lua_tointeger(L, lua_upvalueindex(4));
    for (; from <= m.end - m.text; from++) {
        const char *end = begin(&m, m.text + from, pattern);
        if (!end || end - m.text == last) continue;
        lua_pushinteger(L, end - m.text);
        lua_copy(L, -1, lua_upvalueindex(3));
        lua_copy(L, -1, lua_upvalueindex(4));
        return settle(&m, push_captures(&m, m.text + from, end, true));
    }
    return settle(&m, 0);
}

int wl_match_gmatch(lua_State *L) {
    const char *pattern;
    matcher m = prepare(L, &pattern);
    const char *at = start_at(L, 3, &m);
    lua_settop(L, 2);
    lua_pushinteger(L, at ? at - m.text : m.end - m.text + 1);
    lua_pushinteger(L, -1);
    lua_pushcclosure(L, next_match, 4);
    return 1;
}

/* ---- gsub ---- */

/* The new text, in which %0 to %9 are the match and its captures. */
static void add_text(matcher *m, luaL_Buffer *out, const char *start, const char *end) {
    size_t size;
    const char *text = lua_tolstring(m->L, 3, &size), *stop = text + size;
    step(m, size);
    for (; text < stop; text++) {
        if (*text != '%') {
            luaL_addchar(out, *text);
            continue;
        }
        int c = ++text < stop ? (unsigned char)*text : 0;
        if (c == '%') {
            luaL_addchar(out, '%');
        } else if (c == '0') {
            luaL_addlstring(out, start, (size_t)(end - start));
        } else if (isdigit(c)) {
            push_capture(m, c - '1', start, end);
            luaL_tolstring(m->L, -1, NULL);
            lua_remove(m->L, -2);
            luaL_addvalue(out);
        } else {
            luaL_error(m->L, "invalid use of '%%' in replacement string");
        }
    }
}

/* What the table or the function, argument 3, has for a match; the match itself if nothing. */
static void add_answer(matcher *m, luaL_Buffer *out, const char *start, const char *end) {
    lua_State *L = m->L;
    if (lua_istable(L, 3)) {
        push_capture(m, 0, start, end);
        lua_gettable(L, 3);
    } else {
        lua_pushvalue(L, 3);
        lua_call(L, push_captures(m, start, end, true), 1);
    }
    if (!lua_toboolean(L, -1)) {
        lua_pop(L, 1);
        luaL_addlstring(out, start, (size_t)(end - start));
    } else if (lua_isstring(L, -1)) {
        luaL_addvalue(out);
    } else {
        luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
    }
}

int wl_match_gsub(lua_State *L) {
    const char *pattern;
    matcher m = prepare(L, &pattern);
    int type = lua_type(L, 3);
    luaL_argexpected(L, type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TTABLE ||
                            type == LUA_TFUNCTION, 3, "string/function/table");
    lua_Integer most = luaL_optinteger(L, 4, m.end - m.text + 1), n = 0;
    bool anchored = pattern < m.pattern_end && *pattern == '^';
    const char *at = m.text, *last = NULL;
    luaL_Buffer out;
    luaL_buffinit(L, &out);
    while (n < most) {
        const char *end = begin(&m, at, pattern + anchored);
        if (end && end != last) {
            bool text = type == LUA_TNUMBER || type == LUA_TSTRING;
            (text ? add_text : add_answer)(&m, &out, at, end);
            at = last = end;
            n++;
        } else if (at < m.end) {
            luaL_addchar(&out, *at++);
        } else {
            break;
        }
        if (anchored) break;
    }
    luaL_addlstring(&out, at, (size_t)(m.end - at));
    luaL_pushresult(&out);
    lua_pushinteger(L, n);
    return settle(&m, 2);
}
