/*
 * Copies to and from constants by their names (constant.h).
 */
#ifndef FLYT_CLIENT_CONSTANT_COPY_H
#define FLYT_CLIENT_CONSTANT_COPY_H

#include <stdint.h>
#include <cuda.h>

struct flyt_stream;

/*
 * A copy of `bytes` from `data`, by its name, and waits for it. CUDA_ERROR_NOT_READY: nothing was done, because the
 * constant is lost, another copy to the same bytes is under way, or there is no memory; it has to go by its true
 * address (flyt_constant_lose). Else what the copy returns.
 */
CUresult flyt_constant_write(struct flyt_stream *stream, uint64_t address, const void *data, uint64_t bytes);
/* The same from the constant: CUDA_ERROR_NOT_READY when it is lost. */
CUresult flyt_constant_read(struct flyt_stream *stream, uint64_t address, void *data, uint64_t bytes);
/* No copy goes by its name from now on, and once the server has answered nothing of it is kept; *in_out_address, a
 * minted one, becomes the true one. What the question to the server returns, and CUDA_ERROR_INVALID_VALUE: it is gone.
 */
CUresult flyt_constant_lose(uint64_t *in_out_address);

#endif
