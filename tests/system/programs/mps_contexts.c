/*
 * Makes a context on a device and keeps it: how many may do so at once is what is counted. The driver API alone, from
 * the library that is named first: libcuda.so.1 on a GPU.
 *
 *     mps_contexts LIBRARY DEVICE    prints "context", and ends with its standard input, or "refused CODE"
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Also what the toolkit's header gives another name by a macro. */
#define NAME(function)  NAME_(function)
#define NAME_(function) #function
#define LOAD(function)  ((__typeof__(&function))load(NAME(function)))

static void *library;

static void *load(const char *name)
{
    void *symbol = dlsym(library, name);

    if (!symbol) {
        printf("no %s\n", name);
        exit(2);
    }
    return symbol;
}

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
