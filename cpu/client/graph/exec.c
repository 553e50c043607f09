/* Executable graphs. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/graph_memory.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/graph/plan.h"

struct flyt_graph_exec {
    struct flyt_record record;
    struct flyt_graph *graph; /* a copy of the one that it was made of */
    cuuint64_t flags;
    uint64_t context_id;
    int device;
    struct flyt_plan *plan;           /* NULL: to be made */
    struct flyt_graph_node **changed; /* since the plan was made or brought up to date */
    unsigned changed_count, changed_room;
    uint64_t last_stream_id; /* of its last launch; 0: there was none */
    uint64_t last_stream_number;
    unsigned told_count; /* changes of nodes that the server was told of since call number told_after */
    uint64_t told_after;
};

/* A change waits at the server while an earlier launch of the graph does, and no stream's credit counts it. So many may
 * be under way, and half as many again. */
enum { TOLD_MAX = 16384 };

static struct flyt_table exec_table = FLYT_TABLE_INIT(FLYT_ID_GRAPH_EXEC, struct flyt_graph_exec, 1);

static struct flyt_graph_exec *find_locked(CUgraphExec handle)
{
    return flyt_table_find(&exec_table, (uint64_t)(uintptr_t)handle);
}

/* Its kernels run by those of their nodes. */
static bool has_priorities(const struct flyt_graph_exec *exec)
{
    return exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
}

static void drop_plan_locked(struct flyt_graph_exec *exec)
{
    flyt_plan_unref_locked(exec->plan);
    exec->plan = NULL;
}

/* The node does something else from the next launch on. */
static void note_changed_locked(struct flyt_graph_exec *exec, struct flyt_graph_node *node)
{
    if (!exec->plan || node->is_changed)
        return;
    if (exec->changed_count == exec->changed_room) {
        unsigned room = exec->changed_room ? 2 * exec->changed_room : 16;
        struct flyt_graph_node **list = realloc(exec->changed, room * sizeof(*list));
        if (!list) {
            drop_plan_locked(exec); /* a whole new one needs no list */
            return;
        }
        exec->changed = list;
        exec->changed_room = room;
    }
    exec->changed[exec->changed_count++] = node;
    node->is_changed = true;
}

/* As the graph is now: single nodes are changed where that goes. */
static CUresult make_plan_locked(struct flyt_graph_exec *exec)
{
    bool is_changed = exec->plan;
    for (unsigned i = 0; i < exec->changed_count && is_changed; i++)
        is_changed = flyt_plan_change_locked(exec->plan, exec->changed[i]);
    for (unsigned i = 0; i < exec->changed_count; i++)
        exec->changed[i]->is_changed = false;
    exec->told_count += exec->changed_count;
    exec->changed_count = 0;
    if (is_changed)
        return CUDA_SUCCESS;
    drop_plan_locked(exec);
    return flyt_plan_new_locked(exec->graph, exec->context_id, exec->device, has_priorities(exec), &exec->plan);
}

/* ---- life ---- */

static void free_locked(struct flyt_graph_exec *exec)
{
    flyt_table_take(&exec_table, exec->record.minted_id);
    drop_plan_locked(exec);
    flyt_graph_free_locked(exec->graph);
    exec->graph = NULL;
    free(exec->changed);
    exec->changed = NULL;
    flyt_table_free(&exec_table, &exec->record);
}

static CUresult new_locked(CUgraph handle, unsigned long long flags, uint64_t context_id, int device,
                           struct flyt_graph_exec **ret_exec)
{
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    if (!graph || graph->capture || !flyt_conditions_are_read_locked(graph))
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_graph_exec *exec = flyt_table_new(&exec_table);
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->graph = flyt_graph_copy_locked(graph, true);
    exec->flags = flags;
    exec->context_id = context_id;
    exec->device = device;
    exec->plan = NULL;
    exec->changed = NULL;
    exec->changed_count = exec->changed_room = 0;
    exec->last_stream_id = 0;
    exec->told_count = 0;
    exec->told_after = 0;
    flyt_table_publish(&exec->record);
    CUresult result = exec->graph ? make_plan_locked(exec) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        free_locked(exec);
    else
        *ret_exec = exec;
    return result;
}

CUresult flyt_graph_instantiate(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags)
{
    const unsigned long long known = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH |
                                     CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    struct flyt_graph_exec *exec;
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && (!ret_exec || flags & ~known))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
        result = flyt_not_supported("launch of graphs by the device");
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    result = new_locked(graph, flags, context_id, device, &exec);
    pthread_mutex_unlock(&flyt_captures.mutex);
    if (!result)
        *ret_exec = (CUgraphExec)(uintptr_t)exec->record.minted_id;
    return result;
}

static bool has_unread_condition(CUgraph handle)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    const bool has = graph && !flyt_conditions_are_read_locked(graph);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return has;
}

static CUgraphInstantiateResult told(CUresult result, CUgraph graph)
{
    switch (result) {
    case CUDA_SUCCESS:
        return CUDA_GRAPH_INSTANTIATE_SUCCESS;
    case CUDA_ERROR_INVALID_VALUE:
        return has_unread_condition(graph) ? CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED
                                           : CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    case CUDA_ERROR_NOT_SUPPORTED:
        return CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    default:
        return CUDA_GRAPH_INSTANTIATE_ERROR;
    }
}

CUresult flyt_graph_instantiate_params(CUgraphExec *ret_exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    CUresult result = params ? flyt_graph_instantiate(ret_exec, graph, params->flags) : CUDA_ERROR_INVALID_VALUE;
    if (!params)
        return result;
    params->hErrNode_out = NULL;
    params->result_out = told(result, graph);
    if (!result && params->flags & CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD)
        result = flyt_graph_upload(*ret_exec, params->hUploadStream);
    return result;
}

CUresult flyt_graph_exec_destroy(CUgraphExec handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_exec *exec = find_locked(handle);
    if (exec)
        free_locked(exec);
    pthread_mutex_unlock(&flyt_captures.mutex);
    flyt_user_objects_settle();
    return exec ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_graph_exec_flags(CUgraphExec handle, cuuint64_t *ret_flags)
{
    /* The first cuGraphExecGetFlags documents; the other the driver of an H200 (580.159.04) does not tell either. */
    const cuuint64_t hidden = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph_exec *exec = find_locked(handle);
    if (exec && ret_flags)
        *ret_flags = exec->flags & ~hidden;
    pthread_mutex_unlock(&flyt_captures.mutex);
    return exec && ret_flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- launching ---- */

/* What a launch allocates is allocated then, until it is freed; by the same launch, perhaps. */
static CUresult allocate_locked(const struct flyt_graph *graph, bool is_freed_first)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < graph->count && !result; i++)
        if (graph->nodes[i]->data.kind == FLYT_NODE_ALLOC)
            result = flyt_graph_memory_allocate(graph->nodes[i]->data.memory.address, is_freed_first);
    for (unsigned i = 0; i < graph->count && !result; i++)
        if (graph->nodes[i]->data.kind == FLYT_NODE_FREE)
            flyt_graph_memory_free(graph->nodes[i]->data.memory.address, &result);
    return result;
}

/* Whether the server has too many changes before it. */
static bool is_far_ahead_locked(struct flyt_graph_exec *exec)
{
    const uint64_t told_after = exec->told_after;
    if (exec->told_count <= TOLD_MAX)
        return false;
    exec->told_count = 0;
    exec->told_after = flyt_channel_kept_sums(flyt_client.channel).last;
    return flyt_channel_progress(flyt_client.channel).executed < told_after;
}

/* The plan, with a reference, and the stream of its last launch where the next one must come after that: the server
 * orders launches of one segment, and no more. */
static CUresult take_plan(CUgraphExec handle, const struct flyt_stream *stream, bool is_launch,
                          struct flyt_plan **ret_plan, uint64_t *ret_after, uint64_t *ret_after_number)
{
    *ret_after = 0;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_exec *exec = find_locked(handle);
    CUresult result = exec ? make_plan_locked(exec) : CUDA_ERROR_INVALID_VALUE;
    if (!result && is_launch && exec->plan->has_memory)
        result = allocate_locked(exec->graph, exec->flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    if (!result) {
        const bool is_elsewhere =
            exec->last_stream_id != stream->stream_id || exec->last_stream_number != stream->number;
        const bool is_after = (exec->plan->count > 1 && is_elsewhere) || (is_launch && is_far_ahead_locked(exec));
        if (is_after && exec->last_stream_id) {
            *ret_after = exec->last_stream_id;
            *ret_after_number = exec->last_stream_number;
        }
        exec->last_stream_id = stream->stream_id;
        exec->last_stream_number = stream->number;
        *ret_plan = exec->plan;
        exec->plan->refs++;
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

static void give_back(struct flyt_plan *plan)
{
    pthread_mutex_lock(&flyt_captures.mutex);
    flyt_plan_unref_locked(plan);
    pthread_mutex_unlock(&flyt_captures.mutex);
}

/* Launches of one executable graph do not overlap, whatever streams they are in. */
static CUresult wait_for_last(uint64_t stream_id, uint64_t number)
{
    struct flyt_stream *stream = flyt_stream_find(stream_id);
    return stream && stream->number == number ? flyt_stream_wait(stream) : flyt_device_synchronize();
}

CUresult flyt_graph_launch(CUgraphExec handle, CUstream stream_handle)
{
    struct flyt_stream *stream;
    struct flyt_plan *plan;
    uint64_t after, after_number;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    if (!result)
        result = flyt_capture_refuse(stream);
    if (!result)
        result = take_plan(handle, stream, true, &plan, &after, &after_number);
    if (result)
        return result;
    if (after)
        result = wait_for_last(after, after_number);
    if (!result)
        result = flyt_plan_run(plan, stream);
    give_back(plan);
    return result || !flyt_stream_is_waited_for() ? result : flyt_stream_wait(stream);
}

CUresult flyt_graph_upload(CUgraphExec handle, CUstream stream_handle)
{
    struct flyt_stream *stream;
    struct flyt_plan *plan;
    uint64_t after, after_number;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    if (!result)
        result = flyt_capture_refuse(stream);
    if (!result)
        result = take_plan(handle, stream, false, &plan, &after, &after_number);
    if (result)
        return result;
    result = flyt_plan_upload(plan, stream);
    give_back(plan);
    return result;
}

/* ---- changing ---- */

/* The copy of the node in the graph, or in a child or body of it. */
static struct flyt_graph_node *find_copy_locked(const struct flyt_graph *graph, uint64_t original_id)
{
    struct flyt_graph_node *found = NULL;
    for (unsigned i = 0; i < graph->count && !found; i++) {
        const struct flyt_node_data *data = &graph->nodes[i]->data;
        if (graph->nodes[i]->original_id == original_id)
            found = graph->nodes[i];
        else if (data->kind == FLYT_NODE_CHILD)
            found = find_copy_locked(data->child, original_id);
        for (unsigned body = 0; data->kind == FLYT_NODE_CONDITIONAL && body < data->conditional.body_count; body++)
            found = found ? found : find_copy_locked(data->conditional.bodies[body], original_id);
    }
    return found;
}

/* Nodes are mostly looked for in order: where the original is in its graph comes first. */
static struct flyt_graph_node *find_node_locked(const struct flyt_graph_exec *exec, CUgraphNode handle)
{
    const uint64_t original_id = (uint64_t)(uintptr_t)handle;
    const struct flyt_graph_node *original = flyt_graph_node_find_locked(handle);
    const struct flyt_graph *graph = exec->graph;
    if (original && original->place < graph->count && graph->nodes[original->place]->original_id == original_id)
        return graph->nodes[original->place];
    return find_copy_locked(graph, original_id);
}

CUresult flyt_graph_exec_set(CUgraphExec handle, CUgraphNode node_handle, struct flyt_node_data *data)
{
    CUresult result = flyt_client_enter();
    if (result) {
        flyt_node_data_fini(data);
        return result;
    }
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_exec *exec = find_locked(handle);
    struct flyt_graph_node *node = exec ? find_node_locked(exec, node_handle) : NULL;
    if (!node || node->data.kind != data->kind || !flyt_node_data_may_become(&node->data, data))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (data->kind == FLYT_NODE_CONDITIONAL)
        result = CUDA_ERROR_NOT_SUPPORTED;
    if (!result) {
        struct flyt_node_data old = node->data;
        node->data = *data;
        *data = old;
        note_changed_locked(exec, node);
    }
    flyt_node_data_fini_locked(data);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_exec_set_event(CUgraphExec exec, CUgraphNode node, bool is_wait, CUevent event)
{
    struct flyt_node_data data;
    CUresult result = flyt_node_data_event(event, is_wait, &data);
    return result ? result : flyt_graph_exec_set(exec, node, &data);
}

static bool may_be_disabled(const struct flyt_graph_node *node)
{
    return node->data.kind == FLYT_NODE_KERNEL || node->data.kind == FLYT_NODE_FILL ||
           node->data.kind == FLYT_NODE_COPY;
}

CUresult flyt_graph_exec_enable(CUgraphExec handle, CUgraphNode node_handle, unsigned is_enabled)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_exec *exec = find_locked(handle);
    struct flyt_graph_node *node = exec ? find_node_locked(exec, node_handle) : NULL;
    if (!result && (!node || !may_be_disabled(node)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && node->is_disabled == (is_enabled != 0)) {
        node->is_disabled = !is_enabled;
        note_changed_locked(exec, node);
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_exec_is_enabled(CUgraphExec handle, CUgraphNode node_handle, unsigned *ret_is_enabled)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph_exec *exec = find_locked(handle);
    const struct flyt_graph_node *node = exec ? find_node_locked(exec, node_handle) : NULL;
    if (!result && (!node || !ret_is_enabled || !may_be_disabled(node)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_is_enabled = !node->is_disabled;
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

/* ---- updates of the whole ---- */

static CUresult take_over_locked(struct flyt_graph_exec *exec, struct flyt_graph *own, const struct flyt_graph *other);

/* The condition is the other graph's from now on. */
static CUresult take_over_conditional_locked(struct flyt_graph_exec *exec, struct flyt_node_data *own,
                                             const struct flyt_node_data *other)
{
    CUresult result = CUDA_SUCCESS;
    own->conditional.handle = other->conditional.handle;
    own->conditional.context = other->conditional.context;
    for (unsigned i = 0; i < own->conditional.body_count && !result; i++)
        result = take_over_locked(exec, own->conditional.bodies[i], other->conditional.bodies[i]);
    return result;
}

/* Of two graphs that were paired: what nodes do, not which nodes they are copies of. */
static CUresult take_over_locked(struct flyt_graph_exec *exec, struct flyt_graph *own, const struct flyt_graph *other)
{
    CUresult result = flyt_conditions_copy_locked(own, other) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < own->count && !result; i++) {
        struct flyt_node_data *data = &own->nodes[i]->data, fresh;
        const struct flyt_node_data *from = &own->nodes[i]->pair->data;
        if (data->kind == FLYT_NODE_CHILD) {
            result = take_over_locked(exec, data->child, from->child);
            continue;
        }
        if (data->kind == FLYT_NODE_CONDITIONAL) {
            result = take_over_conditional_locked(exec, data, from);
            note_changed_locked(exec, own->nodes[i]);
            continue;
        }
        if (flyt_node_data_is_same(data, from))
            continue;
        result = flyt_node_data_clone(from, &fresh);
        if (result)
            break;
        flyt_node_data_fini_locked(data);
        *data = fresh;
        note_changed_locked(exec, own->nodes[i]);
    }
    return result;
}

CUresult flyt_graph_exec_update(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *ret_info)
{
    CUgraphExecUpdateResultInfo info;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_exec *exec = find_locked(handle);
    struct flyt_graph *graph = flyt_graph_find_locked(graph_handle);
    if (!exec || !graph)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result) {
        info = flyt_graph_pair_locked(exec->graph, graph, has_priorities(exec));
        result = info.result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : take_over_locked(exec, exec->graph, graph);
        if (ret_info)
            *ret_info = info;
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_exec_set_child(CUgraphExec handle, CUgraphNode node_handle, CUgraph child_handle)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_exec *exec = find_locked(handle);
    struct flyt_graph_node *node = exec ? find_node_locked(exec, node_handle) : NULL;
    struct flyt_graph *child = flyt_graph_find_locked(child_handle);
    if (!result && (!node || node->data.kind != FLYT_NODE_CHILD || !child))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && flyt_graph_pair_locked(node->data.child, child, has_priorities(exec)).result)
        result = CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
    if (!result)
        result = take_over_locked(exec, node->data.child, child);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}
