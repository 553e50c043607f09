/* Pages of the region that the program has: compared with a map of pages, for pieces in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "cpu/client/bulk/arena.h"
#include "cpu/client/core/fake_channel.h"
#include "cpu/client/core/instance.h"

enum { PAGES = 32, TRIES = 5000 };

static uint64_t page_bytes;

static unsigned next(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static int make(void **state)
{
    int fd;
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(flyt_region_new(&fake.region, &fd), 0);
    close(fd);
    fake.region.bytes = PAGES * page_bytes;
    flyt_client.channel = (struct flyt_channel *)&fake;
    return 0;
}

static void check_zeros(const char *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(at[i], 0);
}

static void is_as_a_map_says(void **state)
{
    char *pieces[PAGES] = {0};
    uint64_t sizes[PAGES] = {0};
    bool map[PAGES] = {0};
    unsigned seed = 3;
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned n = next(&seed) % PAGES;
        if (pieces[n]) {
            for (uint64_t page = 0; page < sizes[n] / page_bytes; page++)
                map[(uint64_t)(pieces[n] - fake.region.base) / page_bytes + page] = false;
            flyt_arena_give(pieces[n]);
            pieces[n] = NULL;
            continue;
        }
        uint64_t bytes = 1 + next(&seed) % (5 * page_bytes), longest = 0, run = 0;
        for (unsigned page = 0; page < PAGES; page++) {
            run = map[page] ? 0 : run + page_bytes;
            longest = run > longest ? run : longest;
        }
        pieces[n] = flyt_arena_take(bytes, &sizes[n]);
        assert_int_equal(pieces[n] != NULL, bytes <= longest);
        if (!pieces[n])
            continue;
        assert_true(sizes[n] >= bytes && sizes[n] < bytes + page_bytes && sizes[n] % page_bytes == 0);
        for (uint64_t page = 0; page < sizes[n] / page_bytes; page++) {
            uint64_t at = (uint64_t)(pieces[n] - fake.region.base) / page_bytes + page;
            assert_true(at < PAGES && !map[at]);
            map[at] = true;
        }
        check_zeros(pieces[n], sizes[n]); /* whatever was there before */
        memset(pieces[n], 0x5a, sizes[n]);
    }
    for (unsigned n = 0; n < PAGES; n++)
        if (pieces[n])
            flyt_arena_give(pieces[n]);
    uint64_t all;
    char *whole = flyt_arena_take(PAGES * page_bytes, &all);
    assert_ptr_equal(whole, fake.region.base);
    check_zeros(whole, all);
    flyt_arena_give(whole);
}

static void what_is_no_piece(void **state)
{
    uint64_t bytes, offset_bytes;
    assert_null(flyt_arena_take(0, &bytes));
    assert_null(flyt_arena_take(PAGES * page_bytes + 1, &bytes));
    assert_null(flyt_arena_take(UINT64_MAX, &bytes));
    assert_true(flyt_arena_find((uint64_t)(uintptr_t)fake.region.base + 5, &offset_bytes));
    assert_int_equal(offset_bytes, 5);
    assert_false(flyt_arena_find((uint64_t)(uintptr_t)fake.region.base + fake.region.bytes, &offset_bytes));
    assert_false(flyt_arena_find((uint64_t)(uintptr_t)fake.region.base - 1, &offset_bytes));
    flyt_arena_give(fake.region.base + page_bytes); /* not taken */
    flyt_arena_give(&bytes);                        /* not of the region */
}

static void without_a_region(void **state)
{
    const struct flyt_region region = fake.region;
    uint64_t bytes, offset_bytes;
    fake.region = (struct flyt_region){0};
    assert_null(flyt_arena_take(1, &bytes));
    assert_false(flyt_arena_find((uint64_t)(uintptr_t)region.base, &offset_bytes));
    flyt_client.channel = NULL;
    assert_null(flyt_arena_take(1, &bytes));
    flyt_client.channel = (struct flyt_channel *)&fake;
    fake.region = region;
}

/* Counts pieces, and stops at the third. */
static bool count(void *user, uint64_t offset_bytes, uint64_t bytes)
{
    unsigned *seen = user;
    assert_int_equal(offset_bytes, 2 * *seen * page_bytes);
    assert_int_equal(bytes, page_bytes);
    return ++*seen < 3;
}

static void what_the_server_has_not_got_stays_the_programs(void **state)
{
    char *pieces[8], *kept;
    uint64_t bytes, offset_bytes;
    unsigned seen = 0;
    for (unsigned i = 0; i < 8; i++)
        pieces[i] = flyt_arena_take(page_bytes, &bytes);
    for (unsigned i = 1; i < 8; i += 2)
        flyt_arena_give(pieces[i]);
    flyt_arena_walk(count, &seen);
    assert_int_equal(seen, 3);
    kept = pieces[2];
    kept[5] = 5;
    fake.hides_region = true;
    assert_false(flyt_arena_is_seen());
    assert_null(flyt_arena_take(1, &bytes));
    assert_true(flyt_arena_find((uint64_t)(uintptr_t)kept, &offset_bytes));
    assert_int_equal(kept[5], 5);
    for (unsigned i = 0; i < 8; i += 2)
        flyt_arena_give(pieces[i]);
    fake.hides_region = false;
    assert_ptr_equal(flyt_arena_take(8 * page_bytes, &bytes), pieces[0]);
    check_zeros(pieces[0], bytes);
    flyt_arena_give(pieces[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_a_map_says),
        cmocka_unit_test(what_is_no_piece),
        cmocka_unit_test(without_a_region),
        cmocka_unit_test(what_the_server_has_not_got_stays_the_programs),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
