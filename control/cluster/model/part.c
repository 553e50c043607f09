#include <errno.h>

#include "control/base/size.h"
#include "control/cluster/model/allocation.h"
#include "control/cluster/model/capacity.h"
#include "control/cluster/model/gpu.h"
#include "control/cluster/model/part.h"
#include "rpc/base/error.h"

/* Groups that are its own, those that it is leaving included: it may have them back. */
static struct flyt_groupset own_groups(const struct flyt_part *part)
{
    struct flyt_groupset own = part->groups;

    for (unsigned i = 0; i < FLYT_GROUP_WORDS; i++)
        own.words[i] |= part->leaving.words[i];
    return own;
}

/* Groups that it may have besides those that are free: its own, and, where it works in turns with others, theirs. */
static struct flyt_groupset groups_it_may_have(const struct flyt_held *held, const struct flyt_part *part)
{
    struct flyt_groupset may = own_groups(part);

    for (unsigned i = 0; held->share.is_timed && i < FLYT_GROUP_WORDS; i++)
        may.words[i] |= flyt_gpu_capacity(part->card)->timed.words[i];
    return may;
}

/* Whether the GPU would have so many SMs for the part when nothing ran any more on what other VMs have lost. */
static bool will_fit(const struct flyt_held *held, const struct flyt_part *part, unsigned sms)
{
    struct flyt_capacity later = *flyt_gpu_capacity(part->card);
    struct flyt_groupset may = groups_it_may_have(held, part), chosen;

    for (unsigned i = 0; i < part->card->held_count; i++) {
        const struct flyt_held *other = part->card->held[i];
        for (unsigned j = 0; other != held && j < other->part_count; j++)
            for (unsigned word = 0; other->parts[j].card == part->card && word < FLYT_GROUP_WORDS; word++)
                later.taken.words[word] &= ~other->parts[j].leaving.words[word];
    }
    return flyt_capacity_choose(&later, &may, sms, &chosen) != 0;
}

/* The SMs that a part gets of so many: all, or, where others are still being left by their programs, what there is; so
 * too where it is short of what it was promised. 0: the GPU has not so many. */
static unsigned choose(const struct flyt_held *held, const struct flyt_part *part, unsigned sms,
                       struct flyt_groupset *ret_groups)
{
    struct flyt_groupset may = groups_it_may_have(held, part);
    unsigned got = flyt_capacity_choose(flyt_gpu_capacity(part->card), &may, sms, ret_groups);

    if (got || sms < part->sm_count || (sms != part->wanted_sms && !will_fit(held, part, sms)))
        return got;
    for (unsigned less = sms - 1; less && !got; less--)
        got = flyt_capacity_choose(flyt_gpu_capacity(part->card), &may, less, ret_groups);
    return got;
}

bool flyt_part_is_short(const struct flyt_part *part)
{
    return part->sm_count < part->wanted_sms;
}

bool flyt_part_change(const struct flyt_held *held, struct flyt_part *part, unsigned sms, uint64_t memory_bytes,
                      struct flyt_error *err)
{
    struct flyt_capacity *gpu = flyt_gpu_capacity(part->card);
    struct flyt_groupset own = own_groups(part), chosen;
    char need[32], most[32];
    uint64_t own_bytes = part->memory_bytes + part->leaving_bytes;

    if (sms != part->wanted_sms || flyt_part_is_short(part)) {
        unsigned got = choose(held, part, sms, &chosen);
        if (!got) {
            flyt_error_set(err, -ENOSPC, "GPU %s has not so many SMs: %u wanted, %u its own and %u free",
                           part->card->key, sms, part->sm_count, gpu->sms_free);
            return false;
        }
        for (unsigned i = 0; i < FLYT_GROUP_WORDS; i++)
            part->leaving.words[i] = own.words[i] & ~chosen.words[i];
        part->groups = chosen;
        part->sm_count = got;
        part->wanted_sms = sms;
    }
    if (memory_bytes > own_bytes && memory_bytes - own_bytes > gpu->memory_free_bytes) {
        flyt_error_set(err, -ENOSPC, "GPU %s has not so much memory: %s wanted, %s more than there is free",
                       part->card->key, flyt_size_text(memory_bytes, need),
                       flyt_size_text(memory_bytes - own_bytes - gpu->memory_free_bytes, most));
        return false;
    }
    part->leaving_bytes = own_bytes > memory_bytes ? own_bytes - memory_bytes : 0;
    part->memory_bytes = memory_bytes;
    return true;
}

bool flyt_part_can_grow(const struct flyt_held *held, const struct flyt_part *part)
{
    struct flyt_groupset may = groups_it_may_have(held, part), chosen;

    return flyt_part_is_short(part) &&
           flyt_capacity_choose(flyt_gpu_capacity(part->card), &may, part->sm_count + 1, &chosen);
}
