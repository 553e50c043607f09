#include "control/node/link/memory_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/node/link/broker.h"
#include "control/node/link/server.h"
#include "control/node/memory/extent.h"
#include "control/node/memory/reserve.h"
#include "control/node/model/allocation.h"
#include "rpc/base/log.h"

enum { MEND_LOOKS = 2 };

/* Entries that servers have in ledgers, in order. */
struct known {
    uint64_t *ids;
    size_t count;
};

/* A slot of an allocation, as it is looked at. */
struct look {
    struct flyt_node *node;
    const struct known *known;
    struct flyt_node_allocation *allocation;
    unsigned slot;
    struct flyt_ledger *ledger;
    uint64_t limit_bytes;
};

/* What its process has of the VM's, as far as that is counted: without what is the operator's. */
static bool is_counted(const struct look *look, const struct flyt_node_server *server, uint64_t *ret_bytes)
{
    const struct flyt_node_gpu *gpu = server->has.gpus[look->slot];
    uint64_t bytes;

    if (!gpu || !flyt_node_gpu_account_memory(&look->node->account, gpu, server->pid, &bytes))
        return false;
    uint64_t context_bytes = look->slot == 0 && server->context_bytes ? server->context_bytes : gpu->context_bytes;
    *ret_bytes = bytes > context_bytes ? bytes - context_bytes : 0;
    return true;
}

/* ---- the ledger ---- */

static int compare_ids(const void *a, const void *b)
{
    const uint64_t *one = a, *other = b;

    return (*one > *other) - (*one < *other);
}

static int list_known(const struct flyt_node *node, struct known *ret_known)
{
    struct known known = {.ids = calloc(2 * (size_t)node->server_count + 1, sizeof *known.ids)};

    if (!known.ids)
        return -ENOMEM;
    for (const struct flyt_node_server *server = node->servers; server; server = server->next) {
        known.ids[known.count++] = server->has.server_id;
        known.ids[known.count++] = server->charged.entry_id;
    }
    qsort(known.ids, known.count, sizeof *known.ids, compare_ids);
    *ret_known = known;
    return 0;
}

static bool is_known(const struct look *look, uint64_t server_id)
{
    const struct known *known = look->known;

    return bsearch(&server_id, known->ids, known->count, sizeof server_id, compare_ids) ||
           server_id == flyt_node_allocation_shared_entry(look->allocation) ||
           flyt_node_sessions_have_entry(look->node, server_id);
}

static void drop_unknown(const struct look *look)
{
    uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
    unsigned count = flyt_ledger_list(look->ledger, ids), dropped = 0;

    for (unsigned i = 0; i < count; i++)
        if (!is_known(look, ids[i]))
            dropped += !flyt_ledger_reclaim(look->ledger, ids[i], NULL);
    if (dropped)
        flyt_warn("allocation %016" PRIx64 ": its ledger had entries of servers that are not there, vm=%s entries=%u",
                  (uint64_t)look->allocation->now.id, look->allocation->now.vm_ip, dropped);
}

static bool has_entry(const struct look *look, uint64_t server_id)
{
    uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];
    unsigned count = flyt_ledger_list(look->ledger, ids);

    while (count && ids[count - 1] != server_id)
        count--;
    return count;
}

static void mend(const struct look *look, struct flyt_node_server *server)
{
    struct flyt_node_memory_watch *watch = &server->memory_watch[look->slot];
    const uint64_t held_bytes = flyt_node_extents_of_slot(&server->has.extents, look->slot);
    const uint64_t charged_bytes = flyt_ledger_charged(look->ledger, server->has.server_id);
    const uint64_t reserved_bytes = flyt_ledger_reserved(look->ledger, server->has.server_id);
    uint64_t most_bytes = look->limit_bytes, counted_bytes;

    if (is_counted(look, server, &counted_bytes) && counted_bytes < most_bytes)
        most_bytes = counted_bytes;
    if (most_bytes < held_bytes) /* a limit may be below what is in use (resize --when-free) */
        most_bytes = held_bytes;
    bool can_be = charged_bytes >= held_bytes && charged_bytes <= most_bytes && reserved_bytes <= look->limit_bytes &&
                  has_entry(look, server->has.server_id);
    bool is_same = charged_bytes == watch->charged_bytes && reserved_bytes == watch->reserved_bytes;
    watch->looks = can_be ? 0 : is_same ? watch->looks + 1 : 1;
    watch->charged_bytes = charged_bytes;
    watch->reserved_bytes = reserved_bytes;
    if (watch->looks < MEND_LOOKS)
        return;
    watch->looks = 0;
    flyt_warn("session %016" PRIx64 ": what its VM's ledger says of it cannot be, and is mended, vm=%s "
              "charged_bytes=%" PRIu64 " reserved_bytes=%" PRIu64 " held_bytes=%" PRIu64,
              server->session->id, look->allocation->now.vm_ip, charged_bytes, reserved_bytes, held_bytes);
    int status = flyt_ledger_mend(look->ledger, server->has.server_id, held_bytes,
                                  reserved_bytes <= look->limit_bytes ? reserved_bytes : 0);
    if (status)
        flyt_warn("session %016" PRIx64 ": its entry in the ledger cannot be mended: %s", server->session->id,
                  strerror(-status));
}

/* ---- the limit ---- */

static void end(const struct look *look, struct flyt_node_server *server, uint64_t bytes, uint64_t sum_bytes)
{
    char reason[240];

    snprintf(reason, sizeof reason,
             "its server has %" PRIu64 " bytes of GPU %u, and its VM's servers have %" PRIu64
             " together: more than the limit of %" PRIu64,
             bytes, server->has.gpus[look->slot] ? server->has.gpus[look->slot]->index : 0, sum_bytes,
             look->limit_bytes);
    flyt_warn("session %016" PRIx64 ": is ended: %s, vm=%s server_pid=%d", server->session->id, reason,
              look->allocation->now.vm_ip, (int)server->pid);
    flyt_node_server_end_watched(server, FLYT_NODE_WATCHED_OVER_MEMORY, "session.over_memory", reason);
}

static void look_at_limit(const struct look *look)
{
    struct flyt_node_slot *slot = &look->allocation->slots[look->slot];
    uint64_t left_bytes, most_bytes = 0;
    struct flyt_node_server *most = NULL;

    if (flyt_node_broker_left_bytes(look->allocation, look->slot, &left_bytes))
        return; /* there is no memory to look now */
    uint64_t held_bytes = left_bytes, all_bytes = left_bytes;
    for (struct flyt_node_server *server = look->allocation->watched.first; server; server = server->watched_next) {
        if (!server->has.server_id || server->state != FLYT_NODE_SERVER_SERVING)
            continue;
        uint64_t held = flyt_node_extents_of_slot(&server->has.extents, look->slot), bytes = held, counted_bytes;
        if (is_counted(look, server, &counted_bytes) && counted_bytes > held)
            bytes = counted_bytes;
        held_bytes += held;
        all_bytes += bytes;
        if (!most || bytes > most_bytes) {
            most = server;
            most_bytes = bytes;
        }
    }
    bool is_over = held_bytes > look->limit_bytes || all_bytes > look->limit_bytes + FLYT_NODE_OVERSHOOT_BYTES;
    slot->over_looks = is_over && !look->allocation->now.when_free ? slot->over_looks + 1 : 0;
    if (slot->over_looks < FLYT_NODE_MEMORY_LOOKS || !most)
        return;
    slot->over_looks = 0;
    end(look, most, most_bytes, all_bytes);
}

/* ---- looks ---- */

/* Memory of a session may be two processes'. */
static bool is_unsettled(const struct flyt_node_server *server)
{
    return server->state != FLYT_NODE_SERVER_SERVING || flyt_node_server_is_operated(server) ||
           server->charged.entry_id || server->came_with;
}

/* Gives each allocation its servers, all in one go: there may be thousands of both. */
static void list_servers(struct flyt_node *node)
{
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next) {
        allocation->watched.first = NULL;
        allocation->watched.last = &allocation->watched.first;
        allocation->watched.is_unsettled = allocation->pending != NULL; /* what holds is about to change */
    }
    for (struct flyt_node_server *server = node->servers; server; server = server->next) {
        struct flyt_node_allocation *its = flyt_node_server_allocation(server), *charged = NULL;
        if (server->charged.entry_id)
            charged = flyt_node_allocation_find(node, server->charged.allocation_id);
        if (charged)
            charged->watched.is_unsettled = true;
        server->watched_next = NULL;
        if (!its)
            continue;
        its->watched.is_unsettled |= is_unsettled(server);
        *its->watched.last = server;
        its->watched.last = &server->watched_next;
    }
}

static void look_at(struct flyt_node *node, const struct known *known, struct flyt_node_allocation *allocation,
                    unsigned i)
{
    const struct look look = {
        node, known, allocation, i, allocation->slots[i].ledger, allocation->now.slots.slots_val[i].memory_bytes};

    if (!look.ledger)
        return;
    drop_unknown(&look);
    if (allocation->watched.is_unsettled) {
        allocation->slots[i].over_looks = 0;
        return;
    }
    for (struct flyt_node_server *server = allocation->watched.first; server; server = server->watched_next)
        if (server->has.server_id)
            mend(&look, server);
    look_at_limit(&look);
}

void flyt_node_memory_watch_look(struct flyt_node *node)
{
    struct known known;

    if (node->is_reattaching || list_known(node, &known))
        return;
    list_servers(node);
    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = allocation->next)
        for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
            look_at(node, &known, allocation, i);
    free(known.ids);
}
