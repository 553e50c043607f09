/* A graph as a drawing in the language of Graphviz (cuGraphDebugDotPrint). */
#include <stdio.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/graph/graph_record.h"

static const char *name_of(const struct flyt_node_data *data)
{
    static const char *const names[] = {
        [FLYT_NODE_EMPTY] = "EMPTY",
        [FLYT_NODE_KERNEL] = "KERNEL",
        [FLYT_NODE_COPY] = "MEMCPY",
        [FLYT_NODE_FILL] = "MEMSET",
        [FLYT_NODE_HOST] = "HOST",
        [FLYT_NODE_CHILD] = "GRAPH",
        [FLYT_NODE_RECORD] = "EVENT_RECORD",
        [FLYT_NODE_WAIT] = "EVENT_WAIT",
        [FLYT_NODE_OPS] = "MEM_OPS",
        [FLYT_NODE_CALL] = "LIBRARY_CALL",
        [FLYT_NODE_ALLOC] = "MEM_ALLOC",
        [FLYT_NODE_FREE] = "MEM_FREE",
        [FLYT_NODE_CONDITIONAL] = "CONDITIONAL",
    };
    return names[data->kind];
}

static void put_node(FILE *file, const char *prefix, const struct flyt_graph_node *node)
{
    const char *name = "";
    if (node->data.kind == FLYT_NODE_KERNEL && flyt_kernel_name(node->data.kernel.launch.function, &name))
        name = "";
    fprintf(file, "\"%s_node_%u\"[shape=\"octagon\" label=\"%u\\n%s\\n%s\"];\n", prefix, node->place, node->place,
            name_of(&node->data), name);
}

static void put_inner(FILE *file, const struct flyt_graph *graph);

static void put_graph(FILE *file, const char *prefix, const struct flyt_graph *graph)
{
    fprintf(file, "subgraph cluster_%s {\nlabel=\"%s\" graph[style=\"dashed\"];\n", prefix, prefix);
    for (unsigned i = 0; i < graph->count; i++) {
        put_node(file, prefix, graph->nodes[i]);
        for (unsigned at = 0; at < graph->nodes[i]->before_count; at++)
            fprintf(file, "\"%s_node_%u\" -> \"%s_node_%u\";\n", prefix, graph->nodes[i]->before[at].node->place,
                    prefix, i);
    }
    fprintf(file, "}\n");
    for (unsigned i = 0; i < graph->count; i++) {
        const struct flyt_node_data *data = &graph->nodes[i]->data;
        if (data->kind == FLYT_NODE_CHILD)
            put_inner(file, data->child);
        for (unsigned body = 0; data->kind == FLYT_NODE_CONDITIONAL && body < data->conditional.body_count; body++)
            put_inner(file, data->conditional.bodies[body]);
    }
}

static void put_inner(FILE *file, const struct flyt_graph *graph)
{
    char name[32];
    snprintf(name, sizeof name, "graph_%llu", (unsigned long long)flyt_id_number(graph->record.minted_id));
    put_graph(file, name, graph);
}

CUresult flyt_graph_dot(CUgraph handle, const char *path, unsigned flags)
{
    CUresult result = flyt_client_enter();
    if (result || !path)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&flyt_captures.mutex);
    const struct flyt_graph *graph = flyt_graph_find_locked(handle);
    FILE *file = graph ? fopen(path, "we") : NULL;
    if (file) {
        fprintf(file, "digraph dot {\n");
        put_graph(file, "graph_1", graph);
        fprintf(file, "}\n");
        if (fclose(file))
            result = CUDA_ERROR_OPERATING_SYSTEM;
    } else {
        result = graph ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_unlock(&flyt_captures.mutex);
    return result;
}
