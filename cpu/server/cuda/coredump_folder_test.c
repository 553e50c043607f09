/* Core dumps in a folder with a bound: the test writes what the driver would. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/server/cuda/coredump_folder.h"

enum { BYTES_MAX = 1000000, TOLD_MAX = 16 };

/* What was told; read when the folder has settled. */
struct told {
    unsigned count;
    enum flyt_coredump_state states[TOLD_MAX];
    uint64_t bytes[TOLD_MAX];
    char name[FLYT_COREDUMP_NAME_BYTES];
};

static char folder_path[] = "/tmp/flyt-coredumps-XXXXXX";
static struct told told;
static struct flyt_coredump_folder *folder;

static void tell(void *user, const char *name, enum flyt_coredump_state state, uint64_t bytes)
{
    assert_true(told.count < TOLD_MAX);
    told.states[told.count] = state;
    told.bytes[told.count++] = bytes;
    snprintf(told.name, sizeof told.name, "%s", name ? name : "");
}

static void tell_nobody(void *user, const char *name, enum flyt_coredump_state state, uint64_t bytes)
{
}

static int start(void **state)
{
    memset(&told, 0, sizeof told);
    strcpy(folder_path + strlen(folder_path) - 6, "XXXXXX");
    if (!mkdtemp(folder_path))
        return -1;
    return flyt_coredump_folder_new(open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), BYTES_MAX, "core.a", tell,
                                    NULL, &folder);
}

static int stop(void **state)
{
    char command[128];
    folder = flyt_coredump_folder_free(folder);
    snprintf(command, sizeof command, "rm -r %s", folder_path);
    return system(command);
}

static int open_dump(unsigned number)
{
    char path[FLYT_COREDUMP_PATH_BYTES];
    flyt_coredump_folder_path(folder, number, path);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    return fd;
}

/* 0, or the error with which the disk does not take it. */
static int put(int fd, size_t bytes)
{
    static const char zeros[4096];
    for (size_t rest = bytes; rest;) {
        ssize_t written = write(fd, zeros, rest < sizeof zeros ? rest : sizeof zeros);
        if (written < 0)
            return errno;
        rest -= (size_t)written;
    }
    return 0;
}

static off_t size_of(const char *name)
{
    char path[256];
    struct stat info;
    snprintf(path, sizeof path, "%s/%s", folder_path, name);
    return stat(path, &info) == 0 ? info.st_size : -1;
}

static void a_dump_is_told_when_it_is_whole(void **state)
{
    enum flyt_coredump_state made;
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_null(flyt_coredump_folder_made(folder, &made));
    assert_int_equal(made, FLYT_COREDUMP_NONE);
    int fd = open_dump(3);
    assert_int_equal(put(fd, 5000), 0);
    assert_false(flyt_coredump_folder_settle(folder, 100)); /* it is being written */
    close(fd);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(told.count, 2);
    assert_int_equal(told.states[0], FLYT_COREDUMP_BEGUN);
    assert_int_equal(told.states[1], FLYT_COREDUMP_DONE);
    assert_int_equal(told.bytes[1], 5000);
    assert_string_equal(told.name, "core.a.3.nvcudmp");
    assert_string_equal(flyt_coredump_folder_made(folder, &made), "core.a.3.nvcudmp");
    assert_int_equal(made, FLYT_COREDUMP_DONE);
    assert_int_equal(size_of("core.a.3.nvcudmp"), 5000);
}

static off_t blocks_of(int fd)
{
    struct stat info;
    assert_int_equal(fstat(fd, &info), 0);
    return info.st_blocks;
}

/* Who writes it goes on, and it takes no more of the disk; its descriptor stays what it is. */
static void what_exceeds_the_bound_is_removed(void **state)
{
    enum flyt_coredump_state made;
    struct stat before, after;
    int fd = open_dump(0);
    assert_int_equal(fstat(fd, &before), 0);
    assert_int_equal(put(fd, 2 * BYTES_MAX), 0);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(blocks_of(fd), 0);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(put(fd, BYTES_MAX), 0);
        assert_true(flyt_coredump_folder_settle(folder, 10000));
        assert_int_equal(blocks_of(fd), 0);
    }
    assert_int_equal(fstat(fd, &after), 0);
    assert_true(after.st_ino == before.st_ino && after.st_dev == before.st_dev);
    close(fd);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(told.count, 2);
    assert_int_equal(told.states[1], FLYT_COREDUMP_CUT);
    assert_true(told.bytes[1] > BYTES_MAX);
    assert_int_equal(size_of("core.a.0.nvcudmp"), -1);
    assert_string_equal(flyt_coredump_folder_made(folder, &made), "core.a.0.nvcudmp");
    assert_int_equal(made, FLYT_COREDUMP_CUT);
}

/* Files without content are bounded, too. */
static void empty_files_count(void **state)
{
    char path[256];
    for (unsigned i = 0; i < BYTES_MAX / 4096 + 1; i++) {
        snprintf(path, sizeof path, "%s/core.b.%u", folder_path, i);
        close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    }
    int fd = open_dump(0);
    assert_int_equal(put(fd, 500), 0);
    close(fd);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(told.states[told.count - 1], FLYT_COREDUMP_CUT);
}

/* All that there may be, until it is over. Returns how many. */
static unsigned take_descriptors(int *fds, unsigned fds_max)
{
    unsigned count = 0;
    while (count < fds_max && (fds[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    assert_int_equal(errno, EMFILE);
    return count;
}

/* A process that has no descriptor left loses no dump that is small enough, and one that is not is cut later. */
static void without_a_descriptor_it_waits(void **state)
{
    static int fds[4096];
    struct rlimit before, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = 256;
    int small = open_dump(0), large = open_dump(1);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    unsigned count = take_descriptors(fds, 4096);
    assert_int_equal(put(small, 500), 0);
    close(small);
    int taken = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_int_equal(put(large, 2 * BYTES_MAX), 0);
    usleep(20000); /* it looks meanwhile */
    assert_int_equal(size_of("core.a.1.nvcudmp"), 2 * BYTES_MAX);
    close(large);
    close(taken);
    for (unsigned i = 0; i < count; i++)
        close(fds[i]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(size_of("core.a.0.nvcudmp"), 500);
    assert_int_equal(size_of("core.a.1.nvcudmp"), -1);
}

/* What others have left counts, and is not touched. */
static void others_count(void **state)
{
    char path[256];
    snprintf(path, sizeof path, "%s/core.b.0.nvcudmp", folder_path);
    int other = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(put(other, BYTES_MAX - 40000), 0);
    close(other);
    int fd = open_dump(0);
    assert_int_equal(put(fd, 50000), 0);
    close(fd);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(told.states[told.count - 1], FLYT_COREDUMP_CUT);
    assert_int_equal(size_of("core.a.0.nvcudmp"), -1);
    assert_int_equal(size_of("core.b.0.nvcudmp"), BYTES_MAX - 40000);
    fd = open_dump(1);
    assert_int_equal(put(fd, 500), 0);
    close(fd);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(told.states[told.count - 1], FLYT_COREDUMP_DONE);
}

/* Another server, of the same session even, settles for itself: this one still waits for what happened before. */
static void another_s_settling_is_no_own_one(void **state)
{
    struct flyt_coredump_folder *other;
    assert_int_equal(flyt_coredump_folder_new(open(folder_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), BYTES_MAX,
                                              "core.a", tell_nobody, NULL, &other),
                     0);
    for (unsigned i = 0; i < 2 * FLYT_COREDUMPS_MAX; i++)
        assert_true(flyt_coredump_folder_settle(other, 10000));
    flyt_coredump_folder_free(other);
    for (unsigned i = 0; i < TOLD_MAX / 2; i++) {
        int fd = open_dump(i);
        assert_int_equal(put(fd, 500), 0);
        close(fd);
        assert_true(flyt_coredump_folder_settle(folder, 10000));
        assert_int_equal(told.count, 2 * (i + 1));
        assert_int_equal(told.states[told.count - 1], FLYT_COREDUMP_DONE);
    }
}

static void what_nobody_wants_is_removed_and_has_no_name(void **state)
{
    enum flyt_coredump_state made;
    int fd = open_dump(FLYT_COREDUMP_UNWANTED);
    assert_int_equal(put(fd, 5000), 0);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(blocks_of(fd), 0);
    assert_int_equal(put(fd, 5000), 0);
    close(fd);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(size_of("core.a.16.nvcudmp"), -1);
    assert_null(flyt_coredump_folder_made(folder, &made));
    assert_int_equal(told.count, 1);
    assert_int_equal(told.states[0], FLYT_COREDUMP_CUT);
    assert_string_equal(told.name, "");
}

/* A name that leads elsewhere is none of a dump. */
static void a_link_is_no_dump(void **state)
{
    char path[256];
    snprintf(path, sizeof path, "%s/core.a.0.nvcudmp", folder_path);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_true(flyt_coredump_folder_settle(folder, 10000));
    assert_int_equal(told.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_dump_is_told_when_it_is_whole, start, stop),
        cmocka_unit_test_setup_teardown(what_exceeds_the_bound_is_removed, start, stop),
        cmocka_unit_test_setup_teardown(empty_files_count, start, stop),
        cmocka_unit_test_setup_teardown(without_a_descriptor_it_waits, start, stop),
        cmocka_unit_test_setup_teardown(others_count, start, stop),
        cmocka_unit_test_setup_teardown(another_s_settling_is_no_own_one, start, stop),
        cmocka_unit_test_setup_teardown(what_nobody_wants_is_removed_and_has_no_name, start, stop),
        cmocka_unit_test_setup_teardown(a_link_is_no_dump, start, stop),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
