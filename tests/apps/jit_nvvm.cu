// A kernel of NVVM's intermediate code, compiled to PTX by libNVVM while the program runs: two modules of which one
// calls the other, what it says of a wrong one, and what the kernel computes.
// nvcc: -lcuda -ldl
#include <cuda.h>
#include "toolkit.h"
#if __has_include(<nvvm.h>)
#include <nvvm.h>

enum { COUNT = 700, THREADS = 96, LIBRARY_MAJOR = 4 };

#define TARGET                                                                                                         \
    "target datalayout = \"e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-"           \
    "f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64\"\n"                                               \
    "target triple = \"nvptx64-nvidia-cuda\"\n"

/* x[i] = scale * x[i] + twice(i), for i < count */
static const char kernel_ir[] = TARGET "declare i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
                                       "declare i32 @llvm.nvvm.read.ptx.sreg.ntid.x()\n"
                                       "declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                                       "declare i32 @twice(i32)\n"
                                       "define void @spread(float* %x, float %scale, i32 %count) {\n"
                                       "entry:\n"
                                       "  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n"
                                       "  %threads = call i32 @llvm.nvvm.read.ptx.sreg.ntid.x()\n"
                                       "  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
                                       "  %first = mul i32 %block, %threads\n"
                                       "  %i = add i32 %first, %thread\n"
                                       "  %is_in = icmp slt i32 %i, %count\n"
                                       "  br i1 %is_in, label %work, label %done\n"
                                       "work:\n"
                                       "  %place = getelementptr float, float* %x, i32 %i\n"
                                       "  %value = load float, float* %place\n"
                                       "  %scaled = fmul float %scale, %value\n"
                                       "  %more = call i32 @twice(i32 %i)\n"
                                       "  %number = sitofp i32 %more to float\n"
                                       "  %sum = fadd float %scaled, %number\n"
                                       "  store float %sum, float* %place\n"
                                       "  br label %done\n"
                                       "done:\n"
                                       "  ret void\n"
                                       "}\n"
                                       "!nvvm.annotations = !{!0}\n"
                                       "!0 = !{void (float*, float, i32)* @spread, !\"kernel\", i32 1}\n"
                                       "!nvvmir.version = !{!1}\n"
                                       "!1 = !{i32 2, i32 0}\n";

static const char function_ir[] = TARGET "define i32 @twice(i32 %x) {\n"
                                         "  %y = mul i32 %x, 2\n"
                                         "  ret i32 %y\n"
                                         "}\n"
                                         "!nvvmir.version = !{!0}\n"
                                         "!0 = !{i32 2, i32 0}\n";

static const char wrong_ir[] = TARGET "define i32 @wrong(i32 %x) {\n"
                                      "  ret i32 %nowhere\n"
                                      "}\n";

static void *library;

static void expect_refusal(const char *architecture)
{
    TOOLKIT_FUNCTION(library, nvvmCreateProgram);
    TOOLKIT_FUNCTION(library, nvvmDestroyProgram);
    TOOLKIT_FUNCTION(library, nvvmAddModuleToProgram);
    TOOLKIT_FUNCTION(library, nvvmCompileProgram);
    TOOLKIT_FUNCTION(library, nvvmGetProgramLogSize);
    TOOLKIT_FUNCTION(library, nvvmGetProgramLog);
    nvvmProgram program;
    char log[4096] = "";
    size_t bytes = 0;

    EXPECT_EQ(p_nvvmCreateProgram(&program), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmAddModuleToProgram(program, wrong_ir, sizeof(wrong_ir) - 1, "wrong"), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmCompileProgram(program, 1, &architecture), NVVM_ERROR_COMPILATION);
    EXPECT_EQ(p_nvvmGetProgramLogSize(program, &bytes), NVVM_SUCCESS);
    EXPECT(bytes > 1 && bytes < sizeof(log), "a log of %zu bytes", bytes);
    EXPECT_EQ(p_nvvmGetProgramLog(program, log), NVVM_SUCCESS);
    EXPECT(strstr(log, "nowhere"), "log: %s", log);
    EXPECT_EQ(p_nvvmDestroyProgram(&program), NVVM_SUCCESS);
}

/* PTX for the device's own generation, of malloc. */
static char *compile(const char *architecture)
{
    TOOLKIT_FUNCTION(library, nvvmCreateProgram);
    TOOLKIT_FUNCTION(library, nvvmDestroyProgram);
    TOOLKIT_FUNCTION(library, nvvmAddModuleToProgram);
    TOOLKIT_FUNCTION(library, nvvmVerifyProgram);
    TOOLKIT_FUNCTION(library, nvvmCompileProgram);
    TOOLKIT_FUNCTION(library, nvvmGetCompiledResultSize);
    TOOLKIT_FUNCTION(library, nvvmGetCompiledResult);
    nvvmProgram program;
    size_t bytes = 0;
    char *ptx;

    EXPECT_EQ(p_nvvmCreateProgram(&program), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmAddModuleToProgram(program, kernel_ir, sizeof(kernel_ir) - 1, "kernel"), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmAddModuleToProgram(program, function_ir, sizeof(function_ir) - 1, "function"), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmVerifyProgram(program, 1, &architecture), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmCompileProgram(program, 1, &architecture), NVVM_SUCCESS);
    EXPECT_EQ(p_nvvmGetCompiledResultSize(program, &bytes), NVVM_SUCCESS);
    ptx = (char *)malloc(bytes);
    EXPECT_EQ(p_nvvmGetCompiledResult(program, ptx), NVVM_SUCCESS);
    EXPECT(strstr(ptx, ".entry spread("), "PTX without the kernel: %s", ptx);
    EXPECT_EQ(p_nvvmDestroyProgram(&program), NVVM_SUCCESS);
    return ptx;
}

static void run(CUfunction function)
{
    CUdeviceptr memory;
    float values[COUNT], scale = 3;
    int count = COUNT - 1;
    void *params[] = {&memory, &scale, &count};

    for (int i = 0; i < COUNT; i++)
        values[i] = (float)(i % 50);
    CHECK_CU(cuMemAlloc(&memory, sizeof(values)));
    CHECK_CU(cuMemcpyHtoD(memory, values, sizeof(values)));
    CHECK_CU(cuLaunchKernel(function, (COUNT + THREADS - 1) / THREADS, 1, 1, THREADS, 1, 1, 0, NULL, params, NULL));
    CHECK_CU(cuMemcpyDtoH(values, memory, sizeof(values)));
    for (int i = 0; i < COUNT - 1; i++)
        EXPECT_EQ(values[i], 3 * (i % 50) + 2 * i);
    EXPECT_EQ(values[COUNT - 1], (COUNT - 1) % 50);
    CHECK_CU(cuMemFree(memory));
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    CUmodule module;
    CUfunction function;
    char architecture[64], *ptx;
    int major, minor;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    CHECK_CU(cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device));
    library = open_toolkit_library("libnvvm.so", LIBRARY_MAJOR);
    snprintf(architecture, sizeof(architecture), "-arch=compute_%d%d", major, minor);
    expect_refusal(architecture);
    ptx = compile(architecture);

    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuModuleLoadData(&module, ptx));
    CHECK_CU(cuModuleGetFunction(&function, module, "spread"));
    run(function);
    CHECK_CU(cuModuleUnload(module));
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    free(ptx);
    return 0;
}
#else
int main(void)
{
    SKIP("the toolkit has no header of NVVM");
}
#endif
