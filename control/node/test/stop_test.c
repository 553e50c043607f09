/* Tests of the node manager's end with processes that do not end when they are killed: it is not held up by them. */
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/test/test_node.h"
#include "rpc/base/clock.h"

int __real_waitid(idtype_t type, id_t id, siginfo_t *info, int options);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms);

/* The driver does not let it go: its pidfd never becomes readable. */
static int stuck_fd = -1;
static unsigned waits;

int __wrap_waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    if (type != P_PIDFD || (int)id != stuck_fd || stuck_fd < 0)
        return __real_waitid(type, id, info, options);
    if (!(options & WNOHANG))
        fail_msg("it is waited for without a limit");
    waits++;
    *info = (siginfo_t){0};
    return 0;
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout_ms)
{
    if (stuck_fd < 0 || count != 1 || fds[0].fd != stuck_fd)
        return __real_poll(fds, count, timeout_ms);
    if (timeout_ms < 0)
        fail_msg("it is waited for without a limit");
    return __real_poll(NULL, 0, timeout_ms);
}

static void test_a_warm_server_that_does_not_end(void **state)
{
    struct test_node *test = *state;

    test_node_until_warm(test);
    struct flyt_node_server *server = test->node.servers;
    assert_non_null(server);
    const pid_t pid = server->pid;
    stuck_fd = server->pid_fd;
    test_node_stop(test);
    assert_int_equal(waits, 1);
    stuck_fd = -1;
    assert_int_equal(waitpid(pid, NULL, 0), pid); /* it was killed */
    test_node_start(test);
}

/* With another that has it no more: nobody else waits for it. */
static void test_all_are_waited_for_together(void **state)
{
    struct test_node *test = *state;

    test->settings.warm = 4;
    flyt_node_changed(&test->node);
    test_node_until_warm(test);
    stuck_fd = test->node.servers->pid_fd;
    const pid_t pid = test->node.servers->pid;
    waits = 0;
    test_node_stop(test);
    assert_int_equal(waits, 1);
    assert_int_equal(test->node.server_count, 0);
    stuck_fd = -1;
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no other child is left */
    test_node_start(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_a_warm_server_that_does_not_end),
        TEST_NODE(test_all_are_waited_for_together),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
