/* cuSPARSE: orders of indices, and row offsets from and to row indices, in 32 bits. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/sparse.h"

/* ---- sorting ---- */

/* Sorts `major`, then `minor`; where `offsets` are given, `minor` alone within each of `count` rows. */
struct sorting {
    const int *offsets;
    int *major, *minor, *permutation; /* NULL: none */
    int count, nnz, base;
};

struct pair {
    int major, minor, place;
};

static int compare(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;

    if (a->major != b->major)
        return a->major < b->major ? -1 : 1;
    if (a->minor != b->minor)
        return a->minor < b->minor ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

static bool sorting_reaches(const struct sorting *self)
{
    uint64_t bytes = (uint64_t)self->nnz * sizeof(int);

    return flyt_soft_work_reaches(self->minor, bytes) && (!self->major || flyt_soft_work_reaches(self->major, bytes)) &&
           (!self->permutation || flyt_soft_work_reaches(self->permutation, bytes)) &&
           (!self->offsets || flyt_soft_work_reaches(self->offsets, ((uint64_t)self->count + 1) * sizeof(int)));
}

/* The row of each number. False: the offsets are none. */
static bool find_majors(const struct sorting *self, struct pair *pairs)
{
    for (int i = 0; self->major && i < self->nnz; i++)
        pairs[i].major = self->major[i];
    for (int row = 0; !self->major && row < self->count; row++)
        for (int k = self->offsets[row] - self->base; k < self->offsets[row + 1] - self->base; k++) {
            if (k < 0 || k >= self->nnz)
                return false;
            pairs[k].major = row;
        }
    return true;
}

static CUresult run_sort(void *record)
{
    const struct sorting *self = record;
    struct pair *pairs;
    int *old;
    bool is_well;

    if (!sorting_reaches(self))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    pairs = calloc((size_t)self->nnz + 1, sizeof(*pairs));
    old = malloc(((size_t)self->nnz + 1) * sizeof(*old));
    is_well = pairs && old;
    for (int i = 0; is_well && i < self->nnz; i++) {
        pairs[i].minor = self->minor[i];
        pairs[i].place = i;
        old[i] = self->permutation ? self->permutation[i] : 0;
    }
    bool is_found = is_well && find_majors(self, pairs);
    if (is_found) {
        qsort(pairs, (size_t)self->nnz, sizeof(*pairs), compare);
        for (int i = 0; i < self->nnz; i++) {
            self->minor[i] = pairs[i].minor;
            if (self->major)
                self->major[i] = pairs[i].major;
            if (self->permutation)
                self->permutation[i] = old[pairs[i].place];
        }
    }
    free(pairs);
    free(old);
    return !is_well ? CUDA_ERROR_OUT_OF_MEMORY : is_found ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static cusparseStatus_t sort(cusparseHandle_t handle, struct sorting self)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_SPARSE_CHECK(self.count >= 0 && self.nnz >= 0);
    return flyt_soft_sparse_status(flyt_soft_work_push(handle->stream, run_sort, NULL, &self, sizeof(self)));
}

FLYT_SOFT_CUSPARSE cusparseXcoosort_bufferSizeExt(cusparseHandle_t handle, int m, int n, int nnz, const int *rows,
                                                  const int *columns, size_t *ret_bytes)
{
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseXcoosortByRow(cusparseHandle_t handle, int m, int n, int nnz, int *rows, int *columns,
                                         int *permutation, void *buffer)
{
    return sort(handle, (struct sorting){NULL, rows, columns, permutation, m, nnz, 0});
}

FLYT_SOFT_CUSPARSE cusparseXcoosortByColumn(cusparseHandle_t handle, int m, int n, int nnz, int *rows, int *columns,
                                            int *permutation, void *buffer)
{
    return sort(handle, (struct sorting){NULL, columns, rows, permutation, n, nnz, 0});
}

FLYT_SOFT_CUSPARSE cusparseXcsrsort_bufferSizeExt(cusparseHandle_t handle, int m, int n, int nnz, const int *offsets,
                                                  const int *columns, size_t *ret_bytes)
{
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseXcsrsort(cusparseHandle_t handle, int m, int n, int nnz, const cusparseMatDescr_t descr,
                                    const int *offsets, int *columns, int *permutation, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(descr && offsets);
    int base = (int)flyt_soft_sparse_base(descr);
    return sort(handle, (struct sorting){offsets, NULL, columns, permutation, m, nnz, base});
}

FLYT_SOFT_CUSPARSE cusparseXcscsort_bufferSizeExt(cusparseHandle_t handle, int m, int n, int nnz, const int *offsets,
                                                  const int *rows, size_t *ret_bytes)
{
    return flyt_soft_sparse_buffer(handle, ret_bytes);
}

FLYT_SOFT_CUSPARSE cusparseXcscsort(cusparseHandle_t handle, int m, int n, int nnz, const cusparseMatDescr_t descr,
                                    const int *offsets, int *rows, int *permutation, void *buffer)
{
    FLYT_SOFT_SPARSE_CHECK(descr && offsets);
    int base = (int)flyt_soft_sparse_base(descr);
    return sort(handle, (struct sorting){offsets, NULL, rows, permutation, n, nnz, base});
}

/* ---- offsets ---- */

struct counting {
    const int *from;
    int *to;
    int rows, nnz, base;
};

static CUresult run_identity(void *record)
{
    const struct counting *self = record;

    if (!flyt_soft_work_reaches(self->to, (uint64_t)self->nnz * sizeof(int)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int i = 0; i < self->nnz; i++)
        self->to[i] = i;
    return CUDA_SUCCESS;
}

/* Of rising row indices. */
static CUresult run_to_offsets(void *record)
{
    const struct counting *self = record;
    int k = 0;

    if (!flyt_soft_work_reaches(self->from, (uint64_t)self->nnz * sizeof(int)) ||
        !flyt_soft_work_reaches(self->to, ((uint64_t)self->rows + 1) * sizeof(int)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int row = 0; row <= self->rows; row++) {
        while (k < self->nnz && self->from[k] - self->base < row)
            k++;
        self->to[row] = k + self->base;
    }
    return CUDA_SUCCESS;
}

static CUresult run_to_rows(void *record)
{
    const struct counting *self = record;

    if (!flyt_soft_work_reaches(self->from, ((uint64_t)self->rows + 1) * sizeof(int)) ||
        !flyt_soft_work_reaches(self->to, (uint64_t)self->nnz * sizeof(int)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    for (int row = 0; row < self->rows; row++)
        for (int k = self->from[row] - self->base; k < self->from[row + 1] - self->base; k++) {
            if (k < 0 || k >= self->nnz)
                return CUDA_ERROR_ILLEGAL_ADDRESS;
            self->to[k] = row + self->base;
        }
    return CUDA_SUCCESS;
}

static cusparseStatus_t push(cusparseHandle_t handle, flyt_soft_work_fn run, struct counting self)
{
    if (!handle)
        return CUSPARSE_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_SPARSE_CHECK(self.rows >= 0 && self.nnz >= 0);
    return flyt_soft_sparse_status(flyt_soft_work_push(handle->stream, run, NULL, &self, sizeof(self)));
}

FLYT_SOFT_CUSPARSE cusparseCreateIdentityPermutation(cusparseHandle_t handle, int n, int *permutation)
{
    return push(handle, run_identity, (struct counting){.to = permutation, .nnz = n});
}

FLYT_SOFT_CUSPARSE cusparseXcoo2csr(cusparseHandle_t handle, const int *rows, int nnz, int m, int *offsets,
                                    cusparseIndexBase_t base)
{
    return push(handle, run_to_offsets, (struct counting){rows, offsets, m, nnz, (int)base});
}

FLYT_SOFT_CUSPARSE cusparseXcsr2coo(cusparseHandle_t handle, const int *offsets, int nnz, int m, int *rows,
                                    cusparseIndexBase_t base)
{
    return push(handle, run_to_rows, (struct counting){offsets, rows, m, nnz, (int)base});
}
