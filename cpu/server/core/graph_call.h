/*
 * Calls of NVIDIA's libraries that are nodes of graphs: who makes graphs (cpu/server/cuda) has the library's work
 * captured by who makes such calls (cpu/server/library), which installs the table in session->graph_calls when the
 * program opens its first library. Only on the submission thread, with the device's context current.
 */
#ifndef FLYT_SERVER_GRAPH_CALL_H
#define FLYT_SERVER_GRAPH_CALL_H

#include <cuda.h>
#include <stdint.h>

struct flyt_device;

/* As the client tells of it (libcall.api). */
struct flyt_graph_call {
    uint32_t row;
    uint64_t *objects; /* ids */
    unsigned object_count;
    char *arguments;
    uint32_t bytes;
};

struct flyt_graph_call_ops {
    /* Whether the call can be captured now. FLYT_CALL_RETRY: a thread makes a library's call on the device, which might
     * wait for all of its context, and a capture forbids that; no further thread begins one before (is_capture_due of
     * device.h). CUDA_ERROR_INVALID_HANDLE: an object has gone;
     * CUDA_ERROR_INVALID_VALUE: the arguments are not the row's, or an object is another device's;
     * CUDA_ERROR_NOT_SUPPORTED: this node's library lacks it, or it waits for the GPU. */
    CUresult (*check)(struct flyt_device *device, const struct flyt_graph_call *call);
    /* Captures the call in the stream, which nobody else uses, into a graph that is the caller's. As `check`;
     * CUDA_ERROR_NOT_SUPPORTED: launches of the graph would use host memory, too; else the driver's error;
     * CUDA_ERROR_INVALID_VALUE: the library's, which the log has. */
    CUresult (*capture)(struct flyt_device *device, const struct flyt_graph_call *call, CUstream cu_stream,
                        CUgraph *ret_graph);
};

#endif
