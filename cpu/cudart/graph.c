/*
 * Nodes of graphs: the runtime's structures become struct flyt_node_data, and back.
 */
#include "cpu/client/cuda/array.h"
#include "cpu/client/graph/graph.h"

#include <string.h>

#include "cpu/cudart/copy.h"
#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

/* What a change of a node ends with, which gets the lowered data; each returns at once where lowering has failed. */

static cudaError_t add(cudaGraphNode_t *ret_node, cudaGraph_t graph, const cudaGraphNode_t *before, size_t count,
                       cudaError_t error, struct flyt_node_data *data)
{
    return error != cudaSuccess ? flyt_cudart_fail(error)
                                : flyt_cudart_result(flyt_graph_add(ret_node, graph, before, NULL, count, data));
}

static cudaError_t set(cudaGraphNode_t node, cudaError_t error, struct flyt_node_data *data)
{
    return error != cudaSuccess ? flyt_cudart_fail(error) : flyt_cudart_result(flyt_graph_node_set(node, data));
}

static cudaError_t set_exec(cudaGraphExec_t exec, cudaGraphNode_t node, cudaError_t error, struct flyt_node_data *data)
{
    return error != cudaSuccess ? flyt_cudart_fail(error) : flyt_cudart_result(flyt_graph_exec_set(exec, node, data));
}

static cudaError_t get(cudaGraphNode_t node, enum flyt_node_kind kind, const void *params,
                       const struct flyt_node_data **ret_data)
{
    CUresult result = params ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;

    if (result == CUDA_SUCCESS)
        result = flyt_graph_node_get(node, kind, ret_data);
    return flyt_cudart_result(result);
}

/* ---- kernels ---- */

/* The pairs of `extra`, as the driver API has them. */
static bool take_extra(void **extra, struct flyt_launch *launch)
{
    for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER)
            launch->param_buffer = extra[1];
        else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE && extra[1])
            launch->param_buffer_bytes = *(const size_t *)extra[1];
        else
            return false;
    }
    return true;
}

static cudaError_t lower_kernel(const struct cudaKernelNodeParams *params, struct flyt_node_data *ret_data)
{
    struct flyt_launch launch = {0};
    cudaError_t error;

    if (!params)
        return cudaErrorInvalidValue;
    error = flyt_cudart_enter_kernel(params->func, &launch.function);
    if (error != cudaSuccess)
        return error;
    if ((params->kernelParams && params->extra) || !take_extra(params->extra, &launch))
        return cudaErrorInvalidValue;
    launch.symbol = params->func;
    launch.grid[0] = params->gridDim.x;
    launch.grid[1] = params->gridDim.y;
    launch.grid[2] = params->gridDim.z;
    launch.block[0] = params->blockDim.x;
    launch.block[1] = params->blockDim.y;
    launch.block[2] = params->blockDim.z;
    launch.dynamic_shared_bytes = params->sharedMemBytes;
    launch.params = params->kernelParams;
    return flyt_cudart_error(flyt_node_data_kernel(&launch, NULL, ret_data));
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, struct cudaKernelNodeParams *pNodeParams)
{
    const struct flyt_node_data *data;
    cudaError_t error = get(node, FLYT_NODE_KERNEL, pNodeParams, &data);

    if (error != cudaSuccess)
        return error;
    const struct flyt_launch *launch = &data->kernel.launch;
    *pNodeParams =
        (struct cudaKernelNodeParams){.func = (void *)(uintptr_t)(launch->symbol ? launch->symbol : launch->function),
                                      .gridDim = {launch->grid[0], launch->grid[1], launch->grid[2]},
                                      .blockDim = {launch->block[0], launch->block[1], launch->block[2]},
                                      .sharedMemBytes = launch->dynamic_shared_bytes,
                                      .kernelParams = (void **)(uintptr_t)launch->params};
    return cudaSuccess;
}

/* ---- copies ---- */

static cudaError_t lower_copy(const struct cudaMemcpy3DParms *params, struct flyt_node_data *ret_data)
{
    struct flyt_copy copy;
    CUresult result = params ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;
    cudaError_t error;

    if (result != CUDA_SUCCESS)
        return flyt_cudart_error(result);
    error = flyt_cudart_lower_copy(params, &copy);
    return error != cudaSuccess ? error : flyt_cudart_error(flyt_node_data_copy(&copy, ret_data));
}

static cudaError_t lower_copy_1d(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind,
                                 struct flyt_node_data *ret_data)
{
    struct flyt_copy copy = flyt_copy_plain(FLYT_PLACE_ANY, (uintptr_t)dst, FLYT_PLACE_ANY, (uintptr_t)src, count);
    CUresult result = flyt_cudart_enter();
    cudaError_t error = result != CUDA_SUCCESS ? flyt_cudart_error(result) : flyt_cudart_places(kind, &copy);

    return error != cudaSuccess ? error : flyt_cudart_error(flyt_node_data_copy(&copy, ret_data));
}

static cudaError_t lower_copy_to(const void *symbol, const void *src, size_t count, size_t offset,
                                 enum cudaMemcpyKind kind, struct flyt_node_data *ret_data)
{
    struct flyt_copy copy;
    cudaError_t error = flyt_cudart_copy_to_symbol(symbol, src, count, offset, kind, &copy);

    return error != cudaSuccess ? error : flyt_cudart_error(flyt_node_data_copy(&copy, ret_data));
}

static cudaError_t lower_copy_from(void *dst, const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind,
                                   struct flyt_node_data *ret_data)
{
    struct flyt_copy copy;
    cudaError_t error = flyt_cudart_copy_from_symbol(dst, symbol, count, offset, kind, &copy);

    return error != cudaSuccess ? error : flyt_cudart_error(flyt_node_data_copy(&copy, ret_data));
}

static struct cudaPitchedPtr pitched(const struct flyt_copy *copy, const struct flyt_copy_side *side)
{
    return (struct cudaPitchedPtr){.ptr = (void *)(uintptr_t)side->address,
                                   .pitch = side->pitch_bytes,
                                   .xsize = copy->width_bytes,
                                   .ysize = copy->depth > 1 && side->pitch_bytes ? side->slice_bytes / side->pitch_bytes
                                                                                 : copy->height};
}

/* Of an array its place, and what an element of it has. */
static cudaError_t tell_side(const struct flyt_copy *copy, const struct flyt_copy_side *side, cudaArray_t *ret_array,
                             struct cudaPos *ret_pos, struct cudaPitchedPtr *ret_pointer,
                             struct flyt_array_element *ret_element)
{
    struct flyt_array_at at;
    CUresult result;

    if (side->place != FLYT_PLACE_ARRAY) {
        *ret_pointer = pitched(copy, side);
        return cudaSuccess;
    }
    result = flyt_array_copy_at(side, &at);
    if (result == CUDA_SUCCESS)
        result = flyt_array_element(at.array, ret_element);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    *ret_array = (cudaArray_t)at.array;
    *ret_pos = (struct cudaPos){at.x_bytes / ret_element->bytes * ret_element->side, at.y * ret_element->side, at.z};
    return cudaSuccess;
}

static enum cudaMemcpyKind kind_of(const struct flyt_copy *copy)
{
    const bool is_to_host = copy->dst.place == FLYT_PLACE_HOST;

    if (copy->src.place == FLYT_PLACE_HOST)
        return is_to_host ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice;
    return is_to_host ? cudaMemcpyDeviceToHost : cudaMemcpyDeviceToDevice;
}

cudaError_t cudaGraphMemcpyNodeGetParams(cudaGraphNode_t node, struct cudaMemcpy3DParms *pNodeParams)
{
    const struct flyt_node_data *data;
    struct flyt_array_element element = {1, 1}; /* where an array takes part, an extent counts its texels */
    cudaError_t error = get(node, FLYT_NODE_COPY, pNodeParams, &data);

    if (error != cudaSuccess)
        return error;
    *pNodeParams = (struct cudaMemcpy3DParms){.extent = {data->copy.width_bytes, data->copy.height, data->copy.depth},
                                              .kind = kind_of(&data->copy)};
    error = tell_side(&data->copy, &data->copy.dst, &pNodeParams->dstArray, &pNodeParams->dstPos, &pNodeParams->dstPtr,
                      &element);
    if (error == cudaSuccess) /* the source's counts, where both are arrays */
        error = tell_side(&data->copy, &data->copy.src, &pNodeParams->srcArray, &pNodeParams->srcPos,
                          &pNodeParams->srcPtr, &element);
    pNodeParams->extent.width = pNodeParams->extent.width / element.bytes * element.side;
    pNodeParams->extent.height *= element.side;
    return error;
}

/* ---- fills and host functions ---- */

static cudaError_t lower_fill(const struct cudaMemsetParams *params, struct flyt_node_data *ret_data)
{
    struct flyt_fill fill;
    CUresult result = params ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;

    if (result != CUDA_SUCCESS)
        return flyt_cudart_error(result);
    fill = (struct flyt_fill){.address = (uintptr_t)params->dst,
                              .width = params->width,
                              .height = params->height,
                              .depth = 1,
                              .pitch_bytes = params->pitch,
                              .element_bytes = params->elementSize,
                              .value = params->value};
    return flyt_cudart_error(flyt_node_data_fill(&fill, ret_data));
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *pNodeParams)
{
    const struct flyt_node_data *data;
    cudaError_t error = get(node, FLYT_NODE_FILL, pNodeParams, &data);

    if (error != cudaSuccess)
        return error;
    const struct flyt_fill *fill = &data->fill.fill;
    *pNodeParams = (struct cudaMemsetParams){.dst = (void *)(uintptr_t)fill->address,
                                             .pitch = fill->pitch_bytes,
                                             .value = fill->value,
                                             .elementSize = fill->element_bytes,
                                             .width = fill->width,
                                             .height = fill->height};
    return cudaSuccess;
}

static cudaError_t lower_host(const struct cudaHostNodeParams *params, struct flyt_node_data *ret_data)
{
    CUresult result = params ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;

    return flyt_cudart_error(result != CUDA_SUCCESS ? result
                                                    : flyt_node_data_host(params->fn, params->userData, ret_data));
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t node, struct cudaHostNodeParams *pNodeParams)
{
    const struct flyt_node_data *data;
    cudaError_t error = get(node, FLYT_NODE_HOST, pNodeParams, &data);

    if (error == cudaSuccess)
        *pNodeParams = (struct cudaHostNodeParams){data->host.function, data->host.user};
    return error;
}

/* ---- memory ---- */

_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "passed on as they are");

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                     struct cudaMemAllocNodeParams *nodeParams)
{
    struct flyt_node_data data;
    CUresult result = nodeParams ? flyt_cudart_enter() : CUDA_ERROR_INVALID_VALUE;
    CUdeviceptr address;

    if (result == CUDA_SUCCESS)
        result = flyt_node_data_alloc((const CUmemPoolProps *)(const void *)&nodeParams->poolProps,
                                      nodeParams->bytesize, &data);
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    address = data.memory.address;
    result = flyt_graph_add(pGraphNode, graph, pDependencies, NULL, numDependencies, &data);
    if (result == CUDA_SUCCESS)
        nodeParams->dptr = (void *)address;
    return flyt_cudart_result(result);
}

cudaError_t cudaGraphMemAllocNodeGetParams(cudaGraphNode_t node, struct cudaMemAllocNodeParams *params_out)
{
    const struct flyt_node_data *data;
    cudaError_t error = get(node, FLYT_NODE_ALLOC, params_out, &data);

    if (error != cudaSuccess)
        return error;
    *params_out = (struct cudaMemAllocNodeParams){.bytesize = data->memory.bytes, .dptr = (void *)data->memory.address};
    memcpy(&params_out->poolProps, &data->memory.props, sizeof params_out->poolProps);
    return cudaSuccess;
}

/* ---- nodes of any kind ---- */

static cudaError_t lower_event(cudaEvent_t event, bool is_wait, struct flyt_node_data *ret_data)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_error(result != CUDA_SUCCESS ? result : flyt_node_data_event(event, is_wait, ret_data));
}

static cudaError_t lower_alloc(const struct cudaGraphNodeParams *params, struct flyt_node_data *ret_data)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_error(result != CUDA_SUCCESS
                                 ? result
                                 : flyt_node_data_alloc((const CUmemPoolProps *)(const void *)&params->alloc.poolProps,
                                                        params->alloc.bytesize, ret_data));
}

/* The second versions of the structures begin as the first do. */
static cudaError_t lower_conditional(const struct cudaConditionalNodeParams *params, struct flyt_node_data *ret_data)
{
    const CUDA_CONDITIONAL_NODE_PARAMS lowered = {
        .handle = params->handle, .type = (CUgraphConditionalNodeType)params->type, .size = params->size};
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_error(result == CUDA_SUCCESS ? flyt_node_data_conditional(&lowered, ret_data) : result);
}

static cudaError_t lower(const struct cudaGraphNodeParams *params, struct flyt_node_data *ret_data)
{
    if (!params)
        return cudaErrorInvalidValue;
    switch (params->type) {
    case cudaGraphNodeTypeKernel: {
        const struct cudaKernelNodeParams kernel = {.func = params->kernel.func,
                                                    .gridDim = params->kernel.gridDim,
                                                    .blockDim = params->kernel.blockDim,
                                                    .sharedMemBytes = params->kernel.sharedMemBytes,
                                                    .kernelParams = params->kernel.kernelParams,
                                                    .extra = params->kernel.extra};

        return lower_kernel(&kernel, ret_data);
    }
    case cudaGraphNodeTypeMemcpy:
        return lower_copy(&params->memcpy.copyParams, ret_data);
    case cudaGraphNodeTypeMemset: {
        const struct cudaMemsetParams fill = {.dst = params->memset.dst,
                                              .pitch = params->memset.pitch,
                                              .value = params->memset.value,
                                              .elementSize = params->memset.elementSize,
                                              .width = params->memset.width,
                                              .height = params->memset.height};

        return lower_fill(&fill, ret_data);
    }
    case cudaGraphNodeTypeHost: {
        const struct cudaHostNodeParams host = {params->host.fn, params->host.userData};

        return lower_host(&host, ret_data);
    }
    case cudaGraphNodeTypeGraph:
        return flyt_cudart_error(flyt_node_data_child(params->graph.graph, ret_data));
    case cudaGraphNodeTypeEmpty:
        *ret_data = (struct flyt_node_data){.kind = FLYT_NODE_EMPTY, .device = -1};
        return cudaSuccess;
    case cudaGraphNodeTypeWaitEvent:
        return lower_event(params->eventWait.event, true, ret_data);
    case cudaGraphNodeTypeEventRecord:
        return lower_event(params->eventRecord.event, false, ret_data);
    case cudaGraphNodeTypeExtSemaphoreSignal:
    case cudaGraphNodeTypeExtSemaphoreWait:
        return flyt_cudart_not_supported("node of external semaphores");
    case cudaGraphNodeTypeMemAlloc:
        return lower_alloc(params, ret_data);
    case cudaGraphNodeTypeMemFree:
        return flyt_cudart_error(flyt_node_data_free((CUdeviceptr)params->free.dptr, ret_data));
    case cudaGraphNodeTypeConditional:
        return lower_conditional(&params->conditional, ret_data);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                             const cudaGraphEdgeData *dependencyData, size_t numDependencies,
                             struct cudaGraphNodeParams *nodeParams)
{
    struct flyt_node_data data;
    cudaError_t error = lower(nodeParams, &data);
    struct flyt_node_data given; /* what it tells lives as long as the node */
    CUresult result;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    given = data;
    result = flyt_graph_add(pGraphNode, graph, pDependencies, (const CUgraphEdgeData *)(const void *)dependencyData,
                            numDependencies, &data);
    if (result == CUDA_SUCCESS && given.kind == FLYT_NODE_ALLOC)
        nodeParams->alloc.dptr = (void *)given.memory.address;
    if (result == CUDA_SUCCESS && given.kind == FLYT_NODE_CONDITIONAL)
        nodeParams->conditional.phGraph_out = given.conditional.told;
    return flyt_cudart_result(result);
}

cudaError_t cudaGraphNodeSetParams(cudaGraphNode_t node, struct cudaGraphNodeParams *nodeParams)
{
    struct flyt_node_data data;

    return set(node, lower(nodeParams, &data), &data);
}

cudaError_t cudaGraphExecNodeSetParams(cudaGraphExec_t graphExec, cudaGraphNode_t node,
                                       struct cudaGraphNodeParams *nodeParams)
{
    struct flyt_node_data data;

    if (nodeParams && nodeParams->type == cudaGraphNodeTypeGraph)
        return flyt_cudart_result(flyt_graph_exec_set_child(graphExec, node, nodeParams->graph.graph));
    return set_exec(graphExec, node, lower(nodeParams, &data), &data);
}

cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                           cudaGraphInstantiateParams *instantiateParams)
{
    CUresult result = flyt_cudart_enter();

    return flyt_cudart_result(result != CUDA_SUCCESS
                                  ? result
                                  : flyt_graph_instantiate_params(
                                        pGraphExec, graph, (CUDA_GRAPH_INSTANTIATE_PARAMS *)(void *)instantiateParams));
}

__attribute__((visibility("default"))) cudaError_t
cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                    cudaGraphInstantiateParams *instantiateParams);
cudaError_t cudaGraphInstantiateWithParams_ptsz(cudaGraphExec_t *pGraphExec, cudaGraph_t graph,
                                                cudaGraphInstantiateParams *instantiateParams)
{
    if (instantiateParams)
        instantiateParams->uploadStream = flyt_stream_per_thread(instantiateParams->uploadStream);
    return cudaGraphInstantiateWithParams(pGraphExec, graph, instantiateParams);
}

/* ---- the functions of each kind: adding, setting, and setting in an executable graph ---- */

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                   size_t numDependencies, const struct cudaKernelNodeParams *pNodeParams)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies, lower_kernel(pNodeParams, &data), &data);
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t node, const struct cudaKernelNodeParams *pNodeParams)
{
    struct flyt_node_data data;

    return set(node, lower_kernel(pNodeParams, &data), &data);
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *pNodeParams)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_kernel(pNodeParams, &data), &data);
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                   size_t numDependencies, const struct cudaMemcpy3DParms *pNodeParams)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies, lower_copy(pNodeParams, &data), &data);
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t node, const struct cudaMemcpy3DParms *pNodeParams)
{
    struct flyt_node_data data;

    return set(node, lower_copy(pNodeParams, &data), &data);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const struct cudaMemcpy3DParms *pNodeParams)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_copy(pNodeParams, &data), &data);
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                     const cudaGraphNode_t *pDependencies, size_t numDependencies, void *dst,
                                     const void *src, size_t count, enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies, lower_copy_1d(dst, src, count, kind, &data), &data);
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t node, void *dst, const void *src, size_t count,
                                           enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return set(node, lower_copy_1d(dst, src, count, kind, &data), &data);
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t hGraphExec, cudaGraphNode_t node, void *dst,
                                               const void *src, size_t count, enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_copy_1d(dst, src, count, kind, &data), &data);
}

cudaError_t cudaGraphAddMemcpyNodeToSymbol(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                           const cudaGraphNode_t *pDependencies, size_t numDependencies,
                                           const void *symbol, const void *src, size_t count, size_t offset,
                                           enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies,
               lower_copy_to(symbol, src, count, offset, kind, &data), &data);
}

cudaError_t cudaGraphMemcpyNodeSetParamsToSymbol(cudaGraphNode_t node, const void *symbol, const void *src,
                                                 size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return set(node, lower_copy_to(symbol, src, count, offset, kind, &data), &data);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsToSymbol(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                                     const void *symbol, const void *src, size_t count, size_t offset,
                                                     enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_copy_to(symbol, src, count, offset, kind, &data), &data);
}

cudaError_t cudaGraphAddMemcpyNodeFromSymbol(cudaGraphNode_t *pGraphNode, cudaGraph_t graph,
                                             const cudaGraphNode_t *pDependencies, size_t numDependencies, void *dst,
                                             const void *symbol, size_t count, size_t offset, enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies,
               lower_copy_from(dst, symbol, count, offset, kind, &data), &data);
}

cudaError_t cudaGraphMemcpyNodeSetParamsFromSymbol(cudaGraphNode_t node, void *dst, const void *symbol, size_t count,
                                                   size_t offset, enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return set(node, lower_copy_from(dst, symbol, count, offset, kind, &data), &data);
}

cudaError_t cudaGraphExecMemcpyNodeSetParamsFromSymbol(cudaGraphExec_t hGraphExec, cudaGraphNode_t node, void *dst,
                                                       const void *symbol, size_t count, size_t offset,
                                                       enum cudaMemcpyKind kind)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_copy_from(dst, symbol, count, offset, kind, &data), &data);
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                   size_t numDependencies, const struct cudaMemsetParams *pNodeParams)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies, lower_fill(pNodeParams, &data), &data);
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node, const struct cudaMemsetParams *pNodeParams)
{
    struct flyt_node_data data;

    return set(node, lower_fill(pNodeParams, &data), &data);
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                             const struct cudaMemsetParams *pNodeParams)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_fill(pNodeParams, &data), &data);
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies,
                                 size_t numDependencies, const struct cudaHostNodeParams *pNodeParams)
{
    struct flyt_node_data data;

    return add(pGraphNode, graph, pDependencies, numDependencies, lower_host(pNodeParams, &data), &data);
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t node, const struct cudaHostNodeParams *pNodeParams)
{
    struct flyt_node_data data;

    return set(node, lower_host(pNodeParams, &data), &data);
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t hGraphExec, cudaGraphNode_t node,
                                           const struct cudaHostNodeParams *pNodeParams)
{
    struct flyt_node_data data;

    return set_exec(hGraphExec, node, lower_host(pNodeParams, &data), &data);
}
