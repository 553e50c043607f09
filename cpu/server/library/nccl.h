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

/* A communicator that NCCL has made. */
struct flyt_nccl_made {
    void *real;
    char *name; /* of malloc; NCCL keeps the pointer. NULL: none */
    bool blocks;
    unsigned device;
};

/* false: there is one of that id, or no memory. Else the name is the communicator's, and ends with it. */
bool flyt_nccl_comm_add(uint64_t id, const struct flyt_nccl_made *made);
/* Whether calls return when they are done. True of an unknown one. */
bool flyt_nccl_comm_blocks(uint64_t id);
/* NULL: unknown. */
void *flyt_nccl_comm_find(uint64_t id);
/* A communicator that stays until it is left; `real` is NULL where it is unknown. For calls that return at once. */
struct flyt_nccl_use {
    uint64_t id;
    void *real;
};
struct flyt_nccl_use flyt_nccl_comm_use(uint64_t id);
void flyt_nccl_comm_leave(struct flyt_nccl_use *use);
#define flyt_auto_nccl_use __attribute__((cleanup(flyt_nccl_comm_leave))) struct flyt_nccl_use
/* The communicator, whose id is unknown from now on, when nobody uses it any more; `real` is NULL where it was unknown.
 * The name is the caller's, to be freed when the communicator has ended. */
struct flyt_nccl_made flyt_nccl_comm_take(uint64_t id);
/* An operation of the communicator is done with: it was handed to the library, or refused. */
void flyt_nccl_comm_count(uint64_t id);
/* Whether so many are. True of an unknown one. */
bool flyt_nccl_comm_has_done(uint64_t id, uint64_t count);

/* The communicator ends, and with it the buffers that were registered with it (nccl_register.c). */
void flyt_nccl_registrations_drop(uint64_t comm_id);

/* Before NCCL is loaded: which networks it may use. */
void flyt_nccl_set_environment(void);

#endif
