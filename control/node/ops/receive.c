#include "control/node/ops/receive.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
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
#include "control/node/state/receive_record.h"
#include "control/node/state/remembered.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

enum { TICK_MS = 100 };

bool flyt_node_receive_has_ended(const struct flyt_node_receive *receive)
{
    return receive->phase == FLYT_MIGRATION_DONE || receive->phase == FLYT_MIGRATION_FAILED;
}

struct flyt_node_receive *flyt_node_receive_find(const struct flyt_node *node, uint64_t migration_id)
{
    struct flyt_node_receive *receive = node->ops->receives;

    while (receive && receive->id != migration_id)
        receive = receive->next;
    return receive;
}

struct flyt_node_receive *flyt_node_receive_of(const struct flyt_node_allocation *allocation)
{
    struct flyt_node_receive *receive = allocation->node->ops->receives;

    while (receive && (flyt_node_receive_has_ended(receive) || receive->allocation_id != allocation->now.id))
        receive = receive->next;
    return receive;
}

static struct flyt_node_allocation *allocation_of(const struct flyt_node_receive *receive)
{
    return flyt_node_allocation_find(receive->node, receive->allocation_id);
}

static void arm(struct flyt_node_receive *receive, uint64_t ms)
{
    if (!receive->timer)
        return;
    sd_event_source_set_time_relative(receive->timer, ms * 1000);
    sd_event_source_set_enabled(receive->timer, SD_EVENT_ONESHOT);
}

void flyt_node_receive_wake(struct flyt_node_receive *receive)
{
    arm(receive, 0);
}

static void set_phase(struct flyt_node_receive *receive, flyt_migration_phase phase)
{
    if (receive->phase == phase)
        return;
    receive->phase = phase;
    receive->has_changed = true;
    receive->arrived_ms = phase == FLYT_MIGRATION_ARRIVED ? flyt_clock_ms() : receive->arrived_ms;
    flyt_node_changed(receive->node);
}

static unsigned count_at(const struct flyt_node_receive *receive, enum flyt_node_session_load_stage first,
                         enum flyt_node_session_load_stage last)
{
    unsigned count = 0;

    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        count += arrival->session_load.stage >= first && arrival->session_load.stage <= last;
    return count;
}

/* ---- figures ---- */

void flyt_node_receive_use(const struct flyt_node_receive *receive, flyt_migration_use *ret_use)
{
    bool has_ended = flyt_node_receive_has_ended(receive);

    *ret_use = (flyt_migration_use){.id = receive->id,
                                    .allocation_id = receive->allocation_id,
                                    .phase = receive->phase,
                                    .session_count = receive->moved_count,
                                    .memory_bytes = receive->memory_bytes,
                                    .standstill_us = receive->standstill_us};
    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        ret_use->session_count += arrival->session_load.stage != FLYT_NODE_SESSION_LOAD_OVER;
        if (arrival->session_load.session)
            ret_use->memory_bytes += arrival->session_load.session->extents.bytes;
        else if (arrival->session_load.stage == FLYT_NODE_SESSION_LOAD_GIVEN)
            ret_use->memory_bytes += arrival->session_load.target->extents.bytes;
    }
    ret_use->outcome =
        (flyt_outcome){has_ended ? receive->status : FLYT_STATUS_OK, has_ended ? (char *)receive->text : (char *)""};
    ret_use->elapsed_ms = (has_ended ? receive->ended_ms : flyt_clock_ms()) - receive->started_ms;
}

/* ---- the end ---- */

static void forget_old(struct flyt_node *node)
{
    struct flyt_node_receive **link = &node->ops->receives, *receive;
    struct flyt_node_remembered so_far = {0};

    while ((receive = *link)) {
        if (!flyt_node_receive_has_ended(receive) || flyt_node_remember(&so_far, receive->is_told)) {
            link = &receive->next;
            continue;
        }
        *link = receive->next;
        free(receive);
    }
}

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
    flyt_node_commit_forget(receive->node, &receive->taking.commit);
    flyt_node_commit_forget(receive->node, &receive->switching.commit);
    answer_order(receive, FLYT_STATUS_CONFLICT, *receive->text ? receive->text : "the node manager ends");
    receive->timer = sd_event_source_disable_unref(receive->timer);
    while (receive->arrivals)
        flyt_node_arrival_free(receive->arrivals);
    explicit_bzero(receive->secret, sizeof receive->secret);
}

/* The state is the caller's to save. */
static void end(struct flyt_node_receive *receive, flyt_migration_phase phase)
{
    struct flyt_node_allocation *allocation = allocation_of(receive);
    struct flyt_node *node = receive->node;

    receive->ended_ms = flyt_clock_ms();
    release(receive);
    if (receive->record)
        flyt_node_receive_record_remove(&node->state, receive->record);
    receive->record = NULL;
    receive->unsaved_ms = 0;
    set_phase(receive, phase);
    node->receives_ended++;
    node->receives_done += phase == FLYT_MIGRATION_DONE;
    if (allocation && (phase == FLYT_MIGRATION_FAILED ||
                       (allocation->is_removed && !allocation->session_count && !allocation->stayed_count)))
        flyt_node_allocation_free(node, allocation, true);
}

static void tell_end(struct flyt_node_receive *receive)
{
    struct flyt_node *node = receive->node;
    bool is_done = receive->phase == FLYT_MIGRATION_DONE;

    if (is_done)
        flyt_info("migration %016" PRIx64 ": done, arrived vm=%s programs=%u lost=%u bytes=%" PRIu64
                  " standstill_us=%" PRIu64 " elapsed_ms=%" PRIu64,
                  receive->id, receive->vm_ip, receive->moved_count, receive->lost_count, receive->memory_bytes,
                  receive->standstill_us, receive->ended_ms - receive->started_ms);
    else
        flyt_warn("migration %016" PRIx64 ": failed, not arrived vm=%s: %s", receive->id, receive->vm_ip,
                  receive->text);
    if (is_done)
        flyt_node_tell(node, "receive.done", receive->vm_ip, "%u programs of VM %s go on here, from another node",
                       receive->moved_count, receive->vm_ip);
    else
        flyt_node_tell(node, "receive.failed", receive->vm_ip, "the programs of VM %s do not go on here: %s",
                       receive->vm_ip, receive->text);
}

static void finish(struct flyt_node_receive *receive, flyt_migration_phase phase)
{
    struct flyt_node *node = receive->node;

    end(receive, phase);
    /* Until it is written a restart finds that its programs are here, or are not. */
    if (phase == FLYT_MIGRATION_DONE && flyt_fault_point("node.receive.done") == FLYT_FAULT_ERROR)
        flyt_fail("the state is not written: a test lets it fail at node.receive.done");
    else
        flyt_node_save_soon(node);
    tell_end(receive);
    forget_old(node);
    flyt_node_raise(node, FLYT_NODE_EVENT_SERVERS); /* programs that waited for its end */
}

/* ---- failing ---- */

void flyt_node_receive_fail(struct flyt_node_receive *receive, flyt_status status, const char *format, ...)
{
    va_list arguments;

    if (receive->is_failing || flyt_node_receive_has_ended(receive))
        return;
    receive->is_failing = true;
    receive->status = status;
    va_start(arguments, format);
    vsnprintf(receive->text, sizeof receive->text, format, arguments);
    va_end(arguments);
    flyt_node_receive_wake(receive);
}

void flyt_node_receive_drop(const struct flyt_node_allocation *allocation, const char *reason)
{
    struct flyt_node_receive *receive = flyt_node_receive_of(allocation);

    if (!receive)
        return;
    /* They are nowhere else then: their ends are told as any session's. */
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        arrival->is_told |= receive->is_switched;
    flyt_node_receive_fail(receive, FLYT_STATUS_CONFLICT, "%s", reason);
}

int flyt_node_receive_cancel(struct flyt_node_receive *receive, const char *reason)
{
    if (receive->is_failing)
        return 0;
    if (flyt_node_receive_has_ended(receive) || receive->is_restarted || receive->moved_count ||
        count_at(receive, FLYT_NODE_SESSION_LOAD_GIVEN, FLYT_NODE_SESSION_LOAD_GIVEN))
        return -EALREADY;
    flyt_node_receive_fail(receive, FLYT_STATUS_CONFLICT, "%s%s%s", reason, *receive->last_failure ? ": " : "",
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
    flyt_node_tell(receive->node, "migration.session_lost", receive->vm_ip,
                   "program %s of VM %s: it was to go on at another node, as its VM's other programs do by now: %s",
                   its->program, receive->vm_ip, arrival->sentence);
    flyt_node_tell(receive->node, "session.ended", id, "program %s of VM %s: %s", its->program, receive->vm_ip,
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
        if (arrival->session_load.stage == FLYT_NODE_SESSION_LOAD_GIVEN && arrival->session_load.target)
            flyt_node_server_read_all(arrival->session_load.target);
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        if (!arrival->has_failed || arrival->is_told)
            continue;
        if (receive->moved_count || receive->is_let_go)
            lose(receive, arrival);
        else
            flyt_node_receive_fail(receive, arrival->status, "program %.100s: %.390s",
                                   arrival->session_load.its.program, arrival->sentence);
    }
}

static void check_time(struct flyt_node_receive *receive)
{
    uint64_t now_ms = flyt_clock_ms();

    if (receive->is_switched)
        return;
    if (now_ms - receive->started_ms > receive->timeout_s * 1000ull)
        flyt_node_receive_fail(receive, FLYT_STATUS_TIMEOUT, "its programs had not arrived after %u s%s%s",
                               receive->timeout_s, *receive->last_failure ? ": " : "", receive->last_failure);
    else if (receive->phase == FLYT_MIGRATION_ARRIVED && now_ms - receive->arrived_ms > FLYT_NODE_RECEIVE_ARRIVED_MS)
        flyt_node_receive_fail(receive, FLYT_STATUS_TIMEOUT,
                               "its programs had arrived, and for %u s nobody has said that they go on here",
                               FLYT_NODE_RECEIVE_ARRIVED_MS / 1000);
}

/* ---- SWITCH ---- */

static void answer_switch(struct flyt_node_receive *receive, flyt_status status, const char *text)
{
    flyt_node_switched_fn done = receive->switching.done;
    flyt_order_migration_res res = {.outcome = {status, (char *)text}};

    if (!done)
        return;
    receive->switching.done = NULL;
    flyt_node_receive_use(receive, &res.use);
    done(receive->switching.user, &res);
}

/* Their clients may come. As long as none has gone on all can go back: so of several each waits for the others. */
static void expect_all(struct flyt_node_receive *receive)
{
    bool are_held = receive->switched_count > 1 && !receive->moved_count && !receive->is_let_go;

    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        if (arrival->session_load.stage != FLYT_NODE_SESSION_LOAD_LOADED)
            continue;
        arrival->session_load.is_held = are_held;
        flyt_node_session_load_expect(&arrival->session_load);
    }
}

/* Those that could go on do when all could; not to wait for ever, for the client of one may never come. */
static void let_go(struct flyt_node_receive *receive)
{
    const unsigned expected = count_at(receive, FLYT_NODE_SESSION_LOAD_NEW, FLYT_NODE_SESSION_LOAD_GIVEN);
    unsigned whole = 0;

    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        whole += arrival->session_load.stage == FLYT_NODE_SESSION_LOAD_GIVEN && arrival->session_load.is_whole;
    if (!whole)
        return;
    if (!receive->whole_ms)
        receive->whole_ms = flyt_clock_ms();
    if (whole < expected && !receive->moved_count && !receive->is_let_go &&
        flyt_clock_ms() - receive->whole_ms < receive->node->ops->whole_ms)
        return;
    receive->is_let_go = true;
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        if (arrival->session_load.stage == FLYT_NODE_SESSION_LOAD_GIVEN && arrival->session_load.is_whole)
            flyt_node_session_load_let_go(&arrival->session_load);
}

/* The point of commit: from now on programs may go on here. */
static void commit(struct flyt_node_receive *receive)
{
    receive->is_switched = true;
    receive->switch_ns = flyt_clock_ns();
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        receive->switched_count += arrival->session_load.stage == FLYT_NODE_SESSION_LOAD_LOADED;
        if (arrival->session_load.stage < FLYT_NODE_SESSION_LOAD_LOADED)
            flyt_node_arrival_drop(arrival, "its VM's programs are here without it");
    }
    expect_all(receive);
    set_phase(receive, FLYT_MIGRATION_SWITCHING);
    flyt_info("migration %016" PRIx64 ": the programs are to go on here, vm=%s programs=%u", receive->id,
              receive->vm_ip, receive->switched_count);
    if (flyt_fault_point("node.receive.switched") == FLYT_FAULT_ERROR)
        answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "a test lets it fail at node.receive.switched");
    else
        answer_switch(receive, FLYT_STATUS_OK, "");
}

static void record_switch(struct flyt_node_receive *receive, bool is_switched)
{
    receive->record->is_switched = is_switched;
    receive->record->session_count = is_switched ? receive->switching.session_count : 0;
}

static void on_switch_unwritten(void *user, int status)
{
    struct flyt_node_receive *receive = user;

    receive->switching.is_writing = false; /* where it cannot be written that is tried again (writer.h) */
    flyt_node_receive_wake(receive);
}

static void on_switch_written(void *user, int status)
{
    struct flyt_node_receive *receive = user;

    receive->switching.is_writing = false;
    flyt_node_receive_wake(receive);
    if (status) {
        record_switch(receive, false);
        answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "the node's state file cannot be written");
        return;
    }
    if (!receive->is_failing && count_at(receive, FLYT_NODE_SESSION_LOAD_LOADED, FLYT_NODE_SESSION_LOAD_LOADED) ==
                                    receive->switching.session_count) {
        commit(receive);
        return;
    }
    /* One has failed meanwhile: that it was not switched is written before that is said. */
    record_switch(receive, false);
    receive->switching.is_writing = true;
    flyt_node_commit(receive->node, &receive->switching.commit, on_switch_unwritten, receive);
}

static void write_switch(struct flyt_node_receive *receive)
{
    if (flyt_fault_point("node.receive.switch") == FLYT_FAULT_ERROR) {
        answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "the node's state file cannot be written");
        return;
    }
    record_switch(receive, true);
    receive->switching.is_writing = true;
    flyt_node_commit_at_once(receive->node, &receive->switching.commit, on_switch_written, receive);
}

static void look_at_switch(struct flyt_node_receive *receive)
{
    unsigned wanted = receive->switching.session_count;
    unsigned here = count_at(receive, FLYT_NODE_SESSION_LOAD_LOADED, FLYT_NODE_SESSION_LOAD_LOADED);
    unsigned coming = count_at(receive, FLYT_NODE_SESSION_LOAD_NEW, FLYT_NODE_SESSION_LOAD_LOADING);
    char text[700];

    if (!receive->switching.done || receive->switching.is_writing)
        return;
    if (receive->is_failing) {
        answer_switch(receive, FLYT_STATUS_CONFLICT, receive->text);
    } else if (here == wanted) {
        write_switch(receive);
    } else if (here > wanted || !coming || flyt_clock_ms() >= receive->switching.until_ms) {
        snprintf(text, sizeof text, "%u programs have arrived and %u are on their way, not %u%s%s", here, coming,
                 wanted, *receive->last_failure ? ": " : "", receive->last_failure);
        answer_switch(receive, FLYT_STATUS_CONFLICT, text);
    }
}

void flyt_node_receive_switch(struct flyt_node_receive *receive, unsigned session_count, flyt_node_switched_fn done,
                              void *user)
{
    flyt_order_migration_res res = {.outcome = {FLYT_STATUS_CONFLICT, (char *)""}};

    if (!receive->switching.done && !receive->is_switched && !receive->is_failing &&
        !flyt_node_receive_has_ended(receive)) {
        receive->switching.done = done;
        receive->switching.user = user;
        receive->switching.session_count = session_count;
        receive->switching.until_ms = flyt_clock_ms() + FLYT_NODE_RECEIVE_SWITCH_MS;
        look_at_switch(receive);
        return;
    }
    if (receive->is_failing || receive->phase == FLYT_MIGRATION_FAILED)
        res.outcome.text = receive->text;
    else if (receive->switching.done)
        res.outcome.text = (char *)"the same order is being carried out";
    else if (session_count == receive->switched_count)
        res.outcome.status = FLYT_STATUS_OK;
    else
        res.outcome.text = (char *)"it was carried out with another number of programs";
    flyt_node_receive_use(receive, &res.use);
    done(user, &res);
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
    const struct flyt_node_server *session = receive->node->away;

    while (session &&
           (session->state != FLYT_NODE_SERVER_ENDING || session->ticket.allocation_id != receive->allocation_id))
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
    flyt_node_commit_ahead(receive->node, NULL, NULL, NULL);
    record->is_switched = false;
    record->session_count = 0;
}

static void look_at_phase(struct flyt_node_receive *receive)
{
    unsigned session_load = count_at(receive, FLYT_NODE_SESSION_LOAD_LOADING, FLYT_NODE_SESSION_LOAD_LOADING);
    unsigned coming = count_at(receive, FLYT_NODE_SESSION_LOAD_NEW, FLYT_NODE_SESSION_LOAD_LOADING);
    unsigned here = count_at(receive, FLYT_NODE_SESSION_LOAD_LOADED, FLYT_NODE_SESSION_LOAD_LOADED);

    if (receive->is_switched)
        return;
    if (session_load && coming == session_load && session_load + here != receive->ahead_count)
        write_ahead(receive, session_load + here);
    set_phase(receive, coming ? FLYT_MIGRATION_COPYING : here ? FLYT_MIGRATION_ARRIVED : FLYT_MIGRATION_PREPARING);
}

/* Of those that came back after a restart: when all are here again, as at SWITCH. */
static void expect_returned(struct flyt_node_receive *receive)
{
    if (!receive->is_switched || receive->is_restarted || receive->is_failing ||
        count_at(receive, FLYT_NODE_SESSION_LOAD_NEW, FLYT_NODE_SESSION_LOAD_LOADING))
        return;
    expect_all(receive);
}

static void tear_down(struct flyt_node_receive *receive)
{
    look_at_switch(receive);
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        flyt_node_arrival_drop(arrival, receive->text);
}

void flyt_node_receive_moved(struct flyt_node_receive *receive, uint64_t session_id)
{
    receive->moved_count++;
    if (!receive->record)
        return;
    if (flyt_node_receive_record_note(receive->record, session_id))
        flyt_warn("migration %016" PRIx64 ": that session %016" PRIx64 " goes on is not kept: no memory", receive->id,
                  session_id);
    else if (!receive->unsaved_ms)
        receive->unsaved_ms = flyt_clock_ms();
}

/* Who goes on here. */
static void save_moved(struct flyt_node_receive *receive)
{
    if (receive->unsaved_ms)
        flyt_node_save_soon(receive->node);
    receive->unsaved_ms = 0;
}

/* How many have come back, and are no sessions yet; of these, how many have failed since. */
static unsigned count_returned(const struct flyt_node_receive *receive, unsigned *ret_failed_count)
{
    unsigned count = 0;

    *ret_failed_count = 0;
    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        count++;
        *ret_failed_count += arrival->has_failed;
    }
    return count;
}

static bool is_session(const struct flyt_node_allocation *allocation, uint64_t session_id)
{
    const struct flyt_node_server *lists[] = {allocation->node->servers, allocation->node->away};

    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const struct flyt_node_server *session = lists[i]; session; session = session->next)
            if (session->allocation == allocation && session->session_id == session_id)
                return true;
    return false;
}

/* After a restart: sessions that have their clients here, and those that had gone on, and have ended or may still come
 * back. */
static unsigned count_moved(const struct flyt_node_receive *receive)
{
    const struct flyt_node_allocation *allocation = allocation_of(receive);
    const struct flyt_node_receive_record *record = receive->record;
    unsigned count = allocation ? allocation->session_count : 0;

    for (unsigned i = 0; i < record->moved_count; i++)
        count += !allocation || !is_session(allocation, record->moved[i]);
    return count;
}

/* Nobody else can come back who waits, and its ledgers are there: there is nothing to wait for. */
static bool are_all_back(const struct flyt_node_receive *receive)
{
    const struct flyt_node_allocation *allocation = allocation_of(receive);
    unsigned failed_count, returned_count = count_returned(receive, &failed_count);

    for (unsigned i = 0; allocation && i < allocation->now.slots.slots_len; i++)
        if (!allocation->slots[i].ledger)
            return false;
    return allocation && !failed_count && count_moved(receive) + returned_count == receive->switched_count;
}

static void settle(struct flyt_node_receive *receive)
{
    struct flyt_node *node = receive->node;
    unsigned failed_count, returned_count = count_returned(receive, &failed_count);

    receive->is_restarted = false;
    receive->moved_count = count_moved(receive);
    if (!receive->moved_count && returned_count - failed_count < receive->switched_count) {
        flyt_node_receive_fail(receive, FLYT_STATUS_UNAVAILABLE,
                               "the node manager was restarted before a program had come to its new server process, "
                               "and %u of %u such processes are there no more",
                               receive->switched_count - (returned_count - failed_count), receive->switched_count);
    } else if (receive->moved_count + returned_count < receive->switched_count) {
        receive->lost_count = receive->switched_count - receive->moved_count - returned_count;
        flyt_node_tell(node, "migration.session_lost", receive->vm_ip,
                       "%u programs of VM %s have ended, or lost their new server processes, when the node manager "
                       "was restarted, and its others go on here",
                       receive->lost_count, receive->vm_ip);
    }
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival && !receive->is_failing;
         arrival = arrival->next)
        if (arrival->session_load.stage == FLYT_NODE_SESSION_LOAD_NEW)
            flyt_node_session_load_welcome(&arrival->session_load);
    flyt_node_receive_wake(receive);
}

static void step(struct flyt_node_receive *receive)
{
    if (receive->is_restarted && !receive->is_failing && are_all_back(receive))
        settle(receive);
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival && !receive->is_restarted;
         arrival = arrival->next)
        if (!receive->is_failing)
            flyt_node_arrival_advance(arrival);
    expect_returned(receive);
    /* Where all fails after SWITCH, sessions without a process are still to end, in silence. */
    if (!receive->is_switched || !receive->is_failing)
        forget_over(receive);
    check_time(receive);
    look_at_switch(receive);
    if (flyt_clock_ms() - receive->unsaved_ms >= FLYT_NODE_RECEIVE_SAVE_MS)
        save_moved(receive);
    if (receive->is_switched && !receive->is_restarted && !receive->is_failing)
        see_to_failures(receive);
    if (receive->is_failing)
        tear_down(receive);
    else
        look_at_phase(receive);
    if (receive->is_switched && !receive->is_restarted && !receive->is_failing)
        let_go(receive);
}

static int on_timer(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_receive *receive = user;
    const struct flyt_node_allocation *allocation = allocation_of(receive);

    arm(receive, TICK_MS);
    if (receive->switching.is_writing)
        return 0;
    step(receive);
    bool is_clear = are_all_done(receive) && !is_any_ending(receive);
    if (receive->is_failing && is_clear && (!allocation || !flyt_node_allocation_sessions(allocation)))
        finish(receive, FLYT_MIGRATION_FAILED);
    else if (!receive->is_failing && receive->is_switched && !receive->is_restarted && is_clear)
        finish(receive, FLYT_MIGRATION_DONE);
    else if (count_at(receive, FLYT_NODE_SESSION_LOAD_WANTING, FLYT_NODE_SESSION_LOAD_WANTING))
        flyt_node_raise(receive->node, FLYT_NODE_EVENT_SERVERS);
    return 0;
}

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
    sd_event_source *timer = NULL;

    if (!receive ||
        sd_event_add_time_relative(node->event, &timer, CLOCK_MONOTONIC, TICK_MS * 1000, 1000, on_timer, receive) < 0) {
        free(receive);
        return NULL;
    }
    *receive = (struct flyt_node_receive){.next = node->ops->receives,
                                          .node = node,
                                          .id = id,
                                          .allocation_id = allocation_id,
                                          .timeout_s = FLYT_NODE_RECEIVE_TIMEOUT_S,
                                          .phase = FLYT_MIGRATION_PREPARING,
                                          .timer = timer,
                                          .has_changed = true,
                                          .started_ms = flyt_clock_ms()};
    node->ops->receives = receive;
    return receive;
}

/* It was never taken. */
static void forget(struct flyt_node_receive *receive)
{
    struct flyt_node *node = receive->node;
    struct flyt_node_receive **link = &node->ops->receives;
    struct flyt_node_allocation *allocation = receive->record ? allocation_of(receive) : NULL;

    while (*link != receive)
        link = &(*link)->next;
    *link = receive->next;
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
              receive->id, receive->vm_ip, receive->allocation_id);
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
        receive->record = flyt_node_receive_record_add(&node->state, receive->id, receive->allocation_id);
        status = receive->record ? flyt_node_grant_create(node, &wanted, &allocation) : -ENOMEM;
    }
    xdr_free((xdrproc_t)xdr_flyt_allocation, &wanted);
    if (status) {
        if (receive)
            forget(receive);
        return status;
    }
    memcpy(receive->secret, args->secret, sizeof receive->secret);
    receive->timeout_s = args->timeout_s ? args->timeout_s : FLYT_NODE_RECEIVE_TIMEOUT_S;
    receive->is_encrypted = args->is_encrypted;
    snprintf(receive->vm_ip, sizeof receive->vm_ip, "%s", allocation->now.vm_ip);
    *ret_receive = receive;
    return 0;
}

/* Whether it was ordered before; then it is answered. */
static bool answer_known(const struct flyt_node_receive *known, flyt_node_received_fn done, void *user)
{
    char text[512];

    if (!known)
        return false;
    if (known->is_failing || known->phase == FLYT_MIGRATION_FAILED) {
        snprintf(text, sizeof text, "the migration has failed here: %.450s", known->text);
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

bool flyt_node_receive_holds(const struct flyt_node_allocation *allocation)
{
    return flyt_node_receive_of(allocation) != NULL;
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
    if (receive->is_restarted && !receive->is_failing) {
        const struct flyt_node_server *server = flyt_node_server_find_token(receive->node, token, bytes);
        return server ? -ENOENT
                      : flyt_error_set(err, -EBUSY, "it is not known yet on which node the VM's programs go on");
    }
    if (receive->is_failing || !receive->is_switched)
        return flyt_error_set(err, -EBUSY, "the VM's programs are not, or not yet, on this node");
    struct flyt_node_arrival *arrival = find_token(receive, token, bytes);
    if (!arrival || arrival->is_told || arrival->session_load.goes_on)
        return -ENOENT;
    if (flyt_node_session_load_has_come(&arrival->session_load))
        return 0;
    return flyt_error_set(err, -EBUSY, "the server process that was to take the session is being ended");
}

/* Its last attempt, which is the first one in the list: earlier ones, whose servers may not have ended, say nothing. */
static const struct flyt_node_arrival *find_session(const struct flyt_node_receive *receive, uint64_t session_id)
{
    const struct flyt_node_arrival *arrival = receive->arrivals;

    while (arrival && arrival->session_load.its.session_id != session_id)
        arrival = arrival->next;
    return arrival;
}

bool flyt_node_receive_keeps(const struct flyt_node *node, uint64_t session_id)
{
    for (const struct flyt_node_receive *receive = node->ops->receives; receive; receive = receive->next) {
        const struct flyt_node_arrival *arrival = find_session(receive, session_id);
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
    const struct flyt_node_allocation *allocation = allocation_of(receive);
    if (allocation)
        snprintf(receive->vm_ip, sizeof receive->vm_ip, "%s", allocation->now.vm_ip);
    receive->record = record;
    receive->is_switched = receive->is_restarted = record->is_switched;
    receive->switched_count = record->session_count;
    receive->moved_count = record->moved_count;
    receive->phase = FLYT_MIGRATION_SWITCHING;
    receive->switch_ns = flyt_clock_ns(); /* it was before that: the programs have stood still for longer */
    if (allocation && record->is_switched)
        return; /* until those have come back that can */
    receive->status = FLYT_STATUS_UNAVAILABLE;
    snprintf(receive->text, sizeof receive->text, "the node manager was restarted before the programs had arrived");
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

const char *flyt_node_receive_return_check(const struct flyt_node_allocation *allocation,
                                           const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_node_receive *receive = allocation ? flyt_node_receive_of(allocation) : NULL;

    if (!receive || !receive->is_restarted || receive->is_failing || allocation->is_removed)
        return "the session does not go on here: its migration has ended";
    if (rejoin->session.slot_count != allocation->now.slots.slots_len)
        return "the session has other devices than its VM";
    return find_session(receive, rejoin->session.session_id) ? "the session is there already" : NULL;
}

const char *flyt_node_receive_return(struct flyt_node_allocation *allocation, struct flyt_node_server *server,
                                     const struct flyt_manager_link_rejoin *rejoin)
{
    struct flyt_node_receive *receive = flyt_node_receive_of(allocation);

    if (flyt_node_arrival_return(receive, allocation, server, rejoin))
        return "the node manager has no memory";
    flyt_info("session %016" PRIx64 ": is there again and waits for its client, vm=%s program=%s server_pid=%d "
              "extents=%" PRIu64 " held=%u",
              rejoin->session.session_id, receive->vm_ip, receive->arrivals->session_load.its.program, (int)server->pid,
              rejoin->extent_count, receive->arrivals->session_load.session->extents.count);
    return NULL;
}

void flyt_node_receives_settle(struct flyt_node *node)
{
    for (struct flyt_node_receive *receive = node->ops->receives; receive; receive = receive->next)
        if (receive->is_restarted && !receive->is_failing && !flyt_node_receive_has_ended(receive))
            settle(receive);
}

void flyt_node_receives_save(struct flyt_node *node)
{
    for (struct flyt_node_receive *receive = node->ops->receives; receive; receive = receive->next)
        save_moved(receive);
}

void flyt_node_receives_fini(struct flyt_node *node)
{
    struct flyt_node_receive *receive;

    while ((receive = node->ops->receives)) {
        node->ops->receives = receive->next;
        answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "the node manager ends");
        for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
            if (receive->is_switched && !receive->is_failing)
                flyt_node_session_load_leave(&arrival->session_load);
        release(receive);
        free(receive);
    }
}
