/* What a call's arguments may say: arrays within what came, of the sizes that the row's formulas give, results within
 * their room; and what an object is told before a call. Over a library of the test's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/library/library.h"

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
static unsigned char arguments[ARGUMENTS + sizeof(struct state) + 64] __attribute__((aligned(8))), results[64];

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
    assert_ptr_equal(seen.in, arguments + ARGUMENTS + sizeof(struct state));
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
    assert_ptr_equal(flyt_libcall_scalar(&call, &scalar, 4, 0, false), scalar.value);
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
    assert_int_equal(call.result_bytes, status == INVALID || !value.head.magic ? 0 : sizeof value - sizeof value.head);
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
        cmocka_unit_test(arrays_are_what_the_row_says), cmocka_unit_test(results_are_cleared_first),
        cmocka_unit_test(scalars_are_where_they_say),   cmocka_unit_test(objects_are_told_what_differs),
        cmocka_unit_test(descriptors_are_checked),      cmocka_unit_test(what_a_call_changes_in_a_descriptor_is_told),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
