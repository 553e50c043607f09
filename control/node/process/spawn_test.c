/* Tests of the start of server processes that takes its time: nobody waits for it, and it may be in vain. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/pool.h"
#include "control/node/link/starts.h"
#include "control/node/test/test_node.h"

/* The disk that has the program does not answer. The new process has this memory until it has executed that. */
static struct {
    atomic_bool is_on;
    atomic_uint waiting_count;
    sem_t gate;
} disk;

int __real_execve(const char *path, char *const argv[], char *const envp[]);
int __wrap_execve(const char *path, char *const argv[], char *const envp[]);

int __wrap_execve(const char *path, char *const argv[], char *const envp[])
{
    if (atomic_load(&disk.is_on)) {
        atomic_fetch_add(&disk.waiting_count, 1);
        sem_wait(&disk.gate);
        atomic_fetch_sub(&disk.waiting_count, 1);
    }
    return __real_execve(path, argv, envp);
}

static bool is_disk_asked(struct test_node *test, void *unused)
{
    return atomic_load(&disk.waiting_count) > 0;
}

static bool are_all_there(struct test_node *test, void *count)
{
    unsigned there = 0;

    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        there += server->pid > 0 && server->state != FLYT_NODE_SERVER_ENDING;
    return there == test->node.server_count && there == *(unsigned *)count;
}

/* A further server of each GPU. */
static void start_more(struct test_node *test)
{
    test_node_until_warm(test);
    atomic_store(&disk.is_on, true);
    test->settings.warm++;
    flyt_node_pool_fill(&test->node);
    test_node_until(test, is_disk_asked, NULL, "a process is about to execute its program");
}

static void let_go_on(void)
{
    atomic_store(&disk.is_on, false);
    sem_post(&disk.gate);
}

static void test_nobody_waits_for_a_start(void **state)
{
    struct test_node *test = *state;
    unsigned all = 4;

    start_more(test);
    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_program_say(test, &program, "charge 0 4096", "0");
    assert_true(is_disk_asked(test, NULL));
    let_go_on();
    close(program.fd);
    test_node_until_used(test, &test_one, 0);
    test_node_until(test, are_all_there, &all, "all are there");
}

static void test_one_is_told_to_end_before_it_is_there(void **state)
{
    struct test_node *test = *state;
    unsigned all = 4;

    start_more(test);
    for (unsigned i = 0; i < test->node.gpus.count; i++)
        flyt_node_starts_renew(&test->node, &test->node.gpus.items[i]);
    let_go_on();
    test_node_until(test, are_all_there, &all, "all are there anew");
}

static bool is_forgotten(struct test_node *test, void *pid)
{
    const struct flyt_node_server *server = test->node.servers;

    while (server && server->pid != *(pid_t *)pid)
        server = server->next;
    return !server;
}

static bool is_reaped(struct test_node *test, void *pid)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t) * (pid_t *)pid, &info, WEXITED | WNOWAIT | WNOHANG) && errno == ECHILD;
}

/* The thread reaps who has ended: that can take as long as a start. */
static void test_the_loop_reaps_nobody(void **state)
{
    struct test_node *test = *state;

    test_node_until_warm(test);
    pid_t pid = test->node.servers->pid;
    start_more(test);
    assert_int_equal(kill(pid, SIGKILL), 0);
    test_node_until(test, is_forgotten, &pid, "its end is known");
    assert_false(is_reaped(test, &pid));
    let_go_on();
    test_node_until(test, is_reaped, &pid, "it is reaped");
}

/* At the node manager's end it ends as any that is warm. */
static void *let_go_on_soon(void *unused)
{
    while (!atomic_load(&disk.waiting_count))
        usleep(1000);
    let_go_on();
    return NULL;
}

static void test_the_end_comes_before_it_is_there(void **state)
{
    struct test_node *test = *state;
    pthread_t thread;

    start_more(test);
    assert_int_equal(pthread_create(&thread, NULL, let_go_on_soon, NULL), 0);
    test_node_stop(test);
    pthread_join(thread, NULL);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child is left */
    test_node_start(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_nobody_waits_for_a_start),
        TEST_NODE(test_one_is_told_to_end_before_it_is_there),
        TEST_NODE(test_the_loop_reaps_nobody),
        TEST_NODE(test_the_end_comes_before_it_is_there),
    };

    sem_init(&disk.gate, 0, 0);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
