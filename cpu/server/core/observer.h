/*
 * What the CUDA families tell of what they do. Whoever moves the session (moving.c) listens: its part installs the
 * table in session->observer.
 */
#ifndef FLYT_SERVER_OBSERVER_H
#define FLYT_SERVER_OBSERVER_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

struct flyt_array;
struct flyt_device;
struct flyt_extent;
struct flyt_library;
struct flyt_region_lock;
struct flyt_session;

/* What is known of an event of a session that goes on here. */
struct flyt_state_event {
    uint64_t event_id;
    bool has_time;
    bool is_wall;     /* the time is that of CLOCK_REALTIME, for a server on another machine, or after its start */
    uint64_t time_ns; /* of the session's clock (resume.h), else; 0 where it has none. Modulo 2^64 */
};

/* What a program has done that another server could not make again. */
enum flyt_use {
    FLYT_USE_HEAP,     /* it has set the size of the heap in kernels */
    FLYT_USE_CONTENTS, /* a constant was copied to or from by its address (constant.h) */
    FLYT_USE_ADDRESS,  /* it has an address of a library's variable or constant, or has used one */
};

/* What those are that libraries keep in tables of their own. */
#define FLYT_STAYING_COMMUNICATOR "an NCCL communicator"

struct flyt_observer {
    /* A free extent, or all memory of the device, is to be unmapped. Whether nothing reads it any more, so that it may
     * be; else it is to be asked again. */
    bool (*extent_leaving)(struct flyt_device *device, const struct flyt_extent *extent);
    bool (*memory_leaving)(struct flyt_device *device);
    /* Whether something reads memory on SMs that the device has left (resize.h). */
    bool (*holds_sms)(const struct flyt_device *device);
    void (*extent_gone)(struct flyt_session *session, uint64_t extent_id);
    /* The library that was loaded ahead with this image and these options, which is the caller's then; NULL: none. */
    CUlibrary (*library_ahead)(struct flyt_session *session, const struct flyt_library *library);
    void (*library_loaded)(struct flyt_session *session, const struct flyt_library *library);
    /* Its id is gone; and it is unloaded. */
    void (*library_leaving)(struct flyt_session *session, const struct flyt_library *library);
    void (*library_gone)(struct flyt_session *session, const struct flyt_library *library);
    /* The program has the address of a library's variable of this name; and has copied by this address. */
    void (*name_asked)(struct flyt_library *library, const char *name);
    void (*address_used)(struct flyt_session *session, uint64_t address);
    void (*used)(struct flyt_session *session, enum flyt_use use);
    /* One more object, or one less, of a library of NVIDIA's that no other server could make again: `what` it is, a
     * constant. */
    void (*staying)(struct flyt_session *session, const char *what, bool is_more);
    /* One more export or import of memory, or event that is shared, or one less: another session has it, too. */
    void (*shared_counted)(struct flyt_session *session, bool is_more);
    /* One more array, or one less: contents that are in this server's driver alone. */
    void (*array_counted)(struct flyt_session *session, bool is_more);
    /* An array of before is made again, in a session that goes on here: begins to give it its contents.
     * CUDA_ERROR_INVALID_VALUE: they did not come, or are of another one; or the driver's error. */
    CUresult (*array_ahead)(struct flyt_session *session, const struct flyt_array *array);
    /* Pages of the region are not locked any more, and their note is about to go; the program has not been told. */
    void (*lock_leaving)(struct flyt_session *session, const struct flyt_region_lock *lock);
    /* What is known of an event of before, in a session that goes on here; NULL: nothing. */
    const struct flyt_state_event *(*event_before)(const struct flyt_session *session, uint64_t event_id);
};

#endif
