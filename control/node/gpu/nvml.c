#include "control/node/gpu/nvml.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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
struct nvml_process { /* nvmlProcessInfo_t of the functions whose name ends in _v3 */
    unsigned pid;
    unsigned long long used_bytes; /* NOT_AVAILABLE: not told */
    unsigned gpu_instance, compute_instance;
};
_Static_assert(sizeof(struct nvml_process) == 24, "nvmlProcessInfo_v2_t");

struct nvml_process_utilization { /* nvmlProcessUtilizationSample_t */
    unsigned pid;
    unsigned long long timestamp_us;
    unsigned sm_pct, memory_pct, encoder_pct, decoder_pct;
};
_Static_assert(sizeof(struct nvml_process_utilization) == 32, "nvmlProcessUtilizationSample_t");

static const unsigned long long NOT_AVAILABLE = ~0ull; /* NVML_VALUE_NOT_AVAILABLE */

enum { NVML_SUCCESS = 0, NVML_ERROR_NOT_SUPPORTED = 3, NVML_ERROR_GPU_IS_LOST = 15, NVML_TEMPERATURE_GPU = 0 };
enum { NVML_UUID_BYTES = 96, NVML_NAME_BYTES = 96, PROCESSES_MAX = 256 /* of a GPU; MPS has 48 clients */ };

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
    /* NULL where the driver has none. */
    int (*driver_version)(char *version, unsigned bytes);
    int (*cuda_version)(int *version);
    int (*processes)(nvmlDevice_t device, unsigned *count, struct nvml_process *processes);
    int (*mps_processes)(nvmlDevice_t device, unsigned *count, struct nvml_process *processes);
    int (*process_utilization)(nvmlDevice_t device, struct nvml_process_utilization *samples, unsigned *count,
                               unsigned long long after_us);
};

static const struct {
    const char *name;
    size_t offset;
    bool is_optional;
} symbols[] = {
    {"nvmlInit_v2", offsetof(struct functions, init), false},
    {"nvmlShutdown", offsetof(struct functions, shutdown), false},
    {"nvmlErrorString", offsetof(struct functions, error), false},
    {"nvmlDeviceGetCount_v2", offsetof(struct functions, count), false},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(struct functions, device), false},
    {"nvmlDeviceGetUUID", offsetof(struct functions, uuid), false},
    {"nvmlDeviceGetName", offsetof(struct functions, name), false},
    {"nvmlDeviceGetMemoryInfo", offsetof(struct functions, memory), false},
    {"nvmlDeviceGetUtilizationRates", offsetof(struct functions, utilization), false},
    {"nvmlDeviceGetPowerUsage", offsetof(struct functions, power), false},
    {"nvmlDeviceGetTemperature", offsetof(struct functions, temperature), false},
    {"nvmlSystemGetDriverVersion", offsetof(struct functions, driver_version), true},
    {"nvmlSystemGetCudaDriverVersion_v2", offsetof(struct functions, cuda_version), true},
    {"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct functions, processes), true},
    {"nvmlDeviceGetMPSComputeRunningProcesses_v3", offsetof(struct functions, mps_processes), true},
    {"nvmlDeviceGetProcessUtilization", offsetof(struct functions, process_utilization), true},
};

struct figures {
    int status; /* of NVML */
    uint64_t used_bytes;
    unsigned busy_pct, power_w, temperature_c;
    struct nvml_process processes[PROCESSES_MAX];
    unsigned process_count;
    uint64_t measured_us, span_us; /* of the real time; since the measurement before */
    struct nvml_process_utilization samples[PROCESSES_MAX];
    unsigned sample_count;
};

/* What a process has had of a GPU's time. */
struct worked {
    unsigned pid; /* 0: free */
    uint64_t busy_us, seen_us;
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
    void (*measured)(void *user);
    void *user;
    struct figures figures[FLYT_GPUS_MAX];
    struct worked worked[FLYT_GPUS_MAX][PROCESSES_MAX];
};

static int load(struct flyt_node_nvml *nvml, const char *library, struct flyt_error *err)
{
    nvml->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!nvml->library)
        return flyt_error_set(err, -ENOENT, "NVIDIA's driver is not installed here: %.300s", dlerror());
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0]; i++) {
        void *symbol = dlsym(nvml->library, symbols[i].name);
        if (!symbol && symbols[i].is_optional)
            continue;
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

void flyt_node_nvml_versions(struct flyt_node_nvml *nvml, char *ret_driver, unsigned *ret_cuda)
{
    int cuda = 0;

    *ret_driver = 0;
    if (nvml->nvml.driver_version && nvml->nvml.driver_version(ret_driver, FLYT_NODE_DRIVER_BYTES))
        *ret_driver = 0;
    if (nvml->nvml.cuda_version && nvml->nvml.cuda_version(&cuda))
        cuda = 0;
    *ret_cuda = cuda > 0 ? (unsigned)cuda : 0;
}

/* ---- how it is ---- */

static void add_processes(int (*list)(nvmlDevice_t device, unsigned *count, struct nvml_process *processes),
                          nvmlDevice_t device, struct figures *figures)
{
    unsigned count = PROCESSES_MAX - figures->process_count;

    /* More than there is room for (NVML_ERROR_INSUFFICIENT_SIZE): none of them is told. */
    if (list && !list(device, &count, figures->processes + figures->process_count) &&
        count <= PROCESSES_MAX - figures->process_count)
        figures->process_count += count;
}

/* Since the last time; nothing where there is no process with more than 0, or the driver does not tell. */
static void add_samples(const struct functions *nvml, nvmlDevice_t device, uint64_t before_us, struct figures *figures)
{
    struct timespec now;
    unsigned count = PROCESSES_MAX;

    clock_gettime(CLOCK_REALTIME, &now);
    figures->measured_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    if (!before_us || figures->measured_us <= before_us)
        return;
    figures->span_us = figures->measured_us - before_us;
    if (nvml->process_utilization && !nvml->process_utilization(device, figures->samples, &count, before_us) &&
        count <= PROCESSES_MAX)
        figures->sample_count = count;
}

static void measure(const struct functions *nvml, unsigned index, struct figures *ret_figures)
{
    const uint64_t before_us = ret_figures->measured_us;
    struct nvml_utilization utilization;
    struct nvml_memory memory;
    unsigned milliwatts;
    nvmlDevice_t device;

    memset(ret_figures, 0, sizeof *ret_figures);
    ret_figures->status = nvml->device(index, &device);
    if (!ret_figures->status)
        ret_figures->status = nvml->memory(device, &memory);
    if (ret_figures->status)
        return;
    ret_figures->used_bytes = memory.used;
    /* Not every GPU tells the others: then they are 0. */
    if (!nvml->utilization(device, &utilization))
        ret_figures->busy_pct = utilization.gpu;
    if (!nvml->power(device, &milliwatts))
        ret_figures->power_w = milliwatts / 1000;
    if (nvml->temperature(device, NVML_TEMPERATURE_GPU, &ret_figures->temperature_c))
        ret_figures->temperature_c = 0;
    add_processes(nvml->mps_processes, device, ret_figures);
    add_processes(nvml->processes, device, ret_figures);
    add_samples(nvml, device, before_us, ret_figures);
}

static void work(void *job)
{
    struct flyt_node_nvml *nvml = job;

    for (unsigned i = 0; i < nvml->count; i++)
        measure(&nvml->nvml, i, &nvml->figures[i]);
}

/* Its entry; a new one takes the place of who has not been seen for longest. */
static struct worked *need_worked(struct worked *all, unsigned pid)
{
    struct worked *oldest = &all[0];

    for (unsigned i = 0; i < PROCESSES_MAX; i++) {
        if (all[i].pid == pid)
            return &all[i];
        if (all[i].seen_us < oldest->seen_us)
            oldest = &all[i];
    }
    *oldest = (struct worked){.pid = pid};
    return oldest;
}

static void count_work(struct worked *all, const struct figures *figures)
{
    for (unsigned i = 0; i < figures->sample_count; i++) {
        const struct nvml_process_utilization *sample = &figures->samples[i];
        if (!sample->pid || !sample->sm_pct || sample->sm_pct > 100)
            continue;
        struct worked *worked = need_worked(all, sample->pid);
        worked->busy_us += figures->span_us * sample->sm_pct / 100;
        worked->seen_us = figures->measured_us;
    }
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
        count_work(nvml->worked[i], figures);
    }
    if (!is_cancelled && nvml->measured)
        nvml->measured(nvml->user);
}

void flyt_node_nvml_measure(struct flyt_node_nvml *nvml, struct flyt_node_gpus *gpus, void (*measured)(void *user),
                            void *user)
{
    if (nvml->is_measuring)
        return;
    nvml->gpus = gpus;
    nvml->count = gpus->count;
    nvml->measured = measured;
    nvml->user = user;
    nvml->is_measuring = !flyt_worker_do(nvml->worker, work, done, nvml);
}

bool flyt_node_nvml_is_measuring(const struct flyt_node_nvml *nvml)
{
    return nvml->is_measuring;
}

bool flyt_node_nvml_process(const struct flyt_node_nvml *nvml, unsigned gpu, pid_t pid, uint64_t *ret_bytes)
{
    if (nvml->is_measuring || gpu >= nvml->count || nvml->figures[gpu].status)
        return false;
    for (unsigned i = 0; i < nvml->figures[gpu].process_count; i++) {
        const struct nvml_process *process = &nvml->figures[gpu].processes[i];
        if (process->pid != (unsigned)pid || process->used_bytes == NOT_AVAILABLE)
            continue;
        *ret_bytes = process->used_bytes;
        return true;
    }
    return false;
}

static bool account_busy(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_busy_us)
{
    const struct flyt_node_nvml *nvml = source;

    for (unsigned i = 0; gpu->index < FLYT_GPUS_MAX && !gpu->is_mps && i < PROCESSES_MAX; i++) {
        if (nvml->worked[gpu->index][i].pid != (unsigned)pid)
            continue;
        *ret_busy_us = nvml->worked[gpu->index][i].busy_us;
        return true;
    }
    return false;
}

static bool account_memory(void *source, const struct flyt_node_gpu *gpu, pid_t pid, uint64_t *ret_bytes)
{
    return flyt_node_nvml_process(source, gpu->index, pid, ret_bytes);
}

struct flyt_node_gpu_account flyt_node_nvml_account(struct flyt_node_nvml *nvml)
{
    static const struct flyt_node_gpu_account_ops ops = {account_busy, account_memory};

    return (struct flyt_node_gpu_account){&ops, nvml};
}
