#include <stdio.h>

#include "control/base/size.h"
#include "control/cluster/model/migration_rules.h"

const struct flyt_migration_way flyt_migration_ways[2] = {
    {.begin = FLYT_ORDER_MIGRATE, .begin_side = FLYT_MIGRATION_SOURCE, .asked_count = 1, .place = "another GPU"},
    {.begin = FLYT_ORDER_RECEIVE,
     .begin_side = FLYT_MIGRATION_TARGET,
     .follow = FLYT_ORDER_SEND,
     .asked_count = FLYT_MIGRATION_SIDES,
     .is_by_orders = true,
     .place = "another node"},
};

/* ---- where a side stands ---- */

/* It knows nothing of the migration. A source that has the allocation was restarted before its programs left. */
static enum flyt_migration_standing standing_without(const struct flyt_migration_word *word, unsigned side)
{
    if (!word->is_between && !word->has_registered)
        return side == FLYT_MIGRATION_SOURCE ? FLYT_STANDING_UNKNOWN : FLYT_STANDING_FORGOTTEN;
    if (side == FLYT_MIGRATION_SOURCE)
        return word->has_registered && word->has_allocation ? FLYT_STANDING_FAILED : FLYT_STANDING_ABSENT;
    if (word->is_between && !word->is_moved)
        return FLYT_STANDING_ABSENT;
    if (!word->has_registered)
        return FLYT_STANDING_FORGOTTEN;
    return word->has_allocation ? FLYT_STANDING_DONE : FLYT_STANDING_ABSENT;
}

enum flyt_migration_standing flyt_migration_standing_of(const struct flyt_migration_word *word, unsigned side)
{
    bool is_by_orders = flyt_migration_ways[word->is_between].is_by_orders;

    if (word->status == FLYT_STATUS_NOT_FOUND)
        return standing_without(word, side);
    if (word->status != FLYT_STATUS_OK)
        return FLYT_STANDING_UNKNOWN;
    switch (word->phase) {
    case FLYT_MIGRATION_ARRIVED:
        return is_by_orders ? FLYT_STANDING_ARRIVED : FLYT_STANDING_COPYING;
    case FLYT_MIGRATION_SWITCHING:
        return is_by_orders ? FLYT_STANDING_SWITCHED : FLYT_STANDING_COPYING;
    case FLYT_MIGRATION_DONE:
        return FLYT_STANDING_DONE;
    case FLYT_MIGRATION_FAILED:
        return FLYT_STANDING_FAILED;
    case FLYT_MIGRATION_PREPARING:
    case FLYT_MIGRATION_COPYING:
    case FLYT_MIGRATION_STOPPING:
        break;
    }
    return FLYT_STANDING_COPYING;
}

bool flyt_standing_is_out(enum flyt_migration_standing standing)
{
    return standing == FLYT_STANDING_ABSENT || standing == FLYT_STANDING_FAILED;
}

static bool has_left(enum flyt_migration_standing source)
{
    return source == FLYT_STANDING_SWITCHED || source == FLYT_STANDING_DONE;
}

/* ---- what is next ---- */

static enum flyt_migration_step next_committed(const struct flyt_migration_seen *seen)
{
    enum flyt_migration_standing source = seen->standings[FLYT_MIGRATION_SOURCE],
                                 target = seen->standings[FLYT_MIGRATION_TARGET];

    if (seen->state == FLYT_MOVE_COMMITTED &&
        (has_left(source) || source == FLYT_STANDING_ABSENT || target == FLYT_STANDING_DONE ||
         seen->flags & FLYT_MIGRATION_IS_SOURCE_LOST))
        return FLYT_STEP_TELL;
    if (target == FLYT_STANDING_DONE)
        return FLYT_STEP_FINISH;
    if (flyt_standing_is_out(target))
        return FLYT_STEP_UNDO;
    if (target == FLYT_STANDING_FORGOTTEN)
        return FLYT_STEP_REGISTER;
    if (target == FLYT_STANDING_UNKNOWN)
        return FLYT_STEP_WAIT;
    if (source == FLYT_STANDING_FAILED)
        return FLYT_STEP_CANCEL_TARGET; /* what it then says decides */
    if (target != FLYT_STANDING_SWITCHED)
        return FLYT_STEP_SWITCH_TARGET; /* it has forgotten that */
    return source == FLYT_STANDING_ARRIVED ? FLYT_STEP_SWITCH_SOURCE : FLYT_STEP_WAIT;
}

static enum flyt_migration_step next_under_way(const struct flyt_migration_seen *seen)
{
    enum flyt_migration_standing source = seen->standings[FLYT_MIGRATION_SOURCE],
                                 target = seen->standings[FLYT_MIGRATION_TARGET];

    if (target == FLYT_STANDING_DONE)
        return FLYT_STEP_MOVE;
    if (target == FLYT_STANDING_FORGOTTEN)
        return FLYT_STEP_REGISTER;
    /* Who has left is to come back: the target first gives up. */
    if (flyt_standing_is_out(source) || has_left(source)) {
        if (!flyt_standing_is_out(target) && seen->flags & FLYT_MIGRATION_IS_TARGET_THERE)
            return FLYT_STEP_CANCEL_TARGET;
        if (has_left(source))
            return flyt_standing_is_out(target) ? FLYT_STEP_SEND_BACK : FLYT_STEP_WAIT;
        return flyt_standing_is_out(target) ? FLYT_STEP_END : FLYT_STEP_WITHDRAW;
    }
    if (source == FLYT_STANDING_UNKNOWN)
        return FLYT_STEP_WAIT;
    if (seen->flags & FLYT_MIGRATION_IS_FAILING || flyt_standing_is_out(target))
        return FLYT_STEP_CANCEL_SOURCE;
    if (source != FLYT_STANDING_ARRIVED || target == FLYT_STANDING_UNKNOWN)
        return FLYT_STEP_WAIT;
    return target == FLYT_STANDING_SWITCHED ? FLYT_STEP_MOVE : FLYT_STEP_SWITCH_TARGET;
}

/* The first row of a state counts of which all of the one is seen, and none of the other. */
static const struct {
    enum flyt_move_state state;
    unsigned all, none;
    enum flyt_migration_step step;
} steps[] = {
    {FLYT_MOVE_RECORDING, FLYT_MIGRATION_IS_WRITTEN, 0, FLYT_STEP_BEGIN},
    {FLYT_MOVE_RECORDING, FLYT_MIGRATION_HAS_FAILED, 0, FLYT_STEP_FAIL_UNRECORDED},
    {FLYT_MOVE_RECORDED, FLYT_MIGRATION_IS_FAILING, 0, FLYT_STEP_END},
    {FLYT_MOVE_RECORDED, FLYT_MIGRATION_IS_READY, 0, FLYT_STEP_ORDER},
    {FLYT_MOVE_RECORDED, FLYT_MIGRATION_IS_LATE, 0, FLYT_STEP_FAIL_LATE},
    {FLYT_MOVE_ORDERED, FLYT_MIGRATION_IS_ANSWERED, 0, FLYT_STEP_FOLLOW},
    {FLYT_MOVE_TO_SOURCE, FLYT_MIGRATION_IS_WRITTEN, 0, FLYT_STEP_RETURN},
    {FLYT_MOVE_TO_SOURCE, FLYT_MIGRATION_HAS_FAILED | FLYT_MIGRATION_IS_DUE, 0, FLYT_STEP_WRITE},
    /* Within a node the programs went on there before that was written. */
    {FLYT_MOVE_TO_TARGET, FLYT_MIGRATION_IS_WRITTEN, FLYT_MIGRATION_IS_BETWEEN, FLYT_STEP_FINISH},
    {FLYT_MOVE_TO_TARGET, FLYT_MIGRATION_IS_WRITTEN, 0, FLYT_STEP_COMMIT},
    {FLYT_MOVE_TO_TARGET, FLYT_MIGRATION_HAS_FAILED | FLYT_MIGRATION_IS_DUE, 0, FLYT_STEP_WRITE},
    {FLYT_MOVE_RELEASING, FLYT_MIGRATION_IS_RELEASED, 0, FLYT_STEP_DONE},
    {FLYT_MOVE_RELEASING, 0, 0, FLYT_STEP_RELEASE},
};

enum flyt_migration_step flyt_migration_next(const struct flyt_migration_seen *seen)
{
    bool is_target_out = flyt_standing_is_out(seen->standings[FLYT_MIGRATION_TARGET]);

    if (seen->state == FLYT_MOVE_UNDER_WAY)
        return next_under_way(seen);
    if (seen->state == FLYT_MOVE_COMMITTED || seen->state == FLYT_MOVE_LEFT)
        return next_committed(seen);
    if (seen->state == FLYT_MOVE_WITHDRAWN)
        return !(seen->flags & FLYT_MIGRATION_IS_ORDERING) &&
                       (is_target_out || seen->flags & FLYT_MIGRATION_IS_TARGET_THERE)
                   ? FLYT_STEP_RESUME
                   : FLYT_STEP_WAIT;
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        if (steps[i].state == seen->state && (seen->flags & steps[i].all) == steps[i].all &&
            !(seen->flags & steps[i].none))
            return steps[i].step;
    return FLYT_STEP_WAIT;
}

bool flyt_migration_is_to_be_asked(const struct flyt_migration_seen *seen, unsigned side)
{
    const struct flyt_migration_way *way = &flyt_migration_ways[(seen->flags & FLYT_MIGRATION_IS_BETWEEN) != 0];
    bool may_be =
        seen->state == FLYT_MOVE_UNDER_WAY || seen->state == FLYT_MOVE_COMMITTED || seen->state == FLYT_MOVE_LEFT;

    return may_be && side < way->asked_count && !flyt_standing_is_out(seen->standings[side]) &&
           seen->silent_ms[side] >=
               (seen->standings[side] == FLYT_STANDING_UNKNOWN ? FLYT_MIGRATION_AGAIN_MS : FLYT_MIGRATION_SILENT_MS);
}

static const unsigned nexts[FLYT_MOVE_STATES] = {
    [FLYT_MOVE_RECORDING] = 1u << FLYT_MOVE_RECORDED,
    [FLYT_MOVE_RECORDED] = 1u << FLYT_MOVE_ORDERED,
    [FLYT_MOVE_ORDERED] = 1u << FLYT_MOVE_UNDER_WAY | 1u << FLYT_MOVE_RECORDED,
    [FLYT_MOVE_UNDER_WAY] = 1u << FLYT_MOVE_TO_TARGET | 1u << FLYT_MOVE_WITHDRAWN,
    [FLYT_MOVE_WITHDRAWN] = 1u << FLYT_MOVE_UNDER_WAY,
    [FLYT_MOVE_TO_SOURCE] = 1u << FLYT_MOVE_UNDER_WAY,
    [FLYT_MOVE_TO_TARGET] = 1u << FLYT_MOVE_COMMITTED | 1u << FLYT_MOVE_RELEASING,
    [FLYT_MOVE_COMMITTED] = 1u << FLYT_MOVE_LEFT | 1u << FLYT_MOVE_TO_SOURCE,
    [FLYT_MOVE_LEFT] = 1u << FLYT_MOVE_RELEASING | 1u << FLYT_MOVE_TO_SOURCE,
};

bool flyt_migration_may_follow(enum flyt_move_state from, enum flyt_move_state to)
{
    return nexts[from] >> to & 1;
}

const char *flyt_migration_phase_name(flyt_migration_phase phase)
{
    static const char *const names[] = {"unknown",   "preparing", "copying", "stopping",
                                        "switching", "done",      "failed",  "arrived"};

    return phase >= FLYT_MIGRATION_PREPARING && phase <= FLYT_MIGRATION_ARRIVED ? names[phase] : names[0];
}

void flyt_migration_figures(const flyt_migration_use *use, char *text, size_t text_bytes)
{
    char memory[FLYT_SIZE_TEXT_BYTES], copied[FLYT_SIZE_TEXT_BYTES], last[FLYT_SIZE_TEXT_BYTES];

    snprintf(text, text_bytes,
             "%u program%s with %s, %s copied in %u round%s and %.1f s; they stood still for %.1f ms, while %s were "
             "copied",
             use->session_count, use->session_count == 1 ? "" : "s", flyt_size_text(use->memory_bytes, memory),
             flyt_size_text(use->copied_bytes, copied), use->round, use->round == 1 ? "" : "s",
             (double)use->elapsed_ms / 1000, (double)use->standstill_us / 1000, flyt_size_text(use->last_bytes, last));
}
