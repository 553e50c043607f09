/* cuBLAS level 2: products of a matrix and a vector, triangular solves, updates of a matrix by vectors. */
#include <complex.h>
#include <string.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"

#define BYTES(letter_) flyt_soft_letter_bytes(letter_)

/* ---- y = alpha op(A) x + beta y; A in operand 0, x in 1, y in 2 ---- */

static bool kernel_gemv(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->transa, &c->m, &c->n, c->alpha.value, at[0], &c->lda, at[1], &c->ldb, c->beta.value, at[2],
            &c->ldc);
    return true;
}

static bool kernel_gbmv(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->transa, &c->m, &c->n, &c->kl, &c->ku, c->alpha.value, at[0], &c->lda, at[1], &c->ldb,
            c->beta.value, at[2], &c->ldc);
    return true;
}

static bool kernel_symv(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->n, c->alpha.value, at[0], &c->lda, at[1], &c->ldb, c->beta.value, at[2], &c->ldc);
    return true;
}

static bool kernel_sbmv(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->n, &c->k, c->alpha.value, at[0], &c->lda, at[1], &c->ldb, c->beta.value, at[2],
            &c->ldc);
    return true;
}

static bool kernel_spmv(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->n, c->alpha.value, at[0], at[1], &c->ldb, c->beta.value, at[2], &c->ldc);
    return true;
}

/* Scalars, x and y of a product, in `call`, whose shape is checked: x has `x_count` numbers, y has `y_count`. */
static cublasStatus_t set_vectors(cublasHandle_t handle, struct flyt_soft_blas *call, const void *alpha, const void *x,
                                  int64_t incx, int64_t stridex, int64_t x_count, const void *beta, const void *y,
                                  int64_t incy, int64_t stridey, int64_t y_count)
{
    unsigned bytes = BYTES(call->letter);

    FLYT_SOFT_CHECK(flyt_soft_blas_increment(incx, &call->ldb));
    FLYT_SOFT_CHECK(flyt_soft_blas_increment(incy, &call->ldc));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call->alpha, alpha, bytes));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call->beta, beta, bytes));
    call->operands[1] = flyt_soft_vector(x, x_count, incx, bytes, stridex);
    call->operands[2] = flyt_soft_vector(y, y_count, incy, bytes, stridey);
    return CUBLAS_STATUS_SUCCESS;
}

/* kl < 0: a full matrix; else the width of its band. */
static cublasStatus_t gemv(cublasHandle_t handle, enum flyt_soft_letter letter, cublasOperation_t trans, int64_t m,
                           int64_t n, int64_t kl, int64_t ku, const void *alpha, const void *a, int64_t lda,
                           int64_t stridea, const void *x, int64_t incx, int64_t stridex, const void *beta, void *y,
                           int64_t incy, int64_t stridey, int64_t batch_count, bool is_array)
{
    struct flyt_soft_blas call = {.letter = letter, .batch_count = batch_count};
    bool is_plain = trans == CUBLAS_OP_N, is_band = kl >= 0;
    int rows;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    call.kernel = is_band ? kernel_gbmv : kernel_gemv;
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(trans, &call.transa));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(m, &call.m));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(is_band ? kl : 0, &call.kl));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(is_band ? ku : 0, &call.ku));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(is_band ? kl + ku + 1 : m, &rows));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, rows, &call.lda));
    FLYT_SOFT_CHECK(set_vectors(handle, &call, alpha, x, incx, stridex, is_plain ? n : m, beta, y, incy, stridey,
                                is_plain ? m : n));
    FLYT_SOFT_CHECK(flyt_soft_blas_routine(&call, is_band ? FLYT_SOFT_GBMV : FLYT_SOFT_GEMV));
    if (m == 0 || n == 0)
        return batch_count < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_matrix(a, rows, n, lda, BYTES(letter), stridea);
    for (unsigned i = 0; i < FLYT_SOFT_OPERANDS && is_array; i++)
        call.operands[i] = flyt_soft_array_of(call.operands[i]);
    return flyt_soft_blas_push(handle, &call);
}

#define GEMV(letter_, T_, R_, I_, suffix_)                                                                             \
    FLYT_SOFT_CUBLAS cublas##letter_##gemv_v2##suffix_(cublasHandle_t handle, cublasOperation_t trans, I_ m, I_ n,     \
                                                       const T_ *alpha, const T_ *A, I_ lda, const T_ *x, I_ incx,     \
                                                       const T_ *beta, T_ *y, I_ incy)                                 \
    {                                                                                                                  \
        return gemv(handle, FLYT_SOFT_##letter_, trans, m, n, -1, 0, alpha, A, lda, 0, x, incx, 0, beta, y, incy, 0,   \
                    1, false);                                                                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##gbmv_v2##suffix_(cublasHandle_t handle, cublasOperation_t trans, I_ m, I_ n,     \
                                                       I_ kl, I_ ku, const T_ *alpha, const T_ *A, I_ lda,             \
                                                       const T_ *x, I_ incx, const T_ *beta, T_ *y, I_ incy)           \
    {                                                                                                                  \
        if (kl < 0)                                                                                                    \
            return handle ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_NOT_INITIALIZED;                               \
        return gemv(handle, FLYT_SOFT_##letter_, trans, m, n, kl, ku, alpha, A, lda, 0, x, incx, 0, beta, y, incy, 0,  \
                    1, false);                                                                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##gemvBatched##suffix_(                                                            \
        cublasHandle_t handle, cublasOperation_t trans, I_ m, I_ n, const T_ *alpha, const T_ *const Aarray[], I_ lda, \
        const T_ *const xarray[], I_ incx, const T_ *beta, T_ *const yarray[], I_ incy, I_ batchCount)                 \
    {                                                                                                                  \
        return gemv(handle, FLYT_SOFT_##letter_, trans, m, n, -1, 0, alpha, Aarray, lda, 0, xarray, incx, 0, beta,     \
                    (void *)yarray, incy, 0, batchCount, true);                                                        \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##gemvStridedBatched##suffix_(                                                     \
        cublasHandle_t handle, cublasOperation_t trans, I_ m, I_ n, const T_ *alpha, const T_ *A, I_ lda,              \
        long long int strideA, const T_ *x, I_ incx, long long int stridex, const T_ *beta, T_ *y, I_ incy,            \
        long long int stridey, I_ batchCount)                                                                          \
    {                                                                                                                  \
        return gemv(handle, FLYT_SOFT_##letter_, trans, m, n, -1, 0, alpha, A, lda, strideA, x, incx, stridex, beta,   \
                    y, incy, stridey, batchCount, false);                                                              \
    }
FLYT_SOFT_ALL(GEMV)

/* ---- the same with a symmetric or Hermitian A: full, a band of it, or packed ---- */

enum form { FULL, BAND, PACKED };

static struct flyt_soft_operand triangle(const void *a, enum form form, int64_t n, int64_t k, int64_t lda,
                                         unsigned bytes)
{
    if (form == PACKED)
        return flyt_soft_vector(a, n * (n + 1) / 2, 1, bytes, 0);
    return flyt_soft_matrix(a, form == BAND ? k + 1 : n, n, lda, bytes, 0);
}

static cublasStatus_t symv(cublasHandle_t handle, enum flyt_soft_letter letter, bool is_hermitian, enum form form,
                           cublasFillMode_t uplo, int64_t n, int64_t k, const void *alpha, const void *a, int64_t lda,
                           const void *x, int64_t incx, const void *beta, void *y, int64_t incy)
{
    static const enum flyt_soft_routine routines[2][3] = {{FLYT_SOFT_SYMV, FLYT_SOFT_SBMV, FLYT_SOFT_SPMV},
                                                          {FLYT_SOFT_HEMV, FLYT_SOFT_HBMV, FLYT_SOFT_HPMV}};
    static const flyt_soft_blas_kernel kernels[] = {kernel_symv, kernel_sbmv, kernel_spmv};
    struct flyt_soft_blas call = {.kernel = kernels[form], .letter = letter, .batch_count = 1};

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_fill(uplo, &call.uplo));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(k, &call.k));
    if (form != PACKED)
        FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, form == BAND ? call.k + 1 : call.n, &call.lda));
    FLYT_SOFT_CHECK(set_vectors(handle, &call, alpha, x, incx, 0, n, beta, y, incy, 0, n));
    FLYT_SOFT_CHECK(flyt_soft_blas_routine(&call, routines[is_hermitian][form]));
    call.operands[0] = triangle(a, form, n, k, lda, BYTES(letter));
    return n == 0 ? CUBLAS_STATUS_SUCCESS : flyt_soft_blas_push(handle, &call);
}

#define SYMV(name_, letter_, is_hermitian_, T_, I_, suffix_)                                                           \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##mv_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n,        \
                                                            const T_ *alpha, const T_ *A, I_ lda, const T_ *x,         \
                                                            I_ incx, const T_ *beta, T_ *y, I_ incy)                   \
    {                                                                                                                  \
        return symv(handle, FLYT_SOFT_##letter_, is_hermitian_, FULL, uplo, n, 0, alpha, A, lda, x, incx, beta, y,     \
                    incy);                                                                                             \
    }
#define SBMV(name_, letter_, is_hermitian_, T_, I_, suffix_)                                                           \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##bmv_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n, I_ k, \
                                                             const T_ *alpha, const T_ *A, I_ lda, const T_ *x,        \
                                                             I_ incx, const T_ *beta, T_ *y, I_ incy)                  \
    {                                                                                                                  \
        return symv(handle, FLYT_SOFT_##letter_, is_hermitian_, BAND, uplo, n, k, alpha, A, lda, x, incx, beta, y,     \
                    incy);                                                                                             \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##pmv_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n,       \
                                                             const T_ *alpha, const T_ *AP, const T_ *x, I_ incx,      \
                                                             const T_ *beta, T_ *y, I_ incy)                           \
    {                                                                                                                  \
        return symv(handle, FLYT_SOFT_##letter_, is_hermitian_, PACKED, uplo, n, 0, alpha, AP, 0, x, incx, beta, y,    \
                    incy);                                                                                             \
    }
#define SYMV_ALL(letter_, T_, R_, I_, suffix_)  SYMV(sy, letter_, false, T_, I_, suffix_)
#define SYMV_REAL(letter_, T_, R_, I_, suffix_) SBMV(s, letter_, false, T_, I_, suffix_)
#define SYMV_COMPLEX(letter_, T_, R_, I_, suffix_)                                                                     \
    SYMV(he, letter_, true, T_, I_, suffix_) SBMV(h, letter_, true, T_, I_, suffix_)
FLYT_SOFT_ALL(SYMV_ALL)
FLYT_SOFT_REAL(SYMV_REAL)
FLYT_SOFT_COMPLEX(SYMV_COMPLEX)

/* ---- x = op(A) x, and its inverse, with a triangular A; A in operand 0, x in 1 ---- */

static bool kernel_triangular(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->transa, &c->diag, &c->n, at[0], &c->lda, at[1], &c->ldb);
    return true;
}

static bool kernel_triangular_band(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->transa, &c->diag, &c->n, &c->k, at[0], &c->lda, at[1], &c->ldb);
    return true;
}

static bool kernel_triangular_packed(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->transa, &c->diag, &c->n, at[0], at[1], &c->ldb);
    return true;
}

static cublasStatus_t trmv(cublasHandle_t handle, enum flyt_soft_letter letter, bool is_solve, enum form form,
                           cublasFillMode_t uplo, cublasOperation_t trans, cublasDiagType_t diag, int64_t n, int64_t k,
                           const void *a, int64_t lda, void *x, int64_t incx)
{
    static const enum flyt_soft_routine routines[2][3] = {{FLYT_SOFT_TRMV, FLYT_SOFT_TBMV, FLYT_SOFT_TPMV},
                                                          {FLYT_SOFT_TRSV, FLYT_SOFT_TBSV, FLYT_SOFT_TPSV}};
    static const flyt_soft_blas_kernel kernels[] = {kernel_triangular, kernel_triangular_band,
                                                    kernel_triangular_packed};
    struct flyt_soft_blas call = {.kernel = kernels[form], .letter = letter, .batch_count = 1};

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_fill(uplo, &call.uplo));
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(trans, &call.transa));
    FLYT_SOFT_CHECK(flyt_soft_blas_diag(diag, &call.diag));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(k, &call.k));
    if (form != PACKED)
        FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, form == BAND ? call.k + 1 : call.n, &call.lda));
    FLYT_SOFT_CHECK(flyt_soft_blas_increment(incx, &call.ldb));
    FLYT_SOFT_CHECK(flyt_soft_blas_routine(&call, routines[is_solve][form]));
    call.operands[0] = triangle(a, form, n, k, lda, BYTES(letter));
    call.operands[1] = flyt_soft_vector(x, n, incx, BYTES(letter), 0);
    return n == 0 ? CUBLAS_STATUS_SUCCESS : flyt_soft_blas_push(handle, &call);
}

#define TRIANGULAR(letter_, T_, I_, suffix_, end_, is_solve_)                                                          \
    FLYT_SOFT_CUBLAS cublas##letter_##tr##end_##_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo,             \
                                                             cublasOperation_t trans, cublasDiagType_t diag, I_ n,     \
                                                             const T_ *A, I_ lda, T_ *x, I_ incx)                      \
    {                                                                                                                  \
        return trmv(handle, FLYT_SOFT_##letter_, is_solve_, FULL, uplo, trans, diag, n, 0, A, lda, x, incx);           \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##tb##end_##_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo,             \
                                                             cublasOperation_t trans, cublasDiagType_t diag, I_ n,     \
                                                             I_ k, const T_ *A, I_ lda, T_ *x, I_ incx)                \
    {                                                                                                                  \
        return trmv(handle, FLYT_SOFT_##letter_, is_solve_, BAND, uplo, trans, diag, n, k, A, lda, x, incx);           \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##tp##end_##_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo,             \
                                                             cublasOperation_t trans, cublasDiagType_t diag, I_ n,     \
                                                             const T_ *AP, T_ *x, I_ incx)                             \
    {                                                                                                                  \
        return trmv(handle, FLYT_SOFT_##letter_, is_solve_, PACKED, uplo, trans, diag, n, 0, AP, 0, x, incx);          \
    }
#define TRIANGULAR_BOTH(letter_, T_, R_, I_, suffix_)                                                                  \
    TRIANGULAR(letter_, T_, I_, suffix_, mv, false) TRIANGULAR(letter_, T_, I_, suffix_, sv, true)
FLYT_SOFT_ALL(TRIANGULAR_BOTH)

/*
 * ---- updates: A += alpha x op(y) [+ op(alpha) y op(x)], whole or one triangle of it ----
 *
 * Computed here: BLAS has no such routine for every type, and there is nothing to gain. x in operand 0, y in 1, A in 2.
 * The record: transa 'C' where op conjugates; uplo 0 where A is not a triangle; k 1 or 2 vectors; lda 0 where A is
 * packed.
 */

static double _Complex vector_get(cudaDataType type, const void *x, int inc, int n, int i)
{
    return flyt_soft_number_get(type, flyt_soft_number_at(type, x, inc, n, i));
}

static void add_times(struct flyt_soft_block *to, const struct flyt_soft_block *x, double _Complex factor, int count)
{
    double re = creal(factor), im = cimag(factor);

    for (int i = 0; i < count; i++) {
        to->re[i] += re * x->re[i] - im * x->im[i];
        to->im[i] += re * x->im[i] + im * x->re[i];
    }
}

static bool kernel_update(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    cudaDataType type = flyt_soft_letter_type(c->letter);
    unsigned bytes = flyt_soft_number_bytes(type);
    double _Complex alpha = flyt_soft_number_get(c->scale_type, c->alpha.value);
    double _Complex alpha2 = c->transa == 'C' ? conj(alpha) : alpha;
    bool is_hermitian = c->uplo && c->transa == 'C';
    char *packed = at[2];

    if (alpha == 0)
        return true;
    for (int j = 0; j < c->n; j++) {
        int first = c->uplo == 'L' ? j : 0, end = c->uplo == 'U' ? j + 1 : c->m;
        double _Complex y = vector_get(type, at[1], c->ldb, c->n, j), x = 0;
        char *column = c->lda ? (char *)at[2] + ((int64_t)j * c->lda + first) * bytes : packed;

        packed += (int64_t)(end - first) * bytes;
        if (c->k == 2)
            x = vector_get(type, at[0], c->kl, c->m, j);
        if (c->transa == 'C') {
            y = conj(y);
            x = conj(x);
        }
        for (int i = first; i < end; i += FLYT_SOFT_BLOCK) {
            int count = end - i < FLYT_SOFT_BLOCK ? end - i : FLYT_SOFT_BLOCK;
            char *to = column + (int64_t)(i - first) * bytes;
            struct flyt_soft_block a, v;

            flyt_soft_block_load(&a, type, to, 1, count);
            flyt_soft_block_load(&v, type, flyt_soft_number_at(type, at[0], c->kl, c->m, i), c->kl, count);
            add_times(&a, &v, alpha * y, count);
            if (c->k == 2) {
                flyt_soft_block_load(&v, type, flyt_soft_number_at(type, at[1], c->ldb, c->n, i), c->ldb, count);
                add_times(&a, &v, alpha2 * x, count);
            }
            if (is_hermitian && j >= i && j < i + count)
                a.im[j - i] = 0;
            flyt_soft_block_store(&a, type, to, 1, count);
        }
    }
    return true;
}

/* uplo < 0: all of A. vectors 1: y is x. */
static cublasStatus_t update(cublasHandle_t handle, enum flyt_soft_letter letter, bool is_conjugated, int uplo,
                             int vectors, int64_t m, int64_t n, const void *alpha, cudaDataType alpha_type,
                             const void *x, int64_t incx, const void *y, int64_t incy, void *a, int64_t lda,
                             bool is_packed)
{
    unsigned bytes = BYTES(letter);
    struct flyt_soft_blas call = {
        .kernel = kernel_update,
        .letter = letter,
        .batch_count = 1,
        .k = vectors,
        .transa = is_conjugated ? 'C' : 'T',
        .scale_type = alpha_type,
    };

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (uplo >= 0)
        FLYT_SOFT_CHECK(flyt_soft_blas_fill((cublasFillMode_t)uplo, &call.uplo));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(m, &call.m));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_increment(incx, &call.kl));
    FLYT_SOFT_CHECK(flyt_soft_blas_increment(incy, &call.ldb));
    if (!is_packed)
        FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, call.m, &call.lda));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.alpha, alpha, flyt_soft_number_bytes(alpha_type)));
    if (m == 0 || n == 0)
        return CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_vector(x, m, incx, bytes, 0);
    call.operands[1] = flyt_soft_vector(y, n, incy, bytes, 0);
    call.operands[2] =
        is_packed ? flyt_soft_vector(a, n * (n + 1) / 2, 1, bytes, 0) : flyt_soft_matrix(a, m, n, lda, bytes, 0);
    return flyt_soft_blas_push(handle, &call);
}

#define TYPE(letter_) flyt_soft_letter_type(FLYT_SOFT_##letter_)

#define GER(name_, letter_, is_conjugated_, T_, I_, suffix_)                                                           \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##_v2##suffix_(cublasHandle_t handle, I_ m, I_ n, const T_ *alpha,          \
                                                          const T_ *x, I_ incx, const T_ *y, I_ incy, T_ *A, I_ lda)   \
    {                                                                                                                  \
        return update(handle, FLYT_SOFT_##letter_, is_conjugated_, -1, 1, m, n, alpha, TYPE(letter_), x, incx, y,      \
                      incy, A, lda, false);                                                                            \
    }
#define GER_REAL(letter_, T_, R_, I_, suffix_) GER(ger, letter_, false, T_, I_, suffix_)
#define GER_COMPLEX(letter_, T_, R_, I_, suffix_)                                                                      \
    GER(geru, letter_, false, T_, I_, suffix_) GER(gerc, letter_, true, T_, I_, suffix_)
FLYT_SOFT_REAL(GER_REAL)
FLYT_SOFT_COMPLEX(GER_COMPLEX)

/* One vector (alpha of type A_), or two. */
#define SYR(name_, letter_, is_conjugated_, T_, A_, alpha_type_, I_, suffix_)                                          \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n,          \
                                                          const A_ *alpha, const T_ *x, I_ incx, T_ *A, I_ lda)        \
    {                                                                                                                  \
        return update(handle, FLYT_SOFT_##letter_, is_conjugated_, (int)uplo, 1, n, n, alpha, alpha_type_, x, incx, x, \
                      incx, A, lda, false);                                                                            \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##2_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n,         \
                                                           const T_ *alpha, const T_ *x, I_ incx, const T_ *y,         \
                                                           I_ incy, T_ *A, I_ lda)                                     \
    {                                                                                                                  \
        return update(handle, FLYT_SOFT_##letter_, is_conjugated_, (int)uplo, 2, n, n, alpha, TYPE(letter_), x, incx,  \
                      y, incy, A, lda, false);                                                                         \
    }
#define SPR(name_, letter_, is_conjugated_, T_, A_, alpha_type_, I_, suffix_)                                          \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n,          \
                                                          const A_ *alpha, const T_ *x, I_ incx, T_ *AP)               \
    {                                                                                                                  \
        return update(handle, FLYT_SOFT_##letter_, is_conjugated_, (int)uplo, 1, n, n, alpha, alpha_type_, x, incx, x, \
                      incx, AP, 0, true);                                                                              \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##2_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, I_ n,         \
                                                           const T_ *alpha, const T_ *x, I_ incx, const T_ *y,         \
                                                           I_ incy, T_ *AP)                                            \
    {                                                                                                                  \
        return update(handle, FLYT_SOFT_##letter_, is_conjugated_, (int)uplo, 2, n, n, alpha, TYPE(letter_), x, incx,  \
                      y, incy, AP, 0, true);                                                                           \
    }

/* The real type of a letter's type. */
#define REAL_TYPE(letter_) (flyt_soft_letter_real_bytes(FLYT_SOFT_##letter_) == 4 ? CUDA_R_32F : CUDA_R_64F)

#define SYR_ALL(letter_, T_, R_, I_, suffix_)  SYR(syr, letter_, false, T_, T_, TYPE(letter_), I_, suffix_)
#define SPR_REAL(letter_, T_, R_, I_, suffix_) SPR(spr, letter_, false, T_, T_, TYPE(letter_), I_, suffix_)
#define HER_COMPLEX(letter_, T_, R_, I_, suffix_)                                                                      \
    SYR(her, letter_, true, T_, R_, REAL_TYPE(letter_), I_, suffix_)                                                   \
    SPR(hpr, letter_, true, T_, R_, REAL_TYPE(letter_), I_, suffix_)
FLYT_SOFT_ALL(SYR_ALL)
FLYT_SOFT_REAL(SPR_REAL)
FLYT_SOFT_COMPLEX(HER_COMPLEX)
