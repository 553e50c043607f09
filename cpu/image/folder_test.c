/*
 * Images as files: there whole or not at all, whatever happens to who writes them; which one is the newest; chains of
 * images, and what is wrong with them.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cpu/image/folder.h"
#include "cpu/image/test_image.h"
#include "cpu/image/verify.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"

enum { PAGE = FLYT_CHECKPOINT_PAGE_BYTES };

#define WINDOW   flyt_window_base(0)
#define DO(call) assert_int_equal((call), 0)

/* A file system without O_TMPFILE, as NFS is one: open says so (rules.mk: --wrap). */
static bool is_without_tmpfile;
int __real_openat(int folder_fd, const char *path, int flags, mode_t mode);
int __wrap_openat(int folder_fd, const char *path, int flags, mode_t mode);

int __wrap_openat(int folder_fd, const char *path, int flags, mode_t mode)
{
    if (is_without_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return __real_openat(folder_fd, path, flags, mode);
}

static char folder[140];

static int make_folder(void **state)
{
    const char *parent = getenv("TMPDIR");

    snprintf(folder, sizeof folder, "%.100s/flyt-folder-test.XXXXXX", parent ? parent : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *about, int flag, struct FTW *where)
{
    return remove(path);
}

static int remove_folder(void **state)
{
    is_without_tmpfile = false;
    return nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Names in the folder but "." and "..". */
static unsigned count_names(void)
{
    DIR *listing = opendir(folder);
    unsigned count = 0;

    assert_non_null(listing);
    while (readdir(listing))
        count++;
    closedir(listing);
    return count - 2;
}

static void path_of(unsigned id, char *ret_path)
{
    flyt_checkpoint_head head = test_head(id, 0);
    char name[FLYT_CHECKPOINT_NAME_BYTES];

    flyt_checkpoint_file_name(head.id, name);
    sprintf(ret_path, "%s/%s", folder, name);
}

static struct flyt_checkpoint_file begun(unsigned id, unsigned parent)
{
    flyt_checkpoint_head head = test_head(id, parent);
    struct flyt_checkpoint_file file;
    struct flyt_error err;

    if (flyt_checkpoint_file_create(folder, &head, FLYT_CHECKPOINT_PACK_LZ4, &file, &err))
        fail_msg("%s", err.text);
    DO(flyt_checkpoint_put_slot(file.writer, 0, 0, &err));
    DO(flyt_checkpoint_put_round(file.writer, &err));
    return file;
}

/* An image of `extents` extents, the first page with contents; without a parent all others are zero, with one all
 * others are left to it. */
static void write_image(unsigned id, unsigned parent, unsigned extents)
{
    struct flyt_checkpoint_file file = begun(id, parent);
    flyt_checkpoint_sequence sequence = {.received = 1};
    unsigned char page[PAGE];
    struct flyt_error err;

    DO(flyt_checkpoint_put_extent(file.writer, WINDOW, extents * (uint64_t)FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
    test_page(page, id);
    DO(flyt_checkpoint_put_pages(file.writer, WINDOW, 1, page, NULL, &err));
    if (!parent)
        DO(flyt_checkpoint_put_run(file.writer, WINDOW + PAGE, extents * TEST_EXTENT_PAGES - 1, FLYT_CHECKPOINT_ZERO,
                                   NULL, &err));
    DO(flyt_checkpoint_put_sequence(file.writer, &sequence, &err));
    DO(flyt_checkpoint_put_end(file.writer, &err));
    if (flyt_checkpoint_file_commit(&file, &err))
        fail_msg("%s", err.text);
}

/* The id's byte of the newest image; 0: there is none. */
static unsigned newest(uint32_t *ret_count)
{
    struct flyt_checkpoint_folder images;
    struct flyt_error err;

    DO(flyt_checkpoint_folder_read(folder, &images, &err));
    const struct flyt_checkpoint_entry *entry = flyt_checkpoint_folder_newest(&images);
    unsigned id = entry ? entry->id[0] : 0;
    if (ret_count)
        *ret_count = images.entry_count;
    flyt_checkpoint_folder_fini(&images);
    return id;
}

static int verify(unsigned id, struct flyt_error *err)
{
    struct flyt_checkpoint_summary summary;
    char path[200];

    path_of(id, path);
    err->text[0] = 0;
    int status = flyt_checkpoint_verify(path, true, &summary, err);
    flyt_checkpoint_summary_fini(&summary);
    return status;
}

static void change_byte(const char *path, off_t at)
{
    flyt_auto_close int fd = open(path, O_RDWR | O_CLOEXEC);
    unsigned char byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

/* ---- a file is there whole or not at all ---- */

static void a_whole_one_is_there(void **state)
{
    flyt_checkpoint_head head = test_head(1, 0);
    struct flyt_checkpoint_file file;
    struct flyt_error err;
    struct stat about;
    char path[200];

    write_image(1, 0, 1);
    assert_int_equal(count_names(), 1);
    assert_int_equal(newest(NULL), 1);
    path_of(1, path);
    DO(stat(path, &about));
    assert_int_equal(about.st_mode & 07777, 0600);
    DO(verify(1, &err));
    assert_int_equal(flyt_checkpoint_file_create(folder, &head, FLYT_CHECKPOINT_PACK_NOT, &file, &err), -EEXIST);
    assert_non_null(strstr(err.text, "it is there already"));
    assert_int_equal(flyt_checkpoint_file_create("/nowhere/at/all", &head, FLYT_CHECKPOINT_PACK_NOT, &file, &err),
                     -ENOENT);
}

static void half_a_file_is_none(void **state)
{
    struct flyt_error err;

    for (unsigned way = 0; way < 2; way++) {
        is_without_tmpfile = way == 1;
        struct flyt_checkpoint_file file = begun(2, 0);
        assert_true(file.has_temporary || way == 0);
        assert_int_equal(count_names(), file.has_temporary); /* some file systems cannot otherwise */
        assert_int_equal(newest(NULL), 0);
        flyt_checkpoint_file_abandon(&file);
        assert_int_equal(count_names(), 0);
        file = begun(2, 0);
        assert_int_equal(flyt_checkpoint_file_commit(&file, &err), -EINVAL);
        assert_non_null(strstr(err.text, "not whole"));
        assert_int_equal(count_names(), 0);
    }
    write_image(2, 0, 1);
    assert_int_equal(count_names(), 1);
    assert_int_equal(newest(NULL), 2);
    DO(verify(2, &err));
}

/* Killed in the middle, with the state of before still the newest. */
/* An image that somebody else writes: the whole sample, or its first bytes. Its name is not known before. */
static int adopt_sample(const struct test_bytes *sample, size_t bytes, char *ret_name, struct flyt_error *err)
{
    struct flyt_checkpoint_file file;

    DO(flyt_checkpoint_file_open(folder, &file, err));
    assert_int_equal(count_names(), file.has_temporary);
    assert_int_equal(newest(NULL), 0);
    assert_int_equal(write(file.fd, sample->data, bytes), bytes);
    return flyt_checkpoint_file_adopt(&file, ret_name, err);
}

static void what_another_process_wrote_is_there(void **state)
{
    struct test_bytes sample = test_sample(FLYT_CHECKPOINT_PACK_LZ4);
    char name[FLYT_CHECKPOINT_NAME_BYTES], path[200];
    struct flyt_checkpoint_file file;
    struct flyt_error err;
    struct stat about;

    for (unsigned way = 0; way < 2; way++) {
        is_without_tmpfile = way == 1;
        assert_int_equal(adopt_sample(&sample, 0, name, &err), -ENODATA);
        assert_int_equal(adopt_sample(&sample, 20, name, &err), -ENODATA);
        DO(flyt_checkpoint_file_open(folder, &file, &err));
        assert_int_equal(write(file.fd, sample.data, sample.bytes), sample.bytes);
        flyt_checkpoint_file_abandon(&file);
        assert_int_equal(count_names(), 0);
        if (adopt_sample(&sample, sample.bytes, name, &err))
            fail_msg("%s", err.text);
        path_of(7, path);
        assert_string_equal(strrchr(path, '/') + 1, name);
        DO(stat(path, &about));
        assert_int_equal(about.st_mode & 07777, 0600);
        assert_int_equal(about.st_size, sample.bytes);
        DO(verify(7, &err));
        assert_int_equal(count_names(), 1);
        /* One of that id is there already: it stays as it is. */
        DO(flyt_checkpoint_file_open(folder, &file, &err));
        assert_int_equal(write(file.fd, sample.data, sample.bytes), sample.bytes);
        assert_int_equal(flyt_checkpoint_file_adopt(&file, NULL, &err), -EEXIST);
        assert_int_equal(count_names(), 1);
        DO(verify(7, &err));
        DO(unlink(path));
    }
    assert_int_equal(flyt_checkpoint_file_open("/nowhere/at/all", &file, &err), -ENOENT);
    free(sample.data);
}

/* Whoever may write to the folder may put anything where an image was a moment ago. */
static void what_is_no_file_is_not_waited_for(void **state)
{
    char path[200], link[210];
    struct flyt_error err;

    path_of(7, path);
    snprintf(link, sizeof link, "%s.link", path);
    DO(symlink(path, link));
    assert_int_equal(flyt_checkpoint_file_read(path, 0, &err), -ENOENT);
    DO(mkfifo(path, 0600));
    assert_int_equal(flyt_checkpoint_file_read(path, 0, &err), -EINVAL);
    assert_non_null(strstr(err.text, "it is no file"));
    assert_int_equal(flyt_checkpoint_file_read(link, 0, &err), -EINVAL);
    assert_int_equal(verify(7, &err), -EINVAL);
    assert_int_equal(flyt_checkpoint_file_read(folder, 0, &err), -EINVAL);
    DO(unlink(path));
    write_image(7, 0, 1);
    assert_int_equal(flyt_checkpoint_file_read(link, O_NOFOLLOW, &err), -ELOOP);
    for (unsigned i = 0; i < 2; i++) {
        int fd = flyt_checkpoint_file_read(i ? link : path, i ? 0 : O_NOFOLLOW, &err);
        assert_true(fd >= 0);
        assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
        flyt_close(fd);
    }
}

static bool is_left_alone(const struct flyt_checkpoint_file *file)
{
    return file->fd == -1 && file->folder_fd == -1;
}

/* By a thread, of which only what it leaves is to be seen. */
static void nothing_is_left_of_one_that_is_abandoned_aside(void **state)
{
    struct flyt_checkpoint_file file;
    struct flyt_error err;

    for (unsigned way = 0; way < 2; way++) {
        is_without_tmpfile = way == 1;
        DO(flyt_checkpoint_file_open(folder, &file, &err));
        assert_int_equal(count_names(), way);
        flyt_checkpoint_file_abandon_aside(&file, NULL);
        assert_true(is_left_alone(&file));
        for (unsigned i = 0; i < 3000 && count_names(); i++)
            usleep(10000);
        assert_int_equal(count_names(), 0);
    }
}

static void a_killed_writer_leaves_what_was(void **state)
{
    struct flyt_error err;
    unsigned left = 0; /* hidden names, where there is no O_TMPFILE */
    uint32_t count;

    write_image(1, 0, 1);
    for (unsigned way = 0; way < 2; way++) {
        is_without_tmpfile = way == 1;
        struct flyt_checkpoint_file trial = begun(9, 1);
        left += trial.has_temporary;
        flyt_checkpoint_file_abandon(&trial);
        pid_t child = fork();
        assert_true(child >= 0);
        if (!child) {
            struct flyt_checkpoint_file file = begun(2 + way, 1);
            flyt_checkpoint_put_extent(file.writer, WINDOW, FLYT_CHECKPOINT_EXTENT_ALIGN, &err);
            kill(getpid(), SIGKILL);
        }
        int how = 0;
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
        assert_int_equal(newest(&count), 1);
        assert_int_equal(count, 1);
        assert_int_equal(count_names(), 1 + left);
    }
    is_without_tmpfile = false;
    DO(verify(1, &err));
}

/* The kernel stops the file at a size, as a full disk or a quota does. */
static void a_full_disk_leaves_nothing(void **state)
{
    unsigned char *pages = malloc(32 * PAGE);
    uint64_t random = 1;
    struct rlimit before, limit;
    struct flyt_error err;

    assert_non_null(pages);
    for (unsigned i = 0; i < 32 * PAGE; i++)
        pages[i] = (unsigned char)((random = random * 6364136223846793005u + 1) >> 33);
    DO(getrlimit(RLIMIT_FSIZE, &before));
    for (unsigned way = 0; way < 2; way++) {
        is_without_tmpfile = way == 1;
        struct flyt_checkpoint_file file = begun(3, 0);
        DO(flyt_checkpoint_put_extent(file.writer, WINDOW, FLYT_CHECKPOINT_EXTENT_ALIGN, &err));
        limit = before;
        limit.rlim_cur = 700000;
        DO(setrlimit(RLIMIT_FSIZE, &limit));
        int status = flyt_checkpoint_put_pages(file.writer, WINDOW, 32, pages, NULL, &err);
        DO(setrlimit(RLIMIT_FSIZE, &before));
        assert_int_equal(status, -EFBIG);
        assert_non_null(strstr(err.text, "at byte 700000: it cannot be written: File too large"));
        assert_non_null(strstr(err.text, folder));
        assert_int_equal(flyt_checkpoint_file_commit(&file, &err), -EINVAL);
        assert_int_equal(count_names(), 0);
    }
    free(pages);
}

/* ---- chains ---- */

static void the_newest_is_at_the_end_of_its_chain(void **state)
{
    struct flyt_checkpoint_summary summary;
    struct flyt_error err;
    uint32_t count;
    char path[200];

    assert_int_equal(newest(NULL), 0);
    write_image(9, 0, 1); /* made later than all others by the clock, but 3 builds on it */
    write_image(5, 9, 1);
    write_image(3, 5, 1);
    assert_int_equal(newest(&count), 3);
    assert_int_equal(count, 3);
    path_of(3, path);
    DO(flyt_checkpoint_verify(path, true, &summary, &err));
    assert_int_equal(summary.parent_count, 2);
    assert_true(summary.parent_ids[0] == 5 && summary.parent_ids[FLYT_CHECKPOINT_ID_BYTES] == 9);
    assert_int_equal(summary.inherited_page_count, TEST_EXTENT_PAGES - 1);
    assert_string_equal(summary.head.program_name, "my_program");
    flyt_checkpoint_summary_fini(&summary);
    write_image(4, 9, 1); /* restored from 9, and another checkpoint made */
    assert_int_equal(newest(NULL), 4);
    /* Names that are no images are none. */
    path_of(8, path);
    strcat(path, "x");
    close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    assert_int_equal(newest(&count), 4);
    assert_int_equal(count, 4);
}

static void a_missing_parent_is_told(void **state)
{
    struct flyt_checkpoint_folder images;
    struct flyt_error err;

    write_image(1, 0, 1);
    write_image(3, 2, 1);
    assert_int_equal(newest(NULL), 1);
    assert_int_equal(verify(3, &err), -ENOENT);
    assert_non_null(strstr(err.text, "03030303030303030303030303030303.flyt: its parent "));
    assert_non_null(strstr(err.text, "02020202020202020202020202020202.flyt is not there"));
    DO(flyt_checkpoint_folder_read(folder, &images, &err));
    assert_false(images.entries[1].is_usable);
    assert_true(images.entries[1].is_sound);
    assert_non_null(strstr(images.entries[1].err.text, "02020202020202020202020202020202.flyt is not there"));
    flyt_checkpoint_folder_fini(&images);
}

static void a_wrong_parent_is_told(void **state)
{
    char one[200], other[200];
    struct flyt_error err;

    /* An image under the name of another one. */
    write_image(1, 0, 1);
    write_image(3, 2, 1);
    path_of(1, one);
    path_of(2, other);
    DO(rename(one, other));
    assert_int_equal(verify(3, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "another id than its name says"));
    assert_int_equal(newest(NULL), 0);
    /* One that has not all the pages which are left to it. */
    write_image(4, 0, 1);
    write_image(5, 4, 2);
    assert_int_equal(verify(5, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "63 pages at 0x200000010000 are left to its parent, which has them not"));
    /* Two that are each other's parents. */
    write_image(6, 7, 1);
    write_image(7, 6, 1);
    assert_int_equal(verify(6, &err), -ELOOP);
    assert_true(newest(NULL) == 5);
}

/* Damage anywhere in a chain: at its end, in the middle, and at its head. */
static void damage_is_found(void **state)
{
    struct flyt_error err;
    struct stat about;
    char path[200];

    write_image(1, 0, 1);
    write_image(2, 1, 1);
    write_image(3, 2, 1);
    path_of(1, path);
    DO(stat(path, &about));
    change_byte(path, about.st_size / 2); /* in the middle: only reading all of it shows that */
    assert_int_equal(newest(NULL), 3);
    assert_int_equal(verify(3, &err), -EBADMSG);
    assert_non_null(strstr(err.text, "01010101010101010101010101010101.flyt: damaged at byte "));
    change_byte(path, about.st_size / 2);
    DO(verify(3, &err));
    path_of(3, path);
    DO(stat(path, &about));
    DO(truncate(path, about.st_size - 1));
    assert_int_equal(newest(NULL), 2);
    assert_int_equal(verify(3, &err), -ENODATA);
    path_of(2, path);
    change_byte(path, 3);
    assert_int_equal(newest(NULL), 1);
    path_of(1, path);
    DO(truncate(path, 0));
    assert_int_equal(newest(NULL), 0);
    assert_int_equal(verify(1, &err), -ENODATA);
    assert_int_equal(verify(8, &err), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_whole_one_is_there, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(half_a_file_is_none, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_another_process_wrote_is_there, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_is_no_file_is_not_waited_for, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(nothing_is_left_of_one_that_is_abandoned_aside, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_killed_writer_leaves_what_was, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_full_disk_leaves_nothing, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_newest_is_at_the_end_of_its_chain, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_missing_parent_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_wrong_parent_is_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(damage_is_found, make_folder, remove_folder),
    };

    signal(SIGXFSZ, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
