/* Kernels as functions of a module or kernels of a library: names, parameters, attributes, occupancy. */
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/module.h"

enum { SHARED_UNIT_BYTES = 128, REGISTER_UNIT = 256 };

CUresult flyt_soft_function_find(CUfunction handle, struct flyt_soft_device *device, struct CUfunc_st **ret_function)
{
    /* A library's kernel may stand where a function is asked for: the kinds tell them apart. */
    struct CUkern_st *kernel = (struct CUkern_st *)handle;
    struct CUmod_st *module;
    CUresult r;

    if (flyt_soft_is(handle, FLYT_SOFT_FUNCTION)) {
        if (handle->module->device != device)
            return CUDA_ERROR_INVALID_HANDLE;
        *ret_function = handle;
        return CUDA_SUCCESS;
    }
    if (!flyt_soft_is(kernel, FLYT_SOFT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    r = flyt_soft_library_module(kernel->library, device, &module);
    if (r != CUDA_SUCCESS)
        return r;
    *ret_function = &module->functions[kernel->index];
    return CUDA_SUCCESS;
}

/* The function of a handle on the current context's device. */
static CUresult enter_function(CUfunction handle, struct CUctx_st **ret_ctx, struct CUfunc_st **ret_function)
{
    CUresult r = flyt_soft_enter(ret_ctx);

    return r == CUDA_SUCCESS ? flyt_soft_function_find(handle, (*ret_ctx)->device, ret_function) : r;
}

/* The function of a library's kernel on a device. */
static CUresult kernel_function(CUkernel kernel, CUdevice dev, struct CUfunc_st **ret_function)
{
    struct flyt_soft_device *device;
    CUresult r = flyt_soft_device_find(dev, &device);

    if (r == CUDA_SUCCESS)
        r = atomic_load(&device->sticky);
    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(kernel, FLYT_SOFT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    return flyt_soft_function_find((CUfunction)kernel, device, ret_function);
}

/* ---- names and parameters ---- */

FLYT_SOFT_API cuKernelGetName(const char **name, CUkernel hfunc)
{
    if (!flyt_soft_is(hfunc, FLYT_SOFT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = hfunc->name;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    if (!flyt_soft_is(kernel, FLYT_SOFT_KERNEL))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!pLib)
        return CUDA_ERROR_INVALID_VALUE;
    *pLib = kernel->library;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS && !flyt_soft_is(kernel, FLYT_SOFT_KERNEL))
        r = CUDA_ERROR_INVALID_HANDLE;
    if (r == CUDA_SUCCESS)
        r = flyt_soft_function_find((CUfunction)kernel, ctx->device, &function);
    if (r != CUDA_SUCCESS)
        return r;
    if (!pFunc)
        return CUDA_ERROR_INVALID_VALUE;
    *pFunc = function;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuFuncGetName(const char **name, CUfunction hfunc)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(hfunc, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!name)
        return CUDA_ERROR_INVALID_VALUE;
    *name = function->info->name;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuFuncGetModule(CUmodule *hmod, CUfunction hfunc)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(hfunc, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!hmod)
        return CUDA_ERROR_INVALID_VALUE;
    *hmod = function->module;
    return CUDA_SUCCESS;
}

static CUresult param_info(const struct flyt_ptx_kernel *info, size_t index, size_t *offset, size_t *bytes)
{
    if (!offset || index >= info->param_count)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = info->param_offset[index];
    if (bytes)
        *bytes = info->param_bytes[index];
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuFuncGetParamInfo(CUfunction func, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(func, &ctx, &function);

    return r == CUDA_SUCCESS ? param_info(function->info, paramIndex, paramOffset, paramSize) : r;
}

/* The layout is the same on every device, and known before any context exists. */
FLYT_SOFT_API cuKernelGetParamInfo(CUkernel kernel, size_t paramIndex, size_t *paramOffset, size_t *paramSize)
{
    struct CUfunc_st *function;
    CUresult r;

    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    r = kernel_function(kernel, 0, &function);
    return r == CUDA_SUCCESS ? param_info(function->info, paramIndex, paramOffset, paramSize) : r;
}

FLYT_SOFT_API cuFuncIsLoaded(CUfunctionLoadingState *state, CUfunction function)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *found;
    CUresult r = enter_function(function, &ctx, &found);

    if (r != CUDA_SUCCESS)
        return r;
    if (!state)
        return CUDA_ERROR_INVALID_VALUE;
    *state = CU_FUNCTION_LOADING_STATE_LOADED;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuFuncLoad(CUfunction function)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *found;

    return enter_function(function, &ctx, &found);
}

/* ---- attributes ---- */

unsigned flyt_soft_function_shared_room(const struct CUfunc_st *function)
{
    unsigned most = function->module->device->arch.shared_optin_bytes;
    unsigned fixed = function->info->static_shared_bytes;

    return fixed < most ? most - fixed : 0;
}

static CUresult attribute_get(struct CUfunc_st *function, CUfunction_attribute attribute, int *value)
{
    const struct flyt_ptx_kernel *info = function->info;

    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)info->max_threads;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
        *value = (int)info->static_shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
        *value = (int)info->const_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
        *value = (int)info->local_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
        *value = (int)info->register_count;
        break;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
        *value = info->target_version;
        break;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
        *value = 10 * function->module->device->arch.major + function->module->device->arch.minor;
        break;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
        *value = 0;
        break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        *value = function->max_dynamic_shared_bytes;
        break;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        *value = function->carveout_pct;
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
        *value = (int)info->required_cluster[0];
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
        *value = (int)info->required_cluster[1];
        break;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
        *value = (int)info->required_cluster[2];
        break;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        *value = function->nonportable_cluster;
        break;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        *value = function->cluster_policy;
        break;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

static CUresult attribute_set(struct CUfunc_st *function, CUfunction_attribute attribute, int value)
{
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
        if (value < 0 || (unsigned)value > flyt_soft_function_shared_room(function))
            return CUDA_ERROR_INVALID_VALUE;
        function->max_dynamic_shared_bytes = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        if (value < CU_SHAREDMEM_CARVEOUT_DEFAULT || value > CU_SHAREDMEM_CARVEOUT_MAX_SHARED)
            return CUDA_ERROR_INVALID_VALUE;
        function->carveout_pct = value;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
        function->nonportable_cluster = value != 0;
        return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
            return CUDA_ERROR_INVALID_VALUE;
        function->cluster_policy = value;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

FLYT_SOFT_API cuFuncGetAttribute(int *pi, CUfunction_attribute attrib, CUfunction hfunc)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(hfunc, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    return pi ? attribute_get(function, attrib, pi) : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuFuncSetAttribute(CUfunction hfunc, CUfunction_attribute attrib, int value)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(hfunc, &ctx, &function);

    return r == CUDA_SUCCESS ? attribute_set(function, attrib, value) : r;
}

FLYT_SOFT_API cuKernelGetAttribute(int *pi, CUfunction_attribute attrib, CUkernel kernel, CUdevice dev)
{
    struct CUfunc_st *function;
    CUresult r = kernel_function(kernel, dev, &function);

    if (r != CUDA_SUCCESS)
        return r;
    return pi ? attribute_get(function, attrib, pi) : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuKernelSetAttribute(CUfunction_attribute attrib, int val, CUkernel kernel, CUdevice dev)
{
    struct CUfunc_st *function;
    CUresult r = kernel_function(kernel, dev, &function);

    return r == CUDA_SUCCESS ? attribute_set(function, attrib, val) : r;
}

/* There is no cache to divide: checked, and without effect. */
FLYT_SOFT_API cuFuncSetCacheConfig(CUfunction hfunc, CUfunc_cache config)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(hfunc, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice dev)
{
    struct CUfunc_st *function;
    CUresult r = kernel_function(kernel, dev, &function);

    if (r != CUDA_SUCCESS)
        return r;
    return (unsigned)config <= CU_FUNC_CACHE_PREFER_EQUAL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- occupancy ---- */

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

unsigned flyt_soft_occupancy(const struct CUfunc_st *function, unsigned block_threads, uint64_t dynamic_shared_bytes)
{
    const struct flyt_soft_arch *arch = &function->module->device->arch;
    uint64_t warps = (block_threads + FLYT_SOFT_WARP_THREADS - 1) / FLYT_SOFT_WARP_THREADS;
    uint64_t registers, shared, count;

    if (!block_threads || block_threads > FLYT_SOFT_BLOCK_THREADS_MAX ||
        dynamic_shared_bytes > flyt_soft_function_shared_room(function))
        return 0;
    count = least(arch->blocks_per_sm, arch->threads_per_sm / (warps * FLYT_SOFT_WARP_THREADS));
    registers = warps * round_up((uint64_t)function->info->register_count * FLYT_SOFT_WARP_THREADS, REGISTER_UNIT);
    if (registers)
        count = least(count, FLYT_SOFT_REGISTERS_PER_SM / registers);
    shared = round_up(function->info->static_shared_bytes + dynamic_shared_bytes + arch->shared_reserved_bytes,
                      SHARED_UNIT_BYTES);
    if (shared)
        count = least(count, arch->shared_per_sm_bytes / shared);
    return (unsigned)count;
}

FLYT_SOFT_API cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *numBlocks, CUfunction func, int blockSize,
                                                                   size_t dynamicSMemSize, unsigned int flags)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(func, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!numBlocks || blockSize <= 0 || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    *numBlocks = (int)flyt_soft_occupancy(function, (unsigned)blockSize, dynamicSMemSize);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int *numBlocks, CUfunction func, int blockSize,
                                                          size_t dynamicSMemSize)
{
    return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(numBlocks, func, blockSize, dynamicSMemSize, 0);
}

FLYT_SOFT_API cuOccupancyMaxPotentialBlockSizeWithFlags(int *minGridSize, int *blockSize, CUfunction func,
                                                        CUoccupancyB2DSize blockSizeToDynamicSMemSize,
                                                        size_t dynamicSMemSize, int blockSizeLimit, unsigned int flags)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    unsigned best_threads = 0, best_blocks = 0, limit;
    CUresult r = enter_function(func, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!minGridSize || !blockSize || blockSizeLimit < 0 || flags & ~(unsigned)CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE)
        return CUDA_ERROR_INVALID_VALUE;
    limit = function->info->max_threads;
    if (blockSizeLimit && (unsigned)blockSizeLimit < limit)
        limit = (unsigned)blockSizeLimit;
    /* The largest block among those with the most threads on an SM: the limit itself first, then whole warps. */
    for (unsigned threads = limit; threads; threads = (threads - 1) / FLYT_SOFT_WARP_THREADS * FLYT_SOFT_WARP_THREADS) {
        size_t shared = blockSizeToDynamicSMemSize ? blockSizeToDynamicSMemSize((int)threads) : dynamicSMemSize;
        unsigned blocks = flyt_soft_occupancy(function, threads, shared);

        if (blocks * threads > best_blocks * best_threads) {
            best_threads = threads;
            best_blocks = blocks;
        }
    }
    *blockSize = (int)best_threads;
    *minGridSize = (int)(best_blocks * ctx->sm_count);
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuOccupancyMaxPotentialBlockSize(int *minGridSize, int *blockSize, CUfunction func,
                                               CUoccupancyB2DSize blockSizeToDynamicSMemSize, size_t dynamicSMemSize,
                                               int blockSizeLimit)
{
    return cuOccupancyMaxPotentialBlockSizeWithFlags(minGridSize, blockSize, func, blockSizeToDynamicSMemSize,
                                                     dynamicSMemSize, blockSizeLimit, 0);
}

FLYT_SOFT_API cuOccupancyAvailableDynamicSMemPerBlock(size_t *dynamicSmemSize, CUfunction func, int numBlocks,
                                                      int blockSize)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    uint64_t share;
    CUresult r = enter_function(func, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!dynamicSmemSize || numBlocks <= 0 || blockSize <= 0 || blockSize > FLYT_SOFT_BLOCK_THREADS_MAX ||
        (unsigned)numBlocks > ctx->device->arch.blocks_per_sm)
        return CUDA_ERROR_INVALID_VALUE;
    share = ctx->device->arch.shared_per_sm_bytes / (unsigned)numBlocks / SHARED_UNIT_BYTES * SHARED_UNIT_BYTES;
    share = least(share, ctx->device->arch.shared_optin_bytes);
    share -= least(share, function->info->static_shared_bytes);
    *dynamicSmemSize = least(share, (unsigned)function->max_dynamic_shared_bytes);
    return CUDA_SUCCESS;
}

/* There are no clusters but those of one block. */
FLYT_SOFT_API cuOccupancyMaxPotentialClusterSize(int *clusterSize, CUfunction func, const CUlaunchConfig *config)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    CUresult r = enter_function(func, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!clusterSize || !config)
        return CUDA_ERROR_INVALID_VALUE;
    *clusterSize = 1;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuOccupancyMaxActiveClusters(int *numClusters, CUfunction func, const CUlaunchConfig *config)
{
    struct CUctx_st *ctx;
    struct CUfunc_st *function;
    unsigned threads;
    CUresult r = enter_function(func, &ctx, &function);

    if (r != CUDA_SUCCESS)
        return r;
    if (!numClusters || !config || (config->numAttrs && !config->attrs))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];

        if (attribute->id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION &&
            (attribute->value.clusterDim.x > 1 || attribute->value.clusterDim.y > 1 ||
             attribute->value.clusterDim.z > 1))
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    if (config->blockDimX > FLYT_SOFT_BLOCK_THREADS_MAX || config->blockDimY > FLYT_SOFT_BLOCK_THREADS_MAX ||
        config->blockDimZ > FLYT_SOFT_BLOCK_THREADS_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    *numClusters = (int)(flyt_soft_occupancy(function, threads, config->sharedMemBytes) * ctx->sm_count);
    return CUDA_SUCCESS;
}
