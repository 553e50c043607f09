/*
 * Memory that graphs allocate and free when they are launched (cudaGraphAddMemAllocNode, cudaMallocAsync in a capture):
 * ordinary memory of the program's, on a device or pinned at the host, taken when the node is made, because its address
 * is told then, and kept as long as a node names it or the program has it. What a launch "allocates" is there already;
 * only the books say whether the program may use it, and whether a graph may allocate it again.
 */
#ifndef FLYT_CLIENT_GRAPH_MEMORY_H
#define FLYT_CLIENT_GRAPH_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* Takes memory of a context and its device, or of the host, with one reference. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_graph_memory_new(uint64_t context_id, int device, bool is_host, uint64_t bytes, CUdeviceptr *ret_address);
/* Whether a graph's memory begins there. */
bool flyt_graph_memory_is(CUdeviceptr address);
/* Of the nodes that name it. Memory that nobody has any more is freed with the last one. */
void flyt_graph_memory_ref(CUdeviceptr address);
void flyt_graph_memory_unref(CUdeviceptr address);
/* A launch allocates it. CUDA_ERROR_INVALID_VALUE: it is allocated already, and is_freed_first is not set. */
CUresult flyt_graph_memory_allocate(CUdeviceptr address, bool is_freed_first);
/* A launch, or the program, frees it. False: it is no graph's; else *ret_result, CUDA_ERROR_INVALID_VALUE where it is
 * not allocated. */
bool flyt_graph_memory_free(CUdeviceptr address, CUresult *ret_result);
/* Part (part.h): a context ends, and its memory with it. */
void flyt_graph_memory_clear(uint64_t context_id, bool is_on_server);

/* cuDeviceGetGraphMemAttribute, cuDeviceSetGraphMemAttribute (of high marks, to 0), cuDeviceGraphMemTrim (nothing is
 * kept that no node names). CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE. */
FLYT_API CUresult flyt_graph_memory_attribute(int device, CUgraphMem_attribute attribute, void *ret_value);
FLYT_API CUresult flyt_graph_memory_attribute_set(int device, CUgraphMem_attribute attribute, const void *value);
FLYT_API CUresult flyt_graph_memory_trim(int device);

#endif
