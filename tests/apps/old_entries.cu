// Entry points that programs reach by dlsym alone, forwarded only: names of before CUDA 4 mean the same as today's, and
// private tables are not served.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

extern "C" {
CUresult CUDAAPI v2_ctx_create(CUcontext *, unsigned, CUdevice) __asm__("cuCtxCreate_v2");
CUresult CUDAAPI v1_ctx_push(CUcontext) __asm__("cuCtxPushCurrent");
CUresult CUDAAPI v1_ctx_pop(CUcontext *) __asm__("cuCtxPopCurrent");
CUresult CUDAAPI v1_ctx_destroy(CUcontext) __asm__("cuCtxDestroy");
CUresult CUDAAPI v1_primary_release(CUdevice) __asm__("cuDevicePrimaryCtxRelease");
CUresult CUDAAPI v1_primary_reset(CUdevice) __asm__("cuDevicePrimaryCtxReset");
CUresult CUDAAPI v1_primary_set_flags(CUdevice, unsigned) __asm__("cuDevicePrimaryCtxSetFlags");
CUresult CUDAAPI v1_alloc_host(void **, unsigned) __asm__("cuMemAllocHost");
}

static void check_contexts(void)
{
    CUcontext context, current, primary;
    unsigned flags = 9;
    int is_active;
    void *host;

    CHECK_CU(cuInit(0));
    CHECK_CU(v2_ctx_create(&context, CU_CTX_SCHED_SPIN, 0));
    CHECK_CU(v1_ctx_pop(&current));
    EXPECT(current == context);
    CHECK_CU(v1_ctx_push(context));
    CHECK_CU(cuCtxGetFlags(&flags));
    EXPECT_EQ(flags, CU_CTX_SCHED_SPIN);
    CHECK_CU(v1_alloc_host(&host, 64));
    memset(host, 1, 64);
    CHECK_CU(cuMemFreeHost(host));
    CHECK_CU(v1_ctx_destroy(context));
    CHECK_CU(v1_primary_set_flags(0, CU_CTX_SCHED_YIELD));
    CHECK_CU(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK_CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    EXPECT(flags == CU_CTX_SCHED_YIELD && is_active);
    CHECK_CU(v1_primary_release(0));
    CHECK_CU(v1_primary_reset(0));
    CHECK_CU(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    EXPECT(!is_active);
}

int main(void)
{
    const void *table = NULL;
    CUuuid id = {};

    if (!is_forwarded())
        SKIP("natively the oldest names have the 32-bit ways of CUDA 3");
    check_contexts();
    EXPECT_CU(cuGetExportTable(&table, &id), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT(!table);
    return 0;
}
