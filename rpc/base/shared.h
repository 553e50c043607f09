/*
 * Memory that processes share: a sealed memfd that begins with a head, and in that a mutex that survives its owner's
 * death. What ledger.h and turns.h stand on. Whoever shares it keeps every state between two stores a true one, for a
 * process may be killed or stopped at any instruction.
 */
#ifndef FLYT_BASE_SHARED_H
#define FLYT_BASE_SHARED_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

enum { FLYT_SHARED_MUTEX_BYTES = 64 };

struct flyt_shared {
    uint64_t magic; /* set last by who makes it */
    uint32_t version;
    uint32_t count; /* of entries, where there are such */
    union {
        pthread_mutex_t mutex;
        unsigned char room[FLYT_SHARED_MUTEX_BYTES];
    };
};
_Static_assert(sizeof(pthread_mutex_t) <= FLYT_SHARED_MUTEX_BYTES, "shared layout");
_Static_assert(offsetof(struct flyt_shared, mutex) == 16 && sizeof(struct flyt_shared) == 80, "shared layout");

/* Makes one of `bytes`, at least the head's, all zero but for the mutex. *ret_fd and *ret_shared are to be given to
 * flyt_shared_close. 0 or a negative errno. */
int flyt_shared_new(const char *name, size_t bytes, int *ret_fd, struct flyt_shared **ret_shared);
/* The one in a descriptor that was handed over, which stays the caller's. 0; -EBADMSG: it is none of that magic,
 * version and size, or may still be cut short; another negative errno. */
int flyt_shared_open(int fd, size_t bytes, uint64_t magic, uint32_t version, int *ret_fd,
                     struct flyt_shared **ret_shared);
/* Ends this process's view of it. */
void flyt_shared_close(int fd, struct flyt_shared *shared, size_t bytes);

/* Takes the mutex, also of an owner who died. 0; -ETIMEDOUT: its holder does not go on, for wait_ms (0: it is held). */
int flyt_shared_lock(struct flyt_shared *shared, unsigned wait_ms);
void flyt_shared_unlock(struct flyt_shared *shared);

#endif
