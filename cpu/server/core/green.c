#include "cpu/server/core/green.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/device.h"
#include "cpu/server/core/session.h"

static bool has(const unsigned char *bits, unsigned i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static void set(unsigned char *bits, unsigned i)
{
    bits[i / 8] |= (unsigned char)(1u << (i % 8));
}

/* Of a session that has the whole GPU, all groups of the size that is meant then. */
static CUresult whole(const struct flyt_device *device, unsigned *ret_group_size, unsigned char *ret_groups)
{
    struct flyt_partition *partition = calloc(1, sizeof *partition);
    if (!partition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_partition_split(device->session->driver, device->cu_device, FLYT_GREEN_GROUP_SMS, partition);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < partition->count; i++)
        set(ret_groups, i);
    *ret_group_size = FLYT_GREEN_GROUP_SMS;
    free(partition);
    return result;
}

/* Those of the groups that the ranks name; all, where that is none. */
static void choose(const unsigned char *ranks, const unsigned char *groups, unsigned char *ret_chosen)
{
    unsigned rank = 0, chosen_count = 0;
    for (unsigned i = 0; i < FLYT_GROUPS_MAX; i++) {
        if (!has(groups, i))
            continue;
        if (has(ranks, rank)) {
            set(ret_chosen, i);
            chosen_count++;
        }
        rank++;
    }
    if (!chosen_count)
        memcpy(ret_chosen, groups, FLYT_GROUPS_MAX / 8);
}

CUresult flyt_green_partition(const struct flyt_green *green, struct flyt_device *device, unsigned group_size,
                              const unsigned char *groups, const struct flyt_partition_context **ret_context)
{
    const struct flyt_driver *driver = device->session->driver;
    unsigned char all[FLYT_GROUPS_MAX / 8] = {0}, chosen[FLYT_GROUPS_MAX / 8] = {0};
    CUresult result = CUDA_SUCCESS;
    if (!green)
        return flyt_partition_get(&device->partitions, driver, device->cu_device, group_size, groups, ret_context);
    if (group_size)
        memcpy(all, groups, sizeof all);
    else
        result = whole(device, &group_size, all);
    if (result != CUDA_SUCCESS)
        return result;
    choose(green->ranks, all, chosen);
    return flyt_partition_get(&device->partitions, driver, device->cu_device, group_size, chosen, ret_context);
}

CUresult flyt_green_units(struct flyt_device *device, unsigned *ret_group_size, unsigned ret_sms[FLYT_GROUPS_MAX],
                          unsigned *ret_count)
{
    const unsigned group_size = device->group_size ? device->group_size : FLYT_GREEN_GROUP_SMS;
    struct flyt_partition *partition = calloc(1, sizeof *partition);
    unsigned count = 0;
    if (!partition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_partition_split(device->session->driver, device->cu_device, group_size, partition);
    for (unsigned i = 0; result == CUDA_SUCCESS && i < partition->count; i++)
        if (!device->group_size || has(device->groups, i))
            ret_sms[count++] = partition->groups[i].sm.smCount;
    free(partition);
    *ret_group_size = group_size;
    *ret_count = count;
    return result;
}
