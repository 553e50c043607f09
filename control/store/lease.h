/*
 * Who leads: of several managers on one store, at most one at a time, by a lease document (meta/lease: holder, address,
 * epoch, renewed, and this run's instance). No wall clock is trusted. The holder counts lease_ms on its own
 * CLOCK_BOOTTIME from before a renewal was sent, and has ended by itself when they have passed without a confirmed one.
 * A contender takes over when it has seen the same revision of the document for lease_ms and 1/16 more (clocks may
 * differ in speed by that) on its own clock, counted from after it was read, by compare and set on that revision. Each
 * taking raises the epoch, which nodes check; that catches what no clock can (a stopped clock, a late packet).
 *
 * On a store that is not shared there is no contender: taking it succeeds at once, raises the epoch as any other, and
 * never runs out.
 *
 *                      step: released, own, or unchanged (absent) for long enough: put (epoch + 1) is OK
 *      WATCHING ────────────────────────────────────────────────────────────────────────► LEADING
 *         ▲  ▲                                                                               │ │
 *         │  └────────── lease_ms since the last confirmed renewal was sent (by itself) ◄────┘ │
 *         └───────────── step: another one's document is there; release ◄──────────────────────┘
 *
 * flyt_lease_step, _release and _free belong to the store's thread; the others may be called from any thread at any
 * time. A store that is shared is best one of the lease's own, with a thread of its own: no other work, however long,
 * holds up a renewal. Nothing depends on the order of a lease's steps and of writes over another connection: what a
 * leader writes after its time is stopped by the revisions that its successor has raised, not by the lease.
 */
#ifndef FLYT_CONTROL_LEASE_H
#define FLYT_CONTROL_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "control/store/store.h"

struct flyt_lease;

enum { FLYT_LEASE_NAME_BYTES_MAX = 255 };

/* No epoch that somebody claims goes beyond: documents hold numbers exactly up to 2^53, and each leader adds one. */
#define FLYT_EPOCH_MAX (1ull << 52)

enum flyt_lease_state {
    FLYT_LEASE_WATCHING, /* another one leads, or nobody does, or it is not known */
    FLYT_LEASE_LEADING,
};

struct flyt_lease_config {
    struct flyt_store *store; /* borrowed */
    const char *holder;       /* this manager's name; copied */
    const char *address;      /* where programs reach it: what others tell them; copied */
    uint64_t lease_ms;        /* e.g. 5000: at least two renewals and the store's time-out */
    uint64_t renew_ms;        /* e.g. 1000: how often the holder renews */
    /* Milliseconds that only ever rise, asked from any thread. NULL: CLOCK_BOOTTIME. */
    uint64_t (*now_ms)(void *user);
    void *user;
};

/* What was last known. */
struct flyt_lease_view {
    enum flyt_lease_state state;
    uint64_t epoch; /* own while LEADING, else of the document last seen; 0: none */
    char holder[FLYT_LEASE_NAME_BYTES_MAX + 1];
    char address[FLYT_LEASE_NAME_BYTES_MAX + 1]; /* empty: nobody leads, as far as is known */
    /* LEADING: until it ends by itself; UINT64_MAX: never. WATCHING: until a step may take it, if the document stays as
     * it was last seen; UINT64_MAX: it was not seen yet. */
    uint64_t left_ms;
};

/* Nothing is asked of the store yet. 0, -EINVAL (names longer than FLYT_LEASE_NAME_BYTES_MAX, times of 0) or -ENOMEM.
 */
int flyt_lease_new(const struct flyt_lease_config *config, struct flyt_lease **ret_lease);
/* Does not release. NULL is allowed. Returns NULL. */
struct flyt_lease *flyt_lease_free(struct flyt_lease *lease);

/*
 * Does what is due: looks, takes or renews. Call it every renew_ms (sooner does nothing but look once more; the first
 * call at once). Blocks as the store does. What the store said is returned, with *err; NOT_FOUND and CONFLICT are never
 * returned, they are ordinary here. UNAVAILABLE and UNKNOWN: call it again, at once where that is UNKNOWN.
 * Becoming leader or ceasing to be is seen in flyt_lease_view, or in the epoch: every taking has another one.
 */
enum flyt_store_result flyt_lease_step(struct flyt_lease *lease, struct flyt_error *err);
/* Whether this manager leads now. False from the moment on that its time has passed, whatever any thread does: ask
 * again after everything that may have taken long, and before sending. */
bool flyt_lease_is_leader(const struct flyt_lease *lease);
/* The epoch under which it leads; 0 while it does not. */
uint64_t flyt_lease_epoch(const struct flyt_lease *lease);
void flyt_lease_get_view(struct flyt_lease *lease, struct flyt_lease_view *ret_view);
/* The next step looks who has the lease, before it renews: somebody says that another one leads. Any thread. */
void flyt_lease_look(struct flyt_lease *lease);
/* A node has persisted this epoch (it refused a lower one): the next taking goes beyond it. Above FLYT_EPOCH_MAX it is
 * none. Any thread. */
void flyt_lease_raise_epoch(struct flyt_lease *lease, uint64_t epoch);
/* Stops leading, first here, then in the store, so that another one need not wait. OK where it did not lead. */
enum flyt_store_result flyt_lease_release(struct flyt_lease *lease, struct flyt_error *err);

#endif
