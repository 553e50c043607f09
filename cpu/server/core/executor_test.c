/* Tasks of client threads: one thread's in their order, different threads' at the same time, so that they can wait for
 * each other. Of a session nothing is used but what wakes it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/core/session.h"

enum { TASKS = 40 };

struct task {
    struct flyt_task task;
    atomic_int *turn;
    int number, seen;
};

static struct flyt_session session;

static int set_up(void **state)
{
    (void)state;
    memset(&session, 0, sizeof session);
    session.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    flyt_executors_init(&session.executors, &session);
    return session.wake_fd < 0;
}

static int tear_down(void **state)
{
    (void)state;
    flyt_executors_fini(&session.executors);
    return close(session.wake_fd);
}

static void wait_for(const struct flyt_task *task)
{
    while (!atomic_load((atomic_bool *)&task->is_done))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static void take_turn(struct flyt_task *task)
{
    struct task *self = (struct task *)task;
    self->seen = atomic_fetch_add(self->turn, 1);
}

static void one_threads_tasks_keep_their_order(void **state)
{
    static struct task tasks[TASKS];
    atomic_int turn = 0;
    (void)state;
    for (int i = 0; i < TASKS; i++) {
        tasks[i] = (struct task){.task = {.run = take_turn}, .turn = &turn, .number = i};
        assert_int_equal(flyt_executors_submit(&session.executors, 7, &tasks[i].task), 0);
    }
    for (int i = 0; i < TASKS; i++) {
        wait_for(&tasks[i].task);
        assert_int_equal(tasks[i].seen, i);
    }
}

/* Goes on when the one before it has come, which is given later. */
static void wait_for_turn(struct flyt_task *task)
{
    struct task *self = (struct task *)task;
    while (atomic_load(self->turn) < self->number)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    atomic_fetch_add(self->turn, 1);
}

static void different_threads_wait_for_each_other(void **state)
{
    static struct task tasks[TASKS];
    atomic_int turn = 0;
    (void)state;
    for (int i = TASKS - 1; i >= 0; i--) {
        tasks[i] = (struct task){.task = {.run = wait_for_turn}, .turn = &turn, .number = i};
        assert_int_equal(flyt_executors_submit(&session.executors, (uint64_t)i + 1, &tasks[i].task), 0);
    }
    for (int i = 0; i < TASKS; i++)
        wait_for(&tasks[i].task);
    assert_int_equal(atomic_load(&turn), TASKS);
}

static void threads_are_used_again(void **state)
{
    struct task task;
    atomic_int turn = 0;
    unsigned made = 0;
    (void)state;
    for (int i = 0; i < 2 * FLYT_EXECUTORS_MAX; i++) {
        task = (struct task){.task = {.run = take_turn}, .turn = &turn};
        assert_int_equal(flyt_executors_submit(&session.executors, (uint64_t)i + 1, &task.task), 0);
        wait_for(&task.task);
    }
    for (unsigned i = 0; i < FLYT_EXECUTORS_MAX; i++)
        made += session.executors.threads[i].is_made;
    assert_in_range(made, 1, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(one_threads_tasks_keep_their_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(different_threads_wait_for_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_are_used_again, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
