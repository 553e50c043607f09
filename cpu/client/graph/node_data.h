/*
 * What a node of a graph does, as plain data, for both APIs: each lowers its own structures to this and back.
 */
#ifndef FLYT_CLIENT_NODE_DATA_H
#define FLYT_CLIENT_NODE_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>
#include "cpu/client/core/api.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/kernel.h"

struct flyt_captured_call;
struct flyt_graph;
struct flyt_launch_taken;

enum flyt_node_kind {
    FLYT_NODE_EMPTY,
    FLYT_NODE_KERNEL,
    FLYT_NODE_COPY,
    FLYT_NODE_FILL,
    FLYT_NODE_HOST,
    FLYT_NODE_CHILD,
    FLYT_NODE_RECORD,
    FLYT_NODE_WAIT,
    FLYT_NODE_OPS,  /* memory operations of a stream */
    FLYT_NODE_CALL, /* of one of NVIDIA's libraries, captured */
    FLYT_NODE_ALLOC,
    FLYT_NODE_FREE,
    FLYT_NODE_CONDITIONAL
};

struct flyt_node_data {
    enum flyt_node_kind kind;
    int device;
    union {
        struct {
            struct flyt_launch launch; /* params points into *taken; attributes are owned */
            struct flyt_launch_taken *taken;
            uint64_t green_id; /* of the program's green context on whose SMs it runs; 0: of none */
        } kernel;
        struct flyt_copy copy;
        struct {
            struct flyt_fill fill;
            bool is_host; /* memory of the host */
        } fill;
        struct {
            CUhostFn function;
            void *user;
        } host;
        struct flyt_graph *child;
        CUevent event;
        struct {
            CUstreamBatchMemOpParams *list;
            unsigned count;
        } ops;
        struct flyt_captured_call *call;
        struct {
            uint64_t handle;
            CUcontext context;
            CUgraphConditionalNodeType type;
            unsigned body_count;
            struct flyt_graph **bodies;
            CUgraph *told; /* their handles */
        } conditional;
        struct {
            CUdeviceptr address; /* of a graph's memory (graph_memory.h), with a reference */
            size_t bytes;        /* what was asked for; FLYT_NODE_ALLOC alone, and so is */
            CUmemPoolProps props;
        } memory;
    };
};

/*
 * Each makes data of checked parameters, on the current context's device. What it owns flyt_node_data_fini frees, or
 * who takes it over. CUDA_ERROR_INVALID_VALUE and what the calls of the same kind return; on failure there is nothing
 * to free.
 */
/* context: where it runs, one of that device; NULL: the current one. */
FLYT_API CUresult flyt_node_data_kernel(const struct flyt_launch *launch, CUcontext context,
                                        struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_copy(const struct flyt_copy *copy, struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_fill(const struct flyt_fill *fill, struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_host(CUhostFn function, void *user, struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_child(CUgraph child, struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_event(CUevent event, bool is_wait, struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_ops(unsigned count, const CUstreamBatchMemOpParams *ops, unsigned flags,
                                     struct flyt_node_data *ret_data);

/* Takes memory of a device or of the host, whose address is in the data. CUDA_ERROR_NOT_SUPPORTED: of a NUMA node. */
FLYT_API CUresult flyt_node_data_alloc(const CUmemPoolProps *props, size_t bytes, struct flyt_node_data *ret_data);
FLYT_API CUresult flyt_node_data_free(CUdeviceptr address, struct flyt_node_data *ret_data);

/* The context that a program names, or the current one where it names none. CUDA_ERROR_INVALID_CONTEXT,
 * _CONTEXT_IS_DESTROYED. */
CUresult flyt_node_data_context(CUcontext given, CUcontext *ret_context);
/* With empty bodies. CUDA_ERROR_INVALID_VALUE: also, the type does not have so many. */
FLYT_API CUresult flyt_node_data_conditional(const CUDA_CONDITIONAL_NODE_PARAMS *params,
                                             struct flyt_node_data *ret_data);

/* A deep copy; CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_node_data_clone(const struct flyt_node_data *from, struct flyt_node_data *ret_data);
/* Whether both do the same for certain. */
bool flyt_node_data_is_same(const struct flyt_node_data *a, const struct flyt_node_data *b);
/* Of a kernel; zeros: it has none such. */
CUlaunchAttributeValue flyt_node_data_attribute(const struct flyt_node_data *data, CUlaunchAttributeID id);
/* Whether a node of an executable graph that does one may do the other instead, which is of the same kind: copies of
 * several rows or of arrays stay as they are, fills of several rows keep their shape (cuGraphExecMemcpyNodeSetParams,
 * cuGraphExecMemsetNodeSetParams). */
bool flyt_node_data_may_become(const struct flyt_node_data *data, const struct flyt_node_data *other);
FLYT_API void flyt_node_data_fini(struct flyt_node_data *data);
void flyt_node_data_fini_locked(struct flyt_node_data *data);
CUgraphNodeType flyt_node_data_type(const struct flyt_node_data *data);
/* Sets an attribute of a kernel's data. */
CUresult flyt_node_data_set_attribute(struct flyt_node_data *data, CUlaunchAttributeID id,
                                      const CUlaunchAttributeValue *value);

#endif
