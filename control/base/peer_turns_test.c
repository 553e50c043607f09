/* Turns of a door's connections: how much is done in one before the loop's other sources have theirs, and for whom. */
#include "control/base/test_door.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include "control.h"

/* What a call takes, and so how many fit into a turn of 5 ms; and connections. */
enum { CALL_MS = 3, CALLS_OF_A_TURN = 2, COUNT = 12 };

/* It is later than it seems. */
static struct timespec passed;

int __real_clock_gettime(clockid_t clock, struct timespec *ret_now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now);

/* Stands still but for that: a machine that is busy is not the door's fault. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    if (clock != CLOCK_MONOTONIC)
        return __real_clock_gettime(clock, ret_now);
    *ret_now = passed;
    return 0;
}

static void on_measured(const char *procedure, bool is_served, uint64_t took_us, bool has_failed, void *user)
{
    passed.tv_nsec += CALL_MS * 1000000;
    if (passed.tv_nsec >= 1000000000) {
        passed.tv_nsec -= 1000000000;
        passed.tv_sec++;
    }
}

struct fixture {
    sd_event *event;
    struct test_door door;
    char folder[32], url[64];
    int fds[COUNT];
    unsigned answer_count[COUNT];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (!f || sd_event_new(&f->event) < 0)
        return -1;
    __real_clock_gettime(CLOCK_MONOTONIC, &passed);
    snprintf(f->folder, sizeof f->folder, "/tmp/flyt-turns-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->url, sizeof f->url, "unix://%s/socket", f->folder);
    test_door_init(&f->door, f->event, &test_program);
    f->door.config.peer.measured = on_measured;
    test_door_open(&f->door, f->url, NULL);
    for (unsigned i = 0; i < COUNT; i++)
        f->fds[i] = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.ready_count == COUNT);
    test_run_idle(f->event);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    for (unsigned i = 0; i < COUNT; i++)
        close(f->fds[i]);
    test_door_close(&f->door);
    rmdir(f->folder);
    sd_event_unref(f->event);
    free(f);
    return 0;
}

static void call(struct fixture *f, unsigned i)
{
    const uint32_t words[] = {0, 2, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_FAIL, 0, 0, 0, 0};
    unsigned char data[64];

    size_t bytes = test_raw_call(data, 1 + f->answer_count[i], words, sizeof words / sizeof *words);
    assert_int_equal(send(f->fds[i], data, bytes, MSG_NOSIGNAL), bytes);
}

/* Whether its call was answered. */
static bool take_answer(struct fixture *f, unsigned i)
{
    unsigned char data[256];

    if (recv(f->fds[i], data, sizeof data, MSG_DONTWAIT) <= 0)
        return false;
    f->answer_count[i]++;
    return true;
}

static unsigned run_turn(struct fixture *f)
{
    unsigned before = f->door.side.served_count;

    test_run_once(f->event);
    return f->door.side.served_count - before;
}

/* All that is ready is served, but not in one turn. */
static void test_a_turn_is_bounded_by_its_time(void **state)
{
    struct fixture *f = *state;
    unsigned most = 0;

    for (unsigned i = 0; i < COUNT; i++)
        call(f, i);
    while (f->door.side.served_count < COUNT) {
        unsigned count = run_turn(f);
        most = count > most ? count : most;
    }
    assert_int_equal(most, CALLS_OF_A_TURN);
}

/* Those that call again as soon as they were answered fill each turn, and the others have theirs all the same. */
static void test_who_calls_again_is_behind_the_others(void **state)
{
    enum { GREEDY = CALLS_OF_A_TURN };
    struct fixture *f = *state;
    unsigned answered = 0;

    for (unsigned i = 0; i < COUNT; i++)
        call(f, i);
    while (answered < COUNT - GREEDY) {
        test_run_once(f->event);
        for (unsigned i = 0; i < COUNT; i++) {
            if (!take_answer(f, i))
                continue;
            answered += i >= GREEDY;
            if (i < GREEDY)
                call(f, i);
        }
        for (unsigned i = 0; i < GREEDY; i++)
            assert_in_range(f->answer_count[i], 0, COUNT); /* answering is another turn, which reads on, too */
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_turn_is_bounded_by_its_time),
        TEST(test_who_calls_again_is_behind_the_others),
    };

    return cmocka_run_group_tests_name("peer_turns", tests, NULL, NULL);
}
