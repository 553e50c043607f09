/* Beginning and ending, versions, names of codes and of programs. */
#include <cuda.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/nvml/library.h"
#include "rpc/base/descriptors.h"

static const char interface_version[] = "13.0"; /* of the functions that nvml.rows lists */

FLYT_NVML_FUNCTION(nvmlInitWithFlags, unsigned flags)
{
    return flyt_nvml_begin(flags & FLYT_NVML_FLAG_NO_GPUS);
}

FLYT_NVML_FUNCTION(nvmlInit_v2, void)
{
    return flyt_nvml_begin(false);
}

FLYT_NVML_FUNCTION(nvmlInit, void)
{
    return flyt_nvml_begin(false);
}

FLYT_NVML_FUNCTION(nvmlShutdown, void)
{
    return flyt_nvml_end();
}

/* In words of our own. */
static const char *const sentences[] = {
    [0] = "Success",
    [1] = "Uninitialized",
    [2] = "Invalid Argument",
    [3] = "Not Supported",
    [4] = "Insufficient Permissions",
    [5] = "Already Initialized",
    [6] = "Not Found",
    [7] = "Insufficient Size",
    [8] = "Insufficient External Power",
    [9] = "Driver Not Loaded",
    [10] = "Timeout",
    [11] = "Interrupt Request Issue",
    [12] = "NVML Shared Library Not Found",
    [13] = "Function Not Found",
    [14] = "Corrupted infoROM",
    [15] = "GPU is lost",
    [16] = "GPU requires reset",
    [17] = "GPU access blocked by the operating system",
    [18] = "Driver/library version mismatch",
    [19] = "In use by another client",
    [20] = "Insufficient Memory",
    [21] = "No data",
    [22] = "vGPU ECC is not supported",
    [23] = "Insufficient resources",
    [24] = "Frequency not supported",
    [25] = "Argument version mismatch",
    [26] = "Deprecated",
    [27] = "Not ready",
    [28] = "GPU not found",
    [29] = "Invalid state",
    [30] = "Reset type not supported",
};

const char *nvmlErrorString(int result);
__attribute__((visibility("default"))) const char *nvmlErrorString(int result)
{
    bool is_known = result >= 0 && (size_t)result < sizeof sentences / sizeof sentences[0];
    return is_known ? sentences[result] : "Unknown Error";
}

/* ---- versions ---- */

FLYT_NVML_FUNCTION(nvmlSystemGetDriverVersion, char *ret_version, unsigned bytes)
{
    const flyt_local_devices_res *known;
    int code = flyt_nvml_take(false, &known);
    if (code)
        return code;
    code = flyt_nvml_copy_text(known->driver.driver_version, ret_version, bytes);
    flyt_nvml_give_back();
    return code;
}

FLYT_NVML_FUNCTION(nvmlSystemGetNVMLVersion, char *ret_version, unsigned bytes)
{
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    return flyt_nvml_copy_text(interface_version, ret_version, bytes);
}

/* Where the node does not say it is what libcuda.so.1 says before it has connected. */
FLYT_NVML_FUNCTION(nvmlSystemGetCudaDriverVersion_v2, int *ret_version)
{
    const flyt_local_devices_res *known;
    int code = flyt_nvml_take(false, &known);
    if (code)
        return code;
    int version = known->driver.cuda_version ? (int)known->driver.cuda_version : CUDA_VERSION;
    flyt_nvml_give_back();
    if (!ret_version)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_version = version;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlSystemGetCudaDriverVersion, int *ret_version)
{
    return nvmlSystemGetCudaDriverVersion_v2(ret_version);
}

/* ---- what is not there ---- */

static int none(unsigned *ret_count)
{
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    if (!ret_count)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_count = 0;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlUnitGetCount, unsigned *ret_count)
{
    return none(ret_count);
}

FLYT_NVML_FUNCTION(nvmlGetExcludedDeviceCount, unsigned *ret_count)
{
    return none(ret_count);
}

/* ---- programs ---- */

/* A program's first word, as it was started; what there is no room for is cut. */
FLYT_NVML_FUNCTION(nvmlSystemGetProcessName, unsigned pid, char *ret_name, unsigned bytes)
{
    char path[32];
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    if (!ret_name || !bytes)
        return FLYT_NVML_INVALID_ARGUMENT;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == EACCES ? FLYT_NVML_NO_PERMISSION : FLYT_NVML_NOT_FOUND;
    ssize_t got = read(fd, ret_name, bytes - 1);
    flyt_close(fd);
    ret_name[got > 0 ? got : 0] = 0;
    return got > 0 ? FLYT_NVML_SUCCESS : FLYT_NVML_NOT_FOUND;
}
