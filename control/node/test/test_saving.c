#include "control/node/test/test_saving.h"

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
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/node/ops/checkpoint.h"
#include "control/node/ops/ops.h"
#include "control/node/test/test_migration.h"
#include "cpu/image/folder.h"
#include "cpu/image/verify.h"
#include "rpc/base/clock.h"

struct test_saving test_saving;

/* ---- programs ---- */

struct flyt_node_checkpointed *test_saving_record(struct test_node *test, const struct test_program *program)
{
    return flyt_node_checkpointed_find(&test->node, program->session_id);
}

void test_saving_enter(struct test_node *test, struct test_program *programs, unsigned count)
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

void test_saving_has_memory(struct test_node *test, struct test_program *programs, unsigned count)
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

void test_saving_folder(struct test_node *test, char *ret_path)
{
    snprintf(ret_path, FLYT_NAME_BYTES_MAX, "%s/checkpoints", test->folder);
    if (mkdir(ret_path, 0700))
        assert_int_equal(errno, EEXIST);
}

flyt_status test_saving_checkpoint(struct test_node *test, uint64_t session_id, bool leave_running)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_checkpoint_args args = {.id = ++test_saving.last_id,
                                             .allocation_id = test_one.id,
                                             .session_id = session_id,
                                             .folder = folder,
                                             .leave_running = leave_running,
                                             .full = test_saving.is_full,
                                             .stop_ms = 60000};

    test_saving_folder(test, folder);
    test_saving.refusal = (struct flyt_error){0};
    return flyt_node_checkpoint(&test->node, &args, &test_saving.refusal);
}

flyt_status test_saving_restore(struct test_node *test)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const flyt_order_restore_args args = {
        .id = ++test_saving.last_id, .folder = folder, .timeout_s = test_saving.restore_timeout_s};

    test_saving_folder(test, folder);
    test_saving.refusal = (struct flyt_error){0};
    /* Clients try all the time, however busy the machine is. */
    for (struct flyt_node_checkpointed *checkpointed = test->node.state.checkpointed; checkpointed;
         checkpointed = checkpointed->next)
        if (flyt_clock_ms() - checkpointed->asked_ms < LONG_AGO_MS)
            checkpointed->asked_ms = flyt_clock_ms();
    return test_saving_order_restore(test, &args);
}

struct answer {
    bool has_come;
    flyt_status status;
};

static void on_answer(void *user, flyt_status status, const char *text)
{
    struct answer *answer = user;

    assert_false(answer->has_come);
    *answer = (struct answer){true, status};
    if (status != FLYT_STATUS_OK)
        flyt_error_set(&test_saving.refusal, -EINVAL, "%s", text);
}

static bool has_come(struct test_node *test, void *answer)
{
    return ((const struct answer *)answer)->has_come;
}

flyt_status test_saving_order_restore(struct test_node *test, const flyt_order_restore_args *args)
{
    struct answer answer = {0};

    flyt_node_restore(&test->node, args, on_answer, &answer);
    test_node_until(test, has_come, &answer, "the order's answer");
    return answer.status;
}

flyt_saving_use test_saving_use(struct test_node *test)
{
    const struct flyt_node_checkpoint *checkpoint = flyt_node_checkpoint_find(&test->node, test_saving.last_id);
    const struct flyt_node_restore *restore = flyt_node_restore_find(&test->node, test_saving.last_id);
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
    return test_saving_use(test).phase >= *(const flyt_saving_phase *)user;
}

flyt_saving_use test_saving_until(struct test_node *test, flyt_saving_phase phase)
{
    test_node_until(test, has_phase, &phase, "the order's phase");
    flyt_saving_use use = test_saving_use(test);
    if (use.phase != phase)
        fail_msg("phase %d, not %d: %s", use.phase, phase, use.outcome.text);
    return use;
}

void test_saving_failed(struct test_node *test, flyt_status status, const char *words)
{
    flyt_saving_use use = test_saving_until(test, FLYT_SAVING_FAILED);

    test_contains(use.outcome.text, words);
    assert_int_equal(use.outcome.status, status);
}

void test_saving_must(flyt_status status)
{
    if (status != FLYT_STATUS_OK)
        fail_msg("refused: %s", test_saving.refusal.text);
}

unsigned test_saving_images(struct test_node *test, char *ret_path)
{
    char folder[FLYT_NAME_BYTES_MAX];
    const struct dirent *entry;
    unsigned count = 0;

    test_saving_folder(test, folder);
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

static bool is_reaped(struct test_node *test, void *pid)
{
    return kill(*(const pid_t *)pid, 0) != 0;
}

void test_saving_suspend(struct test_node *test, struct test_program *programs, unsigned count)
{
    pid_t pids[4];

    for (unsigned i = 0; i < count; i++)
        pids[i] = test_node_server(test, &programs[i])->pid;
    test_saving_must(test_saving_checkpoint(test, 0, false));
    flyt_saving_use use = test_saving_until(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, count);
    test_contains(test->last_event, "checkpoint.done");
    for (unsigned i = 0; i < count; i++) {
        test_program_say(test, &programs[i], NULL, "moved for ever");
        test_program_say(test, &programs[i], NULL, "gone");
        close(programs[i].fd);
        programs[i].fd = -1;
        test_node_until(test, is_reaped, &pids[i], "the server is reaped");
        assert_non_null(test_saving_record(test, &programs[i]));
        assert_int_equal(test_node_try_to_come(test, &test_one, &programs[i]), FLYT_HANDSHAKE_BUSY);
    }
    assert_true(test_node_is_empty(test, (void *)&test_one));
    assert_int_equal(test_node_use(test, test_one.id).session_count, count); /* its allocation is not idle */
    test_node_until_used(test, &test_one, 0);
}

void test_saving_go_on(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_saving_must(test_saving_restore(test));
    for (unsigned i = 0; i < count; i++) {
        test_node_come_back(test, &test_one, &programs[i]);
        test_program_say(test, &programs[i], "resumed", "2 2");
        assert_non_null(test_saving_record(test, &programs[i]));
        test_program_say(test, &programs[i], "go_on", "0");
    }
    flyt_saving_use use = test_saving_until(test, FLYT_SAVING_DONE);
    assert_int_equal(use.session_count, count);
    assert_int_equal(use.memory_bytes, count * 10 * MIB);
    test_contains(test->last_event, "restore.done");
    assert_null(test->node.state.checkpointed);
    test_saving_has_memory(test, programs, count);
}

/* ---- images ---- */

static bool is_nothing_undone(struct test_node *test, void *unused)
{
    return !test->node.ops->publishes;
}

void test_saving_images_are(struct test_node *test, unsigned count)
{
    test_node_until(test, is_nothing_undone, NULL, "what has failed is removed");
    assert_int_equal(test_saving_images(test, NULL), count);
}

uint64_t test_saving_write(struct test_node *test)
{
    test_saving_must(test_saving_checkpoint(test, 0, true));
    return test_saving_until(test, FLYT_SAVING_DONE).kept_bytes;
}

unsigned test_saving_parents(struct test_node *test, char *ret_path)
{
    char folder[FLYT_NAME_BYTES_MAX];
    struct flyt_checkpoint_folder images;
    struct flyt_checkpoint_summary summary;
    struct flyt_error err;

    test_saving_folder(test, folder);
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
