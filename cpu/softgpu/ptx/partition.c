#include "cpu/softgpu/ptx/partition.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SLICE_NS = 1000 * 1000,    /* what a worker takes at a time */
    LAG_NS = 10 * 1000 * 1000, /* how much lost time is made up for */
    NS_PER_S = 1000 * 1000 * 1000,
};

uint64_t flyt_ptx_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

struct flyt_ptx_partition *flyt_ptx_partition_new(uint32_t *loads, const uint16_t *sms, unsigned sm_count,
                                                  uint64_t sm_rate)
{
    struct flyt_ptx_partition *partition = calloc(1, sizeof *partition + sm_count * sizeof *partition->sms);

    if (!partition)
        return NULL;
    partition->loads = loads;
    partition->rate = sm_rate * sm_count;
    partition->sm_count = sm_count;
    memcpy(partition->sms, sms, sm_count * sizeof *sms);
    return partition;
}

struct flyt_ptx_partition *flyt_ptx_partition_free(struct flyt_ptx_partition *partition)
{
    free(partition);
    return NULL;
}

void flyt_ptx_partition_begin_locked(struct flyt_ptx_partition *partition)
{
    partition->launches++;
    if (partition->in_flight++)
        return;
    partition->busy_since_ns = flyt_ptx_now_ns();
    if (partition->paid_ns < partition->busy_since_ns)
        partition->paid_ns = partition->busy_since_ns;
}

void flyt_ptx_partition_end_locked(struct flyt_ptx_partition *partition)
{
    if (--partition->in_flight == 0)
        partition->busy_ns += flyt_ptx_now_ns() - partition->busy_since_ns;
}

/* ---- room ---- */

bool flyt_ptx_partition_find_locked(const struct flyt_ptx_partition *partition, uint32_t load, unsigned *sm)
{
    unsigned at = *sm;

    for (unsigned i = 0; i < partition->sm_count; i++) {
        if (at >= partition->sm_count)
            at = 0;
        if (partition->loads[partition->sms[at]] + load <= FLYT_PTX_SM_ROOM) {
            *sm = at;
            return true;
        }
        at++;
    }
    return false;
}

void flyt_ptx_partition_place_locked(struct flyt_ptx_partition *partition, unsigned sm, uint32_t load)
{
    partition->loads[partition->sms[sm]] += load;
}

void flyt_ptx_partition_remove_locked(struct flyt_ptx_partition *partition, unsigned sm, uint32_t load)
{
    partition->loads[partition->sms[sm]] -= load;
}

bool flyt_ptx_partition_place_all_locked(struct flyt_ptx_partition *partition, uint32_t load, uint64_t count,
                                         uint16_t *ret_sms)
{
    unsigned sm = 0;

    for (uint64_t i = 0; i < count; i++, sm++) {
        if (!flyt_ptx_partition_find_locked(partition, load, &sm)) {
            while (i--)
                flyt_ptx_partition_remove_locked(partition, ret_sms[i], load);
            return false;
        }
        flyt_ptx_partition_place_locked(partition, sm, load);
        ret_sms[i] = (uint16_t)sm;
    }
    return true;
}

/* ---- speed ---- */

bool flyt_ptx_partition_is_due(const struct flyt_ptx_partition *partition, uint64_t now_ns)
{
    return !partition->rate || partition->paid_ns <= now_ns;
}

bool flyt_ptx_partition_take_locked(struct flyt_ptx_partition *partition, uint64_t now_ns, uint64_t *ret_slice)
{
    uint64_t slice = partition->rate / (NS_PER_S / SLICE_NS);

    if (!flyt_ptx_partition_is_due(partition, now_ns))
        return false;
    if (partition->paid_ns + LAG_NS < now_ns)
        partition->paid_ns = now_ns - LAG_NS;
    partition->paid_ns += SLICE_NS; /* so that no two workers spend the same millisecond */
    *ret_slice = slice ? slice : 1;
    return true;
}

void flyt_ptx_partition_settle_locked(struct flyt_ptx_partition *partition, uint64_t executed)
{
    uint64_t seconds = executed / partition->rate, rest = executed % partition->rate;

    /* rest < rate ≤ 512 · 10^12: in floating point, as the product does not fit 64 bits. */
    partition->paid_ns += seconds * NS_PER_S + (uint64_t)((double)rest * NS_PER_S / (double)partition->rate) - SLICE_NS;
}
