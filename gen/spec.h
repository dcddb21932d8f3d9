/* spec.h - YAML text to Lua values that know their line and column.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SPEC_H
#define WL_SPEC_H

#include <lua.h>

/* Lua: yaml(text) → root, errors. A node is {kind = "map"|"list"|"scalar", line, col} and
     map     {key, line, col, value = node} for each pair, in order
     list    a node for each item
     scalar  text; start = the column of its first character, or nil when text and file differ
             (escapes, several lines), so that a position inside it is unknown.
   errors is a list of {line, col, text} in order; root is nil when the text is no YAML at all.
   Strict: no anchors, aliases, tags, merges, directives, second documents, duplicate keys, keys
   that are not scalars, tabs, control characters; depth, size and events are limited. */
int wl_spec_yaml(lua_State *L);

#endif
