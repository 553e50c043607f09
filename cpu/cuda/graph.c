/*
 * Nodes of graphs: the driver's structures, of today and of earlier versions, become struct flyt_node_data, and back.
 */
#include "cpu/cuda/driver.h"

#include "cpu/client/cuda/array.h"
#include "cpu/client/graph/graph.h"
#include "cpu/cuda/lower.h"

typedef CUDA_KERNEL_NODE_PARAMS_v1 kernel_v1;
typedef CUDA_KERNEL_NODE_PARAMS_v2 kernel_v2;

/* ---- what is done with a node's data, where the structure could become it ---- */

static CUresult add(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count, CUresult lowered,
                    struct flyt_node_data *data)
{
    return lowered != CUDA_SUCCESS ? lowered : flyt_graph_add(ret_node, graph, before, NULL, count, data);
}

static CUresult set(CUgraphNode node, CUresult lowered, struct flyt_node_data *data)
{
    return lowered != CUDA_SUCCESS ? lowered : flyt_graph_node_set(node, data);
}

static CUresult set_exec(CUgraphExec exec, CUgraphNode node, CUresult lowered, struct flyt_node_data *data)
{
    return lowered != CUDA_SUCCESS ? lowered : flyt_graph_exec_set(exec, node, data);
}

/* ---- kernels ---- */

static CUresult lower_kernel(const kernel_v2 *params, struct flyt_node_data *ret_data)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_launch launch = {.function = params->func ? params->func : (CUfunction)params->kern,
                                 .grid = {params->gridDimX, params->gridDimY, params->gridDimZ},
                                 .block = {params->blockDimX, params->blockDimY, params->blockDimZ},
                                 .dynamic_shared_bytes = params->sharedMemBytes};
    CUresult result = flyt_cuda_launch_params(&launch, params->kernelParams, params->extra);
    return result != CUDA_SUCCESS ? result
                                  : flyt_node_data_kernel(&launch, params->func ? NULL : params->ctx, ret_data);
}

/* The first version's structure is the second's without its end. */
static CUresult lower_kernel_v1(const kernel_v1 *params, struct flyt_node_data *ret_data)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    const kernel_v2 newer = {.func = params->func,
                             .gridDimX = params->gridDimX,
                             .gridDimY = params->gridDimY,
                             .gridDimZ = params->gridDimZ,
                             .blockDimX = params->blockDimX,
                             .blockDimY = params->blockDimY,
                             .blockDimZ = params->blockDimZ,
                             .sharedMemBytes = params->sharedMemBytes,
                             .kernelParams = params->kernelParams,
                             .extra = params->extra};
    return lower_kernel(&newer, ret_data);
}

CUresult CUDAAPI cuGraphAddKernelNode_v2(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                         const kernel_v2 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return add(ret_node, graph, before, count, lower_kernel(params, &data), &data);
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                      const kernel_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return add(ret_node, graph, before, count, lower_kernel_v1(params, &data), &data);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams_v2(CUgraphNode node, kernel_v2 *ret_params)
{
    const struct flyt_node_data *data;
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_node_get(node, FLYT_NODE_KERNEL, &data);
    if (result == CUDA_SUCCESS && !ret_params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    const struct flyt_launch *launch = &data->kernel.launch;
    *ret_params = (kernel_v2){.func = launch->function,
                              .gridDimX = launch->grid[0],
                              .gridDimY = launch->grid[1],
                              .gridDimZ = launch->grid[2],
                              .blockDimX = launch->block[0],
                              .blockDimY = launch->block[1],
                              .blockDimZ = launch->block[2],
                              .sharedMemBytes = launch->dynamic_shared_bytes,
                              .kernelParams = (void **)(uintptr_t)launch->params};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode node, kernel_v1 *ret_params)
{
    kernel_v2 params;
    CUresult result = ret_params ? cuGraphKernelNodeGetParams_v2(node, &params) : CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    *ret_params = (kernel_v1){.func = params.func,
                              .gridDimX = params.gridDimX,
                              .gridDimY = params.gridDimY,
                              .gridDimZ = params.gridDimZ,
                              .blockDimX = params.blockDimX,
                              .blockDimY = params.blockDimY,
                              .blockDimZ = params.blockDimZ,
                              .sharedMemBytes = params.sharedMemBytes,
                              .kernelParams = params.kernelParams};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphKernelNodeSetParams_v2(CUgraphNode node, const kernel_v2 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower_kernel(params, &data), &data);
}

CUresult CUDAAPI cuGraphKernelNodeSetParams(CUgraphNode node, const kernel_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower_kernel_v1(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node, const kernel_v2 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set_exec(exec, node, lower_kernel(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec exec, CUgraphNode node, const kernel_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set_exec(exec, node, lower_kernel_v1(params, &data), &data);
}

/* ---- copies; the context says nothing that the addresses do not ---- */

static CUresult lower_copy(const CUDA_MEMCPY3D *params, struct flyt_node_data *ret_data)
{
    struct flyt_copy copy;
    CUresult result = params ? flyt_cuda_lower_copy(params, &copy) : CUDA_ERROR_INVALID_VALUE;
    return result != CUDA_SUCCESS ? result : flyt_node_data_copy(&copy, ret_data);
}

CUresult CUDAAPI cuGraphAddMemcpyNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                      const CUDA_MEMCPY3D *params, CUcontext context)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return add(ret_node, graph, before, count, lower_copy(params, &data), &data);
}

/* A side of a copy, as the structure has it. */
struct told_side {
    CUmemorytype type;
    struct flyt_array_at at;
    void *host;
    CUdeviceptr device;
    size_t pitch_bytes, rows_apart;
};

static CUresult tell_side(const struct flyt_copy_side *side, struct told_side *ret)
{
    const bool is_host = side->place == FLYT_PLACE_HOST;
    *ret = (struct told_side){.type = CU_MEMORYTYPE_ARRAY};
    if (side->place == FLYT_PLACE_ARRAY)
        return flyt_array_copy_at(side, &ret->at);
    ret->type = is_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    ret->host = is_host ? (void *)(uintptr_t)side->address : NULL;
    ret->device = is_host ? 0 : side->address;
    ret->pitch_bytes = side->pitch_bytes;
    ret->rows_apart = side->pitch_bytes ? side->slice_bytes / side->pitch_bytes : 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode node, CUDA_MEMCPY3D *ret_params)
{
    const struct flyt_node_data *data;
    struct told_side src, dst;
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_node_get(node, FLYT_NODE_COPY, &data);
    if (result == CUDA_SUCCESS && !ret_params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        result = tell_side(&data->copy.src, &src);
    if (result == CUDA_SUCCESS)
        result = tell_side(&data->copy.dst, &dst);
    if (result != CUDA_SUCCESS)
        return result;
    *ret_params = (CUDA_MEMCPY3D){.srcMemoryType = src.type,
                                  .srcHost = src.host,
                                  .srcDevice = src.device,
                                  .srcArray = src.at.array,
                                  .srcXInBytes = src.at.x_bytes,
                                  .srcY = src.at.y,
                                  .srcZ = src.at.z,
                                  .srcPitch = src.pitch_bytes,
                                  .srcHeight = src.rows_apart,
                                  .dstMemoryType = dst.type,
                                  .dstHost = dst.host,
                                  .dstDevice = dst.device,
                                  .dstArray = dst.at.array,
                                  .dstXInBytes = dst.at.x_bytes,
                                  .dstY = dst.at.y,
                                  .dstZ = dst.at.z,
                                  .dstPitch = dst.pitch_bytes,
                                  .dstHeight = dst.rows_apart,
                                  .WidthInBytes = data->copy.width_bytes,
                                  .Height = data->copy.height,
                                  .Depth = data->copy.depth};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemcpyNodeSetParams(CUgraphNode node, const CUDA_MEMCPY3D *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower_copy(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *params,
                                                CUcontext context)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set_exec(exec, node, lower_copy(params, &data), &data);
}

/* ---- fills ---- */

static CUresult lower_fill(const CUDA_MEMSET_NODE_PARAMS_v1 *params, struct flyt_node_data *ret_data)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_fill fill = {.address = params->dst,
                                   .width = params->width,
                                   .height = params->height,
                                   .depth = 1,
                                   .pitch_bytes = params->pitch,
                                   .element_bytes = params->elementSize,
                                   .value = params->value};
    return flyt_node_data_fill(&fill, ret_data);
}

CUresult CUDAAPI cuGraphAddMemsetNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                      const CUDA_MEMSET_NODE_PARAMS_v1 *params, CUcontext context)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return add(ret_node, graph, before, count, lower_fill(params, &data), &data);
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode node, CUDA_MEMSET_NODE_PARAMS_v1 *ret_params)
{
    const struct flyt_node_data *data;
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_node_get(node, FLYT_NODE_FILL, &data);
    if (result == CUDA_SUCCESS && !ret_params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS)
        return result;
    const struct flyt_fill *fill = &data->fill.fill;
    *ret_params = (CUDA_MEMSET_NODE_PARAMS_v1){.dst = fill->address,
                                               .pitch = fill->pitch_bytes,
                                               .value = fill->value,
                                               .elementSize = fill->element_bytes,
                                               .width = fill->width,
                                               .height = fill->height};
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemsetNodeSetParams(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower_fill(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                const CUDA_MEMSET_NODE_PARAMS_v1 *params, CUcontext context)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set_exec(exec, node, lower_fill(params, &data), &data);
}

/* ---- host functions ---- */

static CUresult lower_host(const CUDA_HOST_NODE_PARAMS_v1 *params, struct flyt_node_data *ret_data)
{
    return params ? flyt_node_data_host(params->fn, params->userData, ret_data) : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphAddHostNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                    const CUDA_HOST_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return add(ret_node, graph, before, count, lower_host(params, &data), &data);
}

CUresult CUDAAPI cuGraphHostNodeGetParams(CUgraphNode node, CUDA_HOST_NODE_PARAMS_v1 *ret_params)
{
    const struct flyt_node_data *data;
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_node_get(node, FLYT_NODE_HOST, &data);
    if (result == CUDA_SUCCESS && !ret_params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *ret_params = (CUDA_HOST_NODE_PARAMS_v1){data->host.function, data->host.user};
    return result;
}

CUresult CUDAAPI cuGraphHostNodeSetParams(CUgraphNode node, const CUDA_HOST_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower_host(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecHostNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                              const CUDA_HOST_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set_exec(exec, node, lower_host(params, &data), &data);
}

/* ---- memory operations of streams ---- */

static CUresult lower_ops(const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *params, struct flyt_node_data *ret_data)
{
    return params ? flyt_node_data_ops(params->count, params->paramArray, params->flags, ret_data)
                  : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphAddBatchMemOpNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                          const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return add(ret_node, graph, before, count, lower_ops(params, &data), &data);
}

CUresult CUDAAPI cuGraphBatchMemOpNodeGetParams(CUgraphNode node, CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *ret_params)
{
    const struct flyt_node_data *data;
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_node_get(node, FLYT_NODE_OPS, &data);
    if (result == CUDA_SUCCESS && !ret_params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *ret_params = (CUDA_BATCH_MEM_OP_NODE_PARAMS_v1){.count = data->ops.count, .paramArray = data->ops.list};
    return result;
}

CUresult CUDAAPI cuGraphBatchMemOpNodeSetParams(CUgraphNode node, const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower_ops(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecBatchMemOpNodeSetParams(CUgraphExec exec, CUgraphNode node,
                                                    const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set_exec(exec, node, lower_ops(params, &data), &data);
}

/* ---- memory ---- */

CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                        CUDA_MEM_ALLOC_NODE_PARAMS_v1 *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_node_data_alloc(&params->poolProps, params->bytesize, &data);
    if (result != CUDA_SUCCESS)
        return result;
    CUdeviceptr address = data.memory.address;
    result = flyt_graph_add(ret_node, graph, before, NULL, count, &data);
    if (result == CUDA_SUCCESS)
        params->dptr = address;
    return result;
}

CUresult CUDAAPI cuGraphMemAllocNodeGetParams(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS_v1 *ret_params)
{
    const struct flyt_node_data *data;
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_node_get(node, FLYT_NODE_ALLOC, &data);
    if (result == CUDA_SUCCESS && !ret_params)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS)
        *ret_params = (CUDA_MEM_ALLOC_NODE_PARAMS_v1){
            .poolProps = data->memory.props, .bytesize = data->memory.bytes, .dptr = data->memory.address};
    return result;
}

/* ---- nodes of any kind ---- */

static CUresult lower(const CUgraphNodeParams *params, struct flyt_node_data *ret_data)
{
    if (!params)
        return CUDA_ERROR_INVALID_VALUE;
    switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
        return lower_kernel((const kernel_v2 *)&params->kernel, ret_data);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return lower_copy(&params->memcpy.copyParams, ret_data);
    case CU_GRAPH_NODE_TYPE_MEMSET:
        return lower_fill((const CUDA_MEMSET_NODE_PARAMS_v1 *)&params->memset, ret_data);
    case CU_GRAPH_NODE_TYPE_HOST:
        return lower_host((const CUDA_HOST_NODE_PARAMS_v1 *)&params->host, ret_data);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        return flyt_node_data_child(params->graph.graph, ret_data);
    case CU_GRAPH_NODE_TYPE_EMPTY:
        *ret_data = (struct flyt_node_data){.kind = FLYT_NODE_EMPTY, .device = -1};
        return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
        return flyt_node_data_event(params->eventWait.event, true, ret_data);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
        return flyt_node_data_event(params->eventRecord.event, false, ret_data);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
        return lower_ops((const CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 *)&params->memOp, ret_data);
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
        return flyt_not_supported("node of external semaphores");
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
        return flyt_node_data_alloc(&params->alloc.poolProps, params->alloc.bytesize, ret_data);
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
        return flyt_node_data_free(params->free.dptr, ret_data);
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
        return flyt_node_data_conditional(&params->conditional, ret_data);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult CUDAAPI cuGraphAddNode_v2(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before,
                                   const CUgraphEdgeData *edge_data, size_t count, CUgraphNodeParams *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    CUresult result = lower(params, &data);
    if (result != CUDA_SUCCESS)
        return result;
    const struct flyt_node_data given = data; /* what it tells lives as long as the node */
    result = flyt_graph_add(ret_node, graph, before, edge_data, count, &data);
    if (result == CUDA_SUCCESS && given.kind == FLYT_NODE_ALLOC)
        params->alloc.dptr = given.memory.address;
    if (result == CUDA_SUCCESS && given.kind == FLYT_NODE_CONDITIONAL)
        params->conditional.phGraph_out = given.conditional.told;
    return result;
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                CUgraphNodeParams *params)
{
    return cuGraphAddNode_v2(ret_node, graph, before, NULL, count, params);
}

CUresult CUDAAPI cuGraphNodeSetParams(CUgraphNode node, CUgraphNodeParams *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    return set(node, lower(params, &data), &data);
}

CUresult CUDAAPI cuGraphExecNodeSetParams(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
    struct flyt_node_data data;
    FLYT_CUDA_ENTER();
    if (params && params->type == CU_GRAPH_NODE_TYPE_GRAPH)
        return flyt_graph_exec_set_child(exec, node, params->graph.graph);
    return set_exec(exec, node, lower(params, &data), &data);
}

/* ---- executable graphs ---- */

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec exec, CUgraph graph, CUgraphNode *ret_node,
                                   CUgraphExecUpdateResult *ret_result)
{
    CUgraphExecUpdateResultInfo info = {0};
    FLYT_CUDA_ENTER();
    CUresult result = flyt_graph_exec_update(exec, graph, &info);
    if (ret_node)
        *ret_node = info.errorNode;
    if (ret_result)
        *ret_result = info.result;
    return result;
}

CUresult CUDAAPI cuGraphInstantiateWithParams(CUgraphExec *ret_exec, CUgraph graph,
                                              CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    FLYT_CUDA_ENTER();
    return flyt_graph_instantiate_params(ret_exec, graph, params);
}

CUresult CUDAAPI cuGraphInstantiateWithParams_ptsz(CUgraphExec *ret_exec, CUgraph graph,
                                                   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
    FLYT_CUDA_ENTER();
    if (params)
        params->hUploadStream = flyt_stream_per_thread(params->hUploadStream);
    return flyt_graph_instantiate_params(ret_exec, graph, params);
}
