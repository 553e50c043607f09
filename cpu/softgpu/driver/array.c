#include "cpu/softgpu/driver/array.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/softgpu/driver/driver.h"

enum {
    PAGE_BYTES = 64 << 10, /* of which the device's memory is taken for arrays */
    ROW_ALIGN = 32,
    EXTENT_MAX = 131072,
    FLAGS = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
            CUDA_ARRAY3D_VIDEO_ENCODE_DECODE,
    FLAGS_LACKING = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING,
};

/* ---- descriptions ---- */

static CUresult check_cubemap(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    bool is_layered = desc->Flags & CUDA_ARRAY3D_LAYERED;
    bool is_six = is_layered ? desc->Depth && desc->Depth % 6 == 0 : desc->Depth == 6;

    return desc->Width == desc->Height && is_six ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* So NVIDIA's driver: of two dimensions, or layers of them, rows and columns in pairs. */
static bool is_video_shape(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    bool is_layered = desc->Flags & CUDA_ARRAY3D_LAYERED;

    return desc->Flags & CUDA_ARRAY3D_VIDEO_ENCODE_DECODE && !(desc->Flags & CUDA_ARRAY3D_CUBEMAP) &&
           (is_layered || !desc->Depth) && desc->Height && desc->Width % 2 == 0 && desc->Height % 2 == 0;
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    const struct flyt_array_format *format = flyt_array_format_find(desc->Format);
    bool is_layered = desc->Flags & CUDA_ARRAY3D_LAYERED;

    if (desc->Flags & FLAGS_LACKING)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!format || (format->reading == FLYT_ARRAY_VIDEO && !is_video_shape(desc)))
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->Flags & ~(unsigned)FLAGS || !desc->Width || desc->Width > EXTENT_MAX || desc->Height > EXTENT_MAX ||
        desc->Depth > EXTENT_MAX || !flyt_array_format_has(format, desc->NumChannels) ||
        (format->side > 1 && !desc->Height))
        return CUDA_ERROR_INVALID_VALUE;
    if (format->side > 1 && desc->Flags & CUDA_ARRAY3D_SURFACE_LDST)
        return CUDA_ERROR_NOT_SUPPORTED; /* so NVIDIA's driver */
    if (desc->Flags & CUDA_ARRAY3D_CUBEMAP)
        return check_cubemap(desc);
    if (is_layered ? !desc->Depth : desc->Depth && !desc->Height)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->Flags & CUDA_ARRAY3D_TEXTURE_GATHER && (!desc->Height || desc->Depth))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

static uint32_t shrink(uint64_t extent, unsigned level)
{
    return extent >> level ? (uint32_t)(extent >> level) : 1;
}

/* The places of the levels, counted from 0, one behind the other. Their length. */
static uint64_t lay_out(const CUDA_ARRAY3D_DESCRIPTOR *desc, struct flyt_ptx_image *image)
{
    const unsigned side = 1u << image->block_shift;
    uint64_t bytes = 0;

    for (unsigned i = 0; i < image->level_count; i++) {
        struct flyt_ptx_level *level = &image->levels[i];

        level->address = bytes;
        level->width = shrink(desc->Width, i);
        level->height = shrink(desc->Height, i);
        level->depth = image->is_layered ? (uint32_t)desc->Depth : shrink(desc->Depth, i);
        level->row_bytes = flyt_array_elements(level->width, side) * image->texel_bytes;
        level->row_bytes = (level->row_bytes + ROW_ALIGN - 1) & ~(uint64_t)(ROW_ALIGN - 1);
        level->slice_bytes = level->row_bytes * flyt_array_elements(level->height, side);
        bytes += level->slice_bytes * level->depth;
    }
    return bytes;
}

/* ---- memory ---- */

struct flyt_soft_pixels *flyt_soft_pixels_ref(struct flyt_soft_pixels *pixels)
{
    atomic_fetch_add(&pixels->refs, 1);
    return pixels;
}

void flyt_soft_pixels_unref(struct flyt_soft_pixels *pixels)
{
    if (atomic_fetch_sub(&pixels->refs, 1) != 1)
        return;
    munmap(pixels->memory, pixels->bytes);
    flyt_soft_map_uncharge(&pixels->device->map, pixels->bytes);
    free(pixels);
}

/* Memory of the device, zeros. */
static CUresult take_memory(struct flyt_soft_pixels *pixels)
{
    void *memory;

    if (!flyt_soft_map_charge(&pixels->device->map, pixels->bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    memory = mmap(NULL, pixels->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        flyt_soft_map_uncharge(&pixels->device->map, pixels->bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pixels->memory = memory;
    for (unsigned i = 0; i < pixels->image.level_count; i++)
        pixels->image.levels[i].address += (uint64_t)memory;
    return CUDA_SUCCESS;
}

/* What is packed for video is whole numbers to surfaces; textures do not read it. */
static CUarray_format stored_format(const struct flyt_array_format *format)
{
    if (format->reading != FLYT_ARRAY_VIDEO)
        return (CUarray_format)format->number;
    return format->channel_bits == 8    ? CU_AD_FORMAT_UNSIGNED_INT8
           : format->channel_bits == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
                                        : CU_AD_FORMAT_UNSIGNED_INT32;
}

static CUresult pixels_new(struct flyt_soft_device *device, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level_count,
                           struct flyt_soft_pixels **ret_pixels)
{
    const struct flyt_array_format *format = flyt_array_format_find(desc->Format);
    struct flyt_soft_pixels *pixels;
    uint64_t bytes;
    CUresult r = check(desc);

    if (r != CUDA_SUCCESS)
        return r;
    pixels = calloc(1, sizeof(*pixels));
    if (!pixels)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pixels->refs = 1;
    pixels->device = device;
    pixels->desc = *desc;
    pixels->image = (struct flyt_ptx_image){
        .format = stored_format(format),
        .channels = desc->NumChannels,
        .texel_bytes = flyt_array_format_bytes(format, desc->NumChannels),
        .block_shift = format->side > 1 ? 2 : 0,
        .is_opaque = format->side > 1 && format->channels < 4,
        .is_layered = desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP),
        .is_cubemap = desc->Flags & CUDA_ARRAY3D_CUBEMAP,
        .level_count = level_count,
    };
    bytes = lay_out(desc, &pixels->image);
    pixels->bytes = (bytes + PAGE_BYTES - 1) & ~(uint64_t)(PAGE_BYTES - 1);
    r = take_memory(pixels);
    if (r == CUDA_SUCCESS)
        *ret_pixels = pixels;
    else
        free(pixels);
    return r;
}

/* ---- planes ---- */

static void planes_free(struct flyt_soft_planes *planes)
{
    for (unsigned i = 0; i < planes->count; i++) {
        planes->arrays[i].kind = FLYT_SOFT_DEAD;
        flyt_soft_pixels_unref(planes->arrays[i].pixels);
    }
    free(planes);
}

static CUresult planes_new(struct flyt_soft_device *device, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                           const struct flyt_array_format *format, struct flyt_soft_planes **ret_planes)
{
    struct flyt_soft_planes *planes;
    CUresult r = check(desc);

    if (r != CUDA_SUCCESS)
        return r;
    planes = calloc(1, sizeof(*planes));
    if (!planes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    planes->desc = *desc;
    while (planes->count < flyt_array_plane_count(format)) {
        const struct flyt_array_plane_format of = flyt_array_plane_of(format, planes->count);
        struct CUarray_st *plane = &planes->arrays[planes->count];
        CUDA_ARRAY3D_DESCRIPTOR own = *desc;

        own.Width >>= of.halves_width;
        own.Height >>= of.halves_height;
        own.Format = (CUarray_format)of.format;
        own.NumChannels = of.channels;
        *plane = (struct CUarray_st){.kind = FLYT_SOFT_ARRAY, .is_plane = true};
        r = pixels_new(device, &own, 1, &plane->pixels);
        if (r != CUDA_SUCCESS) {
            planes_free(planes);
            return r;
        }
        planes->count++;
    }
    *ret_planes = planes;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuArrayGetPlane(CUarray *pPlaneArray, CUarray hArray, unsigned int planeIdx)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hArray, FLYT_SOFT_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pPlaneArray || !hArray->planes || planeIdx >= hArray->planes->count)
        return CUDA_ERROR_INVALID_VALUE;
    *pPlaneArray = &hArray->planes->arrays[planeIdx];
    return CUDA_SUCCESS;
}

/* ---- arrays ---- */

static CUresult fill_array(struct flyt_soft_device *device, const CUDA_ARRAY3D_DESCRIPTOR *desc,
                           struct CUarray_st *array)
{
    const struct flyt_array_format *format = flyt_array_format_find(desc->Format);
    CUresult r;

    array->kind = FLYT_SOFT_ARRAY;
    if (!format || !flyt_array_plane_count(format))
        return pixels_new(device, desc, 1, &array->pixels);
    r = planes_new(device, desc, format, &array->planes);
    if (r == CUDA_SUCCESS)
        array->pixels = flyt_soft_pixels_ref(array->planes->arrays[0].pixels);
    return r;
}

FLYT_SOFT_API cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
    struct CUctx_st *ctx;
    struct CUarray_st *array;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pHandle || !pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    array = calloc(1, sizeof(*array));
    r = array ? fill_array(ctx->device, pAllocateArray, array) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        free(array);
        return r;
    }
    *pHandle = array;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
    CUDA_ARRAY3D_DESCRIPTOR desc = {0};

    if (!pAllocateArray)
        return CUDA_ERROR_INVALID_VALUE;
    desc.Width = pAllocateArray->Width;
    desc.Height = pAllocateArray->Height;
    desc.Format = pAllocateArray->Format;
    desc.NumChannels = pAllocateArray->NumChannels;
    return cuArray3DCreate(pHandle, &desc);
}

/* Waits for all work of the device: what still reads it is done with it. */
FLYT_SOFT_API cuArrayDestroy(CUarray hArray)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hArray, FLYT_SOFT_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (hArray->is_of_mipmap)
        return CUDA_ERROR_INVALID_VALUE;
    if (hArray->is_plane) /* it goes with its array, and nobody minds */
        return CUDA_SUCCESS;
    flyt_soft_device_drain(hArray->pixels->device);
    hArray->kind = FLYT_SOFT_DEAD;
    flyt_soft_pixels_unref(hArray->pixels);
    if (hArray->planes)
        planes_free(hArray->planes);
    free(hArray);
    return flyt_soft_leave(ctx, CUDA_SUCCESS);
}

CUresult flyt_soft_array_level(CUarray array, const struct flyt_ptx_level **ret_level)
{
    if (!flyt_soft_is(array, FLYT_SOFT_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->planes)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_level = &array->pixels->image.levels[array->level];
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR *pArrayDescriptor, CUarray hArray)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pArrayDescriptor)
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_soft_is(hArray, FLYT_SOFT_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    *pArrayDescriptor = hArray->planes ? hArray->planes->desc : hArray->pixels->desc;
    if (hArray->level) {
        const struct flyt_ptx_level *level = &hArray->pixels->image.levels[hArray->level];

        pArrayDescriptor->Width = level->width;
        pArrayDescriptor->Height = pArrayDescriptor->Height ? level->height : 0;
        pArrayDescriptor->Depth = pArrayDescriptor->Depth ? level->depth : 0;
    }
    return CUDA_SUCCESS;
}

/* ---- mipmapped arrays ---- */

/* A level more as long as a side is longer than 1. */
static unsigned levels_most(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    uint64_t longest = desc->Width > desc->Height ? desc->Width : desc->Height;
    unsigned count = 1;

    if (!(desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) && desc->Depth > longest)
        longest = desc->Depth;
    for (; longest > 1; longest >>= 1)
        count++;
    return count < FLYT_PTX_LEVELS_MAX ? count : FLYT_PTX_LEVELS_MAX;
}

FLYT_SOFT_API cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
                                     unsigned int numMipmapLevels)
{
    const struct flyt_array_format *format;
    struct CUmipmappedArray_st *mipmap;
    struct CUctx_st *ctx;
    unsigned most;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pHandle || !pMipmappedArrayDesc)
        return CUDA_ERROR_INVALID_VALUE;
    format = flyt_array_format_find(pMipmappedArrayDesc->Format);
    if (format && format->reading == FLYT_ARRAY_VIDEO)
        return CUDA_ERROR_NOT_SUPPORTED;
    most = levels_most(pMipmappedArrayDesc);
    numMipmapLevels = numMipmapLevels < 1 ? 1 : numMipmapLevels < most ? numMipmapLevels : most; /* as documented */
    mipmap = calloc(1, sizeof(*mipmap));
    r = mipmap ? pixels_new(ctx->device, pMipmappedArrayDesc, numMipmapLevels, &mipmap->pixels)
               : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        free(mipmap);
        return r;
    }
    mipmap->kind = FLYT_SOFT_MIPMAPPED_ARRAY;
    for (unsigned i = 0; i < numMipmapLevels; i++)
        mipmap->levels[i] =
            (struct CUarray_st){.kind = FLYT_SOFT_ARRAY, .pixels = mipmap->pixels, .level = i, .is_of_mipmap = true};
    *pHandle = mipmap;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuMipmappedArrayGetLevel(CUarray *pLevelArray, CUmipmappedArray hMipmappedArray, unsigned int level)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hMipmappedArray, FLYT_SOFT_MIPMAPPED_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pLevelArray || level >= hMipmappedArray->pixels->image.level_count)
        return CUDA_ERROR_INVALID_VALUE;
    *pLevelArray = &hMipmappedArray->levels[level];
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hMipmappedArray, FLYT_SOFT_MIPMAPPED_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    flyt_soft_device_drain(hMipmappedArray->pixels->device);
    hMipmappedArray->kind = FLYT_SOFT_DEAD;
    flyt_soft_pixels_unref(hMipmappedArray->pixels);
    free(hMipmappedArray);
    return flyt_soft_leave(ctx, CUDA_SUCCESS);
}
