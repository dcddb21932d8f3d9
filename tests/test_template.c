/* test_template.c - the template language: what each construct gives, its line map, each error.
   SPDX-License-Identifier: BSD-3-Clause */
#include "toy.h"

#define NAME "toy_d32_none_m64n64_s4_exact"

static void check_render(const char *cu, const char *body, const char *text, const char *map) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.cu = cu, .body = body}), WL_OK);
    if (!gen) return;
    CHECK_STR(ask(gen, "source", NAME), text);
    CHECK_STR(ask(gen, "linemap", NAME), map);
    wl_gen_close(gen);
}

TEST(text_and_values) {
    check_render(
        "// ${name}\n\nint x = ${stages}${tile_m}; // ${mask} $ {stages} $$ %d \\n \"q\"\n", NULL,
        "// " NAME "\n\nint x = 464; // none $ {stages} $$ %d \\n \"q\"\n",
        "templates/toy.cu.in:1\ntemplates/toy.cu.in:2\ntemplates/toy.cu.in:3\n");
}

TEST(expressions) {
    check_render("${head_dim * 2 + 1} ${mask == 'none' and 'yes' or 'no'} ${({7, 8})[2]}"
                 " ${math.max(tile_m, 3)} ${(\"%02d\"):format(5)}\n",
                 NULL, "65 yes 8 64 05\n", "templates/toy.cu.in:1\n");
}

TEST(blocks_are_dedented) {
    check_render("a\n"
                 "$ if mask == 'none' then\n"
                 "    b\n"
                 "    $ for i = 1, 2 do\n"
                 "        c${i} {\n"
                 "            d\n"
                 "    $ end\n"
                 "$ else\n"
                 "    e\n"
                 "$ end\n"
                 "{\n"
                 "    $ if stages == 4 then\n"
                 "        f;\n"
                 "    $ elseif stages == 5 then\n"
                 "        g;\n"
                 "    $ end\n"
                 "}\n",
                 NULL, "a\nb\nc1 {\n    d\nc2 {\n    d\n{\n    f;\n}\n",
                 "templates/toy.cu.in:1\ntemplates/toy.cu.in:3\n"
                 "templates/toy.cu.in:5\ntemplates/toy.cu.in:6\n"
                 "templates/toy.cu.in:5\ntemplates/toy.cu.in:6\n"
                 "templates/toy.cu.in:11\ntemplates/toy.cu.in:13\ntemplates/toy.cu.in:17\n");
}

TEST(code_lines) {
    check_render("$ local n = 0\n$ while n < 2 do\n    n ${n}\n    $ n = n + 1\n$ end\n"
                 "$ if n == 2 then n = 5 end\n$ for _, v in ipairs(list) do\n    ${v}\n$ end\n"
                 "$ for k, v in sorted({b = 2, a = 1}) do\n    ${k}=${v} ${n}\n$ end\n",
                 NULL, "n 0\nn 1\n1\n2\na=1 5\nb=2 5\n",
                 "templates/toy.cu.in:3\ntemplates/toy.cu.in:3\ntemplates/toy.cu.in:8\n"
                 "templates/toy.cu.in:8\ntemplates/toy.cu.in:11\ntemplates/toy.cu.in:11\n");
}

TEST(parts_keep_the_indentation) {
    check_render(
        "{\n    $ include \"body\"\n    $ if true then\n        {\n            $ include \"body\"\n"
        "        }\n    $ end\n}\n",
        "x ${stages}\n\n$ if stages == 4 then\n    y\n$ end\n",
        "{\n    x 4\n\n    y\n    {\n        x 4\n\n        y\n    }\n}\n",
        "templates/toy.cu.in:1\ntemplates/parts/body.in:1\ntemplates/parts/body.in:2\n"
        "templates/parts/body.in:4\ntemplates/toy.cu.in:4\ntemplates/parts/body.in:1\n"
        "templates/parts/body.in:2\ntemplates/parts/body.in:4\ntemplates/toy.cu.in:6\n"
        "templates/toy.cu.in:8\n");
}

TEST(values_of_several_lines) {
    check_render("$ local text = 'one\\ntwo'\n${text}\nthree\n", NULL, "one\ntwo\nthree\n",
                 "templates/toy.cu.in:2\ntemplates/toy.cu.in:2\ntemplates/toy.cu.in:3\n");
}

/* An error in one of 5 lines, in the template or its part, is reported there. */
TEST(errors) {
    static const struct {
        const char *cu, *body, *message;
    } rows[] = {
        {"a\n${nothing}\n", NULL, "templates/toy.cu.in:2: undefined name 'nothing'"},
        {"a\n$ if nothing then\n$ end\n", NULL, "templates/toy.cu.in:2: undefined name 'nothing'"},
        {"\n${stages / 2}\n", NULL,
         "templates/toy.cu.in:2: ${…} is float: it must be a string or an integer (divide by //)"},
        {"${list}\n", NULL,
         "templates/toy.cu.in:1: ${…} is table: it must be a string or an integer (divide by //)"},
        {"${stages == 4}\n", NULL,
         "templates/toy.cu.in:1: ${…} is boolean: it must be a string or an integer (divide by "
         "//)"},
        {"a\nb ${stages\n", NULL, "templates/toy.cu.in:2: `${` has no `}` on its line"},
        {"a\n\tb\n", NULL, "templates/toy.cu.in:2: a tab: indent with spaces"},
        {"a\n$ end\n", NULL, "templates/toy.cu.in:2: `$ end` closes no block"},
        {"a\n$ else\n", NULL, "templates/toy.cu.in:2: `$ else` closes no block"},
        {"a\n$ if true then\n    b\n", NULL,
         "templates/toy.cu.in:2: `$ if true then` has no `$ end`"},
        {"$ if true then\n  $ end\n", NULL,
         "templates/toy.cu.in:2: `$ end` is indented 2, its block began at line 1 with 0"},
        {"$ if true then\n  b\n$ end\n", NULL,
         "templates/toy.cu.in:2: indented 2, inside the block of line 1 it must be 4 or more"},
        {"$ if true then\n  $ local x = 1\n$ end\n", NULL,
         "templates/toy.cu.in:2: indented 2, inside the block of line 1 it must be 4 or more"},
        {"$ if true then\n$ include \"body\"\n$ end\n", "b\n",
         "templates/toy.cu.in:2: indented 0, inside the block of line 1 it must be 4 or more"},
        {"a\n$ include \"nobody\"\n", NULL,
         "templates/toy.cu.in:2: include \"nobody\": there is no templates/parts/nobody.in"},
        {"a\n$ include \"body\"\n", "b\n\n${nothing}\n",
         "templates/parts/body.in:3: undefined name 'nothing'"},
        {"a\n$ include \"body\"\n${nothing}\n", "b\n",
         "templates/toy.cu.in:3: undefined name 'nothing'"},
        {"a\n$ include \"body\"\n", "b\n$ for\n$ end\n",
         "templates/parts/body.in:3: <name> expected near 'end'"},
        {"a\n$ local x = = 1\n", NULL, "templates/toy.cu.in:2: unexpected symbol near '='"},
        {"a\n${}\n", NULL, "templates/toy.cu.in:2: unexpected symbol near ')'"},
        {"a\n$ error('enough')\n", NULL, "templates/toy.cu.in:2: enough"},
        {"${stages + list}\n", NULL,
         "templates/toy.cu.in:1: attempt to perform arithmetic on a table "
         "value (global 'list')"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        wl_gen *gen;
        wl_buf out = {0};
        CHECK_INT(toy_open(&gen, (toy_files){.cu = rows[i].cu, .body = rows[i].body}), WL_OK);
        if (!gen) continue;
        CHECK_FAIL(wl_gen_call(gen, "source", NAME, &out), WL_ESPEC, rows[i].message);
        CHECK_INT(out.size, 0);
        wl_gen_close(gen);
    }
}

/* Nothing that differs from run to run, or reaches out of the box. */
TEST(the_box_is_closed) {
    static const char *const names[] = {
        "pairs",   "next",   "io",           "os",           "debug", "package",
        "require", "load",   "loadfile",     "dofile",       "print", "collectgarbage",
        "rawget",  "rawset", "setmetatable", "getmetatable", "pcall", "_G"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        wl_gen *gen;
        wl_buf out = {0};
        char *cu = wl_format("a\n$ local x = %s\n", names[i]);
        char *text = wl_format("templates/toy.cu.in:2: undefined name '%s'", names[i]);
        CHECK_INT(toy_open(&gen, (toy_files){.cu = cu}), WL_OK);
        if (gen) CHECK_FAIL(wl_gen_call(gen, "source", NAME, &out), WL_ESPEC, text);
        wl_gen_close(gen);
        free(cu);
        free(text);
    }
    check_render("${tostring(math.random)} ${tostring(math.randomseed)} ${tostring(string.dump)}\n",
                 NULL, "nil nil nil\n", "templates/toy.cu.in:1\n");
}

/* What a template assigns is gone in the next render. */
TEST(renders_are_independent) {
    wl_gen *gen;
    CHECK_INT(toy_open(&gen, (toy_files){.cu = "$ leak = 5\n${leak}\n"}), WL_OK);
    CHECK_STR(ask(gen, "source", NAME), "5\n");
    wl_gen_close(gen);
    CHECK_INT(
        toy_open(&gen,
                 (toy_files){.cu = "$ if mask == 'none' then\n    $ leak = 5\n$ end\n${leak}\n"}),
        WL_OK);
    CHECK_STR(ask(gen, "source", NAME), "5\n");
    CHECK_STR(ask(gen, "source", "toy_d32_causal_m64n64_s4_exact"),
              "templates/toy.cu.in:4: undefined name 'leak'");
    wl_gen_close(gen);
}
