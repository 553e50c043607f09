/*
 * Small variables and constants of a session that comes to be here (load.h), of which there may be thousands while its
 * program stands still: they are written from one page-locked buffer, one behind the other and without waiting, and
 * read back into another one, waited for and compared when that is full, or at the end. Large ones are not for this.
 *
 * Before there is a session; one thread.
 */
#ifndef FLYT_SERVER_LOAD_VARIABLES_H
#define FLYT_SERVER_LOAD_VARIABLES_H

#include <cuda.h>
#include <stdint.h>

#include "rpc/base/error.h"

struct flyt_session;

enum {
    FLYT_LOAD_VARIABLES_BYTES_MAX = 32768, /* of a piece: larger ones take longer to copy than to wait for */
    FLYT_LOAD_VARIABLES_ROOM = 524288,     /* of each buffer */
    FLYT_LOAD_VARIABLES_PIECES_MAX = 256,  /* that wait at a time */
};

struct flyt_load_piece {
    CUdeviceptr address;
    uint64_t offset_bytes, bytes; /* in the buffers */
    unsigned ordinal;
    char *symbol; /* owned */
};

/* All zero but for the session: nothing waits, and there are no buffers. */
struct flyt_load_variables {
    struct flyt_session *session;
    unsigned char *written, *read; /* page-locked; NULL: not made yet */
    uint64_t used_bytes;
    struct flyt_load_piece pieces[FLYT_LOAD_VARIABLES_PIECES_MAX];
    unsigned count;
};

/* Where so many bytes (1 to FLYT_LOAD_VARIABLES_BYTES_MAX), which go to the address, are to be put: good until the next
 * call. What waits is settled before, where there is no room, or the address is written already. Functions return 0, or
 * a negative errno with a sentence: -ENOMEM; -EIO: the driver's error, or what is there is not what was written. */
int flyt_load_variables_room(struct flyt_load_variables *variables, CUdeviceptr address, uint64_t bytes,
                             unsigned char **ret_place, struct flyt_error *err);
/* They are there: begins to write them, and keeps what they are. The device's context is current. symbol: for
 * sentences. */
int flyt_load_variables_write(struct flyt_load_variables *variables, unsigned ordinal, CUdeviceptr address,
                              uint64_t bytes, const char *symbol, struct flyt_error *err);
/* Reads back all that waits, and compares. Another context may be current then. */
int flyt_load_variables_settle(struct flyt_load_variables *variables, struct flyt_error *err);
/* Waits for what is being written, and frees everything; nothing where there is nothing. */
void flyt_load_variables_end(struct flyt_load_variables *variables);

#endif
