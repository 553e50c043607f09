/* The allocator of address ranges, against a plain list of what is taken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cpu/server/cuda/allocator.h"

enum { QUANTUM = 512 };
#define BASE 0x200000000000ull

static void joins_neighbours(void **state)
{
    struct flyt_allocator allocator;
    uint64_t a, b, c, all;
    flyt_allocator_init(&allocator, QUANTUM);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, 64 * QUANTUM), 0);
    assert_int_equal(flyt_allocator_take(&allocator, 1, &a), 0);
    assert_int_equal(flyt_allocator_take(&allocator, QUANTUM + 1, &b), 0);
    assert_int_equal(flyt_allocator_take(&allocator, 61 * QUANTUM, &c), 0);
    assert_int_equal(allocator.free_bytes, 0);
    assert_int_equal(flyt_allocator_take(&allocator, 1, &all), -ENOSPC);
    flyt_allocator_free(&allocator, a);
    flyt_allocator_free(&allocator, c);
    assert_int_equal(flyt_allocator_take(&allocator, 62 * QUANTUM, &all), -ENOSPC);
    flyt_allocator_free(&allocator, b);
    assert_int_equal(flyt_allocator_take(&allocator, 64 * QUANTUM, &all), 0);
    assert_int_equal(all, BASE);
    flyt_allocator_fini(&allocator);
}

static void finds_any_address_of_a_block(void **state)
{
    struct flyt_allocator allocator;
    uint64_t a, start, bytes;
    flyt_allocator_init(&allocator, QUANTUM);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, 64 * QUANTUM), 0);
    assert_int_equal(flyt_allocator_take(&allocator, 3 * QUANTUM, &a), 0);
    assert_true(flyt_allocator_find(&allocator, a + 3 * QUANTUM - 1, &start, &bytes));
    assert_int_equal(start, a);
    assert_int_equal(bytes, 3 * QUANTUM);
    assert_false(flyt_allocator_find(&allocator, a + 3 * QUANTUM, &start, &bytes));
    assert_false(flyt_allocator_find(&allocator, BASE - 1, &start, &bytes));
    assert_int_equal(flyt_allocator_retire(&allocator, a + 1, &bytes), -ENOENT);
    assert_int_equal(flyt_allocator_retire(&allocator, a, &bytes), 0);
    assert_false(flyt_allocator_find(&allocator, a, &start, &bytes));
    assert_false(flyt_allocator_is_free(&allocator, a, bytes));
    assert_int_equal(flyt_allocator_retire(&allocator, a, &bytes), -ENOENT);
    flyt_allocator_free(&allocator, a);
    assert_true(flyt_allocator_is_free(&allocator, a, bytes));
    flyt_allocator_fini(&allocator);
}

struct seen {
    uint64_t addresses[4], bytes;
    unsigned count;
};

static void see(void *user, uint64_t address, uint64_t bytes)
{
    struct seen *seen = user;
    assert_in_range(seen->count, 0, 3);
    seen->addresses[seen->count++] = address;
    seen->bytes += bytes;
}

static void tells_what_is_used_by_address(void **state)
{
    struct flyt_allocator allocator;
    struct seen seen = {.count = 0};
    uint64_t blocks[5], bytes;
    flyt_allocator_init(&allocator, QUANTUM);
    flyt_allocator_each(&allocator, see, &seen);
    assert_int_equal(flyt_allocator_add(&allocator, BASE + 64 * QUANTUM, 8 * QUANTUM), 0);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, 8 * QUANTUM), 0);
    flyt_allocator_each(&allocator, see, &seen);
    assert_int_equal(seen.count, 0);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(flyt_allocator_take(&allocator, 3 * QUANTUM - i, &blocks[i]), i == 4 ? -ENOSPC : 0);
    assert_int_equal(flyt_allocator_retire(&allocator, blocks[1], &bytes), 0);
    flyt_allocator_each(&allocator, see, &seen);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.bytes, 9 * QUANTUM);
    assert_int_equal(allocator.used_count, seen.count);
    assert_int_equal(allocator.used_bytes, seen.bytes);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(i == 0 || seen.addresses[i] > seen.addresses[i - 1]);
        assert_true(seen.addresses[i] == blocks[0] || seen.addresses[i] == blocks[2] || seen.addresses[i] == blocks[3]);
    }
    flyt_allocator_fini(&allocator);
}

static void takes_ranges_away(void **state)
{
    struct flyt_allocator allocator;
    uint64_t a;
    flyt_allocator_init(&allocator, QUANTUM);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, 8 * QUANTUM), 0);
    assert_int_equal(flyt_allocator_add(&allocator, BASE + 8 * QUANTUM, 8 * QUANTUM), 0);
    assert_int_equal(flyt_allocator_take(&allocator, QUANTUM, &a), 0);
    assert_int_equal(a, BASE);
    assert_int_equal(flyt_allocator_remove(&allocator, BASE, 8 * QUANTUM), -EBUSY);
    assert_int_equal(flyt_allocator_remove(&allocator, BASE + 4 * QUANTUM, 8 * QUANTUM), 0);
    assert_int_equal(allocator.total_bytes, 8 * QUANTUM);
    assert_int_equal(allocator.free_bytes, 7 * QUANTUM);
    assert_int_equal(flyt_allocator_take(&allocator, 5 * QUANTUM, &a), -ENOSPC);
    assert_int_equal(flyt_allocator_take(&allocator, 4 * QUANTUM, &a), 0);
    assert_int_equal(a, BASE + 12 * QUANTUM);
    flyt_allocator_fini(&allocator);
}

static void refuses_absurd_sizes(void **state)
{
    struct flyt_allocator allocator;
    uint64_t a;
    flyt_allocator_init(&allocator, QUANTUM);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, 1ull << 40), 0);
    assert_int_equal(flyt_allocator_take(&allocator, 0, &a), -ENOSPC);
    assert_int_equal(flyt_allocator_take(&allocator, UINT64_MAX, &a), -ENOSPC);
    assert_int_equal(flyt_allocator_take(&allocator, 1ull << 63, &a), -ENOSPC);
    assert_int_equal(flyt_allocator_take(&allocator, (1ull << 40) + 1, &a), -ENOSPC);
    assert_int_equal(flyt_allocator_take(&allocator, 1ull << 40, &a), 0);
    flyt_allocator_fini(&allocator);
}

static void takes_what_is_asked_for(void **state)
{
    struct flyt_allocator allocator;
    uint64_t a, bytes;
    flyt_allocator_init(&allocator, QUANTUM);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, 16 * QUANTUM), 0);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 4 * QUANTUM, 3 * QUANTUM - 1), 0); /* the middle */
    assert_int_equal(allocator.free_bytes, 13 * QUANTUM);
    assert_true(flyt_allocator_find(&allocator, BASE + 6 * QUANTUM, &a, &bytes));
    assert_int_equal(a, BASE + 4 * QUANTUM);
    assert_int_equal(bytes, 3 * QUANTUM);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE, QUANTUM), 0);                /* the beginning */
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 15 * QUANTUM, QUANTUM), 0); /* the end */
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + QUANTUM, 3 * QUANTUM), 0);  /* all of a free range */
    /* Used in part, outside, between two quanta, nothing. */
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 6 * QUANTUM, 2 * QUANTUM), -EBUSY);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 14 * QUANTUM, 2 * QUANTUM), -EBUSY);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 16 * QUANTUM, QUANTUM), -EBUSY);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE - QUANTUM, QUANTUM), -EBUSY);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 8 * QUANTUM + 1, QUANTUM), -EBUSY);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 8 * QUANTUM, 0), -EBUSY);
    assert_int_equal(flyt_allocator_take_at(&allocator, BASE + 8 * QUANTUM, UINT64_MAX), -EBUSY);
    assert_int_equal(allocator.free_bytes, 8 * QUANTUM);
    assert_int_equal(flyt_allocator_take(&allocator, 8 * QUANTUM, &a), 0);
    assert_int_equal(a, BASE + 7 * QUANTUM);
    for (unsigned i = 0; i < 16; i++)
        if (flyt_allocator_find(&allocator, BASE + i * QUANTUM, &a, &bytes))
            flyt_allocator_free(&allocator, a);
    assert_true(flyt_allocator_is_free(&allocator, BASE, 16 * QUANTUM));
    flyt_allocator_fini(&allocator);
}

/* Ten thousand random steps: nothing overlaps, nothing is lost. */
static void keeps_its_books(void **state)
{
    enum { BLOCKS = 200, STEPS = 10000 };
    struct {
        uint64_t address, bytes;
    } blocks[BLOCKS] = {0};
    struct flyt_allocator allocator;
    uint64_t used_bytes = 0, used_count = 0;
    const uint64_t total = 4096 * QUANTUM;
    flyt_allocator_init(&allocator, QUANTUM);
    assert_int_equal(flyt_allocator_add(&allocator, BASE, total), 0);
    srandom(7);
    for (int step = 0; step < STEPS; step++) {
        unsigned i = (unsigned)random() % BLOCKS;
        if (blocks[i].bytes) {
            if (i % 3 == 0) {
                uint64_t bytes;
                assert_int_equal(flyt_allocator_retire(&allocator, blocks[i].address, &bytes), 0);
                assert_int_equal(allocator.used_count, used_count - 1);
                assert_int_equal(allocator.used_bytes, used_bytes - blocks[i].bytes);
            }
            flyt_allocator_free(&allocator, blocks[i].address);
            used_bytes -= blocks[i].bytes;
            used_count--;
            blocks[i].bytes = 0;
        } else {
            uint64_t bytes = 1 + (uint64_t)random() % (64 * QUANTUM), address;
            /* Anywhere, or at a place of its own choice. */
            address = BASE + (uint64_t)random() % 4096 * QUANTUM;
            if (step % 2 ? flyt_allocator_take(&allocator, bytes, &address)
                         : flyt_allocator_take_at(&allocator, address, bytes))
                continue;
            bytes = (bytes + QUANTUM - 1) / QUANTUM * QUANTUM;
            assert_true(address >= BASE && address + bytes <= BASE + total && address % QUANTUM == 0);
            for (unsigned k = 0; k < BLOCKS; k++)
                assert_true(!blocks[k].bytes || blocks[k].address + blocks[k].bytes <= address ||
                            address + bytes <= blocks[k].address);
            blocks[i].address = address;
            blocks[i].bytes = bytes;
            used_bytes += bytes;
            used_count++;
        }
        assert_int_equal(allocator.free_bytes + used_bytes, total);
        assert_int_equal(allocator.used_bytes, used_bytes);
        assert_int_equal(allocator.used_count, used_count);
    }
    for (unsigned i = 0; i < BLOCKS; i++)
        if (blocks[i].bytes)
            flyt_allocator_free(&allocator, blocks[i].address);
    assert_true(flyt_allocator_is_free(&allocator, BASE, total));
    flyt_allocator_fini(&allocator);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(joins_neighbours),
        cmocka_unit_test(finds_any_address_of_a_block),
        cmocka_unit_test(takes_ranges_away),
        cmocka_unit_test(refuses_absurd_sizes),
        cmocka_unit_test(keeps_its_books),
        cmocka_unit_test(takes_what_is_asked_for),
        cmocka_unit_test(tells_what_is_used_by_address),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
