/* The handlers of the rows in rpc/api/libcall.api. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/device.h"
#include "cpu/server/core/digest.h"
#include "cpu/server/core/graph_call.h"
#include "cpu/server/core/partition.h"
#include "cpu/server/core/progress.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/library/captured.h"
#include "cpu/server/library/environment.h"
#include "cpu/server/library/library.h"
#include "cpu/server/library/nccl.h"
#include "flyt_objects.h"
#include "flyt_serve.h"
#include "rpc/base/error.h"
#include "rpc/base/log.h"

static const struct flyt_graph_call_ops graph_call_ops;

/* ---- a library ---- */

struct open_job {
    struct flyt_job job;
    struct flyt_server_library *library;
    uint32_t version; /* the client's */
    struct flyt_error err;
    flyt_library_open_res res;
};

/* The node's version has what the client's has: as in NVIDIA's own rules, the same major version and no older minor
 * one. */
static CUresult check_version(struct open_job *self)
{
    const struct flyt_server_library *library = self->library;
    if (library->version / 1000 == self->version / 1000 && library->version >= self->version)
        return CUDA_SUCCESS;
    flyt_error_set(&self->err, -ENOTSUP, "the node's %s is version %u.%u, and this program's is %u.%u", library->soname,
                   library->version / 1000, library->version % 1000, self->version / 1000, self->version % 1000);
    return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult open_run(struct flyt_job *job)
{
    struct open_job *self = (struct open_job *)job;
    const struct flyt_session *session = job->session;
    CUresult result = session->driver->cuCtxSetCurrent(session->devices[0].cu_primary);
    if (result != CUDA_SUCCESS)
        return result;
    if (flyt_server_library_load(self->library, session->driver->is_soft, &self->err))
        return CUDA_ERROR_NOT_SUPPORTED;
    return check_version(self);
}

/* For the node manager, which tells what a move's target must have. */
static void note_opened(struct flyt_session *session, const struct flyt_server_library *library)
{
    uint32_t count = atomic_load_explicit(&session->opened_count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++)
        if (!strcmp(session->opened[i].name, library->name))
            return;
    if (count == FLYT_LIBRARIES_MAX)
        return;
    struct flyt_manager_link_opened *opened = &session->opened[count];
    snprintf(opened->name, sizeof opened->name, "%s", library->name);
    opened->version = library->version;
    atomic_store_explicit(&session->opened_count, count + 1, memory_order_release); /* read in move/out/report.c */
}

static void open_finish(struct flyt_job *job, CUresult result)
{
    struct open_job *self = (struct open_job *)job;
    if (result == CUDA_SUCCESS)
        note_opened(job->session, self->library);
    self->res.node_version = self->library->version * 1000 + self->library->patch;
    self->res.text = self->err.text;
    flyt_job_reply_with(job, result, &self->res, sizeof self->res);
}

static const struct flyt_job_ops open_ops = {.finish = open_finish};

CUresult flyt_serve_library_open(struct flyt_call *call, const flyt_library_open_args *args, flyt_library_open_res *res)
{
    struct flyt_server_library *library = flyt_server_library_find(args->name);
    if (!library) {
        res->text = strdup("this server does not know the library");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    struct open_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->session->graph_calls = &graph_call_ops;
    flyt_server_environment_take(args->environment);
    self->library = library;
    self->version = args->client_version;
    return flyt_job_on_worker(&self->job, &open_ops, call, open_run);
}

/* ---- what all calls have ---- */

/* Results at the end of the arguments' memory. */
struct work {
    struct flyt_libcall call;
    struct flyt_device *device;
    bool makes; /* an object's real one for the context, which takes long */
    int status;
};

static void work_fini(struct work *work)
{
    free(work->call.arguments);
    free(work->call.found);
}

static bool may_stand_for(const struct flyt_libobject *object, const struct flyt_server_kind *kind)
{
    return object->kind == kind || (object->kind->also && !strcmp(object->kind->also, kind->name));
}

/* The device as it is now, for a call that is about to be made. */
static void set_place(struct flyt_libcall *call, const struct flyt_device *device)
{
    call->partition = device->partition;
    call->switch_count = device->switch_count;
    call->sm_count = device->group_size ? device->partition->sm_count : 0;
}

/* Whether a call that ends objects of the kind ends this one. */
static bool may_end(const struct flyt_libobject *object, const struct flyt_server_library *library,
                    const struct flyt_server_kind *kind)
{
    return object->library == library && may_stand_for(object, kind);
}

/* A copy of the call's arguments, which go when its handler returns, with room for results. */
static CUresult prepare(struct work *work, struct flyt_session *session, uint32_t row, const char *arguments,
                        size_t bytes, struct flyt_libobject *const *objects, unsigned object_count, bool has_results)
{
    struct flyt_libcall *call = &work->call;
    call->session = session;
    call->row = flyt_server_library_row(row, &call->library);
    if (!call->row || !(call->function = flyt_server_library_row_function(call->library, call->row)))
        return CUDA_ERROR_NOT_SUPPORTED;
    size_t wanted = flyt_lib_align(call->row->bytes);
    unsigned missing = call->row->optional && object_count + 1 == call->row->object_count;
    if (object_count + missing != call->row->object_count)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0, next = 0; i < call->row->object_count; i++) {
        if (missing && call->row->optional == 1u << i)
            continue;
        struct flyt_libobject *object = objects[next++];
        if (!object || !may_stand_for(object, &call->library->kinds[call->row->kinds[i]]))
            return CUDA_ERROR_INVALID_HANDLE;
        if (object->taken_count)
            return FLYT_CALL_RETRY;
        call->objects[i] = object;
        set_place(call, object->device);
        if (!flyt_libobject_switch(object, object->device->partition))
            work->makes = true;
        if (object->library == call->library)
            wanted += flyt_lib_align(object->kind->state_bytes);
    }
    if (bytes < wanted || bytes % FLYT_LIB_ALIGN)
        return CUDA_ERROR_INVALID_VALUE;
    call->bytes = bytes;
    call->result_capacity = has_results ? FLYT_LIBCALL_BYTES_MAX : 0;
    call->arguments = malloc(bytes + call->result_capacity + 8);
    if (!call->arguments)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (bytes)
        memcpy(call->arguments, arguments, bytes);
    call->results = call->arguments + bytes;
    call->in_at = wanted;
    return call->row->resolve ? call->row->resolve(call) : CUDA_SUCCESS;
}

static bool is_success(const struct work *work)
{
    return work->status == work->call.library->success;
}

/* Whether the client gets what the library wrote. Of a call that was not made it wrote nothing. */
static bool is_told(const struct work *work)
{
    return is_success(work) ||
           (work->status == work->call.library->told && work->call.status == work->call.library->success);
}

/* A call that nobody waits for has failed: its thread hears of it by CUDA's code, and the log by the library's. */
static CUresult untold(const struct flyt_session *session, const struct work *work)
{
    if (is_success(work))
        return CUDA_SUCCESS;
    flyt_warn("session %s: %s failed, status=%d", session->label, work->call.row->name, work->status);
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- calls of a thread's ---- */

struct thread_job {
    struct flyt_job job;
    struct work work;
    struct flyt_stream *stream;
    struct flyt_libobject *made;   /* among the session's objects */
    struct flyt_libobject *object; /* that is ended, no more among them */
    struct flyt_device_hold hold;  /* what its thread works in */
    bool has_run, has_settled;
    bool is_counted; /* among the device's threads */
    size_t bytes;    /* of the session's, see take_bytes */
};

/* ---- bounds ---- */

/* Arguments and results of jobs that have not ended; a client may send any number of calls that wait. Calls beyond it
 * are deferred, which has a bound of its own. The submission thread's. */
enum { JOB_BYTES_MAX = 64 * 1024 * 1024 };
static size_t job_bytes;

/* False: they are too many now. */
static bool take_bytes(struct thread_job *self, const struct work *work)
{
    size_t bytes = sizeof *self + work->call.bytes + work->call.result_capacity;
    if (job_bytes > JOB_BYTES_MAX - bytes)
        return false;
    self->bytes = bytes;
    job_bytes += bytes;
    return true;
}

/* The device is at work while a thread may be giving its streams more. Groups are not counted: what they wait for may
 * be programs that are held. */
static void count_thread(struct thread_job *self, bool is_counted)
{
    const unsigned step = is_counted ? 1 : -1u;
    if (self->is_counted == is_counted)
        return;
    self->is_counted = is_counted;
    self->work.device->thread_count += step;
    /* What is aside may wait for other processes for ever. */
    if (!(self->work.call.row->flags & FLYT_LIBCALL_IS_ASIDE))
        self->work.device->library_count += step;
}

/* With the context that the submission thread has current, too: the libraries keep what they have in it. */
static CUresult thread_run(struct flyt_job *job)
{
    struct thread_job *self = (struct thread_job *)job;
    CUresult result = job->session->driver->cuCtxSetCurrent(self->work.call.partition->cu_context);
    if (result != CUDA_SUCCESS)
        return result;
    if (self->object && self->object->others)
        flyt_libobject_end_others(self->object, self->work.call.function);
    self->work.status = flyt_libcall_run(&self->work.call);
    return result;
}

/* The call has begun on SMs that have been changed since: it ends when nothing of it is left there, which the
 * submission thread asks an event. No thread waits in the context that is left: the driver has a green context current
 * to one thread at a time. */
static CUresult settle(struct thread_job *self)
{
    struct flyt_fence *fence = NULL;
    CUresult result = flyt_device_use(self->work.device);
    if (result == CUDA_SUCCESS)
        result = flyt_fence_promise(self->work.device, false, &fence);
    if (result != CUDA_SUCCESS)
        return result;
    result = flyt_fence_keep_of(fence, self->work.call.partition->cu_green);
    if (result != CUDA_SUCCESS) {
        flyt_fence_unref(fence);
        return result;
    }
    self->job.needs_poll = true;
    result = flyt_fence_set_add(&self->job.after, fence);
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_READY : result;
}

/* Begins a job that a thread does in the device's context, in the driver streams that there are now. */
static void start(struct thread_job *self, const struct flyt_job_ops *ops, struct flyt_call *call,
                  struct flyt_stream *stream)
{
    flyt_device_hold(self->work.device, &self->hold);
    set_place(&self->work.call, self->work.device);
    flyt_job_start(&self->job, ops, call, stream);
}

/* An operation: what the library has given the stream is counted with it. Where the stream's SMs have changed
 * meanwhile, that is in the driver stream of before, and what follows comes after it. */
static CUresult join(void *user, struct flyt_stream *target)
{
    const struct thread_job *self = user;
    if (!flyt_device_has_switched(&self->hold))
        return CUDA_SUCCESS;
    return flyt_submit_follow(self->work.call.cu_stream, target);
}

/* Whether the call is made now, by the job's thread. CUDA_ERROR_NOT_READY: others that it belongs to are missing. */
static CUresult gather(struct thread_job *self, bool *ret_is_made)
{
    struct flyt_libcall *call = &self->work.call;
    const struct flyt_session *session = self->job.session;
    call->is_last = flyt_session_progress(session).executed >= self->job.sequence - 1;
    enum flyt_gathered gathered = call->row->gather ? call->row->gather(call) : FLYT_GATHERED;
    *ret_is_made = gathered == FLYT_GATHERED;
    if (call->lets_pass && self->job.is_unexecuted)
        flyt_job_let_pass(&self->job);
    if (gathered == FLYT_GATHERED_DONE)
        self->work.status = call->status;
    self->job.needs_poll = false;
    if (gathered == FLYT_GATHERED_NOT && session->fatal != CUDA_SUCCESS)
        return session->fatal; /* the others are refused before they come here */
    return gathered == FLYT_GATHERED_NOT || gathered == FLYT_GATHERED_RUNS ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult thread_advance(struct flyt_job *job)
{
    struct thread_job *self = (struct thread_job *)job;
    if (!self->has_run) {
        bool is_made;
        CUresult result = gather(self, &is_made);
        if (result != CUDA_SUCCESS)
            return result;
        self->has_run = true;
        if (is_made) {
            count_thread(self, !self->work.call.row->gather);
            return flyt_job_run(job, thread_run);
        }
    }
    count_thread(self, false);
    if (self->stream)
        return flyt_stream_submit(self->stream, job->sequence, FLYT_SUBMIT_ADDED, self->stream->device, join, self);
    if (self->has_settled || !flyt_device_has_switched(&self->hold))
        return CUDA_SUCCESS;
    self->has_settled = true;
    return settle(self);
}

static void thread_free(struct flyt_job *job)
{
    struct thread_job *self = (struct thread_job *)job;
    if (self->work.call.lose)
        self->work.call.lose(&self->work.call);
    count_thread(self, false);
    job_bytes -= self->bytes;
    flyt_device_release(&self->hold);
    work_fini(&self->work);
    free(self->object);
    free(self);
}

/* What a thread's call names is its own until it has ended: step is 1, and then -1. */
static void take_objects(struct flyt_libcall *call, int step)
{
    for (unsigned i = 0; i < call->row->object_count; i++)
        if (call->objects[i])
            call->objects[i]->taken_count += (unsigned)step;
    for (size_t i = 0; i < call->found_count; i++)
        call->found[i]->taken_count += (unsigned)step;
}

/* Of objects that are the library's own table's, and of which a call may make or end several. */
static void note_staying_of(struct flyt_session *session, const struct flyt_libcall *call)
{
    if (!session->observer)
        return;
    for (int i = 0; i < abs(call->staying); i++)
        session->observer->staying(session, FLYT_STAYING_COMMUNICATOR, call->staying > 0);
}

static void ask_finish(struct flyt_job *job, CUresult result)
{
    struct thread_job *self = (struct thread_job *)job;
    take_objects(&self->work.call, -1);
    note_staying_of(job->session, &self->work.call);
    flyt_libcall_ask_res res = {.status = self->work.status};
    res.results.results_val = (char *)self->work.call.results;
    res.results.results_len = is_told(&self->work) ? (u_int)self->work.call.result_bytes : 0;
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static void oneway_finish(struct flyt_job *job, CUresult result)
{
    struct thread_job *self = (struct thread_job *)job;
    take_objects(&self->work.call, -1);
    note_staying_of(job->session, &self->work.call);
    if (result == CUDA_SUCCESS)
        result = untold(job->session, &self->work);
    if (result != CUDA_SUCCESS)
        flyt_session_call_error(job->session, job->sequence, job->thread, result);
}

static const struct flyt_job_ops ask_ops = {thread_advance, ask_finish, thread_free};
static const struct flyt_job_ops oneway_ops = {thread_advance, oneway_finish, thread_free};

/* ---- calls in a stream ---- */

/* Whether a thread makes it. */
static bool waits(const struct flyt_libcall *call)
{
    bool has_waiting = call->row->flags & FLYT_LIBCALL_WAITS;
    for (unsigned i = 0; i < call->row->object_count; i++)
        has_waiting |= call->objects[i] && call->objects[i]->kind->is_waiting;
    return has_waiting;
}

/* What has a procedure of its own. */
enum { OF_OTHER_PROCEDURES = FLYT_LIBCALL_NEW | FLYT_LIBCALL_END | FLYT_LIBCALL_IS_ASIDE };

struct in_stream {
    struct work work;
    struct flyt_call *call;
    bool is_asked;
};

static CUresult run_now(void *user, struct flyt_stream *target)
{
    struct in_stream *self = user;
    self->work.call.cu_stream = target->cu_stream;
    set_place(&self->work.call, target->device);
    self->work.status = flyt_libcall_run(&self->work.call);
    return CUDA_SUCCESS;
}

/* Hands the call to a thread, which holds the stream. */
static CUresult start_thread(void *user, struct flyt_stream *target)
{
    struct in_stream *self = user;
    if (target->device->is_capture_due)
        return FLYT_CALL_RETRY;
    struct thread_job *thread = calloc(1, sizeof *thread);
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!take_bytes(thread, &self->work)) {
        free(thread);
        return FLYT_CALL_RETRY;
    }
    thread->work = self->work;
    thread->work.call.cu_stream = target->cu_stream;
    thread->work.device = target->device;
    thread->stream = target;
    self->work.call.arguments = NULL;
    self->work.call.found = NULL;
    take_objects(&thread->work.call, 1);
    start(thread, self->is_asked ? &ask_ops : &oneway_ops, self->call, target);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_libcall_stream(struct flyt_call *call, const flyt_libcall_stream_args *args,
                                   struct flyt_stream *stream, struct flyt_libobject *const *objects,
                                   unsigned objects_count)
{
    struct in_stream self = {.call = call};
    CUresult result = prepare(&self.work, call->session, args->row, args->arguments.arguments_val,
                              args->arguments.arguments_len, objects, objects_count, false);
    if (result == CUDA_SUCCESS && self.work.call.row->flags & OF_OTHER_PROCEDURES)
        result = CUDA_ERROR_INVALID_VALUE; /* these have procedures of their own */
    if (result == CUDA_SUCCESS) {
        bool by_thread = self.work.makes || waits(&self.work.call);
        self.work.status = self.work.call.library->success;
        result = flyt_stream_submit(stream, call->sequence, by_thread ? FLYT_SUBMIT_JOB : FLYT_SUBMIT_WORK,
                                    stream->device, by_thread ? start_thread : run_now, &self);
        if (result == CUDA_SUCCESS)
            result = untold(call->session, &self.work);
    }
    work_fini(&self.work);
    return result;
}

static CUresult give(const struct in_stream *self, flyt_libcall_ask_res *res)
{
    res->status = self->work.status;
    if (!is_told(&self->work) || !self->work.call.result_bytes)
        return CUDA_SUCCESS;
    res->results.results_val = malloc(self->work.call.result_bytes);
    if (!res->results.results_val)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(res->results.results_val, self->work.call.results, self->work.call.result_bytes);
    res->results.results_len = (u_int)self->work.call.result_bytes;
    return CUDA_SUCCESS;
}

/* A question takes no place in the stream. */
static CUresult ask_aside(struct in_stream *self, struct flyt_stream *stream)
{
    CUresult result = flyt_device_use(stream->device);
    return result == CUDA_SUCCESS ? run_now(self, stream) : result;
}

CUresult flyt_serve_libcall_ask(struct flyt_call *call, const flyt_libcall_ask_args *args, struct flyt_stream *stream,
                                struct flyt_libobject *const *objects, unsigned objects_count,
                                flyt_libcall_ask_res *res)
{
    struct in_stream self = {.call = call, .is_asked = true};
    CUresult result = prepare(&self.work, call->session, args->row, args->arguments.arguments_val,
                              args->arguments.arguments_len, objects, objects_count, true);
    if (result == CUDA_SUCCESS && self.work.call.row->flags & OF_OTHER_PROCEDURES)
        result = CUDA_ERROR_INVALID_VALUE;
    if (result == CUDA_SUCCESS) {
        unsigned flags = self.work.call.row->flags;
        if (self.work.makes || flags & FLYT_LIBCALL_ANSWERS || waits(&self.work.call))
            result = flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_JOB, stream->device, start_thread, &self);
        else if (flags & FLYT_LIBCALL_IN_STREAM)
            result = flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, stream->device, run_now, &self);
        else
            result = ask_aside(&self, stream);
        if (result == CUDA_SUCCESS)
            result = give(&self, res);
    }
    work_fini(&self.work);
    return result;
}

/* ---- calls in graphs ---- */

/* The call as it is to be captured: none for which a thread would wait. */
static CUresult prepare_in_graph(struct work *work, struct flyt_device *device, const struct flyt_graph_call *call)
{
    struct flyt_libobject *objects[FLYT_LIB_OBJECTS_MAX];
    _Static_assert(FLYT_LIBCALL_OBJECTS_MAX == FLYT_LIB_OBJECTS_MAX, "as many as a call names");
    for (unsigned i = 0; i < call->object_count; i++) {
        objects[i] = flyt_session_find_libobject(device->session, call->objects[i]);
        if (!objects[i])
            return CUDA_ERROR_INVALID_HANDLE;
        if (objects[i]->device != device)
            return CUDA_ERROR_INVALID_VALUE;
    }
    CUresult result =
        prepare(work, device->session, call->row, call->arguments, call->bytes, objects, call->object_count, false);
    if (result != CUDA_SUCCESS)
        return result;
    const struct flyt_server_row *row = work->call.row;
    if (!(row->flags & FLYT_LIBCALL_IN_STREAM) || row->flags & OF_OTHER_PROCEDURES)
        return CUDA_ERROR_INVALID_VALUE;
    return row->gather || waits(&work->call) ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

static CUresult check_in_graph(struct flyt_device *device, const struct flyt_graph_call *call)
{
    struct work work = {0};
    device->is_capture_due = device->library_count;
    CUresult result = device->is_capture_due ? FLYT_CALL_RETRY : prepare_in_graph(&work, device, call);
    work_fini(&work);
    return result;
}

/* Real objects that a call needs in this context, before anything is captured. */
static int make_objects(struct flyt_libcall *call)
{
    int status = call->library->success;
    for (unsigned i = 0; i < call->row->object_count && status == call->library->success; i++)
        if (call->objects[i] && !flyt_libobject_switch(call->objects[i], call->partition))
            status = flyt_libobject_make(call, call->objects[i]);
    return status;
}

/* The stream goes: its objects are told theirs again. */
static void forget_stream(const struct flyt_libcall *call)
{
    for (unsigned i = 0; i < call->row->object_count; i++)
        if (call->objects[i])
            call->objects[i]->cu_stream = NULL;
}

/* The call's arguments and scalars go when it has been captured. */
static CUresult check_captured(const struct work *work, CUgraph cu_graph)
{
    const struct flyt_session *session = work->call.session;
    CUresult result = flyt_captured_check(session->driver, cu_graph);
    if (result == CUDA_ERROR_NOT_SUPPORTED)
        flyt_warn("session %s: %s cannot be part of a graph: what it launches uses host memory", session->label,
                  work->call.row->name);
    return result;
}

/* The library may allocate and load code as it likes: nobody else's capture is under way. */
static CUresult capture_work(struct work *work, CUgraph *ret_graph)
{
    const struct flyt_driver *driver = work->call.session->driver;
    CUgraph cu_graph = NULL;
    CUresult result = driver->cuStreamBeginCapture(work->call.cu_stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    if (result != CUDA_SUCCESS)
        return result;
    work->status = flyt_libcall_run(&work->call);
    result = driver->cuStreamEndCapture(work->call.cu_stream, &cu_graph);
    CUresult called = untold(work->call.session, work);
    if (called != CUDA_SUCCESS)
        result = called;
    if (result == CUDA_SUCCESS)
        result = check_captured(work, cu_graph);
    if (result == CUDA_SUCCESS)
        *ret_graph = cu_graph;
    else if (cu_graph)
        driver->cuGraphDestroy(cu_graph);
    return result;
}

static CUresult capture_in_graph(struct flyt_device *device, const struct flyt_graph_call *call, CUstream cu_stream,
                                 CUgraph *ret_graph)
{
    struct work work = {0};
    CUresult result = prepare_in_graph(&work, device, call);
    if (result == CUDA_SUCCESS) {
        set_place(&work.call, device);
        work.call.cu_stream = cu_stream;
        work.status = make_objects(&work.call);
        result = untold(device->session, &work);
    }
    if (result == CUDA_SUCCESS) {
        result = capture_work(&work, ret_graph);
        forget_stream(&work.call);
    }
    work_fini(&work);
    return result;
}

static const struct flyt_graph_call_ops graph_call_ops = {check_in_graph, capture_in_graph};

/* ---- calls that have no place in a stream ---- */

static void aside_finish(struct flyt_job *job, CUresult result)
{
    struct thread_job *self = (struct thread_job *)job;
    flyt_libcall_aside_res res = {.status = self->work.status};
    note_staying_of(job->session, &self->work.call);
    res.results.results_val = (char *)self->work.call.results;
    res.results.results_len = (u_int)self->work.call.result_bytes;
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops aside_ops = {thread_advance, aside_finish, thread_free};

/* Answers at once. */
static CUresult run_aside_now(struct thread_job *self, flyt_libcall_aside_res *res)
{
    self->work.status = flyt_libcall_run(&self->work.call);
    note_staying_of(self->work.call.session, &self->work.call);
    res->status = self->work.status;
    res->results.results_val = malloc(self->work.call.result_bytes + 1);
    if (!res->results.results_val)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memcpy(res->results.results_val, self->work.call.results, self->work.call.result_bytes);
    res->results.results_len = (u_int)self->work.call.result_bytes;
    return CUDA_SUCCESS;
}

/* It counts as executed before it is: other threads' calls may be what it waits for, and its own thread waits for it.
 */
CUresult flyt_serve_libcall_aside(struct flyt_call *call, const flyt_libcall_aside_args *args,
                                  flyt_libcall_aside_res *res)
{
    struct thread_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = prepare(&self->work, call->session, args->row, args->arguments.arguments_val,
                              args->arguments.arguments_len, NULL, 0, true);
    if (result == CUDA_SUCCESS && !(self->work.call.row->flags & FLYT_LIBCALL_IS_ASIDE))
        result = CUDA_ERROR_INVALID_VALUE;
    self->work.device = &call->session->devices[0];
    if (result == CUDA_SUCCESS && !take_bytes(self, &self->work))
        result = FLYT_CALL_RETRY;
    if (result == CUDA_SUCCESS && !(self->work.call.row->flags & FLYT_LIBCALL_AT_ONCE)) {
        /* It may wait for other processes for ever, and holds no SMs meanwhile: operations are what runs there. */
        set_place(&self->work.call, self->work.device);
        self->has_settled = true;
        flyt_job_start(&self->job, &aside_ops, call, NULL);
        self->job.is_apart = self->work.call.row->flags & FLYT_LIBCALL_APART;
        return FLYT_CALL_STARTED;
    }
    if (result == CUDA_SUCCESS)
        result = run_aside_now(self, res);
    thread_free(&self->job);
    return result;
}

/* ---- objects ---- */

static void new_finish(struct flyt_job *job, CUresult result)
{
    struct thread_job *self = (struct thread_job *)job;
    flyt_libobject_new_res res = {.status = self->work.status};
    take_objects(&self->work.call, -1);
    self->made->taken_count--;
    if (result == CUDA_SUCCESS && is_success(&self->work)) {
        self->made->real = self->work.call.made;
        flyt_libobject_stay(job->session, self->made, self->made->kind->stays);
        res.results.results_val = (char *)self->work.call.results;
        res.results.results_len = (u_int)self->work.call.result_bytes;
    } else {
        flyt_object_remove(&job->session->objects, &self->made->object);
        free(self->made);
    }
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops new_ops = {thread_advance, new_finish, thread_free};

/* Its id is taken before the library is asked: what that has made needs no way back. */
static CUresult insert_new(struct flyt_session *session, uint64_t id, struct thread_job *self)
{
    struct flyt_libobject *object = calloc(1, sizeof *object);
    if (!object)
        return CUDA_ERROR_OUT_OF_MEMORY;
    object->object.id = id;
    object->library = self->work.call.library;
    object->kind = &object->library->kinds[self->work.call.row->made];
    object->object.is_sequential = object->kind->is_sequential;
    object->device = self->work.device;
    object->made_by = self->work.call.row;
    object->object.made = flyt_digest(0, (uint32_t)object->device->ordinal, 0, object->made_by->made_as);
    object->partition = object->device->partition;
    memcpy(object->state, object->kind->defaults, object->kind->state_bytes);
    CUresult result = flyt_session_insert(session, &object->object, FLYT_ID_LIBOBJECT);
    if (result != CUDA_SUCCESS) {
        free(object);
        return result;
    }
    object->taken_count = 1;
    self->made = object;
    return CUDA_SUCCESS;
}

/* What the libraries have taken by themselves has brought the VM above its limit: they get no more to take it with. One
 * that is made again at another server was within it before. */
static bool is_beyond_limit(const struct flyt_session *session, const struct flyt_device *device)
{
    struct flyt_ledger_state state;
    if (!device->ledger || session->resume.state != FLYT_RESUME_NONE)
        return false;
    flyt_ledger_read(device->ledger, &state);
    return state.used_bytes - state.cached_bytes > state.limit_bytes; /* what is cached would be given back */
}

static CUresult start_new(struct flyt_call *call, const flyt_libobject_new_args *args, struct thread_job *self,
                          struct flyt_device *device, flyt_libobject_new_res *res)
{
    CUresult result = prepare(&self->work, call->session, args->row, args->arguments.arguments_val,
                              args->arguments.arguments_len, NULL, 0, true);
    if (result != CUDA_SUCCESS)
        return result;
    const struct flyt_libcall *made = &self->work.call;
    if (!(made->row->flags & FLYT_LIBCALL_NEW))
        return CUDA_ERROR_INVALID_VALUE;
    if (!made->library->kinds[made->row->made].is_light && is_beyond_limit(call->session, device)) {
        res->status = made->library->memory;
        return CUDA_SUCCESS;
    }
    if (device->is_capture_due || !take_bytes(self, &self->work))
        return FLYT_CALL_RETRY;
    self->work.device = device;
    result = insert_new(call->session, args->object_id, self);
    if (result != CUDA_SUCCESS)
        return result;
    take_objects(&self->work.call, 1);
    start(self, &new_ops, call, NULL);
    flyt_job_keep_unexecuted(&self->job);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_libobject_new(struct flyt_call *call, const flyt_libobject_new_args *args,
                                  flyt_libobject_new_res *res)
{
    struct flyt_device *device;
    CUresult result = flyt_session_use_device(call->session, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct thread_job *self = calloc(1, sizeof *self);
    if (!self)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = start_new(call, args, self, device, res);
    if (result != FLYT_CALL_STARTED)
        thread_free(&self->job);
    return result;
}

static void end_finish(struct flyt_job *job, CUresult result)
{
    const struct thread_job *self = (struct thread_job *)job;
    flyt_libobject_end_res res = {.status = self->work.status};
    flyt_job_reply_with(job, result, &res, sizeof res);
}

static const struct flyt_job_ops end_ops = {thread_advance, end_finish, thread_free};

CUresult flyt_serve_libobject_end(struct flyt_call *call, const flyt_libobject_end_args *args,
                                  struct flyt_libobject *object, flyt_libobject_end_res *res)
{
    struct thread_job *self = calloc(1, sizeof *self);
    unsigned char *arguments = calloc(1, FLYT_LIB_STATE_BYTES + 64);
    if (!self || !arguments) {
        free(self);
        free(arguments);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(arguments, object->state, sizeof object->state); /* as it is set already; its row has no arguments */
    CUresult result =
        prepare(&self->work, call->session, args->row, (char *)arguments, FLYT_LIB_STATE_BYTES + 64, &object, 1, false);
    free(arguments);
    if (result == CUDA_SUCCESS &&
        (!(self->work.call.row->flags & FLYT_LIBCALL_END) ||
         !may_end(object, self->work.call.library, &self->work.call.library->kinds[self->work.call.row->kinds[0]])))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result != CUDA_SUCCESS) {
        thread_free(&self->job);
        return result;
    }
    self->work.device = object->device;
    self->work.call.cu_stream = object->cu_stream;
    self->object = object;
    flyt_libobject_stay(call->session, object, NULL);
    flyt_object_remove(&call->session->objects, &object->object);
    start(self, &end_ops, call, NULL);
    flyt_job_keep_unexecuted(&self->job);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_libobject_forget(struct flyt_call *call, const flyt_libobject_forget_args *args,
                                     struct flyt_libobject *object)
{
    struct flyt_server_library *library;
    const struct flyt_server_row *row = flyt_server_library_row(args->row, &library);
    void *function = row ? flyt_server_library_row_function(library, row) : NULL;
    if (!function || !(row->flags & FLYT_LIBCALL_END) || row->object_count != 1 ||
        !may_end(object, library, &library->kinds[row->kinds[0]]))
        return CUDA_ERROR_INVALID_VALUE;
    if (object->taken_count) /* by a thread's call */
        return FLYT_CALL_RETRY;
    CUresult result = flyt_device_use(object->device);
    if (result == CUDA_SUCCESS) {
        flyt_libobject_end_others(object, function);
        ((int (*)(void *))function)(object->real);
    }
    if (object->kind->has_room)
        free(object->real);
    flyt_libobject_stay(call->session, object, NULL);
    flyt_object_remove(&call->session->objects, &object->object);
    free(object);
    return result;
}

/* The client knows where generators of cuRAND's are in their numbers, which no other object has. */
CUresult flyt_serve_libobject_stay(struct flyt_call *call, const flyt_libobject_stay_args *args,
                                   struct flyt_libobject *object)
{
    static const char drawn[] = "a generator of cuRAND's, whose place in its numbers is known to it alone";
    flyt_libobject_stay(call->session, object, args->is_lost ? drawn : object->kind->stays);
    return CUDA_SUCCESS;
}
