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
    struct flyt_node_migration *next; /* in node->ops->migrations, the last one first */
    struct flyt_node *node;
    struct flyt_node_allocation *allocation; /* NULL: it has ended, or its allocation has */
    uint64_t id, allocation_id;
    char vm_ip[FLYT_NAME_BYTES_MAX + 1];
    flyt_allocation wanted;            /* until the commit; then what was before, to go back to; owned */
    flyt_migration_bounds bounds;      /* nothing in it is 0 */
    uint32_t kind;                     /* of all of its moves; SEND without `sending`: by way of the host (move.h) */
    struct flyt_node_sending *sending; /* to another node (send.h); else NULL. Owned */
    flyt_migration_phase phase;
    struct flyt_node_commit commit; /* that something of it is written: one of */
    enum {
        FLYT_NODE_MIGRATION_UNWRITTEN,
        FLYT_NODE_MIGRATION_WRITING_AHEAD, /* what is to be after the commit, while the programs run */
        FLYT_NODE_MIGRATION_AHEAD,
        FLYT_NODE_MIGRATION_COMMITTING, /* it waits for nothing else; what happens meanwhile is seen to then */
        FLYT_NODE_MIGRATION_COMMITTED,
        FLYT_NODE_MIGRATION_SETTLING, /* at its end, before anybody is told of that */
        FLYT_NODE_MIGRATION_SETTLED,
    } writing;
    flyt_status status;          /* of one that is to fail, or has; else OK */
    char text[512];              /* why; of one that is DONE what there is to say of it besides figures, or empty */
    bool is_committed, has_told; /* has_told: programs were told to leave */
    bool is_failing;             /* it was rolled back, and ends when nothing of it is left */
    bool is_found;               /* after a restart: what it had copied, and how long it took, is not known */
    unsigned tries;
    uint64_t pause_until_ms;
    sd_event_source *timer;
    struct flyt_node_move *moves;
    uint64_t started_ms, ended_ms, stop_ms;
    flyt_migration_use use;                   /* figures, as they were when moves that are over ended; no text */
    uint64_t second_ms, second_bytes;         /* for bytes_per_s */
    uint64_t groups_revision[FLYT_SLOTS_MAX]; /* of the slots before the commit */
    uint64_t whole_ms;    /* since when a session waits at its target for the others to be whole; 0: none has yet */
    bool is_let_go;       /* it was said that they go on: it cannot be rolled back any more */
    unsigned lost_count;  /* sessions that ended because their target failed too late */
    unsigned ended_count; /* sessions that ended before they were to leave: the others move */
    /* The cluster manager. */
    bool is_told, is_telling; /* the end was acknowledged; a report is on its way */
    bool has_changed;         /* since the last report */
    uint64_t told_ms;
};

/* An order. OK: it has begun, or has been carried out before; else why not, in *err. */
flyt_status flyt_node_migrate(struct flyt_node *node, const flyt_order_migrate_args *args, struct flyt_error *err);
/* One of this id, also one that has ended and is remembered (remembered.h); NULL: none. */
struct flyt_node_migration *flyt_node_migration_find(const struct flyt_node *node, uint64_t id);
/* The one of this allocation that is under way; NULL: none. */
struct flyt_node_migration *flyt_node_migration_of(const struct flyt_node_allocation *allocation);
bool flyt_node_migration_has_ended(const struct flyt_node_migration *migration);
/* It is to fail for this reason, if it still can. 0; -EALREADY: it has ended, or the programs are on their way. */
int flyt_node_migration_cancel(struct flyt_node_migration *migration, const char *reason);
/* How far it is. The text of the outcome is the migration's. */
void flyt_node_migration_use(const struct flyt_node_migration *migration, flyt_migration_use *ret_use);
/* At the node manager's end: sessions stay where they are. */
void flyt_node_migrations_fini(struct flyt_node *node);

/* ---- what happens ---- */

/* Whether a session that could go on at its target is to wait until the VM's others could, too. */
bool flyt_node_migration_waits(const struct flyt_node_migration *migration);
/* Something has come of a move. */
void flyt_node_migration_wake(struct flyt_node_migration *migration);
/* A session has begun: it joins, if its allocation is being migrated. */
void flyt_node_migration_join(struct flyt_node_server *server);
/* A session ends. Between two tries it belongs to no move, and is counted as one that ended meanwhile, too. */
void flyt_node_migration_leave(const struct flyt_node_server *server);
/* Whether programs of the allocation that begin are to wait. */
bool flyt_node_migration_holds(const struct flyt_node_allocation *allocation);
/* How many of the moves want a warm server on the GPU. */
unsigned flyt_node_migration_wants(const struct flyt_node *node, const struct flyt_node_gpu *gpu);
/* Whether programs stand still for one, or will at once: what nobody waits for is left for later. No step is hurried
 * for longer than 2 s: what takes so long is hindered by something else. */
bool flyt_node_migration_is_hasty(const struct flyt_node *node);
/* A server has become warm. */
void flyt_node_migration_fill(struct flyt_node *node);
/* The allocation is to end, with its sessions: its migration fails. */
void flyt_node_migration_drop(struct flyt_node_allocation *allocation, const char *reason);
/* It is about to be freed. */
void flyt_node_migration_forget(struct flyt_node_allocation *allocation, bool is_final);
/* The migration to another node that the allocation's programs have been told to leave for; NULL: none. */
struct flyt_node_migration *flyt_node_migration_departed(const struct flyt_node_allocation *allocation);

#endif
