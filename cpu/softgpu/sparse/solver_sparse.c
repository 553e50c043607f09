/* cuSOLVER's sparse part: linear systems, least squares, an eigenvalue. What has its matrix in device memory waits for
 * its stream, works in that, and has its results when it returns. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/work.h"
#include "cpu/softgpu/sparse/solver_sparse.h"

/* ---- handles ---- */

FLYT_SOFT_CUSOLVER cusolverSpCreate(cusolverSpHandle_t *handle)
{
    CUcontext ctx = NULL;

    if (!handle)
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    *handle = calloc(1, sizeof(**handle));
    return *handle ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_CUSOLVER cusolverSpDestroy(cusolverSpHandle_t handle)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    free(handle);
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverSpSetStream(cusolverSpHandle_t handle, cudaStream_t streamId)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    handle->stream = streamId;
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverSpGetStream(cusolverSpHandle_t handle, cudaStream_t *streamId)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (!streamId)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *streamId = handle->stream;
    return CUSOLVER_STATUS_SUCCESS;
}

/* ---- matrices ---- */

cusolverStatus_t flyt_soft_csr_begin(cusolverSpHandle_t handle, struct flyt_soft_csr *csr, int rows, int columns,
                                     int nnz, cusparseMatDescr_t descr, const int *offsets, const int *indices)
{
    if (!handle)
        return CUSOLVER_STATUS_NOT_INITIALIZED;
    if (rows < 0 || columns < 0 || nnz < 0 || !descr || !offsets || (nnz && !indices))
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (!flyt_soft_sparse_is_general(descr))
        return CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED;
    *csr = (struct flyt_soft_csr){
        .rows = rows,
        .columns = columns,
        .nnz = nnz,
        .base = flyt_soft_sparse_base(descr),
        .offsets = offsets,
        .indices = indices,
    };
    return CUSOLVER_STATUS_SUCCESS;
}

bool flyt_soft_csr_is_sound(const struct flyt_soft_csr *csr)
{
    uint64_t nnz = (uint64_t)csr->nnz;

    if (csr->is_device && (!flyt_soft_work_reaches(csr->offsets, ((uint64_t)csr->rows + 1) * sizeof(int)) ||
                           !flyt_soft_work_reaches(csr->indices, nnz * sizeof(int)) ||
                           !flyt_soft_work_reaches(csr->values, nnz * flyt_soft_number_bytes(csr->type))))
        return false;
    for (int i = 0; i < csr->rows; i++)
        if (csr->offsets[i] > csr->offsets[i + 1])
            return false;
    if (csr->offsets[0] != csr->base || csr->offsets[csr->rows] != csr->base + csr->nnz)
        return false;
    for (int i = 0; i < csr->nnz; i++)
        if (csr->indices[i] < csr->base || csr->indices[i] - csr->base >= csr->columns)
            return false;
    return true;
}

flyt_soft_complex *flyt_soft_csr_dense(const struct flyt_soft_csr *csr)
{
    unsigned bytes = flyt_soft_number_bytes(csr->type);
    flyt_soft_complex *dense = NULL;

    if (csr->rows <= FLYT_SOFT_SPARSE_DENSE_MAX && csr->columns <= FLYT_SOFT_SPARSE_DENSE_MAX)
        dense = calloc((size_t)csr->rows * (size_t)csr->columns + 1, sizeof(*dense));
    for (int i = 0; dense && i < csr->rows; i++)
        for (int k = csr->offsets[i] - csr->base; k < csr->offsets[i + 1] - csr->base; k++)
            dense[(size_t)i + (size_t)(csr->indices[k] - csr->base) * (size_t)csr->rows] +=
                flyt_soft_number_get(csr->type, (const char *)csr->values + (size_t)k * bytes);
    return dense;
}

/* ---- calls ---- */

struct sparse_call;
/* false: memory is out. `a` is the matrix, `x` the right side, of as many numbers as it has rows or columns. */
typedef bool (*sparse_kernel)(struct sparse_call *call, flyt_soft_complex *a, flyt_soft_complex *x);

struct sparse_call {
    struct flyt_soft_csr csr;
    sparse_kernel kernel;
    const void *b;
    void *x;
    double tol;
    flyt_soft_complex start; /* of an eigenvalue */
    int round_count;
    void *value; /* an eigenvalue, or a norm */
    int *singularity, *rank, *order;
    cusolverStatus_t status;
};

static void load(const struct sparse_call *call, flyt_soft_complex *to)
{
    for (int i = 0; i < call->csr.rows; i++)
        to[i] = flyt_soft_number_get(call->csr.type,
                                     (const char *)call->b + (size_t)i * flyt_soft_number_bytes(call->csr.type));
}

static void store(const struct sparse_call *call, const flyt_soft_complex *from)
{
    for (int i = 0; i < call->csr.columns; i++)
        flyt_soft_number_put(call->csr.type, (char *)call->x + (size_t)i * flyt_soft_number_bytes(call->csr.type),
                             from[i]);
}

static cusolverStatus_t compute(struct sparse_call *call)
{
    int most = call->csr.rows > call->csr.columns ? call->csr.rows : call->csr.columns;
    flyt_soft_complex *a = flyt_soft_csr_dense(&call->csr), *x = calloc((size_t)most + 1, sizeof(*x));
    cusolverStatus_t status = CUSOLVER_STATUS_ALLOC_FAILED;

    if (a && x) {
        load(call, x);
        if (call->kernel(call, a, x)) {
            store(call, x);
            status = CUSOLVER_STATUS_SUCCESS;
        }
    }
    free(a);
    free(x);
    return status;
}

/* Of a matrix in device memory. */
static CUresult run(void *record)
{
    struct sparse_call *call = *(struct sparse_call **)record;
    uint64_t bytes = flyt_soft_number_bytes(call->csr.type), rows = (uint64_t)call->csr.rows;

    if (!flyt_soft_csr_is_sound(&call->csr) || !flyt_soft_work_reaches(call->b, rows * bytes) ||
        !flyt_soft_work_reaches(call->x, rows * bytes) || (call->value && !flyt_soft_work_reaches(call->value, bytes)))
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    call->status = compute(call);
    return CUDA_SUCCESS;
}

static cusolverStatus_t make(cusolverSpHandle_t handle, struct sparse_call *call)
{
    struct sparse_call *record = call;
    CUresult r;

    if (!call->b || !call->x || (call->csr.nnz && !call->csr.values))
        return CUSOLVER_STATUS_INVALID_VALUE;
    if (call->csr.rows > FLYT_SOFT_SPARSE_DENSE_MAX || call->csr.rows < call->csr.columns)
        return CUSOLVER_STATUS_NOT_SUPPORTED;
    if (!call->csr.is_device)
        return flyt_soft_csr_is_sound(&call->csr) ? compute(call) : CUSOLVER_STATUS_INVALID_VALUE;
    call->status = CUSOLVER_STATUS_EXECUTION_FAILED;
    r = flyt_soft_work_push(handle->stream, run, NULL, &record, sizeof(record));
    if (r == CUDA_SUCCESS)
        r = cuStreamSynchronize(handle->stream); /* `call` is this caller's */
    return r == CUDA_SUCCESS ? call->status : CUSOLVER_STATUS_EXECUTION_FAILED;
}

#define AT(i_, j_) a[(size_t)(i_) + (size_t)(j_) * (size_t)stride]

static void swap(flyt_soft_complex *x, flyt_soft_complex *y)
{
    flyt_soft_complex z = *x;

    *x = *y;
    *y = z;
}

/* ---- dense matrices, columns one behind the other ---- */

/* LU with row exchanges, in place. Exchanges go to `order`. The first pivot that is not above tol; -1: none. */
static int dense_lu(flyt_soft_complex *a, int n, double tol, int *order)
{
    const int stride = n;
    int singular = -1;

    for (int k = 0; k < n; k++) {
        int best = k;

        for (int i = k + 1; i < n; i++)
            if (cabs(AT(i, k)) > cabs(AT(best, k)))
                best = i;
        order[k] = best;
        for (int j = 0; j < n && best != k; j++)
            swap(&AT(k, j), &AT(best, j));
        if (!(cabs(AT(k, k)) > tol)) {
            singular = singular < 0 ? k : singular;
            if (AT(k, k) == 0)
                continue;
        }
        for (int i = k + 1; i < n; i++)
            AT(i, k) /= AT(k, k);
        for (int j = k + 1; j < n; j++)
            for (int i = k + 1; i < n && AT(k, j) != 0; i++)
                AT(i, j) -= AT(i, k) * AT(k, j);
    }
    return singular;
}

static void dense_lu_solve(const flyt_soft_complex *a, int n, const int *order, flyt_soft_complex *x)
{
    const int stride = n;

    for (int k = 0; k < n; k++)
        swap(&x[k], &x[order[k]]);
    for (int k = 0; k < n; k++)
        for (int i = k + 1; i < n; i++)
            x[i] -= AT(i, k) * x[k];
    for (int k = n - 1; k >= 0; k--) {
        x[k] /= AT(k, k);
        for (int i = 0; i < k; i++)
            x[i] -= AT(i, k) * x[k];
    }
}

/* ---- Cholesky ---- */

/* Cholesky's factor of the lower part, in place. As above. */
static int dense_cholesky(flyt_soft_complex *a, int n, double tol)
{
    const int stride = n;

    for (int k = 0; k < n; k++) {
        double pivot = creal(AT(k, k));

        if (!(pivot > 0) || !(sqrt(pivot) > tol))
            return k;
        pivot = sqrt(pivot);
        AT(k, k) = pivot;
        for (int i = k + 1; i < n; i++)
            AT(i, k) /= pivot;
        for (int j = k + 1; j < n; j++)
            for (int i = j; i < n && AT(j, k) != 0; i++)
                AT(i, j) -= AT(i, k) * conj(AT(j, k));
    }
    return -1;
}

static void dense_cholesky_solve(const flyt_soft_complex *a, int n, flyt_soft_complex *x)
{
    const int stride = n;

    for (int k = 0; k < n; k++) {
        x[k] /= AT(k, k);
        for (int i = k + 1; i < n; i++)
            x[i] -= AT(i, k) * x[k];
    }
    for (int k = n - 1; k >= 0; k--) {
        for (int i = k + 1; i < n; i++)
            x[k] -= conj(AT(i, k)) * x[i];
        x[k] /= AT(k, k);
    }
}

/* ---- QR ---- */

static double length(const flyt_soft_complex *x, int count)
{
    double sum = 0;

    for (int i = 0; i < count; i++)
        sum += creal(x[i] * conj(x[i]));
    return sqrt(sum);
}

/* x -= 2 v (v* x), where v has the length 1. */
static void reflect(flyt_soft_complex *x, const flyt_soft_complex *v, int count)
{
    flyt_soft_complex dot = 0;

    for (int i = 0; i < count; i++)
        dot += conj(v[i]) * x[i];
    for (int i = 0; i < count; i++)
        x[i] -= 2 * dot * v[i];
}

static void longest_first(flyt_soft_complex *a, int m, int n, int k, int *order)
{
    const int stride = m;
    int best = k, was;

    for (int j = k + 1; j < n; j++)
        if (length(&AT(k, j), m - k) > length(&AT(k, best), m - k))
            best = j;
    if (best == k)
        return;
    for (int i = 0; i < m; i++)
        swap(&AT(i, k), &AT(i, best));
    was = order[k];
    order[k] = order[best];
    order[best] = was;
}

/* Makes column k one of R, and applies to the further ones and to b what does so. */
static bool reflect_column(flyt_soft_complex *a, int m, int n, int k, flyt_soft_complex *b)
{
    const int stride = m;
    double norm = length(&AT(k, k), m - k), whole;
    flyt_soft_complex *v = malloc((size_t)m * sizeof(*v)), head = AT(k, k);

    if (!v)
        return false;
    memcpy(v, &AT(k, k), (size_t)(m - k) * sizeof(*v));
    v[0] += norm * (head == 0 ? 1 : head / cabs(head));
    whole = length(v, m - k);
    for (int i = 0; i < m - k && whole > 0; i++)
        v[i] /= whole;
    for (int j = k; j < n && whole > 0; j++)
        reflect(&AT(k, j), v, m - k);
    if (whole > 0)
        reflect(&b[k], v, m - k);
    free(v);
    return true;
}

/* QR by reflections, in place, of an m × n matrix with m >= n, which b is reflected by, too. is_ranked: columns are
 * exchanged, the longest first, and *ret_rank is how many pivots are above tol. The first pivot that is not, or -1;
 * -2: memory is out. */
static int dense_qr(flyt_soft_complex *a, int m, int n, flyt_soft_complex *b, double tol, bool is_ranked, int *order,
                    int *ret_rank)
{
    const int stride = m;
    int singular = -1;

    *ret_rank = n;
    for (int j = 0; j < n && is_ranked; j++)
        order[j] = j;
    for (int k = 0; k < n; k++) {
        if (is_ranked)
            longest_first(a, m, n, k, order);
        if (!reflect_column(a, m, n, k, b))
            return -2;
        if (!(cabs(AT(k, k)) > tol)) {
            singular = singular < 0 ? k : singular;
            *ret_rank = *ret_rank > k ? k : *ret_rank;
        }
    }
    return singular;
}

/* x of its first `rank` rows, in the place of b. */
static void dense_qr_solve(const flyt_soft_complex *a, int m, int rank, flyt_soft_complex *b)
{
    const int stride = m;

    for (int k = rank - 1; k >= 0; k--) {
        b[k] /= AT(k, k);
        for (int i = 0; i < k; i++)
            b[i] -= AT(i, k) * b[k];
    }
}
#undef AT

/* ---- linear systems ---- */

static bool solve_lu(struct sparse_call *call, flyt_soft_complex *a, flyt_soft_complex *x)
{
    int n = call->csr.rows, *order = calloc((size_t)n + 1, sizeof(*order));

    if (!order)
        return false;
    *call->singularity = dense_lu(a, n, call->tol, order);
    if (*call->singularity < 0)
        dense_lu_solve(a, n, order, x);
    free(order);
    return true;
}

static bool solve_cholesky(struct sparse_call *call, flyt_soft_complex *a, flyt_soft_complex *x)
{
    *call->singularity = dense_cholesky(a, call->csr.rows, call->tol);
    if (*call->singularity < 0)
        dense_cholesky_solve(a, call->csr.rows, x);
    return true;
}

static bool solve_qr(struct sparse_call *call, flyt_soft_complex *a, flyt_soft_complex *x)
{
    int n = call->csr.rows, rank;

    *call->singularity = dense_qr(a, n, n, x, call->tol, false, NULL, &rank);
    if (*call->singularity == -1)
        dense_qr_solve(a, n, n, x);
    return *call->singularity >= -1;
}

/* ---- least squares ---- */

/* The rows of R's rank; what the reflected right side has below it is what remains. */
static bool solve_least_squares(struct sparse_call *call, flyt_soft_complex *a, flyt_soft_complex *x)
{
    int m = call->csr.rows, n = call->csr.columns, *order = calloc((size_t)n + 1, sizeof(*order));
    flyt_soft_complex *sorted = calloc((size_t)n + 1, sizeof(*sorted));
    bool is_done = order && sorted && dense_qr(a, m, n, x, call->tol, true, order, call->rank) >= -1;
    double rest = 0;

    for (int i = is_done ? *call->rank : m; i < m; i++)
        rest += creal(x[i] * conj(x[i]));
    if (is_done) {
        dense_qr_solve(a, m, *call->rank, x);
        for (int i = 0; i < n; i++)
            sorted[order[i]] = i < *call->rank ? x[i] : 0;
        memcpy(x, sorted, (size_t)n * sizeof(*x));
        memcpy(call->order, order, (size_t)n * sizeof(*order));
        flyt_soft_number_put(flyt_soft_number_is_double(call->csr.type) ? CUDA_R_64F : CUDA_R_32F, call->value,
                             sqrt(rest));
    }
    free(order);
    free(sorted);
    return is_done;
}

/* ---- eigenvalues ---- */

static flyt_soft_complex dot(const flyt_soft_complex *x, const flyt_soft_complex *y, int count)
{
    flyt_soft_complex sum = 0;

    for (int i = 0; i < count; i++)
        sum += conj(x[i]) * y[i];
    return sum;
}

static void normalize(flyt_soft_complex *x, int count)
{
    double norm = sqrt(creal(dot(x, x, count)));

    for (int i = 0; i < count && norm > 0; i++)
        x[i] /= norm;
}

/* Inverse iteration: with (A - mu0)^-1 x = y, where x has the length 1, 1 / (x* y) goes to lambda - mu0. */
static bool iterate(struct sparse_call *call, flyt_soft_complex *a, flyt_soft_complex *x)
{
    int n = call->csr.rows, *order = calloc((size_t)n + 1, sizeof(*order));
    flyt_soft_complex *y = calloc((size_t)n + 1, sizeof(*y)), mu = call->start, next = mu;

    for (int i = 0; i < n; i++)
        a[(size_t)i * ((size_t)n + 1)] -= call->start;
    if (order && y && dense_lu(a, n, 0, order) >= 0) /* it is one itself */
        a[(size_t)n * (size_t)n - 1] = 1e-300;
    normalize(x, n);
    for (int i = 0; order && y && i < call->round_count; i++) {
        memcpy(y, x, (size_t)n * sizeof(*y));
        dense_lu_solve(a, n, order, y);
        next = call->start + 1 / dot(x, y, n);
        memcpy(x, y, (size_t)n * sizeof(*y));
        normalize(x, n);
        if (cabs(next - mu) <= call->tol)
            break;
        mu = next;
    }
    if (order && y)
        flyt_soft_number_put(call->csr.type, call->value, next);
    free(order);
    free(y);
    return order && y;
}

/* ---- the functions of each type ---- */

static cusolverStatus_t solve(cusolverSpHandle_t handle, cudaDataType type, sparse_kernel kernel, bool is_device,
                              int rows, int columns, int nnz, cusparseMatDescr_t descr, const void *values,
                              const int *offsets, const int *indices, struct sparse_call call)
{
    cusolverStatus_t status = flyt_soft_csr_begin(handle, &call.csr, rows, columns, nnz, descr, offsets, indices);

    call.csr.type = type;
    call.csr.values = values;
    call.csr.is_device = is_device;
    call.kernel = kernel;
    return status == CUSOLVER_STATUS_SUCCESS ? make(handle, &call) : status;
}

#define LINEAR(name_, type_, real_, cuda_type_, kernel_, is_device_)                                                   \
    FLYT_SOFT_CUSOLVER name_(cusolverSpHandle_t handle, int n, int nnz, const cusparseMatDescr_t descr,                \
                             const type_ *values, const int *offsets, const int *indices, const type_ *b, real_ tol,   \
                             int reorder, type_ *x, int *singularity)                                                  \
    {                                                                                                                  \
        struct sparse_call call = {.b = b, .x = x, .tol = tol, .singularity = singularity};                            \
        if (!singularity || reorder < 0 || reorder > 3)                                                                \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        return solve(handle, cuda_type_, kernel_, is_device_, n, n, nnz, descr, values, offsets, indices, call);       \
    }
#define LEAST_SQUARES(name_, type_, real_, cuda_type_)                                                                 \
    FLYT_SOFT_CUSOLVER name_(cusolverSpHandle_t handle, int m, int n, int nnz, const cusparseMatDescr_t descr,         \
                             const type_ *values, const int *offsets, const int *indices, const type_ *b, real_ tol,   \
                             int *rank, type_ *x, int *p, real_ *min_norm)                                             \
    {                                                                                                                  \
        struct sparse_call call = {.b = b, .x = x, .tol = tol, .rank = rank, .order = p, .value = min_norm};           \
        if (!rank || !p || !min_norm)                                                                                  \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        return solve(handle, cuda_type_, solve_least_squares, false, m, n, nnz, descr, values, offsets, indices,       \
                     call);                                                                                            \
    }
#define EIGENVALUE(name_, type_, real_, cuda_type_, is_device_)                                                        \
    FLYT_SOFT_CUSOLVER name_(cusolverSpHandle_t handle, int n, int nnz, const cusparseMatDescr_t descr,                \
                             const type_ *values, const int *offsets, const int *indices, type_ mu0, const type_ *x0,  \
                             int maxite, real_ tol, type_ *mu, type_ *x)                                               \
    {                                                                                                                  \
        struct sparse_call call = {.b = x0, .x = x, .tol = tol, .round_count = maxite, .value = mu};                   \
        if (!mu || maxite < 1)                                                                                         \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        call.start = flyt_soft_number_get(cuda_type_, &mu0);                                                           \
        return solve(handle, cuda_type_, iterate, is_device_, n, n, nnz, descr, values, offsets, indices, call);       \
    }
#define FUNCTIONS(letter_, type_, real_, cuda_type_)                                                                   \
    LINEAR(cusolverSp##letter_##csrlsvluHost, type_, real_, cuda_type_, solve_lu, false)                               \
    LINEAR(cusolverSp##letter_##csrlsvqr, type_, real_, cuda_type_, solve_qr, true)                                    \
    LINEAR(cusolverSp##letter_##csrlsvqrHost, type_, real_, cuda_type_, solve_qr, false)                               \
    LINEAR(cusolverSp##letter_##csrlsvchol, type_, real_, cuda_type_, solve_cholesky, true)                            \
    LINEAR(cusolverSp##letter_##csrlsvcholHost, type_, real_, cuda_type_, solve_cholesky, false)                       \
    LEAST_SQUARES(cusolverSp##letter_##csrlsqvqrHost, type_, real_, cuda_type_)                                        \
    EIGENVALUE(cusolverSp##letter_##csreigvsi, type_, real_, cuda_type_, true)                                         \
    EIGENVALUE(cusolverSp##letter_##csreigvsiHost, type_, real_, cuda_type_, false)
FUNCTIONS(S, float, float, CUDA_R_32F)
FUNCTIONS(D, double, double, CUDA_R_64F)
FUNCTIONS(C, cuComplex, float, CUDA_C_32F)
FUNCTIONS(Z, cuDoubleComplex, double, CUDA_C_64F)

/* ---- batches by QR ---- */

/* An analysis leaves nothing here. */
struct csrqrInfo {
    int is_analysed;
};

FLYT_SOFT_CUSOLVER cusolverSpCreateCsrqrInfo(csrqrInfo_t *info)
{
    if (!info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    *info = calloc(1, sizeof(**info));
    return *info ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_ALLOC_FAILED;
}

FLYT_SOFT_CUSOLVER cusolverSpDestroyCsrqrInfo(csrqrInfo_t info)
{
    free(info);
    return CUSOLVER_STATUS_SUCCESS;
}

FLYT_SOFT_CUSOLVER cusolverSpXcsrqrAnalysisBatched(cusolverSpHandle_t handle, int m, int n, int nnz,
                                                   const cusparseMatDescr_t descr, const int *offsets,
                                                   const int *indices, csrqrInfo_t info)
{
    struct flyt_soft_csr csr;
    cusolverStatus_t status = flyt_soft_csr_begin(handle, &csr, m, n, nnz, descr, offsets, indices);

    if (!info)
        return CUSOLVER_STATUS_INVALID_VALUE;
    info->is_analysed = status == CUSOLVER_STATUS_SUCCESS;
    return status;
}

/* The members of a batch follow each other. */
static cusolverStatus_t solve_batch(cusolverSpHandle_t handle, cudaDataType type, int m, int n, int nnz,
                                    cusparseMatDescr_t descr, const char *values, const int *offsets,
                                    const int *indices, const char *b, char *x, int batch, csrqrInfo_t info)
{
    size_t bytes = flyt_soft_number_bytes(type);
    cusolverStatus_t status = CUSOLVER_STATUS_SUCCESS;

    if (!info || !info->is_analysed || !values || !b || !x || m != n || batch < 0)
        return CUSOLVER_STATUS_INVALID_VALUE;
    for (int i = 0; i < batch && status == CUSOLVER_STATUS_SUCCESS; i++) {
        int singularity;
        size_t at = (size_t)i * (size_t)n * bytes;
        struct sparse_call call = {.b = b + at, .x = x + at, .singularity = &singularity};

        status = solve(handle, type, solve_qr, true, n, n, nnz, descr, values + (size_t)i * (size_t)nnz * bytes,
                       offsets, indices, call);
    }
    return status;
}

#define BATCH(letter_, type_, cuda_type_)                                                                              \
    FLYT_SOFT_CUSOLVER cusolverSp##letter_##csrqrBufferInfoBatched(                                                    \
        cusolverSpHandle_t handle, int m, int n, int nnz, const cusparseMatDescr_t descr, const type_ *values,         \
        const int *offsets, const int *indices, int batch, csrqrInfo_t info, size_t *internal, size_t *workspace)      \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUSOLVER_STATUS_NOT_INITIALIZED;                                                                    \
        if (!internal || !workspace || !info)                                                                          \
            return CUSOLVER_STATUS_INVALID_VALUE;                                                                      \
        *internal = *workspace = 16;                                                                                   \
        return CUSOLVER_STATUS_SUCCESS;                                                                                \
    }                                                                                                                  \
    FLYT_SOFT_CUSOLVER cusolverSp##letter_##csrqrsvBatched(                                                            \
        cusolverSpHandle_t handle, int m, int n, int nnz, const cusparseMatDescr_t descr, const type_ *values,         \
        const int *offsets, const int *indices, const type_ *b, type_ *x, int batch, csrqrInfo_t info, void *buffer)   \
    {                                                                                                                  \
        return solve_batch(handle, cuda_type_, m, n, nnz, descr, (const char *)values, offsets, indices,               \
                           (const char *)b, (char *)x, batch, info);                                                   \
    }
BATCH(S, float, CUDA_R_32F)
BATCH(D, double, CUDA_R_64F)
BATCH(C, cuComplex, CUDA_C_32F)
BATCH(Z, cuDoubleComplex, CUDA_C_64F)
