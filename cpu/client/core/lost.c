#include "cpu/client/core/lost.h"

#include <errno.h>

CUresult flyt_lost_connect_code(int error)
{
    switch (error) {
    case -EPROTO:
        return CUDA_ERROR_SYSTEM_DRIVER_MISMATCH;
    case -EACCES:
    case -EPERM:
        return CUDA_ERROR_NOT_PERMITTED;
    case -ENODEV:
        return CUDA_ERROR_NO_DEVICE;
    case -ENOMEM:
        return CUDA_ERROR_OUT_OF_MEMORY;
    default:
        return CUDA_ERROR_SYSTEM_NOT_READY;
    }
}

CUresult flyt_lost_code(void)
{
    return CUDA_ERROR_DEVICE_UNAVAILABLE;
}
