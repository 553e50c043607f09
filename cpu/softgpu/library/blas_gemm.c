/* cuBLAS: all products of two matrices. */
#include <complex.h>
#include <stdlib.h>

#include "cpu/softgpu/library/blas.h"
#include "cpu/softgpu/library/number.h"
#include "cpu/softgpu/library/product.h"

/* ---- kernels ---- */

static bool kernel_native(const struct flyt_soft_blas *call, void *const at[], int64_t member)
{
    FORTRAN(call->fn, &call->transa, &call->transb, &call->m, &call->n, &call->k, call->alpha.value, at[0], &call->lda,
            at[1], &call->ldb, call->beta.value, at[2], &call->ldc);
    return true;
}

/* One column of C: alpha sum + beta C. */
static void finish_column(const struct flyt_soft_blas *call, const void *sum, cudaDataType sum_type, void *c)
{
    double alpha = creal(flyt_soft_number_get(call->scale_type, call->alpha.value));
    double beta = creal(flyt_soft_number_get(call->scale_type, call->beta.value));
    unsigned sum_bytes = flyt_soft_number_bytes(sum_type), bytes = flyt_soft_number_bytes(call->types[2]);

    for (int i = 0; i < call->m; i += FLYT_SOFT_BLOCK) {
        int count = call->m - i < FLYT_SOFT_BLOCK ? call->m - i : FLYT_SOFT_BLOCK;
        struct flyt_soft_block x, y;
        char *to = (char *)c + (size_t)i * bytes;

        flyt_soft_block_load(&x, sum_type, (const char *)sum + (size_t)i * sum_bytes, 1, count);
        if (beta != 0)
            flyt_soft_block_load(&y, call->types[2], to, 1, count);
        for (int j = 0; j < count; j++)
            x.re[j] = beta != 0 ? alpha * x.re[j] + beta * y.re[j] : alpha * x.re[j];
        flyt_soft_block_store(&x, call->types[2], to, 1, count);
    }
}

/* Mixed types: the sum first, then C from it. */
static bool kernel_mixed(const struct flyt_soft_blas *call, void *const at[], int64_t member)
{
    struct flyt_soft_product product = {
        .a_type = call->types[0],
        .b_type = call->types[1],
        .sum_type = call->scale_type == CUDA_R_32I ? CUDA_R_32I : CUDA_R_32F,
        .transa = call->transa,
        .transb = call->transb,
        .m = call->m,
        .n = call->n,
        .k = call->k,
        .lda = call->lda,
        .ldb = call->ldb,
        .gemm = call->fn,
    };
    unsigned c_bytes = flyt_soft_number_bytes(call->types[2]);
    char *sum = malloc((size_t)call->m * (size_t)call->n * 4);
    bool has_memory = sum && flyt_soft_product_run(&product, at[0], at[1], sum);

    for (int64_t j = 0; j < call->n && has_memory; j++)
        finish_column(call, sum + (size_t)j * (size_t)call->m * 4, product.sum_type,
                      (char *)at[2] + j * call->ldc * c_bytes);
    free(sum);
    return has_memory;
}

static bool kernel(const struct flyt_soft_blas *call, void *const at[], int64_t member)
{
    bool is_native = call->types[0] == call->scale_type && call->types[1] == call->scale_type &&
                     call->types[2] == call->scale_type && flyt_soft_letter_type(call->letter) == call->scale_type;

    return is_native ? kernel_native(call, at, member) : kernel_mixed(call, at, member);
}

/* ---- checks ---- */

/* Which types a compute type goes with, and the type of alpha and beta then. */
static const struct {
    cublasComputeType_t compute;
    cudaDataType scale, ab, c;
} combinations[] = {
    {CUBLAS_COMPUTE_16F, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32I, CUDA_R_32I, CUDA_R_8I, CUDA_R_32I},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_8I, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F},
    {CUBLAS_COMPUTE_32F, CUDA_C_32F, CUDA_C_32F, CUDA_C_32F},
    {CUBLAS_COMPUTE_64F, CUDA_R_64F, CUDA_R_64F, CUDA_R_64F},
    {CUBLAS_COMPUTE_64F, CUDA_C_64F, CUDA_C_64F, CUDA_C_64F},
};

/* The compute type without what only changes how fast and exact it is. */
static cublasComputeType_t plain(cublasComputeType_t compute)
{
    switch (compute) {
    case CUBLAS_COMPUTE_16F_PEDANTIC:
        return CUBLAS_COMPUTE_16F;
    case CUBLAS_COMPUTE_32I_PEDANTIC:
        return CUBLAS_COMPUTE_32I;
    case CUBLAS_COMPUTE_32F_PEDANTIC:
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
    case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
        return CUBLAS_COMPUTE_32F;
    case CUBLAS_COMPUTE_64F_PEDANTIC:
    case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
        return CUBLAS_COMPUTE_64F;
    default:
        return compute;
    }
}

static cublasStatus_t choose(struct flyt_soft_blas *call)
{
    static const enum flyt_soft_letter letters[] = {
        [CUDA_R_32F] = FLYT_SOFT_S, [CUDA_R_64F] = FLYT_SOFT_D, [CUDA_C_32F] = FLYT_SOFT_C, [CUDA_C_64F] = FLYT_SOFT_Z};

    for (unsigned i = 0; i < sizeof(combinations) / sizeof(combinations[0]); i++) {
        if (combinations[i].compute != plain(call->compute) || combinations[i].ab != call->types[0] ||
            combinations[i].ab != call->types[1] || combinations[i].c != call->types[2])
            continue;
        call->scale_type = combinations[i].scale;
        call->letter =
            call->scale_type == CUDA_R_16F || call->scale_type == CUDA_R_32I ? FLYT_SOFT_S : letters[call->scale_type];
        return flyt_soft_blas_routine(call, FLYT_SOFT_GEMM);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

struct matrix {
    const void *at;
    cudaDataType type;
    int64_t leading, stride;
};

/* is_array: the matrices are arrays of pointers in device memory. */
static cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m,
                           int64_t n, int64_t k, const void *alpha, struct matrix a, struct matrix b, const void *beta,
                           struct matrix c, int64_t batch_count, bool is_array, cublasComputeType_t compute)
{
    struct flyt_soft_blas call = {
        .kernel = kernel,
        .batch_count = batch_count,
        .types = {a.type, b.type, c.type},
        .compute = compute,
    };
    bool a_is_plain = transa == CUBLAS_OP_N, b_is_plain = transb == CUBLAS_OP_N;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(transa, &call.transa));
    FLYT_SOFT_CHECK(flyt_soft_blas_operation(transb, &call.transb));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(m, &call.m));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(n, &call.n));
    FLYT_SOFT_CHECK(flyt_soft_blas_size(k, &call.k));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(a.leading, a_is_plain ? call.m : call.k, &call.lda));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(b.leading, b_is_plain ? call.k : call.n, &call.ldb));
    FLYT_SOFT_CHECK(flyt_soft_blas_leading(c.leading, call.m, &call.ldc));
    FLYT_SOFT_CHECK(choose(&call));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.alpha, alpha, flyt_soft_number_bytes(call.scale_type)));
    FLYT_SOFT_CHECK(flyt_soft_scalar_set(handle, &call.beta, beta, flyt_soft_number_bytes(call.scale_type)));
    if (m == 0 || n == 0)
        return batch_count < 0 ? CUBLAS_STATUS_INVALID_VALUE : CUBLAS_STATUS_SUCCESS;
    call.operands[0] = flyt_soft_matrix(a.at, a_is_plain ? m : k, a_is_plain ? k : m, a.leading,
                                        flyt_soft_number_bytes(a.type), a.stride);
    call.operands[1] = flyt_soft_matrix(b.at, b_is_plain ? k : n, b_is_plain ? n : k, b.leading,
                                        flyt_soft_number_bytes(b.type), b.stride);
    call.operands[2] = flyt_soft_matrix(c.at, m, n, c.leading, flyt_soft_number_bytes(c.type), c.stride);
    for (unsigned i = 0; i < FLYT_SOFT_OPERANDS && is_array; i++)
        call.operands[i] = flyt_soft_array_of(call.operands[i]);
    return flyt_soft_blas_push(handle, &call);
}

#define MATRIX(at_, type_, leading_, stride_)                                                                          \
    (struct matrix)                                                                                                    \
    {                                                                                                                  \
        (at_), (type_), (leading_), (stride_)                                                                          \
    }

/* ---- of one type ---- */

#define PLAIN(name_, T_, type_, compute_, I_, suffix_)                                                                 \
    FLYT_SOFT_CUBLAS name_##suffix_(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m,   \
                                    I_ n, I_ k, const T_ *alpha, const T_ *A, I_ lda, const T_ *B, I_ ldb,             \
                                    const T_ *beta, T_ *C, I_ ldc)                                                     \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(A, type_, lda, 0), MATRIX(B, type_, ldb, 0), beta,  \
                    MATRIX(C, type_, ldc, 0), 1, false, compute_);                                                     \
    }
#define BATCHED(name_, T_, type_, compute_, I_, suffix_)                                                               \
    FLYT_SOFT_CUBLAS name_##Batched##suffix_(cublasHandle_t handle, cublasOperation_t transa,                          \
                                             cublasOperation_t transb, I_ m, I_ n, I_ k, const T_ *alpha,              \
                                             const T_ *const Aarray[], I_ lda, const T_ *const Barray[], I_ ldb,       \
                                             const T_ *beta, T_ *const Carray[], I_ ldc, I_ batchCount)                \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(Aarray, type_, lda, 0),                             \
                    MATRIX(Barray, type_, ldb, 0), beta, MATRIX(Carray, type_, ldc, 0), batchCount, true, compute_);   \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS name_##StridedBatched##suffix_(                                                                   \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m, I_ n, I_ k, const T_ *alpha,  \
        const T_ *A, I_ lda, long long int strideA, const T_ *B, I_ ldb, long long int strideB, const T_ *beta, T_ *C, \
        I_ ldc, long long int strideC, I_ batchCount)                                                                  \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(A, type_, lda, strideA),                            \
                    MATRIX(B, type_, ldb, strideB), beta, MATRIX(C, type_, ldc, strideC), batchCount, false,           \
                    compute_);                                                                                         \
    }
#define BOTH(F_, ...) F_(__VA_ARGS__, int, ) F_(__VA_ARGS__, int64_t, _64)
#define FAMILY(letter_, T_, type_, compute_)                                                                           \
    BOTH(PLAIN, cublas##letter_##gemm_v2, T_, type_, compute_)                                                         \
    BOTH(BATCHED, cublas##letter_##gemm, T_, type_, compute_)
FAMILY(S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
FAMILY(D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
FAMILY(C, cuComplex, CUDA_C_32F, CUBLAS_COMPUTE_32F)
FAMILY(Z, cuDoubleComplex, CUDA_C_64F, CUBLAS_COMPUTE_64F)
BOTH(PLAIN, cublasCgemm3m, cuComplex, CUDA_C_32F, CUBLAS_COMPUTE_32F)
BOTH(PLAIN, cublasZgemm3m, cuDoubleComplex, CUDA_C_64F, CUBLAS_COMPUTE_64F)
BOTH(BATCHED, cublasCgemm3m, cuComplex, CUDA_C_32F, CUBLAS_COMPUTE_32F)

/* The header declares these for C++ alone, as C has no half. */
#define HALF_PROTOTYPES(I_, suffix_)                                                                                   \
    FLYT_SOFT_CUBLAS cublasHgemm##suffix_(cublasHandle_t, cublasOperation_t, cublasOperation_t, I_, I_, I_,            \
                                          const uint16_t *, const uint16_t *, I_, const uint16_t *, I_,                \
                                          const uint16_t *, uint16_t *, I_);                                           \
    FLYT_SOFT_CUBLAS cublasHgemmBatched##suffix_(                                                                      \
        cublasHandle_t, cublasOperation_t, cublasOperation_t, I_, I_, I_, const uint16_t *, const uint16_t *const[],   \
        I_, const uint16_t *const[], I_, const uint16_t *, uint16_t *const[], I_, I_);                                 \
    FLYT_SOFT_CUBLAS cublasHgemmStridedBatched##suffix_(                                                               \
        cublasHandle_t, cublasOperation_t, cublasOperation_t, I_, I_, I_, const uint16_t *, const uint16_t *, I_,      \
        long long int, const uint16_t *, I_, long long int, const uint16_t *, uint16_t *, I_, long long int, I_);
HALF_PROTOTYPES(int, )
HALF_PROTOTYPES(int64_t, _64)
BOTH(PLAIN, cublasHgemm, uint16_t, CUDA_R_16F, CUBLAS_COMPUTE_16F)
BOTH(BATCHED, cublasHgemm, uint16_t, CUDA_R_16F, CUBLAS_COMPUTE_16F)

/* ---- gemv of 16-bit floats: transposed, a product of a row and a matrix, so that increments are leading dimensions
 * ---- */

static cublasStatus_t gemv(cublasHandle_t handle, cublasOperation_t trans, int64_t m, int64_t n, const float *alpha,
                           struct matrix a, struct matrix x, const float *beta, struct matrix y, int64_t batch_count,
                           bool is_array)
{
    bool is_plain = trans == CUBLAS_OP_N;

    if (!handle)
        return CUBLAS_STATUS_NOT_INITIALIZED;
    if ((unsigned)trans > CUBLAS_OP_C || a.leading < m || a.leading < 1 || x.leading == 0 || y.leading == 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (x.leading < 0 || y.leading < 0)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return gemm(handle, CUBLAS_OP_N, is_plain ? CUBLAS_OP_T : CUBLAS_OP_N, 1, is_plain ? m : n, is_plain ? n : m, alpha,
                x, a, beta, y, batch_count, is_array, CUBLAS_COMPUTE_32F);
}

#define GEMV(name_, type_, Y_, y_type_, I_, suffix_)                                                                   \
    FLYT_SOFT_CUBLAS name_##Batched##suffix_(cublasHandle_t, cublasOperation_t, I_, I_, const float *,                 \
                                             const uint16_t *const[], I_, const uint16_t *const[], I_, const float *,  \
                                             Y_ *const[], I_, I_);                                                     \
    FLYT_SOFT_CUBLAS name_##StridedBatched##suffix_(cublasHandle_t, cublasOperation_t, I_, I_, const float *,          \
                                                    const uint16_t *, I_, long long int, const uint16_t *, I_,         \
                                                    long long int, const float *, Y_ *, I_, long long int, I_);        \
    FLYT_SOFT_CUBLAS name_##Batched##suffix_(cublasHandle_t handle, cublasOperation_t trans, I_ m, I_ n,               \
                                             const float *alpha, const uint16_t *const Aarray[], I_ lda,               \
                                             const uint16_t *const xarray[], I_ incx, const float *beta,               \
                                             Y_ *const yarray[], I_ incy, I_ batchCount)                               \
    {                                                                                                                  \
        return gemv(handle, trans, m, n, alpha, MATRIX(Aarray, type_, lda, 0), MATRIX(xarray, type_, incx, 0), beta,   \
                    MATRIX(yarray, y_type_, incy, 0), batchCount, true);                                               \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS name_##StridedBatched##suffix_(                                                                   \
        cublasHandle_t handle, cublasOperation_t trans, I_ m, I_ n, const float *alpha, const uint16_t *A, I_ lda,     \
        long long int strideA, const uint16_t *x, I_ incx, long long int stridex, const float *beta, Y_ *y, I_ incy,   \
        long long int stridey, I_ batchCount)                                                                          \
    {                                                                                                                  \
        return gemv(handle, trans, m, n, alpha, MATRIX(A, type_, lda, strideA), MATRIX(x, type_, incx, stridex), beta, \
                    MATRIX(y, y_type_, incy, stridey), batchCount, false);                                             \
    }
BOTH(GEMV, cublasHSHgemv, CUDA_R_16F, uint16_t, CUDA_R_16F)
BOTH(GEMV, cublasHSSgemv, CUDA_R_16F, float, CUDA_R_32F)
BOTH(GEMV, cublasTSTgemv, CUDA_R_16BF, uint16_t, CUDA_R_16BF)
BOTH(GEMV, cublasTSSgemv, CUDA_R_16BF, float, CUDA_R_32F)

/* ---- with types as arguments ---- */

#define EX(name_, T_, compute_, I_, suffix_)                                                                           \
    FLYT_SOFT_CUBLAS name_##suffix_(cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m,   \
                                    I_ n, I_ k, const T_ *alpha, const void *A, cudaDataType Atype, I_ lda,            \
                                    const void *B, cudaDataType Btype, I_ ldb, const T_ *beta, void *C,                \
                                    cudaDataType Ctype, I_ ldc)                                                        \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(A, Atype, lda, 0), MATRIX(B, Btype, ldb, 0), beta,  \
                    MATRIX(C, Ctype, ldc, 0), 1, false, compute_);                                                     \
    }
BOTH(EX, cublasSgemmEx, float, CUBLAS_COMPUTE_32F)
BOTH(EX, cublasCgemmEx, cuComplex, CUBLAS_COMPUTE_32F)
BOTH(EX, cublasCgemm3mEx, cuComplex, CUBLAS_COMPUTE_32F)

#define GEMM_EX(I_, suffix_)                                                                                           \
    FLYT_SOFT_CUBLAS cublasGemmEx##suffix_(                                                                            \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m, I_ n, I_ k,                   \
        const void *alpha, const void *A, cudaDataType Atype, I_ lda, const void *B, cudaDataType Btype, I_ ldb,       \
        const void *beta, void *C, cudaDataType Ctype, I_ ldc, cublasComputeType_t computeType, cublasGemmAlgo_t algo) \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(A, Atype, lda, 0), MATRIX(B, Btype, ldb, 0), beta,  \
                    MATRIX(C, Ctype, ldc, 0), 1, false, computeType);                                                  \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasGemmBatchedEx##suffix_(                                                                     \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m, I_ n, I_ k,                   \
        const void *alpha, const void *const Aarray[], cudaDataType Atype, I_ lda, const void *const Barray[],         \
        cudaDataType Btype, I_ ldb, const void *beta, void *const Carray[], cudaDataType Ctype, I_ ldc, I_ batchCount, \
        cublasComputeType_t computeType, cublasGemmAlgo_t algo)                                                        \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(Aarray, Atype, lda, 0),                             \
                    MATRIX(Barray, Btype, ldb, 0), beta, MATRIX(Carray, Ctype, ldc, 0), batchCount, true,              \
                    computeType);                                                                                      \
    }                                                                                                                  \
    FLYT_SOFT_CUBLAS cublasGemmStridedBatchedEx##suffix_(                                                              \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, I_ m, I_ n, I_ k,                   \
        const void *alpha, const void *A, cudaDataType Atype, I_ lda, long long int strideA, const void *B,            \
        cudaDataType Btype, I_ ldb, long long int strideB, const void *beta, void *C, cudaDataType Ctype, I_ ldc,      \
        long long int strideC, I_ batchCount, cublasComputeType_t computeType, cublasGemmAlgo_t algo)                  \
    {                                                                                                                  \
        return gemm(handle, transa, transb, m, n, k, alpha, MATRIX(A, Atype, lda, strideA),                            \
                    MATRIX(B, Btype, ldb, strideB), beta, MATRIX(C, Ctype, ldc, strideC), batchCount, false,           \
                    computeType);                                                                                      \
    }
GEMM_EX(int, )
GEMM_EX(int64_t, _64)

/* ---- groups: each has a shape of its own; the arrays of matrices follow each other ---- */

#define GROUPED(I_, suffix_)                                                                                           \
    FLYT_SOFT_CUBLAS cublasGemmGroupedBatchedEx##suffix_(                                                              \
        cublasHandle_t handle, const cublasOperation_t transa_array[], const cublasOperation_t transb_array[],         \
        const I_ m_array[], const I_ n_array[], const I_ k_array[], const void *alpha_array,                           \
        const void *const Aarray[], cudaDataType_t Atype, const I_ lda_array[], const void *const Barray[],            \
        cudaDataType_t Btype, const I_ ldb_array[], const void *beta_array, void *const Carray[],                      \
        cudaDataType_t Ctype, const I_ ldc_array[], I_ group_count, const I_ group_size[],                             \
        cublasComputeType_t computeType)                                                                               \
    {                                                                                                                  \
        int64_t first = 0;                                                                                             \
        unsigned bytes = plain(computeType) == CUBLAS_COMPUTE_64F ? 8 : 4;                                             \
                                                                                                                       \
        if (!handle)                                                                                                   \
            return CUBLAS_STATUS_NOT_INITIALIZED;                                                                      \
        if (flyt_soft_number_is_complex(Atype) || plain(computeType) == CUBLAS_COMPUTE_16F)                            \
            return CUBLAS_STATUS_NOT_SUPPORTED;                                                                        \
        for (I_ i = 0; i < group_count; i++) {                                                                         \
            FLYT_SOFT_CHECK(gemm(handle, transa_array[i], transb_array[i], m_array[i], n_array[i], k_array[i],         \
                                 (const char *)alpha_array + i * bytes,                                                \
                                 MATRIX(Aarray + first, Atype, lda_array[i], 0),                                       \
                                 MATRIX(Barray + first, Btype, ldb_array[i], 0), (const char *)beta_array + i * bytes, \
                                 MATRIX(Carray + first, Ctype, ldc_array[i], 0), group_size[i], true, computeType));   \
            first += group_size[i];                                                                                    \
        }                                                                                                              \
        return CUBLAS_STATUS_SUCCESS;                                                                                  \
    }
GROUPED(int, )
GROUPED(int64_t, _64)

#define GROUPED_OF(letter_, T_, type_, compute_, I_, suffix_)                                                          \
    FLYT_SOFT_CUBLAS cublas##letter_##gemmGroupedBatched##suffix_(                                                     \
        cublasHandle_t handle, const cublasOperation_t transa_array[], const cublasOperation_t transb_array[],         \
        const I_ m_array[], const I_ n_array[], const I_ k_array[], const T_ alpha_array[], const T_ *const Aarray[],  \
        const I_ lda_array[], const T_ *const Barray[], const I_ ldb_array[], const T_ beta_array[],                   \
        T_ *const Carray[], const I_ ldc_array[], I_ group_count, const I_ group_size[])                               \
    {                                                                                                                  \
        return cublasGemmGroupedBatchedEx##suffix_(                                                                    \
            handle, transa_array, transb_array, m_array, n_array, k_array, alpha_array, (const void *const *)Aarray,   \
            type_, lda_array, (const void *const *)Barray, type_, ldb_array, beta_array, (void *const *)Carray, type_, \
            ldc_array, group_count, group_size, compute_);                                                             \
    }
BOTH(GROUPED_OF, S, float, CUDA_R_32F, CUBLAS_COMPUTE_32F)
BOTH(GROUPED_OF, D, double, CUDA_R_64F, CUBLAS_COMPUTE_64F)
