// cuBLAS in a graph: products that are captured beside kernels, with the handle's settings as they were then, and
// launched again with other contents; what waits for its result cannot be captured.
// nvcc: -lcublas
#include "check.h"

#include <cublas_v2.h>

enum { N = 48, BYTES = N * N * sizeof(float) };

#define CHECK_BLAS(call)                                                                                               \
    do {                                                                                                               \
        cublasStatus_t got_ = (call);                                                                                  \
        if (got_ != CUBLAS_STATUS_SUCCESS)                                                                             \
            fail_at(__FILE__, __LINE__, #call, " got %d", (int)got_);                                                  \
    } while (0)

__global__ void add_one(float *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        values[i] += 1;
}

/* out = 2 · a · b + 1, by columns. */
static float want(const float *a, const float *b, int row, int column)
{
    float sum = 0;
    for (int k = 0; k < N; k++)
        sum += a[k * N + row] * b[column * N + k];
    return 2 * sum + 1;
}

int main(void)
{
    static float a[N * N], b[N * N], out[N * N];
    float *device_a, *device_b, *device_out, alpha = 2, beta = 0, norm;
    cudaStream_t stream, other;
    cublasHandle_t handle;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECK(cudaMalloc((void **)&device_a, BYTES));
    CHECK(cudaMalloc((void **)&device_b, BYTES));
    CHECK(cudaMalloc((void **)&device_out, BYTES));
    CHECK_BLAS(cublasCreate(&handle));
    CHECK_BLAS(cublasSetStream(handle, stream));
    CHECK_BLAS(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, device_a, N, device_b, N, &beta, device_out, N));
    CHECK(cudaStreamSynchronize(stream));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK_BLAS(
        cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &alpha, device_a, N, device_b, N, &beta, device_out, N));
    add_one<<<(N * N + 255) / 256, 256, 0, stream>>>(device_out, N * N);
    CHECK(cudaStreamEndCapture(stream, &graph));
    size_t count = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &count));
    EXPECT(count >= 2, "%zu", count);
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    alpha = 77; /* was taken when it was captured */
    for (int n = 0; n < 4; n++) {
        cudaStream_t in = n % 2 ? other : stream;
        for (int i = 0; i < N * N; i++) {
            a[i] = (float)((i * 7 + n) % 5);
            b[i] = (float)((i * 3 + n) % 4);
        }
        CHECK(cudaMemcpyAsync(device_a, a, BYTES, cudaMemcpyHostToDevice, in));
        CHECK(cudaMemcpyAsync(device_b, b, BYTES, cudaMemcpyHostToDevice, in));
        CHECK(cudaGraphLaunch(exec, in));
        CHECK(cudaMemcpyAsync(out, device_out, BYTES, cudaMemcpyDeviceToHost, in));
        CHECK(cudaStreamSynchronize(in));
        for (int column = 0; column < N; column++)
            for (int row = 0; row < N; row++)
                EXPECT(out[column * N + row] == want(a, b, row, column), "%f at %d, %d", out[column * N + row], row,
                       column);
    }
    CHECK(cudaGraphExecDestroy(exec));
    CHECK(cudaGraphDestroy(graph));
    /* A result in the host's memory has to be waited for. */
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
    EXPECT(cublasSnrm2(handle, N, device_a, 1, &norm) != CUBLAS_STATUS_SUCCESS);
    EXPECT_ERR(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureInvalidated);
    CHECK_BLAS(cublasDestroy(handle));
    printf("ok\n");
    return 0;
}
