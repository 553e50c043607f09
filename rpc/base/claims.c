#include "rpc/base/claims.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc/base/descriptors.h"

struct range {
    uint64_t begin, end;
};

struct flyt_claims {
    pthread_mutex_t mutex;
    int fd;
    struct range all;
    uint64_t next;        /* where the next search begins */
    struct range *ranges; /* what this process has, by place: its own locks are no obstacle to the kernel */
    unsigned count, capacity;
};

/* Where a guest's claims are among the bytes that can be locked, which no file has. */
#define GUEST (UINT64_C(1) << 62)

static struct flock lock_of(short kind, uint64_t offset_bytes, uint64_t bytes)
{
    return (struct flock){.l_type = kind, .l_whence = SEEK_SET, .l_start = (off_t)offset_bytes, .l_len = (off_t)bytes};
}

int flyt_claim(int fd, uint64_t offset_bytes, uint64_t bytes)
{
    struct flock lock = lock_of(F_WRLCK, offset_bytes, bytes);

    if (!fcntl(fd, F_OFD_SETLK, &lock))
        return 0;
    return errno == EAGAIN || errno == EACCES ? -EBUSY : -errno;
}

void flyt_unclaim(int fd, uint64_t offset_bytes, uint64_t bytes)
{
    struct flock lock = lock_of(F_UNLCK, offset_bytes, bytes);

    fcntl(fd, F_OFD_SETLK, &lock);
}

int flyt_claims_new(int fd, uint64_t begin_bytes, uint64_t end_bytes, struct flyt_claims **ret_claims)
{
    struct flyt_claims *claims = calloc(1, sizeof *claims);

    if (!claims)
        return -ENOMEM;
    pthread_mutex_init(&claims->mutex, NULL);
    claims->fd = fd;
    claims->all = (struct range){begin_bytes, end_bytes};
    claims->next = begin_bytes;
    *ret_claims = claims;
    return 0;
}

struct flyt_claims *flyt_claims_free(struct flyt_claims *claims)
{
    if (!claims)
        return NULL;
    flyt_close(claims->fd);
    pthread_mutex_destroy(&claims->mutex);
    free(claims->ranges);
    free(claims);
    return NULL;
}

int flyt_claims_fd(const struct flyt_claims *claims)
{
    return claims->fd;
}

void flyt_claims_abandon(struct flyt_claims *claims)
{
    if (claims)
        claims->fd = flyt_close(claims->fd);
}

/* The number of ranges that end at or before the place: where one that begins there stands. */
static unsigned count_before(const struct flyt_claims *claims, uint64_t at)
{
    unsigned low = 0, high = claims->count;

    while (low < high) {
        const unsigned middle = low + (high - low) / 2;
        if (claims->ranges[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool make_room(struct flyt_claims *claims)
{
    if (claims->count < claims->capacity)
        return true;
    const unsigned capacity = claims->capacity ? 2 * claims->capacity : 16;
    struct range *ranges = realloc(claims->ranges, capacity * sizeof *ranges);
    if (!ranges)
        return false;
    claims->ranges = ranges;
    claims->capacity = capacity;
    return true;
}

/* What lies in the way of a claim of others, as far as it can be seen; the place itself: it has gone meanwhile. */
static uint64_t end_of_others(const struct flyt_claims *claims, uint64_t at, uint64_t bytes)
{
    struct flock lock = lock_of(F_WRLCK, GUEST + at, bytes);

    if (fcntl(claims->fd, F_OFD_GETLK, &lock) || lock.l_type == F_UNLCK)
        return at;
    return lock.l_len ? (uint64_t)lock.l_start + (uint64_t)lock.l_len - GUEST : claims->all.end;
}

/* Claims the first place from `at` on that ends before `end`. 0 and *ret_at; -ENOSPC: there is none. */
static int take_between(struct flyt_claims *claims, uint64_t at, uint64_t end, uint64_t bytes, uint64_t *ret_at)
{
    while (at <= end && end - at >= bytes) {
        const unsigned place = count_before(claims, at);
        if (place < claims->count && claims->ranges[place].begin < at + bytes) {
            at = claims->ranges[place].end;
            continue;
        }
        const int status = flyt_claim(claims->fd, GUEST + at, bytes);
        if (!status)
            *ret_at = at;
        if (status != -EBUSY)
            return status;
        at = end_of_others(claims, at, bytes);
    }
    return -ENOSPC;
}

static void note(struct flyt_claims *claims, uint64_t at, uint64_t bytes)
{
    struct range *range = &claims->ranges[count_before(claims, at)];

    memmove(range + 1, range, (size_t)(&claims->ranges[claims->count++] - range) * sizeof *range);
    *range = (struct range){at, at + bytes};
    claims->next = at + bytes;
}

int flyt_claims_take(struct flyt_claims *claims, uint64_t bytes, uint64_t *ret_offset_bytes)
{
    const struct range all = claims->all;
    uint64_t at;

    if (bytes > all.end - all.begin)
        return -ENOSPC;
    pthread_mutex_lock(&claims->mutex);
    int status = make_room(claims) ? take_between(claims, claims->next, all.end, bytes, &at) : -ENOMEM;
    if (status == -ENOSPC)
        status = take_between(claims, all.begin, all.end, bytes, &at);
    if (!status)
        note(claims, at, bytes);
    pthread_mutex_unlock(&claims->mutex);
    if (!status)
        *ret_offset_bytes = at;
    return status;
}

void flyt_claims_give(struct flyt_claims *claims, uint64_t offset_bytes)
{
    pthread_mutex_lock(&claims->mutex);
    struct range *range = &claims->ranges[count_before(claims, offset_bytes)];
    if (range < &claims->ranges[claims->count] && range->begin == offset_bytes) {
        flyt_unclaim(claims->fd, GUEST + range->begin, range->end - range->begin);
        memmove(range, range + 1, (size_t)(&claims->ranges[--claims->count] - range) * sizeof *range);
    }
    pthread_mutex_unlock(&claims->mutex);
}
