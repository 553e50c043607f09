/*
 * Work of one call that takes many driver calls: boxes whose rows or slices the driver only copies or sets one by one.
 * It is the program that says how many these are, a billion for a single memory_set, so that they are submitted in
 * pieces: by a job that holds the stream, at most FLYT_PIECES_PER_ROUND_MAX of all jobs in a round of the loop, each as
 * an operation of its own through the gate (time_slice.h) and within the stream's depth. Between two rounds calls of
 * other streams, orders of the node manager and the end of the session take their course.
 *
 * Only the submission thread uses this.
 */
#ifndef FLYT_SERVER_PIECES_H
#define FLYT_SERVER_PIECES_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_device;
struct flyt_session;
struct flyt_stream;

enum { FLYT_PIECES_PER_ROUND_MAX = 64 };

/* First member of every kind of work. */
struct flyt_pieces {
    struct flyt_device *device; /* whose memory it is; the stream may be another device's */
    uint64_t left;              /* in the kind's own unit; 0: all is submitted */
    bool is_few;                /* it is a handful of driver calls: all at once, as one operation */
    /* Makes one driver call in this stream, and takes what that does from `left`. The driver's error. */
    CUresult (*submit)(struct flyt_pieces *self, struct flyt_stream *copy_stream);
};

/* Whether any was submitted in this round, so that the next one can bring more at once. */
bool flyt_pieces_were_submitted(const struct flyt_session *session);

/*
 * Submits what may be submitted now, for the job that holds the stream, whose call is `sequence`. CUDA_SUCCESS: all of
 * it; CUDA_ERROR_NOT_READY: the rest later; the driver's error. *ret_needs_poll, for NOT_READY: time alone can bring
 * more, for no gate has to open.
 */
CUresult flyt_pieces_submit(struct flyt_pieces *self, struct flyt_stream *stream, uint64_t sequence,
                            bool *ret_needs_poll);

/* A flyt_submit_fn (submit.h) whose user is a struct flyt_pieces: all of it as one operation, a handful of driver
 * calls. */
CUresult flyt_pieces_submit_all(void *user, struct flyt_stream *target);

#endif
