// cuSOLVER's sparse functions: linear systems, least squares, eigenvalues, orders, with matrices in device memory and in the
// program's. What they come to is compared with the matrices that they began with, on the host.
// nvcc: -lcusolver -lcusparse
#define DISABLE_CUSPARSE_DEPRECATED
#define DISABLE_CUSOLVER_DEPRECATED
#include <cusolverSp.h>
#include <cusolverSp_LOWLEVEL_PREVIEW.h>
#include "sparse_matrix.h"

static cusolverSpHandle_t handle;
static cusparseMatDescr_t descr;

// ---- the functions of each type by one name ----

#define TYPE(letter, T, R)                                                                                                       \
    static cusolverStatus_t lu_host(const Matrix<T> &a, const T *b, R tol, int reorder, T *x, int *singular)                     \
    {                                                                                                                            \
        return cusolverSp##letter##csrlsvluHost(handle, a.rows, a.nnz(), descr, a.values.data(), a.offsets.data(),               \
                                                a.indices.data(), b, tol, reorder, x, singular);                                 \
    }                                                                                                                            \
    static cusolverStatus_t qr_host(const Matrix<T> &a, const T *b, R tol, int reorder, T *x, int *singular)                     \
    {                                                                                                                            \
        return cusolverSp##letter##csrlsvqrHost(handle, a.rows, a.nnz(), descr, a.values.data(), a.offsets.data(),               \
                                                a.indices.data(), b, tol, reorder, x, singular);                                 \
    }                                                                                                                            \
    static cusolverStatus_t cholesky_host(const Matrix<T> &a, const T *b, R tol, int reorder, T *x, int *singular)               \
    {                                                                                                                            \
        return cusolverSp##letter##csrlsvcholHost(handle, a.rows, a.nnz(), descr, a.values.data(), a.offsets.data(),             \
                                                  a.indices.data(), b, tol, reorder, x, singular);                               \
    }                                                                                                                            \
    static cusolverStatus_t qr(const Matrix<T> &a, const DeviceMatrix<T> &d, const T *b, R tol, int reorder, T *x, int *singular) \
    {                                                                                                                            \
        return cusolverSp##letter##csrlsvqr(handle, a.rows, a.nnz(), descr, d.values, d.offsets, d.indices, b, tol, reorder, x,  \
                                            singular);                                                                           \
    }                                                                                                                            \
    static cusolverStatus_t cholesky(const Matrix<T> &a, const DeviceMatrix<T> &d, const T *b, R tol, int reorder, T *x,         \
                                     int *singular)                                                                              \
    {                                                                                                                            \
        return cusolverSp##letter##csrlsvchol(handle, a.rows, a.nnz(), descr, d.values, d.offsets, d.indices, b, tol, reorder,   \
                                              x, singular);                                                                      \
    }                                                                                                                            \
    static cusolverStatus_t least_squares(const Matrix<T> &a, const T *b, R tol, int *rank, T *x, int *p, R *norm)               \
    {                                                                                                                            \
        return cusolverSp##letter##csrlsqvqrHost(handle, a.rows, a.columns, a.nnz(), descr, a.values.data(), a.offsets.data(),   \
                                                 a.indices.data(), b, tol, rank, x, p, norm);                                    \
    }                                                                                                                            \
    static cusolverStatus_t eigenvalue_host(const Matrix<T> &a, T start, const T *x0, R tol, T *mu, T *x)                        \
    {                                                                                                                            \
        return cusolverSp##letter##csreigvsiHost(handle, a.rows, a.nnz(), descr, a.values.data(), a.offsets.data(),              \
                                                 a.indices.data(), start, x0, 200, tol, mu, x);                                  \
    }                                                                                                                            \
    static cusolverStatus_t eigenvalue(const Matrix<T> &a, const DeviceMatrix<T> &d, T start, const T *x0, R tol, T *mu, T *x)   \
    {                                                                                                                            \
        return cusolverSp##letter##csreigvsi(handle, a.rows, a.nnz(), descr, d.values, d.offsets, d.indices, start, x0, 200,     \
                                             tol, mu, x);                                                                        \
    }                                                                                                                            \
    static cusolverStatus_t zero_free(const Matrix<T> &a, int *p, int *count)                                                    \
    {                                                                                                                            \
        return cusolverSp##letter##csrzfdHost(handle, a.rows, a.nnz(), descr, a.values.data(), a.offsets.data(),                 \
                                              a.indices.data(), p, count);                                                       \
    }                                                                                                                            \
    static void batch(const Matrix<T> &a, const DeviceMatrix<T> &d, const T *b, T *x, int count, csrqrInfo_t info)               \
    {                                                                                                                            \
        size_t internal = 0, bytes = 0;                                                                                          \
        void *buffer;                                                                                                            \
        CHECK_SOLVER(cusolverSp##letter##csrqrBufferInfoBatched(handle, a.rows, a.rows, a.nnz(), descr, d.values, d.offsets,     \
                                                                d.indices, count, info, &internal, &bytes));                     \
        CHECK(cudaMalloc(&buffer, bytes + 8));                                                                                   \
        CHECK_SOLVER(cusolverSp##letter##csrqrsvBatched(handle, a.rows, a.rows, a.nnz(), descr, d.values, d.offsets, d.indices,  \
                                                        b, x, count, info, buffer));                                             \
        CHECK(cudaDeviceSynchronize());                                                                                          \
        CHECK(cudaFree(buffer));                                                                                                 \
    }
TYPE(S, float, float)
TYPE(D, double, double)
TYPE(C, cuComplex, float)
TYPE(Z, cuDoubleComplex, double)

// ---- linear systems ----

template <typename T> static void expect_solution(const Matrix<T> &a, const std::vector<T> &x, const std::vector<T> &b,
                                                  int singular, const char *what)
{
    if (singular != -1) {
        printf("%s: singular at %d\n", what, singular);
        exit(1);
    }
    expect_near(times(a, x), b, what);
}

template <typename T> static void test_systems(int base)
{
    Matrix<T> a = grid<T>(9, base);
    std::vector<T> b = random_vector<T>(a.rows), x(a.rows);
    DeviceMatrix<T> d(a);
    T *db = on_device(b), *dx = on_device(x);
    real_of<T> tol = sizeof(real_of<T>) == 4 ? 1e-6 : 1e-12;
    CHECK_SPARSE(cusparseSetMatIndexBase(descr, base ? CUSPARSE_INDEX_BASE_ONE : CUSPARSE_INDEX_BASE_ZERO));
    for (int reorder = 0; reorder < 3; reorder++) {
        int singular = -7;
        x.assign(a.rows, of<T>(0, 0));
        CHECK_SOLVER(lu_host(a, b.data(), tol, reorder, x.data(), &singular));
        expect_solution(a, x, b, singular, "csrlsvluHost");
        x.assign(a.rows, of<T>(0, 0));
        CHECK_SOLVER(qr_host(a, b.data(), tol, reorder, x.data(), &singular));
        expect_solution(a, x, b, singular, "csrlsvqrHost");
        x.assign(a.rows, of<T>(0, 0));
        CHECK_SOLVER(cholesky_host(a, b.data(), tol, reorder, x.data(), &singular));
        expect_solution(a, x, b, singular, "csrlsvcholHost");
        CHECK(cudaMemset(dx, 0, a.rows * sizeof *dx));
        CHECK_SOLVER(qr(a, d, db, tol, reorder, dx, &singular));
        expect_solution(a, from_device(dx, a.rows), b, singular, "csrlsvqr");
        CHECK(cudaMemset(dx, 0, a.rows * sizeof *dx));
        CHECK_SOLVER(cholesky(a, d, db, tol, reorder, dx, &singular));
        expect_solution(a, from_device(dx, a.rows), b, singular, "csrlsvchol");
    }
    CHECK(cudaFree(db));
    CHECK(cudaFree(dx));
}

// A column of zeros, or numbers that are not above the tolerance.
static void test_singular()
{
    Matrix<double> a = dense<double>(4, 4, {4, 1, 0, 0, 1, 4, 0, 1, 0, 0, 1e-9, 0, 0, 1, 0, 4});
    std::vector<double> b(4, 1), x(4);
    int singular = -7;
    CHECK_SOLVER(qr_host(a, b.data(), 1e-12, 0, x.data(), &singular));
    EXPECT(singular == -1);
    CHECK_SOLVER(qr_host(a, b.data(), 1e-6, 0, x.data(), &singular));
    EXPECT(singular >= 0 && singular < 4);
    CHECK_SOLVER(lu_host(a, b.data(), 1e-6, 0, x.data(), &singular));
    EXPECT(singular >= 0 && singular < 4);
    CHECK_SOLVER(cholesky_host(a, b.data(), 1e-3, 0, x.data(), &singular));
    EXPECT(singular >= 0 && singular < 4);
}

// Arrays that are more than a message takes.
static void test_large()
{
    Matrix<double> a = band<double>(2500);
    std::vector<double> b = random_vector<double>(a.rows), x(a.rows);
    int singular = -7;
    CHECK_SOLVER(cholesky_host(a, b.data(), 1e-12, 0, x.data(), &singular));
    expect_solution(a, x, b, singular, "large csrlsvcholHost");
}

template <typename T> static void test_batch()
{
    const int count = 3;
    Matrix<T> a = grid<T>(5, 0);
    std::vector<T> values, b = random_vector<T>(a.rows * count), none(b.size(), of<T>(0, 0));
    DeviceMatrix<T> d(a);
    T *db = on_device(b), *dx = on_device(none);
    csrqrInfo_t info;
    for (int i = 0; i < count; i++)
        for (T one : a.values)
            values.push_back(of<T>(real(one) * (1 + i), imaginary(one)));
    CHECK(cudaFree(d.values));
    d.values = on_device(values);
    CHECK_SOLVER(cusolverSpCreateCsrqrInfo(&info));
    CHECK_SOLVER(cusolverSpXcsrqrAnalysisBatched(handle, a.rows, a.rows, a.nnz(), descr, d.offsets, d.indices, info));
    batch(a, d, db, dx, count, info);
    std::vector<T> x = from_device(dx, b.size());
    for (int i = 0; i < count; i++) {
        a.values.assign(values.begin() + i * a.nnz(), values.begin() + (i + 1) * a.nnz());
        std::vector<T> one(x.begin() + i * a.rows, x.begin() + (i + 1) * a.rows);
        expect_near(times(a, one), std::vector<T>(b.begin() + i * a.rows, b.begin() + (i + 1) * a.rows), "csrqrsvBatched");
    }
    CHECK_SOLVER(cusolverSpDestroyCsrqrInfo(info));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dx));
}

// ---- least squares ----

// What remains is at right angles to all columns.
template <typename T> static void test_least_squares()
{
    const int m = 20, n = 6;
    std::vector<double> numbers;
    for (int i = 0; i < m * n; i++)
        numbers.push_back(i % 5 == 1 ? 0 : random_number());
    Matrix<T> a = dense<T>(m, n, numbers);
    std::vector<T> b = random_vector<T>(m), x(n), ax;
    std::vector<int> p(n, -1);
    int rank = -1;
    real_of<T> norm = -1;
    CHECK_SOLVER(least_squares(a, b.data(), sizeof(norm) == 4 ? 1e-5 : 1e-12, &rank, x.data(), p.data(), &norm));
    EXPECT(rank == n);
    expect_order(p, n, "csrlsqvqrHost");
    ax = times(a, x);
    double length = 0;
    std::vector<T> rest(m), angles(n, of<T>(0, 0)), none(n, of<T>(0, 0));
    for (int i = 0; i < m; i++) {
        rest[i] = of<T>(real(b[i]) - real(ax[i]), imaginary(b[i]) - imaginary(ax[i]));
        length += real(rest[i]) * real(rest[i]) + imaginary(rest[i]) * imaginary(rest[i]);
        for (int k = a.offsets[i]; k < a.offsets[i + 1]; k++) // numbers are real: nothing is conjugated
            angles[a.indices[k]] = sum(angles[a.indices[k]], product(a.values[k], rest[i]));
    }
    expect_near(angles, none, "csrlsqvqrHost");
    EXPECT(fabs(norm - sqrt(length)) < 1e-4 * (1 + norm));
}

// ---- eigenvalues ----

template <typename T> static void expect_eigen(const Matrix<T> &a, T mu, const std::vector<T> &x, double near, const char *what)
{
    std::vector<T> ax = times(a, x), scaled;
    double length = 0;
    for (T one : x) {
        scaled.push_back(product(mu, one));
        length += real(one) * real(one) + imaginary(one) * imaginary(one);
    }
    EXPECT(length > 0.5);
    EXPECT(fabs(real(mu) - near) < 1e-3 * near);
    expect_near(ax, scaled, what, 1e-3);
}

template <typename T> static void test_eigenvalues()
{
    const int n = 30;
    Matrix<T> a = band<T>(n); // its eigenvalues are 4 - 2 cos(k pi / (n + 1))
    double wanted = 4 - 2 * cos(3 * M_PI / (n + 1));
    std::vector<T> start = random_vector<T>(n), x(n);
    T mu = of<T>(0, 0), near = of<T>(wanted + 0.001, 0), *dstart = on_device(start), *dx = on_device(x), *dmu = on_device(std::vector<T>(1, mu));
    DeviceMatrix<T> d(a);
    real_of<T> tol = sizeof(real_of<T>) == 4 ? 1e-5 : 1e-10;
    CHECK_SOLVER(eigenvalue_host(a, near, start.data(), tol, &mu, x.data()));
    expect_eigen(a, mu, x, wanted, "csreigvsiHost");
    CHECK_SOLVER(eigenvalue(a, d, near, dstart, tol, dmu, dx));
    expect_eigen(a, from_device(dmu, 1)[0], from_device(dx, n), wanted, "csreigvsi");
    CHECK(cudaFree(dstart));
    CHECK(cudaFree(dx));
    CHECK(cudaFree(dmu));
}

// How many lie in a rectangle: the software GPU does not count.
static void test_eigenvalue_count()
{
    Matrix<double> a = dense<double>(4, 4, {1, 0, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0, 4});
    int count = -1;
    cusolverStatus_t status =
        cusolverSpDcsreigsHost(handle, 4, a.nnz(), descr, a.values.data(), a.offsets.data(), a.indices.data(),
                               make_cuDoubleComplex(0.5, -1), make_cuDoubleComplex(3.5, 1), &count);
    EXPECT(status == CUSOLVER_STATUS_NOT_SUPPORTED || (status == CUSOLVER_STATUS_SUCCESS && count == 3));
}

// ---- orders ----

static int bandwidth(const Matrix<double> &a, const std::vector<int> &p)
{
    std::vector<int> place(a.rows);
    int most = 0;
    for (int i = 0; i < a.rows; i++)
        place[p[i]] = i;
    for (int i = 0; i < a.rows; i++)
        for (int k = a.offsets[i]; k < a.offsets[i + 1]; k++)
            most = std::max(most, abs(place[i] - place[a.indices[k]]));
    return most;
}

static void test_orders()
{
    const int n = 31;
    std::vector<double> numbers(n * n);
    for (int i = 0; i < n; i++) { // a path whose vertices have been shuffled
        int here = i * 7 % n, next = (i + 1) * 7 % n;
        numbers[here * n + here] = 4;
        if (i < n - 1)
            numbers[here * n + next] = numbers[next * n + here] = -1;
    }
    Matrix<double> a = dense<double>(n, n, numbers);
    std::vector<int> p(n, -1), plain(n);
    const int *offsets = a.offsets.data(), *indices = a.indices.data();
    for (int i = 0; i < n; i++)
        plain[i] = i;
    EXPECT(bandwidth(a, plain) > 5);
    CHECK_SOLVER(cusolverSpXcsrsymrcmHost(handle, n, a.nnz(), descr, offsets, indices, p.data()));
    expect_order(p, n, "csrsymrcmHost");
    EXPECT(bandwidth(a, p) == 1);
    cusolverStatus_t (*others[])(cusolverSpHandle_t, int, int, const cusparseMatDescr_t, const int *, const int *, int *) = {
        cusolverSpXcsrsymmdqHost, cusolverSpXcsrsymamdHost};
    for (auto other : others) { // the software GPU has neither
        p.assign(n, -1);
        cusolverStatus_t status = other(handle, n, a.nnz(), descr, offsets, indices, p.data());
        EXPECT(status == CUSOLVER_STATUS_NOT_SUPPORTED || status == CUSOLVER_STATUS_SUCCESS);
        if (status == CUSOLVER_STATUS_SUCCESS)
            expect_order(p, n, "csrsymmdqHost, csrsymamdHost");
    }
    p.assign(n, -1);
    cusolverStatus_t status = cusolverSpXcsrmetisndHost(handle, n, a.nnz(), descr, offsets, indices, NULL, p.data());
    EXPECT(status == CUSOLVER_STATUS_NOT_SUPPORTED || status == CUSOLVER_STATUS_SUCCESS);
    if (status == CUSOLVER_STATUS_SUCCESS)
        expect_order(p, n, "csrmetisndHost");
    int is_symmetric = -1;
    CHECK_SOLVER(cusolverSpXcsrissymHost(handle, n, a.nnz(), descr, offsets, offsets + 1, indices, &is_symmetric));
    EXPECT(is_symmetric == 1);
}

template <typename T> static void test_zero_free()
{
    const int n = 5;
    // In each row the diagonal is missing, and one number is a zero that is stored.
    Matrix<T> a = dense<T>(n, n, {0, 1, 2, 0, 0, 3, 0, 0, 4, 0, 0, 5, 0, 0, 6, 7, 0, 0, 0, 8, 0, 0, 9, 1, 0});
    std::vector<int> p(n, -1);
    int count = -1;
    CHECK_SOLVER(zero_free(a, p.data(), &count));
    expect_order(p, n, "csrzfdHost");
    EXPECT(count == n);
    for (int j = 0; j < n; j++)
        EXPECT(real(at(a, p[j], j)) != 0);
}

// B = A(p,q), and where each of its numbers was.
static void test_permutation()
{
    const int m = 4, n = 5;
    Matrix<double> a = dense<double>(m, n, {1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 7, 0, 0, 8, 0, 0, 9, 0, 0}), b = a;
    std::vector<int> p = {2, 0, 3, 1}, q = {4, 1, 0, 3, 2}, map(a.nnz());
    size_t bytes = 0;
    for (int i = 0; i < a.nnz(); i++)
        map[i] = i;
    CHECK_SOLVER(cusolverSpXcsrperm_bufferSizeHost(handle, m, n, a.nnz(), descr, a.offsets.data(), a.indices.data(), p.data(), q.data(),
                                                   &bytes));
    std::vector<char> buffer(bytes + 8);
    CHECK_SOLVER(cusolverSpXcsrpermHost(handle, m, n, a.nnz(), descr, b.offsets.data(), b.indices.data(), p.data(), q.data(), map.data(),
                                        buffer.data()));
    expect_order(map, a.nnz(), "csrpermHost");
    for (int i = 0; i < a.nnz(); i++)
        b.values[i] = a.values[map[i]];
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++)
            EXPECT(at(b, i, j) == at(a, p[i], q[j]));
}

// ---- what is refused ----

// Natively the library reads where such offsets lead.
static void test_errors()
{
    Matrix<double> a = band<double>(5);
    std::vector<double> b(5, 1), x(5);
    int singular = -7;
    EXPECT(cusolverSpDcsrlsvqrHost(NULL, 5, a.nnz(), descr, a.values.data(), a.offsets.data(), a.indices.data(), b.data(), 0, 0, x.data(),
                                   &singular) != CUSOLVER_STATUS_SUCCESS);
    if (!getenv("FLYT_TEST_FORWARDED"))
        return;
    a.offsets[2] = 1000000;
    EXPECT(qr_host(a, b.data(), 0, 0, x.data(), &singular) == CUSOLVER_STATUS_INVALID_VALUE);
    a = band<double>(5);
    a.indices[3] = -5;
    EXPECT(qr_host(a, b.data(), 0, 0, x.data(), &singular) == CUSOLVER_STATUS_INVALID_VALUE);
}

static void test_streams()
{
    cudaStream_t stream, seen = NULL;
    CHECK(cudaStreamCreate(&stream));
    CHECK_SOLVER(cusolverSpSetStream(handle, stream));
    CHECK_SOLVER(cusolverSpGetStream(handle, &seen));
    EXPECT(seen == stream);
    test_systems<double>(0);
    test_large();
    CHECK_SOLVER(cusolverSpSetStream(handle, NULL));
    CHECK(cudaStreamDestroy(stream));
}

template <typename T> static void test_type()
{
    test_systems<T>(1);
    test_systems<T>(0);
    test_batch<T>();
    test_least_squares<T>();
    test_eigenvalues<T>();
    test_zero_free<T>();
}

int main()
{
    CHECK_SOLVER(cusolverSpCreate(&handle));
    CHECK_SPARSE(cusparseCreateMatDescr(&descr));
    test_type<float>();
    test_type<double>();
    test_type<cuComplex>();
    test_type<cuDoubleComplex>();
    test_singular();
    test_large();
    test_eigenvalue_count();
    test_orders();
    test_permutation();
    test_errors();
    test_streams();
    CHECK_SPARSE(cusparseDestroyMatDescr(descr));
    CHECK_SOLVER(cusolverSpDestroy(handle));
    return 0;
}
