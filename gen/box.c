/* box.c - a Lua state for the scripts of strangers: what they may call, use up and see.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* uselocale: the order of strings and a number's point are the C locale's */
#include "box.h"

#include <lauxlib.h>
#include <locale.h>
#include <lualib.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TICK 1000      /* instructions between two looks at what is left */
#define LOOK (1 << 20) /* steps paid by library functions between two looks at the clock */

const wl_box_limits wl_box_usual = {256 << 20, 8 << 20, 2000000000, 60};

typedef struct {
    const wl_box_limits *limits;
    size_t memory;  /* in use */
    int64_t steps;  /* left */
    size_t unseen;  /* paid since the last look at the clock */
    double deadline;
    bool over;      /* a limit was passed: nobody catches that */
} box;

static box *box_of(lua_State *L) {
    void *b;
    lua_getallocf(L, &b);
    return b;
}

/* ---- limits ---- */

/* Of this thread: a machine busy with other things makes nobody slow. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Lua's allocator. When it asks for a new object, `old` is the object's type. Asking for memory
   costs steps, so that making and dropping it over and over comes to an end, too. */
static void *allocate(void *user, void *memory, size_t old, size_t size) {
    box *b = user;
    size_t had = memory ? old : 0;
    if (!size) {
        free(memory);
        b->memory -= had;
        return NULL;
    }
    bool text = !memory && old == LUA_TSTRING;
    if (size > had) {
        b->steps -= (int64_t)((size - had) / WL_BOX_BYTES);
        if (b->memory - had + size > b->limits->memory) return NULL;
        if (text && size > b->limits->string) return NULL;
    }
    void *fresh = realloc(memory, size);
    if (fresh) b->memory += size - had;
    return fresh;
}

/* Raises at the line of the function on this level: 1 is the caller of a C function. */
static int stop(lua_State *L, int level) {
    box *b = box_of(L);
    b->over = true;
    luaL_where(L, level);
    if (b->steps < 0)
        lua_pushfstring(L, "too much work: a question may take %I steps",
                        (lua_Integer)b->limits->steps);
    else
        lua_pushfstring(L, "too much work: a question may take %f seconds", b->limits->seconds);
    lua_concat(L, 2);
    return lua_error(L);
}

static bool pay(box *b, size_t steps, bool look) {
    b->steps = steps < INT64_MAX / 2 ? b->steps - (int64_t)steps : -1;
    b->unseen += steps;
    if (!look && b->unseen < LOOK) return b->steps >= 0;
    b->unseen = 0;
    return b->steps >= 0 && now() <= b->deadline;
}

void wl_box_pay(lua_State *L, size_t steps) {
    if (!pay(box_of(L), steps, false)) stop(L, 1);
}

/* The clock is for what is one instruction however long its operands are: a comparison. */
static void tick(lua_State *L, lua_Debug *ar) {
    (void)ar;
    if (!pay(box_of(L), TICK, true)) stop(L, 0);
}

/* ---- functions ---- */

/* The library's own function, its upvalue, in the same frame; it pays for what it is given. */
static int paid(lua_State *L) {
    size_t bytes = 0;
    for (int i = lua_gettop(L); i; i--) bytes += lua_rawlen(L, i);
    wl_box_pay(L, bytes / 8);
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

/* The same of the library of tables, by their elements. Metatables could make their loops longer
   than any memory. */
static int paid_by_element(lua_State *L) {
    bool table = lua_istable(L, 1);
    wl_box_pay(L, table ? lua_rawlen(L, 1) : 0);
    return table && lua_getmetatable(L, 1) ? luaL_argerror(L, 1, "it has a metatable") : paid(L);
}

/* pcall(function, …), which catches all but the passing of a limit. */
static int protect(lua_State *L) {
    luaL_checkany(L, 1);
    bool good = lua_pcall(L, lua_gettop(L) - 1, LUA_MULTRET, 0) == LUA_OK;
    if (box_of(L)->over) return lua_error(L);
    lua_pushboolean(L, good);
    lua_insert(L, 1);
    return lua_gettop(L);
}

/* setmetatable(table, metatable): what Lua runs unasked (a finaliser even without a look at what is
   left) there is none of. */
static int set_metatable(lua_State *L) {
    luaL_checktype(L, 1, LUA_TTABLE);
    for (lua_pushnil(L); lua_istable(L, 2) && lua_next(L, 2); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
        if (!strncmp(key, "__", 2) && strcmp(key, "__index"))
            return luaL_argerror(L, 2, lua_pushfstring(L, "there is no '%s': __index alone", key));
    }
    lua_settop(L, 2);
    lua_setmetatable(L, 1);
    return 1;
}

/* load(text, name, mode, environment): text alone is code here, whatever the mode. */
static int load_text(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    const char *name = luaL_checkstring(L, 2);
    luaL_checktype(L, 4, LUA_TTABLE);
    wl_box_pay(L, size);
    if (luaL_loadbufferx(L, text, size, name, "t")) {
        lua_pushnil(L);
        lua_insert(L, -2);
        return 2;
    }
    lua_pushvalue(L, 4);
    lua_setupvalue(L, -2, 1);
    return 1;
}

/* string.rep(text, times [, between]) */
static int repeat(lua_State *L) {
    size_t size, gap;
    const char *text = luaL_checklstring(L, 1, &size);
    lua_Integer times = luaL_checkinteger(L, 2);
    const char *between = luaL_optlstring(L, 3, "", &gap);
    size_t most = box_of(L)->limits->string;
    luaL_Buffer out;
    if (times <= 0 || !(size + gap)) return lua_pushliteral(L, ""), 1;
    if ((size_t)times > most / (size + gap))
        return luaL_error(L, "string.rep: a string has at most %I bytes", (lua_Integer)most);
    wl_box_pay(L, (size_t)times);
    luaL_buffinit(L, &out);
    for (lua_Integer i = 0; i < times; i++) {
        if (i) luaL_addlstring(&out, between, gap);
        luaL_addlstring(&out, text, size);
    }
    luaL_pushresult(&out);
    return 1;
}

/* tostring(value): a table or a function has no text, as its address would be another each time. */
static int to_text(lua_State *L) {
    luaL_checkany(L, 1);
    int type = lua_type(L, 1);
    if (type > LUA_TSTRING) lua_pushstring(L, luaL_typename(L, 1));
    else luaL_tolstring(L, 1, NULL);
    return 1;
}

/* string.format without addresses. */
static int format(lua_State *L) {
    const char *text = luaL_checkstring(L, 1);
    for (int i = 2; i <= lua_gettop(L); i++)
        if (lua_type(L, i) > LUA_TSTRING)
            return luaL_argerror(L, i, lua_pushfstring(L, "%s has no text", luaL_typename(L, i)));
    for (const char *at = text; (at = strchr(at, '%')); at += at[1] ? 2 : 1)
        if (at[1 + strspn(at + 1, "-+ #0123456789.")] == 'p')
            return luaL_error(L, "string.format: '%%p' gives an address");
    return paid(L);
}

/* a < b, which pays for their length; numbers and strings alone. */
static int less(lua_State *L) {
    wl_box_pay(L, 1 + (lua_rawlen(L, 1) + lua_rawlen(L, 2)) / WL_BOX_BYTES);
    lua_pushboolean(L, lua_compare(L, 1, 2, LUA_OPLT));
    return 1;
}

/* table.sort(list [, less]), which pays for some comparisons of a library's function, too. */
static int sort(lua_State *L) {
    size_t n = lua_istable(L, 1) ? lua_rawlen(L, 1) : 0, rounds = 0;
    while (n >> rounds) rounds++;
    wl_box_pay(L, 4 * n * rounds);
    if (lua_isnoneornil(L, 2)) {
        lua_settop(L, 1);
        lua_pushcfunction(L, less);
    }
    return paid_by_element(L);
}

/* ---- the whitelist ---- */

typedef struct {
    const char *name;
    lua_CFunction own; /* instead of the library's, or around it */
    bool bare;         /* the library's, as it is: it takes no time to speak of */
} allowed;

static const allowed base_names[] = {
    {"assert", NULL, true},      {"error", NULL, true},     {"ipairs", NULL, true},
    {"load", load_text, false},  {"next", NULL, true},      {"pairs", NULL, true},
    {"pcall", protect, false},   {"rawget", NULL, true},    {"rawset", NULL, true},
    {"select", NULL, true},      {"tonumber", NULL, false}, {"tostring", to_text, false},
    {"type", NULL, true},        {"setmetatable", set_metatable, false},
    {NULL, NULL, false}};
static const allowed string_names[] = {
    {"byte", NULL, false},           {"char", NULL, false},    {"find", wl_match_find, false},
    {"format", format, false},       {"len", NULL, false},     {"gmatch", wl_match_gmatch, false},
    {"gsub", wl_match_gsub, false},  {"lower", NULL, false},   {"match", wl_match_match, false},
    {"rep", repeat, false},          {"reverse", NULL, false}, {"sub", NULL, false},
    {"upper", NULL, false},          {NULL, NULL, false}};
static const allowed table_names[] = {
    {"concat", paid_by_element, false}, {"insert", paid_by_element, false},
    {"remove", paid_by_element, false}, {"unpack", paid_by_element, false},
    {"sort", sort, false},              {NULL, NULL, false}};
static const allowed math_names[] = {
    {"abs", NULL, true},   {"ceil", NULL, true}, {"floor", NULL, true},     {"fmod", NULL, true},
    {"log", NULL, true},   {"max", NULL, true},  {"min", NULL, true},       {"sqrt", NULL, true},
    {"type", NULL, true},  {"ult", NULL, true},  {"tointeger", NULL, true}, {NULL, NULL, false}};
static const allowed utf8_names[] = {{"offset", NULL, false}, {NULL, NULL, false}};

/* Pushes a new table of the allowed functions of the library on the top, instead of it. */
static void choose(lua_State *L, const allowed *row) {
    lua_newtable(L);
    for (; row->name; row++) {
        lua_getfield(L, -2, row->name);
        if (!row->bare) lua_pushcclosure(L, row->own ? row->own : paid, 1);
        lua_setfield(L, -2, row->name);
    }
    lua_remove(L, -2);
}

static int fill(lua_State *L) {
    static const struct {
        const char *name;
        lua_CFunction open;
        const allowed *names;
    } libraries[] = {{"string", luaopen_string, string_names},
                     {"table", luaopen_table, table_names},
                     {"math", luaopen_math, math_names},
                     {"utf8", luaopen_utf8, utf8_names}};
    luaL_requiref(L, "_G", luaopen_base, 0);
    choose(L, base_names);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "_G");
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        luaL_requiref(L, libraries[i].name, libraries[i].open, 0);
        choose(L, libraries[i].names);
        lua_setfield(L, -2, libraries[i].name);
    }
    lua_rawseti(L, LUA_REGISTRYINDEX, LUA_RIDX_GLOBALS);
    lua_pushliteral(L, ""); /* methods of a string, like ("x"):rep(3) */
    lua_getmetatable(L, -1);
    lua_getglobal(L, "string");
    lua_setfield(L, -2, "__index");
    return 0;
}

/* ---- the state ---- */

int wl_box_call(lua_State *L, lua_CFunction function, void *argument) {
    box *b = box_of(L);
    locale_t plain = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(plain);
    b->steps = b->limits->steps;
    b->deadline = now() + b->limits->seconds;
    b->over = false;
    lua_settop(L, 0);
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, argument);
    int result = lua_pcall(L, 1, 0, 0);
    uselocale(old);
    freelocale(plain);
    return result;
}

lua_State *wl_box_open(const wl_box_limits *limits) {
    box *b = calloc(1, sizeof *b);
    if (b) b->limits = limits;
    lua_State *L = b ? lua_newstate(allocate, b) : NULL;
    if (!L) abort();
    lua_gc(L, LUA_GCGEN, 0, 0);
    if (wl_box_call(L, fill, NULL)) abort();
    lua_sethook(L, tick, LUA_MASKCOUNT, TICK);
    return L;
}

void wl_box_close(lua_State *L) {
    box *b = box_of(L);
    lua_close(L);
    free(b);
}
