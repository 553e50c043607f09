#include "control/node/ops/replace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/fault.h"
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
#include "rpc/base/log.h"

enum { LOOK_AGAIN_US = 500000, ID_BYTES = 20 };

static uint64_t now_us(void)
{
    return flyt_clock_ns() / 1000;
}

static void print_id(const struct flyt_node_session *session, char *text)
{
    snprintf(text, ID_BYTES, "%016" PRIx64, session->id);
}

static bool is_loaded(const struct flyt_node_session *session)
{
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);

    return owner && owner->kind == FLYT_NODE_ROLE_LOAD;
}

static bool is_undecided_where(const struct flyt_node_session *session)
{
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);

    return owner && owner->is_undecided && owner->is_undecided(session);
}

static void forget_owner(struct flyt_node_session *session, bool is_ended)
{
    const struct flyt_node_role_ops *owner = flyt_node_target_owner(session);

    if (owner)
        owner->forget(session, is_ended);
}

static void give_ahead(struct flyt_node_session *session);

/* ---- waiting ---- */

bool flyt_node_replace_may_wait(const struct flyt_node_server *server)
{
    const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

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
    return flyt_node_target_has_come(session->target) || flyt_node_waiting_has_client(session->node, session->id);
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
        bool has_slot = flyt_node_target_owner(session) && session->target && session->target->gpu == gpu;
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
    if (flyt_node_target_has_come(session->target))
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

/* ---- its next server ---- */

/* The session has a server again, whose own it is from now on. */
static void on_gone_on(struct flyt_node_target *target, struct flyt_node_server *server)
{
    struct flyt_node_session *session = server->session;
    struct flyt_node *node = server->node;
    char id[ID_BYTES];

    flyt_node_target_set_state(target, FLYT_NODE_TARGET_OVER);
    flyt_node_target_fini(target);
    free(target);
    session->replacement.session_us = now_us();
    node->sessions_resumed++;
    print_id(session, id);
    flyt_info("session %s: goes on, vm=%s program=%s gpu=%u server_pid=%d extents=%u", id,
              session->allocation->now.vm_ip, session->ticket.program, server->gpu->index, (int)server->pid,
              server->has.extents.count);
    flyt_node_tell(node, "session.resumed", id, "program %s of VM %s goes on at another server process",
                   session->ticket.program, session->allocation->now.vm_ip);
    flyt_node_changed(node);
}

static void on_failed(struct flyt_node_target *target, enum flyt_node_target_end how, int outcome, const char *sentence)
{
    flyt_node_target_end(target->server);
}

void flyt_node_replace_forget(struct flyt_node_server *server)
{
    struct flyt_node_target *target = flyt_node_target_of(server, FLYT_NODE_ROLE_REPLACE);

    if (!target)
        return;
    flyt_node_target_fini(target);
    free(target);
}

static bool on_process_end(struct flyt_node_server *server)
{
    flyt_node_replace_forget(server);
    return false;
}

/* It is given the memory that the session has. */
static const struct flyt_node_target_ops target_ops = {
    .role = {.kind = FLYT_NODE_ROLE_REPLACE, .on_message = flyt_node_target_on_message, .on_exit = on_process_end},
    .has_memory = true,
    .gone_on = on_gone_on,
    .failed = on_failed,
};

/* The warm server is the session's target. NULL: no memory. */
static struct flyt_node_target *begin(struct flyt_node_server *server, struct flyt_node_session *session)
{
    struct flyt_node_target *target = malloc(sizeof *target);

    if (!target)
        return NULL;
    flyt_node_target_init(target, server->node, NULL, &target_ops);
    flyt_node_target_begin(target, server, session);
    flyt_node_charge_lend(server, session->allocation, flyt_node_session_has(session));
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_LOADING);
    return target;
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

/*
 * A warm server, where there is one, is given the memory, for what a client brings is not needed for that; neither is
 * the process's end, for until SESSION memory is imported and not used. What has to wait for it: SESSION, for kernels
 * of that process may write until the driver has ended them; what it had executed; and its ledgers' entries, for what
 * it had beside extents is not free before.
 */
static void give_ahead(struct flyt_node_session *session)
{
    struct flyt_node_gpu *gpu = flyt_node_session_has(session)->gpus[0];
    const struct flyt_node_target *earlier = flyt_node_target_at(session->target);
    struct flyt_node_server *server = NULL;

    if (!flyt_node_target_owner(session) && !(earlier && earlier->giving.is_begun) &&
        !flyt_node_fault_is_clearing(session->node, gpu))
        server = flyt_node_starts_take(session->node, gpu);
    struct flyt_node_target *target = server ? begin(server, session) : NULL;
    if (!target)
        return;
    flyt_debug("session %016" PRIx64 ": its memory is given to server process %d, extents=%u", session->id,
               (int)server->pid, flyt_node_session_has(session)->extents.count);
    flyt_node_target_give_memory(target);
}

struct flyt_node_server *flyt_node_replace_server(const struct flyt_node_session *session)
{
    struct flyt_node_server *server = session->target;

    if (is_undecided_where(session) || flyt_node_target_has_come(server))
        return NULL;
    if (server && server->state == FLYT_NODE_SERVER_ENDING) /* of a move that was given up, for one */
        server = NULL;
    return server || flyt_node_target_owner(session)
               ? server
               : flyt_node_starts_take(session->node, flyt_node_session_has(session)->gpus[0]);
}

int flyt_node_replace_give(struct flyt_node_server *server, struct flyt_node_session *session,
                           const struct flyt_node_ticket *ticket, int fd, const void *record, size_t bytes)
{
    struct flyt_node_target *target = flyt_node_target_at(server);

    if (!target)
        target = begin(server, session);
    return target ? flyt_node_target_give(target, ticket, fd, record, bytes) : -ENOMEM;
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
