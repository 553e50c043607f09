/* cuSPARSE's descriptors. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/sparse/sparse.h"

struct cusparseMatDescr {
    cusparseMatrixType_t type;
    cusparseFillMode_t fill_mode;
    cusparseDiagType_t diag_type;
    cusparseIndexBase_t base;
};

/* A copy of `from` in memory of its own. */
static cusparseStatus_t make(void *ret, const void *from, size_t bytes)
{
    void *copy = malloc(bytes);

    if (!copy)
        return CUSPARSE_STATUS_ALLOC_FAILED;
    memcpy(copy, from, bytes);
    memcpy(ret, &copy, sizeof(copy));
    return CUSPARSE_STATUS_SUCCESS;
}

static cusparseStatus_t unmake(const void *descriptor)
{
    FLYT_SOFT_SPARSE_CHECK(descriptor);
    free((void *)descriptor);
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseCreateMatDescr(cusparseMatDescr_t *descr)
{
    const struct cusparseMatDescr one = {0};

    FLYT_SOFT_SPARSE_CHECK(descr);
    return make(descr, &one, sizeof(one));
}

FLYT_SOFT_CUSPARSE cusparseDestroyMatDescr(cusparseMatDescr_t descr)
{
    return unmake(descr);
}

#define SETTER(name_, type_, field_)                                                                                   \
    FLYT_SOFT_CUSPARSE cusparseSetMat##name_(cusparseMatDescr_t descr, type_ value)                                    \
    {                                                                                                                  \
        FLYT_SOFT_SPARSE_CHECK(descr);                                                                                 \
        descr->field_ = value;                                                                                         \
        return CUSPARSE_STATUS_SUCCESS;                                                                                \
    }
SETTER(Type, cusparseMatrixType_t, type)
SETTER(FillMode, cusparseFillMode_t, fill_mode)
SETTER(DiagType, cusparseDiagType_t, diag_type)
SETTER(IndexBase, cusparseIndexBase_t, base)

cusparseIndexBase_t flyt_soft_sparse_base(const struct cusparseMatDescr *descr)
{
    return descr->base;
}

bool flyt_soft_sparse_is_general(const struct cusparseMatDescr *descr)
{
    return descr->type == CUSPARSE_MATRIX_TYPE_GENERAL;
}

/* ---- vectors and dense matrices ---- */

FLYT_SOFT_CUSPARSE cusparseCreateSpVec(cusparseSpVecDescr_t *descr, int64_t size, int64_t nnz, void *indices,
                                       void *values, cusparseIndexType_t index_type, cusparseIndexBase_t base,
                                       cudaDataType type)
{
    const struct cusparseSpVecDescr one = {size, nnz, indices, values, index_type, base, type};

    FLYT_SOFT_SPARSE_CHECK(descr && size >= 0 && nnz >= 0 && nnz <= size && flyt_soft_index_bytes(index_type) &&
                           flyt_soft_number_bytes(type));
    return make(descr, &one, sizeof(one));
}

FLYT_SOFT_CUSPARSE cusparseDestroySpVec(cusparseConstSpVecDescr_t descr)
{
    return unmake(descr);
}

FLYT_SOFT_CUSPARSE cusparseCreateDnVec(cusparseDnVecDescr_t *descr, int64_t size, void *values, cudaDataType type)
{
    const struct flyt_soft_dense one = {size, 1, size, CUSPARSE_ORDER_COL, type, values, 1, 0};

    FLYT_SOFT_SPARSE_CHECK(descr && size >= 0 && flyt_soft_number_bytes(type));
    return make(descr, &one, sizeof(one));
}

FLYT_SOFT_CUSPARSE cusparseDestroyDnVec(cusparseConstDnVecDescr_t descr)
{
    return unmake(descr);
}

FLYT_SOFT_CUSPARSE cusparseCreateDnMat(cusparseDnMatDescr_t *descr, int64_t rows, int64_t columns, int64_t leading,
                                       void *values, cudaDataType type, cusparseOrder_t order)
{
    const struct flyt_soft_dense one = {rows, columns, leading, order, type, values, 1, 0};

    FLYT_SOFT_SPARSE_CHECK(descr && rows >= 0 && columns >= 0 && flyt_soft_number_bytes(type) &&
                           (order == CUSPARSE_ORDER_COL || order == CUSPARSE_ORDER_ROW) &&
                           leading >= (order == CUSPARSE_ORDER_COL ? rows : columns));
    return make(descr, &one, sizeof(one));
}

FLYT_SOFT_CUSPARSE cusparseDestroyDnMat(cusparseConstDnMatDescr_t descr)
{
    return unmake(descr);
}

FLYT_SOFT_CUSPARSE cusparseDnMatSetStridedBatch(cusparseDnMatDescr_t descr, int batch_count, int64_t stride)
{
    FLYT_SOFT_SPARSE_CHECK(descr && batch_count > 0 && stride >= 0);
    descr->dense.batch_count = batch_count;
    descr->dense.stride = stride;
    return CUSPARSE_STATUS_SUCCESS;
}

/* ---- sparse matrices ---- */

static cusparseStatus_t make_matrix(cusparseSpMatDescr_t *descr, struct cusparseSpMatDescr one)
{
    FLYT_SOFT_SPARSE_CHECK(descr && one.rows >= 0 && one.columns >= 0 && one.nnz >= 0 &&
                           flyt_soft_index_bytes(one.index_type) && flyt_soft_index_bytes(one.offset_type) &&
                           flyt_soft_number_bytes(one.type));
    one.batch_count = 1;
    return make(descr, &one, sizeof(one));
}

#define COMPRESSED(name_, format_)                                                                                     \
    FLYT_SOFT_CUSPARSE cusparseCreate##name_(cusparseSpMatDescr_t *descr, int64_t rows, int64_t columns, int64_t nnz,  \
                                             void *offsets, void *indices, void *values,                               \
                                             cusparseIndexType_t offset_type, cusparseIndexType_t index_type,          \
                                             cusparseIndexBase_t base, cudaDataType type)                              \
    {                                                                                                                  \
        return make_matrix(descr, (struct cusparseSpMatDescr){.format = format_,                                       \
                                                              .rows = rows,                                            \
                                                              .columns = columns,                                      \
                                                              .nnz = nnz,                                              \
                                                              .offsets = offsets,                                      \
                                                              .indices = indices,                                      \
                                                              .values = values,                                        \
                                                              .offset_type = offset_type,                              \
                                                              .index_type = index_type,                                \
                                                              .base = base,                                            \
                                                              .type = type});                                          \
    }
COMPRESSED(Csr, CUSPARSE_FORMAT_CSR)
COMPRESSED(Csc, CUSPARSE_FORMAT_CSC)

FLYT_SOFT_CUSPARSE cusparseCreateCoo(cusparseSpMatDescr_t *descr, int64_t rows, int64_t columns, int64_t nnz,
                                     void *row_indices, void *column_indices, void *values,
                                     cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type)
{
    return make_matrix(descr, (struct cusparseSpMatDescr){.format = CUSPARSE_FORMAT_COO,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .nnz = nnz,
                                                          .offsets = row_indices,
                                                          .indices = column_indices,
                                                          .values = values,
                                                          .offset_type = index_type,
                                                          .index_type = index_type,
                                                          .base = base,
                                                          .type = type});
}

FLYT_SOFT_CUSPARSE cusparseCreateBsr(cusparseSpMatDescr_t *descr, int64_t rows, int64_t columns, int64_t nnz,
                                     int64_t block_rows, int64_t block_columns, void *offsets, void *indices,
                                     void *values, cusparseIndexType_t offset_type, cusparseIndexType_t index_type,
                                     cusparseIndexBase_t base, cudaDataType type, cusparseOrder_t order)
{
    FLYT_SOFT_SPARSE_CHECK(block_rows > 0 && block_columns > 0);
    return make_matrix(descr, (struct cusparseSpMatDescr){.format = CUSPARSE_FORMAT_BSR,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .nnz = nnz,
                                                          .block_rows = block_rows,
                                                          .block_columns = block_columns,
                                                          .offsets = offsets,
                                                          .indices = indices,
                                                          .values = values,
                                                          .offset_type = offset_type,
                                                          .index_type = index_type,
                                                          .base = base,
                                                          .type = type,
                                                          .order = order});
}

FLYT_SOFT_CUSPARSE cusparseCreateBlockedEll(cusparseSpMatDescr_t *descr, int64_t rows, int64_t columns,
                                            int64_t block_rows, int64_t ell_columns, void *indices, void *values,
                                            cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type)
{
    FLYT_SOFT_SPARSE_CHECK(block_rows > 0 && ell_columns >= 0 && ell_columns % block_rows == 0 &&
                           rows % block_rows == 0);
    return make_matrix(descr, (struct cusparseSpMatDescr){.format = CUSPARSE_FORMAT_BLOCKED_ELL,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .block_rows = block_rows,
                                                          .ell_columns = ell_columns,
                                                          .indices = indices,
                                                          .values = values,
                                                          .offset_type = index_type,
                                                          .index_type = index_type,
                                                          .base = base,
                                                          .type = type});
}

FLYT_SOFT_CUSPARSE cusparseCreateSlicedEll(cusparseSpMatDescr_t *descr, int64_t rows, int64_t columns, int64_t nnz,
                                           int64_t values_count, int64_t slice_rows, void *offsets, void *indices,
                                           void *values, cusparseIndexType_t offset_type,
                                           cusparseIndexType_t index_type, cusparseIndexBase_t base, cudaDataType type)
{
    FLYT_SOFT_SPARSE_CHECK(slice_rows > 0 && values_count >= 0);
    return make_matrix(descr, (struct cusparseSpMatDescr){.format = CUSPARSE_FORMAT_SLICED_ELLPACK,
                                                          .rows = rows,
                                                          .columns = columns,
                                                          .nnz = nnz,
                                                          .values_count = values_count,
                                                          .slice_rows = slice_rows,
                                                          .offsets = offsets,
                                                          .indices = indices,
                                                          .values = values,
                                                          .offset_type = offset_type,
                                                          .index_type = index_type,
                                                          .base = base,
                                                          .type = type});
}

FLYT_SOFT_CUSPARSE cusparseDestroySpMat(cusparseConstSpMatDescr_t descr)
{
    return unmake(descr);
}

FLYT_SOFT_CUSPARSE cusparseSpMatGetSize(cusparseConstSpMatDescr_t descr, int64_t *rows, int64_t *columns, int64_t *nnz)
{
    FLYT_SOFT_SPARSE_CHECK(descr && rows && columns && nnz);
    *rows = descr->rows;
    *columns = descr->columns;
    *nnz = descr->nnz;
    return CUSPARSE_STATUS_SUCCESS;
}

static cusparseStatus_t set_batch(cusparseSpMatDescr_t descr, cusparseFormat_t format, int batch_count,
                                  int64_t offset_stride, int64_t index_stride, int64_t value_stride)
{
    FLYT_SOFT_SPARSE_CHECK(
        descr && (descr->format == format || (format == CUSPARSE_FORMAT_CSR && descr->format == CUSPARSE_FORMAT_CSC)) &&
        batch_count > 0 && offset_stride >= 0 && index_stride >= 0 && value_stride >= 0);
    descr->batch_count = batch_count;
    descr->offset_stride = offset_stride;
    descr->index_stride = index_stride;
    descr->value_stride = value_stride;
    return CUSPARSE_STATUS_SUCCESS;
}

FLYT_SOFT_CUSPARSE cusparseCooSetStridedBatch(cusparseSpMatDescr_t descr, int batch_count, int64_t stride)
{
    return set_batch(descr, CUSPARSE_FORMAT_COO, batch_count, stride, stride, stride);
}

FLYT_SOFT_CUSPARSE cusparseCsrSetStridedBatch(cusparseSpMatDescr_t descr, int batch_count, int64_t offset_stride,
                                              int64_t stride)
{
    return set_batch(descr, CUSPARSE_FORMAT_CSR, batch_count, offset_stride, stride, stride);
}

FLYT_SOFT_CUSPARSE cusparseBsrSetStridedBatch(cusparseSpMatDescr_t descr, int batch_count, int64_t offset_stride,
                                              int64_t index_stride, int64_t value_stride)
{
    return set_batch(descr, CUSPARSE_FORMAT_BSR, batch_count, offset_stride, index_stride, value_stride);
}

FLYT_SOFT_CUSPARSE cusparseSpMatSetAttribute(cusparseSpMatDescr_t descr, cusparseSpMatAttribute_t attribute, void *data,
                                             size_t bytes)
{
    int value;

    FLYT_SOFT_SPARSE_CHECK(descr && data && bytes == sizeof(value) && (unsigned)attribute <= CUSPARSE_SPMAT_DIAG_TYPE);
    memcpy(&value, data, sizeof(value));
    if (attribute == CUSPARSE_SPMAT_FILL_MODE)
        descr->fill_mode = (cusparseFillMode_t)value;
    else
        descr->diag_type = (cusparseDiagType_t)value;
    return CUSPARSE_STATUS_SUCCESS;
}
