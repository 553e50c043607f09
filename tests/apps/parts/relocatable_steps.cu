// A unit of module_relocatable: functions that are called directly and by address, and a kernel of its own.
#include "relocatable.h"

static __device__ int own = 2000;
static __device__ __noinline__ int helper(int x)
{
    return 2 * x + own;
}

__device__ int twice(int x)
{
    return 2 * x;
}

__device__ int plus_counter(int x)
{
    return x + counter;
}

__device__ int from_steps(int x)
{
    own += 10;
    return helper(x) + times<3>(0);
}

__global__ void scale(float *values)
{
    values[threadIdx.x] *= factors[threadIdx.x % 4];
}
