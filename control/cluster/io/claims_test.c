/* Tests of claims.c: which epochs that nodes claim are believed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "control/cluster/io/claims.h"
#include "control/store/lease.h"

enum { NOW_MS = 5000 };

static enum flyt_claim_verdict judge(struct flyt_claims *claims, const char *node, uint64_t epoch, uint64_t now_ms)
{
    return flyt_claims_judge(claims, node, epoch, 7, now_ms);
}

static void test_not_too_far(void **state)
{
    struct flyt_claims claims = {0};

    assert_int_equal(judge(&claims, "a", UINT64_MAX, NOW_MS), FLYT_CLAIM_TOO_FAR);
    assert_int_equal(judge(&claims, "a", 1ull << 53, NOW_MS), FLYT_CLAIM_TOO_FAR);
    assert_int_equal(judge(&claims, "a", 7 + FLYT_CLAIM_AHEAD_MAX + 1, NOW_MS), FLYT_CLAIM_TOO_FAR);
    assert_int_equal(flyt_claims_judge(&claims, "a", FLYT_EPOCH_MAX + 1, FLYT_EPOCH_MAX, NOW_MS), FLYT_CLAIM_TOO_FAR);
    assert_int_equal(judge(&claims, "a", 7 + FLYT_CLAIM_AHEAD_MAX, NOW_MS), FLYT_CLAIM_BELIEVED);
    flyt_claims_fini(&claims);
}

/* One node deposes nobody again and again; what was refused counts for nothing. */
static void test_one_node(void **state)
{
    struct flyt_claims claims = {0};

    assert_int_equal(judge(&claims, "a", UINT64_MAX, NOW_MS), FLYT_CLAIM_TOO_FAR);
    assert_int_equal(judge(&claims, "a", 8, NOW_MS), FLYT_CLAIM_BELIEVED);
    assert_int_equal(judge(&claims, "a", 9, NOW_MS), FLYT_CLAIM_TOO_OFTEN);
    assert_int_equal(judge(&claims, "b", 9, NOW_MS), FLYT_CLAIM_BELIEVED);
    assert_int_equal(judge(&claims, "a", 9, NOW_MS + FLYT_CLAIM_NODE_MS - 1), FLYT_CLAIM_TOO_OFTEN);
    assert_int_equal(judge(&claims, "a", 9, NOW_MS + FLYT_CLAIM_NODE_MS), FLYT_CLAIM_BELIEVED);
    flyt_claims_fini(&claims);
}

/* Nor do many, one after the other. */
static void test_many_nodes(void **state)
{
    struct flyt_claims claims = {0};
    char name[16];

    for (unsigned i = 0; i < 3 * FLYT_CLAIMS_AT_ONCE; i++) {
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(judge(&claims, name, 8, NOW_MS),
                         i < FLYT_CLAIMS_AT_ONCE ? FLYT_CLAIM_BELIEVED : FLYT_CLAIM_TOO_OFTEN);
    }
    assert_int_equal(judge(&claims, "later", 8, NOW_MS + FLYT_CLAIM_EACH_MS - 1), FLYT_CLAIM_TOO_OFTEN);
    assert_int_equal(judge(&claims, "later", 8, NOW_MS + FLYT_CLAIM_EACH_MS), FLYT_CLAIM_BELIEVED);
    assert_int_equal(judge(&claims, "last", 8, NOW_MS + FLYT_CLAIM_EACH_MS), FLYT_CLAIM_TOO_OFTEN);
    assert_int_equal(judge(&claims, "last", 8, NOW_MS + 2 * FLYT_CLAIM_EACH_MS), FLYT_CLAIM_BELIEVED);
    flyt_claims_fini(&claims);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_not_too_far),
        cmocka_unit_test(test_one_node),
        cmocka_unit_test(test_many_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
