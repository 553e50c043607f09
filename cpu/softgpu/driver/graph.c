/*
 * Graphs, as far as a server makes them: nodes of kernels, fills, copies of device memory and empty ones, each added
 * behind those that it depends on. So the order in which they were added is one in which they may run, and a launch
 * puts them into its stream in that order. A kernel runs on the SMs of its node's context, whatever stream the graph is
 * launched into, as on a GPU. A launch comes after the launch of the same executable graph before it.
 */
#include "cpu/softgpu/driver/graph.h"

#include <stdlib.h>
#include <string.h>

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

struct CUgraphNode_st {
    enum flyt_soft_kind kind;
    CUgraphNodeType type;
    struct CUgraphNode_st *next;
    union {
        struct kernel_work kernel;
        CUDA_MEMSET_NODE_PARAMS fill;
        CUDA_MEMCPY3D copy;
    };
};

/* A list in the order of adding; an executable graph has copies of a graph's nodes. */
struct CUgraph_st {
    enum flyt_soft_kind kind;
    struct CUgraphNode_st *first, **end;
};

struct CUgraphExec_st {
    enum flyt_soft_kind kind;
    struct CUgraph_st nodes;
    struct flyt_soft_record *last; /* of its last launch; NULL: there was none */
};

/* ---- nodes ---- */

static void free_nodes(struct CUgraph_st *graph)
{
    while (graph->first) {
        struct CUgraphNode_st *node = graph->first;

        graph->first = node->next;
        if (node->type == CU_GRAPH_NODE_TYPE_KERNEL) {
            flyt_soft_context_unref(node->kernel.ctx);
            free(node->kernel.params);
        }
        node->kind = FLYT_SOFT_DEAD;
        free(node);
    }
    graph->end = &graph->first;
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

FLYT_SOFT_API cuGraphAddKernelNode(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
                                   size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
    struct kernel_work work = {0};
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && !nodeParams)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r != CUDA_SUCCESS)
        return r;
    if (nodeParams->ctx && !flyt_soft_is(nodeParams->ctx, FLYT_SOFT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    work.ctx = nodeParams->ctx && !nodeParams->func ? nodeParams->ctx : ctx;
    work.function = nodeParams->func ? nodeParams->func : (CUfunction)nodeParams->kern;
    work.config = (CUlaunchConfig){.gridDimX = nodeParams->gridDimX,
                                   .gridDimY = nodeParams->gridDimY,
                                   .gridDimZ = nodeParams->gridDimZ,
                                   .blockDimX = nodeParams->blockDimX,
                                   .blockDimY = nodeParams->blockDimY,
                                   .blockDimZ = nodeParams->blockDimZ,
                                   .sharedMemBytes = nodeParams->sharedMemBytes};
    r = take_params(&work, nodeParams);
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

/* ---- graphs ---- */

FLYT_SOFT_API cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
    struct CUgraph_st *graph;

    if (!phGraph || flags)
        return CUDA_ERROR_INVALID_VALUE;
    graph = calloc(1, sizeof(*graph));
    if (!graph)
        return CUDA_ERROR_OUT_OF_MEMORY;
    graph->kind = FLYT_SOFT_GRAPH;
    graph->end = &graph->first;
    *phGraph = graph;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphDestroy(CUgraph hGraph)
{
    if (!flyt_soft_is(hGraph, FLYT_SOFT_GRAPH))
        return CUDA_ERROR_INVALID_VALUE;
    free_nodes(hGraph);
    hGraph->kind = FLYT_SOFT_DEAD;
    free(hGraph);
    return CUDA_SUCCESS;
}

/* ---- executable graphs ---- */

static bool copy_node(struct CUgraph_st *to, const struct CUgraphNode_st *from)
{
    struct CUgraphNode_st *node = append(to, from->type);

    if (!node)
        return false;
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

static void free_exec(struct CUgraphExec_st *exec)
{
    free_nodes(&exec->nodes);
    flyt_soft_record_unref(exec->last);
    exec->kind = FLYT_SOFT_DEAD;
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
    switch (node->type) {
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

/* What a launch would refuse is refused here. */
static CUresult check(struct CUgraphExec_st *exec)
{
    CUresult r = CUDA_SUCCESS;

    for (struct CUgraphNode_st *node = exec->nodes.first; node && r == CUDA_SUCCESS; node = node->next) {
        struct flyt_soft_op *op = NULL;

        r = node_op(node, &op);
        if (r == CUDA_SUCCESS && op)
            op->free(op);
    }
    return r;
}

FLYT_SOFT_API cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
    struct CUctx_st *ctx;
    struct CUgraphExec_st *exec;
    bool is_copied = true;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!phGraphExec || !flyt_soft_is(hGraph, FLYT_SOFT_GRAPH) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    exec = calloc(1, sizeof(*exec));
    if (!exec)
        return CUDA_ERROR_OUT_OF_MEMORY;
    exec->kind = FLYT_SOFT_GRAPH_EXEC;
    exec->nodes.end = &exec->nodes.first;
    for (const struct CUgraphNode_st *node = hGraph->first; node && is_copied; node = node->next)
        is_copied = copy_node(&exec->nodes, node);
    r = is_copied ? check(exec) : CUDA_ERROR_OUT_OF_MEMORY;
    if (r != CUDA_SUCCESS) {
        free_exec(exec);
        return r;
    }
    *phGraphExec = exec;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuGraphExecDestroy(CUgraphExec hGraphExec)
{
    if (!flyt_soft_is(hGraphExec, FLYT_SOFT_GRAPH_EXEC))
        return CUDA_ERROR_INVALID_VALUE;
    free_exec(hGraphExec);
    return CUDA_SUCCESS;
}

static CUresult enter_launch(CUgraphExec exec, CUstream handle, struct CUstream_st **ret_stream)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && !flyt_soft_is(exec, FLYT_SOFT_GRAPH_EXEC))
        r = CUDA_ERROR_INVALID_VALUE;
    return r == CUDA_SUCCESS ? flyt_soft_stream_find(ctx, handle, ret_stream) : r;
}

FLYT_SOFT_API cuGraphUpload(CUgraphExec hGraphExec, CUstream hStream)
{
    struct CUstream_st *stream;

    return enter_launch(hGraphExec, hStream, &stream);
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
    for (struct CUgraphNode_st *node = hGraphExec->nodes.first; node && r == CUDA_SUCCESS; node = node->next) {
        struct flyt_soft_op *op = NULL;

        r = node_op(node, &op);
        if (r == CUDA_SUCCESS && op)
            flyt_soft_stream_push(stream, op);
    }
    done = r == CUDA_SUCCESS ? flyt_soft_record_new() : NULL;
    if (!done)
        return r == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : r;
    flyt_soft_record_unref(hGraphExec->last);
    hGraphExec->last = flyt_soft_record_ref(done);
    return flyt_soft_stream_mark(stream, NULL, done);
}
