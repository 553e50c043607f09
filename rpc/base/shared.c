#include "rpc/base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "rpc/base/clock.h"
#include "rpc/base/deadline.h"
#include "rpc/base/descriptors.h"

enum { LOOK_AGAIN_MS = 50 };

static int map(int fd, size_t bytes, struct flyt_shared **ret_shared)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    if (memory == MAP_FAILED)
        return -errno;
    *ret_shared = memory;
    return 0;
}

static int init_mutex(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;
    int status = pthread_mutexattr_init(&attributes);

    if (status)
        return -status;
    status = pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    if (!status)
        status = pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    if (!status)
        status = pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
    return -status;
}

int flyt_shared_new(const char *name, size_t bytes, int *ret_fd, struct flyt_shared **ret_shared)
{
    struct flyt_shared *shared = NULL;
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0)
        return -errno;
    /* Sealed, so that no holder can cut it short under the others' feet. */
    int status = ftruncate(fd, (off_t)bytes) || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
                     ? -errno
                     : map(fd, bytes, &shared);
    if (status) {
        flyt_close(fd);
        return status;
    }
    status = init_mutex(&shared->mutex);
    if (status) {
        flyt_shared_close(fd, shared, bytes);
        return status;
    }
    *ret_fd = fd;
    *ret_shared = shared;
    return 0;
}

int flyt_shared_open(int fd, size_t bytes, uint64_t magic, uint32_t version, int *ret_fd,
                     struct flyt_shared **ret_shared)
{
    struct flyt_shared *shared = NULL;
    struct stat info;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &info) || info.st_size != (off_t)bytes)
        return -EBADMSG;
    int own_fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (own_fd < 0)
        return -errno;
    int status = map(own_fd, bytes, &shared);
    if (status) {
        flyt_close(own_fd);
        return status;
    }
    if (shared->magic != magic || shared->version != version) {
        flyt_shared_close(own_fd, shared, bytes);
        return -EBADMSG;
    }
    *ret_fd = own_fd;
    *ret_shared = shared;
    return 0;
}

void flyt_shared_close(int fd, struct flyt_shared *shared, size_t bytes)
{
    munmap(shared, bytes);
    flyt_close(fd);
}

/*
 * Looks again every LOOK_AGAIN_MS, and once at the end, though nobody has woken it: who is killed between its unlocking
 * and its waking of others is replaced in that by the kernel only where the mutex is still free; where another has
 * taken it meanwhile that one knows of no waiters, and whoever slept would sleep on beside a free mutex.
 */
static int wait_for_mutex(pthread_mutex_t *mutex, unsigned wait_ms)
{
    const uint64_t until_ms = flyt_clock_ms() + wait_ms;
    int status;

    do {
        struct timespec look_again = flyt_deadline_ms(LOOK_AGAIN_MS);
        status = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &look_again);
    } while (status == ETIMEDOUT && flyt_clock_ms() < until_ms);
    if (status == ETIMEDOUT)
        status = pthread_mutex_trylock(mutex);
    return status == EBUSY ? ETIMEDOUT : status;
}

int flyt_shared_lock(struct flyt_shared *shared, unsigned wait_ms)
{
    int status = pthread_mutex_trylock(&shared->mutex);

    if (status == EBUSY)
        status = wait_ms ? wait_for_mutex(&shared->mutex, wait_ms) : ETIMEDOUT;
    /* The owner died. Nothing is to be repaired: every state between two stores is a true one. */
    if (status == EOWNERDEAD)
        status = pthread_mutex_consistent(&shared->mutex);
    return -status;
}

void flyt_shared_unlock(struct flyt_shared *shared)
{
    pthread_mutex_unlock(&shared->mutex);
}
