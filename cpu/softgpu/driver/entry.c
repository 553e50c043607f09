/* Entry points by name, and those that do nothing. */
#include <cuda.h>
#include <cudaProfiler.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"

/* There is nothing to collect: a program that brackets its work for a profiler runs as without one. */
FLYT_SOFT_API cuProfilerStart(void)
{
    struct CUctx_st *ctx;

    return flyt_soft_enter(&ctx);
}

FLYT_SOFT_API cuProfilerStop(void)
{
    struct CUctx_st *ctx;

    return flyt_soft_enter(&ctx);
}

/*
 * A name as cuGetProcAddress takes it, without the suffix of its version: cuda.h's macros turn the second argument into
 * the current version. `since`: the CUDA version from which the name means this interface, where older ones differ.
 */
#define ENTRY(name_, since_)                                                                                           \
    {                                                                                                                  \
        .name = #name_, .since = (since_), .function = (void *)name_                                                   \
    }

static const struct {
    const char *name;
    int since;
    void *function;
} entries[] = {
    ENTRY(cuArray3DCreate, 0),
    ENTRY(cuArray3DGetDescriptor, 0),
    ENTRY(cuArrayCreate, 0),
    ENTRY(cuArrayDestroy, 0),
    ENTRY(cuArrayGetPlane, 0),
    ENTRY(cuCoredumpGetAttribute, 12010),
    ENTRY(cuCoredumpGetAttributeGlobal, 12010),
    ENTRY(cuCoredumpSetAttribute, 12010),
    ENTRY(cuCoredumpSetAttributeGlobal, 12010),
    ENTRY(cuCtxCreate, 13000),
    ENTRY(cuCtxDestroy, 0),
    ENTRY(cuCtxEnablePeerAccess, 0),
    ENTRY(cuCtxFromGreenCtx, 0),
    ENTRY(cuCtxGetApiVersion, 0),
    ENTRY(cuCtxGetCacheConfig, 0),
    ENTRY(cuCtxGetCurrent, 0),
    ENTRY(cuCtxGetDevResource, 0),
    ENTRY(cuCtxGetDevice, 0),
    ENTRY(cuCtxGetFlags, 0),
    ENTRY(cuCtxGetId, 0),
    ENTRY(cuCtxGetLimit, 0),
    ENTRY(cuCtxGetStreamPriorityRange, 0),
    ENTRY(cuCtxPopCurrent, 0),
    ENTRY(cuCtxPushCurrent, 0),
    ENTRY(cuCtxResetPersistingL2Cache, 0),
    ENTRY(cuCtxSetCacheConfig, 0),
    ENTRY(cuCtxSetCurrent, 0),
    ENTRY(cuCtxSetLimit, 0),
    ENTRY(cuCtxSynchronize, 0),
    ENTRY(cuDevResourceGenerateDesc, 0),
    ENTRY(cuDevSmResourceSplitByCount, 0),
    ENTRY(cuDeviceCanAccessPeer, 0),
    ENTRY(cuDeviceGet, 0),
    ENTRY(cuDeviceGetAttribute, 0),
    ENTRY(cuDeviceGetByPCIBusId, 0),
    ENTRY(cuDeviceGetCount, 0),
    ENTRY(cuDeviceGetDevResource, 0),
    ENTRY(cuDeviceGetName, 0),
    ENTRY(cuDeviceGetHostAtomicCapabilities, 0),
    ENTRY(cuDeviceGetP2PAtomicCapabilities, 0),
    ENTRY(cuDeviceGetP2PAttribute, 0),
    ENTRY(cuDeviceGetPCIBusId, 0),
    ENTRY(cuDeviceGetUuid, 11040),
    ENTRY(cuDevicePrimaryCtxGetState, 0),
    ENTRY(cuDevicePrimaryCtxRelease, 0),
    ENTRY(cuDevicePrimaryCtxReset, 0),
    ENTRY(cuDevicePrimaryCtxRetain, 0),
    ENTRY(cuDevicePrimaryCtxSetFlags, 0),
    ENTRY(cuDeviceTotalMem, 0),
    ENTRY(cuDriverGetVersion, 0),
    ENTRY(cuEventCreate, 0),
    ENTRY(cuEventDestroy, 0),
    ENTRY(cuEventElapsedTime, 12080),
    ENTRY(cuEventQuery, 0),
    ENTRY(cuEventRecord, 0),
    ENTRY(cuEventRecordWithFlags, 0),
    ENTRY(cuEventSynchronize, 0),
    ENTRY(cuFuncGetAttribute, 0),
    ENTRY(cuFuncGetModule, 0),
    ENTRY(cuFuncGetName, 0),
    ENTRY(cuFuncGetParamInfo, 0),
    ENTRY(cuFuncIsLoaded, 0),
    ENTRY(cuFuncLoad, 0),
    ENTRY(cuFuncSetAttribute, 0),
    ENTRY(cuFuncSetCacheConfig, 0),
    ENTRY(cuGetErrorName, 0),
    ENTRY(cuGetErrorString, 0),
    ENTRY(cuGetProcAddress, 12000),
    ENTRY(cuGraphAddChildGraphNode, 0),
    ENTRY(cuGraphAddDependencies, 12030),
    ENTRY(cuGraphAddEmptyNode, 0),
    ENTRY(cuGraphAddKernelNode, 12000),
    ENTRY(cuGraphAddMemcpyNode, 0),
    ENTRY(cuGraphAddMemsetNode, 0),
    ENTRY(cuGraphAddNode, 12030),
    ENTRY(cuGraphChildGraphNodeGetGraph, 0),
    ENTRY(cuGraphConditionalHandleCreate, 0),
    ENTRY(cuGraphCreate, 0),
    ENTRY(cuGraphDestroy, 0),
    ENTRY(cuGraphExecDestroy, 0),
    ENTRY(cuGraphExecKernelNodeSetParams, 12000),
    ENTRY(cuGraphExecMemcpyNodeSetParams, 0),
    ENTRY(cuGraphExecMemsetNodeSetParams, 0),
    ENTRY(cuGraphGetNodes, 0),
    ENTRY(cuGraphInstantiateWithFlags, 0),
    ENTRY(cuGraphKernelNodeSetAttribute, 0),
    ENTRY(cuGraphLaunch, 0),
    ENTRY(cuGraphMemcpyNodeGetParams, 0),
    ENTRY(cuGraphNodeGetType, 0),
    ENTRY(cuGraphNodeSetEnabled, 0),
    ENTRY(cuGraphUpload, 0),
    ENTRY(cuGreenCtxCreate, 0),
    ENTRY(cuGreenCtxDestroy, 0),
    ENTRY(cuGreenCtxGetDevResource, 0),
    ENTRY(cuGreenCtxGetId, 0),
    ENTRY(cuGreenCtxRecordEvent, 0),
    ENTRY(cuGreenCtxStreamCreate, 0),
    ENTRY(cuGreenCtxWaitEvent, 0),
    ENTRY(cuInit, 0),
    ENTRY(cuKernelGetAttribute, 0),
    ENTRY(cuKernelGetFunction, 0),
    ENTRY(cuKernelGetLibrary, 0),
    ENTRY(cuKernelGetName, 0),
    ENTRY(cuKernelGetParamInfo, 0),
    ENTRY(cuKernelSetAttribute, 0),
    ENTRY(cuKernelSetCacheConfig, 0),
    ENTRY(cuLaunchCooperativeKernel, 0),
    ENTRY(cuLaunchHostFunc, 0),
    ENTRY(cuLaunchKernel, 0),
    ENTRY(cuLaunchKernelEx, 0),
    ENTRY(cuLibraryEnumerateKernels, 0),
    ENTRY(cuLibraryGetGlobal, 0),
    ENTRY(cuLibraryGetKernel, 0),
    ENTRY(cuLibraryGetKernelCount, 0),
    ENTRY(cuLibraryGetManaged, 0),
    ENTRY(cuLibraryGetModule, 0),
    ENTRY(cuLibraryLoadData, 0),
    ENTRY(cuLibraryUnload, 0),
    ENTRY(cuLinkAddData, 0),
    ENTRY(cuLinkAddFile, 0),
    ENTRY(cuLinkComplete, 0),
    ENTRY(cuLinkCreate, 0),
    ENTRY(cuLinkDestroy, 0),
    ENTRY(cuMemAddressFree, 0),
    ENTRY(cuMemAddressReserve, 0),
    ENTRY(cuMemAdvise, 13000),
    ENTRY(cuMemAlloc, 0),
    ENTRY(cuMemAllocHost, 0),
    ENTRY(cuMemAllocManaged, 0),
    ENTRY(cuMemAllocPitch, 0),
    ENTRY(cuMemBatchDecompressAsync, 12060),
    ENTRY(cuMemCreate, 0),
    ENTRY(cuMemExportToShareableHandle, 0),
    ENTRY(cuMemFree, 0),
    ENTRY(cuMemFreeHost, 0),
    ENTRY(cuMemGetAccess, 0),
    ENTRY(cuMemGetAddressRange, 0),
    ENTRY(cuMemGetAllocationGranularity, 0),
    ENTRY(cuMemGetAllocationPropertiesFromHandle, 0),
    ENTRY(cuMemGetInfo, 0),
    ENTRY(cuMemHostAlloc, 0),
    ENTRY(cuMemHostGetDevicePointer, 0),
    ENTRY(cuMemHostGetFlags, 0),
    ENTRY(cuMemHostRegister, 0),
    ENTRY(cuMemHostUnregister, 0),
    ENTRY(cuMemImportFromShareableHandle, 0),
    ENTRY(cuMemMap, 0),
    ENTRY(cuMemPrefetchAsync, 13000),
    ENTRY(cuMemRangeGetAttribute, 0),
    ENTRY(cuMemRangeGetAttributes, 0),
    ENTRY(cuMemRelease, 0),
    ENTRY(cuMemRetainAllocationHandle, 0),
    ENTRY(cuMemSetAccess, 0),
    ENTRY(cuMemUnmap, 0),
    ENTRY(cuMemcpy, 0),
    ENTRY(cuMemcpy2D, 0),
    ENTRY(cuMemcpy2DAsync, 0),
    ENTRY(cuMemcpy2DUnaligned, 0),
    ENTRY(cuMemcpy3D, 0),
    ENTRY(cuMemcpy3DAsync, 0),
    ENTRY(cuMemcpy3DPeer, 0),
    ENTRY(cuMemcpy3DPeerAsync, 0),
    ENTRY(cuMemcpyAsync, 0),
    ENTRY(cuMemcpyDtoD, 0),
    ENTRY(cuMemcpyDtoDAsync, 0),
    ENTRY(cuMemcpyDtoH, 0),
    ENTRY(cuMemcpyDtoHAsync, 0),
    ENTRY(cuMemcpyHtoD, 0),
    ENTRY(cuMemcpyHtoDAsync, 0),
    ENTRY(cuMemcpyPeer, 0),
    ENTRY(cuMemcpyPeerAsync, 0),
    ENTRY(cuMemsetD16, 0),
    ENTRY(cuMemsetD16Async, 0),
    ENTRY(cuMemsetD2D16, 0),
    ENTRY(cuMemsetD2D16Async, 0),
    ENTRY(cuMemsetD2D32, 0),
    ENTRY(cuMemsetD2D32Async, 0),
    ENTRY(cuMemsetD2D8, 0),
    ENTRY(cuMemsetD2D8Async, 0),
    ENTRY(cuMemsetD32, 0),
    ENTRY(cuMemsetD32Async, 0),
    ENTRY(cuMemsetD8, 0),
    ENTRY(cuMemsetD8Async, 0),
    ENTRY(cuMipmappedArrayCreate, 0),
    ENTRY(cuMipmappedArrayDestroy, 0),
    ENTRY(cuMipmappedArrayGetLevel, 0),
    ENTRY(cuModuleEnumerateFunctions, 0),
    ENTRY(cuModuleGetFunction, 0),
    ENTRY(cuModuleGetFunctionCount, 0),
    ENTRY(cuModuleGetGlobal, 0),
    ENTRY(cuModuleGetLoadingMode, 0),
    ENTRY(cuModuleLoadData, 0),
    ENTRY(cuModuleLoadDataEx, 0),
    ENTRY(cuModuleUnload, 0),
    ENTRY(cuOccupancyAvailableDynamicSMemPerBlock, 0),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 0),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 0),
    ENTRY(cuOccupancyMaxActiveClusters, 0),
    ENTRY(cuOccupancyMaxPotentialBlockSize, 0),
    ENTRY(cuOccupancyMaxPotentialBlockSizeWithFlags, 0),
    ENTRY(cuOccupancyMaxPotentialClusterSize, 0),
    ENTRY(cuPointerGetAttribute, 0),
    ENTRY(cuPointerGetAttributes, 0),
    ENTRY(cuProfilerStart, 0),
    ENTRY(cuProfilerStop, 0),
    ENTRY(cuStreamBatchMemOp, 0),
    ENTRY(cuStreamBeginCapture, 10010),
    ENTRY(cuStreamEndCapture, 10000),
    ENTRY(cuStreamAddCallback, 0),
    ENTRY(cuStreamAttachMemAsync, 0),
    ENTRY(cuStreamCopyAttributes, 0),
    ENTRY(cuStreamCreate, 0),
    ENTRY(cuStreamCreateWithPriority, 0),
    ENTRY(cuStreamDestroy, 0),
    ENTRY(cuStreamGetAttribute, 0),
    ENTRY(cuStreamGetCtx, 0),
    ENTRY(cuStreamGetFlags, 0),
    ENTRY(cuStreamGetGreenCtx, 0),
    ENTRY(cuStreamGetId, 0),
    ENTRY(cuStreamGetPriority, 0),
    ENTRY(cuStreamIsCapturing, 0),
    ENTRY(cuStreamQuery, 0),
    ENTRY(cuStreamSetAttribute, 0),
    ENTRY(cuStreamSynchronize, 0),
    ENTRY(cuStreamWaitEvent, 0),
    ENTRY(cuSurfObjectCreate, 0),
    ENTRY(cuSurfObjectDestroy, 0),
    ENTRY(cuTensorMapEncodeIm2col, 0),
    ENTRY(cuTensorMapEncodeIm2colWide, 0),
    ENTRY(cuTensorMapEncodeTiled, 0),
    ENTRY(cuTensorMapReplaceAddress, 0),
    ENTRY(cuTexObjectCreate, 0),
    ENTRY(cuTexObjectDestroy, 0),
    ENTRY(cuThreadExchangeStreamCaptureMode, 0),
};

/* Per-thread default streams are chosen by a flag, which the software GPU ignores: its callers name their streams. */
FLYT_SOFT_API cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                               CUdriverProcAddressQueryResult *symbolStatus)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;

    if (!symbol || !pfn ||
        flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM))
        return CUDA_ERROR_INVALID_VALUE;
    *pfn = NULL;
    for (unsigned i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        if (strcmp(entries[i].name, symbol))
            continue;
        status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        if (cudaVersion >= entries[i].since) {
            *pfn = entries[i].function;
            status = CU_GET_PROC_ADDRESS_SUCCESS;
        }
    }
    if (symbolStatus)
        *symbolStatus = status;
    return *pfn || symbolStatus ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
