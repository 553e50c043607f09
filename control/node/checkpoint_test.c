/* Tests of programs that are written to images and go on from them (checkpoint.h, suspended.h, restore.h), with fake
 * servers that fail where they are told to. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/checkpoint.h"
#include "control/node/migration.h"
#include "control/node/pool.h"
#include "control/node/report.h"
#include "control/node/restore.h"
#include "control/node/suspended.h"
#include "control/node/test_node.h"
#include "cpu/image/verify.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"

#define MIB (1ull << 20)

enum { LONG_AGO_MS = 1000000 };

static const struct test_wish one = {.id = 0x11,
                                     .revision = 1,
                                     .epoch = 1,
                                     .vm_ip = "10.0.0.1",
                                     .generation = 1,
                                     .sessions_max = 8,
                                     .memory_bytes = 100 * MIB,
                                     .group_count = 4};

static uint64_t last_id; /* of orders */
static struct flyt_error refusal;

/* ---- programs ---- */

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

static struct flyt_node_suspended *record_of(struct test_node *test, const struct test_program *program)
{
    return flyt_node_suspended_find(&test->node, program->session_id);
}

/* Each has 8 MiB of memory with a word of its own, and has said five lines. */
static void begin(struct test_node *test, struct test_program *programs, unsigned count)
{
    const struct flyt_credentials credentials = test_node_credentials(&one);
    char line[32];

    test_node_grant(test, &one);
    for (unsigned i = 0; i < count; i++) {
        programs[i] = test_node_connect(test, &credentials, NULL, false);
        if (programs[i].status != FLYT_HANDSHAKE_OK)
            fail_msg("refused: %s", programs[i].message);
        snprintf(line, sizeof line, "write 1 %u", 4711 + i);
        say(test, &programs[i], "extent 1 0 8388608", "0");
        say(test, &programs[i], line, "0");
        say(test, &programs[i], "extent 3 0 2097152", "0");
        say(test, &programs[i], "extent 2 0 2097152", "0");
        say(test, &programs[i], "drop 3", "2097152");
    }
}

static void has_its_memory(struct test_node *test, struct test_program *programs, unsigned count)
{
    char word[16];

    for (unsigned i = 0; i < count; i++) {
        snprintf(word, sizeof word, "%u", 4711 + i);
        say(test, &programs[i], "read 1", word);
        say(test, &programs[i], "read 2", "0");
        say(test, &programs[i], "memory 3", "none");
    }
    assert_int_equal(test_node_use(test, one.id).slot.memory_used_bytes, count * 10 * MIB);
    assert_int_equal(flyt_node_allocation_find(&test->node, one.id)->session_count, count);
}

static flyt_handshake_status try_to_come(struct test_node *test, struct test_program *program)
{
    const struct flyt_credentials credentials = test_node_credentials(&one);
    struct test_program again = test_node_resume(test, &credentials, program->token, false);

    if (again.status != FLYT_HANDSHAKE_OK)
        return again.status;
    assert_true(again.session_id == program->session_id);
    assert_memory_equal(again.token, program->token, sizeof again.token);
    *program = again;
    return FLYT_HANDSHAKE_OK;
}

/* As a client does: again and again. */
static void come_back(struct test_node *test, struct test_program *program)
{
    flyt_handshake_status status = FLYT_HANDSHAKE_BUSY;

    for (unsigned i = 0; i < 500 && status == FLYT_HANDSHAKE_BUSY; i++) {
        status = try_to_come(test, program);
        if (status == FLYT_HANDSHAKE_BUSY)
            test_node_run(test, 20);
    }
    assert_int_equal(status, FLYT_HANDSHAKE_OK);
}

static bool has_no_sessions(struct test_node *test, void *unused)
{
    const struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, one.id);

    return !allocation || !allocation->session_count;
}

/* ---- orders ---- */

static void folder_of(struct test_node *test, char *ret_path)
{
    snprintf(ret_path, FLYT_NAME_BYTES_MAX, "%s/checkpoints", test->folder);
    if (mkdir(ret_path, 0700))
        assert_int_equal(errno, EEXIST);
}

static flyt_status checkpoint_of(struct test_node *test, uint64_t session_id, bool leave_running)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_checkpoint_args args = {.id = ++last_id,
                                             .allocation_id = one.id,
                                             .session_id = session_id,
                                             .folder = folder,
                                             .leave_running = leave_running,
                                             .stop_ms = 60000};

    folder_of(test, folder);
    refusal = (struct flyt_error){0};
    return flyt_node_checkpoint(&test->node, &args, &refusal);
}

static flyt_status restore_of(struct test_node *test)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_restore_args args = {.id = ++last_id, .folder = folder};

    folder_of(test, folder);
    refusal = (struct flyt_error){0};
    /* Clients try all the time, however busy the machine is. */
    for (struct flyt_node_suspended *suspended = test->node.state.suspended; suspended; suspended = suspended->next)
        if (flyt_clock_ms() - suspended->asked_ms < LONG_AGO_MS)
            suspended->asked_ms = flyt_clock_ms();
    return flyt_node_restore(&test->node, &args, &refusal);
}

/* Of the last order. */
static flyt_saving_use use_of(struct test_node *test)
{
    const struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_find(&test->node, last_id);
    const struct flyt_node_restore *restore = flyt_node_restore_find(&test->node, last_id);
    flyt_saving_use use = {0};

    assert_true(checkpoint || restore);
    if (checkpoint)
        flyt_node_checkpoint_use(checkpoint, &use);
    else
        flyt_node_restore_use(restore, &use);
    return use;
}

static bool has_phase(struct test_node *test, void *user)
{
    return use_of(test).phase >= *(const flyt_saving_phase *)user;
}

static flyt_saving_use until_phase(struct test_node *test, flyt_saving_phase phase)
{
    test_node_until(test, has_phase, &phase, "the order's phase");
    flyt_saving_use use = use_of(test);
    if (use.phase != phase)
        fail_msg("phase %d, not %d: %s", use.phase, phase, use.outcome.text);
    return use;
}

static void until_failed(struct test_node *test, flyt_status status, const char *words)
{
    flyt_saving_use use = until_phase(test, FLYT_SAVING_FAILED);

    if (!strstr(use.outcome.text, words))
        fail_msg("not \"%s\": %s", words, use.outcome.text);
    assert_int_equal(use.outcome.status, status);
}

static void must(flyt_status status)
{
    if (status != FLYT_STATUS_OK)
        fail_msg("refused: %s", refusal.text);
}

/* How many images there are; the path of one of them. */
static unsigned count_images(struct test_node *test, char *ret_path)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const struct dirent *entry;
    unsigned count = 0;

    folder_of(test, folder);
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        count++;
        if (ret_path)
            snprintf(ret_path, PATH_MAX, "%s/%s", folder, entry->d_name);
    }
    closedir(listing);
    return count;
}

/* All of them are in images afterwards, and nothing of them is anywhere else. */
static void suspend(struct test_node *test, struct test_program *programs, unsigned count)
{
    pid_t pids[4];

    for (unsigned i = 0; i < count; i++)
        pids[i] = server_of(test, &programs[i])->pid;
    must(checkpoint_of(test, 0, false));
    flyt_saving_use use = until_phase(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, count);
    assert_non_null(strstr(test->last_event, "checkpoint.done"));
    for (unsigned i = 0; i < count; i++) {
        say(test, &programs[i], NULL, "moved for ever");
        say(test, &programs[i], NULL, "gone");
        close(programs[i].fd);
        programs[i].fd = -1;
        assert_int_equal(kill(pids[i], 0), -1);
        assert_non_null(record_of(test, &programs[i]));
        assert_int_equal(try_to_come(test, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    assert_true(has_no_sessions(test, NULL));
    assert_int_equal(test_node_use(test, one.id).session_count, count); /* its allocation is not idle */
    assert_int_equal(test_node_use(test, one.id).slot.memory_used_bytes, 0);
}

static void restore(struct test_node *test, struct test_program *programs, unsigned count)
{
    must(restore_of(test));
    for (unsigned i = 0; i < count; i++) {
        come_back(test, &programs[i]);
        say(test, &programs[i], "resumed", "2 2");
        assert_non_null(record_of(test, &programs[i]));
        say(test, &programs[i], "go_on", "0");
    }
    flyt_saving_use use = until_phase(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, count);
    assert_int_equal(use.memory_bytes, count * 10 * MIB);
    assert_non_null(strstr(test->last_event, "restore.done"));
    assert_null(test->node.state.suspended);
    has_its_memory(test, programs, count);
}

static void end_all(struct test_node *test, struct test_program *programs, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        close(programs[i].fd);
    test_node_until(test, has_no_sessions, NULL, "the sessions' end");
    assert_int_equal(test_node_use(test, one.id).slot.memory_used_bytes, 0);
}

/* ---- as it should be ---- */

static void test_programs_go_on(void **state)
{
    struct test_node *test = *state;
    struct flyt_checkpoint_summary summary;
    struct test_program programs[2];
    struct flyt_error err;
    char path[PATH_MAX];
    struct stat about;

    begin(test, programs, 2);
    pid_t pid = server_of(test, &programs[0])->pid;
    must(checkpoint_of(test, programs[0].session_id, true));
    flyt_saving_use use = until_phase(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, 1);
    assert_true(use.standstill_us > 0);
    assert_int_equal(count_images(test, path), 1);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(flyt_checkpoint_verify(path, true, &summary, &err), 0);
    assert_true(summary.head.session_id == programs[0].session_id);
    assert_int_equal(summary.totals.extent_bytes, 10 * MIB);
    assert_int_equal(summary.totals.sequence.received, 5);
    flyt_checkpoint_summary_fini(&summary);
    assert_null(test->node.state.suspended);
    assert_int_equal(server_of(test, &programs[0])->pid, pid);
    has_its_memory(test, programs, 2);
    must(checkpoint_of(test, 0, true));
    assert_int_equal(until_phase(test, FLYT_SAVING_DONE).session_count, 2);
    assert_int_equal(count_images(test, NULL), 3);
    has_its_memory(test, programs, 2);
    /* Nobody waits. */
    assert_int_equal(restore_of(test), FLYT_STATUS_NOT_FOUND);
    end_all(test, programs, 2);
}

static void test_programs_wait_and_go_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    flyt_heartbeat_args args;

    begin(test, programs, 3);
    for (unsigned round = 0; round < 2; round++) {
        suspend(test, programs, 3);
        assert_int_equal(count_images(test, NULL), 3 * (round + 1));
        assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
        assert_int_equal(args.sessions.sessions_len, 3);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(args.sessions.sessions_val[i].server_pid, 0);
            assert_non_null(strstr(args.sessions.sessions_val[i].why_not, "checkpointed"));
        }
        xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
        restore(test, programs, 3);
    }
    end_all(test, programs, 3);
}

/* The rest of its VM runs on. */
static void test_one_of_two_waits(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    must(checkpoint_of(test, programs[1].session_id, false));
    until_phase(test, FLYT_SAVING_DONE);
    has_its_memory(test, programs, 1);
    say(test, &programs[1], NULL, "moved for ever");
    close(programs[1].fd);
    must(restore_of(test));
    come_back(test, &programs[1]);
    say(test, &programs[1], "go_on", "0");
    until_phase(test, FLYT_SAVING_DONE);
    has_its_memory(test, programs, 2);
    end_all(test, programs, 2);
}

static void test_they_outlive_the_node_manager(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    suspend(test, programs, 2);
    test_node_stop(test);
    test_node_start(test);
    test_node_until_warm(test);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(try_to_come(test, &programs[i]), FLYT_HANDSHAKE_BUSY);
    for (unsigned i = 0; i < 500 && restore_of(test) == FLYT_STATUS_UNAVAILABLE; i++)
        test_node_run(test, 20); /* others might still come back */
    for (unsigned i = 0; i < 2; i++) {
        come_back(test, &programs[i]);
        say(test, &programs[i], "go_on", "0");
    }
    until_phase(test, FLYT_SAVING_DONE);
    has_its_memory(test, programs, 2);
    end_all(test, programs, 2);
}

/* ---- checkpoints that fail ---- */

static bool is_renewed(struct test_node *test, void *unused)
{
    for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
        if (server->state == FLYT_NODE_SERVER_ENDING && !server->allocation)
            return false;
    for (unsigned i = 0; i < test->node.gpus.count; i++)
        if (!test->node.starts[i].warm)
            return false;
    return true;
}

/* Points of servers, which are started anew; NULL: none. */
static void make_servers_fail(struct test_node *test, const char *points)
{
    if (points)
        setenv(FLYT_FAULT_VARIABLE, points, 1);
    else
        unsetenv(FLYT_FAULT_VARIABLE);
    for (unsigned i = 0; i < test->node.gpus.count; i++)
        flyt_node_pool_renew(&test->node, &test->node.gpus.items[i]);
    test_node_until(test, is_renewed, NULL, "other warm servers");
}

static void test_checkpoints_that_fail(void **state)
{
    static const char *const points[] = {"node.checkpoint.stop", "node.checkpoint.name", "node.checkpoint.commit"};
    struct test_node *test = *state;
    struct test_program programs[2];
    char point[64];

    begin(test, programs, 2);
    for (unsigned i = 0; i < 6; i++) {
        bool leave_running = i >= 3;
        if (leave_running && i % 3 == 2)
            continue; /* it has no commit */
        snprintf(point, sizeof point, "%s:error", points[i % 3]);
        assert_int_equal(flyt_fault_set(point), 0);
        must(checkpoint_of(test, 0, leave_running));
        until_failed(test, FLYT_STATUS_UNAVAILABLE, i % 3 == 2 ? "cannot keep" : points[i % 3]);
        assert_non_null(strstr(test->last_event, "checkpoint.failed"));
        assert_int_equal(flyt_fault_set(NULL), 0);
        assert_int_equal(count_images(test, NULL), 0);
        assert_null(test->node.state.suspended);
        has_its_memory(test, programs, 2);
    }
    say(test, &programs[0], "restless 1", "0");
    must(checkpoint_of(test, 0, false));
    until_failed(test, FLYT_STATUS_TIMEOUT, "does not stop");
    assert_int_equal(count_images(test, NULL), 0);
    say(test, &programs[1], "refusing 1", "0");
    must(checkpoint_of(test, 0, false));
    until_failed(test, FLYT_STATUS_NOT_SUPPORTED, "a kernel of it allocates memory");
    has_its_memory(test, programs, 2);
    end_all(test, programs, 2);
}

static void test_a_program_ends_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[1], "busy 1", "0");
    must(checkpoint_of(test, 0, true));
    until_phase(test, FLYT_SAVING_COPYING);
    close(programs[1].fd);
    assert_int_equal(until_phase(test, FLYT_SAVING_DONE).session_count, 1);
    assert_int_equal(count_images(test, NULL), 1);
    has_its_memory(test, programs, 1);
    end_all(test, programs, 1);
}

static void test_a_server_dies_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    say(test, &programs[1], "busy 1", "0");
    must(checkpoint_of(test, 0, false));
    until_phase(test, FLYT_SAVING_COPYING);
    kill(server_of(test, &programs[1])->pid, SIGKILL);
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "ended unexpectedly");
    assert_int_equal(count_images(test, NULL), 0);
    close(programs[1].fd);
    has_its_memory(test, programs, 1);
    end_all(test, programs, 1);
}

static flyt_status migrate(struct test_node *test)
{
    u_int groups[] = {8, 9, 10, 11};
    flyt_slot slot = {.gpu_uuid = test->node.gpus.items[1].uuid,
                      .memory_bytes = one.memory_bytes,
                      .sm_groups = {4, groups},
                      .sm_count = 32};
    const flyt_order_migrate_args args = {.epoch = 1,
                                          .migration_id = 1,
                                          .allocation = {.id = one.id,
                                                         .vm_ip = (char *)one.vm_ip,
                                                         .tenant = (char *)"",
                                                         .state = FLYT_ALLOCATION_ACTIVE,
                                                         .revision = 2,
                                                         .generation = 1,
                                                         .sessions_max = 8,
                                                         .isolation = FLYT_ISOLATION_SHARED,
                                                         .slots = {1, &slot}}};
    struct flyt_error err;

    return flyt_node_migrate(&test->node, &args, &err);
}

static void test_one_at_a_time(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish larger = one;

    larger.revision = 2;
    larger.group_count = 8;
    begin(test, &program, 1);
    say(test, &program, "busy 1", "0");
    must(checkpoint_of(test, 0, true));
    until_phase(test, FLYT_SAVING_COPYING);
    const uint64_t id = last_id;
    assert_int_equal(checkpoint_of(test, 0, true), FLYT_STATUS_CONFLICT);
    assert_int_equal(migrate(test), FLYT_STATUS_CONFLICT);
    assert_int_equal(test_node_order(test, &larger).status, FLYT_STATUS_CONFLICT);
    last_id = id;
    say(test, &program, "busy 0", "0");
    until_phase(test, FLYT_SAVING_DONE);
    say(test, &program, "busy 1", "0");
    assert_int_equal(migrate(test), FLYT_STATUS_OK);
    assert_int_equal(checkpoint_of(test, 0, true), FLYT_STATUS_CONFLICT);
    flyt_node_migration_cancel(flyt_node_migration_find(&test->node, 1), "enough");
    assert_int_equal(checkpoint_of(test, 0xdead, true), FLYT_STATUS_CONFLICT);
    end_all(test, &program, 1);
}

static void test_refusals(void **state)
{
    struct test_node *test = *state;
    flyt_order_checkpoint_args args = {.id = 1000, .allocation_id = one.id, .folder = (char *)"images"};
    const flyt_order_restore_args relative = {.id = 1001, .folder = (char *)"images"};
    struct test_program program;
    struct flyt_error err;

    test_node_grant(test, &one);
    assert_int_equal(checkpoint_of(test, 0, false), FLYT_STATUS_NOT_FOUND); /* nobody runs */
    begin(test, &program, 1);
    assert_int_equal(checkpoint_of(test, 0xdead, false), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_INVALID);
    assert_int_equal(flyt_node_restore(&test->node, &relative, &err), FLYT_STATUS_INVALID);
    args.allocation_id = 5;
    args.folder = (char *)"/nowhere/at/all";
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_NOT_FOUND);
    args.allocation_id = one.id;
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_OK);
    last_id = args.id;
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "the folder cannot be opened");
    has_its_memory(test, &program, 1);
    end_all(test, &program, 1);
}

/* ---- restores that fail ---- */

static void stays(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_until(test, has_no_sessions, NULL, "the sessions are in their images again");
    for (unsigned i = 0; i < count; i++) {
        assert_non_null(record_of(test, &programs[i]));
        assert_int_equal(try_to_come(test, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    assert_int_equal(test_node_use(test, one.id).slot.memory_used_bytes, 0);
}

static void test_servers_that_fail(void **state)
{
    static const struct {
        const char *points, *words;
        flyt_status status;
    } failures[] = {
        {"fake.prepare:error", "elsewhere", FLYT_STATUS_UNAVAILABLE},
        {"fake.prepare:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
        {"fake.make:error", "memory cannot be made", FLYT_STATUS_NO_CAPACITY},
        {"fake.state:error", "elsewhere", FLYT_STATUS_UNAVAILABLE},
        {"fake.state:kill", "has ended before", FLYT_STATUS_UNAVAILABLE},
    };
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    for (unsigned i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        make_servers_fail(test, failures[i].points);
        must(restore_of(test));
        until_failed(test, failures[i].status, failures[i].words);
        assert_non_null(strstr(test->last_event, "restore.failed"));
        stays(test, &program, 1);
    }
    make_servers_fail(test, NULL);
    restore(test, &program, 1);
    end_all(test, &program, 1);
}

/* After its client has come, and after it was to come. */
static void test_a_server_dies_with_its_client(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    must(restore_of(test));
    come_back(test, &program);
    kill(server_of(test, &program)->pid, SIGKILL);
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "has ended before");
    close(program.fd);
    stays(test, &program, 1);
    /* Its client loses it: the server is ended. */
    must(restore_of(test));
    come_back(test, &program);
    close(program.fd);
    for (unsigned i = 0; i < 500 && use_of(test).phase < FLYT_SAVING_DONE; i++)
        if (try_to_come(test, &program) != FLYT_HANDSHAKE_BUSY)
            fail_msg("its client is not told to try again");
    until_phase(test, FLYT_SAVING_FAILED);
    stays(test, &program, 1);
    restore(test, &program, 1);
    end_all(test, &program, 1);
}

static void test_a_client_that_does_not_come(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    test->node.switch_ms = 50;
    must(restore_of(test));
    until_failed(test, FLYT_STATUS_TIMEOUT, "has not come back within");
    test->node.switch_ms = FLYT_NODE_MOVE_SWITCH_MS;
    stays(test, &program, 1);
    restore(test, &program, 1);
    end_all(test, &program, 1);
}

/* A damaged image is refused before anything is changed, for all of them. */
static void test_a_damaged_image(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    unsigned char byte;
    char path[PATH_MAX];

    begin(test, programs, 2);
    suspend(test, programs, 2);
    assert_int_equal(count_images(test, path), 2);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(pread(fd, &byte, 1, 300), 1);
        byte ^= 0x10;
        assert_int_equal(pwrite(fd, &byte, 1, 300), 1);
        if (i)
            break;
        must(restore_of(test));
        until_failed(test, FLYT_STATUS_INVALID, "damaged");
        stays(test, programs, 2);
        for (const struct flyt_node_server *server = test->node.servers; server; server = server->next)
            assert_true(server->state <= FLYT_NODE_SERVER_WARM);
    }
    close(fd);
    restore(test, programs, 2);
    end_all(test, programs, 2);
}

static void test_a_program_has_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    suspend(test, programs, 2);
    record_of(test, &programs[0])->asked_ms -= LONG_AGO_MS;
    must(restore_of(test));
    come_back(test, &programs[1]);
    say(test, &programs[1], "go_on", "0");
    until_failed(test, FLYT_STATUS_NOT_FOUND, "it has ended");
    assert_int_equal(use_of(test).session_count, 1);
    assert_null(test->node.state.suspended);
    assert_int_equal(try_to_come(test, &programs[0]), FLYT_HANDSHAKE_NO_SESSION);
    say(test, &programs[1], "read 1", "4712");
    end_all(test, &programs[1], 1);
}

static void test_no_room(void **state)
{
    struct test_node *test = *state;
    struct test_wish smaller = one;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    smaller.memory_bytes = 9 * MIB;
    smaller.revision = 2;
    assert_int_equal(test_node_order(test, &smaller).status, FLYT_STATUS_OK);
    must(restore_of(test));
    until_failed(test, FLYT_STATUS_NO_CAPACITY, "no room for its memory, 10485760 bytes");
    stays(test, &program, 1);
    smaller.memory_bytes = 10 * MIB;
    smaller.revision = 3;
    assert_int_equal(test_node_order(test, &smaller).status, FLYT_STATUS_OK);
    restore(test, &program, 1);
    end_all(test, &program, 1);
}

/* ---- ends ---- */

static void test_the_allocation_is_removed(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    test_node_remove(test, one.id);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    assert_null(test->node.state.suspended);
    assert_int_equal(restore_of(test), FLYT_STATUS_NOT_FOUND);
    /* And while it is being restored, its client not having come. */
    begin(test, &program, 1);
    suspend(test, &program, 1);
    must(restore_of(test));
    until_phase(test, FLYT_SAVING_SWITCHING);
    test_node_remove(test, one.id);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    assert_null(test->node.state.suspended);
    until_failed(test, FLYT_STATUS_CONFLICT, "its session was ended");
}

/* The program has not been told when the node manager dies, and goes on; its record goes with its coming back. */
static void test_a_restart_before_it_has_left(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    assert_non_null(flyt_node_suspended_add(&test->node, server_of(test, &program), "/nowhere", "none.flyt", 5));
    assert_int_equal(flyt_node_save(&test->node), 0);
    test_node_stop(test);
    test_node_start(test);
    assert_non_null(record_of(test, &program));
    for (unsigned i = 0; i < 500 && record_of(test, &program); i++)
        test_node_run(test, 20);
    assert_null(test->node.state.suspended);
    has_its_memory(test, &program, 1);
    end_all(test, &program, 1);
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
        TEST(test_programs_go_on),
        TEST(test_programs_wait_and_go_on),
        TEST(test_one_of_two_waits),
        TEST(test_they_outlive_the_node_manager),
        TEST(test_checkpoints_that_fail),
        TEST(test_a_program_ends_meanwhile),
        TEST(test_a_server_dies_meanwhile),
        TEST(test_one_at_a_time),
        TEST(test_refusals),
        TEST(test_servers_that_fail),
        TEST(test_a_server_dies_with_its_client),
        TEST(test_a_client_that_does_not_come),
        TEST(test_a_damaged_image),
        TEST(test_a_program_has_ended),
        TEST(test_no_room),
        TEST(test_the_allocation_is_removed),
        TEST(test_a_restart_before_it_has_left),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
