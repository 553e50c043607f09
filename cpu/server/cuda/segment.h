/*
 * What is kept of a segment, for the two modules that know: segment.c takes nodes, segment_exec.c makes the driver's
 * graph of them. Only on the submission thread.
 */
#ifndef FLYT_SERVER_SEGMENT_H
#define FLYT_SERVER_SEGMENT_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

#include "cpu/server/core/graph_call.h"
#include "cpu/server/core/object.h"
#include "flyt_serve.h"
#include "rpc/api/segment.h"

struct kernel_part {
    uint64_t kernel_id;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    flyt_launch_attribute *attributes;
    unsigned attribute_count;
    char *params;
    uint32_t param_bytes;
};

struct fill_part {
    flyt_box box; /* one slice */
    uint32_t element_bytes, value;
};

struct copy_part {
    flyt_box dst, src;
    uint64_t line_bytes; /* of boxes without gaps; 0: they have some */
};

struct conditional_part {
    uint64_t handle; /* the client's */
    uint32_t kind, default_value, flags;
    uint64_t *bodies; /* ids */
    unsigned body_count;
};

struct node {
    enum flyt_segment_kind kind;
    union {
        struct kernel_part kernel;
        struct fill_part fill;
        struct copy_part copy;
        struct conditional_part conditional;
        struct flyt_graph_call call;
    };
    struct flyt_segment_chunk *chunk; /* that arrays lie in, with a reference; NULL: they are the node's */
    uint64_t green_id;                /* of the program's green context on whose SMs a kernel runs; 0: the session's */
    uint32_t *before;
    unsigned before_count;
    CUgraphEdgeData *edges; /* of the first edge_count in `before`; of the rest there are none */
    unsigned edge_count;
    uint64_t bytes; /* of the server's memory, this included */
};

/* A node of the driver's graph. */
struct made_node {
    CUgraphNode cu_node;
    enum flyt_segment_kind kind;       /* that it has for good; as FLYT_SEGMENT_EMPTY, it is switched off */
    flyt_launch_attribute *attributes; /* of a kernel, for good */
    unsigned attribute_count;
    bool is_off, is_stale; /* is in the segment's list of those that have changed */
};

struct flyt_segment {
    struct flyt_object object;
    struct flyt_device *device;
    struct node *nodes;
    unsigned count, room;
    unsigned whole_count; /* that it is to have */
    CUresult failure;     /* of a node that could not be taken: the segment is none */
    uint64_t unload_seen; /* session->unload_count when its kernels were last looked for */
    /* The driver's (segment_exec.c). */
    CUgraphExec cu_exec;                            /* NULL: to be made */
    CUgraph cu_graph;                               /* that it was made of: its nodes name those of cu_exec */
    const struct flyt_partition_context *partition; /* whose context it was made in */
    struct made_node *made;                         /* by place */
    unsigned *stale;                                /* places of nodes that have changed since */
    unsigned stale_count;
    bool has_conditions;
};

/* The driver's graph goes; what is under way of it goes on (cuGraphExecDestroy). */
void flyt_segment_forget(struct flyt_segment *self);
/* The node at `place` is to become `node`: the driver's graph has it changed before its next launch, or goes, to be
 * made anew. Of neither there is anything to do where it was not made. */
void flyt_segment_change(struct flyt_segment *self, uint32_t place, const struct node *node);

#endif
