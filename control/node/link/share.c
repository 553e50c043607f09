#include "control/node/link/share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/server_control.h"
#include "control/node/link/unanswered.h"
#include "control/node/model/allocation.h"
#include "rpc/base/log.h"
#include "rpc/base/time_slices.h"

static bool is_shared(const flyt_slot *slot)
{
    return slot->window_ms != 0;
}

static struct flyt_time_slice_share share_of(const flyt_slot *slot)
{
    return (struct flyt_time_slice_share){slot->minimum_share_pct, slot->maximum_share_pct, slot->window_ms,
                                          slot->priority};
}

int flyt_node_share_check(const flyt_slot *slot, struct flyt_error *err)
{
    const struct flyt_time_slice_share share = share_of(slot);

    if (!is_shared(slot) && (slot->minimum_share_pct || slot->maximum_share_pct))
        return flyt_error_set(err, -EINVAL, "a share of the time needs a window");
    if (!is_shared(slot) || !flyt_time_slice_share_check(&share))
        return 0;
    return flyt_error_set(err, -EINVAL, "a share of %u to %u %% of %u ms cannot be", slot->minimum_share_pct,
                          slot->maximum_share_pct, slot->window_ms);
}

/* ---- tokens of GPUs ---- */

static struct flyt_time_slices *need_time_slices(struct flyt_node_gpu *gpu, int *ret_status)
{
    *ret_status = gpu->time_slices ? 0 : flyt_time_slices_new(&gpu->time_slices);
    return gpu->time_slices;
}

static struct flyt_time_slices *time_slices_of(const struct flyt_node_allocation *allocation, unsigned i)
{
    const struct flyt_node_gpu *gpu = allocation->slots[i].gpu;

    return gpu && is_shared(&allocation->now.slots.slots_val[i]) ? gpu->time_slices : NULL;
}

int flyt_node_share_set(const struct flyt_node_allocation *allocation)
{
    int worst = 0;

    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        const flyt_slot *slot = &allocation->now.slots.slots_val[i];
        struct flyt_node_gpu *gpu = allocation->slots[i].gpu;
        const struct flyt_time_slice_share share = share_of(slot);
        uint64_t tenant_id = flyt_manager_link_tenant(allocation->now.id, i);
        int status;
        if (!gpu)
            continue;
        if (!is_shared(slot)) {
            if (gpu->time_slices)
                flyt_time_slices_remove(gpu->time_slices, tenant_id);
            continue;
        }
        struct flyt_time_slices *time_slices = need_time_slices(gpu, &status);
        if (time_slices)
            status = flyt_time_slices_set(time_slices, tenant_id, &share, allocation->now.revision);
        if (status && status != -ESTALE) {
            flyt_fail("allocation %016" PRIx64 ": its share of GPU %u cannot be set: %s", (uint64_t)allocation->now.id,
                      gpu->index, strerror(-status));
            worst = status;
        }
    }
    return worst;
}

void flyt_node_share_drop(const struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_time_slices *time_slices = time_slices_of(allocation, i);
        if (time_slices)
            flyt_time_slices_remove(time_slices, flyt_manager_link_tenant(allocation->now.id, i));
    }
}

void flyt_node_share_forget(const struct flyt_node_allocation *allocation, unsigned i, const struct flyt_node_gpu *gpu)
{
    if (gpu->time_slices)
        flyt_time_slices_remove(gpu->time_slices, flyt_manager_link_tenant(allocation->now.id, i));
}

/* ---- servers ---- */

int flyt_node_share_fill(const struct flyt_node_allocation *allocation, struct flyt_manager_link_session *session,
                         int *fds, unsigned *fd_count)
{
    int status = flyt_node_share_set(allocation);

    if (status)
        return status;
    for (unsigned i = 0; i < session->slot_count; i++) {
        struct flyt_time_slices *time_slices = time_slices_of(allocation, i);
        if (allocation->now.is_suspended)
            session->slots[i].flags |= FLYT_MANAGER_LINK_IS_SUSPENDED;
        if (!time_slices)
            continue;
        status = flyt_time_slices_join(time_slices, flyt_manager_link_tenant(allocation->now.id, i), session->server_id,
                                       fds + *fd_count);
        if (status)
            return status;
        session->slots[i].flags |= FLYT_MANAGER_LINK_HAS_TIME_SLICES;
        *fd_count += FLYT_TIME_SLICES_FDS;
    }
    return 0;
}

static void tell(struct flyt_node_server *server, unsigned i, bool with_time_slices)
{
    const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    server->is_time_slices_due[i] |= with_time_slices; /* until it has answered one that had it */
    struct flyt_time_slices *time_slices = server->is_time_slices_due[i] ? time_slices_of(allocation, i) : NULL;
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);
    int fds[FLYT_TIME_SLICES_FDS], status = message ? 0 : -ENOMEM;

    server->share_told[i] = allocation->now.revision;
    server->share_done[i] = 0;
    server->has_share_failed[i] = false;
    if (!status && time_slices)
        status = flyt_time_slices_join(time_slices, flyt_manager_link_tenant(allocation->now.id, i),
                                       server->has.server_id, fds);
    if (!status) {
        message->kind = FLYT_MANAGER_LINK_SHARE;
        message->share = (struct flyt_manager_link_share){.revision = allocation->now.revision,
                                                          .slot = i,
                                                          .priority = allocation->now.slots.slots_val[i].priority,
                                                          .is_suspended = allocation->now.is_suspended,
                                                          .has_time_slices = time_slices != NULL};
        flyt_node_server_send(server, message, fds, time_slices ? FLYT_TIME_SLICES_FDS : 0);
    } else { /* it is tried again */
        flyt_warn("session %016" PRIx64 ": its server process %d is not told its share: %s",
                  flyt_node_server_session_id(server), (int)server->pid, strerror(-status));
    }
    flyt_node_retransmit_await(server);
    free(message);
}

void flyt_node_share_repeat(struct flyt_node_server *server, unsigned i)
{
    tell(server, i, false);
}

void flyt_node_share_change(struct flyt_node *node, struct flyt_node_allocation *allocation,
                            const flyt_allocation *before)
{
    bool is_other_state = before->is_suspended != allocation->now.is_suspended;

    flyt_node_share_set(allocation);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        const flyt_slot *old = &before->slots.slots_val[i], *slot = &allocation->now.slots.slots_val[i];
        bool is_new = is_shared(slot) && !is_shared(old);
        if (!is_other_state && !is_new && old->priority == slot->priority)
            continue;
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (flyt_node_server_allocation(server) == allocation)
                tell(server, i, is_new);
    }
    if (is_other_state)
        flyt_info("allocation %016" PRIx64 ": %s, vm=%s", (uint64_t)allocation->now.id,
                  allocation->now.is_suspended ? "suspended" : "resumed", allocation->now.vm_ip);
}

void flyt_node_share_reattach(struct flyt_node_server *server, const struct flyt_manager_link_session *session)
{
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

    if (server->came_with)
        return;
    flyt_node_share_set(allocation);
    for (unsigned i = 0; i < session->slot_count && i < allocation->now.slots.slots_len; i++) {
        const struct flyt_manager_link_slot *its = &session->slots[i];
        bool has_time_slices = time_slices_of(allocation, i) != NULL;
        bool was_suspended = its->flags & FLYT_MANAGER_LINK_IS_SUSPENDED;
        /* Its place went with the node manager that gave it. A suspended one says again that it is: it may have been
         * about to. */
        if (has_time_slices || was_suspended || was_suspended != allocation->now.is_suspended ||
            its->priority != allocation->now.slots.slots_val[i].priority)
            tell(server, i, has_time_slices);
    }
}

void flyt_node_share_give(const struct flyt_node_allocation *allocation)
{
    for (struct flyt_node_server *server = allocation->node->servers; server; server = server->next)
        for (unsigned i = 0; flyt_node_server_allocation(server) == allocation && i < allocation->now.slots.slots_len;
             i++)
            if (time_slices_of(allocation, i) && server->state != FLYT_NODE_SERVER_ENDING)
                tell(server, i, true);
}

void flyt_node_share_leave(struct flyt_node_server *server)
{
    for (unsigned i = 0; i < server->node->gpus.count; i++)
        if (server->node->gpus.items[i].time_slices)
            flyt_time_slices_leave(server->node->gpus.items[i].time_slices, server->has.server_id);
}

void flyt_node_share_done(struct flyt_node_server *server, const struct flyt_manager_link_share_done *done)
{
    if (!flyt_node_server_allocation(server) || done->revision != server->share_told[done->slot])
        return; /* of an earlier order */
    flyt_node_retransmit_answered(server);
    server->is_time_slices_due[done->slot] = false;
    if (done->outcome) {
        server->has_share_failed[done->slot] = true;
        flyt_warn("session %016" PRIx64 ": its time slices are not changed: %s", flyt_node_server_session_id(server),
                  strerror(-done->outcome));
        flyt_node_tell(server->node, "session.share_failed", "", "session %016" PRIx64 ": %s",
                       flyt_node_server_session_id(server), strerror(-done->outcome));
        return;
    }
    server->share_done[done->slot] = done->revision;
    flyt_node_changed(server->node);
}

void flyt_node_share_tidy(struct flyt_node *node)
{
    for (unsigned g = 0; g < node->gpus.count; g++) {
        struct flyt_time_slices *time_slices = node->gpus.items[g].time_slices;
        uint64_t servers[FLYT_TIME_SLICE_SERVERS_MAX], tenants[FLYT_TIME_SLICE_TENANTS_MAX];
        unsigned server_count = time_slices ? flyt_time_slices_servers(time_slices, servers) : 0;
        unsigned tenant_count = time_slices ? flyt_time_slices_list(time_slices, tenants) : 0;
        for (unsigned i = 0; i < server_count; i++) {
            const struct flyt_node_server *server = node->servers;
            while (server && server->has.server_id != servers[i])
                server = server->next;
            if (!server)
                flyt_time_slices_leave(time_slices, servers[i]);
        }
        for (unsigned i = 0; i < tenant_count; i++) {
            bool is_known = false;
            for (const struct flyt_node_allocation *allocation = node->allocations; allocation && !is_known;
                 allocation = allocation->next)
                for (unsigned j = 0; j < allocation->now.slots.slots_len; j++)
                    is_known |= time_slices_of(allocation, j) == time_slices &&
                                flyt_manager_link_tenant(allocation->now.id, j) == tenants[i];
            if (!is_known)
                flyt_time_slices_remove(time_slices, tenants[i]);
        }
    }
}

/* ---- what is told ---- */

/* All of its servers have said so; one that may come back has not. */
static bool is_still(const struct flyt_node_allocation *allocation, unsigned i)
{
    if (!allocation->now.is_suspended || flyt_node_allocation_absent(allocation))
        return false;
    for (const struct flyt_node_server *server = allocation->node->servers; server; server = server->next)
        if (flyt_node_server_listens(server, allocation) && server->share_told[i] &&
            server->share_done[i] != server->share_told[i])
            return false;
    return true;
}

uint64_t flyt_node_share_overrun_ns(const struct flyt_node_allocation *allocation, unsigned i)
{
    struct flyt_time_slices *time_slices = time_slices_of(allocation, i);
    struct flyt_time_slices_state state;

    if (!time_slices || flyt_time_slices_read(time_slices, flyt_manager_link_tenant(allocation->now.id, i), &state))
        return 0;
    return state.overused_ns;
}

void flyt_node_share_use(const struct flyt_node_allocation *allocation, unsigned i, flyt_slot_use *use)
{
    struct flyt_time_slices *time_slices = time_slices_of(allocation, i);
    struct flyt_time_slices_state state;

    use->is_suspended = is_still(allocation, i);
    if (!time_slices || flyt_time_slices_read(time_slices, flyt_manager_link_tenant(allocation->now.id, i), &state))
        return;
    use->shared_us = state.used_ns / 1000;
    use->waited_us = state.waited_ns / 1000;
}
