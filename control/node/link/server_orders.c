#include "control/node/link/server_orders.h"

#include <stdlib.h>
#include <string.h>

#include "control/node/link/server_control.h"
#include "control/node/link/unanswered.h"

void flyt_node_server_repeat_limit(struct flyt_node_server *server, unsigned slot)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);

    if (!message)
        return; /* it is repeated */
    message->kind = FLYT_MANAGER_LINK_LIMIT;
    message->limit = server->limit_told[slot];
    flyt_node_server_send(server, message, NULL, 0);
    free(message);
}

void flyt_node_server_tell_limit(struct flyt_node_server *server, unsigned slot, uint64_t bytes, uint64_t revision,
                                 bool when_free)
{
    server->limit_told[slot] =
        (struct flyt_manager_link_limit){bytes, revision, slot, when_free, flyt_node_retransmit_number(server)};
    server->limit_count[slot]++;
    flyt_node_server_repeat_limit(server, slot);
    flyt_node_retransmit_await(server);
}

static bool owes_limit(const struct flyt_node_server *server, unsigned slot)
{
    return server->limit_done[slot] < server->limit_told[slot].number;
}

void flyt_node_server_limit_done(struct flyt_node_server *server, const struct flyt_manager_link_limit_done *done)
{
    unsigned slot = done->slot;

    if (done->number > server->limit_told[slot].number)
        return; /* of the node manager before */
    if (done->number && done->number > server->limit_done[slot])
        server->limit_done[slot] = done->number;
    /* Of an older build. */
    if (!done->number && server->limit_count[slot] && !--server->limit_count[slot])
        server->limit_done[slot] = server->limit_told[slot].number;
    if (!owes_limit(server, slot))
        server->limit_count[slot] = 0;
    flyt_node_retransmit_answered(server);
}

/* Each server's credits come before its answers, so that what it cached is free when it has answered everything. One
 * that has hung up ends, and all that it had is free then. */
static bool is_awaited(const struct flyt_node_server *server)
{
    bool is_owed = server->link_fd < 0;

    for (unsigned i = 0; i < FLYT_SLOTS_MAX; i++)
        is_owed |= owes_limit(server, i);
    return is_owed;
}

bool flyt_node_server_owes_answer(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    for (const struct flyt_node_server *server = node->servers; server; server = server->next)
        if (flyt_node_server_listens(server, allocation) && is_awaited(server))
            return true;
    return false;
}

void flyt_node_server_answer_needs(struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        bool is_waiting = false;
        if (flyt_node_server_allocation(server) != allocation || !server->need.number)
            continue;
        for (const struct flyt_node_server *other = node->servers; other && !is_waiting; other = other->next)
            is_waiting = other != server && flyt_node_server_listens(other, allocation) && is_awaited(other);
        struct flyt_manager_link_message *message = is_waiting ? NULL : calloc(1, sizeof *message);
        if (!message)
            continue;
        message->kind = FLYT_MANAGER_LINK_NEED_DONE;
        message->need = server->need;
        server->need.number = 0; /* where it does not come there the server asks again */
        flyt_node_server_send(server, message, NULL, 0);
        free(message);
    }
}

void flyt_node_server_needs(struct flyt_node_server *server, const struct flyt_manager_link_need *need)
{
    const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

    if (!allocation || need->slot >= allocation->now.slots.slots_len)
        return;
    server->need = *need;
    for (struct flyt_node_server *other = server->node->servers; other; other = other->next)
        if (other != server && flyt_node_server_listens(other, allocation))
            flyt_node_server_tell_limit(other, need->slot, allocation->now.slots.slots_val[need->slot].memory_bytes,
                                        allocation->now.revision, false);
    flyt_node_server_answer_needs(server->node, allocation);
}

void flyt_node_server_tell_groups(struct flyt_node_server *server, unsigned slot)
{
    const struct flyt_node_slot *from = &flyt_node_server_allocation(server)->slots[slot];
    const struct flyt_node_gpu *gpu = from->gpu ? from->gpu : server->gpu;
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);

    server->sm_revision[slot] = from->groups_revision;
    server->sm_state[slot] = FLYT_SWITCH_TARGET;
    flyt_node_retransmit_await(server);
    if (!message)
        return; /* it is repeated */
    message->kind = FLYT_MANAGER_LINK_SM;
    message->sm.revision = from->groups_revision;
    message->sm.slot = slot;
    /* After a restart nothing is known of its groups before a server is ready on it, but what was ordered. */
    message->sm.sm_count = gpu->is_known ? flyt_node_gpu_sms(gpu, from->groups)
                                         : flyt_node_server_allocation(server)->now.slots.slots_val[slot].sm_count;
    memcpy(message->sm.groups, from->groups, sizeof message->sm.groups);
    flyt_node_server_send(server, message, NULL, 0);
    free(message);
}
