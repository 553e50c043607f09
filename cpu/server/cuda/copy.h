/*
 * Copies between host and device memory, within device memory, and memory_set. Data travels packed: the rows of a box
 * one behind the other, without what its pitch leaves between them.
 */
#ifndef FLYT_SERVER_COPY_H
#define FLYT_SERVER_COPY_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cpu/server/core/pieces.h"
#include "flyt.h"

struct flyt_call;
struct flyt_device;
struct flyt_session;
struct flyt_stream;

/* One range of memory, as a box of one row. */
static inline flyt_box flyt_box_line(uint64_t address, uint64_t bytes)
{
    return (flyt_box){
        .address = address, .width_bytes = bytes, .height = 1, .depth = 1, .pitch_bytes = bytes, .slice_bytes = bytes};
}

/*
 * Whether a box lies in one allocation, or one array, of the session; *ret_bytes is what it holds, packed (0: it is
 * empty), *ret_device where it is. CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, or CUDA_ERROR_INVALID_HANDLE: no such array.
 */
CUresult flyt_box_check(struct flyt_session *session, const flyt_box *box, uint64_t *ret_bytes,
                        struct flyt_device **ret_device);

/* The same bytes in the same order with as few slices and rows as can be: a box that has no gaps is one row. The box
 * was checked, and is not empty. */
flyt_box flyt_box_simplify(const flyt_box *box);

/* Of a box for a driver call that copies three dimensions at once: whether it has no gaps; rows between the beginnings
 * of two slices, 0 where that is no whole number of rows; and the pitch. */
bool flyt_box_is_packed(const flyt_box *box);
uint64_t flyt_box_rows_apart(const flyt_box *box);
uint64_t flyt_box_pitch(const flyt_box *box);

/* A copy between a box and packed host memory, in pieces of as much as one driver call takes. */
struct flyt_box_copy {
    struct flyt_pieces pieces; /* left: bytes */
    flyt_box box;
    char *host;            /* for what is left */
    uint64_t offset_bytes; /* of what is left, in the packed box */
    bool to_device;
};

/*
 * The copy of `bytes` of the packed box, from offset_bytes on, between `host`, which stays the caller's, and the
 * device. The box was checked and is on `device`; the range lies in it. Nothing is submitted yet.
 */
struct flyt_box_copy flyt_box_copy_begin(struct flyt_device *device, const flyt_box *box, void *host,
                                         uint64_t offset_bytes, uint64_t bytes, bool to_device);

/*
 * Copies packed `data` of data_bytes into the box, in the stream's order: what copy_in does. The data has been read
 * when it returns. CUDA_SUCCESS; FLYT_CALL_RETRY: later; FLYT_CALL_STARTED: a job submits it, piece by piece;
 * CUDA_ERROR_INVALID_VALUE: the box, or data of another length or of more than FLYT_INLINE_BYTES_MAX; the driver's
 * error.
 */
CUresult flyt_copy_in(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *dst, void *data,
                      uint64_t data_bytes);

/*
 * Reads the box, in the stream's order, and answers the call with it, packed, as copy_out does. FLYT_CALL_STARTED: the
 * answer comes later; CUDA_SUCCESS: the box is empty; FLYT_CALL_RETRY: later; CUDA_ERROR_INVALID_VALUE: the box, or
 * more than FLYT_INLINE_BYTES_MAX; CUDA_ERROR_OUT_OF_MEMORY; the driver's error.
 */
CUresult flyt_copy_out(struct flyt_call *call, struct flyt_stream *stream, const flyt_box *src);

#endif
