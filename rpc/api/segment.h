/*
 * What nodes of a segment do (graph.api), for client and server.
 */
#ifndef FLYT_API_SEGMENT_H
#define FLYT_API_SEGMENT_H

enum flyt_segment_kind {
    FLYT_SEGMENT_EMPTY,
    FLYT_SEGMENT_KERNEL,
    FLYT_SEGMENT_SET,    /* one slice of memory */
    FLYT_SEGMENT_COPY,   /* within one device's memory */
    FLYT_SEGMENT_CHOICE, /* a procedure of its own tells of it */
    FLYT_SEGMENT_KINDS
};

enum {
    FLYT_SEGMENT_NODES_MAX = 1 << 18, /* of one segment and all bodies in it */
    FLYT_SEGMENT_DEPTH_MAX = 64,      /* of conditional nodes inside of each other */
    /* What all segments of a session may keep of the server's memory. */
    FLYT_SEGMENT_BYTES_MAX = 1 << 28,
};

#endif
