// __managed__ variables: the host uses them by their names, before any kernel and between kernels; their addresses are
// the same for both; they may be in a library's image, and of any size.
// nvcc: -lcuda
#include <cuda.h>
#include "check.h"

__managed__ int counter = 5;
__managed__ double table[300] = {1.5, 2.5};
__managed__ unsigned char large[3 << 20];
__managed__ int *target;
__device__ int plain = 11;

__global__ void step(void)
{
    counter += plain;
    table[2] = table[0] + table[1];
    if (target)
        *target += 1;
    large[sizeof(large) - 1] = large[0] + 1;
}

__global__ void through_pointer(int *at)
{
    *at *= 2;
}

static void by_name(void)
{
    EXPECT_EQ(counter, 5);
    EXPECT(table[1] == 2.5, "%g", table[1]);
    counter = 100;
    table[0] = 10;
    large[0] = 41;
    step<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK(cudaDeviceSynchronize());
    EXPECT_EQ(counter, 111);
    EXPECT(table[2] == 12.5, "%g", table[2]);
    EXPECT_EQ(large[sizeof(large) - 1], 42);
    target = &counter;
    counter = 1;
    step<<<1, 1>>>();
    CHECK_LAUNCH();
    CHECK(cudaStreamSynchronize(0));
    EXPECT_EQ(counter, 13);
    target = NULL;
}

static void by_address(void)
{
    void *address = NULL;
    size_t bytes = 0;
    int back = 0;
    cudaPointerAttributes attributes;

    CHECK(cudaGetSymbolAddress(&address, counter));
    EXPECT(address == &counter);
    CHECK(cudaGetSymbolSize(&bytes, table));
    EXPECT_EQ(bytes, sizeof(table));
    CHECK(cudaPointerGetAttributes(&attributes, &table[7]));
    EXPECT_EQ(attributes.type, cudaMemoryTypeManaged);
    counter = 21;
    through_pointer<<<1, 1>>>(&counter);
    CHECK_LAUNCH();
    CHECK(cudaMemcpy(&back, &counter, sizeof(back), cudaMemcpyDefault));
    EXPECT_EQ(back, 42);
    EXPECT_EQ(counter, 42);
    back = 7;
    CHECK(cudaMemcpyToSymbol(counter, &back, sizeof(back)));
    EXPECT_EQ(counter, 7);
    counter = 8;
    CHECK(cudaMemcpyFromSymbol(&back, counter, sizeof(back)));
    EXPECT_EQ(back, 8);
    CHECK(cudaMemset(&counter, 0, sizeof(counter)));
    EXPECT_EQ(counter, 0);
    EXPECT_ERR(cudaFree(&counter), cudaErrorInvalidValue);
}

/* A library that the program loads itself. */
static const char image[] = ".version 8.0\n.target sm_75\n.address_size 64\n"
                            ".visible .global .attribute(.managed) .align 4 .u32 both = 3;\n"
                            ".visible .global .align 4 .u32 one = 4;\n"
                            ".visible .entry add()\n{\n.reg .u32 %r<3>;\nld.global.u32 %r0, [both];\n"
                            "ld.global.u32 %r1, [one];\nadd.u32 %r2, %r0, %r1;\nst.global.u32 [both], %r2;\nret;\n}\n";

static void in_a_library(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr address = 0;
    size_t bytes = 0;

    for (int turn = 0; turn < 2; turn++) {
        CHECK_CU(cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0));
        EXPECT_CU(cuLibraryGetManaged(&address, &bytes, library, "one"), CUDA_ERROR_NOT_FOUND);
        EXPECT_CU(cuLibraryGetManaged(&address, &bytes, library, "none"), CUDA_ERROR_NOT_FOUND);
        CHECK_CU(cuLibraryGetManaged(&address, &bytes, library, "both"));
        EXPECT_EQ(bytes, 4);
        EXPECT_EQ(*(int *)address, 3);
        *(int *)address = 30;
        CHECK_CU(cuLibraryGetKernel(&kernel, library, "add"));
        CHECK_CU(cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL));
        CHECK_CU(cuCtxSynchronize());
        EXPECT_EQ(*(int *)address, 34);
        CHECK_CU(cuLibraryUnload(library));
    }
}

int main(void)
{
    int is_there = 0;

    CHECK(cudaDeviceGetAttribute(&is_there, cudaDevAttrManagedMemory, 0));
    if (!is_there)
        SKIP("the device has no managed memory");
    by_name();
    by_address();
    in_a_library();
    return 0;
}
