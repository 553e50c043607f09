/*
 * Green contexts of the program: parts of the SMs that its VM has of a device. A resource is a set of SM groups, by
 * their places among those that the session has (rpc/api/green.api); a descriptor is such a set, too, and a CUgreenCtx
 * an id of type FLYT_ID_GREEN. The context that belongs to a green one (cpu/client/cuda/context.h) has its streams;
 * memory, modules and events that are made in it are its primary context's.
 *
 * Unknown green contexts are CUDA_ERROR_INVALID_CONTEXT, types other than SMs CUDA_ERROR_INVALID_RESOURCE_TYPE.
 */
#ifndef FLYT_CLIENT_GREEN_H
#define FLYT_CLIENT_GREEN_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

#include "cpu/client/core/api.h"

struct flyt_restore;

/* cuDeviceGetDevResource, cuCtxGetDevResource, cuGreenCtxGetDevResource: what there is to be split. */
FLYT_API CUresult flyt_green_device_resource(int device, CUdevResourceType type, CUdevResource *ret_resource);
FLYT_API CUresult flyt_green_context_resource(CUcontext context, CUdevResourceType type, CUdevResource *ret_resource);
FLYT_API CUresult flyt_green_resource(CUgreenCtx green, CUdevResourceType type, CUdevResource *ret_resource);

/*
 * cuDevSmResourceSplitByCount: into groups of equally many whole SM groups. results may be NULL, to ask how many there
 * would be; so may ret_remaining. CUDA_ERROR_INVALID_VALUE: unknown flags, no resource of this library;
 * CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: results of a split, which CUDA does not split again, more SMs than there
 * are, or no group.
 */
FLYT_API CUresult flyt_green_split(CUdevResource *results, unsigned *in_out_count, const CUdevResource *input,
                                   CUdevResource *ret_remaining, unsigned flags, unsigned min_count);

/* cuDevResourceGenerateDesc. The descriptor stays as long as the process, as CUDA has nothing that frees one; equal
 * ones are the same. CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION: of several devices; CUDA_ERROR_OUT_OF_MEMORY.
 */
FLYT_API CUresult flyt_green_describe(const CUdevResource *resources, unsigned count, CUdevResourceDesc *ret_desc);

/* cuGreenCtxCreate. Retains the primary context. CUDA_ERROR_INVALID_VALUE, _INVALID_DEVICE, _OUT_OF_MEMORY. */
FLYT_API CUresult flyt_green_create(CUdevResourceDesc desc, int device, unsigned flags, CUgreenCtx *ret_green);
/* cuGreenCtxDestroy. Its streams are destroyed with it. */
FLYT_API CUresult flyt_green_destroy(CUgreenCtx green);
/* cuCtxFromGreenCtx */
FLYT_API CUresult flyt_green_context(CUgreenCtx green, CUcontext *ret_context);
/* cuGreenCtxGetId. NULL: the current one. */
FLYT_API CUresult flyt_green_number(CUgreenCtx green, unsigned long long *ret_number);
/* cuStreamGetGreenCtx. *ret_green is NULL where the stream is in none. */
FLYT_API CUresult flyt_green_of_stream(CUstream stream, CUgreenCtx *ret_green);
/* cuGreenCtxStreamCreate. CUDA_ERROR_INVALID_VALUE: other flags than CU_STREAM_NON_BLOCKING. */
FLYT_API CUresult flyt_green_stream_create(CUgreenCtx green, unsigned flags, int priority, CUstream *ret_stream);

/*
 * cuGreenCtxRecordEvent, cuGreenCtxWaitEvent, cuCtxRecordEvent, cuCtxWaitEvent: of all streams that the context has.
 * Streams that are made in the context after such a wait come after it in a green context, and elsewhere where they
 * block. CUDA_ERROR_INVALID_HANDLE: no event, or one of another device (record); CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
 * one of the streams is captured, and its capture is invalid from now on.
 */
FLYT_API CUresult flyt_green_record_event(CUgreenCtx green, CUevent event);
FLYT_API CUresult flyt_green_wait_event(CUgreenCtx green, CUevent event);
FLYT_API CUresult flyt_context_record_event(CUcontext context, CUevent event);
FLYT_API CUresult flyt_context_wait_event(CUcontext context, CUevent event);

/* ---- inside the library ---- */

/* The device's primary context ends, and its green contexts with it. */
void flyt_green_before_reset(int device, uint64_t context_id);
/* Makes them again (restore.h). */
int flyt_green_restore(struct flyt_restore *restore);

/* For event.c: where streams that are made later wait is kept; NULL: unknown. */
CUstream *flyt_green_gate(CUcontext context);
/* A stream that was made in it just now comes after what the gate waits for. */
CUresult flyt_green_pass_gate(CUstream gate, CUstream stream);

#endif
