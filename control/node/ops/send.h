/*
 * A VM's programs go to another node while they run: the source's side of FLYT_ORDER_SEND and what follows it
 * (rpc/proto/control.x). It is a migration (migration.h) whose moves are of kind FLYT_MANAGER_LINK_MOVE_SEND: for each
 * session this node connects to the other one's listener, 1 + stream_count times (dial.h), and hands the connections to
 * the session's server, which sends an image through them and says STOPPED when all of it is in its place there.
 *
 *   PREPARING, COPYING, STOPPING  as within the node; a failure leaves all where they are
 *   ARRIVED    everything is at the other node, the programs stand still. Without SWITCH within the time that a stop
 *              may take (at least FLYT_NODE_SEND_ARRIVED_MS), and FLYT_NODE_SEND_GRACE_MS, they go on here: FAILED
 *   SWITCHING  SWITCH has come (state.json says so), the programs are told to leave and to ask where to go on. From
 *              here on nothing is decided here: what was left is kept, frozen, for as long as it takes. Clients that
 *              come all the same are told to try again; programs that begin are not let in, and ask where they may
 *   DONE       the allocation was taken back: what was left has ended, without a word
 *   FAILED     also after SEND_BACK: clients that come are given back to what they had left
 *
 * After a restart of the node manager a migration that was not switched is not known any more, and its programs go on
 * here. One that was goes on as it was, with the servers that come back and have been left. Where one of its programs
 * runs here all the same, it had not been told to leave: those that had are given back, and it has FAILED.
 *
 * The loop's thread.
 */
#ifndef FLYT_NODE_SEND_H
#define FLYT_NODE_SEND_H

#include "control/node/ops/migration.h"
#include "control/node/ops/resolver.h"

enum {
    FLYT_NODE_SEND_ARRIVED_MS = 2000,
    FLYT_NODE_SEND_GRACE_MS = 3000,
    FLYT_NODE_SEND_CONNECT_MS = 60000, /* a session's connections are there within this time, or it fails */
    FLYT_NODE_SEND_AGAIN_MS = 500,     /* where the other node was busy they are tried again after this */
    FLYT_NODE_SEND_DIALS_MAX = 64,     /* at once, of all sessions: a listener lets so many in that are not known yet */
};

/* What has come of SWITCH; `text` is good for the call. */
typedef void (*flyt_node_sent_fn)(void *user, const struct flyt_node_migration *migration, flyt_status status,
                                  const char *text);

/* What there is of the other node. */
struct flyt_node_sending {
    char node[FLYT_NAME_BYTES_MAX + 1];  /* its name, for sentences; empty: of before a restart */
    struct flyt_node_resolver *resolver; /* NULL: of before a restart */
    unsigned char secret[FLYT_MIGRATION_SECRET_BYTES];
    unsigned stream_count, packing;
    bool is_encrypted;
    uint64_t arrived_ms; /* when everything was there; 0: not yet */
    bool is_taken_back;  /* the allocation was, after SWITCH: it ends well */
    struct {
        flyt_node_sent_fn done; /* SWITCH is being written; else NULL */
        void *user;
    } switching;
};

/* An order. OK: it has begun, or has been carried out before; else why not, in *err. */
flyt_status flyt_node_send(struct flyt_node *node, const flyt_order_send_args *args, struct flyt_error *err);
/* SWITCH: `done` is called once, at once or when it is written. OK: its programs are told to leave, or were; CONFLICT:
 * they go on here; UNAVAILABLE: the same order is being carried out, or the node manager ends. */
void flyt_node_send_switch(struct flyt_node_migration *migration, flyt_node_sent_fn done, void *user);
/* SEND_BACK. OK: its clients are given back as they come, or its programs have not left; CONFLICT and *err: they have
 * ended. */
flyt_status flyt_node_send_back(struct flyt_node_migration *migration, const char *reason, struct flyt_error *err);

/* ---- for migration.c ---- */

struct flyt_node_sending *flyt_node_sending_free(struct flyt_node_sending *sending);
/* It is about to be forgotten: who has ordered SWITCH, and was not answered, is. */
void flyt_node_send_give_up(struct flyt_node_migration *migration);
/* Everything is at the other node. */
void flyt_node_send_arrive(struct flyt_node_migration *migration);
/* Whether it has ARRIVED and SWITCH has not come in time. */
bool flyt_node_send_is_late(const struct flyt_node_migration *migration);
/* After SWITCH: a program that could not be told to leave ends, for it is at the other node. */
void flyt_node_send_forgive(struct flyt_node_migration *migration);
/* After SWITCH: it was not, after all. What has ended meanwhile is told. */
void flyt_node_send_undo(struct flyt_node_migration *migration);
/* After SWITCH: the allocation is taken back. What was left ends without a word. */
void flyt_node_send_end(struct flyt_node_migration *migration);

/* ---- for others ---- */

/* After a restart, when the allocations are there: what had been switched goes on. 0 or -ENOMEM. */
int flyt_node_send_restore(struct flyt_node *node);
/* A server has come back with a session of an allocation; left_move_id is set where it was left. True: it is one of a
 * migration to another node, and waits for its end or for its client. */
bool flyt_node_send_take_back_server(struct flyt_node_server *server);

#endif
