/*
 * How the servers of a VM agree, without a lock, that they never have more memory together than its limit: the shared
 * words of a ledger (ledger.h), and the steps of a claim over them. Apart from ledger.c so that its test can play all
 * orders in which the steps of several claimants can come.
 *
 * Whoever wants memory announces it in its own word, and looks at everybody's words only then:
 *  1. It writes what it wants into its claim.
 *  2. It adds up what all have and what all claim. Within the limit: it adds its claim to what it has, then clears it.
 *  3. What all have is too much already: it clears its claim and is refused.
 *  4. Only the claims of others stand in its way: who has a lower place goes first. Who sees such a claim takes its own
 *     back until there is none; the others wait. A claim lasts about as long as it takes to add the words up.
 *
 * Two claimants cannot both overlook the other: of two that were granted the one that announced last has seen the
 * other's claim, or what became of it (an entry's claim is read before what it has, and cleared after that was added
 * to). Who dies or stops in any step leaves words that are true: what it claims counts until it goes on or its entry is
 * reclaimed. Nobody waits for it longer than FLYT_LEDGER_RETRY_MS.
 */
#ifndef FLYT_BASE_LEDGER_CLAIM_H
#define FLYT_BASE_LEDGER_CLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rpc/base/ledger.h"
#include "rpc/base/shared.h"

/* For the test: before each step that others can see. */
#ifndef FLYT_LEDGER_STEP
#define FLYT_LEDGER_STEP() ((void)0)
#endif

/* Free where server_id is 0. Each word is true by itself. */
struct flyt_ledger_entry {
    _Atomic(uint64_t) server_id;
    _Atomic(uint64_t) claimed_bytes; /* asked for at this moment */
    _Atomic(uint64_t) used_bytes;
    _Atomic(uint64_t) reserve_bytes;
    _Atomic(uint64_t) cached_bytes; /* its server's alone */
    /* Of reserve_bytes, as its server estimates them: what the driver has, and what it will take. */
    _Atomic(uint64_t) present_bytes, ahead_bytes;
    uint64_t reserved[1];
};

/* What is shared. */
struct flyt_ledger_shared {
    struct flyt_shared head;
    _Atomic(uint64_t) limit_bytes;
    _Atomic(uint64_t) limit_revision;
    _Atomic(uint64_t) peak_bytes;
    _Atomic(uint64_t) refused_count;
    _Atomic(uint64_t) claimed_bytes; /* by the node manager for a server: before all places */
    uint64_t reserved[9];
    struct flyt_ledger_entry entries[FLYT_LEDGER_ENTRIES_MAX];
};
_Static_assert(offsetof(struct flyt_ledger_shared, limit_bytes) == 16, "ledger layout");
_Static_assert(offsetof(struct flyt_ledger_shared, entries) == 128, "ledger layout");
_Static_assert(sizeof(struct flyt_ledger_entry) == 64, "ledger layout");
_Static_assert(sizeof(_Atomic(uint64_t)) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "ledger layout");

/* Loads of claims and limits, and stores of them, have one order that all see (seq_cst): what the rule rests on. */
static inline uint64_t flyt_ledger_load(const _Atomic(uint64_t) *word)
{
    FLYT_LEDGER_STEP();
    return atomic_load(word);
}

static inline void flyt_ledger_store(_Atomic(uint64_t) *word, uint64_t value)
{
    FLYT_LEDGER_STEP();
    atomic_store(word, value);
}

static inline uint64_t flyt_ledger_plus(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

/* Adds to a word that somebody else may take from at this moment; not above UINT64_MAX. */
static inline void flyt_ledger_add(_Atomic(uint64_t) *word, uint64_t bytes)
{
    FLYT_LEDGER_STEP();
    uint64_t has = atomic_load(word);
    while (!atomic_compare_exchange_weak(word, &has, flyt_ledger_plus(has, bytes)))
        ;
}

/* Takes from it; not below 0. Returns what it was. */
static inline uint64_t flyt_ledger_subtract(_Atomic(uint64_t) *word, uint64_t bytes)
{
    FLYT_LEDGER_STEP();
    uint64_t has = atomic_load(word);
    while (!atomic_compare_exchange_weak(word, &has, has > bytes ? has - bytes : 0))
        ;
    return has;
}

struct flyt_ledger_sum {
    uint64_t had_bytes;    /* used and reserved, of all */
    uint64_t before_bytes; /* claimed by those who go before the claimant */
    uint64_t behind_bytes; /* by those behind it; not its own */
};

/* `own`: the word of the claimant's claim, or NULL. */
static inline struct flyt_ledger_sum flyt_ledger_add_up(const struct flyt_ledger_shared *shared,
                                                        const _Atomic(uint64_t) *own)
{
    struct flyt_ledger_sum sum = {0};
    bool is_behind = own == &shared->claimed_bytes;

    if (!is_behind)
        sum.before_bytes = flyt_ledger_load(&shared->claimed_bytes);
    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++) {
        const struct flyt_ledger_entry *entry = &shared->entries[i];
        if (!atomic_load_explicit(&entry->server_id, memory_order_acquire))
            continue;
        /* The claim first: it goes over into one of the others, which are added to before it is cleared. */
        if (own == &entry->claimed_bytes) {
            is_behind = true;
        } else {
            uint64_t *to = is_behind ? &sum.behind_bytes : &sum.before_bytes;
            *to = flyt_ledger_plus(*to, flyt_ledger_load(&entry->claimed_bytes));
        }
        uint64_t used_bytes = flyt_ledger_load(&entry->used_bytes);
        sum.had_bytes =
            flyt_ledger_plus(sum.had_bytes, flyt_ledger_plus(used_bytes, flyt_ledger_load(&entry->reserve_bytes)));
    }
    return sum;
}

/* Waits a little. Whether it is worth to look again. */
typedef bool (*flyt_ledger_wait_fn)(void *user);

/*
 * Claims `bytes`, not 0, in the word `own`, and adds them to the word `to` of the same entry (of any, for the node
 * manager). Whether they are granted; else nothing has changed but the count of refusals.
 */
static inline bool flyt_ledger_claim(struct flyt_ledger_shared *shared, _Atomic(uint64_t) *own, _Atomic(uint64_t) *to,
                                     uint64_t bytes, flyt_ledger_wait_fn wait, void *user)
{
    uint64_t had_before = 0;

    flyt_ledger_store(own, bytes);
    for (unsigned looks = 0;; looks++) {
        const uint64_t limit_bytes = flyt_ledger_load(&shared->limit_bytes);
        const struct flyt_ledger_sum sum = flyt_ledger_add_up(shared, own);
        const uint64_t total = flyt_ledger_plus(sum.had_bytes, bytes);
        const uint64_t all = flyt_ledger_plus(total, flyt_ledger_plus(sum.before_bytes, sum.behind_bytes));
        if (all <= limit_bytes) {
            uint64_t peak_bytes = atomic_load(&shared->peak_bytes);
            while (all > peak_bytes && !atomic_compare_exchange_weak(&shared->peak_bytes, &peak_bytes, all))
                ;
            flyt_ledger_add(to, bytes);
            flyt_ledger_store(own, 0);
            return true;
        }
        bool is_over = total > limit_bytes, is_first = looks == 0;
        /* What one gave back and another took while it was added up counts twice: it is believed when it stays so. */
        if (is_over && !is_first && sum.had_bytes == had_before)
            break;
        had_before = sum.had_bytes;
        if (is_over && is_first)
            continue;
        if (sum.before_bytes)
            flyt_ledger_store(own, 0);
        bool goes_on = wait(user);
        while (goes_on && sum.before_bytes && flyt_ledger_add_up(shared, own).before_bytes)
            goes_on = wait(user);
        if (!goes_on)
            break;
        if (sum.before_bytes)
            flyt_ledger_store(own, bytes);
    }
    flyt_ledger_store(own, 0);
    atomic_fetch_add(&shared->refused_count, 1);
    return false;
}

#endif
