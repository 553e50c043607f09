/* What the program says of managed memory and asks back: advice, prefetching, attributes of ranges. It moves nothing:
 * device memory is where it is, and so are pages of the region. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/capture.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device_state.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/managed/managed.h"
#include "cpu/client/managed/piece.h"

/* A processor of the program's: none, the host, and its devices from FIRST_DEVICE on. */
enum { NOWHERE = 0, ON_HOST = 1, FIRST_DEVICE = 2 };
_Static_assert(FIRST_DEVICE + FLYT_DEVICES_MAX <= 32, "a bit for each processor");

/* Of a page. */
struct flyt_managed_advice {
    bool is_read_mostly;
    unsigned char preferred, prefetched; /* processors */
    uint32_t accessed_by;                /* a bit for each */
};

/* ---- the pages of a range ---- */

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
        uint64_t mapped_end = piece->base + flyt_managed_round_up(piece->bytes, flyt_managed_page_bytes());
        uint64_t last = end < mapped_end ? end : mapped_end;
        result = fn(user, piece, (at - piece->base) / flyt_managed_page_bytes(),
                    (last - piece->base + flyt_managed_page_bytes() - 1) / flyt_managed_page_bytes());
        at = last;
    }
    return result;
}

static CUresult check_only(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    return CUDA_SUCCESS;
}

/* As NVIDIA's driver: what is of a pool has the pool's preferred location. */
static CUresult check_preferring(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    return piece->is_of_pool ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* What is noted of pages. */
struct change {
    void (*apply)(struct flyt_managed_advice *page, unsigned value);
    unsigned value;
};

static CUresult change_pages(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    const struct change *change = user;
    if (!piece->advice)
        piece->advice = calloc(piece->mapped_bytes / flyt_managed_page_bytes(), sizeof *piece->advice);
    if (!piece->advice)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t page = first; page < end; page++)
        change->apply(&piece->advice[page], change->value);
    return CUDA_SUCCESS;
}

static void set_read_mostly(struct flyt_managed_advice *page, unsigned value)
{
    page->is_read_mostly = value;
}

static void set_preferred(struct flyt_managed_advice *page, unsigned value)
{
    page->preferred = (unsigned char)value;
}

static void set_prefetched(struct flyt_managed_advice *page, unsigned value)
{
    page->prefetched = (unsigned char)value;
}

static void add_accessing(struct flyt_managed_advice *page, unsigned value)
{
    page->accessed_by |= 1u << value;
}

static void remove_accessing(struct flyt_managed_advice *page, unsigned value)
{
    page->accessed_by &= ~(1u << value);
}

/* ---- advice ---- */

/* Of advice, or a prefetch, that names a processor. A device accesses managed memory beside the host where that lies on
 * the host; else there is none that does, valid or not. */
static CUresult processor_of(int type, int id, unsigned *ret_processor)
{
    switch (type) {
    case CU_MEM_LOCATION_TYPE_HOST:
        *ret_processor = ON_HOST;
        return CUDA_SUCCESS;
    case CU_MEM_LOCATION_TYPE_DEVICE:
        if (!flyt_client.is_managed_on_host || id < 0 || id >= (int)flyt_client.device_count)
            return CUDA_ERROR_INVALID_DEVICE;
        *ret_processor = FIRST_DEVICE + (unsigned)id;
        return CUDA_SUCCESS;
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
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        *ret_change = (struct change){set_read_mostly, advice == CU_MEM_ADVISE_SET_READ_MOSTLY};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        ret_change->apply = set_preferred;
        return processor_of(type, id, &ret_change->value);
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        *ret_change = (struct change){set_preferred, NOWHERE};
        return CUDA_SUCCESS;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        ret_change->apply = advice == CU_MEM_ADVISE_SET_ACCESSED_BY ? add_accessing : remove_accessing;
        return processor_of(type, id, &ret_change->value);
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
    result = each_locked(address, bytes, advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ? check_preferring : check_only,
                         NULL);
    if (!result)
        result = change_of(advice, location_type, location_id, &change);
    if (!result)
        result = each_locked(address, bytes, change_pages, &change);
    flyt_managed_unlock();
    return result;
}

/* ---- prefetching ---- */

static CUresult prefetch_locked(CUdeviceptr address, size_t bytes, int location_type, int location_id)
{
    struct change change = {.apply = set_prefetched};
    CUresult result = location_type == CU_MEM_LOCATION_TYPE_INVALID ? CUDA_ERROR_INVALID_VALUE
                                                                    : each_locked(address, bytes, check_only, NULL);
    if (!result && !flyt_client.is_managed_on_host) /* the stream's device is none that prefetches */
        result = CUDA_ERROR_INVALID_DEVICE;
    if (!result)
        result = processor_of(location_type, location_id, &change.value);
    return result ? result : each_locked(address, bytes, change_pages, &change);
}

CUresult flyt_managed_prefetch(CUdeviceptr address, size_t bytes, int location_type, int location_id, unsigned flags,
                               CUstream handle)
{
    struct flyt_stream *stream;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!result)
        result = flags ? CUDA_ERROR_INVALID_VALUE : flyt_capture_refuse(stream);
    if (result)
        return result;
    flyt_managed_lock();
    result = prefetch_locked(address, bytes, location_type, location_id);
    flyt_managed_unlock();
    return result;
}

/* Whether the places at which locations begin to count are as CUDA wants them. */
static bool are_firsts_right(const size_t *firsts, size_t location_count, size_t count)
{
    bool are_right = firsts && location_count && location_count <= count && !firsts[0];
    for (size_t i = 1; i < location_count && are_right; i++)
        are_right = firsts[i] > firsts[i - 1] && firsts[i] < count;
    return are_right;
}

/* What is discarded stays what it was: it may be anything. */
static CUresult discard_locked(CUdeviceptr address, size_t bytes)
{
    CUresult result = each_locked(address, bytes, check_only, NULL);
    return result || flyt_client.is_managed_on_host ? result : CUDA_ERROR_INVALID_DEVICE;
}

static CUresult batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count, bool has_locations,
                      const CUmemLocation *locations, const size_t *firsts, size_t location_count,
                      unsigned long long flags, CUstream handle)
{
    struct flyt_stream *stream;
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && (!handle || handle == CU_STREAM_LEGACY))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result && (flags || !addresses || !sizes || !count ||
                    (has_locations && (!locations || !are_firsts_right(firsts, location_count, count)))))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_stream_get(handle, &stream);
    if (!result)
        result = flyt_capture_refuse(stream);
    if (result)
        return result;
    flyt_managed_lock();
    for (size_t i = 0, k = 0; i < count && !result; i++) {
        k += has_locations && k + 1 < location_count && firsts[k + 1] == i;
        result = has_locations ? prefetch_locked(addresses[i], sizes[i], (int)locations[k].type, locations[k].id)
                               : discard_locked(addresses[i], sizes[i]);
    }
    flyt_managed_unlock();
    return result;
}

CUresult flyt_managed_prefetch_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                                     const CUmemLocation *locations, const size_t *firsts, size_t location_count,
                                     unsigned long long flags, CUstream handle)
{
    return batch(addresses, sizes, count, true, locations, firsts, location_count, flags, handle);
}

CUresult flyt_managed_discard_batch(const CUdeviceptr *addresses, const size_t *sizes, size_t count,
                                    unsigned long long flags, CUstream handle)
{
    return batch(addresses, sizes, count, false, NULL, NULL, 0, flags, handle);
}

/* ---- what is remembered ---- */

/* What all pages of a range have in common. */
struct common {
    struct flyt_managed_advice advice;
    bool has_any;
};

static CUresult meet_pages(void *user, struct flyt_managed *piece, uint64_t first, uint64_t end)
{
    static const struct flyt_managed_advice nothing;
    struct common *common = user;
    struct flyt_managed_advice *all = &common->advice;
    for (uint64_t page = first; page < end; page++) {
        const struct flyt_managed_advice *one = piece->advice ? &piece->advice[page] : &nothing;
        if (!common->has_any)
            *all = *one;
        common->has_any = true;
        all->is_read_mostly &= one->is_read_mostly;
        all->accessed_by &= one->accessed_by;
        if (all->preferred != one->preferred)
            all->preferred = NOWHERE;
        if (all->prefetched != one->prefetched)
            all->prefetched = NOWHERE;
    }
    return CUDA_SUCCESS;
}

/* As CUDA numbers processors, and as it names their kinds. */
static int32_t id_of(unsigned processor)
{
    return processor == NOWHERE   ? CU_DEVICE_INVALID
           : processor == ON_HOST ? CU_DEVICE_CPU
                                  : (int32_t)(processor - FIRST_DEVICE);
}

static int32_t type_of(unsigned processor)
{
    return processor == NOWHERE   ? CU_MEM_LOCATION_TYPE_INVALID
           : processor == ON_HOST ? CU_MEM_LOCATION_TYPE_HOST
                                  : CU_MEM_LOCATION_TYPE_DEVICE;
}

static CUresult put(void *ret_data, size_t data_bytes, int32_t value)
{
    if (data_bytes != sizeof value)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(ret_data, &value, sizeof value);
    return CUDA_SUCCESS;
}

/* As many as there is room for; the rest of the room is filled with CU_DEVICE_INVALID. */
static CUresult put_list(void *ret_data, size_t data_bytes, uint32_t processors)
{
    if (!data_bytes || data_bytes % sizeof(int32_t))
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t at = 0; at < data_bytes; at += sizeof(int32_t)) {
        const unsigned processor = processors ? (unsigned)__builtin_ctz(processors) : NOWHERE;
        const int32_t value = id_of(processor);
        memcpy((char *)ret_data + at, &value, sizeof value);
        processors &= ~(1u << processor);
    }
    return CUDA_SUCCESS;
}

static CUresult put_attribute(void *ret_data, size_t data_bytes, int attribute, const struct flyt_managed_advice *all)
{
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        return put(ret_data, data_bytes, all->is_read_mostly);
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        return put_list(ret_data, data_bytes, all->accessed_by);
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        return put(ret_data, data_bytes, id_of(all->preferred));
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        return put(ret_data, data_bytes, type_of(all->preferred));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        return put(ret_data, data_bytes, id_of(all->prefetched));
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        return put(ret_data, data_bytes, type_of(all->prefetched));
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult flyt_managed_attribute(void *ret_data, size_t data_bytes, int attribute, CUdeviceptr address, size_t bytes)
{
    struct common common = {0};
    CUresult result = flyt_client_enter();
    if (!result && !ret_data)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    flyt_managed_lock();
    result = each_locked(address, bytes, meet_pages, &common);
    flyt_managed_unlock();
    return result ? result : put_attribute(ret_data, data_bytes, attribute, &common.advice);
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
