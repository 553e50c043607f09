#include "cpu/server/manager/limit.h"

#include <errno.h>

#include "cpu/server/core/manager.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/move/out/move.h"
#include "cpu/server/move/out/send_all.h"
#include "cpu/server/core/session.h"

static struct flyt_device *device_of_slot(struct flyt_session *session, uint32_t slot)
{
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].slot == slot)
            return &session->devices[i];
    return NULL;
}

static void tell(struct flyt_session *session, const struct flyt_manager_link_limit *limit, uint64_t used_bytes,
                 int outcome)
{
    const struct flyt_manager_link_limit_done done = {.revision = limit->revision,
                                                      .used_bytes = used_bytes,
                                                      .slot = limit->slot,
                                                      .outcome = outcome,
                                                      .number = limit->number};
    flyt_manager_tell(session->manager, FLYT_MANAGER_LINK_LIMIT_DONE, &done, sizeof done, NULL, NULL, 0);
}

void flyt_limit_take(struct flyt_session *session, const struct flyt_manager_link_limit *limit)
{
    struct flyt_manager *manager = session->manager;
    struct flyt_device *device = device_of_slot(session, limit->slot);
    if (!device || !device->ledger) {
        tell(session, limit, 0, -EINVAL);
        return;
    }
    struct flyt_limit_order *order = &manager->limit_orders[limit->slot];
    if (limit->number && order->count && order->limit.number == limit->number)
        return; /* it was sent again, and its answer is on its way */
    flyt_memory_give_back(device, limit->when_free);
    pthread_mutex_lock(&manager->mutex);
    manager->granted.slots[limit->slot].memory_bytes = limit->memory_bytes;
    pthread_mutex_unlock(&manager->mutex);
    order->limit = *limit;
    order->notice = 0; /* what is freed until now is asked for */
    order->count++;
    order->since_ns = session->clock_ns();
    manager->limit_order_count++;
}

/* Whether everything that the program had freed when the order came is free here. */
static bool is_settled(struct flyt_session *session, const struct flyt_device *device, struct flyt_limit_order *order,
                       uint64_t idle_ns)
{
    if (session->fatal != CUDA_SUCCESS)
        return true;                          /* no call is executed any more */
    if (flyt_move_has_stopped(session->move)) /* it has sent everything, and is not there to be asked */
        return !flyt_memory_is_freeing(device, UINT64_MAX);
    if (!session->send_all->is_known)
        return idle_ns >= FLYT_LIMIT_OLDER_QUIET_US * 1000ull && !flyt_memory_is_freeing(device, UINT64_MAX);
    if (!order->notice)
        order->notice = flyt_send_all_ask(session);
    uint64_t sequence;
    return order->notice && flyt_send_all_is_answered(session, order->notice, &sequence) &&
           !flyt_memory_is_freeing(device, sequence) && !flyt_library_is_unloading(session, sequence);
}

bool flyt_limit_answer(struct flyt_session *session, uint64_t idle_ns)
{
    struct flyt_manager *manager = session->manager;
    if (!manager || !manager->limit_order_count)
        return false;
    uint64_t now_ns = session->clock_ns();
    for (unsigned slot = 0; slot < FLYT_SLOTS_MAX; slot++) {
        struct flyt_limit_order *order = &manager->limit_orders[slot];
        struct flyt_device *device = order->count ? device_of_slot(session, slot) : NULL;
        if (!device)
            continue;
        flyt_memory_reap(device);
        bool is_late = now_ns - order->since_ns >= FLYT_LIMIT_ANSWER_MS * 1000000ull;
        if (!is_settled(session, device, order, idle_ns) && !is_late)
            continue;
        /* This may leave debts, which are credited when the node manager says so. The answer waits for none of them:
         * they go out on the same link in front of it, and the node manager itself takes what they gave back out of the
         * ledger before it reads on. So it is free for whoever is told because of the answer. */
        flyt_memory_give_back(device, false);
        if (device->memory->is_copied && !is_late)
            continue;                              /* what is being read goes in a moment */
        if (!flyt_move_has_stopped(session->move)) /* where it goes on it is asked for again */
            flyt_memory_tell_over_budget(device);
        manager->limit_order_count -= order->count;
        if (order->limit.number)
            order->count = 1; /* its number answers those before it */
        for (; order->count; order->count--)
            tell(session, &order->limit, device->memory->extent_bytes, 0);
    }
    return manager->limit_order_count > 0;
}
