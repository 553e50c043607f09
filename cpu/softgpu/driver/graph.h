/*
 * Graphs: nodes become operations of the stream that a graph is launched into, one after the other.
 */
#ifndef FLYT_SOFTGPU_DRIVER_GRAPH_H
#define FLYT_SOFTGPU_DRIVER_GRAPH_H

#include <cuda.h>
#include <stdbool.h>

#include "cpu/softgpu/driver/work.h"

struct CUctx_st;
struct CUgraph_st;
struct CUstream_st;
struct flyt_soft_op;

/* What a library has launched. Its record is copied for each run, which may write to it. */
struct flyt_soft_work {
    struct CUctx_st *ctx; /* on whose SMs it counts */
    flyt_soft_work_fn run;
    const void *record;
    size_t record_bytes;
};

/*
 * Operations that are not in a stream yet, checked as the calls of the same kind are; whoever has one pushes it
 * (flyt_soft_stream_push), or frees it by its own function. CUDA_ERROR_OUT_OF_MEMORY, or what those calls return.
 */

/* A launch on the SMs of the context, whatever stream it is pushed to. */
CUresult flyt_soft_launch_op_new(const CUlaunchConfig *config, CUfunction f, struct CUctx_st *ctx, bool is_cooperative,
                                 void **params, void **extra, struct flyt_soft_op **ret_op);
/* The launch keeps its context, which is not that of the stream that it is pushed to. */
void flyt_soft_launch_op_keep(struct flyt_soft_op *op, struct CUctx_st *ctx);
CUresult flyt_soft_copy_op_new(const CUDA_MEMCPY3D *c, struct flyt_soft_op **ret_op);
CUresult flyt_soft_fill_op_new(const CUDA_MEMSET_NODE_PARAMS *params, struct flyt_soft_op **ret_op);
/* fini may be NULL: frees what the record owns. */
CUresult flyt_soft_work_op_new(const struct flyt_soft_work *work, flyt_soft_work_fini_fn fini,
                               struct flyt_soft_op **ret_op);

/* An empty graph; parent: that of the conditional node whose body it is, or NULL. NULL: no memory. */
struct CUgraph_st *flyt_soft_graph_new(const struct CUgraph_st *parent);
/* NULL is allowed. */
void flyt_soft_graph_free(struct CUgraph_st *graph);
/* Adds a copy of the work. False: no memory. */
bool flyt_soft_graph_append(struct CUgraph_st *graph, const struct flyt_soft_work *work);

/* Adds a copy of the work to what the stream captures. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_soft_capture_work(struct CUstream_st *stream, const struct flyt_soft_work *work);
/* Frees what the stream captures, if it does. */
void flyt_soft_capture_drop(struct CUstream_st *stream);

#endif
