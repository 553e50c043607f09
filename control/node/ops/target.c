#include "control/node/ops/target.h"

#include <errno.h>
#include <string.h>

#include "control/node/host/machine.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/server.h"
#include "control/node/link/starts.h"
#include "control/node/model/allocation.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/replace.h"
#include "rpc/base/clock.h"

enum { HASTE_MS = 2000 };

void flyt_node_target_want(struct flyt_node_target *target, struct flyt_node_operation *operation,
                           const struct flyt_node_gpu *gpu)
{
    if (!target->operation) {
        target->operation = operation;
        target->next = operation->node->ops->targets;
        operation->node->ops->targets = target;
    }
    target->gpu = gpu;
}

struct flyt_node_server *flyt_node_target_find(struct flyt_node_target *target)
{
    target->is_awaited = true;
    return target->gpu ? flyt_node_starts_take(target->operation->node, target->gpu) : NULL;
}

void flyt_node_target_take(struct flyt_node_target *target)
{
    target->gpu = NULL;
    target->is_awaited = false;
}

void flyt_node_target_hurry(struct flyt_node_target *target, bool is_hasty)
{
    target->hasty_until_ms = is_hasty ? flyt_clock_ms() + HASTE_MS : 0;
}

void flyt_node_target_forget(struct flyt_node_target *target)
{
    if (!target->operation)
        return;
    struct flyt_node_target **link = &target->operation->node->ops->targets;
    while (*link != target)
        link = &(*link)->next;
    *link = target->next;
    *target = (struct flyt_node_target){0};
}

void flyt_node_target_begin(struct flyt_node_server *server, struct flyt_node_role *role,
                            struct flyt_node_session *session)
{
    server->role = role;
    if (!server->has.server_id)
        server->has.server_id = flyt_node_random();
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_PREPARING);
    if (!session)
        return;
    flyt_node_replace_abandon(session); /* its link had ended, and its memory was given to another one */
    flyt_node_session_prepare(session, server);
    flyt_node_cgroups_enter(&server->node->cgroups, server->pid, session->allocation->now.vm_ip, server->cgroup);
}

static int describe(struct flyt_node_server *server, const flyt_allocation *as, const struct flyt_node_session *from,
                    struct flyt_manager_link_message *message)
{
    int status = flyt_node_server_describe_session(server, as, &from->ticket, from, message);

    message->kind = FLYT_MANAGER_LINK_PREPARE;
    explicit_bzero(message->session.token, sizeof message->session.token);
    explicit_bzero(message->session.channel_key, sizeof message->session.channel_key);
    explicit_bzero(message->session.rejoin_secret, sizeof message->session.rejoin_secret);
    for (unsigned i = 0; i < as->slots.slots_len; i++) {
        if (as->is_suspended && server->session) /* who tries an image has no work of the VM's */
            message->session.slots[i].flags |= FLYT_MANAGER_LINK_IS_SUSPENDED;
        server->has.gpus[i] = flyt_node_gpus_find(&server->node->gpus, as->slots.slots_val[i].gpu_uuid);
    }
    return status;
}

int flyt_node_target_prepare(struct flyt_node_server *server, const flyt_allocation *as,
                             const struct flyt_node_session *from)
{
    int status = server->session ? flyt_node_server_equip(server, from->allocation, from)
                                 : flyt_node_server_send_folder(server, from->allocation);
    struct flyt_manager_link_message *message = flyt_node_link_message(FLYT_MANAGER_LINK_PREPARE);

    if (!status)
        status = describe(server, as, from, message);
    if (!status)
        status = flyt_node_link_queue_send(&server->queue, message, -1);
    return status == -EPIPE ? 0 : status;
}

unsigned flyt_node_targets_wanted(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_target *target = node->ops->targets; target; target = target->next)
        count += target->gpu == gpu;
    return count;
}

bool flyt_node_targets_are_hasty(const struct flyt_node *node)
{
    uint64_t now_ms = flyt_clock_ms();

    for (const struct flyt_node_target *target = node->ops->targets; target; target = target->next)
        if (now_ms < target->hasty_until_ms)
            return true;
    return false;
}

void flyt_node_targets_offer(struct flyt_node *node)
{
    for (struct flyt_node_target *target = node->ops->targets; target; target = target->next)
        if (target->is_awaited && target->gpu && flyt_node_starts_take(node, target->gpu))
            flyt_node_operation_wake(target->operation);
}
