/* Tests of how the folders of module images are removed (images.h). */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/process/images.h"
#include "control/node/test/test_node.h"
#include "rpc/base/fault_point.h"

static unsigned loop_renames; /* of folders, by the loop's thread */

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);

int __wrap_rename(const char *from, const char *to)
{
    loop_renames += gettid() == getpid() && strstr(from, "/images/");
    return __real_rename(from, to);
}

/* Folders in STATE_DIR/images that are aside. */
static unsigned count_aside(const struct test_node *test)
{
    char path[PATH_MAX];
    unsigned count = 0;

    snprintf(path, sizeof path, "%s/images", test->settings.state_dir);
    DIR *folder = opendir(path);
    assert_non_null(folder);
    for (const struct dirent *entry; (entry = readdir(folder));)
        count += !strncmp(entry->d_name, "removed-", 8);
    closedir(folder);
    return count;
}

static bool are_aside(struct test_node *test, void *count)
{
    return count_aside(test) == *(unsigned *)count;
}

static void until_aside(struct test_node *test, unsigned count)
{
    test_node_until(test, are_aside, &count, "folders are aside");
}

/* The VM is granted something, has images, and loses all. Where they were. */
static void come_and_go(struct test_node *test, char *ret_path)
{
    char name[FLYT_MANAGER_LINK_FOLDER_BYTES + 16];

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    assert_int_equal(flyt_node_images_folder(&test->node, test_one.vm_ip, ret_path), 0);
    for (unsigned i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "%s/%u", ret_path, i);
        /* What an earlier VM of this address had is not there. */
        int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "an image", 8), 8);
        close(fd);
    }
    test_node_leave(test, &test_one, &program, 1);
    test_node_remove_now(test, test_one.id);
}

static bool is_gone(struct test_node *test, void *path)
{
    return access(path, F_OK) != 0;
}

static void test_they_are_removed(void **state)
{
    struct test_node *test = *state;
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];

    for (unsigned i = 0; i < 3; i++) {
        come_and_go(test, path);
        test_node_until(test, is_gone, path, "they have gone");
        until_aside(test, 0);
    }
    assert_int_equal(loop_renames, 0);
}

/* A disk that does not answer: the node manager goes on, a VM of the same address finds nothing of the one before it,
 * and the next node manager removes what is left. */
static void test_a_slow_disk(void **state)
{
    struct test_node *test = *state;
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];

    test_node_make_fail(test, "node.images.remove:hang", NULL);
    loop_renames = 0;
    come_and_go(test, path);
    until_aside(test, 1);
    come_and_go(test, path); /* the thread hangs */
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(loop_renames, 0);
    come_and_go(test, path);
    assert_int_equal(loop_renames, 1);
    assert_int_equal(count_aside(test), 2);
    assert_int_equal(access(path, F_OK), 0);
    test_node_stop(test);
    assert_int_equal(count_aside(test), 2);
    assert_int_equal(flyt_fault_set(NULL), 0);
    test_node_start(test);
    assert_true(is_gone(test, path));
    until_aside(test, 0);
}

/* What VMs that are there have stays over a restart. */
static void test_they_stay(void **state)
{
    struct test_node *test = *state;
    char path[FLYT_MANAGER_LINK_FOLDER_BYTES];

    test_node_grant(test, &test_one);
    assert_int_equal(flyt_node_images_folder(&test->node, test_one.vm_ip, path), 0);
    test_node_stop(test);
    test_node_start(test);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(count_aside(test), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_they_are_removed),
        TEST_NODE(test_a_slow_disk),
        TEST_NODE(test_they_stay),
    };
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
