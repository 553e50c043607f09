/*
 * Servers that come back after the node manager was restarted, or after they have lost their link to it: they connect
 * to STATE_DIR/link.sock and prove with a secret, which is made of the node's key, that they are who they say.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/base/acceptor.h"
#include "control/node/host/machine.h"
#include "control/node/link/broker.h"
#include "control/node/link/groups.h"
#include "control/node/link/link_dispatch.h"
#include "control/node/link/server.h"
#include "control/node/link/share.h"
#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "control/node/model/writer.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/checkpointed_sessions.h"
#include "control/node/ops/migration_switch.h"
#include "control/node/ops/move.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/receive.h"
#include "control/node/ops/receive_restart.h"
#include "control/node/ops/replace.h"
#include "control/node/ops/send.h"
#include "control/node/ops/session_save.h"
#include "control/node/process/uids.h"
#include "control/node/state/killed.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    STRANGER_MS = 5000,
    STRANGERS_OF_USER_MAX = 8, /* of a user that is not ours: one server process, which may have been taken over */
    STRANGERS_MAX = 512,       /* further ones wait in the socket's queue */
};

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5, socket(7) */
#endif

/* A connection that has not said who it is. */
struct flyt_node_stranger {
    struct flyt_node_stranger *next; /* in node->ops->strangers */
    struct flyt_node *node;
    int fd;
    uid_t uid; /* its user, as the kernel tells it */
    sd_event_source *source, *timer;
};

static void free_stranger(struct flyt_node_stranger *stranger)
{
    struct flyt_node_stranger **link = &stranger->node->ops->strangers;

    while (*link != stranger)
        link = &(*link)->next;
    *link = stranger->next;
    stranger->node->ops->stranger_count--;
    if (!stranger->node->ops->strangers)
        stranger->node->ops->is_crowd_told = false;
    sd_event_source_disable_unref(stranger->source);
    sd_event_source_disable_unref(stranger->timer);
    flyt_close(stranger->fd);
    free(stranger);
}

static void send_away(int fd, const char *sentence)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);

    if (!message)
        return;
    message->kind = FLYT_MANAGER_LINK_GO;
    flyt_manager_link_say(message, sentence);
    flyt_manager_link_send(fd, message, NULL, 0);
    free(message);
}

/* What the store does not know yet, as its server describes it: an orphan until the cluster manager says otherwise. */
static struct flyt_node_allocation *make_orphan(struct flyt_node *node, const struct flyt_manager_link_session *session)
{
    flyt_allocation from = {.id = session->allocation_id, .state = FLYT_ALLOCATION_ORPHAN, .revision = 0};
    struct flyt_node_allocation *allocation = NULL;

    from.vm_ip = strdup("unknown");
    from.tenant = strdup("");
    from.slots.slots_val = calloc(FLYT_SLOTS_MAX, sizeof *from.slots.slots_val);
    bool is_good = from.vm_ip && from.tenant && from.slots.slots_val;
    for (unsigned i = 0; is_good && i < session->slot_count; i++) {
        const struct flyt_manager_link_slot *its = &session->slots[i];
        flyt_slot *slot = &from.slots.slots_val[from.slots.slots_len++];
        char uuid[FLYT_NODE_UUID_BYTES];
        flyt_node_uuid_print(its->gpu_uuid, uuid);
        slot->gpu_uuid = strdup(uuid);
        slot->device_index = its->device_index;
        slot->sm_count = its->sm_count;
        slot->memory_bytes = its->memory_bytes;
        slot->minimum_share_pct = its->minimum_share_pct;
        slot->maximum_share_pct = its->maximum_share_pct;
        slot->window_ms = its->window_ms;
        slot->priority = its->priority;
        from.shown_sms = flyt_manager_link_shown(its);
        from.is_suspended |= (its->flags & FLYT_MANAGER_LINK_IS_SUSPENDED) != 0;
        slot->sm_groups.sm_groups_val = calloc(FLYT_GROUPS_MAX, sizeof(u_int));
        is_good = slot->gpu_uuid && slot->sm_groups.sm_groups_val;
        for (unsigned group = 0; is_good && group < FLYT_GROUPS_MAX; group++)
            if (flyt_manager_link_has_group(its->groups, group))
                slot->sm_groups.sm_groups_val[slot->sm_groups.sm_groups_len++] = group;
    }
    if (!is_good || flyt_node_allocation_add(node, &from, &allocation)) {
        xdr_free((xdrproc_t)xdr_flyt_allocation, &from);
        return NULL;
    }
    flyt_warn("allocation %016" PRIx64 ": a server has come back with it, an orphan", session->allocation_id);
    return allocation;
}

/* What proves who it is, it proves for its user alone. */
static const char *check(const struct flyt_node *node, uid_t uid, const struct flyt_manager_link_rejoin *rejoin)
{
    unsigned char secret[FLYT_MANAGER_LINK_SECRET_BYTES];
    const struct flyt_manager_link_session *session = &rejoin->session;

    flyt_node_server_secret(node, uid, session->server_id, session->session_id, session->allocation_id, secret);
    if (!session->server_id || !flyt_equal_in_constant_time(secret, session->rejoin_secret, sizeof secret))
        return "this node manager does not know the server";
    if (rejoin->version > FLYT_MANAGER_LINK_VERSION || !session->slot_count ||
        session->ledger_count != (rejoin->received_move_id ? 0 : session->slot_count))
        return "this node manager does not understand the server";
    if (rejoin->left_move_id && flyt_node_checkpointed_find(node, session->session_id))
        return "the session is in a checkpoint image";
    return NULL;
}

static bool has_entry(const struct flyt_ledger *ledger, uint64_t server_id)
{
    uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
    unsigned count = flyt_ledger_list(ledger, ids);

    while (count)
        if (ids[--count] == server_id)
            return true;
    return false;
}

/* What the server has, and what its work still runs on, stays the allocation's. Whether it has other groups, or holds
 * more, than it is to: then it is told once more, and says when it has vacated them. */
static bool hold_groups(struct flyt_node_slot *slot, const unsigned char *its, const unsigned char *holding)
{
    bool is_other = memcmp(its, slot->groups, sizeof slot->groups) != 0;

    for (unsigned i = 0; i < sizeof slot->groups; i++) {
        is_other |= holding[i] & ~slot->groups[i];
        slot->holding[i] |= its[i] | holding[i];
    }
    return is_other;
}

/* The process at the other end. Before Linux 6.5 it is found by its number, which another process may have by now; then
 * the connection has ended, because servers do not share theirs. The descriptor, or -1. */
static int peer_process(int fd, pid_t *ret_pid)
{
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};
    struct ucred peer;
    socklen_t peer_bytes = sizeof peer, pid_fd_bytes = sizeof(int);
    int pid_fd = -1;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &peer_bytes))
        return -1;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pid_fd, &pid_fd_bytes))
        pid_fd = (int)syscall(SYS_pidfd_open, peer.pid, 0);
    if (pid_fd >= 0 && poll(&end, 1, 0) != 0)
        pid_fd = flyt_close(pid_fd);
    *ret_pid = peer.pid;
    return pid_fd;
}

static struct flyt_node_gpu *gpu_of(const struct flyt_node *node, const struct flyt_manager_link_slot *slot)
{
    char uuid[FLYT_NODE_UUID_BYTES];

    flyt_node_uuid_print(slot->gpu_uuid, uuid);
    return flyt_node_gpus_find(&node->gpus, uuid);
}

static int on_left_too_long(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_server *server = user;

    server->timer = sd_event_source_disable_unref(server->timer);
    flyt_node_server_end(server, "its program was to go on at another server process, and has not come back");
    return 0;
}

/* Which devices it has, and whether its client is on its way elsewhere: the node manager was restarted in the midst of
 * a migration. NULL, or why it is of no use. */
static const char *note_side(struct flyt_node_server *server, const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_manager_link_session *session = &rejoin->session;
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    struct flyt_node *node = server->node;
    bool is_elsewhere = false;

    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        server->has.gpus[i] = gpu_of(node, &session->slots[i]);
        is_elsewhere |= server->has.gpus[i] != allocation->slots[i].gpu;
    }
    if (is_elsewhere) {
        server->came_with = malloc(sizeof *server->came_with);
        if (!server->came_with)
            return "the node manager has no memory";
        *server->came_with = *session;
    }
    server->left_move_id = rejoin->left_move_id;
    if (server->left_move_id)
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_LEFT);
    if (flyt_node_send_take_back_server(server) || !server->left_move_id)
        return NULL;
    return sd_event_add_time_relative(node->event, &server->timer, CLOCK_MONOTONIC, node->ops->switch_ms * 1000ull,
                                      1000, on_left_too_long, server) < 0
               ? "the node manager has no memory"
               : NULL;
}

/* It may have missed an order. */
static void tell_missed(struct flyt_node_server *server, const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_manager_link_session *session = &rejoin->session;
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        struct flyt_node_slot *slot = &allocation->slots[i];
        server->sm_revision[i] = slot->groups_revision;
        server->sm_state[i] = FLYT_SWITCH_VACATED;
        if (server->came_with) { /* nobody else is given what it has */
            slot->held_gpu = server->has.gpus[i];
            for (unsigned j = 0; j < sizeof slot->held; j++)
                slot->held[j] |= session->slots[i].groups[j] | rejoin->holding[i][j];
            continue;
        }
        if (hold_groups(slot, session->slots[i].groups, rejoin->holding[i]))
            flyt_node_server_tell_groups(server, i);
        if (session->slots[i].memory_bytes != allocation->now.slots.slots_val[i].memory_bytes)
            flyt_node_server_tell_limit(server, i, allocation->now.slots.slots_val[i].memory_bytes,
                                        allocation->now.revision, true);
    }
}

/* The program runs: it had not been told to leave, or goes on at a new server, when the node manager was restarted. */
static void forget_image(struct flyt_node *node, uint64_t session_id)
{
    struct flyt_node_checkpointed *checkpointed = flyt_node_checkpointed_find(node, session_id);

    if (!checkpointed)
        return;
    flyt_node_checkpointed_remove(node, checkpointed);
    flyt_node_save_soon(node); /* until it is written the next restart sees the same */
}

/* It has received a session from another node, whose client had not come. Likewise. */
static const char *take_back_received(struct flyt_node_stranger *stranger,
                                      const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_manager_link_session *session = &rejoin->session;
    struct flyt_node *node = stranger->node;
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, session->allocation_id);
    pid_t pid;

    const char *reason = flyt_node_receive_return_check(allocation, rejoin);
    for (unsigned i = 0; !reason && i < session->slot_count; i++)
        if (!allocation->slots[i].gpu || gpu_of(node, &session->slots[i]) != allocation->slots[i].gpu)
            reason = "the session has other devices than its VM";
    if (reason)
        return reason;
    int pid_fd = peer_process(stranger->fd, &pid);
    if (pid_fd < 0)
        return "its process has gone";
    struct flyt_node_server *server =
        flyt_node_server_adopt(node, allocation->slots[0].gpu, pid, stranger->uid, pid_fd, stranger->fd);
    stranger->fd = -1;
    if (!server)
        return "the node manager has no memory";
    server->takes = rejoin->takes;
    server->has.server_id = session->server_id;
    for (unsigned i = 0; i < session->slot_count; i++)
        server->has.gpus[i] = allocation->slots[i].gpu;
    reason = flyt_node_receive_return(allocation, server, rejoin);
    if (reason)
        flyt_node_server_end(server, reason);
    return reason;
}

/* send_extents: extents are missing here that the server has. */
static void welcome(struct flyt_node_server *server, bool send_extents)
{
    struct flyt_manager_link_message *message = calloc(1, sizeof *message);

    if (!message)
        return;
    message->kind = FLYT_MANAGER_LINK_WELCOME;
    message->welcome.send_extents = send_extents;
    flyt_node_server_send(server, message, NULL, 0);
    free(message);
}

/* The server that comes, or who has its session, where that has not ended. NULL: neither. */
static struct flyt_node_server *find_listed(const struct flyt_node *node,
                                            const struct flyt_manager_link_session *session)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next)
        if (flyt_node_server_allocation(server) && server->has.server_id == session->server_id)
            return server;
    return flyt_node_server_find(node, session->session_id);
}

static bool is_itself(const struct flyt_node_server *server, const struct flyt_node_stranger *stranger,
                      const struct flyt_manager_link_rejoin *rejoin)
{
    const struct flyt_manager_link_session *session = &rejoin->session;
    pid_t pid = 0;

    flyt_close(peer_process(stranger->fd, &pid));
    return server->has.server_id == session->server_id && server->session->id == session->session_id &&
           flyt_node_server_allocation(server)->now.id == session->allocation_id && !rejoin->received_move_id &&
           server->uid == stranger->uid && server->pid == pid;
}

/*
 * It has lost its link alone: it could not send for a minute, say, because this machine stood still. What it has sent
 * over the old link comes first; what it was told there and has not read is lost, as after a restart. What it did not
 * do without its node manager it has given up by itself. NULL, or why it is sent away. Takes over stranger->fd where it
 * succeeds.
 */
static const char *take_up(struct flyt_node_stranger *stranger, const struct flyt_manager_link_rejoin *rejoin,
                           struct flyt_node_server *server)
{
    if (!is_itself(server, stranger, rejoin))
        return "the session is there already";
    flyt_node_server_read_all(server);
    flyt_node_session_save_link_lost(server);
    const char *reason = server->state == FLYT_NODE_SERVER_ENDING || !flyt_node_server_allocation(server)
                             ? "the session is ending"
                             : flyt_node_move_link_lost(server, rejoin->left_move_id);
    if (reason)
        return *server->end_reason ? server->end_reason : reason;
    int status = flyt_node_server_change_link(server, stranger->fd);
    stranger->fd = -1;
    if (status < 0) {
        flyt_node_server_end(server, "the node manager has no memory");
        return server->end_reason;
    }
    /* The end of its link may have been taken for that of its process. */
    flyt_node_target_abandon(server->session);
    if (!server->session->replacement.gone_us)
        server->session->replacement.end_us = 0;
    server->session->asked_ms = 0;
    server->has.use.is_replaceable = 0; /* before it says so again */
    flyt_node_broker_exit(server);      /* it tells what it has of others', which is there once */
    welcome(server, server->has.extents.count < rejoin->extent_count);
    if (flyt_node_server_listens(server, flyt_node_server_allocation(server))) {
        tell_missed(server, rejoin);
        flyt_node_share_reattach(server, &rejoin->session);
        flyt_node_groups_look(server->node, flyt_node_server_allocation(server));
    }
    flyt_info("session %016" PRIx64 ": its server has its link again, vm=%s program=%s server_pid=%d extents=%u",
              server->session->id, server->session->allocation->now.vm_ip, server->session->ticket.program,
              (int)server->pid, server->has.extents.count);
    return NULL;
}

/* Server and session are as they were. NULL, or why not. Takes over stranger->fd where it succeeds. */
static const char *take_back(struct flyt_node_stranger *stranger, const struct flyt_manager_link_rejoin *rejoin,
                             const int *fds, unsigned fd_count)
{
    const struct flyt_manager_link_session *session = &rejoin->session;
    struct flyt_node *node = stranger->node;
    pid_t pid;

    const char *reason = check(node, stranger->uid, rejoin);
    if (reason)
        return reason;
    struct flyt_node_server *listed = find_listed(node, session);
    if (listed)
        return take_up(stranger, rejoin, listed);
    if (rejoin->received_move_id)
        return take_back_received(stranger, rejoin);
    forget_image(node, session->session_id);
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, session->allocation_id);
    if (!allocation)
        allocation = make_orphan(node, session);
    if (!allocation || !allocation->slots[0].gpu || !gpu_of(node, &session->slots[0]))
        return "the node has its GPU no more";
    if (allocation->is_removed)
        return "the allocation of this VM was taken back";
    int status = flyt_node_allocation_take_ledgers(node, allocation, fds, session->ledger_count);
    if (status == -EPROTO)
        return "it is of a build that accounts for memory in another way than this node manager";
    if (status)
        return "it has come back too late: its memory is accounted for no more";
    /* Where the wait for it was over already, its charge was taken back. */
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (!has_entry(allocation->slots[i].ledger, session->server_id))
            return "it has come back too late: its memory is accounted for no more";
    int pid_fd = peer_process(stranger->fd, &pid);
    if (pid_fd < 0)
        return "its process has gone";
    struct flyt_node_server *server =
        flyt_node_server_adopt(node, gpu_of(node, &session->slots[0]), pid, stranger->uid, pid_fd, stranger->fd);
    stranger->fd = -1;
    if (!server)
        return "the node manager has no memory";
    struct flyt_node_session *its = flyt_node_session_new(node, allocation, session->session_id, session->token);
    if (!its) {
        flyt_node_server_end(server, "the node manager has no memory");
        return server->end_reason;
    }
    flyt_node_session_serve(its, server);
    server->takes = rejoin->takes;
    server->has.server_id = session->server_id;
    its->started_ms = rejoin->started_ms;
    its->is_encrypted = session->is_encrypted;
    its->leaves_coredumps = flyt_manager_link_leaves_coredumps(session);
    its->ticket.allocation_id = session->allocation_id;
    its->ticket.client_pid = rejoin->client_pid;
    flyt_node_clean_name(rejoin->program, its->ticket.program, sizeof its->ticket.program);
    flyt_node_clean_name(rejoin->client_address, its->ticket.client_address, sizeof its->ticket.client_address);
    flyt_node_cgroups_enter(&node->cgroups, server->pid, allocation->now.vm_ip, server->cgroup);
    flyt_node_allocation_join(allocation);
    flyt_node_extents_restore(node, &server->has.extents, server->has.server_id);
    welcome(server, server->has.extents.count < rejoin->extent_count);
    reason = note_side(server, rejoin);
    if (!reason && flyt_node_killed_has(&node->state, server->session->id))
        reason = FLYT_NODE_KILLED_TEXT;
    if (reason)
        flyt_node_server_end(server, reason);
    tell_missed(server, rejoin);
    flyt_node_share_reattach(server, session);
    flyt_node_switch_settle(node, allocation);
    flyt_node_groups_look(node, allocation);
    flyt_info("session %016" PRIx64 ": is there again, vm=%s program=%s server_pid=%d extents=%u", server->session->id,
              allocation->now.vm_ip, server->session->ticket.program, (int)pid, server->has.extents.count);
    return NULL;
}

static int on_stranger(sd_event_source *source, int fd, uint32_t events, void *user)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */
    struct flyt_node_stranger *stranger = user;
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    int status = flyt_manager_link_receive(fd, &message, fds, &fd_count);
    if (status == -EAGAIN)
        return 0;
    const char *reason = NULL;
    if (!status) {
        /* The server's own source watches the descriptor from now on. */
        stranger->source = sd_event_source_disable_unref(stranger->source);
        reason = message.kind == FLYT_MANAGER_LINK_REJOIN ? take_back(stranger, &message.rejoin, fds, fd_count)
                                                          : "a server that comes back says so first";
    }
    if (reason && stranger->fd >= 0) {
        flyt_warn("a server that came back is sent away: %s", reason);
        send_away(stranger->fd, reason);
    }
    while (fd_count)
        flyt_close(fds[--fd_count]);
    free_stranger(stranger);
    return 0;
}

static int on_stranger_timeout(sd_event_source *source, uint64_t usec, void *user)
{
    free_stranger(user);
    return 0;
}

/* A user whose processes do not say who they are takes no more from others than this. */
static bool is_crowd(struct flyt_node *node, uid_t uid)
{
    unsigned count = 0;

    if (uid == geteuid())
        return false;
    for (const struct flyt_node_stranger *stranger = node->ops->strangers; stranger; stranger = stranger->next)
        count += stranger->uid == uid;
    if (count < STRANGERS_OF_USER_MAX)
        return false;
    if (!node->ops->is_crowd_told)
        flyt_warn("user %u has %u connections to %s that say nothing: further ones are closed", (unsigned)uid, count,
                  node->link_path);
    node->ops->is_crowd_told = true;
    return true;
}

/* Takes over fd. */
static void receive_stranger(struct flyt_node *node, int fd, uid_t uid)
{
    struct flyt_node_stranger *stranger = calloc(1, sizeof *stranger);

    if (!stranger) {
        flyt_close(fd);
        return;
    }
    *stranger = (struct flyt_node_stranger){.next = node->ops->strangers, .node = node, .fd = fd, .uid = uid};
    node->ops->strangers = stranger;
    node->ops->stranger_count++;
    if (sd_event_add_io(node->event, &stranger->source, fd, EPOLLIN, on_stranger, stranger) < 0 ||
        sd_event_add_time_relative(node->event, &stranger->timer, CLOCK_MONOTONIC, STRANGER_MS * 1000, 1000,
                                   on_stranger_timeout, stranger) < 0)
        free_stranger(stranger);
}

static bool has_room(void *user)
{
    const struct flyt_node *node = user;

    return node->ops->stranger_count < STRANGERS_MAX;
}

static void on_accepted(int fd, void *user)
{
    struct flyt_node *node = user;
    struct ucred peer;
    socklen_t length = sizeof peer;
    bool is_known = !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length);
    uid_t uid = is_known && peer.uid ? peer.uid : geteuid();

    if (!is_known || is_crowd(node, uid))
        flyt_close(fd);
    else
        receive_stranger(node, fd, uid);
}

void flyt_node_reattach_fini(struct flyt_node *node)
{
    node->ops->acceptor = flyt_acceptor_free(node->ops->acceptor);
    while (node->ops->strangers)
        free_stranger(node->ops->strangers);
}

int flyt_node_reattach_open(struct flyt_node *node)
{
    if (node->daemon)
        node->ops->link_fd = flyt_daemon_take(node->daemon, "link");
    if (node->ops->link_fd < 0) {
        node->ops->link_fd = flyt_manager_link_listen(node->link_path);
        if (node->ops->link_fd < 0)
            return node->ops->link_fd;
        flyt_node_keep(node, "link", node->ops->link_fd);
    }
    return 0;
}

int flyt_node_reattach_listen(struct flyt_node *node)
{
    const struct flyt_acceptor_config config = {.event = node->event,
                                                .listen_fd = node->ops->link_fd,
                                                .paused = "servers cannot come back until it works again",
                                                .has_room = has_room,
                                                .accepted = on_accepted,
                                                .user = node};
    int status = flyt_node_uids_show_link(node);

    return status ? status : flyt_acceptor_new(&config, &node->ops->acceptor);
}
