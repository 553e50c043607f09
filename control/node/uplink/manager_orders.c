#include "control/node/uplink/manager_state.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "control/node/link/groups.h"
#include "control/node/link/server.h"
#include "control/node/link/starts.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/restore.h"
#include "control/node/process/vm_device.h"
#include "control/node/state/killed.h"
#include "control/node/uplink/manager.h"
#include "control/node/uplink/order.h"
#include "control/node/uplink/order_migration.h"
#include "control/node/uplink/report.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

static void serve_migrate(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);

    flyt_node_serve_migrate(manager->node, call, args);
}

static void serve_migration(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);

    /* What has come of one before a restart the devices tell that registration names, when all have come back. */
    bool is_settled = !manager->node->is_reattaching && manager->state == REGISTERED &&
                      manager->told_inventory == flyt_node_manager_inventory(manager->node);
    flyt_node_serve_migration(manager->node, call, args, is_settled);
}

static void serve_receive(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);

    flyt_node_serve_receive(manager->node, call, args);
}

static void serve_send(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);

    flyt_node_serve_send(manager->node, call, args);
}

static void serve_switch(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);

    flyt_node_serve_switch(manager->node, call, args);
}

static void serve_send_back(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);

    flyt_node_serve_send_back(manager->node, call, args);
}

/* ---- images ---- */

static void serve_checkpoint(struct flyt_call *call, void *args)
{
    struct flyt_node_manager *manager = flyt_uplink_user(call);
    const flyt_order_checkpoint_args *order = args;
    flyt_saving_res res = {.use = {.id = order->id, .phase = FLYT_SAVING_FAILED, .outcome = {.text = (char *)""}}};
    struct flyt_error err = {0};

    if (flyt_node_is_led(manager->node, order->epoch, &res.outcome)) {
        if (!order->ask)
            res.outcome = (flyt_outcome){flyt_node_checkpoint(manager->node, order, &err), err.text};
        struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_find(manager->node, order->id);
        if (checkpoint)
            flyt_node_checkpoint_tell(checkpoint, &res.use);
        else if (order->ask)
            res.outcome = (flyt_outcome){FLYT_STATUS_NOT_FOUND, (char *)"the node knows of no such checkpoint"};
    }
    flyt_call_reply(call, &res);
}

/* An order that waits for its answer, maybe longer than the connection lasts. */
struct restoring {
    struct flyt_node *node;
    struct flyt_call *call;
    uint64_t id;
};

/* Frees it. */
static void answer_restore(void *user, flyt_status status, const char *text)
{
    struct restoring *restoring = user;
    flyt_saving_res res = {.outcome = {status, (char *)text},
                           .use = {.id = restoring->id, .phase = FLYT_SAVING_FAILED, .outcome = {.text = (char *)""}}};
    struct flyt_node_restore *restore = flyt_node_restore_find(restoring->node, restoring->id);

    if (restore)
        flyt_node_restore_tell(restore, &res.use);
    flyt_call_reply(restoring->call, &res);
    free(restoring);
}

static void serve_restore(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);
    const flyt_order_restore_args *order = args;
    flyt_saving_res res = {.use = {.id = order->id, .phase = FLYT_SAVING_FAILED, .outcome = {.text = (char *)""}}};
    struct restoring *restoring;

    if (!flyt_node_is_led(manager->node, order->epoch, &res.outcome)) {
        flyt_call_reply(call, &res);
    } else if (!(restoring = malloc(sizeof *restoring))) {
        flyt_call_fail(call);
    } else {
        *restoring = (struct restoring){manager->node, call, order->id};
        if (!order->ask)
            flyt_node_restore(manager->node, order, answer_restore, restoring);
        else if (flyt_node_restore_find(manager->node, order->id))
            answer_restore(restoring, FLYT_STATUS_OK, "");
        else
            answer_restore(restoring, FLYT_STATUS_NOT_FOUND, "the node knows of no such restore");
    }
}

/* ---- orders ---- */

static void answer_apply(void *user, flyt_apply_res *res)
{
    flyt_call_reply(user, res);
}

static void serve_apply(struct flyt_call *call, void *args)
{
    struct flyt_node_manager *manager = flyt_uplink_user(call);

    flyt_node_apply(manager->node, args, answer_apply, call);
}

static void answer_session_kill(void *user, int status)
{
    const flyt_outcome outcome = {status ? FLYT_STATUS_UNAVAILABLE : FLYT_STATUS_OK,
                                  status ? (char *)"the node's state file cannot be written" : (char *)""};

    flyt_call_reply(user, &outcome);
}

static void serve_session_kill(struct flyt_call *call, void *args)
{
    struct flyt_node_manager *manager = flyt_uplink_user(call);
    const flyt_order_session_args *order = args;
    flyt_outcome outcome;

    if (flyt_node_is_led(manager->node, order->epoch, &outcome)) {
        struct flyt_node_server *server = flyt_node_server_find(manager->node, order->session_id);
        struct flyt_node_session *away = flyt_node_replace_find(manager->node, order->session_id);
        struct flyt_node_checkpointed *checkpointed = flyt_node_checkpointed_find(manager->node, order->session_id);
        if (checkpointed)
            flyt_node_checkpointed_drop(manager->node, checkpointed, FLYT_NODE_KILLED_TEXT);
        if (server) {
            if (flyt_node_server_end_for_good(server, FLYT_NODE_KILLED_TEXT, answer_session_kill, call))
                flyt_call_fail(call);
            return;
        }
        if (away)
            flyt_node_replace_end(away, FLYT_NODE_KILLED_TEXT);
        else if (!checkpointed)
            outcome = (flyt_outcome){FLYT_STATUS_NOT_FOUND, (char *)"the node has no such session (any more)"};
    }
    flyt_call_reply(call, &outcome);
}

static void serve_vm_device(struct flyt_call *call, void *args)
{
    flyt_node_vm_device_serve(((struct flyt_node_manager *)flyt_uplink_user(call))->node, call, args);
}

/* An order to tell who drains, or to end them: answered when all are. */
struct drain {
    struct flyt_call *call;
    flyt_order_drain_res res;
    unsigned left;
};

static void drain_step(void *user, int status)
{
    struct drain *drain = user;

    if (status)
        drain->res.outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"the node's state file cannot be written"};
    if (--drain->left)
        return;
    flyt_call_reply(drain->call, &drain->res);
    for (u_int i = 0; i < drain->res.sessions.sessions_len; i++)
        free(drain->res.sessions.sessions_val[i].program_name);
    free(drain->res.sessions.sessions_val);
    free(drain);
}

static int add_draining(const struct flyt_node_server *server, flyt_order_drain_res *res)
{
    flyt_draining *draining = &res->sessions.sessions_val[res->sessions.sessions_len];

    *draining = (flyt_draining){.session_id = server->session->id,
                                .program_name = strdup(server->session->ticket.program),
                                .client_pid = server->session->ticket.client_pid};
    if (!draining->program_name)
        return -ENOMEM;
    res->sessions.sessions_len++;
    return 0;
}

static void drain_one(struct drain *drain, struct flyt_node_server *server, bool is_to_end)
{
    static const char reason[] = FLYT_NODE_KILLED_TEXT ": SMs that were taken from its VM still had work of it";

    int status = add_draining(server, &drain->res);
    drain->left++;
    if (status || !is_to_end || (status = flyt_node_server_end_for_good(server, reason, drain_step, drain)))
        drain_step(drain, status);
}

static void serve_drain(struct flyt_call *call, void *args)
{
    const struct flyt_node_manager *manager = flyt_uplink_user(call);
    const flyt_order_drain_args *order = args;
    struct flyt_node *node = manager->node;
    const struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, order->allocation_id);
    struct drain *drain = calloc(1, sizeof *drain);

    if (!drain || !(drain->res.sessions.sessions_val =
                        calloc(node->server_count + 1, sizeof *drain->res.sessions.sessions_val))) {
        free(drain);
        flyt_call_fail(call);
        return;
    }
    drain->call = call;
    drain->left = 1;
    bool is_led_now = flyt_node_is_led(node, order->epoch, &drain->res.outcome);
    for (struct flyt_node_server *server = node->servers; server && is_led_now && allocation; server = server->next)
        if (flyt_node_server_allocation(server) == allocation && flyt_node_groups_drains(server) &&
            drain->res.sessions.sessions_len < FLYT_SESSIONS_MAX)
            drain_one(drain, server, order->kill);
    drain_step(drain, 0);
}

static void answer_gpu_order(struct flyt_node_manager *manager, flyt_status status, const char *text)
{
    struct flyt_call *call = manager->gpu_order.call;
    flyt_order_gpu_res res = {.outcome = {status, (char *)text}};

    manager->gpu_order.call = NULL;
    if (flyt_node_report_gpu(manager->node, manager->gpu_order.gpu, &res.gpu))
        flyt_call_fail(call);
    else
        flyt_call_reply(call, &res);
    xdr_free((xdrproc_t)xdr_flyt_gpu, &res.gpu);
}

void flyt_node_manager_look_at_gpu_order(struct flyt_node_manager *manager)
{
    const struct flyt_node_gpu_order *order = &manager->gpu_order;

    if (!order->call || order->commit.is_waiting)
        return;
    if (order->gpu->is_known)
        answer_gpu_order(manager, FLYT_STATUS_OK, "");
    else if (flyt_clock_ms() > order->until_ms)
        answer_gpu_order(manager, FLYT_STATUS_TIMEOUT, "no server with this group size was ready in time");
}

static void keep_group_size(struct flyt_node *node, const struct flyt_node_gpu *gpu, unsigned group_size)
{
    struct flyt_node_state *state = &node->state;
    unsigned i = 0;

    while (i < state->group_size_count && strcmp(state->group_sizes[i].uuid, gpu->uuid) != 0)
        i++;
    if (i == FLYT_GPUS_MAX)
        return;
    if (i == state->group_size_count)
        state->group_size_count++;
    snprintf(state->group_sizes[i].uuid, sizeof state->group_sizes[i].uuid, "%s", gpu->uuid);
    state->group_sizes[i].group_size = group_size;
}

/* NULL, or why not. */
static const char *check_gpu_order(const struct flyt_node *node, const struct flyt_node_gpu *gpu, unsigned group_size,
                                   flyt_status *ret_status)
{
    *ret_status = FLYT_STATUS_NOT_FOUND;
    if (!gpu)
        return "the node has no such GPU";
    *ret_status = FLYT_STATUS_INVALID;
    if (group_size != 2 && group_size != 8)
        return "a group has 2 or 8 SMs";
    *ret_status = FLYT_STATUS_IN_USE;
    for (const struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
            if (allocation->slots[i].gpu == gpu || allocation->slots[i].held_gpu == gpu)
                return "the GPU is not empty";
    return NULL;
}

static void on_group_size_written(void *user, int status)
{
    struct flyt_node_manager *manager = user;
    struct flyt_node_gpu *gpu = manager->gpu_order.gpu;

    if (status) {
        keep_group_size(manager->node, gpu, gpu->group_size);
        answer_gpu_order(manager, FLYT_STATUS_UNAVAILABLE, "the node's state file cannot be written");
        return;
    }
    flyt_node_gpu_set_group_size(gpu, manager->gpu_order.group_size);
    flyt_node_starts_renew(manager->node, gpu);
    flyt_node_manager_look_at_gpu_order(manager);
}

static void serve_gpu_set(struct flyt_call *call, void *args)
{
    struct flyt_node_manager *manager = flyt_uplink_user(call);
    const flyt_order_gpu_args *order = args;
    struct flyt_node *node = manager->node;
    struct flyt_node_gpu *gpu = flyt_node_gpus_find(&node->gpus, order->uuid);
    flyt_order_gpu_res res = {.gpu = {.uuid = (char *)"", .type = (char *)"", .health_text = (char *)""}};
    flyt_status status;

    const char *reason = check_gpu_order(node, gpu, order->group_size, &status);
    bool is_led_now = flyt_node_is_led(node, order->epoch, &res.outcome);
    if (is_led_now && !reason && manager->gpu_order.call) {
        reason = "another GPU is being changed";
        status = FLYT_STATUS_CONFLICT;
    }
    if (is_led_now && reason)
        res.outcome = (flyt_outcome){status, (char *)reason};
    if (!is_led_now || reason) {
        flyt_call_reply(call, &res);
        return;
    }
    manager->gpu_order = (struct flyt_node_gpu_order){
        .call = call, .gpu = gpu, .until_ms = flyt_clock_ms() + FLYT_NODE_GPU_SET_MS, .group_size = order->group_size};
    if (gpu->group_size == order->group_size) {
        flyt_node_manager_look_at_gpu_order(manager);
        return;
    }
    keep_group_size(node, gpu, order->group_size);
    flyt_node_commit(node, &manager->gpu_order.commit, on_group_size_written, manager);
}

void flyt_node_manager_drop_gpu_order(struct flyt_node_manager *manager)
{
    flyt_node_commit_forget(manager->node, &manager->gpu_order.commit);
    if (manager->gpu_order.call)
        answer_gpu_order(manager, FLYT_STATUS_UNAVAILABLE, "the node manager ends");
}

static void serve_leader(struct flyt_call *call, void *args)
{
    struct flyt_node_manager *manager = flyt_uplink_user(call);
    const flyt_leader_args *order = args;
    const flyt_outcome outcome = {FLYT_STATUS_OK, (char *)""};

    flyt_uplink_follow(manager->uplink, order->leaders.leaders_val, order->leaders.leaders_len);
    flyt_call_reply(call, &outcome);
}

static const struct flyt_procedure order_procedures[] = {
    {FLYT_ORDER_APPLY, "order_apply", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_apply_args, sizeof(flyt_apply_args),
     (xdrproc_t)xdr_flyt_apply_res, serve_apply},
    {FLYT_ORDER_SESSION_KILL, "order_session_kill", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_session_args,
     sizeof(flyt_order_session_args), (xdrproc_t)xdr_flyt_outcome, serve_session_kill},
    {FLYT_ORDER_GPU_SET, "order_gpu_set", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_gpu_args,
     sizeof(flyt_order_gpu_args), (xdrproc_t)xdr_flyt_order_gpu_res, serve_gpu_set},
    {FLYT_ORDER_DRAIN, "order_drain", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_drain_args,
     sizeof(flyt_order_drain_args), (xdrproc_t)xdr_flyt_order_drain_res, serve_drain},
    {FLYT_ORDER_MIGRATE, "order_migrate", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_migrate_args,
     sizeof(flyt_order_migrate_args), (xdrproc_t)xdr_flyt_outcome, serve_migrate},
    {FLYT_ORDER_MIGRATION, "order_migration", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_migration_args,
     sizeof(flyt_order_migration_args), (xdrproc_t)xdr_flyt_order_migration_res, serve_migration},
    {FLYT_ORDER_RECEIVE, "order_receive", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_receive_args,
     sizeof(flyt_order_receive_args), (xdrproc_t)xdr_flyt_outcome, serve_receive},
    {FLYT_ORDER_SEND, "order_send", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_send_args, sizeof(flyt_order_send_args),
     (xdrproc_t)xdr_flyt_outcome, serve_send},
    {FLYT_ORDER_SWITCH, "order_switch", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_switch_args,
     sizeof(flyt_order_switch_args), (xdrproc_t)xdr_flyt_order_migration_res, serve_switch},
    {FLYT_ORDER_SEND_BACK, "order_send_back", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_send_back_args,
     sizeof(flyt_order_send_back_args), (xdrproc_t)xdr_flyt_outcome, serve_send_back},
    {FLYT_ORDER_CHECKPOINT, "order_checkpoint", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_checkpoint_args,
     sizeof(flyt_order_checkpoint_args), (xdrproc_t)xdr_flyt_saving_res, serve_checkpoint},
    {FLYT_ORDER_RESTORE, "order_restore", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_restore_args,
     sizeof(flyt_order_restore_args), (xdrproc_t)xdr_flyt_saving_res, serve_restore},
    {FLYT_ORDER_LEADER, "order_leader", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_leader_args, sizeof(flyt_leader_args),
     (xdrproc_t)xdr_flyt_outcome, serve_leader},
    {FLYT_ORDER_VM_DEVICE, "order_vm_device", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_order_vm_device_args,
     sizeof(flyt_order_vm_device_args), (xdrproc_t)xdr_flyt_vm_device_res, serve_vm_device},
    {.serve = NULL},
};

const struct flyt_program flyt_node_manager_orders = {FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, order_procedures};
