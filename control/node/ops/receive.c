#include "control/node/ops/receive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/size.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/server.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/arrival.h"
#include "control/node/ops/grant.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/receive_restart.h"
#include "control/node/ops/receive_switch.h"
#include "control/node/state/receive_record.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

static struct flyt_node_receive *of(const struct flyt_node_operation *operation)
{
    return (struct flyt_node_receive *)operation;
}

/* ---- figures ---- */

static void use(const struct flyt_node_operation *operation, flyt_migration_use *ret_use)
{
    const struct flyt_node_receive *receive = of(operation);

    *ret_use = (flyt_migration_use){.id = operation->id,
                                    .allocation_id = operation->allocation_id,
                                    .phase = operation->phase,
                                    .outcome = flyt_node_operation_outcome(operation),
                                    .elapsed_ms = flyt_node_operation_elapsed_ms(operation),
                                    .session_count = receive->moved_count,
                                    .memory_bytes = receive->memory_bytes,
                                    .standstill_us = receive->standstill_us};
    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        ret_use->session_count += arrival->session_load.target.state != FLYT_NODE_TARGET_OVER;
        if (arrival->session_load.session)
            ret_use->memory_bytes += arrival->session_load.session->has.extents.bytes;
        else if (arrival->session_load.target.state == FLYT_NODE_TARGET_GIVEN)
            ret_use->memory_bytes += arrival->session_load.target.server->has.extents.bytes;
    }
}

/* ---- the end ---- */

/* Who has ordered it is answered, once. */
static void answer_order(struct flyt_node_receive *receive, flyt_status status, const char *text)
{
    flyt_node_received_fn done = receive->taking.done;

    receive->taking.done = NULL;
    if (done)
        done(receive->taking.user, status, text);
}

/* Nothing of it is left but what is told of it. */
static void release(struct flyt_node_receive *receive)
{
    flyt_node_operation_stop(&receive->op);
    flyt_node_commit_forget(receive->op.node, &receive->taking.commit);
    flyt_node_commit_forget(receive->op.node, &receive->switching.commit);
    answer_order(receive, FLYT_STATUS_CONFLICT, *receive->op.text ? receive->op.text : "the node manager ends");
    while (receive->arrivals)
        flyt_node_arrival_free(receive->arrivals);
    explicit_bzero(receive->secret, sizeof receive->secret);
}

/* The state is the caller's to save. */
static void end(struct flyt_node_receive *receive, flyt_migration_phase phase)
{
    struct flyt_node_allocation *allocation = receive->op.allocation;
    struct flyt_node *node = receive->op.node;

    release(receive);
    if (receive->record)
        flyt_node_receive_record_remove(&node->state, receive->record);
    receive->record = NULL;
    receive->unsaved_ms = 0;
    flyt_node_operation_end(&receive->op, phase);
    node->receives_ended++;
    node->receives_done += phase == FLYT_MIGRATION_DONE;
    if (allocation && (phase == FLYT_MIGRATION_FAILED ||
                       (allocation->is_removed && !allocation->session_count && !allocation->stayed_count)))
        flyt_node_allocation_free(node, allocation, true);
}

static void tell_end(struct flyt_node_receive *receive)
{
    struct flyt_node *node = receive->op.node;
    bool is_done = receive->op.phase == FLYT_MIGRATION_DONE;

    if (is_done)
        flyt_info("migration %016" PRIx64 ": done, arrived vm=%s programs=%u lost=%u bytes=%" PRIu64
                  " standstill_us=%" PRIu64 " elapsed_ms=%" PRIu64,
                  receive->op.id, receive->op.vm_ip, receive->moved_count, receive->lost_count, receive->memory_bytes,
                  receive->standstill_us, flyt_node_operation_elapsed_ms(&receive->op));
    else
        flyt_warn("migration %016" PRIx64 ": failed, not arrived vm=%s: %s", receive->op.id, receive->op.vm_ip,
                  receive->op.text);
    if (is_done)
        flyt_node_tell(node, "receive.done", receive->op.vm_ip, "%u programs of VM %s go on here, from another node",
                       receive->moved_count, receive->op.vm_ip);
    else
        flyt_node_tell(node, "receive.failed", receive->op.vm_ip, "the programs of VM %s do not go on here: %s",
                       receive->op.vm_ip, receive->op.text);
}

static void finish(struct flyt_node_receive *receive, flyt_migration_phase phase)
{
    struct flyt_node *node = receive->op.node;

    end(receive, phase);
    /* Until it is written a restart finds that its programs are here, or are not. */
    if (phase == FLYT_MIGRATION_DONE && flyt_fault_point("node.receive.done") == FLYT_FAULT_ERROR)
        flyt_fail("the state is not written: a test lets it fail at node.receive.done");
    else
        flyt_node_save_soon(node);
    tell_end(receive);
    flyt_node_operations_forget_old(node, FLYT_NODE_OPERATION_RECEIVE);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS); /* programs that waited for its end */
}

/* ---- failing ---- */

static void drop(struct flyt_node_operation *operation, const char *reason)
{
    struct flyt_node_receive *receive = of(operation);

    /* They are nowhere else then: their ends are told as any session's. */
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        arrival->is_told |= receive->is_switched;
    flyt_node_operation_fail(operation, FLYT_STATUS_CONFLICT, "%s", reason);
}

int flyt_node_receive_cancel(struct flyt_node_receive *receive, const char *reason)
{
    if (flyt_node_receive_is_failing(receive))
        return 0;
    if (flyt_node_operation_has_ended(&receive->op) || receive->is_restarted || receive->moved_count ||
        flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_GIVEN, FLYT_NODE_TARGET_GIVEN))
        return -EALREADY;
    flyt_node_operation_fail(&receive->op, FLYT_STATUS_CONFLICT, "%s%s%s", reason, *receive->last_failure ? ": " : "",
                             receive->last_failure);
    return 0;
}

/* Others' sessions have gone on. */
static void lose(struct flyt_node_receive *receive, struct flyt_node_arrival *arrival)
{
    const struct flyt_node_session_load_session *its = &arrival->session_load.its;
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, its->session_id);
    arrival->is_told = true;
    receive->lost_count++;
    flyt_node_tell(receive->op.node, "migration.session_lost", receive->op.vm_ip,
                   "program %s of VM %s: it was to go on at another node, as its VM's other programs do by now: %s",
                   its->program, receive->op.vm_ip, arrival->sentence);
    flyt_node_tell(receive->op.node, "session.ended", id, "program %s of VM %s: %s", its->program, receive->op.vm_ip,
                   arrival->sentence);
}

/* After SWITCH. */
static void see_to_failures(struct flyt_node_receive *receive)
{
    bool has_failed = false;

    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        has_failed |= arrival->has_failed && !arrival->is_told;
    if (!has_failed)
        return;
    /* That another one goes on may have been said, and not been read. */
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        if (arrival->session_load.target.state == FLYT_NODE_TARGET_GIVEN && arrival->session_load.target.server)
            flyt_node_server_read_all(arrival->session_load.target.server);
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        if (!arrival->has_failed || arrival->is_told)
            continue;
        if (receive->moved_count || receive->op.is_let_go)
            lose(receive, arrival);
        else
            flyt_node_operation_fail(&receive->op, arrival->status, "program %.100s: %.390s",
                                     arrival->session_load.its.program, arrival->sentence);
    }
}

static void check_time(struct flyt_node_receive *receive)
{
    if (receive->is_switched)
        return;
    if (flyt_node_operation_is_late(&receive->op))
        flyt_node_operation_fail(&receive->op, FLYT_STATUS_TIMEOUT, "its programs had not arrived after %u s%s%s",
                                 receive->op.timeout_s, *receive->last_failure ? ": " : "", receive->last_failure);
    else if (receive->op.phase == FLYT_MIGRATION_ARRIVED &&
             flyt_clock_ms() - receive->arrived_ms > FLYT_NODE_RECEIVE_ARRIVED_MS)
        flyt_node_operation_fail(&receive->op, FLYT_STATUS_TIMEOUT,
                                 "its programs had arrived, and for %u s nobody has said that they go on here",
                                 FLYT_NODE_RECEIVE_ARRIVED_MS / 1000);
}

/* ---- going on ---- */

/* Those of which nothing is left, and whose place another attempt may take, or has taken. After SWITCH those that go
 * on, or have failed, say what became of their session. */
static void forget_over(struct flyt_node_receive *receive)
{
    struct flyt_node_arrival *arrival = receive->arrivals, *next;

    for (; arrival; arrival = next) {
        next = arrival->next;
        if (flyt_node_session_load_is_done(&arrival->session_load) && !arrival->has_failed &&
            !arrival->session_load.goes_on)
            flyt_node_arrival_free(arrival);
    }
}

static bool are_all_done(const struct flyt_node_receive *receive)
{
    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        if (!flyt_node_session_load_is_done(&arrival->session_load))
            return false;
    return true;
}

/* Sessions whose clients have not come end in a turn of the loop of their own. */
static bool is_any_ending(const struct flyt_node_receive *receive)
{
    const struct flyt_node_session *session = receive->op.node->sessions;

    while (session &&
           (session->state != FLYT_NODE_SESSION_ENDING || session->ticket.allocation_id != receive->op.allocation_id))
        session = session->next;
    return session != NULL;
}

/* While the programs run: so many will be switched, as far as is known. */
static void write_ahead(struct flyt_node_receive *receive, unsigned count)
{
    struct flyt_node_receive_record *record = receive->record;

    receive->ahead_count = count;
    record->is_switched = true;
    record->session_count = count;
    flyt_node_commit_ahead(receive->op.node, NULL, NULL, NULL);
    record->is_switched = false;
    record->session_count = 0;
}

static void look_at_phase(struct flyt_node_receive *receive)
{
    unsigned session_load = flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_LOADING, FLYT_NODE_TARGET_LOADING);
    unsigned coming = flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_NEW, FLYT_NODE_TARGET_LOADING);
    unsigned here = flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_LOADED, FLYT_NODE_TARGET_LOADED);

    if (receive->is_switched)
        return;
    if (session_load && coming == session_load && session_load + here != receive->ahead_count)
        write_ahead(receive, session_load + here);
    if (coming || !here)
        receive->arrived_ms = 0;
    else if (!receive->arrived_ms)
        receive->arrived_ms = flyt_clock_ms();
    flyt_node_operation_set_phase(&receive->op, coming ? FLYT_MIGRATION_COPYING
                                                : here ? FLYT_MIGRATION_ARRIVED
                                                       : FLYT_MIGRATION_PREPARING);
}

/* Of those that came back after a restart: when all are here again, as at SWITCH. */
static void expect_returned(struct flyt_node_receive *receive)
{
    if (!receive->is_switched || receive->is_restarted || flyt_node_receive_is_failing(receive) ||
        flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_NEW, FLYT_NODE_TARGET_LOADING))
        return;
    flyt_node_receive_expect_all(receive);
}

static void tear_down(struct flyt_node_receive *receive)
{
    flyt_node_receive_look_at_switch(receive);
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        flyt_node_arrival_drop(arrival, receive->op.text);
}

/* Who goes on here. */
static void save_moved(struct flyt_node_receive *receive)
{
    if (receive->unsaved_ms)
        flyt_node_save_soon(receive->op.node);
    receive->unsaved_ms = 0;
}

static void advance(struct flyt_node_receive *receive)
{
    if (receive->is_restarted && !flyt_node_receive_is_failing(receive) && flyt_node_receive_is_back(receive))
        flyt_node_receive_settle(receive);
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival && !receive->is_restarted;
         arrival = arrival->next)
        if (!flyt_node_receive_is_failing(receive))
            flyt_node_arrival_advance(arrival);
    expect_returned(receive);
    /* Where all fails after SWITCH, sessions without a process are still to end, in silence. */
    if (!receive->is_switched || !flyt_node_receive_is_failing(receive))
        forget_over(receive);
    check_time(receive);
    flyt_node_receive_look_at_switch(receive);
    if (flyt_clock_ms() - receive->unsaved_ms >= FLYT_NODE_RECEIVE_SAVE_MS)
        save_moved(receive);
    if (receive->is_switched && !receive->is_restarted && !flyt_node_receive_is_failing(receive))
        see_to_failures(receive);
    if (flyt_node_receive_is_failing(receive))
        tear_down(receive);
    else
        look_at_phase(receive);
    if (receive->is_switched && !receive->is_restarted && !flyt_node_receive_is_failing(receive))
        flyt_node_receive_let_go(receive);
}

static void step(struct flyt_node_operation *operation)
{
    struct flyt_node_receive *receive = of(operation);
    const struct flyt_node_allocation *allocation = operation->allocation;

    if (receive->switching.is_writing)
        return;
    advance(receive);
    bool is_failing = flyt_node_receive_is_failing(receive);
    bool is_clear = are_all_done(receive) && !is_any_ending(receive);
    if (is_failing && is_clear && (!allocation || !flyt_node_allocation_sessions(allocation)))
        finish(receive, FLYT_MIGRATION_FAILED);
    else if (!is_failing && receive->is_switched && !receive->is_restarted && is_clear)
        finish(receive, FLYT_MIGRATION_DONE);
    else if (flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_WANTED, FLYT_NODE_TARGET_WANTED))
        flyt_node_raise(operation->node, FLYT_NODE_EVENT_SERVERS);
}

static bool holds(const struct flyt_node_operation *operation)
{
    return true;
}

static const struct flyt_node_operation_ops ops = {
    .kind = FLYT_NODE_OPERATION_RECEIVE, .step = step, .drop = drop, .holds = holds, .use = use};

/* ---- beginning ---- */

static flyt_status check_gpus(const struct flyt_node *node, const flyt_allocation *wanted, struct flyt_error *err)
{
    char needed[FLYT_SIZE_TEXT_BYTES], there[FLYT_SIZE_TEXT_BYTES];

    for (u_int i = 0; i < wanted->slots.slots_len; i++) {
        const flyt_slot *slot = &wanted->slots.slots_val[i];
        const struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, slot->gpu_uuid);
        if (gpu->health == FLYT_HEALTH_FAILED) {
            flyt_error_set(err, -ENODEV, "GPU %u of node %.255s has failed: %.200s", gpu->index, node->name,
                           gpu->health_text);
            return FLYT_STATUS_UNAVAILABLE;
        }
        if (gpu->is_known && slot->memory_bytes > gpu->memory_bytes) {
            flyt_error_set(err, -ENOMEM, "GPU %u of node %.255s has no room: %s are wanted, %s are there", gpu->index,
                           node->name, flyt_size_text(slot->memory_bytes, needed),
                           flyt_size_text(gpu->memory_bytes, there));
            return FLYT_STATUS_NO_CAPACITY;
        }
    }
    return FLYT_STATUS_OK;
}

static flyt_status check(const struct flyt_node *node, const flyt_order_receive_args *args, struct flyt_error *err)
{
    static const unsigned char none[sizeof args->secret];
    const flyt_allocation *wanted = &args->allocation;

    if (!args->migration_id || !memcmp(args->secret, none, sizeof none)) {
        flyt_error_set(err, -EINVAL, "a migration needs an id and a secret");
        return FLYT_STATUS_INVALID;
    }
    if (flyt_node_allocation_find(node, wanted->id)) {
        flyt_error_set(err, -EEXIST, "the node has the allocation of VM %.255s already", wanted->vm_ip);
        return FLYT_STATUS_CONFLICT;
    }
    flyt_status status = flyt_node_grant_check(node, wanted, err);
    if (status == FLYT_STATUS_OK && wanted->state == FLYT_ALLOCATION_ENDING) {
        flyt_error_set(err, -EINVAL, "the allocation of VM %.255s is being taken back", wanted->vm_ip);
        status = FLYT_STATUS_INVALID;
    }
    if (status == FLYT_STATUS_OK)
        status = check_gpus(node, wanted, err);
    if (status == FLYT_STATUS_OK && flyt_fault_point("node.receive.accept") == FLYT_FAULT_ERROR) {
        flyt_error_set(err, -EIO, "a test lets it fail at node.receive.accept");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    return status;
}

/* In the list. NULL: no memory. */
static struct flyt_node_receive *add(struct flyt_node *node, uint64_t id, uint64_t allocation_id)
{
    struct flyt_node_receive *receive = calloc(1, sizeof *receive);

    if (!receive)
        return NULL;
    flyt_node_operation_init(&receive->op, &ops, node, flyt_node_allocation_find(node, allocation_id), id);
    receive->op.allocation_id = allocation_id;
    receive->op.timeout_s = FLYT_NODE_RECEIVE_TIMEOUT_S;
    if (flyt_node_operation_begin(&receive->op)) {
        free(receive);
        return NULL;
    }
    return receive;
}

/* It was never taken. */
static void forget(struct flyt_node_receive *receive)
{
    struct flyt_node *node = receive->op.node;
    struct flyt_node_allocation *allocation = receive->op.allocation;

    flyt_node_operation_remove(&receive->op);
    if (receive->record)
        flyt_node_receive_record_remove(&node->state, receive->record);
    if (allocation)
        flyt_node_allocation_free(node, allocation, true);
    release(receive);
    free(receive);
}

static void on_begun(void *user, int status)
{
    struct flyt_node_receive *receive = user;

    if (status) {
        answer_order(receive, FLYT_STATUS_UNAVAILABLE, "the node cannot keep it");
        forget(receive);
        return;
    }
    flyt_info("migration %016" PRIx64 ": awaits the programs of another node, vm=%s allocation=%016" PRIx64,
              receive->op.id, receive->op.vm_ip, receive->op.allocation_id);
    answer_order(receive, FLYT_STATUS_OK, "");
}

/* 0 or a negative errno: nothing has changed. */
static int begin(struct flyt_node *node, const flyt_order_receive_args *args, struct flyt_node_receive **ret_receive)
{
    struct flyt_node_receive *receive = add(node, args->migration_id, args->allocation.id);
    struct flyt_node_allocation *allocation = NULL;
    flyt_allocation wanted = {0};

    int status = receive ? flyt_node_allocation_copy(&args->allocation, &wanted) : -ENOMEM;
    if (!status) {
        receive->record = flyt_node_receive_record_add(&node->state, receive->op.id, receive->op.allocation_id);
        status = receive->record ? flyt_node_grant_create(node, &wanted, &allocation) : -ENOMEM;
    }
    xdr_free((xdrproc_t)xdr_flyt_allocation, &wanted);
    if (status) {
        if (receive)
            forget(receive);
        return status;
    }
    memcpy(receive->secret, args->secret, sizeof receive->secret);
    receive->op.timeout_s = args->timeout_s ? args->timeout_s : FLYT_NODE_RECEIVE_TIMEOUT_S;
    receive->is_encrypted = args->is_encrypted;
    receive->op.allocation = allocation;
    snprintf(receive->op.vm_ip, sizeof receive->op.vm_ip, "%s", allocation->now.vm_ip);
    *ret_receive = receive;
    return 0;
}

/* Whether it was ordered before; then it is answered. */
static bool answer_known(const struct flyt_node_receive *known, flyt_node_received_fn done, void *user)
{
    char text[512];

    if (!known)
        return false;
    if (flyt_node_receive_is_failing(known)) {
        snprintf(text, sizeof text, "the migration has failed here: %.450s", known->op.text);
        done(user, FLYT_STATUS_CONFLICT, text);
    } else if (known->taking.done) {
        done(user, FLYT_STATUS_UNAVAILABLE, "the same order is being written");
    } else {
        done(user, FLYT_STATUS_OK, "");
    }
    return true;
}

void flyt_node_receive(struct flyt_node *node, const flyt_order_receive_args *args, flyt_node_received_fn done,
                       void *user)
{
    struct flyt_node_receive *receive;
    struct flyt_error err = {0};

    if (answer_known(flyt_node_receive_find(node, args->migration_id), done, user))
        return;
    flyt_status status = check(node, args, &err);
    if (status == FLYT_STATUS_OK && begin(node, args, &receive)) {
        flyt_error_set(&err, -EIO, "the node cannot keep it");
        status = FLYT_STATUS_UNAVAILABLE;
    }
    if (status != FLYT_STATUS_OK) {
        done(user, status, err.text);
        return;
    }
    receive->taking.done = done;
    receive->taking.user = user;
    flyt_node_commit(node, &receive->taking.commit, on_begun, receive);
}

/* ---- what others ask ---- */

bool flyt_node_receive_hides(const struct flyt_node_allocation *allocation)
{
    const struct flyt_node_receive *receive = flyt_node_receive_of(allocation);

    return receive && !receive->is_switched;
}

static struct flyt_node_arrival *find_token(const struct flyt_node_receive *receive, const void *token, size_t bytes)
{
    struct flyt_node_arrival *arrival = receive->arrivals;

    while (arrival && (bytes != sizeof arrival->session_load.its.token ||
                       !flyt_equal_in_constant_time(arrival->session_load.its.token, token, bytes)))
        arrival = arrival->next;
    return arrival;
}

int flyt_node_receive_ask(const struct flyt_node_allocation *allocation, const void *token, size_t bytes,
                          struct flyt_error *err)
{
    struct flyt_node_receive *receive = flyt_node_receive_of(allocation);

    if (!receive)
        return -ENOENT;
    if (receive->is_restarted && !flyt_node_receive_is_failing(receive)) {
        const struct flyt_node_server *server = flyt_node_server_find_token(receive->op.node, token, bytes);
        return server ? -ENOENT
                      : flyt_error_set(err, -EBUSY, "it is not known yet on which node the VM's programs go on");
    }
    if (flyt_node_receive_is_failing(receive) || !receive->is_switched)
        return flyt_error_set(err, -EBUSY, "the VM's programs are not, or not yet, on this node");
    struct flyt_node_arrival *arrival = find_token(receive, token, bytes);
    if (!arrival || arrival->is_told || arrival->session_load.goes_on)
        return -ENOENT;
    if (flyt_node_session_load_has_come(&arrival->session_load))
        return 0;
    return flyt_error_set(err, -EBUSY, "the server process that was to take the session is being ended");
}

bool flyt_node_receive_keeps(const struct flyt_node *node, uint64_t session_id)
{
    for (const struct flyt_node_operation *operation = flyt_node_operation_first(node, FLYT_NODE_OPERATION_RECEIVE);
         operation; operation = operation->next) {
        const struct flyt_node_arrival *arrival = flyt_node_arrival_find(of(operation), session_id);
        if (arrival && !arrival->session_load.goes_on && (arrival->has_failed || !arrival->is_told))
            return true;
    }
    return false;
}

/* ---- start and end ---- */

static void resume_record(struct flyt_node *node, struct flyt_node_receive_record *record)
{
    struct flyt_node_receive *receive = add(node, record->migration_id, record->allocation_id);

    if (!receive) {
        flyt_fail("migration %016" PRIx64 ": what has become of it is not told: no memory", record->migration_id);
        flyt_node_receive_record_remove(&node->state, record);
        return;
    }
    receive->record = record;
    receive->is_switched = receive->is_restarted = record->is_switched;
    receive->switched_count = record->session_count;
    receive->moved_count = record->moved_count;
    receive->op.phase = FLYT_MIGRATION_SWITCHING;
    receive->switch_ns = flyt_clock_ns(); /* it was before that: the programs have stood still for longer */
    if (receive->op.allocation && record->is_switched)
        return; /* until those have come back that can */
    flyt_node_operation_fail(&receive->op, FLYT_STATUS_UNAVAILABLE,
                             "the node manager was restarted before the programs had arrived");
    end(receive, FLYT_MIGRATION_FAILED);
    tell_end(receive);
}

void flyt_node_receives_init(struct flyt_node *node)
{
    struct flyt_node_receive_record *record = node->state.receiving, *next;

    for (; record; record = next) {
        next = record->next;
        resume_record(node, record);
    }
}

void flyt_node_receives_save(struct flyt_node *node)
{
    for (struct flyt_node_operation *operation = flyt_node_operation_first(node, FLYT_NODE_OPERATION_RECEIVE);
         operation; operation = operation->next)
        save_moved(of(operation));
}

void flyt_node_receives_fini(struct flyt_node *node)
{
    struct flyt_node_receive *receive;

    while ((receive = of(flyt_node_operation_first(node, FLYT_NODE_OPERATION_RECEIVE)))) {
        flyt_node_operation_remove(&receive->op);
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "the node manager ends");
        for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
            if (receive->is_switched && !flyt_node_receive_is_failing(receive))
                flyt_node_session_load_leave(&arrival->session_load);
        release(receive);
        free(receive);
    }
}
