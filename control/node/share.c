#include "control/node/share.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "control/node/allocation.h"
#include "control/node/server.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"
#include "rpc/base/turns.h"

enum { NAME_BYTES = 80 };

static bool is_shared(const flyt_slot *slot)
{
    return slot->window_ms != 0;
}

static struct flyt_turn_share share_of(const flyt_slot *slot)
{
    return (struct flyt_turn_share){slot->minimum_share_pct, slot->maximum_share_pct, slot->window_ms, slot->priority};
}

int flyt_node_share_check(const flyt_slot *slot, struct flyt_error *err)
{
    const struct flyt_turn_share share = share_of(slot);

    if (!is_shared(slot) && (slot->minimum_share_pct || slot->maximum_share_pct))
        return flyt_error_set(err, -EINVAL, "a share of the time needs a window");
    if (!is_shared(slot) || !flyt_turn_share_check(&share))
        return 0;
    return flyt_error_set(err, -EINVAL, "a share of %u to %u %% of %u ms cannot be", slot->minimum_share_pct,
                          slot->maximum_share_pct, slot->window_ms);
}

/* ---- tokens of GPUs ---- */

static void name_turns(const struct flyt_node_gpu *gpu, char *name)
{
    snprintf(name, NAME_BYTES, "turns-%s", gpu->uuid);
}

static int adopt(struct flyt_node *node, struct flyt_node_gpu *gpu, int fd)
{
    char name[NAME_BYTES];
    int status = flyt_turns_open(fd, &gpu->turns);

    if (status)
        return status;
    name_turns(gpu, name);
    flyt_node_keep(node, name, flyt_turns_fd(gpu->turns));
    return 0;
}

/* 0; -EAGAIN: there is none, and may_make is not set; another negative errno. */
static int need_turns(struct flyt_node *node, struct flyt_node_gpu *gpu, bool may_make)
{
    char name[NAME_BYTES];

    if (gpu->turns)
        return 0;
    name_turns(gpu, name);
    flyt_auto_close int fd = node->daemon ? flyt_daemon_take(node->daemon, name) : -1;
    if (fd >= 0 && !adopt(node, gpu, fd))
        return 0;
    int status = may_make ? flyt_turns_new(&gpu->turns) : -EAGAIN;
    if (!status)
        flyt_node_keep(node, name, flyt_turns_fd(gpu->turns));
    return status;
}

static struct flyt_turns *turns_of(const struct flyt_node_allocation *allocation, unsigned i)
{
    const struct flyt_node_gpu *gpu = allocation->slots[i].gpu;

    return gpu && is_shared(&allocation->now.slots.slots_val[i]) ? gpu->turns : NULL;
}

static int set(struct flyt_node *node, const struct flyt_node_allocation *allocation, bool may_make)
{
    int worst = 0;

    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        const flyt_slot *slot = &allocation->now.slots.slots_val[i];
        struct flyt_node_gpu *gpu = allocation->slots[i].gpu;
        const struct flyt_turn_share share = share_of(slot);
        uint64_t tenant_id = flyt_server_link_tenant(allocation->now.id, i);
        if (!gpu)
            continue;
        if (!is_shared(slot)) {
            if (gpu->turns)
                flyt_turns_remove(gpu->turns, tenant_id);
            continue;
        }
        int status = need_turns(node, gpu, may_make);
        if (!status)
            status = flyt_turns_set(gpu->turns, tenant_id, &share, allocation->now.revision);
        if (status && status != -ESTALE && status != -EAGAIN) {
            flyt_fail("allocation %016" PRIx64 ": its share of GPU %u cannot be set: %s", (uint64_t)allocation->now.id,
                      gpu->index, strerror(-status));
            worst = status;
        }
    }
    return worst;
}

/* While servers may come back, the token is theirs, where the descriptor store has none. */
int flyt_node_share_set(struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    return set(node, allocation, !node->is_rejoining);
}

void flyt_node_share_drop(const struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_turns *turns = turns_of(allocation, i);
        if (turns)
            flyt_turns_remove(turns, flyt_server_link_tenant(allocation->now.id, i));
    }
}

void flyt_node_share_forget(const struct flyt_node_allocation *allocation, unsigned i, const struct flyt_node_gpu *gpu)
{
    if (gpu->turns)
        flyt_turns_remove(gpu->turns, flyt_server_link_tenant(allocation->now.id, i));
}

/* ---- servers ---- */

int flyt_node_share_fill(struct flyt_node *node, const struct flyt_node_allocation *allocation,
                         struct flyt_server_link_session *session, int *fds, unsigned *fd_count)
{
    int status = set(node, allocation, true);

    if (status)
        return status;
    for (unsigned i = 0; i < session->slot_count; i++) {
        struct flyt_turns *turns = turns_of(allocation, i);
        if (allocation->now.is_suspended)
            session->slots[i].flags |= FLYT_SERVER_LINK_IS_SUSPENDED;
        if (!turns)
            continue;
        session->slots[i].flags |= FLYT_SERVER_LINK_HAS_TURNS;
        fds[(*fd_count)++] = flyt_turns_fd(turns);
    }
    return 0;
}

static void tell(struct flyt_node_server *server, unsigned i, bool with_turns)
{
    const struct flyt_node_allocation *allocation = server->allocation;
    struct flyt_turns *turns = with_turns ? turns_of(allocation, i) : NULL;
    struct flyt_server_link_message *message = calloc(1, sizeof *message);
    int fd = turns ? flyt_turns_fd(turns) : -1, status = -ENOMEM;

    server->share_told[i] = allocation->now.revision;
    server->share_done[i] = 0;
    if (message) {
        message->kind = FLYT_SERVER_LINK_SHARE;
        message->share = (struct flyt_server_link_share){.revision = allocation->now.revision,
                                                         .slot = i,
                                                         .priority = allocation->now.slots.slots_val[i].priority,
                                                         .is_suspended = allocation->now.is_suspended,
                                                         .has_turns = fd >= 0};
        status = server->link_fd < 0 ? -EPIPE : flyt_server_link_send(server->link_fd, message, &fd, fd >= 0);
    }
    if (status && status != -EPIPE) /* where it has gone, that is said elsewhere */
        flyt_warn("session %016" PRIx64 ": its server process %d does not listen: %s", server->session_id,
                  (int)server->pid, strerror(-status));
    free(message);
}

void flyt_node_share_change(struct flyt_node *node, struct flyt_node_allocation *allocation,
                            const flyt_allocation *before)
{
    bool is_other_state = before->is_suspended != allocation->now.is_suspended;

    flyt_node_share_set(node, allocation);
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        const flyt_slot *old = &before->slots.slots_val[i], *slot = &allocation->now.slots.slots_val[i];
        bool is_new = is_shared(slot) && !is_shared(old);
        if (!is_other_state && !is_new && old->priority == slot->priority)
            continue;
        for (struct flyt_node_server *server = node->servers; server; server = server->next)
            if (server->allocation == allocation)
                tell(server, i, is_new);
    }
    if (is_other_state)
        flyt_info("allocation %016" PRIx64 ": %s, vm=%s", (uint64_t)allocation->now.id,
                  allocation->now.is_suspended ? "suspended" : "resumed", allocation->now.vm_ip);
}

static bool is_same_file(int one_fd, int other_fd)
{
    struct stat one, other;

    return !fstat(one_fd, &one) && !fstat(other_fd, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

void flyt_node_share_rejoin(struct flyt_node_server *server, const struct flyt_server_link_session *session,
                            const int *fds, unsigned fd_count)
{
    struct flyt_node_allocation *allocation = server->allocation;

    for (unsigned i = 0; i < session->slot_count && i < allocation->now.slots.slots_len; i++) {
        const struct flyt_server_link_slot *its = &session->slots[i];
        struct flyt_node_gpu *gpu = server->gpus[i];
        bool is_shared_now = is_shared(&allocation->now.slots.slots_val[i]);
        int fd = -1;
        if (its->flags & FLYT_SERVER_LINK_HAS_TURNS && fd_count) {
            fd = *fds++;
            fd_count--;
        }
        if (is_shared_now && gpu && !gpu->turns && fd >= 0)
            adopt(server->node, gpu, fd);
        if (server->came_with)
            continue;
        flyt_node_share_set(server->node, allocation);
        struct flyt_turns *turns = turns_of(allocation, i);
        bool is_other = turns && (fd < 0 || !is_same_file(fd, flyt_turns_fd(turns)));
        bool was_suspended = its->flags & FLYT_SERVER_LINK_IS_SUSPENDED;
        /* A suspended one says again that it is: it may have been about to. */
        if (is_other || was_suspended || was_suspended != allocation->now.is_suspended ||
            its->priority != allocation->now.slots.slots_val[i].priority)
            tell(server, i, is_other);
    }
}

void flyt_node_share_leave(struct flyt_node_server *server)
{
    for (unsigned i = 0; i < server->node->gpus.count; i++)
        if (server->node->gpus.items[i].turns)
            flyt_turns_leave(server->node->gpus.items[i].turns, server->server_id);
}

void flyt_node_share_done(struct flyt_node_server *server, const struct flyt_server_link_share_done *done)
{
    if (!server->allocation || done->revision != server->share_told[done->slot])
        return; /* of an earlier order */
    if (done->outcome) {
        flyt_warn("session %016" PRIx64 ": its turns are not changed: %s", server->session_id,
                  strerror(-done->outcome));
        flyt_node_tell(server->node, "session.share_failed", "", "session %016" PRIx64 ": %s", server->session_id,
                       strerror(-done->outcome));
        return;
    }
    server->share_done[done->slot] = done->revision;
    flyt_node_changed(server->node);
}

void flyt_node_share_tidy(struct flyt_node *node)
{
    for (unsigned g = 0; g < node->gpus.count; g++) {
        struct flyt_turns *turns = node->gpus.items[g].turns;
        uint64_t servers[FLYT_TURN_SERVERS_MAX], tenants[FLYT_TURN_TENANTS_MAX];
        unsigned server_count = turns ? flyt_turns_servers(turns, servers) : 0;
        unsigned tenant_count = turns ? flyt_turns_list(turns, tenants) : 0;
        for (unsigned i = 0; i < server_count; i++) {
            const struct flyt_node_server *server = node->servers;
            while (server && server->server_id != servers[i])
                server = server->next;
            if (!server)
                flyt_turns_leave(turns, servers[i]);
        }
        for (unsigned i = 0; i < tenant_count; i++) {
            bool is_known = false;
            for (const struct flyt_node_allocation *allocation = node->allocations; allocation && !is_known;
                 allocation = allocation->next)
                for (unsigned j = 0; j < allocation->now.slots.slots_len; j++)
                    is_known |= turns_of(allocation, j) == turns &&
                                flyt_server_link_tenant(allocation->now.id, j) == tenants[i];
            if (!is_known)
                flyt_turns_remove(turns, tenants[i]);
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

void flyt_node_share_use(const struct flyt_node_allocation *allocation, unsigned i, flyt_slot_use *use)
{
    struct flyt_turns *turns = turns_of(allocation, i);
    struct flyt_turns_state state;

    use->is_suspended = is_still(allocation, i);
    if (!turns || flyt_turns_read(turns, flyt_server_link_tenant(allocation->now.id, i), &state))
        return;
    use->shared_us = state.used_ns / 1000;
    use->waited_us = state.waited_ns / 1000;
}
