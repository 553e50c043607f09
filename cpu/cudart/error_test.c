/* Codes, and the last error: per thread, kept until asked for, and what the core knows that the thread has not heard.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/cudart/cudart.h"

/* ---- the core ---- */

static bool core_is_initialized;
static CUresult core_pending; /* delivered once where it is no fatal error */
static bool core_is_broken;

bool flyt_client_is_initialized(void)
{
    return core_is_initialized;
}

CUresult flyt_client_enter(void)
{
    CUresult result = core_pending;

    if (!core_is_broken)
        core_pending = CUDA_SUCCESS;
    return result;
}

CUresult flyt_not_supported(const char *name)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- tests ---- */

static void test_codes(void **state)
{
    static const struct {
        CUresult driver;
        cudaError_t runtime;
    } codes[] = {
        {CUDA_SUCCESS, cudaSuccess},
        {CUDA_ERROR_INVALID_VALUE, cudaErrorInvalidValue},
        {CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation},
        {CUDA_ERROR_NOT_INITIALIZED, cudaErrorInitializationError},
        {CUDA_ERROR_DEINITIALIZED, cudaErrorCudartUnloading},
        {CUDA_ERROR_INVALID_DEVICE, cudaErrorInvalidDevice},
        {CUDA_ERROR_INVALID_IMAGE, cudaErrorInvalidKernelImage},
        {CUDA_ERROR_INVALID_CONTEXT, cudaErrorDeviceUninitialized},
        {CUDA_ERROR_CONTEXT_ALREADY_CURRENT, cudaErrorUnknown},
        {CUDA_ERROR_NO_BINARY_FOR_GPU, cudaErrorNoKernelImageForDevice},
        {CUDA_ERROR_INVALID_HANDLE, cudaErrorInvalidResourceHandle},
        {CUDA_ERROR_NOT_FOUND, cudaErrorSymbolNotFound},
        {CUDA_ERROR_NOT_READY, cudaErrorNotReady},
        {CUDA_ERROR_ILLEGAL_ADDRESS, cudaErrorIllegalAddress},
        {CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE, cudaErrorSetOnActiveProcess},
        {CUDA_ERROR_ASSERT, cudaErrorAssert},
        {CUDA_ERROR_LAUNCH_FAILED, cudaErrorLaunchFailure},
        {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cudaErrorCooperativeLaunchTooLarge},
        {CUDA_ERROR_NOT_SUPPORTED, cudaErrorNotSupported},
        {CUDA_ERROR_SYSTEM_NOT_READY, cudaErrorSystemNotReady},
        {CUDA_ERROR_KEY_ROTATION, cudaErrorUnknown},
        {CUDA_ERROR_UNKNOWN, cudaErrorUnknown},
    };

    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++)
        assert_int_equal(flyt_cudart_error(codes[i].driver), codes[i].runtime);
}

static void test_last_error(void **state)
{
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(flyt_cudart_result(CUDA_ERROR_INVALID_VALUE), cudaErrorInvalidValue);
    assert_int_equal(flyt_cudart_result(CUDA_SUCCESS), cudaSuccess);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorInvalidValue);
    assert_int_equal(flyt_cudart_result(CUDA_ERROR_NOT_READY), cudaErrorNotReady);
    assert_int_equal(flyt_cudart_return(cudaErrorInvalidSymbol), cudaErrorInvalidSymbol);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidSymbol);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(flyt_cudart_not_supported("cudaMallocManaged"), cudaErrorNotSupported);
    assert_int_equal(cudaGetLastError(), cudaErrorNotSupported);
}

static void *other_thread(void *unused)
{
    return (void *)(uintptr_t)(cudaPeekAtLastError() == cudaSuccess &&
                               flyt_cudart_fail(cudaErrorInvalidDevice) == cudaErrorInvalidDevice);
}

static void test_per_thread(void **state)
{
    pthread_t thread;
    void *is_good = NULL;

    flyt_cudart_fail(cudaErrorInvalidValue);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, &is_good), 0);
    assert_non_null(is_good);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
}

static void test_pending(void **state)
{
    core_pending = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    core_is_initialized = true;
    assert_int_equal(cudaPeekAtLastError(), cudaErrorLaunchOutOfResources);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorLaunchOutOfResources);
    assert_int_equal(cudaGetLastError(), cudaErrorLaunchOutOfResources);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    /* What is wrong with the context as a whole, or that a forked child may not use CUDA, is told by calls that need a
     * context. */
    core_pending = CUDA_ERROR_NOT_INITIALIZED;
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    core_pending = CUDA_ERROR_ILLEGAL_ADDRESS;
    core_is_broken = true;
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    assert_int_equal(flyt_cudart_result(flyt_client_enter()), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaErrorIllegalAddress);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    core_is_broken = false;
    core_pending = CUDA_SUCCESS;
    core_is_initialized = false;
}

static void test_names(void **state)
{
    assert_string_equal(cudaGetErrorName(cudaErrorInvalidPitchValue), "cudaErrorInvalidPitchValue");
    assert_string_equal(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
    assert_string_equal(cudaGetErrorName((cudaError_t)123456), "unrecognized error code");
    assert_string_equal(cudaGetErrorString((cudaError_t)-1), "unrecognized error code");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_codes),   cmocka_unit_test(test_last_error), cmocka_unit_test(test_per_thread),
        cmocka_unit_test(test_pending), cmocka_unit_test(test_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
