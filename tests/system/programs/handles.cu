// Keeps handles of NVIDIA's libraries for all its life, and has them compute what is told, each time comparing the result with
// what the host has computed.
//
//   steps N       N rounds of the first seven: "steps N"
//   all N         N rounds of all: "all N", and the names of those that are not there
//   busy NAME MS  rounds of one library for so long, in which its work is done many times: "busy ROUNDS"; "busy 0" where the
//                 node has none of that name
//   take N MIB E  N blocks of at most 63 MiB, in which all numbers are 2 to the power of E, or as many as are to be had:
//                 "take COUNT STATUS", the status of the last one; rounds look at all blocks from then on
//   drop N        frees N of them: "drop COUNT" of what is left
//   info          "info FREE TOTAL" in MiB, of cudaMemGetInfo
//   end           also the end of input: exit status 0
//
// Names: blas, lt, fft, rand, solver, eigen (cuSOLVER's, which a thread of the server's calls), sparse; dnn, solver_sparse and
// solver_refactor (cuSOLVER's Sp and Rf), sparse_lt, nccl (one rank). cuDNN, cuSPARSELt and NCCL are opened when they are first
// used, for a machine may have none. The first line is "ready". An error is "error NAME STATUS" and exit status 7.
// nvcc: -lcublas -lcublasLt -lcufft -lcurand -lcusolver -lcusparse -ldl
#define DISABLE_CUSPARSE_DEPRECATED
#define DISABLE_CUSOLVER_DEPRECATED
#include <chrono>
#include <cmath>
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_fp16.h>
#include <cufft.h>
#include <curand.h>
#include <cusolverDn.h>
#include <cusolverRf.h>
#include <cusolverSp.h>
#include <cusparse.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>
#include "nccl_interface.h"
#include "sparse_lt_interface.h"

enum { N = 96, POINTS = 4096, SENT = 1 << 17 };

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

// Rows of a sparse matrix of which all numbers are stored: on both sides of the diagonal, or on one side.
struct pattern {
    std::vector<int> offsets = std::vector<int>(1), columns;
    pattern(bool has_lower, bool has_upper)
    {
        for (int i = 0; i < N; i++) {
            for (int j = has_lower ? 0 : i; j < (has_upper ? N : i + 1); j++)
                columns.push_back(j);
            offsets.push_back((int)columns.size());
        }
    }
};
static pattern whole(true, true);

// Whether there is a library, by what opening its file, or its first call, has come to; who has none is told.
enum { NO_FILE = -1 };
static bool is_had(const char *name, int status, int refused)
{
    if (status && status != NO_FILE && status != refused)
        fail(name, status);
    if (status)
        fprintf(stderr, "handles: no %s: %s\n", name, status == NO_FILE ? dlerror() : "the node has none");
    return !status;
}

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
        size_t bytes = 0;
        CHECK(cusparseCreate(&handle));
        CHECK(cusparseSetStream(handle, stream));
        result = on_device(ones_host);
        CHECK(cusparseCreateCsr(&a, N, N, N * N, on_device(whole.offsets), on_device(whole.columns), on_device(a_host),
                                CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
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

static void solver_sparse()
{
    static cusolverSpHandle_t handle;
    static cusparseMatDescr_t general;
    static float *a, *b, *x;
    static int *offsets, *columns;
    int singular = 0;
    if (!handle) {
        CHECK(cusolverSpCreate(&handle));
        CHECK(cusolverSpSetStream(handle, stream));
        CHECK(cusparseCreateMatDescr(&general));
        a = on_device(a_host), b = on_device(sums_host), x = on_device(sums_host);
        offsets = on_device(whole.offsets), columns = on_device(whole.columns);
    }
    CHECK(cudaMemsetAsync(x, 0, N * sizeof *x, stream));
    REPEAT(cusolverSpScsrlsvqr(handle, N, N * N, general, a, offsets, columns, b, 1e-6f, 0, x, &singular));
    if (singular != -1)
        fail("singular", singular);
    compare("solver_sparse", on_host(x, N), ones_host, 1e-4f);
}

// L without its diagonal and U in one, row by row. No rows are exchanged.
static std::vector<double> factors()
{
    std::vector<double> m(a_host.begin(), a_host.end());
    for (int k = 0; k < N; k++)
        for (int i = k + 1; i < N; i++) {
            m[i * N + k] /= m[k * N + k];
            for (int j = k + 1; j < N; j++)
                m[i * N + j] -= m[i * N + k] * m[k * N + j];
        }
    return m;
}

static cusolverRfHandle_t refactor_handle(std::vector<int> order)
{
    const std::vector<double> m = factors();
    std::vector<double> a(a_host.begin(), a_host.end()), l, u;
    pattern lower(true, false), upper(false, true);
    cusolverRfHandle_t handle;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            if (j <= i)
                l.push_back(i == j ? 1 : m[i * N + j]);
            if (j >= i)
                u.push_back(m[i * N + j]);
        }
    CHECK(cusolverRfCreate(&handle));
    CHECK(cusolverRfSetupHost(N, N * N, whole.offsets.data(), whole.columns.data(), a.data(), (int)l.size(),
                              lower.offsets.data(), lower.columns.data(), l.data(), (int)u.size(), upper.offsets.data(),
                              upper.columns.data(), u.data(), order.data(), order.data(), handle));
    CHECK(cudaDeviceSynchronize());
    CHECK(cusolverRfAnalyze(handle));
    return handle;
}

// It has no stream. The matrix is twice that of its setting up, so that what that has left solves nothing.
static void solver_refactor()
{
    static cusolverRfHandle_t handle;
    static int *offsets, *columns, *order;
    static double *a, *x, *room;
    if (!handle) {
        std::vector<int> same(whole.columns.begin(), whole.columns.begin() + N);
        std::vector<double> twice(a_host.begin(), a_host.end());
        for (double &one : twice)
            one *= 2;
        handle = refactor_handle(same);
        offsets = on_device(whole.offsets), columns = on_device(whole.columns), order = on_device(same);
        a = on_device(twice), x = on_device(std::vector<double>(N)), room = on_device(std::vector<double>(N));
    }
    const std::vector<double> sums(sums_host.begin(), sums_host.end());
    CHECK(cudaMemcpy(x, sums.data(), N * sizeof *x, cudaMemcpyHostToDevice));
    REPEAT(cusolverRfResetValues(N, N * N, offsets, columns, a, order, order, handle) || cudaDeviceSynchronize() ||
           cusolverRfRefactor(handle));
    CHECK(cusolverRfSolve(handle, order, order, 1, room, N, x, N));
    CHECK(cudaDeviceSynchronize());
    const std::vector<double> found = on_host(x, N);
    compare("solver_refactor", std::vector<float>(found.begin(), found.end()), std::vector<float>(N, 0.5f), 1e-6f);
}

// ---- libraries whose headers are not the toolkit's ----

static struct {
    void *library, *handle;
    template <typename F> F *find(const char *name) const
    {
        return (F *)dlsym(library, name);
    }
} cudnn;

// Its own libraries may be missing, too.
static bool dnn_is_there()
{
    static int answer = -1;
    if (answer < 0) {
        cudnn.library = dlopen("libcudnn.so.9", RTLD_NOW);
        int status = cudnn.library ? cudnn.find<int(void **)>("cudnnCreate")(&cudnn.handle) : NO_FILE;
        answer = is_had("cuDNN", status, status);
    }
    return answer;
}

static void dnn()
{
    static void *desc;
    static float *x, *y;
    const float one = 1, zero = 0;
    if (!desc) {
        CHECK(cudnn.find<int(void *, cudaStream_t)>("cudnnSetStream")(cudnn.handle, stream));
        CHECK(cudnn.find<int(void **)>("cudnnCreateTensorDescriptor")(&desc));
        CHECK(cudnn.find<int(void *, int, int, int, int, int, int)>("cudnnSetTensor4dDescriptor")(desc, 0 /* NCHW */,
                                                                                                0 /* float */, 1, N, 1, 1));
        x = on_device(ones_host), y = on_device(ones_host);
    }
    auto softmax = cudnn.find<int(void *, int, int, const float *, void *, const float *, const float *, void *, float *)>(
        "cudnnSoftmaxForward");
    REPEAT(softmax(cudnn.handle, 1 /* accurate */, 1 /* channels */, &one, desc, x, &zero, desc, y));
    compare("dnn", on_host(y, N), std::vector<float>(N, 1.0f / N), 1e-6f);
}

static struct {
    sparse_lt_room handle, a, b, d, product, selection, plan;
    void *compressed, *workspace;
    __half *other, *result;
} structured;

static bool sparse_lt_is_there()
{
    static int answer = -1;
    if (answer < 0)
        answer = is_had("cuSPARSELt", sparse_lt_is_found() ? cusparseLtInit(&structured.handle) : NO_FILE,
                        SPARSE_LT_NOT_SUPPORTED);
    return answer;
}

// Of each four numbers of a row of the first matrix two are zeros. A half has the sums of such small numbers exactly.
static float first(int i, int k)
{
    return k % 4 < 2 ? (float)((i + k) % 3) : 0;
}

static float second(int j, int k)
{
    return (float)(j * k % 3 - 1);
}

static __half *halves_on_device(float (*number)(int, int))
{
    std::vector<__half> host;
    for (int i = 0; i < N * N; i++)
        host.push_back(__float2half(number(i / N, i % N)));
    return on_device(host);
}

static void begin_structured()
{
    const sparse_lt_room *handle = &structured.handle;
    __half *a = halves_on_device(first);
    size_t bytes, buffer_bytes, workspace_bytes;
    void *buffer;
    structured.other = halves_on_device(second), structured.result = halves_on_device(second);
    CHECK(cusparseLtStructuredDescriptorInit(handle, &structured.a, N, N, N, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW, 0));
    CHECK(cusparseLtDenseDescriptorInit(handle, &structured.b, N, N, N, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW));
    CHECK(cusparseLtDenseDescriptorInit(handle, &structured.d, N, N, N, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW));
    CHECK(cusparseLtMatmulDescriptorInit(handle, &structured.product, 0, 1, &structured.a, &structured.b, &structured.d,
                                         &structured.d, SPARSE_LT_COMPUTE_32F));
    CHECK(cusparseLtMatmulAlgSelectionInit(handle, &structured.selection, &structured.product, 0));
    CHECK(cusparseLtMatmulPlanInit(handle, &structured.plan, &structured.product, &structured.selection));
    CHECK(cusparseLtSpMMACompressedSize(handle, &structured.plan, &bytes, &buffer_bytes));
    CHECK(cusparseLtMatmulGetWorkspace(handle, &structured.plan, &workspace_bytes));
    CHECK(cudaMalloc(&structured.compressed, bytes));
    CHECK(cudaMalloc(&structured.workspace, workspace_bytes + 16));
    CHECK(cudaMalloc(&buffer, buffer_bytes + 16));
    CHECK(cusparseLtSpMMACompress(handle, &structured.plan, a, structured.compressed, buffer, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(buffer));
}

static void sparse_lt()
{
    static std::vector<float> wanted;
    const float one = 1, zero = 0;
    if (wanted.empty()) {
        begin_structured();
        for (int i = 0; i < N * N; i++) {
            wanted.push_back(0);
            for (int k = 0; k < N; k++)
                wanted[i] += first(i / N, k) * second(i % N, k);
        }
    }
    CHECK(cudaMemsetAsync(structured.result, 0x11, N * N * sizeof *structured.result, stream));
    REPEAT(cusparseLtMatmul(&structured.handle, &structured.plan, &one, structured.compressed, structured.other, &zero,
                            structured.result, structured.result, structured.workspace, &stream, 1));
    std::vector<float> found;
    for (__half number : on_host(structured.result, N * N))
        found.push_back(__half2float(number));
    compare("sparse_lt", found, wanted, 0);
}

static ncclComm_t communicator;

static bool nccl_is_there()
{
    static int answer = -1;
    const int device = 0;
    if (answer < 0)
        answer = is_had("NCCL", nccl_is_found() ? (int)ncclCommInitAll(&communicator, 1, &device) : NO_FILE, ncclInvalidUsage);
    return answer;
}

// Where there is one rank NCCL copies, but for an operator that multiplies: that is a kernel of its own.
static void nccl()
{
    static float *from, *to;
    static int doubled;
    static std::vector<float> wanted;
    if (!from) {
        std::vector<float> host;
        float two = 2;
        for (int i = 0; i < SENT; i++) {
            host.push_back((float)(i % 251));
            wanted.push_back(2 * host.back());
        }
        CHECK(ncclRedOpCreatePreMulSum(&doubled, &two, ncclFloat32, ncclScalarHostImmediate, communicator));
        from = on_device(host), to = on_device(host);
    }
    CHECK(cudaMemsetAsync(to, 0, SENT * sizeof *to, stream));
    REPEAT(ncclAllReduce(from, to, SENT, ncclFloat32, doubled, communicator, stream));
    compare("nccl", on_host(to, SENT), wanted, 0);
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

static const struct kind {
    const char *name;
    void (*round)();
    bool is_step;
    bool (*is_there)(); // NULL: it is
} kinds[] = {{"blas", blas, true, NULL},
             {"lt", lt, true, NULL},
             {"fft", fft, true, NULL},
             {"rand", rand_, true, NULL},
             {"solver", solver, true, NULL},
             {"eigen", eigen, true, NULL},
             {"sparse", sparse, true, NULL},
             {"solver_sparse", solver_sparse, false, NULL},
             {"solver_refactor", solver_refactor, false, NULL},
             {"dnn", dnn, false, dnn_is_there},
             {"sparse_lt", sparse_lt, false, sparse_lt_is_there},
             {"nccl", nccl, false, nccl_is_there}};

static bool is_there(const kind &one)
{
    return !one.is_there || one.is_there();
}

static int busy(const char *name, int ms)
{
    int count = 0;
    for (const kind &one : kinds) {
        if (strcmp(one.name, name) || !is_there(one))
            continue;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); /* it has been loaded */
        repeat = 16;
        for (; std::chrono::steady_clock::now() < end; count++)
            one.round();
        repeat = 1;
    }
    return count;
}

static void work(const char *command, int count, bool is_all)
{
    std::string absent;
    for (int i = 0; i < count; i++) {
        for (const kind &one : kinds)
            if (one.is_step || (is_all && is_there(one)))
                one.round();
            else if (is_all && !i)
                absent += std::string(" ") + one.name;
        look_at_blocks();
    }
    printf("%s %d%s\n", command, count, absent.c_str());
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
            work("steps", number, false);
        else if (sscanf(line, "all %d", &number) == 1)
            work("all", number, true);
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
