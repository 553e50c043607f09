/* In which order device-to-host transfers land: chunks take different connections and come in any order. And when the
 * memory of those to the device is read. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/client/bulk/transfer.h"
#include "cpu/client/core/instance.h"
#include "cpu/client/core/fake_channel.h"

enum { WHOLE = 1 << 16, HALF = WHOLE / 2, QUARTER = WHOLE / 4 };

static char memory[WHOLE];

static struct flyt_transfer *begin(size_t offset, size_t bytes)
{
    const struct flyt_host_box host = {.address = (uint64_t)(uintptr_t)memory + offset,
                                       .width_bytes = bytes,
                                       .height = 1,
                                       .depth = 1,
                                       .pitch_bytes = bytes,
                                       .slice_bytes = bytes};
    struct flyt_transfer *transfer = flyt_transfer_new(&host, true, 0);
    assert_non_null(transfer);
    return transfer;
}

/* The server's part. */
static void deliver(struct flyt_transfer *transfer, uint64_t offset_bytes, size_t bytes, int value)
{
    void *place = flyt_transfer_chunk_place(NULL, flyt_transfer_id(transfer), offset_bytes, bytes);
    assert_non_null(place);
    memset(place, value, bytes);
    flyt_transfer_chunk_done(NULL, flyt_transfer_id(transfer), offset_bytes, bytes);
}

static void expect(size_t begin, size_t end, int value)
{
    for (size_t i = begin; i < end; i++)
        assert_int_equal(memory[i], value);
}

static int reset(void **state)
{
    memset(memory, 0, sizeof memory);
    return 0;
}

static void copies_to_the_same_memory_land_in_order(void **state)
{
    struct flyt_transfer *first = begin(0, HALF), *second = begin(0, HALF), *third = begin(QUARTER, HALF);
    deliver(third, 0, HALF, 3);
    deliver(second, QUARTER, QUARTER, 2);
    deliver(first, 0, QUARTER, 1);
    assert_false(first->is_done || second->is_done || third->is_done);
    deliver(first, QUARTER, QUARTER, 1);
    deliver(second, 0, QUARTER, 2);
    assert_true(first->is_done && second->is_done && third->is_done);
    expect(0, QUARTER, 2);
    expect(QUARTER, QUARTER + HALF, 3);
    flyt_transfer_unref(first);
    flyt_transfer_unref(second);
    flyt_transfer_unref(third);
}

/* A chunk that is being read when the earlier copy is done lands by itself. */
static void a_chunk_that_is_still_being_read_lands_later(void **state)
{
    struct flyt_transfer *first = begin(0, WHOLE), *second = begin(0, WHOLE);
    void *place = flyt_transfer_chunk_place(NULL, flyt_transfer_id(second), 0, WHOLE);
    assert_non_null(place);
    memset(place, 2, WHOLE);
    deliver(first, 0, WHOLE, 1);
    expect(0, WHOLE, 1);
    flyt_transfer_chunk_done(NULL, flyt_transfer_id(second), 0, WHOLE);
    expect(0, WHOLE, 2);
    assert_true(second->is_done);
    flyt_transfer_unref(first);
    flyt_transfer_unref(second);
}

static void copies_to_other_memory_wait_for_none(void **state)
{
    struct flyt_transfer *first = begin(0, QUARTER), *other = begin(HALF, QUARTER), *between = begin(QUARTER, QUARTER);
    deliver(between, 0, QUARTER, 3);
    deliver(other, 0, QUARTER, 2);
    assert_true(between->is_done && other->is_done && !first->is_done);
    expect(QUARTER, HALF, 3);
    expect(HALF, HALF + QUARTER, 2);
    deliver(first, 0, QUARTER, 1);
    flyt_transfer_unref(first);
    flyt_transfer_unref(other);
    flyt_transfer_unref(between);
}

static void a_copy_behind_one_that_failed_lands(void **state)
{
    struct flyt_transfer *first = begin(0, WHOLE), *second = begin(0, WHOLE);
    deliver(second, 0, WHOLE, 2);
    expect(0, WHOLE, 0);
    flyt_transfer_failed(NULL, flyt_transfer_id(first), CUDA_ERROR_OUT_OF_MEMORY);
    expect(0, WHOLE, 2);
    flyt_transfer_unref(first);
    flyt_transfer_unref(second);
}

/* Its owner may free the memory: nothing of it lands afterwards, and what was behind it does. */
static void what_was_held_of_an_aborted_copy_is_dropped(void **state)
{
    struct flyt_transfer *first = begin(0, WHOLE), *second = begin(0, WHOLE), *third = begin(0, WHOLE);
    deliver(second, 0, WHOLE, 2);
    deliver(third, 0, WHOLE, 3);
    flyt_transfer_abort(second, CUDA_ERROR_UNKNOWN);
    assert_true(second->is_done);
    expect(0, WHOLE, 0);
    deliver(first, 0, WHOLE, 1);
    expect(0, WHOLE, 3);
    flyt_transfer_unref(first);
    flyt_transfer_unref(second);
    flyt_transfer_unref(third);
}

/* It is in use until then, in whatever parts it is read. */
static void a_box_with_gaps_is_read_as_it_is_sent(void **state)
{
    enum { WIDTH = 100, HEIGHT = 64, PITCH = 160 };
    const size_t part = 77;
    const struct flyt_host_box host = {.address = (uint64_t)(uintptr_t)memory,
                                       .width_bytes = WIDTH,
                                       .height = HEIGHT,
                                       .depth = 1,
                                       .pitch_bytes = PITCH};
    static unsigned char packed[WIDTH * HEIGHT];
    struct flyt_transfer *transfer = flyt_transfer_new(&host, false, 0);
    assert_non_null(transfer);
    fake.is_data_held = true;
    flyt_transfer_send(flyt_client.channel, transfer);
    assert_non_null(fake.held_pack);
    assert_int_equal(fake.data_bytes, sizeof packed);
    assert_false(transfer->is_done);
    for (size_t i = 0; i < sizeof memory; i++)
        memory[i] = (char)(i % PITCH < WIDTH ? i / PITCH + i % PITCH : 0xee);
    for (size_t done = 0; done < sizeof packed; done += part)
        fake.held_pack(fake.held_user, done, packed + done, sizeof packed - done < part ? sizeof packed - done : part);
    for (size_t i = 0; i < sizeof packed; i++)
        assert_int_equal(packed[i], (i / WIDTH + i % WIDTH) & 0xff);
    assert_false(transfer->is_done);
    fake.held_done(fake.held_user, flyt_transfer_id(transfer), FLYT_CHANNEL_OK);
    assert_true(transfer->is_done);
    flyt_transfer_unref(transfer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(copies_to_the_same_memory_land_in_order, reset),
        cmocka_unit_test_setup(a_chunk_that_is_still_being_read_lands_later, reset),
        cmocka_unit_test_setup(copies_to_other_memory_wait_for_none, reset),
        cmocka_unit_test_setup(a_copy_behind_one_that_failed_lands, reset),
        cmocka_unit_test_setup(what_was_held_of_an_aborted_copy_is_dropped, reset),
        cmocka_unit_test_setup(a_box_with_gaps_is_read_as_it_is_sent, reset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
