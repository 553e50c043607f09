#include "cpu/server/limit.h"

#include <errno.h>

#include "cpu/server/manager.h"
#include "cpu/server/session.h"
#include "rpc/base/clock.h"

static struct flyt_device *device_of_slot(struct flyt_session *session, uint32_t slot)
{
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].slot == slot)
            return &session->devices[i];
    return NULL;
}

static void tell(struct flyt_session *session, const struct flyt_server_link_limit *limit, uint64_t used_bytes,
                 int outcome)
{
    const struct flyt_server_link_limit_done done = {
        .revision = limit->revision, .used_bytes = used_bytes, .slot = limit->slot, .outcome = outcome};
    flyt_manager_tell(session->manager, FLYT_SERVER_LINK_LIMIT_DONE, &done, sizeof done, NULL, NULL, 0);
}

void flyt_limit_take(struct flyt_session *session, const struct flyt_server_link_limit *limit)
{
    struct flyt_manager *manager = session->manager;
    struct flyt_device *device = device_of_slot(session, limit->slot);
    if (!device || !device->ledger) {
        tell(session, limit, 0, -EINVAL);
        return;
    }
    struct flyt_limit_order *order = &manager->limit_orders[limit->slot];
    flyt_memory_give_back(device, limit->when_free);
    pthread_mutex_lock(&manager->mutex);
    manager->granted.slots[limit->slot].memory_bytes = limit->memory_bytes;
    pthread_mutex_unlock(&manager->mutex);
    order->limit = *limit;
    order->count++;
    order->since_ns = flyt_clock_ns();
    manager->limit_order_count++;
}

/* Whether everything that the program has freed is given back. */
static bool is_quiet(struct flyt_session *session, const struct flyt_device *device, uint64_t idle_ns)
{
    return idle_ns >= FLYT_LIMIT_QUIET_US * 1000ull && !device->memory.pending_first &&
           !flyt_park_has(session, FLYT_MEMORY_FREE, UINT64_MAX);
}

bool flyt_limit_answer(struct flyt_session *session, uint64_t idle_ns)
{
    struct flyt_manager *manager = session->manager;
    if (!manager || !manager->limit_order_count)
        return false;
    uint64_t now_ns = flyt_clock_ns();
    for (unsigned slot = 0; slot < FLYT_SLOTS_MAX; slot++) {
        struct flyt_limit_order *order = &manager->limit_orders[slot];
        struct flyt_device *device = order->count ? device_of_slot(session, slot) : NULL;
        if (!device)
            continue;
        flyt_memory_reap(device);
        if (!is_quiet(session, device, idle_ns) && now_ns - order->since_ns < FLYT_LIMIT_ANSWER_MS * 1000000ull)
            continue;
        flyt_memory_give_back(device, false);
        manager->limit_order_count -= order->count;
        for (; order->count; order->count--)
            tell(session, &order->limit, device->memory.extent_bytes, 0);
    }
    return manager->limit_order_count > 0;
}
