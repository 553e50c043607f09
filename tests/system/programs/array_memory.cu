// Takes CUDA arrays of 16 MiB until it has so many MiB, gives them back, and does so once more: "ok", or the error's
// name. usage: array_memory MIB
#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static cudaError_t take(int mib)
{
    std::vector<cudaArray_t> arrays;
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float4>();
    cudaError_t error = cudaSuccess;
    for (int have = 0; have < mib && error == cudaSuccess; have += 16) {
        cudaArray_t array;
        error = cudaMallocArray(&array, &format, 1024, 1024);
        if (error == cudaSuccess)
            arrays.push_back(array);
    }
    for (cudaArray_t array : arrays)
        if (cudaFreeArray(array) != cudaSuccess)
            return cudaErrorUnknown;
    return error;
}

int main(int argc, char **argv)
{
    const int mib = argc > 1 ? atoi(argv[1]) : 16;
    cudaError_t error = take(mib);
    if (error == cudaSuccess)
        error = take(mib);
    puts(error == cudaSuccess ? "ok" : cudaGetErrorName(error));
    return 0;
}
