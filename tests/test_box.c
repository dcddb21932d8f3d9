/* test_box.c - what a stranger's script can't do: reach out, hang, take all memory; its patterns.
   SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include <lauxlib.h>
#include <locale.h>
#include <lualib.h>
#include <pthread.h>
#include <stdlib.h>

#include "box.h"
#include "toy.h"

static char answer[4096];

static int run_code(lua_State *L) {
    const char *code = lua_touserdata(L, 1);
    if (luaL_loadbufferx(L, code, strlen(code), "=code", "t")) return lua_error(L);
    lua_call(L, 0, 1);
    lua_getglobal(L, "tostring");
    lua_insert(L, -2);
    lua_call(L, 1, 1);
    snprintf(answer, sizeof answer, "%s", lua_tostring(L, -1));
    return 0;
}

/* What the code returns, or its error. */
static const char *in_box(const wl_box_limits *limits, const char *code) {
    lua_State *L = wl_box_open(limits ? limits : &wl_box_usual);
    int status = wl_box_call(L, run_code, (void *)(uintptr_t)code);
    if (status)
        snprintf(answer, sizeof answer, "%s", lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1)
                                                                             : "no text");
    wl_box_close(L);
    return answer;
}

/* ---- what there is ---- */

TEST(nothing_but_the_whitelist) {
    CHECK_STR(in_box(NULL, "local all = {}\n"
                           "local function walk(t, path)\n"
                           "  for k, v in pairs(t) do\n"
                           "    if type(v) ~= 'table' then all[#all + 1] = path .. k\n"
                           "    elseif v ~= t then walk(v, path .. k .. '.') end\n"
                           "  end\n"
                           "end\n"
                           "walk(_G, '')\n"
                           "for _, k in ipairs {'dump', 'pack', 'unpack', 'packsize'} do\n"
                           "  if ('')[k] then all[#all + 1] = 'method ' .. k end end\n"
                           "table.sort(all)\n"
                           "return table.concat(all, ' ')"),
              "assert error ipairs load math.abs math.ceil math.floor math.fmod "
              "math.log math.max math.min math.sqrt math.tointeger math.type math.ult next pairs "
              "pcall rawget rawset select setmetatable string.byte string.char string.find "
              "string.format string.gmatch string.gsub string.len string.lower string.match "
              "string.rep string.reverse string.sub string.upper table.concat table.insert "
              "table.remove table.sort table.unpack tonumber tostring type utf8.offset");
}

/* What a family's Lua sees is less, and its own: it can change nothing for another. */
TEST(a_family_has_copies) {
    static const char lua[] =
        "local all = {}\n"
        "for _, t in ipairs {'math', 'string', 'table'} do\n"
        "  local l = t == 'math' and math or t == 'string' and string or table\n"
        "  for k in sorted(l) do all[#all + 1] = t .. '.' .. k end\n"
        "end\n"
        "string.format, string.rep, table.concat, math.type = nil, nil, nil, nil\n"
        "local M = {}\n"
        "function M.plan(c) return {list = #all, shared_bytes = 4} end\n"
        "function M.launch(c, p, name) return {'kernel ' .. name, ('x'):rep(2)} end\n"
        "function M.explain(c, p) return {} end\n"
        "return M\n";
    static const char *const unknown[] = {"load",     "pcall",        "require", "read",
                                          "files",    "getmetatable", "rawset",  "_G",
                                          "io",       "os",           "debug",   "coroutine",
                                          "problem",  "yaml",         "nearest", "package",
                                          "rawequal", "setmetatable", "pairs",   "next"};
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.lua = lua, .cu = "int a = ${list};\n"}), WL_OK);
    CHECK_STR(ask(gen, "source", "toy_d32_none_m64n64_s2_opt"), "int a = 29;\n");
    CHECK(strstr(ask(gen, "launch", "toy_d32_none_m64n64_s2_opt"), "\nxx\n"));
    wl_gen_close(gen);
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
        char *code = wl_format("local x = %s\n%s", unknown[i], TOY_LUA);
        char *text = wl_format("templates/toy.lua:1: this file has no '%s'", unknown[i]);
        CHECK_FAIL(toy_open(&gen, (toy_files){.lua = code}), WL_ESPEC, text);
        free(code);
        free(text);
        code = wl_format("${%s}\n", unknown[i]);
        text = wl_format("templates/toy.cu.in:1: undefined name '%s'", unknown[i]);
        CHECK_INT(toy_open(&gen, (toy_files){.cu = code}), WL_OK);
        CHECK_STR(ask(gen, "source", "toy_d32_none_m64n64_s2_opt"), text);
        wl_gen_close(gen);
        free(code);
        free(text);
    }
}

TEST(text_alone_is_code) {
    CHECK_STR(in_box(NULL, "return load('return x + 1', '=a', 'b', {x = 2})()"), "3");
    CHECK_STR(in_box(NULL, "return select(2, load('\\27Lua', '=a', 'b', {}))"),
              "attempt to load a binary chunk (mode is 't')");
    CHECK_STR(in_box(NULL, "return select(2, load('\\27LuaT', '=a', 'bt', {}))"),
              "attempt to load a binary chunk (mode is 't')");
    CHECK_STR(in_box(NULL, "return load(function() end)"),
              "code:1: bad argument #1 to 'load' (string expected, got function)");
    CHECK_STR(in_box(NULL, "return select(2, load('a b', '=a', 't', {}))"),
              "a:1: syntax error near 'b'");
}

TEST(no_address_no_order_no_locale) {
    static const char *const rows[][2] = {
        {"return tostring({})", "table"},
        {"return tostring(print)", "nil"},
        {"return tostring(tostring)", "function"},
        {"return tostring(1.5) .. tostring(true) .. tostring('a') .. tostring(nil)", "1.5trueanil"},
        {"return ('%s'):format({})", "code:1: bad argument #1 to 'format' (table has no text)"},
        {"return ('%d %s'):format(1, tostring)",
         "code:1: bad argument #2 to 'format' (function has no text)"},
        {"return ('%%p %5.1p'):format('a')",
         "code:1: string.format: '%p' gives an address"},
        {"return ('%%p %5.1f|%s|%q|%i%%'):format(2, true, 'a\\n', 3)",
         "%p   2.0|true|\"a\\\n\"|3%"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_STR(in_box(NULL, rows[i][0]), rows[i][1]);
}

/* ---- limits ---- */

static const wl_box_limits small = {4 << 20, 1 << 16, 3000000, 10};

TEST(nothing_hangs) {
    static const char work[] = "too much work: a question may take 3000000 steps";
    static const char *const rows[] = {
        "while true do end",
        "local function f() return f() end f()",
        "for i = 1, 1e18 do end",
        "goto a ::a:: goto a",
        "::again:: pcall(error) goto again",
        "for i = 1, 1e9 do local s = ('x'):rep(60000) end",
        "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.insert(t, 1, 0) "
        "table.remove(t, 1) end",
        "local t, s = {}, ('x'):rep(60000) for i = 1, 1e5 do t[i] = s end table.sort(t)",
        "local t = {} for i = 1, 1e4 do t[i] = i end "
        "while true do table.sort(t, function(a, b) return a > b end) end",
        "local t = {} for i = 1, 1e4 do t[i] = 'x' end while true do table.concat(t) end",
        "local s = ('a'):rep(40) s:find('a-a-a-a-a-a-a-a-a-a-a-b')",
        "local s = ('a'):rep(60000) s:match('.*.*.*b')",
        "local s = ('a'):rep(60000) s:gsub('.-b', '')",
        "local s = ('a'):rep(60000) for x in s:gmatch('(a*)b') do end",
        "local s = ('('):rep(60000) s:find('%b()')",
        "local s = ('a'):rep(30000) s:find('(a*)%1b')",
        "local s = ('a'):rep(60000) while true do s:find('b', 1, true) end",
        "local s = ('a'):rep(60000) while true do s:upper() end",
        "local s = ('a'):rep(60000) while true do s:byte(1) end",
        "local s = ('[' .. ('x'):rep(60000) .. ']*y') while true do ('z'):rep(9):find(s) end",
        "local s = ('a'):rep(60000) while true do s:gsub('', 'bb', 1) s:gsub('a', '%0', 100) end",
        "while true do tostring(1) end",
        "while true do pcall(function() while true do end end) end",
        "local function f() while true do end end while true do pcall(pcall, f) end",
        "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t, math.ult) end",
        "while true do load('x = 1', '=a', 't', {}) end",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *got = in_box(&small, rows[i]);
        if (strstr(got, work)) continue;
        CHECK_STR(got, rows[i]);
    }
}

TEST(time_ends_what_steps_do_not) {
    static const wl_box_limits slow = {64 << 20, 8 << 20, INT64_MAX / 4, 0.1};
    static const char *const rows[] = {
        "local a, b = ('x'):rep(8e6), ('x'):rep(8e6) while a <= b do end",
        "local t = {} for i = 1, 1e5 do t[i] = i end while true do table.sort(t, math.ult) end",
        "local t = {} for i = 1, 1e6 do t[i] = '' end while true do table.concat(t) end",
        "local t = {} for i = 1, 1e6 do t[i] = '' end while true do table.insert(t, 1, '') end",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double start = wl_now();
        CHECK_STR(in_box(&slow, rows[i]), "code:1: too much work: a question may take 0.1 seconds");
        CHECK(wl_now() - start < 10);
    }
}

/* What a metatable could make of a loop of C's: no end, without an instruction of Lua's. */
TEST(metatables_are_for_names_alone) {
    static const char *const rows[][2] = {
        {"local t = setmetatable({}, {__index = type})\nreturn table.concat(t, '', 1, 1 << 50)",
         "code:2: bad argument #1 to 'concat' (it has a metatable)"},
        {"local t = setmetatable({}, {__index = type})\ntable.insert(t, 1)",
         "code:2: bad argument #1 to 'insert' (it has a metatable)"},
        {"setmetatable({}, {__gc = function() while true do end end})",
         "code:1: bad argument #2 to 'setmetatable' (there is no '__gc': __index alone)"},
        {"setmetatable({}, {a = 1, __len = function() return 1 << 50 end})",
         "code:1: bad argument #2 to 'setmetatable' (there is no '__len': __index alone)"},
        {"return setmetatable({}, setmetatable({b = 1}, {__index = {a = 7}})).a", "nil"},
        {"return setmetatable({}, {__index = {a = 7}, __name = 1}).a",
         "code:1: bad argument #2 to 'setmetatable' (there is no '__name': __index alone)"},
        {"return setmetatable({}, {'x', a = 1, __index = {a = 7}}).a", "7"},
        {"return setmetatable(setmetatable({}, {__index = {a = 7}}), nil).a", "nil"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        CHECK_STR(in_box(&small, rows[i][0]), rows[i][1]);
}

TEST(memory_is_capped) {
    static const char none[] = "not enough memory";
    static const char *const rows[][2] = {
        {"local t = {} for i = 1, 1e7 do t[i] = i end", none},
        {"local t = {} for i = 1, 1e7 do t[i] = {} end", none},
        {"local s = 'x' while true do s = s .. s end", none},
        {"local t = {} for i = 1, 40 do t[i] = ('x'):rep(6e4) end return #table.concat(t)", none},
        {"return ('x'):rep(65537)", "code:1: string.rep: a string has at most 65536 bytes"},
        {"return #('x'):rep(30000, 'y')", "59999"},
        {"return ('x'):rep(40000, 'y')", "code:1: string.rep: a string has at most 65536 bytes"},
        {"return ('x'):rep(1e18)", "code:1: string.rep: a string has at most 65536 bytes"},
        {"return ('x'):rep(1 << 62)", "code:1: string.rep: a string has at most 65536 bytes"},
        {"return ('').rep('', 1 << 62) .. ('x'):rep(-1) .. ('ab'):rep(2, '-')", "ab-ab"},
        {"return ('%99.99f'):format(1e308):len() > 400", "true"},
        {"return ('%100d'):format(1)", "code:1: invalid conversion"},
        {"return (('a'):rep(6e4):gsub('a', 'aa'))", none},
        {"local s = ('x'):rep(60000) return #s", "60000"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *got = in_box(&small, rows[i][0]);
        if (strncmp(got, rows[i][1], strlen(rows[i][1]))) CHECK_STR(rows[i][0], rows[i][1]);
    }
}

/* What recursion there may be, in no more stack than a small thread has. */
static void *recurse(void *unused) {
    static const char *const rows[] = {
        "local function f(x) return 1 + f(x) end f(1)",
        "local function f(x) return (x:gsub('.', f)) end f('x')",
        "local m = {} m.__index = function(t, k) return t[k] end return setmetatable({}, m).x",
        "local t = {} for i = 1, 3 do t[i] = i end local function f() table.sort(t, f) end f()",
        "return load('return ' .. ('('):rep(9000) .. '1' .. (')'):rep(9000), '=a', 't', {})",
        "return load(('{'):rep(9000), '=a', 't', {})",
        "return load(('do '):rep(9000), '=a', 't', {})",
        "return load('return ' .. ('-'):rep(9000, ' ') .. '1', '=a', 't', {})",
        "return load('return ' .. ('a.'):rep(9000) .. 'b', '=a', 't', {})",
        "return load('return ' .. ('a..'):rep(9000) .. 'b', '=a', 't', {})",
        "return ('x'):rep(9000):find(('x?'):rep(9000))",
        "return ('x'):rep(9000):find(('(x)'):rep(9000))",
        "return ('x'):find(('x-'):rep(20000))",
        "return ('('):rep(9000):find(('%b()'):rep(9000))",
        "local function f() local a <close> = nil return pcall(f) end return f()",
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        in_box(NULL, rows[i]);
        CHECK(*answer && strlen(answer) < 3000);
    }
    return unused;
}

TEST(deep_recursion_is_an_error) {
    pthread_attr_t attr;
    pthread_t thread;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 512 << 10);
    CHECK_INT(pthread_create(&thread, &attr, recurse, NULL), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    pthread_attr_destroy(&attr);
}

/* ---- the generator in its box ---- */

/* Limits that the toy keeps, and a script does not. */
TEST(a_question_is_capped) {
    static const wl_box_limits tight = {3 << 20, 1 << 20, 5000000, 10};
    static const struct {
        toy_files files;
        const char *text;
    } rows[] = {
        {{.cu = "$ while true do\n$ end\n"},
         "templates/toy.cu.in:1: too much work: a question may take 5000000 steps"},
        {{.cu = "$ local s = 'x'\n$ while true do s = s .. s end\n"},
         "the generator needs more than 3145728 bytes of memory, or a string of more than "
         "1048576: a spec with fewer values, a template with less text"},
        {{.cu = "${('x'):rep(1e9)}\n"},
         "templates/toy.cu.in:1: string.rep: a string has at most 1048576 bytes"},
        {{.cu = "${string.rep(error, error)}\n"},
         "templates/toy.cu.in:1: bad argument #1 to 'rep' (string expected, got function)"},
        {{.cu = "$ error({})\n"}, "a script raised what is no text"},
        {{.cu = "$ error({0, 'fine'})\n"}, "fine"},
        {{.cu = "$ error({1 << 40, {}})\n"}, "a script raised what is no text"},
        {{.cu = "$ error()\n"}, "a script raised what is no text"},
        {{.cu = "$ error(string)\n"}, "a script raised what is no text"},
    };
    toy_limits = &tight;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_gen *gen;
        wl_buf out = {0};
        CHECK_INT(toy_open(&gen, rows[i].files), WL_OK);
        CHECK_FAIL(wl_gen_call(gen, "source", "toy_d32_none_m64n64_s2_opt", &out), WL_ESPEC,
                   rows[i].text);
        CHECK(strstr(ask(gen, "list", "variant=toy dtype=bf16 layout=bhsd head_dim=64 mask=none "
                                      "seq_q=1"), "toy_d64_none_m128n64_s4_exact\n"));
        wl_buf_free(&out);
        wl_gen_close(gen);
    }
    toy_limits = NULL;
}

/* A candidate, whose names are strict, as an error; a plan that is none; a record of no text. */
TEST(a_family_that_answers_nonsense) {
    static const char *const rows[][2] = {
        {"return {plan = function(c) error(c) end}", "a script raised what is no text"},
        {"return {plan = function(c) return 1 end}", "bad argument #1 to 'setmetatable'"},
        {"return {plan = function(c) return {shared_bytes = 1} end,\n"
         "launch = function() return {{}} end}", "invalid value (table) at index"},
        {"return {plan = function(c) return {[1] = 2, a = 3} end}",
         "attempt to compare"},
        {"return 7", "attempt to index a number value"},
        {"return {", "templates/toy.lua:1: unexpected symbol near <eof>"},
        {"\33Lua", "attempt to load a binary chunk (mode is 't')"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_gen *gen;
        wl_status status = toy_open(&gen, (toy_files){.lua = rows[i][0]});
        wl_buf out = {0};
        if (!status) status = wl_gen_call(gen, "launch", "toy_d32_none_m64n64_s2_opt", &out);
        CHECK_INT(status, WL_ESPEC);
        if (!strstr(message(), rows[i][1])) CHECK_STR(message(), rows[i][1]);
        wl_buf_free(&out);
        wl_gen_close(gen);
    }
}

TEST(a_path_is_a_line) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){NULL}), WL_OK);
    static const char *const paths[] = {"a\nkernel b", "\33[2J", "a\177", "\r"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        CHECK_FAIL(wl_gen_spec(gen, paths[i], "a: b", 4), WL_EINVAL,
                   "a spec's path has a control character: rename the file");
    wl_gen_close(gen);
}

/* The order of strings, and so the text, is not the host's. */
TEST(a_locale_changes_nothing) {
    const char *set = setlocale(LC_ALL, "C.UTF-8");
    CHECK_STR(in_box(NULL, "local t = {'b', 'A', 'a', 'B'} table.sort(t)\n"
                           "return table.concat(t) .. ('%.1f'):format(0.5)"), "ABab0.5");
    CHECK(set && !strcmp(setlocale(LC_ALL, NULL), "C.UTF-8"));
    setlocale(LC_ALL, "C");
}

/* ---- patterns, beside Lua's own ---- */

/* Calls string.FUNCTION(text, pattern, more) by both; the results as one text. */
static void results(lua_State *L, const char *function, const char *text, const char *pattern,
                    const char *more, wl_buf *out) {
    static const char all[] =
        "local f, text, pattern, more, string = ...\n"
        "local function all(...)\n"
        "  local out = {}\n"
        "  for i = 1, select('#', ...) do out[i] = tostring((select(i, ...))) end\n"
        "  return table.concat(out, ' ')\n"
        "end\n"
        "if f == 'gmatch' then\n"
        "  local out = {}\n"
        "  for a, b in string.gmatch(text, pattern) do out[#out + 1] = all(a, b) end\n"
        "  return table.concat(out, ';')\n"
        "end\n"
        "if f == 'each' then\n"
        "  return all(string.gsub(text, pattern, function(a, b) return a ~= 'a' and b or a end))\n"
        "end\n"
        "return all(string[f](text, pattern, more))\n";
    int top = lua_gettop(L);
    CHECK_INT(luaL_loadbufferx(L, all, sizeof all - 1, "=all", "t"), LUA_OK);
    lua_pushstring(L, function);
    lua_pushstring(L, text);
    lua_pushstring(L, pattern);
    if (!strcmp(function, "gsub")) lua_pushstring(L, more);
    else lua_pushnil(L);
    lua_getglobal(L, "string");
    bool failed = lua_pcall(L, 5, 1, 0);
    wl_buf_text(out, failed ? "an error" : lua_tostring(L, -1));
    lua_settop(L, top);
}

static lua_State *patterns[2]; /* the box's, Lua's own */
static const char *parts[4];   /* function, text, pattern, replacement */

static int of_box(lua_State *L) {
    results(L, parts[0], parts[1], parts[2], parts[3], lua_touserdata(L, 1));
    return 0;
}

static void check_pattern(const char *function, const char *text, const char *pattern,
                          const char *more) {
    wl_buf got = {0}, want = {0};
    parts[0] = function, parts[1] = text, parts[2] = pattern, parts[3] = more;
    CHECK_INT(wl_box_call(patterns[0], of_box, &got), LUA_OK);
    results(patterns[1], function, text, pattern, more, &want);
    if (strcmp(got.data, want.data)) {
        printf("string.%s('%s', '%s', '%s')\n", function, text, pattern, more);
        CHECK_STR(got.data, want.data);
    }
    wl_buf_free(&got);
    wl_buf_free(&want);
}

static const char *const functions[] = {"find", "match", "gmatch", "gsub", "each"};

static void open_patterns(void) {
    patterns[0] = wl_box_open(&wl_box_usual);
    patterns[1] = luaL_newstate();
    luaL_openlibs(patterns[1]);
}

static void close_patterns(void) {
    wl_box_close(patterns[0]);
    lua_close(patterns[1]);
}

TEST(patterns_as_in_the_manual) {
    static const char *const rows[][3] = {
        {"hello world", "o w", "x"},      {"hello world", "(o)(.)", "%2%1%0%%"},
        {"key = value", "(%w+) = (%w+)", "%2"}, {"  trim  ", "^%s*(.-)%s*$", "%1"},
        {"f(a(b)c)d", "%b()", ""},        {"THE (quick) fox", "%f[%a]%a+", "<%0>"},
        {"abcabc", "(abc)%1", "%1"},      {"aaa", "a-", "x"},
        {"aaa", "a*", "x"},               {"", "", "x"},
        {"abc", "()", "%1"},              {"abc", "(b)()", "%2"},
        {"a]b", "[]]", "x"},              {"a^b", "[b^]", "x"},
        {"a-b", "[a-]", "x"},             {"a-b", "[%a-z]", "x"},
        {"abc", "[^a]", "x"},             {"abc", "[a-c]+$", "x"},
        {"a$", "a$$", "x"},               {"a.b", "a%.b", "x"},
        {"^a", "^^a", "x"},               {"x\ny", ".-\n", "x"},
        {"abc", "[a", "x"},               {"abc", "%", "x"},
        {"abc", "(a", "x"},               {"abc", "a)", "x"},
        {"abc", "%1", "x"},               {"abc", "(a%1)", "x"},
        {"abc", "%f", "x"},               {"abc", "%b", "x"},
        {"abc", "%bx", "x"},              {"abc", "[%", "x"},
        {"abc", "[a%", "x"},              {"abc", "a", "%"},
        {"abc", "a", "%2"},               {"abc", "a", "%a"},
        {"abc", "(a)(b)", "%3"},          {"abc", "a?b?c?d?", "x"},
        {"\xc3\xa9t\xc3\xa9", "[\x80-\xff]+", "e"}, {"0x1F", "%x+", "h"},
        {"aXb1_ \t", "%W", "-"},          {"aXb1_ \t", "[%u%d]", "-"},
        {"abc", "[]", "x"},               {"abc", "[^]", "x"},
        {"abc", "[^]a]", "x"},            {"a%b", "[%%]", "x"},
        {"abc", "[a-%%]", "x"},           {"aab", "a+()b", "%1"},
    };
    open_patterns();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t f = 0; f < sizeof functions / sizeof *functions; f++)
            check_pattern(functions[f], rows[i][0], rows[i][1], rows[i][2]);
    close_patterns();
}

/* Random ones of what patterns are made of. */
TEST(patterns_as_lua_has_them) {
    static const char letters[] = "aab.^$*+?-()[]%%%1bfwd]";
    unsigned long long seed = 1;
    open_patterns();
    for (int round = 0; round < 60000; round++) {
        char text[3][12];
        for (int t = 0; t < 3; t++) {
            size_t n = 0;
            for (seed = seed * 6364136223846793005u + 1442695040888963407u; n < (seed >> 60) % 11;)
                seed = seed * 6364136223846793005u + 1442695040888963407u,
                text[t][n++] = t ? letters[(seed >> 33) % (sizeof letters - 1)]
                                 : "aab(b)1.]"[(seed >> 33) % 9];
            text[t][n] = '\0';
        }
        check_pattern(functions[round % 5], text[0], text[1], text[2]);
    }
    close_patterns();
}
