#include "cpu/softgpu/driver/work.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

#define EXPORTED __attribute__((visibility("default")))

struct work_op {
    struct flyt_soft_op op;
    struct CUctx_st *ctx; /* its stream's, which is there as long as that has work */
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
    free(work);
}

EXPORTED CUresult flyt_soft_work_push(CUstream stream, flyt_soft_work_fn run, flyt_soft_work_fini_fn fini,
                                      const void *record, size_t record_bytes)
{
    struct CUctx_st *ctx;
    struct CUstream_st *found;
    struct work_op *work;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_find(ctx, stream, &found);
    if (r != CUDA_SUCCESS)
        return r;
    work = malloc(sizeof(*work) + record_bytes);
    if (!work)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *work = (struct work_op){.op = {.run = work_run, .free = work_free}, .ctx = found->ctx, .run = run, .fini = fini};
    memcpy(work->record, record, record_bytes);
    flyt_soft_stream_push(found, &work->op);
    return CUDA_SUCCESS;
}

EXPORTED bool flyt_soft_work_reaches(const void *address, uint64_t bytes)
{
    return bytes == 0 || flyt_soft_is_device_memory((uint64_t)address, bytes);
}
