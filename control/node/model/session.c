#include "control/node/model/session.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/model/allocation.h"
#include "control/node/model/server.h"
#include "rpc/base/ticket.h"

#define STATE(name) (1u << FLYT_NODE_SESSION_##name)

/* Which states may follow one. */
static const unsigned next_states[] = {
    [FLYT_NODE_SESSION_LOADING] = STATE(SERVED) | STATE(WAITING),
    [FLYT_NODE_SESSION_SERVED] = STATE(SERVED) | STATE(WAITING), /* SERVED: by its target */
    [FLYT_NODE_SESSION_WAITING] = STATE(SERVED) | STATE(ENDING),
    [FLYT_NODE_SESSION_ENDING] = STATE(ENDING),
};

static void set_state(struct flyt_node_session *session, enum flyt_node_session_state state)
{
    assert(next_states[session->state] & 1u << state);
    session->node->away_count -= flyt_node_session_is_away(session);
    session->state = state;
    session->node->away_count += flyt_node_session_is_away(session);
}

struct flyt_node_session *flyt_node_session_new(struct flyt_node *node, struct flyt_node_allocation *allocation,
                                                uint64_t id, const unsigned char *token)
{
    struct flyt_node_session *session = calloc(1, sizeof *session);

    if (!session)
        return NULL;
    *session = (struct flyt_node_session){
        .next = node->sessions, .node = node, .allocation = allocation, .id = id, .has.vm_memory_fd = -1};
    memcpy(session->token, token, sizeof session->token);
    node->sessions = session;
    node->session_count++;
    return session;
}

void flyt_node_session_free(struct flyt_node_session *session)
{
    struct flyt_node_session **link = &session->node->sessions;

    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    session->node->session_count--;
    /* One that was left here may have come back meanwhile, under the same id. */
    if (session->allocation && session->allocation->locked_ledger &&
        !flyt_node_session_find(session->node, session->id))
        flyt_ledger_reclaim(session->allocation->locked_ledger, session->id, NULL);
    session->node->away_count -= flyt_node_session_is_away(session);
    if (session->target)
        session->target->session = NULL;
    sd_event_source_disable_unref(session->timer);
    flyt_node_holding_fini(&session->has);
    explicit_bzero(session, sizeof *session);
    free(session);
}

void flyt_node_session_serve(struct flyt_node_session *session, struct flyt_node_server *present)
{
    if (session->target == present)
        session->target = NULL;
    session->is_given = false;
    set_state(session, FLYT_NODE_SESSION_SERVED);
    session->timer = sd_event_source_disable_unref(session->timer);
    session->has_left_at = false;
    session->present = present;
    session->role = NULL;
    flyt_node_holding_fini(&session->has);
    session->has = (struct flyt_node_holding){.vm_memory_fd = -1};
    present->session = session;
}

void flyt_node_session_lose(struct flyt_node_session *session)
{
    struct flyt_node_server *server = session->present;

    session->has = server->has;
    server->has = (struct flyt_node_holding){.vm_memory_fd = -1};
    server->session = NULL;
    session->present = NULL;
}

void flyt_node_session_wait(struct flyt_node_session *session)
{
    set_state(session, FLYT_NODE_SESSION_WAITING);
}

void flyt_node_session_end(struct flyt_node_session *session)
{
    set_state(session, FLYT_NODE_SESSION_ENDING);
}

void flyt_node_session_give(struct flyt_node_session *session)
{
    assert(session->target && !session->is_given);
    session->is_given = true;
}

void flyt_node_session_prepare(struct flyt_node_session *session, struct flyt_node_server *target)
{
    assert(!session->is_given);
    if (session->target)
        session->target->session = NULL;
    session->target = target;
    target->session = session;
}

void flyt_node_session_leave(struct flyt_node_server *server)
{
    struct flyt_node_session *session = server->session;

    server->session = NULL;
    if (!session)
        return;
    if (session->target == server) {
        session->target = NULL;
        session->is_given = false;
    } else if (session->is_given) {
        flyt_node_session_serve(session, session->target);
    } else {
        flyt_node_session_free(session);
    }
}

struct flyt_node_server *flyt_node_session_server(const struct flyt_node_session *session)
{
    return session->is_given ? session->target : session->present;
}

struct flyt_node_holding *flyt_node_session_has(const struct flyt_node_session *session)
{
    return session->present ? &session->present->has : (struct flyt_node_holding *)&session->has;
}

const struct flyt_node_role *flyt_node_session_role(const struct flyt_node_session *session)
{
    return session->present ? session->present->role : session->role;
}

static bool is_loaded_into(const struct flyt_node_server *server)
{
    return server && server->role && server->role->ops->kind == FLYT_NODE_ROLE_LOAD;
}

bool flyt_node_session_is_shown(const struct flyt_node_session *session)
{
    return !session->has_gone && session->state != FLYT_NODE_SESSION_LOADING && !is_loaded_into(session->present) &&
           !is_loaded_into(session->target);
}

const struct flyt_node_holding *flyt_node_session_shown(const struct flyt_node_session *session)
{
    const struct flyt_node_server *server = flyt_node_session_server(session);

    return server ? &server->has : &session->has;
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

bool flyt_node_sessions_have_entry(const struct flyt_node *node, uint64_t server_id)
{
    const struct flyt_node_session *session = node->sessions;

    while (session && (session->present || session->has.server_id != server_id))
        session = session->next;
    return session != NULL;
}
