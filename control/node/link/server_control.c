#include "control/node/link/server_control.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "control/node/model/allocation.h"
#include "control/node/process/mps.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

#define STATE(name) (1u << FLYT_NODE_SERVER_##name)

/* Which states may follow one, besides ENDING. */
static const unsigned next_states[] = {
    [FLYT_NODE_SERVER_STARTING] = STATE(WARM),
    [FLYT_NODE_SERVER_WARM] = STATE(SERVING) | STATE(TAKING) | STATE(PREPARING),
    [FLYT_NODE_SERVER_SERVING] = STATE(SERVING) | STATE(LEFT) | STATE(PREPARING), /* PREPARING: after a restart */
    [FLYT_NODE_SERVER_TAKING] = STATE(SERVING),
    [FLYT_NODE_SERVER_PREPARING] = STATE(SERVING),
    [FLYT_NODE_SERVER_LEFT] = STATE(LEFT) | STATE(SERVING),
    /* A new one, or what is elsewhere for good; nothing else is given to one that ends. */
    [FLYT_NODE_SERVER_ENDING] = STATE(STARTING) | STATE(SERVING) | STATE(LEFT),
};

void flyt_node_server_set_state(struct flyt_node_server *server, enum flyt_node_server_state state)
{
    struct flyt_node *node = server->node;
    struct flyt_node_starts *starts = &node->starts[server->gpu->index];
    unsigned *const counts[] = {[FLYT_NODE_SERVER_STARTING] = &starts->starting,
                                [FLYT_NODE_SERVER_WARM] = &starts->warm,
                                [FLYT_NODE_SERVER_SERVING] = &starts->serving,
                                [FLYT_NODE_SERVER_PREPARING] = &starts->serving,
                                [FLYT_NODE_SERVER_LEFT] = &starts->serving};

    assert((next_states[server->state] | STATE(ENDING)) & 1u << state);
    if (counts[server->state])
        --*counts[server->state];
    node->starting_count -= server->state == FLYT_NODE_SERVER_STARTING;
    server->state = state;
    if (counts[state])
        ++*counts[state];
    node->starting_count += state == FLYT_NODE_SERVER_STARTING;
}

void flyt_node_server_hang_up(struct flyt_node_server *server)
{
    sd_event_source_disable_unref(server->link_source);
    server->link_source = NULL;
    server->link_fd = flyt_close(server->link_fd);
}

static int on_grace_over(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_server *server = user;

    if (server->pid_fd < 0)
        return 0; /* as soon as it is there (flyt_node_server_started) */
    server->was_killed = true;
    /* Under MPS a client's sudden death may harm its neighbours: MPS is asked to end it first, then kills it. After a
     * fault of the GPU nothing of it runs any more, and MPS would not answer for seconds. */
    if (server->node->mps && server->gpu->isolation == FLYT_ISOLATION_SHARED && !server->fault.is_hit)
        flyt_node_mps_end_client(server->node, server->gpu->index, server->pid, server->pid_fd);
    else
        syscall(SYS_pidfd_send_signal, server->pid_fd, SIGKILL, NULL, 0);
    return 0;
}

void flyt_node_server_kill(struct flyt_node_server *server)
{
    on_grace_over(NULL, 0, server);
}

void flyt_node_retransmit_fini(struct flyt_node_server *server)
{
    server->unanswered.timer = sd_event_source_disable_unref(server->unanswered.timer);
}

void flyt_node_server_end(struct flyt_node_server *server, const char *reason)
{
    static struct flyt_manager_link_message message;
    bool was_serving = server->state == FLYT_NODE_SERVER_SERVING || server->state == FLYT_NODE_SERVER_LEFT;
    /* It may take the link's end for that of a node manager which it is to outlive. */
    bool was_preparing = server->state == FLYT_NODE_SERVER_PREPARING || server->state == FLYT_NODE_SERVER_TAKING;
    uint64_t grace_ms = server->state == FLYT_NODE_SERVER_STARTING ? 0 : server->node->settings->kill_grace_ms;

    if (server->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
    if (reason)
        snprintf(server->end_reason, sizeof server->end_reason, "%s", reason);
    message.kind = FLYT_MANAGER_LINK_KILL;
    flyt_manager_link_say(&message, reason);
    flyt_node_retransmit_fini(server);
    /* Nothing of what it has not read matters any more. Where this does not come there either, it is killed. */
    flyt_node_link_queue_clear(&server->queue);
    if ((was_serving || was_preparing) && server->link_fd >= 0)
        flyt_node_link_queue_lend(&server->queue, &message, NULL, 0);
    if (!was_serving || server->link_fd < 0)
        flyt_node_server_hang_up(server); /* a warm one ends by itself */
    server->timer = sd_event_source_disable_unref(server->timer);
    if (sd_event_add_time_relative(server->node->event, &server->timer, CLOCK_MONOTONIC, grace_ms * 1000, 1000,
                                   on_grace_over, server) < 0)
        on_grace_over(NULL, 0, server);
}

void flyt_node_server_end_watched(struct flyt_node_server *server, enum flyt_node_watched watched, const char *event,
                                  const char *reason)
{
    char id[20];

    snprintf(id, sizeof id, "%016" PRIx64, flyt_node_server_session_id(server));
    server->node->watched[watched]++;
    flyt_node_tell(server->node, event, id, "program %s of VM %s is ended: %s", server->session->ticket.program,
                   server->session->allocation->now.vm_ip, reason);
    flyt_node_server_end(server, reason);
    flyt_node_server_kill(server);
}

void flyt_node_retransmit_give_up(struct flyt_node_server *server, const char *reason)
{
    char id[20];

    if (server->state == FLYT_NODE_SERVER_ENDING)
        return;
    if (flyt_node_server_allocation(server)) {
        snprintf(id, sizeof id, "%016" PRIx64, flyt_node_server_session_id(server));
        flyt_node_tell(server->node, "session.silent", id, "program %s of VM %s is ended: %s",
                       server->session->ticket.program, server->session->allocation->now.vm_ip, reason);
    }
    flyt_node_server_end(server, reason);
}

int flyt_node_server_send(struct flyt_node_server *server, const struct flyt_manager_link_message *message,
                          const int *fds, unsigned fd_count)
{
    int status = flyt_node_link_queue_lend(&server->queue, message, fds, fd_count);

    if (status && status != -EPIPE) /* where it has gone, that is said elsewhere */
        flyt_warn("session %016" PRIx64 ": its server process %d cannot be told, kind=%u: %s",
                  flyt_node_server_session_id(server), (int)server->pid, message->kind, strerror(-status));
    if (status == -ENOBUFS)
        flyt_node_retransmit_give_up(server, "its server does not read what its node tells it");
    return status;
}

bool flyt_node_server_uses(const struct flyt_node_server *server, const struct flyt_node_gpu *gpu)
{
    return server->gpu == gpu || flyt_node_holding_uses(&server->has, gpu);
}

bool flyt_node_server_may_wait(const struct flyt_node_server *server)
{
    return server->node->session_ops->may_wait(server);
}

void flyt_node_server_returned(struct flyt_node_server *server, bool has_work)
{
    if (has_work && !server->was_killed) {
        flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
        server->timer = sd_event_source_disable_unref(server->timer);
        on_grace_over(NULL, 0, server);
    }
    if (server->state == FLYT_NODE_SERVER_ENDING)
        return;
    flyt_node_server_set_state(server, FLYT_NODE_SERVER_ENDING);
    if (sd_event_add_time_relative(server->node->event, &server->timer, CLOCK_MONOTONIC,
                                   server->node->settings->kill_grace_ms * 1000, 1000, on_grace_over, server) < 0)
        on_grace_over(NULL, 0, server);
}

void flyt_node_server_end_anywhere(struct flyt_node_server *server, const char *reason)
{
    if (server->role && server->role->ops->on_end)
        server->role->ops->on_end(server, reason);
    flyt_node_server_end(server, reason);
}
