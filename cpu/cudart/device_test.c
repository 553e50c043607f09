/* Where threads begin that choose no device: on the first of cudaSetValidDevices' list that works. Flags of devices. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/client/cuda/device.h"
#include "cpu/cudart/cudart.h"

/* ---- the core: four devices, of which some are broken ---- */

enum { DEVICES = 4 };

static struct {
    bool is_broken[DEVICES];
    int current; /* -1: none */
    int tried[16], tried_count;
    unsigned flags;
    int can_map;
    const char *refused;
} core;

CUresult flyt_device_count(int *ret_count)
{
    *ret_count = DEVICES;
    return CUDA_SUCCESS;
}

CUresult flyt_context_current(CUcontext *ret_context)
{
    *ret_context = core.current < 0 ? NULL : (CUcontext)(uintptr_t)(core.current + 1);
    return CUDA_SUCCESS;
}

CUresult flyt_runtime_device_set(int device)
{
    core.current = device;
    core.tried[core.tried_count++] = device;
    return CUDA_SUCCESS;
}

CUresult flyt_runtime_device(int *ret_device)
{
    *ret_device = core.current < 0 ? 0 : core.current;
    return CUDA_SUCCESS;
}

CUresult flyt_runtime_enter(void)
{
    if (core.current < 0)
        core.current = 0;
    return CUDA_SUCCESS;
}

CUresult flyt_device_memory_info(size_t *ret_free_bytes, size_t *ret_total_bytes)
{
    return core.is_broken[core.current] ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

CUresult flyt_device_synchronize(void)
{
    return CUDA_SUCCESS;
}

CUresult flyt_device_attribute(int device, CUdevice_attribute attribute, int *ret_value)
{
    *ret_value = attribute == CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY ? core.can_map : 0;
    return CUDA_SUCCESS;
}

CUresult flyt_primary_flags_set(int device, unsigned flags)
{
    core.flags = flags;
    return CUDA_SUCCESS;
}

CUresult flyt_not_supported(const char *name)
{
    core.refused = name;
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- tests ---- */

/* What a thread that has called nothing yet begins on, or the error of its first call, negative. */
static void *begin(void *user)
{
    cudaError_t error;
    int device = -1;
    core.current = -1;
    core.tried_count = 0;
    error = cudaDeviceSynchronize();
    if (error == cudaSuccess)
        error = cudaGetDevice(&device);
    *(int *)user = error == cudaSuccess ? device : -(int)error;
    return NULL;
}

static int begin_in_thread(void)
{
    pthread_t thread;
    int device;
    assert_int_equal(pthread_create(&thread, NULL, begin, &device), 0);
    pthread_join(thread, NULL);
    return device;
}

static void test_the_first_that_works(void **state)
{
    int list[] = {2, 3, 1};
    assert_int_equal(begin_in_thread(), 0);
    assert_int_equal(cudaSetValidDevices(list, 3), cudaSuccess);
    assert_int_equal(begin_in_thread(), 2);
    assert_int_equal(core.tried_count, 1);
    core.is_broken[2] = true;
    assert_int_equal(begin_in_thread(), 3);
    core.is_broken[3] = true;
    assert_int_equal(begin_in_thread(), 1);
    assert_int_equal(core.tried_count, 3); /* in the list's order */
    assert_int_equal(core.tried[0], 2);
    assert_int_equal(core.tried[1], 3);
    core.is_broken[1] = true;
    assert_int_equal(begin_in_thread(),
                     -(int)cudaErrorMemoryAllocation); /* the last one's; device 0 is not in the list */
    core.is_broken[2] = false;
    assert_int_equal(begin_in_thread(), 2);
    assert_int_equal(cudaSetValidDevices(NULL, 0), cudaSuccess); /* as if it had never been called */
    assert_int_equal(begin_in_thread(), 0);
}

static void test_bad_lists_change_nothing(void **state)
{
    int list[] = {1, 2}, bad[] = {3, DEVICES};
    core.is_broken[1] = false;
    assert_int_equal(cudaSetValidDevices(list, 2), cudaSuccess);
    assert_int_equal(cudaSetValidDevices(bad, 2), cudaErrorInvalidDevice);
    assert_int_equal(cudaSetValidDevices(list, DEVICES + 1), cudaErrorInvalidValue);
    assert_int_equal(begin_in_thread(), 1);
    assert_int_equal(cudaSetValidDevices(NULL, 0), cudaSuccess);
}

/* Asking for memory that kernels reach, where there is none, is no success. */
static void test_mapped_host_memory_is_refused_where_there_is_none(void **state)
{
    core.flags = 0;
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceMapHost | cudaDeviceScheduleYield), cudaErrorNotSupported);
    assert_string_equal(core.refused, "cudaDeviceMapHost");
    assert_int_equal(core.flags, 0);
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceScheduleYield), cudaSuccess);
    assert_int_equal(core.flags, cudaDeviceScheduleYield);
    core.can_map = 1;
    assert_int_equal(cudaSetDeviceFlags(cudaDeviceMapHost), cudaSuccess);
    assert_int_equal(core.flags, cudaDeviceMapHost);
    assert_int_equal(cudaSetDeviceFlags(3), cudaErrorInvalidValue);
}

int main(void)
{
    core.current = -1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_that_works),
        cmocka_unit_test(test_bad_lists_change_nothing),
        cmocka_unit_test(test_mapped_host_memory_is_refused_where_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
