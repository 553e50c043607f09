/*
 * The instructions that are not regular, by the file that executes them. All are ptx_exec_fn: they run the lanes in
 * w->mask and return the next instruction or NULL. What each operand holds is told at the definition.
 */
#ifndef FLYT_SOFTGPU_PTX_EXEC_H
#define FLYT_SOFTGPU_PTX_EXEC_H

#include "cpu/softgpu/ptx/warp.h"

/* flow.c: prefixes, branches, calls. */
ptx_exec_fn flyt_ptx_exec_guard, flyt_ptx_exec_rounded, flyt_ptx_exec_operands;
ptx_exec_fn flyt_ptx_exec_fall, flyt_ptx_exec_jump, flyt_ptx_exec_branch, flyt_ptx_exec_branch_table;
ptx_exec_fn flyt_ptx_exec_call, flyt_ptx_exec_ret, flyt_ptx_exec_exit, flyt_ptx_exec_trap, flyt_ptx_exec_builtin;
ptx_exec_fn flyt_ptx_exec_alloca, flyt_ptx_exec_stack_save, flyt_ptx_exec_stack_restore;

/* print.c: the built-in functions of device code; ret: where a 64- or 32-bit result goes per lane. */
const struct ptx_insn *flyt_ptx_builtin_print(struct ptx_warp *w, const struct ptx_insn *in);
const struct ptx_insn *flyt_ptx_builtin_assert(struct ptx_warp *w, const struct ptx_insn *in);

/* special.c: special registers and addresses of variables. */
ptx_exec_fn flyt_ptx_exec_special32, flyt_ptx_exec_special64;
ptx_exec_fn flyt_ptx_exec_shared_address32, flyt_ptx_exec_shared_address64;
ptx_exec_fn flyt_ptx_exec_local_address32, flyt_ptx_exec_local_address64;
/* The number of a special register for the two above, or −1. */
int flyt_ptx_special_find(const char *name);

/* memory.c */
ptx_exec_fn flyt_ptx_exec_load_param, flyt_ptx_exec_load_frame, flyt_ptx_exec_store_frame;
ptx_exec_fn flyt_ptx_exec_fence, flyt_ptx_exec_prefetch, flyt_ptx_exec_is_space, flyt_ptx_exec_copy_async;
/*
 * Checks the access of `bytes` at a lane's address of `space`; its place in this process, or NULL after ending the
 * launch with the fault.
 */
char *flyt_ptx_address(struct ptx_warp *w, unsigned lane, enum ptx_space space, uint64_t address, unsigned bytes,
                       bool is_write);

/*
 * The place in this process of the `bytes` from an address of global, constant, shared or generic space on, all of
 * which may be used; NULL where they may not, or where the generic address is of another space. No fault.
 */
char *flyt_ptx_span(struct ptx_warp *w, enum ptx_space space, uint64_t address, uint64_t bytes, bool is_write);

/* The same of an address of shared memory, in that space or a generic one. Not NULL where `bytes` are all there. */
char *flyt_ptx_shared_address(struct ptx_warp *w, unsigned lane, enum ptx_space space, uint64_t address, unsigned bytes,
                              bool is_write);

/* memory.c: the atomic operation by its key, e.g. "add.u32"; NULL: none such. */
ptx_exec_fn *flyt_ptx_atomic_find(const char *key);

/* sync.c: what a warp or block does together. */
ptx_exec_fn flyt_ptx_exec_shuffle, flyt_ptx_exec_vote, flyt_ptx_exec_match, flyt_ptx_exec_activemask;
ptx_exec_fn flyt_ptx_exec_warp_barrier, flyt_ptx_exec_barrier, flyt_ptx_exec_redux, flyt_ptx_exec_elect;
ptx_exec_fn flyt_ptx_exec_nanosleep;
ptx_exec_fn flyt_ptx_exec_mbarrier_init, flyt_ptx_exec_mbarrier_invalidate, flyt_ptx_exec_mbarrier_arrive;
ptx_exec_fn flyt_ptx_exec_mbarrier_bytes, flyt_ptx_exec_mbarrier_wait;

/*
 * For instructions that the whole warp executes at once: false where lanes that have not exited are still elsewhere;
 * those in w->mask then wait for them here, and *ret_next is what the instruction returns.
 */
bool flyt_ptx_warp_gather(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_insn **ret_next);

/* What an mbarrier instruction does besides its arrival; in its extra. */
enum ptx_mbarrier {
    PTX_MBARRIER_DROPS = 1,   /* the following phases wait for as many fewer */
    PTX_MBARRIER_EXPECTS = 2, /* op[3] bytes more are to come */
    PTX_MBARRIER_PARITY = 4,  /* op[2] is the parity of a phase, not a state */
    PTX_MBARRIER_TRIES = 8,   /* try_wait: others may run meanwhile */
};

enum { PTX_MBARRIER_PENDING = 0xfffff }; /* of a state: the arrivals that were still awaited */

/* ---- textures and surfaces ---- */

/* Words of 32 bits behind the handle, at most: a layer, three coordinates, two gradients. */
enum { PTX_TEXTURE_WORDS_MAX = 10 };

enum ptx_texture_how { PTX_TEXTURE_BASE, PTX_TEXTURE_LEVEL, PTX_TEXTURE_GRADIENT, PTX_TEXTURE_GATHER };

/* tex and tld4. Wide operands: the handle; words: the layer, the coordinates, the level or the gradients; results. */
struct ptx_texture_insn {
    uint8_t how; /* enum ptx_texture_how */
    uint8_t dimensions;
    uint8_t has_layer, is_cube;
    uint8_t is_integer; /* coordinates */
    uint8_t channel;    /* of tld4 */
    uint8_t word_count, result_count;
};
_Static_assert(sizeof(struct ptx_texture_insn) == sizeof(int64_t), "fits into an instruction");

enum ptx_surface_op {
    PTX_SURFACE_LOAD,
    PTX_SURFACE_STORE,
    PTX_SURFACE_ADD,
    PTX_SURFACE_MIN,
    PTX_SURFACE_MAX,
    PTX_SURFACE_AND,
    PTX_SURFACE_OR,
};
enum ptx_surface_bound { PTX_SURFACE_TRAP, PTX_SURFACE_CLAMP, PTX_SURFACE_ZERO };

/* suld, sust and sured. Wide operands: the handle; words: the layer, x in bytes, or texels where it is formatted, other
 * coordinates; what is stored, or results. */
struct ptx_surface_insn {
    uint8_t op;    /* enum ptx_surface_op */
    uint8_t bound; /* enum ptx_surface_bound */
    uint8_t dimensions, has_layer;
    uint8_t element_bytes, is_signed;
    uint8_t element_count; /* 1, 2 or 4 */
    uint8_t is_formatted;  /* sust.p: each element is a channel, converted to the surface's format */
};
_Static_assert(sizeof(struct ptx_surface_insn) == sizeof(int64_t), "fits into an instruction");

enum ptx_texture_query {
    PTX_QUERY_WIDTH,
    PTX_QUERY_HEIGHT,
    PTX_QUERY_DEPTH,
    PTX_QUERY_TYPE,
    PTX_QUERY_ORDER,
    PTX_QUERY_NORMALIZED,
    PTX_QUERY_LAYERS,
    PTX_QUERY_LEVELS,
};

/* texture_insn.c: the object of a handle; NULL: none, or one of the other kind. */
const struct flyt_ptx_object *flyt_ptx_object_find(const struct ptx_warp *w, uint64_t handle, bool is_surface);
/* texture_insn.c; texture.c is of the files that are compiled for each instruction set, and has a row: "$texture". */
ptx_exec_fn flyt_ptx_exec_texture_query, flyt_ptx_exec_surface;

enum ptx_shuffle { PTX_SHUFFLE_UP, PTX_SHUFFLE_DOWN, PTX_SHUFFLE_BFLY, PTX_SHUFFLE_IDX };
enum ptx_vote { PTX_VOTE_ALL, PTX_VOTE_ANY, PTX_VOTE_UNI, PTX_VOTE_BALLOT };
enum ptx_redux {
    PTX_REDUX_ADD,
    PTX_REDUX_MIN_U,
    PTX_REDUX_MAX_U,
    PTX_REDUX_MIN_S,
    PTX_REDUX_MAX_S,
    PTX_REDUX_AND,
    PTX_REDUX_OR,
    PTX_REDUX_XOR
};
enum { PTX_BARRIER_WAITS = 16 }; /* in in->extra, beside enum ptx_reduction: sync and red; without: arrive */

#endif
