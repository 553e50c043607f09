/* What CUDA_VISIBLE_DEVICES says of three devices. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "cpu/client/core/visible.h"

static void lists(void **state)
{
    static const struct {
        const char *text;
        unsigned visible;
    } rows[] = {
        {NULL, 3},    {"", 0},        {"-1", 0},     {"0", 1},    {"0,1", 2},
        {"0,1,2", 3}, {"0,1,2,3", 3}, {"0,-1,1", 1}, {"0,,1", 1}, {"none", 0},
        {"0,0", 0},   {"1", 3},       {"0,2", 3},    {"1,0", 3},  {"3", 0},
        {"0,x", 1},   {"GPU-1", 3},   {"0 ", 1},     {" 0", 1},   {"99999999999999999999", 0},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (flyt_visible_devices(rows[i].text, 3) != rows[i].visible)
            fail_msg("%s: %u", rows[i].text ? rows[i].text : "unset", flyt_visible_devices(rows[i].text, 3));
    assert_int_equal(flyt_visible_devices("0", 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
