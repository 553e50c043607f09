/*
 * What the library keeps per thread of the program: made at the thread's first call, freed when the thread ends.
 * Fields without a note belong to the thread alone.
 */
#ifndef FLYT_CLIENT_THREAD_H
#define FLYT_CLIENT_THREAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <cuda.h>

/* A per-thread default stream: one per context in which the thread used it. */
struct flyt_thread_stream {
    uint64_t context_id, stream_id;
};

enum flyt_answer_state { FLYT_ANSWER_NONE = 0, FLYT_ANSWER_AWAITED, FLYT_ANSWER_COME };

struct flyt_thread {
    uint32_t number;     /* sent as `thread` in every call; from 1, never used twice */
    _Atomic int pending; /* the first unreported error of its one-way calls; set by whoever reads the channel */
    _Atomic int answer;  /* enum flyt_answer_state, of a call that changes the books (answer.h); COME by the reader */
    bool is_callback;    /* runs host functions: may not call CUDA */
    int device;          /* what flyt_runtime_device_set was given, else 0 */
    CUstreamCaptureMode capture_mode;
    uint64_t *contexts; /* stack of context ids, the current one last */
    unsigned context_count, context_capacity;
    void *context_hint; /* context.c: the record that the current context was last; whether it still is says its id */
    struct flyt_thread_stream *streams;
    unsigned stream_count, stream_capacity;
    struct flyt_thread *next, *previous; /* list of all; under the list's lock */
};

/* Initial-exec: one load from the thread pointer; the launch path asks for it several times. */
extern __thread struct flyt_thread *flyt_thread_self __attribute__((tls_model("initial-exec")));

/* Makes the calling thread's record; NULL: no memory. */
struct flyt_thread *flyt_thread_make(void);

static inline struct flyt_thread *flyt_thread_get(void)
{
    return flyt_thread_self ? flyt_thread_self : flyt_thread_make();
}

/* For the args of a call: 0 where the thread has no record. */
static inline uint32_t flyt_thread_number(void)
{
    return flyt_thread_self ? flyt_thread_self->number : 0;
}

/* The first unreported error of calls whose thread has ended, or CUDA_SUCCESS: any thread's next call returns it. */
extern _Atomic int flyt_thread_left_behind __attribute__((visibility("hidden")));

/* Whether flyt_thread_take_pending has something for the calling thread, which has a record. */
static inline bool flyt_thread_has_pending(void)
{
    return (atomic_load_explicit(&flyt_thread_self->pending, memory_order_relaxed) |
            atomic_load_explicit(&flyt_thread_left_behind, memory_order_relaxed)) != 0;
}

/* The calling thread's own error, or one of a thread that has ended; it is told then. */
CUresult flyt_thread_take_pending(void);

/* Notes an error for the thread with that number, unless it has one already; a thread that has ended, and one of this
 * library (0), leaves it to the process, with a warning. From any thread. */
void flyt_thread_set_pending(uint32_t number, CUresult result);
/* Warns of each error that no call has returned: the process ends. It does not wait for a thread that is at the list of
 * them. */
void flyt_thread_tell_untold(void);
/* Whether an answer has come to a thread whose books do not have it yet. */
bool flyt_thread_has_answer(void);
/* Pushes a context id; false: no memory. */
bool flyt_thread_push(struct flyt_thread *thread, uint64_t context_id);
/* In a forked child: the locks start afresh; records of threads that do not exist any more are forgotten. */
void flyt_thread_forked(void);

#endif
