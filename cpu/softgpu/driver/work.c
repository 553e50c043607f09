#include "cpu/softgpu/driver/work.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/graph.h"
#include "cpu/softgpu/driver/queue.h"

#define EXPORTED __attribute__((visibility("default")))

struct work_op {
    struct flyt_soft_op op;
    struct CUctx_st *ctx; /* one reference: what a graph has captured may be launched into a stream of another */
    flyt_soft_work_fn run;
    flyt_soft_work_fini_fn fini;
    _Alignas(16) unsigned char record[];
};

static CUresult work_run(struct flyt_soft_op *op)
{
    struct work_op *work = (struct work_op *)op;

    atomic_fetch_add(&work->ctx->work_count, 1);
    return work->run(work->record);
}

static void work_free(struct flyt_soft_op *op)
{
    struct work_op *work = (struct work_op *)op;

    if (work->fini)
        work->fini(work->record);
    flyt_soft_context_unref(work->ctx);
    free(work);
}

CUresult flyt_soft_work_op_new(const struct flyt_soft_work *from, flyt_soft_work_fini_fn fini,
                               struct flyt_soft_op **ret_op)
{
    struct work_op *work = malloc(sizeof(*work) + from->record_bytes);

    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *work =
        (struct work_op){.op = {.run = work_run, .free = work_free}, .ctx = from->ctx, .run = from->run, .fini = fini};
    flyt_soft_context_ref(work->ctx);
    memcpy(work->record, from->record, from->record_bytes);
    *ret_op = &work->op;
    return CUDA_SUCCESS;
}

/* Work whose record owns something could not be run again. */
static CUresult capture(struct CUstream_st *stream, const struct flyt_soft_work *work, flyt_soft_work_fini_fn fini)
{
    CUresult r = fini ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : flyt_soft_capture_work(stream, work);

    if (r != CUDA_SUCCESS)
        stream->is_capture_failed = true;
    return r;
}

EXPORTED CUresult flyt_soft_work_push(CUstream handle, flyt_soft_work_fn run, flyt_soft_work_fini_fn fini,
                                      const void *record, size_t record_bytes)
{
    struct flyt_soft_work work = {.run = run, .record = record, .record_bytes = record_bytes};
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct flyt_soft_op *op;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_find(ctx, handle, &stream);
    if (r != CUDA_SUCCESS)
        return r;
    work.ctx = stream->ctx;
    if (stream->captured)
        return capture(stream, &work, fini);
    r = flyt_soft_work_op_new(&work, fini, &op);
    if (r == CUDA_SUCCESS)
        flyt_soft_stream_push(stream, op);
    return r;
}

EXPORTED bool flyt_soft_work_reaches(const void *address, uint64_t bytes)
{
    return bytes == 0 || flyt_soft_is_device_memory((uint64_t)address, bytes);
}
