// The kernels and the variable of launch_stub.c, as a fat binary.
extern "C" __device__ int offset = 3;

extern "C" __global__ void add_offset(int *values, int count, int factor)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        values[i] = values[i] * factor + offset;
}
