#include "cpu/image/flusher.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/fault_point.h"
#include "rpc/base/thread.h"

struct flyt_flusher {
    int fd; /* where has_file: closed by the thread, for close(2) may wait for the disk, too */
    bool has_file;
    const char *point;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* Under the mutex. */
    unsigned users; /* its owner and the thread: the last one frees it */
    bool is_ending;
    struct flyt_tally *left; /* counts the thread, which has been left; or NULL */
    void (*changed)(void *user);
    void *user;
    uint64_t offset, written;   /* where it began; bytes behind that */
    uint64_t demanded, lasting; /* numbers of demands */
    int status;
    /* The thread's: so much was begun with, and has been waited for. */
    uint64_t begun, waited;
};

static void unref_and_unlock(struct flyt_flusher *flusher)
{
    bool is_last = --flusher->users == 0;
    pthread_mutex_unlock(&flusher->mutex);
    if (!is_last)
        return;
    pthread_cond_destroy(&flusher->wake);
    pthread_mutex_destroy(&flusher->mutex);
    free(flusher);
}

/* ---- the thread ---- */

/* A file system that cannot do it leaves all to fdatasync. */
static int status_of(int result)
{
    return result == 0 || (errno != EIO && errno != ENOSPC && errno != EDQUOT) ? 0 : -errno;
}

/* Begins with what there is, and waits for what it had begun with before: so the disk always has something to do. */
static int begin_part(struct flyt_flusher *flusher, uint64_t written)
{
    uint64_t before = flusher->begun;
    int status = status_of(sync_file_range(flusher->fd, (off_t)(flusher->offset + before), (off_t)(written - before),
                                           SYNC_FILE_RANGE_WRITE));
    flusher->begun = written;
    if (!status && before > flusher->waited)
        status = status_of(
            sync_file_range(flusher->fd, (off_t)(flusher->offset + flusher->waited), (off_t)(before - flusher->waited),
                            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER));
    flusher->waited = before;
    return status;
}

static int make_last(const struct flyt_flusher *flusher)
{
    if (flyt_fault_point(flusher->point) == FLYT_FAULT_ERROR)
        return -EIO;
    return fdatasync(flusher->fd) == 0 ? 0 : -errno;
}

static bool has_part(const struct flyt_flusher *flusher)
{
    return flusher->written - flusher->begun >= FLYT_FLUSHER_PART_BYTES;
}

/* As the last thing, with the mutex locked before and after it. */
static void close_file(struct flyt_flusher *flusher)
{
    pthread_mutex_unlock(&flusher->mutex);
    flusher->fd = flyt_close(flusher->fd);
    pthread_mutex_lock(&flusher->mutex);
}

static void *run(void *user)
{
    struct flyt_flusher *flusher = user;
    pthread_mutex_lock(&flusher->mutex);
    while (!flusher->is_ending && !flusher->status) {
        uint64_t demanded = flusher->demanded, written = flusher->written;
        bool is_demand = demanded != flusher->lasting;
        if (!is_demand && !has_part(flusher)) {
            pthread_cond_wait(&flusher->wake, &flusher->mutex);
            continue;
        }
        pthread_mutex_unlock(&flusher->mutex);
        int status = is_demand ? make_last(flusher) : begin_part(flusher, written);
        if (is_demand)
            flusher->begun = flusher->waited = written;
        pthread_mutex_lock(&flusher->mutex);
        flusher->status = status;
        if (is_demand && !status)
            flusher->lasting = demanded;
        if (flusher->changed && (is_demand || status))
            flusher->changed(flusher->user);
    }
    close_file(flusher);
    struct flyt_tally *left = flusher->left;
    unref_and_unlock(flusher);
    flyt_tally_remove(left);
    return NULL;
}

/* ---- beginning and end ---- */

/* 0 or a negative errno. */
static int start(struct flyt_flusher *flusher)
{
    flusher->users++;
    int status = flyt_thread_start("flyt-flusher", run, flusher);
    if (status)
        flusher->users--;
    return status;
}

int flyt_flusher_new(int fd, const char *point, void (*changed)(void *user), void *user,
                     struct flyt_flusher **ret_flusher, struct flyt_error *err)
{
    struct flyt_flusher *flusher = calloc(1, sizeof *flusher);
    struct statx about;
    int status = 0;
    if (!flusher)
        return flyt_error_set(err, -ENOMEM, "out of host memory");
    *flusher = (struct flyt_flusher){.fd = -1, .point = point, .users = 1, .changed = changed, .user = user};
    pthread_mutex_init(&flusher->mutex, NULL);
    pthread_cond_init(&flusher->wake, NULL);
    /* Whose type is known: a network's file system would be waited for, with all that is written, for the rest. */
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &about) == 0 && S_ISREG(about.stx_mode)) {
        off_t offset = lseek(fd, 0, SEEK_CUR);
        flusher->offset = offset < 0 ? 0 : (uint64_t)offset;
        flusher->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        flusher->has_file = flusher->fd >= 0;
        status = flusher->fd < 0 ? -errno : start(flusher);
        if (status)
            flusher->fd = flyt_close(flusher->fd); /* `fd` keeps the file open */
    }
    if (!status) {
        *ret_flusher = flusher;
        return 0;
    }
    flyt_flusher_free(flusher);
    return flyt_error_set(err, status, "no thread, or no descriptor, that would bring a file to the disk");
}

struct flyt_flusher *flyt_flusher_free(struct flyt_flusher *flusher)
{
    return flyt_flusher_leave(flusher, NULL);
}

struct flyt_flusher *flyt_flusher_leave(struct flyt_flusher *flusher, struct flyt_tally *left)
{
    if (!flusher)
        return NULL;
    pthread_mutex_lock(&flusher->mutex);
    if (flusher->users > 1) { /* the thread has not ended */
        flyt_tally_add(left);
        flusher->left = left;
    }
    flusher->is_ending = true;
    flusher->changed = NULL;
    pthread_cond_signal(&flusher->wake);
    unref_and_unlock(flusher);
    return NULL;
}

/* ---- what is asked ---- */

bool flyt_flusher_has_file(const struct flyt_flusher *flusher)
{
    return flusher->has_file;
}

void flyt_flusher_wrote(struct flyt_flusher *flusher, uint64_t bytes)
{
    pthread_mutex_lock(&flusher->mutex);
    flusher->written = bytes;
    if (has_part(flusher))
        pthread_cond_signal(&flusher->wake);
    pthread_mutex_unlock(&flusher->mutex);
}

void flyt_flusher_demand(struct flyt_flusher *flusher)
{
    pthread_mutex_lock(&flusher->mutex);
    flusher->demanded++;
    if (!flusher->has_file)
        flusher->lasting = flusher->demanded;
    pthread_cond_signal(&flusher->wake);
    pthread_mutex_unlock(&flusher->mutex);
}

bool flyt_flusher_is_done(struct flyt_flusher *flusher)
{
    pthread_mutex_lock(&flusher->mutex);
    bool is_done = flusher->lasting == flusher->demanded;
    pthread_mutex_unlock(&flusher->mutex);
    return is_done;
}

int flyt_flusher_status(struct flyt_flusher *flusher)
{
    pthread_mutex_lock(&flusher->mutex);
    int status = flusher->status;
    pthread_mutex_unlock(&flusher->mutex);
    return status;
}
