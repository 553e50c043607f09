/*
 * Module images in a folder that servers with users of their own share: each uses what another one has kept, and none
 * can give the others something else under its name. The users are tried as root only.
 */
#include "cpu/server/cuda/image_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/sha256.h"

enum { ONE = 70001, OTHER = 70002 };

struct fixture {
    char folder[64];
    struct flyt_image_cache cache;
    unsigned char hash[FLYT_SHA256_BYTES];
    char name[2 * FLYT_SHA256_BYTES + 1];
};

static const char image[] = "an image of a module";

/* What the folder is for: the servers of one user, or of many. */
static void open_as(struct fixture *self, mode_t mode)
{
    assert_int_equal(chmod(self->folder, mode), 0);
    assert_int_equal(flyt_image_cache_adopt(&self->cache, open(self->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)), 0);
}

static void become(uid_t uid)
{
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(seteuid(uid), 0);
}

static int set_up(void **state)
{
    struct fixture *self = calloc(1, sizeof *self);
    if (!self)
        return -1;
    strcpy(self->folder, "/tmp/flyt-image-test-XXXXXX");
    assert_non_null(mkdtemp(self->folder));
    flyt_sha256_of(image, sizeof image, self->hash);
    for (unsigned i = 0; i < FLYT_SHA256_BYTES; i++)
        snprintf(self->name + 2 * i, 3, "%02x", self->hash[i]);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    if (!getuid())
        assert_int_equal(seteuid(0), 0);
    flyt_image_cache_remove(&self->cache, self->folder);
    assert_int_equal(access(self->folder, F_OK), -1);
    free(self);
    return 0;
}

static mode_t mode_of(const struct fixture *self)
{
    struct stat info;
    assert_int_equal(fstatat(self->cache.folder_fd, self->name, &info, 0), 0);
    return info.st_mode & 0777;
}

static int get(const struct fixture *self)
{
    char *copy;
    uint64_t bytes;
    int status = flyt_image_cache_get(&self->cache, self->hash, &copy, &bytes);
    if (status)
        return status;
    assert_int_equal(bytes, sizeof image);
    assert_memory_equal(copy, image, sizeof image);
    free(copy);
    return 0;
}

static void a_folder_of_one_user_is_his(void **state)
{
    struct fixture *self = *state;
    unsigned char other[FLYT_SHA256_BYTES] = {1};
    char piece[8];
    open_as(self, 0700);
    assert_false(self->cache.is_of_many);
    assert_false(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(get(self), -ENOENT);
    assert_int_equal(flyt_image_cache_put(&self->cache, other, image, sizeof image), -EBADMSG);
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0);
    assert_true(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(mode_of(self), 0600);
    assert_int_equal(get(self), 0);
    assert_int_equal(flyt_image_cache_read(&self->cache, self->hash, 3, piece, 5), 5);
    assert_memory_equal(piece, image + 3, 5);
    self->cache.bytes_max = 4;
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), -EFBIG);
}

static void what_is_no_folder_or_no_file_is_refused(void **state)
{
    struct fixture *self = *state;
    struct flyt_image_cache cache;
    char piece[8];
    assert_int_equal(flyt_image_cache_adopt(&cache, open("/dev/null", O_RDONLY | O_CLOEXEC)), -ENOTDIR);
    open_as(self, 0777);
    assert_int_equal(mkfifoat(self->cache.folder_fd, self->name, 0666), 0); /* whoever reads it would wait for ever */
    assert_int_equal(get(self), -ENOENT);
    assert_int_equal(flyt_image_cache_read(&self->cache, self->hash, 0, piece, 5), -ENOENT);
    assert_int_equal(unlinkat(self->cache.folder_fd, self->name, 0), 0);
    assert_int_equal(symlinkat("/etc/passwd", self->cache.folder_fd, self->name), 0);
    assert_int_equal(get(self), -ENOENT);
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0); /* in its place */
    assert_int_equal(get(self), 0);
}

static void many_users_share_a_folder(void **state)
{
    struct fixture *self = *state;
    struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct stat info;
    if (getuid())
        skip();
    mode_t mask = umask(0077);
    open_as(self, 0777);
    assert_true(self->cache.is_of_many);
    become(ONE);
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0);
    assert_int_equal(utimensat(self->cache.folder_fd, self->name, long_ago, 0), 0);
    umask(mask);
    become(OTHER);
    assert_true(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(get(self), 0);
    assert_int_equal(fstatat(self->cache.folder_fd, self->name, &info, 0), 0);
    assert_true(info.st_mtime > 1000); /* it was used: it stays */
    assert_int_equal(info.st_uid, ONE);
    /* What is too much goes, whoever has kept it. */
    assert_int_equal(utimensat(self->cache.folder_fd, self->name, NULL, 0), 0);
    self->cache.bytes_max = sizeof image + 2;
    unsigned char hash[FLYT_SHA256_BYTES];
    flyt_sha256_of("four", 4, hash);
    become(ONE);
    assert_int_equal(utimensat(self->cache.folder_fd, self->name, long_ago, 0), 0);
    become(OTHER);
    assert_int_equal(flyt_image_cache_put(&self->cache, hash, "four", 4), 0);
    assert_false(flyt_image_cache_has(&self->cache, self->hash));
}

static void what_another_user_changed_is_not_used(void **state)
{
    struct fixture *self = *state;
    if (getuid())
        skip();
    open_as(self, 0777);
    become(ONE);
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0);
    int fd = openat(self->cache.folder_fd, self->name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "AN", 2, 0), 2);
    close(fd);
    become(OTHER);
    assert_true(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(get(self), -ENOENT);
    assert_false(flyt_image_cache_has(&self->cache, self->hash)); /* it is asked for again */
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0);
    become(ONE);
    assert_int_equal(get(self), 0);
}

/* As it is where users of their own are new: what root's servers have kept is there, and cannot be read. */
static void what_cannot_be_read_is_not_there(void **state)
{
    struct fixture *self = *state;
    if (getuid())
        skip();
    open_as(self, 0700);
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0);
    close(self->cache.folder_fd);
    open_as(self, 0777);
    become(ONE);
    assert_false(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(get(self), -ENOENT);
    assert_int_equal(flyt_image_cache_put(&self->cache, self->hash, image, sizeof image), 0);
    assert_true(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(get(self), 0);
}

static int get_code(const struct fixture *self)
{
    char *copy;
    uint64_t bytes;
    int status = flyt_image_cache_get_code(&self->cache, self->hash, &copy, &bytes);
    if (status)
        return status;
    assert_int_equal(bytes, sizeof image);
    assert_memory_equal(copy, image, sizeof image);
    assert_int_equal(copy[sizeof image], 0);
    free(copy);
    return 0;
}

/* No hash leads to it, nobody else gets it, and what is damaged is made again. */
static void machine_code_is_kept_for_who_made_it(void **state)
{
    struct fixture *self = *state;
    char name[sizeof self->name];
    open_as(self, 0777);
    become(ONE);
    assert_int_equal(get_code(self), -ENOENT);
    assert_int_equal(flyt_image_cache_put_code(&self->cache, self->hash, image, sizeof image), 0);
    assert_int_equal(get_code(self), 0);
    assert_false(flyt_image_cache_has(&self->cache, self->hash));
    assert_int_equal(get(self), -ENOENT);
    if (!getuid()) {
        become(OTHER);
        assert_int_equal(get_code(self), -ENOENT);
        assert_int_equal(flyt_image_cache_put_code(&self->cache, self->hash, image, sizeof image), 0);
        assert_int_equal(get_code(self), 0);
        become(ONE);
        assert_int_equal(get_code(self), -ENOENT);
        become(OTHER);
    }
    strcpy(name, self->name);
    name[0] = 'c';
    name[2 * FLYT_SHA256_BYTES - 1] = 0;
    flyt_auto_close int fd = openat(self->cache.folder_fd, name, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "x", 1, FLYT_SHA256_BYTES + 2), 1);
    assert_int_equal(get_code(self), -ENOENT);
    assert_int_equal(faccessat(self->cache.folder_fd, name, F_OK, 0), -1);
    self->cache.bytes_max = sizeof image;
    assert_int_equal(flyt_image_cache_put_code(&self->cache, self->hash, image, sizeof image), -EFBIG);
}

/* Makes folders and removes them, each of which is there as long as it is this process's. */
static int make_and_remove(void)
{
    int status = 0;
    for (unsigned i = 0; i < 300 && !status; i++) {
        struct flyt_image_cache cache = {0};
        struct flyt_error err = {0};
        char path[128];
        status = flyt_image_cache_make(&cache, &err, path, sizeof path);
        if (status)
            fprintf(stderr, "%s\n", err.text);
        else if (access(path, F_OK))
            status = -1;
        if (!status)
            flyt_image_cache_remove(&cache, path);
    }
    return status;
}

/* Servers that begin at one moment take no folder of another's for one that nobody has. */
static void many_begin_at_once(void **state)
{
    enum { SERVERS = 6 };
    char folder[] = "/tmp/flyt-image-test-XXXXXX";
    pid_t servers[SERVERS];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(setenv("TMPDIR", folder, 1), 0);
    for (unsigned i = 0; i < SERVERS; i++) {
        servers[i] = fork();
        if (!servers[i])
            _exit(make_and_remove() != 0);
        assert_true(servers[i] > 0);
    }
    for (unsigned i = 0; i < SERVERS; i++) {
        int status;
        assert_int_equal(waitpid(servers[i], &status, 0), servers[i]);
        assert_int_equal(status, 0);
    }
    unsetenv("TMPDIR");
    assert_int_equal(rmdir(folder), 0); /* nothing is left */
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(many_begin_at_once),          TEST(a_folder_of_one_user_is_his),
        TEST(what_is_no_folder_or_no_file_is_refused), TEST(many_users_share_a_folder),
        TEST(what_another_user_changed_is_not_used),   TEST(what_cannot_be_read_is_not_there),
        TEST(machine_code_is_kept_for_who_made_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
