// What managed memory cannot, where it lies on the host and elsewhere. Managed variables of a module and of a library: prints what
// the kernel of the module that has one is answered, what its library's answers, and what a kernel of the same library does
// that knows the variable by its name alone. A graph whose conditional body fills managed memory, and that memory's free in a
// stream's order: "module=CODE library=CODE kernel=CODE body=CODE free=CODE concurrent=N".
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

// What instantiating a graph is answered whose conditional body fills the memory.
static cudaError_t fill_in_body(void *memory)
{
    cudaGraph_t graph;
    cudaGraphNode_t node;
    cudaGraphExec_t exec;
    cudaGraphConditionalHandle handle;
    cudaGraphNodeParams params = {};
    cudaMemsetParams fill = {};
    fill.dst = memory;
    fill.elementSize = 1;
    fill.width = 64;
    fill.height = 1;
    if (cudaGraphCreate(&graph, 0) || cudaGraphConditionalHandleCreate(&handle, graph, 1, cudaGraphCondAssignDefault))
        return cudaErrorUnknown;
    params.type = cudaGraphNodeTypeConditional;
    params.conditional.handle = handle;
    params.conditional.type = cudaGraphCondTypeIf;
    params.conditional.size = 1;
    if (cudaGraphAddNode(&node, graph, NULL, NULL, 0, &params) ||
        cudaGraphAddMemsetNode(&node, params.conditional.phGraph_out[0], NULL, 0, &fill))
        return cudaErrorUnknown;
    return cudaGraphInstantiate(&exec, graph, 0);
}

int main(void)
{
    CUlibrary library;
    CUkernel kernel;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    int is_concurrent = 0;
    cudaError_t module, body, freed;
    void *memory;
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
    if (cudaMallocManaged(&memory, 4096))
        return 1;
    body = fill_in_body(memory);
    freed = cudaFreeAsync(memory, 0);
    if (!freed && !cudaFree(memory))
        return 2; // it is there still
    printf("module=%d library=%d kernel=%d body=%d free=%d concurrent=%d\n", (int)module, (int)named, (int)ran, (int)body,
           (int)freed, is_concurrent);
    return 0;
}
