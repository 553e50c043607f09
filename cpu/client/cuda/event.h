/*
 * Events. A CUevent is an id of type FLYT_ID_EVENT. An event that was never recorded counts as complete. Unknown
 * handles are CUDA_ERROR_INVALID_HANDLE (NULL too).
 */
#ifndef FLYT_CLIENT_EVENT_H
#define FLYT_CLIENT_EVENT_H

#include <cuda.h>
#include "cpu/client/core/api.h"

/* In the current context. flags: CU_EVENT_BLOCKING_SYNC, CU_EVENT_DISABLE_TIMING, and with that CU_EVENT_INTERPROCESS,
 * which is CUDA_ERROR_NOT_SUPPORTED without a node manager; others are CUDA_ERROR_INVALID_VALUE. */
FLYT_API CUresult flyt_event_create(unsigned flags, CUevent *ret_event);
FLYT_API CUresult flyt_event_destroy(CUevent event);
/* flags: CU_EVENT_RECORD_DEFAULT; CU_EVENT_RECORD_EXTERNAL is CUDA_ERROR_INVALID_VALUE outside of capture. Event and
 * stream of different devices are CUDA_ERROR_INVALID_HANDLE. */
FLYT_API CUresult flyt_event_record(CUevent event, CUstream stream, unsigned flags);
/* CUDA_SUCCESS or CUDA_ERROR_NOT_READY; without a round trip where the last notice or the progress page tells. */
FLYT_API CUresult flyt_event_query(CUevent event);
FLYT_API CUresult flyt_event_synchronize(CUevent event);
/* CUDA_ERROR_INVALID_HANDLE: one was never recorded or has no timing; _NOT_READY: one is not complete. */
FLYT_API CUresult flyt_event_elapsed(CUevent start, CUevent end, float *ret_elapsed_ms);

#endif
