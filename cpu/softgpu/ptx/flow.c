/* Prefixes, branches and calls. */
#include "cpu/softgpu/ptx/exec.h"

#include <fenv.h>
#include <string.h>

/* Guard: op[0] the predicate, aux how many instructions it covers. What follows sees the lanes left in w->mask. */
const struct ptx_insn *flyt_ptx_exec_guard(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t pred = ptx_pred(w, in->op[0]);
    uint32_t mask = w->active & (in->flags & PTX_INSN_NEGATED ? ~pred : pred);
    const struct ptx_insn *next;

    if (!mask)
        return in + 1 + in->aux;
    w->mask = mask;
    next = in[1].exec(w, in + 1);
    w->mask = w->active;
    return next;
}

/* Rounding prefix: aux is the mode of fesetround in which the next instruction runs. */
const struct ptx_insn *flyt_ptx_exec_rounded(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct ptx_insn *next;

    fesetround(in->aux);
    next = in[1].exec(w, in + 1);
    fesetround(FE_TONEAREST);
    return next;
}

/* Holds operands of the instruction before it, which passes over it; lanes that did not execute that one come here. */
const struct ptx_insn *flyt_ptx_exec_operands(struct ptx_warp *w, const struct ptx_insn *in)
{
    (void)w;
    return in + 1;
}

/* The block goes on into the next one. */
const struct ptx_insn *flyt_ptx_exec_fall(struct ptx_warp *w, const struct ptx_insn *in)
{
    return ptx_leave(w, in, in + 1);
}

const struct ptx_insn *flyt_ptx_exec_jump(struct ptx_warp *w, const struct ptx_insn *in)
{
    return ptx_leave(w, in, in->target);
}

/* op[0] the predicate. Where lanes disagree, those that jump become a group of their own. */
const struct ptx_insn *flyt_ptx_exec_branch(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t pred = ptx_pred(w, in->op[0]);
    uint32_t taken = w->active & (in->flags & PTX_INSN_NEGATED ? ~pred : pred);

    if (taken == w->active)
        return ptx_leave(w, in, in->target);
    if (!taken) {
        w->warp_instructions += in->count;
        w->thread_instructions += (uint64_t)in->count * w->lane_count;
        w->budget -= in->count;
        if (__builtin_expect(in + 1 < w->limit && w->budget > 0, 1))
            return in + 1;
        w->groups[w->current].pc = in + 1;
        return w->budget > 0 ? flyt_ptx_warp_switch(w) : NULL;
    }
    w->thread_instructions += (uint64_t)in->count * w->lane_count;
    w->warp_instructions += in->count;
    w->budget -= in->count;
    flyt_ptx_warp_split(w, taken, in->target);
    return flyt_ptx_warp_leave(w, in, in + 1);
}

/* brx.idx: op[0] the index (32 bits), op[1] the number of targets; lanes with one target stay together. */
const struct ptx_insn *flyt_ptx_exec_branch_table(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *index = ptx_lanes(w, in->op[0]);

    for (uint32_t left = w->active; left;) {
        uint32_t which = index[__builtin_ctz(left)], same = 0;

        if (which >= in->op[1])
            return flyt_ptx_warp_fault(w, CUDA_ERROR_INVALID_PC);
        PTX_EACH_LANE(lane, left)
        same |= (uint32_t)(index[lane] == which) << lane;
        if (same == w->active)
            return ptx_leave(w, in, in->table[which]);
        left &= ~same;
        if (left) {
            flyt_ptx_warp_split(w, same, in->table[which]);
            w->limit = NULL; /* which group goes on is looked at when this one leaves */
        } else {
            w->groups[w->current].pc = in->table[which];
        }
    }
    return ptx_leave(w, in, w->groups[w->current].pc);
}

/* ---- calls ---- */

static char *local_place(const struct ptx_warp *w, unsigned lane, uint64_t offset)
{
    return w->local + (size_t)lane * w->run->stack_bytes + offset;
}

/* Arguments go from the caller's frame of local memory to the callee's, which lies behind it. */
static const struct ptx_insn *enter(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_code *callee)
{
    const struct ptx_call *call = in->call;
    struct ptx_frame *caller = w->frame;
    struct ptx_frame *frame = flyt_ptx_frame_new(w, callee, caller);

    if (!frame)
        return flyt_ptx_warp_fault(w, CUDA_ERROR_LAUNCH_FAILED);
    frame->call = call;
    frame->return_to = in + 1;
    PTX_EACH_LANE(lane, w->active)
    for (uint32_t i = 0; i < call->arg_count; i++)
        memcpy(local_place(w, lane, frame->local_base + callee->param_offset[i]),
               local_place(w, lane, caller->local_base + call->arg_offset[i]), call->arg_bytes[i]);
    flyt_ptx_frame_unref(w, caller); /* the new frame holds it now */
    w->groups[w->current].frame = frame;
    w->frame = frame;
    w->base[0] = frame->registers;
    if (w->group_count > 1) { /* the limit counts groups of this depth */
        w->groups[w->current].pc = callee->entry;
        return flyt_ptx_warp_switch(w);
    }
    return callee->entry;
}

/* The callee that an address names, or NULL. Its signature must be the call's. */
static const struct ptx_code *find_callee(const struct ptx_warp *w, const struct ptx_call *call, uint64_t address)
{
    uint64_t index = (address - PTX_FUNCTION_BASE) / 16;
    const struct ptx_code *code;

    if (address % 16 || address < PTX_FUNCTION_BASE || index >= w->run->module->code_count)
        return NULL;
    code = &w->run->module->codes[index];
    if (code->param_count != call->arg_count || (call->result_bytes && code->result_bytes != call->result_bytes))
        return NULL;
    for (uint32_t i = 0; i < call->arg_count; i++)
        if (code->param_bytes[i] != call->arg_bytes[i])
            return NULL;
    return code;
}

/* op[0]: the address of the callee (64 bits), where call->callee is NULL. Lanes that call others wait their turn. */
const struct ptx_insn *flyt_ptx_exec_call(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct ptx_code *callee = in->call->callee;
    const uint64_t *address;
    uint32_t same = 0;
    unsigned first;

    w->warp_instructions += in->count;
    w->thread_instructions += (uint64_t)in->count * w->lane_count;
    w->budget -= in->count;
    if (!callee) {
        address = ptx_lanes(w, in->op[0]);
        first = (unsigned)__builtin_ctz(w->active);
        PTX_EACH_LANE(lane, w->active)
        same |= (uint32_t)(address[lane] == address[first]) << lane;
        callee = find_callee(w, in->call, address[first]);
        if (!callee)
            return flyt_ptx_warp_fault(w, CUDA_ERROR_INVALID_PC);
        if (same != w->active)
            flyt_ptx_warp_split(w, w->active & ~same, in);
    }
    return enter(w, in, callee);
}

/* Lanes in w->mask return; a kernel's end them. */
const struct ptx_insn *flyt_ptx_exec_ret(struct ptx_warp *w, const struct ptx_insn *in)
{
    struct ptx_frame *frame = w->frame;
    const struct ptx_call *call = frame->call;
    uint32_t rest = w->active & ~w->mask;

    w->warp_instructions += in->count;
    w->thread_instructions += (uint64_t)in->count * w->lane_count;
    w->budget -= in->count;
    if (!frame->caller)
        return flyt_ptx_warp_exit(w, in + 1);
    if (rest)
        flyt_ptx_warp_split(w, rest, in + 1);
    if (call->result_bytes)
        PTX_EACH_LANE(lane, w->mask)
    memcpy(local_place(w, lane, frame->caller->local_base + call->result_offset),
           local_place(w, lane, frame->local_base + frame->code->result_offset), call->result_bytes);
    w->groups[w->current].frame = frame->caller;
    w->groups[w->current].pc = frame->return_to;
    frame->caller->references++;
    flyt_ptx_frame_unref(w, frame);
    return w->budget > 0 ? flyt_ptx_warp_switch(w) : NULL;
}

const struct ptx_insn *flyt_ptx_exec_exit(struct ptx_warp *w, const struct ptx_insn *in)
{
    w->warp_instructions += in->count;
    w->thread_instructions += (uint64_t)in->count * w->lane_count;
    return flyt_ptx_warp_exit(w, in + 1);
}

const struct ptx_insn *flyt_ptx_exec_trap(struct ptx_warp *w, const struct ptx_insn *in)
{
    return flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_INSTRUCTION);
}

/* ---- built-in functions ---- */

static const struct ptx_insn *heap_call(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct ptx_call *call = in->call;
    const struct flyt_ptx_launch *launch = w->run->launch;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t argument, address = 0;

        memcpy(&argument, local_place(w, lane, w->frame->local_base + call->arg_offset[0]), sizeof argument);
        if (call->builtin == PTX_BUILTIN_FREE) {
            if (argument && launch->heap_free)
                launch->heap_free(launch->user, argument);
            continue;
        }
        if (launch->heap_alloc)
            address = launch->heap_alloc(launch->user, argument);
        if (call->result_bytes)
            memcpy(local_place(w, lane, w->frame->local_base + call->result_offset), &address, sizeof address);
    }
    return in + 1;
}

/* cudaGraphSetConditional(handle, value): what is no handle is an address that is none. */
static const struct ptx_insn *set_condition(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct ptx_call *call = in->call;
    const struct flyt_ptx_launch *launch = w->run->launch;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t handle;
        uint32_t value;

        memcpy(&handle, local_place(w, lane, w->frame->local_base + call->arg_offset[0]), sizeof handle);
        memcpy(&value, local_place(w, lane, w->frame->local_base + call->arg_offset[1]), sizeof value);
        if (!launch->set_condition || !launch->set_condition(launch->user, handle, value))
            return flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_ADDRESS);
    }
    return in + 1;
}

const struct ptx_insn *flyt_ptx_exec_builtin(struct ptx_warp *w, const struct ptx_insn *in)
{
    switch (in->call->builtin) {
    case PTX_BUILTIN_PRINT:
        return flyt_ptx_builtin_print(w, in);
    case PTX_BUILTIN_ASSERT:
        return flyt_ptx_builtin_assert(w, in);
    case PTX_BUILTIN_CONDITION:
        return set_condition(w, in);
    default:
        return heap_call(w, in);
    }
}

/* ---- dynamic stack ---- */

/*
 * alloca: op[0] the address (local space), op[1] bytes. The lanes of a group share one stack height, so the largest
 * request moves it for all.
 */
const struct ptx_insn *flyt_ptx_exec_alloca(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint64_t *result = ptx_lanes(w, in->op[0]);
    const uint64_t *bytes = ptx_lanes(w, in->op[1]);
    uint64_t most = 0, top = ((uint64_t)w->frame->local_top + 15) & ~15ull;

    PTX_EACH_LANE(lane, w->mask)
    most = bytes[lane] > most ? bytes[lane] : most;
    if (top > w->run->stack_bytes || most > w->run->stack_bytes - top)
        return flyt_ptx_warp_fault(w, CUDA_ERROR_LAUNCH_FAILED);
    w->frame->local_top = (uint32_t)(top + ((most + 15) & ~15ull));
    PTX_EACH_LANE(lane, w->mask)
    result[lane] = top;
    return in + 1;
}

const struct ptx_insn *flyt_ptx_exec_stack_save(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint64_t *result = ptx_lanes(w, in->op[0]);

    PTX_EACH_LANE(lane, w->mask)
    result[lane] = w->frame->local_top;
    return in + 1;
}

/* A frame that several groups share keeps its height: another group may be using what lies above. */
const struct ptx_insn *flyt_ptx_exec_stack_restore(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *saved = ptx_lanes(w, in->op[0]);
    uint64_t top = saved[__builtin_ctz(w->mask)];

    if (w->mask == w->live && w->group_count == 1 && top <= w->frame->local_top &&
        top >= w->frame->local_base + (uint64_t)w->frame->code->local_bytes)
        w->frame->local_top = (uint32_t)top;
    return in + 1;
}
