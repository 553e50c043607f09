/*
 * A program's session. It goes on while its server process changes: a process has it, and another one may be prepared
 * for it meanwhile, and be given it; without a process it waits for its client. Sessions are found here alone: by id,
 * by token.
 *
 *   LOADING  no server has had it here: it is made anew at its target (session_load.h)
 *   SERVED   its present server has it
 *   WAITING  its server has gone, or it was loaded: it waits for its client (replace.h)
 *   ENDING   it waits no more, and ends in a turn of the loop of its own
 */
#ifndef FLYT_NODE_MODEL_SESSION_H
#define FLYT_NODE_MODEL_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/node/model/holding.h"
#include "control/node/model/node.h"
#include "control/node/model/ticket.h"
#include "rpc/transport/call_record.h"
#include "rpc/transport/manager_link.h"

struct flyt_node_role;
struct flyt_node_server;

/* When it lost its server, and what came of that (replace.h), on CLOCK_MONOTONIC; 0: not yet. */
struct flyt_node_replacement {
    uint64_t end_us;     /* its server's link ended, or its process had without that */
    uint64_t gone_us;    /* the process had ended */
    uint64_t come_us;    /* its client had come, the last time */
    uint64_t given_us;   /* the next server had been sent all extents */
    uint64_t session_us; /* and the session */
};

enum flyt_node_session_state {
    FLYT_NODE_SESSION_LOADING,
    FLYT_NODE_SESSION_SERVED,
    FLYT_NODE_SESSION_WAITING,
    FLYT_NODE_SESSION_ENDING,
};

struct flyt_node_session {
    struct flyt_node_session *next; /* in node->sessions */
    struct flyt_node *node;
    enum flyt_node_session_state state;
    struct flyt_node_allocation *allocation;
    uint64_t id;
    unsigned char token[FLYT_TOKEN_BYTES];
    struct flyt_node_ticket ticket;
    uint64_t started_ms; /* wall */
    bool is_encrypted;
    bool leaves_coredumps;            /* its contexts do, and are to wherever it goes on */
    struct flyt_node_server *present; /* SERVED: has it; else NULL */
    struct flyt_node_server *target;  /* is prepared for it; NULL: none */
    bool is_given;                    /* its target has it, beside the present one as long as there is one */
    bool has_gone;                    /* it goes on at another node, which tells of it; what is here was left */
    uint64_t asked_ms;                /* SERVED: when a client first wanted it elsewhere; 0: never */
    struct flyt_node_replacement replacement;

    /* Without a server: */
    struct flyt_node_holding has;
    struct flyt_node_role *role;    /* its part in an operation; NULL: it has none */
    bool has_left_at;               /* how far its process had come when it ended, or was left: */
    struct flyt_call_state left_at; /* so far */
    uint64_t away_until_ms;
    sd_event_source *timer;
    char end_reason[512]; /* why it has no server, then why it ends */
};

/* In the table; LOADING. NULL: no memory. It is freed when it has ended (flyt_node_session_free), or nobody has it. */
struct flyt_node_session *flyt_node_session_new(struct flyt_node *node, struct flyt_node_allocation *allocation,
                                                uint64_t id, const unsigned char *token);
/* A target is nobody's then. */
void flyt_node_session_free(struct flyt_node_session *session);
/* The server has it. */
void flyt_node_session_serve(struct flyt_node_session *session, struct flyt_node_server *present);
/* Its present server, whose process has gone, has it no more: what that had of it is its own. */
void flyt_node_session_lose(struct flyt_node_session *session);
/* LOADING, or has no server any more: it waits. */
void flyt_node_session_wait(struct flyt_node_session *session);
/* It waits no more: who calls this has it end soon. */
void flyt_node_session_end(struct flyt_node_session *session);
/* Its target, which it has, was given it. */
void flyt_node_session_give(struct flyt_node_session *session);
/* Another server is prepared for it. One that was before is nobody's. */
void flyt_node_session_prepare(struct flyt_node_session *session, struct flyt_node_server *target);
/* The server has no part in its session any more (nothing where it has none). A target that was given it is its present
 * server then; one that was not is nobody's. The session is freed when nobody has it. */
void flyt_node_session_leave(struct flyt_node_server *server);
/* The server where it goes on: its target where that was given it, else its present one. NULL: it has none. */
struct flyt_node_server *flyt_node_session_server(const struct flyt_node_session *session);
/* What it has, where it is: by its present server, or its own. As strchr(), for a session that is not const, too. */
struct flyt_node_holding *flyt_node_session_has(const struct flyt_node_session *session);
/* Its part in an operation, as of its present server, or its own; NULL: none. */
const struct flyt_node_role *flyt_node_session_role(const struct flyt_node_session *session);
/* It waits for its client, or ends, without a server. */
static inline bool flyt_node_session_is_away(const struct flyt_node_session *session)
{
    return session->state == FLYT_NODE_SESSION_WAITING || session->state == FLYT_NODE_SESSION_ENDING;
}

/* Whether it is told of as one: not while it is loaded, nor what was left of it here. What it has then. */
bool flyt_node_session_is_shown(const struct flyt_node_session *session);
const struct flyt_node_holding *flyt_node_session_shown(const struct flyt_node_session *session);

/* NULL: there is none. Of two of one id, the one that has begun last. */
struct flyt_node_session *flyt_node_session_find(const struct flyt_node *node, uint64_t id);
/* allocation NULL: of any. */
struct flyt_node_session *flyt_node_session_find_token(const struct flyt_node *node,
                                                       const struct flyt_node_allocation *allocation, const void *token,
                                                       size_t bytes);
/* Whether one without a server has this entry in the ledgers. */
bool flyt_node_sessions_have_entry(const struct flyt_node *node, uint64_t server_id);
/* A session's client has come anew, with a ticket of its own: where it is now. */
void flyt_node_session_client_came(struct flyt_node_session *session, const struct flyt_node_ticket *client);

#endif
