/*
 * cuSOLVER's refactorization: a matrix whose pattern has been factored before, P A Q' = L U, with other numbers. Its
 * factors are kept as one dense matrix, M = L + U - 1, for each member of a batch. It works in the device's default
 * stream, and has worked when a function returns.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cusolverRf.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/solver_sparse.h"

struct cusolverRfCommon {
    cusolverRfMatrixFormat_t format;
    cusolverRfUnitDiagonal_t diagonal;
    cusolverRfFactorization_t factor_algorithm;
    cusolverRfTriangularSolve_t solve_algorithm;
    cusolverRfResetValuesFastMode_t fast_mode;
    double zero, boost;
    bool is_boosted, is_analysed, is_factored;
    int n, batch_count;
    bool is_lower_whole; /* L has its diagonal */
    char *pattern;       /* of M: n × n */
    double *m;           /* n × n for each member, columns one behind the other */
    int *pivots;         /* of each member the first that is zero, or -1 */
};

FLYT_SOFT_CUSOLVER cusolverRfCreate(cusolverRfHandle_t *handle)
{
    if (!handle)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *handle = calloc(1, sizeof(**handle));
    if (!*handle)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    (*handle)->solve_algorithm = CUSOLVERRF_TRIANGULAR_SOLVE_ALG1;
    return CUSOLVER_STATUS_SUCCESS;
}

static void forget(cusolverRfHandle_t handle)
{
    free(handle->pattern);
    free(handle->m);
    free(handle->pivots);
    handle->pattern = NULL;
    handle->m = NULL;
    handle->pivots = NULL;
    handle->is_analysed = handle->is_factored = false;
}

FLYT_SOFT_CUSOLVER cusolverRfDestroy(cusolverRfHandle_t handle)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    forget(handle);
    free(handle);
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- settings ---- */

#define PAIR(name_, first_type_, first_, second_type_, second_)                                                        \
    FLYT_SOFT_CUSOLVER cusolverRfSet##name_(cusolverRfHandle_t handle, first_type_ first, second_type_ second)         \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUSOLVER_STATUS_NOT_INITIALIZED;                                                                    \
        handle->first_ = first;                                                                                        \
        handle->second_ = second;                                                                                      \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverRfGet##name_(cusolverRfHandle_t handle, first_type_ *first, second_type_ *second)       \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUSOLVER_STATUS_NOT_INITIALIZED;                                                                    \
        if (!first || !second)                                                                                         \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        *first = handle->first_;                                                                                       \
        *second = handle->second_;                                                                                     \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }
PAIR(MatrixFormat, cusolverRfMatrixFormat_t, format, cusolverRfUnitDiagonal_t, diagonal)
PAIR(NumericProperties, double, zero, double, boost)
PAIR(Algs, cusolverRfFactorization_t, factor_algorithm, cusolverRfTriangularSolve_t, solve_algorithm)

FLYT_SOFT_CUSOLVER cusolverRfSetResetValuesFastMode(cusolverRfHandle_t handle, cusolverRfResetValuesFastMode_t fastMode)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    handle->fast_mode = fastMode;
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverRfGetResetValuesFastMode(cusolverRfHandle_t handle,
                                                    cusolverRfResetValuesFastMode_t *fastMode)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (!fastMode)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *fastMode = handle->fast_mode;
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverRfGetNumericBoostReport(cusolverRfHandle_t handle, cusolverRfNumericBoostReport_t *report)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (!report)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *report = handle->is_boosted ? CUSOLVERRF_NUMERIC_BOOST_USED : CUSOLVERRF_NUMERIC_BOOST_NOT_USED;
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- work in the default stream ---- */

struct work {
    bool (*fn)(void *user); /* false: something is out of reach, or not what it is to be */
    void *user;
    bool is_done;
};

static CUresult run(void *record)
{
    struct work *work = *(struct work **)record;

    work->is_done = true;
    return work->fn(work->user) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static cusolverStatus_t make(bool (*fn)(void *user), void *user)
{
    struct work work = {fn, user, false}, *record = &work;
    CUresult r = flyt_soft_work_push(NULL, run, NULL, &record, sizeof(record));

    if (r == CUDA_SUCCESS)
        r = cuStreamSynchronize(NULL);
    return r == CUDA_SUCCESS && work.is_done ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_EXECUTION_FAILED;
}

/* ---- set-up ---- */

struct setup {
    cusolverRfHandle_t handle;
    struct flyt_soft_csr a, l, u;
    const int *p, *q;
    double *const *arrays; /* of a batch: each member's numbers */
    bool is_array_device;  /* that itself */
    int batch_count;
    cusolverStatus_t status;
};

static struct flyt_soft_csr csr_of(int n, int nnz, const int *offsets, const int *indices, const double *values,
                                   bool is_device)
{
    return (struct flyt_soft_csr){CUDA_R_64F, n, n, nnz, 0, values, offsets, indices, is_device};
}

static bool is_order(const struct setup *call, const int *order)
{
    int n = call->handle->n;

    if (call->a.is_device && !flyt_soft_work_reaches(order, (uint64_t)n * sizeof(int)))
        return false;
    for (int i = 0; i < n; i++)
        if (order[i] < 0 || order[i] >= n)
            return false;
    return true;
}

static int row_of(cusolverRfHandle_t handle, int outer, int inner)
{
    return handle->format == CUSOLVERRF_MATRIX_FORMAT_CSC ? inner : outer;
}

static int column_of(cusolverRfHandle_t handle, int outer, int inner)
{
    return handle->format == CUSOLVERRF_MATRIX_FORMAT_CSC ? outer : inner;
}

static void add_pattern(cusolverRfHandle_t handle, const struct flyt_soft_csr *factor)
{
    for (int i = 0; i < factor->rows; i++)
        for (int k = factor->offsets[i]; k < factor->offsets[i + 1]; k++)
            handle->pattern[(size_t)row_of(handle, i, factor->indices[k]) +
                            (size_t)column_of(handle, i, factor->indices[k]) * (size_t)handle->n] = 1;
}

/* P A Q' of one member: row i of it is row P[i] of A, and column j is column Q[j]. */
static bool put_values(const struct setup *call, int member, const double *values)
{
    cusolverRfHandle_t handle = call->handle;
    size_t n = (size_t)handle->n;
    int *to_row = calloc(2 * n + 1, sizeof(*to_row)), *to_column = to_row + n;
    double *m = handle->m + (size_t)member * n * n;

    if (!to_row)
        return false;
    for (int i = 0; i < handle->n; i++) {
        to_row[call->p[i]] = i;
        to_column[call->q[i]] = i;
    }
    memset(m, 0, n * n * sizeof(*m));
    for (int i = 0; i < handle->n; i++)
        for (int k = call->a.offsets[i]; k < call->a.offsets[i + 1]; k++)
            m[(size_t)to_row[row_of(handle, i, call->a.indices[k])] +
              (size_t)to_column[column_of(handle, i, call->a.indices[k])] * n] += values[k];
    free(to_row);
    return true;
}

static bool values_are_put(const struct setup *call)
{
    uint64_t bytes = (uint64_t)call->a.nnz * sizeof(double);

    if (!call->arrays)
        return put_values(call, 0, call->a.values);
    if (call->is_array_device &&
        !flyt_soft_work_reaches(call->arrays, (uint64_t)call->batch_count * sizeof(call->arrays[0])))
        return false;
    for (int i = 0; i < call->batch_count; i++)
        if ((call->a.is_device && !flyt_soft_work_reaches(call->arrays[i], bytes)) ||
            !put_values(call, i, call->arrays[i]))
            return false;
    return true;
}

/* Of A's values what is given: of a batch, they are elsewhere. */
static bool is_sound(const struct flyt_soft_csr *csr, bool has_values)
{
    struct flyt_soft_csr pattern = *csr;

    if (!has_values) { /* none of no bytes is looked at */
        pattern.values = NULL;
        pattern.type = CUDA_R_4I;
    }
    return flyt_soft_csr_is_sound(&pattern);
}

static bool set_up(void *user)
{
    struct setup *call = user;
    cusolverRfHandle_t handle = call->handle;

    if (!is_sound(&call->a, !call->arrays) || !is_sound(&call->l, true) || !is_sound(&call->u, true) ||
        !is_order(call, call->p) || !is_order(call, call->q)) {
        call->status = CUSOLVER_STATUS_INVALID_VALUE;
        return !call->a.is_device;
    }
    add_pattern(handle, &call->l);
    add_pattern(handle, &call->u);
    call->status = CUSOLVER_STATUS_SUCCESS;
    return values_are_put(call);
}

static cusolverStatus_t begin(struct setup *call)
{
    cusolverRfHandle_t handle = call->handle;
    size_t n = (size_t)call->a.rows, count = (size_t)call->batch_count;
    cusolverStatus_t status;

    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (call->a.rows < 1 || call->a.nnz < 1 || call->l.nnz < 0 || call->u.nnz < 1 || call->batch_count < 1 ||
        !call->a.offsets || !call->a.indices || (!call->a.values && !call->arrays) || !call->l.offsets ||
        (call->l.nnz && (!call->l.indices || !call->l.values)) || !call->u.offsets || !call->u.indices ||
        !call->u.values || !call->p || !call->q)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (call->a.rows > FLYT_SOFT_SPARSE_DENSE_MAX || handle->diagonal == CUSOLVERRF_UNIT_DIAGONAL_STORED_U ||
        handle->diagonal == CUSOLVERRF_UNIT_DIAGONAL_ASSUMED_U)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    forget(handle);
    handle->n = call->a.rows;
    handle->batch_count = call->batch_count;
    handle->is_lower_whole = handle->diagonal == CUSOLVERRF_UNIT_DIAGONAL_STORED_L;
    handle->pattern = calloc(n * n, 1);
    handle->m = calloc(n * n * count, sizeof(*handle->m));
    handle->pivots = calloc(count, sizeof(*handle->pivots));
    call->status = CUSOLVER_STATUS_EXECUTION_FAILED;
    status = handle->pattern && handle->m && handle->pivots ? make(set_up, call) : CUSOLVER_STATUS_ALLOC_FAILED;
    status = status == CUSOLVER_STATUS_SUCCESS ? call->status : status;
    if (status != CUSOLVER_STATUS_SUCCESS)
        forget(handle);
    return status;
}

#define SETUP(name_, is_device_)                                                                                       \
    FLYT_SOFT_CUSOLVER name_(int n, int nnzA, int *offsets_a, int *indices_a, double *values_a, int nnzL,              \
                             int *offsets_l, int *indices_l, double *values_l, int nnzU, int *offsets_u,               \
                             int *indices_u, double *values_u, int *p, int *q, cusolverRfHandle_t handle)              \
    {                                                                                                                  \
        struct setup call = {.handle = handle, .p = p, .q = q, .batch_count = 1};                                      \
        call.a = csr_of(n, nnzA, offsets_a, indices_a, values_a, is_device_);                                          \
        call.l = csr_of(n, nnzL, offsets_l, indices_l, values_l, is_device_);                                          \
        call.u = csr_of(n, nnzU, offsets_u, indices_u, values_u, is_device_);                                          \
        return begin(&call);                                                                                           \
    }
SETUP(cusolverRfSetupHost, false)
SETUP(cusolverRfSetupDevice, true)

FLYT_SOFT_CUSOLVER cusolverRfBatchSetupHost(int batchSize, int n, int nnzA, int *h_csrRowPtrA, int *h_csrColIndA,
                                            double *h_csrValA_array[], int nnzL, int *h_csrRowPtrL, int *h_csrColIndL,
                                            double *h_csrValL, int nnzU, int *h_csrRowPtrU, int *h_csrColIndU,
                                            double *h_csrValU, int *h_P, int *h_Q, cusolverRfHandle_t handle)
{
    struct setup call = {.handle = handle, .p = h_P, .q = h_Q, .batch_count = batchSize, .arrays = h_csrValA_array};

    if (!h_csrValA_array)
        return CUSOLVER_STATUS_INVALID_VALUE;
    call.a = csr_of(n, nnzA, h_csrRowPtrA, h_csrColIndA, NULL, false);
    call.l = csr_of(n, nnzL, h_csrRowPtrL, h_csrColIndL, h_csrValL, false);
    call.u = csr_of(n, nnzU, h_csrRowPtrU, h_csrColIndU, h_csrValU, false);
    return begin(&call);
}

/* ---- other numbers ---- */

static bool reset_values(void *user)
{
    struct setup *call = user;

    return is_sound(&call->a, !call->arrays) && is_order(call, call->p) && is_order(call, call->q) &&
           values_are_put(call);
}

static cusolverStatus_t reset(struct setup *call)
{
    cusolverRfHandle_t handle = call->handle;

    if (!handle || !handle->m)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (call->a.rows != handle->n || call->a.nnz < 1 || call->batch_count != handle->batch_count)
        return CUSOLVER_STATUS_INVALID_VALUE;
    handle->is_factored = false;
    return make(reset_values, call);
}

FLYT_SOFT_CUSOLVER cusolverRfResetValues(int n, int nnzA, int *csrRowPtrA, int *csrColIndA, double *csrValA, int *P,
                                         int *Q, cusolverRfHandle_t handle)
{
    struct setup call = {.handle = handle, .p = P, .q = Q, .batch_count = 1};

    call.a = csr_of(n, nnzA, csrRowPtrA, csrColIndA, csrValA, true);
    return reset(&call);
}

FLYT_SOFT_CUSOLVER cusolverRfBatchResetValues(int batchSize, int n, int nnzA, int *csrRowPtrA, int *csrColIndA,
                                              double *csrValA_array[], int *P, int *Q, cusolverRfHandle_t handle)
{
    struct setup call = {
        .handle = handle, .p = P, .q = Q, .batch_count = batchSize, .arrays = csrValA_array, .is_array_device = true};

    if (!csrValA_array)
        return CUSOLVER_STATUS_INVALID_VALUE;
    call.a = csr_of(n, nnzA, csrRowPtrA, csrColIndA, NULL, true);
    return reset(&call);
}

/* ---- factors ---- */

/* L U of one member, without exchanges. The first pivot that is zero, or -1. */
static int factor(cusolverRfHandle_t handle, double *m)
{
    size_t n = (size_t)handle->n;
    int zero = -1;

    for (size_t k = 0; k < n; k++) {
        double *pivot = &m[k + k * n];

        if (fabs(*pivot) <= handle->zero && handle->boost > 0) {
            *pivot = *pivot < 0 ? -handle->boost : handle->boost;
            handle->is_boosted = true;
        }
        if (*pivot == 0) {
            zero = zero < 0 ? (int)k : zero;
            continue;
        }
        for (size_t i = k + 1; i < n; i++)
            m[i + k * n] /= *pivot;
        for (size_t j = k + 1; j < n; j++)
            for (size_t i = k + 1; i < n && m[k + j * n] != 0; i++)
                m[i + j * n] -= m[i + k * n] * m[k + j * n];
    }
    return zero;
}

static cusolverStatus_t refactor(cusolverRfHandle_t handle)
{
    size_t n;
    cusolverStatus_t status = CUSOLVER_STATUS_SUCCESS;

    if (!handle || !handle->m || !handle->is_analysed || handle->is_factored)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    n = (size_t)handle->n;
    handle->is_boosted = false;
    for (int i = 0; i < handle->batch_count; i++) {
        handle->pivots[i] = factor(handle, handle->m + (size_t)i * n * n);
        if (handle->pivots[i] >= 0)
            status = CUSOLVER_STATUS_ZERO_PIVOT;
    }
    handle->is_factored = true;
    return status;
}

static cusolverStatus_t analyse(cusolverRfHandle_t handle)
{
    if (!handle || !handle->m)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    handle->is_analysed = true;
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverRfAnalyze(cusolverRfHandle_t handle)
{
    return analyse(handle);
}

FLYT_SOFT_CUSOLVER cusolverRfBatchAnalyze(cusolverRfHandle_t handle)
{
    return analyse(handle);
}

FLYT_SOFT_CUSOLVER cusolverRfRefactor(cusolverRfHandle_t handle)
{
    return refactor(handle);
}

FLYT_SOFT_CUSOLVER cusolverRfBatchRefactor(cusolverRfHandle_t handle)
{
    cusolverStatus_t status = refactor(handle);

    return status == CUSOLVER_STATUS_ZERO_PIVOT ? CUSOLVER_STATUS_SUCCESS : status; /* told by BatchZeroPivot */
}

FLYT_SOFT_CUSOLVER cusolverRfBatchZeroPivot(cusolverRfHandle_t handle, int *position)
{
    cusolverStatus_t status = CUSOLVER_STATUS_SUCCESS;

    if (!handle || !handle->is_factored)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (!position)
        return CUSOLVER_STATUS_INVALID_VALUE;
    for (int i = 0; i < handle->batch_count; i++) {
        position[i] = handle->pivots[i];
        if (position[i] >= 0)
            status = CUSOLVER_STATUS_ZERO_PIVOT;
    }
    return status;
}

/* ---- solving ---- */

struct solving {
    cusolverRfHandle_t handle;
    const int *p, *q;
    double *x, **arrays; /* arrays: of a batch, on the device */
};

static bool solve_one(const struct solving *call, int member, double *x)
{
    size_t n = (size_t)call->handle->n;
    const double *m = call->handle->m + (size_t)member * n * n;
    double *y = malloc((n + 1) * sizeof(*y));

    if (!y || !flyt_soft_work_reaches(x, n * sizeof(*x))) {
        free(y);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = x[call->p[i]];
    for (size_t k = 0; k < n; k++)
        for (size_t i = k + 1; i < n; i++)
            y[i] -= m[i + k * n] * y[k];
    for (size_t k = n; k-- > 0;) {
        y[k] /= m[k + k * n];
        for (size_t i = 0; i < k; i++)
            y[i] -= m[i + k * n] * y[k];
    }
    for (size_t i = 0; i < n; i++)
        x[call->q[i]] = y[i];
    free(y);
    return true;
}

static bool solve_all(void *user)
{
    const struct solving *call = user;
    const struct setup orders = {.handle = call->handle, .a = {.is_device = true}};
    int count = call->handle->batch_count;

    if (!is_order(&orders, call->p) || !is_order(&orders, call->q))
        return false;
    if (!call->arrays)
        return solve_one(call, 0, call->x);
    if (!flyt_soft_work_reaches(call->arrays, (uint64_t)count * sizeof(call->arrays[0])))
        return false;
    for (int i = 0; i < count; i++)
        if (!solve_one(call, i, call->arrays[i]))
            return false;
    return true;
}

static cusolverStatus_t solve(struct solving call, int nrhs, int ldt, int ldxf)
{
    if (!call.handle || !call.handle->is_factored)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (nrhs != 1 || ldt < call.handle->n || ldxf < call.handle->n || !call.p || !call.q)
        return CUSOLVER_STATUS_INVALID_VALUE;
    return make(solve_all, &call);
}

FLYT_SOFT_CUSOLVER cusolverRfSolve(cusolverRfHandle_t handle, int *P, int *Q, int nrhs, double *Temp, int ldt,
                                   double *XF, int ldxf)
{
    return XF ? solve((struct solving){handle, P, Q, XF, NULL}, nrhs, ldt, ldxf) : CUSOLVER_STATUS_INVALID_VALUE;
}

FLYT_SOFT_CUSOLVER cusolverRfBatchSolve(cusolverRfHandle_t handle, int *P, int *Q, int nrhs, double *Temp, int ldt,
                                        double *XF_array[], int ldxf)
{
    return XF_array ? solve((struct solving){handle, P, Q, NULL, XF_array}, nrhs, ldt, ldxf)
                    : CUSOLVER_STATUS_INVALID_VALUE;
}

/* ---- factors for the caller ---- */

enum part { WHOLE, LOWER, UPPER };

/* What of M's pattern stands in a part; L's diagonal is 1, where L has it. */
static bool is_of(cusolverRfHandle_t handle, enum part part, size_t row, size_t column)
{
    if (part == LOWER && row == column)
        return handle->is_lower_whole;
    return handle->pattern[row + column * (size_t)handle->n] &&
           (part == WHOLE || (part == LOWER ? column < row : column >= row));
}

/* In memory that the caller frees. */
static cusolverStatus_t extract(cusolverRfHandle_t handle, enum part part, int *ret_nnz, int **ret_offsets,
                                int **ret_indices, double **ret_values)
{
    size_t n = (size_t)handle->n, count = 0;

    for (size_t i = 0; i < n * n; i++)
        count += is_of(handle, part, i / n, i % n);
    *ret_offsets = malloc((n + 1) * sizeof(**ret_offsets));
    *ret_indices = malloc((count + 1) * sizeof(**ret_indices));
    *ret_values = malloc((count + 1) * sizeof(**ret_values));
    if (!*ret_offsets || !*ret_indices || !*ret_values)
        return CUSOLVER_STATUS_ALLOC_FAILED;
    *ret_nnz = (int)count;
    count = 0;
    for (size_t i = 0; i < n; i++) {
        (*ret_offsets)[i] = (int)count;
        for (size_t j = 0; j < n; j++) {
            if (!is_of(handle, part, i, j))
                continue;
            (*ret_indices)[count] = (int)j;
            (*ret_values)[count++] = part == LOWER && i == j ? 1 : handle->m[i + j * n];
        }
    }
    (*ret_offsets)[n] = (int)count;
    return CUSOLVER_STATUS_SUCCESS;
}

static cusolverStatus_t may_extract(cusolverRfHandle_t handle)
{
    if (!handle || !handle->is_factored)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    return handle->format == CUSOLVERRF_MATRIX_FORMAT_CSR && handle->batch_count == 1 ? CUSOLVER_STATUS_SUCCESS
                                                                                      : CUSOLVER_STATUS_NOT_SUPPORTED;
}

FLYT_SOFT_CUSOLVER cusolverRfExtractBundledFactorsHost(cusolverRfHandle_t handle, int *h_nnzM, int **h_Mp, int **h_Mi,
                                                       double **h_Mx)
{
    FLYT_SOFT_SOLVER_CHECK(may_extract(handle));
    return extract(handle, WHOLE, h_nnzM, h_Mp, h_Mi, h_Mx);
}

FLYT_SOFT_CUSOLVER cusolverRfExtractSplitFactorsHost(cusolverRfHandle_t handle, int *h_nnzL, int **h_csrRowPtrL,
                                                     int **h_csrColIndL, double **h_csrValL, int *h_nnzU,
                                                     int **h_csrRowPtrU, int **h_csrColIndU, double **h_csrValU)
{
    FLYT_SOFT_SOLVER_CHECK(may_extract(handle));
    FLYT_SOFT_SOLVER_CHECK(extract(handle, LOWER, h_nnzL, h_csrRowPtrL, h_csrColIndL, h_csrValL));
    return extract(handle, UPPER, h_nnzU, h_csrRowPtrU, h_csrColIndU, h_csrValU);
}
