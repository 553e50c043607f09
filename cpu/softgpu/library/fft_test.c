/* cuFFT on the software GPU, against sums over roots of one. */
#include <cufftXt.h>

#include "cpu/softgpu/library/test.h"

static int start(void **state)
{
    test_start();
    return 0;
}

/* One transform of n[0] × n[1] × n[2] complex numbers, contiguous. */
static void transform(const int n[3], const test_number *from, test_number *to, int sign)
{
    int count = n[0] * n[1] * n[2];

    for (int k = 0; k < count; k++) {
        int k0 = k / (n[1] * n[2]), k1 = k / n[2] % n[1], k2 = k % n[2];

        to[k] = 0;
        for (int i = 0; i < count; i++) {
            int i0 = i / (n[1] * n[2]), i1 = i / n[2] % n[1], i2 = i % n[2];
            double turn = (double)(k0 * i0) / n[0] + (double)(k1 * i1) / n[1] + (double)(k2 * i2) / n[2];

            to[k] += from[i] * cexp(CMPLX(0, sign * 2 * M_PI * turn));
        }
    }
}

enum { BATCH = 3 };
static const int shapes[][4] = {{1, 12, 1, 1}, {2, 4, 6, 1}, {3, 3, 4, 5}};

/* n as three numbers, of which the last `rank` are the shape's. */
static int shape_count(const int *shape, int n[3])
{
    for (int i = 0; i < 3; i++)
        n[i] = i < 3 - shape[0] ? 1 : shape[1 + i - (3 - shape[0])];
    return n[0] * n[1] * n[2];
}

static void complex_transforms(void **state)
{
    for (unsigned s = 0; s < 6; s++) {
        int n[3], shape[4], count;
        bool is_double = s % 2;
        cudaDataType type = is_double ? CUDA_C_64F : CUDA_C_32F;
        struct test_vector a, b;
        test_number *expected;
        cufftHandle plan;

        memcpy(shape, shapes[s / 2], sizeof(shape));
        count = shape_count(shape, n);
        a = test_vector_new(type, (size_t)(count * BATCH));
        b = test_vector_new(type, (size_t)(count * BATCH));
        expected = test_copy(&a);
        assert_ok(cufftPlanMany(&plan, shape[0], shape + 1, NULL, 1, 0, NULL, 1, 0, is_double ? CUFFT_Z2Z : CUFFT_C2C,
                                BATCH));
        assert_ok(cufftSetStream(plan, test_stream));
        for (int i = 0; i < BATCH; i++)
            transform(n, a.value + i * count, expected + i * count, -1);
        assert_ok(cufftXtExec(plan, (void *)a.device, (void *)b.device, CUFFT_FORWARD));
        test_compare(&b, expected, 10 * test_tolerance(type));
        /* Back again, in place: times the number of numbers. */
        assert_ok(is_double ? cufftExecZ2Z(plan, (void *)b.device, (void *)b.device, CUFFT_INVERSE)
                            : cufftExecC2C(plan, (void *)b.device, (void *)b.device, CUFFT_INVERSE));
        for (int i = 0; i < count * BATCH; i++)
            expected[i] = a.value[i] * count;
        test_compare(&b, expected, 100 * test_tolerance(type));
        assert_ok(cufftDestroy(plan));
        free(expected);
        test_vector_free(&a);
        test_vector_free(&b);
    }
}

/* Real numbers, apart and in place, where each row has room for the complex ones. */
static void real_transforms(void **state)
{
    for (unsigned s = 0; s < 12; s++) {
        int n[3], shape[4], count, rows, half, width;
        bool is_double = s % 2, is_in_place = s / 2 % 2;
        cudaDataType real = is_double ? CUDA_R_64F : CUDA_R_32F, complex_type = is_double ? CUDA_C_64F : CUDA_C_32F;
        struct test_vector a, b, back;
        test_number *full, *one, *expected;
        cufftHandle forward, inverse;
        CUdeviceptr result;

        memcpy(shape, shapes[s / 4], sizeof(shape));
        count = shape_count(shape, n);
        rows = n[0] * n[1];
        half = n[2] / 2 + 1;
        width = is_in_place ? 2 * half : n[2];
        a = test_vector_new(real, (size_t)(rows * width * BATCH));
        b = test_vector_new(complex_type, (size_t)(rows * half * BATCH));
        full = calloc((size_t)count, sizeof(*full));
        one = calloc((size_t)count, sizeof(*one));
        expected = calloc(b.count, sizeof(*expected));
        for (int batch = 0; batch < BATCH; batch++) {
            for (int i = 0; i < count; i++)
                one[i] = a.value[(batch * rows + i / n[2]) * width + i % n[2]];
            transform(n, one, full, -1);
            for (int i = 0; i < rows * half; i++)
                expected[batch * rows * half + i] = full[i / half * n[2] + i % half];
        }
        assert_ok(cufftPlanMany(&forward, shape[0], shape + 1, NULL, 1, 0, NULL, 1, 0,
                                is_double ? CUFFT_D2Z : CUFFT_R2C, BATCH));
        assert_ok(cufftPlanMany(&inverse, shape[0], shape + 1, NULL, 1, 0, NULL, 1, 0,
                                is_double ? CUFFT_Z2D : CUFFT_C2R, BATCH));
        assert_ok(cufftSetStream(forward, test_stream));
        assert_ok(cufftSetStream(inverse, test_stream));
        result = is_in_place ? a.device : b.device;
        assert_ok(is_double ? cufftExecD2Z(forward, (void *)a.device, (void *)result)
                            : cufftExecR2C(forward, (void *)a.device, (void *)result));
        if (is_in_place)
            assert_ok(
                cuMemcpyDtoDAsync(b.device, a.device, b.count * flyt_soft_number_bytes(complex_type), test_stream));
        test_compare(&b, expected, 10 * test_tolerance(real));
        back = a;
        assert_ok(is_double ? cufftExecZ2D(inverse, (void *)result, (void *)back.device)
                            : cufftExecC2R(inverse, (void *)result, (void *)back.device));
        free(expected);
        expected = test_copy(&a);
        test_download(&back);
        for (int i = 0; i < rows * width * BATCH; i++)
            if (i % width < n[2])
                assert_true(cabs(back.value[i] - expected[i] * count) < 1000 * test_tolerance(real));
        assert_ok(cufftDestroy(forward));
        assert_ok(cufftDestroy(inverse));
        free(full);
        free(one);
        free(expected);
        test_vector_free(&a);
        test_vector_free(&b);
    }
}

/* Every second number of rows of 9, of which 4 are transformed; written with other strides. */
static void layouts_of_the_callers(void **state)
{
    enum { N0 = 3, N1 = 4 };
    struct test_vector a = test_vector_new(CUDA_C_64F, 2 * N0 * 9 * 2),
                       b = test_vector_new(CUDA_C_64F, 2 * N0 * N1 * 3);
    int shape[] = {N0, N1}, n[] = {1, N0, N1}, inembed[] = {N0, 9}, onembed[] = {N0, N1};
    test_number *expected = test_copy(&b), one[N0 * N1], result[N0 * N1];
    cufftHandle plan;
    size_t work_bytes = 1;

    for (int batch = 0; batch < 2; batch++) {
        for (int i = 0; i < N0 * N1; i++)
            one[i] = a.value[batch * N0 * 9 * 2 + (i / N1 * 9 + i % N1) * 2];
        transform(n, one, result, 1);
        for (int i = 0; i < N0 * N1; i++)
            expected[batch + i * 3] = result[i];
    }
    assert_ok(cufftCreate(&plan));
    assert_ok(cufftMakePlanMany(plan, 2, shape, inembed, 2, N0 * 9 * 2, onembed, 3, 1, CUFFT_Z2Z, 2, &work_bytes));
    assert_int_equal(work_bytes, N0 * N1 * 16);
    assert_ok(cufftSetStream(plan, test_stream));
    assert_ok(cufftExecZ2Z(plan, (void *)a.device, (void *)b.device, CUFFT_INVERSE));
    test_compare(&b, expected, 1e-10);
    assert_ok(cufftDestroy(plan));
    free(expected);
    test_vector_free(&a);
    test_vector_free(&b);
}

static void what_is_wrong_is_refused(void **state)
{
    struct test_vector a = test_vector_new(CUDA_C_32F, 8);
    cufftHandle plan;
    long long n = 8;
    size_t work_bytes;

    assert_int_equal(cufftPlan1d(&plan, 0, CUFFT_C2C, 1), CUFFT_INVALID_SIZE);
    assert_int_equal(cufftPlan1d(&plan, 8, (cufftType)1, 1), CUFFT_INVALID_TYPE);
    assert_int_equal(cufftExecC2C(4000, NULL, NULL, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    assert_ok(cufftCreate(&plan));
    assert_int_equal(cufftExecC2C(plan, (void *)a.device, (void *)a.device, CUFFT_FORWARD), CUFFT_INVALID_PLAN);
    assert_int_equal(
        cufftXtMakePlanMany(plan, 1, &n, NULL, 1, 0, CUDA_C_16F, NULL, 1, 0, CUDA_C_16F, 1, &work_bytes, CUDA_C_16F),
        CUFFT_NOT_SUPPORTED);
    assert_ok(
        cufftXtMakePlanMany(plan, 1, &n, NULL, 1, 0, CUDA_C_32F, NULL, 1, 0, CUDA_C_32F, 1, &work_bytes, CUDA_C_32F));
    assert_int_equal(cufftExecC2C(plan, NULL, (void *)a.device, CUFFT_FORWARD), CUFFT_INVALID_VALUE);
    assert_int_equal(cufftExecC2C(plan, (void *)a.device, (void *)a.device, 3), CUFFT_INVALID_VALUE);
    assert_int_equal(cufftExecR2C(plan, (void *)a.device, (void *)a.device), CUFFT_INVALID_TYPE);
    assert_ok(cufftDestroy(plan));
    assert_int_equal(cufftDestroy(plan), CUFFT_INVALID_PLAN);
    assert_ok(cufftCreate(&plan)); /* one that allocates nothing */
    assert_ok(cufftSetAutoAllocation(plan, 0));
    assert_ok(cufftMakePlan1d(plan, 8, CUFFT_C2C, 1, &work_bytes));
    assert_ok(cufftSetStream(plan, test_stream));
    assert_int_equal(cufftExecC2C(plan, (void *)a.device, (void *)a.device, CUFFT_FORWARD), CUFFT_NO_WORKSPACE);
    assert_ok(cufftDestroy(plan));
    test_vector_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(complex_transforms),
        cmocka_unit_test(real_transforms),
        cmocka_unit_test(layouts_of_the_callers),
        cmocka_unit_test(what_is_wrong_is_refused),
    };

    test_needs("libfftw3.so.3");
    test_needs("libfftw3f.so.3");
    return cmocka_run_group_tests(tests, start, NULL);
}
