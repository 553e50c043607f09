#include "cpu/server/cuda/array.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/digest.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/scrub.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/cuda/reserve.h"
#include "flyt_serve.h"

enum {
    EXTENT_MAX = 1 << 18, /* beyond what any GPU has: products of three stay numbers */
    BLOCK_BYTES = 64,     /* of a row, and rows, that GPUs lay out together */
    BLOCK_ROWS = 8,
    PAGE_BYTES = 64 << 10,
    FLAGS = CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_SURFACE_LDST | CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_TEXTURE_GATHER |
            CUDA_ARRAY3D_VIDEO_ENCODE_DECODE,
    FLAGS_LACKING = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING,
};

static uint64_t round_up(uint64_t bytes, uint64_t step)
{
    return (bytes + step - 1) / step * step;
}

/* ---- shapes ---- */

static bool has_layers(const flyt_array_shape *shape)
{
    return shape->flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
}

/* How many there are, which are charged, copied and moved one by one. The format is one that arrays have. */
static unsigned levels_of(const flyt_array_shape *shape)
{
    const unsigned planes = flyt_array_plane_count(flyt_array_format_find(shape->format));
    return planes ? planes : shape->levels ? shape->levels : 1;
}

static struct flyt_array_extents plane_of(const flyt_array_shape *shape, const struct flyt_array_format *format,
                                          unsigned plane)
{
    const struct flyt_array_plane_format of = flyt_array_plane_of(format, plane);
    return (struct flyt_array_extents){flyt_array_level_extent(shape->width, of.halves_width),
                                       flyt_array_level_extent(shape->height, of.halves_height),
                                       flyt_array_level_extent(shape->depth, 0),
                                       flyt_array_format_bytes(flyt_array_format_find(of.format), of.channels)};
}

static struct flyt_array_extents extents_of(const flyt_array_shape *shape, unsigned level)
{
    const struct flyt_array_format *format = flyt_array_format_find(shape->format);
    if (flyt_array_plane_count(format))
        return plane_of(shape, format, level);
    return (struct flyt_array_extents){flyt_array_elements(flyt_array_level_extent(shape->width, level), format->side),
                                       flyt_array_elements(flyt_array_level_extent(shape->height, level), format->side),
                                       has_layers(shape) ? shape->depth : flyt_array_level_extent(shape->depth, level),
                                       flyt_array_format_bytes(format, shape->channels)};
}

struct flyt_array_extents flyt_array_extents(const struct flyt_array *array, unsigned level)
{
    return extents_of(&array->shape, level);
}

/* The driver looks more closely. */
static CUresult check(const flyt_array_shape *shape)
{
    const struct flyt_array_format *format = flyt_array_format_find(shape->format);
    if (shape->flags & FLAGS_LACKING)
        return CUDA_ERROR_NOT_SUPPORTED;
    bool is_valid = format && flyt_array_format_has(format, shape->channels) && !(shape->flags & ~(uint32_t)FLAGS) &&
                    shape->width && shape->width <= EXTENT_MAX && shape->height <= EXTENT_MAX &&
                    shape->depth <= EXTENT_MAX && (!has_layers(shape) || shape->depth) &&
                    shape->levels <= (flyt_array_plane_count(format) ? 0 : FLYT_ARRAY_LEVELS_MAX);
    return is_valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* In blocks of a GPU's memory, each level in its own. */
static uint64_t bytes_of(const flyt_array_shape *shape)
{
    uint64_t bytes = 0;
    for (unsigned level = 0; level < levels_of(shape); level++) {
        struct flyt_array_extents extents = extents_of(shape, level);
        uint64_t rows = extents.height > 1 ? round_up(extents.height, BLOCK_ROWS) : 1;
        bytes += round_up(extents.width * extents.element_bytes, BLOCK_BYTES) * rows * extents.depth;
    }
    return round_up(bytes, PAGE_BYTES);
}

/* ---- making ---- */

static CUresult enter_primary(struct flyt_device *device)
{
    device->session->current_device = NULL; /* the green context is to be made current again */
    return device->session->driver->cuCtxSetCurrent(device->cu_primary);
}

static CUresult make_levels(struct flyt_array *array)
{
    const struct flyt_driver *driver = array->device->session->driver;
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < array->level_count && result == CUDA_SUCCESS; i++)
        result = driver->cuMipmappedArrayGetLevel(&array->cu_levels[i], array->cu_mipmap, i);
    if (result != CUDA_SUCCESS) {
        driver->cuMipmappedArrayDestroy(array->cu_mipmap);
        array->cu_mipmap = NULL;
    }
    return result;
}

/* One array of the driver's, or one with planes, which are its. */
static CUresult make_one(struct flyt_array *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
    const struct flyt_driver *driver = array->device->session->driver;
    if (!flyt_array_plane_count(flyt_array_format_find(array->shape.format)))
        return driver->cuArray3DCreate(&array->cu_levels[0], desc);
    CUresult result = driver->cuArray3DCreate(&array->cu_planar, desc);
    if (result != CUDA_SUCCESS)
        return result;
    for (unsigned i = 0; i < array->level_count && result == CUDA_SUCCESS; i++)
        result = driver->cuArrayGetPlane(&array->cu_levels[i], array->cu_planar, i);
    if (result != CUDA_SUCCESS)
        driver->cuArrayDestroy(array->cu_planar);
    return result;
}

static CUresult make(struct flyt_array *array)
{
    const struct flyt_driver *driver = array->device->session->driver;
    const flyt_array_shape *shape = &array->shape;
    const CUDA_ARRAY3D_DESCRIPTOR desc = {.Width = shape->width,
                                          .Height = shape->height,
                                          .Depth = shape->depth,
                                          .Format = (CUarray_format)shape->format,
                                          .NumChannels = shape->channels,
                                          .Flags = shape->flags};
    CUresult result = enter_primary(array->device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!shape->levels)
        return make_one(array, &desc);
    result = driver->cuMipmappedArrayCreate(&array->cu_mipmap, &desc, shape->levels);
    return result == CUDA_SUCCESS ? make_levels(array) : result;
}

/* The primary context is current, or the thread's own. */
static CUresult unmake(struct flyt_array *array)
{
    const struct flyt_driver *driver = array->device->session->driver;
    return array->cu_mipmap ? driver->cuMipmappedArrayDestroy(array->cu_mipmap)
                            : driver->cuArrayDestroy(array->cu_planar ? array->cu_planar : array->cu_levels[0]);
}

/* ---- clearing ---- */

/* One level at a time is cleared from page-locked zeros: no call of the driver's sets an array. */
struct clear {
    struct flyt_array *array;
    void *zeros;
};

_Static_assert(FLYT_ARRAY_ZERO_BYTES >= 16 * EXTENT_MAX / 2, "a row of the widest array of today's GPUs fits");

static CUresult clear_slice(const struct clear *self, CUarray cu_array, const struct flyt_array_extents *extents,
                            uint64_t z, struct flyt_stream *target)
{
    const uint64_t width_bytes = extents->width * extents->element_bytes;
    const uint64_t rows_most = FLYT_ARRAY_ZERO_BYTES / width_bytes;
    CUresult result = rows_most ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (uint64_t y = 0; y < extents->height && result == CUDA_SUCCESS; y += rows_most) {
        const CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                    .srcHost = self->zeros,
                                    .srcPitch = width_bytes,
                                    .dstMemoryType = CU_MEMORYTYPE_ARRAY,
                                    .dstArray = cu_array,
                                    .dstY = y,
                                    .dstZ = z,
                                    .WidthInBytes = width_bytes,
                                    .Height = extents->height - y < rows_most ? extents->height - y : rows_most,
                                    .Depth = 1};
        result = target->device->session->driver->cuMemcpy3DAsync(&copy, target->cu_stream);
    }
    return result;
}

static CUresult clear_all(void *user, struct flyt_stream *target)
{
    const struct clear *self = user;
    CUresult result = CUDA_SUCCESS;
    for (unsigned level = 0; level < self->array->level_count; level++) {
        const struct flyt_array_extents extents = flyt_array_extents(self->array, level);
        for (uint64_t z = 0; z < extents.depth && result == CUDA_SUCCESS; z++)
            result = clear_slice(self, self->array->cu_levels[level], &extents, z, target);
    }
    return result;
}

/* Page-locked zeros of the device, which stay. */
static CUresult take_zeros(struct flyt_device *device, void **ret_zeros)
{
    struct flyt_reserve *reserve = device->reserve;
    CUresult result = CUDA_SUCCESS;
    if (!reserve->zeros) {
        result =
            device->session->driver->cuMemHostAlloc(&reserve->zeros, FLYT_ARRAY_ZERO_BYTES, CU_MEMHOSTALLOC_PORTABLE);
        if (result == CUDA_SUCCESS)
            memset(reserve->zeros, 0, FLYT_ARRAY_ZERO_BYTES);
    }
    *ret_zeros = reserve->zeros;
    return result;
}

static CUresult clear(struct flyt_array *array)
{
    struct clear self = {.array = array};
    struct flyt_fence *cleared = NULL;
    if (!array->device->session->is_scrubbing)
        return CUDA_SUCCESS;
    CUresult result = take_zeros(array->device, &self.zeros);
    if (result == CUDA_SUCCESS)
        result = flyt_device_use(array->device);
    if (result == CUDA_SUCCESS)
        result = flyt_scrub_with(array->device, clear_all, &self, &cleared);
    flyt_fence_unref(cleared);
    return result;
}

/* ---- the calls ---- */

/* There is no memory now, but arrays that are still to go have some. */
static CUresult unless_leaving(const struct flyt_session *session, uint64_t sequence, CUresult result)
{
    return result == CUDA_ERROR_OUT_OF_MEMORY && flyt_array_is_leaving(session, sequence) ? CUDA_ERROR_NOT_READY
                                                                                          : result;
}

/* Charges, makes and clears it. CUDA_ERROR_NOT_READY: memory is still to be given back. */
static CUresult try_make(struct flyt_array *array, uint64_t sequence)
{
    struct flyt_session *session = array->device->session;
    if (session->is_scrubbing && !flyt_scrub_has_room(array->device))
        return CUDA_ERROR_NOT_READY;
    CUresult result = flyt_reserve_array(array->device, sequence, array->charged_bytes);
    if (result != CUDA_SUCCESS)
        return unless_leaving(session, sequence, result);
    result = make(array);
    bool is_made = result == CUDA_SUCCESS;
    if (is_made && session->resume.state == FLYT_RESUME_UNDER_WAY)
        result = session->observer->array_ahead(session, array);
    else if (is_made)
        result = clear(array);
    if (result == CUDA_SUCCESS)
        result = flyt_session_insert(session, &array->object, FLYT_ID_ARRAY);
    if (result == CUDA_SUCCESS) {
        session->observer->array_counted(session, true);
        return CUDA_SUCCESS;
    }
    if (is_made && enter_primary(array->device) == CUDA_SUCCESS)
        unmake(array);
    flyt_reserve_array_gone(array->device, array->charged_bytes);
    return unless_leaving(session, sequence, result);
}

static CUresult new_array(struct flyt_device *device, const flyt_array_create_args *args, struct flyt_array **ret_array)
{
    const flyt_array_shape *shape = &args->shape;
    if (flyt_objects_count(&device->session->objects, FLYT_OBJECTS_ARRAY) >= FLYT_ARRAYS_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_array *array = calloc(1, sizeof *array);
    if (!array)
        return CUDA_ERROR_OUT_OF_MEMORY;
    array->object.id = args->array_id;
    array->object.made =
        flyt_digest(shape->width, shape->format, (int64_t)(shape->flags | (uint64_t)shape->channels << 32),
                    flyt_digest(shape->height, shape->levels, (int64_t)device->ordinal, shape->depth));
    array->device = device;
    array->shape = *shape;
    array->level_count = levels_of(shape);
    array->charged_bytes = bytes_of(shape);
    *ret_array = array;
    return CUDA_SUCCESS;
}

struct create_job {
    struct flyt_job job;
    struct flyt_array *array; /* NULL: it is the session's */
};

static CUresult create_advance(struct flyt_job *job)
{
    struct create_job *self = (struct create_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    CUresult result = flyt_device_use(self->array->device);
    if (result == CUDA_SUCCESS)
        result = try_make(self->array, job->sequence);
    job->needs_poll = true;
    if (result == CUDA_SUCCESS)
        self->array = NULL;
    return result;
}

static void create_free(struct flyt_job *job)
{
    free(((struct create_job *)job)->array);
    free(job);
}

static const struct flyt_job_ops create_ops = {create_advance, flyt_job_reply, create_free};

CUresult flyt_serve_array_create(struct flyt_call *call, const flyt_array_create_args *args, flyt_array_create_res *res)
{
    struct flyt_device *device;
    struct flyt_array *array;
    CUresult result = check(&args->shape);
    if (result == CUDA_SUCCESS)
        result = flyt_session_use_device(call->session, args->device, &device);
    if (result == CUDA_SUCCESS)
        result = new_array(device, args, &array);
    if (result != CUDA_SUCCESS)
        return result;
    result = try_make(array, call->sequence);
    if (result == CUDA_SUCCESS)
        return CUDA_SUCCESS;
    struct create_job *self = result == CUDA_ERROR_NOT_READY ? calloc(1, sizeof *self) : NULL;
    if (!self) {
        free(array);
        return result == CUDA_ERROR_NOT_READY ? CUDA_ERROR_OUT_OF_MEMORY : result;
    }
    self->array = array;
    flyt_job_start(&self->job, &create_ops, call, NULL);
    return FLYT_CALL_STARTED;
}

/* ---- their end ---- */

struct destroy_job {
    struct flyt_job job;
    struct flyt_array *array;
    bool is_done;
};

/* On the worker's thread: the driver may wait for all that runs by then. */
static CUresult destroy(struct flyt_job *job)
{
    struct destroy_job *self = (struct destroy_job *)job;
    self->is_done = true;
    CUresult result = job->session->driver->cuCtxSetCurrent(self->array->device->cu_primary);
    return result == CUDA_SUCCESS ? unmake(self->array) : result;
}

static CUresult destroy_advance(struct flyt_job *job)
{
    return ((struct destroy_job *)job)->is_done ? CUDA_SUCCESS : flyt_job_run(job, destroy);
}

static void destroy_free(struct flyt_job *job)
{
    struct flyt_array *array = ((struct destroy_job *)job)->array;
    flyt_reserve_array_gone(array->device, array->charged_bytes);
    free(array);
    free(job);
}

static const struct flyt_job_ops destroy_ops = {destroy_advance, NULL, destroy_free};

bool flyt_array_is_leaving(const struct flyt_session *session, uint64_t before_sequence)
{
    for (const struct flyt_job *job = session->jobs.first; job; job = job->next)
        if (job->ops == &destroy_ops && job->sequence < before_sequence)
            return true;
    return flyt_defer_has(session, FLYT_ARRAY_DESTROY, before_sequence);
}

CUresult flyt_serve_array_destroy(struct flyt_call *call, const flyt_array_destroy_args *args, struct flyt_array *array)
{
    struct flyt_session *session = call->session;
    CUresult result;
    struct destroy_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    flyt_object_remove(&session->objects, &array->object);
    session->observer->array_counted(session, false);
    self->array = array;
    return flyt_job_begin(&self->job, &destroy_ops, call);
}

void flyt_array_drop(struct flyt_array *array, const struct flyt_device *device)
{
    struct flyt_session *session = array->device->session;
    if (device && array->device != device)
        return;
    flyt_object_remove(&session->objects, &array->object);
    if (device) {
        session->observer->array_counted(session, false);
        if (enter_primary(array->device) == CUDA_SUCCESS)
            unmake(array);
        flyt_reserve_array_gone(array->device, array->charged_bytes);
    }
    free(array);
}

/* ---- boxes ---- */

CUresult flyt_array_box_check(struct flyt_session *session, const flyt_box *box, uint64_t *ret_bytes,
                              struct flyt_device **ret_device)
{
    const struct flyt_array *array = flyt_session_find_array(session, box->address);
    const struct flyt_array_place place = flyt_array_box_place(box->pitch_bytes, box->slice_bytes);
    *ret_bytes = 0;
    if (!array)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!box->width_bytes || !box->height || !box->depth)
        return CUDA_SUCCESS;
    if (place.level >= array->level_count)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_array_extents extents = flyt_array_extents(array, place.level);
    const uint64_t width_bytes = extents.width * extents.element_bytes;
    if (place.x_bytes > width_bytes || box->width_bytes > width_bytes - place.x_bytes || place.y > extents.height ||
        box->height > extents.height - place.y || place.z > extents.depth || box->depth > extents.depth - place.z ||
        place.x_bytes % extents.element_bytes || box->width_bytes % extents.element_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_bytes = box->width_bytes * box->height * box->depth;
    *ret_device = array->device;
    return CUDA_SUCCESS;
}

CUresult flyt_array_side(struct flyt_session *session, const flyt_box *box, struct flyt_array_side *ret_side)
{
    const struct flyt_array *array = flyt_session_find_array(session, box->address);
    const struct flyt_array_place place = flyt_array_box_place(box->pitch_bytes, box->slice_bytes);
    if (!array || place.level >= array->level_count)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_side = (struct flyt_array_side){array->cu_levels[place.level], place.x_bytes, place.y, place.z};
    return CUDA_SUCCESS;
}

CUresult flyt_array_sides(struct flyt_session *session, const flyt_box *dst, const flyt_box *src,
                          CUDA_MEMCPY3D *in_out_copy)
{
    struct flyt_array_side side;
    CUresult result = CUDA_SUCCESS;
    if (flyt_box_is_array(dst) && (result = flyt_array_side(session, dst, &side)) == CUDA_SUCCESS) {
        in_out_copy->dstMemoryType = CU_MEMORYTYPE_ARRAY;
        in_out_copy->dstArray = side.cu_array;
        in_out_copy->dstXInBytes = side.x_bytes;
        in_out_copy->dstY = side.y;
        in_out_copy->dstZ = side.z;
        in_out_copy->dstDevice = in_out_copy->dstPitch = in_out_copy->dstHeight = 0;
    }
    if (result == CUDA_SUCCESS && flyt_box_is_array(src) &&
        (result = flyt_array_side(session, src, &side)) == CUDA_SUCCESS) {
        in_out_copy->srcMemoryType = CU_MEMORYTYPE_ARRAY;
        in_out_copy->srcArray = side.cu_array;
        in_out_copy->srcXInBytes = side.x_bytes;
        in_out_copy->srcY = side.y;
        in_out_copy->srcZ = side.z;
        in_out_copy->srcDevice = in_out_copy->srcPitch = in_out_copy->srcHeight = 0;
    }
    return result;
}

/* ---- whole levels, packed ---- */

uint64_t flyt_array_level_bytes(const struct flyt_array *array, unsigned level)
{
    const struct flyt_array_extents extents = flyt_array_extents(array, level);
    return extents.width * extents.element_bytes * extents.height * extents.depth;
}

/* Part of a level, for the pieces of box.c. The array need not be in its table. */
struct part {
    const struct flyt_array *array;
    unsigned level;
    uint64_t offset_bytes, bytes;
    char *host;
    bool to_array;
};

static struct flyt_array_extents step_of(const struct part *self, const struct flyt_array_extents *extents,
                                         uint64_t row_bytes)
{
    const uint64_t column = self->offset_bytes % row_bytes, row = self->offset_bytes / row_bytes % extents->height;
    const uint64_t rows_left = extents->height - row, rows = self->bytes / row_bytes;
    if (column || !rows)
        return (struct flyt_array_extents){row_bytes - column < self->bytes ? row_bytes - column : self->bytes, 1, 1,
                                           1};
    return (struct flyt_array_extents){row_bytes, rows < rows_left ? rows : rows_left, 1, 1};
}

static CUresult copy_step(const struct part *self, const struct flyt_array_extents *extents,
                          const struct flyt_array_extents *step, struct flyt_stream *target)
{
    const uint64_t row_bytes = extents->width * extents->element_bytes, row = self->offset_bytes / row_bytes;
    CUDA_MEMCPY3D copy = {.WidthInBytes = step->width, .Height = step->height, .Depth = 1};
    if (self->to_array) {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = self->host;
        copy.srcPitch = step->width;
        copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.dstArray = self->array->cu_levels[self->level];
        copy.dstXInBytes = self->offset_bytes % row_bytes;
        copy.dstY = row % extents->height;
        copy.dstZ = row / extents->height;
    } else {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = self->host;
        copy.dstPitch = step->width;
        copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
        copy.srcArray = self->array->cu_levels[self->level];
        copy.srcXInBytes = self->offset_bytes % row_bytes;
        copy.srcY = row % extents->height;
        copy.srcZ = row / extents->height;
    }
    return target->device->session->driver->cuMemcpy3DAsync(&copy, target->cu_stream);
}

static CUresult copy_part(void *user, struct flyt_stream *target)
{
    struct part *self = user;
    const struct flyt_array_extents extents = flyt_array_extents(self->array, self->level);
    CUresult result = CUDA_SUCCESS;
    while (self->bytes && result == CUDA_SUCCESS) {
        const struct flyt_array_extents step = step_of(self, &extents, extents.width * extents.element_bytes);
        result = copy_step(self, &extents, &step, target);
        self->host += step.width * step.height;
        self->offset_bytes += step.width * step.height;
        self->bytes -= step.width * step.height;
    }
    return result;
}

CUresult flyt_array_read(const struct flyt_array *array, unsigned level, uint64_t offset_bytes, void *data,
                         uint64_t bytes)
{
    struct flyt_device *device = array->device;
    struct part part = {array, level, offset_bytes, bytes, data, false};
    CUresult result = flyt_device_use(device);
    if (result == CUDA_SUCCESS)
        result = copy_part(&part, device->legacy);
    CUresult waited = device->session->driver->cuStreamSynchronize(device->legacy->cu_stream);
    return result == CUDA_SUCCESS ? waited : result;
}

CUresult flyt_array_write(const struct flyt_array *array, unsigned level, uint64_t offset_bytes, void *data,
                          uint64_t bytes)
{
    struct flyt_device *device = array->device;
    struct part part = {array, level, offset_bytes, bytes, data, true};
    return flyt_stream_submit(device->legacy, device->session->received_sequence, FLYT_SUBMIT_ADDED, device, copy_part,
                              &part);
}
