#include "cpu/server/move/out/copier.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cpu/server/cuda/memory.h"
#include "cpu/server/share/resize.h"
#include "cpu/server/core/session.h"
#include "cpu/server/move/out/writing.h"

enum { ALIGN = 256, PRIORITY = 0 };

static const struct flyt_driver *driver_of(const struct flyt_copier *copier)
{
    return copier->device->session->driver;
}

static int fail(const struct flyt_copier *copier, struct flyt_error *err, CUresult result, const char *what)
{
    flyt_session_check(copier->device->session, result);
    return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO, "device %u: %s, cuda_result=%d",
                          copier->device->ordinal, what, (int)result);
}

/* ---- what it is made of ---- */

static uint64_t batch_bytes(void)
{
    return (FLYT_PAGE_BATCH_BYTES(FLYT_PAGE_BATCH_PAGES_MAX) + ALIGN - 1) / ALIGN * ALIGN;
}

static uint64_t copies_bytes(uint32_t copies_pages)
{
    return (uint64_t)copies_pages * FLYT_PAGE_BYTES;
}

/* Hashes, then copies on whole pages. */
static uint64_t copies_offset(void)
{
    uint64_t bytes = FLYT_PAGE_HASHER_BYTES + FLYT_COPIER_BATCHES * batch_bytes();
    return (bytes + FLYT_GRANULE_BYTES - 1) / FLYT_GRANULE_BYTES * FLYT_GRANULE_BYTES;
}

static uint64_t hash_bytes(uint32_t copies_pages)
{
    uint64_t bytes = copies_offset() + FLYT_COPIER_BATCHES * copies_bytes(copies_pages);
    return (bytes + FLYT_GRANULE_BYTES - 1) / FLYT_GRANULE_BYTES * FLYT_GRANULE_BYTES;
}

uint64_t flyt_copier_memory_bytes(void)
{
    return hash_bytes(FLYT_WRITING_PIECE_PAGES);
}

/* Not through cpu/server/cuda/memory.c: it is none of the session's memory, and moves nowhere. */
static CUresult make_hash_memory(struct flyt_copier *copier)
{
    struct flyt_device *device = copier->device;
    const struct flyt_driver *driver = driver_of(copier);
    const CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->cu_device};
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = location};
    const CUmemAccessDesc access = {.location = location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    const uint64_t bytes = hash_bytes(copier->sink->copies_pages);
    CUdeviceptr address = device->hash_base;
    if (!address) { /* for the larger one, as it is reserved for ever */
        CUresult result = driver->cuMemAddressReserve(&address, flyt_copier_memory_bytes(), FLYT_GRANULE_BYTES, 0, 0);
        if (result != CUDA_SUCCESS)
            return result;
        device->hash_base = address;
    }
    CUresult result = driver->cuMemCreate(&copier->hash_memory, bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(address, bytes, 0, copier->hash_memory, 0);
    if (result == CUDA_SUCCESS) {
        result = driver->cuMemSetAccess(address, bytes, &access, 1);
        copier->has_hash_memory = result == CUDA_SUCCESS;
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        driver->cuMemUnmap(address, bytes);
    }
    driver->cuMemRelease(copier->hash_memory);
    return result;
}

/* Goes to the SMs that the device has now; nothing of it is on the GPU but, at first, the key words' copy. */
static CUresult follow(struct flyt_copier *copier)
{
    const struct flyt_driver *driver = driver_of(copier);
    const struct flyt_partition_context *partition = copier->device->partition;
    CUstream cu_stream;
    CUresult result = driver->cuGreenCtxStreamCreate(&cu_stream, partition->cu_green, CU_STREAM_NON_BLOCKING, PRIORITY);
    if (result != CUDA_SUCCESS)
        return result;
    if (copier->cu_stream) {
        result = driver->cuStreamWaitEvent(cu_stream, copier->keys, CU_EVENT_WAIT_DEFAULT);
        driver->cuStreamDestroy(copier->cu_stream);
    }
    copier->cu_stream = cu_stream;
    copier->partition = partition;
    return result;
}

static CUresult make_batch(struct flyt_copier *copier, unsigned i)
{
    struct flyt_copier_batch *batch = &copier->batches[i];
    uint64_t address = copier->device->hash_base + FLYT_PAGE_HASHER_BYTES + i * batch_bytes();
    CUresult result = flyt_page_batch_init(&batch->batch, &copier->hasher, copier->pages_max, address);
    batch->copies = copier->device->hash_base + copies_offset() + i * copies_bytes(copier->sink->copies_pages);
    if (result == CUDA_SUCCESS)
        result = driver_of(copier)->cuEventCreate(&batch->begin, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = driver_of(copier)->cuEventCreate(&batch->hashed, CU_EVENT_DEFAULT);
    if (result == CUDA_SUCCESS)
        result = driver_of(copier)->cuEventCreate(&batch->end, CU_EVENT_DISABLE_TIMING);
    batch->batch.begin = batch->begin;
    batch->batch.hashed = batch->hashed;
    batch->ranges = calloc(copier->pages_max, sizeof *batch->ranges);
    batch->parts = calloc(copier->pages_max, sizeof *batch->parts);
    return result == CUDA_SUCCESS && (!batch->ranges || !batch->parts) ? CUDA_ERROR_OUT_OF_MEMORY : result;
}

static void free_batch(const struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    flyt_page_batch_fini(&batch->batch);
    if (batch->begin)
        driver_of(copier)->cuEventDestroy(batch->begin);
    if (batch->hashed)
        driver_of(copier)->cuEventDestroy(batch->hashed);
    if (batch->end)
        driver_of(copier)->cuEventDestroy(batch->end);
    free(batch->ranges);
    free(batch->parts);
}

int flyt_copier_open(struct flyt_copier *copier, struct flyt_device *device, const struct flyt_page_key *key,
                     unsigned share_pct, const struct flyt_sink_ops *sink, struct flyt_writing *writing,
                     struct flyt_error *err)
{
    const struct flyt_driver *driver = device->session->driver;
    *copier = (struct flyt_copier){.device = device, .writing = writing, .sink = sink};
    copier->pages_max = driver->is_soft ? FLYT_COPIER_PAGES_NATIVE : FLYT_PAGE_BATCH_PAGES_MAX;
    copier->busy_ns = device->session->clock_ns();
    flyt_throttle_init(&copier->throttle, share_pct);
    int status = writing ? 0 : flyt_mirrors_open(&copier->mirrors, device, err);
    if (status) {
        *copier = (struct flyt_copier){0};
        return status;
    }
    CUresult result = flyt_device_use(device);
    if (result == CUDA_SUCCESS)
        result = make_hash_memory(copier);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventCreate(&copier->keys, CU_EVENT_DISABLE_TIMING);
    if (result == CUDA_SUCCESS)
        result = follow(copier);
    if (result == CUDA_SUCCESS)
        result = flyt_page_hasher_init(&copier->hasher, driver, device->cu_device, key, device->hash_base,
                                       copier->cu_stream);
    if (result == CUDA_SUCCESS)
        result = driver->cuEventRecord(copier->keys, copier->cu_stream);
    for (unsigned i = 0; i < FLYT_COPIER_BATCHES && result == CUDA_SUCCESS; i++)
        result = make_batch(copier, i);
    if (result != CUDA_SUCCESS) {
        status = fail(copier, err, result, "what hashes its memory cannot be made");
        flyt_copier_fini(copier);
        return status;
    }
    const struct flyt_page_hash zero = flyt_page_hasher_zero(&copier->hasher);
    flyt_page_table_init(&copier->table, &zero);
    return 0;
}

/* Nothing is on the GPU. */
static void free_all(struct flyt_copier *copier)
{
    const struct flyt_driver *driver = driver_of(copier);
    copier->device->copying_count = 0;
    flyt_mirrors_close(&copier->mirrors);
    for (unsigned i = 0; i < FLYT_COPIER_BATCHES; i++)
        free_batch(copier, &copier->batches[i]);
    if (copier->hasher.driver)
        flyt_page_hasher_fini(&copier->hasher);
    if (copier->keys)
        driver->cuEventDestroy(copier->keys);
    if (copier->cu_stream)
        driver->cuStreamDestroy(copier->cu_stream);
    if (copier->has_hash_memory) {
        driver->cuMemUnmap(copier->device->hash_base, hash_bytes(copier->sink->copies_pages));
        driver->cuMemRelease(copier->hash_memory);
    }
    flyt_page_table_fini(&copier->table);
    flyt_page_runs_fini(&copier->runs);
    *copier = (struct flyt_copier){0};
}

/* Whether the GPU has still to reach the event. After a fault nothing runs any more. */
static bool is_ahead(const struct flyt_copier *copier, CUevent event)
{
    struct flyt_session *session = copier->device->session;
    return session->fatal == CUDA_SUCCESS &&
           flyt_session_check_work(session, driver_of(copier)->cuEventQuery(event)) == CUDA_ERROR_NOT_READY;
}

/* Takes the first batch on the GPU out of the ring. */
static struct flyt_copier_batch *pop(struct flyt_copier *copier)
{
    struct flyt_copier_batch *batch = &copier->batches[copier->first];
    copier->first = (copier->first + 1) % FLYT_COPIER_BATCHES;
    copier->device->copying_count = --copier->count;
    copier->look_count -= batch->kind == FLYT_THROTTLE_LOOK;
    if (!copier->count && copier->partition != copier->device->partition)
        flyt_resize_settle(copier->device);
    return batch;
}

/* The key words on the device tell what the hashes are worth. */
static bool clear_keys(struct flyt_copier *copier)
{
    const struct flyt_driver *driver = driver_of(copier);
    if (!copier->is_clearing && copier->device->session->fatal == CUDA_SUCCESS) {
        CUresult result =
            driver->cuMemsetD8Async(copier->device->hash_base, 0, FLYT_PAGE_HASHER_BYTES, copier->cu_stream);
        if (result == CUDA_SUCCESS)
            result = driver->cuEventRecord(copier->keys, copier->cu_stream);
        flyt_session_check(copier->device->session, result);
        copier->is_clearing = true;
    }
    return !is_ahead(copier, copier->keys);
}

bool flyt_copier_settle(struct flyt_copier *copier)
{
    while (copier->count && !is_ahead(copier, copier->batches[copier->first].end))
        pop(copier);
    return !copier->count;
}

bool flyt_copier_close(struct flyt_copier *copier)
{
    if (!copier->device)
        return true;
    if (flyt_device_use(copier->device) != CUDA_SUCCESS && copier->device->session->fatal == CUDA_SUCCESS)
        return false;
    if (!flyt_copier_settle(copier) || !clear_keys(copier))
        return false;
    free_all(copier);
    return true;
}

void flyt_copier_fini(struct flyt_copier *copier)
{
    if (!copier->device)
        return;
    if (flyt_device_use(copier->device) == CUDA_SUCCESS && copier->cu_stream)
        driver_of(copier)->cuStreamSynchronize(copier->cu_stream);
    free_all(copier);
}

/* ---- extents ---- */

static bool is_listed(const struct flyt_copier *copier, const struct flyt_extent *extent)
{
    return flyt_page_table_has(&copier->table, extent->address);
}

/* Enters what can be copied by now. 0 or -ENOMEM. */
static int list_extents(struct flyt_copier *copier)
{
    for (struct flyt_extent *extent = copier->device->memory->extents; extent; extent = extent->next) {
        if (!copier->sink->has_place(copier, extent) || is_listed(copier, extent) ||
            flyt_fence_poll(extent->cleared) != CUDA_SUCCESS)
            continue;
        int status = flyt_page_table_add(&copier->table, extent->address, extent->bytes);
        if (status == -ENOMEM)
            return status;
        assert(status == 0); /* no more than memory.c has, and where it has them */
        copier->changes++;
    }
    return 0;
}

bool flyt_copier_is_whole(const struct flyt_copier *copier)
{
    /* What is listed is there: it leaves the table before it is unmapped. */
    return copier->table.extent_count == copier->device->memory->extent_count;
}

bool flyt_copier_has_more(const struct flyt_copier *copier)
{
    for (const struct flyt_extent *extent = copier->device->memory->extents; extent; extent = extent->next)
        if (copier->sink->has_place(copier, extent) && !is_listed(copier, extent))
            return true;
    return false;
}

static void unlist(struct flyt_copier *copier, uint64_t address)
{
    if (flyt_page_table_remove(&copier->table, address) == 0)
        copier->changes++;
}

bool flyt_copier_let_go(struct flyt_copier *copier, const struct flyt_extent *extent)
{
    unlist(copier, extent->address);
    for (unsigned i = 0; i < copier->count; i++) {
        const struct flyt_copier_batch *batch = &copier->batches[(copier->first + i) % FLYT_COPIER_BATCHES];
        if (!is_ahead(copier, batch->end) && !copier->hasher.is_native)
            continue;
        for (uint32_t n = 0; n < batch->range_count; n++)
            if (batch->ranges[n].address < extent->address + extent->bytes &&
                extent->address < batch->ranges[n].address + batch->ranges[n].pages_count * FLYT_PAGE_BYTES)
                return false;
    }
    return true;
}

void flyt_copier_drop(struct flyt_copier *copier, uint64_t extent_id)
{
    for (unsigned i = 0; i < copier->mirrors.count; i++) {
        struct flyt_mirror *mirror = &copier->mirrors.items[i];
        if (mirror->extent_id != extent_id)
            continue;
        unlist(copier, mirror->address);
        flyt_mirrors_remove(&copier->mirrors, mirror);
        return;
    }
}

/* ---- rounds ---- */

int flyt_copier_begin(struct flyt_copier *copier, bool is_last, struct flyt_error *err)
{
    assert(copier->step == FLYT_COPIER_ENDED);
    int status = list_extents(copier);
    flyt_page_runs_clear(&copier->runs);
    copier->is_last = is_last;
    copier->cursor = copier->run = copier->run_page = copier->pages_done = 0;
    const bool is_first = copier->table.unsent_count == copier->table.pages_count; /* nothing was copied yet */
    copier->has_looked = copier->sink->tells_zeros || !is_first;
    copier->copies_early = copier->has_looked && is_first;
    if (!status && !copier->has_looked)
        status = flyt_page_table_collect(&copier->table, &copier->runs);
    if (status)
        return flyt_error_set(err, status, "device %u: out of host memory", copier->device->ordinal);
    copier->step = copier->has_looked ? FLYT_COPIER_LOOKS : FLYT_COPIER_COPIES;
    return 0;
}

void flyt_copier_stop(struct flyt_copier *copier)
{
    if (copier->step != FLYT_COPIER_ENDED)
        copier->step = FLYT_COPIER_STOPS;
}

uint64_t flyt_copier_pages_ahead(const struct flyt_copier *copier)
{
    const bool is_early = copier->copies_early && copier->step == FLYT_COPIER_LOOKS;
    /* What was looked at may have gone since. */
    return is_early && copier->runs.compared_count < copier->table.pages_count
               ? copier->table.pages_count - copier->runs.compared_count
               : 0;
}

bool flyt_copier_is_exact(const struct flyt_copier *copier)
{
    return flyt_page_table_is_exact(&copier->table, &copier->runs);
}

bool flyt_copier_holds_sms(const struct flyt_copier *copier)
{
    return copier->count && copier->partition != copier->device->partition;
}

/* ---- results ---- */

static int take_look(struct flyt_copier *copier, const struct flyt_copier_batch *batch)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->range_count; i++)
        for (uint64_t page = 0; page < batch->ranges[i].pages_count; page++, n++) {
            int status = flyt_page_table_compare(&copier->table, batch->ranges[i].address + page * FLYT_PAGE_BYTES,
                                                 flyt_page_batch_seen(&batch->batch, n), &copier->runs);
            if (status)
                return status;
        }
    return 0;
}

void flyt_copier_arrived(struct flyt_copier *copier, uint64_t pages_count)
{
    copier->on_way_count--;
    copier->pages_done += pages_count;
    copier->copied_pages += pages_count;
}

/* ---- mirrors as a sink: what the batch has copied has arrived ---- */

static bool has_mirror(const struct flyt_copier *copier, const struct flyt_extent *extent)
{
    const struct flyt_mirror *mirror = flyt_mirrors_find(&copier->mirrors, extent->address);
    return mirror && mirror->extent_id == extent->extent_id && mirror->bytes == extent->bytes;
}

static uint32_t mirror_room(const struct flyt_copier *copier)
{
    return copier->pages_max;
}

static CUresult mirror_copy(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    return flyt_page_batch_copy_at(&batch->batch, batch->ranges, batch->range_count, copier->mirrors.distance,
                                   copier->partition->sm_count, copier->cu_stream);
}

static void mirror_take(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < batch->range_count; i++)
        for (uint64_t page = 0; page < batch->parts[i].pages_count; page++, n++) {
            int status =
                flyt_page_table_sent(&copier->table, &batch->parts[i], page, flyt_page_batch_sent(&batch->batch, n));
            assert(status == 0 || status == -ESTALE);
            (void)status;
        }
    flyt_copier_arrived(copier, batch->pages_count);
}

const struct flyt_sink_ops flyt_mirror_sink = {
    .has_place = has_mirror, .room_pages = mirror_room, .copy = mirror_copy, .take = mirror_take};

static void take_copy(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    copier->on_way_count++;
    copier->sink->take(copier, batch);
}

/* No SM is at the batch any more: the program has lost that time. */
static CUresult count_batch(struct flyt_copier *copier, struct flyt_copier_batch *batch)
{
    float took_ms = 0;
    CUresult result = driver_of(copier)->cuEventElapsedTime(&took_ms, batch->begin, batch->hashed);
    batch->is_counted = result == CUDA_SUCCESS;
    if (batch->is_counted)
        flyt_throttle_take(&copier->throttle, batch->kind, batch->pages_count, (uint64_t)((double)took_ms * 1e6),
                           copier->device->session->clock_ns());
    return result;
}

/* Whether SMs may be at what was given to the GPU last. Before that, they are at nothing. */
static bool is_at_work(struct flyt_copier *copier)
{
    struct flyt_copier_batch *last = &copier->batches[(copier->first + copier->count - 1) % FLYT_COPIER_BATCHES];
    if (!copier->count || last->is_counted)
        return false;
    /* What fails here fails again when its end is taken. */
    return last->has_failed || is_ahead(copier, last->hashed) || count_batch(copier, last) != CUDA_SUCCESS;
}

/* The first batch on the GPU has ended. */
static int take(struct flyt_copier *copier, struct flyt_error *err)
{
    struct flyt_session *session = copier->device->session;
    struct flyt_copier_batch *batch = pop(copier);
    CUresult result = batch->has_failed ? CUDA_ERROR_UNKNOWN
                                        : flyt_session_check_work(session, driver_of(copier)->cuEventQuery(batch->end));
    if (result == CUDA_SUCCESS && !batch->is_counted)
        result = count_batch(copier, batch);
    uint64_t before_ns = session->clock_ns();
    if (result == CUDA_SUCCESS)
        result = flyt_page_batch_finish(&batch->batch);
    if (result != CUDA_SUCCESS) {
        for (uint32_t i = 0; batch->kind == FLYT_THROTTLE_COPY && i < batch->range_count; i++)
            flyt_page_table_lost(&copier->table, &batch->parts[i]);
        return fail(copier, err, result, "its memory could not be hashed and copied");
    }
    int status = 0;
    if (batch->kind == FLYT_THROTTLE_COPY)
        take_copy(copier, batch);
    else if (copier->step == FLYT_COPIER_LOOKS)
        status = take_look(copier, batch);
    /* The program has lost this thread's time, too. */
    uint64_t now_ns = session->clock_ns();
    flyt_throttle_take(&copier->throttle,
                       batch->kind == FLYT_THROTTLE_COPY ? FLYT_THROTTLE_COPY_RESULTS : FLYT_THROTTLE_LOOK_RESULTS,
                       batch->pages_count, now_ns - before_ns, now_ns);
    return status ? flyt_error_set(err, status, "device %u: out of host memory", copier->device->ordinal) : 0;
}

/* ---- batches ---- */

/* None where the look has come to its end. */
static void fill_look(struct flyt_copier *copier, struct flyt_copier_batch *batch, uint32_t pages_max)
{
    batch->kind = FLYT_THROTTLE_LOOK;
    batch->range_count = flyt_page_table_look(&copier->table, &copier->cursor, pages_max, pages_max, batch->ranges);
    for (uint32_t i = 0; i < batch->range_count; i++)
        batch->pages_count += (uint32_t)batch->ranges[i].pages_count;
}

/* The next pages of the runs. A look that is not over may still append to the last run: it stays the one that is at its
 * turn when all of its pages have been taken. */
static void fill_copy(struct flyt_copier *copier, struct flyt_copier_batch *batch, uint32_t pages_max)
{
    batch->kind = FLYT_THROTTLE_COPY;
    uint32_t room_pages = copier->sink->room_pages(copier);
    if (pages_max > room_pages)
        pages_max = room_pages;
    while (copier->run < copier->runs.count && batch->pages_count < pages_max &&
           batch->zero_count < FLYT_COPIER_ZEROS_MAX) {
        struct flyt_page_run part = copier->runs.items[copier->run];
        const bool is_told = part.is_zero && copier->sink->tells_zeros;
        uint64_t left = part.pages_count - copier->run_page;
        if (!left && copier->step == FLYT_COPIER_LOOKS && copier->run == copier->runs.count - 1)
            break;
        if (!left) {
            copier->run++;
            copier->run_page = 0;
            continue;
        }
        uint64_t room = is_told ? left : pages_max - batch->pages_count;
        part.address += copier->run_page * FLYT_PAGE_BYTES;
        part.pages_count = left < room ? left : room;
        copier->run_page += part.pages_count;
        int status = flyt_page_table_begin(&copier->table, &part);
        assert(status == 0 || status == -ESTALE);
        if (status) {
            copier->pages_done += part.pages_count;
            continue;
        }
        if (is_told) {
            batch->zeros[batch->zero_count++] = part;
            continue;
        }
        batch->parts[batch->range_count] = part;
        batch->ranges[batch->range_count++] = (struct flyt_page_range){part.address, part.pages_count};
        batch->pages_count += (uint32_t)part.pages_count;
    }
}

/* What was begun and could not be submitted counts as on the GPU as far as it is there. */
static int submit(struct flyt_copier *copier, struct flyt_copier_batch *batch, struct flyt_error *err)
{
    const struct flyt_driver *driver = driver_of(copier);
    const bool is_copy = batch->kind == FLYT_THROTTLE_COPY;
    CUresult result = is_copy ? copier->sink->copy(copier, batch)
                              : flyt_page_batch_look(&batch->batch, batch->ranges, batch->range_count,
                                                     copier->partition->sm_count, copier->cu_stream);
    if (result == CUDA_SUCCESS && is_copy && copier->sink->fetch)
        result = copier->sink->fetch(copier, batch);
    batch->has_failed = result != CUDA_SUCCESS;
    batch->is_counted = false;
    CUresult end = driver->cuEventRecord(batch->end, copier->cu_stream);
    if (end == CUDA_SUCCESS) {
        copier->device->copying_count = ++copier->count;
        copier->look_count += !is_copy;
    }
    if (result == CUDA_SUCCESS)
        result = end;
    return result == CUDA_SUCCESS ? 0 : fail(copier, err, result, "its memory cannot be hashed and copied");
}

void flyt_copier_watch(struct flyt_copier *copier, uint64_t now_ns)
{
    if (copier->device->busy_count)
        copier->busy_ns = now_ns;
}

/* is_hindered: the program uses the GPU. */
static bool may_begin(struct flyt_copier *copier, bool is_hindered)
{
    struct flyt_device *device = copier->device;
    if (copier->step != FLYT_COPIER_LOOKS && copier->step != FLYT_COPIER_COPIES)
        return false;
    if (copier->count == FLYT_COPIER_BATCHES || copier->partition != device->partition)
        return false;
    if (copier->step == FLYT_COPIER_COPIES && !copier->sink->room_pages(copier))
        return false;
    if (is_hindered &&
        (is_at_work(copier) || !flyt_throttle_is_open(&copier->throttle, copier->device->session->clock_ns())))
        return false;
    return !device->time_slice_gate.is_closed || device->time_slice_gate.is_suspended ||
           device->session->time_slice_gate_ops->ask(device);
}

static void fill(struct flyt_copier *copier, struct flyt_copier_batch *batch, uint32_t pages_max)
{
    batch->pages_count = batch->range_count = batch->zero_count = 0;
    batch->piece = NULL;
    if (copier->step == FLYT_COPIER_COPIES || (copier->copies_early && copier->sink->room_pages(copier)))
        fill_copy(copier, batch, pages_max);
    if (copier->step == FLYT_COPIER_LOOKS && !batch->range_count && !batch->zero_count)
        fill_look(copier, batch, pages_max);
}

/* Gives the GPU the next batch. *ret_is_more: there was one, or the round has come to its next step. */
static int begin_batch(struct flyt_copier *copier, bool *ret_is_more, struct flyt_error *err)
{
    struct flyt_copier_batch *batch = &copier->batches[(copier->first + copier->count) % FLYT_COPIER_BATCHES];
    uint32_t pages_max = copier->pages_max;
    if (!copier->is_last && pages_max > FLYT_COPIER_PAGES_RUNNING)
        pages_max = FLYT_COPIER_PAGES_RUNNING;
    fill(copier, batch, pages_max);
    *ret_is_more = true;
    if (batch->range_count)
        return submit(copier, batch, err);
    if (batch->zero_count) {
        take_copy(copier, batch);
        return 0;
    }
    const bool is_look = copier->step == FLYT_COPIER_LOOKS;
    *ret_is_more = is_look ? !copier->look_count : !copier->count && !copier->on_way_count;
    if (*ret_is_more)
        copier->step = is_look ? FLYT_COPIER_COPIES : FLYT_COPIER_ENDED;
    return 0;
}

int flyt_copier_advance(struct flyt_copier *copier, struct flyt_error *err)
{
    uint64_t now_ns = copier->device->session->clock_ns();
    bool is_hindered = !copier->is_last && now_ns - copier->busy_ns < FLYT_COPIER_QUIET_NS, is_more = true;
    CUresult result = flyt_device_use(copier->device);
    int status = result == CUDA_SUCCESS ? 0 : fail(copier, err, result, "its context cannot be used");
    while (!status && copier->count && !is_ahead(copier, copier->batches[copier->first].end))
        status = take(copier, err);
    if (!status && !copier->count && copier->partition != copier->device->partition) {
        result = follow(copier);
        if (result != CUDA_SUCCESS)
            status = fail(copier, err, result, "its new SMs cannot be used");
    }
    if (!is_hindered)
        flyt_throttle_forgive(&copier->throttle);
    if (!status && copier->step == FLYT_COPIER_LOOKS && !copier->is_last && copier->sink->prepare)
        copier->sink->prepare(copier);
    while (!status && is_more && may_begin(copier, is_hindered))
        status = begin_batch(copier, &is_more, err);
    if (!status && copier->step == FLYT_COPIER_STOPS && !copier->count && !copier->on_way_count)
        copier->step = FLYT_COPIER_ENDED;
    return status;
}
