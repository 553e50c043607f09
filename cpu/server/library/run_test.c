/* What a call's arguments may say: arrays within what came, of the sizes that the row's formulas give, results within
 * their room; and what an object is told before a call. Over a library of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/core/driver.h"
#include "cpu/server/core/session.h"
#include "cpu/server/library/library.h"
#include "rpc/base/id.h"

enum { FINE = 0, INVALID = 7, ARGUMENTS = 16 };

struct state {
    int32_t level, other;
};

static struct {
    uint32_t in_bytes, out_bytes;
    size_t in_wanted, out_wanted;
    const void *in;
    void *out;
    unsigned run_count, apply_count, streamed_count;
    int apply_status;
} seen;

static int run(struct flyt_libcall *call)
{
    seen.run_count++;
    seen.in = flyt_libcall_in(call, seen.in_bytes, seen.in_wanted);
    seen.out = flyt_libcall_out(call, seen.out_bytes, seen.out_wanted);
    return call->status;
}

static int apply(struct flyt_server_library *library, void *real, const void *want, void *have, bool is_streamed)
{
    seen.apply_count++;
    seen.streamed_count += is_streamed;
    if (seen.apply_status == FINE)
        memcpy(have, want, sizeof(struct state));
    return seen.apply_status;
}

static const struct flyt_server_kind kind = {.name = "test", .state_bytes = sizeof(struct state), .apply = apply};
static const struct flyt_server_row row = {.name = "testWork", .run = run, .bytes = ARGUMENTS, .object_count = 1};
static struct flyt_server_library library = {
    .name = "test", .kinds = &kind, .kind_count = 1, .refused = 15, .invalid = INVALID};

static struct flyt_libobject object;
enum { STATE = FLYT_LIB_ALIGN }; /* bytes of its settings in a message */
static unsigned char arguments[ARGUMENTS + STATE + 64] FLYT_LIB_ALIGNED, results[64] FLYT_LIB_ALIGNED;

static struct flyt_libcall a_call(void)
{
    return (struct flyt_libcall){.library = &library,
                                 .row = &row,
                                 .arguments = arguments,
                                 .bytes = sizeof arguments,
                                 .objects = {&object},
                                 .results = results,
                                 .result_capacity = sizeof results};
}

static int run_with(uint32_t in_bytes, size_t in_wanted, uint32_t out_bytes, size_t out_wanted)
{
    struct flyt_libcall call = a_call();
    seen.in_bytes = in_bytes;
    seen.in_wanted = in_wanted;
    seen.out_bytes = out_bytes;
    seen.out_wanted = out_wanted;
    return flyt_libcall_run(&call);
}

static void arrays_are_what_the_row_says(void **state)
{
    assert_int_equal(run_with(12, 12, 20, 20), FINE);
    assert_ptr_equal(seen.in, arguments + ARGUMENTS + STATE);
    assert_ptr_equal(seen.out, results);
    assert_int_equal(run_with(0, 12, 0, 20), FINE); /* none was given */
    assert_null(seen.in);
    assert_null(seen.out);
    assert_int_equal(run_with(12, 16, 20, 20), INVALID);
    assert_int_equal(run_with(12, 12, 20, 24), INVALID);
    assert_int_equal(run_with(12, SIZE_MAX, 20, 20), INVALID); /* a formula that gives no number of bytes */
    assert_int_equal(run_with(64, 64, 0, 0), FINE);            /* all that came */
    assert_int_equal(run_with(65, 65, 0, 0), INVALID);
    assert_int_equal(run_with(UINT32_MAX, UINT32_MAX, 0, 0), INVALID);
    assert_int_equal(run_with(0, 0, 64, 64), FINE);
    assert_int_equal(run_with(0, 0, 65, 65), INVALID);
    assert_int_equal(run_with(0, 0, UINT32_MAX, UINT32_MAX), INVALID);
}

static void results_are_cleared_first(void **state)
{
    memset(results, 0x55, sizeof results);
    assert_int_equal(run_with(0, 0, 13, 13), FINE);
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(results[i], 0);
    assert_int_equal(results[16], 0x55);
}

static void scalars_are_where_they_say(void **state)
{
    struct flyt_libcall call = a_call();
    struct flyt_lib_scalar scalar = {.place = FLYT_LIB_HOST, .bytes = 4, .value = {1, 2, 3, 4}};
    assert_memory_equal(flyt_libcall_scalar(&call, &scalar, 4, 0, false), scalar.value, 4);
    void *written = flyt_libcall_scalar(&call, &scalar, 4, 0, true);
    assert_ptr_equal(written, results);
    assert_memory_equal(written, scalar.value, 4);
    assert_int_equal(call.status, FINE);
    assert_null(flyt_libcall_scalar(&call, &scalar, sizeof scalar.value + 1, 0, false));
    assert_int_equal(call.status, INVALID);
    scalar = (struct flyt_lib_scalar){.place = FLYT_LIB_DEVICE, .address = 0x200000000040};
    assert_ptr_equal(flyt_libcall_scalar(&call, &scalar, 4, 1, true), (void *)0x200000000040);
    /* An address where the mode says that the number is in host memory would be one of the server's. */
    call.status = FINE;
    assert_null(flyt_libcall_scalar(&call, &scalar, 4, 0, true));
    assert_int_equal(call.status, INVALID);
    scalar.place = FLYT_LIB_HOST;
    assert_null(flyt_libcall_scalar(&call, &scalar, 4, 1, false));
    scalar.place = FLYT_LIB_NULL;
    assert_null(flyt_libcall_scalar(&call, &scalar, 4, 0, false));
}

/* NVIDIA's libraries read numbers of 16 bytes with instructions that need it. */
static void what_the_library_reads_is_aligned(void **state)
{
    struct flyt_libcall call = a_call();
    struct flyt_lib_scalar scalar[2] = {{.place = FLYT_LIB_HOST, .bytes = 16, .value = {1}},
                                        {.place = FLYT_LIB_HOST, .bytes = 16, .value = {2}}};
    const unsigned char *first = flyt_libcall_scalar(&call, &scalar[0], 16, 0, false);
    const unsigned char *second = flyt_libcall_scalar(&call, &scalar[1], 16, 0, false);
    assert_true((uintptr_t)first % 16 == 0 && (uintptr_t)second % 16 == 0);
    assert_true(first[0] == 1 && second[0] == 2);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal((uintptr_t)flyt_libcall_in(&call, 4, 4) % 16, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal((uintptr_t)flyt_libcall_out(&call, 4, 4) % 16, 0);
    assert_int_equal(call.status, FINE);
    while (call.status == FINE) /* of a row that has too many there is nothing */
        if (!flyt_libcall_scalar(&call, &scalar[0], 16, 0, false))
            assert_int_equal(call.status, INVALID);
}

static void objects_are_told_what_differs(void **state)
{
    struct state *wanted = (struct state *)(arguments + ARGUMENTS);
    memset(&object, 0, sizeof object);
    object.library = &library;
    object.kind = &kind;
    *wanted = (struct state){0};
    seen.apply_count = seen.run_count = 0;
    assert_int_equal(run_with(0, 0, 0, 0), FINE);
    assert_int_equal(seen.apply_count, 0);
    wanted->level = 3;
    assert_int_equal(run_with(0, 0, 0, 0), FINE);
    assert_int_equal(run_with(0, 0, 0, 0), FINE);
    assert_int_equal(seen.apply_count, 1);
    /* What the library does not take is not noted, and its call not made. */
    wanted->level = 4;
    seen.apply_status = 9;
    assert_int_equal(run_with(0, 0, 0, 0), 9);
    seen.apply_status = FINE;
    assert_int_equal(seen.run_count, 3);
    assert_int_equal(run_with(0, 0, 0, 0), FINE);
    assert_int_equal(seen.apply_count, 3);
}

static int make_some(struct flyt_libcall *call, const void *value, void **ret_real)
{
    *ret_real = results;
    return FINE;
}

static void descriptors_are_checked(void **state)
{
    static const struct flyt_server_value value_kind = {.make = make_some, .destroy_name = "destroy", .magic = 5};
    struct flyt_libcall call = a_call();
    struct flyt_lib_value_head none = {0}, other = {.magic = 6}, right = {.magic = 5};
    assert_null(flyt_libcall_value(&call, &none, &value_kind));
    assert_int_equal(call.status, FINE);
    assert_ptr_equal(flyt_libcall_value(&call, &right, &value_kind), results);
    assert_int_equal(call.status, FINE);
    assert_null(flyt_libcall_value(&call, &other, &value_kind));
    assert_int_equal(call.status, INVALID);
}

/* ---- arrays that the library follows ---- */

typedef void (*check_fn)(struct flyt_libcall *call, const int32_t *array, size_t count);

static void check_offsets(struct flyt_libcall *call, const int32_t *array, size_t count)
{
    flyt_libcall_check_offsets(call, array, count, 5, 1);
}

static void check_indices(struct flyt_libcall *call, const int32_t *array, size_t count)
{
    flyt_libcall_check_indices(call, array, count, 4, 1);
}

static void check_order(struct flyt_libcall *call, const int32_t *array, size_t count)
{
    flyt_libcall_check_order(call, array, count, 4);
}

static int checked(check_fn check, int32_t a, int32_t b, int32_t c, int32_t d)
{
    const int32_t array[] = {a, b, c, d};
    struct flyt_libcall call = a_call();
    check(&call, array, 4);
    return call.status;
}

static void what_the_library_follows_is_looked_at(void **state)
{
    assert_int_equal(checked(check_offsets, 1, 1, 3, 6), FINE);
    assert_int_equal(checked(check_offsets, 1, 4, 3, 6), INVALID);
    assert_int_equal(checked(check_offsets, 0, 1, 3, 6), INVALID);
    assert_int_equal(checked(check_offsets, 1, 1, 3, 7), INVALID);
    assert_int_equal(checked(check_offsets, 1, INT32_MIN, 3, 6), INVALID);
    assert_int_equal(checked(check_indices, 4, 1, 1, 2), FINE);
    assert_int_equal(checked(check_indices, 4, 0, 1, 2), INVALID);
    assert_int_equal(checked(check_indices, 5, 1, 1, 2), INVALID);
    assert_int_equal(checked(check_indices, 1, INT32_MAX, 1, 2), INVALID);
    assert_int_equal(checked(check_order, 3, 0, 2, 1), FINE);
    assert_int_equal(checked(check_order, 3, 0, 2, 2), INVALID);
    assert_int_equal(checked(check_order, 3, 0, 2, 4), INVALID);
    assert_int_equal(checked(check_order, 3, 0, 2, -1), INVALID);
    struct flyt_libcall call = a_call();
    flyt_libcall_check_offsets(&call, NULL, 0, 5, 1); /* none was given */
    flyt_libcall_check_order(&call, NULL, 0, 4);
    assert_int_equal(call.status, FINE);
    flyt_libcall_require(&call, 12, 12);
    assert_int_equal(call.status, FINE);
    flyt_libcall_require(&call, 0, 12);
    assert_int_equal(call.status, INVALID);
}

/* ---- arrays in device memory ---- */

static struct {
    unsigned char bytes[64];
    unsigned synchronize_count;
    CUresult result;
} device;

static void *device_at(CUdeviceptr address)
{
    return device.bytes + (address - FLYT_WINDOW_BASE);
}

static CUresult copy_to_host(void *to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    if (device.result == CUDA_SUCCESS)
        memcpy(to, device_at(from), bytes);
    return device.result;
}

static CUresult copy_to_device(CUdeviceptr to, const void *from, size_t bytes, CUstream stream)
{
    memcpy(device_at(to), from, bytes);
    return CUDA_SUCCESS;
}

static CUresult synchronize(CUstream stream)
{
    device.synchronize_count++;
    return CUDA_SUCCESS;
}

static struct flyt_driver driver = {
    .cuMemcpyDtoHAsync = copy_to_host, .cuMemcpyHtoDAsync = copy_to_device, .cuStreamSynchronize = synchronize};

/* Reads 8 bytes and writes them backwards. */
static int run_staged(struct flyt_libcall *call)
{
    flyt_libcall_stage(call, (const struct flyt_lib_stage *)call->arguments);
    const unsigned char *in = flyt_libcall_in(call, 8, 8);
    unsigned char *out = flyt_libcall_out(call, 8, 8);
    for (int i = 0; in && out && i < 8; i++)
        out[i] = in[7 - i];
    return call->status;
}

static int stage(uint64_t address, uint64_t in_bytes, uint64_t out_bytes, size_t *ret_result_bytes)
{
    static const struct flyt_server_row staged_row = {
        .name = "testStage", .run = run_staged, .bytes = sizeof(struct flyt_lib_stage)};
    const struct flyt_lib_stage place = {address, in_bytes, out_bytes};
    struct flyt_session session = {.driver = &driver};
    struct flyt_libcall call = a_call();
    memcpy(arguments, &place, sizeof place);
    call.session = &session;
    call.row = &staged_row;
    call.objects[0] = NULL;
    int status = flyt_libcall_run(&call);
    assert_null(call.stage.memory);
    *ret_result_bytes = call.result_bytes;
    return status;
}

static void large_arrays_are_in_device_memory(void **state)
{
    size_t bytes;
    for (int i = 0; i < 24; i++)
        device.bytes[i] = (unsigned char)i;
    memset(device.bytes + 32, 0x55, 32);
    assert_int_equal(stage(FLYT_WINDOW_BASE, 16, 16, &bytes), FINE);
    assert_int_equal(bytes, 0);
    for (int i = 0; i < 8; i++)
        assert_true(device.bytes[i] == i && device.bytes[16 + i] == 7 - i);
    assert_int_equal(device.bytes[32], 0x55);
    /* Less than what the row says is no room; nowhere else may memory be than in one window. */
    assert_int_equal(stage(FLYT_WINDOW_BASE, 0, 16, &bytes), INVALID);
    assert_int_equal(stage(FLYT_WINDOW_BASE, 16, 15, &bytes), INVALID);
    assert_int_equal(stage(FLYT_WINDOW_BASE, 24, 16, &bytes), INVALID); /* results would lie in between */
    assert_int_equal(stage((uint64_t)(uintptr_t)arguments, 16, 16, &bytes), INVALID);
    assert_int_equal(stage(FLYT_WINDOW_BASE + FLYT_WINDOW_BYTES - 31, 16, 16, &bytes), INVALID);
    assert_int_equal(stage(FLYT_WINDOW_BASE, UINT64_MAX - 15, 16, &bytes), INVALID);
    assert_int_equal(stage(FLYT_WINDOW_BASE, 16, UINT64_MAX - 15, &bytes), INVALID);
    device.result = CUDA_ERROR_INVALID_VALUE;
    assert_int_equal(stage(FLYT_WINDOW_BASE, 16, 16, &bytes), INVALID);
    device.result = CUDA_SUCCESS;
    assert_int_equal(stage(0, 0, 0, &bytes), FINE); /* in the call */
    assert_int_equal(bytes, 16);
}

/* The library writes 8 bytes; `place` is where. */
static uint64_t place;
static size_t place_bytes;

static int run_either(struct flyt_libcall *call)
{
    void *out = flyt_libcall_either(call, place, place_bytes, 1);
    if (call->status != FINE)
        return call->status;
    seen.out = out;
    if (out != (void *)(uintptr_t)place)
        memcpy(out, "12345678", 8);
    return FINE;
}

static int draw(unsigned kind_number, uint64_t address, size_t bytes)
{
    static const struct flyt_server_kind kinds[2] = {{.name = "device", .apply = apply},
                                                     {.name = "host", .apply = apply}};
    static const struct flyt_server_row either_row = {.name = "testDraw", .run = run_either, .object_count = 1};
    static struct flyt_server_library host_library = {
        .name = "test", .kinds = kinds, .kind_count = 2, .invalid = INVALID, .failed = 6};
    struct flyt_libobject one = {.library = &host_library, .kind = &kinds[kind_number]};
    struct flyt_session session = {.driver = &driver};
    struct flyt_libcall call = a_call();
    place = address;
    place_bytes = bytes;
    call.library = &host_library;
    call.row = &either_row;
    call.session = &session;
    call.objects[0] = &one;
    int status = flyt_libcall_run(&call);
    assert_null(call.fetched.memory);
    return status;
}

static void a_host_objects_results_go_to_device_memory(void **state)
{
    memset(device.bytes, 0x55, sizeof device.bytes);
    assert_int_equal(draw(0, FLYT_WINDOW_BASE + 8, 8), FINE);
    assert_ptr_equal(seen.out, (void *)(FLYT_WINDOW_BASE + 8));
    assert_int_equal(device.bytes[8], 0x55);
    assert_int_equal(draw(1, FLYT_WINDOW_BASE + 8, 8), FINE);
    assert_memory_equal(device.bytes + 7, "U12345678U", 10);
    /* The server's own memory is no place for them. */
    assert_int_equal(draw(1, (uint64_t)(uintptr_t)arguments, 8), INVALID);
    assert_int_equal(draw(1, FLYT_WINDOW_BASE + 8, SIZE_MAX), INVALID);
    assert_int_equal(draw(1, FLYT_WINDOW_BASE + FLYT_WINDOW_BYTES - 4, 8), INVALID);
}

/* What works in no stream of the program's is waited for. */
static void a_default_stream_is_waited_for(void **state)
{
    static const struct flyt_server_kind plain = {.name = "test", .apply = apply},
                                         unstreamed = {.name = "test", .apply = apply, .is_unstreamed = true};
    struct flyt_session session = {.driver = &driver};
    for (int i = 0; i < 2; i++) {
        struct flyt_libobject one = {.library = &library, .kind = i ? &unstreamed : &plain};
        struct flyt_libcall call = a_call();
        call.session = &session;
        call.objects[0] = &one;
        seen.in_bytes = seen.out_bytes = 0;
        device.synchronize_count = 0;
        assert_int_equal(flyt_libcall_run(&call), FINE);
        assert_int_equal(device.synchronize_count, i);
    }
}

/* ---- descriptors that are made by hand, and changed by the call ---- */

struct grain {
    struct flyt_lib_value_head head;
    int64_t count;
};

static struct {
    int make_status, tell_status;
} mill;

static int make_grain(struct flyt_libcall *call, const void *value, void **ret_real)
{
    (void)call;
    *ret_real = (void *)(uintptr_t)((const struct grain *)value)->count;
    return mill.make_status;
}

static int tell_grain(struct flyt_libcall *call, void *real, void *value)
{
    (void)call;
    ((struct grain *)value)->count = (int64_t)(uintptr_t)real + 30;
    return mill.tell_status;
}

static const struct flyt_server_value grain_kind = {
    .make = make_grain, .tell = tell_grain, .destroy_name = "destroy", .magic = 5, .bytes = sizeof(struct grain)};

static int run_grain(struct flyt_libcall *call)
{
    const struct grain *value = (const void *)call->arguments;
    void *real = flyt_libcall_value_set(call, value, &grain_kind);
    if (real)
        assert_int_equal((uintptr_t)real, value->count);
    return call->status;
}

static int grind(struct grain value, size_t room, int64_t *ret_count)
{
    static const struct flyt_server_row grain_row = {.name = "testGrind", .run = run_grain, .bytes = sizeof value};
    struct flyt_libcall call = a_call();
    memcpy(arguments, &value, sizeof value);
    memset(results, 0x55, sizeof results);
    call.row = &grain_row;
    call.objects[0] = NULL;
    call.result_capacity = room;
    int status = flyt_libcall_run(&call);
    assert_int_equal(call.value_count, 0);
    assert_int_equal(call.result_bytes,
                     status == INVALID || !value.head.magic ? 0 : flyt_lib_align(sizeof value - sizeof value.head));
    memcpy(ret_count, results, sizeof *ret_count);
    return status;
}

static void what_a_call_changes_in_a_descriptor_is_told(void **state)
{
    const struct grain grain = {.head = {.magic = 5, .is_owned = 1}, .count = 12}, none = {.count = 12},
                       other = {.head = {.magic = 6}, .count = 12};
    int64_t count;
    assert_int_equal(grind(grain, sizeof results, &count), FINE);
    assert_int_equal(count, 42);
    assert_int_equal(grind(none, sizeof results, &count), FINE);
    assert_int_equal(grind(other, sizeof results, &count), INVALID);
    assert_int_equal(grind(grain, sizeof grain - sizeof grain.head - 1, &count), INVALID);
    mill.tell_status = 9;
    assert_int_equal(grind(grain, sizeof results, &count), 9);
    mill.tell_status = FINE;
}

static int set_up(void **state)
{
    object.library = &library;
    object.kind = &kind;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_are_what_the_row_says),
        cmocka_unit_test(results_are_cleared_first),
        cmocka_unit_test(scalars_are_where_they_say),
        cmocka_unit_test(what_the_library_reads_is_aligned),
        cmocka_unit_test(objects_are_told_what_differs),
        cmocka_unit_test(descriptors_are_checked),
        cmocka_unit_test(what_a_call_changes_in_a_descriptor_is_told),
        cmocka_unit_test(what_the_library_follows_is_looked_at),
        cmocka_unit_test(large_arrays_are_in_device_memory),
        cmocka_unit_test(a_host_objects_results_go_to_device_memory),
        cmocka_unit_test(a_default_stream_is_waited_for),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
