/*
 * cuBLAS: batches of small systems, over LAPACK. `info` of some functions is in device memory and tells of each matrix,
 * that of others is in host memory and tells of the arguments alone: those are given 0.
 */
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/solver.h"

enum { PANEL = 64, INVERSE_MAX = 32 };

static void copy_matrix(void *to, int64_t to_leading, const void *from, int64_t from_leading, int rows, int columns,
                        unsigned bytes)
{
    for (int64_t j = 0; j < columns; j++)
        memmove((char *)to + j * to_leading * bytes, (const char *)from + j * from_leading * bytes,
                (size_t)rows * bytes);
}

/* The member's pivots; where there are none, those that exchange nothing, which the caller frees. */
static int *pivots_of(const struct flyt_soft_blas *c, int64_t member)
{
    int *pivots;

    if (c->pivots)
        return c->pivots + member * c->n;
    pivots = malloc(sizeof(int) * ((size_t)c->n + 1));
    for (int i = 0; pivots && i < c->n; i++)
        pivots[i] = i + 1;
    return pivots;
}

static void pivots_end(const struct flyt_soft_blas *c, int *pivots)
{
    if (!c->pivots)
        free(pivots);
}

static bool kernel_getrf(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    int info = 0;

    if (c->pivots)
        FORTRAN(c->fn, &c->n, &c->n, at[0], &c->lda, c->pivots + member * c->n, &info);
    else
        info = flyt_soft_factor_in_order(flyt_soft_letter_type(c->letter), at[0], c->lda, c->n, c->n);
    c->infos[member] = info;
    return true;
}

static bool kernel_getrs(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    int *pivots = pivots_of(c, member), info = 0;

    if (!pivots)
        return false;
    FORTRAN(c->fn, &c->transa, &c->n, &c->m, at[0], &c->lda, pivots, at[1], &c->ldb, &info);
    pivots_end(c, pivots);
    return true;
}

/* The inverse of a factored matrix in operand 0, in operand 1; `fn` is getri. */
static int invert(const struct flyt_soft_blas *c, void *const at[], const int *pivots, void *work)
{
    int work_count = c->n * PANEL, info = 0;

    FORTRAN(c->fn, &c->n, at[1], &c->ldb, pivots, work, &work_count, &info);
    return info;
}

static bool kernel_getri(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    unsigned bytes = flyt_soft_letter_bytes(c->letter);
    void *work = malloc((size_t)c->n * PANEL * bytes);
    int *pivots = pivots_of(c, member);
    bool has_memory = work && pivots;

    if (has_memory) {
        copy_matrix(at[1], c->ldb, at[0], c->lda, c->n, c->n, bytes);
        c->infos[member] = invert(c, at, pivots, work);
    }
    free(work);
    pivots_end(c, pivots);
    return has_memory;
}

/* Both in one: `fn2` is getrf. */
static bool kernel_matinv(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    unsigned bytes = flyt_soft_letter_bytes(c->letter);
    void *work = malloc((size_t)c->n * PANEL * bytes);
    int pivots[INVERSE_MAX], info = 0;

    if (!work)
        return false;
    copy_matrix(at[1], c->ldb, at[0], c->lda, c->n, c->n, bytes);
    FORTRAN(c->fn2, &c->n, &c->n, at[1], &c->ldb, pivots, &info);
    c->infos[member] = info ? info : invert(c, at, pivots, work);
    free(work);
    return true;
}

static bool kernel_geqrf(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    int work_count = c->n * PANEL, info = 0;
    void *work = malloc((size_t)work_count * flyt_soft_letter_bytes(c->letter));

    if (!work)
        return false;
    FORTRAN(c->fn, &c->m, &c->n, at[0], &c->lda, at[1], work, &work_count, &info);
    free(work);
    return true;
}

static bool kernel_gels(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    int work_count = (c->n + c->k) * PANEL + c->m, info = 0;
    void *work = malloc((size_t)work_count * flyt_soft_letter_bytes(c->letter));

    if (!work)
        return false;
    FORTRAN(c->fn, &c->transa, &c->m, &c->n, &c->k, at[0], &c->lda, at[1], &c->ldb, work, &work_count, &info);
    if (c->infos)
        c->infos[member] = info;
    free(work);
    return true;
}

/* ---- functions; each fills in what its kernel needs, and push checks and pushes it ---- */

/* a: a_rows × a_columns, b: b_rows × b_columns, both as arrays of pointers; b_columns 0: there is no b. */
static cublasStatus_t push(cublasHandle_t handle, struct flyt_soft_blas *call, enum flyt_soft_routine routine,
                           const void *a, int a_rows, int a_columns, int64_t lda, const void *b, int b_rows,
                           int b_columns, int64_t ldb)
{
    unsigned bytes = flyt_soft_letter_bytes(call->letter);

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (call->m < 0 || call->n < 0 || call->k < 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, a_rows, &call->lda));
    if (b_columns)
        FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldb, b_rows, &call->ldb));
    FLYT_SOFT_CHECK(flyt_soft_blas_routine(call, routine));
    if (a_rows == 0 || a_columns == 0)
        return call->batch_count < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    call->operands[0] = flyt_soft_array_of(flyt_soft_matrix(a, a_rows, a_columns, lda, bytes, 0));
    if (b_columns)
        call->operands[1] = flyt_soft_array_of(flyt_soft_matrix(b, b_rows, b_columns, ldb, bytes, 0));
    return flyt_soft_blas_push(handle, call);
}

#define CALL(kernel_, letter_, batch_, ...)                                                                            \
    struct flyt_soft_blas call = {.kernel = kernel_, .letter = FLYT_SOFT_##letter_, .batch_count = batch_, __VA_ARGS__}

#define SOLVES(letter_, T_)                                                                                            \
    FLYT_SOFT_CUBLAS cublas##letter_##getrfBatched(cublasHandle_t handle, int n, T_ *const A[], int lda, int *P,       \
                                                   int *info, int batchSize)                                           \
    {                                                                                                                  \
        CALL(kernel_getrf, letter_, batchSize, .n = n, .pivots = P, .infos = info);                                    \
        return info ? push(handle, &call, FLYT_SOFT_GETRF, A, n, n, lda, NULL, 0, 0, 0) : CUBLAS_STATUS_INVALID_VALUE; \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##getriBatched(cublasHandle_t handle, int n, const T_ *const A[], int lda,         \
                                                   const int *P, T_ *const C[], int ldc, int *info, int batchSize)     \
    {                                                                                                                  \
        CALL(kernel_getri, letter_, batchSize, .n = n, .pivots = (int *)P, .infos = info);                             \
        return info ? push(handle, &call, FLYT_SOFT_GETRI, A, n, n, lda, C, n, n, ldc) : CUBLAS_STATUS_INVALID_VALUE;  \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##getrsBatched(cublasHandle_t handle, cublasOperation_t trans, int n, int nrhs,    \
                                                   const T_ *const Aarray[], int lda, const int *devIpiv,              \
                                                   T_ *const Barray[], int ldb, int *info, int batchSize)              \
    {                                                                                                                  \
        CALL(kernel_getrs, letter_, batchSize, .n = n, .m = nrhs, .pivots = (int *)devIpiv);                           \
        FLYT_SOFT_CHECK(flyt_soft_blas_operation(trans, &call.transa));                                                \
        if (!info)                                                                                                     \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        *info = 0;                                                                                                     \
        return nrhs == 0 ? CUBLAS_STATUS_SUCCESS                                                                       \
                         : push(handle, &call, FLYT_SOFT_GETRS, Aarray, n, n, lda, Barray, n, nrhs, ldb);              \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##matinvBatched(cublasHandle_t handle, int n, const T_ *const A[], int lda,        \
                                                    T_ *const Ainv[], int lda_inv, int *info, int batchSize)           \
    {                                                                                                                  \
        CALL(kernel_matinv, letter_, batchSize, .n = n, .infos = info,                                                 \
             .fn2 = flyt_soft_routine(FLYT_SOFT_GETRF, FLYT_SOFT_##letter_));                                          \
        return info && n <= INVERSE_MAX ? push(handle, &call, FLYT_SOFT_GETRI, A, n, n, lda, Ainv, n, n, lda_inv)      \
                                        : CUBLAS_STATUS_INVALID_VALUE;                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##geqrfBatched(cublasHandle_t handle, int m, int n, T_ *const Aarray[], int lda,   \
                                                   T_ *const TauArray[], int *info, int batchSize)                     \
    {                                                                                                                  \
        CALL(kernel_geqrf, letter_, batchSize, .m = m, .n = n);                                                        \
        if (!info)                                                                                                     \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        *info = 0;                                                                                                     \
        return push(handle, &call, FLYT_SOFT_GEQRF, Aarray, m, n, lda, TauArray, m < n ? m : n, 1, m < n ? n : m);     \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##gelsBatched(cublasHandle_t handle, cublasOperation_t trans, int m, int n,        \
                                                  int nrhs, T_ *const Aarray[], int lda, T_ *const Carray[], int ldc,  \
                                                  int *info, int *devInfoArray, int batchSize)                         \
    {                                                                                                                  \
        CALL(kernel_gels, letter_, batchSize, .m = m, .n = n, .k = nrhs, .transa = 'N', .infos = devInfoArray);        \
        if (!info)                                                                                                     \
            return CUBLAS_STATUS_INVALID_VALUE;                                                                        \
        *info = 0;                                                                                                     \
        if (trans != CUBLAS_OP_N || m < n)                                                                             \
            return CUBLAS_STATUS_NOT_SUPPORTED;                                                                        \
        return nrhs == 0 ? CUBLAS_STATUS_SUCCESS                                                                       \
                         : push(handle, &call, FLYT_SOFT_GELS, Aarray, m, n, lda, Carray, m, nrhs, ldc);               \
    }
SOLVES(S, float)
SOLVES(D, double)
SOLVES(C, cuComplex)
SOLVES(Z, cuDoubleComplex)
