/* cuSPARSE: handles, records and how they are executed. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* ---- handles ---- */

FLYT_SOFT_CUSPARSE cusparseCreate(cusparseHandle_t *handle)
{
    CUcontext ctx = NULL;

    FLYT_SOFT_SPARSE_CHECK(handle);
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    return *handle ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_CUSPARSE cusparseDestroy(cusparseHandle_t handle)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    (void)cuCtxSynchronize();
    free(handle);
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseGetProperty(libraryPropertyType type, int *value)
{
    static const int values[] = {CUSPARSE_VER_MAJOR, CUSPARSE_VER_MINOR, CUSPARSE_VER_PATCH};

    FLYT_SOFT_SPARSE_CHECK(value && (unsigned)type <= PATCH_LEVEL);
    *value = values[type];
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSetStream(cusparseHandle_t handle, cudaStream_t stream)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    handle->stream = stream;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSetPointerMode(cusparseHandle_t handle, cusparsePointerMode_t mode)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_SPARSE_CHECK((unsigned)mode <= CUSPARSE_POINTER_MODE_DEVICE);
    handle->pointer_mode = mode;
    return CUSPARSE_STATUS_SUCCESS;
}

/* ---- calls ---- */

bool flyt_soft_sparse_scalar(cusparseHandle_t handle, struct flyt_soft_scalar *scalar, const void *value,
                             cudaDataType type)
{
    unsigned bytes = flyt_soft_number_bytes(type);

    if (!handle || !value || !bytes)
        return false;
    *scalar = (struct flyt_soft_scalar){.bytes = bytes};
    if (handle->pointer_mode == CUSPARSE_POINTER_MODE_DEVICE)
        scalar->from = value;
    else
        memcpy(scalar->value, value, bytes);
    return true;
}

cusparseStatus_t flyt_soft_sparse_status(CUresult r)
{
    switch (r) {
    case CUDA_SUCCESS:
        return CUSPARSE_STATUS_SUCCESS;
    case CUDA_ERROR_OUT_OF_MEMORY:
        return CUSPARSE_STATUS_ALLOC_FAILED;
    case CUDA_ERROR_NOT_INITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT:
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    default:
        return CUSPARSE_STATUS_EXECUTION_FAILED;
    }
}

static CUresult run(void *record)
{
    struct flyt_soft_sparse *call = record;

    if (!flyt_soft_scalar_read(&call->alpha) || !flyt_soft_scalar_read(&call->beta))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    return call->kernel(call);
}

cusparseStatus_t flyt_soft_sparse_push(cusparseHandle_t handle, const struct flyt_soft_sparse *call, bool is_awaited)
{
    CUresult r;

    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    r = flyt_soft_work_push(handle->stream, run, NULL, call, sizeof(*call));
    if (r == CUDA_SUCCESS && is_awaited)
        r = cuStreamSynchronize(handle->stream);
    return flyt_soft_sparse_status(r);
}

cusparseStatus_t flyt_soft_sparse_buffer(cusparseHandle_t handle, size_t *ret_bytes)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_SPARSE_CHECK(ret_bytes);
    *ret_bytes = 16;
    return CUSPARSE_STATUS_SUCCESS;
}
