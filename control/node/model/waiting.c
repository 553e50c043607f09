#include "control/node/model/waiting.h"

#include <poll.h>

#include "control/node/model/allocation.h"

struct flyt_node_gpu *flyt_node_waiting_gpu(const struct flyt_node_allocation *allocation)
{
    return allocation->now.slots.slots_len ? allocation->slots[0].gpu : NULL;
}

/* Those of its allocation that came before it, or before a newcomer (NULL): held ones, or all that began to wait. */
unsigned flyt_node_waiting_before(const struct flyt_node *node, uint64_t allocation_id,
                                  const struct flyt_node_waiting *newcomer, bool held_alone)
{
    unsigned count = 0;

    for (const struct flyt_node_waiting *waiting = node->waiting_first; waiting && waiting != newcomer;
         waiting = waiting->next)
        count += waiting->ticket.allocation_id == allocation_id && !waiting->ticket.session_id &&
                 (waiting->is_held || !held_alone);
    return count;
}

unsigned flyt_node_waiting_count(const struct flyt_node *node, uint64_t allocation_id)
{
    return flyt_node_waiting_before(node, allocation_id, NULL, false);
}

unsigned flyt_node_waiting_admitted(const struct flyt_node *node, uint64_t allocation_id)
{
    return flyt_node_waiting_count(node, allocation_id) - flyt_node_waiting_before(node, allocation_id, NULL, true);
}

/* Those of sessions that go on have slots as these. */
unsigned flyt_node_waiting_promised_on(const struct flyt_node *node, const struct flyt_node_gpu *gpu)
{
    unsigned count = 0;

    for (const struct flyt_node_waiting *waiting = node->waiting_first; waiting; waiting = waiting->next) {
        const struct flyt_node_allocation *its = flyt_node_allocation_find(node, waiting->ticket.allocation_id);
        count += its && !waiting->is_held && !waiting->ticket.session_id && flyt_node_waiting_gpu(its) == gpu;
    }
    return count;
}

unsigned flyt_node_waiting_promised(const struct flyt_node *node, const struct flyt_node_allocation *allocation)
{
    return flyt_node_waiting_promised_on(node, flyt_node_waiting_gpu(allocation));
}

bool flyt_node_waiting_has_client(const struct flyt_node *node, uint64_t session_id)
{
    const struct flyt_node_waiting *waiting = node->waiting_first;

    while (waiting && waiting->ticket.session_id != session_id)
        waiting = waiting->next;
    return waiting != NULL;
}

bool flyt_node_waiting_has_hung_up(int fd)
{
    struct pollfd end = {.fd = fd, .events = POLLRDHUP};

    return poll(&end, 1, 0) > 0;
}
