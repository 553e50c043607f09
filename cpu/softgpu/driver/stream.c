/* Streams, events and host functions: the driver API over queue.h. */
#include <stdlib.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/event.h"
#include "cpu/softgpu/driver/graph.h"
#include "cpu/softgpu/driver/queue.h"

/* ---- creation ---- */

/* Brings a priority into the range that cuCtxGetStreamPriorityRange tells. */
static int clamp_priority(int priority)
{
    if (priority > 0)
        return 0;
    return priority < FLYT_SOFT_PRIORITY_GREATEST ? FLYT_SOFT_PRIORITY_GREATEST : priority;
}

FLYT_SOFT_API cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phStream || flags & ~(unsigned)CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *phStream = flyt_soft_stream_new(ctx, flags, clamp_priority(priority), false);
    return *phStream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FLYT_SOFT_API cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
    return cuStreamCreateWithPriority(phStream, Flags, 0);
}

FLYT_SOFT_API cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_green_context(greenCtx, &ctx);

    if (r == CUDA_SUCCESS)
        r = atomic_load(&ctx->device->sticky);
    if (r != CUDA_SUCCESS)
        return r;
    if (!phStream || flags != CU_STREAM_NON_BLOCKING)
        return CUDA_ERROR_INVALID_VALUE;
    *phStream = flyt_soft_stream_new(ctx, flags, clamp_priority(priority), false);
    return *phStream ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* The current context and the stream of a handle. */
static CUresult enter_stream(CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    return r == CUDA_SUCCESS ? flyt_soft_stream_find(ctx, handle, ret_stream) : r;
}

FLYT_SOFT_API cuStreamDestroy(CUstream hStream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (hStream == CU_STREAM_LEGACY || hStream == CU_STREAM_PER_THREAD || !flyt_soft_is(hStream, FLYT_SOFT_STREAM) ||
        hStream->is_destroyed)
        return CUDA_ERROR_INVALID_HANDLE;
    flyt_soft_capture_drop(hStream);
    flyt_soft_stream_retire(hStream);
    return flyt_soft_leave(ctx, CUDA_SUCCESS);
}

/* ---- properties ---- */

FLYT_SOFT_API cuStreamGetFlags(CUstream hStream, unsigned int *flags)
{
    struct CUstream_st *stream;
    CUresult r = enter_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuStreamGetPriority(CUstream hStream, int *priority)
{
    struct CUstream_st *stream;
    CUresult r = enter_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!priority)
        return CUDA_ERROR_INVALID_VALUE;
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuStreamGetId(CUstream hStream, unsigned long long *streamId)
{
    struct CUstream_st *stream;
    CUresult r = enter_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!streamId)
        return CUDA_ERROR_INVALID_VALUE;
    *streamId = stream->id;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuStreamGetCtx(CUstream hStream, CUcontext *pctx)
{
    struct CUstream_st *stream;
    CUresult r = enter_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = stream->ctx;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuStreamGetGreenCtx(CUstream hStream, CUgreenCtx *phCtx)
{
    struct CUstream_st *stream;
    CUresult r = enter_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phCtx)
        return CUDA_ERROR_INVALID_VALUE;
    *phCtx = stream->ctx->green;
    return CUDA_SUCCESS;
}

/* What a capture forbids does not depend on a mode here: the thread's is kept, so that exchanging it works. A GPU's
 * driver takes any number. */
FLYT_SOFT_API cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    static _Thread_local CUstreamCaptureMode current = CU_STREAM_CAPTURE_MODE_GLOBAL;
    CUstreamCaptureMode old = current;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    current = *mode;
    *mode = old;
    return CUDA_SUCCESS;
}

/* ---- waiting ---- */

/* The same of one that no capture may have. */
static CUresult take_stream(CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    return r == CUDA_SUCCESS ? flyt_soft_stream_take(ctx, handle, ret_stream) : r;
}

FLYT_SOFT_API cuStreamQuery(CUstream hStream)
{
    struct CUstream_st *stream;
    CUresult r = take_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_stream_is_idle(stream))
        return CUDA_ERROR_NOT_READY;
    /* Looked at again: the work that has just ended may have failed. */
    return atomic_load(&stream->ctx->device->sticky);
}

FLYT_SOFT_API cuStreamSynchronize(CUstream hStream)
{
    struct CUstream_st *stream;
    CUresult r = take_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    /* The legacy stream stands for all blocking streams: a mark in it comes after what they have. */
    if (stream->is_legacy)
        r = flyt_soft_stream_mark(stream, NULL, NULL);
    return r == CUDA_SUCCESS ? flyt_soft_stream_finish(stream, flyt_soft_stream_last(stream)) : r;
}

FLYT_SOFT_API cuStreamWaitEvent(CUstream hStream, CUevent hEvent, unsigned int Flags)
{
    struct CUstream_st *stream;
    struct flyt_soft_record *record;
    CUresult r = take_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hEvent, FLYT_SOFT_EVENT))
        return CUDA_ERROR_INVALID_HANDLE;
    if (Flags & ~(unsigned)CU_EVENT_WAIT_EXTERNAL)
        return CUDA_ERROR_INVALID_VALUE;
    record = flyt_soft_event_record(hEvent);
    /* An event that was never recorded, or is complete, holds nobody up. */
    if (!record || flyt_soft_record_is_complete(record, NULL)) {
        flyt_soft_record_unref(record);
        return CUDA_SUCCESS;
    }
    return flyt_soft_stream_mark(stream, record, NULL);
}

/* ---- host functions ---- */

struct host_op {
    struct flyt_soft_op op;
    CUhostFn function;
    CUstreamCallback callback; /* instead of `function` */
    CUstream handle;           /* as the caller named it */
    struct flyt_soft_device *device;
    void *user;
};

static CUresult host_op_run(struct flyt_soft_op *op)
{
    struct host_op *host = (struct host_op *)op;

    if (host->callback)
        host->callback(host->handle, atomic_load(&host->device->sticky), host->user);
    else
        host->function(host->user);
    return CUDA_SUCCESS;
}

static void host_op_free(struct flyt_soft_op *op)
{
    free(op);
}

static CUresult push_host(CUstream hStream, CUhostFn function, CUstreamCallback callback, void *user)
{
    struct CUstream_st *stream;
    struct host_op *host;
    CUresult r = take_stream(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!function && !callback)
        return CUDA_ERROR_INVALID_VALUE;
    host = calloc(1, sizeof(*host));
    if (!host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *host = (struct host_op){
        .op = {.run = host_op_run, .free = host_op_free, .runs_broken = callback != NULL},
        .function = function,
        .callback = callback,
        .handle = hStream,
        .device = stream->ctx->device,
        .user = user,
    };
    flyt_soft_stream_push(stream, &host->op);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void *userData)
{
    return push_host(hStream, fn, NULL, userData);
}

FLYT_SOFT_API cuStreamAddCallback(CUstream hStream, CUstreamCallback callback, void *userData, unsigned int flags)
{
    return flags ? CUDA_ERROR_INVALID_VALUE : push_host(hStream, NULL, callback, userData);
}

/* ---- capture: what libraries launch becomes nodes of a graph (graph.h) ---- */

CUresult flyt_soft_capture_work(struct CUstream_st *stream, const struct flyt_soft_work *work)
{
    return flyt_soft_graph_append(stream->captured, work) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

void flyt_soft_capture_drop(struct CUstream_st *stream)
{
    flyt_soft_graph_free(stream->captured);
    stream->captured = NULL;
    stream->is_capture_failed = false;
}

static CUresult enter_capture(CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    return r == CUDA_SUCCESS ? flyt_soft_stream_find(ctx, handle, ret_stream) : r;
}

/* Only what libraries launch is captured. */
FLYT_SOFT_API cuStreamBeginCapture(CUstream hStream, CUstreamCaptureMode mode)
{
    struct CUstream_st *stream;
    CUresult r = enter_capture(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    if (stream->captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    stream->captured = flyt_soft_graph_new(NULL);
    return stream->captured ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FLYT_SOFT_API cuStreamEndCapture(CUstream hStream, CUgraph *phGraph)
{
    struct CUstream_st *stream;
    CUresult r = enter_capture(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    if (!stream->captured)
        return CUDA_ERROR_ILLEGAL_STATE;
    *phGraph = stream->is_capture_failed ? NULL : stream->captured;
    if (*phGraph)
        stream->captured = NULL;
    flyt_soft_capture_drop(stream);
    return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

FLYT_SOFT_API cuStreamIsCapturing(CUstream hStream, CUstreamCaptureStatus *captureStatus)
{
    struct CUstream_st *stream;
    CUresult r = enter_capture(hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (!captureStatus)
        return CUDA_ERROR_INVALID_VALUE;
    *captureStatus = !stream->captured           ? CU_STREAM_CAPTURE_STATUS_NONE
                     : stream->is_capture_failed ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                                 : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
}
