#include "cpu/softgpu/driver/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/softgpu/driver/queue.h"

/* ---- logs ---- */

void flyt_soft_log_init(struct flyt_soft_log *log, CUjit_option *options, void **values, unsigned option_count)
{
    *log = (struct flyt_soft_log){0};
    for (unsigned i = 0; options && values && i < option_count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
            log->error.text = values[i];
        else if (options[i] == CU_JIT_INFO_LOG_BUFFER)
            log->info.text = values[i];
        else if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
            log->error.size_value = &values[i];
        else if (options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES)
            log->info.size_value = &values[i];
    }
    log->error.room_bytes = log->error.size_value ? (unsigned)(uintptr_t)*log->error.size_value : 0;
    log->info.room_bytes = log->info.size_value ? (unsigned)(uintptr_t)*log->info.size_value : 0;
}

static void write_part(const struct flyt_soft_log_part *part, const char *text)
{
    size_t bytes = strlen(text);

    if (!part->size_value)
        return;
    if (!part->text || !part->room_bytes)
        bytes = 0;
    else if (bytes >= part->room_bytes)
        bytes = part->room_bytes - 1;
    if (part->text && part->room_bytes) {
        memcpy(part->text, text, bytes);
        part->text[bytes] = 0;
    }
    *part->size_value = (void *)(uintptr_t)bytes;
}

void flyt_soft_log_write(const struct flyt_soft_log *log, const struct flyt_ptx_diag *diag)
{
    write_part(&log->info, "");
    write_part(&log->error, diag->text);
}

unsigned flyt_soft_max_registers(const CUjit_option *options, void *const *values, unsigned option_count)
{
    for (unsigned i = 0; options && values && i < option_count; i++)
        if (options[i] == CU_JIT_MAX_REGISTERS)
            return (unsigned)(uintptr_t)values[i];
    return 0;
}

/* ---- modules ---- */

/* Gives the layout's block memory of the device, and each variable its address there. */
static CUresult module_fill(struct CUmod_st *module, const struct flyt_soft_layout *layout)
{
    unsigned count = flyt_ptx_module_variable_count(module->ptx);
    CUresult r;

    if (layout->total_bytes > module->device->map.total_bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->addresses = calloc(count + 1, sizeof(*module->addresses));
    /* What is asked about a kernel on another device has it loaded there, where no context may have been made. */
    if (!module->addresses || flyt_soft_map_open(module->device) < 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    r = flyt_soft_pool_alloc(&module->device->map.globals, layout->total_bytes ? layout->total_bytes : 1, layout->align,
                             NULL, &module->block);
    if (r != CUDA_SUCCESS)
        return r;
    for (unsigned i = 0; i < count; i++) {
        enum flyt_soft_section section = flyt_soft_section_of(flyt_ptx_module_variable(module->ptx, i));

        module->addresses[i] = module->block + layout->starts[section] + layout->offsets[i];
    }
    return CUDA_SUCCESS;
}

/* Code, constants and variables lie in one block of the device's memory, as machine code has them (elf.h). */
static CUresult module_place(struct CUmod_st *module, const struct flyt_soft_image *image, struct flyt_ptx_diag *diag)
{
    struct flyt_soft_layout layout;
    CUresult r;

    r = flyt_soft_layout_init(&layout, module->ptx, image->ptx_bytes);
    if (r == CUDA_SUCCESS && image->has_layout && !flyt_soft_layout_is_same(&layout, &image->layout)) {
        snprintf(diag->text, sizeof(diag->text), "the sections of the machine code are not what it takes");
        r = CUDA_ERROR_INVALID_IMAGE;
    }
    if (r == CUDA_SUCCESS)
        r = module_fill(module, &layout);
    flyt_soft_layout_fini(&layout);
    return r;
}

static struct CUmod_st *module_free(struct CUmod_st *module)
{
    module->kind = FLYT_SOFT_DEAD;
    if (module->ptx)
        flyt_ptx_module_free(module->ptx);
    if (module->block)
        (void)flyt_soft_pool_free(&module->device->map.globals, module->block);
    free(module->addresses);
    free(module->functions);
    free(module);
    return NULL;
}

static CUresult module_functions_make(struct CUmod_st *module)
{
    unsigned count = flyt_ptx_module_kernel_count(module->ptx);

    module->functions = calloc(count ? count : 1, sizeof(*module->functions));
    if (!module->functions)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->function_count = count;
    for (unsigned i = 0; i < count; i++) {
        struct CUfunc_st *function = &module->functions[i];

        function->kind = FLYT_SOFT_FUNCTION;
        function->module = module;
        function->index = i;
        function->info = flyt_ptx_module_kernel(module->ptx, i);
        if (function->info->static_shared_bytes < FLYT_SOFT_SHARED_DEFAULT_BYTES)
            function->max_dynamic_shared_bytes =
                FLYT_SOFT_SHARED_DEFAULT_BYTES - (int)function->info->static_shared_bytes;
        function->carveout_pct = CU_SHAREDMEM_CARVEOUT_DEFAULT;
    }
    return CUDA_SUCCESS;
}

static CUresult module_new(struct flyt_soft_device *device, const struct flyt_soft_image *image,
                           struct flyt_ptx_diag *diag, struct CUmod_st **ret_module)
{
    struct flyt_ptx_target target = {.major = device->arch.major,
                                     .minor = device->arch.minor,
                                     .max_registers = image->has_layout ? 0 : image->max_registers};
    struct CUmod_st *module = calloc(1, sizeof(*module));
    CUresult r;

    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->kind = FLYT_SOFT_MODULE;
    atomic_init(&module->refs, 1);
    module->device = device;
    r = flyt_soft_units_compile(image->ptx, image->ptx_bytes, &target, diag, &module->ptx);
    if (r == CUDA_SUCCESS)
        r = module_place(module, image, diag);
    if (r == CUDA_SUCCESS)
        r = flyt_ptx_module_link(module->ptx, module->addresses, diag);
    if (r == CUDA_SUCCESS)
        r = module_functions_make(module);
    if (r != CUDA_SUCCESS) {
        module_free(module);
        return r;
    }
    *ret_module = module;
    return CUDA_SUCCESS;
}

void flyt_soft_module_ref(struct CUmod_st *module)
{
    atomic_fetch_add(&module->refs, 1);
}

void flyt_soft_module_unref(struct CUmod_st *module)
{
    if (module && atomic_fetch_sub(&module->refs, 1) == 1)
        module_free(module);
}

static CUresult image_read(const void *image, const struct flyt_soft_device *device, struct flyt_ptx_diag *diag,
                           struct flyt_soft_image *ret_image)
{
    CUresult r = flyt_soft_image_read(image, &device->arch, ret_image);

    if (r == CUDA_ERROR_NO_BINARY_FOR_GPU)
        snprintf(diag->text, sizeof(diag->text), "machine code only, no PTX for this device");
    else if (r == CUDA_ERROR_INVALID_IMAGE)
        snprintf(diag->text, sizeof(diag->text), "neither PTX nor a fat binary, or damaged");
    return r;
}

FLYT_SOFT_API cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options,
                                 void **optionValues)
{
    struct flyt_ptx_diag diag = {{0}};
    struct flyt_soft_log log;
    struct CUctx_st *ctx;
    struct flyt_soft_image read;
    CUresult r = flyt_soft_enter(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!module)
        return CUDA_ERROR_INVALID_VALUE;
    if (flyt_soft_coredump_is_broken(&ctx->coredump))
        return CUDA_ERROR_UNKNOWN;
    r = image_read(image, ctx->device, &diag, &read);
    if (r == CUDA_SUCCESS) {
        read.max_registers = flyt_soft_max_registers(options, optionValues, numOptions);
        flyt_soft_print_flush(ctx->device);
        r = module_new(ctx->device, &read, &diag, module);
        free(read.ptx);
    }
    flyt_soft_log_init(&log, options, optionValues, numOptions);
    flyt_soft_log_write(&log, &diag);
    return r;
}

FLYT_SOFT_API cuModuleLoadData(CUmodule *module, const void *image)
{
    return cuModuleLoadDataEx(module, image, 0, NULL, NULL);
}

/* The current context and a check of the module's handle. */
static CUresult enter_module(CUmodule module, struct CUctx_st **ret_ctx)
{
    CUresult r = flyt_soft_enter(ret_ctx);

    if (r != CUDA_SUCCESS)
        return r;
    return flyt_soft_is(module, FLYT_SOFT_MODULE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FLYT_SOFT_API cuModuleUnload(CUmodule hmod)
{
    struct CUctx_st *ctx;
    CUresult r = flyt_soft_enter_broken(&ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!flyt_soft_is(hmod, FLYT_SOFT_MODULE))
        return CUDA_ERROR_INVALID_HANDLE;
    if (hmod->is_of_library)
        return CUDA_ERROR_INVALID_HANDLE;
    flyt_soft_device_drain(ctx->device);
    flyt_soft_print_flush(ctx->device);
    flyt_soft_module_unref(hmod);
    return flyt_soft_leave(ctx, CUDA_SUCCESS);
}

static CUresult function_by_name(struct CUmod_st *module, const char *name, struct CUfunc_st **ret_function)
{
    for (unsigned i = 0; i < module->function_count; i++) {
        if (!strcmp(module->functions[i].info->name, name)) {
            *ret_function = &module->functions[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

/* nvcc leaves variables of whole programs without .visible, and the host still finds them: all names count. */
/* is_managed: no other. */
static CUresult global_by_name(const struct CUmod_st *module, const char *name, bool is_managed, CUdeviceptr *dptr,
                               size_t *bytes)
{
    for (unsigned i = 0; i < flyt_ptx_module_variable_count(module->ptx); i++) {
        const struct flyt_ptx_variable *variable = flyt_ptx_module_variable(module->ptx, i);

        if (strcmp(variable->name, name) || (is_managed && !variable->is_managed))
            continue;
        if (dptr)
            *dptr = module->addresses[i];
        if (bytes)
            *bytes = variable->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

FLYT_SOFT_API cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    struct CUctx_st *ctx;
    CUresult r = enter_module(hmod, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    return hfunc && name ? function_by_name(hmod, name, hfunc) : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    struct CUctx_st *ctx;
    CUresult r = enter_module(mod, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = mod->function_count;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    struct CUctx_st *ctx;
    CUresult r = enter_module(mod, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    if (!functions)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numFunctions && i < mod->function_count; i++)
        functions[i] = &mod->functions[i];
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuModuleGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    struct CUctx_st *ctx;
    CUresult r = enter_module(hmod, &ctx);

    if (r != CUDA_SUCCESS)
        return r;
    return name ? global_by_name(hmod, name, false, dptr, bytes) : CUDA_ERROR_INVALID_VALUE;
}

FLYT_SOFT_API cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!mode)
        return CUDA_ERROR_INVALID_VALUE;
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

/* ---- libraries ---- */

static CUresult library_module_locked(struct CUlib_st *library, struct flyt_soft_device *device,
                                      struct flyt_ptx_diag *diag, struct CUmod_st **ret_module)
{
    struct CUmod_st **place = &library->modules[device->index];
    CUresult r = CUDA_SUCCESS;

    if (!*place) {
        r = module_new(device, &library->image, diag, place);
        if (r != CUDA_SUCCESS)
            return r;
        (*place)->is_of_library = true;
    }
    *ret_module = *place;
    for (unsigned i = 0; library->kernels && i < (*place)->function_count; i++)
        (*place)->functions[i].kernel = &library->kernels[i];
    return CUDA_SUCCESS;
}

CUresult flyt_soft_library_module(struct CUlib_st *library, struct flyt_soft_device *device,
                                  struct CUmod_st **ret_module)
{
    struct flyt_ptx_diag diag = {{0}};
    CUresult r;

    pthread_mutex_lock(&library->mutex);
    r = library_module_locked(library, device, &diag, ret_module);
    pthread_mutex_unlock(&library->mutex);
    return r;
}

static void library_free(struct CUlib_st *library)
{
    library->kind = FLYT_SOFT_DEAD;
    for (unsigned i = 0; i < FLYT_SOFT_DEVICES_MAX; i++)
        flyt_soft_module_unref(library->modules[i]);
    pthread_mutex_destroy(&library->mutex);
    free(library->kernels);
    free(library->image.ptx);
    free(library);
}

/* Compiles for the current device, or the first one, so that an image that cannot be used is refused at once. */
static CUresult library_fill(struct CUlib_st *library, struct flyt_soft_device *device, struct flyt_ptx_diag *diag)
{
    struct CUmod_st *module;
    CUresult r = library_module_locked(library, device, diag, &module);

    if (r != CUDA_SUCCESS)
        return r;
    library->kernels = calloc(module->function_count ? module->function_count : 1, sizeof(*library->kernels));
    if (!library->kernels)
        return CUDA_ERROR_OUT_OF_MEMORY;
    library->kernel_count = module->function_count;
    for (unsigned i = 0; i < library->kernel_count; i++) {
        library->kernels[i] = (struct CUkern_st){
            .kind = FLYT_SOFT_KERNEL, .library = library, .index = i, .name = module->functions[i].info->name};
        module->functions[i].kernel = &library->kernels[i];
    }
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions, void **jitOptionsValues,
                                unsigned int numJitOptions, CUlibraryOption *libraryOptions, void **libraryOptionValues,
                                unsigned int numLibraryOptions)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct flyt_soft_device *device;
    struct flyt_ptx_diag diag = {{0}};
    struct flyt_soft_log log;
    struct CUlib_st *made;
    struct CUctx_st *ctx = NULL;
    CUresult r;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!library)
        return CUDA_ERROR_INVALID_VALUE;
    device = flyt_soft_enter_broken(&ctx) == CUDA_SUCCESS ? ctx->device : &driver->devices[0];
    r = atomic_load(&device->sticky);
    if (r == CUDA_SUCCESS && ctx && flyt_soft_coredump_is_broken(&ctx->coredump))
        r = CUDA_ERROR_UNKNOWN;
    if (r != CUDA_SUCCESS)
        return r;
    made = calloc(1, sizeof(*made));
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->kind = FLYT_SOFT_LIBRARY;
    pthread_mutex_init(&made->mutex, NULL);
    r = image_read(code, device, &diag, &made->image);
    made->image.max_registers = flyt_soft_max_registers(jitOptions, jitOptionsValues, numJitOptions);
    if (r == CUDA_SUCCESS)
        r = library_fill(made, device, &diag);
    flyt_soft_log_init(&log, jitOptions, jitOptionsValues, numJitOptions);
    flyt_soft_log_write(&log, &diag);
    if (r != CUDA_SUCCESS) {
        library_free(made);
        return r;
    }
    *library = made;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLibraryUnload(CUlibrary library)
{
    struct flyt_soft_driver *driver = flyt_soft_driver();
    struct CUctx_st *ctx;

    if (!driver)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (!flyt_soft_is(library, FLYT_SOFT_LIBRARY))
        return CUDA_ERROR_INVALID_HANDLE;
    /* What still runs holds its module; where a context is current its device is waited for, as for a module. */
    if (flyt_soft_enter_broken(&ctx) == CUDA_SUCCESS)
        flyt_soft_device_drain(ctx->device);
    library_free(library);
    return CUDA_SUCCESS;
}

static CUresult library_check(CUlibrary library)
{
    if (!flyt_soft_driver())
        return CUDA_ERROR_NOT_INITIALIZED;
    return flyt_soft_is(library, FLYT_SOFT_LIBRARY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

FLYT_SOFT_API cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    CUresult r = library_check(library);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pKernel || !name)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < library->kernel_count; i++) {
        if (!strcmp(library->kernels[i].name, name)) {
            *pKernel = &library->kernels[i];
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_NOT_FOUND;
}

FLYT_SOFT_API cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    CUresult r = library_check(lib);

    if (r != CUDA_SUCCESS)
        return r;
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    *count = lib->kernel_count;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    CUresult r = library_check(lib);

    if (r != CUDA_SUCCESS)
        return r;
    if (!kernels)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < numKernels && i < lib->kernel_count; i++)
        kernels[i] = &lib->kernels[i];
    return CUDA_SUCCESS;
}

/* The library's module on the current context's device. */
static CUresult current_module(CUlibrary library, struct CUmod_st **ret_module)
{
    struct CUctx_st *ctx;
    CUresult r = library_check(library);

    if (r == CUDA_SUCCESS)
        r = flyt_soft_enter(&ctx);
    return r == CUDA_SUCCESS ? flyt_soft_library_module(library, ctx->device, ret_module) : r;
}

FLYT_SOFT_API cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    struct CUmod_st *module;
    CUresult r = current_module(library, &module);

    if (r != CUDA_SUCCESS)
        return r;
    if (!pMod)
        return CUDA_ERROR_INVALID_VALUE;
    *pMod = module;
    return CUDA_SUCCESS;
}

FLYT_SOFT_API cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    struct CUmod_st *module;
    CUresult r = current_module(library, &module);

    if (r != CUDA_SUCCESS)
        return r;
    return name ? global_by_name(module, name, false, dptr, bytes) : CUDA_ERROR_INVALID_VALUE;
}

/* A managed variable lies where the device's others do: all of that is memory of this process, which the host reaches.
 */
FLYT_SOFT_API cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    struct CUmod_st *module;
    CUresult r = current_module(library, &module);

    if (r != CUDA_SUCCESS)
        return r;
    return name ? global_by_name(module, name, true, dptr, bytes) : CUDA_ERROR_INVALID_VALUE;
}
