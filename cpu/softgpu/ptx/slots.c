/*
 * Places for virtual registers. PTX names a new register for almost every value; a frame that held them all would
 * not fit the caches. So: which registers are alive where (backward data flow over blocks, for those registers only
 * that live across blocks), an interval of instructions for each, and one scan that hands out places of each size and
 * takes them back at the interval's end. A register's lanes are independent threads and may be at different
 * instructions at one time; sharing is still right, because a lane touches only its own part of a place, and the
 * places of different sizes do not mix.
 */
#include "cpu/softgpu/ptx/exec.h"
#include "cpu/softgpu/ptx/lower.h"

#include <string.h>

#define NOWHERE UINT32_MAX

struct block {
    uint32_t first, last; /* instructions, inclusive */
    uint64_t *live_in, *live_out, *defined;
    uint32_t successors[2];             /* NOWHERE: none */
    const struct ptx_label_list *table; /* more successors */
};

struct interval {
    uint32_t start, end;
    uint32_t next_started, next_ended; /* lists by instruction */
    uint32_t place;
    uint32_t global; /* number among the registers alive across blocks, or NOWHERE */
    uint32_t block;  /* the only block it occurs in, or NOWHERE */
};

struct slots {
    struct ptx_lower *lower;
    struct block *blocks;
    uint32_t *block_of; /* by instruction */
    uint32_t block_count, global_count;
    struct interval *intervals; /* by virtual register */
    uint32_t *globals;          /* global number → virtual register */
    size_t words;               /* of a set of globals */
};

static bool has_bit(const uint64_t *set, uint32_t bit)
{
    return set[bit / 64] >> (bit % 64) & 1;
}

static void put_bit(uint64_t *set, uint32_t bit)
{
    set[bit / 64] |= 1ull << (bit % 64);
}

static uint32_t find_label(struct ptx_lower *lower, const char *name, unsigned line)
{
    struct ptx_label *label = flyt_ptx_map_find(&lower->labels, name);

    if (!label)
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_INVALID_PTX, line, "no label %.100s in %.100s", name,
                            lower->function->name);
    return (uint32_t)label->index;
}

/* ---- blocks ---- */

static void find_blocks(struct slots *slots)
{
    struct ptx_lower *lower = slots->lower;
    size_t count = lower->vinsn_count;
    uint8_t *is_leader = flyt_ptx_lower_scratch(lower, count + 1);

    is_leader[0] = 1;
    for (size_t i = 0; i < count; i++)
        if (lower->vinsns[i].ending != PTX_ENDS_NOT)
            is_leader[i + 1] = 1;
    for (size_t i = 0; i < count; i++) {
        slots->block_count += is_leader[i];
    }
    slots->blocks = flyt_ptx_lower_scratch(lower, slots->block_count * sizeof *slots->blocks);
    slots->block_of = flyt_ptx_lower_scratch(lower, count * sizeof *slots->block_of);
    for (size_t i = 0, block = 0; i < count; i++) {
        if (is_leader[i] && i)
            block++;
        if (is_leader[i])
            slots->blocks[block].first = (uint32_t)i;
        slots->blocks[block].last = (uint32_t)i;
        slots->block_of[i] = (uint32_t)block;
    }
    for (uint32_t b = 0; b < slots->block_count; b++) {
        struct block *block = &slots->blocks[b];
        const struct ptx_vinsn *end = &lower->vinsns[block->last];
        uint32_t next = b + 1 < slots->block_count ? b + 1 : NOWHERE;

        block->successors[0] =
            end->ending == PTX_ENDS_FALL || end->ending == PTX_ENDS_BRANCH || end->ending == PTX_ENDS_NOT ? next
                                                                                                          : NOWHERE;
        block->successors[1] = end->label ? slots->block_of[find_label(lower, end->label, end->line)] : NOWHERE;
        block->table = end->labels;
    }
}

/* ---- liveness ---- */

/* Finds the registers that occur in more than one block, or are read before they are written in one. */
static void find_globals(struct slots *slots)
{
    struct ptx_lower *lower = slots->lower;
    size_t vreg_count = lower->function->vreg_count;

    slots->intervals = flyt_ptx_lower_scratch(lower, (vreg_count + 1) * sizeof *slots->intervals);
    slots->globals = flyt_ptx_lower_scratch(lower, (vreg_count + 1) * sizeof *slots->globals);
    for (size_t v = 0; v < vreg_count; v++)
        slots->intervals[v] = (struct interval){NOWHERE, 0, NOWHERE, NOWHERE, NOWHERE, NOWHERE, NOWHERE};
    for (size_t i = 0; i < lower->vinsn_count; i++) {
        const struct ptx_vinsn *vinsn = &lower->vinsns[i];

        for (int reads = 1; reads >= 0; reads--)
            for (unsigned o = 0; o < PTX_OPS_MAX; o++) {
                bool is_written = vinsn->definitions >> o & 1;
                struct interval *interval = &slots->intervals[vinsn->op[o].index];

                if (vinsn->op[o].kind != PTX_VOP_VREG || (reads ? is_written && !vinsn->is_conditional : !is_written))
                    continue;
                if (interval->start == NOWHERE) {
                    interval->start = (uint32_t)i;
                    interval->block = slots->block_of[i];
                    if (reads)
                        interval->block = NOWHERE;
                }
                interval->end = (uint32_t)i;
                if (interval->block != slots->block_of[i] && interval->global == NOWHERE) {
                    interval->global = slots->global_count;
                    slots->globals[slots->global_count++] = vinsn->op[o].index;
                }
            }
    }
}

static void find_local_sets(struct slots *slots)
{
    struct ptx_lower *lower = slots->lower;

    for (uint32_t b = 0; b < slots->block_count; b++) {
        struct block *block = &slots->blocks[b];

        block->live_in = flyt_ptx_lower_scratch(lower, 3 * slots->words * sizeof(uint64_t));
        block->live_out = block->live_in + slots->words;
        block->defined = block->live_out + slots->words;
        for (uint32_t i = block->first; i <= block->last; i++) {
            const struct ptx_vinsn *vinsn = &lower->vinsns[i];

            for (int reads = 1; reads >= 0; reads--)
                for (unsigned o = 0; o < PTX_OPS_MAX; o++) {
                    bool is_written = vinsn->definitions >> o & 1;
                    uint32_t global =
                        vinsn->op[o].kind == PTX_VOP_VREG ? slots->intervals[vinsn->op[o].index].global : NOWHERE;

                    if (global == NOWHERE)
                        continue;
                    if (reads && (!is_written || vinsn->is_conditional) && !has_bit(block->defined, global))
                        put_bit(block->live_in, global);
                    else if (!reads && is_written && !vinsn->is_conditional)
                        put_bit(block->defined, global);
                }
        }
    }
}

/* live_out |= live_in of a successor; true when it grew. */
static bool join(struct slots *slots, struct block *block, uint32_t successor)
{
    bool has_grown = false;

    if (successor == NOWHERE)
        return false;
    for (size_t word = 0; word < slots->words; word++) {
        uint64_t joined = block->live_out[word] | slots->blocks[successor].live_in[word];

        has_grown |= joined != block->live_out[word];
        block->live_out[word] = joined;
    }
    return has_grown;
}

static void flow_liveness(struct slots *slots)
{
    bool has_changed = true;

    while (has_changed) {
        has_changed = false;
        for (uint32_t b = slots->block_count; b-- > 0;) {
            struct block *block = &slots->blocks[b];
            bool has_grown = join(slots, block, block->successors[0]);

            has_grown |= join(slots, block, block->successors[1]);
            for (unsigned t = 0; block->table && t < block->table->count; t++)
                has_grown |= join(slots, block,
                                  slots->block_of[find_label(slots->lower, block->table->labels[t],
                                                             slots->lower->vinsns[block->last].line)]);
            if (!has_grown)
                continue;
            has_changed = true;
            for (size_t word = 0; word < slots->words; word++)
                block->live_in[word] |= block->live_out[word] & ~block->defined[word];
        }
    }
}

/* A register that is alive on entry to or exit from a block covers that end of the block. */
static void stretch_intervals(struct slots *slots)
{
    for (uint32_t b = 0; b < slots->block_count; b++) {
        const struct block *block = &slots->blocks[b];

        for (size_t word = 0; word < slots->words; word++) {
            for (uint64_t left = block->live_in[word] | block->live_out[word]; left; left &= left - 1) {
                uint32_t global = (uint32_t)(word * 64 + (unsigned)__builtin_ctzll(left));
                struct interval *interval = &slots->intervals[slots->globals[global]];

                if (has_bit(block->live_in, global) && interval->start > block->first)
                    interval->start = block->first;
                if (has_bit(block->live_in, global) && interval->end < block->first)
                    interval->end = block->first;
                if (has_bit(block->live_out, global) && interval->end < block->last)
                    interval->end = block->last;
                if (has_bit(block->live_out, global) && interval->start > block->last)
                    interval->start = block->last;
            }
        }
    }
}

/* ---- places ---- */

/* Bytes that a register of a size takes for 32 lanes, and the number of its kind of place. */
static uint32_t place_bytes(unsigned kind)
{
    static const uint32_t bytes[] = {4, 64, 128, 256};

    return bytes[kind];
}

static unsigned place_kind(uint8_t register_bytes)
{
    return register_bytes == 0 ? 0 : register_bytes == 2 ? 1 : register_bytes == 4 ? 2 : 3;
}

static void give_places(struct slots *slots)
{
    struct ptx_lower *lower = slots->lower;
    size_t count = lower->vinsn_count, vreg_count = lower->function->vreg_count;
    uint32_t *started = flyt_ptx_lower_scratch(lower, (count + 1) * sizeof *started);
    uint32_t *ended = flyt_ptx_lower_scratch(lower, (count + 1) * sizeof *ended);
    uint32_t *free_places[4], free_count[4] = {0}, used[4] = {0}, base = 0;
    uint32_t bases[4];

    memset(started, 0xff, (count + 1) * sizeof *started);
    memset(ended, 0xff, (count + 1) * sizeof *ended);
    for (unsigned kind = 0; kind < 4; kind++)
        free_places[kind] = flyt_ptx_lower_scratch(lower, (vreg_count + 1) * sizeof **free_places);
    for (size_t v = 0; v < vreg_count; v++) {
        struct interval *interval = &slots->intervals[v];

        if (interval->start == NOWHERE)
            continue;
        interval->next_started = started[interval->start];
        started[interval->start] = (uint32_t)v;
        interval->next_ended = ended[interval->end];
        ended[interval->end] = (uint32_t)v;
    }
    for (size_t i = 0; i < count; i++) {
        for (uint32_t v = i ? ended[i - 1] : NOWHERE; v != NOWHERE; v = slots->intervals[v].next_ended) {
            unsigned kind = place_kind(lower->function->vreg_bytes[v]);

            free_places[kind][free_count[kind]++] = slots->intervals[v].place;
        }
        for (uint32_t v = started[i]; v != NOWHERE; v = slots->intervals[v].next_started) {
            unsigned kind = place_kind(lower->function->vreg_bytes[v]);

            slots->intervals[v].place = free_count[kind] ? free_places[kind][--free_count[kind]] : used[kind]++;
        }
    }
    for (int kind = 3; kind >= 0; kind--) { /* the largest first: all stay aligned to their size */
        bases[kind] = base;
        base += used[kind] * place_bytes((unsigned)kind);
    }
    for (size_t v = 0; v < vreg_count; v++)
        if (slots->intervals[v].start != NOWHERE) {
            unsigned kind = place_kind(lower->function->vreg_bytes[v]);

            slots->intervals[v].place = bases[kind] + slots->intervals[v].place * place_bytes(kind);
        }
    if (base > 256u << 20)
        flyt_ptx_build_fail(lower->build, CUDA_ERROR_OUT_OF_MEMORY, lower->function->line,
                            "too many registers at once");
    lower->register_bytes = (base + 63) & ~63u;
}

void flyt_ptx_slots_assign(struct ptx_lower *lower)
{
    struct slots slots = {.lower = lower};

    find_blocks(&slots);
    find_globals(&slots);
    slots.words = (slots.global_count + 63) / 64;
    if (slots.words) {
        find_local_sets(&slots);
        flow_liveness(&slots);
        stretch_intervals(&slots);
    }
    give_places(&slots);
    lower->places = flyt_ptx_lower_scratch(lower, (lower->function->vreg_count + 1) * sizeof *lower->places);
    for (size_t v = 0; v < lower->function->vreg_count; v++)
        lower->places[v] = slots.intervals[v].place;
}

/* ---- final instructions ---- */

static uint32_t encode_op(const struct ptx_lower *lower, struct ptx_vop op)
{
    switch (op.kind) {
    case PTX_VOP_VREG:
        return lower->places[op.index];
    case PTX_VOP_CONST:
        return op.index | 1;
    default:
        return PTX_NO_OP;
    }
}

static void encode_table(struct ptx_lower *lower, const struct ptx_vinsn *vinsn, struct ptx_insn *insn,
                         const struct ptx_insn *insns)
{
    const struct ptx_label_list *list = vinsn->labels;

    insn->table = flyt_ptx_build_alloc(lower->build, &lower->module->arena, list->count * sizeof *insn->table);
    insn->op[1] = list->count;
    for (unsigned t = 0; t < list->count; t++)
        insn->table[t] = insns + find_label(lower, list->labels[t], vinsn->line);
}

void flyt_ptx_slots_encode(struct ptx_lower *lower, struct ptx_insn *insns)
{
    uint32_t *waits = flyt_ptx_lower_scratch(lower, (lower->vinsn_count + 1) * sizeof *waits); /* may_wait before i */
    uint32_t in_block = 0;

    for (size_t i = 0; i < lower->vinsn_count; i++)
        waits[i + 1] = waits[i] + (lower->vinsns[i].may_wait || lower->vinsns[i].exec == flyt_ptx_exec_call);
    for (size_t i = 0; i < lower->vinsn_count; i++) {
        const struct ptx_vinsn *vinsn = &lower->vinsns[i];
        struct ptx_insn *insn = &insns[i];

        insn->exec = vinsn->exec;
        for (unsigned o = 0; o < PTX_OPS_MAX; o++)
            insn->op[o] = encode_op(lower, vinsn->op[o]);
        insn->imm = vinsn->imm;
        insn->line = vinsn->line;
        insn->aux = vinsn->aux;
        insn->extra = vinsn->extra;
        insn->flags = vinsn->flags;
        insn->base = vinsn->base;
        in_block += vinsn->is_first;
        if (vinsn->call)
            insn->call = vinsn->call;
        if (vinsn->label) {
            uint32_t target = find_label(lower, vinsn->label, vinsn->line);

            insn->target = insns + target;
            if (target <= i && waits[i + 1] > waits[target])
                insn->flags |= PTX_INSN_SPINS;
        }
        if (vinsn->labels)
            encode_table(lower, vinsn, insn, insns);
        if (vinsn->ending != PTX_ENDS_NOT) {
            insn->count = in_block;
            in_block = 0;
        }
    }
}
