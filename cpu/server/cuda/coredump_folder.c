#include "cpu/server/cuda/coredump_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"
#include "rpc/base/log.h"

enum {
    PAUSE_MS = 2,         /* between two looks at a dump that is being written */
    AGAIN_MS = 50,        /* to one at which what could not be done is tried again */
    FILE_BYTES_OWN = 4096 /* that a file takes besides its content, for the bound */
};

struct dump {
    char name[FLYT_COREDUMP_NAME_BYTES];
    enum flyt_coredump_state state;
    /* The thread's alone. */
    int cut_fd;       /* CUT: its file, which has no name any more; else -1 */
    bool is_written;  /* somebody may have it open */
    bool looks_again; /* something could not be found out or done */
};

struct flyt_coredump_folder {
    int fd, inotify_fd;
    DIR *entries; /* of fd: to count takes no descriptor, of which there may be none left */
    uint64_t bytes_max;
    char sync_prefix[FLYT_COREDUMP_NAME_BYTES]; /* of files that are made and removed: events behind one are later */
    flyt_coredump_tell_fn tell;
    void *user;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t mutex; /* of what follows; held for no call of anybody's */
    pthread_cond_t changed;
    struct dump dumps[FLYT_COREDUMPS_MAX];
    unsigned sync_count, synced_count; /* the newest such file that was made, and that was seen; from 1 */
    bool is_stopping;
};

/* ---- the bound ---- */

/* Of all files in the folder. False: it is not known. */
static bool used_bytes(const struct flyt_coredump_folder *folder, uint64_t *ret_bytes)
{
    struct stat info;
    *ret_bytes = 0;
    rewinddir(folder->entries);
    errno = 0;
    for (const struct dirent *entry; (entry = readdir(folder->entries)); errno = 0) {
        if (fstatat(folder->fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) || !S_ISREG(info.st_mode))
            continue;
        uint64_t size = (uint64_t)info.st_size, allocated = (uint64_t)info.st_blocks * 512;
        *ret_bytes += (size > allocated ? size : allocated) + FILE_BYTES_OWN;
    }
    return !errno;
}

/* What the driver still writes takes space until it closes the file, which nobody reads. */
static void empty(const struct dump *dump)
{
    struct stat info;
    /* Its own changes are events, too: who changes nothing makes none. */
    if (dump->cut_fd >= 0 && fstat(dump->cut_fd, &info) == 0 && info.st_size && ftruncate(dump->cut_fd, 0))
        flyt_warn("core dump %s was removed, and grows until the driver closes it: %m", dump->name);
}

/* The file is removed, and kept empty. False: it is to be tried again. */
static bool take_away(const struct flyt_coredump_folder *folder, struct dump *dump)
{
    dump->cut_fd = openat(folder->fd, dump->name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (dump->cut_fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EINTR))
        return false;
    if (dump->cut_fd < 0)
        flyt_warn("core dump %s is removed, and may grow until the driver closes it: %m", dump->name);
    unlinkat(folder->fd, dump->name, 0);
    empty(dump);
    return true;
}

/* ---- what happens in the folder ---- */

static bool is_stopping(struct flyt_coredump_folder *folder)
{
    pthread_mutex_lock(&folder->mutex);
    bool is_stopping = folder->is_stopping;
    pthread_mutex_unlock(&folder->mutex);
    return is_stopping;
}

static void set_state(struct flyt_coredump_folder *folder, struct dump *dump, const char *name,
                      enum flyt_coredump_state state, uint64_t bytes)
{
    if (!is_stopping(folder)) /* nobody may be there any more: the thread outlives who cannot wake it */
        folder->tell(folder->user, name, state, bytes);
    pthread_mutex_lock(&folder->mutex);
    dump->state = state;
    pthread_cond_broadcast(&folder->changed);
    pthread_mutex_unlock(&folder->mutex);
}

/* No room, or no use, for a dump. */
static void cut(struct flyt_coredump_folder *folder, struct dump *dump, bool is_unwanted, uint64_t bytes)
{
    if (!take_away(folder, dump))
        dump->looks_again = true;
    else
        set_state(folder, dump, is_unwanted ? NULL : dump->name, FLYT_COREDUMP_CUT, bytes);
}

/* The dump's file has changed, or (is_closed) somebody who wrote it has closed it. */
static void look(struct flyt_coredump_folder *folder, struct dump *dump, bool is_closed)
{
    struct stat file;
    uint64_t bytes;
    const bool is_unwanted = dump == &folder->dumps[FLYT_COREDUMP_UNWANTED];
    if (dump->state == FLYT_COREDUMP_CUT) {
        dump->is_written = dump->is_written && !is_closed;
        empty(dump);
        return;
    }
    dump->is_written = !is_closed;
    dump->looks_again = false;
    if (fstatat(folder->fd, dump->name, &file, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(file.st_mode))
        return;
    if (dump->state == FLYT_COREDUMP_NONE && !is_unwanted)
        set_state(folder, dump, dump->name, FLYT_COREDUMP_BEGUN, (uint64_t)file.st_size);
    if (is_unwanted)
        cut(folder, dump, true, 0);
    else if (!used_bytes(folder, &bytes))
        dump->looks_again = true;
    else if (bytes > folder->bytes_max)
        cut(folder, dump, false, (uint64_t)file.st_size);
    else if (is_closed && dump->state != FLYT_COREDUMP_DONE)
        set_state(folder, dump, dump->name, FLYT_COREDUMP_DONE, (uint64_t)file.st_size);
}

/* Whether a dump is to be looked at though nothing tells of it. */
static bool looks_again(const struct dump *dump)
{
    return dump->looks_again || (dump->state == FLYT_COREDUMP_CUT && dump->is_written);
}

/* Waits until something is told, or it is time to look again, and does that. */
static void wait_for_events(struct flyt_coredump_folder *folder)
{
    struct pollfd events = {.fd = folder->inotify_fd, .events = POLLIN};
    bool is_again = false;
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        is_again = is_again || looks_again(&folder->dumps[i]);
    if (poll(&events, 1, is_again ? AGAIN_MS : -1) != 0)
        return;
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        if (looks_again(&folder->dumps[i]))
            look(folder, &folder->dumps[i], !folder->dumps[i].is_written);
}

static void take_event(struct flyt_coredump_folder *folder, const struct inotify_event *event)
{
    if (event->mask & IN_Q_OVERFLOW)
        for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
            look(folder, &folder->dumps[i], false);
    if (!event->len)
        return;
    size_t prefix_bytes = strlen(folder->sync_prefix);
    if (strncmp(event->name, folder->sync_prefix, prefix_bytes) == 0 && event->mask & IN_CREATE) {
        pthread_mutex_lock(&folder->mutex);
        folder->synced_count = (unsigned)strtoul(event->name + prefix_bytes, NULL, 10);
        pthread_cond_broadcast(&folder->changed);
        pthread_mutex_unlock(&folder->mutex);
    }
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        if (strcmp(event->name, folder->dumps[i].name) == 0)
            look(folder, &folder->dumps[i], (event->mask & IN_CLOSE_WRITE) != 0);
}

static void *watch(void *user)
{
    struct flyt_coredump_folder *folder = user;
    _Alignas(struct inotify_event) char events[16 * (sizeof(struct inotify_event) + NAME_MAX + 1)];
    const struct timespec pause = {.tv_nsec = PAUSE_MS * 1000000l};
    while (!is_stopping(folder)) {
        wait_for_events(folder);
        ssize_t bytes = read(folder->inotify_fd, events, sizeof events);
        if (bytes < 0 && (errno == EINTR || errno == EAGAIN))
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

static int open_entries(struct flyt_coredump_folder *folder)
{
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    folder->entries = fd < 0 ? NULL : fdopendir(fd);
    if (folder->entries)
        return 0;
    int status = -errno;
    flyt_close(fd);
    return status;
}

int flyt_coredump_folder_new(int folder_fd, uint64_t bytes_max, const char *prefix, flyt_coredump_tell_fn tell,
                             void *user, struct flyt_coredump_folder **ret_folder)
{
    char path[64];
    uint64_t token;
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
    /* Nobody else's in the folder is taken for one of these. */
    bool has_token = getrandom(&token, sizeof token, 0) == (ssize_t)sizeof token;
    snprintf(folder->sync_prefix, sizeof folder->sync_prefix, "%s.%016" PRIx64 ".sync.", prefix, has_token ? token : 0);
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++) {
        snprintf(folder->dumps[i].name, sizeof folder->dumps[i].name, "%s.%u.nvcudmp", prefix, i);
        folder->dumps[i].cut_fd = -1;
    }
    int status = has_token ? open_entries(folder) : -EIO;
    snprintf(path, sizeof path, "/proc/self/fd/%d", folder_fd);
    folder->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (!status)
        status = folder->inotify_fd < 0 || inotify_add_watch(folder->inotify_fd, path,
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

/* An event for the thread, with a number of its own. False: it cannot be made. */
static bool ring(struct flyt_coredump_folder *folder, unsigned *ret_number)
{
    char name[FLYT_COREDUMP_NAME_BYTES + 16];
    pthread_mutex_lock(&folder->mutex);
    *ret_number = ++folder->sync_count;
    pthread_mutex_unlock(&folder->mutex);
    snprintf(name, sizeof name, "%s%u", folder->sync_prefix, *ret_number);
    int fd = openat(folder->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    flyt_close(fd);
    return fd >= 0 && unlinkat(folder->fd, name, 0) == 0;
}

struct flyt_coredump_folder *flyt_coredump_folder_free(struct flyt_coredump_folder *folder)
{
    unsigned number;
    if (!folder)
        return NULL;
    pthread_mutex_lock(&folder->mutex);
    folder->is_stopping = true;
    pthread_mutex_unlock(&folder->mutex);
    if (folder->has_thread && ring(folder, &number))
        pthread_join(folder->thread, NULL);
    else if (folder->has_thread)
        return NULL; /* it may still look: it is left to the process's end, with what it needs */
    for (unsigned i = 0; i < FLYT_COREDUMPS_MAX; i++)
        flyt_close(folder->dumps[i].cut_fd);
    if (folder->entries)
        closedir(folder->entries);
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
    unsigned sync;
    bool is_rung = ring(folder, &sync);
    int status = 0;
    sync = is_rung ? sync : 0;
    pthread_mutex_lock(&folder->mutex);
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
    for (unsigned i = 0; i < FLYT_COREDUMP_UNWANTED && !name; i++)
        if (folder->dumps[i].state != FLYT_COREDUMP_NONE) {
            name = folder->dumps[i].name;
            *ret_state = folder->dumps[i].state;
        }
    pthread_mutex_unlock(&folder->mutex);
    return name;
}
