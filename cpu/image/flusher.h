/*
 * Brings a file to the disk while it is still being written, on a thread of its own: who writes it waits for the disk
 * as seldom as can be, and nobody waits for one that does not answer. From time to time it has the kernel begin with
 * what was written (sync_file_range(2)), so that at no moment much is left; on demand all of it is made to last
 * (fdatasync(2)).
 *
 * The kernel tells a failed write to each description of a file (open(2)) once: what the thread has been told, fsync(2)
 * by another descriptor that was duplicated from the same one does not say again. So its status must be asked before
 * the file is taken for whole.
 *
 * Any thread.
 */
#ifndef FLYT_IMAGE_FLUSHER_H
#define FLYT_IMAGE_FLUSHER_H

#include <stdbool.h>
#include <stdint.h>

#include "rpc/base/error.h"
#include "rpc/base/tally.h"

enum {
    FLYT_FLUSHER_PART_BYTES = 32 << 20, /* so much is written before the kernel is told to begin with it */
};

struct flyt_flusher;

/*
 * For the file of fd, which is duplicated, from its present offset on. What is no regular file has nothing to be
 * flushed: all is done then. point: a literal, the fault point that is passed before each fdatasync. changed(user):
 * called by the thread when something is done or has failed, not after flyt_flusher_free; it must not call anything
 * here; NULL: nobody is told. 0 or a negative errno, with a sentence.
 */
int flyt_flusher_new(int fd, const char *point, void (*changed)(void *user), void *user,
                     struct flyt_flusher **ret_flusher, struct flyt_error *err);
/* Does not wait: a call to the disk that is under way comes back to nobody; _leave: `left` counts its thread until
 * its end. NULL is allowed. Returns NULL. */
struct flyt_flusher *flyt_flusher_free(struct flyt_flusher *flusher);
struct flyt_flusher *flyt_flusher_leave(struct flyt_flusher *flusher, struct flyt_tally *left);

/* Whether it is a file. */
bool flyt_flusher_has_file(const struct flyt_flusher *flusher);
/* So many bytes, all in all, are written behind the offset that it began with. */
void flyt_flusher_wrote(struct flyt_flusher *flusher, uint64_t bytes);
/* All that is in the file now is to last. */
void flyt_flusher_demand(struct flyt_flusher *flusher);
/* Whether all that was demanded so far does. */
bool flyt_flusher_is_done(struct flyt_flusher *flusher);
/* 0, or the first failure, a negative errno, with which it has ended: is_done is false for ever where it has come
 * before. */
int flyt_flusher_status(struct flyt_flusher *flusher);

#endif
