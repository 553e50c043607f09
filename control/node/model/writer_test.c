#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>

#include "control/node/model/writer.h"
#include "control/node/ops/checkpoint.h"
#include "control/node/ops/ops.h"
#include "control/node/state/departed.h"
#include "control/node/state/image_uncommitted.h"
#include "control/node/test/test_migration.h"
#include "control/node/test/test_node.h"
#include "control/node/test/test_receive.h"
#include "control/node/test/test_saving.h"
#include "control/node/test/test_send.h"
#include "control/node/uplink/order.h"

/* A disk that takes its time: who brings the state to it waits until it is let go on. Images are brought to it, too. */
static struct {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_held;
    unsigned waiting_count, write_count; /* calls that wait; files that were begun to be brought to the disk */
    unsigned loop_count;                 /* of these by the loop's thread */
} disk = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static bool is_state(int fd)
{
    char link[64], path[4096];

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, path, sizeof path - 1);
    path[bytes > 0 ? bytes : 0] = 0;
    return strstr(path, "/state.json") != NULL;
}

int __wrap_fsync(int fd)
{
    if (!is_state(fd))
        return __real_fsync(fd);
    pthread_mutex_lock(&disk.mutex);
    disk.write_count++;
    disk.loop_count += gettid() == getpid();
    disk.waiting_count++;
    while (disk.is_held)
        pthread_cond_wait(&disk.changed, &disk.mutex);
    disk.waiting_count--;
    pthread_mutex_unlock(&disk.mutex);
    return __real_fsync(fd);
}

static void hold_disk(bool is_held)
{
    pthread_mutex_lock(&disk.mutex);
    disk.is_held = is_held;
    disk.write_count = is_held ? 0 : disk.write_count;
    pthread_cond_broadcast(&disk.changed);
    pthread_mutex_unlock(&disk.mutex);
}

static bool is_disk_asked(struct test_node *test, void *unused)
{
    pthread_mutex_lock(&disk.mutex);
    bool is_asked = disk.waiting_count > 0;
    pthread_mutex_unlock(&disk.mutex);
    return is_asked;
}

/* An order, and what has come of it. */
struct asked {
    flyt_status status; /* -1: nothing yet */
    uint64_t revision;
};

static void note(void *user, flyt_apply_res *res)
{
    struct asked *asked = user;

    asked->status = res->outcome.status;
    if (res->uses.uses_len)
        *asked = (struct asked){res->uses.uses_val[0].outcome.status, res->uses.uses_val[0].revision};
}

static bool is_answered(struct test_node *test, void *asked)
{
    return ((struct asked *)asked)->status != (flyt_status)-1;
}

static void ask_at(struct test_node *test, uint64_t epoch, const struct test_wish *wish, struct asked *asked)
{
    flyt_allocation allocation = test_node_allocation(test, wish);
    const flyt_apply_args args = {.epoch = epoch, .allocations = {1, &allocation}};

    *asked = (struct asked){.status = (flyt_status)-1};
    flyt_node_apply(&test->node, &args, note, asked);
}

static void ask(struct test_node *test, const struct test_wish *wish, struct asked *asked)
{
    ask_at(test, test->node.state.epoch, wish, asked);
}

static uint64_t memory_now(struct test_node *test, const struct test_wish *wish)
{
    return flyt_node_allocation_find(&test->node, wish->id)->now.slots.slots_val[0].memory_bytes;
}

/* While the disk holds an order up, that is neither answered nor carried out, and programs begin and run. */
static void test_what_is_not_written_is_not_carried_out(void **state)
{
    struct test_node *test = *state;
    struct test_wish more = test_one, most;
    struct asked first, second, third, created;

    test_node_grant(test, &test_one);
    struct test_program program = test_node_enter(test, &test_one);
    test_node_until_warm(test);
    hold_disk(true);
    more.revision++;
    more.memory_bytes += MIB;
    ask(test, &more, &first);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    /* Those that come meanwhile: the last one for an allocation counts. */
    ask(test, &test_other, &created);
    most = more;
    most.revision++;
    ask(test, &most, &second);
    most.revision++;
    most.memory_bytes += MIB;
    ask(test, &most, &third);
    assert_int_equal(second.status, FLYT_STATUS_CONFLICT);
    test_program_say(test, &program, "charge 0 4096", "0");
    struct test_program late = test_node_enter(test, &test_one);
    assert_false(is_answered(test, &first) || is_answered(test, &created) || is_answered(test, &third));
    assert_int_equal(memory_now(test, &test_one), test_one.memory_bytes);
    hold_disk(false);
    test_node_until(test, is_answered, &third, "the last order's outcome");
    test_node_until(test, is_answered, &created, "the new allocation's outcome");
    assert_int_equal(first.status, FLYT_STATUS_OK);
    assert_int_equal(created.status, FLYT_STATUS_OK);
    assert_int_equal(third.status, FLYT_STATUS_OK);
    assert_int_equal(third.revision, most.revision);
    assert_int_equal(memory_now(test, &test_one), most.memory_bytes);
    close(program.fd);
    close(late.fd);
}

/* Orders that come together, or while one is written, share a write. */
static void test_orders_share_a_write(void **state)
{
    struct test_node *test = *state;
    struct test_wish one = test_one, other = test_other;
    struct asked first, second, third;

    test_node_grant(test, &test_one);
    test_node_grant(test, &test_other);
    hold_disk(true);
    one.revision++;
    other.revision++;
    ask(test, &one, &first);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    ask(test, &other, &second);
    one.revision++;
    ask(test, &one, &third);
    hold_disk(false);
    test_node_until(test, is_answered, &second, "an outcome");
    test_node_until(test, is_answered, &third, "an outcome");
    assert_int_equal(first.status, FLYT_STATUS_OK);
    assert_int_equal(second.status, FLYT_STATUS_OK);
    assert_int_equal(third.status, FLYT_STATUS_OK);
    assert_in_range(disk.write_count, 2, 3);
}

static bool is_epoch_written(struct test_node *test, void *epoch)
{
    return test->node.epoch_written >= *(uint64_t *)epoch;
}

/* An order of a leader that the node has not heard of is carried out when it is written that there is one, and the loop
 * waits for no disk meanwhile. */
static void test_a_leader_is_followed_when_it_is_written(void **state)
{
    struct test_node *test = *state;
    struct test_wish more = test_one;
    struct asked asked;

    test_node_grant(test, &test_one);
    uint64_t before = test->node.epoch_written, epoch = before + 1;
    disk.loop_count = 0;
    more.revision++;
    ask_at(test, epoch, &more, &asked);
    assert_int_equal(disk.loop_count, 0);
    assert_int_equal(asked.status, FLYT_STATUS_UNAVAILABLE);
    assert_int_equal(test->node.epoch_written, before);
    hold_disk(true);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    ask_at(test, epoch, &more, &asked);
    assert_int_equal(asked.status, FLYT_STATUS_UNAVAILABLE);
    ask_at(test, before, &more, &asked);
    assert_int_equal(asked.status, FLYT_STATUS_STALE);
    hold_disk(false);
    test_node_until(test, is_epoch_written, &epoch, "the epoch is written");
    ask_at(test, epoch, &more, &asked);
    test_node_until(test, is_answered, &asked, "an outcome");
    assert_int_equal(asked.status, FLYT_STATUS_OK);
    assert_int_equal(disk.loop_count, 0);
}

/* One that is taken back while it is written is not carried out, and its order is answered. */
static void test_an_allocation_goes_while_it_is_written(void **state)
{
    struct test_node *test = *state;
    struct test_wish more = test_one;
    struct asked changed, created;

    test_node_grant(test, &test_one);
    hold_disk(true);
    more.revision++;
    ask(test, &more, &changed);
    ask(test, &test_other, &created);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    test_node_remove(test, test_one.id);
    assert_int_equal(changed.status, FLYT_STATUS_NOT_FOUND);
    assert_int_equal(test->removal.order, (flyt_status)-1);
    hold_disk(false);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    test_node_until(test, is_answered, &created, "an outcome");
    assert_int_equal(test->removal.order, FLYT_STATUS_OK);
    assert_null(flyt_node_allocation_find(&test->node, test_one.id));
    test_node_stop(test);
    test_node_start(test);
    assert_null(flyt_node_allocation_find(&test->node, test_one.id));
    assert_non_null(flyt_node_allocation_find(&test->node, test_other.id));
}

/* At the node manager's end nothing is left unwritten, and whoever waits is told. */
static void test_the_end_writes_what_is_left(void **state)
{
    struct test_node *test = *state;
    struct test_wish more = test_one;
    struct asked asked;

    test_node_grant(test, &test_one);
    more.revision++;
    ask(test, &more, &asked);
    assert_false(is_answered(test, &asked));
    test_node_stop(test);
    assert_int_equal(asked.status, FLYT_STATUS_OK);
    test_node_start(test);
    assert_int_equal(test_node_use(test, test_one.id).revision, more.revision);
}

/* ---- images ---- */

static bool is_record_made(struct test_node *test, void *program)
{
    return test_saving_record(test, program) != NULL;
}

/* Its programs have stopped, and that they are in images is being written. */
static void begin_to_suspend(struct test_node *test, struct test_program *programs, unsigned count)
{
    test_node_grant(test, &test_other);
    test_saving_enter(test, programs, count);
    test_saving_must(test_saving_checkpoint(test, 0, false));
    test_node_until(test, is_record_made, &programs[0], "the state is to say that they are in images");
    hold_disk(true);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
}

/* They are told to leave when it is written, and others' programs begin meanwhile. */
static void test_programs_leave_when_it_is_written(void **state)
{
    struct test_node *test = *state;
    struct test_program programs[2];

    begin_to_suspend(test, programs, 2);
    struct test_program other = test_node_enter(test, &test_other);
    test_program_say(test, &other, "charge 0 4096", "0");
    assert_int_equal(test_saving_use(test).phase, FLYT_SAVING_STOPPING);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(test_node_server(test, &programs[i])->state, FLYT_NODE_SERVER_SERVING);
    hold_disk(false);
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).session_count, 2);
    test_saving_images_are(test, 2);
    test_saving_go_on(test, programs, 2);
    close(other.fd);
}

/* Its image is whole, and that was about to be said: it goes on from there. */
static void test_a_server_dies_while_it_is_written(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin_to_suspend(test, &program, 1);
    kill(test_node_server(test, &program)->pid, SIGKILL);
    test_node_until_used(test, &test_one, 0);
    hold_disk(false);
    assert_int_equal(test_saving_until(test, FLYT_SAVING_DONE).session_count, 1);
    test_saving_go_on(test, &program, 1);
}

static bool has_checkpoint_ended(struct test_node *test, void *unused)
{
    return test_saving_use(test).phase == FLYT_SAVING_FAILED;
}

/* Nothing of them stays, whatever is written meanwhile. */
static void test_an_allocation_goes_while_its_images_are_written(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin_to_suspend(test, &program, 1);
    test_node_remove(test, test_one.id);
    assert_true(has_checkpoint_ended(test, NULL));
    assert_null(test->node.state.checkpointed);
    hold_disk(false);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    test_saving_images_are(test, 0);
    test_node_stop(test);
    test_node_start(test);
    assert_null(test->node.state.checkpointed);
    assert_null(test->node.state.uncommitted);
}

static bool is_image_named(struct test_node *test, void *unused)
{
    const struct flyt_node_image_uncommitted *uncommitted = test->node.state.uncommitted;

    return uncommitted && uncommitted->is_kept;
}

/* The program goes on, and that its image stays is being written. */
static void begin_to_keep(struct test_node *test, struct test_program *program)
{
    test_saving_enter(test, program, 1);
    test_saving_must(test_saving_checkpoint(test, 0, true));
    test_node_until(test, is_image_named, NULL, "the image is to stay");
    hold_disk(true);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
}

/* Of programs that go on: it is done when it is written that the images stay. */
static void test_images_stay_when_it_is_written(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin_to_keep(test, &program);
    test_program_say(test, &program, "charge 0 4096", "0");
    assert_int_equal(test_saving_use(test).phase, FLYT_SAVING_STOPPING);
    hold_disk(false);
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_images_are(test, 1);
    close(program.fd);
}

static void test_images_stay_though_the_time_is_over_meanwhile(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    begin_to_keep(test, &program);
    test->node.ops->operations[FLYT_NODE_OPERATION_CHECKPOINT]->started_ms -= LONG_AGO_MS;
    hold_disk(false);
    test_saving_until(test, FLYT_SAVING_DONE);
    test_saving_images_are(test, 1);
    close(program.fd);
}

/* ---- programs that arrive ---- */

static bool is_awaited(struct test_node *test, void *unused)
{
    return !test_received(test)->taking.done;
}

/* Their allocation is there when it is written, and is not where it goes meanwhile. */
static void test_programs_are_awaited_when_it_is_written(void **state)
{
    struct test_node *test = *state;

    test_node_grant(test, &test_other);
    hold_disk(true);
    test_receive_ask(test, &test_one, TEST_MIGRATION, test_secret, false);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    struct test_program other = test_node_enter(test, &test_other);
    test_program_say(test, &other, "charge 0 4096", "0");
    assert_false(test_receive_is_answered(test, NULL));
    test_receive_ask(test, &test_one, TEST_MIGRATION, test_secret, false);
    assert_true(test_receive_is_answered(test, NULL)); /* it cannot be said yet */
    test_contains(test_refusal.text, "is being written");
    hold_disk(false);
    test_node_until(test, is_awaited, NULL, "it is written");
    assert_int_equal(test_receive(test), FLYT_STATUS_OK); /* it is known */
    close(other.fd);
}

static void test_the_allocation_goes_before_programs_are_awaited(void **state)
{
    struct test_node *test = *state;

    hold_disk(true);
    test_receive_ask(test, &test_one, TEST_MIGRATION, test_secret, false);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    test_node_remove(test, test_one.id);
    test_node_until(test, test_receive_is_answered, NULL, "the order is answered");
    test_contains(test_refusal.text, "was taken back");
    hold_disk(false);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    test_node_stop(test);
    test_node_start(test);
    assert_null(flyt_node_allocation_find(&test->node, test_one.id));
    assert_null(test->node.state.receiving);
}

/* ---- programs that move ---- */

static bool is_stopping(struct test_node *test, void *unused)
{
    return test_migration_of(test)->op.phase >= FLYT_MIGRATION_STOPPING;
}

/* What is to be is written while the programs run: they are told to stop when the disk has it. */
static void test_programs_run_while_it_is_written_ahead(void **state)
{
    struct test_node *test = *state;
    struct test_program program;

    test_migration_enter(test, &program, 1);
    hold_disk(true);
    test_migration_start(test, 1);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    test_node_run(test, 300);
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_COPYING);
    test_program_say(test, &program, "read 1", "4711");
    hold_disk(false);
    test_node_until(test, is_stopping, NULL, "it goes on");
    test_migration_is_told_to_leave(test, &program);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_migration_is_only_on(test, 1);
    test_node_leave(test, &test_one, &program, 1);
}

/* Everything is at the target, and the disk is busy with something else. */
static void begin_to_commit(struct test_node *test, struct test_program *program, struct asked *asked)
{
    test_migration_enter(test, program, 1);
    test_program_say(test, program, "mute 1", "0");
    test_migration_start(test, 1);
    test_migration_until(test, FLYT_MIGRATION_STOPPING);
    hold_disk(true);
    ask(test, &test_other, asked);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    test_program_say(test, program, "mute 0", "0");
    test_migration_until_stage(test, FLYT_NODE_MOVE_STOPPED, FLYT_NODE_TARGET_LOADED);
    test_node_run(test, 300);
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_STOPPING);
    assert_int_equal(test_migration_allocation(test)->now.revision, 1);
}

static void test_a_commit_waits_for_the_disk(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct asked other;

    begin_to_commit(test, &program, &other);
    assert_int_equal(flyt_node_migration_cancel(test_migration_of(test), "too late"), -EALREADY);
    hold_disk(false);
    test_node_until(test, is_answered, &other, "the other order's outcome");
    test_migration_is_told_to_leave(test, &program);
    assert_int_equal(test_migration_allocation(test)->now.revision, 2);
    test_migration_go_on(test, &program);
    test_migration_until(test, FLYT_MIGRATION_DONE);
    test_node_leave(test, &test_one, &program, 1);
}

/* Its program dies meanwhile, and could not go on at the target alone. */
static void test_a_source_dies_while_its_commit_waits(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct asked other;

    begin_to_commit(test, &program, &other);
    assert_int_equal(kill(test_node_server(test, &program)->pid, SIGKILL), 0);
    test_node_until_empty(test, &test_one);
    hold_disk(false);
    test_migration_until(test, FLYT_MIGRATION_FAILED);
    test_migration_is_only_on(test, 0);
    test_node_stop(test);
    test_node_start(test);
    assert_string_equal(test_migration_allocation(test)->now.slots.slots_val[0].gpu_uuid,
                        test->node.gpus.items[0].uuid);
    close(program.fd);
}

static void test_an_allocation_goes_while_its_commit_waits(void **state)
{
    struct test_node *test = *state;
    struct test_program program;
    struct asked other;

    begin_to_commit(test, &program, &other);
    test_node_remove(test, test_one.id);
    test_node_run(test, 100);
    hold_disk(false);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    test_node_until(test, is_answered, &other, "the other order's outcome");
    test_migration_until(test, FLYT_MIGRATION_FAILED);
    test_node_stop(test);
    test_node_start(test);
    assert_null(test_migration_allocation(test));
    close(program.fd);
}

static void note_switched(void *user, const struct flyt_node_migration *migration, flyt_status status, const char *text)
{
    *(flyt_status *)user = status;
}

static bool is_switched(struct test_node *test, void *status)
{
    return *(flyt_status *)status != (flyt_status)-1;
}

/* To another node: SWITCH is answered, and programs are told to leave, when it is written. */
static void test_a_switch_waits_for_the_disk(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    flyt_status first = (flyt_status)-1, second = (flyt_status)-1;

    test_send_arrive(far, &program, 1);
    hold_disk(true);
    flyt_node_send_switch(test_migration_of(test), note_switched, &first);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    test_node_run(test, 300);
    assert_false(is_switched(test, &first));
    assert_int_equal(test_migration_of(test)->op.phase, FLYT_MIGRATION_ARRIVED);
    flyt_node_send_switch(test_migration_of(test), note_switched, &second);
    assert_int_equal(second, FLYT_STATUS_UNAVAILABLE);
    hold_disk(false);
    test_node_until(test, is_switched, &first, "SWITCH is answered");
    assert_int_equal(first, FLYT_STATUS_OK);
    test_send_is_told_to_leave(test, &program);
    test_send_take_back(test, 1);
}

/* The allocation goes meanwhile: its programs have not left. */
static void test_an_allocation_goes_while_its_switch_waits(void **state)
{
    struct test_far *far = *state;
    struct test_node *test = far->test;
    struct test_program program;
    flyt_status status = (flyt_status)-1;

    test_send_arrive(far, &program, 1);
    hold_disk(true);
    flyt_node_send_switch(test_migration_of(test), note_switched, &status);
    test_node_until(test, is_disk_asked, NULL, "the disk is asked");
    test_node_remove(test, test_one.id);
    test_node_run(test, 100);
    hold_disk(false);
    test_node_until(test, test_node_is_removed, NULL, "the removal");
    test_node_until(test, is_switched, &status, "SWITCH is answered");
    assert_int_not_equal(status, FLYT_STATUS_OK);
    test_node_stop(test);
    test_node_start(test);
    assert_int_equal(flyt_node_departed_find(&test->node.state, test_one.id), 0);
    close(program.fd);
}

static int set_up(void **state)
{
    *state = test_node_new();
    test_node_start(*state);
    return 0;
}

static int tear_down(void **state)
{
    hold_disk(false);
    test_node_stop(*state);
    test_node_free(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_what_is_not_written_is_not_carried_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_orders_share_a_write, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_leader_is_followed_when_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_allocation_goes_while_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_end_writes_what_is_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_programs_leave_when_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_server_dies_while_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_allocation_goes_while_its_images_are_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_images_stay_when_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_images_stay_though_the_time_is_over_meanwhile, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_programs_are_awaited_when_it_is_written, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_the_allocation_goes_before_programs_are_awaited, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_programs_run_while_it_is_written_ahead, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_commit_waits_for_the_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_source_dies_while_its_commit_waits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_an_allocation_goes_while_its_commit_waits, set_up, tear_down),
        TEST_FAR(test_a_switch_waits_for_the_disk),
        TEST_FAR(test_an_allocation_goes_while_its_switch_waits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
