/* test_foreign.c - JSON and launch files: what is read, and each error at its place.
   SPDX-License-Identifier: BSD-3-Clause */
#include "test.h"

#include <stdlib.h>

#include "foreign.h"
#include "json.h"

static wl_status parse(const char *text) {
    json *v;
    wl_status status = json_parse("f", text, strlen(text), &v);
    json_free(v);
    return status;
}

TEST(json_values) {
    const char *text =
        "{\"a\": [1, -2.5e+3, true, false, null],\n \"\\u00e9\\n\\u20ac\": \"\\\"\"}";
    json *v;
    CHECK_INT(json_parse("f", text, strlen(text), &v), WL_OK);
    CHECK_INT(v->n, 2);
    CHECK_STR(v->child->child->next->text, "-2.5e+3");
    CHECK_INT(v->child->child->next->column, 11);
    const json *e = json_find(v, "é\n€");
    CHECK_STR(e ? e->text : NULL, "\"");
    CHECK_INT(e ? e->line : 0, 2);
    CHECK(!json_find(v, "b"));
    json_free(v);
    CHECK_INT(parse(" [] "), WL_OK);
    CHECK_INT(parse("{}"), WL_OK);
    CHECK_INT(parse("0"), WL_OK);
    CHECK_INT(parse("\"é€𝄞\""), WL_OK);
}

TEST(json_errors) {
    static const char *const bad[][2] = {
        {"", "f:1:1: expected a value"},
        {"tru", "f:1:1: expected a value"},
        {"[1", "f:1:3: expected ',' or ']'"},
        {"{\"a\": 1", "f:1:8: expected ',' or '}'"},
        {"{\"a\" 1}", "f:1:6: expected ':' behind the key"},
        {"{1: 2}", "f:1:2: expected a key in '\"'"},
        {"{\"a\": 1,\n  \"a\": 2}", "f:2:3: \"a\" is given twice"},
        {"[1,]", "f:1:4: expected a value"},
        {"\"a", "f:1:3: expected '\"' at the string's end"},
        {"\"a\n\"", "f:1:3: expected '\"' at the string's end"},
        {"\"a\xff\"", "f:1:3: expected UTF-8"},
        {"\"\xc3\"", "f:1:2: expected UTF-8"},
        {"\"\xed\xa0\x80\"", "f:1:2: expected UTF-8"},
        {"\"\\x\"", "f:1:3: expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"},
        {"\"\\u12\"", "f:1:6: expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"},
        {"\"\\u0000\"", "f:1:8: expected one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX"},
        {"01", "f:1:3: expected a number without leading zeros"},
        {"-", "f:1:2: expected a number without leading zeros"},
        {"1.", "f:1:3: expected a digit behind the '.'"},
        {"1e+", "f:1:4: expected a digit of the exponent"},
        {"1 2", "f:1:3: expected the end"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAIL(parse(bad[i][0]), WL_EINVAL, bad[i][1]);
    char deep[100];
    memset(deep, '[', sizeof deep);
    deep[99] = '\0';
    CHECK_FAIL(parse(deep), WL_EINVAL, "f:1:65: expected no more than 64 levels");
}

static wl_status launch(const char *text, foreign_launch *out) {
    return foreign_parse("l", text, strlen(text), out);
}

TEST(a_whole_launch) {
    foreign_launch l;
    CHECK_INT(
        launch("{\"entry\": \"k\", \"grid\": [2, 3], \"block\": [128], \"cluster\": [2],\n"
               "\"shared\": 1024, \"buffers\": {\"x\": {\"in\": \"x.npy\", \"out\": \"y.npy\"},\n"
               "\"y\": {\"shape\": [4, 8], \"type\": \"<f4\"}, \"z\": {\"bytes\": 12}},\n"
               "\"params\": [{\"pointer\": \"y\", \"offset\": 16}, {\"i8\": -128}, {\"u64\": "
               "18446744073709551615},\n{\"struct\": [{\"i32\": -5}, {\"f64\": 0.5}, "
               "{\"f32\": -2}, {\"map\": \"x\", \"type\": \"bf16\", \"dims\": [64, 10],\n"
               "\"strides\": [128], \"box\": [64, 8], \"element_strides\": [1, 2], "
               "\"swizzle\": \"128B\", \"fill\": \"nan\",\n"
               "\"interleave\": \"none\", \"offset\": 32}]}]}",
               &l),
        WL_OK);
    CHECK_STR(l.entry, "k");
    CHECK(l.grid[0] == 2 && l.grid[1] == 3 && l.grid[2] == 1 && l.cluster[0] == 2);
    CHECK_INT(l.shared, 1024);
    CHECK_INT(l.n_buffers, 3);
    CHECK_INT(l.buffer[1].bytes, 128);
    CHECK_INT(l.buffer[2].bytes, 12);
    CHECK_INT(l.n_params, 4);
    CHECK_INT(l.param[0].field[0].buffer, 1);
    CHECK_INT(l.param[0].field[0].bits, 16);
    CHECK_INT(l.param[1].size, 1);
    CHECK_INT(l.param[1].field[0].bits, -128);
    CHECK(l.param[2].field[0].bits == UINT64_MAX);
    const foreign_param *p = &l.param[3];
    CHECK_INT(p->size, 192);
    CHECK_INT(p->n_fields, 4);
    CHECK_INT(p->field[1].offset, 8);
    CHECK(p->field[1].bits == 0x3fe0000000000000);
    CHECK_INT(p->field[2].bits, 0xc0000000);
    CHECK_INT(p->field[3].offset, 64);
    const foreign_map *m = p->field[3].map;
    CHECK(m && m->type == 9 && m->rank == 2 && m->swizzle == 3 && m->fill == 1);
    CHECK(m && m->dims[1] == 10 && m->strides[0] == 128 && m->box[1] == 8);
    CHECK(m && m->element_strides[1] == 2 && p->field[3].bits == 32);
    foreign_free(&l);
}

#define HEAD "{\"entry\": \"k\", \"grid\": [1], \"block\": [32], "
#define BUFFER(text) HEAD "\n\"buffers\": {\"x\": " text "}}"
#define PARAM(text) HEAD "\"buffers\": {\"x\": {\"bytes\": 8}},\n\"params\": [" text "]}"
#define MAP(text) PARAM("{\"map\": \"x\", " text "}")
#define DIMS "\"type\": \"f32\", \"dims\": [8, 8], \"strides\": [32], \"box\": [8, 8]"

TEST(bad_launches) {
    static const char *const bad[][2] = {
        {"[]", "l:1:1: launch: expected an object, got an array"},
        {"{\"grid\": [1]}", "l:1:1: launch: \"entry\" is missing"},
        {"{\"entry\": \"k\"}", "l:1:1: launch: \"grid\" is missing"},
        {"{\"entry\": \"k\", \"grid\": [1]}", "l:1:1: launch: \"block\" is missing"},
        {"{\"entyr\": \"k\"}",
         "l:1:11: launch: unknown key 'entyr'; did you mean 'entry'?"},
        {"{\"xxxxxxxx\": 1}", "l:1:14: launch: unknown key 'xxxxxxxx'"},
        {"{\"entry\": 1, \"grid\": [1], \"block\": [1]}",
         "l:1:11: entry: expected a string, got a number"},
        {"{\"entry\": \"\", \"grid\": [1], \"block\": [1]}", "l:1:11: entry is empty"},
        {"{\"entry\": \"k\", \"grid\": 1, \"block\": [1]}",
         "l:1:24: grid: expected an array, got a number"},
        {"{\"entry\": \"k\", \"grid\": [], \"block\": [1]}",
         "l:1:24: grid: expected 1 to 3 numbers, got 0"},
        {"{\"entry\": \"k\", \"grid\": [1, 0], \"block\": [1]}",
         "l:1:28: grid: expected a whole number from 1 to 2147483647, got 0"},
        {"{\"entry\": \"k\", \"grid\": [1.5], \"block\": [1]}",
         "l:1:25: grid: expected a whole number from 1 to 2147483647, got 1.5"},
        {"{\"entry\": \"k\", \"grid\": [99999999999999999999], \"block\": [1]}",
         "l:1:25: grid: expected a whole number from 1 to 2147483647, got 99999999999999999999"},
        {HEAD "\"shared\": 232449}",
         "l:1:54: shared: expected a whole number from 0 to 232448, got 232449"},
        {HEAD "\"buffers\": []}", "l:1:55: buffers: expected an object, got an array"},
        {BUFFER("1"), "l:2:18: x: expected an object, got a number"},
        {BUFFER("{}"), "l:2:18: x: expected one of \"in\", \"shape\" and \"bytes\""},
        {BUFFER("{\"bytes\": 4, \"in\": \"f\"}"),
         "l:2:18: x: expected one of \"in\", \"shape\" and \"bytes\""},
        {BUFFER("{\"shape\": [4]}"), "l:2:18: x: \"shape\" and \"type\" go together"},
        {BUFFER("{\"bytes\": 4, \"type\": \"<f4\"}"),
         "l:2:18: x: \"shape\" and \"type\" go together"},
        {BUFFER("{\"bytes\": 4, \"out\": \"f\"}"),
         "l:2:18: x: \"out\" needs \"shape\" and \"type\""},
        {BUFFER("{\"bytes\": 0}"),
         "l:2:28: x: expected a whole number from 1 to 1099511627776, got 0"},
        {BUFFER("{\"shape\": [4], \"type\": \"f32\"}"),
         "l:2:41: x: expected a numpy type such as <f4, <f2, <u2, |u1, <i4; got 'f32'"},
        {BUFFER("{\"shape\": [1048576, 1048577], \"type\": \"<f4\"}"),
         "l:2:28: x: more than 2^40 elements"},
        {BUFFER("{\"byts\": 4}"), "l:2:27: x: unknown key 'byts'; did you mean 'bytes'?"},
        {HEAD "\"params\": {}}", "l:1:54: params: expected an array, got an object"},
        {PARAM("1"), "l:2:12: a parameter: expected an object, got a number"},
        {PARAM("{}"),
         "l:2:12: expected {\"pointer\": BUFFER}, {\"map\": BUFFER, …}, {\"struct\": […]} or one "
         "number: i8 u8 i16 u16 i32 u32 i64 u64 f32 f64"},
        {PARAM("{\"pointer\": \"y\"}"), "l:2:24: pointer: no buffer 'y'"},
        {HEAD "\"buffers\": {\"input\": {\"bytes\": 8}},\n\"params\": [{\"pointer\": \"imput\"}]}",
         "l:2:24: pointer: no buffer 'imput'; did you mean 'input'?"},
        {PARAM("{\"pointer\": 1}"), "l:2:24: pointer: expected a string, got a number"},
        {PARAM("{\"pointer\": \"x\", \"ofset\": 1}"),
         "l:2:38: pointer: unknown key 'ofset'; did you mean 'offset'?"},
        {PARAM("{\"i32\": 2147483648}"),
         "l:2:20: i32: expected a whole number from 0 to 2147483647, got 2147483648"},
        {PARAM("{\"i8\": -129}"),
         "l:2:19: i8: expected a whole number from -128 to 127, got -129"},
        {PARAM("{\"u16\": \"1\"}"), "l:2:20: u16: expected a number, got a string"},
        {PARAM("{\"f32\": 1e39}"), "l:2:20: f32: 1e39 is too large"},
        {PARAM("{\"f64\": true}"), "l:2:20: f64: expected a number, got true"},
        {PARAM("{\"struct\": 1}"), "l:2:23: struct: expected an array, got a number"},
        {PARAM("{\"struct\": [1]}"),
         "l:2:24: a value of a struct: expected an object, got a number"},
        {PARAM("{\"struct\": [], \"i32\": 1}"), "l:2:34: struct: unknown key 'i32'"},
        {MAP("\"dims\": [8]"), "l:2:12: map: \"type\" is missing"},
        {MAP("\"type\": \"f33\""),
         "l:2:33: type: expected one of u8, u16, u32, i32, u64, i64, f16, f32, f64, bf16, f32_ftz, "
         "tf32, tf32_ftz, got 'f33'"},
        {MAP("\"type\": \"f32\""), "l:2:12: map: \"dims\" is missing"},
        {MAP("\"type\": \"f32\", \"dims\": [8]"), "l:2:12: map: \"strides\" is missing"},
        {MAP("\"type\": \"f32\", \"dims\": [8], \"strides\": []"),
         "l:2:12: map: \"box\" is missing"},
        {MAP(DIMS ", \"element_strides\": [1]"),
         "l:2:107: element_strides: expected 2 numbers, got 1"},
        {MAP(DIMS ", \"swizzle\": 128"), "l:2:99: swizzle: expected a string, got a number"},
        {MAP(DIMS ", \"fill\": \"ones\""),
         "l:2:96: fill: expected one of zeros, nan, got 'ones'"},
        {MAP(DIMS ", \"interleave\": \"64B\""),
         "l:2:102: interleave: expected one of none, 16B, 32B, got '64B'"},
    };
    foreign_launch l;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK_FAIL(launch(bad[i][0], &l), WL_EINVAL, bad[i][1]);
    wl_buf text = {0};
    wl_buf_text(&text, PARAM("{\"struct\": ["));
    text.size -= 2; /* the closing brackets */
    for (int i = 0; i < 40; i++) wl_buf_printf(&text, "%s{\"map\": \"x\", " DIMS "}", i ? "," : "");
    wl_buf_text(&text, "]}]}");
    CHECK_FAIL(launch(text.data, &l), WL_EINVAL, "l:2:2456: struct: more than 4096 bytes");
    wl_buf_free(&text);
}
