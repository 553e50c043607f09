#include "cpu/client/cuda/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/device_state.h"
#include "cpu/client/cuda/graph_memory.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "flyt_client_asks.h"
#include "rpc/proto/limits.h"

enum {
    SMALL_BYTES = 1 << 20, /* sizes up to this are rounded to the first of these, larger ones to the second */
    SMALL_STEP_BYTES = 512,
    LARGE_STEP_BYTES = 64 << 10,
    HOST_STEP_BYTES = 4 << 10, /* all sizes of host and managed memory, which are taken by pages */
    BUCKETS = 1024
};

/* Where a pool's memory is: on a device, by its number, at the host, or nowhere in particular; places of managed memory
 * are numbers of their own, as much higher. */
enum { HOST = FLYT_DEVICES_MAX, NOWHERE, MANAGED, PLACES = 2 * MANAGED };

struct block {
    uint64_t base, bytes;
    uint64_t context_id;
    struct pool *pool;
    int place;                  /* the pool's */
    bool is_cached;             /* freed by the program */
    uint64_t stream_id;         /* where it was freed, */
    uint64_t freed_at;          /* behind this call */
    struct block *next;         /* of its bucket, by address */
    struct block *cached_next;  /* of its pool's bucket, by size */
    struct flyt_import *import; /* another process's (cpu/client/ipc), which is told when it is freed; NULL: none */
    CUresult (*ended)(struct flyt_import *import, uint64_t address, bool is_on_server);
};

struct pool {
    struct pool *next;
    int place;
    bool is_default, is_destroyed;
    unsigned handle_types;
    uint64_t pool_id; /* of one that processes share */
    bool is_imported; /* nothing can be allocated of it */
    uint64_t reserved_bytes, reserved_high_bytes, used_bytes, used_high_bytes, bytes_max;
    uint64_t threshold_bytes;
    int reuse[3];         /* attributes that are kept, and change nothing */
    unsigned reached_by;  /* its own place and those that SetAccess has named, a bit each */
    unsigned block_count; /* all of them */
    struct block *cached[BUCKETS];
};

static struct {
    pthread_mutex_t mutex;
    struct pool *first;
    struct pool *defaults[PLACES], *current[PLACES];
    struct block *blocks[BUCKETS];
    _Atomic(uint64_t) block_count, cached_count;
} pools = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static unsigned bucket_of(uint64_t number)
{
    return (unsigned)(number * 0x9e3779b97f4a7c15ull >> 32) % BUCKETS;
}

static uint64_t rounded(uint64_t bytes, int place)
{
    uint64_t step = place >= HOST ? HOST_STEP_BYTES : bytes <= SMALL_BYTES ? SMALL_STEP_BYTES : LARGE_STEP_BYTES;
    return bytes > UINT64_MAX - step ? bytes : (bytes + step - 1) / step * step;
}

/* ---- places ---- */

static bool is_managed(int place)
{
    return place >= MANAGED;
}

/* The same of managed memory and of other. */
static int where_of(int place)
{
    return is_managed(place) ? place - MANAGED : place;
}

/* Of a program's number of a device; -1: there can be none. */
static int device_place(int device)
{
    return device >= 0 && device < FLYT_DEVICES_MAX ? device : -1;
}

/* Enters, and checks the device. */
static CUresult enter_place(int place)
{
    const struct flyt_device_info *info;
    CUresult result = flyt_client_enter();
    return result || where_of(place) >= HOST ? result : flyt_device_info(where_of(place), &info);
}

bool flyt_pool_is_of_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST ||
           (location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA && location->id == 0);
}

/* The place of pinned or managed memory. */
static CUresult find_place(const CUmemLocation *location, CUmemAllocationType type, int *ret_place)
{
    const bool is_of_managed = type == CU_MEM_ALLOCATION_TYPE_MANAGED;
    int where;
    if (!location || (!is_of_managed && type != CU_MEM_ALLOCATION_TYPE_PINNED))
        return CUDA_ERROR_INVALID_VALUE;
    if (location->type >= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (flyt_pool_is_of_host(location))
        where = HOST;
    else if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
        where = device_place(location->id);
    else if (location->type == CU_MEM_LOCATION_TYPE_NONE && is_of_managed)
        where = NOWHERE;
    else
        return CUDA_ERROR_INVALID_VALUE;
    *ret_place = where + (is_of_managed ? MANAGED : 0);
    CUresult result = enter_place(where);
    return result == CUDA_ERROR_INVALID_DEVICE ? CUDA_ERROR_INVALID_VALUE : result;
}

/* ---- pools by handles ---- */

static struct pool *new_pool_locked(int place, uint64_t bytes_max)
{
    struct pool *self = calloc(1, sizeof *self);
    if (!self)
        return NULL;
    *self = (struct pool){.next = pools.first, .place = place, .bytes_max = bytes_max, .reuse = {1, 1, 1}};
    self->reached_by = is_managed(place) ? 0 : 1u << place;
    pools.first = self;
    return self;
}

static struct pool *default_locked(int place)
{
    if (!pools.defaults[place] && (pools.defaults[place] = new_pool_locked(place, UINT64_MAX)))
        pools.defaults[place]->is_default = true;
    return pools.defaults[place];
}

/* NULL: it is none. */
static struct pool *find_locked(CUmemoryPool handle)
{
    struct pool *one = pools.first;
    while (one && ((CUmemoryPool)one != handle || one->is_destroyed))
        one = one->next;
    return one;
}

/* One that is destroyed, and has nothing any more. */
static void forget_if_empty_locked(struct pool *pool)
{
    struct pool **place = &pools.first;
    if (!pool->is_destroyed || pool->block_count)
        return;
    while (*place != pool)
        place = &(*place)->next;
    *place = pool->next;
    free(pool);
}

static CUresult tell(struct pool *pool, CUmemoryPool *ret_pool)
{
    if (!pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_pool = (CUmemoryPool)pool;
    return CUDA_SUCCESS;
}

static struct pool *current_locked(int place)
{
    return pools.current[place] ? pools.current[place] : default_locked(place);
}

static CUresult find_at(int place, struct pool *(*find_one_locked)(int place), CUmemoryPool *ret_pool)
{
    CUresult result = enter_place(place);
    if (result || !ret_pool)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    result = tell(find_one_locked(place), ret_pool);
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* is_either: its managed memory's as well. */
static CUresult set_current(int place, CUmemoryPool handle, bool is_either)
{
    CUresult result = enter_place(place);
    if (result)
        return result;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    if (!pool || (is_either ? where_of(pool->place) : pool->place) != place || pool->is_imported)
        result = CUDA_ERROR_INVALID_VALUE;
    else
        pools.current[pool->place] = pool;
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

CUresult flyt_pool_default(int device, CUmemoryPool *ret_pool)
{
    return find_at(device_place(device), default_locked, ret_pool);
}

CUresult flyt_pool_current(int device, CUmemoryPool *ret_pool)
{
    return find_at(device_place(device), current_locked, ret_pool);
}

CUresult flyt_pool_set_current(int device, CUmemoryPool handle)
{
    return set_current(device_place(device), handle, true);
}

CUresult flyt_pool_default_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool *ret_pool)
{
    int place;
    CUresult result = flyt_client_enter();
    result = result ? result : find_place(location, type, &place);
    return result ? result : find_at(place, default_locked, ret_pool);
}

CUresult flyt_pool_current_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool *ret_pool)
{
    int place;
    CUresult result = flyt_client_enter();
    result = result ? result : find_place(location, type, &place);
    return result ? result : find_at(place, current_locked, ret_pool);
}

CUresult flyt_pool_set_current_at(const CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    int place;
    CUresult result = flyt_client_enter();
    result = result ? result : find_place(location, type, &place);
    return result ? result : set_current(place, pool, false);
}

/* Host memory cannot be, a NUMA node's as little. */
static bool can_share(int device)
{
    const struct flyt_device_info *info;
    return device < HOST && !flyt_device_info(device, &info) &&
           info->attributes[CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES] &
               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

/* A fresh pool is known by a number that no other has. On failure it is gone. */
static CUresult let_share_locked(struct pool *pool, unsigned handle_types)
{
    pool->handle_types = handle_types;
    if (getrandom(&pool->pool_id, sizeof pool->pool_id, 0) == (ssize_t)sizeof pool->pool_id)
        return CUDA_SUCCESS;
    pool->is_destroyed = true;
    forget_if_empty_locked(pool);
    return CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult flyt_pool_describe(CUmemoryPool handle, struct flyt_pool_shared *ret_shared)
{
    pthread_mutex_lock(&pools.mutex);
    const struct pool *pool = find_locked(handle);
    if (pool)
        *ret_shared = (struct flyt_pool_shared){pool->place, pool->handle_types, pool->pool_id, pool->is_imported};
    pthread_mutex_unlock(&pools.mutex);
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_pool_adopt(int device, uint64_t pool_id, CUmemoryPool *ret_pool)
{
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = new_pool_locked(device, UINT64_MAX);
    if (pool) {
        pool->pool_id = pool_id;
        pool->is_imported = true;
    }
    CUresult result = tell(pool, ret_pool);
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* All memory of a device that decompresses is made for it. */
static CUresult check_usage(unsigned usage, int place)
{
    const struct flyt_device_info *info;
    if (usage & ~CU_MEM_POOL_CREATE_USAGE_HW_DECOMPRESS || place >= HOST)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_device_info(place, &info);
    if (!result && !info->attributes[CU_DEVICE_ATTRIBUTE_MEM_DECOMPRESS_ALGORITHM_MASK])
        result = flyt_not_supported("pool for decompression by a GPU that cannot");
    return result;
}

CUresult flyt_pool_create(const CUmemPoolProps *props, CUmemoryPool *ret_pool)
{
    int place = HOST + MANAGED; /* of the caller's own node, of which only a managed one can be */
    CUresult result = flyt_client_enter();
    if (!result && (!props || !ret_pool))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && (props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED ||
                    props->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT))
        result = find_place(&props->location, props->allocType, &place);
    if (result) /* as the driver says it */
        return result == CUDA_ERROR_NOT_SUPPORTED ? CUDA_ERROR_INVALID_VALUE : result;
    const unsigned handle_types = (unsigned)props->handleTypes;
    if (is_managed(place) ? handle_types || props->maxSize
                          : handle_types && props->location.type == CU_MEM_LOCATION_TYPE_HOST)
        return CUDA_ERROR_INVALID_VALUE;
    if (handle_types && (handle_types != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || !can_share(place)))
        return flyt_not_supported("pool that is shared with other processes");
    if (props->usage)
        result = check_usage(props->usage, place);
    if (result)
        return result;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = new_pool_locked(place, props->maxSize ? props->maxSize : UINT64_MAX);
    result = tell(pool, ret_pool);
    if (pool && handle_types)
        result = let_share_locked(pool, handle_types);
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* ---- blocks ---- */

static struct block *find_block_locked(uint64_t address)
{
    struct block *one = pools.blocks[bucket_of(address)];
    while (one && one->base != address)
        one = one->next;
    return one;
}

static void enter_block_locked(struct block *block)
{
    struct block **place = &pools.blocks[bucket_of(block->base)];
    struct pool *pool = block->pool;
    block->next = *place;
    *place = block;
    pool->block_count++;
    pool->reserved_bytes += block->bytes;
    if (pool->reserved_bytes > pool->reserved_high_bytes)
        pool->reserved_high_bytes = pool->reserved_bytes;
    atomic_fetch_add(&pools.block_count, 1);
}

/* It is in use again, or gone. */
static void uncache_locked(struct block *block)
{
    struct block **place = &block->pool->cached[bucket_of(block->bytes)];
    while (*place != block)
        place = &(*place)->cached_next;
    *place = block->cached_next;
    block->is_cached = false;
    atomic_fetch_sub(&pools.cached_count, 1);
}

static void leave_block_locked(struct block *block)
{
    struct block **place = &pools.blocks[bucket_of(block->base)];
    struct pool *pool = block->pool;
    if (block->is_cached)
        uncache_locked(block);
    else
        pool->used_bytes -= block->bytes;
    while (*place != block)
        place = &(*place)->next;
    *place = block->next;
    pool->block_count--;
    pool->reserved_bytes -= block->bytes;
    atomic_fetch_sub(&pools.block_count, 1);
    forget_if_empty_locked(pool);
}

static void use_locked(struct block *block)
{
    struct pool *pool = block->pool;
    pool->used_bytes += block->bytes;
    if (pool->used_bytes > pool->used_high_bytes)
        pool->used_high_bytes = pool->used_bytes;
}

static void cache_locked(struct block *block, uint64_t stream_id, uint64_t freed_at)
{
    struct block **place = &block->pool->cached[bucket_of(block->bytes)];
    block->pool->used_bytes -= block->bytes;
    block->is_cached = true;
    block->stream_id = stream_id;
    block->freed_at = freed_at;
    block->cached_next = *place;
    *place = block;
    atomic_fetch_add(&pools.cached_count, 1);
}

/* Whether all that was before its free is complete. */
static bool is_done(const struct block *block)
{
    return block->freed_at <= flyt_channel_progress(flyt_client.channel).completed;
}

/* What is cached of this size, for this stream: freed in it, or complete. */
static struct block *take_cached_locked(struct pool *pool, uint64_t bytes, const struct flyt_stream *stream)
{
    struct block *done = NULL;
    for (struct block *one = pool->cached[bucket_of(bytes)]; one; one = one->cached_next) {
        if (one->bytes != bytes)
            continue;
        if (one->stream_id == stream->stream_id) {
            uncache_locked(one);
            return one;
        }
        if (!done && is_done(one))
            done = one;
    }
    if (done)
        uncache_locked(done);
    return done;
}

bool flyt_pool_has(uint64_t address, CUmemoryPool *ret_pool, unsigned *ret_handle_types)
{
    if (!atomic_load_explicit(&pools.block_count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&pools.mutex);
    const struct block *block = find_block_locked(address);
    if (block && ret_pool)
        *ret_pool = (CUmemoryPool)block->pool;
    if (block && ret_handle_types)
        *ret_handle_types = block->pool->handle_types;
    pthread_mutex_unlock(&pools.mutex);
    return block != NULL;
}

bool flyt_pool_has_back(uint64_t address)
{
    if (!atomic_load_explicit(&pools.cached_count, memory_order_relaxed))
        return false;
    pthread_mutex_lock(&pools.mutex);
    const struct block *block = find_block_locked(address);
    const bool is_back = block && block->is_cached && is_done(block);
    pthread_mutex_unlock(&pools.mutex);
    return is_back;
}

/* ---- giving back ---- */

/* Takes blocks that nothing uses out of a pool while it holds more than this; adds them to a list through `next`. */
static struct block *collect_locked(struct pool *pool, uint64_t bytes_kept, struct block *list)
{
    for (unsigned i = 0; i < BUCKETS && pool->reserved_bytes > bytes_kept; i++) {
        struct block *one = pool->cached[i], *next;
        for (; one && pool->reserved_bytes > bytes_kept; one = next) {
            next = one->cached_next;
            if (!is_done(one))
                continue;
            const bool is_last = pool->block_count == 1 && pool->is_destroyed;
            leave_block_locked(one);
            one->next = list;
            list = one;
            if (is_last) /* the pool is gone */
                return list;
        }
    }
    return list;
}

/* It is in no pool any more. is_on_server: not ended there with its context. is_later: memory that is to be unlocked
 * goes when nothing uses it. */
static CUresult end_block(const struct block *block, bool is_on_server, bool is_later)
{
    void *host = (void *)(uintptr_t)block->base; /* NOLINT: where it is the host's */
    if (block->import)
        return block->ended(block->import, block->base, is_on_server);
    if (is_managed(block->place))
        return flyt_watch_table->give(block->base, is_later);
    if (block->place != HOST)
        return flyt_range_free(block->base);
    return is_later ? flyt_host_give_later(host, FLYT_HOST_OF_POOL) : flyt_host_give(host, FLYT_HOST_OF_POOL);
}

static void end_blocks(struct block *list, bool is_on_server, bool is_later)
{
    while (list) {
        struct block *one = list;
        list = one->next;
        end_block(one, is_on_server, is_later);
        free(one);
    }
}

void flyt_pool_settle(void)
{
    struct block *list = NULL;
    if (__builtin_expect(!atomic_load_explicit(&pools.cached_count, memory_order_relaxed), 1))
        return;
    pthread_mutex_lock(&pools.mutex);
    for (struct pool *one = pools.first, *next; one; one = next) {
        next = one->next;
        uint64_t kept = one->is_destroyed ? 0 : one->threshold_bytes;
        if (one->reserved_bytes > kept)
            list = collect_locked(one, kept, list);
    }
    pthread_mutex_unlock(&pools.mutex);
    end_blocks(list, true, true); /* a loss shows at the next call */
}

static bool give_back_done(int place)
{
    struct block *list = NULL;
    pthread_mutex_lock(&pools.mutex);
    for (struct pool *one = pools.first, *next; one; one = next) {
        next = one->next;
        if (one->place == place)
            list = collect_locked(one, 0, list);
    }
    pthread_mutex_unlock(&pools.mutex);
    const bool is_some = list != NULL;
    end_blocks(list, true, true);
    return is_some;
}

/* Of a place, where a stream of the device lacks memory; managed memory may be that device's, too. */
static bool give_back(int place, int device)
{
    bool is_some = atomic_load(&pools.cached_count) &&
                   (give_back_done(place) || (!flyt_ask_device_synchronize((unsigned)device) && give_back_done(place)));
    for (int other = MANAGED; other < PLACES && !is_some && !flyt_client.is_managed_on_host; other++)
        is_some = give_back_done(other);
    return is_some;
}

bool flyt_pool_give_back(int device)
{
    return give_back(device, device);
}

CUresult flyt_pool_trim(CUmemoryPool handle, size_t bytes_kept)
{
    struct block *list = NULL;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    if (pool)
        list = collect_locked(pool, bytes_kept, NULL);
    pthread_mutex_unlock(&pools.mutex);
    end_blocks(list, true, true);
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_pool_destroy(CUmemoryPool handle)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    if (!pool || pool->is_default) {
        pthread_mutex_unlock(&pools.mutex);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (pools.current[pool->place] == pool)
        pools.current[pool->place] = NULL;
    pool->is_destroyed = true;
    struct block *list = pool->block_count ? collect_locked(pool, 0, NULL) : NULL;
    if (!list)
        forget_if_empty_locked(pool);
    pthread_mutex_unlock(&pools.mutex);
    end_blocks(list, true, true);
    return CUDA_SUCCESS;
}

/* The device's memory of the context goes with its ranges, managed memory with its pieces. */
void flyt_pool_clear(uint64_t context_id, bool is_on_server)
{
    struct block *list = NULL;
    pthread_mutex_lock(&pools.mutex);
    for (unsigned i = 0; i < BUCKETS; i++)
        for (struct block *one = pools.blocks[i], *next; one; one = next) {
            next = one->next;
            if (one->context_id != context_id)
                continue;
            leave_block_locked(one);
            if (one->import || one->place == HOST) {
                one->next = list;
                list = one;
            } else {
                free(one);
            }
        }
    pthread_mutex_unlock(&pools.mutex);
    end_blocks(list, is_on_server, false);
}

void flyt_pool_before_reset(int device, uint64_t context_id)
{
    flyt_pool_clear(context_id, true);
}

CUresult flyt_pool_adopt_block(CUmemoryPool handle, uint64_t address, uint64_t bytes, struct flyt_import *import,
                               CUresult (*ended)(struct flyt_import *import, uint64_t address, bool is_on_server))
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    if (pool && pool->is_imported) {
        *block = (struct block){.base = address,
                                .bytes = bytes,
                                .place = pool->place,
                                .context_id = flyt_primary_context_id(pool->place),
                                .pool = pool,
                                .import = import,
                                .ended = ended};
        enter_block_locked(block);
        use_locked(block);
    } else {
        free(block);
        pool = NULL;
    }
    pthread_mutex_unlock(&pools.mutex);
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- allocating and freeing ---- */

static CUresult take_memory(const struct block *block, int device, CUdeviceptr *ret_address)
{
    void *host;
    if (is_managed(block->place))
        return flyt_watch_table->take(block->context_id, device, block->bytes, ret_address);
    if (block->place != HOST)
        return flyt_memory_take(block->context_id, device, block->bytes, ret_address);
    CUresult result =
        flyt_host_take(block->bytes, CU_MEMHOSTALLOC_PORTABLE | FLYT_HOST_OF_POOL, block->context_id, device, &host);
    if (!result)
        *ret_address = (CUdeviceptr)(uintptr_t)host;
    return result;
}

/* A block of the server's, or of the host's memory, which is entered and in use. It goes with the device's primary
 * context. The pool may have been destroyed meanwhile: it stays for it. */
static CUresult grow(struct pool *pool, int device, uint64_t bytes, struct block **ret_block)
{
    struct block *block = calloc(1, sizeof *block);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *block = (struct block){
        .bytes = bytes, .context_id = flyt_primary_context_id(device), .pool = pool, .place = pool->place};
    CUdeviceptr address;
    CUresult result = take_memory(block, device, &address);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && block->place >= HOST && give_back(block->place, device))
        result = take_memory(block, device, &address);
    pthread_mutex_lock(&pools.mutex);
    pool->block_count--; /* what held it */
    if (!result) {
        block->base = address;
        enter_block_locked(block);
        use_locked(block);
        *ret_block = block;
    } else {
        forget_if_empty_locked(pool);
        free(block);
    }
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* The pool that is meant, which stays until grow() has come to its end where *ret_block is NULL. */
static CUresult take(CUmemoryPool handle, uint64_t asked_bytes, const struct flyt_stream *stream,
                     struct pool **ret_pool, struct block **ret_block, uint64_t *ret_bytes)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = handle ? find_locked(handle) : current_locked(stream->device);
    if (pool && pool->is_imported)
        pool = NULL;
    const uint64_t bytes = *ret_bytes = rounded(asked_bytes, pool ? pool->place : 0);
    *ret_block = NULL;
    *ret_pool = pool;
    if (!pool) {
        result = handle ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
    } else if ((*ret_block = take_cached_locked(pool, bytes, stream))) {
        use_locked(*ret_block);
    } else if (bytes > pool->bytes_max || pool->reserved_bytes > pool->bytes_max - bytes) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    } else {
        pool->block_count++;
    }
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* The graph has the memory, and of the pool only where that is. */
static CUresult alloc_captured(CUmemoryPool handle, struct flyt_stream *stream, size_t bytes, CUdeviceptr *ret_address)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE};
    pthread_mutex_lock(&pools.mutex);
    const struct pool *pool = handle ? find_locked(handle) : current_locked(stream->device);
    const bool is_good = pool && !pool->is_imported && !is_managed(pool->place);
    const bool is_host = is_good && pool->place == HOST;
    if (is_good && !is_host)
        location.id = pool->place;
    pthread_mutex_unlock(&pools.mutex);
    if (is_host)
        return CUDA_ERROR_NOT_SUPPORTED; /* NVIDIA's driver's answer */
    return is_good ? flyt_captures.ops->alloc(stream, &location, bytes, ret_address) : CUDA_ERROR_INVALID_VALUE;
}

/* The device that a block is of: the pool's, or, where that is of none, the stream's. */
static int device_for(const struct pool *pool, const struct flyt_stream *stream)
{
    const int where = where_of(pool->place);
    return where < HOST ? where : stream->device;
}

CUresult flyt_pool_alloc(size_t bytes, CUmemoryPool handle, CUstream stream_handle, CUdeviceptr *ret_address)
{
    struct flyt_stream *stream;
    struct pool *pool;
    struct block *block;
    uint64_t block_bytes;
    CUresult result = flyt_client_enter();
    if (!result && !ret_address)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    bool is_captured = false;
    if (!result && flyt_capture_is_any())
        result = flyt_capture_ask_work(stream, &is_captured);
    if (result)
        return result;
    *ret_address = 0;
    if (!bytes)
        return CUDA_SUCCESS;
    if (is_captured)
        return alloc_captured(handle, stream, bytes, ret_address);
    result = take(handle, bytes, stream, &pool, &block, &block_bytes);
    if (!result && !block)
        result = grow(pool, device_for(pool, stream), block_bytes, &block);
    if (!result)
        *ret_address = block->base;
    return result;
}

bool flyt_pool_take_back(uint64_t address, CUresult *ret_result)
{
    if (__builtin_expect(!atomic_load_explicit(&pools.block_count, memory_order_relaxed), 1))
        return false;
    pthread_mutex_lock(&pools.mutex);
    struct block *block = find_block_locked(address);
    const bool is_used = block && !block->is_cached;
    if (is_used)
        leave_block_locked(block);
    pthread_mutex_unlock(&pools.mutex);
    if (block)
        *ret_result = is_used ? end_block(block, true, false) : CUDA_ERROR_INVALID_VALUE;
    if (is_used)
        free(block);
    return block != NULL;
}

CUresult flyt_pool_free(CUdeviceptr address, CUstream stream_handle)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter_release();
    if (!result)
        result = flyt_stream_get(stream_handle, &stream);
    bool is_captured = false;
    if (!result && flyt_capture_is_any())
        result = flyt_capture_ask_work(stream, &is_captured);
    if (result || !address)
        return result;
    if (is_captured)
        return flyt_captures.ops->free(stream, address);
    if (flyt_graph_memory_free(address, &result))
        return result;
    pthread_mutex_lock(&pools.mutex);
    struct block *block = find_block_locked(address);
    const bool is_imported = block && block->import;
    if (block && block->is_cached)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (block && !is_imported)
        cache_locked(block, stream->stream_id, flyt_stream_order_sequence(stream));
    pthread_mutex_unlock(&pools.mutex);
    if (is_imported) {
        flyt_pool_take_back(address, &result);
        return result;
    }
    if (block)
        return result;
    struct flyt_range range;
    if (flyt_range_find(address, &range) && range.base == address && range.is_managed)
        return CUDA_ERROR_NOT_SUPPORTED; /* NVIDIA's driver's answer */
    return flyt_range_free(address);
}

/* ---- attributes ---- */

/* Where a number of 64 bits is; NULL: it is none of these. */
static uint64_t *place_of(struct pool *pool, CUmemPool_attribute attribute)
{
    uint64_t *const places[] = {[CU_MEMPOOL_ATTR_RELEASE_THRESHOLD] = &pool->threshold_bytes,
                                [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT] = &pool->reserved_bytes,
                                [CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH] = &pool->reserved_high_bytes,
                                [CU_MEMPOOL_ATTR_USED_MEM_CURRENT] = &pool->used_bytes,
                                [CU_MEMPOOL_ATTR_USED_MEM_HIGH] = &pool->used_high_bytes};
    return (unsigned)attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH ? places[attribute] : NULL;
}

static int *reuse_of(struct pool *pool, CUmemPool_attribute attribute)
{
    return attribute >= CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES &&
                   attribute <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
               ? &pool->reuse[attribute - CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES]
               : NULL;
}

static CUresult get_locked(struct pool *pool, CUmemPool_attribute attribute, void *value)
{
    const uint64_t *number = place_of(pool, attribute);
    const int *reuse = reuse_of(pool, attribute);
    if (number)
        *(cuuint64_t *)value = *number;
    else if (reuse)
        *(int *)value = *reuse;
    return number || reuse ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* High marks can be set to 0 alone, and are where the pool is then; what it has cannot be set. */
static CUresult set_locked(struct pool *pool, CUmemPool_attribute attribute, const void *value)
{
    int *reuse = reuse_of(pool, attribute);
    if (reuse) {
        *reuse = *(const int *)value != 0;
        return CUDA_SUCCESS;
    }
    const bool is_reserved_high = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH;
    if (is_reserved_high || attribute == CU_MEMPOOL_ATTR_USED_MEM_HIGH) {
        if (*(const cuuint64_t *)value)
            return CUDA_ERROR_INVALID_VALUE;
        *place_of(pool, attribute) = is_reserved_high ? pool->reserved_bytes : pool->used_bytes;
        return CUDA_SUCCESS;
    }
    if (attribute != CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        return CUDA_ERROR_INVALID_VALUE;
    pool->threshold_bytes = *(const cuuint64_t *)value;
    return CUDA_SUCCESS;
}

CUresult flyt_pool_get_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value)
{
    CUresult result = flyt_client_enter();
    if (result || !value)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    result = pool ? get_locked(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

CUresult flyt_pool_set_attribute(CUmemoryPool handle, CUmemPool_attribute attribute, const void *value)
{
    CUresult result = flyt_client_enter();
    if (result || !value)
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    result = pool ? set_locked(pool, attribute, value) : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

/* ---- who reaches it, as NVIDIA's driver has it ---- */

/* Whether a device may have access to what is at another place. */
static CUresult check_reach(int device, int own_place)
{
    int can = 1;
    CUresult result = CUDA_SUCCESS;
    if (own_place == HOST)
        return flyt_arena_is_mapped() ? CUDA_SUCCESS : flyt_not_supported("access of devices to a pool of host memory");
    if (device != own_place)
        result = flyt_device_can_access_peer(device, own_place, &can);
    return !result && !can ? CUDA_ERROR_INVALID_DEVICE : result;
}

/* Of a NUMA node's number nothing is asked here. */
static bool is_host(const CUmemLocation *location)
{
    return location->type == CU_MEM_LOCATION_TYPE_HOST || location->type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

/* One that gets access, or loses it: where the memory is nobody loses it, but for managed memory, of which only the
 * note is kept. */
static CUresult check_one(int own_place, const CUmemAccessDesc *one, int *ret_place)
{
    const bool is_of_device = own_place < HOST, is_more = one->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    if (one->location.type != CU_MEM_LOCATION_TYPE_DEVICE && (is_of_device || !is_host(&one->location)))
        return is_of_device ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE;
    const int place = is_host(&one->location) ? HOST : device_place(one->location.id);
    if (one->flags == CU_MEM_ACCESS_FLAGS_PROT_READ)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (!is_more && one->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE)
        return CUDA_ERROR_INVALID_VALUE;
    if (place == own_place && !is_more)
        return is_of_device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_NOT_SUPPORTED;
    *ret_place = place;
    CUresult result = enter_place(place);
    return result || !is_more || place == own_place || is_managed(own_place) ? result : check_reach(place, own_place);
}

/* Which places get access by this, and which lose it, a bit each. */
static CUresult check_access(int own_place, const CUmemAccessDesc *map, size_t count, unsigned *ret_more,
                             unsigned *ret_less)
{
    CUresult result = CUDA_SUCCESS;
    int place = own_place;
    *ret_more = *ret_less = 0;
    for (size_t i = 0; i < count && !result; i++) {
        result = check_one(own_place, &map[i], &place);
        if (!result && place != own_place)
            *(map[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? ret_more : ret_less) |= 1u << place;
    }
    return result;
}

/* Host memory is mapped for all devices where it is mapped at all. */
static CUresult change_access(int own_place, unsigned reached_by, unsigned more, unsigned less)
{
    CUresult result = CUDA_SUCCESS;
    if (own_place == HOST && more)
        flyt_host_note_reached();
    for (int device = 0; own_place < HOST && device < FLYT_DEVICES_MAX && !result; device++) {
        if (more & ~reached_by & 1u << device)
            result = flyt_device_peer_count(device, own_place, true);
        if (less & reached_by & 1u << device)
            result = flyt_device_peer_count(device, own_place, false);
    }
    return result;
}

CUresult flyt_pool_set_access(CUmemoryPool handle, const CUmemAccessDesc *map, size_t count)
{
    unsigned more, less;
    CUresult result = flyt_client_enter();
    if (result || (!map && count))
        return result ? result : CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&pools.mutex);
    struct pool *pool = find_locked(handle);
    const int own_place = pool ? pool->place : -1;
    const unsigned reached_by = pool ? pool->reached_by : 0;
    pthread_mutex_unlock(&pools.mutex);
    result = pool ? check_access(own_place, map, count, &more, &less) : CUDA_ERROR_INVALID_VALUE;
    result = result ? result : change_access(own_place, reached_by, more, less);
    pthread_mutex_lock(&pools.mutex);
    pool = find_locked(handle);
    if (pool && !result)
        pool->reached_by = (pool->reached_by | more) & ~less;
    pthread_mutex_unlock(&pools.mutex);
    return result;
}

CUresult flyt_pool_get_access(CUmemoryPool handle, const CUmemLocation *location, CUmemAccess_flags *ret_flags)
{
    CUresult result = flyt_client_enter();
    if (!result && (!location || !ret_flags || (!is_host(location) && location->type != CU_MEM_LOCATION_TYPE_DEVICE)))
        result = CUDA_ERROR_INVALID_VALUE;
    const int place = result || is_host(location) ? HOST : device_place(location->id);
    result = result ? result : enter_place(place);
    if (result)
        return result;
    pthread_mutex_lock(&pools.mutex);
    const struct pool *pool = find_locked(handle);
    if (pool)
        *ret_flags = pool->reached_by >> place & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    pthread_mutex_unlock(&pools.mutex);
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
