/* Which pages of a session's region are locked: compared with a map of pages, for locks in any order. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/server/bulk/region.h"
#include "cpu/server/core/session.h"

enum { PAGES = 40, TRIES = 20000 };

static uint64_t page_bytes;

static unsigned next(unsigned *state)
{
    *state = *state * 1103515245u + 12345u;
    return *state >> 8;
}

static struct flyt_session *open_session(void)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    struct flyt_region of_client;
    int fd;
    page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_int_equal(flyt_region_new(&of_client, &fd), 0);
    assert_int_equal(flyt_session_region_take(session, fd), 0);
    flyt_region_unmap(&of_client);
    close(fd);
    return session;
}

static void close_session(struct flyt_session *session)
{
    flyt_session_region_fini(session);
    flyt_session_region_fini(session); /* there may be none */
    free(session);
}

static char *place(const struct flyt_session *session, uint64_t offset_bytes, uint64_t bytes)
{
    const struct flyt_region_span span = {.offset_bytes = offset_bytes, .width_bytes = bytes, .height = 1, .depth = 1};
    return flyt_session_region_place(session, FLYT_REGION_ID, &span);
}

/* `owners` has for each page which lock has it, or 0. */
static void check_places(const struct flyt_session *session, const unsigned *owners, unsigned *seed)
{
    unsigned first = next(seed) % PAGES, last = first + next(seed) % 3;
    bool is_one = last < PAGES && owners[first];
    for (unsigned page = first; page <= last && is_one; page++)
        is_one = owners[page] == owners[first];
    char *found = place(session, first * page_bytes + 5, (last - first + 1) * page_bytes - 10);
    assert_ptr_equal(found, is_one ? session->region->region.base + first * page_bytes + 5 : NULL);
}

static void is_as_a_map_says(void **state)
{
    struct flyt_session *session = open_session();
    unsigned owners[PAGES] = {0}, seed = 5, number = 0;
    for (unsigned i = 0; i < TRIES; i++) {
        unsigned first = next(&seed) % PAGES, count = 1 + next(&seed) % 4;
        if (next(&seed) % 3 == 0 && owners[first]) { /* unlock what is there */
            unsigned owner = owners[first];
            while (first && owners[first - 1] == owner)
                first--;
            for (count = 0; first + count < PAGES && owners[first + count] == owner; count++)
                owners[first + count] = 0;
            assert_non_null(flyt_session_region_find(session, FLYT_REGION_ID, first * page_bytes, count * page_bytes));
            assert_null(
                flyt_session_region_find(session, FLYT_REGION_ID, first * page_bytes, (count + 1) * page_bytes));
            flyt_session_region_remove(session, first * page_bytes);
        } else if (first + count <= PAGES) {
            bool is_free = true;
            for (unsigned page = first; page < first + count; page++)
                is_free = is_free && !owners[page];
            int status = flyt_session_region_add(session, FLYT_REGION_ID, first * page_bytes, count * page_bytes);
            assert_int_equal(status, is_free ? 0 : -EINVAL);
            if (!is_free)
                continue;
            assert_null(place(session, first * page_bytes, 1)); /* not yet */
            flyt_session_region_find(session, FLYT_REGION_ID, first * page_bytes, count * page_bytes)->is_usable = true;
            number++;
            for (unsigned page = first; page < first + count; page++)
                owners[page] = number;
        }
        check_places(session, owners, &seed);
    }
    close_session(session);
}

static void what_is_no_place(void **state)
{
    struct flyt_session *session = open_session();
    const uint64_t bytes = session->region->region.bytes, end = bytes / page_bytes * page_bytes;
    assert_int_equal(flyt_session_region_add(session, 0, 0, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, 2, 0, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, 0), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 1, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, page_bytes + 1), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, end, page_bytes), -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, UINT64_MAX / page_bytes * page_bytes),
                     -EINVAL);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, end - page_bytes, page_bytes), 0);
    flyt_session_region_find(session, FLYT_REGION_ID, end - page_bytes, page_bytes)->is_usable = true;
    assert_non_null(place(session, end - 1, 1));
    assert_null(place(session, end - 1, 2));
    assert_null(place(session, end, 1));
    assert_null(place(session, UINT64_MAX, 1));
    assert_null(place(session, end - 1, UINT64_MAX));
    const struct flyt_region_span rows = {
        .offset_bytes = end - page_bytes, .width_bytes = 1, .height = page_bytes + 1, .depth = 1, .pitch_bytes = 1};
    assert_null(flyt_session_region_place(session, FLYT_REGION_ID, &rows));
    assert_null(flyt_session_region_find(session, FLYT_REGION_ID, 0, page_bytes));
    close_session(session);
}

static void what_is_no_region_is_none(void **state)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    const struct flyt_region_span span = {.width_bytes = 1, .height = 1, .depth = 1};
    int fd = memfd_create("region_test", MFD_CLOEXEC);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    assert_int_equal(flyt_session_region_take(session, fd), -EINVAL); /* it could be cut */
    close(fd);
    assert_false(flyt_session_region_is_reached(session));
    assert_null(flyt_session_region_place(session, FLYT_REGION_ID, &span));
    assert_null(flyt_session_region_find(session, FLYT_REGION_ID, 0, 4096));
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, 4096), -EINVAL);
    free(session);
}

static void a_client_that_comes_back_has_the_same(void **state)
{
    struct flyt_session *session = calloc(1, sizeof *session);
    struct flyt_region own, another;
    int own_fd, another_fd;
    assert_int_equal(flyt_region_new(&own, &own_fd), 0);
    assert_int_equal(flyt_region_new(&another, &another_fd), 0);
    assert_int_equal(flyt_session_region_take(session, own_fd), 0);
    const struct flyt_session_region *taken = session->region;
    assert_int_equal(flyt_session_region_take(session, own_fd), 0);
    assert_int_equal(flyt_session_region_take(session, another_fd), -EEXIST);
    assert_ptr_equal(session->region, taken);
    strcpy(own.base, "one memory");
    assert_string_equal(session->region->region.base, "one memory");
    flyt_region_unmap(&own);
    flyt_region_unmap(&another);
    close(own_fd);
    close(another_fd);
    close_session(session);
}

static void locks_are_bounded(void **state)
{
    struct flyt_session *session = open_session();
    for (unsigned i = 0; i < FLYT_REGION_LOCKS_MAX; i++)
        assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 2 * i * page_bytes, page_bytes), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, page_bytes, page_bytes), -ENOMEM);
    flyt_session_region_remove(session, 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, page_bytes, page_bytes), 0);
    close_session(session);
}

static void a_vm_has_its_share_of_the_host(void **state)
{
    char most[32];
    snprintf(most, sizeof most, "%llu", (unsigned long long)(5 * (uint64_t)sysconf(_SC_PAGESIZE) + 1));
    setenv(FLYT_LOCKED_MEMORY, most, 1);
    struct flyt_session *session = open_session();
    unsetenv(FLYT_LOCKED_MEMORY);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 0, 3 * page_bytes), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 8 * page_bytes, 3 * page_bytes), -ENOMEM);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 8 * page_bytes, 2 * page_bytes), 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 4 * page_bytes, page_bytes), -ENOMEM);
    flyt_session_region_remove(session, 0);
    assert_int_equal(flyt_session_region_add(session, FLYT_REGION_ID, 4 * page_bytes, 3 * page_bytes), 0);
    close_session(session);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_as_a_map_says),          cmocka_unit_test(what_is_no_place),
        cmocka_unit_test(what_is_no_region_is_none), cmocka_unit_test(a_client_that_comes_back_has_the_same),
        cmocka_unit_test(locks_are_bounded),         cmocka_unit_test(a_vm_has_its_share_of_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
