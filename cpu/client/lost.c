#include "cpu/client/lost.h"

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

bool flyt_lost_is_fatal(CUresult result)
{
    switch (result) {
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
        return true;
    default:
        return false;
    }
}
