/* Libraries that a program loads by itself. Their kernels are handles that every call takes in a host function's place.
 */
#include "cpu/client/cuda/module.h"

#include "cpu/cudart/cudart.h"

static CUlibrary driver_library(cudaLibrary_t library)
{
    return (CUlibrary)(void *)library;
}

/* CUDA_SUCCESS where the options of the library itself are ones that need nothing done. */
static CUresult check_options(const enum cudaLibraryOption *options, unsigned option_count, bool is_file)
{
    if (option_count > 0 && !options)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < option_count; i++) {
        switch (options[i]) {
        case cudaLibraryBinaryIsPreserved:
            /* Allows not to copy the image; a file's image is not the program's to preserve. */
            if (is_file)
                return CUDA_ERROR_INVALID_VALUE;
            break;
        case cudaLibraryHostUniversalFunctionAndDataTable:
            return flyt_not_supported("cudaLibraryHostUniversalFunctionAndDataTable");
        default:
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    return CUDA_SUCCESS;
}

/* What a library is loaded from: an image in memory, or a file. */
struct source {
    const void *code;
    const char *path; /* NULL: `code` it is */
};

static cudaError_t load(cudaLibrary_t *library, const struct source *source, enum cudaJitOption *jit_options,
                        void **jit_values, unsigned jit_count, const enum cudaLibraryOption *options,
                        unsigned option_count)
{
    /* enum cudaJitOption has the numbers of CUjit_option. */
    const struct flyt_jit_options jit = {
        .count = jit_count, .options = (const CUjit_option *)(const void *)jit_options, .values = jit_values};
    CUlibrary loaded;
    CUresult result;

    if (!library || (!source->path && !source->code) || (jit_count > 0 && (!jit_options || !jit_values)))
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = check_options(options, option_count, source->path != NULL);
    if (result == CUDA_SUCCESS)
        result = source->path ? flyt_library_load_file(source->path, &jit, &loaded)
                              : flyt_library_load(source->code, &jit, &loaded);
    if (result == CUDA_SUCCESS)
        *library = (cudaLibrary_t)(void *)loaded;
    return flyt_cudart_result(result);
}

cudaError_t cudaLibraryLoadData(cudaLibrary_t *library, const void *code, enum cudaJitOption *jitOptions,
                                void **jitOptionsValues, unsigned int numJitOptions,
                                enum cudaLibraryOption *libraryOptions, void **libraryOptionValues,
                                unsigned int numLibraryOptions)
{
    return load(library, &(struct source){.code = code}, jitOptions, jitOptionsValues, numJitOptions, libraryOptions,
                numLibraryOptions);
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *library, const char *fileName, enum cudaJitOption *jitOptions,
                                    void **jitOptionsValues, unsigned int numJitOptions,
                                    enum cudaLibraryOption *libraryOptions, void **libraryOptionValues,
                                    unsigned int numLibraryOptions)
{
    return load(library, &(struct source){.path = fileName}, jitOptions, jitOptionsValues, numJitOptions,
                libraryOptions, numLibraryOptions);
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *kernels, unsigned int numKernels, cudaLibrary_t lib)
{
    CUresult result;

    if (!kernels)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS && numKernels > 0)
        result = flyt_library_kernels(driver_library(lib), numKernels, (CUkernel *)(void *)kernels);
    return flyt_cudart_result(result);
}

/* There are none without devices that have unified function pointers, which NVIDIA's runtime calls an invalid value. */
cudaError_t cudaLibraryGetUnifiedFunction(void **fptr, cudaLibrary_t library, const char *symbol)
{
    unsigned kernel_count;
    CUresult result;

    if (!fptr || !symbol)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_library_kernel_count(driver_library(library), &kernel_count);
    return flyt_cudart_result(result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE);
}

/* Where a variable is, as the core has answered. */
static cudaError_t give_variable(CUresult result, CUdeviceptr address, size_t found_bytes, void **dptr, size_t *bytes)
{
    if (result != CUDA_SUCCESS)
        return flyt_cudart_result(result);
    if (dptr)
        *dptr = (void *)address;
    if (bytes)
        *bytes = found_bytes;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetGlobal(void **dptr, size_t *bytes, cudaLibrary_t library, const char *name)
{
    CUdeviceptr address = 0;
    size_t found_bytes = 0;
    CUresult result;
    int device;

    if ((!dptr && !bytes) || !name)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_cudart_device(&device);
    if (result == CUDA_SUCCESS)
        result = flyt_library_global(driver_library(library), name, device, &address, &found_bytes);
    return give_variable(result, address, found_bytes, dptr, bytes);
}

cudaError_t cudaLibraryGetManaged(void **dptr, size_t *bytes, cudaLibrary_t library, const char *name)
{
    CUdeviceptr address = 0;
    size_t found_bytes = 0;
    CUresult result;

    if ((!dptr && !bytes) || !name)
        return flyt_cudart_fail(cudaErrorInvalidValue);
    result = flyt_cudart_enter();
    if (result == CUDA_SUCCESS)
        result = flyt_library_managed(driver_library(library), name, &address, &found_bytes);
    return give_variable(result, address, found_bytes, dptr, bytes);
}
