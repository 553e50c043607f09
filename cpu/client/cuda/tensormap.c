#include "cpu/client/cuda/tensormap.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "flyt_client_calls.h"
#include "rpc/api/tensormap.h"

enum { MAP_ALIGN = 64 };

_Static_assert(sizeof(CUtensorMap) == sizeof((flyt_tensormap_encode_res){0}.words), "a map");
_Static_assert(sizeof(CUtensorMap) == sizeof((flyt_tensormap_encode_args){0}.from), "a map");

/* On the current context's device, or the first one: a map may be made without a context. */
static CUresult encode(const flyt_tensor *made, CUtensorMap *in_out_map)
{
    uint64_t context_id;
    int device = 0;
    if (flyt_context_get(&context_id, &device))
        device = 0;
    flyt_tensormap_encode_args args = {.thread = flyt_thread_number(), .device = (unsigned)device, .made = *made};
    flyt_tensormap_encode_res res = {0};
    if (made->kind == FLYT_TENSORMAP_REPLACED)
        memcpy(args.from, in_out_map, sizeof args.from);
    int status = flyt_call_tensormap_encode(flyt_client.channel, &args, &res);
    CUresult result = flyt_client_reply(status, res.result, "tensormap_encode");
    if (!result)
        memcpy(in_out_map, res.words, sizeof res.words);
    return result;
}

static bool is_map(const CUtensorMap *map)
{
    return map && (uintptr_t)map % MAP_ALIGN == 0;
}

/* What all kinds have, of a rank from rank_min on. CUDA_ERROR_INVALID_VALUE: it cannot be read. */
static CUresult describe(flyt_tensor *ret_tensor, const CUtensorMap *map, cuuint32_t rank, unsigned rank_min,
                         void *address, const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!is_map(map) || rank < rank_min || rank > FLYT_TENSORMAP_RANK_MAX || !dims || (rank > 1 && !strides) || !steps)
        return CUDA_ERROR_INVALID_VALUE;
    ret_tensor->rank = rank;
    ret_tensor->address = (uint64_t)(uintptr_t)address;
    memcpy(ret_tensor->dims, dims, rank * sizeof *dims);
    if (rank > 1)
        memcpy(ret_tensor->strides, strides, (rank - 1) * sizeof *strides);
    memcpy(ret_tensor->steps, steps, rank * sizeof *steps);
    return CUDA_SUCCESS;
}

CUresult flyt_tensormap_tiled(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                              const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                              const cuuint32_t *steps, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    flyt_tensor tensor = {.kind = FLYT_TENSORMAP_TILED,
                          .data_type = type,
                          .interleave = interleave,
                          .swizzle = swizzle,
                          .promotion = promotion,
                          .fill = fill};
    CUresult result = describe(&tensor, ret_map, rank, 1, address, dims, strides, steps);
    if (result || !box)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    memcpy(tensor.box, box, rank * sizeof *box);
    return encode(&tensor, ret_map);
}

CUresult flyt_tensormap_im2col(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                               const cuuint64_t *dims, const cuuint64_t *strides, const int *lower, const int *upper,
                               cuuint32_t channels, cuuint32_t columns, const cuuint32_t *steps,
                               CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                               CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
{
    flyt_tensor tensor = {.kind = FLYT_TENSORMAP_IM2COL,
                          .data_type = type,
                          .channels = channels,
                          .columns = columns,
                          .interleave = interleave,
                          .swizzle = swizzle,
                          .promotion = promotion,
                          .fill = fill};
    CUresult result = describe(&tensor, ret_map, rank, 3, address, dims, strides, steps);
    if (result || !lower || !upper)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    memcpy(tensor.lower, lower, (rank - 2) * sizeof *lower);
    memcpy(tensor.upper, upper, (rank - 2) * sizeof *upper);
    return encode(&tensor, ret_map);
}

CUresult flyt_tensormap_im2col_wide(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                    const cuuint64_t *dims, const cuuint64_t *strides, int lower_width, int upper_width,
                                    cuuint32_t channels, cuuint32_t columns, const cuuint32_t *steps,
                                    CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                    CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                    CUtensorMapFloatOOBfill fill)
{
    flyt_tensor tensor = {.kind = FLYT_TENSORMAP_IM2COL_WIDE,
                          .data_type = type,
                          .lower = {lower_width},
                          .upper = {upper_width},
                          .channels = channels,
                          .columns = columns,
                          .interleave = interleave,
                          .mode = mode,
                          .swizzle = swizzle,
                          .promotion = promotion,
                          .fill = fill};
    CUresult result = describe(&tensor, ret_map, rank, 3, address, dims, strides, steps);
    return result ? result : encode(&tensor, ret_map);
}

CUresult flyt_tensormap_replace_address(CUtensorMap *map, void *address)
{
    const flyt_tensor tensor = {.kind = FLYT_TENSORMAP_REPLACED, .address = (uint64_t)(uintptr_t)address};
    CUresult result = flyt_client_enter();
    if (result || !is_map(map))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    return encode(&tensor, map);
}
