// cuBLAS and cuBLASLt through their own interfaces: products of several types, results on the host and on the device,
// settings, streams, batches, descriptors; each compared with plain loops.
// nvcc: -lcublas -lcublasLt
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <math.h>
#include <vector>
#include "check.h"

#define CHECK_BLAS(call)                                                                                               \
    do {                                                                                                               \
        cublasStatus_t status_ = (call);                                                                               \
        if (status_ != CUBLAS_STATUS_SUCCESS) {                                                                        \
            printf("%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cublasGetStatusName(status_));                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

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

// C = alpha A B + beta C, column by column.
template <typename T>
static std::vector<double> product(int m, int n, int k, double alpha, const std::vector<T> &a, const std::vector<T> &b, double beta,
                                   const std::vector<T> &c, bool a_is_transposed = false)
{
    std::vector<double> out(m * n);
    for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++) {
            double sum = 0;
            for (int l = 0; l < k; l++)
                sum += (double)(float)a[a_is_transposed ? i * k + l : l * m + i] * (double)(float)b[j * k + l];
            out[j * m + i] = alpha * sum + beta * (double)(float)c[j * m + i];
        }
    return out;
}

template <typename T> static std::vector<T> random_vector(size_t count)
{
    std::vector<T> out(count);
    for (auto &one : out)
        one = (T)(float)random_number();
    return out;
}

static void products(cublasHandle_t handle)
{
    const int m = 37, n = 29, k = 53;
    auto a = random_vector<float>(m * k), b = random_vector<float>(k * n), c = random_vector<float>(m * n);
    float *da = on_device(a), *db = on_device(b), *dc = on_device(c);
    const float alpha = 1.5f, beta = -0.5f;
    auto wanted = product(m, n, k, alpha, a, b, beta, c);
    CHECK_BLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, da, m, db, k, &beta, dc, m));
    auto seen = from_device(dc, m * n);
    for (int i = 0; i < m * n; i++)
        expect_close(seen[i], wanted[i], 1e-4, "sgemm");

    // Numbers on the device.
    float numbers[2] = {0.25f, 2.0f}, *dnumbers;
    CHECK(cudaMalloc(&dnumbers, sizeof numbers));
    CHECK(cudaMemcpy(dnumbers, numbers, sizeof numbers, cudaMemcpyHostToDevice));
    CHECK_BLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    cublasPointerMode_t mode;
    CHECK_BLAS(cublasGetPointerMode(handle, &mode));
    EXPECT(mode == CUBLAS_POINTER_MODE_DEVICE);
    auto before = from_device(dc, m * n);
    wanted = product(m, n, k, numbers[0], a, b, numbers[1], before);
    CHECK_BLAS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, dnumbers, da, m, db, k, dnumbers + 1, dc, m));
    CHECK_BLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
    seen = from_device(dc, m * n);
    for (int i = 0; i < m * n; i++)
        expect_close(seen[i], wanted[i], 1e-4, "sgemm, numbers on the device");

    // Half precision, computed in single.
    auto ha = random_vector<__half>(m * k), hb = random_vector<__half>(k * n), hc = random_vector<__half>(m * n);
    __half *dha = on_device(ha), *dhb = on_device(hb), *dhc = on_device(hc);
    wanted = product(m, n, k, alpha, ha, hb, beta, hc);
    CHECK_BLAS(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &alpha, dha, CUDA_R_16F, m, dhb, CUDA_R_16F, k, &beta, dhc,
                            CUDA_R_16F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    auto hseen = from_device(dhc, m * n);
    for (int i = 0; i < m * n; i++)
        expect_close((float)hseen[i], wanted[i], 2e-2, "gemmEx of halves");
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    CHECK(cudaFree(dha));
    CHECK(cudaFree(dhb));
    CHECK(cudaFree(dhc));
    CHECK(cudaFree(dnumbers));
}

static void results(cublasHandle_t handle)
{
    const int n = 1000;
    auto x = random_vector<double>(n), y = random_vector<double>(n);
    double *dx = on_device(x), *dy = on_device(y), dot = 0, norm = 0, *ddot;
    double wanted_dot = 0, wanted_norm = 0;
    int largest = 0, wanted_largest = 0;
    for (int i = 0; i < n; i++) {
        wanted_dot += x[i] * y[i];
        wanted_norm += x[i] * x[i];
        if (fabs(x[i]) > fabs(x[wanted_largest]))
            wanted_largest = i;
    }
    CHECK_BLAS(cublasDdot(handle, n, dx, 1, dy, 1, &dot));
    expect_close(dot, wanted_dot, 1e-12, "ddot");
    CHECK_BLAS(cublasDnrm2(handle, n, dx, 1, &norm));
    expect_close(norm, sqrt(wanted_norm), 1e-12, "dnrm2");
    CHECK_BLAS(cublasIdamax(handle, n, dx, 1, &largest));
    EXPECT(largest == wanted_largest + 1);
    CHECK(cudaMalloc(&ddot, sizeof *ddot));
    CHECK_BLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_DEVICE));
    CHECK_BLAS(cublasDdot(handle, n, dx, 1, dy, 1, ddot));
    CHECK_BLAS(cublasSetPointerMode(handle, CUBLAS_POINTER_MODE_HOST));
    expect_close(from_device(ddot, 1)[0], wanted_dot, 1e-12, "ddot on the device");
    double a = 3, b = 4, c = 0, s = 0;
    CHECK_BLAS(cublasDrotg(handle, &a, &b, &c, &s));
    expect_close(fabs(a), 5, 1e-12, "drotg r");
    expect_close(fabs(c), 0.6, 1e-12, "drotg c");
    // What has its step goes by our own copies.
    std::vector<double> every_third(3 * n);
    CHECK_BLAS(cublasGetVector(n, sizeof(double), dx, 1, every_third.data(), 3));
    for (int i = 0; i < n; i++)
        EXPECT(every_third[3 * i] == x[i]);
    CHECK_BLAS(cublasSetVector(n, sizeof(double), every_third.data(), 3, dy, 1));
    EXPECT(from_device(dy, n) == x);
    CHECK(cudaFree(dx));
    CHECK(cudaFree(dy));
    CHECK(cudaFree(ddot));
}

static void settings(cublasHandle_t handle)
{
    cublasMath_t math;
    int version = 0, major = 0;
    CHECK_BLAS(cublasGetVersion(handle, &version));
    CHECK_BLAS(cublasGetProperty(MAJOR_VERSION, &major));
    EXPECT(version / 10000 == 13 && major == 13);
    CHECK_BLAS(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
    CHECK_BLAS(cublasGetMathMode(handle, &math));
    EXPECT(math == CUBLAS_TF32_TENSOR_OP_MATH);
    CHECK_BLAS(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
    cudaStream_t stream, told;
    CHECK(cudaStreamCreate(&stream));
    CHECK_BLAS(cublasSetStream(handle, stream));
    CHECK_BLAS(cublasGetStream(handle, &told));
    EXPECT(told == stream);
    void *workspace;
    CHECK(cudaMalloc(&workspace, 4 << 20));
    CHECK_BLAS(cublasSetWorkspace(handle, workspace, 4 << 20));
    products(handle);
    CHECK_BLAS(cublasSetStream(handle, NULL));
    CHECK(cudaStreamDestroy(stream));
    CHECK(cudaFree(workspace));
    products(handle);
    // What is wrong is said, at once, and no later call is the worse for it.
    float one = 1, *memory;
    CHECK(cudaMalloc(&memory, 4096));
    EXPECT(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, -1, 2, 2, &one, memory, 2, memory, 2, &one, memory, 2) ==
           CUBLAS_STATUS_INVALID_VALUE);
    EXPECT(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 4, 2, 2, &one, memory, 2, memory, 2, &one, memory, 2) ==
           CUBLAS_STATUS_INVALID_VALUE);
    EXPECT(cublasSgemm(NULL, CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &one, memory, 2, memory, 2, &one, memory, 2) ==
           CUBLAS_STATUS_NOT_INITIALIZED);
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(memory));
}

static void batches(cublasHandle_t handle)
{
    const int n = 16, count = 5;
    auto a = random_vector<float>(n * n * count), b = random_vector<float>(n * n * count);
    std::vector<float> c(n * n * count), one_c(n * n);
    float *da = on_device(a), *db = on_device(b), *dc = on_device(c);
    const float alpha = 1, beta = 0;
    std::vector<const float *> pa, pb;
    std::vector<float *> pc;
    for (int i = 0; i < count; i++) {
        pa.push_back(da + i * n * n);
        pb.push_back(db + i * n * n);
        pc.push_back(dc + i * n * n);
    }
    const float **dpa = on_device(pa), **dpb = on_device(pb);
    float **dpc = on_device(pc);
    for (int how = 0; how < 2; how++) {
        CHECK(cudaMemset(dc, 0, c.size() * sizeof(float)));
        if (how)
            CHECK_BLAS(cublasSgemmBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, dpa, n, dpb, n, &beta, dpc, n, count));
        else
            CHECK_BLAS(cublasSgemmStridedBatched(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &alpha, da, n, n * n, db, n, n * n, &beta,
                                                 dc, n, n * n, count));
        auto seen = from_device(dc, c.size());
        for (int batch = 0; batch < count; batch++) {
            std::vector<float> one_a(a.begin() + batch * n * n, a.begin() + (batch + 1) * n * n);
            std::vector<float> one_b(b.begin() + batch * n * n, b.begin() + (batch + 1) * n * n);
            auto wanted = product(n, n, n, 1, one_a, one_b, 0, one_c);
            for (int i = 0; i < n * n; i++)
                expect_close(seen[batch * n * n + i], wanted[i], 1e-4, how ? "sgemmBatched" : "sgemmStridedBatched");
        }
    }
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dc));
    CHECK(cudaFree(dpa));
    CHECK(cudaFree(dpb));
    CHECK(cudaFree(dpc));
}

// D = relu(A' B + bias), as frameworks ask for it: descriptors, a heuristic, one call; twice, so that the second is not
// awaited.
static void epilogue(cublasLtHandle_t handle)
{
    const int m = 32, n = 24, k = 48;
    auto a = random_vector<float>(k * m), b = random_vector<float>(k * n), bias = random_vector<float>(m);
    std::vector<float> d(m * n);
    float *da = on_device(a), *db = on_device(b), *dbias = on_device(bias), *dd = on_device(d);
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, ld;
    cublasLtMatmulPreference_t preference;
    cublasOperation_t transposed = CUBLAS_OP_T;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_RELU_BIAS, told;
    size_t workspace_bytes = 1 << 20, written = 0;
    void *workspace;
    CHECK(cudaMalloc(&workspace, workspace_bytes));
    CHECK_BLAS(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK_BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
    CHECK_BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    CHECK_BLAS(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias, sizeof dbias));
    CHECK_BLAS(cublasLtMatmulDescGetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &told, sizeof told, &written));
    EXPECT(told == epilogue && written == sizeof told);
    EXPECT(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, 1) == CUBLAS_STATUS_INVALID_VALUE);
    CHECK_BLAS(cublasLtMatrixLayoutCreate(&la, CUDA_R_32F, k, m, k));
    CHECK_BLAS(cublasLtMatrixLayoutCreate(&lb, CUDA_R_32F, k, n, k));
    CHECK_BLAS(cublasLtMatrixLayoutCreate(&ld, CUDA_R_32F, m, n, m));
    CHECK_BLAS(cublasLtMatmulPreferenceCreate(&preference));
    CHECK_BLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                                    sizeof workspace_bytes));
    cublasLtMatmulHeuristicResult_t found[2];
    int count = 0;
    CHECK_BLAS(cublasLtMatmulAlgoGetHeuristic(handle, desc, la, lb, ld, ld, preference, 2, found, &count));
    EXPECT(count >= 1 && found[0].state == CUBLAS_STATUS_SUCCESS);
    const float one = 1, zero = 0;
    std::vector<float> no_c(m * n);
    auto wanted = product(m, n, k, 1, a, b, 0, no_c, true);
    for (int round = 0; round < 2; round++) {
        CHECK(cudaMemset(dd, 0, d.size() * sizeof(float)));
        CHECK_BLAS(cublasLtMatmul(handle, desc, &one, da, la, db, lb, &zero, dd, ld, dd, ld, &found[0].algo, workspace, workspace_bytes,
                                  NULL));
        auto seen = from_device(dd, d.size());
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++)
                expect_close(seen[j * m + i], fmax(0, wanted[j * m + i] + bias[i]), 1e-3, "matmul with relu and bias");
    }
    CHECK_BLAS(cublasLtMatmulPreferenceDestroy(preference));
    CHECK_BLAS(cublasLtMatrixLayoutDestroy(la));
    CHECK_BLAS(cublasLtMatrixLayoutDestroy(lb));
    CHECK_BLAS(cublasLtMatrixLayoutDestroy(ld));
    CHECK_BLAS(cublasLtMatmulDescDestroy(desc));
    CHECK(cudaFree(da));
    CHECK(cudaFree(db));
    CHECK(cudaFree(dd));
    CHECK(cudaFree(dbias));
    CHECK(cudaFree(workspace));
}

int main()
{
    cublasHandle_t handle;
    cublasLtHandle_t light;
    cublasStatus_t status = cublasCreate(&handle);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
        printf("skip: there is no cuBLAS here\n");
        return 77;
    }
    CHECK_BLAS(status);
    products(handle);
    results(handle);
    settings(handle);
    batches(handle);
    CHECK_BLAS(cublasLtCreate(&light));
    epilogue(light);
    epilogue((cublasLtHandle_t)handle); // NVIDIA allows that
    CHECK_BLAS(cublasLtDestroy(light));
    CHECK_BLAS(cublasDestroy(handle));
    if (getenv("FLYT_TEST_FORWARDED")) // natively, a handle that is ended twice ends the program
        EXPECT(cublasDestroy(handle) == CUBLAS_STATUS_NOT_INITIALIZED);
    return 0;
}
