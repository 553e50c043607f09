/*
 * Lowering: turns the statements of one function into instructions over virtual registers. lower.c has what all
 * instructions share and the regular ones, lower_memory.c loads, stores, atomics and addresses,
 * lower_flow.c branches, calls and what a warp does together, texture_insn.c textures and surfaces, video.c the video
 * instructions. slots.c then gives the registers their places; before that, lower_memory.c finds accesses with a common
 * base.
 */
#ifndef FLYT_SOFTGPU_PTX_LOWER_H
#define FLYT_SOFTGPU_PTX_LOWER_H

#include "cpu/softgpu/ptx/code.h"

enum ptx_vop_kind { PTX_VOP_NONE, PTX_VOP_VREG, PTX_VOP_CONST };

/* An operand: a virtual register, or the offset of a constant in the pool. */
struct ptx_vop {
    enum ptx_vop_kind kind;
    uint32_t index;
};

enum ptx_ending { PTX_ENDS_NOT, PTX_ENDS_FALL, PTX_ENDS_BRANCH, PTX_ENDS_JUMP, PTX_ENDS_TABLE, PTX_ENDS_STOP };

/* An instruction over virtual registers. */
struct ptx_vinsn {
    ptx_exec_fn *exec;
    struct ptx_vop op[PTX_OPS_MAX];
    uint8_t definitions; /* bit i: op[i] is written */
    bool is_conditional; /* a guard precedes it: what it writes may keep its old value */
    bool is_first;       /* first of its statement: counts as an instruction */
    bool may_wait;       /* talks to other threads: a loop around it may wait for one of them */
    enum ptx_ending ending;
    const char *label;                   /* of BRANCH and JUMP */
    const struct ptx_label_list *labels; /* of TABLE */
    int64_t imm;
    const struct ptx_call *call;
    uint16_t aux;
    uint8_t extra, flags;
    ptx_exec_fn *exec_kept; /* of loads and stores that can use a base which another has kept: how; else NULL */
    uint8_t access_bytes;   /* of those: what a lane moves */
    uint8_t base;           /* in struct ptx_insn */
    unsigned line;
};

struct ptx_label {
    size_t index; /* of the virtual instruction it stands before */
};

/* State of compiling one module; `function` and below, of one function. */
struct ptx_lower {
    struct ptx_build *build;
    struct flyt_ptx_module *module;
    struct ptx_ir *ir;
    struct ptx_map ops; /* key → struct ptx_op_row */
    struct ptx_map constant_offsets;
    char *constants; /* the pool so far */
    size_t constants_bytes, constants_capacity;
    struct ptx_relocation *relocations;
    size_t relocation_count, relocation_capacity;

    struct ptx_function *function;
    const uint32_t *shared_offset; /* of a kernel: known places of shared variables; NULL in other functions */
    const struct ptx_statement *statement;
    struct ptx_vinsn *vinsns;
    size_t vinsn_count, vinsn_capacity;
    struct ptx_map labels;   /* → struct ptx_label */
    uint32_t *places;        /* byte offset in the frame of each virtual register */
    uint32_t register_bytes; /* of the frame, a multiple of 64 */
};

/* Lowers all statements of lower->function into lower->vinsns. */
void flyt_ptx_lower_function(struct ptx_lower *lower);

/* ---- shared by the parts ---- */

void *flyt_ptx_lower_scratch(struct ptx_lower *lower, size_t bytes);
/* The current statement is refused: not supported, or (invalid) wrong. */
void flyt_ptx_lower_unsupported(struct ptx_lower *lower) __attribute__((noreturn));
void flyt_ptx_lower_invalid(struct ptx_lower *lower, const char *why) __attribute__((noreturn));

bool flyt_ptx_lower_has(const struct ptx_lower *lower, const char *modifier);
/* The last modifier as a type; the statement is refused when it is none. */
const struct ptx_type *flyt_ptx_lower_type(struct ptx_lower *lower);
/* Operand i of the statement; refused when there is none. */
const struct ptx_operand *flyt_ptx_lower_operand(struct ptx_lower *lower, unsigned i);

struct ptx_vop flyt_ptx_lower_temp(struct ptx_lower *lower, uint8_t bytes);
struct ptx_vop flyt_ptx_lower_constant(struct ptx_lower *lower, uint64_t bits, uint8_t bytes);
/* The size of a register operand (0: predicate). */
uint8_t flyt_ptx_lower_register_bytes(struct ptx_lower *lower, const struct ptx_operand *operand);
/* The register as an operand. */
static inline struct ptx_vop flyt_ptx_lower_vreg(uint32_t index)
{
    return (struct ptx_vop){PTX_VOP_VREG, index};
}
/* A value of from_bytes as one of bytes: cut off, or extended. */
struct ptx_vop flyt_ptx_lower_resize(struct ptx_lower *lower, struct ptx_vop from, uint8_t from_bytes, uint8_t bytes,
                                     bool is_signed);
/*
 * An operand as a source of `bytes` (0: predicate): registers of another size are cut or zero-extended (sign-extended
 * with is_signed), numbers become constants (of a float: is_float), names become addresses or special registers.
 */
struct ptx_vop flyt_ptx_lower_source(struct ptx_lower *lower, const struct ptx_operand *operand, uint8_t bytes,
                                     bool is_float, bool is_signed);
struct ptx_vop flyt_ptx_lower_pred(struct ptx_lower *lower, const struct ptx_operand *operand);
/* Where a result of `bytes` goes: the register itself, or a temporary when it is wider or there is none. */
struct ptx_vop flyt_ptx_lower_destination(struct ptx_lower *lower, const struct ptx_operand *operand, uint8_t bytes);
/* As the above, of a register of just `bytes`: for results that are not widened or cut. */
struct ptx_vop flyt_ptx_lower_exact_destination(struct ptx_lower *lower, const struct ptx_operand *operand,
                                                uint8_t bytes);
/* Completes a destination: widens the temporary into the register. To be called after the instruction. */
void flyt_ptx_lower_finish(struct ptx_lower *lower, const struct ptx_operand *operand, struct ptx_vop written,
                           uint8_t bytes, bool is_signed);

/* Adds an instruction that always runs (it computes into temporaries only). */
struct ptx_vinsn *flyt_ptx_lower_emit(struct ptx_lower *lower, ptx_exec_fn *exec);
/* Adds an instruction under the statement's guard. */
struct ptx_vinsn *flyt_ptx_lower_emit_guarded(struct ptx_lower *lower, ptx_exec_fn *exec);
/*
 * The same for one with more operands than an instruction holds: sources first, then results. Those that do not fit
 * into op[] are in the op[] of instructions behind it, which do nothing: see ptx_wide_operand. The instruction must
 * read all sources before it writes a result, as they may share places. Returns the one that executes.
 */
struct ptx_vinsn *flyt_ptx_lower_emit_wide(struct ptx_lower *lower, ptx_exec_fn *exec, const struct ptx_vop *ops,
                                           unsigned source_count, unsigned result_count);
/* The row of a regular instruction; refused when there is none. */
const struct ptx_op_row *flyt_ptx_lower_row(struct ptx_lower *lower, const char *key);
/* Adds a regular instruction by key: d = op(a, b). b may be PTX_VOP_NONE. Guarded as asked. */
void flyt_ptx_lower_emit_op(struct ptx_lower *lower, const char *key, struct ptx_vop d, struct ptx_vop a,
                            struct ptx_vop b, bool is_guarded);
/* A label that no text can name. */
const char *flyt_ptx_lower_new_label(struct ptx_lower *lower);
void flyt_ptx_lower_place_label(struct ptx_lower *lower, const char *label);

/* ---- addresses: lower_memory.c ---- */

/* An address operand taken apart: a fixed place of the frame or the parameters, or a base and an offset. */
struct ptx_place {
    enum ptx_space space;
    bool is_fixed;  /* `offset` is all: in the frame (LOCAL) or the parameter buffer (PARAM) */
    bool is_narrow; /* the base has 32 bits */
    struct ptx_vop base;
    int64_t offset;
};

/* Takes apart the operand of an access of `bytes`. may_be_narrow: the instruction can do with a base of 32 bits. */
struct ptx_place flyt_ptx_lower_place(struct ptx_lower *lower, const struct ptx_operand *operand, enum ptx_space space,
                                      uint64_t bytes, bool may_be_narrow);
/* Whether the modifier names a space of memory, which is then *space. */
bool flyt_ptx_lower_take_space(const char *modifier, enum ptx_space *space);
/* The `count` registers of {a, b, …}, or the single one; refused when there are more or fewer. */
const struct ptx_operand *flyt_ptx_lower_vector(struct ptx_lower *lower, const struct ptx_operand *operand,
                                                unsigned count);

/* cp.async.mbarrier.arrive: lower_flow.c. */
void flyt_ptx_lower_copies_arrive(struct ptx_lower *lower);

/* An instruction that is not regular: its operation and what lowers it. */
struct ptx_lowering {
    const char *operation;
    void (*lower)(struct ptx_lower *lower);
};
/* Each ends with a NULL operation. */
extern const struct ptx_lowering flyt_ptx_memory_lowerings[], flyt_ptx_flow_lowerings[], flyt_ptx_video_lowerings[],
    flyt_ptx_matrix_lowerings[], flyt_ptx_texture_lowerings[];

/* Loads and stores behind one with the same base use what it finds out: sets base and flags of lower->vinsns. */
void flyt_ptx_lower_share_bases(struct ptx_lower *lower);

/* ---- slots.c ---- */

/*
 * Splits the lowered function into blocks and gives every virtual register a place in the frame, shared between
 * registers that are never alive together: fills lower->places and lower->register_bytes.
 */
void flyt_ptx_slots_assign(struct ptx_lower *lower);
/* Writes the final form of lower->vinsns to insns[0 … lower->vinsn_count). */
void flyt_ptx_slots_encode(struct ptx_lower *lower, struct ptx_insn *insns);

#endif
