#include "control/node/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/base/worker.h"
#include "rpc/base/log.h"

/* ---- of NVIDIA's documentation (NVML API Reference Guide) ---- */

typedef struct nvmlDevice_st *nvmlDevice_t;

struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_utilization {
    unsigned gpu, memory;
};

enum { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_GPU_IS_LOST = 15, NVML_TEMPERATURE_GPU = 0 };
enum { NVML_UUID_BYTES = 96, NVML_NAME_BYTES = 96 };

struct functions {
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error)(int code);
    int (*count)(unsigned *count);
    int (*device)(unsigned index, nvmlDevice_t *device);
    int (*uuid)(nvmlDevice_t device, char *uuid, unsigned bytes);
    int (*name)(nvmlDevice_t device, char *name, unsigned bytes);
    int (*memory)(nvmlDevice_t device, struct nvml_memory *memory);
    int (*utilization)(nvmlDevice_t device, struct nvml_utilization *utilization);
    int (*power)(nvmlDevice_t device, unsigned *milliwatts);
    int (*temperature)(nvmlDevice_t device, int sensor, unsigned *celsius);
};

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct functions, init)},
    {"nvmlShutdown", offsetof(struct functions, shutdown)},
    {"nvmlErrorString", offsetof(struct functions, error)},
    {"nvmlDeviceGetCount_v2", offsetof(struct functions, count)},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct functions, device)},
    {"nvmlDeviceGetUUID", offsetof(struct functions, uuid)},
    {"nvmlDeviceGetName", offsetof(struct functions, name)},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct functions, memory)},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct functions, utilization)},
    {"nvmlDeviceGetPowerUsage", offsetof(struct functions, power)},
    {"nvmlDeviceGetTemperature", offsetof(struct functions, temperature)},
};

struct figures {
    int status; /* of NVML */
    uint64_t used_bytes;
    unsigned busy_pct, power_w, temperature_c;
};

struct flyt_node_nvml {
    void *library;
    struct functions nvml;
    bool is_initialised;
    struct flyt_worker *worker;
    bool is_measuring;
    /* Of the measurement under way: the thread's between its beginning and its end. */
    struct flyt_node_gpus *gpus;
    unsigned count;
    struct figures figures[FLYT_GPUS_MAX];
};

static int load(struct flyt_node_nvml *nvml, const char *library, struct flyt_error *err)
{
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return flyt_error_set(err, -ENOENT, "NVIDIA's driver is not installed here: %.300s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(nvml->library, symbols[i].name);
        if (!symbol)
            return flyt_error_set(err, -ENOSYS, "%s has no %s: the driver is too old", library, symbols[i].name);
        memcpy((char *)&nvml->nvml + symbols[i].offset, &symbol, sizeof symbol);
    }
    int status = nvml->nvml.init();
    if (status)
        return flyt_error_set(err, -ENODEV, "NVML cannot be used: %s", nvml->nvml.error(status));
    nvml->is_initialised = true;
    return 0;
}

int flyt_node_nvml_open(const char *library, sd_event *event, struct flyt_error *err, struct flyt_node_nvml **ret_nvml)
{
    struct flyt_node_nvml *nvml = calloc(1, sizeof *nvml);

    if (!nvml)
        return flyt_error_set(err, -ENOMEM, "no memory");
    int status = load(nvml, library ? library : "libnvidia-ml.so.1", err);
    if (!status) {
        status = flyt_worker_new(event, "nvml", 4, &nvml->worker);
        if (status)
            flyt_error_set(err, status, "no thread for NVML: %s", strerror(-status));
    }
    if (status) {
        flyt_node_nvml_close(nvml);
        return status;
    }
    *ret_nvml = nvml;
    return 0;
}

struct flyt_node_nvml *flyt_node_nvml_close(struct flyt_node_nvml *nvml)
{
    if (!nvml)
        return NULL;
    flyt_worker_free(nvml->worker);
    if (nvml->is_initialised)
        nvml->nvml.shutdown();
    if (nvml->library)
        dlclose(nvml->library);
    free(nvml);
    return NULL;
}

/* ---- what there is ---- */

static int describe(struct flyt_node_nvml *nvml, unsigned index, struct flyt_node_gpu *gpu)
{
    char uuid[NVML_UUID_BYTES], name[NVML_NAME_BYTES];
    struct nvml_memory memory;
    nvmlDevice_t device;

    int status = nvml->nvml.device(index, &device);
    if (!status)
        status = nvml->nvml.uuid(device, uuid, sizeof uuid);
    if (!status)
        status = nvml->nvml.name(device, name, sizeof name);
    if (!status)
        status = nvml->nvml.memory(device, &memory);
    if (status)
        return status;
    gpu->index = index;
    gpu->memory_bytes = memory.total;
    snprintf(gpu->uuid, sizeof gpu->uuid, "%.47s", uuid);
    snprintf(gpu->type, sizeof gpu->type, "%s", name);
    return flyt_node_uuid_parse(gpu->uuid, gpu->uuid_bytes) ? NVML_ERROR_NOT_SUPPORTED : 0;
}

int flyt_node_nvml_list(struct flyt_node_nvml *nvml, unsigned group_size, struct flyt_error *err,
                        struct flyt_node_gpus *ret_gpus)
{
    unsigned count = 0;

    int status = nvml->nvml.count(&count);
    if (status)
        return flyt_error_set(err, -ENODEV, "NVML does not list the GPUs: %s", nvml->nvml.error(status));
    if (count > FLYT_GPUS_MAX)
        return flyt_error_set(err, -E2BIG, "this machine has %u GPUs, more than the %d that a node may have", count,
                              FLYT_GPUS_MAX);
    struct flyt_node_gpu *items = calloc(count + 1, sizeof *items);
    if (!items)
        return flyt_error_set(err, -ENOMEM, "no memory");
    for (unsigned i = 0; i < count; i++) {
        status = describe(nvml, i, &items[i]);
        if (status) {
            free(items);
            return flyt_error_set(err, -ENODEV, "GPU %u cannot be asked what it is: %s", i, nvml->nvml.error(status));
        }
        items[i].group_size = group_size;
    }
    *ret_gpus = (struct flyt_node_gpus){items, count};
    return 0;
}

/* ---- how it is ---- */

static struct figures measure(const struct functions *nvml, unsigned index)
{
    struct nvml_utilization utilization;
    struct nvml_memory memory;
    struct figures figures = {0};
    unsigned milliwatts;
    nvmlDevice_t device;

    figures.status = nvml->device(index, &device);
    if (!figures.status)
        figures.status = nvml->memory(device, &memory);
    if (figures.status)
        return figures;
    figures.used_bytes = memory.used;
    /* Not every GPU tells the others: then they are 0. */
    if (!nvml->utilization(device, &utilization))
        figures.busy_pct = utilization.gpu;
    if (!nvml->power(device, &milliwatts))
        figures.power_w = milliwatts / 1000;
    if (nvml->temperature(device, NVML_TEMPERATURE_GPU, &figures.temperature_c))
        figures.temperature_c = 0;
    return figures;
}

static void work(void *job)
{
    struct flyt_node_nvml *nvml = job;

    for (unsigned i = 0; i < nvml->count; i++)
        nvml->figures[i] = measure(&nvml->nvml, i);
}

static void done(void *job, int is_cancelled)
{
    struct flyt_node_nvml *nvml = job;

    nvml->is_measuring = false;
    for (unsigned i = 0; i < nvml->count && !is_cancelled; i++) {
        struct flyt_node_gpu *gpu = &nvml->gpus->items[i];
        const struct figures *figures = &nvml->figures[i];
        if (figures->status) {
            flyt_node_gpu_set_health(
                gpu, figures->status == NVML_ERROR_GPU_IS_LOST ? FLYT_HEALTH_FAILED : FLYT_HEALTH_DEGRADED,
                nvml->nvml.error(figures->status));
            continue;
        }
        gpu->used_bytes = figures->used_bytes;
        gpu->busy_pct = figures->busy_pct;
        gpu->power_w = figures->power_w;
        gpu->temperature_c = figures->temperature_c;
    }
}

void flyt_node_nvml_measure(struct flyt_node_nvml *nvml, struct flyt_node_gpus *gpus)
{
    if (nvml->is_measuring)
        return;
    nvml->gpus = gpus;
    nvml->count = gpus->count;
    nvml->is_measuring = !flyt_worker_do(nvml->worker, work, done, nvml);
}
