/*
 * What a handle of the driver API points to: every object begins with its kind, so that a wrong or stale handle is
 * refused where that can be told.
 */
#ifndef FLYT_SOFTGPU_DRIVER_HANDLE_H
#define FLYT_SOFTGPU_DRIVER_HANDLE_H

enum flyt_soft_kind {
    FLYT_SOFT_DEAD = 0,
    FLYT_SOFT_CONTEXT = 0x666c0001,
    FLYT_SOFT_GREEN,
    FLYT_SOFT_DESC,
    FLYT_SOFT_STREAM,
    FLYT_SOFT_EVENT,
    FLYT_SOFT_LIBRARY,
    FLYT_SOFT_KERNEL,
    FLYT_SOFT_MODULE,
    FLYT_SOFT_FUNCTION,
    FLYT_SOFT_EXTENT,
    FLYT_SOFT_LINK,
    FLYT_SOFT_GRAPH,
    FLYT_SOFT_GRAPH_NODE,
    FLYT_SOFT_GRAPH_EXEC,
    FLYT_SOFT_ARRAY,
    FLYT_SOFT_MIPMAPPED_ARRAY,
};

/* Whether `handle` points to an object of `kind_`. NULL does not. */
#define flyt_soft_is(handle, kind_) ((handle) && (handle)->kind == (kind_))

#endif
