#include "cpu/client/cuda/array.h"

#include <stdbool.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/device.h"
#include "rpc/api/array_box.h"
#include "rpc/api/array_format.h"

struct flyt_array {
    struct flyt_record record;
    uint64_t context_id;
    int device;
    CUDA_ARRAY3D_DESCRIPTOR desc;
    unsigned level_count; /* of a mipmapped array; 0: it is none */
    unsigned plane_count; /* of a planar one; 0: it is none */
    /* Of a level of a mipmapped array, or a plane, which the server does not know as an array of its own: */
    uint64_t parent_id; /* 0: it is none */
    unsigned level;
    bool is_plane;
    _Atomic uint64_t level_ids[FLYT_ARRAY_LEVELS_MAX]; /* of its levels or planes, as they are asked for */
};

static struct flyt_table table = FLYT_TABLE_INIT(FLYT_ID_ARRAY, struct flyt_array, 1);

FLYT_ANSWER_CALL(array_create)

static struct flyt_array *find_array(CUarray handle)
{
    struct flyt_array *array = flyt_table_find(&table, (uint64_t)(uintptr_t)handle);
    return array && !array->level_count ? array : NULL;
}

static struct flyt_array *find_mipmap(CUmipmappedArray handle)
{
    struct flyt_array *mipmap = flyt_table_find(&table, (uint64_t)(uintptr_t)handle);
    return mipmap && mipmap->level_count ? mipmap : NULL;
}

static bool has_layers(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    return desc->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

/* ---- making ---- */

/* Of video: rows and columns in pairs, and one level. */
static bool is_video_shape(const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    bool is_flat = desc->Flags & CUDA_ARRAY3D_LAYERED ? desc->Depth : !desc->Depth;
    return desc->Flags & CUDA_ARRAY3D_VIDEO_ENCODE_DECODE && !(desc->Flags & CUDA_ARRAY3D_CUBEMAP) && is_flat &&
           desc->Height && !(desc->Width % 2) && !(desc->Height % 2);
}

static CUresult check_format(const CUDA_ARRAY3D_DESCRIPTOR *desc, bool is_mipmap)
{
    const struct flyt_array_format *format = flyt_array_format_find((uint32_t)desc->Format);
    if (!format || !flyt_array_format_has(format, desc->NumChannels))
        return CUDA_ERROR_INVALID_VALUE;
    if (format->reading != FLYT_ARRAY_VIDEO)
        return CUDA_SUCCESS;
    if (!is_video_shape(desc))
        return CUDA_ERROR_INVALID_VALUE;
    return is_mipmap ? flyt_not_supported("a mipmapped array in a format of video") : CUDA_SUCCESS;
}

/* The attributes that bound a shape: of width, height and depth or layers; 0: no bound. */
struct bounds {
    CUdevice_attribute width, height, depth;
};

static struct bounds bounds_of(const CUDA_ARRAY3D_DESCRIPTOR *desc, bool is_mipmap)
{
    bool is_layered = desc->Flags & CUDA_ARRAY3D_LAYERED;
    if (desc->Flags & CUDA_ARRAY3D_CUBEMAP)
        return is_layered ? (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                                            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
                                            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS}
                          : (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH,
                                            CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURECUBEMAP_WIDTH, 0};
    if (is_layered && !desc->Height)
        return (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_WIDTH, 0,
                               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_LAYERED_LAYERS};
    if (is_layered)
        return (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
                               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
                               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_LAYERED_LAYERS};
    if (desc->Depth) /* the alternate extents are for the driver to judge */
        return (struct bounds){0, 0, 0};
    if (desc->Height && desc->Flags & CUDA_ARRAY3D_TEXTURE_GATHER)
        return (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_WIDTH,
                               CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_GATHER_HEIGHT, 0};
    if (desc->Height)
        return is_mipmap ? (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH,
                                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT, 0}
                         : (struct bounds){CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH,
                                           CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 0};
    return (struct bounds){is_mipmap ? CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH
                                     : CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH,
                           0, 0};
}

static bool is_within(int device, CUdevice_attribute attribute, size_t extent)
{
    int most = 0;
    return !attribute || (!flyt_device_attribute(device, attribute, &most) && extent <= (size_t)most);
}

static CUresult check(const CUDA_ARRAY3D_DESCRIPTOR *desc, int device, bool is_mipmap)
{
    const unsigned known = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP |
                           CUDA_ARRAY3D_TEXTURE_GATHER | CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING |
                           CUDA_ARRAY3D_VIDEO_ENCODE_DECODE;
    const struct bounds bounds = bounds_of(desc, is_mipmap);
    CUresult result = check_format(desc, is_mipmap);
    if (result)
        return result;
    if (desc->Flags & ~known || !desc->Width || (has_layers(desc) && !desc->Depth) ||
        (!has_layers(desc) && desc->Depth && !desc->Height) || !is_within(device, bounds.width, desc->Width) ||
        !is_within(device, bounds.height, desc->Height) || !is_within(device, bounds.depth, desc->Depth))
        return CUDA_ERROR_INVALID_VALUE;
    if (desc->Flags & CUDA_ARRAY3D_SPARSE)
        return flyt_not_supported("a sparse CUDA array");
    return desc->Flags & CUDA_ARRAY3D_DEFERRED_MAPPING ? flyt_not_supported("a CUDA array whose mapping is deferred")
                                                       : CUDA_SUCCESS;
}

static flyt_array_create_args args_of(const struct flyt_array *array, uint32_t thread)
{
    const CUDA_ARRAY3D_DESCRIPTOR *desc = &array->desc;
    return (flyt_array_create_args){.thread = thread,
                                    .array_id = array->record.minted_id,
                                    .device = (unsigned)array->device,
                                    .shape = {.width = desc->Width,
                                              .height = desc->Height,
                                              .depth = desc->Depth,
                                              .format = (unsigned)desc->Format,
                                              .channels = desc->NumChannels,
                                              .flags = desc->Flags,
                                              .levels = array->level_count}};
}

static CUresult make(struct flyt_array *array)
{
    flyt_array_create_args args = args_of(array, flyt_thread_number());
    flyt_array_create_res res = {0};
    int status = call_array_create(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "array_create");
    if (result) {
        flyt_table_free(&table, &array->record);
    } else {
        array->record.created = 1; /* before any call that comes: the answer is there */
        flyt_table_publish(&array->record);
    }
    flyt_answer_end();
    return result;
}

/* A record that is not published, of the current context; level_count 0: of an array. */
static CUresult new_array(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level_count, struct flyt_array **ret_array)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = desc ? check(desc, device, level_count) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    struct flyt_array *array = flyt_table_new(&table);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->context_id = context_id;
    array->device = device;
    array->desc = *desc;
    array->level_count = level_count;
    array->plane_count = flyt_array_plane_count(flyt_array_format_find((uint32_t)desc->Format));
    array->parent_id = 0;
    array->level = 0;
    array->is_plane = false;
    for (unsigned i = 0; i < FLYT_ARRAY_LEVELS_MAX; i++)
        atomic_store(&array->level_ids[i], 0);
    *ret_array = array;
    return CUDA_SUCCESS;
}

CUresult flyt_array_create(const CUDA_ARRAY3D_DESCRIPTOR *desc, CUarray *ret_array)
{
    struct flyt_array *array;
    CUresult result = new_array(desc, 0, &array);
    if (result)
        return result;
    CUarray handle = (CUarray)(uintptr_t)array->record.minted_id;
    result = make(array);
    if (!result)
        *ret_array = handle;
    return result;
}

/* As documented: from 1 to one more than the times that the longest side halves. */
static unsigned clamp_levels(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned asked)
{
    size_t longest = desc->Width > desc->Height ? desc->Width : desc->Height;
    unsigned most = 1;
    if (!has_layers(desc) && desc->Depth > longest)
        longest = desc->Depth;
    for (; longest > 1; longest >>= 1)
        most++;
    most = most < FLYT_ARRAY_LEVELS_MAX ? most : FLYT_ARRAY_LEVELS_MAX;
    return asked < 1 ? 1 : asked < most ? asked : most;
}

CUresult flyt_mipmap_create(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level_count, CUmipmappedArray *ret_mipmap)
{
    struct flyt_array *mipmap;
    CUresult result = new_array(desc, desc ? clamp_levels(desc, level_count) : 1, &mipmap);
    if (result)
        return result;
    CUmipmappedArray handle = (CUmipmappedArray)(uintptr_t)mipmap->record.minted_id;
    result = make(mipmap);
    if (!result)
        *ret_mipmap = handle;
    return result;
}

/* ---- their end ---- */

static void forget_levels(struct flyt_array *mipmap)
{
    for (unsigned i = 0; i < mipmap->level_count || i < mipmap->plane_count; i++) {
        struct flyt_array *level = flyt_table_take(&table, atomic_exchange(&mipmap->level_ids[i], 0));
        if (level)
            flyt_table_free(&table, &level->record);
    }
}

static bool destroy(struct flyt_array *array, bool is_on_server)
{
    flyt_array_destroy_args args = {.thread = flyt_thread_number(), .array_id = array->record.minted_id};
    if (!flyt_table_take(&table, array->record.minted_id))
        return false;
    forget_levels(array);
    if (is_on_server && flyt_client_is_usable())
        flyt_send_array_destroy(flyt_client.channel, &args, &array->record.destroyed); /* a loss shows later */
    else
        array->record.destroyed = 1;
    flyt_table_free(&table, &array->record);
    return true;
}

CUresult flyt_array_destroy(CUarray handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    struct flyt_array *array = find_array(handle);
    if (array && array->parent_id)
        return array->is_plane ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    return array && destroy(array, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult flyt_mipmap_destroy(CUmipmappedArray handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    struct flyt_array *mipmap = find_mipmap(handle);
    return mipmap && destroy(mipmap, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult flyt_array_destroy_any(CUarray array)
{
    return array ? flyt_array_destroy(array) : flyt_client_enter_release();
}

CUresult flyt_mipmap_destroy_any(CUmipmappedArray mipmap)
{
    return mipmap ? flyt_mipmap_destroy(mipmap) : flyt_client_enter_release();
}

void flyt_array_clear(uint64_t context_id, bool is_on_server)
{
    uint32_t slot = 0;
    struct flyt_array *array;
    while ((array = flyt_table_next(&table, &slot)))
        if (array->context_id == context_id && !array->parent_id)
            destroy(array, is_on_server);
}

/* ---- levels and descriptions ---- */

static CUDA_ARRAY3D_DESCRIPTOR describe_level(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned level)
{
    CUDA_ARRAY3D_DESCRIPTOR out = *desc;
    out.Width = flyt_array_level_extent(desc->Width, level);
    if (desc->Height)
        out.Height = flyt_array_level_extent(desc->Height, level);
    if (desc->Depth && !has_layers(desc))
        out.Depth = flyt_array_level_extent(desc->Depth, level);
    return out;
}

static CUDA_ARRAY3D_DESCRIPTOR describe_plane(const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned plane)
{
    const struct flyt_array_plane_format of =
        flyt_array_plane_of(flyt_array_format_find((uint32_t)desc->Format), plane);
    CUDA_ARRAY3D_DESCRIPTOR out = *desc;
    out.Width = desc->Width >> of.halves_width;
    out.Height = desc->Height >> of.halves_height;
    out.Format = (CUarray_format)of.format;
    out.NumChannels = of.channels;
    return out;
}

static struct flyt_array *new_level(const struct flyt_array *parent, unsigned number)
{
    struct flyt_array *level = flyt_table_new(&table);
    if (!level)
        return NULL;
    level->context_id = parent->context_id;
    level->device = parent->device;
    level->is_plane = parent->plane_count;
    level->desc = level->is_plane ? describe_plane(&parent->desc, number) : describe_level(&parent->desc, number);
    level->level_count = 0;
    level->plane_count = 0;
    level->parent_id = parent->record.minted_id;
    level->level = number;
    return level;
}

/* A level or a plane, made when it is asked for the first time. */
static CUresult find_level(struct flyt_array *parent, unsigned number, CUarray *ret_array)
{
    uint64_t known = atomic_load(&parent->level_ids[number]);
    if (!known) {
        struct flyt_array *level = new_level(parent, number);
        if (!level)
            return CUDA_ERROR_OUT_OF_MEMORY;
        uint64_t id = level->record.minted_id;
        flyt_table_publish(&level->record);
        if (atomic_compare_exchange_strong(&parent->level_ids[number], &known, id))
            known = id;
        else if ((level = flyt_table_take(&table, id))) /* another thread was first */
            flyt_table_free(&table, &level->record);
    }
    *ret_array = (CUarray)(uintptr_t)known;
    return CUDA_SUCCESS;
}

CUresult flyt_mipmap_level(CUmipmappedArray handle, unsigned number, CUarray *ret_array)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_array *mipmap = find_mipmap(handle);
    if (!mipmap)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret_array || number >= mipmap->level_count)
        return CUDA_ERROR_INVALID_VALUE;
    return find_level(mipmap, number, ret_array);
}

CUresult flyt_array_plane(CUarray handle, unsigned plane, CUarray *ret_array)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_array *array = find_array(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    return ret_array && plane < array->plane_count ? find_level(array, plane, ret_array) : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_array_describe(CUarray handle, CUDA_ARRAY3D_DESCRIPTOR *ret_desc)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    const struct flyt_array *array = find_array(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret_desc)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_desc = array->desc;
    return CUDA_SUCCESS;
}

/* "Invalid value" of an object that there is. */
static CUresult refuse(const void *found)
{
    CUresult result = flyt_client_enter();
    return result ? result : found ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE;
}

CUresult flyt_array_requirements(CUarray array, int device)
{
    CUresult result = flyt_device_check(device);
    return result ? result : refuse(find_array(array));
}

CUresult flyt_mipmap_requirements(CUmipmappedArray mipmap, int device)
{
    CUresult result = flyt_device_check(device);
    return result ? result : refuse(find_mipmap(mipmap));
}

CUresult flyt_array_sparse(CUarray array)
{
    return refuse(find_array(array));
}

CUresult flyt_mipmap_sparse(CUmipmappedArray mipmap)
{
    return refuse(find_mipmap(mipmap));
}

CUresult flyt_array_view(uint64_t handle, bool is_mipmap, struct flyt_array_view *ret_view)
{
    const struct flyt_array *array = flyt_table_find(&table, handle);
    if (!array || !array->level_count == is_mipmap)
        return handle ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    if (array->plane_count) /* each plane is shown by itself */
        return CUDA_ERROR_INVALID_VALUE;
    *ret_view = (struct flyt_array_view){.array_id = array->parent_id ? array->parent_id : array->record.minted_id,
                                         .level = is_mipmap ? FLYT_TEXTURE_LEVELS : array->level,
                                         .device = array->device,
                                         .desc = array->desc,
                                         .level_count = is_mipmap ? array->level_count : 1};
    return CUDA_SUCCESS;
}

/* ---- copies ---- */

static struct flyt_array_element element_of(const struct flyt_array *array)
{
    const struct flyt_array_format *format = flyt_array_format_find((uint32_t)array->desc.Format);
    return (struct flyt_array_element){flyt_array_format_bytes(format, array->desc.NumChannels), format->side};
}

CUresult flyt_array_element(CUarray handle, struct flyt_array_element *ret_element)
{
    const struct flyt_array *array = find_array(handle);
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (array->plane_count)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_element = element_of(array);
    return CUDA_SUCCESS;
}

static bool fits(uint64_t at, uint64_t count, uint64_t extent)
{
    extent = extent ? extent : 1;
    return at <= extent && count <= extent - at;
}

CUresult flyt_array_copy_side(const struct flyt_array_at *at, uint64_t width_bytes, uint64_t height, uint64_t depth,
                              struct flyt_copy_side *ret_side)
{
    const struct flyt_array *array = find_array(at->array);
    struct flyt_array_element element;
    CUresult result = flyt_array_element(at->array, &element);
    if (result || !array)
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    const uint64_t row_bytes = flyt_array_elements(array->desc.Width, element.side) * element.bytes;
    if (!fits(at->x_bytes, width_bytes, row_bytes) ||
        !fits(at->y, height, flyt_array_elements(array->desc.Height, element.side)) ||
        !fits(at->z, depth, array->desc.Depth) || at->x_bytes % element.bytes || width_bytes % element.bytes)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_array_place place = {(uint32_t)at->x_bytes, (uint32_t)at->y, (uint32_t)at->z, array->level};
    *ret_side = (struct flyt_copy_side){.place = FLYT_PLACE_ARRAY,
                                        .address = array->parent_id ? array->parent_id : array->record.minted_id,
                                        .pitch_bytes = flyt_array_box_pitch(&place),
                                        .slice_bytes = flyt_array_box_slice(&place)};
    return CUDA_SUCCESS;
}

CUresult flyt_array_copy_at(const struct flyt_copy_side *side, struct flyt_array_at *ret_at)
{
    const struct flyt_array_place place = flyt_array_box_place(side->pitch_bytes, side->slice_bytes);
    const struct flyt_array *array = flyt_table_find(&table, side->address);
    if (!array)
        return CUDA_ERROR_INVALID_VALUE;
    const uint64_t id =
        array->level_count || array->plane_count ? atomic_load(&array->level_ids[place.level]) : side->address;
    *ret_at = (struct flyt_array_at){(CUarray)(uintptr_t)id, place.x_bytes, place.y, place.z};
    return CUDA_SUCCESS;
}

/* A box of the run: `bytes` of whole rows, or of part of one, `done` bytes behind the run's beginning. */
static CUresult copy_part(const struct flyt_array_at *at, const struct flyt_copy_side *side, uint64_t done,
                          uint64_t width_bytes, uint64_t height, bool to_array, CUstream stream, bool is_async)
{
    struct flyt_copy copy = {.width_bytes = width_bytes, .height = height, .depth = 1};
    struct flyt_copy_side linear = *side, *array = to_array ? &copy.dst : &copy.src;
    linear.address += done;
    linear.pitch_bytes = width_bytes;
    linear.slice_bytes = width_bytes * height;
    *(to_array ? &copy.src : &copy.dst) = linear;
    CUresult result = flyt_array_copy_side(at, width_bytes, height, 1, array);
    return result ? result : flyt_copy(&copy, stream, is_async);
}

CUresult flyt_array_copy_run(const struct flyt_array_at *given, const struct flyt_copy_side *side, uint64_t bytes,
                             bool to_array, CUstream stream, bool is_async)
{
    struct flyt_array_at at = *given;
    CUresult result = flyt_client_enter();
    if (result || !bytes)
        return result;
    const struct flyt_array *array = find_array(at.array);
    struct flyt_array_element element;
    result = flyt_array_element(at.array, &element);
    if (result || !array)
        return result ? result : CUDA_ERROR_INVALID_HANDLE;
    const uint64_t row_bytes = flyt_array_elements(array->desc.Width, element.side) * element.bytes;
    const uint64_t height = array->desc.Height ? flyt_array_elements(array->desc.Height, element.side) : 1;
    if (at.x_bytes > row_bytes || at.y >= height || bytes > (height - at.y) * row_bytes - at.x_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t done = 0, width, rows; done < bytes && !result; done += width * rows) {
        const uint64_t left = bytes - done;
        width = at.x_bytes || left < row_bytes ? row_bytes - at.x_bytes : row_bytes;
        width = width < left ? width : left;
        rows = width == row_bytes ? left / row_bytes : 1;
        result = copy_part(&at, side, done, width, rows, to_array, stream, is_async);
        at.y += rows;
        at.x_bytes = 0;
    }
    return result;
}

/* ---- at another server ---- */

int flyt_array_restore(struct flyt_restore *restore)
{
    uint32_t slot = 0;
    struct flyt_array *array;
    int status = 0;
    while (!status && (array = flyt_table_next_at(&table, restore->sequence, &slot))) {
        flyt_array_create_args args = args_of(array, FLYT_RESTORE_THREAD);
        flyt_array_create_res res = {0};
        int called = flyt_call_array_create(restore->fresh, &args, &res);
        status = flyt_restore_answered(restore, called, res.result, "CUDA array %#llx",
                                       (unsigned long long)array->record.minted_id);
    }
    return status;
}
