/* Textures and surfaces: the runtime's structures become the driver's, and back. */
#include "cpu/client/cuda/texture.h"

#include <string.h>

#include "cpu/client/cuda/array.h"
#include "cpu/cudart/array.h"
#include "flyt_client_rows.h"
#include "rpc/api/array_format.h"

/* ---- resources ---- */

static cudaError_t lower_memory(const struct cudaResourceDesc *desc, CUDA_RESOURCE_DESC *out)
{
    if (desc->resType == cudaResourceTypeLinear) {
        out->resType = CU_RESOURCE_TYPE_LINEAR;
        out->res.linear.devPtr = (CUdeviceptr)desc->res.linear.devPtr;
        out->res.linear.sizeInBytes = desc->res.linear.sizeInBytes;
        return flyt_cudart_format(&desc->res.linear.desc, &out->res.linear.format, &out->res.linear.numChannels);
    }
    out->resType = CU_RESOURCE_TYPE_PITCH2D;
    out->res.pitch2D.devPtr = (CUdeviceptr)desc->res.pitch2D.devPtr;
    out->res.pitch2D.width = desc->res.pitch2D.width;
    out->res.pitch2D.height = desc->res.pitch2D.height;
    out->res.pitch2D.pitchInBytes = desc->res.pitch2D.pitchInBytes;
    return flyt_cudart_format(&desc->res.pitch2D.desc, &out->res.pitch2D.format, &out->res.pitch2D.numChannels);
}

static cudaError_t lower_resource(const struct cudaResourceDesc *desc, CUDA_RESOURCE_DESC *ret_desc)
{
    *ret_desc = (CUDA_RESOURCE_DESC){.flags = desc->flags};
    switch (desc->resType) {
    case cudaResourceTypeArray:
        ret_desc->resType = CU_RESOURCE_TYPE_ARRAY;
        ret_desc->res.array.hArray = (CUarray)desc->res.array.array;
        return cudaSuccess;
    case cudaResourceTypeMipmappedArray:
        ret_desc->resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
        ret_desc->res.mipmap.hMipmappedArray = (CUmipmappedArray)desc->res.mipmap.mipmap;
        return cudaSuccess;
    case cudaResourceTypeLinear:
    case cudaResourceTypePitch2D:
        return lower_memory(desc, ret_desc);
    default:
        return cudaErrorInvalidValue;
    }
}

static void raise_resource(const CUDA_RESOURCE_DESC *desc, struct cudaResourceDesc *ret_desc)
{
    memset(ret_desc, 0, sizeof(*ret_desc));
    ret_desc->flags = desc->flags;
    ret_desc->resType = (enum cudaResourceType)desc->resType;
    switch (desc->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        ret_desc->res.array.array = (cudaArray_t)desc->res.array.hArray;
        break;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        ret_desc->res.mipmap.mipmap = (cudaMipmappedArray_t)desc->res.mipmap.hMipmappedArray;
        break;
    case CU_RESOURCE_TYPE_LINEAR:
        ret_desc->res.linear.devPtr = (void *)desc->res.linear.devPtr;
        ret_desc->res.linear.sizeInBytes = desc->res.linear.sizeInBytes;
        ret_desc->res.linear.desc = flyt_cudart_channels(desc->res.linear.format, desc->res.linear.numChannels);
        break;
    default:
        ret_desc->res.pitch2D.devPtr = (void *)desc->res.pitch2D.devPtr;
        ret_desc->res.pitch2D.width = desc->res.pitch2D.width;
        ret_desc->res.pitch2D.height = desc->res.pitch2D.height;
        ret_desc->res.pitch2D.pitchInBytes = desc->res.pitch2D.pitchInBytes;
        ret_desc->res.pitch2D.desc = flyt_cudart_channels(desc->res.pitch2D.format, desc->res.pitch2D.numChannels);
        break;
    }
}

/* ---- sampling ---- */

/* format NULL: it is not known here. Only what can be read either way needs to be told. */
static unsigned flags_of(const struct flyt_array_format *format, const struct cudaTextureDesc *desc)
{
    bool has_choice = !format || !format->channels;

    return (has_choice && desc->readMode == cudaReadModeElementType ? CU_TRSF_READ_AS_INTEGER : 0u) |
           (desc->normalizedCoords ? CU_TRSF_NORMALIZED_COORDINATES : 0u) | (desc->sRGB ? CU_TRSF_SRGB : 0u) |
           (desc->disableTrilinearOptimization ? CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION : 0u) |
           (desc->seamlessCubemap ? CU_TRSF_SEAMLESS_CUBEMAP : 0u);
}

static CUDA_TEXTURE_DESC lower_sampling(const struct flyt_array_format *format, const struct cudaTextureDesc *desc)
{
    CUDA_TEXTURE_DESC out = {.filterMode = (CUfilter_mode)desc->filterMode,
                             .flags = flags_of(format, desc),
                             .maxAnisotropy = desc->maxAnisotropy,
                             .mipmapFilterMode = (CUfilter_mode)desc->mipmapFilterMode,
                             .mipmapLevelBias = desc->mipmapLevelBias,
                             .minMipmapLevelClamp = desc->minMipmapLevelClamp,
                             .maxMipmapLevelClamp = desc->maxMipmapLevelClamp};

    for (unsigned i = 0; i < 3; i++)
        out.addressMode[i] = (CUaddress_mode)desc->addressMode[i];
    memcpy(out.borderColor, desc->borderColor, sizeof(out.borderColor));
    return out;
}

static void raise_sampling(const struct flyt_array_format *format, const CUDA_TEXTURE_DESC *desc,
                           struct cudaTextureDesc *ret_desc)
{
    bool has_choice = !format || !format->channels;
    bool reads_elements = has_choice ? desc->flags & CU_TRSF_READ_AS_INTEGER : format->reading == FLYT_ARRAY_FLOAT;

    memset(ret_desc, 0, sizeof(*ret_desc));
    for (unsigned i = 0; i < 3; i++)
        ret_desc->addressMode[i] = (enum cudaTextureAddressMode)desc->addressMode[i];
    ret_desc->filterMode = (enum cudaTextureFilterMode)desc->filterMode;
    ret_desc->readMode = reads_elements ? cudaReadModeElementType : cudaReadModeNormalizedFloat;
    ret_desc->sRGB = (desc->flags & CU_TRSF_SRGB) != 0;
    ret_desc->normalizedCoords = (desc->flags & CU_TRSF_NORMALIZED_COORDINATES) != 0;
    ret_desc->maxAnisotropy = desc->maxAnisotropy;
    ret_desc->mipmapFilterMode = (enum cudaTextureFilterMode)desc->mipmapFilterMode;
    ret_desc->mipmapLevelBias = desc->mipmapLevelBias;
    ret_desc->minMipmapLevelClamp = desc->minMipmapLevelClamp;
    ret_desc->maxMipmapLevelClamp = desc->maxMipmapLevelClamp;
    ret_desc->disableTrilinearOptimization = (desc->flags & CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION) != 0;
    ret_desc->seamlessCubemap = (desc->flags & CU_TRSF_SEAMLESS_CUBEMAP) != 0;
    memcpy(ret_desc->borderColor, desc->borderColor, sizeof(ret_desc->borderColor));
}

static CUDA_RESOURCE_VIEW_DESC lower_view(const struct cudaResourceViewDesc *desc)
{
    return (CUDA_RESOURCE_VIEW_DESC){.format = (CUresourceViewFormat)desc->format,
                                     .width = desc->width,
                                     .height = desc->height,
                                     .depth = desc->depth,
                                     .firstMipmapLevel = desc->firstMipmapLevel,
                                     .lastMipmapLevel = desc->lastMipmapLevel,
                                     .firstLayer = desc->firstLayer,
                                     .lastLayer = desc->lastLayer};
}

static void raise_view(const CUDA_RESOURCE_VIEW_DESC *desc, struct cudaResourceViewDesc *ret_desc)
{
    memset(ret_desc, 0, sizeof(*ret_desc));
    ret_desc->format = (enum cudaResourceViewFormat)desc->format;
    ret_desc->width = desc->width;
    ret_desc->height = desc->height;
    ret_desc->depth = desc->depth;
    ret_desc->firstMipmapLevel = desc->firstMipmapLevel;
    ret_desc->lastMipmapLevel = desc->lastMipmapLevel;
    ret_desc->firstLayer = desc->firstLayer;
    ret_desc->lastLayer = desc->lastLayer;
}

/* What the runtime has codes of its own for. The format is the elements' own, whatever a view makes of them. */
static cudaError_t check_sampling(const struct flyt_array_format *format, const struct cudaTextureDesc *desc)
{
    bool is_whole = format->reading == FLYT_ARRAY_INTEGER, is_wide = is_whole && format->bytes == sizeof(uint32_t);
    bool is_element = desc->readMode == cudaReadModeElementType;

    if (is_whole && desc->filterMode == cudaFilterModeLinear && (is_wide || is_element))
        return cudaErrorInvalidFilterSetting;
    if (is_element ? format->reading == FLYT_ARRAY_NORMALIZED : is_wide || format->reading == FLYT_ARRAY_FLOAT)
        return cudaErrorInvalidNormSetting;
    return cudaSuccess;
}

/* The format of what is shown; NULL: that is not known here, and for the driver to judge. */
static const struct flyt_array_format *find_format(const CUDA_RESOURCE_DESC *resource)
{
    CUDA_ARRAY3D_DESCRIPTOR desc;
    CUarray array = resource->res.array.hArray;

    switch (resource->resType) {
    case CU_RESOURCE_TYPE_LINEAR:
        return flyt_array_format_find((uint32_t)resource->res.linear.format);
    case CU_RESOURCE_TYPE_PITCH2D:
        return flyt_array_format_find((uint32_t)resource->res.pitch2D.format);
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        if (flyt_mipmap_level(resource->res.mipmap.hMipmappedArray, 0, &array) != CUDA_SUCCESS)
            return NULL;
        break;
    default:
        break;
    }
    return flyt_array_describe(array, &desc) == CUDA_SUCCESS ? flyt_array_format_find((uint32_t)desc.Format) : NULL;
}

/* ---- the API ---- */

cudaError_t cudaCreateTextureObject(cudaTextureObject_t *pTexObject, const struct cudaResourceDesc *pResDesc,
                                    const struct cudaTextureDesc *pTexDesc,
                                    const struct cudaResourceViewDesc *pResViewDesc)
{
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampling;
    CUDA_RESOURCE_VIEW_DESC view;
    const struct flyt_array_format *format;
    cudaError_t error = pTexObject && pResDesc && pTexDesc ? cudaSuccess : cudaErrorInvalidValue;
    CUresult result;

    if (error == cudaSuccess)
        error = lower_resource(pResDesc, &resource);
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = flyt_cudart_enter();
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    format = find_format(&resource);
    if (format)
        error = check_sampling(format, pTexDesc);
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    sampling = lower_sampling(format, pTexDesc);
    if (pResViewDesc)
        view = lower_view(pResViewDesc);
    return flyt_cudart_result(flyt_texture_create(&resource, &sampling, pResViewDesc ? &view : NULL, pTexObject));
}

cudaError_t cudaCreateSurfaceObject(cudaSurfaceObject_t *pSurfObject, const struct cudaResourceDesc *pResDesc)
{
    CUDA_RESOURCE_DESC resource;
    cudaError_t error = pSurfObject && pResDesc ? lower_resource(pResDesc, &resource) : cudaErrorInvalidValue;
    CUresult result;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = flyt_cudart_enter();
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : flyt_surface_create(&resource, pSurfObject));
}

static cudaError_t get_resource(struct cudaResourceDesc *ret_desc, unsigned long long handle, bool is_surface)
{
    CUDA_RESOURCE_DESC desc;
    CUresult result = ret_desc ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        result = flyt_texture_get_resource(handle, is_surface, &desc);
    if (result == CUDA_SUCCESS)
        raise_resource(&desc, ret_desc);
    return flyt_cudart_result(result);
}

cudaError_t cudaGetTextureObjectResourceDesc(struct cudaResourceDesc *pResDesc, cudaTextureObject_t texObject)
{
    return get_resource(pResDesc, texObject, false);
}

cudaError_t cudaGetSurfaceObjectResourceDesc(struct cudaResourceDesc *pResDesc, cudaSurfaceObject_t surfObject)
{
    return get_resource(pResDesc, surfObject, true);
}

cudaError_t cudaGetTextureObjectTextureDesc(struct cudaTextureDesc *pTexDesc, cudaTextureObject_t texObject)
{
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC desc;
    CUresult result = pTexDesc ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        result = flyt_texture_get_resource(texObject, false, &resource);
    if (result == CUDA_SUCCESS)
        result = flyt_texture_get_sampling(texObject, &desc);
    if (result == CUDA_SUCCESS)
        raise_sampling(find_format(&resource), &desc, pTexDesc);
    return flyt_cudart_result(result);
}

cudaError_t cudaGetTextureObjectResourceViewDesc(struct cudaResourceViewDesc *pResViewDesc,
                                                 cudaTextureObject_t texObject)
{
    CUDA_RESOURCE_VIEW_DESC desc;
    CUresult result = pResViewDesc ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        result = flyt_texture_get_view(texObject, &desc);
    if (result == CUDA_SUCCESS)
        raise_view(&desc, pResViewDesc);
    return flyt_cudart_result(result);
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t *maxWidthInElements,
                                                 const struct cudaChannelFormatDesc *fmtDesc, int device)
{
    CUarray_format format;
    unsigned channels;
    cudaError_t error =
        maxWidthInElements && fmtDesc ? flyt_cudart_format(fmtDesc, &format, &channels) : cudaErrorInvalidValue;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    return flyt_cudart_result(flyt_texture_line_max(device, (unsigned)format, channels, maxWidthInElements));
}
