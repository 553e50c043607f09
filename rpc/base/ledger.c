#include "rpc/base/ledger.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "rpc/base/clock.h"
#include "rpc/base/ledger_claim.h"
#include "rpc/base/shared.h"

#define MAGIC 0x7267646c74796c66ull /* "flytldgr" */

enum {
    VERSION = 2, /* 1 had a mutex of the C library */
    LEDGER_BYTES = 8192,
    YIELDS = 16, /* a claim is decided in less, unless its process does not run */
    PAUSE_NS = 50000,
};
_Static_assert(sizeof(struct flyt_ledger_shared) <= LEDGER_BYTES, "ledger layout");

struct flyt_ledger {
    int fd;
    struct flyt_ledger_shared *shared;
    pthread_mutex_t claims; /* of this process's threads: an entry has one claim at a time */
    /* What this process has set last, for servers can write over it. */
    bool has_set_limit;
    uint64_t limit_bytes, limit_revision;
};

static uint64_t load(const _Atomic(uint64_t) *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic(uint64_t) *word, uint64_t value)
{
    atomic_store(word, value);
}

/* ---- making and opening ---- */

static int wrap(int fd, struct flyt_shared *shared, struct flyt_ledger **ret_ledger)
{
    struct flyt_ledger *ledger = malloc(sizeof *ledger);

    if (!ledger) {
        flyt_shared_close(fd, shared, LEDGER_BYTES);
        return -ENOMEM;
    }
    *ledger = (struct flyt_ledger){
        .fd = fd, .shared = (struct flyt_ledger_shared *)shared, .claims = PTHREAD_MUTEX_INITIALIZER};
    *ret_ledger = ledger;
    return 0;
}

int flyt_ledger_new(uint64_t limit_bytes, struct flyt_ledger **ret_ledger)
{
    struct flyt_shared *shared;
    int fd, status = flyt_shared_new("flyt-ledger", LEDGER_BYTES, &fd, &shared);

    if (status)
        return status;
    store(&((struct flyt_ledger_shared *)shared)->limit_bytes, limit_bytes);
    shared->count = FLYT_LEDGER_ENTRIES_MAX;
    shared->version = VERSION;
    shared->magic = MAGIC;
    return wrap(fd, shared, ret_ledger);
}

int flyt_ledger_open(int fd, struct flyt_ledger **ret_ledger)
{
    struct flyt_shared *shared;
    int own_fd, status = flyt_shared_open(fd, LEDGER_BYTES, MAGIC, VERSION, &own_fd, &shared);

    return status ? status : wrap(own_fd, shared, ret_ledger);
}

struct flyt_ledger *flyt_ledger_close(struct flyt_ledger *ledger)
{
    if (!ledger)
        return NULL;
    flyt_shared_close(ledger->fd, &ledger->shared->head, LEDGER_BYTES);
    pthread_mutex_destroy(&ledger->claims);
    free(ledger);
    return NULL;
}

int flyt_ledger_fd(const struct flyt_ledger *ledger)
{
    return ledger->fd;
}

/* ---- charging ---- */

static uint64_t sum(const struct flyt_ledger_shared *shared)
{
    return flyt_ledger_add_up(shared, NULL).had_bytes;
}

/* Also finds a free entry: server_id 0. */
static struct flyt_ledger_entry *find(struct flyt_ledger_shared *shared, uint64_t server_id)
{
    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++)
        if (load(&shared->entries[i].server_id) == server_id)
            return &shared->entries[i];
    return NULL;
}

static struct flyt_ledger_entry *find_joined(struct flyt_ledger *ledger, uint64_t server_id)
{
    return server_id ? find(ledger->shared, server_id) : NULL;
}

/* -ENOENT, or -EINVAL where there can be none. */
static int no_entry(uint64_t server_id)
{
    return server_id ? -ENOENT : -EINVAL;
}

struct retry_policy {
    unsigned count;
    uint64_t until_ms;
};

/* For the claims of others to be decided. */
static bool wait_for_claims(void *user)
{
    struct retry_policy *policy = user;

    if (!policy->count)
        policy->until_ms = flyt_clock_ms() + FLYT_LEDGER_RETRY_MS;
    if (policy->count++ < YIELDS) {
        sched_yield();
        return true;
    }
    nanosleep(&(struct timespec){.tv_nsec = PAUSE_NS}, NULL);
    return flyt_clock_ms() < policy->until_ms;
}

static bool wait_briefly(void *user)
{
    struct retry_policy *policy = user;

    sched_yield();
    return policy->count++ < YIELDS;
}

/* Takes so much more into the entry's word. 0 or -ENOMEM. */
static int take(struct flyt_ledger *ledger, struct flyt_ledger_entry *entry, _Atomic(uint64_t) *to, uint64_t bytes)
{
    struct retry_policy policy = {0};

    if (!bytes)
        return 0;
    pthread_mutex_lock(&ledger->claims);
    bool is_granted = flyt_ledger_claim(ledger->shared, &entry->claimed_bytes, to, bytes, wait_for_claims, &policy);
    pthread_mutex_unlock(&ledger->claims);
    return is_granted ? 0 : -ENOMEM;
}

static void raise_peak(struct flyt_ledger_shared *shared, uint64_t bytes)
{
    uint64_t peak_bytes = load(&shared->peak_bytes);

    while (bytes > peak_bytes && !atomic_compare_exchange_weak(&shared->peak_bytes, &peak_bytes, bytes))
        ;
}

static void forget_estimate(struct flyt_ledger_entry *entry)
{
    store(&entry->present_bytes, 0);
    store(&entry->ahead_bytes, 0);
}

static void clear(struct flyt_ledger_entry *entry)
{
    store(&entry->claimed_bytes, 0);
    store(&entry->used_bytes, 0);
    store(&entry->reserve_bytes, 0);
    store(&entry->cached_bytes, 0);
    forget_estimate(entry);
}

int flyt_ledger_join(struct flyt_ledger *ledger, uint64_t server_id)
{
    struct flyt_ledger_shared *shared = ledger->shared;
    struct flyt_ledger_entry *entry = find(shared, 0);

    if (!server_id)
        return -EINVAL;
    if (find(shared, server_id))
        return -EEXIST;
    if (!entry)
        return -ENOSPC;
    clear(entry);
    /* Last: an entry that has an id has its values. */
    store(&entry->server_id, server_id);
    return 0;
}

int flyt_ledger_charge(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    return entry ? take(ledger, entry, &entry->used_bytes, bytes) : no_entry(server_id);
}

int flyt_ledger_charge_for(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);
    struct retry_policy policy = {0};

    if (!entry)
        return no_entry(server_id);
    bool is_granted = !bytes || flyt_ledger_claim(ledger->shared, &ledger->shared->claimed_bytes, &entry->used_bytes,
                                                  bytes, wait_briefly, &policy);
    return is_granted ? 0 : -ENOMEM;
}

int flyt_ledger_release(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry)
        return no_entry(server_id);
    if (bytes > load(&entry->used_bytes))
        return -ERANGE;
    flyt_ledger_subtract(&entry->used_bytes, bytes);
    return 0;
}

int flyt_ledger_reserve(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry)
        return no_entry(server_id);
    uint64_t reserve_bytes = load(&entry->reserve_bytes);
    if (bytes > reserve_bytes)
        return take(ledger, entry, &entry->reserve_bytes, bytes - reserve_bytes);
    flyt_ledger_subtract(&entry->reserve_bytes, reserve_bytes - bytes);
    return 0;
}

int flyt_ledger_reserve_change(struct flyt_ledger *ledger, uint64_t server_id, int64_t change_bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry)
        return no_entry(server_id);
    if (change_bytes > 0)
        return take(ledger, entry, &entry->reserve_bytes, (uint64_t)change_bytes);
    /* What was measured may be less already, and is no reason to give back what the driver is still to take. */
    const uint64_t has_bytes = load(&entry->reserve_bytes), ahead_bytes = load(&entry->ahead_bytes);
    const uint64_t most_bytes = has_bytes > ahead_bytes ? has_bytes - ahead_bytes : 0;
    const uint64_t less_bytes = -(uint64_t)change_bytes;
    flyt_ledger_subtract(&entry->reserve_bytes, less_bytes < most_bytes ? less_bytes : most_bytes);
    return 0;
}

void flyt_ledger_set_estimate(struct flyt_ledger *ledger, uint64_t server_id, uint64_t present_bytes,
                              uint64_t ahead_bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry)
        return;
    store(&entry->present_bytes, present_bytes);
    store(&entry->ahead_bytes, ahead_bytes);
}

/* What a measurement leaves reserved: of what was measured, as much as the server estimates to be there is no sign of
 * what it has charged ahead. */
static uint64_t at_least(const struct flyt_ledger_entry *entry, uint64_t measured_bytes)
{
    const uint64_t present_bytes = load(&entry->present_bytes);
    const uint64_t least_bytes =
        flyt_ledger_plus(load(&entry->ahead_bytes), measured_bytes < present_bytes ? measured_bytes : present_bytes);

    return measured_bytes > least_bytes ? measured_bytes : least_bytes;
}

int flyt_ledger_reserve_measured(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes,
                                 uint64_t *ret_used_bytes, uint64_t *ret_limit_bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry)
        return no_entry(server_id);
    store(&entry->reserve_bytes, at_least(entry, bytes));
    *ret_used_bytes = sum(ledger->shared);
    *ret_limit_bytes = load(&ledger->shared->limit_bytes);
    raise_peak(ledger->shared, *ret_used_bytes);
    return 0;
}

void flyt_ledger_set_cached(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (entry)
        store(&entry->cached_bytes, bytes);
}

int flyt_ledger_reclaim(struct flyt_ledger *ledger, uint64_t server_id, uint64_t *ret_bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry)
        return no_entry(server_id);
    if (ret_bytes)
        *ret_bytes = flyt_ledger_plus(load(&entry->used_bytes), load(&entry->reserve_bytes));
    forget_estimate(entry);
    store(&entry->server_id, 0); /* one store: the whole entry goes */
    return 0;
}

int flyt_ledger_mend(struct flyt_ledger *ledger, uint64_t server_id, uint64_t charged_bytes, uint64_t reserved_bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!entry) {
        int status = flyt_ledger_join(ledger, server_id);
        if (status)
            return status;
        entry = find_joined(ledger, server_id);
        if (!entry) /* written over again */
            return -EAGAIN;
    }
    store(&entry->used_bytes, charged_bytes);
    store(&entry->reserve_bytes, reserved_bytes);
    return 0;
}

int flyt_ledger_move(struct flyt_ledger *ledger, uint64_t server_id, uint64_t other_id, uint64_t bytes)
{
    struct flyt_ledger_entry *entry = find_joined(ledger, server_id);

    if (!server_id || !other_id)
        return -EINVAL;
    if (!entry)
        return -ENOENT;
    if (find(ledger->shared, other_id))
        return -EEXIST;
    store(&entry->used_bytes, bytes);
    store(&entry->reserve_bytes, 0);
    store(&entry->claimed_bytes, 0);
    store(&entry->cached_bytes, 0);
    forget_estimate(entry);
    /* One store: there is no moment without the entry, and none with two. */
    store(&entry->server_id, other_id);
    return 0;
}

/* What all have, and what they may be about to be granted: a claim that was announced before the limit was set. */
static uint64_t sum_with_claims(const struct flyt_ledger_shared *shared)
{
    const struct flyt_ledger_sum sum = flyt_ledger_add_up(shared, NULL);

    return flyt_ledger_plus(sum.had_bytes, sum.before_bytes);
}

int flyt_ledger_set_limit(struct flyt_ledger *ledger, uint64_t limit_bytes, uint64_t revision, bool when_free,
                          uint64_t *ret_used_bytes)
{
    struct flyt_ledger_shared *shared = ledger->shared;
    const uint64_t before_bytes = ledger->has_set_limit ? ledger->limit_bytes : load(&shared->limit_bytes);
    uint64_t used_bytes = sum_with_claims(shared);
    int status = 0;

    if (ledger->has_set_limit && revision < ledger->limit_revision) {
        status = -ESTALE;
    } else if (limit_bytes < used_bytes && !when_free) {
        status = -EBUSY;
    } else {
        /* Set first, then looked at once more: who is granted something by the old limit had announced it before, and
         * is seen now. */
        store(&shared->limit_bytes, limit_bytes);
        used_bytes = sum_with_claims(shared);
        if (limit_bytes < used_bytes && !when_free) {
            store(&shared->limit_bytes, before_bytes);
            status = -EBUSY;
        } else {
            store(&shared->limit_revision, revision);
            ledger->has_set_limit = true;
            ledger->limit_bytes = limit_bytes;
            ledger->limit_revision = revision;
        }
    }
    if (ret_used_bytes)
        *ret_used_bytes = used_bytes;
    return status;
}

/* ---- reading ---- */

/* The limit of who sets it holds, whatever is written there meanwhile. */
static void keep_limit(const struct flyt_ledger *ledger)
{
    if (!ledger->has_set_limit)
        return;
    if (load(&ledger->shared->limit_bytes) != ledger->limit_bytes)
        store(&ledger->shared->limit_bytes, ledger->limit_bytes);
    if (load(&ledger->shared->limit_revision) != ledger->limit_revision)
        store(&ledger->shared->limit_revision, ledger->limit_revision);
}

void flyt_ledger_read(const struct flyt_ledger *ledger, struct flyt_ledger_state *ret_state)
{
    const struct flyt_ledger_shared *shared = ledger->shared;

    keep_limit(ledger);
    struct flyt_ledger_state state = {
        .limit_revision = ledger->has_set_limit ? ledger->limit_revision : atomic_load(&shared->limit_revision),
        .limit_bytes = ledger->has_set_limit ? ledger->limit_bytes : atomic_load(&shared->limit_bytes),
        .peak_bytes = load(&shared->peak_bytes),
        .refused_count = load(&shared->refused_count),
        .used_bytes = sum(shared),
    };

    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++) {
        if (!load(&shared->entries[i].server_id))
            continue;
        state.entry_count++;
        state.reserved_bytes = flyt_ledger_plus(state.reserved_bytes, load(&shared->entries[i].reserve_bytes));
        state.cached_bytes = flyt_ledger_plus(state.cached_bytes, load(&shared->entries[i].cached_bytes));
    }
    if (state.cached_bytes > state.used_bytes)
        state.cached_bytes = state.used_bytes;
    state.holding_bytes = state.used_bytes > state.limit_bytes ? state.used_bytes : state.limit_bytes;
    *ret_state = state;
}

uint64_t flyt_ledger_used(const struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct flyt_ledger_entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

    return entry ? flyt_ledger_plus(load(&entry->used_bytes), load(&entry->reserve_bytes)) : 0;
}

uint64_t flyt_ledger_charged(const struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct flyt_ledger_entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

    return entry ? load(&entry->used_bytes) : 0;
}

uint64_t flyt_ledger_reserved(const struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct flyt_ledger_entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

    return entry ? load(&entry->reserve_bytes) : 0;
}

unsigned flyt_ledger_list(const struct flyt_ledger *ledger, uint64_t *ret_ids)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++) {
        uint64_t server_id = load(&ledger->shared->entries[i].server_id);
        if (server_id)
            ret_ids[count++] = server_id;
    }
    return count;
}

void flyt_ledger_forget_peak(struct flyt_ledger *ledger)
{
    store(&ledger->shared->peak_bytes, sum(ledger->shared));
}
