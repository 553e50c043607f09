/*
 * A session that no process of this node has is loaded into a warm server: PREPARE, then what it is made from (an
 * image's file: restore.h; another node's connections: receive.h). What memory the server makes (MADE, EXTENT_GONE) is
 * held here, and charged to the allocation's ledgers as it comes: what its VM has no room for is refused at once. Then
 * the session waits for its client as any that goes on at another server (replace.h), but for this server.
 *
 * Its states are those of its target (target.h). The session has no process until its server has its client.
 *
 * One that comes back after a restart with all that it had made (REJOIN) begins in state NEW, with its server, and goes
 * on in LOADING, where it says once more what there is: nothing of it was charged twice, or let go of, in between. The
 * session's entry in the ledgers has an id that follows from the server's, so that it is found again.
 *
 * The owner is told of what it decides on (ops), from within what has happened to the server. EXTENT_GONE is not
 * answered: a server without a session has no ledger to credit.
 *
 * The loop's thread. A server belongs to one of these at most.
 */
#ifndef FLYT_NODE_SESSION_LOAD_H
#define FLYT_NODE_SESSION_LOAD_H

#include <stdbool.h>
#include <stdint.h>

#include "control.h"
#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/target.h"
#include "rpc/base/error.h"
#include "rpc/transport/manager_link.h"

enum {
    FLYT_NODE_SESSION_LOAD_WARM_MS = 120000,   /* a server becomes warm */
    FLYT_NODE_SESSION_LOAD_PREPARE_MS = 60000, /* PREPARE is answered */
};

struct flyt_node_session_load;

struct flyt_node_session_load_ops {
    /* PREPARE was answered: sends the server what it is made from (flyt_node_target_send). 0 or a negative errno. */
    int (*load)(struct flyt_node_session_load *session_load);
    /* LOADED, as `prepared` says. */
    void (*loaded)(struct flyt_node_session_load *session_load, const struct flyt_manager_link_prepared *prepared);
    /* OVER: its server has said that the session goes on, and has nothing to do with this any more. */
    void (*gone_on)(struct flyt_node_session_load *session_load, struct flyt_node_server *server);
    /* OVER, and why, in one sentence. */
    void (*failed)(struct flyt_node_session_load *session_load, enum flyt_node_target_end how, flyt_status status,
                   const char *sentence);
};

/* Whose session it is. */
struct flyt_node_session_load_session {
    uint64_t session_id, allocation_id;
    unsigned char token[FLYT_TOKEN_BYTES];
    char program[FLYT_NAME_BYTES_MAX + 1];
    char client_address[FLYT_NAME_BYTES_MAX + 1];
    uint32_t client_pid;
    bool is_encrypted, leaves_coredumps;
    uint64_t started_ms; /* wall */
};

/* Embedded in its owner's object. */
struct flyt_node_session_load {
    struct flyt_node_target target; /* first */
    const struct flyt_node_session_load_ops *ops;
    struct flyt_node_session_load_session its;
    bool is_running; /* its program runs elsewhere meanwhile: it is let in where no new one would be */
    bool goes_on;
    struct flyt_node_session *session; /* from PREPARING to WAITING */
    bool is_returned, has_extents;     /* it has come back; and all of its memory is held already */
};

/* In state NEW. `its` is copied. */
void flyt_node_session_load_init(struct flyt_node_session_load *session_load, struct flyt_node_operation *operation,
                                 const struct flyt_node_session_load_ops *ops,
                                 const struct flyt_node_session_load_session *its);
/* Nothing refers to it any more. Its server is left alone: it is done, or the node manager ends. */
void flyt_node_session_load_fini(struct flyt_node_session_load *session_load);
/* Whether nothing of it is left: it is over, and where it does not go on its server's process has ended. */
bool flyt_node_session_load_is_done(const struct flyt_node_session_load *session_load);
/* WANTED. */
void flyt_node_session_load_begin(struct flyt_node_session_load *session_load);
/* Goes on as far as nobody is awaited, and fails where somebody was awaited for too long; LOADING may last load_ms. */
void flyt_node_session_load_advance(struct flyt_node_session_load *session_load, uint64_t load_ms);
/* In state NEW: a server that has come back with the session, which this move brought, in that many extents. 0 or
 * -ENOMEM: it is not taken. */
int flyt_node_session_load_return(struct flyt_node_session_load *session_load, struct flyt_node_allocation *allocation,
                                  struct flyt_node_server *target, uint64_t move_id, uint64_t extent_count);
/* LOADING, of such a one: the allocation has its ledgers, and nobody else comes back with them. */
void flyt_node_session_load_welcome(struct flyt_node_session_load *session_load);
/* The node manager ends, and its server, which has all of the session, waits for the next one (it comes back): what is
 * held and charged is left as it is. Nothing where it is over, or has its client. */
void flyt_node_session_load_leave(struct flyt_node_session_load *session_load);
/* LOADED: its client may come. */
void flyt_node_session_load_expect(struct flyt_node_session_load *session_load);
/* It has failed, which its owner is told; or its owner lets go of it, and is told nothing. Nothing happens to one that
 * is over. */
__attribute__((format(printf, 4, 5))) void flyt_node_session_load_fail(struct flyt_node_session_load *session_load,
                                                                       enum flyt_node_target_end how,
                                                                       flyt_status status, const char *format, ...);
void flyt_node_session_load_drop(struct flyt_node_session_load *session_load, const char *reason);

/* ---- what happens ---- */

/* Its client has come. Whether its server is ready for it; one that had it before is ended. */
bool flyt_node_session_load_has_come(struct flyt_node_session_load *session_load);
/* What is loaded into a server; NULL: nothing. */
static inline struct flyt_node_session_load *flyt_node_session_load_at(const struct flyt_node_server *server)
{
    return (struct flyt_node_session_load *)flyt_node_target_of(server, FLYT_NODE_ROLE_LOAD);
}

#endif
