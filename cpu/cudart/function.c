/* Kernels by name of their host function: attributes, configuration, parameters, handles. */
#include "cpu/client/cuda/kernel.h"

#include <stddef.h>
#include <string.h>

#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

/* ---- attributes ---- */

/* A field of cudaFuncAttributes and the attribute that it shows. */
struct field {
    unsigned short offset_bytes;
    unsigned short width_bytes; /* 4: int, 8: size_t */
    unsigned short attribute;   /* CUfunction_attribute */
};

#define FIELD(member, attr)                                                                                            \
    {                                                                                                                  \
        offsetof(struct cudaFuncAttributes, member), sizeof(((struct cudaFuncAttributes *)0)->member), attr            \
    }

static const struct field fields[] = {
    FIELD(sharedSizeBytes, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES),
    FIELD(constSizeBytes, CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES),
    FIELD(localSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
    FIELD(maxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK),
    FIELD(numRegs, CU_FUNC_ATTRIBUTE_NUM_REGS),
    FIELD(ptxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION),
    FIELD(binaryVersion, CU_FUNC_ATTRIBUTE_BINARY_VERSION),
    FIELD(cacheModeCA, CU_FUNC_ATTRIBUTE_CACHE_MODE_CA),
    FIELD(maxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES),
    FIELD(preferredShmemCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT),
    FIELD(clusterDimMustBeSet, CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET),
    FIELD(requiredClusterWidth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
    FIELD(requiredClusterHeight, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
    FIELD(requiredClusterDepth, CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH),
    FIELD(clusterSchedulingPolicyPreference, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE),
    FIELD(nonPortableClusterSizeAllowed, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED),
};

static CUresult fill_attributes(CUfunction function, struct cudaFuncAttributes *ret_attributes)
{
    memset(ret_attributes, 0, sizeof(*ret_attributes));
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char *place = (char *)ret_attributes + fields[i].offset_bytes;
        int value = 0;
        CUresult result =
            flyt_kernel_attribute(function, CURRENT_DEVICE, (CUfunction_attribute)fields[i].attribute, &value);

        if (result != CUDA_SUCCESS)
            return result;
        /* A size is never negative, so the rest of a size_t is zero, as it is already. */
        memcpy(place, &value, sizeof(value));
    }
    return CUDA_SUCCESS;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    struct cudaFuncAttributes attributes;
    CUfunction function;
    CUresult result;
    cudaError_t error;

    if (!attr)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    error = flyt_cudart_enter_kernel(func, &function);
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    result = fill_attributes(function, &attributes);
    if (result == CUDA_SUCCESS)
        *attr = attributes;
    return flyt_cudart_result(result);
}

/* The attributes that may be set; the others are properties of the code. */
static bool is_settable(enum cudaFuncAttribute attribute)
{
    return attribute >= cudaFuncAttributeMaxDynamicSharedMemorySize && attribute < cudaFuncAttributeMax;
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    CUfunction function;
    cudaError_t error = flyt_cudart_enter_kernel(func, &function);

    if (error == cudaSuccess && !is_settable(attr))
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    return flyt_cudart_result(flyt_kernel_attribute_set(function, CURRENT_DEVICE, (CUfunction_attribute)attr, value));
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, enum cudaFuncAttribute attr, int value, int device)
{
    CUfunction function;
    cudaError_t error = flyt_cudart_enter_kernel(kernel, &function);

    if (error == cudaSuccess && (!is_settable(attr) || device < 0))
        error = device < 0 ? cudaErrorInvalidDevice : cudaErrorInvalidValue;
    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    return flyt_cudart_result(flyt_kernel_attribute_set(function, device, (CUfunction_attribute)attr, value));
}

/* ---- handles, which are the same for the driver API ---- */

/* As flyt_cudart_enter_kernel for what must be a host function: what is none is no device function. */
static cudaError_t enter_symbol(const void *symbol, CUfunction *ret_function)
{
    cudaError_t error = flyt_cudart_enter_kernel(symbol, ret_function);

    return error == cudaErrorInvalidResourceHandle ? cudaErrorInvalidDeviceFunction : error;
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *functionPtr, const void *symbolPtr)
{
    CUfunction function;
    cudaError_t error = enter_symbol(symbolPtr, &function);

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    if (functionPtr) /* NVIDIA's runtime takes NULL here, though not in cudaGetKernel */
        *functionPtr = function;
    return cudaSuccess;
}

cudaError_t cudaGetKernel(cudaKernel_t *kernelPtr, const void *entryFuncAddr)
{
    CUfunction function;
    cudaError_t error = kernelPtr ? enter_symbol(entryFuncAddr, &function) : cudaErrorInvalidValue;

    if (error != cudaSuccess)
        return flyt_cudart_fail(error);
    *kernelPtr = (cudaKernel_t)(void *)function;
    return cudaSuccess;
}
