/* What the driver's tests share: kernels as PTX, and a start of the driver. */
#ifndef FLYT_SOFTGPU_DRIVER_TEST_H
#define FLYT_SOFTGPU_DRIVER_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <cuda.h>

#define assert_ok(call) assert_int_equal((call), CUDA_SUCCESS)

#define TEST_KERNEL(name_, body_)                                                                                      \
    ".visible .entry " name_ "(.param .u64 p, .param .u32 v)\n{\n"                                                     \
    ".reg .pred %q;\n.reg .b32 %a, %b, %c;\n.reg .b64 %d, %e;\n"                                                       \
    "ld.param.u64 %d, [p];\ncvta.to.global.u64 %d, %d;\nld.param.u32 %b, [v];\n" body_ "ret;\n}\n"

/* add and mul change a word, spin waits until it is not zero, fault writes where nothing is. */
static const char test_ptx[] =
    ".version 9.0\n.target sm_75\n.address_size 64\n"
    ".global .align 4 .b8 table[64];\n.const .align 4 .b8 weights[16];\n" TEST_KERNEL(
        "add", "ld.global.u32 %a, [%d];\nadd.s32 %a, %a, %b;\nst.global.u32 [%d], %a;\n")
        TEST_KERNEL("mul", "ld.global.u32 %a, [%d];\nmul.lo.s32 %a, %a, %b;\nst.global.u32 [%d], %a;\n")
            TEST_KERNEL("spin", "again:\nld.volatile.global.u32 %a, [%d];\nsetp.eq.s32 %q, %a, 0;\n@%q bra again;\n")
                TEST_KERNEL("fault", "mov.u64 %d, 16;\nst.global.u32 [%d], %b;\n");

/* Starts the driver with the environment's configuration and makes device 0's primary context current. */
static inline void test_start(void)
{
    CUcontext ctx;

    assert_ok(cuInit(0));
    assert_ok(cuDevicePrimaryCtxRetain(&ctx, 0));
    assert_ok(cuCtxSetCurrent(ctx));
}

static inline CUfunction test_kernel(CUlibrary library, const char *name)
{
    CUkernel kernel;

    assert_ok(cuLibraryGetKernel(&kernel, library, name));
    return (CUfunction)kernel;
}

static inline CUlibrary test_library(void)
{
    CUlibrary library;

    assert_ok(cuLibraryLoadData(&library, test_ptx, NULL, NULL, 0, NULL, NULL, 0));
    return library;
}

/* One thread of a test kernel on a word of device memory. */
static inline CUresult test_launch(CUfunction kernel, CUstream stream, CUdeviceptr word, uint32_t value)
{
    void *params[] = {&word, &value};

    return cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL);
}

#endif
