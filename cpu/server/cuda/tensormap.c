/* Tensor maps, which the driver encodes. What an address in one leads to is no more than what a kernel may reach that
 * has the address itself. */
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "flyt_serve.h"
#include "rpc/api/tensormap.h"

static CUresult encode_tiled(const struct flyt_driver *driver, CUtensorMap *map, const flyt_tensor *made)
{
    return driver->cuTensorMapEncodeTiled(map, (CUtensorMapDataType)made->data_type, made->rank,
                                          (void *)(uintptr_t)made->address, made->dims, made->strides, made->box,
                                          made->steps, (CUtensorMapInterleave)made->interleave,
                                          (CUtensorMapSwizzle)made->swizzle, (CUtensorMapL2promotion)made->promotion,
                                          (CUtensorMapFloatOOBfill)made->fill);
}

static CUresult encode_im2col(const struct flyt_driver *driver, CUtensorMap *map, const flyt_tensor *made)
{
    return driver->cuTensorMapEncodeIm2col(
        map, (CUtensorMapDataType)made->data_type, made->rank, (void *)(uintptr_t)made->address, made->dims,
        made->strides, made->lower, made->upper, made->channels, made->columns, made->steps,
        (CUtensorMapInterleave)made->interleave, (CUtensorMapSwizzle)made->swizzle,
        (CUtensorMapL2promotion)made->promotion, (CUtensorMapFloatOOBfill)made->fill);
}

static CUresult encode_im2col_wide(const struct flyt_driver *driver, CUtensorMap *map, const flyt_tensor *made)
{
    return driver->cuTensorMapEncodeIm2colWide(
        map, (CUtensorMapDataType)made->data_type, made->rank, (void *)(uintptr_t)made->address, made->dims,
        made->strides, made->lower[0], made->upper[0], made->channels, made->columns, made->steps,
        (CUtensorMapInterleave)made->interleave, (CUtensorMapIm2ColWideMode)made->mode,
        (CUtensorMapSwizzle)made->swizzle, (CUtensorMapL2promotion)made->promotion,
        (CUtensorMapFloatOOBfill)made->fill);
}

static CUresult encode(const struct flyt_driver *driver, CUtensorMap *map, const flyt_tensor *made)
{
    if (made->kind == FLYT_TENSORMAP_REPLACED)
        return driver->cuTensorMapReplaceAddress(map, (void *)(uintptr_t)made->address);
    /* So many elements of the arrays are read. */
    if (made->rank < (made->kind == FLYT_TENSORMAP_TILED ? 1 : 3) || made->rank > FLYT_TENSORMAP_RANK_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    switch (made->kind) {
    case FLYT_TENSORMAP_TILED:
        return encode_tiled(driver, map, made);
    case FLYT_TENSORMAP_IM2COL:
        return encode_im2col(driver, map, made);
    case FLYT_TENSORMAP_IM2COL_WIDE:
        return encode_im2col_wide(driver, map, made);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult flyt_serve_tensormap_encode(struct flyt_call *call, const flyt_tensormap_encode_args *args,
                                     flyt_tensormap_encode_res *res)
{
    CUtensorMap map;
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&map, args->from, sizeof map);
    result = encode(call->session->driver, &map, &args->made);
    if (result == CUDA_SUCCESS)
        memcpy(res->words, &map, sizeof res->words);
    return result;
}
