/*
 * Copies and fills without the checks and the waits of those that the program asks for (copy.h): between memory of this
 * process, which is pageable, and device memory that the caller knows to be an allocation.
 */
#ifndef FLYT_CLIENT_COPY_RAW_H
#define FLYT_CLIENT_COPY_RAW_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_stream;

/* The memory has been read when it returns. */
CUresult flyt_copy_raw_in(struct flyt_stream *stream, uint64_t address, const void *data, uint64_t bytes);
/* The memory has been written when it returns, or, is_async, when the stream was waited for. */
CUresult flyt_copy_raw_out(struct flyt_stream *stream, void *ret_data, uint64_t address, uint64_t bytes, bool is_async);
/* Fills bytes with a value, asynchronously. */
CUresult flyt_fill_raw(struct flyt_stream *stream, uint64_t address, unsigned char value, uint64_t bytes);

#endif
