/*
 * The modules of the program: what nvcc's generated code has registered, and the way from a host address to a kernel or
 * a variable on the device.
 *
 * Registering only records. A module's image is opened, sent and loaded when something of it is first used. Functions
 * of this file may be called from any thread, at any time: before main, from libraries that are opened late, while
 * others launch. A launch looks its kernel up without a lock.
 *
 * What a program must keep, as with NVIDIA's runtime: strings and images that it registers stay where they are until
 * the module is unregistered, and nothing of a module is used while it is being unregistered.
 */
#ifndef FLYT_CUDART_REGISTRY_H
#define FLYT_CUDART_REGISTRY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <cuda.h>
#include <driver_types.h>

#include "cpu/cudart/address_map.h"

struct flyt_cudart_module;

/* A kernel, or a variable, as it was registered. */
struct flyt_cudart_entry {
    struct flyt_cudart_module *module;
    const char *name;                /* on the device; the program's own string */
    struct flyt_address_node *node;  /* of the host address */
    struct flyt_cudart_entry *later; /* registered later for the same host address: takes this one's place */
    struct flyt_cudart_entry *next;  /* in the module */
    bool is_kernel;
    _Atomic(CUfunction) function; /* kernels: NULL until first used */
};

/* __cudaRegisterFatBinary. `image` is nvcc's wrapper or a fat binary. NULL: out of memory. */
struct flyt_cudart_module *flyt_cudart_module_new(const void *image);

/* __cudaUnregisterFatBinary: its host addresses are unknown again and its library is unloaded, if it was ever loaded.
 * Ignores what is no module (NULL, or freed already). */
void flyt_cudart_module_free(struct flyt_cudart_module *module);

/* Record a kernel, a variable. A failure (no memory, no such module) is logged and leaves the host address unknown. */
void flyt_cudart_module_add_kernel(struct flyt_cudart_module *module, const void *host_function, const char *name);
void flyt_cudart_module_add_variable(struct flyt_cudart_module *module, const void *host_variable, const char *name);

/* Records a managed variable: *pointer will be its address, before a kernel of the module runs. The failures of the
 * others. */
void flyt_cudart_module_add_managed(struct flyt_cudart_module *module, void **pointer, const char *name);

/* The module contains something that Flyt does not have: whatever of it is used first, and later, is refused with
 * CUDA_ERROR_NOT_SUPPORTED, and "WHAT NAME is not supported" is said. Only the first such thing counts. */
void flyt_cudart_module_refuse(struct flyt_cudart_module *module, const char *what, const char *name);

/*
 * The kernel of a host function, or of a handle: `function` may also be a cudaKernel_t or cudaFunction_t. Loads its
 * module where that has not happened. cudaErrorInvalidResourceHandle: neither; cudaErrorInvalidDeviceFunction: NULL, or
 * the module's image has no kernel of that name; else the loader's error.
 */
cudaError_t flyt_cudart_kernel(const void *function, CUfunction *ret_function);

/* flyt_cudart_enter, then the kernel: how every call that names a kernel begins. */
cudaError_t flyt_cudart_enter_kernel(const void *function, CUfunction *ret_function);

/*
 * What __cudaGetKernel gives to nvcc's launch stubs, which ask once and keep it for ever: the node of the host
 * function's address, which stays valid whatever is unregistered. NULL: never registered.
 */
struct flyt_address_node *flyt_cudart_kernel_node(const void *host_function);

/* The kernel of such a node, or of a cudaKernel_t. cudaErrorInvalidDeviceFunction: NULL, or nothing is registered there
 * any more; else as flyt_cudart_kernel. */
cudaError_t flyt_cudart_node_kernel(const void *handle, CUfunction *ret_function);

/* What the program calls the kernel of such a node: its host function's address, or the cudaKernel_t itself. */
const void *flyt_cudart_node_symbol(const void *handle);

/* A variable's address and size on the device of the current context. Loads its module. cudaErrorInvalidSymbol: not
 * registered, or not in the image. */
cudaError_t flyt_cudart_variable(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes);

/* The same where the program is not told the address (flyt_library_symbol). */
cudaError_t flyt_cudart_variable_for_copies(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes);

/* Whether kernels or variables were registered since flyt_cudart_settle_modules. */
bool flyt_cudart_has_new_modules(void);

/*
 * Where the program asks for it by CUDA's own variable (CUDA_MODULE_LOADING=EAGER), loads the new modules and asks for
 * their kernels' attributes, so that no first launch has to wait for that behind other work. Needs a current context.
 * What cannot be loaded is told when it is used.
 */
void flyt_cudart_settle_modules(void);

/* Loads the module now (__cudaInitModule). cudaErrorInvalidValue: not a module. */
cudaError_t flyt_cudart_module_load(struct flyt_cudart_module *module);

#endif
