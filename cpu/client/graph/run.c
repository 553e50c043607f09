/*
 * Launches of plans. Steps of one device go to one stream, in their order; where a plan has several devices, a stream
 * of this library's on each of the others, and events between them.
 */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/function_queue.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/graph/plan.h"

/* ---- one step ---- */

static CUresult run_event(struct flyt_stream *stream, const struct flyt_node_data *data)
{
    struct flyt_event *event = flyt_event_find(data->event);
    if (!event)
        return CUDA_ERROR_INVALID_HANDLE;
    return data->kind == FLYT_NODE_WAIT ? flyt_event_wait_on(event, stream) : flyt_event_record_on(event, stream);
}

static CUresult run_data(struct flyt_stream *stream, const struct flyt_node_data *data)
{
    switch (data->kind) {
    case FLYT_NODE_COPY:
        if (data->copy.dst.place == FLYT_PLACE_HOST && data->copy.src.place == FLYT_PLACE_HOST)
            return flyt_copy_host_later(stream, &data->copy);
        return flyt_copy_of_graph(stream, &data->copy);
    case FLYT_NODE_FILL:
        return data->fill.is_host ? flyt_fill_host_later(stream, &data->fill.fill)
                                  : flyt_fill_of_graph(stream, &data->fill.fill);
    case FLYT_NODE_HOST:
        return flyt_function_launch_on(stream, data->host.function, data->host.user);
    case FLYT_NODE_OPS:
        return flyt_memory_ops_of_graph(stream, data->ops.count, data->ops.list);
    default:
        return run_event(stream, data);
    }
}

/* streams: of the plan's devices. */
static CUresult run_step(const struct flyt_plan_step *step, struct flyt_stream *const *streams)
{
    if (step->segment_id)
        return flyt_segment_launch(step->segment_id, streams[step->device]);
    if (step->data.kind == FLYT_NODE_CALL)
        return step->data.call->submit(step->data.call, streams);
    return run_data(streams[step->device], &step->data);
}

/* ---- several devices ---- */

/* What this library has of its own on a device, made when it is needed. An event is waited for right behind its record:
 * both under the mutex. */
static struct {
    pthread_mutex_t mutex;
    struct {
        uint64_t stream_id, stream_number;
        CUevent event;
    } of[FLYT_DEVICES_MAX];
} sides = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static CUresult find_side_locked(int device, struct flyt_stream **ret_stream)
{
    CUstream handle;
    struct flyt_stream *stream = flyt_stream_find(sides.of[device].stream_id);
    if (!stream || stream->number != sides.of[device].stream_number) {
        CUresult result =
            flyt_stream_create_in(flyt_inner_context_id(device), device, CU_STREAM_NON_BLOCKING, 0, &handle);
        stream = result ? NULL : flyt_stream_find((uint64_t)(uintptr_t)handle);
        if (!stream)
            return result ? result : CUDA_ERROR_INVALID_HANDLE;
        sides.of[device].stream_id = stream->stream_id;
        sides.of[device].stream_number = stream->number;
    }
    *ret_stream = stream;
    return CUDA_SUCCESS;
}

static CUresult find_event_locked(int device, struct flyt_event **ret_event)
{
    CUresult result = CUDA_SUCCESS;
    if (!flyt_event_find(sides.of[device].event))
        result = flyt_event_create_in(flyt_inner_context_id(device), device, CU_EVENT_DISABLE_TIMING,
                                      &sides.of[device].event);
    *ret_event = result ? NULL : flyt_event_find(sides.of[device].event);
    return result || *ret_event ? result : CUDA_ERROR_INVALID_HANDLE;
}

void flyt_plan_after_reset(int device)
{
    flyt_event_clear(flyt_inner_context_id(device), false);
}

/* What the later stream gets from now on comes after all that the earlier one has. */
static CUresult order(struct flyt_stream *earlier, struct flyt_stream *later)
{
    struct flyt_event *event;
    pthread_mutex_lock(&sides.mutex);
    CUresult result = find_event_locked(earlier->device, &event);
    if (!result)
        result = flyt_event_record_on(event, earlier);
    if (!result)
        result = flyt_event_wait_on(event, later);
    pthread_mutex_unlock(&sides.mutex);
    return result;
}

struct crossing {
    const struct flyt_plan *plan;
    struct flyt_stream *launched_in, *streams[FLYT_DEVICES_MAX]; /* of the plan's devices */
};

static CUresult find_streams(struct crossing *self)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&sides.mutex);
    for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++) {
        if (device == self->launched_in->device)
            self->streams[device] = self->launched_in;
        else if (self->plan->devices >> device & 1)
            result = find_side_locked(device, &self->streams[device]);
    }
    pthread_mutex_unlock(&sides.mutex);
    return result;
}

/* All streams but the one that the plan is launched into come after that one, or it after them. */
static CUresult order_all(const struct crossing *self, bool is_begin)
{
    CUresult result = CUDA_SUCCESS;
    for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++) {
        struct flyt_stream *side = self->streams[device];
        if (side && side != self->launched_in)
            result = is_begin ? order(self->launched_in, side) : order(side, self->launched_in);
    }
    return result;
}

/* A call that works on several devices comes after all that its step does, and what comes after that after all of it.
 */
static CUresult order_call(const struct crossing *self, const struct flyt_plan_step *step, bool is_begin)
{
    struct flyt_stream *own = self->streams[step->device];
    const bool is_call = !step->segment_id && step->data.kind == FLYT_NODE_CALL;
    const unsigned others = is_call ? step->data.call->devices & ~(1u << step->device) : 0;
    CUresult result = CUDA_SUCCESS;
    for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++)
        if (others >> device & 1)
            result = is_begin ? order(own, self->streams[device]) : order(self->streams[device], own);
    return result;
}

static CUresult run_crossing(const struct crossing *self)
{
    CUresult result = order_all(self, true);
    for (unsigned i = 0; i < self->plan->count && !result; i++) {
        const struct flyt_plan_step *step = &self->plan->steps[i];
        for (int device = 0; device < FLYT_DEVICES_MAX && !result; device++)
            if (step->after >> device & 1)
                result = order(self->streams[device], self->streams[step->device]);
        if (!result)
            result = order_call(self, step, true);
        if (!result)
            result = run_step(step, self->streams);
        if (!result)
            result = order_call(self, step, false);
    }
    return result ? result : order_all(self, false);
}

/* ---- all of it ---- */

static bool is_of_one_device(const struct flyt_plan *plan, const struct flyt_stream *stream)
{
    return plan->devices == 1u << stream->device;
}

CUresult flyt_plan_run(const struct flyt_plan *plan, struct flyt_stream *stream)
{
    struct crossing crossing = {.plan = plan, .launched_in = stream};
    CUresult result = CUDA_SUCCESS;
    if (!is_of_one_device(plan, stream)) {
        result = find_streams(&crossing);
        return result ? result : run_crossing(&crossing);
    }
    crossing.streams[stream->device] = stream;
    for (unsigned i = 0; i < plan->count && !result; i++)
        result = run_step(&plan->steps[i], crossing.streams);
    return result;
}

CUresult flyt_plan_upload(const struct flyt_plan *plan, struct flyt_stream *stream)
{
    struct crossing crossing = {.plan = plan, .launched_in = stream};
    CUresult result = find_streams(&crossing);
    for (unsigned i = 0; i < plan->count && !result; i++)
        if (plan->steps[i].segment_id)
            result = flyt_segment_upload(plan->steps[i].segment_id, crossing.streams[plan->steps[i].device]);
    return result;
}
