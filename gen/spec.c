/* spec.c - YAML text to Lua values that know their line and column; the only user of libyaml.
   SPDX-License-Identifier: BSD-3-Clause */
#include "spec.h"

#include <lauxlib.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <yaml.h>

#include "base.h"

#define SIZE_LIMIT 1048576
#define DEPTH_LIMIT 32
#define EVENT_LIMIT 100000

typedef struct {
    lua_State *L;
    int errors; /* stack index of the list */
    yaml_parser_t parser;
    yaml_event_t event; /* the current one */
    int depth, events;
    bool dead; /* nothing after this can be trusted */
} reader;

static void add_error(reader *r, lua_Integer line, lua_Integer col, const char *text) {
    lua_State *L = r->L;
    lua_createtable(L, 0, 3);
    lua_pushinteger(L, line);
    lua_setfield(L, -2, "line");
    lua_pushinteger(L, col);
    lua_setfield(L, -2, "col");
    lua_pushstring(L, text);
    lua_setfield(L, -2, "text");
    lua_rawseti(L, r->errors, (lua_Integer)lua_rawlen(L, r->errors) + 1);
}

static void error_at(reader *r, yaml_mark_t mark, const char *text) {
    add_error(r, (lua_Integer)mark.line + 1, (lua_Integer)mark.column + 1, text);
}

static void die_at(reader *r, yaml_mark_t mark, const char *text) {
    if (!r->dead) error_at(r, mark, text);
    r->dead = true;
}

/* ---- characters: checked ahead, because libyaml gives only a byte's offset for them ---- */

/* What is wrong with a character; NULL if nothing. NEL, LS and PS would end a line for YAML and not
   for an editor. */
static const char *fault_of(int32_t code) {
    if (code < 0) return "not UTF-8";
    if (code == '\t') return "a tab: indent with blanks";
    if (code == 0xfeff) return "a byte order mark: save the file without it";
    bool line_end = code == '\n' || code == '\r';
    bool control = (code < 32 && !line_end) || (code >= 127 && code < 160);
    bool other = code == 0x2028 || code == 0x2029 || (code & 0xfffe) == 0xfffe;
    return control || other ? "a control character" : NULL;
}

/* What is wrong with a value in quotes, whose escapes can write any character; NULL if nothing. */
static const char *fault_within(const char *text, size_t size) {
    for (size_t at = 0; at < size;) {
        int32_t code = wl_utf8_next(text, size, &at);
        if (code == '\t' || code == '\r' || code == 0xfeff) return "a control character";
        if (fault_of(code)) return fault_of(code);
    }
    return NULL;
}

static bool check_characters(reader *r, const char *text, size_t size) {
    lua_Integer line = 1, col = 1;
    for (size_t at = 0; at < size;) {
        int32_t code = wl_utf8_next(text, size, &at);
        const char *fault = fault_of(code);
        if (fault) {
            add_error(r, line, col, fault);
            return false;
        }
        col = code == '\n' ? 1 : col + 1;
        line += code == '\n';
    }
    return true;
}

/* ---- events ---- */

static void next_event(reader *r) {
    yaml_event_delete(&r->event);
    memset(&r->event, 0, sizeof r->event);
    if (r->dead) return;
    if (++r->events > EVENT_LIMIT) {
        die_at(r, r->parser.mark, "too large: a spec has at most 100000 values");
    } else if (!yaml_parser_parse(&r->parser, &r->event)) {
        const char *text = lua_pushfstring(r->L, "not YAML: %s", r->parser.problem);
        die_at(r, r->parser.problem_mark, text);
        lua_pop(r->L, 1);
    }
}

static void check_properties(reader *r, const yaml_char_t *anchor, const yaml_char_t *tag) {
    if (anchor) error_at(r, r->event.start_mark, "an anchor: write the value out");
    if (tag) error_at(r, r->event.start_mark, "a tag: the schema knows every value's type");
}

static void begin_node(reader *r, const char *kind) {
    luaL_checkstack(r->L, 8, "spec");
    lua_createtable(r->L, 0, 5);
    lua_pushstring(r->L, kind);
    lua_setfield(r->L, -2, "kind");
}

static void set_place(lua_State *L, yaml_mark_t mark) {
    lua_pushinteger(L, (lua_Integer)mark.line + 1);
    lua_setfield(L, -2, "line");
    lua_pushinteger(L, (lua_Integer)mark.column + 1);
    lua_setfield(L, -2, "col");
}

static size_t characters(const char *text, size_t size) {
    size_t n = 0;
    for (size_t i = 0; i < size; i++) n += ((unsigned char)text[i] & 0xc0) != 0x80;
    return n;
}

static void push_scalar(reader *r) {
    const yaml_event_t *e = &r->event;
    const char *text = (const char *)e->data.scalar.value;
    size_t size = e->data.scalar.length;
    check_properties(r, e->data.scalar.anchor, e->data.scalar.tag);
    const char *fault = fault_within(text, size);
    if (fault) error_at(r, e->start_mark, fault);
    begin_node(r, "scalar");
    set_place(r->L, e->start_mark);
    lua_pushlstring(r->L, text, size);
    lua_setfield(r->L, -2, "text");
    size_t quote = e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE ? 0 : 1;
    if (e->start_mark.line == e->end_mark.line &&
        characters(text, size) + 2 * quote == e->end_mark.column - e->start_mark.column) {
        lua_pushinteger(r->L, (lua_Integer)(e->start_mark.column + quote) + 1);
        lua_setfield(r->L, -2, "start");
    }
    next_event(r);
}

static void push_node(reader *r);

static void push_list(reader *r) {
    check_properties(r, r->event.data.sequence_start.anchor, r->event.data.sequence_start.tag);
    begin_node(r, "list");
    set_place(r->L, r->event.start_mark);
    next_event(r);
    for (lua_Integer i = 1; !r->dead && r->event.type != YAML_SEQUENCE_END_EVENT; i++) {
        push_node(r);
        lua_rawseti(r->L, -2, i);
    }
    next_event(r);
}

/* Passes over a key that is none; its value follows as the current event. */
static bool refuse_key(reader *r, const char *text) {
    error_at(r, r->event.start_mark, text);
    push_node(r);
    lua_pop(r->L, 1);
    return false;
}

/* Pushes a pair without its value; false (and nothing pushed) if the key is no key. */
static bool push_key(reader *r, int places) {
    lua_State *L = r->L;
    const yaml_event_t *e = &r->event;
    const char *key = (const char *)e->data.scalar.value;
    if (e->type != YAML_SCALAR_EVENT) return refuse_key(r, "a key is a word");
    if (fault_within(key, e->data.scalar.length) || strchr(key, '\n'))
        return refuse_key(r, "a control character in a key");
    if (!strcmp(key, "<<")) return refuse_key(r, "a merge: write the values out, or use extends");
    check_properties(r, e->data.scalar.anchor, e->data.scalar.tag);
    lua_createtable(L, 0, 4);
    set_place(L, e->start_mark);
    lua_pushlstring(L, key, e->data.scalar.length);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, "key");
    lua_pushvalue(L, -1);
    if (lua_rawget(L, places) != LUA_TNIL) {
        error_at(r, e->start_mark,
                 lua_pushfstring(L, "'%s' is given twice, first at %s", key, lua_tostring(L, -1)));
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    lua_pushfstring(L, "%d:%d", (int)e->start_mark.line + 1, (int)e->start_mark.column + 1);
    lua_rawset(L, places);
    next_event(r);
    return true;
}

static void push_map(reader *r) {
    lua_State *L = r->L;
    check_properties(r, r->event.data.mapping_start.anchor, r->event.data.mapping_start.tag);
    lua_newtable(L); /* places: key → "line:col", under the node */
    begin_node(r, "map");
    set_place(L, r->event.start_mark);
    int node = lua_gettop(L);
    next_event(r);
    for (lua_Integer i = 1; !r->dead && r->event.type != YAML_MAPPING_END_EVENT;) {
        bool good = push_key(r, node - 1);
        push_node(r);
        if (good) {
            lua_setfield(L, -2, "value");
            lua_rawseti(L, node, i++);
        } else {
            lua_pop(L, 1);
        }
    }
    lua_remove(L, node - 1);
    next_event(r);
}

/* Pushes the node that begins at the current event, and moves behind it. */
static void push_node(reader *r) {
    const yaml_event_t *e = &r->event;
    if (++r->depth > DEPTH_LIMIT) die_at(r, e->start_mark, "nested too deeply: at most 32 levels");
    if (r->dead || e->type == YAML_ALIAS_EVENT) {
        if (!r->dead) error_at(r, e->start_mark, "an alias: write the value out");
        begin_node(r, "alias");
        set_place(r->L, e->start_mark);
        next_event(r);
    } else if (e->type == YAML_SEQUENCE_START_EVENT) {
        push_list(r);
    } else if (e->type == YAML_MAPPING_START_EVENT) {
        push_map(r);
    } else {
        push_scalar(r);
    }
    r->depth--;
}

/* Pushes the root of the only document, or nil. */
static void push_document(reader *r) {
    const yaml_event_t *e = &r->event;
    lua_pushnil(r->L);
    next_event(r);
    next_event(r);
    if (r->dead || e->type != YAML_DOCUMENT_START_EVENT) return;
    if (e->data.document_start.version_directive ||
        e->data.document_start.tag_directives.start != e->data.document_start.tag_directives.end)
        error_at(r, e->start_mark, "a directive: a spec needs none");
    lua_pop(r->L, 1);
    next_event(r);
    push_node(r);
    if (!r->dead) next_event(r);
    if (!r->dead && e->type == YAML_DOCUMENT_START_EVENT)
        die_at(r, e->start_mark, "a second document: a file is one spec");
}

/* Lua's errors free what is in the reader by this; nothing happens twice. */
static int drop(lua_State *L) {
    reader *r = lua_touserdata(L, 1);
    yaml_event_delete(&r->event);
    yaml_parser_delete(&r->parser);
    return 0;
}

static void push_root(reader *r, const char *text, size_t size) {
    if (!yaml_parser_initialize(&r->parser)) luaL_error(r->L, "not enough memory");
    yaml_parser_set_encoding(&r->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&r->parser, (const unsigned char *)text, size);
    push_document(r);
}

int wl_spec_yaml(lua_State *L) {
    size_t size;
    const char *text = luaL_checklstring(L, 1, &size);
    lua_settop(L, 1);
    reader *r = lua_newuserdatauv(L, sizeof *r, 0);
    memset(r, 0, sizeof *r);
    r->L = L;
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, drop);
    lua_setfield(L, -2, "__gc");
    lua_setmetatable(L, 2);
    lua_newtable(L);
    r->errors = 3;
    if (size > SIZE_LIMIT) add_error(r, 1, 1, "too large: a spec has at most 1048576 bytes");
    else if (check_characters(r, text, size)) push_root(r, text, size);
    if (r->dead || lua_gettop(L) == 3) lua_pushnil(L);
    lua_pushvalue(L, r->errors);
    return 2;
}
