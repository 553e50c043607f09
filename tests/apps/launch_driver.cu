// Kernel launches by the driver API: parameters by pointers and by buffer, attributes of the launch and of the
// function, the layout of parameters, and refused launches.
// nvcc: -lcuda
#include "check.h"
#include <cstddef>
#include <cuda.h>

static CUfunction mixed, count_up, scale;

static long long read_result(CUdeviceptr out)
{
    long long value = 0;

    CHECK_CU(cuMemcpyDtoH(&value, out, sizeof(value)));
    /* A memset is asynchronous, and the launches that follow go to a stream that does not wait for the default one. */
    CHECK_CU(cuMemsetD8(out, 0, sizeof(value)));
    CHECK_CU(cuStreamSynchronize(NULL));
    return value;
}

/* mixed(long long *out, char a, int b, double c, short d) with shared memory for 32 ints. */
static void check_ways(CUdeviceptr out, CUstream stream)
{
    const long long want = -3 + 10ll * 44 + 100ll * 7 + 1000ll * -5 + 1000000ll * 31;
    char a = -3;
    int b = 44;
    double c = 7.5;
    short d = -5;
    void *params[] = {&out, &a, &b, &c, &d};
    struct {
        CUdeviceptr out;
        char a;
        int b;
        double c;
        short d;
    } buffer = {out, a, b, c, d};
    /* The parameters without the padding behind them: a longer buffer is refused. */
    size_t buffer_bytes = offsetof(decltype(buffer), d) + sizeof(buffer.d);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &buffer_bytes,
                     CU_LAUNCH_PARAM_END};
    CUlaunchConfig config = {};

    CHECK_CU(cuLaunchKernel(mixed, 1, 1, 1, 32, 1, 1, 128, stream, params, NULL));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(read_result(out), want);
    CHECK_CU(cuLaunchKernel(mixed, 1, 1, 1, 32, 1, 1, 128, stream, NULL, extra));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(read_result(out), want);
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = 32;
    config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = 128;
    config.hStream = stream;
    CHECK_CU(cuLaunchKernelEx(&config, mixed, params, NULL));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(read_result(out), want);
    CHECK_CU(cuLaunchKernelEx(&config, mixed, NULL, extra));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT_EQ(read_result(out), want);
    /* A buffer that is too short is taken (what it lacks is undefined), one that is too long is not. */
    buffer_bytes = offsetof(decltype(buffer), d);
    CHECK_CU(cuLaunchKernel(mixed, 1, 1, 1, 32, 1, 1, 128, stream, NULL, extra));
    CHECK_CU(cuStreamSynchronize(stream));
    read_result(out);
    buffer_bytes = sizeof(buffer);
    EXPECT_CU(cuLaunchKernel(mixed, 1, 1, 1, 32, 1, 1, 128, stream, NULL, extra), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

static void check_attributes(void)
{
    const size_t offsets[] = {0, 8, 12, 16, 24}, sizes[] = {8, 1, 4, 8, 2};
    int value = -1;
    size_t offset, bytes;
    const char *name = NULL;

    for (size_t i = 0; i < 5; i++) {
        CHECK_CU(cuFuncGetParamInfo(mixed, i, &offset, &bytes));
        EXPECT(offset == offsets[i] && bytes == sizes[i], "parameter %zu: %zu bytes at %zu", i, bytes, offset);
    }
    EXPECT_CU(cuFuncGetParamInfo(mixed, 5, &offset, &bytes), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuFuncGetName(&name, mixed));
    EXPECT(strcmp(name, "mixed") == 0, "%s", name);
    CHECK_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, count_up));
    EXPECT_EQ(value, 1024);
    CHECK_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, mixed));
    EXPECT_EQ(value, 0);
    CHECK_CU(cuFuncSetAttribute(mixed, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 60000));
    CHECK_CU(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, mixed));
    EXPECT_EQ(value, 60000);
    CHECK_CU(cuFuncSetCacheConfig(mixed, CU_FUNC_CACHE_PREFER_NONE));
    EXPECT_CU(cuFuncGetAttribute(&value, (CUfunction_attribute)1000, mixed), CUDA_ERROR_INVALID_VALUE);
}

static void check_refusals(CUdeviceptr counter)
{
    void *params[] = {&counter};

    EXPECT_CU(cuLaunchKernel(count_up, 0, 1, 1, 1, 1, 1, 0, 0, params, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLaunchKernel(count_up, 1, 1, 1, 2048, 1, 1, 0, 0, params, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 1 << 20, 0, params, NULL), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuLaunchKernel(count_up, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuLaunchKernel(count_up, 3, 1, 1, 32, 1, 1, 0, 0, params, NULL));
    CHECK_CU(cuCtxSynchronize());
    EXPECT_EQ(read_result(counter), 96);
}

int main(int argc, char **argv)
{
    char *image = read_beside(argv[0], "module.ptx", NULL);
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUdeviceptr out;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuModuleLoadData(&module, image));
    CHECK_CU(cuModuleGetFunction(&mixed, module, "mixed"));
    CHECK_CU(cuModuleGetFunction(&count_up, module, "count_up"));
    CHECK_CU(cuModuleGetFunction(&scale, module, "scale"));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemAlloc(&out, 64));
    CHECK_CU(cuMemsetD8(out, 0, 64));
    CHECK_CU(cuCtxSynchronize());
    check_ways(out, stream);
    check_attributes();
    check_refusals(out);
    CHECK_CU(cuMemFree(out));
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuModuleUnload(module));
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    free(image);
    return 0;
}
