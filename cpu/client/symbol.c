/* What a library holds, by name: kernels and variables. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/answer.h"
#include "cpu/client/constant.h"
#include "cpu/client/device.h"
#include "cpu/client/instance.h"
#include "cpu/client/library.h"
#include "cpu/client/range.h"
#include "cpu/client/thread.h"

FLYT_ANSWER_CALL(library_global, FLYT_LIBRARY_GLOBAL)
FLYT_ANSWER_CALL(library_symbol, FLYT_LIBRARY_SYMBOL)

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
    if (!is_told) {
        int status = call_library_symbol(&offer, ret_place);
        return flyt_client_reply(status, ret_place->result, "library_symbol");
    }
    int status = call_library_global(&args, &res);
    ret_place->address = res.address;
    ret_place->bytes = res.bytes;
    return flyt_client_reply(status, res.result, "library_global");
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

/* So that copies know the address. Where the table holds something there already (the driver put it where the program
 * has memory of its own), the address still works with an explicit direction. */
static void enter_range(const struct flyt_library *library, const struct flyt_variable *variable, uint64_t address)
{
    struct flyt_range range = {.base = address,
                               .bytes = variable->bytes ? variable->bytes : 1,
                               .kind = FLYT_RANGE_VARIABLE,
                               .device = variable->device,
                               .library_id = library->record.minted_id};
    flyt_range_insert(&range);
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

/* Asks the server and remembers. `known`: what it has told for copies; NULL: nothing. The caller holds the library's
 * mutex. */
static CUresult ask_variable_locked(struct flyt_library *library, const char *name, int device, bool is_told,
                                    struct flyt_variable *known, struct flyt_variable **ret_variable)
{
    struct flyt_library *own = flyt_library_on(library, device);
    flyt_library_symbol_res place = {0};
    CUresult result = own ? flyt_library_load_now(own) : CUDA_SUCCESS;
    if (result)
        return result;
    struct flyt_variable *variable = known;
    result = ask_place(own ? own : library, name, device, is_told, true, &place);
    if (!result && !known)
        variable = add_variable_locked(library, name, device, &place);
    if (!result && variable && !known && variable->is_lost) /* copies go by its address: the server has to know */
        result = ask_place(own ? own : library, name, device, is_told, false, &place);
    if (!result && variable && is_told)
        note_told(variable, place.address);
    flyt_answer_end();
    if (variable && !known) /* whatever came of the second question: it is found from now on */
        enter_range(library, variable, variable->address);
    if (result)
        return result;
    if (!variable)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (known && is_told && variable->true_address != variable->address)
        enter_range(library, variable, variable->true_address);
    *ret_variable = variable;
    return CUDA_SUCCESS;
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
    if (!variable || (is_told && !variable->is_told))
        result = ask_variable_locked(library, name, device, is_told, variable, &variable);
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
