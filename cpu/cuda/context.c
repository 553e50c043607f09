/*
 * Contexts. They live in the client only; see cpu/client/context.h. This file adds what the driver API says of NULL
 * arguments, and in which order.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/device.h"

/* ---- making and destroying ---- */

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *ret_context, unsigned flags, CUdevice device)
{
    FLYT_CUDA_ENTER();
    return ret_context ? flyt_context_create(flags, device, ret_context) : CUDA_ERROR_INVALID_VALUE;
}
FLYT_CUDA_SAME(cuCtxCreate, cuCtxCreate_v2);

/* With execution affinity: how many SMs a program has is not the program's to say. */
CUresult CUDAAPI cuCtxCreate_v3(CUcontext *ret_context, CUexecAffinityParam *affinities, int affinity_count,
                                unsigned flags, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (affinity_count < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (affinity_count > 0)
        return flyt_not_supported("cuCtxCreate_v3 with execution affinity");
    return cuCtxCreate_v2(ret_context, flags, device);
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *ret_context, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    FLYT_CUDA_ENTER();
    if (params && (params->execAffinityParams || params->cigParams))
        return flyt_not_supported("cuCtxCreate_v4 with execution affinity or graphics");
    return cuCtxCreate_v2(ret_context, flags, device);
}

CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
    if (!context)
        return CUDA_ERROR_INVALID_VALUE;
    FLYT_CUDA_ENTER();
    return flyt_context_destroy(context);
}
FLYT_CUDA_SAME(cuCtxDestroy, cuCtxDestroy_v2);

/* ---- the calling thread's stack ---- */

CUresult CUDAAPI cuCtxPushCurrent_v2(CUcontext context)
{
    FLYT_CUDA_ENTER();
    return context ? flyt_context_push(context) : CUDA_ERROR_INVALID_VALUE;
}
FLYT_CUDA_SAME(cuCtxPushCurrent, cuCtxPushCurrent_v2);

CUresult CUDAAPI cuCtxPopCurrent_v2(CUcontext *ret_context)
{
    FLYT_CUDA_ENTER();
    return flyt_context_pop(ret_context);
}
FLYT_CUDA_SAME(cuCtxPopCurrent, cuCtxPopCurrent_v2);

CUresult CUDAAPI cuCtxSetCurrent(CUcontext context)
{
    FLYT_CUDA_ENTER();
    return flyt_context_set_current(context);
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *ret_context)
{
    FLYT_CUDA_ENTER();
    return ret_context ? flyt_context_current(ret_context) : CUDA_ERROR_INVALID_VALUE;
}

/* ---- questions and settings ---- */

/* NULL: the current context. A released primary context still has its device. */
CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *ret_device, CUcontext context)
{
    FLYT_CUDA_ENTER();
    return ret_device ? flyt_context_device_any(context, ret_device) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *ret_device)
{
    return cuCtxGetDevice_v2(ret_device, NULL);
}

CUresult CUDAAPI cuCtxGetFlags(unsigned *ret_flags)
{
    FLYT_CUDA_ENTER();
    return ret_flags ? flyt_context_flags(ret_flags) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuCtxSetFlags(unsigned flags)
{
    FLYT_CUDA_ENTER();
    return flyt_context_flags_set(flags);
}

CUresult CUDAAPI cuCtxGetId(CUcontext context, unsigned long long *ret_id)
{
    FLYT_CUDA_ENTER();
    return ret_id ? flyt_context_number(context, ret_id) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuCtxGetApiVersion(CUcontext context, unsigned *ret_version)
{
    FLYT_CUDA_ENTER();
    return ret_version ? flyt_context_api_version(context, ret_version) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuCtxGetLimit(size_t *ret_value, CUlimit limit)
{
    FLYT_CUDA_ENTER();
    return ret_value ? flyt_device_limit(limit, ret_value) : flyt_cuda_invalid_value();
}

CUresult CUDAAPI cuCtxSetLimit(CUlimit limit, size_t value)
{
    FLYT_CUDA_ENTER();
    return flyt_device_limit_set(limit, value);
}

CUresult CUDAAPI cuCtxGetCacheConfig(CUfunc_cache *ret_config)
{
    FLYT_CUDA_ENTER();
    return ret_config ? flyt_device_cache_config(ret_config) : flyt_cuda_invalid_value();
}

CUresult CUDAAPI cuCtxSetCacheConfig(CUfunc_cache config)
{
    FLYT_CUDA_ENTER();
    return flyt_device_cache_config_set(config);
}

CUresult CUDAAPI cuCtxGetSharedMemConfig(CUsharedconfig *ret_config)
{
    FLYT_CUDA_ENTER();
    return ret_config ? flyt_device_shared_config(ret_config) : flyt_cuda_invalid_value();
}

CUresult CUDAAPI cuCtxSetSharedMemConfig(CUsharedconfig config)
{
    FLYT_CUDA_ENTER();
    return flyt_device_shared_config_set(config);
}

/* Either result may be NULL. */
CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *ret_least, int *ret_greatest)
{
    FLYT_CUDA_ENTER();
    int device;
    const struct flyt_device_info *info = NULL;
    CUresult result = flyt_context_device(NULL, &device);
    if (result == CUDA_SUCCESS)
        result = flyt_device_info(device, &info);
    if (result != CUDA_SUCCESS)
        return result;
    if (ret_least)
        *ret_least = info->least_priority;
    if (ret_greatest)
        *ret_greatest = info->greatest_priority;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSynchronize(void)
{
    FLYT_CUDA_ENTER();
    return flyt_device_synchronize();
}

/* NULL: the current context. */
CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext context)
{
    FLYT_CUDA_ENTER();
    if (!context)
        return flyt_device_synchronize();
    CUresult result = flyt_context_push(context);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_device_synchronize();
    CUresult popped = flyt_context_pop(NULL);
    return result != CUDA_SUCCESS ? result : popped;
}

/* ---- peers: access is between devices, a context says which ---- */

static CUresult peer_devices(CUcontext peer_context, int *ret_device, int *ret_peer_device)
{
    CUresult result = flyt_context_device(NULL, ret_device);
    if (result != CUDA_SUCCESS)
        return result;
    return peer_context ? flyt_context_device(peer_context, ret_peer_device) : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext peer_context, unsigned flags)
{
    FLYT_CUDA_ENTER();
    int device, peer_device;
    CUresult result = peer_devices(peer_context, &device, &peer_device);
    if (result != CUDA_SUCCESS)
        return result;
    return device == peer_device ? CUDA_ERROR_PEER_ACCESS_UNSUPPORTED : flyt_device_peer_enable(peer_device, flags);
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext peer_context)
{
    FLYT_CUDA_ENTER();
    int device, peer_device;
    CUresult result = peer_devices(peer_context, &device, &peer_device);
    if (result != CUDA_SUCCESS)
        return result;
    return device == peer_device ? CUDA_ERROR_PEER_ACCESS_NOT_ENABLED : flyt_device_peer_disable(peer_device);
}

/* ---- primary contexts ---- */

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *ret_context, CUdevice device)
{
    FLYT_CUDA_ENTER();
    return ret_context ? flyt_primary_retain(device, ret_context) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    FLYT_CUDA_ENTER();
    return flyt_primary_release(device);
}
FLYT_CUDA_SAME(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2);

CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    FLYT_CUDA_ENTER();
    return flyt_device_reset(device);
}
FLYT_CUDA_SAME(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2);

CUresult CUDAAPI cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags)
{
    FLYT_CUDA_ENTER();
    return flyt_primary_flags_set(device, flags);
}
FLYT_CUDA_SAME(cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2);

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned *ret_flags, int *ret_is_active)
{
    FLYT_CUDA_ENTER();
    return ret_flags && ret_is_active ? flyt_primary_state(device, ret_flags, ret_is_active) : CUDA_ERROR_INVALID_VALUE;
}
