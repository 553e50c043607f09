#include "cpu/server/move/common/page_hasher.h"

#include <assert.h>
#include <string.h>

#include "cpu/server/move/common/own_kernel.h"

/*
 * Blocks of the kernel fill an SM each. Some more than SMs, so that SMs that have other work, too, take fewer of them;
 * but each begins with reading all key words, which must be little beside its pages.
 */
enum { THREADS = 512, BLOCKS_PER_SM = 4, BLOCK_PAGES = 32 };

/* What the CPU takes at one time. */
enum { NATIVE_PAGES = 16 };

_Static_assert(sizeof(struct flyt_page_hash_keys) <= FLYT_PAGE_HASHER_BYTES, "key words");

static CUresult load_kernel(struct flyt_page_hasher *hasher, CUdevice cu_device)
{
    CUresult result = flyt_own_kernel_load(hasher->driver, cu_device, FLYT_OWN_PAGE_HASH, &hasher->cu_library);
    return result == CUDA_SUCCESS ? hasher->driver->cuLibraryEnumerateKernels(&hasher->cu_kernel, 1, hasher->cu_library)
                                  : result;
}

static CUresult copy_keys(const struct flyt_page_hasher *hasher, CUstream cu_stream)
{
    return hasher->driver->cuMemcpyHtoDAsync(hasher->device_keys, hasher->keys, sizeof *hasher->keys, cu_stream);
}

CUresult flyt_page_hasher_init(struct flyt_page_hasher *hasher, const struct flyt_driver *driver, CUdevice cu_device,
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
    result = load_kernel(hasher, cu_device);
    return result == CUDA_SUCCESS ? copy_keys(hasher, cu_stream) : result;
}

CUresult flyt_page_hasher_set_key(struct flyt_page_hasher *hasher, const struct flyt_page_hash_keys *keys,
                                  CUstream cu_stream)
{
    memcpy(hasher->keys, keys, sizeof *hasher->keys);
    return hasher->is_native ? CUDA_SUCCESS : copy_keys(hasher, cu_stream);
}

void flyt_page_hasher_fini(struct flyt_page_hasher *hasher)
{
    if (hasher->cu_library)
        flyt_own_kernel_unload(hasher->driver, hasher->cu_library);
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

/* ---- where things are, in device memory and in the results: hashes, addresses, flags ---- */

static uint64_t addresses_offset(const struct flyt_page_batch *batch)
{
    return (uint64_t)batch->pages_max * sizeof(struct flyt_page_hash);
}

static uint64_t flags_offset(const struct flyt_page_batch *batch)
{
    return addresses_offset(batch) + (uint64_t)batch->pages_max * sizeof(uint64_t);
}

static struct flyt_page_hash *hashes_of(const struct flyt_page_batch *batch)
{
    return batch->results;
}

static uint64_t *addresses_of(const struct flyt_page_batch *batch)
{
    return (uint64_t *)((unsigned char *)batch->results + addresses_offset(batch));
}

static unsigned char *flags_of(const struct flyt_page_batch *batch)
{
    return (unsigned char *)batch->results + flags_offset(batch);
}

CUresult flyt_page_batch_init(struct flyt_page_batch *batch, struct flyt_page_hasher *hasher, uint32_t pages_max,
                              uint64_t device_memory)
{
    *batch = (struct flyt_page_batch){.hasher = hasher, .device_memory = device_memory, .pages_max = pages_max};
    if (!pages_max || pages_max > FLYT_PAGE_BATCH_PAGES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result =
        hasher->driver->cuMemHostAlloc(&batch->results, FLYT_PAGE_BATCH_BYTES(pages_max), CU_MEMHOSTALLOC_PORTABLE);
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

/* Writes the pages' addresses. CUDA_SUCCESS, or CUDA_ERROR_INVALID_VALUE. */
static CUresult write_addresses(struct flyt_page_batch *batch, const struct flyt_page_range *ranges,
                                uint32_t range_count)
{
    uint64_t *addresses = addresses_of(batch);
    uint32_t pages_count = 0;
    for (uint32_t i = 0; i < range_count; i++) {
        if (ranges[i].address % FLYT_PAGE_BYTES || ranges[i].pages_count > batch->pages_max - pages_count)
            return CUDA_ERROR_INVALID_VALUE;
        for (uint64_t page = 0; page < ranges[i].pages_count; page++)
            addresses[pages_count++] = ranges[i].address + page * FLYT_PAGE_BYTES;
    }
    batch->pages_count = pages_count;
    return pages_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult launch(struct flyt_page_batch *batch, unsigned sms_count, CUstream cu_stream)
{
    uint64_t hashes = batch->device_memory, are_zero = hashes + flags_offset(batch);
    uint64_t pages = batch->device_memory + addresses_offset(batch);
    void *params[] = {&batch->hasher->device_keys, &pages, &hashes, &are_zero, &batch->copies, &batch->distance,
                      &batch->pages_count};
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

static CUresult record(const struct flyt_page_batch *batch, CUevent event)
{
    return event ? batch->hasher->driver->cuEventRecord(event, batch->cu_stream) : CUDA_SUCCESS;
}

/* The kernel between its input and its results. */
static CUresult submit_kernel(struct flyt_page_batch *batch, unsigned sms_count)
{
    const struct flyt_driver *driver = batch->hasher->driver;
    uint64_t hashes = batch->device_memory, flags = hashes + flags_offset(batch);
    CUresult result = driver->cuMemcpyHtoDAsync(batch->device_memory + addresses_offset(batch), addresses_of(batch),
                                                batch->pages_count * sizeof(uint64_t), batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = record(batch, batch->begin);
    if (result == CUDA_SUCCESS)
        result = launch(batch, sms_count, batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = record(batch, batch->hashed);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoHAsync(hashes_of(batch), hashes, batch->pages_count * sizeof *hashes_of(batch),
                                           batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemcpyDtoHAsync(flags_of(batch), flags, batch->pages_count, batch->cu_stream);
    return result;
}

/* Where the copy of page n is. */
static uint64_t copy_of(const struct flyt_page_batch *batch, uint32_t n)
{
    return batch->distance ? addresses_of(batch)[n] + batch->distance : batch->copies + (uint64_t)n * FLYT_PAGE_BYTES;
}

/* How many pages from page n on are neighbours, at most pages_max. */
static uint32_t count_neighbours(const struct flyt_page_batch *batch, uint32_t n, uint32_t pages_max)
{
    const uint64_t *addresses = addresses_of(batch);
    uint32_t count = 1;
    while (count < pages_max && n + count < batch->pages_count &&
           addresses[n + count] == addresses[n] + (uint64_t)count * FLYT_PAGE_BYTES)
        count++;
    return count;
}

static bool has_copies(const struct flyt_page_batch *batch)
{
    return batch->copies || batch->distance;
}

/* The copies, if any: hashed when it is finished. */
static CUresult submit_native(struct flyt_page_batch *batch)
{
    CUresult result = record(batch, batch->begin);
    for (uint32_t n = 0, count; has_copies(batch) && n < batch->pages_count && result == CUDA_SUCCESS; n += count) {
        count = count_neighbours(batch, n, UINT32_MAX);
        result = batch->hasher->driver->cuMemcpyDtoDAsync(copy_of(batch, n), addresses_of(batch)[n],
                                                          (uint64_t)count * FLYT_PAGE_BYTES, batch->cu_stream);
    }
    return result == CUDA_SUCCESS ? record(batch, batch->hashed) : result;
}

static CUresult submit(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                       uint64_t copies, uint64_t distance, unsigned sms_count, CUstream cu_stream)
{
    batch->is_submitted = batch->is_finished = false;
    batch->copies = copies;
    batch->distance = distance;
    batch->cu_stream = cu_stream;
    if (copies % 16 || distance % FLYT_PAGE_BYTES || !sms_count || sms_count > UINT16_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = write_addresses(batch, ranges, range_count);
    if (result == CUDA_SUCCESS)
        result = batch->hasher->is_native ? submit_native(batch) : submit_kernel(batch, sms_count);
    batch->is_submitted = result == CUDA_SUCCESS;
    return result;
}

CUresult flyt_page_batch_look(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                              unsigned sms_count, CUstream cu_stream)
{
    return submit(batch, ranges, range_count, 0, 0, sms_count, cu_stream);
}

CUresult flyt_page_batch_copy(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                              uint64_t copies, unsigned sms_count, CUstream cu_stream)
{
    if (!copies)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(batch, ranges, range_count, copies, 0, sms_count, cu_stream);
}

CUresult flyt_page_batch_copy_at(struct flyt_page_batch *batch, const struct flyt_page_range *ranges,
                                 uint32_t range_count, uint64_t distance, unsigned sms_count, CUstream cu_stream)
{
    if (!distance)
        return CUDA_ERROR_INVALID_VALUE;
    return submit(batch, ranges, range_count, 0, distance, sms_count, cu_stream);
}

/* Hashes `count` neighbouring pages, at most NATIVE_PAGES, of which the first has number n: in the copy, if any. */
static CUresult hash_natively(struct flyt_page_batch *batch, uint32_t n, uint32_t count)
{
    const struct flyt_page_hasher *hasher = batch->hasher;
    uint64_t address = has_copies(batch) ? copy_of(batch, n) : addresses_of(batch)[n];
    CUresult result =
        hasher->driver->cuMemcpyDtoHAsync(hasher->pages, address, (uint64_t)count * FLYT_PAGE_BYTES, batch->cu_stream);
    if (result == CUDA_SUCCESS)
        result = hasher->driver->cuStreamSynchronize(batch->cu_stream);
    for (uint32_t i = 0; i < count && result == CUDA_SUCCESS; i++) {
        bool is_zero;
        flyt_page_hash(hasher->keys, hasher->pages + (uint64_t)i * FLYT_PAGE_BYTES, &hashes_of(batch)[n + i], &is_zero);
        flags_of(batch)[n + i] = is_zero;
    }
    return result;
}

CUresult flyt_page_batch_finish(struct flyt_page_batch *batch)
{
    CUresult result = CUDA_SUCCESS;
    assert(batch->is_submitted);
    for (uint32_t n = 0, count; batch->hasher->is_native && n < batch->pages_count && result == CUDA_SUCCESS;
         n += count) {
        count = count_neighbours(batch, n, NATIVE_PAGES);
        result = hash_natively(batch, n, count);
    }
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
    assert(!has_copies(batch));
    seen.hash = result_of(batch, n, &seen.is_zero);
    return seen;
}

struct flyt_page_sent flyt_page_batch_sent(const struct flyt_page_batch *batch, uint32_t n)
{
    struct flyt_page_sent sent;
    assert(has_copies(batch));
    sent.hash = result_of(batch, n, &sent.is_zero);
    return sent;
}
