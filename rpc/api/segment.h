/*
 * What nodes of a segment do (graph.api), for client and server.
 */
#ifndef FLYT_API_SEGMENT_H
#define FLYT_API_SEGMENT_H

#include <stdint.h>
#include <cuda.h>

enum flyt_segment_kind {
    FLYT_SEGMENT_EMPTY,
    FLYT_SEGMENT_KERNEL,
    FLYT_SEGMENT_SET,     /* one slice of memory */
    FLYT_SEGMENT_COPY,    /* within one device's memory */
    FLYT_SEGMENT_CHOICE,  /* a procedure of its own tells of it, as */
    FLYT_SEGMENT_LIBRARY, /* of a call of one of NVIDIA's libraries */
    FLYT_SEGMENT_KINDS
};

/* What an edge has, in segment_edges: the bytes of CUgraphEdgeData that mean something. */
static inline uint32_t flyt_segment_edge(const CUgraphEdgeData *data)
{
    return data->from_port | (uint32_t)data->to_port << 8 | (uint32_t)data->type << 16;
}

enum {
    FLYT_SEGMENT_NODES_MAX = 1 << 18, /* of one segment and all bodies in it */
    FLYT_SEGMENT_DEPTH_MAX = 64,      /* of conditional nodes inside of each other */
    /* What all segments of a session may keep of the server's memory. */
    FLYT_SEGMENT_BYTES_MAX = 1 << 28,
};

/*
 * A node in segment_nodes, which has several, one behind the other, in the order of bytes of x86-64: the arguments of
 * segment_node by their names, then what there are several of.
 */
struct flyt_segment_packed {
    uint32_t bytes; /* until the next one: a multiple of 8 */
    uint32_t kind;
    uint64_t kernel_id;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared_bytes;
    uint32_t element_bytes, value;
    uint32_t attribute_count, before_count, param_bytes;
    /* dst and src of SET and COPY (FLYT_SEGMENT_BOX_BYTES each); attributes (FLYT_SEGMENT_ATTRIBUTE_BYTES each); before
     * (4 each); params */
};

enum { FLYT_SEGMENT_BOX_BYTES = 48, FLYT_SEGMENT_ATTRIBUTE_BYTES = 36 };

_Static_assert(sizeof(struct flyt_segment_packed) == 64, "part of the protocol");

/* What `bytes` has to be. */
static inline uint64_t flyt_segment_packed_bytes(const struct flyt_segment_packed *packed)
{
    const uint64_t boxes = packed->kind == FLYT_SEGMENT_SET || packed->kind == FLYT_SEGMENT_COPY ? 2 : 0;
    const uint64_t bytes = sizeof *packed + boxes * FLYT_SEGMENT_BOX_BYTES +
                           (uint64_t)packed->attribute_count * FLYT_SEGMENT_ATTRIBUTE_BYTES +
                           (uint64_t)packed->before_count * 4 + packed->param_bytes;
    return (bytes + 7) / 8 * 8;
}

#endif
