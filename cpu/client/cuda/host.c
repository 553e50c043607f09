#include "cpu/client/cuda/host.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "rpc/base/log.h"
#include "rpc/base/region.h"
#include "rpc/base/thread.h"

/* ---- memory that the GPU reaches ---- */

enum { TRIES = 16 };

/* Locks pages of the region, or unlocks them when the GPU is done with them. */
static CUresult lock_shared(uint64_t offset_bytes, uint64_t bytes)
{
    flyt_region_lock_args args = {
        .thread = flyt_thread_number(), .region_id = FLYT_REGION_ID, .offset_bytes = offset_bytes, .bytes = bytes};
    flyt_region_lock_res res = {0};
    int status = flyt_call_region_lock(flyt_client.channel, &args, &res);
    return flyt_client_reply(status, res.result, "region_lock");
}

static CUresult unlock_shared(uint64_t offset_bytes, uint64_t bytes)
{
    flyt_region_unlock_args args = {
        .thread = flyt_thread_number(), .region_id = FLYT_REGION_ID, .offset_bytes = offset_bytes, .bytes = bytes};
    flyt_region_unlock_res res = {0};
    int status = flyt_call_region_unlock(flyt_client.channel, &args, &res);
    return flyt_client_reply(status, res.result, "region_unlock");
}

/* False: this server, *ret_server, has not been asked for the piece in which the address lies. */
static bool is_answered(uint64_t address, uint64_t *ret_server, struct flyt_arena_piece *ret_piece)
{
    *ret_server = flyt_arena_server();
    ret_piece->is_locked = false;
    return !*ret_server || !flyt_arena_piece(address, ret_piece) || ret_piece->server == *ret_server;
}

/* One thread asks the server to lock a piece, and others wait for its answer: the server refuses pages that it is
 * locking. */
static CUresult lock_piece(uint64_t address, uint64_t *ret_server)
{
    static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
    struct flyt_arena_piece piece;
    pthread_mutex_lock(&asking);
    CUresult result = CUDA_SUCCESS;
    if (!is_answered(address, ret_server, &piece)) {
        result = lock_shared(piece.offset_bytes, piece.bytes);
        if (!flyt_arena_note(&piece, *ret_server, result == CUDA_SUCCESS) && result == CUDA_SUCCESS) {
            /* Another thread has freed it meanwhile. */
            unlock_shared(piece.offset_bytes, piece.bytes);
            result = CUDA_ERROR_INVALID_VALUE;
        }
    } else if (!piece.is_locked) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_unlock(&asking);
    return result;
}

/* Takes pages and locks them; NULL: there are none to be had, or *ret_result says why not these. */
static void *take_locked(uint64_t bytes, CUresult *ret_result)
{
    uint64_t server, taken_bytes;
    void *address = flyt_arena_take(bytes, &taken_bytes);
    if (!address)
        return NULL;
    *ret_result = lock_piece((uint64_t)(uintptr_t)address, &server);
    if (*ret_result == CUDA_SUCCESS)
        return address;
    flyt_arena_give(address);
    return NULL;
}

/* Of a VM's memory the GPU may still have what a program had that was killed: other pages are taken then. */
void *flyt_host_take_shared(uint64_t bytes)
{
    CUresult result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    void *address = NULL;
    for (unsigned i = 0; i < TRIES && result == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED; i++) {
        result = CUDA_SUCCESS;
        address = take_locked(bytes, &result);
    }
    return address;
}

bool flyt_host_is_shared(uint64_t address, uint64_t *ret_server)
{
    struct flyt_arena_piece piece;
    return is_answered(address, ret_server, &piece) ? piece.is_locked : lock_piece(address, ret_server) == CUDA_SUCCESS;
}

/*
 * False: it is none. What the server does not unlock, because the context or the connection is lost, stays as it is:
 * the GPU would go on with pages that are no longer those of the region. A server to which the session has come back
 * has pages locked of which is not known here that they are; of others it says that they are not.
 */
static bool free_shared(void *address)
{
    struct flyt_arena_piece piece;
    if (!flyt_arena_piece((uint64_t)(uintptr_t)address, &piece))
        return false;
    const uint64_t server = flyt_arena_server();
    const bool is_known = piece.server == server && piece.is_locked;
    CUresult result = server ? unlock_shared(piece.offset_bytes, piece.bytes) : CUDA_SUCCESS;
    if (result == CUDA_SUCCESS || (result == CUDA_ERROR_INVALID_VALUE && !is_known))
        flyt_arena_give(address);
    return true;
}

/* ---- what kernels may have addresses of ---- */

static atomic_bool is_reached;

static int send_reached(struct flyt_channel *channel, uint32_t thread)
{
    flyt_region_reach_args args = {.thread = thread, .region_id = FLYT_REGION_ID};
    return flyt_send_region_reach(channel, &args, NULL);
}

/* What this server has not locked yet it locks now: any of it may be what kernels reach. */
static void lock_all(void)
{
    struct flyt_arena_piece piece;
    uint64_t server;
    for (uint64_t at = 0; flyt_arena_next(at, &piece); at = piece.offset_bytes + piece.bytes)
        flyt_host_is_shared((uint64_t)(uintptr_t)flyt_channel_region(flyt_client.channel)->base + piece.offset_bytes,
                            &server);
}

bool flyt_host_is_reached(void)
{
    return atomic_load_explicit(&is_reached, memory_order_relaxed);
}

void flyt_host_note_reached(void)
{
    if (atomic_load_explicit(&is_reached, memory_order_relaxed) || atomic_exchange(&is_reached, true))
        return;
    flyt_client_status(send_reached(flyt_client.channel, flyt_thread_number()), "region_reach");
    lock_all();
}

void flyt_host_look_for_reached(const void *data, size_t bytes)
{
    uint64_t word;
    if (atomic_load_explicit(&is_reached, memory_order_relaxed) || !flyt_arena_is_mapped())
        return;
    for (size_t at = 0; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, (const char *)data + at, sizeof word);
        if (flyt_arena_may_be(word) && flyt_host_is_mapped(word)) {
            flyt_host_note_reached();
            return;
        }
    }
}

/* ---- at another server ---- */

/* Where it is not needed, what cannot be locked now is asked for again when it is used. */
static int lock_again(struct flyt_restore *restore, const struct flyt_arena_piece *piece, bool is_needed)
{
    flyt_region_lock_args args = {.thread = FLYT_RESTORE_THREAD,
                                  .region_id = FLYT_REGION_ID,
                                  .offset_bytes = piece->offset_bytes,
                                  .bytes = piece->bytes};
    flyt_region_lock_res res = {0};
    int status = flyt_call_region_lock(restore->fresh, &args, &res);
    if (!status && !res.result)
        flyt_arena_note(piece, flyt_channel_region_at(restore->fresh), true);
    if (!status && !is_needed)
        return 0;
    return flyt_restore_answered(restore, status, res.result, "page-locked memory of %llu bytes",
                                 (unsigned long long)piece->bytes);
}

int flyt_host_restore(struct flyt_restore *restore)
{
    const enum flyt_channel_reach reach = flyt_channel_region_reach(flyt_client.channel);
    struct flyt_arena_piece piece;
    int status = 0;
    if (reach == FLYT_CHANNEL_REACHED)
        atomic_store(&is_reached, true);
    bool is_needed = atomic_load(&is_reached), has_all = flyt_channel_maps_region(restore->fresh);
    if (!is_needed && (reach == FLYT_CHANNEL_UNREACHED || !has_all))
        return 0;
    if (!has_all)
        return flyt_error_set(restore->err, -ENOTSUP,
                              "its kernels may reach host memory of the program, which the new server does not have");
    for (uint64_t at = 0; !status && flyt_arena_next(at, &piece); at = piece.offset_bytes + piece.bytes)
        status = lock_again(restore, &piece, is_needed);
    if (status || !is_needed)
        return status;
    return flyt_restore_answered(restore, send_reached(restore->fresh, FLYT_RESTORE_THREAD), 0, "a note");
}

/* ---- pinned memory ---- */

/* Of memory that is not shared. Page-aligned; mapped and unmapped as a whole, so that a late use of freed memory faults
 * instead of corrupting. */
static void *alloc_private(uint64_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return address == MAP_FAILED ? NULL : address;
}

static void give_back(void *address, uint64_t bytes)
{
    if (!free_shared(address) && munmap(address, bytes))
        flyt_warn("pinned memory is not unmapped bytes=%llu: %m", (unsigned long long)bytes);
}

/* ---- what is given back later ---- */

enum { GIVEN_BYTES_MAX = 256 << 20 /* beyond that who gives waits himself */ };

struct given {
    void *address;
    uint64_t bytes;
    struct given *next;
};

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct given *first, *last;
    uint64_t bytes, waiting_count, given_count; /* waiting: the one that the thread works on, too */
    bool is_running;
} later = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void *give_those(void *user)
{
    flyt_thread_get();
    flyt_channel_wait_as(FLYT_CHANNEL_BLOCKS);
    pthread_mutex_lock(&later.mutex);
    for (;;) {
        struct given *one = later.first;
        if (!one) {
            pthread_cond_wait(&later.changed, &later.mutex);
            continue;
        }
        later.first = one->next;
        pthread_mutex_unlock(&later.mutex);
        flyt_transfer_wait_range((uint64_t)(uintptr_t)one->address, one->bytes);
        give_back(one->address, one->bytes);
        pthread_mutex_lock(&later.mutex);
        later.bytes -= one->bytes;
        later.waiting_count--;
        later.given_count++;
        pthread_cond_broadcast(&later.changed);
        free(one);
    }
    return NULL;
}

/* False: too much is waiting, no memory, or no thread. */
static bool queue_later(void *address, uint64_t bytes)
{
    struct given *one = malloc(sizeof *one);
    if (!one)
        return false;
    *one = (struct given){.address = address, .bytes = bytes};
    pthread_mutex_lock(&later.mutex);
    if (!later.is_running)
        later.is_running = flyt_thread_start("flyt-unlock", give_those, NULL) == 0;
    const bool is_queued = later.is_running && later.bytes <= GIVEN_BYTES_MAX;
    if (is_queued) {
        *(later.first ? &later.last->next : &later.first) = one;
        later.last = one;
        later.bytes += bytes;
        later.waiting_count++;
        pthread_cond_broadcast(&later.changed);
    }
    pthread_mutex_unlock(&later.mutex);
    if (!is_queued)
        free(one);
    return is_queued;
}

/* Until one more has been given back. False: there is none. */
static bool wait_for_given(void)
{
    pthread_mutex_lock(&later.mutex);
    const bool is_any = later.waiting_count != 0;
    const uint64_t before = later.given_count;
    while (later.waiting_count && later.given_count == before)
        pthread_cond_wait(&later.changed, &later.mutex);
    pthread_mutex_unlock(&later.mutex);
    return is_any;
}

CUresult flyt_host_take(size_t bytes, unsigned flags, uint64_t context_id, int device, void **ret_address)
{
    struct flyt_range range = {.kind = FLYT_RANGE_HOST_ALLOC,
                               .bytes = bytes,
                               .flags = flags,
                               .context_id = context_id,
                               .device = device,
                               .is_managed = (flags & FLYT_HOST_MANAGED) != 0};
    const bool is_mapped = flyt_arena_is_mapped(); /* all of it, as with unified addressing, asked for or not */
    void *address = flyt_host_take_shared(bytes);
    while (!address && wait_for_given())
        address = flyt_host_take_shared(bytes);
    if (!address && is_mapped && flags & CU_MEMHOSTALLOC_DEVICEMAP && flyt_arena_is_bounded())
        return flyt_not_supported("CU_MEMHOSTALLOC_DEVICEMAP");
    if (!address && !(flags & (FLYT_HOST_MANAGED | FLYT_HOST_PHYSICAL)) &&
        (!is_mapped || (flyt_arena_is_bounded() && !(flags & FLYT_HOST_OF_POOL))))
        address = alloc_private(bytes);
    if (!address)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range.base = (uint64_t)(uintptr_t)address;
    if (flyt_range_insert(&range)) {
        give_back(address, bytes);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_address = address;
    return CUDA_SUCCESS;
}

CUresult flyt_host_alloc(size_t bytes, unsigned flags, void **ret_address)
{
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!ret_address || (bytes && flags & ~(unsigned)(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP |
                                                      CU_MEMHOSTALLOC_WRITECOMBINED)))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes && flags & CU_MEMHOSTALLOC_DEVICEMAP && !flyt_arena_is_mapped())
        return flyt_not_supported("CU_MEMHOSTALLOC_DEVICEMAP");
    result = flyt_capture_ask_unsafe();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (result)
        return result;
    if (!bytes) {
        *ret_address = NULL;
        return CUDA_SUCCESS;
    }
    result = flyt_host_take(bytes, flags, context_id, device, ret_address);
    if (!result && flags & CU_MEMHOSTALLOC_DEVICEMAP)
        flyt_host_note_reached();
    return result;
}

static bool find_given(void *address, unsigned owner, struct flyt_range *ret_range)
{
    return flyt_range_find((uint64_t)(uintptr_t)address, ret_range) && ret_range->kind == FLYT_RANGE_HOST_ALLOC &&
           ret_range->base == (uint64_t)(uintptr_t)address && (ret_range->flags & FLYT_HOST_OWNERS) == owner;
}

CUresult flyt_host_give(void *address, unsigned owner)
{
    struct flyt_range range;
    if (!find_given(address, owner, &range))
        return CUDA_ERROR_INVALID_VALUE;
    flyt_transfer_wait_range(range.base, range.bytes);
    if (!flyt_range_remove(range.base, FLYT_RANGE_HOST_ALLOC, NULL))
        return CUDA_ERROR_INVALID_VALUE; /* another thread was first */
    give_back(address, range.bytes);
    return flyt_client_broken();
}

CUresult flyt_host_give_later(void *address, unsigned owner)
{
    struct flyt_range range;
    if (!find_given(address, owner, &range) || !flyt_range_remove(range.base, FLYT_RANGE_HOST_ALLOC, NULL))
        return CUDA_ERROR_INVALID_VALUE;
    if (!queue_later(address, range.bytes)) {
        flyt_transfer_wait_range(range.base, range.bytes);
        give_back(address, range.bytes);
    }
    return flyt_client_broken();
}

CUresult flyt_host_free(void *address)
{
    CUresult result = flyt_client_enter_release();
    if (!result)
        result = flyt_capture_ask_unsafe();
    return result ? result : flyt_host_give(address, 0);
}

/* Whether the system has no MADV_POPULATE_*, which came with Linux 5.14: then it does not even take a page that is
 * there. */
static bool lacks_populate(int advice)
{
    static char page[2 * 4096] __attribute__((aligned(4096)));
    return madvise(page, 4096, advice) && errno == EINVAL;
}

/*
 * Whether the process has memory on all of these pages, and, unless they are only to be read, may write it: the pages
 * are made present, as locking them would. Nothing is locked: no device reaches them, and copies go through this
 * library.
 */
static bool is_mapped(uint64_t base, uint64_t bytes, bool is_read_only)
{
    enum { PIECE_PAGES = 4096 };
    const int advice = is_read_only ? MADV_POPULATE_READ : MADV_POPULATE_WRITE;
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), at = base / page_bytes * page_bytes;
    uint64_t end = (base + bytes - 1) / page_bytes * page_bytes + page_bytes;
    unsigned char present[PIECE_PAGES];
    if (end <= at) /* past the last address */
        return false;
    if (!madvise((void *)(uintptr_t)at, end - at, advice)) /* NOLINT */
        return true;
    if (errno != EINVAL || !lacks_populate(advice))
        return false;
    for (uint64_t piece; at < end; at += piece) {
        piece = end - at < PIECE_PAGES * page_bytes ? end - at : PIECE_PAGES * page_bytes;
        if (mincore((void *)(uintptr_t)at, piece, present)) /* NOLINT */
            return false;
    }
    return true;
}

CUresult flyt_host_register(void *address, size_t bytes, unsigned flags)
{
    enum {
        KNOWN = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY |
                CU_MEMHOSTREGISTER_READ_ONLY
    };
    struct flyt_range range = {
        .kind = FLYT_RANGE_HOST_REGISTERED, .base = (uint64_t)(uintptr_t)address, .bytes = bytes, .flags = flags};
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_capture_ask_unsafe();
    if (result)
        return result;
    if (!address || !bytes || (flags & ~(unsigned)KNOWN) || range.base + bytes < range.base ||
        flyt_window_device(range.base) >= 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (flags & (CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_IOMEMORY))
        return flyt_not_supported(flags & CU_MEMHOSTREGISTER_IOMEMORY ? "CU_MEMHOSTREGISTER_IOMEMORY"
                                                                      : "CU_MEMHOSTREGISTER_DEVICEMAP");
    result = flyt_context_get(&range.context_id, &range.device);
    if (result)
        return result;
    struct flyt_range there;
    if (!flyt_range_find(range.base, &there) &&
        !is_mapped(range.base, range.bytes, flags & CU_MEMHOSTREGISTER_READ_ONLY))
        return CUDA_ERROR_INVALID_VALUE;
    int error = flyt_range_insert(&range);
    if (error == -EEXIST) /* what was allocated as page-locked is told from what was registered */
        return flyt_range_find(range.base, &there) && there.kind == FLYT_RANGE_HOST_ALLOC
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    return error ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult flyt_host_unregister(void *address)
{
    struct flyt_range range;
    CUresult result = flyt_client_enter_release();
    if (!result)
        result = flyt_capture_ask_unsafe();
    if (result)
        return result;
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_range_find((uint64_t)(uintptr_t)address, &range))
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (range.kind != FLYT_RANGE_HOST_REGISTERED || range.base != (uint64_t)(uintptr_t)address)
        return CUDA_ERROR_INVALID_VALUE;
    flyt_transfer_wait_range(range.base, range.bytes);
    flyt_range_remove(range.base, FLYT_RANGE_HOST_REGISTERED, NULL);
    return flyt_client_broken();
}

CUresult flyt_host_flags(const void *address, unsigned *ret_flags)
{
    struct flyt_range range;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!ret_flags || !flyt_range_find((uint64_t)(uintptr_t)address, &range) || !flyt_range_is_pinned_host(&range))
        return CUDA_ERROR_INVALID_VALUE;
    *ret_flags =
        (range.flags & ~(unsigned)FLYT_HOST_OWNERS) | (flyt_host_is_mapped(range.base) ? CU_MEMHOSTALLOC_DEVICEMAP : 0);
    return CUDA_SUCCESS;
}

CUresult flyt_host_device_pointer(const void *address, unsigned flags, CUdeviceptr *ret_address)
{
    struct flyt_range range;
    uint64_t server;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (flags || !ret_address || !flyt_range_find((uint64_t)(uintptr_t)address, &range) ||
        !flyt_range_is_pinned_host(&range))
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_host_is_mapped(range.base))
        return flyt_not_supported("mapped host memory");
    flyt_host_note_reached();
    if (!flyt_host_is_shared(range.base, &server)) /* the server that the session has come to cannot lock it */
        return CUDA_ERROR_OUT_OF_MEMORY;
    *ret_address = (CUdeviceptr)(uintptr_t)address;
    return CUDA_SUCCESS;
}

bool flyt_host_is_mapped(uint64_t address)
{
    uint64_t offset_bytes;
    return flyt_arena_is_mapped() && flyt_arena_find(address, &offset_bytes);
}
