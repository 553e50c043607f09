/*
 * Libraries, modules and their variables. Both are libraries on the wire; a module is a view of one that belongs to a
 * context. A CUlibrary is an id of type FLYT_ID_LIBRARY, a CUmodule one of type FLYT_ID_MODULE.
 *
 * An image is PTX text, an ELF file (cubin), a fat binary, or the wrapper that nvcc puts around one. Of a fat binary
 * the image that suits the device is chosen; its SHA-256 goes to the server, its bytes only if the node lacks them.
 */
#ifndef FLYT_CLIENT_MODULE_H
#define FLYT_CLIENT_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>
#include "cpu/client/core/api.h"

/* The driver API's options, as the program gave them. Zero means none. */
struct flyt_jit_options {
    unsigned count;
    const CUjit_option *options;
    void *const *values; /* log buffers named here are written; log sizes are written back */
};

/*
 * A library that is loaded at once: cuLibraryLoadData. `image` may be freed afterwards. CUDA_ERROR_INVALID_IMAGE,
 * _NO_BINARY_FOR_GPU, _INVALID_PTX, _UNSUPPORTED_PTX_VERSION, _INVALID_VALUE, _OUT_OF_MEMORY, as the driver's loader.
 * Needs no current context: without one, device 0 decides which image suits. `options` may be NULL; options of
 * cuLibraryLoadData itself are the caller's to check.
 */
FLYT_API CUresult flyt_library_load(const void *image, const struct flyt_jit_options *options, CUlibrary *ret_library);
/* cuLibraryLoadFromFile. CUDA_ERROR_FILE_NOT_FOUND. */
FLYT_API CUresult flyt_library_load_file(const char *path, const struct flyt_jit_options *options,
                                         CUlibrary *ret_library);
/*
 * A library that is loaded when something of it is first used, as the runtime registers those of the program. `image`
 * must stay until flyt_library_unload. Never connects, needs no device, fails only with CUDA_ERROR_OUT_OF_MEMORY and
 * CUDA_ERROR_INVALID_VALUE (NULL).
 */
FLYT_API CUresult flyt_library_open_lazy(const void *image, CUlibrary *ret_library);
/* Loads a lazy library now (nothing where it is loaded). The errors of flyt_library_load. */
FLYT_API CUresult flyt_library_ensure(CUlibrary library);
/* Its kernels and variables are gone. CUDA_ERROR_INVALID_HANDLE. Silent and harmless when the process is ending or the
 * connection is lost. */
FLYT_API CUresult flyt_library_unload(CUlibrary library);

/* Says, once, why a module that is not even sent is refused: "managed variable x is not supported". Returns
 * CUDA_ERROR_NOT_SUPPORTED. */
FLYT_API CUresult flyt_module_refuse(const char *reason);

/* Loads lazily. CUDA_ERROR_NOT_FOUND: no kernel of that (mangled) name. */
FLYT_API CUresult flyt_library_kernel(CUlibrary library, const char *name, CUkernel *ret_kernel);
FLYT_API CUresult flyt_library_kernel_count(CUlibrary library, unsigned *ret_count);
/* The first `count` kernels, or as many as there are. */
FLYT_API CUresult flyt_library_kernels(CUlibrary library, unsigned count, CUkernel *ret_kernels);
/* A __device__ or __constant__ variable on `device`. Either result may be NULL. CUDA_ERROR_NOT_FOUND. Kept after the
 * first question. */
FLYT_API CUresult flyt_library_global(CUlibrary library, const char *name, int device, CUdeviceptr *ret_address,
                                      size_t *ret_bytes);
/*
 * The same for copies that a replaced library makes by the variable's name (cudaMemcpyToSymbol) and for its size: the
 * program is not told the address. What flyt_copy brings there from the host, waiting for it, is kept where it is a
 * constant, and written again at a server that takes over.
 */
FLYT_API CUresult flyt_library_symbol(CUlibrary library, const char *name, int device, CUdeviceptr *ret_address,
                                      size_t *ret_bytes);
/* cuLibraryGetManaged: of a __managed__ variable, which host and devices have at one address. Either result may be
 * NULL. CUDA_ERROR_NOT_FOUND: none of that name, or another kind of variable. */
FLYT_API CUresult flyt_library_managed(CUlibrary library, const char *name, CUdeviceptr *ret_address,
                                       size_t *ret_bytes);
/* cuLibraryGetModule: the library's view in the current context; the same value every time. */
FLYT_API CUresult flyt_library_module(CUlibrary library, CUmodule *ret_module);

/* cuModuleLoadData(Ex): at once, in the current context. As flyt_library_load, and CUDA_ERROR_INVALID_CONTEXT. */
FLYT_API CUresult flyt_module_load(const void *image, const struct flyt_jit_options *options, CUmodule *ret_module);
FLYT_API CUresult flyt_module_load_file(const char *path, CUmodule *ret_module);
/* CUDA_ERROR_INVALID_HANDLE: unknown; _NOT_PERMITTED: the view of a library. */
FLYT_API CUresult flyt_module_unload(CUmodule module);
FLYT_API CUresult flyt_module_function(CUmodule module, const char *name, CUfunction *ret_function);
FLYT_API CUresult flyt_module_function_count(CUmodule module, unsigned *ret_count);
FLYT_API CUresult flyt_module_functions(CUmodule module, unsigned count, CUfunction *ret_functions);
FLYT_API CUresult flyt_module_global(CUmodule module, const char *name, CUdeviceptr *ret_address, size_t *ret_bytes);
/* cuFuncGetModule: the view in which the kernel was found. */
FLYT_API CUresult flyt_kernel_module(CUfunction function, CUmodule *ret_module);
/* cuKernelGetLibrary. */
FLYT_API CUresult flyt_kernel_library(CUkernel kernel, CUlibrary *ret_library);

#endif
