/* Virtual memory of the program's over a channel without a server: the books of what is reserved, mapped and allowed;
 * when physical memory is let go; and what is made again at another server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/restore_call.h"
#include "cpu/client/cuda/context.h"
#include "cpu/client/cuda/copy.h"
#include "cpu/client/cuda/memory.h"
#include "cpu/client/cuda/stream.h"
#include "cpu/client/cuda/virtual.h"
#include "rpc/base/id.h"

#define GRANULE (2ull << 20)

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                              .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
static const CUmemAccessDesc read_write = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE},
                                           .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static struct {
    CUresult result;      /* of calls about mappings and physical memory */
    char said[4096];      /* what they were, a line each */
    uint64_t next_extent; /* its place in the window */
} server;

static CUresult answer(const char *what, uint64_t id, uint64_t address, uint64_t bytes)
{
    char line[128];
    snprintf(line, sizeof line, "%s %llu at %lld, %llu\n", what, (unsigned long long)flyt_id_number(id),
             address ? (long long)((address - FLYT_VIRTUAL_BASE) / GRANULE) : -1,
             (unsigned long long)(bytes / GRANULE));
    strcat(server.said, line);
    return server.result;
}

static void serve(unsigned procedure, const void *args, void *res, void *data)
{
    if (procedure == FLYT_DEVICE_INFO)
        fake_serve_device_info(res);
    if (procedure == FLYT_DEVICE_INFO || procedure == FLYT_STREAM_SYNCHRONIZE)
        fake.progress.completed = fake.sequence;
    if (procedure == FLYT_VIRTUAL_CREATE) {
        const flyt_virtual_create_args *create = args;
        ((flyt_virtual_create_res *)res)->address = FLYT_WINDOW_BASE + server.next_extent++ * GRANULE;
        ((flyt_virtual_create_res *)res)->result = (int)answer("create", create->physical_id, 0, create->bytes);
    }
    if (procedure == FLYT_VIRTUAL_RELEASE)
        answer("release", ((const flyt_virtual_release_args *)args)->physical_id, 0, 0);
    if (procedure == FLYT_VIRTUAL_MAP) {
        const flyt_virtual_map_args *map = args;
        ((flyt_virtual_map_res *)res)->result = (int)answer("map", map->physical_id, map->address, map->bytes);
    }
    if (procedure == FLYT_VIRTUAL_UNMAP) {
        const flyt_virtual_unmap_args *unmap = args;
        ((flyt_virtual_unmap_res *)res)->result = (int)answer("unmap", 0, unmap->address, unmap->bytes);
    }
    if (procedure == FLYT_VIRTUAL_ACCESS) {
        const flyt_virtual_access_args *access = args;
        ((flyt_virtual_access_res *)res)->result = (int)answer("access", access->flags, access->address, access->bytes);
    }
    if (procedure == FLYT_VIRTUAL_RESTORE) {
        const flyt_virtual_restore_args *restore = args;
        ((flyt_virtual_restore_res *)res)->result = (int)answer(
            "restore", restore->physical_id, restore->address - FLYT_WINDOW_BASE + FLYT_VIRTUAL_BASE, restore->bytes);
    }
}

static void expect_said(const char *lines)
{
    assert_string_equal(server.said, lines);
    server.said[0] = 0;
}

static CUdeviceptr reserve(uint64_t granules)
{
    CUdeviceptr address;
    assert_int_equal(flyt_virtual_reserve(granules * GRANULE, 0, 0, 0, &address), CUDA_SUCCESS);
    return address;
}

static CUmemGenericAllocationHandle create(uint64_t granules)
{
    CUmemGenericAllocationHandle handle;
    assert_int_equal(flyt_virtual_create(granules * GRANULE, &on_device, 0, &handle), CUDA_SUCCESS);
    return handle;
}

static int set_up(void **state)
{
    memset(&server, 0, sizeof server);
    fake.serve = serve;
    return 0;
}

static void reservations_lie_side_by_side(void **state)
{
    CUdeviceptr one = reserve(3), two = reserve(1), three;
    assert_int_equal(one, FLYT_VIRTUAL_BASE);
    assert_int_equal(two, one + 3 * GRANULE);
    assert_int_equal(flyt_virtual_free(one, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_free(one + GRANULE, 2 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_free(one, 3 * GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_free(one, 3 * GRANULE), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_reserve(4096, 0, 0, 0, &three), CUDA_SUCCESS); /* pages are enough */
    assert_int_equal(three, one);
    assert_int_equal(flyt_virtual_free(three, 4096), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_reserve(GRANULE, 0, one + 8 * GRANULE, 0, &three), CUDA_SUCCESS);
    assert_int_equal(three, one + 8 * GRANULE); /* where it was wanted */
    assert_int_equal(flyt_virtual_free(three, GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_reserve(GRANULE, 0, two, 0, &three), CUDA_SUCCESS);
    assert_int_equal(three, one); /* and where that is taken */
    assert_int_equal(flyt_virtual_free(three, GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_reserve(GRANULE, 64 * GRANULE, 0, 0, &three), CUDA_SUCCESS);
    assert_int_equal(three % (64 * GRANULE), 0);
    assert_int_equal(flyt_virtual_free(three, GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_reserve(FLYT_VIRTUAL_BYTES, 0, 0, 0, &three), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_virtual_free(two, GRANULE), CUDA_SUCCESS);
    expect_said(""); /* the server hears of none */
}

static void physical_memory_goes_with_its_last_use(void **state)
{
    CUdeviceptr address = reserve(2);
    CUmemGenericAllocationHandle handle = create(1), again;
    assert_int_equal(flyt_virtual_map(address, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_map(address + GRANULE, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    expect_said("create 1 at -1, 1\nmap 1 at 0, 1\nmap 1 at 1, 1\n");
    assert_int_equal(flyt_virtual_release(handle), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(handle), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_unmap(address, GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_retain(address, &again), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_retain(address + GRANULE + 1, &again), CUDA_SUCCESS);
    assert_int_equal(again, handle);
    assert_int_equal(flyt_virtual_unmap(address + GRANULE, GRANULE), CUDA_SUCCESS);
    expect_said("unmap 0 at 0, 1\nunmap 0 at 1, 1\n");
    assert_int_equal(flyt_virtual_release(again), CUDA_SUCCESS);
    expect_said("release 1 at -1, 0\n");
    assert_int_equal(flyt_virtual_map(address, GRANULE, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_free(address, 2 * GRANULE), CUDA_SUCCESS);
    expect_said("");
}

/* What the server refuses is in no book. */
static void what_the_server_refuses_is_not_there(void **state)
{
    CUdeviceptr address = reserve(1);
    CUmemGenericAllocationHandle handle = create(1), none;
    struct flyt_pointer pointer;
    server.result = CUDA_ERROR_OUT_OF_MEMORY;
    assert_int_equal(flyt_virtual_create(GRANULE, &on_device, 0, &none), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_virtual_map(address, GRANULE, 0, handle, 0), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(flyt_pointer_find((void *)(uintptr_t)address, &pointer), CUDA_SUCCESS);
    assert_int_equal(pointer.kind, FLYT_POINTER_UNKNOWN);
    server.result = CUDA_SUCCESS;
    assert_int_equal(flyt_virtual_map(address, GRANULE, 0, handle, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_pointer_find((void *)(uintptr_t)address, &pointer), CUDA_SUCCESS);
    assert_int_equal(pointer.kind, FLYT_POINTER_DEVICE);
    server.result = CUDA_ERROR_UNKNOWN;
    assert_int_equal(flyt_virtual_unmap(address, GRANULE), CUDA_ERROR_UNKNOWN);
    server.result = CUDA_SUCCESS;
    assert_int_equal(flyt_virtual_unmap(address, GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(handle), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_free(address, GRANULE), CUDA_SUCCESS);
    server.said[0] = 0;
}

static void work_goes_over_neighbours_and_no_further(void **state)
{
    CUdeviceptr address = reserve(4);
    CUmemGenericAllocationHandle one = create(1), two = create(2);
    struct flyt_fill fill = {.address = address + GRANULE - 4, .width = 8, .height = 1, .depth = 1, .element_bytes = 1};
    assert_int_equal(flyt_virtual_map(address, GRANULE, 0, one, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_fill(&fill, CU_STREAM_LEGACY, true), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_map(address + GRANULE, 2 * GRANULE, 0, two, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_fill(&fill, CU_STREAM_LEGACY, true), CUDA_SUCCESS);
    fill.width = 2 * GRANULE + 4;
    assert_int_equal(flyt_fill(&fill, CU_STREAM_LEGACY, true), CUDA_SUCCESS);
    fill.width++;
    assert_int_equal(flyt_fill(&fill, CU_STREAM_LEGACY, true), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(flyt_virtual_unmap(address + GRANULE, GRANULE), CUDA_ERROR_INVALID_VALUE); /* a part */
    assert_int_equal(flyt_virtual_unmap(address, 3 * GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(one), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(two), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_free(address, 4 * GRANULE), CUDA_SUCCESS);
    server.said[0] = 0;
}

/* Access of neighbours comes in one call; what was mapped and has no handle is made, too. */
static void it_is_made_again_as_it_is(void **state)
{
    struct flyt_error err = {0};
    struct flyt_channel *fresh = (struct flyt_channel *)&server;
    CUdeviceptr address = reserve(5);
    CUmemGenericAllocationHandle one = create(1), two = create(2), unmapped = create(1);
    assert_int_equal(flyt_virtual_map(address, GRANULE, 0, one, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_map(address + GRANULE, 2 * GRANULE, 0, two, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_map(address + 4 * GRANULE, GRANULE, 0, two, 0), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(two), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_set_access(address, 3 * GRANULE, &read_write, 1), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_set_access(address + 2 * GRANULE, GRANULE, &read_write, 1), CUDA_ERROR_INVALID_VALUE);
    server.said[0] = 0;
    struct flyt_restore restore = {.fresh = fresh, .sequence = fake.sequence, .err = &err};
    assert_int_equal(flyt_virtual_restore_own(&restore), 0);
    assert_int_equal(flyt_virtual_restore(&restore), 0);
    char wanted[512];
    snprintf(wanted, sizeof wanted,
             "restore %llu at 0, 1\nrestore %llu at 1, 2\nrestore %llu at 2, 1\n"
             "map %llu at 0, 1\nmap %llu at 1, 2\nmap %llu at 4, 1\naccess 3 at 0, 3\n",
             (unsigned long long)flyt_id_number(one), (unsigned long long)flyt_id_number(two),
             (unsigned long long)flyt_id_number(unmapped), (unsigned long long)flyt_id_number(one),
             (unsigned long long)flyt_id_number(two), (unsigned long long)flyt_id_number(two));
    expect_said(wanted);
    server.result = CUDA_ERROR_INVALID_VALUE;
    assert_true(flyt_virtual_restore_own(&restore) < 0);
    assert_string_equal(err.text, "physical memory of device 0, 2097152 bytes cannot be made again: CUDA error 1");
    server.result = CUDA_SUCCESS;
    assert_int_equal(flyt_virtual_unmap(address, 3 * GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_unmap(address + 4 * GRANULE, GRANULE), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(one), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_release(unmapped), CUDA_SUCCESS);
    assert_int_equal(flyt_virtual_free(address, 5 * GRANULE), CUDA_SUCCESS);
}

int main(void)
{
    setenv("FLYT_SERVER", "unix:///nowhere", 1);
    fake.serve = serve;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(reservations_lie_side_by_side, set_up),
        cmocka_unit_test_setup(physical_memory_goes_with_its_last_use, set_up),
        cmocka_unit_test_setup(what_the_server_refuses_is_not_there, set_up),
        cmocka_unit_test_setup(work_goes_over_neighbours_and_no_further, set_up),
        cmocka_unit_test_setup(it_is_made_again_as_it_is, set_up),
    };
    return flyt_runtime_enter() ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
