// cuSOLVER's refactorization: matrices with the pattern of one that was factored on the host, with their numbers and their
// factors in host and in device memory. Factors and solutions are compared with the host's own.
// nvcc: -lcusolver
#include "refactor.h"

static cusolverRfHandle_t set_up(Matrix<double> a)
{
    std::vector<double> m = factored(permuted(a));
    Matrix<double> l = lower(m), u = upper(m);
    cusolverRfHandle_t handle;
    CHECK_SOLVER(cusolverRfCreate(&handle));
    CHECK_SOLVER(cusolverRfSetupHost(N, a.nnz(), a.offsets.data(), a.indices.data(), a.values.data(), l.nnz(), l.offsets.data(),
                                     l.indices.data(), l.values.data(), u.nnz(), u.offsets.data(), u.indices.data(), u.values.data(),
                                     p.data(), q.data(), handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfAnalyze(handle));
    return handle;
}

static void expect_solved(cusolverRfHandle_t handle, const Matrix<double> &a, const OnDevice &d, const char *what)
{
    std::vector<double> b = random_vector<double>(N);
    double *x = on_device(b);
    CHECK_SOLVER(cusolverRfSolve(handle, d.p, d.q, 1, d.temp, N, x, N));
    expect_near(times(a, from_device(x, N)), b, what);
    CHECK(cudaFree(x));
}

static void test_alone(const Matrix<double> &a)
{
    OnDevice d;
    cusolverRfHandle_t handle = set_up(a);
    CHECK_SOLVER(cusolverRfRefactor(handle));
    expect_solved(handle, a, d, "cusolverRfSolve");
    for (int turn = 0; turn < 3; turn++) {
        Matrix<double> b = other_numbers(a, 1 + turn);
        DeviceMatrix<double> db(b);
        CHECK_SOLVER(cusolverRfResetValues(N, b.nnz(), db.offsets, db.indices, db.values, d.p, d.q, handle));
        CHECK(cudaDeviceSynchronize());
        CHECK_SOLVER(cusolverRfRefactor(handle));
        expect_solved(handle, b, d, "cusolverRfSolve of other numbers");
    }
    CHECK_SOLVER(cusolverRfDestroy(handle));
}

static void test_device(const Matrix<double> &a)
{
    OnDevice d;
    std::vector<double> m = factored(permuted(a));
    Matrix<double> l = lower(m), u = upper(m);
    DeviceMatrix<double> da(a), dl(l), du(u);
    cusolverRfHandle_t handle;
    CHECK_SOLVER(cusolverRfCreate(&handle));
    CHECK_SOLVER(cusolverRfSetupDevice(N, a.nnz(), da.offsets, da.indices, da.values, l.nnz(), dl.offsets, dl.indices, dl.values,
                                       u.nnz(), du.offsets, du.indices, du.values, d.p, d.q, handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfAnalyze(handle));
    CHECK_SOLVER(cusolverRfRefactor(handle));
    expect_solved(handle, a, d, "cusolverRfSetupDevice");
    CHECK_SOLVER(cusolverRfDestroy(handle));
}

static void expect_factor(const Matrix<double> &wanted, int nnz, const int *offsets, const int *indices, const double *values,
                          const char *what)
{
    Matrix<double> seen = {N, N, 0, {values, values + nnz}, {offsets, offsets + N + 1}, {indices, indices + nnz}};
    EXPECT_EQ(seen.offsets[N], nnz);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            if (!(fabs(at(seen, i, j) - at(wanted, i, j)) < 1e-9)) {
                printf("%s: (%d, %d) is %g, expected %g\n", what, i, j, at(seen, i, j), at(wanted, i, j));
                exit(1);
            }
}

static void test_factors(const Matrix<double> &a)
{
    std::vector<double> m = factored(permuted(a));
    cusolverRfHandle_t handle = set_up(a);
    int nnz = 0, nnz_l = 0, nnz_u = 0, *offsets, *indices, *offsets_l, *indices_l, *offsets_u, *indices_u;
    double *values, *values_l, *values_u;
    CHECK_SOLVER(cusolverRfRefactor(handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfExtractBundledFactorsHost(handle, &nnz, &offsets, &indices, &values));
    expect_factor(dense<double>(N, N, m), nnz, offsets, indices, values, "cusolverRfExtractBundledFactorsHost");
    CHECK_SOLVER(cusolverRfExtractSplitFactorsHost(handle, &nnz_l, &offsets_l, &indices_l, &values_l, &nnz_u, &offsets_u, &indices_u,
                                                   &values_u));
    expect_factor(lower(m), nnz_l, offsets_l, indices_l, values_l, "cusolverRfExtractSplitFactorsHost, L");
    expect_factor(upper(m), nnz_u, offsets_u, indices_u, values_u, "cusolverRfExtractSplitFactorsHost, U");
    for (void *one : {(void *)offsets, (void *)indices, (void *)values, (void *)offsets_l, (void *)indices_l, (void *)values_l,
                      (void *)offsets_u, (void *)indices_u, (void *)values_u})
        free(one);
    CHECK_SOLVER(cusolverRfDestroy(handle));
}

static void test_settings()
{
    cusolverRfHandle_t handle;
    cusolverRfMatrixFormat_t format;
    cusolverRfUnitDiagonal_t diagonal;
    cusolverRfFactorization_t factor;
    cusolverRfTriangularSolve_t solve;
    cusolverRfResetValuesFastMode_t mode;
    double zero = -1, boost = -1;
    CHECK_SOLVER(cusolverRfCreate(&handle));
    CHECK_SOLVER(cusolverRfGetMatrixFormat(handle, &format, &diagonal));
    EXPECT(format == CUSOLVERRF_MATRIX_FORMAT_CSR && diagonal == CUSOLVERRF_UNIT_DIAGONAL_STORED_L);
    CHECK_SOLVER(cusolverRfGetAlgs(handle, &factor, &solve));
    EXPECT(factor == CUSOLVERRF_FACTORIZATION_ALG0 && solve == CUSOLVERRF_TRIANGULAR_SOLVE_ALG1);
    CHECK_SOLVER(cusolverRfGetResetValuesFastMode(handle, &mode));
    EXPECT(mode == CUSOLVERRF_RESET_VALUES_FAST_MODE_OFF);
    CHECK_SOLVER(cusolverRfGetNumericProperties(handle, &zero, &boost));
    EXPECT(zero == 0 && boost == 0);
    CHECK_SOLVER(cusolverRfSetNumericProperties(handle, 1e-12, 1e-3));
    CHECK_SOLVER(cusolverRfSetAlgs(handle, CUSOLVERRF_FACTORIZATION_ALG1, CUSOLVERRF_TRIANGULAR_SOLVE_ALG2));
    CHECK_SOLVER(cusolverRfSetMatrixFormat(handle, CUSOLVERRF_MATRIX_FORMAT_CSR, CUSOLVERRF_UNIT_DIAGONAL_ASSUMED_L));
    CHECK_SOLVER(cusolverRfGetNumericProperties(handle, &zero, &boost));
    CHECK_SOLVER(cusolverRfGetAlgs(handle, &factor, &solve));
    CHECK_SOLVER(cusolverRfGetMatrixFormat(handle, &format, &diagonal));
    EXPECT(zero == 1e-12 && boost == 1e-3 && factor == CUSOLVERRF_FACTORIZATION_ALG1);
    EXPECT(solve == CUSOLVERRF_TRIANGULAR_SOLVE_ALG2 && diagonal == CUSOLVERRF_UNIT_DIAGONAL_ASSUMED_L);
    CHECK_SOLVER(cusolverRfDestroy(handle));
}

int main()
{
    Matrix<double> a = begin_matrix();
    test_settings();
    test_alone(a);
    test_device(a);
    test_factors(a);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
