/* ptx.h - what the files of the PTX front end share: opcodes, names, the entry being read.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_PTX_H
#define WL_SIM_PTX_H

#include "lex.h"
#include "program.h"

/* ---- memory of a module, freed with it (ptx.c) ---- */

typedef struct {
    struct sim_piece *last;
} sim_arena;
void *sim_take(sim_arena *a, size_t size); /* zeroed, 64-byte aligned */
char *sim_take_text(sim_arena *a, const char *text, size_t size);

/* ---- opcodes (forms.c) ---- */

/* An opcode as written, found among the forms, with what its words say. */
typedef struct {
    const sim_form *form;
    const char *text;
    uint32_t flags;
    uint8_t width, type, reduction, rounding;
    uint8_t vector; /* of .v2, .x4, .3d …; 0: none */
    sim_mma mma;
} sim_opcode;
/* False when no form has that name. */
bool form_read(const char *text, sim_opcode *out);

/* ---- names (names.c) ---- */

typedef enum {
    NAME_REGISTER,  /* value: its number */
    NAME_REGISTERS, /* prefix; value: number of the first, count */
    NAME_LABEL,     /* value: instruction */
    NAME_PARAM,     /* value: offset */
    NAME_SHARED,    /* value: index of the variable */
    NAME_GLOBAL,    /* known to be there, but not usable */
    NAME_OPCODE
} name_kind;
typedef struct {
    const char *text;
    uint32_t size, hash, next, scope;
    name_kind kind;
    uint32_t value, count;
    const sim_opcode *opcode;
} sim_name;
typedef struct {
    sim_name *name;
    uint32_t n, room, scope, buckets;
    uint32_t *bucket; /* 1-based heads; the innermost declaration comes first */
} sim_names;
void names_open(sim_names *t);
void names_close(sim_names *t);
void names_leave(sim_names *t); /* the innermost scope */
/* NULL when that name (and kind of name: prefix or whole) is there in this scope already. */
sim_name *names_add(sim_names *t, const lex_token *word, name_kind kind, uint32_t value);
const sim_name *names_find(const sim_names *t, const char *text, size_t size, bool prefix);

/* ---- an entry while it is read: registers are virtual (body.c, operands.c), then slots (live.c)
 * ---- */

typedef struct {
    const char *text; /* of the label */
    size_t size;
    uint32_t insn, scope;
    int line;
} sim_jump;
typedef struct {
    uint32_t size, align, offset;
    uint32_t entry; /* that it was placed for */
    bool dynamic;
} sim_variable;
typedef struct {
    uint64_t bits;
    uint32_t next; /* 1-based, same hash */
    uint32_t slot;
    bool wide;
} sim_constant;
typedef struct {
    uint64_t key; /* file, line, column of a .loc */
    int32_t line, caller;
} sim_place;

typedef struct {
    lexer lex;
    sim_arena *arena;
    sim_names names, opcodes; /* opcodes: those met */

    sim_program program;
    const sim_opcode *op; /* of the instruction being read, and its line */
    int line;
    sim_insn *insn;
    uint32_t n_insns, room;
    char *reg; /* i, l, h, p of each virtual register */
    uint32_t n_regs, reg_room;
    int32_t special[SIM_SPECIALS]; /* virtual registers */
    sim_constant *constant;
    uint32_t n_constants, constant_room, constant_slots;
    uint32_t constant_bucket[4096];
    sim_jump *jump;
    uint32_t n_jumps, jump_room;
    sim_variable *variable;
    uint32_t n_variables, variable_room;
    uint32_t shared_size, shared_align, entry;
    sim_place *place; /* hash table of .loc */
    uint32_t n_places, place_room;
    uint64_t own_file;
    int32_t source_line, caller_line;
} sim_front;

#define SIM_MOST_INSNS (1u << 18)
#define SIM_MOST_REGS (1u << 20)

/* `count` new virtual registers; the first one's number (body.c). */
int32_t front_registers(sim_front *f, char kind, uint32_t count);
void front_emit(sim_front *f, const sim_insn *insn);
void body_read(sim_front *f); /* after `{`, to the closing one */

/* Registers and literals (values.c). front_find: the register of that name, or SIM_NONE. The others
   fail for f->op; `*kind` is the letter that a form asks for (0: any), then what it is. */
int32_t front_find(const sim_front *f, const lex_token *word);
int32_t front_register(sim_front *f, const lex_token *word, char *kind);
int32_t front_literal(sim_front *f, char *kind);
int32_t front_special(sim_front *f, int which);
int32_t front_constant(sim_front *f, uint64_t bits, bool wide);
const char *front_kind(char kind); /* in words */
char front_base(char kind);        /* i for f */
/* The operands of f->op, whose guard is set (operands.c). */
void operands_read(sim_front *f, sim_insn *insn);

/* After .shared; .param; .global or .const: a variable and its `;` (values.c). */
typedef struct {
    lex_token word;
    uint32_t bytes, align, size;
    bool array;
} sim_declaration;
sim_declaration declaration_read(lexer *l);
void shared_read(sim_front *f, bool dynamic);
/* .local and the like may be there as long as nothing uses them. */
void unused_read(sim_front *f);
/* A new name of this scope; NULL and a fault: it is there. */
sim_name *front_declare(sim_front *f, const lex_token *word, name_kind kind, uint32_t value);
/* Bytes of a type in memory, kind of a register of it; 0 for none. */
typedef struct {
    const char *name;
    uint8_t bytes;
    char kind;
} sim_register_type;
sim_register_type type_find(const lex_token *word);

/* Virtual registers become slots (live.c). */
void live_allocate(sim_front *f);

#endif
