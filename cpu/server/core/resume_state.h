/* How far a session is that goes on at this server (resume.h), which dispatch has to know. */
#ifndef FLYT_SERVER_RESUME_STATE_H
#define FLYT_SERVER_RESUME_STATE_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_device;
struct flyt_fence;

enum flyt_resume_state {
    FLYT_RESUME_NONE,      /* an ordinary session, or one that has gone on */
    FLYT_RESUME_AWAITED,   /* its client is to come */
    FLYT_RESUME_UNDER_WAY, /* between session_resume_begin and _end */
    FLYT_RESUME_ENDING,    /* session_resume_end waits */
    FLYT_RESUME_FAILED,    /* its client has said that it cannot go on here: no call is taken any more */
    FLYT_RESUME_LEFT,      /* its client has left, and may come back to what is here (left.h) */
};

/* When the steps were over by which the session has come here (flyt_clock_ns), for the log; 0: there was none. */
struct flyt_resume_steps {
    uint64_t session_ns;                       /* SESSION came */
    uint64_t ledgers_ns;                       /* ledgers and time slices are open */
    uint64_t contexts_ns;                      /* its devices' contexts are there, with their limits */
    uint64_t extents_ns;                       /* its memory is mapped */
    uint64_t begin_ns;                         /* its client has come: session_resume_begin */
    uint64_t marked_ns;                        /* and was executed */
    uint64_t end_ns;                           /* all objects were made: session_resume_end came */
    uint64_t whole_ns;                         /* and compared, and it waits for its VM's others; 0: it does not */
    uint64_t first_call;                       /* calls of before the objects' */
    uint64_t last_call;                        /* the last one of theirs */
    unsigned adopted_count, loaded_count;      /* libraries that had been loaded ahead; others */
    unsigned locked_ahead_count, locked_count; /* pieces of page-locked memory, likewise */
};

/* All zero: an ordinary session. */
struct flyt_resume {
    enum flyt_resume_state state;
    bool is_held;           /* the node manager lets it go on, when its VM's other sessions are whole, too */
    _Atomic(bool) is_whole; /* is_held: it could; the watching thread reads it */
    struct flyt_resume_steps steps;
};

/*
 * Of a device: a fence with a time stamp at the beginning of the resumption, when the device had no work of the
 * session, and the session's clock then (flyt_clock_ns: of the node, so that it goes on where the session stays there).
 * Times of events of before are compared with those of new ones through it: to about what recording an event takes
 * (10 to 50 µs; half of what it takes at best on a machine that is busy), and to the 24 bits of cuEventElapsedTime's
 * answer (0.25 ms after an hour).
 */
struct flyt_resume_base {
    struct flyt_fence *fence; /* NULL: none */
    uint64_t time_ns;
};

/*
 * A fence now, with one reference, and the session's clock then; the device's context must be current, and its legacy
 * stream be without work. Of a few tries the one that took the least: a busy machine may come late to any of them.
 * CUDA_SUCCESS, or the driver's error. Waits for the GPU to record it.
 */
CUresult flyt_resume_mark(struct flyt_device *device, struct flyt_resume_base *ret_base);

#endif
