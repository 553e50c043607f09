// Keeps handles of NVIDIA's libraries for all its life, and has them compute what is told, each time comparing the result with
// what the host has computed.
//
//   steps N       N rounds of all but dnn: "steps N"
//   busy NAME MS  rounds of one library for so long, in which its work is done many times: "busy ROUNDS"; "busy 0" where the
//                 node has none of that name
//   take N MIB E  N blocks of at most 63 MiB, in which all numbers are 2 to the power of E, or as many as are to be had:
//                 "take COUNT STATUS", the status of the last one; rounds look at all blocks from then on
//   drop N        frees N of them: "drop COUNT" of what is left
//   info          "info FREE TOTAL" in MiB, of cudaMemGetInfo
//   end           also the end of input: exit status 0
//
// Names: blas, lt, fft, rand, solver, eigen (cuSOLVER's, which a thread of the server's calls), sparse, dnn. The first line is
// "ready". An error is "error NAME STATUS" and exit status 7.
// nvcc: -lcublas -lcublasLt -lcufft -lcurand -lcusolver -lcusparse -ldl
// nvcc: -lcublas -lcublasLt -lcufft -lcurand -lcusolver -lcusparse -ldl
#include <chrono>
#include <cmath>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusparse.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { N = 96, POINTS = 4096 };

static void fail(const char *name, int status)
{
    printf("error %s %d\n", name, status);
    fflush(stdout);
    _Exit(7);
}

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int status_ = (int)(call);                                                                                     \
        if (status_)                                                                                                   \
            fail(#call, status_);                                                                                      \
    } while (0)

static cudaStream_t stream;
static int repeat = 1; // how often the work of a round is done

#define REPEAT(call)                                                                                                   \
    for (int i_ = 0; i_ < repeat; i_++)                                                                                \
    CHECK(call)

template <typename T> static T *on_device(const std::vector<T> &host)
{
    T *device;
    CHECK(cudaMalloc(&device, host.size() * sizeof(T)));
    CHECK(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

template <typename T> static std::vector<T> on_host(const T *device, size_t count)
{
    std::vector<T> host(count);
    CHECK(cudaMemcpyAsync(host.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    return host;
}

static void compare(const char *name, const std::vector<float> &found, const std::vector<float> &wanted, float tolerance)
{
    for (size_t i = 0; i < wanted.size(); i++)
        if (!(fabsf(found[i] - wanted[i]) <= tolerance))
            fail(name, (int)i);
}

// Symmetric, with 2 N on the diagonal: positive definite, and its product with ones is the sum of a row.
static std::vector<float> matrix()
{
    std::vector<float> a(N * N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            a[i * N + j] = i == j ? 2 * N : (i * j) % 3;
    return a;
}

static std::vector<float> row_sums(const std::vector<float> &a)
{
    std::vector<float> sums(N);
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            sums[i] += a[i * N + j];
    return sums;
}

static const std::vector<float> a_host = matrix(), sums_host = row_sums(a_host), ones_host(N, 1);

// ---- one round of each ----

static cublasHandle_t blas_handle()
{
    static cublasHandle_t handle;
    if (!handle) {
        CHECK(cublasCreate(&handle));
        CHECK(cublasSetStream(handle, stream));
    }
    return handle;
}

static void blas()
{
    static float *a, *x, *y;
    cublasHandle_t handle = blas_handle();
    const float one = 1, zero = 0;
    if (!a) {
        a = on_device(a_host), x = on_device(ones_host), y = on_device(ones_host);
    }
    REPEAT(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, 1, N, &one, a, N, x, N, &zero, y, N));
    compare("blas", on_host(y, N), sums_host, 0);
}

static void lt()
{
    static cublasLtHandle_t handle;
    static cublasLtMatmulDesc_t product;
    static cublasLtMatrixLayout_t square, column;
    static float *a, *x, *y;
    const float one = 1, zero = 0;
    if (!handle) {
        CHECK(cublasLtCreate(&handle));
        CHECK(cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
        CHECK(cublasLtMatrixLayoutCreate(&square, CUDA_R_32F, N, N, N));
        CHECK(cublasLtMatrixLayoutCreate(&column, CUDA_R_32F, N, 1, N));
        a = on_device(a_host), x = on_device(ones_host), y = on_device(ones_host);
    }
    REPEAT(cublasLtMatmul(handle, product, &one, a, square, x, column, &zero, y, column, y, column, NULL, NULL, 0, stream));
    compare("lt", on_host(y, N), sums_host, 0);
}

static void fft()
{
    static cufftHandle plan;
    static cufftComplex *data, *waves;
    static std::vector<cufftComplex> host(POINTS);
    if (!data) {
        CHECK(cufftPlan1d(&plan, POINTS, CUFFT_C2C, 1));
        CHECK(cufftSetStream(plan, stream));
        for (int i = 0; i < POINTS; i++)
            host[i] = {(float)(i % 7), (float)(i % 5)};
        data = on_device(host), waves = on_device(host);
    }
    CHECK(cudaMemcpyAsync(data, host.data(), POINTS * sizeof *data, cudaMemcpyHostToDevice, stream));
    REPEAT(cufftExecC2C(plan, data, waves, CUFFT_FORWARD));
    CHECK(cufftExecC2C(plan, waves, data, CUFFT_INVERSE));
    std::vector<cufftComplex> found = on_host(data, POINTS);
    for (int i = 0; i < POINTS; i++)
        if (!(fabsf(found[i].x / POINTS - host[i].x) < 1e-3f) || !(fabsf(found[i].y / POINTS - host[i].y) < 1e-3f))
            fail("fft", i);
}

static void rand_()
{
    static curandGenerator_t generator;
    static float *numbers;
    static std::vector<float> first;
    if (!generator) {
        CHECK(curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_PHILOX4_32_10));
        CHECK(curandSetStream(generator, stream));
        CHECK(cudaMalloc(&numbers, POINTS * sizeof *numbers));
    }
    CHECK(curandSetPseudoRandomGeneratorSeed(generator, 7));
    REPEAT(curandSetGeneratorOffset(generator, 0) || curandGenerateUniform(generator, numbers, POINTS));
    std::vector<float> found = on_host(numbers, POINTS);
    double sum = 0;
    for (float one : found)
        sum += one;
    if (fabs(sum / POINTS - 0.5) > 0.05)
        fail("mean", 0);
    if (first.empty())
        first = found;
    compare("rand", found, first, 0);
}

static cusolverDnHandle_t solver_handle()
{
    static cusolverDnHandle_t handle;
    if (!handle) {
        CHECK(cusolverDnCreate(&handle));
        CHECK(cusolverDnSetStream(handle, stream));
    }
    return handle;
}

static void solver()
{
    static float *a, *b, *work;
    static int *info, bytes;
    cusolverDnHandle_t handle = solver_handle();
    if (!a) {
        a = on_device(a_host), b = on_device(sums_host), info = on_device(std::vector<int>(1));
        CHECK(cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, &bytes));
        CHECK(cudaMalloc(&work, bytes * sizeof *work));
    }
    CHECK(cudaMemcpyAsync(a, a_host.data(), N * N * sizeof *a, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(b, sums_host.data(), N * sizeof *b, cudaMemcpyHostToDevice, stream));
    CHECK(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, N, a, N, work, bytes, info));
    CHECK(cusolverDnSpotrs(handle, CUBLAS_FILL_MODE_LOWER, N, 1, a, N, b, N, info));
    compare("solver", on_host(b, N), ones_host, 1e-4f);
}

static void eigen()
{
    static float *a, *values, *work;
    static int *info, bytes;
    cusolverDnHandle_t handle = solver_handle();
    if (!a) {
        a = on_device(a_host), values = on_device(ones_host), info = on_device(std::vector<int>(1));
        CHECK(cusolverDnSsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_LOWER, N, a, N, values, &bytes));
        CHECK(cudaMalloc(&work, bytes * sizeof *work));
    }
    CHECK(cudaMemcpyAsync(a, a_host.data(), N * N * sizeof *a, cudaMemcpyHostToDevice, stream));
    CHECK(cusolverDnSsyevd(handle, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_LOWER, N, a, N, values, work, bytes, info));
    double trace = 0, wanted = 0;
    for (float one : on_host(values, N))
        trace += one;
    for (int i = 0; i < N; i++)
        wanted += a_host[i * N + i];
    if (fabs(trace - wanted) > 1e-3 * wanted)
        fail("eigen", (int)trace);
}

static void sparse()
{
    static cusparseHandle_t handle;
    static cusparseSpMatDescr_t a;
    static cusparseDnVecDescr_t x, y;
    static float *result;
    static void *room;
    const float one = 1, zero = 0;
    if (!handle) {
        std::vector<int> offsets(N + 1), columns(N * N);
        for (int i = 0; i < N * N; i++)
            columns[i] = i % N;
        for (int i = 0; i <= N; i++)
            offsets[i] = i * N;
        size_t bytes = 0;
        CHECK(cusparseCreate(&handle));
        CHECK(cusparseSetStream(handle, stream));
        result = on_device(ones_host);
        CHECK(cusparseCreateCsr(&a, N, N, N * N, on_device(offsets), on_device(columns), on_device(a_host), CUSPARSE_INDEX_32I,
                                CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
        CHECK(cusparseCreateDnVec(&x, N, on_device(ones_host), CUDA_R_32F));
        CHECK(cusparseCreateDnVec(&y, N, result, CUDA_R_32F));
        CHECK(cusparseSpMV_bufferSize(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, x, &zero, y, CUDA_R_32F,
                                      CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
        CHECK(cudaMalloc(&room, bytes + 256));
    }
    REPEAT(cusparseSpMV(handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, a, x, &zero, y, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT,
                       room));
    compare("sparse", on_host(result, N), sums_host, 0);
}

// Its header is not the toolkit's. false: the node, or this machine, has none.
static bool dnn_is_there()
{
    typedef int (*set_stream)(void *, cudaStream_t);
    typedef int (*create)(void **);
    typedef int (*set4d)(void *, int, int, int, int, int, int);
    typedef int (*softmax)(void *, int, int, const float *, void *, const float *, const float *, void *, float *);
    static void *library, *handle, *desc;
    static float *x, *y;
    static bool is_absent;
    const float one = 1, zero = 0;
    if (!library && !is_absent) {
        library = dlopen("libcudnn.so.9", RTLD_NOW);
        int status = library ? ((create)dlsym(library, "cudnnCreate"))(&handle) : 0;
        is_absent = !library || status;
        if (is_absent) {
            fprintf(stderr, "handles: no cuDNN: %s, cudnnCreate says %d\n", library ? "it is there" : dlerror(), status);
            return false;
        }
        CHECK(((set_stream)dlsym(library, "cudnnSetStream"))(handle, stream));
        CHECK(((create)dlsym(library, "cudnnCreateTensorDescriptor"))(&desc));
        CHECK(((set4d)dlsym(library, "cudnnSetTensor4dDescriptor"))(desc, 0 /* NCHW */, 0 /* float */, 1, N, 1, 1));
        x = on_device(ones_host), y = on_device(ones_host);
    }
    if (is_absent)
        return false;
    REPEAT(((softmax)dlsym(library, "cudnnSoftmaxForward"))(handle, 1 /* accurate */, 1 /* channels */, &one, desc, x, &zero, desc, y));
    compare("dnn", on_host(y, N), std::vector<float>(N, 1.0f / N), 1e-6f);
    return true;
}

static void dnn()
{
    dnn_is_there();
}

// ---- blocks of memory ----

struct block {
    float *at, value;
    int count;
};
static std::vector<block> blocks;

// Fewer than 2^24 numbers of one power of two have sums that a float has exactly, in whatever order they are added.
static void look_at_blocks()
{
    for (const block &one : blocks) {
        float sum;
        CHECK(cublasSasum(blas_handle(), one.count, one.at, 1, &sum));
        if (sum != one.value * one.count)
            fail("block", (int)(sum / one.value));
    }
}

static cudaError_t take_one(int mib, int exponent)
{
    block one = {nullptr, 1, mib << 18};
    cudaError_t status = cudaMalloc(&one.at, one.count * sizeof *one.at);
    if (status) {
        cudaGetLastError();
        return status;
    }
    const std::vector<float> host(one.count, one.value);
    const float factor = ldexpf(1, exponent);
    CHECK(cudaMemcpyAsync(one.at, host.data(), one.count * sizeof *one.at, cudaMemcpyHostToDevice, stream));
    CHECK(cublasSscal(blas_handle(), one.count, &factor, one.at, 1));
    one.value *= factor;
    blocks.push_back(one);
    return status;
}

static void take(int count, int mib, int exponent)
{
    int taken = 0;
    cudaError_t status = cudaSuccess;
    while (taken < count && !(status = take_one(mib, exponent)))
        taken++;
    CHECK(cudaStreamSynchronize(stream));
    printf("take %d %d\n", taken, status);
}

static void drop(int count)
{
    for (; count && !blocks.empty(); count--) {
        CHECK(cudaFree(blocks.back().at));
        blocks.pop_back();
    }
    printf("drop %zu\n", blocks.size());
}

static void say_info()
{
    size_t free_bytes, total_bytes;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    printf("info %zu %zu\n", free_bytes >> 20, total_bytes >> 20);
}

static const struct {
    const char *name;
    void (*round)();
} rounds[] = {{"blas", blas},     {"lt", lt},       {"fft", fft},       {"rand", rand_},
              {"solver", solver}, {"eigen", eigen}, {"sparse", sparse}, {"dnn", dnn}};

static int busy(const char *name, int ms)
{
    int count = 0;
    repeat = 16;
    if (!strcmp(name, "dnn") && !dnn_is_there())
        return 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); /* cuDNN has been loaded */
    for (const auto &one : rounds)
        while (!strcmp(one.name, name) && std::chrono::steady_clock::now() < end) {
            one.round();
            count++;
        }
    repeat = 1;
    return count;
}

static void steps(int count)
{
    for (int i = 0; i < count; i++) {
        for (const auto &one : rounds)
            if (one.round != dnn)
                one.round();
        look_at_blocks();
    }
    printf("steps %d\n", count);
}

int main()
{
    char line[64], name[16];
    int number, mib, exponent;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        if (sscanf(line, "steps %d", &number) == 1)
            steps(number);
        else if (sscanf(line, "busy %15s %d", name, &number) == 2)
            printf("busy %d\n", busy(name, number));
        else if (sscanf(line, "take %d %d %d", &number, &mib, &exponent) == 3)
            take(number, mib, exponent);
        else if (sscanf(line, "drop %d", &number) == 1)
            drop(number);
        else if (!strncmp(line, "info", 4))
            say_info();
        fflush(stdout);
    }
    return 0;
}
