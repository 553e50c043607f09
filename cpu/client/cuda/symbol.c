/* What a library holds, by name: kernels and variables. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "cpu/client/bulk/range.h"
#include "cpu/client/core/answer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/thread.h"
#include "cpu/client/cuda/constant.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/device.h"
#include "cpu/client/cuda/library.h"
#include "cpu/client/cuda/watch.h"
#include "rpc/base/log.h"

FLYT_ANSWER_CALL(library_global)
FLYT_ANSWER_CALL(library_symbol)

/* What every question begins with: the library, loaded. */
static CUresult enter(CUlibrary handle, struct flyt_library **ret_library)
{
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    struct flyt_library *library = flyt_library_find((uint64_t)(uintptr_t)handle);
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_library = library;
    return flyt_library_load_now(library);
}

/* NULL: it has none of that name. */
static const struct flyt_kernel *find_kernel(const struct flyt_library *library, const char *name)
{
    uint32_t low = 0, high = library->kernel_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        const struct flyt_kernel *kernel = &library->kernels[library->by_name[middle]];
        int order = strcmp(name, kernel->name);
        if (!order)
            return kernel;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

CUresult flyt_library_kernel(CUlibrary handle, const char *name, CUkernel *ret_kernel)
{
    struct flyt_library *library;
    CUresult result = enter(handle, &library);
    if (!result && (!name || !ret_kernel))
        result = CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    const struct flyt_kernel *kernel = find_kernel(library, name);
    if (!kernel)
        return CUDA_ERROR_NOT_FOUND;
    *ret_kernel = (CUkernel)(uintptr_t)kernel->kernel_id;
    return CUDA_SUCCESS;
}

CUresult flyt_library_kernel_on(const struct flyt_kernel *kernel, int device, uint64_t *ret_kernel_id)
{
    struct flyt_library *own = flyt_library_on(flyt_library_find(flyt_kernel_library_id(kernel->kernel_id)), device);
    const struct flyt_kernel *there = kernel;
    if (own) {
        CUresult result = flyt_library_load_now(own);
        if (result)
            return result;
        there = find_kernel(own, kernel->name);
    }
    if (!there)
        return CUDA_ERROR_NOT_FOUND;
    *ret_kernel_id = there->kernel_id;
    return CUDA_SUCCESS;
}

CUresult flyt_library_kernel_count(CUlibrary handle, unsigned *ret_count)
{
    struct flyt_library *library;
    CUresult result = enter(handle, &library);
    if (!result && !ret_count)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_count = library->kernel_count;
    return result;
}

CUresult flyt_library_kernels(CUlibrary handle, unsigned count, CUkernel *ret_kernels)
{
    struct flyt_library *library;
    CUresult result = enter(handle, &library);
    if (!result && !ret_kernels)
        result = CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; !result && i < count && i < library->kernel_count; i++)
        ret_kernels[i] = (CUkernel)(uintptr_t)library->kernels[i].kernel_id;
    return result;
}

/* Whether a variable is managed. An older server has none such. */
static bool is_managed(const struct flyt_library *library, const char *name, int device)
{
    flyt_library_managed_args args = {.thread = flyt_thread_number(),
                                      .library_id = library->record.minted_id,
                                      .name = (char *)(uintptr_t)name,
                                      .device = (unsigned)device};
    flyt_library_managed_res res = {0};
    return flyt_channel_has(flyt_client.channel, FLYT_LIBRARY_MANAGED) &&
           flyt_call_library_managed(flyt_client.channel, &args, &res) == FLYT_CHANNEL_OK && !res.result;
}

/* Asks the server where a variable is: for the program, or for copies by the variable's name alone, in which case it is
 * offered to keep (is_kept) what they write. */
static CUresult ask_place(const struct flyt_library *library, const char *name, int device, bool is_told, bool is_kept,
                          flyt_library_symbol_res *ret_place)
{
    flyt_library_global_args args = {.thread = flyt_thread_number(),
                                     .library_id = library->record.minted_id,
                                     .name = (char *)(uintptr_t)name,
                                     .device = (unsigned)device};
    flyt_library_symbol_args offer = {.thread = args.thread,
                                      .library_id = args.library_id,
                                      .name = args.name,
                                      .device = args.device,
                                      .is_kept = is_kept};
    flyt_library_global_res res = {0};
    CUresult result;
    if (is_told) {
        int status = call_library_global(&args, &res);
        ret_place->address = res.address;
        ret_place->bytes = res.bytes;
        result = flyt_client_reply(status, res.result, "library_global");
    } else {
        int status = call_library_symbol(&offer, ret_place);
        result = flyt_client_reply(status, ret_place->result, "library_symbol");
    }
    return !result && flyt_range_is_minted(ret_place->address) ? CUDA_ERROR_UNKNOWN : result; /* no driver's address */
}

/* Enters a variable that the server has told the place of. The caller holds the library's mutex. */
static struct flyt_variable *add_variable_locked(struct flyt_library *library, const char *name, int device,
                                                 const flyt_library_symbol_res *place)
{
    struct flyt_variable *variable = calloc(1, sizeof *variable + strlen(name) + 1);
    if (!variable)
        return NULL;
    strcpy(variable->name, name);
    variable->device = device;
    variable->bytes = place->bytes;
    flyt_variables_lock();
    bool is_kept = place->is_kept && flyt_constant_keep_locked(library, variable);
    if (!is_kept)
        variable->address = variable->true_address = place->address;
    variable->is_lost = place->is_kept && !is_kept;
    variable->next = library->variables;
    library->variables = variable;
    flyt_variables_unlock();
    return variable;
}

/*
 * So that copies know the address, and nothing of the program's comes to lie there. Where something does already, the
 * address would mean two things: it is refused, and the line on stderr says whose it is.
 */
static CUresult enter_range(const struct flyt_library *library, const struct flyt_variable *variable, uint64_t address,
                            bool has_host)
{
    struct flyt_range range = {.base = address,
                               .bytes = variable->bytes,
                               .kind = FLYT_RANGE_VARIABLE,
                               .device = variable->device,
                               .library_id = library->record.minted_id,
                               .is_managed = has_host};
    if (!variable->bytes) /* nothing that a pointer could mean */
        return CUDA_SUCCESS;
    if (has_host && flyt_client.is_managed_on_host) {
        flyt_fail(
            "variable %s of device %d is refused: it is managed, the driver has it in device memory, and the host "
            "could not use it beside kernels, as FLYT_MANAGED_MEMORY=host says of managed memory",
            variable->name, variable->device);
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    switch (flyt_range_insert(&range)) {
    case 0:
        return has_host ? flyt_watch_table->adopt(&range) : CUDA_SUCCESS;
    case -EEXIST:
        flyt_fail(
            "variable %s of device %d is refused: the program has memory of its own where the GPU's driver has put "
            "it, and a pointer would mean both (address space randomization is off, here or in the program?)",
            variable->name, variable->device);
        return CUDA_ERROR_MAP_FAILED;
    default:
        flyt_fail("variable %s of device %d is refused: its addresses cannot be reserved, bytes=%llu", variable->name,
                  variable->device, (unsigned long long)variable->bytes);
        return CUDA_ERROR_MAP_FAILED;
    }
}

/* It has been refused: whoever asks again asks the server again, and the place may be free by then. */
static void drop_variable_locked(struct flyt_library *library, struct flyt_variable *variable)
{
    flyt_variables_lock();
    struct flyt_variable **link = &library->variables;
    while (*link != variable)
        link = &(*link)->next;
    *link = variable->next;
    flyt_constant_forget_locked(variable);
    free(variable);
    flyt_variables_unlock();
}

/* The program has the address from now on: what it writes there nobody sees. */
static void note_told(struct flyt_variable *variable, uint64_t true_address)
{
    flyt_variables_lock();
    flyt_constant_forget_locked(variable);
    variable->true_address = true_address;
    variable->is_told = true;
    flyt_variables_unlock();
}

/* Asks the server about a variable that is not entered yet, and enters it. The caller holds the library's mutex. */
static CUresult ask_new_locked(struct flyt_library *library, const struct flyt_library *there, const char *name,
                               int device, bool is_told, struct flyt_variable **ret_variable)
{
    flyt_library_symbol_res place = {0};
    const bool has_host = is_told && is_managed(there, name, device);
    CUresult result = ask_place(there, name, device, is_told, true, &place);
    struct flyt_variable *variable = result ? NULL : add_variable_locked(library, name, device, &place);
    if (variable && variable->is_lost) /* copies go by its address: the server has to know */
        result = ask_place(there, name, device, is_told, false, &place);
    if (!result && variable && is_told)
        note_told(variable, place.address);
    flyt_answer_end();
    if (!variable)
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    /* Whatever came of the second question: it is found from now on. */
    CUresult entered = enter_range(library, variable, variable->address, has_host);
    if (entered)
        drop_variable_locked(library, variable);
    else
        *ret_variable = variable;
    return result ? result : entered;
}

/* Asks the server where one is, for the program, of which only copies by its name have been made. Where it is refused
 * they go on. The caller holds the library's mutex. */
static CUresult ask_known_locked(struct flyt_library *library, const struct flyt_library *there,
                                 struct flyt_variable *variable)
{
    flyt_library_symbol_res place = {0};
    CUresult result = ask_place(there, variable->name, variable->device, true, true, &place);
    if (!result && place.address != variable->address)
        result = enter_range(library, variable, place.address, false);
    if (!result)
        note_told(variable, place.address);
    flyt_answer_end();
    return result;
}

static CUresult find_variable(CUlibrary handle, const char *name, int device, bool is_told, CUdeviceptr *ret_address,
                              size_t *ret_bytes)
{
    struct flyt_library *library;
    CUresult result = enter(handle, &library);
    if (!result)
        result = flyt_device_check(device);
    if (!result && (!name || !*name || strlen(name) > FLYT_SYMBOL_BYTES_MAX))
        result = name && *name ? CUDA_ERROR_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
    if (result)
        return result;
    is_told |= !flyt_channel_has(flyt_client.channel, FLYT_LIBRARY_SYMBOL); /* an older server */
    pthread_mutex_lock(&library->mutex);
    struct flyt_variable *variable = library->variables;
    while (variable && (variable->device != device || strcmp(variable->name, name) != 0))
        variable = variable->next;
    if (!variable || (is_told && !variable->is_told)) {
        struct flyt_library *own = flyt_library_on(library, device), *there = own ? own : library;
        if (own)
            result = flyt_library_load_now(own);
        if (!result)
            result = variable ? ask_known_locked(library, there, variable)
                              : ask_new_locked(library, there, name, device, is_told, &variable);
    }
    if (!result && ret_address)
        *ret_address = is_told ? variable->true_address : variable->address;
    if (!result && ret_bytes)
        *ret_bytes = variable->bytes;
    pthread_mutex_unlock(&library->mutex);
    return result;
}

CUresult flyt_library_global(CUlibrary library, const char *name, int device, CUdeviceptr *ret_address,
                             size_t *ret_bytes)
{
    return find_variable(library, name, device, true, ret_address, ret_bytes);
}

CUresult flyt_library_symbol(CUlibrary library, const char *name, int device, CUdeviceptr *ret_address,
                             size_t *ret_bytes)
{
    return find_variable(library, name, device, false, ret_address, ret_bytes);
}

/* It is shared by all devices: the current one's, or the first one's. */
CUresult flyt_library_managed(CUlibrary library, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    struct flyt_range range;
    CUdeviceptr address = 0;
    size_t bytes = 0;
    uint64_t context_id;
    int device = 0;
    flyt_context_get(&context_id, &device);
    CUresult result = find_variable(library, name, device, true, &address, &bytes);
    if (!result && (!flyt_range_find(address, &range) || !range.is_managed))
        result = CUDA_ERROR_NOT_FOUND;
    if (!result && ret_address)
        *ret_address = address;
    if (!result && ret_bytes)
        *ret_bytes = bytes;
    return result;
}
