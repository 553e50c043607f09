/* Tests of files of memory that VMs share with their host, in a folder of /dev/shm, which is a tmpfs. */
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

#include "control/base/vm_memory.h"
#include "control/node/host/vm_memory.h"
#include "control/node/test/test_node.h"

enum { BYTES = 1 << 20 };

static const char vm_ip[] = "10.0.0.7";

struct place {
    char folder[64], path[FLYT_NODE_VM_MEMORY_PATH_BYTES];
    struct flyt_node_vm_memory memory;
    struct flyt_error err;
};

static int set_up(void **state)
{
    struct place *place = calloc(1, sizeof *place);

    strcpy(place->folder, "/dev/shm/flyt-vm-memory-test-XXXXXX");
    assert_non_null(mkdtemp(place->folder));
    place->memory =
        (struct flyt_node_vm_memory){.folder = place->folder, .bytes = BYTES, .uid = getuid(), .gid = getgid()};
    *state = place;
    return 0;
}

static int tear_down(void **state)
{
    struct place *place = *state;
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", place->folder);
    assert_int_equal(system(command), 0);
    free(place);
    return 0;
}

static int make(struct place *place)
{
    return flyt_node_vm_memory_make(&place->memory, vm_ip, &place->err, place->path);
}

static void makes(struct place *place)
{
    if (make(place))
        fail_msg("%s", place->err.text);
}

static void refuses(struct place *place, int status, const char *word)
{
    place->err.text[0] = place->path[0] = 0;
    assert_int_equal(make(place), status);
    test_contains(place->err.text, word);
    assert_string_equal(place->path, "");
}

static struct stat look(const struct place *place)
{
    struct stat info;

    assert_int_equal(lstat(place->path, &info), 0);
    return info;
}

static struct flyt_vm_memory_head read_head(const struct place *place)
{
    struct flyt_vm_memory_head head;
    int fd = open(place->path, O_RDONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &head, sizeof head, 0), sizeof head);
    close(fd);
    return head;
}

static void write_at(const struct place *place, off_t offset, const char *text)
{
    int fd = open(place->path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, text, strlen(text), offset), strlen(text));
    close(fd);
}

static void test_it_is_made(void **state)
{
    struct place *place = *state;
    char expected[128];
    mode_t before = umask(0277);

    makes(place);
    umask(before);
    snprintf(expected, sizeof expected, "%s/flyt-10.0.0.7", place->folder);
    assert_string_equal(place->path, expected);
    struct stat info = look(place);
    assert_int_equal(info.st_mode, S_IFREG | 0600);
    assert_int_equal(info.st_size, BYTES);
    assert_int_equal(info.st_blocks * 512, BYTES); /* all pages are there */
    struct flyt_vm_memory_head head = read_head(place);
    assert_memory_equal(head.signature, "flyt vm memory\n", 16);
    assert_int_equal(head.version, 1);
    assert_int_equal(head.head_bytes, 4096);
    assert_int_equal(head.bytes, BYTES);
    assert_string_equal(head.vm_ip, vm_ip);
    assert_int_equal(flyt_vm_memory_head_check(&head, BYTES, &place->err), 0);
}

/* Whoever asks again gets what there is: the guest may run already. */
static void test_it_stays_as_it_is(void **state)
{
    struct place *place = *state;

    makes(place);
    ino_t first = look(place).st_ino;
    write_at(place, 0, "scribbled over  ");
    write_at(place, 8192, "the guest's");
    makes(place);
    assert_int_equal(look(place).st_ino, first);
    assert_memory_equal(read_head(place).signature, "scribbled over  ", 16);
}

static void test_it_is_owned_by_qemu(void **state)
{
    struct place *place = *state;

    if (getuid()) {
        print_message("skipped: only root gives files away\n");
        skip();
    }
    place->memory.uid = 4711;
    place->memory.gid = 4712;
    makes(place);
    assert_int_equal(look(place).st_uid, 4711);
    assert_int_equal(look(place).st_gid, 4712);
    makes(place);
    place->memory.uid = 4713;
    refuses(place, -EEXIST, "user 4711's");
    place->memory.uid = 4711;
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, vm_ip, &place->err), 0);
}

static void test_what_cannot_be(void **state)
{
    struct place *place = *state;
    char *folder = place->folder;

    assert_int_equal(flyt_node_vm_memory_make(&place->memory, "../7", &place->err, place->path), -EINVAL);
    test_contains(place->err.text, "address");
    place->memory.bytes = BYTES + 4096;
    refuses(place, -EINVAL, "power of two");
    place->memory.bytes = 4096;
    refuses(place, -EINVAL, "power of two");
    place->memory.bytes = UINT64_C(1) << 50;
    refuses(place, -ENOSPC, folder);
    place->memory.bytes = BYTES;
    place->memory.folder = "/proc";
    refuses(place, -EINVAL, "hugetlbfs");
    place->memory.folder = "/nowhere/at/all";
    refuses(place, -ENOENT, "/nowhere/at/all");
    place->memory.folder = folder;
    assert_int_equal(rmdir(folder), 0); /* nothing was left there */
    assert_int_equal(mkdir(folder, 0700), 0);
}

static void test_something_else_is_there(void **state)
{
    struct place *place = *state;
    char path[FLYT_NODE_VM_MEMORY_PATH_BYTES];

    makes(place);
    strcpy(path, place->path);
    assert_int_equal(truncate(path, BYTES / 2), 0);
    refuses(place, -EEXIST, "524288 bytes");
    assert_int_equal(truncate(path, BYTES), 0);
    assert_int_equal(chmod(path, 0644), 0);
    refuses(place, -EEXIST, "0600");
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, vm_ip, &place->err), -EEXIST);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/null", path), 0);
    refuses(place, -EEXIST, "cannot be opened");
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, vm_ip, &place->err), -EEXIST);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(place, -EEXIST, "no file");
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, vm_ip, &place->err), -EEXIST);
    assert_int_equal(access(path, F_OK), 0);
}

static void test_it_is_removed(void **state)
{
    struct place *place = *state;

    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, vm_ip, &place->err), 0); /* there is none */
    makes(place);
    write_at(place, 0, "scribbled over  ");
    place->memory.bytes = 2 * BYTES; /* the setting has changed since */
    refuses(place, -EEXIST, "1048576 bytes");
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, "10.0.0.70", &place->err), 0);
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, "../7", &place->err), -EINVAL);
    assert_int_equal(flyt_node_vm_memory_remove(&place->memory, vm_ip, &place->err), 0);
    assert_int_equal(rmdir(place->folder), 0);
    assert_int_equal(mkdir(place->folder, 0700), 0);
    makes(place);
    assert_int_equal(look(place).st_size, 2 * BYTES);
}

static void test_it_is_opened_for_each_session(void **state)
{
    struct place *place = *state;
    struct flock lock = {.l_type = F_WRLCK, .l_len = 1};

    assert_int_equal(flyt_node_vm_memory_open(&place->memory, vm_ip, &place->err), -ENOENT);
    assert_int_equal(flyt_node_vm_memory_bytes(place->folder, vm_ip), 0);
    makes(place);
    assert_int_equal(flyt_node_vm_memory_bytes(place->folder, vm_ip), BYTES);
    place->memory.uid++; /* it is QEMU's user's */
    int one = flyt_node_vm_memory_open(&place->memory, vm_ip, &place->err);
    int other = flyt_node_vm_memory_open(&place->memory, vm_ip, &place->err);
    assert_true(one >= 0 && other >= 0);
    assert_true(fcntl(one, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fcntl(one, F_OFD_SETLK, &lock), 0);
    assert_int_equal(fcntl(other, F_OFD_SETLK, &lock), -1); /* another open description */
    close(one);
    close(other);
    assert_int_equal(truncate(place->path, BYTES / 2), 0);
    assert_int_equal(flyt_node_vm_memory_open(&place->memory, vm_ip, &place->err), -EEXIST);
    test_contains(place->err.text, "524288 bytes");
    assert_int_equal(unlink(place->path), 0);
    assert_int_equal(symlink("/dev/shm", place->path), 0);
    assert_int_equal(flyt_node_vm_memory_open(&place->memory, vm_ip, &place->err), -ELOOP);
    assert_int_equal(flyt_node_vm_memory_bytes(place->folder, vm_ip), 0);
    assert_int_equal(flyt_node_vm_memory_open(&place->memory, "../x", &place->err), -EINVAL);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_it_is_made),
        TEST(test_it_stays_as_it_is),
        TEST(test_it_is_owned_by_qemu),
        TEST(test_what_cannot_be),
        TEST(test_something_else_is_there),
        TEST(test_it_is_removed),
        TEST(test_it_is_opened_for_each_session),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
