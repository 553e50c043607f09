/*
 * Makes a context on a device and keeps it: how many may do so at once is what is counted. The driver API alone, from
 * the library that is named first: libcuda.so.1 on a GPU.
 *
 *     mps_contexts LIBRARY DEVICE    prints "context", and ends with its standard input, or "refused CODE"
 */
#include <unistd.h>

#include "tests/system/programs/driver_library.h"

static CUresult make_context(int number)
{
    CUcontext context;
    CUdevice device;
    CUresult result = LOAD(cuInit)(0);

    if (result == CUDA_SUCCESS)
        result = LOAD(cuDeviceGet)(&device, number);
    if (result == CUDA_SUCCESS)
        result = LOAD(cuDevicePrimaryCtxRetain)(&context, device);
    return result;
}

int main(int argc, char **argv)
{
    char byte;

    if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
        printf("usage: mps_contexts LIBRARY DEVICE: %s\n", argc == 3 ? dlerror() : "");
        return 2;
    }
    CUresult result = make_context(atoi(argv[2]));
    if (result != CUDA_SUCCESS) {
        printf("refused %d\n", (int)result);
        return 0;
    }
    printf("context\n");
    fflush(stdout);
    while (read(0, &byte, 1) == 1)
        continue;
    return 0;
}
