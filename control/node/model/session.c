#include "control/node/model/session.h"

#include <stdlib.h>
#include <string.h>

#include "control/node/model/server.h"
#include "rpc/base/ticket.h"

struct flyt_node_session *flyt_node_session_new(struct flyt_node_server *present,
                                                struct flyt_node_allocation *allocation, uint64_t id,
                                                const unsigned char *token)
{
    struct flyt_node_session *session = calloc(1, sizeof *session);
    struct flyt_node *node = present->node;

    if (!session)
        return NULL;
    *session = (struct flyt_node_session){
        .next = node->sessions, .node = node, .allocation = allocation, .id = id, .present = present};
    memcpy(session->token, token, sizeof session->token);
    node->sessions = session;
    present->session = session;
    return session;
}

void flyt_node_session_prepare(struct flyt_node_session *session, struct flyt_node_server *target)
{
    if (session->target)
        session->target->session = NULL;
    session->target = target;
    target->session = session;
}

static void session_free(struct flyt_node_session *session)
{
    struct flyt_node_session **link = &session->node->sessions;

    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    if (session->target)
        session->target->session = NULL;
    explicit_bzero(session, sizeof *session);
    free(session);
}

void flyt_node_session_leave(struct flyt_node_server *server)
{
    struct flyt_node_session *session = server->session;

    server->session = NULL;
    server->allocation = NULL;
    if (!session)
        return;
    if (session->target == server) {
        session->target = NULL;
    } else {
        session->present = session->target && session->target->allocation ? session->target : NULL;
        if (session->present)
            session->target = NULL;
    }
    if (!session->present)
        session_free(session);
}

struct flyt_node_server *flyt_node_session_server(const struct flyt_node_session *session)
{
    return session->target && session->target->allocation ? session->target : session->present;
}

struct flyt_node_session *flyt_node_session_find(const struct flyt_node *node, uint64_t id)
{
    struct flyt_node_session *session = node->sessions;

    while (session && session->id != id)
        session = session->next;
    return session;
}

struct flyt_node_session *flyt_node_session_find_token(const struct flyt_node *node,
                                                       const struct flyt_node_allocation *allocation, const void *token,
                                                       size_t bytes)
{
    struct flyt_node_session *session = bytes == FLYT_TOKEN_BYTES ? node->sessions : NULL;

    while (session && ((allocation && session->allocation != allocation) ||
                       !flyt_equal_in_constant_time(session->token, token, bytes)))
        session = session->next;
    return session;
}

void flyt_node_session_client_came(struct flyt_node_session *session, const struct flyt_node_ticket *client)
{
    if (*client->client_address)
        memcpy(session->ticket.client_address, client->client_address, sizeof session->ticket.client_address);
}
