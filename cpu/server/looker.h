/*
 * What hashes memory of a session that is about to go on here, where it lies (page_hasher.h): device memory of its own,
 * the kernel, and one batch, in a stream on the session's SMs of a device.
 *
 * Before there is a session: none of it is charged to the VM, and it goes before the session comes. One thread at a
 * time for a device.
 */
#ifndef FLYT_SERVER_LOOKER_H
#define FLYT_SERVER_LOOKER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/page_hasher.h"

struct flyt_session;

/* All zero: it is not made. */
struct flyt_looker {
    struct flyt_session *session;
    unsigned ordinal;
    bool is_made;
    CUstream cu_stream;
    CUmemGenericAllocationHandle memory;
    bool has_memory;
    CUdeviceptr address; /* where it is mapped; reserved for ever */
    uint64_t bytes;
    struct flyt_page_hasher hasher;
    struct flyt_page_batch batch;
};

/* Makes the session's SMs of a device current, of which the contexts are there, and a stream on them where *cu_stream
 * is NULL. The driver's error. */
CUresult flyt_looker_use(const struct flyt_session *session, unsigned ordinal, CUstream *cu_stream);
/* pages_max: of one batch, 1 to FLYT_PAGE_BATCH_PAGES_MAX. Takes tens of milliseconds. The driver's error; it is to be
 * closed then, too. */
CUresult flyt_looker_open(struct flyt_looker *looker, struct flyt_session *session, unsigned ordinal,
                          uint32_t pages_max, const struct flyt_page_key *key);
/* Another key from now on, as flyt_page_hasher_set_key. The driver's error. */
CUresult flyt_looker_set_key(struct flyt_looker *looker, const struct flyt_page_hash_keys *keys);
/* Hashes the pages, behind the event unless it is NULL, and waits for that; then flyt_page_batch_seen tells of each.
 * The driver's error. */
CUresult flyt_looker_look(struct flyt_looker *looker, const struct flyt_page_range *ranges, uint32_t range_count,
                          CUevent after);
/* Frees everything, when it has done what it was given. A zeroed one may be given. */
void flyt_looker_close(struct flyt_looker *looker);

#endif
