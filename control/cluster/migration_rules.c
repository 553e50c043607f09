#include "control/cluster/migration_rules.h"

#include <stdio.h>

#include "control/base/size.h"

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

const char *flyt_migration_phase_name(flyt_migration_phase phase)
{
    static const char *const names[] = {"unknown", "preparing", "copying", "stopping", "switching", "done", "failed"};

    return phase >= FLYT_MIGRATION_PREPARING && phase <= FLYT_MIGRATION_FAILED ? names[phase] : names[0];
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
