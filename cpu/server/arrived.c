#include "cpu/server/arrived.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/looker.h"
#include "cpu/server/session.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

struct flyt_arrived {
    struct flyt_page_key key;
    bool is_key_set[FLYT_DEVICES_MAX];            /* the looker has it */
    bool has_key;                                 /* the state's, which tells of all pages then */
    uint64_t compared_count;                      /* pages, since the key came */
    struct flyt_looker lookers[FLYT_DEVICES_MAX]; /* by ordinal */
};

static struct flyt_arrived *make(struct flyt_session *session)
{
    if (!session->prepare.arrived)
        session->prepare.arrived = calloc(1, sizeof *session->prepare.arrived);
    return session->prepare.arrived;
}

/* ---- what hashes ---- */

static CUresult open_looker(struct flyt_session *session, unsigned ordinal)
{
    struct flyt_arrived *self = session->prepare.arrived;
    session->current_device = NULL;
    self->is_key_set[ordinal] = true;
    if (flyt_fault_point("prepare.looker") == FLYT_FAULT_ERROR)
        return CUDA_ERROR_UNKNOWN;
    return flyt_looker_open(&self->lookers[ordinal], session, ordinal, FLYT_PAGE_BATCH_PAGES_MAX, &self->key);
}

void flyt_arrived_make_looker(struct flyt_session *session, unsigned ordinal)
{
    struct flyt_arrived *self = make(session);
    if (!self || self->lookers[ordinal].is_made)
        return;
    CUresult result = open_looker(session, ordinal);
    self->is_key_set[ordinal] = false; /* which has not come */
    if (result == CUDA_SUCCESS)
        return;
    flyt_info("device %u: what is to compare memory cannot be made yet, cuda_result=%d", ordinal, (int)result);
    flyt_looker_close(&self->lookers[ordinal]);
}

static int driver_failed(struct flyt_error *err, unsigned ordinal, CUresult result)
{
    return flyt_error_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -ENOMEM : -EIO,
                          "device %u: what has arrived cannot be compared, cuda_result=%d", ordinal, (int)result);
}

/* With the key. */
static int use_looker(struct flyt_session *session, unsigned ordinal, struct flyt_error *err)
{
    struct flyt_arrived *self = session->prepare.arrived;
    CUresult result = CUDA_SUCCESS;
    session->current_device = NULL;
    if (!self->lookers[ordinal].is_made)
        result = open_looker(session, ordinal);
    else if (!self->is_key_set[ordinal])
        result = flyt_looker_set_key(&self->lookers[ordinal], &self->key);
    self->is_key_set[ordinal] = true;
    return result == CUDA_SUCCESS ? 0 : driver_failed(err, ordinal, result);
}

/* ---- comparing ---- */

int flyt_arrived_begin(struct flyt_session *session, const void *key, struct flyt_error *err)
{
    struct flyt_arrived *self = make(session);
    if (!self)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    memcpy(self->key.bytes, key, sizeof self->key.bytes);
    memset(self->is_key_set, 0, sizeof self->is_key_set);
    self->has_key = true;
    self->compared_count = 0;
    return 0;
}

/* Whether the pages are of one extent, which was made here. */
static bool is_there(const struct flyt_given *given, uint64_t address, uint64_t bytes)
{
    for (size_t i = 0; i < given->count; i++) {
        const struct flyt_server_link_extent *extent = &given->extents[i].extent;
        if (given->extents[i].is_placed && address - extent->address < extent->bytes)
            return bytes <= extent->bytes - (address - extent->address);
    }
    return false;
}

/* As many as fit into one batch. */
static CUresult count_wrong(struct flyt_looker *looker, const struct flyt_page_range *range,
                            const struct flyt_page_hash *hashes, uint64_t *in_out_count)
{
    CUresult result = flyt_looker_look(looker, range, 1, NULL);
    for (uint32_t n = 0; result == CUDA_SUCCESS && n < range->pages_count; n++) {
        const struct flyt_page_hash hash = flyt_page_batch_seen(&looker->batch, n).hash;
        *in_out_count += !flyt_page_hash_is_equal(&hash, &hashes[n]);
    }
    return result;
}

int flyt_arrived_compare(struct flyt_session *session, const struct flyt_given *given, uint64_t address,
                         uint64_t page_count, const struct flyt_page_hash *hashes, struct flyt_error *err)
{
    struct flyt_arrived *self = session->prepare.arrived;
    const unsigned ordinal = (unsigned)flyt_window_device(address);
    uint64_t wrong_count = 0;
    if (!self || !is_there(given, address, page_count * FLYT_PAGE_BYTES))
        return flyt_error_set(err, -EBADMSG, "the state tells of %llu pages of memory that was not made here",
                              (unsigned long long)page_count);
    int status = use_looker(session, ordinal, err);
    for (uint64_t done = 0, count; done < page_count && !status; done += count) {
        count = page_count - done < FLYT_PAGE_BATCH_PAGES_MAX ? page_count - done : FLYT_PAGE_BATCH_PAGES_MAX;
        const struct flyt_page_range range = {address + done * FLYT_PAGE_BYTES, count};
        CUresult result = count_wrong(&self->lookers[ordinal], &range, hashes + done, &wrong_count);
        if (result != CUDA_SUCCESS)
            status = driver_failed(err, ordinal, result);
    }
    if (flyt_fault_point("prepare.arrived") == FLYT_FAULT_ERROR)
        wrong_count = page_count;
    self->compared_count += page_count;
    if (!status && wrong_count)
        status = flyt_error_set(err, -EIO,
                                "device %u: what arrived differs: of %llu pages of memory %llu are not what was copied",
                                ordinal, (unsigned long long)page_count, (unsigned long long)wrong_count);
    return status;
}

int flyt_arrived_end(struct flyt_session *session, const struct flyt_given *given, struct flyt_error *err)
{
    const struct flyt_arrived *self = session->prepare.arrived;
    uint64_t page_count = 0;
    if (!self || !self->has_key)
        return 0;
    for (size_t i = 0; i < given->count; i++)
        page_count += given->extents[i].extent.bytes / FLYT_PAGE_BYTES;
    return self->compared_count == page_count
               ? 0
               : flyt_error_set(err, -EIO,
                                "what arrived cannot be told: %llu pages of memory are here, and %llu were compared",
                                (unsigned long long)page_count, (unsigned long long)self->compared_count);
}

void flyt_arrived_free(struct flyt_session *session)
{
    struct flyt_arrived *self = session->prepare.arrived;
    for (unsigned i = 0; self && i < FLYT_DEVICES_MAX; i++)
        flyt_looker_close(&self->lookers[i]);
    if (self)
        session->current_device = NULL;
    flyt_arrived_fini(session);
}

void flyt_arrived_fini(struct flyt_session *session)
{
    struct flyt_arrived *self = session->prepare.arrived;
    if (self)
        explicit_bzero(&self->key, sizeof self->key);
    free(self);
    session->prepare.arrived = NULL;
}
