/*
 * A VM's programs move to other GPUs of this node, or to new server processes on the same ones, while they run: all
 * sessions of an allocation together (each: move.h).
 *
 *   PREPARING  each server says whether its session can be moved; warm servers on the target are prepared
 *   COPYING    memory is copied while the programs run. Programs that begin join
 *   STOPPING   when all are ready all are stopped. Programs that begin wait from here on
 *   SWITCHING  everything is at the targets: the allocation is as was wanted (state.json says so: the point of commit),
 *              the programs are told to leave, and come to the targets
 *   DONE       they go on there, and the servers that they left have ended
 *
 * To another node: send.h, where what is commit here is SWITCH.
 *
 * What fails before the commit leaves all where they are (FAILED). A program that does not stop in time is tried again,
 * up to FLYT_NODE_MIGRATION_TRIES times in all, from the beginning. After the commit, when a target fails before any
 * session has gone on at its own, all go back to their sources and the commit is undone; when one has gone on already,
 * the session of the target that failed ends, with an event: one allocation's programs are on one side.
 *
 * From its beginning to its end a migration holds the SM groups of both sides (struct flyt_node_slot: held), those of
 * the side that is left until its servers have ended. Other orders for the allocation are refused meanwhile, but those
 * that end it. The last ones that ended are remembered for questions, but not over a restart: then the allocation's
 * devices tell what has come of it (README.md).
 *
 * The loop's thread. A migration goes on from a timer, never inside of what has happened to one of its servers.
 */
#ifndef FLYT_NODE_MIGRATION_H
#define FLYT_NODE_MIGRATION_H

#include "control.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/move.h"
#include "control/node/ops/operation.h"

enum {
    FLYT_NODE_MIGRATION_ROUNDS = 10, /* what is not wished otherwise */
    FLYT_NODE_MIGRATION_STOP_MS = 2000,
    FLYT_NODE_MIGRATION_TIMEOUT_S = 3600,
    FLYT_NODE_MIGRATION_REST_MIB = 64,
    FLYT_NODE_MIGRATION_TRIES = 4,
    FLYT_NODE_MIGRATION_PAUSE_MS = 500,  /* before it is tried again */
    FLYT_NODE_MIGRATION_REPORT_MS = 500, /* the cluster manager is told so often */
};

struct flyt_node_sending;

struct flyt_node_migration {
    struct flyt_node_operation op;     /* first */
    flyt_allocation wanted;            /* until the commit; then what was before, to go back to; owned */
    flyt_migration_bounds bounds;      /* nothing in it is 0 */
    const struct flyt_node_way *way;   /* of all of its moves */
    struct flyt_node_sending *sending; /* to another node (send.h); else NULL. Owned */
    struct flyt_node_commit commit;    /* that something of it is written: one of */
    enum {
        FLYT_NODE_MIGRATION_UNWRITTEN,
        FLYT_NODE_MIGRATION_WRITING_AHEAD, /* what is to be after the commit, while the programs run */
        FLYT_NODE_MIGRATION_AHEAD,
        FLYT_NODE_MIGRATION_COMMITTING, /* it waits for nothing else; what happens meanwhile is seen to then */
        FLYT_NODE_MIGRATION_COMMITTED,
        FLYT_NODE_MIGRATION_SETTLING, /* at its end, before anybody is told of that */
        FLYT_NODE_MIGRATION_SETTLED,
    } writing;
    bool is_committed, has_told; /* has_told: programs were told to leave */
    bool is_failing;             /* it was rolled back, and ends when nothing of it is left */
    bool is_found;               /* after a restart: what it had copied, and how long it took, is not known */
    unsigned tries;
    uint64_t pause_until_ms;
    struct flyt_node_move *moves;
    uint64_t stop_ms;
    flyt_migration_use use;                   /* figures, as they were when moves that are over ended; no text */
    uint64_t second_ms, second_bytes;         /* for bytes_per_s */
    uint64_t groups_revision[FLYT_SLOTS_MAX]; /* of the slots before the commit */
    unsigned lost_count;                      /* sessions that ended because their target failed too late */
    unsigned ended_count;                     /* sessions that ended before they were to leave: the others move */
};

/* An order. OK: it has begun, or has been carried out before; else why not, in *err. */
flyt_status flyt_node_migrate(struct flyt_node *node, const flyt_order_migrate_args *args, struct flyt_error *err);
/* As of operations (operation.h). */
static inline struct flyt_node_migration *flyt_node_migration_find(const struct flyt_node *node, uint64_t id)
{
    return (struct flyt_node_migration *)flyt_node_operation_find(node, FLYT_NODE_OPERATION_MIGRATION, id);
}
static inline struct flyt_node_migration *flyt_node_migration_of(const struct flyt_node_allocation *allocation)
{
    return (struct flyt_node_migration *)flyt_node_operation_of(allocation, FLYT_NODE_OPERATION_MIGRATION);
}
static inline struct flyt_node_migration *flyt_node_migration_first(const struct flyt_node *node)
{
    return (struct flyt_node_migration *)flyt_node_operation_first(node, FLYT_NODE_OPERATION_MIGRATION);
}
static inline struct flyt_node_migration *flyt_node_migration_next(const struct flyt_node_migration *migration)
{
    return (struct flyt_node_migration *)migration->op.next;
}
/* It is to fail for this reason, if it still can. 0; -EALREADY: it has ended, or the programs are on their way. */
int flyt_node_migration_cancel(struct flyt_node_migration *migration, const char *reason);
/* At the node manager's end: sessions stay where they are. */
void flyt_node_migrations_fini(struct flyt_node *node);

/* ---- what happens ---- */

/* Whether a session that could go on at its target is to wait until the VM's others could, too. */
static inline bool flyt_node_migration_waits(const struct flyt_node_migration *migration)
{
    unsigned count = 0;

    for (const struct flyt_node_move *move = migration->moves; move; move = move->next)
        count += move->stage != FLYT_NODE_MOVE_OVER;
    return count > 1 && !migration->op.is_let_go;
}
/* Something has come of a move. NULL: nothing. */
static inline void flyt_node_migration_wake(struct flyt_node_migration *migration)
{
    if (migration)
        flyt_node_operation_wake(&migration->op);
}
/* A session has begun: it joins, if its allocation is being migrated. */
void flyt_node_migration_join(struct flyt_node_server *server);
/* A session ends. Between two tries it belongs to no move, and is counted as one that ended meanwhile, too. */
void flyt_node_migration_leave(const struct flyt_node_session *session);
/* The migration to another node that the allocation's programs have been told to leave for; NULL: none. */
static inline struct flyt_node_migration *flyt_node_migration_departed(const struct flyt_node_allocation *allocation)
{
    struct flyt_node_migration *migration = flyt_node_migration_of(allocation);

    return migration && migration->way->is_far && migration->is_committed && !migration->is_failing ? migration : NULL;
}

/* ---- for send.c ---- */

/* One that is not under way yet, with bounds of which none is 0. NULL: no memory. */
struct flyt_node_migration *flyt_node_migration_new(struct flyt_node_allocation *allocation, uint64_t id,
                                                    const flyt_migration_bounds *wished);
/* With the allocation's sessions, if wanted. 0: it is under way; -ENOMEM: it is as it was, to be dismissed. */
int flyt_node_migration_begin(struct flyt_node_migration *migration, bool with_sessions);
/* Frees one that is not under way. */
void flyt_node_migration_dismiss(struct flyt_node_migration *migration);

#endif
