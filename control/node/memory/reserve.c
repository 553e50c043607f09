#include "control/node/memory/reserve.h"

#include <inttypes.h>
#include <stdio.h>

#include "control/node/model/allocation.h"
#include "control/node/model/server.h"
#include "rpc/base/log.h"

/* Its process may have memory for copying its session, or for the session that it is to get. */
static bool is_copying(const struct flyt_node_server *server)
{
    return flyt_node_server_is_operated(server);
}

void flyt_node_reserve_begin(struct flyt_node *node)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
        for (unsigned i = 0; allocation && i < allocation->now.slots.slots_len; i++) {
            const struct flyt_ledger *ledger = allocation->slots[i].ledger;
            server->charged_bytes[i] = ledger ? flyt_ledger_charged(ledger, server->has.server_id) : 0;
            server->reserved_bytes[i] = ledger ? flyt_ledger_reserved(ledger, server->has.server_id) : 0;
            server->is_measured = true;
            server->was_copying = is_copying(server);
        }
    }
}

/* A VM is over its limit, or no longer: each is told once. */
static void note_overshoot(struct flyt_node *node, struct flyt_node_allocation *allocation, unsigned slot,
                           uint64_t used_bytes, uint64_t limit_bytes)
{
    struct flyt_node_slot *over = &allocation->slots[slot];
    bool is_over = used_bytes > limit_bytes && used_bytes - limit_bytes > FLYT_NODE_OVERSHOOT_BYTES;

    /* A limit that sinks as memory is freed says so itself. */
    if (is_over == over->is_over || (is_over && allocation->now.when_free))
        return;
    over->is_over = is_over;
    if (!is_over)
        return;
    flyt_warn("allocation %016" PRIx64 ": the driver takes more than was expected, device=%u used_bytes=%" PRIu64
              " limit_bytes=%" PRIu64,
              (uint64_t)allocation->now.id, allocation->now.slots.slots_val[slot].device_index, used_bytes,
              limit_bytes);
    flyt_node_tell(node, "memory.over", allocation->now.vm_ip,
                   "device %u of VM %s has %" PRIu64 " bytes, %" PRIu64
                   " more than its limit: so much more than expected "
                   "the driver takes for modules and libraries. It gets nothing more until memory is freed",
                   allocation->now.slots.slots_val[slot].device_index, allocation->now.vm_ip, used_bytes,
                   used_bytes - limit_bytes);
}

enum { UNSETTLED_MAX = 5 };

static void set_reserve(struct flyt_node_server *server, unsigned slot, uint64_t bytes)
{
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    uint64_t used_bytes, limit_bytes;

    if (!flyt_ledger_reserve_measured(allocation->slots[slot].ledger, server->has.server_id, bytes, &used_bytes,
                                      &limit_bytes))
        note_overshoot(server->node, allocation, slot, used_bytes, limit_bytes);
}

/* Whether memory that was charged meanwhile is in the figure, nobody knows. A server that charges all the time is not
 * left out for that: what several measurements in a row have found beyond its charge, before and after, is there. */
static void correct_unsettled(struct flyt_node_server *server, unsigned slot, uint64_t beyond_bytes)
{
    uint64_t *least_bytes = &server->unexplained_bytes[slot];

    if (!server->unsettled_count[slot]++ || beyond_bytes < *least_bytes)
        *least_bytes = beyond_bytes;
    if (server->unsettled_count[slot] < UNSETTLED_MAX)
        return;
    server->unsettled_count[slot] = 0;
    if (*least_bytes >
        flyt_ledger_reserved(flyt_node_server_allocation(server)->slots[slot].ledger, server->has.server_id))
        set_reserve(server, slot, *least_bytes);
}

static void correct(struct flyt_node_server *server, unsigned slot, uint64_t process_bytes)
{
    struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
    struct flyt_ledger *ledger = allocation->slots[slot].ledger;
    const struct flyt_node_gpu *gpu = server->has.gpus[slot];
    uint64_t context_bytes = slot == 0 && server->context_bytes ? server->context_bytes : gpu->context_bytes;
    uint64_t copying_bytes = server->was_copying || is_copying(server) ? gpu->copying_bytes : 0;
    uint64_t charged_bytes = flyt_ledger_charged(ledger, server->has.server_id);
    bool is_settled = charged_bytes == server->charged_bytes[slot] &&
                      flyt_ledger_reserved(ledger, server->has.server_id) == server->reserved_bytes[slot];
    if (charged_bytes < server->charged_bytes[slot])
        charged_bytes = server->charged_bytes[slot];
    uint64_t own_bytes = charged_bytes + context_bytes + copying_bytes;
    uint64_t beyond_bytes = process_bytes > own_bytes ? process_bytes - own_bytes : 0;

    if (!is_settled) {
        correct_unsettled(server, slot, beyond_bytes);
        return;
    }
    server->unsettled_count[slot] = 0;
    set_reserve(server, slot, beyond_bytes);
}

void flyt_node_reserve_correct(struct flyt_node *node, flyt_node_process_fn process, const void *user)
{
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        const struct flyt_node_allocation *allocation = flyt_node_server_allocation(server);
        for (unsigned i = 0; allocation && server->is_measured && i < allocation->now.slots.slots_len; i++) {
            const struct flyt_node_gpu *gpu = server->has.gpus[i];
            uint64_t bytes;
            if (allocation->slots[i].ledger && gpu && process(user, gpu->index, server->pid, &bytes))
                correct(server, i, bytes);
        }
        server->is_measured = false;
    }
}
