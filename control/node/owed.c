#include "control/node/owed.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "control/node/allocation.h"
#include "control/node/order.h"
#include "rpc/base/log.h"

/* Whether nothing is owed to the allocation's ledgers any more. */
static bool settle(struct flyt_node_allocation *allocation)
{
    bool is_settled = true;

    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (allocation->slots[i].ledger)
            is_settled &= flyt_ledger_settle(allocation->slots[i].ledger);
    return is_settled;
}

static bool owes(const struct flyt_node_allocation *allocation)
{
    for (unsigned i = 0; i < allocation->now.slots.slots_len; i++)
        if (allocation->slots[i].ledger && flyt_ledger_owes(allocation->slots[i].ledger))
            return true;
    return false;
}

static void look_again(struct flyt_node *node)
{
    sd_event_source_set_time_relative(node->owed_timer, FLYT_NODE_OWED_MS * 1000ull);
    sd_event_source_set_enabled(node->owed_timer, SD_EVENT_ONESHOT);
}

static int on_time(sd_event_source *source, uint64_t usec, void *user)
{
    struct flyt_node *node = user;
    struct flyt_node_allocation *next;
    bool is_settled = true;

    for (struct flyt_node_allocation *allocation = node->allocations; allocation; allocation = next) {
        next = allocation->next;
        if (!owes(allocation))
            continue;
        if (settle(allocation))
            flyt_node_order_retry(node, allocation);
        else
            is_settled = false;
    }
    if (!is_settled)
        look_again(node);
    return 0;
}

/* 0 or a negative errno: nobody looks again. */
static int set_timer(struct flyt_node *node)
{
    if (!node->owed_timer) {
        int status = sd_event_add_time_relative(node->event, &node->owed_timer, CLOCK_MONOTONIC,
                                                FLYT_NODE_OWED_MS * 1000ull, 1000, on_time, node);
        if (status < 0)
            return status;
    }
    if (sd_event_source_get_enabled(node->owed_timer, NULL) <= 0)
        look_again(node);
    return 0;
}

/* status: what came of it at once, or of owing it. */
static void note(struct flyt_node *node, uint64_t server_id, int status)
{
    if (!status)
        status = set_timer(node);
    if (status)
        flyt_warn("memory of server %016" PRIx64 " stays charged: %s", server_id, strerror(-status));
    else
        flyt_warn("memory of server %016" PRIx64 " is credited later: its ledger is held by a server that was stopped",
                  server_id);
}

void flyt_node_owed_reclaim(struct flyt_node *node, struct flyt_ledger *ledger, uint64_t server_id)
{
    int status = flyt_ledger_reclaim(ledger, server_id, NULL);

    if (status == -ETIMEDOUT)
        note(node, server_id, flyt_ledger_owe_entry(ledger, server_id));
    else if (status && status != -ENOENT)
        note(node, server_id, status);
}

void flyt_node_owed_release(struct flyt_node *node, struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    int status = flyt_ledger_release(ledger, server_id, bytes);

    if (status == -ETIMEDOUT)
        note(node, server_id, flyt_ledger_owe(ledger, server_id, bytes, 0));
    else if (status)
        note(node, server_id, status);
}
