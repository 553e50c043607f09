/* What kind of device it is: what follows from its name and its compute capability. */
#include <string.h>

#include "cpu/nvml/library.h"

FLYT_NVML_FUNCTION(nvmlDeviceGetBrand, flyt_nvml_device device, int *ret_brand)
{
    static const struct {
        const char *word;
        int brand;
    } brands[] = {{"GeForce", FLYT_NVML_BRAND_GEFORCE}, {"TITAN", FLYT_NVML_BRAND_TITAN},
                  {"Quadro", FLYT_NVML_BRAND_QUADRO},   {"RTX", FLYT_NVML_BRAND_RTX},
                  {"Tesla", FLYT_NVML_BRAND_TESLA},     {"NVIDIA", FLYT_NVML_BRAND_NVIDIA}};
    const flyt_local_device *known;
    int brand = FLYT_NVML_BRAND_UNKNOWN;

    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    for (size_t i = 0; !brand && i < sizeof brands / sizeof brands[0]; i++)
        if (strstr(known->use.type, brands[i].word))
            brand = brands[i].brand;
    flyt_nvml_give_back();
    if (!ret_brand)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_brand = brand;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetCudaComputeCapability, flyt_nvml_device device, int *ret_major, int *ret_minor)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    int major = (int)known->use.compute_major, minor = (int)known->use.compute_minor;
    flyt_nvml_give_back();
    if (!ret_major || !ret_minor)
        return FLYT_NVML_INVALID_ARGUMENT;
    if (!major)
        return FLYT_NVML_NOT_SUPPORTED;
    *ret_major = major;
    *ret_minor = minor;
    return FLYT_NVML_SUCCESS;
}

/* NVML's number of the architecture that the compute capability is of. */
FLYT_NVML_FUNCTION(nvmlDeviceGetArchitecture, flyt_nvml_device device, unsigned *ret_architecture)
{
    static const struct {
        int capability; /* 10 * major + minor: from this one on */
        unsigned architecture;
    } architectures[] = {{130, 0xffffffff}, {100, 10}, {90, 9}, {89, 8}, {80, 7},
                         {75, 6},           {70, 5},   {60, 4}, {50, 3}, {30, 2}};
    int major, minor;

    int code = nvmlDeviceGetCudaComputeCapability(device, &major, &minor);
    if (code)
        return code;
    if (!ret_architecture)
        return FLYT_NVML_INVALID_ARGUMENT;
    size_t i = 0;
    while (i < sizeof architectures / sizeof architectures[0] - 1 && 10 * major + minor < architectures[i].capability)
        i++;
    *ret_architecture = architectures[i].architecture;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetMigMode, flyt_nvml_device device, unsigned *ret_now, unsigned *ret_pending)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    flyt_nvml_give_back();
    if (!ret_now || !ret_pending)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_now = *ret_pending = 0;
    return FLYT_NVML_SUCCESS;
}
