#include "cpu/softgpu/driver/condition.h"

#include <stdlib.h>

#include "cpu/softgpu/driver/driver.h"

/* Handles look like nothing else that a kernel is given, so that one which nobody has translated is told from a real
 * one. */
static const CUgraphConditionalHandle first_handle = 0xc04d000000000000;

struct flyt_soft_condition *flyt_soft_condition_new(CUcontext ctx, unsigned default_value, bool has_default)
{
    struct flyt_soft_device *device = ctx->device;
    struct flyt_soft_condition *condition = calloc(1, sizeof(*condition));

    if (!condition)
        return NULL;
    condition->device = device;
    condition->handle = first_handle + flyt_soft_id_new();
    condition->ctx = ctx;
    condition->default_value = condition->value = default_value;
    condition->has_default = has_default;
    condition->refs = 1;
    pthread_mutex_lock(&device->conditions_mutex);
    condition->next_in_device = device->conditions;
    device->conditions = condition;
    pthread_mutex_unlock(&device->conditions_mutex);
    return condition;
}

struct flyt_soft_condition *flyt_soft_condition_ref(struct flyt_soft_condition *condition)
{
    pthread_mutex_lock(&condition->device->conditions_mutex);
    condition->refs++;
    pthread_mutex_unlock(&condition->device->conditions_mutex);
    return condition;
}

void flyt_soft_condition_unref(struct flyt_soft_condition *condition)
{
    struct flyt_soft_condition **at;
    bool is_last;

    if (!condition)
        return;
    pthread_mutex_lock(&condition->device->conditions_mutex);
    is_last = --condition->refs == 0;
    if (is_last) {
        at = &condition->device->conditions;
        while (*at != condition)
            at = &(*at)->next_in_device;
        *at = condition->next_in_device;
    }
    pthread_mutex_unlock(&condition->device->conditions_mutex);
    if (is_last)
        free(condition);
}

uint32_t flyt_soft_condition_value(const struct flyt_soft_condition *condition)
{
    uint32_t value;

    pthread_mutex_lock(&condition->device->conditions_mutex);
    value = condition->value;
    pthread_mutex_unlock(&condition->device->conditions_mutex);
    return value;
}

void flyt_soft_condition_begin(struct flyt_soft_condition *condition)
{
    pthread_mutex_lock(&condition->device->conditions_mutex);
    if (condition->has_default)
        condition->value = condition->default_value;
    pthread_mutex_unlock(&condition->device->conditions_mutex);
}

bool flyt_soft_condition_set(void *user, uint64_t handle, uint32_t value)
{
    struct flyt_soft_device *device = user;
    struct flyt_soft_condition *condition;

    pthread_mutex_lock(&device->conditions_mutex);
    condition = device->conditions;
    while (condition && condition->handle != handle)
        condition = condition->next_in_device;
    if (condition)
        condition->value = value;
    pthread_mutex_unlock(&device->conditions_mutex);
    return condition;
}
