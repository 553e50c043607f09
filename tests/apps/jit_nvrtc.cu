// A kernel compiled while the program runs, by NVRTC: its PTX as a module, as a library and through cuLinkAddData, its log
// of a bad source, and the lowered name of a template's instance.
// nvcc: -lcuda -ldl
#include <cuda.h>
#include "toolkit.h"
#if __has_include(<nvrtc.h>)
#include <nvrtc.h>

enum { COUNT = 1000, THREADS = 128 };

static const char source[] = "template <typename T> __global__ void scale(T *x, T factor, int count)\n"
                             "{\n"
                             "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                             "    if (i < count)\n"
                             "        x[i] = x[i] * factor + OFFSET;\n"
                             "}\n"
                             "__constant__ int table[4] = {1, 2, 3, 4};\n"
                             "extern \"C\" __global__ void pick(int *x, int count)\n"
                             "{\n"
                             "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                             "    if (i < count)\n"
                             "        x[i] = table[i % 4];\n"
                             "}\n";

static char *ptx;
static size_t ptx_bytes;
static char scale_name[256];

/* Fills ptx and scale_name, for the device's own generation. */
static void compile(int major, int minor)
{
    void *library = open_toolkit_library("libnvrtc.so", CUDA_VERSION / 1000);
    TOOLKIT_FUNCTION(library, nvrtcCreateProgram);
    TOOLKIT_FUNCTION(library, nvrtcDestroyProgram);
    TOOLKIT_FUNCTION(library, nvrtcAddNameExpression);
    TOOLKIT_FUNCTION(library, nvrtcCompileProgram);
    TOOLKIT_FUNCTION(library, nvrtcGetLoweredName);
    TOOLKIT_FUNCTION(library, nvrtcGetProgramLogSize);
    TOOLKIT_FUNCTION(library, nvrtcGetProgramLog);
    TOOLKIT_FUNCTION(library, nvrtcGetPTXSize);
    TOOLKIT_FUNCTION(library, nvrtcGetPTX);
    nvrtcProgram program;
    char architecture[64], log[4096] = "";
    const char *lowered, *options[] = {architecture, "-DOFFSET=1"};
    size_t bytes = 0;

    snprintf(architecture, sizeof(architecture), "--gpu-architecture=compute_%d%d", major, minor);
    EXPECT_EQ(p_nvrtcCreateProgram(&program, "__global__ void bad(int *x) { *y = 1; }", "bad.cu", 0, NULL, NULL), 0);
    EXPECT_EQ(p_nvrtcCompileProgram(program, 1, options), NVRTC_ERROR_COMPILATION);
    EXPECT_EQ(p_nvrtcGetProgramLogSize(program, &bytes), 0);
    EXPECT(bytes > 1 && bytes < sizeof(log), "a log of %zu bytes", bytes);
    EXPECT_EQ(p_nvrtcGetProgramLog(program, log), 0);
    EXPECT(strstr(log, "\"y\" is undefined"), "log: %s", log);
    EXPECT_EQ(p_nvrtcDestroyProgram(&program), 0);

    EXPECT_EQ(p_nvrtcCreateProgram(&program, source, "scale.cu", 0, NULL, NULL), 0);
    EXPECT_EQ(p_nvrtcAddNameExpression(program, "scale<float>"), 0);
    EXPECT_EQ(p_nvrtcCompileProgram(program, 2, options), 0);
    EXPECT_EQ(p_nvrtcGetLoweredName(program, "scale<float>", &lowered), 0);
    snprintf(scale_name, sizeof(scale_name), "%s", lowered);
    EXPECT_EQ(p_nvrtcGetPTXSize(program, &ptx_bytes), 0);
    ptx = (char *)malloc(ptx_bytes);
    EXPECT_EQ(p_nvrtcGetPTX(program, ptx), 0);
    EXPECT_EQ(p_nvrtcDestroyProgram(&program), 0);
}

static void run_scale(CUfunction function)
{
    CUdeviceptr memory;
    float values[COUNT], factor = 3;
    int count = COUNT;
    void *params[] = {&memory, &factor, &count};

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)i;
    CHECK_CU(cuMemAlloc(&memory, sizeof(values)));
    CHECK_CU(cuMemcpyHtoD(memory, values, sizeof(values)));
    CHECK_CU(cuLaunchKernel(function, (COUNT + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
    CHECK_CU(cuMemcpyDtoH(values, memory, sizeof(values)));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(values[i], 3 * i + 1);
    CHECK_CU(cuMemFree(memory));
}

static void run_pick(CUfunction function)
{
    CUdeviceptr memory;
    int values[COUNT], count = COUNT;
    void *params[] = {&memory, &count};

    CHECK_CU(cuMemAlloc(&memory, sizeof(values)));
    CHECK_CU(cuLaunchKernel(function, (COUNT + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
    CHECK_CU(cuMemcpyDtoH(values, memory, sizeof(values)));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(values[i], i % 4 + 1);
    CHECK_CU(cuMemFree(memory));
}

static void run_module(const void *image)
{
    CUmodule module;
    CUfunction function;

    CHECK_CU(cuModuleLoadData(&module, image));
    CHECK_CU(cuModuleGetFunction(&function, module, scale_name));
    run_scale(function);
    CHECK_CU(cuModuleGetFunction(&function, module, "pick"));
    run_pick(function);
    CHECK_CU(cuModuleUnload(module));
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUlibrary library;
    CUkernel kernel;
    CUlinkState state;
    void *image;
    size_t bytes;
    int major, minor;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    compile(major, minor);
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    run_module(ptx);

    CHECK_CU(cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    CHECK_CU(cuLibraryGetKernel(&kernel, library, "pick"));
    run_pick((CUfunction)kernel);
    CHECK_CU(cuLibraryUnload(library));

    CHECK_CU(cuLinkCreate(0, NULL, NULL, &state));
    CHECK_CU(cuLinkAddData(state, CU_JIT_INPUT_PTX, ptx, ptx_bytes, "scale", 0, NULL, NULL));
    CHECK_CU(cuLinkComplete(state, &image, &bytes));
    run_module(image);
    CHECK_CU(cuLinkDestroy(state));
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    free(ptx);
    return 0;
}
#else
int main(void)
{
    SKIP("the toolkit has no headers of NVRTC");
}
#endif
