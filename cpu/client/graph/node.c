/* Nodes: adding, asking and changing them. */
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/graph/graph_record.h"
#include "rpc/proto/limits.h"

/* ---- adding ---- */

static CUresult add_locked(struct flyt_graph *graph, const CUgraphNode *before, const CUgraphEdgeData *edge_data,
                           size_t count, struct flyt_node_data *data, struct flyt_graph_node **ret_node)
{
    for (size_t i = 0; i < count; i++) {
        const struct flyt_graph_node *one = flyt_graph_node_find_locked(before[i]);
        if (!one || one->graph != graph || !flyt_edge_data_is_good(one, data->kind, edge_data ? &edge_data[i] : NULL))
            return CUDA_ERROR_INVALID_VALUE;
        for (size_t other = 0; other < i && count < 1024; other++)
            if (before[other] == before[i])
                return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result = flyt_graph_takes_locked(graph, data);
    if (result)
        return result;
    struct flyt_graph_node *node = flyt_graph_append_locked(graph, data);
    if (!node)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *data = (struct flyt_node_data){0}; /* the node's now */
    for (size_t i = 0; i < count; i++)
        if (!flyt_graph_edge_add_locked(flyt_graph_node_find_locked(before[i]), node,
                                        edge_data ? &edge_data[i] : NULL)) {
            flyt_graph_node_free_locked(node);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
    *ret_node = node;
    return CUDA_SUCCESS;
}

CUresult flyt_graph_add(CUgraphNode *ret_node, CUgraph handle, const CUgraphNode *before,
                        const CUgraphEdgeData *edge_data, size_t count, struct flyt_node_data *data)
{
    struct flyt_graph_node *node;
    CUresult result = flyt_client_enter();
    if (result) {
        flyt_node_data_fini(data);
        return result;
    }
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph *graph = flyt_graph_find_locked(handle);
    if (!ret_node || !graph || (count && !before))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = add_locked(graph, before, edge_data, count, data, &node);
    if (!result)
        *ret_node = (CUgraphNode)(uintptr_t)node->record.minted_id;
    flyt_node_data_fini_locked(data);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_add_empty(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count)
{
    struct flyt_node_data data = {.kind = FLYT_NODE_EMPTY, .device = -1};
    return flyt_graph_add(ret_node, graph, before, NULL, count, &data);
}

CUresult flyt_graph_add_child(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                              CUgraph child)
{
    struct flyt_node_data data;
    CUresult result = graph == child ? CUDA_ERROR_INVALID_VALUE : flyt_node_data_child(child, &data);
    return result ? result : flyt_graph_add(ret_node, graph, before, NULL, count, &data);
}

static CUresult add_event(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count, CUevent event,
                          bool is_wait)
{
    struct flyt_node_data data;
    CUresult result = flyt_node_data_event(event, is_wait, &data);
    return result ? result : flyt_graph_add(ret_node, graph, before, NULL, count, &data);
}

CUresult flyt_graph_add_record(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                               CUevent event)
{
    return add_event(ret_node, graph, before, count, event, false);
}

CUresult flyt_graph_add_wait(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                             CUevent event)
{
    return add_event(ret_node, graph, before, count, event, true);
}

CUresult flyt_graph_add_free(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                             CUdeviceptr address)
{
    struct flyt_node_data data;
    CUresult result = flyt_node_data_free(address, &data);
    return result ? result : flyt_graph_add(ret_node, graph, before, NULL, count, &data);
}

/* ---- asking ---- */

/* The node, with the mutex held, which leave_locked gives back; NULL: unknown, or the result is not CUDA_SUCCESS. In a
 * forked child, of which flyt_client_enter tells, another thread may have left the mutex locked. */
static struct flyt_graph_node *enter_locked(CUgraphNode handle, CUresult *result)
{
    *result = flyt_client_enter();
    if (*result && flyt_client_is_forked())
        return NULL;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph_node *node = *result ? NULL : flyt_graph_node_find_locked(handle);
    if (!*result && !node)
        *result = CUDA_ERROR_INVALID_VALUE;
    return node;
}

static CUresult leave_locked(CUresult result)
{
    if (!flyt_client_is_forked())
        pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_node_destroy(CUgraphNode handle)
{
    CUresult result;
    struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && ((node->graph->is_inner && !node->graph->owner) || node->graph->capture))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (node)
        flyt_graph_node_free_locked(node);
    leave_locked(result);
    flyt_user_objects_settle();
    return result;
}

CUresult flyt_graph_node_type(CUgraphNode handle, CUgraphNodeType *ret_type)
{
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && !ret_type)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (node)
        *ret_type = flyt_node_data_type(&node->data);
    return leave_locked(result);
}

CUresult flyt_graph_node_in_clone(CUgraphNode *ret_node, CUgraphNode original, CUgraph clone)
{
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(original, &result), *found = NULL;
    const struct flyt_graph *graph = node ? flyt_graph_find_locked(clone) : NULL;
    for (unsigned i = 0; graph && i < graph->count && !found; i++)
        if (graph->nodes[i]->original_id == node->record.minted_id)
            found = graph->nodes[i];
    if (found && ret_node)
        *ret_node = (CUgraphNode)(uintptr_t)found->record.minted_id;
    else if (!result)
        result = CUDA_ERROR_INVALID_VALUE;
    return leave_locked(result);
}

CUresult flyt_graph_node_get(CUgraphNode handle, enum flyt_node_kind kind, const struct flyt_node_data **ret_data)
{
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && node->data.kind != kind)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (node)
        *ret_data = &node->data;
    return leave_locked(result);
}

CUresult flyt_graph_node_child(CUgraphNode handle, CUgraph *ret_child)
{
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && node->data.kind == FLYT_NODE_CALL)
        result = flyt_not_supported("graph of a library's call");
    else if (node && (node->data.kind != FLYT_NODE_CHILD || !ret_child))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (node)
        *ret_child = (CUgraph)(uintptr_t)node->data.child->record.minted_id;
    return leave_locked(result);
}

CUresult flyt_graph_node_event(CUgraphNode handle, bool is_wait, CUevent *ret_event)
{
    const struct flyt_node_data *data;
    CUresult result = flyt_graph_node_get(handle, is_wait ? FLYT_NODE_WAIT : FLYT_NODE_RECORD, &data);
    if (!result && !ret_event)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_event = data->event;
    return result;
}

CUresult flyt_graph_node_freed(CUgraphNode handle, CUdeviceptr *ret_address)
{
    const struct flyt_node_data *data;
    CUresult result = flyt_graph_node_get(handle, FLYT_NODE_FREE, &data);
    if (!result && !ret_address)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_address = data->memory.address;
    return result;
}

/* ---- changing ---- */

CUresult flyt_graph_node_set(CUgraphNode handle, struct flyt_node_data *data)
{
    CUresult result;
    struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && node->data.kind != data->kind) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (node && data->kind == FLYT_NODE_CONDITIONAL) {
        result = CUDA_ERROR_NOT_SUPPORTED;
    } else if (node) {
        struct flyt_node_data old = node->data;
        node->data = *data;
        *data = old;
    }
    flyt_node_data_fini_locked(data);
    return leave_locked(result);
}

CUresult flyt_graph_node_event_set(CUgraphNode node, bool is_wait, CUevent event)
{
    struct flyt_node_data data;
    CUresult result = flyt_node_data_event(event, is_wait, &data);
    return result ? result : flyt_graph_node_set(node, &data);
}

CUresult flyt_graph_node_attribute(CUgraphNode handle, CUlaunchAttributeID id, CUlaunchAttributeValue *ret_value)
{
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && (node->data.kind != FLYT_NODE_KERNEL || !ret_value)) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (node) {
        *ret_value = flyt_node_data_attribute(&node->data, id);
    }
    return leave_locked(result);
}

/* The check asks of the kernel and may ask the server: the mutex is not held meanwhile. */
CUresult flyt_graph_node_attribute_set(CUgraphNode handle, CUlaunchAttributeID id, const CUlaunchAttributeValue *value)
{
    struct flyt_node_data data;
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(handle, &result);
    if (node && (node->data.kind != FLYT_NODE_KERNEL || !value))
        result = CUDA_ERROR_INVALID_VALUE;
    else if (node)
        result = flyt_node_data_clone(&node->data, &data);
    leave_locked(result);
    if (result)
        return result;
    result = flyt_node_data_set_attribute(&data, id, value);
    if (!result)
        return flyt_graph_node_set(handle, &data);
    flyt_node_data_fini(&data);
    return result;
}

CUresult flyt_graph_node_attributes_copy(CUgraphNode to, CUgraphNode from)
{
    CUlaunchAttribute list[FLYT_LAUNCH_ATTRIBUTES_MAX];
    unsigned count = 0;
    CUresult result;
    const struct flyt_graph_node *node = enter_locked(from, &result);
    if (node && node->data.kind != FLYT_NODE_KERNEL) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else if (node) {
        count = node->data.kernel.launch.attribute_count;
        memcpy(list, node->data.kernel.launch.attributes, count * sizeof *list);
    }
    leave_locked(result);
    for (unsigned i = 0; i < count && !result; i++)
        result = flyt_graph_node_attribute_set(to, list[i].id, &list[i].value);
    return result;
}
