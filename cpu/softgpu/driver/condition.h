/*
 * Conditions of graphs' conditional nodes, which device code sets (cudaGraphSetConditional). Each belongs to a device
 * and has one reference of its graph and one of each node and copy of a node that reads it; with the last one it is
 * freed, and its handle names nothing any more. Any thread.
 */
#ifndef FLYT_SOFTGPU_DRIVER_CONDITION_H
#define FLYT_SOFTGPU_DRIVER_CONDITION_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_soft_device;

struct flyt_soft_condition {
    struct flyt_soft_condition *next_in_device, *next_in_graph; /* the latter is the graph's */
    struct flyt_soft_device *device;
    CUgraphConditionalHandle handle;
    CUcontext ctx; /* only compared */
    unsigned default_value;
    bool has_default; /* each launch begins with it */
    bool is_used;     /* a node of the graph reads it */
    /* Under the device's conditions_mutex. */
    unsigned refs;
    uint32_t value;
};

/* With one reference. NULL: out of memory. */
struct flyt_soft_condition *flyt_soft_condition_new(CUcontext ctx, unsigned default_value, bool has_default);
struct flyt_soft_condition *flyt_soft_condition_ref(struct flyt_soft_condition *condition);
/* NULL is allowed. */
void flyt_soft_condition_unref(struct flyt_soft_condition *condition);
uint32_t flyt_soft_condition_value(const struct flyt_soft_condition *condition);
/* A launch begins. */
void flyt_soft_condition_begin(struct flyt_soft_condition *condition);
/* As struct flyt_ptx_launch asks for it. user: the struct flyt_soft_device. */
bool flyt_soft_condition_set(void *user, uint64_t handle, uint32_t value);

#endif
