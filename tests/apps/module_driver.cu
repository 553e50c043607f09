// cuModule*: loading PTX text, machine code and fat binaries from memory and from files, globals and functions by
// name, unloading, and images that are refused. Machine code alone runs where the GPU is of its architecture.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

/* Whether the device can run machine code for compute capability 9.0. */
static int runs_sm_90;

static void use_module(CUmodule module)
{
    CUfunction scale;
    CUdeviceptr table = 0, factor = 0, values;
    size_t bytes = 0;
    float host[100], two = 2.0f;
    int first = 0, hundred = 100, count = 90;
    void *params[] = {&values, &count};

    CHECK_CU(cuModuleGetFunction(&scale, module, "scale"));
    CHECK_CU(cuModuleGetGlobal(&table, &bytes, module, "table"));
    EXPECT_EQ(bytes, 64);
    CHECK_CU(cuModuleGetGlobal(&factor, &bytes, module, "factor"));
    EXPECT_EQ(bytes, 4);
    CHECK_CU(cuMemcpyDtoH(&first, table, sizeof(first)));
    EXPECT_EQ(first, 11);
    CHECK_CU(cuMemcpyHtoD(table, &hundred, sizeof(hundred)));
    CHECK_CU(cuMemcpyHtoD(factor, &two, sizeof(two)));
    for (int i = 0; i < 100; i++)
        host[i] = (float)i;
    CHECK_CU(cuMemAlloc(&values, sizeof(host)));
    CHECK_CU(cuMemcpyHtoD(values, host, sizeof(host)));
    CHECK_CU(cuLaunchKernel(scale, 4, 1, 1, 32, 1, 1, 0, 0, params, NULL));
    CHECK_CU(cuMemcpyDtoH(host, values, sizeof(host)));
    for (int i = 0; i < 100; i++)
        EXPECT(host[i] == (i < 90 ? i * 2.0f + 100 : i), "%d: %f", i, host[i]);
    CHECK_CU(cuMemFree(values));
    EXPECT_CU(cuModuleGetFunction(&scale, module, "no_such_kernel"), CUDA_ERROR_NOT_FOUND);
    EXPECT_CU(cuModuleGetGlobal(&table, &bytes, module, "no_such_variable"), CUDA_ERROR_NOT_FOUND);
}

static void check_image(const char *argv0, const char *file, int runs)
{
    char *image = read_beside(argv0, file, NULL), path[4096];
    const char *slash = strrchr(argv0, '/');
    CUmodule module, second;

    if (runs) {
        /* Two modules of one image have variables of their own. */
        CHECK_CU(cuModuleLoadData(&module, image));
        CHECK_CU(cuModuleLoadData(&second, image));
        use_module(module);
        use_module(second);
        CHECK_CU(cuModuleUnload(module));
        CHECK_CU(cuModuleUnload(second));
        snprintf(path, sizeof(path), "%.*s%s", slash ? (int)(slash - argv0 + 1) : 0, argv0, file);
        CHECK_CU(cuModuleLoad(&module, path));
        use_module(module);
        CHECK_CU(cuModuleUnload(module));
    } else {
        EXPECT_CU(cuModuleLoadData(&module, image), CUDA_ERROR_NO_BINARY_FOR_GPU);
    }
    free(image);
}

static void check_fat_binary(const char *argv0)
{
    char *image = read_beside(argv0, "module.fatbin", NULL);
    CUmodule module;

    CHECK_CU(cuModuleLoadFatBinary(&module, image));
    use_module(module);
    CHECK_CU(cuModuleUnload(module));
    free(image);
}

static void check_options(const char *argv0)
{
    char *image = read_beside(argv0, "module.ptx", NULL), log[1024] = "x";
    CUjit_option options[] = {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, CU_JIT_LOG_VERBOSE};
    void *values[] = {log, (void *)sizeof(log), (void *)1};
    CUmodule module;

    CHECK_CU(cuModuleLoadDataEx(&module, image, 3, options, values));
    use_module(module);
    CHECK_CU(cuModuleUnload(module));
    free(image);
}

static void check_refused(void)
{
    /* No instruction that does not exist: the software GPU cannot tell it from one that it does not have yet. */
    static const char nonsense[256] = ".version 7.0\n.target sm_75\n.address_size 64\nnonsense";
    CUmodule module;

    EXPECT_CU(cuModuleLoadData(&module, nonsense), CUDA_ERROR_INVALID_PTX);
    EXPECT_CU(cuModuleLoad(&module, "/nonexistent/module.cubin"), CUDA_ERROR_FILE_NOT_FOUND);
    EXPECT_CU(cuModuleLoadData(&module, NULL), CUDA_ERROR_INVALID_VALUE);
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;
    char name[256];
    int major = 0;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDeviceGetName(name, sizeof(name), device));
    CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    runs_sm_90 = major == 9 && !IS_SOFT_NAME(name);
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    check_image(argv[0], "module.ptx", 1);
    check_image(argv[0], "module.cubin", runs_sm_90);
    check_image(argv[0], "module.fatbin", 1);
    check_fat_binary(argv[0]);
    check_options(argv[0]);
    check_refused();
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    return 0;
}
