/* What a library holds, by name: kernels and variables. */
#include <stdlib.h>
#include <string.h>
#include "cpu/client/answer.h"
#include "cpu/client/device.h"
#include "cpu/client/instance.h"
#include "cpu/client/library.h"
#include "cpu/client/range.h"
#include "cpu/client/thread.h"

FLYT_ANSWER_CALL(library_global, FLYT_LIBRARY_GLOBAL)

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

/* Asks the server and remembers. The caller holds the library's mutex. */
static CUresult ask_variable_locked(struct flyt_library *library, const char *name, int device,
                                    struct flyt_variable **ret_variable)
{
    struct flyt_library *own = flyt_library_on(library, device);
    CUresult result = own ? flyt_library_load_now(own) : CUDA_SUCCESS;
    if (result)
        return result;
    struct flyt_variable *variable = calloc(1, sizeof *variable + strlen(name) + 1);
    if (!variable)
        return CUDA_ERROR_OUT_OF_MEMORY;
    flyt_library_global_args args = {.thread = flyt_thread_number(),
                                     .library_id = (own ? own : library)->record.minted_id,
                                     .name = (char *)(uintptr_t)name,
                                     .device = (unsigned)device};
    flyt_library_global_res res = {0};
    int status = call_library_global(&args, &res);
    result = flyt_client_reply(status, res.result, "library_global");
    if (result) {
        flyt_answer_end();
        free(variable);
        return result;
    }
    strcpy(variable->name, name);
    variable->device = device;
    variable->address = res.address;
    variable->bytes = res.bytes;
    flyt_variables_lock();
    variable->next = library->variables;
    library->variables = variable;
    flyt_variables_unlock();
    flyt_answer_end();
    /* So that copies know the address. Where the table holds something there already (the driver put it where the
     * program has memory of its own), the address still works with an explicit direction. */
    struct flyt_range range = {.base = res.address,
                               .bytes = res.bytes ? res.bytes : 1,
                               .kind = FLYT_RANGE_VARIABLE,
                               .device = device,
                               .library_id = library->record.minted_id};
    flyt_range_insert(&range);
    *ret_variable = variable;
    return CUDA_SUCCESS;
}

CUresult flyt_library_global(CUlibrary handle, const char *name, int device, CUdeviceptr *ret_address,
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
    pthread_mutex_lock(&library->mutex);
    struct flyt_variable *variable = library->variables;
    while (variable && (variable->device != device || strcmp(variable->name, name) != 0))
        variable = variable->next;
    if (!variable)
        result = ask_variable_locked(library, name, device, &variable);
    if (!result && ret_address)
        *ret_address = variable->address;
    if (!result && ret_bytes)
        *ret_bytes = variable->bytes;
    pthread_mutex_unlock(&library->mutex);
    return result;
}
