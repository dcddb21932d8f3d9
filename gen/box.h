/* box.h - a Lua state for the scripts of strangers: few functions, capped memory, work and time.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_BOX_H
#define WL_BOX_H

#include <lua.h>
#include <stddef.h>
#include <stdint.h>

/* What one question to the generator may cost. A step is about one instruction of Lua's machine;
   library functions pay for the bytes they look at and make, memory for being asked for. Seconds
   are of this thread's own time: only a comparison of long strings needs them, which is one step
   whatever their length. */
typedef struct wl_box_limits {
    size_t memory;  /* bytes of all that lives at a time */
    size_t string;  /* bytes of one string */
    int64_t steps;
    double seconds;
} wl_box_limits;
extern const wl_box_limits wl_box_usual;

/* A state with the whitelist of functions and nothing else: no file, process, clock, random number,
   address or bytecode can be had by them. Aborts when there is no memory for an empty one. The
   limits are looked at on every use and belong to the caller. */
lua_State *wl_box_open(const wl_box_limits *limits);
void wl_box_close(lua_State *L);

/* Calls function(argument as light userdata), protected, in the C locale, with nothing spent yet.
   LUA_OK, or the error's object alone is on the stack. */
int wl_box_call(lua_State *L, lua_CFunction function, void *argument);

/* Takes steps off what is left; raises when nothing is. */
void wl_box_pay(lua_State *L, size_t steps);
#define WL_BOX_BYTES 64 /* that are looked at or copied in a step's time */

/* match.c: string.find, match, gmatch and gsub as Lua's manual has them, that pay for each step. */
int wl_match_find(lua_State *L);
int wl_match_match(lua_State *L);
int wl_match_gmatch(lua_State *L);
int wl_match_gsub(lua_State *L);

#endif
