#include "cpu/nvml/refuse.h"

#include <pthread.h>
#include <string.h>

#include "cpu/nvml/library.h"
#include "rpc/base/log.h"

/* Names of the functions that have been refused; the texts are the stubs' own. */
enum { NAMES_MAX = 512 };
static const char *told[NAMES_MAX];
static unsigned told_count;
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

static void tell_once(const char *name)
{
    pthread_mutex_lock(&telling);
    unsigned i = 0;
    while (i < told_count && told[i] != name)
        i++;
    if (i == told_count && told_count < NAMES_MAX) {
        told[told_count++] = name;
        flyt_debug("nvml: %s is not supported in a VM", name);
    }
    pthread_mutex_unlock(&telling);
}

int flyt_nvml_refuse(const char *name)
{
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    tell_once(name);
    return FLYT_NVML_NOT_SUPPORTED;
}

int flyt_nvml_refuse_device(const char *name, const void *device)
{
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    return flyt_nvml_index(device) < 0 ? FLYT_NVML_INVALID_ARGUMENT : flyt_nvml_refuse(name);
}

int flyt_nvml_give(const void *device, unsigned *ret_value, unsigned number)
{
    if (!flyt_nvml_is_begun())
        return FLYT_NVML_UNINITIALIZED;
    if (!ret_value || flyt_nvml_index(device) < 0)
        return FLYT_NVML_INVALID_ARGUMENT;
    *ret_value = number;
    return FLYT_NVML_SUCCESS;
}
