/*
 * What hashes memory of a session that is about to go on here, where it lies (page_hasher.h): device memory of its own,
 * the kernel, and one batch or two, in a stream on the session's SMs of a device. With two the GPU is at one while the
 * other is made, or looked through.
 *
 * Before there is a session: none of it is charged to the VM, and it goes before the session comes. One thread at a
 * time for a device.
 */
#ifndef FLYT_SERVER_PAGE_READER_H
#define FLYT_SERVER_PAGE_READER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/move/common/page_hasher.h"

struct flyt_session;

enum { FLYT_LOOKER_BATCHES_MAX = 2 };

/* All zero: it is not made. */
struct flyt_page_reader {
    struct flyt_session *session;
    unsigned ordinal;
    bool is_made;
    CUstream cu_stream;
    CUmemGenericAllocationHandle memory;
    bool has_memory;
    CUdeviceptr address; /* where it is mapped; reserved for ever */
    uint64_t bytes;
    struct flyt_page_hasher hasher;
    unsigned batch_count;
    struct flyt_page_batch batches[FLYT_LOOKER_BATCHES_MAX];
    CUevent ends[FLYT_LOOKER_BATCHES_MAX]; /* each batch's: its results are there */
};

/* Makes the session's SMs of a device current, of which the contexts are there, and a stream on them where *cu_stream
 * is NULL. The driver's error. */
CUresult flyt_page_reader_use(const struct flyt_session *session, unsigned ordinal, CUstream *cu_stream);
/* batch_count: 1 or 2; pages_max: of each, 1 to FLYT_PAGE_BATCH_PAGES_MAX. Takes tens of milliseconds. The driver's
 * error; it is to be closed then, too. */
CUresult flyt_page_reader_open(struct flyt_page_reader *page_reader, struct flyt_session *session, unsigned ordinal,
                               unsigned batch_count, uint32_t pages_max, const struct flyt_page_key *key);
/* Another key from now on, as flyt_page_hasher_set_key. The driver's error. */
CUresult flyt_page_reader_set_key(struct flyt_page_reader *page_reader, const struct flyt_page_hash_keys *keys);
/* Begins to hash the pages with batch n, of which nothing is on the GPU. The driver's error. */
CUresult flyt_page_reader_begin(struct flyt_page_reader *page_reader, unsigned n, const struct flyt_page_range *ranges,
                                uint32_t range_count);
/* Waits for that; then flyt_page_batch_seen tells of each. The driver's error. */
CUresult flyt_page_reader_finish(struct flyt_page_reader *page_reader, unsigned n);
/* Both with the first batch, and behind the event unless it is NULL. */
CUresult flyt_page_reader_look(struct flyt_page_reader *page_reader, const struct flyt_page_range *ranges,
                               uint32_t range_count, CUevent after);
/* Frees everything, when it has done what it was given. A zeroed one may be given. */
void flyt_page_reader_close(struct flyt_page_reader *page_reader);

#endif
