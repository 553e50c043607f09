#include "control/node/ops/session_load.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/host/machine.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/memory/charge.h"
#include "control/node/memory/extent.h"
#include "control/node/model/waiting.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/room.h"
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

static void set_stage(struct flyt_node_session_load *session_load, enum flyt_node_session_load_stage stage)
{
    session_load->stage = stage;
    session_load->stage_ms = flyt_clock_ms();
    if (stage > FLYT_NODE_SESSION_LOAD_WANTING)
        flyt_node_target_take(&session_load->wanted);
    flyt_node_target_hurry(&session_load->wanted, session_load->is_running && stage >= FLYT_NODE_SESSION_LOAD_LOADED &&
                                                      stage < FLYT_NODE_SESSION_LOAD_OVER);
    flyt_node_operation_wake(session_load->operation);
}

static bool is_late(const struct flyt_node_session_load *session_load, uint64_t limit_ms)
{
    return flyt_clock_ms() - session_load->stage_ms > limit_ms;
}

static struct flyt_node_allocation *allocation_of(const struct flyt_node_session_load *session_load)
{
    return flyt_node_allocation_find(session_load->node, session_load->its.allocation_id);
}

/* ---- what its server says ---- */

#define FAIL(session_load, status, ...)                                                                                \
    flyt_node_session_load_fail(session_load, FLYT_NODE_SESSION_LOAD_FAILED, status, __VA_ARGS__)

/* What is held of the slot is charged, whatever was charged before the restart. */
static int charge_held(const struct flyt_node_session_load *session_load, unsigned slot)
{
    const struct flyt_node_session *session = session_load->session;
    struct flyt_ledger *ledger = session->allocation->slots[slot].ledger;
    uint64_t charged_bytes = flyt_ledger_charged(ledger, session->has.server_id);
    uint64_t held_bytes = flyt_node_extents_of_slot(&session->has.extents, slot);

    return held_bytes > charged_bytes
               ? flyt_ledger_charge_for(ledger, session->has.server_id, held_bytes - charged_bytes)
               : 0;
}

/* All of it is there: what more is charged was not let go of in time. */
static void credit_rest(const struct flyt_node_session_load *session_load)
{
    const struct flyt_node_session *session = session_load->session;

    for (unsigned i = 0; i < session->allocation->now.slots.slots_len; i++) {
        struct flyt_ledger *ledger = session->allocation->slots[i].ledger;
        uint64_t charged_bytes = flyt_ledger_charged(ledger, session->has.server_id);
        uint64_t held_bytes = flyt_node_extents_of_slot(&session->has.extents, i);
        if (charged_bytes > held_bytes)
            flyt_ledger_release(ledger, session->has.server_id, charged_bytes - held_bytes);
    }
}

static void on_made(struct flyt_node_session_load *session_load, const struct flyt_manager_link_made *made, int fd)
{
    struct flyt_node_session *session = session_load->session;
    const struct flyt_node_allocation *allocation = session->allocation;
    const struct flyt_manager_link_extent *extent = &made->extent;

    if (made->outcome || extent->slot >= allocation->now.slots.slots_len) {
        flyt_close(fd);
        FAIL(session_load, FLYT_STATUS_NO_CAPACITY, "its memory cannot be made: %s",
             made->outcome ? strerror(-made->outcome) : "it has a device that its VM has not");
        return;
    }
    if (flyt_node_session_load_is_made_to_fail(session_load, "node.load.made")) {
        flyt_close(fd);
        return;
    }
    int status = flyt_node_extent_add(session_load->node, &session->has.extents, session->has.server_id, extent, fd);
    if (status) {
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its memory cannot be held: %s", strerror(-status));
        return;
    }
    status = session_load->is_returned ? charge_held(session_load, extent->slot)
                                       : flyt_ledger_charge_for(allocation->slots[extent->slot].ledger,
                                                                session->has.server_id, extent->bytes);
    if (status)
        FAIL(session_load, status == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE,
             "its VM has no room for its memory, %" PRIu64 " bytes so far: %s", session->has.extents.bytes,
             strerror(-status));
}

static void on_extent_gone(struct flyt_node_server *server, uint64_t extent_id)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(server);
    uint64_t bytes;
    unsigned slot;

    if (server->allocation || session_load->stage != FLYT_NODE_SESSION_LOAD_LOADING)
        return;
    struct flyt_node_session *session = session_load->session;
    int status = flyt_node_extent_remove(session_load->node, &session->has.extents, session->has.server_id, extent_id,
                                         &slot, &bytes);
    if (!status)
        status = flyt_ledger_release(session->allocation->slots[slot].ledger, session->has.server_id, bytes);
    if (status)
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its new server process gives back memory that it did not have: %s",
             strerror(-status));
}

static void on_prepared(struct flyt_node_session_load *session_load, const struct flyt_manager_link_message *told)
{
    const struct flyt_manager_link_prepared *prepared = &told->prepared;

    if (prepared->outcome) {
        bool is_its =
            session_load->stage == FLYT_NODE_SESSION_LOAD_LOADING && prepared->move_id == session_load->move_id;
        flyt_node_session_load_fail(session_load,
                                    is_its ? FLYT_NODE_SESSION_LOAD_REFUSED : FLYT_NODE_SESSION_LOAD_FAILED,
                                    prepared->outcome == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE,
                                    "%s", told->data_bytes ? (const char *)told->data : strerror(-prepared->outcome));
    } else if (session_load->stage == FLYT_NODE_SESSION_LOAD_PREPARING && !prepared->move_id) {
        set_stage(session_load, FLYT_NODE_SESSION_LOAD_LOADING);
        if (flyt_node_session_load_is_made_to_fail(session_load, "node.load.begin"))
            return;
        int status = session_load->ops->load(session_load);
        if (status)
            FAIL(session_load, FLYT_STATUS_UNAVAILABLE,
                 "its new server process cannot be given what it is made from: %s", strerror(-status));
    } else if (session_load->stage == FLYT_NODE_SESSION_LOAD_LOADING && prepared->move_id == session_load->move_id) {
        if (session_load->is_running && prepared->has_stopped) { /* its client may not know what it had done there */
            session_load->session->has_left_at = true;
            session_load->session->left_at = (struct flyt_call_state){prepared->sequence, prepared->sequence,
                                                                      prepared->sequence, prepared->error_count};
        }
        if (session_load->is_returned)
            credit_rest(session_load);
        set_stage(session_load, FLYT_NODE_SESSION_LOAD_LOADED);
        session_load->ops->loaded(session_load, prepared);
    }
}

static void on_message(struct flyt_node_server *server, const struct flyt_manager_link_message *told, int fd)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(server);

    if (told->kind == FLYT_MANAGER_LINK_MADE && session_load->stage == FLYT_NODE_SESSION_LOAD_LOADING) {
        on_made(session_load, &told->made, fd);
        return;
    }
    flyt_close(fd);
    if (told->kind == FLYT_MANAGER_LINK_PREPARED)
        on_prepared(session_load, told);
}

static void on_use(struct flyt_node_server *server)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(server);

    if (session_load->stage != FLYT_NODE_SESSION_LOAD_GIVEN || server->state != FLYT_NODE_SERVER_SERVING)
        return;
    session_load->is_whole = server->has.use.is_coming == FLYT_MANAGER_LINK_IS_WHOLE;
    if (session_load->is_whole)
        flyt_node_operation_wake(session_load->operation);
    if (server->has.use.is_coming)
        return;
    server->role = NULL;
    session_load->target = NULL;
    session_load->goes_on = true;
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_OVER);
    session_load->ops->gone_on(session_load, server);
}

static bool on_process_end(struct flyt_node_server *server)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(server);

    server->role = NULL;
    session_load->target = NULL;
    FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its new server process has ended before it went on there");
    flyt_node_operation_wake(session_load->operation); /* one that was over is done */
    return false;
}

static void on_end(struct flyt_node_server *server, const char *reason)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(server);

    server->role = NULL;
    session_load->target = NULL;
    flyt_node_session_load_fail(session_load, FLYT_NODE_SESSION_LOAD_ENDED, FLYT_STATUS_CONFLICT, "%s", reason);
}

/* ---- its client: the session waits for it, and its target is its server ---- */

static void describe_session(const struct flyt_node_session *session, struct flyt_manager_link_resume *ret_resume)
{
    ret_resume->is_made = 1;
    ret_resume->is_held = flyt_node_session_load_at(session->target)->is_held;
}

static bool given(struct flyt_node_session *session)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(session->target);

    session_load->session = NULL;
    session_load->target->has.use.is_coming = 1;
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_GIVEN);
    return false;
}

static void forget(struct flyt_node_session *session, bool is_ended)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(session->target);

    session_load->session = NULL; /* it is freed by whoever calls this */
    flyt_node_session_load_fail(session_load, is_ended ? FLYT_NODE_SESSION_LOAD_ENDED : FLYT_NODE_SESSION_LOAD_FAILED,
                                FLYT_STATUS_TIMEOUT, "%s",
                                *session->end_reason ? session->end_reason : "its program has not come back in time");
}

static const struct flyt_node_role_ops role_ops = {
    .kind = FLYT_NODE_ROLE_LOAD,
    .on_message = on_message,
    .on_extent_gone = on_extent_gone,
    .on_use = on_use,
    .on_exit = on_process_end,
    .on_end = on_end,
    .describe = describe_session,
    .given = given,
    .forget = forget,
};

/* ---- beginning and end ---- */

void flyt_node_session_load_init(struct flyt_node_session_load *session_load, struct flyt_node_operation *operation,
                                 const struct flyt_node_session_load_ops *ops,
                                 const struct flyt_node_session_load_session *its)
{
    struct flyt_node *node = operation->node;

    *session_load = (struct flyt_node_session_load){.role = {&role_ops},
                                                    .next = node->ops->session_loads,
                                                    .node = node,
                                                    .operation = operation,
                                                    .ops = ops,
                                                    .its = *its,
                                                    .move_id = flyt_node_random(),
                                                    .stage = FLYT_NODE_SESSION_LOAD_NEW,
                                                    .stage_ms = flyt_clock_ms()};
    node->ops->session_loads = session_load;
    flyt_node_target_want(&session_load->wanted, operation, NULL);
}

/* It has no process, and is not among those that wait: first its memory, then its charge, when its server has gone. */
static void free_session(struct flyt_node_session_load *session_load)
{
    struct flyt_node_session *session = session_load->session;

    if (!session)
        return;
    session_load->session = NULL;
    flyt_node_extents_drop(session->node, &session->has.extents, session->has.server_id);
    flyt_node_charge_end(session->allocation, &session->has);
    flyt_node_session_free(session);
}

void flyt_node_session_load_fini(struct flyt_node_session_load *session_load)
{
    struct flyt_node_session_load **link = &session_load->node->ops->session_loads;

    if (session_load->stage < FLYT_NODE_SESSION_LOAD_WAITING)
        free_session(session_load);
    if (session_load->target)
        session_load->target->role = NULL;
    while (*link != session_load)
        link = &(*link)->next;
    *link = session_load->next;
    flyt_node_target_forget(&session_load->wanted);
    explicit_bzero(session_load->its.token, sizeof session_load->its.token);
}

bool flyt_node_session_load_is_done(const struct flyt_node_session_load *session_load)
{
    return session_load->stage == FLYT_NODE_SESSION_LOAD_OVER && !session_load->target;
}

/* A session that waits for its client, or has it, is ended by others, soon. */
void flyt_node_session_load_drop(struct flyt_node_session_load *session_load, const char *reason)
{
    struct flyt_node_session *session = session_load->session;

    if (session_load->stage == FLYT_NODE_SESSION_LOAD_OVER)
        return;
    bool is_waiting = session_load->stage == FLYT_NODE_SESSION_LOAD_WAITING && session;
    if (session_load->stage < FLYT_NODE_SESSION_LOAD_WAITING)
        free_session(session_load);
    session_load->session = NULL;
    session_load->stage = FLYT_NODE_SESSION_LOAD_OVER;
    flyt_node_replace_end_target(session_load->target);
    if (is_waiting) {
        flyt_node_replace_end(session, reason);
    }
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_OVER);
}

void flyt_node_session_load_fail(struct flyt_node_session_load *session_load, enum flyt_node_session_load_end how,
                                 flyt_status status, const char *format, ...)
{
    char sentence[400];
    va_list arguments;

    if (session_load->stage == FLYT_NODE_SESSION_LOAD_OVER)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    flyt_node_session_load_drop(session_load, sentence);
    session_load->ops->failed(session_load, how, status, sentence);
}

bool flyt_node_session_load_is_made_to_fail(struct flyt_node_session_load *session_load, const char *point)
{
    if (flyt_fault_point(point) != FLYT_FAULT_ERROR)
        return false;
    FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "a test lets it fail at %s", point);
    return true;
}

/* ---- PREPARE ---- */

void flyt_node_session_load_send(struct flyt_node_session_load *session_load,
                                 const struct flyt_manager_link_message *message, const int *fds, unsigned fd_count)
{
    flyt_node_session_load_send_files(session_load, message, fds, fd_count, NULL);
}

void flyt_node_session_load_send_files(struct flyt_node_session_load *session_load,
                                       const struct flyt_manager_link_message *message, const int *fds,
                                       unsigned fd_count, struct flyt_tally *left)
{
    int status = flyt_node_link_queue_send_files(&session_load->target->queue, message, fds, fd_count, left);

    if (status && status != -EPIPE) /* where it has gone, its end says so */
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be told of it: %s",
             strerror(-status));
}

/* The entry in the ledgers of a session that is loaded into this server, until it is the server's own. A server may
 * come back after a restart, and nobody else knows whose the entry is then. */
static uint64_t entry_of(const struct flyt_node *node, uint64_t server_id)
{
    const struct {
        char what[16];
        uint64_t server_id;
    } text = {"flyt loading", server_id};
    unsigned char digest[FLYT_TICKET_KEY_BYTES];
    uint64_t entry_id;

    flyt_hmac(node->state.node_key, sizeof node->state.node_key, &text, sizeof text, digest);
    memcpy(&entry_id, digest, sizeof entry_id);
    return entry_id ? entry_id : 1;
}

/* The session as it was, for a target that has its id. NULL: no memory. */
static struct flyt_node_session *make_session(const struct flyt_node_session_load *session_load,
                                              struct flyt_node_allocation *allocation, struct flyt_node_server *target)
{
    const struct flyt_node_session_load_session *from = &session_load->its;
    struct flyt_node_session *session =
        flyt_node_session_new(session_load->node, allocation, from->session_id, from->token);

    if (!session)
        return NULL;
    session->is_encrypted = from->is_encrypted;
    session->started_ms = from->started_ms;
    session->ticket = (struct flyt_node_ticket){
        .allocation_id = from->allocation_id, .session_id = from->session_id, .client_pid = from->client_pid};
    snprintf(session->ticket.program, sizeof session->ticket.program, "%s", from->program);
    snprintf(session->ticket.client_address, sizeof session->ticket.client_address, "%s", from->client_address);
    session->has.server_id = entry_of(session_load->node, target->has.server_id);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        session->has.gpus[i] = allocation->slots[i].gpu;
    return session;
}

/* An entry in each ledger; one that has come back may have it. What was made is freed with the session. */
static int join_ledgers(const struct flyt_node_session_load *session_load)
{
    const struct flyt_node_allocation *allocation = session_load->session->allocation;
    int status = 0;

    for (unsigned i = 0; i < allocation->now.slots.slots_len && !status; i++) {
        status = allocation->slots[i].ledger
                     ? flyt_ledger_join(allocation->slots[i].ledger, session_load->session->has.server_id)
                     : -ENOMEM;
        if (status == -EEXIST && session_load->is_returned)
            status = 0;
    }
    return status;
}

static void prepare(struct flyt_node_session_load *session_load, struct flyt_node_allocation *allocation,
                    struct flyt_node_server *target)
{
    target->has.server_id = flyt_node_random();
    session_load->session = make_session(session_load, allocation, target);
    if (!session_load->session || join_ledgers(session_load)) {
        target->has.server_id = 0;
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "the node has no memory, or the VM's ledger no entry");
        return;
    }
    session_load->target = target;
    flyt_node_target_begin(target, &session_load->role, session_load->session);
    flyt_node_charge_lend(target, allocation, &session_load->session->has);
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_PREPARING);
    if (flyt_node_session_load_is_made_to_fail(session_load, "node.load.prepare"))
        return;
    int status = flyt_node_target_prepare(target, &allocation->now, session_load->session);
    if (status)
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be told of it: %s",
             strerror(-status));
}

/* Others of the allocation that are on their way, and not counted as its sessions yet. */
static unsigned count_loading(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (const struct flyt_node_session_load *session_load = node->ops->session_loads; session_load;
         session_load = session_load->next)
        count += session_load->session && session_load->stage < FLYT_NODE_SESSION_LOAD_WAITING &&
                 session_load->its.allocation_id == allocation->now.id;
    return count;
}

/* A session may begin, as far as its VM and the GPUs are concerned. */
static void look_for_server(struct flyt_node_session_load *session_load)
{
    struct flyt_node_allocation *allocation = allocation_of(session_load);
    struct flyt_node *node = session_load->node;
    struct flyt_error err = {0};

    if (!allocation) {
        FAIL(session_load, FLYT_STATUS_NOT_FOUND, "the VM's allocation is not here any more");
        return;
    }
    const unsigned promised = flyt_node_waiting_promised(node, allocation);
    const unsigned others = count_loading(node, allocation) + flyt_node_waiting_admitted(node, allocation->now.id);
    int status = session_load->is_running ? flyt_node_room_on_gpus(node, allocation, promised, &err)
                                          : flyt_node_room_check(node, allocation, others, promised, &err);
    if (status) {
        FAIL(session_load, status == -EBUSY ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE, "%s", err.text);
        return;
    }
    struct flyt_node_server *warm = flyt_node_target_find(&session_load->wanted);
    if (warm)
        prepare(session_load, allocation, warm);
}

void flyt_node_session_load_begin(struct flyt_node_session_load *session_load)
{
    const struct flyt_node_allocation *allocation = allocation_of(session_load);

    flyt_node_target_want(&session_load->wanted, session_load->operation, allocation ? allocation->slots[0].gpu : NULL);
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_WANTING);
}

void flyt_node_session_load_advance(struct flyt_node_session_load *session_load, uint64_t load_ms)
{
    switch (session_load->stage) {
    case FLYT_NODE_SESSION_LOAD_WANTING:
        if (is_late(session_load, FLYT_NODE_SESSION_LOAD_WARM_MS))
            FAIL(session_load, FLYT_STATUS_TIMEOUT, "no server process became ready in time");
        else
            look_for_server(session_load);
        break;
    case FLYT_NODE_SESSION_LOAD_PREPARING:
        if (is_late(session_load, FLYT_NODE_SESSION_LOAD_PREPARE_MS))
            FAIL(session_load, FLYT_STATUS_TIMEOUT, "its new server process does not answer");
        break;
    case FLYT_NODE_SESSION_LOAD_LOADING:
        if (is_late(session_load, load_ms))
            FAIL(session_load, FLYT_STATUS_TIMEOUT, "it was not loaded within %" PRIu64 " s", load_ms / 1000);
        break;
    case FLYT_NODE_SESSION_LOAD_GIVEN:
        if (is_late(session_load, session_load->node->ops->switch_ms))
            FAIL(session_load, FLYT_STATUS_TIMEOUT, "its new server process has not said in time that it goes on");
        break;
    default: /* who waits for its client has a limit of its own (replace.h) */
        break;
    }
}

/* ---- one that comes back ---- */

int flyt_node_session_load_return(struct flyt_node_session_load *session_load, struct flyt_node_allocation *allocation,
                                  struct flyt_node_server *target, uint64_t move_id, uint64_t extent_count)
{
    session_load->session = make_session(session_load, allocation, target);
    if (!session_load->session)
        return -ENOMEM;
    session_load->is_returned = true;
    session_load->move_id = move_id;
    session_load->target = target;
    flyt_node_target_begin(target, &session_load->role, session_load->session);
    flyt_node_charge_lend(target, allocation, &session_load->session->has);
    struct flyt_node_session *session = session_load->session;
    session_load->has_extents =
        flyt_node_extents_restore(session_load->node, &session->has.extents, session->has.server_id) == extent_count &&
        session->has.extents.count == extent_count;
    if (!session_load->has_extents)
        flyt_node_extents_drop(session_load->node, &session->has.extents, session->has.server_id);
    return 0;
}

/* The session may have been about to be the server's own, which its entries are then. Their charge stays what it is:
 * extents that are to be told again are not anybody else's meanwhile. */
static int take_back_entries(const struct flyt_node_session_load *session_load)
{
    const struct flyt_node_allocation *allocation = session_load->session->allocation;
    const uint64_t target_id = session_load->target->has.server_id;
    int status = 0;

    for (unsigned i = 0; i < allocation->now.slots.slots_len && !status; i++) {
        struct flyt_ledger *ledger = allocation->slots[i].ledger;
        if (ledger)
            status = flyt_ledger_move(ledger, target_id, session_load->session->has.server_id,
                                      flyt_ledger_charged(ledger, target_id));
        if (status == -EEXIST)
            flyt_ledger_reclaim(ledger, target_id, NULL);
        if (status == -EEXIST || status == -ENOENT) /* it is the session's, or there is none */
            status = 0;
    }
    return status;
}

void flyt_node_session_load_welcome(struct flyt_node_session_load *session_load)
{
    const struct flyt_node_allocation *allocation = session_load->session->allocation;

    int status = take_back_entries(session_load);
    if (!status)
        status = join_ledgers(session_load);
    for (unsigned i = 0; i < allocation->now.slots.slots_len && !status; i++)
        status = charge_held(session_load, i);
    if (status) {
        FAIL(session_load, status == -ENOMEM ? FLYT_STATUS_NO_CAPACITY : FLYT_STATUS_UNAVAILABLE,
             "its VM has no room for its memory after a restart of the node manager: %s", strerror(-status));
        return;
    }
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_LOADING);
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_WELCOME);
    message->welcome.send_extents = !session_load->has_extents;
    flyt_node_session_load_send(session_load, message, NULL, 0);
}

void flyt_node_session_load_leave(struct flyt_node_session_load *session_load)
{
    struct flyt_node_session *session = session_load->session;

    if (!session || !session_load->target || session_load->stage > FLYT_NODE_SESSION_LOAD_WAITING)
        return;
    session_load->target->outlives = true;
    flyt_node_charge_leave(session_load->target);
    session_load->session = NULL;
    if (session_load->target->hand_over)
        flyt_node_replace_fail(session_load->target);
    flyt_node_extents_leave(&session->has.extents);
    flyt_node_session_free(session);
}

void flyt_node_session_load_let_go(struct flyt_node_session_load *session_load)
{
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_GO_ON);

    session_load->is_whole = false;
    message->stop.move_id = session_load->move_id;
    flyt_node_session_load_send(session_load, message, NULL, 0);
}

void flyt_node_session_load_expect(struct flyt_node_session_load *session_load)
{
    set_stage(session_load, FLYT_NODE_SESSION_LOAD_WAITING);
    flyt_node_replace_expect(session_load->session);
}

/* ---- what others ask ---- */

bool flyt_node_session_load_has_come(struct flyt_node_session_load *session_load)
{
    /* That it goes on may have been said, and not been read: then its program would not be here. */
    if (session_load->stage == FLYT_NODE_SESSION_LOAD_GIVEN)
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its program has lost its new server process");
    return session_load->stage == FLYT_NODE_SESSION_LOAD_WAITING;
}
