/* A target is given its client: RESUME, the session's memory where it has none of its own, SESSION (target.h). */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/broker.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/server.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/target.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"

enum { RETRY_US = 2000 };

/* ---- who it is ---- */

struct flyt_node_target *flyt_node_target_at(const struct flyt_node_server *server)
{
    const struct flyt_node_role *role = server ? server->role : NULL;

    if (!role || role->ops->kind == FLYT_NODE_ROLE_MOVE || role->ops->kind == FLYT_NODE_ROLE_SAVE)
        return NULL;
    return (struct flyt_node_target *)role;
}

const struct flyt_node_role_ops *flyt_node_target_owner(const struct flyt_node_session *session)
{
    const struct flyt_node_role *role = flyt_node_session_role(session);
    const struct flyt_node_role *its = session->target ? session->target->role : NULL;

    if (flyt_node_role_is_move(role))
        return role->ops;
    return its && its->ops->kind == FLYT_NODE_ROLE_LOAD ? its->ops : NULL;
}

/* The one that is being given it; NULL: none. */
static struct flyt_node_target *giving_of(const struct flyt_node_session *session)
{
    struct flyt_node_target *target = flyt_node_target_at(session->target);

    return target && target->giving.is_begun ? target : NULL;
}

bool flyt_node_target_has_come(const struct flyt_node_server *server)
{
    const struct flyt_node_target *target = flyt_node_target_at(server);

    return target && target->giving.is_begun && target->giving.fd >= 0;
}

/* ---- its client ---- */

static void drop_client(struct flyt_node_giving *giving)
{
    giving->fd = flyt_close(giving->fd);
    explicit_bzero(&giving->ticket, sizeof giving->ticket);
    free(giving->record);
    giving->record = NULL;
}

static void end_giving(struct flyt_node_target *target)
{
    struct flyt_node_giving *giving = &target->giving;

    sd_event_source_disable_unref(giving->timer);
    drop_client(giving);
    *giving = (struct flyt_node_giving){.fd = -1};
}

void flyt_node_target_stop_giving(struct flyt_node_target *target)
{
    struct flyt_node_giving *giving = &target->giving;

    if (!giving->is_begun)
        return;
    struct flyt_node_server *server = target->server;
    struct flyt_node_session *session = server->session;
    session->replacement.given_us = 0;
    bool is_ending = session->present ? session->present->state != FLYT_NODE_SERVER_LEFT
                                      : session->state != FLYT_NODE_SESSION_WAITING;
    if (giving->fd >= 0) {
        target->node->sessions_refused++;
        flyt_handshake_refuse(
            giving->fd, giving->ticket.xid, is_ending ? FLYT_HANDSHAKE_NO_SESSION : FLYT_HANDSHAKE_BUSY,
            is_ending ? "the session was ended" : "the server process that was to take the session has failed");
    }
    end_giving(target);
    if (target->ops->has_memory && !flyt_node_server_allocation(server)) /* another one takes its place at once */
        flyt_node_session_leave(server);
}

void flyt_node_target_end(struct flyt_node_server *server)
{
    struct flyt_node_target *target = flyt_node_target_at(server);

    if (!server || server->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_link_queue_clear(&server->queue);
    if (target)
        flyt_node_target_stop_giving(target);
    if (flyt_node_server_allocation(server)) {
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
        flyt_node_server_kill(server);
    } else {
        flyt_node_server_end(server, NULL);
    }
}

void flyt_node_target_abandon(const struct flyt_node_session *session)
{
    struct flyt_node_target *target = giving_of(session);

    if (!target)
        return;
    struct flyt_node_server *server = target->server;
    flyt_node_target_stop_giving(target);
    flyt_node_server_end(server, NULL);
}

/* ---- what it is given ---- */

static uint64_t now_us(void)
{
    return flyt_clock_ns() / 1000;
}

static int take_entries(struct flyt_node_session *session, uint64_t server_id)
{
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);
    const struct flyt_node_holding *has = flyt_node_session_has(session);

    return owner ? owner->charge(session, server_id)
                 : flyt_node_charge_move(session->allocation, &has->extents, has->server_id, server_id);
}

static void put_entries_back(struct flyt_node_session *session, uint64_t server_id)
{
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);
    const struct flyt_node_holding *has = flyt_node_session_has(session);

    if (owner && owner->charge_back)
        owner->charge_back(session, server_id);
    else
        flyt_node_charge_move(session->allocation, &has->extents, server_id, has->server_id);
}

/* What the server has of the session beside its memory. */
static void take_use(struct flyt_node_server *server, const struct flyt_node_holding *had)
{
    server->has.use = had->use;
    server->has.use.is_replaceable = 0;
    server->has.use.is_coming = 1;
    server->has.use.is_ending = 0;
    snprintf(server->has.why_not, sizeof server->has.why_not, "its client makes its objects again");
}

/* The session has a server again; its target is told, who had prepared it. */
static void has_given(struct flyt_node_target *target, const struct flyt_manager_link_session *described)
{
    struct flyt_node_server *server = target->server;
    struct flyt_node_session *session = server->session;
    struct flyt_node_holding *had = flyt_node_session_has(session);
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);

    flyt_node_server_note_session(server, session->allocation, described);
    flyt_node_charge_take(server, had->server_id);
    flyt_node_session_client_came(session, &target->giving.ticket);
    session->asked_ms = 0;
    take_use(server, had);
    if (!owner || !owner->given(session))
        flyt_node_extents_move(server->node, &had->extents, had->server_id, &server->has.extents,
                               server->has.server_id);
    flyt_node_broker_move(had, server);
    end_giving(target);
    if (!session->present)
        flyt_node_session_serve(session, server);
    if (owner) /* it is told of when its server says that it goes on */
        session->replacement = (struct flyt_node_replacement){0};
    else
        target->ops->gone_on(target, server);
}

/* The last message: from now on it is the server's. */
static int give_session(struct flyt_node_target *target, struct flyt_manager_link_message *message)
{
    struct flyt_node_giving *giving = &target->giving;
    struct flyt_node_server *server = target->server;
    struct flyt_node_session *session = server->session;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    if (flyt_node_waiting_has_hung_up(giving->fd))
        return -ENOTCONN;
    int status =
        flyt_node_server_describe_session(server, &session->allocation->now, &giving->ticket, session, message);
    if (!status)
        status = flyt_node_server_session_fds(server->node, session->allocation, giving->fd, &message->session, fds,
                                              &fd_count);
    if (status)
        return status;
    message->data_bytes = (uint32_t)giving->bytes;
    memcpy(message->data, giving->record, giving->bytes);
    if (!giving->has_folder)
        status = flyt_node_server_equip(server, session->allocation, session);
    giving->has_folder |= !status;
    if (!status)
        status = take_entries(session, message->session.server_id);
    if (status)
        return status;
    status = flyt_node_link_queue_try(&server->queue, message, fds, fd_count);
    if (!status)
        has_given(target, &message->session);
    else
        put_entries_back(session, message->session.server_id);
    return status;
}

/* One that is moved has stopped, so that its record can be read though its process may be there; how far one came that
 * IS_AHEAD is not known yet. */
static void describe(const struct flyt_node_session *session, bool is_ahead,
                     struct flyt_manager_link_resume *ret_resume)
{
    const struct flyt_call_record *record = session->present ? session->present->record : NULL;
    const struct flyt_node_extents *extents = &flyt_node_session_has(session)->extents;
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);

    *ret_resume = (struct flyt_manager_link_resume){
        .extent_count = extents->count, .last_extent_id = extents->last_id, .is_ahead = is_ahead};
    if (!is_ahead && (session->has_left_at || record)) {
        const struct flyt_call_state left_at = record ? flyt_call_record_read(record) : session->left_at;
        ret_resume->has_record = true;
        ret_resume->begun = left_at.begun;
        ret_resume->executed = left_at.executed;
        ret_resume->completed = left_at.completed;
        ret_resume->error_count = left_at.error_count;
    }
    if (owner)
        owner->describe(session, ret_resume);
}

static int send_resume(struct flyt_node_target *target, struct flyt_manager_link_message *message, bool is_ahead)
{
    message->kind = FLYT_MANAGER_LINK_RESUME;
    describe(target->server->session, is_ahead, &message->resume);
    return flyt_node_link_queue_try(&target->server->queue, message, NULL, 0);
}

/* What is before SESSION and needs no client. */
static int give_memory(struct flyt_node_target *target, struct flyt_manager_link_message *message)
{
    struct flyt_node_giving *giving = &target->giving;
    struct flyt_node_session *session = target->server->session;
    int status;

    if (!giving->has_resume) {
        bool is_ahead = session->present && session->present->state == FLYT_NODE_SERVER_SERVING;
        status = send_resume(target, message, is_ahead);
        if (status)
            return status;
        giving->has_resume = true;
        giving->is_ahead = is_ahead;
        giving->next = target->ops->has_memory ? flyt_node_session_has(session)->extents.first : NULL;
    }
    for (; giving->next; giving->next = giving->next->next) {
        const struct flyt_node_extent *extent = giving->next;
        message->kind = FLYT_MANAGER_LINK_GIVE;
        message->extent = (struct flyt_manager_link_extent){
            .extent_id = extent->extent_id, .bytes = extent->bytes, .address = extent->address, .slot = extent->slot};
        status = flyt_node_link_queue_try(&target->server->queue, message, &extent->fd, 1);
        if (status)
            return status;
    }
    if (!session->replacement.given_us)
        session->replacement.given_us = now_us();
    return 0;
}

static int give_all(struct flyt_node_target *target)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */
    struct flyt_node_giving *giving = &target->giving;

    if (target->server->link_fd < 0 || target->server->state == FLYT_NODE_SERVER_ENDING)
        return -EPIPE;
    message.data_bytes = 0;
    int status = give_memory(target, &message);
    if (!status && target->state == FLYT_NODE_TARGET_LOADING && target->ops->has_memory) {
        flyt_node_target_set_state(target, FLYT_NODE_TARGET_LOADED);
        flyt_node_target_set_state(target, FLYT_NODE_TARGET_WAITING);
    }
    if (status || giving->fd < 0)
        return status;
    if (giving->is_ahead) {
        status = send_resume(target, &message, false);
        if (status)
            return status;
        giving->is_ahead = false;
    }
    status = give_session(target, &message);
    explicit_bzero(message.session.channel_key, sizeof message.session.channel_key);
    return status;
}

/* As much as it takes now; the rest when it has read that. */
static int give(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_target *target = user;
    struct flyt_node_giving *giving = &target->giving;
    struct flyt_node_server *server = target->server;
    int status = give_all(target); /* which may free it, where that is 0 */

    if (!status)
        return 0;
    if (status == -ENOTCONN) { /* it has the memory, for the client's next try */
        drop_client(giving);
        return 0;
    }
    giving->timer = sd_event_source_disable_unref(giving->timer);
    if ((status == -EAGAIN || status == -ETOOMANYREFS) && flyt_clock_ms() < giving->until_ms &&
        sd_event_add_time_relative(server->node->event, &giving->timer, CLOCK_MONOTONIC, RETRY_US, 1, give, target) >=
            0)
        return 0;
    flyt_warn("session %016" PRIx64 ": server process %d does not take it: %s", server->session->id, (int)server->pid,
              strerror(-status));
    flyt_node_target_stop_giving(target);
    flyt_node_server_end(server, NULL);
    flyt_node_target_fail(target, FLYT_NODE_TARGET_FAILED, status, "its new server process does not take it: %s",
                          strerror(-status));
    return 0;
}

void flyt_node_target_give_memory(struct flyt_node_target *target)
{
    target->giving.is_begun = true;
    target->giving.until_ms = flyt_clock_ms() + FLYT_NODE_HAND_OVER_MS;
    give(NULL, 0, target);
}

int flyt_node_target_give(struct flyt_node_target *target, const struct flyt_node_ticket *ticket, int fd,
                          const void *record, size_t bytes)
{
    struct flyt_node_giving *giving = &target->giving;
    unsigned char *copy = malloc(bytes ? bytes : 1);

    if (!copy)
        return -ENOMEM;
    memcpy(copy, record, bytes);
    giving->record = copy;
    giving->bytes = bytes;
    giving->ticket = *ticket;
    giving->fd = fd;
    giving->has_folder |= !target->ops->has_memory; /* with PREPARE */
    flyt_node_target_give_memory(target);
    return 0;
}
