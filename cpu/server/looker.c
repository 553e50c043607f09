#include "cpu/server/looker.h"

#include "cpu/server/session.h"

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

static CUresult make_memory(struct flyt_looker *looker)
{
    const uint64_t bytes = looker->bytes;
    const struct flyt_driver *driver = looker->session->driver;
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
                                    .id = looker->session->devices[looker->ordinal].cu_device};
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver->cuMemAddressReserve(&looker->address, bytes, FLYT_GRANULE_BYTES, 0, 0);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemCreate(&looker->memory, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(looker->address, bytes, 0, looker->memory, 0);
    if (result == CUDA_SUCCESS) {
        looker->has_memory = true;
        return driver->cuMemSetAccess(looker->address, bytes, &access, 1);
    }
    driver->cuMemRelease(looker->memory);
    return result;
}

CUresult flyt_looker_use(const struct flyt_session *session, unsigned ordinal, CUstream *cu_stream)
{
    const struct flyt_driver *driver = session->driver;
    const struct flyt_partition_context *partition = session->devices[ordinal].partitions;
    CUresult result = driver->cuCtxSetCurrent(partition->cu_context);
    if (result == CUDA_SUCCESS && !*cu_stream)
        result = driver->cuGreenCtxStreamCreate(cu_stream, partition->cu_green, CU_STREAM_NON_BLOCKING, 0);
    return result;
}

CUresult flyt_looker_open(struct flyt_looker *looker, struct flyt_session *session, unsigned ordinal,
                          unsigned batch_count, uint32_t pages_max, const struct flyt_page_key *key)
{
    *looker = (struct flyt_looker){.session = session,
                                   .ordinal = ordinal,
                                   .is_made = true,
                                   .bytes = memory_bytes(batch_count, pages_max),
                                   .batch_count = batch_count};
    CUresult result = flyt_looker_use(session, ordinal, &looker->cu_stream);
    if (result == CUDA_SUCCESS)
        result = make_memory(looker);
    if (result == CUDA_SUCCESS)
        result = flyt_page_hasher_init(&looker->hasher, session->driver, key, looker->address, looker->cu_stream);
    for (unsigned n = 0; n < batch_count && result == CUDA_SUCCESS; n++) {
        result = flyt_page_batch_init(&looker->batches[n], &looker->hasher, pages_max,
                                      looker->address + FLYT_PAGE_HASHER_BYTES + n * batch_bytes(pages_max));
        if (result == CUDA_SUCCESS)
            result = session->driver->cuEventCreate(&looker->ends[n], CU_EVENT_DISABLE_TIMING);
    }
    return result;
}

CUresult flyt_looker_set_key(struct flyt_looker *looker, const struct flyt_page_hash_keys *keys)
{
    CUresult result = flyt_looker_use(looker->session, looker->ordinal, &looker->cu_stream);
    if (result == CUDA_SUCCESS) /* what reads the key words has ended */
        result = looker->session->driver->cuStreamSynchronize(looker->cu_stream);
    return result == CUDA_SUCCESS ? flyt_page_hasher_set_key(&looker->hasher, keys, looker->cu_stream) : result;
}

/* Behind the event, or NULL. */
static CUresult begin(struct flyt_looker *looker, unsigned n, const struct flyt_page_range *ranges,
                      uint32_t range_count, CUevent after)
{
    const struct flyt_driver *driver = looker->session->driver;
    const unsigned sm_count = looker->session->devices[looker->ordinal].partitions->sm_count;
    CUresult result = flyt_looker_use(looker->session, looker->ordinal, &looker->cu_stream);
    if (result == CUDA_SUCCESS && after)
        result = driver->cuStreamWaitEvent(looker->cu_stream, after, CU_EVENT_WAIT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = flyt_page_batch_look(&looker->batches[n], ranges, range_count, sm_count, looker->cu_stream);
    return result == CUDA_SUCCESS ? driver->cuEventRecord(looker->ends[n], looker->cu_stream) : result;
}

CUresult flyt_looker_begin(struct flyt_looker *looker, unsigned n, const struct flyt_page_range *ranges,
                           uint32_t range_count)
{
    return begin(looker, n, ranges, range_count, NULL);
}

CUresult flyt_looker_finish(struct flyt_looker *looker, unsigned n)
{
    CUresult result = flyt_looker_use(looker->session, looker->ordinal, &looker->cu_stream);
    if (result == CUDA_SUCCESS)
        result = looker->session->driver->cuEventSynchronize(looker->ends[n]);
    return result == CUDA_SUCCESS ? flyt_page_batch_finish(&looker->batches[n]) : result;
}

CUresult flyt_looker_look(struct flyt_looker *looker, const struct flyt_page_range *ranges, uint32_t range_count,
                          CUevent after)
{
    CUresult result = begin(looker, 0, ranges, range_count, after);
    return result == CUDA_SUCCESS ? flyt_looker_finish(looker, 0) : result;
}

/* The key words go with the memory, which nobody gets as it is (scrub.h). */
void flyt_looker_close(struct flyt_looker *looker)
{
    if (!looker->cu_stream || flyt_looker_use(looker->session, looker->ordinal, &looker->cu_stream) != CUDA_SUCCESS) {
        *looker = (struct flyt_looker){0}; /* nothing was made, or nothing is there any more */
        return;
    }
    const struct flyt_driver *driver = looker->session->driver;
    if (looker->has_memory)
        driver->cuMemsetD8Async(looker->address, 0, FLYT_PAGE_HASHER_BYTES, looker->cu_stream);
    driver->cuStreamSynchronize(looker->cu_stream);
    for (unsigned n = 0; n < looker->batch_count; n++) {
        flyt_page_batch_fini(&looker->batches[n]);
        if (looker->ends[n])
            driver->cuEventDestroy(looker->ends[n]);
    }
    flyt_page_hasher_fini(&looker->hasher);
    if (looker->has_memory) {
        driver->cuMemUnmap(looker->address, looker->bytes);
        driver->cuMemRelease(looker->memory);
    }
    driver->cuStreamDestroy(looker->cu_stream);
    *looker = (struct flyt_looker){0};
}
