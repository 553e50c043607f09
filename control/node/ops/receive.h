/*
 * A VM's programs arrive from another node while they run there: the target's side of FLYT_ORDER_RECEIVE and what
 * follows it (rpc/proto/control.x). The other node connects to this one's listener for each program, 1 + stream_count
 * times, with connections of kind FLYT_CONNECTION_MIGRATE, which prove that it knows the migration's secret
 * (arrival.h); a warm server is given all of them (FLYT_MANAGER_LINK_RECEIVE) and makes what comes (session_load.h).
 *
 *   PREPARING  the allocation is there, in state.json with the migration's id, and no program has come. Programs that
 *              come with a ticket are told to try again; the cluster manager is told nothing of the allocation
 *   COPYING    programs arrive. One that is cut off is forgotten: the other node decides whether it tries again
 *   ARRIVED    all that have come are here as a whole, for FLYT_NODE_RECEIVE_ARRIVED_MS at most
 *   SWITCHING  SWITCH has come, with just so many programs as are here (state.json says so: the point of commit).
 *              The sessions wait for their clients, as any that go on at another server (replace.h); programs that
 *              begin wait. The cluster manager is told of the allocation; its sessions are shown as they go on
 *   DONE       all go on here, as their servers have said. The allocation is as any other
 *   FAILED     nothing is left: no server, memory, ledger, SM group, folder, nor the allocation itself; after a restart
 *              servers that had all of it, until they have come back and heard so
 *
 * What fails before SWITCH fails all of it, but for what the other node may try again. After SWITCH, a program whose
 * client does not come in time, or whose server fails before it has said that the session goes on: when no other goes
 * on yet all have FAILED, and their clients find them on the other node; else that session has ended, with an event,
 * and the others stay.
 *
 * After a restart of the node manager one that was not switched has FAILED. Of one that was, servers come back, those
 * that have their client and those that wait for it; programs that had gone on are known from the state, although they
 * may have ended since. When all are there, and their ledgers, or no more can come: where all are there, or one had its
 * client already, those that waited wait again, and what is said above of the time after SWITCH holds; else all have
 * FAILED, for none goes on here yet. The last ones that ended are remembered for questions, but not over a restart.
 *
 * The loop's thread. It goes on from a timer, never inside of what has happened to one of its servers.
 */
#ifndef FLYT_NODE_RECEIVE_H
#define FLYT_NODE_RECEIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control.h"
#include "control/node/model/node.h"
#include "control/node/model/writer.h"
#include "control/node/ops/operation.h"
#include "rpc/base/error.h"
#include "rpc/base/ticket.h"

struct flyt_node_allocation;
struct flyt_node_arrival;
struct flyt_node_receive_record;

enum {
    FLYT_NODE_RECEIVE_TIMEOUT_S = 3600,   /* until SWITCH, where nothing else is wished */
    FLYT_NODE_RECEIVE_ARRIVED_MS = 60000, /* SWITCH comes by then: the other node waits no longer than that */
    FLYT_NODE_RECEIVE_SWITCH_MS = 2000,   /* it is answered by then: servers may have to say first that all is there */
    FLYT_NODE_RECEIVE_SAVE_MS = 1000,     /* that a program goes on is written so much later: others stand still now */
};

/* `res` is good during the call; the text of its use's outcome is the receive's. */
typedef void (*flyt_node_switched_fn)(void *user, const flyt_order_migration_res *res);

/* `text` is good for the call. */
typedef void (*flyt_node_received_fn)(void *user, flyt_status status, const char *text);

struct flyt_node_receive {
    struct flyt_node_operation op; /* first */
    unsigned char secret[FLYT_MIGRATION_SECRET_BYTES];
    bool is_encrypted; /* the other node's connections */
    struct {
        struct flyt_node_commit commit;
        flyt_node_received_fn done; /* NULL: it is answered */
        void *user;
    } taking;                                /* that it was ordered, and the allocation */
    char last_failure[512];                  /* of a program that the other node may try again; may be empty */
    struct flyt_node_receive_record *record; /* NULL: it has ended */
    unsigned ahead_count;                    /* the state was written ahead for a SWITCH of so many programs */
    bool is_switched;
    bool is_restarted; /* by an earlier node manager, and switched: nothing is known of its programs */
    struct flyt_node_arrival *arrivals;
    struct {
        flyt_node_switched_fn done; /* NULL: SWITCH has not come, or is answered */
        void *user;
        unsigned session_count;
        uint64_t until_ms;
        struct flyt_node_commit commit;
        bool
            is_writing; /* that it has come, or that it has failed after all: nothing else happens until that is done */
    } switching;
    uint64_t arrived_ms, switch_ns;                   /* 0: not (yet) */
    uint64_t unsaved_ms;                              /* since then the state lacks who goes on here; 0: nobody */
    unsigned switched_count, moved_count, lost_count; /* programs */
    uint64_t memory_bytes, standstill_us;             /* of those that go on here */
};

/* ---- orders ---- */

/* RECEIVE. `done` is told once, at once or later: OK: the allocation is there, which is written, or the order is known
 * by its id; else why not. */
void flyt_node_receive(struct flyt_node *node, const flyt_order_receive_args *args, flyt_node_received_fn done,
                       void *user);
/* As of operations (operation.h). */
static inline struct flyt_node_receive *flyt_node_receive_find(const struct flyt_node *node, uint64_t migration_id)
{
    return (struct flyt_node_receive *)flyt_node_operation_find(node, FLYT_NODE_OPERATION_RECEIVE, migration_id);
}
static inline struct flyt_node_receive *flyt_node_receive_of(const struct flyt_node_allocation *allocation)
{
    return (struct flyt_node_receive *)flyt_node_operation_of(allocation, FLYT_NODE_OPERATION_RECEIVE);
}
static inline bool flyt_node_receive_is_failing(const struct flyt_node_receive *receive)
{
    return flyt_node_operation_is_to_fail(&receive->op);
}
/*
 * SWITCH: `done` is called once, at once or within FLYT_NODE_RECEIVE_SWITCH_MS. OK: just session_count programs are
 * here, and are waited for; CONFLICT: they are not. A second one while the first is not answered is CONFLICT; after
 * one that was OK it is OK again, as long as it has not FAILED.
 */
void flyt_node_receive_switch(struct flyt_node_receive *receive, unsigned session_count, flyt_node_switched_fn done,
                              void *user);
/* It is to fail for this reason, if it still can. 0; -EALREADY: it has ended, or a client has come. */
int flyt_node_receive_cancel(struct flyt_node_receive *receive, const char *reason);

/* ---- what others ask ---- */

/* Whether nobody but programs that arrive is let in, and the cluster manager is told nothing of it. */
bool flyt_node_receive_hides(const struct flyt_node_allocation *allocation);
/*
 * A program wants its session, by token. 0: its server is there for it (replace.h has the session); -EBUSY, with one
 * sentence: it is to try again; -ENOENT: no such session is on its way here.
 */
int flyt_node_receive_ask(const struct flyt_node_allocation *allocation, const void *token, size_t bytes,
                          struct flyt_error *err);
/* Whether the session is on its way here, and would be found on the other node, or has been told to have ended. */
bool flyt_node_receive_keeps(const struct flyt_node *node, uint64_t session_id);

/* ---- start and end ---- */

/* After a start, with the allocations of the state. */
void flyt_node_receives_init(struct flyt_node *node);
/* At the node manager's end, before anything else ends: what is not written yet. */
void flyt_node_receives_save(struct flyt_node *node);
/* At the node manager's end. */
void flyt_node_receives_fini(struct flyt_node *node);

#endif
