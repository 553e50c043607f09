#include "cpu/server/page_hasher.h"

#include <assert.h>
#include <string.h>

#include "flyt_page_hash_ptx.h"

/*
 * Blocks of the kernel fill an SM each. Some more than SMs, so that SMs that have other work, too, take fewer of them;
 * but each begins with reading all key words, which must be little beside its pages.
 */
enum { THREADS = 512, BLOCKS_PER_SM = 4, BLOCK_PAGES = 32 };

/* What the CPU takes at one time. */
enum { NATIVE_PAGES = 16 };

_Static_assert(sizeof(struct flyt_page_hash_keys) <= FLYT_PAGE_HASHER_BYTES, "key words");

/* As the kernel reads it: the number of the first page; behind the last entry that of all pages. */
struct entry {
    uint64_t address, first_page;
};

static CUresult load_kernel(struct flyt_page_hasher *hasher)
{
    const struct flyt_driver *driver = hasher->driver;
    CUlibrary library;
    CUmodule module;
    CUresult result = driver->cuLibraryLoadData(&library, flyt_page_hash_ptx, NULL, NULL, 0, NULL, NULL, 0);
    if (result != CUDA_SUCCESS)
        return result;
    hasher->cu_library = library;
    /* Compiles and places it now. */
    result = driver->cuLibraryGetModule(&module, library);
    return result == CUDA_SUCCESS ? driver->cuLibraryEnumerateKernels(&hasher->cu_kernel, 1, library) : result;
}

CUresult flyt_page_hasher_init(struct flyt_page_hasher *hasher, const struct flyt_driver *driver,
                               const struct flyt_page_key *key, uint64_t device_memory, CUstream cu_stream)
{
    void *memory;
    *hasher = (struct flyt_page_hasher){.driver = driver, .is_native = driver->is_soft, .device_keys = device_memory};
    CUresult result = driver->cuMemHostAlloc(&memory, sizeof *hasher->keys, CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS)
        return result;
    hasher->keys = memory;
    flyt_page_hash_prepare(key, hasher->keys);
    if (hasher->is_native) {
        result = driver->cuMemHostAlloc(&memory, NATIVE_PAGES * FLYT_PAGE_BYTES, CU_MEMHOSTALLOC_PORTABLE);
        if (result == CUDA_SUCCESS)
            hasher->pages = memory;
        return result;
    }
    result = load_kernel(hasher);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyHtoDAsync(device_memory, hasher->keys, sizeof *hasher->keys, cu_stream);
    return result;
}

void flyt_page_hasher_fini(struct flyt_page_hasher *hasher)
{
    if (hasher->cu_library)
        hasher->driver->cuLibraryUnload(hasher->cu_library);
    if (hasher->keys) {
        explicit_bzero(hasher->keys, sizeof *hasher->keys);
        hasher->driver->cuMemFreeHost(hasher->keys);
    }
    if (hasher->pages)
        hasher->driver->cuMemFreeHost(hasher->pages);
    *hasher = (struct flyt_page_hasher){0};
}

struct flyt_page_hash flyt_page_hasher_zero(const struct flyt_page_hasher *hasher)
{
    static const unsigned char page[FLYT_PAGE_BYTES];
    struct flyt_page_hash hash;
    flyt_page_hash(hasher->keys, page, &hash, NULL);
    return hash;
}

/* ---- where things are, in device memory and in the results ---- */

static uint64_t flags_offset(const struct flyt_page_batch *batch)
{
    return (uint64_t)batch->pages_max * sizeof(struct flyt_page_hash);
}

static uint64_t entries_offset(const struct flyt_page_batch *batch)
{
    return (flags_offset(batch) + batch->pages_max + 15) / 16 * 16;
}

static struct flyt_page_hash *hashes_of(const struct flyt_page_batch *batch)
{
    return batch->results;
}

static unsigned char *flags_of(const struct flyt_page_batch *batch)
{
    return (unsigned char *)batch->results + flags_offset(batch);
}

static struct entry *entries_of(const struct flyt_page_batch *batch)
{
    return (struct entry *)((unsigned char *)batch->results + entries_offset(batch));
}

CUresult flyt_page_batch_init(struct flyt_page_batch *batch, struct flyt_page_hasher *hasher, uint32_t pages_max,
                              uint32_t ranges_max, uint64_t device_memory)
{
    *batch = (struct flyt_page_batch){
        .hasher = hasher, .device_memory = device_memory, .pages_max = pages_max, .ranges_max = ranges_max};
    if (!pages_max || pages_max > FLYT_PAGE_BATCH_PAGES_MAX || !ranges_max || ranges_max > FLYT_PAGE_BATCH_RANGES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = hasher->driver->cuMemHostAlloc(&batch->results, FLYT_PAGE_BATCH_BYTES(pages_max, ranges_max),
                                                     CU_MEMHOSTALLOC_PORTABLE);
    if (result != CUDA_SUCCESS)
        batch->results = NULL;
    return result;
}

void flyt_page_batch_fini(struct flyt_page_batch *batch)
{
    if (batch->results)
        batch->hasher->driver->cuMemFreeHost(batch->results);
    *batch = (struct flyt_page_batch){0};
}

/* Writes the entries. CUDA_SUCCESS, or CUDA_ERROR_INVALID_VALUE. */
static CUresult write_entries(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count)
{
    struct entry *entries = entries_of(batch);
    uint64_t pages_count = 0;
    if (range_count > batch->ranges_max)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < range_count; i++) {
        if (ranges[i].address % FLYT_PAGE_BYTES || ranges[i].pages_count > batch->pages_max - pages_count)
            return CUDA_ERROR_INVALID_VALUE;
        entries[i] = (struct entry){ranges[i].address, pages_count};
        pages_count += ranges[i].pages_count;
    }
    entries[range_count] = (struct entry){0, pages_count};
    batch->pages_count = (uint32_t)pages_count;
    return pages_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(struct flyt_page_batch *batch, unsigned sms_count, CUstream cu_stream)
{
    uint64_t hashes = batch->device_memory, are_zero = hashes + flags_offset(batch);
    uint64_t entries = batch->device_memory + entries_offset(batch);
    void *params[] = {&batch->hasher->device_keys, &entries, &hashes, &are_zero, &batch->copies, &batch->pages_count};
    unsigned blocks = batch->pages_count / BLOCK_PAGES;
    if (blocks < sms_count)
        blocks = sms_count;
    if (blocks > sms_count * BLOCKS_PER_SM)
        blocks = sms_count * BLOCKS_PER_SM;
    if (blocks > batch->pages_count)
        blocks = batch->pages_count;
    return batch->hasher->driver->cuLaunchKernel((CUfunction)batch->hasher->cu_kernel, blocks, 1, 1, THREADS, 1, 1, 0,
                                                 cu_stream, params, NULL);
}

/* The kernel between its input and its results. */
static CUresult submit_kernel(struct flyt_page_batch *batch, uint32_t range_count, unsigned sms_count)
{
    const struct flyt_driver *driver = batch->hasher->driver;
    uint64_t hashes = batch->device_memory, flags = hashes + flags_offset(batch);
    CUresult result = driver->cuMemcpyHtoDAsync(batch->device_memory + entries_offset(batch), entries_of(batch),
                                                (range_count + 1) * sizeof(struct entry), batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = launch(batch, sms_count, batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoHAsync(hashes_of(batch), hashes, batch->pages_count * sizeof *hashes_of(batch),
                                           batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoHAsync(flags_of(batch), flags, batch->pages_count, batch->cu_stream);
    return result;
}

/* The copies, if any: hashed when it is finished. */
static CUresult submit_native(struct flyt_page_batch *batch, uint32_t range_count)
{
    const struct entry *entries = entries_of(batch);
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; batch->copies && i < range_count && result == CUDA_SUCCESS; i++) {
        uint64_t first = entries[i].first_page, bytes = (entries[i + 1].first_page - first) * FLYT_PAGE_BYTES;
        if (bytes)
            result = batch->hasher->driver->cuMemcpyDtoDAsync(batch->copies + first * FLYT_PAGE_BYTES,
                                                              entries[i].address, bytes, batch->cu_stream);
    }
    return result;
}

static CUresult submit(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                       uint64_t copies, unsigned sms_count, CUstream cu_stream)
{
    batch->is_submitted = batch->is_finished = false;
    batch->copies = copies;
    batch->cu_stream = cu_stream;
    if (copies % 16 || !sms_count || sms_count > UINT16_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = write_entries(batch, ranges, range_count);
    if (result == CUDA_SUCCESS)
        result =
            batch->hasher->is_native ? submit_native(batch, range_count) : submit_kernel(batch, range_count, sms_count);
    batch->is_submitted = result == CUDA_SUCCESS;
    return result;
}

CUresult flyt_page_batch_look(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                              unsigned sms_count, CUstream cu_stream)
{
    return submit(batch, ranges, range_count, 0, sms_count, cu_stream);
}

CUresult flyt_page_batch_copy(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                              uint64_t copies, unsigned sms_count, CUstream cu_stream)
{
    if (!copies)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(batch, ranges, range_count, copies, sms_count, cu_stream);
}

/* Hashes neighbouring pages at the address, of which the first has number n in the batch. */
static CUresult hash_natively(struct flyt_page_batch *batch, uint64_t address, uint64_t pages_count, uint64_t n)
{
    const struct flyt_page_hasher *hasher = batch->hasher;
    CUresult result = CUDA_SUCCESS;
    for (uint64_t done = 0, count; done < pages_count && result == CUDA_SUCCESS; done += count) {
        count = pages_count - done < NATIVE_PAGES ? pages_count - done : NATIVE_PAGES;
        result = hasher->driver->cuMemcpyDtoHAsync(hasher->pages, address + done * FLYT_PAGE_BYTES,
                                                   count * FLYT_PAGE_BYTES, batch->cu_stream);
        if (result == CUDA_SUCCESS)
            result = hasher->driver->cuStreamSynchronize(batch->cu_stream);
        for (uint64_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
            bool is_zero;
            flyt_page_hash(hasher->keys, hasher->pages + i * FLYT_PAGE_BYTES, &hashes_of(batch)[n + done + i],
                           &is_zero);
            flags_of(batch)[n + done + i] = is_zero;
        }
    }
    return result;
}

CUresult flyt_page_batch_finish(struct flyt_page_batch *batch)
{
    const struct entry *entries = entries_of(batch);
    CUresult result = CUDA_SUCCESS;
    assert(batch->is_submitted);
    if (batch->hasher->is_native && batch->copies)
        result = hash_natively(batch, batch->copies, batch->pages_count, 0);
    else if (batch->hasher->is_native)
        for (uint64_t i = 0; entries[i].first_page < batch->pages_count && result == CUDA_SUCCESS; i++)
            result = hash_natively(batch, entries[i].address, entries[i + 1].first_page - entries[i].first_page,
                                   entries[i].first_page);
    batch->is_finished = result == CUDA_SUCCESS;
    return result;
}

static struct flyt_page_hash result_of(const struct flyt_page_batch *batch, uint32_t n, bool *ret_is_zero)
{
    assert(batch->is_finished && n < batch->pages_count);
    *ret_is_zero = flags_of(batch)[n];
    return hashes_of(batch)[n];
}

struct flyt_page_seen flyt_page_batch_seen(const struct flyt_page_batch *batch, uint32_t n)
{
    struct flyt_page_seen seen;
    assert(!batch->copies);
    seen.hash = result_of(batch, n, &seen.is_zero);
    return seen;
}

struct flyt_page_sent flyt_page_batch_sent(const struct flyt_page_batch *batch, uint32_t n)
{
    struct flyt_page_sent sent;
    assert(batch->copies);
    sent.hash = result_of(batch, n, &sent.is_zero);
    return sent;
}
