/* cuSOLVER: Cholesky, LU and QR, and what is solved with them. */
#include <stdlib.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/library/solver.h"

/* ---- kernels: A is operand 0; B, tau or C follow ---- */

static bool kernel_potrf(const struct flyt_soft_solver *c, int *ret_info)
{
    FORTRAN(c->fn, &c->uplo, &c->n, c->at[0], &c->lda, ret_info); /* potri has the same arguments */
    return true;
}

static bool kernel_potrs(const struct flyt_soft_solver *c, int *ret_info)
{
    FORTRAN(c->fn, &c->uplo, &c->n, &c->k, c->at[0], &c->lda, c->at[1], &c->ldb, ret_info);
    return true;
}

static bool kernel_trtri(const struct flyt_soft_solver *c, int *ret_info)
{
    FORTRAN(c->fn, &c->uplo, &c->diag, &c->n, c->at[0], &c->lda, ret_info);
    return true;
}

/* Pivots of 64 bits become those of LAPACK, and back; none: rows are not exchanged. */
static int *pivots_new(const struct flyt_soft_solver *c)
{
    int *pivots = malloc(sizeof(int) * ((size_t)c->pivot_count + 1));

    for (int i = 0; pivots && i < c->pivot_count; i++)
        pivots[i] = c->wide_pivots ? (int)c->wide_pivots[i] : i + 1;
    return pivots;
}

static bool kernel_getrf(const struct flyt_soft_solver *c, int *ret_info)
{
    int *pivots;

    if (c->pivots) {
        FORTRAN(c->fn, &c->m, &c->n, c->at[0], &c->lda, c->pivots, ret_info);
        return true;
    }
    if (!c->wide_pivots) {
        *ret_info = flyt_soft_factor_in_order(flyt_soft_letter_type(c->letter), c->at[0], c->lda, c->m, c->n);
        return true;
    }
    pivots = pivots_new(c);
    if (!pivots)
        return false;
    FORTRAN(c->fn, &c->m, &c->n, c->at[0], &c->lda, pivots, ret_info);
    for (int i = 0; i < c->pivot_count; i++)
        c->wide_pivots[i] = pivots[i];
    free(pivots);
    return true;
}

static bool kernel_getrs(const struct flyt_soft_solver *c, int *ret_info)
{
    int *pivots = c->pivots ? NULL : pivots_new(c);

    if (!c->pivots && !pivots)
        return false;
    FORTRAN(c->fn, &c->trans, &c->n, &c->k, c->at[0], &c->lda, c->pivots ? c->pivots : pivots, c->at[1], &c->ldb,
            ret_info);
    free(pivots);
    return true;
}

static bool kernel_geqrf(const struct flyt_soft_solver *c, int *ret_info)
{
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do
        FORTRAN(c->fn, &c->m, &c->n, c->at[0], &c->lda, c->at[1], s.work, &s.work_count, ret_info);
    while (flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    return s.has_memory;
}

static bool kernel_orgqr(const struct flyt_soft_solver *c, int *ret_info)
{
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do
        FORTRAN(c->fn, &c->m, &c->n, &c->k, c->at[0], &c->lda, c->at[1], s.work, &s.work_count, ret_info);
    while (flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    return s.has_memory;
}

static bool kernel_ormqr(const struct flyt_soft_solver *c, int *ret_info)
{
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do
        FORTRAN(c->fn, &c->side, &c->trans, &c->m, &c->n, &c->k, c->at[0], &c->lda, c->at[1], c->at[2], &c->ldc, s.work,
                &s.work_count, ret_info);
    while (flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    return s.has_memory;
}

static bool kernel_sytrf(const struct flyt_soft_solver *c, int *ret_info)
{
    struct flyt_soft_scratch s;

    flyt_soft_scratch_begin(&s, c->letter);
    do
        FORTRAN(c->fn, &c->uplo, &c->n, c->at[0], &c->lda, c->pivots, s.work, &s.work_count, ret_info);
    while (flyt_soft_scratch_more(&s));
    flyt_soft_scratch_end(&s);
    return s.has_memory;
}

/* ---- Cholesky ---- */

/* nrhs < 0: there is no B. is_array: A and B are arrays of pointers. */
static cusolverStatus_t cholesky(cusolverDnHandle_t handle, enum flyt_soft_letter letter,
                                 enum flyt_soft_routine routine, flyt_soft_solver_kernel kernel, cublasFillMode_t uplo,
                                 cublasDiagType_t diag, int64_t n, const void *a, int64_t lda, int64_t nrhs,
                                 const void *b, int64_t ldb, int *info, int64_t batch_count, bool is_array)
{
    struct flyt_soft_solver call = {
        .kernel = kernel,
        .letter = letter,
        .routine = routine,
        .diag = diag == CUBLAS_DIAG_UNIT ? 'U' : 'N',
        .info = info,
        .is_array = is_array,
        .has_single_info = kernel == kernel_potrs, /* tells of the arguments alone */
        .batch_count = batch_count,
        .is_empty = batch_count == 0,
    };

    if (!flyt_soft_solver_fill(uplo, &call.uplo))
        return CUSOLVER_STATUS_INVALID_VALUE;
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call.n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, n, &call.lda));
    flyt_soft_solver_matrix(&call, 0, a, n, n, lda);
    if (nrhs >= 0) {
        FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(nrhs, &call.k));
        FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(ldb, n, &call.ldb));
        flyt_soft_solver_matrix(&call, 1, b, n, nrhs, ldb);
    }
    return flyt_soft_solver_push(handle, &call);
}

/* ---- LU ---- */

static cusolverStatus_t lu(cusolverDnHandle_t handle, enum flyt_soft_letter letter, int64_t m, int64_t n, void *a,
                           int64_t lda, int *pivots, int64_t *wide_pivots, int *info)
{
    struct flyt_soft_solver call = {
        .kernel = kernel_getrf,
        .letter = letter,
        .routine = FLYT_SOFT_GETRF,
        .pivots = pivots,
        .wide_pivots = wide_pivots,
        .info = info,
    };

    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(m, &call.m));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call.n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, m, &call.lda));
    call.pivot_count = call.m < call.n ? call.m : call.n;
    flyt_soft_solver_matrix(&call, 0, a, m, n, lda);
    return flyt_soft_solver_push(handle, &call);
}

static cusolverStatus_t lu_solve(cusolverDnHandle_t handle, enum flyt_soft_letter letter, cublasOperation_t trans,
                                 int64_t n, int64_t nrhs, const void *a, int64_t lda, const int *pivots,
                                 const int64_t *wide_pivots, void *b, int64_t ldb, int *info)
{
    struct flyt_soft_solver call = {
        .kernel = kernel_getrs,
        .letter = letter,
        .routine = FLYT_SOFT_GETRS,
        .pivots = (int *)pivots,
        .wide_pivots = (int64_t *)wide_pivots,
        .info = info,
    };

    if (!flyt_soft_solver_operation(trans, &call.trans))
        return CUSOLVER_STATUS_INVALID_VALUE;
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call.n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(nrhs, &call.k));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, n, &call.lda));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(ldb, n, &call.ldb));
    call.pivot_count = call.n;
    flyt_soft_solver_matrix(&call, 0, a, n, n, lda);
    flyt_soft_solver_matrix(&call, 1, b, n, nrhs, ldb);
    return flyt_soft_solver_push(handle, &call);
}

/* ---- QR: A is a_rows × a_columns, tau has tau_count numbers; C, m × n, where there is one ---- */

static cusolverStatus_t qr(cusolverDnHandle_t handle, struct flyt_soft_solver *call, int64_t m, int64_t n, int64_t k,
                           const void *a, int64_t a_rows, int64_t a_columns, int64_t lda, const void *tau,
                           int64_t tau_count, const void *c, int64_t ldc)
{
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(m, &call->m));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call->n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(k, &call->k));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, a_rows, &call->lda));
    flyt_soft_solver_matrix(call, 0, a, a_rows, a_columns, lda);
    flyt_soft_solver_matrix(call, 1, tau, tau_count, 1, tau_count);
    if (call->kernel == kernel_ormqr) {
        FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(ldc, m, &call->ldc));
        flyt_soft_solver_matrix(call, 2, c, m, n, ldc);
    }
    return flyt_soft_solver_push(handle, call);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static cusolverStatus_t geqrf(cusolverDnHandle_t handle, enum flyt_soft_letter letter, int64_t m, int64_t n, void *a,
                              int64_t lda, void *tau, int *info)
{
    struct flyt_soft_solver call = {.kernel = kernel_geqrf, .letter = letter, .routine = FLYT_SOFT_GEQRF, .info = info};

    return qr(handle, &call, m, n, 0, a, m, n, lda, tau, smaller(m, n), NULL, 0);
}

static cusolverStatus_t orgqr(cusolverDnHandle_t handle, enum flyt_soft_letter letter, int m, int n, int k, void *a,
                              int lda, const void *tau, int *info)
{
    struct flyt_soft_solver call = {.kernel = kernel_orgqr, .letter = letter, .info = info};

    call.routine = letter >= FLYT_SOFT_C ? FLYT_SOFT_UNGQR : FLYT_SOFT_ORGQR;
    return n > m || k > n ? CUSOLVER_STATUS_INVALID_VALUE : qr(handle, &call, m, n, k, a, m, n, lda, tau, k, NULL, 0);
}

static cusolverStatus_t ormqr(cusolverDnHandle_t handle, enum flyt_soft_letter letter, cublasSideMode_t side,
                              cublasOperation_t trans, int m, int n, int k, const void *a, int lda, const void *tau,
                              void *c, int ldc, int *info)
{
    struct flyt_soft_solver call = {.kernel = kernel_ormqr, .letter = letter, .info = info};
    int order = side == CUBLAS_SIDE_LEFT ? m : n;

    call.routine = letter >= FLYT_SOFT_C ? FLYT_SOFT_UNMQR : FLYT_SOFT_ORMQR;
    call.side = side == CUBLAS_SIDE_LEFT ? 'L' : 'R';
    if (!flyt_soft_solver_operation(trans, &call.trans) || k > order || (letter >= FLYT_SOFT_C && trans == CUBLAS_OP_T))
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (letter < FLYT_SOFT_C && trans == CUBLAS_OP_C)
        call.trans = 'T';
    return qr(handle, &call, m, n, k, a, order, k, lda, tau, k, c, ldc);
}

static cusolverStatus_t sytrf(cusolverDnHandle_t handle, enum flyt_soft_letter letter, cublasFillMode_t uplo, int n,
                              void *a, int lda, int *pivots, int *info)
{
    struct flyt_soft_solver call = {
        .kernel = kernel_sytrf,
        .letter = letter,
        .routine = FLYT_SOFT_SYTRF,
        .pivots = pivots,
        .info = info,
    };

    if (!flyt_soft_solver_fill(uplo, &call.uplo) || !pivots)
        return CUSOLVER_STATUS_INVALID_VALUE;
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_size(n, &call.n));
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_leading(lda, n, &call.lda));
    call.pivot_count = n;
    flyt_soft_solver_matrix(&call, 0, a, n, n, lda);
    return flyt_soft_solver_push(handle, &call);
}

/* ---- of one type ---- */

#define FACTORS(letter_, T_, orgqr_, ormqr_)                                                                           \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potrf_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,  \
                                                             T_ *A, int lda, int *Lwork)                               \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, Lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potrf(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T_ *A,      \
                                                  int lda, T_ *Workspace, int Lwork, int *devInfo)                     \
    {                                                                                                                  \
        return cholesky(handle, FLYT_SOFT_##letter_, FLYT_SOFT_POTRF, kernel_potrf, uplo, CUBLAS_DIAG_NON_UNIT, n, A,  \
                        lda, -1, NULL, 0, devInfo, 1, false);                                                          \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potrfBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,      \
                                                         T_ *Aarray[], int lda, int *infoArray, int batchSize)         \
    {                                                                                                                  \
        return cholesky(handle, FLYT_SOFT_##letter_, FLYT_SOFT_POTRF, kernel_potrf, uplo, CUBLAS_DIAG_NON_UNIT, n,     \
                        Aarray, lda, -1, NULL, 0, infoArray, batchSize, true);                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potri_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,  \
                                                             T_ *A, int lda, int *lwork)                               \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potri(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T_ *A,      \
                                                  int lda, T_ *work, int lwork, int *devInfo)                          \
    {                                                                                                                  \
        return cholesky(handle, FLYT_SOFT_##letter_, FLYT_SOFT_POTRI, kernel_potrf, uplo, CUBLAS_DIAG_NON_UNIT, n, A,  \
                        lda, -1, NULL, 0, devInfo, 1, false);                                                          \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potrs(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, int nrhs,   \
                                                  const T_ *A, int lda, T_ *B, int ldb, int *devInfo)                  \
    {                                                                                                                  \
        return nrhs < 0 ? CUSOLVER_STATUS_INVALID_VALUE                                                                \
                        : cholesky(handle, FLYT_SOFT_##letter_, FLYT_SOFT_POTRS, kernel_potrs, uplo,                   \
                                   CUBLAS_DIAG_NON_UNIT, n, A, lda, nrhs, B, ldb, devInfo, 1, false);                  \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##potrsBatched(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n,      \
                                                         int nrhs, T_ *A[], int lda, T_ *B[], int ldb, int *d_info,    \
                                                         int batchSize)                                                \
    {                                                                                                                  \
        return nrhs < 0 ? CUSOLVER_STATUS_INVALID_VALUE                                                                \
                        : cholesky(handle, FLYT_SOFT_##letter_, FLYT_SOFT_POTRS, kernel_potrs, uplo,                   \
                                   CUBLAS_DIAG_NON_UNIT, n, A, lda, nrhs, B, ldb, d_info, batchSize, true);            \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##getrf_bufferSize(cusolverDnHandle_t handle, int m, int n, T_ *A, int lda,  \
                                                             int *Lwork)                                               \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, Lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##getrf(cusolverDnHandle_t handle, int m, int n, T_ *A, int lda,             \
                                                  T_ *Workspace, int *devIpiv, int *devInfo)                           \
    {                                                                                                                  \
        return lu(handle, FLYT_SOFT_##letter_, m, n, A, lda, devIpiv, NULL, devInfo);                                  \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##getrs(cusolverDnHandle_t handle, cublasOperation_t trans, int n, int nrhs, \
                                                  const T_ *A, int lda, const int *devIpiv, T_ *B, int ldb,            \
                                                  int *devInfo)                                                        \
    {                                                                                                                  \
        return lu_solve(handle, FLYT_SOFT_##letter_, trans, n, nrhs, A, lda, devIpiv, NULL, B, ldb, devInfo);          \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##geqrf_bufferSize(cusolverDnHandle_t handle, int m, int n, T_ *A, int lda,  \
                                                             int *lwork)                                               \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##geqrf(cusolverDnHandle_t handle, int m, int n, T_ *A, int lda, T_ *TAU,    \
                                                  T_ *Workspace, int Lwork, int *devInfo)                              \
    {                                                                                                                  \
        return geqrf(handle, FLYT_SOFT_##letter_, m, n, A, lda, TAU, devInfo);                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##orgqr_##_bufferSize(cusolverDnHandle_t handle, int m, int n, int k,        \
                                                                const T_ *A, int lda, const T_ *tau, int *lwork)       \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##orgqr_(cusolverDnHandle_t handle, int m, int n, int k, T_ *A, int lda,     \
                                                   const T_ *tau, T_ *work, int lwork, int *info)                      \
    {                                                                                                                  \
        return orgqr(handle, FLYT_SOFT_##letter_, m, n, k, A, lda, tau, info);                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##ormqr_##_bufferSize(                                                       \
        cusolverDnHandle_t handle, cublasSideMode_t side, cublasOperation_t trans, int m, int n, int k, const T_ *A,   \
        int lda, const T_ *tau, const T_ *C, int ldc, int *lwork)                                                      \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##ormqr_(cusolverDnHandle_t handle, cublasSideMode_t side,                   \
                                                   cublasOperation_t trans, int m, int n, int k, const T_ *A, int lda, \
                                                   const T_ *tau, T_ *C, int ldc, T_ *work, int lwork, int *devInfo)   \
    {                                                                                                                  \
        return ormqr(handle, FLYT_SOFT_##letter_, side, trans, m, n, k, A, lda, tau, C, ldc, devInfo);                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sytrf_bufferSize(cusolverDnHandle_t handle, int n, T_ *A, int lda,         \
                                                             int *lwork)                                               \
    {                                                                                                                  \
        return flyt_soft_solver_buffer(handle, lwork);                                                                 \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverDn##letter_##sytrf(cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T_ *A,      \
                                                  int lda, int *ipiv, T_ *work, int lwork, int *info)                  \
    {                                                                                                                  \
        return sytrf(handle, FLYT_SOFT_##letter_, uplo, n, A, lda, ipiv, info);                                        \
    }
FACTORS(S, float, orgqr, ormqr)
FACTORS(D, double, orgqr, ormqr)
FACTORS(C, cuComplex, ungqr, unmqr)
FACTORS(Z, cuDoubleComplex, ungqr, unmqr)

/* ---- with types as arguments ---- */

FLYT_SOFT_CUSOLVER cusolverDnXpotrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params,
                                               cublasFillMode_t uplo, int64_t n, cudaDataType dataTypeA, const void *A,
                                               int64_t lda, cudaDataType computeType, size_t *workspaceInBytesOnDevice,
                                               size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXpotrf(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo,
                                    int64_t n, cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType computeType,
                                    void *bufferOnDevice, size_t workspaceInBytesOnDevice, void *bufferOnHost,
                                    size_t workspaceInBytesOnHost, int *info)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(dataTypeA, computeType, &letter));
    return cholesky(handle, letter, FLYT_SOFT_POTRF, kernel_potrf, uplo, CUBLAS_DIAG_NON_UNIT, n, A, lda, -1, NULL, 0,
                    info, 1, false);
}

FLYT_SOFT_CUSOLVER cusolverDnXpotrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasFillMode_t uplo,
                                    int64_t n, int64_t nrhs, cudaDataType dataTypeA, const void *A, int64_t lda,
                                    cudaDataType dataTypeB, void *B, int64_t ldb, int *info)
{
    enum flyt_soft_letter letter;

    if (nrhs < 0)
        return CUSOLVER_STATUS_INVALID_VALUE;
    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(dataTypeA, dataTypeB, &letter));
    return cholesky(handle, letter, FLYT_SOFT_POTRS, kernel_potrs, uplo, CUBLAS_DIAG_NON_UNIT, n, A, lda, nrhs, B, ldb,
                    info, 1, false);
}

FLYT_SOFT_CUSOLVER cusolverDnXtrtri_bufferSize(cusolverDnHandle_t handle, cublasFillMode_t uplo, cublasDiagType_t diag,
                                               int64_t n, cudaDataType dataTypeA, void *A, int64_t lda,
                                               size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXtrtri(cusolverDnHandle_t handle, cublasFillMode_t uplo, cublasDiagType_t diag, int64_t n,
                                    cudaDataType dataTypeA, void *A, int64_t lda, void *bufferOnDevice,
                                    size_t workspaceInBytesOnDevice, void *bufferOnHost, size_t workspaceInBytesOnHost,
                                    int *devInfo)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(dataTypeA, dataTypeA, &letter));
    return cholesky(handle, letter, FLYT_SOFT_TRTRI, kernel_trtri, uplo, diag, n, A, lda, -1, NULL, 0, devInfo, 1,
                    false);
}

FLYT_SOFT_CUSOLVER cusolverDnXgetrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m,
                                               int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda,
                                               cudaDataType computeType, size_t *workspaceInBytesOnDevice,
                                               size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXgetrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                    cudaDataType dataTypeA, void *A, int64_t lda, int64_t *ipiv,
                                    cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice,
                                    void *bufferOnHost, size_t workspaceInBytesOnHost, int *info)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(dataTypeA, computeType, &letter));
    return lu(handle, letter, m, n, A, lda, NULL, ipiv, info);
}

FLYT_SOFT_CUSOLVER cusolverDnXgetrs(cusolverDnHandle_t handle, cusolverDnParams_t params, cublasOperation_t trans,
                                    int64_t n, int64_t nrhs, cudaDataType dataTypeA, const void *A, int64_t lda,
                                    const int64_t *ipiv, cudaDataType dataTypeB, void *B, int64_t ldb, int *info)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(dataTypeA, dataTypeB, &letter));
    return lu_solve(handle, letter, trans, n, nrhs, A, lda, NULL, ipiv, B, ldb, info);
}

FLYT_SOFT_CUSOLVER cusolverDnXgeqrf_bufferSize(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m,
                                               int64_t n, cudaDataType dataTypeA, const void *A, int64_t lda,
                                               cudaDataType dataTypeTau, const void *tau, cudaDataType computeType,
                                               size_t *workspaceInBytesOnDevice, size_t *workspaceInBytesOnHost)
{
    return flyt_soft_solver_buffers(handle, workspaceInBytesOnDevice, workspaceInBytesOnHost);
}

FLYT_SOFT_CUSOLVER cusolverDnXgeqrf(cusolverDnHandle_t handle, cusolverDnParams_t params, int64_t m, int64_t n,
                                    cudaDataType dataTypeA, void *A, int64_t lda, cudaDataType dataTypeTau, void *tau,
                                    cudaDataType computeType, void *bufferOnDevice, size_t workspaceInBytesOnDevice,
                                    void *bufferOnHost, size_t workspaceInBytesOnHost, int *info)
{
    enum flyt_soft_letter letter;

    FLYT_SOFT_SOLVER_CHECK(flyt_soft_solver_letter(dataTypeA, computeType, &letter));
    if (dataTypeTau != dataTypeA)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    return geqrf(handle, letter, m, n, A, lda, tau, info);
}
