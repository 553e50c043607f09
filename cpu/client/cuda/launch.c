/*
 * The launch path: checks that the driver makes at once, the parameters laid out straight into the call's buffer, one
 * one-way call. No lock, no allocation (but for parameters above PARAMS_ON_STACK_BYTES).
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/event_record.h"
#include "cpu/client/cuda/host.h"
#include "cpu/client/cuda/host_param.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/cuda/stream_record.h"
#include "cpu/client/cuda/watch.h"

enum { PARAMS_ON_STACK_BYTES = 4096 };

_Static_assert(sizeof(CUlaunchAttributeValue) >= sizeof(((flyt_launch_attribute *)0)->value),
               "the wire carries the first 32 bytes of an attribute's value");

/* ---- checks ---- */

static bool is_inside(const struct flyt_device_info *info, const unsigned grid[3], const unsigned block[3])
{
    static const CUdevice_attribute grid_limits[3] = {
        CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z};
    static const CUdevice_attribute block_limits[3] = {
        CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z};
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) { /* 0 wraps around: it is above every limit */
        if (grid[i] - 1 >= (unsigned)info->attributes[grid_limits[i]])
            return false;
        if (block[i] - 1 >= (unsigned)info->attributes[block_limits[i]])
            return false;
    }
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    return threads <= (uint64_t)info->attributes[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
}

CUresult flyt_kernel_check_dimensions(const unsigned grid[3], const unsigned block[3])
{
    uint64_t context_id;
    int device;
    const struct flyt_device_info *info;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = flyt_device_info(device, &info);
    if (!result && !is_inside(info, grid, block))
        result = CUDA_ERROR_INVALID_VALUE;
    return result;
}

/* A cooperative grid must be resident as a whole. */
static CUresult check_cooperative(const struct flyt_launch *launch, struct flyt_kernel *kernel, int device,
                                  const struct flyt_device_info *info)
{
    int blocks;
    int threads = (int)(launch->block[0] * launch->block[1] * launch->block[2]);
    CUresult result = flyt_kernel_ask_occupancy(kernel, device, threads, launch->dynamic_shared_bytes, 0, &blocks);
    if (result)
        return result;
    uint64_t room = (uint64_t)blocks * (uint64_t)info->attributes[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
    uint64_t wanted = (uint64_t)launch->grid[0] * launch->grid[1] * launch->grid[2];
    return wanted > room ? CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE : CUDA_SUCCESS;
}

/* Blocks of a cluster that every GPU with clusters runs (CUDA C++ Programming Guide, thread block clusters). */
enum { PORTABLE_CLUSTER_BLOCKS = 8 };

static bool may_be_nonportable(struct flyt_kernel_device *known)
{
    pthread_mutex_lock(&known->mutex);
    bool may = known->attributes[CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED] != 0;
    pthread_mutex_unlock(&known->mutex);
    return may;
}

/* A kernel's own clusters, or those of the launch. How large one may be at most the server says: it depends on the GPU
 * and on the SMs that the session has. The answers are those of an H200. */
static CUresult check_cluster(const struct flyt_launch *launch, struct flyt_kernel_device *known,
                              const struct flyt_device_info *info)
{
    unsigned cluster[3] = {known->required_cluster[0], known->required_cluster[1], known->required_cluster[2]};
    for (unsigned i = 0; i < launch->attribute_count && launch->attributes; i++) {
        if (launch->attributes[i].id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
            continue;
        const CUlaunchAttributeValue *value = &launch->attributes[i].value;
        const unsigned wanted[3] = {value->clusterDim.x, value->clusterDim.y, value->clusterDim.z};
        if (!wanted[0] && !wanted[1] && !wanted[2])
            continue; /* says nothing */
        if (cluster[0] && memcmp(cluster, wanted, sizeof cluster) != 0)
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        memcpy(cluster, wanted, sizeof cluster);
        if (!cluster[0])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    }
    if (!cluster[0])
        return CUDA_SUCCESS;
    uint64_t blocks = 1;
    for (int i = 0; i < 3; i++) {
        if (!cluster[i] || launch->grid[i] % cluster[i])
            return CUDA_ERROR_INVALID_CLUSTER_SIZE;
        blocks *= cluster[i]; /* a divisor of the grid's size: fits */
    }
    bool is_possible = blocks == 1 || info->attributes[CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH];
    if (!is_possible || (blocks > PORTABLE_CLUSTER_BLOCKS && !may_be_nonportable(known)))
        return CUDA_ERROR_INVALID_CLUSTER_SIZE;
    return CUDA_SUCCESS;
}

/* Of a block that has more threads than the kernel takes: what a GPU's driver says where registers are too few for
 * them, and where the kernel itself declares fewer (.maxntid). */
static CUresult too_many_threads(struct flyt_kernel_device *known, const struct flyt_device_info *info,
                                 unsigned threads)
{
    const unsigned warp = 32;

    pthread_mutex_lock(&known->mutex);
    const uint64_t registers = (uint64_t)known->attributes[CU_FUNC_ATTRIBUTE_NUM_REGS];
    pthread_mutex_unlock(&known->mutex);
    return (threads + warp - 1) / warp * warp * registers >
                   (uint64_t)info->attributes[CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK]
               ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES
               : CUDA_ERROR_INVALID_VALUE;
}

static CUresult check(const struct flyt_launch *launch, struct flyt_kernel *kernel, int device, uint64_t *ret_kernel_id)
{
    struct flyt_kernel_device *known = flyt_kernel_known(kernel, device);
    CUresult result = __builtin_expect(known != NULL, 1) ? CUDA_SUCCESS : flyt_kernel_device(kernel, device, &known);
    if (result)
        return result;
    const struct flyt_device_info *info = known->device_info;
    *ret_kernel_id = known->kernel_id;
    if (!is_inside(info, launch->grid, launch->block))
        return CUDA_ERROR_INVALID_VALUE;
    if (__builtin_expect(launch->attribute_count || known->required_cluster[0], 0)) {
        result = check_cluster(launch, known, info);
        if (result)
            return result;
    }
    if (known->required_block[0] && memcmp(launch->block, known->required_block, sizeof known->required_block) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    unsigned threads = launch->block[0] * launch->block[1] * launch->block[2];
    if (threads > (unsigned)atomic_load_explicit(&known->max_block_threads, memory_order_relaxed))
        return too_many_threads(known, info, threads);
    int shared = atomic_load_explicit(&known->max_dynamic_shared_bytes, memory_order_relaxed);
    if (launch->dynamic_shared_bytes > (unsigned)shared)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; !result && i < launch->attribute_count; i++)
        if (launch->attributes[i].id == CU_LAUNCH_ATTRIBUTE_COOPERATIVE && launch->attributes[i].value.cooperative)
            result = check_cooperative(launch, kernel, device, info);
    return result;
}

/* ---- encoding ---- */

/* Whether 8 of the bytes that a pointer would be aligned in may be a host address. */
static bool has_host_word(const void *bytes, uint32_t offset_bytes, uint32_t count)
{
    uint64_t word;
    for (uint32_t at = (offset_bytes + 7) / 8 * 8 - offset_bytes; at + 8 <= count; at += 8) {
        memcpy(&word, (const char *)bytes + at, sizeof word);
        if (flyt_host_param_may_be(word) || flyt_arena_may_be(word))
            return true;
    }
    return false;
}

bool flyt_kernel_pack(const struct flyt_kernel *kernel, void *const *params, void *buffer)
{
    uint32_t end = 0;
    uint64_t word;
    bool has_host = false;
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        const struct flyt_kernel_param_place *place = &kernel->params[i];
        char *to = (char *)buffer + place->offset_bytes;
        if (place->offset_bytes > end)
            memset((char *)buffer + end, 0, place->offset_bytes - end); /* padding must not carry our stack away */
        switch (place->bytes) {                                         /* constant sizes become one move */
        case 8:
            memcpy(&word, params[i], 8);
            memcpy(to, &word, 8);
            has_host |= flyt_host_param_may_be(word) | flyt_arena_may_be(word);
            break;
        case 4:
            memcpy(to, params[i], 4);
            break;
        default:
            memcpy(to, params[i], place->bytes);
            has_host |= has_host_word(to, place->offset_bytes, place->bytes);
        }
        end = place->offset_bytes + place->bytes;
    }
    return has_host;
}

/* The same of a whole buffer that the program has made. */
static bool has_host_param(const struct flyt_kernel *kernel, const void *buffer)
{
    bool has_host = false;
    for (uint32_t i = 0; i < kernel->param_count && !has_host; i++)
        has_host = has_host_word((const char *)buffer + kernel->params[i].offset_bytes, kernel->params[i].offset_bytes,
                                 kernel->params[i].bytes);
    return has_host;
}

/* The newest attribute that the driver served here knows; later ones and nonsense are refused at once. */
enum { LAUNCH_ATTRIBUTE_LAST = CU_LAUNCH_ATTRIBUTE_NVLINK_UTIL_CENTRIC_SCHEDULING };

/* Refuses what no driver knows, and a kernel that the device changes the node of. */
static CUresult check_attributes(const struct flyt_launch *launch)
{
    for (unsigned i = 0; i < launch->attribute_count && launch->attributes; i++) {
        if ((unsigned)launch->attributes[i].id > LAUNCH_ATTRIBUTE_LAST)
            return CUDA_ERROR_INVALID_VALUE;
        switch (launch->attributes[i].id) {
        case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
            return flyt_not_supported("launch attribute that names a graph node");
        case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
            if ((unsigned)launch->attributes[i].value.clusterSchedulingPolicyPreference >
                CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        default:
            break;
        }
    }
    return CUDA_SUCCESS;
}

static bool names_event(const CUlaunchAttribute *attribute)
{
    return attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT ||
           attribute->id == CU_LAUNCH_ATTRIBUTE_LAUNCH_COMPLETION_EVENT;
}

/* CUDA takes one of the stream's context, without times, of this process alone, and no flags but none
 * (CUlaunchAttributeID). The answers are those of an H200 (580.159.04), where a refused launch leaves its capture as it
 * was. */
static CUresult check_event(const CUlaunchAttribute *attribute, const struct flyt_stream *stream, bool is_captured)
{
    const struct flyt_event *event = flyt_event_find(flyt_launch_event(attribute));
    const int flags = attribute->id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT
                          ? attribute->value.programmaticEvent.flags
                          : attribute->value.launchCompletionEvent.flags;
    if (!event || !flyt_event_is_of(event, stream))
        return CUDA_ERROR_INVALID_HANDLE;
    if (event->flags & CU_EVENT_INTERPROCESS)
        return is_captured ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_ERROR_NOT_SUPPORTED;
    if (!(event->flags & CU_EVENT_DISABLE_TIMING))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (flags)
        return is_captured ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_ILLEGAL_STATE;
    return CUDA_SUCCESS;
}

/* Before anything is sent: a launch whose event cannot be recorded does not run. */
static CUresult check_events(const struct flyt_launch *launch, const struct flyt_stream *stream, bool is_captured)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < launch->attribute_count && launch->attributes && !result; i++)
        if (names_event(&launch->attributes[i]))
            result = check_event(&launch->attributes[i], stream, is_captured);
    return result;
}

/* The kernel's parameter buffer: the program's own where it gave a whole one, else made in `room` or, where that is too
 * small, *ret_owned. *ret_has_host: something in it may be a host address. */
static CUresult get_params(const struct flyt_launch *launch, const struct flyt_kernel *kernel, char *room,
                           const void **ret_params, uint32_t *ret_bytes, bool *ret_has_host, char **ret_owned)
{
    *ret_bytes = kernel->param_bytes;
    if (launch->param_buffer && launch->param_buffer_bytes == kernel->param_bytes) {
        *ret_params = launch->param_buffer;
        *ret_has_host = has_host_param(kernel, launch->param_buffer);
        return CUDA_SUCCESS;
    }
    /* NVIDIA's driver takes a shorter buffer (what is missing is 0 here) and refuses a longer one, with this code. */
    if (launch->param_buffer && launch->param_buffer_bytes > kernel->param_bytes)
        return CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    if (!launch->param_buffer && kernel->param_count && !launch->params)
        return CUDA_ERROR_INVALID_VALUE;
    for (uint32_t i = 0; i < kernel->param_count && !launch->param_buffer; i++)
        if (!launch->params[i])
            return CUDA_ERROR_INVALID_VALUE;
    if (kernel->param_bytes > PARAMS_ON_STACK_BYTES) {
        room = *ret_owned = malloc(kernel->param_bytes);
        if (!room)
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (launch->param_buffer) {
        memset(room, 0, kernel->param_bytes);
        memcpy(room, launch->param_buffer, launch->param_buffer_bytes);
        *ret_has_host = has_host_param(kernel, room);
    } else {
        *ret_has_host = flyt_kernel_pack(kernel, launch->params, room);
    }
    *ret_params = room;
    return CUDA_SUCCESS;
}

static CUresult send_launch(const struct flyt_launch *launch, const struct flyt_kernel *kernel, uint64_t kernel_id,
                            struct flyt_stream *stream)
{
    char room[PARAMS_ON_STACK_BYTES];
    flyt_launch_attribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    flyt_kernel_launch_args args;
    char *owned = NULL;
    const void *params = NULL;
    uint32_t param_bytes = 0;
    uint64_t sequence = 0;
    bool has_host = false;
    CUresult result = flyt_kernel_wire_attributes(launch, attributes);
    if (!result)
        result = get_params(launch, kernel, room, &params, &param_bytes, &has_host, &owned);
    if (!result)
        result = flyt_watch_before(stream);
    if (!result)
        result = flyt_stream_begin(stream);
    if (!result) {
        args.thread = flyt_thread_number();
        args.stream_id = stream->stream_id;
        args.kernel_id = kernel_id;
        memcpy(args.grid, launch->grid, sizeof args.grid);
        memcpy(args.block, launch->block, sizeof args.block);
        args.dynamic_shared_bytes = launch->dynamic_shared_bytes;
        args.attributes.attributes_len = launch->attribute_count;
        args.attributes.attributes_val = attributes;
        args.params.params_len = param_bytes;
        args.params.params_val = (char *)(uintptr_t)params;
        if (__builtin_expect(has_host, 0))
            flyt_host_look_for_reached(params, param_bytes);
        result = flyt_client_status(flyt_send_kernel_launch(flyt_client.channel, &args, &sequence), "kernel_launch");
        flyt_stream_sent(stream, sequence);
        if (__builtin_expect(has_host, 0))
            flyt_host_param_note(kernel, params, sequence);
    }
    free(owned);
    return result;
}

/* Events that attributes name: they are recorded behind the kernel, which is as early as CUDA promises that they
 * trigger ("best effort"). An H200 completes one of LAUNCH_COMPLETION when all blocks have begun. */
static CUresult record_events(const struct flyt_launch *launch)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < launch->attribute_count && !result; i++) {
        const CUevent event = flyt_launch_event(&launch->attributes[i]);
        if (event)
            result = flyt_event_record(event, launch->stream, CU_EVENT_RECORD_DEFAULT);
    }
    return result;
}

CUresult flyt_kernel_launch(const struct flyt_launch *launch)
{
    struct flyt_kernel *kernel;
    struct flyt_stream *stream;
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter_fast();
    if (!result)
        result = flyt_kernel_get(launch->function, &kernel);
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = flyt_stream_get_in(context_id, device, launch->stream, &stream);
    if (result)
        return result;
    if (stream->device != device)
        return CUDA_ERROR_INVALID_HANDLE;
    if (__builtin_expect(launch->attribute_count != 0, 0)) {
        result = check_attributes(launch);
        if (result)
            return result;
    }
    uint64_t kernel_id;
    bool is_captured = false;
    result = check(launch, kernel, device, &kernel_id);
    if (flyt_capture_is_any() && !result)
        result = flyt_capture_ask_work(stream, &is_captured);
    if (__builtin_expect(launch->attribute_count != 0, 0) && !result)
        result = check_events(launch, stream, is_captured);
    if (is_captured && !result)
        return flyt_captures.ops->kernel(stream, launch);
    if (!result)
        result = send_launch(launch, kernel, kernel_id, stream);
    if (__builtin_expect(launch->attribute_count != 0, 0) && !result)
        result = record_events(launch);
    return result || !flyt_stream_is_waited_for() ? result : flyt_stream_wait(stream);
}

/* ---- for graphs ---- */

CUresult flyt_launch_take(const struct flyt_launch *launch, struct flyt_launch_taken *ret_taken)
{
    char room[PARAMS_ON_STACK_BYTES];
    flyt_launch_attribute attributes[FLYT_LAUNCH_ATTRIBUTES_MAX];
    struct flyt_launch_taken taken = {0};
    struct flyt_kernel *kernel;
    uint64_t context_id;
    const void *params = NULL;
    char *owned = NULL;
    CUresult result = flyt_kernel_get(launch->function, &kernel);
    if (!result)
        result = flyt_context_get(&context_id, &taken.device);
    if (!result)
        result = check_attributes(launch);
    if (!result)
        result = check(launch, kernel, taken.device, &taken.kernel_id);
    if (!result)
        result = flyt_kernel_wire_attributes(launch, attributes);
    if (!result)
        result = get_params(launch, kernel, room, &params, &taken.param_bytes, &taken.has_host, &owned);
    if (result)
        return result;
    taken.attribute_count = launch->attribute_count;
    taken.param_count = kernel->param_count;
    taken.buffer = malloc(taken.param_bytes + 1);
    taken.params = calloc(kernel->param_count + 1, sizeof *taken.params);
    taken.attributes = taken.attribute_count ? calloc(taken.attribute_count, sizeof *attributes) : NULL;
    if (taken.buffer && taken.params && (taken.attributes || !taken.attribute_count)) {
        memcpy(taken.buffer, params, taken.param_bytes);
        if (taken.attribute_count)
            memcpy(taken.attributes, attributes, taken.attribute_count * sizeof *attributes);
        for (uint32_t i = 0; i < kernel->param_count; i++)
            taken.params[i] = taken.buffer + kernel->params[i].offset_bytes;
        *ret_taken = taken;
    } else {
        free(taken.buffer);
        free(taken.params);
        free(taken.attributes);
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    free(owned);
    return result;
}

/* ---- launches in steps ---- */

/* What a function's next launch will have, for all threads: its kernel has it, and frees it. */
struct flyt_kernel_steps {
    unsigned block[3], shared_bytes, param_bytes;
    char params[FLYT_PARAM_BYTES_MAX];
};

static pthread_mutex_t steps_mutex = PTHREAD_MUTEX_INITIALIZER;

/* CUDA_SUCCESS: the mutex is held. */
static CUresult begin_step(CUfunction function, struct flyt_kernel_steps **ret_steps)
{
    struct flyt_kernel *kernel;
    uint64_t context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = flyt_kernel_get(function, &kernel);
    if (result)
        return result;
    pthread_mutex_lock(&steps_mutex);
    if (!kernel->steps)
        kernel->steps = calloc(1, sizeof *kernel->steps);
    *ret_steps = kernel->steps;
    if (!kernel->steps)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result)
        pthread_mutex_unlock(&steps_mutex);
    return result;
}

static CUresult end_step(CUresult result)
{
    pthread_mutex_unlock(&steps_mutex);
    return result;
}

CUresult flyt_steps_block(CUfunction function, int x, int y, int z)
{
    struct flyt_kernel_steps *steps;
    CUresult result = begin_step(function, &steps);
    if (result)
        return result;
    if (x <= 0 || y <= 0 || z <= 0)
        return end_step(CUDA_ERROR_INVALID_VALUE);
    const unsigned block[3] = {(unsigned)x, (unsigned)y, (unsigned)z};
    memcpy(steps->block, block, sizeof block);
    return end_step(CUDA_SUCCESS);
}

CUresult flyt_steps_shared(CUfunction function, unsigned bytes)
{
    struct flyt_kernel_steps *steps;
    CUresult result = begin_step(function, &steps);
    if (result)
        return result;
    steps->shared_bytes = bytes;
    return end_step(CUDA_SUCCESS);
}

CUresult flyt_steps_size(CUfunction function, unsigned bytes)
{
    struct flyt_kernel_steps *steps;
    CUresult result = begin_step(function, &steps);
    if (result)
        return result;
    if (bytes > sizeof steps->params)
        return end_step(CUDA_ERROR_INVALID_VALUE);
    steps->param_bytes = bytes;
    return end_step(CUDA_SUCCESS);
}

CUresult flyt_steps_put(CUfunction function, int offset_bytes, const void *data, unsigned bytes)
{
    struct flyt_kernel_steps *steps;
    CUresult result = begin_step(function, &steps);
    if (result)
        return result;
    if (offset_bytes < 0 || !data || bytes > sizeof steps->params ||
        (unsigned)offset_bytes > sizeof steps->params - bytes)
        return end_step(CUDA_ERROR_INVALID_VALUE);
    memcpy(steps->params + offset_bytes, data, bytes);
    return end_step(CUDA_SUCCESS);
}

CUresult flyt_steps_launch(CUfunction function, int width, int height, CUstream stream)
{
    struct flyt_kernel_steps *steps;
    CUresult result = begin_step(function, &steps);
    if (result)
        return result;
    struct flyt_kernel_steps *copy = malloc(sizeof *copy);
    if (copy)
        *copy = *steps;
    end_step(CUDA_SUCCESS);
    if (!copy)
        return CUDA_ERROR_OUT_OF_MEMORY;
    struct flyt_launch launch = {.function = function,
                                 .grid = {(unsigned)width, (unsigned)height, 1},
                                 .dynamic_shared_bytes = copy->shared_bytes,
                                 .stream = stream,
                                 .param_buffer = copy->params,
                                 .param_buffer_bytes = copy->param_bytes};
    memcpy(launch.block, copy->block, sizeof launch.block);
    result = width > 0 && height > 0 ? flyt_kernel_launch(&launch) : CUDA_ERROR_INVALID_VALUE;
    free(copy);
    return result;
}
