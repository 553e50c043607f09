/*
 * Registered modules: late registration, several modules with the same host address, unregistering, refusal, and
 * launches' lookups meanwhile. The core is replaced by the few functions below.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/module.h"
#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"
#include "rpc/base/id.h"

/* ---- the core ---- */

static struct {
    _Atomic(unsigned) opened_count, unloaded_count, asked_count, refused_count, attributes_count;
    CUresult load_result;        /* what asking for a kernel or a variable answers */
    CUresult place_result;       /* what asking for a variable that is there answers */
    struct flyt_pointer pointer; /* what is known of every address */
} core;

static const void *image_of(CUlibrary library)
{
    return (const void *)library;
}

CUresult flyt_library_open_lazy(const void *image, CUlibrary *ret_library)
{
    core.opened_count++;
    *ret_library = (CUlibrary)(uintptr_t)image;
    return CUDA_SUCCESS;
}

CUresult flyt_library_ensure(CUlibrary library)
{
    return core.load_result;
}

CUresult flyt_library_unload(CUlibrary library)
{
    core.unloaded_count++;
    return CUDA_SUCCESS;
}

/* An image is a string here, and names the kernels in it: a kernel's handle tells where its name is in the image. */
CUresult flyt_library_kernel(CUlibrary library, const char *name, CUkernel *ret_kernel)
{
    const char *place = strstr(image_of(library), name);

    core.asked_count++;
    if (core.load_result != CUDA_SUCCESS)
        return core.load_result;
    if (!place)
        return CUDA_ERROR_NOT_FOUND;
    *ret_kernel = (CUkernel)(uintptr_t)flyt_id(FLYT_ID_KERNEL, (uintptr_t)place);
    return CUDA_SUCCESS;
}

CUresult flyt_library_symbol(CUlibrary library, const char *name, int device, CUdeviceptr *ret_address,
                             size_t *ret_bytes)
{
    return flyt_library_global(library, name, device, ret_address, ret_bytes);
}

CUresult flyt_library_global(CUlibrary library, const char *name, int device, CUdeviceptr *ret_address,
                             size_t *ret_bytes)
{
    const char *place = strstr(image_of(library), name);

    if (!place)
        return CUDA_ERROR_NOT_FOUND;
    *ret_address = (uintptr_t)place;
    *ret_bytes = strlen(name);
    return core.place_result;
}

CUresult flyt_pointer_find(const void *address, struct flyt_pointer *ret_pointer)
{
    *ret_pointer = core.pointer;
    return CUDA_SUCCESS;
}

CUresult flyt_kernel_attribute(CUfunction function, int device, CUfunction_attribute attribute, int *ret_value)
{
    core.attributes_count++;
    return CUDA_SUCCESS;
}

CUresult flyt_not_supported(const char *name)
{
    fail_msg("%s is refused", name);
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult flyt_module_refuse(const char *reason)
{
    assert_string_equal(reason, "managed variable beta is not supported");
    core.refused_count++;
    return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult flyt_cudart_enter(void)
{
    return CUDA_SUCCESS;
}

CUresult flyt_cudart_device(int *ret_device)
{
    *ret_device = 0;
    return CUDA_SUCCESS;
}

/* What error.c asks of it; nothing is pending. */
bool flyt_client_is_initialized(void)
{
    return false;
}

CUresult flyt_client_enter(void)
{
    return CUDA_SUCCESS;
}

/* ---- tests ---- */

static const char first_image[] = "first alpha beta";
static const char second_image[] = "second beta gamma";

static CUfunction function_in(const char *image, const char *name)
{
    return (CUfunction)(uintptr_t)flyt_id(FLYT_ID_KERNEL, (uintptr_t)strstr(image, name));
}

static int reset(void **state)
{
    memset(&core, 0, sizeof(core));
    return 0;
}

static void test_nothing_before_use(void **state)
{
    static const int host;
    struct flyt_cudart_module *module = flyt_cudart_module_new(first_image);
    CUfunction function = NULL;

    assert_non_null(module);
    flyt_cudart_module_add_kernel(module, &host, "alpha");
    assert_int_equal(core.opened_count, 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(flyt_cudart_kernel(&host, &function), cudaSuccess);
        assert_ptr_equal(function, function_in(first_image, "alpha"));
    }
    assert_int_equal(core.opened_count, 1);
    assert_int_equal(core.asked_count, 1);
    flyt_cudart_module_free(module);
    assert_int_equal(core.unloaded_count, 1);
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaErrorInvalidResourceHandle);
}

static void test_never_used(void **state)
{
    static const int host;
    struct flyt_cudart_module *module = flyt_cudart_module_new(first_image);

    flyt_cudart_module_add_kernel(module, &host, "alpha");
    flyt_cudart_module_free(module);
    assert_int_equal(core.unloaded_count, 0);
    flyt_cudart_module_free(module);
    flyt_cudart_module_free(NULL);
}

/* A template instantiated in two libraries has one host address: each library may go first. */
static void test_same_address(void **state)
{
    for (int order = 0; order < 2; order++) {
        static const int host;
        struct flyt_cudart_module *first = flyt_cudart_module_new(first_image);
        struct flyt_cudart_module *second = flyt_cudart_module_new(second_image);
        struct flyt_address_node *node;
        CUfunction function;

        flyt_cudart_module_add_kernel(first, &host, "beta");
        flyt_cudart_module_add_kernel(second, &host, "beta");
        node = flyt_cudart_kernel_node(&host);
        assert_int_equal(flyt_cudart_node_kernel(node, &function), cudaSuccess);
        flyt_cudart_module_free(order ? first : second);
        assert_int_equal(flyt_cudart_node_kernel(node, &function), cudaSuccess);
        assert_ptr_equal(function, function_in(order ? second_image : first_image, "beta"));
        flyt_cudart_module_free(order ? second : first);
        assert_int_equal(flyt_cudart_node_kernel(node, &function), cudaErrorInvalidDeviceFunction);
        /* A library that is opened later at the same place is found by what an old stub has kept. */
        first = flyt_cudart_module_new(second_image);
        flyt_cudart_module_add_kernel(first, &host, "gamma");
        assert_int_equal(flyt_cudart_node_kernel(node, &function), cudaSuccess);
        assert_ptr_equal(function, function_in(second_image, "gamma"));
        flyt_cudart_module_free(first);
    }
}

static void test_handles(void **state)
{
    CUfunction kernel = (CUfunction)(uintptr_t)flyt_id(FLYT_ID_KERNEL, 77), function = NULL;

    assert_int_equal(flyt_cudart_kernel(kernel, &function), cudaSuccess);
    assert_ptr_equal(function, kernel);
    assert_int_equal(flyt_cudart_node_kernel(kernel, &function), cudaSuccess);
    assert_ptr_equal(function, kernel);
    assert_int_equal(flyt_cudart_kernel(NULL, &function), cudaErrorInvalidDeviceFunction);
    assert_int_equal(flyt_cudart_node_kernel(NULL, &function), cudaErrorInvalidDeviceFunction);
    assert_null(flyt_cudart_kernel_node(&core));
}

static void test_failures(void **state)
{
    static const int host, missing;
    struct flyt_cudart_module *module = flyt_cudart_module_new(first_image);
    CUfunction function;

    flyt_cudart_module_add_kernel(module, &host, "alpha");
    flyt_cudart_module_add_kernel(module, &missing, "omega");
    core.load_result = CUDA_ERROR_NO_BINARY_FOR_GPU;
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaErrorNoKernelImageForDevice);
    assert_int_equal(flyt_cudart_module_load(module), cudaErrorNoKernelImageForDevice);
    /* Not remembered: another device may do. */
    core.load_result = CUDA_SUCCESS;
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaSuccess);
    assert_int_equal(flyt_cudart_kernel(&missing, &function), cudaErrorInvalidDeviceFunction);
    flyt_cudart_module_free(module);
    assert_int_equal(flyt_cudart_module_load(module), cudaErrorInvalidValue);
    assert_int_equal(flyt_cudart_module_load(NULL), cudaErrorInvalidValue);
}

/* One module is refused; the others are not. */
static void test_refusal(void **state)
{
    static const int refused_host, host, variable;
    struct flyt_cudart_module *refused = flyt_cudart_module_new(first_image);
    struct flyt_cudart_module *good = flyt_cudart_module_new(second_image);
    CUfunction function;
    CUdeviceptr address;
    size_t bytes;

    flyt_cudart_module_add_kernel(refused, &refused_host, "alpha");
    flyt_cudart_module_add_variable(refused, &variable, "alpha");
    flyt_cudart_module_refuse(refused, "managed variable", "beta");
    flyt_cudart_module_refuse(refused, "managed variable", "gamma");
    flyt_cudart_module_add_kernel(good, &host, "gamma");
    assert_int_equal(core.refused_count, 0);
    assert_int_equal(flyt_cudart_kernel(&refused_host, &function), cudaErrorNotSupported);
    assert_int_equal(flyt_cudart_variable(&variable, &address, &bytes), cudaErrorNotSupported);
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaSuccess);
    assert_int_equal(core.refused_count, 2);
    flyt_cudart_module_free(refused);
    flyt_cudart_module_free(good);
}

/* The program's pointers are set before the first kernel, or when its own code asks; a name that the image lacks stays
 * unset. */
static void test_managed_variables(void **state)
{
    static const int host;
    struct flyt_cudart_module *module = flyt_cudart_module_new(first_image);
    void *pointer = NULL, *missing = NULL, *late = NULL;
    CUfunction function;
    CUdeviceptr address;
    size_t bytes;

    flyt_cudart_module_add_kernel(module, &host, "alpha");
    flyt_cudart_module_add_managed(module, &pointer, "beta");
    flyt_cudart_module_add_managed(module, &missing, "no such name");
    assert_null(pointer);
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaSuccess);
    assert_ptr_equal(pointer, strstr(first_image, "beta"));
    assert_null(missing);
    flyt_cudart_module_free(module);

    module = flyt_cudart_module_new(first_image);
    flyt_cudart_module_add_managed(module, &late, "beta");
    assert_int_equal(flyt_cudart_module_load(module), cudaSuccess);
    assert_ptr_equal(late, strstr(first_image, "beta"));

    /* Its symbol is the variable itself. */
    core.pointer = (struct flyt_pointer){.is_managed = true, .is_variable = true, .base = (uintptr_t)late, .bytes = 4};
    assert_int_equal(flyt_cudart_variable(late, &address, &bytes), cudaSuccess);
    assert_int_equal(address, (uintptr_t)late);
    assert_int_equal(bytes, 4);
    core.pointer.is_managed = false;
    assert_int_equal(flyt_cudart_variable(late, &address, &bytes), cudaErrorInvalidSymbol);
    core.pointer = (struct flyt_pointer){0};
    flyt_cudart_module_free(module);
}

/* The program has something where the driver has put it: nothing of the module is used. */
static void test_managed_variable_without_a_place(void **state)
{
    static const int host;
    struct flyt_cudart_module *module = flyt_cudart_module_new(first_image);
    void *pointer = NULL;
    CUfunction function;
    unsigned refused_count = core.refused_count;

    flyt_cudart_module_add_kernel(module, &host, "alpha");
    flyt_cudart_module_add_managed(module, &pointer, "beta");
    core.place_result = CUDA_ERROR_MAP_FAILED;
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaErrorMapBufferObjectFailed);
    core.place_result = CUDA_SUCCESS;
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaErrorNotSupported);
    assert_int_equal(core.refused_count, refused_count + 1);
    assert_null(pointer);
    flyt_cudart_module_free(module);
}

static void test_variables(void **state)
{
    static const int host, missing;
    struct flyt_cudart_module *module = flyt_cudart_module_new(second_image);
    CUdeviceptr address;
    CUfunction function;
    size_t bytes;

    flyt_cudart_module_add_variable(module, &host, "gamma");
    flyt_cudart_module_add_variable(module, &missing, "omega");
    assert_int_equal(flyt_cudart_variable(&host, &address, &bytes), cudaSuccess);
    assert_int_equal(address, (uintptr_t)strstr(second_image, "gamma"));
    assert_int_equal(bytes, 5);
    assert_int_equal(flyt_cudart_variable(&missing, &address, &bytes), cudaErrorInvalidSymbol);
    assert_int_equal(flyt_cudart_variable(&core, &address, &bytes), cudaErrorInvalidSymbol);
    assert_int_equal(flyt_cudart_variable(NULL, &address, &bytes), cudaErrorInvalidSymbol);
    /* A variable is no kernel. */
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaErrorInvalidResourceHandle);
    flyt_cudart_module_free(module);
}

static void test_eager(void **state)
{
    static const int host, missing, variable, lazy_host;
    struct flyt_cudart_module *module, *lazy;
    CUfunction function;

    setenv("CUDA_MODULE_LOADING", "LAZY", 1);
    lazy = flyt_cudart_module_new(first_image);
    flyt_cudart_module_add_kernel(lazy, &lazy_host, "alpha");
    assert_true(flyt_cudart_has_new_modules());
    flyt_cudart_settle_modules();
    assert_false(flyt_cudart_has_new_modules());
    assert_int_equal(core.opened_count, 0);
    flyt_cudart_module_free(lazy);

    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    module = flyt_cudart_module_new(second_image);
    flyt_cudart_module_add_kernel(module, &missing, "omega");
    flyt_cudart_module_add_kernel(module, &host, "beta");
    flyt_cudart_module_add_variable(module, &variable, "gamma");
    flyt_cudart_settle_modules();
    assert_int_equal(core.opened_count, 1);
    assert_int_equal(core.asked_count, 2);
    assert_int_equal(core.attributes_count, 1);
    assert_int_equal(flyt_cudart_kernel(&host, &function), cudaSuccess);
    assert_int_equal(core.asked_count, 2);
    flyt_cudart_settle_modules();
    assert_int_equal(core.asked_count, 2);
    flyt_cudart_module_free(module);
    unsetenv("CUDA_MODULE_LOADING");
}

/* ---- a library is opened and closed while others launch ---- */

enum { STABLE = 64, LATE = 500, ROUNDS = 40 };

static char stable_hosts[STABLE], late_hosts[LATE];
static _Atomic(bool) is_over, has_failed;

static void *launch_all_the_time(void *unused)
{
    CUfunction function;

    while (!atomic_load(&is_over)) {
        for (int i = 0; i < STABLE; i++) {
            if (flyt_cudart_kernel(&stable_hosts[i], &function) != cudaSuccess ||
                function != function_in(first_image, "alpha"))
                atomic_store(&has_failed, true);
        }
    }
    return NULL;
}

static void test_late_libraries(void **state)
{
    struct flyt_cudart_module *stable = flyt_cudart_module_new(first_image);
    pthread_t threads[3];
    CUfunction function;

    for (int i = 0; i < STABLE; i++)
        flyt_cudart_module_add_kernel(stable, &stable_hosts[i], "alpha");
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, launch_all_the_time, NULL), 0);
    for (int round = 0; round < ROUNDS; round++) {
        struct flyt_cudart_module *late = flyt_cudart_module_new(second_image);

        for (int i = 0; i < LATE; i++)
            flyt_cudart_module_add_kernel(late, &late_hosts[i], i % 2 ? "beta" : "gamma");
        for (int i = 0; i < LATE; i++)
            assert_int_equal(flyt_cudart_kernel(&late_hosts[i], &function), cudaSuccess);
        flyt_cudart_module_free(late);
    }
    atomic_store(&is_over, true);
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_false(atomic_load(&has_failed));
    assert_int_equal(core.unloaded_count, ROUNDS);
    flyt_cudart_module_free(stable);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_nothing_before_use, reset),
        cmocka_unit_test_setup(test_never_used, reset),
        cmocka_unit_test_setup(test_same_address, reset),
        cmocka_unit_test_setup(test_handles, reset),
        cmocka_unit_test_setup(test_failures, reset),
        cmocka_unit_test_setup(test_refusal, reset),
        cmocka_unit_test_setup(test_managed_variables, reset),
        cmocka_unit_test_setup(test_managed_variable_without_a_place, reset),
        cmocka_unit_test_setup(test_variables, reset),
        cmocka_unit_test_setup(test_late_libraries, reset),
        cmocka_unit_test_setup(test_eager, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
