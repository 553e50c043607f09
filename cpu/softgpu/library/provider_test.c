/* What is said and answered where the CPU's libraries are missing: this program finds none. */
#include <cublas_api.h>
#include <cufftXt.h>
#include <cusolverDn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cpu/softgpu/library/test.h"

/* In the place of the C library's, for all of this program. */
void *dlopen(const char *name, int flags)
{
    return NULL;
}

static int standard_error, text;

static int start(void **state)
{
    test_start();
    text = memfd_create("stderr", 0);
    standard_error = dup(STDERR_FILENO);
    dup2(text, STDERR_FILENO);
    return 0;
}

static int finish(void **state)
{
    dup2(standard_error, STDERR_FILENO);
    close(standard_error);
    close(text);
    return 0;
}

static unsigned occurrences(const char *word)
{
    static char all[4096];
    ssize_t bytes = pread(text, all, sizeof(all) - 1, 0);
    unsigned count = 0;

    assert_true(bytes >= 0);
    all[bytes] = 0;
    for (const char *at = all; (at = strstr(at, word)); at++)
        count++;
    return count;
}

static void what_needs_them_is_not_supported(void **state)
{
    struct test_vector a = test_vector_new(CUDA_R_32F, 16);
    float *p = (float *)a.device, one = 1, sum = 0;
    cusolverDnHandle_t solver;
    cublasHandle_t blas;
    cufftHandle plan;

    assert_ok(cublasCreate_v2(&blas));
    assert_ok(cusolverDnCreate(&solver));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(cublasSgemm_v2(blas, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, p, 2, p, 2, &one, p, 2),
                         CUBLAS_STATUS_NOT_SUPPORTED);
        assert_int_equal(cusolverDnSpotrf(solver, CUBLAS_FILL_MODE_LOWER, 2, p, 2, NULL, 1, NULL),
                         CUSOLVER_STATUS_NOT_SUPPORTED);
        assert_int_equal(cufftPlan1d(&plan, 8, CUFFT_C2C, 1), CUFFT_NOT_SUPPORTED);
    }
    assert_int_equal(occurrences("libopenblas.so.0 is missing"), 1);
    assert_int_equal(occurrences("libfftw3f.so.3 is missing"), 1);
    /* What is computed here needs none of them. */
    assert_ok(cublasSasum_v2(blas, 16, p, 1, &sum));
    assert_true(sum > 0);
    assert_ok(cublasDestroy_v2(blas));
    assert_ok(cusolverDnDestroy(solver));
    test_vector_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_needs_them_is_not_supported),
    };

    return cmocka_run_group_tests(tests, start, finish);
}
