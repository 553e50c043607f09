/*
 * cuSPARSE on the CPU: what its files share. A function puts what it needs of its descriptors, which may end before the
 * stream is there, into a record. Arithmetic is that of complex doubles, rounded to a result's type at the end.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_SPARSE_H
#define FLYT_SOFTGPU_LIBRARY_SPARSE_H

#include <complex.h>
#include <cuda.h>
#define DISABLE_CUSPARSE_DEPRECATED /* its own declarations use what it deprecates */
#include <cusparse.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"

#define FLYT_SOFT_CUSPARSE __attribute__((visibility("default"))) cusparseStatus_t

typedef double _Complex flyt_soft_complex;

struct cusparseContext {
    CUstream stream;
    cusparsePointerMode_t pointer_mode;
};

/* A dense matrix; a vector has one column. */
struct flyt_soft_dense {
    int64_t rows, columns, leading;
    cusparseOrder_t order;
    cudaDataType type;
    void *values;
    int batch_count;
    int64_t stride; /* numbers from one of a batch to the next */
};
struct cusparseDnVecDescr {
    struct flyt_soft_dense dense;
};
struct cusparseDnMatDescr {
    struct flyt_soft_dense dense;
};

struct cusparseSpVecDescr {
    int64_t size, nnz;
    void *indices, *values;
    cusparseIndexType_t index_type;
    cusparseIndexBase_t base;
    cudaDataType type;
};

/* Rows, columns and nnz of BSR are those of blocks. */
struct cusparseSpMatDescr {
    cusparseFormat_t format;
    int64_t rows, columns, nnz;
    int64_t block_rows, block_columns; /* BSR; Blocked ELL has the first alone */
    int64_t ell_columns, values_count, slice_rows;
    void *offsets, *indices, *values; /* of COO: rows, columns, values */
    cusparseIndexType_t offset_type, index_type;
    cusparseIndexBase_t base;
    cudaDataType type;
    cusparseOrder_t order;
    int batch_count;
    int64_t offset_stride, index_stride, value_stride;
    cusparseFillMode_t fill_mode;
    cusparseDiagType_t diag_type;
};

/* One number of a sparse matrix. */
struct flyt_soft_entry {
    int64_t row, column;
    void *value;
};

/* A call's record. */
struct flyt_soft_sparse {
    CUresult (*kernel)(struct flyt_soft_sparse *call);
    struct flyt_soft_scalar alpha, beta;
    cudaDataType alpha_type, beta_type; /* 0 bytes of alpha or beta: there is none */
    cusparseOperation_t op_a, op_b;
    struct cusparseSpMatDescr sparse;
    struct cusparseSpVecDescr vector;
    struct flyt_soft_dense dense, other, result;
    cudaDataType compute_type;
    void *out; /* in device memory */
    flyt_soft_complex *host_out;
    int64_t *host_count;
};

/* ---- numbers and indices ---- */

unsigned flyt_soft_index_bytes(cusparseIndexType_t type);
int64_t flyt_soft_index_get(cusparseIndexType_t type, const void *base, int64_t index);
void flyt_soft_index_put(cusparseIndexType_t type, void *base, int64_t index, int64_t value);
flyt_soft_complex flyt_soft_scalar_number(const struct flyt_soft_scalar *scalar, cudaDataType type);

/* Member `member` of the batch; one alone stands for all. False: not all of it is in reach. */
bool flyt_soft_dense_find(const struct flyt_soft_dense *dense, int64_t member, struct flyt_soft_dense *ret_one);
void *flyt_soft_dense_at(const struct flyt_soft_dense *dense, int64_t row, int64_t column);
/* Of op(dense). */
flyt_soft_complex flyt_soft_dense_get(const struct flyt_soft_dense *dense, cusparseOperation_t op, int64_t row,
                                      int64_t column);

/* All numbers of one member of a batch of sparse matrices, in the order in which they are stored. *ret_list is the
 * caller's to free, on failure NULL. ILLEGAL_ADDRESS: out of reach, or an index out of the matrix. */
CUresult flyt_soft_entries_load(const struct cusparseSpMatDescr *matrix, int64_t member,
                                struct flyt_soft_entry **ret_list, int64_t *ret_count);
/* By rows, then by columns. */
void flyt_soft_entries_sort(struct flyt_soft_entry *list, int64_t count);

/* ---- calls ---- */

cusparseIndexBase_t flyt_soft_sparse_base(const struct cusparseMatDescr *descr);
bool flyt_soft_sparse_is_general(const struct cusparseMatDescr *descr);

/* Takes a scalar as the handle's pointer mode says. */
bool flyt_soft_sparse_scalar(cusparseHandle_t handle, struct flyt_soft_scalar *scalar, const void *value,
                             cudaDataType type);
cusparseStatus_t flyt_soft_sparse_status(CUresult r);
/* Launches it; is_awaited: returns when it is done. */
cusparseStatus_t flyt_soft_sparse_push(cusparseHandle_t handle, const struct flyt_soft_sparse *call, bool is_awaited);
/* What every bufferSize answers: a buffer that nothing is written into. */
cusparseStatus_t flyt_soft_sparse_buffer(cusparseHandle_t handle, size_t *ret_bytes);

#define FLYT_SOFT_SPARSE_CHECK(condition_)                                                                             \
    do {                                                                                                               \
        if (!(condition_))                                                                                             \
            return CUSPARSE_STATUS_INVALID_VALUE;                                                                      \
    } while (0)

#endif
