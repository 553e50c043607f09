// Loads a library of COUNT kernels, each of which stores its own number, whose names have NAME_BYTES characters each;
// checks that all are found, and launches some from the beginning, the middle and the end. Prints "COUNT kernels", or
// "refused CODE" where the library was not loaded. usage: many_kernels COUNT NAME_BYTES
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t name_bytes;

static void make_name(char *name, unsigned number)
{
    int written = sprintf(name, "kernel_%07u", number);
    memset(name + written, 'x', name_bytes > (size_t)written ? name_bytes - written : 0);
    name[name_bytes > (size_t)written ? name_bytes : written] = 0;
}

static char *make_image(unsigned count)
{
    char *image = (char *)malloc(256 + (size_t)count * (name_bytes + 256));
    char *name = (char *)malloc(name_bytes + 64);
    size_t end;

    if (!image || !name)
        exit(2);
    end = (size_t)sprintf(image, ".version 7.0\n.target sm_75\n.address_size 64\n");
    for (unsigned i = 0; i < count; i++) {
        make_name(name, i);
        end += (size_t)sprintf(image + end,
                               ".visible .entry %s(.param .u64 p)\n{\n.reg .u64 %%a;\nld.param.u64 %%a, [p];\n"
                               "st.global.u32 [%%a], %u;\nret;\n}\n",
                               name, i);
    }
    free(name);
    return image;
}

static int is_kernel_right(cudaLibrary_t library, unsigned number, unsigned *device)
{
    unsigned value = 0xdead;
    char *name = (char *)malloc(name_bytes + 64);
    void *args[] = {&device};
    cudaKernel_t kernel;
    cudaError_t error;

    make_name(name, number);
    error = cudaLibraryGetKernel(&kernel, library, name);
    free(name);
    if (!error)
        error = cudaLaunchKernel((const void *)kernel, dim3(1), dim3(1), args, 0, 0);
    if (!error)
        error = cudaMemcpy(&value, device, sizeof(value), cudaMemcpyDeviceToHost);
    if (error || value != number)
        fprintf(stderr, "kernel %u: error %d, value %u\n", number, (int)error, value);
    return !error && value == number;
}

static int compare(const void *left, const void *right)
{
    cudaKernel_t l = *(const cudaKernel_t *)left, r = *(const cudaKernel_t *)right;
    return l < r ? -1 : l > r;
}

int main(int argc, char **argv)
{
    unsigned count = argc == 3 ? (unsigned)atoi(argv[1]) : 0, found = 0;
    unsigned *device;
    cudaLibrary_t library;
    cudaKernel_t *kernels;

    name_bytes = argc == 3 ? (size_t)atoi(argv[2]) : 0;
    if (!count || cudaMalloc(&device, sizeof(*device)))
        return 2;
    cudaError_t error = cudaLibraryLoadData(&library, make_image(count), NULL, NULL, 0, NULL, NULL, 0);
    if (error) {
        printf("refused %d\n", (int)error);
        return cudaDeviceSynchronize() != cudaSuccess; /* that is no reason not to go on */
    }
    kernels = (cudaKernel_t *)calloc(count, sizeof(*kernels));
    if (cudaLibraryGetKernelCount(&found, library) || found != count ||
        cudaLibraryEnumerateKernels(kernels, count, library))
        return 3;
    qsort(kernels, count, sizeof(*kernels), compare);
    for (unsigned i = 1; i < count; i++)
        if (kernels[i] == kernels[i - 1])
            return 4;
    for (unsigned step = 0; step <= 16; step++)
        if (!is_kernel_right(library, (unsigned)((unsigned long long)(count - 1) * step / 16), device))
            return 5;
    if (cudaLibraryUnload(library) || cudaDeviceSynchronize())
        return 6;
    printf("%u kernels\n", found);
    return 0;
}
