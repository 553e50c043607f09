#include "cpu/server/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cpu/server/call.h"
#include "cpu/server/copying.h"
#include "rpc/api/fatal.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/secure.h"

static int init_driver(struct flyt_session *session, struct flyt_error *err, unsigned *ret_count)
{
    const struct flyt_driver *driver = session->driver;
    int count = 0;
    CUresult result = driver->cuInit(0);
    if (result == CUDA_SUCCESS)
        result = driver->cuDriverGetVersion(&session->driver_version);
    if (result == CUDA_SUCCESS)
        result = driver->cuDeviceGetCount(&count);
    if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count < 1))
        return flyt_error_set(err, -ENODEV, "the CUDA driver finds no device");
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENODEV, "the CUDA driver does not start, cuda_result=%d", (int)result);
    *ret_count = (unsigned)count;
    return 0;
}

/* All windows first: contexts take addresses, too. */
static int init_devices(struct flyt_session *session, unsigned count, struct flyt_error *err)
{
    session->device_count = count < FLYT_DEVICES_MAX ? count : FLYT_DEVICES_MAX;
    for (unsigned i = 0; i < session->device_count; i++) {
        int status = flyt_device_init(&session->devices[i], session, i, err);
        if (status)
            return status;
    }
    return 0;
}

static int init_host(struct flyt_session *session, const struct flyt_driver *driver, struct flyt_error *err)
{
    *session = (struct flyt_session){
        .driver = driver, .clock_ns = flyt_clock_ns, .wake_fd = -1, .print = {.output.fd = -1, .error.fd = -1}};
    flyt_replaceable_init(&session->replaceable);
    flyt_objects_init(&session->objects);
    flyt_worker_init(&session->worker, session);
    flyt_staging_init(&session->staging, session);
    flyt_transfers_init(&session->transfers, session);
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->wake_fd < 0)
        return flyt_error_set(err, -errno, "no eventfd: %m");
    int status = flyt_print_init(&session->print);
    if (status)
        return flyt_error_set(err, status, "standard output cannot be redirected: %m");
    return 0;
}

int flyt_session_init(struct flyt_session *session, const struct flyt_driver *driver, struct flyt_error *err)
{
    unsigned count;
    int status = init_host(session, driver, err);
    if (status == 0)
        status = init_driver(session, err, &count);
    if (status == 0)
        status = init_devices(session, count, err);
    for (unsigned i = 0; status == 0 && i < session->device_count; i++)
        status = flyt_device_open(&session->devices[i], i, err);
    if (status)
        return status;
    CUresult result = flyt_device_make(&session->devices[0]);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENODEV, "device 0: no context can be made, cuda_result=%d", (int)result);
    return 0;
}

int flyt_session_init_warm(struct flyt_session *session, const struct flyt_driver *driver, unsigned gpu,
                           struct flyt_error *err)
{
    unsigned count;
    int status = init_host(session, driver, err);
    if (status == 0)
        status = init_driver(session, err, &count);
    if (status == 0 && gpu >= count)
        return flyt_error_set(err, -ENODEV, "the CUDA driver has no GPU %u, only %u", gpu, count);
    if (status == 0)
        status = init_devices(session, FLYT_DEVICES_MAX, err);
    if (status == 0)
        status = flyt_device_open(&session->devices[0], gpu, err);
    if (status)
        return status;
    session->device_count = 1;
    CUresult result = flyt_device_warm(&session->devices[0]);
    if (result != CUDA_SUCCESS)
        return flyt_error_set(err, -ENODEV, "GPU %u: no context can be made, cuda_result=%d", gpu, (int)result);
    return 0;
}

static int drop_stream(void *user, uint64_t number, void *object)
{
    flyt_stream_remove(object);
    flyt_stream_free(object);
    return 0;
}

static int drop_event(void *user, uint64_t number, void *object)
{
    flyt_event_destroy(object);
    return 0;
}

static int drop_library(void *user, uint64_t number, void *object)
{
    flyt_library_destroy(object);
    return 0;
}

void flyt_session_fini(struct flyt_session *session)
{
    flyt_copying_fini(session);
    flyt_drain_end(&session->move.drain);
    flyt_transfers_fini(&session->transfers);
    flyt_worker_fini(&session->worker);
    flyt_jobs_fini(session);
    flyt_park_fini(session);
    flyt_staging_fini(&session->staging);
    flyt_idtable_each(&session->objects.libraries, drop_library, NULL);
    flyt_idtable_each(&session->objects.events, drop_event, NULL);
    flyt_idtable_each(&session->objects.streams, drop_stream, NULL);
    for (unsigned i = 0; i < session->device_count; i++)
        flyt_device_fini(&session->devices[i]);
    session->connection = flyt_connection_free(session->connection);
    session->move.secure = flyt_secure_free(session->move.secure);
    flyt_objects_fini(&session->objects);
    flyt_prepare_fini(session);
    flyt_constant_fini(session);
    flyt_page_close(&session->page);
    flyt_print_fini(&session->print);
    if (session->wake_fd >= 0)
        close(session->wake_fd);
}

void flyt_session_kick(struct flyt_session *session)
{
    if (atomic_exchange(&session->is_kicked, true))
        return;
    uint64_t one = 1;
    /* The counter cannot be full: the loop empties it before it lets the next kick through. */
    if (write(session->wake_fd, &one, sizeof one) < 0)
        flyt_fail("session %s: the submission thread cannot be woken: %m", session->label);
}

/* One is about to be handed to the connection. */
static void count_error(struct flyt_session *session)
{
    flyt_page_count_error(&session->page);
    flyt_execution_count_error(session);
}

CUresult flyt_session_check(struct flyt_session *session, CUresult result)
{
    const char *cause = flyt_fatal_cause(result);
    if (session->fatal != CUDA_SUCCESS || !cause)
        return result;
    session->fatal = result;
    session->is_scan_due = true;
    flyt_replaceable_note(session, FLYT_REASON_FAULT);
    if (session->manager && session->is_mps)
        flyt_manager_ask_cause(session->manager, result, session->busy_first != NULL, cause, session->end_reason,
                               sizeof session->end_reason);
    if (*session->end_reason)
        cause = session->end_reason;
    flyt_warn("session %s: the context is lost, client_pid=%d program=%s cuda_result=%d: %s", session->label,
              (int)session->client_pid, session->client_name, (int)result, cause);
    if (session->connection) {
        flyt_print_flush(session);
        flyt_back_fatal back = {.result = (int)result, .cause = (char *)cause};
        count_error(session);
        flyt_connection_call_back(session->connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
    }
    return result;
}

void flyt_session_kill(struct flyt_session *session, const char *sentence)
{
    session->is_ended = session->is_killed = true;
    if (!*session->end_reason)
        snprintf(session->end_reason, sizeof session->end_reason, "%s", sentence);
    if (session->fatal != CUDA_SUCCESS || !session->connection)
        return;
    session->fatal = CUDA_ERROR_CONTEXT_IS_DESTROYED;
    flyt_print_flush(session);
    flyt_back_fatal back = {.result = (int)session->fatal, .cause = session->end_reason};
    count_error(session);
    flyt_connection_call_back(session->connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &back);
}

void flyt_session_call_error(struct flyt_session *session, uint64_t sequence, uint32_t thread, CUresult result)
{
    flyt_session_check(session, result);
    flyt_back_call_error back = {.sequence = sequence, .thread = thread, .result = (int)result};
    count_error(session);
    flyt_connection_call_back(session->connection, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &back);
}

void flyt_session_poll_streams(struct flyt_session *session)
{
    struct flyt_stream *next;
    for (struct flyt_stream *stream = session->busy_first; stream; stream = next) {
        next = stream->busy_next;
        flyt_stream_poll(stream);
    }
}

flyt_progress flyt_session_progress(const struct flyt_session *session)
{
    uint64_t executed = session->received_sequence;
    if (session->park.first && flyt_park_first_sequence(session) - 1 < executed)
        executed = flyt_park_first_sequence(session) - 1;
    if (session->jobs.first) {
        uint64_t job = flyt_jobs_unexecuted(session, false);
        if (job - 1 < executed)
            executed = job - 1;
    }
    /* A stream's work is done up to its last marker that was reached; calls of other streams do not matter to it. */
    uint64_t completed = executed;
    for (const struct flyt_stream *stream = session->busy_first; stream; stream = stream->busy_next)
        if (stream->completed_sequence < completed)
            completed = stream->completed_sequence;
    return (flyt_progress){.received = session->received_sequence, .executed = executed, .completed = completed};
}

CUresult flyt_session_insert(struct flyt_session *session, struct flyt_object *object, enum flyt_id_type type)
{
    switch (flyt_object_insert(&session->objects, object, type)) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOSPC:
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_INVALID_HANDLE;
    }
}

CUresult flyt_session_use_device(struct flyt_session *session, uint32_t ordinal, struct flyt_device **ret_device)
{
    if (ordinal >= session->device_count)
        return CUDA_ERROR_INVALID_DEVICE;
    struct flyt_device *device = &session->devices[ordinal];
    CUresult result = flyt_device_make(device);
    if (result == CUDA_SUCCESS)
        *ret_device = device;
    return result;
}
