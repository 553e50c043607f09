/*
 * Graphs, as far as a server makes them: nodes of kernels, fills, copies of device memory, child graphs and empty ones,
 * and what libraries have launched into a stream that captures, each added behind those that it depends on. So the
 * order in which they were added is one in which they may run, and a launch puts them into its stream in that order. A
 * kernel runs on the SMs of its node's context, whatever stream the graph is launched into, as on a GPU. A launch comes
 * after the launch of the same executable graph before it. A conditional node is one operation, which runs the nodes of
 * its bodies itself, as often as its condition says.
 */
#include "cpu/softgpu/driver/graph.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/condition.h"
#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/module.h"
#include "cpu/softgpu/driver/queue.h"

enum { ATTRIBUTES_MAX = 16 };

struct kernel_work {
    CUfunction function;  /* or a CUkernel */
    struct CUctx_st *ctx; /* one reference */
    CUlaunchConfig config;
    CUlaunchAttribute attributes[ATTRIBUTES_MAX];
    size_t param_bytes;
    char *params;
};

struct conditional_work {
    struct flyt_soft_condition *condition; /* one reference */
    CUgraphConditionalNodeType type;
    unsigned body_count;
    CUgraph *bodies; /* of the node's own */
};

/* What a captured library has launched: of no type that the API adds. */
#define WORK_NODE ((CUgraphNodeType)(CU_GRAPH_NODE_TYPE_CONDITIONAL + 1))

struct CUgraphNode_st {
    enum flyt_soft_kind kind;
    CUgraphNodeType type;
    bool is_off; /* of an executable graph */
    struct CUgraphNode_st *next;
    /* Of an executable graph: that it is a copy of. Compared, and never looked into, for it may have gone. */
    const struct CUgraphNode_st *original;
    union {
        struct kernel_work kernel;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_MEMCPY3D copy;
        struct conditional_work conditional;
        struct flyt_soft_work work; /* with its record and a reference to its context */
        CUgraph child;              /* the node's own */
    };
};

/* A list in the order of adding; an executable graph has copies of a graph's nodes. */
struct CUgraph_st {
    enum flyt_soft_kind kind;
    struct CUgraphNode_st *first, **end;
    const struct CUgraph_st *parent;        /* of a body: the graph of its node */
    struct flyt_soft_condition *conditions; /* with a reference each */
};

struct CUgraphExec_st {
    enum flyt_soft_kind kind;
    atomic_uint refs; /* one of its owner, one of each operation that is under way */
    struct CUgraph_st nodes;
    struct CUgraphNode_st *looked_at; /* the last one that was looked for; NULL: none. The next one mostly follows */
    struct flyt_soft_record *last;    /* of its last launch; NULL: there was none */
};

/* ---- nodes ---- */

static void free_conditional(struct conditional_work *work)
{
    for (unsigned i = 0; work->bodies && i < work->body_count; i++)
        flyt_soft_graph_free(work->bodies[i]);
    free(work->bodies);
    flyt_soft_condition_unref(work->condition);
}

static void free_nodes(struct CUgraph_st *graph)
{
    while (graph->first) {
        struct CUgraphNode_st *node = graph->first;

        graph->first = node->next;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
            flyt_soft_context_unref(node->kernel.ctx);
            free(node->kernel.params);
        }
        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            free_conditional(&node->conditional);
        if (node->type == WORK_NODE) {
            flyt_soft_context_unref(node->work.ctx);
            free((void *)(uintptr_t)node->work.record);
        }
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            flyt_soft_graph_free(node->child);
        node->kind = FLYT_SOFT_DEAD;
        free(node);
    }
    graph->end = &graph->first;
}

/* NULL is allowed. */
void flyt_soft_graph_free(struct CUgraph_st *graph)
{
    if (!graph)
        return;
    free_nodes(graph);
    while (graph->conditions) {
        struct flyt_soft_condition *condition = graph->conditions;

        graph->conditions = condition->next_in_graph;
        flyt_soft_condition_unref(condition);
    }
    graph->kind = FLYT_SOFT_DEAD;
    free(graph);
}

/* NULL: out of memory. */
struct CUgraph_st *flyt_soft_graph_new(const struct CUgraph_st *parent)
{
    struct CUgraph_st *graph = calloc(1, sizeof(*graph));

    if (!graph)
        return NULL;
    graph->kind = FLYT_SOFT_GRAPH;
    graph->end = &graph->first;
    graph->parent = parent;
    return graph;
}

static struct CUgraphNode_st *append(struct CUgraph_st *graph, CUgraphNodeType type)
{
    struct CUgraphNode_st *node = calloc(1, sizeof(*node));

    if (!node)
        return NULL;
    node->kind = FLYT_SOFT_GRAPH_NODE;
    node->type = type;
    *graph->end = node;
    graph->end = &node->next;
    return node;
}

static CUresult add(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies,
                    CUgraphNodeType type)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phGraphNode || !flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || (numDependencies && !dependencies))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numDependencies; i++)
        if (!flyt_soft_is(dependencies[i], FLYT_SOFT_GRAPH_NODE))
            return CUDA_ERROR_INVALID_VALUE;
    *phGraphNode = append(hGraph, type);
    return *phGraphNode ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

FLYT_SOFT_API cuGraphAddEmptyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                  size_t numDependencies)
{
    return add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_EMPTY);
}

/* The parameters of `params`, as far as they are given as one buffer. */
static CUresult take_params(struct kernel_work *work, const CUDA_KERNEL_NODE_PARAMS *params)
{
    const void *buffer = NULL;
    size_t bytes = 0;

    for (void **extra = params->extra; extra && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (params->kernelParams)
        return CUDA_ERROR_NOT_SUPPORTED;
    work->params = malloc(bytes + 1);
    if (!work->params)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes)
        memcpy(work->params, buffer, bytes);
    work->param_bytes = bytes;
    return CUDA_SUCCESS;
}

/* Takes what the node is given; `params` of it is the caller's. */
static CUresult take_kernel(struct CUctx_st *ctx, const CUDA_KERNEL_NODE_PARAMS *params, struct kernel_work *work)
{
    if (params->ctx && !flyt_soft_is(params->ctx, FLYT_SOFT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    work->ctx = params->ctx && !params->func ? params->ctx : ctx;
    work->function = params->func ? params->func : (CUfunction)params->kern;
    work->config = (CUlaunchConfig){.gridDimX = params->gridDimX,
                                    .gridDimY = params->gridDimY,
                                    .gridDimZ = params->gridDimZ,
                                    .blockDimX = params->blockDimX,
                                    .blockDimY = params->blockDimY,
                                    .blockDimZ = params->blockDimZ,
                                    .sharedMemBytes = params->sharedMemBytes};
    return take_params(work, params);
}

FLYT_SOFT_API cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct kernel_work work = {0};
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && !nodeParams)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = take_kernel(ctx, nodeParams, &work);
    if (r == CUDA_SUCCESS)
        r = add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_KERNEL);
    if (r != CUDA_SUCCESS) {
        free(work.params);
        return r;
    }
    flyt_soft_context_ref(work.ctx);
    (*phGraphNode)->kernel = work;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphKernelNodeSetAttribute(CUgraphNode hNode, CUkernelNodeAttrID attr,
                                            const CUkernelNodeAttrValue *value)
{
    CUlaunchConfig *config;

    if (!flyt_soft_is(hNode, FLYT_SOFT_GRAPH_NODE) || hNode->type != CU_GRAPH_NODE_TYPE_KERNEL || !value)
        return CUDA_ERROR_INVALID_VALUE;
    config = &hNode->kernel.config;
    if (config->numAttrs == ATTRIBUTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    hNode->kernel.attributes[config->numAttrs].id = attr;
    hNode->kernel.attributes[config->numAttrs++].value = *value;
    return CUDA_SUCCESS;
}

/* Ports are those of kernels; programmatic edges are those between two of them (CUgraphDependencyType). */
static bool is_edge(const struct CUgraphNode_st *from, const struct CUgraphNode_st *to, const CUgraphEdgeData *data)
{
    if (!data || (!data->from_port && !data->to_port && !data->type))
        return true;
    return from->type == CU_GRAPH_NODE_TYPE_KERNEL && !data->to_port &&
           data->from_port <= CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER &&
           (data->type == CU_GRAPH_DEPENDENCY_TYPE_DEFAULT
                ? data->from_port == CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER
                : data->type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC && data->from_port &&
                      to->type == CU_GRAPH_NODE_TYPE_KERNEL);
}

static bool has_behind(const struct CUgraphNode_st *from, const struct CUgraphNode_st *to)
{
    while (from && from != to)
        from = from->next;
    return from;
}

/* Nodes run in the order in which they were added, one when the other has ended: any edge along that order holds. */
FLYT_SOFT_API cuGraphAddDependencies(CUgraph hGraph, const CUgraphNode *from, const CUgraphNode *to,
                                     const CUgraphEdgeData *edgeData, size_t numDependencies)
{
    if (!flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || (numDependencies && (!from || !to)))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < numDependencies; i++) {
        if (!has_behind(hGraph->first, from[i]) || !has_behind(hGraph->first, to[i]) || from[i] == to[i] ||
            !is_edge(from[i], to[i], edgeData ? &edgeData[i] : NULL))
            return CUDA_ERROR_INVALID_VALUE;
        if (!has_behind(from[i], to[i]))
            return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphAddMemsetNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    CUresult r = memsetParams && flyt_soft_is(ctx, FLYT_SOFT_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        r = add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMSET);
    if (r == CUDA_SUCCESS)
        (*phGraphNode)->fill = *memsetParams;
    return r;
}

FLYT_SOFT_API cuGraphAddMemcpyNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
    CUresult r = copyParams && flyt_soft_is(ctx, FLYT_SOFT_CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS)
        r = add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_MEMCPY);
    if (r == CUDA_SUCCESS)
        (*phGraphNode)->copy = *copyParams;
    return r;
}

/* ---- conditional nodes ---- */

FLYT_SOFT_API cuGraphConditionalHandleCreate(CUgraphConditionalHandle *pHandle_out, CUgraph hGraph, CUcontext ctx,
                                             unsigned int defaultLaunchValue, unsigned int flags)
{
    struct flyt_soft_condition *condition;

    if (!pHandle_out || !flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || !flyt_soft_is(ctx, FLYT_SOFT_CONTEXT) ||
        flags & ~(unsigned)CU_GRAPH_COND_ASSIGN_DEFAULT)
        return CUDA_ERROR_INVALID_VALUE;
    condition = flyt_soft_condition_new(ctx, defaultLaunchValue, flags & CU_GRAPH_COND_ASSIGN_DEFAULT);
    if (!condition)
        return CUDA_ERROR_OUT_OF_MEMORY;
    condition->next_in_graph = hGraph->conditions;
    hGraph->conditions = condition;
    *pHandle_out = condition->handle;
    return CUDA_SUCCESS;
}

/* Of the graph, or of one that it is inside of. */
static struct flyt_soft_condition *find_condition(const struct CUgraph_st *graph, CUgraphConditionalHandle handle)
{
    for (; graph; graph = graph->parent)
        for (struct flyt_soft_condition *one = graph->conditions; one; one = one->next_in_graph)
            if (one->handle == handle)
                return one;
    return NULL;
}

static bool size_is_valid(CUgraphConditionalNodeType type, unsigned size)
{
    switch (type) {
    case CU_GRAPH_COND_TYPE_IF:
        return size == 1 || size == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
        return size == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
        return size > 0;
    default:
        return false;
    }
}

/* Empty ones. What a failure leaves free_conditional frees. */
static bool make_bodies(struct conditional_work *work, const struct CUgraph_st *parent)
{
    bool are_made;

    work->bodies = calloc(work->body_count, sizeof(*work->bodies));
    are_made = work->bodies;
    for (unsigned i = 0; i < work->body_count && are_made; i++) {
        work->bodies[i] = flyt_soft_graph_new(parent);
        are_made = work->bodies[i];
    }
    return are_made;
}

FLYT_SOFT_API cuGraphAddNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                             const CUgraphEdgeData *dependencyData, size_t numDependencies,
                             CUgraphNodeParams *nodeParams)
{
    CUDA_CONDITIONAL_NODE_PARAMS *params = nodeParams ? &nodeParams->conditional : NULL;
    struct conditional_work work = {0};
    CUresult r;

    if (!params || !flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || dependencyData)
        return CUDA_ERROR_INVALID_VALUE;
    if (nodeParams->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return CUDA_ERROR_NOT_SUPPORTED;
    work.condition = find_condition(hGraph, params->handle);
    if (!work.condition || work.condition->is_used || work.condition->ctx != params->ctx ||
        !size_is_valid(params->type, params->size))
        return CUDA_ERROR_INVALID_VALUE;
    work.type = params->type;
    work.body_count = params->size;
    r = make_bodies(&work, hGraph) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_CONDITIONAL);
    flyt_soft_condition_ref(work.condition);
    if (r != CUDA_SUCCESS) {
        free_conditional(&work);
        return r;
    }
    work.condition->is_used = true;
    (*phGraphNode)->conditional = work;
    params->phGraph_out = work.bodies;
    return CUDA_SUCCESS;
}

/* ---- graphs ---- */

FLYT_SOFT_API cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    struct CUgraph_st *graph;

    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    graph = flyt_soft_graph_new(NULL);
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *phGraph = graph;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphDestroy(CUgraph hGraph)
{
    if (!flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || hGraph->parent)
        return CUDA_ERROR_INVALID_VALUE;
    flyt_soft_graph_free(hGraph);
    return CUDA_SUCCESS;
}

/* ---- executable graphs ---- */

static bool copy_nodes(struct CUgraph_st *to, const struct CUgraph_st *from);

static bool copy_conditional(struct CUgraph_st *to, struct conditional_work *work, const struct conditional_work *from)
{
    bool is_copied;

    *work = (struct conditional_work){
        .condition = flyt_soft_condition_ref(from->condition), .type = from->type, .body_count = from->body_count};
    is_copied = make_bodies(work, to);
    for (unsigned i = 0; i < from->body_count && is_copied; i++)
        is_copied = copy_nodes(work->bodies[i], from->bodies[i]);
    return is_copied;
}

/* Appends a copy of the work. */
static bool append_work(struct CUgraph_st *to, const struct CUgraphNode_st *original, const struct flyt_soft_work *work)
{
    void *record = malloc(work->record_bytes + 1);
    struct CUgraphNode_st *node = record ? append(to, WORK_NODE) : NULL;

    if (!node) {
        free(record);
        return false;
    }
    memcpy(record, work->record, work->record_bytes);
    node->original = original;
    node->work = *work;
    node->work.record = record;
    flyt_soft_context_ref(work->ctx);
    return true;
}

bool flyt_soft_graph_append(struct CUgraph_st *graph, const struct flyt_soft_work *work)
{
    return append_work(graph, NULL, work);
}

static bool copy_child(struct CUgraphNode_st *node, const struct CUgraph_st *from)
{
    node->child = flyt_soft_graph_new(NULL);
    return node->child && copy_nodes(node->child, from);
}

static bool copy_node(struct CUgraph_st *to, const struct CUgraphNode_st *from)
{
    struct CUgraphNode_st *node;

    if (from->type == WORK_NODE)
        return append_work(to, from, &from->work);
    node = append(to, from->type);
    if (!node)
        return false;
    node->original = from;
    if (from->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return copy_child(node, from->child);
    if (from->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
        return copy_conditional(to, &node->conditional, &from->conditional);
    if (from->type == CU_GRAPH_NODE_TYPE_MEMSET)
        node->fill = from->fill;
    if (from->type == CU_GRAPH_NODE_TYPE_MEMCPY)
        node->copy = from->copy;
    if (from->type != CU_GRAPH_NODE_TYPE_KERNEL)
        return true;
    node->kernel = from->kernel;
    flyt_soft_context_ref(node->kernel.ctx);
    node->kernel.params = malloc(from->kernel.param_bytes + 1);
    if (node->kernel.params)
        memcpy(node->kernel.params, from->kernel.params, from->kernel.param_bytes);
    return node->kernel.params;
}

static bool copy_nodes(struct CUgraph_st *to, const struct CUgraph_st *from)
{
    bool is_copied = true;

    for (const struct CUgraphNode_st *node = from->first; node && is_copied; node = node->next)
        is_copied = copy_node(to, node);
    return is_copied;
}

static void unref_exec(struct CUgraphExec_st *exec)
{
    if (atomic_fetch_sub(&exec->refs, 1) != 1)
        return;
    free_nodes(&exec->nodes);
    flyt_soft_record_unref(exec->last);
    free(exec);
}

static CUresult kernel_op(struct kernel_work *kernel, struct flyt_soft_op **ret_op)
{
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kernel->params, CU_LAUNCH_PARAM_BUFFER_SIZE, &kernel->param_bytes,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = kernel->config;
    CUresult r;

    config.attrs = kernel->attributes;
    r = flyt_soft_launch_op_new(&config, kernel->function, kernel->ctx, false, NULL, kernel->param_bytes ? extra : NULL,
                                ret_op);
    if (r == CUDA_SUCCESS)
        flyt_soft_launch_op_keep(*ret_op, kernel->ctx);
    return r;
}

static CUresult node_op(struct CUgraphNode_st *node, struct flyt_soft_op **ret_op)
{
    if (node->type == WORK_NODE)
        return flyt_soft_work_op_new(&node->work, NULL, ret_op);
    switch (node->is_off ? CU_GRAPH_NODE_TYPE_EMPTY : node->type) {
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return flyt_soft_fill_op_new(&node->fill, ret_op);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return flyt_soft_copy_op_new(&node->copy, ret_op);
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return kernel_op(&node->kernel, ret_op);
    default:
        *ret_op = NULL;
        return CUDA_SUCCESS;
    }
}

/* ---- what the operation of a conditional node does ---- */

static CUresult run_conditional(const struct conditional_work *work);

static CUresult run_body(const struct CUgraph_st *body)
{
    CUresult r = CUDA_SUCCESS;

    for (struct CUgraphNode_st *node = body->first; node && r == CUDA_SUCCESS; node = node->next) {
        struct flyt_soft_op *op = NULL;

        if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            r = run_conditional(&node->conditional);
        else if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            r = run_body(node->child);
        else
            r = node_op(node, &op);
        if (r == CUDA_SUCCESS && op && op->run)
            r = op->run(op);
        if (op)
            op->free(op);
    }
    return r;
}

static CUresult run_conditional(const struct conditional_work *work)
{
    const struct flyt_soft_condition *condition = work->condition;
    uint32_t value = flyt_soft_condition_value(condition);
    CUresult r = CUDA_SUCCESS;

    switch (work->type) {
    case CU_GRAPH_COND_TYPE_IF:
        if (value || work->body_count > 1)
            r = run_body(work->bodies[value ? 0 : 1]);
        break;
    case CU_GRAPH_COND_TYPE_WHILE:
        while (r == CUDA_SUCCESS && flyt_soft_condition_value(condition) && !atomic_load(&condition->device->cancel))
            r = run_body(work->bodies[0]);
        break;
    default:
        if (value < work->body_count)
            r = run_body(work->bodies[value]);
    }
    return r;
}

/* A conditional node, or the start of a launch. */
struct conditional_op {
    struct flyt_soft_op op;
    struct CUgraphExec_st *exec; /* one reference */
    const struct CUgraphNode_st *node;
};

static CUresult conditional_run(struct flyt_soft_op *op)
{
    return run_conditional(&((struct conditional_op *)op)->node->conditional);
}

static void begin_conditions(const struct CUgraph_st *graph)
{
    for (const struct CUgraphNode_st *node = graph->first; node; node = node->next) {
        if (node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
            continue;
        flyt_soft_condition_begin(node->conditional.condition);
        for (unsigned i = 0; i < node->conditional.body_count; i++)
            begin_conditions(node->conditional.bodies[i]);
    }
}

static CUresult begin_run(struct flyt_soft_op *op)
{
    begin_conditions(&((struct conditional_op *)op)->exec->nodes);
    return CUDA_SUCCESS;
}

static void conditional_free(struct flyt_soft_op *op)
{
    unref_exec(((struct conditional_op *)op)->exec);
    free(op);
}

static CUresult conditional_op(struct CUgraphExec_st *exec, const struct CUgraphNode_st *node,
                               CUresult (*run)(struct flyt_soft_op *op), struct flyt_soft_op **ret_op)
{
    struct conditional_op *op = malloc(sizeof(*op));

    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&exec->refs, 1);
    *op = (struct conditional_op){.op = {.run = run, .free = conditional_free}, .exec = exec, .node = node};
    *ret_op = &op->op;
    return CUDA_SUCCESS;
}

/* ---- executable graphs: the API ---- */

static bool has_conditionals(const struct CUgraph_st *graph)
{
    const struct CUgraphNode_st *node = graph->first;

    while (node && node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
        node = node->next;
    return node;
}

/* What a launch would refuse is refused here; so are conditions that no node reads. */
static CUresult check(const struct CUgraph_st *graph)
{
    CUresult r = CUDA_SUCCESS;

    for (const struct flyt_soft_condition *one = graph->conditions; one && r == CUDA_SUCCESS; one = one->next_in_graph)
        r = one->is_used ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    for (struct CUgraphNode_st *node = graph->first; node && r == CUDA_SUCCESS; node = node->next) {
        struct flyt_soft_op *op = NULL;

        r = node_op(node, &op);
        if (r == CUDA_SUCCESS && op)
            op->free(op);
        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH && r == CUDA_SUCCESS)
            r = check(node->child);
        if (node->type != CU_GRAPH_NODE_TYPE_CONDITIONAL)
            continue;
        for (unsigned i = 0; i < node->conditional.body_count && r == CUDA_SUCCESS; i++)
            r = check(node->conditional.bodies[i]);
    }
    return r;
}

FLYT_SOFT_API cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    struct CUctx_st *ctx;
    struct CUgraphExec_st *exec;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    /* Nodes run one after the other: their priorities say nothing. */
    if (!phGraphExec || !flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) ||
        flags & ~(unsigned long long)CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY)
        return CUDA_ERROR_INVALID_VALUE;
    r = check(hGraph);
    if (r != CUDA_SUCCESS)
        return r;
    exec = calloc(1, sizeof(*exec));
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->kind = FLYT_SOFT_GRAPH_EXEC;
    exec->nodes.end = &exec->nodes.first;
    atomic_init(&exec->refs, 1);
    if (!copy_nodes(&exec->nodes, hGraph)) {
        unref_exec(exec);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *phGraphExec = exec;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!flyt_soft_is(hGraphExec, FLYT_SOFT_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    hGraphExec->kind = FLYT_SOFT_DEAD;
    unref_exec(hGraphExec);
    return CUDA_SUCCESS;
}

/* ---- child graphs ---- */

FLYT_SOFT_API cuGraphAddChildGraphNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                       size_t numDependencies, CUgraph childGraph)
{
    struct CUgraphNode_st copy = {.child = NULL};
    CUresult r = flyt_soft_is(childGraph, FLYT_SOFT_GRAPH) && !has_conditionals(childGraph) ? CUDA_SUCCESS
                                                                                            : CUDA_ERROR_INVALID_VALUE;

    if (r == CUDA_SUCCESS && !copy_child(&copy, childGraph))
        r = CUDA_ERROR_OUT_OF_MEMORY;
    if (r == CUDA_SUCCESS)
        r = add(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH);
    if (r == CUDA_SUCCESS)
        (*phGraphNode)->child = copy.child;
    else
        flyt_soft_graph_free(copy.child);
    return r;
}

/* ---- what a graph has ---- */

FLYT_SOFT_API cuGraphGetNodes(CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes)
{
    size_t count = 0;

    if (!flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || !numNodes)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct CUgraphNode_st *node = hGraph->first; node && (!nodes || count < *numNodes); node = node->next) {
        if (nodes)
            nodes[count] = node;
        count++;
    }
    for (size_t i = count; nodes && i < *numNodes; i++)
        nodes[i] = NULL;
    *numNodes = count;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphNodeGetType(CUgraphNode hNode, CUgraphNodeType *type)
{
    if (!flyt_soft_is(hNode, FLYT_SOFT_GRAPH_NODE) || !type)
        return CUDA_ERROR_INVALID_VALUE;
    *type = hNode->type == WORK_NODE ? CU_GRAPH_NODE_TYPE_KERNEL : hNode->type;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphMemcpyNodeGetParams(CUgraphNode hNode, CUDA_MEMCPY3D *nodeParams)
{
    if (!flyt_soft_is(hNode, FLYT_SOFT_GRAPH_NODE) || hNode->type != CU_GRAPH_NODE_TYPE_MEMCPY || !nodeParams)
        return CUDA_ERROR_INVALID_VALUE;
    *nodeParams = hNode->copy;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphChildGraphNodeGetGraph(CUgraphNode hNode, CUgraph *phGraph)
{
    if (!flyt_soft_is(hNode, FLYT_SOFT_GRAPH_NODE) || hNode->type != CU_GRAPH_NODE_TYPE_GRAPH || !phGraph)
        return CUDA_ERROR_INVALID_VALUE;
    *phGraph = hNode->child;
    return CUDA_SUCCESS;
}

/* ---- changing nodes of executable graphs ---- */

/* The copy of a node of the graph that it was made of; NULL: there is none of the type. */
static CUresult find_copy(CUgraphExec exec, CUgraphNode original, CUgraphNodeType type, struct CUctx_st **ret_ctx,
                          struct CUgraphNode_st **ret_node)
{
    struct CUgraphNode_st *node;
    CUresult r = flyt_soft_enter(ret_ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(exec, FLYT_SOFT_GRAPH_EXEC) || !original)
        return CUDA_ERROR_INVALID_VALUE;
    node = exec->looked_at ? exec->looked_at : exec->nodes.first;
    for (unsigned round = 0; round < 2; round++, node = exec->nodes.first) {
        while (node && node->original != original)
            node = node->next;
        if (node)
            break;
    }
    exec->looked_at = node;
    *ret_node = node;
    return node && node->type == type ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Whether the node could be launched with what it was given. */
static CUresult try_node(struct CUgraphNode_st *node)
{
    struct flyt_soft_op *op = NULL;
    CUresult r = node_op(node, &op);

    if (r == CUDA_SUCCESS && op)
        op->free(op);
    return r;
}

/* Attributes stay as they are; so does the context, as CUDA has it. */
FLYT_SOFT_API cuGraphExecKernelNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct CUgraphNode_st *node;
    struct kernel_work work = {0}, old;
    struct CUctx_st *ctx;
    CUresult r = find_copy(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &ctx, &node);

    if (r == CUDA_SUCCESS)
        r = nodeParams ? take_kernel(ctx, nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    old = node->kernel;
    work.config.numAttrs = old.config.numAttrs;
    memcpy(work.attributes, old.attributes, sizeof(work.attributes));
    node->kernel = work;
    r = work.ctx == old.ctx ? try_node(node) : CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        node->kernel = old;
    free(r == CUDA_SUCCESS ? old.params : work.params);
    return r;
}

/* Only rows are changed into other rows; of boxes the address and the value may be another (cuGraphExecUpdate). */
FLYT_SOFT_API cuGraphExecMemsetNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode,
                                             const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
    struct CUgraphNode_st *node;
    struct CUctx_st *current;
    CUDA_MEMSET_NODE_PARAMS old;
    CUresult r = find_copy(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, &current, &node);

    if (r == CUDA_SUCCESS && (!memsetParams || !flyt_soft_is(ctx, FLYT_SOFT_CONTEXT)))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    old = node->fill;
    if ((old.height > 1 || memsetParams->height > 1) &&
        (old.height != memsetParams->height || old.width != memsetParams->width || old.pitch != memsetParams->pitch ||
         old.elementSize != memsetParams->elementSize))
        return CUDA_ERROR_INVALID_VALUE;
    node->fill = *memsetParams;
    r = try_node(node);
    if (r != CUDA_SUCCESS)
        node->fill = old;
    return r;
}

static bool is_row(const CUDA_MEMCPY3D *copy)
{
    return copy->Height <= 1 && copy->Depth <= 1;
}

FLYT_SOFT_API cuGraphExecMemcpyNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
                                             CUcontext ctx)
{
    struct CUgraphNode_st *node;
    struct CUctx_st *current;
    CUDA_MEMCPY3D old;
    CUresult r = find_copy(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &current, &node);

    if (r == CUDA_SUCCESS && (!copyParams || !flyt_soft_is(ctx, FLYT_SOFT_CONTEXT)))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    old = node->copy;
    if (!is_row(&old) || !is_row(copyParams) || old.srcMemoryType != copyParams->srcMemoryType ||
        old.dstMemoryType != copyParams->dstMemoryType)
        return CUDA_ERROR_INVALID_VALUE;
    node->copy = *copyParams;
    r = try_node(node);
    if (r != CUDA_SUCCESS)
        node->copy = old;
    return r;
}

FLYT_SOFT_API cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
    struct CUgraphNode_st *node = NULL;
    struct CUctx_st *ctx;

    if (find_copy(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &ctx, &node) != CUDA_SUCCESS &&
        (!node || (node->type != CU_GRAPH_NODE_TYPE_MEMSET && node->type != CU_GRAPH_NODE_TYPE_MEMCPY)))
        return CUDA_ERROR_INVALID_VALUE;
    node->is_off = !isEnabled;
    return CUDA_SUCCESS;
}

/* ---- launches ---- */

static CUresult enter_launch(CUgraphExec exec, CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && !flyt_soft_is(exec, FLYT_SOFT_GRAPH_EXEC))
        r = CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? flyt_soft_stream_take(ctx, handle, ret_stream) : r;
}

FLYT_SOFT_API cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *stream;

    return enter_launch(hGraphExec, hStream, &stream);
}

static CUresult push_nodes(struct CUgraphExec_st *exec, const struct CUgraph_st *graph, struct CUstream_st *stream)
{
    CUresult r = CUDA_SUCCESS;

    for (struct CUgraphNode_st *node = graph->first; node && r == CUDA_SUCCESS; node = node->next) {
        struct flyt_soft_op *op = NULL;

        if (node->type == CU_GRAPH_NODE_TYPE_GRAPH)
            r = push_nodes(exec, node->child, stream);
        else if (node->type == CU_GRAPH_NODE_TYPE_CONDITIONAL)
            r = conditional_op(exec, node, conditional_run, &op);
        else
            r = node_op(node, &op);
        if (r == CUDA_SUCCESS && op)
            flyt_soft_stream_push(stream, op);
    }
    return r;
}

static CUresult push_all(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    struct flyt_soft_op *begin = NULL;
    CUresult r = has_conditionals(&exec->nodes) ? conditional_op(exec, NULL, begin_run, &begin) : CUDA_SUCCESS;

    if (begin)
        flyt_soft_stream_push(stream, begin);
    return r == CUDA_SUCCESS ? push_nodes(exec, &exec->nodes, stream) : r;
}

FLYT_SOFT_API cuGraphLaunch(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *stream;
    struct flyt_soft_record *done;
    CUresult r = enter_launch(hGraphExec, hStream, &stream);

    if (r != CUDA_SUCCESS)
        return r;
    if (hGraphExec->last)
        r = flyt_soft_stream_mark(stream, flyt_soft_record_ref(hGraphExec->last), NULL);
    if (r == CUDA_SUCCESS)
        r = push_all(hGraphExec, stream);
    done = r == CUDA_SUCCESS ? flyt_soft_record_new() : NULL;
    if (!done)
        return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
    flyt_soft_record_unref(hGraphExec->last);
    hGraphExec->last = flyt_soft_record_ref(done);
    return flyt_soft_stream_mark(stream, NULL, done);
}
