#include "cpu/client/managed/hash.h"

#include <string.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/copy_raw.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/managed/block.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream_record.h"
#include "flyt_page_hash_ptx.h"

/* A batch is so large that its hashes come with their reply. Blocks as the server launches them (page_hasher.c). */
enum {
    BATCH_PAGES = FLYT_INLINE_BYTES_MAX / sizeof(struct flyt_page_hash),
    THREADS = 512,
    BLOCKS_PER_SM = 4,
    BLOCK_PAGES = 32
};

/* Device memory of this library's own: key words, addresses, hashes, flags. */
enum {
    KEYS_AT = 0,
    ADDRESSES_AT = 131072,
    HASHES_AT = ADDRESSES_AT + BATCH_PAGES * 8,
    FLAGS_AT = HASHES_AT + BATCH_PAGES * 16,
    SCRATCH_BYTES = FLAGS_AT + BATCH_PAGES
};
_Static_assert(sizeof(struct flyt_page_hash_keys) <= ADDRESSES_AT, "key words");

/* Under the mutex of managed memory. */
static CUlibrary own_library;
static CUfunction cu_function; /* the library's one kernel; NULL: it is not loaded */
static struct {
    uint64_t address, buffer_id; /* buffer_id: of the range; 0: none */
} scratches[FLYT_DEVICES_MAX];

/* As the kernel's parameters lie. */
struct params {
    uint64_t keys, pages, hashes, are_zero, copies, distance;
    uint32_t count;
};

void flyt_managed_hash_prepare(void)
{
    if (cu_function || (!own_library && flyt_library_open_lazy(flyt_page_hash_ptx, &own_library)))
        return;
    /* Without entering: an error of the program's own is for its next call. */
    struct flyt_library *library = flyt_library_find((uint64_t)(uintptr_t)own_library);
    if (library && flyt_library_load_now(library) == CUDA_SUCCESS && library->kernel_count == 1)
        cu_function = (CUfunction)(uintptr_t)library->kernels[0].kernel_id;
}

/* Memory with the key words in it: made where there is none, or where a reset has ended it. */
static CUresult get_scratch(int device, struct flyt_stream *stream, uint64_t *ret_address)
{
    struct flyt_range range;
    if (scratches[device].buffer_id && flyt_range_find(scratches[device].address, &range) &&
        range.buffer_id == scratches[device].buffer_id) {
        *ret_address = range.base;
        return CUDA_SUCCESS;
    }
    range = (struct flyt_range){.bytes = SCRATCH_BYTES, .device = device, .context_id = stream->context_id};
    CUresult result = flyt_memory_alloc_range(&range, 0);
    if (!result)
        result =
            flyt_copy_raw_in(stream, range.base + KEYS_AT, flyt_managed_keys(), sizeof(struct flyt_page_hash_keys));
    if (result || !flyt_range_find(range.base, &range))
        return result ? result : CUDA_ERROR_UNKNOWN;
    scratches[device].address = *ret_address = range.base;
    scratches[device].buffer_id = range.buffer_id; /* which only the books give */
    return CUDA_SUCCESS;
}

static CUresult launch(int device, struct flyt_stream *stream, uint64_t scratch, uint32_t count)
{
    const struct flyt_device_info *info;
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *known;
    struct params params = {.keys = scratch + KEYS_AT,
                            .pages = scratch + ADDRESSES_AT,
                            .hashes = scratch + HASHES_AT,
                            .are_zero = scratch + FLAGS_AT,
                            .count = count};
    CUresult result = flyt_kernel_get(cu_function, &kernel);
    if (!result)
        result = flyt_kernel_device(kernel, device, &known);
    if (!result)
        result = flyt_device_info(device, &info);
    if (!result && kernel->param_bytes > sizeof params)
        result = CUDA_ERROR_UNKNOWN;
    if (!result)
        result = flyt_stream_begin(stream);
    if (result)
        return result;
    uint32_t sms = (uint32_t)info->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], blocks = count / BLOCK_PAGES;
    blocks = blocks < sms ? sms : blocks > sms * BLOCKS_PER_SM ? sms * BLOCKS_PER_SM : blocks;
    flyt_kernel_launch_args args = {.thread = flyt_thread_number(),
                                    .stream_id = stream->stream_id,
                                    .kernel_id = known->kernel_id,
                                    .grid = {blocks < count ? blocks : count, 1, 1},
                                    .block = {THREADS, 1, 1}};
    args.params.params_len = kernel->param_bytes;
    args.params.params_val = (char *)&params;
    uint64_t sequence = 0;
    result = flyt_client_status(flyt_send_kernel_launch(flyt_client.channel, &args, &sequence), "kernel_launch");
    flyt_stream_sent(stream, sequence);
    return result;
}

static CUresult hash_batch(int device, struct flyt_stream *stream, uint64_t address, uint32_t count,
                           struct flyt_page_hash *ret_hashes)
{
    uint64_t scratch = 0, pages[BATCH_PAGES];
    CUresult result = get_scratch(device, stream, &scratch);
    for (uint32_t i = 0; i < count; i++)
        pages[i] = address + (uint64_t)i * FLYT_PAGE_BYTES;
    if (!result)
        result = flyt_copy_raw_in(stream, scratch + ADDRESSES_AT, pages, count * sizeof *pages);
    if (!result)
        result = launch(device, stream, scratch, count);
    if (!result)
        result = flyt_copy_raw_out(stream, ret_hashes, scratch + HASHES_AT, count * sizeof *ret_hashes, false);
    return result;
}

CUresult flyt_managed_hash(int device, struct flyt_stream *stream, uint64_t address, uint64_t count,
                           struct flyt_page_hash *ret_hashes)
{
    CUresult result = cu_function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
    for (uint64_t done = 0; done < count && !result; done += BATCH_PAGES) {
        uint32_t part = count - done < BATCH_PAGES ? (uint32_t)(count - done) : BATCH_PAGES;
        result = hash_batch(device, stream, address + done * FLYT_PAGE_BYTES, part, ret_hashes + done);
    }
    return result;
}
