#include "cpu/client/managed/managed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device_state.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/managed/hash.h"
#include "cpu/client/managed/piece.h"
#include "cpu/client/managed/track.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "rpc/base/log.h"

static void release(uint64_t address);
static bool free_on_host(uint64_t address, CUresult *ret_result);
static CUresult take(uint64_t context_id, int device, uint64_t bytes, CUdeviceptr *ret_address);
static CUresult give(uint64_t address, bool is_later);
static CUresult adopt(const struct flyt_range *range);
static void forget(uint64_t library_id, int device);

static const struct flyt_watch watch = {
    .before = flyt_managed_before,
    .before_use = flyt_managed_before_use,
    .take_device = flyt_stream_take_watched_device,
    .after = flyt_managed_after,
    .release = release,
    .free = free_on_host,
    .take = take,
    .give = give,
    .adopt = adopt,
    .forget = forget,
};

void flyt_managed_init(void)
{
    flyt_watch_table = &watch;
}

/* ---- the host's pages ---- */

static void *host_of(const struct flyt_managed *piece)
{
    return (void *)(uintptr_t)piece->base; /* NOLINT: the same place as on the GPU is the point */
}

/* In the reserved window, which is this library's; else where nothing else is. False: that is said. */
static bool map_host(struct flyt_managed *piece)
{
    int fixed = flyt_client.is_window_reserved ? MAP_FIXED : MAP_FIXED_NOREPLACE;
    void *got = mmap(host_of(piece), piece->mapped_bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | fixed, -1, 0);
    if (got == host_of(piece)) {
        piece->is_tracked =
            flyt_managed_block_is_large(&piece->block) && flyt_managed_track(piece->base, piece->mapped_bytes);
        return true;
    }
    if (got != MAP_FAILED) { /* a kernel before 4.17 took the address for a hint */
        munmap(got, piece->mapped_bytes);
        errno = EEXIST;
    }
    flyt_warn("managed memory has no place in the program address=%#llx bytes=%llu: %m",
              (unsigned long long)piece->base, (unsigned long long)piece->mapped_bytes);
    return false;
}

static void unmap_host(const struct flyt_managed *piece)
{
    void *got = MAP_FAILED;
    if (!flyt_client.is_window_reserved)
        got = munmap(host_of(piece), piece->mapped_bytes) ? MAP_FAILED : host_of(piece);
    else
        got = mmap(host_of(piece), piece->mapped_bytes, PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (got == MAP_FAILED)
        flyt_warn("managed memory is not unmapped bytes=%llu: %m", (unsigned long long)piece->mapped_bytes);
}

/* ---- allocating ---- */

static struct flyt_managed *free_piece(struct flyt_managed *piece)
{
    if (piece) {
        flyt_managed_block_fini(&piece->block);
        free(piece->advice);
    }
    free(piece);
    return NULL;
}

/* What every piece has. NULL: no memory. */
static struct flyt_managed *new_entry(const struct flyt_range *range, uint64_t bytes, unsigned attach)
{
    struct flyt_managed *piece = calloc(1, sizeof *piece);
    if (piece)
        *piece = (struct flyt_managed){.base = range->base,
                                       .bytes = range->bytes,
                                       .mapped_bytes = flyt_managed_round_up(bytes, flyt_managed_page_bytes()),
                                       .device = range->device,
                                       .library_id = range->library_id,
                                       .context_id = range->context_id,
                                       .default_attach = attach,
                                       .attach = attach,
                                       .may_be_changed_here = true};
    return piece;
}

/* The books of device memory: an allocation or a variable. NULL: no memory. */
static struct flyt_managed *new_piece(const struct flyt_range *range, unsigned attach)
{
    const bool is_large = range->bytes > FLYT_MANAGED_SMALL_MAX && range->kind == FLYT_RANGE_ALLOCATION;
    uint64_t synced_bytes = is_large ? flyt_managed_round_up(range->bytes, FLYT_PAGE_BYTES) : range->bytes;
    struct flyt_managed *piece = new_entry(range, synced_bytes, attach);
    return piece && flyt_managed_block_init(&piece->block, range->base, synced_bytes, is_large) ? piece
                                                                                                : free_piece(piece);
}

/* The host has its pages. `fill` gives both sides the same bytes. */
static CUresult enter_piece(struct flyt_managed *piece, CUresult (*fill)(struct flyt_managed *))
{
    flyt_managed_lock();
    CUresult result = fill(piece);
    if (!result && !flyt_managed_insert(piece))
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        flyt_managed_outdate();
        atomic_store(&flyt_watch_installed, &watch);
    }
    flyt_managed_unlock();
    return result;
}

static CUresult alloc_on_device(struct flyt_range *range, unsigned flags, CUdeviceptr *ret_address)
{
    CUresult result = flyt_device_peers_share(range->device);
    if (result)
        return result;
    if (range->bytes > FLYT_MANAGED_SMALL_MAX) {
        flyt_managed_lock();
        flyt_managed_hash_prepare();
        flyt_managed_unlock();
    }
    const uint64_t quantum_bytes = range->bytes > FLYT_MANAGED_SMALL_MAX ? FLYT_PAGE_BYTES : flyt_managed_page_bytes();
    result = flyt_memory_alloc_range(range, quantum_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && flyt_pool_give_back(range->device))
        result = flyt_memory_alloc_range(range, quantum_bytes);
    if (result)
        return result;
    struct flyt_managed *piece = new_piece(range, flags);
    const bool is_mapped = piece && map_host(piece);
    result = is_mapped ? enter_piece(piece, flyt_managed_clear_memory) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        *ret_address = range->base;
        return CUDA_SUCCESS;
    }
    if (is_mapped)
        unmap_host(piece);
    free_piece(piece);
    flyt_range_free(range->base);
    return result;
}

/* Pages of the region, which both sides have: nothing of it ever travels. */
static CUresult alloc_on_host(const struct flyt_range *range, unsigned flags, CUdeviceptr *ret_address)
{
    struct flyt_range there = *range;
    void *address;
    if (!flyt_arena_is_mapped())
        return flyt_not_supported("managed memory that lies on the host, at a server that shares none with it,");
    CUresult result = flyt_host_take(range->bytes, FLYT_HOST_MANAGED, range->context_id, range->device, &address);
    if (result)
        return result;
    flyt_host_note_reached(); /* no move takes the session to a server without the region from here on */
    if (!flyt_arena_is_mapped()) {
        flyt_host_give(address, FLYT_HOST_MANAGED);
        return flyt_not_supported("managed memory that lies on the host, at a server that shares none with it,");
    }
    there.base = (uint64_t)(uintptr_t)address;
    struct flyt_managed *piece = new_entry(&there, there.bytes, flags);
    flyt_managed_lock();
    const bool is_entered = piece && flyt_managed_insert(piece);
    flyt_managed_unlock();
    if (!is_entered) {
        free_piece(piece);
        flyt_host_give(address, FLYT_HOST_MANAGED);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_address = there.base;
    return CUDA_SUCCESS;
}

static CUresult alloc(struct flyt_range *range, unsigned flags, CUdeviceptr *ret_address)
{
    return flyt_client.is_managed_on_host ? alloc_on_host(range, flags, ret_address)
                                          : alloc_on_device(range, flags, ret_address);
}

CUresult flyt_managed_alloc(size_t bytes, unsigned flags, CUdeviceptr *ret_address)
{
    struct flyt_range range = {.kind = FLYT_RANGE_ALLOCATION, .bytes = bytes, .is_managed = true};
    CUresult result = flyt_client_enter();
    if (!result && (!ret_address || (bytes && flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_context_get(&range.context_id, &range.device);
    if (!result && !bytes) {
        *ret_address = 0;
        return CUDA_SUCCESS;
    }
    return result ? result : alloc(&range, flags, ret_address);
}

static CUresult take(uint64_t context_id, int device, uint64_t bytes, CUdeviceptr *ret_address)
{
    struct flyt_range range = {
        .kind = FLYT_RANGE_ALLOCATION, .bytes = bytes, .context_id = context_id, .device = device, .is_managed = true};
    CUresult result = alloc(&range, CU_MEM_ATTACH_GLOBAL, ret_address);
    if (result)
        return result;
    flyt_managed_lock();
    struct flyt_managed *piece = flyt_managed_find(*ret_address);
    if (piece) /* else another thread has reset the device meanwhile */
        piece->is_of_pool = true;
    flyt_managed_unlock();
    return CUDA_SUCCESS;
}

/* ---- variables ---- */

/* Pages of a variable are reserved as those of any (range.h): here they become memory, for as long as it is there.
 * Others of the same library may be on the same page; only the variable's own bytes go anywhere. */
static bool open_pages(const struct flyt_managed *piece)
{
    const uint64_t first = piece->base / flyt_managed_page_bytes() * flyt_managed_page_bytes();
    const uint64_t end = flyt_managed_round_up(piece->base + piece->bytes, flyt_managed_page_bytes());
    if (!mprotect((void *)(uintptr_t)first, end - first, PROT_READ | PROT_WRITE)) /* NOLINT */
        return true;
    flyt_warn("a managed variable has no place in the program address=%#llx bytes=%llu: %m",
              (unsigned long long)piece->base, (unsigned long long)piece->bytes);
    return false;
}

/* What is there on the GPU, which the host may have the remains of another variable for. */
static CUresult fetch_variable(struct flyt_managed *piece)
{
    memset(host_of(piece), 0, piece->bytes);
    piece->may_be_changed_there = true; /* by work that is under way */
    return flyt_managed_fetch(piece);
}

static CUresult adopt(const struct flyt_range *range)
{
    struct flyt_managed *piece = new_piece(range, CU_MEM_ATTACH_GLOBAL);
    if (!piece)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = open_pages(piece) ? enter_piece(piece, fetch_variable) : CUDA_ERROR_MAP_FAILED;
    if (result)
        free_piece(piece);
    return result;
}

/* ---- the end ---- */

static void end_locked(struct flyt_managed *piece)
{
    flyt_managed_remove(piece);
    if (!piece->library_id) /* a variable's go with its range */
        unmap_host(piece);
    free_piece(piece);
}

static void release(uint64_t address)
{
    flyt_managed_lock();
    struct flyt_managed *piece = flyt_managed_find(address);
    if (piece && piece->base == address && !piece->library_id)
        end_locked(piece);
    flyt_managed_unlock();
}

/* False: none begins there. */
static bool forget_on_host(uint64_t address)
{
    flyt_managed_lock();
    struct flyt_managed *piece = flyt_managed_find(address);
    const bool is_there = piece && piece->base == address;
    if (is_there) {
        flyt_managed_remove(piece);
        free_piece(piece);
    }
    flyt_managed_unlock();
    return is_there;
}

/* Whatever becomes of it, the program has it no more. */
static bool free_on_host(uint64_t address, CUresult *ret_result)
{
    const bool is_there = forget_on_host(address);
    if (is_there)
        *ret_result = flyt_host_give((void *)(uintptr_t)address, FLYT_HOST_MANAGED); /* NOLINT: the program's own */
    return is_there;
}

static CUresult give(uint64_t address, bool is_later)
{
    void *host = (void *)(uintptr_t)address; /* NOLINT: the program's own */
    if (flyt_client.is_managed_on_host && forget_on_host(address))
        return is_later ? flyt_host_give_later(host, FLYT_HOST_MANAGED) : flyt_host_give(host, FLYT_HOST_MANAGED);
    release(address);
    return flyt_range_free(address);
}

/* Those of a library on a device (−1: on all), or, of library 0, those of a context. */
static void end_all(uint64_t library_id, int device, uint64_t context_id)
{
    struct flyt_managed *piece, *next;
    flyt_managed_lock();
    for (piece = flyt_managed_from(0); piece; piece = next) {
        next = flyt_managed_from(piece->base + 1);
        if (piece->library_id == library_id && (device < 0 || piece->device == device) &&
            (library_id || piece->context_id == context_id))
            end_locked(piece);
    }
    flyt_managed_unlock();
}

static void forget(uint64_t library_id, int device)
{
    end_all(library_id, device, 0);
}

void flyt_managed_after_reset(int device)
{
    flyt_managed_lock();
    flyt_range_clear(flyt_inner_context_id(device), false);
    flyt_stream_clear(flyt_inner_context_id(device), false);
    flyt_managed_unlock();
}

/* The first of a context's; 0: there is none. */
static uint64_t first_of(uint64_t context_id)
{
    flyt_managed_lock();
    struct flyt_managed *piece = flyt_managed_from(0);
    while (piece && piece->context_id != context_id)
        piece = flyt_managed_from(piece->base + 1);
    const uint64_t base = piece ? piece->base : 0;
    flyt_managed_unlock();
    return base;
}

void flyt_managed_before_reset(int device, uint64_t context_id)
{
    CUresult ignored; /* what the server does not let go of it keeps (free_shared in host.c) */
    uint64_t base;
    while (flyt_client.is_managed_on_host && (base = first_of(context_id)))
        free_on_host(base, &ignored);
}

void flyt_managed_clear(uint64_t context_id, bool is_on_server)
{
    if (flyt_watch())
        end_all(0, -1, context_id);
    if (is_on_server)
        flyt_managed_before_reset(-1, context_id);
}

/* ---- who may use it ---- */

static CUresult attach_locked(CUdeviceptr address, size_t bytes, unsigned flags, const struct flyt_stream *stream)
{
    struct flyt_managed *piece = flyt_managed_find(address);
    if (!piece || piece->base != address || piece->is_of_pool || (bytes && bytes != piece->bytes))
        return CUDA_ERROR_INVALID_VALUE;
    piece->attach = flags;
    if (flags == CU_MEM_ATTACH_SINGLE) {
        piece->stream_id = stream->stream_id;
        piece->stream_number = stream->number;
    }
    piece->may_be_changed_here = true;
    flyt_managed_outdate();
    return CUDA_SUCCESS;
}

CUresult flyt_managed_attach(CUstream handle, CUdeviceptr address, size_t bytes, unsigned flags)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    bool is_known = flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST || flags == CU_MEM_ATTACH_SINGLE;
    if (!result && (!is_known || (flags == CU_MEM_ATTACH_SINGLE && stream->is_legacy)))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_capture_refuse(stream);
    /* It takes effect behind the stream's work: the host sees what that has changed. */
    if (!result && flyt_watch() && atomic_load(&stream->is_watched))
        result = flyt_stream_wait(stream);
    if (result)
        return result;
    flyt_managed_lock();
    result = attach_locked(address, bytes, flags, stream);
    flyt_managed_unlock();
    return result;
}
