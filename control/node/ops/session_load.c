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
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"

static const struct flyt_node_target_ops target_ops;

static struct flyt_node_session_load *load_of(struct flyt_node_target *target)
{
    return (struct flyt_node_session_load *)target;
}

static struct flyt_node_allocation *allocation_of(const struct flyt_node_session_load *session_load)
{
    return flyt_node_allocation_find(session_load->target.node, session_load->its.allocation_id);
}

/* ---- what its server says ---- */

#define FAIL(session_load, status, ...)                                                                                \
    flyt_node_session_load_fail(session_load, FLYT_NODE_TARGET_FAILED, status, __VA_ARGS__)

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

static void on_made(struct flyt_node_target *target, const struct flyt_manager_link_made *made, int fd)
{
    struct flyt_node_session_load *session_load = load_of(target);
    struct flyt_node_session *session = session_load->session;
    const struct flyt_node_allocation *allocation = session->allocation;
    const struct flyt_manager_link_extent *extent = &made->extent;

    if (made->outcome || extent->slot >= allocation->now.slots.slots_len) {
        flyt_close(fd);
        FAIL(session_load, FLYT_STATUS_NO_CAPACITY, "its memory cannot be made: %s",
             made->outcome ? strerror(-made->outcome) : "it has a device that its VM has not");
        return;
    }
    if (flyt_node_target_is_made_to_fail(target, "node.load.made")) {
        flyt_close(fd);
        return;
    }
    int status =
        flyt_node_extent_add(session_load->target.node, &session->has.extents, session->has.server_id, extent, fd);
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

static void on_unmade(struct flyt_node_target *target, uint64_t extent_id)
{
    struct flyt_node_session_load *session_load = load_of(target);
    struct flyt_node_session *session = session_load->session;
    uint64_t bytes;
    unsigned slot;

    int status = flyt_node_extent_remove(session_load->target.node, &session->has.extents, session->has.server_id,
                                         extent_id, &slot, &bytes);
    if (!status)
        status = flyt_ledger_release(session->allocation->slots[slot].ledger, session->has.server_id, bytes);
    if (status)
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its new server process gives back memory that it did not have: %s",
             strerror(-status));
}

static void on_prepared(struct flyt_node_target *target)
{
    struct flyt_node_session_load *session_load = load_of(target);

    flyt_node_target_set_state(target, FLYT_NODE_TARGET_LOADING);
    if (flyt_node_target_is_made_to_fail(target, "node.load.begin"))
        return;
    int status = session_load->ops->load(session_load);
    if (status)
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its new server process cannot be given what it is made from: %s",
             strerror(-status));
}

static void on_loaded(struct flyt_node_target *target, const struct flyt_manager_link_prepared *prepared)
{
    struct flyt_node_session_load *session_load = load_of(target);

    if (session_load->is_running && prepared->has_stopped) { /* its client may not know what it had done there */
        session_load->session->has_left_at = true;
        session_load->session->left_at =
            (struct flyt_call_state){prepared->sequence, prepared->sequence, prepared->sequence, prepared->error_count};
    }
    if (session_load->is_returned)
        credit_rest(session_load);
    flyt_node_target_hurry(target, session_load->is_running);
    session_load->ops->loaded(session_load, prepared);
}

static void on_gone_on(struct flyt_node_target *target, struct flyt_node_server *server)
{
    struct flyt_node_session_load *session_load = load_of(target);

    session_load->goes_on = true;
    session_load->ops->gone_on(session_load, server);
}

/* What comes of the whole. */
static flyt_status status_of(enum flyt_node_target_end how, int outcome)
{
    return how == FLYT_NODE_TARGET_ENDED  ? FLYT_STATUS_CONFLICT
           : how == FLYT_NODE_TARGET_LATE ? FLYT_STATUS_TIMEOUT
           : outcome == -ENOMEM           ? FLYT_STATUS_NO_CAPACITY
                                          : FLYT_STATUS_UNAVAILABLE;
}

static void on_failed(struct flyt_node_target *target, enum flyt_node_target_end how, int outcome, const char *sentence)
{
    flyt_node_session_load_fail(load_of(target), how, status_of(how, outcome), "%s", sentence);
}

/* ---- its client: the session waits for it, and its target is its server ---- */

static void describe_session(const struct flyt_node_session *session, struct flyt_manager_link_resume *ret_resume)
{
    ret_resume->is_made = 1;
    ret_resume->is_held = flyt_node_session_load_at(session->target)->target.is_held;
}

static bool given(struct flyt_node_session *session)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(session->target);

    session_load->session = NULL;
    session_load->target.server->has.use.is_coming = 1;
    flyt_node_target_set_state(&session_load->target, FLYT_NODE_TARGET_GIVEN);
    return false;
}

static void forget(struct flyt_node_session *session, bool is_ended)
{
    struct flyt_node_session_load *session_load = flyt_node_session_load_at(session->target);

    session_load->session = NULL; /* it is freed by whoever calls this */
    flyt_node_session_load_fail(session_load, is_ended ? FLYT_NODE_TARGET_ENDED : FLYT_NODE_TARGET_FAILED,
                                FLYT_STATUS_TIMEOUT, "%s",
                                *session->end_reason ? session->end_reason : "its program has not come back in time");
}

/* ---- beginning and end ---- */

void flyt_node_session_load_init(struct flyt_node_session_load *session_load, struct flyt_node_operation *operation,
                                 const struct flyt_node_session_load_ops *ops,
                                 const struct flyt_node_session_load_session *its)
{
    *session_load = (struct flyt_node_session_load){.ops = ops, .its = *its};
    flyt_node_target_init(&session_load->target, operation->node, operation, &target_ops);
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
    if (session_load->target.state < FLYT_NODE_TARGET_WAITING)
        free_session(session_load);
    flyt_node_target_fini(&session_load->target);
    explicit_bzero(session_load->its.token, sizeof session_load->its.token);
}

bool flyt_node_session_load_is_done(const struct flyt_node_session_load *session_load)
{
    return session_load->target.state == FLYT_NODE_TARGET_OVER && !session_load->target.server;
}

/* A session that waits for its client, or has it, is ended by others, soon. */
void flyt_node_session_load_drop(struct flyt_node_session_load *session_load, const char *reason)
{
    struct flyt_node_target *target = &session_load->target;
    struct flyt_node_session *session = session_load->session;

    if (target->state == FLYT_NODE_TARGET_OVER)
        return;
    bool is_waiting = target->state == FLYT_NODE_TARGET_WAITING && session;
    if (target->state < FLYT_NODE_TARGET_WAITING)
        free_session(session_load);
    session_load->session = NULL;
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_OVER);
    flyt_node_target_end(target->server);
    if (is_waiting)
        flyt_node_replace_end(session, reason);
}

void flyt_node_session_load_fail(struct flyt_node_session_load *session_load, enum flyt_node_target_end how,
                                 flyt_status status, const char *format, ...)
{
    char sentence[400];
    va_list arguments;

    if (session_load->target.state == FLYT_NODE_TARGET_OVER)
        return;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    flyt_node_session_load_drop(session_load, sentence);
    session_load->ops->failed(session_load, how, status, sentence);
}

/* ---- PREPARE ---- */

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
        flyt_node_session_new(session_load->target.node, allocation, from->session_id, from->token);

    if (!session)
        return NULL;
    session->is_encrypted = from->is_encrypted;
    session->leaves_coredumps = from->leaves_coredumps;
    session->started_ms = from->started_ms;
    session->ticket = (struct flyt_node_ticket){
        .allocation_id = from->allocation_id, .session_id = from->session_id, .client_pid = from->client_pid};
    snprintf(session->ticket.program, sizeof session->ticket.program, "%s", from->program);
    snprintf(session->ticket.client_address, sizeof session->ticket.client_address, "%s", from->client_address);
    session->has.server_id = entry_of(session_load->target.node, target->has.server_id);
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
                    struct flyt_node_server *server)
{
    struct flyt_node_target *target = &session_load->target;

    server->has.server_id = flyt_node_random();
    session_load->session = make_session(session_load, allocation, server);
    if (!session_load->session || join_ledgers(session_load)) {
        server->has.server_id = 0;
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "the node has no memory, or the VM's ledger no entry");
        return;
    }
    flyt_node_target_begin(target, server, session_load->session);
    flyt_node_charge_lend(server, allocation, &session_load->session->has);
    flyt_node_target_set_state(target, FLYT_NODE_TARGET_PREPARING);
    if (!flyt_node_target_is_made_to_fail(target, "node.load.prepare"))
        flyt_node_target_prepare(target, &allocation->now, session_load->session);
}

/* Others of the allocation that are on their way, and not counted as its sessions yet. */
static unsigned count_loading(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (struct flyt_node_target *target = flyt_node_target_next(node->ops->targets, FLYT_NODE_ROLE_LOAD); target;
         target = flyt_node_target_next(target->next, FLYT_NODE_ROLE_LOAD))
        count += load_of(target)->session && target->state < FLYT_NODE_TARGET_WAITING &&
                 load_of(target)->its.allocation_id == allocation->now.id;
    return count;
}

/* A session may begin, as far as its VM and the GPUs are concerned. */
static void look_for_server(struct flyt_node_target *target)
{
    struct flyt_node_session_load *session_load = load_of(target);
    struct flyt_node_allocation *allocation = allocation_of(session_load);
    struct flyt_node *node = session_load->target.node;
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
    struct flyt_node_server *warm = flyt_node_target_find(target);
    if (warm)
        prepare(session_load, allocation, warm);
}

static int charge(struct flyt_node_session *session, uint64_t server_id)
{
    if (flyt_fault_point("node.load.client") == FLYT_FAULT_ERROR)
        return -EIO;
    return flyt_node_charge_move(session->allocation, &session->has.extents, session->has.server_id, server_id);
}

static const struct flyt_node_target_ops target_ops = {
    .role = {.kind = FLYT_NODE_ROLE_LOAD,
             FLYT_NODE_TARGET_ROLE,
             .charge = charge,
             .describe = describe_session,
             .given = given,
             .forget = forget},
    .look = look_for_server,
    .prepared = on_prepared,
    .made = on_made,
    .unmade = on_unmade,
    .loaded = on_loaded,
    .gone_on = on_gone_on,
    .failed = on_failed,
    .late = {[FLYT_NODE_TARGET_WANTED] = "no server process became ready in time",
             [FLYT_NODE_TARGET_PREPARING] = "its new server process does not answer",
             [FLYT_NODE_TARGET_LOADING] = "it was not loaded in time",
             [FLYT_NODE_TARGET_GIVEN] = "its new server process has not said in time that it goes on"},
};

void flyt_node_session_load_begin(struct flyt_node_session_load *session_load)
{
    const struct flyt_node_allocation *allocation = allocation_of(session_load);

    flyt_node_target_await(&session_load->target, allocation ? allocation->slots[0].gpu : NULL);
}

void flyt_node_session_load_advance(struct flyt_node_session_load *session_load, uint64_t load_ms)
{
    struct flyt_node_target *target = &session_load->target;
    /* Who waits for its client has a limit of its own (replace.h). */
    const uint64_t limits_ms[FLYT_NODE_TARGET_STATES] = {[FLYT_NODE_TARGET_WANTED] = FLYT_NODE_SESSION_LOAD_WARM_MS,
                                                         [FLYT_NODE_TARGET_PREPARING] =
                                                             FLYT_NODE_SESSION_LOAD_PREPARE_MS,
                                                         [FLYT_NODE_TARGET_LOADING] = load_ms,
                                                         [FLYT_NODE_TARGET_GIVEN] = target->node->ops->switch_ms};

    flyt_node_target_advance(target, limits_ms[target->state]);
}

/* ---- one that comes back ---- */

int flyt_node_session_load_return(struct flyt_node_session_load *session_load, struct flyt_node_allocation *allocation,
                                  struct flyt_node_server *server, uint64_t move_id, uint64_t extent_count)
{
    session_load->session = make_session(session_load, allocation, server);
    if (!session_load->session)
        return -ENOMEM;
    session_load->is_returned = true;
    session_load->target.move_id = move_id;
    flyt_node_target_begin(&session_load->target, server, session_load->session);
    flyt_node_charge_lend(server, allocation, &session_load->session->has);
    struct flyt_node_session *session = session_load->session;
    session_load->has_extents = flyt_node_extents_restore(session_load->target.node, &session->has.extents,
                                                          session->has.server_id) == extent_count &&
                                session->has.extents.count == extent_count;
    if (!session_load->has_extents)
        flyt_node_extents_drop(session_load->target.node, &session->has.extents, session->has.server_id);
    return 0;
}

/* The session may have been about to be the server's own, which its entries are then. Their charge stays what it is:
 * extents that are to be told again are not anybody else's meanwhile. */
static int take_back_entries(const struct flyt_node_session_load *session_load)
{
    const struct flyt_node_allocation *allocation = session_load->session->allocation;
    const uint64_t target_id = session_load->target.server->has.server_id;
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
    flyt_node_target_set_state(&session_load->target, FLYT_NODE_TARGET_LOADING);
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_WELCOME);
    message->welcome.send_extents = !session_load->has_extents;
    flyt_node_target_send(&session_load->target, message, NULL, 0, NULL);
}

void flyt_node_session_load_leave(struct flyt_node_session_load *session_load)
{
    struct flyt_node_session *session = session_load->session;
    struct flyt_node_server *server = session_load->target.server;

    if (!session || !server || session_load->target.state > FLYT_NODE_TARGET_WAITING)
        return;
    server->outlives = true;
    flyt_node_charge_leave(server);
    session_load->session = NULL;
    flyt_node_target_stop_giving(&session_load->target);
    flyt_node_extents_leave(&session->has.extents);
    flyt_node_session_free(session);
}

void flyt_node_session_load_expect(struct flyt_node_session_load *session_load)
{
    flyt_node_target_set_state(&session_load->target, FLYT_NODE_TARGET_WAITING);
    flyt_node_replace_expect(session_load->session);
}

/* ---- what others ask ---- */

bool flyt_node_session_load_has_come(struct flyt_node_session_load *session_load)
{
    /* That it goes on may have been said, and not been read: then its program would not be here. */
    if (session_load->target.state == FLYT_NODE_TARGET_GIVEN)
        FAIL(session_load, FLYT_STATUS_UNAVAILABLE, "its program has lost its new server process");
    return session_load->target.state == FLYT_NODE_TARGET_WAITING;
}
