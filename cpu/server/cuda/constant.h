/*
 * Variables that the client library copies to and from by their names (cudaMemcpyToSymbol): the program does not have
 * their addresses. Of constants it keeps what it writes (constant_write), and writes it again at a server that takes
 * over, wherever they are there. So these stand against replacing this one (replaceable.h) only when they are copied to
 * or from in another way.
 *
 * The submission thread.
 */
#ifndef FLYT_SERVER_CONSTANT_H
#define FLYT_SERVER_CONSTANT_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_library;
struct flyt_session;

/* Of a session; those beyond it count as if the program had been told their addresses. */
enum { FLYT_CONSTANT_PLACES_MAX = 1024 };

struct flyt_constant_place {
    const struct flyt_library *library;
    uint64_t address, bytes;
    unsigned device;
    int64_t symbol;   /* its place in the library's table; negative: that does not know it */
    bool is_constant; /* else it is a variable, which stands against replacing by itself */
    bool is_kept;     /* the client was asked to keep what it writes there */
};

/* All zero: none. */
struct flyt_constants {
    struct flyt_constant_place *places; /* FLYT_CONSTANT_PLACES_MAX, or NULL */
    unsigned count;
};

/* The variable or constant that was asked for by its name alone and has this address in it. NULL: none. */
const struct flyt_constant_place *flyt_constant_find(const struct flyt_session *session, uint64_t address);
/* A call other than constant_write and constant_read names the address, or is about to write device memory there. Of a
 * constant that the client keeps it does not know the address: the program has it from elsewhere. */
void flyt_constant_note_used(struct flyt_session *session, uint64_t address);
void flyt_constant_note_written(struct flyt_session *session, uint64_t address);
/* library_symbol has told the client of this place. is_offered: it would keep what it writes there. Whether it is to.
 */
bool flyt_constant_note_place(struct flyt_session *session, const struct flyt_constant_place *found, bool is_offered);
/* The library is no more. */
void flyt_constant_forget(struct flyt_session *session, const struct flyt_library *library);
/* Frees what is in host memory. */
void flyt_constant_fini(struct flyt_session *session);

#endif
