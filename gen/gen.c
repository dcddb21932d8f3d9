/* gen.c - the one lua_State: boxes it, gives it the embedded files, asks it one question at a time.
   SPDX-License-Identifier: BSD-3-Clause */
#include "gen.h"

#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"
#include "spec.h"

struct wl_gen {
    lua_State *L;
    const wl_embedded_file *files;
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

/* Raises {status, text}, which wl_gen_call turns back into fail(). */
static int raise(lua_State *L, wl_status status) {
    lua_createtable(L, 0, 2);
    lua_pushinteger(L, status);
    lua_setfield(L, -2, "status");
    lua_pushstring(L, message());
    lua_setfield(L, -2, "text");
    return lua_error(L);
}

/* problem(text) → the same as "key=value …", complete and in order, sizes rounded up */
static int read_problem(lua_State *L) {
    wl_problem problem;
    wl_status status = wl_problem_parse(luaL_checkstring(L, 1), &problem);
    if (status) return raise(L, status);
    wl_buf text = {0};
    wl_problem_bucket(&problem, &text);
    lua_pushlstring(L, text.data, text.size);
    wl_buf_free(&text);
    return 1;
}

static void set_text(lua_State *L, const char *key, const char *value) {
    lua_pushstring(L, value);
    lua_setfield(L, -2, key);
}

/* words() → the problem's table: {name, kind, initial, what, size} */
static int list_words(lua_State *L) {
    static const char *const kinds[] = {"int", "name", "float"};
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

/* ---- the box ---- */

/* Neither files nor the system, nothing that differs from run to run, no bytecode. (pairs and next
   go in main.lua, which keeps them to make sorted.) */
static void close_box(lua_State *L) {
    static const char *const globals[] = {"collectgarbage", "dofile", "loadfile", "print", "warn"};
    for (size_t i = 0; i < sizeof globals / sizeof *globals; i++) {
        lua_pushnil(L);
        lua_setglobal(L, globals[i]);
    }
    static const char *const fields[][2] = {
        {"math", "random"}, {"math", "randomseed"}, {"string", "dump"}};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        lua_getglobal(L, fields[i][0]);
        lua_pushnil(L);
        lua_setfield(L, -2, fields[i][1]);
        lua_pop(L, 1);
    }
}

static void give(wl_gen *gen, const char *name, lua_CFunction function) {
    lua_pushlightuserdata(gen->L, gen);
    lua_newtable(gen->L);
    lua_pushcclosure(gen->L, function, 2);
    lua_setglobal(gen->L, name);
}

/* Opens the libraries and runs gen/main.lua, which returns the table of verbs' one function. */
static int boot(lua_State *L) {
    static const luaL_Reg libraries[] = {{"_G", luaopen_base},
                                         {"string", luaopen_string},
                                         {"table", luaopen_table},
                                         {"math", luaopen_math},
                                         {"utf8", luaopen_utf8}};
    static const luaL_Reg functions[] = {{"read", read_embedded},   {"files", list_embedded},
                                         {"problem", read_problem}, {"words", list_words},
                                         {"nearest", nearest_word}, {"require", require_module},
                                         {"yaml", wl_spec_yaml}};
    wl_gen *gen = lua_touserdata(L, 1);
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].func, 1);
        lua_pop(L, 1);
    }
    lua_gc(L, LUA_GCGEN, 0, 0);
    close_box(L);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        give(gen, functions[i].name, functions[i].func);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "main");
    lua_call(L, 1, 1);
    return 1;
}

/* ---- calls ---- */

/* The error on the stack's top, popped, as status and message. A plain string is a template's or a
   module's error, and begins with FILE:LINE. */
static wl_status take_error(lua_State *L) {
    wl_status status = WL_ESPEC;
    if (lua_istable(L, -1)) {
        lua_getfield(L, -1, "status");
        status = (wl_status)lua_tointeger(L, -1);
        lua_getfield(L, -2, "text");
    }
    const char *text = lua_tostring(L, -1);
    status = fail(status, "%s", text);
    lua_settop(L, 0);
    return status;
}

wl_status wl_gen_open_files(wl_gen **out, const wl_embedded_file *files) {
    wl_gen *gen = wl_alloc(sizeof *gen);
    *out = NULL;
    gen->files = files;
    gen->L = luaL_newstate();
    if (!gen->L) abort();
    lua_pushcfunction(gen->L, boot);
    lua_pushlightuserdata(gen->L, gen);
    if (lua_pcall(gen->L, 1, 1, 0)) {
        wl_status status = take_error(gen->L);
        wl_gen_close(gen);
        return status;
    }
    lua_setfield(gen->L, LUA_REGISTRYINDEX, "warploom");
    *out = gen;
    return WL_OK;
}

wl_status wl_gen_open(wl_gen **out) {
    clear_message();
    return wl_gen_open_files(out, wl_embedded);
}

void wl_gen_close(wl_gen *gen) {
    if (!gen) return;
    lua_close(gen->L);
    free(gen);
}

wl_status wl_gen_spec(wl_gen *gen, const char *path, const char *text, size_t size) {
    lua_State *L = gen->L;
    clear_message();
    lua_settop(L, 0);
    lua_getfield(L, LUA_REGISTRYINDEX, "warploom");
    lua_pushliteral(L, "spec");
    lua_pushstring(L, path);
    lua_pushlstring(L, text, size);
    return lua_pcall(L, 3, 0, 0) ? take_error(L) : WL_OK;
}

wl_status wl_gen_call(wl_gen *gen, const char *verb, const char *arg, wl_buf *out) {
    lua_State *L = gen->L;
    clear_message();
    lua_settop(L, 0);
    lua_getfield(L, LUA_REGISTRYINDEX, "warploom");
    lua_pushstring(L, verb);
    lua_pushstring(L, arg);
    if (lua_pcall(L, 2, 1, 0)) return take_error(L);
    size_t size;
    const char *text = lua_tolstring(L, -1, &size);
    wl_buf_add(out, text, size);
    lua_settop(L, 0);
    return WL_OK;
}

const char *wl_gen_error(void) {
    return message();
}
