/* Tests of the servers' control groups, where this machine lets us make some. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/attach/pool.h"
#include "control/node/test/test_node.h"

/* A group of our own, in which the servers get theirs. False: none can be made here. */
static bool make_base(char *ret_path, size_t bytes)
{
    static const char *const mounts[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

    for (unsigned i = 0; i < 2; i++) {
        char probe[128];
        snprintf(probe, sizeof probe, "%s/cgroup.controllers", mounts[i]);
        snprintf(ret_path, bytes, "%s/flyt-test-%d", mounts[i], (int)getpid());
        if (!access(probe, F_OK) && !mkdir(ret_path, 0755))
            return true;
    }
    return false;
}

static void read_text(const char *path, char *ret_text, size_t bytes)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t have = fd < 0 ? -1 : read(fd, ret_text, bytes - 1);

    if (fd >= 0)
        close(fd);
    ret_text[have > 0 ? have : 0] = 0;
}

static bool is_in_group(pid_t pid, const char *outer)
{
    char path[64], text[4096], wanted[96];

    snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
    read_text(path, text, sizeof text);
    snprintf(wanted, sizeof wanted, "server-%d\n", (int)pid);
    const char *line = strstr(text, "0::");
    return line && strstr(line, outer) && strstr(line, wanted);
}

static struct test_node *start_with(const char *base)
{
    struct test_node *test = test_node_new();

    test->settings.cgroup = strdup(base);
    test->settings.vm_memory_host_bytes = 512 * MIB;
    test->settings.vm_cpu_pct = 250;
    test->settings.vm_pids = 300;
    test_node_start(test);
    test_node_until_warm(test);
    return test;
}

static struct test_program enter(struct test_node *test)
{
    test_node_grant(test, &test_one);
    return test_node_enter(test, &test_one);
}

/* The groups are gone with the node's last server: the base can be removed. */
static void finish(struct test_node *test, const char *base)
{
    char left[160];

    test_node_stop(test);
    snprintf(left, sizeof left, "%s/warm", base);
    assert_int_equal(access(left, F_OK), -1);
    test_node_free(test);
    if (rmdir(base))
        fail_msg("%s is not empty: %s", base, strerror(errno));
}

static void test_each_server_has_a_group(void **state)
{
    char base[96], group[200];

    if (!make_base(base, sizeof base)) {
        print_message("skip: no control group (v2) can be made here\n");
        skip();
    }
    struct test_node *test = start_with(base);
    assert_true(is_in_group(test->node.servers->pid, "/warm/"));
    struct test_program program = enter(test);
    pid_t pid = test_node_server(test, &program)->pid;
    assert_true(is_in_group(pid, "/vm-"));
    snprintf(group, sizeof group, "%s/%s", base, test_node_server(test, &program)->cgroup);
    assert_int_equal(access(group, F_OK), 0);
    /* A restart leaves it where it is. */
    test_node_stop(test);
    assert_true(is_in_group(pid, "/vm-"));
    test_node_start(test);
    test_node_until_back(test, &program);
    assert_true(is_in_group(pid, "/vm-"));
    close(program.fd);
    test_node_until_empty(test, &test_one);
    assert_int_equal(access(group, F_OK), -1);
    *strrchr(group, '/') = 0;
    assert_int_equal(access(group, F_OK), -1); /* the VM's own went with its last server */
    finish(test, base);
}

static void is_bounded(const char *base, const char *outer, const char *name, const char *wanted)
{
    char path[256], text[64];

    snprintf(path, sizeof path, "%s/%s/%s", base, outer, name);
    read_text(path, text, sizeof text);
    text[strcspn(text, "\n")] = 0;
    assert_string_equal(text, wanted);
}

static void test_a_vm_is_bounded(void **state)
{
    char base[96], path[160], controllers[256], outer[FLYT_NODE_CGROUP_BYTES];

    if (!make_base(base, sizeof base)) {
        print_message("skip: no control group (v2) can be made here\n");
        skip();
    }
    snprintf(path, sizeof path, "%s/cgroup.controllers", base);
    read_text(path, controllers, sizeof controllers);
    if (!strstr(controllers, "memory") || !strstr(controllers, "cpu") || !strstr(controllers, "pids")) {
        rmdir(base);
        print_message("skip: the controllers memory, cpu and pids are not those of cgroup v2 here\n");
        skip();
    }
    struct test_node *test = start_with(base);
    struct test_program program = enter(test);
    snprintf(outer, sizeof outer, "%s", test_node_server(test, &program)->cgroup);
    outer[strcspn(outer, "/")] = 0;
    is_bounded(base, outer, "memory.max", "536870912");
    is_bounded(base, outer, "cpu.max", "250000 100000");
    is_bounded(base, outer, "pids.max", "300");
    /* Another number holds from the next program on. */
    test->settings.vm_pids = 0;
    struct test_program second = enter(test);
    is_bounded(base, outer, "pids.max", "max");
    close(program.fd);
    close(second.fd);
    test_node_until_empty(test, &test_one);
    finish(test, base);
}

static void test_nothing_is_delegated(void **state)
{
    struct test_node *test = start_with("/tmp");

    assert_int_equal(test->node.cgroups.base_fd, -1);
    struct test_program program = enter(test); /* everything works without */
    assert_string_equal(test_node_server(test, &program)->cgroup, "");
    close(program.fd);
    test_node_until_empty(test, &test_one);
    test_node_stop(test);
    test_node_free(test);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_server_has_a_group),
        cmocka_unit_test(test_a_vm_is_bounded),
        cmocka_unit_test(test_nothing_is_delegated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
