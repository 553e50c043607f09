#include "rpc/base/ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"

#define MAGIC 0x7267646c74796c66ull /* "flytldgr" */

enum { VERSION = 1, MUTEX_BYTES = 64, LEDGER_BYTES = 4096 };

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
    uint64_t magic;
    uint32_t version;
    uint32_t entry_count; /* room for them */
    union {
        pthread_mutex_t mutex;
        unsigned char room[MUTEX_BYTES];
    };
    _Atomic(uint64_t) limit_bytes;
    _Atomic(uint64_t) limit_revision;
    _Atomic(uint64_t) peak_bytes;
    _Atomic(uint64_t) refused_count;
    uint64_t reserved[2];
    struct entry entries[FLYT_LEDGER_ENTRIES_MAX];
};
_Static_assert(sizeof(pthread_mutex_t) <= MUTEX_BYTES, "ledger layout");
_Static_assert(offsetof(struct shared, mutex) == 16, "ledger layout");
_Static_assert(offsetof(struct shared, limit_bytes) == 80, "ledger layout");
_Static_assert(offsetof(struct shared, entries) == 128, "ledger layout");
_Static_assert(sizeof(struct entry) == 32, "ledger layout");
_Static_assert(sizeof(struct shared) == LEDGER_BYTES, "ledger layout");
_Static_assert(sizeof(_Atomic(uint64_t)) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "ledger layout");

struct flyt_ledger {
    int fd;
    struct shared *shared;
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

static struct flyt_ledger *map(int fd)
{
    struct flyt_ledger *ledger = calloc(1, sizeof *ledger);

    if (!ledger)
        return NULL;
    ledger->fd = fd;
    ledger->shared = mmap(NULL, LEDGER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger->shared == MAP_FAILED) {
        free(ledger);
        return NULL;
    }
    return ledger;
}

static int init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int status = pthread_mutexattr_init(&attributes);

    if (status)
        return -status;
    status = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!status)
        status = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!status)
        status = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -status;
}

int flyt_ledger_new(uint64_t limit_bytes, struct flyt_ledger **ret_ledger)
{
    struct flyt_ledger *ledger = NULL;
    int fd = memfd_create("flyt-ledger", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    /* Sealed, so that no holder can cut it short under the others' feet. */
    if (ftruncate(fd, LEDGER_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        !(ledger = map(fd))) {
        int status = errno ? -errno : -ENOMEM;
        flyt_close(fd);
        return status;
    }
    int status = init_mutex(&ledger->shared->mutex);
    if (status) {
        flyt_ledger_close(ledger);
        return status;
    }
    ledger->shared->version = VERSION;
    ledger->shared->entry_count = FLYT_LEDGER_ENTRIES_MAX;
    store(&ledger->shared->limit_bytes, limit_bytes);
    ledger->shared->magic = MAGIC;
    *ret_ledger = ledger;
    return 0;
}

int flyt_ledger_open(int fd, struct flyt_ledger **ret_ledger)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) || info.st_size != LEDGER_BYTES)
        return -EBADMSG;
    int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0)
        return -errno;
    struct flyt_ledger *ledger = map(own_fd);
    if (!ledger) {
        flyt_close(own_fd);
        return -ENOMEM;
    }
    if (ledger->shared->magic != MAGIC || ledger->shared->version != VERSION ||
        ledger->shared->entry_count != FLYT_LEDGER_ENTRIES_MAX) {
        flyt_ledger_close(ledger);
        return -EBADMSG;
    }
    *ret_ledger = ledger;
    return 0;
}

struct flyt_ledger *flyt_ledger_close(struct flyt_ledger *ledger)
{
    if (!ledger)
        return NULL;
    munmap(ledger->shared, LEDGER_BYTES);
    flyt_close(ledger->fd);
    free(ledger);
    return NULL;
}

int flyt_ledger_fd(const struct flyt_ledger *ledger)
{
    return ledger->fd;
}

/* ---- under the mutex ---- */

static int lock(struct shared *shared)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += FLYT_LEDGER_WAIT_MS / 1000;
    int status = pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &until);
    /* The owner died. Nothing is to be repaired: every state between two stores is a true one. */
    if (status == EOWNERDEAD)
        status = pthread_mutex_consistent(&shared->mutex);
    return -status;
}

static void unlock(struct shared *shared)
{
    pthread_mutex_unlock(&shared->mutex);
}

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
    int status = server_id ? lock(shared) : -EINVAL;

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
    int status = server_id ? lock(shared) : -EINVAL;

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
    int status = server_id ? lock(shared) : -EINVAL;

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
    int status = server_id ? lock(shared) : -EINVAL;

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
    int status = server_id ? lock(shared) : -EINVAL;

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
    int status = server_id ? lock(shared) : -EINVAL;

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
    int status = server_id ? lock(shared) : -EINVAL;

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

int flyt_ledger_set_limit(struct flyt_ledger *ledger, uint64_t limit_bytes, uint64_t revision, bool when_free,
                          uint64_t *ret_used_bytes)
{
    struct shared *shared = ledger->shared;
    int status = lock(shared);

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
    if (lock(ledger->shared))
        return;
    store(&ledger->shared->peak_bytes, sum(ledger->shared));
    unlock(ledger->shared);
}
