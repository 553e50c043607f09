/*
 * Host functions: the stream stops until the client has run one. No host function is given to the driver, whose
 * threads would then wait for a client: the job holds the stream's later calls instead. It waits until the GPU has done
 * the earlier ones, has the client run the function, and ends when the client says that it is done.
 */
#include <stdlib.h>

#include "cpu/server/core/call.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "flyt_serve.h"

struct function_job {
    struct flyt_job job;
    struct flyt_fence *reached; /* the end of the stream's earlier work */
    uint64_t function_id;
    bool is_callback; /* is told of errors; others do not run then */
    bool is_called;
    bool is_done;
};

static CUresult function_advance(struct flyt_job *job)
{
    struct function_job *self = (struct function_job *)job;
    struct flyt_session *session = job->session;
    if (!self->is_called) {
        CUresult status = flyt_fence_poll(self->reached);
        if (status == CUDA_ERROR_NOT_READY)
            return status;
        if (status == CUDA_SUCCESS)
            status = session->fatal;
        if (status != CUDA_SUCCESS && !self->is_callback)
            return status;
        flyt_print_flush(session);
        flyt_back_host_function back = {.function_id = self->function_id, .status = (int)status};
        flyt_connection_call_back(session->connection, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function,
                                  &back);
        self->is_called = true;
        job->needs_poll = false;
    }
    return self->is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static void function_free(struct flyt_job *job)
{
    struct function_job *self = (struct function_job *)job;
    flyt_fence_unref(self->reached);
    free(self);
}

static const struct flyt_job_ops function_ops = {function_advance, NULL, function_free};

struct launch {
    struct flyt_call *call;
    const flyt_host_function_launch_args *args;
};

static CUresult start(void *user, struct flyt_stream *stream)
{
    const struct launch *launch = user;
    struct function_job *self = calloc(1, sizeof *self);
    CUresult result = self ? flyt_stream_mark(stream, &self->reached) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result != CUDA_SUCCESS) {
        free(self);
        return result;
    }
    self->function_id = launch->args->function_id;
    self->is_callback = launch->args->is_callback;
    flyt_job_start(&self->job, &function_ops, launch->call, stream);
    return FLYT_CALL_STARTED;
}

CUresult flyt_serve_host_function_launch(struct flyt_call *call, const flyt_host_function_launch_args *args,
                                         struct flyt_stream *stream)
{
    struct launch launch = {call, args};
    return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_FREE, stream->device, start, &launch);
}

CUresult flyt_serve_host_function_done(struct flyt_call *call, const flyt_host_function_done_args *args)
{
    for (struct flyt_job *job = call->session->jobs.first; job; job = job->next) {
        struct function_job *self = (struct function_job *)job;
        if (job->ops == &function_ops && self->is_called && !self->is_done && self->function_id == args->function_id) {
            self->is_done = true;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_HANDLE;
}
