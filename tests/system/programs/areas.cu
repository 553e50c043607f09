// Makes plans of cuFFT's whose work areas are large, as told, and transforms with them; and multiplies with cuBLAS.
//
//   plan N MIB   one plan of MIB MiB of complex numbers, in place of what plan N was: "plan STATUS FREE", the status of cuFFT and
//                how many bytes are free
//   use N        a transform, there and back, compared: "use STATUS"
//   drop N       the plan ends: "drop FREE"
//   blas N       N streams in turn, with one handle of cuBLAS's: "blas STATUS FREE"
//   unblas       the handle ends, and the streams: "unblas FREE"
//   end          also the end of input: exit status 0
//
// The first line is "ready". An error is "error NAME STATUS" and exit status 7.
// nvcc: -lcublas -lcufft
#include <cublas_v2.h>
#include <cufft.h>
#include <algorithm>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { PLANS = 8, MIB = 1 << 20 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        int status_ = (int)(call);                                                                                     \
        if (status_) {                                                                                                 \
            printf("error %s %d\n", #call, status_);                                                                   \
            fflush(stdout);                                                                                            \
            _Exit(7);                                                                                                  \
        }                                                                                                              \
    } while (0)

static cufftHandle plans[PLANS];
static int counts[PLANS]; // 0: there is no plan

static size_t free_bytes()
{
    size_t left, all;
    CHECK(cudaMemGetInfo(&left, &all));
    return left;
}

static void drop(int number)
{
    if (counts[number])
        CHECK(cufftDestroy(plans[number]));
    counts[number] = 0;
}

static int plan(int number, int mib)
{
    drop(number);
    int count = mib * (MIB / (int)sizeof(cufftComplex)), status = cufftPlan1d(&plans[number], count, CUFFT_C2C, 1);
    counts[number] = status ? 0 : count;
    return status;
}

static int use(int number)
{
    int count = counts[number];
    std::vector<cufftComplex> in(count), out(count);
    cufftComplex *data;
    for (int i = 0; i < count; i++)
        in[i] = {(float)(i % 7), (float)(i % 5)};
    CHECK(cudaMalloc(&data, count * sizeof *data));
    CHECK(cudaMemcpy(data, in.data(), count * sizeof *data, cudaMemcpyHostToDevice));
    int status = cufftExecC2C(plans[number], data, data, CUFFT_FORWARD);
    if (!status)
        status = cufftExecC2C(plans[number], data, data, CUFFT_INVERSE);
    CHECK(cudaMemcpy(out.data(), data, count * sizeof *data, cudaMemcpyDeviceToHost));
    CHECK(cudaFree(data));
    for (int i = 0; i < count && !status; i++)
        if (!(abs(out[i].x / count - in[i].x) < 1e-3f) || !(abs(out[i].y / count - in[i].y) < 1e-3f))
            status = 1000;
    return status;
}

static cublasHandle_t handle;
static std::vector<cudaStream_t> streams;

// Each stream's product of ones is so many twos.
static int blas(int count)
{
    enum { N = 16 };
    const float two = 2, zero = 0;
    float *a, *c, found[N * N];
    const std::vector<float> ones(N * N, 1);
    if (!handle)
        CHECK(cublasCreate(&handle));
    CHECK(cudaMalloc(&a, sizeof found));
    CHECK(cudaMalloc(&c, sizeof found));
    CHECK(cudaMemcpy(a, ones.data(), sizeof found, cudaMemcpyHostToDevice));
    int status = 0;
    for (int i = 0; i < count && !status; i++) {
        streams.resize(std::max(streams.size(), (size_t)i + 1));
        if (!streams[i])
            CHECK(cudaStreamCreate(&streams[i]));
        CHECK(cublasSetStream(handle, streams[i]));
        status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, N, N, N, &two, a, N, a, N, &zero, c, N);
        CHECK(cudaMemcpyAsync(found, c, sizeof found, cudaMemcpyDeviceToHost, streams[i]));
        CHECK(cudaStreamSynchronize(streams[i]));
        for (int k = 0; k < N * N && !status; k++)
            status = found[k] == 2 * N ? 0 : 1000;
    }
    CHECK(cudaFree(a));
    CHECK(cudaFree(c));
    return status;
}

static void unblas()
{
    CHECK(cublasDestroy(handle));
    handle = NULL;
    for (cudaStream_t one : streams)
        CHECK(cudaStreamDestroy(one));
    streams.clear();
}

int main()
{
    char line[64];
    int number, mib;
    CHECK(cudaFree(0));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        if (sscanf(line, "plan %d %d", &number, &mib) == 2 && (unsigned)number < PLANS) {
            int status = plan(number, mib);
            printf("plan %d %zu\n", status, free_bytes());
        } else if (sscanf(line, "use %d", &number) == 1 && (unsigned)number < PLANS) {
            printf("use %d\n", use(number));
        } else if (sscanf(line, "drop %d", &number) == 1 && (unsigned)number < PLANS) {
            drop(number);
            printf("drop %zu\n", free_bytes());
        } else if (sscanf(line, "blas %d", &number) == 1) {
            int status = blas(number);
            printf("blas %d %zu\n", status, free_bytes());
        } else if (!strncmp(line, "unblas", 6)) {
            unblas();
            printf("unblas %zu\n", free_bytes());
        }
        fflush(stdout);
    }
    return 0;
}
