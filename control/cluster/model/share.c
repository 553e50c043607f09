/* What VMs get of the time of SMs that they share, and whether they are suspended. */
#include <errno.h>

#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/cluster.h"
#include "control/cluster/model/desired.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/part.h"
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

unsigned flyt_share_minimum(enum flyt_isolation isolation, const struct flyt_share *share, const struct flyt_part *part)
{
    if (share->is_timed)
        return share->minimum_pct;
    return isolation == FLYT_ISOLATION_STRICT ? flyt_capacity_share(flyt_gpu_capacity(part->card), part->sm_count) : 0;
}

void flyt_share_fill(const struct flyt_held *held, const struct flyt_part *part, flyt_slot *slot)
{
    unsigned sms = flyt_gpu_capacity(part->card)->sms_total;

    slot->priority = held->priority;
    if (held->share.is_timed) {
        slot->minimum_share_pct = held->share.minimum_pct;
        slot->maximum_share_pct = held->share.maximum_pct;
        slot->window_ms = held->share.window_ms;
    } else if (held->isolation == FLYT_ISOLATION_STRICT && sms) {
        /* Without MPS, SMs are granted as a share of the time. */
        slot->minimum_share_pct = flyt_share_minimum(held->isolation, &held->share, part);
        slot->maximum_share_pct = (part->sm_count * 100 + sms - 1) / sms;
        slot->window_ms = held->share.window_ms;
    }
}

struct flyt_share flyt_share_of(enum flyt_isolation isolation, const flyt_slot *slot, const struct flyt_part *part)
{
    struct flyt_share own = {.window_ms = slot->window_ms};
    bool is_own = isolation == FLYT_ISOLATION_STRICT && slot->maximum_share_pct &&
                  slot->minimum_share_pct == flyt_share_minimum(isolation, &own, part);

    if (!slot->window_ms || is_own)
        return own;
    return (struct flyt_share){.is_timed = true,
                               .minimum_pct = slot->minimum_share_pct,
                               .maximum_pct = slot->maximum_share_pct,
                               .window_ms = slot->window_ms};
}

bool flyt_share_fits(const struct flyt_held *held, unsigned before_pct, const struct flyt_share *share,
                     const struct flyt_part *part, struct flyt_error *err)
{
    const struct flyt_capacity *gpu = flyt_gpu_capacity(part->card);
    unsigned others_pct = gpu->share_taken_pct > before_pct ? gpu->share_taken_pct - before_pct : 0;
    unsigned wanted_pct = flyt_share_minimum(held->isolation, share, part);

    /* What was promised already is never refused: a node may have reported more than there is. */
    if (wanted_pct <= before_pct || others_pct + wanted_pct <= 100)
        return true;
    flyt_error_set(err, -ENOSPC, "GPU %s has not so much time: a minimum of %u %% wanted, %u %% are promised to others",
                   part->card->key, wanted_pct, others_pct);
    return false;
}

const char *const flyt_sharing_names[] = {"exclusive", "time", NULL};

void flyt_share_add_json(const struct flyt_held *held, cJSON *object)
{
    cJSON_AddStringToObject(object, "sharing", flyt_sharing_names[held->share.is_timed]);
    if (held->share.is_timed) {
        cJSON_AddNumberToObject(object, "minimum_share", held->share.minimum_pct);
        cJSON_AddNumberToObject(object, "maximum_share", held->share.maximum_pct);
    }
    if (held->share.is_timed || held->isolation == FLYT_ISOLATION_STRICT)
        cJSON_AddNumberToObject(object, "window_ms", held->share.window_ms);
    cJSON_AddNumberToObject(object, "priority", held->priority);
    cJSON_AddBoolToObject(object, "suspended", held->is_suspended);
}

bool flyt_share_is_still(const struct flyt_held *held)
{
    bool is_still = held->use_count == held->part_count;

    for (unsigned i = 0; i < held->use_count; i++)
        is_still &= held->uses[i].is_suspended != 0;
    return is_still;
}
