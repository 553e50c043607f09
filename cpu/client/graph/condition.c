/*
 * Conditions of conditional nodes. A handle stands for the condition: it is a number of this library's that no other
 * condition ever has, and nothing else that a kernel is given is likely to be. The server puts the driver's handle in
 * its place in the parameters of a graph's kernels (graph.api), each time that it makes the driver's graph.
 */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/graph/graph_record.h"

static uint64_t last_number; /* under the mutex */

static const struct flyt_graph *parent_of(const struct flyt_graph *graph)
{
    return graph->owner ? graph->owner->graph : NULL;
}

const struct flyt_condition *flyt_condition_find_locked(const struct flyt_graph *graph, uint64_t handle)
{
    for (; graph; graph = parent_of(graph))
        for (unsigned i = 0; i < graph->condition_count; i++)
            if (graph->conditions[i].handle == handle)
                return &graph->conditions[i];
    return NULL;
}

/* Whether a conditional node of the graph, or of a body in it, reads the condition. */
static bool is_read(const struct flyt_graph *graph, uint64_t handle)
{
    bool is = false;
    for (unsigned i = 0; i < graph->count && !is; i++) {
        const struct flyt_node_data *data = &graph->nodes[i]->data;
        if (data->kind != FLYT_NODE_CONDITIONAL)
            continue;
        is = data->conditional.handle == handle;
        for (unsigned body = 0; body < data->conditional.body_count && !is; body++)
            is = is_read(data->conditional.bodies[body], handle);
    }
    return is;
}

bool flyt_conditions_are_read_locked(const struct flyt_graph *graph)
{
    bool are = true;
    for (unsigned i = 0; i < graph->condition_count && are; i++)
        are = is_read(graph, graph->conditions[i].handle);
    for (unsigned i = 0; i < graph->count && are; i++) {
        const struct flyt_node_data *data = &graph->nodes[i]->data;
        for (unsigned body = 0; data->kind == FLYT_NODE_CONDITIONAL && body < data->conditional.body_count; body++)
            are = are && flyt_conditions_are_read_locked(data->conditional.bodies[body]);
    }
    return are;
}

/* ---- which nodes a graph takes ---- */

static bool may_be_in_body(enum flyt_node_kind kind)
{
    switch (kind) {
    case FLYT_NODE_EMPTY:
    case FLYT_NODE_KERNEL:
    case FLYT_NODE_COPY:
    case FLYT_NODE_FILL:
    case FLYT_NODE_CHILD:
    case FLYT_NODE_CALL:
    case FLYT_NODE_CONDITIONAL:
        return true;
    default:
        return false;
    }
}

static bool may_all_be_in_body(const struct flyt_graph *child)
{
    bool may = true;
    for (unsigned i = 0; i < child->count && may; i++) {
        const struct flyt_node_data *data = &child->nodes[i]->data;
        may = may_be_in_body(data->kind) && (data->kind != FLYT_NODE_CHILD || may_all_be_in_body(data->child));
    }
    return may;
}

/* A library that waits for the GPU cannot be captured, which the server does where it makes a body. */
static bool has_waiting_call(const struct flyt_node_data *data)
{
    bool has = data->kind == FLYT_NODE_CALL && data->call->waits;
    for (unsigned i = 0; data->kind == FLYT_NODE_CHILD && i < data->child->count && !has; i++)
        has = has_waiting_call(&data->child->nodes[i]->data);
    return has;
}

/* Each condition is read by one node. */
static bool is_good_reader(const struct flyt_graph *graph, const struct flyt_node_data *data)
{
    const struct flyt_condition *condition = flyt_condition_find_locked(graph, data->conditional.handle);
    while (parent_of(graph))
        graph = parent_of(graph);
    return condition && condition->context == data->conditional.context && !is_read(graph, condition->handle);
}

CUresult flyt_graph_takes_locked(const struct flyt_graph *graph, const struct flyt_node_data *data)
{
    if (data->kind == FLYT_NODE_CONDITIONAL && !is_good_reader(graph, data))
        return CUDA_ERROR_INVALID_VALUE;
    if (graph->owner && has_waiting_call(data))
        return flyt_not_supported("call that waits in one of NVIDIA's libraries, in the body of a conditional node");
    if (graph->owner &&
        (!may_be_in_body(data->kind) || (data->kind == FLYT_NODE_CHILD && !may_all_be_in_body(data->child))))
        return CUDA_ERROR_NOT_SUPPORTED;
    return CUDA_SUCCESS;
}

/* ---- what a node names ---- */

bool flyt_conditions_named_locked(const struct flyt_graph_node *node, flyt_condition_see_fn see, void *user)
{
    const struct flyt_node_data *data = &node->data;
    bool is_done = true;
    if (data->kind == FLYT_NODE_KERNEL)
        for (uint64_t at = 0, word; at + sizeof word <= data->kernel.taken->param_bytes && is_done; at += sizeof word) {
            memcpy(&word, data->kernel.taken->buffer + at, sizeof word);
            is_done = flyt_id_type(word) != FLYT_ID_GRAPH_CONDITION || see(user, word, NULL);
        }
    if (data->kind == FLYT_NODE_CONDITIONAL)
        is_done = see(user, data->conditional.handle, node);
    const unsigned graph_count = data->kind == FLYT_NODE_CONDITIONAL ? data->conditional.body_count
                                 : data->kind == FLYT_NODE_CHILD     ? 1
                                                                     : 0;
    for (unsigned i = 0; i < graph_count && is_done; i++) {
        const struct flyt_graph *graph = data->kind == FLYT_NODE_CHILD ? data->child : data->conditional.bodies[i];
        for (unsigned at = 0; at < graph->count && is_done; at++)
            is_done = flyt_conditions_named_locked(graph->nodes[at], see, user);
    }
    return is_done;
}

/* ---- the API ---- */

static CUresult add_locked(struct flyt_graph *graph, const struct flyt_condition *condition,
                           CUgraphConditionalHandle *ret_handle)
{
    struct flyt_condition *list = realloc(graph->conditions, (graph->condition_count + 1) * sizeof *list);
    if (!list)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->conditions = list;
    list[graph->condition_count] = *condition;
    list[graph->condition_count].handle = flyt_id(FLYT_ID_GRAPH_CONDITION, ++last_number);
    *ret_handle = list[graph->condition_count++].handle;
    return CUDA_SUCCESS;
}

CUresult flyt_graph_condition_create(CUgraphConditionalHandle *ret_handle, CUgraph handle, CUcontext context,
                                     unsigned default_value, unsigned flags)
{
    struct flyt_condition condition = {.default_value = default_value, .flags = flags};
    CUresult result = flyt_client_enter();
    if (!result && (!ret_handle || flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph *graph = flyt_graph_find_locked(handle);
    if (!graph || (graph->is_inner && !graph->owner))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_node_data_context(context, &condition.context);
    if (!result)
        result = add_locked(graph, &condition, ret_handle);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}
