/*
 * Contexts. The server knows none: a session has one partition per device, and a context is a record in the client
 * that says which device is meant and which objects go when it is destroyed. Each device has a primary context;
 * programs may create more. A CUcontext is an id of type FLYT_ID_CONTEXT.
 *
 * Each thread has a stack of current contexts, as in the driver API. The runtime API's "current device" is the same
 * thing seen from the other side: flyt_runtime_enter binds the primary context of the thread's device where nothing is
 * current.
 */
#ifndef FLYT_CLIENT_CONTEXT_H
#define FLYT_CLIENT_CONTEXT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* cuCtxCreate: a new context on `device`, pushed on the calling thread's stack. CUDA_ERROR_INVALID_DEVICE,
 * _INVALID_VALUE (unknown flags; CU_CTX_MAP_HOST is accepted and without effect), _OUT_OF_MEMORY. */
FLYT_API CUresult flyt_context_create(unsigned flags, int device, CUcontext *ret_context);
/* cuCtxDestroy: its streams, events, memory and modules are destroyed with it; it leaves the calling thread's stack
 * where it is on top; other threads that have it current get CUDA_ERROR_CONTEXT_IS_DESTROYED. The primary context and
 * unknown ids are CUDA_ERROR_INVALID_CONTEXT. */
FLYT_API CUresult flyt_context_destroy(CUcontext context);
/* cuCtxAttach: one use of the current context more; flags are 0. cuCtxDetach: one less of the current one, which ends a
 * created one where its maker's was the last. CUDA_ERROR_INVALID_CONTEXT: it is not current, or a primary one that
 * nobody uses. */
FLYT_API CUresult flyt_context_attach(unsigned flags, CUcontext *ret_context);
FLYT_API CUresult flyt_context_detach(CUcontext context);
/* A primary context need not be active: calls then say that it is destroyed. CUDA_ERROR_INVALID_CONTEXT. */
FLYT_API CUresult flyt_context_push(CUcontext context);
/* CUDA_ERROR_INVALID_CONTEXT where the stack is empty. ret_context may be NULL. */
FLYT_API CUresult flyt_context_pop(CUcontext *ret_context);
/* Replaces the top of the stack, as flyt_context_push puts on it; NULL pops it. */
FLYT_API CUresult flyt_context_set_current(CUcontext context);
/* *ret_context is NULL where nothing is current. */
FLYT_API CUresult flyt_context_current(CUcontext *ret_context);
/* The device of `context`, or of the current one where it is NULL. CUDA_ERROR_INVALID_CONTEXT, _CONTEXT_IS_DESTROYED.
 */
FLYT_API CUresult flyt_context_device(CUcontext context, int *ret_device);
/* The same, of primary contexts that are not active too. */
FLYT_API CUresult flyt_context_device_any(CUcontext context, int *ret_device);
/* cuCtxGetFlags, cuCtxSetFlags of the current context; a primary one's flags can be asked while it is not active. */
FLYT_API CUresult flyt_context_flags(unsigned *ret_flags);
FLYT_API CUresult flyt_context_flags_set(unsigned flags);
/* cuCoredumpGetAttribute, cuCoredumpSetAttribute: of the current context (cpu/client/coredump). */
FLYT_API CUresult flyt_context_coredump_get(CUcoredumpSettings attribute, void *value, size_t *bytes);
FLYT_API CUresult flyt_context_coredump_set(CUcoredumpSettings attribute, const void *value, size_t *bytes);
/* cuCtxGetId: unique in the process. NULL: the current one. */
FLYT_API CUresult flyt_context_number(CUcontext context, unsigned long long *ret_number);
/* cuCtxGetApiVersion. NULL: the current one. */
FLYT_API CUresult flyt_context_api_version(CUcontext context, unsigned *ret_version);

/* cuDevicePrimaryCtxRetain and its kin. The primary context is active while its count is not 0; releasing the last
 * reference resets it (flyt_device_reset). CUDA_ERROR_INVALID_CONTEXT: released more often than retained. */
FLYT_API CUresult flyt_primary_retain(int device, CUcontext *ret_context);
FLYT_API CUresult flyt_primary_release(int device);
FLYT_API CUresult flyt_primary_flags_set(int device, unsigned flags);
FLYT_API CUresult flyt_primary_state(int device, unsigned *ret_flags, int *ret_is_active);

/*
 * What a runtime API call that needs a context asks first: flyt_client_enter, then, where the thread has no current
 * context, the primary context of the thread's device (0 unless set) is activated and made current. A few ns when all
 * is well.
 */
FLYT_API CUresult flyt_runtime_enter(void);
/* cudaSetDevice: activates the primary context of `device` and makes it current in this thread; also after a fatal
 * error, until a reset. */
FLYT_API CUresult flyt_runtime_device_set(int device);
/* cudaGetDevice: the device of the current context, else the one set, else 0. Does not activate a context. */
FLYT_API CUresult flyt_runtime_device(int *ret_device);

/* ---- inside the library ---- */

/* The current context's id and device. CUDA_ERROR_INVALID_CONTEXT: none; _CONTEXT_IS_DESTROYED. Does not enter. */
CUresult flyt_context_get(uint64_t *ret_context_id, int *ret_device);
/* The same for streams, which a green context has of its own; what else belongs to it is its primary context's. */
CUresult flyt_context_get_of_streams(uint64_t *ret_context_id, int *ret_device);
/* Takes a created context out, which nobody finds any more; _give_back, when all that belongs to it is destroyed, frees
 * its id, and pops it where the calling thread has it current. CUDA_ERROR_INVALID_CONTEXT: unknown, or a primary one.
 */
CUresult flyt_context_take(CUcontext context, int *ret_device, unsigned *ret_peers);
void flyt_context_give_back(CUcontext context);
/* A context that is that green context, for cpu/client/green. CUDA_ERROR_OUT_OF_MEMORY. */
CUresult flyt_context_new_green(int device, uint64_t green_id, CUcontext *ret_context);
/* How many of them there are. */
extern atomic_uint flyt_context_green_count __attribute__((visibility("hidden")));
/* Which green context a context is; 0: none. */
uint64_t flyt_context_green(uint64_t context_id);
/* The context whose events, memory and modules a context has: of a green one, its device's primary one. */
FLYT_API uint64_t flyt_context_owner(uint64_t context_id);
/* Where the id of the current context's own default stream is kept, if it is a green one; else NULL. */
uint64_t *flyt_context_green_default(uint64_t *ret_context_id, int *ret_device);
/* One use of the current context less; *ret_is_last: its maker's was the last, and is left. CUDA_ERROR_INVALID_CONTEXT.
 */
CUresult flyt_context_let_go(CUcontext context, bool *ret_is_last);
/* One reference less; *ret_is_last where there is none left. CUDA_ERROR_INVALID_CONTEXT: there was none. */
CUresult flyt_primary_let_go(int device, bool *ret_is_last);
/* Per context settings that the server does not hold. Fields are read and written under the context lock. */
struct flyt_context_settings {
    CUfunc_cache cache_config;
    CUsharedconfig shared_config;
};
CUresult flyt_context_settings(struct flyt_context_settings *ret_settings);
CUresult flyt_context_settings_set(const struct flyt_context_settings *settings);
/* The id of a device's primary context, 0 where nothing has asked for it yet. */
uint64_t flyt_primary_context_id(int device);
/* The primary context was reset: it is inactive until it is retained or used by the runtime again. */
void flyt_primary_deactivate(int device);
/* Around a wait for the GPU: the calling thread spins, yields or blocks, as the current context's flags say
 * (CU_CTX_SCHED_*). For an event the event's own flag says whether it blocks (cuEventSynchronize). */
void flyt_context_wait_begin(void);
void flyt_context_wait_event_begin(unsigned event_flags);
void flyt_context_wait_end(void);
/* Whether the device has no created context. */
bool flyt_context_is_only_primary(int device);
/* Whether the device has another context beside the current one: its primary, if that is active, or a created one. */
bool flyt_context_has_company(int device);
/* Which devices' memory the current context reaches: a bit each. */
CUresult flyt_context_peers(unsigned *ret_peers);
CUresult flyt_context_peers_set(unsigned peers);
/* The primary context's, which it loses; 0 where nothing has asked for it yet. */
unsigned flyt_primary_take_peers(int device);

#endif
