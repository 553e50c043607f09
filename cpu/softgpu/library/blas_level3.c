/* cuBLAS level 3, but for the products of blas_gemm.c, and what NVIDIA added beside it: geam, dgmm, packing. */
#include <complex.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/library/product.h"

#define BYTES(letter_)      flyt_soft_letter_bytes(letter_)
#define TYPE(letter_)       flyt_soft_letter_type(FLYT_SOFT_##letter_)
#define REAL_BYTES(letter_) flyt_soft_letter_real_bytes(FLYT_SOFT_##letter_)

static bool is_complex(enum flyt_soft_letter letter)
{
    return letter >= FLYT_SOFT_C;
}

/* Where column j of a matrix begins. */
static void *column(const void *at, int64_t leading, int64_t j, unsigned bytes)
{
    return (char *)at + j * leading * bytes;
}

/* ---- one of A and B is symmetric, Hermitian or triangular: m, n are those of C ---- */

static bool kernel_symm(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->side, &c->uplo, &c->m, &c->n, c->alpha.value, at[0], &c->lda, at[1], &c->ldb, c->beta.value,
            at[2], &c->ldc);
    return true;
}

/* NVIDIA's trmm has its result apart from B, which may be the same matrix. */
static bool kernel_trmm(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    unsigned bytes = BYTES(c->letter);

    for (int64_t j = 0; j < c->n && at[1] != at[2]; j++)
        memmove(column(at[2], c->ldc, j, bytes), column(at[1], c->ldb, j, bytes), (size_t)c->m * bytes);
    FORTRAN(c->fn, &c->side, &c->uplo, &c->transa, &c->diag, &c->m, &c->n, c->alpha.value, at[0], &c->lda, at[2],
            &c->ldc);
    return true;
}

static bool kernel_trsm(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->side, &c->uplo, &c->transa, &c->diag, &c->m, &c->n, c->alpha.value, at[0], &c->lda, at[1],
            &c->ldb);
    return true;
}

/* C or beta NULL: there is none. trans and diag: of a triangular A. */
static cublasStatus_t sided(cublasHandle_t handle, enum flyt_soft_letter letter, enum flyt_soft_routine routine,
                            flyt_soft_blas_kernel kernel, cublasSideMode_t side, cublasFillMode_t uplo,
                            cublasOperation_t trans, cublasDiagType_t diag, int64_t m, int64_t n, const void *alpha,
                            const void *a, int64_t lda, const void *b, int64_t ldb, const void *beta, const void *c,
                            int64_t ldc, int64_t batch_count, bool is_array)
{
    struct flyt_soft_blas call = {.kernel = kernel, .letter = letter, .batch_count = batch_count};
    unsigned bytes = BYTES(letter);
    int order;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_side(side, &call.side));
    FLYT_SOFT_CHECK(flyt_soft_blas_fill(uplo, &call.uplo));
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(trans, &call.transa));
    FLYT_SOFT_CHECK(flyt_soft_blas_diag(diag, &call.diag));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(m, &call.m));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    order = side == CUBLAS_SIDE_LEFT ? call.m : call.n;
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, order, &call.lda));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldb, call.m, &call.ldb));
    if (kernel != kernel_trsm)
        FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldc, call.m, &call.ldc));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.alpha, alpha, bytes));
    if (kernel == kernel_symm)
        FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.beta, beta, bytes));
    FLYT_SOFT_CHECK(flyt_soft_blas_routine(&call, routine));
    if (m == 0 || n == 0)
        return batch_count < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_matrix(a, order, order, lda, bytes, 0);
    call.operands[1] = flyt_soft_matrix(b, m, n, ldb, bytes, 0);
    if (kernel != kernel_trsm)
        call.operands[2] = flyt_soft_matrix(c, m, n, ldc, bytes, 0);
    for (unsigned i = 0; i < 2 && is_array; i++)
        call.operands[i] = flyt_soft_array_of(call.operands[i]);
    return flyt_soft_blas_push(handle, &call);
}

#define SYMM(name_, routine_, letter_, T_, I_, suffix_)                                                                \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##_v2##suffix_(                                                             \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, I_ m, I_ n, const T_ *alpha, const T_ *A, \
        I_ lda, const T_ *B, I_ ldb, const T_ *beta, T_ *C, I_ ldc)                                                    \
    {                                                                                                                  \
        return sided(handle, FLYT_SOFT_##letter_, routine_, kernel_symm, side, uplo, CUBLAS_OP_N,                      \
                     CUBLAS_DIAG_NON_UNIT, m, n, alpha, A, lda, B, ldb, beta, C, ldc, 1, false);                       \
    }
#define SIDED(letter_, T_, R_, I_, suffix_)                                                                            \
    SYMM(symm, FLYT_SOFT_SYMM, letter_, T_, I_, suffix_)                                                               \
    FLYT_SOFT_CUBLAS cublas##letter_##trmm_v2##suffix_(                                                                \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
        cublasDiagType_t diag, I_ m, I_ n, const T_ *alpha, const T_ *A, I_ lda, const T_ *B, I_ ldb, T_ *C, I_ ldc)   \
    {                                                                                                                  \
        return sided(handle, FLYT_SOFT_##letter_, FLYT_SOFT_TRMM, kernel_trmm, side, uplo, trans, diag, m, n, alpha,   \
                     A, lda, B, ldb, NULL, C, ldc, 1, false);                                                          \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##trsm_v2##suffix_(                                                                \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
        cublasDiagType_t diag, I_ m, I_ n, const T_ *alpha, const T_ *A, I_ lda, T_ *B, I_ ldb)                        \
    {                                                                                                                  \
        return sided(handle, FLYT_SOFT_##letter_, FLYT_SOFT_TRSM, kernel_trsm, side, uplo, trans, diag, m, n, alpha,   \
                     A, lda, B, ldb, NULL, NULL, 0, 1, false);                                                         \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##trsmBatched##suffix_(                                                            \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
        cublasDiagType_t diag, I_ m, I_ n, const T_ *alpha, const T_ *const A[], I_ lda, T_ *const B[], I_ ldb,        \
        I_ batchCount)                                                                                                 \
    {                                                                                                                  \
        return sided(handle, FLYT_SOFT_##letter_, FLYT_SOFT_TRSM, kernel_trsm, side, uplo, trans, diag, m, n, alpha,   \
                     A, lda, B, ldb, NULL, NULL, 0, batchCount, true);                                                 \
    }
#define HEMM(letter_, T_, R_, I_, suffix_) SYMM(hemm, FLYT_SOFT_HEMM, letter_, T_, I_, suffix_)
FLYT_SOFT_ALL(SIDED)
FLYT_SOFT_COMPLEX(HEMM)

/* ---- C is symmetric or Hermitian: n × n, over k ---- */

static bool kernel_syrk(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->transa, &c->n, &c->k, c->alpha.value, at[0], &c->lda, c->beta.value, at[2], &c->ldc);
    return true;
}

static bool kernel_syr2k(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    FORTRAN(c->fn, &c->uplo, &c->transa, &c->n, &c->k, c->alpha.value, at[0], &c->lda, at[1], &c->ldb, c->beta.value,
            at[2], &c->ldc);
    return true;
}

/* One triangle of alpha A op(B) + beta C, which the caller knows to be symmetric: the whole product is made. */
static bool kernel_syrkx(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    cudaDataType type = flyt_soft_letter_type(c->letter);
    unsigned bytes = BYTES(c->letter);
    double _Complex alpha = flyt_soft_number_get(type, c->alpha.value);
    double _Complex beta = flyt_soft_number_get(c->scale_type, c->beta.value);
    char other = c->is_conjugated ? 'C' : 'T';
    struct flyt_soft_product product = {
        .a_type = type,
        .b_type = type,
        .sum_type = type,
        .transa = c->transa == 'N' ? 'N' : other,
        .transb = c->transa == 'N' ? other : 'N',
        .m = c->n,
        .n = c->n,
        .k = c->k,
        .lda = c->lda,
        .ldb = c->ldb,
        .gemm = c->fn,
    };
    void *sum = malloc((size_t)c->n * (size_t)c->n * bytes);
    bool has_memory = sum && flyt_soft_product_run(&product, at[0], at[1], sum);

    for (int j = 0; j < c->n && has_memory; j++) {
        for (int i = c->uplo == 'L' ? j : 0; i < (c->uplo == 'L' ? c->n : j + 1); i++) {
            char *to = (char *)column(at[2], c->ldc, j, bytes) + (size_t)i * bytes;
            double _Complex x =
                alpha * flyt_soft_number_get(type, (char *)column(sum, c->n, j, bytes) + (size_t)i * bytes);

            x = beta == 0 ? x : x + beta * flyt_soft_number_get(type, to);
            flyt_soft_number_put(type, to, c->is_conjugated && i == j ? creal(x) : x);
        }
    }
    free(sum);
    return has_memory;
}

/* b NULL: there is none. is_hermitian: beta is real, and alpha where there is no B. */
static cublasStatus_t ranked(cublasHandle_t handle, enum flyt_soft_letter letter, enum flyt_soft_routine routine,
                             flyt_soft_blas_kernel kernel, bool is_hermitian, cublasFillMode_t uplo,
                             cublasOperation_t trans, int64_t n, int64_t k, const void *alpha, const void *a,
                             int64_t lda, const void *b, int64_t ldb, const void *beta, const void *c, int64_t ldc)
{
    unsigned bytes = BYTES(letter), real_bytes = flyt_soft_letter_real_bytes(letter);
    struct flyt_soft_blas call = {
        .kernel = kernel,
        .letter = letter,
        .batch_count = 1,
        .is_conjugated = is_hermitian,
        .scale_type = !is_hermitian     ? flyt_soft_letter_type(letter)
                      : real_bytes == 4 ? CUDA_R_32F
                                        : CUDA_R_64F,
    };
    bool is_plain = trans == CUBLAS_OP_N;
    int rows;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if (is_complex(letter) && trans == (is_hermitian ? CUBLAS_OP_T : CUBLAS_OP_C))
        return CUBLAS_STATUS_INVALID_VALUE;
    FLYT_SOFT_CHECK(flyt_soft_blas_fill(uplo, &call.uplo));
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(trans, &call.transa));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(k, &call.k));
    rows = is_plain ? call.n : call.k;
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, rows, &call.lda));
    if (kernel != kernel_syrk)
        FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldb, rows, &call.ldb));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldc, call.n, &call.ldc));
    FLYT_SOFT_CHECK(
        flyt_soft_scalar_set(handle, &call.alpha, alpha, is_hermitian && kernel == kernel_syrk ? real_bytes : bytes));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.beta, beta, is_hermitian ? real_bytes : bytes));
    FLYT_SOFT_CHECK(flyt_soft_blas_routine(&call, routine));
    if (n == 0)
        return CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_matrix(a, rows, is_plain ? k : n, lda, bytes, 0);
    if (kernel != kernel_syrk)
        call.operands[1] = flyt_soft_matrix(b, rows, is_plain ? k : n, ldb, bytes, 0);
    call.operands[2] = flyt_soft_matrix(c, n, n, ldc, bytes, 0);
    return flyt_soft_blas_push(handle, &call);
}

#define RANK_K(name_, routine_, letter_, is_hermitian_, T_, A_, I_, suffix_)                                           \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##_v2##suffix_(cublasHandle_t handle, cublasFillMode_t uplo,                \
                                                          cublasOperation_t trans, I_ n, I_ k, const A_ *alpha,        \
                                                          const T_ *A, I_ lda, const A_ *beta, T_ *C, I_ ldc)          \
    {                                                                                                                  \
        return ranked(handle, FLYT_SOFT_##letter_, routine_, kernel_syrk, is_hermitian_, uplo, trans, n, k, alpha, A,  \
                      lda, NULL, 0, beta, C, ldc);                                                                     \
    }
#define RANK_2K(name_, routine_, kernel_, letter_, is_hermitian_, T_, A_, I_, suffix_)                                 \
    FLYT_SOFT_CUBLAS cublas##letter_##name_##suffix_(                                                                  \
        cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, I_ n, I_ k, const T_ *alpha,            \
        const T_ *A, I_ lda, const T_ *B, I_ ldb, const A_ *beta, T_ *C, I_ ldc)                                       \
    {                                                                                                                  \
        return ranked(handle, FLYT_SOFT_##letter_, routine_, kernel_, is_hermitian_, uplo, trans, n, k, alpha, A, lda, \
                      B, ldb, beta, C, ldc);                                                                           \
    }
#define RANKED(letter_, T_, R_, I_, suffix_)                                                                           \
    RANK_K(syrk, FLYT_SOFT_SYRK, letter_, false, T_, T_, I_, suffix_)                                                  \
    RANK_2K(syr2k_v2, FLYT_SOFT_SYR2K, kernel_syr2k, letter_, false, T_, T_, I_, suffix_)                              \
    RANK_2K(syrkx, FLYT_SOFT_GEMM, kernel_syrkx, letter_, false, T_, T_, I_, suffix_)
#define RANKED_HERMITIAN(letter_, T_, R_, I_, suffix_)                                                                 \
    RANK_K(herk, FLYT_SOFT_HERK, letter_, true, T_, R_, I_, suffix_)                                                   \
    RANK_2K(her2k_v2, FLYT_SOFT_HER2K, kernel_syr2k, letter_, true, T_, R_, I_, suffix_)                               \
    RANK_2K(herkx, FLYT_SOFT_GEMM, kernel_syrkx, letter_, true, T_, R_, I_, suffix_)
FLYT_SOFT_ALL(RANKED)
FLYT_SOFT_COMPLEX(RANKED_HERMITIAN)

/* With types as arguments: complex floats; 8-bit complex integers are refused. */
#define RANK_EX(name_, plain_, A_, I_, suffix_)                                                                        \
    FLYT_SOFT_CUBLAS name_##suffix_(cublasHandle_t handle, cublasFillMode_t uplo, cublasOperation_t trans, I_ n, I_ k, \
                                    const A_ *alpha, const void *A, cudaDataType Atype, I_ lda, const A_ *beta,        \
                                    void *C, cudaDataType Ctype, I_ ldc)                                               \
    {                                                                                                                  \
        if (!handle)                                                                                                   \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        if (Atype != CUDA_C_32F || Ctype != CUDA_C_32F)                                                                \
            return CUBLAS_STATUS_NOT_SUPPORTED;                                                                        \
        return plain_##suffix_(handle, uplo, trans, n, k, alpha, A, lda, beta, C, ldc);                                \
    }
#define RANK_EX_BOTH(...) RANK_EX(__VA_ARGS__, int, ) RANK_EX(__VA_ARGS__, int64_t, _64)
RANK_EX_BOTH(cublasCsyrkEx, cublasCsyrk_v2, cuComplex)
RANK_EX_BOTH(cublasCsyrk3mEx, cublasCsyrk_v2, cuComplex)
RANK_EX_BOTH(cublasCherkEx, cublasCherk_v2, float)
RANK_EX_BOTH(cublasCherk3mEx, cublasCherk_v2, float)

/* ---- C = alpha op(A) + beta op(B) ---- */

/* A factor of 0 means that the matrix is not looked at. */
static double _Complex term(const struct flyt_soft_blas *c, double _Complex factor, const void *at, int64_t leading,
                            char trans, int64_t i, int64_t j)
{
    cudaDataType type = flyt_soft_letter_type(c->letter);
    unsigned bytes = BYTES(c->letter);
    double _Complex x;

    if (factor == 0)
        return 0;
    x = flyt_soft_number_get(type, (char *)at + (trans == 'N' ? i + j * leading : j + i * leading) * bytes);
    return factor * (trans == 'C' ? conj(x) : x);
}

static bool kernel_geam(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    cudaDataType type = flyt_soft_letter_type(c->letter);
    double _Complex alpha = flyt_soft_number_get(type, c->alpha.value),
                    beta = flyt_soft_number_get(type, c->beta.value);
    unsigned bytes = BYTES(c->letter);

    for (int64_t j = 0; j < c->n; j++)
        for (int64_t i = 0; i < c->m; i++)
            flyt_soft_number_put(type, (char *)at[2] + (i + j * c->ldc) * bytes,
                                 term(c, alpha, at[0], c->lda, c->transa, i, j) +
                                     term(c, beta, at[1], c->ldb, c->transb, i, j));
    return true;
}

static cublasStatus_t geam(cublasHandle_t handle, enum flyt_soft_letter letter, cublasOperation_t transa,
                           cublasOperation_t transb, int64_t m, int64_t n, const void *alpha, const void *a,
                           int64_t lda, const void *beta, const void *b, int64_t ldb, void *c, int64_t ldc)
{
    struct flyt_soft_blas call = {.kernel = kernel_geam, .letter = letter, .batch_count = 1};
    bool a_is_plain = transa == CUBLAS_OP_N, b_is_plain = transb == CUBLAS_OP_N;
    unsigned bytes = BYTES(letter);

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(transa, &call.transa));
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(transb, &call.transb));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(m, &call.m));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, a || !b ? a_is_plain ? call.m : call.n : 1, &call.lda));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldb, b ? b_is_plain ? call.m : call.n : 1, &call.ldb));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldc, call.m, &call.ldc));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.alpha, alpha, bytes));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.beta, beta, bytes));
    if ((c == a && (!a_is_plain || lda != ldc)) || (c == b && (!b_is_plain || ldb != ldc)))
        return CUBLAS_STATUS_INVALID_VALUE; /* in place, and not where each number comes from */
    if (m == 0 || n == 0)
        return CUBLAS_STATUS_SUCCESS;
    /* One of them may be missing where its factor is 0. */
    if (a)
        call.operands[0] = flyt_soft_matrix(a, a_is_plain ? m : n, a_is_plain ? n : m, lda, bytes, 0);
    if (b)
        call.operands[1] = flyt_soft_matrix(b, b_is_plain ? m : n, b_is_plain ? n : m, ldb, bytes, 0);
    call.operands[2] = flyt_soft_matrix(c, m, n, ldc, bytes, 0);
    if (handle->pointer_mode == CUBLAS_POINTER_MODE_HOST &&
        ((!a && flyt_soft_number_get(flyt_soft_letter_type(letter), alpha) != 0) ||
         (!b && flyt_soft_number_get(flyt_soft_letter_type(letter), beta) != 0)))
        return CUBLAS_STATUS_INVALID_VALUE;
    return flyt_soft_blas_push(handle, &call);
}

/* ---- C = A diag(x), or diag(x) A; x in operand 1 with its increment in ldb ---- */

static bool kernel_dgmm(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    cudaDataType type = flyt_soft_letter_type(c->letter);
    unsigned bytes = BYTES(c->letter);
    int count = c->side == 'L' ? c->m : c->n;

    for (int64_t j = 0; j < c->n; j++) {
        for (int64_t i = 0; i < c->m; i++) {
            const void *x = flyt_soft_number_at(type, at[1], c->ldb, count, c->side == 'L' ? i : j);
            double _Complex a = flyt_soft_number_get(type, (char *)at[0] + (i + j * c->lda) * bytes);

            flyt_soft_number_put(type, (char *)at[2] + (i + j * c->ldc) * bytes, a * flyt_soft_number_get(type, x));
        }
    }
    return true;
}

static cublasStatus_t dgmm(cublasHandle_t handle, enum flyt_soft_letter letter, cublasSideMode_t side, int64_t m,
                           int64_t n, const void *a, int64_t lda, const void *x, int64_t incx, void *c, int64_t ldc)
{
    struct flyt_soft_blas call = {.kernel = kernel_dgmm, .letter = letter, .batch_count = 1};
    unsigned bytes = BYTES(letter);

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_side(side, &call.side));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(m, &call.m));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, call.m, &call.lda));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(ldc, call.m, &call.ldc));
    if (incx) /* 0: the same number for all */
        FLYT_SOFT_CHECK(flyt_soft_blas_increment(incx, &call.ldb));
    if (m == 0 || n == 0)
        return CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_matrix(a, m, n, lda, bytes, 0);
    call.operands[1] = flyt_soft_vector(x, side == CUBLAS_SIDE_LEFT ? m : n, incx, bytes, 0);
    call.operands[2] = flyt_soft_matrix(c, m, n, ldc, bytes, 0);
    return flyt_soft_blas_push(handle, &call);
}

#define SUMS(letter_, T_, R_, I_, suffix_)                                                                             \
    FLYT_SOFT_CUBLAS cublas##letter_##geam##suffix_(                                                                   \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m, I_ n, const T_ *alpha,        \
        const T_ *A, I_ lda, const T_ *beta, const T_ *B, I_ ldb, T_ *C, I_ ldc)                                       \
    {                                                                                                                  \
        return geam(handle, FLYT_SOFT_##letter_, transa, transb, m, n, alpha, A, lda, beta, B, ldb, C, ldc);           \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##dgmm##suffix_(cublasHandle_t handle, cublasSideMode_t mode, I_ m, I_ n,          \
                                                    const T_ *A, I_ lda, const T_ *x, I_ incx, T_ *C, I_ ldc)          \
    {                                                                                                                  \
        return dgmm(handle, FLYT_SOFT_##letter_, mode, m, n, A, lda, x, incx, C, ldc);                                 \
    }
FLYT_SOFT_ALL(SUMS)

/* ---- a triangle packed, and unpacked: the matrix in operand 0, the packed one in 1 ---- */

static bool kernel_pack(const struct flyt_soft_blas *c, void *const at[], int64_t member)
{
    unsigned bytes = BYTES(c->letter);
    char *packed = at[1];

    for (int j = 0; j < c->n; j++) {
        int first = c->uplo == 'L' ? j : 0, end = c->uplo == 'L' ? c->n : j + 1;
        char *full = (char *)column(at[0], c->lda, j, bytes) + (size_t)first * bytes;
        size_t count_bytes = (size_t)(end - first) * bytes;

        if (c->k)
            memcpy(packed, full, count_bytes);
        else
            memcpy(full, packed, count_bytes);
        packed += count_bytes;
    }
    return true;
}

static cublasStatus_t pack(cublasHandle_t handle, enum flyt_soft_letter letter, bool is_packing, cublasFillMode_t uplo,
                           int64_t n, const void *packed, const void *a, int64_t lda)
{
    struct flyt_soft_blas call = {.kernel = kernel_pack, .letter = letter, .batch_count = 1, .k = is_packing};

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_fill(uplo, &call.uplo));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(lda, call.n, &call.lda));
    if (n == 0)
        return CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_matrix(a, n, n, lda, BYTES(letter), 0);
    call.operands[1] = flyt_soft_vector(packed, n * (n + 1) / 2, 1, BYTES(letter), 0);
    return flyt_soft_blas_push(handle, &call);
}

#define PACK(letter_, T_)                                                                                              \
    FLYT_SOFT_CUBLAS cublas##letter_##tpttr(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T_ *AP, T_ *A,  \
                                            int lda)                                                                   \
    {                                                                                                                  \
        return pack(handle, FLYT_SOFT_##letter_, false, uplo, n, AP, A, lda);                                          \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublas##letter_##trttp(cublasHandle_t handle, cublasFillMode_t uplo, int n, const T_ *A, int lda, \
                                            T_ *AP)                                                                    \
    {                                                                                                                  \
        return pack(handle, FLYT_SOFT_##letter_, true, uplo, n, AP, A, lda);                                           \
    }
PACK(S, float)
PACK(D, double)
PACK(C, cuComplex)
PACK(Z, cuDoubleComplex)
