/*
 * Allocations that this node holds: their state as ordered, a memory ledger and SM groups for each slot, and their
 * sessions. What changes them is in order.h, their SM groups in groups.h.
 */
#ifndef FLYT_NODE_ALLOCATION_H
#define FLYT_NODE_ALLOCATION_H

#include <stdbool.h>
#include <stdint.h>

#include "control/node/model/node.h"
#include "rpc/base/ledger.h"
#include "rpc/transport/manager_link.h"

struct flyt_node_slot {
    struct flyt_node_gpu *gpu;  /* NULL: the node has it no more */
    struct flyt_ledger *ledger; /* NULL: servers of before a restart have it, and may still bring it */
    unsigned char groups[FLYT_MANAGER_LINK_GROUP_BYTES];  /* that were ordered */
    unsigned char holding[FLYT_MANAGER_LINK_GROUP_BYTES]; /* these and those that have not been vacated */
    unsigned sm_count_now;
    flyt_switch_state switch_state;
    uint64_t groups_revision;
    /* The other side of a migration, whose groups nobody else is given (migration.h): before its commit the GPU where
     * it is to go on, afterwards the one that is left. NULL: there is none. */
    struct flyt_node_gpu *held_gpu;
    unsigned char held[FLYT_MANAGER_LINK_GROUP_BYTES];
    unsigned over_looks; /* in a row its servers had more than the limit (memory_watch.h) */
    bool is_over;        /* more is in use than its limit and what may be missed by (reserve.h) */
};

struct flyt_node_pending;
struct flyt_node_removal;

struct flyt_node_allocation {
    struct flyt_node_allocation *next;
    struct flyt_node *node;
    flyt_allocation now; /* as applied; owned */
    struct flyt_node_slot slots[FLYT_SLOTS_MAX];
    unsigned session_count;
    bool is_removed;                   /* goes with its last session, and what that had */
    struct flyt_node_removal *removal; /* the order that waits for that; NULL: none */
    uint64_t tokens_mil;               /* thousandths of programs that may begin now */
    uint64_t tokens_ms;                /* when that was true */
    struct flyt_node_pending *pending; /* an order that is not carried out yet (order.h); NULL: none */
    const flyt_allocation *becoming; /* what is written of it, though it is not so yet (migration.h); NULL: `now` is */
    unsigned stayed_count; /* sessions that have ended, and are charged for what other processes have (charge.h) */
    unsigned checkpointed_count; /* of its sessions, in images (checkpointed.h) */
    struct {
        struct flyt_node_server *first, **last; /* its servers, by their `watched_next` */
        bool is_unsettled;
    } watched; /* while what all of them have is looked at (memory_watch.h) */
};

struct flyt_node_allocation *flyt_node_allocation_find(const struct flyt_node *node, uint64_t id);
/* From the state file, or as a server that came back describes it. Takes over the parts of *allocation where it
 * succeeds. 0 or a negative errno. */
int flyt_node_allocation_add(struct flyt_node *node, flyt_allocation *allocation,
                             struct flyt_node_allocation **ret_allocation);
/* Frees it; it has no sessions. Its ledgers leave the descriptor store where is_final. */
void flyt_node_allocation_free(struct flyt_node *node, struct flyt_node_allocation *allocation, bool is_final);

/* Begins anew with the devices of `now`, which has no programs: ledgers are let go of, groups as they were ordered. */
void flyt_node_allocation_set_up(struct flyt_node *node, struct flyt_node_allocation *allocation);

/* Makes the ledgers that are not there. 0 or a negative errno. */
int flyt_node_allocation_make_ledgers(struct flyt_node *node, struct flyt_node_allocation *allocation);
/* Those that a server brought back, ledger_count descriptors by slot, which stay the caller's. 0; -ESTALE: there are
 * others by now; another negative errno. */
int flyt_node_allocation_take_ledgers(struct flyt_node *node, struct flyt_node_allocation *allocation, const int *fds,
                                      unsigned count);
/* Whether sessions may be made: all ledgers are there. */
bool flyt_node_allocation_is_complete(const struct flyt_node_allocation *allocation);

/* Its sessions, those included whose servers ran before a restart of the node manager and may still come back, and that
 * have ended while their memory has not (charge.h). */
unsigned flyt_node_allocation_sessions(const struct flyt_node_allocation *allocation);

/* Servers of before a restart that may still come back. */
unsigned flyt_node_allocation_absent(const struct flyt_node_allocation *allocation);

/* Whether one more program may begin besides waiting_count of the VM's that wait (state, sessions), and of any VM
 * promised_count that wait for a server of its first GPU (GPUs, client slots). Servers that may still come back are not
 * counted: who would be one too many with them waits until that is known. 0; -EBUSY, -ENODEV or -EACCES and one
 * sentence in *err. */
int flyt_node_allocation_check(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                               unsigned waiting_count, unsigned promised_count, struct flyt_error *err);
/* Of that the GPUs and their client slots alone: for a program that runs. 0; -EBUSY or -ENODEV. */
int flyt_node_allocation_check_room(const struct flyt_node *node, const struct flyt_node_allocation *allocation,
                                    unsigned promised_count, struct flyt_error *err);
/* One that passed that begins: takes one from the VM's attach rate. 0; -EBUSY, and one sentence in *err. */
int flyt_node_allocation_pace(const struct flyt_node *node, struct flyt_node_allocation *allocation,
                              struct flyt_error *err);
/* A session has begun or ended. An allocation that was removed may be freed by the latter. */
void flyt_node_allocation_join(struct flyt_node_allocation *allocation);
void flyt_node_allocation_leave(struct flyt_node *node, struct flyt_node_allocation *allocation);
/* Something of it has ended: goes on with what waits for that, or frees it where it was removed and nothing is left. */
void flyt_node_allocation_look(struct flyt_node *node, struct flyt_node_allocation *allocation);

/* Fills the slots of a session of an allocation that is as `as` says. */
void flyt_node_allocation_fill(const struct flyt_node *node, const flyt_allocation *as,
                               struct flyt_manager_link_session *session);

/* What has come of it; *ret_use owns nothing but its slots (FLYT_SLOTS_MAX in `slots`) and its outcome's text, which
 * is `text` (malloc'ed or NULL, taken over). */
void flyt_node_allocation_use(const struct flyt_node_allocation *allocation, flyt_status status, char *text,
                              flyt_allocation_use *ret_use);

/* Without an order's frame: allocations that the store does not know. */
void flyt_node_allocation_set_orphan(struct flyt_node *node, struct flyt_node_allocation *allocation);

#endif
