/*
 * Tensor maps: checked as CUDA's documentation says, and encoded in a form of this driver's own. Nothing executes
 * instructions that take one: a module with them is refused at load.
 */
#include <stdbool.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"

enum { RANK_MAX = 5, MAP_ALIGN = 64, BOX_MAX = 256, STEP_MAX = 8, MAGIC = 0x50414d54 };

struct map {
    uint32_t magic;
    uint8_t kind, type, rank, interleave, swizzle, promotion, fill;
    uint8_t steps[RANK_MAX];
    uint64_t address, dims[RANK_MAX], strides[RANK_MAX - 1];
    uint16_t box[RANK_MAX]; /* of im2col: columns, channels, and for each dimension of the image its two corners */
};

_Static_assert(sizeof(struct map) <= sizeof(CUtensorMap), "it has room");

/* 0: no type of a device of this kind. */
static unsigned element_bytes(CUtensorMapDataType type)
{
    static const unsigned char bytes[] = {
        [CU_TENSOR_MAP_DATA_TYPE_UINT8] = 1,        [CU_TENSOR_MAP_DATA_TYPE_UINT16] = 2,
        [CU_TENSOR_MAP_DATA_TYPE_UINT32] = 4,       [CU_TENSOR_MAP_DATA_TYPE_INT32] = 4,
        [CU_TENSOR_MAP_DATA_TYPE_UINT64] = 8,       [CU_TENSOR_MAP_DATA_TYPE_INT64] = 8,
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT16] = 2,      [CU_TENSOR_MAP_DATA_TYPE_FLOAT32] = 4,
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT64] = 8,      [CU_TENSOR_MAP_DATA_TYPE_BFLOAT16] = 2,
        [CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ] = 4,  [CU_TENSOR_MAP_DATA_TYPE_TFLOAT32] = 4,
        [CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ] = 4,
    };
    return (unsigned)type < sizeof(bytes) ? bytes[type] : 0;
}

static bool is_floating(CUtensorMapDataType type)
{
    return type >= CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

/* What all kinds share. */
static CUresult begin(struct map *map, CUtensorMap *ret_map, CUtensorMapDataType type, unsigned rank, unsigned rank_min,
                      uint64_t address, const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *steps)
{
    const uint64_t align = map->interleave == CU_TENSOR_MAP_INTERLEAVE_32B ? 32 : 16;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!ret_map || (uintptr_t)ret_map % MAP_ALIGN || !element_bytes(type) || rank < rank_min || rank > RANK_MAX ||
        !dims || (rank > 1 && !strides) || !steps || !address || address % align ||
        map->interleave > CU_TENSOR_MAP_INTERLEAVE_32B || map->swizzle > CU_TENSOR_MAP_SWIZZLE_128B ||
        map->promotion > CU_TENSOR_MAP_L2_PROMOTION_L2_256B ||
        map->fill > CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA || (map->fill && !is_floating(type)) ||
        (map->interleave && rank < 3) ||
        (map->interleave == CU_TENSOR_MAP_INTERLEAVE_32B && map->swizzle != CU_TENSOR_MAP_SWIZZLE_32B))
        return CUDA_ERROR_INVALID_VALUE;
    map->magic = MAGIC;
    map->type = (uint8_t)type;
    map->rank = (uint8_t)rank;
    map->address = address;
    for (unsigned i = 0; i < rank; i++) {
        if (!dims[i] || dims[i] > UINT64_C(1) << 32 || !steps[i] || steps[i] > STEP_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        map->dims[i] = dims[i];
        map->steps[i] = (uint8_t)steps[i];
    }
    for (unsigned i = 0; i + 1 < rank; i++) {
        if (!strides[i] || strides[i] % align || strides[i] >= UINT64_C(1) << 40)
            return CUDA_ERROR_INVALID_VALUE;
        map->strides[i] = strides[i];
    }
    return CUDA_SUCCESS;
}

static CUresult finish(const struct map *map, CUtensorMap *ret_map)
{
    memset(ret_map, 0, sizeof(*ret_map));
    memcpy(ret_map, map, sizeof(*map));
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuTensorMapEncodeTiled(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                     const cuuint64_t *dims, const cuuint64_t *strides, const cuuint32_t *box,
                                     const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                     CUtensorMapFloatOOBfill fill)
{
    struct map map = {.interleave = (uint8_t)interleave,
                      .swizzle = (uint8_t)swizzle,
                      .promotion = (uint8_t)promotion,
                      .fill = (uint8_t)fill};
    CUresult r = begin(&map, ret_map, type, rank, 1, (uint64_t)address, dims, strides, steps);

    if (r != CUDA_SUCCESS)
        return r;
    if (!box)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < rank; i++) {
        if (!box[i] || box[i] > BOX_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        map.box[i] = (uint16_t)box[i];
    }
    uint64_t inner = (uint64_t)box[0] * element_bytes(type);
    if (!interleave && (inner % 16 || (swizzle && inner > (16u << swizzle))))
        return CUDA_ERROR_INVALID_VALUE;
    return finish(&map, ret_map);
}

/* Both forms of it. The corners: a dimension's two side by side. */
static CUresult encode_im2col(struct map *map, CUtensorMap *ret_map, unsigned corner_count, const int *lower,
                              const int *upper, unsigned channels, unsigned columns)
{
    if (!lower || !upper || !channels || channels > BOX_MAX || columns > 1024 || corner_count > 3)
        return CUDA_ERROR_INVALID_VALUE;
    map->box[0] = (uint16_t)columns;
    map->box[1] = (uint16_t)channels;
    for (unsigned i = 0; i < corner_count; i++) {
        if (lower[i] < -128 || lower[i] > 127 || upper[i] < -128 || upper[i] > 127)
            return CUDA_ERROR_INVALID_VALUE;
        map->box[2 + i] = (uint16_t)((uint8_t)lower[i] << 8 | (uint8_t)upper[i]);
    }
    return finish(map, ret_map);
}

FLYT_SOFT_API cuTensorMapEncodeIm2col(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank, void *address,
                                      const cuuint64_t *dims, const cuuint64_t *strides, const int *lower,
                                      const int *upper, cuuint32_t channels, cuuint32_t columns,
                                      const cuuint32_t *steps, CUtensorMapInterleave interleave,
                                      CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                      CUtensorMapFloatOOBfill fill)
{
    struct map map = {.kind = 1,
                      .interleave = (uint8_t)interleave,
                      .swizzle = (uint8_t)swizzle,
                      .promotion = (uint8_t)promotion,
                      .fill = (uint8_t)fill};
    CUresult r = begin(&map, ret_map, type, rank, 3, (uint64_t)address, dims, strides, steps);

    return r == CUDA_SUCCESS ? encode_im2col(&map, ret_map, rank - 2, lower, upper, channels, columns) : r;
}

/* For devices of compute capability 10.0 and later, none of which this is. */
FLYT_SOFT_API cuTensorMapEncodeIm2colWide(CUtensorMap *ret_map, CUtensorMapDataType type, cuuint32_t rank,
                                          void *address, const cuuint64_t *dims, const cuuint64_t *strides, int lower,
                                          int upper, cuuint32_t channels, cuuint32_t columns, const cuuint32_t *steps,
                                          CUtensorMapInterleave interleave, CUtensorMapIm2ColWideMode mode,
                                          CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                          CUtensorMapFloatOOBfill fill)
{
    return flyt_soft_driver() ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_NOT_INITIALIZED;
}

FLYT_SOFT_API cuTensorMapReplaceAddress(CUtensorMap *ret_map, void *address)
{
    struct map map;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!ret_map || (uintptr_t)ret_map % MAP_ALIGN || !address || (uint64_t)address % 16)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(&map, ret_map, sizeof(map));
    if (map.magic != MAGIC || (map.interleave == CU_TENSOR_MAP_INTERLEAVE_32B && (uint64_t)address % 32))
        return CUDA_ERROR_INVALID_VALUE;
    map.address = (uint64_t)address;
    return finish(&map, ret_map);
}
