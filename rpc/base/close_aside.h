/*
 * Descriptors that are closed by a thread, for which nobody waits: close(2) of a file on a network's file system may
 * wait for a server that does not answer. Any thread.
 */
#ifndef FLYT_BASE_CLOSE_ASIDE_H
#define FLYT_BASE_CLOSE_ASIDE_H

#include "rpc/base/tally.h"

enum { FLYT_CLOSE_ASIDE_MAX = 8 /* at once */ };

/* Has those of these that are not negative closed by one thread, which `left` (NULL is allowed) counts until its end;
 * all are -1 afterwards. At most FLYT_CLOSE_ASIDE_MAX. Where there can be no thread they are closed here. */
void flyt_close_aside(int *fds, unsigned count, struct flyt_tally *left);

#endif
