/* Capture: what a stream is given becomes nodes of a graph. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/graph/graph_record.h"

/* A capture and its graph. */
struct under_way {
    struct flyt_capture capture;
    uint64_t graph_id;
    bool is_given;     /* the graph was there before */
    CUgraphNode *told; /* what flyt_capture_info has told last */
    CUgraphEdgeData *told_data;
};

static struct flyt_graph *graph_of_locked(const struct under_way *self)
{
    return flyt_graph_find_locked((CUgraph)(uintptr_t)self->graph_id);
}

/* ---- what is captured ---- */

/* The stream's next node comes after what it ends in, and is what it ends in then. */
static CUresult add_locked(struct under_way *self, struct flyt_stream *stream, struct flyt_node_data *data)
{
    struct flyt_graph *graph = graph_of_locked(self);
    CUresult result = graph ? flyt_graph_takes_locked(graph, data) : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (result)
        return result;
    struct flyt_graph_node *node = flyt_graph_append_locked(graph, data);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *data = (struct flyt_node_data){0}; /* the node's now */
    struct flyt_capture_ends *ends = &stream->captured.ends;
    for (unsigned i = 0; i < ends->count; i++) {
        struct flyt_graph_node *before = flyt_graph_node_find_locked((CUgraphNode)(uintptr_t)ends->list[i].node_id);
        const bool is_good = before && flyt_edge_data_is_good(before, node->data.kind, &ends->list[i].data);
        if (before && !flyt_graph_edge_add_locked(before, node, is_good ? &ends->list[i].data : NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    ends->count = 0;
    if (!flyt_capture_ends_add(ends, node->record.minted_id, NULL))
        return CUDA_ERROR_OUT_OF_MEMORY;
    ends->list[0].is_previous = true;
    return CUDA_SUCCESS;
}

CUresult flyt_capture_add_locked(struct flyt_stream *stream, struct flyt_node_data *data)
{
    struct flyt_capture *capture = flyt_capture_of_locked(stream);
    CUresult result = !capture || capture->is_invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
    if (!result)
        result = add_locked((struct under_way *)capture, stream, data);
    if (result && capture)
        capture->is_invalid = true;
    flyt_node_data_fini_locked(data);
    return result;
}

CUresult flyt_capture_add(struct flyt_stream *stream, struct flyt_node_data *data)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    CUresult result = flyt_capture_add_locked(stream, data);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

static CUresult add(struct flyt_stream *stream, CUresult result, struct flyt_node_data *data)
{
    return result ? result : flyt_capture_add(stream, data);
}

/* NULL: the launch has none such. */
static const CUlaunchAttributeValue *find_attribute(const struct flyt_launch *launch, CUlaunchAttributeID id)
{
    for (unsigned i = 0; i < launch->attribute_count; i++)
        if (launch->attributes[i].id == id)
            return &launch->attributes[i].value;
    return NULL;
}

/* The next kernel may begin before the one that the stream was given last has ended, unless it waits for anything else.
 */
static void loosen_locked(struct flyt_stream *stream)
{
    struct flyt_capture_ends *ends = &stream->captured.ends;
    if (ends->count == 1 && ends->list[0].is_previous)
        ends->list[0].data = (CUgraphEdgeData){.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                               .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC};
}

/* The event stands for the node that the stream was given last, or for a part of it. */
static CUresult note_event_locked(struct flyt_stream *stream, const CUlaunchAttribute *attribute)
{
    struct flyt_event *event = flyt_event_find(flyt_launch_event(attribute));
    bool is_captured;
    CUresult result =
        event ? flyt_capture_record_locked(stream, event, &is_captured) : CUDA_ERROR_INVALID_VALUE; /* it has gone */
    if (result)
        return result;
    const bool is_programmatic = attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT;
    CUgraphEdgeData *data = &event->captured.ends.list[0].data;
    data->type = is_programmatic ? CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC : CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
    data->from_port = is_programmatic && !attribute->value.programmaticEvent.triggerAtBlockStart
                          ? CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
                          : CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
    return CUDA_SUCCESS;
}

static CUresult add_launch(struct flyt_stream *stream, const struct flyt_launch *launch, struct flyt_node_data *data)
{
    const CUlaunchAttributeValue *serialization =
        find_attribute(launch, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
    pthread_mutex_lock(&flyt_captures.mutex);
    if (serialization && serialization->programmaticStreamSerializationAllowed)
        loosen_locked(stream);
    CUresult result = flyt_capture_add_locked(stream, data);
    for (unsigned i = 0; i < launch->attribute_count && !result; i++)
        if (flyt_launch_event(&launch->attributes[i]))
            result = note_event_locked(stream, &launch->attributes[i]);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

/* A kernel that has no priority of its own gets the stream's. */
static CUresult add_kernel(struct flyt_stream *stream, const struct flyt_launch *given)
{
    CUlaunchAttribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    struct flyt_launch launch = *given;
    struct flyt_node_data data;
    const int priority = flyt_stream_priority_now(stream);
    if (priority && launch.attribute_count < FLYT_LAUNCH_ATTRIBUTES_MAX &&
        !find_attribute(given, CU_LAUNCH_ATTRIBUTE_PRIORITY)) {
        if (launch.attribute_count)
            memcpy(attributes, launch.attributes, launch.attribute_count * sizeof *attributes);
        attributes[launch.attribute_count++] =
            (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PRIORITY, .value.priority = priority};
        launch.attributes = attributes;
    }
    CUresult result = flyt_node_data_kernel(&launch, (CUcontext)(uintptr_t)stream->context_id, &data);
    return result ? result : add_launch(stream, given, &data);
}

static CUresult add_copy(struct flyt_stream *stream, const struct flyt_copy *copy)
{
    struct flyt_node_data data;
    return add(stream, flyt_node_data_copy(copy, &data), &data);
}

static CUresult add_fill(struct flyt_stream *stream, const struct flyt_fill *fill)
{
    struct flyt_node_data data;
    return add(stream, flyt_node_data_fill(fill, &data), &data);
}

static CUresult add_function(struct flyt_stream *stream, CUhostFn function, void *user)
{
    struct flyt_node_data data;
    return add(stream, flyt_node_data_host(function, user, &data), &data);
}

static CUresult add_ops(struct flyt_stream *stream, unsigned count, const CUstreamBatchMemOpParams *ops)
{
    struct flyt_node_data data;
    return add(stream, flyt_node_data_ops(count, ops, 0, &data), &data);
}

static CUresult add_alloc(struct flyt_stream *stream, const CUmemLocation *location, size_t bytes,
                          CUdeviceptr *ret_address)
{
    const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = *location};
    struct flyt_node_data data;
    CUresult result = flyt_node_data_alloc(&props, bytes, &data);
    if (!result)
        *ret_address = data.memory.address;
    return add(stream, result, &data);
}

static CUresult add_free(struct flyt_stream *stream, CUdeviceptr address)
{
    struct flyt_node_data data;
    return add(stream, flyt_node_data_free(address, &data), &data);
}

/* The first stream comes after what the others end in, too. */
static CUresult join_locked(struct flyt_stream *const *streams, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        const struct flyt_capture_ends *ends = &streams[i]->captured.ends;
        if (streams[i]->captured.number != streams[0]->captured.number)
            return CUDA_ERROR_STREAM_CAPTURE_MERGE;
        for (unsigned k = 0; k < ends->count; k++)
            if (!flyt_capture_ends_add(&streams[0]->captured.ends, ends->list[k].node_id, &ends->list[k].data))
                return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* The others come after the first one's node. */
static CUresult fork_locked(struct flyt_stream *const *streams, unsigned count)
{
    for (unsigned i = 1; i < count; i++) {
        struct flyt_capture_ends *ends = &streams[i]->captured.ends;
        ends->count = 0;
        if (!flyt_capture_ends_add(ends, streams[0]->captured.ends.list[0].node_id, NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

static CUresult add_call_locked(struct flyt_stream *const *streams, unsigned count, struct flyt_node_data *data)
{
    CUresult result = join_locked(streams, count);
    if (result)
        flyt_node_data_fini_locked(data);
    else
        result = flyt_capture_add_locked(streams[0], data);
    return result ? result : fork_locked(streams, count);
}

static CUresult add_call(struct flyt_stream *const *streams, unsigned count, const struct flyt_captured_call *call)
{
    struct flyt_node_data data, own;
    data = (struct flyt_node_data){
        .kind = FLYT_NODE_CALL, .device = streams[0]->device, .call = (struct flyt_captured_call *)(uintptr_t)call};
    CUresult result = flyt_node_data_clone(&data, &own);
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    result = add_call_locked(streams, count, &own);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

static CUresult add_event(struct flyt_stream *stream, struct flyt_event *event, bool is_wait)
{
    struct flyt_node_data data;
    return add(stream, flyt_node_data_event((CUevent)(uintptr_t)event->record.minted_id, is_wait, &data), &data);
}

static void abandon_locked(struct flyt_capture *capture);

static const struct flyt_capture_ops ops = {.abandon_locked = abandon_locked,
                                            .kernel = add_kernel,
                                            .copy = add_copy,
                                            .fill = add_fill,
                                            .function = add_function,
                                            .memory_ops = add_ops,
                                            .alloc = add_alloc,
                                            .free = add_free,
                                            .call = add_call,
                                            .external = add_event};

/* ---- beginning ---- */

static CUresult get(CUstream handle, struct flyt_stream **ret_stream)
{
    CUresult result = flyt_client_enter();
    return result ? result : flyt_stream_get(handle, ret_stream);
}

static CUresult check_begin_locked(const struct flyt_stream *stream, CUstreamCaptureMode mode)
{
    if (mode > CU_STREAM_CAPTURE_MODE_RELAXED)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_capture_is_implicit_locked(stream))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    if (stream->is_legacy)
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    return flyt_capture_of_locked(stream) ? CUDA_ERROR_ILLEGAL_STATE : CUDA_SUCCESS;
}

/* With nodes of the given graph as what the stream ends in. NULL: a graph of its own. */
static CUresult begin_locked(struct flyt_stream *stream, struct flyt_graph *graph, const CUgraphNode *before,
                             const CUgraphEdgeData *edge_data, size_t count, CUstreamCaptureMode mode)
{
    struct under_way *self = calloc(1, sizeof *self);
    const bool is_given = graph;
    if (self && !graph)
        graph = flyt_graph_new_locked(false);
    if (!self || !graph) {
        free(self);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    self->capture = (struct flyt_capture){.next = flyt_captures.first,
                                          .number = ++flyt_captures.last_number,
                                          .mode = mode,
                                          .thread = flyt_thread_number(),
                                          .origin = stream};
    self->graph_id = graph->record.minted_id;
    self->is_given = is_given;
    graph->capture = self->capture.number;
    flyt_captures.ops = &ops;
    flyt_captures.first = &self->capture;
    atomic_fetch_add(&flyt_captures.count, 1);
    flyt_capture_join_locked(&self->capture, stream);
    for (size_t i = 0; i < count; i++)
        if (!flyt_capture_ends_add(&stream->captured.ends, (uint64_t)(uintptr_t)before[i],
                                   edge_data ? &edge_data[i] : NULL))
            self->capture.is_invalid = true;
    return CUDA_SUCCESS;
}

CUresult flyt_capture_begin(CUstream handle, CUstreamCaptureMode mode)
{
    struct flyt_stream *stream;
    CUresult result = get(handle, &stream);
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    result = check_begin_locked(stream, mode);
    if (!result)
        result = begin_locked(stream, NULL, NULL, NULL, 0, mode);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

static bool are_of_locked(const struct flyt_graph *graph, const CUgraphNode *nodes, size_t count)
{
    bool are = graph && (nodes || !count);
    for (size_t i = 0; i < count && are; i++) {
        const struct flyt_graph_node *node = flyt_graph_node_find_locked(nodes[i]);
        are = node && node->graph == graph;
    }
    return are;
}

CUresult flyt_capture_begin_to(CUstream handle, CUgraph graph_handle, const CUgraphNode *before,
                               const CUgraphEdgeData *edge_data, size_t count, CUstreamCaptureMode mode)
{
    struct flyt_stream *stream;
    CUresult result = get(handle, &stream);
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph *graph = flyt_graph_find_locked(graph_handle);
    result = check_begin_locked(stream, mode);
    if (!result && (!are_of_locked(graph, before, count) || graph->capture))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = begin_locked(stream, graph, before, edge_data, count, mode);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

/* ---- ending ---- */

/* Marks the nodes that the stream's ends come after, those included; `found` has room for all of the graph. */
static void mark_before_locked(struct flyt_graph *graph, const struct flyt_stream *stream,
                               struct flyt_graph_node **found)
{
    unsigned count = 0;
    for (unsigned i = 0; i < graph->count; i++)
        graph->nodes[i]->mark = 0;
    for (unsigned i = 0; i < stream->captured.ends.count; i++) {
        struct flyt_graph_node *node =
            flyt_graph_node_find_locked((CUgraphNode)(uintptr_t)stream->captured.ends.list[i].node_id);
        if (node && !node->mark++)
            found[count++] = node;
    }
    while (count) {
        const struct flyt_graph_node *node = found[--count];
        for (unsigned i = 0; i < node->before_count; i++)
            if (!node->before[i].node->mark++)
                found[count++] = node->before[i].node;
    }
}

/* Whether what other streams took part with comes before the end of the stream where the capture began. */
static CUresult check_joined_locked(const struct under_way *self)
{
    struct flyt_graph *graph = graph_of_locked(self);
    struct flyt_graph_node **found = calloc(graph->count + 1, sizeof(*found));
    CUresult result = found ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (found)
        mark_before_locked(graph, self->capture.origin, found);
    for (const struct flyt_stream *one = self->capture.streams; one && !result; one = one->capture_next)
        for (unsigned i = 0; i < one->captured.ends.count; i++) {
            const struct flyt_graph_node *node =
                flyt_graph_node_find_locked((CUgraphNode)(uintptr_t)one->captured.ends.list[i].node_id);
            if (node && !node->mark)
                result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
    free(found);
    return result;
}

/* With its graph, where that was its own and is_failed. */
static void free_locked(struct under_way *self, bool is_failed)
{
    struct flyt_graph *graph = graph_of_locked(self); /* a body may have gone with its node */
    flyt_capture_leave_locked(&self->capture);
    if (graph)
        graph->capture = 0;
    if (is_failed && !self->is_given)
        flyt_graph_free_locked(graph);
    free(self->told);
    free(self->told_data);
    free(self);
}

static void abandon_locked(struct flyt_capture *capture)
{
    free_locked((struct under_way *)capture, true);
}

static CUresult end_locked(struct flyt_stream *stream, CUgraph *ret_graph)
{
    struct under_way *self = (struct under_way *)flyt_capture_of_locked(stream);
    if (!self)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (self->capture.origin != stream) {
        self->capture.is_invalid = true;
        return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    }
    const bool is_wrong_thread =
        self->capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && self->capture.thread != flyt_thread_number();
    CUresult result = is_wrong_thread                                      ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                      : self->capture.is_invalid || !graph_of_locked(self) ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                                                                           : check_joined_locked(self);
    if (!result)
        *ret_graph = (CUgraph)(uintptr_t)self->graph_id;
    free_locked(self, result);
    return result;
}

CUresult flyt_capture_end(CUstream handle, CUgraph *ret_graph)
{
    struct flyt_stream *stream;
    CUresult result = get(handle, &stream);
    if (!result && !ret_graph)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    *ret_graph = NULL;
    pthread_mutex_lock(&flyt_captures.mutex);
    result = end_locked(stream, ret_graph);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

/* ---- asking and changing ---- */

static CUresult status_locked(const struct flyt_stream *stream, CUstreamCaptureStatus *ret_status,
                              struct under_way **ret_capture)
{
    struct flyt_capture *capture = flyt_capture_of_locked(stream);
    if (flyt_capture_is_implicit_locked(stream))
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    *ret_status = !capture              ? CU_STREAM_CAPTURE_STATUS_NONE
                  : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                        : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    *ret_capture = (struct under_way *)capture;
    return CUDA_SUCCESS;
}

/* Room for what is told, at least one. */
static CUresult tell_ends_locked(struct under_way *self, const struct flyt_capture_ends *ends)
{
    CUgraphNode *told = realloc(self->told, (ends->count + 1) * sizeof(*told));
    if (told)
        self->told = told;
    CUgraphEdgeData *told_data = realloc(self->told_data, (ends->count + 1) * sizeof *told_data);
    if (told_data)
        self->told_data = told_data;
    if (!told || !told_data)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < ends->count; i++) {
        told[i] = (CUgraphNode)(uintptr_t)ends->list[i].node_id;
        told_data[i] = ends->list[i].data;
    }
    return CUDA_SUCCESS;
}

CUresult flyt_capture_info(CUstream handle, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_number,
                           CUgraph *ret_graph, const CUgraphNode **ret_nodes, const CUgraphEdgeData **ret_edge_data,
                           size_t *ret_count)
{
    struct flyt_stream *stream;
    struct under_way *self = NULL;
    CUresult result = get(handle, &stream);
    if (!result && !ret_status)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    result = status_locked(stream, ret_status, &self);
    if (!result && *ret_status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        result = tell_ends_locked(self, &stream->captured.ends);
        if (!result && ret_nodes && !ret_edge_data)
            for (unsigned i = 0; i < stream->captured.ends.count; i++)
                if (!flyt_edge_data_is_default(&stream->captured.ends.list[i].data))
                    result = CUDA_ERROR_LOSSY_QUERY;
        if (ret_number)
            *ret_number = self->capture.number;
        if (ret_graph)
            *ret_graph = (CUgraph)(uintptr_t)self->graph_id;
        if (ret_nodes)
            *ret_nodes = self->told;
        if (ret_edge_data)
            *ret_edge_data = self->told_data;
        if (ret_count)
            *ret_count = stream->captured.ends.count;
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_capture_status(CUstream stream, CUstreamCaptureStatus *ret_status)
{
    return flyt_capture_info(stream, ret_status, NULL, NULL, NULL, NULL, NULL);
}

static CUresult update_locked(struct flyt_stream *stream, const CUgraphNode *nodes, const CUgraphEdgeData *edge_data,
                              size_t count, unsigned flags)
{
    struct under_way *self = (struct under_way *)flyt_capture_of_locked(stream);
    struct flyt_capture_ends *ends = &stream->captured.ends;
    if (!self)
        return CUDA_ERROR_ILLEGAL_STATE;
    if (self->capture.is_invalid)
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || !are_of_locked(graph_of_locked(self), nodes, count))
        return CUDA_ERROR_INVALID_VALUE;
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
        ends->count = 0;
    for (size_t i = 0; i < count; i++)
        if (!flyt_capture_ends_add(ends, (uint64_t)(uintptr_t)nodes[i], edge_data ? &edge_data[i] : NULL))
            return CUDA_ERROR_OUT_OF_MEMORY;
    return CUDA_SUCCESS;
}

CUresult flyt_capture_update(CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *edge_data, size_t count,
                             unsigned flags)
{
    struct flyt_stream *stream;
    CUresult result = get(handle, &stream);
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    result = update_locked(stream, nodes, edge_data, count, flags);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}
