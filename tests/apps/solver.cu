// cuSOLVER's dense functions through their own interface: factorizations and what solves with them, eigenvalues, singular
// values, with parameter objects and with memory on the host; each compared with the matrix that it began with.
// nvcc: -lcusolver
#include <cusolverDn.h>
#include <math.h>
#include <vector>
#include "check.h"

#define CHECK_SOLVER(call)                                                                                             \
    do {                                                                                                               \
        cusolverStatus_t status_ = (call);                                                                             \
        if (status_ != CUSOLVER_STATUS_SUCCESS) {                                                                      \
            printf("%s:%d: %s: status %d\n", __FILE__, __LINE__, #call, (int)status_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { N = 12 };

static cusolverDnHandle_t handle;
static int *info;
static unsigned random_state = 12345;

static double random_number()
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)(random_state >> 16) / 32768.0 - 1.0;
}

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <typename T> static std::vector<T> from_device(const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpy(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

static void expect_close(double seen, double wanted, double tolerance, const char *what)
{
    if (!(fabs(seen - wanted) <= tolerance * (1 + fabs(wanted)))) {
        printf("%s: %.9g, expected %.9g\n", what, seen, wanted);
        exit(1);
    }
}

static void expect_no_error(const char *what)
{
    if (from_device(info, 1)[0]) {
        printf("%s: info %d\n", what, from_device(info, 1)[0]);
        exit(1);
    }
}

// Symmetric, with all eigenvalues above 0.
template <typename T> static std::vector<T> matrix()
{
    std::vector<T> out(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j <= i; j++)
            out[i * N + j] = out[j * N + i] = random_number() + (i == j ? 2 * N : 0);
    return out;
}

template <typename T> static std::vector<T> times(const std::vector<T> &a, const std::vector<T> &x)
{
    std::vector<T> out(N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            out[i] += a[j * N + i] * x[j];
    return out;
}

template <typename T> static std::vector<T> vector_of(int count)
{
    std::vector<T> out(count);
    for (T &one : out)
        one = random_number();
    return out;
}

static void test_cholesky()
{
    std::vector<double> a = matrix<double>(), x = vector_of<double>(N);
    double *da = on_device(a), *db = on_device(times(a, x)), *work;
    int count = 0, again = 0;
    CHECK_SOLVER(cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, da, N, &count));
    CHECK_SOLVER(cusolverDnDpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, db, N, &again)); // from what was answered
    EXPECT(count == again);
    CHECK(cudaMalloc(&work, count * sizeof *work + 8));
    CHECK_SOLVER(cusolverDnDpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, da, N, work, count, info));
    expect_no_error("potrf");
    CHECK_SOLVER(cusolverDnDpotrs(handle, CUBLAS_FILL_MODE_LOWER, N, 1, da, N, db, N, info));
    std::vector<double> seen = from_device(db, N);
    for (int i = 0; i < N; i++)
        expect_close(seen[i], x[i], 1e-9, "potrs");
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(work));
}

static void test_lu()
{
    std::vector<float> a = matrix<float>(), x = vector_of<float>(N);
    float *da = on_device(a), *db = on_device(times(a, x)), *work;
    int count = 0, *pivots;
    CHECK_SOLVER(cusolverDnSgetrf_bufferSize(handle, N, N, da, N, &count));
    CHECK(cudaMalloc(&work, count * sizeof *work + 8));
    CHECK(cudaMalloc(&pivots, N * sizeof *pivots));
    CHECK_SOLVER(cusolverDnSgetrf(handle, N, N, da, N, work, pivots, info));
    expect_no_error("getrf");
    CHECK_SOLVER(cusolverDnSgetrs(handle, CUBLAS_OP_N, N, 1, da, N, pivots, db, N, info));
    std::vector<float> seen = from_device(db, N);
    for (int i = 0; i < N; i++)
        expect_close(seen[i], x[i], 1e-4, "getrs");
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(work));
    CHECK(cudaFree(pivots));
}

// Vectors behind each other in `vectors`, values in `values`: A v = w v for each.
static void expect_eigen(const std::vector<double> &a, const std::vector<double> &vectors, const std::vector<double> &values,
                         const char *what)
{
    for (int k = 0; k < N; k++) {
        std::vector<double> v(&vectors[k * N], &vectors[k * N] + N), av = times(a, v);
        for (int i = 0; i < N; i++)
            expect_close(av[i], values[k] * v[i], 1e-6, what);
    }
}

static void test_eigenvalues()
{
    std::vector<double> a = matrix<double>();
    double *da = on_device(a), *values, *work;
    int count = 0;
    CHECK(cudaMalloc(&values, N * sizeof *values));
    CHECK_SOLVER(cusolverDnDsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, da, N, values, &count));
    CHECK(cudaMalloc(&work, count * sizeof *work + 8));
    CHECK_SOLVER(cusolverDnDsyevd(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, da, N, values, work, count, info));
    expect_no_error("syevd");
    expect_eigen(a, from_device(da, N * N), from_device(values, N), "syevd");
    CHECK(cudaFree(work));

    // With a parameter object, whose results the call leaves in it.
    syevjInfo_t params;
    double residual = -1;
    int sweeps = -1;
    CHECK(cudaMemcpy(da, a.data(), N * N * sizeof *da, cudaMemcpyHostToDevice));
    CHECK_SOLVER(cusolverDnCreateSyevjInfo(&params));
    CHECK_SOLVER(cusolverDnXsyevjSetTolerance(params, 1e-12));
    CHECK_SOLVER(cusolverDnXsyevjSetMaxSweeps(params, 50));
    CHECK_SOLVER(
        cusolverDnDsyevj_bufferSize(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, da, N, values, &count, params));
    CHECK(cudaMalloc(&work, count * sizeof *work + 8));
    CHECK_SOLVER(
        cusolverDnDsyevj(handle, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, da, N, values, work, count, info, params));
    CHECK_SOLVER(cusolverDnXsyevjGetResidual(handle, params, &residual));
    CHECK_SOLVER(cusolverDnXsyevjGetSweeps(handle, params, &sweeps));
    expect_no_error("syevj");
    expect_eigen(a, from_device(da, N * N), from_device(values, N), "syevj");
    EXPECT(residual >= 0 && residual < 1e-6 && sweeps >= 0 && sweeps <= 50);
    CHECK_SOLVER(cusolverDnDestroySyevjInfo(params));
    CHECK(cudaFree(da));
    CHECK(cudaFree(values));
    CHECK(cudaFree(work));
}

// With 64-bit sizes, types as arguments, memory on the host, and without or with a parameter object.
static void test_large(cusolverDnParams_t params)
{
    std::vector<double> a = matrix<double>();
    double *da = on_device(a), *values;
    size_t device_bytes = 0, host_bytes = 0;
    void *device_work;
    CHECK(cudaMalloc(&values, N * sizeof *values));
    CHECK_SOLVER(cusolverDnXsyevd_bufferSize(handle, params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, CUDA_R_64F, da, N,
                                             CUDA_R_64F, values, CUDA_R_64F, &device_bytes, &host_bytes));
    CHECK(cudaMalloc(&device_work, device_bytes + 8));
    std::vector<char> host_work(host_bytes);
    CHECK_SOLVER(cusolverDnXsyevd(handle, params, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, N, CUDA_R_64F, da, N, CUDA_R_64F,
                                  values, CUDA_R_64F, device_work, device_bytes, host_bytes ? host_work.data() : NULL, host_bytes,
                                  info));
    expect_no_error("Xsyevd");
    expect_eigen(a, from_device(da, N * N), from_device(values, N), "Xsyevd");
    CHECK(cudaFree(da));
    CHECK(cudaFree(values));
    CHECK(cudaFree(device_work));
}

static void test_singular_values()
{
    std::vector<float> a = vector_of<float>(N * N);
    float *da = on_device(a), *s, *u, *vt, *work;
    int count = 0;
    CHECK(cudaMalloc(&s, N * sizeof *s));
    CHECK(cudaMalloc(&u, N * N * sizeof *u));
    CHECK(cudaMalloc(&vt, N * N * sizeof *vt));
    CHECK_SOLVER(cusolverDnSgesvd_bufferSize(handle, N, N, &count));
    CHECK(cudaMalloc(&work, count * sizeof *work + 8));
    CHECK_SOLVER(cusolverDnSgesvd(handle, 'A', 'A', N, N, da, N, s, u, N, vt, N, work, count, NULL, info));
    expect_no_error("gesvd");
    std::vector<float> hs = from_device(s, N), hu = from_device(u, N * N), hvt = from_device(vt, N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int k = 0; k < N; k++)
                sum += (double)hu[k * N + i] * hs[k] * hvt[j * N + k];
            expect_close(sum, a[j * N + i], 1e-4, "gesvd");
        }
    CHECK(cudaFree(da));
    CHECK(cudaFree(s));
    CHECK(cudaFree(u));
    CHECK(cudaFree(vt));
    CHECK(cudaFree(work));
}

static void test_settings()
{
    cudaStream_t stream, seen;
    cusolverDeterministicMode_t mode;
    CHECK(cudaStreamCreate(&stream));
    CHECK_SOLVER(cusolverDnSetStream(handle, stream));
    CHECK_SOLVER(cusolverDnGetStream(handle, &seen));
    EXPECT(seen == stream);
    CHECK_SOLVER(cusolverDnGetDeterministicMode(handle, &mode));
    EXPECT(mode == CUSOLVER_DETERMINISTIC_RESULTS);
    CHECK(cudaStreamSynchronize(stream));
    CHECK_SOLVER(cusolverDnSetStream(handle, NULL));
    CHECK(cudaStreamDestroy(stream));
}

int main()
{
    cusolverDnParams_t params;
    int version = 0, major = 0;
    CHECK_SOLVER(cusolverDnCreate(&handle));
    CHECK(cudaMalloc(&info, sizeof *info));
    CHECK_SOLVER(cusolverGetVersion(&version));
    CHECK_SOLVER(cusolverGetProperty(MAJOR_VERSION, &major));
    EXPECT(version / 1000 == major);
    test_settings();
    test_cholesky();
    test_lu();
    test_eigenvalues();
    test_singular_values();
    test_large(NULL);
    CHECK_SOLVER(cusolverDnCreateParams(&params));
    CHECK_SOLVER(cusolverDnSetAdvOptions(params, CUSOLVERDN_GETRF, CUSOLVER_ALG_0));
    test_large(params);
    CHECK_SOLVER(cusolverDnDestroyParams(params));
    CHECK(cudaFree(info));
    CHECK_SOLVER(cusolverDnDestroy(handle));
    return 0;
}
