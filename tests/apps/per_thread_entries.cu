// Every entry point that has a variant for the per-thread default stream (_ptds, _ptsz), in both APIs, with stream 0:
// while a blocking stream is held, each must get through, for the per-thread stream does not wait for it. A variant
// that used the legacy default stream would wait for ever.
// nvcc: --default-stream per-thread -lcuda -Wno-deprecated-declarations -Xcompiler -Wno-deprecated-declarations
#include "check.h"
#include "gate.h"
#include <cuda.h>

/* Entry points that the header's macros hide. */
extern "C" {
CUresult CUDAAPI v1_capture_info(CUstream, CUstreamCaptureStatus *,
                                 cuuint64_t *) __asm__("cuStreamGetCaptureInfo_ptsz");
CUresult CUDAAPI v2_capture_info(CUstream, CUstreamCaptureStatus *, cuuint64_t *, CUgraph *, const CUgraphNode **,
                                 size_t *) __asm__("cuStreamGetCaptureInfo_v2_ptsz");
CUresult CUDAAPI v1_stream_ctx(CUstream, CUcontext *) __asm__("cuStreamGetCtx_ptsz");
CUresult CUDAAPI v2_stream_ctx(CUstream, CUcontext *, CUgreenCtx *) __asm__("cuStreamGetCtx_v2_ptsz");
}

__device__ int variable;

__global__ void set(int *p, int value)
{
    *p = value;
}

static int host_functions_run;

static void CUDART_CB count_host_function(void *unused)
{
    __atomic_add_fetch(&host_functions_run, 1, __ATOMIC_SEQ_CST);
}

static void CUDART_CB count_callback(cudaStream_t stream, cudaError_t status, void *unused)
{
    count_host_function(NULL);
}

static void CUDA_CB count_driver_callback(CUstream stream, CUresult status, void *unused)
{
    count_host_function(NULL);
}

static void runtime_copies(char *device, char *host)
{
    cudaMemcpy3DParms p = {};
    cudaMemcpy3DPeerParms peer = {};
    int value = 5, back = 0;

    CHECK(cudaMemcpy(device, &value, sizeof(value), cudaMemcpyHostToDevice));
    CHECK(cudaMemcpyAsync(host, device, sizeof(value), cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(*(int *)host, 5);
    CHECK(cudaMemcpy2D(device + 64, 16, host, 8, 8, 2, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy2DAsync(device + 64, 16, host, 8, 8, 2, cudaMemcpyHostToDevice, 0));
    p.srcPtr = make_cudaPitchedPtr(host, 8, 8, 2);
    p.dstPtr = make_cudaPitchedPtr(device, 8, 8, 2);
    p.extent = make_cudaExtent(8, 2, 2);
    p.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&p));
    CHECK(cudaMemcpy3DAsync(&p, 0));
    peer.srcPtr = make_cudaPitchedPtr(device + 512, 8, 8, 2);
    peer.dstPtr = make_cudaPitchedPtr(device, 8, 8, 2);
    peer.extent = make_cudaExtent(8, 2, 2);
    CHECK(cudaMemcpy3DPeer(&peer));
    CHECK(cudaMemcpy3DPeerAsync(&peer, 0));
    CHECK(cudaStreamSynchronize(0));
    CHECK(cudaMemset(device, 1, 4));
    CHECK(cudaMemsetAsync(device, 2, 4, 0));
    CHECK(cudaMemset2D(device, 8, 3, 4, 2));
    CHECK(cudaMemset2DAsync(device, 8, 3, 4, 2, 0));
    CHECK(cudaMemset3D(make_cudaPitchedPtr(device, 8, 8, 2), 4, make_cudaExtent(4, 2, 2)));
    CHECK(cudaMemset3DAsync(make_cudaPitchedPtr(device, 8, 8, 2), 5, make_cudaExtent(4, 2, 2), 0));
    CHECK(cudaMemcpy(&back, device, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 0x05050505);
    value = 77;
    CHECK(cudaMemcpyToSymbol(variable, &value, sizeof(value)));
    CHECK(cudaMemcpyFromSymbol(&back, variable, sizeof(back)));
    EXPECT_EQ(back, 77);
    value = 78;
    CHECK(cudaMemcpyToSymbolAsync(variable, &value, sizeof(value), 0, cudaMemcpyHostToDevice, 0));
    CHECK(cudaMemcpyFromSymbolAsync(host, variable, sizeof(back), 0, cudaMemcpyDeviceToHost, 0));
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(*(int *)host, 78);
}

static void runtime_streams(int *device, cudaEvent_t event)
{
    int value = 9;
    void *arguments[] = {&device, &value};
    cudaLaunchConfig_t config = {};
    cudaStreamCaptureStatus status;
    unsigned long long id, per_thread_id;
    unsigned flags;
    int number, back = 0;

    CHECK(cudaLaunchKernel((const void *)set, dim3(1), dim3(1), arguments, 0, 0));
    CHECK(cudaLaunchCooperativeKernel((const void *)set, dim3(1), dim3(1), arguments, 0, 0));
    value = 10;
    config.gridDim = config.blockDim = dim3(1);
    CHECK(cudaLaunchKernelExC(&config, (const void *)set, arguments));
    CHECK(cudaEventRecord(event, 0));
    CHECK(cudaEventSynchronize(event));
    CHECK(cudaEventRecordWithFlags(event, 0, 0));
    CHECK(cudaStreamWaitEvent(0, event, 0));
    CHECK(cudaStreamSynchronize(0));
    CHECK(cudaStreamQuery(0));
    CHECK(cudaMemcpy(&back, device, sizeof(back), cudaMemcpyDeviceToHost));
    EXPECT_EQ(back, 10);
    CHECK(cudaStreamGetFlags(0, &flags));
    CHECK(cudaStreamGetPriority(0, &number));
    CHECK(cudaStreamGetDevice(0, &number));
    CHECK(cudaStreamGetId(0, &id));
    CHECK(cudaStreamGetId(cudaStreamPerThread, &per_thread_id));
    EXPECT_EQ(id, per_thread_id);
    CHECK(cudaStreamIsCapturing(0, &status));
    EXPECT_EQ(status, 0);
    CHECK(cudaStreamGetCaptureInfo(0, &status, &id));
}

static void runtime_entry_points(void)
{
    cudaDriverEntryPointQueryResult status;
    void *entry = NULL, *same = NULL;

    CHECK(cudaGetDriverEntryPointByVersion("cuStreamQuery", &entry, 12000, cudaEnableDefault, &status));
    EXPECT_EQ(status, cudaDriverEntryPointSuccess);
    CHECK(cudaGetDriverEntryPointByVersion("cuStreamQuery", &same, 12000, cudaEnablePerThreadDefaultStream, &status));
    EXPECT(entry == same, "by default a program of this kind gets the per-thread variant");
    CHECK_CU(((CUresult(*)(CUstream))entry)(NULL));
    CHECK(cudaGetDriverEntryPoint("cuStreamQuery", &same, cudaEnableDefault, &status));
    EXPECT(entry == same);
}

static void driver_copies(CUdeviceptr device, char *host, CUcontext context)
{
    CUDA_MEMCPY2D two = {};
    CUDA_MEMCPY3D three = {};
    CUDA_MEMCPY3D_PEER peer = {};
    int value = 6, back = 0;

    CHECK_CU(cuMemcpyHtoD(device, &value, 4));
    CHECK_CU(cuMemcpyDtoH(&back, device, 4));
    EXPECT_EQ(back, 6);
    CHECK_CU(cuMemcpyDtoD(device + 8, device, 4));
    CHECK_CU(cuMemcpy(device, device + 8, 4));
    CHECK_CU(cuMemcpyAsync(device, device + 8, 4, NULL));
    CHECK_CU(cuMemcpyHtoDAsync(device, host, 4, NULL));
    CHECK_CU(cuMemcpyDtoHAsync(host, device, 4, NULL));
    CHECK_CU(cuMemcpyDtoDAsync(device + 8, device, 4, NULL));
    CHECK_CU(cuMemcpyPeer(device, context, device + 8, context, 4));
    CHECK_CU(cuMemcpyPeerAsync(device, context, device + 8, context, 4, NULL));
    two.srcMemoryType = CU_MEMORYTYPE_HOST;
    two.srcHost = host;
    two.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    two.dstDevice = device;
    two.WidthInBytes = two.srcPitch = two.dstPitch = 8;
    two.Height = 2;
    CHECK_CU(cuMemcpy2D(&two));
    CHECK_CU(cuMemcpy2DUnaligned(&two));
    CHECK_CU(cuMemcpy2DAsync(&two, NULL));
    three.srcMemoryType = CU_MEMORYTYPE_HOST;
    three.srcHost = host;
    three.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    three.dstDevice = device;
    three.WidthInBytes = three.srcPitch = three.dstPitch = 8;
    three.Height = three.srcHeight = three.dstHeight = three.Depth = 2;
    CHECK_CU(cuMemcpy3D(&three));
    CHECK_CU(cuMemcpy3DAsync(&three, NULL));
    peer.srcMemoryType = peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    peer.srcDevice = device + 512;
    peer.dstDevice = device;
    peer.srcContext = peer.dstContext = context;
    peer.WidthInBytes = peer.srcPitch = peer.dstPitch = 8;
    peer.Height = peer.srcHeight = peer.dstHeight = peer.Depth = 2;
    CHECK_CU(cuMemcpy3DPeer(&peer));
    CHECK_CU(cuMemcpy3DPeerAsync(&peer, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
}

static void driver_fills(CUdeviceptr device)
{
    int back = 0;

    CHECK_CU(cuMemsetD8(device, 1, 4));
    CHECK_CU(cuMemsetD16(device, 1, 2));
    CHECK_CU(cuMemsetD32(device, 1, 1));
    CHECK_CU(cuMemsetD2D8(device, 16, 1, 4, 2));
    CHECK_CU(cuMemsetD2D16(device, 16, 1, 4, 2));
    CHECK_CU(cuMemsetD2D32(device, 16, 1, 4, 2));
    CHECK_CU(cuMemsetD8Async(device, 2, 4, NULL));
    CHECK_CU(cuMemsetD16Async(device, 2, 2, NULL));
    CHECK_CU(cuMemsetD32Async(device, 2, 1, NULL));
    CHECK_CU(cuMemsetD2D8Async(device, 16, 2, 4, 2, NULL));
    CHECK_CU(cuMemsetD2D16Async(device, 16, 2, 4, 2, NULL));
    CHECK_CU(cuMemsetD2D32Async(device, 16, 3, 4, 2, NULL));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK_CU(cuMemcpyDtoH(&back, device, 4));
    EXPECT_EQ(back, 3);
}

static void driver_streams(CUdeviceptr device, CUevent event, CUfunction function, CUcontext context)
{
    int value = 11, back = 0, number;
    void *arguments[] = {&device, &value};
    CUlaunchConfig config = {};
    CUstreamCaptureStatus status;
    CUcontext found = NULL;
    CUgreenCtx green = NULL;
    cuuint64_t capture_id;
    unsigned long long id, per_thread_id;
    unsigned flags;
    CUdevice ordinal;

    CHECK_CU(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL));
    CHECK_CU(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, arguments));
    config.gridDimX = config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    value = 12;
    CHECK_CU(cuLaunchKernelEx(&config, function, arguments, NULL));
    CHECK_CU(cuEventRecord(event, NULL));
    CHECK_CU(cuEventSynchronize(event));
    CHECK_CU(cuEventRecordWithFlags(event, NULL, 0));
    CHECK_CU(cuStreamWaitEvent(NULL, event, 0));
    CHECK_CU(cuStreamSynchronize(NULL));
    CHECK_CU(cuStreamQuery(NULL));
    CHECK_CU(cuMemcpyDtoH(&back, device, 4));
    EXPECT_EQ(back, 12);
    CHECK_CU(cuStreamGetFlags(NULL, &flags));
    CHECK_CU(cuStreamGetPriority(NULL, &number));
    CHECK_CU(cuStreamGetDevice(NULL, &ordinal));
    CHECK_CU(cuStreamGetId(NULL, &id));
    CHECK_CU(cuStreamGetId(CU_STREAM_PER_THREAD, &per_thread_id));
    EXPECT_EQ(id, per_thread_id);
    CHECK_CU(v1_stream_ctx(NULL, &found));
    EXPECT(found == context);
    CHECK_CU(v2_stream_ctx(NULL, &found, &green));
    EXPECT(found == context && !green);
    CHECK_CU(cuStreamIsCapturing(NULL, &status));
    CHECK_CU(v1_capture_info(NULL, &status, &capture_id));
    CHECK_CU(v2_capture_info(NULL, &status, &capture_id, NULL, NULL, NULL));
    CHECK_CU(cuStreamGetCaptureInfo(NULL, &status, &capture_id, NULL, NULL, NULL, NULL));
}

/* Those of several streams may share one thread, which stands at the gate: they run when it is open. */
static void host_functions(void)
{
    CHECK(cudaLaunchHostFunc(0, count_host_function, NULL));
    CHECK(cudaStreamAddCallback(0, count_callback, NULL, 0));
    CHECK_CU(cuLaunchHostFunc(NULL, count_host_function, NULL));
    CHECK_CU(cuStreamAddCallback(NULL, count_driver_callback, NULL, 0));
}

int main(void)
{
    struct gate gate = {};
    cudaStream_t held;
    cudaEvent_t event;
    cudaFunction_t function;
    CUcontext context;
    char *device, *host;

    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaMemset(device, 0, 4096));
    CHECK(cudaMallocHost(&host, 4096));
    memset(host, 0, 4096);
    CHECK(cudaEventCreate(&event));
    CHECK(cudaStreamCreate(&held));
    CHECK(cudaGetFuncBySymbol(&function, (const void *)set));
    CHECK_CU(cuCtxGetCurrent(&context));
    CHECK(cudaDeviceSynchronize());

    CHECK(cudaLaunchHostFunc(held, gate_wait, &gate));
    gate_await_reached(&gate);
    runtime_copies(device, host);
    runtime_entry_points();
    driver_copies((CUdeviceptr)device, host, context);
    driver_fills((CUdeviceptr)device);
    runtime_streams((int *)device, event);
    driver_streams((CUdeviceptr)device, (CUevent)event, (CUfunction)function, context);
    host_functions();
    EXPECT_ERR(cudaStreamQuery(held), cudaErrorNotReady);
    gate_open(&gate);
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(host_functions_run, 4);
    return 0;
}
