/* Memory of the device and pinned memory of the host: allocation, release, and what an address is. */
#include "cpu/client/cuda/memory.h"

#include "cpu/client/cuda/host.h"
#include "cpu/cudart/cudart.h"

/* cudaMallocPitch knows no element: rows suit any up to the largest. */
enum { ELEMENT_BYTES = 16 };

/* ---- device ---- */

cudaError_t cudaMalloc(void **devPtr, size_t size)
{
    CUdeviceptr address = 0;
    CUresult result;

    if (!devPtr)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS && size > 0)
        result = flyt_memory_alloc(size, &address);
    if (result == CUDA_SUCCESS)
        *devPtr = (void *)address;
    return flyt_cudart_result(result);
}

/* An empty range is NULL with pitch 0. */
static CUresult alloc_pitch(size_t width_bytes, size_t height, CUdeviceptr *ret_address, size_t *ret_pitch_bytes)
{
    CUresult result = flyt_cudart_enter();

    if (result != CUDA_SUCCESS)
        return result;
    if (width_bytes == 0 || height == 0) {
        *ret_address = 0;
        *ret_pitch_bytes = 0;
        return CUDA_SUCCESS;
    }
    return flyt_memory_alloc_pitch(width_bytes, height, ELEMENT_BYTES, ret_address, ret_pitch_bytes);
}

cudaError_t cudaMallocPitch(void **devPtr, size_t *pitch, size_t width, size_t height)
{
    CUdeviceptr address;
    CUresult result;

    if (!devPtr || !pitch)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = alloc_pitch(width, height, &address, pitch);
    if (result == CUDA_SUCCESS)
        *devPtr = (void *)address;
    return flyt_cudart_result(result);
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *pitchedDevPtr, struct cudaExtent extent)
{
    CUdeviceptr address;
    size_t pitch_bytes, rows;
    CUresult result;

    if (!pitchedDevPtr)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    if (__builtin_mul_overflow(extent.height, extent.depth, &rows))
        return flyt_cudart_fail(cudaErrorMemoryAllocation);
    result = alloc_pitch(extent.width, rows, &address, &pitch_bytes);
    if (result == CUDA_SUCCESS) {
        *pitchedDevPtr = (struct cudaPitchedPtr){
            .ptr = (void *)address, .pitch = pitch_bytes, .xsize = extent.width, .ysize = extent.height};
    }
    return flyt_cudart_result(result);
}

cudaError_t cudaFree(void *devPtr)
{
    /* Freeing NULL is how programs ask for the context. */
    return flyt_cudart_result(devPtr ? flyt_memory_free((CUdeviceptr)devPtr) : flyt_cudart_enter());
}

/* ---- host ---- */

cudaError_t cudaFreeHost(void *ptr)
{
    return flyt_cudart_result(ptr ? flyt_host_free(ptr) : flyt_cudart_enter());
}

/* ---- addresses ---- */

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *ptr)
{
    struct flyt_pointer pointer;
    CUresult result;

    if (!attributes)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    /* A context that a fault has broken still knows its memory. */
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS || flyt_client_is_faulted(result))
        result = flyt_pointer_find(ptr, &pointer);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    *attributes = (struct cudaPointerAttributes){.type = cudaMemoryTypeUnregistered, .device = cudaInvalidDeviceId};
    if (pointer.kind == FLYT_POINTER_DEVICE) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = pointer.device;
        attributes->devicePointer = (void *)(uintptr_t)ptr;
    } else {
        attributes->hostPointer = (void *)(uintptr_t)ptr;
    }
    if (pointer.is_managed) {
        attributes->type = cudaMemoryTypeManaged;
        attributes->hostPointer = (void *)(uintptr_t)ptr;
    }
    if (pointer.kind == FLYT_POINTER_HOST) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = pointer.device;
        attributes->devicePointer = pointer.is_mapped ? (void *)(uintptr_t)ptr : NULL;
    }
    return cudaSuccess;
}

/* A texel's format, which is made from its parts without a device. */
struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w, enum cudaChannelFormatKind f)
{
    return (struct cudaChannelFormatDesc){.x = x, .y = y, .z = z, .w = w, .f = f};
}
