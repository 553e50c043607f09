#include "cpu/client/cuda/context.h"

#include <pthread.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/coredump/coredump.h"
#include "cpu/client/cuda/device.h"

/* cuCtxGetApiVersion has said this since CUDA 3.2. */
enum { CONTEXT_API_VERSION = 3020 };

enum { CONTEXT_FLAGS_KNOWN = CU_CTX_FLAGS_MASK };

struct flyt_context {
    struct flyt_record record;
    int device;
    unsigned flags;
    bool is_primary;
    bool is_retained_by_runtime;
    _Atomic bool is_active; /* a primary context: retained and not reset since; a created one: always */
    unsigned retain_count;  /* a primary context: uses of it; else uses besides its maker's */
    unsigned long long number;
    unsigned peers;             /* bit per device whose memory it reaches */
    uint64_t green_id;          /* of the green context that it is, a part of the primary one; else 0 */
    uint64_t default_stream_id; /* of a green one; 0: not made yet */
    struct flyt_context_settings settings;
};

static struct flyt_table context_table = FLYT_TABLE_INIT(FLYT_ID_CONTEXT, struct flyt_context, 1);

static struct {
    pthread_mutex_t mutex;
    struct flyt_context *_Atomic primaries[FLYT_DEVICES_MAX]; /* made at first use, never freed */
    unsigned long long last_number;
} contexts = {.mutex = PTHREAD_MUTEX_INITIALIZER};

atomic_uint flyt_context_green_count;

static CUcontext handle_of(uint64_t id)
{
    return (CUcontext)(uintptr_t)id;
}

static struct flyt_context *find(CUcontext handle)
{
    return flyt_table_find(&context_table, (uint64_t)(uintptr_t)handle);
}

static struct flyt_context *new_locked(int device, unsigned flags, bool is_primary)
{
    struct flyt_context *context = flyt_table_new(&context_table);
    if (!context)
        return NULL;
    context->device = device;
    context->flags = flags;
    context->is_primary = is_primary;
    context->is_retained_by_runtime = false;
    context->retain_count = 0;
    context->number = ++contexts.last_number;
    context->peers = 0;
    context->green_id = context->default_stream_id = 0;
    context->settings =
        (struct flyt_context_settings){CU_FUNC_CACHE_PREFER_NONE, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE};
    atomic_store(&context->is_active, !is_primary);
    flyt_table_publish(&context->record);
    return context;
}

/* The record of a device's primary context; NULL: no memory. */
static struct flyt_context *primary_locked(int device)
{
    struct flyt_context *context = atomic_load(&contexts.primaries[device]);
    if (!context) {
        context = new_locked(device, 0, true);
        atomic_store(&contexts.primaries[device], context);
    }
    return context;
}

/* ---- what is current ---- */

static struct flyt_context *current(void)
{
    struct flyt_thread *thread = flyt_thread_self;
    if (!thread || !thread->context_count)
        return NULL;
    uint64_t id = thread->contexts[thread->context_count - 1];
    struct flyt_context *hint = thread->context_hint;
    /* Records stay where they are, so that one that is another's by now is only not this one. Acquire as in finding. */
    if (__builtin_expect(hint && atomic_load_explicit(&hint->record.id, memory_order_acquire) == id, 1))
        return hint;
    return thread->context_hint = flyt_table_find(&context_table, id);
}

/* `handle`, or the current context where it is NULL; a primary context even while it is not active, for the few calls
 * that the driver answers then. */
static CUresult resolve_any(CUcontext handle, struct flyt_context **ret_context)
{
    struct flyt_thread *thread = flyt_thread_self;
    struct flyt_context *context = handle ? find(handle) : current();
    if (!context) {
        bool was_destroyed = !handle && thread && thread->context_count;
        return was_destroyed ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_ERROR_INVALID_CONTEXT;
    }
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* The same of active contexts. */
static CUresult resolve(CUcontext handle, struct flyt_context **ret_context)
{
    struct flyt_context *context;
    CUresult result = resolve_any(handle, &context);
    if (result)
        return result;
    if (!atomic_load_explicit(&context->is_active, memory_order_relaxed))
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* What a green context has beside streams is its device's primary context's. */
static struct flyt_context *owner_of(struct flyt_context *context)
{
    return context->green_id ? atomic_load(&contexts.primaries[context->device]) : context;
}

CUresult flyt_context_get(uint64_t *ret_context_id, int *ret_device)
{
    struct flyt_context *context;
    CUresult result = resolve(NULL, &context);
    if (result)
        return result;
    *ret_context_id = owner_of(context)->record.minted_id;
    *ret_device = context->device;
    return CUDA_SUCCESS;
}

CUresult flyt_context_get_of_streams(uint64_t *ret_context_id, int *ret_device)
{
    struct flyt_context *context;
    CUresult result = resolve(NULL, &context);
    if (result)
        return result;
    *ret_context_id = context->record.minted_id;
    *ret_device = context->device;
    return CUDA_SUCCESS;
}

uint64_t flyt_primary_context_id(int device)
{
    const struct flyt_context *context = atomic_load(&contexts.primaries[device]);
    return context ? context->record.minted_id : 0;
}

static CUresult push(uint64_t context_id)
{
    return flyt_thread_push(flyt_thread_self, context_id) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_context_push(CUcontext context)
{
    struct flyt_context *found;
    CUresult result = flyt_client_enter();
    if (!result)
        result = context ? resolve_any(context, &found) : CUDA_ERROR_INVALID_CONTEXT;
    return result ? result : push((uint64_t)(uintptr_t)context);
}

CUresult flyt_context_pop(CUcontext *ret_context)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    struct flyt_thread *thread = flyt_thread_self;
    if (!thread->context_count)
        return CUDA_ERROR_INVALID_CONTEXT;
    uint64_t id = thread->contexts[--thread->context_count];
    if (ret_context)
        *ret_context = handle_of(id);
    return CUDA_SUCCESS;
}

/* Replaces the top of the calling thread's stack. */
static CUresult replace_top(uint64_t context_id)
{
    struct flyt_thread *thread = flyt_thread_self;
    if (!thread->context_count)
        return push(context_id);
    thread->contexts[thread->context_count - 1] = context_id;
    return CUDA_SUCCESS;
}

CUresult flyt_context_set_current(CUcontext context)
{
    struct flyt_context *found;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!context) {
        if (flyt_thread_self->context_count)
            flyt_thread_self->context_count--;
        return CUDA_SUCCESS;
    }
    result = resolve_any(context, &found);
    return result ? result : replace_top((uint64_t)(uintptr_t)context);
}

CUresult flyt_context_current(CUcontext *ret_context)
{
    CUresult result = flyt_client_enter_device();
    if (result)
        return result;
    if (!ret_context)
        return CUDA_ERROR_INVALID_VALUE;
    const struct flyt_thread *thread = flyt_thread_self;
    *ret_context = thread->context_count ? handle_of(thread->contexts[thread->context_count - 1]) : NULL;
    return CUDA_SUCCESS;
}

/* ---- waiting ---- */

static unsigned schedule_of_current(void)
{
    const struct flyt_context *context = current();
    return context ? context->flags & CU_CTX_SCHED_MASK : CU_CTX_SCHED_AUTO;
}

static void wait_as(unsigned schedule)
{
    switch (schedule) {
    case CU_CTX_SCHED_SPIN:
        flyt_channel_wait_as(FLYT_CHANNEL_SPINS);
        break;
    case CU_CTX_SCHED_YIELD:
        flyt_channel_wait_as(FLYT_CHANNEL_YIELDS);
        break;
    case CU_CTX_SCHED_BLOCKING_SYNC:
        flyt_channel_wait_as(FLYT_CHANNEL_BLOCKS);
        break;
    default:
        break;
    }
}

void flyt_context_wait_begin(void)
{
    wait_as(schedule_of_current());
}

void flyt_context_wait_event_begin(unsigned event_flags)
{
    unsigned schedule = schedule_of_current();
    if (event_flags & CU_EVENT_BLOCKING_SYNC)
        schedule = CU_CTX_SCHED_BLOCKING_SYNC;
    else if (schedule == CU_CTX_SCHED_BLOCKING_SYNC)
        schedule = CU_CTX_SCHED_SPIN;
    wait_as(schedule);
}

void flyt_context_wait_end(void)
{
    flyt_channel_wait_as(FLYT_CHANNEL_WAITS_AUTO);
}

/* ---- created contexts ---- */

static CUresult check_flags(unsigned flags)
{
    unsigned schedule = flags & CU_CTX_SCHED_MASK;
    bool is_one = schedule == CU_CTX_SCHED_AUTO || schedule == CU_CTX_SCHED_SPIN || schedule == CU_CTX_SCHED_YIELD ||
                  schedule == CU_CTX_SCHED_BLOCKING_SYNC;
    return is_one && !(flags & ~(unsigned)CONTEXT_FLAGS_KNOWN) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_context_create(unsigned flags, int device, CUcontext *ret_context)
{
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_device_check(device);
    if (!result)
        result = ret_context ? check_flags(flags) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_coredump_flags_check(flags);
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = new_locked(device, flags, false);
    pthread_mutex_unlock(&contexts.mutex);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t id = context->record.minted_id;
    result = push(id);
    if (!result) {
        flyt_coredump_begin(id, device, flags);
        *ret_context = handle_of(id);
    } else if (flyt_table_take(&context_table, id)) {
        flyt_table_free(&context_table, &context->record);
    }
    return result;
}

/* ---- green contexts ---- */

CUresult flyt_context_new_green(int device, uint64_t green_id, CUcontext *ret_context)
{
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = new_locked(device, 0, false);
    if (context)
        context->green_id = green_id;
    pthread_mutex_unlock(&contexts.mutex);
    if (!context)
        return CUDA_ERROR_OUT_OF_MEMORY;
    atomic_fetch_add(&flyt_context_green_count, 1);
    *ret_context = handle_of(context->record.minted_id);
    return CUDA_SUCCESS;
}

uint64_t flyt_context_green(uint64_t context_id)
{
    const struct flyt_context *context = flyt_table_find(&context_table, context_id);
    return context ? context->green_id : 0;
}

uint64_t flyt_context_owner(uint64_t context_id)
{
    struct flyt_context *context = flyt_table_find(&context_table, context_id);
    return context && context->green_id ? owner_of(context)->record.minted_id : context_id;
}

uint64_t *flyt_context_green_default(uint64_t *ret_context_id, int *ret_device)
{
    struct flyt_context *context = current();
    if (!context || !context->green_id)
        return NULL;
    *ret_context_id = context->record.minted_id;
    *ret_device = context->device;
    return &context->default_stream_id;
}

CUresult flyt_context_take(CUcontext handle, int *ret_device, unsigned *ret_peers)
{
    struct flyt_context *context = find(handle);
    if (!context || context->is_primary || !flyt_table_take(&context_table, (uint64_t)(uintptr_t)handle))
        return CUDA_ERROR_INVALID_CONTEXT;
    *ret_device = context->device;
    *ret_peers = context->peers;
    atomic_fetch_sub(&flyt_context_green_count, context->green_id != 0);
    return CUDA_SUCCESS;
}

void flyt_context_give_back(CUcontext handle)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    flyt_table_free(&context_table, flyt_table_slot(&context_table, (uint32_t)flyt_id_number(id)));
    struct flyt_thread *thread = flyt_thread_self;
    if (thread->context_count && thread->contexts[thread->context_count - 1] == id)
        thread->context_count--;
}

/* ---- questions ---- */

CUresult flyt_context_device(CUcontext handle, int *ret_device)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = ret_device ? resolve(handle, &context) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_device = context->device;
    return result;
}

CUresult flyt_context_device_any(CUcontext handle, int *ret_device)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = ret_device ? resolve_any(handle, &context) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_device = context->device;
    return result;
}

CUresult flyt_context_flags(unsigned *ret_flags)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = ret_flags ? resolve_any(NULL, &context) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_flags = context->flags;
    return result;
}

CUresult flyt_context_flags_set(unsigned flags)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter();
    if (!result)
        result = check_flags(flags);
    if (!result)
        result = resolve(NULL, &context);
    if (!result)
        result = flyt_coredump_flags_check(flags);
    if (result)
        return result;
    context->flags = flags;
    return CUDA_SUCCESS;
}

static CUresult enter_current(uint64_t *ret_context_id, int *ret_device)
{
    CUresult result = flyt_client_enter();
    return result ? result : flyt_context_get(ret_context_id, ret_device);
}

CUresult flyt_context_coredump_get(CUcoredumpSettings attribute, void *value, size_t *bytes)
{
    return flyt_coredump_get(enter_current, attribute, value, bytes);
}

CUresult flyt_context_coredump_set(CUcoredumpSettings attribute, const void *value, size_t *bytes)
{
    return flyt_coredump_set(enter_current, attribute, value, bytes);
}

CUresult flyt_context_number(CUcontext handle, unsigned long long *ret_number)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = ret_number ? resolve(handle, &context) : CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_number = context->number;
    return result;
}

CUresult flyt_context_api_version(CUcontext handle, unsigned *ret_version)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = ret_version ? resolve(handle, &context) : CUDA_ERROR_INVALID_VALUE;
    if (handle && result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        result = CUDA_ERROR_INVALID_CONTEXT; /* the driver's own exception */
    if (!result)
        *ret_version = CONTEXT_API_VERSION;
    return result;
}

CUresult flyt_context_settings(struct flyt_context_settings *ret_settings)
{
    struct flyt_context *context;
    CUresult result = resolve(NULL, &context);
    if (result)
        return result;
    context = owner_of(context);
    pthread_mutex_lock(&contexts.mutex);
    *ret_settings = context->settings;
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

CUresult flyt_context_settings_set(const struct flyt_context_settings *settings)
{
    struct flyt_context *context;
    CUresult result = resolve(NULL, &context);
    if (result)
        return result;
    context = owner_of(context);
    pthread_mutex_lock(&contexts.mutex);
    context->settings = *settings;
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

CUresult flyt_context_peers(unsigned *ret_peers)
{
    struct flyt_context *context;
    CUresult result = resolve(NULL, &context);
    if (result)
        return result;
    context = owner_of(context);
    pthread_mutex_lock(&contexts.mutex);
    *ret_peers = context->peers;
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

CUresult flyt_context_peers_set(unsigned peers)
{
    struct flyt_context *context;
    CUresult result = resolve(NULL, &context);
    if (result)
        return result;
    context = owner_of(context);
    pthread_mutex_lock(&contexts.mutex);
    context->peers = peers;
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

/* ---- primary contexts ---- */

unsigned flyt_primary_take_peers(int device)
{
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = atomic_load(&contexts.primaries[device]);
    unsigned peers = context ? context->peers : 0;
    if (context)
        context->peers = 0;
    pthread_mutex_unlock(&contexts.mutex);
    return peers;
}

CUresult flyt_primary_retain(int device, CUcontext *ret_context)
{
    CUresult result = flyt_client_enter();
    if (!result)
        result = ret_context ? flyt_device_check(device) : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = primary_locked(device);
    bool is_begun = context && !atomic_exchange(&context->is_active, true);
    if (context) {
        context->retain_count++;
        *ret_context = handle_of(context->record.minted_id);
    }
    pthread_mutex_unlock(&contexts.mutex);
    if (is_begun)
        flyt_coredump_begin(context->record.minted_id, device, context->flags);
    return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_primary_let_go(int device, bool *ret_is_last)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = atomic_load(&contexts.primaries[device]);
    if (!context || !context->retain_count)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        *ret_is_last = --context->retain_count == 0;
    pthread_mutex_unlock(&contexts.mutex);
    return result;
}

CUresult flyt_context_attach(unsigned flags, CUcontext *ret_context)
{
    struct flyt_context *context;
    CUresult result = flyt_client_enter();
    if (!result)
        result = resolve(NULL, &context);
    if (!result && (flags || !ret_context))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    context->retain_count++;
    pthread_mutex_unlock(&contexts.mutex);
    *ret_context = handle_of(context->record.minted_id);
    return CUDA_SUCCESS;
}

CUresult flyt_context_let_go(CUcontext handle, bool *ret_is_last)
{
    struct flyt_context *context = current();
    CUresult result = CUDA_SUCCESS;
    if (!handle || !context || find(handle) != context)
        return CUDA_ERROR_INVALID_CONTEXT;
    pthread_mutex_lock(&contexts.mutex);
    if (context->retain_count)
        context->retain_count--;
    else if (context->is_primary || context->green_id)
        result = CUDA_ERROR_INVALID_CONTEXT;
    else
        *ret_is_last = true;
    pthread_mutex_unlock(&contexts.mutex);
    return result;
}

CUresult flyt_primary_flags_set(int device, unsigned flags)
{
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_device_check(device);
    if (!result)
        result = check_flags(flags);
    if (!result)
        result = flyt_coredump_flags_check(flags);
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = primary_locked(device);
    if (context)
        context->flags = flags;
    pthread_mutex_unlock(&contexts.mutex);
    return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_primary_state(int device, unsigned *ret_flags, int *ret_is_active)
{
    CUresult result = flyt_client_enter_device();
    if (!result)
        result = flyt_device_check(device);
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    const struct flyt_context *context = atomic_load(&contexts.primaries[device]);
    if (ret_flags)
        *ret_flags = context ? context->flags : 0;
    if (ret_is_active)
        *ret_is_active = context && atomic_load(&context->is_active);
    pthread_mutex_unlock(&contexts.mutex);
    return CUDA_SUCCESS;
}

/* ---- the runtime's view ---- */

/* Activates the primary context of `device` on the runtime's behalf, once until it is reset. */
static CUresult activate(int device, uint64_t *ret_context_id)
{
    CUresult result = flyt_device_check(device);
    bool is_begun = false;
    if (result)
        return result;
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = primary_locked(device);
    if (context) {
        if (!context->is_retained_by_runtime)
            context->retain_count++;
        context->is_retained_by_runtime = true;
        is_begun = !atomic_exchange(&context->is_active, true);
        *ret_context_id = context->record.minted_id;
    }
    pthread_mutex_unlock(&contexts.mutex);
    if (is_begun)
        flyt_coredump_begin(context->record.minted_id, device, context->flags);
    return context ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult flyt_runtime_enter(void)
{
    CUresult result = flyt_client_enter_fast();
    if (result)
        return result;
    const struct flyt_context *context = current();
    if (__builtin_expect(context && atomic_load_explicit(&context->is_active, memory_order_relaxed), 1))
        return CUDA_SUCCESS;
    if (flyt_thread_self->context_count && !context)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    /* Nothing is current, or a primary context that was reset: the runtime makes it anew. */
    uint64_t id;
    result = activate(context ? context->device : flyt_thread_self->device, &id);
    return result ? result : replace_top(id);
}

CUresult flyt_runtime_device_set(int device)
{
    uint64_t id;
    CUresult result = flyt_client_enter();
    /* A context that a fault has broken can be made current all the same; after a reset there is none any more. */
    if (flyt_client_is_faulted(result))
        result = flyt_client_enter_device();
    if (!result)
        result = activate(device, &id);
    if (!result)
        result = replace_top(id);
    if (!result)
        flyt_thread_self->device = device;
    return result;
}

CUresult flyt_runtime_device(int *ret_device)
{
    CUresult result = flyt_client_enter_device();
    if (result)
        return result;
    const struct flyt_context *context = current();
    *ret_device = context ? context->device : flyt_thread_self->device;
    return CUDA_SUCCESS;
}

void flyt_primary_deactivate(int device)
{
    pthread_mutex_lock(&contexts.mutex);
    struct flyt_context *context = atomic_load(&contexts.primaries[device]);
    if (context) {
        if (context->is_retained_by_runtime)
            context->retain_count -= context->retain_count > 0;
        context->is_retained_by_runtime = false;
        context->flags = 0;
        context->number = ++contexts.last_number; /* what is made of it next is another one */
        context->settings =
            (struct flyt_context_settings){CU_FUNC_CACHE_PREFER_NONE, CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE};
        atomic_store(&context->is_active, false);
    }
    pthread_mutex_unlock(&contexts.mutex);
}

bool flyt_context_is_only_primary(int device)
{
    uint32_t slot = 0;
    const struct flyt_context *context;
    while ((context = flyt_table_next(&context_table, &slot)))
        if (context->device == device && !context->is_primary)
            return false;
    return true;
}

bool flyt_context_has_company(int device)
{
    uint32_t slot = 0;
    const struct flyt_context *context, *own = current();
    while ((context = flyt_table_next(&context_table, &slot)))
        if (context != own && context->device == device && atomic_load(&context->is_active))
            return true;
    return false;
}
