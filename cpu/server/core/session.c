#include "cpu/server/core/session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "cpu/server/core/stream.h"
#include "rpc/api/fatal.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"

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

static int init_host(struct flyt_session *session, const struct flyt_driver *driver, flyt_part_list *parts,
                     struct flyt_error *err)
{
    *session = (struct flyt_session){.driver = driver,
                                     .clock_ns = flyt_clock_ns,
                                     .wake_fd = -1,
                                     .parts = parts,
                                     .print = {.output.fd = -1, .error.fd = -1}};
    flyt_objects_init(&session->objects);
    flyt_worker_init(&session->worker, session, 1);
    flyt_worker_init(&session->blocking, session, FLYT_WORKER_THREADS_MAX);
    flyt_executors_init(&session->executors, session);
    for (unsigned i = 0; (*parts)[i]; i++) {
        int status = (*parts)[i]->init ? (*parts)[i]->init(session, err) : 0;
        if (status)
            return status;
    }
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->wake_fd < 0)
        return flyt_error_set(err, -errno, "no eventfd: %m");
    int status = flyt_print_init(&session->print);
    if (status)
        return flyt_error_set(err, status, "standard output cannot be redirected: %m");
    return 0;
}

int flyt_session_init(struct flyt_session *session, const struct flyt_driver *driver, flyt_part_list *parts,
                      struct flyt_error *err)
{
    unsigned count;
    int status = init_host(session, driver, parts, err);
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

int flyt_session_init_warm(struct flyt_session *session, const struct flyt_driver *driver, flyt_part_list *parts,
                           unsigned gpu, struct flyt_error *err)
{
    unsigned count;
    int status = init_host(session, driver, parts, err);
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

/* From the last part to the first. */
static unsigned count_parts(const struct flyt_session *session)
{
    unsigned count = 0;
    while ((*session->parts)[count])
        count++;
    return count;
}

void flyt_session_fini(struct flyt_session *session)
{
    for (unsigned i = count_parts(session); i-- > 0;)
        if ((*session->parts)[i]->stop)
            (*session->parts)[i]->stop(session);
    flyt_executors_fini(&session->executors);
    flyt_worker_fini(&session->blocking);
    flyt_worker_fini(&session->worker);
    flyt_jobs_fini(session);
    flyt_defer_fini(session);
    for (unsigned i = count_parts(session); i-- > 0;)
        if ((*session->parts)[i]->drop)
            (*session->parts)[i]->drop(session);
    for (unsigned i = 0; i < session->device_count; i++)
        flyt_device_fini(&session->devices[i]);
    session->connection = flyt_connection_free(session->connection);
    for (unsigned i = count_parts(session); i-- > 0;)
        if ((*session->parts)[i]->fini)
            (*session->parts)[i]->fini(session);
    flyt_objects_fini(&session->objects);
    flyt_progress_writer_close(&session->progress_writer);
    flyt_print_fini(&session->print);
    if (session->wake_fd >= 0)
        close(session->wake_fd);
}
