/* Tests of the token of a set of SMs among processes: no death and no liar takes it away. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
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

#include "rpc/base/clock.h"
#include "rpc/base/sealed.h"
#include "rpc/base/time_slice_board.h"
#include "rpc/base/time_slice_seat.h"
#include "rpc/base/time_slices.h"

#define MS 1000000ull
#define S  1000000000ull

static struct flyt_time_slices *new_time_slices(void)
{
    const struct flyt_time_slice_share share = {50, 100, 10, 0};
    struct flyt_time_slices *time_slices;

    assert_int_equal(flyt_time_slices_new(&time_slices), 0);
    assert_int_equal(flyt_time_slices_set(time_slices, 1, &share, 1), 0);
    assert_int_equal(flyt_time_slices_set(time_slices, 2, &share, 1), 0);
    return time_slices;
}

static void test_open(void **state)
{
    const struct flyt_time_slice_share share = {20, 80, 100, 0};
    struct flyt_time_slices *time_slices = new_time_slices();
    struct flyt_time_slice_seat *seat;
    struct flyt_time_slices_state read;
    int fds[FLYT_TIME_SLICES_FDS], wrong[FLYT_TIME_SLICES_FDS];
    uint64_t ids[FLYT_TIME_SLICE_SERVERS_MAX];

    assert_int_equal(flyt_time_slices_set(time_slices, 7, &share, 3), 0);
    assert_int_equal(flyt_time_slices_set(time_slices, 7, &share, 2), -ESTALE);
    assert_int_equal(flyt_time_slices_join(time_slices, 8, 70, fds), -ENOENT);
    assert_int_equal(flyt_time_slices_join(time_slices, 7, 70, fds), 0);
    assert_int_equal(flyt_time_slices_join(time_slices, 7, 71, fds), 0);
    assert_int_equal(flyt_time_slices_join(time_slices, 7, 70, fds), 0); /* anew */
    assert_true(flyt_time_slices_has(time_slices, 70) && flyt_time_slices_has(time_slices, 71) &&
                !flyt_time_slices_has(time_slices, 72));
    assert_int_equal(flyt_time_slices_servers(time_slices, ids), 2);
    assert_int_equal(flyt_time_slices_read(time_slices, 7, &read), 0);
    assert_int_equal(read.share.minimum_pct, 20);
    assert_int_equal(flyt_time_slices_read(time_slices, 8, &read), -ENOENT);
    /* Nobody but its maker can write on the board, however he comes by it; nobody makes anything shorter. */
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fds[0]);
    int again = open(path, O_RDWR | O_CLOEXEC);
    for (unsigned i = 0; i < 2; i++) {
        int fd = i ? again : fds[0];
        if (fd < 0)
            continue;
        assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
        void *memory = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        assert_int_equal(mprotect(memory, 4096, PROT_READ | PROT_WRITE), -1);
        munmap(memory, 4096);
        assert_int_equal(write(fd, "x", 1), -1);
        assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
        assert_int_equal(ftruncate(fd, 0), -1);
    }
    close(again);
    assert_int_equal(ftruncate(fds[1], 0), -1);
    memcpy(wrong, fds, sizeof fds);
    wrong[0] = fds[1];
    assert_int_equal(flyt_time_slice_seat_open(wrong, &seat), -EBADMSG);
    wrong[0] = fds[0];
    wrong[1] = fds[0];
    assert_int_equal(flyt_time_slice_seat_open(wrong, &seat), -EBADMSG);
    wrong[1] = 0;
    assert_int_equal(flyt_time_slice_seat_open(wrong, &seat), -EBADMSG);
    assert_int_equal(flyt_time_slice_seat_open(fds, &seat), 0);
    flyt_time_slice_seat_close(seat);
    flyt_time_slices_remove(time_slices, 7);
    assert_false(flyt_time_slices_has(time_slices, 70));
    assert_int_equal(flyt_time_slices_list(time_slices, ids), 2);
    flyt_time_slices_close(time_slices);
}

/* Works in time slices until it is killed; counts in its word how often, and that nobody of another tenant did
 * meanwhile. Where a process did not run for STILL_MS, be it the one that gives out, others may rightly have gone on.
 */
struct board {
    _Atomic(uint64_t) counts[4];
    _Atomic(int) at_work; /* the tenant that is; 0: nobody */
    _Atomic(uint64_t) overlaps;
    _Atomic(uint64_t) seen_ns[4], late_ns[4]; /* when it looked last, and when it found that somebody had not run */
};

/* Less than what a server may take to be seen, and the giver not to be away. */
enum { STILL_MS = FLYT_TIME_SLICE_LOST_MS / 4 };
_Static_assert(STILL_MS * 2 <= FLYT_TIME_SLICE_AWAY_MS, "who gives out is not away yet");

/* It was at it at `last_ns`, and is now. */
static uint64_t look(const struct flyt_time_slice_board *shared, struct board *board, unsigned index, uint64_t last_ns)
{
    const uint64_t given_ns = atomic_load(&shared->seen_ns), now_ns = flyt_clock_ns();

    if (now_ns > last_ns + STILL_MS * MS || now_ns > given_ns + STILL_MS * MS)
        atomic_store(&board->late_ns[index], now_ns);
    atomic_store(&board->seen_ns[index], now_ns); /* after that: is_late reads it before */
    return now_ns;
}

/* Whether what it does now it may do without the token. */
static bool is_late(struct board *board, unsigned index)
{
    const uint64_t seen_ns = atomic_load(&board->seen_ns[index]), late_ns = atomic_load(&board->late_ns[index]);
    const uint64_t now_ns = flyt_clock_ns();

    return now_ns > seen_ns + STILL_MS * MS || now_ns < late_ns + S;
}

static void work(struct flyt_time_slice_seat *seat, const struct flyt_time_slice_board *shared, struct board *board,
                 unsigned index)
{
    for (;;) {
        uint64_t again_ns, now_ns = flyt_clock_ns();
        uint32_t wakes = flyt_time_slice_seat_wakes(seat);
        if (!flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_WAITS, now_ns, &again_ns)) {
            flyt_time_slice_seat_wait(seat, wakes, again_ns > now_ns ? again_ns - now_ns : 0);
            continue;
        }
        flyt_time_slice_seat_set_idle(seat, false, flyt_clock_ns());
        uint64_t last_ns = look(shared, board, index, now_ns);
        const int other = atomic_exchange(&board->at_work, (int)index + 1);
        last_ns = look(shared, board, index, last_ns);
        if (other && !is_late(board, (unsigned)other - 1) && !is_late(board, index))
            atomic_fetch_add(&board->overlaps, 1);
        const uint64_t until_ns = flyt_clock_ns() + 3 * MS; /* its kernel is done, or its time is over */
        do {
            last_ns = look(shared, board, index, last_ns);
            flyt_time_slice_seat_be_seen(seat, flyt_clock_ns());
        } while (flyt_clock_ns() < until_ns &&
                 flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_RUNS, flyt_clock_ns(), &again_ns));
        atomic_fetch_add(&board->counts[index], 1);
        look(shared, board, index, last_ns);
        atomic_store(&board->at_work, 0);
        flyt_time_slice_seat_set_idle(seat, true, flyt_clock_ns());
    }
}

/* A process that has what a server has: the three descriptors. */
static pid_t start_with(struct flyt_time_slices *time_slices, unsigned tenant, uint64_t server_id,
                        void (*act)(const int *fds, void *user, unsigned index), void *user)
{
    int fds[FLYT_TIME_SLICES_FDS];
    int status = flyt_time_slices_join(time_slices, tenant, server_id, fds);
    pid_t parent = getpid(), pid = fork();

    assert_true(status == 0 && pid >= 0);
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        act(fds, user, tenant - 1);
    _exit(1);
}

static void open_and_work(const int *fds, void *board, unsigned index)
{
    struct flyt_time_slice_seat *seat;
    const void *shared;

    if (!flyt_time_slice_seat_open(fds, &seat) && !flyt_sealed_map(fds[0], FLYT_TIME_SLICE_BOARD_BYTES, &shared))
        work(seat, shared, board, index);
}

static pid_t start(struct flyt_time_slices *time_slices, struct board *board, unsigned index, uint64_t server_id)
{
    return start_with(time_slices, index + 1, server_id, open_and_work, board);
}

static uint64_t await_count(struct board *board, unsigned index, uint64_t more)
{
    uint64_t before = atomic_load(&board->counts[index]), until_ns = flyt_clock_ns() + 120 * S;

    while (atomic_load(&board->counts[index]) < before + more) {
        if (flyt_clock_ns() > until_ns)
            fail_msg("tenant %u does not get its time slice", index + 1);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    return atomic_load(&board->counts[index]) - before;
}

static struct board *new_board(void)
{
    struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(board != MAP_FAILED);
    return board;
}

static void end_process(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* One is killed again and again, wherever it is, told of or not; the other goes on each time. */
static void test_death_takes_nothing(void **state)
{
    struct board *board = new_board();
    struct flyt_time_slices *time_slices = new_time_slices();
    uint64_t server_id = 1;

    pid_t lasting = start(time_slices, board, 0, server_id++);
    for (unsigned i = 0; i < 20; i++) {
        uint64_t dying_id = server_id++;
        pid_t dying = start(time_slices, board, 1, dying_id);
        await_count(board, 1, 1);
        nanosleep(&(struct timespec){.tv_nsec = (long)(i * 371 % 4000) * 1000}, NULL);
        end_process(dying);
        int expected = 2;
        atomic_compare_exchange_strong(&board->at_work, &expected, 0);
        /* Every fourth time nobody says so: it is found out. */
        if (i % 4 != 3)
            flyt_time_slices_leave(time_slices, dying_id);
        await_count(board, 0, 3);
        if (i % 4 == 3)
            flyt_time_slices_leave(time_slices, dying_id);
    }
    assert_int_equal(atomic_load(&board->overlaps), 0);
    end_process(lasting);
    flyt_time_slices_close(time_slices);
    munmap(board, sizeof *board);
}

/* One is stopped at random moments, for good as far as the other sees: that one goes on each time, and so does it. */
static void test_stops_take_nothing(void **state)
{
    struct board *board = new_board();
    struct flyt_time_slices *time_slices = new_time_slices();

    pid_t lasting = start(time_slices, board, 0, 1), stopped = start(time_slices, board, 1, 2);
    for (unsigned i = 0; i < 8; i++) {
        await_count(board, 1, 1);
        nanosleep(&(struct timespec){.tv_nsec = (long)(i * 977 % 12000) * 1000}, NULL);
        kill(stopped, SIGSTOP);
        await_count(board, 0, 20);
        kill(stopped, SIGCONT);
    }
    await_count(board, 1, 5);
    end_process(lasting);
    end_process(stopped);
    flyt_time_slices_close(time_slices);
    munmap(board, sizeof *board);
}

/* Writes rubbish into everything that it can map for writing, and rings as often as it can. */
static void scribble(const int *fds, void *user, unsigned index)
{
    const uint64_t one = 1;
    unsigned char *pages[FLYT_TIME_SLICES_FDS];
    unsigned seed = 5;

    for (unsigned i = 0; i < FLYT_TIME_SLICES_FDS; i++)
        pages[i] = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
    for (uint64_t n = 0;; n++)
        for (unsigned i = 0; i < FLYT_TIME_SLICES_FDS; i++) {
            unsigned at = (unsigned)rand_r(&seed) % 4096;
            at = n % 2 ? at : at % 64; /* where something is, half of the time */
            if (pages[i] != MAP_FAILED)
                pages[i][at] = (unsigned char)rand_r(&seed);
            else if (write(fds[i], &one, sizeof one) < 0)
                continue;
        }
}

/* A server of a third tenant lies, all the time and in every way: the others have as much of the rest as they should,
 * and nobody stops. */
static void test_a_liar_harms_nobody_for_long(void **state)
{
    struct board *board = new_board();
    struct flyt_time_slices *time_slices = new_time_slices();
    const struct flyt_time_slice_share share = {0, 100, 10, 0};

    assert_int_equal(flyt_time_slices_set(time_slices, 3, &share, 1), 0);
    pid_t first = start(time_slices, board, 0, 1), second = start(time_slices, board, 1, 2);
    pid_t liar = start_with(time_slices, 3, 3, scribble, NULL);
    uint64_t counted = 0;
    /* A machine with other work gives one of them more of itself than the other, now and then; the liar would always.
     */
    for (unsigned i = 0; i < 10 && (counted < 100 || counted > 900); i++) {
        const uint64_t before = atomic_load(&board->counts[0]);
        await_count(board, 1, 300);
        counted = atomic_load(&board->counts[0]) - before;
    }
    if (counted < 100 || counted > 900)
        fail_msg("%u time slices of one, 300 of the other", (unsigned)counted);
    assert_int_equal(waitpid(liar, NULL, WNOHANG), 0); /* it was at it all the time */
    assert_int_equal(atomic_load(&board->overlaps), 0);
    end_process(liar);
    flyt_time_slices_leave(time_slices, 3);
    await_count(board, 0, 20);
    end_process(first);
    end_process(second);
    flyt_time_slices_close(time_slices);
    munmap(board, sizeof *board);
}

/* Says that it works, is seen, and never gives back. */
static void keep(const int *fds, void *user, unsigned index)
{
    struct flyt_time_slice_seat *seat;
    uint64_t again_ns;

    if (flyt_time_slice_seat_open(fds, &seat))
        return;
    while (!flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_WAITS, flyt_clock_ns(), &again_ns))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    for (;;) {
        flyt_time_slice_seat_be_seen(seat, flyt_clock_ns());
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* What it has said, of the server that is looked for; zero where there is none. */
static struct flyt_time_slices_server look_at(struct flyt_time_slices *time_slices, uint64_t server_id)
{
    struct flyt_time_slices_server servers[FLYT_TIME_SLICE_SERVERS_MAX];
    unsigned count = flyt_time_slices_look(time_slices, servers);

    while (count && servers[count - 1].server_id != server_id)
        count--;
    return count ? servers[count - 1] : (struct flyt_time_slices_server){0};
}

static struct flyt_time_slices_server await_over(struct flyt_time_slices *time_slices, uint64_t server_id)
{
    struct flyt_time_slices_server said;

    while (said = look_at(time_slices, server_id), !said.over_ns)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return said;
}

static uint64_t used_ns(struct flyt_time_slices *time_slices, uint64_t tenant_id)
{
    struct flyt_time_slices_state read;

    assert_int_equal(flyt_time_slices_read(time_slices, tenant_id, &read), 0);
    return read.used_ns;
}

/* As long as it has not said that it is done, at least so much of the next time is its tenant's. */
static void is_paid_for(struct flyt_time_slices *time_slices, uint64_t tenant_id)
{
    const uint64_t begin_ns = used_ns(time_slices, tenant_id);

    while (used_ns(time_slices, tenant_id) < begin_ns + 100 * MS)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void test_who_keeps_the_token_loses_it(void **state)
{
    struct board *board = new_board();
    struct flyt_time_slices *time_slices = new_time_slices();

    pid_t keeper = start_with(time_slices, 2, 2, keep, NULL);
    pid_t other = start(time_slices, board, 0, 1);
    struct flyt_time_slices_server said = await_over(time_slices, 2);
    assert_true(said.is_kept && !said.is_stray);
    assert_true(said.over_ns >= FLYT_TIME_SLICE_OVERRUN_MS * MS && said.said_ns >= said.over_ns);
    await_count(board, 0, 20);
    assert_true(look_at(time_slices, 2).over_ns > said.over_ns);
    is_paid_for(time_slices, 2);
    end_process(keeper);
    flyt_time_slices_leave(time_slices, 2);
    assert_int_equal(look_at(time_slices, 2).server_id, 0);
    await_count(board, 0, 20);
    end_process(other);
    flyt_time_slices_close(time_slices);
    munmap(board, sizeof *board);
}

/* Writes into its page that it works, without being asked, and is seen. */
static void claim(const int *fds, void *user, unsigned index)
{
    struct flyt_shared *page;
    int fd;

    if (flyt_shared_open(fds[1], FLYT_TIME_SLICE_PAGE_BYTES, FLYT_TIME_SLICE_PAGE_MAGIC, FLYT_TIME_SLICE_BOARD_VERSION,
                         &fd, &page))
        return;
    struct flyt_time_slice_page *own = (struct flyt_time_slice_page *)page;
    for (;;) {
        atomic_store(&own->word, 1234567ull << FLYT_TIME_SLICE_STATE_BITS | FLYT_TIME_SLICE_RUNS);
        atomic_store(&own->seen_ns, flyt_clock_ns());
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

/* It stops nobody, for it has no token; and it is paid for. */
static void test_who_works_without_the_token_pays(void **state)
{
    struct board *board = new_board();
    struct flyt_time_slices *time_slices = new_time_slices();

    pid_t other = start(time_slices, board, 0, 1);
    pid_t claimant = start_with(time_slices, 2, 2, claim, NULL);
    assert_true(await_over(time_slices, 2).is_kept);
    is_paid_for(time_slices, 2);
    await_count(board, 0, 20);
    end_process(claimant);
    end_process(other);
    flyt_time_slices_close(time_slices);
    munmap(board, sizeof *board);
}

/* One that says itself that its work takes long: nobody waits for it, from then on; until it says that it is done. */
static void test_nobody_waits_for_who_works_beside(void **state)
{
    struct flyt_time_slices *time_slices = new_time_slices();
    struct flyt_time_slice_seat *seat, *other;
    uint64_t again_ns;
    int fds[FLYT_TIME_SLICES_FDS];

    assert_int_equal(flyt_time_slices_join(time_slices, 1, 10, fds), 0);
    assert_int_equal(flyt_time_slice_seat_open(fds, &seat), 0);
    assert_int_equal(flyt_time_slices_join(time_slices, 2, 20, fds), 0);
    assert_int_equal(flyt_time_slice_seat_open(fds, &other), 0);
    while (!flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_WAITS, flyt_clock_ns(), &again_ns))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    assert_false(flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_BESIDE, flyt_clock_ns(), &again_ns));
    assert_false(flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_RUNS, flyt_clock_ns(), &again_ns));
    while (!flyt_time_slice_seat_tell(other, FLYT_TIME_SLICE_WAITS, flyt_clock_ns(), &again_ns))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    struct flyt_time_slices_server said = await_over(time_slices, 10);
    assert_false(said.is_kept || said.is_stray);
    is_paid_for(time_slices, 1);
    flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_IDLE, flyt_clock_ns(), &again_ns);
    while (look_at(time_slices, 10).over_ns)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    /* What it says from now on it has not worked. */
    const uint64_t before_ns = look_at(time_slices, 10).said_ns;
    flyt_time_slices_charge(time_slices, 10, 5 * S);
    assert_true(used_ns(time_slices, 1) >= 5 * S);
    nanosleep(&(struct timespec){.tv_nsec = 100 * MS}, NULL);
    assert_true(look_at(time_slices, 10).said_ns >= before_ns);
    flyt_time_slice_seat_close(seat);
    flyt_time_slice_seat_close(other);
    flyt_time_slices_close(time_slices);
}

/* The process that gives the token out is stopped, and killed: everybody has his part by the clock, one after the
 * other, and when it goes on its word counts again. */
static void test_parts_go_by_the_clock_while_nobody_gives_out(void **state)
{
    struct board *board = new_board();
    int pair[2];
    char byte;

    /* It and its two servers are children of ours. */
    assert_int_equal(pipe(pair), 0);
    pid_t pids[2];
    pid_t *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t giver = fork();
    if (!giver) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        struct flyt_time_slices *time_slices = new_time_slices();
        for (unsigned i = 0; i < 2; i++) {
            int fds[FLYT_TIME_SLICES_FDS];
            if (flyt_time_slices_join(time_slices, i + 1, i + 1, fds))
                _exit(1);
            pid_t pid = fork();
            if (!pid) {
                open_and_work(fds, board, i);
                _exit(1);
            }
            shared[i] = pid;
        }
        if (write(pair[1], "x", 1) == 1)
            pause();
        _exit(1);
    }
    assert_int_equal(read(pair[0], &byte, 1), 1);
    memcpy(pids, shared, sizeof pids);
    await_count(board, 0, 5);
    await_count(board, 1, 5);
    assert_int_equal(kill(giver, SIGSTOP), 0);
    await_count(board, 0, 5);
    await_count(board, 1, 5);
    await_count(board, 0, 10);
    await_count(board, 1, 10);
    assert_int_equal(kill(giver, SIGCONT), 0);
    await_count(board, 0, 50);
    await_count(board, 1, 50);
    end_process(giver);
    await_count(board, 0, 10);
    await_count(board, 1, 10);
    for (unsigned i = 0; i < 2; i++)
        kill(pids[i], SIGKILL);
    close(pair[0]);
    close(pair[1]);
    munmap(shared, 4096);
    munmap(board, sizeof *board);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_death_takes_nothing),
        cmocka_unit_test(test_stops_take_nothing),
        cmocka_unit_test(test_a_liar_harms_nobody_for_long),
        cmocka_unit_test(test_who_keeps_the_token_loses_it),
        cmocka_unit_test(test_who_works_without_the_token_pays),
        cmocka_unit_test(test_nobody_waits_for_who_works_beside),
        cmocka_unit_test(test_parts_go_by_the_clock_while_nobody_gives_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
