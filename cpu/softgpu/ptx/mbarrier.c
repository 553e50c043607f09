/*
 * mbarrier: a barrier in eight bytes of shared memory. PTX leaves to the machine what they hold; here, from the lowest
 * bit on: arrivals that the phase still waits for (20 bits), arrivals of each phase (20), bytes that are still to come
 * (22, signed), and in the highest bit the phase's parity. That is also the state that an arrival gives.
 *
 * A block belongs to one worker thread at a time, and its cluster is itself: no two threads are at a barrier at once.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lower.h"

#include <string.h>

enum { COUNT_BITS = 20, BYTES_BITS = 22 };

#define COUNT_MASK ((1u << COUNT_BITS) - 1)
#define BYTES_MASK ((1u << BYTES_BITS) - 1)

struct barrier {
    uint32_t pending, expected; /* arrivals */
    uint32_t bytes;             /* modulo 2^BYTES_BITS */
    uint64_t phase;             /* 0 or 1 */
};

static struct barrier unpack(uint64_t bits)
{
    return (struct barrier){bits & COUNT_MASK, bits >> COUNT_BITS & COUNT_MASK, bits >> 2 * COUNT_BITS & BYTES_MASK,
                            bits >> 63};
}

static uint64_t pack(const struct barrier *barrier)
{
    return barrier->phase << 63 | (uint64_t)(barrier->bytes & BYTES_MASK) << 2 * COUNT_BITS |
           (uint64_t)(barrier->expected & COUNT_MASK) << COUNT_BITS | (barrier->pending & COUNT_MASK);
}

/* The phase ends when nothing is missing; the next one begins. */
static void complete(struct barrier *barrier)
{
    if ((barrier->pending & COUNT_MASK) || (barrier->bytes & BYTES_MASK))
        return;
    barrier->phase ^= 1;
    barrier->pending = barrier->expected;
}

/* What an instruction does besides its arrival; in its extra. */
enum manner {
    DROPS = 1,       /* the following phases wait for as many fewer */
    EXPECTS = 2,     /* op[3] bytes more are to come */
    BY_PARITY = 4,   /* op[2] is the parity of a phase, not a state */
    MAY_SUSPEND = 8, /* try_wait: others may run meanwhile */
};

/* The lane's barrier: op[1] and imm are its address, aux the space. NULL after a fault. */
static uint64_t *find(struct ptx_warp *w, const struct ptx_insn *in, unsigned lane)
{
    const uint64_t *base = ptx_lanes(w, in->op[1]);

    return (uint64_t *)(void *)flyt_ptx_shared_address(w, lane, in->aux, base[lane] + (uint64_t)in->imm, 8, true);
}

/* ---- execution: lanes one after the other ---- */

/* op[2] arrivals of each phase. */
static const struct ptx_insn *exec_init(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *counts = ptx_lanes(w, in->op[2]);

    PTX_EACH_LANE(lane, w->mask)
    {
        struct barrier fresh = {.pending = counts[lane], .expected = counts[lane]};
        uint64_t *at = find(w, in, lane);

        if (!at)
            return NULL;
        *at = pack(&fresh);
    }
    return in + 1;
}

/* The memory may be used for something else. */
static const struct ptx_insn *exec_invalidate(struct ptx_warp *w, const struct ptx_insn *in)
{
    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find(w, in, lane);

        if (!at)
            return NULL;
        *at = 0;
    }
    return in + 1;
}

/* op[0] the state before, or none; op[2] arrivals; op[3] bytes, or none; extra enum manner. */
static const struct ptx_insn *exec_arrive(struct ptx_warp *w, const struct ptx_insn *in)
{
    uint64_t *states = in->op[0] == PTX_NO_OP ? NULL : ptx_register(w, in->op[0]);
    const uint32_t *counts = ptx_lanes(w, in->op[2]), *bytes = in->extra & EXPECTS ? ptx_lanes(w, in->op[3]) : NULL;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find(w, in, lane);
        struct barrier barrier;

        if (!at)
            return NULL;
        barrier = unpack(*at);
        if (bytes)
            barrier.bytes += bytes[lane];
        if (in->extra & DROPS)
            barrier.expected -= counts[lane];
        barrier.pending -= counts[lane];
        if (states)
            states[lane] = *at;
        complete(&barrier);
        *at = pack(&barrier);
    }
    return in + 1;
}

/* op[2] bytes: more are to come (EXPECTS), or they have come. */
static const struct ptx_insn *exec_bytes(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint32_t *bytes = ptx_lanes(w, in->op[2]);

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find(w, in, lane);
        struct barrier barrier;

        if (!at)
            return NULL;
        barrier = unpack(*at);
        barrier.bytes += in->extra & EXPECTS ? bytes[lane] : 0 - bytes[lane];
        if (!(in->extra & EXPECTS))
            complete(&barrier);
        *at = pack(&barrier);
    }
    return in + 1;
}

/* op[0] whether the phase that op[2] tells is over: by a state of it, or by its parity; extra enum manner. */
static const struct ptx_insn *exec_wait(struct ptx_warp *w, const struct ptx_insn *in)
{
    const uint64_t *states = ptx_lanes(w, in->op[2]);
    const uint32_t *parities = ptx_lanes(w, in->op[2]);
    uint32_t truth = 0;

    PTX_EACH_LANE(lane, w->mask)
    {
        uint64_t *at = find(w, in, lane), phase;

        if (!at)
            return NULL;
        phase = in->extra & BY_PARITY ? parities[lane] & 1 : states[lane] >> 63;
        truth |= (uint32_t)(*at >> 63 != phase) << lane;
    }
    if (in->extra & MAY_SUSPEND && !truth)
        w->spins += 16; /* as nanosleep */
    ptx_set_pred(w, in->op[0], truth);
    return in + 1;
}

/* ---- lowering ---- */

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++)
        if (!strcmp(word, *words))
            return true;
    return false;
}

/*
 * The address in an operand. The modifiers from `first` on are the space, order and scope, those in `flags`, and at the
 * end b64; others refuse the instruction.
 */
static struct ptx_place take_address(struct ptx_lower *lower, unsigned first, const char *const *flags,
                                     unsigned operand)
{
    static const char *const orders[] = {"release", "acquire", "relaxed", "cta", "cluster", NULL};
    const struct ptx_statement *statement = lower->statement;
    unsigned last = statement->modifier_count - 1;
    enum ptx_space space = PTX_SPACE_GENERIC;
    struct ptx_place place;

    for (unsigned i = first; i < last; i++)
        if (!flyt_ptx_lower_take_space(statement->modifiers[i], &space) &&
            !is_one_of(statement->modifiers[i], orders) && !is_one_of(statement->modifiers[i], flags))
            flyt_ptx_lower_unsupported(lower);
    if (last < first || strcmp(statement->modifiers[last], "b64") ||
        (space != PTX_SPACE_GENERIC && space != PTX_SPACE_SHARED))
        flyt_ptx_lower_unsupported(lower);
    place = flyt_ptx_lower_place(lower, flyt_ptx_lower_operand(lower, operand), space, 8, false);
    if (place.is_fixed)
        flyt_ptx_lower_invalid(lower, "an address of shared memory is expected");
    return place;
}

static struct ptx_vinsn *emit(struct ptx_lower *lower, ptx_exec_fn *exec, const struct ptx_place *place)
{
    struct ptx_vinsn *vinsn = flyt_ptx_lower_emit_guarded(lower, exec);

    vinsn->op[1] = place->base;
    vinsn->imm = place->offset;
    vinsn->aux = (uint16_t)place->space;
    return vinsn;
}

/* A 32-bit source, or `missing` where the instruction has no such operand. */
static struct ptx_vop take_number(struct ptx_lower *lower, unsigned operand, uint32_t missing)
{
    return operand < lower->statement->operand_count
               ? flyt_ptx_lower_source(lower, &lower->statement->operands[operand], 4, false, false)
               : flyt_ptx_lower_constant(lower, missing, 4);
}

static void want_operands(struct ptx_lower *lower, unsigned least, unsigned most)
{
    if (lower->statement->operand_count < least || lower->statement->operand_count > most)
        flyt_ptx_lower_invalid(lower, "wrong number of operands");
}

static void lower_init(struct ptx_lower *lower)
{
    struct ptx_place place = take_address(lower, 2, (const char *const[]){NULL}, 0);
    struct ptx_vop count;

    want_operands(lower, 2, 2);
    count = take_number(lower, 1, 0);
    emit(lower, exec_init, &place)->op[2] = count;
}

static void lower_invalidate(struct ptx_lower *lower)
{
    struct ptx_place place = take_address(lower, 2, (const char *const[]){NULL}, 0);

    want_operands(lower, 1, 1);
    emit(lower, exec_invalidate, &place);
}

/* arrive and arrive_drop: state, [address][, count], or with expect_tx [address], bytes. */
static void lower_arrive(struct ptx_lower *lower)
{
    struct ptx_place place = take_address(lower, 2, (const char *const[]){"noComplete", "expect_tx", NULL}, 1);
    bool expects = flyt_ptx_lower_has(lower, "expect_tx");
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop number, state = {0};
    struct ptx_vinsn *vinsn;

    want_operands(lower, expects ? 3 : 2, 3);
    number = take_number(lower, 2, 1);
    if (target->kind != PTX_OPERAND_SINK)
        state = flyt_ptx_lower_exact_destination(lower, target, 8);
    vinsn = emit(lower, exec_arrive, &place);
    vinsn->op[0] = state;
    vinsn->op[2] = expects ? flyt_ptx_lower_constant(lower, 1, 4) : number;
    vinsn->op[3] = expects ? number : (struct ptx_vop){0};
    vinsn->definitions = state.kind == PTX_VOP_VREG;
    vinsn->extra =
        (uint8_t)((expects ? EXPECTS : 0) | (!strcmp(lower->statement->modifiers[1], "arrive_drop") ? DROPS : 0));
}

/* expect_tx and complete_tx: [address], bytes. */
static void lower_bytes(struct ptx_lower *lower)
{
    struct ptx_place place = take_address(lower, 2, (const char *const[]){NULL}, 0);
    struct ptx_vinsn *vinsn;
    struct ptx_vop bytes;

    want_operands(lower, 2, 2);
    bytes = take_number(lower, 1, 0);
    vinsn = emit(lower, exec_bytes, &place);
    vinsn->op[2] = bytes;
    vinsn->extra = !strcmp(lower->statement->modifiers[1], "expect_tx") ? EXPECTS : 0;
}

/* test_wait and try_wait: p, [address], state or parity[, time]. The time is that of a wait which need not be made. */
static void lower_wait(struct ptx_lower *lower)
{
    struct ptx_place place = take_address(lower, 2, (const char *const[]){"parity", NULL}, 1);
    bool is_parity = flyt_ptx_lower_has(lower, "parity"), is_try = !strcmp(lower->statement->modifiers[1], "try_wait");
    struct ptx_vop phase;
    struct ptx_vinsn *vinsn;

    want_operands(lower, 3, is_try ? 4 : 3);
    phase = flyt_ptx_lower_source(lower, &lower->statement->operands[2], is_parity ? 4 : 8, false, false);
    vinsn = emit(lower, exec_wait, &place);
    vinsn->op[0] = flyt_ptx_lower_exact_destination(lower, &lower->statement->operands[0], 0);
    vinsn->op[2] = phase;
    vinsn->definitions = 1;
    vinsn->extra = (uint8_t)((is_parity ? BY_PARITY : 0) | (is_try ? MAY_SUSPEND : 0));
    vinsn->may_wait = true;
}

/* pending_count.b64 count, state: the low bits of a state. */
static void lower_pending(struct ptx_lower *lower)
{
    const struct ptx_operand *target = flyt_ptx_lower_operand(lower, 0);
    struct ptx_vop state = flyt_ptx_lower_source(lower, flyt_ptx_lower_operand(lower, 1), 8, false, false);
    struct ptx_vop low = flyt_ptx_lower_resize(lower, state, 8, 4, false);

    if (strcmp(lower->statement->text, "mbarrier.pending_count.b64"))
        flyt_ptx_lower_unsupported(lower);
    flyt_ptx_lower_emit_op(lower, "and.b32", flyt_ptx_lower_exact_destination(lower, target, 4), low,
                           flyt_ptx_lower_constant(lower, COUNT_MASK, 4), true);
}

/*
 * cp.async.mbarrier.arrive: copies have been made when their instruction is over, so it arrives at once. But with
 * .noinc the phase first waits for one arrival more, for this one.
 */
void flyt_ptx_lower_copies_arrive(struct ptx_lower *lower)
{
    struct ptx_place place = take_address(lower, 4, (const char *const[]){"noinc", NULL}, 0);
    struct ptx_vop count = flyt_ptx_lower_constant(lower, flyt_ptx_lower_has(lower, "noinc"), 4);

    want_operands(lower, 1, 1);
    emit(lower, exec_arrive, &place)->op[2] = count;
}

static void lower_mbarrier(struct ptx_lower *lower)
{
    static const struct ptx_lowering operations[] = {
        {"init", lower_init},          {"inval", lower_invalidate}, {"arrive", lower_arrive},
        {"arrive_drop", lower_arrive}, {"expect_tx", lower_bytes},  {"complete_tx", lower_bytes},
        {"test_wait", lower_wait},     {"try_wait", lower_wait},    {"pending_count", lower_pending},
    };
    const char *operation = lower->statement->modifier_count > 1 ? lower->statement->modifiers[1] : "";

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        if (!strcmp(operation, operations[i].operation)) {
            operations[i].lower(lower);
            return;
        }
    flyt_ptx_lower_unsupported(lower);
}

const struct ptx_lowering flyt_ptx_mbarrier_lowerings[] = {
    {"mbarrier", lower_mbarrier},
    {NULL, NULL},
};
