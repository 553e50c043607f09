/* cuSOLVER's sparse part and refactorization on the software GPU: solutions are put in, factors multiplied, orders
 * applied; and what is wrong is refused. */
#include "cpu/softgpu/sparse/solver_sparse.h" /* before cuSOLVER's headers: it says what of them is not to be warned of */

#include <cusolverRf.h>

#include "cpu/softgpu/library/test.h"

enum { N = 6, NNZ = 3 * N - 2 };

static cusolverSpHandle_t handle;
static cusparseMatDescr_t descr;

static int start(void **state)
{
    test_start();
    assert_ok(cusolverSpCreate(&handle));
    assert_ok(cusolverSpSetStream(handle, test_stream));
    assert_ok(cusparseCreateMatDescr(&descr));
    return 0;
}

/* 4 on the diagonal, and beside it a number that is above, or below, or both: a band that is symmetric or not. */
struct band {
    int offsets[N + 1], indices[NNZ];
    double values[NNZ];
};

static struct band band_of(double below, double above)
{
    struct band a = {{0}, {0}, {0}};
    int k = 0;

    for (int i = 0; i < N; i++) {
        for (int j = i > 0 ? i - 1 : 0; j <= i + 1 && j < N; j++, k++) {
            a.indices[k] = j;
            a.values[k] = j < i ? below : j > i ? above : 4;
        }
        a.offsets[i + 1] = k;
    }
    return a;
}

static void expect_solved(const struct band *a, const double *x, const double *b)
{
    for (int i = 0; i < N; i++) {
        double sum = 0;

        for (int k = a->offsets[i]; k < a->offsets[i + 1]; k++)
            sum += a->values[k] * x[a->indices[k]];
        assert_true(fabs(sum - b[i]) < 1e-10);
    }
}

static CUdeviceptr on_device(const void *from, size_t bytes)
{
    CUdeviceptr address;

    assert_ok(cuMemAlloc(&address, bytes));
    assert_ok(cuMemcpyHtoD(address, from, bytes));
    return address;
}

static const double right[N] = {1, -2, 3, 0.5, 7, -1};

static void systems(void **state)
{
    const struct band plain = band_of(-1, -1), skew = band_of(-2, 1);
    double x[N];
    int singularity = -7;

    assert_ok(cusolverSpDcsrlsvluHost(handle, N, NNZ, descr, skew.values, skew.offsets, skew.indices, right, 1e-12, 0,
                                      x, &singularity));
    assert_int_equal(singularity, -1);
    expect_solved(&skew, x, right);
    assert_ok(cusolverSpDcsrlsvqrHost(handle, N, NNZ, descr, skew.values, skew.offsets, skew.indices, right, 1e-12, 1,
                                      x, &singularity));
    assert_int_equal(singularity, -1);
    expect_solved(&skew, x, right);
    assert_ok(cusolverSpDcsrlsvcholHost(handle, N, NNZ, descr, plain.values, plain.offsets, plain.indices, right, 1e-12,
                                        0, x, &singularity));
    assert_int_equal(singularity, -1);
    expect_solved(&plain, x, right);
}

/* The upper part is not read; a matrix that is not positive is told, by where. */
static void cholesky_reads_the_lower_part(void **state)
{
    const struct band plain = band_of(-1, -1);
    struct band other = band_of(-1, 100);
    double x[N];
    int singularity = -7;

    assert_ok(cusolverSpDcsrlsvcholHost(handle, N, NNZ, descr, other.values, other.offsets, other.indices, right, 1e-12,
                                        0, x, &singularity));
    assert_int_equal(singularity, -1);
    expect_solved(&plain, x, right);
    other.values[other.offsets[3] + 1] = -4;
    assert_ok(cusolverSpDcsrlsvcholHost(handle, N, NNZ, descr, other.values, other.offsets, other.indices, right, 1e-12,
                                        0, x, &singularity));
    assert_int_equal(singularity, 3);
}

static void in_device_memory(void **state)
{
    const struct band a = band_of(-2, 1);
    CUdeviceptr values = on_device(a.values, sizeof(a.values)), offsets = on_device(a.offsets, sizeof(a.offsets)),
                indices = on_device(a.indices, sizeof(a.indices)), b = on_device(right, sizeof(right)), x;
    double seen[N];
    int singularity = -7;

    assert_ok(cuMemAlloc(&x, sizeof(seen)));
    assert_ok(cusolverSpDcsrlsvqr(handle, N, NNZ, descr, (double *)values, (int *)offsets, (int *)indices, (double *)b,
                                  1e-12, 0, (double *)x, &singularity));
    assert_int_equal(singularity, -1);
    assert_ok(cuMemcpyDtoH(seen, x, sizeof(seen)));
    expect_solved(&a, seen, right);
    for (unsigned i = 0; i < 5; i++)
        assert_ok(cuMemFree((CUdeviceptr[]){values, offsets, indices, b, x}[i]));
}

static void eigenvalue_nearest(void **state)
{
    const struct band a = band_of(-1, -1);
    const double wanted = 4 - 2 * cos(2 * M_PI / (N + 1));
    double mu = 0, x[N], scaled[N];
    struct band shifted = a;

    assert_ok(cusolverSpDcsreigvsiHost(handle, N, NNZ, descr, a.values, a.offsets, a.indices, wanted + 0.05, right, 100,
                                       1e-13, &mu, x));
    assert_true(fabs(mu - wanted) < 1e-9);
    assert_true(fabs(x[0]) + fabs(x[1]) > 0.1);
    for (int i = 0; i < NNZ; i++) /* (A - mu) x is 0: as near as the vector has come */
        shifted.values[i] *= 1e-5;
    for (int i = 0; i < N; i++)
        scaled[i] = 1e-5 * mu * x[i];
    expect_solved(&shifted, x, scaled);
}

/* The second column is twice the first: x has a zero, and what remains is at right angles to both. */
static void least_squares_of_a_lower_rank(void **state)
{
    const int offsets[] = {0, 2, 4, 6}, indices[] = {0, 1, 0, 1, 0, 1};
    const double values[] = {1, 2, 2, 4, 3, 6}, b[] = {1, 1, 2};
    double x[2], norm = -1, rest[3], length = 0, angle = 0;
    int rank = -1, p[2];

    assert_ok(cusolverSpDcsrlsqvqrHost(handle, 3, 2, 6, descr, values, offsets, indices, b, 1e-10, &rank, x, p, &norm));
    assert_int_equal(rank, 1);
    assert_true(x[p[1]] == 0 && p[0] + p[1] == 1);
    for (int i = 0; i < 3; i++) {
        rest[i] = b[i] - values[2 * i] * x[0] - values[2 * i + 1] * x[1];
        length += rest[i] * rest[i];
        angle += rest[i] * values[2 * i];
    }
    assert_true(fabs(angle) < 1e-12 && fabs(norm - sqrt(length)) < 1e-12);
}

static void what_is_wrong_is_refused(void **state)
{
    struct band a = band_of(-1, -1);
    double x[N];
    int singularity = -7;

#define SOLVE(handle_, n_, descr_)                                                                                     \
    cusolverSpDcsrlsvqrHost(handle_, n_, NNZ, descr_, a.values, a.offsets, a.indices, right, 0, 0, x, &singularity)
    assert_int_equal(SOLVE(NULL, N, descr), CUSOLVER_STATUS_NOT_INITIALIZED);
    assert_int_equal(SOLVE(handle, -1, descr), CUSOLVER_STATUS_INVALID_VALUE);
    assert_int_equal(SOLVE(handle, N, NULL), CUSOLVER_STATUS_INVALID_VALUE);
    assert_ok(cusparseSetMatType(descr, CUSPARSE_MATRIX_TYPE_SYMMETRIC));
    assert_int_equal(SOLVE(handle, N, descr), CUSOLVER_STATUS_MATRIX_TYPE_NOT_SUPPORTED);
    assert_ok(cusparseSetMatType(descr, CUSPARSE_MATRIX_TYPE_GENERAL));
    a.indices[4] = N;
    assert_int_equal(SOLVE(handle, N, descr), CUSOLVER_STATUS_INVALID_VALUE);
    a = band_of(-1, -1);
    a.offsets[2] = NNZ + 1;
    assert_int_equal(SOLVE(handle, N, descr), CUSOLVER_STATUS_INVALID_VALUE);
    a = band_of(-1, -1);
    assert_ok(SOLVE(handle, N, descr));
#undef SOLVE
}

/* ---- refactorization ---- */

/* L and U of the band without exchanges, which has no fill-in. */
struct factors {
    int offsets_l[N + 1], indices_l[2 * N], offsets_u[N + 1], indices_u[2 * N], p[N];
    double values_l[2 * N], values_u[2 * N];
};

static struct factors factors_of(double below, double above)
{
    struct factors f = {.offsets_l = {0}};
    double pivot = 4;

    for (int i = 0; i < N; i++) {
        int l = f.offsets_l[i], u = f.offsets_u[i];

        f.p[i] = i;
        if (i > 0) {
            f.indices_l[l] = i - 1;
            f.values_l[l++] = below / pivot;
            pivot = 4 - below / pivot * above;
        }
        f.indices_l[l] = i;
        f.values_l[l++] = 1;
        f.indices_u[u] = i;
        f.values_u[u++] = pivot;
        if (i < N - 1) {
            f.indices_u[u] = i + 1;
            f.values_u[u++] = above;
        }
        f.offsets_l[i + 1] = l;
        f.offsets_u[i + 1] = u;
    }
    return f;
}

static cusolverStatus_t set_up(cusolverRfHandle_t rf, struct band *a, struct factors *f)
{
    return cusolverRfSetupHost(N, NNZ, a->offsets, a->indices, a->values, 2 * N - 1, f->offsets_l, f->indices_l,
                               f->values_l, 2 * N - 1, f->offsets_u, f->indices_u, f->values_u, f->p, f->p, rf);
}

static void refactored(void **state)
{
    struct band a = band_of(-2, 1);
    struct factors f = factors_of(-2, 1);
    CUdeviceptr p = on_device(f.p, sizeof(f.p)), x = on_device(right, sizeof(right)), temp;
    cusolverRfHandle_t rf;
    double seen[N], *values;
    int nnz = 0, *offsets, *indices;

    assert_ok(cuMemAlloc(&temp, sizeof(seen)));
    assert_ok(cusolverRfCreate(&rf));
    assert_int_equal(cusolverRfAnalyze(rf), CUSOLVER_STATUS_NOT_INITIALIZED);
    assert_ok(set_up(rf, &a, &f));
    assert_ok(cusolverRfAnalyze(rf));
    assert_ok(cusolverRfRefactor(rf));
    assert_ok(cusolverRfSolve(rf, (int *)p, (int *)p, 1, (double *)temp, N, (double *)x, N));
    assert_ok(cuMemcpyDtoH(seen, x, sizeof(seen)));
    expect_solved(&a, seen, right);
    assert_ok(cusolverRfExtractBundledFactorsHost(rf, &nnz, &offsets, &indices, &values));
    assert_int_equal(nnz, NNZ);
    for (int i = 0; i < N; i++) {
        assert_true(fabs(values[offsets[i] + (i > 0)] - f.values_u[f.offsets_u[i]]) < 1e-12);
        assert_true(i == 0 || fabs(values[offsets[i]] - f.values_l[f.offsets_l[i]]) < 1e-12);
    }
    free(offsets);
    free(indices);
    free(values);
    assert_ok(cusolverRfDestroy(rf));
    for (unsigned i = 0; i < 3; i++)
        assert_ok(cuMemFree((CUdeviceptr[]){p, x, temp}[i]));
}

static void zero_pivots(void **state)
{
    struct band a = band_of(-2, 1);
    struct factors f = factors_of(-2, 1);
    cusolverRfNumericBoostReport_t report;
    cusolverRfHandle_t rf;

    a.values[0] = 0;
    assert_ok(cusolverRfCreate(&rf));
    assert_ok(set_up(rf, &a, &f));
    assert_ok(cusolverRfAnalyze(rf));
    assert_int_equal(cusolverRfRefactor(rf), CUSOLVER_STATUS_ZERO_PIVOT);
    assert_ok(cusolverRfSetNumericProperties(rf, 1e-9, 1e-3));
    assert_ok(set_up(rf, &a, &f));
    assert_ok(cusolverRfAnalyze(rf));
    assert_ok(cusolverRfRefactor(rf));
    assert_ok(cusolverRfGetNumericBoostReport(rf, &report));
    assert_int_equal(report, CUSOLVERRF_NUMERIC_BOOST_USED);
    /* A factor whose columns are not in it. */
    f.indices_l[0] = N;
    assert_int_equal(set_up(rf, &a, &f), CUSOLVER_STATUS_INVALID_VALUE);
    assert_int_equal(cusolverRfAnalyze(rf), CUSOLVER_STATUS_NOT_INITIALIZED);
    assert_ok(cusolverRfDestroy(rf));
}

/* Last: it breaks the device. */
static void what_is_out_of_reach_breaks_the_device(void **state)
{
    const struct band a = band_of(-1, -1);
    CUdeviceptr offsets = on_device(a.offsets, sizeof(a.offsets)), b = on_device(right, sizeof(right));
    int singularity = -7;

    assert_int_equal(cusolverSpDcsrlsvqr(handle, N, NNZ, descr, (const double *)a.values, (int *)offsets, a.indices,
                                         (double *)b, 0, 0, (double *)b, &singularity),
                     CUSOLVER_STATUS_EXECUTION_FAILED);
    assert_int_equal(cuStreamSynchronize(test_stream), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(systems),
        cmocka_unit_test(cholesky_reads_the_lower_part),
        cmocka_unit_test(in_device_memory),
        cmocka_unit_test(eigenvalue_nearest),
        cmocka_unit_test(least_squares_of_a_lower_rank),
        cmocka_unit_test(what_is_wrong_is_refused),
        cmocka_unit_test(refactored),
        cmocka_unit_test(zero_pivots),
        cmocka_unit_test(what_is_out_of_reach_breaks_the_device),
    };

    return cmocka_run_group_tests(tests, start, NULL);
}
