#include "cpu/client/cuda/texture.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/array.h"
#include "cpu/client/cuda/context.h"
#include "rpc/api/array_box.h"
#include "rpc/api/array_format.h"

struct flyt_texture {
    struct flyt_record record;
    uint64_t context_id;
    int device;
    uint64_t handle;
    bool is_surface, has_view;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC sampling;
    CUDA_RESOURCE_VIEW_DESC view;
    uint64_t array_id; /* that it shows; 0: memory */
    uint32_t level;
};

static struct flyt_table table = FLYT_TABLE_INIT(FLYT_ID_TEXTURE, struct flyt_texture, 1);

FLYT_ANSWER_CALL(texture_create)

/* The object of a handle on the current context's device. */
static CUresult find_texture(uint64_t handle, bool is_surface, struct flyt_texture **ret_texture)
{
    uint64_t context_id;
    uint32_t slot = 0;
    int device;
    struct flyt_texture *texture;
    CUresult result = flyt_context_get(&context_id, &device);
    if (result)
        return result;
    while ((texture = flyt_table_next(&table, &slot)))
        if (texture->handle == handle && texture->is_surface == is_surface && texture->device == device)
            break;
    *ret_texture = texture;
    return texture ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- making ---- */

/* Blocks of texels are none of surfaces. */
static bool can_be_surface(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    const struct flyt_array_format *format = flyt_array_format_find(desc->Format);
    return desc->Flags & (CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_VIDEO_ENCODE_DECODE) && format && format->side == 1;
}

/* Which array it shows, where it shows one. */
static CUresult take_array(struct flyt_texture *texture)
{
    const CUDA_RESOURCE_DESC *resource = &texture->resource;
    struct flyt_array_view view;
    bool is_mipmap = resource->resType == CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    texture->array_id = 0;
    texture->level = 0;
    if (resource->flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (resource->resType == CU_RESOURCE_TYPE_LINEAR || resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        return texture->is_surface ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
    if (!is_mipmap && resource->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    if (texture->is_surface && is_mipmap)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_array_view(is_mipmap ? (uint64_t)(uintptr_t)resource->res.mipmap.hMipmappedArray
                                                : (uint64_t)(uintptr_t)resource->res.array.hArray,
                                      is_mipmap, &view);
    if (!result && (view.device != texture->device || (texture->is_surface && !can_be_surface(&view.desc))))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    texture->array_id = view.array_id;
    texture->level = view.level;
    return CUDA_SUCCESS;
}

static flyt_texture_memory memory_of(const CUDA_RESOURCE_DESC *resource)
{
    const __typeof__(resource->res.linear) *linear = &resource->res.linear;
    const __typeof__(resource->res.pitch2D) *plane = &resource->res.pitch2D;
    if (resource->resType == CU_RESOURCE_TYPE_LINEAR)
        return (flyt_texture_memory){.address = linear->devPtr,
                                     .bytes = linear->sizeInBytes,
                                     .format = (unsigned)linear->format,
                                     .channels = linear->numChannels};
    if (resource->resType == CU_RESOURCE_TYPE_PITCH2D)
        return (flyt_texture_memory){.address = plane->devPtr,
                                     .width = plane->width,
                                     .height = plane->height,
                                     .pitch_bytes = plane->pitchInBytes,
                                     .format = (unsigned)plane->format,
                                     .channels = plane->numChannels};
    return (flyt_texture_memory){0};
}

static flyt_texture_sampling sampling_of(const CUDA_TEXTURE_DESC *desc)
{
    flyt_texture_sampling sampling = {.filter = (unsigned)desc->filterMode,
                                      .flags = desc->flags,
                                      .anisotropy = desc->maxAnisotropy,
                                      .level_filter = (unsigned)desc->mipmapFilterMode,
                                      .level_bias = desc->mipmapLevelBias,
                                      .level_min = desc->minMipmapLevelClamp,
                                      .level_max = desc->maxMipmapLevelClamp};
    for (unsigned i = 0; i < 3; i++)
        sampling.address_modes[i] = (unsigned)desc->addressMode[i];
    memcpy(sampling.border, desc->borderColor, sizeof sampling.border);
    return sampling;
}

static flyt_texture_view view_of(const CUDA_RESOURCE_VIEW_DESC *desc)
{
    return (flyt_texture_view){.width = desc->width,
                               .height = desc->height,
                               .depth = desc->depth,
                               .format = (unsigned)desc->format,
                               .first_level = desc->firstMipmapLevel,
                               .last_level = desc->lastMipmapLevel,
                               .first_layer = desc->firstLayer,
                               .last_layer = desc->lastLayer};
}

static flyt_texture_create_args args_of(const struct flyt_texture *texture, uint32_t thread, uint64_t wanted)
{
    return (flyt_texture_create_args){.thread = thread,
                                      .texture_id = texture->record.minted_id,
                                      .device = (unsigned)texture->device,
                                      .is_surface = texture->is_surface,
                                      .array_id = texture->array_id,
                                      .level = texture->level,
                                      .memory = memory_of(&texture->resource),
                                      .sampling = sampling_of(&texture->sampling),
                                      .has_view = texture->has_view,
                                      .view = view_of(&texture->view),
                                      .wanted = wanted};
}

static CUresult make(struct flyt_texture *texture, unsigned long long *ret_handle)
{
    flyt_texture_create_args args = args_of(texture, flyt_thread_number(), 0);
    flyt_texture_create_res res = {0};
    int status = call_texture_create(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "texture_create");
    if (result) {
        flyt_table_free(&table, &texture->record);
    } else {
        texture->handle = *ret_handle = res.handle;
        texture->record.created = 1; /* before any call that comes: the answer is there */
        flyt_table_publish(&texture->record);
    }
    flyt_answer_end();
    return result;
}

static CUresult create(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *sampling,
                       const CUDA_RESOURCE_VIEW_DESC *view, unsigned long long *ret_handle)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result && (!resource || !ret_handle))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    struct flyt_texture *texture = flyt_table_new(&table);
    if (!texture)
        return CUDA_ERROR_OUT_OF_MEMORY;
    texture->context_id = context_id;
    texture->device = device;
    texture->is_surface = !sampling;
    texture->has_view = view != NULL;
    texture->resource = *resource;
    texture->sampling = sampling ? *sampling : (CUDA_TEXTURE_DESC){0};
    texture->view = view ? *view : (CUDA_RESOURCE_VIEW_DESC){0};
    result = take_array(texture);
    if (!result)
        return make(texture, ret_handle);
    flyt_table_free(&table, &texture->record);
    return result;
}

CUresult flyt_texture_create(const CUDA_RESOURCE_DESC *resource, const CUDA_TEXTURE_DESC *sampling,
                             const CUDA_RESOURCE_VIEW_DESC *view, CUtexObject *ret_handle)
{
    return sampling ? create(resource, sampling, view, ret_handle) : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_surface_create(const CUDA_RESOURCE_DESC *resource, CUsurfObject *ret_handle)
{
    return create(resource, NULL, NULL, ret_handle);
}

/* ---- their end ---- */

static bool destroy(struct flyt_texture *texture, bool is_on_server)
{
    flyt_texture_destroy_args args = {.thread = flyt_thread_number(), .texture_id = texture->record.minted_id};
    if (!flyt_table_take(&table, texture->record.minted_id))
        return false;
    if (is_on_server && flyt_client_is_usable())
        flyt_send_texture_destroy(flyt_client.channel, &args, &texture->record.destroyed); /* a loss shows later */
    else
        texture->record.destroyed = 1;
    flyt_table_free(&table, &texture->record);
    return true;
}

CUresult flyt_texture_destroy(unsigned long long handle, bool is_surface)
{
    struct flyt_texture *texture;
    CUresult result = flyt_client_enter_release();
    /* Of what is none, the driver says nothing. */
    if (!result && !find_texture(handle, is_surface, &texture))
        destroy(texture, true);
    return result;
}

void flyt_texture_clear(uint64_t context_id, bool is_on_server)
{
    uint32_t slot = 0;
    struct flyt_texture *texture;
    while ((texture = flyt_table_next(&table, &slot)))
        if (texture->context_id == context_id)
            destroy(texture, is_on_server);
}

/* ---- questions ---- */

/* Enters, and finds what is asked about; `place` is where the answer goes. */
static CUresult ask(unsigned long long handle, bool is_surface, const void *place, struct flyt_texture **ret_texture)
{
    CUresult result = flyt_client_enter();
    if (!result && !place)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : find_texture(handle, is_surface, ret_texture);
}

CUresult flyt_texture_get_resource(unsigned long long handle, bool is_surface, CUDA_RESOURCE_DESC *ret_resource)
{
    struct flyt_texture *texture;
    CUresult result = ask(handle, is_surface, ret_resource, &texture);
    if (!result)
        *ret_resource = texture->resource;
    return result;
}

CUresult flyt_texture_get_sampling(CUtexObject handle, CUDA_TEXTURE_DESC *ret_sampling)
{
    struct flyt_texture *texture;
    CUresult result = ask(handle, false, ret_sampling, &texture);
    if (!result)
        *ret_sampling = texture->sampling;
    return result;
}

CUresult flyt_texture_get_view(CUtexObject handle, CUDA_RESOURCE_VIEW_DESC *ret_view)
{
    struct flyt_texture *texture;
    CUresult result = ask(handle, false, ret_view, &texture);
    if (!result && !texture->has_view)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_view = texture->view;
    return result;
}

/* ---- at another server ---- */

static int compare_handles(const void *left, const void *right)
{
    uint64_t a = (*(struct flyt_texture *const *)left)->handle, b = (*(struct flyt_texture *const *)right)->handle;
    return a < b ? -1 : a > b;
}

static int restore_one(struct flyt_restore *restore, const struct flyt_texture *texture)
{
    flyt_texture_create_args args = args_of(texture, FLYT_RESTORE_THREAD, texture->handle);
    flyt_texture_create_res res = {0};
    int called = flyt_call_texture_create(restore->fresh, &args, &res);
    if (!called && !res.result && res.handle != texture->handle)
        return flyt_error_set(restore->err, -EIO, "%s object %#llx has another handle there",
                              texture->is_surface ? "surface" : "texture", (unsigned long long)texture->handle);
    return flyt_restore_answered(restore, called, res.result, "%s object %#llx with its handle",
                                 texture->is_surface ? "surface" : "texture", (unsigned long long)texture->handle);
}

/* The lowest handle first, of textures and surfaces together: what drivers give lies close together, from the lowest
 * free one on, and the server fills what is between (cpu/server/cuda/texture.h). */
int flyt_texture_restore(struct flyt_restore *restore)
{
    size_t count = 0;
    uint32_t slot = 0;
    int status = 0;
    while (flyt_table_next_at(&table, restore->sequence, &slot))
        count++;
    struct flyt_texture **all = count ? calloc(count, sizeof *all) : NULL;
    if (count && !all)
        return flyt_error_set(restore->err, -ENOMEM, "out of host memory");
    slot = 0;
    for (size_t i = 0; i < count; i++)
        all[i] = flyt_table_next_at(&table, restore->sequence, &slot);
    if (count)
        qsort(all, count, sizeof *all, compare_handles);
    for (size_t i = 0; i < count && !status; i++)
        status = restore_one(restore, all[i]);
    free(all);
    return status;
}
