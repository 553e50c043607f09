// Fits a linear map by gradient descent through cuBLAS, as told: what it has come to depends on every step before.
//
//   steps N   N steps: "steps LOSS", the bits of the loss as a number
//   end       also the end of input: exit status 0
//
// The first line is "ready". An error of cuBLAS or CUDA is "error NAME" and exit status 7.
// nvcc: -lcublas
#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

enum { SAMPLES = 96, INPUTS = 24, OUTPUTS = 16 };

static void fail(const char *name)
{
    printf("error %s\n", name);
    fflush(stdout);
    _Exit(7);
}

static void check(cudaError_t error)
{
    if (error)
        fail(cudaGetErrorName(error));
}

static void check(cublasStatus_t status)
{
    if (status)
        fail(cublasGetStatusName(status));
}

static float *random_on_device(int count, unsigned seed)
{
    std::vector<float> host(count);
    float *device;
    for (float &one : host) {
        seed = seed * 1664525u + 1013904223u;
        one = (int)(seed >> 16) / 32768.0f - 1;
    }
    check(cudaMalloc(&device, count * sizeof(float)));
    check(cudaMemcpy(device, host.data(), count * sizeof(float), cudaMemcpyHostToDevice));
    return device;
}

int main()
{
    char line[64];
    cublasHandle_t handle;
    cudaStream_t stream;
    check(cublasCreate(&handle));
    check(cudaStreamCreate(&stream));
    check(cublasSetStream(handle, stream));
    float *x = random_on_device(INPUTS * SAMPLES, 1), *y = random_on_device(OUTPUTS * SAMPLES, 2);
    float *weights = random_on_device(OUTPUTS * INPUTS, 3), *rest;
    check(cudaMalloc(&rest, OUTPUTS * SAMPLES * sizeof(float)));
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) && strncmp(line, "end", 3)) {
        const float one = 1, minus_one = -1, rate = -0.01f / SAMPLES;
        float loss = 0;
        for (int step = atoi(line + 6); step > 0; step--) {
            // rest = weights x - y; weights -= rate rest x'
            check(cudaMemcpyAsync(rest, y, OUTPUTS * SAMPLES * sizeof(float), cudaMemcpyDeviceToDevice, stream));
            check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, OUTPUTS, SAMPLES, INPUTS, &one, weights, OUTPUTS, x, INPUTS,
                              &minus_one, rest, OUTPUTS));
            check(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_T, OUTPUTS, INPUTS, SAMPLES, &rate, rest, OUTPUTS, x, INPUTS, &one,
                              weights, OUTPUTS));
            if (step == 1)
                check(cublasSdot(handle, OUTPUTS * SAMPLES, rest, 1, rest, 1, &loss));
        }
        unsigned bits;
        memcpy(&bits, &loss, sizeof bits);
        printf("steps %u\n", bits);
        fflush(stdout);
    }
    check(cublasDestroy(handle));
    return 0;
}
