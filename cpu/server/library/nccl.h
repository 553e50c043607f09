/*
 * NCCL's communicators on the server: a table of its own, by the ids that the client has minted, for a call may make
 * and end several, and one that is to be aborted is in use by a thread that hangs. Every function may be called from
 * any thread.
 */
#ifndef FLYT_SERVER_LIBRARY_NCCL_H
#define FLYT_SERVER_LIBRARY_NCCL_H

#include <stdbool.h>
#include <stdint.h>

struct flyt_libcall;

/* false: there is one of that id, or no memory. */
bool flyt_nccl_comm_add(uint64_t id, void *real);
/* NULL: unknown. */
void *flyt_nccl_comm_find(uint64_t id);
/* The same, and the id is unknown from now on. */
void *flyt_nccl_comm_take(uint64_t id);
/* An operation of the communicator is done with: it was handed to the library, or refused. */
void flyt_nccl_comm_count(uint64_t id);
/* Whether so many are. True of an unknown one. */
bool flyt_nccl_comm_has_done(uint64_t id, uint64_t count);

/* The communicator ends, and with it the buffers that were registered with it (nccl_register.c). */
void flyt_nccl_registrations_drop(uint64_t comm_id);

/* Before NCCL is loaded: which networks it may use. */
void flyt_nccl_set_environment(void);

#endif
