/*
 * The client's one instance, for the sources of this library only: the channel and the state that every call checks,
 * and how the status of a channel function becomes a CUDA result.
 */
#ifndef FLYT_CLIENT_INSTANCE_H
#define FLYT_CLIENT_INSTANCE_H

#include <pthread.h>
#include <stdatomic.h>
#include "cpu/client/core/client.h"
#include "cpu/client/core/local.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/core/visible.h"
#include "flyt_client_calls.h"

enum flyt_client_state {
    FLYT_CLIENT_NEW = 0, /* nothing has happened yet */
    FLYT_CLIENT_OPEN,    /* connected, though perhaps lost since */
    FLYT_CLIENT_FAILED,  /* connecting failed: connect_result says how, for ever */
    FLYT_CLIENT_FORKED,  /* child of a process that was OPEN */
    FLYT_CLIENT_ENDED    /* past the exit handlers */
};

struct flyt_client {
    _Atomic int state; /* enum flyt_client_state; OPEN is stored after everything below, with release */
    _Atomic int lost;  /* 0, or the code of a lost connection: outranks everything but the states above */
    _Atomic int fatal; /* 0, or the context's fatal error */
    CUresult connect_result;
    struct flyt_channel *channel;
    unsigned device_count;        /* that the program sees */
    unsigned server_device_count; /* that the session has */
    struct flyt_visible visible;
    bool is_window_reserved;  /* nothing of the program's can be in the window of device addresses */
    bool is_virtual_reserved; /* nor where it reserves addresses itself (cuda/virtual.h) */
    bool is_managed_on_host; /* managed memory lies in the region: chosen with the connection, for the process's life */
    pthread_mutex_t connect_mutex;
    struct flyt_local local;         /* under connect_mutex; the client manager, where it has named the server */
    uint64_t start_ns;               /* when the connection was made, for the report */
    const char *_Atomic device_name; /* of device 0, once it was asked for; likewise. Never freed */
};

extern struct flyt_client flyt_client __attribute__((visibility("hidden")));

/* The code of a state in which nothing can be sent, with or without a context; CUDA_SUCCESS: connected. */
static inline CUresult flyt_client_state_code(void)
{
    switch (atomic_load_explicit(&flyt_client.state, memory_order_acquire)) {
    case FLYT_CLIENT_OPEN:
        return (CUresult)atomic_load_explicit(&flyt_client.lost, memory_order_relaxed);
    case FLYT_CLIENT_FAILED:
        return flyt_client.connect_result;
    case FLYT_CLIENT_ENDED:
        return CUDA_ERROR_DEINITIALIZED;
    default:
        return CUDA_ERROR_NOT_INITIALIZED;
    }
}

/* flyt_client_enter for the paths where a call of it counts: all that it looks at, where it has nothing to do. */
static inline CUresult flyt_client_enter_fast(void)
{
    const struct flyt_thread *thread = flyt_thread_self;
    bool is_well = thread && !thread->is_callback &&
                   atomic_load_explicit(&flyt_client.state, memory_order_acquire) == FLYT_CLIENT_OPEN &&
                   !(atomic_load_explicit(&flyt_client.lost, memory_order_relaxed) |
                     atomic_load_explicit(&flyt_client.fatal, memory_order_relaxed) |
                     atomic_load_explicit(&thread->pending, memory_order_relaxed) |
                     atomic_load_explicit(&flyt_thread_left_behind, memory_order_relaxed));
    return __builtin_expect(is_well, 1) ? CUDA_SUCCESS : flyt_client_enter();
}

/* Whether calls can be sent: connected, not lost, not forked, not ended. */
static inline bool flyt_client_is_usable(void)
{
    return atomic_load_explicit(&flyt_client.state, memory_order_acquire) == FLYT_CLIENT_OPEN &&
           !atomic_load_explicit(&flyt_client.lost, memory_order_relaxed);
}

/* Whether this is the child of a process that was connected. For the few functions that do not enter: they must not
 * take locks then, which threads of the parent may have held. */
bool flyt_client_is_forked(void);

/* The code for a channel function's status: CUDA_SUCCESS, that of the lost connection, or CUDA_ERROR_NOT_SUPPORTED
 * (said once) for a procedure that the server lacks. */
CUresult flyt_client_status(int channel_status, const char *procedure);

/* A result that the server has sent as a CUDA code; one that cannot be is CUDA_ERROR_UNKNOWN. */
CUresult flyt_client_code(int result);

/* flyt_client_status for a call with a reply: its result, where there is one. A fatal result is remembered. */
CUresult flyt_client_reply(int channel_status, int result, const char *procedure);

/* Makes `result` the fatal error of the process's contexts (the first one stays) and wakes whoever waits. */
void flyt_client_set_fatal(CUresult result);

/* The sticky code, CUDA_SUCCESS while all is well. For loops that wait for something the server would bring. */
CUresult flyt_client_broken(void);

/* client.c: whether the client manager has told of a change of what this program's VM may use since this was asked
 * last. */
bool flyt_client_has_changed(void);

#endif
