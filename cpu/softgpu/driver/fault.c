/*
 * A fault domain: processes whose contexts end together, as under MPS one client's fault ends the running contexts of
 * all clients on that GPU with the same error.
 *
 * A page of a file that all of them map has the number of faults of each device, and what the last one was. A thread of
 * each process sleeps until a number changes (futex), and then breaks its own device. Who comes later begins with the
 * numbers as they are: it is not hit by what was before.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cpu/softgpu/driver/driver.h"

struct shared {
    _Atomic uint32_t change_count; /* of all devices: what is waited for */
    struct {
        _Atomic uint32_t count;
        _Atomic int32_t error; /* of the last one, set before the count */
    } devices[FLYT_SOFT_DEVICES_MAX];
};
_Static_assert(sizeof(struct shared) == 4 + 8 * FLYT_SOFT_DEVICES_MAX, "layout of the domain's file");

struct flyt_soft_faults {
    struct shared *shared;
    uint32_t seen[FLYT_SOFT_DEVICES_MAX];
    struct flyt_soft_driver *driver;
};

static long futex(_Atomic uint32_t *word, int operation, uint32_t value)
{
    return syscall(SYS_futex, word, operation, value, NULL, NULL, 0);
}

static bool has_contexts(struct flyt_soft_device *device)
{
    bool has_some;

    pthread_mutex_lock(&device->contexts_mutex);
    has_some = device->contexts != NULL;
    pthread_mutex_unlock(&device->contexts_mutex);
    return has_some;
}

static void *watch(void *user)
{
    struct flyt_soft_faults *faults = user;

    for (;;) {
        uint32_t change_count = atomic_load(&faults->shared->change_count);

        for (unsigned i = 0; i < faults->driver->device_count; i++) {
            struct flyt_soft_device *device = &faults->driver->devices[i];
            uint32_t count = atomic_load(&faults->shared->devices[i].count);

            if (count != faults->seen[i] && has_contexts(device))
                flyt_soft_device_break(device, (CUresult)atomic_load(&faults->shared->devices[i].error));
            faults->seen[i] = count;
        }
        futex(&faults->shared->change_count, FUTEX_WAIT, change_count);
    }
    return NULL;
}

int flyt_soft_faults_new(struct flyt_soft_driver *driver, const char *folder, struct flyt_soft_faults **ret_faults)
{
    struct flyt_soft_faults *faults = calloc(1, sizeof(*faults));
    pthread_t thread;
    char *path = NULL;
    int fd = -1;

    *ret_faults = NULL;
    if (!folder) {
        free(faults);
        return 0;
    }
    if (!faults || asprintf(&path, "%s/faults", folder) < 0)
        goto fail;
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof(*faults->shared)) < 0)
        goto fail;
    faults->shared = mmap(NULL, sizeof(*faults->shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (faults->shared == MAP_FAILED)
        goto fail;
    close(fd);
    free(path);
    faults->driver = driver;
    for (unsigned i = 0; i < FLYT_SOFT_DEVICES_MAX; i++)
        faults->seen[i] = atomic_load(&faults->shared->devices[i].count);
    if (pthread_create(&thread, NULL, watch, faults))
        return -EAGAIN;
    pthread_detach(thread);
    *ret_faults = faults;
    return 0;

fail:
    if (fd >= 0)
        close(fd);
    free(path);
    free(faults);
    return -EINVAL;
}

void flyt_soft_fault_tell(struct flyt_soft_faults *faults, const struct flyt_soft_device *device, CUresult error)
{
    if (!faults)
        return;
    atomic_store(&faults->shared->devices[device->index].error, (int32_t)error);
    atomic_fetch_add(&faults->shared->devices[device->index].count, 1);
    atomic_fetch_add(&faults->shared->change_count, 1);
    futex(&faults->shared->change_count, FUTEX_WAKE, INT_MAX);
}
