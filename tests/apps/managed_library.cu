// Managed memory in calls of a library: what the host has written is there, results come, also one that the call writes
// to the host's memory, which is managed, for a kernel behind it.
// nvcc: -lcublas
#include <cublas_v2.h>
#include "check.h"

#define CHECK_BLAS(call) EXPECT_EQ((call), CUBLAS_STATUS_SUCCESS)

__global__ void scale(double *values, size_t count, const double *factor)
{
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        values[i] *= *factor;
}

static double *alloc(size_t count)
{
    double *memory = NULL;

    CHECK(cudaMallocManaged((void **)&memory, count * sizeof(*memory)));
    return memory;
}

static void vectors(cublasHandle_t blas, size_t count)
{
    double *x = alloc(count), *y = alloc(count), *result = alloc(1), alpha = 3;

    for (int round = 1; round <= 3; round++) {
        double want = 0;
        for (size_t i = 0; i < count; i++) {
            x[i] = (double)(i % 7);
            y[i] = round;
            want += x[i] * (y[i] + alpha * x[i]);
        }
        CHECK_BLAS(cublasDaxpy(blas, (int)count, &alpha, x, 1, y, 1));
        CHECK_BLAS(cublasDdot(blas, (int)count, x, 1, y, 1, result)); /* waits */
        scale<<<2, 64>>>(x, count, result);
        CHECK_LAUNCH();
        CHECK(cudaDeviceSynchronize());
        EXPECT(*result == want, "%g, expected %g", *result, want);
        for (size_t i = 0; i < count; i += 101) {
            EXPECT(y[i] == round + alpha * (double)(i % 7), "y[%zu] is %g", i, y[i]);
            EXPECT(x[i] == (double)(i % 7) * want, "x[%zu] is %g", i, x[i]);
        }
    }
    CHECK(cudaFree(x));
    CHECK(cudaFree(y));
    CHECK(cudaFree(result));
}

int main(void)
{
    cublasHandle_t blas;

    CHECK_BLAS(cublasCreate(&blas));
    vectors(blas, 300);
    vectors(blas, 400000);
    CHECK_BLAS(cublasDestroy(blas));
    return 0;
}
