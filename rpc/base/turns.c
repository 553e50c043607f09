#include "rpc/base/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"

#define MAGIC 0x6e72757474796c66ull /* "flytturn" */

enum { VERSION = 1, MUTEX_BYTES = 64, TURNS_BYTES = 20480 };

struct shared {
    uint64_t magic;
    uint32_t version;
    uint32_t reserved;
    union {
        pthread_mutex_t mutex;
        unsigned char room[MUTEX_BYTES];
    };
    uint64_t more_reserved[6];
    struct flyt_turn_table table;
};
_Static_assert(sizeof(pthread_mutex_t) <= MUTEX_BYTES, "turns layout");
_Static_assert(offsetof(struct shared, mutex) == 16, "turns layout");
_Static_assert(offsetof(struct shared, table) == 128, "turns layout");
_Static_assert(sizeof(struct flyt_turn_tenant) == 120, "turns layout");
_Static_assert(sizeof(struct flyt_turn_server) == 64, "turns layout");
_Static_assert(offsetof(struct flyt_turn_table, tenants) == 56, "turns layout");
_Static_assert(sizeof(struct shared) <= TURNS_BYTES, "turns layout");
_Static_assert(sizeof(_Atomic(uint64_t)) == 8 && sizeof(_Atomic(uint32_t)) == 4, "turns layout");

struct flyt_turns {
    int fd;
    struct shared *shared;
};

/* ---- making and opening ---- */

static struct flyt_turns *map(int fd)
{
    struct flyt_turns *turns = calloc(1, sizeof *turns);

    if (!turns)
        return NULL;
    turns->fd = fd;
    turns->shared = mmap(NULL, TURNS_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (turns->shared == MAP_FAILED) {
        free(turns);
        return NULL;
    }
    return turns;
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

int flyt_turns_new(struct flyt_turns **ret_turns)
{
    struct flyt_turns *turns = NULL;
    int fd = memfd_create("flyt-turns", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    /* Sealed, so that no holder can cut it short under the others' feet. */
    if (ftruncate(fd, TURNS_BYTES) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ||
        !(turns = map(fd))) {
        int status = errno ? -errno : -ENOMEM;
        flyt_close(fd);
        return status;
    }
    int status = init_mutex(&turns->shared->mutex);
    if (status) {
        flyt_turns_close(turns);
        return status;
    }
    flyt_turn_table_init(&turns->shared->table, flyt_clock_ns());
    turns->shared->version = VERSION;
    turns->shared->magic = MAGIC;
    *ret_turns = turns;
    return 0;
}

int flyt_turns_open(int fd, struct flyt_turns **ret_turns)
{
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) || info.st_size != TURNS_BYTES)
        return -EBADMSG;
    int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0)
        return -errno;
    struct flyt_turns *turns = map(own_fd);
    if (!turns) {
        flyt_close(own_fd);
        return -ENOMEM;
    }
    if (turns->shared->magic != MAGIC || turns->shared->version != VERSION) {
        flyt_turns_close(turns);
        return -EBADMSG;
    }
    *ret_turns = turns;
    return 0;
}

struct flyt_turns *flyt_turns_close(struct flyt_turns *turns)
{
    if (!turns)
        return NULL;
    munmap(turns->shared, TURNS_BYTES);
    flyt_close(turns->fd);
    free(turns);
    return NULL;
}

int flyt_turns_fd(const struct flyt_turns *turns)
{
    return turns->fd;
}

/* ---- waking ---- */

static void wake(struct shared *shared, unsigned place)
{
    syscall(SYS_futex, &shared->table.servers[place].wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void wake_all(struct shared *shared, const struct flyt_turn_answer *answer)
{
    for (unsigned i = 0; i < FLYT_TURN_SERVERS_MAX; i++)
        if (answer->woken[i / 64] >> (i % 64) & 1)
            wake(shared, i);
}

uint32_t flyt_turns_wakes(const struct flyt_turns *turns, unsigned place)
{
    return atomic_load_explicit(&turns->shared->table.servers[place].wake, memory_order_acquire);
}

void flyt_turns_wait(struct flyt_turns *turns, unsigned place, uint32_t wakes, uint64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                                     .tv_nsec = (long)(timeout_ns % 1000000000)};

    /* However it ends: who waits looks again. */
    syscall(SYS_futex, &turns->shared->table.servers[place].wake, FUTEX_WAIT, wakes, &timeout, NULL, 0);
}

void flyt_turns_wake(struct flyt_turns *turns, unsigned place)
{
    atomic_fetch_add_explicit(&turns->shared->table.servers[place].wake, 1, memory_order_release);
    wake(turns->shared, place);
}

/* ---- under the mutex ---- */

static int lock(struct shared *shared)
{
    struct timespec until;
    int status = pthread_mutex_trylock(&shared->mutex);

    if (status == EBUSY) {
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += FLYT_TURNS_WAIT_MS * 1000000;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        status = pthread_mutex_clocklock(&shared->mutex, CLOCK_MONOTONIC, &until);
    }
    /* The owner died. Nothing is to be repaired: every state between two stores is a true one. */
    if (status == EOWNERDEAD)
        status = pthread_mutex_consistent(&shared->mutex);
    return -status;
}

static void unlock(struct shared *shared, const struct flyt_turn_answer *answer)
{
    pthread_mutex_unlock(&shared->mutex);
    wake_all(shared, answer);
}

int flyt_turns_set(struct flyt_turns *turns, uint64_t tenant_id, const struct flyt_turn_share *share, uint64_t revision)
{
    struct flyt_turn_answer answer;
    int status = lock(turns->shared);

    if (status)
        return status;
    status = flyt_turn_table_set(&turns->shared->table, tenant_id, share, revision, flyt_clock_ns(), &answer);
    unlock(turns->shared, &answer);
    return status;
}

int flyt_turns_remove(struct flyt_turns *turns, uint64_t tenant_id)
{
    struct flyt_turn_answer answer;
    int status = lock(turns->shared);

    if (status)
        return status;
    flyt_turn_table_remove(&turns->shared->table, tenant_id, flyt_clock_ns(), &answer);
    unlock(turns->shared, &answer);
    return 0;
}

int flyt_turns_join(struct flyt_turns *turns, uint64_t tenant_id, uint64_t server_id)
{
    int status = lock(turns->shared);

    if (status)
        return status;
    status = flyt_turn_table_join(&turns->shared->table, tenant_id, server_id);
    pthread_mutex_unlock(&turns->shared->mutex);
    return status;
}

int flyt_turns_leave(struct flyt_turns *turns, uint64_t server_id)
{
    struct flyt_turn_answer answer;
    int status = lock(turns->shared);

    if (status)
        return status;
    flyt_turn_table_leave(&turns->shared->table, server_id, flyt_clock_ns(), &answer);
    unlock(turns->shared, &answer);
    return 0;
}

int flyt_turns_tell(struct flyt_turns *turns, unsigned place, uint64_t server_id, enum flyt_turn_state state,
                    struct flyt_turn_answer *ret_answer)
{
    int status = lock(turns->shared);

    if (status)
        return status;
    status = flyt_turn_table_tell(&turns->shared->table, place, server_id, state, flyt_clock_ns(), ret_answer);
    unlock(turns->shared, ret_answer);
    return status;
}

/* ---- without it ---- */

void flyt_turns_set_idle(struct flyt_turns *turns, unsigned place, bool is_idle, uint64_t now_ns)
{
    flyt_turn_set_idle(&turns->shared->table.servers[place], is_idle, now_ns);
}

void flyt_turns_be_seen(struct flyt_turns *turns, unsigned place, uint64_t now_ns)
{
    atomic_store_explicit(&turns->shared->table.servers[place].seen_ns, now_ns, memory_order_relaxed);
}

uint64_t flyt_turns_until(const struct flyt_turns *turns)
{
    return atomic_load_explicit(&turns->shared->table.until_ns, memory_order_relaxed);
}

bool flyt_turns_is_wanted(const struct flyt_turns *turns)
{
    return atomic_load_explicit(&turns->shared->table.is_wanted, memory_order_relaxed);
}

int flyt_turns_read(const struct flyt_turns *turns, uint64_t tenant_id, struct flyt_turns_state *ret_state)
{
    const struct flyt_turn_table *table = &turns->shared->table;

    for (int32_t i = 0; tenant_id && i < FLYT_TURN_TENANTS_MAX; i++) {
        const struct flyt_turn_tenant *tenant = &table->tenants[i];
        if (tenant->tenant_id != tenant_id)
            continue;
        *ret_state = (struct flyt_turns_state){
            .share = tenant->share,
            .used_ns = atomic_load_explicit(&tenant->used_ns, memory_order_relaxed),
            .waited_ns = atomic_load_explicit(&tenant->waited_ns, memory_order_relaxed),
            .overused_ns = atomic_load_explicit(&tenant->overused_ns, memory_order_relaxed),
            .grant_count = atomic_load_explicit(&tenant->grant_count, memory_order_relaxed),
            .is_holder = table->holder == i,
        };
        return 0;
    }
    return -ENOENT;
}

unsigned flyt_turns_list(const struct flyt_turns *turns, uint64_t *ret_ids)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLYT_TURN_TENANTS_MAX; i++)
        if (turns->shared->table.tenants[i].tenant_id)
            ret_ids[count++] = turns->shared->table.tenants[i].tenant_id;
    return count;
}

unsigned flyt_turns_servers(const struct flyt_turns *turns, uint64_t *ret_ids)
{
    unsigned count = 0;

    for (unsigned i = 0; i < FLYT_TURN_SERVERS_MAX; i++)
        if (turns->shared->table.servers[i].server_id)
            ret_ids[count++] = turns->shared->table.servers[i].server_id;
    return count;
}

bool flyt_turns_has(const struct flyt_turns *turns, uint64_t server_id)
{
    for (unsigned i = 0; server_id && i < FLYT_TURN_SERVERS_MAX; i++)
        if (turns->shared->table.servers[i].server_id == server_id)
            return true;
    return false;
}
