/*
 * What a node's word on a migration means. Pure functions; any thread.
 */
#ifndef FLYT_CLUSTER_MIGRATION_RULES_H
#define FLYT_CLUSTER_MIGRATION_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "control.h"

enum flyt_migration_verdict {
    FLYT_MIGRATION_GOES_ON,
    FLYT_MIGRATION_HAS_MOVED,  /* the target is the allocation's */
    FLYT_MIGRATION_HAS_STAYED, /* the source is */
    FLYT_MIGRATION_UNKNOWN,    /* ask again later: the node cannot say now */
};

/*
 * Of the node's answer: its outcome's status, and, where that is OK, the phase. is_there: when the node registered
 * last, it had the allocation on the target. That decides only where the node knows nothing of the migration
 * (NOT_FOUND).
 */
enum flyt_migration_verdict flyt_migration_judge(flyt_status status, flyt_migration_phase phase, bool is_there);

/* "preparing" … "failed"; "unknown" for a number that none has. */
const char *flyt_migration_phase_name(flyt_migration_phase phase);

/* One sentence with the figures of one that is over: "moved in 3.2 s: 4.0 GiB in 3 rounds, …". */
void flyt_migration_figures(const flyt_migration_use *use, char *text, size_t text_bytes);

#endif
