/*
 * cuSOLVER: eigenvalues and singular values. The functions that NVIDIA computes by Jacobi's method (…j) are executed by
 * the same routines of LAPACK as the others: their tolerance and their sweeps are kept and change nothing.
 */
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/library/solver.h"

/* ---- parameters of Jacobi's method ---- */

struct syevjInfo {
    double tolerance;
    int sweeps_max, is_sorted;
};

struct gesvdjInfo {
    double tolerance;
    int sweeps_max, is_sorted;
};

#define JACOBI(name_, Name_)                                                                                           \
    FLYT_SOFT_CUSOLVER cusolverDnCreate##Name_##Info(name_##Info_t *info)                                              \
    {                                                                                                                  \
        if (!info)                                                                                                     \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        *info = calloc(1, sizeof(**info));                                                                             \
        return *info ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnDestroy##Name_##Info(name_##Info_t info)                                              \
    {                                                                                                                  \
        free(info);                                                                                                    \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnX##name_##SetTolerance(name_##Info_t info, double tolerance)                          \
    {                                                                                                                  \
        if (!info)                                                                                                     \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        info->tolerance = tolerance;                                                                                   \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnX##name_##SetMaxSweeps(name_##Info_t info, int max_sweeps)                            \
    {                                                                                                                  \
        if (!info)                                                                                                     \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        info->sweeps_max = max_sweeps;                                                                                 \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnX##name_##SetSortEig(name_##Info_t info, int is_sorted)                               \
    {                                                                                                                  \
        if (!info)                                                                                                     \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        info->is_sorted = is_sorted;                                                                                   \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnX##name_##GetResidual(cusolverDnHandle_t handle, name_##Info_t info,                  \
                                                       double *residual)                                               \
    {                                                                                                                  \
        if (!handle || !info || !residual)                                                                             \
            return handle ? CUSOLVER_STATUS_INVALID_VALUE : CUSOLVER_STATUS_NOT_INITIALIZED;                           \
        *residual = 0;                                                                                                 \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDnX##name_##GetSweeps(cusolverDnHandle_t handle, name_##Info_t info,                    \
                                                     int *executed_sweeps)                                             \
    {                                                                                                                  \
        if (!handle || !info || !executed_sweeps)                                                                      \
            return handle ? CUSOLVER_STATUS_INVALID_VALUE : CUSOLVER_STATUS_NOT_INITIALIZED;                           \
        *executed_sweeps = 1;                                                                                          \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }
JACOBI(syevj, Syevj)
JACOBI(gesvdj, Gesvdj)

/* ---- eigenvalues: A in operand 0, B in 1, the values in 2 ---- */

static bool kernel_syevd(const struct flyt_soft_solver *c, int *ret_info)
{
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do {
        if (c->letter >= FLYT_SOFT_C)
            FORTRAN(c->fn, &c->job, &c->uplo, &c->n, c->at[0], &c->lda, c->at[2], s.work, &s.work_count, s.real,
                    &s.real_count, s.ints, &s.int_count, ret_info);
        else
            FORTRAN(c->fn, &c->job, &c->uplo, &c->n, c->at[0], &c->lda, c->at[2], s.work, &s.work_count, s.ints,
                    &s.int_count, ret_info);
    } while (flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    return s.has_memory;
}

static bool kernel_sygvd(const struct flyt_soft_solver *c, int *ret_info)
{
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do {
        if (c->letter >= FLYT_SOFT_C)
            FORTRAN(c->fn, &c->type, &c->job, &c->uplo, &c->n, c->at[0], &c->lda, c->at[1], &c->ldb, c->at[2], s.work,
                    &s.work_count, s.real, &s.real_count, s.ints, &s.int_count, ret_info);
        else
            FORTRAN(c->fn, &c->type, &c->job, &c->uplo, &c->n, c->at[0], &c->lda, c->at[1], &c->ldb, c->at[2], s.work,
                    &s.work_count, s.ints, &s.int_count, ret_info);
    } while (flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    return s.has_memory;
}

/* b NULL and type 0: there is no B. */
static cusolverStatus_t eigen(cusolverDnHandle_t handle, enum flyt_soft_letter letter, int type, cusolverEigMode_t mode,
                              cublasFillMode_t uplo, int64_t n, void *a, int64_t lda, void *b, int64_t ldb, void *w,
                              int *info, int64_t batch_count)
{
    bool is_complex = letter >= FLYT_SOFT_C;
    struct flyt_soft_solver call = {
        .kernel = type ? kernel_sygvd : kernel_syevd,
        .letter = letter,
        .job = mode == CUSOLVER_EIG_MODE_VECTOR ? 'V' : 'N',
        .type = type,
        .info = info,
        .batch_count = batch_count,
        .is_empty = batch_count == 0,
    };

    if (type)
        call.routine = is_complex ? FLYT_SOFT_HEGVD : FLYT_SOFT_SYGVD;
    else
        call.routine = is_complex ? FLYT_SOFT_HEEVD : FLYT_SOFT_SYEVD;
    if (!flyt_soft_solver_fill(uplo, &call.uplo) || (unsigned)mode > CUSOLVER_EIG_MODE_VECTOR || type < 0 || type > 3)
        return CUSOLVER_STATUS_INVALID_VALUE;
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call.n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, n, &call.lda));
    flyt_soft_solver_matrix(&call, 0, a, n, n, lda);
    if (type) {
        FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(ldb, n, &call.ldb));
        flyt_soft_solver_matrix(&call, 1, b, n, n, ldb);
    }
    flyt_soft_solver_real_vector(&call, 2, w, n);
    return flyt_soft_solver_push(handle, &call);
}

/* ---- singular values: A in operand 0, U in 1, V or its transpose in 2, the values in 3 ---- */

static bool kernel_gesvd(const struct flyt_soft_solver *c, int *ret_info)
{
    int least = c->m < c->n ? c->m : c->n;
    void *real = malloc((size_t)(5 * least + 1) * 8);
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do
        FORTRAN(c->fn, &c->job, &c->job2, &c->m, &c->n, c->at[0], &c->lda, c->at[3], c->at[1], &c->ldb, c->at[2],
                &c->ldc, s.work, &s.work_count, c->letter >= FLYT_SOFT_C ? real : (void *)ret_info, ret_info);
    while (real && flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    free(real);
    return real && s.has_memory;
}

/* Jacobi's functions give V itself, and take every shape. */
static bool kernel_gesvdj(const struct flyt_soft_solver *c, int *ret_info)
{
    cudaDataType type = flyt_soft_letter_type(c->letter);
    unsigned bytes = flyt_soft_number_bytes(type);
    int least = c->m < c->n ? c->m : c->n, rows = c->is_economic ? least : c->n;
    struct flyt_soft_solver inner = *c;
    char *transposed = NULL;
    bool has_memory;

    inner.job = inner.job2 = c->job == 'N' ? 'N' : c->is_economic ? 'S' : 'A';
    if (c->job != 'N') {
        transposed = malloc((size_t)rows * (size_t)c->n * bytes + 1);
        if (!transposed)
            return false;
        inner.at[2] = transposed;
        inner.ldc = rows;
    }
    has_memory = kernel_gesvd(&inner, ret_info);
    for (int64_t j = 0; j < rows && has_memory && transposed; j++)
        for (int64_t i = 0; i < c->n; i++)
            flyt_soft_number_put(type, (char *)c->at[2] + (i + j * c->ldc) * bytes,
                                 conj(flyt_soft_number_get(type, transposed + (j + i * rows) * bytes)));
    free(transposed);
    return has_memory;
}

/* The shapes of U and of V or its transpose, which may have none of its own. */
static cusolverStatus_t svd_push(cusolverDnHandle_t handle, struct flyt_soft_solver *call, int64_t m, int64_t n,
                                 void *a, int64_t lda, void *s, void *u, int64_t u_columns, int64_t ldu, void *v,
                                 int64_t v_rows, int64_t v_columns, int64_t ldv)
{
    call->routine = FLYT_SOFT_GESVD;
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(m, &call->m));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call->n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, m, &call->lda));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(ldu, u_columns ? m : 1, &call->ldb));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(ldv, v_columns ? v_rows : 1, &call->ldc));
    if (m == 0 || n == 0)
        call->is_empty = true;
    flyt_soft_solver_matrix(call, 0, a, m, n, lda);
    flyt_soft_solver_matrix(call, 1, u, m, u_columns, ldu);
    flyt_soft_solver_matrix(call, 2, v, v_rows, v_columns, ldv);
    flyt_soft_solver_real_vector(call, 3, s, m < n ? m : n);
    return flyt_soft_solver_push(handle, call);
}

static cusolverStatus_t svd(cusolverDnHandle_t handle, enum flyt_soft_letter letter, signed char jobu,
                            signed char jobvt, int64_t m, int64_t n, void *a, int64_t lda, void *s, void *u,
                            int64_t ldu, void *vt, int64_t ldvt, int *info)
{
    struct flyt_soft_solver call = {.kernel = kernel_gesvd, .letter = letter, .info = info};
    int64_t least = m < n ? m : n;

    call.job = (char)jobu;
    call.job2 = (char)jobvt;
    if (!memchr("ASON", jobu, 4) || !memchr("ASON", jobvt, 4) || (jobu == 'O' && jobvt == 'O') || m < n)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return svd_push(handle, &call, m, n, a, lda, s, u,
                    jobu == 'A'   ? m
                    : jobu == 'S' ? least
                                  : 0,
                    ldu, vt, jobvt == 'S' ? least : n, jobvt == 'A' || jobvt == 'S' ? n : 0, ldvt);
}

static cusolverStatus_t svd_jacobi(cusolverDnHandle_t handle, enum flyt_soft_letter letter, cusolverEigMode_t mode,
                                   bool is_economic, int64_t m, int64_t n, void *a, int64_t lda, void *s, void *u,
                                   int64_t ldu, void *v, int64_t ldv, int *info, int64_t batch_count)
{
    bool has_vectors = mode == CUSOLVER_EIG_MODE_VECTOR;
    struct flyt_soft_solver call = {
        .kernel = kernel_gesvdj,
        .letter = letter,
        .job = has_vectors ? 'V' : 'N',
        .is_economic = is_economic,
        .info = info,
        .batch_count = batch_count,
        .is_empty = batch_count == 0,
    };
    int64_t least = m < n ? m : n;

    if ((unsigned)mode > CUSOLVER_EIG_MODE_VECTOR)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return svd_push(handle, &call, m, n, a, lda, s, u,
                    !has_vectors  ? 0
                    : is_economic ? least
                                  : m,
                    ldu, v, n,
                    !has_vectors  ? 0
                    : is_economic ? least
                                  : n,
                    ldv);
}

/* ---- of one type: names differ between real and complex types ---- */

#define SPECTRUM(letter_, T_, R_, sy_)                                                                                 \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##evd_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t jobz,     \
                                                                cublasFillMode_t uplo, int n, const T_ *A, int lda,    \
                                                                const R_ *W, int *lwork)                               \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##evd(cusolverDnHandle_t handle, cusolverEigMode_t jobz,                \
                                                     cublasFillMode_t uplo, int n, T_ *A, int lda, R_ *W, T_ *work,    \
                                                     int lwork, int *info)                                             \
    {                                                                                                                  \
        return eigen(handle, FLYT_SOFT_##letter_, 0, jobz, uplo, n, A, lda, NULL, 0, W, info, 1);                      \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##evj_bufferSize(cusolverDnHandle_t handle, cusolverEigMode_t jobz,     \
                                                                cublasFillMode_t uplo, int n, const T_ *A, int lda,    \
                                                                const R_ *W, int *lwork, syevjInfo_t params)           \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##evj(cusolverDnHandle_t handle, cusolverEigMode_t jobz,                \
                                                     cublasFillMode_t uplo, int n, T_ *A, int lda, R_ *W, T_ *work,    \
                                                     int lwork, int *info, syevjInfo_t params)                         \
    {                                                                                                                  \
        return eigen(handle, FLYT_SOFT_##letter_, 0, jobz, uplo, n, A, lda, NULL, 0, W, info, 1);                      \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##evjBatched_bufferSize(                                                \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const T_ *A, int lda,         \
        const R_ *W, int *lwork, syevjInfo_t params, int batchSize)                                                    \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##evjBatched(                                                           \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, T_ *A, int lda, R_ *W,        \
        T_ *work, int lwork, int *info, syevjInfo_t params, int batchSize)                                             \
    {                                                                                                                  \
        return eigen(handle, FLYT_SOFT_##letter_, 0, jobz, uplo, n, A, lda, NULL, 0, W, info, batchSize);              \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##gvd_bufferSize(                                                       \
        cusolverDnHandle_t handle, cusolverEigType_t itype, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n,      \
        const T_ *A, int lda, const T_ *B, int ldb, const R_ *W, int *lwork)                                           \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##gvd(cusolverDnHandle_t handle, cusolverEigType_t itype,               \
                                                     cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, T_ *A,      \
                                                     int lda, T_ *B, int ldb, R_ *W, T_ *work, int lwork, int *info)   \
    {                                                                                                                  \
        return itype < CUSOLVER_EIG_TYPE_1                                                                             \
                   ? CUSOLVER_STATUS_INVALID_VALUE                                                                     \
                   : eigen(handle, FLYT_SOFT_##letter_, (int)itype, jobz, uplo, n, A, lda, B, ldb, W, info, 1);        \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##gvj_bufferSize(                                                       \
        cusolverDnHandle_t handle, cusolverEigType_t itype, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n,      \
        const T_ *A, int lda, const T_ *B, int ldb, const R_ *W, int *lwork, syevjInfo_t params)                       \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sy_##gvj(                                                                  \
        cusolverDnHandle_t handle, cusolverEigType_t itype, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n,      \
        T_ *A, int lda, T_ *B, int ldb, R_ *W, T_ *work, int lwork, int *info, syevjInfo_t params)                     \
    {                                                                                                                  \
        return cusolverDn##letter_##sy_##gvd(handle, itype, jobz, uplo, n, A, lda, B, ldb, W, work, lwork, info);      \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##gesvd_bufferSize(cusolverDnHandle_t handle, int m, int n, int *lwork)      \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##gesvd(cusolverDnHandle_t handle, signed char jobu, signed char jobvt,      \
                                                  int m, int n, T_ *A, int lda, R_ *S, T_ *U, int ldu, T_ *VT,         \
                                                  int ldvt, T_ *work, int lwork, R_ *rwork, int *info)                 \
    {                                                                                                                  \
        return svd(handle, FLYT_SOFT_##letter_, jobu, jobvt, m, n, A, lda, S, U, ldu, VT, ldvt, info);                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##gesvdj_bufferSize(                                                         \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, int n, const T_ *A, int lda, const R_ *S,  \
        const T_ *U, int ldu, const T_ *V, int ldv, int *lwork, gesvdjInfo_t params)                                   \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##gesvdj(cusolverDnHandle_t handle, cusolverEigMode_t jobz, int econ, int m, \
                                                   int n, T_ *A, int lda, R_ *S, T_ *U, int ldu, T_ *V, int ldv,       \
                                                   T_ *work, int lwork, int *info, gesvdjInfo_t params)                \
    {                                                                                                                  \
        return svd_jacobi(handle, FLYT_SOFT_##letter_, jobz, econ, m, n, A, lda, S, U, ldu, V, ldv, info, 1);          \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##gesvdjBatched_bufferSize(                                                  \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, int m, int n, const T_ *A, int lda, const R_ *S,            \
        const T_ *U, int ldu, const T_ *V, int ldv, int *lwork, gesvdjInfo_t params, int batchSize)                    \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##gesvdjBatched(                                                             \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, int m, int n, T_ *A, int lda, R_ *S, T_ *U, int ldu, T_ *V, \
        int ldv, T_ *work, int lwork, int *info, gesvdjInfo_t params, int batchSize)                                   \
    {                                                                                                                  \
        return svd_jacobi(handle, FLYT_SOFT_##letter_, jobz, false, m, n, A, lda, S, U, ldu, V, ldv, info, batchSize); \
    }
SPECTRUM(S, float, float, sy)
SPECTRUM(D, double, double, sy)
SPECTRUM(C, cuComplex, float, he)
SPECTRUM(Z, cuDoubleComplex, double, he)

/* ---- with types as arguments ---- */

/* The letter of matrices whose values are of the real type. */
static cusolverStatus_t letter_of(cudaDataType type, cudaDataType compute, cudaDataType values,
                                  enum flyt_soft_letter *ret_letter)
{
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(type, compute, ret_letter));
    return values == (flyt_soft_letter_real_bytes(*ret_letter) == 4 ? CUDA_R_32F : CUDA_R_64F)
               ? CUSOLVER_STATUS_SUCCESS
               : CUSOLVER_STATUS_NOT_SUPPORTED;
}

FLYT_SOFT_CUSOLVER cusolverDnXsyevd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                               cusolverEigMode_t jobz, cublasFillMode_t uplo, int64_t n,
                                               cudaDataType dataTypeA, const void *A, int64_t lda,
                                               cudaDataType dataTypeW, const void *W, cudaDataType computeType,
                                               size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXsyevd(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                    cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                    cudaDataType dataTypeW, void *W, cudaDataType computeType, void *bufferOnDevice,
                                    size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost,
                                    int *info)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(letter_of(dataTypeA, computeType, dataTypeW, &letter));
    return eigen(handle, letter, 0, jobz, uplo, n, A, lda, NULL, 0, W, info, 1);
}

FLYT_SOFT_CUSOLVER cusolverDnXsyevBatched_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                     cusolverEigMode_t jobz, cublasFillMode_t uplo, int64_t n,
                                                     cudaDataType dataTypeA, const void *A, int64_t lda,
                                                     cudaDataType dataTypeW, const void *W, cudaDataType computeType,
                                                     size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost,
                                                     int64_t batchSize)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXsyevBatched(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                          cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, void *A,
                                          int64_t lda, cudaDataType dataTypeW, void *W, cudaDataType computeType,
                                          void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                          size_t workspaceInBytesOnHost, int *info, int64_t batchSize)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(letter_of(dataTypeA, computeType, dataTypeW, &letter));
    return eigen(handle, letter, 0, jobz, uplo, n, A, lda, NULL, 0, W, info, batchSize);
}

FLYT_SOFT_CUSOLVER cusolverDnXgesvd_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char jobu,
                                               signed char jobvt, int64_t m, int64_t n, cudaDataType dataTypeA,
                                               const void *A, int64_t lda, cudaDataType dataTypeS, const void *S,
                                               cudaDataType dataTypeU, const void *U, int64_t ldu,
                                               cudaDataType dataTypeVT, const void *VT, int64_t ldvt,
                                               cudaDataType computeType, size_t *workspaceInBytesOnDevice,
                                               size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXgesvd(cusolverDnHandle_t handle, cusolverDnParams_t params, signed char jobu,
                                    signed char jobvt, int64_t m, int64_t n, cudaDataType dataTypeA, void *A,
                                    int64_t lda, cudaDataType dataTypeS, void *S, cudaDataType dataTypeU, void *U,
                                    int64_t ldu, cudaDataType dataTypeVT, void *VT, int64_t ldvt,
                                    cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice,
                                    void *bufferOnHost, size_t workspaceInBytesOnHost, int *info)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(letter_of(dataTypeA, computeType, dataTypeS, &letter));
    if (dataTypeU != dataTypeA || dataTypeVT != dataTypeA)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    return svd(handle, letter, jobu, jobvt, m, n, A, lda, S, U, ldu, VT, ldvt, info);
}

FLYT_SOFT_CUSOLVER cusolverDnXgesvdp_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                                cusolverEigMode_t jobz, int econ, int64_t m, int64_t n,
                                                cudaDataType dataTypeA, const void *A, int64_t lda,
                                                cudaDataType dataTypeS, const void *S, cudaDataType dataTypeU,
                                                const void *U, int64_t ldu, cudaDataType dataTypeV, const void *V,
                                                int64_t ldv, cudaDataType computeType, size_t *workspaceInBytesOnDevice,
                                                size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

/* The error of the method is none. It is told in host memory, so the call waits, as NVIDIA's does. */
FLYT_SOFT_CUSOLVER cusolverDnXgesvdp(cusolverDnHandle_t handle, cusolverDnParams_t params, cusolverEigMode_t jobz,
                                     int econ, int64_t m, int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                     cudaDataType dataTypeS, void *S, cudaDataType dataTypeU, void *U, int64_t ldu,
                                     cudaDataType dataTypeV, void *V, int64_t ldv, cudaDataType computeType,
                                     void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                     size_t workspaceInBytesOnHost, int *d_info, double *h_err_sigma)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(letter_of(dataTypeA, computeType, dataTypeS, &letter));
    if (dataTypeU != dataTypeA || dataTypeV != dataTypeA)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    FLYT_SOFT_SOLVER_CHECK(svd_jacobi(handle, letter, jobz, econ, m, n, A, lda, S, U, ldu, V, ldv, d_info, 1));
    if (h_err_sigma)
        *h_err_sigma = 0;
    return cuStreamSynchronize(handle->stream) == CUDA_SUCCESS ? CUSOLVER_STATUS_SUCCESS
                                                               : CUSOLVER_STATUS_EXECUTION_FAILED;
}
