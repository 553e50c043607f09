/* cuSPARSE: products of sparse and dense matrices. */
#include <stdlib.h>

#include "cpu/softgpu/sparse/sparse.h"

static bool is_transposed(cusparseOperation_t op)
{
    return op != CUSPARSE_OPERATION_NON_TRANSPOSE;
}

static int64_t batch_of(const struct flyt_soft_sparse *call)
{
    int64_t batch = call->result.batch_count;

    return batch > 1 ? batch : 1;
}

/* result = alpha op_a(sparse) op_b(dense) + beta result, of one member. */
static CUresult multiply(const struct flyt_soft_sparse *call, const struct flyt_soft_entry *list, int64_t count,
                         const struct flyt_soft_dense *dense, const struct flyt_soft_dense *result)
{
    flyt_soft_complex alpha = flyt_soft_scalar_number(&call->alpha, call->alpha_type),
                      beta = flyt_soft_scalar_number(&call->beta, call->beta_type);
    flyt_soft_complex *sums = calloc((size_t)(result->rows * result->columns) + 1, sizeof(*sums));

    if (!sums)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        flyt_soft_complex value = flyt_soft_number_get(call->sparse.type, list[i].value);
        int64_t row = is_transposed(call->op_a) ? list[i].column : list[i].row,
                inner = is_transposed(call->op_a) ? list[i].row : list[i].column;

        if (call->op_a == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE)
            value = conj(value);
        for (int64_t j = 0; j < result->columns; j++)
            sums[row * result->columns + j] += value * flyt_soft_dense_get(dense, call->op_b, inner, j);
    }
    for (int64_t i = 0; i < result->rows; i++)
        for (int64_t j = 0; j < result->columns; j++) {
            void *at = flyt_soft_dense_at(result, i, j);
            flyt_soft_complex old = beta == 0 ? 0 : beta * flyt_soft_number_get(result->type, at);

            flyt_soft_number_put(result->type, at, alpha * sums[i * result->columns + j] + old);
        }
    free(sums);
    return CUDA_SUCCESS;
}

static CUresult run_product(struct flyt_soft_sparse *call)
{
    CUresult r = CUDA_SUCCESS;

    for (int64_t member = 0; member < batch_of(call) && r == CUDA_SUCCESS; member++) {
        struct flyt_soft_dense dense, result;
        struct flyt_soft_entry *list;
        int64_t count;

        if (!flyt_soft_dense_find(&call->dense, member, &dense) ||
            !flyt_soft_dense_find(&call->result, member, &result))
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        r = flyt_soft_entries_load(&call->sparse, member, &list, &count);
        if (r == CUDA_SUCCESS)
            r = multiply(call, list, count, &dense, &result);
        free(list);
    }
    return r;
}

static int64_t rows_of(const struct cusparseSpMatDescr *matrix)
{
    return matrix->format == CUSPARSE_FORMAT_BSR ? matrix->rows * matrix->block_rows : matrix->rows;
}

static int64_t columns_of(const struct cusparseSpMatDescr *matrix)
{
    return matrix->format == CUSPARSE_FORMAT_BSR ? matrix->columns * matrix->block_columns : matrix->columns;
}

static cusparseStatus_t product(cusparseHandle_t handle, struct flyt_soft_sparse *call, const void *alpha,
                                const void *beta)
{
    bool is_a = is_transposed(call->op_a), is_b = is_transposed(call->op_b);
    int64_t m = is_a ? columns_of(&call->sparse) : rows_of(&call->sparse),
            k = is_a ? rows_of(&call->sparse) : columns_of(&call->sparse);

    FLYT_SOFT_SPARSE_CHECK(m == call->result.rows && k == (is_b ? call->dense.columns : call->dense.rows) &&
                           call->result.columns == (is_b ? call->dense.rows : call->dense.columns));
    FLYT_SOFT_SPARSE_CHECK(flyt_soft_sparse_scalar(handle, &call->alpha, alpha, call->compute_type) &&
                           flyt_soft_sparse_scalar(handle, &call->beta, beta, call->compute_type));
    call->alpha_type = call->beta_type = call->compute_type;
    call->kernel = run_product;
    return flyt_soft_sparse_push(handle, call, false);
}

FLYT_SOFT_CUSPARSE cusparseSpMV_bufferSize(cusparseHandle_t handle, cusparseOperation_t op, const void *alpha,
                                           cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, const void *beta,
                                           cusparseDnVecDescr_t y, cudaDataType compute_type, cusparseSpMVAlg_t alg,
                                           size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && x && y);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSpMV_preprocess(cusparseHandle_t handle, cusparseOperation_t op, const void *alpha,
                                           cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, const void *beta,
                                           cusparseDnVecDescr_t y, cudaDataType compute_type, cusparseSpMVAlg_t alg,
                                           void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(handle && a && x && y);
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpMV(cusparseHandle_t handle, cusparseOperation_t op, const void *alpha,
                                cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, const void *beta,
                                cusparseDnVecDescr_t y, cudaDataType compute_type, cusparseSpMVAlg_t alg, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(a && x && y);
    struct flyt_soft_sparse call = {
        .op_a = op, .sparse = *a, .dense = x->dense, .result = y->dense, .compute_type = compute_type};

    return product(handle, &call, alpha, beta);
}

FLYT_SOFT_CUSPARSE cusparseSpMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                           const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                           const void *beta, cusparseDnMatDescr_t c, cudaDataType compute_type,
                                           cusparseSpMMAlg_t alg, size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && c);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSpMM_preprocess(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                           const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                           const void *beta, cusparseDnMatDescr_t c, cudaDataType compute_type,
                                           cusparseSpMMAlg_t alg, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(handle && a && b && c);
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpMM(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                const void *beta, cusparseDnMatDescr_t c, cudaDataType compute_type,
                                cusparseSpMMAlg_t alg, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && c);
    struct flyt_soft_sparse call = {
        .op_a = op_a, .op_b = op_b, .sparse = *a, .dense = b->dense, .result = c->dense, .compute_type = compute_type};

    return product(handle, &call, alpha, beta);
}

/* ---- a dense product where a sparse matrix has numbers ---- */

static CUresult run_sampled(struct flyt_soft_sparse *call)
{
    flyt_soft_complex alpha = flyt_soft_scalar_number(&call->alpha, call->alpha_type),
                      beta = flyt_soft_scalar_number(&call->beta, call->beta_type);
    int64_t inner = is_transposed(call->op_a) ? call->dense.rows : call->dense.columns;
    int batch = call->sparse.batch_count > 1 ? call->sparse.batch_count : 1;

    for (int64_t member = 0; member < batch; member++) {
        struct flyt_soft_dense a, b;
        struct flyt_soft_entry *list;
        int64_t count;
        CUresult r = flyt_soft_entries_load(&call->sparse, member, &list, &count);

        if (r == CUDA_SUCCESS &&
            (!flyt_soft_dense_find(&call->dense, member, &a) || !flyt_soft_dense_find(&call->other, member, &b)))
            r = CUDA_ERROR_ILLEGAL_ADDRESS;
        for (int64_t i = 0; i < count && r == CUDA_SUCCESS; i++) {
            flyt_soft_complex sum = 0,
                              old = beta == 0 ? 0 : beta * flyt_soft_number_get(call->sparse.type, list[i].value);

            for (int64_t k = 0; k < inner; k++)
                sum += flyt_soft_dense_get(&a, call->op_a, list[i].row, k) *
                       flyt_soft_dense_get(&b, call->op_b, k, list[i].column);
            flyt_soft_number_put(call->sparse.type, list[i].value, alpha * sum + old);
        }
        free(list);
        if (r != CUDA_SUCCESS)
            return r;
    }
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSDDMM_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                            const void *alpha, cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b,
                                            const void *beta, cusparseSpMatDescr_t c, cudaDataType compute_type,
                                            cusparseSDDMMAlg_t alg, size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && c);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSDDMM_preprocess(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                            const void *alpha, cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b,
                                            const void *beta, cusparseSpMatDescr_t c, cudaDataType compute_type,
                                            cusparseSDDMMAlg_t alg, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(handle && a && b && c);
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSDDMM(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                 const void *alpha, cusparseConstDnMatDescr_t a, cusparseConstDnMatDescr_t b,
                                 const void *beta, cusparseSpMatDescr_t c, cudaDataType compute_type,
                                 cusparseSDDMMAlg_t alg, void *buffer)
{
    bool is_a = is_transposed(op_a), is_b = is_transposed(op_b);

    FLYT_SOFT_SPARSE_CHECK(a && b && c);
    struct flyt_soft_sparse call = {.kernel = run_sampled,
                                    .op_a = op_a,
                                    .op_b = op_b,
                                    .sparse = *c,
                                    .dense = a->dense,
                                    .other = b->dense,
                                    .alpha_type = compute_type,
                                    .beta_type = compute_type};
    FLYT_SOFT_SPARSE_CHECK((is_a ? a->dense.columns : a->dense.rows) == rows_of(c) &&
                           (is_b ? b->dense.rows : b->dense.columns) == columns_of(c) &&
                           (is_a ? a->dense.rows : a->dense.columns) == (is_b ? b->dense.columns : b->dense.rows));
    FLYT_SOFT_SPARSE_CHECK(flyt_soft_sparse_scalar(handle, &call.alpha, alpha, compute_type) &&
                           flyt_soft_sparse_scalar(handle, &call.beta, beta, compute_type));
    return flyt_soft_sparse_push(handle, &call, false);
}
