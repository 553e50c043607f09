/* What a library has launched while its call was captured. */
#include "cpu/server/library/captured.h"

#include <stdbool.h>
#include <stdlib.h>

#include "cpu/server/core/driver.h"

/* What the driver does not know of is no memory of a GPU's. */
static bool is_host(const struct flyt_driver *driver, CUmemorytype type, CUdeviceptr address)
{
    CUmemorytype found = CU_MEMORYTYPE_HOST;
    if (type != CU_MEMORYTYPE_UNIFIED)
        return type == CU_MEMORYTYPE_HOST;
    return driver->cuPointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address) != CUDA_SUCCESS ||
           found == CU_MEMORYTYPE_HOST;
}

static CUresult check_copy(const struct flyt_driver *driver, CUgraphNode cu_node)
{
    CUDA_MEMCPY3D copy;
    CUresult result = driver->cuGraphMemcpyNodeGetParams(cu_node, &copy);
    if (result != CUDA_SUCCESS)
        return result;
    return is_host(driver, copy.srcMemoryType, copy.srcDevice) || is_host(driver, copy.dstMemoryType, copy.dstDevice)
               ? CUDA_ERROR_NOT_SUPPORTED
               : CUDA_SUCCESS;
}

static CUresult check_node(const struct flyt_driver *driver, CUgraphNode cu_node)
{
    CUgraphNodeType type;
    CUgraph child;
    CUresult result = driver->cuGraphNodeGetType(cu_node, &type);
    if (result != CUDA_SUCCESS)
        return result;
    switch (type) {
    case CU_GRAPH_NODE_TYPE_HOST:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
        return check_copy(driver, cu_node);
    case CU_GRAPH_NODE_TYPE_GRAPH:
        result = driver->cuGraphChildGraphNodeGetGraph(cu_node, &child);
        return result == CUDA_SUCCESS ? flyt_captured_check(driver, child) : result;
    default:
        return CUDA_SUCCESS;
    }
}

CUresult flyt_captured_check(const struct flyt_driver *driver, CUgraph cu_graph)
{
    size_t count = 0;
    CUresult result = driver->cuGraphGetNodes(cu_graph, NULL, &count);
    if (result != CUDA_SUCCESS || !count)
        return result;
    CUgraphNode *cu_nodes = calloc(count, sizeof *cu_nodes);
    if (!cu_nodes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = driver->cuGraphGetNodes(cu_graph, cu_nodes, &count);
    for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
        result = check_node(driver, cu_nodes[i]);
    free(cu_nodes);
    return result;
}
