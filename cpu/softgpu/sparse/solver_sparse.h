/*
 * cuSOLVER's sparse part and refactorization on the CPU: what their files share. Matrices are computed with as dense
 * ones of complex doubles, which their size bounds, and results are rounded to their type at the end.
 */
#ifndef FLYT_SOFTGPU_LIBRARY_SOLVER_SPARSE_H
#define FLYT_SOFTGPU_LIBRARY_SOLVER_SPARSE_H

#include <cuda.h>
#define DISABLE_CUSPARSE_DEPRECATED
#define DISABLE_CUSOLVER_DEPRECATED /* its own declarations use what it deprecates */
#include <cusolverSp.h>
#include <cusolverSp_LOWLEVEL_PREVIEW.h>
#include <stdbool.h>
#include <stdint.h>

#include "cpu/softgpu/library/solver.h"
#include "cpu/softgpu/sparse/sparse.h"

struct cusolverSpContext {
    CUstream stream;
};

/* Rows and columns of a matrix that is made dense. */
enum { FLYT_SOFT_SPARSE_DENSE_MAX = 8192 };

/* A matrix in CSR. */
struct flyt_soft_csr {
    cudaDataType type;
    int rows, columns, nnz, base;
    const void *values; /* NULL: the pattern alone */
    const int *offsets, *indices;
    bool is_device; /* else it is the caller's memory */
};

/* Describes one. NOT_INITIALIZED, INVALID_VALUE, MATRIX_TYPE_NOT_SUPPORTED. */
cusolverStatus_t flyt_soft_csr_begin(cusolverSpHandle_t handle, struct flyt_soft_csr *csr, int rows, int columns,
                                     int nnz, cusparseMatDescr_t descr, const int *offsets, const int *indices);
/* Whether all of it is in reach, and its offsets and indices are within it. Device memory: in the stream's work alone.
 */
bool flyt_soft_csr_is_sound(const struct flyt_soft_csr *csr);
/* Columns one behind the other, the caller's to free; NULL: no memory, or too large. */
flyt_soft_complex *flyt_soft_csr_dense(const struct flyt_soft_csr *csr);

#endif
