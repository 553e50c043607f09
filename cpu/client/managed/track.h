/*
 * Which pages of the program's memory were written, as the kernel knows it (Linux 6.7: a userfaultfd that protects
 * pages without telling of faults, which the kernel resolves by itself, and PAGEMAP_SCAN): no signal comes of it, no
 * thread handles anything, and writes of system calls count, too. Elsewhere, and where a container forbids it, nothing
 * is tracked.
 *
 * A page may be told of that nobody has written: one that was only read for the first time. One thread at a time.
 */
#ifndef FLYT_CLIENT_MANAGED_TRACK_H
#define FLYT_CLIENT_MANAGED_TRACK_H

#include <stdbool.h>
#include <stdint.h>

/* Begins with whole pages of private memory, until they are mapped anew. False: they are not tracked. */
bool flyt_managed_track(uint64_t base, uint64_t bytes);

/*
 * The next run of pages in [*at, end) that were written since this told of them last; *at is moved behind it. They are
 * protected again before this returns, so that what is written from now on is told of the next time. 1; 0: there is
 * none left; a negative errno: what was written is not known.
 */
int flyt_managed_track_next(uint64_t *at, uint64_t end, uint64_t *ret_begin, uint64_t *ret_end);

#endif
