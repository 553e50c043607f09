#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "cpu/client/bulk/range.h"
#include "rpc/base/id.h"

static struct flyt_range make(uint64_t base, uint64_t bytes, enum flyt_range_kind kind)
{
    return (struct flyt_range){.base = base, .bytes = bytes, .kind = kind, .context_id = 7};
}

static void test_find_knows_both_ends(void **state)
{
    struct flyt_range range = make(0x1000, 0x100, FLYT_RANGE_ALLOCATION), found;
    assert_int_equal(flyt_range_insert(&range), 0);
    assert_false(flyt_range_find(0xfff, &found));
    assert_true(flyt_range_find(0x1000, &found));
    assert_true(flyt_range_find(0x10ff, &found));
    assert_false(flyt_range_find(0x1100, &found));
    assert_true(found.buffer_id != 0);
    assert_true(flyt_range_remove(0x1000, FLYT_RANGE_ALLOCATION, NULL));
    assert_false(flyt_range_find(0x1000, &found));
}

static void test_overlaps_are_refused(void **state)
{
    struct flyt_range range = make(0x1000, 0x100, FLYT_RANGE_HOST_ALLOC);
    assert_int_equal(flyt_range_insert(&range), 0);
    const struct flyt_range bad[] = {
        make(0xf00, 0x101, FLYT_RANGE_HOST_REGISTERED),
        make(0x10ff, 1, FLYT_RANGE_HOST_REGISTERED),
        make(0x1010, 0x10, FLYT_RANGE_ALLOCATION),
        make(0x800, 0x2000, FLYT_RANGE_VARIABLE),
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(flyt_range_insert(&bad[i]), -EEXIST);
    range = make(0xf00, 0x100, FLYT_RANGE_HOST_ALLOC);
    assert_int_equal(flyt_range_insert(&range), 0);
    assert_true(flyt_range_remove(0xf00, FLYT_RANGE_HOST_ALLOC, NULL));
    assert_false(flyt_range_remove(0x1000, FLYT_RANGE_ALLOCATION, NULL)); /* another kind */
    assert_false(flyt_range_remove(0x1001, FLYT_RANGE_HOST_ALLOC, NULL)); /* not the start */
    assert_true(flyt_range_remove(0x1000, FLYT_RANGE_HOST_ALLOC, NULL));
}

static void test_pinned_means_all_of_it(void **state)
{
    struct flyt_range host = make(0x1000, 0x100, FLYT_RANGE_HOST_REGISTERED);
    struct flyt_range device = make(0x2000, 0x100, FLYT_RANGE_ALLOCATION);
    assert_int_equal(flyt_range_insert(&host), 0);
    assert_int_equal(flyt_range_insert(&device), 0);
    assert_true(flyt_range_is_pinned(0x1000, 0x100));
    assert_true(flyt_range_is_pinned(0x1080, 0x80));
    assert_false(flyt_range_is_pinned(0x1080, 0x81));
    assert_false(flyt_range_is_pinned(0x2000, 1));
    assert_true(flyt_range_remove(0x1000, FLYT_RANGE_HOST_REGISTERED, NULL));
    assert_true(flyt_range_remove(0x2000, FLYT_RANGE_ALLOCATION, NULL));
}

/* Against the plainest model there is: one flag per slot of address space. */
static void test_random_operations_agree_with_a_model(void **state)
{
    enum { SLOTS = 512, STEPS = 20000, SLOT_BYTES = 64 };
    static bool is_used[SLOTS];
    unsigned seed = 1;
    struct flyt_range found;
    for (int step = 0; step < STEPS; step++) {
        seed = seed * 1103515245u + 12345u;
        unsigned slot = (seed >> 8) % SLOTS;
        uint64_t base = 0x100000 + (uint64_t)slot * SLOT_BYTES;
        struct flyt_range range = make(base, SLOT_BYTES, FLYT_RANGE_ALLOCATION);
        if (seed >> 31)
            assert_int_equal(flyt_range_insert(&range), is_used[slot] ? -EEXIST : 0);
        else
            assert_int_equal(flyt_range_remove(base, FLYT_RANGE_ALLOCATION, NULL), is_used[slot]);
        is_used[slot] = seed >> 31;
        unsigned other = (seed >> 4) % SLOTS;
        assert_int_equal(flyt_range_find(0x100000 + (uint64_t)other * SLOT_BYTES + 63, &found), is_used[other]);
    }
    flyt_range_clear(7, false);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        assert_false(flyt_range_find(0x100000 + (uint64_t)slot * SLOT_BYTES, &found));
}

/* Addresses that are free in this process, for variables that lie elsewhere: `pages` of them. */
enum { PAGE = 4096 };

static uint64_t free_pages(unsigned pages)
{
    void *place = mmap(NULL, (size_t)pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(place, MAP_FAILED);
    munmap(place, (size_t)pages * PAGE);
    return (uint64_t)(uintptr_t)place;
}

/* Whether the process can get memory of its own there: what the program's next allocation may do. */
static bool is_free(uint64_t page)
{
    void *wanted = (void *)(uintptr_t)page; /* NOLINT */
    void *got = mmap(wanted, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == MAP_FAILED)
        return false;
    munmap(got, PAGE);
    return got == wanted;
}

static int insert_variable(uint64_t base, uint64_t bytes, uint64_t library_id, int device)
{
    struct flyt_range range = {
        .base = base, .bytes = bytes, .kind = FLYT_RANGE_VARIABLE, .library_id = library_id, .device = device};
    return flyt_range_insert(&range);
}

static void test_variables_go_with_their_library(void **state)
{
    uint64_t base = free_pages(3);
    struct flyt_range found;
    assert_int_equal(insert_variable(base, 8, 1, 0), 0);
    assert_int_equal(insert_variable(base + PAGE, 8, 1, 1), 0);
    assert_int_equal(insert_variable(base + 2 * PAGE, 8, 2, 0), 0);
    flyt_range_forget_variables(1, 0); /* of one device alone */
    assert_false(flyt_range_find(base, &found));
    assert_true(flyt_range_find(base + PAGE, &found));
    flyt_range_forget_variables(1, -1);
    assert_false(flyt_range_find(base + PAGE, &found));
    assert_true(flyt_range_find(base + 2 * PAGE, &found));
    flyt_range_forget_variables(0, 0);
    assert_false(flyt_range_find(base + 2 * PAGE, &found));
}

/* Where a variable is, no memory of the program's can come to lie; afterwards it can again. */
static void test_variables_reserve_their_addresses(void **state)
{
    uint64_t base = free_pages(4);
    assert_int_equal(insert_variable(base + 100, 2 * PAGE, 1, 0), 0); /* the first three pages */
    assert_false(is_free(base));
    assert_false(is_free(base + PAGE));
    assert_false(is_free(base + 2 * PAGE));
    assert_true(is_free(base + 3 * PAGE));
    flyt_range_forget_variables(1, -1);
    for (int page = 0; page < 4; page++)
        assert_true(is_free(base + (uint64_t)page * PAGE));
}

/* A page stays as long as anything in it is somebody's. */
static void test_variables_share_pages(void **state)
{
    uint64_t base = free_pages(3);
    assert_int_equal(insert_variable(base + 8, 8, 1, 0), 0);
    assert_int_equal(insert_variable(base + 24, PAGE, 2, 0), 0); /* into the second page */
    assert_int_equal(insert_variable(base, 8, 3, 0), 0);
    assert_int_equal(insert_variable(base + PAGE + 64, 2 * PAGE - 64, 3, 0), 0);
    assert_int_equal(insert_variable(base + 16, 8, 4, 0), 0); /* between others, in one page */
    flyt_range_forget_variables(4, -1);
    flyt_range_forget_variables(2, -1);
    assert_false(is_free(base));
    assert_false(is_free(base + PAGE));
    flyt_range_forget_variables(3, -1);
    assert_false(is_free(base));
    assert_true(is_free(base + PAGE));
    assert_true(is_free(base + 2 * PAGE));
    flyt_range_forget_variables(1, -1);
    assert_true(is_free(base));
}

/* The program's memory is there already: the variable has no place, and what is there stays. */
static void test_variables_yield_to_memory_of_the_program(void **state)
{
    uint64_t base = free_pages(3);
    struct flyt_range found;
    char *own = mmap((void *)(uintptr_t)(base + PAGE), PAGE, PROT_READ | PROT_WRITE, /* NOLINT */
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    assert_ptr_equal(own, (void *)(uintptr_t)(base + PAGE));
    own[0] = 'x';
    assert_int_equal(insert_variable(base + PAGE - 4, 8, 1, 0), -EEXIST);
    assert_int_equal(insert_variable(base + PAGE + 8, 8, 1, 0), -EEXIST);
    assert_false(flyt_range_find(base + PAGE - 4, &found));
    assert_true(is_free(base)); /* nothing is left of the attempt */
    assert_int_equal(own[0], 'x');
    assert_int_equal(insert_variable(base + PAGE - 8, 8, 1, 0), 0); /* up to it */
    flyt_range_forget_variables(1, -1);
    assert_int_equal(own[0], 'x');
    munmap(own, PAGE);
}

/* What a server may say and no process can have. (Above all address spaces are constants without an address.) */
static void test_variables_at_impossible_addresses(void **state)
{
    const struct {
        uint64_t base, bytes;
    } bad[] = {
        {UINT64_MAX - 4096, 4098}, {1ull << 62, 8}, {1ull << 62, 1ull << 62}, {0x10000, 1ull << 60}, {0x10000, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_true(insert_variable(bad[i].base, bad[i].bytes, 1, 0) < 0);
    assert_int_equal(insert_variable(FLYT_WINDOW_BASE, 8, 1, 0), 0); /* reserved as it is */
    flyt_range_forget_variables(1, -1);
}

/* Pages that only variables are in are not the program's memory, wherever in them somebody looks. */
static void test_reserved_pages_are_not_foreign(void **state)
{
    uint64_t base = free_pages(2);
    assert_false(flyt_range_is_foreign(base));
    assert_false(flyt_range_is_reserved(base));
    assert_int_equal(insert_variable(base + 100, 8, 1, 0), 0);
    assert_false(flyt_range_is_foreign(base));
    assert_false(flyt_range_is_foreign(base + 2000));
    assert_true(flyt_range_is_reserved(base));
    assert_true(flyt_range_is_reserved(base + 4095));
    assert_false(flyt_range_is_reserved(base + PAGE));
    assert_true(flyt_range_is_foreign((uint64_t)(uintptr_t)&base));
    assert_false(flyt_range_is_reserved((uint64_t)(uintptr_t)&base));
    flyt_range_forget_variables(1, -1);
    assert_false(flyt_range_is_reserved(base));
}

/* A child inherits the reservation and its end changes nothing here. */
static void test_a_fork_leaves_reservations(void **state)
{
    uint64_t base = free_pages(1);
    int status = -1;
    assert_int_equal(insert_variable(base, 8, 1, 0), 0);
    pid_t child = fork();
    if (!child)
        _exit(is_free(base) ? 1 : 0);
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_false(is_free(base));
    flyt_range_forget_variables(1, -1);
    assert_true(is_free(base));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_knows_both_ends),
        cmocka_unit_test(test_overlaps_are_refused),
        cmocka_unit_test(test_pinned_means_all_of_it),
        cmocka_unit_test(test_random_operations_agree_with_a_model),
        cmocka_unit_test(test_variables_go_with_their_library),
        cmocka_unit_test(test_variables_reserve_their_addresses),
        cmocka_unit_test(test_variables_share_pages),
        cmocka_unit_test(test_variables_yield_to_memory_of_the_program),
        cmocka_unit_test(test_variables_at_impossible_addresses),
        cmocka_unit_test(test_reserved_pages_are_not_foreign),
        cmocka_unit_test(test_a_fork_leaves_reservations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
