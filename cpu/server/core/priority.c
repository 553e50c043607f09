#include "cpu/server/core/priority.h"

#include "cpu/server/core/device.h"
#include "cpu/server/core/session.h"

/* Of the driver; the least priority is the highest number. Whether it tells them. */
static bool driver_range(const struct flyt_device *device, int *ret_least, int *ret_greatest)
{
    return device->session->driver->cuCtxGetStreamPriorityRange(ret_least, ret_greatest) == CUDA_SUCCESS &&
           *ret_least >= *ret_greatest;
}

static int clamp(int value, int lowest, int highest)
{
    return value < lowest ? lowest : value > highest ? highest : value;
}

/* Of a GPU with too few for two classes, a program has one: VMs come first. */
static int own_levels(int least, int greatest)
{
    return least - greatest + 1 >= 2 * FLYT_PRIORITIES ? FLYT_PRIORITIES : 1;
}

int flyt_priority(const struct flyt_device *device, int priority)
{
    int least, greatest;
    if (!device->session->manager)
        return priority;
    if (!driver_range(device, &least, &greatest))
        return 0;
    int own = own_levels(least, greatest), classes = (least - greatest + 1) / own;
    int vm_class =
        clamp(clamp(device->time_slice_gate.priority, -classes, classes) + (classes - 1) / 2, 0, classes - 1);
    return least - vm_class * own - clamp(-clamp(priority, -own, own), 0, own - 1);
}

CUresult flyt_priority_range(const struct flyt_device *device, int *ret_least, int *ret_greatest)
{
    int least, greatest;
    if (!driver_range(device, &least, &greatest))
        return CUDA_ERROR_INVALID_CONTEXT;
    bool is_alone = !device->session->manager;
    *ret_least = is_alone ? least : 0;
    *ret_greatest = is_alone ? greatest : 1 - own_levels(least, greatest);
    return CUDA_SUCCESS;
}
