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
struct flyt_nccl_kin;
struct flyt_nccl_order;

/* A communicator that NCCL has made. */
struct flyt_nccl_made {
    void *real;
    char *name; /* of malloc; NCCL keeps the pointer. NULL: none */
    bool blocks;
    bool is_finalized;
    struct flyt_nccl_kin *kin; /* its family (nccl_stay.c) */
    uint64_t done_count;       /* operations of it that are done with */
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
 * The name is the caller's, to be freed when the communicator has ended; and it is to leave its family. */
struct flyt_nccl_made flyt_nccl_comm_take(uint64_t id);
/* An operation of the communicator is done with: it was handed to the library, or refused. */
void flyt_nccl_comm_count(uint64_t id);
/* Whether so many are. True of an unknown one. */
bool flyt_nccl_comm_has_done(uint64_t id, uint64_t count);

/* It is finalized; its family is spoilt. Nothing happens to an unknown one. */
void flyt_nccl_comm_finalize(uint64_t id);
void flyt_nccl_comm_spoil(uint64_t id);

/* The communicator ends, and with it the buffers that were registered with it, and its operators (nccl_register.c). */
void flyt_nccl_registrations_drop(uint64_t comm_id);
/* NCCL's number of an operator: itself, or of one of the program's. Negative: there is none of that number. */
int flyt_nccl_real_op(uint64_t comm_id, int op);

/* ---- what stands against moving (nccl_stay.c) ----
 *
 * Communicators whose family (rpc/library/nccl_family.h) is not whole in this session, or spoilt; those that are
 * finalized; unique ids that nobody has used yet. */

/* The family that a communicator has come into: of the order's unique ids, or that of what it was made from (NULL: that
 * is gone). NULL: no memory. */
struct flyt_nccl_kin *flyt_nccl_kin_come(const struct flyt_nccl_order *order, struct flyt_nccl_kin *parent);
/* A communicator of it has ended; is_spoilt: in a way that leaves the others useless. */
void flyt_nccl_kin_leave(struct flyt_nccl_kin *kin, bool was_finalized, bool is_spoilt);
void flyt_nccl_kin_spoil(struct flyt_nccl_kin *kin);
void flyt_nccl_kin_finalize(struct flyt_nccl_kin *kin);
/* The program has a unique id of this server's; it has used those of an order. */
void flyt_nccl_id_given(const void *id);
void flyt_nccl_ids_used(const struct flyt_nccl_order *order);
/* By how many there are more than at the last call. */
int flyt_nccl_staying_change(void);

/* Before NCCL is loaded: which networks it may use. */
void flyt_nccl_set_environment(void);

#endif
