#include "cpu/client/managed/managed.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device_state.h"
#include "cpu/client/managed/hash.h"
#include "cpu/client/managed/piece.h"
#include "cpu/client/managed/track.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/pool.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"
#include "rpc/base/log.h"

/* What the program has advised of a page, a bit each. Only the host can be preferred, or access it. */
enum flyt_managed_advice { READ_MOSTLY = 1, PREFERRED_ON_HOST = 2, ACCESSED_BY_HOST = 4 };

static void release(uint64_t address);
static CUresult adopt(const struct flyt_range *range);
static void forget(uint64_t library_id, int device);

static const struct flyt_watch watch = {
    .before = flyt_managed_before,
    .before_use = flyt_managed_before_use,
    .take_device = flyt_stream_take_watched_device,
    .after = flyt_managed_after,
    .release = release,
    .adopt = adopt,
    .forget = forget,
};

void flyt_managed_init(void)
{
    flyt_watch_table = &watch;
}

static uint64_t round_up(uint64_t bytes, uint64_t quantum_bytes)
{
    return (bytes + quantum_bytes - 1) / quantum_bytes * quantum_bytes;
}

/* ---- the host's pages ---- */

static uint64_t host_page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

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

/* The books of an allocation or a variable. NULL: no memory. */
static struct flyt_managed *new_piece(const struct flyt_range *range, unsigned attach)
{
    struct flyt_managed *piece = calloc(1, sizeof *piece);
    if (!piece)
        return NULL;
    const bool is_large = range->bytes > FLYT_MANAGED_SMALL_MAX && range->kind == FLYT_RANGE_ALLOCATION;
    uint64_t synced_bytes = is_large ? round_up(range->bytes, FLYT_PAGE_BYTES) : range->bytes;
    *piece = (struct flyt_managed){.base = range->base,
                                   .bytes = range->bytes,
                                   .mapped_bytes = round_up(synced_bytes, host_page_bytes()),
                                   .device = range->device,
                                   .library_id = range->library_id,
                                   .context_id = range->context_id,
                                   .default_attach = attach,
                                   .attach = attach,
                                   .may_be_changed_here = true};
    return flyt_managed_block_init(&piece->block, range->base, synced_bytes, is_large) ? piece : free_piece(piece);
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
    if (!result)
        result = flyt_device_peers_share(range.device);
    if (result)
        return result;
    if (bytes > FLYT_MANAGED_SMALL_MAX) {
        flyt_managed_lock();
        flyt_managed_hash_prepare();
        flyt_managed_unlock();
    }
    const uint64_t quantum_bytes = bytes > FLYT_MANAGED_SMALL_MAX ? FLYT_PAGE_BYTES : host_page_bytes();
    result = flyt_memory_alloc_range(&range, quantum_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY && flyt_pool_give_back(range.device))
        result = flyt_memory_alloc_range(&range, quantum_bytes);
    if (result)
        return result;
    struct flyt_managed *piece = new_piece(&range, flags);
    const bool is_mapped = piece && map_host(piece);
    result = is_mapped ? enter_piece(piece, flyt_managed_clear_memory) : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result) {
        *ret_address = range.base;
        return CUDA_SUCCESS;
    }
    if (is_mapped)
        unmap_host(piece);
    free_piece(piece);
    flyt_range_free(range.base);
    return result;
}

/* ---- variables ---- */

/* Pages of a variable are reserved as those of any (range.h): here they become memory, for as long as it is there.
 * Others of the same library may be on the same page; only the variable's own bytes go anywhere. */
static bool open_pages(const struct flyt_managed *piece)
{
    const uint64_t first = piece->base / host_page_bytes() * host_page_bytes();
    const uint64_t end = round_up(piece->base + piece->bytes, host_page_bytes());
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

void flyt_managed_clear(uint64_t context_id, bool is_on_server)
{
    if (flyt_watch())
        end_all(0, -1, context_id);
}

/* ---- who may use it ---- */

static CUresult attach_locked(CUdeviceptr address, size_t bytes, unsigned flags, const struct flyt_stream *stream)
{
    struct flyt_managed *piece = flyt_managed_find(address);
    if (!piece || piece->base != address || (bytes && bytes != piece->bytes))
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

/* ---- advice ---- */

/* Calls fn for the pages of a range, all of which must be managed: [first, end) of each piece. */
typedef CUresult (*pages_fn)(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end);

static CUresult each_locked(uint64_t address, uint64_t bytes, pages_fn fn, void *user)
{
    CUresult result = CUDA_SUCCESS;
    if (!bytes || bytes - 1 > UINT64_MAX - address)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint64_t at = address, end = address + bytes; at < end && !result;) {
        struct flyt_managed *piece = flyt_managed_find(at);
        if (!piece)
            return CUDA_ERROR_INVALID_VALUE;
        uint64_t mapped_end = piece->base + round_up(piece->bytes, host_page_bytes());
        uint64_t last = end < mapped_end ? end : mapped_end;
        result = fn(user, piece, (at - piece->base) / host_page_bytes(),
                    (last - piece->base + host_page_bytes() - 1) / host_page_bytes());
        at = last;
    }
    return result;
}

static CUresult check_only(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    return CUDA_SUCCESS;
}

struct change {
    unsigned char set, unset;
};

static CUresult change_pages(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    const struct change *change = user;
    if (!piece->advice)
        piece->advice = calloc(1, piece->mapped_bytes / host_page_bytes());
    if (!piece->advice)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t page = first; page < end; page++)
        piece->advice[page] = (unsigned char)((piece->advice[page] & ~change->unset) | change->set);
    return CUDA_SUCCESS;
}

/* Of advice that names a processor. */
static CUresult check_location(int type, int id)
{
    switch (type) {
    case CU_MEM_LOCATION_TYPE_HOST:
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_DEVICE: /* there is none that accesses it beside the host, valid or not */
        return CUDA_ERROR_INVALID_DEVICE;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
        return flyt_not_supported("a NUMA node as the location of managed memory");
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult change_of(int advice, int type, int id, struct change *ret_change)
{
    switch (advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
        *ret_change = (struct change){.set = READ_MOSTLY};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        *ret_change = (struct change){.unset = READ_MOSTLY};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        *ret_change = (struct change){.set = PREFERRED_ON_HOST};
        return check_location(type, id);
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        *ret_change = (struct change){.unset = PREFERRED_ON_HOST};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        *ret_change = (struct change){.set = ACCESSED_BY_HOST};
        return check_location(type, id);
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        *ret_change = (struct change){.unset = ACCESSED_BY_HOST};
        return check_location(type, id);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult flyt_managed_advise(CUdeviceptr address, size_t bytes, int advice, int location_type, int location_id)
{
    struct change change = {0};
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    flyt_managed_lock();
    result = each_locked(address, bytes, check_only, NULL);
    if (!result)
        result = change_of(advice, location_type, location_id, &change);
    if (!result)
        result = each_locked(address, bytes, change_pages, &change);
    flyt_managed_unlock();
    return result;
}

CUresult flyt_managed_prefetch(CUdeviceptr address, size_t bytes, int location_type, int location_id, unsigned flags,
                               CUstream handle)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (result)
        return result;
    flyt_managed_lock();
    result = flags ? CUDA_ERROR_INVALID_VALUE : each_locked(address, bytes, check_only, NULL);
    flyt_managed_unlock();
    if (!result && location_type == CU_MEM_LOCATION_TYPE_INVALID)
        result = CUDA_ERROR_INVALID_VALUE;
    return result ? result : CUDA_ERROR_INVALID_DEVICE; /* the stream's device is none that prefetches */
}

/* What was advised of all pages of a range. */
static CUresult meet_pages(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    unsigned char *all = user;
    if (!piece->advice)
        *all = 0;
    for (uint64_t page = first; page < end && *all; page++)
        *all &= piece->advice[page];
    return CUDA_SUCCESS;
}

static CUresult put(void *ret_data, size_t data_bytes, int32_t value)
{
    if (data_bytes != sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(ret_data, &value, sizeof value);
    return CUDA_SUCCESS;
}

static CUresult put_list(void *ret_data, size_t data_bytes, bool has_host)
{
    int32_t value = has_host ? CU_DEVICE_CPU : CU_DEVICE_INVALID;
    if (!data_bytes || data_bytes % sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < data_bytes; at += sizeof value, value = CU_DEVICE_INVALID)
        memcpy((char *)ret_data + at, &value, sizeof value);
    return CUDA_SUCCESS;
}

static CUresult put_attribute(void *ret_data, size_t data_bytes, int attribute, unsigned char all)
{
    const bool is_preferred = all & PREFERRED_ON_HOST;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        return put(ret_data, data_bytes, (all & READ_MOSTLY) != 0);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
        return put(ret_data, data_bytes, is_preferred ? CU_DEVICE_CPU : CU_DEVICE_INVALID);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        return put_list(ret_data, data_bytes, all & ACCESSED_BY_HOST);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        return put(ret_data, data_bytes, is_preferred ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_INVALID);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        return put(ret_data, data_bytes, is_preferred ? CU_DEVICE_CPU : CU_DEVICE_INVALID);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION: /* nothing ever was */
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        return put(ret_data, data_bytes, CU_DEVICE_INVALID);
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        return put(ret_data, data_bytes, CU_MEM_LOCATION_TYPE_INVALID);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult flyt_managed_attribute(void *ret_data, size_t data_bytes, int attribute, CUdeviceptr address, size_t bytes)
{
    unsigned char all = READ_MOSTLY | PREFERRED_ON_HOST | ACCESSED_BY_HOST;
    CUresult result = flyt_client_enter();
    if (!result && !ret_data)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    flyt_managed_lock();
    result = each_locked(address, bytes, meet_pages, &all);
    flyt_managed_unlock();
    return result ? result : put_attribute(ret_data, data_bytes, attribute, all);
}

CUresult flyt_managed_attributes(void *const *ret_data, const size_t *data_bytes, const void *attributes, size_t count,
                                 CUdeviceptr address, size_t bytes)
{
    CUresult result = flyt_client_enter();
    if (!result && (!ret_data || !data_bytes || !attributes || !count))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < count && !result; i++) {
        int attribute;
        memcpy(&attribute, (const char *)attributes + i * sizeof attribute, sizeof attribute);
        result = flyt_managed_attribute(ret_data[i], data_bytes[i], attribute, address, bytes);
    }
    return result;
}
