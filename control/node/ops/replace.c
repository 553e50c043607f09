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
    struct flyt_node_session *session;
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

static void print_id(const struct flyt_node_session *session, char *text)
{
    snprintf(text, ID_BYTES, "%016" PRIx64, session->id);
}

/* The operation that has prepared a server for it, which has its memory; NULL: none. */
static const struct flyt_node_role_ops *owner_of(const struct flyt_node_session *session)
{
    const struct flyt_node_role *role = flyt_node_session_role(session);
    const struct flyt_node_role *its = session->target ? session->target->role : NULL;

    if (flyt_node_role_is_move(role))
        return role->ops;
    return its && its->ops->kind == FLYT_NODE_ROLE_LOAD ? its->ops : NULL;
}

static bool is_loaded(const struct flyt_node_session *session)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    return owner && owner->kind == FLYT_NODE_ROLE_LOAD;
}

static bool is_undecided_where(const struct flyt_node_session *session)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    return owner && owner->is_undecided && owner->is_undecided(session);
}

static void forget_owner(struct flyt_node_session *session, bool is_ended)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    if (owner)
        owner->forget(session, is_ended);
}

/* The server that is being given it; NULL: none. */
static struct flyt_node_server *taker_of(const struct flyt_node_session *session)
{
    return session->target && session->target->hand_over ? session->target : NULL;
}

bool flyt_node_replace_has_come(const struct flyt_node_server *taker)
{
    return taker && taker->hand_over && taker->hand_over->fd >= 0;
}

static void give_ahead(struct flyt_node_session *session);

/* ---- waiting ---- */

bool flyt_node_replace_may_wait(const struct flyt_node_server *server)
{
    const struct flyt_node_allocation *allocation = server->allocation;

    return allocation && !flyt_node_checkpointed_find(server->node, server->session->id) &&
           server->state == FLYT_NODE_SERVER_SERVING && server->has.use.is_replaceable &&
           (!server->fault.is_hit || server->fault.is_spared) && !allocation->is_removed &&
           allocation->now.state != FLYT_ALLOCATION_ENDING && flyt_node_allocation_is_complete(allocation) &&
           flyt_node_extents_are_whole(&server->has.extents);
}

/* It ends now. */
static void finish(struct flyt_node_session *session)
{
    struct flyt_node *node = session->node;
    bool is_ended = session->state == FLYT_NODE_SESSION_ENDING;

    flyt_node_session_end(session);
    forget_owner(session, is_ended);
    flyt_node_server_end_session(session, NULL, "");
    flyt_node_changed(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS); /* whoever waits for it is told */
}

static bool has_client(const struct flyt_node_session *session)
{
    return flyt_node_replace_has_come(taker_of(session)) || flyt_node_waiting_has_client(session->node, session->id);
}

static void set_timer(struct flyt_node_session *session, uint64_t us);

static int on_time(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_session *session = user;
    char how[sizeof session->end_reason];

    /* Its client has come in time, or is told to try again until it is decided where the session goes on: both have
     * bounds of their own. */
    if (session->state == FLYT_NODE_SESSION_WAITING && (has_client(session) || is_undecided_where(session))) {
        set_timer(session, LOOK_AGAIN_US);
        return 0;
    }
    if (session->state == FLYT_NODE_SESSION_WAITING && is_loaded(session)) {
        snprintf(session->end_reason, sizeof session->end_reason, "its program has not come back within %u ms",
                 session->node->ops->switch_ms);
    } else if (session->state == FLYT_NODE_SESSION_WAITING) {
        memcpy(how, session->end_reason, sizeof how);
        snprintf(session->end_reason, sizeof session->end_reason,
                 "%.400s, and its client has not come back within %u ms", how, session->node->ops->replace_ms);
    }
    finish(session);
    return 0;
}

static void set_timer(struct flyt_node_session *session, uint64_t us)
{
    session->timer = sd_event_source_disable_unref(session->timer);
    if (sd_event_add_time_relative(session->node->event, &session->timer, CLOCK_MONOTONIC, us, 1000, on_time, session) <
        0)
        flyt_fail("session %016" PRIx64 ": waits without an end: no memory", session->id);
}

static void wait_for(struct flyt_node_session *session, unsigned ms)
{
    session->away_until_ms = flyt_clock_ms() + ms;
    set_timer(session, (uint64_t)ms * 1000);
}

void flyt_node_replace_renew(struct flyt_node_session *session)
{
    wait_for(session, session->node->ops->replace_ms);
}

void flyt_node_replace_foresee(struct flyt_node_server *server)
{
    struct flyt_node_session *session = server->session;

    if (!session || session->present != server)
        return;
    if (!session->replacement.end_us)
        session->replacement.end_us = now_us();
    if (flyt_node_replace_may_wait(server))
        give_ahead(session);
}

/* What its process has left is its own. */
static void lose_server(struct flyt_node_session *session, const char *how)
{
    struct flyt_node_server *server = session->present;

    session->has_left_at = server->record != NULL;
    if (server->record)
        session->left_at = flyt_call_record_read(server->record);
    snprintf(session->end_reason, sizeof session->end_reason, "%s",
             *server->end_reason ? server->end_reason
             : *how              ? how
                                 : "its server process ended");
    flyt_node_share_leave(server);
    flyt_node_session_lose(session);
    session->replacement.gone_us = now_us();
    if (!session->replacement.end_us)
        session->replacement.end_us = session->replacement.gone_us;
}

void flyt_node_replace_wait(struct flyt_node_server *server, const char *how)
{
    struct flyt_node_session *session = server->session;
    struct flyt_node_allocation *allocation = session->allocation;
    struct flyt_node *node = session->node;
    char id[ID_BYTES];

    lose_server(session, how);
    flyt_node_session_wait(session);
    flyt_node_replace_renew(session);
    snprintf(session->has.why_not, sizeof session->has.why_not, "it waits for its client: %.200s", session->end_reason);
    give_ahead(session);
    print_id(session, id);
    flyt_warn("session %s: has lost its server and waits for its client, vm=%s program=%s extents=%u: %s", id,
              allocation->now.vm_ip, session->ticket.program, session->has.extents.count, session->end_reason);
    flyt_node_tell(node, "session.server_lost", id, "program %s of VM %s: %s; it waits for its client",
                   session->ticket.program, allocation->now.vm_ip, session->end_reason);
    flyt_node_raise_of(allocation, FLYT_NODE_EVENT_SESSION_LEFT);
    flyt_node_changed(node);
}

void flyt_node_replace_expect(struct flyt_node_session *session)
{
    flyt_node_session_wait(session);
    wait_for(session, session->node->ops->switch_ms);
    flyt_node_allocation_join(session->allocation);
    flyt_node_changed(session->node);
}

struct flyt_node_session *flyt_node_replace_find(const struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_session *session = flyt_node_session_find(node, session_id);

    return session && session->state == FLYT_NODE_SESSION_WAITING ? session : NULL;
}

unsigned flyt_node_replace_count(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_session *session = node->sessions; session; session = session->next) {
        bool has_slot = owner_of(session) && session->target && session->target->gpu == gpu;
        count += flyt_node_session_is_away(session) && flyt_node_holding_uses(&session->has, gpu) && !has_slot;
    }
    return count;
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
    return server->left_move_id || flyt_node_role_is_move(server->role) ||
           (server->role && server->role->ops->kind == FLYT_NODE_ROLE_SAVE);
}

static int tell_undecided(struct flyt_error *err)
{
    return flyt_error_set(err, -EBUSY, "it is not decided yet where the session goes on");
}

/* One without a server. */
static int find_waiting(struct flyt_node_session *session, struct flyt_error *err)
{
    if (session->state == FLYT_NODE_SESSION_ENDING)
        return flyt_error_set(err, -ENOENT, "the session is ending");
    if (flyt_node_replace_has_come(taker_of(session)))
        return flyt_error_set(err, -EBUSY, "the session is being given to a server already");
    if (is_undecided_where(session))
        return tell_undecided(err);
    if (flyt_clock_ms() >= session->away_until_ms)
        return flyt_error_set(err, -ENOENT, "the session has waited too long for its client");
    return 0;
}

static int refuse_to_wait(const struct flyt_node_server *server, struct flyt_error *err)
{
    if (server->state == FLYT_NODE_SERVER_SERVING)
        return flyt_error_set(err, -ENOENT, "the session goes on at its own server");
    return flyt_error_set(err, -ENOENT, "the session is ending%s%s", *server->end_reason ? ": " : "",
                          server->end_reason);
}

/* One that has a server, or had one, or none: NULL. */
static int find_served(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                       const struct flyt_node_session *session, const void *token, size_t bytes, struct flyt_error *err)
{
    struct flyt_node_server *server = session ? flyt_node_session_server(session) : NULL;

    if (!server && flyt_node_allocation_absent(allocation))
        return flyt_error_set(err, -EBUSY,
                              "the node manager was restarted, and the session's server may still come back");
    if (!server)
        return flyt_node_tombstones_tell_token(node, allocation->now.id, token, bytes, err);
    if (is_undecided(server))
        return tell_undecided(err);
    return may_end(server) ? 0 : refuse_to_wait(server, err);
}

int flyt_node_replace_find_token(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                 const void *token, size_t bytes, struct flyt_node_session **ret_session,
                                 struct flyt_error *err)
{
    struct flyt_node_session *session = flyt_node_session_find_token(node, allocation, token, bytes);

    int status = session && flyt_node_session_is_away(session)
                     ? find_waiting(session, err)
                     : find_served(node, allocation, session, token, bytes, err);
    if (!status) {
        session->replacement.come_us = now_us();
        *ret_session = session;
    }
    return status;
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
    struct flyt_node_session *session = hand_over->session;
    session->replacement.given_us = 0;
    bool is_ending = session->present ? session->present->state != FLYT_NODE_SERVER_LEFT
                                      : session->state != FLYT_NODE_SESSION_WAITING;
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
static int move_entries(const struct flyt_node_session *session, uint64_t from_id, uint64_t to_id)
{
    const struct flyt_node_allocation *allocation = session->allocation;
    const struct flyt_node_extents *extents = &flyt_node_session_has(session)->extents;
    int status = 0;
    unsigned i;

    for (i = 0; !status && i < allocation->now.slots.slots_len; i++)
        status = flyt_ledger_move(allocation->slots[i].ledger, from_id, to_id, flyt_node_extents_of_slot(extents, i));
    for (i = status ? i - 1 : 0; i > 0; i--)
        flyt_ledger_move(allocation->slots[i - 1].ledger, to_id, from_id, flyt_node_extents_of_slot(extents, i - 1));
    return status;
}

static int take_entries(struct flyt_node_session *session, uint64_t server_id)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    if (is_loaded(session) && flyt_fault_point("node.load.client") == FLYT_FAULT_ERROR)
        return -EIO;
    return owner && owner->charge ? owner->charge(session, server_id)
                                  : move_entries(session, flyt_node_session_has(session)->server_id, server_id);
}

static void put_entries_back(struct flyt_node_session *session, uint64_t server_id)
{
    const struct flyt_node_role_ops *owner = owner_of(session);

    if (owner && owner->charge_back)
        owner->charge_back(session, server_id);
    else
        move_entries(session, server_id, flyt_node_session_has(session)->server_id);
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

/* The session has a server again. */
static void go_on(struct flyt_node_server *server, const struct flyt_manager_link_session *described)
{
    struct flyt_node_session *session = server->hand_over->session;
    struct flyt_node_allocation *allocation = session->allocation;
    struct flyt_node_holding *had = flyt_node_session_has(session);
    const struct flyt_node_role_ops *owner = owner_of(session);
    struct flyt_node *node = server->node;
    char id[ID_BYTES];

    flyt_node_server_note_session(server, allocation, described);
    flyt_node_charge_take(server, had->server_id);
    flyt_node_session_client_came(session, &server->hand_over->ticket);
    session->asked_ms = 0;
    take_use(server, had);
    if (!owner || !owner->given(session))
        flyt_node_extents_move(node, &had->extents, had->server_id, &server->has.extents, server->has.server_id);
    flyt_node_broker_move(had, server);
    free_hand_over(server);
    if (!session->present)
        flyt_node_session_serve(session, server);
    if (owner) { /* it is told of when its server says that it goes on */
        session->replacement = (struct flyt_node_replacement){0};
        return;
    }
    session->replacement.session_us = now_us();
    node->sessions_resumed++;
    print_id(session, id);
    flyt_info("session %s: goes on, vm=%s program=%s gpu=%u server_pid=%d extents=%u", id, allocation->now.vm_ip,
              session->ticket.program, server->gpu->index, (int)server->pid, server->has.extents.count);
    flyt_node_tell(node, "session.resumed", id, "program %s of VM %s goes on at another server process",
                   session->ticket.program, allocation->now.vm_ip);
    flyt_node_changed(node);
}

/* Since it lost its server; what was before that counts as then. */
static uint64_t since_end(const struct flyt_node_session *session, uint64_t us)
{
    return us > session->replacement.end_us ? us - session->replacement.end_us : 0;
}

void flyt_node_replace_use_came(struct flyt_node_server *server)
{
    struct flyt_node_session *session = server->session;
    char id[ID_BYTES];

    if (!session || session->present != server || !session->replacement.session_us || server->has.use.is_coming)
        return;
    const struct flyt_node_replacement *its = &session->replacement;
    print_id(session, id);
    flyt_info("session %s: was replaced, vm=%s program=%s extents=%u gone_us=%" PRIu64 " come_us=%" PRIu64
              " give_us=%" PRIu64 " session_us=%" PRIu64 " go_on_us=%" PRIu64,
              id, session->allocation->now.vm_ip, session->ticket.program, server->has.extents.count,
              since_end(session, its->gone_us), since_end(session, its->come_us), since_end(session, its->given_us),
              since_end(session, its->session_us), since_end(session, now_us()));
    session->replacement = (struct flyt_node_replacement){0};
}

/* The last message: from now on it is the server's. */
static int give_session(struct flyt_node_server *server, struct flyt_manager_link_message *message)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;
    struct flyt_node_session *session = hand_over->session;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    if (flyt_node_waiting_has_hung_up(hand_over->fd))
        return -ENOTCONN;
    int status =
        flyt_node_server_describe_session(server, &session->allocation->now, &hand_over->ticket, session, message);
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
static void describe(const struct flyt_node_session *session, bool is_ahead,
                     struct flyt_manager_link_resume *ret_resume)
{
    const struct flyt_call_record *record = session->present ? session->present->record : NULL;
    const struct flyt_node_extents *extents = &flyt_node_session_has(session)->extents;

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
    if (owner_of(session))
        owner_of(session)->describe(session, ret_resume);
}

static int send_resume(struct flyt_node_server *server, struct flyt_manager_link_message *message, bool is_ahead)
{
    const struct flyt_node_session *session = server->hand_over->session;

    message->kind = FLYT_MANAGER_LINK_RESUME;
    describe(session, is_ahead, &message->resume);
    return flyt_node_link_queue_try(&server->queue, message, NULL, 0);
}

/* What is before SESSION and needs no client. */
static int give_memory(struct flyt_node_server *server, struct flyt_manager_link_message *message)
{
    struct flyt_node_hand_over *hand_over = server->hand_over;
    struct flyt_node_session *session = hand_over->session;
    int status;

    if (!hand_over->has_begun) {
        bool is_ahead = session->present && session->present->state == FLYT_NODE_SERVER_SERVING;
        status = send_resume(server, message, is_ahead);
        if (status)
            return status;
        hand_over->has_begun = true;
        hand_over->is_ahead = is_ahead;
        hand_over->next =
            owner_of(session) ? NULL : flyt_node_session_has(session)->extents.first; /* else it has it already */
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
    if (!session->replacement.given_us)
        session->replacement.given_us = now_us();
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
    flyt_warn("session %016" PRIx64 ": server process %d does not take it: %s", hand_over->session->id,
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
static int begin(struct flyt_node_server *server, struct flyt_node_session *session)
{
    struct flyt_node_hand_over *hand_over = malloc(sizeof *hand_over);

    if (!hand_over)
        return -ENOMEM;
    *hand_over = (struct flyt_node_hand_over){.session = session,
                                              .fd = -1,
                                              .until_ms = flyt_clock_ms() + FLYT_NODE_HAND_OVER_MS,
                                              .has_folder = owner_of(session) != NULL};
    if (session->target != server) /* one that was told to end may not have heard of that yet */
        flyt_node_replace_abandon(session);
    flyt_node_session_prepare(session, server);
    server->hand_over = hand_over;
    if (!owner_of(session)) { /* else it stays PREPARING: what it has of the GPU is its own */
        flyt_node_charge_lend(server, session->allocation, flyt_node_session_has(session));
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
static void give_ahead(struct flyt_node_session *session)
{
    struct flyt_node_gpu *gpu = flyt_node_session_has(session)->gpus[0];
    struct flyt_node_server *server = NULL;

    if (!owner_of(session) && !taker_of(session) && !flyt_node_fault_is_clearing(session->node, gpu))
        server = flyt_node_starts_take(session->node, gpu);
    if (!server || begin(server, session))
        return;
    flyt_debug("session %016" PRIx64 ": its memory is given to server process %d, extents=%u", session->id,
               (int)server->pid, flyt_node_session_has(session)->extents.count);
    step(server);
}

struct flyt_node_server *flyt_node_replace_server(const struct flyt_node_session *session)
{
    struct flyt_node_server *server = session->target;

    if (is_undecided_where(session))
        return NULL;
    if (server && server->state == FLYT_NODE_SERVER_ENDING) /* of a move that was given up, for one */
        server = NULL;
    if (server && server->hand_over)
        return flyt_node_replace_has_come(server) ? NULL : server;
    return server || owner_of(session) ? server
                                       : flyt_node_starts_take(session->node, flyt_node_session_has(session)->gpus[0]);
}

int flyt_node_replace_give(struct flyt_node_server *server, struct flyt_node_session *session,
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

void flyt_node_replace_abandon(const struct flyt_node_session *session)
{
    struct flyt_node_server *taker = taker_of(session);

    if (!taker)
        return;
    flyt_node_replace_fail(taker);
    flyt_node_server_end(taker, NULL);
}

/* ---- ending ---- */

void flyt_node_replace_end(struct flyt_node_session *session, const char *reason)
{
    if (session->state != FLYT_NODE_SESSION_WAITING)
        return;
    flyt_node_session_end(session);
    snprintf(session->end_reason, sizeof session->end_reason, "%s", reason);
    set_timer(session, 0);
}

void flyt_node_replace_end_all(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                               const char *reason)
{
    for (struct flyt_node_session *session = node->sessions; session; session = session->next)
        if (session->allocation == allocation)
            flyt_node_replace_end(session, reason);
}

void flyt_node_replace_fini(struct flyt_node *node)
{
    for (struct flyt_node_session *session = node->sessions, *next; session; session = next) {
        next = session->next;
        if (!flyt_node_session_is_away(session))
            continue;
        flyt_node_session_end(session);
        snprintf(session->end_reason, sizeof session->end_reason, "the node manager ends");
        finish(session);
    }
}
