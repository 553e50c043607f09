/* Tests of quota.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

#include "control/cluster/model/quota.h"

static void test_limits(void **state)
{
    struct flyt_quota none = {0}, limit = {100, 64ull << 30, 8, 4}, used = {90, 60ull << 30, 7, 4};
    char reason[256] = "";

    assert_true(flyt_quota_allows("a", &none, &used, &(struct flyt_quota){1 << 30, 1ull << 60, 1 << 20, 9}, reason,
                                  sizeof reason));
    assert_true(
        flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){10, 4ull << 30, 1, 0}, reason, sizeof reason));
    assert_false(flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){11, 0, 0, 0}, reason, sizeof reason));
    assert_string_equal(reason, "tenant a may have 100 SMs: 90 in use, 11 more wanted");
    assert_false(
        flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){0, 5ull << 30, 0, 0}, reason, sizeof reason));
    assert_string_equal(reason, "tenant a may have 64 GiB of memory: 60 GiB in use, 5 GiB more wanted");
    assert_false(flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){0, 0, 2, 0}, reason, sizeof reason));
    assert_string_equal(reason, "tenant a may have 8 client slots: 7 in use, 2 more wanted");
    assert_false(flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){0, 0, 0, 1}, reason, sizeof reason));
    assert_string_equal(reason, "tenant a may have 4 VMs: 4 in use, 1 more wanted");
    assert_false(
        flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){UINT64_MAX, 0, 0, 0}, reason, sizeof reason));
}

/* A limit that was lowered below what is in use hinders what needs more of it, nothing else. */
static void test_lowered(void **state)
{
    struct flyt_quota limit = {10, 0, 0, 0}, used = {20, 0, 0, 0};
    char reason[256] = "";

    assert_true(flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){0, 1, 1, 1}, reason, sizeof reason));
    assert_false(flyt_quota_allows("a", &limit, &used, &(struct flyt_quota){1, 0, 0, 0}, reason, sizeof reason));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_limits), cmocka_unit_test(test_lowered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
