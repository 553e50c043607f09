// What launches, function attributes and occupancy answer at their edges, in both APIs. behaviour.h says what a row is.
// nvcc: -lcuda -Wno-deprecated-declarations -Xcompiler -Wno-deprecated-declarations
#include "behaviour.h"
#include <cuda.h>

__global__ void plain(int *p)
{
    if (p)
        *p = 1;
}

__global__ void padded(long long *out, char a, int b, double c, short d)
{
    if (out)
        *out = (long long)(a + b + c + d);
}

static int not_a_kernel;

static void launches(void)
{
    int *memory = NULL;
    void *arguments[] = {&memory};
    void *function = (void *)plain, *other = (void *)&not_a_kernel;

    RT(0, cudaMalloc(&memory, 64));
    RT(400, cudaLaunchKernel(other, dim3(1), dim3(1), arguments, 0, NULL));
    RT(98, cudaLaunchKernel((void *)NULL, dim3(1), dim3(1), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(0), dim3(1), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1, 0), dim3(1), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(0), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(1025), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(32, 32, 2), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(1, 1, 65), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1, 65536), dim3(1), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1, 1, 65536), dim3(1), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(2147483648u), dim3(1), arguments, 0, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(1), arguments, 49153, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(1), arguments, 1 << 20, NULL));
    RT(0, cudaLaunchKernel(function, dim3(1), dim3(1), arguments, (size_t)1 << 33, NULL)); /* 32 bits count */
    RT(0, cudaLaunchKernel(function, dim3(1), dim3(1), arguments, 49152, NULL));
    RT(1, cudaLaunchKernel(function, dim3(1), dim3(1), NULL, 0, NULL));
    plain<<<0, 1>>>(memory);
    IS(1, cudaGetLastError()); /* since CUDA 13; cudaErrorInvalidConfiguration before */
    plain<<<1, 1025>>>(memory);
    IS(1, cudaGetLastError());
    plain<<<1, 1, 1 << 20>>>(memory);
    IS(1, cudaGetLastError());
    plain<<<1, 1>>>(memory);
    IS(0, cudaGetLastError());
    RT(1, cudaLaunchCooperativeKernel(function, dim3(0), dim3(1), arguments, 0, NULL));
    RT(720, cudaLaunchCooperativeKernel(function, dim3(1 << 20), dim3(1024), arguments, 0, NULL));
    RT(0, cudaLaunchCooperativeKernel(function, dim3(2), dim3(64), arguments, 0, NULL));
    RT(400, cudaLaunchCooperativeKernel(other, dim3(2), dim3(64), arguments, 0, NULL));
    RT(0, cudaDeviceSynchronize());
}

/* What is wrong with a cluster whatever the GPU; what needs one that has clusters is for those only. */
static void launches_in_clusters(void)
{
    static const unsigned cases[][7] = {
        /* grid, cluster, code */
        {7, 1, 1, 2, 1, 1, 912}, {8, 3, 1, 2, 2, 1, 912},   {8, 1, 1, 0, 1, 1, 912},  {8, 1, 1, 2, 0, 0, 912},
        {4, 1, 1, 8, 1, 1, 912}, {16, 1, 1, 16, 1, 1, 912}, {8, 4, 4, 2, 2, 4, 912},  {0, 1, 1, 2, 1, 1, 1},
        {7, 1, 1, 1, 1, 1, 0},   {8, 1, 1, 0, 0, 0, 0},     {8, 1, 1, ~0u, 1, 1, 912}, {8, 1, 1, 2, 1, 1, 0},
        {8, 4, 1, 2, 2, 1, 0},   {9, 1, 1, 3, 1, 1, 0},
    };
    const unsigned needing = 11; /* the first of those that need clusters */
    int *memory = NULL, has_clusters = 0;
    void *arguments[] = {&memory};

    RT(0, cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, 0));
    for (unsigned i = 0; i < (has_clusters ? sizeof(cases) / sizeof(cases[0]) : needing); i++) {
        const unsigned *c = cases[i];
        cudaLaunchAttribute attribute = {};
        cudaLaunchConfig_t config = {};
        attribute.id = cudaLaunchAttributeClusterDimension;
        attribute.val.clusterDim.x = c[3];
        attribute.val.clusterDim.y = c[4];
        attribute.val.clusterDim.z = c[5];
        config.gridDim = dim3(c[0], c[1], c[2]);
        config.blockDim = dim3(32);
        config.attrs = &attribute;
        config.numAttrs = 1;
        RT((int)c[6], cudaLaunchKernelExC(&config, (void *)plain, arguments));
    }
    RT(0, cudaDeviceSynchronize());
}

static void launches_with_attributes(void)
{
    int *memory = NULL;
    void *arguments[] = {&memory};
    void *function = (void *)plain;
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attributes[2] = {};

    config.gridDim = config.blockDim = dim3(0, 0, 0);
    RT(1, cudaLaunchKernelExC(&config, function, arguments));
    config.gridDim = config.blockDim = dim3(1);
    RT(0, cudaLaunchKernelExC(&config, function, arguments));
    config.numAttrs = 1;
    RT(1, cudaLaunchKernelExC(&config, function, arguments));
    config.attrs = attributes;
    attributes[0].id = cudaLaunchAttributeIgnore;
    RT(0, cudaLaunchKernelExC(&config, function, arguments));
    attributes[0].id = (cudaLaunchAttributeID)99;
    RT(1, cudaLaunchKernelExC(&config, function, arguments));
    attributes[0].id = (cudaLaunchAttributeID)-1;
    RT(1, cudaLaunchKernelExC(&config, function, arguments));
    attributes[0].id = cudaLaunchAttributeCooperative;
    attributes[0].val.cooperative = 1;
    RT(0, cudaLaunchKernelExC(&config, function, arguments));
    attributes[0].id = cudaLaunchAttributePriority;
    attributes[0].val.priority = 0;
    RT(0, cudaLaunchKernelExC(&config, function, arguments));
    RT(0, cudaDeviceSynchronize());
}

static void functions(void)
{
    cudaFuncAttributes found;
    cudaFunction_t function;
    cudaKernel_t kernel;
    const void *code = (const void *)plain, *other = (const void *)&not_a_kernel;
    const char *name = NULL;
    size_t offset = 9, bytes = 9;

    RT(1, cudaFuncGetAttributes(NULL, code));
    RT(98, cudaFuncGetAttributes(&found, NULL));
    RT(400, cudaFuncGetAttributes(&found, other));
    RT(0, cudaFuncGetAttributes(&found, code));
    IS(1024, found.maxThreadsPerBlock);
    RT(400, cudaFuncSetAttribute(other, cudaFuncAttributeMaxDynamicSharedMemorySize, 100));
    RT(400, cudaFuncSetAttribute(other, cudaFuncAttributePreferredSharedMemoryCarveout, 1));
    RT(98, cudaFuncSetAttribute((const void *)NULL, cudaFuncAttributeMaxDynamicSharedMemorySize, 100));
    RT(1, cudaFuncSetAttribute(code, (cudaFuncAttribute)2, 1));
    RT(1, cudaFuncSetAttribute(code, (cudaFuncAttribute)99, 1));
    RT(1, cudaFuncSetAttribute(code, cudaFuncAttributePreferredSharedMemoryCarveout, 101));
    RT(1, cudaFuncSetAttribute(code, cudaFuncAttributePreferredSharedMemoryCarveout, -2));
    RT(0, cudaFuncSetAttribute(code, cudaFuncAttributePreferredSharedMemoryCarveout, -1));
    RT(0, cudaFuncSetAttribute(code, cudaFuncAttributePreferredSharedMemoryCarveout, 100));
    RT(1, cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize, -1));
    RT(1, cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20));
    RT(0, cudaFuncSetAttribute(code, cudaFuncAttributeMaxDynamicSharedMemorySize, 1000));
    RT(1, cudaFuncSetAttribute(code, cudaFuncAttributeClusterDimMustBeSet, 1));
    RT(0, cudaFuncSetAttribute(code, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
    RT(400, cudaFuncSetCacheConfig(other, cudaFuncCachePreferL1));
    RT(1, cudaFuncSetCacheConfig(code, (cudaFuncCache)9));
    RT(0, cudaFuncSetCacheConfig(code, cudaFuncCachePreferL1));
    RT(400, cudaFuncSetSharedMemConfig(other, cudaSharedMemBankSizeFourByte));
    RT(0, cudaFuncSetSharedMemConfig(code, cudaSharedMemBankSizeFourByte));
    RT(1, cudaFuncSetSharedMemConfig(code, (cudaSharedMemConfig)9));
    RT(0, cudaFuncGetName(&name, code));
    IS(0, strcmp(name, "_Z5plainPi"));
    RT(1, cudaFuncGetName(NULL, code));
    RT(400, cudaFuncGetName(&name, other));
    RT(98, cudaFuncGetName(&name, NULL));
    RT(0, cudaFuncGetParamInfo(code, 0, &offset, &bytes));
    IS(0, offset);
    IS(8, bytes);
    RT(1, cudaFuncGetParamInfo(code, 1, &offset, &bytes));
    RT(1, cudaFuncGetParamInfo(code, 0, NULL, &bytes));
    RT(0, cudaFuncGetParamInfo(code, 0, &offset, NULL));
    RT(400, cudaFuncGetParamInfo(other, 0, &offset, &bytes));
    RT(98, cudaGetKernel(&kernel, other));
    RT(98, cudaGetKernel(&kernel, NULL));
    RT(1, cudaGetKernel(NULL, code));
    RT(0, cudaGetKernel(&kernel, code));
    RT(98, cudaGetFuncBySymbol(&function, other));
    RT(0, cudaGetFuncBySymbol(NULL, code));
    RT(0, cudaGetFuncBySymbol(&function, code));
    RT(0, cudaFuncGetAttributes(&found, (const void *)kernel));
}

static void occupancy(void)
{
    const void *other = (const void *)&not_a_kernel;
    cudaLaunchConfig_t config = {};
    size_t bytes = 0;
    int count = 9, size = 9;

    RT(1, cudaOccupancyMaxActiveBlocksPerMultiprocessor(NULL, plain, 32, 0));
    RT(1, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, plain, 0, 0));
    RT(1, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, plain, -5, 0));
    RT(0, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, plain, 2048, 0));
    IS(0, count);
    RT(0, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, plain, 32, 1 << 20));
    IS(0, count);
    RT(0, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, plain, 1024, 0));
    IS(2, count);
    RT(0, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, plain, 32, 0));
    IS(32, count);
    RT(400, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, other, 32, 0));
    RT(98, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&count, (const void *)NULL, 32, 0));
    RT(1, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&count, plain, 32, 0, 8));
    RT(0, cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&count, plain, 32, 0, 1));
    RT(1, cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 0, 32));
    RT(1, cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 100, 32));
    RT(1, cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 2, 4096));
    RT(0, cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 2, 128));
    IS(49152, bytes);
    CHECK(cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 1000));
    RT(0, cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 2, 128));
    IS(1000, bytes);
    CHECK(cudaFuncSetAttribute(plain, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
    RT(0, cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, plain, 2, 128));
    IS(60000, bytes);
    config.gridDim = dim3(64);
    config.blockDim = dim3(1);
    RT(0, cudaOccupancyMaxPotentialClusterSize(&size, plain, &config));
    IS(1, size >= 1);
    RT(1, cudaOccupancyMaxPotentialClusterSize((int *)NULL, plain, &config));
    RT(0, cudaOccupancyMaxActiveClusters(&size, plain, &config));
    RT(1, cudaOccupancyMaxActiveClusters((int *)NULL, plain, &config));
}

static CUfunction driver_function(const void *symbol)
{
    cudaFunction_t function;

    CHECK(cudaGetFuncBySymbol(&function, symbol));
    return (CUfunction)function;
}

/* The parameters as one buffer: what is missing of it counts as zero up to the padding, a longer one is refused. */
static int launch_buffer(CUfunction function, size_t bytes)
{
    char buffer[64] = {0};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};

    return cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra);
}

static void driver_launches(void)
{
    CUfunction function, simple;
    CUlaunchConfig config = {};
    CUlaunchAttribute attribute = {};
    CUdeviceptr memory = 0;
    void *arguments[] = {&memory}, *nothing[] = {CU_LAUNCH_PARAM_END};
    size_t offset = 0, bytes = 0;

    CHECK(cudaFree(NULL));
    function = driver_function((const void *)padded);
    simple = driver_function((const void *)plain);
    DR(0, launch_buffer(function, 8));
    DR(0, launch_buffer(function, 25));
    DR(0, launch_buffer(function, 26));
    DR(701, launch_buffer(function, 27));
    DR(701, launch_buffer(function, 32));
    DR(1, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, nothing));
    DR(1, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    DR(400, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    DR(1, cuLaunchKernel(simple, 0, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    DR(1, cuLaunchKernel(simple, 1, 1, 1, 0, 1, 1, 0, NULL, arguments, NULL));
    DR(1, cuLaunchKernel(simple, 1, 1, 1, 1025, 1, 1, 0, NULL, arguments, NULL));
    DR(1, cuLaunchKernel(simple, 1, 1, 1, 1, 1, 128, 0, NULL, arguments, NULL));
    DR(1, cuLaunchKernel(simple, 1, 65536, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    DR(1, cuLaunchKernel(simple, 1, 1, 1, 1, 1, 1, 50000, NULL, arguments, NULL));
    DR(0, cuLaunchKernel(simple, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, nothing));
    DR(720, cuLaunchCooperativeKernel(simple, 100000, 1, 1, 1024, 1, 1, 0, NULL, arguments));
    DR(0, cuLaunchCooperativeKernel(simple, 2, 1, 1, 64, 1, 1, 0, NULL, arguments));
    DR(1, cuLaunchKernelEx(NULL, simple, arguments, NULL));
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    DR(0, cuLaunchKernelEx(&config, simple, arguments, NULL));
    config.numAttrs = 1;
    DR(1, cuLaunchKernelEx(&config, simple, arguments, NULL));
    config.attrs = &attribute;
    DR(0, cuLaunchKernelEx(&config, simple, arguments, NULL));
    attribute.id = (CUlaunchAttributeID)99;
    DR(1, cuLaunchKernelEx(&config, simple, arguments, NULL));
    DR(0, cuFuncGetParamInfo(function, 2, &offset, &bytes));
    IS(12, offset);
    IS(4, bytes);
    DR(0, cuFuncGetParamInfo(function, 4, &offset, &bytes));
    IS(24, offset);
    IS(2, bytes);
    DR(1, cuFuncGetParamInfo(function, 5, &offset, &bytes));
    DR(0, cuCtxSynchronize());
}

static void driver_functions(void)
{
    CUfunction function;
    CUlaunchConfig config = {};
    size_t bytes = 0;
    int value = 9, other = 9;

    CHECK(cudaFree(NULL));
    function = driver_function((const void *)plain);
    DR(1, cuFuncGetAttribute(&value, (CUfunction_attribute)99, function));
    DR(1, cuFuncGetAttribute(NULL, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function));
    DR(400, cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, NULL));
    DR(1, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20));
    DR(1, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1));
    DR(1, cuFuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1));
    DR(400, cuFuncSetAttribute(NULL, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1));
    DR(1, cuFuncSetCacheConfig(function, (CUfunc_cache)9));
    DR(400, cuFuncSetCacheConfig(NULL, CU_FUNC_CACHE_PREFER_SHARED));
    DR(0, cuFuncSetSharedMemConfig(function, CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
    DR(1, cuOccupancyMaxActiveBlocksPerMultiprocessor(NULL, function, 32, 0));
    DR(1, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 0, 0));
    DR(0, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 5000, 0));
    IS(0, value);
    DR(400, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, NULL, 32, 0));
    DR(0, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, 1 << 20));
    DR(1, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 32, 0, 9));
    DR(0, cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(&value, function, 32, 0, 1));
    DR(0, cuOccupancyMaxPotentialBlockSize(&value, &other, function, NULL, 0, 0));
    IS(1024, other);
    IS(0, value % 2);
    DR(0, cuOccupancyMaxPotentialBlockSize(&value, &other, function, NULL, 0, 100));
    IS(64, other);
    DR(1, cuOccupancyMaxPotentialBlockSize(NULL, &other, function, NULL, 0, 0));
    DR(1, cuOccupancyMaxPotentialBlockSizeWithFlags(&value, &other, function, NULL, 0, 0, 9));
    DR(0, cuOccupancyMaxPotentialBlockSizeWithFlags(&value, &other, function, NULL, 0, 0, 1));
    DR(0, cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 2, 128));
    IS(49152, bytes);
    DR(1, cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, 0, 128));
    config.gridDimX = 64;
    config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    DR(0, cuOccupancyMaxPotentialClusterSize(&value, function, &config));
    DR(1, cuOccupancyMaxPotentialClusterSize(NULL, function, &config));
    DR(0, cuOccupancyMaxActiveClusters(&value, function, &config));
    DR(1, cuOccupancyMaxActiveClusters(NULL, function, &config));
}

BEHAVIOUR_MAIN({"launches", launches}, {"launches with attributes", launches_with_attributes},
               {"launches in clusters", launches_in_clusters}, {"functions", functions},
               {"occupancy", occupancy}, {"driver launches", driver_launches}, {"driver functions", driver_functions})
