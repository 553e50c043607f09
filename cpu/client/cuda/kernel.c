#include "cpu/client/cuda/kernel.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/kernel_record.h"

_Static_assert(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + 1 &&
                   CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH == CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + 2,
               "width, height, depth follow each other");

FLYT_ANSWER_CALL(kernel_attribute_set)

CUresult flyt_kernel_get(CUfunction function, struct flyt_kernel **ret_kernel)
{
    struct flyt_library *library;
    struct flyt_kernel *kernel = flyt_kernel_find((uint64_t)(uintptr_t)function, &library);
    if (!kernel)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_kernel = kernel;
    return flyt_library_load_now(library);
}

static void fill(struct flyt_kernel_device *info, const struct flyt_device_info *device_info, uint64_t kernel_id,
                 const flyt_kernel_traits_res *res)
{
    pthread_mutex_lock(&info->mutex);
    info->kernel_id = kernel_id;
    info->device_info = device_info;
    info->attribute_count = res->attributes.attributes_len;
    memcpy(info->attributes, res->attributes.attributes_val, info->attribute_count * sizeof(int));
    for (int i = 0; i < 3; i++) {
        int blocks = info->attributes[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH + i];
        info->required_cluster[i] = blocks > 0 ? (unsigned)blocks : 0;
        info->required_block[i] = res->required_block[i];
    }
    info->max_block_threads = info->attributes[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
    info->max_dynamic_shared_bytes = info->attributes[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES];
    atomic_store_explicit(&info->is_known, true, memory_order_release);
    pthread_mutex_unlock(&info->mutex);
}

/* Of an older server, which says nothing of required_block. To be freed by xdr_free, as what is asked of today's. */
static CUresult ask_older(const flyt_kernel_traits_args *wanted, flyt_kernel_traits_res *ret)
{
    flyt_kernel_info_args args = {.thread = wanted->thread, .kernel_id = wanted->kernel_id, .device = wanted->device};
    flyt_kernel_info_res res = {0};
    int status = flyt_call_kernel_info(flyt_client.channel, &args, &res);
    ret->attributes.attributes_len = res.attributes.attributes_len;
    ret->attributes.attributes_val = res.attributes.attributes_val;
    return flyt_client_reply(status, res.result, "kernel_info");
}

static CUresult ask(flyt_kernel_traits_args *args, flyt_kernel_traits_res *ret)
{
    if (!flyt_channel_has(flyt_client.channel, FLYT_KERNEL_TRAITS))
        return ask_older(args, ret);
    int status = flyt_call_kernel_traits(flyt_client.channel, args, ret);
    return flyt_client_reply(status, ret->result, "kernel_traits");
}

CUresult flyt_kernel_device(struct flyt_kernel *kernel, int device, struct flyt_kernel_device **ret_info)
{
    *ret_info = flyt_kernel_known(kernel, device);
    if (*ret_info)
        return CUDA_SUCCESS;
    struct flyt_kernel_device *info = *ret_info = flyt_kernel_record(kernel, device);
    if (!info)
        return CUDA_ERROR_OUT_OF_MEMORY;
    uint64_t kernel_id;
    const struct flyt_device_info *device_info;
    CUresult result = flyt_device_info(device, &device_info);
    if (!result)
        result = flyt_library_kernel_on(kernel, device, &kernel_id);
    if (result)
        return result;
    flyt_kernel_traits_args args = {.thread = flyt_thread_number(), .kernel_id = kernel_id, .device = (unsigned)device};
    flyt_kernel_traits_res res = {0};
    result = ask(&args, &res);
    if (!result)
        fill(info, device_info, kernel_id, &res);
    xdr_free((xdrproc_t)xdr_flyt_kernel_traits_res, (char *)&res);
    return result;
}

/* What questions about a kernel on a device begin with; device −1 is the current one. */
static CUresult enter(CUfunction function, int device, struct flyt_kernel **ret_kernel, int *ret_device)
{
    uint64_t context_id;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_kernel_get(function, ret_kernel);
    if (!result && device < 0)
        result = flyt_context_get(&context_id, &device);
    else if (!result)
        result = flyt_device_check(device);
    *ret_device = device;
    return result;
}

CUresult flyt_kernel_name(CUfunction function, const char **ret_name)
{
    struct flyt_kernel *kernel;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_kernel_get(function, &kernel);
    if (!result && !ret_name)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_name = kernel->name;
    return result;
}

CUresult flyt_kernel_param_at(CUfunction function, size_t index, size_t *ret_offset_bytes, size_t *ret_bytes)
{
    struct flyt_kernel *kernel;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_kernel_get(function, &kernel);
    if (!result && index >= kernel->param_count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result && ret_offset_bytes)
        *ret_offset_bytes = kernel->params[index].offset_bytes;
    if (!result && ret_bytes)
        *ret_bytes = kernel->params[index].bytes;
    return result;
}

CUresult flyt_kernel_attribute(CUfunction function, int device, CUfunction_attribute attribute, int *ret_value)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *info;
    CUresult result = enter(function, device, &kernel, &device);
    if (!result && !ret_value)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_kernel_device(kernel, device, &info);
    if (result)
        return result;
    if ((unsigned)attribute >= info->attribute_count || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&info->mutex);
    *ret_value = info->attributes[attribute];
    pthread_mutex_unlock(&info->mutex);
    return CUDA_SUCCESS;
}

/* The server has taken the value: our copies follow, and occupancy may be another now. */
static void note_attribute(struct flyt_kernel_device *info, CUfunction_attribute attribute, int value)
{
    pthread_mutex_lock(&info->mutex);
    info->attributes[attribute] = value;
    info->changed_attributes |= 1ull << attribute;
    info->occupancy_count = 0;
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
        info->max_dynamic_shared_bytes = value;
    pthread_mutex_unlock(&info->mutex);
}

CUresult flyt_kernel_attribute_set(CUfunction function, int device, CUfunction_attribute attribute, int value)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *info;
    CUresult result = enter(function, device, &kernel, &device);
    if (!result)
        result = flyt_kernel_device(kernel, device, &info);
    if (result)
        return result;
    if ((unsigned)attribute >= info->attribute_count || attribute >= CU_FUNC_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    flyt_kernel_attribute_set_args args = {.thread = flyt_thread_number(),
                                           .kernel_id = info->kernel_id,
                                           .device = (unsigned)device,
                                           .attribute = attribute,
                                           .value = value};
    flyt_kernel_attribute_set_res res = {0};
    int status = call_kernel_attribute_set(&args, &res);
    result = flyt_client_reply(status, res.result, "kernel_attribute_set");
    if (!result)
        note_attribute(info, attribute, value);
    flyt_answer_end();
    return result;
}

CUresult flyt_kernel_cache_config_set(CUfunction function, int device, CUfunc_cache config)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *info;
    CUresult result = enter(function, device, &kernel, &device);
    if (!result && (unsigned)config > CU_FUNC_CACHE_PREFER_EQUAL)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_kernel_device(kernel, device, &info);
    if (result)
        return result;
    pthread_mutex_lock(&info->mutex);
    info->cache_config = (int)config;
    info->occupancy_count = 0;
    pthread_mutex_unlock(&info->mutex);
    flyt_kernel_cache_config_set_args args = {.thread = flyt_thread_number(),
                                              .kernel_id = info->kernel_id,
                                              .device = (unsigned)device,
                                              .cache_config = (unsigned)config};
    return flyt_client_status(flyt_send_kernel_cache_config_set(flyt_client.channel, &args, NULL),
                              "kernel_cache_config_set");
}

CUresult flyt_kernel_shared_config_set(CUfunction function, CUsharedconfig config)
{
    struct flyt_kernel *kernel;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_kernel_get(function, &kernel);
    if (!result && (unsigned)config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE)
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

CUresult flyt_kernel_is_loaded(CUfunction function, CUfunctionLoadingState *ret_state)
{
    struct flyt_kernel *kernel;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_kernel_get(function, &kernel);
    if (!result && !ret_state)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_state = CU_FUNCTION_LOADING_STATE_LOADED;
    return result;
}

CUresult flyt_kernel_load(CUfunction function)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *info;
    int device = -1;
    CUresult result = enter(function, device, &kernel, &device);
    return result ? result : flyt_kernel_device(kernel, device, &info);
}

/* ---- at another server ---- */

static int restore_attributes(struct flyt_restore *restore, const struct flyt_kernel *kernel, int device,
                              const struct flyt_kernel_device *info)
{
    int status = 0;
    for (int attribute = 0; attribute < FLYT_KERNEL_ATTRIBUTES_MAX && !status; attribute++) {
        if (!(info->changed_attributes & 1ull << attribute))
            continue;
        flyt_kernel_attribute_set_args args = {.thread = FLYT_RESTORE_THREAD,
                                               .kernel_id = info->kernel_id,
                                               .device = (unsigned)device,
                                               .attribute = attribute,
                                               .value = info->attributes[attribute]};
        flyt_kernel_attribute_set_res res = {0};
        int called = flyt_call_kernel_attribute_set(restore->fresh, &args, &res);
        status = flyt_restore_answered(restore, called, res.result, "attribute %d of kernel %s on device %d", attribute,
                                       kernel->name, device);
    }
    return status;
}

static int restore_cache_config(struct flyt_restore *restore, int device, const struct flyt_kernel_device *info)
{
    if (info->cache_config < 0)
        return 0;
    flyt_kernel_cache_config_set_args args = {.thread = FLYT_RESTORE_THREAD,
                                              .kernel_id = info->kernel_id,
                                              .device = (unsigned)device,
                                              .cache_config = (unsigned)info->cache_config};
    uint64_t sequence = 0;
    int sent = flyt_send_kernel_cache_config_set(restore->fresh, &args, &sequence);
    return flyt_restore_sent(restore, sent, sequence, "cache preference of kernel", info->kernel_id);
}

int flyt_kernel_restore(struct flyt_restore *restore, const struct flyt_kernel *kernel)
{
    int status = 0;
    for (int device = 0; device < (int)flyt_client.device_count && !status; device++) {
        struct flyt_kernel_device *info = atomic_load_explicit(&kernel->devices[device], memory_order_acquire);
        if (!info || !atomic_load_explicit(&info->is_known, memory_order_acquire))
            continue;
        /* Held across calls over the new channel: nobody who holds it calls the server. */
        pthread_mutex_lock(&info->mutex);
        status = restore_attributes(restore, kernel, device, info);
        if (!status)
            status = restore_cache_config(restore, device, info);
        pthread_mutex_unlock(&info->mutex);
    }
    return status;
}
