/* Tests of what servers say of their time slices against what their GPU counts. The test plays both: the servers'
 * pages, and the GPU's account. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/link/share.h"
#include "control/node/link/time_slice_watch.h"
#include "control/node/test/test_node.h"
#include "rpc/base/clock.h"
#include "rpc/base/time_slice_seat.h"
#include "rpc/base/time_slices.h"

static const struct test_wish wishes[2] = {
    {.id = 0x11,
     .vm_ip = "10.0.0.1",
     .minimum_pct = 50,
     .window_ms = 100,
     .group_count = 4,
     .memory_bytes = 100 * MIB,
     .revision = 1,
     .epoch = 1,
     .generation = 1},
    {.id = 0x22,
     .vm_ip = "10.0.0.2",
     .minimum_pct = 50,
     .window_ms = 100,
     .group_count = 4,
     .memory_bytes = 100 * MIB,
     .revision = 1,
     .epoch = 1,
     .generation = 1},
};

struct played {
    struct test_program program;
    struct flyt_time_slice_seat *seat;
    pid_t pid;
    /* The GPU's account of it. */
    uint64_t worked_ns, since_ns; /* since_ns 0: nothing runs */
    uint64_t again_ns;            /* of one that works in pieces: when its pause is over */
};

struct play {
    struct test_node *test;
    struct played servers[2];
    bool is_told; /* the account is */
};

static bool tell_busy(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_busy_us)
{
    const struct play *play = source;

    for (unsigned i = 0; play->is_told && i < 2; i++) {
        const struct played *played = &play->servers[i];
        if (played->pid != pid)
            continue;
        *ret_busy_us = (played->worked_ns + (played->since_ns ? flyt_clock_ns() - played->since_ns : 0)) / 1000;
        return true;
    }
    return false;
}

static const struct flyt_node_gpu_account_ops account_ops = {.busy = tell_busy};

static void works(struct played *played, bool is_working)
{
    const uint64_t now_ns = flyt_clock_ns();

    if (played->since_ns)
        played->worked_ns += now_ns - played->since_ns;
    played->since_ns = is_working ? now_ns : 0;
}

static void says(struct played *played, enum flyt_time_slice_state state)
{
    uint64_t again_ns;

    flyt_time_slice_seat_tell(played->seat, state, flyt_clock_ns(), &again_ns);
}

static struct flyt_time_slices *time_slices_of(const struct play *play)
{
    return play->test->node.gpus.items[0].time_slices;
}

static void enter(struct play *play, unsigned i)
{
    struct played *played = &play->servers[i];
    int fds[FLYT_TIME_SLICES_FDS];

    test_node_grant(play->test, &wishes[i]);
    played->program = test_node_enter(play->test, &wishes[i]);
    const struct flyt_node_server *server = test_node_server(play->test, &played->program);
    played->pid = server->pid;
    assert_int_equal(flyt_time_slices_join(time_slices_of(play), flyt_manager_link_tenant(wishes[i].id, 0),
                                           server->has.server_id, fds),
                     0);
    assert_int_equal(flyt_time_slice_seat_open(fds, &played->seat), 0);
}

static int set_up(void **state)
{
    struct play *play = calloc(1, sizeof *play);
    void *test;

    test_node_set_up(&test);
    play->test = test;
    play->is_told = true;
    play->test->node.account = (struct flyt_node_gpu_account){&account_ops, play};
    for (unsigned i = 0; i < 2; i++)
        enter(play, i);
    *state = play;
    return 0;
}

static int tear_down(void **state)
{
    struct play *play = *state;
    void *test = play->test;

    for (unsigned i = 0; i < 2; i++) {
        flyt_time_slice_seat_close(play->servers[i].seat);
        close(play->servers[i].program.fd);
    }
    test_node_tear_down(&test);
    free(play);
    return 0;
}

/* One round of what happens all the time: the second VM wants its time slice, both servers look after what they have.
 */
static bool is_over(struct test_node *test, void *user)
{
    struct play *play = user;

    says(&play->servers[1], FLYT_TIME_SLICE_WAITS);
    for (unsigned i = 0; i < 2; i++)
        flyt_time_slice_seat_be_seen(play->servers[i].seat, flyt_clock_ns());
    flyt_node_time_slice_watch_look(&test->node);
    return false;
}

static bool has_ended(struct test_node *test, void *user)
{
    struct play *play = user;

    is_over(test, play);
    return !test_node_server(test, &play->servers[0].program);
}

static bool is_overdue(struct test_node *test, void *user)
{
    is_over(test, user);
    return test->node.time_slices_overdue;
}

static void take_turn(struct play *play)
{
    struct flyt_time_slice_seat *seat = play->servers[0].seat;
    uint64_t again_ns;

    for (;;) {
        uint32_t wakes = flyt_time_slice_seat_wakes(seat);
        if (flyt_time_slice_seat_tell(seat, FLYT_TIME_SLICE_WAITS, flyt_clock_ns(), &again_ns))
            return;
        flyt_time_slice_seat_wait(seat, wakes, 1000000000);
    }
}

/* For longer than the watch takes to end anybody: by the clock, as the watch goes, and not by rounds, which take as
 * long as the machine lets them. */
enum { JUDGED_MS = FLYT_NODE_TIME_SLICE_LIE_MS * 3 / 2 };

static bool is_judged_long(struct test_node *test, void *end_ms)
{
    flyt_node_time_slice_watch_look(&test->node);
    return flyt_clock_ms() >= *(uint64_t *)end_ms;
}

static void stays(struct play *play)
{
    uint64_t end_ms = flyt_clock_ms() + JUDGED_MS;

    test_node_until(play->test, is_judged_long, &end_ms, "it is looked at");
    assert_non_null(test_node_server(play->test, &play->servers[0].program));
}

static uint64_t used_ns(const struct play *play)
{
    struct flyt_time_slices_state read;

    assert_int_equal(flyt_time_slices_read(time_slices_of(play), flyt_manager_link_tenant(wishes[0].id, 0), &read), 0);
    return read.used_ns;
}

/* Says all the time that it does nothing, and works. */
_Static_assert(FLYT_NODE_TIME_SLICE_LIE_MS <= 2000 && FLYT_NODE_TIME_SLICE_LOOK_MS <= 500, "what others are promised");

static void test_liar_is_ended_and_pays(void **state)
{
    struct play *play = *state;

    works(&play->servers[0], true);
    test_node_until(play->test, has_ended, play, "the liar is ended");
    assert_int_equal(play->test->node.watched[FLYT_NODE_WATCHED_OUT_OF_TIME_SLICE], 1);
    assert_int_equal(play->test->node.watched[FLYT_NODE_WATCHED_TIME_SLICE_KEPT], 0);
    assert_true(used_ns(play) >= FLYT_NODE_TIME_SLICE_LIE_MS * 1000000ull);
    assert_non_null(test_node_server(play->test, &play->servers[1].program));
}

/* The same in pieces, with pauses between them. However long this process stands still, no pause is longer: the watch
 * takes time in which it saw nothing for time in which the server has said that it works. */
static void work_in_pieces(struct played *played)
{
    const uint64_t piece_ns = 90000000, pause_ns = 10000000, now_ns = flyt_clock_ns();

    if (played->since_ns && now_ns - played->since_ns >= piece_ns) {
        works(played, false);
        played->again_ns = now_ns + pause_ns;
    } else if (!played->since_ns && now_ns >= played->again_ns) {
        played->since_ns = played->again_ns ? played->again_ns : now_ns;
    }
}

static bool has_ended_between(struct test_node *test, void *user)
{
    struct play *play = user;

    work_in_pieces(&play->servers[0]);
    return has_ended(test, play);
}

static void test_liar_gains_nothing_by_pauses(void **state)
{
    struct play *play = *state;

    test_node_until(play->test, has_ended_between, play, "the liar is ended");
    assert_int_equal(play->test->node.watched[FLYT_NODE_WATCHED_OUT_OF_TIME_SLICE], 1);
}

/* Takes its time slice, and neither gives it back nor works. */
static void test_keeper_is_ended(void **state)
{
    struct play *play = *state;

    take_turn(play);
    test_node_until(play->test, has_ended, play, "the keeper is ended");
    assert_int_equal(play->test->node.watched[FLYT_NODE_WATCHED_TIME_SLICE_KEPT], 1);
    assert_int_equal(play->test->node.watched[FLYT_NODE_WATCHED_OUT_OF_TIME_SLICE], 0);
    assert_non_null(test_node_server(play->test, &play->servers[1].program));
}

/* One kernel that takes long, whether its server says so itself or is of a kind that does not. */
static void goes_on(struct play *play, bool is_telling)
{
    take_turn(play);
    works(&play->servers[0], true);
    if (is_telling)
        says(&play->servers[0], FLYT_TIME_SLICE_BESIDE);
    test_node_until(play->test, is_overdue, play, "it is overdue");
    test_contains(play->test->last_event, "session.overdue");
    stays(play);
    works(&play->servers[0], false);
    says(&play->servers[0], FLYT_TIME_SLICE_IDLE);
    stays(play);
    assert_int_equal(play->test->node.time_slices_overdue, 1);
    assert_true(used_ns(play) >= FLYT_NODE_TIME_SLICE_LIE_MS * 1000000ull);
}

static void test_long_kernel_goes_on(void **state)
{
    goes_on(*state, false);
}

static void test_long_kernel_that_is_told_goes_on(void **state)
{
    goes_on(*state, true);
}

/* Without an account nobody is ended, whatever he says. */
static void test_nobody_is_ended_without_an_account(void **state)
{
    struct play *play = *state;

    play->is_told = false;
    goes_on(play, false);
    assert_int_equal(play->test->node.watched[FLYT_NODE_WATCHED_TIME_SLICE_KEPT], 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_liar_is_ended_and_pays),
        TEST(test_liar_gains_nothing_by_pauses),
        TEST(test_keeper_is_ended),
        TEST(test_long_kernel_goes_on),
        TEST(test_long_kernel_that_is_told_goes_on),
        TEST(test_nobody_is_ended_without_an_account),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
