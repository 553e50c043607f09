/*
 * Modules and libraries. A CUmodule is a context's view of a library; both are loaded by the core.
 */
#include <stdlib.h>
#include <string.h>

#include "cpu/cuda/driver.h"
#include "cpu/client/cuda/module.h"

/* ---- modules ---- */

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *ret_module, const void *image, unsigned option_count,
                                    CUjit_option *options, void **option_values)
{
    FLYT_CUDA_ENTER();
    if (!ret_module || !image || (option_count && (!options || !option_values)))
        return flyt_cuda_invalid_value();
    struct flyt_jit_options jit = {.count = option_count, .options = options, .values = option_values};
    return flyt_module_load(image, &jit, ret_module);
}

/* Either result may be NULL, not both. */
CUresult CUDAAPI cuModuleGetGlobal_v2(CUdeviceptr *ret_address, size_t *ret_bytes, CUmodule module, const char *name)
{
    FLYT_CUDA_ENTER();
    if (!name || (!ret_address && !ret_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_module_global(module, name, ret_address, ret_bytes);
}

/* The images of a program are loaded when something of them is first used, unless it asks for them at once
 * (cpu/cudart/registry.c). */
CUresult CUDAAPI cuModuleGetLoadingMode(CUmoduleLoadingMode *ret_mode)
{
    FLYT_CUDA_ENTER();
    if (!ret_mode)
        return CUDA_ERROR_INVALID_VALUE;
    const char *mode = getenv("CUDA_MODULE_LOADING");
    *ret_mode = mode && !strcmp(mode, "EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
    return CUDA_SUCCESS;
}

/* ---- libraries ---- */

/* "Binary is preserved" allows the driver to skip a copy of the image: nothing to do here. */
static CUresult library_options_check(const CUlibraryOption *options, void *const *values, unsigned count)
{
    if (count && (!options || !values))
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE)
            return flyt_not_supported("cuLibraryLoadData with CU_LIBRARY_HOST_UNIVERSAL_FUNCTION_AND_DATA_TABLE");
        if (options[i] != CU_LIBRARY_BINARY_IS_PRESERVED)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *ret_library, const void *image, CUjit_option *options,
                                   void **option_values, unsigned option_count, CUlibraryOption *library_options,
                                   void **library_option_values, unsigned library_option_count)
{
    FLYT_CUDA_ENTER();
    if (!ret_library || !image || (option_count && (!options || !option_values)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = library_options_check(library_options, library_option_values, library_option_count);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_jit_options jit = {.count = option_count, .options = options, .values = option_values};
    return flyt_library_load(image, &jit, ret_library);
}

CUresult CUDAAPI cuLibraryLoadFromFile(CUlibrary *ret_library, const char *path, CUjit_option *options,
                                       void **option_values, unsigned option_count, CUlibraryOption *library_options,
                                       void **library_option_values, unsigned library_option_count)
{
    FLYT_CUDA_ENTER();
    if (!ret_library || !path || (option_count && (!options || !option_values)))
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = library_options_check(library_options, library_option_values, library_option_count);
    if (result != CUDA_SUCCESS)
        return result;
    struct flyt_jit_options jit = {.count = option_count, .options = options, .values = option_values};
    return flyt_library_load_file(path, &jit, ret_library);
}

/* No device here has unified function pointers (CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS is 0), so no library has
 * such a function: NVIDIA's driver calls that an invalid value. */
CUresult CUDAAPI cuLibraryGetUnifiedFunction(void **ret_function, CUlibrary library, const char *symbol)
{
    FLYT_CUDA_ENTER();
    unsigned kernel_count;
    if (!ret_function || !symbol)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = flyt_library_kernel_count(library, &kernel_count);
    return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
}

/* Of the current context's device. Either result may be NULL, not both. */
CUresult CUDAAPI cuLibraryGetGlobal(CUdeviceptr *ret_address, size_t *ret_bytes, CUlibrary library, const char *name)
{
    FLYT_CUDA_ENTER();
    int device;
    CUresult result = flyt_context_device(NULL, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (!name || !library || (!ret_address && !ret_bytes))
        return CUDA_ERROR_INVALID_VALUE;
    return flyt_library_global(library, name, device, ret_address, ret_bytes);
}
