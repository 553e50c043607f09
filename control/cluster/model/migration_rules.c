#include <stdio.h>

#include "control/base/size.h"
#include "control/cluster/model/migration_rules.h"

enum flyt_migration_verdict flyt_migration_judge(flyt_status status, flyt_migration_phase phase, bool is_there)
{
    if (status == FLYT_STATUS_NOT_FOUND)
        return is_there ? FLYT_MIGRATION_HAS_MOVED : FLYT_MIGRATION_HAS_STAYED;
    if (status != FLYT_STATUS_OK)
        return FLYT_MIGRATION_UNKNOWN;
    if (phase == FLYT_MIGRATION_DONE)
        return FLYT_MIGRATION_HAS_MOVED;
    return phase == FLYT_MIGRATION_FAILED ? FLYT_MIGRATION_HAS_STAYED : FLYT_MIGRATION_GOES_ON;
}

enum flyt_migration_standing flyt_migration_standing_of(flyt_status status, flyt_migration_phase phase, bool has_it)
{
    if (status == FLYT_STATUS_NOT_FOUND)
        return has_it ? FLYT_STANDING_DONE : FLYT_STANDING_ABSENT;
    if (status != FLYT_STATUS_OK)
        return FLYT_STANDING_UNKNOWN;
    switch (phase) {
    case FLYT_MIGRATION_ARRIVED:
        return FLYT_STANDING_ARRIVED;
    case FLYT_MIGRATION_SWITCHING:
        return FLYT_STANDING_SWITCHED;
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

static enum flyt_migration_step next_committed(enum flyt_migration_standing source, enum flyt_migration_standing target)
{
    if (target == FLYT_STANDING_DONE)
        return FLYT_STEP_FINISH;
    if (flyt_standing_is_out(target))
        return FLYT_STEP_UNDO;
    if (target == FLYT_STANDING_UNKNOWN)
        return FLYT_STEP_WAIT;
    if (source == FLYT_STANDING_FAILED)
        return FLYT_STEP_CANCEL_TARGET; /* what it then says decides */
    if (target != FLYT_STANDING_SWITCHED)
        return FLYT_STEP_SWITCH_TARGET; /* it has forgotten that */
    return source == FLYT_STANDING_ARRIVED ? FLYT_STEP_SWITCH_SOURCE : FLYT_STEP_WAIT;
}

enum flyt_migration_step flyt_migration_next(bool is_committed, bool is_cancelled, enum flyt_migration_standing source,
                                             enum flyt_migration_standing target, bool is_target_there)
{
    if (is_committed)
        return next_committed(source, target);
    if (target == FLYT_STANDING_DONE)
        return FLYT_STEP_COMMIT;
    /* Who has left is to come back: the target first gives up. */
    if (flyt_standing_is_out(source) || has_left(source)) {
        if (!flyt_standing_is_out(target) && is_target_there)
            return FLYT_STEP_CANCEL_TARGET;
        if (has_left(source))
            return flyt_standing_is_out(target) ? FLYT_STEP_SEND_BACK : FLYT_STEP_WAIT;
        return flyt_standing_is_out(target) ? FLYT_STEP_END : FLYT_STEP_WITHDRAW;
    }
    if (source == FLYT_STANDING_UNKNOWN)
        return FLYT_STEP_WAIT;
    if (is_cancelled || flyt_standing_is_out(target))
        return FLYT_STEP_CANCEL_SOURCE;
    if (source != FLYT_STANDING_ARRIVED || target == FLYT_STANDING_UNKNOWN)
        return FLYT_STEP_WAIT;
    return target == FLYT_STANDING_SWITCHED ? FLYT_STEP_COMMIT : FLYT_STEP_SWITCH_TARGET;
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
