#include "rpc/base/ledger.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>

#include "rpc/base/shared.h"

#define MAGIC 0x7267646c74796c66ull /* "flytldgr" */

enum { VERSION = 1, LEDGER_BYTES = 4096 };

/* Free where server_id is 0. `used` and `reserve` are words of their own: whoever dies between them leaves both true.
 */
struct entry {
    _Atomic(uint64_t) server_id;
    _Atomic(uint64_t) used_bytes;
    _Atomic(uint64_t) reserve_bytes;
    _Atomic(uint64_t) cached_bytes; /* its server's alone; 0 of older ones */
};

/* What is shared. Stores only under the mutex; loads anywhere. */
struct shared {
    struct flyt_shared head;
    _Atomic(uint64_t) limit_bytes;
    _Atomic(uint64_t) limit_revision;
    _Atomic(uint64_t) peak_bytes;
    _Atomic(uint64_t) refused_count;
    uint64_t reserved[2];
    struct entry entries[FLYT_LEDGER_ENTRIES_MAX];
};
_Static_assert(offsetof(struct shared, limit_bytes) == 80, "ledger layout");
_Static_assert(offsetof(struct shared, entries) == 128, "ledger layout");
_Static_assert(sizeof(struct entry) == 32, "ledger layout");
_Static_assert(sizeof(struct shared) == LEDGER_BYTES, "ledger layout");
_Static_assert(sizeof(_Atomic(uint64_t)) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "ledger layout");

/* What is to be given back yet of one server. */
struct owed {
    uint64_t server_id;
    uint64_t used_bytes, reserve_bytes;
    bool is_entry; /* all of it, and the entry */
};

struct flyt_ledger {
    int fd;
    struct shared *shared;
    pthread_mutex_t owed_mutex;   /* taken with or without that of the ledger, which is never taken under it */
    _Atomic(unsigned) owed_count; /* stored under owed_mutex; loads anywhere */
    struct owed owed[FLYT_LEDGER_ENTRIES_MAX];
};

static uint64_t load(const _Atomic(uint64_t) *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

static void store(_Atomic(uint64_t) *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

/* ---- making and opening ---- */

static int wrap(int fd, struct flyt_shared *shared, struct flyt_ledger **ret_ledger)
{
    struct flyt_ledger *ledger = malloc(sizeof *ledger);

    if (!ledger) {
        flyt_shared_close(fd, shared, LEDGER_BYTES);
        return -ENOMEM;
    }
    *ledger =
        (struct flyt_ledger){.fd = fd, .shared = (struct shared *)shared, .owed_mutex = PTHREAD_MUTEX_INITIALIZER};
    *ret_ledger = ledger;
    return 0;
}

int flyt_ledger_new(uint64_t limit_bytes, struct flyt_ledger **ret_ledger)
{
    struct flyt_shared *shared;
    int fd, status = flyt_shared_new("flyt-ledger", LEDGER_BYTES, &fd, &shared);

    if (status)
        return status;
    store(&((struct shared *)shared)->limit_bytes, limit_bytes);
    shared->count = FLYT_LEDGER_ENTRIES_MAX;
    shared->version = VERSION;
    shared->magic = MAGIC;
    return wrap(fd, shared, ret_ledger);
}

int flyt_ledger_open(int fd, struct flyt_ledger **ret_ledger)
{
    struct flyt_shared *shared;
    int own_fd, status = flyt_shared_open(fd, LEDGER_BYTES, MAGIC, VERSION, &own_fd, &shared);

    if (status)
        return status;
    if (shared->count != FLYT_LEDGER_ENTRIES_MAX) {
        flyt_shared_close(own_fd, shared, LEDGER_BYTES);
        return -EBADMSG;
    }
    return wrap(own_fd, shared, ret_ledger);
}

struct flyt_ledger *flyt_ledger_close(struct flyt_ledger *ledger)
{
    if (!ledger)
        return NULL;
    flyt_shared_close(ledger->fd, &ledger->shared->head, LEDGER_BYTES);
    pthread_mutex_destroy(&ledger->owed_mutex);
    free(ledger);
    return NULL;
}

int flyt_ledger_fd(const struct flyt_ledger *ledger)
{
    return ledger->fd;
}

/* ---- under the mutex ---- */

static uint64_t add(uint64_t one, uint64_t other)
{
    return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

static uint64_t sum(const struct shared *shared)
{
    uint64_t total = 0;

    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++) {
        const struct entry *entry = &shared->entries[i];
        if (load(&entry->server_id))
            total = add(total, add(load(&entry->used_bytes), load(&entry->reserve_bytes)));
    }
    return total;
}

/* Also finds a free entry: server_id 0. */
static struct entry *find(struct shared *shared, uint64_t server_id)
{
    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++)
        if (load(&shared->entries[i].server_id) == server_id)
            return &shared->entries[i];
    return NULL;
}

static void subtract(_Atomic(uint64_t) *word, uint64_t bytes)
{
    uint64_t has = load(word);

    store(word, has > bytes ? has - bytes : 0);
}

/* Gives back what is owed. What is of an entry that is somebody else's just now stays owed. */
static void settle_locked(struct flyt_ledger *ledger)
{
    unsigned left = 0;

    pthread_mutex_lock(&ledger->owed_mutex);
    for (unsigned i = 0; i < atomic_load(&ledger->owed_count); i++) {
        const struct owed owed = ledger->owed[i];
        struct entry *entry = find(ledger->shared, owed.server_id);
        if (!entry && !owed.is_entry)
            ledger->owed[left++] = owed;
        if (!entry)
            continue;
        if (owed.is_entry) {
            store(&entry->server_id, 0);
            continue;
        }
        subtract(&entry->used_bytes, owed.used_bytes);
        subtract(&entry->reserve_bytes, owed.reserve_bytes);
    }
    atomic_store(&ledger->owed_count, left);
    pthread_mutex_unlock(&ledger->owed_mutex);
}

static int lock_within(struct flyt_ledger *ledger, unsigned wait_ms)
{
    int status = flyt_shared_lock(&ledger->shared->head, wait_ms);

    if (!status && atomic_load(&ledger->owed_count))
        settle_locked(ledger);
    return status;
}

static int lock(struct flyt_ledger *ledger)
{
    return lock_within(ledger, FLYT_LEDGER_WAIT_MS);
}

/* For giving something back, which can be owed: where something is owed already the mutex is not waited for again. */
static int lock_to_give(struct flyt_ledger *ledger)
{
    return lock_within(ledger, atomic_load(&ledger->owed_count) ? 0 : FLYT_LEDGER_WAIT_MS);
}

static void unlock(struct shared *shared)
{
    flyt_shared_unlock(&shared->head);
}

/* Whether so much more may be taken; keeps the count of refusals and the peak, which is stored before the charge: it is
 * never below what is in use. */
static bool may_take_locked(struct shared *shared, uint64_t bytes)
{
    uint64_t total = add(sum(shared), bytes);

    if (bytes && total > load(&shared->limit_bytes)) {
        store(&shared->refused_count, load(&shared->refused_count) + 1);
        return false;
    }
    if (total > load(&shared->peak_bytes))
        store(&shared->peak_bytes, total);
    return true;
}

int flyt_ledger_join(struct flyt_ledger *ledger, uint64_t server_id)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, 0);
    if (find(shared, server_id)) {
        status = -EEXIST;
    } else if (!entry) {
        status = -ENOSPC;
    } else {
        store(&entry->used_bytes, 0);
        store(&entry->reserve_bytes, 0);
        store(&entry->cached_bytes, 0);
        /* Last: an entry that has an id has its values. */
        atomic_store_explicit(&entry->server_id, server_id, memory_order_release);
    }
    unlock(shared);
    return status;
}

int flyt_ledger_charge(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    if (!entry)
        status = -ENOENT;
    else if (!may_take_locked(shared, bytes))
        status = -ENOMEM;
    else
        store(&entry->used_bytes, load(&entry->used_bytes) + bytes);
    unlock(shared);
    return status;
}

int flyt_ledger_release(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock_to_give(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    if (!entry)
        status = -ENOENT;
    else if (bytes > load(&entry->used_bytes))
        status = -ERANGE;
    else
        store(&entry->used_bytes, load(&entry->used_bytes) - bytes);
    unlock(shared);
    return status;
}

int flyt_ledger_reserve(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    uint64_t reserve_bytes = entry ? load(&entry->reserve_bytes) : 0;
    if (!entry)
        status = -ENOENT;
    else if (bytes > reserve_bytes && !may_take_locked(shared, bytes - reserve_bytes))
        status = -ENOMEM;
    else
        store(&entry->reserve_bytes, bytes);
    unlock(shared);
    return status;
}

int flyt_ledger_reserve_change(struct flyt_ledger *ledger, uint64_t server_id, int64_t change_bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    uint64_t reserve_bytes = entry ? load(&entry->reserve_bytes) : 0;
    uint64_t less_bytes = change_bytes < 0 ? -(uint64_t)change_bytes : 0;
    if (!entry)
        status = -ENOENT;
    else if (change_bytes > 0 && !may_take_locked(shared, (uint64_t)change_bytes))
        status = -ENOMEM;
    else if (change_bytes > 0)
        store(&entry->reserve_bytes, reserve_bytes + (uint64_t)change_bytes);
    else
        store(&entry->reserve_bytes, reserve_bytes > less_bytes ? reserve_bytes - less_bytes : 0);
    unlock(shared);
    return status;
}

int flyt_ledger_reserve_measured(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes,
                                 uint64_t *ret_used_bytes, uint64_t *ret_limit_bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    if (entry) {
        store(&entry->reserve_bytes, bytes);
        *ret_used_bytes = sum(shared);
        *ret_limit_bytes = load(&shared->limit_bytes);
        if (*ret_used_bytes > load(&shared->peak_bytes))
            store(&shared->peak_bytes, *ret_used_bytes);
    }
    unlock(shared);
    return entry ? 0 : -ENOENT;
}

void flyt_ledger_set_cached(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes)
{
    struct entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

    if (entry)
        store(&entry->cached_bytes, bytes);
}

int flyt_ledger_reclaim(struct flyt_ledger *ledger, uint64_t server_id, uint64_t *ret_bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id ? lock_to_give(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    if (entry) {
        if (ret_bytes)
            *ret_bytes = add(load(&entry->used_bytes), load(&entry->reserve_bytes));
        store(&entry->server_id, 0); /* one store: the whole entry goes */
    }
    unlock(shared);
    return entry ? 0 : -ENOENT;
}

int flyt_ledger_move(struct flyt_ledger *ledger, uint64_t server_id, uint64_t other_id, uint64_t bytes)
{
    struct shared *shared = ledger->shared;
    int status = server_id && other_id ? lock(ledger) : -EINVAL;

    if (status)
        return status;
    struct entry *entry = find(shared, server_id);
    if (!entry) {
        status = -ENOENT;
    } else if (find(shared, other_id)) {
        status = -EEXIST;
    } else {
        store(&entry->used_bytes, bytes);
        store(&entry->reserve_bytes, 0);
        store(&entry->cached_bytes, 0);
        /* One store: there is no moment without the entry, and none with two. */
        atomic_store_explicit(&entry->server_id, other_id, memory_order_release);
    }
    unlock(shared);
    return status;
}

int flyt_ledger_set_limit(struct flyt_ledger *ledger, uint64_t limit_bytes, uint64_t revision, bool when_free,
                          uint64_t *ret_used_bytes)
{
    struct shared *shared = ledger->shared;
    int status = lock(ledger);

    if (status)
        return status;
    uint64_t used_bytes = sum(shared);
    if (revision < load(&shared->limit_revision)) {
        status = -ESTALE;
    } else if (limit_bytes < used_bytes && !when_free) {
        status = -EBUSY;
    } else {
        /* In this order: a revision that is there has its limit. */
        store(&shared->limit_bytes, limit_bytes);
        atomic_store_explicit(&shared->limit_revision, revision, memory_order_release);
    }
    unlock(shared);
    if (ret_used_bytes)
        *ret_used_bytes = used_bytes;
    return status;
}

/* ---- what is owed ---- */

/* Of this server; NULL: nothing. owed_mutex is held. */
static struct owed *find_owed(struct flyt_ledger *ledger, uint64_t server_id)
{
    for (unsigned i = 0; i < atomic_load(&ledger->owed_count); i++)
        if (ledger->owed[i].server_id == server_id)
            return &ledger->owed[i];
    return NULL;
}

static int owe(struct flyt_ledger *ledger, const struct owed *more)
{
    int status = 0;

    pthread_mutex_lock(&ledger->owed_mutex);
    struct owed *owed = find_owed(ledger, more->server_id);
    unsigned count = atomic_load(&ledger->owed_count);
    if (owed) {
        owed->used_bytes = add(owed->used_bytes, more->used_bytes);
        owed->reserve_bytes = add(owed->reserve_bytes, more->reserve_bytes);
        owed->is_entry |= more->is_entry;
    } else if (count == FLYT_LEDGER_ENTRIES_MAX) {
        status = -ENOSPC;
    } else {
        ledger->owed[count] = *more;
        atomic_store(&ledger->owed_count, count + 1);
    }
    pthread_mutex_unlock(&ledger->owed_mutex);
    return status;
}

int flyt_ledger_owe(struct flyt_ledger *ledger, uint64_t server_id, uint64_t bytes, uint64_t reserve_bytes)
{
    const struct owed more = {.server_id = server_id, .used_bytes = bytes, .reserve_bytes = reserve_bytes};

    return owe(ledger, &more);
}

int flyt_ledger_owe_entry(struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct owed more = {.server_id = server_id, .is_entry = true};

    return owe(ledger, &more);
}

void flyt_ledger_forget_owed(struct flyt_ledger *ledger, uint64_t server_id)
{
    pthread_mutex_lock(&ledger->owed_mutex);
    struct owed *owed = find_owed(ledger, server_id);
    if (owed)
        owed->used_bytes = 0;
    pthread_mutex_unlock(&ledger->owed_mutex);
}

bool flyt_ledger_owes(const struct flyt_ledger *ledger)
{
    return atomic_load(&ledger->owed_count) > 0;
}

bool flyt_ledger_settle(struct flyt_ledger *ledger)
{
    if (!flyt_ledger_owes(ledger))
        return true;
    if (lock_within(ledger, 0))
        return false;
    unlock(ledger->shared);
    return !flyt_ledger_owes(ledger);
}

/* ---- reading ---- */

void flyt_ledger_read(const struct flyt_ledger *ledger, struct flyt_ledger_state *ret_state)
{
    const struct shared *shared = ledger->shared;
    struct flyt_ledger_state state = {
        .limit_revision = atomic_load_explicit(&shared->limit_revision, memory_order_acquire),
        .limit_bytes = load(&shared->limit_bytes),
        .peak_bytes = load(&shared->peak_bytes),
        .refused_count = load(&shared->refused_count),
        .used_bytes = sum(shared),
    };

    for (unsigned i = 0; i < FLYT_LEDGER_ENTRIES_MAX; i++) {
        if (!load(&shared->entries[i].server_id))
            continue;
        state.entry_count++;
        state.reserved_bytes = add(state.reserved_bytes, load(&shared->entries[i].reserve_bytes));
        state.cached_bytes = add(state.cached_bytes, load(&shared->entries[i].cached_bytes));
    }
    if (state.cached_bytes > state.used_bytes)
        state.cached_bytes = state.used_bytes;
    state.holding_bytes = state.used_bytes > state.limit_bytes ? state.used_bytes : state.limit_bytes;
    *ret_state = state;
}

uint64_t flyt_ledger_used(const struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

    return entry ? add(load(&entry->used_bytes), load(&entry->reserve_bytes)) : 0;
}

uint64_t flyt_ledger_charged(const struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

    return entry ? load(&entry->used_bytes) : 0;
}

uint64_t flyt_ledger_reserved(const struct flyt_ledger *ledger, uint64_t server_id)
{
    const struct entry *entry = server_id ? find(ledger->shared, server_id) : NULL;

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
    if (lock(ledger))
        return;
    store(&ledger->shared->peak_bytes, sum(ledger->shared));
    unlock(ledger->shared);
}
