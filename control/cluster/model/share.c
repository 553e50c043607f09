/* What VMs get of the time of SMs that they share, and whether they are suspended. */
#include <errno.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/slot.h"
#include "control/cluster/model/settings.h"
#include "control/cluster/model/share.h"
#include "control/cluster/model/vm.h"
#include "rpc/base/error.h"

struct flyt_share flyt_vm_share(const struct flyt_vm *vm)
{
    const struct flyt_desired *desired = &vm->desired;
    const struct flyt_cluster_settings *settings = vm->cluster->settings;
    bool names_share = desired->minimum_share_pct >= 0 || desired->maximum_share_pct >= 0;
    bool is_strict = (desired->isolation >= 0 ? desired->isolation : settings->isolation) == FLYT_ISOLATION_STRICT;
    int usual = names_share || (settings->sharing == FLYT_SHARING_TIME && !is_strict) ? FLYT_SHARING_TIME
                                                                                      : FLYT_SHARING_EXCLUSIVE;
    bool is_timed = (desired->sharing >= 0 ? desired->sharing : usual) == FLYT_SHARING_TIME;

    return (struct flyt_share){
        .is_timed = is_timed,
        .minimum_pct = is_timed && desired->minimum_share_pct > 0 ? (unsigned)desired->minimum_share_pct : 0,
        .maximum_pct = is_timed && desired->maximum_share_pct > 0 ? (unsigned)desired->maximum_share_pct : 0,
        .window_ms = desired->window_ms ? desired->window_ms : (unsigned)settings->window_ms,
    };
}

unsigned flyt_share_minimum(enum flyt_isolation isolation, const struct flyt_share *share,
                            const struct flyt_cluster_slot *slot)
{
    if (share->is_timed)
        return share->minimum_pct;
    return isolation == FLYT_ISOLATION_STRICT ? flyt_capacity_share(flyt_gpu_capacity(slot->gpu), slot->sm_count) : 0;
}

void flyt_share_fill(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot,
                     flyt_slot *wire_slot)
{
    unsigned sms = flyt_gpu_capacity(slot->gpu)->sms_total;

    wire_slot->priority = allocation->priority;
    if (allocation->share.is_timed) {
        wire_slot->minimum_share_pct = allocation->share.minimum_pct;
        wire_slot->maximum_share_pct = allocation->share.maximum_pct;
        wire_slot->window_ms = allocation->share.window_ms;
    } else if (allocation->isolation == FLYT_ISOLATION_STRICT && sms) {
        /* Without MPS, SMs are granted as a share of the time. */
        wire_slot->minimum_share_pct = flyt_share_minimum(allocation->isolation, &allocation->share, slot);
        wire_slot->maximum_share_pct = (slot->sm_count * 100 + sms - 1) / sms;
        wire_slot->window_ms = allocation->share.window_ms;
    }
}

struct flyt_share flyt_share_of(enum flyt_isolation isolation, const flyt_slot *wire_slot,
                                const struct flyt_cluster_slot *slot)
{
    struct flyt_share own = {.window_ms = wire_slot->window_ms};
    bool is_own = isolation == FLYT_ISOLATION_STRICT && wire_slot->maximum_share_pct &&
                  wire_slot->minimum_share_pct == flyt_share_minimum(isolation, &own, slot);

    if (!wire_slot->window_ms || is_own)
        return own;
    return (struct flyt_share){.is_timed = true,
                               .minimum_pct = wire_slot->minimum_share_pct,
                               .maximum_pct = wire_slot->maximum_share_pct,
                               .window_ms = wire_slot->window_ms};
}

bool flyt_share_fits(const struct flyt_cluster_allocation *allocation, unsigned before_pct,
                     const struct flyt_share *share, const struct flyt_cluster_slot *slot, struct flyt_error *err)
{
    const struct flyt_capacity *gpu = flyt_gpu_capacity(slot->gpu);
    unsigned others_pct = gpu->share_taken_pct > before_pct ? gpu->share_taken_pct - before_pct : 0;
    unsigned wanted_pct = flyt_share_minimum(allocation->isolation, share, slot);

    /* What was promised already is never refused: a node may have reported more than there is. */
    if (wanted_pct <= before_pct || others_pct + wanted_pct <= 100)
        return true;
    flyt_error_set(err, -ENOSPC, "GPU %s has not so much time: a minimum of %u %% wanted, %u %% are promised to others",
                   slot->gpu->key, wanted_pct, others_pct);
    return false;
}

const char *const flyt_sharing_names[] = {"exclusive", "time", NULL};

void flyt_share_add_json(const struct flyt_cluster_allocation *allocation, cJSON *object)
{
    cJSON_AddStringToObject(object, "sharing", flyt_sharing_names[allocation->share.is_timed]);
    if (allocation->share.is_timed) {
        cJSON_AddNumberToObject(object, "minimum_share", allocation->share.minimum_pct);
        cJSON_AddNumberToObject(object, "maximum_share", allocation->share.maximum_pct);
    }
    if (allocation->share.is_timed || allocation->isolation == FLYT_ISOLATION_STRICT)
        cJSON_AddNumberToObject(object, "window_ms", allocation->share.window_ms);
    cJSON_AddNumberToObject(object, "priority", allocation->priority);
    cJSON_AddBoolToObject(object, "suspended", allocation->is_suspended);
}

bool flyt_share_is_still(const struct flyt_cluster_allocation *allocation)
{
    bool is_still = allocation->use_count == allocation->slot_count;

    for (unsigned i = 0; i < allocation->use_count; i++)
        is_still &= allocation->uses[i].is_suspended != 0;
    return is_still;
}
