#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/kernel_record.h"
#include "flyt_client_asks.h"

enum {
    WARP_THREADS = 32,
    BLOCK_THREADS_MAX = 1024, /* of every compute capability */
    BLOCKS_PER_SM_MAX = 1024  /* far beyond that of any; a server that says more talks nonsense */
};

static bool find_kept_locked(const struct flyt_kernel_device *info, const struct flyt_occupancy *wanted, int *ret_count)
{
    unsigned kept = info->occupancy_count < FLYT_OCCUPANCY_KEPT ? info->occupancy_count : FLYT_OCCUPANCY_KEPT;
    for (unsigned i = 0; i < kept; i++) {
        const struct flyt_occupancy *one = &info->occupancies[i];
        if (one->block_threads == wanted->block_threads && one->flags == wanted->flags &&
            one->dynamic_shared_bytes == wanted->dynamic_shared_bytes) {
            *ret_count = one->block_count;
            return true;
        }
    }
    return false;
}

CUresult flyt_kernel_ask_occupancy(struct flyt_kernel *kernel, int device, int block_threads,
                                   uint64_t dynamic_shared_bytes, unsigned flags, int *ret_block_count)
{
    struct flyt_kernel_device *info;
    struct flyt_occupancy wanted = {block_threads, dynamic_shared_bytes, flags, 0};
    CUresult result = flyt_kernel_device(kernel, device, &info);
    if (result)
        return result;
    pthread_mutex_lock(&info->mutex);
    bool is_kept = find_kept_locked(info, &wanted, ret_block_count);
    pthread_mutex_unlock(&info->mutex);
    if (is_kept)
        return CUDA_SUCCESS;
    result = flyt_ask_kernel_occupancy(info->kernel_id, (unsigned)device, block_threads, dynamic_shared_bytes, flags,
                                       &wanted.block_count);
    if (result)
        return result;
    if (wanted.block_count < 0 || wanted.block_count > BLOCKS_PER_SM_MAX)
        return CUDA_ERROR_UNKNOWN; /* callers calculate with it */
    *ret_block_count = wanted.block_count;
    pthread_mutex_lock(&info->mutex);
    info->occupancies[info->occupancy_count++ % FLYT_OCCUPANCY_KEPT] = wanted;
    pthread_mutex_unlock(&info->mutex);
    return CUDA_SUCCESS;
}

/* What every question here begins with. */
static CUresult enter(CUfunction function, const void *ret_value, struct flyt_kernel **ret_kernel, int *ret_device)
{
    uint64_t context_id;
    CUresult result = flyt_client_enter();
    if (!result && !ret_value)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_kernel_get(function, ret_kernel);
    if (!result)
        result = flyt_context_get(&context_id, ret_device);
    return result;
}

CUresult flyt_kernel_occupancy(CUfunction function, int block_threads, size_t dynamic_shared_bytes, unsigned flags,
                               int *ret_block_count)
{
    struct flyt_kernel *kernel;
    int device;
    CUresult result = enter(function, ret_block_count, &kernel, &device);
    if (!result && (block_threads <= 0 || (flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)))
        result = CUDA_ERROR_INVALID_VALUE;
    return result
               ? result
               : flyt_kernel_ask_occupancy(kernel, device, block_threads, dynamic_shared_bytes, flags, ret_block_count);
}

CUresult flyt_kernel_potential_block(CUfunction function, CUoccupancyB2DSize block_to_shared,
                                     size_t dynamic_shared_bytes, int block_limit, unsigned flags, int *ret_min_grid,
                                     int *ret_block_threads)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *known;
    const struct flyt_device_info *info;
    int device, best_threads = 0, best_block = 0, best_count = 0;
    CUresult result = enter(function, ret_min_grid, &kernel, &device);
    if (!result && (!ret_block_threads || block_limit < 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_device_info(device, &info);
    if (!result)
        result = flyt_kernel_device(kernel, device, &known);
    if (result)
        return result;
    int limit = known->max_block_threads;
    if (limit > BLOCK_THREADS_MAX)
        limit = BLOCK_THREADS_MAX;
    if (block_limit && block_limit < limit)
        limit = block_limit;
    /* From the largest block down, in whole warps; the first that reaches the most threads wins, as in the driver. */
    int full = info->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
    for (int aligned = (limit + WARP_THREADS - 1) / WARP_THREADS * WARP_THREADS; aligned > 0; aligned -= WARP_THREADS) {
        int block = aligned < limit ? aligned : limit, count;
        size_t shared = block_to_shared ? block_to_shared(block) : dynamic_shared_bytes;
        result = flyt_kernel_ask_occupancy(kernel, device, block, shared, flags, &count);
        if (result)
            return result;
        if (count * block > best_threads) {
            best_threads = count * block;
            best_block = block;
            best_count = count;
        }
        if (best_threads == full)
            break;
    }
    *ret_block_threads = best_block;
    *ret_min_grid = best_count * info->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    return CUDA_SUCCESS;
}

CUresult flyt_kernel_available_shared(CUfunction function, int block_count, int block_threads, size_t *ret_bytes)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *info;
    int device;
    CUresult result = enter(function, ret_bytes, &kernel, &device);
    if (!result && (block_count <= 0 || block_threads <= 0))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_kernel_device(kernel, device, &info);
    if (result)
        return result;
    return flyt_ask_kernel_available_shared(info->kernel_id, (unsigned)device, block_count, block_threads, ret_bytes);
}

/* The driver's two questions about clusters. */
enum cluster_question { CLUSTER_MAX_SIZE = 0, CLUSTER_MAX_ACTIVE = 1 };

static CUresult ask_cluster(const struct flyt_launch *launch, enum cluster_question kind, int *ret_count)
{
    struct flyt_kernel *kernel;
    struct flyt_kernel_device *info;
    flyt_launch_attribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    int device;
    CUresult result = enter(launch->function, ret_count, &kernel, &device);
    if (!result)
        result = flyt_kernel_wire_attributes(launch, attributes);
    if (!result)
        result = flyt_kernel_device(kernel, device, &info);
    if (result)
        return result;
    flyt_kernel_cluster_occupancy_args args = {.thread = flyt_thread_number(),
                                               .kernel_id = info->kernel_id,
                                               .device = (unsigned)device,
                                               .kind = kind,
                                               .grid = {launch->grid[0], launch->grid[1], launch->grid[2]},
                                               .block = {launch->block[0], launch->block[1], launch->block[2]},
                                               .dynamic_shared_bytes = launch->dynamic_shared_bytes};
    args.attributes.attributes_len = launch->attribute_count;
    args.attributes.attributes_val = attributes;
    flyt_kernel_cluster_occupancy_res res = {0};
    int status = flyt_call_kernel_cluster_occupancy(flyt_client.channel, &args, &res);
    result = flyt_client_reply(status, res.result, "kernel_cluster_occupancy");
    if (!result)
        *ret_count = res.count;
    return result;
}

CUresult flyt_kernel_max_cluster_size(const struct flyt_launch *launch, int *ret_cluster_blocks)
{
    return ask_cluster(launch, CLUSTER_MAX_SIZE, ret_cluster_blocks);
}

CUresult flyt_kernel_max_active_clusters(const struct flyt_launch *launch, int *ret_clusters)
{
    return ask_cluster(launch, CLUSTER_MAX_ACTIVE, ret_clusters);
}
