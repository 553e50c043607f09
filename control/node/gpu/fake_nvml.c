/*
 * A libnvidia-ml.so.1 for tests: two GPUs, whose figures follow from their index. FLYT_FAKE_NVML="lost" loses the
 * second one. FLYT_FAKE_NVML_PROCESSES="GPU PID BYTES" is a process that computes on a GPU, with "mps" behind that
 * under MPS; BYTES -1: not told. FLYT_FAKE_NVML_BUSY="GPU PID PCT" is one that keeps SMs busy.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVML __attribute__((visibility("default")))

typedef struct nvmlDevice_st *nvmlDevice_t;

static char devices[2];

NVML int nvmlInit_v2(void);
NVML int nvmlShutdown(void);
NVML const char *nvmlErrorString(int code);
NVML int nvmlDeviceGetCount_v2(unsigned *count);
NVML int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device);
NVML int nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned bytes);
NVML int nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned bytes);
NVML int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, unsigned long long *memory);
NVML int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned *utilization);
NVML int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts);
NVML int nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius);
NVML int nvmlSystemGetDriverVersion(char *version, unsigned bytes);
NVML int nvmlSystemGetCudaDriverVersion_v2(int *version);

struct process {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

struct sample {
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm_pct, memory_pct, encoder_pct, decoder_pct;
};

NVML int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct sample *samples, unsigned *count,
                                         unsigned long long after_us);
NVML int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *processes);
NVML int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *processes);

static unsigned index_of(nvmlDevice_t device)
{
    return (unsigned)((char *)device - devices);
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlSystemGetDriverVersion(char *version, unsigned bytes)
{
    return snprintf(version, bytes, "580.1.2") < (int)bytes ? 0 : 7;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    *version = 13000;
    return 0;
}

const char *nvmlErrorString(int code)
{
    return code == 15 ? "GPU is lost" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = 2;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    const char *mood = getenv("FLYT_FAKE_NVML");

    if (index == 1 && mood && !strcmp(mood, "lost"))
        return 15;
    *device = (nvmlDevice_t)(void *)&devices[index];
    return 0;
}

int nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned bytes)
{
    snprintf(uuid, bytes, "GPU-00000000-0000-0000-0000-%012u", index_of(device) + 1);
    return 0;
}

int nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned bytes)
{
    snprintf(name, bytes, "NVIDIA H200");
    return 0;
}

int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, unsigned long long *memory)
{
    memory[0] = 150754820096ull;
    memory[2] = 1000 + index_of(device);
    memory[1] = memory[0] - memory[2];
    return 0;
}

int nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned *utilization)
{
    utilization[0] = 40 + index_of(device);
    utilization[1] = 0;
    return 0;
}

int nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts)
{
    *milliwatts = 700500;
    return index_of(device) ? 3 /* not supported */ : 0;
}

int nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *celsius)
{
    *celsius = 50 + index_of(device);
    return sensor;
}

static int list(nvmlDevice_t device, int is_mps, unsigned *count, struct process *processes)
{
    const char *text = getenv("FLYT_FAKE_NVML_PROCESSES");
    struct process process = {0};
    long long bytes;
    unsigned gpu;
    int end = 0;

    if (!text || sscanf(text, "%u %u %lld%n", &gpu, &process.pid, &bytes, &end) != 3 || gpu != index_of(device) ||
        !!strstr(text + end, "mps") != is_mps) {
        *count = 0;
        return 0;
    }
    if (!*count)
        return 7; /* NVML_ERROR_INSUFFICIENT_SIZE */
    process.used_bytes = (unsigned long long)bytes;
    processes[0] = process;
    *count = 1;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *processes)
{
    return list(device, 0, count, processes);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, struct process *processes)
{
    return list(device, 1, count, processes);
}

int nvmlDeviceGetProcessUtilization(nvmlDevice_t device, struct sample *samples, unsigned *count,
                                    unsigned long long after_us)
{
    const char *text = getenv("FLYT_FAKE_NVML_BUSY");
    struct sample sample = {.timestamp_us = after_us + 1};
    unsigned gpu;

    if (!text || sscanf(text, "%u %u %u", &gpu, &sample.pid, &sample.sm_pct) != 3 || gpu != index_of(device))
        return 6 /* not found */;
    *samples = sample;
    *count = 1;
    return 0;
}
