/* Green contexts: partitions of a device's SMs. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/event.h"
#include "cpu/softgpu/driver/queue.h"

/* What a CUdevResource holds besides the numbers that the caller may read, in its padding. */
struct resource_content {
    uint32_t magic;
    int32_t device;
    uint64_t split; /* number of the call that it is a result of, which cannot be split again; 0: the whole device */
    struct flyt_soft_sms sms;
};
_Static_assert(sizeof(struct resource_content) <= sizeof(((CUdevResource *)0)->_internal_padding),
               "fits the padding of a resource");

enum { RESOURCE_MAGIC = 0x666c7231 };

/* Smallest group, and step of sizes, of a split that ignores which SMs can run a cluster together. */
enum { LOOSE_GROUP_SMS = 2 };

/* Descriptors cannot be destroyed in CUDA: equal ones are made once, which bounds their number. */
struct CUdevResourceDesc_st {
    enum flyt_soft_kind kind;
    struct CUdevResourceDesc_st *next;
    int device;
    struct flyt_soft_sms sms;
};

struct CUgreenCtx_st {
    enum flyt_soft_kind kind;
    uint64_t id;
    struct CUctx_st *ctx;
    struct flyt_soft_sms sms;
};

static unsigned sms_count(const struct flyt_soft_sms *sms)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLYT_SOFT_SMS_MAX / 64; i++)
        count += (unsigned)__builtin_popcountll(sms->bits[i]);
    return count;
}

/* Numbers first … first + count - 1. */
static struct flyt_soft_sms sms_run(unsigned first, unsigned count)
{
    struct flyt_soft_sms sms = {0};

    for (unsigned i = first; i < first + count; i++)
        sms.bits[i / 64] |= (uint64_t)1 << (i % 64);
    return sms;
}

static unsigned group_min(const struct flyt_soft_device *device, unsigned flags)
{
    if (flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING)
        return LOOSE_GROUP_SMS;
    return device->arch.sm_group_min;
}

static uint64_t split_new(void)
{
    return atomic_fetch_add(&flyt_soft_driver()->next_split, 1) + 1;
}

/* split: 0 for a whole device. */
static void resource_fill(CUdevResource *resource, const struct flyt_soft_device *device,
                          const struct flyt_soft_sms *sms, uint64_t split)
{
    struct resource_content content = {.magic = RESOURCE_MAGIC, .device = device->index, .split = split, .sms = *sms};

    memset(resource, 0, sizeof(*resource));
    resource->sm.smCount = sms_count(sms);
    if (!resource->sm.smCount)
        return;
    resource->type = CU_DEV_RESOURCE_TYPE_SM;
    if (!split) {
        resource->sm.minSmPartitionSize = device->arch.sm_group_min;
        resource->sm.smCoscheduledAlignment = device->arch.sm_group_min;
    }
    memcpy(resource->_internal_padding, &content, sizeof(content));
}

/* False: not made by this driver, or empty. */
static bool resource_read(const CUdevResource *resource, struct resource_content *ret_content)
{
    if (resource->type != CU_DEV_RESOURCE_TYPE_SM)
        return false;
    memcpy(ret_content, resource->_internal_padding, sizeof(*ret_content));
    return ret_content->magic == RESOURCE_MAGIC;
}

FLYT_SOFT_API cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
    struct flyt_soft_device *found;
    struct flyt_soft_sms all;
    CUresult r = flyt_soft_device_find(device, &found);

    if (r != CUDA_SUCCESS)
        return r;
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    all = sms_run(0, found->sm_count);
    resource_fill(resource, found, &all, 0);
    return CUDA_SUCCESS;
}

/*
 * How many groups of a size a device gives. With default flags a group's SMs can run a cluster together. SMs that do
 * not fill a smallest group make its neighbour unusable for that: 132 SMs give 15 groups of 8, and 12 that remain.
 */
static unsigned group_count_max(unsigned sm_count, unsigned group_sms, unsigned min_sms, unsigned flags)
{
    unsigned count = sm_count / group_sms;

    if (!(flags & CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING) && group_sms == min_sms && sm_count % group_sms &&
        count > 1)
        count--;
    return count;
}

FLYT_SOFT_API cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *nbGroups, const CUdevResource *input,
                                          CUdevResource *remaining, unsigned int useFlags, unsigned int minCount)
{
    struct flyt_soft_device *device;
    struct resource_content content;
    unsigned min_sms, group_sms, count, total;
    uint64_t split;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flyt_soft_driver()->has_green)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!nbGroups || !input)
        return CUDA_ERROR_INVALID_VALUE;
    if (useFlags != 0 && useFlags != CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING &&
        useFlags != CU_DEV_SM_RESOURCE_SPLIT_MAX_POTENTIAL_CLUSTER_SIZE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!resource_read(input, &content) || content.split ||
        flyt_soft_device_find(content.device, &device) != CUDA_SUCCESS)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    total = device->sm_count;
    min_sms = group_min(device, useFlags);
    if (minCount > total)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    group_sms = minCount ? (minCount + min_sms - 1) / min_sms * min_sms : min_sms;
    if (group_sms > total)
        group_sms = total;
    count = group_count_max(total, group_sms, min_sms, useFlags);
    if (!count)
        return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
    if (!result) {
        *nbGroups = count;
        return CUDA_SUCCESS;
    }
    if (*nbGroups < count)
        count = *nbGroups;
    split = split_new();
    for (unsigned i = 0; i < count; i++) {
        struct flyt_soft_sms group = sms_run(i * group_sms, group_sms);

        resource_fill(&result[i], device, &group, split);
    }
    if (remaining) {
        struct flyt_soft_sms rest = sms_run(count * group_sms, total - count * group_sms);

        resource_fill(remaining, device, &rest, split);
    }
    *nbGroups = count;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct CUdevResourceDesc_st *desc;
    struct flyt_soft_sms sms = {0};
    struct resource_content content;
    uint64_t split = 0;
    int device = -1;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!phDesc || !resources || !nbResources)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < nbResources; i++) {
        if (!resource_read(&resources[i], &content))
            return CUDA_ERROR_INVALID_RESOURCE_TYPE;
        /* Groups of different splits do not go together, and the whole device with none. */
        if (i && (content.device != device || content.split != split || !split))
            return CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION;
        device = content.device;
        split = content.split;
        for (unsigned j = 0; j < FLYT_SOFT_SMS_MAX / 64; j++)
            sms.bits[j] |= content.sms.bits[j];
    }
    pthread_mutex_lock(&driver->mutex);
    for (desc = driver->descs; desc; desc = desc->next)
        if (desc->device == device && !memcmp(&desc->sms, &sms, sizeof(sms)))
            break;
    if (!desc) {
        desc = calloc(1, sizeof(*desc));
        if (desc) {
            *desc = (struct CUdevResourceDesc_st){
                .kind = FLYT_SOFT_DESC, .next = driver->descs, .device = device, .sms = sms};
            driver->descs = desc;
        }
    }
    pthread_mutex_unlock(&driver->mutex);
    if (!desc)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *phDesc = desc;
    return CUDA_SUCCESS;
}

CUresult flyt_soft_green_context(CUgreenCtx green, struct CUctx_st **ret_ctx)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flyt_soft_is(green, FLYT_SOFT_GREEN))
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret_ctx = green->ctx;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
    struct flyt_soft_device *device;
    struct CUgreenCtx_st *green;
    struct CUctx_st *primary;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_driver()->has_green)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!phCtx || !flyt_soft_is(desc, FLYT_SOFT_DESC) || desc->device != dev || flags != CU_GREEN_CTX_DEFAULT_STREAM)
        return CUDA_ERROR_INVALID_VALUE;
    r = atomic_load(&device->sticky);
    if (r == CUDA_SUCCESS)
        r = flyt_soft_primary_retain(device, &primary);
    if (r != CUDA_SUCCESS)
        return r;
    green = calloc(1, sizeof(*green));
    if (!green)
        goto release_primary;
    green->kind = FLYT_SOFT_GREEN;
    green->id = flyt_soft_id_new();
    green->sms = desc->sms;
    green->ctx = flyt_soft_context_new(device, green, primary->flags, &desc->sms);
    if (!green->ctx)
        goto free_green;
    flyt_soft_coredump_begin_green(&green->ctx->coredump, &primary->coredump);
    *phCtx = green;
    return CUDA_SUCCESS;

free_green:
    free(green);
release_primary:
    flyt_soft_primary_release(device);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/*
 * The streams that were made in the green context stay usable until they are destroyed, as on a GPU; its contexts and
 * the primary context's reference go with it.
 */
FLYT_SOFT_API cuGreenCtxDestroy(CUgreenCtx hCtx)
{
    struct flyt_soft_device *device;
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_green_context(hCtx, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    device = ctx->device;
    flyt_soft_context_drain(ctx);
    ctx->green = NULL;
    hCtx->kind = FLYT_SOFT_DEAD;
    free(hCtx);
    flyt_soft_context_retire(ctx);
    return flyt_soft_primary_release(device);
}

FLYT_SOFT_API cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_green_context(hCtx, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pContext)
        return CUDA_ERROR_INVALID_VALUE;
    *pContext = ctx;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGreenCtxGetDevResource(CUgreenCtx hCtx, CUdevResource *resource, CUdevResourceType type)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_green_context(hCtx, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!resource)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_DEV_RESOURCE_TYPE_SM)
        return CUDA_ERROR_INVALID_RESOURCE_TYPE;
    resource_fill(resource, ctx->device, &hCtx->sms, split_new());
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxGetDevResource(CUcontext hCtx, CUdevResource *resource, CUdevResourceType type)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flyt_soft_is(hCtx, FLYT_SOFT_CONTEXT) || atomic_load(&hCtx->is_dead))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (hCtx->green)
        return cuGreenCtxGetDevResource(hCtx->green, resource, type);
    return cuDeviceGetDevResource(hCtx->device->index, resource, type);
}

FLYT_SOFT_API cuGreenCtxGetId(CUgreenCtx greenCtx, unsigned long long *greenCtxId)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_green_context(greenCtx, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!greenCtxId)
        return CUDA_ERROR_INVALID_VALUE;
    *greenCtxId = greenCtx->id;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGreenCtxRecordEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct CUctx_st *ctx;
    struct flyt_soft_record *record;
    CUresult r = flyt_soft_green_context(hCtx, &ctx);

    if (r == CUDA_SUCCESS)
        r = atomic_load(&ctx->device->sticky);
    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hEvent, FLYT_SOFT_EVENT) || !flyt_soft_event_suits(hEvent, ctx))
        return CUDA_ERROR_INVALID_HANDLE;
    record = flyt_soft_record_new();
    if (!record)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = flyt_soft_context_record(ctx, flyt_soft_record_ref(record));
    if (r == CUDA_SUCCESS)
        flyt_soft_event_set(hEvent, record);
    else
        flyt_soft_record_unref(record);
    return r;
}

FLYT_SOFT_API cuGreenCtxWaitEvent(CUgreenCtx hCtx, CUevent hEvent)
{
    struct CUctx_st *ctx;
    struct flyt_soft_record *record;
    CUresult r = flyt_soft_green_context(hCtx, &ctx);

    if (r == CUDA_SUCCESS)
        r = atomic_load(&ctx->device->sticky);
    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hEvent, FLYT_SOFT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    record = flyt_soft_event_record(hEvent);
    if (record)
        r = flyt_soft_context_wait(ctx, record);
    flyt_soft_record_unref(record);
    return r;
}
