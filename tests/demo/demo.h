/* What the demonstration programs share. */
#pragma once
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        cudaError_t error_ = (call);                                                                                   \
        if (error_ != cudaSuccess) {                                                                                   \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error_));                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

static inline void print_device()
{
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("    runs on: %s (%d SMs, %.1f GiB)\n", properties.name, properties.multiProcessorCount,
           properties.totalGlobalMem / 1073741824.0);
}
