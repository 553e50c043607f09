/*
 * What the lanes of a warp, or the threads of a block, do together: shuffles, votes, matches and barriers.
 *
 * The warp-wide ones name their members in a mask, which may differ between lanes (tiles of a warp, each with its own
 * mask). A lane goes ahead when all living members of its mask are here; else it waits. CUDA leaves undefined what a
 * lane gets that its own mask does not name, or others' masks differently: it gets what its mask names of all that are
 * here, as on GPUs (where a vote is one of all active lanes, cut to the mask).
 */
#include "cpu/softgpu/ptx/exec.h"

#include <string.h>

/*
 * The lanes of w->mask whose members are all present. Where the warp has been forced (nobody else can come), all of
 * them. *ret_all_ready: that is the whole of w->mask.
 */
static uint32_t find_ready(struct ptx_warp *w, const uint32_t *members)
{
    uint32_t ready = 0, absent = w->live & ~w->mask;

    if (w->is_forced) {
        w->is_forced = false;
        return w->mask;
    }
    PTX_EACH_LANE(lane, w->mask)
    ready |= (uint32_t) !(members[lane] & absent) << lane;
    return ready;
}

/*
 * Reduces w->mask to the lanes that go ahead, the others wait here. False: none does, and *ret_next is what
 * the instruction returns. op is the operand with the member masks.
 */
static bool gather(struct ptx_warp *w, const struct ptx_insn *in, uint32_t op, const struct ptx_insn **ret_next)
{
    uint32_t ready = find_ready(w, ptx_lanes(w, op)), waiting = w->mask & ~ready;

    if (!waiting)
        return true;
    if (!ready) {
        *ret_next = flyt_ptx_warp_wait(w, in);
        return false;
    }
    flyt_ptx_warp_split(w, waiting, in);
    w->groups[w->group_count - 1].state = PTX_GROUP_AT_WARP_SYNC;
    w->mask = ready;
    w->limit = NULL; /* the next end of a block looks at the groups anew */
    return true;
}

bool flyt_ptx_warp_gather(struct ptx_warp *w, const struct ptx_insn *in, const struct ptx_insn **ret_next)
{
    if (w->mask == w->live || w->is_forced) {
        w->is_forced = false;
        return true;
    }
    *ret_next = flyt_ptx_warp_wait(w, in);
    return false;
}

/* The members of `lane` that are here: all, unless it was forced. Itself only where its mask names it. */
static uint32_t partners(const struct ptx_warp *w, const uint32_t *members, unsigned lane)
{
    return w->mask & members[lane];
}

/* Source lane of a shuffle; *ret_valid: inside of the segment. (PTX ISA, shfl.sync.) */
static unsigned shuffle_source(enum ptx_shuffle mode, unsigned lane, uint32_t b, uint32_t c, bool *ret_valid)
{
    unsigned bval = b & 31, cval = c & 31, segment = c >> 8 & 31;
    unsigned max_lane = (lane & segment) | (cval & ~segment), min_lane = lane & segment;
    int source;

    switch (mode) {
    case PTX_SHUFFLE_UP:
        source = (int)lane - (int)bval;
        *ret_valid = source >= (int)max_lane;
        break;
    case PTX_SHUFFLE_DOWN:
        source = (int)(lane + bval);
        *ret_valid = source <= (int)max_lane;
        break;
    case PTX_SHUFFLE_BFLY:
        source = (int)(lane ^ bval);
        *ret_valid = source <= (int)max_lane;
        break;
    default:
        source = (int)(min_lane | (bval & ~segment));
        *ret_valid = source <= (int)max_lane;
        break;
    }
    return *ret_valid ? (unsigned)source : lane;
}

/* op[0] result, op[1] its validity or none, op[2] a, op[3] b, op[4] c, op[5] members; aux the mode. */
const struct ptx_insn *flyt_ptx_exec_shuffle(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t *d = ptx_lanes(w, in->op[0]);
    const uint32_t *b = ptx_lanes(w, in->op[3]), *c = ptx_lanes(w, in->op[4]);
    uint32_t a[PTX_LANES], valid = 0;
    const struct ptx_insn *next;

    if (!gather(w, in, in->op[5], &next))
        return next;
    memcpy(a, ptx_lanes(w, in->op[2]), sizeof a);
    PTX_EACH_LANE(lane, w->mask)
    {
        bool is_valid;

        d[lane] = a[shuffle_source(in->aux, lane, b[lane], c[lane], &is_valid) & 31];
        valid |= (uint32_t)is_valid << lane;
    }
    if (in->op[1] != PTX_NO_OP)
        ptx_set_pred(w, in->op[1], valid);
    return in + 1;
}

/* op[0] result, op[1] predicate, op[2] members; aux the mode. */
const struct ptx_insn *flyt_ptx_exec_vote(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *members = ptx_lanes(w, in->op[2]);
    uint32_t pred, truth = 0;
    const struct ptx_insn *next;

    if (!gather(w, in, in->op[2], &next))
        return next;
    pred = ptx_pred(w, in->op[1]);
    if (in->aux == PTX_VOTE_BALLOT) {
        uint32_t *d = ptx_lanes(w, in->op[0]);

        PTX_EACH_LANE(lane, w->mask)
        d[lane] = pred & partners(w, members, lane);
        return in + 1;
    }
    PTX_EACH_LANE(lane, w->mask)
    {
        uint32_t all = partners(w, members, lane), yes = pred & all;
        bool is_true = in->aux == PTX_VOTE_ALL ? yes == all : in->aux == PTX_VOTE_ANY ? yes != 0 : yes == all || !yes;

        truth |= (uint32_t)is_true << lane;
    }
    ptx_set_pred(w, in->op[0], truth);
    return in + 1;
}

/* op[0] result, op[1] predicate or none, op[2] value, op[3] members; aux bytes of the value, extra 1: all. */
const struct ptx_insn *flyt_ptx_exec_match(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *members = ptx_lanes(w, in->op[3]);
    uint32_t results[PTX_LANES] = {0}, truth = 0, *d;
    const struct ptx_insn *next;
    const void *a;

    if (!gather(w, in, in->op[3], &next))
        return next;
    a = ptx_lanes(w, in->op[2]);
    PTX_EACH_LANE(lane, w->mask)
    {
        uint32_t all = partners(w, members, lane), equal = 0;

        PTX_EACH_LANE(other, all)
        equal |= (uint32_t)(in->aux == 4 ? ((const uint32_t *)a)[other] == ((const uint32_t *)a)[lane]
                                         : ((const uint64_t *)a)[other] == ((const uint64_t *)a)[lane])
                 << other;
        results[lane] = !in->extra ? equal : equal == all ? all : 0;
        truth |= (uint32_t)(equal == all) << lane;
    }
    d = ptx_lanes(w, in->op[0]);
    PTX_EACH_LANE(lane, w->mask)
    d[lane] = results[lane];
    if (in->op[1] != PTX_NO_OP)
        ptx_set_pred(w, in->op[1], truth);
    return in + 1;
}

static uint32_t reduce(enum ptx_redux redux, uint32_t a, uint32_t b)
{
    switch (redux) {
    case PTX_REDUX_ADD:
        return a + b;
    case PTX_REDUX_MIN_U:
        return a < b ? a : b;
    case PTX_REDUX_MAX_U:
        return a > b ? a : b;
    case PTX_REDUX_MIN_S:
        return (int32_t)a < (int32_t)b ? a : b;
    case PTX_REDUX_MAX_S:
        return (int32_t)a > (int32_t)b ? a : b;
    case PTX_REDUX_AND:
        return a & b;
    case PTX_REDUX_OR:
        return a | b;
    default:
        return a ^ b;
    }
}

/* op[0] result, op[1] value, op[2] members; aux the operation. */
const struct ptx_insn *flyt_ptx_exec_redux(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *members = ptx_lanes(w, in->op[2]);
    uint32_t a[PTX_LANES], *d;
    const struct ptx_insn *next;

    if (!gather(w, in, in->op[2], &next))
        return next;
    memcpy(a, ptx_lanes(w, in->op[1]), sizeof a);
    d = ptx_lanes(w, in->op[0]);
    PTX_EACH_LANE(lane, w->mask)
    {
        uint32_t all = partners(w, members, lane) & ~(1u << lane), sum = a[lane];

        PTX_EACH_LANE(other, all)
        sum = reduce(in->aux, sum, a[other]);
        d[lane] = sum;
    }
    return in + 1;
}

const struct ptx_insn *flyt_ptx_exec_activemask(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t *d = ptx_lanes(w, in->op[0]);

    PTX_EACH_LANE(lane, w->mask)
    d[lane] = w->mask;
    return in + 1;
}

/* op[0] the elected lane, op[1] whether this is it, or none, op[2] members. The lowest member is elected. */
const struct ptx_insn *flyt_ptx_exec_elect(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *members = ptx_lanes(w, in->op[2]);
    const struct ptx_insn *next;
    uint32_t truth = 0, *d;

    if (!gather(w, in, in->op[2], &next))
        return next;
    d = ptx_lanes(w, in->op[0]);
    PTX_EACH_LANE(lane, w->mask)
    {
        uint32_t all = partners(w, members, lane);
        unsigned leader = all ? (unsigned)__builtin_ctz(all) : lane;

        d[lane] = leader;
        truth |= (uint32_t)(leader == lane) << lane;
    }
    if (in->op[1] != PTX_NO_OP)
        ptx_set_pred(w, in->op[1], truth);
    return in + 1;
}

/* op[0] members. */
const struct ptx_insn *flyt_ptx_exec_warp_barrier(struct ptx_warp *w, const struct ptx_insn *in)
{
    const struct ptx_insn *next;

    if (!gather(w, in, in->op[0], &next))
        return next;
    return in + 1;
}

/* Whoever sleeps waits for someone: let others run. */
const struct ptx_insn *flyt_ptx_exec_nanosleep(struct ptx_warp *w, const struct ptx_insn *in)
{
    w->spins += 16;
    return in + 1;
}

/* ---- block barriers ---- */

/* The barrier is complete: gives waiting groups their result and lets them go. */
static void release(struct ptx_block *block, unsigned number)
{
    struct ptx_barrier *barrier = &block->barriers[number];
    uint32_t result = barrier->reduction == PTX_REDUCE_COUNT ? barrier->true_threads
                      : barrier->reduction == PTX_REDUCE_AND ? barrier->false_threads == 0
                                                             : barrier->true_threads != 0;

    for (uint32_t i = 0; i < block->warp_count; i++) {
        struct ptx_warp *w = &block->warps[i];

        w->barrier_lanes[number] = 0;
        w->lockstep = block->warp_count > 1 ? PTX_LOCKSTEP_INSTRUCTIONS : 0;
        for (unsigned g = 0; g < w->group_count; g++) {
            struct ptx_group *group = &w->groups[g];
            uint32_t *d;

            if (group->state != PTX_GROUP_AT_BARRIER || group->barrier != number)
                continue;
            group->state = PTX_GROUP_RUNNABLE;
            if (group->result_op == PTX_NO_OP)
                continue;
            d = (uint32_t *)(void *)(group->frame->registers + group->result_op);
            if (barrier->reduction == PTX_REDUCE_COUNT)
                PTX_EACH_LANE(lane, group->lanes)
            d[lane] = result;
            else *d = (*d & ~group->lanes) | (result ? group->lanes : 0);
        }
    }
    *barrier = (struct ptx_barrier){0};
}

static bool is_complete(const struct ptx_block *block, const struct ptx_barrier *barrier)
{
    if (!barrier->arrived_threads)
        return false;
    return barrier->expected_threads ? barrier->arrived_threads + barrier->padding_threads >= barrier->expected_threads
                                     : barrier->arrived_threads >= block->live_threads;
}

void flyt_ptx_block_check_barriers(struct ptx_block *block)
{
    for (unsigned number = 0; number < PTX_BARRIERS; number++)
        if (is_complete(block, &block->barriers[number]))
            release(block, number);
}

/* The lanes in `lanes` of the warp arrive. Counts are of whole warps: dead lanes of a warp count once the others came.
 */
static void arrive(struct ptx_warp *w, unsigned number, uint32_t lanes, uint32_t expected, uint32_t pred,
                   uint8_t reduction)
{
    struct ptx_barrier *barrier = &w->block->barriers[number];

    barrier->arrived_threads += ptx_lane_count(lanes);
    if (reduction != PTX_REDUCE_NONE) {
        barrier->true_threads += ptx_lane_count(lanes & pred);
        barrier->false_threads += ptx_lane_count(lanes & ~pred);
        barrier->reduction = reduction;
    }
    if (expected)
        barrier->expected_threads = expected;
    w->barrier_lanes[number] |= lanes;
    if ((w->barrier_lanes[number] & w->live) == w->live)
        barrier->padding_threads += PTX_LANES - ptx_lane_count(w->live);
}

/* Lanes that name another barrier than the first one take their turn at `in` later. Returns the barrier's number. */
static uint32_t choose_barrier(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *numbers = ptx_lanes(w, in->op[1]);
    uint32_t number = numbers[__builtin_ctz(w->mask)], others = 0;

    if (ptx_is_constant(in->op[1]))
        return number;
    PTX_EACH_LANE(lane, w->mask)
    others |= (uint32_t)(numbers[lane] != number) << lane;
    if (others) {
        flyt_ptx_warp_split(w, others, in);
        w->mask &= ~others;
        w->limit = NULL; /* the next end of a block looks at the groups anew */
    }
    return number;
}

/* bar.sync, bar.arrive, bar.red: see its lowering for the operands. */
const struct ptx_insn *flyt_ptx_exec_barrier(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint32_t number = choose_barrier(w, in);
    uint32_t expected =
        in->op[2] == PTX_NO_OP ? 0 : *((const uint32_t *)ptx_lanes(w, in->op[2]) + __builtin_ctz(w->mask));
    uint32_t pred = in->op[3] == PTX_NO_OP ? 0 : ptx_pred(w, in->op[3]);
    uint32_t lanes = w->mask, rest = w->active & ~w->mask;
    bool waits = in->extra & PTX_BARRIER_WAITS;

    if (number >= PTX_BARRIERS)
        return flyt_ptx_warp_fault(w, CUDA_ERROR_ILLEGAL_INSTRUCTION);
    arrive(w, number, lanes, expected, pred, in->extra & 15);
    if (waits) {
        if (rest)
            flyt_ptx_warp_split(w, rest, in + 1);
        w->groups[w->current].state = PTX_GROUP_AT_BARRIER;
        w->groups[w->current].barrier = (uint8_t)number;
        w->groups[w->current].result_op = in->op[0];
        w->groups[w->current].pc = in + 1;
    }
    if (is_complete(w->block, &w->block->barriers[number])) {
        release(w->block, number);
        if (w->lockstep)
            w->budget = 0; /* this warp, too, stops at the end of its block of instructions */
    }
    if (!waits)
        return in + 1;
    return w->group_count == 1 && w->groups[0].state == PTX_GROUP_RUNNABLE ? in + 1 : flyt_ptx_warp_switch(w);
}

/*
 * ---- mbarrier: a barrier in eight bytes of shared memory ----
 *
 * PTX leaves to the machine what they hold; here, from the lowest bit on: arrivals that the phase still waits for (20
 * bits), arrivals of each phase (20), bytes that are still to come (22, signed), and in the highest bit the phase's
 * parity. That is also the state that an arrival gives. A block belongs to one worker thread at a time, and its cluster
 * is itself: no two threads are at a barrier at once.
 */

enum { COUNT_BITS = 20, BYTES_BITS = 22 };
_Static_assert(PTX_MBARRIER_PENDING == (1 << COUNT_BITS) - 1, "the pending count is a state's low bits");

#define COUNT_MASK ((uint32_t)PTX_MBARRIER_PENDING)
#define BYTES_MASK ((1u << BYTES_BITS) - 1)

struct mbarrier {
    uint32_t pending, expected; /* arrivals */
    uint32_t bytes;             /* modulo 2^BYTES_BITS */
    uint64_t phase;             /* 0 or 1 */
};

static struct mbarrier unpack(uint64_t bits)
{
    return (struct mbarrier){bits & COUNT_MASK, bits >> COUNT_BITS & COUNT_MASK, bits >> 2 * COUNT_BITS & BYTES_MASK,
                             bits >> 63};
}

static uint64_t pack(const struct mbarrier *barrier)
{
    return barrier->phase << 63 | (uint64_t)(barrier->bytes & BYTES_MASK) << 2 * COUNT_BITS |
           (uint64_t)(barrier->expected & COUNT_MASK) << COUNT_BITS | (barrier->pending & COUNT_MASK);
}

/* The phase ends when nothing is missing; the next one begins. */
static void end_phase(struct mbarrier *barrier)
{
    if ((barrier->pending & COUNT_MASK) || (barrier->bytes & BYTES_MASK))
        return;
    barrier->phase ^= 1;
    barrier->pending = barrier->expected;
}

/* The lane's barrier: op[1] and imm are its address, aux the space. NULL after a fault. */
static uint64_t *find_mbarrier(struct ptx_warp *w, const struct ptx_insn *in, unsigned lane)
{
    const uint64_t *base = ptx_lanes(w, in->op[1]);

    return (uint64_t *)(void *)flyt_ptx_shared_address(w, lane, in->aux, base[lane] + (uint64_t)in->imm, 8, true);
}

/* ---- their instructions: lanes one after the other ---- */

/* op[2] arrivals of each phase. */
const struct ptx_insn *flyt_ptx_exec_mbarrier_init(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *counts = ptx_lanes(w, in->op[2]);

    PTX_EACH_LANE(lane, w->mask)
    {
        struct mbarrier fresh = {.pending = counts[lane], .expected = counts[lane]};
        uint64_t *at = find_mbarrier(w, in, lane);

        if (!at)
            return NULL;
        *at = pack(&fresh);
    }
    return in + 1;
}

/* The memory may be used for something else. */
const struct ptx_insn *flyt_ptx_exec_mbarrier_invalidate(struct ptx_warp *w, const struct ptx_insn *in)
{
    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find_mbarrier(w, in, lane);

        if (!at)
            return NULL;
        *at = 0;
    }
    return in + 1;
}

/* op[0] the state before, or none; op[2] arrivals; op[3] bytes, or none; extra enum ptx_mbarrier. */
const struct ptx_insn *flyt_ptx_exec_mbarrier_arrive(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint64_t *states = in->op[0] == PTX_NO_OP ? NULL : ptx_register(w, in->op[0]);
    const uint32_t *counts = ptx_lanes(w, in->op[2]),
                   *bytes = in->extra & PTX_MBARRIER_EXPECTS ? ptx_lanes(w, in->op[3]) : NULL;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find_mbarrier(w, in, lane);
        struct mbarrier barrier;

        if (!at)
            return NULL;
        barrier = unpack(*at);
        if (bytes)
            barrier.bytes += bytes[lane];
        if (in->extra & PTX_MBARRIER_DROPS)
            barrier.expected -= counts[lane];
        barrier.pending -= counts[lane];
        if (states)
            states[lane] = *at;
        end_phase(&barrier);
        *at = pack(&barrier);
    }
    return in + 1;
}

/* op[2] bytes: more are to come (PTX_MBARRIER_EXPECTS), or they have come. */
const struct ptx_insn *flyt_ptx_exec_mbarrier_bytes(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *bytes = ptx_lanes(w, in->op[2]);

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find_mbarrier(w, in, lane);
        struct mbarrier barrier;

        if (!at)
            return NULL;
        barrier = unpack(*at);
        barrier.bytes += in->extra & PTX_MBARRIER_EXPECTS ? bytes[lane] : 0 - bytes[lane];
        if (!(in->extra & PTX_MBARRIER_EXPECTS))
            end_phase(&barrier);
        *at = pack(&barrier);
    }
    return in + 1;
}

/* op[0] whether the phase that op[2] tells is over: by a state of it, or by its parity; extra enum ptx_mbarrier. */
const struct ptx_insn *flyt_ptx_exec_mbarrier_wait(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *states = ptx_lanes(w, in->op[2]);
    const uint32_t *parities = ptx_lanes(w, in->op[2]);
    uint32_t truth = 0;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find_mbarrier(w, in, lane), phase;

        if (!at)
            return NULL;
        phase = in->extra & PTX_MBARRIER_PARITY ? parities[lane] & 1 : states[lane] >> 63;
        truth |= (uint32_t)(*at >> 63 != phase) << lane;
    }
    if (in->extra & PTX_MBARRIER_TRIES && !truth)
        w->spins += 16; /* as nanosleep */
    ptx_set_pred(w, in->op[0], truth);
    return in + 1;
}
