/*
 * Constants to and from which the program copies by their names alone (cudaMemcpyToSymbol), for the sources of this
 * library: what the host has written is kept, and written again at a server that takes over after another one's death,
 * where they may be at other addresses.
 *
 * Such a constant has an address that this library mints, outside of every address space: nobody but flyt_copy
 * understands it. Copies to and from the host that wait go by the constant's name. Kept is, byte by byte, what was
 * written last and no more: FLYT_CONSTANT_BYTES_MAX of a library on a device. With any other copy the constant is lost:
 * the server is told (library_symbol), nothing is kept from its answer on, it is not replaced any more, and copies go
 * by the true address, as when the program is told that.
 */
#ifndef FLYT_CLIENT_CONSTANT_H
#define FLYT_CLIENT_CONSTANT_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_library;
struct flyt_restore;
struct flyt_stream;
struct flyt_variable;

/* Whether the address is one that was minted here. */
static inline bool flyt_constant_is(uint64_t address)
{
    return address >> 63;
}

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

/* Begins to keep what is written to a variable that is not entered yet, and mints its address; its bytes are known.
 * False: no memory, or the library has more than is kept. The caller holds the lock of variables. */
bool flyt_constant_keep_locked(const struct flyt_library *library, struct flyt_variable *variable);
/* Frees what is kept of it; NULL is kept of others. The caller holds the lock of variables. */
void flyt_constant_forget_locked(struct flyt_variable *variable);
/* Writes to the constant at a new server what it had at S (restore.h). `library_id`: the one on its device. The caller
 * holds the lock of variables. 0, or the error, which is then also in restore->err. */
int flyt_constant_restore_locked(struct flyt_restore *restore, uint64_t library_id,
                                 const struct flyt_variable *variable);

#endif
