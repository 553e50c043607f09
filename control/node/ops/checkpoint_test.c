/* Tests of programs that are written to images (checkpoint.h, checkpointed.h), and go on or wait, with fake servers
 * that fail where they are told to. */
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

#include "control/node/attach/pool.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/image_parent.h"
#include "control/node/ops/image_publish.h"
#include "control/node/ops/ops.h"
#include "control/node/state/image_uncommitted.h"
#include "control/node/state/remembered.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_saving.h"
#include "control/node/uplink/report.h"
#include "cpu/image/folder.h"
#include "cpu/image/verify.h"
#include "rpc/base/fault_point.h"

/* ---- as it should be ---- */

static void test_programs_go_on(void **state)
{
    struct test_node *test = *state;
    struct flyt_checkpoint_summary summary;
    struct test_program programs[2];
    struct flyt_error err;
    char path[PATH_MAX];
    struct stat about;

    test_saving_enter(test, programs, 2);
    pid_t pid = test_node_server(test, &programs[0])->pid;
    test_saving_must(test_saving_checkpoint(test, programs[0].session_id, true));
    flyt_saving_use use = test_saving_until(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, 1);
    assert_true(use.standstill_us > 0);
    assert_int_equal(test_saving_images(test, path), 1);
    assert_int_equal(stat(path, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0600);
    assert_int_equal(flyt_checkpoint_verify(path, true, &summary, &err), 0);
    assert_true(summary.head.session_id == programs[0].session_id);
    assert_int_equal(summary.totals.extent_bytes, 10 * MIB);
    assert_int_equal(summary.totals.sequence.received, 5);
    flyt_checkpoint_summary_fini(&summary);
    assert_null(test->node.state.checkpointed);
    assert_int_equal(test_node_server(test, &programs[0])->pid, pid);
    test_saving_has_memory(test, programs, 2);
    test_saving_must(test_saving_checkpoint(test, 0, true));
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).session_count, 2);
    assert_int_equal(test_saving_images(test, NULL), 3);
    test_saving_has_memory(test, programs, 2);
    /* Nobody waits. */
    assert_int_equal(test_saving_restore(test), FLYT_STATUS_NOT_FOUND);
    test_node_leave(test, &test_one, programs, 2);
}

static void test_programs_wait_and_go_on(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[3];
    flyt_heartbeat_args args;

    test_saving_enter(test, programs, 3);
    for (unsigned round = 0; round < 2; round++) {
        test_saving_suspend(test, programs, 3);
        assert_int_equal(test_saving_images(test, NULL), 3 * (round + 1));
        assert_int_equal(flyt_node_report_figures(&test->node, 1, &args), 0);
        assert_int_equal(args.sessions.sessions_len, 3);
        for (unsigned i = 0; i < 3; i++) {
            assert_int_equal(args.sessions.sessions_val[i].server_pid, 0);
            test_contains(args.sessions.sessions_val[i].why_not, "checkpointed");
        }
        xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &args);
        test_saving_go_on(test, programs, 3);
    }
    test_node_leave(test, &test_one, programs, 3);
}

/* The rest of its VM runs on. */
static void test_one_of_two_waits(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_saving_must(test_saving_checkpoint(test, programs[1].session_id, false));
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_has_memory(test, programs, 1);
    test_program_say(test, &programs[1], NULL, "moved for ever");
    close(programs[1].fd);
    test_saving_must(test_saving_restore(test));
    test_node_come_back(test, &test_one, &programs[1]);
    test_program_say(test, &programs[1], "go_on", "0");
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_has_memory(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

static void test_they_outlive_the_node_manager(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_saving_suspend(test, programs, 2);
    test_node_stop(test);
    test_node_start(test);
    test_node_until_warm(test);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    assert_int_equal(test_saving_restore(test), FLYT_STATUS_UNAVAILABLE); /* others might still come back */
    test_node_end_rejoining(test);
    test_saving_must(test_saving_restore(test));
    for (unsigned i = 0; i < 2; i++) {
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "go_on", "0");
    }
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_has_memory(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* ---- images that build on earlier ones ---- */

static bool moves_near(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.use.can_move == FLYT_MANAGER_LINK_CAN_MOVE_NEAR;
}

static bool moves_all(struct test_node *test, void *program)
{
    return test_node_server(test, program)->has.use.can_move == FLYT_MANAGER_LINK_CAN_MOVE_SEND;
}

static void test_images_build_on_earlier_ones(void **state)
{
    const uint64_t kept_bytes =
        (10 * MIB / FLYT_CHECKPOINT_PAGE_BYTES - 2) * 4096; /* the fake's pages are that small */
    struct test_node *test = *state;
    struct test_program program;
    char path[PATH_MAX];

    test_saving_enter(test, &program, 1);
    assert_int_equal(test_saving_write(test), 0);
    for (unsigned i = 1; i <= 3; i++) {
        assert_int_equal(test_saving_write(test), kept_bytes);
        assert_int_equal(test_saving_parents(test, path), i);
    }
    test_saving.is_full = true;
    assert_int_equal(test_saving_write(test), 0);
    assert_int_equal(test_saving_parents(test, path), 0);
    test_saving.is_full = false;
    assert_int_equal(test_saving_write(test), kept_bytes);
    assert_int_equal(test_saving_parents(test, path), 1);
    /* A server that is older than that is not told of the earlier one. */
    test_program_say(test, &program, "movable 1", "0");
    test_node_until(test, moves_near, &program, "its USE");
    assert_int_equal(test_saving_write(test), 0);
    assert_int_equal(test_saving_parents(test, path), 0);
    test_program_say(test, &program, "movable 2", "0");
    test_node_until(test, moves_all, &program, "its USE");
    assert_int_equal(test_saving_write(test), kept_bytes);
    assert_int_equal(test_saving_parents(test, path), 1);
    /* The last one is cut off; the one before is not looked for: everything is written. */
    assert_int_equal(truncate(path, 1000), 0);
    assert_int_equal(test_saving_write(test), 0);
    assert_int_equal(test_saving_parents(test, path), 0);
    assert_int_equal(test_saving_write(test), kept_bytes);
    /* What one builds on has gone. */
    assert_int_equal(unlink(path), 0);
    assert_int_equal(test_saving_write(test), 0);
    for (unsigned i = 1; i < FLYT_NODE_IMAGE_PARENT_MAX; i++)
        assert_int_equal(test_saving_write(test), kept_bytes);
    assert_int_equal(test_saving_parents(test, path), FLYT_NODE_IMAGE_PARENT_MAX - 1);
    assert_int_equal(test_saving_write(test), 0);
    assert_int_equal(test_saving_parents(test, path), 0);
    test_saving_write(test);
    test_saving_suspend(test, &program, 1);
    assert_int_equal(test_saving_parents(test, path), 2);
    test_saving_go_on(test, &program, 1);
    assert_int_equal(test_saving_write(test), kept_bytes); /* also of a session that was restored */
    assert_int_equal(test_saving_parents(test, path), 3);
    test_node_leave(test, &test_one, &program, 1);
}

/* A chain is verified as a whole before anything is changed. */
static void test_a_parent_goes_while_programs_wait(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    char path[PATH_MAX], away[PATH_MAX + 8];

    test_saving_enter(test, &program, 1);
    test_saving_write(test);
    test_saving_parents(test, path);
    test_saving_suspend(test, &program, 1);
    snprintf(away, sizeof away, "%s.away", path);
    assert_int_equal(rename(path, away), 0);
    test_saving_must(test_saving_restore(test));
    test_saving_failed(test, FLYT_STATUS_NOT_FOUND, "is not there");
    assert_non_null(test_saving_record(test, &program));
    assert_int_equal(rename(away, path), 0);
    test_saving_go_on(test, &program, 1);
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

    test_saving_enter(test, programs, 2);
    for (unsigned i = 0; i < 8; i++) {
        bool leave_running = i >= 4;
        if (leave_running && !faults[i % 4].is_of_both)
            continue;
        snprintf(point, sizeof point, "%s:error", faults[i % 4].point);
        assert_int_equal(flyt_fault_set(point), 0);
        test_saving_must(test_saving_checkpoint(test, 0, leave_running));
        test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, faults[i % 4].words);
        test_contains(test->last_event, "checkpoint.failed");
        assert_int_equal(flyt_fault_set(NULL), 0);
        test_saving_images_are(test, 0);
        assert_null(test->node.state.checkpointed);
        test_saving_has_memory(test, programs, 2);
    }
    /* One has its name already. */
    assert_int_equal(flyt_fault_set("node.checkpoint.name:error:2"), 0);
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.name");
    assert_int_equal(flyt_fault_set(NULL), 0);
    test_saving_images_are(test, 0);
    test_saving_has_memory(test, programs, 2);
    test_program_say(test, &programs[0], "restless 1", "0");
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_TIMEOUT, "does not stop");
    assert_int_equal(test_saving_images(test, NULL), 0);
    test_program_say(test, &programs[1], "refusing 1", "0");
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_NOT_SUPPORTED, "a kernel of it allocates memory");
    test_saving_has_memory(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

static bool are_written(struct test_node *test, void *is_named)
{
    const struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_find(&test->node, test_saving.last_id);

    return *(const bool *)is_named ? checkpoint->publish != NULL : checkpoint->is_settling;
}

/* A thread that is not at its point yet when that is taken away may name one, and removes it. */
static bool is_none_there(struct test_node *test, void *unused)
{
    return !test_saving_images(test, NULL);
}

/* Programs that are left running go on at once; the others stay where they are, and do not leave, as long as nothing
 * says that the image is on the disk, and has its name. */
static void test_a_disk_that_does_not_answer(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    for (unsigned i = 0; i < 4; i++) {
        bool leave_running = i % 2 == 0, is_named = i >= 2;
        assert_int_equal(flyt_fault_set(is_named ? "node.checkpoint.name:hang" : "node.checkpoint.flush:hang"), 0);
        test_saving_must(test_saving_checkpoint(test, 0, leave_running));
        test_node_until(test, are_written, &is_named, "all is written");
        for (unsigned n = 0; n < 2; n++) {
            assert_true((test_node_server(test, &programs[n])->role == NULL) == leave_running);
            assert_null(test_saving_record(test, &programs[n]));
        }
        if (leave_running)
            test_saving_has_memory(test, programs, 2);
        assert_int_equal(test_saving_use(test).phase, FLYT_SAVING_STOPPING);
        test_node_until(test, is_none_there, NULL, "no image");
        flyt_node_operations_drop(flyt_node_checkpoint_find(&test->node, test_saving.last_id)->op.allocation,
                                  "enough of it");
        test_saving_failed(test, FLYT_STATUS_CONFLICT, "enough of it");
        assert_int_equal(flyt_fault_set(NULL), 0);
        test_node_until(test, is_none_there, NULL, "no image");
        assert_null(test->node.state.checkpointed);
        test_saving_has_memory(test, programs, 2);
    }
    test_saving_suspend(test, programs, 2);
    test_saving_go_on(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* Nor as long as nothing can be opened: the loop goes on, a checkpoint that is to end does so at once, and so does the
 * node manager. */
static void test_a_disk_that_does_not_open(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    for (unsigned i = 0; i < 4; i++) {
        test_saving.is_full = i % 2;
        assert_int_equal(flyt_fault_set("node.checkpoint.open:hang:1"), 0);
        test_saving_must(test_saving_checkpoint(test, 0, false));
        test_saving_has_memory(test, programs, 2);
        assert_int_equal(test_saving_use(test).phase, FLYT_SAVING_PREPARING);
        if (i < 2) {
            flyt_node_operations_drop(flyt_node_checkpoint_find(&test->node, test_saving.last_id)->op.allocation,
                                      "enough of it");
            test_saving_failed(test, FLYT_STATUS_CONFLICT, "enough of it");
        } else {
            test_node_stop(test);
            test_node_start(test);
            for (unsigned n = 0; n < 2; n++)
                test_node_until_back(test, &programs[n]);
            test_node_end_rejoining(test);
        }
        assert_int_equal(flyt_fault_set(NULL), 0);
        assert_int_equal(test_saving_images(test, NULL), i < 2 ? 0 : 2);
        test_saving_has_memory(test, programs, 2);
        if (i == 1) { /* the disk answers again */
            test_saving_suspend(test, programs, 2);
            test_saving_go_on(test, programs, 2);
        }
    }
    test_saving.is_full = false;
    test_node_leave(test, &test_one, programs, 2);
}

/* The node manager ends while images get their names, and while they are removed again: nobody waits for that. */
static void test_a_disk_that_does_not_name(void **state)
{
    static const char *const points[] = {"node.checkpoint.name:hang:2",
                                         "node.checkpoint.commit:error,node.checkpoint.unlink:hang"};
    const bool is_named = true;
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(flyt_fault_set(points[i]), 0);
        test_saving_must(test_saving_checkpoint(test, 0, false));
        if (i == 0)
            test_node_until(test, are_written, (void *)&is_named, "all is written");
        else
            test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "cannot keep");
        test_node_stop(test);
        test_node_start(test);
        for (unsigned n = 0; n < 2; n++)
            test_node_until_back(test, &programs[n]);
        test_node_end_rejoining(test);
        assert_null(test->node.state.checkpointed);
        test_saving_has_memory(test, programs, 2);
        for (unsigned n = 0; n < 2; n++) /* as servers do that come back */
            test_program_say(test, &programs[n], "movable 2", "0");
    }
    assert_int_equal(test_saving_write(test), 0); /* nothing builds on what is still to be removed */
    assert_int_equal(flyt_fault_set(NULL), 0);    /* not before: threads hang, or are about to */
    test_node_leave(test, &test_one, programs, 2);
}

/* What is finished stays, over restarts too, whether programs wait in it or not. */
static void test_finished_images_stay(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_saving_write(test);
    test_saving_suspend(test, programs, 2);
    for (unsigned i = 0; i < 2; i++) {
        test_node_stop(test);
        test_node_start(test);
        assert_null(test->node.state.uncommitted);
        assert_null(test->node.ops->publishes);
        test_node_until_warm(test);
        test_node_end_rejoining(test);
        assert_int_equal(test_saving_images(test, NULL), 4);
    }
    test_saving_go_on(test, programs, 2);
    test_node_leave(test, &test_one, programs, 2);
}

/* A record that leads to anything but an image is none. */
static void test_damaged_records_of_images(void **state)
{
    static const struct {
        const char *folder, *image;
        bool is_good;
    } cases[] = {
        {"/images", "0123456789abcdef0123456789abcdef.flyt", true},
        {"images", "0123456789abcdef0123456789abcdef.flyt", false},
        {"/images", "../../etc/0123456789abcdef01234.flyt", false},
        {"/images", "0123456789abcdef/123456789abcdef.flyt", false},
        {"/images", "0123456789abcdef0123456789abcde.flyt", false},
        {"/images", "", false},
    };
    struct test_node *test = *state;

    static const struct flyt_field fields[] = {
        {"images", FLYT_CHAIN(struct flyt_node_state, uncommitted, 2, &flyt_node_image_uncommitted_item)},
        {0},
    };
    struct flyt_error err;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flyt_node_state from = {0}, to = {0};
        struct flyt_node_image_uncommitted *kept = flyt_node_image_uncommitted_add(&from, 6, cases[i].folder, "kept");
        assert_non_null(kept);
        kept->is_kept = true;
        assert_non_null(flyt_node_image_uncommitted_add(&from, 7, cases[i].folder, cases[i].image));
        cJSON *root = flyt_fields_write(fields, (const void *const[]){&from}, &err);
        assert_int_equal(flyt_fields_read(fields, root, (void *const[]){&to}, 0, &err), cases[i].is_good ? 0 : -EINVAL);
        const struct flyt_node_image_uncommitted *read = to.uncommitted;
        assert_int_equal(read != NULL, cases[i].is_good);
        if (read) {
            assert_null(read->next);
            assert_int_equal(read->session_id, 7);
            assert_string_equal(read->image, cases[i].image);
        }
        flyt_fields_free(fields, 0, &from);
        flyt_fields_free(fields, 0, &to);
        cJSON_Delete(root);
    }
    assert_null(test->node.state.uncommitted);
}

/* What has its name, and is not to stay, is none to build on until it is gone: only of programs that it is of. */
static void test_images_that_are_not_removed(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];
    char path[PATH_MAX];

    test_saving_enter(test, programs, 2);
    assert_int_equal(flyt_fault_set("node.checkpoint.commit:error,node.checkpoint.unlink:hang"), 0);
    test_saving_must(test_saving_checkpoint(test, programs[0].session_id, false));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "cannot keep");
    assert_int_equal(test_saving_use(test).session_count, 0);
    test_saving_has_memory(test, programs, 2);
    assert_int_equal(test_saving_images(test, NULL), 1);
    assert_true(flyt_node_image_publish_is_undone(&test->node, programs[0].session_id));
    assert_false(flyt_node_image_publish_is_undone(&test->node, programs[1].session_id));
    assert_int_equal(test_saving_write(test), 0);
    assert_int_equal(test_saving_parents(test, path), 0);
    assert_int_equal(test_saving_images(test, NULL), 3);
    test_saving_must(test_saving_checkpoint(test, programs[1].session_id, true));
    assert_true(test_saving_until(test, FLYT_SAVING_DONE).kept_bytes > 0);
    test_saving_must(test_saving_checkpoint(test, programs[0].session_id, true));
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).kept_bytes, 0);
    assert_int_equal(flyt_fault_set(NULL), 0); /* not before: a thread hangs, or is about to */
    test_node_leave(test, &test_one, programs, 2);
}

/* The image of a program that was to wait, and ends while images get their names, does not stay; the other's does. */
static void test_a_program_ends_while_images_are_named(void **state)
{
    const bool is_named = true;
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_node_until(test, are_written, (void *)&is_named, "all is written");
    /* The loop, which would hear of the names, stands still meanwhile: it hears of the end first. */
    struct flyt_node_server *server = test_node_server(test, &programs[1]);
    flyt_node_server_end(server, "an operator has ended this session");
    assert_int_equal(server->state, FLYT_NODE_SERVER_ENDING);
    server->role->ops->on_exit(server);
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).session_count, 1);
    test_saving_images_are(test, 1);
    assert_non_null(test_saving_record(test, &programs[0]));
    assert_null(test_saving_record(test, &programs[1]));
    test_program_say(test, &programs[0], NULL, "moved for ever");
    close(programs[0].fd);
    close(programs[1].fd);
    test_saving_go_on(test, programs, 1);
    test_node_leave(test, &test_one, programs, 1);
}

/* What was begun in vain is let go of by a thread: close(2) may wait for the disk. */
static void test_a_disk_that_does_not_close(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_saving_enter(test, &program, 1);
    assert_int_equal(flyt_fault_set("image.abandon:hang,node.checkpoint.stop:error"), 0);
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.stop");
    test_saving_has_memory(test, &program, 1);
    assert_int_equal(flyt_fault_set(NULL), 0);
    test_saving_suspend(test, &program, 1);
    test_saving_go_on(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

static void test_a_program_ends_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_program_say(test, &programs[1], "busy 1", "0");
    test_saving_must(test_saving_checkpoint(test, 0, true));
    test_saving_until(test, FLYT_SAVING_COPYING);
    close(programs[1].fd);
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).session_count, 1);
    assert_int_equal(test_saving_images(test, NULL), 1);
    test_saving_has_memory(test, programs, 1);
    test_node_leave(test, &test_one, programs, 1);
}

static void test_a_server_dies_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    test_saving_enter(test, programs, 2);
    test_program_say(test, &programs[1], "busy 1", "0");
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_saving_until(test, FLYT_SAVING_COPYING);
    kill(test_node_server(test, &programs[1])->pid, SIGKILL);
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "ended unexpectedly");
    assert_int_equal(test_saving_images(test, NULL), 0);
    close(programs[1].fd);
    test_saving_has_memory(test, programs, 1);
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
    test_saving_enter(test, &program, 1);
    test_program_say(test, &program, "busy 1", "0");
    test_saving_must(test_saving_checkpoint(test, 0, true));
    test_saving_until(test, FLYT_SAVING_COPYING);
    const uint64_t id = test_saving.last_id;
    assert_int_equal(test_saving_checkpoint(test, 0, true), FLYT_STATUS_CONFLICT);
    assert_int_equal(migrate(test), FLYT_STATUS_CONFLICT);
    assert_int_equal(test_node_order(test, &larger).status, FLYT_STATUS_CONFLICT);
    test_saving.last_id = id;
    test_program_say(test, &program, "busy 0", "0");
    test_saving_until(test, FLYT_SAVING_DONE);
    test_program_say(test, &program, "busy 1", "0");
    assert_int_equal(migrate(test), FLYT_STATUS_OK);
    assert_int_equal(test_saving_checkpoint(test, 0, true), FLYT_STATUS_CONFLICT);
    flyt_node_migration_cancel(test_migration_of(test), "enough");
    assert_int_equal(test_saving_checkpoint(test, 0xdead, true), FLYT_STATUS_CONFLICT);
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
    assert_int_equal(test_saving_checkpoint(test, 0, false), FLYT_STATUS_NOT_FOUND); /* nobody runs */
    test_saving_enter(test, &program, 1);
    assert_int_equal(test_saving_checkpoint(test, 0xdead, false), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_INVALID);
    assert_int_equal(test_saving_order_restore(test, &relative), FLYT_STATUS_INVALID);
    args.allocation_id = 5;
    args.folder = (char *)"/nowhere/at/all";
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_NOT_FOUND);
    args.allocation_id = test_one.id;
    assert_int_equal(flyt_node_checkpoint(&test->node, &args, &err), FLYT_STATUS_OK);
    test_saving.last_id = args.id;
    test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "the folder cannot be opened");
    test_saving_has_memory(test, &program, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Ended ones are remembered, so many, and those whose end was not told yet. */
static void test_what_is_remembered(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    const uint64_t first_id = test_saving.last_id + 1;
    const unsigned count = FLYT_NODE_TOMBSTONES_MAX + 3;
    flyt_saving_use use;

    test_saving_enter(test, &program, 1);
    assert_int_equal(flyt_fault_set("node.checkpoint.open:error"), 0);
    for (unsigned i = 0; i < count; i++) {
        test_saving_must(test_saving_checkpoint(test, 0, true));
        struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_find(&test->node, test_saving.last_id);
        flyt_node_checkpoint_tell(checkpoint, &use); /* not its end */
        test_saving_failed(test, FLYT_STATUS_UNAVAILABLE, "node.checkpoint.open");
        assert_false(checkpoint->op.is_told);
        if (i != 1)
            flyt_node_checkpoint_tell(checkpoint, &use);
    }
    assert_int_equal(flyt_fault_set(NULL), 0);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(flyt_node_checkpoint_find(&test->node, first_id + i) != NULL, i >= 3 || i == 1);
    test_saving_has_memory(test, &program, 1);
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
        TEST_NODE(test_a_disk_that_does_not_name),
        TEST_NODE(test_finished_images_stay),
        TEST_NODE(test_damaged_records_of_images),
        TEST_NODE(test_images_that_are_not_removed),
        TEST_NODE(test_a_program_ends_while_images_are_named),
        TEST_NODE(test_a_disk_that_does_not_close),
        TEST_NODE(test_a_program_ends_meanwhile),
        TEST_NODE(test_a_server_dies_meanwhile),
        TEST_NODE(test_one_at_a_time),
        TEST_NODE(test_refusals),
        TEST_NODE(test_what_is_remembered),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
