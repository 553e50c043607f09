/*
 * Priorities of streams and launches: what a program is told of them, and that it comes no further than its VM, by none
 * of the ways in which it can ask for one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/core/call.h"
#include "cpu/server/test/fake_client.h"
#include "cpu/server/core/priority.h"
#include "cpu/server/core/scrub.h"
#include "cpu/server/cuda/module.h"
#include "flyt_serve.h"

enum { VM_MAX = 1000, PROGRAM_MAX = 12 };

static struct flyt_driver driver;
static const struct flyt_driver *fake;
static int driver_least, driver_greatest; /* as it tells them */
static int launched, created;             /* with which priority last */

static CUresult tell_range(int *ret_least, int *ret_greatest)
{
    *ret_least = driver_least;
    *ret_greatest = driver_greatest;
    return CUDA_SUCCESS;
}

static CUresult launch(const CUlaunchConfig *config, CUfunction function, void **params, void **extra)
{
    for (unsigned i = 0; i < config->numAttrs; i++)
        if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PRIORITY)
            launched = config->attrs[i].value.priority;
    return CUDA_SUCCESS;
}

static CUresult create_stream(CUstream *ret_stream, CUgreenCtx green, unsigned flags, int priority)
{
    created = priority;
    return fake->cuGreenCtxStreamCreate(ret_stream, green, flags, priority);
}

/* A session that nobody serves: the test makes its calls itself. */
static struct fixture *begin(struct flyt_manager *manager)
{
    fake = flyt_fake_driver();
    driver = *fake;
    driver_least = 0;
    driver_greatest = -5;
    driver.cuCtxGetStreamPriorityRange = tell_range;
    driver.cuLaunchKernelEx = launch;
    driver.cuGreenCtxStreamCreate = create_stream;
    struct fixture *self = make_over(&driver);
    self->session.manager = manager;
    return self;
}

static void end(struct fixture *self)
{
    close(self->fd);
    self->session.manager = NULL;
    flyt_session_fini(&self->session);
    free(self);
}

static int of_vm(struct fixture *self, int vm, int program)
{
    self->session.devices[0].time_slice_gate.priority = vm;
    return flyt_priority(&self->session.devices[0], program);
}

/* Whatever both programs ask for. The greater priority is the lower number. */
static void none_comes_before_a_higher_vm(void **state)
{
    struct flyt_manager manager = {0};
    struct fixture *self = begin(&manager);
    for (int vm = -VM_MAX; vm < VM_MAX; vm++)
        for (int asked = -PROGRAM_MAX; asked <= PROGRAM_MAX; asked++) {
            int one = of_vm(self, vm, asked);
            assert_in_range(-one, 0, 5);
            assert_true(one <= of_vm(self, vm, asked + 1)); /* of its own streams the order is what it asked for */
            assert_true(of_vm(self, vm + 1, 0) <= of_vm(self, vm, 0));
            if (of_vm(self, vm + 1, 0) < of_vm(self, vm, 0))
                assert_true(of_vm(self, vm + 1, PROGRAM_MAX) < one);
        }
    assert_int_equal(of_vm(self, 0, 0), -2);
    assert_int_equal(of_vm(self, 0, -1), -3);
    assert_int_equal(of_vm(self, 0, -5), -3);
    assert_int_equal(of_vm(self, 0, INT32_MIN), -3);
    assert_int_equal(of_vm(self, 0, INT32_MAX), -2);
    assert_int_equal(of_vm(self, 1, 0), -4);
    assert_int_equal(of_vm(self, VM_MAX, -1), -5);
    assert_int_equal(of_vm(self, -1, 0), 0);
    assert_int_equal(of_vm(self, -VM_MAX, -1), -1);
    end(self);
}

/* GPUs of fewer levels, and what is told of each. */
static void the_range_is_what_there_is(void **state)
{
    static const struct {
        int greatest, told, base, raised, higher;
    } gpus[] = {{-5, -1, -2, -3, -4}, {-3, -1, 0, -1, -2}, {-2, 0, -1, -1, -2}, {-1, 0, 0, 0, -1}, {0, 0, 0, 0, 0}};
    struct flyt_manager manager = {0};
    struct fixture *self = begin(&manager);
    struct flyt_device *device = &self->session.devices[0];
    int least, greatest;
    for (unsigned i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        driver_greatest = gpus[i].greatest;
        assert_int_equal(flyt_priority_range(device, &least, &greatest), CUDA_SUCCESS);
        assert_int_equal(least, 0);
        assert_int_equal(greatest, gpus[i].told);
        assert_int_equal(of_vm(self, 0, 0), gpus[i].base);
        assert_int_equal(of_vm(self, 0, -5), gpus[i].raised);
        assert_int_equal(of_vm(self, 1, 0), gpus[i].higher);
        /* It comes no further than its VM. */
        assert_true(of_vm(self, 1, 0) < of_vm(self, 0, -5) || gpus[i].greatest == 0);
    }
    /* Alone with the GPU it has all of them, as natively. */
    self->session.manager = NULL;
    driver_greatest = -5;
    assert_int_equal(flyt_priority_range(device, &least, &greatest), CUDA_SUCCESS);
    assert_int_equal(least, 0);
    assert_int_equal(greatest, -5);
    assert_int_equal(of_vm(self, 0, -4), -4);
    end(self);
}

/* cudaStreamCreateWithPriority, and new memory's clearing, which the program brings about. */
static void by_streams(void **state)
{
    struct flyt_manager manager = {0};
    struct fixture *self = begin(&manager);
    struct flyt_device *device = &self->session.devices[0];
    struct flyt_call call = {.session = &self->session};
    static const int asked[] = {0, -1, -5, -1000}, want[] = {-2, -3, -3, -3};
    for (unsigned i = 0; i < 4; i++) {
        const flyt_stream_create_args args = {
            .stream_id = stream_id(i), .flags = CU_STREAM_NON_BLOCKING, .priority = asked[i]};
        assert_int_equal(flyt_serve_stream_create(&call, &args), CUDA_SUCCESS);
        assert_int_equal(created, want[i]);
    }
    struct flyt_fence *fence;
    self->session.is_scrubbing = true;
    assert_int_equal(flyt_scrub_begin(device, 1 << 20, 1 << 20, &fence), CUDA_SUCCESS);
    assert_int_equal(created, -3);
    flyt_fence_unref(fence);
    end(self);
}

/* cudaLaunchAttributePriority. */
static void by_launches(void **state)
{
    struct flyt_manager manager = {0};
    struct fixture *self = begin(&manager);
    struct flyt_device *device = &self->session.devices[0];
    struct flyt_call call = {.session = &self->session};
    struct flyt_kernel kernel = {.reserved_mask = 1};
    static const int asked[] = {0, -1, -5, -1000, 7}, want[] = {-2, -3, -3, -3, -2}, higher[] = {-4, -5, -5, -5, -4};
    for (unsigned vm = 0; vm < 2; vm++)
        for (unsigned i = 0; i < 5; i++) {
            flyt_launch_attribute attribute = {.id = CU_LAUNCH_ATTRIBUTE_PRIORITY};
            memcpy(attribute.value, &asked[i], sizeof asked[i]);
            const flyt_kernel_launch_args args = {.grid = {1, 1, 1},
                                                  .block = {1, 1, 1},
                                                  .attributes = {.attributes_len = 1, .attributes_val = &attribute}};
            device->time_slice_gate.priority = (int)vm;
            assert_int_equal(flyt_serve_kernel_launch(&call, &args, device->legacy, &kernel), CUDA_SUCCESS);
            assert_int_equal(launched, vm ? higher[i] : want[i]);
        }
    end(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(none_comes_before_a_higher_vm),
        cmocka_unit_test(the_range_is_what_there_is),
        cmocka_unit_test(by_streams),
        cmocka_unit_test(by_launches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
