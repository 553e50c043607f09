/* Tests of programs that are written to images and go on from them (checkpoint.h, suspended.h, restore.h), with fake
 * servers that fail where they are told to. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
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
#include "control/node/earlier.h"
#include "control/node/remembered.h"
#include "control/node/report.h"
#include "control/node/restore.h"
#include "control/node/suspended.h"
#include "control/node/test_migration.h"
#include "control/node/test_node.h"
#include "cpu/image/folder.h"
#include "cpu/image/verify.h"
#include "rpc/base/clock.h"
#include "rpc/base/fault_point.h"

enum { LONG_AGO_MS = 1000000 };

static uint64_t last_id; /* of orders */
static struct flyt_error refusal;

/* ---- programs ---- */

static struct flyt_node_suspended *record_of(struct test_node *test, const struct test_program *program)
{
    return flyt_node_suspended_find(&test->node, program->session_id);
}

/* Each has 8 MiB of memory with a word of its own, and has said five lines. */
static void begin(struct test_node *test, struct test_program *programs, unsigned count)
{
    char line[32];

    test_node_grant(test, &test_one);
    for (unsigned i = 0; i < count; i++) {
        programs[i] = test_node_enter(test, &test_one);
        snprintf(line, sizeof line, "write 1 %u", 4711 + i);
        test_program_say(test, &programs[i], "extent 1 0 8388608", "0");
        test_program_say(test, &programs[i], line, "0");
        test_program_say(test, &programs[i], "extent 3 0 2097152", "0");
        test_program_say(test, &programs[i], "extent 2 0 2097152", "0");
        test_program_say(test, &programs[i], "drop 3", "2097152");
    }
}

static void has_its_memory(struct test_node *test, struct test_program *programs, unsigned count)
{
    char word[16];

    for (unsigned i = 0; i < count; i++) {
        snprintf(word, sizeof word, "%u", 4711 + i);
        test_program_say(test, &programs[i], "read 1", word);
        test_program_say(test, &programs[i], "read 2", "0");
        test_program_say(test, &programs[i], "memory 3", "none");
    }
    assert_int_equal(test_node_used_bytes(test, &test_one), count * 10 * MIB);
    assert_int_equal(flyt_node_allocation_find(&test->node, test_one.id)->session_count, count);
}

/* ---- orders ---- */

static void folder_of(struct test_node *test, char *ret_path)
{
    snprintf(ret_path, FLYT_NAME_BYTES_MAX, "%s/checkpoints", test->folder);
    if (mkdir(ret_path, 0700))
        assert_int_equal(errno, EEXIST);
}

static bool is_full;               /* what the next checkpoint is asked for */
static unsigned restore_timeout_s; /* and the next restore; 0: the default */

static flyt_status checkpoint_of(struct test_node *test, uint64_t session_id, bool leave_running)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_checkpoint_args args = {.id = ++last_id,
                                             .allocation_id = test_one.id,
                                             .session_id = session_id,
                                             .folder = folder,
                                             .leave_running = leave_running,
                                             .full = is_full,
                                             .stop_ms = 60000};

    folder_of(test, folder);
    refusal = (struct flyt_error){0};
    return flyt_node_checkpoint(&test->node, &args, &refusal);
}

static flyt_status restore_of(struct test_node *test)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_restore_args args = {.id = ++last_id, .folder = folder, .timeout_s = restore_timeout_s};

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

    test_contains(use.outcome.text, words);
    assert_int_equal(use.outcome.status, status);
}

static void must(flyt_status status)
{
    if (status != FLYT_STATUS_OK)
        fail_msg("refused: %s", refusal.text);
}

/* How many images there are; the path of one of them. Files without a name, or a hidden one, are none. */
static unsigned count_images(struct test_node *test, char *ret_path)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const struct dirent *entry;
    unsigned count = 0;

    folder_of(test, folder);
    DIR *listing = opendir(folder);
    assert_non_null(listing);
    while ((entry = readdir(listing))) {
        if (*entry->d_name == '.')
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
        pids[i] = test_node_server(test, &programs[i])->pid;
    must(checkpoint_of(test, 0, false));
    flyt_saving_use use = until_phase(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, count);
    test_contains(test->last_event, "checkpoint.done");
    for (unsigned i = 0; i < count; i++) {
        test_program_say(test, &programs[i], NULL, "moved for ever");
        test_program_say(test, &programs[i], NULL, "gone");
        close(programs[i].fd);
        programs[i].fd = -1;
        assert_int_equal(kill(pids[i], 0), -1);
        assert_non_null(record_of(test, &programs[i]));
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    assert_true(test_node_is_empty(test, (void *)&test_one));
    assert_int_equal(test_node_use(test, test_one.id).session_count, count); /* its allocation is not idle */
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
}

static void restore(struct test_node *test, struct test_program *programs, unsigned count)
{
    must(restore_of(test));
    for (unsigned i = 0; i < count; i++) {
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "resumed", "2 2");
        assert_non_null(record_of(test, &programs[i]));
        test_program_say(test, &programs[i], "go_on", "0");
    }
    flyt_saving_use use = until_phase(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, count);
    assert_int_equal(use.memory_bytes, count * 10 * MIB);
    test_contains(test->last_event, "restore.done");
    assert_null(test->node.state.suspended);
    has_its_memory(test, programs, count);
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
    pid_t pid = test_node_server(test, &programs[0])->pid;
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
    assert_int_equal(test_node_server(test, &programs[0])->pid, pid);
    has_its_memory(test, programs, 2);
    must(checkpoint_of(test, 0, true));
    assert_int_equal(until_phase(test, FLYT_SAVING_DONE).session_count, 2);
    assert_int_equal(count_images(test, NULL), 3);
    has_its_memory(test, programs, 2);
    /* Nobody waits. */
    assert_int_equal(restore_of(test), FLYT_STATUS_NOT_FOUND);
    test_node_leave(test, &test_one, programs, 2);
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
            test_contains(args.sessions.sessions_val[i].why_not, "checkpointed");
        }
        xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
        restore(test, programs, 3);
    }
    test_node_leave(test, &test_one, programs, 3);
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
    test_program_say(test, &programs[1], NULL, "moved for ever");
    close(programs[1].fd);
    must(restore_of(test));
    test_node_come_back(test, &test_one, &programs[1]);
    test_program_say(test, &programs[1], "go_on", "0");
    until_phase(test, FLYT_SAVING_DONE);
    has_its_memory(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
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
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    assert_int_equal(restore_of(test), FLYT_STATUS_UNAVAILABLE); /* others might still come back */
    test_node_end_rejoining(test);
    must(restore_of(test));
    for (unsigned i = 0; i < 2; i++) {
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "go_on", "0");
    }
    until_phase(test, FLYT_SAVING_DONE);
    has_its_memory(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- images that build on earlier ones ---- */

static uint64_t written(struct test_node *test)
{
    must(checkpoint_of(test, 0, true));
    return until_phase(test, FLYT_SAVING_DONE).kept_bytes;
}

/* How many images the newest one builds on. */
static unsigned count_parents(struct test_node *test, char *ret_path)
{
    char folder[FLYT_NAME_BYTES_MAX];
    struct flyt_checkpoint_folder images;
    struct flyt_checkpoint_summary summary;
    struct flyt_error err;

    folder_of(test, folder);
    assert_int_equal(flyt_checkpoint_folder_read(folder, &images, &err), 0);
    assert_true(images.entry_count > 0);
    snprintf(ret_path, PATH_MAX, "%s/%s", folder, images.entries[images.entry_count - 1].name);
    flyt_checkpoint_folder_fini(&images);
    if (flyt_checkpoint_verify(ret_path, true, &summary, &err))
        fail_msg("%s", err.text);
    unsigned count = summary.parent_count;
    flyt_checkpoint_summary_fini(&summary);
    return count;
}

static bool moves_near(struct test_node *test, void *program)
{
    return test_node_server(test, program)->use.can_move == FLYT_SERVER_LINK_CAN_MOVE_NEAR;
}

static bool moves_all(struct test_node *test, void *program)
{
    return test_node_server(test, program)->use.can_move == FLYT_SERVER_LINK_CAN_MOVE_SEND;
}

static void test_images_build_on_earlier_ones(void **state)
{
    const uint64_t kept_bytes =
        (10 * MIB / FLYT_CHECKPOINT_PAGE_BYTES - 2) * 4096; /* the fake's pages are that small */
    struct test_node *test = *state;
    struct test_program program;
    char path[PATH_MAX];

    begin(test, &program, 1);
    assert_int_equal(written(test), 0);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(written(test), kept_bytes);
        assert_int_equal(count_parents(test, path), i);
    }
    is_full = true;
    assert_int_equal(written(test), 0);
    assert_int_equal(count_parents(test, path), 0);
    is_full = false;
    assert_int_equal(written(test), kept_bytes);
    assert_int_equal(count_parents(test, path), 1);
    /* A server that is older than that is not told of the earlier one. */
    test_program_say(test, &program, "movable 1", "0");
    test_node_until(test, moves_near, &program, "its USE");
    assert_int_equal(written(test), 0);
    assert_int_equal(count_parents(test, path), 0);
    test_program_say(test, &program, "movable 2", "0");
    test_node_until(test, moves_all, &program, "its USE");
    assert_int_equal(written(test), kept_bytes);
    assert_int_equal(count_parents(test, path), 1);
    /* The last one is cut off; the one before is not looked for: everything is written. */
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(written(test), 0);
    assert_int_equal(count_parents(test, path), 0);
    assert_int_equal(written(test), kept_bytes);
    /* What one builds on has gone. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(written(test), 0);
    for (unsigned i = 1; i < FLYT_NODE_EARLIER_MAX; i++)
        assert_int_equal(written(test), kept_bytes);
    assert_int_equal(count_parents(test, path), FLYT_NODE_EARLIER_MAX - 1);
    assert_int_equal(written(test), 0);
    assert_int_equal(count_parents(test, path), 0);
    written(test);
    suspend(test, &program, 1);
    assert_int_equal(count_parents(test, path), 2);
    restore(test, &program, 1);
    assert_int_equal(written(test), kept_bytes); /* also of a session that was restored */
    assert_int_equal(count_parents(test, path), 3);
    test_node_leave(test, &test_one, &program, 1);
}

/* A chain is verified as a whole before anything is changed. */
static void test_a_parent_goes_while_programs_wait(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char path[PATH_MAX], away[PATH_MAX + 8];

    begin(test, &program, 1);
    written(test);
    count_parents(test, path);
    suspend(test, &program, 1);
    snprintf(away, sizeof away, "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    must(restore_of(test));
    until_failed(test, FLYT_STATUS_NOT_FOUND, "is not there");
    assert_non_null(record_of(test, &program));
    assert_int_equal(rename(away, path), 0);
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- checkpoints that fail ---- */

static void test_checkpoints_that_fail(void **state)
{
    static const struct {
        const char *point, *words;
        bool is_of_both; /* also where the programs are left running */
    } faults[] = {{"node.checkpoint.stop", "node.checkpoint.stop", true},
                  {"node.checkpoint.flush", "cannot be made to last", true},
                  {"node.checkpoint.name", "node.checkpoint.name", true},
                  {"node.checkpoint.commit", "cannot keep", false}};
    struct test_node *test = *state;
    struct test_program programs[2];
    char point[64];

    begin(test, programs, 2);
    for (unsigned i = 0; i < 8; i++) {
        bool leave_running = i >= 4;
        if (leave_running && !faults[i % 4].is_of_both)
            continue;
        snprintf(point, sizeof point, "%s:error", faults[i % 4].point);
        assert_int_equal(flyt_fault_set(point), 0);
        must(checkpoint_of(test, 0, leave_running));
        until_failed(test, FLYT_STATUS_UNAVAILABLE, faults[i % 4].words);
        test_contains(test->last_event, "checkpoint.failed");
        assert_int_equal(flyt_fault_set(NULL), 0);
        assert_int_equal(count_images(test, NULL), 0);
        assert_null(test->node.state.suspended);
        has_its_memory(test, programs, 2);
    }
    test_program_say(test, &programs[0], "restless 1", "0");
    must(checkpoint_of(test, 0, false));
    until_failed(test, FLYT_STATUS_TIMEOUT, "does not stop");
    assert_int_equal(count_images(test, NULL), 0);
    test_program_say(test, &programs[1], "refusing 1", "0");
    must(checkpoint_of(test, 0, false));
    until_failed(test, FLYT_STATUS_NOT_SUPPORTED, "a kernel of it allocates memory");
    has_its_memory(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

static bool are_written(struct test_node *test, void *user)
{
    return flyt_node_checkpoint_find(&test->node, last_id)->is_settling;
}

/* Programs that are left running go on at once; the others stay where they are, and do not leave, as long as nothing
 * says that the image is on the disk. */
static void test_a_disk_that_does_not_answer(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    for (unsigned i = 0; i < 2; i++) {
        bool leave_running = i == 0;
        assert_int_equal(flyt_fault_set("node.checkpoint.flush:hang"), 0);
        must(checkpoint_of(test, 0, leave_running));
        test_node_until(test, are_written, NULL, "all is written");
        for (unsigned n = 0; n < 2; n++) {
            assert_true((test_node_server(test, &programs[n])->saving == NULL) == leave_running);
            assert_null(record_of(test, &programs[n]));
        }
        if (leave_running)
            has_its_memory(test, programs, 2);
        assert_int_equal(use_of(test).phase, FLYT_SAVING_STOPPING);
        assert_int_equal(count_images(test, NULL), 0);
        flyt_node_checkpoint_drop(flyt_node_checkpoint_find(&test->node, last_id)->allocation, "enough of it");
        until_failed(test, FLYT_STATUS_CONFLICT, "enough of it");
        assert_int_equal(flyt_fault_set(NULL), 0);
        assert_int_equal(count_images(test, NULL), 0);
        assert_null(test->node.state.suspended);
        has_its_memory(test, programs, 2);
    }
    suspend(test, programs, 2);
    restore(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* Nor as long as nothing can be opened: the loop goes on, a checkpoint that is to end does so at once, and so does the
 * node manager. */
static void test_a_disk_that_does_not_open(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    for (unsigned i = 0; i < 4; i++) {
        is_full = i % 2;
        assert_int_equal(flyt_fault_set("node.checkpoint.open:hang:1"), 0);
        must(checkpoint_of(test, 0, false));
        has_its_memory(test, programs, 2);
        assert_int_equal(use_of(test).phase, FLYT_SAVING_PREPARING);
        if (i < 2) {
            flyt_node_checkpoint_drop(flyt_node_checkpoint_find(&test->node, last_id)->allocation, "enough of it");
            until_failed(test, FLYT_STATUS_CONFLICT, "enough of it");
        } else {
            test_node_stop(test);
            test_node_start(test);
            for (unsigned n = 0; n < 2; n++)
                test_node_until_back(test, &programs[n]);
            test_node_end_rejoining(test);
        }
        assert_int_equal(flyt_fault_set(NULL), 0);
        assert_int_equal(count_images(test, NULL), i < 2 ? 0 : 2);
        has_its_memory(test, programs, 2);
        if (i == 1) { /* the disk answers again */
            suspend(test, programs, 2);
            restore(test, programs, 2);
        }
    }
    is_full = false;
    test_node_leave(test, &test_one, programs, 2);
}

/* What was begun in vain is let go of by a thread: close(2) may wait for the disk. */
static void test_a_disk_that_does_not_close(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    assert_int_equal(flyt_fault_set("image.abandon:hang,node.checkpoint.stop:error"), 0);
    must(checkpoint_of(test, 0, false));
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.stop");
    has_its_memory(test, &program, 1);
    assert_int_equal(flyt_fault_set(NULL), 0);
    suspend(test, &program, 1);
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_a_program_ends_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    test_program_say(test, &programs[1], "busy 1", "0");
    must(checkpoint_of(test, 0, true));
    until_phase(test, FLYT_SAVING_COPYING);
    close(programs[1].fd);
    assert_int_equal(until_phase(test, FLYT_SAVING_DONE).session_count, 1);
    assert_int_equal(count_images(test, NULL), 1);
    has_its_memory(test, programs, 1);
    test_node_leave(test, &test_one, programs, 1);
}

static void test_a_server_dies_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    test_program_say(test, &programs[1], "busy 1", "0");
    must(checkpoint_of(test, 0, false));
    until_phase(test, FLYT_SAVING_COPYING);
    kill(test_node_server(test, &programs[1])->pid, SIGKILL);
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "ended unexpectedly");
    assert_int_equal(count_images(test, NULL), 0);
    close(programs[1].fd);
    has_its_memory(test, programs, 1);
    test_node_leave(test, &test_one, programs, 1);
}

static flyt_status migrate(struct test_node *test)
{
    const struct test_wish wish = test_migration_target(1);
    const flyt_migration_bounds none = {0};

    return test_migration_order(test, TEST_MIGRATION_ID, &wish, &none, NULL);
}

static void test_one_at_a_time(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct test_wish larger = test_one;

    larger.revision = 2;
    larger.group_count = 8;
    begin(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    must(checkpoint_of(test, 0, true));
    until_phase(test, FLYT_SAVING_COPYING);
    const uint64_t id = last_id;
    assert_int_equal(checkpoint_of(test, 0, true), FLYT_STATUS_CONFLICT);
    assert_int_equal(migrate(test), FLYT_STATUS_CONFLICT);
    assert_int_equal(test_node_order(test, &larger).status, FLYT_STATUS_CONFLICT);
    last_id = id;
    test_program_say(test, &program, "busy 0", "0");
    until_phase(test, FLYT_SAVING_DONE);
    test_program_say(test, &program, "busy 1", "0");
    assert_int_equal(migrate(test), FLYT_STATUS_OK);
    assert_int_equal(checkpoint_of(test, 0, true), FLYT_STATUS_CONFLICT);
    flyt_node_migration_cancel(test_migration_of(test), "enough");
    assert_int_equal(checkpoint_of(test, 0xdead, true), FLYT_STATUS_CONFLICT);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_refusals(void **state)
{
    struct test_node *test = *state;
    flyt_order_checkpoint_args args = {.id = 1000, .allocation_id = test_one.id, .folder = (char *)"images"};
    const flyt_order_restore_args relative = {.id = 1001, .folder = (char *)"images"};
    struct test_program program;
    struct flyt_error err;

    test_node_grant(test, &test_one);
    assert_int_equal(checkpoint_of(test, 0, false), FLYT_STATUS_NOT_FOUND); /* nobody runs */
    begin(test, &program, 1);
    assert_int_equal(checkpoint_of(test, 0xdead, false), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_INVALID);
    assert_int_equal(flyt_node_restore(&test->node, &relative, &err), FLYT_STATUS_INVALID);
    args.allocation_id = 5;
    args.folder = (char *)"/nowhere/at/all";
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_NOT_FOUND);
    args.allocation_id = test_one.id;
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_OK);
    last_id = args.id;
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "the folder cannot be opened");
    has_its_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Ended ones are remembered, so many, and those whose end was not told yet. */
static void test_what_is_remembered(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    const uint64_t first_id = last_id + 1;
    const unsigned count = FLYT_NODE_ENDED_MAX + 3;
    flyt_saving_use use;

    begin(test, &program, 1);
    assert_int_equal(flyt_fault_set("node.checkpoint.open:error"), 0);
    for (unsigned i = 0; i < count; i++) {
        must(checkpoint_of(test, 0, true));
        struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_find(&test->node, last_id);
        flyt_node_checkpoint_tell(checkpoint, &use); /* not its end */
        until_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.open");
        assert_false(checkpoint->is_told);
        if (i != 1)
            flyt_node_checkpoint_tell(checkpoint, &use);
    }
    assert_int_equal(flyt_fault_set(NULL), 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(flyt_node_checkpoint_find(&test->node, first_id + i) != NULL, i >= 3 || i == 1);
    has_its_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- restores that fail ---- */

static void stays(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_until_empty(test, &test_one);
    for (unsigned i = 0; i < count; i++) {
        assert_non_null(record_of(test, &programs[i]));
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    assert_int_equal(test_node_used_bytes(test, &test_one), 0);
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
        test_node_make_fail(test, NULL, failures[i].points);
        must(restore_of(test));
        until_failed(test, failures[i].status, failures[i].words);
        test_contains(test->last_event, "restore.failed");
        stays(test, &program, 1);
    }
    test_node_make_fail(test, NULL, NULL);
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* After its client has come, and after it was to come. */
static void test_a_server_dies_with_its_client(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    must(restore_of(test));
    test_node_come_back(test, &test_one, &program);
    kill(test_node_server(test, &program)->pid, SIGKILL);
    until_failed(test, FLYT_STATUS_UNAVAILABLE, "has ended before");
    close(program.fd);
    stays(test, &program, 1);
    /* Its client loses it: the server is ended. */
    must(restore_of(test));
    test_node_come_back(test, &test_one, &program);
    close(program.fd);
    for (unsigned i = 0; i < 500 && use_of(test).phase < FLYT_SAVING_DONE; i++)
        if (test_node_try_to_come(test, &test_one, &program) != FLYT_HANDSHAKE_BUSY)
            fail_msg("its client is not told to try again");
    until_phase(test, FLYT_SAVING_FAILED);
    stays(test, &program, 1);
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
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
    test->node.switch_ms = TEST_LONG_MS;
    stays(test, &program, 1);
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
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
    test_node_leave(test, &test_one, programs, 2);
}

/* Images cannot be read: that ends by time, with the node manager, and with the allocation. */
static void test_a_disk_that_does_not_read(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    written(test);
    suspend(test, &program, 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(flyt_fault_set(i ? "node.restore.flatten:hang" : "node.restore.read:hang"), 0);
        restore_timeout_s = 1;
        must(restore_of(test));
        until_failed(test, FLYT_STATUS_TIMEOUT, i ? "" : "were not read after 1 s");
        restore_timeout_s = 0;
        assert_int_equal(flyt_fault_set(NULL), 0);
        stays(test, &program, 1);
    }
    restore(test, &program, 1);
    suspend(test, &program, 1);
    assert_int_equal(flyt_fault_set("node.restore.read:hang"), 0);
    must(restore_of(test));
    test_node_stop(test);
    test_node_start(test);
    assert_non_null(record_of(test, &program));
    test_node_end_rejoining(test);
    must(restore_of(test));
    test_node_remove_now(test, test_one.id);
    until_failed(test, FLYT_STATUS_CONFLICT, "its session was ended");
    assert_int_equal(flyt_fault_set(NULL), 0);
    assert_null(test->node.state.suspended);
}

/* A pipe that nobody writes to stands where the image was, or one that it builds on. */
static void test_a_pipe_for_an_image(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char older[PATH_MAX], newer[PATH_MAX], away[PATH_MAX + 8];

    begin(test, &program, 1);
    written(test);
    count_parents(test, older);
    suspend(test, &program, 1);
    count_parents(test, newer);
    snprintf(away, sizeof away, "%s.away", newer);
    for (unsigned i = 0; i < 2; i++) {
        const char *path = i ? older : newer;
        assert_int_equal(rename(path, away), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        must(restore_of(test));
        until_failed(test, FLYT_STATUS_INVALID, "it is no file");
        assert_int_equal(rename(away, path), 0);
        stays(test, &program, 1);
    }
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_a_program_has_ended(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin(test, programs, 2);
    suspend(test, programs, 2);
    record_of(test, &programs[0])->asked_ms -= LONG_AGO_MS;
    must(restore_of(test));
    test_node_come_back(test, &test_one, &programs[1]);
    test_program_say(test, &programs[1], "go_on", "0");
    until_failed(test, FLYT_STATUS_NOT_FOUND, "it has ended");
    assert_int_equal(use_of(test).session_count, 1);
    assert_null(test->node.state.suspended);
    assert_int_equal(test_node_try_to_come(test, &test_one, &programs[0]), FLYT_HANDSHAKE_NO_SESSION);
    test_program_say(test, &programs[1], "read 1", "4712");
    test_node_leave(test, &test_one, &programs[1], 1);
}

static void test_no_room(void **state)
{
    struct test_node *test = *state;
    struct test_wish smaller = test_one;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    smaller.memory_bytes = 9 * MIB;
    smaller.revision = 2;
    assert_int_equal(test_node_order(test, &smaller).status, FLYT_STATUS_OK);
    must(restore_of(test));
    until_failed(test, FLYT_STATUS_NO_CAPACITY, "no room for its memory, 10485760 bytes so far");
    stays(test, &program, 1);
    smaller.memory_bytes = 10 * MIB;
    smaller.revision = 3;
    assert_int_equal(test_node_order(test, &smaller).status, FLYT_STATUS_OK);
    restore(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* ---- ends ---- */

static void test_the_allocation_is_removed(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    suspend(test, &program, 1);
    test_node_remove_now(test, test_one.id);
    assert_null(test->node.state.suspended);
    assert_int_equal(restore_of(test), FLYT_STATUS_NOT_FOUND);
    /* And while it is being restored, its client not having come. */
    begin(test, &program, 1);
    suspend(test, &program, 1);
    must(restore_of(test));
    until_phase(test, FLYT_SAVING_SWITCHING);
    test_node_remove_now(test, test_one.id);
    assert_null(test->node.state.suspended);
    until_failed(test, FLYT_STATUS_CONFLICT, "its session was ended");
}

static bool is_forgotten(struct test_node *test, void *program)
{
    return !record_of(test, program);
}

/* The program has not been told when the node manager dies, and goes on; its record goes with its coming back. */
static void test_a_restart_before_it_has_left(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin(test, &program, 1);
    assert_non_null(flyt_node_suspended_add(&test->node, test_node_server(test, &program), "/nowhere", "none.flyt", 5));
    assert_int_equal(flyt_node_save(&test->node), 0);
    test_node_stop(test);
    test_node_start(test);
    assert_non_null(record_of(test, &program));
    test_node_until(test, is_forgotten, &program, "its record goes");
    assert_null(test->node.state.suspended);
    has_its_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST_NODE(test_programs_go_on),
        TEST_NODE(test_programs_wait_and_go_on),
        TEST_NODE(test_one_of_two_waits),
        TEST_NODE(test_they_outlive_the_node_manager),
        TEST_NODE(test_images_build_on_earlier_ones),
        TEST_NODE(test_a_parent_goes_while_programs_wait),
        TEST_NODE(test_checkpoints_that_fail),
        TEST_NODE(test_a_disk_that_does_not_answer),
        TEST_NODE(test_a_disk_that_does_not_open),
        TEST_NODE(test_a_disk_that_does_not_close),
        TEST_NODE(test_a_program_ends_meanwhile),
        TEST_NODE(test_a_server_dies_meanwhile),
        TEST_NODE(test_one_at_a_time),
        TEST_NODE(test_refusals),
        TEST_NODE(test_what_is_remembered),
        TEST_NODE(test_servers_that_fail),
        TEST_NODE(test_a_server_dies_with_its_client),
        TEST_NODE(test_a_client_that_does_not_come),
        TEST_NODE(test_a_damaged_image),
        TEST_NODE(test_a_disk_that_does_not_read),
        TEST_NODE(test_a_pipe_for_an_image),
        TEST_NODE(test_a_program_has_ended),
        TEST_NODE(test_no_room),
        TEST_NODE(test_the_allocation_is_removed),
        TEST_NODE(test_a_restart_before_it_has_left),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
