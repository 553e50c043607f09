/* cudaDeviceProp is filled from the device's attributes, name, UUID and memory, field by field. */
#include "cpu/cudart/properties.h"

#include <cuda.h>
#include <stddef.h>
#include <string.h>

_Static_assert(sizeof(struct cudaDeviceProp) == 1008, "cudaDeviceProp of CUDA 13");
_Static_assert(sizeof(int) == 4 && sizeof(size_t) == 8, "the table tells int from size_t by the field's size");

/* A field and the attribute that it shows. */
struct field {
    unsigned short offset_bytes;
    unsigned short width_bytes; /* 4: int, 8: size_t */
    unsigned short attribute;   /* enum cudaDeviceAttr, whose numbers are those of CUdevice_attribute */
};

#define FIELD(member, attr)                                                                                            \
    {                                                                                                                  \
        offsetof(struct cudaDeviceProp, member), sizeof(((struct cudaDeviceProp *)0)->member), attr                    \
    }

static const struct field fields[] = {
    FIELD(sharedMemPerBlock, cudaDevAttrMaxSharedMemoryPerBlock),
    FIELD(regsPerBlock, cudaDevAttrMaxRegistersPerBlock),
    FIELD(warpSize, cudaDevAttrWarpSize),
    FIELD(memPitch, cudaDevAttrMaxPitch),
    FIELD(maxThreadsPerBlock, cudaDevAttrMaxThreadsPerBlock),
    FIELD(maxThreadsDim[0], cudaDevAttrMaxBlockDimX),
    FIELD(maxThreadsDim[1], cudaDevAttrMaxBlockDimY),
    FIELD(maxThreadsDim[2], cudaDevAttrMaxBlockDimZ),
    FIELD(maxGridSize[0], cudaDevAttrMaxGridDimX),
    FIELD(maxGridSize[1], cudaDevAttrMaxGridDimY),
    FIELD(maxGridSize[2], cudaDevAttrMaxGridDimZ),
    FIELD(totalConstMem, cudaDevAttrTotalConstantMemory),
    FIELD(major, cudaDevAttrComputeCapabilityMajor),
    FIELD(minor, cudaDevAttrComputeCapabilityMinor),
    FIELD(textureAlignment, cudaDevAttrTextureAlignment),
    FIELD(texturePitchAlignment, cudaDevAttrTexturePitchAlignment),
    FIELD(multiProcessorCount, cudaDevAttrMultiProcessorCount),
    FIELD(integrated, cudaDevAttrIntegrated),
    FIELD(canMapHostMemory, cudaDevAttrCanMapHostMemory),
    FIELD(maxTexture1D, cudaDevAttrMaxTexture1DWidth),
    FIELD(maxTexture1DMipmap, cudaDevAttrMaxTexture1DMipmappedWidth),
    FIELD(maxTexture2D[0], cudaDevAttrMaxTexture2DWidth),
    FIELD(maxTexture2D[1], cudaDevAttrMaxTexture2DHeight),
    FIELD(maxTexture2DMipmap[0], cudaDevAttrMaxTexture2DMipmappedWidth),
    FIELD(maxTexture2DMipmap[1], cudaDevAttrMaxTexture2DMipmappedHeight),
    FIELD(maxTexture2DLinear[0], cudaDevAttrMaxTexture2DLinearWidth),
    FIELD(maxTexture2DLinear[1], cudaDevAttrMaxTexture2DLinearHeight),
    FIELD(maxTexture2DLinear[2], cudaDevAttrMaxTexture2DLinearPitch),
    FIELD(maxTexture2DGather[0], cudaDevAttrMaxTexture2DGatherWidth),
    FIELD(maxTexture2DGather[1], cudaDevAttrMaxTexture2DGatherHeight),
    FIELD(maxTexture3D[0], cudaDevAttrMaxTexture3DWidth),
    FIELD(maxTexture3D[1], cudaDevAttrMaxTexture3DHeight),
    FIELD(maxTexture3D[2], cudaDevAttrMaxTexture3DDepth),
    FIELD(maxTexture3DAlt[0], cudaDevAttrMaxTexture3DWidthAlt),
    FIELD(maxTexture3DAlt[1], cudaDevAttrMaxTexture3DHeightAlt),
    FIELD(maxTexture3DAlt[2], cudaDevAttrMaxTexture3DDepthAlt),
    FIELD(maxTextureCubemap, cudaDevAttrMaxTextureCubemapWidth),
    FIELD(maxTexture1DLayered[0], cudaDevAttrMaxTexture1DLayeredWidth),
    FIELD(maxTexture1DLayered[1], cudaDevAttrMaxTexture1DLayeredLayers),
    FIELD(maxTexture2DLayered[0], cudaDevAttrMaxTexture2DLayeredWidth),
    FIELD(maxTexture2DLayered[1], cudaDevAttrMaxTexture2DLayeredHeight),
    FIELD(maxTexture2DLayered[2], cudaDevAttrMaxTexture2DLayeredLayers),
    FIELD(maxTextureCubemapLayered[0], cudaDevAttrMaxTextureCubemapLayeredWidth),
    FIELD(maxTextureCubemapLayered[1], cudaDevAttrMaxTextureCubemapLayeredLayers),
    FIELD(maxSurface1D, cudaDevAttrMaxSurface1DWidth),
    FIELD(maxSurface2D[0], cudaDevAttrMaxSurface2DWidth),
    FIELD(maxSurface2D[1], cudaDevAttrMaxSurface2DHeight),
    FIELD(maxSurface3D[0], cudaDevAttrMaxSurface3DWidth),
    FIELD(maxSurface3D[1], cudaDevAttrMaxSurface3DHeight),
    FIELD(maxSurface3D[2], cudaDevAttrMaxSurface3DDepth),
    FIELD(maxSurface1DLayered[0], cudaDevAttrMaxSurface1DLayeredWidth),
    FIELD(maxSurface1DLayered[1], cudaDevAttrMaxSurface1DLayeredLayers),
    FIELD(maxSurface2DLayered[0], cudaDevAttrMaxSurface2DLayeredWidth),
    FIELD(maxSurface2DLayered[1], cudaDevAttrMaxSurface2DLayeredHeight),
    FIELD(maxSurface2DLayered[2], cudaDevAttrMaxSurface2DLayeredLayers),
    FIELD(maxSurfaceCubemap, cudaDevAttrMaxSurfaceCubemapWidth),
    FIELD(maxSurfaceCubemapLayered[0], cudaDevAttrMaxSurfaceCubemapLayeredWidth),
    FIELD(maxSurfaceCubemapLayered[1], cudaDevAttrMaxSurfaceCubemapLayeredLayers),
    FIELD(surfaceAlignment, cudaDevAttrSurfaceAlignment),
    FIELD(concurrentKernels, cudaDevAttrConcurrentKernels),
    FIELD(ECCEnabled, cudaDevAttrEccEnabled),
    FIELD(pciBusID, cudaDevAttrPciBusId),
    FIELD(pciDeviceID, cudaDevAttrPciDeviceId),
    FIELD(pciDomainID, cudaDevAttrPciDomainId),
    FIELD(tccDriver, cudaDevAttrTccDriver),
    FIELD(asyncEngineCount, cudaDevAttrAsyncEngineCount),
    FIELD(unifiedAddressing, cudaDevAttrUnifiedAddressing),
    FIELD(memoryBusWidth, cudaDevAttrGlobalMemoryBusWidth),
    FIELD(l2CacheSize, cudaDevAttrL2CacheSize),
    FIELD(persistingL2CacheMaxSize, cudaDevAttrMaxPersistingL2CacheSize),
    FIELD(maxThreadsPerMultiProcessor, cudaDevAttrMaxThreadsPerMultiProcessor),
    FIELD(streamPrioritiesSupported, cudaDevAttrStreamPrioritiesSupported),
    FIELD(globalL1CacheSupported, cudaDevAttrGlobalL1CacheSupported),
    FIELD(localL1CacheSupported, cudaDevAttrLocalL1CacheSupported),
    FIELD(sharedMemPerMultiprocessor, cudaDevAttrMaxSharedMemoryPerMultiprocessor),
    FIELD(regsPerMultiprocessor, cudaDevAttrMaxRegistersPerMultiprocessor),
    FIELD(managedMemory, cudaDevAttrManagedMemory),
    FIELD(isMultiGpuBoard, cudaDevAttrIsMultiGpuBoard),
    FIELD(multiGpuBoardGroupID, cudaDevAttrMultiGpuBoardGroupID),
    FIELD(hostNativeAtomicSupported, cudaDevAttrHostNativeAtomicSupported),
    FIELD(pageableMemoryAccess, cudaDevAttrPageableMemoryAccess),
    FIELD(concurrentManagedAccess, cudaDevAttrConcurrentManagedAccess),
    FIELD(computePreemptionSupported, cudaDevAttrComputePreemptionSupported),
    FIELD(canUseHostPointerForRegisteredMem, cudaDevAttrCanUseHostPointerForRegisteredMem),
    FIELD(cooperativeLaunch, cudaDevAttrCooperativeLaunch),
    FIELD(sharedMemPerBlockOptin, cudaDevAttrMaxSharedMemoryPerBlockOptin),
    FIELD(pageableMemoryAccessUsesHostPageTables, cudaDevAttrPageableMemoryAccessUsesHostPageTables),
    FIELD(directManagedMemAccessFromHost, cudaDevAttrDirectManagedMemAccessFromHost),
    FIELD(maxBlocksPerMultiProcessor, cudaDevAttrMaxBlocksPerMultiprocessor),
    FIELD(accessPolicyMaxWindowSize, cudaDevAttrMaxAccessPolicyWindowSize),
    FIELD(reservedSharedMemPerBlock, cudaDevAttrReservedSharedMemoryPerBlock),
    FIELD(hostRegisterSupported, cudaDevAttrHostRegisterSupported),
    FIELD(sparseCudaArraySupported, cudaDevAttrSparseCudaArraySupported),
    FIELD(hostRegisterReadOnlySupported, cudaDevAttrHostRegisterReadOnlySupported),
    FIELD(timelineSemaphoreInteropSupported, cudaDevAttrTimelineSemaphoreInteropSupported),
    FIELD(memoryPoolsSupported, cudaDevAttrMemoryPoolsSupported),
    FIELD(gpuDirectRDMASupported, cudaDevAttrGPUDirectRDMASupported),
    FIELD(gpuDirectRDMAFlushWritesOptions, cudaDevAttrGPUDirectRDMAFlushWritesOptions),
    FIELD(gpuDirectRDMAWritesOrdering, cudaDevAttrGPUDirectRDMAWritesOrdering),
    FIELD(memoryPoolSupportedHandleTypes, cudaDevAttrMemoryPoolSupportedHandleTypes),
    FIELD(deferredMappingCudaArraySupported, cudaDevAttrDeferredMappingCudaArraySupported),
    FIELD(ipcEventSupported, cudaDevAttrIpcEventSupport),
    FIELD(clusterLaunch, cudaDevAttrClusterLaunch),
    FIELD(unifiedFunctionPointers, CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS),
    FIELD(deviceNumaConfig, cudaDevAttrNumaConfig),
    FIELD(deviceNumaId, cudaDevAttrNumaId),
    FIELD(mpsEnabled, cudaDevAttrMpsEnabled),
    FIELD(hostNumaId, cudaDevAttrHostNumaId),
    FIELD(gpuPciDeviceID, cudaDevAttrGpuPciDeviceId),
    FIELD(gpuPciSubsystemID, cudaDevAttrGpuPciSubsystemId),
    FIELD(hostNumaMultinodeIpcSupported, cudaDevAttrHostNumaMultinodeIpcSupported),
};

void flyt_cudart_properties_fill(struct cudaDeviceProp *prop, const int *attributes, unsigned attribute_count)
{
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        const struct field *field = &fields[i];
        int value = field->attribute < attribute_count ? attributes[field->attribute] : 0;
        size_t wide = (size_t)(unsigned)value;
        char *place = (char *)prop + field->offset_bytes;

        if (field->width_bytes == sizeof(size_t))
            memcpy(place, &wide, sizeof(wide));
        else
            memcpy(place, &value, sizeof(value));
    }
}

/* How well a device fits a field of the request: a request of 0 asks nothing, an exact match is best, more than asked
 * for is next, less is worst. */
static int match(size_t wanted, size_t offered)
{
    if (!wanted)
        return 0;
    return offered == wanted ? 2 : offered > wanted ? 1 : -1;
}

int flyt_cudart_properties_match(const struct cudaDeviceProp *wanted, const struct cudaDeviceProp *offered)
{
    int score = 0;

    /* The compute capability decides before all else: a program may not run at all on a lower one. */
    score += 100 * match((size_t)(wanted->major * 10 + wanted->minor), (size_t)(offered->major * 10 + offered->minor));
    score += 10 * match(wanted->totalGlobalMem, offered->totalGlobalMem);
    score += 10 * match((size_t)wanted->multiProcessorCount, (size_t)offered->multiProcessorCount);
    score += match(wanted->sharedMemPerBlock, offered->sharedMemPerBlock);
    score += match((size_t)wanted->maxThreadsPerBlock, (size_t)offered->maxThreadsPerBlock);
    score += wanted->name[0] && strncmp(wanted->name, offered->name, sizeof(wanted->name)) == 0 ? 2 : 0;
    return score;
}
