// cuLink*: texts are linked into an image that is loaded like any other; what is missing, defined twice or no PTX is
// refused where NVIDIA's linker refuses it, with its codes, and the log says why.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

extern "C" { // of CUDA 5.5, which mean the same
CUresult CUDAAPI v1_link_create(unsigned, CUjit_option *, void **, CUlinkState *) __asm__("cuLinkCreate");
CUresult CUDAAPI v1_link_add(CUlinkState, CUjitInputType, void *, size_t, const char *, unsigned, CUjit_option *,
                             void **) __asm__("cuLinkAddData");
}

#define HEAD ".version 7.0\n.target sm_75\n.address_size 64\n"

static const char kernel_text[] = HEAD ".extern .func (.param .b32 r) f(.param .b32 x);\n"
                                       ".extern .global .align 4 .u32 shared_value;\n"
                                       ".visible .entry k(.param .u64 out) {\n"
                                       ".reg .b32 %r<4>; .reg .b64 %rd<2>; .param .b32 p; .param .b32 q;\n"
                                       "ld.global.u32 %r1, [shared_value]; st.param.b32 [p], %r1;\n"
                                       "call (q), f, (p); ld.param.b32 %r2, [q];\n"
                                       "ld.param.u64 %rd1, [out]; cvta.to.global.u64 %rd1, %rd1;\n"
                                       "st.global.u32 [%rd1], %r2; ret; }\n";
static const char function_text[] = HEAD ".visible .global .align 4 .u32 shared_value = 40;\n"
                                         ".visible .func (.param .b32 r) f(.param .b32 x) {\n"
                                         ".reg .b32 %r<3>; ld.param.b32 %r1, [x]; add.s32 %r2, %r1, 2;\n"
                                         "st.param.b32 [r], %r2; ret; }\n";

static char error_log[2048], info_log[2048];
static CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, CU_JIT_INFO_LOG_BUFFER,
                                 CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
static void *values[4];

/* NVIDIA's linker has one sentence for each of its errors, but not always the same code. */
#define EXPECT_CONTRADICTION(call)                                                                                     \
    do {                                                                                                               \
        CUresult result_ = (call);                                                                                     \
        EXPECT(result_ == CUDA_ERROR_UNKNOWN || result_ == CUDA_ERROR_INVALID_SOURCE, "%d", (int)result_);             \
    } while (0)

static CUlinkState create(void)
{
    CUlinkState state;

    values[0] = error_log;
    values[1] = (void *)sizeof(error_log);
    values[2] = info_log;
    values[3] = (void *)sizeof(info_log);
    error_log[0] = 0;
    CHECK_CU(cuLinkCreate(4, options, values, &state));
    return state;
}

static CUresult add(CUlinkState state, const char *text, const char *name)
{
    return cuLinkAddData(state, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, name, 0, NULL, NULL);
}

static void use_image(const void *image)
{
    CUmodule module;
    CUfunction kernel;
    CUdeviceptr out, variable;
    size_t bytes;
    int back = 0;
    void *params[] = {&out};

    CHECK_CU(cuModuleLoadData(&module, image));
    CHECK_CU(cuModuleGetFunction(&kernel, module, "k"));
    CHECK_CU(cuModuleGetGlobal(&variable, &bytes, module, "shared_value"));
    EXPECT_EQ(bytes, 4);
    CHECK_CU(cuMemAlloc(&out, 4));
    CHECK_CU(cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
    CHECK_CU(cuMemcpyDtoH(&back, out, 4));
    EXPECT_EQ(back, 42);
    CHECK_CU(cuMemFree(out));
    CHECK_CU(cuModuleUnload(module));
}

static void check_linked(void)
{
    CUlinkState state = create();
    void *image = NULL, *again;
    size_t bytes = 0;

    CHECK_CU(add(state, kernel_text, "kernel"));
    CHECK_CU(add(state, function_text, "function"));
    CHECK_CU(cuLinkComplete(state, &image, &bytes));
    EXPECT(image && bytes > 0, "no image");
    use_image(image);
    EXPECT_EQ((size_t)values[1], 0);
    EXPECT_CU(cuLinkComplete(state, &again, &bytes), CUDA_ERROR_INVALID_HANDLE);
    EXPECT_CU(add(state, function_text, "late"), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuLinkDestroy(state));
}

static void check_first_version(void)
{
    CUlinkState state;
    void *image = NULL;
    size_t bytes = 0;

    CHECK_CU(v1_link_create(0, NULL, NULL, &state));
    for (const char *text : {kernel_text, function_text})
        CHECK_CU(v1_link_add(state, CU_JIT_INPUT_PTX, (void *)text, strlen(text) + 1, "part", 0, NULL, NULL));
    CHECK_CU(cuLinkComplete(state, &image, &bytes));
    use_image(image);
    CHECK_CU(cuLinkDestroy(state));
}

static void check_file(const char *argv0)
{
    CUlinkState state = create();
    const char *slash = strrchr(argv0, '/');
    CUmodule module;
    CUfunction kernel;
    char path[4096];
    void *image;

    snprintf(path, sizeof(path), "%.*smodule.ptx", slash ? (int)(slash - argv0 + 1) : 0, argv0);
    CHECK_CU(cuLinkAddFile(state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL));
    EXPECT_CU(cuLinkAddFile(state, CU_JIT_INPUT_PTX, "/nonexistent/module.ptx", 0, NULL, NULL),
              CUDA_ERROR_FILE_NOT_FOUND);
    CHECK_CU(cuLinkComplete(state, &image, NULL));
    CHECK_CU(cuModuleLoadData(&module, image));
    CHECK_CU(cuModuleGetFunction(&kernel, module, "scale"));
    CHECK_CU(cuModuleUnload(module));
    CHECK_CU(cuLinkDestroy(state));
}

static void check_missing(void)
{
    CUlinkState state = create();
    void *image;

    CHECK_CU(add(state, kernel_text, "kernel"));
    EXPECT_CONTRADICTION(cuLinkComplete(state, &image, NULL));
    EXPECT(strstr(error_log, "Undefined reference to"), "log: %s", error_log);
    EXPECT((size_t)values[1] == strlen(error_log), "%zu, %s", (size_t)values[1], error_log);
    CHECK_CU(cuLinkDestroy(state));
}

static void check_twice(void)
{
    CUlinkState state = create();
    void *image;

    CHECK_CU(add(state, kernel_text, "kernel"));
    CHECK_CU(add(state, function_text, "function"));
    EXPECT_CONTRADICTION(add(state, function_text, "copy"));
    EXPECT(strstr(error_log, "Multiple definition of") && strstr(error_log, "'copy'"), "log: %s", error_log);
    EXPECT_CONTRADICTION(cuLinkComplete(state, &image, NULL));
    CHECK_CU(cuLinkDestroy(state));
}

/* What is no PTX is left out; the rest is linked. */
static void check_left_out(void)
{
    CUlinkState state = create();
    void *image;

    CHECK_CU(add(state, kernel_text, "kernel"));
    EXPECT_CU(add(state, "garbage", "garbage"), CUDA_ERROR_INVALID_IMAGE);
    EXPECT_CU(add(state, HEAD "nonsense", "nonsense"), CUDA_ERROR_INVALID_PTX);
    EXPECT(error_log[0] != 0, "no log");
    EXPECT_CU(add(state, HEAD ".visible .entry other() { frobnicate; }", "unknown"), CUDA_ERROR_INVALID_PTX);
    EXPECT(strstr(error_log, "frobnicate"), "log: %s", error_log);
    CHECK_CU(add(state, function_text, "function"));
    CHECK_CU(cuLinkComplete(state, &image, NULL));
    use_image(image);
    CHECK_CU(cuLinkDestroy(state));
}

int main(int argc, char **argv)
{
    CUdevice device;
    CUcontext context;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    check_linked();
    check_first_version();
    check_file(argv[0]);
    check_missing();
    check_twice();
    check_left_out();
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    return 0;
}
