/* program.h - a kernel as the machine runs it: decoded instructions on numbered register slots.
   SPDX-License-Identifier: BSD-3-Clause */
#ifndef WL_SIM_PROGRAM_H
#define WL_SIM_PROGRAM_H

#include "sim.h"

/* A slot is one register of a warp: 32 lanes of 32 bits. A 64-bit register takes two neighbouring
   slots, seen as 32 lanes of 64 bits; no 32-bit register ever takes one of those. A predicate is a
   slot of 0 or ~0. A 16-bit register is a slot whose upper halves are 0. An operand < 0 is a
   constant: ~operand is a slot of the constant pool (the same value in every lane). Slots are
   reused: lifetimes by liveness, so a result may share its slot with a source of the same
   instruction; registers named by a wgmma keep theirs (pinned). What is read before it is written
   on some way to it shares its slot with nothing before: an unwritten lane of a slot is an
   unwritten register. */
#define SIM_LANES 32
#define SIM_NONE INT32_MIN /* no operand, no guard, `_` */

/* One row per PTX form; forms.def tells how names and operands are written. */
typedef struct {
    const char *name;     /* a pattern of the PTX opcode, e.g. "add{.u32|.s32}" */
    uint16_t op;          /* SIM_OP_…: several forms share one meaning */
    const char *operands; /* "": ptx.c has a reader of its own, or there are none */
    uint8_t results;
    bool synchronises;
    const char *section;  /* of the PTX ISA */
} sim_form;
extern const sim_form sim_forms[];
extern const int sim_n_forms;

/* ops.def says what each does and which operands it has. */
enum {
    SIM_OP_NONE,
#define OP(op) SIM_OP_##op,
#define WARP(op, act) OP(op)
#include "ops.def"
#undef OP
#undef WARP
    SIM_OPS
};

typedef enum { SIM_F16, SIM_BF16, SIM_E4M3, SIM_E5M2, SIM_F32, SIM_TF32 } sim_element;
static inline bool sim_is_fp8(int type) {
    return type == SIM_E4M3 || type == SIM_E5M2;
}

/* Of setp: NONE, AND, OR, XOR; of atom, red and reducing copies: all but NONE. */
typedef enum {
    SIM_RED_NONE, SIM_RED_ADD, SIM_RED_MIN, SIM_RED_MAX, SIM_RED_INC, SIM_RED_DEC,
    SIM_RED_AND, SIM_RED_OR, SIM_RED_XOR, SIM_RED_EXCH, SIM_RED_CAS
} sim_reduction;
/* The type that an opcode ends with. */
typedef enum {
    SIM_TYPE_NONE, SIM_TYPE_B, SIM_TYPE_U, SIM_TYPE_S, SIM_TYPE_F32, SIM_TYPE_F64,
    SIM_TYPE_F16, SIM_TYPE_BF16, SIM_TYPE_F16X2, SIM_TYPE_BF16X2
} sim_type;
typedef enum {
    SIM_ROUND_NONE, SIM_ROUND_NEAREST, SIM_ROUND_ZERO, SIM_ROUND_DOWN, SIM_ROUND_UP
} sim_round;

/* wgmma.mma_async and mma.sync. Lists in the instruction: d registers, then a registers (if in
   registers), then b registers (mma.sync only), then c registers (mma.sync only). */
typedef struct {
    uint16_t m, n, k;
    uint8_t a_type, b_type, d_type; /* sim_element */
    bool a_registers;
    bool transpose_a, transpose_b; /* MN-major in shared memory */
    int8_t scale_a, scale_b;       /* 1 or -1 */
} sim_mma;

typedef struct {
    /* What most need, 64 bytes. */
    uint16_t op;
    uint8_t results, operands;
    int32_t guard;         /* slot or SIM_NONE */
    int32_t operand[8];    /* results first */
    int64_t immediate;     /* offset of the first address; else as the op says */
    uint32_t flags;        /* SIM_FLAG_… */
    uint8_t width;         /* bytes of an element: load, store, atomic, reduction; of cp.async */
    uint8_t type, reduction, rounding; /* sim_type, sim_reduction, sim_round */
    bool negated;          /* guard is @!p */
    bool touches_wgmma;    /* an operand is a register that some wgmma names */
    bool unsure;           /* an operand is a register that may be read before it is written */
    uint8_t register_bytes; /* of a register in the list: 2, 4, 8 */
    uint16_t n_list;
    uint16_t list_results; /* how many of the list, from the first, are results */

    const int32_t *list;   /* registers beyond operand[]: vectors, coordinates, matrices */
    char kind[8];          /* of operand[]: i, l, h, p (forms.def); a list's: see register_bytes */
    uint32_t target;       /* of a branch: index of an instruction */
    uint16_t form;
    sim_mma mma;
    int32_t ptx_line;
    int32_t source_line; /* the innermost line, by .loc, of the entry's file; 0: unknown */
    int32_t caller_line; /* where that function was called, when it is inlined; 0 */
    const char *opcode;    /* as written, without operands */
} sim_insn;

enum {
    SIM_FLAG_UNIFORM = 1,     /* bra.uni */
    SIM_FLAG_MULTICAST = 2,   /* there is a 16-bit mask */
    SIM_FLAG_CACHE_HINT = 4,  /* there is a 64-bit policy, to be ignored */
    SIM_FLAG_CLUSTER = 8,     /* shared::cluster address */
    SIM_FLAG_TRANSPOSE = 16,  /* ldmatrix, stmatrix .trans */
    SIM_FLAG_READ = 32,       /* bulk wait_group.read */
    SIM_FLAG_ACQUIRE = 64, SIM_FLAG_RELEASE = 128,
    SIM_FLAG_SCOPE_GPU = 256, SIM_FLAG_SCOPE_CLUSTER = 512, /* gpu: also sys; neither: the block */
    SIM_FLAG_FTZ = 1024, SIM_FLAG_SAT = 2048,
    SIM_FLAG_SIGNED = 4096,   /* a load that sign-extends */
    SIM_FLAG_NEGATE = 8192,   /* the source predicate is written !p */
    SIM_FLAG_STRONG = 16384,  /* relaxed, acquire, release, volatile: no race with its like */
    SIM_FLAG_NAN = 32768, SIM_FLAG_RELU = 65536, SIM_FLAG_NOINC = 131072,
    SIM_FLAG_SC = 262144,     /* fence.sc */
    SIM_FLAG_ALIGNED = 524288, /* of a barrier: all lanes of the warp execute it together */
};

/* Special registers that a program reads have slots which the machine fills at a warp's start. */
#define SIM_SPECIAL_TABLE(X)                                                                       \
    X(TID_X, "%tid.x") X(TID_Y, "%tid.y") X(TID_Z, "%tid.z") X(NTID_X, "%ntid.x")                  \
    X(NTID_Y, "%ntid.y") X(NTID_Z, "%ntid.z") X(CTAID_X, "%ctaid.x") X(CTAID_Y, "%ctaid.y")        \
    X(CTAID_Z, "%ctaid.z") X(NCTAID_X, "%nctaid.x") X(NCTAID_Y, "%nctaid.y")                       \
    X(NCTAID_Z, "%nctaid.z") X(LANEID, "%laneid") X(WARPID, "%warpid") X(SMID, "%smid")            \
    X(CLUSTER_CTARANK, "%cluster_ctarank") X(CLUSTER_NCTARANK, "%cluster_nctarank")                \
    X(CLUSTERID_X, "%clusterid.x") X(CLUSTERID_Y, "%clusterid.y") X(CLUSTERID_Z, "%clusterid.z")   \
    X(NCLUSTERID_X, "%nclusterid.x") X(NCLUSTERID_Y, "%nclusterid.y")                              \
    X(NCLUSTERID_Z, "%nclusterid.z") X(CLUSTER_CTAID_X, "%cluster_ctaid.x")                        \
    X(CLUSTER_CTAID_Y, "%cluster_ctaid.y") X(CLUSTER_CTAID_Z, "%cluster_ctaid.z")                  \
    X(CLUSTER_NCTAID_X, "%cluster_nctaid.x") X(CLUSTER_NCTAID_Y, "%cluster_nctaid.y")              \
    X(CLUSTER_NCTAID_Z, "%cluster_nctaid.z") X(NWARPID, "%nwarpid") X(NSMID, "%nsmid")             \
    X(LANEMASK_EQ, "%lanemask_eq") X(LANEMASK_LE, "%lanemask_le") X(LANEMASK_LT, "%lanemask_lt")   \
    X(LANEMASK_GE, "%lanemask_ge") X(LANEMASK_GT, "%lanemask_gt")                                  \
    X(DYNAMIC_SMEM_SIZE, "%dynamic_smem_size") X(TOTAL_SMEM_SIZE, "%total_smem_size")
enum {
#define X(special, name) SIM_##special,
    SIM_SPECIAL_TABLE(X)
#undef X
    SIM_SHARED_BASE, /* address of the block's shared memory: variables are at this + offset */
    SIM_SPECIALS
};

/* The address of the parameter block, as generic address; parameter i is at this + its offset. An
   address of ld.param without a register is in the immediate. */
#define SIM_PARAM_BASE 0x7000000000000000u
/* Shared addresses of a block begin here (0 faults); bits 24.. hold its rank in the cluster. */
#define SIM_SHARED_START 1024u

struct sim_program {
    const char *name;  /* of the entry */
    const char *error; /* the form that is not known; NULL: it can run */
    const sim_insn *insn;
    int n_insns;
    const uint32_t *constants; /* [n_constants][32], 64-byte aligned */
    int n_constants, n_slots;
    int special[SIM_SPECIALS]; /* slot, or SIM_NONE when not read */
    const uint8_t *pinned;     /* [n_slots]: 1 for registers that a wgmma names */
    const uint8_t *unsure;     /* [n_slots]: 1 for those, and what may be read unwritten */
    uint32_t static_shared, shared_align; /* dynamic shared memory follows, aligned */
    int n_params;
    const uint32_t *param_offset, *param_size;
    uint32_t params_size;
    uint32_t max_threads;      /* of .maxntid or .reqntid; 0: not given */
    uint32_t required[3];      /* .reqntid; 0: not given */
    uint32_t cluster[3];       /* .reqnctapercluster; 0: not given */
    uint32_t max_registers;    /* .maxnreg; 0: not given */
    uint32_t min_blocks;       /* .minnctapersm; 0 */
};

/* One more element, not cleared; arrays double. */
#define SIM_PUSH(array, n, room)                                                                   \
    ((n) < (room)                                                                                  \
         ? &(array)[(n)++]                                                                         \
         : ((array) = wl_grow((array), ((room) = (room) ? 2 * (room) : 64) * sizeof *(array)),     \
            &(array)[(n)++]))

#endif
