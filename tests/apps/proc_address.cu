// cuGetProcAddress and cudaGetDriverEntryPoint give the function that the asked-for version of CUDA had, say why
// there is none, and tell per-thread default stream variants apart.
// nvcc: -lcuda
#include "check.h"
#include "gate.h"
#include <cuda.h>

typedef CUresult (*mem_alloc_fn)(CUdeviceptr *, size_t);
typedef CUresult (*mem_free_fn)(CUdeviceptr);
typedef CUresult (*stream_fn)(CUstream);

static void *find(const char *name, int version, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    void *fn = NULL;

    CHECK_CU(cuGetProcAddress(name, &fn, version, flags, &status));
    EXPECT(fn && status == CU_GET_PROC_ADDRESS_SUCCESS, "%s: status %d", name, status);
    return fn;
}

static void expect_none(const char *name, int version, CUdriverProcAddressQueryResult want)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    void *fn = NULL;

    cuGetProcAddress(name, &fn, version, CU_GET_PROC_ADDRESS_DEFAULT, &status);
    EXPECT(fn == NULL && status == want, "%s: %p, status %d, expected %d", name, fn, status, want);
}

static void check_versions(void)
{
    CUdeviceptr p = 0;
    mem_alloc_fn alloc = (mem_alloc_fn)find("cuMemAlloc", 3020, CU_GET_PROC_ADDRESS_DEFAULT);
    mem_free_fn release = (mem_free_fn)find("cuMemFree", 13000, CU_GET_PROC_ADDRESS_DEFAULT);

    EXPECT((void *)alloc == find("cuMemAlloc", 13000, CU_GET_PROC_ADDRESS_DEFAULT));
    EXPECT((void *)alloc != find("cuMemAlloc", 2000, CU_GET_PROC_ADDRESS_DEFAULT), "cuMemAlloc had 32-bit sizes");
    CHECK_CU(alloc(&p, 4096));
    EXPECT(p > UINT32_MAX, "a 64-bit address");
    CHECK_CU(release(p));
    expect_none("cuLibraryLoadData", 11000, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    expect_none("cuNoSuchFunction", 13000, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

static void check_per_thread(void)
{
    struct gate gate = {};
    stream_fn legacy = (stream_fn)find("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_LEGACY_STREAM);
    stream_fn per_thread = (stream_fn)find("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
    stream_fn synchronize =
        (stream_fn)find("cuStreamSynchronize", 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);

    EXPECT(legacy != per_thread);
    EXPECT((void *)legacy == find("cuStreamQuery", 13000, CU_GET_PROC_ADDRESS_DEFAULT));
    CHECK_CU(cuLaunchHostFunc(CU_STREAM_PER_THREAD, gate_wait, &gate));
    EXPECT_CU(per_thread(0), CUDA_ERROR_NOT_READY);
    gate_open(&gate);
    CHECK_CU(synchronize(0));
    CHECK_CU(per_thread(0));
}

static void check_entry_points(void)
{
    cudaDriverEntryPointQueryResult status = cudaDriverEntryPointSymbolNotFound;
    void *fn = NULL;
    CUdeviceptr p = 0;

    CHECK(cudaGetDriverEntryPointByVersion("cuMemAlloc", &fn, 12000, cudaEnableDefault, &status));
    EXPECT(fn && status == cudaDriverEntryPointSuccess);
    CHECK_CU(((mem_alloc_fn)fn)(&p, 100));
    CHECK(cudaFree((void *)p));
    fn = NULL;
    cudaGetDriverEntryPointByVersion("cuNoSuchFunction", &fn, 12000, cudaEnableDefault, &status);
    EXPECT(fn == NULL && status == cudaDriverEntryPointSymbolNotFound);
    cudaGetLastError();
}

int main(void)
{
    CHECK_CU(cuInit(0));
    CHECK(cudaFree(NULL));
    check_versions();
    check_per_thread();
    check_entry_points();
    return 0;
}
