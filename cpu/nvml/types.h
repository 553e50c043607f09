/*
 * What programs and libnvidia-ml.so.1 agree on, as NVIDIA's NVML API Reference Guide describes it: codes, structures
 * and constants of the functions that are answered here. NVIDIA's nvml.h is not needed to build; where the toolkit has
 * it, types_test compares.
 */
#ifndef FLYT_NVML_TYPES_H
#define FLYT_NVML_TYPES_H

#include <stddef.h>
#include <stdint.h>

enum flyt_nvml_result { /* nvmlReturn_t */
                        FLYT_NVML_SUCCESS = 0,
                        FLYT_NVML_UNINITIALIZED = 1,
                        FLYT_NVML_INVALID_ARGUMENT = 2,
                        FLYT_NVML_NOT_SUPPORTED = 3,
                        FLYT_NVML_NO_PERMISSION = 4,
                        FLYT_NVML_NOT_FOUND = 6,
                        FLYT_NVML_INSUFFICIENT_SIZE = 7,
                        FLYT_NVML_DRIVER_NOT_LOADED = 9,
                        FLYT_NVML_MEMORY = 20,
                        FLYT_NVML_VERSION_MISMATCH = 25,
                        FLYT_NVML_NOT_READY = 27,
                        FLYT_NVML_UNKNOWN = 999,
};

/* The `version` of a structure that has one. */
#define FLYT_NVML_VERSION(type, number) ((unsigned)sizeof(type) | (number) << 24)

#define FLYT_NVML_NOT_AVAILABLE ((unsigned long long)-1) /* of a number that is not known */

enum {
    FLYT_NVML_BUS_ID_BYTES = 32,
    FLYT_NVML_BUS_ID_LEGACY_BYTES = 16,
    FLYT_NVML_UUID_TEXT_BYTES = 41,
    FLYT_NVML_FLAG_NO_GPUS = 1,
    FLYT_NVML_FLAG_NO_ATTACH = 2,
    FLYT_NVML_UUID_TEXT = 1,
    FLYT_NVML_UUID_BINARY = 2,
    FLYT_NVML_NO_INSTANCE = -1, /* a process is in no part of a GPU */
};

enum { /* nvmlBrandType_t */
       FLYT_NVML_BRAND_UNKNOWN = 0,
       FLYT_NVML_BRAND_QUADRO = 1,
       FLYT_NVML_BRAND_TESLA = 2,
       FLYT_NVML_BRAND_GEFORCE = 5,
       FLYT_NVML_BRAND_TITAN = 6,
       FLYT_NVML_BRAND_RTX = 13,
       FLYT_NVML_BRAND_NVIDIA = 14,
};

typedef const struct flyt_nvml_device *flyt_nvml_device; /* nvmlDevice_t */

struct flyt_nvml_pci { /* nvmlPciInfo_t */
    char bus_id_legacy[FLYT_NVML_BUS_ID_LEGACY_BYTES];
    unsigned domain, bus, device, device_id;
    unsigned subsystem_id;
    char bus_id[FLYT_NVML_BUS_ID_BYTES];
};

struct flyt_nvml_pci_ext { /* nvmlPciInfoExt_v1_t */
    unsigned version;
    unsigned domain, bus, device, device_id, subsystem_id, base_class, sub_class;
    char bus_id[FLYT_NVML_BUS_ID_BYTES];
};

struct flyt_nvml_memory { /* nvmlMemory_t */
    unsigned long long total, free, used;
};

struct flyt_nvml_memory_v2 { /* nvmlMemory_v2_t */
    unsigned version;
    unsigned long long total, reserved, free, used;
};

struct flyt_nvml_utilization { /* nvmlUtilization_t */
    unsigned gpu, memory;
};

struct flyt_nvml_process_v1 { /* nvmlProcessInfo_v1_t */
    unsigned pid;
    unsigned long long used_bytes;
};

struct flyt_nvml_process { /* nvmlProcessInfo_v2_t */
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct flyt_nvml_uuid { /* nvmlUUID_v1_t */
    unsigned version, type;
    union {
        char text[FLYT_NVML_UUID_TEXT_BYTES];
        unsigned char bytes[16];
    } value;
};

#endif
