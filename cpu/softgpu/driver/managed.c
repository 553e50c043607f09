#include "cpu/softgpu/driver/managed.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

enum { PAGE_BYTES = 4096 };

/* What was said of a page. Devices are CUdevice numbers, CU_DEVICE_CPU or CU_DEVICE_INVALID. */
struct page {
    bool is_read_mostly;
    int preferred, prefetched;
    uint32_t accessed_by; /* bit 0: the host; bit n + 1: device n */
};

struct managed {
    struct managed *next;
    uint64_t start, bytes;
    struct flyt_soft_device *device;
    struct page pages[];
};

static struct {
    pthread_mutex_t mutex;
    struct managed *first;
} list = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- which there is ---- */

static uint64_t page_count(uint64_t bytes)
{
    return (bytes + PAGE_BYTES - 1) / PAGE_BYTES;
}

/* The last page counts as a whole. */
static struct managed *find_locked(uint64_t address)
{
    struct managed *one = list.first;

    while (one && address - one->start >= page_count(one->bytes) * PAGE_BYTES)
        one = one->next;
    return one;
}

bool flyt_soft_managed_find(uint64_t address, uint64_t *ret_start, uint64_t *ret_bytes,
                            struct flyt_soft_device **ret_device)
{
    const struct managed *found;

    pthread_mutex_lock(&list.mutex);
    found = find_locked(address);
    if (found && address - found->start < found->bytes) {
        *ret_start = found->start;
        *ret_bytes = found->bytes;
        *ret_device = found->device;
    } else {
        found = NULL;
    }
    pthread_mutex_unlock(&list.mutex);
    return found != NULL;
}

bool flyt_soft_managed_free(uint64_t start)
{
    struct managed **link = &list.first, *gone;

    pthread_mutex_lock(&list.mutex);
    while (*link && (*link)->start != start)
        link = &(*link)->next;
    gone = *link;
    if (gone)
        *link = gone->next;
    pthread_mutex_unlock(&list.mutex);
    if (gone)
        flyt_soft_pool_free(&flyt_soft_driver()->space.host, start);
    free(gone);
    return gone != NULL;
}

static struct managed *managed_new(struct flyt_soft_device *device, uint64_t bytes)
{
    struct managed *made = calloc(1, sizeof(*made) + page_count(bytes) * sizeof(made->pages[0]));

    if (!made)
        return NULL;
    made->bytes = bytes;
    made->device = device;
    for (uint64_t i = 0; i < page_count(bytes); i++)
        made->pages[i].preferred = made->pages[i].prefetched = CU_DEVICE_INVALID;
    return made;
}

FLYT_SOFT_API cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
    struct CUctx_st *ctx;
    struct managed *made;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!dptr || !bytesize || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
        return CUDA_ERROR_INVALID_VALUE;
    if (bytesize > FLYT_SOFT_HOST_BYTES)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made = managed_new(ctx->device, bytesize);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = flyt_soft_pool_alloc(&flyt_soft_driver()->space.host, page_count(bytesize) * PAGE_BYTES, PAGE_BYTES, NULL,
                             &made->start);
    if (r != CUDA_SUCCESS) {
        free(made);
        return r;
    }
    *dptr = made->start;
    pthread_mutex_lock(&list.mutex);
    made->next = list.first;
    list.first = made;
    pthread_mutex_unlock(&list.mutex);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuStreamAttachMemAsync(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct flyt_soft_device *device;
    uint64_t start, bytes;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, hStream, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST &&
        (flags != CU_MEM_ATTACH_SINGLE || !hStream || hStream == CU_STREAM_LEGACY))
        return CUDA_ERROR_INVALID_VALUE;
    if (!flyt_soft_managed_find(dptr, &start, &bytes, &device) || start != dptr || (length && length != bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}

/* ---- what was said ---- */

typedef void (*page_fn)(struct page *page, void *user);

/* Calls fn for each page of a range, all of which must be managed: else for none. */
static CUresult each_locked(uint64_t address, uint64_t bytes, page_fn fn, void *user)
{
    if (!bytes || bytes - 1 > UINT64_MAX - address)
        return CUDA_ERROR_INVALID_VALUE;
    for (int is_real = 0; is_real < 2; is_real++)
        for (uint64_t at = address / PAGE_BYTES * PAGE_BYTES; at < address + bytes; at += PAGE_BYTES) {
            struct managed *one = find_locked(at);
            if (!one)
                return CUDA_ERROR_INVALID_VALUE;
            if (is_real)
                fn(&one->pages[(at - one->start) / PAGE_BYTES], user);
        }
    return CUDA_SUCCESS;
}

static CUresult each(uint64_t address, uint64_t bytes, page_fn fn, void *user)
{
    CUresult r;

    pthread_mutex_lock(&list.mutex);
    r = each_locked(address, bytes, fn, user);
    pthread_mutex_unlock(&list.mutex);
    return r;
}

/* The number of what a location is. */
static CUresult place_of(CUmemLocation location, int *ret_place)
{
    struct flyt_soft_device *device;

    if (location.type == CU_MEM_LOCATION_TYPE_HOST) {
        *ret_place = CU_DEVICE_CPU;
        return CUDA_SUCCESS;
    }
    if (location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_place = location.id;
    return flyt_soft_device_find(location.id, &device);
}

struct saying {
    CUmem_advise advice;
    int place;
};

static void advise_page(struct page *page, void *user)
{
    const struct saying *saying = user;

    switch (saying->advice) {
    case CU_MEM_ADVISE_SET_READ_MOSTLY:
    case CU_MEM_ADVISE_UNSET_READ_MOSTLY:
        page->is_read_mostly = saying->advice == CU_MEM_ADVISE_SET_READ_MOSTLY;
        break;
    case CU_MEM_ADVISE_SET_PREFERRED_LOCATION:
        page->preferred = saying->place;
        break;
    case CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION:
        page->preferred = CU_DEVICE_INVALID;
        break;
    case CU_MEM_ADVISE_SET_ACCESSED_BY:
        page->accessed_by |= 1u << (saying->place + 1);
        break;
    case CU_MEM_ADVISE_UNSET_ACCESSED_BY:
        page->accessed_by &= ~(1u << (saying->place + 1));
        break;
    }
}

FLYT_SOFT_API cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
    struct CUctx_st *ctx;
    struct saying saying = {.advice = advice};
    bool has_place = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION || advice == CU_MEM_ADVISE_SET_ACCESSED_BY ||
                     advice == CU_MEM_ADVISE_UNSET_ACCESSED_BY;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && (advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY))
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS && has_place)
        r = place_of(location, &saying.place);
    return r == CUDA_SUCCESS ? each(devPtr, count, advise_page, &saying) : r;
}

static void prefetch_page(struct page *page, void *user)
{
    page->prefetched = *(const int *)user;
}

FLYT_SOFT_API cuMemPrefetchAsync(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags,
                                 CUstream hStream)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    int place = CU_DEVICE_INVALID;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, hStream, &stream);
    if (r == CUDA_SUCCESS && flags)
        r = CUDA_ERROR_INVALID_VALUE;
    if (r == CUDA_SUCCESS)
        r = place_of(location, &place);
    return r == CUDA_SUCCESS ? each(devPtr, count, prefetch_page, &place) : r;
}

/* What all pages have in common; a place is CU_DEVICE_INVALID where they differ. */
struct common {
    bool is_begun;
    struct page page;
};

static void meet_page(struct page *page, void *user)
{
    struct common *common = user;

    if (!common->is_begun)
        common->page = *page;
    common->is_begun = true;
    common->page.is_read_mostly &= page->is_read_mostly;
    common->page.accessed_by &= page->accessed_by;
    if (common->page.preferred != page->preferred)
        common->page.preferred = CU_DEVICE_INVALID;
    if (common->page.prefetched != page->prefetched)
        common->page.prefetched = CU_DEVICE_INVALID;
}

static int type_of(int place)
{
    return place == CU_DEVICE_INVALID ? CU_MEM_LOCATION_TYPE_INVALID
           : place == CU_DEVICE_CPU   ? CU_MEM_LOCATION_TYPE_HOST
                                      : CU_MEM_LOCATION_TYPE_DEVICE;
}

static void put_accessed_by(int *data, size_t count, uint32_t accessed_by)
{
    size_t used = 0;

    for (int place = CU_DEVICE_CPU; place < FLYT_SOFT_DEVICES_MAX && used < count; place++)
        if (accessed_by >> (place + 1) & 1)
            data[used++] = place;
    while (used < count)
        data[used++] = CU_DEVICE_INVALID;
}

FLYT_SOFT_API cuMemRangeGetAttribute(void *data, size_t dataSize, CUmem_range_attribute attribute, CUdeviceptr devPtr,
                                     size_t count)
{
    struct CUctx_st *ctx;
    struct common common = {0};
    bool is_list = attribute == CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
    int value;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!data || dataSize % sizeof(value) || !dataSize || (!is_list && dataSize != sizeof(value)))
        return CUDA_ERROR_INVALID_VALUE;
    r = each(devPtr, count, meet_page, &common);
    if (r != CUDA_SUCCESS)
        return r;
    switch (attribute) {
    case CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY:
        value = common.page.is_read_mostly;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY:
        put_accessed_by(data, dataSize / sizeof(value), common.page.accessed_by);
        return CUDA_SUCCESS;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID:
        value = common.page.preferred;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE:
        value = type_of(common.page.preferred);
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION:
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID:
        value = common.page.prefetched;
        break;
    case CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE:
        value = type_of(common.page.prefetched);
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    memcpy(data, &value, sizeof(value));
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuMemRangeGetAttributes(void **data, size_t *dataSizes, CUmem_range_attribute *attributes,
                                      size_t numAttributes, CUdeviceptr devPtr, size_t count)
{
    CUresult r = data && dataSizes && attributes && numAttributes ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;

    for (size_t i = 0; r == CUDA_SUCCESS && i < numAttributes; i++)
        r = cuMemRangeGetAttribute(data[i], dataSizes[i], attributes[i], devPtr, count);
    return r;
}
