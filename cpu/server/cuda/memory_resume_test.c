/* The memory of a session that goes on: what the driver is asked for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cpu/server/cuda/allocator.h"
#include "cpu/server/test/fake_driver.h"
#include "cpu/server/cuda/memory.h"
#include "cpu/server/core/session.h"
#include "rpc/base/id.h"

enum { CALLS_MAX = 16 };

static struct {
    uint64_t address, bytes;
} allowed[CALLS_MAX];
static unsigned allowed_count, mapped_count;

static CUresult note_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    assert_in_range(allowed_count, 0, CALLS_MAX - 1);
    assert_int_equal(count, 1);
    allowed[allowed_count].address = address;
    allowed[allowed_count++].bytes = bytes;
    return CUDA_SUCCESS;
}

static CUresult note_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                         unsigned long long flags)
{
    mapped_count++;
    return CUDA_SUCCESS;
}

/* Granules of the window, each an extent: m, mapped already, and its device may access it; n, not; ., none is there. */
static struct flyt_session *adopt(struct flyt_driver *driver, const char *granules)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    assert_non_null(session);
    *driver = *flyt_fake_driver();
    driver->cuMemSetAccess = note_access;
    driver->cuMemMap = note_map;
    allowed_count = mapped_count = 0;
    session->driver = driver;
    session->device_count = 1;
    struct flyt_device *device = &session->devices[0];
    device->session = session;
    device->memory = calloc(1, sizeof *device->memory);
    assert_non_null(device->memory);
    flyt_allocator_init(&device->memory->addresses, FLYT_GRANULE_BYTES);
    assert_int_equal(flyt_allocator_add(&device->memory->addresses, flyt_window_base(0), FLYT_WINDOW_BYTES), 0);
    for (unsigned i = 0; granules[i]; i++)
        if (granules[i] != '.')
            assert_int_equal(flyt_memory_adopt(device, i + 1, flyt_window_base(0) + i * FLYT_GRANULE_BYTES,
                                               FLYT_GRANULE_BYTES, i + 1, granules[i] == 'm'),
                             CUDA_SUCCESS);
    assert_int_equal(flyt_memory_allow_adopted(device), CUDA_SUCCESS);
    return session;
}

static void forget(struct flyt_session *session)
{
    struct flyt_memory *memory = session->devices[0].memory;
    for (unsigned i = 0; i < memory->given_count; i++)
        free(memory->given[i]);
    free(memory->given);
    flyt_allocator_fini(&memory->addresses);
    free(memory);
    free(session);
}

static void expect_allowed(unsigned n, unsigned granule, unsigned count)
{
    assert_in_range(n, 0, allowed_count - 1);
    assert_true(allowed[n].address == flyt_window_base(0) + granule * FLYT_GRANULE_BYTES);
    assert_true(allowed[n].bytes == count * FLYT_GRANULE_BYTES);
}

static void what_lies_side_by_side_is_allowed_in_one_step(void **state)
{
    struct flyt_driver driver;
    struct flyt_session *session = adopt(&driver, "nnn.nn");
    assert_int_equal(mapped_count, 5);
    assert_int_equal(allowed_count, 2);
    expect_allowed(0, 0, 3);
    expect_allowed(1, 4, 2);
    forget(session);
}

/* It was when it was mapped, before the session came: over tens of gigabytes that takes its time. */
static void what_may_be_accessed_is_not_allowed_again(void **state)
{
    struct flyt_driver driver;
    struct flyt_session *session = adopt(&driver, "mmm.mm");
    assert_int_equal(mapped_count + allowed_count, 0);
    forget(session);
    session = adopt(&driver, "mnnm.nmn");
    assert_int_equal(mapped_count, 4);
    assert_int_equal(allowed_count, 3);
    expect_allowed(0, 1, 2);
    expect_allowed(1, 5, 1);
    expect_allowed(2, 7, 1);
    forget(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_lies_side_by_side_is_allowed_in_one_step),
        cmocka_unit_test(what_may_be_accessed_is_not_allowed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
