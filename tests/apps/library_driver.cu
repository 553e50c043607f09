// cuLibrary* and cuKernel*: kernels that belong to no context, launched as they are and as functions, their
// attributes and parameters, globals, enumeration and unloading.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

static void check_kernel(CUlibrary library, CUdevice device)
{
    CUkernel kernel, none;
    CUfunction function;
    CUdeviceptr counter;
    const char *name = NULL;
    void *params[] = {&counter};
    size_t offset, bytes;
    int back = 0, value = 0;

    CHECK_CU(cuLibraryGetKernel(&kernel, library, "count_up"));
    EXPECT_CU(cuLibraryGetKernel(&none, library, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    CHECK_CU(cuKernelGetName(&name, kernel));
    EXPECT(strcmp(name, "count_up") == 0, "%s", name);
    CHECK_CU(cuKernelGetParamInfo(kernel, 0, &offset, &bytes));
    EXPECT(offset == 0 && bytes == 8);
    CHECK_CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, device));
    EXPECT_EQ(value, 1024);
    CHECK_CU(cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 50000, kernel, device));
    CHECK_CU(cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, kernel, device));
    EXPECT_EQ(value, 50000);
    CHECK_CU(cuMemAlloc(&counter, sizeof(int)));
    CHECK_CU(cuMemsetD32(counter, 0, 1));
    CHECK_CU(cuLaunchKernel((CUfunction)kernel, 2, 1, 1, 32, 1, 1, 0, 0, params, NULL));
    CHECK_CU(cuKernelGetFunction(&function, kernel));
    CHECK_CU(cuLaunchKernel(function, 1, 1, 1, 7, 1, 1, 0, 0, params, NULL));
    CHECK_CU(cuMemcpyDtoH(&back, counter, sizeof(back)));
    EXPECT_EQ(back, 71);
    CHECK_CU(cuMemFree(counter));
}

static void check_contents(CUlibrary library)
{
    CUkernel kernels[8];
    CUmodule module;
    CUdeviceptr table = 0, again = 0, none;
    size_t bytes = 0;
    unsigned count = 0;
    int values[3];

    CHECK_CU(cuLibraryGetKernelCount(&count, library));
    EXPECT_EQ(count, 3);
    CHECK_CU(cuLibraryEnumerateKernels(kernels, 3, library));
    EXPECT(kernels[0] != kernels[1] && kernels[1] != kernels[2]);
    CHECK_CU(cuLibraryGetGlobal(&table, &bytes, library, "table"));
    EXPECT_EQ(bytes, 64);
    CHECK_CU(cuMemcpyDtoH(values, table, sizeof(values)));
    EXPECT(values[0] == 11 && values[1] == 22 && values[2] == 33);
    EXPECT_CU(cuLibraryGetGlobal(&none, &bytes, library, "no_such_variable"), CUDA_ERROR_NOT_FOUND);
    CHECK_CU(cuLibraryGetModule(&module, library));
    CHECK_CU(cuModuleGetGlobal(&again, &bytes, module, "table"));
    EXPECT(again == table, "the library and its module name the same variable");
}

int main(int argc, char **argv)
{
    const char *const files[] = {"module.ptx", "module.fatbin"};
    char path[4096];
    const char *slash = strrchr(argv[0], '/');
    CUdevice device;
    CUcontext context;
    CUlibrary library;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    for (int i = 0; i < 2; i++) {
        char *image = read_beside(argv[0], files[i], NULL);

        CHECK_CU(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
        free(image); /* CUDA keeps a copy */
        check_kernel(library, device);
        check_contents(library);
        CHECK_CU(cuLibraryUnload(library));
        snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - argv[0] + 1) : 0, argv[0], files[i]);
        CHECK_CU(cuLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0));
        check_kernel(library, device);
        CHECK_CU(cuLibraryUnload(library));
    }
    EXPECT_CU(cuLibraryLoadFromFile(&library, "/nonexistent", NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_FILE_NOT_FOUND);
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    return 0;
}
