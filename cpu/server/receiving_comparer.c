/*
 * The thread that hashes what has come to its place, and compares (receiving.h). It makes what it needs on a GPU when
 * the first pages are there: behind the libraries of the image's first round, so that these come to lie where they did.
 */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "cpu/image/answer.h"
#include "cpu/server/receiving.h"
#include "cpu/server/session.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"

enum { ALIGN = 256 };

static uint64_t memory_bytes(void)
{
    uint64_t bytes = FLYT_PAGE_HASHER_BYTES + FLYT_PAGE_BATCH_BYTES(FLYT_CHECKPOINT_BATCH_PAGES_MAX);
    return (bytes + FLYT_GRANULE_BYTES - 1) / FLYT_GRANULE_BYTES * FLYT_GRANULE_BYTES;
}

_Static_assert(FLYT_PAGE_HASHER_BYTES % ALIGN == 0, "a batch is behind it");

/* Not charged to the VM: it goes before the session comes. */
static CUresult make_memory(const struct flyt_driver *driver, CUdevice cu_device, struct flyt_receiving_device *device)
{
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = cu_device};
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult result = driver->cuMemAddressReserve(&device->address, memory_bytes(), FLYT_GRANULE_BYTES, 0, 0);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemCreate(&device->memory, memory_bytes(), &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(device->address, memory_bytes(), 0, device->memory, 0);
    if (result == CUDA_SUCCESS) {
        device->has_memory = true;
        return driver->cuMemSetAccess(device->address, memory_bytes(), &access, 1);
    }
    driver->cuMemRelease(device->memory);
    return result;
}

static CUresult make_device(struct flyt_receiving *receiving, unsigned ordinal)
{
    const struct flyt_driver *driver = receiving->session->driver;
    struct flyt_receiving_device *device = &receiving->devices[ordinal];
    device->is_made = true;
    CUresult result = make_memory(driver, receiving->session->devices[ordinal].cu_device, device);
    if (result == CUDA_SUCCESS)
        result =
            flyt_page_hasher_init(&device->hasher, driver, &receiving->hash_key, device->address, device->cu_stream);
    if (result == CUDA_SUCCESS)
        result = flyt_page_batch_init(&device->batch, &device->hasher, FLYT_CHECKPOINT_BATCH_PAGES_MAX,
                                      device->address + FLYT_PAGE_HASHER_BYTES);
    return result;
}

/* The key words go with the memory, which nobody gets as it is (scrub.h). */
static void free_device(struct flyt_receiving *receiving, unsigned ordinal)
{
    const struct flyt_driver *driver = receiving->session->driver;
    struct flyt_receiving_device *device = &receiving->devices[ordinal];
    if (!device->cu_stream || flyt_receiving_use(receiving, ordinal, &device->cu_stream) != CUDA_SUCCESS)
        return;
    if (device->has_memory)
        driver->cuMemsetD8Async(device->address, 0, FLYT_PAGE_HASHER_BYTES, device->cu_stream);
    driver->cuStreamSynchronize(device->cu_stream);
    flyt_page_batch_fini(&device->batch);
    flyt_page_hasher_fini(&device->hasher);
    if (device->has_memory) {
        driver->cuMemUnmap(device->address, memory_bytes());
        driver->cuMemRelease(device->memory);
    }
    driver->cuStreamDestroy(device->cu_stream);
}

/* Hashes the batch, which is about to be in its place. */
static CUresult look(struct flyt_receiving *receiving, const struct flyt_receiving_batch *batch)
{
    const struct flyt_driver *driver = receiving->session->driver;
    struct flyt_receiving_device *device = &receiving->devices[batch->ordinal];
    CUresult result = flyt_receiving_use(receiving, batch->ordinal, &device->cu_stream);
    if (result == CUDA_SUCCESS && !device->is_made)
        result = make_device(receiving, batch->ordinal);
    if (result == CUDA_SUCCESS)
        result = driver->cuStreamWaitEvent(device->cu_stream, batch->placed, CU_EVENT_WAIT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result =
            flyt_page_batch_look(&device->batch, batch->ranges, batch->range_count,
                                 receiving->session->devices[batch->ordinal].partitions->sm_count, device->cu_stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuStreamSynchronize(device->cu_stream);
    return result == CUDA_SUCCESS ? flyt_page_batch_finish(&device->batch) : result;
}

static int compare(struct flyt_receiving *receiving, const struct flyt_receiving_batch *batch, struct flyt_error *err)
{
    const struct flyt_page_batch *seen = &receiving->devices[batch->ordinal].batch;
    uint32_t wrong_count = 0;
    CUresult result = look(receiving, batch);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                              "device %u: what has come cannot be compared, cuda_result=%d", batch->ordinal,
                              (int)result);
    for (uint32_t n = 0; n < batch->pages_count; n++) {
        const struct flyt_page_hash hash = flyt_page_batch_seen(seen, n).hash;
        wrong_count += !flyt_page_hash_is_equal(&hash, &batch->hashes[n]);
    }
    if (flyt_fault_point("receiving.compare") == FLYT_FAULT_ERROR)
        wrong_count = batch->pages_count;
    return wrong_count
               ? flyt_error_set(err, -EIO,
                                "device %u: of %u pages that have come from the other server %u are not what was "
                                "sent",
                                batch->ordinal, batch->pages_count, wrong_count)
               : 0;
}

/* That this server is there. Nothing else is said on the way back before all has ended: there is room for it, or the
 * other side reads nothing. */
static void tell_alive(struct flyt_receiving *receiving)
{
    const struct flyt_answer answer = {.is_final = false};
    unsigned char bytes[FLYT_ANSWER_BYTES_MAX];
    size_t count = flyt_answer_put(&answer, bytes);
    struct flyt_error err;
    ssize_t sent = send(receiving->image.fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0 && (size_t)sent < count) {
        flyt_error_set(&err, -EPIPE, "the other server reads nothing");
        flyt_receiving_fail(receiving, &err);
    }
}

/* What is to be compared next; NULL: nothing for now, or ever. */
static struct flyt_receiving_batch *next_batch(struct flyt_receiving *receiving, const struct timespec *until)
{
    int status = 0;
    pthread_mutex_lock(&receiving->mutex);
    while (!receiving->compare_first && !atomic_load(&receiving->is_ending) && status != ETIMEDOUT)
        status = pthread_cond_clockwait(&receiving->changed, &receiving->mutex, CLOCK_MONOTONIC, until);
    struct flyt_receiving_batch *batch = atomic_load(&receiving->is_ending) ? NULL : receiving->compare_first;
    if (batch)
        receiving->compare_first = batch->next;
    pthread_mutex_unlock(&receiving->mutex);
    return batch;
}

static void take_batch(struct flyt_receiving *receiving, struct flyt_receiving_batch *batch)
{
    struct flyt_error err = {0};
    compare(receiving, batch, &err);
    flyt_receiving_free_batch(receiving, batch);
    if (err.code) {
        flyt_receiving_fail(receiving, &err);
        return;
    }
    pthread_mutex_lock(&receiving->mutex);
    receiving->pending_count--;
    pthread_cond_broadcast(&receiving->changed);
    pthread_mutex_unlock(&receiving->mutex);
}

void *flyt_receiving_run_comparer(void *user)
{
    struct flyt_receiving *receiving = user;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    while (!atomic_load(&receiving->is_ending)) {
        struct timespec now;
        struct flyt_receiving_batch *batch = next_batch(receiving, &until);
        if (batch)
            take_batch(receiving, batch);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (atomic_load(&receiving->is_ending) || now.tv_sec < until.tv_sec ||
            (now.tv_sec == until.tv_sec && now.tv_nsec < until.tv_nsec))
            continue;
        tell_alive(receiving);
        until = now;
        until.tv_sec += FLYT_PEER_ALIVE_MS / 1000;
    }
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        free_device(receiving, i);
    return NULL;
}
