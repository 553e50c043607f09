#include "cpu/server/cuda/texture.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/digest.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/memory.h"
#include "flyt_serve.h"

static CUresult enter_primary(struct flyt_device *device)
{
    device->session->current_device = NULL; /* the green context is to be made current again */
    return device->session->driver->cuCtxSetCurrent(device->cu_primary);
}

/* ---- what is shown ---- */

/* A number of the device's; 0: it has none. */
static uint64_t limit(const struct flyt_device *device, CUdevice_attribute attribute)
{
    int value = 0;
    if (device->session->driver->cuDeviceGetAttribute(&value, attribute, device->cu_device) != CUDA_SUCCESS ||
        value < 0)
        return 0;
    return (uint64_t)value;
}

/* Memory of the session on the device, from a place at which textures may begin. */
static bool is_own(struct flyt_device *device, uint64_t address, uint64_t bytes)
{
    struct flyt_device *found;
    uint64_t align = limit(device, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT);
    return align && address % align == 0 && flyt_memory_covers(device->session, address, bytes, &found) &&
           found == device;
}

static CUresult show_line(struct flyt_device *device, const flyt_texture_memory *memory, unsigned texel_bytes,
                          CUDA_RESOURCE_DESC *ret_desc)
{
    if (memory->bytes < texel_bytes ||
        memory->bytes / texel_bytes > limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LINEAR_WIDTH) ||
        !is_own(device, memory->address, memory->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    ret_desc->resType = CU_RESOURCE_TYPE_LINEAR;
    ret_desc->res.linear.devPtr = memory->address;
    ret_desc->res.linear.format = (CUarray_format)memory->format;
    ret_desc->res.linear.numChannels = memory->channels;
    ret_desc->res.linear.sizeInBytes = memory->bytes;
    return CUDA_SUCCESS;
}

static CUresult show_plane(struct flyt_device *device, const flyt_texture_memory *memory, unsigned texel_bytes,
                           CUDA_RESOURCE_DESC *ret_desc)
{
    uint64_t align = limit(device, CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT);
    if (!memory->width || memory->width > limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_WIDTH) ||
        memory->height > limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_HEIGHT) ||
        memory->pitch_bytes > limit(device, CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LINEAR_PITCH) || !align ||
        memory->pitch_bytes % align || memory->pitch_bytes < memory->width * texel_bytes ||
        !is_own(device, memory->address, (memory->height - 1) * memory->pitch_bytes + memory->width * texel_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    ret_desc->resType = CU_RESOURCE_TYPE_PITCH2D;
    ret_desc->res.pitch2D.devPtr = memory->address;
    ret_desc->res.pitch2D.format = (CUarray_format)memory->format;
    ret_desc->res.pitch2D.numChannels = memory->channels;
    ret_desc->res.pitch2D.width = memory->width;
    ret_desc->res.pitch2D.height = memory->height;
    ret_desc->res.pitch2D.pitchInBytes = memory->pitch_bytes;
    return CUDA_SUCCESS;
}

static CUresult show_memory(struct flyt_device *device, const flyt_texture_memory *memory, CUDA_RESOURCE_DESC *ret_desc)
{
    const struct flyt_array_format *format = flyt_array_format_find(memory->format);
    if (!format || !flyt_array_format_is_of_memory(format) || !flyt_array_format_has(format, memory->channels))
        return CUDA_ERROR_INVALID_VALUE;
    const unsigned texel_bytes = flyt_array_format_bytes(format, memory->channels);
    return memory->height ? show_plane(device, memory, texel_bytes, ret_desc)
                          : show_line(device, memory, texel_bytes, ret_desc);
}

static CUresult show_array(const struct flyt_device *device, const struct flyt_array *array, uint32_t level,
                           CUDA_RESOURCE_DESC *ret_desc)
{
    bool is_all = level == FLYT_TEXTURE_LEVELS;
    if (array->device != device || (is_all ? !array->cu_mipmap : level >= array->level_count))
        return CUDA_ERROR_INVALID_VALUE;
    ret_desc->resType = is_all ? CU_RESOURCE_TYPE_MIPMAPPED_ARRAY : CU_RESOURCE_TYPE_ARRAY;
    if (is_all)
        ret_desc->res.mipmap.hMipmappedArray = array->cu_mipmap;
    else
        ret_desc->res.array.hArray = array->cu_levels[level];
    return CUDA_SUCCESS;
}

static CUDA_TEXTURE_DESC sampling_of(const flyt_texture_sampling *sampling)
{
    CUDA_TEXTURE_DESC desc = {.filterMode = (CUfilter_mode)sampling->filter,
                              .flags = sampling->flags,
                              .maxAnisotropy = sampling->anisotropy,
                              .mipmapFilterMode = (CUfilter_mode)sampling->level_filter,
                              .mipmapLevelBias = sampling->level_bias,
                              .minMipmapLevelClamp = sampling->level_min,
                              .maxMipmapLevelClamp = sampling->level_max};
    for (unsigned i = 0; i < 3; i++)
        desc.addressMode[i] = (CUaddress_mode)sampling->address_modes[i];
    memcpy(desc.borderColor, sampling->border, sizeof desc.borderColor);
    return desc;
}

static CUDA_RESOURCE_VIEW_DESC view_of(const flyt_texture_view *view)
{
    return (CUDA_RESOURCE_VIEW_DESC){.format = (CUresourceViewFormat)view->format,
                                     .width = view->width,
                                     .height = view->height,
                                     .depth = view->depth,
                                     .firstMipmapLevel = view->first_level,
                                     .lastMipmapLevel = view->last_level,
                                     .firstLayer = view->first_layer,
                                     .lastLayer = view->last_layer};
}

/* ---- making ---- */

/* What the driver makes objects of. */
struct recipe {
    const struct flyt_driver *driver;
    bool is_surface, has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampling;
    CUDA_RESOURCE_VIEW_DESC view;
};

static CUresult make_one(const struct recipe *self, uint64_t *ret_handle)
{
    CUtexObject handle = 0;
    CUresult result = self->is_surface ? self->driver->cuSurfObjectCreate(&handle, &self->resource)
                                       : self->driver->cuTexObjectCreate(&handle, &self->resource, &self->sampling,
                                                                         self->has_view ? &self->view : NULL);
    *ret_handle = handle;
    return result;
}

static CUresult unmake_one(const struct flyt_driver *driver, bool is_surface, uint64_t handle)
{
    return is_surface ? driver->cuSurfObjectDestroy(handle) : driver->cuTexObjectDestroy(handle);
}

/* One with that handle. CUDA_ERROR_NOT_SUPPORTED: the driver does not give it. */
static CUresult make_wanted(const struct recipe *self, uint64_t wanted)
{
    uint64_t handle = 0, *others = calloc(FLYT_TEXTURE_TRIES_MAX, sizeof *others);
    unsigned count = 0;
    CUresult result = others ? make_one(self, &handle) : CUDA_ERROR_OUT_OF_MEMORY;
    while (result == CUDA_SUCCESS && handle != wanted) {
        others[count++] = handle;
        result = count < FLYT_TEXTURE_TRIES_MAX ? make_one(self, &handle) : CUDA_ERROR_NOT_SUPPORTED;
    }
    while (count)
        unmake_one(self->driver, self->is_surface, others[--count]);
    free(others);
    return result;
}

static CUresult look(struct flyt_device *device, const flyt_texture_create_args *args, const struct flyt_array *array,
                     struct recipe *ret_recipe)
{
    *ret_recipe = (struct recipe){.driver = device->session->driver,
                                  .is_surface = args->is_surface,
                                  .has_view = args->has_view,
                                  .sampling = sampling_of(&args->sampling),
                                  .view = view_of(&args->view)};
    if (array)
        return show_array(device, array, args->level, &ret_recipe->resource);
    return args->is_surface ? CUDA_ERROR_INVALID_VALUE : show_memory(device, &args->memory, &ret_recipe->resource);
}

/* Of what the row says. */
static uint64_t digest_of(const flyt_texture_create_args *args)
{
    uint64_t memory = flyt_digest(args->memory.address, args->memory.format, (int64_t)args->memory.bytes,
                                  args->memory.width << 32 ^ args->memory.height);
    return flyt_digest(args->array_id, args->device, (int64_t)args->level, memory ^ args->sampling.flags);
}

CUresult flyt_serve_texture_create(struct flyt_call *call, const flyt_texture_create_args *args,
                                   struct flyt_array *array, flyt_texture_create_res *res)
{
    struct flyt_session *session = call->session;
    struct flyt_device *device;
    struct recipe recipe;
    CUresult result = flyt_session_use_device(session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = look(device, args, array, &recipe);
    if (result == CUDA_SUCCESS && flyt_objects_count(&session->objects, FLYT_OBJECTS_TEXTURE) >= FLYT_TEXTURES_MAX)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = enter_primary(device);
    struct flyt_texture *texture = result == CUDA_SUCCESS ? calloc(1, sizeof *texture) : NULL;
    if (!texture)
        return result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : result;
    texture->object.id = args->texture_id;
    texture->object.made = digest_of(args);
    texture->device = device;
    texture->is_surface = args->is_surface;
    texture->handle = args->wanted;
    result = args->wanted ? make_wanted(&recipe, args->wanted) : make_one(&recipe, &texture->handle);
    if (result == CUDA_SUCCESS) {
        result = flyt_session_insert(session, &texture->object, FLYT_ID_TEXTURE);
        if (result != CUDA_SUCCESS)
            unmake_one(recipe.driver, texture->is_surface, texture->handle);
    }
    if (result == CUDA_SUCCESS)
        res->handle = texture->handle;
    else
        free(texture);
    return result;
}

/* ---- their end ---- */

struct destroy_job {
    struct flyt_job job;
    struct flyt_texture *texture;
};

/* Nothing uses it any more. */
static CUresult destroy_advance(struct flyt_job *job)
{
    const struct flyt_texture *texture = ((struct destroy_job *)job)->texture;
    CUresult result = enter_primary(texture->device);
    return result == CUDA_SUCCESS ? unmake_one(job->session->driver, texture->is_surface, texture->handle) : result;
}

static void destroy_free(struct flyt_job *job)
{
    free(((struct destroy_job *)job)->texture);
    free(job);
}

static const struct flyt_job_ops destroy_ops = {destroy_advance, NULL, destroy_free};

CUresult flyt_serve_texture_destroy(struct flyt_call *call, const flyt_texture_destroy_args *args,
                                    struct flyt_texture *texture)
{
    CUresult result;
    struct destroy_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    flyt_object_remove(&call->session->objects, &texture->object);
    self->texture = texture;
    return flyt_job_begin(&self->job, &destroy_ops, call);
}

void flyt_texture_drop(struct flyt_texture *texture, const struct flyt_device *device)
{
    if (device && texture->device != device)
        return;
    flyt_object_remove(&texture->device->session->objects, &texture->object);
    if (device && enter_primary(texture->device) == CUDA_SUCCESS)
        unmake_one(device->session->driver, texture->is_surface, texture->handle);
    free(texture);
}
