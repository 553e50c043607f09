/* How sizes read. */
#include "control/base/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void test_size_text(void **state)
{
    char text[FLYT_SIZE_TEXT_BYTES];

    assert_string_equal(flyt_size_text(8ull << 30, text), "8 GiB");
    assert_string_equal(flyt_size_text(3ull << 29, text), "1.50 GiB");
    assert_string_equal(flyt_size_text(17, text), "17 bytes");
    assert_string_equal(flyt_size_text(0, text), "0 bytes");
    assert_string_equal(flyt_size_text(UINT64_MAX, text), "16 EiB");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_size_text)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
