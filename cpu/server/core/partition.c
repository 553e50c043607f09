#include "cpu/server/core/partition.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
                        struct flyt_partition_context *context)
{
    CUdevResourceDesc desc;
    for (unsigned i = 0; i < count; i++)
        context->sm_count += resources[i].sm.smCount;
    CUresult result = driver->cuDevResourceGenerateDesc(&desc, resources, count);
    if (result == CUDA_SUCCESS)
        result = driver->cuGreenCtxCreate(&context->cu_green, desc, cu_device, CU_GREEN_CTX_DEFAULT_STREAM);
    if (result == CUDA_SUCCESS)
        result = driver->cuCtxFromGreenCtx(&context->cu_context, context->cu_green);
    return result;
}

/* With group_size 0: of all SMs. */
static CUresult make(const struct flyt_driver *driver, CUdevice cu_device, struct flyt_partition_context *context)
{
    if (!context->group_size) {
        CUdevResource all;
        CUresult result = driver->cuDeviceGetDevResource(cu_device, &all, CU_DEV_RESOURCE_TYPE_SM);
        return result == CUDA_SUCCESS ? make_of(driver, cu_device, &all, 1, context) : result;
    }
    struct flyt_partition *partition = calloc(1, sizeof *partition);
    if (!partition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = flyt_partition_split(driver, cu_device, context->group_size, partition);
    if (result == CUDA_SUCCESS) {
        unsigned count = choose(partition, context->groups);
        result = count ? make_of(driver, cu_device, partition->groups, count, context) : CUDA_ERROR_INVALID_VALUE;
    }
    free(partition);
    return result;
}

CUresult flyt_partition_get(struct flyt_partition_context **first, const struct flyt_driver *driver, CUdevice cu_device,
                            unsigned group_size, const unsigned char *groups,
                            const struct flyt_partition_context **ret_context)
{
    struct flyt_partition_context wanted = {0};
    for (unsigned i = 0; group_size && i < sizeof wanted.groups; i++) {
        wanted.groups[i] = groups[i];
        if (groups[i])
            wanted.group_size = group_size;
    }
    struct flyt_partition_context *context = *first;
    while (context && (context->group_size != wanted.group_size ||
                       memcmp(context->groups, wanted.groups, sizeof wanted.groups) != 0))
        context = context->next;
    if (!context) {
        context = malloc(sizeof *context);
        if (!context)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *context = wanted;
        CUresult result = make(driver, cu_device, context);
        if (result != CUDA_SUCCESS) {
            free(context);
            return result;
        }
        context->next = *first;
        *first = context;
    }
    *ret_context = context;
    return CUDA_SUCCESS;
}

CUresult flyt_partition_end(struct flyt_partition_context **first, const struct flyt_driver *driver)
{
    CUresult result = CUDA_SUCCESS;
    for (const struct flyt_partition_context *context = *first; context; context = context->next) {
        CUresult destroyed = driver->cuGreenCtxDestroy(context->cu_green);
        result = result == CUDA_SUCCESS ? destroyed : result;
    }
    flyt_partition_forget(first);
    return result;
}

void flyt_partition_forget(struct flyt_partition_context **first)
{
    while (*first) {
        struct flyt_partition_context *context = *first;
        *first = context->next;
        free(context);
    }
}
