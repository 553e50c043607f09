/* cuSPARSE: matrices from one form to another. */
#include <stdlib.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* ---- sparse to dense ---- */

static CUresult run_to_dense(struct flyt_soft_sparse *call)
{
    struct flyt_soft_dense dense;
    struct flyt_soft_entry *list;
    int64_t count;
    CUresult r;

    if (!flyt_soft_dense_find(&call->dense, 0, &dense))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    r = flyt_soft_entries_load(&call->sparse, 0, &list, &count);
    if (r != CUDA_SUCCESS)
        return r;
    for (int64_t i = 0; i < dense.rows; i++)
        for (int64_t j = 0; j < dense.columns; j++)
            flyt_soft_number_put(dense.type, flyt_soft_dense_at(&dense, i, j), 0);
    for (int64_t k = 0; k < count; k++)
        flyt_soft_number_put(dense.type, flyt_soft_dense_at(&dense, list[k].row, list[k].column),
                             flyt_soft_number_get(call->sparse.type, list[k].value));
    free(list);
    return CUDA_SUCCESS;
}

static bool are_alike(const struct cusparseSpMatDescr *sparse, const struct flyt_soft_dense *dense)
{
    bool is_bsr = sparse->format == CUSPARSE_FORMAT_BSR;

    return dense->rows == sparse->rows * (is_bsr ? sparse->block_rows : 1) &&
           dense->columns == sparse->columns * (is_bsr ? sparse->block_columns : 1);
}

FLYT_SOFT_CUSPARSE cusparseSparseToDense_bufferSize(cusparseHandle_t handle, cusparseConstSpMatDescr_t a,
                                                    cusparseDnMatDescr_t b, cusparseSparseToDenseAlg_t alg,
                                                    size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && b);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseSparseToDense(cusparseHandle_t handle, cusparseConstSpMatDescr_t a, cusparseDnMatDescr_t b,
                                         cusparseSparseToDenseAlg_t alg, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && are_alike(a, &b->dense));
    struct flyt_soft_sparse call = {.kernel = run_to_dense, .sparse = *a, .dense = b->dense};

    return flyt_soft_sparse_push(handle, &call, false);
}

/* ---- dense to sparse ---- */

/* What is written of a sparse matrix while a dense one is read, by rows or, for CSC, by columns. NULL: counted only. */
struct writing {
    const struct cusparseSpMatDescr *matrix;
    bool has_offsets, has_numbers;
    int64_t count;
};

static void write_number(struct writing *self, const struct flyt_soft_dense *dense, int64_t outer, int64_t inner)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_csc = m->format == CUSPARSE_FORMAT_CSC;
    flyt_soft_complex value =
        flyt_soft_number_get(dense->type, flyt_soft_dense_at(dense, is_csc ? inner : outer, is_csc ? outer : inner));

    if (value == 0)
        return;
    if (self->has_numbers && self->count < m->nnz) {
        if (m->format == CUSPARSE_FORMAT_COO)
            flyt_soft_index_put(m->index_type, m->offsets, self->count, outer + m->base);
        flyt_soft_index_put(m->index_type, m->indices, self->count, inner + m->base);
        flyt_soft_number_put(m->type, (char *)m->values + self->count * flyt_soft_number_bytes(m->type), value);
    }
    self->count++;
}

static void write_all(struct writing *self, const struct flyt_soft_dense *dense)
{
    const struct cusparseSpMatDescr *m = self->matrix;
    bool is_csc = m->format == CUSPARSE_FORMAT_CSC;
    int64_t outer = is_csc ? dense->columns : dense->rows, inner = is_csc ? dense->rows : dense->columns;

    for (int64_t i = 0; i < outer; i++) {
        if (self->has_offsets)
            flyt_soft_index_put(m->offset_type, m->offsets, i, self->count + m->base);
        for (int64_t j = 0; j < inner; j++)
            write_number(self, dense, i, j);
    }
    if (self->has_offsets)
        flyt_soft_index_put(m->offset_type, m->offsets, outer, self->count + m->base);
}

static CUresult run_analysis(struct flyt_soft_sparse *call)
{
    const struct cusparseSpMatDescr *m = &call->sparse;
    struct writing self = {.matrix = m, .has_offsets = m->format != CUSPARSE_FORMAT_COO};
    int64_t outer = m->format == CUSPARSE_FORMAT_CSC ? m->columns : m->rows;
    struct flyt_soft_dense dense;

    if (!flyt_soft_dense_find(&call->dense, 0, &dense) ||
        (self.has_offsets &&
         !flyt_soft_work_reaches(m->offsets, (uint64_t)(outer + 1) * flyt_soft_index_bytes(m->offset_type))))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    write_all(&self, &dense);
    *call->host_count = self.count;
    return CUDA_SUCCESS;
}

/* A pattern that is there already gets its numbers. */
static CUresult convert_into_pattern(const struct flyt_soft_sparse *call, const struct flyt_soft_dense *dense)
{
    struct flyt_soft_entry *list;
    int64_t count;
    CUresult r = flyt_soft_entries_load(&call->sparse, 0, &list, &count);

    for (int64_t k = 0; k < count; k++)
        flyt_soft_number_put(call->sparse.type, list[k].value,
                             flyt_soft_number_get(dense->type, flyt_soft_dense_at(dense, list[k].row, list[k].column)));
    free(list);
    return r;
}

static CUresult run_convert(struct flyt_soft_sparse *call)
{
    const struct cusparseSpMatDescr *m = &call->sparse;
    struct writing self = {.matrix = m, .has_numbers = true};
    uint64_t index_bytes = (uint64_t)m->nnz * flyt_soft_index_bytes(m->index_type);
    struct flyt_soft_dense dense;

    if (!flyt_soft_dense_find(&call->dense, 0, &dense))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    if (m->format == CUSPARSE_FORMAT_BLOCKED_ELL || m->format == CUSPARSE_FORMAT_BSR)
        return convert_into_pattern(call, &dense);
    if (!flyt_soft_work_reaches(m->indices, index_bytes) ||
        !flyt_soft_work_reaches(m->values, (uint64_t)m->nnz * flyt_soft_number_bytes(m->type)) ||
        (m->format == CUSPARSE_FORMAT_COO && !flyt_soft_work_reaches(m->offsets, index_bytes)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    write_all(&self, &dense);
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseDenseToSparse_bufferSize(cusparseHandle_t handle, cusparseConstDnMatDescr_t a,
                                                    cusparseSpMatDescr_t b, cusparseDenseToSparseAlg_t alg,
                                                    size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(a && b);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseDenseToSparse_analysis(cusparseHandle_t handle, cusparseConstDnMatDescr_t a,
                                                  cusparseSpMatDescr_t b, cusparseDenseToSparseAlg_t alg, void *buffer)
{
    int64_t count = 0;
    cusparseStatus_t status;

    FLYT_SOFT_SPARSE_CHECK(a && b && are_alike(b, &a->dense));
    if (b->format == CUSPARSE_FORMAT_BLOCKED_ELL || b->format == CUSPARSE_FORMAT_BSR)
        return CUSPARSE_STATUS_SUCCESS;
    struct flyt_soft_sparse call = {.kernel = run_analysis, .sparse = *b, .dense = a->dense, .host_count = &count};
    status = flyt_soft_sparse_push(handle, &call, true);
    if (status == CUSPARSE_STATUS_SUCCESS)
        b->nnz = count;
    return status;
}

FLYT_SOFT_CUSPARSE cusparseDenseToSparse_convert(cusparseHandle_t handle, cusparseConstDnMatDescr_t a,
                                                 cusparseSpMatDescr_t b, cusparseDenseToSparseAlg_t alg, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(a && b && are_alike(b, &a->dense));
    struct flyt_soft_sparse call = {.kernel = run_convert, .sparse = *b, .dense = a->dense};

    return flyt_soft_sparse_push(handle, &call, false);
}

/* ---- CSR to CSC ---- */

/* `sparse` is the matrix in CSR, `vector` has the CSC: its values and indices, and in `out` the offsets. */
static CUresult run_transpose(struct flyt_soft_sparse *call)
{
    const struct cusparseSpMatDescr *m = &call->sparse;
    unsigned bytes = flyt_soft_number_bytes(m->type);
    int *offsets = call->out, *rows = call->vector.indices;
    char *values = call->vector.values;
    struct flyt_soft_entry *list;
    int64_t count, next = 0;
    CUresult r = flyt_soft_entries_load(m, 0, &list, &count);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_work_reaches(offsets, (uint64_t)(m->columns + 1) * sizeof(int)) ||
        !flyt_soft_work_reaches(rows, (uint64_t)count * sizeof(int)) ||
        (values && !flyt_soft_work_reaches(values, (uint64_t)count * bytes))) {
        free(list);
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t row = list[i].row;

        list[i].row = list[i].column;
        list[i].column = row;
    }
    flyt_soft_entries_sort(list, count);
    for (int64_t column = 0; column <= m->columns; column++) {
        while (next < count && list[next].row < column)
            next++;
        offsets[column] = (int)(next + m->base);
    }
    for (int64_t i = 0; i < count; i++) {
        rows[i] = (int)(list[i].column + m->base);
        if (values)
            flyt_soft_number_put(m->type, values + i * bytes, flyt_soft_number_get(m->type, list[i].value));
    }
    free(list);
    return CUDA_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseCsr2cscEx2_bufferSize(cusparseHandle_t handle, int m, int n, int nnz, const void *values,
                                                 const int *offsets, const int *indices, void *to_values,
                                                 int *to_offsets, int *to_indices, cudaDataType type,
                                                 cusparseAction_t action, cusparseIndexBase_t base,
                                                 cusparseCsr2CscAlg_t alg, size_t *ret_bytes)
{
    FLYT_SOFT_SPARSE_CHECK(m >= 0 && n >= 0 && nnz >= 0);
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseCsr2cscEx2(cusparseHandle_t handle, int m, int n, int nnz, const void *values,
                                      const int *offsets, const int *indices, void *to_values, int *to_offsets,
                                      int *to_indices, cudaDataType type, cusparseAction_t action,
                                      cusparseIndexBase_t base, cusparseCsr2CscAlg_t alg, void *buffer)
{
    bool is_numeric = action == CUSPARSE_ACTION_NUMERIC;

    FLYT_SOFT_SPARSE_CHECK(m >= 0 && n >= 0 && nnz >= 0 && offsets && to_offsets && flyt_soft_number_bytes(type));
    FLYT_SOFT_SPARSE_CHECK(!is_numeric || !nnz || (values && to_values));
    struct flyt_soft_sparse call = {
        .kernel = run_transpose,
        .sparse = {.format = CUSPARSE_FORMAT_CSR,
                   .rows = m,
                   .columns = n,
                   .nnz = nnz,
                   .offsets = (void *)offsets,
                   .indices = (void *)indices,
                   .values = (void *)(is_numeric ? values : indices), /* of a pattern nothing is read there */
                   .offset_type = CUSPARSE_INDEX_32I,
                   .index_type = CUSPARSE_INDEX_32I,
                   .base = base,
                   .type = is_numeric ? type : CUDA_R_8I},
        .vector = {.indices = to_indices, .values = is_numeric ? to_values : NULL},
        .out = to_offsets};

    return flyt_soft_sparse_push(handle, &call, false);
}
