/* The server's own kernels, compiled ahead by the software GPU's linker: they are loaded in place of PTX, and do the
 * same, on every device that takes them; where they cannot be had, PTX does. */
#include <stdlib.h>
#include <string.h>

#include "cpu/server/test/fake_soft.h"
#include "cpu/server/move/common/own_kernel.h"
#include "cpu/server/move/common/page_hasher.h"
#include "cpu/server/move/out/scan.h"

enum { PAGES = 3, SMS = 4, IMAGES_MAX = 8 };

static struct {
    const void *images[IMAGES_MAX]; /* that were given to cuLibraryLoadData */
    unsigned image_count;
    unsigned module_failures; /* so many calls of cuLibraryGetModule are still to fail */
    unsigned placed_count;    /* calls of cuFuncLoad that have succeeded */
} calls;

static CUresult load_data(CUlibrary *library, const void *code, CUjit_option *jit_options, void **jit_values,
                          unsigned jit_count, CUlibraryOption *options, void **values, unsigned count)
{
    assert_in_range(calls.image_count, 0, IMAGES_MAX - 1);
    calls.images[calls.image_count++] = code;
    return cuLibraryLoadData(library, code, jit_options, jit_values, jit_count, options, values, count);
}

static CUresult get_module(CUmodule *module, CUlibrary library)
{
    if (calls.module_failures && calls.module_failures--)
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return cuLibraryGetModule(module, library);
}

static CUresult load_function(CUfunction function)
{
    CUresult result = cuFuncLoad(function);
    calls.placed_count += result == CUDA_SUCCESS;
    return result;
}

static CUresult link_nothing(CUlinkState state, CUjitInputType type, void *data, size_t bytes, const char *name,
                             unsigned count, CUjit_option *options, void **values)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

static struct flyt_driver driver_with_calls(void)
{
    struct flyt_driver driver = fake_soft_gpu_driver;
    driver.cuLibraryLoadData = load_data;
    driver.cuLibraryGetModule = get_module;
    driver.cuFuncLoad = load_function;
    memset(&calls, 0, sizeof calls);
    return driver;
}

/* Hashes pages by the kernel: they are as the algorithm on the CPU has them. */
static void hashes_are_right(const struct flyt_driver *driver, CUdevice device, CUstream stream)
{
    static const struct flyt_page_key key = {"sixteen bytes !"};
    static unsigned char pages[PAGES][FLYT_PAGE_BYTES];
    struct flyt_page_hash_keys keys;
    struct flyt_page_hasher hasher;
    struct flyt_page_batch batch;
    CUdeviceptr memory, hasher_memory, batch_memory;

    for (unsigned n = 0; n < PAGES; n++)
        memset(pages[n], (int)(3 * n), FLYT_PAGE_BYTES); /* the first one is zero */
    assert_ok(cuMemAlloc(&memory, (PAGES + 1) * FLYT_PAGE_BYTES));
    const struct flyt_page_range range = {(memory + FLYT_PAGE_BYTES - 1) / FLYT_PAGE_BYTES * FLYT_PAGE_BYTES, PAGES};
    assert_ok(cuMemcpyHtoD(range.address, pages, sizeof pages));
    assert_ok(cuMemAlloc(&hasher_memory, FLYT_PAGE_HASHER_BYTES));
    assert_ok(cuMemAlloc(&batch_memory, FLYT_PAGE_BATCH_BYTES(PAGES)));
    flyt_page_hash_prepare(&key, &keys);
    assert_ok(flyt_page_hasher_init(&hasher, driver, device, &key, hasher_memory, stream));
    assert_ok(flyt_page_batch_init(&batch, &hasher, PAGES, batch_memory));
    assert_ok(flyt_page_batch_look(&batch, &range, 1, SMS, stream));
    assert_ok(cuStreamSynchronize(stream));
    assert_ok(flyt_page_batch_finish(&batch));
    for (unsigned n = 0; n < PAGES; n++) {
        struct flyt_page_hash hash;
        flyt_page_hash(&keys, pages[n], &hash, NULL);
        const struct flyt_page_seen seen = flyt_page_batch_seen(&batch, n);
        assert_true(flyt_page_hash_is_equal(&seen.hash, &hash));
        assert_int_equal(seen.is_zero, n == 0);
    }
    flyt_page_batch_fini(&batch);
    flyt_page_hasher_fini(&hasher);
    assert_ok(cuMemFree(batch_memory));
    assert_ok(cuMemFree(hasher_memory));
    assert_ok(cuMemFree(memory));
}

/* The second of two words names a variable, and is found by the kernel. */
static void an_address_is_found(const struct flyt_driver *driver, CUdevice device, CUstream stream)
{
    const uint64_t variable = 0x7000000, words[] = {1, variable + 4};
    struct flyt_scan_place places[] = {{variable, 8, false}, {variable + 4096, 8, false}};
    CUdeviceptr memory;

    assert_ok(cuMemAlloc(&memory, sizeof words));
    assert_ok(cuMemcpyHtoD(memory, words, sizeof words));
    const struct flyt_scan_range range = {memory, sizeof words};
    assert_ok(flyt_scan(driver, device, &range, 1, places, 2, SMS, stream));
    assert_true(places[0].is_referenced);
    assert_false(places[1].is_referenced);
    assert_ok(cuMemFree(memory));
}

static CUcontext current_context(void)
{
    CUcontext context;
    assert_ok(cuCtxGetCurrent(&context));
    return context;
}

/* The images that are loaded without code that was compiled ahead. */
static void note_ptx(CUstream stream, const void **ret_hash, const void **ret_scan)
{
    const struct flyt_driver driver = driver_with_calls();
    hashes_are_right(&driver, 0, stream);
    an_address_is_found(&driver, 0, stream);
    assert_int_equal(calls.image_count, 2);
    *ret_hash = calls.images[0];
    *ret_scan = calls.images[1];
}

/* A driver with code that was compiled ahead, and what is loaded without. */
struct compiled {
    CUstream stream;
    const void *hash_ptx, *scan_ptx;
    struct flyt_driver driver;
};

/* link: in the place of the linker's; NULL: that one. */
static void begin(struct compiled *self, __typeof__(&cuLinkAddData) link)
{
    self->stream = fake_soft_begin();
    note_ptx(self->stream, &self->hash_ptx, &self->scan_ptx);
    self->driver = driver_with_calls();
    if (link)
        self->driver.cuLinkAddData = link;
    self->driver.own = flyt_own_code_begin(&self->driver, 0, current_context());
    assert_non_null(self->driver.own);
}

static void end(struct compiled *self)
{
    assert_null(flyt_own_code_free(self->driver.own));
    assert_ok(cuStreamDestroy(self->stream));
}

/* The thread has loaded both when the last one is asked for; nothing is loaded afterwards, nor by launches. */
static void what_was_compiled_is_loaded_ahead(void **state)
{
    struct compiled self;
    begin(&self, NULL);
    an_address_is_found(&self.driver, 0, self.stream);
    assert_int_equal(calls.image_count, 2);
    assert_int_equal(calls.placed_count, 2);
    hashes_are_right(&self.driver, 0, self.stream);
    hashes_are_right(&self.driver, 0, self.stream);
    assert_int_equal(calls.image_count, 2);
    assert_int_equal(calls.placed_count, 2);
    for (unsigned n = 0; n < 2; n++) {
        assert_ptr_not_equal(calls.images[n], self.hash_ptx);
        assert_ptr_not_equal(calls.images[n], self.scan_ptx);
    }
    end(&self);
}

static void what_cannot_be_compiled_is_loaded_as_it_is(void **state)
{
    struct compiled self;
    begin(&self, link_nothing);
    hashes_are_right(&self.driver, 0, self.stream);
    an_address_is_found(&self.driver, 0, self.stream);
    assert_int_equal(calls.image_count, 2);
    assert_ptr_equal(calls.images[0], self.hash_ptx);
    assert_ptr_equal(calls.images[1], self.scan_ptx);
    end(&self);
}

/* Makes device 1's primary context current. */
static CUcontext use_other_device(void)
{
    CUcontext context;
    assert_ok(cuDevicePrimaryCtxRetain(&context, 1));
    assert_ok(cuCtxSetCurrent(context));
    return context;
}

static void another_device_has_it_ahead(void **state)
{
    struct compiled self;
    CUcontext first;
    CUstream stream;
    begin(&self, NULL);
    first = current_context();
    flyt_own_code_add_device(self.driver.own, 1, use_other_device());
    assert_int_equal(calls.image_count, 2);
    assert_int_equal(calls.placed_count, 4);
    flyt_own_code_add_device(self.driver.own, 0, first);
    flyt_own_code_add_device(self.driver.own, 1, use_other_device()); /* both have it */
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    hashes_are_right(&self.driver, 1, stream);
    an_address_is_found(&self.driver, 1, stream);
    assert_int_equal(calls.image_count, 2);
    assert_int_equal(calls.placed_count, 4);
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuCtxSetCurrent(first));
    end(&self);
}

/* A session may have devices of another compute capability than the one that it was compiled for. */
static void what_a_device_does_not_take_is_loaded_as_it_is(void **state)
{
    struct compiled self;
    CUcontext first;
    CUstream stream;
    begin(&self, NULL);
    hashes_are_right(&self.driver, 0, self.stream);
    an_address_is_found(&self.driver, 0, self.stream);
    first = current_context();
    calls.module_failures = 1;
    flyt_own_code_add_device(self.driver.own, 1, use_other_device());
    assert_ok(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    hashes_are_right(&self.driver, 1, stream);
    hashes_are_right(&self.driver, 1, stream);
    an_address_is_found(&self.driver, 1, stream);
    assert_int_equal(calls.image_count, 4);
    assert_ptr_equal(calls.images[2], self.hash_ptx);
    assert_ptr_equal(calls.images[3], self.hash_ptx);
    assert_ok(cuStreamDestroy(stream));
    assert_ok(cuCtxSetCurrent(first));
    hashes_are_right(&self.driver, 0, self.stream);
    assert_int_equal(calls.image_count, 4);
    end(&self);
}

/* The driver's error is told where PTX fails, too. */
static void what_cannot_be_loaded_at_all_is_told(void **state)
{
    CUstream stream = fake_soft_begin();
    struct flyt_driver driver = driver_with_calls();
    CUlibrary library = NULL;
    calls.module_failures = 1;
    assert_int_equal(flyt_own_kernel_load(&driver, 0, FLYT_OWN_SCAN, &library), CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_null(library);
    assert_null(flyt_own_code_free(NULL));
    assert_ok(cuStreamDestroy(stream));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_compiled_is_loaded_ahead),
        cmocka_unit_test(what_cannot_be_compiled_is_loaded_as_it_is),
        cmocka_unit_test(another_device_has_it_ahead),
        cmocka_unit_test(what_a_device_does_not_take_is_loaded_as_it_is),
        cmocka_unit_test(what_cannot_be_loaded_at_all_is_told),
    };
    setenv("FLYT_SOFT_DEVICES", "2", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
