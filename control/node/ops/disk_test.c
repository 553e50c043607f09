/* Tests of disks that do not answer (disk.h): threads that are left in them are counted, and come back; the loop itself
 * closes no file on them. What the disk does is seen, and held up, at the calls to it (rules.mk: --wrap). */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/worker.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/disk.h"
#include "control/node/ops/ops.h"
#include "control/node/state/image_uncommitted.h"
#include "control/node/test/test_saving.h"
#include "rpc/base/fault_point.h"

/* ---- the disk ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool is_shut;                  /* under the mutex: fstatat of a path, as restores do it, does not come back */
static unsigned links_max;            /* under the mutex: so many names are given, and then none; 0: any number */
static unsigned held_count;           /* under the mutex: who waits in it */
static _Atomic(const char *) watched; /* the loop's: it is to close nothing in this folder; NULL: it may */
static unsigned loop_closings;        /* the loop's: how often it has all the same */
static atomic_uint all_closings;      /* by any thread */
static pthread_t loop_thread;
static unsigned naming_jobs; /* the loop's: that were given to the thread that gives names */

int __real_flyt_worker_do(struct flyt_worker *worker, void (*work)(void *), void (*done)(void *, int), void *job);
int __wrap_flyt_worker_do(struct flyt_worker *worker, void (*work)(void *), void (*done)(void *, int), void *job);
int __real_flyt_worker_new(sd_event *event, const char *name, size_t jobs_max, struct flyt_worker **ret_worker);
int __wrap_flyt_worker_new(sd_event *event, const char *name, size_t jobs_max, struct flyt_worker **ret_worker);
int __real_close(int fd);
int __wrap_close(int fd);
int __real_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);
int __wrap_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags);
int __real_fstatat(int folder_fd, const char *path, struct stat *ret_about, int flags);
int __wrap_fstatat(int folder_fd, const char *path, struct stat *ret_about, int flags);

static const struct flyt_worker *naming_worker;

int __wrap_flyt_worker_new(sd_event *event, const char *name, size_t jobs_max, struct flyt_worker **ret_worker)
{
    int status = __real_flyt_worker_new(event, name, jobs_max, ret_worker);

    if (!status && !strcmp(name, "flyt-naming"))
        naming_worker = *ret_worker;
    return status;
}

int __wrap_flyt_worker_do(struct flyt_worker *worker, void (*work)(void *), void (*done)(void *, int), void *job)
{
    naming_jobs += worker == naming_worker;
    return __real_flyt_worker_do(worker, work, done, job);
}

int __wrap_close(int fd)
{
    char name[40], path[PATH_MAX];
    const char *folder = watched;

    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t bytes = folder ? readlink(name, path, sizeof path - 1) : -1;
    if (bytes > 0 && (size_t)bytes > strlen(folder) && !strncmp(path, folder, strlen(folder))) {
        loop_closings += pthread_equal(pthread_self(), loop_thread) != 0;
        atomic_fetch_add(&all_closings, 1);
    }
    return __real_close(fd);
}

int __wrap_fstatat(int folder_fd, const char *path, struct stat *ret_about, int flags)
{
    pthread_mutex_lock(&mutex);
    held_count++;
    pthread_cond_broadcast(&changed);
    while (is_shut && folder_fd == AT_FDCWD)
        pthread_cond_wait(&changed, &mutex);
    held_count--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    return __real_fstatat(folder_fd, path, ret_about, flags);
}

/* Who is held up fails when that is over. */
int __wrap_linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    pthread_mutex_lock(&mutex);
    bool is_held = links_max == 1;
    links_max -= links_max > 1;
    held_count += is_held;
    pthread_cond_broadcast(&changed);
    while (is_held && links_max)
        pthread_cond_wait(&changed, &mutex);
    held_count -= is_held;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    errno = EIO;
    return is_held ? -1 : __real_linkat(from_fd, from, to_fd, to, flags);
}

static void hold_links_after(unsigned count)
{
    pthread_mutex_lock(&mutex);
    links_max = count + 1;
    pthread_mutex_unlock(&mutex);
}

static void let_links(void)
{
    pthread_mutex_lock(&mutex);
    links_max = 0;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void shut(bool is_to_be)
{
    pthread_mutex_lock(&mutex);
    is_shut = is_to_be;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
}

static void await_held(unsigned count)
{
    pthread_mutex_lock(&mutex);
    while (held_count != count)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
}

/* ---- threads that are left ---- */

enum { LEFT_MAX = 3, ALL_MAX = 5 };

static bool has_none_left(struct test_node *test, void *left)
{
    return flyt_tally_count(left) == 0;
}

struct noted {
    unsigned count;
    flyt_status status;
};

static void note(void *user, flyt_status status, const char *text)
{
    struct noted *noted = user;

    noted->count++;
    noted->status = status;
}

static bool are_answered(struct test_node *test, void *noted)
{
    return ((const struct noted *)noted)->count == LEFT_MAX;
}

/* Orders so many at once, which end by their time, and leave their threads. */
static void leave_threads(struct test_node *test, char *folder)
{
    struct noted noted = {0};

    for (unsigned i = 0; i < LEFT_MAX; i++) {
        const flyt_order_restore_args args = {.id = ++test_saving.last_id, .folder = folder, .timeout_s = 1};
        flyt_node_restore(&test->node, &args, note, &noted);
    }
    await_held(LEFT_MAX); /* what has not begun when its time is over leaves none */
    /* They count before they are left: no further one is begun. */
    assert_int_equal(test_saving_restore(test), FLYT_STATUS_UNAVAILABLE);
    test_contains(test_saving.refusal.text, "does not answer: 3 threads");
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "does not answer: 3 threads");
    test_node_until(test, are_answered, &noted, "the orders' answers");
    test_saving.last_id--; /* the last one that was taken */
    test_saving_failed(test, FLYT_STATUS_TIMEOUT, "was not looked into after 1 s");
    test_saving.last_id++;
}

/* Of a folder so many are left, and then no order for it is taken; those for others are, up to so many in all. When
 * they come back so is everything. */
static void test_threads_that_are_left(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct flyt_tally *left;
    struct flyt_error err;
    char folder[FLYT_NAME_BYTES_MAX], elsewhere[FLYT_NAME_BYTES_MAX + 8];
    unsigned rounds = 0;

    assert_int_equal(test->node.ops->disk_left_max, FLYT_NODE_DISK_LEFT_MAX);
    assert_int_equal(test->node.ops->disk_left_all_max, FLYT_NODE_DISK_LEFT_ALL_MAX);
    test->node.ops->disk_left_max = LEFT_MAX;
    test->node.ops->disk_left_all_max = ALL_MAX;
    test_saving_folder(test, folder);
    snprintf(elsewhere, sizeof elsewhere, "%s/other", folder);
    assert_int_equal(mkdir(elsewhere, 0700), 0);
    test_saving_enter(test, programs, 1);
    test_saving_suspend(test, programs, 1);
    programs[1] = test_node_enter(test, &test_one);
    assert_int_equal(flyt_node_disk_take(&test->node, folder, &left, &err), 0);
    test_node_until(test, has_none_left, left, "the suspension's threads have ended");
    shut(true);
    leave_threads(test, folder);
    assert_int_equal(flyt_tally_count(left), LEFT_MAX);
    assert_int_equal(test_saving_restore(test), FLYT_STATUS_UNAVAILABLE);
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "does not answer: 3 threads");
    assert_int_equal(test_saving_checkpoint(test, 0, true), FLYT_STATUS_UNAVAILABLE);
    test_contains(test_saving.refusal.text, "does not answer: 3 threads");
    assert_null(flyt_node_checkpoint_find(&test->node, test_saving.last_id));
    assert_null(test_node_server(test, &programs[1])->role);
    /* Another folder, up to so many of all. */
    flyt_order_checkpoint_args args = {.allocation_id = test_one.id, .folder = elsewhere, .leave_running = true};
    args.id = ++test_saving.last_id;
    test_saving_must(flyt_node_checkpoint(&test->node, &args, &err));
    test_saving_until(test, FLYT_SAVING_DONE);
    struct flyt_tally *left_elsewhere;
    assert_int_equal(flyt_node_disk_take(&test->node, elsewhere, &left_elsewhere, &err), 0);
    test_node_until(test, has_none_left, left_elsewhere, "its threads have ended");
    flyt_tally_unref(left_elsewhere);
    test->node.ops->disk_left_all_max = LEFT_MAX;
    args.id = ++test_saving.last_id;
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_UNAVAILABLE);
    test_contains(err.text, "disks of checkpoint folders do not answer: 3 threads");
    test->node.ops->disk_left_all_max = ALL_MAX;
    /* They come back. */
    for (; rounds < 2; rounds++) {
        shut(false);
        test_node_until(test, has_none_left, left, "threads come back");
        shut(true);
        leave_threads(test, folder);
    }
    shut(false);
    test_node_until(test, has_none_left, left, "threads come back");
    flyt_tally_unref(left);
    test_saving_must(test_saving_restore(test));
    test_node_come_back(test, &test_one, &programs[0]);
    test_program_say(test, &programs[0], "go_on", "0");
    test_saving_until(test, FLYT_SAVING_DONE);
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- names that are not to stay ---- */

static bool are_recorded(struct test_node *test, void *unused)
{
    return test->node.state.uncommitted != NULL;
}

/* What is recorded is written, and the thread is at it. */
static bool has_begun(struct test_node *test, void *unused)
{
    return naming_jobs > 0;
}

static bool are_removed(struct test_node *test, void *count)
{
    return !test->node.state.uncommitted && !test->node.ops->publishes &&
           test_saving_images(test, NULL) == *(const unsigned *)count;
}

static void restart(struct test_node *test, struct test_program *programs)
{
    test_node_stop(test);
    test_node_start(test);
    for (unsigned i = 0; i < 2; i++)
        test_node_until_back(test, &programs[i]);
    test_node_end_rejoining(test);
    for (unsigned i = 0; i < 2; i++) /* as servers do that come back */
        test_program_say(test, &programs[i], "movable 2", "0");
}

/* The node manager ends when the first, or all, of a checkpoint's images have their names, and nobody has said that
 * they stay: the next one removes them, and no others. */
static void test_a_restart_while_images_are_named(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    unsigned finished_count = 2;
    char path[PATH_MAX];

    test_saving_enter(test, programs, 2);
    test_saving_write(test);
    assert_null(test->node.state.uncommitted);
    for (unsigned i = 0; i < 4; i++) {
        const unsigned named_count = 1 + i / 2;
        hold_links_after(named_count);
        test_saving_must(test_saving_checkpoint(test, 0, i % 2));
        test_node_until(test, are_recorded, NULL, "they are to get names");
        naming_jobs = 0;
        test_node_until(test, has_begun, NULL, "they get names");
        /* The loop stands still: it hears of none. */
        if (named_count == 1)
            await_held(1);
        while (test_saving_images(test, NULL) != finished_count + named_count)
            sched_yield();
        restart(test, programs);
        test_node_until(test, are_removed, &finished_count, "they are removed, and no others");
        let_links();
        await_held(0);
        test_saving_has_memory(test, programs, 2);
        assert_true(test_saving_write(test) > 0); /* it builds on what was finished */
        assert_true(test_saving_parents(test, path) > 0);
        finished_count += 2;
        assert_null(test->node.state.uncommitted);
        restart(test, programs);
        assert_null(test->node.state.uncommitted);
        assert_int_equal(test_saving_images(test, NULL), finished_count);
    }
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- closing ---- */

static bool has_opened(struct test_node *test, void *unused)
{
    return flyt_node_checkpoint_find(&test->node, test_saving.last_id)->has_opened;
}

static void drop_last(struct test_node *test)
{
    flyt_node_operations_drop(flyt_node_checkpoint_find(&test->node, test_saving.last_id)->op.allocation,
                              "enough of it");
    test_saving_failed(test, FLYT_STATUS_CONFLICT, "enough of it");
}

/* Whatever becomes of what was opened: the loop closes nothing of it. */
static void test_the_loop_closes_no_file(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    static char folder[FLYT_NAME_BYTES_MAX];

    loop_thread = pthread_self();
    loop_closings = 0;
    test_saving_folder(test, folder);
    test_saving_enter(test, programs, 2);
    atomic_store(&all_closings, 0);
    watched = folder;
    assert_int_equal(test_saving_write(test), 0);
    assert_int_equal(loop_closings, 0);
    assert_true(test_saving_write(test) > 0); /* with earlier images */
    assert_int_equal(loop_closings, 0);
    assert_true(atomic_load(&all_closings) > 0);
    /* It ends when all is open, and nothing sent; while it is written; and when it could not be stopped. */
    for (unsigned i = 0; i < 2; i++) {
        test_program_say(test, &programs[1], "busy 1", "0");
        test_saving_must(test_saving_checkpoint(test, 0, false));
        if (i)
            test_saving_until(test, FLYT_SAVING_COPYING);
        else
            test_node_until(test, has_opened, NULL, "files are open");
        drop_last(test);
        test_program_say(test, &programs[1], "busy 0", "0");
        assert_int_equal(loop_closings, 0);
    }
    assert_int_equal(flyt_fault_set("node.checkpoint.stop:error"), 0);
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.stop");
    assert_int_equal(flyt_fault_set("node.checkpoint.flush:error"), 0);
    test_saving_must(test_saving_checkpoint(test, 0, true));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "cannot be made to last");
    assert_int_equal(loop_closings, 0);
    assert_int_equal(flyt_fault_set(NULL), 0);
    /* A restore that fails, and one that does not, of images that build on others and of such that do not. */
    for (unsigned i = 0; i < 2; i++) {
        test_saving.is_full = i;
        test_saving_suspend(test, programs, 2);
        assert_int_equal(loop_closings, 0);
        test_node_make_fail(test, NULL, "fake.prepare:error");
        test_saving_must(test_saving_restore(test));
        test_saving_until(test, FLYT_SAVING_FAILED);
        assert_int_equal(loop_closings, 0);
        test_node_make_fail(test, NULL, NULL);
        test_saving_go_on(test, programs, 2);
        assert_int_equal(loop_closings, 0);
    }
    test_saving.is_full = false;
    watched = NULL;
    test_node_leave(test, &test_one, programs, 2);
}

/* Closing does not come back: all goes on, and the threads count. */
static void test_a_disk_that_closes_nothing(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct flyt_tally *left;
    struct flyt_error err;
    char folder[FLYT_NAME_BYTES_MAX];

    test_saving_folder(test, folder);
    assert_int_equal(flyt_node_disk_take(&test->node, folder, &left, &err), 0);
    test_saving_enter(test, &program, 1);
    assert_int_equal(flyt_fault_set("close.aside:hang"), 0);
    test_saving_write(test);
    test_saving_suspend(test, &program, 1);
    test_saving_go_on(test, &program, 1);
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_true(flyt_tally_count(left) > 0);
    test->node.ops->disk_left_max = 1; /* the first one hangs for ever */
    assert_int_equal(test_saving_checkpoint(test, 0, true), FLYT_STATUS_UNAVAILABLE);
    test_contains(test_saving.refusal.text, "does not answer");
    flyt_tally_unref(left);
    test_saving_has_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_threads_that_are_left),
        TEST_NODE(test_a_restart_while_images_are_named),
        TEST_NODE(test_the_loop_closes_no_file),
        TEST_NODE(test_a_disk_that_closes_nothing),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
