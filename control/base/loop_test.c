/* The measured event loop: what a turn is, and which is the longest. Lower bounds alone: the machine may be busy. */
#include "control/base/loop.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/clock.h"

enum { BLOCKED_MS = 60, BUSY_MS = 40 };

/* The figure behind `name` at the beginning of a line. */
static double figure(struct flyt_metrics *metrics, const char *name)
{
    char *text = flyt_metrics_text(metrics), line[128];
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(text, line);
    if (!at)
        fail_msg("%s is not there: %s", name, text);
    double value = atof(at + strlen(line));
    free(text);
    return value;
}

static int block(sd_event_source *source, void *user)
{
    nanosleep(&(struct timespec){.tv_nsec = BLOCKED_MS * 1000000}, NULL);
    return sd_event_exit(sd_event_source_get_event(source), 7);
}

static uint64_t cpu_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static int work(sd_event_source *source, void *user)
{
    uint64_t until_ms = cpu_ms() + BUSY_MS + 1;
    while (cpu_ms() < until_ms)
        continue;
    return sd_event_exit(sd_event_source_get_event(source), 0);
}

static double longest_of(int (*turn)(sd_event_source *source, void *user), int code)
{
    struct flyt_metrics *metrics = flyt_metrics_new();
    struct flyt_loop loop;
    sd_event *event;
    flyt_loop_init(&loop);
    assert_int_equal(flyt_loop_tell(&loop, metrics, "test"), 0);
    assert_true(sd_event_new(&event) >= 0);
    assert_true(sd_event_add_defer(event, NULL, turn, NULL) >= 0);
    assert_int_equal(flyt_loop_run(&loop, event), code);
    double longest = figure(metrics, "flyt_test_loop_turn_max_seconds");
    assert_true(figure(metrics, "flyt_test_loop_turn_seconds_count") >= 1);
    flyt_loop_fini(&loop);
    flyt_metrics_free(metrics);
    sd_event_unref(event);
    return longest;
}

static void time_blocked_counts(void **state)
{
    assert_true(longest_of(block, 7) >= BLOCKED_MS / 1e3);
}

static void cpu_time_counts(void **state)
{
    assert_true(longest_of(work, 0) >= BUSY_MS / 1e3);
}

static void the_longest_is_of_the_last_windows(void **state)
{
    struct flyt_metrics *metrics = flyt_metrics_new();
    struct flyt_loop loop;
    uint64_t now_ms = 1000000;
    flyt_loop_init(&loop);
    flyt_loop_note(&loop, now_ms, 5000000000); /* nobody is told yet */
    assert_int_equal(flyt_loop_tell(&loop, metrics, "test"), 0);
    flyt_loop_note(&loop, now_ms += 10, 1000000);
    assert_true(figure(metrics, "flyt_test_loop_turn_max_seconds") == 5);
    flyt_loop_note(&loop, now_ms += FLYT_LOOP_WINDOW_MS, 2000000);
    assert_true(figure(metrics, "flyt_test_loop_turn_max_seconds") == 5);
    flyt_loop_note(&loop, now_ms += FLYT_LOOP_WINDOW_MS, 1000000);
    assert_true(figure(metrics, "flyt_test_loop_turn_max_seconds") == 0.002);
    flyt_loop_note(&loop, now_ms + 1, 3000000);
    assert_true(figure(metrics, "flyt_test_loop_turn_max_seconds") == 0.003);
    flyt_loop_fini(&loop);
    flyt_metrics_free(metrics);
}

struct woken {
    sd_event_source *again;
    unsigned busy_count, again_count;
};

/* It is always ready, and wakes the other one each time. */
static int on_busy(sd_event_source *source, int fd, uint32_t events, void *user)
{
    struct woken *woken = user;

    woken->busy_count++;
    return flyt_loop_again(woken->again);
}

static int on_again(sd_event_source *source, uint64_t usec, void *user)
{
    struct woken *woken = user;

    woken->again_count++;
    return flyt_loop_again(source);
}

static void who_is_woken_and_who_is_ready_take_turns(void **state)
{
    enum { TURNS = 100 };
    struct woken woken = {0};
    sd_event *event;

    assert_true(sd_event_new(&event) >= 0);
    int fd = eventfd(1, EFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(sd_event_add_io(event, NULL, fd, EPOLLIN, on_busy, &woken) >= 0);
    assert_int_equal(flyt_loop_add_again(event, on_again, &woken, &woken.again), 0);
    for (unsigned i = 0; i < TURNS; i++)
        assert_true(sd_event_run(event, 0) >= 0);
    assert_in_range(woken.busy_count, TURNS / 4, TURNS);
    assert_in_range(woken.again_count, TURNS / 4, TURNS);
    sd_event_source_unref(woken.again);
    sd_event_unref(event);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(time_blocked_counts),
        cmocka_unit_test(cpu_time_counts),
        cmocka_unit_test(the_longest_is_of_the_last_windows),
        cmocka_unit_test(who_is_woken_and_who_is_ready_take_turns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
