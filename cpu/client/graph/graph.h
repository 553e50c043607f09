/*
 * Graphs, nodes and executable graphs: data of this library's, of which the server has what an executable graph
 * launches. Handles are ids. Functions of one name are cudaX, cuX and flyt_x.
 *
 * An unknown handle is CUDA_ERROR_INVALID_VALUE. Arrays that tell are as CUDA has them: NULL asks for the count; a
 * larger room is filled up with NULL, a smaller one with as many as fit.
 */
#ifndef FLYT_CLIENT_GRAPH_H
#define FLYT_CLIENT_GRAPH_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>
#include "cpu/client/core/api.h"
#include "cpu/client/graph/node_data.h"

/* ---- graphs ---- */

FLYT_API CUresult flyt_graph_create(CUgraph *ret_graph, unsigned flags);
/* Also its nodes, child graphs and what it keeps of user objects. CUDA_ERROR_INVALID_VALUE: it belongs to a node or a
 * capture that is under way. */
FLYT_API CUresult flyt_graph_destroy(CUgraph graph);
FLYT_API CUresult flyt_graph_clone(CUgraph *ret_graph, CUgraph original);
FLYT_API CUresult flyt_graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
FLYT_API CUresult flyt_graph_root_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count);
/* edge_data may be NULL, where no edge has any: else CUDA_ERROR_LOSSY_QUERY. */
FLYT_API CUresult flyt_graph_edges(CUgraph graph, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edge_data,
                                   size_t *count);
FLYT_API CUresult flyt_graph_edges_add(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                       const CUgraphEdgeData *edge_data, size_t count);
FLYT_API CUresult flyt_graph_edges_remove(CUgraph graph, const CUgraphNode *from, const CUgraphNode *to,
                                          const CUgraphEdgeData *edge_data, size_t count);
/* cuGraphDebugDotPrint. */
FLYT_API CUresult flyt_graph_dot(CUgraph graph, const char *path, unsigned flags);

/* ---- nodes ---- */

/* Takes `data` over, whatever it returns. CUDA_ERROR_INVALID_VALUE: also, a conditional node's condition is not the
 * graph's nor of one that it is a body in, or another node reads it; CUDA_ERROR_NOT_SUPPORTED: bodies have no such
 * nodes. */
FLYT_API CUresult flyt_graph_add(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before,
                                 const CUgraphEdgeData *edge_data, size_t count, struct flyt_node_data *data);
FLYT_API CUresult flyt_graph_add_empty(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count);
FLYT_API CUresult flyt_graph_add_child(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                       CUgraph child);
FLYT_API CUresult flyt_graph_add_record(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                        CUevent event);
FLYT_API CUresult flyt_graph_add_wait(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                      CUevent event);
FLYT_API CUresult flyt_graph_add_free(CUgraphNode *ret_node, CUgraph graph, const CUgraphNode *before, size_t count,
                                      CUdeviceptr address);
FLYT_API CUresult flyt_graph_node_freed(CUgraphNode node, CUdeviceptr *ret_address);
FLYT_API CUresult flyt_graph_node_destroy(CUgraphNode node);
FLYT_API CUresult flyt_graph_node_type(CUgraphNode node, CUgraphNodeType *ret_type);
FLYT_API CUresult flyt_graph_node_before(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edge_data,
                                         size_t *count);
FLYT_API CUresult flyt_graph_node_after(CUgraphNode node, CUgraphNode *nodes, CUgraphEdgeData *edge_data,
                                        size_t *count);
FLYT_API CUresult flyt_graph_node_in_clone(CUgraphNode *ret_node, CUgraphNode original, CUgraph clone);
/* What the node does, which stays the node's, if it is of the kind. Until the node is changed. */
FLYT_API CUresult flyt_graph_node_get(CUgraphNode node, enum flyt_node_kind kind,
                                      const struct flyt_node_data **ret_data);
/* Takes `data` over, whatever it returns. CUDA_ERROR_INVALID_VALUE: of another kind. */
FLYT_API CUresult flyt_graph_node_set(CUgraphNode node, struct flyt_node_data *data);
FLYT_API CUresult flyt_graph_node_child(CUgraphNode node, CUgraph *ret_child);
FLYT_API CUresult flyt_graph_node_event(CUgraphNode node, bool is_wait, CUevent *ret_event);
FLYT_API CUresult flyt_graph_node_event_set(CUgraphNode node, bool is_wait, CUevent event);
FLYT_API CUresult flyt_graph_node_attribute(CUgraphNode node, CUlaunchAttributeID id,
                                            CUlaunchAttributeValue *ret_value);
FLYT_API CUresult flyt_graph_node_attribute_set(CUgraphNode node, CUlaunchAttributeID id,
                                                const CUlaunchAttributeValue *value);
FLYT_API CUresult flyt_graph_node_attributes_copy(CUgraphNode to, CUgraphNode from);

/* cuGraphConditionalHandleCreate. context NULL: the current one. */
FLYT_API CUresult flyt_graph_condition_create(CUgraphConditionalHandle *ret_handle, CUgraph graph, CUcontext context,
                                              unsigned default_value, unsigned flags);

/* ---- executable graphs ---- */

FLYT_API CUresult flyt_graph_instantiate(CUgraphExec *ret_exec, CUgraph graph, unsigned long long flags);
/* Also tells what went wrong, and uploads where the flags say so. */
FLYT_API CUresult flyt_graph_instantiate_params(CUgraphExec *ret_exec, CUgraph graph,
                                                CUDA_GRAPH_INSTANTIATE_PARAMS *params);
FLYT_API CUresult flyt_graph_exec_destroy(CUgraphExec exec);
FLYT_API CUresult flyt_graph_exec_flags(CUgraphExec exec, cuuint64_t *ret_flags);
FLYT_API CUresult flyt_graph_launch(CUgraphExec exec, CUstream stream);
FLYT_API CUresult flyt_graph_upload(CUgraphExec exec, CUstream stream);
FLYT_API CUresult flyt_graph_exec_update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *ret_info);
/* The node is one of the graph that was instantiated. Takes `data` over. */
FLYT_API CUresult flyt_graph_exec_set(CUgraphExec exec, CUgraphNode node, struct flyt_node_data *data);
FLYT_API CUresult flyt_graph_exec_set_child(CUgraphExec exec, CUgraphNode node, CUgraph child);
FLYT_API CUresult flyt_graph_exec_set_event(CUgraphExec exec, CUgraphNode node, bool is_wait, CUevent event);
FLYT_API CUresult flyt_graph_exec_enable(CUgraphExec exec, CUgraphNode node, unsigned is_enabled);
FLYT_API CUresult flyt_graph_exec_is_enabled(CUgraphExec exec, CUgraphNode node, unsigned *ret_is_enabled);

/* ---- user objects ---- */

FLYT_API CUresult flyt_user_object_create(CUuserObject *ret_object, void *user, CUhostFn destroy, unsigned count,
                                          unsigned flags);
FLYT_API CUresult flyt_user_object_retain(CUuserObject object, unsigned count);
FLYT_API CUresult flyt_user_object_release(CUuserObject object, unsigned count);
FLYT_API CUresult flyt_graph_retain(CUgraph graph, CUuserObject object, unsigned count, unsigned flags);
FLYT_API CUresult flyt_graph_release(CUgraph graph, CUuserObject object, unsigned count);

/* ---- capture ---- */

FLYT_API CUresult flyt_capture_begin(CUstream stream, CUstreamCaptureMode mode);
FLYT_API CUresult flyt_capture_begin_to(CUstream stream, CUgraph graph, const CUgraphNode *before,
                                        const CUgraphEdgeData *edge_data, size_t count, CUstreamCaptureMode mode);
FLYT_API CUresult flyt_capture_end(CUstream stream, CUgraph *ret_graph);
FLYT_API CUresult flyt_capture_status(CUstream stream, CUstreamCaptureStatus *ret_status);
/* All results but the status may be NULL. What *ret_nodes and *ret_edge_data point to holds until the thread's next
 * call about captures. */
FLYT_API CUresult flyt_capture_info(CUstream stream, CUstreamCaptureStatus *ret_status, cuuint64_t *ret_number,
                                    CUgraph *ret_graph, const CUgraphNode **ret_nodes,
                                    const CUgraphEdgeData **ret_edge_data, size_t *ret_count);
FLYT_API CUresult flyt_capture_update(CUstream stream, CUgraphNode *nodes, const CUgraphEdgeData *edge_data,
                                      size_t count, unsigned flags);

#endif
