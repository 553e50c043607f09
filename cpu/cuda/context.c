/*
 * Contexts. They live in the client only; see cpu/client/cuda/context.h. This file adds what the driver API says of
 * NULL arguments, and in which order.
 */
#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/device.h"

/* What a device answers that has no support for execution affinity: how many SMs a program has is the operator's to
 * say. The parameters are not looked at. */
static CUresult check_affinity(int affinity_count, CUdevice device)
{
    int sms;
    CUresult result = flyt_device_attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &sms);
    if (result != CUDA_SUCCESS)
        return result;
    if (affinity_count < 0)
        return CUDA_ERROR_INVALID_VALUE;
    return affinity_count ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate_v3(CUcontext *ret_context, CUexecAffinityParam *affinities, int affinity_count,
                                unsigned flags, CUdevice device)
{
    FLYT_CUDA_ENTER();
    CUresult result = check_affinity(affinity_count, device);
    return result == CUDA_SUCCESS ? cuCtxCreate_v2(ret_context, flags, device) : result;
}

CUresult CUDAAPI cuCtxCreate_v4(CUcontext *ret_context, CUctxCreateParams *params, unsigned flags, CUdevice device)
{
    FLYT_CUDA_ENTER();
    const bool has_affinity = params && params->execAffinityParams && params->numExecAffinityParams > 0;
    CUresult result = check_affinity(has_affinity, device);
    if (result != CUDA_SUCCESS)
        return result;
    if (params && params->cigParams)
        return params->execAffinityParams ? CUDA_ERROR_INVALID_VALUE
                                          : flyt_not_supported("cuCtxCreate_v4 for graphics");
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

/* ---- questions and settings ---- */

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
