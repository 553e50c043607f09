#include "cpu/image/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cpu/image/reader.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/thread.h"

int flyt_checkpoint_id_make(void *ret_id)
{
    unsigned char id[FLYT_CHECKPOINT_ID_BYTES] = {0};

    do {
        if (getrandom(id, sizeof id, 0) != sizeof id)
            return -errno;
    } while (flyt_checkpoint_id_is_none(id));
    memcpy(ret_id, id, sizeof id);
    return 0;
}

void flyt_checkpoint_file_name(const void *id, char *ret_name)
{
    flyt_checkpoint_id_text(id, ret_name);
    memcpy(ret_name + FLYT_CHECKPOINT_ID_TEXT_BYTES - 1, ".flyt", 6);
}

static int fail(const char *folder, const char *name, const char *what, struct flyt_error *err)
{
    int code = errno;

    return flyt_error_set(err, -code, "image %.200s%s%s: %s: %s", folder, *folder ? "/" : "", name, what,
                          strerror(code));
}

/* Opens a file without a name, or a hidden one. */
static int open_unnamed(struct flyt_checkpoint_file *file)
{
    file->fd = openat(file->folder_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (file->fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return file->fd;
    snprintf(file->temporary, sizeof file->temporary, ".%.*s.part", FLYT_CHECKPOINT_ID_TEXT_BYTES - 1, file->name);
    file->fd = openat(file->folder_fd, file->temporary, O_CREAT | O_EXCL | O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0600);
    file->has_temporary = file->fd >= 0;
    return file->fd;
}

int flyt_checkpoint_file_create(const char *folder, const flyt_checkpoint_head *head,
                                enum flyt_checkpoint_packing packing, struct flyt_checkpoint_file *ret_file,
                                struct flyt_error *err)
{
    struct flyt_checkpoint_file file = {.folder_fd = -1, .fd = -1};
    struct stat about;
    int status;

    flyt_checkpoint_file_name(head->id, file.name);
    file.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file.folder_fd < 0) {
        status = fail(folder, file.name, "the folder cannot be opened", err);
    } else if (!fstatat(file.folder_fd, file.name, &about, AT_SYMLINK_NOFOLLOW)) {
        status = flyt_error_set(err, -EEXIST, "image %.200s/%s: it is there already", folder, file.name);
    } else if (open_unnamed(&file) < 0) {
        status = fail(folder, file.name, "it cannot be made", err);
    } else {
        char path[300];
        snprintf(path, sizeof path, "%.200s/%s", folder, file.name);
        status = flyt_checkpoint_writer_new(file.fd, path, head, packing, &file.writer, err);
    }
    if (status)
        flyt_checkpoint_file_abandon(&file);
    else
        *ret_file = file;
    return status;
}

static int give_name(const struct flyt_checkpoint_file *file)
{
    char unnamed[40];

    if (file->has_temporary)
        return linkat(file->folder_fd, file->temporary, file->folder_fd, file->name, 0);
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", file->fd);
    return linkat(AT_FDCWD, unnamed, file->folder_fd, file->name, AT_SYMLINK_FOLLOW);
}

/* What was written gets its name, and lasts. */
static int settle(const struct flyt_checkpoint_file *file, struct flyt_error *err)
{
    if (fsync(file->fd))
        return fail("", file->name, "it cannot be made to last", err);
    if (give_name(file)) /* fails where one has taken the name meanwhile */
        return fail("", file->name, "it cannot be given its name", err);
    if (!fsync(file->folder_fd))
        return 0;
    int status = fail("", file->name, "its name cannot be made to last", err);
    unlinkat(file->folder_fd, file->name, 0);
    return status;
}

int flyt_checkpoint_file_commit(struct flyt_checkpoint_file *file, struct flyt_error *err)
{
    int status = 0;

    if (!flyt_checkpoint_writer_has_ended(file->writer))
        status = flyt_error_set(err, -EINVAL, "image %s: it is not whole", file->name);
    else
        status = settle(file, err);
    flyt_checkpoint_file_abandon(file);
    return status;
}

int flyt_checkpoint_file_open(const char *folder, struct flyt_checkpoint_file *ret_file, struct flyt_error *err)
{
    struct flyt_checkpoint_file file = {.folder_fd = -1, .fd = -1};
    unsigned char id[FLYT_CHECKPOINT_ID_BYTES];
    int status = flyt_checkpoint_id_make(id);

    if (status)
        return flyt_error_set(err, status, "image %.200s: no id can be made: %s", folder, strerror(-status));
    flyt_checkpoint_file_name(id, file.name); /* until its own is known */
    file.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file.folder_fd < 0)
        status = fail(folder, "", "the folder cannot be opened", err);
    else if (open_unnamed(&file) < 0)
        status = fail(folder, file.name, "it cannot be made", err);
    if (status)
        flyt_checkpoint_file_abandon(&file);
    else
        *ret_file = file;
    return status;
}

static int describe_again(const struct flyt_checkpoint_file *file, int flags)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    int fd = open(path, flags | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int flyt_checkpoint_file_share(const struct flyt_checkpoint_file *file)
{
    return describe_again(file, O_WRONLY);
}

int flyt_checkpoint_file_show(const struct flyt_checkpoint_file *file)
{
    return describe_again(file, O_RDONLY);
}

int flyt_checkpoint_file_learn_name(struct flyt_checkpoint_file *file, struct flyt_error *err)
{
    struct flyt_checkpoint_reader *reader = NULL;
    struct flyt_checkpoint_record record;
    struct stat about;

    if (lseek(file->fd, 0, SEEK_SET))
        return fail("", file->name, "it cannot be read", err);
    int status = flyt_checkpoint_reader_new(file->fd, file->name, true, &reader, err);
    if (!status)
        status = flyt_checkpoint_next(reader, &record, err);
    if (status == 1 && record.type == FLYT_CHECKPOINT_HEAD) {
        flyt_checkpoint_file_name(record.body->head.id, file->name);
        status = 0;
    } else if (status >= 0) {
        status = flyt_error_set(err, -EBADMSG, "image %s: it has no head", file->name);
    }
    flyt_checkpoint_reader_free(reader);
    if (!status && !fstatat(file->folder_fd, file->name, &about, AT_SYMLINK_NOFOLLOW))
        status = flyt_error_set(err, -EEXIST, "image %s: it is there already", file->name);
    return status;
}

int flyt_checkpoint_file_adopt(struct flyt_checkpoint_file *file, char *ret_name, struct flyt_error *err)
{
    int status = flyt_checkpoint_file_learn_name(file, err);

    if (!status)
        status = settle(file, err);
    if (!status && ret_name)
        memcpy(ret_name, file->name, sizeof file->name);
    flyt_checkpoint_file_abandon(file);
    return status;
}

int flyt_checkpoint_file_read(const char *path, int flags, struct flyt_error *err)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | flags);

    if (fd < 0 || fstat(fd, &about)) {
        int code = errno;
        flyt_close(fd);
        return flyt_error_set(err, -code, "image %.200s: it cannot be opened: %s", path, strerror(code));
    }
    if (S_ISREG(about.st_mode))
        return fd;
    flyt_close(fd);
    return flyt_error_set(err, -EINVAL, "image %.200s: it is no file", path);
}

void flyt_checkpoint_file_abandon(struct flyt_checkpoint_file *file)
{
    file->writer = flyt_checkpoint_writer_free(file->writer);
    if (file->has_temporary)
        unlinkat(file->folder_fd, file->temporary, 0);
    file->has_temporary = false;
    file->fd = flyt_close(file->fd);
    file->folder_fd = flyt_close(file->folder_fd);
}

/* The thread's. */
struct abandoned {
    struct flyt_checkpoint_file file;
    struct flyt_tally *left;
};

static void *abandon_aside(void *user)
{
    struct abandoned *abandoned = user;

    flyt_fault_point("image.abandon");
    flyt_checkpoint_file_abandon(&abandoned->file);
    flyt_tally_remove(abandoned->left);
    free(abandoned);
    return NULL;
}

void flyt_checkpoint_file_abandon_aside(struct flyt_checkpoint_file *file, struct flyt_tally *left)
{
    struct abandoned *abandoned = malloc(sizeof *abandoned);

    flyt_tally_add(left);
    if (abandoned)
        *abandoned = (struct abandoned){*file, left};
    if (!abandoned || flyt_thread_start("flyt-abandon", abandon_aside, abandoned)) {
        free(abandoned);
        flyt_checkpoint_file_abandon(file);
        flyt_tally_remove(left);
    }
    *file = (struct flyt_checkpoint_file){.folder_fd = -1, .fd = -1};
}
