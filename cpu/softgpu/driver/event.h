/* Events and green contexts, as far as other files of the driver need them. */
#ifndef FLYT_SOFTGPU_DRIVER_EVENT_H
#define FLYT_SOFTGPU_DRIVER_EVENT_H

#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>

#include "cpu/softgpu/driver/handle.h"

struct CUctx_st;
struct flyt_soft_record;

struct CUevent_st {
    enum flyt_soft_kind kind;
    unsigned flags;
    struct CUctx_st *ctx;
    pthread_mutex_t mutex;           /* covers `record` */
    struct flyt_soft_record *record; /* the latest; NULL before the first */
};

/* The event's latest record, with a reference for the caller; NULL where it was never recorded. */
struct flyt_soft_record *flyt_soft_event_record(CUevent event);

/* Replaces the event's record; one reference is taken over. */
void flyt_soft_event_set(CUevent event, struct flyt_soft_record *record);

/* Whether the event belongs to the context's device: only there can it be recorded. */
bool flyt_soft_event_suits(CUevent event, const struct CUctx_st *ctx);

/* The context of a green context. CUDA_ERROR_INVALID_CONTEXT: no green context. *ret_ctx is borrowed. */
CUresult flyt_soft_green_context(CUgreenCtx green, struct CUctx_st **ret_ctx);

#endif
