/* The address span: access tables, pools of memory, accounting. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/softgpu/driver/driver.h"

enum { REGISTER_UNIT_BYTES = 1, POOL_UNIT_BYTES = 256 };

static uint64_t granule_down(uint64_t address)
{
    return address & ~(FLYT_SOFT_GRANULE_BYTES - 1);
}

static uint64_t granule_up(uint64_t address)
{
    return granule_down(address + FLYT_SOFT_GRANULE_BYTES - 1);
}

static uint64_t granule_index(uint64_t address)
{
    return (address - FLYT_SOFT_SPAN_BASE) >> FLYT_SOFT_GRANULE_SHIFT;
}

bool flyt_soft_is_in_span(uint64_t address)
{
    return address - FLYT_SOFT_SPAN_BASE < FLYT_SOFT_SPAN_BYTES;
}

bool flyt_soft_map_charge(struct flyt_soft_map *map, uint64_t bytes)
{
    uint64_t used = atomic_load(&map->used_bytes);

    do {
        if (bytes > map->total_bytes - used)
            return false;
    } while (!atomic_compare_exchange_weak(&map->used_bytes, &used, used + bytes));
    return true;
}

void flyt_soft_map_uncharge(struct flyt_soft_map *map, uint64_t bytes)
{
    atomic_fetch_sub(&map->used_bytes, bytes);
}

void flyt_soft_map_allow(struct flyt_soft_map *map, uint64_t start, uint64_t bytes, uint8_t access)
{
    uint64_t first = granule_index(start);

    for (uint64_t i = 0; i < bytes >> FLYT_SOFT_GRANULE_SHIFT; i++)
        atomic_store_explicit(&map->access[first + i], access, memory_order_release);
}

uint8_t flyt_soft_map_access(const struct flyt_soft_map *map, uint64_t address)
{
    if (!flyt_soft_is_in_span(address))
        return FLYT_SOFT_ACCESS_NONE;
    return atomic_load_explicit(&map->access[granule_index(address)], memory_order_acquire);
}

/* The access table that says whether a granule of the pool is committed. */
static struct flyt_soft_map *pool_map(const struct flyt_soft_pool *pool)
{
    return pool->device ? &pool->device->map : &flyt_soft_driver()->devices[0].map;
}

static void pool_allow(struct flyt_soft_pool *pool, uint64_t start, uint8_t access)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();

    if (pool->device) {
        flyt_soft_map_allow(&pool->device->map, start, FLYT_SOFT_GRANULE_BYTES, access);
        return;
    }
    for (unsigned i = 0; i < driver->device_count; i++)
        flyt_soft_map_allow(&driver->devices[i].map, start, FLYT_SOFT_GRANULE_BYTES, access);
}

/* Commits the granules of [start, end) that are not yet. What was committed stays so where memory runs out midway. */
static bool pool_commit_locked(struct flyt_soft_pool *pool, uint64_t start, uint64_t end)
{
    struct flyt_soft_map *map = pool_map(pool);

    for (uint64_t at = granule_down(start); at < end; at += FLYT_SOFT_GRANULE_BYTES) {
        if (flyt_soft_map_access(map, at))
            continue;
        if (pool->device && !flyt_soft_map_charge(map, FLYT_SOFT_GRANULE_BYTES))
            return false;
        if (mprotect((void *)at, FLYT_SOFT_GRANULE_BYTES, PROT_READ | PROT_WRITE) < 0) {
            if (pool->device)
                flyt_soft_map_uncharge(map, FLYT_SOFT_GRANULE_BYTES);
            return false;
        }
        pool_allow(pool, at, FLYT_SOFT_ACCESS_READ_WRITE);
    }
    return true;
}

/* Returns the committed granules that lie entirely in the hole [start, end). */
static void pool_trim_locked(struct flyt_soft_pool *pool, uint64_t near_start, uint64_t near_end, uint64_t start,
                             uint64_t end)
{
    struct flyt_soft_map *map = pool_map(pool);
    uint64_t first = granule_up(start) > granule_down(near_start) ? granule_up(start) : granule_down(near_start);
    uint64_t last = granule_down(end) < granule_up(near_end) ? granule_down(end) : granule_up(near_end);

    for (uint64_t at = first; at < last; at += FLYT_SOFT_GRANULE_BYTES) {
        if (!flyt_soft_map_access(map, at))
            continue;
        pool_allow(pool, at, FLYT_SOFT_ACCESS_NONE);
        /* Stays readable and writable for work that still uses it wrongly, with fresh zero pages. */
        madvise((void *)at, FLYT_SOFT_GRANULE_BYTES, MADV_DONTNEED);
        if (pool->device)
            flyt_soft_map_uncharge(map, FLYT_SOFT_GRANULE_BYTES);
    }
}

static void pool_give_locked(struct flyt_soft_pool *pool, struct flyt_soft_range *range)
{
    uint64_t start = range->start, end = range->start + range->bytes;
    uint64_t hole_start, hole_bytes;

    if (flyt_soft_ranges_give(&pool->ranges, range, &hole_start, &hole_bytes) == 0)
        pool_trim_locked(pool, start, end, hole_start, hole_start + hole_bytes);
}

CUresult flyt_soft_pool_alloc(struct flyt_soft_pool *pool, uint64_t bytes, uint64_t align, void *owner,
                              uint64_t *ret_address)
{
    struct flyt_soft_range *range;
    CUresult r = CUDA_ERROR_OUT_OF_MEMORY;

    pthread_mutex_lock(&pool->mutex);
    if (flyt_soft_ranges_take(&pool->ranges, bytes, align, &range) == 0) {
        range->owner = owner;
        if (pool_commit_locked(pool, range->start, range->start + range->bytes)) {
            *ret_address = range->start;
            r = CUDA_SUCCESS;
        } else {
            pool_give_locked(pool, range);
        }
    }
    pthread_mutex_unlock(&pool->mutex);
    return r;
}

CUresult flyt_soft_pool_free(struct flyt_soft_pool *pool, uint64_t address)
{
    struct flyt_soft_range *range;
    CUresult r = CUDA_ERROR_INVALID_VALUE;

    pthread_mutex_lock(&pool->mutex);
    range = flyt_soft_ranges_find(&pool->ranges, address);
    if (range && range->start == address) {
        pool_give_locked(pool, range);
        r = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&pool->mutex);
    return r;
}

bool flyt_soft_pool_find(struct flyt_soft_pool *pool, uint64_t address, struct flyt_soft_range *ret_range)
{
    const struct flyt_soft_range *range;

    pthread_mutex_lock(&pool->mutex);
    range = flyt_soft_ranges_find(&pool->ranges, address);
    if (range)
        *ret_range = *range;
    pthread_mutex_unlock(&pool->mutex);
    return range != NULL;
}

static void pool_init(struct flyt_soft_pool *pool, struct flyt_soft_device *device)
{
    pthread_mutex_init(&pool->mutex, NULL);
    pool->device = device;
}

/* Reserves the pool's addresses; pieces become accessible as they are handed out. */
static int pool_open(struct flyt_soft_pool *pool, uint64_t base, uint64_t bytes, uint64_t unit_bytes)
{
    void *at =
        mmap((void *)base, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);

    if (at == MAP_FAILED)
        return -ENOMEM;
    if (at != (void *)base) {
        munmap(at, bytes);
        return -ENOMEM;
    }
    pthread_mutex_lock(&pool->mutex);
    int status = flyt_soft_ranges_init(&pool->ranges, base, bytes, unit_bytes);
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

int flyt_soft_map_init(struct flyt_soft_device *device, uint64_t total_bytes)
{
    struct flyt_soft_map *map = &device->map;
    uint64_t granule_count = FLYT_SOFT_SPAN_BYTES >> FLYT_SOFT_GRANULE_SHIFT;
    uint64_t alloc_base = FLYT_SOFT_ALLOC_BASE + (uint64_t)device->index * FLYT_SOFT_ALLOC_BYTES;

    map->total_bytes = total_bytes;
    map->access = mmap(NULL, granule_count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map->access == MAP_FAILED)
        return -ENOMEM;
    map->ptx = (struct flyt_ptx_memory){
        .granule_shift = FLYT_SOFT_GRANULE_SHIFT,
        .region_count = 1,
        .regions = {{.base = FLYT_SOFT_SPAN_BASE, .granule_count = granule_count, .mapped = map->access}},
    };
    pool_init(&map->alloc, device);
    pool_init(&map->globals, device);
    pool_init(&map->heap, device);
    return pool_open(&map->alloc, alloc_base, FLYT_SOFT_ALLOC_BYTES, POOL_UNIT_BYTES);
}

int flyt_soft_map_open(struct flyt_soft_device *device)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t open_count;
    struct flyt_soft_map *map = &device->map;
    int status = 0;

    pthread_mutex_lock(&mutex);
    if (!map->is_open) {
        uint64_t base = FLYT_SOFT_OWN_BASE + open_count * FLYT_SOFT_OWN_BYTES;
        status = pool_open(&map->globals, base, FLYT_SOFT_GLOBALS_BYTES, POOL_UNIT_BYTES);
        if (status == 0)
            status = pool_open(&map->heap, base + FLYT_SOFT_GLOBALS_BYTES,
                               FLYT_SOFT_OWN_BYTES - FLYT_SOFT_GLOBALS_BYTES, FLYT_SOFT_HEAP_ALIGN);
        map->is_open = status == 0;
        open_count += map->is_open;
    }
    pthread_mutex_unlock(&mutex);
    return status;
}

int flyt_soft_space_init(struct flyt_soft_space *space)
{
    if (flyt_soft_ranges_init(&space->chosen, FLYT_SOFT_CHOSEN_BASE, FLYT_SOFT_CHOSEN_BYTES, FLYT_SOFT_GRANULE_BYTES) <
            0 ||
        flyt_soft_ranges_init(&space->fixed, FLYT_SOFT_FIXED_BASE, FLYT_SOFT_FIXED_BYTES, FLYT_SOFT_GRANULE_BYTES) <
            0 ||
        flyt_soft_ranges_init(&space->mappings, FLYT_SOFT_SPAN_BASE, FLYT_SOFT_SPAN_BYTES, FLYT_SOFT_GRANULE_BYTES) <
            0 ||
        flyt_soft_ranges_init(&space->registered, 0x1000, (uint64_t)1 << 56, REGISTER_UNIT_BYTES) < 0)
        return -ENOMEM;
    pool_init(&space->host, NULL);
    return pool_open(&space->host, FLYT_SOFT_HOST_BASE, FLYT_SOFT_HOST_BYTES, POOL_UNIT_BYTES);
}

struct flyt_soft_device *flyt_soft_alloc_device(uint64_t address)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    uint64_t i = (address - FLYT_SOFT_ALLOC_BASE) / FLYT_SOFT_ALLOC_BYTES;

    return address >= FLYT_SOFT_ALLOC_BASE && i < driver->device_count ? &driver->devices[i] : NULL;
}

/* Whether the bytes lie in one piece of a pool, to the byte that was asked for. */
static bool is_in_piece(struct flyt_soft_pool *pool, uint64_t address, uint64_t bytes)
{
    struct flyt_soft_range range;

    return flyt_soft_pool_find(pool, address, &range) && address - range.start <= range.asked_bytes &&
           bytes <= range.asked_bytes - (address - range.start);
}

bool flyt_soft_is_device_memory(uint64_t address, uint64_t bytes)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_device *device = flyt_soft_alloc_device(address);

    if (!flyt_soft_is_in_span(address) || bytes > FLYT_SOFT_SPAN_BYTES)
        return false;
    if (device)
        return is_in_piece(&device->map.alloc, address, bytes);
    if (address - FLYT_SOFT_HOST_BASE < FLYT_SOFT_HOST_BYTES)
        return is_in_piece(&driver->space.host, address, bytes);
    for (uint64_t at = granule_down(address); at < address + bytes; at += FLYT_SOFT_GRANULE_BYTES) {
        bool is_mapped = false;

        for (unsigned i = 0; i < driver->device_count && !is_mapped; i++)
            is_mapped = flyt_soft_map_access(&driver->devices[i].map, at) != FLYT_SOFT_ACCESS_NONE;
        if (!is_mapped)
            return false;
    }
    return true;
}

bool flyt_soft_is_pinned(uint64_t address)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    bool is_registered;

    if (address - FLYT_SOFT_HOST_BASE < FLYT_SOFT_HOST_BYTES)
        return true;
    pthread_mutex_lock(&driver->mutex);
    is_registered = flyt_soft_ranges_find(&driver->space.registered, address) != NULL;
    pthread_mutex_unlock(&driver->mutex);
    return is_registered;
}

uint64_t flyt_soft_heap_alloc(void *user, uint64_t bytes)
{
    struct flyt_soft_device *device = user;
    struct flyt_soft_map *map = &device->map;
    uint64_t limit = device->limits[CU_LIMIT_MALLOC_HEAP_SIZE];
    uint64_t need = (bytes + FLYT_SOFT_HEAP_ALIGN - 1) & ~(uint64_t)(FLYT_SOFT_HEAP_ALIGN - 1);
    uint64_t address;

    uint64_t used = atomic_load(&map->heap_used_bytes);

    if (!bytes || need < bytes || need > limit)
        return 0;
    do { /* not added and taken back: meanwhile others would find the heap full */
        if (used > limit - need)
            return 0;
    } while (!atomic_compare_exchange_weak(&map->heap_used_bytes, &used, used + need));
    if (flyt_soft_pool_alloc(&map->heap, bytes, FLYT_SOFT_HEAP_ALIGN, NULL, &address) == CUDA_SUCCESS)
        return address;
    atomic_fetch_sub(&map->heap_used_bytes, need);
    return 0;
}

void flyt_soft_heap_free(void *user, uint64_t address)
{
    struct flyt_soft_map *map = &((struct flyt_soft_device *)user)->map;
    struct flyt_soft_range range;

    if (!flyt_soft_pool_find(&map->heap, address, &range) || range.start != address)
        return;
    if (flyt_soft_pool_free(&map->heap, address) == CUDA_SUCCESS)
        atomic_fetch_sub(&map->heap_used_bytes, range.bytes);
}
