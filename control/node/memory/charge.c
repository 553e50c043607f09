#include "control/node/memory/charge.h"

#include <assert.h>
#include <inttypes.h>

#include "control/node/memory/extent.h"
#include "control/node/model/allocation.h"
#include "rpc/base/log.h"

void flyt_node_charge_lend(struct flyt_node_server *server, const struct flyt_node_allocation *allocation,
                           const struct flyt_node_holding *has)
{
    server->charged.entry_id = has->server_id;
    server->charged.allocation_id = allocation->now.id;
    server->charged.has_stayed = false;
}

int flyt_node_charge_move(const struct flyt_node_allocation *allocation, const struct flyt_node_extents *extents,
                          uint64_t from_id, uint64_t to_id)
{
    uint64_t charged_bytes[FLYT_SLOTS_MAX];
    unsigned moved = 0;
    int status = 0;

    for (; !status && moved < allocation->now.slots.slots_len; moved += !status) {
        struct flyt_ledger *ledger = allocation->slots[moved].ledger;
        charged_bytes[moved] = flyt_ledger_charged(ledger, from_id);
        status = flyt_ledger_move(ledger, from_id, to_id, flyt_node_extents_of_slot(extents, moved));
    }
    for (; status && moved; moved--)
        flyt_ledger_move(allocation->slots[moved - 1].ledger, to_id, from_id, charged_bytes[moved - 1]);
    return status;
}

void flyt_node_charge_take(struct flyt_node_server *server, uint64_t entry_id)
{
    flyt_node_charge_leave(server);
    for (struct flyt_node_server *other = server->node->servers; other; other = other->next)
        if (other->charged.entry_id == entry_id)
            other->charged.entry_id = server->has.server_id;
}

/* Whether what has stayed of an ended session was charged for this server alone. */
static bool let_go(struct flyt_node_server *server)
{
    const uint64_t entry_id = server->charged.entry_id;

    server->charged.entry_id = 0;
    return entry_id && server->charged.has_stayed && !flyt_node_charge_stays(server->node, entry_id);
}

/* The allocation of what has stayed, which has one less of them. */
static struct flyt_node_allocation *count_down(const struct flyt_node_server *server)
{
    struct flyt_node_allocation *allocation = flyt_node_allocation_find(server->node, server->charged.allocation_id);

    if (allocation) {
        assert(allocation->stayed_count);
        allocation->stayed_count--;
    }
    return allocation;
}

void flyt_node_charge_leave(struct flyt_node_server *server)
{
    if (let_go(server))
        count_down(server);
}

static void reclaim(const struct flyt_node_allocation *allocation, uint64_t entry_id)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (allocation->slots[i].ledger)
            flyt_ledger_reclaim(allocation->slots[i].ledger, entry_id, NULL);
}

void flyt_node_charge_end(struct flyt_node_allocation *allocation, const struct flyt_node_holding *has)
{
    bool stays = false;

    for (struct flyt_node_server *server = allocation->node->servers; server; server = server->next) {
        if (server->charged.entry_id != has->server_id)
            continue;
        server->charged.has_stayed = stays = true;
        flyt_debug("entry %016" PRIx64 ": server process %d has memory of it, which stays charged until that has gone",
                   has->server_id, (int)server->pid);
    }
    if (stays)
        allocation->stayed_count++;
    else
        reclaim(allocation, has->server_id);
}

void flyt_node_charge_exit(struct flyt_node_server *server)
{
    const uint64_t entry_id = server->charged.entry_id;
    struct flyt_node_allocation *allocation = let_go(server) ? count_down(server) : NULL;

    if (!allocation)
        return;
    reclaim(allocation, entry_id);
    flyt_node_raise_of(allocation, FLYT_NODE_EVENT_SESSION_LEFT);
    flyt_node_changed(server->node);
}
