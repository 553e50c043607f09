/*
 * Has the driver itself write a process's GPU memory to the host's and back: the reference without Flyt. The process is
 * one without Flyt and without MPS, under which the driver refuses.
 *
 * usage: driver_checkpoint [--swap] PID
 *        --swap: what was on a GPU comes to the machine's next one, and that of the last one to the first.
 *
 * Locks the process (its CUDA calls wait), checkpoints, restores and unlocks it, and prints one JSON object:
 * {"lock_ms": …, "checkpoint_ms": …, "restore_ms": …, "unlock_ms": …}. Exit status 1, and the failed call with the
 * driver's words for it: the process may be left locked. After the driver's documentation of cuCheckpointProcessLock
 * and its neighbours (CUDA 12.8 and later).
 */
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOCK_MS = 60000, GPUS_MAX = 64 };

struct driver {
    void *library;
    CUresult (*init)(unsigned flags);
    CUresult (*name)(CUresult result, const char **ret_name);
    CUresult (*lock)(int pid, CUcheckpointLockArgs *args);
    CUresult (*checkpoint)(int pid, CUcheckpointCheckpointArgs *args);
    CUresult (*restore)(int pid, CUcheckpointRestoreArgs *args);
    CUresult (*unlock)(int pid, CUcheckpointUnlockArgs *args);
    CUresult (*device_count)(int *ret_count);
    CUresult (*device_uuid)(CUuuid *ret_uuid, CUdevice device);
};

static void *symbol(const struct driver *driver, const char *name)
{
    void *found = dlsym(driver->library, name);

    if (!found) {
        fprintf(stderr, "driver_checkpoint: this driver has no %s\n", name);
        exit(1);
    }
    return found;
}

static struct driver driver_open(void)
{
    struct driver driver = {.library = dlopen("libcuda.so.1", RTLD_NOW)};

    if (!driver.library) {
        fprintf(stderr, "driver_checkpoint: %s\n", dlerror());
        exit(1);
    }
    driver.init = (CUresult(*)(unsigned))symbol(&driver, "cuInit");
    driver.name = (CUresult(*)(CUresult, const char **))symbol(&driver, "cuGetErrorName");
    driver.lock = (CUresult(*)(int, CUcheckpointLockArgs *))symbol(&driver, "cuCheckpointProcessLock");
    driver.checkpoint =
        (CUresult(*)(int, CUcheckpointCheckpointArgs *))symbol(&driver, "cuCheckpointProcessCheckpoint");
    driver.restore = (CUresult(*)(int, CUcheckpointRestoreArgs *))symbol(&driver, "cuCheckpointProcessRestore");
    driver.unlock = (CUresult(*)(int, CUcheckpointUnlockArgs *))symbol(&driver, "cuCheckpointProcessUnlock");
    driver.device_count = (CUresult(*)(int *))symbol(&driver, "cuDeviceGetCount");
    driver.device_uuid = (CUresult(*)(CUuuid *, CUdevice))symbol(&driver, "cuDeviceGetUuid");
    return driver;
}

static void check(const struct driver *driver, const char *call, CUresult result)
{
    const char *name = "";

    if (result == CUDA_SUCCESS)
        return;
    driver->name(result, &name);
    fprintf(stderr, "driver_checkpoint: %s: CUDA error %d %s\n", call, (int)result, name ? name : "");
    exit(1);
}

static double now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

/* Each GPU's contents to the next one. */
static void swap(const struct driver *driver, CUcheckpointGpuPair *pairs, CUcheckpointRestoreArgs *restore)
{
    int count;

    check(driver, "cuDeviceGetCount", driver->device_count(&count));
    for (int i = 0; i < count && i < GPUS_MAX; i++) {
        check(driver, "cuDeviceGetUuid", driver->device_uuid(&pairs[i].oldUuid, i));
        check(driver, "cuDeviceGetUuid", driver->device_uuid(&pairs[i].newUuid, (i + 1) % count));
    }
    restore->gpuPairs = pairs;
    restore->gpuPairsCount = (unsigned)count;
}

int main(int argc, char **argv)
{
    CUcheckpointLockArgs bound = {.timeoutMs = LOCK_MS};
    CUcheckpointRestoreArgs restore = {.gpuPairs = NULL};
    CUcheckpointGpuPair pairs[GPUS_MAX];
    double at_ms[5];
    int is_swapped = argc == 3 && !strcmp(argv[1], "--swap");
    int pid = argc == 2 + is_swapped ? atoi(argv[1 + is_swapped]) : 0;

    if (pid <= 0) {
        fprintf(stderr, "usage: driver_checkpoint [--swap] PID\n");
        return 2;
    }
    struct driver driver = driver_open();
    check(&driver, "cuInit", driver.init(0));
    if (is_swapped)
        swap(&driver, pairs, &restore);
    at_ms[0] = now_ms();
    check(&driver, "cuCheckpointProcessLock", driver.lock(pid, &bound));
    at_ms[1] = now_ms();
    check(&driver, "cuCheckpointProcessCheckpoint", driver.checkpoint(pid, NULL));
    at_ms[2] = now_ms();
    check(&driver, "cuCheckpointProcessRestore", driver.restore(pid, &restore));
    at_ms[3] = now_ms();
    check(&driver, "cuCheckpointProcessUnlock", driver.unlock(pid, NULL));
    at_ms[4] = now_ms();
    printf("{\"lock_ms\": %.3f, \"checkpoint_ms\": %.3f, \"restore_ms\": %.3f, \"unlock_ms\": %.3f}\n",
           at_ms[1] - at_ms[0], at_ms[2] - at_ms[1], at_ms[3] - at_ms[2], at_ms[4] - at_ms[3]);
    return 0;
}
