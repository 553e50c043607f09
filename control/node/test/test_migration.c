#include "control/node/test/test_migration.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { OTHER_ID = 0x22 };

/* ---- programs ---- */

void test_migration_enter(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_grant(test, &test_one);
    for (unsigned i = 0; i < count; i++) {
        programs[i] = test_node_enter(test, &test_one);
        test_program_say(test, &programs[i], "extent 1 0 8388608", "0");
        test_program_say(test, &programs[i], "write 1 4711", "0");
        test_program_say(test, &programs[i], "charge 0 1048576", "0");
        test_program_say(test, &programs[i], "library 7", "0");
    }
}

void test_migration_is_told_to_leave(struct test_node *test, struct test_program *program)
{
    test_program_say(test, program, NULL, "moved");
    test_program_say(test, program, NULL, "gone");
    close(program->fd);
    program->fd = -1;
}

void test_migration_go_on(struct test_node *test, struct test_program *program)
{
    test_node_come_back(test, &test_one, program);
    test_program_say(test, program, "go_on", "0");
}

/* ---- orders ---- */

struct test_wish test_migration_target(unsigned gpu)
{
    struct test_wish wish = test_one;

    wish.gpu = gpu;
    wish.revision = 2;
    wish.first_group = 8;
    return wish;
}

flyt_status test_migration_order(struct test_node *test, uint64_t id, const struct test_wish *wish,
                                 const flyt_migration_bounds *bounds, struct flyt_error *ret_err)
{
    const flyt_order_migrate_args args = {
        .epoch = 1, .migration_id = id, .allocation = test_node_allocation(test, wish), .bounds = *bounds};
    struct flyt_error err = {0};

    flyt_status status = flyt_node_migrate(&test->node, &args, &err);
    if (ret_err)
        *ret_err = err;
    return status;
}

void test_migration_start_within(struct test_node *test, unsigned gpu, unsigned timeout_s)
{
    const struct test_wish wish = test_migration_target(gpu);
    const flyt_migration_bounds bounds = {.timeout_s = timeout_s, .stop_ms = 60000};
    struct flyt_error err;

    if (test_migration_order(test, TEST_MIGRATION_ID, &wish, &bounds, &err) != FLYT_STATUS_OK)
        fail_msg("refused: %s", err.text);
}

void test_migration_start(struct test_node *test, unsigned gpu)
{
    test_migration_start_within(test, gpu, 0);
}

struct test_outcome test_migration_wish_other(struct test_node *test, unsigned gpu, unsigned first_group)
{
    const struct test_wish other = {.id = OTHER_ID,
                                    .revision = 1,
                                    .epoch = 1,
                                    .vm_ip = "10.0.0.2",
                                    .generation = 1,
                                    .sessions_max = 8,
                                    .memory_bytes = 10 * MIB,
                                    .gpu = gpu,
                                    .first_group = first_group,
                                    .group_count = 4};

    return test_node_order(test, &other);
}

void test_migration_set_out(struct test_node *test, struct test_program *programs, unsigned count, unsigned gpu)
{
    test_migration_enter(test, programs, count);
    test_migration_start(test, gpu);
    for (unsigned i = 0; i < count; i++)
        test_migration_is_told_to_leave(test, &programs[i]);
}

void test_migration_reach_target(struct test_node *test, struct test_program *program, unsigned gpu)
{
    test_migration_set_out(test, program, 1, gpu);
    test_node_come_back(test, &test_one, program);
    test_program_say(test, program, "resumed", "1 1");
}

/* ---- what there is ---- */

struct flyt_node_migration *test_migration_of(struct test_node *test)
{
    return flyt_node_migration_find(&test->node, TEST_MIGRATION_ID);
}

struct flyt_node_allocation *test_migration_allocation(struct test_node *test)
{
    return flyt_node_allocation_find(&test->node, test_one.id);
}

struct flyt_node_move *test_migration_move_of(struct test_node *test, const struct test_program *program)
{
    struct flyt_node_move *move = test_migration_of(test)->moves;

    while (move && move->session_id != program->session_id)
        move = move->next;
    assert_non_null(move);
    return move;
}

static bool has_phase(struct test_node *test, void *user)
{
    return test_migration_of(test)->op.phase >= *(const flyt_migration_phase *)user;
}

void test_migration_until(struct test_node *test, flyt_migration_phase phase)
{
    test_node_until(test, has_phase, &phase, "the migration's phase");
    if (test_migration_of(test)->op.phase != phase)
        fail_msg("phase %d, not %d: %s", test_migration_of(test)->op.phase, phase, test_migration_of(test)->op.text);
}

struct stage {
    enum flyt_node_move_stage stage;
    enum flyt_node_target_state state;
};

static bool has_stage(struct test_node *test, void *user)
{
    const struct flyt_node_move *move = test_migration_of(test)->moves;
    const struct stage *at = user;

    return move->stage > at->stage || (move->stage == at->stage && move->target.state >= at->state);
}

void test_migration_until_stage(struct test_node *test, enum flyt_node_move_stage stage,
                                enum flyt_node_target_state state)
{
    struct stage at = {stage, state};

    test_node_until(test, has_stage, &at, "the move's stage");
    assert_int_equal(test_migration_of(test)->moves->stage, stage);
    assert_int_equal(test_migration_of(test)->moves->target.state, state);
}

void test_migration_until_failed(struct test_node *test, const char *words)
{
    test_migration_until(test, FLYT_MIGRATION_FAILED);
    test_contains(test_migration_of(test)->op.text, words);
    test_contains(test->last_event, "migration.failed");
}

static bool has_moved_one(struct test_node *test, void *unused)
{
    return test->node.sessions_moved == 1;
}

void test_migration_until_one_has_moved(struct test_node *test)
{
    test_node_until(test, has_moved_one, NULL, "one has gone on");
}

void test_migration_is_only_on(struct test_node *test, unsigned gpu)
{
    const struct flyt_node_allocation *allocation = test_migration_allocation(test);

    assert_ptr_equal(allocation->slots[0].gpu, &test->node.gpus.items[gpu]);
    assert_string_equal(allocation->now.slots.slots_val[0].gpu_uuid, test->node.gpus.items[gpu].uuid);
    assert_null(allocation->slots[0].held_gpu);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next) {
        assert_null(flyt_node_move_at(server));
        assert_true(server->state != FLYT_NODE_SERVER_PREPARING && server->state != FLYT_NODE_SERVER_LEFT);
        if (flyt_node_server_allocation(server) == allocation)
            assert_true(server->gpu->index == gpu && server->has.gpus[0]->index == gpu);
    }
    assert_int_equal(test->node.starts[gpu].serving, allocation->session_count);
    assert_int_equal(test->node.starts[1 - gpu].serving, 0);
}

void test_migration_stayed(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_migration_is_only_on(test, 0);
    assert_int_equal(test_migration_allocation(test)->now.revision, 1);
    assert_int_equal(test_migration_allocation(test)->session_count, count);
    assert_int_equal(test_node_used_bytes(test, &test_one), count * 9 * MIB);
    for (unsigned i = 0; i < count; i++) {
        test_program_say(test, &programs[i], "read 1", "4711");
        test_program_say(test, &programs[i], "drop 1", "8388608");
        test_program_say(test, &programs[i], "release 0 1048576", "0");
    }
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
    /* Nobody holds the other side. */
    assert_int_equal(test_migration_wish_other(test, 1, 8).status, FLYT_STATUS_OK);
}

void test_migration_forget(struct test_node *test)
{
    test_node_remove_now(test, OTHER_ID);
    test_node_remove_now(test, test_one.id);
    flyt_node_migrations_fini(&test->node);
}
