/* Graphs and their edges. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/graph/graph_record.h"

static struct flyt_table graph_table = FLYT_TABLE_INIT(FLYT_ID_GRAPH, struct flyt_graph, 1);
static struct flyt_table node_table = FLYT_TABLE_INIT(FLYT_ID_GRAPH_NODE, struct flyt_graph_node, 1);

/* ---- records ---- */

struct flyt_graph *flyt_graph_find_locked(CUgraph handle)
{
    return flyt_table_find(&graph_table, (uint64_t)(uintptr_t)handle);
}

struct flyt_graph_node *flyt_graph_node_find_locked(CUgraphNode handle)
{
    return flyt_table_find(&node_table, (uint64_t)(uintptr_t)handle);
}

struct flyt_graph *flyt_graph_new_locked(bool is_inner)
{
    struct flyt_graph *graph = flyt_table_new(&graph_table);
    if (!graph)
        return NULL;
    graph->nodes = NULL;
    graph->count = graph->room = 0;
    graph->is_inner = is_inner;
    graph->capture = graph->original_id = 0;
    graph->holds = NULL;
    graph->owner = NULL;
    graph->conditions = NULL;
    graph->condition_count = 0;
    flyt_table_publish(&graph->record);
    return graph;
}

static void free_node_record(struct flyt_graph_node *node)
{
    flyt_table_take(&node_table, node->record.minted_id);
    flyt_node_data_fini_locked(&node->data);
    free(node->before);
    node->before = NULL;
    flyt_table_free(&node_table, &node->record);
}

void flyt_graph_free_locked(struct flyt_graph *graph)
{
    if (!graph)
        return;
    flyt_table_take(&graph_table, graph->record.minted_id);
    flyt_user_holds_free_locked(graph);
    for (unsigned i = 0; i < graph->count; i++)
        free_node_record(graph->nodes[i]);
    free(graph->nodes);
    free(graph->conditions);
    graph->nodes = NULL;
    graph->conditions = NULL;
    graph->count = graph->condition_count = 0;
    flyt_table_free(&graph_table, &graph->record);
}

static bool grow(struct flyt_graph *graph)
{
    if (graph->count < graph->room)
        return true;
    unsigned room = graph->room ? 2 * graph->room : 8;
    struct flyt_graph_node **nodes = realloc(graph->nodes, room * sizeof *nodes);
    if (!nodes)
        return false;
    graph->nodes = nodes;
    graph->room = room;
    return true;
}

struct flyt_graph_node *flyt_graph_append_locked(struct flyt_graph *graph, struct flyt_node_data *data)
{
    struct flyt_graph_node *node = grow(graph) ? flyt_table_new(&node_table) : NULL;
    if (!node)
        return NULL;
    node->graph = graph;
    node->place = graph->count;
    node->original_id = 0;
    node->is_disabled = false;
    node->data = *data;
    node->before = NULL;
    node->before_count = node->before_room = 0;
    for (unsigned i = 0; data->kind == FLYT_NODE_CONDITIONAL && i < data->conditional.body_count; i++)
        data->conditional.bodies[i]->owner = node;
    graph->nodes[graph->count++] = node;
    flyt_table_publish(&node->record);
    return node;
}

static void remove_edge(struct flyt_graph_node *node, unsigned place)
{
    memmove(&node->before[place], &node->before[place + 1], (node->before_count - place - 1) * sizeof *node->before);
    node->before_count--;
}

void flyt_graph_node_free_locked(struct flyt_graph_node *node)
{
    struct flyt_graph *graph = node->graph;
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            if (graph->nodes[i]->before[at].node == node)
                remove_edge(graph->nodes[i], at--);
    for (unsigned i = node->place + 1; i < graph->count; i++) {
        graph->nodes[i - 1] = graph->nodes[i];
        graph->nodes[i - 1]->place = i - 1;
    }
    graph->count--;
    free_node_record(node);
}

bool flyt_edge_data_is_default(const CUgraphEdgeData *data)
{
    static const CUgraphEdgeData none;
    return !data || memcmp(data, &none, sizeof none) == 0;
}

static struct flyt_edge *find_edge(const struct flyt_graph_node *from, const struct flyt_graph_node *to)
{
    for (unsigned i = 0; i < to->before_count; i++)
        if (to->before[i].node == from)
            return &to->before[i];
    return NULL;
}

bool flyt_graph_edge_add_locked(struct flyt_graph_node *from, struct flyt_graph_node *to, const CUgraphEdgeData *data)
{
    if (to->before_count == to->before_room) {
        unsigned room = to->before_room ? 2 * to->before_room : 2;
        struct flyt_edge *before = realloc(to->before, room * sizeof *before);
        if (!before)
            return false;
        to->before = before;
        to->before_room = room;
    }
    to->before[to->before_count++] = (struct flyt_edge){from, data ? *data : (CUgraphEdgeData){0}};
    return true;
}

/* ---- copies ---- */

bool flyt_graph_is_single_locked(const struct flyt_graph *graph)
{
    bool is_single = false;
    for (unsigned i = 0; i < graph->count && !is_single; i++) {
        const enum flyt_node_kind kind = graph->nodes[i]->data.kind;
        is_single = kind == FLYT_NODE_ALLOC || kind == FLYT_NODE_FREE || kind == FLYT_NODE_CONDITIONAL;
    }
    return is_single;
}

static bool copy_nodes(struct flyt_graph *copy, const struct flyt_graph *original)
{
    for (unsigned i = 0; i < original->count; i++) {
        struct flyt_node_data data;
        if (flyt_node_data_clone(&original->nodes[i]->data, &data))
            return false;
        struct flyt_graph_node *node = flyt_graph_append_locked(copy, &data);
        if (!node) {
            flyt_node_data_fini_locked(&data);
            return false;
        }
        node->original_id = original->nodes[i]->record.minted_id;
    }
    for (unsigned i = 0; i < original->count; i++)
        for (unsigned at = 0; at < original->nodes[i]->before_count; at++) {
            const struct flyt_edge *edge = &original->nodes[i]->before[at];
            if (!flyt_graph_edge_add_locked(copy->nodes[edge->node->place], copy->nodes[i], &edge->data))
                return false;
        }
    return true;
}

bool flyt_conditions_copy_locked(struct flyt_graph *to, const struct flyt_graph *from)
{
    struct flyt_condition *copy = calloc(from->condition_count + 1, sizeof *copy);
    if (!copy)
        return false;
    if (from->condition_count)
        memcpy(copy, from->conditions, from->condition_count * sizeof *copy);
    free(to->conditions);
    to->conditions = copy;
    to->condition_count = from->condition_count;
    return true;
}

struct flyt_graph *flyt_graph_copy_locked(const struct flyt_graph *original, bool is_inner)
{
    struct flyt_graph *copy = flyt_graph_new_locked(is_inner);
    if (!copy)
        return NULL;
    copy->original_id = original->record.minted_id;
    if (copy_nodes(copy, original) && flyt_user_holds_copy_locked(copy, original) &&
        flyt_conditions_copy_locked(copy, original))
        return copy;
    flyt_graph_free_locked(copy);
    return NULL;
}

/* ---- order ---- */

/* Of each node, how many it still waits for, in `mark`; an edge of each node to those after it, as lists in one array.
 */
struct after_lists {
    unsigned *first; /* by place: of its list, in `to` */
    unsigned *to;
};

static bool make_lists(const struct flyt_graph *graph, struct after_lists *ret_lists)
{
    unsigned edge_count = 0;
    for (unsigned i = 0; i < graph->count; i++)
        edge_count += graph->nodes[i]->before_count;
    unsigned *first = calloc(graph->count + 2, sizeof *first), *to = calloc(edge_count + 1, sizeof *to);
    *ret_lists = (struct after_lists){first, to};
    if (!first || !to)
        return false;
    /* Counted two places ahead, summed up, and moved on while the lists are filled: then each list begins at its own.
     */
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            if (graph->nodes[i]->before[at].node->place + 2 < graph->count + 2)
                first[graph->nodes[i]->before[at].node->place + 2]++;
    for (unsigned i = 2; i < graph->count + 2; i++)
        first[i] += first[i - 1];
    for (unsigned i = 0; i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            to[first[graph->nodes[i]->before[at].node->place + 1]++] = i;
    return true;
}

struct flyt_graph_node **flyt_graph_sort_locked(const struct flyt_graph *graph, bool *ret_is_cyclic)
{
    struct after_lists lists;
    struct flyt_graph_node **order = calloc(graph->count + 1, sizeof(*order));
    unsigned found = 0;
    *ret_is_cyclic = false;
    if (!make_lists(graph, &lists) || !order) {
        free(order);
        order = NULL;
    }
    for (unsigned i = 0; order && i < graph->count; i++) {
        graph->nodes[i]->mark = graph->nodes[i]->before_count;
        if (!graph->nodes[i]->mark)
            order[found++] = graph->nodes[i];
    }
    for (unsigned done = 0; order && done < found; done++)
        for (unsigned at = lists.first[order[done]->place]; at < lists.first[order[done]->place + 1]; at++)
            if (!--graph->nodes[lists.to[at]]->mark)
                order[found++] = graph->nodes[lists.to[at]];
    free(lists.first);
    free(lists.to);
    if (order && found == graph->count)
        return order;
    *ret_is_cyclic = order;
    free(order);
    return NULL;
}

/* ---- the API: graphs ---- */

CUresult flyt_graph_create(CUgraph *ret_graph, unsigned flags)
{
    CUresult result = flyt_client_enter();
    if (result || !ret_graph || flags)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_new_locked(false);
    pthread_mutex_unlock(&flyt_captures.mutex);
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_graph = (CUgraph)(uintptr_t)graph->record.minted_id;
    return CUDA_SUCCESS;
}

CUresult flyt_graph_destroy(CUgraph handle)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    struct flyt_graph *graph = flyt_graph_find_locked(handle);
    if (graph && !graph->is_inner && !graph->capture)
        flyt_graph_free_locked(graph);
    else
        result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&flyt_captures.mutex);
    flyt_user_objects_settle();
    return result;
}

CUresult flyt_graph_clone(CUgraph *ret_graph, CUgraph original)
{
    CUresult result = flyt_client_enter();
    if (result || !ret_graph)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(original);
    const bool is_single = graph && flyt_graph_is_single_locked(graph);
    const struct flyt_graph *copy = graph && !is_single ? flyt_graph_copy_locked(graph, false) : NULL;
    pthread_mutex_unlock(&flyt_captures.mutex);
    if (is_single)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!copy)
        return graph ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    *ret_graph = (CUgraph)(uintptr_t)copy->record.minted_id;
    return CUDA_SUCCESS;
}

static CUgraphNode handle_of(const struct flyt_graph_node *node)
{
    return (CUgraphNode)(uintptr_t)node->record.minted_id;
}

static CUresult tell_nodes(CUgraph handle, CUgraphNode *nodes, size_t *count, bool is_root)
{
    CUresult result = flyt_client_enter();
    if (result || !count)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    size_t found = 0;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    for (unsigned i = 0; graph && i < graph->count; i++) {
        if (is_root && graph->nodes[i]->before_count)
            continue;
        if (nodes && found < *count)
            nodes[found] = handle_of(graph->nodes[i]);
        found++;
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    if (!graph)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = found; nodes && i < *count; i++)
        nodes[i] = NULL;
    if (!nodes || found < *count)
        *count = found;
    return CUDA_SUCCESS;
}

CUresult flyt_graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return tell_nodes(graph, nodes, count, false);
}

CUresult flyt_graph_root_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count)
{
    return tell_nodes(graph, nodes, count, true);
}

/* ---- the API: edges ---- */

/* Edges that are told one after the other. */
struct telling {
    CUgraphNode *from, *to; /* each may be NULL */
    CUgraphEdgeData *data;
    size_t room, found;
    bool is_lossy;
};

static void tell_edge(struct telling *self, const struct flyt_edge *edge, const struct flyt_graph_node *to)
{
    if (self->found < self->room) {
        if (self->from)
            self->from[self->found] = handle_of(edge->node);
        if (self->to)
            self->to[self->found] = handle_of(to);
        if (self->data)
            self->data[self->found] = edge->data;
        self->is_lossy |= !self->data && !flyt_edge_data_is_default(&edge->data);
    }
    self->found++;
}

/* What is left of the room is filled up. */
static CUresult told(const struct telling *self, size_t *count)
{
    const bool is_asking = !self->from && !self->to;
    for (size_t i = self->found; i < self->room; i++) {
        if (self->from)
            self->from[i] = NULL;
        if (self->to)
            self->to[i] = NULL;
    }
    if (is_asking || self->found < *count)
        *count = self->found;
    return self->is_lossy ? CUDA_ERROR_LOSSY_QUERY : CUDA_SUCCESS;
}

CUresult flyt_graph_edges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edge_data, size_t *count)
{
    CUresult result = flyt_client_enter();
    if (result || !count || !from != !to || (edge_data && !from))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct telling self = {.from = from, .to = to, .data = edge_data, .room = from ? *count : 0};
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    for (unsigned i = 0; graph && i < graph->count; i++)
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            tell_edge(&self, &graph->nodes[i]->before[at], graph->nodes[i]);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return graph ? told(&self, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_graph_node_before(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edge_data, size_t *count)
{
    CUresult result = flyt_client_enter();
    if (result || !count || (edge_data && !nodes))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct telling self = {.from = nodes, .data = edge_data, .room = nodes ? *count : 0};
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph_node *node = flyt_graph_node_find_locked(handle);
    for (unsigned at = 0; node && at < node->before_count; at++)
        tell_edge(&self, &node->before[at], node);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return node ? told(&self, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_graph_node_after(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *edge_data, size_t *count)
{
    CUresult result = flyt_client_enter();
    if (result || !count || (edge_data && !nodes))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    struct telling self = {.to = nodes, .data = edge_data, .room = nodes ? *count : 0};
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph_node *node = flyt_graph_node_find_locked(handle);
    for (unsigned i = 0; node && i < node->graph->count; i++) {
        const struct flyt_edge *edge = find_edge(node, node->graph->nodes[i]);
        if (edge)
            tell_edge(&self, edge, node->graph->nodes[i]);
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    return node ? told(&self, count) : CUDA_ERROR_INVALID_VALUE;
}

/* Two nodes of the graph that an edge may join. */
static bool find_pair(const struct flyt_graph *graph, CUgraphNode from_handle, CUgraphNode to_handle,
                      struct flyt_graph_node **ret_from, struct flyt_graph_node **ret_to)
{
    *ret_from = flyt_graph_node_find_locked(from_handle);
    *ret_to = flyt_graph_node_find_locked(to_handle);
    return graph && *ret_from && *ret_to && *ret_from != *ret_to && (*ret_from)->graph == graph &&
           (*ret_to)->graph == graph;
}

/* Ports are those of kernels; a programmatic edge is one between two of them (CUgraphDependencyType). */
bool flyt_edge_data_is_good(const struct flyt_graph_node *from, enum flyt_node_kind to, const CUgraphEdgeData *data)
{
    if (!data || flyt_edge_data_is_default(data))
        return true;
    if (from->data.kind != FLYT_NODE_KERNEL || data->to_port)
        return false;
    switch (data->type) {
    case CU_GRAPH_DEPENDENCY_TYPE_DEFAULT:
        return data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
    case CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC:
        return to == FLYT_NODE_KERNEL && (data->from_port == CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC ||
                                          data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
    default:
        return false;
    }
}

static CUresult add_edge_locked(const struct flyt_graph *graph, CUgraphNode from_handle, CUgraphNode to_handle,
                                const CUgraphEdgeData *data)
{
    struct flyt_graph_node *from, *to;
    if (!find_pair(graph, from_handle, to_handle, &from, &to) || find_edge(from, to) ||
        !flyt_edge_data_is_good(from, to->data.kind, data))
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_graph_edge_add_locked(from, to, data) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult remove_edge_locked(const struct flyt_graph *graph, CUgraphNode from_handle, CUgraphNode to_handle,
                                   const CUgraphEdgeData *data)
{
    static const CUgraphEdgeData none;
    struct flyt_graph_node *from, *to;
    const struct flyt_edge *edge = find_pair(graph, from_handle, to_handle, &from, &to) ? find_edge(from, to) : NULL;
    if (!edge || memcmp(&edge->data, data ? data : &none, sizeof none) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    remove_edge(to, (unsigned)(edge - to->before));
    return CUDA_SUCCESS;
}

static CUresult change_edges(CUgraph handle, const CUgraphNode *from, const CUgraphNode *to,
                             const CUgraphEdgeData *edge_data, size_t count,
                             CUresult (*change_locked)(const struct flyt_graph *, CUgraphNode, CUgraphNode,
                                                       const CUgraphEdgeData *))
{
    CUresult result = flyt_client_enter();
    if (!result && count && (!from || !to))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    if (!graph)
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++)
        result = change_locked(graph, from[i], to[i], edge_data ? &edge_data[i] : NULL);
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}

CUresult flyt_graph_edges_add(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                              const CUgraphEdgeData *edge_data, size_t count)
{
    return change_edges(graph, from, to, edge_data, count, add_edge_locked);
}

CUresult flyt_graph_edges_remove(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                 const CUgraphEdgeData *edge_data, size_t count)
{
    return change_edges(graph, from, to, edge_data, count, remove_edge_locked);
}
