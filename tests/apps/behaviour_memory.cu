// What the runtime API answers at its edges where memory is concerned: allocation, host memory, pointers, copies,
// fills and symbols. behaviour.h says what a row is.
#include "behaviour.h"

__device__ int variable[4];
__constant__ int constant[4];
static int host_variable[4];

static const int nowhere = 99;
static const size_t mebibyte = 1 << 20;

static void allocation(void)
{
    void *memory = (void *)5;
    char *device = NULL;
    cudaPitchedPtr pitched;
    size_t pitch = 7, free_bytes = 0, total_bytes = 0;

    RT(1, cudaMalloc((void **)NULL, 4));
    RT(0, cudaMalloc(&memory, 0));
    IS(0, (uintptr_t)memory);
    RT(2, cudaMalloc(&memory, 1ull << 60));
    RT(2, cudaMalloc(&memory, (size_t)-1));
    memory = (void *)5;
    RT(0, cudaMallocPitch(&memory, &pitch, 0, 4));
    IS(0, (uintptr_t)memory);
    IS(0, pitch);
    memory = (void *)5;
    pitch = 7;
    RT(0, cudaMallocPitch(&memory, &pitch, 4, 0));
    IS(0, (uintptr_t)memory);
    IS(0, pitch);
    RT(0, cudaMallocPitch(&memory, &pitch, 4, 1));
    IS(512, pitch);
    RT(0, cudaFree(memory));
    RT(0, cudaMallocPitch(&memory, &pitch, 513, 2));
    IS(1024, pitch);
    RT(0, cudaFree(memory));
    RT(2, cudaMallocPitch(&memory, &pitch, (size_t)1 << 40, (size_t)1 << 20));
    RT(1, cudaMallocPitch((void **)NULL, &pitch, 4, 1));
    RT(1, cudaMallocPitch(&memory, NULL, 4, 1));
    RT(0, cudaMalloc3D(&pitched, make_cudaExtent(10, 0, 3)));
    IS(0, (uintptr_t)pitched.ptr);
    IS(0, pitched.pitch);
    IS(10, pitched.xsize);
    IS(0, pitched.ysize);
    RT(0, cudaMalloc3D(&pitched, make_cudaExtent(10, 2, 3)));
    IS(512, pitched.pitch);
    IS(10, pitched.xsize);
    IS(2, pitched.ysize);
    RT(0, cudaFree(pitched.ptr));
    RT(1, cudaMalloc3D(NULL, make_cudaExtent(10, 2, 3)));
    RT(0, cudaMalloc(&device, mebibyte));
    RT(1, cudaFree(device + 1));
    RT(1, cudaFree((void *)0x1234));
    RT(1, cudaFree(&pitch));
    RT(0, cudaFree(NULL));
    RT(0, cudaFree(device));
    RT(1, cudaFree(device));
    RT(0, cudaMemGetInfo(NULL, &total_bytes));
    RT(0, cudaMemGetInfo(&free_bytes, NULL));
    RT(0, cudaMemGetInfo(NULL, NULL));
    IS(1, free_bytes > 0 && free_bytes <= total_bytes);
}

static void host_memory(void)
{
    int local[64];
    char *host = NULL, *device = NULL, *pages = NULL;
    void *memory = (void *)5;
    unsigned flags = 99;

    CHECK(cudaMalloc(&device, 4096));
    RT(1, cudaMallocHost((void **)NULL, 4));
    RT(1, cudaHostAlloc((void **)NULL, 4, 0));
    RT(0, cudaMallocHost(&memory, 0));
    IS(0, (uintptr_t)memory);
    memory = (void *)5;
    RT(0, cudaHostAlloc(&memory, 0, 0));
    IS(0, (uintptr_t)memory);
    RT(1, cudaHostAlloc(&memory, 4096, 8));
    RT(1, cudaHostAlloc(&memory, 4096, 0x80000000u));
    RT(0, cudaHostAlloc(&memory, 4096, cudaHostAllocPortable | cudaHostAllocWriteCombined));
    RT(0, cudaFreeHost(memory));
    RT(0, cudaMallocHost(&host, 4096));
    RT(1, cudaHostGetFlags(&flags, NULL));
    RT(1, cudaHostGetFlags(NULL, host));
    RT(1, cudaHostGetFlags(&flags, local));
    RT(1, cudaHostGetDevicePointer((void **)NULL, host, 0));
    RT(1, cudaHostGetDevicePointer(&memory, NULL, 0));
    RT(1, cudaHostGetDevicePointer(&memory, local, 0));
    RT(1, cudaHostGetDevicePointer(&memory, host, 1));
    RT(1, cudaHostRegister(NULL, 4096, 0));
    RT(1, cudaHostRegister(local, 0, 0));
    RT(1, cudaHostRegister(local, 64, 0x100));
    RT(1, cudaHostRegister(device, 4096, 0));
    RT(1, cudaHostRegister(host, 4096, 0));
    RT(1, cudaHostRegister(host + 64, 64, 0));
    RT(1, cudaHostUnregister(NULL));
    RT(713, cudaHostUnregister(local));
    RT(1, cudaHostUnregister(host));
    RT(1, cudaHostUnregister(device));
    RT(1, cudaFreeHost(host + 10));
    RT(1, cudaFreeHost(device));
    RT(1, cudaFreeHost(local));
    RT(0, cudaFreeHost(NULL));
    RT(1, cudaFree(host));
    pages = (char *)aligned_alloc(4096, 8192);
    RT(0, cudaHostRegister(pages, 8192, cudaHostRegisterPortable));
    RT(712, cudaHostRegister(pages, 8192, 0));
    RT(712, cudaHostRegister(pages + 4096, 4096, 0));
    RT(1, cudaFreeHost(pages));
    RT(1, cudaHostUnregister(pages + 8));
    RT(0, cudaHostUnregister(pages));
    RT(713, cudaHostUnregister(pages));
    RT(0, cudaHostRegister(local, 4, 0));
    RT(712, cudaHostRegister(local, 4, 0));
    RT(0, cudaHostUnregister(local));
    RT(0, cudaFreeHost(host));
    RT(1, cudaFreeHost(host));
}

static void pointers(void)
{
    cudaPointerAttributes found;
    int local = 0;
    char *host, *device;

    CHECK(cudaMalloc(&device, 4096));
    CHECK(cudaMallocHost(&host, 4096));
    RT(1, cudaPointerGetAttributes(NULL, device));
    memset(&found, 0x55, sizeof(found));
    RT(0, cudaPointerGetAttributes(&found, NULL));
    IS(cudaMemoryTypeUnregistered, found.type);
    IS(-2, found.device);
    IS(1, !found.devicePointer && !found.hostPointer);
    RT(0, cudaPointerGetAttributes(&found, &local));
    IS(cudaMemoryTypeUnregistered, found.type);
    IS(-2, found.device);
    IS(1, !found.devicePointer && found.hostPointer == &local);
    RT(0, cudaPointerGetAttributes(&found, host + 5));
    IS(cudaMemoryTypeHost, found.type);
    IS(0, found.device);
    IS(1, found.hostPointer == host + 5);
    RT(0, cudaPointerGetAttributes(&found, device + 5));
    IS(cudaMemoryTypeDevice, found.type);
    IS(0, found.device);
    IS(1, found.devicePointer == device + 5 && !found.hostPointer);
    RT(0, cudaPointerGetAttributes(&found, (void *)0x12345000));
    IS(cudaMemoryTypeUnregistered, found.type);
    RT(0, cudaFree(device));
    RT(0, cudaPointerGetAttributes(&found, device));
    IS(cudaMemoryTypeUnregistered, found.type);
}

static void copies(void)
{
    int local[64] = {0}, other[64];
    char *host, *device;

    CHECK(cudaMalloc(&device, mebibyte));
    CHECK(cudaMallocHost(&host, 4096));
    RT(1, cudaMemcpy(NULL, local, 4, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy(device, NULL, 4, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy(NULL, device, 4, cudaMemcpyDeviceToHost));
    RT(1, cudaMemcpy(local, NULL, 4, cudaMemcpyDeviceToHost));
    RT(1, cudaMemcpy(device, NULL, 4, cudaMemcpyDefault));
    RT(0, cudaMemcpy(NULL, NULL, 0, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy(device, NULL, 0, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy(device, local, 0, (cudaMemcpyKind)9));
    RT(21, cudaMemcpy(device, local, 4, (cudaMemcpyKind)9));
    RT(21, cudaMemcpy(device, local, 4, (cudaMemcpyKind)-1));
    RT(1, cudaMemcpy(local, device, 4, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy(device, local, 4, cudaMemcpyDeviceToHost));
    RT(1, cudaMemcpy(device, local, 4, cudaMemcpyDeviceToDevice));
    RT(1, cudaMemcpy(local, device, 4, cudaMemcpyDeviceToDevice));
    RT(0, cudaMemcpy(local, device, 4, cudaMemcpyHostToHost));
    RT(0, cudaMemcpy(local, other, 4, cudaMemcpyHostToHost));
    RT(0, cudaMemcpy(local, other, 4, cudaMemcpyDefault));
    RT(0, cudaMemcpy(device, device + 4, 4, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy(device, device + 4, 4, cudaMemcpyDeviceToHost));
    RT(0, cudaMemcpy(host, local, 4, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy(host, local, 4, cudaMemcpyDeviceToHost));
    RT(1, cudaMemcpy(device, local, 1 << 28, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy(device + mebibyte - 2, local, 4, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy(local, device + mebibyte - 2, 4, cudaMemcpyDeviceToHost));
    RT(1, cudaMemcpy(device, device + mebibyte - 2, 4, cudaMemcpyDeviceToDevice));
    RT(21, cudaMemcpyAsync(device, local, 4, (cudaMemcpyKind)5, NULL));
    RT(1, cudaMemcpyAsync(NULL, local, 4, cudaMemcpyHostToDevice, NULL));
    RT(1, cudaMemcpyAsync(device, NULL, 4, cudaMemcpyHostToDevice, NULL));
    RT(0, cudaMemcpyAsync(NULL, NULL, 0, cudaMemcpyHostToDevice, NULL));
    RT(1, cudaMemcpyAsync(local, device, 4, cudaMemcpyHostToDevice, NULL));
    RT(101, cudaMemcpyPeer(device, 0, device + 64, nowhere, 4));
    RT(0, cudaMemcpyPeer(device, 0, device + 64, 0, 4));
    RT(0, cudaMemcpyPeer(device, 0, device + 64, 0, 0));
    RT(1, cudaMemcpyPeer(device, 0, local, 0, 4));
    RT(1, cudaMemcpyPeer(NULL, 0, device, 0, 4));
    RT(101, cudaMemcpyPeerAsync(device, -1, device + 64, 0, 4, NULL));
    RT(0, cudaMemcpyPeerAsync(device, 0, device + 64, 0, 4, NULL));
    RT(0, cudaDeviceSynchronize());
}

static void copies_2d(void)
{
    int local[64] = {0};
    char *device;

    CHECK(cudaMalloc(&device, mebibyte));
    RT(1, cudaMemcpy2D(device, 8, local, 8, 16, 1, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy2D(device, 8, local, 8, 16, 0, cudaMemcpyHostToDevice));
    RT(12, cudaMemcpy2D(device, 8, local, 8, 16, 2, (cudaMemcpyKind)9));
    RT(21, cudaMemcpy2D(device, 16, local, 16, 16, 2, (cudaMemcpyKind)9));
    RT(12, cudaMemcpy2D(device, 8, local, 16, 16, 2, cudaMemcpyHostToDevice));
    RT(12, cudaMemcpy2D(device, 16, local, 8, 16, 2, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy2D(device, 4, local, 4, 8, 1, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy2D(device, 16, local, (size_t)1 << 32, 16, 1, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy2D(device, (size_t)1 << 32, local, 16, 16, 2, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy2D(device, 16, NULL, 16, 16, 2, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpy2D(NULL, 16, local, 16, 16, 2, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy2D(device, 0, local, 0, 0, 2, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy2D(device, 0, local, 0, 16, 0, cudaMemcpyHostToDevice));
    RT(0, cudaMemcpy2D(device, 16, local, 16, 16, 2, cudaMemcpyDefault));
    RT(1, cudaMemcpy2D(device, 16, local, 16, 16, 2, cudaMemcpyDeviceToHost));
    RT(12, cudaMemcpy2DAsync(device, 8, local, 16, 16, 2, cudaMemcpyHostToDevice, NULL));
    RT(0, cudaMemcpy2DAsync(device, 16, local, 16, 16, 2, cudaMemcpyHostToDevice, NULL));
    RT(1, cudaMemcpy2D(device + mebibyte - 16, 16, local, 16, 16, 2, cudaMemcpyHostToDevice));
}

static void copies_3d(void)
{
    int local[64] = {0};
    char *device;
    cudaMemcpy3DParms p = {};
    cudaMemcpy3DPeerParms peer = {};

    CHECK(cudaMalloc(&device, mebibyte));
    RT(1, cudaMemcpy3D(NULL));
    RT(0, cudaMemcpy3D(&p));
    p.srcPtr = make_cudaPitchedPtr(local, 16, 16, 2);
    p.dstPtr = make_cudaPitchedPtr(device, 16, 16, 2);
    p.kind = cudaMemcpyHostToDevice;
    RT(0, cudaMemcpy3D(&p));
    p.extent = make_cudaExtent(17, 1, 1);
    RT(1, cudaMemcpy3D(&p));
    p.extent = make_cudaExtent(16, 1, 1);
    p.srcPos.x = 1;
    RT(1, cudaMemcpy3D(&p));
    p.srcPos.x = 0;
    p.extent = make_cudaExtent(16, 3, 2);
    RT(12, cudaMemcpy3D(&p));
    p.extent = make_cudaExtent(16, 2, 2);
    p.dstPos.y = 1;
    RT(1, cudaMemcpy3D(&p));
    p.dstPos.y = 0;
    p.srcPtr.ptr = NULL;
    RT(1, cudaMemcpy3D(&p));
    p.srcPtr.ptr = local;
    p.kind = (cudaMemcpyKind)8;
    RT(21, cudaMemcpy3D(&p));
    p.kind = cudaMemcpyHostToDevice;
    p.extent = make_cudaExtent(4, 1, 1);
    p.srcPtr.pitch = (size_t)1 << 32;
    RT(0, cudaMemcpy3D(&p));
    p.srcPtr.pitch = 16;
    p.srcPtr.ysize = 0;
    RT(0, cudaMemcpy3D(&p));
    p.extent = make_cudaExtent(4, 1, 2);
    RT(12, cudaMemcpy3D(&p));
    p.srcPtr.ysize = 2;
    RT(0, cudaMemcpy3DAsync(&p, NULL));
    RT(1, cudaMemcpy3DAsync(NULL, NULL));
    RT(1, cudaMemcpy3DPeer(NULL));
    peer.srcPtr = make_cudaPitchedPtr(device + 4096, 16, 16, 2);
    peer.dstPtr = make_cudaPitchedPtr(device, 16, 16, 2);
    peer.extent = make_cudaExtent(16, 2, 2);
    RT(0, cudaMemcpy3DPeer(&peer));
    RT(0, cudaMemcpy3DPeerAsync(&peer, NULL));
    peer.srcDevice = nowhere;
    RT(101, cudaMemcpy3DPeer(&peer));
    peer.srcDevice = 0;
    peer.extent = make_cudaExtent(17, 2, 2);
    RT(12, cudaMemcpy3DPeer(&peer));
    RT(0, cudaDeviceSynchronize());
}

static void fills(void)
{
    int local[4] = {0};
    int *host;
    char *device;

    CHECK(cudaMalloc(&device, mebibyte));
    CHECK(cudaMallocHost(&host, 4096));
    RT(1, cudaMemset(NULL, 0, 4));
    RT(0, cudaMemset(NULL, 0, 0));
    RT(1, cudaMemset(local, 0, 4));
    RT(0, cudaMemset(host, 7, 4));
    RT(0, cudaDeviceSynchronize());
    IS(0x7070707, host[0]);
    RT(1, cudaMemset(device, 0, 1 << 28));
    RT(1, cudaMemset(device + mebibyte - 2, 0, 4));
    RT(0, cudaMemsetAsync(NULL, 0, 0, NULL));
    RT(1, cudaMemsetAsync(NULL, 0, 4, NULL));
    RT(1, cudaMemsetAsync(local, 0, 4, NULL));
    RT(0, cudaMemset2D(device, 8, 0, 16, 1));
    RT(1, cudaMemset2D(device, 8, 0, 16, 2));
    RT(0, cudaMemset2D(device, 8, 0, 0, 2));
    RT(0, cudaMemset2D(device, 8, 0, 4, 0));
    RT(0, cudaMemset2D(NULL, 8, 0, 4, 0));
    RT(1, cudaMemset2D(NULL, 8, 0, 4, 2));
    RT(1, cudaMemset2DAsync(device, 8, 0, 16, 2, NULL));
    RT(1, cudaMemset3D(make_cudaPitchedPtr(device, 16, 16, 2), 0, make_cudaExtent(16, 3, 2)));
    RT(1, cudaMemset3D(make_cudaPitchedPtr(device, 16, 16, 2), 0, make_cudaExtent(17, 2, 2)));
    RT(0, cudaMemset3D(make_cudaPitchedPtr(device, 16, 16, 2), 0, make_cudaExtent(0, 2, 2)));
    RT(0, cudaMemset3D(make_cudaPitchedPtr(device, 16, 16, 2), 0, make_cudaExtent(16, 2, 2)));
    RT(1, cudaMemset3D(make_cudaPitchedPtr(NULL, 16, 16, 2), 0, make_cudaExtent(16, 2, 2)));
    RT(0, cudaMemset3DAsync(make_cudaPitchedPtr(device, 16, 16, 2), 0, make_cudaExtent(16, 2, 2), NULL));
}

static void symbols(void)
{
    int local[4] = {0};
    void *address = NULL;
    size_t bytes = 0;

    RT(1, cudaMemcpyToSymbol(variable, local, 4, 14));
    RT(0, cudaMemcpyToSymbol(variable, local, 4, 12));
    RT(0, cudaMemcpyToSymbol(variable, local, 0, 16));
    RT(0, cudaMemcpyToSymbol(variable, local, 0, 17));
    RT(21, cudaMemcpyToSymbol(variable, local, 4, 0, cudaMemcpyDeviceToHost));
    RT(21, cudaMemcpyToSymbol(variable, local, 4, 0, cudaMemcpyHostToHost));
    RT(21, cudaMemcpyToSymbol(variable, local, 4, 0, (cudaMemcpyKind)9));
    RT(0, cudaMemcpyToSymbol(variable, local, 4, 0, cudaMemcpyDefault));
    RT(1, cudaMemcpyToSymbol(variable, NULL, 4, 0));
    RT(13, cudaMemcpyToSymbol(host_variable, local, 4));
    RT(13, cudaMemcpyToSymbol(host_variable, local, 4, 0, cudaMemcpyDeviceToHost));
    RT(13, cudaMemcpyToSymbol((const void *)0, local, 4));
    RT(21, cudaMemcpyFromSymbol(local, variable, 4, 0, cudaMemcpyHostToDevice));
    RT(1, cudaMemcpyFromSymbol(local, variable, 4, 20));
    RT(1, cudaMemcpyFromSymbol(local, variable, (size_t)-1, 8));
    RT(1, cudaMemcpyFromSymbol(NULL, variable, 4));
    RT(13, cudaMemcpyFromSymbol(local, host_variable, 4));
    RT(1, cudaMemcpyToSymbolAsync(constant, local, 4, 16, cudaMemcpyHostToDevice, NULL));
    RT(0, cudaMemcpyToSymbolAsync(constant, local, 4, 8, cudaMemcpyHostToDevice, NULL));
    RT(21, cudaMemcpyFromSymbolAsync(local, constant, 4, 8, cudaMemcpyHostToDevice, NULL));
    RT(13, cudaGetSymbolAddress(&address, (const void *)0));
    RT(13, cudaGetSymbolAddress(&address, host_variable));
    RT(0, cudaGetSymbolAddress(&address, constant));
    RT(13, cudaGetSymbolSize(&bytes, host_variable));
    RT(13, cudaGetSymbolSize(&bytes, (const void *)0));
    RT(0, cudaGetSymbolSize(&bytes, constant));
    IS(16, bytes);
    RT(0, cudaDeviceSynchronize());
}

BEHAVIOUR_MAIN({"allocation", allocation}, {"host memory", host_memory}, {"pointers", pointers}, {"copies", copies},
               {"copies in 2D", copies_2d}, {"copies in 3D", copies_3d}, {"fills", fills}, {"symbols", symbols})
