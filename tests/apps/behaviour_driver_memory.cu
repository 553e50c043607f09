// What the driver API answers at its edges where memory is concerned: device and host memory, pointer attributes,
// copies and fills. behaviour.h says what a row is.
// nvcc: -lcuda
#include "behaviour.h"
#include <cuda.h>

/* Entry points that the header's macros hide. */
extern "C" {
CUresult CUDAAPI v1_host_register(void *, size_t, unsigned) __asm__("cuMemHostRegister");
}

static char text[256] = "plain host memory";

static CUcontext start(void)
{
    CUcontext context;

    CHECK_CU(cuInit(0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK_CU(cuCtxSetCurrent(context));
    return context;
}

static void allocation(void)
{
    CUdeviceptr memory, base = 0;
    size_t bytes = 0, pitch = 0;

    start();
    DR(1, cuMemAlloc(NULL, 4));
    DR(1, cuMemAlloc(&memory, 0));
    DR(2, cuMemAlloc(&memory, 1ull << 50));
    DR(2, cuMemAlloc(&memory, (size_t)-1));
    DR(0, cuMemAlloc(&memory, 1000));
    DR(0, cuMemFree(0));
    DR(1, cuMemFree(5));
    DR(1, cuMemFree(memory + 4));
    DR(1, cuMemFree((CUdeviceptr)text));
    DR(0, cuMemGetAddressRange(&base, &bytes, memory + 4));
    IS(1, base == memory);
    IS(1000, bytes);
    DR(0, cuMemGetAddressRange(NULL, NULL, memory));
    DR(500, cuMemGetAddressRange(&base, &bytes, 5));
    DR(500, cuMemGetAddressRange(&base, &bytes, (CUdeviceptr)text));
    DR(500, cuMemGetAddressRange(&base, &bytes, 0));
    DR(0, cuMemGetInfo(NULL, &bytes));
    DR(0, cuMemGetInfo(&bytes, NULL));
    DR(0, cuMemAllocPitch(&base, &pitch, 100, 3, 4));
    IS(512, pitch);
    DR(0, cuMemFree(base));
    DR(0, cuMemAllocPitch(&base, &pitch, 100, 3, 16));
    DR(0, cuMemFree(base));
    DR(1, cuMemAllocPitch(&base, &pitch, 100, 3, 5));
    DR(1, cuMemAllocPitch(&base, &pitch, 100, 3, 0));
    DR(1, cuMemAllocPitch(&base, &pitch, 0, 3, 4));
    DR(1, cuMemAllocPitch(&base, &pitch, 100, 0, 4));
    DR(1, cuMemAllocPitch(NULL, &pitch, 100, 3, 4));
    DR(1, cuMemAllocPitch(&base, NULL, 100, 3, 4));
    DR(0, cuMemFree(memory));
    DR(1, cuMemFree(memory));
}

static void host_memory(void)
{
    CUdeviceptr device;
    void *host = (void *)5;
    char *pages = (char *)aligned_alloc(4096, 8192);
    unsigned flags = 99;

    start();
    DR(0, cuMemHostAlloc(&host, 0, 0));
    IS(0, (uintptr_t)host);
    host = (void *)5;
    DR(0, cuMemAllocHost(&host, 0));
    IS(0, (uintptr_t)host);
    DR(1, cuMemHostAlloc(NULL, 4, 0));
    DR(1, cuMemAllocHost(NULL, 4));
    DR(1, cuMemHostAlloc(&host, 4, 99));
    DR(0, cuMemHostAlloc(&host, 4096, 0));
    DR(1, cuMemHostGetFlags(NULL, host));
    DR(1, cuMemHostGetFlags(&flags, text));
    DR(1, cuMemHostGetDevicePointer(&device, host, 1));
    DR(1, cuMemHostGetDevicePointer(&device, text, 0));
    DR(1, cuMemFreeHost((char *)host + 4));
    DR(1, cuMemFreeHost(text));
    DR(0, cuMemFreeHost(NULL));
    DR(713, cuMemHostUnregister(text));
    DR(1, cuMemHostUnregister(NULL));
    DR(1, cuMemHostRegister(NULL, 4, 0));
    DR(1, cuMemHostRegister(pages, 0, 0));
    DR(1, cuMemHostRegister(pages, 8192, 99));
    DR(0, cuMemHostRegister(pages, 8192, 0));
    DR(712, cuMemHostRegister(pages, 8192, 0));
    DR(712, cuMemHostRegister(pages + 4096, 4096, 0));
    DR(1, cuMemFreeHost(pages));
    DR(1, cuMemHostUnregister(pages + 8));
    DR(0, cuMemHostUnregister(pages));
    DR(713, cuMemHostUnregister(pages));
    DR(0, v1_host_register(pages, 4096, 0));
    DR(0, cuMemHostUnregister(pages));
    DR(1, cuMemHostUnregister(host));
    DR(1, cuMemHostUnregister((char *)host + 8));
    DR(1, cuMemHostRegister(host, 4096, 0));
    DR(0, cuMemFreeHost(host));
    DR(1, cuMemFreeHost(host));
}

/* Asks for one attribute of a device, a page-locked and a plain pointer. */
static void ask(int line, CUpointer_attribute attribute, CUdeviceptr device, CUdeviceptr host, int want_device,
                long long want_value, int want_host, long long want_host_value)
{
    long long value[8] = {0};
    char what[64];

    snprintf(what, sizeof(what), "attribute %d of device memory", attribute);
    behaviour_row(line, what, cuPointerGetAttribute(value, attribute, device), want_device);
    if (want_value != -1)
        behaviour_row(line, "its value", value[0], want_value);
    memset(value, 0, sizeof(value));
    snprintf(what, sizeof(what), "attribute %d of page-locked memory", attribute);
    behaviour_row(line, what, cuPointerGetAttribute(value, attribute, host), want_host);
    if (want_host_value != -1)
        behaviour_row(line, "its value", value[0], want_host_value);
    snprintf(what, sizeof(what), "attribute %d of plain memory", attribute);
    behaviour_row(line, what, cuPointerGetAttribute(value, attribute, (CUdeviceptr)text), 1);
}
#define ASK(...) ask(__LINE__, __VA_ARGS__)

static void pointers(void)
{
    CUcontext context = start();
    CUdeviceptr memory, inside, host;
    CUpointer_attribute two[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    unsigned type = 77;
    int ordinal = 77, can_map = 0;
    void *answers[2] = {&type, &ordinal}, *host_pointer;
    long long value = 0;

    CHECK_CU(cuMemAlloc(&memory, 1000));
    CHECK_CU(cuMemHostAlloc(&host_pointer, 4096, 0));
    inside = memory + 4;
    host = (CUdeviceptr)host_pointer;
    ASK(CU_POINTER_ATTRIBUTE_CONTEXT, inside, host, 0, (long long)(uintptr_t)context, 0, (long long)(uintptr_t)context);
    ASK(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside, host, 0, CU_MEMORYTYPE_DEVICE, 0, CU_MEMORYTYPE_HOST);
    DR(0, cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, inside));
    IS(1, (CUdeviceptr)value == inside);
    DR(1, cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, inside));
    DR(0, cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_HOST_POINTER, host));
    IS(1, (CUdeviceptr)value == host);
    ASK(CU_POINTER_ATTRIBUTE_IS_MANAGED, inside, host, 0, 0, 0, 0);
    ASK(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, inside, host, 0, 0, 0, 0);
    ASK(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, inside, host, 0, -1, 0, 0);
    ASK(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside, host, 0, (long long)memory, 0, (long long)host);
    ASK(CU_POINTER_ATTRIBUTE_RANGE_SIZE, inside, host, 0, 1000, 0, 4096);
    ASK(CU_POINTER_ATTRIBUTE_MAPPED, inside, host, 0, 1, 0, 1);
    /* Where host memory is not mapped into the device, the device has no access to it. */
    CHECK_CU(cuDeviceGetAttribute(&can_map, CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 0));
    ASK(CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, inside, host, 0, 3, 0, can_map ? 3 : 0);
    DR(1, cuPointerGetAttribute(NULL, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, memory));
    DR(1, cuPointerGetAttribute(&value, (CUpointer_attribute)99, memory));
    DR(1, cuPointerGetAttribute(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0));
    DR(0, cuPointerGetAttributes(2, two, answers, memory));
    IS(CU_MEMORYTYPE_DEVICE, type);
    IS(0, ordinal);
    DR(0, cuPointerGetAttributes(2, two, answers, (CUdeviceptr)text));
    IS(0, type);
    IS(-2, ordinal);
    DR(1, cuPointerGetAttributes(0, two, answers, memory));
    DR(1, cuPointerGetAttributes(2, NULL, answers, memory));
    DR(1, cuPointerGetAttributes(2, two, NULL, memory));
}

static void copies(void)
{
    CUcontext context = start();
    CUdeviceptr memory;
    int value = 0, other = 0;

    CHECK_CU(cuMemAlloc(&memory, 1000));
    DR(1, cuMemcpyHtoD(memory, NULL, 4));
    DR(0, cuMemcpyHtoD(memory, &value, 0));
    DR(0, cuMemcpyHtoD(0, &value, 0));
    DR(1, cuMemcpyHtoD(0, &value, 4));
    DR(0, cuMemcpyHtoD(memory, &value, 4));
    DR(1, cuMemcpyHtoD(memory + 998, &value, 4));
    DR(1, cuMemcpyHtoD(memory + (4u << 20), &value, 4));
    DR(1, cuMemcpyDtoH(NULL, memory, 4));
    DR(1, cuMemcpyDtoH(&value, 0, 4));
    DR(1, cuMemcpyDtoH(&value, (CUdeviceptr)&other, 4));
    DR(1, cuMemcpyDtoD(memory, 0, 4));
    DR(1, cuMemcpyDtoD(0, memory, 4));
    DR(0, cuMemcpyDtoD(memory, memory + 8, 4));
    DR(0, cuMemcpy((CUdeviceptr)&value, (CUdeviceptr)&other, 4));
    DR(0, cuMemcpy(memory, (CUdeviceptr)&other, 4));
    DR(1, cuMemcpy(memory, 0, 4));
    DR(0, cuMemcpyAsync(memory, (CUdeviceptr)&other, 4, NULL));
    DR(1, cuMemcpyAsync(0, (CUdeviceptr)&other, 4, NULL));
    DR(1, cuMemcpyHtoDAsync(memory, NULL, 4, NULL));
    DR(0, cuMemcpyHtoDAsync(memory, NULL, 0, NULL));
    DR(1, cuMemcpyDtoHAsync(NULL, memory, 4, NULL));
    DR(1, cuMemcpyDtoDAsync(memory, 0, 4, NULL));
    DR(0, cuMemcpyPeer(memory, context, memory + 4, context, 4));
    DR(0, cuMemcpyPeer(memory, NULL, memory + 4, context, 4));
    DR(0, cuMemcpyPeerAsync(memory, context, memory + 4, context, 4, NULL));
    DR(0, cuCtxSynchronize());
}

static void fills(void)
{
    CUdeviceptr memory;

    start();
    CHECK_CU(cuMemAlloc(&memory, 1000));
    DR(0, cuMemsetD8(memory, 1, 0));
    DR(1, cuMemsetD8(0, 1, 4));
    DR(0, cuMemsetD8(0, 1, 0));
    DR(1, cuMemsetD32(memory + 1, 1, 1));
    DR(1, cuMemsetD32(memory + 2, 1, 1));
    DR(1, cuMemsetD16(memory + 1, 1, 1));
    DR(0, cuMemsetD16(memory + 2, 1, 1));
    DR(1, cuMemsetD8(memory, 1, 2000));
    DR(1, cuMemsetD8(memory, 1, 1u << 30));
    DR(1, cuMemsetD32(memory, 0, 1 << 28));
    DR(1, cuMemsetD8((CUdeviceptr)text, 1, 4));
    DR(1, cuMemsetD2D8(memory, 8, 1, 16, 2));
    DR(0, cuMemsetD2D8(memory, 16, 1, 0, 2));
    DR(0, cuMemsetD2D8(memory, 16, 1, 8, 0));
    DR(0, cuMemsetD2D16(memory, 16, 1, 8, 2));
    DR(1, cuMemsetD2D16(memory, 15, 1, 4, 2));
    DR(1, cuMemsetD2D16(memory, 16, 1, 9, 2));
    DR(0, cuMemsetD2D32(memory, 16, 1, 4, 2));
    DR(1, cuMemsetD2D32(memory, 18, 1, 4, 2));
    DR(1, cuMemsetD2D32(memory + 2, 16, 1, 4, 2));
    DR(0, cuMemsetD8Async(memory, 1, 8, NULL));
    DR(0, cuMemsetD16Async(memory, 1, 4, NULL));
    DR(1, cuMemsetD16Async(memory + 1, 1, 4, NULL));
    DR(0, cuMemsetD32Async(memory, 1, 2, NULL));
    DR(1, cuMemsetD32Async(0, 1, 2, NULL));
    DR(0, cuMemsetD2D8Async(memory, 16, 1, 8, 2, NULL));
    DR(0, cuMemsetD2D16Async(memory, 16, 1, 8, 2, NULL));
    DR(0, cuMemsetD2D32Async(memory, 16, 1, 4, 2, NULL));
    DR(1, cuMemsetD2D32Async(memory, 8, 1, 4, 2, NULL));
    DR(0, cuCtxSynchronize());
}

static void copies_2d(void)
{
    CUdeviceptr memory;
    CUDA_MEMCPY2D q;

    start();
    CHECK_CU(cuMemAlloc(&memory, 1000));
    memset(&q, 0, sizeof(q));
    DR(1, cuMemcpy2D(NULL));
    q.srcMemoryType = CU_MEMORYTYPE_HOST;
    q.srcHost = text;
    q.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    q.dstDevice = memory;
    q.WidthInBytes = 8;
    q.Height = 2;
    q.srcPitch = 4;
    q.dstPitch = 8;
    DR(1, cuMemcpy2D(&q));
    q.srcPitch = 8;
    DR(0, cuMemcpy2D(&q));
    DR(0, cuMemcpy2DUnaligned(&q));
    DR(0, cuMemcpy2DAsync(&q, NULL));
    DR(1, cuMemcpy2DAsync(NULL, NULL));
    DR(1, cuMemcpy2DUnaligned(NULL));
    q.srcPitch = q.dstPitch = 0;
    DR(0, cuMemcpy2D(&q));
    q.Height = 1;
    DR(0, cuMemcpy2D(&q));
    q.Height = 0;
    DR(0, cuMemcpy2D(&q));
    q.Height = 2;
    q.srcPitch = q.dstPitch = 8;
    q.srcXInBytes = 4;
    DR(1, cuMemcpy2D(&q));
    q.srcXInBytes = 0;
    q.srcMemoryType = (CUmemorytype)0;
    DR(1, cuMemcpy2D(&q));
    q.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    q.srcDevice = (CUdeviceptr)text;
    DR(0, cuMemcpy2D(&q));
    q.srcMemoryType = CU_MEMORYTYPE_HOST;
    q.dstPitch = 1ull << 33;
    DR(1, cuMemcpy2D(&q));
    q.dstPitch = 8;
    q.dstMemoryType = (CUmemorytype)99;
    DR(1, cuMemcpy2D(&q));
    DR(0, cuCtxSynchronize());
}

static void copies_3d(void)
{
    CUcontext context = start();
    CUdeviceptr memory;
    CUDA_MEMCPY3D q;
    CUDA_MEMCPY3D_PEER peer;

    CHECK_CU(cuMemAlloc(&memory, 1000));
    memset(&q, 0, sizeof(q));
    DR(1, cuMemcpy3D(NULL));
    q.srcMemoryType = CU_MEMORYTYPE_HOST;
    q.srcHost = text;
    q.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    q.dstDevice = memory;
    q.WidthInBytes = 4;
    q.Height = q.Depth = 2;
    q.srcPitch = q.dstPitch = 4;
    q.srcHeight = q.dstHeight = 2;
    DR(0, cuMemcpy3D(&q));
    DR(0, cuMemcpy3DAsync(&q, NULL));
    DR(1, cuMemcpy3DAsync(NULL, NULL));
    q.srcHeight = 1;
    DR(1, cuMemcpy3D(&q));
    q.srcHeight = 0;
    DR(0, cuMemcpy3D(&q));
    q.Depth = 0;
    DR(0, cuMemcpy3D(&q));
    q.Depth = 2;
    q.srcHeight = 2;
    q.reserved0 = &q;
    DR(0, cuMemcpy3D(&q));
    q.reserved0 = NULL;
    q.srcLOD = 1;
    DR(0, cuMemcpy3D(&q));
    memset(&peer, 0, sizeof(peer));
    peer.srcMemoryType = peer.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    peer.srcDevice = memory + 512;
    peer.dstDevice = memory;
    peer.srcContext = peer.dstContext = context;
    peer.WidthInBytes = 4;
    peer.Height = peer.Depth = 2;
    peer.srcPitch = peer.dstPitch = 4;
    peer.srcHeight = peer.dstHeight = 2;
    DR(0, cuMemcpy3DPeer(&peer));
    DR(0, cuMemcpy3DPeerAsync(&peer, NULL));
    peer.srcPitch = 2;
    DR(1, cuMemcpy3DPeer(&peer));
    DR(0, cuCtxSynchronize());
}

BEHAVIOUR_MAIN({"allocation", allocation}, {"host memory", host_memory}, {"pointers", pointers}, {"copies", copies},
               {"fills", fills}, {"copies in 2D", copies_2d}, {"copies in 3D", copies_3d})
