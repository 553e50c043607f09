#include "cpu/server/cuda/coredump_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum { PAUSE_MS = 2 }; /* between two looks at a dump that is being written */

struct dump {
    char name[FLYT_COREDUMP_NAME_BYTES];
    enum flyt_coredump_state state;
};

struct flyt_coredump_folder {
    int fd, inotify_fd;
    uint64_t bytes_max;
    char sync_name[FLYT_COREDUMP_NAME_BYTES]; /* a file that is made and removed: events behind it are later */
    flyt_coredump_tell_fn tell;
    void *user;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* of what follows; held for no call of anybody's */
    pthread_cond_t changed;
    struct dump dumps[FLYT_COREDUMPS_MAX];
    unsigned sync_count, synced_count; /* asked for, and seen */
    bool is_stopping;
};

/* ---- the bound ---- */

/* Of all files in the folder. */
static uint64_t used_bytes(const struct flyt_coredump_folder *folder)
{
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = 0;
    struct stat info;
    if (!entries) {
        flyt_close(fd);
        return UINT64_MAX;
    }
    for (const struct dirent *entry; (entry = readdir(entries));)
        if (fstatat(folder->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            bytes += (uint64_t)info.st_size;
    closedir(entries);
    return bytes;
}

/*
 * The file is removed, and whatever the process has open of it becomes a disk that is full: else what the driver writes
 * would take space until it closes it. Its context is lost, so nobody waits for the dump but the driver.
 */
static void take_away(const struct flyt_coredump_folder *folder, const char *name, const struct stat *file)
{
    struct stat info;
    unlinkat(folder->fd, name, 0);
    int full_fd = open("/dev/full", O_RDWR | O_CLOEXEC);
    DIR *entries = full_fd < 0 ? NULL : opendir("/proc/self/fd");
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fstat(fd, &info) == 0 && info.st_ino == file->st_ino &&
            info.st_dev == file->st_dev)
            dup3(full_fd, fd, O_CLOEXEC);
    }
    if (entries)
        closedir(entries);
    else
        flyt_warn("core dump %s was removed, and may grow until the driver closes it: %m", name);
    flyt_close(full_fd);
}

/* ---- what happens in the folder ---- */

static void set_state(struct flyt_coredump_folder *folder, struct dump *dump, enum flyt_coredump_state state,
                      uint64_t bytes)
{
    folder->tell(folder->user, dump->name, state, bytes);
    pthread_mutex_lock(&folder->mutex);
    dump->state = state;
    pthread_cond_broadcast(&folder->changed);
    pthread_mutex_unlock(&folder->mutex);
}

/* The dump's file has changed, or (is_closed) somebody who wrote it has closed it. */
static void look(struct flyt_coredump_folder *folder, struct dump *dump, bool is_closed)
{
    struct stat file;
    if (dump->state == FLYT_COREDUMP_CUT || fstatat(folder->fd, dump->name, &file, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISREG(file.st_mode))
        return;
    if (dump->state == FLYT_COREDUMP_NONE)
        set_state(folder, dump, FLYT_COREDUMP_BEGUN, (uint64_t)file.st_size);
    if (used_bytes(folder) > folder->bytes_max) {
        take_away(folder, dump->name, &file);
        set_state(folder, dump, FLYT_COREDUMP_CUT, (uint64_t)file.st_size);
    } else if (is_closed && dump->state != FLYT_COREDUMP_DONE) {
        set_state(folder, dump, FLYT_COREDUMP_DONE, (uint64_t)file.st_size);
    }
}

static void take_event(struct flyt_coredump_folder *folder, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW)
        for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
            look(folder, &folder->dumps[i], false);
    if (!event->len)
        return;
    if (strcmp(event->name, folder->sync_name) == 0 && event->mask & IN_CREATE) {
        pthread_mutex_lock(&folder->mutex);
        folder->synced_count++;
        pthread_cond_broadcast(&folder->changed);
        pthread_mutex_unlock(&folder->mutex);
    }
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        if (strcmp(event->name, folder->dumps[i].name) == 0)
            look(folder, &folder->dumps[i], (event->mask & IN_CLOSE_WRITE) != 0);
}

static bool is_stopping(struct flyt_coredump_folder *folder)
{
    pthread_mutex_lock(&folder->mutex);
    bool is_stopping = folder->is_stopping;
    pthread_mutex_unlock(&folder->mutex);
    return is_stopping;
}

static void *watch(void *user)
{
    struct flyt_coredump_folder *folder = user;
    _Alignas(struct inotify_event) char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
    while (!is_stopping(folder)) {
        ssize_t bytes = read(folder->inotify_fd, events, sizeof events);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            break;
        for (const char *at = events; at < events + bytes;) {
            const struct inotify_event *event = (const struct inotify_event *)at;
            take_event(folder, event);
            at += sizeof *event + event->len;
        }
        nanosleep(&pause, NULL);
    }
    return NULL;
}

/* ---- for others ---- */

int flyt_coredump_folder_new(int folder_fd, uint64_t bytes_max, const char *prefix, flyt_coredump_tell_fn tell,
                             void *user, struct flyt_coredump_folder **ret_folder)
{
    char path[64];
    pthread_condattr_t monotonic;
    struct flyt_coredump_folder *folder = calloc(1, sizeof *folder);
    if (!folder)
        return -ENOMEM;
    folder->fd = folder_fd;
    folder->bytes_max = bytes_max;
    folder->tell = tell;
    folder->user = user;
    pthread_mutex_init(&folder->mutex, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&folder->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    snprintf(folder->sync_name, sizeof folder->sync_name, "%s.sync", prefix);
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        snprintf(folder->dumps[i].name, sizeof folder->dumps[i].name, "%s.%u.nvcudmp", prefix, i);
    snprintf(path, sizeof path, "/proc/self/fd/%d", folder_fd);
    folder->inotify_fd = inotify_init1(IN_CLOEXEC);
    int status = folder->inotify_fd < 0 || inotify_add_watch(folder->inotify_fd, path,
                                                             IN_CREATE | IN_MODIFY | IN_CLOSE_WRITE | IN_MOVED_TO) < 0
                     ? -errno
                     : 0;
    if (!status)
        status = -pthread_create(&folder->thread, NULL, watch, folder);
    folder->has_thread = !status;
    if (status) {
        folder->fd = -1;
        flyt_coredump_folder_free(folder);
        return status;
    }
    *ret_folder = folder;
    return 0;
}

/* An event for the thread. False: it cannot be made. */
static bool ring(struct flyt_coredump_folder *folder)
{
    int fd = openat(folder->fd, folder->sync_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    flyt_close(fd);
    return fd >= 0 && unlinkat(folder->fd, folder->sync_name, 0) == 0;
}

struct flyt_coredump_folder *flyt_coredump_folder_free(struct flyt_coredump_folder *folder)
{
    if (!folder)
        return NULL;
    pthread_mutex_lock(&folder->mutex);
    folder->is_stopping = true;
    pthread_mutex_unlock(&folder->mutex);
    if (folder->has_thread && ring(folder))
        pthread_join(folder->thread, NULL);
    else if (folder->has_thread)
        return NULL; /* it may still look: it is left to the process's end, with what it needs */
    flyt_close(folder->inotify_fd);
    flyt_close(folder->fd);
    pthread_cond_destroy(&folder->changed);
    pthread_mutex_destroy(&folder->mutex);
    free(folder);
    return NULL;
}

void flyt_coredump_folder_path(const struct flyt_coredump_folder *folder, unsigned number, char *ret_path)
{
    snprintf(ret_path, FLYT_COREDUMP_PATH_BYTES, "/proc/self/fd/%d/%s", folder->fd, folder->dumps[number].name);
}

static bool is_quiet_locked(const struct flyt_coredump_folder *folder, unsigned sync)
{
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        if (folder->dumps[i].state == FLYT_COREDUMP_BEGUN)
            return false;
    return folder->synced_count >= sync;
}

bool flyt_coredump_folder_settle(struct flyt_coredump_folder *folder, unsigned timeout_ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += timeout_ms % 1000 * 1000000l;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    bool is_rung = ring(folder);
    pthread_mutex_lock(&folder->mutex);
    unsigned sync = folder->sync_count += is_rung;
    int status = 0;
    while (!is_quiet_locked(folder, sync) && !status)
        status = pthread_cond_timedwait(&folder->changed, &folder->mutex, &until);
    bool is_quiet = is_quiet_locked(folder, sync);
    pthread_mutex_unlock(&folder->mutex);
    return is_rung && is_quiet;
}

const char *flyt_coredump_folder_made(struct flyt_coredump_folder *folder, enum flyt_coredump_state *ret_state)
{
    const char *name = NULL;
    *ret_state = FLYT_COREDUMP_NONE;
    pthread_mutex_lock(&folder->mutex);
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX && !name; i++)
        if (folder->dumps[i].state != FLYT_COREDUMP_NONE) {
            name = folder->dumps[i].name;
            *ret_state = folder->dumps[i].state;
        }
    pthread_mutex_unlock(&folder->mutex);
    return name;
}
