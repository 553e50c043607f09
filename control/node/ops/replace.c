#include "control/node/ops/replace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/node/link/broker.h"
#include "control/node/link/fault.h"
#include "control/node/link/groups.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/share.h"
#include "control/node/link/starts.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/model/tombstones.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/ops.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"
#include "rpc/base/ticket.h"
#include "rpc/transport/handshake.h"

enum { RETRY_US = 2000, LOOK_AGAIN_US = 500000, ID_BYTES = 20 };

/* A session that is being given to a server. */
struct flyt_node_hand_over {
    struct flyt_node_server *session;
    struct flyt_node_ticket ticket; /* its client's */
    int fd;                         /* -1: its client has not come yet */
    uint64_t until_ms;
    bool has_begun, has_folder;
    bool is_ahead;                       /* RESUME is to be sent once more */
    const struct flyt_node_extent *next; /* to be given */
    sd_event_source *timer;              /* until it takes more */
    size_t bytes;
    unsigned char *record; /* the client's; NULL before */
};

static uint64_t now_us(void)
{
    return flyt_clock_ns() / 1000;
}

static void print_id(const struct flyt_node_server *session, char *text)
{
    snprintf(text, ID_BYTES, "%016" PRIx64, session->session->id);
}

/* The operation that has prepared a server for it, which has its memory; NULL: none. */
static const struct flyt_node_role_ops *owner_of(const struct flyt_node_server *session)
{
    if (session->role && session->role->ops->kind == FLYT_NODE_ROLE_MOVE)
        return session->role->ops;
    return session->prepared && session->prepared->role ? session->prepared->role->ops : NULL;
}

static bool has_memory(const struct flyt_node_server *session)
{
    return owner_of(session) != NULL || session->prepared;
}

static bool is_undecided_where(const struct flyt_node_server *session)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    return owner && owner->is_undecided && owner->is_undecided(session);
}

static void forget_owner(struct flyt_node_server *session, bool is_ended)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    if (owner)
        owner->forget(session, is_ended);
    session->prepared = NULL;
}

/* The server that is being given it; NULL: none. */
static struct flyt_node_server *taker_of(const struct flyt_node_server *session)
{
    struct flyt_node_server *server = session->node->servers;

    while (server && (!server->hand_over || server->hand_over->session != session))
        server = server->next;
    return server;
}

bool flyt_node_replace_has_come(const struct flyt_node_server *taker)
{
    return taker && taker->hand_over && taker->hand_over->fd >= 0;
}

static void give_ahead(struct flyt_node_server *session);

/* ---- waiting ---- */

bool flyt_node_replace_may_wait(const struct flyt_node_server *server)
{
    const struct flyt_node_allocation *allocation = server->allocation;

    return allocation && !flyt_node_checkpointed_find(server->node, server->session->id) &&
           server->state == FLYT_NODE_SERVER_SERVING && server->use.is_replaceable &&
           (!server->fault.is_hit || server->fault.is_spared) && !allocation->is_removed &&
           allocation->now.state != FLYT_ALLOCATION_ENDING && flyt_node_allocation_is_complete(allocation) &&
           flyt_node_extents_are_whole(&server->extents);
}

static void unlink_away(struct flyt_node_server *session)
{
    struct flyt_node_server **link = &session->node->away;

    while (*link != session)
        link = &(*link)->next;
    *link = session->next;
    session->node->away_count--;
    session->timer = sd_event_source_disable_unref(session->timer);
}

/* It ends now. */
static void finish(struct flyt_node_server *session)
{
    struct flyt_node *node = session->node;

    bool is_ended = session->state == FLYT_NODE_SERVER_ENDING;
    session->state = FLYT_NODE_SERVER_ENDING;
    forget_owner(session, is_ended);
    flyt_node_replace_abandon(session);
    unlink_away(session);
    flyt_node_server_end_session(session, "");
    flyt_node_server_drop(session);
    flyt_node_changed(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS); /* whoever waits for it is told */
}

static bool has_client(const struct flyt_node_server *session)
{
    return flyt_node_replace_has_come(taker_of(session)) ||
           flyt_node_waiting_has_client(session->node, session->session->id);
}

static void set_timer(struct flyt_node_server *session, uint64_t us);

static int on_time(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_server *session = user;
    char how[sizeof session->end_reason];

    /* Its client has come in time, or is told to try again until it is decided where the session goes on: both have
     * bounds of their own. */
    if (session->state == FLYT_NODE_SERVER_AWAY && (has_client(session) || is_undecided_where(session))) {
        set_timer(session, LOOK_AGAIN_US);
        return 0;
    }
    if (session->state == FLYT_NODE_SERVER_AWAY && session->prepared) {
        snprintf(session->end_reason, sizeof session->end_reason, "its program has not come back within %u ms",
                 session->node->ops->switch_ms);
    } else if (session->state == FLYT_NODE_SERVER_AWAY) {
        memcpy(how, session->end_reason, sizeof how);
        snprintf(session->end_reason, sizeof session->end_reason,
                 "%.400s, and its client has not come back within %u ms", how, session->node->ops->replace_ms);
    }
    finish(session);
    return 0;
}

static void set_timer(struct flyt_node_server *session, uint64_t us)
{
    session->timer = sd_event_source_disable_unref(session->timer);
    if (sd_event_add_time_relative(session->node->event, &session->timer, CLOCK_MONOTONIC, us, 1000, on_time, session) <
        0)
        flyt_fail("session %016" PRIx64 ": waits without an end: no memory", session->session->id);
}

void flyt_node_replace_renew(struct flyt_node_server *session)
{
    session->session->away_until_ms = flyt_clock_ms() + session->node->ops->replace_ms;
    set_timer(session, (uint64_t)session->node->ops->replace_ms * 1000);
}

void flyt_node_replace_foresee(struct flyt_node_server *server)
{
    if (!server->allocation)
        return;
    if (!server->session->replacement.end_us)
        server->session->replacement.end_us = now_us();
    if (server->state == FLYT_NODE_SERVER_AWAY || flyt_node_replace_may_wait(server))
        give_ahead(server);
}

void flyt_node_replace_wait(struct flyt_node_server *server, const char *how)
{
    struct flyt_node_allocation *allocation = server->allocation;
    struct flyt_node *node = server->node;
    char id[ID_BYTES];

    server->state = FLYT_NODE_SERVER_AWAY;
    server->has_left_at = server->record != NULL;
    if (server->record)
        server->left_at = flyt_call_record_read(server->record);
    flyt_call_record_unmap(server->record);
    server->record = NULL;
    server->pid = 0;
    server->uid = 0;
    server->session->replacement.gone_us = now_us();
    server->session->away_until_ms = flyt_clock_ms() + node->ops->replace_ms;
    server->next = node->away;
    node->away = server;
    node->away_count++;
    flyt_node_replace_foresee(server);
    if (!*server->end_reason)
        snprintf(server->end_reason, sizeof server->end_reason, "%s", *how ? how : "its server process ended");
    memset(&server->fault, 0, sizeof server->fault);
    snprintf(server->why_not, sizeof server->why_not, "it waits for its client: %.200s", server->end_reason);
    set_timer(server, (uint64_t)node->ops->replace_ms * 1000);
    /* Nothing of it is on the GPU any more, and nothing is awaited of it. */
    server->need.number = 0;
    flyt_node_share_leave(server);
    print_id(server, id);
    flyt_warn("session %s: has lost its server and waits for its client, vm=%s program=%s extents=%u: %s", id,
              allocation->now.vm_ip, server->session->ticket.program, server->extents.count, server->end_reason);
    flyt_node_tell(node, "session.server_lost", id, "program %s of VM %s: %s; it waits for its client",
                   server->session->ticket.program, allocation->now.vm_ip, server->end_reason);
    flyt_node_raise_of(allocation, FLYT_NODE_EVENT_SESSION_LEFT);
    flyt_node_changed(node);
}

void flyt_node_replace_expect(struct flyt_node_server *session)
{
    struct flyt_node *node = session->node;

    session->session->away_until_ms = flyt_clock_ms() + node->ops->switch_ms;
    session->next = node->away;
    node->away = session;
    node->away_count++;
    flyt_node_allocation_join(session->allocation);
    set_timer(session, (uint64_t)node->ops->switch_ms * 1000);
    flyt_node_changed(node);
}

void flyt_node_replace_leave(struct flyt_node_server *session)
{
    struct flyt_node_server *taker = taker_of(session);

    if (taker)
        flyt_node_replace_fail(taker);
    unlink_away(session);
}

struct flyt_node_server *flyt_node_replace_find(const struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_server *session = node->away;

    while (session && (session->state != FLYT_NODE_SERVER_AWAY || session->session->id != session_id))
        session = session->next;
    return session;
}

/* It will go on at a server that was prepared for it there, which has a client slot. */
static bool has_slot(const struct flyt_node_server *session, const struct flyt_node_gpu *gpu)
{
    const struct flyt_node_role_ops *owner = owner_of(session);
    const struct flyt_node_server *server = owner ? owner->target(session) : session->prepared;

    return server && server->gpu == gpu;
}

unsigned flyt_node_replace_count(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_server *session = node->away; session; session = session->next)
        count += flyt_node_server_uses(session, gpu) && !has_slot(session, gpu);
    return count;
}

static struct flyt_node_server *find_in(struct flyt_node_server *list, const struct flyt_node_allocation *allocation,
                                        const void *token, size_t bytes)
{
    for (; list; list = list->next)
        if (list->allocation == allocation && bytes == sizeof list->session->token &&
            flyt_equal_in_constant_time(list->session->token, token, bytes))
            return list;
    return NULL;
}

/* Its client may hear of its process's end before we do: the sockets are closed first, the driver may take its time. */
static bool may_end(struct flyt_node_server *server)
{
    uint64_t now_ms = flyt_clock_ms();

    if (server->state != FLYT_NODE_SERVER_SERVING)
        return false;
    if (!server->session->asked_ms)
        server->session->asked_ms = now_ms;
    return flyt_node_server_is_dying(server) || now_ms - server->session->asked_ms < FLYT_NODE_REPLACE_ENDING_MS;
}

/* Where its session goes on, or whether it is to wait for a restore, is somebody else's to decide. */
static bool is_undecided(const struct flyt_node_server *server)
{
    return server->left_move_id || (server->role && (server->role->ops->kind == FLYT_NODE_ROLE_MOVE ||
                                                     server->role->ops->kind == FLYT_NODE_ROLE_SAVE));
}

static int tell_undecided(struct flyt_error *err)
{
    return flyt_error_set(err, -EBUSY, "it is not decided yet where the session goes on");
}

static int refuse_to_wait(const struct flyt_node_server *server, struct flyt_error *err)
{
    if (server->state == FLYT_NODE_SERVER_SERVING)
        return flyt_error_set(err, -ENOENT, "the session goes on at its own server");
    return flyt_error_set(err, -ENOENT, "the session is ending%s%s", *server->end_reason ? ": " : "",
                          server->end_reason);
}

int flyt_node_replace_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                 const void *token, size_t bytes, struct flyt_node_server **ret_session,
                                 struct flyt_error *err)
{
    struct flyt_node_server *session = find_in(node->away, allocation, token, bytes);

    if (session && session->state == FLYT_NODE_SERVER_AWAY && flyt_node_replace_has_come(taker_of(session)))
        return flyt_error_set(err, -EBUSY, "the session is being given to a server already");
    if (session && session->state == FLYT_NODE_SERVER_AWAY && is_undecided_where(session))
        return tell_undecided(err);
    if (session && session->state == FLYT_NODE_SERVER_AWAY && flyt_clock_ms() < session->session->away_until_ms) {
        session->session->replacement.come_us = now_us();
        *ret_session = session;
        return 0;
    }
    if (session)
        return flyt_error_set(err, -ENOENT, "the session %s",
                              session->state == FLYT_NODE_SERVER_AWAY ? "has waited too long for its client"
                                                                      : "is ending");
    struct flyt_node_server *server = find_in(node->servers, allocation, token, bytes);
    if (!server && flyt_node_allocation_absent(allocation))
        return flyt_error_set(err, -EBUSY,
                              "the node manager was restarted, and the session's server may still come back");
    if (!server)
        return flyt_node_tombstones_tell_token(node, allocation->now.id, token, bytes, err);
    if (is_undecided(server))
        return tell_undecided(err);
    if (!may_end(server))
        return refuse_to_wait(server, err);
    server->session->replacement.come_us = now_us();
    *ret_session = server;
    return 0;
}

int flyt_node_replace_ask(struct flyt_node *node, uint64_t session_id, struct flyt_error *err)
{
    if (flyt_node_replace_find(node, session_id))
        return 0;
    struct flyt_node_server *server = flyt_node_server_find(node, session_id);
    if (server ? is_undecided(server) : flyt_node_checkpointed_find(node, session_id) != NULL)
        return tell_undecided(err);
    if (!server)
        return flyt_node_tombstones_tell(node, session_id, err);
    return may_end(server) ? 0 : refuse_to_wait(server, err);
}

/* ---- giving ---- */

static void refuse(struct flyt_node *node, struct flyt_node_hand_over *hand_over, flyt_handshake_status status,
                   const char *sentence)
{
    node->sessions_refused++;
    flyt_handshake_refuse(hand_over->fd, hand_over->ticket.xid, status, sentence);
}

static void drop_client(struct flyt_node_hand_over *hand_over)
{
    hand_over->fd = flyt_close(hand_over->fd);
    explicit_bzero(&hand_over->ticket, sizeof hand_over->ticket);
    free(hand_over->record);
    hand_over->record = NULL;
}

static void free_hand_over(struct flyt_node_server *server)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;

    server->hand_over = NULL;
    sd_event_source_disable_unref(hand_over->timer);
    drop_client(hand_over);
    free(hand_over);
}

void flyt_node_replace_fail(struct flyt_node_server *server)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;

    if (!hand_over)
        return;
    if (hand_over->session->session) /* it has not ended */
        hand_over->session->session->replacement.given_us = 0;
    bool is_ending =
        hand_over->session->state != FLYT_NODE_SERVER_AWAY && hand_over->session->state != FLYT_NODE_SERVER_LEFT;
    if (flyt_node_replace_has_come(server))
        refuse(server->node, hand_over, is_ending ? FLYT_HANDSHAKE_NO_SESSION : FLYT_HANDSHAKE_BUSY,
               is_ending ? "the session was ended" : "the server process that was to take the session has failed");
    free_hand_over(server);
    if (!server->allocation)
        flyt_node_session_leave(server);
}

void flyt_node_replace_end_target(struct flyt_node_server *server)
{
    if (!server || server->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_link_queue_clear(&server->queue);
    flyt_node_replace_fail(server);
    if (server->allocation) {
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
        flyt_node_server_kill(server);
    } else {
        flyt_node_server_end(server, NULL);
    }
}

/* The entries in all ledgers, or in none, of a session whose process has gone. */
static int move_entries(const struct flyt_node_server *session, uint64_t from_id, uint64_t to_id)
{
    const struct flyt_node_allocation *allocation = session->allocation;
    int status = 0;
    unsigned i;

    for (i = 0; !status && i < allocation->now.slots.slots_len; i++)
        status = flyt_ledger_move(allocation->slots[i].ledger, from_id, to_id,
                                  flyt_node_extents_of_slot(&session->extents, i));
    for (i = status ? i - 1 : 0; i > 0; i--)
        flyt_ledger_move(allocation->slots[i - 1].ledger, to_id, from_id,
                         flyt_node_extents_of_slot(&session->extents, i - 1));
    return status;
}

static int take_entries(struct flyt_node_server *session, uint64_t server_id)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    if (session->prepared && flyt_fault_point("node.load.client") == FLYT_FAULT_ERROR)
        return -EIO;
    return owner && owner->charge ? owner->charge(session, server_id)
                                  : move_entries(session, session->server_id, server_id);
}

static void put_entries_back(struct flyt_node_server *session, uint64_t server_id)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    if (owner && owner->charge_back)
        owner->charge_back(session, server_id);
    else
        move_entries(session, server_id, session->server_id);
}

/* The session has a server again. */
static void go_on(struct flyt_node_server *server, const struct flyt_manager_link_session *described)
{
    struct flyt_node_server *session = server->hand_over->session;
    struct flyt_node_allocation *allocation = session->allocation;
    struct flyt_node *node = server->node;
    char id[ID_BYTES];

    flyt_node_server_note_session(server, allocation, described);
    flyt_node_charge_take(server, session->server_id);
    flyt_node_session_client_came(server->session, &server->hand_over->ticket);
    server->session->asked_ms = 0;
    server->use = session->use;
    server->use.is_replaceable = 0;
    server->use.is_coming = 1;
    server->use.is_ending = 0;
    snprintf(server->why_not, sizeof server->why_not, "its client makes its objects again");
    const struct flyt_node_role_ops *owner = owner_of(session);
    bool is_prepared = has_memory(session);
    bool has_process = session->state != FLYT_NODE_SERVER_AWAY;
    if (is_prepared)
        server->session->replacement = (struct flyt_node_replacement){0};
    if (!owner || !owner->given(session))
        flyt_node_extents_move(node, &session->extents, session->server_id, &server->extents, server->server_id);
    flyt_node_broker_move(session, server);
    free_hand_over(server);
    if (!has_process) {
        unlink_away(session);
        flyt_node_server_drop(session);
    }
    if (is_prepared) /* it is told of when its server says that it goes on */
        return;
    server->session->replacement.session_us = now_us();
    node->sessions_resumed++;
    print_id(server, id);
    flyt_info("session %s: goes on, vm=%s program=%s gpu=%u server_pid=%d extents=%u", id, allocation->now.vm_ip,
              server->session->ticket.program, server->gpu->index, (int)server->pid, server->extents.count);
    flyt_node_tell(node, "session.resumed", id, "program %s of VM %s goes on at another server process",
                   server->session->ticket.program, allocation->now.vm_ip);
    flyt_node_changed(node);
}

/* Since its session lost its server; what was before that counts as then. */
static uint64_t since_end(const struct flyt_node_server *server, uint64_t us)
{
    return us > server->session->replacement.end_us ? us - server->session->replacement.end_us : 0;
}

void flyt_node_replace_use_came(struct flyt_node_server *server)
{
    char id[ID_BYTES];

    if (!server->allocation || !server->session->replacement.session_us || server->use.is_coming)
        return;
    print_id(server, id);
    flyt_info("session %s: was replaced, vm=%s program=%s extents=%u gone_us=%" PRIu64 " come_us=%" PRIu64
              " give_us=%" PRIu64 " session_us=%" PRIu64 " go_on_us=%" PRIu64,
              id, server->allocation->now.vm_ip, server->session->ticket.program, server->extents.count,
              since_end(server, server->session->replacement.gone_us),
              since_end(server, server->session->replacement.come_us),
              since_end(server, server->session->replacement.given_us),
              since_end(server, server->session->replacement.session_us), since_end(server, now_us()));
    memset(&server->session->replacement, 0, sizeof server->session->replacement);
}

/* The last message: from now on it is the server's. */
static int give_session(struct flyt_node_server *server, struct flyt_manager_link_message *message)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;
    struct flyt_node_server *session = hand_over->session;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    if (flyt_node_waiting_has_hung_up(hand_over->fd))
        return -ENOTCONN;
    int status = flyt_node_server_describe_session(server, &session->allocation->now, &hand_over->ticket,
                                                   session->session, message);
    if (!status)
        status = flyt_node_server_session_fds(server->node, session->allocation, hand_over->fd, &message->session, fds,
                                              &fd_count);
    if (status)
        return status;
    message->data_bytes = (uint32_t)hand_over->bytes;
    memcpy(message->data, hand_over->record, hand_over->bytes);
    if (!hand_over->has_folder)
        status = flyt_node_server_equip(server, session->allocation, session);
    hand_over->has_folder |= !status;
    if (!status)
        status = take_entries(session, message->session.server_id);
    if (status)
        return status;
    status = flyt_node_link_queue_try(&server->queue, message, fds, fd_count);
    if (!status)
        go_on(server, &message->session);
    else
        put_entries_back(session, message->session.server_id);
    return status;
}

/* One that is moved has stopped, so that its record can be read though its process may be there; how far one came that
 * IS_AHEAD is not known yet. */
static void describe(const struct flyt_node_server *session, bool is_ahead, struct flyt_manager_link_resume *ret_resume)
{
    *ret_resume = (struct flyt_manager_link_resume){
        .extent_count = session->extents.count, .last_extent_id = session->extents.last_id, .is_ahead = is_ahead};
    if (!is_ahead && (session->has_left_at || session->record)) {
        const struct flyt_call_state left_at =
            session->record ? flyt_call_record_read(session->record) : session->left_at;
        ret_resume->has_record = true;
        ret_resume->begun = left_at.begun;
        ret_resume->executed = left_at.executed;
        ret_resume->completed = left_at.completed;
        ret_resume->error_count = left_at.error_count;
    }
    if (owner_of(session))
        owner_of(session)->describe(session, ret_resume);
}

static int send_resume(struct flyt_node_server *server, struct flyt_manager_link_message *message, bool is_ahead)
{
    const struct flyt_node_server *session = server->hand_over->session;

    message->kind = FLYT_MANAGER_LINK_RESUME;
    describe(session, is_ahead, &message->resume);
    return flyt_node_link_queue_try(&server->queue, message, NULL, 0);
}

/* What is before SESSION and needs no client. */
static int give_memory(struct flyt_node_server *server, struct flyt_manager_link_message *message)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;
    struct flyt_node_server *session = hand_over->session;
    int status;

    if (!hand_over->has_begun) {
        bool is_ahead = session->state == FLYT_NODE_SERVER_SERVING;
        status = send_resume(server, message, is_ahead);
        if (status)
            return status;
        hand_over->has_begun = true;
        hand_over->is_ahead = is_ahead;
        hand_over->next = has_memory(session) ? NULL : session->extents.first; /* else it has it already */
    }
    for (; hand_over->next; hand_over->next = hand_over->next->next) {
        const struct flyt_node_extent *extent = hand_over->next;
        message->kind = FLYT_MANAGER_LINK_GIVE;
        message->extent = (struct flyt_manager_link_extent){
            .extent_id = extent->extent_id, .bytes = extent->bytes, .address = extent->address, .slot = extent->slot};
        status = flyt_node_link_queue_try(&server->queue, message, &extent->fd, 1);
        if (status)
            return status;
    }
    if (!session->session->replacement.given_us)
        session->session->replacement.given_us = now_us();
    return 0;
}

static int give_all(struct flyt_node_server *server)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */
    struct flyt_node_hand_over *hand_over = server->hand_over;

    if (server->link_fd < 0)
        return -EPIPE;
    message.data_bytes = 0;
    int status = give_memory(server, &message);
    if (status || hand_over->fd < 0)
        return status;
    if (hand_over->is_ahead) {
        status = send_resume(server, &message, false);
        if (status)
            return status;
        hand_over->is_ahead = false;
    }
    status = give_session(server, &message);
    explicit_bzero(message.session.channel_key, sizeof message.session.channel_key);
    return status;
}

static int on_retry(sd_event_source *source, uint64_t usec, void *user);

/* As much as it takes now; the rest when it has read that. */
static void step(struct flyt_node_server *server)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;
    int status = give_all(server);

    if (!status)
        return;
    if (status == -ENOTCONN) { /* it has the memory, for the client's next try */
        drop_client(hand_over);
        return;
    }
    hand_over->timer = sd_event_source_disable_unref(hand_over->timer);
    if ((status == -EAGAIN || status == -ETOOMANYREFS) && flyt_clock_ms() < hand_over->until_ms &&
        sd_event_add_time_relative(server->node->event, &hand_over->timer, CLOCK_MONOTONIC, RETRY_US, 1, on_retry,
                                   server) >= 0)
        return;
    flyt_warn("session %016" PRIx64 ": server process %d does not take it: %s", hand_over->session->session->id,
              (int)server->pid, strerror(-status));
    flyt_node_replace_fail(server);
    flyt_node_server_end(server, NULL);
}

static int on_retry(sd_event_source *source, uint64_t usec, void *user)
{
    step(user);
    return 0;
}

/* It is the session's from now on, whose client has not come. 0 or -ENOMEM. */
static int begin(struct flyt_node_server *server, struct flyt_node_server *session)
{
    struct flyt_node_hand_over *hand_over = malloc(sizeof *hand_over);

    if (!hand_over)
        return -ENOMEM;
    *hand_over = (struct flyt_node_hand_over){.session = session,
                                              .fd = -1,
                                              .until_ms = flyt_clock_ms() + FLYT_NODE_HAND_OVER_MS,
                                              .has_folder = has_memory(session)};
    server->hand_over = hand_over;
    flyt_node_session_prepare(session->session, server);
    if (!has_memory(session)) { /* else it stays PREPARING: what it has of the GPU is its own */
        flyt_node_charge_lend(server, session);
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_TAKING);
    }
    flyt_node_cgroups_enter(&server->node->cgroups, server->pid, session->allocation->now.vm_ip, server->cgroup);
    return 0;
}

/*
 * A warm server, where there is one, is given the memory, for what a client brings is not needed for that; neither is
 * the process's end, for until SESSION memory is imported and not used. What has to wait for it: SESSION, for kernels
 * of that process may write until the driver has ended them; what it had executed; and its ledgers' entries, for what
 * it had beside extents is not free before.
 */
static void give_ahead(struct flyt_node_server *session)
{
    struct flyt_node_server *server = NULL;

    if (!has_memory(session) && !taker_of(session) && !flyt_node_fault_is_clearing(session->node, session->gpu))
        server = flyt_node_starts_take(session->node, session->gpu);
    if (!server || begin(server, session))
        return;
    flyt_debug("session %016" PRIx64 ": its memory is given to server process %d, extents=%u", session->session->id,
               (int)server->pid, session->extents.count);
    step(server);
}

struct flyt_node_server *flyt_node_replace_server(const struct flyt_node_server *session)
{
    struct flyt_node_server *server = session->prepared ? session->prepared : taker_of(session);

    if (is_undecided_where(session))
        return NULL;
    if (owner_of(session)) /* one has been prepared for it */
        server = owner_of(session)->target(session);
    if (server && server->hand_over)
        return flyt_node_replace_has_come(server) ? NULL : server;
    return server || has_memory(session) ? server : flyt_node_starts_take(session->node, session->gpu);
}

int flyt_node_replace_give(struct flyt_node_server *server, struct flyt_node_server *session,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes)
{
    unsigned char *copy = malloc(bytes ? bytes : 1);

    if (!copy || (!server->hand_over && begin(server, session))) {
        free(copy);
        return -ENOMEM;
    }
    struct flyt_node_hand_over *hand_over = server->hand_over;
    memcpy(copy, record, bytes);
    hand_over->record = copy;
    hand_over->bytes = bytes;
    hand_over->ticket = *ticket;
    hand_over->fd = fd;
    hand_over->until_ms = flyt_clock_ms() + FLYT_NODE_HAND_OVER_MS;
    step(server);
    return 0;
}

void flyt_node_replace_abandon(const struct flyt_node_server *session)
{
    struct flyt_node_server *taker = taker_of(session);

    if (!taker)
        return;
    flyt_node_replace_fail(taker);
    flyt_node_server_end(taker, NULL);
}

/* ---- ending ---- */

void flyt_node_replace_end(struct flyt_node_server *session, const char *reason)
{
    if (session->state != FLYT_NODE_SERVER_AWAY)
        return;
    session->state = FLYT_NODE_SERVER_ENDING;
    snprintf(session->end_reason, sizeof session->end_reason, "%s", reason);
    set_timer(session, 0);
}

void flyt_node_replace_end_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                               const char *reason)
{
    for (struct flyt_node_server *session = node->away; session; session = session->next)
        if (session->allocation == allocation)
            flyt_node_replace_end(session, reason);
}

void flyt_node_replace_fini(struct flyt_node *node)
{
    struct flyt_node_server *session;

    while ((session = node->away)) {
        struct flyt_node_server *taker = taker_of(session);
        session->state = FLYT_NODE_SERVER_ENDING;
        forget_owner(session, true);
        if (taker)
            flyt_node_replace_fail(taker);
        unlink_away(session);
        snprintf(session->end_reason, sizeof session->end_reason, "the node manager ends");
        flyt_node_server_end_session(session, "");
        flyt_node_server_drop(session);
    }
}
