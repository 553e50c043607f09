/* Device memory that a plan needs for itself. */
#ifndef FLYT_CLIENT_PLAN_MEMORY_H
#define FLYT_CLIENT_PLAN_MEMORY_H

#include <stdint.h>
#include <cuda.h>

/* All zero: there is none. */
struct flyt_plan_memory {
    CUdeviceptr address;
    uint64_t buffer_id; /* of its range: its context may end, and the address be another allocation's */
};

/* CUDA_ERROR_OUT_OF_MEMORY, or a lost connection. */
CUresult flyt_plan_memory_take(struct flyt_plan_memory *self, uint64_t context_id, int device, uint64_t bytes);
/* A loss shows at the next call. */
void flyt_plan_memory_free(struct flyt_plan_memory *self);

#endif
