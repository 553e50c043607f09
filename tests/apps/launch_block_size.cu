// Kernels whose PTX demands a block size (.reqntid) or bounds it (.maxntid): a launch with another one is refused by the
// launch itself, in every launch function, nothing of it runs, and the context goes on.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

// Each adds its number of threads to *p.
#define KERNEL(NAME, DIRECTIVES)                                                                                        \
    ".visible .entry " NAME "(.param .u64 p) " DIRECTIVES " {\n"                                                       \
    ".reg .b64 %d<3>; .reg .b32 %r<3>;\n"                                                                              \
    "ld.param.u64 %d1, [p];\ncvta.to.global.u64 %d2, %d1;\nmov.u32 %r1, 1;\natom.global.add.u32 %r2, [%d2], %r1;\nret;\n}\n"

static const char text[] = ".version 7.0\n.target sm_75\n.address_size 64\n" KERNEL("demands", ".reqntid 32, 2, 1")
    KERNEL("demands_line", "/* .reqntid 8 */ .reqntid 64") KERNEL("bounds", ".maxntid 16, 4, 1")
        KERNEL("any", "// .reqntid 1\n");

static CUdeviceptr counter;
static unsigned expected;

static CUresult launch(CUfunction kernel, unsigned x, unsigned y, unsigned z)
{
    void *params[] = {&counter};

    return cuLaunchKernel(kernel, 1, 1, 1, x, y, z, 0, NULL, params, NULL);
}

static CUresult launch_with_attribute(CUfunction kernel, unsigned x, unsigned y, unsigned z)
{
    void *params[] = {&counter};
    CUlaunchAttribute attribute = {};
    CUlaunchConfig config = {};

    attribute.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    attribute.value.cooperative = 1;
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = x;
    config.blockDimY = y;
    config.blockDimZ = z;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cuLaunchKernelEx(&config, kernel, params, NULL);
}

static CUresult launch_cooperative(CUfunction kernel, unsigned x, unsigned y, unsigned z)
{
    void *params[] = {&counter};

    return cuLaunchCooperativeKernel(kernel, 1, 1, 1, x, y, z, 0, NULL, params);
}

static cudaError_t launch_by_runtime(cudaKernel_t kernel, dim3 block)
{
    void *params[] = {&counter};

    return cudaLaunchKernel((const void *)kernel, dim3(1), block, params, 0, NULL);
}

// One kernel, loaded by the driver API and by the runtime.
struct kernel {
    CUfunction function;
    cudaKernel_t own;
};

static void check_right(const kernel &kernel, unsigned x, unsigned y, unsigned z)
{
    CHECK_CU(launch(kernel.function, x, y, z));
    CHECK_CU(launch_with_attribute(kernel.function, x, y, z));
    CHECK_CU(launch_cooperative(kernel.function, x, y, z));
    CHECK(launch_by_runtime(kernel.own, dim3(x, y, z)));
    expected += 4 * x * y * z;
}

static void check_wrong(const kernel &kernel, unsigned x, unsigned y, unsigned z)
{
    EXPECT_CU(launch(kernel.function, x, y, z), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(launch_with_attribute(kernel.function, x, y, z), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(launch_cooperative(kernel.function, x, y, z), CUDA_ERROR_INVALID_VALUE);
    EXPECT_ERR(launch_by_runtime(kernel.own, dim3(x, y, z)), cudaErrorInvalidValue);
    CHECK_CU(cuCtxSynchronize()); // nothing has been sent, so nothing comes later
}

static void check_counter(void)
{
    unsigned seen = 0;

    CHECK_CU(cuMemcpyDtoH(&seen, counter, sizeof(seen)));
    EXPECT_EQ(seen, expected);
}

static kernel get(CUmodule module, cudaLibrary_t library, const char *name)
{
    kernel kernel;

    CHECK_CU(cuModuleGetFunction(&kernel.function, module, name));
    CHECK(cudaLibraryGetKernel(&kernel.own, library, name));
    return kernel;
}

int main(void)
{
    CUmodule module;
    cudaLibrary_t library;

    CHECK(cudaFree(NULL));
    CHECK_CU(cuModuleLoadData(&module, text));
    CHECK(cudaLibraryLoadData(&library, text, NULL, NULL, 0, NULL, NULL, 0));
    const kernel demands = get(module, library, "demands"), demands_line = get(module, library, "demands_line"),
                 bounds = get(module, library, "bounds"), any = get(module, library, "any");
    CHECK_CU(cuMemAlloc(&counter, sizeof(unsigned)));
    CHECK_CU(cuMemsetD32(counter, 0, 1));
    check_wrong(demands, 64, 1, 1); // as many threads
    check_wrong(demands, 32, 1, 1);
    check_wrong(demands, 32, 2, 2);
    check_counter();
    check_right(demands, 32, 2, 1);
    check_counter();
    check_wrong(demands_line, 32, 2, 1);
    check_wrong(demands_line, 128, 1, 1);
    check_right(demands_line, 64, 1, 1);
    check_wrong(bounds, 65, 1, 1);
    check_wrong(bounds, 16, 4, 2);
    check_right(bounds, 16, 4, 1);
    check_right(bounds, 64, 1, 1); // only the product is bounded
    check_right(bounds, 3, 1, 1);
    check_right(any, 1, 1, 1);
    check_right(any, 64, 1, 1);
    check_counter();
    CHECK(cudaLibraryUnload(library));
    CHECK_CU(cuModuleUnload(module));
    return 0;
}
