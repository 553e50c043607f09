#include "cpu/softgpu/ptx/warp.h"

#include <stdlib.h>
#include <string.h>

enum {
    SPINS_PER_TURN = 64, /* turns of a waiting loop before another group of the warp, or another warp, goes */
    FAIR_BLOCKS = 512,   /* how long a group that was put forward keeps running */
    FRAMES_DEPTH_MAX = 100000,
};

static const size_t frames_bytes_max = 256u << 20; /* register frames of one warp */

#define NO_LIMIT ((const struct ptx_insn *)UINTPTR_MAX)

const struct ptx_insn *flyt_ptx_warp_fault(struct ptx_warp *w, CUresult result)
{
    int expected = CUDA_SUCCESS;

    atomic_compare_exchange_strong(&w->run->result, &expected, (int)result);
    return NULL;
}

/* ---- frames ---- */

struct ptx_frame *flyt_ptx_frame_new(struct ptx_warp *w, const struct ptx_code *code, struct ptx_frame *caller)
{
    size_t bytes = (sizeof(struct ptx_frame) + code->register_bytes + 63) & ~(size_t)63;
    uint32_t base = caller ? caller->local_top : 0;
    struct ptx_frame *frame;

    if (base + (uint64_t)code->local_bytes > w->run->stack_bytes || w->frame_bytes_total + bytes > frames_bytes_max ||
        (caller && caller->depth >= FRAMES_DEPTH_MAX))
        return NULL;
    frame = caller ? NULL : w->root;
    if (!frame)
        frame = aligned_alloc(64, bytes);
    if (!frame)
        return NULL;
    memset(frame, 0, bytes);
    frame->caller = caller;
    if (caller)
        caller->references++;
    else
        w->root = frame;
    frame->code = code;
    frame->references = 1;
    frame->depth = caller ? caller->depth + 1 : 0;
    frame->local_base = base;
    frame->local_top = base + code->local_bytes;
    frame->bytes = bytes;
    w->frame_bytes_total += bytes;
    return frame;
}

void flyt_ptx_frame_unref(struct ptx_warp *w, struct ptx_frame *frame)
{
    while (frame && --frame->references == 0) {
        struct ptx_frame *caller = frame->caller;

        w->frame_bytes_total -= frame->bytes;
        if (caller)
            free(frame);
        frame = caller;
    }
}

/* ---- groups ---- */

static void load_group(struct ptx_warp *w, unsigned index)
{
    const struct ptx_group *group = &w->groups[index];

    w->current = index;
    w->active = w->mask = group->lanes;
    w->lane_count = ptx_lane_count(group->lanes);
    w->frame = group->frame;
    w->base[0] = group->frame->registers;
}

static void remove_group(struct ptx_warp *w, unsigned index)
{
    flyt_ptx_frame_unref(w, w->groups[index].frame);
    w->groups[index] = w->groups[--w->group_count];
    if (w->current == w->group_count)
        w->current = index;
}

/* Joins groups that are at the same place. One that waited there for others is runnable again. */
static void merge_groups(struct ptx_warp *w)
{
    for (unsigned i = 0; i < w->group_count; i++)
        for (unsigned j = i + 1; j < w->group_count;) {
            struct ptx_group *a = &w->groups[i], *b = &w->groups[j];

            if (a->pc != b->pc || a->frame != b->frame || a->state == PTX_GROUP_AT_BARRIER ||
                b->state == PTX_GROUP_AT_BARRIER) {
                j++;
                continue;
            }
            a->lanes |= b->lanes;
            a->state = PTX_GROUP_RUNNABLE;
            if (w->current == j)
                w->current = i;
            remove_group(w, j);
        }
}

/* Deepest call first, then the smallest program counter. */
static bool goes_before(const struct ptx_group *a, const struct ptx_group *b)
{
    return a->frame->depth != b->frame->depth ? a->frame->depth > b->frame->depth : a->pc < b->pc;
}

static int pick_group(const struct ptx_warp *w)
{
    int best = -1;

    for (unsigned i = 0; i < w->group_count; i++)
        if (w->groups[i].state == PTX_GROUP_RUNNABLE && (best < 0 || goes_before(&w->groups[i], &w->groups[best])))
            best = (int)i;
    return best;
}

/* Nothing can run, but lanes wait for others of their warp that will never come: let them go on without. */
static int force_group(struct ptx_warp *w)
{
    for (unsigned i = 0; i < w->group_count; i++)
        if (w->groups[i].state == PTX_GROUP_AT_WARP_SYNC) {
            w->groups[i].state = PTX_GROUP_RUNNABLE;
            w->is_forced = true;
            return (int)i;
        }
    return -1;
}

/* The lowest instruction at which another group of the same depth waits: beyond it the current one may not run on. */
static void set_limit(struct ptx_warp *w)
{
    w->limit = NO_LIMIT;
    if (w->fair_blocks > 0 && w->group_count > 1)
        w->limit = NULL;
    for (unsigned i = 0; i < w->group_count; i++)
        if (i != w->current && w->groups[i].state != PTX_GROUP_AT_BARRIER && w->groups[i].pc < w->limit &&
            w->groups[i].frame->depth >= w->frame->depth)
            w->limit = w->groups[i].pc;
}

const struct ptx_insn *flyt_ptx_warp_switch(struct ptx_warp *w)
{
    int picked = -1;

    if (w->group_count == 1 && w->groups[0].state == PTX_GROUP_RUNNABLE) { /* as most often */
        load_group(w, 0);
        w->limit = NO_LIMIT;
        return w->groups[0].pc;
    }
    if (w->group_count > 1)
        merge_groups(w);
    if (w->fair_blocks > 0 && w->current < w->group_count && w->groups[w->current].state == PTX_GROUP_RUNNABLE)
        picked = (int)w->current;
    else
        w->fair_blocks = 0;
    if (picked < 0)
        picked = pick_group(w);
    if (picked < 0)
        picked = force_group(w);
    if (picked < 0)
        return NULL;
    load_group(w, (unsigned)picked);
    set_limit(w);
    return w->groups[picked].pc;
}

/* The next runnable group after the current one in turn, which then runs a while even though it is ahead. */
static void put_next_forward(struct ptx_warp *w)
{
    for (unsigned step = 1; step <= w->group_count; step++) {
        unsigned index = (w->current + step) % w->group_count;

        if (w->groups[index].state == PTX_GROUP_RUNNABLE) {
            w->current = index;
            w->fair_blocks = FAIR_BLOCKS;
            return;
        }
    }
}

const struct ptx_insn *flyt_ptx_warp_leave(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_insn *next)
{
    w->groups[w->current].pc = next;
    if (w->group_count > 1 && w->fair_blocks > 0)
        w->fair_blocks--;
    if ((in->flags & PTX_INSN_SPINS) && ++w->spins >= SPINS_PER_TURN) {
        w->spins = 0;
        if (w->group_count > 1) {
            put_next_forward(w);
        }
        w->was_spinning = true;
        return NULL;
    }
    if (w->budget <= 0)
        return NULL;
    return w->group_count == 1 ? next : flyt_ptx_warp_switch(w);
}

void flyt_ptx_warp_split(struct ptx_warp *w, uint32_t lanes, const struct ptx_insn *pc)
{
    w->groups[w->current].lanes &= ~lanes;
    w->active &= ~lanes;
    w->lane_count = (uint32_t)__builtin_popcount(w->active);
    w->groups[w->group_count++] = (struct ptx_group){.pc = pc, .frame = w->frame, .lanes = lanes};
    w->frame->references++;
}

const struct ptx_insn *flyt_ptx_warp_wait(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t rest = w->active & ~w->mask;

    if (rest)
        flyt_ptx_warp_split(w, rest, in + 1);
    w->groups[w->current].pc = in;
    w->groups[w->current].state = PTX_GROUP_AT_WARP_SYNC;
    return flyt_ptx_warp_switch(w);
}

const struct ptx_insn *flyt_ptx_warp_drop(struct ptx_warp *w)
{
    remove_group(w, w->current);
    w->fair_blocks = 0;
    return w->group_count ? flyt_ptx_warp_switch(w) : NULL;
}

const struct ptx_insn *flyt_ptx_warp_exit(struct ptx_warp *w, const struct ptx_insn *next)
{
    uint32_t leaving = w->mask, rest = w->active & ~leaving;

    w->live &= ~leaving;
    w->block->live_threads -= ptx_lane_count(leaving);
    for (unsigned i = 0; i < w->group_count; i++) /* they may have waited for those that leave */
        if (w->groups[i].state == PTX_GROUP_AT_WARP_SYNC)
            w->groups[i].state = PTX_GROUP_RUNNABLE;
    flyt_ptx_block_check_barriers(w->block);
    w->groups[w->current].lanes = rest;
    if (!rest)
        return flyt_ptx_warp_drop(w);
    w->groups[w->current].pc = next;
    return flyt_ptx_warp_switch(w);
}

/* ---- the whole warp ---- */

bool flyt_ptx_warp_start(struct ptx_warp *w, const struct ptx_code *code, uint32_t lanes)
{
    struct ptx_frame *frame = flyt_ptx_frame_new(w, code, NULL);

    if (!frame)
        return false;
    w->base[1] = w->run->module->constants - 1;
    w->live = lanes;
    w->groups[0] = (struct ptx_group){.pc = code->entry, .frame = frame, .lanes = lanes};
    w->group_count = 1;
    w->current = 0;
    w->limit = NO_LIMIT;
    return true;
}

bool flyt_ptx_warp_is_runnable(const struct ptx_warp *w)
{
    bool has_waiting = false;

    for (unsigned i = 0; i < w->group_count; i++) {
        if (w->groups[i].state == PTX_GROUP_RUNNABLE)
            return true;
        has_waiting |= w->groups[i].state == PTX_GROUP_AT_WARP_SYNC;
    }
    return has_waiting;
}

void flyt_ptx_warp_run(struct ptx_warp *w)
{
    const struct ptx_insn *in;

    w->was_spinning = false;
    in = flyt_ptx_warp_switch(w);
    while (in)
        in = in->exec(w, in);
}

void flyt_ptx_warp_fini(struct ptx_warp *w)
{
    while (w->group_count)
        remove_group(w, w->group_count - 1);
}
