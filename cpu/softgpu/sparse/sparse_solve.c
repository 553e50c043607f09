/* cuSPARSE: triangular and tridiagonal systems. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* ---- triangular systems ---- */

/* An analysis leaves nothing: a solution begins at the matrix. */
struct cusparseSpSVDescr {
    bool is_analysed;
};
struct cusparseSpSMDescr {
    bool is_analysed;
};

/* Turns the entries into those of op(matrix), by rows. */
static void transpose(const struct flyt_soft_sparse *call, struct flyt_soft_entry *list, int64_t count)
{
    for (int64_t i = 0; i < count && call->op_a != CUSPARSE_OPERATION_NON_TRANSPOSE; i++) {
        int64_t row = list[i].row;

        list[i].row = list[i].column;
        list[i].column = row;
    }
    flyt_soft_entries_sort(list, count);
}

/* The number at `row` of the solution, of which those that it depends on are there. */
static flyt_soft_complex solve_row(const struct flyt_soft_sparse *call, const struct flyt_soft_entry *list,
                                   int64_t first, int64_t end, const flyt_soft_complex *x, flyt_soft_complex right,
                                   bool is_lower)
{
    flyt_soft_complex diagonal = call->sparse.diag_type == CUSPARSE_DIAG_TYPE_UNIT ? 1 : 0;

    for (int64_t k = first; k < end; k++) {
        flyt_soft_complex value = flyt_soft_number_get(call->sparse.type, list[k].value);

        if (call->op_a == CUSPARSE_OPERATION_CONJUGATE_TRANSPOSE)
            value = conj(value);
        if (list[k].column == list[k].row)
            diagonal = call->sparse.diag_type == CUSPARSE_DIAG_TYPE_UNIT ? 1 : value;
        else if ((list[k].column < list[k].row) == is_lower)
            right -= value * x[list[k].column];
    }
    return right / diagonal;
}

static void solve_column(const struct flyt_soft_sparse *call, const struct flyt_soft_entry *list, int64_t count,
                         const struct flyt_soft_dense *dense, const struct flyt_soft_dense *result, int64_t column,
                         flyt_soft_complex *x)
{
    flyt_soft_complex alpha = flyt_soft_scalar_number(&call->alpha, call->alpha_type);
    int64_t n = call->sparse.rows;
    bool is_lower =
        (call->sparse.fill_mode == CUSPARSE_FILL_MODE_LOWER) == (call->op_a == CUSPARSE_OPERATION_NON_TRANSPOSE);

    for (int64_t step = 0, k = is_lower ? 0 : count; step < n; step++) {
        int64_t row = is_lower ? step : n - 1 - step, other = k;

        if (is_lower)
            for (; k < count && list[k].row == row; k++)
                ;
        else
            for (; k > 0 && list[k - 1].row == row; k--)
                ;
        x[row] = solve_row(call, list, is_lower ? other : k, is_lower ? k : other, x,
                           alpha * flyt_soft_dense_get(dense, call->op_b, row, column), is_lower);
    }
    for (int64_t i = 0; i < n; i++)
        flyt_soft_number_put(result->type, flyt_soft_dense_at(result, i, column), x[i]);
}

static CUresult run_triangular(struct flyt_soft_sparse *call)
{
    int64_t batch = call->result.batch_count > 1 ? call->result.batch_count : 1;
    flyt_soft_complex *x = calloc((size_t)call->sparse.rows + 1, sizeof(*x));
    CUresult r = x ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;

    for (int64_t member = 0; member < batch && r == CUDA_SUCCESS; member++) {
        struct flyt_soft_dense dense, result;
        struct flyt_soft_entry *list;
        int64_t count;

        r = flyt_soft_entries_load(&call->sparse, member, &list, &count);
        if (r == CUDA_SUCCESS && (!flyt_soft_dense_find(&call->dense, member, &dense) ||
                                  !flyt_soft_dense_find(&call->result, member, &result)))
            r = CUDA_ERROR_ILLEGAL_ADDRESS;
        if (r == CUDA_SUCCESS) {
            transpose(call, list, count);
            for (int64_t j = 0; j < result.columns; j++)
                solve_column(call, list, count, &dense, &result, j, x);
        }
        free(list);
    }
    free(x);
    return r;
}

static bool is_system(const struct cusparseSpMatDescr *a, cusparseOperation_t op_b, const struct flyt_soft_dense *b,
                      const struct flyt_soft_dense *c)
{
    bool is_plain = op_b == CUSPARSE_OPERATION_NON_TRANSPOSE;

    return a->format != CUSPARSE_FORMAT_BSR && a->rows == a->columns && a->rows == c->rows &&
           (is_plain ? b->rows : b->columns) == c->rows && (is_plain ? b->columns : b->rows) == c->columns;
}

static cusparseStatus_t solve(cusparseHandle_t handle, struct flyt_soft_sparse *call, const void *alpha,
                              cudaDataType type)
{
    FLYT_SOFT_SPARSE_CHECK(is_system(&call->sparse, call->op_b, &call->dense, &call->result) &&
                           flyt_soft_sparse_scalar(handle, &call->alpha, alpha, type));
    call->kernel = run_triangular;
    call->alpha_type = type;
    return flyt_soft_sparse_push(handle, call, false);
}

/* What both kinds of systems have, of vectors and of matrices. */
#define DESCRIPTORS(kind_)                                                                                             \
    FLYT_SOFT_CUSPARSE cusparse##kind_##_createDescr(cusparse##kind_##Descr_t *descr)                                  \
    {                                                                                                                  \
        FLYT_SOFT_SPARSE_CHECK(descr);                                                                                 \
        *descr = calloc(1, sizeof(**descr));                                                                           \
        return *descr ? CUSPARSE_STATUS_SUCCESS : CUSPARSE_STATUS_ALLOC_FAILED;                                        \
    }                                                                                                                  \
    FLYT_SOFT_CUSPARSE cusparse##kind_##_destroyDescr(cusparse##kind_##Descr_t descr)                                  \
    {                                                                                                                  \
        FLYT_SOFT_SPARSE_CHECK(descr);                                                                                 \
        free(descr);                                                                                                   \
        return CUSPARSE_STATUS_SUCCESS;                                                                                \
    }
DESCRIPTORS(SpSV)
DESCRIPTORS(SpSM)

FLYT_SOFT_CUSPARSE cusparseSpSV_bufferSize(cusparseHandle_t handle, cusparseOperation_t op, const void *alpha,
                                           cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x,
                                           cusparseDnVecDescr_t y, cudaDataType type, cusparseSpSVAlg_t alg,
                                           cusparseSpSVDescr_t descr, size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && x && y && descr);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSpSV_analysis(cusparseHandle_t handle, cusparseOperation_t op, const void *alpha,
                                         cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x,
                                         cusparseDnVecDescr_t y, cudaDataType type, cusparseSpSVAlg_t alg,
                                         cusparseSpSVDescr_t descr, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(handle && a && x && y && descr);
    descr->is_analysed = true;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpSV_solve(cusparseHandle_t handle, cusparseOperation_t op, const void *alpha,
                                      cusparseConstSpMatDescr_t a, cusparseConstDnVecDescr_t x, cusparseDnVecDescr_t y,
                                      cudaDataType type, cusparseSpSVAlg_t alg, cusparseSpSVDescr_t descr)
{
    FLYT_SOFT_SPARSE_CHECK(a && x && y && descr && descr->is_analysed);
    struct flyt_soft_sparse call = {.op_a = op, .sparse = *a, .dense = x->dense, .result = y->dense};

    return solve(handle, &call, alpha, type);
}

FLYT_SOFT_CUSPARSE cusparseSpSM_bufferSize(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                           const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                           cusparseDnMatDescr_t c, cudaDataType type, cusparseSpSMAlg_t alg,
                                           cusparseSpSMDescr_t descr, size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && c && descr);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSpSM_analysis(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                         const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                         cusparseDnMatDescr_t c, cudaDataType type, cusparseSpSMAlg_t alg,
                                         cusparseSpSMDescr_t descr, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(handle && a && b && c && descr);
    descr->is_analysed = true;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseSpSM_solve(cusparseHandle_t handle, cusparseOperation_t op_a, cusparseOperation_t op_b,
                                      const void *alpha, cusparseConstSpMatDescr_t a, cusparseConstDnMatDescr_t b,
                                      cusparseDnMatDescr_t c, cudaDataType type, cusparseSpSMAlg_t alg,
                                      cusparseSpSMDescr_t descr)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && c && descr && descr->is_analysed);
    struct flyt_soft_sparse call = {.op_a = op_a, .op_b = op_b, .sparse = *a, .dense = b->dense, .result = c->dense};

    return solve(handle, &call, alpha, type);
}
