/*
 * Constants to and from which the program copies by their names alone (cudaMemcpyToSymbol), for the sources of this
 * library: what the host has written is kept, and written again at a server that takes over after another one's death,
 * where they may be at other addresses.
 *
 * Such a constant has an address that this library mints, outside of every address space (flyt_range_is_minted): nobody
 * but flyt_copy understands it. Copies to and from the host that wait go by the constant's name. Kept is, byte by byte,
 * what was written last and no more: FLYT_CONSTANT_BYTES_MAX of a library on a device. With any other copy the constant
 * is lost: the server is told (library_symbol), nothing is kept from its answer on, it is not replaced any more, and
 * copies go by the true address, as when the program is told that.
 */
#ifndef FLYT_CLIENT_CONSTANT_H
#define FLYT_CLIENT_CONSTANT_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_library;
struct flyt_variable;

/* A copy to a constant that is not known to be executed. Those of one constant do not overlap: their order does not
 * matter. */
struct flyt_constant_change {
    struct flyt_constant_change *next;
    struct flyt_constant *constant; /* NULL: it is lost, or gone. Under the lock of variables */
    uint64_t offset_bytes, bytes;
    uint64_t sequence; /* the channel writes it; 0: not sent yet */
    unsigned char data[];
};

struct flyt_constant {
    struct flyt_constant_change *writes;
    uint64_t bytes;            /* of the variable */
    unsigned char *is_written; /* by byte; what is not is the image's */
    unsigned char contents[];
};

/* Begins to keep what is written to a variable that is not entered yet, and mints its address; its bytes are known.
 * False: no memory, or the library has more than is kept. The caller holds the lock of variables. */
bool flyt_constant_keep_locked(const struct flyt_library *library, struct flyt_variable *variable);
/* Frees what is kept of it; NULL is kept of others. The caller holds the lock of variables. */
void flyt_constant_forget_locked(struct flyt_variable *variable);

/* Enters what a change has written, into contents and what of them is written. */
void flyt_constant_put(unsigned char *contents, unsigned char *is_written, const struct flyt_constant_change *change);

#endif
