/*
 * Hashes pages of device memory (rpc/base/page_hash.h) where they are, at the speed of the memory: one kernel
 * (page_hash.ptx, which is in this program), asynchronously in a stream that the caller gives. On the software GPU,
 * where the kernel does 0.6 GB/s and the CPU itself ten times that, the CPU hashes what the driver copies to it.
 *
 * A hasher has the key of one migration; its batches share it. A batch is one launch at a time: submit, wait until its
 * stream has come that far, finish, take the results. There are two kinds of results and two types for them, because
 * the difference is what migration rests on (page_table.h):
 *
 * - flyt_page_seen: what a page contained at some time between submission and finish. It may change right after, or
 *   meanwhile. It says what differs from what was sent, never what was sent.
 * - flyt_page_sent: what is in a copy of the page that was made with it: the bytes that were hashed and no others,
 *   whatever became of the page meanwhile. This, and only this, may be kept for a page, once the copy is where it was
 *   sent to.
 *
 * All device memory is the caller's: it is none of the program's and must not be moved with it. The calls that submit
 * need a context of the device current, that of the stream, and one thread at a time for a hasher and its batches.
 */
#ifndef FLYT_SERVER_PAGE_HASHER_H
#define FLYT_SERVER_PAGE_HASHER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/server/core/driver.h"
#include "rpc/base/page_hash.h"

/* Device memory of a hasher, for its key words. */
#define FLYT_PAGE_HASHER_BYTES 131072ull

/* Of one batch at most: 4 GiB. */
enum { FLYT_PAGE_BATCH_PAGES_MAX = 65536 };

/* Neighbouring pages, which begin at a multiple of FLYT_PAGE_BYTES. */
struct flyt_page_range {
    uint64_t address;
    uint64_t pages_count;
};

struct flyt_page_seen {
    struct flyt_page_hash hash;
    bool is_zero;
};

struct flyt_page_sent {
    struct flyt_page_hash hash;
    bool is_zero;
};

struct flyt_page_hasher {
    const struct flyt_driver *driver;
    bool is_native; /* the CPU hashes: the driver is the software GPU */
    CUlibrary cu_library;
    CUkernel cu_kernel;
    uint64_t device_keys;
    struct flyt_page_hash_keys *keys; /* page-locked, as what follows */
    unsigned char *pages;             /* is_native: what is being hashed */
};

/*
 * Loads the kernel (own_kernel.h), makes the key words and copies them in the
 * stream, which every stream that hashes must come after. device_memory: FLYT_PAGE_HASHER_BYTES on the device of the
 * current context, aligned to 256; it is the hasher's until flyt_page_hasher_fini. The driver's error, or
 * CUDA_ERROR_OUT_OF_MEMORY; the hasher can be finished then, too.
 */
CUresult flyt_page_hasher_init(struct flyt_page_hasher *hasher, const struct flyt_driver *driver, CUdevice cu_device,
                               const struct flyt_page_key *key, uint64_t device_memory, CUstream cu_stream);
/* Another key from now on, in place of the first one, which nothing on the GPU reads any more: its key words, which are
 * copied, and are made once for all hashers. The driver's error. */
CUresult flyt_page_hasher_set_key(struct flyt_page_hasher *hasher, const struct flyt_page_hash_keys *keys,
                                  CUstream cu_stream);
/* No work of it is on the GPU any more; its batches are finished. Wipes the key words on the host; those on the device
 * are for the caller to clear. A zeroed one may be given. */
void flyt_page_hasher_fini(struct flyt_page_hasher *hasher);

/* The hash that every all-zero page has under this hasher's key. */
struct flyt_page_hash flyt_page_hasher_zero(const struct flyt_page_hasher *hasher);

struct flyt_page_batch {
    struct flyt_page_hasher *hasher;
    uint64_t device_memory;
    uint32_t pages_max, pages_count;
    uint64_t copies;   /* where the copies are, one behind the other, or 0 */
    uint64_t distance; /* of each copy from its page, modulo 2^64, or 0 */
    bool is_submitted, is_finished;
    CUstream cu_stream;
    void *results; /* page-locked: as the device memory is laid out */
    /* The caller's, set between init and the first submission: recorded in the stream before and behind what takes SMs,
     * with nothing else in between. NULL: neither. */
    CUevent begin, hashed;
};

/* Device memory of a batch: hashes, addresses, flags. */
#define FLYT_PAGE_BATCH_BYTES(pages_max) ((uint64_t)(pages_max)*25)

/* pages_max: 1 to the limit above; device_memory: FLYT_PAGE_BATCH_BYTES of it, aligned to 256, the batch's until it is
 * finished. CUDA_ERROR_INVALID_VALUE, or the driver's error; it can be finished then, too. */
CUresult flyt_page_batch_init(struct flyt_page_batch *batch, struct flyt_page_hasher *hasher, uint32_t pages_max,
                              uint64_t device_memory);
void flyt_page_batch_fini(struct flyt_page_batch *batch);

/*
 * Hashes all pages of the ranges, in the stream. sms_count: of the stream's context. Nothing waits on the host. When
 * the stream has reached this point, flyt_page_batch_finish and then flyt_page_batch_seen give the results.
 * CUDA_ERROR_INVALID_VALUE: no pages, more pages than fit, or an address or an sms_count that cannot be; else the
 * driver's error, and there are no results.
 */
CUresult flyt_page_batch_look(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                              unsigned sms_count, CUstream cu_stream);

/*
 * The same, and copies the pages, one behind the other, to `copies`: device memory that the GPU can write, on this
 * device or on a peer, aligned to 16, of FLYT_PAGE_BYTES for each page. When the stream has reached this point,
 * flyt_page_batch_finish and then flyt_page_batch_sent tell what is in it: the copies must be left unchanged until
 * they have been sent from there.
 */
CUresult flyt_page_batch_copy(struct flyt_page_batch *batch, const struct flyt_page_range *ranges, uint32_t range_count,
                              uint64_t copies, unsigned sms_count, CUstream cu_stream);

/*
 * The same, and copies each page to its address plus `distance` (modulo 2^64; a multiple of FLYT_PAGE_BYTES other than
 * 0), where the GPU can write as many bytes, of none of the pages: so pages that are scattered become those of a mirror
 * of the memory. flyt_page_batch_sent tells what was written, which must be left unchanged by anybody else.
 */
CUresult flyt_page_batch_copy_at(struct flyt_page_batch *batch, const struct flyt_page_range *ranges,
                                 uint32_t range_count, uint64_t distance, unsigned sms_count, CUstream cu_stream);

/* The stream has reached the last submission, which succeeded: its results can be taken from now on. With a GPU this
 * is nothing; with the software GPU it hashes, and waits for the stream. The driver's error: there are no results. */
CUresult flyt_page_batch_finish(struct flyt_page_batch *batch);

/*
 * Of page n, in the order of the ranges, of the last submission, which is finished. Each is for one of the two ways to
 * submit only: the wrong one, a page too far, or a batch that is not finished is a broken invariant.
 */
struct flyt_page_seen flyt_page_batch_seen(const struct flyt_page_batch *batch, uint32_t n);
struct flyt_page_sent flyt_page_batch_sent(const struct flyt_page_batch *batch, uint32_t n);

#endif
