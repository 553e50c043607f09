/*
 * The memory ledger of one device slot of an allocation: how much of a GPU's memory the servers of a VM may have
 * together, and how much each has, in memory that they share (a memfd). Any number of processes and threads.
 *
 * One entry for each server, because a process may be killed at any instruction: what it has is one word, and the sum
 * is always computed anew, never stored. There is no lock, and nobody who stops, dies or writes rubbish stops others
 * for longer than FLYT_LEDGER_RETRY_MS: how several charge at once is in ledger_claim.h. What a dead server had is
 * taken back by flyt_ledger_reclaim when the memory is known to be gone.
 *
 * The servers of one VM, and the node manager, can write all of it; those of other VMs have none of it. A server that
 * lies here spoils its own VM's account, and what it has in truth the node manager knows from the memory that it holds
 * and from NVML. The node manager alone sets limits and makes, moves and takes back entries; it never waits.
 */
#ifndef FLYT_BASE_LEDGER_H
#define FLYT_BASE_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

enum {
    FLYT_LEDGER_ENTRIES_MAX = 124, /* servers of a VM on one GPU: more than MPS has clients */
    FLYT_LEDGER_RETRY_MS = 100,    /* so long the claim of one that does not go on is waited for: then it counts */
};

struct flyt_ledger;

/* A new one, without entries, with this limit in bytes. 0 or a negative errno. */
int flyt_ledger_new(uint64_t limit_bytes, struct flyt_ledger **ret_ledger);
/* The ledger in a descriptor that was handed over, which stays the caller's. 0; -EBADMSG: it is none, or may still be
 * cut short; -EPROTO: it is one of a build that keeps ledgers in another way; another negative errno. */
int flyt_ledger_open(int fd, struct flyt_ledger **ret_ledger);
/* Closes this process's view of it. NULL is allowed. Returns NULL. */
struct flyt_ledger *flyt_ledger_close(struct flyt_ledger *ledger);
/* To be handed over; the ledger's. */
int flyt_ledger_fd(const struct flyt_ledger *ledger);

/* Each of these: 0, or what is said there. server_id is not 0 and unique among those that live. */

/* Makes an entry. Only one process does so at a time. -EEXIST: there is one; -ENOSPC: no more entries. */
int flyt_ledger_join(struct flyt_ledger *ledger, uint64_t server_id);
/* Takes `bytes` for the server. -ENOMEM: beyond the limit, nothing has changed (it is counted); -ENOENT: no entry. */
int flyt_ledger_charge(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes);
/* The same by the node manager, for a server that does not charge by itself at this moment. Never waits: what others
 * claim just now counts. */
int flyt_ledger_charge_for(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes);
/* Gives them back. -ERANGE: more than the server has; -ENOENT. */
int flyt_ledger_release(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes);
/* Sets what the server has besides what it charged: what the driver takes for modules and libraries. -ENOMEM: beyond
 * the limit (only when it rises); -ENOENT. */
int flyt_ledger_reserve(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes);
/* The same, by so much more or less; never less than what was charged ahead. -ENOMEM: beyond the limit; -ENOENT. */
int flyt_ledger_reserve_change(struct flyt_ledger *ledger, uint64_t server_id, int64_t change_bytes);
/* What the server estimates of that: what the driver has taken by now, and what it was charged ahead of being taken
 * (local memory, heaps, buffers). Nothing of it where it was never said. Only the server itself calls it: before less
 * is reserved, and after more is. */
void flyt_ledger_set_estimate(struct flyt_ledger *ledger, uint64_t server_id, uint64_t present_bytes,
                              uint64_t ahead_bytes);
/* Sets it to what was measured: it is taken already, so that it counts whatever the limit is. What was charged ahead
 * stays: of `bytes`, what is more than the server estimates to be there counts for that. *ret_used_bytes and
 * *ret_limit_bytes: of all, afterwards. -ENOENT. */
int flyt_ledger_reserve_measured(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes,
                                 uint64_t *ret_used_bytes, uint64_t *ret_limit_bytes);
/* How much of what the server has charged it keeps for later and would give back: to be told as free. Only the server
 * itself calls it. */
void flyt_ledger_set_cached(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes);
/* Takes back the whole entry of a server that is gone; *ret_bytes (may be NULL) is what it had. -ENOENT. */
int flyt_ledger_reclaim(struct flyt_ledger *ledger, uint64_t server_id, uint64_t *ret_bytes);
/* What the server has charged, and what is reserved for it, as the node manager knows it, whatever stands there; makes
 * the entry where there is none. It counts whatever the limit is. -ENOSPC: no more entries. */
int flyt_ledger_mend(struct flyt_ledger *ledger, uint64_t server_id, uint64_t charged_bytes, uint64_t reserved_bytes);
/*
 * The entry of server_id, which is gone, becomes that of another one, which has none: `bytes` of memory that outlived
 * the first are charged to it, nothing is reserved, nothing cached. Nobody sees the sum without them, or with them
 * twice. -ENOENT; -EEXIST: the other has an entry. Who dies inside leaves it to either of them, with as much charged.
 */
int flyt_ledger_move(struct flyt_ledger *ledger, uint64_t server_id, uint64_t other_id, uint64_t bytes);
/*
 * A new limit and its revision. Below what is in use: -EBUSY, unless when_free: then nothing more is granted until so
 * much was given back, and the limit that holds sinks with what is in use. *ret_used_bytes (may be NULL) is set in
 * every case; what is claimed at this moment counts. -ESTALE: the revision is lower than the last one.
 */
int flyt_ledger_set_limit(struct flyt_ledger *ledger, uint64_t limit_bytes, uint64_t revision, bool when_free,
                          uint64_t *ret_used_bytes);

struct flyt_ledger_state {
    uint64_t limit_bytes;   /* that was set */
    uint64_t holding_bytes; /* that holds now: more than limit_bytes where it is still sinking */
    uint64_t limit_revision;
    uint64_t used_bytes;     /* charged and reserved, of all */
    uint64_t reserved_bytes; /* of these: what drivers take for themselves */
    uint64_t cached_bytes;   /* of these: kept for later, at most used_bytes */
    uint64_t peak_bytes;
    uint64_t refused_count;
    unsigned entry_count;
};

/* Never waits; what is in use may be off by what is charged at this moment. Who has set the limit is told that one, and
 * it holds again where a server has written over it. */
void flyt_ledger_read(const struct flyt_ledger *ledger, struct flyt_ledger_state *ret_state);
/* What one server has, 0 without an entry. Never waits. */
uint64_t flyt_ledger_used(const struct flyt_ledger *ledger, uint64_t server_id);
/* Of that, what it has charged, and what is reserved for it. */
uint64_t flyt_ledger_charged(const struct flyt_ledger *ledger, uint64_t server_id);
uint64_t flyt_ledger_reserved(const struct flyt_ledger *ledger, uint64_t server_id);
/* The servers that have entries, into ret_ids (FLYT_LEDGER_ENTRIES_MAX). Returns how many. Never waits. */
unsigned flyt_ledger_list(const struct flyt_ledger *ledger, uint64_t *ret_ids);
/* The peak begins anew with what is in use. */
void flyt_ledger_forget_peak(struct flyt_ledger *ledger);

#endif
