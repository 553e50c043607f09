#include "rpc/base/turns.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/shared.h"

#define MAGIC 0x6e72757474796c66ull /* "flytturn" */

enum { VERSION = 1, TURNS_BYTES = 20480 };

struct shared {
    struct flyt_shared head;
    uint64_t reserved[6];
    struct flyt_turn_table table;
};
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

static int wrap(int fd, struct flyt_shared *shared, struct flyt_turns **ret_turns)
{
    struct flyt_turns *turns = malloc(sizeof *turns);

    if (!turns) {
        flyt_shared_close(fd, shared, TURNS_BYTES);
        return -ENOMEM;
    }
    *turns = (struct flyt_turns){.fd = fd, .shared = (struct shared *)shared};
    *ret_turns = turns;
    return 0;
}

int flyt_turns_new(struct flyt_turns **ret_turns)
{
    struct flyt_shared *shared;
    int fd, status = flyt_shared_new("flyt-turns", TURNS_BYTES, &fd, &shared);

    if (status)
        return status;
    flyt_turn_table_init(&((struct shared *)shared)->table, flyt_clock_ns());
    shared->version = VERSION;
    shared->magic = MAGIC;
    return wrap(fd, shared, ret_turns);
}

int flyt_turns_open(int fd, struct flyt_turns **ret_turns)
{
    struct flyt_shared *shared;
    int own_fd, status = flyt_shared_open(fd, TURNS_BYTES, MAGIC, VERSION, &own_fd, &shared);

    return status ? status : wrap(own_fd, shared, ret_turns);
}

struct flyt_turns *flyt_turns_close(struct flyt_turns *turns)
{
    if (!turns)
        return NULL;
    flyt_shared_close(turns->fd, &turns->shared->head, TURNS_BYTES);
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
    return flyt_shared_lock(&shared->head, FLYT_TURNS_WAIT_MS);
}

static void unlock(struct shared *shared, const struct flyt_turn_answer *answer)
{
    flyt_shared_unlock(&shared->head);
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
    flyt_shared_unlock(&turns->shared->head);
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
