/* Contexts: the primary one of each device, created ones, and each thread's stack of current ones. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

/* The value that cuCtxGetApiVersion gives for contexts made by a driver of version 13. */
enum { CONTEXT_API_VERSION = 3020 };

enum { HEAP_BYTES_MIN = 4 << 20, STACK_BYTES_MAX = 512 * 1024, STACK_ALIGN = 16 };

/* One thread's current contexts, the last one on top. Each holds a reference. */
struct thread_state {
    unsigned depth;
    struct CUctx_st *stack[FLYT_SOFT_CONTEXT_DEPTH_MAX];
};

static void thread_free(void *argument)
{
    struct thread_state *thread = argument;

    while (thread->depth)
        flyt_soft_context_unref(thread->stack[--thread->depth]);
    free(thread);
}

int flyt_soft_threads_init(struct flyt_soft_driver *driver)
{
    return pthread_key_create(&driver->thread_key, thread_free) ? -ENOMEM : 0;
}

/* The calling thread's state; NULL: out of memory. */
static struct thread_state *thread_get(void)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct thread_state *thread = pthread_getspecific(driver->thread_key);

    if (thread)
        return thread;
    thread = calloc(1, sizeof(*thread));
    if (thread && pthread_setspecific(driver->thread_key, thread)) {
        free(thread);
        return NULL;
    }
    return thread;
}

static struct CUctx_st *thread_top(void)
{
    struct thread_state *thread = pthread_getspecific(flyt_soft_driver()->thread_key);

    return thread && thread->depth ? thread->stack[thread->depth - 1] : NULL;
}

CUresult flyt_soft_enter_broken(struct CUctx_st **ret_ctx)
{
    struct CUctx_st *ctx;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    ctx = thread_top();
    if (!ctx)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (atomic_load(&ctx->is_dead))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret_ctx = ctx;
    return CUDA_SUCCESS;
}

CUresult flyt_soft_enter(struct CUctx_st **ret_ctx)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r == CUDA_SUCCESS)
        r = atomic_load(&ctx->device->sticky);
    if (r == CUDA_SUCCESS)
        *ret_ctx = ctx;
    return r;
}

CUresult flyt_soft_leave(const struct CUctx_st *ctx, CUresult r)
{
    return r == CUDA_SUCCESS ? atomic_load(&ctx->device->sticky) : r;
}

bool flyt_soft_device_break(struct flyt_soft_device *device, CUresult error)
{
    CUresult none = CUDA_SUCCESS;

    if (!atomic_compare_exchange_strong(&device->sticky, &none, error))
        return false;
    atomic_store(&device->cancel, true);
    return true;
}

/* The SMs of the set, or all where it is NULL. NULL: out of memory. */
static struct flyt_ptx_partition *partition_new(struct flyt_soft_device *device, const struct flyt_soft_sms *sms)
{
    uint16_t numbers[FLYT_SOFT_SMS_MAX];
    unsigned count = 0;

    for (unsigned i = 0; i < device->sm_count; i++)
        if (!sms || sms->bits[i / 64] >> (i % 64) & 1)
            numbers[count++] = (uint16_t)i;
    return flyt_ptx_partition_new(device->sm_loads, numbers, count, flyt_soft_driver()->sm_rate);
}

struct CUctx_st *flyt_soft_context_new(struct flyt_soft_device *device, struct CUgreenCtx_st *green, unsigned flags,
                                       const struct flyt_soft_sms *sms)
{
    struct CUctx_st *ctx = calloc(1, sizeof(*ctx));

    if (!ctx)
        return NULL;
    if (flyt_soft_map_open(device) == 0)
        ctx->partition = partition_new(device, sms);
    if (!ctx->partition) {
        free(ctx);
        return NULL;
    }
    ctx->kind = FLYT_SOFT_CONTEXT;
    atomic_init(&ctx->refs, 1);
    ctx->device = device;
    ctx->green = green;
    ctx->is_green = green != NULL;
    ctx->flags = flags;
    flyt_soft_coredump_begin(&ctx->coredump, flags);
    ctx->sm_count = ctx->partition->sm_count;
    ctx->id = flyt_soft_id_new();
    flyt_soft_account_open(ctx);
    pthread_mutex_lock(&device->contexts_mutex);
    ctx->next_in_device = device->contexts;
    device->contexts = ctx;
    pthread_mutex_unlock(&device->contexts_mutex);
    return ctx;
}

void flyt_soft_context_ref(struct CUctx_st *ctx)
{
    atomic_fetch_add(&ctx->refs, 1);
}

static void context_free_locked(struct CUctx_st *ctx)
{
    struct CUctx_st **at = &ctx->device->contexts;

    while (*at != ctx)
        at = &(*at)->next_in_device;
    *at = ctx->next_in_device;
    ctx->kind = FLYT_SOFT_DEAD;
    flyt_soft_account_close(ctx);
    flyt_ptx_partition_free(ctx->partition);
    free(ctx);
}

/* Under the list's lock, so that who walks the list never takes a reference of a context that is being freed. */
void flyt_soft_context_unref(struct CUctx_st *ctx)
{
    struct flyt_soft_device *device;

    if (!ctx)
        return;
    device = ctx->device;
    pthread_mutex_lock(&device->contexts_mutex);
    if (atomic_fetch_sub(&ctx->refs, 1) == 1)
        context_free_locked(ctx);
    pthread_mutex_unlock(&device->contexts_mutex);
}

/* A context of the list with a reference: the first one, or the one after `ctx`, whose reference is given up. */
static struct CUctx_st *next_context(struct flyt_soft_device *device, struct CUctx_st *ctx)
{
    struct CUctx_st *next;

    pthread_mutex_lock(&device->contexts_mutex);
    next = ctx ? ctx->next_in_device : device->contexts;
    if (next)
        atomic_fetch_add(&next->refs, 1);
    pthread_mutex_unlock(&device->contexts_mutex);
    flyt_soft_context_unref(ctx);
    return next;
}

void flyt_soft_device_drain(struct flyt_soft_device *device)
{
    for (struct CUctx_st *ctx = next_context(device, NULL); ctx; ctx = next_context(device, ctx))
        flyt_soft_context_drain(ctx);
}

void flyt_soft_context_retire(struct CUctx_st *ctx)
{
    flyt_soft_context_drain(ctx);
    flyt_soft_print_flush(ctx->device);
    atomic_store(&ctx->is_dead, true);
    flyt_soft_context_drop_streams(ctx);
    flyt_soft_context_unref(ctx);
}

CUresult flyt_soft_primary_retain(struct flyt_soft_device *device, struct CUctx_st **ret_ctx)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    CUresult r = flyt_soft_client_admit(driver->clients);

    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&driver->mutex);
    if (!device->primary)
        device->primary = flyt_soft_context_new(device, NULL, device->primary_flags, NULL);
    if (device->primary) {
        device->primary_refs++;
        *ret_ctx = device->primary;
    } else {
        r = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&driver->mutex);
    return r;
}

/* Takes the primary context away from its device, to be retired by the caller without the lock. */
static struct CUctx_st *primary_take_locked(struct flyt_soft_device *device)
{
    struct CUctx_st *ctx = device->primary;

    device->primary = NULL;
    device->primary_refs = 0;
    return ctx;
}

CUresult flyt_soft_primary_release(struct flyt_soft_device *device)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct CUctx_st *last = NULL;
    CUresult r = CUDA_SUCCESS;

    pthread_mutex_lock(&driver->mutex);
    if (!device->primary)
        r = CUDA_ERROR_INVALID_CONTEXT;
    else if (--device->primary_refs == 0)
        last = primary_take_locked(device);
    pthread_mutex_unlock(&driver->mutex);
    if (last)
        flyt_soft_context_retire(last);
    return r;
}

/* ---- the primary context ---- */

FLYT_SOFT_API cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    return pctx ? flyt_soft_primary_retain(device, pctx) : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuDevicePrimaryCtxRelease(CUdevice dev)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    return r == CUDA_SUCCESS ? flyt_soft_primary_release(device) : r;
}

FLYT_SOFT_API cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&flyt_soft_driver()->mutex);
    device->primary_flags = flags;
    if (device->primary)
        device->primary->flags = flags;
    pthread_mutex_unlock(&flyt_soft_driver()->mutex);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    pthread_mutex_lock(&flyt_soft_driver()->mutex);
    if (flags)
        *flags = device->primary_flags;
    if (active)
        *active = device->primary != NULL;
    pthread_mutex_unlock(&flyt_soft_driver()->mutex);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuDevicePrimaryCtxReset(CUdevice dev)
{
    struct flyt_soft_device *device;
    struct CUctx_st *last;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (atomic_load(&device->sticky) != CUDA_SUCCESS)
        return CUDA_ERROR_NOT_PERMITTED;
    pthread_mutex_lock(&flyt_soft_driver()->mutex);
    last = primary_take_locked(device);
    pthread_mutex_unlock(&flyt_soft_driver()->mutex);
    if (last)
        flyt_soft_context_retire(last);
    return CUDA_SUCCESS;
}

/* ---- created contexts ---- */

FLYT_SOFT_API cuCtxCreate(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
    struct flyt_soft_device *device;
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pctx || flags & ~(unsigned)CU_CTX_FLAGS_MASK)
        return CUDA_ERROR_INVALID_VALUE;
    if (ctxCreateParams && (ctxCreateParams->numExecAffinityParams || ctxCreateParams->cigParams))
        return CUDA_ERROR_NOT_SUPPORTED;
    r = flyt_soft_client_admit(flyt_soft_driver()->clients);
    if (r != CUDA_SUCCESS)
        return r;
    ctx = flyt_soft_context_new(device, NULL, flags, NULL);
    if (!ctx)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = cuCtxPushCurrent(ctx);
    if (r != CUDA_SUCCESS) {
        flyt_soft_context_unref(ctx);
        return r;
    }
    *pctx = ctx;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxDestroy(CUcontext ctx)
{
    CUcontext popped;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flyt_soft_is(ctx, FLYT_SOFT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (ctx->green || ctx == ctx->device->primary || atomic_load(&ctx->is_dead))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (thread_top() == ctx) {
        CUresult r = cuCtxPopCurrent(&popped);

        if (r != CUDA_SUCCESS)
            return r;
    }
    flyt_soft_context_retire(ctx);
    return CUDA_SUCCESS;
}

/* ---- the current context ---- */

FLYT_SOFT_API cuCtxPushCurrent(CUcontext ctx)
{
    struct thread_state *thread;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flyt_soft_is(ctx, FLYT_SOFT_CONTEXT) || atomic_load(&ctx->is_dead))
        return CUDA_ERROR_INVALID_CONTEXT;
    thread = thread_get();
    if (!thread || thread->depth == FLYT_SOFT_CONTEXT_DEPTH_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    flyt_soft_context_ref(ctx);
    thread->stack[thread->depth++] = ctx;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxPopCurrent(CUcontext *pctx)
{
    struct thread_state *thread;
    struct CUctx_st *ctx;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    thread = thread_get();
    if (!thread || !thread->depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    ctx = thread->stack[--thread->depth];
    if (pctx)
        *pctx = ctx;
    flyt_soft_context_unref(ctx);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxSetCurrent(CUcontext ctx)
{
    struct thread_state *thread;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    thread = thread_get();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (ctx == thread_top())
        return CUDA_SUCCESS;
    if (ctx && (!flyt_soft_is(ctx, FLYT_SOFT_CONTEXT) || atomic_load(&ctx->is_dead)))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (thread->depth)
        flyt_soft_context_unref(thread->stack[--thread->depth]);
    return ctx ? cuCtxPushCurrent(ctx) : CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxGetCurrent(CUcontext *pctx)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!pctx)
        return CUDA_ERROR_INVALID_VALUE;
    *pctx = thread_top();
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxGetDevice(CUdevice *device)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!device)
        return CUDA_ERROR_INVALID_VALUE;
    *device = ctx->device->index;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxGetFlags(unsigned int *flags)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flags)
        return CUDA_ERROR_INVALID_VALUE;
    *flags = ctx->flags;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxGetId(CUcontext ctx, unsigned long long *ctxId)
{
    struct CUctx_st *current;
    CUresult r;

    if (!ctx) {
        r = flyt_soft_enter_broken(&current);
        if (r != CUDA_SUCCESS)
            return r;
        ctx = current;
    }
    if (!flyt_soft_is(ctx, FLYT_SOFT_CONTEXT))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!ctxId)
        return CUDA_ERROR_INVALID_VALUE;
    *ctxId = ctx->id;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxGetApiVersion(CUcontext ctx, unsigned int *version)
{
    struct CUctx_st *current;

    if (!ctx) {
        CUresult r = flyt_soft_enter_broken(&current);

        if (r != CUDA_SUCCESS)
            return r;
    } else if (!flyt_soft_is(ctx, FLYT_SOFT_CONTEXT)) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (!version)
        return CUDA_ERROR_INVALID_VALUE;
    *version = CONTEXT_API_VERSION;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxSynchronize(void)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    /* A green context waits for its own work, any other for all of the device, green contexts included. */
    if (ctx->green)
        flyt_soft_context_drain(ctx);
    else
        flyt_soft_device_drain(ctx->device);
    flyt_soft_print_flush(ctx->device);
    return atomic_load(&ctx->device->sticky);
}

FLYT_SOFT_API cuCtxGetStreamPriorityRange(int *leastPriority, int *greatestPriority)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (leastPriority)
        *leastPriority = 0;
    if (greatestPriority)
        *greatestPriority = FLYT_SOFT_PRIORITY_GREATEST;
    return CUDA_SUCCESS;
}

/* ---- limits and hints ---- */

FLYT_SOFT_API cuCtxGetLimit(size_t *pvalue, CUlimit limit)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pvalue || (unsigned)limit >= CU_LIMIT_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (limit == CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH || limit == CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED)
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    *pvalue = ctx->device->limits[limit];
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuCtxSetLimit(CUlimit limit, size_t value)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    switch (limit) {
    case CU_LIMIT_STACK_SIZE:
        if (value > STACK_BYTES_MAX)
            return CUDA_ERROR_INVALID_VALUE;
        value = (value + STACK_ALIGN - 1) & ~(size_t)(STACK_ALIGN - 1);
        break;
    case CU_LIMIT_MALLOC_HEAP_SIZE:
        if (ctx->device->has_launched)
            return CUDA_ERROR_INVALID_VALUE;
        value = value < HEAP_BYTES_MIN ? HEAP_BYTES_MIN : value;
        if (value > ctx->device->map.total_bytes)
            return CUDA_ERROR_OUT_OF_MEMORY;
        break;
    case CU_LIMIT_MAX_L2_FETCH_GRANULARITY:
        if (value > 128)
            return CUDA_ERROR_INVALID_VALUE;
        break;
    case CU_LIMIT_PRINTF_FIFO_SIZE:
    case CU_LIMIT_PERSISTING_L2_CACHE_SIZE:
    case CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT:
        break;
    case CU_LIMIT_SHMEM_SIZE:
    case CU_LIMIT_CIG_ENABLED:
        return CUDA_ERROR_NOT_PERMITTED;
    default:
        return CUDA_ERROR_UNSUPPORTED_LIMIT;
    }
    ctx->device->limits[limit] = value;
    return CUDA_SUCCESS;
}

/* There are no caches to configure: the calls below check their arguments and change nothing. */

/* CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE is 0. */
FLYT_SOFT_API cuCtxResetPersistingL2Cache(void)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    return r == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : r;
}

FLYT_SOFT_API cuCtxSetCacheConfig(CUfunc_cache config)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuCtxGetCacheConfig(CUfunc_cache *pconfig)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pconfig)
        return CUDA_ERROR_INVALID_VALUE;
    *pconfig = CU_FUNC_CACHE_PREFER_NONE;
    return CUDA_SUCCESS;
}
