/* Tests of VMs that move while their programs run (migration.h), with fake servers that fail where they are told to. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/migration.h"
#include "control/node/pool.h"
#include "control/node/report.h"
#include "control/node/resume.h"
#include "control/node/test_node.h"
#include "rpc/base/fault_point.h"

#define MIB (1ull << 20)

enum { MOVE_ID = 0x99, LONG_MS = 600000 /* nobody waits so long */ };

static const struct test_wish one = {.id = 0x11,
                                     .revision = 1,
                                     .epoch = 1,
                                     .vm_ip = "10.0.0.1",
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .memory_bytes = 100 * MIB,
                                     .group_count = 4};

/* Another VM that wants these groups. */
static struct test_outcome wish_other(struct test_node *test, unsigned gpu, unsigned first_group)
{
    const struct test_wish other = {.id = 0x22,
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

static struct test_program enter(struct test_node *test, const struct test_wish *wish)
{
    const struct flyt_credentials credentials = test_node_credentials(wish);
    struct test_program program = test_node_connect(test, &credentials, NULL, false);

    if (program.status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", program.message);
    return program;
}

static void say(struct test_node *test, struct test_program *program, const char *line, const char *answer)
{
    const char *its = test_program_ask(test, program, line);

    if (strcmp(its, answer) != 0)
        fail_msg("%s: %s, not %s", line ? line : "nothing", its, answer);
}

static struct flyt_node_server *server_of(struct test_node *test, const struct test_program *program)
{
    return flyt_node_server_find(&test->node, program->session_id);
}

static struct flyt_node_allocation *allocation_of(struct test_node *test)
{
    return flyt_node_allocation_find(&test->node, one.id);
}

static uint64_t used_bytes(struct test_node *test)
{
    return test_node_use(test, one.id).slot.memory_used_bytes;
}

/* ---- orders ---- */

static struct flyt_error refusal;

static flyt_status migrate_as(struct test_node *test, uint64_t id, const struct test_wish *wish,
                              const flyt_migration_bounds *bounds)
{
    u_int groups[FLYT_GROUPS_MAX];
    flyt_slot slot = {.gpu_uuid = wish->gpu < test->node.gpus.count ? test->node.gpus.items[wish->gpu].uuid
                                                                    : (char *)"GPU-none",
                      .memory_bytes = wish->memory_bytes,
                      .sm_groups = {wish->group_count, groups},
                      .sm_count = 8 * wish->group_count};
    const flyt_order_migrate_args args = {
        .epoch = 1,
        .migration_id = id,
        .allocation = {.id = wish->id,
                       .vm_ip = (char *)wish->vm_ip,
                       .tenant = (char *)"",
                       .state = FLYT_ALLOCATION_ACTIVE,
                       .revision = wish->revision,
                       .generation = wish->generation,
                       .sessions_max = wish->sessions_max,
                       .isolation = wish->is_strict ? FLYT_ISOLATION_STRICT : FLYT_ISOLATION_SHARED,
                       .slots = {1, &slot}},
        .bounds = *bounds};

    for (unsigned i = 0; i < wish->group_count; i++)
        groups[i] = wish->first_group + i;
    refusal = (struct flyt_error){0};
    return flyt_node_migrate(&test->node, &args, &refusal);
}

/* Where it is to go: groups 8 to 11 of that GPU. */
static struct test_wish target_on(unsigned gpu)
{
    struct test_wish wish = one;

    wish.gpu = gpu;
    wish.revision = 2;
    wish.first_group = 8;
    return wish;
}

static void migrate_within(struct test_node *test, unsigned gpu, unsigned timeout_s)
{
    const struct test_wish wish = target_on(gpu);
    const flyt_migration_bounds bounds = {.timeout_s = timeout_s, .stop_ms = 60000};

    if (migrate_as(test, MOVE_ID, &wish, &bounds) != FLYT_STATUS_OK)
        fail_msg("refused: %s", refusal.text);
}

static void migrate(struct test_node *test, unsigned gpu)
{
    migrate_within(test, gpu, 0);
}

static struct flyt_node_migration *migration(struct test_node *test)
{
    return flyt_node_migration_find(&test->node, MOVE_ID);
}

static bool has_phase(struct test_node *test, void *user)
{
    return migration(test)->phase >= *(const flyt_migration_phase *)user;
}

static void until_phase(struct test_node *test, flyt_migration_phase phase)
{
    test_node_until(test, has_phase, &phase, "the migration's phase");
    if (migration(test)->phase != phase)
        fail_msg("phase %d, not %d: %s", migration(test)->phase, phase, migration(test)->text);
}

static void until_failed(struct test_node *test, const char *words)
{
    until_phase(test, FLYT_MIGRATION_FAILED);
    if (!strstr(migration(test)->text, words))
        fail_msg("not \"%s\": %s", words, migration(test)->text);
    assert_non_null(strstr(test->last_event, "migration.failed"));
}

/* What a program's client sees of it. */
static void is_told_to_leave(struct test_node *test, struct test_program *program)
{
    say(test, program, NULL, "moved");
    say(test, program, NULL, "gone");
    close(program->fd);
    program->fd = -1;
}

/* Its client comes, again and again until it is taken: the same session, the same token. */
static void come_back(struct test_node *test, struct test_program *program)
{
    const struct flyt_credentials credentials = test_node_credentials(&one);
    struct test_program again = {.status = FLYT_HANDSHAKE_BUSY};

    for (unsigned i = 0; i < 500 && again.status == FLYT_HANDSHAKE_BUSY; i++) {
        again = test_node_resume(test, &credentials, program->token, false);
        if (again.status == FLYT_HANDSHAKE_BUSY)
            test_node_run(test, 20);
    }
    if (again.status != FLYT_HANDSHAKE_OK)
        fail_msg("refused: %s", again.message);
    assert_true(again.session_id == program->session_id);
    assert_memory_equal(again.token, program->token, sizeof again.token);
    *program = again;
}

static void go_on(struct test_node *test, struct test_program *program)
{
    come_back(test, program);
    say(test, program, "go_on", "0");
}

static bool has_no_sessions(struct test_node *test, void *unused)
{
    return !allocation_of(test) || !allocation_of(test)->session_count;
}

static void leave(struct test_node *test, struct test_program *programs, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(programs[i].fd);
    test_node_until(test, has_no_sessions, NULL, "the sessions' end");
    assert_int_equal(used_bytes(test), 0);
}

/* The allocation is on this GPU and holds nothing else: so does no server. */
static void is_only_on(struct test_node *test, unsigned gpu)
{
    const struct flyt_node_allocation *allocation = allocation_of(test);

    assert_ptr_equal(allocation->slots[0].gpu, &test->node.gpus.items[gpu]);
    assert_string_equal(allocation->now.slots.slots_val[0].gpu_uuid, test->node.gpus.items[gpu].uuid);
    assert_null(allocation->slots[0].held_gpu);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next) {
        assert_null(server->move);
        assert_true(server->state != FLYT_NODE_SERVER_PREPARING && server->state != FLYT_NODE_SERVER_LEFT);
        if (server->allocation == allocation)
            assert_true(server->gpu->index == gpu && server->gpus[0]->index == gpu);
    }
    assert_int_equal(test->node.starts[gpu].serving, allocation->session_count);
    assert_int_equal(test->node.starts[1 - gpu].serving, 0);
}

/* It runs where it ran, with what it had. */
static void stayed(struct test_node *test, struct test_program *programs, unsigned count)
{
    is_only_on(test, 0);
    assert_int_equal(allocation_of(test)->now.revision, 1);
    assert_int_equal(allocation_of(test)->session_count, count);
    assert_int_equal(used_bytes(test), count * 9 * MIB);
    for (unsigned i = 0; i < count; i++) {
        say(test, &programs[i], "read 1", "4711");
        say(test, &programs[i], "drop 1", "8388608");
        say(test, &programs[i], "release 0 1048576", "0");
    }
    assert_int_equal(used_bytes(test), 0);
    /* Nobody holds the other side. */
    assert_int_equal(wish_other(test, 1, 8).status, FLYT_STATUS_OK);
}

/* Each has 8 MiB of memory that the node holds, 1 MiB that it does not, a word in memory, a library. */
static void begin(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_grant(test, &one);
    for (unsigned i = 0; i < count; i++) {
        programs[i] = enter(test, &one);
        say(test, &programs[i], "extent 1 0 8388608", "0");
        say(test, &programs[i], "write 1 4711", "0");
        say(test, &programs[i], "charge 0 1048576", "0");
        say(test, &programs[i], "library 7", "0");
    }
}

/* ---- as it should be ---- */

static void move_all(struct test_node *test, unsigned gpu, unsigned count)
{
    struct test_program programs[4];
    char before[128], after[128];
    pid_t pids[4];

    begin(test, programs, count);
    strcpy(before, test_program_ask(test, &programs[0], "memory 1"));
    for (unsigned i = 0; i < count; i++)
        pids[i] = server_of(test, &programs[i])->pid;
    migrate(test, gpu);
    /* Nobody else is given either side meanwhile. */
    assert_int_equal(wish_other(test, 0, 0).status, FLYT_STATUS_CONFLICT);
    assert_int_equal(wish_other(test, gpu, 8).status, FLYT_STATUS_CONFLICT);
    until_phase(test, FLYT_MIGRATION_SWITCHING);
    assert_int_equal(allocation_of(test)->now.revision, 2);
    assert_int_equal(wish_other(test, 0, 0).status, FLYT_STATUS_CONFLICT);
    assert_int_equal(wish_other(test, gpu, 8).status, FLYT_STATUS_CONFLICT);
    for (unsigned i = 0; i < count; i++) {
        is_told_to_leave(test, &programs[i]);
        assert_int_equal(test_node_use(test, one.id).session_count, count);
        come_back(test, &programs[i]);
        say(test, &programs[i], "resumed", "1 1");
        say(test, &programs[i], "read 1", "4711");
        say(test, &programs[i], "libraries", "1");
        say(test, &programs[i], "go_on", "0");
        assert_int_not_equal(server_of(test, &programs[i])->pid, pids[i]);
    }
    until_phase(test, FLYT_MIGRATION_DONE);
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        for (unsigned i = 0; i < count; i++)
            assert_true(server->pid != pids[i]); /* those that were left have gone */
    is_only_on(test, gpu);
    assert_int_equal(used_bytes(test), count * 8 * MIB);
    strcpy(after, test_program_ask(test, &programs[0], "memory 1"));
    assert_int_equal(strcmp(before, after) == 0, gpu == 0); /* given, or made anew */
    assert_int_equal(wish_other(test, 0, 0).status, FLYT_STATUS_OK);
    assert_int_equal(test->node.sessions_moved, count);
    assert_non_null(strstr(test->last_event, "migration.done"));
    /* They go on as any others: memory comes and goes, and they may move again. */
    for (unsigned i = 0; i < count; i++) {
        say(test, &programs[i], "extent 2 0 1048576", "0");
        say(test, &programs[i], "drop 1", "8388608");
        say(test, &programs[i], "drop 2", "1048576");
    }
    assert_int_equal(used_bytes(test), 0);
    leave(test, programs, count);
}

static void test_one_session(void **state)
{
    move_all(*state, 1, 1);
}

static void test_three_sessions(void **state)
{
    move_all(*state, 1, 3);
}

static void test_one_session_on_the_same_gpu(void **state)
{
    move_all(*state, 0, 1);
}

static void test_three_sessions_on_the_same_gpu(void **state)
{
    move_all(*state, 0, 3);
}

static void test_nobody_runs(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &one);
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    struct test_program program = enter(test, &one);
    assert_int_equal(server_of(test, &program)->gpu->index, 1);
    say(test, &program, "groups 0", "00000f00");
    leave(test, &program, 1);
}

/* What is told of it, during and afterwards. */
static void test_figures(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    flyt_migration_use use;
    flyt_heartbeat_args args;

    begin(test, &program, 1);
    say(test, &program, "extent 2 0 8388608", "0");
    migrate(test, 1);
    assert_int_equal(test->node.migrations_ended, 0);
    until_phase(test, FLYT_MIGRATION_SWITCHING);
    flyt_node_migration_use(migration(test), &use);
    assert_true(use.id == MOVE_ID && use.allocation_id == one.id);
    assert_int_equal(use.session_count, 1);
    assert_int_equal(use.round, 2);
    assert_int_equal(use.memory_bytes, 2 * 4096);
    assert_int_equal(use.copied_bytes, 4 * 4096);
    assert_int_equal(use.last_bytes, 4096);
    assert_int_equal(use.standstill_us, 0);
    is_told_to_leave(test, &program);
    come_back(test, &program);
    /* Two servers, one session. */
    assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
    assert_int_equal(args.sessions.sessions_len, 1);
    assert_int_equal(args.sessions.sessions_val[0].server_pid, server_of(test, &program)->pid);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
    say(test, &program, "go_on", "0");
    until_phase(test, FLYT_MIGRATION_DONE);
    flyt_node_migration_use(migration(test), &use);
    assert_int_equal(use.session_count, 1);
    assert_int_equal(use.copied_bytes, 4 * 4096);
    assert_int_equal(use.memory_bytes, 2 * 4096);
    assert_true(use.standstill_us > 0);
    assert_int_equal(use.outcome.status, FLYT_STATUS_OK);
    assert_int_equal(test->node.migrations_done, 1);
    say(test, &program, "state", "5 1"); /* so many lines before STOP */
    leave(test, &program, 1);
}

static void test_memory_comes_and_goes_meanwhile(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[2];
        begin(test, programs, 1);
        say(test, &programs[0], "extent 2 0 1048576", "0");
        say(test, &programs[0], "busy 1", "0");
        migrate(test, gpu);
        until_phase(test, FLYT_MIGRATION_COPYING);
        say(test, &programs[0], "extent 3 0 2097152", "0");
        say(test, &programs[0], "write 3 33", "0");
        say(test, &programs[0], "drop 2", "1048576");
        say(test, &programs[0], "library 8", "0");
        /* Made and gone before anybody can have answered. */
        say(test, &programs[0], "extent 4 0 65536", "0");
        say(test, &programs[0], "drop 4", "65536");
        /* One that begins joins. */
        programs[1] = enter(test, &one);
        say(test, &programs[1], "busy 1", "0");
        assert_int_equal(server_of(test, &programs[1])->gpu->index, 0);
        say(test, &programs[1], "extent 1 0 1048576", "0");
        say(test, &programs[1], "write 1 55", "0");
        test_node_run(test, 300);
        assert_int_equal(migration(test)->phase, FLYT_MIGRATION_COPYING);
        say(test, &programs[0], "write 1 44", "0");
        say(test, &programs[0], "busy 0", "0");
        say(test, &programs[1], "busy 0", "0");
        until_phase(test, FLYT_MIGRATION_SWITCHING);
        for (unsigned i = 0; i < 2; i++) {
            is_told_to_leave(test, &programs[i]);
            go_on(test, &programs[i]);
        }
        until_phase(test, FLYT_MIGRATION_DONE);
        is_only_on(test, gpu);
        say(test, &programs[0], "resumed", "2 4");
        say(test, &programs[0], "read 1", "44");
        say(test, &programs[0], "read 3", "33");
        say(test, &programs[0], "memory 2", "none");
        say(test, &programs[0], "libraries", "2");
        say(test, &programs[1], "read 1", "55");
        assert_int_equal(used_bytes(test), 11 * MIB);
        leave(test, programs, 2);
        test_node_stop(test);
        char path[128];
        snprintf(path, sizeof path, "%s/state.json", test->folder);
        assert_int_equal(unlink(path), 0);
        test_node_start(test);
        test_node_until_warm(test);
    }
}

/* More than a socket takes at once, in both directions. */
static void test_many_extents(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_node_grant(test, &one);
    program = enter(test, &one);
    say(test, &program, "extents 400 0 65536", "0");
    say(test, &program, "write 400 17", "0");
    for (unsigned round = 0; round < 2; round++) {
        struct test_wish wish = target_on(1 - round);
        wish.revision = 2 + round;
        wish.first_group = 8 - 8 * round;
        const flyt_migration_bounds bounds = {0};
        assert_int_equal(migrate_as(test, MOVE_ID + round, &wish, &bounds), FLYT_STATUS_OK);
        is_told_to_leave(test, &program);
        go_on(test, &program);
        say(test, &program, "resumed", "400 400");
        say(test, &program, "read 400", "17");
        const flyt_migration_phase done = FLYT_MIGRATION_DONE;
        while (test->node.migrations->phase < done)
            test_node_run(test, 20);
        is_only_on(test, 1 - round);
        assert_int_equal(used_bytes(test), 400 * 65536);
    }
    leave(test, &program, 1);
}

/* One ends while it is moved: the others move. */
static void test_a_program_ends_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[0], "busy 1", "0");
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_COPYING);
    say(test, &programs[0], "quit", "gone");
    close(programs[0].fd);
    is_told_to_leave(test, &programs[1]);
    go_on(test, &programs[1]);
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    leave(test, &programs[1], 1);
}

/* ---- what is refused ---- */

static void is_refused(struct test_node *test, uint64_t id, const struct test_wish *wish, flyt_status status,
                       const char *words)
{
    const flyt_migration_bounds bounds = {0};

    assert_int_equal(migrate_as(test, id, wish, &bounds), status);
    if (!strstr(refusal.text, words))
        fail_msg("not \"%s\": %s", words, refusal.text);
}

static void test_refusals(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish wish = target_on(1);

    is_refused(test, 5, &wish, FLYT_STATUS_NOT_FOUND, "no such allocation");
    begin(test, &program, 1);
    is_refused(test, 0, &wish, FLYT_STATUS_INVALID, "needs an id");
    wish.revision = 1;
    is_refused(test, 5, &wish, FLYT_STATUS_STALE, "has revision 1");
    wish = target_on(7);
    is_refused(test, 5, &wish, FLYT_STATUS_NOT_FOUND, "has no GPU");
    wish = target_on(1);
    wish.is_strict = true;
    is_refused(test, 5, &wish, FLYT_STATUS_INVALID, "class");
    wish = target_on(1);
    wish.first_group = 14;
    is_refused(test, 5, &wish, FLYT_STATUS_INVALID, "no group 16");
    wish = target_on(1);
    wish.memory_bytes = 2048 * MIB;
    is_refused(test, 5, &wish, FLYT_STATUS_NO_CAPACITY, "no room");
    wish.memory_bytes = 8 * MIB;
    is_refused(test, 5, &wish, FLYT_STATUS_IN_USE, "in use");
    wish = target_on(1);
    assert_int_equal(wish_other(test, 1, 8).status, FLYT_STATUS_OK);
    is_refused(test, 5, &wish, FLYT_STATUS_CONFLICT, "still used by VM 10.0.0.2");
    wish.first_group = 0;
    uint64_t slots = test->settings.client_slots;
    test->settings.client_slots = 1;
    is_refused(test, 5, &wish, FLYT_STATUS_NO_CAPACITY, "client slots");
    test->settings.client_slots = slots;
    test->node.gpus.items[1].health = FLYT_HEALTH_FAILED;
    is_refused(test, 5, &wish, FLYT_STATUS_UNAVAILABLE, "has failed");
    test->node.gpus.items[1].health = FLYT_HEALTH_OK;
    assert_int_equal(flyt_fault_set("node.migrate.accept:error"), 0);
    is_refused(test, 5, &wish, FLYT_STATUS_UNAVAILABLE, "node.migrate.accept");
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_null(test->node.migrations);
    is_only_on(test, 0);
    leave(test, &program, 1);
}

static bool says_it_cannot(struct test_node *test, void *user)
{
    const struct flyt_node_server *server = server_of(test, user);

    return server->has_use && !server->use.can_move;
}

static bool says_it_can(struct test_node *test, void *user)
{
    return server_of(test, user)->use.can_move;
}

static bool is_away(struct test_node *test, void *user)
{
    return flyt_node_resume_find(&test->node, ((struct test_program *)user)->session_id) != NULL;
}

static void test_sessions_that_cannot(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    struct test_wish wish = target_on(1);

    begin(test, programs, 2);
    say(test, &programs[1], "movable 0", "0");
    test_node_until(test, says_it_cannot, &programs[1], "it says that it cannot be moved");
    is_refused(test, 5, &wish, FLYT_STATUS_NOT_SUPPORTED, "test_program of VM 10.0.0.1 cannot be moved");
    say(test, &programs[1], "movable 1", "0");
    say(test, &programs[1], "refusing 1", "0");
    test_node_until(test, says_it_can, &programs[1], "it says that it can be moved");
    migrate(test, 1);
    until_failed(test, "a kernel of it allocates memory");
    assert_int_equal(migration(test)->status, FLYT_STATUS_NOT_SUPPORTED);
    assert_non_null(strstr(migration(test)->text, "program test_program of VM 10.0.0.1"));
    /* One that waits for its client. */
    say(test, &programs[1], "replaceable 1", "0");
    say(test, &programs[1], "die", "gone");
    close(programs[1].fd);
    test->node.resume_ms = LONG_MS;
    test_node_until(test, is_away, &programs[1], "the session waits for its client");
    is_refused(test, 5, &wish, FLYT_STATUS_IN_USE, "has lost its server process");
    come_back(test, &programs[1]);
    assert_non_null(strstr(test->last_event, "session.resumed"));
    say(test, &programs[1], "write 1 4711", "0");
    say(test, &programs[1], "charge 0 1048576", "0");
    stayed(test, programs, 2);
    leave(test, programs, 2);
}

static void test_one_at_a_time(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish wish = target_on(1);
    const flyt_migration_bounds none = {0};

    begin(test, &program, 1);
    say(test, &program, "busy 1", "0");
    migrate(test, 1);
    /* The same one again is what there is. */
    assert_int_equal(migrate_as(test, MOVE_ID, &wish, &none), FLYT_STATUS_OK);
    wish.revision = 3;
    is_refused(test, 5, &wish, FLYT_STATUS_CONFLICT, "a migration of VM 10.0.0.1 is under way");
    /* Nor is it changed otherwise. */
    wish = one;
    wish.revision = 2;
    wish.memory_bytes = 50 * MIB;
    struct test_outcome outcome = test_node_order(test, &wish);
    assert_int_equal(outcome.status, FLYT_STATUS_CONFLICT);
    assert_non_null(strstr(outcome.text, "a migration of VM 10.0.0.1 is under way"));
    assert_int_equal(test_node_order(test, &one).status, FLYT_STATUS_OK); /* as it is */
    say(test, &program, "busy 0", "0");
    is_told_to_leave(test, &program);
    go_on(test, &program);
    until_phase(test, FLYT_MIGRATION_DONE);
    assert_int_equal(migrate_as(test, MOVE_ID, &wish, &none), FLYT_STATUS_OK);
    assert_int_equal(migration(test)->phase, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    leave(test, &program, 1);
}

/* ---- failures before the commit ---- */

static bool is_renewed(struct test_node *test, void *user)
{
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (server->state == FLYT_NODE_SERVER_ENDING && !server->allocation)
            return false;
    return test->node.starts[0].warm && test->node.starts[1].warm;
}

/* Points of this process; and of servers, which are started anew. */
static void make_fail(struct test_node *test, const char *node_points, const char *server_points)
{
    assert_int_equal(flyt_fault_set(node_points), 0);
    if (server_points)
        setenv(FLYT_FAULT_VARIABLE, server_points, 1);
    else
        unsetenv(FLYT_FAULT_VARIABLE);
    for (unsigned i = 0; i < test->node.gpus.count; i++)
        flyt_node_pool_renew(&test->node, &test->node.gpus.items[i]);
    test_node_until(test, is_renewed, NULL, "other warm servers");
}

static const struct {
    const char *node_points, *server_points, *words;
} failures[] = {
    {"node.migrate.prepare:error", NULL, "node.migrate.prepare"},
    {"node.migrate.make:error", NULL, "node.migrate.make"},
    {"node.migrate.make:error:2", NULL, "node.migrate.make"},
    {"node.migrate.mirror:error", NULL, "node.migrate.mirror"},
    {"node.migrate.stop:error", NULL, "node.migrate.stop"},
    {"node.migrate.stop:error:2", NULL, "node.migrate.stop"},
    {"node.migrate.state:error:2", NULL, "node.migrate.state"},
    {"node.migrate.commit:error", NULL, "node.migrate.commit"},
    {"node.migrate.leave:error", NULL, "node.migrate.leave"},
    {NULL, "fake.prepare:error", "come to be elsewhere"},
    {NULL, "fake.prepare:kill", "new server process has ended"},
    {NULL, "fake.make:error", "cannot be made on GPU 1"},
    {NULL, "fake.make:kill", "new server process has ended"},
    {NULL, "fake.state:error", "come to be elsewhere"},
    {NULL, "fake.state:kill", "new server process has ended"},
};

static void test_failures(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        begin(test, programs, 2);
        make_fail(test, failures[i].node_points, failures[i].server_points);
        migrate(test, 1);
        until_failed(test, failures[i].words);
        assert_int_equal(migration(test)->status, strstr(failures[i].words, "cannot be made")
                                                      ? FLYT_STATUS_NO_CAPACITY
                                                      : FLYT_STATUS_UNAVAILABLE);
        make_fail(test, NULL, NULL);
        stayed(test, programs, 2);
        leave(test, programs, 2);
        test_node_remove(test, 0x22);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
        /* The next one has the same id. */
        flyt_node_migrations_fini(&test->node);
    }
}

static void test_the_state_cannot_be_kept(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char path[128];

    begin(test, &program, 1);
    snprintf(path, sizeof path, "%s/state.json.part", test->folder);
    assert_int_equal(mkdir(path, 0700), 0);
    migrate(test, 1);
    until_failed(test, "state file cannot be written");
    assert_int_equal(rmdir(path), 0);
    stayed(test, &program, 1);
    leave(test, &program, 1);
}

/* It stops when it is asked for the third time. */
static void test_a_program_that_stops_late(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[1], "restless 2", "0");
    migrate(test, 1);
    for (unsigned i = 0; i < 2; i++)
        is_told_to_leave(test, &programs[i]);
    assert_int_equal(migration(test)->tries, 3);
    for (unsigned i = 0; i < 2; i++)
        go_on(test, &programs[i]);
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    for (unsigned i = 0; i < 2; i++)
        say(test, &programs[i], "read 1", "4711");
    leave(test, programs, 2);
}

static void test_a_program_that_never_stops(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[0], "restless 100", "0");
    migrate(test, 1);
    until_failed(test, "its program does not stop");
    assert_int_equal(migration(test)->status, FLYT_STATUS_TIMEOUT);
    assert_int_equal(migration(test)->tries, FLYT_NODE_MIGRATION_TRIES);
    stayed(test, programs, 2);
    leave(test, programs, 2);
}

static void test_its_time_is_over(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    say(test, &program, "busy 1", "0");
    migrate_within(test, 1, 1);
    until_failed(test, "not through after 1 s");
    assert_int_equal(migration(test)->status, FLYT_STATUS_TIMEOUT);
    stayed(test, &program, 1);
    leave(test, &program, 1);
}

static bool is_prepared_for(struct test_node *test, void *unused)
{
    return migration(test)->moves->stage == FLYT_NODE_MOVE_PREPARING;
}

static void cancel(struct test_node *test, struct test_program *program)
{
    assert_int_equal(flyt_node_migration_cancel(migration(test), "an operator has ended the migration"), 0);
    until_failed(test, "an operator");
    assert_int_equal(migration(test)->status, FLYT_STATUS_CONFLICT);
    assert_int_equal(flyt_node_migration_cancel(migration(test), "again"), -EALREADY);
    make_fail(test, NULL, NULL);
    stayed(test, program, 1);
    leave(test, program, 1);
}

static void test_cancel_while_preparing(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    make_fail(test, NULL, "fake.prepare:hang");
    migrate(test, 1);
    test_node_until(test, is_prepared_for, NULL, "the server that hangs is told of it");
    cancel(test, &program);
}

static void test_cancel_while_copying(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    make_fail(test, NULL, "fake.make:hang");
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_COPYING);
    cancel(test, &program);
}

static void test_cancel_while_stopping(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    say(test, &program, "mute 1", "0");
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_STOPPING);
    cancel(test, &program);
}

static bool is_loading(struct test_node *test, void *unused)
{
    return migration(test)->moves->stage == FLYT_NODE_MOVE_LOADING;
}

static void test_cancel_while_loading(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    make_fail(test, NULL, "fake.state:hang");
    migrate(test, 1);
    test_node_until(test, is_loading, NULL, "the program stands still");
    cancel(test, &program);
}

static void test_cancel_comes_too_late(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    migrate(test, 1);
    is_told_to_leave(test, &program);
    assert_int_equal(flyt_node_migration_cancel(migration(test), "too late"), -EALREADY);
    go_on(test, &program);
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    leave(test, &program, 1);
}

/* ---- failures after the commit ---- */

/* They are back, and the commit is undone. */
static void taken_back(struct test_node *test, struct test_program *programs, unsigned count, const char *words)
{
    for (unsigned i = 0; i < count; i++) {
        say(test, &programs[i], "resumed", "no"); /* it never was anywhere else */
        say(test, &programs[i], "go_on", "0");
    }
    until_failed(test, words);
    make_fail(test, NULL, NULL);
    stayed(test, programs, count);
    leave(test, programs, count);
}

/* The target ends when it is given the session; of several, too, as long as none has gone on. */
static void test_a_target_fails_after_the_commit(void **state)
{
    struct test_node *test = *state;
    static const char *const points[] = {"fake.session:error", "fake.session:kill"};

    for (size_t i = 0; i < 2; i++)
        for (unsigned gpu = 0; gpu < 2; gpu++) {
            struct test_program programs[2];
            begin(test, programs, 2);
            make_fail(test, NULL, points[i]);
            migrate(test, gpu);
            is_told_to_leave(test, &programs[0]);
            is_told_to_leave(test, &programs[1]);
            /* Its connection ends with the server. */
            const unsigned char *token = programs[0].token;
            struct flyt_node_server *source;
            struct flyt_error err;
            assert_int_equal(
                flyt_node_move_find_token(&test->node, allocation_of(test), token, FLYT_TOKEN_BYTES, &source, &err), 0);
            int ends[2];
            assert_int_equal(pipe(ends), 0);
            const struct flyt_node_ticket ticket = {.session_id = programs[0].session_id, .allocation_id = one.id};
            assert_int_equal(flyt_node_move_take_client(source, &ticket, ends[0], "a record of sixteen", 16), 0);
            for (unsigned j = 0; j < 2; j++)
                come_back(test, &programs[j]);
            close(ends[1]);
            taken_back(test, programs, 2, "new server process");
            test_node_remove(test, 0x22);
            test_node_remove(test, one.id);
            test_node_until(test, test_node_is_removed, NULL, "the removal");
            flyt_node_migrations_fini(&test->node);
        }
}

/* The client's connection to the target breaks before the session goes on there. */
static void test_a_client_loses_its_target(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[1];
        begin(test, programs, 1);
        migrate(test, gpu);
        is_told_to_leave(test, &programs[0]);
        come_back(test, &programs[0]);
        say(test, &programs[0], "resumed", "1 1");
        assert_int_equal(used_bytes(test), 8 * MIB);
        int fd = programs[0].fd;
        come_back(test, &programs[0]);
        close(fd);
        taken_back(test, programs, 1, "has lost its new server process");
        test_node_remove(test, 0x22);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
        flyt_node_migrations_fini(&test->node);
    }
}

/* SESSION cannot be sent to it. */
static void test_a_target_does_not_take_it(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    migrate(test, 1);
    is_told_to_leave(test, &program);
    make_fail(test, "node.migrate.switch:error:1", NULL);
    come_back(test, &program);
    taken_back(test, &program, 1, "new server process has ended");
}

static bool is_failing(struct test_node *test, void *unused)
{
    return migration(test)->is_failing;
}

/* It dies between the commit and its client's coming. */
static void test_a_target_dies_before_its_client_comes(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    migrate(test, 1);
    is_told_to_leave(test, &programs[0]);
    is_told_to_leave(test, &programs[1]);
    assert_int_equal(kill(migration(test)->moves->target->pid, SIGKILL), 0);
    test_node_until(test, is_failing, NULL, "its end is seen");
    come_back(test, &programs[0]);
    come_back(test, &programs[1]);
    taken_back(test, programs, 2, "new server process has ended");
}

static bool has_lost_one(struct test_node *test, void *unused)
{
    return migration(test)->lost_count == 1;
}

static bool has_moved_one(struct test_node *test, void *unused)
{
    return test->node.sessions_moved == 1;
}

/* One allocation's programs are on one side: one whose target dies when others have gone on ends. */
static void test_a_target_dies_when_another_has_gone_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    migrate(test, 1);
    is_told_to_leave(test, &programs[0]);
    is_told_to_leave(test, &programs[1]);
    go_on(test, &programs[0]);
    test_node_until(test, has_moved_one, NULL, "one has gone on");
    struct flyt_node_move *move = migration(test)->moves;
    while (move->session_id != programs[1].session_id)
        move = move->next;
    assert_int_equal(kill(move->target->pid, SIGKILL), 0);
    test_node_until(test, has_lost_one, NULL, "the other is lost");
    until_phase(test, FLYT_MIGRATION_DONE);
    assert_int_equal(allocation_of(test)->session_count, 1);
    is_only_on(test, 1);
    say(test, &programs[0], "read 1", "4711");
    assert_int_equal(used_bytes(test), 8 * MIB);
    leave(test, programs, 1);
}

static void test_a_client_that_does_not_come(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    test->node.switch_ms = 200;
    migrate(test, 1);
    is_told_to_leave(test, &program);
    test_node_until(test, has_no_sessions, NULL, "the session's end");
    until_phase(test, FLYT_MIGRATION_DONE);
    assert_int_equal(used_bytes(test), 0);
    is_only_on(test, 1);
}

/* One that is at the target and never says that it goes on. */
static void test_a_target_that_hangs(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    migrate(test, 1);
    is_told_to_leave(test, &program);
    come_back(test, &program);
    say(test, &program, "resumed", "1 1");
    test->node.switch_ms = 1;
    say(test, &program, NULL, "gone");
    test->node.switch_ms = LONG_MS;
    close(program.fd);
    come_back(test, &program);
    taken_back(test, &program, 1, "has not said in time");
}

/* Its session goes on at the target, which says so; but this is not read on its own. */
static void go_on_unread(struct test_program *program, struct flyt_node_server *target)
{
    char answer[2];

    assert_true(sd_event_source_set_enabled(target->link_source, SD_EVENT_OFF) >= 0);
    assert_int_equal(send(program->fd, "go_on\n", 6, MSG_NOSIGNAL), 6);
    assert_int_equal(recv(program->fd, answer, sizeof answer, MSG_WAITALL), sizeof answer);
    assert_memory_equal(answer, "0\n", sizeof answer);
}

static struct flyt_node_move *move_of(struct test_node *test, const struct test_program *program)
{
    struct flyt_node_move *move = migration(test)->moves;

    while (move && move->session_id != program->session_id)
        move = move->next;
    assert_non_null(move);
    return move;
}

static bool has_moved_or_fails(struct test_node *test, void *unused)
{
    return has_moved_one(test, NULL) || is_failing(test, NULL) || flyt_node_migration_has_ended(migration(test));
}

/* That one goes on has been said, and not been read, when another one's target dies: it has gone on all the same. */
static void test_a_target_dies_when_another_has_said_that_it_goes_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    migrate(test, 1);
    for (unsigned i = 0; i < 2; i++)
        is_told_to_leave(test, &programs[i]);
    for (unsigned i = 0; i < 2; i++) {
        come_back(test, &programs[i]);
        say(test, &programs[i], "resumed", "1 1");
    }
    struct flyt_node_server *target = move_of(test, &programs[0])->target;
    go_on_unread(&programs[0], target);
    assert_int_equal(kill(move_of(test, &programs[1])->target->pid, SIGKILL), 0);
    test_node_until(test, has_moved_or_fails, NULL, "the other's end is seen to");
    assert_int_equal(test->node.sessions_moved, 1);
    assert_true(sd_event_source_set_enabled(target->link_source, SD_EVENT_ON) >= 0);
    until_phase(test, FLYT_MIGRATION_DONE);
    assert_int_equal(migration(test)->lost_count, 1);
    assert_int_equal(allocation_of(test)->session_count, 1);
    is_only_on(test, 1);
    say(test, &programs[0], "read 1", "4711");
    close(programs[1].fd);
    leave(test, programs, 1);
}

/* The same of one whose time is over. */
static void test_a_target_has_said_in_time_that_it_goes_on(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    migrate(test, 1);
    is_told_to_leave(test, &program);
    come_back(test, &program);
    say(test, &program, "resumed", "1 1");
    struct flyt_node_server *target = migration(test)->moves->target;
    go_on_unread(&program, target);
    test->node.switch_ms = 1;
    test_node_until(test, has_moved_or_fails, NULL, "its time is over");
    assert_int_equal(test->node.sessions_moved, 1);
    test->node.switch_ms = LONG_MS;
    assert_true(sd_event_source_set_enabled(target->link_source, SD_EVENT_ON) >= 0);
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    say(test, &program, "read 1", "4711");
    leave(test, &program, 1);
}

/* ---- bounds ---- */

static bool has_begun(struct test_node *test, void *unused)
{
    return migration(test)->moves->stage == FLYT_NODE_MOVE_BEGUN;
}

/* They come and go while there is no target yet: so many, of so many bytes. */
static void test_libraries_without_bounds(void **state)
{
    struct test_node *test = *state;
    static struct flyt_server_link_message told = {.kind = FLYT_SERVER_LINK_LIBRARY};

    for (unsigned i = 0; i < 2; i++) {
        struct test_program program;
        begin(test, &program, 1);
        migrate(test, 1);
        test_node_until(test, has_begun, NULL, "a target is wanted");
        struct flyt_node_move *move = migration(test)->moves;
        assert_null(move->target);
        told.data_bytes = i ? FLYT_SERVER_LINK_DATA_BYTES_MAX : 1;
        unsigned count_max = i ? FLYT_NODE_MOVE_LIBRARIES_BYTES_MAX / told.data_bytes : FLYT_NODE_MOVE_LIBRARIES_MAX;
        for (unsigned count = move->library_count; count < count_max; count++) {
            told.library.has_ended = count % 2;
            flyt_node_move_hear(move->source, &told, -1);
        }
        assert_int_equal(move->outcome, 0);
        flyt_node_move_hear(move->source, &told, -1);
        assert_int_equal(move->outcome, -ENOBUFS);
        until_failed(test, "more libraries than the node manager keeps");
        stayed(test, &program, 1);
        leave(test, &program, 1);
        test_node_remove(test, 0x22);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
        flyt_node_migrations_fini(&test->node);
    }
}

static bool is_copying(struct test_node *test, void *unused)
{
    return migration(test)->moves->stage == FLYT_NODE_MOVE_COPYING;
}

/* A target that does not read is told so much: in messages, and in bytes. */
static void test_a_target_that_does_not_read(void **state)
{
    struct test_node *test = *state;
    static struct flyt_server_link_message told = {.kind = FLYT_SERVER_LINK_LIBRARY};

    for (unsigned i = 0; i < 2; i++) {
        struct test_program program;
        begin(test, &program, 1);
        say(test, &program, "busy 1", "0");
        migrate(test, 0);
        test_node_until(test, is_copying, NULL, "the target is prepared");
        struct flyt_node_move *move = migration(test)->moves;
        const struct flyt_node_link_queue *queue = &move->target->queue;
        assert_int_equal(kill(move->target->pid, SIGSTOP), 0);
        told.data_bytes = i ? FLYT_SERVER_LINK_DATA_BYTES_MAX : 1;
        unsigned sent_count = 0;
        while (!move->outcome && sent_count++ < 2 * FLYT_NODE_LINK_QUEUE_MAX)
            flyt_node_move_hear(move->source, &told, -1);
        assert_int_equal(move->outcome, -ENOBUFS);
        assert_true(queue->count <= FLYT_NODE_LINK_QUEUE_MAX && queue->bytes <= FLYT_NODE_LINK_QUEUE_BYTES_MAX);
        assert_true(i ? queue->count < FLYT_NODE_LINK_QUEUE_MAX : queue->count == FLYT_NODE_LINK_QUEUE_MAX);
        until_failed(test, "does not read what it is told");
        stayed(test, &program, 1);
        leave(test, &program, 1);
        test_node_remove(test, 0x22);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
        flyt_node_migrations_fini(&test->node);
    }
}

static void is_closed(int fd)
{
    assert_int_equal(fcntl(fd, F_GETFD), -1);
    assert_int_equal(errno, EBADF);
}

static bool is_awaited(struct test_node *test, void *unused)
{
    return is_copying(test, NULL) && migration(test)->moves->awaited_count;
}

/* Answers of a failure that come with a descriptor. */
static void test_descriptors_of_failures(void **state)
{
    struct test_node *test = *state;
    static struct flyt_server_link_message told;
    struct test_program program;

    begin(test, &program, 1);
    make_fail(test, NULL, "fake.make:hang");
    migrate(test, 1);
    test_node_until(test, is_awaited, NULL, "memory is to be made");
    struct flyt_node_move *move = migration(test)->moves;
    told.kind = FLYT_SERVER_LINK_MADE;
    told.made = (struct flyt_server_link_made){.extent = move->extents->extent, .outcome = -ENOMEM};
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    flyt_node_move_hear(move->target, &told, fd);
    is_closed(fd);
    until_failed(test, "cannot be made on GPU 1");
    make_fail(test, NULL, NULL);
    flyt_node_migrations_fini(&test->node);
    say(test, &program, "mute 1", "0");
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_STOPPING);
    move = migration(test)->moves;
    told.kind = FLYT_SERVER_LINK_STOPPED;
    told.stopped = (struct flyt_server_link_stopped){.move_id = move->move_id, .outcome = -EIO};
    fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    flyt_node_move_hear(move->source, &told, fd);
    is_closed(fd);
    until_failed(test, strerror(EIO));
    stayed(test, &program, 1);
    leave(test, &program, 1);
}

/* ---- sources ---- */

static void test_a_source_dies_before_it_is_left(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[0], "busy 1", "0");
    say(test, &programs[0], "replaceable 1", "0");
    test->node.resume_ms = LONG_MS;
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_COPYING);
    say(test, &programs[0], "die", "gone");
    close(programs[0].fd);
    until_phase(test, FLYT_MIGRATION_FAILED);
    assert_non_null(strstr(migration(test)->text, "ended unexpectedly"));
    /* It is as replaceable as ever. */
    come_back(test, &programs[0]);
    say(test, &programs[0], "resumed", "1 1");
    say(test, &programs[0], "charge 0 1048576", "0");
    stayed(test, programs, 2);
    leave(test, programs, 2);
}

static bool is_between_tries(struct test_node *test, void *unused)
{
    return migration(test)->pause_until_ms;
}

/* Nothing of it is moved then; it waits for its client on the side where the others stay, too. */
static void test_a_source_dies_between_two_tries(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[1], "restless 1", "0");
    say(test, &programs[0], "replaceable 1", "0");
    test->node.resume_ms = LONG_MS;
    migrate(test, 1);
    test_node_until(test, is_between_tries, NULL, "a try that has failed");
    migration(test)->pause_until_ms = UINT64_MAX; /* however long the rest takes */
    assert_int_equal(kill(server_of(test, &programs[0])->pid, SIGKILL), 0);
    test_node_until(test, is_away, &programs[0], "the session waits without a process");
    close(programs[0].fd);
    migration(test)->pause_until_ms = 1;
    until_failed(test, "has lost its server process meanwhile");
    come_back(test, &programs[0]);
    say(test, &programs[0], "resumed", "1 1");
    say(test, &programs[0], "charge 0 1048576", "0");
    stayed(test, programs, 2);
    leave(test, programs, 2);
}

/* Its client is on its way to what has been prepared. */
static void test_a_source_dies_when_it_was_left(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[1];
        begin(test, programs, 1);
        test->node.resume_ms = LONG_MS;
        migrate(test, gpu);
        is_told_to_leave(test, &programs[0]);
        assert_int_equal(kill(server_of(test, &programs[0])->pid, SIGKILL), 0);
        test_node_until(test, is_away, &programs[0], "the session waits without a process");
        go_on(test, &programs[0]);
        until_phase(test, FLYT_MIGRATION_DONE);
        is_only_on(test, gpu);
        say(test, &programs[0], "read 1", "4711");
        assert_int_equal(used_bytes(test), 8 * MIB);
        leave(test, programs, 1);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
        flyt_node_migrations_fini(&test->node);
    }
}

static bool is_one_server(struct test_node *test, void *unused)
{
    return !migration(test)->moves->source;
}

static void test_a_source_dies_when_its_target_has_it(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    migrate(test, 1);
    is_told_to_leave(test, &program);
    come_back(test, &program);
    assert_int_equal(kill(migration(test)->moves->source->pid, SIGKILL), 0);
    test_node_until(test, is_one_server, NULL, "the end of the server that was left");
    say(test, &program, "read 1", "4711");
    say(test, &program, "go_on", "0");
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    leave(test, &program, 1);
}

/* One that hangs is killed. */
static void test_a_source_that_does_not_end(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    say(test, &program, "stubborn", "0");
    migrate(test, 1);
    is_told_to_leave(test, &program);
    go_on(test, &program);
    until_phase(test, FLYT_MIGRATION_DONE);
    is_only_on(test, 1);
    leave(test, &program, 1);
}

static void test_a_session_is_ended_on_its_way(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    migrate(test, 1);
    is_told_to_leave(test, &program);
    flyt_node_server_end(server_of(test, &program), "an operator has ended this session");
    test_node_until(test, has_no_sessions, NULL, "the session's end");
    until_phase(test, FLYT_MIGRATION_DONE);
    assert_int_equal(used_bytes(test), 0);
    is_only_on(test, 1);
}

/* At its target, which has not said that it goes on: it does not come back to its source. */
static void test_a_session_is_ended_where_it_is_to_go_on(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program program;
        begin(test, &program, 1);
        migrate(test, gpu);
        is_told_to_leave(test, &program);
        come_back(test, &program);
        say(test, &program, "resumed", "1 1");
        struct flyt_node_server *target = flyt_node_server_find(&test->node, program.session_id);
        assert_ptr_equal(target, migration(test)->moves->target);
        flyt_node_move_end_session(target, "an operator has ended this session");
        test_node_until(test, has_no_sessions, NULL, "the session's end");
        until_phase(test, FLYT_MIGRATION_DONE);
        assert_int_equal(used_bytes(test), 0);
        is_only_on(test, gpu);
        close(program.fd);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
        flyt_node_migrations_fini(&test->node);
    }
}

/* ---- others ---- */

static int on_cancel(sd_event_source *source, uint64_t usec, void *user)
{
    flyt_node_migration_cancel(user, "an operator has ended the migration");
    return 0;
}

/* While the others stand still one that begins waits; here until it is clear that they stay. */
static void test_a_program_that_begins_waits(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    sd_event_source *timer = NULL;

    begin(test, programs, 1);
    say(test, &programs[0], "mute 1", "0");
    migrate(test, 1);
    until_phase(test, FLYT_MIGRATION_STOPPING);
    assert_true(
        sd_event_add_time_relative(test->event, &timer, CLOCK_MONOTONIC, 500000, 1, on_cancel, migration(test)) >= 0);
    programs[1] = enter(test, &one);
    assert_int_not_equal(migration(test)->status, FLYT_STATUS_OK); /* not before */
    assert_int_equal(server_of(test, &programs[1])->gpu->index, 0);
    until_failed(test, "an operator");
    sd_event_source_disable_unref(timer);
    leave(test, programs, 2);
}

static void remove_in(struct test_node *test, flyt_migration_phase phase, const char *line)
{
    struct test_program programs[2];

    begin(test, programs, 2);
    if (line)
        say(test, &programs[0], line, "0");
    migrate(test, 1);
    until_phase(test, phase);
    test_node_remove(test, one.id);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    assert_int_equal(test->removal.order, FLYT_STATUS_OK);
    assert_null(allocation_of(test));
    until_phase(test, FLYT_MIGRATION_FAILED);
    for (unsigned i = 0; i < 2; i++)
        close(programs[i].fd);
    assert_int_equal(test->node.starts[0].serving + test->node.starts[1].serving, 0);
    flyt_node_migrations_fini(&test->node);
}

static void test_the_allocation_is_removed(void **state)
{
    struct test_node *test = *state;

    remove_in(test, FLYT_MIGRATION_PREPARING, NULL);
    remove_in(test, FLYT_MIGRATION_COPYING, "busy 1");
    remove_in(test, FLYT_MIGRATION_STOPPING, "mute 1");
    remove_in(test, FLYT_MIGRATION_SWITCHING, NULL);
}

/* Ended ones are remembered, so many. */
static void test_what_is_remembered(void **state)
{
    struct test_node *test = *state;
    const flyt_migration_bounds none = {0};
    struct test_wish wish = target_on(0);
    const unsigned count = FLYT_NODE_MIGRATIONS_ENDED_MAX + 3;

    test_node_grant(test, &one);
    for (unsigned i = 0; i < count; i++) {
        wish.gpu = i % 2;
        wish.revision = 2 + i;
        assert_int_equal(migrate_as(test, 1 + i, &wish, &none), FLYT_STATUS_OK);
        while (!flyt_node_migration_has_ended(flyt_node_migration_find(&test->node, 1 + i)))
            assert_true(sd_event_run(test->event, 20000) >= 0);
    }
    for (unsigned i = 0; i < count; i++) {
        const struct flyt_node_migration *its = flyt_node_migration_find(&test->node, 1 + i);
        assert_int_equal(its != NULL, i >= 3);
        assert_true(!its || its->phase == FLYT_MIGRATION_DONE);
    }
}

/* ---- the node manager is restarted ---- */

static bool is_served(struct test_node *test, void *user)
{
    const struct flyt_node_server *server = server_of(test, user);

    return server && server->extents.count && !server->came_with;
}

static void restart(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_stop(test);
    assert_int_equal(flyt_fault_set(NULL), 0);
    unsetenv(FLYT_FAULT_VARIABLE);
    test_node_start(test);
    assert_null(test->node.migrations);
    for (unsigned i = 0; i < count; i++)
        test_node_until(test, is_served, &programs[i], "the server comes back");
}

static void test_a_restart_before_the_commit(void **state)
{
    struct test_node *test = *state;
    static const char *const lines[] = {"busy 1", "mute 1"};
    static const flyt_migration_phase phases[] = {FLYT_MIGRATION_COPYING, FLYT_MIGRATION_STOPPING};

    for (size_t i = 0; i < 2; i++) {
        struct test_program programs[2];
        begin(test, programs, 2);
        say(test, &programs[0], lines[i], "0");
        migrate(test, 1);
        until_phase(test, phases[i]);
        restart(test, programs, 2);
        test_node_until_warm(test);
        stayed(test, programs, 2);
        leave(test, programs, 2);
        test_node_remove(test, 0x22);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
    }
}

/* The clients were told to leave; who was to take them has gone with the node manager. */
static void test_a_restart_after_the_commit(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[2];
        begin(test, programs, 2);
        migrate(test, gpu);
        is_told_to_leave(test, &programs[0]);
        is_told_to_leave(test, &programs[1]);
        restart(test, programs, 2);
        for (unsigned i = 0; i < 2; i++) {
            come_back(test, &programs[i]);
            say(test, &programs[i], "resumed", "no");
            say(test, &programs[i], "go_on", "0");
            say(test, &programs[i], "read 1", "4711");
        }
        assert_int_equal(allocation_of(test)->slots[0].gpu->index, 0);
        assert_null(allocation_of(test)->slots[0].held_gpu);
        assert_int_equal(used_bytes(test), 18 * MIB);
        leave(test, programs, 2);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
    }
}

static bool has_gone(struct test_node *test, void *user)
{
    return waitpid(*(const pid_t *)user, NULL, WNOHANG) != 0; /* the node manager of before had started it */
}

/* The target has the session: it comes back with it, and the one that was left is sent away. */
static void test_a_restart_when_the_target_has_it(void **state)
{
    struct test_node *test = *state;

    for (unsigned gpu = 0; gpu < 2; gpu++) {
        struct test_program programs[1];
        begin(test, programs, 1);
        migrate(test, gpu);
        is_told_to_leave(test, &programs[0]);
        come_back(test, &programs[0]);
        say(test, &programs[0], "resumed", "1 1");
        const struct flyt_node_server *source = migration(test)->moves->source;
        pid_t pid = source->pid;
        restart(test, programs, 1);
        say(test, &programs[0], "go_on", "0");
        say(test, &programs[0], "read 1", "4711");
        test_node_until(test, has_gone, &pid, "the end of the server that was left");
        assert_int_equal(allocation_of(test)->slots[0].gpu->index, gpu);
        assert_int_equal(allocation_of(test)->session_count, 1);
        assert_int_equal(used_bytes(test), 8 * MIB);
        leave(test, programs, 1);
        test_node_remove(test, one.id);
        test_node_until(test, test_node_is_removed, NULL, "the removal");
    }
}

/* One has gone on at its target when the node manager is restarted, the other has not. */
static void test_a_restart_in_between(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    migrate(test, 1);
    is_told_to_leave(test, &programs[0]);
    is_told_to_leave(test, &programs[1]);
    go_on(test, &programs[0]);
    test_node_until(test, has_moved_one, NULL, "one has gone on");
    restart(test, programs, 1);
    const struct flyt_credentials credentials = test_node_credentials(&one);
    struct test_program again = {.status = FLYT_HANDSHAKE_BUSY};
    for (unsigned i = 0; i < 500 && again.status == FLYT_HANDSHAKE_BUSY; i++) {
        again = test_node_resume(test, &credentials, programs[1].token, false);
        test_node_run(test, 20);
    }
    assert_int_equal(again.status, FLYT_HANDSHAKE_NO_SESSION);
    say(test, &programs[0], "read 1", "4711");
    assert_int_equal(allocation_of(test)->slots[0].gpu->index, 1);
    assert_int_equal(allocation_of(test)->session_count, 1);
    leave(test, programs, 1);
}

static int tear_down(void **state)
{
    flyt_fault_set(NULL);
    unsetenv(FLYT_FAULT_VARIABLE);
    return test_node_tear_down(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_node_set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_session),
        TEST(test_three_sessions),
        TEST(test_one_session_on_the_same_gpu),
        TEST(test_three_sessions_on_the_same_gpu),
        TEST(test_nobody_runs),
        TEST(test_figures),
        TEST(test_memory_comes_and_goes_meanwhile),
        TEST(test_many_extents),
        TEST(test_a_program_ends_meanwhile),
        TEST(test_refusals),
        TEST(test_sessions_that_cannot),
        TEST(test_one_at_a_time),
        TEST(test_failures),
        TEST(test_the_state_cannot_be_kept),
        TEST(test_a_program_that_stops_late),
        TEST(test_a_program_that_never_stops),
        TEST(test_its_time_is_over),
        TEST(test_cancel_while_preparing),
        TEST(test_cancel_while_copying),
        TEST(test_cancel_while_stopping),
        TEST(test_cancel_while_loading),
        TEST(test_cancel_comes_too_late),
        TEST(test_a_target_fails_after_the_commit),
        TEST(test_a_client_loses_its_target),
        TEST(test_a_target_does_not_take_it),
        TEST(test_a_target_dies_before_its_client_comes),
        TEST(test_a_target_dies_when_another_has_gone_on),
        TEST(test_a_client_that_does_not_come),
        TEST(test_a_target_that_hangs),
        TEST(test_a_target_dies_when_another_has_said_that_it_goes_on),
        TEST(test_a_target_has_said_in_time_that_it_goes_on),
        TEST(test_libraries_without_bounds),
        TEST(test_a_target_that_does_not_read),
        TEST(test_descriptors_of_failures),
        TEST(test_a_source_dies_before_it_is_left),
        TEST(test_a_source_dies_between_two_tries),
        TEST(test_a_source_dies_when_it_was_left),
        TEST(test_a_source_dies_when_its_target_has_it),
        TEST(test_a_source_that_does_not_end),
        TEST(test_a_session_is_ended_on_its_way),
        TEST(test_a_session_is_ended_where_it_is_to_go_on),
        TEST(test_a_program_that_begins_waits),
        TEST(test_the_allocation_is_removed),
        TEST(test_what_is_remembered),
        TEST(test_a_restart_before_the_commit),
        TEST(test_a_restart_after_the_commit),
        TEST(test_a_restart_when_the_target_has_it),
        TEST(test_a_restart_in_between),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
