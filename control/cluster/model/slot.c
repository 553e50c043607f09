#include <errno.h>

#include "control/base/size.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/slot.h"
#include "rpc/base/error.h"

/* Groups that are its own, those that it is leaving included: it may have them back. */
static struct flyt_groupset own_groups(const struct flyt_cluster_slot *slot)
{
    struct flyt_groupset own = slot->groups;

    for (unsigned i = 0; i < FLYT_GROUP_WORDS; i++)
        own.words[i] |= slot->leaving.words[i];
    return own;
}

/* Groups that it may have besides those that are free: its own, and, where it works in turns with others, theirs. */
static struct flyt_groupset groups_it_may_have(const struct flyt_cluster_allocation *allocation,
                                               const struct flyt_cluster_slot *slot)
{
    struct flyt_groupset may = own_groups(slot);

    for (unsigned i = 0; allocation->share.is_timed && i < FLYT_GROUP_WORDS; i++)
        may.words[i] |= flyt_gpu_capacity(slot->gpu)->timed.words[i];
    return may;
}

/* Whether the GPU would have so many SMs for the part when nothing ran any more on what other VMs have lost. */
static bool will_fit(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot,
                     unsigned sms)
{
    struct flyt_capacity later = *flyt_gpu_capacity(slot->gpu);
    struct flyt_groupset may = groups_it_may_have(allocation, slot), chosen;

    for (unsigned i = 0; i < slot->gpu->allocation_count; i++) {
        const struct flyt_cluster_allocation *other = slot->gpu->allocations[i];
        for (unsigned j = 0; other != allocation && j < other->slot_count; j++)
            for (unsigned word = 0; other->slots[j].gpu == slot->gpu && word < FLYT_GROUP_WORDS; word++)
                later.taken.words[word] &= ~other->slots[j].leaving.words[word];
    }
    return flyt_capacity_choose(&later, &may, sms, &chosen) != 0;
}

/* The SMs that a part gets of so many: all, or, where others are still being left by their programs, what there is; so
 * too where it is short of what it was promised. 0: the GPU has not so many. */
static unsigned choose(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot,
                       unsigned sms, struct flyt_groupset *ret_groups)
{
    struct flyt_groupset may = groups_it_may_have(allocation, slot);
    unsigned got = flyt_capacity_choose(flyt_gpu_capacity(slot->gpu), &may, sms, ret_groups);

    if (got || sms < slot->sm_count || (sms != slot->wanted_sms && !will_fit(allocation, slot, sms)))
        return got;
    for (unsigned less = sms - 1; less && !got; less--)
        got = flyt_capacity_choose(flyt_gpu_capacity(slot->gpu), &may, less, ret_groups);
    return got;
}

bool flyt_slot_is_short(const struct flyt_cluster_slot *slot)
{
    return slot->sm_count < slot->wanted_sms;
}

bool flyt_slot_change(const struct flyt_cluster_allocation *allocation, struct flyt_cluster_slot *slot, unsigned sms,
                      uint64_t memory_bytes, struct flyt_error *err)
{
    struct flyt_capacity *gpu = flyt_gpu_capacity(slot->gpu);
    struct flyt_groupset own = own_groups(slot), chosen;
    char need[32], most[32];
    uint64_t own_bytes = slot->memory_bytes + slot->leaving_bytes;

    if (sms != slot->wanted_sms || flyt_slot_is_short(slot)) {
        unsigned got = choose(allocation, slot, sms, &chosen);
        if (!got) {
            flyt_error_set(err, -ENOSPC, "GPU %s has not so many SMs: %u wanted, %u its own and %u free",
                           slot->gpu->key, sms, slot->sm_count, gpu->sms_free);
            return false;
        }
        for (unsigned i = 0; i < FLYT_GROUP_WORDS; i++)
            slot->leaving.words[i] = own.words[i] & ~chosen.words[i];
        slot->groups = chosen;
        slot->sm_count = got;
        slot->wanted_sms = sms;
    }
    if (memory_bytes > own_bytes && memory_bytes - own_bytes > gpu->memory_free_bytes) {
        flyt_error_set(err, -ENOSPC, "GPU %s has not so much memory: %s wanted, %s more than there is free",
                       slot->gpu->key, flyt_size_text(memory_bytes, need),
                       flyt_size_text(memory_bytes - own_bytes - gpu->memory_free_bytes, most));
        return false;
    }
    slot->leaving_bytes = own_bytes > memory_bytes ? own_bytes - memory_bytes : 0;
    slot->memory_bytes = memory_bytes;
    return true;
}

bool flyt_slot_can_grow(const struct flyt_cluster_allocation *allocation, const struct flyt_cluster_slot *slot)
{
    struct flyt_groupset may = groups_it_may_have(allocation, slot), chosen;

    return flyt_slot_is_short(slot) &&
           flyt_capacity_choose(flyt_gpu_capacity(slot->gpu), &may, slot->sm_count + 1, &chosen);
}
