/* Which orders that have ended are remembered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "control/node/state/remembered.h"

/* How many of so many, told or not, the last ones first. */
static unsigned count_kept(struct flyt_node_remembered *so_far, unsigned count, bool is_told)
{
    unsigned kept = 0;

    for (unsigned i = 0; i < count; i++)
        kept += flyt_node_remember(so_far, is_told);
    return kept;
}

static void test_told_ones_go_first(void **state)
{
    struct flyt_node_remembered so_far = {0};

    assert_int_equal(count_kept(&so_far, 10, false), 10);
    assert_int_equal(count_kept(&so_far, 60, true), 54); /* 64 in all */
    assert_int_equal(count_kept(&so_far, 100, false), 100);
    assert_int_equal(count_kept(&so_far, 100, true), 0);
    assert_int_equal(count_kept(&so_far, 1000, false), 1024 - 110);
    assert_int_equal(count_kept(&so_far, 1, true), 0);
}

static void test_all_were_told(void **state)
{
    struct flyt_node_remembered so_far = {0};

    assert_int_equal(count_kept(&so_far, 5000, true), 64);
    assert_int_equal(count_kept(&so_far, 1, false), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_told_ones_go_first),
        cmocka_unit_test(test_all_were_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
