/* What is known of pages while they are sent: above all that a page which changed, and changed back, is never missed.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "cpu/server/move/common/page_table.h"

enum { PAGE = FLYT_PAGE_BYTES, EXTENT_PAGES = FLYT_PAGE_EXTENT_BYTES / PAGE };

#define BASE 0x200000000000ull

struct fixture {
    struct flyt_page_hash_keys keys;
    struct flyt_page_table table;
    struct flyt_page_runs runs;
};

static struct flyt_page_hash hash_of(const struct fixture *self, unsigned char content)
{
    static unsigned char page[PAGE];
    struct flyt_page_hash hash;
    memset(page, content, PAGE);
    flyt_page_hash(&self->keys, page, &hash, NULL);
    return hash;
}

/* A look at a page that is full of this byte. */
static struct flyt_page_seen seen(const struct fixture *self, unsigned char content)
{
    return (struct flyt_page_seen){hash_of(self, content), !content};
}

/* A copy of such a page. */
static struct flyt_page_sent copy(const struct fixture *self, unsigned char content)
{
    return (struct flyt_page_sent){hash_of(self, content), !content};
}

static int set_up(void **state)
{
    static const struct flyt_page_key key = {"page table test"};
    struct fixture *self = calloc(1, sizeof *self);
    assert_non_null(self);
    flyt_page_hash_prepare(&key, &self->keys);
    struct flyt_page_hash zero = hash_of(self, 0);
    flyt_page_table_init(&self->table, &zero);
    *state = self;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *self = *state;
    flyt_page_runs_fini(&self->runs);
    flyt_page_table_fini(&self->table);
    free(self);
    return 0;
}

static void compare(struct fixture *self, uint64_t page, unsigned char content)
{
    assert_int_equal(flyt_page_table_compare(&self->table, BASE + page * PAGE, seen(self, content), &self->runs), 0);
}

/* A look at the whole extent at BASE, whose pages all have this byte but one. */
static void compare_extent(struct fixture *self, unsigned char content, uint64_t other_page, unsigned char other)
{
    struct flyt_page_seen most = seen(self, content);
    flyt_page_runs_clear(&self->runs);
    for (uint64_t page = 0; page < EXTENT_PAGES; page++) {
        struct flyt_page_seen one = page == other_page ? seen(self, other) : most;
        assert_int_equal(flyt_page_table_compare(&self->table, BASE + page * PAGE, one, &self->runs), 0);
    }
}

static void send_run(struct fixture *self, const struct flyt_page_run *run, unsigned char content)
{
    assert_int_equal(flyt_page_table_begin(&self->table, run), 0);
    for (uint64_t n = 0; n < run->pages_count; n++)
        assert_int_equal(flyt_page_table_sent(&self->table, run, n, copy(self, content)), 0);
}

/* One extent, all pages of which are full of ones and were sent. */
static void add_sent_extent(struct fixture *self)
{
    assert_int_equal(flyt_page_table_add(&self->table, BASE, FLYT_PAGE_EXTENT_BYTES), 0);
    assert_int_equal(flyt_page_table_collect(&self->table, &self->runs), 0);
    assert_int_equal(self->runs.count, 1);
    send_run(self, &self->runs.items[0], 1);
    compare_extent(self, 1, 0, 1);
    assert_true(flyt_page_table_is_exact(&self->table, &self->runs));
}

static void the_first_round_sends_everything(void **state)
{
    struct fixture *self = *state;
    assert_int_equal(flyt_page_table_add(&self->table, BASE, FLYT_PAGE_EXTENT_BYTES), 0);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + FLYT_PAGE_EXTENT_BYTES, 2 * FLYT_PAGE_EXTENT_BYTES), 0);
    assert_int_equal(self->table.pages_count, 3 * EXTENT_PAGES);
    assert_int_equal(self->table.unsent_count, 3 * EXTENT_PAGES);
    assert_int_equal(flyt_page_table_collect(&self->table, &self->runs), 0);
    /* Runs end with their extent, even where the next one is beside it. */
    assert_int_equal(self->runs.count, 2);
    assert_int_equal(self->runs.pages_count, 3 * EXTENT_PAGES);
    for (unsigned i = 0; i < 2; i++)
        send_run(self, &self->runs.items[i], 7);
    assert_int_equal(self->table.unsent_count, 0);
    assert_int_equal(self->table.sending_count, 0);
    flyt_page_runs_clear(&self->runs);
    for (uint64_t page = 0; page < 3 * EXTENT_PAGES; page++)
        compare(self, page, 7);
    assert_true(flyt_page_table_is_exact(&self->table, &self->runs));
}

static void only_what_changed_is_collected(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    flyt_page_runs_clear(&self->runs);
    for (uint64_t page = 0; page < EXTENT_PAGES; page++)
        compare(self, page, page == 3 || page == 4 ? 2 : page == 5 ? 0 : page == 20 ? 9 : 1);
    assert_int_equal(self->runs.count, 3);
    assert_int_equal(self->runs.pages_count, 4);
    assert_int_equal(self->runs.zero_pages_count, 1);
    assert_int_equal(self->runs.items[0].address, BASE + 3 * PAGE);
    assert_int_equal(self->runs.items[0].pages_count, 2);
    assert_false(self->runs.items[0].is_zero);
    assert_int_equal(self->runs.items[1].address, BASE + 5 * PAGE);
    assert_true(self->runs.items[1].is_zero);
    assert_int_equal(self->runs.items[2].address, BASE + 20 * PAGE);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs));
}

/*
 * The page has 1, which the other side has, too. It becomes 2, is seen, becomes 3, is copied with 3, and becomes 2
 * again. Had the hash that was seen been kept, the other side would keep 3 for ever.
 */
static void changed_between_look_and_copy_and_back(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    compare_extent(self, 1, 8, 2);
    assert_int_equal(self->runs.count, 1);
    send_run(self, &self->runs.items[0], 3);
    compare_extent(self, 1, 8, 2);
    assert_int_equal(self->runs.count, 1);
    assert_int_equal(self->runs.items[0].address, BASE + 8 * PAGE);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs));
    send_run(self, &self->runs.items[0], 2);
    compare_extent(self, 1, 8, 2);
    assert_true(flyt_page_table_is_exact(&self->table, &self->runs));
}

/* The same with the value from before: 1, seen as 2, copied with 2, and 1 again. */
static void changed_back_after_the_copy(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    compare_extent(self, 1, 8, 2);
    send_run(self, &self->runs.items[0], 2);
    compare_extent(self, 1, 8, 1);
    assert_int_equal(self->runs.pages_count, 1);
    send_run(self, &self->runs.items[0], 1);
    compare_extent(self, 1, 8, 1);
    assert_true(flyt_page_table_is_exact(&self->table, &self->runs));
}

/* Seen as zero, and no longer zero when the other side was told so: it has zeros, and that is what is kept. */
static void zeros_are_what_was_sent(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    compare_extent(self, 1, 8, 0);
    assert_true(self->runs.items[0].is_zero);
    struct flyt_page_run run = self->runs.items[0];
    assert_int_equal(flyt_page_table_sent_zeros(&self->table, &run), -EINVAL); /* not begun */
    assert_int_equal(flyt_page_table_begin(&self->table, &run), 0);
    assert_int_equal(flyt_page_table_sent_zeros(&self->table, &run), 0);
    compare_extent(self, 1, 8, 5);
    assert_int_equal(self->runs.pages_count, 1);
    compare_extent(self, 1, 8, 1);
    assert_int_equal(self->runs.pages_count, 1);
    compare_extent(self, 1, 8, 0);
    assert_true(flyt_page_table_is_exact(&self->table, &self->runs));
}

/* A page on its way is not known: it is neither sent again nor taken for right, and a look from before does not count.
 */
static void what_is_on_its_way_is_not_there(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    compare_extent(self, 1, 8, 2);
    struct flyt_page_run run = self->runs.items[0];
    assert_int_equal(flyt_page_table_begin(&self->table, &run), 0);
    assert_int_equal(flyt_page_table_begin(&self->table, &run), -EBUSY);
    assert_int_equal(self->table.sending_count, 1);
    compare_extent(self, 1, 8, 4);
    assert_int_equal(self->runs.pages_count, 0);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs));
    assert_int_equal(flyt_page_table_sent(&self->table, &run, 1, copy(self, 2)), -EINVAL); /* no such page */
    assert_int_equal(flyt_page_table_sent(&self->table, &run, 0, copy(self, 2)), 0);
    assert_int_equal(flyt_page_table_sent(&self->table, &run, 0, copy(self, 2)), -EINVAL); /* twice */
    assert_int_equal(self->table.sending_count, 0);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs)); /* it was on its way when it was looked at */
    compare_extent(self, 1, 8, 4);
    assert_int_equal(self->runs.pages_count, 1);
}

static void what_was_lost_is_sent_again(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    flyt_page_runs_clear(&self->runs);
    compare(self, 2, 2);
    compare(self, 3, 2);
    struct flyt_page_run run = self->runs.items[0];
    assert_int_equal(flyt_page_table_begin(&self->table, &run), 0);
    assert_int_equal(flyt_page_table_sent(&self->table, &run, 0, copy(self, 2)), 0);
    assert_int_equal(flyt_page_table_lost(&self->table, &run), 0);
    assert_int_equal(self->table.unsent_count, 1);
    /* Even if it is again what the other side had before: half of the copy may be there. */
    flyt_page_runs_clear(&self->runs);
    for (uint64_t page = 0; page < EXTENT_PAGES; page++)
        compare(self, page, page == 2 ? 2 : 1);
    assert_int_equal(self->runs.pages_count, 1);
    assert_int_equal(self->runs.items[0].address, BASE + 3 * PAGE);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs));
}

/* Not every page was looked at, or an extent came after the look. */
static void a_look_at_a_part_proves_nothing(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    flyt_page_runs_clear(&self->runs);
    for (uint64_t page = 0; page + 1 < EXTENT_PAGES; page++)
        compare(self, page, 1);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs));
    compare(self, EXTENT_PAGES - 1, 1);
    assert_true(flyt_page_table_is_exact(&self->table, &self->runs));
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 8 * FLYT_PAGE_EXTENT_BYTES, FLYT_PAGE_EXTENT_BYTES), 0);
    assert_false(flyt_page_table_is_exact(&self->table, &self->runs));
}

/* What was begun for an extent says nothing of another one at its place, not even when that is on its way, too. */
static void extents_that_are_gone_are_refused(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    compare_extent(self, 1, 8, 2);
    struct flyt_page_run old = self->runs.items[0];
    assert_int_equal(flyt_page_table_begin(&self->table, &old), 0);
    assert_int_equal(flyt_page_table_remove(&self->table, BASE + PAGE), -ENOENT);
    assert_int_equal(flyt_page_table_remove(&self->table, BASE), 0);
    assert_int_equal(self->table.pages_count + self->table.sending_count + self->table.unsent_count, 0);
    flyt_page_runs_clear(&self->runs);
    compare(self, 8, 2);
    assert_int_equal(self->runs.pages_count + self->runs.compared_count, 0);
    assert_int_equal(flyt_page_table_sent(&self->table, &old, 0, copy(self, 2)), -ESTALE);
    assert_int_equal(flyt_page_table_add(&self->table, BASE, FLYT_PAGE_EXTENT_BYTES), 0);
    assert_int_equal(flyt_page_table_begin(&self->table, &old), -ESTALE);
    assert_int_equal(flyt_page_table_collect(&self->table, &self->runs), 0);
    assert_int_equal(self->runs.pages_count, EXTENT_PAGES);
    assert_int_equal(flyt_page_table_begin(&self->table, &self->runs.items[0]), 0);
    assert_int_equal(flyt_page_table_sent(&self->table, &old, 0, copy(self, 2)), -ESTALE);
    assert_int_equal(flyt_page_table_sent_zeros(&self->table, &old), -ESTALE);
    assert_int_equal(flyt_page_table_lost(&self->table, &old), -ESTALE);
    assert_int_equal(self->table.sending_count, EXTENT_PAGES);
}

static void runs_stay_within_their_extent(void **state)
{
    struct fixture *self = *state;
    add_sent_extent(self);
    compare_extent(self, 2, 0, 2);
    struct flyt_page_run run = self->runs.items[0], part = run;
    part.address += 4 * PAGE;
    assert_int_equal(flyt_page_table_begin(&self->table, &part), -EINVAL);
    part.pages_count = UINT64_MAX;
    assert_int_equal(flyt_page_table_begin(&self->table, &part), -EINVAL);
    part.pages_count = 0;
    assert_int_equal(flyt_page_table_begin(&self->table, &part), -EINVAL);
    part.pages_count = EXTENT_PAGES - 4;
    assert_int_equal(flyt_page_table_begin(&self->table, &part), 0);
    assert_int_equal(flyt_page_table_begin(&self->table, &run), -EBUSY);
    assert_int_equal(self->table.sending_count, EXTENT_PAGES - 4); /* nothing was begun in part */
}

static void extents_are_checked(void **state)
{
    struct fixture *self = *state;
    const uint64_t bytes = FLYT_PAGE_EXTENT_BYTES;
    assert_int_equal(flyt_page_table_add(&self->table, BASE, 0), -EINVAL);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + PAGE, bytes), -EINVAL);
    assert_int_equal(flyt_page_table_add(&self->table, BASE, PAGE), -EINVAL);
    assert_int_equal(flyt_page_table_add(&self->table, 0 - bytes, 2 * bytes), -EINVAL);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 4 * bytes, 2 * bytes), 0);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 4 * bytes, bytes), -EEXIST);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 5 * bytes, bytes), -EEXIST);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 3 * bytes, 2 * bytes), -EEXIST);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 3 * bytes, 8 * bytes), -EEXIST);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 3 * bytes, bytes), 0);
    assert_int_equal(flyt_page_table_add(&self->table, BASE + 6 * bytes, bytes), 0);
    assert_int_equal(self->table.pages_count, 4 * EXTENT_PAGES);
    assert_true(flyt_page_table_has(&self->table, BASE + 4 * bytes));
    assert_false(flyt_page_table_has(&self->table, BASE + 5 * bytes)); /* it only contains that */
    assert_false(flyt_page_table_has(&self->table, BASE + 7 * bytes));
    for (unsigned i = 3; i < FLYT_PAGE_EXTENTS_MAX; i++)
        assert_int_equal(flyt_page_table_add(&self->table, BASE + (1 << 20) * bytes - 2 * i * bytes, bytes), 0);
    assert_int_equal(flyt_page_table_add(&self->table, BASE, bytes), -ENOSPC);
}

/* Batches of a look: every page once, in order, within the limits. */
static void looks_cover_everything(void **state)
{
    struct fixture *self = *state;
    const uint64_t bytes = FLYT_PAGE_EXTENT_BYTES;
    struct flyt_page_range ranges[4];
    for (unsigned i = 0; i < 6; i++)
        assert_int_equal(flyt_page_table_add(&self->table, BASE + 3 * i * bytes, (1 + i % 3) * bytes), 0);
    for (uint64_t pages_max = 1; pages_max < 200; pages_max += 37) {
        for (uint32_t ranges_max = 1; ranges_max <= 4; ranges_max++) {
            uint64_t cursor = 0, end = 0, pages = 0;
            uint32_t count;
            while ((count = flyt_page_table_look(&self->table, &cursor, pages_max, ranges_max, ranges))) {
                uint64_t batch = 0;
                assert_true(count <= ranges_max);
                for (uint32_t i = 0; i < count; i++) {
                    assert_true(ranges[i].address >= end && ranges[i].pages_count);
                    end = ranges[i].address + ranges[i].pages_count * PAGE;
                    batch += ranges[i].pages_count;
                }
                assert_true(batch <= pages_max);
                pages += batch;
            }
            assert_int_equal(pages, self->table.pages_count);
        }
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_first_round_sends_everything),
        TEST(only_what_changed_is_collected),
        TEST(changed_between_look_and_copy_and_back),
        TEST(changed_back_after_the_copy),
        TEST(zeros_are_what_was_sent),
        TEST(what_is_on_its_way_is_not_there),
        TEST(what_was_lost_is_sent_again),
        TEST(a_look_at_a_part_proves_nothing),
        TEST(extents_that_are_gone_are_refused),
        TEST(runs_stay_within_their_extent),
        TEST(extents_are_checked),
        TEST(looks_cover_everything),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
