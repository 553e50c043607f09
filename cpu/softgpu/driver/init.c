/* The instance, its configuration, and what belongs to no device. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/driver.h"
#include "cpu/softgpu/driver/queue.h"

static pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;

static const uint64_t SM_RATE_MAX = 1000000000000; /* what ptx/partition.h takes */

struct config {
    unsigned device_count;
    unsigned sm_count;
    unsigned worker_count; /* 0: one for each processor */
    unsigned client_slots; /* 0: any number */
    uint64_t memory_bytes;
    uint64_t sm_rate;
    unsigned is_dirty, has_green, dump_ms;
    const char *client_folder, *account_folder, *fault_folder; /* NULL: none */
    struct flyt_soft_arch archs[FLYT_SOFT_DEVICES_MAX];
};

/* A whole number between min and max from the environment. False: set to something else. */
static bool read_count(const char *name, uint64_t min, uint64_t max, uint64_t *number)
{
    const char *text = getenv(name);
    unsigned long long value;
    char *end;

    if (!text || !*text)
        return true;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || *end || !isdigit((unsigned char)*text) || value < min || value > max)
        return false;
    *number = value;
    return true;
}

static bool read_number(const char *name, unsigned min, unsigned max, unsigned *number)
{
    uint64_t value = *number;

    if (!read_count(name, min, max, &value))
        return false;
    *number = (unsigned)value;
    return true;
}

static const char *read_text(const char *name)
{
    const char *text = getenv(name);

    return text && *text ? text : NULL;
}

/* A size such as 4G, 512M or a number of bytes. False: something else, or less than 64 MiB. */
static bool read_memory(const char *name, uint64_t *bytes)
{
    static const char units[] = "KMGT";
    const char *text = getenv(name), *unit;
    unsigned long long value;
    unsigned shift = 0;
    char *end;

    if (!text || !*text)
        return true;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text))
        return false;
    if (*end) {
        unit = strchr(units, toupper((unsigned char)*end));
        if (!unit || end[1])
            return false;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (value > FLYT_SOFT_TIB >> shift || value << shift < (64u << 20))
        return false;
    *bytes = (value << shift) & ~(FLYT_SOFT_GRANULE_BYTES - 1);
    return true;
}

/* A compute capability, MAJOR.MINOR; what follows it. NULL: none is there, or one that is not known. */
static const char *parse_arch(const char *text, struct flyt_soft_arch *arch)
{
    unsigned long major, minor;
    char *end;

    if (!isdigit((unsigned char)*text))
        return NULL;
    major = strtoul(text, &end, 10);
    if (*end != '.' || !isdigit((unsigned char)end[1]))
        return NULL;
    minor = strtoul(end + 1, &end, 10);
    return major < 100 && minor < 10 && flyt_soft_arch_find((int)major, (int)minor, arch) ? end : NULL;
}

/* One for each device, with commas between; the last one is that of the devices behind it, too. */
static bool read_archs(const char *name, struct flyt_soft_arch *archs)
{
    const char *text = getenv(name);
    unsigned count = 1;

    text = parse_arch(text && *text ? text : "9.0", &archs[0]);
    for (; text && *text == ',' && count < FLYT_SOFT_DEVICES_MAX; count++)
        text = parse_arch(text + 1, &archs[count]);
    if (!text || *text)
        return false;
    for (; count < FLYT_SOFT_DEVICES_MAX; count++)
        archs[count] = archs[count - 1];
    return true;
}

/* As MPS's clients find their daemon: who is told another folder has no part in it. */
static const char *read_fault_folder(void)
{
    const char *folder = read_text("FLYT_SOFT_FAULT_FOLDER"), *pipes = read_text("CUDA_MPS_PIPE_DIRECTORY");

    return folder && pipes && strcmp(folder, pipes) ? NULL : folder;
}

static bool read_config(struct config *config)
{
    *config = (struct config){.device_count = 1, .sm_count = 132, .memory_bytes = 4 * FLYT_SOFT_GIB, .has_green = 1};
    config->client_folder = read_text("FLYT_SOFT_CLIENT_FOLDER");
    config->account_folder = read_text("FLYT_SOFT_ACCOUNT");
    config->fault_folder = read_fault_folder();
    return read_number("FLYT_SOFT_DEVICES", 0, FLYT_SOFT_DEVICES_MAX, &config->device_count) &&
           read_number("FLYT_SOFT_SMS", 1, FLYT_SOFT_SMS_MAX, &config->sm_count) &&
           read_number("FLYT_SOFT_WORKERS", 1, 1024, &config->worker_count) &&
           read_count("FLYT_SOFT_SM_RATE", 0, SM_RATE_MAX, &config->sm_rate) &&
           read_number("FLYT_SOFT_DIRTY", 0, 1, &config->is_dirty) &&
           read_number("FLYT_SOFT_GREEN", 0, 1, &config->has_green) &&
           read_number("FLYT_SOFT_DUMP_MS", 0, 60000, &config->dump_ms) &&
           read_number("FLYT_SOFT_CLIENT_SLOTS", 1, FLYT_SOFT_CLIENT_SLOTS_MAX, &config->client_slots) &&
           !config->client_slots == !config->client_folder && read_memory("FLYT_SOFT_MEMORY", &config->memory_bytes) &&
           read_archs("FLYT_SOFT_CC", config->archs);
}

static int device_init(struct flyt_soft_device *device, int index, const struct config *config)
{
    static const char uuid_text[] = "flyt-softgpu-00";

    device->index = index;
    device->sm_count = config->sm_count;
    device->arch = config->archs[index];
    memcpy(device->uuid.bytes, uuid_text, sizeof(device->uuid.bytes));
    device->uuid.bytes[sizeof(uuid_text) - 1] = (char)index;
    device->limits[CU_LIMIT_STACK_SIZE] = 1024;
    device->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
    device->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
    device->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
    device->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
    device->limits[CU_LIMIT_SHMEM_SIZE] = device->arch.shared_optin_bytes;
    pthread_mutex_init(&device->contexts_mutex, NULL);
    pthread_mutex_init(&device->conditions_mutex, NULL);
    pthread_mutex_init(&device->print.write_mutex, NULL);
    pthread_mutex_init(&device->print.mutex, NULL);
    return flyt_soft_map_init(device, config->memory_bytes);
}

/* What was begun stays where it is on failure: the process cannot use this library any more. */
static CUresult driver_new(struct flyt_soft_driver **ret_driver)
{
    struct flyt_soft_driver *driver;
    struct config config;
    CUresult r;

    if (!read_config(&config))
        return CUDA_ERROR_INVALID_VALUE;
    if (!config.device_count)
        return CUDA_ERROR_NO_DEVICE;
    driver = calloc(1, sizeof(*driver));
    if (!driver)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pthread_mutex_init(&driver->mutex, NULL);
    driver->device_count = config.device_count;
    driver->queue = flyt_soft_queue_new();
    if (!driver->queue || flyt_soft_space_init(&driver->space) < 0 || flyt_soft_threads_init(driver) < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    driver->sm_rate = config.sm_rate;
    driver->is_dirty = config.is_dirty;
    driver->has_green = config.has_green;
    driver->dump_ms = config.dump_ms;
    if (config.client_slots && flyt_soft_clients_new(config.client_folder, config.client_slots, &driver->clients) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_soft_accounts_new(config.account_folder, &driver->accounts) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config.device_count; i++)
        if (device_init(&driver->devices[i], (int)i, &config) < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
    if (flyt_soft_faults_new(driver, config.fault_folder, &driver->faults) < 0)
        return CUDA_ERROR_INVALID_VALUE;
    r = flyt_ptx_pool_new(config.worker_count, &driver->pool);
    if (r == CUDA_SUCCESS)
        *ret_driver = driver;
    return r;
}

FLYT_SOFT_API cuInit(unsigned int Flags)
{
    struct flyt_soft_driver *driver;
    CUresult r = CUDA_SUCCESS;

    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&init_mutex);
    if (!flyt_soft_driver()) {
        r = driver_new(&driver);
        if (r == CUDA_SUCCESS)
            flyt_soft_driver_set(driver);
    }
    pthread_mutex_unlock(&init_mutex);
    return r;
}

FLYT_SOFT_API cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = FLYT_SOFT_DRIVER_VERSION;
    return CUDA_SUCCESS;
}
