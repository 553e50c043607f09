// cuSOLVER's refactorization: matrices with the pattern of one that was factored on the host, alone and in a batch, with their
// numbers and their factors in host and in device memory. Factors and solutions are compared with the host's own.
// nvcc: -lcusolver
#define DISABLE_CUSPARSE_DEPRECATED
#define DISABLE_CUSOLVER_DEPRECATED
#include <cusolverRf.h>
#include "sparse_matrix.h"

enum { SIDE = 6, N = SIDE * SIDE, BATCH = 3 };

// P A Q' = L U: row i of that is row p[i] of A, and column j is column q[j].
static std::vector<int> p, q;

static std::vector<double> permuted(const Matrix<double> &a)
{
    std::vector<double> out(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            out[i * N + j] = at(a, p[i], q[j]);
    return out;
}

// L and U in one, row by row, without exchanges.
static std::vector<double> factored(std::vector<double> m)
{
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            if (m[i * N + k] == 0)
                continue;
            m[i * N + k] /= m[k * N + k];
            for (int j = k + 1; j < N; j++)
                m[i * N + j] -= m[i * N + k] * m[k * N + j];
        }
    return m;
}

static Matrix<double> lower(const std::vector<double> &m)
{
    std::vector<double> l(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            l[i * N + j] = i == j ? 1 : m[i * N + j];
    return dense<double>(N, N, l);
}

static Matrix<double> upper(const std::vector<double> &m)
{
    std::vector<double> u(N * N);
    for (int i = 0; i < N; i++)
        for (int j = i; j < N; j++)
            u[i * N + j] = m[i * N + j];
    return dense<double>(N, N, u);
}

static Matrix<double> other_numbers(Matrix<double> a, double factor)
{
    for (double &one : a.values)
        one *= factor + 0.1 * random_number();
    return a;
}

struct OnDevice {
    int *p = on_device(::p), *q = on_device(::q);
    double *temp;
    OnDevice() { CHECK(cudaMalloc(&temp, 2 * BATCH * N * sizeof *temp)); }
    OnDevice(const OnDevice &) = delete;
    ~OnDevice()
    {
        CHECK(cudaFree(p));
        CHECK(cudaFree(q));
        CHECK(cudaFree(temp));
    }
};

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

static void expect_batch(cusolverRfHandle_t handle, const std::vector<Matrix<double>> &all, const OnDevice &d, const char *what)
{
    std::vector<double> b = random_vector<double>(BATCH * N);
    std::vector<int> positions(BATCH, 7);
    double *x = on_device(b);
    std::vector<double *> places;
    for (int i = 0; i < BATCH; i++)
        places.push_back(x + i * N);
    double **dplaces = on_device(places);
    CHECK_SOLVER(cusolverRfBatchRefactor(handle));
    CHECK_SOLVER(cusolverRfBatchZeroPivot(handle, positions.data()));
    for (int one : positions)
        EXPECT_EQ(one, -1);
    CHECK_SOLVER(cusolverRfBatchSolve(handle, d.p, d.q, 1, d.temp, N, dplaces, N));
    std::vector<double> seen = from_device(x, BATCH * N);
    for (int i = 0; i < BATCH; i++)
        expect_near(times(all[i], std::vector<double>(&seen[i * N], &seen[i * N] + N)),
                    std::vector<double>(&b[i * N], &b[i * N] + N), what);
    CHECK(cudaFree(x));
    CHECK(cudaFree(dplaces));
}

static void test_batch(Matrix<double> a)
{
    OnDevice d;
    std::vector<double> m = factored(permuted(a));
    Matrix<double> l = lower(m), u = upper(m);
    std::vector<Matrix<double>> all;
    std::vector<double *> host, device;
    cusolverRfHandle_t handle;
    for (int i = 0; i < BATCH; i++)
        all.push_back(other_numbers(a, 1 + i));
    for (Matrix<double> &one : all)
        host.push_back(one.values.data());
    CHECK_SOLVER(cusolverRfCreate(&handle));
    CHECK_SOLVER(cusolverRfSetResetValuesFastMode(handle, CUSOLVERRF_RESET_VALUES_FAST_MODE_ON));
    CHECK_SOLVER(cusolverRfBatchSetupHost(BATCH, N, a.nnz(), a.offsets.data(), a.indices.data(), host.data(), l.nnz(), l.offsets.data(),
                                          l.indices.data(), l.values.data(), u.nnz(), u.offsets.data(), u.indices.data(),
                                          u.values.data(), p.data(), q.data(), handle));
    CHECK(cudaDeviceSynchronize());
    CHECK_SOLVER(cusolverRfBatchAnalyze(handle));
    expect_batch(handle, all, d, "cusolverRfBatchSolve");

    DeviceMatrix<double> da(a);
    for (Matrix<double> &one : all) {
        one = other_numbers(a, 2);
        device.push_back(on_device(one.values));
    }
    double **ddevice = on_device(device);
    CHECK_SOLVER(cusolverRfBatchResetValues(BATCH, N, a.nnz(), da.offsets, da.indices, ddevice, d.p, d.q, handle));
    CHECK(cudaDeviceSynchronize());
    expect_batch(handle, all, d, "cusolverRfBatchSolve of other numbers");
    for (double *one : device)
        CHECK(cudaFree(one));
    CHECK(cudaFree(ddevice));
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
    Matrix<double> a = grid<double>(SIDE, 0);
    for (int i = 0; i < N; i++) {
        p.push_back(i * 5 % N);
        q.push_back(i * 5 % N);
    }
    test_settings();
    test_alone(a);
    test_device(a);
    test_factors(a);
    test_batch(a);
    CHECK(cudaDeviceSynchronize());
    return 0;
}
