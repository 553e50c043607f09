#include "cpu/client/cuda/jit_link.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/table.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device_runtime.h"
#include "cpu/client/cuda/jit_link_call.h"
#include "rpc/proto/limits.h"

enum { NAME_BYTES_MAX = 255 };

/* ---- the call ---- */

static CUresult send_link(struct flyt_channel *channel, flyt_image_link_args *args, struct flyt_jit_logs *logs,
                          unsigned char *ret_hash, uint64_t *ret_bytes)
{
    flyt_image_link_res res = {0};
    int status = flyt_call_image_link(channel, args, &res);
    CUresult result = flyt_client_reply(status, res.result, "image_link");
    if (status == FLYT_CHANNEL_OK)
        flyt_jit_logs_give(logs, res.info_log, res.error_log);
    if (!result && !args->is_trial) {
        memcpy(ret_hash, res.image_hash, FLYT_HASH_BYTES);
        *ret_bytes = res.bytes;
    }
    xdr_free((xdrproc_t)xdr_flyt_image_link_res, (char *)&res);
    return result;
}

CUresult flyt_jit_link_parts(struct flyt_channel *channel, const struct flyt_jit_link_part *parts, unsigned count,
                             bool is_trial, const struct flyt_jit_numbers *numbers, struct flyt_jit_logs *logs,
                             unsigned char *ret_hash, uint64_t *ret_bytes)
{
    static char no_name[] = "";
    flyt_image_link_args args = {.thread = flyt_thread_number(), .is_trial = is_trial};
    flyt_link_input *inputs = calloc(count + 1, sizeof *inputs);
    struct flyt_channel_group group; /* the node that links is the one that was given the parts */
    CUresult result = inputs ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        result = flyt_client_status(flyt_channel_group_begin(channel, &group), "image_link");
    bool is_begun = !result;
    for (unsigned i = 0; i < count && !result; i++) {
        inputs[i].kind = parts[i].image.kind;
        inputs[i].name = parts[i].name ? parts[i].name : no_name;
        inputs[i].options.options_len = parts[i].numbers.count;
        inputs[i].options.options_val = parts[i].numbers.values;
        result = flyt_image_send(channel, &parts[i].image, (unsigned char *)inputs[i].image_hash);
    }
    args.inputs.inputs_len = count;
    args.inputs.inputs_val = inputs;
    args.options.options_len = numbers->count;
    args.options.options_val = numbers->values;
    if (!result)
        result = send_link(channel, &args, logs, ret_hash, ret_bytes);
    if (is_begun)
        flyt_channel_group_end(channel, &group);
    free(inputs);
    return result;
}

static void free_parts(struct flyt_jit_link_part *parts, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        flyt_image_fini(&parts[i].image);
        flyt_jit_numbers_fini(&parts[i].numbers);
        free(parts[i].name);
    }
    free(parts);
}

/* The unit of the device runtime, which is the last one where nvcc has linked it; `count`: there is none. */
static CUresult find_runtime(const void *const *units, unsigned count, struct flyt_device_runtime *ret_runtime,
                             unsigned *ret_at)
{
    for (unsigned i = count; i-- > 0;) {
        int status = flyt_device_runtime_open(units[i], ret_runtime);
        if (status < 0)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (status) {
            *ret_at = i;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_SUCCESS;
}

/* The function of the device runtime that the parts need; NULL: none. */
static const char *needed_of(const struct flyt_device_runtime *runtime, const struct flyt_jit_link_part *parts,
                             unsigned count)
{
    const char *needed = NULL;
    for (unsigned i = 0; i < count && !(needed && flyt_device_runtime_launches(needed)); i++) {
        const char *named = flyt_device_runtime_named_in(runtime, &parts[i].image);
        needed = named ? named : needed;
    }
    return needed;
}

/* Fills in *part, which the caller frees in any case. */
static CUresult choose_part(const void *const *units, unsigned index, const struct flyt_fatbin_device *target,
                            struct flyt_jit_logs *logs, struct flyt_jit_link_part *part)
{
    CUresult result = flyt_image_choose(units[index], target, &part->image);
    if (result)
        flyt_image_refuse(units[index], target, result, logs);
    if (!result && asprintf(&part->name, "unit %u", index + 1) < 0) {
        part->name = NULL;
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

/* The same for the device runtime, which has machine code for GPUs only. */
static CUresult choose_runtime(const void *const *units, unsigned index, const struct flyt_fatbin_device *target,
                               const char *needed, struct flyt_jit_logs *logs, struct flyt_jit_link_part *part)
{
    CUresult result = choose_part(units, index, target, logs, part);
    if (result != CUDA_ERROR_NO_BINARY_FOR_GPU)
        return result;
    return flyt_jit_logs_refuse(logs, CUDA_ERROR_NOT_SUPPORTED,
                                flyt_device_runtime_launches(needed)
                                    ? "device-side launch (%s) is not supported on this device"
                                    : "%s of the device runtime is not supported on this device",
                                needed);
}

static CUresult refuse_count(struct flyt_jit_logs *logs)
{
    return flyt_jit_logs_refuse(logs, CUDA_ERROR_NOT_SUPPORTED, "at most %d images are linked into one",
                                FLYT_LINK_INPUTS_MAX);
}

CUresult flyt_jit_link_units(struct flyt_channel *channel, const void *const *units,
                             const struct flyt_fatbin_device *target, const struct flyt_jit_numbers *numbers,
                             struct flyt_jit_logs *logs, unsigned char *ret_hash)
{
    unsigned count = 0, have = 0;
    uint64_t bytes;
    while (units[count])
        count++;
    if (!count || count > FLYT_LINK_INPUTS_MAX)
        return count ? refuse_count(logs) : CUDA_ERROR_NO_BINARY_FOR_GPU;
    struct flyt_jit_link_part *parts = calloc(count, sizeof *parts);
    struct flyt_device_runtime runtime;
    unsigned runtime_at = count;
    CUresult result = parts ? find_runtime(units, count, &runtime, &runtime_at) : CUDA_ERROR_OUT_OF_MEMORY;
    bool has_runtime = runtime_at < count;
    for (unsigned i = 0; i < count && !result; i++)
        if (i != runtime_at)
            result = choose_part(units, i, target, logs, &parts[have++]);
    const char *needed = has_runtime && !result ? needed_of(&runtime, parts, have) : NULL;
    if (needed && !result)
        result = choose_runtime(units, runtime_at, target, needed, logs, &parts[have++]);
    if (has_runtime)
        flyt_device_runtime_close(&runtime);
    if (!result)
        result = flyt_jit_link_parts(channel, parts, have, false, numbers, logs, ret_hash, &bytes);
    free_parts(parts, have);
    return result;
}

/* ---- cuLink* ---- */

struct link {
    struct flyt_record record;
    struct flyt_jit_logs logs;
    struct flyt_jit_numbers numbers;
    struct flyt_jit_link_part *parts;
    unsigned part_count;
    char *image; /* set when it is completed */
};

static struct flyt_table link_table = FLYT_TABLE_INIT(FLYT_ID_LINK, struct link, 1);

CUresult flyt_jit_link_create(const struct flyt_jit_options *options, CUlinkState *ret_state)
{
    uint64_t context_id;
    int device;
    struct flyt_jit_numbers numbers;
    CUresult result = flyt_client_enter();
    if (!result && (!ret_state || (options->count && (!options->options || !options->values))))
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = flyt_jit_numbers_init(&numbers, options);
    if (result)
        return result;
    struct link *link = flyt_table_new(&link_table);
    if (!link) {
        flyt_jit_numbers_fini(&numbers);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    flyt_jit_logs_init(&link->logs, options);
    link->numbers = numbers;
    link->parts = NULL;
    link->part_count = 0;
    link->image = NULL;
    flyt_table_publish(&link->record);
    *ret_state = (CUlinkState)(uintptr_t)link->record.minted_id;
    return CUDA_SUCCESS;
}

static CUresult enter(CUlinkState state, struct link **ret_link)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    *ret_link = flyt_table_find(&link_table, (uint64_t)(uintptr_t)state);
    return *ret_link ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* A part with copies of everything. PTX ends at its NUL, whether the program has counted it or not. */
static CUresult fill_part(struct flyt_jit_link_part *part, CUjitInputType kind, const void *data, size_t bytes,
                          const char *name, const struct flyt_jit_options *options)
{
    *part = (struct flyt_jit_link_part){0};
    if (kind >= CU_JIT_NUM_INPUT_TYPES || bytes > FLYT_IMAGE_BYTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (kind == CU_JIT_INPUT_PTX)
        bytes = strnlen(data, bytes);
    CUresult result = flyt_jit_numbers_init(&part->numbers, options);
    if (result)
        return result;
    part->image.owned = malloc(bytes + 1);
    part->name = strndup(name ? name : "", NAME_BYTES_MAX);
    if (!part->image.owned || !part->name) {
        free(part->image.owned);
        free(part->name);
        flyt_jit_numbers_fini(&part->numbers);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    memcpy(part->image.owned, data, bytes);
    part->image.data = part->image.owned;
    part->image.bytes = bytes;
    part->image.kind = kind;
    return CUDA_SUCCESS;
}

/* Not that the image is none, but that it does not go with the others: the codes of NVIDIA's linker. */
static bool is_contradiction(CUresult result)
{
    return result == CUDA_ERROR_UNKNOWN || result == CUDA_ERROR_INVALID_SOURCE;
}

CUresult flyt_jit_link_add(CUlinkState state, CUjitInputType kind, const void *data, size_t bytes, const char *name,
                           const struct flyt_jit_options *options)
{
    struct link *link;
    struct flyt_jit_link_part *parts;
    CUresult result = enter(state, &link);
    if (result)
        return result;
    if (link->image || !data || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (link->part_count == FLYT_LINK_INPUTS_MAX) {
        result = refuse_count(&link->logs);
        flyt_jit_logs_say(&link->logs, result);
        return result;
    }
    parts = reallocarray(link->parts, link->part_count + 1, sizeof *parts);
    if (!parts)
        return CUDA_ERROR_OUT_OF_MEMORY;
    link->parts = parts;
    struct flyt_jit_link_part *part = &parts[link->part_count];
    result = fill_part(part, kind, data, bytes, name, options);
    if (result)
        return result;
    result = flyt_jit_link_parts(flyt_client.channel, parts, link->part_count + 1, true, &link->numbers, &link->logs,
                                 NULL, NULL);
    flyt_jit_logs_say(&link->logs, result);
    /* A contradiction stays, as natively, and comes again from every further call; what is no image is left out. */
    if (!result || is_contradiction(result)) {
        link->part_count++;
    } else {
        flyt_image_fini(&part->image);
        flyt_jit_numbers_fini(&part->numbers);
        free(part->name);
    }
    return result;
}

CUresult flyt_jit_link_add_file(CUlinkState state, CUjitInputType kind, const char *path,
                                const struct flyt_jit_options *options)
{
    struct link *link;
    char *data;
    size_t bytes;
    CUresult result = enter(state, &link);
    if (!result)
        result = flyt_image_read(path, &data, &bytes);
    if (result)
        return result;
    result = flyt_jit_link_add(state, kind, data, bytes, path, options);
    free(data);
    return result;
}

static CUresult fetch(const unsigned char *hash, char *image, uint64_t bytes)
{
    uint64_t have = 0;
    while (have < bytes) {
        flyt_image_fetch_args args = {.thread = flyt_thread_number(), .offset_bytes = have};
        flyt_image_fetch_res res = {0};
        memcpy(args.image_hash, hash, FLYT_HASH_BYTES);
        uint64_t room = bytes - have < FLYT_INLINE_BYTES_MAX ? bytes - have : FLYT_INLINE_BYTES_MAX;
        int status = flyt_call_image_fetch(flyt_client.channel, &args, &res, image + have, room);
        CUresult result = flyt_client_reply(status, res.result, "image_fetch");
        if (result || !res.data.data_len)
            return result ? result : CUDA_ERROR_UNKNOWN;
        have += res.data.data_len;
    }
    return CUDA_SUCCESS;
}

CUresult flyt_jit_link_complete(CUlinkState state, void **ret_image, size_t *ret_bytes)
{
    struct link *link;
    unsigned char hash[FLYT_HASH_BYTES];
    uint64_t bytes = 0;
    CUresult result = enter(state, &link);
    if (result)
        return result;
    if (!ret_image)
        return CUDA_ERROR_INVALID_VALUE;
    if (link->image)
        return CUDA_ERROR_INVALID_HANDLE;
    result = flyt_jit_link_parts(flyt_client.channel, link->parts, link->part_count, false, &link->numbers, &link->logs,
                                 hash, &bytes);
    flyt_jit_logs_say(&link->logs, result);
    if (!result && (!bytes || bytes > FLYT_IMAGE_BYTES_MAX))
        result = CUDA_ERROR_UNKNOWN;
    /* Zeroes behind it: readers of headers look that far. */
    char *image = result ? NULL : calloc(1, bytes + FLYT_IMAGE_PADDING_BYTES);
    if (!result && !image)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (!result)
        result = fetch(hash, image, bytes);
    if (result) {
        free(image);
        return result;
    }
    link->image = image;
    *ret_image = image;
    if (ret_bytes)
        *ret_bytes = bytes;
    return CUDA_SUCCESS;
}

CUresult flyt_jit_link_destroy(CUlinkState state)
{
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    struct link *link = flyt_table_take(&link_table, (uint64_t)(uintptr_t)state);
    if (!link)
        return CUDA_ERROR_INVALID_HANDLE;
    free_parts(link->parts, link->part_count);
    flyt_jit_numbers_fini(&link->numbers);
    free(link->image);
    flyt_table_free(&link_table, &link->record);
    return CUDA_SUCCESS;
}
