// Managed variables where managed memory lies on the host: of a module, and of a library. Prints what the kernel of the module
// that has one is answered, what its library's answers, and what a kernel of the same library does that knows the variable by
// its name alone: "module=CODE library=CODE kernel=CODE concurrent=N".
// nvcc: -lcuda
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdio.h>

__managed__ int counter = 5;

__global__ void add(void)
{
    counter++;
}

static const char image[] = ".version 8.0\n.target sm_70\n.address_size 64\n"
                            ".visible .global .attribute(.managed) .align 4 .u32 both = 3;\n"
                            ".visible .entry raise()\n{\n.reg .u32 %r<3>;\n"
                            "ld.global.u32 %r0, [both];\nadd.u32 %r0, %r0, 1;\nst.global.u32 [both], %r0;\nret;\n}\n";

int main(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    int is_concurrent = 0;
    cudaError_t module;
    CUresult named, ran;

    cudaDeviceGetAttribute(&is_concurrent, cudaDevAttrConcurrentManagedAccess, 0);
    add<<<1, 1>>>();
    module = cudaGetLastError();
    if (cuLibraryLoadData(&library, image, NULL, NULL, 0, NULL, NULL, 0) || cuLibraryGetKernel(&kernel, library, "raise"))
        return 1;
    named = cuLibraryGetManaged(&address, &bytes, library, "both");
    ran = cuLaunchKernel((CUfunction)kernel, 1, 1, 1, 1, 1, 1, 0, 0, NULL, NULL);
    if (!ran)
        ran = cuCtxSynchronize();
    printf("module=%d library=%d kernel=%d concurrent=%d\n", (int)module, (int)named, (int)ran, is_concurrent);
    return 0;
}
