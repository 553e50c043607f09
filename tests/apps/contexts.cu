// Contexts of the driver API: the primary one (retain, state, release, reset), created ones, the stack of current
// contexts, each thread's own, and memory, modules and streams used while another context is current.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>
#include <pthread.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations" // cuCtxAttach, cuCtxDetach

__global__ void set(int *p, int value)
{
    *p = value;
}

static CUcontext primary;

static CUcontext current(void)
{
    CUcontext context = NULL;

    CHECK_CU(cuCtxGetCurrent(&context));
    return context;
}

static void check_primary(CUdevice device)
{
    unsigned flags = 99;
    int active = -1;
    CUcontext again;

    CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT_EQ(active, 0);
    EXPECT(current() == NULL);
    CHECK_CU(cuDevicePrimaryCtxRetain(&primary, device));
    CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT_EQ(active, 1);
    EXPECT(current() == NULL, "retaining does not make it current");
    CHECK_CU(cuDevicePrimaryCtxRetain(&again, device));
    EXPECT(again == primary);
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    CHECK_CU(cuCtxSetCurrent(primary));
    EXPECT(current() == primary);
}

/* A context that is attached to ends with its last use, or when it is destroyed. */
static void check_uses(CUdevice device)
{
    CUcontext a, b, again;
    EXPECT_CU(cuCtxAttach(&again, 1), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuCtxCreate(&a, NULL, 0, device));
    CHECK_CU(cuCtxAttach(&again, 0));
    EXPECT(again == a);
    CHECK_CU(cuCtxCreate(&b, NULL, 0, device));
    EXPECT_CU(cuCtxDetach(a), CUDA_ERROR_INVALID_CONTEXT); /* it is not current */
    CHECK_CU(cuCtxDestroy(b));
    CHECK_CU(cuCtxDetach(a));
    CHECK_CU(cuCtxSynchronize());
    EXPECT(current() == a);
    CHECK_CU(cuCtxDetach(a));
    EXPECT(current() != a);
    EXPECT(cuCtxDestroy(a) != CUDA_SUCCESS, "it has ended");
    EXPECT_CU(cuCtxDetach(NULL), CUDA_ERROR_INVALID_CONTEXT);
}

static void check_stack(CUdevice device)
{
    CUcontext a, b, popped;
    CUdevice of_current = -1;
    unsigned version = 0;
    unsigned long long id_a = 0, id_b = 0;

    CHECK_CU(cuCtxCreate(&a, NULL, 0, device));
    EXPECT(current() == a && a != primary, "a created context is current");
    CHECK_CU(cuCtxCreate(&b, NULL, CU_CTX_SCHED_BLOCKING_SYNC, device));
    EXPECT(current() == b && b != a);
    CHECK_CU(cuCtxGetDevice(&of_current));
    EXPECT_EQ(of_current, device);
    CHECK_CU(cuCtxGetApiVersion(b, &version));
    EXPECT(version > 3000, "%u", version);
    CHECK_CU(cuCtxGetId(a, &id_a));
    CHECK_CU(cuCtxGetId(b, &id_b));
    EXPECT(id_a != id_b);
    CHECK_CU(cuCtxPopCurrent(&popped));
    EXPECT(popped == b && current() == a);
    CHECK_CU(cuCtxPushCurrent(primary));
    EXPECT(current() == primary);
    CHECK_CU(cuCtxPopCurrent(&popped));
    EXPECT(popped == primary && current() == a);
    CHECK_CU(cuCtxDestroy(b));
    EXPECT(current() == a);
    CHECK_CU(cuCtxDestroy(a));
    EXPECT(current() == primary, "destroying the current context pops it");
}

static void check_work_in_created(CUdevice device)
{
    CUcontext context;
    CUdeviceptr p;
    CUstream stream;
    int value = 0;

    CHECK_CU(cuCtxCreate(&context, NULL, 0, device));
    CHECK_CU(cuMemAlloc(&p, 4096));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemsetD32Async(p, 321, 16, stream));
    CHECK_CU(cuStreamSynchronize(stream));
    /* The runtime works in whatever context is current. */
    set<<<1, 1, 0, stream>>>((int *)p + 1, 654);
    CHECK_LAUNCH();
    CHECK_CU(cuCtxSynchronize());
    CHECK(cudaMemcpy(&value, (int *)p + 1, sizeof(value), cudaMemcpyDeviceToHost));
    EXPECT_EQ(value, 654);
    CHECK_CU(cuStreamDestroy(stream));
    CHECK_CU(cuMemFree(p));
    CHECK_CU(cuCtxDestroy(context));
}

static void *other_thread(void *unused)
{
    CUdeviceptr p;

    EXPECT(current() == NULL, "a new thread has no current context");
    EXPECT_CU(cuMemAlloc(&p, 16), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CU(cuCtxPushCurrent(primary));
    CHECK_CU(cuMemAlloc(&p, 16));
    CHECK_CU(cuMemFree(p));
    return NULL;
}

/* A primary context that nobody holds any more is gone, also where it is still current. */
static int released_primary(void)
{
    CUcontext context;
    CUdeviceptr p, base;
    CUevent event;
    size_t bytes;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemAlloc(&p, 64));
    CHECK_CU(cuDevicePrimaryCtxRelease(0));
    EXPECT_CU(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CU(cuMemGetAddressRange(&base, &bytes, p), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    EXPECT_CU(cuEventCreate(&event, 99), CUDA_ERROR_CONTEXT_IS_DESTROYED);
    return 17;
}

/* Natively a context of no special affinity has all SMs; through Flyt, those that the operator has granted. */
static void check_affinity(CUdevice device)
{
    CUexecAffinityParam affinity;
    int sms, is_supported = 77;
    CUcontext context;
    CUctxCreateParams params;

    memset(&affinity, 0, sizeof affinity);
    CHECK_CU(cuDeviceGetAttribute(&sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
    CHECK_CU(cuDeviceGetExecAffinitySupport(&is_supported, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device));
    EXPECT(is_supported == 0 || is_supported == 1, "%d", is_supported);
    EXPECT_CU(cuDeviceGetExecAffinitySupport(NULL, CU_EXEC_AFFINITY_TYPE_SM_COUNT, device), CUDA_ERROR_INVALID_VALUE);
    CUresult result = cuCtxGetExecAffinity(&affinity, CU_EXEC_AFFINITY_TYPE_SM_COUNT);
    EXPECT(result == CUDA_SUCCESS || result == CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY, "%d", result);
    if (result == CUDA_SUCCESS)
        EXPECT_EQ(affinity.param.smCount.val, (unsigned)sms);

    affinity.type = CU_EXEC_AFFINITY_TYPE_SM_COUNT;
    affinity.param.smCount.val = (unsigned)sms;
    memset(&params, 0, sizeof params);
    params.execAffinityParams = &affinity;
    params.numExecAffinityParams = 1;
    EXPECT_CU(cuCtxCreate(&context, &params, 0, device + 999), CUDA_ERROR_INVALID_DEVICE);
    if (!is_supported)
        EXPECT_CU(cuCtxCreate(&context, &params, 0, device), CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY);
    params.numExecAffinityParams = -1;
    CHECK_CU(cuCtxCreate(&context, &params, 0, device)); /* none */
    CHECK_CU(cuCtxDestroy(context));
}

int main(void)
{
    CUdevice device;
    CUcontext popped;
    pthread_t thread;
    int active = -1;
    unsigned flags;
    void *p;

    EXPECT_EQ(run_in_child(released_primary), 17);
    CHECK_CU(cuInit(0));
    CHECK_CU(cuDeviceGet(&device, 0));
    check_primary(device);
    check_uses(device);
    check_stack(device);
    check_work_in_created(device);
    check_affinity(device);
    EXPECT(pthread_create(&thread, NULL, other_thread, NULL) == 0 && pthread_join(thread, NULL) == 0);

    /* The runtime uses the primary context that is current. */
    CHECK(cudaMalloc(&p, 16));
    EXPECT(current() == primary);
    CHECK(cudaFree(p));
    CHECK_CU(cuCtxPopCurrent(&popped));
    EXPECT(current() == NULL);
    EXPECT_CU(cuCtxPopCurrent(&popped), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_CU(cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CU(cuDevicePrimaryCtxReset(device));
    CHECK_CU(cuDevicePrimaryCtxGetState(device, &flags, &active));
    EXPECT_EQ(active, 0);
    return 0;
}
