// A host stub written by hand in C, in the way that compilers other than nvcc's newest do it: the fat binary,
// the kernel and the variable are registered by the __cuda* calls, and the launch goes through
// __cudaPushCallConfiguration, __cudaPopCallConfiguration and cudaLaunchKernel.
#include <cuda_runtime_api.h>

#include "check.h"
#include <fatbinary_section.h>

/* As declared for C++ in crt/host_runtime.h and crt/device_functions.h. */
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host_function, char *device_function, const char *device_name,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *block, dim3 *grid, int *warp_size);
void __cudaRegisterVar(void **handle, char *host_variable, char *device_address, const char *device_name, int external,
                       size_t bytes, int constant, int global);
unsigned __cudaPushCallConfiguration(struct dim3 grid, struct dim3 block, size_t shared_bytes,
                                     struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(struct dim3 *grid, struct dim3 *block, size_t *shared_bytes, void *stream);

/* Stands for the variable of the same name on the device. */
static int offset;

/* The stub: its address names the kernel, calling it launches the kernel with the pushed configuration. */
static void add_offset(int *values, int count, int factor)
{
    void *args[] = {&values, &count, &factor};
    struct dim3 grid = {0, 0, 0}, block = {0, 0, 0};
    size_t shared_bytes = 99;
    cudaStream_t stream = NULL;

    CHECK(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream));
    EXPECT(grid.x == 5 && block.x == 100 && shared_bytes == 64);
    CHECK(cudaLaunchKernel((const void *)add_offset, grid, block, args, shared_bytes, stream));
}

int main(int argc, char **argv)
{
    __fatBinC_Wrapper_t wrapper = {FATBINC_MAGIC, FATBINC_VERSION, NULL, NULL};
    struct dim3 grid = {5, 1, 1}, block = {100, 1, 1};
    int host[500], *device, changed = 1000;
    char *image = read_beside(argv[0], "stub.fatbin", NULL);
    cudaStream_t stream;
    void **handle;

    wrapper.data = (const unsigned long long *)image;
    handle = __cudaRegisterFatBinary(&wrapper);
    EXPECT(handle);
    __cudaRegisterFunction(handle, (const char *)add_offset, (char *)"add_offset", "add_offset", -1, NULL, NULL, NULL,
                           NULL, NULL);
    __cudaRegisterVar(handle, (char *)&offset, (char *)"offset", "offset", 0, sizeof(offset), 0, 0);
    __cudaRegisterFatBinaryEnd(handle);

    for (int i = 0; i < 500; i++)
        host[i] = i;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMalloc((void **)&device, sizeof(host)));
    CHECK(cudaMemcpy(device, host, sizeof(host), cudaMemcpyHostToDevice));
    for (int round = 0; round < 2; round++) {
        EXPECT_EQ(__cudaPushCallConfiguration(grid, block, 64, stream), 0);
        add_offset(device, 450, 2);
        CHECK(cudaStreamSynchronize(stream));
        CHECK(cudaMemcpyToSymbol(&offset, &changed, sizeof(changed), 0, cudaMemcpyHostToDevice));
    }
    CHECK(cudaMemcpy(host, device, sizeof(host), cudaMemcpyDeviceToHost));
    for (int i = 0; i < 500; i++)
        EXPECT_EQ(host[i], i < 450 ? (i * 2 + 3) * 2 + 1000 : i);
    CHECK(cudaFree(device));
    CHECK(cudaStreamDestroy(stream));
    __cudaUnregisterFatBinary(handle);
    free(image);
    return 0;
}
