/* Which pages were written, as the kernel tells: by the program itself and by system calls, since it was last asked;
 * and what a fork and a new mapping do. Skipped where the kernel does not tell. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "cpu/client/managed/track.h"

enum { PAGE = 4096, PAGES = 64 };

static char *memory;

static uint64_t base(void)
{
    return (uint64_t)(uintptr_t)memory;
}

static int set_up(void **state)
{
    memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    *state = (void *)(uintptr_t)flyt_managed_track(base(), PAGES * PAGE);
    return 0;
}

static int tear_down(void **state)
{
    return munmap(memory, PAGES * PAGE);
}

/* The pages that are told of, as "first-end first-end ". */
static const char *told(unsigned first_page, unsigned end_page)
{
    static char text[512];
    uint64_t at = base() + first_page * PAGE, begin, end;
    int used = 0, found;

    *text = 0;
    while ((found = flyt_managed_track_next(&at, base() + end_page * PAGE, &begin, &end)) > 0) {
        assert_int_equal(at, end);
        used += snprintf(text + used, sizeof text - (size_t)used, "%d-%d ", (int)((begin - base()) / PAGE),
                         (int)((end - base()) / PAGE));
    }
    assert_int_equal(found, 0);
    return text;
}

static void need_tracking(void **state)
{
    if (!*state)
        skip();
}

static void written_pages(void **state)
{
    need_tracking(state);
    assert_string_equal(told(0, PAGES), "");
    memory[0] = memory[5 * PAGE] = memory[6 * PAGE + PAGE - 1] = memory[(PAGES - 1) * PAGE] = 1;
    assert_string_equal(told(0, PAGES), "0-1 5-7 63-64 ");
    assert_string_equal(told(0, PAGES), "");
    memory[5 * PAGE] = 1; /* once more, the same */
    memory[9 * PAGE] = 1;
    assert_string_equal(told(0, 8), "5-6 ");
    assert_string_equal(told(0, PAGES), "9-10 ");
    assert_int_equal(memory[6 * PAGE + PAGE - 1], 1);
}

static void written_by_the_kernel(void **state)
{
    int ends[2];

    need_tracking(state);
    memset(memory, 1, PAGES * PAGE);
    told(0, PAGES);
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "words", 5), 5);
    assert_int_equal(read(ends[0], memory + 20 * PAGE - 2, 5), 5);
    assert_string_equal(told(0, PAGES), "19-21 ");
    assert_memory_equal(memory + 20 * PAGE - 2, "words", 5);
    close(ends[0]);
    close(ends[1]);
}

static void a_child_is_by_itself(void **state)
{
    int status = -1;

    need_tracking(state);
    memset(memory, 1, PAGES * PAGE);
    told(0, PAGES);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        memory[3 * PAGE] = 2;
        _exit(memory[3 * PAGE] == 2 && memory[4 * PAGE] == 1 ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_string_equal(told(0, PAGES), "");
    memory[30 * PAGE] = 5;
    assert_string_equal(told(0, PAGES), "30-31 ");
    assert_int_equal(memory[3 * PAGE], 1);
}

/* It ends with the mapping, and then says so. */
static void another_mapping(void **state)
{
    uint64_t at = base(), begin, end;

    need_tracking(state);
    assert_ptr_equal(mmap(memory, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     memory);
    memory[0] = 1;
    assert_true(flyt_managed_track_next(&at, base() + PAGES * PAGE, &begin, &end) < 0);
    assert_true(flyt_managed_track(base(), PAGES * PAGE));
    memory[2 * PAGE] = 1;
    assert_non_null(strstr(told(0, PAGES), "2-3 "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(written_pages, set_up, tear_down),
        cmocka_unit_test_setup_teardown(written_by_the_kernel, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_child_is_by_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(another_mapping, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
