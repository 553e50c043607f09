#include "control/node/charge.h"

#include <inttypes.h>

#include "control/node/allocation.h"
#include "control/node/owed.h"
#include "rpc/base/log.h"

void flyt_node_charge_lend(struct flyt_node_server *server, const struct flyt_node_server *session)
{
    server->charged.entry_id = session->server_id;
    server->charged.allocation_id = session->allocation->now.id;
    server->charged.has_stayed = false;
}

void flyt_node_charge_take(struct flyt_node_server *server, uint64_t entry_id)
{
    flyt_node_charge_leave(server);
    for (struct flyt_node_server *other = server->node->servers; other; other = other->next)
        if (other->charged.entry_id == entry_id)
            other->charged.entry_id = server->server_id;
}

void flyt_node_charge_leave(struct flyt_node_server *server)
{
    server->charged.entry_id = 0;
}

static void reclaim(struct flyt_node *node, const struct flyt_node_allocation *allocation, uint64_t entry_id)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (allocation->slots[i].ledger)
            flyt_node_owed_reclaim(node, allocation->slots[i].ledger, entry_id);
}

void flyt_node_charge_end(const struct flyt_node_server *session)
{
    bool stays = false;

    for (struct flyt_node_server *server = session->node->servers; server; server = server->next) {
        if (server == session || server->charged.entry_id != session->server_id)
            continue;
        server->charged.has_stayed = stays = true;
        flyt_debug("session %016" PRIx64
                   ": server process %d has memory of it, which stays charged until that has gone",
                   session->session_id, (int)server->pid);
    }
    if (!stays)
        reclaim(session->node, session->allocation, session->server_id);
}

bool flyt_node_charge_stays(const struct flyt_node *node, uint64_t entry_id)
{
    const struct flyt_node_server *server = node->servers;

    while (server && !(server->charged.has_stayed && server->charged.entry_id == entry_id))
        server = server->next;
    return server != NULL;
}

void flyt_node_charge_exit(struct flyt_node_server *server)
{
    const uint64_t entry_id = server->charged.entry_id;
    struct flyt_node *node = server->node;

    server->charged.entry_id = 0;
    if (!entry_id || !server->charged.has_stayed || flyt_node_charge_stays(node, entry_id))
        return;
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(node, server->charged.allocation_id);
    if (!allocation)
        return;
    reclaim(node, allocation, entry_id);
    flyt_node_allocation_look(node, allocation);
    flyt_node_changed(node);
}

unsigned flyt_node_charge_count(const struct flyt_node_allocation *allocation)
{
    unsigned count = 0;

    for (const struct flyt_node_server *server = allocation->node->servers; server; server = server->next) {
        const struct flyt_node_server *other = server->next;
        if (!server->charged.entry_id || !server->charged.has_stayed ||
            server->charged.allocation_id != allocation->now.id)
            continue;
        while (other && other->charged.entry_id != server->charged.entry_id)
            other = other->next;
        count += !other; /* the last one of each */
    }
    return count;
}
