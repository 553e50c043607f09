/* What the programs for GPUs of compute capability 8.0 and more share: where they skip, and whole numbers to multiply.
 */
#ifndef TESTS_APPS_TENSOR_H
#define TESTS_APPS_TENSOR_H

#include "check.h"

/* Ends the program as skipped on a GPU that is older. */
static inline void want_capability_8(void)
{
    int major;

    CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    if (major < 8)
        SKIP("needs a GPU of compute capability 8.0");
}

/* count whole numbers between least and most, as T. */
template <typename T> static void fill_numbers(T *values, int count, int least, int most, uint32_t *seed)
{
    for (int i = 0; i < count; i++)
        values[i] = T((float)(least + (int)(next_random(seed) % (uint32_t)(most - least + 1))));
}

/* A copy of `count` values on the device. */
template <typename T> static T *on_device(const T *values, int count)
{
    T *device;

    CHECK(cudaMalloc(&device, count * sizeof(T)));
    CHECK(cudaMemcpy(device, values, count * sizeof(T), cudaMemcpyHostToDevice));
    return device;
}

/* d = a × b by its definition: a is m × k by rows, b is k × n by columns, as whole numbers in doubles. */
template <typename A, typename B> static void multiply_on_host(double *d, const A *a, const B *b, int m, int n, int k)
{
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            double sum = 0;

            for (int i = 0; i < k; i++)
                sum += (double)(float)a[row * k + i] * (double)(float)b[column * k + i];
            d[row * n + column] = sum;
        }
}

#endif
