/* Copies within device memory, between devices too, and memory_set. */
#include <stdlib.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/core/call.h"
#include "cpu/server/cuda/array.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/copy.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "flyt_serve.h"

/* Two boxes of one shape. */
struct within {
    const flyt_box *dst, *src;
    struct flyt_device *dst_device, *src_device;
    uint64_t bytes;
    bool is_line;
};

static CUresult copy_boxes(const struct within *self, struct flyt_stream *stream)
{
    CUDA_MEMCPY3D copy = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = self->src->address,
        .srcPitch = flyt_box_pitch(self->src),
        .srcHeight = flyt_box_rows_apart(self->src),
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = self->dst->address,
        .dstPitch = flyt_box_pitch(self->dst),
        .dstHeight = flyt_box_rows_apart(self->dst),
        .WidthInBytes = self->dst->width_bytes,
        .Height = self->dst->height,
        .Depth = self->dst->depth,
    };
    CUresult result = flyt_array_sides(stream->device->session, self->dst, self->src, &copy);
    if (result != CUDA_SUCCESS)
        return result;
    return stream->device->session->driver->cuMemcpy3DAsync(&copy, stream->cu_stream);
}

static CUresult copy_between_devices(const struct within *self, struct flyt_stream *stream)
{
    CUDA_MEMCPY3D arrays = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .dstMemoryType = CU_MEMORYTYPE_DEVICE};
    CUresult result = flyt_array_sides(stream->device->session, self->dst, self->src, &arrays);
    if (result != CUDA_SUCCESS)
        return result;
    CUDA_MEMCPY3D_PEER copy = {
        .srcMemoryType = arrays.srcMemoryType,
        .srcArray = arrays.srcArray,
        .srcXInBytes = arrays.srcXInBytes,
        .srcY = arrays.srcY,
        .srcZ = arrays.srcZ,
        .srcDevice = arrays.srcArray ? 0 : self->src->address,
        .srcContext = self->src_device->partition->cu_context,
        .srcPitch = flyt_box_pitch(self->src),
        .srcHeight = flyt_box_rows_apart(self->src),
        .dstMemoryType = arrays.dstMemoryType,
        .dstArray = arrays.dstArray,
        .dstXInBytes = arrays.dstXInBytes,
        .dstY = arrays.dstY,
        .dstZ = arrays.dstZ,
        .dstDevice = arrays.dstArray ? 0 : self->dst->address,
        .dstContext = self->dst_device->partition->cu_context,
        .dstPitch = flyt_box_pitch(self->dst),
        .dstHeight = flyt_box_rows_apart(self->dst),
        .WidthInBytes = self->dst->width_bytes,
        .Height = self->dst->height,
        .Depth = self->dst->depth,
    };
    return stream->device->session->driver->cuMemcpy3DPeerAsync(&copy, stream->cu_stream);
}

static CUresult copy_within(void *user, struct flyt_stream *target)
{
    const struct within *self = user;
    const struct flyt_driver *driver = target->device->session->driver;
    bool is_one_device = self->dst_device == self->src_device;
    if (!self->is_line)
        return is_one_device ? copy_boxes(self, target) : copy_between_devices(self, target);
    if (is_one_device)
        return driver->cuMemcpyDtoDAsync(self->dst->address, self->src->address, self->bytes, target->cu_stream);
    return driver->cuMemcpyPeerAsync(self->dst->address, self->dst_device->partition->cu_context, self->src->address,
                                     self->src_device->partition->cu_context, self->bytes, target->cu_stream);
}

CUresult flyt_serve_copy_within(struct flyt_call *call, const flyt_copy_within_args *args, struct flyt_stream *stream)
{
    struct within self = {.dst = &args->dst, .src = &args->src};
    const flyt_box *dst = self.dst, *src = self.src;
    uint64_t src_bytes;
    if (dst->width_bytes != src->width_bytes || dst->height != src->height || dst->depth != src->depth)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_box_check(call->session, dst, &self.bytes, &self.dst_device);
    if (result == CUDA_SUCCESS)
        result = flyt_box_check(call->session, src, &src_bytes, &self.src_device);
    if (result != CUDA_SUCCESS || !self.bytes)
        return result;
    flyt_constant_note_written(call->session, dst->address);
    flyt_constant_note_used(call->session, src->address);
    self.is_line = flyt_box_is_packed(dst) && flyt_box_is_packed(src);
    if (!self.is_line && (!flyt_box_rows_apart(dst) || !flyt_box_rows_apart(src)))
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK,
                              self.dst_device == self.src_device ? self.dst_device : stream->device, copy_within,
                              &self);
}

/* ---- memory_set ---- */

static CUresult set_line(struct flyt_stream *stream, uint64_t address, uint64_t bytes, unsigned element_bytes,
                         uint32_t value)
{
    const struct flyt_driver *driver = stream->device->session->driver;
    switch (element_bytes) {
    case 1:
        return driver->cuMemsetD8Async(address, (unsigned char)value, bytes, stream->cu_stream);
    case 2:
        return driver->cuMemsetD16Async(address, (unsigned short)value, bytes / 2, stream->cu_stream);
    default:
        return driver->cuMemsetD32Async(address, value, bytes / 4, stream->cu_stream);
    }
}

static CUresult set_slice(struct flyt_stream *stream, const flyt_box *box, uint64_t address, unsigned element_bytes,
                          uint32_t value)
{
    const struct flyt_driver *driver = stream->device->session->driver;
    if (box->height == 1)
        return set_line(stream, address, box->width_bytes, element_bytes, value);
    switch (element_bytes) {
    case 1:
        return driver->cuMemsetD2D8Async(address, box->pitch_bytes, (unsigned char)value, box->width_bytes, box->height,
                                         stream->cu_stream);
    case 2:
        return driver->cuMemsetD2D16Async(address, box->pitch_bytes, (unsigned short)value, box->width_bytes / 2,
                                          box->height, stream->cu_stream);
    default:
        return driver->cuMemsetD2D32Async(address, box->pitch_bytes, value, box->width_bytes / 4, box->height,
                                          stream->cu_stream);
    }
}

/* A slice at a time; a box without gaps is one. */
struct fill {
    struct flyt_pieces pieces; /* left: slices */
    flyt_box box;
    unsigned element_bytes;
    uint32_t value;
};

static CUresult fill_slice(struct flyt_pieces *pieces, struct flyt_stream *copy_stream)
{
    struct fill *self = (struct fill *)pieces;
    uint64_t slice = self->box.depth - pieces->left--;
    return set_slice(copy_stream, &self->box, self->box.address + slice * self->box.slice_bytes, self->element_bytes,
                     self->value);
}

struct fill_job {
    struct flyt_job job;
    struct fill fill;
};

static CUresult fill_advance(struct flyt_job *job)
{
    struct fill_job *self = (struct fill_job *)job;
    if (job->session->fatal != CUDA_SUCCESS)
        return job->session->fatal;
    return flyt_pieces_submit(&self->fill.pieces, job->stream, job->sequence, &job->needs_poll);
}

static const struct flyt_job_ops fill_ops = {fill_advance, NULL, NULL};

struct start {
    struct flyt_call *call;
    struct fill fill;
};

static CUresult start_fill(void *user, struct flyt_stream *stream)
{
    const struct start *start = user;
    struct fill_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->fill = start->fill;
    flyt_job_start(&self->job, &fill_ops, start->call, stream);
    return FLYT_CALL_STARTED;
}

/* What may be filled: device memory, or locked pages of the region where kernels reach them by their addresses. */
static CUresult check_filled(const struct flyt_stream *stream, const flyt_box *box, uint64_t *ret_bytes,
                             struct flyt_device **ret_device)
{
    struct flyt_session *session = stream->device->session;
    const struct flyt_session_region *region = session->region;
    if (!region || box->address - (uint64_t)(uintptr_t)region->region.base >= region->region.bytes ||
        !flyt_session_region_is_mapped(session))
        return flyt_box_check(session, box, ret_bytes, ret_device);
    const struct flyt_region_span span = {.offset_bytes = box->address - (uint64_t)(uintptr_t)region->region.base,
                                          .width_bytes = box->width_bytes,
                                          .height = box->height,
                                          .depth = box->depth,
                                          .pitch_bytes = box->pitch_bytes,
                                          .slice_bytes = box->slice_bytes};
    *ret_device = stream->device;
    *ret_bytes = 0;
    if (!box->width_bytes || !box->height || !box->depth)
        return CUDA_SUCCESS;
    if (!flyt_session_region_place(session, region->region.id, &span))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_bytes = box->width_bytes * box->height * box->depth;
    return CUDA_SUCCESS;
}

CUresult flyt_serve_memory_set(struct flyt_call *call, const flyt_memory_set_args *args, struct flyt_stream *stream)
{
    const flyt_box *box = &args->dst;
    unsigned element_bytes = args->element_bytes;
    struct flyt_device *device;
    uint64_t bytes;
    if (element_bytes != 1 && element_bytes != 2 && element_bytes != 4)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_box_is_array(box) ? CUDA_ERROR_INVALID_VALUE : check_filled(stream, box, &bytes, &device);
    if (result != CUDA_SUCCESS || !bytes)
        return result;
    if (box->width_bytes % element_bytes || box->address % element_bytes ||
        (box->height > 1 && box->pitch_bytes % element_bytes) || (box->depth > 1 && box->slice_bytes % element_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    flyt_constant_note_written(call->session, box->address);
    const flyt_box simple = flyt_box_simplify(box);
    struct start start = {.call = call,
                          .fill = {.pieces = {.device = device, .left = simple.depth, .submit = fill_slice},
                                   .box = simple,
                                   .element_bytes = element_bytes,
                                   .value = args->value}};
    if (simple.depth == 1)
        return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, device, flyt_pieces_submit_all,
                                  &start.fill.pieces);
    return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_JOB, device, start_fill, &start);
}

/* ---- memory operations of streams ---- */

struct ops {
    struct flyt_device *device; /* NULL: none names memory */
    unsigned count;
    CUstreamBatchMemOpParams params[FLYT_STREAM_OPS_MAX];
};

static CUresult submit_ops(void *user, struct flyt_stream *target)
{
    struct ops *self = user;
    return target->device->session->driver->cuStreamBatchMemOp(target->cu_stream, self->count, self->params, 0);
}

/* The bytes of memory that an operation is about; 0: it is none on memory. */
static unsigned op_bytes(unsigned operation)
{
    bool is_long = operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;
    bool is_short = operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 || operation == CU_STREAM_MEM_OP_WRITE_VALUE_32;
    return is_long ? sizeof(uint64_t) : is_short ? sizeof(uint32_t) : 0;
}

static CUresult add_op(struct flyt_session *session, struct ops *self, const flyt_stream_op *op)
{
    CUstreamBatchMemOpParams *params = &self->params[self->count++];
    struct flyt_device *device;
    unsigned bytes = op_bytes(op->operation);
    if (op->operation == CU_STREAM_MEM_OP_BARRIER) {
        params->memoryBarrier.operation = CU_STREAM_MEM_OP_BARRIER;
        params->memoryBarrier.flags = op->flags;
        return CUDA_SUCCESS;
    }
    if (!bytes || op->address % bytes || !flyt_memory_covers(session, op->address, bytes, &device) ||
        (self->device && self->device != device))
        return CUDA_ERROR_INVALID_VALUE;
    self->device = device;
    /* waitValue and writeValue have one layout. */
    params->writeValue.operation = (CUstreamBatchMemOpType)op->operation;
    params->writeValue.address = op->address;
    params->writeValue.value64 = op->value;
    params->writeValue.flags = op->flags;
    flyt_constant_note_written(session, op->address);
    return CUDA_SUCCESS;
}

CUresult flyt_serve_stream_memory_ops(struct flyt_call *call, const flyt_stream_memory_ops_args *args,
                                      struct flyt_stream *stream)
{
    struct ops self = {0};
    CUresult result = args->ops.ops_len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (u_int i = 0; i < args->ops.ops_len && result == CUDA_SUCCESS; i++)
        result = add_op(call->session, &self, &args->ops.ops_val[i]);
    if (result != CUDA_SUCCESS)
        return result;
    return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, self.device ? self.device : stream->device,
                              submit_ops, &self);
}
