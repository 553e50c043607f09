// Calls of NVIDIA's libraries in bodies of conditional nodes: captured into a loop, a choice and a switch, beside
// kernels, on two branches, and in a child graph; with the handle's settings of then, launched again with other
// contents, and updated. Numbers are whole and small, so that every sum is exact.
// nvcc: -lcublas -lcublasLt -lcufft -lcusparse
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cufft.h>
#include <cusparse.h>
#include <stdlib.h>
#include <string.h>
#include "conditional.h"

enum { N = 24, SIDE_BYTES = N * N * sizeof(float), WORKSPACE_BYTES = 8 << 20, POINTS = 8, ROUNDS = 5 };

#define CHECK_STATUS(call)                                                                                             \
    do {                                                                                                               \
        int got_ = (int)(call);                                                                                        \
        if (got_)                                                                                                      \
            fail_at(__FILE__, __LINE__, #call, " got %d", got_);                                                       \
    } while (0)

static cudaStream_t stream, side;
static float *a, *b, *sum; /* square matrices of the device, by columns */

/* A number of a matrix's, in launch `launch`. */
static float number_of(int matrix, int launch, int row, int column)
{
    return (float)((row * (3 + matrix) + column * (2 + launch) + launch) % 5 - 2);
}

static void fill_matrices(int launch)
{
    static float host[2][N * N];
    for (int matrix = 0; matrix < 2; matrix++)
        for (int i = 0; i < N * N; i++)
            host[matrix][i] = number_of(matrix, launch, i % N, i / N);
    CHECK(cudaMemcpy(a, host[0], SIDE_BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(b, host[1], SIDE_BYTES, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(sum, 0, SIDE_BYTES));
}

static float product_at(int launch, int row, int column)
{
    float result = 0;
    for (int k = 0; k < N; k++)
        result += number_of(0, launch, row, k) * number_of(1, launch, k, column);
    return result;
}

static void expect_product(const float *device, int launch, float factor, const char *what)
{
    static float host[N * N];
    CHECK(cudaMemcpy(host, device, SIDE_BYTES, cudaMemcpyDeviceToHost));
    for (int i = 0; i < N * N; i++)
        EXPECT(host[i] == factor * product_at(launch, i % N, i / N), "%s: %g, not %g, at %d", what, host[i],
               factor * product_at(launch, i % N, i / N), i);
}

/* A graph that `stream` captures, whose condition begins as `value`; capturing goes on behind its node, which has these
 * bodies. */
static cudaGraph_t *begin(cudaGraphConditionalNodeType type, unsigned size, unsigned value, int word,
                          cudaGraphConditionalHandle *ret_handle)
{
    cudaStreamCaptureStatus status;
    const cudaGraphNode_t *ends;
    const cudaGraphEdgeData *edges;
    cudaGraphNode_t node;
    cudaGraph_t graph;
    size_t count;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, NULL));
    *ret_handle = new_handle(graph, value, cudaGraphCondAssignDefault);
    if (word >= 0)
        decide<<<1, 1, 0, stream>>>(*ret_handle, words + word);
    CHECK(cudaStreamGetCaptureInfo(stream, &status, NULL, NULL, &ends, &edges, &count));
    cudaGraph_t *bodies = conditional_node(graph, count ? ends[0] : NULL, *ret_handle, type, size, &node);
    CHECK(cudaStreamUpdateCaptureDependencies(stream, &node, NULL, 1, cudaStreamSetCaptureDependencies));
    return bodies;
}

static void begin_body(cudaGraph_t body)
{
    CHECK(cudaStreamBeginCaptureToGraph(side, body, NULL, NULL, 0, cudaStreamCaptureModeRelaxed));
}

static void end_body(cudaGraph_t body)
{
    cudaGraph_t same;
    CHECK(cudaStreamEndCapture(side, &same));
    EXPECT(same == body, "a capture into a body is its graph");
}

static cudaGraph_t end_graph(cudaGraphExec_t *ret_exec)
{
    cudaGraph_t graph;
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(ret_exec, graph, 0));
    return graph;
}

/* A handle whose calls go into a stream, and work in memory of the program's: what cuBLAS would allocate itself would
 * be nodes that bodies cannot have. */
static cublasHandle_t blas_handle(cudaStream_t into)
{
    cublasHandle_t handle;
    void *workspace;
    CHECK(cudaMalloc(&workspace, WORKSPACE_BYTES));
    CHECK_STATUS(cublasCreate(&handle));
    CHECK_STATUS(cublasSetStream(handle, into));
    CHECK_STATUS(cublasSetWorkspace(handle, workspace, WORKSPACE_BYTES));
    return handle;
}

static void multiply(cublasHandle_t handle, float alpha, float beta, float *out)
{
    CHECK_STATUS(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, a, N, b, N, &beta, out, N));
}

static void set_word(int place, unsigned value)
{
    CHECK(cudaMemcpy(words + place, &value, sizeof value, cudaMemcpyHostToDevice));
}

/* A loop that adds `factor` products in each round: in one call, or in two, on branches that meet before. */
static cudaGraph_t loop_graph(cublasHandle_t handle, float factor, cudaGraphExec_t *ret_exec)
{
    cudaGraphConditionalHandle condition;
    cudaGraph_t *bodies = begin(cudaGraphCondTypeWhile, 1, 1, -1, &condition);
    begin_body(bodies[0]);
    multiply(handle, factor, 1, sum);
    count_down<<<1, 1, 0, side>>>(words, condition);
    end_body(bodies[0]);
    return end_graph(ret_exec);
}

static void loops(cublasHandle_t handle)
{
    cudaGraphExecUpdateResultInfo info;
    cudaGraphExec_t exec, other_exec;
    cudaGraph_t graph = loop_graph(handle, 2, &exec), other = loop_graph(handle, 3, &other_exec);
    for (int launch = 0; launch < 4; launch++) {
        fill_matrices(launch);
        set_word(0, ROUNDS + launch);
        CHECK(cudaGraphLaunch(exec, launch % 2 ? side : stream));
        CHECK(cudaDeviceSynchronize());
        expect_product(sum, launch, 2 * (ROUNDS + launch), "a loop");
    }
    CHECK(cudaGraphExecUpdate(exec, other, &info));
    EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
    fill_matrices(7);
    set_word(0, 2);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaDeviceSynchronize());
    expect_product(sum, 7, 6, "a loop that was updated");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphExecDestroy(other_exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaGraphDestroy(other));
}

/* Word 1 chooses a product of cuBLAS's, or one of cuBLASLt's; both with a kernel before and behind. */
static void choices(cublasHandle_t handle)
{
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t layout;
    cudaGraphConditionalHandle condition;
    cudaGraphExec_t exec;
    float alpha = 3, beta = 0;
    CHECK_STATUS(cublasLtCreate(&lt));
    CHECK_STATUS(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK_STATUS(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, N, N, N));
    cudaGraph_t *bodies = begin(cudaGraphCondTypeIf, 2, 0, 1, &condition);
    begin_body(bodies[0]);
    add<<<1, 1, 0, side>>>(words + 2, 1);
    multiply(handle, 5, 0, sum);
    add<<<1, 1, 0, side>>>(words + 2, 10);
    end_body(bodies[0]);
    begin_body(bodies[1]);
    add<<<1, 1, 0, side>>>(words + 2, 100);
    CHECK_STATUS(cublasLtMatmul(lt, description, &alpha, a, layout, b, layout, &beta, sum, layout, sum, layout, NULL,
                                NULL, 0, side));
    add<<<1, 1, 0, side>>>(words + 2, 1000);
    end_body(bodies[1]);
    cudaGraph_t graph = end_graph(&exec);
    alpha = 77; /* was taken when it was captured */
    for (unsigned is_first = 0; is_first < 2; is_first++) {
        const unsigned in[WORDS] = {0, is_first}, want[WORDS] = {0, is_first, is_first ? 11u : 1100u};
        fill_matrices(20 + is_first);
        expect_words(exec, stream, in, want);
        expect_product(sum, 20 + is_first, is_first ? 5 : 3, "a choice");
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK_STATUS(cublasLtMatrixLayoutDestroy(layout));
    CHECK_STATUS(cublasLtMatmulDescDestroy(description));
    CHECK_STATUS(cublasLtDestroy(lt));
}

/* Two products in one body, on branches of two streams, each by a handle of its own. */
static void branches(cublasHandle_t handle)
{
    cudaGraphConditionalHandle condition;
    cudaGraphExec_t exec;
    cudaStream_t third;
    cudaEvent_t fork, join;
    float *other;
    CHECK(cudaMalloc((void **)&other, SIDE_BYTES));
    CHECK(cudaStreamCreateWithFlags(&third, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    cublasHandle_t second = blas_handle(third);
    cudaGraph_t *bodies = begin(cudaGraphCondTypeIf, 1, 1, -1, &condition);
    begin_body(bodies[0]);
    add<<<1, 1, 0, side>>>(words + 3, 1);
    CHECK(cudaEventRecord(fork, side));
    CHECK(cudaStreamWaitEvent(third, fork, 0));
    multiply(handle, 7, 0, sum);
    multiply(second, 9, 0, other);
    CHECK(cudaEventRecord(join, third));
    CHECK(cudaStreamWaitEvent(side, join, 0));
    add<<<1, 1, 0, side>>>(words + 3, 1);
    end_body(bodies[0]);
    cudaGraph_t graph = end_graph(&exec);
    for (int launch = 30; launch < 32; launch++) {
        const unsigned in[WORDS] = {}, want[WORDS] = {0, 0, 0, 2};
        fill_matrices(launch);
        expect_words(exec, stream, in, want);
        expect_product(sum, launch, 7, "a branch");
        expect_product(other, launch, 9, "the other branch");
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK_STATUS(cublasDestroy(second));
    CHECK(cudaStreamDestroy(third));
    CHECK(cudaFree(other));
}

/* What was captured by itself is a child graph in a body. */
static void child_graph(cublasHandle_t handle)
{
    cudaGraph_t child, graph, *bodies;
    cudaGraphExec_t exec;
    cudaGraphNode_t node;
    CHECK(cudaStreamBeginCapture(side, cudaStreamCaptureModeRelaxed));
    multiply(handle, 4, 1, sum);
    CHECK(cudaStreamEndCapture(side, &child));
    CHECK(cudaGraphCreate(&graph, 0));
    cudaGraphConditionalHandle condition = new_handle(graph, 1, cudaGraphCondAssignDefault);
    bodies = conditional_node(graph, NULL, condition, cudaGraphCondTypeWhile, 1, NULL);
    CHECK(cudaGraphAddChildGraphNode(&node, bodies[0], NULL, 0, child));
    count_down_node(bodies[0], node, 0, condition);
    CHECK(cudaGraphDestroy(child));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    fill_matrices(40);
    set_word(0, 3);
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaDeviceSynchronize());
    expect_product(sum, 40, 12, "a child graph");
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
}

/* A transform of POINTS points, where only number 1 is not 0: out[u] = w ^ u with w = e ^ (-2 pi i / 8). Its square of
 * the absolute value is 1 everywhere. */
static void expect_transform(const cufftComplex *device)
{
    cufftComplex host[POINTS];
    CHECK(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
    const float half = 0.70710678f, real[POINTS] = {1, half, 0, -half, -1, -half, 0, half};
    for (int u = 0; u < POINTS; u++) {
        const float imaginary = -real[(u + POINTS - 2) % POINTS]; /* sine is cosine, a quarter later */
        EXPECT(fabsf(host[u].x - real[u]) < 1e-5f && fabsf(host[u].y - imaginary) < 1e-5f, "%g + %gi at %d", host[u].x,
               host[u].y, u);
    }
}

/* Word 1 switches between a transform, a product with a sparse matrix, and nothing. */
static void switches(void)
{
    static const int offsets[] = {0, 2, 3, 5}, columns[] = {0, 2, 1, 0, 2};
    static const float values[] = {1, 2, 3, 4, 5}, vector[] = {1, 10, 100}, wanted[] = {201, 30, 504};
    cudaGraphConditionalHandle condition;
    cudaGraphExec_t exec;
    cufftHandle plan;
    cusparseHandle_t sparse;
    cusparseSpMatDescr_t matrix;
    cusparseDnVecDescr_t in_vector, out_vector;
    cufftComplex one[POINTS] = {}, *in, *out;
    void *device_offsets, *device_columns, *device_values, *device_in, *device_out, *buffer;
    float alpha = 1, beta = 0, got[3];
    size_t bytes = 0;
    one[1].x = 1;
    CHECK(cudaMalloc((void **)&in, sizeof one));
    CHECK(cudaMalloc((void **)&out, sizeof one));
    CHECK(cudaMemcpy(in, one, sizeof one, cudaMemcpyHostToDevice));
    CHECK_STATUS(cufftPlan1d(&plan, POINTS, CUFFT_C2C, 1));
    CHECK_STATUS(cufftSetStream(plan, side));
    CHECK(cudaMalloc(&device_offsets, sizeof offsets));
    CHECK(cudaMalloc(&device_columns, sizeof columns));
    CHECK(cudaMalloc(&device_values, sizeof values));
    CHECK(cudaMalloc(&device_in, sizeof vector));
    CHECK(cudaMalloc(&device_out, sizeof vector));
    CHECK(cudaMemcpy(device_offsets, offsets, sizeof offsets, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_columns, columns, sizeof columns, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_values, values, sizeof values, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device_in, vector, sizeof vector, cudaMemcpyHostToDevice));
    CHECK_STATUS(cusparseCreate(&sparse));
    CHECK_STATUS(cusparseSetStream(sparse, side));
    CHECK_STATUS(cusparseCreateCsr(&matrix, 3, 3, 5, device_offsets, device_columns, device_values, CUSPARSE_INDEX_32I,
                                   CUSPARSE_INDEX_32I, CUSPARSE_INDEX_BASE_ZERO, CUDA_R_32F));
    CHECK_STATUS(cusparseCreateDnVec(&in_vector, 3, device_in, CUDA_R_32F));
    CHECK_STATUS(cusparseCreateDnVec(&out_vector, 3, device_out, CUDA_R_32F));
    CHECK_STATUS(cusparseSpMV_bufferSize(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, matrix, in_vector, &beta,
                                         out_vector, CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, &bytes));
    CHECK(cudaMalloc(&buffer, bytes + 16));
    cudaGraph_t *bodies = begin(cudaGraphCondTypeSwitch, 2, 0, 1, &condition);
    begin_body(bodies[0]);
    CHECK_STATUS(cufftExecC2C(plan, in, out, CUFFT_FORWARD));
    end_body(bodies[0]);
    begin_body(bodies[1]);
    CHECK_STATUS(cusparseSpMV(sparse, CUSPARSE_OPERATION_NON_TRANSPOSE, &alpha, matrix, in_vector, &beta, out_vector,
                              CUDA_R_32F, CUSPARSE_SPMV_ALG_DEFAULT, buffer));
    end_body(bodies[1]);
    cudaGraph_t graph = end_graph(&exec);
    for (unsigned value = 0; value < 3; value++) {
        const float none[] = {-1, -1, -1}, *want = value == 1 ? wanted : none;
        CHECK(cudaMemset(out, 0, sizeof one));
        CHECK(cudaMemcpy(device_out, none, sizeof none, cudaMemcpyHostToDevice));
        set_word(1, value);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaDeviceSynchronize());
        if (value == 0)
            expect_transform(out);
        CHECK(cudaMemcpy(got, device_out, sizeof got, cudaMemcpyDeviceToHost));
        EXPECT(!memcmp(got, want, sizeof got), "%g %g %g with %u", got[0], got[1], got[2], value);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    CHECK_STATUS(cusparseDestroyDnVec(in_vector));
    CHECK_STATUS(cusparseDestroyDnVec(out_vector));
    CHECK_STATUS(cusparseDestroySpMat(matrix));
    CHECK_STATUS(cusparseDestroy(sparse));
    CHECK_STATUS(cufftDestroy(plan));
}

/* The handle has no workspace of the program's. Natively it depends on what cuBLAS allocates for itself whether a body
 * can be made of that; forwarded, the client gives it memory. And a result in the host's memory cannot be captured. */
static void only_forwarded(void)
{
    cublasHandle_t handle;
    cudaGraphConditionalHandle condition;
    cudaGraphExec_t exec;
    cudaGraph_t same;
    float norm;
    CHECK_STATUS(cublasCreate(&handle));
    CHECK_STATUS(cublasSetStream(handle, side));
    cudaGraph_t graph = loop_graph(handle, 6, &exec);
    CHECK_STATUS(cublasSetWorkspace(handle, sum, 0)); /* of now, not of then */
    for (int launch = 50; launch < 52; launch++) {
        fill_matrices(launch);
        set_word(0, 2);
        CHECK(cudaGraphLaunch(exec, stream));
        CHECK(cudaDeviceSynchronize());
        expect_product(sum, launch, 12, "a handle without a workspace");
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    cudaGraph_t *bodies = begin(cudaGraphCondTypeIf, 1, 1, -1, &condition);
    begin_body(bodies[0]);
    EXPECT(cublasSnrm2(handle, N, a, 1, &norm) != CUBLAS_STATUS_SUCCESS);
    EXPECT_ERR(cudaStreamEndCapture(side, &same), cudaErrorStreamCaptureInvalidated);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphDestroy(graph));
    /* An object that has gone before the graph is made. */
    bodies = begin(cudaGraphCondTypeIf, 1, 1, -1, &condition);
    begin_body(bodies[0]);
    multiply(handle, 1, 0, sum);
    end_body(bodies[0]);
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK_STATUS(cublasDestroy(handle));
    EXPECT_ERR(cudaGraphInstantiate(&exec, graph, 0), cudaErrorInvalidResourceHandle);
    CHECK(cudaGraphDestroy(graph));
}

int main(void)
{
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&words, WORDS * sizeof *words));
    CHECK(cudaMalloc((void **)&a, SIDE_BYTES));
    CHECK(cudaMalloc((void **)&b, SIDE_BYTES));
    CHECK(cudaMalloc((void **)&sum, SIDE_BYTES));
    cublasHandle_t handle = blas_handle(side);
    loops(handle);
    choices(handle);
    branches(handle);
    child_graph(handle);
    switches();
    CHECK_STATUS(cublasDestroy(handle));
    if (getenv("FLYT_TEST_FORWARDED"))
        only_forwarded();
    CHECK(cudaDeviceSynchronize());
    printf("ok\n");
    return 0;
}
