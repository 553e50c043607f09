#include "cpu/server/partition.h"

#include <stdbool.h>
#include <stdlib.h>

/* From this size on a group's SMs can run a cluster of 8 together, which needs the driver's default way to split. */
enum { CLUSTER_GROUP_SIZE = 8 };

CUresult flyt_partition_split(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size,
                              struct flyt_partition *ret_partition)
{
    unsigned flags = group_size < CLUSTER_GROUP_SIZE ? CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING : 0;
    unsigned count = 0;
    CUdevResource all, remaining = {0};
    if (!group_size)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = driver->cuDeviceGetDevResource(cu_device, &all, CU_DEV_RESOURCE_TYPE_SM);
    if (result == CUDA_SUCCESS)
        result = driver->cuDevSmResourceSplitByCount(NULL, &count, &all, NULL, flags, group_size);
    if (result == CUDA_SUCCESS && count >= FLYT_GROUPS_MAX)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result =
            driver->cuDevSmResourceSplitByCount(ret_partition->groups, &count, &all, &remaining, flags, group_size);
    if (result != CUDA_SUCCESS)
        return result;
    if (remaining.type == CU_DEV_RESOURCE_TYPE_SM && remaining.sm.smCount)
        ret_partition->groups[count++] = remaining;
    ret_partition->count = count;
    return CUDA_SUCCESS;
}

static bool has_group(const unsigned char *groups, unsigned group)
{
    return groups[group / 8] >> (group % 8) & 1;
}

/* The groups that the bit map names, moved to the front of the partition. How many, or 0: one is not there. */
static unsigned choose(struct flyt_partition *partition, const unsigned char *groups)
{
    unsigned count = 0;
    for (unsigned i = 0; i < FLYT_GROUPS_MAX; i++) {
        if (!has_group(groups, i))
            continue;
        if (i >= partition->count)
            return 0;
        partition->groups[count++] = partition->groups[i];
    }
    return count;
}

static CUresult make_of(const struct flyt_driver *driver, CUdevice cu_device, CUdevResource *resources, unsigned count,
                        CUgreenCtx *ret_green, unsigned *ret_sm_count)
{
    CUdevResourceDesc desc;
    unsigned sm_count = 0;
    for (unsigned i = 0; i < count; i++)
        sm_count += resources[i].sm.smCount;
    CUresult result = driver->cuDevResourceGenerateDesc(&desc, resources, count);
    if (result == CUDA_SUCCESS)
        result = driver->cuGreenCtxCreate(ret_green, desc, cu_device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (result == CUDA_SUCCESS)
        *ret_sm_count = sm_count;
    return result;
}

CUresult flyt_partition_make(const struct flyt_driver *driver, CUdevice cu_device, unsigned group_size,
                             const unsigned char *groups, CUgreenCtx *ret_green, unsigned *ret_sm_count)
{
    bool is_limited = false;
    for (unsigned i = 0; group_size && i < FLYT_GROUPS_MAX / 8; i++)
        is_limited |= groups[i] != 0;
    if (!is_limited) {
        CUdevResource all;
        CUresult result = driver->cuDeviceGetDevResource(cu_device, &all, CU_DEV_RESOURCE_TYPE_SM);
        return result == CUDA_SUCCESS ? make_of(driver, cu_device, &all, 1, ret_green, ret_sm_count) : result;
    }
    struct flyt_partition *partition = calloc(1, sizeof *partition);
    if (!partition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_partition_split(driver, cu_device, group_size, partition);
    if (result == CUDA_SUCCESS) {
        unsigned count = choose(partition, groups);
        result = count ? make_of(driver, cu_device, partition->groups, count, ret_green, ret_sm_count)
                       : CUDA_ERROR_INVALID_VALUE;
    }
    free(partition);
    return result;
}
