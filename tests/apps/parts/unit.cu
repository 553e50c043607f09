// The second translation unit of module_units.cu: its own variable and kernel have the same names as there.
static __device__ int state = 200;
static __global__ void bump(int *out)
{
    *out = ++state;
}

__device__ int shared_by_name = 7;

int unit_bump(int *device_out)
{
    int value = -1;

    bump<<<1, 1>>>(device_out);
    return cudaMemcpy(&value, device_out, sizeof(value), cudaMemcpyDeviceToHost) == cudaSuccess ? value : -1;
}
