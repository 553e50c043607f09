// Memory in the driver API: allocation, typed memsets in one and two dimensions, copies in 1D, 2D and 3D,
// address ranges, pointer attributes, pinned host memory, and errors of each.
// nvcc: -lcuda
#include "check.h"
#include <cuda.h>

static void check_memsets(void)
{
    unsigned char bytes[64];
    uint16_t shorts[32];
    uint32_t words[256];
    CUdeviceptr p;
    size_t pitch;

    CHECK_CU(cuMemAlloc(&p, 1024));
    CHECK_CU(cuMemsetD8(p, 0x7b, 64));
    CHECK_CU(cuMemcpyDtoH(bytes, p, 64));
    EXPECT(bytes[0] == 0x7b && bytes[63] == 0x7b);
    CHECK_CU(cuMemsetD16(p + 2, 0x1234, 10));
    CHECK_CU(cuMemcpyDtoH(shorts, p, 64));
    EXPECT(shorts[0] == 0x7b7b && shorts[1] == 0x1234 && shorts[10] == 0x1234 && shorts[11] == 0x7b7b);
    CHECK_CU(cuMemsetD32(p, 0xdeadbeef, 256));
    CHECK_CU(cuMemcpyDtoH(words, p, 1024));
    for (int i = 0; i < 256; i++)
        EXPECT_EQ(words[i], 0xdeadbeefu);
    EXPECT_CU(cuMemsetD32(p + 1, 0, 4), CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemFree(p));

    CHECK_CU(cuMemAllocPitch(&p, &pitch, 100, 8, 4));
    EXPECT(pitch >= 100);
    CHECK_CU(cuMemsetD2D32(p, pitch, 0x01020304, 25, 8));
    CHECK_CU(cuMemsetD2D8(p + 4, pitch, 0xff, 4, 2));
    CHECK_CU(cuMemcpyDtoH(words, p + pitch, 100));
    EXPECT(words[0] == 0x01020304 && words[1] == 0xffffffffu && words[24] == 0x01020304);
    CHECK_CU(cuMemcpyDtoH(words, p + 2 * pitch, 100));
    EXPECT_EQ(words[1], 0x01020304);
    CHECK_CU(cuMemFree(p));
}

static void check_copies(void)
{
    int host[10][12], back[10][12], box[2][3][4], box_back[2][3][4];
    CUDA_MEMCPY2D flat = {};
    CUDA_MEMCPY3D deep = {};
    CUdeviceptr a, b;
    CUstream stream;

    for (int i = 0; i < 120; i++)
        (&host[0][0])[i] = i * 11;
    CHECK_CU(cuMemAlloc(&a, sizeof(host)));
    CHECK_CU(cuMemAlloc(&b, sizeof(host)));
    CHECK_CU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK_CU(cuMemcpyHtoDAsync(a, host, sizeof(host), stream));
    CHECK_CU(cuMemcpyDtoDAsync(b, a, sizeof(host), stream));
    CHECK_CU(cuMemcpyDtoHAsync(back, b, sizeof(host), stream));
    CHECK_CU(cuStreamSynchronize(stream));
    EXPECT(memcmp(host, back, sizeof(host)) == 0);
    memset(back, 0, sizeof(back));
    CHECK_CU(cuMemcpy((CUdeviceptr)(uintptr_t)back, b, sizeof(host)));
    EXPECT(memcmp(host, back, sizeof(host)) == 0);

    /* 2D: five columns of four rows, from row 3, column 2, to row 1, column 6. */
    flat.srcMemoryType = CU_MEMORYTYPE_HOST;
    flat.srcHost = host;
    flat.srcPitch = sizeof(host[0]);
    flat.srcXInBytes = 2 * sizeof(int);
    flat.srcY = 3;
    flat.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    flat.dstDevice = b;
    flat.dstPitch = sizeof(host[0]);
    flat.dstXInBytes = 6 * sizeof(int);
    flat.dstY = 1;
    flat.WidthInBytes = 5 * sizeof(int);
    flat.Height = 4;
    CHECK_CU(cuMemcpy2D(&flat));
    CHECK_CU(cuMemcpyDtoH(back, b, sizeof(back)));
    for (int y = 0; y < 10; y++)
        for (int x = 0; x < 12; x++) {
            int inside = x >= 6 && x < 11 && y >= 1 && y < 5;

            EXPECT_EQ(back[y][x], inside ? host[y + 2][x - 4] : host[y][x]);
        }
    flat.srcPitch = 4;
    EXPECT_CU(cuMemcpy2D(&flat), CUDA_ERROR_INVALID_VALUE);

    /* 3D: a box out of and back into host memory by way of the device. */
    for (int i = 0; i < 24; i++)
        (&box[0][0][0])[i] = 1000 + i;
    deep.srcMemoryType = CU_MEMORYTYPE_HOST;
    deep.srcHost = box;
    deep.srcPitch = sizeof(box[0][0]);
    deep.srcHeight = 3;
    deep.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    deep.dstDevice = a;
    deep.dstPitch = 32;
    deep.dstHeight = 5;
    deep.WidthInBytes = sizeof(box[0][0]);
    deep.Height = 3;
    deep.Depth = 2;
    CHECK_CU(cuMemcpy3D(&deep));
    CHECK_CU(cuMemcpyDtoH(box_back[0][0], a + 5 * 32 + 2 * 32, sizeof(box[0][0])));
    EXPECT(memcmp(box_back[0][0], box[1][2], sizeof(box[0][0])) == 0, "row 2 of slice 1");
    CHECK_CU(cuMemFree(a));
    CHECK_CU(cuMemFree(b));
    CHECK_CU(cuStreamDestroy(stream));
}

static void check_pointers(void)
{
    CUdeviceptr p, base = 0, device_pointer = 0;
    size_t bytes = 0;
    CUmemorytype type = (CUmemorytype)0, type_of_host = (CUmemorytype)0;
    CUpointer_attribute wanted[2] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
    void *values[2] = {&type, &device_pointer};
    int *pinned, local = 0;

    CHECK_CU(cuMemAlloc(&p, 10000));
    CHECK_CU(cuMemGetAddressRange(&base, &bytes, p + 5000));
    EXPECT(base == p && bytes == 10000, "%zu bytes", bytes);
    CHECK_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, p + 1));
    EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
    type = (CUmemorytype)0;
    CHECK_CU(cuPointerGetAttributes(2, wanted, values, p + 8));
    EXPECT(type == CU_MEMORYTYPE_DEVICE && device_pointer == p + 8);
    EXPECT_CU(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&local),
              CUDA_ERROR_INVALID_VALUE);
    CHECK_CU(cuMemAllocHost((void **)&pinned, 4096));
    CHECK_CU(cuPointerGetAttribute(&type_of_host, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
    EXPECT_EQ(type_of_host, CU_MEMORYTYPE_HOST);
    pinned[5] = 55;
    CHECK_CU(cuMemcpyHtoD(p, pinned, 4096));
    CHECK_CU(cuMemcpyDtoH(&local, p + 5 * sizeof(int), sizeof(int)));
    EXPECT_EQ(local, 55);
    CHECK_CU(cuMemFreeHost(pinned));
    CHECK_CU(cuMemHostAlloc((void **)&pinned, 4096, CU_MEMHOSTALLOC_PORTABLE));
    CHECK_CU(cuMemFreeHost(pinned));
    CHECK_CU(cuMemFree(p));
    EXPECT_CU(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAlloc(&p, 0), CUDA_ERROR_INVALID_VALUE);
    EXPECT_CU(cuMemAlloc(&p, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
}

int main(void)
{
    CUdevice device;
    CUcontext context;
    size_t free_bytes = 0, total_bytes = 0;
    CUdeviceptr p;

    CHECK_CU(cuInit(0));
    EXPECT_CU(cuMemAlloc(&p, 16), CUDA_ERROR_INVALID_CONTEXT);
    CHECK_CU(cuDeviceGet(&device, 0));
    CHECK_CU(cuDevicePrimaryCtxRetain(&context, device));
    CHECK_CU(cuCtxSetCurrent(context));
    CHECK_CU(cuMemGetInfo(&free_bytes, &total_bytes));
    EXPECT(free_bytes > 0 && free_bytes <= total_bytes);
    check_memsets();
    check_copies();
    check_pointers();
    CHECK_CU(cuDevicePrimaryCtxRelease(device));
    return 0;
}
