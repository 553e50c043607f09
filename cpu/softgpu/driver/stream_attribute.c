/* Attributes of streams. Hints are kept and asked for, and change nothing but the order in which streams get work. */
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

static bool is_of_streams(CUstreamAttrID attribute)
{
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
        return true;
    default:
        return false;
    }
}

static bool is_window(const CUaccessPolicyWindow *window)
{
    return window->num_bytes <= FLYT_SOFT_ACCESS_WINDOW_BYTES && window->hitRatio >= 0 && window->hitRatio <= 1 &&
           (unsigned)window->hitProp <= CU_ACCESS_PROPERTY_PERSISTING &&
           (unsigned)window->missProp <= CU_ACCESS_PROPERTY_STREAMING;
}

/* The one domain that there is has number 0; both kinds of kernels may be sent to it. */
static bool is_value(CUstreamAttrID attribute, const CUstreamAttrValue *value)
{
    switch (attribute) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        return is_window(&value->accessPolicyWindow);
    case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        return value->syncPolicy >= CU_SYNC_POLICY_AUTO && value->syncPolicy <= CU_SYNC_POLICY_BLOCKING_SYNC;
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        return true; /* is brought into the range */
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        return !value->memSyncDomainMap.default_ && !value->memSyncDomainMap.remote;
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        return (unsigned)value->memSyncDomain <= CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
    default:
        return value->nvlinkUtilCentricScheduling <= 1;
    }
}

static CUresult enter(CUstream handle, CUstreamAttrID attribute, const void *value, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_find(ctx, handle, ret_stream);
    if (r == CUDA_SUCCESS && (!value || !is_of_streams(attribute)))
        r = CUDA_ERROR_INVALID_VALUE;
    return r;
}

FLYT_SOFT_API cuStreamGetAttribute(CUstream hStream, CUstreamAttrID attr, CUstreamAttrValue *value_out)
{
    struct CUstream_st *stream;
    CUresult r = enter(hStream, attr, value_out, &stream);

    if (r == CUDA_SUCCESS)
        *value_out = stream->attributes[attr];
    return r;
}

FLYT_SOFT_API cuStreamSetAttribute(CUstream hStream, CUstreamAttrID attr, const CUstreamAttrValue *value)
{
    struct CUstream_st *stream;
    CUresult r = enter(hStream, attr, value, &stream);

    if (r == CUDA_SUCCESS && !is_value(attr, value))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    stream->attributes[attr] = *value;
    if (attr == CU_LAUNCH_ATTRIBUTE_PRIORITY) {
        int priority = value->priority > 0 ? 0 : value->priority;
        stream->priority = priority < FLYT_SOFT_PRIORITY_GREATEST ? FLYT_SOFT_PRIORITY_GREATEST : priority;
        stream->attributes[attr].priority = stream->priority;
    }
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuStreamCopyAttributes(CUstream dst, CUstream src)
{
    struct CUctx_st *ctx;
    struct CUstream_st *to, *from;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_find(ctx, dst, &to);
    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_find(ctx, src, &from);
    if (r == CUDA_SUCCESS && to->ctx != from->ctx)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    memcpy(to->attributes, from->attributes, sizeof to->attributes);
    to->priority = from->priority;
    return CUDA_SUCCESS;
}
