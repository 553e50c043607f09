/* Modules: views of libraries that belong to a context. The view of a library has the library's number. */
#include "cpu/client/cuda/module.h"

#include <stdlib.h>
#include "cpu/client/core/instance.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/image.h"
#include "cpu/client/cuda/jit.h"
#include "cpu/client/cuda/library.h"

static CUmodule module_of(uint64_t library_id)
{
    return (CUmodule)(uintptr_t)flyt_id(FLYT_ID_MODULE, flyt_id_number(library_id));
}

static CUlibrary handle_of(const struct flyt_library *library)
{
    return (CUlibrary)(uintptr_t)library->record.minted_id;
}

/* What every question about a module begins with. */
static CUresult enter(CUmodule module, CUlibrary *ret_library)
{
    uint64_t id = (uint64_t)(uintptr_t)module;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    const struct flyt_library *library = NULL;
    if (flyt_id_type(id) == FLYT_ID_MODULE)
        library = flyt_library_find(flyt_id(FLYT_ID_LIBRARY, flyt_id_number(id)));
    if (!library)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret_library = handle_of(library);
    return CUDA_SUCCESS;
}

CUresult flyt_module_refuse(const char *reason)
{
    struct flyt_jit_logs logs = {0};
    flyt_jit_logs_refuse(&logs, CUDA_ERROR_NOT_SUPPORTED, "%s", reason);
    flyt_jit_logs_say(&logs, CUDA_ERROR_NOT_SUPPORTED);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult flyt_module_load(const void *image, const struct flyt_jit_options *options, CUmodule *ret_module)
{
    uint64_t id, context_id;
    int device;
    CUresult result = flyt_client_enter();
    if (!result && !ret_module)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_context_get(&context_id, &device);
    if (!result)
        result = flyt_library_load_module(image, options, context_id, &id);
    if (!result)
        *ret_module = module_of(id);
    return result;
}

CUresult flyt_module_load_file(const char *path, CUmodule *ret_module)
{
    char *data;
    CUresult result = flyt_client_enter();
    if (!result)
        result = flyt_image_read(path, &data, NULL);
    if (result)
        return result;
    result = flyt_module_load(data, NULL, ret_module);
    free(data);
    return result;
}

CUresult flyt_module_unload(CUmodule module)
{
    uint64_t id = (uint64_t)(uintptr_t)module;
    CUresult result = flyt_client_enter_release();
    if (result)
        return result;
    if (flyt_id_type(id) != FLYT_ID_MODULE)
        return CUDA_ERROR_INVALID_HANDLE;
    return flyt_library_unload_module(flyt_id(FLYT_ID_LIBRARY, flyt_id_number(id)));
}

CUresult flyt_library_module(CUlibrary library, CUmodule *ret_module)
{
    CUresult result = flyt_library_ensure(library);
    if (!result && !ret_module)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        *ret_module = module_of((uint64_t)(uintptr_t)library);
    return result;
}

CUresult flyt_module_function(CUmodule module, const char *name, CUfunction *ret_function)
{
    CUlibrary library;
    CUkernel kernel;
    CUresult result = enter(module, &library);
    if (!result && !ret_function)
        result = CUDA_ERROR_INVALID_VALUE;
    if (!result)
        result = flyt_library_kernel(library, name, &kernel);
    if (!result)
        *ret_function = (CUfunction)(void *)kernel;
    return result;
}

CUresult flyt_module_function_count(CUmodule module, unsigned *ret_count)
{
    CUlibrary library;
    CUresult result = enter(module, &library);
    return result ? result : flyt_library_kernel_count(library, ret_count);
}

CUresult flyt_module_functions(CUmodule module, unsigned count, CUfunction *ret_functions)
{
    CUlibrary library;
    CUresult result = enter(module, &library);
    /* Both handle types are pointers that hold the same id. */
    return result ? result : flyt_library_kernels(library, count, (CUkernel *)(void *)ret_functions);
}

CUresult flyt_module_global(CUmodule module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    uint64_t context_id;
    int device;
    CUlibrary library;
    CUresult result = enter(module, &library);
    if (!result)
        result = flyt_context_get(&context_id, &device);
    return result ? result : flyt_library_global(library, name, device, ret_address, ret_bytes);
}

CUresult flyt_kernel_module(CUfunction function, CUmodule *ret_module)
{
    struct flyt_library *library;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!flyt_kernel_find((uint64_t)(uintptr_t)function, &library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret_module)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_module = module_of(library->record.minted_id);
    return CUDA_SUCCESS;
}

CUresult flyt_kernel_library(CUkernel kernel, CUlibrary *ret_library)
{
    struct flyt_library *library;
    CUresult result = flyt_client_enter();
    if (result)
        return result;
    if (!flyt_kernel_find((uint64_t)(uintptr_t)kernel, &library))
        return CUDA_ERROR_INVALID_HANDLE;
    if (!ret_library)
        return CUDA_ERROR_INVALID_VALUE;
    *ret_library = handle_of(library);
    return CUDA_SUCCESS;
}
