// Two sources compiled by NVRTC and linked by nvJitLink while the program runs: as intermediate code optimised across both
// (LTO), taken as PTX; and as PTX of relocatable device code, linked to machine code.
// nvcc: -lcuda -ldl
#include <cuda.h>
#include "toolkit.h"
#if __has_include(<nvJitLink.h>) && __has_include(<nvrtc.h>)
#include <nvJitLink.h>
#include <nvrtc.h>

enum { COUNT = 500, THREADS = 64 };

static const char used[] = "__device__ int twice(int x)\n{\n    return 2 * x + BIAS;\n}\n";
static const char user[] = "extern __device__ int twice(int x);\n"
                           "extern \"C\" __global__ void fill(int *x, int count)\n"
                           "{\n"
                           "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
                           "    if (i < count)\n"
                           "        x[i] = twice(i);\n"
                           "}\n";

struct image {
    char *data;
    size_t bytes;
};

static void *nvrtc, *linker;
static char architecture[64], link_architecture[64];

static struct image compile(const char *source, bool is_lto)
{
    TOOLKIT_FUNCTION(nvrtc, nvrtcCreateProgram);
    TOOLKIT_FUNCTION(nvrtc, nvrtcDestroyProgram);
    TOOLKIT_FUNCTION(nvrtc, nvrtcCompileProgram);
    TOOLKIT_FUNCTION(nvrtc, nvrtcGetPTXSize);
    TOOLKIT_FUNCTION(nvrtc, nvrtcGetPTX);
    TOOLKIT_FUNCTION(nvrtc, nvrtcGetLTOIRSize);
    TOOLKIT_FUNCTION(nvrtc, nvrtcGetLTOIR);
    const char *options[] = {architecture, "-DBIAS=5", "--relocatable-device-code=true", "-dlto"};
    struct image image;
    nvrtcProgram program;

    EXPECT_EQ(p_nvrtcCreateProgram(&program, source, "part.cu", 0, NULL, NULL), 0);
    EXPECT_EQ(p_nvrtcCompileProgram(program, is_lto ? 4 : 3, options), 0);
    EXPECT_EQ((is_lto ? p_nvrtcGetLTOIRSize : p_nvrtcGetPTXSize)(program, &image.bytes), 0);
    image.data = (char *)malloc(image.bytes);
    EXPECT_EQ((is_lto ? p_nvrtcGetLTOIR : p_nvrtcGetPTX)(program, image.data), 0);
    EXPECT_EQ(p_nvrtcDestroyProgram(&program), 0);
    return image;
}

/* The linked image: PTX of LTO, machine code of PTX. */
static struct image link_parts(bool is_lto)
{
    TOOLKIT_FUNCTION(linker, nvJitLinkCreate);
    TOOLKIT_FUNCTION(linker, nvJitLinkDestroy);
    TOOLKIT_FUNCTION(linker, nvJitLinkAddData);
    TOOLKIT_FUNCTION(linker, nvJitLinkComplete);
    TOOLKIT_FUNCTION(linker, nvJitLinkGetLinkedPtxSize);
    TOOLKIT_FUNCTION(linker, nvJitLinkGetLinkedPtx);
    TOOLKIT_FUNCTION(linker, nvJitLinkGetLinkedCubinSize);
    TOOLKIT_FUNCTION(linker, nvJitLinkGetLinkedCubin);
    const char *options[] = {link_architecture, "-lto", "-ptx"};
    const char *sources[] = {used, user};
    nvJitLinkHandle handle;
    struct image image;

    EXPECT_EQ(p_nvJitLinkCreate(&handle, is_lto ? 3 : 1, options), 0);
    for (int i = 0; i < 2; i++) {
        struct image part = compile(sources[i], is_lto);
        EXPECT_EQ(p_nvJitLinkAddData(handle, is_lto ? NVJITLINK_INPUT_LTOIR : NVJITLINK_INPUT_PTX, part.data, part.bytes,
                                     i ? "user" : "used"),
                  0);
        free(part.data);
    }
    EXPECT_EQ(p_nvJitLinkComplete(handle), 0);
    EXPECT_EQ((is_lto ? p_nvJitLinkGetLinkedPtxSize : p_nvJitLinkGetLinkedCubinSize)(handle, &image.bytes), 0);
    image.data = (char *)malloc(image.bytes + 1);
    EXPECT_EQ(is_lto ? p_nvJitLinkGetLinkedPtx(handle, image.data) : p_nvJitLinkGetLinkedCubin(handle, image.data), 0);
    image.data[image.bytes] = 0;
    EXPECT_EQ(p_nvJitLinkDestroy(&handle), 0);
    return image;
}

static void run(const void *image)
{
    CUmodule module;
    CUfunction function;
    CUdeviceptr memory;
    int values[COUNT], count = COUNT;
    void *params[] = {&memory, &count};

    CHECK_CU(cuModuleLoadData(&module, image));
    CHECK_CU(cuModuleGetFunction(&function, module, "fill"));
    CHECK_CU(cuMemAlloc(&memory, sizeof(values)));
    CHECK_CU(cuLaunchKernel(function, (COUNT + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
    CHECK_CU(cuMemcpyDtoH(values, memory, sizeof(values)));
    for (int i = 0; i < COUNT; i++)
        EXPECT_EQ(values[i], 2 * i + 5);
    CHECK_CU(cuMemFree(memory));
    CHECK_CU(cuModuleUnload(module));
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    char name[256];
    int major, minor;

    nvrtc = open_toolkit_library("libnvrtc.so", CUDA_VERSION / 1000);
    linker = open_toolkit_library("libnvJitLink.so", CUDA_VERSION / 1000);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDeviceGetName(name, sizeof(name), device));
    CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    snprintf(architecture, sizeof(architecture), "--gpu-architecture=compute_%d%d", major, minor);
    snprintf(link_architecture, sizeof(link_architecture), "-arch=sm_%d%d", major, minor);
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));

    struct image image = link_parts(true);
    run(image.data);
    free(image.data);
    image = link_parts(false);
    if (IS_SOFT_NAME(name))
        EXPECT_CU(cuModuleLoadData(&module, image.data), CUDA_ERROR_NO_BINARY_FOR_GPU);
    else
        run(image.data);
    free(image.data);
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    return 0;
}
#else
int main(void)
{
    SKIP("the toolkit has no headers of nvJitLink and NVRTC");
}
#endif
