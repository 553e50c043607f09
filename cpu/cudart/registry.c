#include "cpu/cudart/registry.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"
#include "cpu/cudart/cudart.h"
#include "rpc/base/id.h"
#include "rpc/base/log.h"

/* A managed variable: the program's pointer to it, and its name on the device, the program's own string. */
struct managed {
    struct managed *next;
    void **pointer;
    const char *name;
};

struct flyt_cudart_module {
    struct flyt_cudart_module *next; /* in the registry */
    const void *image;
    struct flyt_cudart_entry *entries; /* kernels and variables */
    struct managed *managed;           /* written while the module is registered */
    _Atomic(bool) is_settled;          /* the program's pointers to managed variables are set */
    _Atomic(char *) refusal;           /* why nothing of it is loaded; owned. NULL: it is */
    pthread_mutex_t mutex;             /* excludes threads that both want to open the library */
    _Atomic(CUlibrary) library;        /* NULL until first used */
};

/* The library's one instance. The mutex covers the list and all writing to the maps and to modules' lists. */
static struct {
    pthread_mutex_t mutex;
    struct flyt_cudart_module *modules;
    struct flyt_address_map kernels, variables;
    _Atomic(bool) has_new_modules;
} registry = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* ---- registering ---- */

struct flyt_cudart_module *flyt_cudart_module_new(const void *image)
{
    struct flyt_cudart_module *module = image ? calloc(1, sizeof(*module)) : NULL;

    if (!module) {
        flyt_fail("fat binary cannot be registered: %s", image ? "out of memory" : "it is NULL");
        return NULL;
    }
    module->image = image;
    pthread_mutex_init(&module->mutex, NULL);
    pthread_mutex_lock(&registry.mutex);
    module->next = registry.modules;
    registry.modules = module;
    pthread_mutex_unlock(&registry.mutex);
    return module;
}

static struct flyt_cudart_module **find_module_locked(const struct flyt_cudart_module *module)
{
    struct flyt_cudart_module **link = &registry.modules;

    while (*link && *link != module)
        link = &(*link)->next;
    return link;
}

/* Takes an entry out of its host address's chain; where it was the one in use, the next takes its place. */
static void hide_entry_locked(struct flyt_cudart_entry *entry)
{
    struct flyt_cudart_entry *other = atomic_load_explicit(&entry->node->value, memory_order_relaxed);

    if (other == entry) {
        atomic_store_explicit(&entry->node->value, entry->later, memory_order_release);
        return;
    }
    while (other && other->later != entry)
        other = other->later;
    if (other)
        other->later = entry->later;
}

/* Makes an entry known under its host address: at the chain's end, so that threads that use the first of it are not
 * disturbed when the later one goes. */
static void show_entry_locked(struct flyt_cudart_entry *entry)
{
    struct flyt_cudart_entry *other = atomic_load_explicit(&entry->node->value, memory_order_relaxed);

    if (!other) {
        /* Pairs with the acquire in entry_of(): whoever finds the entry sees its fields. */
        atomic_store_explicit(&entry->node->value, entry, memory_order_release);
        return;
    }
    while (other->later)
        other = other->later;
    other->later = entry;
}

static void unload(CUlibrary library)
{
    CUresult result = library ? flyt_library_unload(library) : CUDA_SUCCESS;

    /* A lost connection or the end of the process took the library with it. */
    if (result == CUDA_ERROR_INVALID_HANDLE)
        flyt_debug("library of an unregistered module was gone already");
}

void flyt_cudart_module_free(struct flyt_cudart_module *module)
{
    struct flyt_cudart_module **link;
    struct flyt_cudart_entry *entry;
    struct managed *managed;

    pthread_mutex_lock(&registry.mutex);
    link = find_module_locked(module);
    if (!module || !*link) {
        pthread_mutex_unlock(&registry.mutex);
        return;
    }
    *link = module->next;
    for (entry = module->entries; entry; entry = entry->next)
        hide_entry_locked(entry);
    pthread_mutex_unlock(&registry.mutex);

    /* The module's own mutex stays untaken: a forked child gets here too, whose parent's other threads may have held
     * it. */
    unload(atomic_load_explicit(&module->library, memory_order_acquire));
    while ((entry = module->entries)) {
        module->entries = entry->next;
        free(entry);
    }
    while ((managed = module->managed)) {
        module->managed = managed->next;
        free(managed);
    }
    pthread_mutex_destroy(&module->mutex);
    free(atomic_load_explicit(&module->refusal, memory_order_relaxed));
    free(module);
}

/* False: no such module, or out of memory. */
static bool add_entry_locked(struct flyt_address_map *map, struct flyt_cudart_module *module, const void *host_address,
                             const char *name)
{
    struct flyt_address_node *node;
    struct flyt_cudart_entry *entry;

    if (!module || !*find_module_locked(module))
        return false;
    node = flyt_address_map_add(map, host_address);
    entry = node ? calloc(1, sizeof(*entry)) : NULL;
    if (!entry)
        return false;
    entry->module = module;
    entry->is_kernel = map == &registry.kernels;
    entry->name = name;
    entry->node = node;
    entry->next = module->entries;
    module->entries = entry;
    show_entry_locked(entry);
    atomic_store_explicit(&registry.has_new_modules, true, memory_order_relaxed);
    return true;
}

static void add_entry(struct flyt_address_map *map, struct flyt_cudart_module *module, const void *host_address,
                      const char *name)
{
    bool is_added;

    if (!host_address || !name)
        return;
    pthread_mutex_lock(&registry.mutex);
    is_added = add_entry_locked(map, module, host_address, name);
    pthread_mutex_unlock(&registry.mutex);
    if (!is_added)
        flyt_fail("%s cannot be registered: %s", name, module ? "out of memory" : "its fat binary was refused");
}

void flyt_cudart_module_add_kernel(struct flyt_cudart_module *module, const void *host_function, const char *name)
{
    add_entry(&registry.kernels, module, host_function, name);
}

void flyt_cudart_module_add_variable(struct flyt_cudart_module *module, const void *host_variable, const char *name)
{
    add_entry(&registry.variables, module, host_variable, name);
}

void flyt_cudart_module_add_managed(struct flyt_cudart_module *module, void **pointer, const char *name)
{
    struct managed *managed = calloc(1, sizeof(*managed));
    bool is_added;

    if (managed)
        *managed = (struct managed){.pointer = pointer, .name = name};
    pthread_mutex_lock(&registry.mutex);
    is_added = managed && pointer && name && module && *find_module_locked(module);
    if (is_added) {
        managed->next = module->managed;
        module->managed = managed;
    }
    pthread_mutex_unlock(&registry.mutex);
    if (is_added)
        return;
    free(managed);
    flyt_fail("%s cannot be registered: %s", name, module ? "out of memory" : "its fat binary was refused");
}

void flyt_cudart_module_refuse(struct flyt_cudart_module *module, const char *what, const char *name)
{
    char *none = NULL, *reason;

    if (!module)
        return;
    if (asprintf(&reason, "%s %s is not supported", what, name ? name : "without a name") < 0) {
        flyt_fail("%s cannot be registered: out of memory", what);
        return;
    }
    if (!atomic_compare_exchange_strong(&module->refusal, &none, reason))
        free(reason);
}

/* ---- loading ---- */

/* The module's library, opened at the first question. Nothing of it is loaded by that. */
static cudaError_t module_library(struct flyt_cudart_module *module, CUlibrary *ret_library)
{
    const char *refusal = atomic_load_explicit(&module->refusal, memory_order_acquire);
    CUlibrary library = atomic_load_explicit(&module->library, memory_order_acquire);
    CUresult result = CUDA_SUCCESS;

    if (refusal)
        return flyt_cudart_error(flyt_module_refuse(refusal));
    if (!library) {
        pthread_mutex_lock(&module->mutex);
        library = atomic_load_explicit(&module->library, memory_order_relaxed);
        if (!library) {
            result = flyt_library_open_lazy(module->image, &library);
            if (result == CUDA_SUCCESS)
                atomic_store_explicit(&module->library, library, memory_order_release);
        }
        pthread_mutex_unlock(&module->mutex);
    }
    if (result == CUDA_SUCCESS)
        *ret_library = library;
    return flyt_cudart_error(result);
}

/* Where the program's managed variables are. One that the image lacks, because no kernel uses it, stays unset. */
static CUresult point_to_managed_locked(const struct flyt_cudart_module *module, CUlibrary library,
                                        const char **ret_name)
{
    CUresult result = CUDA_SUCCESS;

    for (const struct managed *one = module->managed; one && result == CUDA_SUCCESS; one = one->next) {
        CUdeviceptr address = 0;
        size_t bytes;
        int device;

        *ret_name = one->name;
        result = flyt_cudart_device(&device);
        if (result == CUDA_SUCCESS)
            result = flyt_library_global(library, one->name, device, &address, &bytes);
        if (result == CUDA_SUCCESS)
            *one->pointer = (void *)(uintptr_t)address;
        else if (result == CUDA_ERROR_NOT_FOUND)
            result = CUDA_SUCCESS;
    }
    return result;
}

/* Before anything of the module is used: from the first kernel on the host can have its managed variables. Where it
 * cannot (the address is the program's own already: that is said) nothing of the module is used. */
static cudaError_t settle_managed(struct flyt_cudart_module *module, CUlibrary library)
{
    const char *name = NULL;
    CUresult result = CUDA_SUCCESS;

    if (!module->managed || atomic_load_explicit(&module->is_settled, memory_order_acquire))
        return cudaSuccess;
    pthread_mutex_lock(&module->mutex);
    if (!module->is_settled)
        result = point_to_managed_locked(module, library, &name);
    if (result == CUDA_SUCCESS)
        atomic_store_explicit(&module->is_settled, true, memory_order_release);
    pthread_mutex_unlock(&module->mutex);
    if (result == CUDA_ERROR_MAP_FAILED)
        flyt_cudart_module_refuse(module, "managed variable", name);
    return flyt_cudart_error(result);
}

cudaError_t flyt_cudart_module_load(struct flyt_cudart_module *module)
{
    CUlibrary library;
    cudaError_t error;
    bool is_known;

    pthread_mutex_lock(&registry.mutex);
    is_known = module && *find_module_locked(module);
    pthread_mutex_unlock(&registry.mutex);
    if (!is_known)
        return cudaErrorInvalidValue;
    error = module->managed ? flyt_cudart_error(flyt_cudart_enter()) : cudaSuccess;
    if (error == cudaSuccess)
        error = module_library(module, &library);
    if (error == cudaSuccess)
        error = flyt_cudart_error(flyt_library_ensure(library));
    return error == cudaSuccess ? settle_managed(module, library) : error;
}

static cudaError_t load_kernel(struct flyt_cudart_entry *entry, CUfunction *ret_function)
{
    CUlibrary library;
    CUkernel kernel;
    CUresult result;
    cudaError_t error = module_library(entry->module, &library);

    if (error == cudaSuccess)
        error = settle_managed(entry->module, library);
    if (error != cudaSuccess)
        return error;
    result = flyt_library_kernel(library, entry->name, &kernel);
    if (result == CUDA_ERROR_NOT_FOUND)
        return cudaErrorInvalidDeviceFunction;
    if (result != CUDA_SUCCESS)
        return flyt_cudart_error(result);
    *ret_function = (CUfunction)kernel;
    atomic_store_explicit(&entry->function, *ret_function, memory_order_relaxed);
    return cudaSuccess;
}

/* ---- loading ahead of use ---- */

bool flyt_cudart_has_new_modules(void)
{
    return atomic_load_explicit(&registry.has_new_modules, memory_order_relaxed);
}

static void load_kernels(const struct flyt_cudart_module *module)
{
    for (struct flyt_cudart_entry *entry = module->entries; entry; entry = entry->next) {
        CUfunction function;
        int threads;

        /* What fails here fails again at the launch, whose caller wants to know. */
        if (entry->is_kernel && load_kernel(entry, &function) == cudaSuccess)
            flyt_kernel_attribute(function, -1, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &threads);
    }
}

void flyt_cudart_settle_modules(void)
{
    const char *mode = getenv("CUDA_MODULE_LOADING");

    if (!atomic_exchange(&registry.has_new_modules, false) || !mode || strcmp(mode, "EAGER") != 0)
        return;
    /* The lock keeps the modules; a library that is opened or closed meanwhile waits. */
    pthread_mutex_lock(&registry.mutex);
    for (const struct flyt_cudart_module *module = registry.modules; module; module = module->next) {
        if (!atomic_load_explicit(&module->library, memory_order_relaxed))
            load_kernels(module);
    }
    pthread_mutex_unlock(&registry.mutex);
}

/* ---- looking up ---- */

static struct flyt_cudart_entry *entry_of(struct flyt_address_node *node)
{
    return node ? atomic_load_explicit(&node->value, memory_order_acquire) : NULL;
}

static cudaError_t entry_kernel(struct flyt_cudart_entry *entry, CUfunction *ret_function)
{
    CUfunction function;

    if (__builtin_expect(!entry, 0))
        return cudaErrorInvalidDeviceFunction;
    function = atomic_load_explicit(&entry->function, memory_order_relaxed);
    if (__builtin_expect(!function, 0))
        return load_kernel(entry, ret_function);
    *ret_function = function;
    return cudaSuccess;
}

cudaError_t flyt_cudart_kernel(const void *function, CUfunction *ret_function)
{
    struct flyt_cudart_entry *entry = entry_of(flyt_address_map_find(&registry.kernels, function));

    if (__builtin_expect(entry != NULL, 1))
        return entry_kernel(entry, ret_function);
    if (flyt_id_type((uint64_t)(uintptr_t)function) != FLYT_ID_KERNEL)
        return function ? cudaErrorInvalidResourceHandle : cudaErrorInvalidDeviceFunction;
    *ret_function = (CUfunction)(uintptr_t)function;
    return cudaSuccess;
}

cudaError_t flyt_cudart_enter_kernel(const void *function, CUfunction *ret_function)
{
    CUresult result = flyt_cudart_enter();

    return __builtin_expect(result != CUDA_SUCCESS, 0) ? flyt_cudart_error(result)
                                                       : flyt_cudart_kernel(function, ret_function);
}

struct flyt_address_node *flyt_cudart_kernel_node(const void *host_function)
{
    return flyt_address_map_find(&registry.kernels, host_function);
}

cudaError_t flyt_cudart_node_kernel(const void *handle, CUfunction *ret_function)
{
    /* No pointer of the program has the type's bits set. */
    if (flyt_id_type((uint64_t)(uintptr_t)handle) == FLYT_ID_KERNEL) {
        *ret_function = (CUfunction)(uintptr_t)handle;
        return cudaSuccess;
    }
    return entry_kernel(entry_of((struct flyt_address_node *)(uintptr_t)handle), ret_function);
}

const void *flyt_cudart_node_symbol(const void *handle)
{
    if (flyt_id_type((uint64_t)(uintptr_t)handle) == FLYT_ID_KERNEL)
        return handle;
    return ((const struct flyt_address_node *)handle)->key;
}

/* A managed variable's symbol is the variable itself. */
static cudaError_t find_managed(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    struct flyt_pointer pointer;

    if (flyt_pointer_find(symbol, &pointer) != CUDA_SUCCESS || !pointer.is_managed || !pointer.is_variable ||
        pointer.base != (uintptr_t)symbol)
        return cudaErrorInvalidSymbol;
    *ret_address = pointer.base;
    *ret_bytes = pointer.bytes;
    return cudaSuccess;
}

/* `ask` is one of the core's two questions about a variable. */
static cudaError_t find_variable(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes,
                                 CUresult (*ask)(CUlibrary, const char *, int, CUdeviceptr *, size_t *))
{
    struct flyt_cudart_entry *entry = entry_of(flyt_address_map_find(&registry.variables, symbol));
    CUlibrary library;
    CUresult result;
    cudaError_t error;
    int device;

    if (!entry)
        return find_managed(symbol, ret_address, ret_bytes);
    error = module_library(entry->module, &library);
    if (error != cudaSuccess)
        return error;
    result = flyt_cudart_device(&device);
    if (result == CUDA_SUCCESS)
        result = ask(library, entry->name, device, ret_address, ret_bytes);
    return result == CUDA_ERROR_NOT_FOUND ? cudaErrorInvalidSymbol : flyt_cudart_error(result);
}

cudaError_t flyt_cudart_variable(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    return find_variable(symbol, ret_address, ret_bytes, flyt_library_global);
}

cudaError_t flyt_cudart_variable_for_copies(const void *symbol, CUdeviceptr *ret_address, size_t *ret_bytes)
{
    return find_variable(symbol, ret_address, ret_bytes, flyt_library_symbol);
}
