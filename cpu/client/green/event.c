/* Events of all that a context has: recorded behind the work of all its streams, or before what they get next. */
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/green/green.h"

/* What is done with each stream of a context. */
typedef CUresult (*per_stream)(struct flyt_stream *stream, void *arg);

/* The context is current. Its default stream is among them. */
static CUresult for_all(CUcontext context, per_stream fn, void *arg)
{
    uint32_t slot = 0;
    struct flyt_stream *stream, *own_default;
    CUresult result = flyt_stream_get(NULL, &own_default);
    if (!result)
        result = fn(own_default, arg);
    while (!result && (stream = flyt_stream_next_in((uint64_t)(uintptr_t)context, &slot)))
        if (stream != own_default)
            result = fn(stream, arg);
    return result;
}

static CUresult refuse_captured(struct flyt_stream *stream, void *arg)
{
    return flyt_capture_refuse(stream);
}

struct join {
    struct flyt_event *mark;
    struct flyt_stream *stream;
};

static CUresult join_one(struct flyt_stream *stream, void *arg)
{
    const struct join *join = arg;
    CUresult result = stream == join->stream ? CUDA_SUCCESS : flyt_event_record_on(join->mark, stream);
    return result || stream == join->stream ? result : flyt_event_wait_on(join->mark, join->stream);
}

/* A stream that comes after all others of the context, and the event behind it. */
static CUresult join_all(CUcontext context, struct flyt_event *event)
{
    struct join join;
    CUevent mark;
    CUstream handle = NULL;
    CUresult result = flyt_event_create(CU_EVENT_DISABLE_TIMING, &mark);
    if (result)
        return result;
    result = flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, &handle);
    if (!result)
        result = flyt_stream_get(handle, &join.stream);
    join.mark = flyt_event_find(mark);
    if (!result)
        result = for_all(context, join_one, &join);
    if (!result)
        result = flyt_event_record_on(event, join.stream);
    if (handle)
        flyt_stream_destroy(handle);
    flyt_event_destroy(mark);
    return result;
}

static CUresult wait_one(struct flyt_stream *stream, void *event)
{
    return flyt_event_wait_on(event, stream);
}

static CUresult hold_all(CUcontext context, struct flyt_event *event)
{
    CUstream *gate = flyt_green_gate(context);
    CUresult result = gate && !*gate ? flyt_stream_create(CU_STREAM_NON_BLOCKING, 0, gate) : CUDA_SUCCESS;
    return result ? result : for_all(context, wait_one, event); /* the gate is one of them */
}

CUresult flyt_green_pass_gate(CUstream gate, CUstream stream)
{
    CUevent mark;
    CUresult result = flyt_event_create(CU_EVENT_DISABLE_TIMING, &mark);
    if (result)
        return result;
    result = flyt_event_record(mark, gate, CU_EVENT_RECORD_DEFAULT);
    if (!result)
        result = flyt_stream_wait_event(stream, mark, 0);
    flyt_event_destroy(mark);
    return result;
}

/* With the context current meanwhile. */
static CUresult with(CUcontext context, CUevent handle, bool is_record)
{
    int device;
    struct flyt_event *event;
    CUresult result = context ? flyt_context_device(context, &device) : CUDA_ERROR_INVALID_CONTEXT;
    if (result)
        return result;
    event = flyt_event_find(handle);
    if (!event || (is_record && event->device != device))
        return CUDA_ERROR_INVALID_HANDLE;
    result = flyt_context_push(context);
    if (result)
        return result;
    result = for_all(context, refuse_captured, NULL);
    if (!result)
        result = is_record ? join_all(context, event) : hold_all(context, event);
    flyt_context_pop(NULL);
    return result;
}

CUresult flyt_context_record_event(CUcontext context, CUevent event)
{
    CUresult result = flyt_client_enter();
    return result ? result : with(context, event, true);
}

CUresult flyt_context_wait_event(CUcontext context, CUevent event)
{
    CUresult result = flyt_client_enter();
    return result ? result : with(context, event, false);
}

static CUresult with_green(CUgreenCtx green, CUevent event, bool is_record)
{
    CUcontext context;
    CUresult result = flyt_green_context(green, &context);
    return result ? result : with(context, event, is_record);
}

CUresult flyt_green_record_event(CUgreenCtx green, CUevent event)
{
    return with_green(green, event, true);
}

CUresult flyt_green_wait_event(CUgreenCtx green, CUevent event)
{
    return with_green(green, event, false);
}
