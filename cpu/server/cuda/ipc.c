#include "cpu/server/cuda/ipc.h"
#include "cpu/server/cuda/ipc_question.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/manager.h"
#include "cpu/server/core/observer.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/stream.h"
#include "cpu/server/cuda/physical.h"
#include "flyt_serve.h"
#include "rpc/base/descriptors.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"
#include "rpc/base/shared_event.h"

_Static_assert(sizeof(((flyt_ipc_export_args *)NULL)->token) == FLYT_MANAGER_LINK_TOKEN_BYTES, "a token is a hash");

static bool tell(struct flyt_session *session, enum flyt_manager_link_kind kind,
                 const struct flyt_manager_link_shared *shared)
{
    return flyt_manager_tell(session->manager, kind, shared, sizeof *shared, NULL, NULL, 0);
}

/* ---- questions to the node manager ---- */

void flyt_ipc_question_free(struct flyt_job *job)
{
    struct flyt_ipc_question *self = (struct flyt_ipc_question *)job;
    struct flyt_ipc_question **link = &job->session->ipc->questions;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    flyt_close(self->fd);
    flyt_shared_event_close(self->page);
    free(self);
}

static void tell_question(struct flyt_session *session, const struct flyt_ipc_question *one)
{
    if (one->page)
        flyt_ipc_tell_event(session, one->page, &one->shared);
    else
        tell(session, one->kind, &one->shared);
}

void flyt_ipc_start(struct flyt_ipc_question *self, const struct flyt_job_ops *ops, struct flyt_call *call)
{
    struct flyt_ipc *ipc = call->session->ipc;
    self->fd = -1;
    self->shared.number = ++ipc->last_number;
    self->next = ipc->questions;
    ipc->questions = self;
    flyt_job_start(&self->job, ops, call, NULL);
    flyt_job_keep_unexecuted(&self->job);
}

void flyt_ipc_ask(struct flyt_ipc_question *self)
{
    self->state = FLYT_IPC_ASKED;
    tell_question(self->job.session, self);
}

void flyt_ipc_take_answer(struct flyt_session *session, const struct flyt_manager_link_shared *answer, int fd)
{
    struct flyt_ipc_question *one = session->ipc->questions;
    while (one && one->shared.number != answer->number)
        one = one->next;
    if (one && one->state == FLYT_IPC_ASKED) {
        one->state = FLYT_IPC_ANSWERED;
        one->answer = *answer;
        one->fd = fd;
        return;
    }
    /* Nobody waits for it any more. */
    flyt_close(fd);
    if (answer->has_memory)
        tell(session, FLYT_MANAGER_LINK_IMPORT_GONE, answer);
}

CUresult flyt_ipc_answer_of(const struct flyt_ipc_question *self)
{
    if (self->job.session->fatal != CUDA_SUCCESS)
        return self->job.session->fatal;
    if (self->state != FLYT_IPC_ANSWERED)
        return CUDA_ERROR_NOT_READY;
    switch (self->answer.outcome) {
    case 0:
        return CUDA_SUCCESS;
    case -ENOENT:
        return CUDA_ERROR_INVALID_HANDLE;
    case -EEXIST:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
}

void flyt_ipc_tell(struct flyt_session *session)
{
    const struct flyt_ipc *ipc = session->ipc;
    for (const struct flyt_export *one = ipc->exports; one; one = one->next)
        if (!one->is_revoked)
            tell(session, FLYT_MANAGER_LINK_EXPORT, &one->shared);
    for (const struct flyt_import *one = ipc->imports; one; one = one->next)
        tell(session, FLYT_MANAGER_LINK_IMPORT_HELD, &one->shared);
    for (const struct flyt_ipc_question *one = ipc->questions; one; one = one->next)
        if (one->state == FLYT_IPC_ASKED)
            tell_question(session, one);
    flyt_ipc_tell_events(session);
}

static bool is_supported(const struct flyt_session *session)
{
    return session->manager != NULL;
}

/* ---- exports ---- */

static void end_export(struct flyt_export *one)
{
    struct flyt_session *session = one->device->session;
    struct flyt_export **link = &session->ipc->exports;
    while (*link != one)
        link = &(*link)->next;
    *link = one->next;
    flyt_object_remove(&session->objects, &one->object);
    session->observer->shared_counted(session, false);
    free(one);
}

/* Nobody gets it by its token any more. */
static void withdraw(struct flyt_export *one)
{
    if (!one->is_revoked)
        tell(one->device->session, FLYT_MANAGER_LINK_EXPORT_GONE, &one->shared);
    one->is_revoked = true;
}

void flyt_export_drop(struct flyt_export *one, const struct flyt_device *device)
{
    if (device && device != one->device)
        return;
    if (device)
        withdraw(one);
    end_export(one);
}

void flyt_ipc_revoke(struct flyt_device *device, uint64_t address, uint64_t bytes)
{
    for (struct flyt_export *one = device->session->ipc->exports; one; one = one->next)
        if (one->address >= address && one->address - address < bytes)
            withdraw(one);
}

/* The extent that holds an address in a window; NULL: there is none, or the node manager does not have it. */
static struct flyt_extent *extent_at(struct flyt_session *session, uint64_t address, struct flyt_device **ret_device)
{
    int ordinal = flyt_window_device(address);
    if (ordinal < 0 || (unsigned)ordinal >= session->device_count)
        return NULL;
    struct flyt_extent *extent = session->devices[ordinal].memory->extents;
    while (extent && address - extent->address >= extent->bytes)
        extent = extent->next;
    *ret_device = &session->devices[ordinal];
    return extent && extent->extent_id ? extent : NULL;
}

static CUresult enter_export(const struct flyt_ipc_question *self)
{
    struct flyt_session *session = self->job.session;
    struct flyt_export *one = calloc(1, sizeof *one);
    if (!one)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *one = (struct flyt_export){
        .object.id = self->id, .device = self->device, .address = self->address, .shared = self->shared};
    CUresult result = flyt_session_insert(session, &one->object, FLYT_ID_EXPORT);
    if (result != CUDA_SUCCESS) {
        free(one);
        return result;
    }
    one->next = session->ipc->exports;
    session->ipc->exports = one;
    session->observer->shared_counted(session, true);
    return CUDA_SUCCESS;
}

/* Nobody gets memory in which the owner's clearing is still under way: it would undo what another session writes there,
 * and show what was there before. */
static CUresult ask_when_clear(struct flyt_ipc_question *self)
{
    struct flyt_device *device;
    struct flyt_extent *extent = extent_at(self->job.session, self->address, &device);
    if (!extent || extent->extent_id != self->shared.extent_id)
        return CUDA_ERROR_INVALID_VALUE; /* it was freed meanwhile */
    if (!flyt_extent_is_clear(extent))
        return CUDA_ERROR_NOT_READY;
    flyt_ipc_ask(self);
    return CUDA_ERROR_NOT_READY;
}

static CUresult export_advance(struct flyt_job *job)
{
    struct flyt_ipc_question *self = (struct flyt_ipc_question *)job;
    if (self->state == FLYT_IPC_WAITING && job->session->fatal == CUDA_SUCCESS)
        return ask_when_clear(self);
    CUresult result = flyt_ipc_answer_of(self);
    if (result != CUDA_SUCCESS)
        return result;
    result = enter_export(self);
    if (result != CUDA_SUCCESS)
        tell(job->session, FLYT_MANAGER_LINK_EXPORT_GONE, &self->shared);
    return result;
}

static void export_finish(struct flyt_job *job, CUresult result)
{
    flyt_ipc_export_res res = {.offset = ((const struct flyt_ipc_question *)job)->offset};
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops export_ops = {export_advance, export_finish, flyt_ipc_question_free};

CUresult flyt_serve_ipc_export(struct flyt_call *call, const flyt_ipc_export_args *args, flyt_ipc_export_res *res)
{
    struct flyt_device *device = NULL;
    if (!is_supported(call->session))
        return CUDA_ERROR_NOT_SUPPORTED;
    const struct flyt_extent *extent = extent_at(call->session, args->address, &device);
    if (!extent || !flyt_memory_has(device, args->address))
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_ipc_question *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->kind = FLYT_MANAGER_LINK_EXPORT;
    self->id = args->export_id;
    self->device = device;
    self->address = args->address;
    self->offset = args->address - extent->address;
    self->shared.extent_id = extent->extent_id;
    self->shared.bytes = extent->bytes;
    self->shared.slot = device->slot;
    memcpy(self->shared.token, args->token, sizeof self->shared.token);
    flyt_ipc_start(self, &export_ops, call);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_ipc_export_end(struct flyt_call *call, const flyt_ipc_export_end_args *args,
                                   struct flyt_export *one)
{
    withdraw(one);
    end_export(one);
    return CUDA_SUCCESS;
}

/* ---- imports ---- */

static struct flyt_device *device_of_slot(struct flyt_session *session, uint32_t slot)
{
    for (unsigned i = 0; i < session->device_count; i++)
        if (session->devices[i].slot == slot)
            return &session->devices[i];
    return NULL;
}

/* The address, or one that is free where it is 0, is the import's. */
static CUresult take_address(struct flyt_import *import, uint64_t address)
{
    struct flyt_memory *memory = import->device->memory;
    struct flyt_extent *extent = &import->extent;
    int status;
    if (memory->import_count >= FLYT_IMPORTS_MAX)
        return CUDA_ERROR_OUT_OF_MEMORY;
    extent->address = address;
    if (address && (flyt_window_device(address) != (int)import->device->ordinal || address % FLYT_GRANULE_BYTES))
        return CUDA_ERROR_INVALID_VALUE;
    if (address)
        status = flyt_allocator_take_at(&memory->addresses, address, extent->bytes);
    else
        status = flyt_allocator_take(&memory->addresses, extent->bytes, &extent->address);
    if (status)
        return status == -ENOMEM || !address ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    if (flyt_allocator_add(&memory->imported, extent->address, extent->bytes) == 0 &&
        flyt_allocator_take_at(&memory->imported, extent->address, extent->bytes) == 0) {
        memory->import_count++;
        return CUDA_SUCCESS;
    }
    flyt_allocator_remove(&memory->imported, extent->address, extent->bytes);
    flyt_allocator_free(&memory->addresses, extent->address);
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static void leave_address(struct flyt_import *import)
{
    struct flyt_memory *memory = import->device->memory;
    const struct flyt_extent *extent = &import->extent;
    flyt_allocator_free(&memory->imported, extent->address);
    flyt_allocator_remove(&memory->imported, extent->address, extent->bytes);
    flyt_allocator_free(&memory->addresses, extent->address);
    memory->import_count--;
}

/* Maps what fd is. On failure nothing is left behind. */
static CUresult map(struct flyt_import *import, int fd)
{
    const struct flyt_driver *driver = import->device->session->driver;
    struct flyt_extent *extent = &import->extent;
    CUresult result = flyt_device_use(import->device);
    if (result == CUDA_SUCCESS)
        result = driver->cuMemImportFromShareableHandle(&extent->handle, (void *)(intptr_t)fd,
                                                        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (result != CUDA_SUCCESS)
        return result;
    result = driver->cuMemMap(extent->address, extent->bytes, 0, extent->handle, 0);
    if (result == CUDA_SUCCESS) {
        result = flyt_memory_allow(import->device, extent->address, extent->bytes);
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        driver->cuMemUnmap(extent->address, extent->bytes);
    }
    driver->cuMemRelease(extent->handle);
    return result;
}

/* On failure nothing is left behind. */
static CUresult make(struct flyt_import *import, uint64_t address, int fd)
{
    struct flyt_session *session = import->device->session;
    CUresult result = take_address(import, address);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_session_insert(session, &import->object, FLYT_ID_IMPORT);
    if (result == CUDA_SUCCESS) {
        result = map(import, fd);
        if (result == CUDA_SUCCESS)
            return CUDA_SUCCESS;
        flyt_object_remove(&session->objects, &import->object);
    }
    leave_address(import);
    return result;
}

static void enter(struct flyt_import *import)
{
    struct flyt_session *session = import->device->session;
    import->extent.next = import->device->memory->imports;
    import->device->memory->imports = &import->extent;
    import->next = session->ipc->imports;
    session->ipc->imports = import;
    session->observer->shared_counted(session, true);
}

/* It is in no list any more. */
static void leave(struct flyt_import *import)
{
    struct flyt_session *session = import->device->session;
    struct flyt_import **link = &session->ipc->imports;
    struct flyt_extent **extent_link = &import->device->memory->imports;
    while (*link != import)
        link = &(*link)->next;
    *link = import->next;
    while (*extent_link != &import->extent)
        extent_link = &(*extent_link)->next;
    *extent_link = import->extent.next;
    flyt_object_remove(&session->objects, &import->object);
    session->observer->shared_counted(session, false);
}

/* Nothing uses it any more. The driver's error: it is still there. */
static CUresult unmap(struct flyt_import *import)
{
    struct flyt_session *session = import->device->session;
    CUresult result = flyt_device_use(import->device);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemUnmap(import->extent.address, import->extent.bytes);
    if (result == CUDA_SUCCESS)
        result = session->driver->cuMemRelease(import->extent.handle);
    if (result != CUDA_SUCCESS)
        return flyt_session_check(session, result);
    leave(import);
    leave_address(import);
    tell(session, FLYT_MANAGER_LINK_IMPORT_GONE, &import->shared);
    free(import);
    return CUDA_SUCCESS;
}

void flyt_import_drop(struct flyt_import *import, const struct flyt_device *device)
{
    if (!device) {
        leave(import);
        free(import);
    } else if (device == import->device && !import->physical_count) {
        unmap(import);
    }
}

static CUresult import_answered(struct flyt_ipc_question *self)
{
    struct flyt_session *session = self->job.session;
    struct flyt_device *device = device_of_slot(session, self->answer.slot);
    struct flyt_import *import = device && self->fd >= 0 ? calloc(1, sizeof *import) : NULL;
    if (!import)
        return device ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_DEVICE;
    *import = (struct flyt_import){
        .object.id = self->id, .device = device, .extent.bytes = self->answer.bytes, .shared = self->answer};
    CUresult result = make(import, self->address, self->fd);
    if (result != CUDA_SUCCESS) {
        free(import);
        return result;
    }
    enter(import);
    self->address = import->extent.address;
    self->bytes = import->extent.bytes;
    return CUDA_SUCCESS;
}

static CUresult import_advance(struct flyt_job *job)
{
    struct flyt_ipc_question *self = (struct flyt_ipc_question *)job;
    CUresult result = flyt_ipc_answer_of(self);
    if (result != CUDA_SUCCESS)
        return result;
    result = import_answered(self);
    if (result != CUDA_SUCCESS)
        tell(job->session, FLYT_MANAGER_LINK_IMPORT_GONE, &self->answer);
    return result;
}

static void import_finish(struct flyt_job *job, CUresult result)
{
    const struct flyt_ipc_question *self = (const struct flyt_ipc_question *)job;
    flyt_ipc_import_res res = {.address = self->address, .bytes = self->bytes};
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops import_ops = {import_advance, import_finish, flyt_ipc_question_free};

CUresult flyt_serve_ipc_import(struct flyt_call *call, const flyt_ipc_import_args *args, flyt_ipc_import_res *res)
{
    if (!is_supported(call->session))
        return CUDA_ERROR_NOT_SUPPORTED;
    struct flyt_ipc_question *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    self->kind = FLYT_MANAGER_LINK_IMPORT;
    self->id = args->import_id;
    self->address = args->address;
    self->shared.is_restored = args->address != 0;
    memcpy(self->shared.token, args->token, sizeof self->shared.token);
    flyt_ipc_start(self, &import_ops, call);
    flyt_ipc_ask(self);
    return FLYT_CALL_STARTED;
}

struct end_job {
    struct flyt_job job;
    uint64_t id;
};

static void end_finish(struct flyt_job *job, CUresult result)
{
    struct flyt_import *import = flyt_session_find_import(job->session, ((const struct end_job *)job)->id);
    if (result == CUDA_SUCCESS && import)
        result = import->physical_count ? CUDA_ERROR_INVALID_VALUE : unmap(import);
    flyt_job_reply(job, result);
}

static const struct flyt_job_ops end_ops = {NULL, end_finish, NULL};

CUresult flyt_serve_ipc_import_end(struct flyt_call *call, const flyt_ipc_import_end_args *args,
                                   struct flyt_import *import, flyt_ipc_import_end_res *res)
{
    CUresult result;
    struct end_job *self = flyt_stream_job_after_all(call, sizeof *self, &result);
    if (!self)
        return result;
    self->id = args->import_id;
    result = flyt_job_begin(&self->job, &end_ops, call);
    flyt_job_keep_unexecuted(&self->job);
    return result;
}

CUresult flyt_serve_ipc_physical(struct flyt_call *call, const flyt_ipc_physical_args *args, struct flyt_import *import,
                                 flyt_ipc_physical_res *res)
{
    return flyt_physical_enter(import->device, args->physical_id, &import->extent, &import->physical_count);
}
