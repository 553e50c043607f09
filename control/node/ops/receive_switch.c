#include "control/node/ops/receive_switch.h"

#include <inttypes.h>
#include <stdio.h>

#include "control/node/model/writer.h"
#include "control/node/ops/arrival.h"
#include "control/node/ops/ops.h"
#include "control/node/state/receive_record.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/log.h"

void flyt_node_receive_answer_switch(struct flyt_node_receive *receive, flyt_status status, const char *text)
{
    flyt_node_switched_fn done = receive->switching.done;
    flyt_order_migration_res res = {.outcome = {status, (char *)text}};

    if (!done)
        return;
    receive->switching.done = NULL;
    flyt_node_operation_use(&receive->op, &res.use);
    done(receive->switching.user, &res);
}

/* Their clients may come. As long as none has gone on all can go back: so of several each waits for the others. */
void flyt_node_receive_expect_all(struct flyt_node_receive *receive)
{
    bool are_held = receive->switched_count > 1 && !receive->moved_count && !receive->op.is_let_go;

    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        if (arrival->session_load.target.state != FLYT_NODE_TARGET_LOADED)
            continue;
        arrival->session_load.target.is_held = are_held;
        flyt_node_session_load_expect(&arrival->session_load);
    }
}

static bool is_whole(const struct flyt_node_arrival *arrival)
{
    return arrival->session_load.target.state == FLYT_NODE_TARGET_GIVEN && arrival->session_load.target.is_whole;
}

void flyt_node_receive_let_go(struct flyt_node_receive *receive)
{
    const unsigned expected_count = flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_NEW, FLYT_NODE_TARGET_GIVEN);
    unsigned whole_count = 0;

    for (const struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        whole_count += is_whole(arrival);
    if (!flyt_node_operation_lets_go(&receive->op, whole_count, expected_count, receive->moved_count))
        return;
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next)
        if (is_whole(arrival))
            flyt_node_target_let_go(&arrival->session_load.target);
}

/* The point of commit: from now on programs may go on here. */
static void commit(struct flyt_node_receive *receive)
{
    receive->is_switched = true;
    receive->switch_ns = flyt_clock_ns();
    for (struct flyt_node_arrival *arrival = receive->arrivals; arrival; arrival = arrival->next) {
        receive->switched_count += arrival->session_load.target.state == FLYT_NODE_TARGET_LOADED;
        if (arrival->session_load.target.state < FLYT_NODE_TARGET_LOADED)
            flyt_node_arrival_drop(arrival, "its VM's programs are here without it");
    }
    flyt_node_receive_expect_all(receive);
    flyt_node_operation_set_phase(&receive->op, FLYT_MIGRATION_SWITCHING);
    flyt_info("migration %016" PRIx64 ": the programs are to go on here, vm=%s programs=%u", receive->op.id,
              receive->op.vm_ip, receive->switched_count);
    if (flyt_fault_point("node.receive.switched") == FLYT_FAULT_ERROR)
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_UNAVAILABLE,
                                        "a test lets it fail at node.receive.switched");
    else
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_OK, "");
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
    flyt_node_operation_wake(&receive->op);
}

static void on_switch_written(void *user, int status)
{
    struct flyt_node_receive *receive = user;

    receive->switching.is_writing = false;
    flyt_node_operation_wake(&receive->op);
    if (status) {
        record_switch(receive, false);
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "the node's state file cannot be written");
        return;
    }
    if (!flyt_node_receive_is_failing(receive) &&
        flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_LOADED, FLYT_NODE_TARGET_LOADED) ==
            receive->switching.session_count) {
        commit(receive);
        return;
    }
    /* One has failed meanwhile: that it was not switched is written before that is said. */
    record_switch(receive, false);
    receive->switching.is_writing = true;
    flyt_node_commit(receive->op.node, &receive->switching.commit, on_switch_unwritten, receive);
}

static void write_switch(struct flyt_node_receive *receive)
{
    if (flyt_fault_point("node.receive.switch") == FLYT_FAULT_ERROR) {
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_UNAVAILABLE, "the node's state file cannot be written");
        return;
    }
    record_switch(receive, true);
    receive->switching.is_writing = true;
    flyt_node_commit_at_once(receive->op.node, &receive->switching.commit, on_switch_written, receive);
}

void flyt_node_receive_look_at_switch(struct flyt_node_receive *receive)
{
    unsigned wanted = receive->switching.session_count;
    unsigned here = flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_LOADED, FLYT_NODE_TARGET_LOADED);
    unsigned coming = flyt_node_arrivals_at(receive, FLYT_NODE_TARGET_NEW, FLYT_NODE_TARGET_LOADING);
    char text[700];

    if (!receive->switching.done || receive->switching.is_writing)
        return;
    if (flyt_node_receive_is_failing(receive)) {
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_CONFLICT, receive->op.text);
    } else if (here == wanted) {
        write_switch(receive);
    } else if (here > wanted || !coming || flyt_clock_ms() >= receive->switching.until_ms) {
        snprintf(text, sizeof text, "%u programs have arrived and %u are on their way, not %u%s%s", here, coming,
                 wanted, *receive->last_failure ? ": " : "", receive->last_failure);
        flyt_node_receive_answer_switch(receive, FLYT_STATUS_CONFLICT, text);
    }
}

void flyt_node_receive_switch(struct flyt_node_receive *receive, unsigned session_count, flyt_node_switched_fn done,
                              void *user)
{
    flyt_order_migration_res res = {.outcome = {FLYT_STATUS_CONFLICT, (char *)""}};

    if (!receive->switching.done && !receive->is_switched && !flyt_node_receive_is_failing(receive) &&
        !flyt_node_operation_has_ended(&receive->op)) {
        receive->switching.done = done;
        receive->switching.user = user;
        receive->switching.session_count = session_count;
        receive->switching.until_ms = flyt_clock_ms() + FLYT_NODE_RECEIVE_SWITCH_MS;
        flyt_node_receive_look_at_switch(receive);
        return;
    }
    if (flyt_node_receive_is_failing(receive) || receive->op.phase == FLYT_MIGRATION_FAILED)
        res.outcome.text = receive->op.text;
    else if (receive->switching.done)
        res.outcome.text = (char *)"the same order is being carried out";
    else if (session_count == receive->switched_count)
        res.outcome.status = FLYT_STATUS_OK;
    else
        res.outcome.text = (char *)"it was carried out with another number of programs";
    flyt_node_operation_use(&receive->op, &res.use);
    done(user, &res);
}
