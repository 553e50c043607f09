/* What the VM uses of a device: memory, time, programs. */
#include <string.h>

#include "cpu/nvml/library.h"

/* ---- memory ---- */

static int take_memory(flyt_nvml_device device, struct flyt_nvml_memory *ret_memory)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, true, NULL, &known);
    if (code)
        return code;
    const flyt_device_use *use = &known->use;
    struct flyt_nvml_memory memory = {.total = use->memory_bytes, .used = use->memory_used_bytes};
    flyt_nvml_give_back();
    if (memory.used == FLYT_UNKNOWN_BYTES)
        return FLYT_NVML_NOT_READY;
    /* A limit that is lowered holds as programs give memory back. */
    memory.free = memory.used < memory.total ? memory.total - memory.used : 0;
    *ret_memory = memory;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetMemoryInfo, flyt_nvml_device device, struct flyt_nvml_memory *ret_memory)
{
    struct flyt_nvml_memory memory;
    int code = take_memory(device, &memory);
    if (code)
        return code;
    if (!ret_memory)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_memory = memory;
    return FLYT_NVML_SUCCESS;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetMemoryInfo_v2, flyt_nvml_device device, struct flyt_nvml_memory_v2 *ret_memory)
{
    struct flyt_nvml_memory memory;
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    if (!ret_memory)
        return FLYT_NVML_INVALID_ARGUMENT;
    if (ret_memory->version != FLYT_NVML_VERSION(*ret_memory, 2))
        return FLYT_NVML_VERSION_MISMATCH;
    int code = take_memory(device, &memory);
    if (code)
        return code;
    ret_memory->total = memory.total;
    ret_memory->reserved = 0; /* what the driver keeps is beside the VM's limit */
    ret_memory->free = memory.free;
    ret_memory->used = memory.used;
    return FLYT_NVML_SUCCESS;
}

/* ---- time ---- */

/* How much of the time memory was in use nobody measures: 0. */
FLYT_NVML_FUNCTION(nvmlDeviceGetUtilizationRates, flyt_nvml_device device, struct flyt_nvml_utilization *ret_rates)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, true, NULL, &known);
    if (code)
        return code;
    unsigned pct = known->use.busy_pct;
    flyt_nvml_give_back();
    if (!ret_rates)
        return FLYT_NVML_INVALID_ARGUMENT;
    if (pct == FLYT_UNKNOWN)
        return FLYT_NVML_NOT_SUPPORTED;
    *ret_rates = (struct flyt_nvml_utilization){.gpu = pct};
    return FLYT_NVML_SUCCESS;
}

/* ---- programs ---- */

/* Puts one into the caller's array, in the form of this version. */
typedef void (*put_fn)(void *ret_processes, unsigned at, unsigned pid, unsigned long long used_bytes);

static void put_v1(void *ret_processes, unsigned at, unsigned pid, unsigned long long used_bytes)
{
    ((struct flyt_nvml_process_v1 *)ret_processes)[at] = (struct flyt_nvml_process_v1){pid, used_bytes};
}

static void put_v2(void *ret_processes, unsigned at, unsigned pid, unsigned long long used_bytes)
{
    ((struct flyt_nvml_process *)ret_processes)[at] =
        (struct flyt_nvml_process){pid, used_bytes, (unsigned)FLYT_NVML_NO_INSTANCE, (unsigned)FLYT_NVML_NO_INSTANCE};
}

/* A program's session has all of the VM's devices; how much it has on each is known where there is one. */
static unsigned long long bytes_on_one(const flyt_local_devices_res *known, const flyt_program_use *use)
{
    return known->devices.devices_len == 1 && use->memory_bytes != FLYT_UNKNOWN_BYTES ? use->memory_bytes
                                                                                      : FLYT_NVML_NOT_AVAILABLE;
}

static int list_programs(flyt_nvml_device device, unsigned *count, void *ret_processes, put_fn put)
{
    const flyt_local_devices_res *known;
    const flyt_local_device *which;
    int code = flyt_nvml_take_device(device, true, &known, &which);
    if (code)
        return code;
    unsigned room = count ? *count : 0, needed = known->programs.programs_len;
    if (!count || (room && !ret_processes))
        code = FLYT_NVML_INVALID_ARGUMENT;
    else if (room < needed)
        code = FLYT_NVML_INSUFFICIENT_SIZE;
    for (unsigned i = 0; !code && i < needed; i++)
        put(ret_processes, i, known->programs.programs_val[i].pid,
            bytes_on_one(known, &known->programs.programs_val[i]));
    flyt_nvml_give_back();
    if (count && code != FLYT_NVML_INVALID_ARGUMENT)
        *count = needed;
    return code;
}

FLYT_NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, flyt_nvml_device device, unsigned *count,
                   struct flyt_nvml_process *ret_processes)
{
    return list_programs(device, count, ret_processes, put_v2);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses_v2, flyt_nvml_device device, unsigned *count,
                   struct flyt_nvml_process *ret_processes)
{
    return list_programs(device, count, ret_processes, put_v2);
}

FLYT_NVML_FUNCTION(nvmlDeviceGetComputeRunningProcesses, flyt_nvml_device device, unsigned *count,
                   struct flyt_nvml_process_v1 *ret_processes)
{
    return list_programs(device, count, ret_processes, put_v1);
}

/* Nothing draws here, and what is a client of MPS is the node's. */
static int list_nobody(flyt_nvml_device device, unsigned *count)
{
    const flyt_local_device *known;
    int code = flyt_nvml_take_device(device, false, NULL, &known);
    if (code)
        return code;
    flyt_nvml_give_back();
    if (!count)
        return FLYT_NVML_INVALID_ARGUMENT;
    *count = 0;
    return FLYT_NVML_SUCCESS;
}

#define NOBODY(name)                                                                                                   \
    FLYT_NVML_FUNCTION(name, flyt_nvml_device device, unsigned *count, void *ret_processes)                            \
    {                                                                                                                  \
        return list_nobody(device, count);                                                                             \
    }
NOBODY(nvmlDeviceGetGraphicsRunningProcesses)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v2)
NOBODY(nvmlDeviceGetGraphicsRunningProcesses_v3)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v2)
NOBODY(nvmlDeviceGetMPSComputeRunningProcesses_v3)
