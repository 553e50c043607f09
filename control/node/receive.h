/*
 * A VM's programs arrive from another node while they run there: the target's side of FLYT_ORDER_RECEIVE and what
 * follows it (rpc/proto/control.x). The other node connects to this one's door for each program, 1 + stream_count
 * times, with connections of kind FLYT_CONNECTION_MIGRATE, which prove that it knows the migration's secret; a warm
 * server is given all of them (FLYT_SERVER_LINK_RECEIVE) and makes what comes (loading.h).
 *
 *   PREPARING  the allocation is there, in state.json with the migration's id, and no program has come. Programs that
 *              come with a ticket are told to try again; the cluster manager is told nothing of the allocation
 *   COPYING    programs arrive. One that is cut off is forgotten: the other node decides whether it tries again
 *   ARRIVED    all that have come are here as a whole. Until SWITCH, whatever the other node decides, nothing of the
 *              program is lost: it is there
 *   SWITCHING  SWITCH has come, with just so many programs as are here (state.json says so: the point of commit).
 *              The sessions wait for their clients, as any that go on at another server (resume.h); programs that
 *              begin wait
 *   DONE       all go on here, as their servers have said. The allocation is as any other
 *   FAILED     nothing is left: no server, memory, ledger, SM group, folder, nor the allocation itself
 *
 * What fails before SWITCH fails all of it, but for what the other node may try again. After SWITCH, a program whose
 * client does not come in time, or whose server fails before it has said that the session goes on: when no other goes
 * on yet all have FAILED, and their clients find them on the other node; else that session has ended, with an event,
 * and the others stay.
 *
 * After a restart of the node manager one that was not switched has FAILED. Of one that was, servers that have their
 * client come back; when none can come any more, it is DONE where there is any, else it has FAILED.
 *
 * The loop's thread. It goes on from a timer, never inside of what has happened to one of its servers.
 */
#ifndef FLYT_NODE_RECEIVE_H
#define FLYT_NODE_RECEIVE_H

#include "control.h"
#include "control/node/node.h"
#include "rpc/base/error.h"

struct flyt_node_receive;

enum {
    FLYT_NODE_RECEIVE_SWITCH_MS = 2000 /* SWITCH is answered by then: its programs' servers may have to say so first */
};

/* `res` is good during the call; the text of its use's outcome is the receive's. */
typedef void (*flyt_node_switched_fn)(void *user, const flyt_order_migration_res *res);

/* An order. OK: the allocation is there, or the order is known by its id; else why not, in *err. */
flyt_status flyt_node_receive(struct flyt_node *node, const flyt_order_receive_args *args, struct flyt_error *err);
/* One of this migration's id, also one that has ended; NULL: none. */
struct flyt_node_receive *flyt_node_receive_find(const struct flyt_node *node, uint64_t migration_id);
/*
 * SWITCH: `done` is called once, at once or within FLYT_NODE_RECEIVE_SWITCH_MS. OK: just session_count programs are
 * here, and are waited for; CONFLICT: they are not. A second one while the first is not answered is CONFLICT; after
 * one that was OK it is OK again, as long as it has not FAILED.
 */
void flyt_node_receive_switch(struct flyt_node_receive *receive, unsigned session_count, flyt_node_switched_fn done,
                              void *user);
/* It is to fail for this reason, if it still can. 0; -EALREADY: it has ended, or a client has come. */
int flyt_node_receive_cancel(struct flyt_node_receive *receive, const char *reason);
/* How far it is. The text of the outcome is the receive's. */
void flyt_node_receive_use(const struct flyt_node_receive *receive, flyt_migration_use *ret_use);

#endif
