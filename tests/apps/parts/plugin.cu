// A library with kernels of its own, opened late by module_dlopen.cu.
__device__ int calls = 0;

static __global__ void multiply(int *values, int factor)
{
    values[threadIdx.x] *= factor;
    if (threadIdx.x == 0)
        calls++;
}

/* Multiplies 32 ints on the device and returns how often this has been done since the library was loaded. */
extern "C" int plugin_multiply(int *device_values, int factor)
{
    int count = -1;

    multiply<<<1, 32>>>(device_values, factor);
    if (cudaGetLastError() != cudaSuccess || cudaMemcpyFromSymbol(&count, calls, sizeof(count)) != cudaSuccess)
        return -1;
    return count;
}
