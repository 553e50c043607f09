/* Devices of a session with several GPUs: what asking for their properties makes, and access of one to another's
 * memory. */
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
#include "cpu/server/cuda/memory.h"
#include "cpu/server/cuda/reserve.h"
#include "flyt_serve.h"

enum { DEVICES = 4, EXTENTS = 5, EXTENT_BYTES = 64 << 20 };

static struct flyt_driver driver;
static unsigned context_count, access_count, fail_at;
static struct {
    CUdeviceptr address;
    unsigned devices; /* that may access it, as bits */
} memory[64];

static CUresult count_devices(int *ret_count)
{
    *ret_count = DEVICES;
    return CUDA_SUCCESS;
}

static CUresult retain(CUcontext *ret_context, CUdevice device)
{
    context_count++;
    *ret_context = (CUcontext)(uintptr_t)(device + 1);
    return CUDA_SUCCESS;
}

static CUresult tell_name(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "GPU %d", device);
    return CUDA_SUCCESS;
}

static CUresult tell_uuid(CUuuid *ret_uuid, CUdevice device)
{
    memset(ret_uuid, device, sizeof *ret_uuid);
    return CUDA_SUCCESS;
}

static CUresult tell_memory(size_t *ret_bytes, CUdevice device)
{
    *ret_bytes = (size_t)(device + 1) << 30;
    return CUDA_SUCCESS;
}

static CUresult tell_bus(char *name, int bytes, CUdevice device)
{
    snprintf(name, (size_t)bytes, "0000:%02x:00.0", device);
    return CUDA_SUCCESS;
}

static CUresult tell_attribute(int *ret_value, CUdevice_attribute attribute, CUdevice device)
{
    *ret_value = 100 + device;
    return CUDA_SUCCESS;
}

static CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    unsigned place = 0;
    while (memory[place].address && memory[place].address != address)
        place++;
    memory[place].address = address;
    if (++access_count == fail_at)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < count; i++)
        if (access[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
            memory[place].devices &= ~(1u << access[i].location.id);
        else
            memory[place].devices |= 1u << access[i].location.id;
    return CUDA_SUCCESS;
}

static struct fixture *begin(void)
{
    driver = *flyt_fake_driver();
    driver.cuDeviceGetCount = count_devices;
    driver.cuDevicePrimaryCtxRetain = retain;
    driver.cuDeviceGetName = tell_name;
    driver.cuDeviceGetUuid = tell_uuid;
    driver.cuDeviceTotalMem = tell_memory;
    driver.cuDeviceGetPCIBusId = tell_bus;
    driver.cuDeviceGetAttribute = tell_attribute;
    driver.cuMemSetAccess = set_access;
    context_count = access_count = fail_at = 0;
    memset(memory, 0, sizeof memory);
    return make_over(&driver);
}

static void end(struct fixture *self)
{
    close(self->fd);
    flyt_session_fini(&self->session);
    free(self);
}

static void properties_make_no_contexts(void **state)
{
    struct fixture *self = begin();
    struct flyt_call call = {.session = &self->session};
    assert_int_equal(context_count, 1); /* of the first device, which a program begins with */
    for (unsigned round = 0; round < 2; round++) {
        for (unsigned i = 0; i < DEVICES; i++) {
            flyt_device_info_res res = {0};
            const flyt_device_info_args args = {.device = i};
            assert_int_equal(flyt_serve_device_info(&call, &args, &res), CUDA_SUCCESS);
            assert_int_equal(res.total_bytes, (uint64_t)(i + 1) << 30);
            assert_int_equal(res.uuid[0], i);
            assert_int_equal(res.attributes.attributes_val[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT], 100 + (int)i);
            assert_int_equal(res.least_priority, 0);
            assert_int_equal(res.greatest_priority, -5);
            xdr_free((xdrproc_t)xdr_flyt_device_info_res, &res);
        }
        self->session.current_device = NULL; /* as where a data stream has made a buffer */
    }
    assert_int_equal(context_count, 1);
    for (unsigned i = 1; i < DEVICES; i++)
        assert_false(self->session.devices[i].is_made);
    flyt_device_info_res res = {0};
    const flyt_device_info_args beyond = {.device = DEVICES};
    assert_int_equal(flyt_serve_device_info(&call, &beyond, &res), CUDA_ERROR_INVALID_DEVICE);
    end(self);
}

/* Lines of the L2 cache that are set aside are taken from all who share the GPU, also without a node manager. */
static void set_aside_are_lines_of_a_gpu_that_is_its_own(void **state)
{
    static const CUdevice_attribute asked[] = {CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE,
                                               CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE};
    struct fixture *self = begin();
    struct flyt_call call = {.session = &self->session};
    for (unsigned is_mps = 0; is_mps < 2; is_mps++) {
        flyt_device_info_res res = {0};
        const flyt_device_info_args args = {.device = 0};
        self->session.is_mps = is_mps;
        assert_int_equal(flyt_serve_device_info(&call, &args, &res), CUDA_SUCCESS);
        for (unsigned i = 0; i < sizeof asked / sizeof asked[0]; i++)
            assert_int_equal(res.attributes.attributes_val[asked[i]], is_mps ? 0 : 100);
        xdr_free((xdrproc_t)xdr_flyt_device_info_res, &res);
        assert_int_equal(flyt_reserve_limit(&self->session.devices[0], CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 1 << 20),
                         is_mps ? CUDA_ERROR_UNSUPPORTED_LIMIT : CUDA_SUCCESS);
        assert_int_equal(flyt_reserve_limit(&self->session.devices[0], CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
    }
    end(self);
}

/* Extents of device 0 that device 1 may access. */
static unsigned accessible(void)
{
    unsigned count = 0;
    for (unsigned i = 0; memory[i].address; i++)
        count += memory[i].devices >> 1 & 1;
    return count;
}

static void access_that_fails_midway_is_none(void **state)
{
    struct fixture *self = begin();
    struct flyt_device *device = &self->session.devices[0], *peer = &self->session.devices[1];
    assert_int_equal(flyt_device_make(peer), CUDA_SUCCESS);
    assert_int_equal(flyt_device_use(device), CUDA_SUCCESS);
    for (unsigned i = 0; i < EXTENTS; i++) {
        uint64_t address;
        assert_int_equal(flyt_memory_alloc(device, EXTENT_BYTES, &address), CUDA_SUCCESS);
    }
    unsigned extents = (unsigned)device->memory->extent_count;
    assert_true(extents >= EXTENTS);
    for (unsigned at = 1; at <= extents; at++) {
        fail_at = access_count + at;
        assert_int_equal(flyt_memory_set_peer(device, peer, true), CUDA_ERROR_OUT_OF_MEMORY);
        assert_int_equal(accessible(), 0);
        assert_int_equal(device->peer_mask, 0);
    }
    fail_at = 0;
    assert_int_equal(flyt_memory_set_peer(device, peer, true), CUDA_SUCCESS);
    assert_int_equal(accessible(), extents);
    assert_int_equal(device->peer_mask, 2);
    /* Taking it away goes as far as the driver lets it. */
    fail_at = access_count + 2;
    assert_int_equal(flyt_memory_set_peer(device, peer, false), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(accessible(), 1);
    assert_int_equal(device->peer_mask, 0);
    end(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties_make_no_contexts),
        cmocka_unit_test(set_aside_are_lines_of_a_gpu_that_is_its_own),
        cmocka_unit_test(access_that_fails_midway_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
