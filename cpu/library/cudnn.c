/* What of cuDNN is answered in the client, by hand: texts and versions. */
#include <stddef.h>
#include <stdio.h>
#include "cpu/client/core/client.h"
#include "cpu/client/library/library_call.h"

extern const struct flyt_lib flyt_lib_cudnn;

enum { MAX_DEVICE_VERSION = 1210 };

/* PyTorch compares it with that of its own wheel's, which may be newer than this library: what counts is the node's. */
FLYT_LIB_ENTRY size_t cudnnGetVersion(void)
{
    uint32_t version = flyt_lib_node_version(&flyt_lib_cudnn);
    return version / 1000000 * 10000 + version / 1000 % 1000 * 100 + version % 1000;
}

FLYT_LIB_ENTRY size_t cudnnGetMaxDeviceVersion(void)
{
    return MAX_DEVICE_VERSION;
}

FLYT_LIB_ENTRY size_t cudnnGetCudartVersion(void)
{
    return (size_t)flyt_client_cuda_version();
}

FLYT_LIB_ENTRY int cudnnGetProperty(int type, int *value)
{
    static const uint32_t units[] = {1000000, 1000, 1};
    if (type < 0 || type > 2 || !value)
        return flyt_lib_cudnn.invalid;
    *value = (int)(flyt_lib_node_version(&flyt_lib_cudnn) / units[type] % 1000);
    return flyt_lib_cudnn.success;
}

/* All sub-libraries are this file. */
#define IS_ONE_VERSION(name)                                                                                           \
    FLYT_LIB_ENTRY int name(void)                                                                                      \
    {                                                                                                                  \
        return flyt_lib_cudnn.success;                                                                                 \
    }

IS_ONE_VERSION(cudnnGraphVersionCheck)
IS_ONE_VERSION(cudnnOpsVersionCheck)
IS_ONE_VERSION(cudnnCnnVersionCheck)
IS_ONE_VERSION(cudnnAdvVersionCheck)

/* ---- texts ---- */

static const struct {
    int status;
    const char *name;
} rows[] = {
    {0, "CUDNN_STATUS_SUCCESS"},
    {1001, "CUDNN_STATUS_NOT_INITIALIZED"},
    {1002, "CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH"},
    {1003, "CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH"},
    {1004, "CUDNN_STATUS_DEPRECATED"},
    {1005, "CUDNN_STATUS_LICENSE_ERROR"},
    {1006, "CUDNN_STATUS_RUNTIME_IN_PROGRESS"},
    {1007, "CUDNN_STATUS_RUNTIME_FP_OVERFLOW"},
    {1008, "CUDNN_STATUS_SUBLIBRARY_LOADING_FAILED"},
    {2000, "CUDNN_STATUS_BAD_PARAM"},
    {2001, "CUDNN_STATUS_INVALID_VALUE"},
    {2002, "CUDNN_STATUS_BAD_PARAM_NULL_POINTER"},
    {2003, "CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER"},
    {2004, "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED"},
    {2005, "CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND"},
    {2006, "CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT"},
    {2007, "CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH"},
    {2008, "CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH"},
    {2009, "CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES"},
    {2010, "CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE"},
    {2011, "CUDNN_STATUS_BAD_PARAM_CUDA_GRAPH_MISMATCH"},
    {2012, "CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE"},
    {3000, "CUDNN_STATUS_NOT_SUPPORTED"},
    {3001, "CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN"},
    {3002, "CUDNN_STATUS_NOT_SUPPORTED_SHAPE"},
    {3003, "CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE"},
    {3004, "CUDNN_STATUS_NOT_SUPPORTED_LAYOUT"},
    {3005, "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER"},
    {3006, "CUDNN_STATUS_NOT_SUPPORTED_INCOMPATIBLE_CUDART"},
    {3007, "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH"},
    {3008, "CUDNN_STATUS_NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING"},
    {3009, "CUDNN_STATUS_NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE"},
    {3010, "CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT"},
    {3011, "CUDNN_STATUS_NOT_SUPPORTED_PADDING"},
    {3012, "CUDNN_STATUS_NOT_SUPPORTED_BAD_LAUNCH_PARAM"},
    {3013, "CUDNN_STATUS_NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API"},
    {3014, "CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE"},
    {4000, "CUDNN_STATUS_INTERNAL_ERROR"},
    {4001, "CUDNN_STATUS_INTERNAL_ERROR_COMPILATION_FAILED"},
    {4002, "CUDNN_STATUS_INTERNAL_ERROR_UNEXPECTED_VALUE"},
    {4003, "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED"},
    {4004, "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"},
    {4005, "CUDNN_STATUS_INTERNAL_ERROR_BAD_LAUNCH_PARAM"},
    {4006, "CUDNN_STATUS_INTERNAL_ERROR_TEXTURE_CREATION_FAILED"},
    {5000, "CUDNN_STATUS_EXECUTION_FAILED"},
    {5001, "CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER"},
    {5002, "CUDNN_STATUS_EXECUTION_FAILED_CUBLAS"},
    {5003, "CUDNN_STATUS_EXECUTION_FAILED_CUDART"},
    {5004, "CUDNN_STATUS_EXECUTION_FAILED_CURAND"},
};

FLYT_LIB_ENTRY const char *cudnnGetErrorString(int status)
{
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].status == status)
            return rows[i].name;
    return "CUDNN_UNKNOWN_STATUS";
}

/* The library's own words stay on the server. */
FLYT_LIB_ENTRY void cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (message && max_size)
        message[0] = '\0';
}

/* ---- the log, which nobody writes ---- */

static struct {
    unsigned mask;
    void *user;
    void *callback;
} logger;

FLYT_LIB_ENTRY int cudnnSetCallback(unsigned mask, void *user, void *callback)
{
    logger.mask = mask;
    logger.user = user;
    logger.callback = callback;
    return flyt_lib_cudnn.success;
}

FLYT_LIB_ENTRY int cudnnGetCallback(unsigned *mask, void **user, void **callback)
{
    if (!mask || !user || !callback)
        return flyt_lib_cudnn.invalid;
    *mask = logger.mask;
    *user = logger.user;
    *callback = logger.callback;
    return flyt_lib_cudnn.success;
}
