// nvcc: -lcuda
// Modules that Flyt refuses by name, loaded through the driver API: launches from kernels. The log of the compiler says
// what for.
#include <cuda.h>

#include "check.h"

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

static CUresult load(const void *image, char *log, size_t room)
{
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    void *values[] = {log, (void *)room};
    CUmodule module;

    memset(log, 0, room);
    return cuModuleLoadDataEx(&module, image, 2, options, values);
}

static void expect_refusal(const char *text, const char *words)
{
    char log[1024];

    EXPECT_EQ(load(text, log, sizeof(log)), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(strstr(log, words), "the log of %s: %s", text, log);
}

int main(void)
{
    static const char sound[] = HEAD ".global .u32 x;\n.visible .entry k()\n{\nret;\n}\n";
    CUcontext context;
    CUdevice device;
    CUmodule module;

    if (!is_forwarded())
        SKIP("natively these are supported");
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS);
    EXPECT_EQ(cuDeviceGet(&device, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context, device), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(context), CUDA_SUCCESS);
    expect_refusal(HEAD ".extern .func (.param .b32 r) cudaLaunchDeviceV2(.param .b64 a, .param .b64 s);\n"
                        ".visible .entry k()\n{\n.param .b64 a, s;\n.param .b32 r;\ncall (r), cudaLaunchDeviceV2, (a, "
                        "s);\nret;\n}\n",
                   "device-side launch");
    expect_refusal(HEAD ".extern .func (.param .b64 r) __cudaCDP2GetParameterBufferV2(.param .b64 f);\n",
                   "device-side launch");
    /* In comments and names of the program's own they are nothing. */
    EXPECT_EQ(cuModuleLoadData(&module, sound), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleLoadData(&module, HEAD "// cudaLaunchDevice\n.global .u32 managed;\n"), CUDA_SUCCESS);
    EXPECT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
    return 0;
}
