/*
 * A program's session. It goes on while its server process changes: a process has it, and another one may be prepared
 * for it meanwhile, and be given it. Sessions are found here alone: by id, by token.
 */
#ifndef FLYT_NODE_MODEL_SESSION_H
#define FLYT_NODE_MODEL_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/node/model/node.h"
#include "control/node/model/ticket.h"
#include "rpc/transport/manager_link.h"

struct flyt_node_server;

/* When it lost its server, and what came of that (replace.h), on CLOCK_MONOTONIC; 0: not yet. */
struct flyt_node_replacement {
    uint64_t end_us;     /* its server's link ended, or its process had without that */
    uint64_t gone_us;    /* the process had ended */
    uint64_t come_us;    /* its client had come, the last time */
    uint64_t given_us;   /* the next server had been sent all extents */
    uint64_t session_us; /* and the session */
};

struct flyt_node_session {
    struct flyt_node_session *next; /* in node->sessions */
    struct flyt_node *node;
    struct flyt_node_allocation *allocation;
    uint64_t id;
    unsigned char token[FLYT_TOKEN_BYTES];
    struct flyt_node_ticket ticket;
    uint64_t started_ms; /* wall */
    bool is_encrypted;
    struct flyt_node_server *present; /* has it, or had it last; NULL: not any more */
    struct flyt_node_server *target;  /* is prepared for it, or has just been given it; NULL: none */
    uint64_t asked_ms;                /* SERVING: when a client first wanted it elsewhere; 0: never */
    uint64_t away_until_ms;           /* AWAY */
    struct flyt_node_replacement replacement;
};

/* A session that `present` has; it is in the table, and the server's session. NULL: no memory. */
struct flyt_node_session *flyt_node_session_new(struct flyt_node_server *present,
                                                struct flyt_node_allocation *allocation, uint64_t id,
                                                const unsigned char *token);
/* Another server is prepared for it. One that was before is nobody's. */
void flyt_node_session_prepare(struct flyt_node_session *session, struct flyt_node_server *target);
/* The server has no part in its session any more (nothing where it has none). A target that was given it is its present
 * server then; one that was not is nobody's. The session is freed when nobody has it. */
void flyt_node_session_leave(struct flyt_node_server *server);
/* The server where it goes on: its target's where that was given it, else its present one's. */
struct flyt_node_server *flyt_node_session_server(const struct flyt_node_session *session);

/* NULL: there is none. Of two of one id, the one that has begun last. */
struct flyt_node_session *flyt_node_session_find(const struct flyt_node *node, uint64_t id);
/* allocation NULL: of any. */
struct flyt_node_session *flyt_node_session_find_token(const struct flyt_node *node,
                                                       const struct flyt_node_allocation *allocation, const void *token,
                                                       size_t bytes);
/* A session's client has come anew, with a ticket of its own: where it is now. */
void flyt_node_session_client_came(struct flyt_node_session *session, const struct flyt_node_ticket *client);

#endif
