/*
 * A warp at work: its lanes, the groups they have diverged into, their call frames; and the block around it.
 *
 * Lanes that are at the same instruction of the same call frame form a group and run together. A group is always in
 * one of the states below. Among the runnable ones the deepest call goes first, then the smallest program counter, so
 * that those behind catch up with those ahead and merge; a group that spins on another lane of its warp is put aside
 * after a while, so that every lane makes progress.
 *
 * A block and its warps belong to one worker thread at a time. Only struct ptx_run is shared between workers.
 */
#ifndef FLYT_SOFTGPU_PTX_WARP_H
#define FLYT_SOFTGPU_PTX_WARP_H

#include "cpu/softgpu/ptx/code.h"

/* Shared memory that cooperative groups count on in every block (cooperative_groups/details/memory.h). */
enum { PTX_RESERVED_SHARED_BYTES = 1024 };

enum { PTX_BARRIERS = 16, PTX_WARPS_MAX = 32 };

/*
 * Behind a barrier the warps of a block go on side by side for so many instructions, as they do on a GPU: one that
 * reads what others have written before the barrier, and then writes there itself without a second barrier, finds that
 * the others have read, too. (A block of instructions ends between a read of shared memory and a write behind it.)
 */
enum { PTX_LOCKSTEP_INSTRUCTIONS = 1024 };

/* One launch in flight: what all its blocks share. */
struct ptx_run {
    const struct flyt_ptx_launch *launch;
    const struct flyt_ptx_module *module;
    const struct ptx_kernel_code *kernel;
    const struct flyt_ptx_memory *memory;
    _Atomic int result;       /* CUresult: the first error wins; anything but success stops all blocks */
    uint32_t shared_bytes;    /* static, dynamic and reserved */
    uint32_t reserved_offset; /* in it: where static and dynamic ones end, and what the system has for itself begins */
    uint32_t stack_bytes;     /* local memory per lane, a multiple of 64 */
    uint64_t grid_id;
};

/* One activation of a function by the lanes that called it together. Shared by the groups they split into. */
struct ptx_frame {
    struct ptx_frame *caller; /* NULL: the kernel */
    const struct ptx_insn *return_to;
    const struct ptx_call *call;
    const struct ptx_code *code;
    uint32_t references; /* groups in this frame plus frames called from it */
    uint32_t depth;
    uint32_t local_base, local_top; /* stack of each lane: where this frame starts, where a callee's will */
    size_t bytes;
    _Alignas(64) char registers[];
};

enum ptx_group_state {
    PTX_GROUP_RUNNABLE,
    PTX_GROUP_AT_BARRIER,   /* until the block's barrier number `barrier` completes */
    PTX_GROUP_AT_WARP_SYNC, /* until other lanes arrive at the same instruction, or exit */
};

struct ptx_group {
    const struct ptx_insn *pc;
    struct ptx_frame *frame;
    uint32_t lanes;
    enum ptx_group_state state;
    uint8_t barrier;
    uint32_t result_op; /* bar.red: where its result goes; PTX_NO_OP: nowhere */
};

/* How the 32 addresses in a base register lie, for accesses of one width: see ptx_access.c. */
enum ptx_shape {
    PTX_CONSECUTIVE, /* lane i of a row is i × bytes behind the row's first lane */
    PTX_EQUAL,       /* all lanes of a row are at one place */
    PTX_IRREGULAR,   /* none of these, or not all lanes ran */
};

enum { PTX_ROW = 8, PTX_ROWS = PTX_LANES / PTX_ROW };

/* What is known of a base register's addresses; all but the shape only of regular ones. */
struct ptx_base {
    enum ptx_shape shape;
    uint64_t low, span_bytes; /* the least address, and how far the accesses reach from there */
    uint64_t room_bytes;      /* of 32-bit ones in shared memory: where the least address may be at most */
    uint64_t row[PTX_ROWS];   /* first address of each row, from low on */
};

struct ptx_warp {
    /* What every instruction touches. */
    char *base[2];                /* the frame's registers; one byte before the constants: see ptx_lanes */
    uint32_t mask;                /* lanes that execute this instruction: active, or those whose guard holds */
    uint32_t active;              /* lanes of the current group */
    const struct ptx_insn *limit; /* another group waits at or below this instruction; a block may not end beyond it */
    int64_t budget;               /* instructions left in the time slice */
    uint64_t warp_instructions, thread_instructions;
    uint32_t lane_count;     /* bits in active */
    struct ptx_frame *frame; /* of the current group */
    struct ptx_block *block;
    struct ptx_run *run;

    uint32_t live;  /* lanes that have not exited */
    uint32_t index; /* in the block */
    unsigned current, group_count;
    struct ptx_group groups[PTX_LANES];
    uint32_t spins;      /* backward branches of waiting loops, in this slice or the last short ones */
    int32_t fair_blocks; /* > 0: the current group keeps running, though others are behind it */
    bool is_forced;      /* the next warp-wide operation runs without the lanes that cannot come */
    bool was_spinning;   /* the last slice ended because of spins */
    int32_t lockstep;    /* > 0: instructions that the warp executes block by block, in turn with the others */
    uint32_t carry;      /* the carry flag of each lane */
    size_t frame_bytes_total;
    uint32_t barrier_lanes[PTX_BARRIERS]; /* lanes that have arrived */
    unsigned region;                      /* the memory region of the last access: a hint */
    struct ptx_base bases[PTX_BASES];     /* of accesses with PTX_INSN_KEEPS */

    /* What stays when the warp starts again in another block of the launch. */
    char *local;            /* lane i's stack: local + i × run->stack_bytes */
    struct ptx_frame *root; /* the kernel's frame; NULL: none yet */
    uint32_t tid[3][PTX_LANES];
};

struct ptx_barrier {
    uint32_t arrived_threads;
    uint32_t padding_threads;             /* lanes that complete a partly filled warp */
    uint32_t expected_threads;            /* 0: all that live */
    uint32_t true_threads, false_threads; /* bar.red */
    uint8_t reduction;                    /* enum ptx_reduction of the waiting bar.red */
};

enum ptx_reduction { PTX_REDUCE_NONE, PTX_REDUCE_AND, PTX_REDUCE_OR, PTX_REDUCE_COUNT };

struct ptx_block {
    struct ptx_run *run;
    uint32_t id[3];
    uint32_t sm;
    uint32_t warp_count, live_threads;
    uint32_t next_warp;  /* where the next slice begins */
    uint32_t idle_warps; /* visited in a row that had nothing to do but wait */
    char *shared;        /* run->shared_bytes */
    struct ptx_barrier barriers[PTX_BARRIERS];
    struct ptx_warp *warps;
    char *local; /* stacks of all warps */
    size_t local_bytes;
};

/* Executes the warp until its slice is over, it waits at a barrier or it has ended. */
void flyt_ptx_warp_run(struct ptx_warp *w);
/* Starts the warp at the kernel's first instruction with `lanes` of it. False: out of memory. */
bool flyt_ptx_warp_start(struct ptx_warp *w, const struct ptx_code *code, uint32_t lanes);
/* Frees what the warp's groups hold, for the warp to start again or to go. */
void flyt_ptx_warp_fini(struct ptx_warp *w);
/* True when the warp has a group that can run. */
bool flyt_ptx_warp_is_runnable(const struct ptx_warp *w);

/* ---- for the instructions ---- */

/* Ends the launch with an error; returns NULL, which leaves the warp. */
const struct ptx_insn *flyt_ptx_warp_fault(struct ptx_warp *w, CUresult result);
/* The slow part of ptx_leave. */
const struct ptx_insn *flyt_ptx_warp_leave(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_insn *next);
/* Picks a group and makes it current; the former current one's state is in w->groups. NULL when none can run. */
const struct ptx_insn *flyt_ptx_warp_switch(struct ptx_warp *w);
/* Makes a group of some of the current group's lanes, in the same frame; they leave the current group. */
void flyt_ptx_warp_split(struct ptx_warp *w, uint32_t lanes, const struct ptx_insn *pc);
/* Lanes in w->mask wait at `in` for others of the warp; the rest of the group goes on behind it. */
const struct ptx_insn *flyt_ptx_warp_wait(struct ptx_warp *w, const struct ptx_insn *in);
/* Lanes in w->mask end; the rest goes on at `next`. */
const struct ptx_insn *flyt_ptx_warp_exit(struct ptx_warp *w, const struct ptx_insn *next);
/* Drops the current group, whose lanes have all gone elsewhere, and switches. */
const struct ptx_insn *flyt_ptx_warp_drop(struct ptx_warp *w);
/* Releases one reference on a frame, and frees it and its callers as far as nothing needs them. */
void flyt_ptx_frame_unref(struct ptx_warp *w, struct ptx_frame *frame);
/* A new frame for `code`, its registers zero, one reference; NULL when memory or stack is used up (not a fault yet). */
struct ptx_frame *flyt_ptx_frame_new(struct ptx_warp *w, const struct ptx_code *code, struct ptx_frame *caller);
/* Barriers that the exit of threads has completed let their groups go. */
void flyt_ptx_block_check_barriers(struct ptx_block *block);

/* Ends a block of instructions: `next` is where the group goes on. */
static inline const struct ptx_insn *ptx_leave(struct ptx_warp *w, const struct ptx_insn *in,
                                               const struct ptx_insn *next)
{
    w->warp_instructions += in->count;
    w->thread_instructions += (uint64_t)in->count * w->lane_count;
    w->budget -= in->count;
    if (__builtin_expect(next < w->limit && w->budget > 0 && !(in->flags & PTX_INSN_SPINS), 1))
        return next;
    return flyt_ptx_warp_leave(w, in, next);
}

/* The lanes of an operand. Bit 0 of those that are constants is in their base. */
static inline void *ptx_lanes(const struct ptx_warp *w, uint32_t op)
{
    return w->base[op & 1] + op;
}

/* The lanes of operand i of an instruction that may have more than PTX_OPS_MAX. */
static inline void *ptx_wide_operand(const struct ptx_warp *w, const struct ptx_insn *in, unsigned i)
{
    return ptx_lanes(w, in[i / PTX_OPS_MAX].op[i % PTX_OPS_MAX]);
}

/* The lanes of an operand that is written. */
static inline void *ptx_register(const struct ptx_warp *w, uint32_t op)
{
    return w->base[0] + op;
}

/* Whether an operand is a constant: then it is the same in all lanes. */
static inline bool ptx_is_constant(uint32_t op)
{
    return op & 1;
}

/* The number of lanes in a mask, most often all. */
static inline uint32_t ptx_lane_count(uint32_t mask)
{
    return mask == PTX_ALL_LANES ? PTX_LANES : (uint32_t)__builtin_popcount(mask);
}

/* A predicate operand as a mask of lanes. */
static inline uint32_t ptx_pred(const struct ptx_warp *w, uint32_t op)
{
    return *(const uint32_t *)ptx_lanes(w, op);
}

static inline void ptx_set_pred(const struct ptx_warp *w, uint32_t op, uint32_t value)
{
    uint32_t *pred = ptx_register(w, op);

    *pred = (*pred & ~w->mask) | (value & w->mask);
}

/* For each lane of `mask`, lowest first. */
#define PTX_EACH_LANE(lane, mask)                                                                                      \
    for (uint32_t left_of_##lane = (mask), lane;                                                                       \
         left_of_##lane && (lane = (uint32_t)__builtin_ctz(left_of_##lane), 1); left_of_##lane &= left_of_##lane - 1)

#endif
