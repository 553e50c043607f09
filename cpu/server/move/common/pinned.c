#include "cpu/server/move/common/pinned.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_BYTES = 2 << 20 };

struct flyt_pinned {
    const struct flyt_driver *driver;
    size_t piece_bytes, mapped_bytes;
    unsigned char *mapped, *pieces; /* aligned to HUGE_BYTES: fewer and larger pages are locked faster */
    unsigned count;
    unsigned taken_count; /* the caller's thread */
    void (*kick)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Under the mutex. */
    unsigned wanted_count, touched_count;
    bool is_ending, is_out_of_memory;
};

static unsigned char *piece(const struct flyt_pinned *pinned, unsigned n)
{
    return pinned->pieces + n * pinned->piece_bytes;
}

/* Not by writing to it: where the machine has no memory left that is an error, and no signal. */
static int touch(const struct flyt_pinned *pinned, unsigned n)
{
    int status;
    do
        status = madvise(piece(pinned, n), pinned->piece_bytes, MADV_POPULATE_WRITE);
    while (status != 0 && errno == EINTR);
    return status == 0 || errno == EINVAL ? 0 : -ENOMEM; /* before Linux 5.14: the driver touches it */
}

static void *run(void *user)
{
    struct flyt_pinned *pinned = user;
    pthread_mutex_lock(&pinned->mutex);
    while (!pinned->is_ending && !pinned->is_out_of_memory && pinned->touched_count < pinned->count) {
        if (pinned->touched_count == pinned->wanted_count) {
            pthread_cond_wait(&pinned->changed, &pinned->mutex);
            continue;
        }
        const unsigned n = pinned->touched_count;
        pthread_mutex_unlock(&pinned->mutex);
        const int status = touch(pinned, n);
        pthread_mutex_lock(&pinned->mutex);
        if (status)
            pinned->is_out_of_memory = true;
        else
            pinned->touched_count++;
        pthread_cond_broadcast(&pinned->changed);
        pinned->kick(pinned->user);
    }
    pthread_mutex_unlock(&pinned->mutex);
    return NULL;
}

int flyt_pinned_new(const struct flyt_driver *driver, size_t piece_bytes, unsigned count, void (*kick)(void *user),
                    void *user, struct flyt_pinned **ret_pinned)
{
    struct flyt_pinned *pinned = calloc(1, sizeof *pinned);
    if (!pinned)
        return -ENOMEM;
    *pinned = (struct flyt_pinned){.driver = driver,
                                   .piece_bytes = piece_bytes,
                                   .mapped_bytes = piece_bytes * count + HUGE_BYTES,
                                   .count = count,
                                   .kick = kick,
                                   .user = user,
                                   .wanted_count = 1};
    pthread_mutex_init(&pinned->mutex, NULL);
    pthread_cond_init(&pinned->changed, NULL);
    void *mapped =
        mmap(NULL, pinned->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int status = mapped == MAP_FAILED ? -ENOMEM : 0;
    if (!status) {
        pinned->mapped = mapped;
        pinned->pieces = (unsigned char *)(((uintptr_t)mapped + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
        madvise(pinned->pieces, piece_bytes * count, MADV_HUGEPAGE); /* where there are none, it is slower */
        status = -pthread_create(&pinned->thread, NULL, run, pinned);
    }
    if (!status) {
        *ret_pinned = pinned;
        return 0;
    }
    if (pinned->mapped)
        munmap(pinned->mapped, pinned->mapped_bytes);
    pthread_cond_destroy(&pinned->changed);
    pthread_mutex_destroy(&pinned->mutex);
    free(pinned);
    return -ENOMEM;
}

/* Whether piece n can be locked; and the one behind it is touched next. */
static CUresult await_touched(struct flyt_pinned *pinned, unsigned n, bool may_wait)
{
    pthread_mutex_lock(&pinned->mutex);
    while (may_wait && pinned->touched_count <= n && !pinned->is_out_of_memory)
        pthread_cond_wait(&pinned->changed, &pinned->mutex);
    const CUresult result = pinned->touched_count > n  ? CUDA_SUCCESS
                            : pinned->is_out_of_memory ? CUDA_ERROR_OUT_OF_MEMORY
                                                       : CUDA_ERROR_NOT_READY;
    if (result == CUDA_SUCCESS)
        pinned->wanted_count = n + 2;
    pthread_cond_broadcast(&pinned->changed);
    pthread_mutex_unlock(&pinned->mutex);
    return result;
}

CUresult flyt_pinned_take(struct flyt_pinned *pinned, bool may_wait, void **ret_piece)
{
    const unsigned n = pinned->taken_count;
    if (n == pinned->count)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = await_touched(pinned, n, may_wait);
    if (result == CUDA_SUCCESS)
        result = pinned->driver->cuMemHostRegister(piece(pinned, n), pinned->piece_bytes, CU_MEMHOSTREGISTER_PORTABLE);
    if (result != CUDA_SUCCESS)
        return result;
    pinned->taken_count++;
    *ret_piece = piece(pinned, n);
    return CUDA_SUCCESS;
}

struct flyt_pinned *flyt_pinned_free(struct flyt_pinned *pinned)
{
    if (!pinned)
        return NULL;
    pthread_mutex_lock(&pinned->mutex);
    pinned->is_ending = true;
    pthread_cond_broadcast(&pinned->changed);
    pthread_mutex_unlock(&pinned->mutex);
    pthread_join(pinned->thread, NULL);
    while (pinned->taken_count)
        pinned->driver->cuMemHostUnregister(piece(pinned, --pinned->taken_count));
    munmap(pinned->mapped, pinned->mapped_bytes);
    pthread_cond_destroy(&pinned->changed);
    pthread_mutex_destroy(&pinned->mutex);
    free(pinned);
    return NULL;
}
