/* cuSPARSE: sparse vectors with dense ones. */
#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* The places of number `i` in both vectors. False: out of the dense one. */
static bool find(const struct flyt_soft_sparse *call, int64_t i, void **ret_sparse, void **ret_dense)
{
    const struct cusparseSpVecDescr *x = &call->vector;
    int64_t index = flyt_soft_index_get(x->index_type, x->indices, i) - x->base;

    if (index < 0 || index >= call->dense.rows)
        return false;
    *ret_sparse = (char *)x->values + i * flyt_soft_number_bytes(x->type);
    *ret_dense = flyt_soft_dense_at(&call->dense, index, 0);
    return true;
}

static bool reaches(const struct flyt_soft_sparse *call)
{
    const struct cusparseSpVecDescr *x = &call->vector;
    struct flyt_soft_dense whole;

    return flyt_soft_work_reaches(x->indices, (uint64_t)x->nnz * flyt_soft_index_bytes(x->index_type)) &&
           flyt_soft_work_reaches(x->values, (uint64_t)x->nnz * flyt_soft_number_bytes(x->type)) &&
           flyt_soft_dense_find(&call->dense, 0, &whole);
}

#define EACH(call_, x_, y_)                                                                                            \
    void *x_, *y_;                                                                                                     \
    if (!reaches(call_))                                                                                               \
        return CUDA_ERROR_ILLEGAL_ADDRESS;                                                                             \
    for (int64_t i_ = 0; i_ < (call_)->vector.nnz; i_++)                                                               \
        if (!find(call_, i_, &x_, &y_))                                                                                \
            return CUDA_ERROR_ILLEGAL_ADDRESS;                                                                         \
        else

static CUresult run_gather(struct flyt_soft_sparse *call)
{
    EACH(call, x, y)
    {
        flyt_soft_number_put(call->vector.type, x, flyt_soft_number_get(call->dense.type, y));
    }
    return CUDA_SUCCESS;
}

static CUresult run_scatter(struct flyt_soft_sparse *call)
{
    EACH(call, x, y)
    {
        flyt_soft_number_put(call->dense.type, y, flyt_soft_number_get(call->vector.type, x));
    }
    return CUDA_SUCCESS;
}

static CUresult run_axpby(struct flyt_soft_sparse *call)
{
    flyt_soft_complex alpha = flyt_soft_scalar_number(&call->alpha, call->alpha_type),
                      beta = flyt_soft_scalar_number(&call->beta, call->beta_type);

    if (!reaches(call))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int64_t i = 0; i < call->dense.rows; i++) {
        void *at = flyt_soft_dense_at(&call->dense, i, 0);

        flyt_soft_number_put(call->dense.type, at, beta == 0 ? 0 : beta * flyt_soft_number_get(call->dense.type, at));
    }
    EACH(call, x, y)
    {
        flyt_soft_number_put(call->dense.type, y,
                             flyt_soft_number_get(call->dense.type, y) +
                                 alpha * flyt_soft_number_get(call->vector.type, x));
    }
    return CUDA_SUCCESS;
}

static CUresult run_rotation(struct flyt_soft_sparse *call)
{
    flyt_soft_complex c = flyt_soft_scalar_number(&call->alpha, call->alpha_type),
                      s = flyt_soft_scalar_number(&call->beta, call->beta_type);

    EACH(call, x, y)
    {
        flyt_soft_complex old_x = flyt_soft_number_get(call->vector.type, x),
                          old_y = flyt_soft_number_get(call->dense.type, y);

        flyt_soft_number_put(call->vector.type, x, c * old_x + s * old_y);
        flyt_soft_number_put(call->dense.type, y, c * old_y - s * old_x);
    }
    return CUDA_SUCCESS;
}

static CUresult run_dot(struct flyt_soft_sparse *call)
{
    flyt_soft_complex sum = 0;

    if (call->out && !flyt_soft_work_reaches(call->out, flyt_soft_number_bytes(call->compute_type)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    EACH(call, x, y)
    {
        flyt_soft_complex value = flyt_soft_number_get(call->vector.type, x);

        sum += (call->op_a == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE ? conj(value) : value) *
               flyt_soft_number_get(call->dense.type, y);
    }
    if (call->out)
        flyt_soft_number_put(call->compute_type, call->out, sum);
    else
        *call->host_out = sum;
    return CUDA_SUCCESS;
}

/* Scalars of halves and smaller numbers are floats. */
static cudaDataType wide(cudaDataType type)
{
    if (flyt_soft_number_is_complex(type))
        return flyt_soft_number_is_double(type) ? CUDA_C_64F : CUDA_C_32F;
    return flyt_soft_number_is_double(type) ? CUDA_R_64F : CUDA_R_32F;
}

static cusparseStatus_t push(cusparseHandle_t handle, CUresult (*kernel)(struct flyt_soft_sparse *call),
                             cusparseConstSpVecDescr_t x, cusparseConstDnVecDescr_t y, const void *alpha,
                             const void *beta)
{
    struct flyt_soft_sparse call = {.kernel = kernel};

    FLYT_SOFT_SPARSE_CHECK(x && y && x->size == y->dense.rows);
    call.vector = *x;
    call.dense = y->dense;
    call.alpha_type = wide(x->type);
    call.beta_type = wide(y->dense.type);
    FLYT_SOFT_SPARSE_CHECK((!alpha || flyt_soft_sparse_scalar(handle, &call.alpha, alpha, call.alpha_type)) &&
                           (!beta || flyt_soft_sparse_scalar(handle, &call.beta, beta, call.beta_type)));
    return flyt_soft_sparse_push(handle, &call, false);
}

FLYT_SOFT_CUSPARSE cusparseGather(cusparseHandle_t handle, cusparseConstDnVecDescr_t y, cusparseSpVecDescr_t x)
{
    return push(handle, run_gather, x, y, NULL, NULL);
}

FLYT_SOFT_CUSPARSE cusparseScatter(cusparseHandle_t handle, cusparseConstSpVecDescr_t x, cusparseDnVecDescr_t y)
{
    return push(handle, run_scatter, x, y, NULL, NULL);
}

FLYT_SOFT_CUSPARSE cusparseAxpby(cusparseHandle_t handle, const void *alpha, cusparseConstSpVecDescr_t x,
                                 const void *beta, cusparseDnVecDescr_t y)
{
    FLYT_SOFT_SPARSE_CHECK(alpha && beta);
    return push(handle, run_axpby, x, y, alpha, beta);
}

FLYT_SOFT_CUSPARSE cusparseRot(cusparseHandle_t handle, const void *c, const void *s, cusparseSpVecDescr_t x,
                               cusparseDnVecDescr_t y)
{
    FLYT_SOFT_SPARSE_CHECK(c && s);
    return push(handle, run_rotation, x, y, c, s);
}

FLYT_SOFT_CUSPARSE cusparseSpVV_bufferSize(cusparseHandle_t handle, cusparseOperation_t op, cusparseConstSpVecDescr_t x,
                                           cusparseConstDnVecDescr_t y, const void *result, cudaDataType compute_type,
                                           size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(x && y && result);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSpVV(cusparseHandle_t handle, cusparseOperation_t op, cusparseConstSpVecDescr_t x,
                                cusparseConstDnVecDescr_t y, void *result, cudaDataType compute_type, void *buffer)
{
    flyt_soft_complex sum = 0;
    cusparseStatus_t status;

    FLYT_SOFT_SPARSE_CHECK(x && y && x->size == y->dense.rows && result && flyt_soft_number_bytes(compute_type));
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    bool is_on_device = handle->pointer_mode == CUSPARSE_POINTER_MODE_DEVICE;
    struct flyt_soft_sparse call = {.kernel = run_dot,
                                    .op_a = op,
                                    .vector = *x,
                                    .dense = y->dense,
                                    .compute_type = compute_type,
                                    .out = is_on_device ? result : NULL,
                                    .host_out = &sum};
    status = flyt_soft_sparse_push(handle, &call, !is_on_device);
    if (status == CUSPARSE_STATUS_SUCCESS && !is_on_device)
        flyt_soft_number_put(compute_type, result, sum);
    return status;
}
