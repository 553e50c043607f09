#include "cpu/softgpu/driver/texture.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/array.h"
#include "cpu/softgpu/driver/driver.h"
#include "rpc/api/array_format.h"

enum { TEXTURE_ALIGN = 512, PITCH_ALIGN = 32, LINEAR_TEXELS_MAX = 1 << 28, PLANE_WIDTH_MAX = 131072 };
enum { PLANE_HEIGHT_MAX = 65000, PLANE_PITCH_MAX = 2097120 };
enum {
    TEXTURE_FLAGS = CU_TRSF_READ_AS_INTEGER | CU_TRSF_NORMALIZED_COORDINATES | CU_TRSF_SRGB |
                    CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION,
};

/* What the API tells of an object, beside what the engine reads. */
struct object {
    struct flyt_ptx_object ptx;      /* first: the table's entries */
    struct flyt_soft_pixels *pixels; /* one reference; NULL: memory */
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
    bool has_view;
};

/* ---- resources ---- */

static CUresult show_pixels(struct object *object, struct flyt_soft_pixels *pixels, unsigned first_level,
                            unsigned level_count)
{
    struct flyt_ptx_image *image = &object->ptx.image;

    *image = pixels->image;
    image->level_count = level_count;
    memmove(image->levels, image->levels + first_level, level_count * sizeof(*image->levels));
    object->pixels = pixels;
    return CUDA_SUCCESS;
}

/* Memory that the device can read now; later the engine looks at each texel. */
static CUresult show_memory(struct object *object, CUarray_format format, unsigned channels, uint64_t address,
                            uint64_t bytes)
{
    struct flyt_ptx_image *image = &object->ptx.image;
    const struct flyt_array_format *row = flyt_array_format_find(format);

    if (!row || !flyt_array_format_is_of_memory(row) || !flyt_array_format_has(row, channels) ||
        address % TEXTURE_ALIGN || !bytes || !flyt_soft_is_device_memory(address, bytes))
        return CUDA_ERROR_INVALID_VALUE;
    image->format = format;
    image->channels = channels;
    image->texel_bytes = flyt_array_format_bytes(row, channels);
    image->is_memory = true;
    image->level_count = 1;
    image->levels[0] = (struct flyt_ptx_level){.address = address, .height = 1, .depth = 1};
    return CUDA_SUCCESS;
}

static CUresult show_linear(struct object *object)
{
    const __typeof__(object->resource.res.linear) *linear = &object->resource.res.linear;
    struct flyt_ptx_image *image = &object->ptx.image;
    CUresult r = show_memory(object, linear->format, linear->numChannels, linear->devPtr, linear->sizeInBytes);

    if (r != CUDA_SUCCESS)
        return r;
    if (linear->sizeInBytes < image->texel_bytes || linear->sizeInBytes / image->texel_bytes > LINEAR_TEXELS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    image->levels[0].width = (uint32_t)(linear->sizeInBytes / image->texel_bytes);
    return CUDA_SUCCESS;
}

static CUresult show_plane(struct object *object)
{
    const __typeof__(object->resource.res.pitch2D) *plane = &object->resource.res.pitch2D;
    struct flyt_ptx_image *image = &object->ptx.image;
    CUresult r;

    if (!plane->width || plane->width > PLANE_WIDTH_MAX || !plane->height || plane->height > PLANE_HEIGHT_MAX ||
        plane->pitchInBytes > PLANE_PITCH_MAX || plane->pitchInBytes % PITCH_ALIGN)
        return CUDA_ERROR_INVALID_VALUE;
    r = show_memory(object, plane->format, plane->numChannels, plane->devPtr,
                    (plane->height - 1) * plane->pitchInBytes + 1);
    if (r != CUDA_SUCCESS)
        return r;
    if (plane->pitchInBytes < plane->width * image->texel_bytes ||
        !flyt_soft_is_device_memory(plane->devPtr,
                                    (plane->height - 1) * plane->pitchInBytes + plane->width * image->texel_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    image->levels[0].width = (uint32_t)plane->width;
    image->levels[0].height = (uint32_t)plane->height;
    image->levels[0].row_bytes = plane->pitchInBytes;
    return CUDA_SUCCESS;
}

static CUresult show_resource(const struct flyt_soft_device *device, struct object *object)
{
    const CUDA_RESOURCE_DESC *resource = &object->resource;
    CUarray array = resource->res.array.hArray;
    CUmipmappedArray mipmap = resource->res.mipmap.hMipmappedArray;

    if (resource->flags)
        return CUDA_ERROR_INVALID_VALUE;
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        if (!flyt_soft_is(array, FLYT_SOFT_ARRAY) || array->pixels->device != device)
            return CUDA_ERROR_INVALID_HANDLE;
        return array->planes ? CUDA_ERROR_INVALID_VALUE : show_pixels(object, array->pixels, array->level, 1);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        if (!flyt_soft_is(mipmap, FLYT_SOFT_MIPMAPPED_ARRAY) || mipmap->pixels->device != device)
            return CUDA_ERROR_INVALID_HANDLE;
        return show_pixels(object, mipmap->pixels, 0, mipmap->pixels->image.level_count);
    case CU_RESOURCE_TYPE_LINEAR:
        return show_linear(object);
    case CU_RESOURCE_TYPE_PITCH2D:
        return show_plane(object);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

/* ---- textures ---- */

/* The format of a view, as one of arrays: same size, another type. */
static bool view_format(CUresourceViewFormat format, CUarray_format *ret_format, unsigned *ret_channels)
{
    static const CUarray_format formats[] = {
        CU_AD_FORMAT_UNSIGNED_INT8,  CU_AD_FORMAT_SIGNED_INT8,  CU_AD_FORMAT_UNSIGNED_INT16, CU_AD_FORMAT_SIGNED_INT16,
        CU_AD_FORMAT_UNSIGNED_INT32, CU_AD_FORMAT_SIGNED_INT32, CU_AD_FORMAT_HALF,           CU_AD_FORMAT_FLOAT};
    static const unsigned channels[] = {1, 2, 4};
    unsigned number = (unsigned)format - CU_RES_VIEW_FORMAT_UINT_1X8; /* three of each, in this order */

    if (number >= 3 * sizeof(formats) / sizeof(formats[0]))
        return false;
    *ret_format = formats[number / 3];
    *ret_channels = channels[number % 3];
    return true;
}

/* Elements of 8 or 16 bytes, two or four whole numbers of 32 bits each, as blocks. */
static CUresult view_blocks(CUresourceViewFormat format, struct flyt_ptx_image *image)
{
    static const CUarray_format formats[] = {CU_AD_FORMAT_BC1_UNORM, CU_AD_FORMAT_BC2_UNORM, CU_AD_FORMAT_BC3_UNORM,
                                             CU_AD_FORMAT_BC4_UNORM, CU_AD_FORMAT_BC4_SNORM, CU_AD_FORMAT_BC5_UNORM,
                                             CU_AD_FORMAT_BC5_SNORM, CU_AD_FORMAT_BC6H_UF16, CU_AD_FORMAT_BC6H_SF16,
                                             CU_AD_FORMAT_BC7_UNORM};
    const struct flyt_array_format *row =
        flyt_array_format_find(formats[(unsigned)format - CU_RES_VIEW_FORMAT_UNSIGNED_BC1]);

    if (image->format != CU_AD_FORMAT_UNSIGNED_INT32 || image->texel_bytes != row->bytes)
        return CUDA_ERROR_INVALID_VALUE;
    image->format = (CUarray_format)row->number;
    image->channels = row->channels;
    image->block_shift = 2;
    for (unsigned i = 0; i < image->level_count; i++) {
        image->levels[i].width *= row->side;
        image->levels[i].height *= row->side;
    }
    return CUDA_SUCCESS;
}

/* Another type of elements. */
static CUresult view_elements(CUresourceViewFormat format, struct flyt_ptx_image *image)
{
    const struct flyt_array_format *row;

    if (format == CU_RES_VIEW_FORMAT_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    if (format >= CU_RES_VIEW_FORMAT_UNSIGNED_BC1 && format <= CU_RES_VIEW_FORMAT_UNSIGNED_BC7)
        return view_blocks(format, image);
    if (!view_format(format, &image->format, &image->channels))
        return CUDA_ERROR_NOT_SUPPORTED;
    row = flyt_array_format_find(image->format);
    return image->block_shift || flyt_array_format_bytes(row, image->channels) != image->texel_bytes
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}

/* Levels of a mipmapped array, all layers of them, and another type of elements; other views are not there. */
static CUresult take_view(struct object *object)
{
    const CUDA_RESOURCE_VIEW_DESC *view = &object->view;
    struct flyt_ptx_image *image = &object->ptx.image;
    unsigned count;
    CUresult r;

    if (!object->pixels || view->firstMipmapLevel > view->lastMipmapLevel ||
        view->lastMipmapLevel >= image->level_count)
        return CUDA_ERROR_INVALID_VALUE;
    if (view->firstLayer || (view->lastLayer && view->lastLayer != image->levels[0].depth - 1))
        return CUDA_ERROR_NOT_SUPPORTED;
    r = view_elements(view->format, image);
    if (r != CUDA_SUCCESS)
        return r;
    if (view->width != image->levels[0].width) /* the resource's, whichever levels are shown */
        return CUDA_ERROR_INVALID_VALUE;
    count = view->lastMipmapLevel - view->firstMipmapLevel + 1;
    memmove(image->levels, image->levels + view->firstMipmapLevel, count * sizeof(*image->levels));
    image->level_count = count;
    return CUDA_SUCCESS;
}

/* Wrapping and mirroring are of normalised coordinates; without them they are clamping. */
static CUaddress_mode mode_of(const CUDA_TEXTURE_DESC *desc, unsigned dimension)
{
    CUaddress_mode mode = desc->addressMode[dimension];
    bool repeats = mode == CU_TR_ADDRESS_MODE_WRAP || mode == CU_TR_ADDRESS_MODE_MIRROR;

    return repeats && !(desc->flags & CU_TRSF_NORMALIZED_COORDINATES) ? CU_TR_ADDRESS_MODE_CLAMP : mode;
}

/* Whether they can be of sRGB. */
static bool has_colours(const struct flyt_array_format *format)
{
    switch (format->number) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_UNORM_INT8X1 ... CU_AD_FORMAT_UNORM_INT8X4:
    case CU_AD_FORMAT_BC1_UNORM ... CU_AD_FORMAT_BC3_UNORM_SRGB:
    case CU_AD_FORMAT_BC7_UNORM ... CU_AD_FORMAT_BC7_UNORM_SRGB:
        return true;
    default:
        return false;
    }
}

static CUresult take_texture(struct object *object)
{
    const CUDA_TEXTURE_DESC *desc = &object->texture;
    struct flyt_ptx_object *ptx = &object->ptx;
    const struct flyt_array_format *format = flyt_array_format_find(ptx->image.format);
    bool is_float = format->reading == FLYT_ARRAY_FLOAT, is_whole = format->reading == FLYT_ARRAY_INTEGER;
    bool is_wide = is_whole && format->bytes == sizeof(uint32_t);

    if (desc->flags & CU_TRSF_SEAMLESS_CUBEMAP)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (object->pixels && flyt_array_format_find(object->pixels->desc.Format)->reading == FLYT_ARRAY_VIDEO)
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->flags & ~(unsigned)TEXTURE_FLAGS || desc->filterMode > CU_TR_FILTER_MODE_LINEAR ||
        desc->mipmapFilterMode > CU_TR_FILTER_MODE_LINEAR || desc->maxAnisotropy > 16)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned d = 0; d < 3; d++) {
        if (desc->addressMode[d] > CU_TR_ADDRESS_MODE_BORDER)
            return CUDA_ERROR_INVALID_VALUE;
        ptx->address_modes[d] = mode_of(desc, d);
    }
    ptx->filter = desc->filterMode;
    ptx->level_filter = desc->mipmapFilterMode;
    ptx->is_normalized = desc->flags & CU_TRSF_NORMALIZED_COORDINATES;
    ptx->is_integer = is_float || is_wide || (is_whole && desc->flags & CU_TRSF_READ_AS_INTEGER);
    ptx->is_srgb = desc->flags & CU_TRSF_SRGB && has_colours(format) && !ptx->is_integer;
    ptx->level_bias = desc->mipmapLevelBias;
    ptx->level_min = desc->minMipmapLevelClamp;
    ptx->level_max = desc->maxMipmapLevelClamp;
    memcpy(ptx->border, desc->borderColor, sizeof(ptx->border));
    if (format->is_srgb && !ptx->is_srgb)
        return CUDA_ERROR_INVALID_VALUE;
    /* Only floats are filtered. */
    if (ptx->is_integer && !is_float && (ptx->filter == CU_TR_FILTER_MODE_LINEAR))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* ---- the table ---- */

static CUresult enter_object(struct flyt_soft_device *device, struct object *object, uint64_t *ret_handle)
{
    struct flyt_soft_textures *textures = &device->textures;
    uint32_t at = 1;

    pthread_mutex_lock(&flyt_soft_driver()->mutex);
    if (!textures->objects.slots)
        textures->objects.slots = calloc(FLYT_PTX_OBJECTS_MAX, sizeof(*textures->objects.slots));
    while (textures->objects.slots && at <= textures->used_count && at < FLYT_PTX_OBJECTS_MAX &&
           atomic_load(&textures->objects.slots[at]))
        at++;
    if (!textures->objects.slots || at == FLYT_PTX_OBJECTS_MAX) {
        pthread_mutex_unlock(&flyt_soft_driver()->mutex);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (object->pixels)
        flyt_soft_pixels_ref(object->pixels);
    atomic_store(&textures->objects.slots[at], &object->ptx);
    textures->used_count = at > textures->used_count ? at : textures->used_count;
    pthread_mutex_unlock(&flyt_soft_driver()->mutex);
    *ret_handle = at;
    return CUDA_SUCCESS;
}

/* NULL: no object of this kind has the handle on the device. */
static struct object *find_object(const struct flyt_soft_device *device, uint64_t handle, bool is_surface)
{
    const struct flyt_soft_textures *textures = &device->textures;
    const struct flyt_ptx_object *found;

    if (!textures->objects.slots || handle >= FLYT_PTX_OBJECTS_MAX)
        return NULL;
    found = atomic_load(&textures->objects.slots[handle]);
    return found && found->is_surface == is_surface ? (struct object *)found : NULL;
}

static CUresult create(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *texture,
                       const CUDA_RESOURCE_VIEW_DESC *view, uint64_t *ret_handle)
{
    struct CUctx_st *ctx;
    struct object *object;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!ret_handle || !resource)
        return CUDA_ERROR_INVALID_VALUE;
    object = calloc(1, sizeof(*object));
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->ptx.is_surface = !texture;
    object->resource = *resource;
    r = show_resource(ctx->device, object);
    if (r == CUDA_SUCCESS && view) {
        object->view = *view;
        object->has_view = true;
        r = take_view(object);
    }
    if (r == CUDA_SUCCESS && texture) {
        object->texture = *texture;
        r = take_texture(object);
    }
    if (r == CUDA_SUCCESS)
        r = enter_object(ctx->device, object, ret_handle);
    if (r != CUDA_SUCCESS)
        free(object);
    return r;
}

/* Waits for all work of the device, which may use it. */
static CUresult destroy(uint64_t handle, bool is_surface)
{
    struct CUctx_st *ctx;
    struct object *object;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    flyt_soft_device_drain(ctx->device);
    pthread_mutex_lock(&flyt_soft_driver()->mutex);
    object = find_object(ctx->device, handle, is_surface);
    if (object)
        atomic_store(&ctx->device->textures.objects.slots[handle], NULL);
    pthread_mutex_unlock(&flyt_soft_driver()->mutex);
    if (!object)
        return CUDA_ERROR_INVALID_VALUE;
    if (object->pixels)
        flyt_soft_pixels_unref(object->pixels);
    free(object);
    return flyt_soft_leave(ctx, CUDA_SUCCESS);
}

/* ---- the API ---- */

FLYT_SOFT_API cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                                const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    uint64_t handle;
    CUresult r = pTexObject && pTexDesc ? create(pResDesc, pTexDesc, pResViewDesc, &handle) : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        *pTexObject = handle;
    return r;
}

FLYT_SOFT_API cuTexObjectDestroy(CUtexObject texObject)
{
    return destroy(texObject, false);
}

FLYT_SOFT_API cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    uint64_t handle;
    CUresult r;

    if (!pSurfObject || !pResDesc || pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_soft_is(pResDesc->res.array.hArray, FLYT_SOFT_ARRAY))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!(pResDesc->res.array.hArray->pixels->desc.Flags &
          (CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE)) ||
        pResDesc->res.array.hArray->pixels->image.block_shift) /* texels of blocks have no place of their own */
        return CUDA_ERROR_INVALID_VALUE;
    r = create(pResDesc, NULL, NULL, &handle);
    if (r == CUDA_SUCCESS)
        *pSurfObject = handle;
    return r;
}

FLYT_SOFT_API cuSurfObjectDestroy(CUsurfObject surfObject)
{
    return destroy(surfObject, true);
}
