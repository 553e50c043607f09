#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "cpu/client/bulk/copy_plan.h"
#include "cpu/client/bulk/transfer.h"
#include "rpc/proto/limits.h"

static enum flyt_route in(bool is_async, bool is_pinned, bool is_writer_pending, uint64_t bytes)
{
    struct flyt_copy_facts facts = {.is_async = is_async,
                                    .is_pinned = is_pinned,
                                    .is_plain = true,
                                    .is_writer_pending = is_writer_pending,
                                    .bytes = bytes};
    return flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &facts);
}

static enum flyt_route out(bool is_async, bool is_pinned, uint64_t bytes)
{
    struct flyt_copy_facts facts = {.is_async = is_async, .is_pinned = is_pinned, .is_plain = true, .bytes = bytes};
    return flyt_copy_route(FLYT_PLACE_HOST, FLYT_PLACE_DEVICE, &facts);
}

static void test_pageable_source_is_read_before_return(void **state)
{
    for (int is_async = 0; is_async < 2; is_async++) {
        for (int is_pending = 0; is_pending < 2; is_pending++) {
            assert_int_equal(in(is_async, false, is_pending, FLYT_INLINE_BYTES_MAX), FLYT_ROUTE_IN_INLINE);
            assert_int_equal(in(is_async, false, is_pending, FLYT_INLINE_BYTES_MAX + 1), FLYT_ROUTE_IN_NOW);
        }
    }
}

static void test_pinned_source_waits_for_its_writers(void **state)
{
    assert_int_equal(in(true, true, true, 4), FLYT_ROUTE_IN_PULL);
    assert_int_equal(in(true, true, true, 1 << 20), FLYT_ROUTE_IN_PULL);
    assert_int_equal(in(false, true, true, 1 << 20), FLYT_ROUTE_IN_PULL);
    assert_int_equal(in(true, true, false, 4), FLYT_ROUTE_IN_INLINE);
    assert_int_equal(in(true, true, false, 1 << 20), FLYT_ROUTE_IN_BACKGROUND);
    const struct flyt_copy_facts gaps = {.is_async = true, .is_pinned = true, .bytes = 1 << 20};
    assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &gaps), FLYT_ROUTE_IN_BACKGROUND);
    assert_int_equal(in(false, true, false, 1 << 20), FLYT_ROUTE_IN_NOW);
}

static void test_only_pinned_asynchronous_output_returns_early(void **state)
{
    assert_int_equal(out(true, true, 4), FLYT_ROUTE_OUT_BACKGROUND);
    assert_int_equal(out(true, true, 1 << 20), FLYT_ROUTE_OUT_BACKGROUND);
    assert_int_equal(out(true, false, 4), FLYT_ROUTE_OUT_INLINE);
    assert_int_equal(out(true, false, 1 << 20), FLYT_ROUTE_OUT_WAIT);
    assert_int_equal(out(false, true, 1 << 20), FLYT_ROUTE_OUT_WAIT);
}

static void test_what_is_shared_is_left_to_the_gpu(void **state)
{
    for (unsigned i = 0; i < 8; i++) {
        const struct flyt_copy_facts facts = {.is_async = i & 1,
                                              .is_pinned = true,
                                              .is_plain = i & 2,
                                              .is_shared = true,
                                              .is_writer_pending = i & 4,
                                              .bytes = 4};
        assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &facts), FLYT_ROUTE_IN_REGION);
        assert_int_equal(flyt_copy_route(FLYT_PLACE_HOST, FLYT_PLACE_DEVICE, &facts), FLYT_ROUTE_OUT_REGION);
    }
}

/* What the calling thread would send or take itself; not what is little, or read and written later. */
static void test_what_is_staged(void **state)
{
    struct flyt_copy_facts facts = {.is_plain = true, .is_staged = true, .bytes = 1 << 20};
    for (unsigned i = 0; i < 2; i++) {
        facts.is_async = i;
        assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &facts), FLYT_ROUTE_IN_STAGED);
        assert_int_equal(flyt_copy_route(FLYT_PLACE_HOST, FLYT_PLACE_DEVICE, &facts), FLYT_ROUTE_OUT_STAGED);
    }
    facts.is_pinned = true;
    assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &facts), FLYT_ROUTE_IN_BACKGROUND);
    assert_int_equal(flyt_copy_route(FLYT_PLACE_HOST, FLYT_PLACE_DEVICE, &facts), FLYT_ROUTE_OUT_BACKGROUND);
    facts.is_writer_pending = true;
    assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &facts), FLYT_ROUTE_IN_PULL);
    facts = (struct flyt_copy_facts){.is_plain = true, .is_staged = true, .bytes = 4};
    assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_HOST, &facts), FLYT_ROUTE_IN_INLINE);
    assert_int_equal(flyt_copy_route(FLYT_PLACE_HOST, FLYT_PLACE_DEVICE, &facts), FLYT_ROUTE_OUT_INLINE);
}

static void test_which_boxes_one_driver_call_copies(void **state)
{
    static const struct {
        uint64_t width, height, depth, dst_pitch, dst_slice, src_pitch, src_slice;
        bool is_regular;
    } cases[] = {
        {1ull << 40, 1, 1, 0, 0, 0, 0, true},    /* a line of any length */
        {16, 8, 1, 16, 0, 16, 0, true},          /* rows without gaps */
        {16, 8, 1, 32, 0, 16, 0, true},          /* with gaps on one side */
        {16, 8, 1, 0x80000000, 0, 16, 0, false}, /* a pitch that the driver refuses */
        {16, 8, 2, 32, 256, 16, 160, true},      /* slices whole rows apart */
        {16, 8, 2, 32, 255, 16, 160, false},     /* which they are not */
        {16, 8, 2, 32, 224, 16, 160, false},     /* or overlap */
        {1ull << 30, 4, 1, 1ull << 30, 0, 1ull << 30, 0, true},
        {1ull << 32, 4, 1, 1ull << 33, 0, 1ull << 32, 0, false},
        {16, 1, 4, 16, 64, 16, 48, true}, /* slices of one row */
        {16, 1, 4, 16, 60, 16, 48, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct flyt_copy copy = {.dst = {.pitch_bytes = cases[i].dst_pitch, .slice_bytes = cases[i].dst_slice},
                                       .src = {.pitch_bytes = cases[i].src_pitch, .slice_bytes = cases[i].src_slice},
                                       .width_bytes = cases[i].width,
                                       .height = cases[i].height,
                                       .depth = cases[i].depth};
        if (flyt_copy_is_regular(&copy) != cases[i].is_regular)
            fail_msg("case %zu", i);
    }
}

static void test_other_directions(void **state)
{
    struct flyt_copy_facts facts = {0};
    assert_int_equal(flyt_copy_route(FLYT_PLACE_HOST, FLYT_PLACE_HOST, &facts), FLYT_ROUTE_HOST);
    assert_int_equal(flyt_copy_route(FLYT_PLACE_DEVICE, FLYT_PLACE_DEVICE, &facts), FLYT_ROUTE_WITHIN);
}

/* Every row of the box is in exactly one piece, in order, and no piece is too large unless it is one row. */
static void check_pieces(uint64_t width_bytes, uint64_t height, uint64_t depth, uint64_t bytes_max)
{
    struct flyt_copy copy = {.width_bytes = width_bytes, .height = height, .depth = depth};
    struct flyt_copy_piece piece;
    uint64_t row = 0, expected = 0;
    while (flyt_copy_next_piece(&copy, bytes_max, &row, &piece)) {
        uint64_t rows = piece.slice_count * piece.row_count;
        assert_int_equal(piece.first_slice * height + piece.first_row, expected);
        assert_true(rows > 0 && (rows == 1 || rows * width_bytes <= bytes_max));
        assert_true(piece.slice_count == 1 || (piece.first_row == 0 && piece.row_count == height));
        assert_true(piece.first_row + piece.row_count <= height);
        expected += rows;
        assert_int_equal(row, expected);
    }
    assert_int_equal(expected, height * depth);
}

static void test_pieces_cover_the_box(void **state)
{
    check_pieces(10, 7, 5, 1);
    check_pieces(10, 7, 5, 30);
    check_pieces(10, 7, 5, 70);
    check_pieces(10, 7, 5, 140);
    check_pieces(10, 7, 5, 149);
    check_pieces(10, 1, 1, UINT64_MAX);
    check_pieces(10, 7, 5, UINT64_MAX);
}

static void test_spans_that_overflow_are_refused(void **state)
{
    uint64_t span;
    struct flyt_copy copy = {.width_bytes = 100, .height = 10, .depth = 2};
    struct flyt_copy_side side = {.address = 0x1000, .pitch_bytes = 128, .slice_bytes = 2000};
    assert_true(flyt_copy_span(&copy, &side, &span));
    assert_int_equal(span, 2000 + 9 * 128 + 100);
    side.pitch_bytes = 99;
    assert_false(flyt_copy_span(&copy, &side, &span));
    side.pitch_bytes = UINT64_MAX / 4;
    assert_false(flyt_copy_span(&copy, &side, &span));
    side = (struct flyt_copy_side){.address = UINT64_MAX - 10, .pitch_bytes = 128, .slice_bytes = 2000};
    assert_false(flyt_copy_span(&copy, &side, &span));
    side = (struct flyt_copy_side){.address = 0x1000, .pitch_bytes = 128, .slice_bytes = 1000};
    assert_false(flyt_copy_span(&copy, &side, &span)); /* slices would overlap */
}

static void test_packing_takes_any_part(void **state)
{
    char box_bytes[4 * 3 * 8], packed[5 * 3 * 4], back[sizeof box_bytes];
    for (size_t i = 0; i < sizeof box_bytes; i++)
        box_bytes[i] = (char)i;
    struct flyt_host_box box = {.address = (uint64_t)(uintptr_t)box_bytes,
                                .width_bytes = 5,
                                .height = 3,
                                .depth = 4,
                                .pitch_bytes = 8,
                                .slice_bytes = 24};
    assert_false(flyt_host_box_is_plain(&box));
    for (uint64_t offset = 0; offset < sizeof packed; offset += 7)
        flyt_host_box_pack(&box, offset, packed + offset, sizeof packed - offset < 7 ? sizeof packed - offset : 7);
    for (int row = 0; row < 12; row++)
        assert_memory_equal(packed + row * 5, box_bytes + row * 8, 5);
    memset(back, 0, sizeof back);
    box.address = (uint64_t)(uintptr_t)back;
    for (uint64_t offset = 0; offset < sizeof packed; offset += 11)
        flyt_host_box_unpack(&box, offset, packed + offset, sizeof packed - offset < 11 ? sizeof packed - offset : 11);
    for (int row = 0; row < 12; row++) {
        assert_memory_equal(back + row * 8, box_bytes + row * 8, 5);
        assert_int_equal(back[row * 8 + 5], 0); /* gaps stay as they were */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pageable_source_is_read_before_return),
        cmocka_unit_test(test_pinned_source_waits_for_its_writers),
        cmocka_unit_test(test_only_pinned_asynchronous_output_returns_early),
        cmocka_unit_test(test_what_is_shared_is_left_to_the_gpu),
        cmocka_unit_test(test_what_is_staged),
        cmocka_unit_test(test_which_boxes_one_driver_call_copies),
        cmocka_unit_test(test_other_directions),
        cmocka_unit_test(test_pieces_cover_the_box),
        cmocka_unit_test(test_spans_that_overflow_are_refused),
        cmocka_unit_test(test_packing_takes_any_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
