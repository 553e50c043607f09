/*
 * Host functions inside the library: what the server's calls lead to, and whether one is still to run.
 */
#ifndef FLYT_CLIENT_FUNCTION_QUEUE_H
#define FLYT_CLIENT_FUNCTION_QUEUE_H

#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

struct flyt_stream;

/* Handler of the channel: a stream has reached the function. Queues it for the callback thread. */
void flyt_function_reached(void *user, uint64_t function_id, int status);
/* Whether a host function was issued that has not finished: it may write any host memory. */
bool flyt_function_is_pending(void);
/* Whether a host function was called, or its launch was executed with the calls up to `sequence`, and it has not
 * finished. */
bool flyt_function_is_unfinished(uint64_t sequence);
/* The connection is lost or the context dead: callbacks that will never be reached run with that status. */
void flyt_function_wake(void);
/* flyt_host_function_launch without checks, of a stream that does not capture; and the same of a function of this
 * library's own, which does not wait for those of the program. */
CUresult flyt_function_launch_on(struct flyt_stream *stream, CUhostFn function, void *user);
CUresult flyt_function_launch_own(struct flyt_stream *stream, CUhostFn function, void *user);

#endif
