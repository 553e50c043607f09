/* Variables of the program's modules: where they are on the current device, and copies to and from them. */
#include "cpu/client/cuda/memory.h"

#include "cpu/cudart/copy.h"
#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

/* flyt_cudart_enter, then the variable, of which the program is not told the address. */
static cudaError_t find(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    CUresult result = flyt_cudart_enter();

    return result != CUDA_SUCCESS ? flyt_cudart_error(result)
                                  : flyt_cudart_variable_for_copies(symbol, ret_address, ret_bytes);
}

cudaError_t cudaGetSymbolAddress(void **devPtr, const void *symbol)
{
    CUdeviceptr address;
    size_t bytes;
    CUresult result = devPtr ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;
    cudaError_t error =
        result != CUDA_SUCCESS ? flyt_cudart_error(result) : flyt_cudart_variable(symbol, &address, &bytes);

    if (error == cudaSuccess)
        *devPtr = (void *)address;
    return flyt_cudart_return(error);
}

cudaError_t cudaGetSymbolSize(size_t *size, const void *symbol)
{
    CUdeviceptr address;
    size_t bytes;
    cudaError_t error = size ? find(symbol, &address, &bytes) : cudaErrorInvalidValue;

    if (error == cudaSuccess)
        *size = bytes;
    return flyt_cudart_return(error);
}

/* The address of `count` bytes at `offset` of a variable. Where nothing is copied, the offset may be anything. */
static cudaError_t find_range(const void *symbol, size_t count, size_t offset, uint64_t *ret_address)
{
    CUdeviceptr address;
    size_t bytes;
    cudaError_t error = find(symbol, &address, &bytes);

    if (error != cudaSuccess)
        return error;
    if (count > 0 && (offset > bytes || count > bytes - offset))
        return cudaErrorInvalidValue;
    *ret_address = address + offset;
    return cudaSuccess;
}

cudaError_t flyt_cudart_copy_to_symbol(const void *symbol, const void *src, size_t count, size_t offset,
                                       enum cudaMemcpyKind kind, struct flyt_copy *ret_copy)
{
    uint64_t address = 0;
    cudaError_t error = find_range(symbol, count, offset, &address);

    /* The variable is on the device: the kind may not call it the host's. */
    if (error == cudaSuccess && (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyHostToHost))
        error = cudaErrorInvalidMemcpyDirection;
    if (error != cudaSuccess)
        return error;
    *ret_copy = flyt_copy_plain(FLYT_PLACE_ANY, address, FLYT_PLACE_ANY, (uintptr_t)src, count);
    error = flyt_cudart_places(kind, ret_copy);
    ret_copy->dst.place = FLYT_PLACE_DEVICE;
    return error;
}

static cudaError_t copy_to(const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind,
                           cudaStream_t stream, bool is_async)
{
    struct flyt_copy copy;

    if (count == 0)
        return flyt_cudart_result(flyt_cudart_enter());
    cudaError_t error = flyt_cudart_copy_to_symbol(symbol, src, count, offset, kind, &copy);

    return error != cudaSuccess ? flyt_cudart_fail(error) : flyt_cudart_result(flyt_copy(&copy, stream, is_async));
}

cudaError_t flyt_cudart_copy_from_symbol(void *dst, const void *symbol, size_t count, size_t offset,
                                         enum cudaMemcpyKind kind, struct flyt_copy *ret_copy)
{
    uint64_t address = 0;
    cudaError_t error = find_range(symbol, count, offset, &address);

    if (error == cudaSuccess && (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyHostToHost))
        error = cudaErrorInvalidMemcpyDirection;
    if (error != cudaSuccess)
        return error;
    *ret_copy = flyt_copy_plain(FLYT_PLACE_ANY, (uintptr_t)dst, FLYT_PLACE_ANY, address, count);
    error = flyt_cudart_places(kind, ret_copy);
    ret_copy->src.place = FLYT_PLACE_DEVICE;
    return error;
}

static cudaError_t copy_from(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
                             cudaStream_t stream, bool is_async)
{
    struct flyt_copy copy;

    if (count == 0)
        return flyt_cudart_result(flyt_cudart_enter());
    cudaError_t error = flyt_cudart_copy_from_symbol(dst, symbol, count, offset, kind, &copy);

    return error != cudaSuccess ? flyt_cudart_fail(error) : flyt_cudart_result(flyt_copy(&copy, stream, is_async));
}

cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *src, size_t count, size_t offset,
                               enum cudaMemcpyKind kind)
{
    return copy_to(symbol, src, count, offset, kind, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpyToSymbol,
                 (const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind),
                 copy_to(symbol, src, count, offset, kind, CU_STREAM_PER_THREAD, false))

cudaError_t cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t count, size_t offset,
                                    enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_to(symbol, src, count, offset, kind, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpyToSymbolAsync,
                 (const void *symbol, const void *src, size_t count, size_t offset, enum cudaMemcpyKind kind,
                  cudaStream_t stream),
                 (symbol, src, count, offset, kind, flyt_stream_per_thread(stream)))

cudaError_t cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    return copy_from(dst, symbol, count, offset, kind, NULL, false);
}

FLYT_CUDART_PTDS(cudaMemcpyFromSymbol,
                 (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind),
                 copy_from(dst, symbol, count, offset, kind, CU_STREAM_PER_THREAD, false))

cudaError_t cudaMemcpyFromSymbolAsync(void *dst, const void *symbol, size_t count, size_t offset,
                                      enum cudaMemcpyKind kind, cudaStream_t stream)
{
    return copy_from(dst, symbol, count, offset, kind, stream, true);
}

FLYT_CUDART_PTSZ(cudaMemcpyFromSymbolAsync,
                 (void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
                  cudaStream_t stream),
                 (dst, symbol, count, offset, kind, flyt_stream_per_thread(stream)))
