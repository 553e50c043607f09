/* Pages of the region that the program has: compared with a map of pages, for pieces in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <fcntl.h>
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
    fake.region_at = 1;
    flyt_client.channel = (struct flyt_channel *)&fake;
    return 0;
}

static void check_zeros(const char *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        assert_int_equal(at[i], 0);
}

/* `first`: the region's first page that can be had. */
static void compare_with_a_map(unsigned first)
{
    char *pieces[PAGES] = {0};
    uint64_t sizes[PAGES] = {0};
    bool map[PAGES] = {0};
    unsigned seed = 3;
    for (unsigned page = 0; page < first; page++)
        map[page] = true;
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
    char *whole = flyt_arena_take((PAGES - first) * page_bytes, &all);
    assert_ptr_equal(whole, fake.region.base + first * page_bytes);
    check_zeros(whole, all);
    flyt_arena_give(whole);
}

static void is_as_a_map_says(void **state)
{
    assert_false(flyt_arena_is_bounded());
    compare_with_a_map(0);
}

/* What a VM shares with its host has a head, other programs, and what was in it before. */
static void of_a_vm_is_as_a_map_says(void **state)
{
    const struct flyt_region own = fake.region;
    int fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && page_bytes == FLYT_REGION_HEAD_BYTES);
    assert_int_equal(ftruncate(fd, (off_t)(PAGES * page_bytes)), 0);
    assert_int_equal(flyt_region_of_vm(fd, &fake.region), 0);
    assert_true(flyt_arena_is_bounded());
    compare_with_a_map(1);
    flyt_region_unmap(&fake.region);
    fake.region = own;
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

static void what_the_server_has_not_got_stays_the_programs(void **state)
{
    char *pieces[8], *kept;
    struct flyt_arena_piece piece;
    uint64_t bytes, offset_bytes, at = 0;
    for (unsigned i = 0; i < 8; i++)
        pieces[i] = flyt_arena_take(page_bytes, &bytes);
    for (unsigned i = 1; i < 8; i += 2)
        flyt_arena_give(pieces[i]);
    for (unsigned i = 0; i < 8; i += 2, at = piece.offset_bytes + piece.bytes) {
        assert_true(flyt_arena_next(at, &piece));
        assert_int_equal(piece.offset_bytes, i * page_bytes);
    }
    assert_false(flyt_arena_next(at, &piece));
    kept = pieces[2];
    kept[5] = 5;
    fake.region_at = 0;
    assert_int_equal(flyt_arena_server(), 0);
    assert_null(flyt_arena_take(1, &bytes));
    assert_true(flyt_arena_find((uint64_t)(uintptr_t)kept, &offset_bytes));
    assert_int_equal(kept[5], 5);
    for (unsigned i = 0; i < 8; i += 2)
        flyt_arena_give(pieces[i]);
    fake.region_at = 2;
    assert_ptr_equal(flyt_arena_take(8 * page_bytes, &bytes), pieces[0]);
    check_zeros(pieces[0], bytes);
    flyt_arena_give(pieces[0]);
}

static void a_server_is_asked_for_each_piece(void **state)
{
    struct flyt_arena_piece piece, given;
    uint64_t bytes;
    char *first = flyt_arena_take(3 * page_bytes, &bytes), *second = flyt_arena_take(page_bytes, &bytes);
    const uint64_t at = (uint64_t)(uintptr_t)first, offset_bytes = (uint64_t)(second - fake.region.base);
    assert_true(flyt_arena_piece(at + 2 * page_bytes + 7, &piece));
    assert_int_equal(piece.offset_bytes, (uint64_t)(first - fake.region.base));
    assert_int_equal(piece.bytes, 3 * page_bytes);
    assert_int_equal(piece.server, 0);
    assert_true(flyt_arena_piece((uint64_t)(uintptr_t)second, &piece));
    assert_true(flyt_arena_note(&piece, 7, true));
    assert_false(
        flyt_arena_note(&(struct flyt_arena_piece){.offset_bytes = offset_bytes + page_bytes, .bytes = page_bytes}, 8,
                        true)); /* none begins there */
    assert_true(flyt_arena_piece((uint64_t)(uintptr_t)second, &piece));
    assert_int_equal(piece.server, 7);
    assert_true(piece.is_locked);
    assert_true(flyt_arena_piece(at, &piece));
    assert_int_equal(piece.server, 0);
    assert_false(flyt_arena_piece(at + 4 * page_bytes, &piece)); /* behind both */
    assert_true(flyt_arena_piece((uint64_t)(uintptr_t)second, &given));
    flyt_arena_give(second);
    assert_false(flyt_arena_note(&given, 8, true));
    assert_false(flyt_arena_piece((uint64_t)(uintptr_t)second, &piece));
    /* The same pages, taken again, are another piece. */
    assert_ptr_equal(flyt_arena_take(page_bytes, &bytes), second);
    assert_false(flyt_arena_note(&given, 8, true));
    assert_true(flyt_arena_piece((uint64_t)(uintptr_t)second, &piece));
    assert_false(piece.is_locked);
    flyt_arena_give(second);
    flyt_arena_give(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_a_map_says),
        cmocka_unit_test(of_a_vm_is_as_a_map_says),
        cmocka_unit_test(what_is_no_piece),
        cmocka_unit_test(without_a_region),
        cmocka_unit_test(what_the_server_has_not_got_stays_the_programs),
        cmocka_unit_test(a_server_is_asked_for_each_piece),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
