/* Threads of a worker: how many tasks run at a time, and what becomes of those that wait. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/server/core/session.h"
#include "cpu/server/core/worker.h"

enum { WAIT_S_MAX = 60, STEP_US = 100 };

struct fixture {
    struct flyt_session session;
    struct flyt_worker worker;
};

/* A task that begins, and ends when the test lets it. */
struct step {
    struct flyt_task task;
    atomic_bool has_begun, may_end;
};

static void run(struct flyt_task *task)
{
    struct step *step = (struct step *)task;
    atomic_store(&step->has_begun, true);
    while (!atomic_load(&step->may_end))
        usleep(STEP_US);
}

static void await(atomic_bool *is_so)
{
    time_t end = time(NULL) + WAIT_S_MAX;
    while (!atomic_load(is_so)) {
        assert_true(time(NULL) < end);
        usleep(STEP_US);
    }
}

static void submit(struct fixture *self, struct step *step)
{
    step->task.run = run;
    assert_int_equal(flyt_worker_submit(&self->worker, &step->task), 0);
}

static void begin(struct fixture *self, unsigned thread_max)
{
    flyt_worker_init(&self->worker, &self->session, thread_max);
}

static void what_blocks_holds_back_nobody(void **state)
{
    struct fixture *self = *state;
    struct step linking = {0}, other = {.may_end = true};
    begin(self, 2);
    submit(self, &linking);
    await(&linking.has_begun);
    submit(self, &other);
    await(&other.task.is_done);
    assert_false(atomic_load(&linking.task.is_done));
    atomic_store(&linking.may_end, true);
    await(&linking.task.is_done);
    flyt_worker_fini(&self->worker);
}

static void one_thread_keeps_the_order(void **state)
{
    struct fixture *self = *state;
    struct step first = {0}, second = {.may_end = true};
    begin(self, 1);
    submit(self, &first);
    submit(self, &second);
    await(&first.has_begun);
    assert_int_equal(self->worker.thread_count, 1);
    assert_false(atomic_load(&second.has_begun));
    atomic_store(&first.may_end, true);
    await(&second.task.is_done);
    assert_true(atomic_load(&first.task.is_done));
    flyt_worker_fini(&self->worker);
}

/* An idle thread takes a task before another one is started. */
static void threads_are_used_again(void **state)
{
    struct fixture *self = *state;
    begin(self, FLYT_WORKER_THREADS_MAX);
    for (unsigned i = 0; i < 2 * FLYT_WORKER_THREADS_MAX; i++) {
        struct step step = {.may_end = true};
        submit(self, &step);
        await(&step.task.is_done);
        bool is_idle = false;
        while (!is_idle) {
            pthread_mutex_lock(&self->worker.mutex);
            is_idle = self->worker.idle_count == self->worker.thread_count;
            pthread_mutex_unlock(&self->worker.mutex);
        }
    }
    assert_int_equal(self->worker.thread_count, 1);
    flyt_worker_fini(&self->worker);
}

static void *end(void *user)
{
    flyt_worker_fini(user);
    return NULL;
}

static void what_waits_at_the_end_is_dropped(void **state)
{
    struct fixture *self = *state;
    struct step steps[FLYT_WORKER_THREADS_MAX] = {0}, late = {.may_end = true};
    pthread_t ending;
    begin(self, FLYT_WORKER_THREADS_MAX);
    for (unsigned i = 0; i < FLYT_WORKER_THREADS_MAX; i++) {
        submit(self, &steps[i]);
        await(&steps[i].has_begun);
    }
    submit(self, &late);
    assert_int_equal(self->worker.thread_count, FLYT_WORKER_THREADS_MAX);
    assert_int_equal(pthread_create(&ending, NULL, end, &self->worker), 0);
    bool is_stopping = false;
    while (!is_stopping) {
        pthread_mutex_lock(&self->worker.mutex);
        is_stopping = self->worker.is_stopping;
        pthread_mutex_unlock(&self->worker.mutex);
    }
    for (unsigned i = 0; i < FLYT_WORKER_THREADS_MAX; i++)
        atomic_store(&steps[i].may_end, true);
    pthread_join(ending, NULL);
    for (unsigned i = 0; i < FLYT_WORKER_THREADS_MAX; i++)
        assert_true(atomic_load(&steps[i].task.is_done));
    assert_false(atomic_load(&late.has_begun));
}

static int set_up(void **state)
{
    struct fixture *self = test_calloc(1, sizeof *self);
    self->session.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    close(self->session.wake_fd);
    test_free(self);
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_blocks_holds_back_nobody),
        TEST(one_thread_keeps_the_order),
        TEST(threads_are_used_again),
        TEST(what_waits_at_the_end_is_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
