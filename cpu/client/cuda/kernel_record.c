#include "cpu/client/cuda/kernel_record.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

void flyt_kernel_fini(struct flyt_kernel *kernel)
{
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        free(kernel->devices[i]);
    free(kernel->name);
    free(kernel->params);
    free(kernel->steps);
}

struct flyt_kernel_device *flyt_kernel_record(struct flyt_kernel *kernel, int device)
{
    struct flyt_kernel_device *known = atomic_load_explicit(&kernel->devices[device], memory_order_acquire);
    if (known)
        return known;
    struct flyt_kernel_device *fresh = calloc(1, sizeof *fresh);
    if (!fresh)
        return NULL;
    pthread_mutex_init(&fresh->mutex, NULL);
    fresh->cache_config = -1;
    /* Of two threads that come at once the first one's stays. Release pairs with the acquire above. */
    if (atomic_compare_exchange_strong(&kernel->devices[device], &known, fresh))
        return fresh;
    free(fresh);
    return known;
}

bool flyt_kernel_is_used(const struct flyt_kernel *kernel, int device)
{
    const struct flyt_kernel_device *info = atomic_load_explicit(&kernel->devices[device], memory_order_acquire);
    return info && atomic_load(&info->is_known);
}

void flyt_kernel_forget(struct flyt_kernel *kernel, int device)
{
    struct flyt_kernel_device *info = atomic_load_explicit(&kernel->devices[device], memory_order_acquire);
    if (!info)
        return;
    pthread_mutex_lock(&info->mutex);
    atomic_store(&info->is_known, false);
    info->changed_attributes = 0;
    info->cache_config = -1;
    info->occupancy_count = 0;
    pthread_mutex_unlock(&info->mutex);
}

CUevent flyt_launch_event(const CUlaunchAttribute *attribute)
{
    switch (attribute->id) {
    case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT:
        return attribute->value.programmaticEvent.event;
    case CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT:
        return attribute->value.launchCompletionEvent.event;
    default:
        return NULL;
    }
}

CUresult flyt_kernel_wire_attributes(const struct flyt_launch *launch, flyt_launch_attribute *ret_attributes)
{
    if (launch->attribute_count > FLYT_LAUNCH_ATTRIBUTES_MAX || (launch->attribute_count && !launch->attributes))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < launch->attribute_count; i++) {
        if (flyt_launch_event(&launch->attributes[i])) {
            ret_attributes[i] = (flyt_launch_attribute){.id = CU_LAUNCH_ATTRIBUTE_IGNORE};
            continue;
        }
        ret_attributes[i].id = launch->attributes[i].id;
        memcpy(ret_attributes[i].value, &launch->attributes[i].value, sizeof ret_attributes[i].value);
    }
    return CUDA_SUCCESS;
}
