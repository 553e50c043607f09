/*
 * The CUDA driver as a table of functions, filled at run time: from NVIDIA's libcuda.so.1, or from
 * libflyt-softgpu.so, the driver API on the CPU. The server calls the driver only through this table, so that one
 * binary runs on both and starts (to greet, to say why there is no device) without either.
 *
 * The table is filled once, before any thread is started, and constant from then on.
 */
#ifndef FLYT_SERVER_DRIVER_H
#define FLYT_SERVER_DRIVER_H

#include <cuda.h>
#include <cudaProfiler.h>
#include <stdbool.h>

#include "flyt_driver_rows.h"
#include "rpc/base/error.h"

/* Every driver function that the server uses, of the type and under the name that cuda.h gives it. */
#define FLYT_DRIVER_FUNCTIONS(X)                                                                                       \
    X(cuInit)                                                                                                          \
    X(cuDriverGetVersion)                                                                                              \
    X(cuDeviceGet)                                                                                                     \
    X(cuDeviceGetCount)                                                                                                \
    X(cuDeviceGetName)                                                                                                 \
    X(cuDeviceGetUuid)                                                                                                 \
    X(cuDeviceTotalMem)                                                                                                \
    X(cuDeviceGetAttribute)                                                                                            \
    X(cuDeviceGetPCIBusId)                                                                                             \
    X(cuDeviceCanAccessPeer)                                                                                           \
    X(cuDeviceGetP2PAttribute)                                                                                         \
    X(cuDeviceGetDevResource)                                                                                          \
    X(cuDevSmResourceSplitByCount)                                                                                     \
    X(cuDevResourceGenerateDesc)                                                                                       \
    X(cuGreenCtxCreate)                                                                                                \
    X(cuGreenCtxStreamCreate)                                                                                          \
    X(cuGreenCtxRecordEvent)                                                                                           \
    X(cuCtxFromGreenCtx)                                                                                               \
    X(cuDevicePrimaryCtxRetain)                                                                                        \
    X(cuDevicePrimaryCtxRelease)                                                                                       \
    X(cuDevicePrimaryCtxReset)                                                                                         \
    X(cuGreenCtxDestroy)                                                                                               \
    X(cuCtxSetCurrent)                                                                                                 \
    X(cuCtxSynchronize)                                                                                                \
    X(cuCoredumpSetAttributeGlobal)                                                                                    \
    X(cuCtxGetLimit)                                                                                                   \
    X(cuCtxSetLimit)                                                                                                   \
    X(cuCtxSetCacheConfig)                                                                                             \
    X(cuCtxGetStreamPriorityRange)                                                                                     \
    X(cuStreamDestroy)                                                                                                 \
    X(cuStreamQuery)                                                                                                   \
    X(cuStreamSynchronize)                                                                                             \
    X(cuStreamWaitEvent)                                                                                               \
    X(cuEventCreate)                                                                                                   \
    X(cuEventDestroy)                                                                                                  \
    X(cuEventRecord)                                                                                                   \
    X(cuEventQuery)                                                                                                    \
    X(cuEventSynchronize)                                                                                              \
    X(cuEventElapsedTime)                                                                                              \
    X(cuMemGetInfo)                                                                                                    \
    X(cuMemHostAlloc)                                                                                                  \
    X(cuMemFreeHost)                                                                                                   \
    X(cuMemHostRegister)                                                                                               \
    X(cuMemHostUnregister)                                                                                             \
    X(cuMemBatchDecompressAsync)                                                                                       \
    X(cuMemAddressReserve)                                                                                             \
    X(cuMemAddressFree)                                                                                                \
    X(cuMemCreate)                                                                                                     \
    X(cuMemRelease)                                                                                                    \
    X(cuMemMap)                                                                                                        \
    X(cuMemUnmap)                                                                                                      \
    X(cuMemSetAccess)                                                                                                  \
    X(cuMemExportToShareableHandle)                                                                                    \
    X(cuMemImportFromShareableHandle)                                                                                  \
    X(cuMemGetAllocationPropertiesFromHandle)                                                                          \
    X(cuPointerGetAttribute)                                                                                           \
    X(cuArray3DCreate)                                                                                                 \
    X(cuArrayGetPlane)                                                                                                 \
    X(cuArrayDestroy)                                                                                                  \
    X(cuMipmappedArrayCreate)                                                                                          \
    X(cuMipmappedArrayDestroy)                                                                                         \
    X(cuMipmappedArrayGetLevel)                                                                                        \
    X(cuTexObjectCreate)                                                                                               \
    X(cuTexObjectDestroy)                                                                                              \
    X(cuSurfObjectCreate)                                                                                              \
    X(cuSurfObjectDestroy)                                                                                             \
    X(cuMemcpyHtoDAsync)                                                                                               \
    X(cuMemcpyDtoHAsync)                                                                                               \
    X(cuMemcpyDtoDAsync)                                                                                               \
    X(cuMemcpyPeerAsync)                                                                                               \
    X(cuMemcpy2DAsync)                                                                                                 \
    X(cuMemcpy3DAsync)                                                                                                 \
    X(cuMemcpy3DPeerAsync)                                                                                             \
    X(cuMemsetD8Async)                                                                                                 \
    X(cuMemsetD16Async)                                                                                                \
    X(cuMemsetD32Async)                                                                                                \
    X(cuMemsetD2D8Async)                                                                                               \
    X(cuMemsetD2D16Async)                                                                                              \
    X(cuMemsetD2D32Async)                                                                                              \
    X(cuLinkCreate)                                                                                                    \
    X(cuLinkAddData)                                                                                                   \
    X(cuLinkComplete)                                                                                                  \
    X(cuLinkDestroy)                                                                                                   \
    X(cuLibraryLoadData)                                                                                               \
    X(cuLibraryUnload)                                                                                                 \
    X(cuLibraryGetModule)                                                                                              \
    X(cuLibraryGetKernelCount)                                                                                         \
    X(cuLibraryEnumerateKernels)                                                                                       \
    X(cuLibraryGetGlobal)                                                                                              \
    X(cuLibraryGetManaged)                                                                                             \
    X(cuKernelGetName)                                                                                                 \
    X(cuKernelGetParamInfo)                                                                                            \
    X(cuKernelGetAttribute)                                                                                            \
    X(cuKernelSetAttribute)                                                                                            \
    X(cuKernelSetCacheConfig)                                                                                          \
    X(cuKernelGetFunction)                                                                                             \
    X(cuFuncLoad)                                                                                                      \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)                                                            \
    X(cuOccupancyAvailableDynamicSMemPerBlock)                                                                         \
    X(cuOccupancyMaxPotentialClusterSize)                                                                              \
    X(cuOccupancyMaxActiveClusters)                                                                                    \
    X(cuLaunchKernel)                                                                                                  \
    X(cuLaunchKernelEx)                                                                                                \
    X(cuGraphCreate)                                                                                                   \
    X(cuGraphDestroy)                                                                                                  \
    X(cuGraphAddKernelNode)                                                                                            \
    X(cuGraphAddMemsetNode)                                                                                            \
    X(cuGraphAddMemcpyNode)                                                                                            \
    X(cuGraphAddEmptyNode)                                                                                             \
    X(cuGraphAddChildGraphNode)                                                                                        \
    X(cuGraphGetNodes)                                                                                                 \
    X(cuGraphNodeGetType)                                                                                              \
    X(cuGraphMemcpyNodeGetParams)                                                                                      \
    X(cuGraphChildGraphNodeGetGraph)                                                                                   \
    X(cuStreamBeginCapture)                                                                                            \
    X(cuStreamEndCapture)                                                                                              \
    X(cuGraphAddDependencies)                                                                                          \
    X(cuGraphAddNode)                                                                                                  \
    X(cuGraphConditionalHandleCreate)                                                                                  \
    X(cuGraphKernelNodeSetAttribute)                                                                                   \
    X(cuGraphInstantiateWithFlags)                                                                                     \
    X(cuGraphExecKernelNodeSetParams)                                                                                  \
    X(cuGraphExecMemsetNodeSetParams)                                                                                  \
    X(cuGraphExecMemcpyNodeSetParams)                                                                                  \
    X(cuGraphNodeSetEnabled)                                                                                           \
    X(cuGraphUpload)                                                                                                   \
    X(cuGraphLaunch)                                                                                                   \
    X(cuGraphExecDestroy)                                                                                              \
    X(cuStreamSetAttribute)                                                                                            \
    X(cuStreamBatchMemOp)                                                                                              \
    X(cuTensorMapEncodeTiled)                                                                                          \
    X(cuTensorMapEncodeIm2col)                                                                                         \
    X(cuTensorMapEncodeIm2colWide)                                                                                     \
    X(cuTensorMapReplaceAddress)                                                                                       \
    X(cuProfilerStart)                                                                                                 \
    X(cuProfilerStop)

struct flyt_own_code;

struct flyt_driver {
#define X(name) __typeof__(&name) name;
    FLYT_DRIVER_FUNCTIONS(X)
    FLYT_DRIVER_ROWS(X) /* NULL where the driver is older */
#undef X
    bool is_soft;              /* the software GPU: it executes PTX and no machine code */
    struct flyt_own_code *own; /* the server's own kernels (own_kernel.h); NULL: none is compiled */
};

/*
 * Loads the driver and fills *ret_driver: libflyt-softgpu.so, found beside this program, where is_soft; else NVIDIA's,
 * from the loader's path or /usr/local/nvidia/lib64, and never Flyt's own libcuda.so.1. Does not call it. The library
 * stays loaded. 0; -ENOENT: no such library; -EINVAL: Flyt's own; -ENOSYS: it lacks a function (an old driver). *err
 * then has one sentence.
 */
int flyt_driver_load(bool is_soft, struct flyt_error *err, struct flyt_driver *ret_driver);

#endif
