/*
 * Memory that processes share and write: a sealed memfd that begins with a head. What ledger.h stands on. There is no
 * lock in it: whoever may write it can write anything into it, at any moment, and a lock of the C library keeps
 * pointers there which it follows. What is shared are plain words, each of which is true at every moment, for a process
 * may be killed or stopped at any instruction.
 */
#ifndef FLYT_BASE_SHARED_H
#define FLYT_BASE_SHARED_H

#include <stddef.h>
#include <stdint.h>

struct flyt_shared {
    uint64_t magic; /* set last by who makes it */
    uint32_t version;
    uint32_t count; /* of entries, where there are such */
};
_Static_assert(sizeof(struct flyt_shared) == 16, "shared layout");

/* Makes one of `bytes`, at least the head's, all zero. *ret_fd and *ret_shared are to be given to flyt_shared_close. 0
 * or a negative errno. */
int flyt_shared_new(const char *name, size_t bytes, int *ret_fd, struct flyt_shared **ret_shared);
/* The one in a descriptor that was handed over, which stays the caller's. 0; -EBADMSG: it is none of that magic, or may
 * still be cut short; -EPROTO: it is one of another version; another negative errno. */
int flyt_shared_open(int fd, size_t bytes, uint64_t magic, uint32_t version, int *ret_fd,
                     struct flyt_shared **ret_shared);
/* Ends this process's view of it. */
void flyt_shared_close(int fd, struct flyt_shared *shared, size_t bytes);

#endif
