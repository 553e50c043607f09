/* Copies between device memory and a region that the program and this server share, and the locking of its pages. */
#include "cpu/server/bulk/region.h"

#include <errno.h>
#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/copy.h"
#include "cpu/server/cuda/physical.h"
#include "flyt_serve.h"

/* ---- locking pages ---- */

struct lock_job {
    struct flyt_job job;
    uint64_t offset_bytes, bytes;
};

static struct lock_job *new_lock(uint64_t offset_bytes, uint64_t bytes)
{
    struct lock_job *self = calloc(1, sizeof *self);
    if (self) {
        self->offset_bytes = offset_bytes;
        self->bytes = bytes;
    }
    return self;
}

static CUresult lock_pages(struct flyt_job *job)
{
    const struct lock_job *self = (struct lock_job *)job;
    return flyt_session_region_register(job->session, self->offset_bytes, self->bytes);
}

static void lock_finish(struct flyt_job *job, CUresult result)
{
    const struct lock_job *self = (struct lock_job *)job;
    const bool is_resume = job->session->resume.state != FLYT_RESUME_NONE;
    job->session->resume.steps.locked_count += is_resume && result == CUDA_SUCCESS;
    if (result == CUDA_SUCCESS)
        flyt_session_region_find(job->session, FLYT_REGION_ID, self->offset_bytes, self->bytes)->is_usable = true;
    else if (!is_resume)
        flyt_session_region_release(job->session, self->offset_bytes);
    else /* the server that the session comes from may have them */
        flyt_session_region_remove(job->session, self->offset_bytes);
    flyt_job_reply(job, result);
}

static const struct flyt_job_ops lock_ops = {NULL, lock_finish, NULL};

/* Pages that are locked already come again where the session goes on: with what the client has, and with its call. Or
 * they were locked ahead, and a VM's are claimed, too, by the server that the session comes from. */
CUresult flyt_serve_region_lock(struct flyt_call *call, const flyt_region_lock_args *args, flyt_region_lock_res *res)
{
    const struct flyt_region_lock *lock =
        flyt_session_region_find(call->session, args->region_id, args->offset_bytes, args->bytes);
    if (lock && lock->is_usable)
        return CUDA_SUCCESS;
    struct lock_job *self = new_lock(args->offset_bytes, args->bytes);
    int status =
        self ? flyt_session_region_add(call->session, args->region_id, args->offset_bytes, args->bytes) : -ENOMEM;
    if (status) {
        free(self);
        return status == -ENOMEM  ? CUDA_ERROR_OUT_OF_MEMORY
               : status == -EBUSY ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
                                  : CUDA_ERROR_INVALID_VALUE;
    }
    return flyt_job_on_worker(&self->job, &lock_ops, call, lock_pages);
}

/* ---- unlocking them ---- */

struct unlock_job {
    struct lock_job lock;
    bool is_unlocked;
};

static CUresult unlock_pages(struct flyt_job *job)
{
    struct unlock_job *self = (struct unlock_job *)job;
    self->is_unlocked = true;
    return flyt_session_region_unregister(job->session, self->lock.offset_bytes);
}

/* No copy uses them any more. */
static CUresult unlock_advance(struct flyt_job *job)
{
    const struct unlock_job *self = (struct unlock_job *)job;
    return self->is_unlocked ? CUDA_SUCCESS : flyt_job_run(job, unlock_pages);
}

/* Pages that the driver has not let go of stay noted: nothing is locked there again. */
static void unlock_finish(struct flyt_job *job, CUresult result)
{
    const struct lock_job *self = &((struct unlock_job *)job)->lock;
    struct flyt_session *session = job->session;
    if (result == CUDA_SUCCESS) {
        session->observer->lock_leaving(
            session, flyt_session_region_find(session, FLYT_REGION_ID, self->offset_bytes, self->bytes));
        flyt_session_region_release(session, self->offset_bytes);
    }
    flyt_job_reply(job, result);
}

static const struct flyt_job_ops unlock_ops = {unlock_advance, unlock_finish, NULL};

CUresult flyt_serve_region_unlock(struct flyt_call *call, const flyt_region_unlock_args *args,
                                  flyt_region_unlock_res *res)
{
    struct flyt_region_lock *lock =
        flyt_session_region_find(call->session, args->region_id, args->offset_bytes, args->bytes);
    if (!lock || !lock->is_usable || flyt_mappings_use_region(call->session, args->offset_bytes, args->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result;
    struct unlock_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    self->lock.offset_bytes = args->offset_bytes;
    self->lock.bytes = args->bytes;
    lock->is_usable = false;
    return flyt_job_begin(&self->lock.job, &unlock_ops, call);
}

CUresult flyt_serve_region_reach(struct flyt_call *call, const flyt_region_reach_args *args)
{
    if (!call->session->region || args->region_id != call->session->region->region.id)
        return CUDA_ERROR_INVALID_VALUE;
    call->session->region->is_reached = true;
    return CUDA_SUCCESS;
}

/* ---- copies ---- */

/* Two boxes of one shape. */
struct region_copy {
    const flyt_box *device_box;
    flyt_box host_box; /* its address is one of this process */
    uint64_t bytes;
    bool to_device, is_line;
};

static CUresult copy_line(const struct region_copy *self, CUstream cu_stream, const struct flyt_driver *driver)
{
    void *host = (void *)(uintptr_t)self->host_box.address; /* NOLINT: of the region */
    return self->to_device ? driver->cuMemcpyHtoDAsync(self->device_box->address, host, self->bytes, cu_stream)
                           : driver->cuMemcpyDtoHAsync(host, self->device_box->address, self->bytes, cu_stream);
}

static CUresult copy_box(const struct region_copy *self, CUstream cu_stream, struct flyt_session *session)
{
    const struct flyt_driver *driver = session->driver;
    const flyt_box *dst = self->to_device ? self->device_box : &self->host_box;
    const flyt_box *src = self->to_device ? &self->host_box : self->device_box;
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = self->to_device ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE,
        .srcHost = self->to_device ? (void *)(uintptr_t)src->address : NULL, /* NOLINT: of the region */
        .srcDevice = self->to_device ? 0 : src->address,
        .srcPitch = flyt_box_pitch(src),
        .srcHeight = flyt_box_rows_apart(src),
        .dstMemoryType = self->to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST,
        .dstHost = self->to_device ? NULL : (void *)(uintptr_t)dst->address, /* NOLINT: of the region */
        .dstDevice = self->to_device ? dst->address : 0,
        .dstPitch = flyt_box_pitch(dst),
        .dstHeight = flyt_box_rows_apart(dst),
        .WidthInBytes = src->width_bytes,
        .Height = src->height,
        .Depth = src->depth,
    };
    CUresult result = flyt_array_sides(session, dst, src, &copy);
    return result == CUDA_SUCCESS ? driver->cuMemcpy3DAsync(&copy, cu_stream) : result;
}

static CUresult submit(void *user, struct flyt_stream *target)
{
    const struct region_copy *self = user;
    const struct flyt_driver *driver = target->device->session->driver;
    return self->is_line ? copy_line(self, target->cu_stream, driver)
                         : copy_box(self, target->cu_stream, target->device->session);
}

/* Whether the driver copies the box with one call, whatever the other one is like. */
static bool is_regular(const flyt_box *box)
{
    static const uint64_t pitch_bytes_max = 0x7fffffff;
    return flyt_box_pitch(box) <= pitch_bytes_max && flyt_box_rows_apart(box);
}

static CUresult copy(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *device_box,
                     const flyt_region_box *region_box, bool to_device)
{
    struct region_copy self = {.device_box = device_box, .to_device = to_device};
    struct flyt_device *device;
    CUresult result = flyt_box_check(call->session, device_box, &self.bytes, &device);
    if (result != CUDA_SUCCESS || !self.bytes)
        return result;
    const struct flyt_region_span span = {.offset_bytes = region_box->offset_bytes,
                                          .width_bytes = device_box->width_bytes,
                                          .height = device_box->height,
                                          .depth = device_box->depth,
                                          .pitch_bytes = region_box->pitch_bytes,
                                          .slice_bytes = region_box->slice_bytes};
    char *host = flyt_session_region_place(call->session, region_box->region_id, &span);
    self.host_box = *device_box;
    self.host_box.address = (uint64_t)(uintptr_t)host;
    self.host_box.pitch_bytes = span.pitch_bytes;
    self.host_box.slice_bytes = span.slice_bytes;
    self.is_line = flyt_box_is_packed(device_box) && flyt_box_is_packed(&self.host_box);
    if (!host || (!self.is_line && !(is_regular(device_box) && is_regular(&self.host_box))))
        return CUDA_ERROR_INVALID_VALUE;
    if (to_device)
        flyt_constant_note_written(call->session, device_box->address);
    else
        flyt_constant_note_used(call->session, device_box->address);
    result = flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, device, submit, &self);
    if (result == CUDA_SUCCESS)
        flyt_session_count(to_device ? &call->session->in_bytes : &call->session->out_bytes, self.bytes);
    return result;
}

CUresult flyt_serve_copy_in_region(struct flyt_call *call, const flyt_copy_in_region_args *args,
                                   struct flyt_stream *stream)
{
    return copy(call, stream, &args->dst, &args->src, true);
}

CUresult flyt_serve_copy_out_region(struct flyt_call *call, const flyt_copy_out_region_args *args,
                                    struct flyt_stream *stream)
{
    return copy(call, stream, &args->src, &args->dst, false);
}
