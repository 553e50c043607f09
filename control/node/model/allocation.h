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

/* What an order makes of an allocation: not before it is written. */
enum flyt_node_change_stage {
    FLYT_NODE_CHANGE_BEGINNING,
    FLYT_NODE_CHANGE_WAITING,   /* for servers to give back memory; until the timer */
    FLYT_NODE_CHANGE_CREATING,  /* there was none: it is written */
    FLYT_NODE_CHANGE_CHANGING,  /* what it is to be on its devices is written */
    FLYT_NODE_CHANGE_REPLACING, /* what it is to be on other devices is written: no program begins meanwhile */
};

struct flyt_node_change {
    enum flyt_node_change_stage stage;
    flyt_allocation wanted;
};

struct flyt_node_removal;

struct flyt_node_allocation {
    struct flyt_node_allocation *next;
    struct flyt_node *node;
    flyt_allocation now; /* as applied; owned */
    struct flyt_node_slot slots[FLYT_SLOTS_MAX];
    struct flyt_ledger *locked_ledger; /* what its sessions have page-locked, by their ids; NULL: none was wanted yet */
    unsigned due;                      /* by subscriber: it is to hear an event of this one (events.h) */
    unsigned session_count;
    bool is_removed;                   /* goes with its last session, and what that had */
    struct flyt_node_removal *removal; /* the order that waits for that; NULL: none */
    uint64_t tokens_mil;               /* thousandths of programs that may begin now */
    uint64_t tokens_ms;                /* when that was true */
    struct flyt_node_change *pending;  /* an order that is not carried out yet (order.h); NULL: none */
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
/*
 * The ledger of what the VM's sessions may have page-locked together (settings' vm.memory_host), with an entry for the
 * session, which it has until it is freed. NULL: that is not bounded, there can be none, or servers of before a restart
 * may still bring it.
 */
struct flyt_ledger *flyt_node_allocation_locked_ledger(struct flyt_node_allocation *allocation, uint64_t session_id);
/* What the setting says now (vm.memory_host, live); without a ledger nothing. */
void flyt_node_allocation_set_locked_limit(const struct flyt_node_allocation *allocation);
/* A server of before a restart has brought it back; fd stays the caller's. Nothing where there is one. */
void flyt_node_allocation_take_locked_ledger(struct flyt_node_allocation *allocation, int fd);
/* Whether sessions may be made: all ledgers are there. */
bool flyt_node_allocation_is_complete(const struct flyt_node_allocation *allocation);

/* Its sessions, those included whose servers ran before a restart of the node manager and may still come back, and that
 * have ended while their memory has not (charge.h). */
unsigned flyt_node_allocation_sessions(const struct flyt_node_allocation *allocation);

/* Servers of before a restart that may still come back. */
unsigned flyt_node_allocation_absent(const struct flyt_node_allocation *allocation);

/* A session has begun; one has ended, which is an event. */
void flyt_node_allocation_join(struct flyt_node_allocation *allocation);
void flyt_node_allocation_leave(struct flyt_node_allocation *allocation);

/* Fills the slots of a session of an allocation that is as `as` says. */
void flyt_node_allocation_fill(const struct flyt_node *node, const flyt_allocation *as,
                               struct flyt_manager_link_session *session);

/* Without an order's frame: allocations that the store does not know. */
void flyt_node_allocation_set_orphan(struct flyt_node *node, struct flyt_node_allocation *allocation);
/* What the state file is to have of it: what an order makes of it, when that is about to be written, or what it is. */
const flyt_allocation *flyt_node_allocation_to_write(const struct flyt_node_allocation *allocation);
/* Whether it is about to be on other devices: no program begins until it is. */
bool flyt_node_allocation_is_replaced(const struct flyt_node_allocation *allocation);
/* Whether it is not written yet that there is one: nobody is told of it. */
bool flyt_node_allocation_is_hidden(const struct flyt_node_allocation *allocation);
/* Whether a change of it is being written: another order waits behind that. */
bool flyt_node_allocation_is_being_written(const struct flyt_node_allocation *allocation);
/* An order's groups as a bit map of FLYT_MANAGER_LINK_GROUP_BYTES bytes. */
void flyt_node_slot_read_groups(const flyt_slot *from, unsigned char *groups);
/* The SMs of a slot's groups; as they were ordered where the GPU's groups are not known yet. */
unsigned flyt_node_slot_sms(const struct flyt_node_slot *slot, const flyt_slot *ordered);
/* Whether the entries of this id stay though their session has ended. */
bool flyt_node_charge_stays(const struct flyt_node *node, uint64_t entry_id);
/* Who the VM's entry in its ledgers is for, in place of a server. */
uint64_t flyt_node_allocation_shared_entry(const struct flyt_node_allocation *allocation);

#endif
