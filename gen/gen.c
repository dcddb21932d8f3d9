/* gen.c - the one lua_State: gives it the embedded files, asks it one question at a time.
   SPDX-License-Identifier: BSD-3-Clause */
#include "gen.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "box.h"
#include "problem.h"
#include "spec.h"

struct wl_gen {
    lua_State *L;
    const wl_embedded_file *files;
    const wl_box_limits *limits;
};

/* ---- what Lua gets from C ---- */

static const wl_embedded_file *find_file(lua_State *L, const char *name) {
    const wl_gen *gen = lua_touserdata(L, lua_upvalueindex(1));
    const wl_embedded_file *file = gen->files;
    while (file->name && strcmp(file->name, name)) file++;
    return file->name ? file : NULL;
}

/* read(path) → the text of an embedded file, or nil */
static int read_embedded(lua_State *L) {
    const wl_embedded_file *file = find_file(L, luaL_checkstring(L, 1));
    if (!file) return 0;
    lua_pushlstring(L, file->text, file->size);
    return 1;
}

/* files(prefix) → the names that begin with it, in order */
static int list_embedded(lua_State *L) {
    const wl_gen *gen = lua_touserdata(L, lua_upvalueindex(1));
    const char *prefix = luaL_checkstring(L, 1);
    lua_Integer n = 0;
    lua_newtable(L);
    for (const wl_embedded_file *file = gen->files; file->name; file++) {
        if (strncmp(file->name, prefix, strlen(prefix))) continue;
        lua_pushstring(L, file->name);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* require(name) → what gen/NAME.lua returns, run once */
static int require_module(lua_State *L) {
    const char *path = lua_pushfstring(L, "gen/%s.lua", luaL_checkstring(L, 1));
    if (lua_getfield(L, lua_upvalueindex(2), path) != LUA_TNIL) return 1;
    const wl_embedded_file *file = find_file(L, path);
    if (!file) return luaL_error(L, "%s is missing", path);
    const char *chunk = lua_pushfstring(L, "=%s", path);
    if (luaL_loadbufferx(L, file->text, file->size, chunk, "t")) return lua_error(L);
    lua_call(L, 0, 1);
    lua_pushvalue(L, -1);
    lua_setfield(L, lua_upvalueindex(2), path);
    return 1;
}

/* Raises {status, text}, which take_error turns back into fail(). */
static int raise(lua_State *L, wl_status status) {
    lua_createtable(L, 2, 0);
    lua_pushinteger(L, status);
    lua_rawseti(L, -2, 1);
    lua_pushstring(L, message());
    lua_rawseti(L, -2, 2);
    return lua_error(L);
}

/* problem(text) → the same as "key=value …", complete and in order, sizes rounded up */
static int read_problem(lua_State *L) {
    wl_problem problem;
    wl_status status = wl_problem_parse(luaL_checkstring(L, 1), &problem);
    if (status) return raise(L, status);
    wl_buf text = {0};
    char words[1024]; /* Lua's errors free nothing */
    wl_problem_whole(&problem, &text);
    snprintf(words, sizeof words, "%s", text.data);
    wl_buf_free(&text);
    lua_pushstring(L, words);
    return 1;
}

static void set_text(lua_State *L, const char *key, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, key);
}

/* words() → the problem's table: {name, kind, initial, what, size} */
static int list_words(lua_State *L) {
    static const char *const kinds[] = {"int", "name", "float", "list", "list of floats",
                                        "option"};
    lua_newtable(L);
    for (int w = 0; w < WL_PROBLEM_WORDS; w++) {
        const wl_word *word = &wl_problem_table[w];
        lua_createtable(L, 0, 5);
        set_text(L, "name", word->name);
        set_text(L, "kind", kinds[word->kind]);
        set_text(L, "initial", word->initial);
        set_text(L, "what", word->what);
        lua_pushboolean(L, word->is_size);
        lua_setfield(L, -2, "size");
        lua_rawseti(L, -2, w + 1);
    }
    return 1;
}

/* nearest(word, list) → the list's word nearest to it, or nil */
static int nearest_word(lua_State *L) {
    const char *word = luaL_checkstring(L, 1);
    lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
    const char **words = lua_newuserdatauv(L, (size_t)(n + 1) * sizeof *words, 0);
    luaL_checkstack(L, (int)n + 4, "nearest");
    for (lua_Integer i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1);
        words[i] = luaL_checkstring(L, -1);
    }
    lua_pushstring(L, wl_nearest(word, words, (size_t)n));
    return 1;
}

/* ---- the state ---- */

static void give(wl_gen *gen, const char *name, lua_CFunction function) {
    lua_pushlightuserdata(gen->L, gen);
    lua_newtable(gen->L);
    lua_pushcclosure(gen->L, function, 2);
    lua_setglobal(gen->L, name);
}

/* Runs gen/main.lua, which returns the table of verbs' one function. */
static int boot(lua_State *L) {
    static const luaL_Reg functions[] = {{"read", read_embedded},   {"files", list_embedded},
                                         {"problem", read_problem}, {"words", list_words},
                                         {"nearest", nearest_word}, {"require", require_module},
                                         {"yaml", wl_spec_yaml}};
    wl_gen *gen = lua_touserdata(L, 1);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        give(gen, functions[i].name, functions[i].func);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "main");
    lua_call(L, 1, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "warploom");
    return 0;
}

/* ---- calls ---- */

/* The error on the stack's top, popped, as status and message. A plain string is a template's or a
   module's error, and begins with FILE:LINE. A stranger's script may have raised anything at all:
   nothing here runs it, or asks for memory. */
static wl_status take_error(lua_State *L) {
    lua_Integer status = WL_ESPEC;
    if (lua_istable(L, -1)) {
        lua_rawgeti(L, -1, 1);
        if (lua_isinteger(L, -1) && lua_tointeger(L, -1) == WL_EINVAL) status = WL_EINVAL;
        lua_rawgeti(L, -2, 2);
    }
    bool is_text = lua_type(L, -1) == LUA_TSTRING;
    const char *text = is_text ? lua_tostring(L, -1) : "a script raised what is no text";
    wl_status result = fail((wl_status)status, "%s", text);
    lua_settop(L, 0);
    return result;
}

static wl_status call(wl_gen *gen, lua_CFunction function, void *argument) {
    clear_message();
    int result = wl_box_call(gen->L, function, argument);
    if (result == LUA_ERRMEM)
        return fail(WL_ESPEC, "the generator needs more than %zu bytes of memory, or a string of "
                    "more than %zu: a spec with fewer values, a template with less text",
                    gen->limits->memory, gen->limits->string);
    return result ? take_error(gen->L) : WL_OK;
}

wl_status wl_gen_open_box(wl_gen **out, const wl_embedded_file *files,
                          const wl_box_limits *limits) {
    wl_gen *gen = wl_alloc(sizeof *gen);
    *out = NULL;
    gen->files = files;
    gen->limits = limits;
    gen->L = wl_box_open(limits);
    wl_status status = call(gen, boot, gen);
    if (status) wl_gen_close(gen);
    else *out = gen;
    return status;
}

wl_status wl_gen_open(wl_gen **out) {
    return wl_gen_open_box(out, wl_embedded, &wl_box_usual);
}

void wl_gen_close(wl_gen *gen) {
    if (!gen) return;
    wl_box_close(gen->L);
    free(gen);
}

typedef struct {
    const char *verb, *arg, *text; /* text: of verb "spec" alone */
    size_t size;
    wl_buf *out;
} question;

static int answer(lua_State *L) {
    const question *q = lua_touserdata(L, 1);
    lua_getfield(L, LUA_REGISTRYINDEX, "warploom");
    lua_pushstring(L, q->verb);
    lua_pushstring(L, q->arg);
    lua_pushlstring(L, q->text, q->size);
    lua_call(L, 3, 1);
    size_t size;
    const char *text = q->out ? luaL_checklstring(L, -1, &size) : NULL;
    if (text) wl_buf_add(q->out, text, size);
    return 0;
}

/* A path is told in messages and records, a line each. */
static bool is_line(const char *path) {
    while (*path && (unsigned char)*path >= ' ' && *path != 127) path++;
    return !*path;
}

wl_status wl_gen_spec(wl_gen *gen, const char *path, const char *text, size_t size) {
    if (!is_line(path))
        return fail(WL_EINVAL, "a spec's path has a control character: rename the file");
    question q = {"spec", path, text, size, NULL};
    return call(gen, answer, &q);
}

wl_status wl_gen_call(wl_gen *gen, const char *verb, const char *arg, wl_buf *out) {
    question q = {verb, arg, "", 0, out};
    return call(gen, answer, &q);
}

const char *wl_gen_error(void) {
    return message();
}
