/* cuBLAS on the software GPU, against plain loops. */
#include <cublas_api.h>

#include "cpu/softgpu/library/test.h"

static cublasHandle_t handle;

static int start(void **state)
{
    test_start();
    assert_ok(cublasCreate_v2(&handle));
    assert_ok(cublasSetStream_v2(handle, test_stream));
    return 0;
}

static const cudaDataType letter_types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};

#define EACH_TYPE(type_)                                                                                               \
    for (unsigned letter_ = 0; letter_ < 4; letter_++)                                                                 \
        for (cudaDataType type_ = letter_types[letter_], *once_ = &type_; once_; once_ = NULL)

/* The function of a type out of four that have the same arguments but for their pointers. */
#define OF_TYPE(type_, name_)                                                                                          \
    ((type_) == CUDA_R_32F   ? (void *)cublasS##name_                                                                  \
     : (type_) == CUDA_R_64F ? (void *)cublasD##name_                                                                  \
     : (type_) == CUDA_C_32F ? (void *)cublasC##name_                                                                  \
                             : (void *)cublasZ##name_)

/* A scalar as the type has it, and its value. */
struct scalar {
    unsigned char raw[16];
    test_number value;
};

static struct scalar scalar_of(cudaDataType type, test_number value)
{
    struct scalar s = {.value = flyt_soft_number_is_complex(type) ? value : creal(value)};

    flyt_soft_number_put(type, s.raw, s.value);
    return s;
}

static const struct {
    cublasOperation_t op;
    char letter;
} operations[] = {{CUBLAS_OP_N, 'N'}, {CUBLAS_OP_T, 'T'}, {CUBLAS_OP_C, 'C'}};

/* ---- products ---- */

static void check_gemm_ex(cudaDataType a_type, cudaDataType c_type, cublasComputeType_t compute, cudaDataType scale,
                          int m, int n, int k)
{
    for (unsigned t = 0; t < 9; t++) {
        char ta = operations[t / 3].letter, tb = operations[t % 3].letter;
        int lda = (ta == 'N' ? m : k) + 2, ldb = (tb == 'N' ? k : n) + 1, ldc = m + 3;
        struct test_vector a = test_vector_new(a_type, (size_t)(lda * (ta == 'N' ? k : m)));
        struct test_vector b = test_vector_new(a_type, (size_t)(ldb * (tb == 'N' ? n : k)));
        struct test_vector c = test_vector_new(c_type, (size_t)(ldc * n));
        test_number *expected = test_copy(&c);
        struct scalar alpha = scalar_of(scale, CMPLX(2, 1)), beta = scalar_of(scale, t % 2 ? CMPLX(-1, 3) : 0);

        test_product(ta, tb, m, n, k, alpha.value, a.value, lda, b.value, ldb, beta.value, expected, ldc);
        assert_ok(cublasGemmEx(handle, operations[t / 3].op, operations[t % 3].op, m, n, k, alpha.raw, (void *)a.device,
                               a_type, lda, (void *)b.device, a_type, ldb, beta.raw, (void *)c.device, c_type, ldc,
                               compute, CUBLAS_GEMM_DEFAULT));
        test_compare(&c, expected, test_tolerance(c_type));
        free(expected);
        test_vector_free(&a);
        test_vector_free(&b);
        test_vector_free(&c);
    }
}

static void products_of_all_types(void **state)
{
    check_gemm_ex(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F, 5, 7, 9);
    check_gemm_ex(CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, CUDA_R_32F, 5, 7, 9);
    check_gemm_ex(CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F, CUDA_R_64F, 5, 7, 9);
    check_gemm_ex(CUDA_C_32F, CUDA_C_32F, CUBLAS_COMPUTE_32F, CUDA_C_32F, 5, 7, 9);
    check_gemm_ex(CUDA_C_64F, CUDA_C_64F, CUBLAS_COMPUTE_64F, CUDA_C_64F, 5, 7, 9);
    check_gemm_ex(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_16F, CUDA_R_16F, 5, 7, 9);
    check_gemm_ex(CUDA_R_16F, CUDA_R_16F, CUBLAS_COMPUTE_32F, CUDA_R_32F, 5, 7, 9);
    check_gemm_ex(CUDA_R_16BF, CUDA_R_16BF, CUBLAS_COMPUTE_32F, CUDA_R_32F, 5, 7, 9);
    check_gemm_ex(CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F, 5, 7, 9);
    check_gemm_ex(CUDA_R_8I, CUDA_R_32F, CUBLAS_COMPUTE_32F, CUDA_R_32F, 5, 7, 9);
    check_gemm_ex(CUDA_R_8I, CUDA_R_32I, CUBLAS_COMPUTE_32I, CUDA_R_32I, 5, 7, 9);
}

/* The largest integers, over more than one block: exact, as sums of integers are. */
static void large_integers_are_exact(void **state)
{
    int m = 3, n = 2, k = 2500, one = 1, zero = 0;
    struct test_vector a = test_vector_new(CUDA_R_8I, (size_t)(m * k)), b = test_vector_new(CUDA_R_8I, (size_t)(k * n));
    struct test_vector c = test_vector_new(CUDA_R_32I, (size_t)(m * n));
    test_number *expected = test_copy(&c);

    for (int i = 0; i < m * k; i++)
        a.value[i] = i % 1000 ? -128 : 127;
    for (int i = 0; i < k * n; i++)
        b.value[i] = i % 777 ? -128 : 1;
    test_upload(&a);
    test_upload(&b);
    test_product('T', 'N', m, n, k, 1, a.value, k, b.value, k, 0, expected, m);
    assert_ok(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, (void *)a.device, CUDA_R_8I, k,
                           (void *)b.device, CUDA_R_8I, k, &zero, (void *)c.device, CUDA_R_32I, m, CUBLAS_COMPUTE_32I,
                           CUBLAS_GEMM_DEFAULT));
    test_compare(&c, expected, 0);
    free(expected);
    test_vector_free(&a);
    test_vector_free(&b);
    test_vector_free(&c);
}

/* More than one block of each dimension. */
static void large_products_of_halves(void **state)
{
    int m = 515, n = 520, k = 1030;
    struct test_vector a = test_vector_new(CUDA_R_16BF, (size_t)(m * k)),
                       b = test_vector_new(CUDA_R_16BF, (size_t)(k * n));
    struct test_vector c = test_vector_new(CUDA_R_32F, (size_t)(m * n));
    float alpha = 1, beta = 0;

    assert_ok(cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &alpha, (void *)a.device, CUDA_R_16BF, k,
                           (void *)b.device, CUDA_R_16BF, k, &beta, (void *)c.device, CUDA_R_32F, m, CUBLAS_COMPUTE_32F,
                           CUBLAS_GEMM_DEFAULT));
    test_download(&c);
    for (int at = 0; at < m * n; at += 997) {
        double sum = 0;

        for (int l = 0; l < k; l++)
            sum += creal(a.value[at % m * k + l]) * creal(b.value[at / m * k + l]);
        assert_true(fabs(creal(c.value[at]) - sum) < 1e-3);
    }
    test_vector_free(&a);
    test_vector_free(&b);
    test_vector_free(&c);
}

static void batches(void **state)
{
    enum { M = 3, N = 4, K = 5, COUNT = 6 };

    EACH_TYPE(type)
    {
        unsigned bytes = flyt_soft_number_bytes(type);
        struct test_vector a = test_vector_new(type, M * K * COUNT), b = test_vector_new(type, K * N);
        struct test_vector c = test_vector_new(type, M * N * COUNT);
        test_number *expected = test_copy(&c);
        struct scalar alpha = scalar_of(type, CMPLX(.5, 2)), beta = scalar_of(type, 1);
        CUdeviceptr pointers[3][COUNT], arrays;
        cublasStatus_t (*strided)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int64_t, int64_t, int64_t,
                                  const void *, CUdeviceptr, int64_t, long long, CUdeviceptr, int64_t, long long,
                                  const void *, CUdeviceptr, int64_t, long long, int64_t) =
            OF_TYPE(type, gemmStridedBatched_64);
        cublasStatus_t (*batched)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void *,
                                  CUdeviceptr, int, CUdeviceptr, int, const void *, CUdeviceptr, int, int) =
            OF_TYPE(type, gemmBatched);

        for (int i = 0; i < 2 * COUNT; i++)
            test_product('N', 'N', M, N, K, alpha.value, a.value + i % COUNT * M * K, M, b.value, K, beta.value,
                         expected + i % COUNT * M * N, M);
        assert_ok(strided(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, alpha.raw, a.device, M, M * K, b.device, K, 0,
                          beta.raw, c.device, M, M * N, COUNT));
        for (int i = 0; i < COUNT; i++) {
            pointers[0][i] = a.device + (unsigned)(i * M * K) * bytes;
            pointers[1][i] = b.device;
            pointers[2][i] = c.device + (unsigned)(i * M * N) * bytes;
        }
        assert_ok(cuMemAlloc(&arrays, sizeof(pointers)));
        assert_ok(cuMemcpyHtoD(arrays, pointers, sizeof(pointers)));
        assert_ok(batched(handle, CUBLAS_OP_N, CUBLAS_OP_N, M, N, K, alpha.raw, arrays, M, arrays + sizeof(pointers[0]),
                          K, beta.raw, arrays + 2 * sizeof(pointers[0]), M, COUNT));
        test_compare(&c, expected, test_tolerance(type));
        assert_ok(cuMemFree(arrays));
        free(expected);
        test_vector_free(&a);
        test_vector_free(&b);
        test_vector_free(&c);
    }
}

/* The header declares it for C++ alone. */
cublasStatus_t cublasHSSgemvStridedBatched(cublasHandle_t, cublasOperation_t, int, int, const float *, const uint16_t *,
                                           int, long long, const uint16_t *, int, long long, const float *, float *,
                                           int, long long, int);

static void vectors_of_halves(void **state)
{
    enum { M = 5, N = 7, COUNT = 3 };

    for (unsigned t = 0; t < 3; t++) {
        bool is_plain = operations[t].op == CUBLAS_OP_N;
        int from = is_plain ? N : M, to = is_plain ? M : N;
        struct test_vector a = test_vector_new(CUDA_R_16F, M * N * COUNT);
        struct test_vector x = test_vector_new(CUDA_R_16F, (size_t)(2 * from * COUNT));
        struct test_vector y = test_vector_new(CUDA_R_32F, (size_t)(3 * to * COUNT));
        test_number *expected = test_copy(&y);
        float alpha = 2, beta = -1;

        for (int i = 0; i < to * COUNT; i++) {
            test_number sum = 0;

            for (int l = 0; l < from; l++)
                sum += test_op(a.value + i / to * M * N, M, operations[t].letter, i % to, l) *
                       x.value[(i / to * from + l) * 2];
            expected[3 * i] = 2 * sum - expected[3 * i];
        }
        assert_ok(cublasHSSgemvStridedBatched(handle, operations[t].op, M, N, &alpha, (void *)a.device, M, M * N,
                                              (void *)x.device, 2, 2 * from, &beta, (void *)y.device, 3, 3 * to,
                                              COUNT));
        test_compare(&y, expected, 1e-5);
        free(expected);
        test_vector_free(&a);
        test_vector_free(&x);
        test_vector_free(&y);
    }
}

/* ---- level 1 ---- */

typedef cublasStatus_t (*axpy_fn)(cublasHandle_t, int, const void *, CUdeviceptr, int, CUdeviceptr, int);
typedef cublasStatus_t (*dot_fn)(cublasHandle_t, int, CUdeviceptr, int, CUdeviceptr, int, void *);
typedef cublasStatus_t (*reduce_fn)(cublasHandle_t, int, CUdeviceptr, int, void *);

static void vectors(void **state)
{
    enum { N = 300 };

    EACH_TYPE(type)
    {
        struct test_vector x = test_vector_new(type, 2 * N), y = test_vector_new(type, 3 * N);
        test_number *expected = test_copy(&y), dot = 0;
        struct scalar alpha = scalar_of(type, CMPLX(3, -2)), got;
        double norm = 0, sum = 0, largest = -1;
        int index = 0, found;
        bool is_single = test_tolerance(type) > 1e-9;

        for (int i = 0; i < N; i++) {
            test_number xi = x.value[2 * i];

            expected[3 * (N - 1 - i)] += alpha.value * xi; /* y runs backwards */
            norm += creal(xi) * creal(xi) + cimag(xi) * cimag(xi);
            sum += fabs(creal(xi)) + fabs(cimag(xi));
            if (fabs(creal(xi)) + fabs(cimag(xi)) > largest) {
                largest = fabs(creal(xi)) + fabs(cimag(xi));
                index = i + 1;
            }
        }
        assert_ok(((axpy_fn)OF_TYPE(type, axpy_v2))(handle, N, alpha.raw, x.device, 2, y.device, -3));
        test_compare(&y, expected, test_tolerance(type));
        for (int i = 0; i < N; i++)
            dot += conj(x.value[2 * i]) * y.value[3 * i];
        assert_ok(
            ((dot_fn)(type == CUDA_R_32F   ? (void *)cublasSdot_v2
                      : type == CUDA_R_64F ? (void *)cublasDdot_v2
                      : type == CUDA_C_32F ? (void *)cublasCdotc_v2
                                           : (void *)cublasZdotc_v2))(handle, N, x.device, 2, y.device, 3, got.raw));
        assert_true(cabs(flyt_soft_number_get(type, got.raw) - dot) <= test_tolerance(type) * (1 + cabs(dot)));
        assert_ok(((reduce_fn)(type == CUDA_R_32F   ? (void *)cublasSnrm2_v2
                               : type == CUDA_R_64F ? (void *)cublasDnrm2_v2
                               : type == CUDA_C_32F ? (void *)cublasScnrm2_v2
                                                    : (void *)cublasDznrm2_v2))(handle, N, x.device, 2, got.raw));
        assert_true(fabs(creal(flyt_soft_number_get(is_single ? CUDA_R_32F : CUDA_R_64F, got.raw)) - sqrt(norm)) <=
                    test_tolerance(type) * 100);
        assert_ok(((reduce_fn)(type == CUDA_R_32F   ? (void *)cublasSasum_v2
                               : type == CUDA_R_64F ? (void *)cublasDasum_v2
                               : type == CUDA_C_32F ? (void *)cublasScasum_v2
                                                    : (void *)cublasDzasum_v2))(handle, N, x.device, 2, got.raw));
        assert_true(fabs(creal(flyt_soft_number_get(is_single ? CUDA_R_32F : CUDA_R_64F, got.raw)) - sum) <=
                    test_tolerance(type) * 300);
        assert_ok(cublasIamaxEx(handle, N, (void *)x.device, type, 2, &found));
        assert_int_equal(found, index);
        free(expected);
        test_vector_free(&x);
        test_vector_free(&y);
    }
}

static void rotations(void **state)
{
    enum { N = 10 };
    struct test_vector x = test_vector_new(CUDA_R_64F, N), y = test_vector_new(CUDA_R_64F, N);
    test_number *ex = test_copy(&x), *ey = test_copy(&y);
    double a = 3, b = 4, c, s, d1 = 2, d2 = 3, x1 = 1, y1 = 2, param[5];

    assert_ok(cublasDrotg_v2(handle, &a, &b, &c, &s));
    assert_true(fabs(a - 5) < 1e-12 && fabs(c - .6) < 1e-12 && fabs(s - .8) < 1e-12);
    assert_ok(cublasDrot_v2(handle, N, (double *)x.device, 1, (double *)y.device, 1, &c, &s));
    for (int i = 0; i < N; i++) {
        ex[i] = c * x.value[i] + s * y.value[i];
        ey[i] = c * y.value[i] - s * x.value[i];
    }
    /* |2·1·1| < |3·2·2|: the rows are exchanged, H = (p1/p2, 1; −1, x1/y1). */
    assert_ok(cublasDrotmg_v2(handle, &d1, &d2, &x1, &y1, param));
    assert_true(param[0] == 1 && fabs(param[1] - 1. / 3) < 1e-12 && fabs(param[4] - .5) < 1e-12);
    assert_ok(cublasDrotm_v2(handle, N, (double *)x.device, 1, (double *)y.device, 1, param));
    for (int i = 0; i < N; i++) {
        test_number old = ex[i];

        ex[i] = param[1] * old + ey[i];
        ey[i] = -old + param[4] * ey[i];
    }
    test_compare(&x, ex, 1e-12);
    test_compare(&y, ey, 1e-12);
    free(ex);
    free(ey);
    test_vector_free(&x);
    test_vector_free(&y);
}

/* ---- level 2 and 3, with a triangle or a symmetric matrix ---- */

/* What A stands for: `kind` 's'ymmetric, 'h'ermitian, or triangular with a diagonal of ones ('u') or not ('t'). */
static void expand(const test_number *a, int lda, int n, bool is_lower, char kind, test_number *full)
{
    for (int j = 0; j < n; j++) {
        for (int i = 0; i < n; i++) {
            bool is_inside = is_lower ? i >= j : i <= j;
            test_number x = is_inside ? a[i + j * lda] : kind == 's' || kind == 'h' ? a[j + i * lda] : 0;

            if (kind == 'h')
                x = i == j ? creal(x) : is_inside ? x : conj(x);
            if (kind == 'u' && i == j)
                x = 1;
            full[i + j * n] = x;
        }
    }
}

typedef cublasStatus_t (*symv_fn)(cublasHandle_t, cublasFillMode_t, int, const void *, CUdeviceptr, int, CUdeviceptr,
                                  int, const void *, CUdeviceptr, int);
typedef cublasStatus_t (*gemv_fn)(cublasHandle_t, cublasOperation_t, int, int, const void *, CUdeviceptr, int,
                                  CUdeviceptr, int, const void *, CUdeviceptr, int);
typedef cublasStatus_t (*trsv_fn)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, cublasDiagType_t, int,
                                  CUdeviceptr, int, CUdeviceptr, int);
typedef cublasStatus_t (*symm_fn)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, int, int, const void *,
                                  CUdeviceptr, int, CUdeviceptr, int, const void *, CUdeviceptr, int);
typedef cublasStatus_t (*trmm_fn)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t,
                                  cublasDiagType_t, int, int, const void *, CUdeviceptr, int, CUdeviceptr, int,
                                  CUdeviceptr, int);
typedef cublasStatus_t (*trsm_fn)(cublasHandle_t, cublasSideMode_t, cublasFillMode_t, cublasOperation_t,
                                  cublasDiagType_t, int, int, const void *, CUdeviceptr, int, CUdeviceptr, int);
typedef cublasStatus_t (*syrk_fn)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const void *,
                                  CUdeviceptr, int, const void *, CUdeviceptr, int);
typedef cublasStatus_t (*syr2k_fn)(cublasHandle_t, cublasFillMode_t, cublasOperation_t, int, int, const void *,
                                   CUdeviceptr, int, CUdeviceptr, int, const void *, CUdeviceptr, int);
typedef cublasStatus_t (*syr2_fn)(cublasHandle_t, cublasFillMode_t, int, const void *, CUdeviceptr, int, CUdeviceptr,
                                  int, CUdeviceptr, int);
typedef cublasStatus_t (*ger_fn)(cublasHandle_t, int, int, const void *, CUdeviceptr, int, CUdeviceptr, int,
                                 CUdeviceptr, int);

enum { SIZE = 7, LEADING = 9 };

static void matrix_times_vector(void **state)
{
    EACH_TYPE(type)
    {
        struct test_vector a = test_vector_new(type, LEADING * SIZE), x = test_vector_new(type, SIZE);
        struct test_vector y = test_vector_new(type, SIZE);
        test_number full[SIZE * SIZE], *expected = test_copy(&y);
        struct scalar alpha = scalar_of(type, CMPLX(1, 2)), beta = scalar_of(type, CMPLX(0, 1));

        for (unsigned t = 0; t < 3; t++) {
            assert_ok(((gemv_fn)OF_TYPE(type, gemv_v2))(handle, operations[t].op, SIZE, SIZE, alpha.raw, a.device,
                                                        LEADING, x.device, 1, beta.raw, y.device, 1));
            test_product(operations[t].letter, 'N', SIZE, 1, SIZE, alpha.value, a.value, LEADING, x.value, SIZE,
                         beta.value, expected, SIZE);
            test_compare(&y, expected, 10 * test_tolerance(type));
        }
        for (int lower = 0; lower < 2; lower++) {
            cublasFillMode_t fill = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;

            assert_ok(((symv_fn)OF_TYPE(type, symv_v2))(handle, fill, SIZE, alpha.raw, a.device, LEADING, x.device, 1,
                                                        beta.raw, y.device, 1));
            expand(a.value, LEADING, SIZE, lower, 's', full);
            test_product('N', 'N', SIZE, 1, SIZE, alpha.value, full, SIZE, x.value, SIZE, beta.value, expected, SIZE);
            test_compare(&y, expected, 100 * test_tolerance(type));
            if (!flyt_soft_number_is_complex(type))
                continue;
            assert_ok(((symv_fn)(type == CUDA_C_32F ? (void *)cublasChemv_v2 : (void *)cublasZhemv_v2))(
                handle, fill, SIZE, alpha.raw, a.device, LEADING, x.device, 1, beta.raw, y.device, 1));
            expand(a.value, LEADING, SIZE, lower, 'h', full);
            test_product('N', 'N', SIZE, 1, SIZE, alpha.value, full, SIZE, x.value, SIZE, beta.value, expected, SIZE);
            test_compare(&y, expected, 100 * test_tolerance(type));
        }
        free(expected);
        test_vector_free(&a);
        test_vector_free(&x);
        test_vector_free(&y);
    }
}

static void triangles(void **state)
{
    EACH_TYPE(type)
    {
        for (unsigned t = 0; t < 12; t++) {
            bool is_lower = t & 1, is_unit = t & 2;
            unsigned op = t / 4;
            cublasFillMode_t fill = is_lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
            cublasDiagType_t diag = is_unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT;
            struct test_vector a = test_vector_new(type, LEADING * SIZE), b = test_vector_new(type, LEADING * SIZE);
            struct test_vector c = test_vector_new(type, LEADING * SIZE);
            test_number full[SIZE * SIZE], *expected = test_copy(&c), *original = test_copy(&b);
            struct scalar one = scalar_of(type, 1), two = scalar_of(type, 2), half = scalar_of(type, .5);

            for (int i = 0; i < SIZE; i++)
                a.value[i + i * LEADING] = 4; /* so that it can be solved */
            test_upload(&a);
            expand(a.value, LEADING, SIZE, is_lower, is_unit ? 'u' : 't', full);
            assert_ok(((trmm_fn)OF_TYPE(type, trmm_v2))(handle, CUBLAS_SIDE_LEFT, fill, operations[op].op, diag, SIZE,
                                                        SIZE, two.raw, a.device, LEADING, b.device, LEADING, c.device,
                                                        LEADING));
            test_product(operations[op].letter, 'N', SIZE, SIZE, SIZE, 2, full, SIZE, b.value, LEADING, 0, expected,
                         LEADING);
            test_compare(&c, expected, 10 * test_tolerance(type));
            /* And back again; then one column once more, as a vector. */
            assert_ok(((trsm_fn)OF_TYPE(type, trsm_v2))(handle, CUBLAS_SIDE_LEFT, fill, operations[op].op, diag, SIZE,
                                                        SIZE, half.raw, a.device, LEADING, c.device, LEADING));
            for (int j = 0; j < SIZE; j++)
                memcpy(expected + j * LEADING, original + j * LEADING, SIZE * sizeof(*expected));
            test_compare(&c, expected, 1000 * test_tolerance(type));
            assert_ok(((trsv_fn)OF_TYPE(type, trmv_v2))(handle, fill, operations[op].op, diag, SIZE, a.device, LEADING,
                                                        c.device, 1));
            assert_ok(((trsv_fn)OF_TYPE(type, trsv_v2))(handle, fill, operations[op].op, diag, SIZE, a.device, LEADING,
                                                        c.device, 1));
            test_compare(&c, expected, 1000 * test_tolerance(type));
            (void)one;
            free(expected);
            free(original);
            test_vector_free(&a);
            test_vector_free(&b);
            test_vector_free(&c);
        }
    }
}

/* Only one triangle of C is expected to change. */
static void keep_triangle(test_number *now, const test_number *before, bool is_lower, bool is_hermitian)
{
    for (int j = 0; j < SIZE; j++) {
        for (int i = 0; i < LEADING; i++) {
            if (i >= SIZE || (is_lower ? i < j : i > j))
                now[i + j * LEADING] = before[i + j * LEADING];
            else if (i == j && is_hermitian)
                now[i + j * LEADING] = creal(now[i + j * LEADING]);
        }
    }
}

static void symmetric_updates(void **state)
{
    enum { K = 4 };

    EACH_TYPE(type)
    {
        for (unsigned t = 0; t < 8; t++) {
            bool is_lower = t & 1, is_plain = t & 2, is_hermitian = t & 4;
            bool is_complex = flyt_soft_number_is_complex(type), is_single = test_tolerance(type) > 1e-9;
            cudaDataType real = is_single ? CUDA_R_32F : CUDA_R_64F;
            cublasFillMode_t fill = is_lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;
            cublasOperation_t op = is_plain ? CUBLAS_OP_N : is_hermitian ? CUBLAS_OP_C : CUBLAS_OP_T;
            char other = is_hermitian ? 'C' : 'T', ta = is_plain ? 'N' : other, tb = is_plain ? other : 'N';
            int lda = is_plain ? SIZE : K;
            struct scalar alpha = scalar_of(type, CMPLX(2, 1)), real_alpha = scalar_of(real, 2),
                          beta = scalar_of(real, 3);
            struct test_vector a, b, c;
            test_number *expected, *before;

            if (is_hermitian && !is_complex)
                continue;
            a = test_vector_new(type, SIZE * K);
            b = test_vector_new(type, SIZE * K);
            c = test_vector_new(type, LEADING * SIZE);
            if (!is_hermitian) {
                real_alpha = alpha;
                beta = scalar_of(type, CMPLX(3, 0));
            }
            for (int i = 0; i < SIZE && is_hermitian; i++)
                c.value[i + i * LEADING] = creal(c.value[i + i * LEADING]);
            test_upload(&c);
            expected = test_copy(&c);
            before = test_copy(&c);
            test_product(ta, tb, SIZE, SIZE, K, real_alpha.value, a.value, lda, a.value, lda, 3, expected, LEADING);
            keep_triangle(expected, before, is_lower, is_hermitian);
            assert_ok(((syrk_fn)(is_hermitian ? is_single ? (void *)cublasCherk_v2 : (void *)cublasZherk_v2
                                              : OF_TYPE(type, syrk_v2)))(handle, fill, op, SIZE, K, real_alpha.raw,
                                                                         a.device, lda, beta.raw, c.device, LEADING));
            test_compare(&c, expected, 10 * test_tolerance(type));

            memcpy(before, expected, c.count * sizeof(*before));
            test_product(ta, tb, SIZE, SIZE, K, alpha.value, a.value, lda, b.value, lda, 3, expected, LEADING);
            keep_triangle(expected, before, is_lower, is_hermitian);
            assert_ok(((syr2k_fn)(is_hermitian ? is_single ? (void *)cublasCherkx : (void *)cublasZherkx
                                               : OF_TYPE(type, syrkx)))(
                handle, fill, op, SIZE, K, alpha.raw, a.device, lda, b.device, lda, beta.raw, c.device, LEADING));
            test_compare(&c, expected, 100 * test_tolerance(type));

            memcpy(before, expected, c.count * sizeof(*before));
            test_product(ta, tb, SIZE, SIZE, K, alpha.value, a.value, lda, b.value, lda, 3, expected, LEADING);
            test_product(ta, tb, SIZE, SIZE, K, is_hermitian ? conj(alpha.value) : alpha.value, b.value, lda, a.value,
                         lda, 1, expected, LEADING);
            keep_triangle(expected, before, is_lower, is_hermitian);
            assert_ok(((syr2k_fn)(is_hermitian ? is_single ? (void *)cublasCher2k_v2 : (void *)cublasZher2k_v2
                                               : OF_TYPE(type, syr2k_v2)))(
                handle, fill, op, SIZE, K, alpha.raw, a.device, lda, b.device, lda, beta.raw, c.device, LEADING));
            test_compare(&c, expected, 1000 * test_tolerance(type));

            /* The same with one vector each. */
            memcpy(before, expected, c.count * sizeof(*before));
            test_product('N', other, SIZE, SIZE, 1, alpha.value, a.value, SIZE, b.value, SIZE, 1, expected, LEADING);
            test_product('N', other, SIZE, SIZE, 1, is_hermitian ? conj(alpha.value) : alpha.value, b.value, SIZE,
                         a.value, SIZE, 1, expected, LEADING);
            keep_triangle(expected, before, is_lower, is_hermitian);
            assert_ok(((syr2_fn)(is_hermitian ? is_single ? (void *)cublasCher2_v2 : (void *)cublasZher2_v2
                                              : OF_TYPE(type, syr2_v2)))(handle, fill, SIZE, alpha.raw, a.device, 1,
                                                                         b.device, 1, c.device, LEADING));
            test_compare(&c, expected, 1000 * test_tolerance(type));

            test_product('N', other, SIZE, SIZE, 1, alpha.value, a.value, SIZE, b.value, SIZE, 1, expected, LEADING);
            assert_ok(((ger_fn)(type == CUDA_R_32F   ? (void *)cublasSger_v2
                                : type == CUDA_R_64F ? (void *)cublasDger_v2
                                : type == CUDA_C_32F ? is_hermitian ? (void *)cublasCgerc_v2 : (void *)cublasCgeru_v2
                                : is_hermitian       ? (void *)cublasZgerc_v2
                                               : (void *)cublasZgeru_v2))(handle, SIZE, SIZE, alpha.raw, a.device, 1,
                                                                          b.device, 1, c.device, LEADING));
            test_compare(&c, expected, 1000 * test_tolerance(type));
            free(expected);
            free(before);
            test_vector_free(&a);
            test_vector_free(&b);
            test_vector_free(&c);
        }
    }
}

static void symmetric_products(void **state)
{
    EACH_TYPE(type)
    {
        struct test_vector a = test_vector_new(type, LEADING * SIZE), b = test_vector_new(type, LEADING * SIZE);
        struct test_vector c = test_vector_new(type, LEADING * SIZE);
        test_number full[SIZE * SIZE], *expected = test_copy(&c);
        struct scalar alpha = scalar_of(type, CMPLX(1, 2)), beta = scalar_of(type, CMPLX(0, 1));

        for (int lower = 0; lower < 2; lower++) {
            cublasFillMode_t fill = lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER;

            assert_ok(((symm_fn)OF_TYPE(type, symm_v2))(handle, CUBLAS_SIDE_RIGHT, fill, SIZE, SIZE, alpha.raw,
                                                        a.device, LEADING, b.device, LEADING, beta.raw, c.device,
                                                        LEADING));
            expand(a.value, LEADING, SIZE, lower, 's', full);
            test_product('N', 'N', SIZE, SIZE, SIZE, alpha.value, b.value, LEADING, full, SIZE, beta.value, expected,
                         LEADING);
            test_compare(&c, expected, 100 * test_tolerance(type));
        }
        free(expected);
        test_vector_free(&a);
        test_vector_free(&b);
        test_vector_free(&c);
    }
}

/* ---- batches of systems ---- */

static void factored_systems(void **state)
{
    enum { COUNT = 3 };

    for (int has_pivots = 0; has_pivots < 2; has_pivots++) {
        struct test_vector a = test_vector_new(CUDA_C_64F, SIZE * SIZE * COUNT);
        struct test_vector x = test_vector_new(CUDA_C_64F, SIZE * COUNT),
                           inverse = test_vector_new(CUDA_C_64F, SIZE * SIZE * COUNT);
        test_number *solution = test_copy(&x), *unit = calloc(SIZE * SIZE * COUNT, sizeof(*unit)), *original;
        cuDoubleComplex *pointers[3][COUNT];
        CUdeviceptr arrays, pivots, infos;
        int info = -1, got[COUNT];

        for (int b = 0; b < COUNT; b++) {
            test_number *one = a.value + b * SIZE * SIZE;

            for (int i = 0; i < SIZE; i++)
                one[i + i * SIZE] += 5;
            test_product('N', 'N', SIZE, 1, SIZE, 1, one, SIZE, solution + b * SIZE, SIZE, 0, x.value + b * SIZE, SIZE);
            pointers[0][b] = (cuDoubleComplex *)a.device + b * SIZE * SIZE;
            pointers[1][b] = (cuDoubleComplex *)x.device + b * SIZE;
            pointers[2][b] = (cuDoubleComplex *)inverse.device + b * SIZE * SIZE;
        }
        test_upload(&a);
        test_upload(&x);
        original = test_copy(&a);
        assert_ok(cuMemAlloc(&arrays, sizeof(pointers)));
        assert_ok(cuMemcpyHtoD(arrays, pointers, sizeof(pointers)));
        assert_ok(cuMemAlloc(&pivots, sizeof(int) * SIZE * COUNT));
        assert_ok(cuMemAlloc(&infos, sizeof(int) * COUNT));
        assert_ok(cublasZgetrfBatched(handle, SIZE, (cuDoubleComplex **)arrays, SIZE, has_pivots ? (int *)pivots : NULL,
                                      (int *)infos, COUNT));
        assert_ok(cublasZgetrsBatched(handle, CUBLAS_OP_N, SIZE, 1, (const cuDoubleComplex **)arrays, SIZE,
                                      has_pivots ? (int *)pivots : NULL,
                                      (cuDoubleComplex **)(arrays + sizeof(pointers[0])), SIZE, &info, COUNT));
        assert_int_equal(info, 0);
        test_compare(&x, solution, 1e-10);
        assert_ok(
            cublasZgetriBatched(handle, SIZE, (const cuDoubleComplex **)arrays, SIZE, has_pivots ? (int *)pivots : NULL,
                                (cuDoubleComplex **)(arrays + 2 * sizeof(pointers[0])), SIZE, (int *)infos, COUNT));
        test_download(&inverse);
        for (int b = 0; b < COUNT; b++) {
            test_product('N', 'N', SIZE, SIZE, SIZE, 1, original + b * SIZE * SIZE, SIZE,
                         inverse.value + b * SIZE * SIZE, SIZE, 0, unit + b * SIZE * SIZE, SIZE);
            for (int i = 0; i < SIZE * SIZE; i++)
                assert_true(cabs(unit[b * SIZE * SIZE + i] - (i % SIZE == i / SIZE)) < 1e-10);
        }
        assert_ok(cuMemcpyDtoH(got, infos, sizeof(got)));
        assert_int_equal(got[0] | got[1] | got[2], 0);
        assert_ok(cuMemFree(arrays));
        assert_ok(cuMemFree(pivots));
        assert_ok(cuMemFree(infos));
        free(solution);
        free(unit);
        free(original);
        test_vector_free(&a);
        test_vector_free(&x);
        test_vector_free(&inverse);
    }
}

/* ---- scalars, order, refusals ---- */

/* What is in device memory is read when the stream is there, not at the call. */
static void scalars_of_the_device(void **state)
{
    enum { N = 4 };
    struct test_vector x = test_vector_new(CUDA_R_32F, N), y = test_vector_new(CUDA_R_32F, N);
    test_number *expected = test_copy(&y);
    CUdeviceptr scalars;
    float got;

    assert_ok(cuMemAlloc(&scalars, 8));
    assert_ok(cublasSetPointerMode_v2(handle, CUBLAS_POINTER_MODE_DEVICE));
    assert_ok(cublasSdot_v2(handle, N, (float *)x.device, 1, (float *)x.device, 1, (float *)scalars));
    assert_ok(cublasSaxpy_v2(handle, N, (float *)scalars, (float *)x.device, 1, (float *)y.device, 1));
    assert_ok(cublasSetPointerMode_v2(handle, CUBLAS_POINTER_MODE_HOST));
    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(&got, scalars, sizeof(got)));
    for (int i = 0; i < N; i++)
        expected[i] += got * x.value[i];
    test_compare(&y, expected, 1e-6);
    assert_ok(cuMemFree(scalars));
    free(expected);
    test_vector_free(&x);
    test_vector_free(&y);
}

static void what_is_wrong_is_refused(void **state)
{
    struct test_vector a = test_vector_new(CUDA_R_32F, 16);
    float *p = (float *)a.device, one = 1;
    int value;

    assert_int_equal(cublasSgemm_v2(NULL, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, p, 1, p, 1, &one, p, 1),
                     CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, -1, 1, 1, &one, p, 1, p, 1, &one, p, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 1, 1, &one, p, 3, p, 1, &one, p, 4),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, NULL, p, 1, p, 1, &one, p, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm_v2(handle, (cublasOperation_t)7, CUBLAS_OP_N, 1, 1, 1, &one, p, 1, p, 1, &one, p, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, NULL, 1, p, 1, &one, p, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemv_v2(handle, CUBLAS_OP_N, 1, 1, &one, p, 1, p, 0, &one, p, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, p, CUDA_R_16F, 1, p, CUDA_R_32F, 1,
                                  &one, p, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(cublasSetPointerMode_v2(handle, (cublasPointerMode_t)5), CUBLAS_STATUS_INVALID_VALUE);
    assert_ok(cublasGetVersion_v2(handle, &value));
    assert_int_equal(value, CUBLAS_VERSION);
    assert_string_equal(cublasGetStatusName(CUBLAS_STATUS_NOT_SUPPORTED), "CUBLAS_STATUS_NOT_SUPPORTED");
    assert_ok(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 0, 1, 1, &one, p, 1, p, 1, &one, p, 1));
    test_vector_free(&a);
}

/* Handles of several streams work at the same time; each stream's products follow each other. */
static void streams_side_by_side(void **state)
{
    enum { STREAMS = 4, SIDE = 96, STEPS = 12 };
    struct test_vector a[STREAMS], b[STREAMS], c[STREAMS];
    test_number *expected[STREAMS];
    cublasHandle_t handles[STREAMS];
    CUstream streams[STREAMS];
    double alpha = 1. / SIDE, beta = 0;

    for (int i = 0; i < STREAMS; i++) {
        assert_ok(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        assert_ok(cublasCreate_v2(&handles[i]));
        assert_ok(cublasSetStream_v2(handles[i], streams[i]));
        a[i] = test_vector_new(CUDA_R_64F, SIDE * SIDE);
        b[i] = test_vector_new(CUDA_R_64F, SIDE * SIDE);
        c[i] = test_vector_new(CUDA_R_64F, SIDE * SIDE);
        expected[i] = test_copy(&b[i]);
    }
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < STREAMS; i++) {
            CUdeviceptr from = step % 2 ? c[i].device : b[i].device, to = step % 2 ? b[i].device : c[i].device;

            assert_ok(cublasDgemm_v2(handles[i], CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &alpha,
                                     (double *)a[i].device, SIDE, (double *)from, SIDE, &beta, (double *)to, SIDE));
        }
    }
    for (int i = 0; i < STREAMS; i++) {
        test_number *next = calloc(SIDE * SIDE, sizeof(*next)), *spare;

        for (int step = 0; step < STEPS; step++) {
            test_product('N', 'N', SIDE, SIDE, SIDE, alpha, a[i].value, SIDE, expected[i], SIDE, 0, next, SIDE);
            spare = expected[i];
            expected[i] = next;
            next = spare;
        }
        assert_ok(cuStreamSynchronize(streams[i]));
        test_compare(&b[i], expected[i], 1e-12);
        free(next);
        free(expected[i]);
        assert_ok(cublasDestroy_v2(handles[i]));
        assert_ok(cuStreamDestroy(streams[i]));
        test_vector_free(&a[i]);
        test_vector_free(&b[i]);
        test_vector_free(&c[i]);
    }
}

/* As a kernel that reaches nowhere: the device is broken from here on, so this is the last test. */
static void an_address_of_nothing_is_a_fault(void **state)
{
    struct test_vector a = test_vector_new(CUDA_R_32F, 16);
    float one = 1, *p = (float *)a.device;

    assert_ok(cublasSgemm_v2(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 4, 4, &one, p, 5, p, 4, &one, p, 4));
    assert_int_equal(cuStreamSynchronize(test_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(cublasSaxpy_v2(handle, 1, &one, p, 1, p, 1), CUBLAS_STATUS_EXECUTION_FAILED);
    assert_ok(cublasDestroy_v2(handle));
    free(a.value);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_all_types),
        cmocka_unit_test(large_products_of_halves),
        cmocka_unit_test(large_integers_are_exact),
        cmocka_unit_test(batches),
        cmocka_unit_test(vectors_of_halves),
        cmocka_unit_test(vectors),
        cmocka_unit_test(rotations),
        cmocka_unit_test(matrix_times_vector),
        cmocka_unit_test(triangles),
        cmocka_unit_test(symmetric_products),
        cmocka_unit_test(symmetric_updates),
        cmocka_unit_test(factored_systems),
        cmocka_unit_test(scalars_of_the_device),
        cmocka_unit_test(streams_side_by_side),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(an_address_of_nothing_is_a_fault),
    };

    test_needs("libopenblas.so.0");
    return cmocka_run_group_tests(tests, start, NULL);
}
