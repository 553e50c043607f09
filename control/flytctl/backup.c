/* backup: the store's copy, chunk by chunk, into a file that has its name only once it is complete and on disk. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control/flytctl/actions.h"
#include "rpc/base/descriptors.h"

/* The store may have to write all of its copy before the first answer. */
enum { FIRST_CHUNK_MS = 600000 };

struct target {
    const char *path;
    char *folder;
    char *temporary; /* NULL: the file has no name yet (O_TMPFILE) */
    int fd;
};

static enum flyt_exit complain_errno(const char *path, int error)
{
    return flyt_complain(error == EACCES || error == EPERM ? FLYT_EXIT_DENIED
                         : error == ENOENT                 ? FLYT_EXIT_NOT_FOUND
                                                           : FLYT_EXIT_REFUSED,
                         "%s: %s", path, strerror(error));
}

/* A file without a name; where the file system has none, one that is removed on failure. */
static enum flyt_exit open_target(struct target *target)
{
    struct stat about;

    if (!lstat(target->path, &about))
        return flyt_complain(FLYT_EXIT_REFUSED, "%s is there already: a backup never replaces a file", target->path);
    char *copy = flyt_must(strdup(target->path));
    target->folder = flyt_must(strdup(dirname(copy)));
    free(copy);
    target->fd = open(target->folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (target->fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) {
        target->temporary = flyt_text_format("%s.XXXXXX", target->path);
        target->fd = mkostemp(target->temporary, O_CLOEXEC); /* mode 0600 */
    }
    return target->fd < 0 ? complain_errno(target->folder, errno) : FLYT_EXIT_OK;
}

static enum flyt_exit write_all(const struct target *target, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t count = write(target->fd, data, bytes);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return complain_errno(target->path, errno);
        data += count;
        bytes -= (size_t)count;
    }
    return FLYT_EXIT_OK;
}

static enum flyt_exit copy(struct flyt_ctl *ctl, const struct target *target, uint64_t *ret_bytes)
{
    flyt_backup_args args = {.offset_bytes = 0};
    enum flyt_exit status = FLYT_EXIT_OK;
    uint64_t total_bytes = 0;

    do {
        flyt_backup_res res;
        status =
            flyt_link_call(ctl, FLYT_BACKUP, (xdrproc_t)xdr_flyt_backup_args, &args, (xdrproc_t)xdr_flyt_backup_res,
                           &res, sizeof res, args.offset_bytes ? 0 : FIRST_CHUNK_MS);
        if (status != FLYT_EXIT_OK)
            return status;
        if (args.offset_bytes == 0)
            total_bytes = res.total_bytes;
        if (res.outcome.status != FLYT_STATUS_OK)
            status = flyt_complain(flyt_exit_of(res.outcome.status), "%s",
                                   *res.outcome.text ? res.outcome.text : flyt_status_name(res.outcome.status));
        else if (res.total_bytes != total_bytes)
            status = flyt_complain(FLYT_EXIT_REFUSED, "another backup has begun meanwhile; try again");
        else if (!res.data.data_len || res.data.data_len > total_bytes - args.offset_bytes)
            status = flyt_complain(FLYT_EXIT_UNREACHABLE, "the copy is %s: %llu of %llu bytes came",
                                   res.data.data_len ? "longer than it should be" : "cut off",
                                   (unsigned long long)args.offset_bytes + res.data.data_len,
                                   (unsigned long long)total_bytes);
        else
            status = write_all(target, res.data.data_val, res.data.data_len);
        args.offset_bytes += res.data.data_len;
        xdr_free((xdrproc_t)xdr_flyt_backup_res, &res);
    } while (status == FLYT_EXIT_OK && args.offset_bytes < total_bytes);
    *ret_bytes = total_bytes;
    return status;
}

/* Gives it its name; that fails where one has taken it meanwhile. The folder is synchronised so that the name lasts. */
static enum flyt_exit finish(struct target *target)
{
    char unnamed[40];

    if (fsync(target->fd))
        return complain_errno(target->path, errno);
    snprintf(unnamed, sizeof unnamed, "/proc/self/fd/%d", target->fd);
    if (linkat(AT_FDCWD, target->temporary ? target->temporary : unnamed, AT_FDCWD, target->path, AT_SYMLINK_FOLLOW))
        return complain_errno(target->path, errno);
    flyt_auto_close int folder = open(target->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0 && fsync(folder))
        return complain_errno(target->folder, errno);
    return FLYT_EXIT_OK;
}

enum flyt_exit flyt_run_backup(struct flyt_ctl *ctl, const struct flyt_arguments *arguments)
{
    struct target target = {.path = arguments->words[0], .fd = -1};
    uint64_t bytes = 0;
    enum flyt_exit status = open_target(&target);

    if (status == FLYT_EXIT_OK)
        status = copy(ctl, &target, &bytes);
    if (status == FLYT_EXIT_OK)
        status = finish(&target);
    if (target.temporary)
        unlink(target.temporary);
    flyt_close(target.fd);
    if (status == FLYT_EXIT_OK) {
        flyt_outcome outcome = {.status = FLYT_STATUS_OK, .text = (char *)""};
        status = flyt_finish(ctl, &outcome, "%llu bytes are in %s", (unsigned long long)bytes, target.path);
    }
    free(target.temporary);
    free(target.folder);
    return status;
}
