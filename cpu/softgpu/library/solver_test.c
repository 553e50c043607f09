/* cuSOLVER on the software GPU: factors are multiplied, solutions are put in. */
#include <cusolverDn.h>

#include "cpu/softgpu/library/test.h"

static cusolverDnHandle_t handle;
static CUdeviceptr info;

static int start(void **state)
{
    test_start();
    assert_ok(cusolverDnCreate(&handle));
    assert_ok(cusolverDnSetStream(handle, test_stream));
    assert_ok(cuMemAlloc(&info, 64));
    return 0;
}

static void check_info(int expected)
{
    int got = -1;

    assert_ok(cuStreamSynchronize(test_stream));
    assert_ok(cuMemcpyDtoH(&got, info, sizeof(got)));
    assert_int_equal(got, expected);
}

static const cudaDataType types[] = {CUDA_R_32F, CUDA_R_64F, CUDA_C_32F, CUDA_C_64F};

/* The function of a type, all of which have the same arguments but for pointers; real and complex names may differ. */
#define OF_TYPE(t_, real_, complex_)                                                                                   \
    ((t_) == 0   ? (void *)cusolverDnS##real_                                                                          \
     : (t_) == 1 ? (void *)cusolverDnD##real_                                                                          \
     : (t_) == 2 ? (void *)cusolverDnC##complex_                                                                       \
                 : (void *)cusolverDnZ##complex_)

enum { N = 6, M = 8, LEADING = 9, RHS = 2 };

static double tolerance(int t)
{
    return t % 2 ? 1e-10 : 2e-3;
}

/* A Hermitian, positive definite matrix, whole. */
static struct test_vector positive_new(cudaDataType type)
{
    struct test_vector a = test_vector_new(type, LEADING * N), b = test_vector_new(type, N * N);

    test_product('N', 'C', N, N, N, 1, b.value, N, b.value, N, 0, a.value, LEADING);
    for (int i = 0; i < N; i++)
        a.value[i + i * LEADING] += 2;
    test_upload(&a);
    test_vector_free(&b);
    return a;
}

static void check_close(const test_number *a, int lda, const test_number *b, int ldb, int m, int n, double limit)
{
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            assert_true(cabs(a[i + j * lda] - b[i + j * ldb]) <= limit * fmax(1, cabs(b[i + j * ldb])));
}

static void cholesky(void **state)
{
    for (int t = 0; t < 4; t++) {
        struct test_vector a = positive_new(types[t]), b = test_vector_new(types[t], N * RHS);
        test_number *original = test_copy(&a), product[N * N], *right = test_copy(&b);

        assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, cublasFillMode_t, int, CUdeviceptr, int, CUdeviceptr, int,
                                        CUdeviceptr))OF_TYPE(t, potrf, potrf))(handle, CUBLAS_FILL_MODE_LOWER, N,
                                                                               a.device, LEADING, 0, 1, info));
        check_info(0);
        test_download(&a);
        for (int j = 0; j < N; j++)
            for (int i = 0; i < j; i++)
                a.value[i + j * LEADING] = 0;
        test_product('N', 'C', N, N, N, 1, a.value, LEADING, a.value, LEADING, 0, product, N);
        check_close(product, N, original, LEADING, N, N, tolerance(t));
        assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, cublasFillMode_t, int, int, CUdeviceptr, int, CUdeviceptr,
                                        int, CUdeviceptr))OF_TYPE(t, potrs, potrs))(
            handle, CUBLAS_FILL_MODE_LOWER, N, RHS, a.device, LEADING, b.device, N, info));
        test_download(&b);
        test_product('N', 'N', N, RHS, N, 1, original, LEADING, b.value, N, 0, product, N);
        check_close(product, N, right, N, N, RHS, tolerance(t));
        free(original);
        free(right);
        test_vector_free(&a);
        test_vector_free(&b);
    }
}

static void what_is_not_positive_is_told(void **state)
{
    struct test_vector a = positive_new(CUDA_R_64F);
    size_t device_bytes, host_bytes;

    a.value[2 + 2 * LEADING] = -100;
    test_upload(&a);
    assert_ok(cusolverDnXpotrf_bufferSize(handle, NULL, CUBLAS_FILL_MODE_UPPER, N, CUDA_R_64F, (void *)a.device,
                                          LEADING, CUDA_R_64F, &device_bytes, &host_bytes));
    assert_ok(cusolverDnXpotrf(handle, NULL, CUBLAS_FILL_MODE_UPPER, N, CUDA_R_64F, (void *)a.device, LEADING,
                               CUDA_R_64F, NULL, 0, NULL, 0, (int *)info));
    check_info(3);
    test_vector_free(&a);
}

static void lu(void **state)
{
    for (int t = 0; t < 12; t++) {
        cudaDataType type = types[t % 4];
        int form = t / 4; /* pivots of 32 bits, of 64 bits, none */
        struct test_vector a = form == 2 ? positive_new(type) : test_vector_new(type, LEADING * N);
        struct test_vector b = test_vector_new(type, N * RHS);
        test_number *original, *right = test_copy(&b), product[N * RHS];
        CUdeviceptr pivots;

        if (form != 2) {
            for (int i = 0; i < N; i++)
                a.value[(i + 1) % N + i * LEADING] += 4; /* so that rows have to be exchanged */
            test_upload(&a);
        }
        original = test_copy(&a);
        assert_ok(cuMemAlloc(&pivots, 8 * N));
        if (form == 1) {
            assert_ok(cusolverDnXgetrf(handle, NULL, N, N, type, (void *)a.device, LEADING, (int64_t *)pivots, type,
                                       NULL, 0, NULL, 0, (int *)info));
            assert_ok(cusolverDnXgetrs(handle, NULL, CUBLAS_OP_T, N, RHS, type, (void *)a.device, LEADING,
                                       (int64_t *)pivots, type, (void *)b.device, N, (int *)info));
        } else {
            assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, int, int, CUdeviceptr, int, CUdeviceptr, CUdeviceptr,
                                            CUdeviceptr))OF_TYPE(t % 4, getrf, getrf))(
                handle, N, N, a.device, LEADING, 0, form == 2 ? 0 : pivots, info));
            assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, cublasOperation_t, int, int, CUdeviceptr, int,
                                            CUdeviceptr, CUdeviceptr, int, CUdeviceptr))OF_TYPE(t % 4, getrs, getrs))(
                handle, CUBLAS_OP_T, N, RHS, a.device, LEADING, form == 2 ? 0 : pivots, b.device, N, info));
        }
        check_info(0);
        test_download(&b);
        test_product('T', 'N', N, RHS, N, 1, original, LEADING, b.value, N, 0, product, N);
        check_close(product, N, right, N, N, RHS, tolerance(t % 4));
        assert_ok(cuMemFree(pivots));
        free(original);
        free(right);
        test_vector_free(&a);
        test_vector_free(&b);
    }
}

static void qr(void **state)
{
    for (int t = 0; t < 4; t++) {
        struct test_vector a = test_vector_new(types[t], LEADING * N), tau = test_vector_new(types[t], N);
        struct test_vector c = test_vector_new(types[t], LEADING * N);
        test_number *original = test_copy(&a), r[N * N] = {0}, product[M * N], unit[N * N];
        int count = 0;

        memcpy(c.value, original, LEADING * N * sizeof(*original));
        test_upload(&c);
        assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, int, int, CUdeviceptr, int, int *))OF_TYPE(
            t, geqrf_bufferSize, geqrf_bufferSize))(handle, M, N, a.device, LEADING, &count));
        assert_true(count > 0);
        assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, int, int, CUdeviceptr, int, CUdeviceptr, CUdeviceptr, int,
                                        CUdeviceptr))OF_TYPE(t, geqrf, geqrf))(handle, M, N, a.device, LEADING,
                                                                               tau.device, 0, count, info));
        check_info(0);
        test_download(&a);
        for (int j = 0; j < N; j++)
            for (int i = 0; i <= j; i++)
                r[i + j * N] = a.value[i + j * LEADING];
        /* The conjugate transpose of Q times A is R. */
        assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, cublasSideMode_t, cublasOperation_t, int, int, int,
                                        CUdeviceptr, int, CUdeviceptr, CUdeviceptr, int, CUdeviceptr, int,
                                        CUdeviceptr))OF_TYPE(t, ormqr, unmqr))(handle, CUBLAS_SIDE_LEFT, CUBLAS_OP_C, M,
                                                                               N, N, a.device, LEADING, tau.device,
                                                                               c.device, LEADING, 0, 1, info));
        test_download(&c);
        check_close(c.value, LEADING, r, N, N, N, tolerance(t));
        assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, int, int, int, CUdeviceptr, int, CUdeviceptr, CUdeviceptr,
                                        int, CUdeviceptr))OF_TYPE(t, orgqr, ungqr))(handle, M, N, N, a.device, LEADING,
                                                                                    tau.device, 0, 1, info));
        test_download(&a);
        test_product('N', 'N', M, N, N, 1, a.value, LEADING, r, N, 0, product, M);
        check_close(product, M, original, LEADING, M, N, tolerance(t));
        test_product('C', 'N', N, N, M, 1, a.value, LEADING, a.value, LEADING, 0, unit, N);
        for (int i = 0; i < N * N; i++)
            assert_true(cabs(unit[i] - (i % N == i / N)) < tolerance(t));
        free(original);
        test_vector_free(&a);
        test_vector_free(&tau);
        test_vector_free(&c);
    }
}

/* A V = V diag(w), the values in order, the vectors of length 1. */
static void check_eigen(const test_number *original, const struct test_vector *vectors,
                        const struct test_vector *values, double limit)
{
    test_number left[N * N], right[N * N];

    test_product('N', 'N', N, N, N, 1, original, LEADING, vectors->value, LEADING, 0, left, N);
    for (int i = 0; i < N * N; i++)
        right[i] = vectors->value[i % N + i / N * LEADING] * values->value[i / N];
    check_close(left, N, right, N, N, N, limit);
    test_product('C', 'N', N, N, N, 1, vectors->value, LEADING, vectors->value, LEADING, 0, left, N);
    for (int i = 0; i < N * N; i++)
        assert_true(cabs(left[i] - (i % N == i / N)) < limit);
    for (int i = 1; i < N; i++)
        assert_true(creal(values->value[i]) >= creal(values->value[i - 1]));
}

static void eigenvalues(void **state)
{
    for (int t = 0; t < 12; t++) {
        int letter = t % 4, form = t / 4;
        cudaDataType real = letter % 2 ? CUDA_R_64F : CUDA_R_32F;
        struct test_vector a = positive_new(types[letter]), w = test_vector_new(real, N);
        test_number *original = test_copy(&a);
        syevjInfo_t jacobi;

        assert_ok(cusolverDnCreateSyevjInfo(&jacobi));
        assert_ok(cusolverDnXsyevjSetTolerance(jacobi, 1e-6));
        if (form == 0)
            assert_ok((
                (cusolverStatus_t(*)(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int, CUdeviceptr, int,
                                     CUdeviceptr, CUdeviceptr, int, CUdeviceptr))OF_TYPE(letter, syevd, heevd))(
                handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, a.device, LEADING, w.device, 0, 1, info));
        else if (form == 1)
            assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, cusolverEigMode_t, cublasFillMode_t, int, CUdeviceptr,
                                            int, CUdeviceptr, CUdeviceptr, int, CUdeviceptr, syevjInfo_t))
                           OF_TYPE(letter, syevj, heevj))(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_UPPER, N,
                                                          a.device, LEADING, w.device, 0, 1, info, jacobi));
        else
            assert_ok(cusolverDnXsyevd(handle, NULL, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, types[letter],
                                       (void *)a.device, LEADING, real, (void *)w.device, types[letter], NULL, 0, NULL,
                                       0, (int *)info));
        check_info(0);
        test_download(&a);
        test_download(&w);
        check_eigen(original, &a, &w, tolerance(letter));
        assert_ok(cusolverDnDestroySyevjInfo(jacobi));
        free(original);
        test_vector_free(&a);
        test_vector_free(&w);
    }
}

/* U diag(s) V^H is A again: U is m × k with `ldu`; V is given, n × k, or its transpose. */
static void check_svd(const test_number *original, int lda, int m, int n, const test_number *u, int ldu,
                      const test_number *s, const test_number *v, int ldv, bool is_transposed, double limit)
{
    int least = m < n ? m : n;

    for (int j = 0; j < n; j++) {
        for (int i = 0; i < m; i++) {
            test_number sum = 0;

            for (int l = 0; l < least; l++)
                sum += u[i + l * ldu] * s[l] * (is_transposed ? v[l + j * ldv] : conj(v[j + l * ldv]));
            assert_true(cabs(sum - original[i + j * lda]) < limit);
        }
    }
    for (int l = 1; l < least; l++)
        assert_true(creal(s[l]) <= creal(s[l - 1]) && creal(s[l]) >= 0);
}

static void singular_values(void **state)
{
    for (int t = 0; t < 12; t++) {
        int letter = t % 4, form = t / 4, m = form == 2 ? N : M, n = form == 2 ? M : N;
        cudaDataType type = types[letter], real = letter % 2 ? CUDA_R_64F : CUDA_R_32F;
        struct test_vector a = test_vector_new(type, LEADING * M), u = test_vector_new(type, LEADING * M);
        struct test_vector v = test_vector_new(type, LEADING * M), s = test_vector_new(real, N);
        test_number *original = test_copy(&a);
        gesvdjInfo_t jacobi;

        assert_ok(cusolverDnCreateGesvdjInfo(&jacobi));
        if (form == 0)
            assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, signed char, signed char, int, int, CUdeviceptr, int,
                                            CUdeviceptr, CUdeviceptr, int, CUdeviceptr, int, CUdeviceptr, int,
                                            CUdeviceptr, CUdeviceptr))OF_TYPE(letter, gesvd, gesvd))(
                handle, 'S', 'A', m, n, a.device, LEADING, s.device, u.device, LEADING, v.device, LEADING, 0, 1, 0,
                info));
        else
            assert_ok(((cusolverStatus_t(*)(cusolverDnHandle_t, cusolverEigMode_t, int, int, int, CUdeviceptr, int,
                                            CUdeviceptr, CUdeviceptr, int, CUdeviceptr, int, CUdeviceptr, int,
                                            CUdeviceptr, gesvdjInfo_t))OF_TYPE(letter, gesvdj, gesvdj))(
                handle, CUSOLVER_EIG_MODE_VECTOR, form == 1, m, n, a.device, LEADING, s.device, u.device, LEADING,
                v.device, LEADING, 0, 1, info, jacobi));
        check_info(0);
        test_download(&u);
        test_download(&v);
        test_download(&s);
        check_svd(original, LEADING, m, n, u.value, LEADING, s.value, v.value, LEADING, form == 0, tolerance(letter));
        assert_ok(cusolverDnDestroyGesvdjInfo(jacobi));
        free(original);
        test_vector_free(&a);
        test_vector_free(&u);
        test_vector_free(&v);
        test_vector_free(&s);
    }
}

static void what_is_wrong_is_refused(void **state)
{
    struct test_vector a = test_vector_new(CUDA_R_32F, N * N);
    int count;

    assert_int_equal(cusolverDnSpotrf(NULL, CUBLAS_FILL_MODE_LOWER, N, (float *)a.device, N, NULL, 1, (int *)info),
                     CUSOLVER_STATUS_NOT_INITIALIZED);
    assert_int_equal(
        cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, (float *)a.device, N - 1, NULL, 1, (int *)info),
        CUSOLVER_STATUS_INVALID_VALUE);
    assert_int_equal(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, NULL, N, NULL, 1, (int *)info),
                     CUSOLVER_STATUS_INVALID_VALUE);
    assert_int_equal(cusolverDnSgesvd_bufferSize(handle, N, N, NULL), CUSOLVER_STATUS_INVALID_VALUE);
    assert_ok(cusolverDnSgesvd_bufferSize(handle, N, N, &count));
    assert_int_equal(cusolverDnXpotrf(handle, NULL, CUBLAS_FILL_MODE_UPPER, N, CUDA_R_16F, (void *)a.device, N,
                                      CUDA_R_16F, NULL, 0, NULL, 0, (int *)info),
                     CUSOLVER_STATUS_NOT_SUPPORTED);
    test_vector_free(&a);
    assert_ok(cusolverDnDestroy(handle));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cholesky),
        cmocka_unit_test(what_is_not_positive_is_told),
        cmocka_unit_test(lu),
        cmocka_unit_test(qr),
        cmocka_unit_test(eigenvalues),
        cmocka_unit_test(singular_values),
        cmocka_unit_test(what_is_wrong_is_refused),
    };

    test_needs("libopenblas.so.0");
    return cmocka_run_group_tests(tests, start, NULL);
}
