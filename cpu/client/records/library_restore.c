#include "cpu/client/records/library_restore.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/jit.h"
#include "cpu/client/cuda/library.h"
#include "cpu/client/records/constant_restore.h"

/* A library in a sentence. */
struct name {
    char text[32 + 2 * FLYT_HASH_BYTES];
};

static struct name name_of(const struct flyt_library *library)
{
    struct name name;
    int at = snprintf(name.text, sizeof name.text, "module with SHA-256 ");
    for (int i = 0; i < FLYT_HASH_BYTES; i++)
        at += snprintf(name.text + at, sizeof name.text - (size_t)at, "%02x", library->image_hash[i]);
    return name;
}

static int refuse(struct flyt_restore *restore, const struct flyt_library *library, int error, const char *why)
{
    return flyt_error_set(restore->err, error, "%s cannot be loaded again: %s", name_of(library).text, why);
}

static int refuse_result(struct flyt_restore *restore, const struct flyt_library *library, int status, int result)
{
    if (status == FLYT_CHANNEL_LOST)
        return flyt_error_set(restore->err, -ECONNRESET, "the connection to the new server was lost");
    return flyt_error_set(restore->err, -EIO, "%s cannot be loaded again: CUDA error %d", name_of(library).text,
                          status ? CUDA_ERROR_NOT_SUPPORTED : result);
}

/* ---- the image ---- */

/* Of a library that the program has unloaded the image may be gone from its memory. */
static int give_image(struct flyt_restore *restore, const struct flyt_library *library)
{
    struct flyt_jit_logs no_logs = {0};
    unsigned char hash[FLYT_HASH_BYTES];
    if (!library->image || library->record.destroyed)
        return refuse(restore, library, -EIO, "the node lacks its image, and the program has given it away");
    CUresult result = flyt_library_send_image(restore->fresh, library, &no_logs, hash);
    if (result)
        return refuse_result(restore, library, flyt_channel_is_lost(restore->fresh) ? FLYT_CHANNEL_LOST : 0,
                             (int)result);
    if (memcmp(hash, library->image_hash, sizeof hash) != 0)
        return refuse(restore, library, -EIO, "the node lacks its image, and the program's has changed");
    return 0;
}

static int ensure_image(struct flyt_restore *restore, const struct flyt_library *library)
{
    flyt_image_find_args args = {.thread = FLYT_RESTORE_THREAD};
    flyt_image_find_res res = {0};
    memcpy(args.image_hash, library->image_hash, FLYT_HASH_BYTES);
    int called = flyt_call_image_find(restore->fresh, &args, &res);
    if (called || res.result)
        return refuse_result(restore, library, called, res.result);
    return res.is_known ? 0 : give_image(restore, library);
}

/* ---- kernels ---- */

static bool is_same_kernel(const struct flyt_kernel *kernel, const flyt_kernel_info *info)
{
    bool is_same = strcmp(kernel->name, info->name) == 0 && kernel->param_count == info->params.params_len;
    for (uint32_t i = 0; i < kernel->param_count && is_same; i++)
        is_same = kernel->params[i].offset_bytes == info->params.params_val[i].offset_bytes &&
                  kernel->params[i].bytes == info->params.params_val[i].size_bytes;
    return is_same;
}

/* Whether these are the library's kernels from `first` on: ids name them by their places. */
static bool are_same_kernels(const struct flyt_library *library, uint32_t first, const flyt_kernel_info *infos,
                             uint32_t count)
{
    bool are_same = count <= library->kernel_count - first;
    for (uint32_t i = 0; i < count && are_same; i++)
        are_same = is_same_kernel(&library->kernels[first + i], &infos[i]);
    return are_same;
}

static int compare_part(struct flyt_restore *restore, const struct flyt_library *library, uint32_t *in_out_told)
{
    flyt_library_kernels_args args = {
        .thread = FLYT_RESTORE_THREAD, .library_id = library->record.minted_id, .first = *in_out_told};
    flyt_library_kernels_res res = {0};
    int status = 0, called = flyt_call_library_kernels(restore->fresh, &args, &res);
    uint32_t count = res.kernels.kernels_len;
    if (called || res.result)
        status = refuse_result(restore, library, called, res.result);
    else if (!count || !are_same_kernels(library, *in_out_told, res.kernels.kernels_val, count))
        status = refuse(restore, library, -EIO, "it has other kernels there");
    *in_out_told += count;
    xdr_free((xdrproc_t)xdr_flyt_library_kernels_res, (char *)&res);
    return status;
}

static int load(struct flyt_restore *restore, const struct flyt_library *library)
{
    flyt_library_load_args args = {.thread = FLYT_RESTORE_THREAD, .library_id = library->record.minted_id};
    flyt_library_load_res res = {0};
    memcpy(args.image_hash, library->image_hash, FLYT_HASH_BYTES);
    args.options.options_len = library->numbers.count;
    args.options.options_val = library->numbers.values;
    int status = 0, called = flyt_call_library_load(restore->fresh, &args, &res);
    uint32_t told = res.kernels.kernels_len;
    if (called || res.result)
        status = refuse_result(restore, library, called, res.result);
    else if (res.kernel_count != library->kernel_count || !are_same_kernels(library, 0, res.kernels.kernels_val, told))
        status = refuse(restore, library, -EIO, "it has other kernels there");
    xdr_free((xdrproc_t)xdr_flyt_library_load_res, (char *)&res);
    while (!status && told < library->kernel_count)
        status = compare_part(restore, library, &told);
    for (uint32_t i = 0; i < library->kernel_count && !status; i++)
        status = flyt_kernel_restore(restore, &library->kernels[i]);
    return status;
}

/* ---- variables ---- */

/* Where it is there; *ret_place is for copies by its name, too, where the program has no more. */
static int ask_place(struct flyt_restore *restore, const struct flyt_library *library,
                     const struct flyt_variable *variable, flyt_library_symbol_res *ret_place)
{
    const struct flyt_library *own = flyt_library_on(library, variable->device);
    flyt_library_symbol_args args = {.thread = FLYT_RESTORE_THREAD,
                                     .library_id = (own ? own : library)->record.minted_id,
                                     .name = (char *)(uintptr_t)variable->name,
                                     .device = (unsigned)variable->device,
                                     .is_kept = variable->constant || !variable->is_lost};
    if (!variable->is_told && !flyt_channel_has(restore->fresh, FLYT_LIBRARY_SYMBOL))
        return flyt_error_set(restore->err, -ENOTSUP,
                              "variable %s is copied by its name: the server there is older than that", variable->name);
    if (!variable->is_told) {
        int called = flyt_call_library_symbol(restore->fresh, &args, ret_place);
        return flyt_restore_answered(restore, called, ret_place->result, "variable %s", variable->name);
    }
    flyt_library_global_args told = {
        .thread = args.thread, .library_id = args.library_id, .name = args.name, .device = args.device};
    flyt_library_global_res res = {0};
    int called = flyt_call_library_global(restore->fresh, &told, &res);
    ret_place->address = res.address;
    ret_place->bytes = res.bytes;
    return flyt_restore_answered(restore, called, res.result, "variable %s", variable->name);
}

static int compare_variable(struct flyt_restore *restore, const struct flyt_library *library,
                            const struct flyt_variable *variable)
{
    flyt_library_symbol_res place = {0};
    int status = ask_place(restore, library, variable, &place);
    if (status)
        return status;
    if (place.bytes != variable->bytes)
        return flyt_error_set(restore->err, -EIO, "variable %s has another size there", variable->name);
    if (variable->true_address && place.address != variable->true_address)
        return flyt_error_set(restore->err, -EIO,
                              "variable %s, whose address the program or a copy has, is at another one there",
                              variable->name);
    const struct flyt_library *own = flyt_library_on(library, variable->device);
    return variable->constant ? flyt_constant_restore_locked(restore, (own ? own : library)->record.minted_id, variable)
                              : 0;
}

static int compare_variables(struct flyt_restore *restore, const struct flyt_library *library)
{
    int status = 0;
    /* Held across calls over the new channel: nobody who holds it calls the server. */
    flyt_variables_lock();
    for (const struct flyt_variable *one = library->variables; one && !status; one = one->next)
        status = compare_variable(restore, library, one);
    flyt_variables_unlock();
    return status;
}

/* ---- all ---- */

static int compare_order(const void *left, const void *right)
{
    const struct flyt_library *const *first = left, *const *second = right;
    return (*first)->load_number < (*second)->load_number ? -1 : (*first)->load_number > (*second)->load_number;
}

/* Those that there are, in the order in which they were loaded; owned by the caller (free). NULL: no memory. */
static struct flyt_library **list_libraries(const struct flyt_restore *restore, size_t *ret_count)
{
    struct flyt_library **list = malloc(sizeof *list), *library;
    size_t count = 0;
    uint32_t slot = 0;
    while (list && (library = flyt_library_next_at(restore->sequence, &slot))) {
        struct flyt_library **more = reallocarray(list, count + 2, sizeof *list);
        if (!more) {
            free(list);
            return NULL;
        }
        list = more;
        list[count++] = library;
    }
    if (list)
        qsort(list, count, sizeof *list, compare_order);
    *ret_count = count;
    return list;
}

int flyt_library_restore(struct flyt_restore *restore)
{
    size_t count = 0;
    struct flyt_library **list = list_libraries(restore, &count);
    int status = list ? 0 : flyt_error_set(restore->err, -ENOMEM, "no memory to load the modules again");
    for (size_t i = 0; i < count && !status; i++) {
        status = ensure_image(restore, list[i]);
        if (!status)
            status = load(restore, list[i]);
    }
    for (size_t i = 0; i < count && !status; i++)
        status = compare_variables(restore, list[i]);
    free(list);
    return status;
}
