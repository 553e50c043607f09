#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "control/node/ops/migration_way.h"
#include "rpc/transport/manager_link.h"

enum { FAR = 1, GIVEN, MIRRORED, BY_HOST };

static int kind_of(const struct flyt_node_way *way)
{
    assert_int_equal(way->is_far + way->is_given + way->is_mirrored + way->is_by_host, 1);
    return way->is_far ? FAR : way->is_given ? GIVEN : way->is_mirrored ? MIRRORED : BY_HOST;
}

/* By what is the same: 1 the node, 2 the GPU, 4 the capability; 8: it is reachable. */
static void test_all_ends(void **state)
{
    static const int expected[16] = {
        [1] = BY_HOST,     [1 | 2] = GIVEN,     [1 | 4] = BY_HOST,      [1 | 2 | 4] = GIVEN,
        [1 | 8] = BY_HOST, [1 | 2 | 8] = GIVEN, [1 | 4 | 8] = MIRRORED, [1 | 2 | 4 | 8] = GIVEN,
    };

    for (int i = 0; i < 16; i++) {
        const struct flyt_node_way_ends ends = {
            .is_same_node = i & 1, .is_same_gpu = i & 2, .is_same_capability = i & 4, .is_reachable = i & 8};
        assert_int_equal(kind_of(flyt_node_way_between(&ends)), i & 1 ? expected[i] : FAR);
    }
}

static void test_what_servers_are_told(void **state)
{
    static const struct {
        struct flyt_node_way_ends ends;
        uint32_t link_kind;
        const char *stop_point;
    } ways[] = {
        {{true, true, true, true}, FLYT_MANAGER_LINK_MOVE_GIVE, "node.migrate.stop"},
        {{true, false, true, true}, FLYT_MANAGER_LINK_MOVE_MIRROR, "node.migrate.stop"},
        {{true, false, true, false}, FLYT_MANAGER_LINK_MOVE_SEND, "node.migrate.stop"},
        {{true, false, false, true}, FLYT_MANAGER_LINK_MOVE_SEND, "node.migrate.stop"},
        {{false, false, true, true}, FLYT_MANAGER_LINK_MOVE_SEND, "node.send.stop"},
    };

    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const struct flyt_node_way *way = flyt_node_way_between(&ways[i].ends);
        assert_int_equal(way->link_kind, ways[i].link_kind);
        assert_string_equal(way->stop_point, ways[i].stop_point);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_ends),
        cmocka_unit_test(test_what_servers_are_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
