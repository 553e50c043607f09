/*
 * What the client knows of the program's communicators, beside their handles: which were made together and from which,
 * with what, so that families whose ranks are all in this program can be made again at another server (nccl_again.c).
 * And how far each rank is: an operation waits on the GPU until every rank has made its own, maybe by another thread.
 * While some ranks lack one the server's stop waits (cpu/client/library/again.h).
 *
 * One mutex guards all of it; it is never held while a call is made of the program's channel.
 */
#ifndef FLYT_LIBRARY_CLIENT_NCCL_KIN_H
#define FLYT_LIBRARY_CLIENT_NCCL_KIN_H

#include <pthread.h>

#include "cpu/library/nccl.h"
#include "rpc/library/nccl_family.h"

/* A call that gave a communicator something: an operator, or a registered buffer. */
struct nccl_kept {
    struct nccl_kept *next;
    const struct flyt_lib_row *row;
    uint64_t number;
    bool is_lost; /* another server has not given it again, which NCCL allows of buffers */
    size_t bytes;
    unsigned char arguments[];
};

/* Messages to and from each rank. */
struct nccl_messages {
    uint64_t sent[FLYT_NCCL_HOME_RANKS_MAX], received[FLYT_NCCL_HOME_RANKS_MAX];
};

/* One rank's part in an order that makes communicators; by a split it may get none. */
struct nccl_member {
    struct nccl_member *next;
    struct nccl_birth *birth;
    struct nccl_member *parent;
    struct flyt_nccl_order order; /* `comm` is its handle */
    uint64_t number;              /* of the object that the handle stands for */
    bool has_comm, is_live, is_finalized;
    unsigned split_count;
    int rank; /* negative: not known yet */
    uint64_t collective_count;
    struct nccl_messages *messages; /* NULL: none */
    struct nccl_kept *kept;
    /* Of nccl_again.c: under which id it is made again; operations of it that come again by themselves. */
    uint64_t again_id, waiting_count;
};

/* What was made together: the ranks of a family, or by one split of each rank of a birth. */
struct nccl_birth {
    struct nccl_birth *next, *root, *parent;
    unsigned split_number;
    struct flyt_nccl_family family; /* of a root */
    struct nccl_member *members;
    unsigned member_count;
    bool is_held;
};

struct nccl_kin {
    pthread_mutex_t mutex;
    struct nccl_birth *first; /* parents before what comes of them */
    bool is_incomplete;       /* there was no memory to write something down */
};
extern struct nccl_kin flyt_nccl_kin;

/* A list of orders is about to be sent; its reply has come, which says of each whether it has made one: to be called
 * while that is written down; and it is over. */
void flyt_nccl_orders_begin(const void *orders, size_t bytes);
void flyt_nccl_orders_note(const void *orders, size_t bytes, const int32_t *made, int status);
void flyt_nccl_orders_end(void);
/* The same of a group of operations, `stride` bytes apart, with how the group has ended. */
void flyt_nccl_ops_begin(const struct flyt_nccl_op *first, size_t stride, size_t count);
void flyt_nccl_ops_end(const struct flyt_nccl_op *first, size_t stride, size_t count, int status);
/* The communicator has been given something of that number; and has it no more. */
void flyt_nccl_keep(uint64_t comm, const struct flyt_lib_row *row, uint64_t number, const void *arguments,
                    size_t bytes);
void flyt_nccl_let_go(uint64_t comm, const struct flyt_lib_row *row, uint64_t number);
/* Whether the server has it not, though the program does. */
bool flyt_nccl_has_lost(uint64_t comm, const struct flyt_lib_row *row, uint64_t number);

/* The program has its communicator. */
bool flyt_nccl_is_there(const struct nccl_member *member);
/* All ranks have made theirs. */
bool flyt_nccl_is_complete(const struct nccl_birth *birth);

/* For another server. */
struct flyt_restore;
int flyt_nccl_again(struct flyt_restore *restore);

#endif
