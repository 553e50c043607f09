/* The worker: order, threads, the bound, and jobs at its end. */
#include "control/base/worker.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <time.h>
#include <cmocka.h>

struct job {
    int number;
    int *order;
    int *count;
    pthread_t worked_on;
    int is_cancelled;
    sem_t *gate;
    sd_event *event;
};

static void work(void *user)
{
    struct job *job = user;
    job->worked_on = pthread_self();
    if (job->gate)
        sem_wait(job->gate);
}

static void done(void *user, int is_cancelled)
{
    struct job *job = user;
    job->is_cancelled = is_cancelled;
    job->order[(*job->count)++] = job->number;
    if (job->event && job->number == 99)
        sd_event_exit(job->event, 0);
}

static void jobs_end_in_order_on_the_loop(void **state)
{
    sd_event *event;
    struct flyt_worker *worker;
    struct job jobs[100];
    int order[100], count = 0;
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(flyt_worker_new(event, "test", 100, &worker), 0);
    for (int i = 0; i < 100; i++) {
        jobs[i] = (struct job){.number = i, .order = order, .count = &count, .event = event};
        assert_int_equal(flyt_worker_do(worker, work, done, &jobs[i]), 0);
    }
    assert_int_equal(count, 0);
    assert_true(sd_event_loop(event) >= 0);
    assert_int_equal(count, 100);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(order[i], i);
        assert_false(jobs[i].is_cancelled);
        assert_false(pthread_equal(jobs[i].worked_on, pthread_self()));
    }
    assert_int_equal(flyt_worker_waiting(worker), 0);
    assert_null(flyt_worker_free(worker));
    sd_event_unref(event);
}

static void queue_is_bounded_and_ends_whole(void **state)
{
    sd_event *event;
    struct flyt_worker *worker;
    sem_t gate;
    struct job jobs[4];
    int order[4], count = 0;
    sem_init(&gate, 0, 0);
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(flyt_worker_new(event, "test", 3, &worker), 0);
    for (int i = 0; i < 4; i++)
        jobs[i] = (struct job){.number = i, .order = order, .count = &count, .gate = &gate};
    for (int i = 0; i < 3; i++)
        assert_int_equal(flyt_worker_do(worker, work, done, &jobs[i]), 0);
    assert_int_equal(flyt_worker_do(worker, work, done, &jobs[3]), -EAGAIN);
    assert_int_equal(flyt_worker_waiting(worker), 3);
    for (int i = 0; i < 3; i++)
        sem_post(&gate);
    assert_null(flyt_worker_free(worker));
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++)
        assert_true(jobs[i].is_cancelled);
    sd_event_unref(event);
    sem_destroy(&gate);
}

/* What went in before an end is still done, where that does not take for ever. */
static void jobs_are_finished_before_the_end(void **state)
{
    sd_event *event;
    struct flyt_worker *worker;
    sem_t gate;
    struct job jobs[4];
    int order[4], count = 0;
    sem_init(&gate, 0, 0);
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(flyt_worker_new(event, "test", 4, &worker), 0);
    for (int i = 0; i < 3; i++) {
        jobs[i] = (struct job){.number = i, .order = order, .count = &count, .gate = &gate};
        assert_int_equal(flyt_worker_do(worker, work, done, &jobs[i]), 0);
    }
    assert_false(flyt_worker_finish(worker, 20));
    for (int i = 0; i < 3; i++)
        sem_post(&gate);
    assert_true(flyt_worker_finish(worker, 20000));
    for (int i = 0; i < 3; i++)
        assert_false(pthread_equal(jobs[i].worked_on, pthread_self()) || !jobs[i].worked_on);
    assert_null(flyt_worker_free(worker));
    assert_int_equal(count, 3);
    sd_event_unref(event);
    sem_destroy(&gate);
}

/* A job that nobody can end: what it has is its own, and who is told is a thread. */
struct alone {
    sem_t begun, gate, told;
    pthread_t worked_on, told_on;
    int is_cancelled;
};

static void work_alone(void *user)
{
    struct alone *alone = user;
    alone->worked_on = pthread_self();
    sem_post(&alone->begun);
    sem_wait(&alone->gate);
}

static void done_alone(void *user, int is_cancelled)
{
    struct alone *alone = user;
    alone->told_on = pthread_self();
    alone->is_cancelled = is_cancelled;
    sem_post(&alone->told);
}

static void one_that_hangs_is_left(void **state)
{
    sd_event *event;
    struct flyt_worker *worker;
    struct alone alone = {0};
    int order[4], count = 0;
    struct job waiting = {.number = 7, .order = order, .count = &count};
    sem_init(&alone.begun, 0, 0);
    sem_init(&alone.gate, 0, 0);
    sem_init(&alone.told, 0, 0);
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(flyt_worker_new(event, "test", 2, &worker), 0);
    assert_int_equal(flyt_worker_do(worker, work_alone, done_alone, &alone), 0);
    assert_int_equal(flyt_worker_do(worker, work, done, &waiting), 0);
    sem_wait(&alone.begun);
    struct flyt_tally *left = flyt_tally_new();
    assert_non_null(left);
    assert_null(flyt_worker_leave(worker, left));
    assert_int_equal(flyt_tally_count(left), 1);
    assert_int_equal(count, 1); /* what waited was told at once, and never worked on */
    assert_int_equal(order[0], 7);
    assert_true(waiting.is_cancelled);
    assert_false(waiting.worked_on);
    assert_int_equal(sem_trywait(&alone.told), -1);
    sd_event_unref(event);
    sem_post(&alone.gate);
    sem_wait(&alone.told);
    assert_true(alone.is_cancelled);
    assert_true(pthread_equal(alone.told_on, alone.worked_on));
    assert_false(pthread_equal(alone.told_on, pthread_self()));
    while (flyt_tally_count(left)) /* its last step, behind what was told */
        sched_yield();
    assert_null(flyt_tally_unref(left));
    assert_null(flyt_worker_leave(NULL, NULL));
}

/* Where nothing is under way it ends as any. */
static void one_that_rests_is_left(void **state)
{
    sd_event *event;
    struct flyt_worker *worker;
    int order[4], count = 0;
    struct job job = {.number = 1, .order = order, .count = &count};
    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(flyt_worker_new(event, "test", 2, &worker), 0);
    struct flyt_tally *left = flyt_tally_new();
    assert_non_null(left);
    assert_null(flyt_worker_leave(worker, left));
    assert_int_equal(flyt_worker_new(event, "test", 2, &worker), 0);
    assert_int_equal(flyt_worker_do(worker, work, done, &job), 0);
    assert_true(flyt_worker_finish(worker, 20000));
    assert_null(flyt_worker_leave(worker, left));
    assert_int_equal(flyt_tally_count(left), 0); /* no thread was left */
    assert_null(flyt_tally_unref(left));
    assert_int_equal(count, 1);
    assert_true(job.is_cancelled);
    sd_event_unref(event);
}

/* A thread that has no CPU when it is about to wake the loop: it goes on when the loop's thread has asked the worker
 * something, or when that has obviously waited for the worker's mutex. */
static struct {
    bool is_on, was_asked;
    sem_t waking, asked;
} waker;

int __real_eventfd_write(int fd, eventfd_t value);
int __wrap_eventfd_write(int fd, eventfd_t value);

int __wrap_eventfd_write(int fd, eventfd_t value)
{
    struct timespec end;
    if (waker.is_on) {
        clock_gettime(CLOCK_REALTIME, &end);
        end.tv_sec += 10;
        sem_post(&waker.waking);
        waker.was_asked = !sem_timedwait(&waker.asked, &end);
    }
    return __real_eventfd_write(fd, value);
}

static void nobody_waits_for_a_thread_that_wakes_the_loop(void **state)
{
    sd_event *event;
    struct flyt_worker *worker;
    int order[4], count = 0;
    struct job job = {.number = 99, .order = order, .count = &count};
    sem_init(&waker.waking, 0, 0);
    sem_init(&waker.asked, 0, 0);
    waker.is_on = true;
    assert_true(sd_event_new(&event) >= 0);
    job.event = event;
    assert_int_equal(flyt_worker_new(event, "test", 2, &worker), 0);
    assert_int_equal(flyt_worker_do(worker, work, done, &job), 0);
    sem_wait(&waker.waking);
    assert_int_equal(flyt_worker_waiting(worker), 0);
    sem_post(&waker.asked);
    assert_true(sd_event_loop(event) >= 0);
    assert_int_equal(count, 1);
    waker.is_on = false;
    assert_null(flyt_worker_free(worker));
    assert_true(waker.was_asked);
    sd_event_unref(event);
    sem_destroy(&waker.waking);
    sem_destroy(&waker.asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_end_in_order_on_the_loop),
        cmocka_unit_test(queue_is_bounded_and_ends_whole),
        cmocka_unit_test(jobs_are_finished_before_the_end),
        cmocka_unit_test(one_that_hangs_is_left),
        cmocka_unit_test(one_that_rests_is_left),
        cmocka_unit_test(nobody_waits_for_a_thread_that_wakes_the_loop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
