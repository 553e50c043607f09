/* Decompression by the GPU, where it can. Memory of the session is made for it then (memory.c). */
#include "cpu/server/core/call.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/cuda/constant.h"
#include "cpu/server/cuda/memory.h"
#include "flyt_serve.h"

struct batch {
    struct flyt_device *device;
    unsigned count;
    CUmemDecompressParams params[FLYT_DECOMPRESSIONS_MAX];
};

/* All of it is the device's memory, which the session has. */
static bool is_own(struct flyt_session *session, const struct flyt_device *device, uint64_t address, uint64_t bytes)
{
    struct flyt_device *owner;
    return bytes && flyt_memory_covers(session, address, bytes, &owner) && owner == device;
}

static CUresult add(struct batch *self, const flyt_decompression *one)
{
    struct flyt_session *session = self->device->session;
    if (!is_own(session, self->device, one->src, one->src_bytes) ||
        !is_own(session, self->device, one->dst, one->dst_bytes) || one->written_address % sizeof(cuuint32_t) ||
        !is_own(session, self->device, one->written_address, sizeof(cuuint32_t)))
        return CUDA_ERROR_INVALID_VALUE;
    self->params[self->count++] = (CUmemDecompressParams){.srcNumBytes = one->src_bytes,
                                                          .dstNumBytes = one->dst_bytes,
                                                          .dstActBytes = (cuuint32_t *)(uintptr_t)one->written_address,
                                                          .src = (const void *)(uintptr_t)one->src,
                                                          .dst = (void *)(uintptr_t)one->dst,
                                                          .algo = (CUmemDecompressAlgorithm)one->algorithm};
    flyt_constant_note_written(session, one->dst);
    flyt_constant_note_written(session, one->written_address);
    return CUDA_SUCCESS;
}

static CUresult submit(void *user, struct flyt_stream *target)
{
    struct batch *self = user;
    return self->device->session->driver->cuMemBatchDecompressAsync(self->params, self->count, 0, NULL,
                                                                    target->cu_stream);
}

CUresult flyt_serve_memory_decompress(struct flyt_call *call, const flyt_memory_decompress_args *args,
                                      struct flyt_stream *stream)
{
    struct batch self = {.device = stream->device};
    CUresult result = args->batch.batch_len ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (u_int i = 0; i < args->batch.batch_len && result == CUDA_SUCCESS; i++)
        result = add(&self, &args->batch.batch_val[i]);
    if (result != CUDA_SUCCESS)
        return result;
    return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, self.device, submit, &self);
}
