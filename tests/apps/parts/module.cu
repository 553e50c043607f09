// What the tests of modules and libraries load: as PTX, as machine code and as a fat binary.
extern "C" {

__device__ int table[16] = {11, 22, 33};
__constant__ float factor = 1.5f;

__global__ void scale(float *values, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;

    if (i < count)
        values[i] = values[i] * factor + table[0];
}

__global__ void mixed(long long *out, char a, int b, double c, short d)
{
    extern __shared__ int s[];

    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    if (threadIdx.x == 0)
        *out = a + 10ll * b + 100ll * (long long)c + 1000ll * d + 1000000ll * s[blockDim.x - 1];
}

__global__ void count_up(int *p)
{
    atomicAdd(p, 1);
}
}
