#include "control/node/link/retransmit.h"

#include <inttypes.h>
#include <stdio.h>

#include "control/node/link/server_control.h"
#include "control/node/link/server_orders.h"
#include "control/node/link/share.h"
#include "control/node/model/allocation.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

/* A server that was never told of a slot's groups is told of them, too. */
static bool owes_groups(const struct flyt_node_server *server, unsigned slot)
{
    return server->sm_revision[slot] != flyt_node_server_allocation(server)->slots[slot].groups_revision ||
           server->sm_state[slot] == FLYT_SWITCH_TARGET;
}

static bool owes_limit(const struct flyt_node_server *server, unsigned slot)
{
    return server->limit_done[slot] < server->limit_told[slot].number;
}

static bool owes_share(const struct flyt_node_server *server, unsigned slot)
{
    return server->share_told[slot] && server->share_done[slot] != server->share_told[slot] &&
           !server->has_share_failed[slot];
}

static bool owes_any(const struct flyt_node_server *server)
{
    const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

    /* One that is on its way elsewhere, or ends, answers by that. */
    if (!allocation || server->state != FLYT_NODE_SERVER_SERVING || server->link_fd < 0 ||
        !flyt_node_server_listens(server, allocation))
        return false;
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (owes_groups(server, i) || owes_limit(server, i) || owes_share(server, i))
            return true;
    return false;
}

static void send_again(struct flyt_node_server *server)
{
    const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);

    /* What it has not even read comes there by itself. */
    if (!flyt_node_link_queue_is_empty(&server->queue))
        return;
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++) {
        if (owes_groups(server, i))
            flyt_node_server_tell_groups(server, i);
        if (owes_limit(server, i))
            flyt_node_server_repeat_limit(server, i);
        if (owes_share(server, i))
            flyt_node_share_repeat(server, i);
    }
}

/* Slow programs may keep a server from answering an order; LIMIT is answered soon. */
static void probe(struct flyt_node_server *server)
{
    const flyt_slot *slot = &flyt_node_server_allocation(server)->now.slots.slots_val[0];

    server->unanswered.is_probed = true;
    if (!owes_limit(server, 0))
        flyt_node_server_tell_limit(server, 0, slot->memory_bytes, flyt_node_server_allocation(server)->now.revision,
                                    false);
}

static void tell(struct flyt_node_server *server)
{
    char id[20];

    server->unanswered.is_told = true;
    snprintf(id, sizeof id, "%016" PRIx64, server->session->id);
    flyt_warn("session %s: its server process %d has answered nothing for %u s", id, (int)server->pid,
              FLYT_NODE_UNANSWERED_MS / 1000);
    flyt_node_tell(server->node, "session.unanswered", id,
                   "program %s of VM %s: its server has not carried out what it was told %u s ago",
                   server->session->ticket.program, server->session->allocation->now.vm_ip,
                   FLYT_NODE_UNANSWERED_MS / 1000);
}

int flyt_node_retransmit_on_time(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node_server *server = user;
    const uint64_t lost_ms = server->node->settings->server_lost_ms;
    uint64_t silent_ms = flyt_clock_ms() - server->unanswered.since_ms;

    if (server->state == FLYT_NODE_SERVER_LEFT) { /* it may be come back to */
        flyt_node_unanswered_arm(server);
        return 0;
    }
    if (!owes_any(server)) {
        flyt_node_retransmit_fini(server);
        return 0;
    }
    if (silent_ms >= FLYT_NODE_UNANSWERED_MS && !server->unanswered.is_told)
        tell(server);
    if (lost_ms && silent_ms >= lost_ms && server->unanswered.is_probed) {
        flyt_node_retransmit_give_up(server, "its server has not answered its node for too long");
        return 0;
    }
    if (silent_ms >= FLYT_NODE_UNANSWERED_MS || (lost_ms && silent_ms >= lost_ms / 2))
        probe(server);
    send_again(server);
    if (server->state == FLYT_NODE_SERVER_SERVING)
        flyt_node_unanswered_arm(server);
    return 0;
}
