#include "cpu/server/move/in/page_reader.h"

#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"

enum { ALIGN = 256 };

static uint64_t batch_bytes(uint32_t pages_max)
{
    return (FLYT_PAGE_BATCH_BYTES(pages_max) + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t memory_bytes(unsigned batch_count, uint32_t pages_max)
{
    uint64_t bytes = FLYT_PAGE_HASHER_BYTES + batch_count * batch_bytes(pages_max);
    return (bytes + FLYT_GRANULE_BYTES - 1) / FLYT_GRANULE_BYTES * FLYT_GRANULE_BYTES;
}

_Static_assert(FLYT_PAGE_HASHER_BYTES % ALIGN == 0, "batches are behind it");

static CUresult make_memory(struct flyt_page_reader *page_reader)
{
    const uint64_t bytes = page_reader->bytes;
    const struct flyt_driver *driver = page_reader->session->driver;
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                    .id = page_reader->session->devices[page_reader->ordinal].cu_device};
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver->cuMemAddressReserve(&page_reader->address, bytes, FLYT_GRANULE_BYTES, 0, 0);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemCreate(&page_reader->memory, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(page_reader->address, bytes, 0, page_reader->memory, 0);
    if (result == CUDA_SUCCESS) {
        page_reader->has_memory = true;
        return driver->cuMemSetAccess(page_reader->address, bytes, &access, 1);
    }
    driver->cuMemRelease(page_reader->memory);
    return result;
}

CUresult flyt_page_reader_use(const struct flyt_session *session, unsigned ordinal, CUstream *cu_stream)
{
    const struct flyt_driver *driver = session->driver;
    const struct flyt_partition_context *partition = session->devices[ordinal].partitions;
    CUresult result = driver->cuCtxSetCurrent(partition->cu_context);
    if (result == CUDA_SUCCESS && !*cu_stream)
        result = driver->cuGreenCtxStreamCreate(cu_stream, partition->cu_green, CU_STREAM_NON_BLOCKING, 0);
    return result;
}

CUresult flyt_page_reader_open(struct flyt_page_reader *page_reader, struct flyt_session *session, unsigned ordinal,
                               unsigned batch_count, uint32_t pages_max, const struct flyt_page_key *key)
{
    *page_reader = (struct flyt_page_reader){.session = session,
                                             .ordinal = ordinal,
                                             .is_made = true,
                                             .bytes = memory_bytes(batch_count, pages_max),
                                             .batch_count = batch_count};
    CUresult result = flyt_page_reader_use(session, ordinal, &page_reader->cu_stream);
    if (result == CUDA_SUCCESS)
        result = make_memory(page_reader);
    if (result == CUDA_SUCCESS)
        result = flyt_page_hasher_init(&page_reader->hasher, session->driver, session->devices[ordinal].cu_device, key,
                                       page_reader->address, page_reader->cu_stream);
    for (unsigned n = 0; n < batch_count && result == CUDA_SUCCESS; n++) {
        result = flyt_page_batch_init(&page_reader->batches[n], &page_reader->hasher, pages_max,
                                      page_reader->address + FLYT_PAGE_HASHER_BYTES + n * batch_bytes(pages_max));
        if (result == CUDA_SUCCESS)
            result = session->driver->cuEventCreate(&page_reader->ends[n], CU_EVENT_DISABLE_TIMING);
    }
    return result;
}

CUresult flyt_page_reader_set_key(struct flyt_page_reader *page_reader, const struct flyt_page_hash_keys *keys)
{
    CUresult result = flyt_page_reader_use(page_reader->session, page_reader->ordinal, &page_reader->cu_stream);
    if (result == CUDA_SUCCESS) /* what reads the key words has ended */
        result = page_reader->session->driver->cuStreamSynchronize(page_reader->cu_stream);
    return result == CUDA_SUCCESS ? flyt_page_hasher_set_key(&page_reader->hasher, keys, page_reader->cu_stream)
                                  : result;
}

/* Behind the event, or NULL. */
static CUresult begin(struct flyt_page_reader *page_reader, unsigned n, const struct flyt_page_range *ranges,
                      uint32_t range_count, CUevent after)
{
    const struct flyt_driver *driver = page_reader->session->driver;
    const unsigned sm_count = page_reader->session->devices[page_reader->ordinal].partitions->sm_count;
    CUresult result = flyt_page_reader_use(page_reader->session, page_reader->ordinal, &page_reader->cu_stream);
    if (result == CUDA_SUCCESS && after)
        result = driver->cuStreamWaitEvent(page_reader->cu_stream, after, CU_EVENT_WAIT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = flyt_page_batch_look(&page_reader->batches[n], ranges, range_count, sm_count, page_reader->cu_stream);
    return result == CUDA_SUCCESS ? driver->cuEventRecord(page_reader->ends[n], page_reader->cu_stream) : result;
}

CUresult flyt_page_reader_begin(struct flyt_page_reader *page_reader, unsigned n, const struct flyt_page_range *ranges,
                                uint32_t range_count)
{
    return begin(page_reader, n, ranges, range_count, NULL);
}

CUresult flyt_page_reader_finish(struct flyt_page_reader *page_reader, unsigned n)
{
    CUresult result = flyt_page_reader_use(page_reader->session, page_reader->ordinal, &page_reader->cu_stream);
    if (result == CUDA_SUCCESS)
        result = page_reader->session->driver->cuEventSynchronize(page_reader->ends[n]);
    return result == CUDA_SUCCESS ? flyt_page_batch_finish(&page_reader->batches[n]) : result;
}

CUresult flyt_page_reader_look(struct flyt_page_reader *page_reader, const struct flyt_page_range *ranges,
                               uint32_t range_count, CUevent after)
{
    CUresult result = begin(page_reader, 0, ranges, range_count, after);
    return result == CUDA_SUCCESS ? flyt_page_reader_finish(page_reader, 0) : result;
}

/* The key words go with the memory, which nobody gets as it is (scrub.h). */
void flyt_page_reader_close(struct flyt_page_reader *page_reader)
{
    if (!page_reader->cu_stream ||
        flyt_page_reader_use(page_reader->session, page_reader->ordinal, &page_reader->cu_stream) != CUDA_SUCCESS) {
        *page_reader = (struct flyt_page_reader){0}; /* nothing was made, or nothing is there any more */
        return;
    }
    const struct flyt_driver *driver = page_reader->session->driver;
    if (page_reader->has_memory)
        driver->cuMemsetD8Async(page_reader->address, 0, FLYT_PAGE_HASHER_BYTES, page_reader->cu_stream);
    driver->cuStreamSynchronize(page_reader->cu_stream);
    for (unsigned n = 0; n < page_reader->batch_count; n++) {
        flyt_page_batch_fini(&page_reader->batches[n]);
        if (page_reader->ends[n])
            driver->cuEventDestroy(page_reader->ends[n]);
    }
    flyt_page_hasher_fini(&page_reader->hasher);
    if (page_reader->has_memory) {
        driver->cuMemUnmap(page_reader->address, page_reader->bytes);
        driver->cuMemRelease(page_reader->memory);
    }
    driver->cuStreamDestroy(page_reader->cu_stream);
    *page_reader = (struct flyt_page_reader){0};
}
