/*
 * Resizing what a VM has: what an allocation becomes, and how far a resize is. Nothing here writes, orders or waits.
 *
 * A resize is followed by what is known of its allocation (struct flyt_resize_seen), however that came to be known: the
 * rows of one table say what is next.
 *
 *   QUEUED ──► EDITING ──► WRITING ──► ORDERED ──► SWITCHING ──► OVER
 *      │          │           │           │ refused                ▲
 *      │          │           │           └──► TAKING_BACK ────────┤
 *      ├──────────┴───────────┴────────────────────────────────────┤
 *      └──► MOVING: the size is had on another GPU (migration) ────┘
 */
#ifndef FLYT_CLUSTER_MODEL_RESIZE_H
#define FLYT_CLUSTER_MODEL_RESIZE_H

#include <stdbool.h>
#include <stdint.h>

#include "control/cluster/model/allocation.h"
#include "rpc/base/error.h"

struct flyt_vm;

/* ---- how far it is ---- */

enum flyt_resize_state {
    FLYT_RESIZE_QUEUED,      /* another resize of the VM is under way */
    FLYT_RESIZE_EDITING,     /* the VM's document is being written */
    FLYT_RESIZE_MOVING,      /* a migration has it */
    FLYT_RESIZE_WRITING,     /* what it makes of the allocation is being written */
    FLYT_RESIZE_ORDERED,     /* written; the node is to answer */
    FLYT_RESIZE_SWITCHING,   /* the node has it; its servers are to use it */
    FLYT_RESIZE_TAKING_BACK, /* the node refused: what was before is being written */
    FLYT_RESIZE_OVER,
};

/* What is to be done; what begins with SAY answers who asked. */
enum flyt_resize_step {
    FLYT_RESIZE_WAIT,
    FLYT_RESIZE_PUT_BACK, /* the write failed: what was before is written with a revision of its own */
    FLYT_RESIZE_ORDER,
    FLYT_RESIZE_TAKE_BACK, /* the node refused: likewise */
    FLYT_RESIZE_LOOK,      /* at once again */
    FLYT_RESIZE_SAY_QUEUED,
    FLYT_RESIZE_SAY_UNKNOWN,   /* whether it is recorded */
    FLYT_RESIZE_SAY_UNREACHED, /* recorded; the node did not answer */
    FLYT_RESIZE_SAY_LATE,      /* recorded; not acknowledged yet by the node and its servers */
    FLYT_RESIZE_SAY_KEPT,      /* running programs keep the SMs that they have */
    FLYT_RESIZE_SAY_SHORT,     /* fewer SMs than wanted, for now */
    FLYT_RESIZE_SAY_DONE,
    FLYT_RESIZE_SAY_REFUSED,
    FLYT_RESIZE_SAY_MOVED, /* the migration has ended */
    FLYT_RESIZE_SAY_STAYED,
};

struct flyt_resize_seen {
    bool is_written, has_failed; /* the allocation's last revision; a write of this resize's has failed */
    bool is_answered;            /* an order with its revision, or a later one, */
    int answer_error;            /* which did not arrive, or whose answer did not: a negative errno */
    bool is_refused;
    bool is_applied;                /* the node has that revision, and its programs' servers were told */
    flyt_switch_state switch_state; /* the slot that is least far */
    bool is_still;                  /* nothing runs of one that is suspended; true where that is not asked for */
    bool is_short;
    bool is_late;               /* its time is over */
    bool has_moved, has_stayed; /* the migration that it waited for */
    bool is_waited;             /* somebody waits for its answer */
};

/* The next step, FLYT_RESIZE_WAIT: none. *ret_state: where it is then. */
enum flyt_resize_step flyt_resize_next(enum flyt_resize_state state, const struct flyt_resize_seen *seen,
                                       enum flyt_resize_state *ret_state);

/* ---- what the allocation becomes ---- */

/* All of an allocation that a resize may change. */
struct flyt_resize_size {
    struct flyt_cluster_slot slots[FLYT_SLOTS_MAX];
    struct flyt_share share;
    int priority;
    bool is_suspended, when_free;
    unsigned shown_sms;
};

struct flyt_resize_want {
    flyt_set_number sms, memory_bytes; /* not set: as it is */
    bool when_free;
    bool is_forced; /* beyond quotas, and below what programs' launches have needed */
};

void flyt_resize_keep(const struct flyt_cluster_allocation *allocation, struct flyt_resize_size *ret_size);
/* Makes the allocation what `want` and the VM's document say, and charges it. FLYT_STATUS_OK, and in *ret_is_change
 * whether anything but when_free is another than before; else *err, and it is as `before`, which it was when called. */
flyt_status flyt_resize_change(struct flyt_cluster_allocation *allocation, const struct flyt_resize_want *want,
                               const struct flyt_resize_size *before, bool *ret_is_change, struct flyt_error *err);
/* After a change that holds no more: what it had added may be in use by now, and leaves like anything else. */
void flyt_resize_put_back(struct flyt_cluster_allocation *allocation, const struct flyt_resize_size *before);
/* Whether the VM's document says other than what it has, or has less than it wants. */
bool flyt_resize_is_wanted(const struct flyt_cluster_allocation *allocation, const struct flyt_vm *vm);
/* The slot that is least far with the SMs that have changed; *ret_sms (untouched where none has): what it has now. KEPT
 * says more than TARGET: there is nothing to wait for. */
flyt_switch_state flyt_resize_least_switched(const struct flyt_cluster_allocation *allocation,
                                             const struct flyt_resize_size *before, unsigned *ret_sms);
/* A part that has less than it wants; NULL: none. */
const struct flyt_cluster_slot *flyt_resize_short_slot(const struct flyt_cluster_allocation *allocation);

#endif
