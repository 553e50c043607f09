/*
 * What nvcc's generated code calls before main, when a library with kernels is opened, and at exit: the interface of
 * crt/host_runtime.h. All of it only records.
 */
#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

/* crt/host_runtime.h declares these for nvcc's own output only. */
#pragma GCC visibility push(default)
void **__cudaRegisterFatBinary(void *fatCubin);
void __cudaRegisterFatBinaryEnd(void **fatCubinHandle);
void __cudaUnregisterFatBinary(void **fatCubinHandle);
void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize);
void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
                       size_t size, int constant, int global);
void __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar, size_t size);
void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
                              const char *deviceName, int ext, size_t size, int constant, int global);
char __cudaInitModule(void **fatCubinHandle);
#pragma GCC visibility pop

static struct flyt_cudart_module *module_of(void **handle)
{
    return (struct flyt_cudart_module *)(void *)handle;
}

void **__cudaRegisterFatBinary(void *fatCubin)
{
    return (void **)(void *)flyt_cudart_module_new(fatCubin);
}

/* Nothing is left to do: modules are loaded when they are used. */
void __cudaRegisterFatBinaryEnd(void **fatCubinHandle)
{
}

void __cudaUnregisterFatBinary(void **fatCubinHandle)
{
    flyt_cudart_module_free(module_of(fatCubinHandle));
}

void __cudaRegisterFunction(void **fatCubinHandle, const char *hostFun, char *deviceFun, const char *deviceName,
                            int thread_limit, uint3 *tid, uint3 *bid, dim3 *bDim, dim3 *gDim, int *wSize)
{
    flyt_cudart_module_add_kernel(module_of(fatCubinHandle), hostFun, deviceName);
}

void __cudaRegisterVar(void **fatCubinHandle, char *hostVar, char *deviceAddress, const char *deviceName, int ext,
                       size_t size, int constant, int global)
{
    flyt_cudart_module_add_variable(module_of(fatCubinHandle), hostVar, deviceName);
}

/* A variable of the host that device code would reach in the host's memory. */
void __cudaRegisterHostVar(void **fatCubinHandle, const char *deviceName, char *hostVar, size_t size)
{
    flyt_cudart_module_refuse(module_of(fatCubinHandle), "host variable", deviceName);
}

void __cudaRegisterManagedVar(void **fatCubinHandle, void **hostVarPtrAddress, char *deviceAddress,
                              const char *deviceName, int ext, size_t size, int constant, int global)
{
    flyt_cudart_module_add_managed(module_of(fatCubinHandle), hostVarPtrAddress, deviceName);
}

/* Called before a managed variable is first touched; the program ignores what it returns. */
char __cudaInitModule(void **fatCubinHandle)
{
    return flyt_cudart_return(flyt_cudart_module_load(module_of(fatCubinHandle))) == cudaSuccess;
}
