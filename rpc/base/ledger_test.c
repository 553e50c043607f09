/* Tests of the memory ledger: its rules, and that no death of a process at any moment makes it lie. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/ledger.h"
#include "rpc/base/ledger_claim.h"

enum { PROCESSES = 8, THREADS = 8, LIMIT = 1000 };

static struct flyt_ledger_state state_of(const struct flyt_ledger *ledger)
{
    struct flyt_ledger_state state;

    flyt_ledger_read(ledger, &state);
    return state;
}

static void test_charge_and_release(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1), -ENOENT);
    assert_int_equal(flyt_ledger_join(ledger, 0), -EINVAL);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), -EEXIST);
    assert_int_equal(flyt_ledger_join(ledger, 2), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 600), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 400), 0); /* exactly the limit */
    assert_int_equal(flyt_ledger_charge(ledger, 2, 1), -ENOMEM);
    assert_int_equal(flyt_ledger_charge(ledger, 2, UINT64_MAX), -ENOMEM);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 0), 0);
    assert_int_equal(flyt_ledger_release(ledger, 2, 401), -ERANGE);
    assert_int_equal(flyt_ledger_release(ledger, 2, 400), 0);
    assert_int_equal(state_of(ledger).used_bytes, 600);
    assert_int_equal(state_of(ledger).peak_bytes, 1000);
    assert_int_equal(state_of(ledger).refused_count, 2);
    assert_int_equal(state_of(ledger).entry_count, 2);
    flyt_ledger_forget_peak(ledger);
    assert_int_equal(state_of(ledger).peak_bytes, 600);
    flyt_ledger_close(ledger);
}

static void test_reserve_counts(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    flyt_ledger_join(ledger, 1);
    assert_int_equal(flyt_ledger_reserve(ledger, 1, 300), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 700), 0);
    assert_int_equal(flyt_ledger_reserve(ledger, 1, 301), -ENOMEM);
    assert_int_equal(flyt_ledger_reserve(ledger, 1, 100), 0);
    assert_int_equal(flyt_ledger_used(ledger, 1), 800);
    assert_int_equal(flyt_ledger_used(ledger, 9), 0);
    assert_int_equal(flyt_ledger_release(ledger, 1, 701), -ERANGE); /* what is reserved is not released */
    assert_int_equal(flyt_ledger_charged(ledger, 1), 700);
    assert_int_equal(flyt_ledger_reserved(ledger, 1), 100);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 9, 1), -ENOENT);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, 201), -ENOMEM);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, 200), 0);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, -50), 0);
    assert_int_equal(flyt_ledger_reserved(ledger, 1), 250);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, -251), 0); /* of what was corrected meanwhile */
    assert_int_equal(flyt_ledger_reserved(ledger, 1), 0);
    /* What was measured is there, limit or not: then nothing more is granted. */
    uint64_t used, limit;
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 1, 900, &used, &limit), 0);
    assert_int_equal(used, 1600);
    assert_int_equal(limit, 1000);
    assert_int_equal(state_of(ledger).peak_bytes, 1600);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1), -ENOMEM);
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 9, 1, &used, &limit), -ENOENT);
    flyt_ledger_close(ledger);
}

/* What the driver is still to take is not taken back because it was not there when somebody looked. */
static void test_what_is_charged_ahead_stays(void **state)
{
    struct flyt_ledger *ledger;
    uint64_t used, limit;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    flyt_ledger_join(ledger, 1);
    flyt_ledger_join(ledger, 2);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, 400), 0);
    flyt_ledger_set_estimate(ledger, 1, 100, 300);
    flyt_ledger_set_estimate(ledger, 9, 1, 1); /* nobody */
    static const struct {
        uint64_t measured, reserved;
    } rows[] = {{0, 300}, {60, 360}, {100, 400}, {250, 400}, {400, 400}, {450, 450}};
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(flyt_ledger_reserve_measured(ledger, 1, rows[i].measured, &used, &limit), 0);
        assert_int_equal(flyt_ledger_reserved(ledger, 1), rows[i].reserved);
        assert_int_equal(used, rows[i].reserved);
    }
    /* Others do not get it. */
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 1, 100, &used, &limit), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 601), -ENOMEM);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 600), 0);
    /* What is gone may be more than what was measured of it. */
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 1, 10, &used, &limit), 0);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, -100), 0);
    assert_int_equal(flyt_ledger_reserved(ledger, 1), 300);
    flyt_ledger_set_estimate(ledger, 1, 0, 0);
    assert_int_equal(flyt_ledger_reserve_change(ledger, 1, -300), 0);
    assert_int_equal(flyt_ledger_reserved(ledger, 1), 0);
    /* Nothing of it goes to another server, and nothing that somebody writes overflows. */
    flyt_ledger_set_estimate(ledger, 1, UINT64_MAX, UINT64_MAX);
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 1, 10, &used, &limit), 0);
    assert_int_equal(used, UINT64_MAX);
    assert_int_equal(flyt_ledger_move(ledger, 1, 3, 5), 0);
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 3, 10, &used, &limit), 0);
    assert_int_equal(used, 615);
    flyt_ledger_set_estimate(ledger, 3, 7, 7);
    flyt_ledger_reclaim(ledger, 3, NULL);
    assert_int_equal(flyt_ledger_join(ledger, 4), 0);
    assert_int_equal(flyt_ledger_reserve_measured(ledger, 4, 0, &used, &limit), 0);
    assert_int_equal(used, 600);
    flyt_ledger_close(ledger);
}

static void test_what_is_cached_is_told(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    flyt_ledger_join(ledger, 1);
    flyt_ledger_join(ledger, 2);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 500), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 300), 0);
    flyt_ledger_set_cached(ledger, 1, 200);
    flyt_ledger_set_cached(ledger, 2, 100);
    flyt_ledger_set_cached(ledger, 3, 50); /* nobody */
    flyt_ledger_set_cached(ledger, 0, 50);
    assert_int_equal(state_of(ledger).cached_bytes, 300);
    assert_int_equal(state_of(ledger).used_bytes, 800); /* counts as used all the same */
    assert_int_equal(flyt_ledger_charge(ledger, 1, 300), -ENOMEM);
    /* It goes with its server, and the next one begins without. */
    assert_int_equal(flyt_ledger_reclaim(ledger, 1, NULL), 0);
    assert_int_equal(state_of(ledger).cached_bytes, 100);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(state_of(ledger).cached_bytes, 100);
    flyt_ledger_set_cached(ledger, 2, 5000); /* never more than is used */
    assert_int_equal(state_of(ledger).cached_bytes, 300);
    flyt_ledger_close(ledger);
}

static void test_limit_sinks_as_memory_is_released(void **state)
{
    struct flyt_ledger *ledger;
    uint64_t used = 0;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    flyt_ledger_join(ledger, 1);
    flyt_ledger_charge(ledger, 1, 800);
    assert_int_equal(flyt_ledger_set_limit(ledger, 500, 7, false, &used), -EBUSY);
    assert_int_equal(used, 800);
    assert_int_equal(state_of(ledger).limit_bytes, LIMIT);
    assert_int_equal(state_of(ledger).limit_revision, 0);
    assert_int_equal(flyt_ledger_set_limit(ledger, 500, 7, true, &used), 0);
    assert_int_equal(flyt_ledger_set_limit(ledger, 900, 6, true, &used), -ESTALE);
    assert_int_equal(state_of(ledger).holding_bytes, 800);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1), -ENOMEM);
    flyt_ledger_release(ledger, 1, 200);
    assert_int_equal(state_of(ledger).holding_bytes, 600);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1), -ENOMEM); /* what was given back stays so */
    flyt_ledger_release(ledger, 1, 200);
    assert_int_equal(state_of(ledger).holding_bytes, 500);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 100), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1), -ENOMEM);
    assert_int_equal(flyt_ledger_set_limit(ledger, 2000, 8, false, NULL), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1500), 0);
    flyt_ledger_close(ledger);
}

static void test_entries_are_reclaimed_and_bounded(void **state)
{
    struct flyt_ledger *ledger;
    uint64_t bytes = 0;

    assert_int_equal(flyt_ledger_new(1 << 20, &ledger), 0);
    for (uint64_t id = 1; id <= FLYT_LEDGER_ENTRIES_MAX; id++) {
        assert_int_equal(flyt_ledger_join(ledger, id), 0);
        assert_int_equal(flyt_ledger_charge(ledger, id, id), 0);
    }
    assert_int_equal(flyt_ledger_join(ledger, 1000), -ENOSPC);
    flyt_ledger_reserve(ledger, 50, 7);
    assert_int_equal(flyt_ledger_reclaim(ledger, 50, &bytes), 0);
    assert_int_equal(bytes, 57);
    assert_int_equal(flyt_ledger_reclaim(ledger, 50, &bytes), -ENOENT);
    assert_int_equal(flyt_ledger_join(ledger, 1000), 0);
    assert_int_equal(flyt_ledger_used(ledger, 1000), 0); /* nothing is inherited */
    uint64_t all = (uint64_t)FLYT_LEDGER_ENTRIES_MAX * (FLYT_LEDGER_ENTRIES_MAX + 1) / 2;
    assert_int_equal(state_of(ledger).used_bytes, all - 50);
    flyt_ledger_close(ledger);
}

static void test_an_entry_goes_to_another_server(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(100, &ledger), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_join(ledger, 2), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 70), 0);
    assert_int_equal(flyt_ledger_reserve(ledger, 1, 10), 0);
    flyt_ledger_set_cached(ledger, 1, 30);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 20), 0);
    assert_int_equal(flyt_ledger_move(ledger, 3, 4, 5), -ENOENT);
    assert_int_equal(flyt_ledger_move(ledger, 1, 2, 70), -EEXIST);
    assert_int_equal(flyt_ledger_move(ledger, 1, 0, 70), -EINVAL);
    assert_int_equal(state_of(ledger).used_bytes, 100); /* nothing has changed */
    assert_int_equal(flyt_ledger_move(ledger, 1, 7, 64), 0);
    assert_int_equal(state_of(ledger).entry_count, 2);
    assert_int_equal(state_of(ledger).used_bytes, 84);
    assert_int_equal(state_of(ledger).cached_bytes, 0);
    assert_int_equal(flyt_ledger_used(ledger, 1), 0);
    assert_int_equal(flyt_ledger_charged(ledger, 7), 64);
    assert_int_equal(flyt_ledger_reserved(ledger, 7), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 1), -ENOENT);
    assert_int_equal(flyt_ledger_charge(ledger, 2, 17), -ENOMEM);
    assert_int_equal(flyt_ledger_charge(ledger, 7, 16), 0);
    assert_int_equal(flyt_ledger_release(ledger, 7, 80), 0);
    flyt_ledger_close(ledger);
}

/* Another process moves an entry to and fro and is killed; nobody ever sees room that is not there. */
static void test_moves_never_open_the_limit(void **state)
{
    enum { ROUNDS = 20, LOOKS = 2000 };
    struct flyt_ledger *ledger;
    uint64_t ids[FLYT_LEDGER_ENTRIES_MAX];

    assert_int_equal(flyt_ledger_new(100, &ledger), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_join(ledger, 9), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 100), 0);
    for (unsigned i = 0; i < ROUNDS; i++) {
        pid_t pid = fork();
        if (!pid) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;) {
                flyt_ledger_move(ledger, 1, 2, 100);
                flyt_ledger_move(ledger, 2, 1, 100);
            }
        }
        assert_true(pid > 0);
        for (unsigned j = 0; j < LOOKS; j++)
            assert_int_not_equal(flyt_ledger_charge(ledger, 9, 1), 0);
        kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        assert_int_equal(state_of(ledger).used_bytes, 100);
        assert_int_equal(flyt_ledger_list(ledger, ids), 2);
        assert_int_equal(flyt_ledger_used(ledger, 1) + flyt_ledger_used(ledger, 2), 100);
        if (flyt_ledger_used(ledger, 2))
            assert_int_equal(flyt_ledger_move(ledger, 2, 1, 100), 0);
    }
    flyt_ledger_close(ledger);
}

static void test_only_a_ledger_is_opened(void **state)
{
    struct flyt_ledger *ledger, *again;
    int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_int_equal(ftruncate(fd, 4096), 0);
    assert_int_equal(flyt_ledger_open(fd, &again), -EBADMSG); /* may be cut short */
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    assert_int_equal(flyt_ledger_open(fd, &again), -EBADMSG); /* is none */
    close(fd);
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    assert_int_equal(flyt_ledger_open(fd, &again), -EBADMSG);
    close(fd);
    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    flyt_ledger_join(ledger, 3);
    assert_int_equal(flyt_ledger_open(flyt_ledger_fd(ledger), &again), 0);
    assert_int_not_equal(flyt_ledger_fd(again), flyt_ledger_fd(ledger));
    assert_int_equal(flyt_ledger_charge(again, 3, 11), 0);
    assert_int_equal(flyt_ledger_used(ledger, 3), 11);
    assert_int_equal(ftruncate(flyt_ledger_fd(again), 0), -1);
    flyt_ledger_close(again);
    flyt_ledger_close(ledger);
}

/* ---- many at once ---- */

/* What all hold together by a count of its own, kept so that it is never more than is charged: added to after a charge,
 * taken from before a release. */
struct arena {
    _Atomic(uint64_t) held, charges, excesses, unreleased;
    _Atomic(bool) is_over;
};

struct user {
    struct flyt_ledger *ledger;
    struct arena *arena;
    uint64_t server_id;
    unsigned seed;
    unsigned rounds;
};

static void *charge_and_release(void *argument)
{
    struct user *user = argument;
    struct arena *arena = user->arena;

    for (unsigned i = 0; i < user->rounds && !atomic_load(&arena->is_over); i++) {
        uint64_t bytes = 1 + (unsigned)rand_r(&user->seed) % (LIMIT / 3);
        if (flyt_ledger_charge(user->ledger, user->server_id, bytes))
            continue;
        if (atomic_fetch_add(&arena->held, bytes) + bytes > LIMIT)
            atomic_fetch_add(&arena->excesses, 1);
        atomic_fetch_add(&arena->charges, 1);
        if (i % 4 == 0)
            sched_yield();
        atomic_fetch_sub(&arena->held, bytes);
        if (flyt_ledger_release(user->ledger, user->server_id, bytes))
            atomic_fetch_add(&arena->unreleased, 1);
    }
    return NULL;
}

static struct arena *new_arena(void)
{
    struct arena *arena = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(arena, MAP_FAILED);
    return arena;
}

static void test_threads_and_processes_never_pass_the_limit(void **state)
{
    struct arena *arena = new_arena();
    struct flyt_ledger *ledger;
    pid_t pids[PROCESSES];

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    for (unsigned p = 0; p < PROCESSES; p++)
        assert_int_equal(flyt_ledger_join(ledger, p + 1), 0);
    for (unsigned p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        if (pids[p])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct flyt_ledger *own;
        struct user users[THREADS];
        pthread_t threads[THREADS];
        if (flyt_ledger_open(flyt_ledger_fd(ledger), &own))
            _exit(1);
        for (unsigned t = 0; t < THREADS; t++) {
            users[t] = (struct user){own, arena, p + 1, p * 100 + t, 3000};
            pthread_create(&threads[t], NULL, charge_and_release, &users[t]);
        }
        for (unsigned t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
        _exit(flyt_ledger_used(own, p + 1) != 0);
    }
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status = -1;
        assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
        assert_int_equal(status, 0);
    }
    assert_int_equal(atomic_load(&arena->excesses), 0);
    assert_int_equal(atomic_load(&arena->unreleased), 0);
    assert_true(atomic_load(&arena->charges) > PROCESSES * THREADS * 100);
    assert_int_equal(atomic_load(&arena->held), 0);
    assert_int_equal(state_of(ledger).used_bytes, 0);
    assert_true(state_of(ledger).peak_bytes <= LIMIT);
    assert_true(state_of(ledger).refused_count > 0); /* they have been in each other's way */
    flyt_ledger_close(ledger);
    munmap(arena, 4096);
}

static pid_t start_victim(struct flyt_ledger *ledger, struct arena *arena, uint64_t server_id)
{
    assert_int_equal(flyt_ledger_join(ledger, server_id), 0);
    pid_t pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct user user = {ledger, arena, server_id, (unsigned)server_id, UINT32_MAX};
    charge_and_release(&user);
    _exit(0);
}

/* Processes die at random instructions of the charge loop, new ones take their places. */
static void test_deaths_at_random_moments(void **state)
{
    enum { DEATHS = 300 };
    struct arena *arena = new_arena();
    struct flyt_ledger *ledger;
    uint64_t ids[PROCESSES], next_id = 1, reclaimed, left_behind = 0;
    pid_t pids[PROCESSES];
    unsigned seed = 5;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    for (unsigned p = 0; p < PROCESSES; p++)
        pids[p] = start_victim(ledger, arena, ids[p] = next_id++);
    for (unsigned i = 0; i < DEATHS; i++) {
        unsigned p = (unsigned)rand_r(&seed) % PROCESSES;
        nanosleep(&(struct timespec){.tv_nsec = rand_r(&seed) % 3000000}, NULL);
        kill(pids[p], SIGKILL);
        assert_int_equal(waitpid(pids[p], NULL, 0), pids[p]);
        assert_int_equal(flyt_ledger_reclaim(ledger, ids[p], &reclaimed), 0);
        left_behind += reclaimed > 0;
        assert_int_equal(flyt_ledger_used(ledger, ids[p]), 0);
        assert_true(state_of(ledger).used_bytes <= LIMIT);
        assert_true(state_of(ledger).entry_count <= PROCESSES);
        pids[p] = start_victim(ledger, arena, ids[p] = next_id++);
    }
    atomic_store(&arena->is_over, true);
    for (unsigned p = 0; p < PROCESSES; p++) {
        int status = -1;
        assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
        assert_int_equal(status, 0); /* nobody else was harmed */
        assert_int_equal(atomic_load(&arena->unreleased), 0);
        assert_int_equal(flyt_ledger_used(ledger, ids[p]), 0);
    }
    assert_true(left_behind > 0); /* some died with memory charged */
    assert_int_equal(state_of(ledger).used_bytes, 0);
    assert_true(state_of(ledger).peak_bytes <= LIMIT);
    /* All of the limit is there again. */
    assert_int_equal(flyt_ledger_join(ledger, next_id), 0);
    assert_int_equal(flyt_ledger_charge(ledger, next_id, LIMIT), 0);
    flyt_ledger_close(ledger);
    munmap(arena, 4096);
}

static struct flyt_ledger_shared *map(const struct flyt_ledger *ledger)
{
    void *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, flyt_ledger_fd(ledger), 0);

    assert_ptr_not_equal(shared, MAP_FAILED);
    return shared;
}

/* One announced a claim and does not go on: it counts, so that it may go on at any time, and others are not stopped. */
static void test_a_stopped_claimant_stops_nobody(void **state)
{
    struct flyt_ledger *ledger;
    uint64_t used;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    struct flyt_ledger_shared *shared = map(ledger);
    for (uint64_t id = 1; id <= 3; id++)
        assert_int_equal(flyt_ledger_join(ledger, id), 0);
    for (unsigned stopped = 0; stopped < 3; stopped += 2) { /* one before it, one behind it */
        atomic_store(&shared->entries[stopped].claimed_bytes, 600);
        assert_int_equal(flyt_ledger_charge(ledger, 2, 400), 0);
        assert_int_equal(flyt_ledger_charge(ledger, 2, 1), -ENOMEM);
        assert_int_equal(flyt_ledger_charge_for(ledger, 2, 1), -ENOMEM);
        assert_int_equal(atomic_load(&shared->entries[1].claimed_bytes), 0);
        assert_int_equal(atomic_load(&shared->claimed_bytes), 0);
        assert_int_equal(flyt_ledger_set_limit(ledger, 999, 1, false, &used), -EBUSY); /* it may be granted */
        assert_int_equal(used, 1000);
        assert_int_equal(flyt_ledger_release(ledger, 2, 400), 0);
        assert_int_equal(state_of(ledger).used_bytes, 0);
        /* It dies, and its claim with it. */
        assert_int_equal(flyt_ledger_reclaim(ledger, stopped + 1, NULL), 0);
        assert_int_equal(flyt_ledger_charge(ledger, 2, LIMIT), 0);
        assert_int_equal(flyt_ledger_release(ledger, 2, LIMIT), 0);
        assert_int_equal(flyt_ledger_join(ledger, stopped + 1), 0);
        assert_int_equal(flyt_ledger_charge(ledger, stopped + 1, LIMIT), 0);
        assert_int_equal(flyt_ledger_release(ledger, stopped + 1, LIMIT), 0);
    }
    munmap(shared, 8192);
    flyt_ledger_close(ledger);
}

/* Processes that charge are stopped at random instructions: another one charges and gives back all the same, and what
 * they have together is never too much, whenever they go on. */
static void test_processes_that_are_stopped_anywhere(void **state)
{
    enum { STOPS = 200 };
    struct arena *arena = new_arena();
    struct flyt_ledger *ledger;
    pid_t pids[2];
    unsigned seed = 9;
    uint64_t granted = 0;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    for (unsigned p = 0; p < 2; p++)
        pids[p] = start_victim(ledger, arena, p + 1);
    assert_int_equal(flyt_ledger_join(ledger, 9), 0);
    for (unsigned i = 0; i < STOPS; i++) {
        int status;
        pid_t pid = pids[i % 2];
        nanosleep(&(struct timespec){.tv_nsec = rand_r(&seed) % 300000}, NULL);
        kill(pid, SIGSTOP);
        assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
        assert_true(WIFSTOPPED(status));
        for (unsigned j = 0; j < 10; j++) {
            uint64_t bytes = 1 + (unsigned)rand_r(&seed) % (LIMIT / 3);
            if (flyt_ledger_charge(ledger, 9, bytes))
                continue;
            granted++;
            if (atomic_fetch_add(&arena->held, bytes) + bytes > LIMIT)
                atomic_fetch_add(&arena->excesses, 1);
            atomic_fetch_sub(&arena->held, bytes);
            assert_int_equal(flyt_ledger_release(ledger, 9, bytes), 0);
        }
        kill(pid, SIGCONT);
    }
    atomic_store(&arena->is_over, true);
    for (unsigned p = 0; p < 2; p++)
        assert_int_equal(waitpid(pids[p], NULL, 0), pids[p]);
    assert_true(granted > 0);
    assert_int_equal(atomic_load(&arena->excesses), 0);
    assert_int_equal(atomic_load(&arena->unreleased), 0);
    assert_int_equal(state_of(ledger).used_bytes, 0);
    flyt_ledger_close(ledger);
    munmap(arena, 4096);
}

static void test_what_the_node_manager_charges(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    assert_int_equal(flyt_ledger_charge_for(ledger, 1, 5), -ENOENT);
    assert_int_equal(flyt_ledger_charge_for(ledger, 0, 5), -EINVAL);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_charge_for(ledger, 1, 0), 0);
    assert_int_equal(flyt_ledger_charge_for(ledger, 1, 700), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 200), 0);
    assert_int_equal(flyt_ledger_charge_for(ledger, 1, 101), -ENOMEM);
    assert_int_equal(flyt_ledger_charge_for(ledger, 1, UINT64_MAX), -ENOMEM);
    assert_int_equal(flyt_ledger_charged(ledger, 1), 900);
    assert_int_equal(state_of(ledger).peak_bytes, 900);
    flyt_ledger_close(ledger);
}

/* Who sets the limit is told that one, and it holds again; a revision that was written there stops no order. */
static void test_a_limit_that_was_written_over(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    struct flyt_ledger_shared *shared = map(ledger);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_set_limit(ledger, 500, 3, false, NULL), 0);
    atomic_store(&shared->limit_bytes, UINT64_MAX);
    atomic_store(&shared->limit_revision, UINT64_MAX);
    assert_int_equal(state_of(ledger).limit_bytes, 500);
    assert_int_equal(state_of(ledger).limit_revision, 3);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 501), -ENOMEM);
    atomic_store(&shared->limit_revision, UINT64_MAX);
    assert_int_equal(flyt_ledger_set_limit(ledger, 400, 4, false, NULL), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 400), 0);
    munmap(shared, 8192);
    flyt_ledger_close(ledger);
}

static pid_t start_scribbler(const struct flyt_ledger *ledger)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    unsigned char *bytes = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, flyt_ledger_fd(ledger), 0);
    unsigned seed = 11;
    for (uint64_t i = 0;; i++) {
        bytes[(unsigned)rand_r(&seed) % 8192] = (unsigned char)rand_r(&seed);
        if (i % 65536 == 0 && ftruncate(flyt_ledger_fd(ledger), 0) == 0)
            _exit(1);
        if (i % 65536 == 1)
            fallocate(flyt_ledger_fd(ledger), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 8192);
    }
}

/* A server writes rubbish all over the ledger of its VM: whoever uses it gets an answer to each question, and another
 * VM's, which it has not, says what it says. */
static void test_rubbish_harms_nobody_else(void **state)
{
    enum { ROUNDS = 3000 };
    struct flyt_ledger *ledger, *other;
    uint64_t ids[FLYT_LEDGER_ENTRIES_MAX], used, limit;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    assert_int_equal(flyt_ledger_new(LIMIT, &other), 0);
    assert_int_equal(flyt_ledger_set_limit(ledger, LIMIT, 1, true, NULL), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_join(other, 1), 0);
    pid_t pid = start_scribbler(ledger);
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (i % 100 == 0) { /* this may wait for rubbish that claims something */
            flyt_ledger_charge(ledger, 1, 5);
            flyt_ledger_reserve_change(ledger, 1, 5);
        }
        flyt_ledger_charge_for(ledger, 1, 5);
        flyt_ledger_release(ledger, 1, 5);
        flyt_ledger_reserve_measured(ledger, 1, i, &used, &limit);
        flyt_ledger_set_cached(ledger, 1, i);
        flyt_ledger_reclaim(ledger, i, NULL);
        flyt_ledger_join(ledger, 1);
        flyt_ledger_move(ledger, 1, 2, 3);
        flyt_ledger_move(ledger, 2, 1, 3);
        assert_true(flyt_ledger_list(ledger, ids) <= FLYT_LEDGER_ENTRIES_MAX);
        int status = flyt_ledger_set_limit(ledger, LIMIT, 1, i % 2, NULL);
        assert_true(status == 0 || status == -EBUSY);
        struct flyt_ledger_state read = state_of(ledger);
        assert_int_equal(read.limit_bytes, LIMIT);
        assert_true(read.entry_count <= FLYT_LEDGER_ENTRIES_MAX && read.cached_bytes <= read.used_bytes);
        assert_int_equal(flyt_ledger_charge(other, 1, LIMIT), 0);
        assert_int_equal(flyt_ledger_charge(other, 1, 1), -ENOMEM);
        assert_int_equal(flyt_ledger_release(other, 1, LIMIT), 0);
    }
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0); /* it was at it all the time */
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    flyt_ledger_close(other);
    flyt_ledger_close(ledger);
}

/* One with a mutex in it, as builds before this one made them. */
static void test_older_ledgers_are_told_apart(void **state)
{
    struct flyt_shared *shared;
    struct flyt_ledger *ledger;
    int fd;

    assert_int_equal(flyt_shared_new("ledger", 4096, &fd, &shared), 0);
    shared->magic = 0x7267646c74796c66ull;
    shared->version = 1;
    assert_int_equal(flyt_ledger_open(fd, &ledger), -EPROTO);
    flyt_shared_close(fd, shared, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_charge_and_release),
        cmocka_unit_test(test_reserve_counts),
        cmocka_unit_test(test_what_is_charged_ahead_stays),
        cmocka_unit_test(test_what_is_cached_is_told),
        cmocka_unit_test(test_limit_sinks_as_memory_is_released),
        cmocka_unit_test(test_entries_are_reclaimed_and_bounded),
        cmocka_unit_test(test_an_entry_goes_to_another_server),
        cmocka_unit_test(test_moves_never_open_the_limit),
        cmocka_unit_test(test_only_a_ledger_is_opened),
        cmocka_unit_test(test_threads_and_processes_never_pass_the_limit),
        cmocka_unit_test(test_deaths_at_random_moments),
        cmocka_unit_test(test_a_stopped_claimant_stops_nobody),
        cmocka_unit_test(test_processes_that_are_stopped_anywhere),
        cmocka_unit_test(test_what_the_node_manager_charges),
        cmocka_unit_test(test_a_limit_that_was_written_over),
        cmocka_unit_test(test_rubbish_harms_nobody_else),
        cmocka_unit_test(test_older_ledgers_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
