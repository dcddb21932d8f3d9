/* test_spec.c - YAML to nodes with places; the bad specs of tests/bad, each with its exact message.
   SPDX-License-Identifier: BSD-3-Clause */
#include "spec.h"

#include <glob.h>
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>

#include "gen.h"
#include "test.h"

/* ---- nodes ---- */

/* A tree as one line: kind@line:col, a scalar's text and (start). */
static const char dump[] =
    "local function show(n)\n"
    "    local at = ('@%d:%d'):format(n.line, n.col)\n"
    "    if n.kind == 'scalar' then\n"
    "        return ('%q%s(%s)'):format(n.text, at, tostring(n.start))\n"
    "    end\n"
    "    local parts = {}\n"
    "    for i, item in ipairs(n) do\n"
    "        parts[i] = item.key and ('%s@%d:%d='):format(item.key, item.line,\n"
    "            item.col) .. show(item.value) or show(item)\n"
    "    end\n"
    "    return n.kind .. at .. '{' .. table.concat(parts, ' ') .. '}'\n"
    "end\n"
    "local root, errors = yaml(...)\n"
    "local lines = {root and show(root) or 'nil'}\n"
    "for i, e in ipairs(errors) do\n"
    "    lines[i + 1] = ('%d:%d %s'):format(e.line, e.col, e.text)\n"
    "end\n"
    "return table.concat(lines, '\\n')\n";

static void check_tree(const char *text, const char *want) {
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    lua_register(L, "yaml", wl_spec_yaml);
    CHECK_INT(luaL_loadstring(L, dump), LUA_OK);
    lua_pushstring(L, text);
    CHECK_INT(lua_pcall(L, 1, 1, 0), LUA_OK);
    CHECK_STR(lua_tostring(L, -1), want);
    CHECK_INT(lua_gettop(L), 1);
    lua_close(L);
}

TEST(maps_lists_scalars_in_order) {
    check_tree("b: 1\na:\n  - x\n  - [y, z]\nc: {}\nd: []\n",
               "map@1:1{b@1:1=\"1\"@1:4(4) a@2:1=list@3:3{\"x\"@3:5(5) list@4:5{\"y\"@4:6(6) "
               "\"z\"@4:9(9)}} c@5:1=map@5:4{} d@6:1=list@6:4{}}");
}

/* start is where the text begins, and nil when text and file differ. */
TEST(where_a_text_begins) {
    check_tree("a: 'quoted'\nb: \"q\\x41\"\nc: one\n  two\nd: 'it''s'\ne: |\n  block\nf:\ng: \"\"\n"
               "h: \"caf\xc3\xa9\"  # note\n",
               "map@1:1{a@1:1=\"quoted\"@1:4(5) b@2:1=\"qA\"@2:4(nil) c@3:1=\"one two\"@3:4(nil) "
               "d@5:1=\"it's\"@5:4(nil) e@6:1=\"block\\\n\"@6:4(nil) f@8:1=\"\"@8:3(3) "
               "g@9:1=\"\"@9:4(5) h@10:1=\"caf\xc3\xa9\"@10:4(5)}");
}

TEST(columns_count_characters) {
    check_tree("# na\xc3\xafve\n\"\xe2\x82\xac\xf0\x9f\x98\x80\": x\n",
               "map@2:1{\xe2\x82\xac\xf0\x9f\x98\x80@2:1=\"x\"@2:7(7)}");
}

TEST(no_type_is_guessed) {
    check_tree("[no, 1.10, 0o14, 12:30, 9e5, ~, null, 2026-11-30, 0x10]",
               "list@1:1{\"no\"@1:2(2) \"1.10\"@1:6(6) \"0o14\"@1:12(12) \"12:30\"@1:18(18) "
               "\"9e5\"@1:25(25) \"~\"@1:30(30) \"null\"@1:33(33) \"2026-11-30\"@1:39(39) "
               "\"0x10\"@1:51(51)}");
}

TEST(what_stops_and_what_goes_on) {
    check_tree("", "nil");
    check_tree("---\n", "\"\"@2:1(1)");
    check_tree("--- a\n...\n", "\"a\"@1:5(5)");
    check_tree("a\r\n", "\"a\"@1:1(1)");
    check_tree("a: [1\n", "nil\n2:1 not YAML: did not find expected ',' or ']'");
    check_tree(
        "a: &x 1\nb: *x\n",
        "map@1:1{a@1:1=\"1\"@1:4(nil) b@2:1=alias@2:4{}}\n1:4 an anchor: write the value out\n"
        "2:4 an alias: write the value out");
    check_tree(
        "{a: {b: 1, b: 2}, a: 3}\n",
        "map@1:1{a@1:2=map@1:5{b@1:6=\"1\"@1:9(9) b@1:12=\"2\"@1:15(15)} a@1:19=\"3\"@1:22(22)}\n"
        "1:12 'b' is given twice, first at 1:6\n1:19 'a' is given twice, first at 1:2");
    check_tree("a: 1\n---\nb: 1\n", "nil\n2:1 a second document: a file is one spec");
    check_tree("a: 1\n---\n- *x\n", "nil\n2:1 a second document: a file is one spec");
}

TEST(depth) {
    char text[200] = "";
    for (int i = 0; i < 31; i++) strcat(text, "[");
    strcat(text, "x");
    for (int i = 0; i < 31; i++) strcat(text, "]");
    lua_State *L = luaL_newstate();
    lua_pushcfunction(L, wl_spec_yaml);
    lua_pushstring(L, text);
    lua_call(L, 1, 2);
    CHECK(lua_istable(L, 1));
    CHECK_INT(lua_rawlen(L, 2), 0);
    lua_close(L);
    memset(text, '[', 150);
    check_tree(text, "nil\n1:33 nested too deeply: at most 32 levels");
    for (int i = 0; i < 148; i += 4) memcpy(text + i, "{a: ", 4);
    check_tree(text, "nil\n1:129 nested too deeply: at most 32 levels");
}

/* ---- files ---- */

/* tests/bad/X.yaml gives exactly tests/bad/X.expect, and leaves the generator as it was. */
TEST(bad_specs) {
    wl_gen *gen;
    glob_t found = {0};
    CHECK_INT(wl_gen_open(&gen), WL_OK);
    CHECK_INT(glob("tests/bad/*.yaml", 0, NULL, &found), 0);
    CHECK(found.gl_pathc >= 40);
    for (size_t i = 0; gen && i < found.gl_pathc; i++) {
        const char *path = found.gl_pathv[i];
        char *expect = wl_format("%.*s.expect", (int)strlen(path) - 5, path);
        wl_buf text = {0}, want = {0}, got = {0};
        CHECK_INT(wl_file_read(path, 1 << 20, &text), WL_OK);
        CHECK_INT(wl_file_read(expect, 1 << 20, &want), WL_OK);
        CHECK_INT(wl_gen_spec(gen, path, text.data, text.size), WL_ESPEC);
        wl_buf_printf(&got, "%s\n", wl_gen_error());
        CHECK_STR(got.data, want.data);
        wl_buf_free(&text), wl_buf_free(&want), wl_buf_free(&got);
        free(expect);
    }
    wl_buf out = {0};
    if (gen) CHECK_INT(wl_gen_call(gen, "check", "", &out), WL_OK);
    wl_buf_free(&out);
    globfree(&found);
    wl_gen_close(gen);
}
