/* What may be a name, and what may not. */
#include "control/base/name.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "rpc/proto/control_limits.h"

static void test_addresses(void **state)
{
    static const char *const others[] = {"", "10.0.0", "10.0.0.256", "10.0.0.1 ", "alice", "fe80:::1"};
    assert_true(flyt_is_address("10.0.1.7"));
    assert_true(flyt_is_address("fd00::17"));
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(flyt_is_address(others[i]));
}

static void test_names(void **state)
{
    static const char *const others[] = {"", "a/b", "-x", ".hidden", "a b", "a\nb", "n\303\266de", "../x"};
    char longest[FLYT_NAME_BYTES_MAX + 2] = "";
    assert_true(flyt_is_name("gpu-1.rack_7"));
    assert_true(flyt_is_name("ops@example.org"));
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++)
        assert_false(flyt_is_name(others[i]));
    memset(longest, 'n', FLYT_NAME_BYTES_MAX);
    assert_true(flyt_is_name(longest));
    memset(longest, 'n', FLYT_NAME_BYTES_MAX + 1);
    assert_false(flyt_is_name(longest));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_addresses), cmocka_unit_test(test_names)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
