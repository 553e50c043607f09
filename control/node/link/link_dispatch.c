#include "control/node/link/link_dispatch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "control/node/link/broker.h"
#include "control/node/link/fault.h"
#include "control/node/link/groups.h"
#include "control/node/link/retransmit.h"
#include "control/node/link/share.h"
#include "control/node/link/starts.h"
#include "control/node/memory/extent.h"
#include "control/node/process/coredumps.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

static void on_ready(struct flyt_node_server *server, const struct flyt_manager_link_message *message)
{
    struct flyt_node *node = server->node;
    struct flyt_error err = {0};

    if (server->state != FLYT_NODE_SERVER_STARTING)
        return;
    if (flyt_node_gpu_learn(server->gpu, &message->ready, &err)) {
        flyt_node_server_end(server, NULL);
        flyt_node_starts_failed(node, server->gpu, err.text);
        return;
    }
    server->context_bytes = message->ready.reserve_bytes;
    server->takes = message->ready.takes;
    server->gpu->is_mps = message->ready.is_mps != 0;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_WARM);
    flyt_debug("server process %d: ready, gpu=%u", (int)server->pid, server->gpu->index);
    flyt_node_starts_ready(node, server->gpu);
}

static void on_failed(struct flyt_node_server *server, const struct flyt_manager_link_message *message)
{
    struct flyt_node_gpu *gpu = server->gpu;
    struct flyt_node *node = server->node;

    if (server->state != FLYT_NODE_SERVER_STARTING)
        return;
    flyt_node_server_end(server, NULL);
    flyt_node_starts_failed(node, gpu, (const char *)message->data);
}

static void tell_extent(struct flyt_node_server *server, const struct flyt_manager_link_extent *extent, int fd)
{
    if (server->role && server->role->ops->on_extent)
        server->role->ops->on_extent(server, extent, fd);
}

/* Only a session's server may hold memory, and only on the session's devices. */
static void on_extent(struct flyt_node_server *server, const struct flyt_manager_link_message *message, int fd)
{
    const struct flyt_manager_link_extent *extent = &message->extent;

    if (!flyt_node_server_allocation(server) ||
        extent->slot >= flyt_node_server_allocation(server)->now.slots.slots_len) {
        flyt_close(fd);
        return;
    }
    int status = flyt_node_extent_add(server->node, &server->has.extents, server->has.server_id, extent, fd);
    if (!status)
        tell_extent(server, extent, fd);
    if (status && status != -EEXIST) /* after a restart it may be there already */
        flyt_warn("session %016" PRIx64 ": memory of it is not held: %s", flyt_node_server_session_id(server),
                  strerror(-status));
}

static void on_extent_gone(struct flyt_node_server *server, struct flyt_manager_link_message *message)
{
    unsigned slot;
    uint64_t bytes;

    if (server->role && server->role->ops->on_extent_gone)
        server->role->ops->on_extent_gone(server, message->extent.extent_id);
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    if (!allocation)
        return;
    if (flyt_node_extent_remove(server->node, &server->has.extents, server->has.server_id, message->extent.extent_id,
                                &slot, &bytes)) {
        slot = message->extent.slot; /* not held: the server credits its charge itself */
        bytes = 0;
    }
    flyt_node_broker_extent_gone(server, message->extent.extent_id);
    if (bytes && slot < allocation->now.slots.slots_len && allocation->slots[slot].ledger) {
        int status = flyt_ledger_release(allocation->slots[slot].ledger, server->has.server_id, bytes);
        if (status)
            flyt_warn("session %016" PRIx64 ": memory that it gave back is not credited here: %s",
                      flyt_node_server_session_id(server), strerror(-status));
    }
    message->kind = FLYT_MANAGER_LINK_EXTENT_CREDITED;
    message->extent.slot = slot;
    message->extent.bytes = bytes;
    message->data_bytes = 0;
    flyt_node_server_send(server, message, NULL, 0);
    flyt_node_raise_of(allocation, FLYT_NODE_EVENT_MEMORY_FREED);
}

/* Where it writes what it executes, for the time when it is dead. */
static void on_record(struct flyt_node_server *server, int fd)
{
    const struct flyt_call_record *record;

    int status = flyt_node_server_allocation(server) ? flyt_call_record_map(fd, &record) : -EPROTO;
    flyt_close(fd);
    if (status) {
        flyt_warn("session %016" PRIx64 ": what its server executes is not known: %s",
                  flyt_node_server_session_id(server), strerror(-status));
        return;
    }
    flyt_call_record_unmap(server->record);
    server->record = record;
}

static void on_sm_done(struct flyt_node_server *server, const struct flyt_manager_link_sm_done *done)
{
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

    if (!allocation || done->revision != server->sm_revision[done->slot])
        return; /* of an earlier order */
    flyt_node_retransmit_answered(server);
    if (done->state < 0) {
        flyt_warn("session %016" PRIx64 ": its SMs are not changed: %s", flyt_node_server_session_id(server),
                  strerror(-done->state));
        flyt_node_tell(server->node, "session.resize_failed", "", "session %016" PRIx64 ": %s",
                       flyt_node_server_session_id(server), strerror(-done->state));
        server->sm_state[done->slot] = FLYT_SWITCH_KEPT;
        flyt_node_groups_look(server->node, allocation);
        return;
    }
    server->sm_state[done->slot] =
        done->state == FLYT_MANAGER_LINK_VACATED ? FLYT_SWITCH_VACATED : FLYT_SWITCH_SWITCHED;
    flyt_node_groups_look(server->node, allocation);
}

static void on_use(struct flyt_node_server *server, const struct flyt_manager_link_message *message)
{
    bool needs_more =
        memcmp(server->has.use.needed_sms, message->use.needed_sms, sizeof server->has.use.needed_sms) != 0 ||
        memcmp(server->has.use.opened, message->use.opened, sizeof server->has.use.opened) != 0;
    server->has.use = message->use;
    server->has.has_use = true;
    if (needs_more)
        flyt_node_changed(server->node);
    snprintf(server->has.why_not, sizeof server->has.why_not, "%.*s", (int)sizeof server->has.why_not - 1,
             (const char *)message->data);
    if (server->role && server->role->ops->on_use)
        server->role->ops->on_use(server);
    server->node->session_ops->on_use(server);
    if (flyt_node_server_allocation(server))
        flyt_node_broker_look(flyt_node_server_allocation(server));
}

enum { COREDUMPS_MAX = 2 }; /* that are told of a session: it leaves one, which may be removed afterwards */

/* What its program has left, or could not leave, in the folder that its VM has here. */
static void on_coredump(struct flyt_node_server *server, const struct flyt_manager_link_message *message)
{
    const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    const char *name = (const char *)message->data;
    bool is_done = message->coredump.state == FLYT_MANAGER_LINK_COREDUMP_DONE;
    char path[FLYT_NODE_COREDUMPS_PATH_BYTES], id[20];

    if (allocation && message->coredump.state == FLYT_MANAGER_LINK_COREDUMP_ENABLED) {
        server->session->leaves_coredumps = true;
        return;
    }
    if (!allocation || !flyt_node_coredumps_is_name(name) ||
        flyt_node_coredumps_path(server->node, allocation->now.vm_ip, path)) {
        flyt_warn("server process %d: tells of a core dump that is none", (int)server->pid);
        return;
    }
    const bool is_begun = message->coredump.state == FLYT_MANAGER_LINK_COREDUMP_BEGUN;
    flyt_node_fault_dumps(server, is_begun);
    if (is_begun || server->coredumps.told_count > COREDUMPS_MAX)
        return;
    if (server->coredumps.told_count++ == COREDUMPS_MAX) {
        flyt_warn("session %016" PRIx64 ": tells of more core dumps than it can leave: no more is told of them",
                  flyt_node_server_session_id(server));
        return;
    }
    snprintf(id, sizeof id, "%016" PRIx64, flyt_node_server_session_id(server));
    flyt_node_tell(server->node, "session.coredump", id, "program %s of VM %s: core dump %s/%s %s%" PRIu64 " bytes",
                   server->session->ticket.program, server->session->allocation->now.vm_ip, path, name,
                   is_done ? "" : "was removed, for the VM's would have been more than vm.coredumps allows; it had ",
                   message->coredump.bytes);
}

/* fd: of a kind that has one; taken over. */
static void dispatch(struct flyt_node_server *server, struct flyt_manager_link_message *message, int fd)
{
    switch (message->kind) {
    case FLYT_MANAGER_LINK_READY:
        on_ready(server, message);
        break;
    case FLYT_MANAGER_LINK_FAILED:
        on_failed(server, message);
        break;
    case FLYT_MANAGER_LINK_EXTENT:
        on_extent(server, message, fd);
        break;
    case FLYT_MANAGER_LINK_EXTENT_GONE:
        on_extent_gone(server, message);
        break;
    case FLYT_MANAGER_LINK_LIMIT_DONE:
        flyt_node_server_limit_done(server, &message->limit_done);
        if (flyt_node_server_allocation(server))
            flyt_node_raise_of(flyt_node_server_allocation(server), FLYT_NODE_EVENT_LIMIT_ANSWERED);
        break;
    case FLYT_MANAGER_LINK_NEED:
        flyt_node_server_needs(server, &message->need);
        break;
    case FLYT_MANAGER_LINK_SM_DONE:
        on_sm_done(server, &message->sm_done);
        break;
    case FLYT_MANAGER_LINK_SHARE_DONE:
        flyt_node_share_done(server, &message->share_done);
        break;
    case FLYT_MANAGER_LINK_USE:
        on_use(server, message);
        break;
    case FLYT_MANAGER_LINK_FAULT:
        flyt_node_fault_report(server, (const char *)message->data, message->fault.had_work != 0);
        break;
    case FLYT_MANAGER_LINK_MOVE_STATE:
    case FLYT_MANAGER_LINK_STOPPED:
    case FLYT_MANAGER_LINK_LEFT:
    case FLYT_MANAGER_LINK_LIBRARY:
    case FLYT_MANAGER_LINK_LOCKS:
    case FLYT_MANAGER_LINK_LOCKS_DONE:
    case FLYT_MANAGER_LINK_MADE:
    case FLYT_MANAGER_LINK_PREPARED:
        (server->role ? server->role->ops->on_message : server->node->session_ops->on_message)(server, message, fd);
        break;
    case FLYT_MANAGER_LINK_RECORD:
        on_record(server, fd);
        break;
    case FLYT_MANAGER_LINK_COREDUMP:
        on_coredump(server, message);
        break;
    case FLYT_MANAGER_LINK_VM_MEMORY:
        if (flyt_node_server_allocation(server))
            flyt_node_server_take_vm_memory(server, fd);
        else
            flyt_close(fd);
        break;
    case FLYT_MANAGER_LINK_LOCKED_LEDGER:
        if (flyt_node_server_allocation(server))
            flyt_node_allocation_take_locked_ledger(flyt_node_server_allocation(server), fd);
        flyt_close(fd);
        break;
    case FLYT_MANAGER_LINK_EXPORT:
    case FLYT_MANAGER_LINK_EXPORT_GONE:
    case FLYT_MANAGER_LINK_IMPORT:
    case FLYT_MANAGER_LINK_IMPORT_HELD:
    case FLYT_MANAGER_LINK_IMPORT_GONE:
    case FLYT_MANAGER_LINK_EVENT_EXPORT:
    case FLYT_MANAGER_LINK_EVENT_IMPORT:
        flyt_node_broker_on_message(server, message, fd);
        break;
    case FLYT_MANAGER_LINK_RETURN:
        if (message->data_bytes && !*server->end_reason)
            snprintf(server->end_reason, sizeof server->end_reason, "%.*s", (int)sizeof server->end_reason - 1,
                     (const char *)message->data);
        flyt_node_server_returned(server, message->returned.has_work != 0);
        break;
    default:
        flyt_warn("server process %d: says what a server does not say, kind=%u", (int)server->pid, message->kind);
    }
}

/* One message. 1; 0: there is none; -1: the socket has ended. */
static int read_one(struct flyt_node_server *server)
{
    static struct flyt_manager_link_message message; /* the loop's thread only */
    int fds[FLYT_MANAGER_LINK_DESCRIPTORS_MAX];
    unsigned fd_count = 0;

    int status = flyt_manager_link_receive(server->link_fd, &message, fds, &fd_count);
    if (status == -EAGAIN || status == -EINTR || status == -ENOMEM)
        return 0;
    if (status == -EBADMSG) {
        flyt_warn("server process %d: sends what is no message of ours", (int)server->pid);
        return 1;
    }
    if (status)
        return -1;
    bool is_taken =
        fd_count && (message.kind == FLYT_MANAGER_LINK_EXTENT || message.kind == FLYT_MANAGER_LINK_STOPPED ||
                     message.kind == FLYT_MANAGER_LINK_MADE || message.kind == FLYT_MANAGER_LINK_RECORD ||
                     message.kind == FLYT_MANAGER_LINK_VM_MEMORY || message.kind == FLYT_MANAGER_LINK_EVENT_EXPORT ||
                     message.kind == FLYT_MANAGER_LINK_LOCKS || message.kind == FLYT_MANAGER_LINK_LOCKED_LEDGER);
    dispatch(server, &message, is_taken ? fds[0] : -1);
    for (unsigned i = is_taken; i < fd_count; i++)
        flyt_close(fds[i]);
    return 1;
}

void flyt_node_server_read_all(struct flyt_node_server *server)
{
    while (server->link_fd >= 0 && read_one(server) > 0)
        continue;
}

static int on_link(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct flyt_node_server *server = user;

    if (read_one(server) < 0) {
        server->node->session_ops->on_link_end(server);
        flyt_node_server_hang_up(server); /* its process's end says the rest */
    }
    return 0;
}

static int watch_link(struct flyt_node_server *server)
{
    return sd_event_add_io(server->node->event, &server->link_source, server->link_fd, EPOLLIN, on_link, server);
}

int flyt_node_server_watch(struct flyt_node_server *server)
{
    int status = sd_event_add_io(server->node->event, &server->pid_source, server->pid_fd, EPOLLIN,
                                 flyt_node_server_on_exit, server);

    return status >= 0 && server->link_fd >= 0 ? watch_link(server) : status;
}

int flyt_node_server_change_link(struct flyt_node_server *server, int fd)
{
    flyt_node_server_hang_up(server);
    /* Neither what waits for the link before, nor that it failed, is the new one's. */
    flyt_node_link_queue_fini(&server->queue);
    flyt_node_link_queue_init(&server->queue, server->node->event, &server->link_fd);
    server->link_fd = fd;
    return watch_link(server);
}
