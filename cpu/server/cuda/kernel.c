/* Calls about kernels: attributes, occupancy, launch. */
#include "cpu/server/cuda/kernel.h"

#include <stdlib.h>
#include <string.h>

#include "cpu/server/core/call.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/module.h"
#include "cpu/server/core/priority.h"
#include "cpu/server/cuda/reserve.h"
#include "cpu/server/core/session.h"
#include "cpu/server/core/submit.h"
#include "cpu/server/cuda/settings.h"
#include "flyt_serve.h"

/* By number; *ret_values belongs to the caller. */
static CUresult get_attributes(struct flyt_call *call, uint32_t ordinal, const struct flyt_kernel *kernel,
                               u_int *ret_count, int **ret_values)
{
    struct flyt_device *device;
    CUresult result = flyt_library_use(call, kernel->library, ordinal, &device);
    if (result != CUDA_SUCCESS)
        return result;
    int *values = calloc(CU_FUNC_ATTRIBUTE_MAX, sizeof *values);
    if (!values)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (int attribute = 0; attribute < CU_FUNC_ATTRIBUTE_MAX && result == CUDA_SUCCESS; attribute++) {
        result = call->session->driver->cuKernelGetAttribute(&values[attribute], (CUfunction_attribute)attribute,
                                                             kernel->cu_kernel, device->cu_device);
        /* Attributes that this driver does not know are 0. */
        if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_SUPPORTED)
            result = CUDA_SUCCESS;
    }
    if (result != CUDA_SUCCESS) {
        free(values);
        return result;
    }
    *ret_values = values;
    *ret_count = CU_FUNC_ATTRIBUTE_MAX;
    return CUDA_SUCCESS;
}

CUresult flyt_serve_kernel_info(struct flyt_call *call, const flyt_kernel_info_args *args, struct flyt_kernel *kernel,
                                flyt_kernel_info_res *res)
{
    return get_attributes(call, args->device, kernel, &res->attributes.attributes_len, &res->attributes.attributes_val);
}

CUresult flyt_serve_kernel_traits(struct flyt_call *call, const flyt_kernel_traits_args *args,
                                  struct flyt_kernel *kernel, flyt_kernel_traits_res *res)
{
    memcpy(res->required_block, kernel->required_block, sizeof res->required_block);
    return get_attributes(call, args->device, kernel, &res->attributes.attributes_len, &res->attributes.attributes_val);
}

/* Where the driver has not taken it, what was set before still is. */
static void note(struct flyt_kernel_setting *setting, int32_t value, CUresult result)
{
    if (result != CUDA_SUCCESS)
        return;
    setting->value = value;
    setting->is_set = true;
}

CUresult flyt_serve_kernel_attribute_set(struct flyt_call *call, const flyt_kernel_attribute_set_args *args,
                                         struct flyt_kernel *kernel, flyt_kernel_attribute_set_res *res)
{
    struct flyt_device *device;
    if ((uint32_t)args->attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_library_use(call, kernel->library, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_kernel_setting *setting = flyt_settings_of_kernel(kernel, args->device, args->attribute);
    if (!setting)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (flyt_settings_is_passed_over(call->session))
        return CUDA_SUCCESS;
    result = call->session->driver->cuKernelSetAttribute((CUfunction_attribute)args->attribute, args->value,
                                                         kernel->cu_kernel, device->cu_device);
    note(setting, args->value, result);
    return result;
}

CUresult flyt_serve_kernel_cache_config_set(struct flyt_call *call, const flyt_kernel_cache_config_set_args *args,
                                            struct flyt_kernel *kernel)
{
    struct flyt_device *device;
    CUresult result = flyt_library_use(call, kernel->library, args->device, &device);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_kernel_setting *setting = flyt_settings_of_kernel(kernel, args->device, FLYT_SETTING_CACHE_CONFIG);
    if (!setting)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (flyt_settings_is_passed_over(call->session))
        return CUDA_SUCCESS;
    result = call->session->driver->cuKernelSetCacheConfig(kernel->cu_kernel, (CUfunc_cache)args->cache_config,
                                                           device->cu_device);
    note(setting, (int32_t)args->cache_config, result);
    return result;
}

/* The kernel as a function of the device's context, for the occupancy calculators. */
static CUresult enter(struct flyt_call *call, uint32_t ordinal, struct flyt_kernel *kernel, CUfunction *ret_function)
{
    struct flyt_device *device;
    CUresult result = flyt_library_use(call, kernel->library, ordinal, &device);
    if (result == CUDA_SUCCESS)
        result = call->session->driver->cuKernelGetFunction(ret_function, kernel->cu_kernel);
    return result;
}

CUresult flyt_serve_kernel_occupancy(struct flyt_call *call, const flyt_kernel_occupancy_args *args,
                                     struct flyt_kernel *kernel, flyt_kernel_occupancy_res *res)
{
    CUfunction function;
    CUresult result = enter(call, args->device, kernel, &function);
    if (result != CUDA_SUCCESS)
        return result;
    return call->session->driver->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &res->block_count, function, args->block_threads, args->dynamic_shared_bytes, args->flags);
}

CUresult flyt_serve_kernel_available_shared(struct flyt_call *call, const flyt_kernel_available_shared_args *args,
                                            struct flyt_kernel *kernel, flyt_kernel_available_shared_res *res)
{
    CUfunction function;
    size_t bytes = 0;
    CUresult result = enter(call, args->device, kernel, &function);
    if (result == CUDA_SUCCESS)
        result = call->session->driver->cuOccupancyAvailableDynamicSMemPerBlock(&bytes, function, args->block_count,
                                                                                args->block_threads);
    res->dynamic_shared_bytes = bytes;
    return result;
}

CUresult flyt_kernel_take_attributes(const struct flyt_device *device, const flyt_launch_attribute *attributes,
                                     unsigned count, CUlaunchAttribute *ret_taken)
{
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i].id) {
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
            break;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
        ret_taken[i] = (CUlaunchAttribute){.id = (CUlaunchAttributeID)attributes[i].id};
        memcpy(&ret_taken[i].value, attributes[i].value, sizeof attributes[i].value);
        if (attributes[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            ret_taken[i].value.priority = flyt_priority(device, ret_taken[i].value.priority);
    }
    return CUDA_SUCCESS;
}

CUresult flyt_serve_kernel_cluster_occupancy(struct flyt_call *call, const flyt_kernel_cluster_occupancy_args *args,
                                             struct flyt_kernel *kernel, flyt_kernel_cluster_occupancy_res *res)
{
    const struct flyt_driver *driver = call->session->driver;
    CUlaunchAttribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    CUfunction function;
    CUresult result = enter(call, args->device, kernel, &function);
    if (result == CUDA_SUCCESS)
        result = flyt_kernel_take_attributes(call->session->current_device, args->attributes.attributes_val,
                                             args->attributes.attributes_len, attributes);
    if (result != CUDA_SUCCESS)
        return result;
    const CUlaunchConfig config = {
        .gridDimX = args->grid[0],
        .gridDimY = args->grid[1],
        .gridDimZ = args->grid[2],
        .blockDimX = args->block[0],
        .blockDimY = args->block[1],
        .blockDimZ = args->block[2],
        .sharedMemBytes = args->dynamic_shared_bytes,
        .hStream = call->session->current_device->legacy->cu_stream,
        .attrs = attributes,
        .numAttrs = args->attributes.attributes_len,
    };
    if (args->kind == 0)
        return driver->cuOccupancyMaxPotentialClusterSize(&res->count, function, &config);
    result = driver->cuOccupancyMaxActiveClusters(&res->count, function, &config);
    /* As many as the SMs have room for that the program knows of. */
    const struct flyt_device *device = call->session->current_device;
    if (device->shown_sms && device->shown_sms < device->partition->sm_count)
        res->count = (int)((uint64_t)(unsigned)res->count * device->shown_sms / device->partition->sm_count);
    return result;
}

/* Blocks that a launch needs on the GPU at one time: a cooperative one all, one in clusters those of a cluster. */
static uint64_t blocks_together(const CUlaunchConfig *config)
{
    uint64_t blocks = 0;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttributeValue *value = &config->attrs[i].value;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && value->cooperative)
            return (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            blocks = (uint64_t)value->clusterDim.x * value->clusterDim.y * value->clusterDim.z;
    }
    return blocks;
}

void flyt_kernel_note_need(struct flyt_device *device, struct flyt_kernel *kernel, const CUlaunchConfig *config)
{
    const struct flyt_driver *driver = device->session->driver;
    uint64_t blocks = blocks_together(config);
    CUfunction function;
    int per_sm = 0;
    if (!device->session->manager || blocks <= atomic_load_explicit(&device->needed_sms, memory_order_relaxed))
        return; /* one block per SM is the most that it can need */
    CUresult result = driver->cuKernelGetFunction(&function, kernel->cu_kernel);
    if (result == CUDA_SUCCESS)
        result = driver->cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &per_sm, function, (int)(config->blockDimX * config->blockDimY * config->blockDimZ), config->sharedMemBytes,
            CU_OCCUPANCY_DEFAULT);
    if (result != CUDA_SUCCESS || per_sm < 1)
        per_sm = 1; /* it did begin: with so many per SM, or more */
    uint64_t sms = (blocks + (unsigned)per_sm - 1) / (unsigned)per_sm;
    /* One that the driver took although it says that it does not fit needs no more than there is. */
    if (sms > device->partition->sm_count)
        sms = device->partition->sm_count;
    if (sms > atomic_load_explicit(&device->needed_sms, memory_order_relaxed))
        atomic_store_explicit(&device->needed_sms, (uint32_t)sms, memory_order_relaxed);
}

static CUresult launch_with_attributes(struct flyt_stream *stream, const flyt_kernel_launch_args *args,
                                       struct flyt_kernel *kernel, CUfunction function, void **extra)
{
    CUlaunchAttribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    CUresult result = flyt_kernel_take_attributes(stream->device, args->attributes.attributes_val,
                                                  args->attributes.attributes_len, attributes);
    if (result != CUDA_SUCCESS)
        return result;
    const CUlaunchConfig config = {
        .gridDimX = args->grid[0],
        .gridDimY = args->grid[1],
        .gridDimZ = args->grid[2],
        .blockDimX = args->block[0],
        .blockDimY = args->block[1],
        .blockDimZ = args->block[2],
        .sharedMemBytes = args->dynamic_shared_bytes,
        .hStream = stream->cu_stream,
        .attrs = attributes,
        .numAttrs = args->attributes.attributes_len,
    };
    result = stream->device->session->driver->cuLaunchKernelEx(&config, function, NULL, extra);
    if (result == CUDA_SUCCESS)
        flyt_kernel_note_need(stream->device, kernel, &config);
    return result;
}

CUresult flyt_kernel_reserve(struct flyt_device *device, struct flyt_kernel *kernel, uint64_t sequence)
{
    if (kernel->reserved_mask >> device->ordinal & 1)
        return CUDA_SUCCESS;
    device->memory->attempt = sequence;
    CUresult result = flyt_device_use(device);
    if (result == CUDA_SUCCESS)
        result = flyt_reserve_kernel(device, kernel);
    if (result == CUDA_ERROR_NOT_READY) {
        device->session->is_retry_due = true;
        return FLYT_CALL_RETRY;
    }
    if (result == CUDA_SUCCESS)
        kernel->reserved_mask |= 1u << device->ordinal;
    return flyt_session_check(device->session, result);
}

struct launch {
    const flyt_kernel_launch_args *args;
    struct flyt_kernel *kernel;
};

static CUresult launch(void *user, struct flyt_stream *stream)
{
    const struct launch *self = user;
    const flyt_kernel_launch_args *args = self->args;
    size_t param_bytes = self->kernel->param_bytes;
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, args->params.params_val, CU_LAUNCH_PARAM_BUFFER_SIZE, &param_bytes,
                     CU_LAUNCH_PARAM_END};
    /* The driver takes a CUkernel in the place of a CUfunction and finds the stream's context by itself. */
    CUfunction function = (CUfunction)self->kernel->cu_kernel;
    if (args->attributes.attributes_len)
        return launch_with_attributes(stream, args, self->kernel, function, param_bytes ? extra : NULL);
    return stream->device->session->driver->cuLaunchKernel(
        function, args->grid[0], args->grid[1], args->grid[2], args->block[0], args->block[1], args->block[2],
        args->dynamic_shared_bytes, stream->cu_stream, NULL, param_bytes ? extra : NULL);
}

CUresult flyt_serve_kernel_launch(struct flyt_call *call, const flyt_kernel_launch_args *args,
                                  struct flyt_stream *stream, struct flyt_kernel *kernel)
{
    /* A shorter buffer would be read beyond its end. */
    if (args->params.params_len < kernel->param_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (!(kernel->reserved_mask >> stream->device->ordinal & 1)) {
        CUresult result = flyt_kernel_reserve(stream->device, kernel, call->sequence);
        if (result != CUDA_SUCCESS)
            return result;
    }
    struct launch self = {args, kernel};
    return flyt_stream_submit(stream, call->sequence, FLYT_SUBMIT_WORK, stream->device, launch, &self);
}
