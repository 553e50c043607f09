/* Kernel launches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/condition.h"
#include "cpu/softgpu/driver/graph.h"
#include "cpu/softgpu/driver/module.h"
#include "cpu/softgpu/driver/queue.h"

/* Local memory per thread where recursion makes it unbounded. */
enum { STACK_BYTES_MIN = 64 * 1024 };

enum { GRID_YZ_MAX = 65535, BLOCK_XY_MAX = 1024, BLOCK_Z_MAX = 64 };

/* What device code's grid barrier works on; its first word is its length. */
enum { WORKSPACE_BYTES = 256 };

struct launch_op {
    struct flyt_soft_op op;
    struct flyt_ptx_launch launch;
    struct flyt_soft_device *device;
    struct CUmod_st *module;    /* one reference */
    const struct CUctx_st *ctx; /* its stream holds it, or */
    struct CUctx_st *kept_ctx;  /* one reference; may be NULL */
    _Alignas(16) unsigned char params[];
};

static void print(void *user, bool is_error, const char *text, size_t text_bytes)
{
    if (is_error)
        flyt_soft_print_error(text, text_bytes);
    else
        flyt_soft_print_add(user, text, text_bytes);
}

static CUresult launch_run(struct flyt_soft_op *op)
{
    struct launch_op *launch = (struct launch_op *)op;
    const uint32_t workspace_bytes = WORKSPACE_BYTES;
    CUresult r;

    if (launch->launch.grid_workspace) {
        memset((void *)launch->launch.grid_workspace, 0, WORKSPACE_BYTES);
        memcpy((void *)launch->launch.grid_workspace, &workspace_bytes, sizeof(workspace_bytes));
    }
    r = flyt_ptx_launch_run(flyt_soft_driver()->pool, &launch->launch, NULL);
    flyt_soft_account_write(launch->ctx);
    return r;
}

static void launch_describe(const struct flyt_soft_op *op, char *text, size_t text_bytes)
{
    const struct launch_op *launch = (const struct launch_op *)op;
    const struct flyt_ptx_launch *shape = &launch->launch;

    snprintf(text, text_bytes, "kernel %s\ngrid %u %u %u\nblock %u %u %u\nshared %u\n",
             flyt_ptx_module_kernel(shape->module, shape->kernel_index)->name, shape->grid[0], shape->grid[1],
             shape->grid[2], shape->block[0], shape->block[1], shape->block[2], shape->dynamic_shared_bytes);
}

static void launch_free(struct flyt_soft_op *op)
{
    struct launch_op *launch = (struct launch_op *)op;

    if (launch->launch.grid_workspace)
        (void)flyt_soft_pool_free(&launch->device->map.globals, launch->launch.grid_workspace);
    flyt_soft_module_unref(launch->module);
    flyt_soft_context_unref(launch->kept_ctx);
    free(launch);
}

/* ---- checks ---- */

static bool shape_is_valid(const CUlaunchConfig *config, const struct flyt_ptx_kernel *info)
{
    uint64_t threads = (uint64_t)config->blockDimX * config->blockDimY;

    if (!config->gridDimX || !config->gridDimY || !config->gridDimZ || config->gridDimX > INT32_MAX ||
        config->gridDimY > GRID_YZ_MAX || config->gridDimZ > GRID_YZ_MAX)
        return false;
    if (!config->blockDimX || !config->blockDimY || !config->blockDimZ || config->blockDimX > BLOCK_XY_MAX ||
        config->blockDimY > BLOCK_XY_MAX || config->blockDimZ > BLOCK_Z_MAX)
        return false;
    if (threads * config->blockDimZ > info->max_threads || threads * config->blockDimZ > FLYT_SOFT_BLOCK_THREADS_MAX)
        return false;
    return !info->required_block[0] ||
           (config->blockDimX == info->required_block[0] && config->blockDimY == info->required_block[1] &&
            config->blockDimZ == info->required_block[2]);
}

/* *ret_blocks_per_sm: how many of its blocks an SM holds. */
static CUresult resources_check(const CUlaunchConfig *config, const struct CUfunc_st *function,
                                const struct CUctx_st *ctx, bool is_cooperative, unsigned *ret_blocks_per_sm)
{
    unsigned threads = config->blockDimX * config->blockDimY * config->blockDimZ;
    unsigned blocks_per_sm;
    uint64_t blocks;

    if (config->sharedMemBytes > (unsigned)function->max_dynamic_shared_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    blocks_per_sm = flyt_soft_occupancy(function, threads, config->sharedMemBytes);
    if (!blocks_per_sm)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    blocks = (uint64_t)config->gridDimX * config->gridDimY * config->gridDimZ;
    if (is_cooperative && blocks > (uint64_t)blocks_per_sm * ctx->sm_count)
        return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
    *ret_blocks_per_sm = blocks_per_sm;
    return CUDA_SUCCESS;
}

/* Clusters of one block are no clusters. */
static bool is_single(unsigned x, unsigned y, unsigned z)
{
    return x <= 1 && y <= 1 && z <= 1;
}

/* Hints are taken note of by doing nothing; what would change the launch's meaning and cannot be done is refused. */
static CUresult attributes_read(const CUlaunchConfig *config, bool *is_cooperative)
{
    if (config->numAttrs && !config->attrs)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < config->numAttrs; i++) {
        const CUlaunchAttribute *attribute = &config->attrs[i];

        switch (attribute->id) {
        case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
            *is_cooperative = attribute->value.cooperative != 0;
            break;
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
            if (!is_single(attribute->value.clusterDim.x, attribute->value.clusterDim.y, attribute->value.clusterDim.z))
                return CUDA_ERROR_INVALID_CLUSTER_SIZE;
            break;
        case CU_LAUNCH_ATTRIBUTE_IGNORE:
        case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
        case CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION:
        case CU_LAUNCH_ATTRIBUTE_PRIORITY:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
        case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
        case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
        case CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING:
            break;
        case CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY:
            return CUDA_ERROR_INVALID_VALUE;
        default:
            return CUDA_ERROR_NOT_SUPPORTED;
        }
    }
    return CUDA_SUCCESS;
}

/* ---- parameters ---- */

/* The buffer that `extra` names, at least as long as the kernel's parameters. NULL: malformed. */
static const void *extra_buffer(void *const *extra, uint32_t params_bytes)
{
    const void *buffer = NULL;
    const size_t *bytes = NULL;

    for (; *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = extra[1];
        else
            return NULL;
    }
    return bytes && *bytes >= params_bytes ? buffer : NULL;
}

static CUresult params_copy(unsigned char *to, const struct flyt_ptx_kernel *info, void **params, void **extra)
{
    const void *buffer;

    if (!info->param_count)
        return CUDA_SUCCESS;
    if (!params == !extra)
        return CUDA_ERROR_INVALID_VALUE;
    if (extra) {
        buffer = extra_buffer(extra, info->params_bytes);
        if (!buffer)
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(to, buffer, info->params_bytes);
        return CUDA_SUCCESS;
    }
    for (uint32_t i = 0; i < info->param_count; i++) {
        if (!params[i])
            return CUDA_ERROR_INVALID_VALUE;
        memcpy(to + info->param_offset[i], params[i], info->param_bytes[i]);
    }
    return CUDA_SUCCESS;
}

/* ---- launch ---- */

/* Frames are not as large as a GPU's, whose compiler keeps more in registers: a limit below STACK_BYTES_MIN, such as
 * the default, says nothing of what a program needs. */
static uint32_t stack_bytes(const struct flyt_soft_device *device)
{
    size_t limit = device->limits[CU_LIMIT_STACK_SIZE];

    return limit > STACK_BYTES_MIN ? (uint32_t)limit : STACK_BYTES_MIN;
}

static CUresult launch_new(const CUlaunchConfig *config, struct CUfunc_st *function, const struct CUctx_st *ctx,
                           bool is_cooperative, void **params, void **extra, struct launch_op **ret_launch)
{
    const struct flyt_ptx_kernel *info = function->info;
    struct flyt_soft_device *device = ctx->device;
    uint64_t workspace = 0;
    struct launch_op *launch;
    CUresult r;

    launch = malloc(sizeof(*launch) + info->params_bytes);
    if (!launch)
        return CUDA_ERROR_OUT_OF_MEMORY;
    memset(launch->params, 0, info->params_bytes);
    r = params_copy(launch->params, info, params, extra);
    if (r == CUDA_SUCCESS && is_cooperative)
        r = flyt_soft_pool_alloc(&device->map.globals, WORKSPACE_BYTES, WORKSPACE_BYTES, NULL, &workspace);
    if (r != CUDA_SUCCESS) {
        free(launch);
        return r;
    }
    launch->op = (struct flyt_soft_op){.run = launch_run, .describe = launch_describe, .free = launch_free};
    launch->device = device;
    launch->module = function->module;
    launch->ctx = ctx;
    launch->kept_ctx = NULL;
    flyt_soft_module_ref(function->module);
    launch->launch = (struct flyt_ptx_launch){
        .module = function->module->ptx,
        .kernel_index = function->index,
        .grid = {config->gridDimX, config->gridDimY, config->gridDimZ},
        .block = {config->blockDimX, config->blockDimY, config->blockDimZ},
        .dynamic_shared_bytes = config->sharedMemBytes,
        .params = launch->params,
        .stack_bytes = stack_bytes(device),
        .is_cooperative = is_cooperative,
        .sm_count = ctx->sm_count,
        .partition = ctx->partition,
        .memory = &device->map.ptx,
        .objects = &device->textures.objects,
        .grid_workspace = workspace,
        .print = print,
        .heap_alloc = flyt_soft_heap_alloc,
        .heap_free = flyt_soft_heap_free,
        .set_condition = flyt_soft_condition_set,
        .user = device,
        .cancel = &device->cancel,
    };
    *ret_launch = launch;
    return CUDA_SUCCESS;
}

CUresult flyt_soft_launch_op_new(const CUlaunchConfig *config, CUfunction f, struct CUctx_st *ctx, bool is_cooperative,
                                 void **params, void **extra, struct flyt_soft_op **ret_op)
{
    struct CUfunc_st *function;
    struct launch_op *launch;
    unsigned blocks_per_sm;
    CUresult r = flyt_soft_function_find(f, ctx->device, &function);

    if (r == CUDA_SUCCESS)
        r = attributes_read(config, &is_cooperative);
    if (r != CUDA_SUCCESS)
        return r;
    if (!shape_is_valid(config, function->info))
        return CUDA_ERROR_INVALID_VALUE;
    if (!is_single(function->info->required_cluster[0], function->info->required_cluster[1],
                   function->info->required_cluster[2]))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    r = resources_check(config, function, ctx, is_cooperative, &blocks_per_sm);
    if (r == CUDA_SUCCESS)
        r = launch_new(config, function, ctx, is_cooperative, params, extra, &launch);
    if (r != CUDA_SUCCESS)
        return r;
    launch->launch.blocks_per_sm = blocks_per_sm;
    atomic_store(&ctx->device->has_launched, true);
    *ret_op = &launch->op;
    return CUDA_SUCCESS;
}

void flyt_soft_launch_op_keep(struct flyt_soft_op *op, struct CUctx_st *ctx)
{
    flyt_soft_context_ref(ctx);
    ((struct launch_op *)op)->kept_ctx = ctx;
}

static CUresult launch_kernel(const CUlaunchConfig *config, CUfunction f, bool is_cooperative, void **params,
                              void **extra)
{
    struct CUctx_st *ctx;
    struct CUstream_st *stream;
    struct flyt_soft_op *op;
    CUresult r = flyt_soft_enter(&ctx);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_stream_take(ctx, config->hStream, &stream);
    if (r == CUDA_SUCCESS)
        r = flyt_soft_launch_op_new(config, f, stream->ctx, is_cooperative, params, extra, &op);
    if (r == CUDA_SUCCESS)
        flyt_soft_stream_push(stream, op);
    return r;
}

FLYT_SOFT_API cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)
{
    return config ? launch_kernel(config, f, false, kernelParams, extra) : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,
                             unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,
                             unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)
{
    CUlaunchConfig config = {.gridDimX = gridDimX,
                             .gridDimY = gridDimY,
                             .gridDimZ = gridDimZ,
                             .blockDimX = blockDimX,
                             .blockDimY = blockDimY,
                             .blockDimZ = blockDimZ,
                             .sharedMemBytes = sharedMemBytes,
                             .hStream = hStream};

    return launch_kernel(&config, f, false, kernelParams, extra);
}

FLYT_SOFT_API cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                                        void **kernelParams)
{
    CUlaunchConfig config = {.gridDimX = gridDimX,
                             .gridDimY = gridDimY,
                             .gridDimZ = gridDimZ,
                             .blockDimX = blockDimX,
                             .blockDimY = blockDimY,
                             .blockDimZ = blockDimZ,
                             .sharedMemBytes = sharedMemBytes,
                             .hStream = hStream};

    return launch_kernel(&config, f, true, kernelParams, NULL);
}
