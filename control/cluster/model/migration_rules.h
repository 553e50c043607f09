/*
 * What is next of a migration: pure functions of what is wanted of it, what is written, and what its nodes have said.
 * A migration within a node is one between two nodes which are the same: that node's words are both sides' words. What
 * differs is in one table (flyt_migration_ways). Any thread.
 */
#ifndef FLYT_CLUSTER_MIGRATION_RULES_H
#define FLYT_CLUSTER_MIGRATION_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control.h"

enum { FLYT_MIGRATION_SOURCE, FLYT_MIGRATION_TARGET, FLYT_MIGRATION_SIDES };

struct flyt_migration_way {
    unsigned begin, follow; /* procedures: the order that comes first, and the one after its answer; 0: none */
    unsigned begin_side;    /* who gets `begin` */
    unsigned asked_count;   /* sides that are asked, and speak for themselves; 1: the source for both */
    bool is_by_orders; /* the sides switch and the source lets go when they are told; else the node does by itself */
    const char *place; /* where its programs have gone, in words */
};

/* [is_between]. */
extern const struct flyt_migration_way flyt_migration_ways[2];

/*
 * How far a migration is; `to target`, `to source`: the documents are being written, of both sides.
 *
 *     recording ──► recorded ──► ordered ──► under way ──► to target ──► committed ──► left ──► releasing ──► over
 *                                                ▲             │              │          │         ▲
 *                                                │             │ within a node│          │         │
 *                                                │             └──────────────┼──────────┼─────────┘
 *                                                └────────── to source ◄──────┴──────────┘
 *     ordered ──► recorded: the first order was refused, and it ends
 *     under way ──► withdrawn ──► under way: while the target is away, and the programs are where they were
 *
 * Until `to target` it may also end where it is: all stays as it was. Found in the documents, it begins with to source
 * or to target, as they say.
 */
enum flyt_move_state {
    FLYT_MOVE_RECORDING, /* it is being written: nobody knows of it */
    FLYT_MOVE_RECORDED,  /* the source is to have all that was ordered before */
    FLYT_MOVE_ORDERED,   /* who gets the first order may know of it; its answer is awaited */
    FLYT_MOVE_UNDER_WAY, /* both sides may: where they stand decides */
    FLYT_MOVE_WITHDRAWN, /* it has failed; the target is away, and what it may have stays charged until it is back */
    FLYT_MOVE_TO_SOURCE,
    FLYT_MOVE_TO_TARGET, /* from here on the parts are those on the target; `others` those on the source */
    FLYT_MOVE_COMMITTED, /* the source is to let the programs go */
    FLYT_MOVE_LEFT,      /* it has, and the VM was told where they are */
    FLYT_MOVE_RELEASING, /* they go on at the target; the source is to let go of what it has */
    FLYT_MOVE_STATES
};

/* Where one of the two sides stands. */
enum flyt_migration_standing {
    FLYT_STANDING_UNKNOWN,   /* it has not said that since it registered, or cannot say now */
    FLYT_STANDING_ABSENT,    /* it knows nothing of the migration */
    FLYT_STANDING_COPYING,   /* or anything else before everything has arrived */
    FLYT_STANDING_ARRIVED,   /* the programs stand still, everything is at the target: SWITCH is waited for */
    FLYT_STANDING_SWITCHED,  /* source: they have left it; target: they are let in */
    FLYT_STANDING_DONE,      /* target: they go on there */
    FLYT_STANDING_FAILED,    /* source: they go on there; target: it has nothing of it */
    FLYT_STANDING_FORGOTTEN, /* target: it knows nothing of it; what it has of the allocation it is to say anew */
    FLYT_STANDINGS
};

/* What a node says of a migration. */
struct flyt_migration_word {
    flyt_status status;         /* its outcome's */
    flyt_migration_phase phase; /* where that is OK */
    bool is_between;
    bool is_moved;       /* the documents give the allocation to the target */
    bool has_registered; /* since it was ordered, found in the documents, or recorded as this side's; and then: */
    bool has_allocation; /* it had the allocation as this side is to have it */
};

/* Of one side. What it registered with decides where it knows nothing of the migration. */
enum flyt_migration_standing flyt_migration_standing_of(const struct flyt_migration_word *word, unsigned side);

/* It has said that it has nothing of the migration; the source: that nobody has left. */
bool flyt_standing_is_out(enum flyt_migration_standing standing);

enum flyt_migration_flag {
    FLYT_MIGRATION_IS_BETWEEN = 1 << 0,
    FLYT_MIGRATION_IS_FAILING = 1 << 1,      /* it is to fail, if it still can */
    FLYT_MIGRATION_IS_WRITTEN = 1 << 2,      /* the write that its state waits for is in all documents */
    FLYT_MIGRATION_HAS_FAILED = 1 << 3,      /* that write has failed, or was never begun */
    FLYT_MIGRATION_IS_DUE = 1 << 4,          /* it is time to write again */
    FLYT_MIGRATION_IS_READY = 1 << 5,        /* the source has all that was ordered before */
    FLYT_MIGRATION_IS_LATE = 1 << 6,         /* it has not had that for long */
    FLYT_MIGRATION_IS_ANSWERED = 1 << 7,     /* no answer to the first order is awaited */
    FLYT_MIGRATION_IS_TARGET_THERE = 1 << 8, /* the target can be asked */
    FLYT_MIGRATION_IS_SOURCE_LOST = 1 << 9,  /* the source is away, for longer than programs wait for it */
    FLYT_MIGRATION_IS_ORDERING = 1 << 10,    /* an order about the allocation itself is under way */
    FLYT_MIGRATION_IS_RELEASED = 1 << 11,    /* the source has let go of what it had, or cannot have it any more */
    FLYT_MIGRATION_FLAGS = 12
};

/* What is seen of a migration. */
struct flyt_migration_seen {
    enum flyt_move_state state;
    unsigned flags; /* of enum flyt_migration_flag */
    enum flyt_migration_standing standings[FLYT_MIGRATION_SIDES];
    uint64_t silent_ms[FLYT_MIGRATION_SIDES]; /* for so long it has said nothing, and was asked nothing */
};

enum flyt_migration_step {
    FLYT_STEP_WAIT,
    FLYT_STEP_WRITE,           /* again */
    FLYT_STEP_BEGIN,           /* it is recorded: that is told */
    FLYT_STEP_FAIL_UNRECORDED, /* it is to fail, for the store did not take it */
    FLYT_STEP_FAIL_LATE,       /* likewise, for the source has not taken what was ordered before */
    FLYT_STEP_ORDER,           /* the first order of its way */
    FLYT_STEP_FOLLOW,          /* the second one, if there is one and it does not fail: it is under way */
    FLYT_STEP_REGISTER,        /* the target is to say what it has of the allocation */
    FLYT_STEP_SWITCH_TARGET,
    FLYT_STEP_MOVE,          /* the documents are to give the allocation to the target */
    FLYT_STEP_COMMIT,        /* they do */
    FLYT_STEP_SWITCH_SOURCE, /* then */
    FLYT_STEP_TELL,          /* the VM hears where its programs are: they can have left */
    FLYT_STEP_FINISH,        /* they go on at the target */
    FLYT_STEP_RELEASE,       /* the source is to let go of it */
    FLYT_STEP_DONE,          /* it has */
    FLYT_STEP_CANCEL_SOURCE, /* its programs are to go on there */
    FLYT_STEP_CANCEL_TARGET, /* it is to drop what it has of it */
    FLYT_STEP_UNDO,          /* the documents are to give the allocation back to the source */
    FLYT_STEP_RETURN,        /* they do */
    FLYT_STEP_SEND_BACK,     /* then: programs that have left the source are let in there again */
    FLYT_STEP_WITHDRAW,      /* it has failed; what the target has, which is away, is found out when that is back */
    FLYT_STEP_RESUME,        /* it is */
    FLYT_STEP_END,           /* it has failed, and neither has anything of it any more */
    FLYT_STEPS
};

/* Who has the programs wins: nothing is taken from a target that has said DONE, and the source goes on as long as it
 * has not left. */
enum flyt_migration_step flyt_migration_next(const struct flyt_migration_seen *seen);

enum {
    FLYT_MIGRATION_SILENT_MS = 5000, /* a side that says nothing is asked how far it is */
    FLYT_MIGRATION_AGAIN_MS = 1000,  /* so soon, where it could not say; nothing is ordered twice within this */
};

/* Whether the side is to be asked how far it is. */
bool flyt_migration_is_to_be_asked(const struct flyt_migration_seen *seen, unsigned side);

/* Whether a state may follow another one. */
bool flyt_migration_may_follow(enum flyt_move_state from, enum flyt_move_state to);

/* ---- words ---- */

/* "preparing" … "arrived"; "unknown" for a number that none has. */
const char *flyt_migration_phase_name(flyt_migration_phase phase);

/* One sentence with the figures of one that is over: "moved in 3.2 s: 4.0 GiB in 3 rounds, …". */
void flyt_migration_figures(const flyt_migration_use *use, char *text, size_t text_bytes);

#endif
