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
#include "rpc/base/test_holder.h"

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
    for (unsigned p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        if (pids[p])
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct flyt_ledger *own;
        struct user users[THREADS];
        pthread_t threads[THREADS];
        if (flyt_ledger_open(flyt_ledger_fd(ledger), &own) || flyt_ledger_join(own, p + 1))
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
    pid_t pid = fork();

    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct user user = {ledger, arena, server_id, (unsigned)server_id, UINT32_MAX};
    if (flyt_ledger_join(ledger, server_id))
        _exit(1);
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
        int status = flyt_ledger_reclaim(ledger, ids[p], &reclaimed);
        assert_true(status == 0 || status == -ENOENT); /* killed before it joined */
        left_behind += status == 0 && reclaimed > 0;
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

/* Who holds the mutex and does not go on stops nobody for ever; its death frees the mutex. */
static void test_stopped_holder(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    pid_t pid = test_holder_begin(flyt_ledger_fd(ledger));
    assert_true(pid > 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 5), -ETIMEDOUT);
    assert_int_equal(state_of(ledger).entry_count, 1); /* reading goes on */
    assert_true(test_holder_end(pid));
    assert_int_equal(flyt_ledger_charge(ledger, 1, 5), 0);
    assert_int_equal(flyt_ledger_release(ledger, 1, 5), 0);
    flyt_ledger_close(ledger);
}

/* What could not be given back is, by the next operation of this process, or when it settles. */
static void test_owed(void **state)
{
    struct flyt_ledger *ledger;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    for (uint64_t id = 1; id <= 3; id++) {
        assert_int_equal(flyt_ledger_join(ledger, id), 0);
        assert_int_equal(flyt_ledger_charge(ledger, id, 100), 0);
        assert_int_equal(flyt_ledger_reserve(ledger, id, 50), 0);
    }
    assert_true(flyt_ledger_settle(ledger));
    pid_t pid = test_holder_begin(flyt_ledger_fd(ledger));
    assert_true(pid > 0);
    assert_int_equal(flyt_ledger_release(ledger, 1, 60), -ETIMEDOUT);
    assert_int_equal(flyt_ledger_owe(ledger, 1, 60, 0), 0);
    assert_int_equal(flyt_ledger_owe(ledger, 1, 10, 20), 0);
    assert_int_equal(flyt_ledger_owe_entry(ledger, 2), 0);
    assert_int_equal(flyt_ledger_owe(ledger, 3, 7, 0), 0);
    flyt_ledger_forget_owed(ledger, 3);
    assert_true(flyt_ledger_owes(ledger));
    assert_false(flyt_ledger_settle(ledger));
    assert_int_equal(state_of(ledger).used_bytes, 450);
    assert_true(test_holder_end(pid));
    assert_true(flyt_ledger_settle(ledger));
    assert_int_equal(flyt_ledger_charged(ledger, 1), 30);
    assert_int_equal(flyt_ledger_reserved(ledger, 1), 30);
    assert_int_equal(flyt_ledger_used(ledger, 2), 0);
    assert_int_equal(flyt_ledger_charged(ledger, 3), 100);
    assert_int_equal(state_of(ledger).entry_count, 2);
    /* An operation finds it given back: it fits only so. What was given back is not given back again. */
    assert_int_equal(flyt_ledger_owe(ledger, 3, 100, 50), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, LIMIT - 60), 0);
    assert_false(flyt_ledger_owes(ledger));
    assert_int_equal(flyt_ledger_used(ledger, 3), 0);
    flyt_ledger_close(ledger);
}

/* The entry is another server's for a while: it owes when it is back, and the other one does not. */
static void test_owed_of_an_entry_that_moves(void **state)
{
    struct flyt_ledger *ledger, *other;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    assert_int_equal(flyt_ledger_open(flyt_ledger_fd(ledger), &other), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    assert_int_equal(flyt_ledger_charge(ledger, 1, 100), 0);
    assert_int_equal(flyt_ledger_owe(ledger, 1, 40, 0), 0);
    assert_int_equal(flyt_ledger_move(other, 1, 2, 100), 0);
    assert_false(flyt_ledger_settle(ledger));
    assert_int_equal(flyt_ledger_used(ledger, 2), 100);
    assert_int_equal(flyt_ledger_move(other, 2, 1, 100), 0);
    assert_true(flyt_ledger_settle(ledger));
    assert_int_equal(flyt_ledger_used(ledger, 1), 60);
    /* As many servers as there are entries, and no more. */
    for (uint64_t id = 0; id < FLYT_LEDGER_ENTRIES_MAX; id++)
        assert_int_equal(flyt_ledger_owe(ledger, 1000 + id, 1, 0), 0);
    assert_int_equal(flyt_ledger_owe(ledger, 1000, 1, 0), 0);
    assert_int_equal(flyt_ledger_owe(ledger, 999, 1, 0), -ENOSPC);
    flyt_ledger_close(other);
    flyt_ledger_close(ledger);
}

struct sleeper {
    struct flyt_ledger *ledger;
    int status;
};

static void *charge_once(void *argument)
{
    struct sleeper *sleeper = argument;

    sleeper->status = flyt_ledger_charge(sleeper->ledger, 1, 5);
    return NULL;
}

/* A process is killed after its unlocking and before its waking of others, when the next one has the mutex already,
 * which knows of no waiters: those find out by themselves that it is free. */
static void test_a_wake_is_lost(void **state)
{
    struct flyt_ledger *ledger;
    pthread_t thread;

    assert_int_equal(flyt_ledger_new(LIMIT, &ledger), 0);
    assert_int_equal(flyt_ledger_join(ledger, 1), 0);
    unsigned char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, flyt_ledger_fd(ledger), 0);
    assert_ptr_not_equal(shared, MAP_FAILED);
    _Atomic(int) *word = (_Atomic(int) *)(void *)(shared + 16); /* the mutex begins with its futex */
    atomic_store(word, getpid());                               /* somebody else has it, for all that a waiter sees */
    struct sleeper sleeper = {.ledger = ledger, .status = 1};
    assert_int_equal(pthread_create(&thread, NULL, charge_once, &sleeper), 0);
    while ((uint32_t)atomic_load(word) == (uint32_t)getpid()) /* until it says that it sleeps */
        sched_yield();
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    atomic_store(word, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(sleeper.status, 0);
    assert_int_equal(flyt_ledger_used(ledger, 1), 5);
    munmap(shared, 4096);
    flyt_ledger_close(ledger);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_charge_and_release),
        cmocka_unit_test(test_reserve_counts),
        cmocka_unit_test(test_what_is_cached_is_told),
        cmocka_unit_test(test_limit_sinks_as_memory_is_released),
        cmocka_unit_test(test_entries_are_reclaimed_and_bounded),
        cmocka_unit_test(test_an_entry_goes_to_another_server),
        cmocka_unit_test(test_moves_never_open_the_limit),
        cmocka_unit_test(test_only_a_ledger_is_opened),
        cmocka_unit_test(test_threads_and_processes_never_pass_the_limit),
        cmocka_unit_test(test_deaths_at_random_moments),
        cmocka_unit_test(test_stopped_holder),
        cmocka_unit_test(test_owed),
        cmocka_unit_test(test_owed_of_an_entry_that_moves),
        cmocka_unit_test(test_a_wake_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
