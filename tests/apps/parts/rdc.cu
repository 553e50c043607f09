// The second translation unit of module_rdc.cu.
__device__ int shared_counter = 5;

__device__ int twice_plus_counter(int x)
{
    return 2 * x + shared_counter;
}

extern __device__ int defined_in_main(int x);

__global__ void through_both(int *out, int x)
{
    out[0] = defined_in_main(x);
}
