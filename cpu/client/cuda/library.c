#include "cpu/client/cuda/library.h"

#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/constant.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/image.h"
#include "cpu/client/cuda/jit.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/cuda/jit_link_call.h"
#include "cpu/client/cuda/watch.h"
#include "rpc/base/fatbin.h"

static struct flyt_table library_table = FLYT_TABLE_INIT(FLYT_ID_LIBRARY, struct flyt_library, 1);
static pthread_mutex_t variables_mutex = PTHREAD_MUTEX_INITIALIZER;
static _Atomic uint64_t last_load_number;

FLYT_ANSWER_CALL(library_load)

struct flyt_library *flyt_library_find(uint64_t library_id)
{
    return flyt_table_find(&library_table, library_id);
}

struct flyt_library *flyt_library_next_at(uint64_t sequence, uint32_t *slot)
{
    return flyt_table_next_at(&library_table, sequence, slot);
}

struct flyt_kernel *flyt_kernel_find(uint64_t kernel_id, struct flyt_library **ret_library)
{
    if (flyt_id_type(kernel_id) != FLYT_ID_KERNEL)
        return NULL;
    struct flyt_library *library = flyt_table_find(&library_table, flyt_kernel_library_id(kernel_id));
    uint32_t index = flyt_kernel_index(kernel_id);
    if (!library)
        return NULL;
    /* Pairs with the release in accept_reply; a library that was reset keeps its kernels. */
    atomic_load_explicit(&library->state, memory_order_acquire);
    if (index >= library->kernel_count)
        return NULL;
    if (ret_library)
        *ret_library = library;
    return &library->kernels[index];
}

/* ---- records ---- */

static void free_kernels(struct flyt_library *library)
{
    for (uint32_t i = 0; i < library->kernel_count; i++)
        flyt_kernel_fini(&library->kernels[i]);
    library->kernel_count = 0;
    free(library->kernels);
    free(library->by_name);
    library->kernels = NULL;
    library->by_name = NULL;
}

void flyt_variables_lock(void)
{
    pthread_mutex_lock(&variables_mutex);
}

void flyt_variables_unlock(void)
{
    pthread_mutex_unlock(&variables_mutex);
}

static void free_variables(struct flyt_library *library)
{
    flyt_variables_lock();
    while (library->variables) {
        struct flyt_variable *one = library->variables;
        library->variables = one->next;
        flyt_constant_forget_locked(one);
        free(one);
    }
    flyt_variables_unlock();
}

static struct flyt_library *new_library(void)
{
    struct flyt_library *library = flyt_table_new(&library_table);
    if (!library)
        return NULL;
    if (!library->has_mutex)
        pthread_mutex_init(&library->mutex, NULL);
    library->has_mutex = true;
    /* Of the slot's last user: kept until now for lookups that raced with its end, and for making it again. */
    free_kernels(library);
    free_variables(library);
    flyt_jit_numbers_fini(&library->numbers);
    atomic_store(&library->state, FLYT_LIBRARY_NEW);
    library->load_result = CUDA_SUCCESS;
    library->is_module = false;
    library->context_id = 0;
    library->image = NULL;
    library->owned_image = NULL;
    for (unsigned i = 0; i < FLYT_DEVICES_MAX; i++)
        atomic_store(&library->own[i], NULL);
    return library;
}

/* Of variables on a device (−1: on all): their addresses mean nothing any more. */
static void forget_ranges(const struct flyt_library *library, int device)
{
    const struct flyt_watch *watch = flyt_watch();
    if (watch)
        watch->forget(library->record.minted_id, device);
    flyt_range_forget_variables(library->record.minted_id, device);
}

/* Gives back a record that nobody finds any more. */
static void free_library(struct flyt_library *library)
{
    forget_ranges(library, -1);
    library->image = NULL;
    free(library->owned_image);
    library->owned_image = NULL;
    flyt_table_free(&library_table, &library->record);
}

/* ---- loading ---- */

static int compare_names(const void *left, const void *right, void *user)
{
    const struct flyt_kernel *kernels = user;
    return strcmp(kernels[*(const uint32_t *)left].name, kernels[*(const uint32_t *)right].name);
}

static bool fill_kernel(struct flyt_kernel *kernel, const flyt_kernel_info *info)
{
    kernel->name = strdup(info->name);
    kernel->param_count = info->params.params_len;
    kernel->params = calloc(kernel->param_count + 1, sizeof *kernel->params);
    if (!kernel->name || !kernel->params)
        return false;
    for (uint32_t i = 0; i < kernel->param_count; i++) {
        const flyt_kernel_param *param = &info->params.params_val[i];
        /* What the server says is checked: a launch writes by these numbers. */
        if (param->size_bytes > FLYT_PARAM_BYTES_MAX || param->offset_bytes > FLYT_PARAM_BYTES_MAX - param->size_bytes)
            return false;
        kernel->params[i] = (struct flyt_kernel_param_place){param->offset_bytes, param->size_bytes};
        if (param->offset_bytes + param->size_bytes > kernel->param_bytes)
            kernel->param_bytes = param->offset_bytes + param->size_bytes;
    }
    return true;
}

_Static_assert(FLYT_LIBRARY_KERNELS_MAX == 1 << FLYT_ID_KERNEL_INDEX_BITS, "each kernel of a library has an id");

/* Makes room for all kernels; after a reset they are there already. */
static CUresult make_room(struct flyt_library *library, uint32_t count)
{
    if (library->kernels)
        return library->kernel_count == count ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
    if (count > FLYT_LIBRARY_KERNELS_MAX)
        return CUDA_ERROR_UNKNOWN;
    library->kernels = calloc((size_t)count + 1, sizeof *library->kernels);
    library->by_name = calloc((size_t)count + 1, sizeof *library->by_name);
    if (!library->kernels || !library->by_name)
        return CUDA_ERROR_OUT_OF_MEMORY;
    library->kernel_count = count;
    return CUDA_SUCCESS;
}

/* What the server told of the kernels from `first` on. Those that are there already, since before a reset, stay. */
static CUresult accept_kernels(struct flyt_library *library, uint32_t first, const flyt_kernel_info *infos,
                               uint32_t count)
{
    if (count > library->kernel_count - first || (!count && first < library->kernel_count))
        return CUDA_ERROR_UNKNOWN;
    for (uint32_t i = 0; i < count; i++) {
        struct flyt_kernel *kernel = &library->kernels[first + i];
        if (kernel->name)
            continue;
        kernel->kernel_id = flyt_kernel_id(library->record.minted_id, first + i);
        if (!fill_kernel(kernel, &infos[i]))
            return CUDA_ERROR_OUT_OF_MEMORY;
    }
    return CUDA_SUCCESS;
}

/* Asks for the kernels that did not fit into earlier replies. */
static CUresult ask_kernels(struct flyt_library *library, uint32_t *in_out_told)
{
    flyt_library_kernels_args args = {
        .thread = flyt_thread_number(), .library_id = library->record.minted_id, .first = *in_out_told};
    flyt_library_kernels_res res = {0};
    int status = flyt_call_library_kernels(flyt_client.channel, &args, &res);
    CUresult result = flyt_client_reply(status, res.result, "library_kernels");
    if (!result)
        result = accept_kernels(library, *in_out_told, res.kernels.kernels_val, res.kernels.kernels_len);
    if (!result)
        *in_out_told += res.kernels.kernels_len;
    xdr_free((xdrproc_t)xdr_flyt_library_kernels_res, (char *)&res);
    return result;
}

/* Learns all kernels of a library that the server has loaded. */
static CUresult learn_kernels(struct flyt_library *library, const flyt_library_load_res *res)
{
    bool was_known = library->kernels != NULL;
    uint32_t told = res->kernels.kernels_len;
    CUresult result = make_room(library, res->kernel_count);
    if (!result)
        result = accept_kernels(library, 0, res->kernels.kernels_val, told);
    while (!result && told < library->kernel_count)
        result = ask_kernels(library, &told);
    if (was_known)
        return result;
    if (result) {
        free_kernels(library);
        return result;
    }
    for (uint32_t i = 0; i < library->kernel_count; i++)
        library->by_name[i] = i;
    qsort_r(library->by_name, library->kernel_count, sizeof *library->by_name, compare_names, library->kernels);
    return CUDA_SUCCESS;
}

static void send_unload(struct flyt_library *library)
{
    flyt_library_unload_args args = {.thread = flyt_thread_number(), .library_id = library->record.minted_id};
    if (flyt_client_is_usable())
        flyt_send_library_unload(flyt_client.channel, &args, &library->record.destroyed); /* a loss shows later */
}

static CUresult send_load(struct flyt_library *library, struct flyt_jit_logs *logs)
{
    flyt_library_load_args args = {.thread = flyt_thread_number(), .library_id = library->record.minted_id};
    flyt_library_load_res res = {0};
    memcpy(args.image_hash, library->image_hash, FLYT_HASH_BYTES);
    args.options.options_len = library->numbers.count;
    args.options.options_val = library->numbers.values;
    int status = call_library_load(&args, &res);
    CUresult result = flyt_client_reply(status, res.result, "library_load");
    if (status == FLYT_CHANNEL_OK)
        flyt_jit_logs_give(logs, res.info_log, res.error_log);
    if (!result) {
        result = learn_kernels(library, &res);
        if (result)
            send_unload(library);
    }
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, (char *)&res);
    return result;
}

CUresult flyt_library_send_image(struct flyt_channel *channel, const struct flyt_library *library,
                                 struct flyt_jit_logs *logs, unsigned char *ret_hash)
{
    struct flyt_image image;
    const struct flyt_fatbin_device *target = &library->image_target;
    const void *const *units = flyt_fatbin_units(library->image);
    CUresult result = flyt_image_choose(library->image, target, &image);
    if (result == CUDA_ERROR_NO_BINARY_FOR_GPU && units)
        return flyt_jit_link_units(channel, units, target, &library->numbers, logs, ret_hash);
    if (result)
        flyt_image_refuse(library->image, target, result, logs);
    else
        result = flyt_image_send(channel, &image, ret_hash);
    flyt_image_fini(&image);
    return result;
}

static CUresult load_locked(struct flyt_library *library, struct flyt_jit_logs *logs)
{
    uint64_t context_id;
    int device = 0;
    flyt_context_get(&context_id, &device); /* without a current context device 0 decides */
    CUresult result = flyt_image_target(library->image, device, &library->image_target);
    if (!result)
        result = flyt_library_send_image(flyt_client.channel, library, logs, library->image_hash);
    return result ? result : send_load(library, logs);
}

/* Errors that another attempt would meet again. */
static bool is_permanent(CUresult result)
{
    return result == CUDA_ERROR_INVALID_IMAGE || result == CUDA_ERROR_NO_BINARY_FOR_GPU ||
           result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION ||
           result == CUDA_ERROR_NOT_SUPPORTED;
}

static void note_loaded(struct flyt_library *library)
{
    library->record.destroyed = 0; /* that of an earlier time is executed */
    library->record.created = 1;
    library->load_number = atomic_fetch_add(&last_load_number, 1) + 1;
}

/* Image, loading and all kernels together: in the midst of them the books could not be brought to another server. */
static CUresult begin_load(struct flyt_channel_group *group)
{
    return flyt_client_status(flyt_channel_group_begin(flyt_client.channel, group), "library_load");
}

static CUresult load(struct flyt_library *library, const struct flyt_jit_options *options)
{
    struct flyt_channel_group group;
    bool is_begun = false;
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&library->mutex);
    if (library->state == FLYT_LIBRARY_FAILED) {
        result = library->load_result;
    } else if (library->state == FLYT_LIBRARY_NEW) {
        struct flyt_jit_logs logs;
        flyt_jit_logs_init(&logs, options);
        result = begin_load(&group);
        if (!result) {
            result = load_locked(library, &logs);
            is_begun = true;
        }
        flyt_jit_logs_say(&logs, result);
        library->load_result = result;
        if (!result)
            note_loaded(library);
        /* Release: who sees LOADED sees the kernels (flyt_kernel_find). */
        if (!result)
            atomic_store_explicit(&library->state, FLYT_LIBRARY_LOADED, memory_order_release);
        else if (is_permanent(result))
            atomic_store(&library->state, FLYT_LIBRARY_FAILED);
        flyt_answer_end();
        if (is_begun)
            flyt_channel_group_end(flyt_client.channel, &group);
    }
    pthread_mutex_unlock(&library->mutex);
    return result;
}

CUresult flyt_library_load_now(struct flyt_library *library)
{
    if (atomic_load_explicit(&library->state, memory_order_acquire) == FLYT_LIBRARY_LOADED)
        return CUDA_SUCCESS;
    return load(library, NULL);
}

/* A library that is loaded at once. `owned` (may be NULL) is taken over, also on failure. */
static CUresult load_at_once(const void *image, char *owned, const struct flyt_jit_options *options,
                             uint64_t context_id, bool keeps_image, uint64_t *ret_library_id)
{
    struct flyt_library *library = image ? new_library() : NULL;
    if (!library) {
        free(owned);
        return image ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
    }
    library->image = image;
    library->owned_image = owned;
    library->is_module = context_id != 0;
    library->context_id = context_id;
    CUresult result = flyt_jit_numbers_init(&library->numbers, options);
    if (!result && keeps_image && !owned) { /* a device reset loads it again, when the program's may be gone */
        result = flyt_image_copy(image, &library->owned_image);
        library->image = library->owned_image;
    }
    if (!result)
        result = load(library, options);
    if (result) {
        free_library(library);
        return result;
    }
    if (!library->owned_image)
        library->image = NULL; /* the program's, who may give it away now */
    flyt_table_publish(&library->record);
    *ret_library_id = library->record.minted_id;
    return CUDA_SUCCESS;
}

CUresult flyt_library_load(const void *image, const struct flyt_jit_options *options, CUlibrary *ret_library)
{
    uint64_t id;
    CUresult result = flyt_client_enter();
    if (!result && !ret_library)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = load_at_once(image, NULL, options, 0, true, &id);
    if (!result)
        *ret_library = (CUlibrary)(uintptr_t)id;
    return result;
}

CUresult flyt_library_load_file(const char *path, const struct flyt_jit_options *options, CUlibrary *ret_library)
{
    uint64_t id;
    char *data;
    CUresult result = flyt_client_enter();
    if (!result && !ret_library)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_image_read(path, &data, NULL);
    if (!result)
        result = load_at_once(data, data, options, 0, true, &id);
    if (!result)
        *ret_library = (CUlibrary)(uintptr_t)id;
    return result;
}

CUresult flyt_library_load_module(const void *image, const struct flyt_jit_options *options, uint64_t context_id,
                                  uint64_t *ret_library_id)
{
    return load_at_once(image, NULL, options, context_id, false, ret_library_id);
}

CUresult flyt_library_open_lazy(const void *image, CUlibrary *ret_library)
{
    if (!image || !ret_library)
        return CUDA_ERROR_INVALID_VALUE;
    struct flyt_library *library = new_library();
    if (!library)
        return CUDA_ERROR_OUT_OF_MEMORY;
    library->image = image;
    flyt_table_publish(&library->record);
    *ret_library = (CUlibrary)(uintptr_t)library->record.minted_id;
    return CUDA_SUCCESS;
}

CUresult flyt_library_ensure(CUlibrary handle)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_library *library = flyt_library_find((uint64_t)(uintptr_t)handle);
    return library ? flyt_library_load_now(library) : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- unloading ---- */

/* Ends what a device has instead of the library. */
static void end_own(struct flyt_library *library, int device, bool is_on_server)
{
    struct flyt_library *own = atomic_exchange(&library->own[device], NULL);
    if (!own)
        return;
    if (is_on_server && atomic_load(&own->state) == FLYT_LIBRARY_LOADED)
        send_unload(own);
    free_library(own);
}

static void end_all_own(struct flyt_library *library, bool is_on_server)
{
    for (int device = 0; device < FLYT_DEVICES_MAX; device++)
        end_own(library, device, is_on_server);
}

struct flyt_library *flyt_library_on(const struct flyt_library *library, int device)
{
    return atomic_load_explicit(&library->own[device], memory_order_acquire);
}

static bool unload(uint64_t library_id, bool is_on_server)
{
    struct flyt_library *library = flyt_table_take(&library_table, library_id);
    if (!library)
        return false;
    end_all_own(library, is_on_server);
    if (is_on_server && atomic_load(&library->state) == FLYT_LIBRARY_LOADED)
        send_unload(library);
    free_library(library);
    return true;
}

CUresult flyt_library_unload(CUlibrary handle)
{
    uint64_t id = (uint64_t)(uintptr_t)handle;
    if (flyt_client_is_forked())
        return CUDA_ERROR_NOT_INITIALIZED;
    const struct flyt_library *library = flyt_library_find(id);
    if (!library || library->is_module)
        return CUDA_ERROR_INVALID_HANDLE;
    return unload(id, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

CUresult flyt_library_unload_module(uint64_t library_id)
{
    const struct flyt_library *library = flyt_library_find(library_id);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!library->is_module)
        return CUDA_ERROR_NOT_PERMITTED;
    return unload(library_id, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

void flyt_library_clear(uint64_t context_id, bool is_on_server)
{
    uint32_t slot = 0;
    const struct flyt_library *library;
    while ((library = flyt_table_next(&library_table, &slot)))
        if (library->is_module && library->context_id == context_id)
            unload(library->record.minted_id, is_on_server);
}

static bool is_used_on_locked(const struct flyt_library *library, int device)
{
    for (const struct flyt_variable *one = library->variables; one; one = one->next)
        if (one->device == device)
            return true;
    for (uint32_t i = 0; i < library->kernel_count; i++)
        if (flyt_kernel_is_used(&library->kernels[i], device))
            return true;
    return false;
}

static bool is_used_elsewhere_locked(const struct flyt_library *library, int device)
{
    for (int other = 0; other < (int)flyt_client.device_count; other++)
        if (other != device && is_used_on_locked(library, other))
            return true;
    return false;
}

static void forget_variables_locked(struct flyt_library *library, int device)
{
    flyt_variables_lock();
    for (struct flyt_variable **link = &library->variables; *link;) {
        struct flyt_variable *one = *link;
        if (one->device == device) {
            *link = one->next;
            flyt_constant_forget_locked(one);
            free(one);
        } else {
            link = &one->next;
        }
    }
    flyt_variables_unlock();
    forget_ranges(library, device);
}

/* Others go on with the library. Where there is no memory for another one, this device goes on with it, too. */
static void reset_alone_locked(struct flyt_library *library, int device)
{
    struct flyt_library *own = new_library();
    if (!own)
        return;
    own->image = library->image;
    if (flyt_jit_numbers_copy(&own->numbers, &library->numbers)) {
        free_library(own);
        return;
    }
    end_own(library, device, true);
    forget_variables_locked(library, device);
    /* Release: who finds it sees what it is made of (flyt_library_on). */
    atomic_store_explicit(&library->own[device], own, memory_order_release);
}

static void reset_locked(struct flyt_library *library, int device)
{
    bool was_used = is_used_on_locked(library, device);
    for (uint32_t i = 0; i < library->kernel_count; i++)
        flyt_kernel_forget(&library->kernels[i], device);
    if (!is_used_elsewhere_locked(library, device)) {
        end_all_own(library, true);
        send_unload(library);
        free_variables(library);
        forget_ranges(library, -1);
        atomic_store(&library->state, FLYT_LIBRARY_NEW);
    } else if (was_used) {
        reset_alone_locked(library, device);
    }
}

void flyt_library_before_reset(int device, uint64_t context_id)
{
    uint32_t slot = 0;
    struct flyt_library *library;
    while ((library = flyt_table_next(&library_table, &slot))) {
        pthread_mutex_lock(&library->mutex);
        if (!library->is_module && atomic_load(&library->state) == FLYT_LIBRARY_LOADED)
            reset_locked(library, device);
        pthread_mutex_unlock(&library->mutex);
    }
    flyt_library_clear(context_id, true);
}
