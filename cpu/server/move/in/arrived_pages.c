#include "cpu/server/move/in/arrived_pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/move/in/page_reader.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/move/in/prepare.h"
#include "cpu/server/core/session.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

/* Of one launch: all that it has pages for where memory is in pieces of 2 MiB, which is the least. */
enum { RANGES_MAX = FLYT_PAGE_BATCH_PAGES_MAX / (FLYT_GRANULE_BYTES / FLYT_PAGE_BYTES) };

/* What the state has told of a device's memory, and is not compared yet: what fits into one launch. */
struct waiting {
    bool is_begun; /* the GPU is at it: only the result is awaited */
    uint32_t range_count, pages_count;
    struct flyt_page_range ranges[RANGES_MAX];
    struct flyt_page_hash hashes[FLYT_PAGE_BATCH_PAGES_MAX];
};

enum { BATCHES = FLYT_LOOKER_BATCHES_MAX, WAITING_BYTES = BATCHES * sizeof(struct waiting) };

struct flyt_arrived_pages {
    struct flyt_page_key key;
    struct flyt_page_hash_keys keys;                        /* its words, made once for all devices */
    bool is_key_set[FLYT_DEVICES_MAX];                      /* the page reader has it */
    bool has_key;                                           /* the state's, which tells of all pages then */
    uint64_t compared_count;                                /* pages, since the key came */
    struct flyt_page_reader page_readers[FLYT_DEVICES_MAX]; /* by ordinal, as all here */
    struct waiting *waiting[FLYT_DEVICES_MAX]; /* of each batch of the page reader, with which they are there */
    unsigned current[FLYT_DEVICES_MAX];        /* the one that pages are added to */
    size_t found;                              /* the extent of which pages were told last */
};

static struct flyt_arrived_pages *make(struct flyt_session *session)
{
    if (!session->prepare->arrived)
        session->prepare->arrived = calloc(1, sizeof *session->prepare->arrived);
    return session->prepare->arrived;
}

/* ---- what hashes ---- */

static CUresult open_page_reader(struct flyt_session *session, unsigned ordinal)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    session->current_device = NULL;
    self->is_key_set[ordinal] = true;
    if (flyt_fault_point("prepare.page_reader") == FLYT_FAULT_ERROR)
        return CUDA_ERROR_UNKNOWN;
    if (!self->waiting[ordinal])
        self->waiting[ordinal] = malloc(WAITING_BYTES);
    if (!self->waiting[ordinal])
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(self->waiting[ordinal], 0, WAITING_BYTES); /* it is touched now, not when time is short */
    return flyt_page_reader_open(&self->page_readers[ordinal], session, ordinal, BATCHES, FLYT_PAGE_BATCH_PAGES_MAX,
                                 &self->key);
}

void flyt_arrived_pages_make_page_reader(struct flyt_session *session, unsigned ordinal)
{
    struct flyt_arrived_pages *self = make(session);
    if (!self || self->page_readers[ordinal].is_made)
        return;
    CUresult result = open_page_reader(session, ordinal);
    self->is_key_set[ordinal] = false; /* which has not come */
    if (result == CUDA_SUCCESS)
        return;
    flyt_info("device %u: what is to compare memory cannot be made yet, cuda_result=%d", ordinal, (int)result);
    flyt_page_reader_close(&self->page_readers[ordinal]);
}

static int driver_failed(struct flyt_error *err, unsigned ordinal, CUresult result)
{
    return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                          "device %u: what has arrived cannot be compared, cuda_result=%d", ordinal, (int)result);
}

/* With the key. */
static int use_page_reader(struct flyt_session *session, unsigned ordinal, struct flyt_error *err)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    CUresult result = CUDA_SUCCESS;
    session->current_device = NULL;
    if (!self->page_readers[ordinal].is_made)
        result = open_page_reader(session, ordinal);
    else if (!self->is_key_set[ordinal])
        result = flyt_page_reader_set_key(&self->page_readers[ordinal], &self->keys);
    self->is_key_set[ordinal] = true;
    return result == CUDA_SUCCESS ? 0 : driver_failed(err, ordinal, result);
}

/* ---- comparing ---- */

static void clear(struct waiting *waiting)
{
    waiting->range_count = waiting->pages_count = 0;
    waiting->is_begun = false;
}

int flyt_arrived_pages_begin(struct flyt_session *session, const void *key, struct flyt_error *err)
{
    struct flyt_arrived_pages *self = make(session);
    if (!self)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    memcpy(self->key.bytes, key, sizeof self->key.bytes);
    flyt_page_hash_prepare(&self->key, &self->keys);
    memset(self->is_key_set, 0, sizeof self->is_key_set);
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        for (unsigned n = 0; self->waiting[i] && n < BATCHES; n++)
            clear(&self->waiting[i][n]);
    self->has_key = true;
    self->compared_count = 0;
    return 0;
}

/* Whether the pages are of one extent, which was made here. Most are told in the order in which extents were made. */
static bool is_there(struct flyt_arrived_pages *self, const struct flyt_adopted_extents *adopted, uint64_t address,
                     uint64_t bytes)
{
    for (size_t i = 0; i < adopted->count; i++) {
        const size_t n = (self->found + i) % adopted->count;
        const struct flyt_manager_link_extent *extent = &adopted->extents[n].extent;
        if (!adopted->extents[n].is_placed || address - extent->address >= extent->bytes)
            continue;
        self->found = n;
        return bytes <= extent->bytes - (address - extent->address);
    }
    return false;
}

static uint32_t count_wrong(const struct flyt_page_batch *batch, const struct waiting *waiting)
{
    uint32_t count = 0;
    if (flyt_fault_point("prepare.arrived") == FLYT_FAULT_ERROR)
        return waiting->pages_count;
    for (uint32_t n = 0; n < waiting->pages_count; n++) {
        const struct flyt_page_hash hash = flyt_page_batch_seen(batch, n).hash;
        count += !flyt_page_hash_is_equal(&hash, &waiting->hashes[n]);
    }
    return count;
}

/* The GPU begins with what waits, if anything does; more is added to the next one. */
static int begin_waiting(struct flyt_session *session, unsigned ordinal, struct flyt_error *err)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    const unsigned n = self->current[ordinal];
    struct waiting *waiting = self->waiting[ordinal];
    if (!waiting || !waiting[n].pages_count || waiting[n].is_begun)
        return 0;
    CUresult result =
        flyt_page_reader_begin(&self->page_readers[ordinal], n, waiting[n].ranges, waiting[n].range_count);
    if (result != CUDA_SUCCESS)
        return driver_failed(err, ordinal, result);
    waiting[n].is_begun = true;
    self->current[ordinal] = (n + 1) % BATCHES;
    return 0;
}

/* Compares what was begun with batch n, if anything was; nothing waits there then. */
static int compare_begun(struct flyt_session *session, unsigned ordinal, unsigned n, struct flyt_error *err)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    struct flyt_page_reader *page_reader = &self->page_readers[ordinal];
    struct waiting *waiting = self->waiting[ordinal] ? &self->waiting[ordinal][n] : NULL;
    if (!waiting || !waiting->is_begun)
        return 0;
    CUresult result = flyt_page_reader_finish(page_reader, n);
    if (result != CUDA_SUCCESS)
        return driver_failed(err, ordinal, result);
    const unsigned wrong_count = count_wrong(&page_reader->batches[n], waiting), pages_count = waiting->pages_count;
    self->compared_count += pages_count;
    clear(waiting);
    return wrong_count
               ? flyt_error_set(err, -EIO,
                                "device %u: what arrived differs: of %u pages of memory %u are not what was copied",
                                ordinal, pages_count, wrong_count)
               : 0;
}

/* All GPUs are at what is left at the same time. */
static int compare_rest(struct flyt_session *session, struct flyt_error *err)
{
    const struct flyt_arrived_pages *self = session->prepare->arrived;
    int status = 0;
    for (unsigned i = 0; i < FLYT_DEVICES_MAX && !status; i++)
        status = begin_waiting(session, i, err);
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        for (unsigned n = 0; n < BATCHES && !status; n++) /* the one that was begun first, first */
            status = compare_begun(session, i, (self->current[i] + n) % BATCHES, err);
    return status;
}

/* Adds pages, as many as there is room for, which there is. Returns how many. */
static uint64_t add(struct waiting *waiting, uint64_t address, uint64_t page_count, const struct flyt_page_hash *hashes)
{
    const uint64_t room = FLYT_PAGE_BATCH_PAGES_MAX - waiting->pages_count;
    const uint64_t count = page_count < room ? page_count : room;
    waiting->ranges[waiting->range_count++] = (struct flyt_page_range){address, count};
    memcpy(waiting->hashes + waiting->pages_count, hashes, count * sizeof *hashes);
    waiting->pages_count += (uint32_t)count;
    return count;
}

int flyt_arrived_pages_compare(struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                               uint64_t address, uint64_t page_count, const struct flyt_page_hash *hashes,
                               struct flyt_error *err)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    const unsigned ordinal = (unsigned)flyt_window_device(address);
    if (!self || !is_there(self, adopted, address, page_count * FLYT_PAGE_BYTES))
        return flyt_error_set(err, -EBADMSG, "the state tells of %llu pages of memory that was not made here",
                              (unsigned long long)page_count);
    int status = use_page_reader(session, ordinal, err);
    for (uint64_t done = 0; done < page_count && !status;) {
        const struct waiting *full = &self->waiting[ordinal][self->current[ordinal]];
        if (full->pages_count == FLYT_PAGE_BATCH_PAGES_MAX || full->range_count == RANGES_MAX)
            status = begin_waiting(session, ordinal, err);
        const unsigned n = self->current[ordinal];
        if (!status)
            status = compare_begun(session, ordinal, n, err);
        if (!status)
            done += add(&self->waiting[ordinal][n], address + done * FLYT_PAGE_BYTES, page_count - done, hashes + done);
    }
    return status;
}

int flyt_arrived_pages_end(struct flyt_session *session, const struct flyt_adopted_extents *adopted,
                           struct flyt_error *err)
{
    const struct flyt_arrived_pages *self = session->prepare->arrived;
    uint64_t page_count = 0;
    if (!self || !self->has_key)
        return 0;
    int status = compare_rest(session, err);
    if (status)
        return status;
    for (size_t i = 0; i < adopted->count; i++)
        page_count += adopted->extents[i].extent.bytes / FLYT_PAGE_BYTES;
    return self->compared_count == page_count
               ? 0
               : flyt_error_set(err, -EIO,
                                "what arrived cannot be told: %llu pages of memory are here, and %llu were compared",
                                (unsigned long long)page_count, (unsigned long long)self->compared_count);
}

void flyt_arrived_pages_free(struct flyt_session *session)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    for (unsigned i = 0; self && i < FLYT_DEVICES_MAX; i++)
        flyt_page_reader_close(&self->page_readers[i]);
    if (self)
        session->current_device = NULL;
    flyt_arrived_pages_fini(session);
}

void flyt_arrived_pages_fini(struct flyt_session *session)
{
    struct flyt_arrived_pages *self = session->prepare->arrived;
    if (self) {
        explicit_bzero(&self->key, sizeof self->key);
        explicit_bzero(&self->keys, sizeof self->keys);
    }
    for (unsigned i = 0; self && i < FLYT_DEVICES_MAX; i++)
        free(self->waiting[i]);
    free(self);
    session->prepare->arrived = NULL;
}
