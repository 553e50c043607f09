/*
 * Copies and fills without the checks and the waits of those that the program asks for (copy.h): between memory of this
 * process, which is pageable, and device memory that the caller knows to be an allocation.
 */
#ifndef FLYT_CLIENT_COPY_RAW_H
#define FLYT_CLIENT_COPY_RAW_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_copy;
struct flyt_fill;
struct flyt_stream;

/* The memory has been read when it returns. */
CUresult flyt_copy_raw_in(struct flyt_stream *stream, uint64_t address, const void *data, uint64_t bytes);
/* The memory has been written when it returns, or, is_async, when the stream was waited for. */
CUresult flyt_copy_raw_out(struct flyt_stream *stream, void *ret_data, uint64_t address, uint64_t bytes, bool is_async);
/* Fills bytes with a value, asynchronously. */
CUresult flyt_fill_raw(struct flyt_stream *stream, uint64_t address, unsigned char value, uint64_t bytes);

/* Sends what names memory that is shared with that server, in the stream's order. CUDA_ERROR_NOT_READY: the session has
 * gone on at another one, and nothing is sent. */
CUresult flyt_copy_send_shared(struct flyt_stream *stream, uint64_t server,
                               CUresult (*send)(struct flyt_stream *stream, const void *what, uint64_t *ret_sequence),
                               const void *what);

/* ---- of graphs ---- */

/* Finds out where the sides are, and checks them as flyt_copy does; what is copied of constants has true addresses
 * then. A box without bytes is CUDA_ERROR_INVALID_VALUE. */
CUresult flyt_copy_check(struct flyt_copy *copy);
/* A copy that was checked, asynchronously: its host memory, pageable too, is read or written when the stream reaches
 * it. Not between memory of the host. */
CUresult flyt_copy_of_graph(struct flyt_stream *stream, const struct flyt_copy *copy);
/* The same check of a fill. */
CUresult flyt_fill_check(const struct flyt_fill *fill, bool *ret_is_host);
/* One of device memory, and memory operations, each checked before. */
CUresult flyt_fill_of_graph(struct flyt_stream *stream, const struct flyt_fill *fill);
CUresult flyt_memory_ops_of_graph(struct flyt_stream *stream, unsigned count, const CUstreamBatchMemOpParams *ops);
/* Between memory of the host, or a fill of it, which a thread of this library's does when the stream reaches it. */
CUresult flyt_copy_host_later(struct flyt_stream *stream, const struct flyt_copy *copy);
CUresult flyt_fill_host_later(struct flyt_stream *stream, const struct flyt_fill *fill);

#endif
