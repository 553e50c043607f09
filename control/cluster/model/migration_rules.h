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

/* ---- between nodes ---- */

enum { FLYT_MIGRATION_SOURCE, FLYT_MIGRATION_TARGET, FLYT_MIGRATION_SIDES };

/* Where one of the two nodes stands. */
enum flyt_migration_standing {
    FLYT_STANDING_UNKNOWN,  /* it has not said that since it registered, or cannot say now */
    FLYT_STANDING_ABSENT,   /* it knows nothing of the migration */
    FLYT_STANDING_COPYING,  /* or anything else before everything has arrived */
    FLYT_STANDING_ARRIVED,  /* the programs stand still, everything is at the target: SWITCH is waited for */
    FLYT_STANDING_SWITCHED, /* source: they have left it; target: they are let in */
    FLYT_STANDING_DONE,     /* target: they go on there */
    FLYT_STANDING_FAILED,   /* source: they go on there; target: it has nothing of it */
};

/*
 * Of a node's answer: its outcome's status, and, where that is OK, the phase. has_it: it is the target, the documents
 * give it the allocation, and it has that. That decides where it knows nothing of the migration: then it was done.
 */
enum flyt_migration_standing flyt_migration_standing_of(flyt_status status, flyt_migration_phase phase, bool has_it);

/* It has said that it has nothing of the migration; the source: that nobody has left. */
bool flyt_standing_is_out(enum flyt_migration_standing standing);

enum flyt_migration_step {
    FLYT_STEP_WAIT,
    FLYT_STEP_SWITCH_TARGET,
    FLYT_STEP_COMMIT,        /* the documents are to give the allocation to the target */
    FLYT_STEP_SWITCH_SOURCE, /* once they do */
    FLYT_STEP_FINISH,        /* the source is to let go of it */
    FLYT_STEP_CANCEL_SOURCE, /* its programs are to go on there */
    FLYT_STEP_CANCEL_TARGET, /* it is to drop what it has of it */
    FLYT_STEP_UNDO,          /* the documents are to give the allocation back to the source */
    FLYT_STEP_SEND_BACK,     /* once they do: programs that have left the source are let in there again */
    FLYT_STEP_WITHDRAW,      /* it has failed; what the target has, which is away, is found out when that is back */
    FLYT_STEP_END,           /* it has failed, and neither has anything of it any more */
};

/*
 * What is next: whether the documents give the allocation to the target, whether it is to fail, where both nodes stand,
 * and whether the target can be asked at all. Who has the programs wins: nothing is taken from a target that has said
 * DONE, and the source goes on as long as it has not left.
 */
enum flyt_migration_step flyt_migration_next(bool is_committed, bool is_cancelled, enum flyt_migration_standing source,
                                             enum flyt_migration_standing target, bool is_target_there);

/* ---- words ---- */

/* "preparing" … "arrived"; "unknown" for a number that none has. */
const char *flyt_migration_phase_name(flyt_migration_phase phase);

/* One sentence with the figures of one that is over: "moved in 3.2 s: 4.0 GiB in 3 rounds, …". */
void flyt_migration_figures(const flyt_migration_use *use, char *text, size_t text_bytes);

#endif
