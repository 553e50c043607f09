/* Arrays of two dimensions, and copies of one: what differs from the core's by structures and places only. */
#include "cpu/cuda/driver.h"

#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/copy.h"

CUresult CUDAAPI cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
    FLYT_CUDA_ENTER();
    if (!array || !desc)
        return flyt_cuda_invalid_value();
    const CUDA_ARRAY3D_DESCRIPTOR three = {
        .Width = desc->Width, .Height = desc->Height, .Format = desc->Format, .NumChannels = desc->NumChannels};
    return flyt_array_create(&three, array);
}

CUresult CUDAAPI cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *ret_desc, CUarray array)
{
    CUDA_ARRAY3D_DESCRIPTOR three;
    FLYT_CUDA_ENTER();
    if (!ret_desc)
        return flyt_cuda_invalid_value();
    CUresult result = flyt_array_describe(array, &three);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_desc = (CUDA_ARRAY_DESCRIPTOR){
        .Width = three.Width, .Height = three.Height, .Format = three.Format, .NumChannels = three.NumChannels};
    return CUDA_SUCCESS;
}

/* ---- copies of bytes from a place on ---- */

static CUresult copy_run(CUarray array, size_t offset_bytes, enum flyt_place place, uint64_t address, size_t bytes,
                         bool to_array, CUstream stream, bool is_async)
{
    FLYT_CUDA_ENTER();
    const struct flyt_array_at at = {.array = array, .x_bytes = offset_bytes};
    const struct flyt_copy_side side = {.place = place, .address = address};
    CUresult result = flyt_cuda_need_context();
    return result != CUDA_SUCCESS ? result : flyt_array_copy_run(&at, &side, bytes, to_array, stream, is_async);
}

static CUresult copy_arrays(CUarray dst, size_t dst_bytes, CUarray src, size_t src_bytes, size_t bytes, CUstream stream)
{
    FLYT_CUDA_ENTER();
    const struct flyt_array_at to = {.array = dst, .x_bytes = dst_bytes}, from = {.array = src, .x_bytes = src_bytes};
    struct flyt_copy copy = {.width_bytes = bytes, .height = 1, .depth = 1};
    CUresult result = flyt_cuda_need_context();
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    result = flyt_array_copy_side(&to, bytes, 1, 1, &copy.dst);
    if (result == CUDA_SUCCESS)
        result = flyt_array_copy_side(&from, bytes, 1, 1, &copy.src);
    return result == CUDA_SUCCESS ? flyt_copy(&copy, stream, false) : result;
}

/* A synchronous copy and its per-thread variant; `call` has the stream. */
#define ARRAY_COPY(name, parameters, call)                                                                             \
    CUresult CUDAAPI name parameters                                                                                   \
    {                                                                                                                  \
        const CUstream stream = NULL;                                                                                  \
        return call;                                                                                                   \
    }                                                                                                                  \
    CUresult CUDAAPI name##_ptds parameters                                                                            \
    {                                                                                                                  \
        const CUstream stream = CU_STREAM_PER_THREAD;                                                                  \
        return call;                                                                                                   \
    }

ARRAY_COPY(cuMemcpyDtoA_v2, (CUarray dst, size_t offset, CUdeviceptr src, size_t bytes),
           copy_run(dst, offset, FLYT_PLACE_DEVICE, src, bytes, true, stream, false))
ARRAY_COPY(cuMemcpyAtoD_v2, (CUdeviceptr dst, CUarray src, size_t offset, size_t bytes),
           copy_run(src, offset, FLYT_PLACE_DEVICE, dst, bytes, false, stream, false))
ARRAY_COPY(cuMemcpyHtoA_v2, (CUarray dst, size_t offset, const void *src, size_t bytes),
           copy_run(dst, offset, FLYT_PLACE_HOST, (uint64_t)src, bytes, true, stream, false))
ARRAY_COPY(cuMemcpyAtoH_v2, (void *dst, CUarray src, size_t offset, size_t bytes),
           copy_run(src, offset, FLYT_PLACE_HOST, (uint64_t)dst, bytes, false, stream, false))
ARRAY_COPY(cuMemcpyAtoA_v2, (CUarray dst, size_t dst_offset, CUarray src, size_t src_offset, size_t bytes),
           copy_arrays(dst, dst_offset, src, src_offset, bytes, stream))

CUresult CUDAAPI cuMemcpyHtoAAsync_v2(CUarray dst, size_t offset, const void *src, size_t bytes, CUstream stream)
{
    return copy_run(dst, offset, FLYT_PLACE_HOST, (uint64_t)src, bytes, true, stream, true);
}
FLYT_CUDA_PTSZ(cuMemcpyHtoAAsync_v2, (CUarray dst, size_t offset, const void *src, size_t bytes, CUstream stream),
               (dst, offset, src, bytes, flyt_stream_per_thread(stream)))

CUresult CUDAAPI cuMemcpyAtoHAsync_v2(void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream)
{
    return copy_run(src, offset, FLYT_PLACE_HOST, (uint64_t)dst, bytes, false, stream, true);
}
FLYT_CUDA_PTSZ(cuMemcpyAtoHAsync_v2, (void *dst, CUarray src, size_t offset, size_t bytes, CUstream stream),
               (dst, src, offset, bytes, flyt_stream_per_thread(stream)))
