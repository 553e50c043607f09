/* Kernels and their launches over a channel without a server: how they come, what is packed, what is refused at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/client.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/function.h"
#include "cpu/client/cuda/kernel.h"
#include "cpu/client/cuda/kernel_record.h"
#include "cpu/client/cuda/module.h"
#include "rpc/base/id.h"

/* The last launch. */
static struct {
    flyt_kernel_launch_args launch;
    char params[4096];
} seen;

/* How many kernels a library shall have beyond the first one; the server's answer when it is asked for them: one after
 * the other, none, or more than there are. */
static struct {
    unsigned more_count;
    enum { ONE_BY_ONE, NONE, TOO_MANY } way;
    unsigned asked_count, unloaded_count;
} parts;

static void serve_library_kernels(const flyt_library_kernels_args *args, flyt_library_kernels_res *res)
{
    char name[16];
    parts.asked_count++;
    res->kernels.kernels_len = parts.way == ONE_BY_ONE ? 1 : parts.way == NONE ? 0 : parts.more_count + 1;
    res->kernels.kernels_val = calloc(res->kernels.kernels_len + 1, sizeof *res->kernels.kernels_val);
    for (unsigned i = 0; i < res->kernels.kernels_len; i++) {
        snprintf(name, sizeof name, "kernel%u", args->first + i);
        res->kernels.kernels_val[i].name = strdup(name);
    }
}

/* One kernel: an int at 0, a pointer at 8, a char at 16. */
static void serve_library_load(flyt_library_load_res *res)
{
    static const flyt_kernel_param places[] = {{0, 4}, {8, 8}, {16, 1}};
    res->info_log = strdup("");
    res->error_log = strdup("");
    res->kernels.kernels_len = 1;
    res->kernel_count = 1 + parts.more_count;
    res->kernels.kernels_val = calloc(1, sizeof *res->kernels.kernels_val);
    res->kernels.kernels_val[0].name = strdup("kernel");
    res->kernels.kernels_val[0].params.params_len = 3;
    res->kernels.kernels_val[0].params.params_val = malloc(sizeof places);
    memcpy(res->kernels.kernels_val[0].params.params_val, places, sizeof places);
}

static int required_cluster_width;
static const unsigned *required_block; /* NULL: none */

static void tell_attributes(u_int *ret_count, int **ret_values)
{
    int *values = calloc(CU_FUNC_ATTRIBUTE_MAX, sizeof *values);
    values[CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK] = 512;
    values[CU_FUNC_ATTRIBUTE_NUM_REGS] = 72;
    values[CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES] = 49152;
    if (required_cluster_width) {
        values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = required_cluster_width;
        values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT] = 1;
        values[CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH] = 1;
    }
    *ret_values = values;
    *ret_count = CU_FUNC_ATTRIBUTE_MAX;
}

static void serve_kernel_info(flyt_kernel_info_res *res)
{
    tell_attributes(&res->attributes.attributes_len, &res->attributes.attributes_val);
}

static void serve_kernel_traits(flyt_kernel_traits_res *res)
{
    tell_attributes(&res->attributes.attributes_len, &res->attributes.attributes_val);
    if (required_block)
        memcpy(res->required_block, required_block, sizeof res->required_block);
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    switch (procedure) {
    case FLYT_DEVICE_INFO:
        fake_serve_device_info(res);
        break;
    case FLYT_IMAGE_FIND:
        ((flyt_image_find_res *)res)->is_known = 1;
        break;
    case FLYT_LIBRARY_LOAD:
        serve_library_load(res);
        break;
    case FLYT_LIBRARY_KERNELS:
        serve_library_kernels(args, res);
        break;
    case FLYT_LIBRARY_UNLOAD:
        parts.unloaded_count++;
        break;
    case FLYT_KERNEL_INFO:
        serve_kernel_info(res);
        break;
    case FLYT_KERNEL_TRAITS:
        serve_kernel_traits(res);
        break;
    case FLYT_KERNEL_OCCUPANCY:
        ((flyt_kernel_occupancy_res *)res)->block_count = 2;
        break;
    case FLYT_KERNEL_LAUNCH:
        seen.launch = *(const flyt_kernel_launch_args *)args;
        memcpy(seen.params, seen.launch.params.params_val, seen.launch.params.params_len);
        break;
    default:
        break;
    }
}

static CUfunction load_kernel(void)
{
    CUmodule module;
    CUfunction function;
    assert_int_equal(flyt_module_load("// PTX\n.version 8.0", NULL, &module), CUDA_SUCCESS);
    assert_int_equal(flyt_module_function(module, "no such kernel", &function), CUDA_ERROR_NOT_FOUND);
    assert_int_equal(flyt_module_function(module, "kernel", &function), CUDA_SUCCESS);
    return function;
}

static void test_kernels_come_in_several_replies(void **state)
{
    static const char image[] = "// PTX\n.version 8.0";
    CUlibrary library;
    CUkernel first, last, all[4];
    unsigned count;
    parts.more_count = 3;
    parts.asked_count = parts.unloaded_count = 0;
    assert_int_equal(flyt_library_load(image, NULL, &library), CUDA_SUCCESS);
    assert_int_equal(parts.asked_count, 3);
    assert_int_equal(flyt_library_kernel_count(library, &count), CUDA_SUCCESS);
    assert_int_equal(count, 4);
    assert_int_equal(flyt_library_kernel(library, "kernel", &first), CUDA_SUCCESS);
    assert_int_equal(flyt_library_kernel(library, "kernel3", &last), CUDA_SUCCESS);
    assert_int_equal(flyt_library_kernels(library, 4, all), CUDA_SUCCESS);
    assert_ptr_equal(all[0], first);
    assert_ptr_equal(all[3], last);
    assert_int_equal(flyt_library_unload(library), CUDA_SUCCESS);
    assert_int_equal(parts.unloaded_count, 1);
    /* A server that contradicts itself: an error, and what it loaded is unloaded. */
    for (parts.way = NONE; parts.way <= TOO_MANY; parts.way++)
        assert_int_equal(flyt_library_load(image, NULL, &library), CUDA_ERROR_UNKNOWN);
    assert_int_equal(parts.unloaded_count, 3);
    parts.more_count = UINT32_MAX - 1;
    assert_int_equal(flyt_library_load(image, NULL, &library), CUDA_ERROR_UNKNOWN);
    parts.more_count = 0;
}

static void test_parameters_are_packed_by_layout(void **state)
{
    int number = 0x01020304;
    uint64_t pointer = 0x1122334455667788;
    char letter = 'x', expected[17] = {4, 3, 2, 1};
    void *params[] = {&number, &pointer, &letter};
    struct flyt_launch launch = {.function = load_kernel(), .grid = {5, 6, 7}, .block = {32, 2, 1}, .params = params};
    memcpy(expected + 8, &pointer, 8);
    expected[16] = 'x';
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_SUCCESS);
    assert_int_equal(seen.launch.params.params_len, sizeof expected);
    assert_memory_equal(seen.params, expected, sizeof expected);
    assert_int_equal(seen.launch.grid[2], 7);
    assert_int_equal(seen.launch.kernel_id, (uint64_t)(uintptr_t)launch.function);
    launch.params = NULL;
    launch.param_buffer = expected;
    launch.param_buffer_bytes = sizeof expected;
    memset(seen.params, 0, sizeof seen.params);
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_SUCCESS);
    assert_memory_equal(seen.params, expected, sizeof expected);
    launch.param_buffer_bytes++;
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    launch.param_buffer_bytes = 4;
    assert_int_equal(flyt_kernel_launch(&launch), CUDA_SUCCESS);
    memset(expected + 4, 0, sizeof expected - 4);
    assert_int_equal(seen.launch.params.params_len, sizeof expected);
    assert_memory_equal(seen.params, expected, sizeof expected);
}

/* Only of what could be a host address does a launch take notice. */
static void test_parameters_that_may_be_host_addresses(void **state)
{
    static const struct flyt_kernel_param_place places[] = {{0, 4}, {4, 4}, {8, 8}, {16, 24}, {44, 12}};
    struct flyt_kernel kernel = {
        .param_count = 5, .param_bytes = 56, .params = (struct flyt_kernel_param_place *)(uintptr_t)places};
    uint32_t low = 0x55551234, high = 0x5555; /* together one, but they are two parameters */
    uint64_t pointer = FLYT_WINDOW_BASE + 4096, own = (uint64_t)(uintptr_t)&kernel;
    uint64_t held[3] = {0x3ff8000000000000, FLYT_WINDOW_BASE + FLYT_WINDOW_DEVICES * FLYT_WINDOW_BYTES - 1, 7};
    char odd[12] = {0}, buffer[56];
    void *params[] = {&low, &high, &pointer, held, odd};
    assert_false(flyt_kernel_pack(&kernel, params, buffer));
    pointer = own;
    assert_true(flyt_kernel_pack(&kernel, params, buffer));
    pointer = 1ull << 47;
    assert_false(flyt_kernel_pack(&kernel, params, buffer));
    held[2] = own;
    assert_true(flyt_kernel_pack(&kernel, params, buffer));
    held[2] = 0;
    memcpy(odd, &own, 8); /* at 44: a pointer would be aligned */
    assert_false(flyt_kernel_pack(&kernel, params, buffer));
    memcpy(odd + 4, &own, 8);
    assert_true(flyt_kernel_pack(&kernel, params, buffer));
    assert_memory_equal(buffer + 48, &own, 8);
}

static void test_bad_launches_are_refused_at_once(void **state)
{
    int value[2] = {0};
    void *params[] = {value, value, value};
    CUlaunchAttribute cooperative = {.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE, .value.cooperative = 1};
    struct flyt_launch good = {.function = load_kernel(), .grid = {1, 1, 1}, .block = {1, 1, 1}, .params = params}, bad;
    unsigned before = fake.call_count[FLYT_KERNEL_LAUNCH];
    bad = good, bad.grid[1] = 0;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.block[0] = 2048;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.block[0] = 64, bad.block[1] = 64;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    /* More threads than the kernel declares; and more than there are registers for. */
    bad = good, bad.block[0] = 600;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.block[0] = 1024;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    bad = good, bad.dynamic_shared_bytes = 49153;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.params = NULL;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_INVALID_VALUE);
    bad = good, bad.grid[0] = 9, bad.attributes = &cooperative, bad.attribute_count = 1; /* 2 on each of 4 */
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    assert_int_equal(fake.call_count[FLYT_KERNEL_LAUNCH], before);
    bad.grid[0] = 8;
    assert_int_equal(flyt_kernel_launch(&bad), CUDA_SUCCESS);
}

struct cluster_case {
    unsigned grid[3], cluster[3];
    CUresult result;
};

static void check_cluster_cases(CUfunction function, const struct cluster_case *cases, size_t count)
{
    int value[2] = {0};
    void *params[] = {value, value, value};
    for (size_t i = 0; i < count; i++) {
        const unsigned *cluster = cases[i].cluster;
        CUlaunchAttribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
                                       .value.clusterDim = {cluster[0], cluster[1], cluster[2]}};
        struct flyt_launch launch = {
            .function = function, .block = {1, 1, 1}, .params = params, .attributes = &attribute, .attribute_count = 1};
        memcpy(launch.grid, cases[i].grid, sizeof launch.grid);
        unsigned before = fake.call_count[FLYT_KERNEL_LAUNCH];
        assert_int_equal(flyt_kernel_launch(&launch), cases[i].result);
        assert_int_equal(fake.call_count[FLYT_KERNEL_LAUNCH], before + (cases[i].result == CUDA_SUCCESS));
    }
}

/* What an H200 answered. */
static void test_bad_clusters_are_refused_at_once(void **state)
{
    static const struct cluster_case plain_cases[] = {
        {{8, 1, 1}, {2, 1, 1}, CUDA_SUCCESS},
        {{8, 1, 1}, {0, 0, 0}, CUDA_SUCCESS},
        {{7, 1, 1}, {1, 1, 1}, CUDA_SUCCESS},
        {{7, 1, 1}, {7, 1, 1}, CUDA_SUCCESS},
        {{8, 4, 1}, {2, 2, 1}, CUDA_SUCCESS},
        {{0, 1, 1}, {2, 1, 1}, CUDA_ERROR_INVALID_VALUE},
        {{7, 1, 1}, {2, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 3, 1}, {2, 2, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {0, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {2, 0, 0}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{4, 1, 1}, {8, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {UINT32_MAX, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{16, 1, 1}, {16, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 4, 4}, {2, 2, 4}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
    };
    static const struct cluster_case required_cases[] = {
        {{8, 1, 1}, {2, 1, 1}, CUDA_SUCCESS},
        {{8, 1, 1}, {0, 0, 0}, CUDA_SUCCESS},
        {{7, 1, 1}, {0, 0, 0}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {4, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
        {{8, 1, 1}, {1, 1, 1}, CUDA_ERROR_INVALID_CLUSTER_SIZE},
    };
    static const struct cluster_case large[] = {{{16, 1, 1}, {16, 1, 1}, CUDA_SUCCESS}};
    CUfunction function = load_kernel();
    check_cluster_cases(function, plain_cases, sizeof plain_cases / sizeof plain_cases[0]);
    assert_int_equal(flyt_kernel_attribute_set(function, -1, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
                     CUDA_SUCCESS);
    check_cluster_cases(function, large, 1);
    required_cluster_width = 2;
    check_cluster_cases(load_kernel(), required_cases, sizeof required_cases / sizeof required_cases[0]);
    required_cluster_width = 0;
}

static CUresult launch_block(CUfunction function, unsigned x, unsigned y, unsigned z)
{
    int value[2] = {0};
    void *params[] = {value, value, value};
    struct flyt_launch launch = {.function = function, .grid = {1, 1, 1}, .block = {x, y, z}, .params = params};
    unsigned before = fake.call_count[FLYT_KERNEL_LAUNCH];
    CUresult result = flyt_kernel_launch(&launch);
    assert_int_equal(fake.call_count[FLYT_KERNEL_LAUNCH], before + (result == CUDA_SUCCESS));
    return result;
}

static void test_blocks_of_another_size_than_demanded(void **state)
{
    static const unsigned demanded[3] = {16, 4, 1};
    required_block = demanded;
    CUfunction function = load_kernel();
    assert_int_equal(launch_block(function, 16, 4, 1), CUDA_SUCCESS);
    assert_int_equal(launch_block(function, 64, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_block(function, 16, 2, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_block(function, 16, 4, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_block(function, 16, 4, 1), CUDA_SUCCESS);
    /* An older server does not say it: what it answers to the launch comes later. */
    fake.lacks = FLYT_KERNEL_TRAITS;
    unsigned before = fake.call_count[FLYT_KERNEL_INFO];
    function = load_kernel();
    assert_int_equal(launch_block(function, 64, 1, 1), CUDA_SUCCESS);
    assert_int_equal(launch_block(function, 600, 1, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(fake.call_count[FLYT_KERNEL_INFO], before + 1);
    fake.lacks = 0;
    required_block = NULL;
}

static int set_up(void **state)
{
    return flyt_runtime_enter();
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernels_come_in_several_replies),
        cmocka_unit_test(test_parameters_are_packed_by_layout),
        cmocka_unit_test(test_parameters_that_may_be_host_addresses),
        cmocka_unit_test(test_bad_launches_are_refused_at_once),
        cmocka_unit_test(test_bad_clusters_are_refused_at_once),
        cmocka_unit_test(test_blocks_of_another_size_than_demanded),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
