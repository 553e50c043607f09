// Why an image is refused is in the error log that the program gives, and once on its standard error.
// nvcc: -lcuda
#include <cuda.h>

#include "capture.h"

#define HEAD ".version 8.0\n.target sm_75\n.address_size 64\n"

static const char unknown_instruction[] = HEAD ".visible .entry kernel()\n{\nfrobnicate.u32 1;\nret;\n}\n";
static const char system_function[] =
    HEAD ".extern .func (.param .b32 result) cudaGetParameterBufferV3(.param .b32 x);\n"
         ".visible .entry kernel()\n{\n.reg .b32 %r<2>;\n{\n.param .b32 in;\n.param .b32 out;\nst.param.b32 [in], 1;\n"
         "call.uni (out), cudaGetParameterBufferV3, (in);\n}\nret;\n}\n";

struct refusal {
    CUresult result;
    char log[4096], said[4096];
    size_t log_bytes;
};

/* Loads the image twice; what is said and logged is that of both. */
static struct refusal load_twice(const void *image, bool is_library)
{
    struct refusal refusal = {};
    struct capture capture;
    CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
    CUmodule module;
    CUlibrary library;

    capture_begin(&capture, stderr);
    for (int i = 0; i < 2; i++) {
        void *values[] = {refusal.log, (void *)sizeof(refusal.log)};

        refusal.result = is_library ? cuLibraryLoadData(&library, image, options, values, 2, NULL, NULL, 0)
                                    : cuModuleLoadDataEx(&module, image, 2, options, values);
        refusal.log_bytes = (size_t)values[1];
    }
    capture_end(&capture, refusal.said, sizeof(refusal.said));
    return refusal;
}

static void expect_refusal(const void *image, bool is_library, CUresult result, const char *words)
{
    struct refusal refusal = load_twice(image, is_library);

    EXPECT_EQ(refusal.result, result);
    EXPECT(strstr(refusal.log, words), "'%s' is not in the log: %s", words, refusal.log);
    EXPECT_EQ(refusal.log_bytes, strlen(refusal.log));
    EXPECT(count_of(refusal.said, "\n") == 1 && strstr(refusal.said, words), "not once '%s': %s", words, refusal.said);
}

int main(int argc, char **argv)
{
    char *cubin = read_beside(argv[0], "module.cubin", NULL), name[256];
    CUdevice device;
    CUcontext context;
    int major;

    if (!is_forwarded())
        SKIP("natively the messages are others");
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDeviceGetName(name, sizeof(name), device));
    CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    expect_refusal(unknown_instruction, false, CUDA_ERROR_INVALID_PTX, "frobnicate");
    if (IS_SOFT_NAME(name))
        expect_refusal(system_function, false, CUDA_ERROR_NOT_SUPPORTED, "cudaGetParameterBufferV3");
    if (IS_SOFT_NAME(name) || major != 9)
        expect_refusal(cubin, true, CUDA_ERROR_NO_BINARY_FOR_GPU, "machine code only, no PTX for this device");
    free(cubin);
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    return 0;
}
