// Keeps handles of NVIDIA's libraries for all its life, and has them compute what is told, each time comparing the
// result with what the host has computed.
//
//   steps N       N rounds of the first seven: "steps N"
//   all N         N rounds of all: "all N", and the names of those that are not there
//   busy NAME MS  rounds of one library for so long, in which its work is done many times: "busy ROUNDS";
//                 "busy 0" where the node has none of that name
//   wide NAME MS  the same, also "busy ROUNDS", with enough to do at a time for all SMs of a GPU;
//                 as usual for blas, lt, rand, nccl
//   take N MIB E  N blocks of at most 63 MiB, in which all numbers are 2 to the power of E, or as many as are
//                 to be had: "take COUNT STATUS", the status of the last one; rounds look at all blocks from then on
//   drop N        frees N of them: "drop COUNT" of what is left
//   info          "info FREE TOTAL" in MiB, of cudaMemGetInfo
//   end           also the end of input: exit status 0
//
// Names: blas, lt, fft, rand, solver, eigen (cuSOLVER's, which a thread of the server's calls), sparse; loop (of a
// graph, with cuBLAS in its body), dnn,
// solver_sparse and solver_refactor (cuSOLVER's Sp and Rf), sparse_lt, nccl (one rank). cuDNN, cuSPARSELt and NCCL are
// opened when they are first used, for a machine may have none. The first line is "ready". An error is "error NAME
// STATUS" and exit status 7.
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
static bool is_wide;   // whether a round has work for all SMs
enum { BLOCKS = 128, WIDE = 2048, SPARSE_LT_TIMES = 64 };

// How often a sparse matrix's block is there along its diagonal, and how many transforms and vectors there are.
static int block_count()
{
    return is_wide ? BLOCKS : 1;
}

static int side()
{
    return is_wide ? (int)WIDE : (int)N;
}

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

static void compare(const char *name, const std::vector<float> &found, const std::vector<float> &wanted,
                    float tolerance)
{
    for (size_t i = 0; i < wanted.size(); i++)
        if (!(fabsf(found[i] - wanted[i]) <= tolerance))
            fail(name, (int)i);
}

// Symmetric, with 2 n on the diagonal: positive definite, and its product with ones is the sum of a row.
static std::vector<float> matrix(int n)
{
    std::vector<float> a(n * n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i * n + j] = i == j ? 2 * n : (i * j) % 3;
    return a;
}

static std::vector<float> row_sums(const std::vector<float> &a, int n)
{
    std::vector<float> sums(n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            sums[i] += a[i * n + j];
    return sums;
}

static const std::vector<float> a_host = matrix(N), sums_host = row_sums(a_host, N), ones_host(N, 1);

// Rows of a sparse matrix of equal blocks along the diagonal, of which all numbers are stored: on both sides of the
// diagonal, or on one side.
struct pattern {
    std::vector<int> offsets = std::vector<int>(1), columns;
    pattern(bool has_lower, bool has_upper, int blocks = 1)
    {
        for (int i = 0; i < N * blocks; i++) {
            const int block = i / N * N;
            for (int j = has_lower ? block : i; j < (has_upper ? block + N : i + 1); j++)
                columns.push_back(j);
            offsets.push_back((int)columns.size());
        }
    }
};

// The same numbers for each block.
template <typename To, typename From> static std::vector<To> for_blocks(const std::vector<From> &one)
{
    std::vector<To> all;
    for (int i = 0; i < block_count(); i++)
        all.insert(all.end(), one.begin(), one.end());
    return all;
}

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

enum { LOOP_ROUNDS = 5 };

__global__ void count_down(int *left, cudaGraphConditionalHandle condition)
{
    *left -= 1;
    cudaGraphSetConditional(condition, *left);
}

// A loop that adds the product to the sum in each round. Its graph is launched again and again.
static cudaGraphExec_t make_loop(const float *a, const float *x, float *sum, int *left)
{
    cudaGraphNodeParams params = {};
    cudaGraphConditionalHandle condition;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    cudaGraph_t graph, body;
    cublasHandle_t handle = blas_handle();
    const float one = 1;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphConditionalHandleCreate(&condition, graph, 1, cudaGraphCondAssignDefault));
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = condition;
    params.conditional.type = cudaGraphCondTypeWhile;
    params.conditional.size = 1;
    CHECK(cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params));
    CHECK(cudaStreamBeginCaptureToGraph(stream, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                        cudaStreamCaptureModeRelaxed));
    CHECK(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, 1, N, &one, a, N, x, N, &one, sum, N));
    count_down<<<1, 1, 0, stream>>>(left, condition);
    CHECK(cudaStreamEndCapture(stream, &body));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    return exec;
}

static void loop()
{
    static cudaGraphExec_t exec;
    static float *sum;
    static int *left;
    std::vector<float> wanted(sums_host);
    for (float &one : wanted)
        one *= LOOP_ROUNDS;
    if (!exec) {
        sum = on_device(ones_host), left = on_device(std::vector<int>(1));
        exec = make_loop(on_device(a_host), on_device(ones_host), sum, left);
    }
    for (int i = 0; i < repeat; i++) {
        const int rounds = LOOP_ROUNDS;
        CHECK(cudaMemsetAsync(sum, 0, N * sizeof *sum, stream));
        CHECK(cudaMemcpyAsync(left, &rounds, sizeof rounds, cudaMemcpyHostToDevice, stream));
        CHECK(cudaGraphLaunch(exec, stream));
    }
    compare("loop", on_host(sum, N), wanted, 0);
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
    REPEAT(cublasLtMatmul(handle, product, &one, a, square, x, column, &zero, y, column, y, column, NULL, NULL, 0,
                          stream));
    compare("lt", on_host(y, N), sums_host, 0);
}

static void fft()
{
    static struct {
        cufftHandle plan;
        cufftComplex *data, *waves;
        std::vector<cufftComplex> host;
    } both[2];
    auto &self = both[is_wide];
    const int count = POINTS * block_count();
    if (!self.data) {
        CHECK(cufftPlan1d(&self.plan, POINTS, CUFFT_C2C, block_count()));
        CHECK(cufftSetStream(self.plan, stream));
        for (int i = 0; i < count; i++)
            self.host.push_back({(float)(i % 7), (float)(i % 5)});
        self.data = on_device(self.host), self.waves = on_device(self.host);
    }
    const std::vector<cufftComplex> &host = self.host;
    CHECK(cudaMemcpyAsync(self.data, host.data(), count * sizeof *self.data, cudaMemcpyHostToDevice, stream));
    REPEAT(cufftExecC2C(self.plan, self.data, self.waves, CUFFT_FORWARD));
    CHECK(cufftExecC2C(self.plan, self.waves, self.data, CUFFT_INVERSE));
    std::vector<cufftComplex> found = on_host(self.data, count);
    for (int i = 0; i < count; i++)
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
    static struct {
        std::vector<float> host, sums;
        float *a, *b, *work;
        int *info, bytes;
    } both[2];
    auto &self = both[is_wide];
    const int n = side();
    cusolverDnHandle_t handle = solver_handle();
    if (!self.a) {
        self.host = matrix(n), self.sums = row_sums(self.host, n);
        self.a = on_device(self.host), self.b = on_device(self.sums), self.info = on_device(std::vector<int>(1));
        CHECK(cusolverDnSpotrf_bufferSize(handle, CUBLAS_FILL_MODE_LOWER, n, self.a, n, &self.bytes));
        CHECK(cudaMalloc(&self.work, self.bytes * sizeof *self.work));
    }
    CHECK(cudaMemcpyAsync(self.a, self.host.data(), n * n * sizeof *self.a, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(self.b, self.sums.data(), n * sizeof *self.b, cudaMemcpyHostToDevice, stream));
    CHECK(cusolverDnSpotrf(handle, CUBLAS_FILL_MODE_LOWER, n, self.a, n, self.work, self.bytes, self.info));
    CHECK(cusolverDnSpotrs(handle, CUBLAS_FILL_MODE_LOWER, n, 1, self.a, n, self.b, n, self.info));
    compare("solver", on_host(self.b, n), std::vector<float>(n, 1), 1e-4f);
}

static void eigen()
{
    static struct {
        std::vector<float> host;
        float *a, *values, *work;
        int *info, bytes;
    } both[2];
    auto &self = both[is_wide];
    const int n = side();
    cusolverDnHandle_t handle = solver_handle();
    if (!self.a) {
        self.host = matrix(n);
        self.a = on_device(self.host), self.values = on_device(std::vector<float>(n));
        self.info = on_device(std::vector<int>(1));
        CHECK(cusolverDnSsyevd_bufferSize(handle, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_LOWER, n, self.a, n,
                                          self.values, &self.bytes));
        CHECK(cudaMalloc(&self.work, self.bytes * sizeof *self.work));
    }
    CHECK(cudaMemcpyAsync(self.a, self.host.data(), n * n * sizeof *self.a, cudaMemcpyHostToDevice, stream));
    CHECK(cusolverDnSsyevd(handle, CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_LOWER, n, self.a, n, self.values,
                           self.work, self.bytes, self.info));
    double trace = 0, wanted = 0;
    for (float one : on_host(self.values, n))
        trace += one;
    for (int i = 0; i < n; i++)
        wanted += self.host[i * n + i];
    if (fabs(trace - wanted) > 1e-3 * wanted)
        fail("eigen", (int)trace);
}

static void sparse()
{
    static struct {
        cusparseHandle_t handle;
        cusparseSpMatDescr_t a;
        cusparseDnVecDescr_t x, y;
        float *result;
        void *room;
    } both[2];
    auto &self = both[is_wide];
    const int n = N * block_count();
    const float one = 1, zero = 0;
    if (!self.handle) {
        const pattern blocks(true, true, block_count());
        const std::vector<float> ones = for_blocks<float>(ones_host);
        size_t bytes = 0;
        CHECK(cusparseCreate(&self.handle));
        CHECK(cusparseSetStream(self.handle, stream));
        self.result = on_device(ones);
        CHECK(cusparseCreateCsr(&self.a, n, n, n * N, on_device(blocks.offsets), on_device(blocks.columns),
                                on_device(for_blocks<float>(a_host)), CUSPARSE_INDEX_32I, CUSPARSE_INDEX_32I,
                                CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
        CHECK(cusparseCreateDnVec(&self.x, n, on_device(ones), CUDA_R_32F));
        CHECK(cusparseCreateDnVec(&self.y, n, self.result, CUDA_R_32F));
        CHECK(cusparseSpMV_bufferSize(self.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, self.a, self.x, &zero,
                                      self.y, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
        CHECK(cudaMalloc(&self.room, bytes + 256));
    }
    REPEAT(cusparseSpMV(self.handle, CUSPARSE_OPERATION_NON_TRANSPOSE, &one, self.a, self.x, &zero, self.y, CUDA_R_32F,
                        CUSPARSE_SPMV_ALG_DEFAULT, self.room));
    compare("sparse", on_host(self.result, n), for_blocks<float>(sums_host), 0);
}

static void solver_sparse()
{
    static struct {
        cusolverSpHandle_t handle;
        cusparseMatDescr_t general;
        float *a, *b, *x;
        int *offsets, *columns;
    } both[2];
    auto &self = both[is_wide];
    const int n = N * block_count();
    int singular = 0;
    if (!self.handle) {
        const pattern blocks(true, true, block_count());
        const std::vector<float> sums = for_blocks<float>(sums_host);
        CHECK(cusolverSpCreate(&self.handle));
        CHECK(cusolverSpSetStream(self.handle, stream));
        CHECK(cusparseCreateMatDescr(&self.general));
        self.a = on_device(for_blocks<float>(a_host)), self.b = on_device(sums), self.x = on_device(sums);
        self.offsets = on_device(blocks.offsets), self.columns = on_device(blocks.columns);
    }
    CHECK(cudaMemsetAsync(self.x, 0, n * sizeof *self.x, stream));
    REPEAT(cusolverSpScsrlsvqr(self.handle, n, n * N, self.general, self.a, self.offsets, self.columns, self.b, 1e-6f,
                               0, self.x, &singular));
    if (singular != -1)
        fail("singular", singular);
    compare("solver_sparse", on_host(self.x, n), for_blocks<float>(ones_host), 1e-4f);
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

static cusolverRfHandle_t refactor_handle(pattern &blocks, std::vector<int> order)
{
    const std::vector<double> m = factors();
    std::vector<double> a = for_blocks<double>(a_host), l, u;
    pattern lower(true, false, block_count()), upper(false, true, block_count());
    cusolverRfHandle_t handle;
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            if (j <= i)
                l.push_back(i == j ? 1 : m[i * N + j]);
            if (j >= i)
                u.push_back(m[i * N + j]);
        }
    l = for_blocks<double>(l), u = for_blocks<double>(u);
    CHECK(cusolverRfCreate(&handle));
    CHECK(cusolverRfSetupHost((int)order.size(), (int)a.size(), blocks.offsets.data(), blocks.columns.data(), a.data(),
                              (int)l.size(), lower.offsets.data(), lower.columns.data(), l.data(), (int)u.size(),
                              upper.offsets.data(), upper.columns.data(), u.data(), order.data(), order.data(),
                              handle));
    CHECK(cudaDeviceSynchronize());
    CHECK(cusolverRfAnalyze(handle));
    return handle;
}

// It has no stream. The matrix is twice that of its setting up, so that what that has left solves nothing.
static void solver_refactor()
{
    static struct {
        cusolverRfHandle_t handle;
        int *offsets, *columns, *order;
        double *a, *x, *room;
    } both[2];
    auto &self = both[is_wide];
    const int n = N * block_count();
    if (!self.handle) {
        pattern blocks(true, true, block_count());
        std::vector<int> same;
        std::vector<double> twice = for_blocks<double>(a_host);
        for (int i = 0; i < n; i++)
            same.push_back(i);
        for (double &one : twice)
            one *= 2;
        self.handle = refactor_handle(blocks, same);
        self.offsets = on_device(blocks.offsets), self.columns = on_device(blocks.columns),
        self.order = on_device(same);
        self.a = on_device(twice), self.x = on_device(std::vector<double>(n)),
        self.room = on_device(std::vector<double>(n));
    }
    const std::vector<double> sums = for_blocks<double>(sums_host);
    CHECK(cudaMemcpy(self.x, sums.data(), n * sizeof *self.x, cudaMemcpyHostToDevice));
    REPEAT(cusolverRfResetValues(n, n * N, self.offsets, self.columns, self.a, self.order, self.order, self.handle) ||
           cudaDeviceSynchronize() || cusolverRfRefactor(self.handle));
    CHECK(cusolverRfSolve(self.handle, self.order, self.order, 1, self.room, n, self.x, n));
    CHECK(cudaDeviceSynchronize());
    const std::vector<double> found = on_host(self.x, n);
    compare("solver_refactor", std::vector<float>(found.begin(), found.end()), std::vector<float>(n, 0.5f), 1e-6f);
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

// Softmax over vectors of ones.
static void dnn()
{
    static struct {
        void *desc;
        float *x, *y;
    } both[2];
    auto &self = both[is_wide];
    const int vectors = block_count() * block_count();
    const float one = 1, zero = 0;
    if (!self.desc) {
        CHECK(cudnn.find<int(void *, cudaStream_t)>("cudnnSetStream")(cudnn.handle, stream));
        CHECK(cudnn.find<int(void **)>("cudnnCreateTensorDescriptor")(&self.desc));
        CHECK(cudnn.find<int(void *, int, int, int, int, int, int)>("cudnnSetTensor4dDescriptor")(
            self.desc, 0 /* NCHW */, 0 /* float */, vectors, N, 1, 1));
        self.x = on_device(std::vector<float>(vectors * N, 1)), self.y = on_device(std::vector<float>(vectors * N, 1));
    }
    auto softmax =
        cudnn.find<int(void *, int, int, const float *, void *, const float *, const float *, void *, float *)>(
            "cudnnSoftmaxForward");
    REPEAT(
        softmax(cudnn.handle, 1 /* accurate */, 1 /* channels */, &one, self.desc, self.x, &zero, self.desc, self.y));
    compare("dnn", on_host(self.y, vectors * N), std::vector<float>(vectors * N, 1.0f / N), 1e-6f);
}

static sparse_lt_room sparse_lt_handle;

static bool sparse_lt_is_there()
{
    static int answer = -1;
    if (answer < 0)
        answer = is_had("cuSPARSELt", sparse_lt_is_found() ? cusparseLtInit(&sparse_lt_handle) : NO_FILE,
                        SPARSE_LT_NOT_SUPPORTED);
    return answer;
}

struct structured {
    sparse_lt_room a, b, d, product, selection, plan;
    void *compressed, *workspace;
    __half *other, *result;
    std::vector<float> wanted; // of the first rows
};

// Of each four numbers of a row of the first matrix two are zeros. A half has the sums of such small numbers exactly.
static float first(int i, int k)
{
    return k % 4 < 2 ? (float)((i + k) % 3) : 0;
}

static float second(int j, int k)
{
    return (float)(j * k % 3 - 1);
}

static __half *halves_on_device(float (*number)(int, int), int side)
{
    std::vector<__half> host;
    for (int i = 0; i < side * side; i++)
        host.push_back(__float2half(number(i / side, i % side)));
    return on_device(host);
}

static void begin_structured(struct structured &self, int side)
{
    const sparse_lt_room *handle = &sparse_lt_handle;
    __half *a = halves_on_device(first, side);
    size_t bytes, buffer_bytes, workspace_bytes;
    void *buffer;
    self.other = halves_on_device(second, side), self.result = halves_on_device(second, side);
    CHECK(
        cusparseLtStructuredDescriptorInit(handle, &self.a, side, side, side, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW, 0));
    CHECK(cusparseLtDenseDescriptorInit(handle, &self.b, side, side, side, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW));
    CHECK(cusparseLtDenseDescriptorInit(handle, &self.d, side, side, side, 16, CUDA_R_16F, SPARSE_LT_ORDER_ROW));
    CHECK(cusparseLtMatmulDescriptorInit(handle, &self.product, 0, 1, &self.a, &self.b, &self.d, &self.d,
                                         SPARSE_LT_COMPUTE_32F));
    CHECK(cusparseLtMatmulAlgSelectionInit(handle, &self.selection, &self.product, 0));
    CHECK(cusparseLtMatmulPlanInit(handle, &self.plan, &self.product, &self.selection));
    CHECK(cusparseLtSpMMACompressedSize(handle, &self.plan, &bytes, &buffer_bytes));
    CHECK(cusparseLtMatmulGetWorkspace(handle, &self.plan, &workspace_bytes));
    CHECK(cudaMalloc(&self.compressed, bytes));
    CHECK(cudaMalloc(&self.workspace, workspace_bytes + 16));
    CHECK(cudaMalloc(&buffer, buffer_bytes + 16));
    CHECK(cusparseLtSpMMACompress(handle, &self.plan, a, self.compressed, buffer, stream));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaFree(a));
    CHECK(cudaFree(buffer));
}

static void sparse_lt()
{
    static struct structured both[2];
    struct structured &self = both[is_wide];
    const int n = side();
    const float one = 1, zero = 0;
    if (self.wanted.empty()) {
        begin_structured(self, n);
        for (int i = 0; i < N * n; i++) {
            self.wanted.push_back(0);
            for (int k = 0; k < n; k++)
                self.wanted[i] += first(i / n, k) * second(i % n, k);
        }
    }
    CHECK(cudaMemsetAsync(self.result, 0x11, n * n * sizeof *self.result, stream));
    for (int i = 0; i < (is_wide ? SPARSE_LT_TIMES : 1); i++) // the GPU is at it for longer than the host compares
        REPEAT(cusparseLtMatmul(&sparse_lt_handle, &self.plan, &one, self.compressed, self.other, &zero, self.result,
                                self.result, self.workspace, &stream, 1));
    std::vector<float> found;
    for (__half number : on_host(self.result, N * n))
        found.push_back(__half2float(number));
    compare("sparse_lt", found, self.wanted, 0);
}

static ncclComm_t communicator;

static bool nccl_is_there()
{
    static int answer = -1;
    const int device = 0;
    if (answer < 0)
        answer = is_had("NCCL", nccl_is_found() ? (int)ncclCommInitAll(&communicator, 1, &device) : NO_FILE,
                        ncclInvalidUsage);
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
             {"loop", loop, false, NULL},
             {"solver_sparse", solver_sparse, false, NULL},
             {"solver_refactor", solver_refactor, false, NULL},
             {"dnn", dnn, false, dnn_is_there},
             {"sparse_lt", sparse_lt, false, sparse_lt_is_there},
             {"nccl", nccl, false, nccl_is_there}};

static bool is_there(const kind &one)
{
    return !one.is_there || one.is_there();
}

static int busy(const char *name, int ms, bool with_wide)
{
    int count = 0;
    is_wide = with_wide;
    for (const kind &one : kinds) {
        if (strcmp(one.name, name) || !is_there(one))
            continue;
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(ms); /* it has been loaded */
        repeat = 16;
        for (; std::chrono::steady_clock::now() < end; count++)
            one.round();
        repeat = 1;
    }
    is_wide = false;
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
            printf("busy %d\n", busy(name, number, false));
        else if (sscanf(line, "wide %15s %d", name, &number) == 2)
            printf("busy %d\n", busy(name, number, true));
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
