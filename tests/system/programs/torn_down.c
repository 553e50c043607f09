/* A unit test that fails in the middle of its output, and whose tear-down ends the process before cmocka says so. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

static void test_it_fails(void **state)
{
    for (unsigned i = 0; i < 100; i++)
        fprintf(stderr, "before %u\n", i);
    assert_int_equal(4711, 17);
}

static int tear_down(void **state)
{
    for (unsigned i = 0; i < 100; i++)
        fprintf(stderr, "torn down %u\n", i);
    raise(SIGKILL);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_it_fails, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
