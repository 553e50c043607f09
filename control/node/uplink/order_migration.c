#include "control/node/uplink/order_migration.h"

#include <errno.h>

#include "control/node/ops/migration.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/send.h"

/* An answer that says nothing yet. */
static flyt_order_migration_res answer_for(uint64_t migration_id)
{
    return (flyt_order_migration_res){.use = {.id = migration_id,
                                              .phase = FLYT_MIGRATION_PREPARING, /* it is not known */
                                              .outcome = {FLYT_STATUS_NOT_FOUND, (char *)""}}};
}

void flyt_node_serve_migrate(struct flyt_node *node, struct flyt_call *call, const flyt_order_migrate_args *order)
{
    struct flyt_error err = {0};
    flyt_outcome outcome;

    if (flyt_node_is_led(node, order->epoch, &outcome)) {
        outcome.status = flyt_node_migrate(node, order, &err);
        outcome.text = err.text;
    }
    flyt_call_reply(call, &outcome);
}

/* Whether it is too late to cancel one that has not ended. */
static bool is_too_late(struct flyt_node_migration *migration)
{
    return flyt_node_migration_cancel(migration, "an operator has ended the migration") &&
           !flyt_node_operation_has_ended(&migration->op) && !migration->is_failing;
}

static bool is_received_too_late(struct flyt_node_receive *receive)
{
    return flyt_node_receive_cancel(receive, "the migration was ended") && !flyt_node_operation_has_ended(&receive->op);
}

void flyt_node_serve_migration(struct flyt_node *node, struct flyt_call *call, const flyt_order_migration_args *order,
                               bool is_settled)
{
    struct flyt_node_migration *migration = flyt_node_migration_find(node, order->migration_id);
    struct flyt_node_receive *receive = flyt_node_receive_find(node, order->migration_id);
    flyt_order_migration_res res = answer_for(order->migration_id);
    bool is_known = migration || receive;

    if (flyt_node_is_led(node, order->epoch, &res.outcome) && !is_known && is_settled)
        res.outcome = (flyt_outcome){FLYT_STATUS_NOT_FOUND, (char *)"the node knows of no such migration (any more)"};
    else if (res.outcome.status == FLYT_STATUS_OK && !is_known)
        res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE,
                                     (char *)"programs may still come back after the node manager's restart"};
    if (res.outcome.status == FLYT_STATUS_OK && order->cancel &&
        (migration ? is_too_late(migration) : is_received_too_late(receive)))
        res.outcome = (flyt_outcome){FLYT_STATUS_CONFLICT, (char *)"it is too late: the programs are on their way"};
    if (migration)
        flyt_node_operation_use(&migration->op, &res.use);
    else if (receive)
        flyt_node_operation_use(&receive->op, &res.use);
    flyt_call_reply(call, &res);
}

static void answer_receive(void *user, flyt_status status, const char *text)
{
    const flyt_outcome outcome = {status, (char *)text};

    flyt_call_reply(user, &outcome);
}

void flyt_node_serve_receive(struct flyt_node *node, struct flyt_call *call, const flyt_order_receive_args *order)
{
    flyt_outcome outcome;

    if (flyt_node_is_led(node, order->epoch, &outcome))
        flyt_node_receive(node, order, answer_receive, call);
    else
        flyt_call_reply(call, &outcome);
}

static void answer_switch(void *user, const flyt_order_migration_res *res)
{
    flyt_call_reply(user, res);
}

static void answer_send_switch(void *user, const struct flyt_node_migration *migration, flyt_status status,
                               const char *text)
{
    flyt_order_migration_res res = {.outcome = {status, (char *)text}};

    flyt_node_operation_use(&migration->op, &res.use);
    flyt_call_reply(user, &res);
}

void flyt_node_serve_switch(struct flyt_node *node, struct flyt_call *call, const flyt_order_switch_args *order)
{
    struct flyt_node_receive *receive = flyt_node_receive_find(node, order->migration_id);
    flyt_order_migration_res res = answer_for(order->migration_id);

    bool is_led = flyt_node_is_led(node, order->epoch, &res.outcome);
    if (is_led && receive) {
        flyt_node_receive_switch(receive, order->session_count, answer_switch, call);
        return;
    }
    struct flyt_node_migration *migration = flyt_node_migration_find(node, order->migration_id);
    if (is_led && migration && migration->way->is_far) {
        flyt_node_send_switch(migration, answer_send_switch, call);
        return;
    }
    if (is_led)
        res.outcome = (flyt_outcome){FLYT_STATUS_NOT_FOUND, (char *)"the node knows of no such migration (any more)"};
    if (migration)
        flyt_node_operation_use(&migration->op, &res.use);
    flyt_call_reply(call, &res);
}

void flyt_node_serve_send(struct flyt_node *node, struct flyt_call *call, const flyt_order_send_args *order)
{
    struct flyt_error err = {0};
    flyt_outcome outcome;

    if (flyt_node_is_led(node, order->epoch, &outcome)) {
        outcome.status = flyt_node_send(node, order, &err);
        outcome.text = err.text;
    }
    flyt_call_reply(call, &outcome);
}

void flyt_node_serve_send_back(struct flyt_node *node, struct flyt_call *call, const flyt_order_send_back_args *order)
{
    struct flyt_node_migration *migration = flyt_node_migration_find(node, order->migration_id);
    struct flyt_error err = {0};
    flyt_outcome outcome;

    bool is_led = flyt_node_is_led(node, order->epoch, &outcome);
    if (is_led && migration && migration->way->is_far)
        outcome = (flyt_outcome){flyt_node_send_back(migration, order->reason, &err), err.text};
    else if (is_led)
        outcome = (flyt_outcome){FLYT_STATUS_NOT_FOUND, (char *)"the node knows of no such migration (any more)"};
    flyt_call_reply(call, &outcome);
}
