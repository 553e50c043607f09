/* Launch configurations nest, also deeply, and are each thread's own; what is launched is what was pushed. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "cpu/client/cuda/kernel.h"
#include "cpu/cudart/cudart.h"
#include "cpu/cudart/registry.h"

unsigned __cudaPushCallConfiguration(dim3 gridDim, dim3 blockDim, size_t sharedMem, struct CUstream_st *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *gridDim, dim3 *blockDim, size_t *sharedMem, void *stream);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                               cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem,
                                    cudaStream_t stream);

/* ---- the core and the registry ---- */

static struct flyt_launch launched;
static CUlaunchAttribute launched_attribute;

CUresult flyt_kernel_launch(const struct flyt_launch *launch)
{
    launched = *launch;
    if (launch->attribute_count > 0)
        launched_attribute = launch->attributes[0];
    return launch->grid[0] > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult flyt_cudart_enter(void)
{
    return CUDA_SUCCESS;
}

cudaError_t flyt_cudart_enter_kernel(const void *function, CUfunction *ret_function)
{
    *ret_function = (CUfunction)(uintptr_t)function;
    return cudaSuccess;
}

cudaError_t flyt_cudart_node_kernel(const void *handle, CUfunction *ret_function)
{
    return flyt_cudart_enter_kernel(handle, ret_function);
}

const void *flyt_cudart_node_symbol(const void *handle)
{
    return handle;
}

struct flyt_address_node *flyt_cudart_kernel_node(const void *host_function)
{
    return NULL;
}

bool flyt_client_is_initialized(void)
{
    return false;
}

CUresult flyt_client_enter(void)
{
    return CUDA_SUCCESS;
}

CUresult flyt_not_supported(const char *name)
{
    return CUDA_ERROR_NOT_SUPPORTED;
}

/* ---- tests ---- */

static void push(unsigned number)
{
    dim3 grid = {number, number + 1, number + 2}, block = {number + 3, number + 4, number + 5};

    assert_int_equal(__cudaPushCallConfiguration(grid, block, number + 6, (cudaStream_t)(uintptr_t)(number + 7)), 0);
}

static void pop(unsigned number)
{
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;

    assert_int_equal(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaSuccess);
    assert_true(grid.x == number && grid.y == number + 1 && grid.z == number + 2);
    assert_true(block.x == number + 3 && block.y == number + 4 && block.z == number + 5);
    assert_int_equal(shared_bytes, number + 6);
    assert_int_equal((uintptr_t)stream, number + 7);
}

static void pop_nothing(void)
{
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;

    assert_int_equal(__cudaPopCallConfiguration(&grid, &block, &shared_bytes, &stream), cudaErrorMissingConfiguration);
    assert_int_equal(cudaGetLastError(), cudaErrorMissingConfiguration);
}

static void test_nesting(void **state)
{
    enum { DEPTH = 100 };

    pop_nothing();
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < DEPTH; i++)
            push(i * 10);
        /* Half way down and up again: small and allocated ones meet. */
        for (unsigned i = DEPTH; i-- > 2;)
            pop(i * 10);
        push(7);
        push(8);
        push(9);
        pop(9);
        pop(8);
        pop(7);
        pop(10);
        pop(0);
        pop_nothing();
    }
}

static void *other_thread(void *unused)
{
    pop_nothing();
    push(50);
    pop(50);
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread;

    push(3);
    assert_int_equal(pthread_create(&thread, NULL, other_thread, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    pop(3);
}

static void test_launch(void **state)
{
    dim3 grid = {1, 2, 3}, block = {4, 5, 6}, none = {0, 1, 1};
    void *args[1] = {NULL};
    cudaKernel_t kernel = (cudaKernel_t)(uintptr_t)99;
    cudaStream_t stream = (cudaStream_t)(uintptr_t)0x77;

    assert_int_equal(__cudaLaunchKernel(kernel, grid, block, args, 1000, stream), cudaSuccess);
    assert_true(launched.grid[0] == 1 && launched.grid[1] == 2 && launched.grid[2] == 3);
    assert_true(launched.block[0] == 4 && launched.block[1] == 5 && launched.block[2] == 6);
    assert_true(launched.dynamic_shared_bytes == 1000 && launched.stream == stream && launched.params == args);
    assert_int_equal((uintptr_t)launched.function, 99);
    assert_int_equal(launched.attribute_count, 0);
    assert_int_equal(__cudaLaunchKernel_ptsz(kernel, grid, block, args, 0, NULL), cudaSuccess);
    assert_ptr_equal(launched.stream, CU_STREAM_PER_THREAD);
    assert_int_equal(__cudaLaunchKernel(kernel, grid, block, args, 0, NULL), cudaSuccess);
    assert_null(launched.stream);
    assert_int_equal(__cudaLaunchKernel(kernel, none, block, args, 0, NULL), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(__cudaLaunchKernel(kernel, grid, block, args, ((size_t)1 << 33) + 5, NULL), cudaSuccess);
    assert_int_equal(launched.dynamic_shared_bytes, 5);
}

static void test_attributes(void **state)
{
    dim3 one = {1, 1, 1};
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributePriority, .val = {.priority = -3}};
    cudaLaunchConfig_t config = {.gridDim = one, .blockDim = one, .numAttrs = 1};
    void *args[1] = {NULL};

    assert_int_equal(cudaLaunchKernelExC(NULL, &config, args), cudaErrorInvalidValue);
    assert_int_equal(cudaLaunchKernelExC(&config, &config, args), cudaErrorInvalidValue);
    config.attrs = &attribute;
    assert_int_equal(cudaLaunchKernelExC(&config, &config, args), cudaSuccess);
    assert_int_equal(launched.attribute_count, 1);
    assert_int_equal(launched_attribute.id, CU_LAUNCH_ATTRIBUTE_PRIORITY);
    assert_int_equal(launched_attribute.value.priority, -3);
    assert_int_equal(cudaLaunchCooperativeKernel(&config, one, one, args, 0, NULL), cudaSuccess);
    assert_int_equal(launched_attribute.id, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
    assert_int_equal(launched_attribute.value.cooperative, 1);
    cudaGetLastError();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nesting),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_launch),
        cmocka_unit_test(test_attributes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
