// What the driver API answers before cuInit, without a context, with the primary context and with created ones.
// behaviour.h says what a row is.
// nvcc: -lcuda -Wno-deprecated-declarations -Xcompiler -Wno-deprecated-declarations
#include "behaviour.h"
#include <cuda.h>
#include <cudaProfiler.h>

/* The entry points of before CUDA 4, which the header's macros hide. */
extern "C" {
CUresult CUDAAPI before_4_ctx_create(CUcontext *, unsigned, CUdevice) __asm__("cuCtxCreate");
CUresult CUDAAPI v3_ctx_create(CUcontext *, CUexecAffinityParam *, int, unsigned, CUdevice) __asm__("cuCtxCreate_v3");
CUresult CUDAAPI before_4_ctx_destroy(CUcontext) __asm__("cuCtxDestroy");
}

static const char ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 4 .u32 g[4];\n"
                          ".visible .entry k(.param .u64 p, .param .u32 n)\n{\nret;\n}\n";

static void CUDA_CB nothing(void *unused)
{
}

static void before_init(void)
{
    CUcontext context;
    CUdevice device;
    CUdeviceptr memory;
    CUmoduleLoadingMode loading;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    int value = 0;

    DR(1, cuDriverGetVersion(NULL));
    DR(0, cuDriverGetVersion(&value));
    IS(1, value >= 13000);
    DR(3, cuDeviceGetCount(&value));
    DR(3, cuDeviceGetCount(NULL));
    DR(3, cuDeviceGet(&device, 0));
    DR(3, cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
    DR(3, cuCtxGetCurrent(&context));
    DR(3, cuCtxGetCurrent(NULL));
    DR(3, cuCtxGetDevice(&device));
    DR(3, cuCtxSetCurrent(NULL));
    DR(3, cuDevicePrimaryCtxRetain(&context, 0));
    DR(3, cuMemAlloc(&memory, 4));
    DR(3, cuMemAlloc(NULL, 4));
    DR(3, cuMemFree(0));
    DR(3, cuMemFreeHost(NULL));
    DR(3, cuStreamQuery(NULL));
    DR(400, cuEventDestroy(NULL));
    DR(400, cuStreamDestroy(NULL));
    DR(3, cuModuleUnload(NULL));
    DR(1, cuCtxDestroy(NULL));
    DR(3, cuProfilerStart());
    DR(3, cuModuleGetLoadingMode(&loading));
    DR(3, cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&value));
    DR(3, cuThreadExchangeStreamCaptureMode(&mode));
    DR(1, cuInit(1));
    DR(0, cuInit(0));
    DR(1, cuInit(7));
    DR(0, cuInit(0));
}

static void no_context(void)
{
    CUcontext context = NULL;
    CUdevice device;
    CUdeviceptr memory = 0, base;
    CUfunc_cache cache;
    CUsharedconfig banks;
    CUstream stream;
    CUevent event;
    CUmodule module = NULL;
    CUfunction function = NULL;
    CUlibrary library;
    CUkernel kernel;
    CUstreamCaptureStatus status;
    void *host;
    size_t bytes, more;
    unsigned flags;
    unsigned long long id;
    int value, other;

    CHECK_CU(cuInit(0));
    DR(1, cuCtxGetCurrent(NULL));
    DR(0, cuCtxGetCurrent(&context));
    IS(1, context == NULL);
    DR(201, cuCtxGetDevice(&device));
    DR(1, cuCtxGetDevice(NULL));
    DR(201, cuCtxPopCurrent(&context));
    DR(201, cuCtxPopCurrent(NULL));
    DR(1, cuCtxPushCurrent(NULL));
    DR(0, cuCtxSetCurrent(NULL));
    DR(201, cuCtxSynchronize());
    DR(201, cuCtxSynchronize_v2(NULL));
    DR(201, cuCtxGetDevice_v2(&device, NULL));
    DR(201, cuCtxGetFlags(&flags));
    DR(1, cuCtxGetFlags(NULL));
    DR(201, cuCtxSetFlags(0));
    DR(201, cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
    DR(201, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096));
    DR(201, cuCtxGetCacheConfig(&cache));
    DR(201, cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    DR(201, cuCtxGetSharedMemConfig(&banks));
    DR(201, cuCtxGetStreamPriorityRange(&value, &other));
    DR(201, cuCtxGetApiVersion(NULL, &flags));
    DR(201, cuCtxGetId(NULL, &id));
    DR(201, cuMemAlloc(&memory, 4));
    DR(201, cuMemAlloc(NULL, 4));
    DR(201, cuMemAlloc(&memory, 0));
    DR(0, cuMemFree(0));
    DR(1, cuMemFree(5));
    DR(201, cuMemGetInfo(&bytes, &more));
    DR(201, cuMemAllocHost(&host, 4));
    DR(201, cuMemHostAlloc(&host, 4, 0));
    DR(0, cuMemFreeHost(NULL));
    DR(201, cuMemHostRegister(&bytes, 4, 0));
    DR(713, cuMemHostUnregister(&bytes));
    DR(201, cuMemcpyHtoD(0, &value, 4));
    DR(201, cuMemcpyDtoH(&value, 0, 4));
    DR(201, cuMemcpy(0, 0, 4));
    DR(201, cuMemsetD8(0, 0, 4));
    DR(201, cuMemGetAddressRange(&base, &bytes, memory));
    DR(1, cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&value));
    DR(201, cuStreamCreate(&stream, 0));
    DR(1, cuStreamCreate(NULL, 0));
    DR(201, cuStreamQuery(NULL));
    DR(201, cuStreamSynchronize(NULL));
    DR(201, cuStreamIsCapturing(NULL, &status));
    DR(400, cuStreamDestroy(NULL));
    DR(201, cuEventCreate(&event, 0));
    DR(400, cuEventDestroy(NULL));
    DR(400, cuEventQuery(NULL));
    DR(201, cuModuleLoadData(&module, ptx));
    DR(201, cuModuleLoadData(NULL, ptx));
    DR(201, cuModuleLoadData(&module, NULL));
    DR(400, cuModuleUnload(NULL));
    DR(400, cuModuleGetFunction(&function, NULL, "k"));
    DR(201, cuLaunchKernel(NULL, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    DR(201, cuLaunchHostFunc(NULL, nothing, NULL));
    DR(201, cuProfilerStart());
    DR(201, cuProfilerStop());
    DR(201, cuOccupancyMaxActiveBlocksPerMultiprocessor(&value, function, 32, 0));
    DR(0, cuLibraryLoadData(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    DR(0, cuLibraryGetKernel(&kernel, library, "k"));
    DR(500, cuLibraryGetKernel(&kernel, library, "nope"));
    DR(201, cuKernelGetFunction(&function, kernel));
    DR(201, cuLibraryGetModule(&module, library));
    DR(0, cuKernelGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
    IS(1024, value);
    DR(201, cuLibraryGetGlobal(&memory, &bytes, library, "g"));
    DR(0, cuLibraryUnload(library));
}

static void primary_states(void)
{
    CUcontext context, other;
    CUdevice device;
    CUdeviceptr memory;
    unsigned flags = 9;
    int is_active = 9;

    CHECK_CU(cuInit(0));
    DR(201, cuDevicePrimaryCtxRelease(0));
    DR(0, cuDevicePrimaryCtxReset(0));
    DR(101, cuDevicePrimaryCtxReset(99));
    DR(101, cuDevicePrimaryCtxRelease(99));
    DR(0, cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    IS(0, flags);
    IS(0, is_active);
    DR(101, cuDevicePrimaryCtxGetState(99, &flags, &is_active));
    DR(1, cuDevicePrimaryCtxGetState(0, NULL, NULL));
    DR(1, cuDevicePrimaryCtxGetState(0, &flags, NULL));
    DR(1, cuDevicePrimaryCtxSetFlags(0, 99));
    DR(101, cuDevicePrimaryCtxSetFlags(99, 0));
    DR(0, cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
    DR(1, cuDevicePrimaryCtxRetain(NULL, 0));
    DR(101, cuDevicePrimaryCtxRetain(&context, 99));
    DR(101, cuDevicePrimaryCtxRetain(&context, -1));
    DR(0, cuDevicePrimaryCtxRetain(&context, 0));
    DR(0, cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    IS(CU_CTX_SCHED_BLOCKING_SYNC, flags);
    IS(1, is_active);
    DR(0, cuDevicePrimaryCtxSetFlags(0, 0));
    DR(0, cuCtxSetCurrent(context));
    DR(0, cuDevicePrimaryCtxRelease(0));
    /* Released for the last time while it was current: it is still there, but nothing of it can be used. */
    DR(201, cuDevicePrimaryCtxRelease(0));
    DR(0, cuCtxGetDevice(&device));
    DR(0, cuCtxGetCurrent(&other));
    IS(1, other == context);
    DR(709, cuMemAlloc(&memory, 4));
    DR(0, cuDevicePrimaryCtxRetain(&other, 0));
    IS(1, other == context);
    DR(0, cuCtxSetCurrent(other));
    DR(0, cuMemAlloc(&memory, 4));
    DR(201, cuCtxDestroy(other));
    DR(1, cuCtxDestroy(NULL));
    DR(0, cuDevicePrimaryCtxReset(0));
    DR(0, cuCtxGetCurrent(&other));
    IS(1, other == context);
    DR(709, cuMemAlloc(&memory, 4));
    DR(0, cuDevicePrimaryCtxGetState(0, &flags, &is_active));
    IS(0, flags);
    IS(0, is_active);
    DR(0, cuDevicePrimaryCtxRetain(&other, 0));
    DR(0, cuMemAlloc(&memory, 4));
}

/* What calls say of a primary context that was released and is still current. */
static void after_release(void)
{
    CUcontext context, other;
    CUdevice device;
    CUdeviceptr memory, base;
    CUfunc_cache cache;
    CUsharedconfig banks;
    CUstream stream, made;
    CUevent event, made_event;
    CUmodule module = NULL, loaded;
    CUfunction function;
    void *host, *more;
    size_t bytes, total;
    unsigned flags;
    unsigned long long id;
    int value, least;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemAlloc(&memory, 64));
    CHECK_CU(cuMemAllocHost(&host, 64));
    CHECK_CU(cuStreamCreate(&stream, 0));
    CHECK_CU(cuEventCreate(&event, 0));
    CHECK_CU(cuModuleLoadData(&module, ptx));
    CHECK_CU(cuModuleGetFunction(&function, module, "k"));
    DR(0, cuDevicePrimaryCtxRelease(0));
    DR(709, cuCtxSynchronize());
    DR(0, cuCtxGetFlags(&flags));
    DR(709, cuCtxGetLimit(&bytes, CU_LIMIT_STACK_SIZE));
    DR(709, cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048));
    DR(709, cuCtxGetCacheConfig(&cache));
    DR(709, cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_L1));
    DR(709, cuCtxGetSharedMemConfig(&banks));
    DR(709, cuCtxGetStreamPriorityRange(&value, &least));
    DR(709, cuCtxGetApiVersion(NULL, &flags));
    DR(709, cuCtxGetId(NULL, &id));
    DR(709, cuMemGetInfo(&bytes, &total));
    DR(709, cuMemHostAlloc(&more, 64, 0));
    DR(709, cuMemGetAddressRange(&base, &bytes, memory));
    DR(709, cuMemcpyHtoD(memory, &value, 4));
    DR(709, cuMemsetD8(memory, 0, 4));
    DR(709, cuMemFree(0));
    DR(709, cuMemFree(memory));
    DR(709, cuMemFreeHost(host));
    DR(709, cuStreamDestroy(stream));
    DR(709, cuStreamQuery(stream));
    DR(709, cuEventQuery(event));
    DR(709, cuEventDestroy(event));
    DR(709, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    DR(400, cuModuleUnload(module));
    DR(709, cuStreamCreate(&made, 0));
    DR(709, cuStreamQuery(NULL));
    DR(709, cuStreamSynchronize(NULL));
    DR(709, cuEventCreate(&made_event, 0));
    DR(709, cuModuleLoadData(&loaded, ptx));
    DR(709, cuProfilerStart());
    DR(1, cuStreamCreate(&made, 9));
    DR(0, cuCtxGetCurrent(&other));
    DR(0, cuCtxPopCurrent(&other));
    IS(1, other == context);
    DR(201, cuMemAlloc(&memory, 4));
    DR(0, cuCtxPushCurrent(context));
    DR(709, cuMemAlloc(&memory, 4));
    DR(0, cuCtxSetCurrent(context));
    DR(201, cuCtxGetApiVersion(context, &flags));
    DR(709, cuCtxGetId(context, &id));
    DR(0, cuCtxGetDevice_v2(&device, context));
    DR(709, cuCtxSynchronize_v2(context));
}

static void primary_context(void)
{
    CUcontext context;
    CUdevice device;
    CUfunc_cache cache;
    CUsharedconfig banks;
    size_t value = 0;
    unsigned number = 0;
    unsigned long long id = 0, same_id = 0;
    int least = 9, greatest = 9;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    DR(0, cuCtxGetApiVersion(context, &number));
    IS(3020, number);
    DR(0, cuCtxGetApiVersion(NULL, &number));
    IS(3020, number);
    DR(1, cuCtxGetApiVersion(context, NULL));
    DR(0, cuCtxGetId(context, &id));
    DR(0, cuCtxGetId(NULL, &same_id));
    IS(id, same_id);
    DR(1, cuCtxGetId(NULL, NULL));
    DR(1, cuCtxGetDevice(NULL));
    DR(0, cuCtxGetDevice_v2(&device, NULL));
    DR(1, cuCtxGetDevice_v2(NULL, NULL));
    DR(0, cuCtxPushCurrent(context));
    DR(0, cuCtxPopCurrent(NULL));
    DR(0, cuCtxGetCacheConfig(&cache));
    IS(CU_FUNC_CACHE_PREFER_NONE, cache);
    DR(1, cuCtxGetCacheConfig(NULL));
    DR(1, cuCtxSetCacheConfig((CUfunc_cache)9));
    DR(0, cuCtxSetCacheConfig(CU_FUNC_CACHE_PREFER_SHARED));
    DR(0, cuCtxGetCacheConfig(&cache));
    IS(CU_FUNC_CACHE_PREFER_SHARED, cache);
    DR(0, cuCtxGetSharedMemConfig(&banks));
    IS(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE, banks);
    DR(1, cuCtxGetSharedMemConfig(NULL));
    DR(0, cuCtxSetSharedMemConfig(CU_SHARED_MEM_CONFIG_FOUR_BYTE_BANK_SIZE));
    DR(1, cuCtxSetSharedMemConfig((CUsharedconfig)9));
    DR(0, cuCtxGetStreamPriorityRange(NULL, NULL));
    DR(0, cuCtxGetStreamPriorityRange(&least, &greatest));
    IS(0, least);
    IS(1, greatest < 0);
    DR(1, cuCtxSetFlags(99));
    DR(0, cuCtxSetFlags(0));
    DR(1, cuCtxGetLimit(NULL, CU_LIMIT_STACK_SIZE));
    DR(1, cuCtxGetLimit(&value, (CUlimit)99));
    DR(1, cuCtxSetLimit((CUlimit)99, 1));
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE));
    IS(1024, value);
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE));
    IS(8388608, value);
    DR(215, cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH));
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT));
    IS(2048, value);
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_MAX_L2_FETCH_GRANULARITY));
    IS(64, value);
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_PERSISTING_L2_CACHE_SIZE));
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_SHMEM_SIZE));
    DR(0, cuCtxGetLimit(&value, CU_LIMIT_CIG_ENABLED));
    IS(0, value);
    DR(215, cuCtxGetLimit(&value, CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED));
    DR(215, cuCtxSetLimit(CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH, 2));
    DR(800, cuCtxSetLimit(CU_LIMIT_SHMEM_SIZE, 1));
    DR(800, cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1));
    DR(217, cuCtxEnablePeerAccess(context, 0));
    DR(201, cuCtxEnablePeerAccess(NULL, 0));
    DR(705, cuCtxDisablePeerAccess(context));
    DR(201, cuCtxDisablePeerAccess(NULL));
}

static void created_contexts(void)
{
    CUcontext primary, context, popped, current;
    CUctxCreateParams parameters = {};
    CUdevice device;
    CUdeviceptr memory;
    CUstream stream, other;
    CUevent event;
    unsigned number = 0;
    int value = 5;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&primary, 0));
    CHECK_CU(cuCtxSetCurrent(primary));
    CHECK_CU(cuMemAlloc(&memory, 64));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuEventCreate(&event, 0));
    DR(1, before_4_ctx_create(NULL, 0, 0));
    DR(101, before_4_ctx_create(&context, 0, 99));
    DR(1, before_4_ctx_create(&context, 99, 0));
    DR(1, before_4_ctx_create(&context, 0x100, 0));
    DR(1, cuCtxCreate(NULL, NULL, 0, 0));
    DR(1, cuCtxCreate(&context, NULL, 99, 0));
    DR(101, cuCtxCreate(&context, NULL, 0, 99));
    DR(0, cuCtxCreate(&context, NULL, CU_CTX_SCHED_BLOCKING_SYNC, 0));
    DR(0, cuCtxGetCurrent(&current));
    IS(1, current == context);
    DR(0, cuCtxGetFlags(&number));
    IS(CU_CTX_SCHED_BLOCKING_SYNC, number);
    DR(0, cuCtxGetApiVersion(context, &number));
    IS(3020, number);
    /* Streams and events work from another context; an event is recorded in streams of its own alone. */
    DR(0, cuStreamSynchronize(stream));
    DR(0, cuEventQuery(event));
    DR(0, cuMemcpyHtoD(memory, &value, 4));
    DR(400, cuEventRecord(event, NULL));
    DR(0, cuEventRecord(event, stream));
    CHECK_CU(cuStreamCreate(&other, 0));
    DR(400, cuEventRecord(event, other));
    DR(0, cuStreamWaitEvent(other, event, 0));
    DR(0, cuStreamGetCtx(other, &current));
    IS(1, current == context);
    DR(0, cuStreamGetCtx(stream, &current));
    IS(1, current == primary);
    DR(0, cuCtxSynchronize_v2(primary));
    DR(0, cuCtxGetDevice_v2(&device, primary));
    DR(0, cuCtxGetDevice_v2(&device, NULL));
    DR(0, cuCtxDestroy(context));
    DR(0, cuCtxGetCurrent(&current));
    IS(1, current == primary);
    DR(0, cuCtxCreate(&context, &parameters, 0, 0));
    DR(0, cuCtxPopCurrent(&popped));
    IS(1, popped == context);
    DR(0, cuCtxDestroy(context));
    DR(0, v3_ctx_create(&context, NULL, 0, 0, 0));
    DR(0, cuCtxDestroy(context));
    DR(1, before_4_ctx_destroy(NULL));
    DR(0, cuMemFree(memory));
    DR(1, cuMemFree(memory));
    DR(0, cuStreamDestroy(stream));
    DR(0, cuEventDestroy(event));
}

/* A context that is destroyed while it is current elsewhere in the stack: calls say that it is gone. */
static void destroyed_contexts(void)
{
    CUcontext first, second, current;
    CUdeviceptr memory;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuCtxCreate(&first, NULL, 0, 0));
    CHECK_CU(cuCtxCreate(&second, NULL, 0, 0));
    DR(0, cuCtxDestroy(first));
    DR(0, cuMemAlloc(&memory, 4));
    DR(0, cuCtxPopCurrent(&current));
    IS(1, current == second);
    DR(709, cuMemAlloc(&memory, 4));
    DR(709, cuCtxSynchronize());
    DR(0, cuCtxGetCurrent(&current));
    IS(1, current == first);
    DR(0, cuCtxSetCurrent(second));
    DR(0, cuMemAlloc(&memory, 4));
    DR(0, cuCtxDestroy(second));
    DR(0, cuCtxGetCurrent(&current));
    IS(1, current == NULL);
    DR(201, cuMemAlloc(&memory, 4));
}

BEHAVIOUR_MAIN({"before cuInit", before_init}, {"no context", no_context}, {"primary states", primary_states},
               {"after release", after_release}, {"primary context", primary_context},
               {"created contexts", created_contexts}, {"destroyed contexts", destroyed_contexts})
