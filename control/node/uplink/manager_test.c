/* Tests of what a node says to the cluster manager and does at its word, against a manager that only writes down. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

#include "control/base/peer.h"
#include "control/node/attach/attach.h"
#include "control/node/ops/ops.h"
#include "control/node/test/test_boss.h"
#include "control/node/test/test_far.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/manager.h"
#include "control/node/uplink/report.h"
#include "rpc/base/machine.h"
#include "rpc/transport/endpoint/listen.h"

/* Longer than this process stands still. */
enum { FENCE_AFTER_MS = 100000 };

/* Instead of the C library's, for this program: of CLOCK_BOOTTIME, by which a node knows how long nobody has led it,
 * the test says how far it has gone. */
static uint64_t ahead_ms;

int clock_gettime(clockid_t clock, struct timespec *ret_now)
{
    int status = (int)syscall(SYS_clock_gettime, clock, ret_now);

    if (!status && clock == CLOCK_BOOTTIME)
        ret_now->tv_sec += (time_t)(ahead_ms / 1000);
    return status;
}

static uint64_t boot_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static bool has_session(struct test_node *test, void *user)
{
    const struct test_boss *boss = user;

    return boss->figures.sessions.sessions_len == 1 && boss->figures.uses.uses_len == 1 &&
           boss->figures.uses.uses_val[0].session_count == 1 &&
           boss->figures.uses.uses_val[0].slots.slots_val[0].memory_used_bytes == 5 * MIB;
}

/* First where the network leads, then this machine's socket, which every user may connect to. */
static void expect_data_urls(const struct test_boss *boss)
{
    const flyt_register_args *inventory = &boss->inventory;
    char boot_id[FLYT_URL_BOOT_ID_BYTES], url[FLYT_URL_TEXT_BYTES];
    struct flyt_error err;
    struct stat info;
    int fd;

    assert_int_equal(inventory->data_urls.data_urls_len, 2);
    assert_string_equal(inventory->data_urls.data_urls_val[0], boss->test->node.attach->listen_urls[0]);
    flyt_machine_boot_id(boot_id);
    snprintf(url, sizeof url, "unix://%s%s/node.sock", boot_id, boss->test->folder);
    assert_string_equal(inventory->data_urls.data_urls_val[1], url);
    assert_int_equal(stat(boss->test->settings.socket, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0666);
    assert_int_equal(flyt_connect(url, 1000, &err, &fd), 0);
    close(fd);
}

/* ---- tests ---- */

static void test_inventory(void **state)
{
    struct test_boss *boss = *state;
    const flyt_register_args *inventory = &boss->inventory;

    assert_int_equal(inventory->gpus.gpus_len, 2);
    const flyt_gpu *gpu = &inventory->gpus.gpus_val[1];
    assert_string_equal(gpu->type, "Flyt software GPU");
    assert_int_equal(gpu->index, 1);
    assert_int_equal(gpu->sm_count, 132);
    assert_int_equal(gpu->group_sms.group_sms_len, 16);
    assert_int_equal(gpu->group_sms.group_sms_val[14], 8);
    assert_int_equal(gpu->group_sms.group_sms_val[15], 12);
    assert_int_equal(gpu->client_slots, 47);
    assert_int_equal(gpu->memory_bytes, 1 << 30);
    assert_string_not_equal(gpu->uuid, inventory->gpus.gpus_val[0].uuid);
    assert_memory_equal(inventory->node_key, boss->test->node.state.node_key, FLYT_KEY_BYTES);
    expect_data_urls(boss);
    assert_int_equal(boss->test->node.state.epoch, 3);
    assert_int_equal(boss->test->node.client_lost_s, 33);
}

static bool has_told_driver(struct test_node *test, void *user)
{
    return *((const struct test_boss *)user)->driver_version != 0;
}

/* What its driver is, with each registration; software GPUs have none. */
static void test_tells_its_driver(void **state)
{
    struct test_boss *boss = *state;
    struct flyt_node *node = &boss->test->node;

    assert_string_equal(boss->driver_version, "");
    snprintf(node->driver_version, sizeof node->driver_version, "580.1.2");
    node->cuda_version = 13010;
    boss->is_forgetful = true;
    test_node_until(boss->test, has_told_driver, boss, "the driver's version");
    assert_string_equal(boss->driver_version, "580.1.2");
    assert_int_equal(boss->cuda_version, 13010);
}

static void test_orders_and_figures(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(vm.status, FLYT_HANDSHAKE_OK);
    assert_string_equal(test_program_ask(test, &vm, "charge 0 5242880"), "0");
    test_node_until(test, has_session, boss, "the session in a heartbeat");
    assert_string_equal(boss->figures.sessions.sessions_val[0].program_name, "test_program");
    assert_int_equal(boss->figures.sessions.sessions_val[0].id, vm.session_id);
    assert_int_equal(boss->figures.gpus.gpus_val[0].memory_used_bytes, 5 * MIB);
    assert_string_equal(boss->last_event, "session.started");
    /* Killed by order; another does not exist. */
    const flyt_order_session_args unknown = {boss->epoch, 1}, known = {boss->epoch, vm.session_id},
                                  old = {boss->epoch - 1, vm.session_id};
    test_boss_order(boss, FLYT_ORDER_SESSION_KILL, (xdrproc_t)xdr_flyt_order_session_args, &unknown,
                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), test_boss_on_outcome);
    assert_int_equal(boss->status, FLYT_STATUS_NOT_FOUND);
    test_boss_order(boss, FLYT_ORDER_SESSION_KILL, (xdrproc_t)xdr_flyt_order_session_args, &old,
                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), test_boss_on_outcome);
    assert_int_equal(boss->status, FLYT_STATUS_STALE);
    test_boss_order(boss, FLYT_ORDER_SESSION_KILL, (xdrproc_t)xdr_flyt_order_session_args, &known,
                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), test_boss_on_outcome);
    assert_int_equal(boss->status, FLYT_STATUS_OK);
    assert_string_equal(test_program_ask(test, &vm, NULL), "killed: an operator has ended this session");
    test_node_until(test, test_boss_has_no_session, boss, "a heartbeat without it");
    close(vm.fd);
}

static void test_works_without_manager_and_tells_it_later(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    test_boss_close(boss);
    unsigned before = boss->event_count, registered = boss->register_count;
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(vm.status, FLYT_HANDSHAKE_OK);
    test_boss_open(boss);
    boss->epoch = 4;       /* another one leads */
    boss->entitled = NULL; /* and knows nothing of the allocation */
    while (boss->register_count == registered || boss->event_count == before)
        test_node_run(test, 20);
    assert_int_equal(boss->inventory.allocations.allocations_len, 1);
    assert_int_equal(boss->inventory.allocations.allocations_val[0].id, 0x77);
    assert_int_equal(boss->inventory.sessions.sessions_len, 1);
    assert_int_equal(test->node.state.epoch, 4);
    assert_int_equal(boss->written_epoch, 4); /* before it could be given an order */
    /* An orphan: charged, shown, not ended. */
    assert_int_equal(flyt_node_allocation_find(&test->node, 0x77)->now.state, FLYT_ALLOCATION_ORPHAN);
    assert_string_equal(test_program_ask(test, &vm, "charge 0 1"), "0");
    boss->epoch = 3;
    assert_int_equal(test_boss_apply(boss, 2), FLYT_STATUS_STALE);
    boss->epoch = 4;
    assert_int_equal(test_boss_apply(boss, 2), FLYT_STATUS_OK);
    assert_int_equal(flyt_node_allocation_find(&test->node, 0x77)->now.state, FLYT_ALLOCATION_ACTIVE);
    /* Forgotten: it registers again. */
    registered = boss->register_count;
    boss->entitled = test_boss_wish(boss, 2);
    boss->is_forgetful = true;
    while (boss->register_count == registered)
        test_node_run(test, 20);
    close(vm.fd);
    while (boss->figures.sessions.sessions_len)
        test_node_run(test, 20);
}

/* As the node keeps it over restarts. */
static uint64_t contact_ms(const struct test_boss *boss)
{
    char path[512], text[128] = "";
    uint64_t ms = 0;

    snprintf(path, sizeof path, "%s/contact", boss->test->settings.state_dir);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    if (fgets(text, sizeof text, file)) /* else nothing is kept yet */
        assert_int_equal(sscanf(text, "%*s %" SCNu64, &ms), 1);
    fclose(file);
    return ms;
}

/* A node that nobody leads frees what it has: only where that is wanted, and not before its time. */
static void test_fences_itself(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    test->settings.fence_after_ms = FENCE_AFTER_MS;
    for (unsigned i = 0; i < 3; i++) { /* heartbeats are answered */
        ahead_ms += FENCE_AFTER_MS / 2;
        uint64_t begin_ms = boot_ms();
        while (contact_ms(boss) < begin_ms)
            test_node_run(test, 5);
        assert_string_equal(test_program_ask(test, &vm, "charge 0 1"), "0");
    }
    test_boss_close(boss);
    ahead_ms += FENCE_AFTER_MS / 2;
    test_node_run(test, 500);
    assert_string_equal(test_program_ask(test, &vm, "charge 0 1"), "0");
    ahead_ms += FENCE_AFTER_MS / 2 + 1000;
    assert_string_equal(test_program_ask(test, &vm, NULL),
                        "killed: the node has lost its cluster manager for too long");
    while (test->node.allocations)
        test_node_run(test, 20);
    close(vm.fd);
    test_boss_open(boss);
    unsigned registered = boss->register_count;
    while (boss->register_count == registered)
        test_node_run(test, 20);
    assert_int_equal(boss->inventory.allocations.allocations_len, 0);
}

/* Restarts do not put the end off. */
static void test_fences_itself_over_restarts(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    test->settings.fence_after_ms = FENCE_AFTER_MS;
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    uint64_t begin_ms = boot_ms();
    while (contact_ms(boss) < begin_ms) /* heartbeats are answered */
        test_node_run(test, 5);
    test_boss_close(boss);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(test->node.allocations && !test->node.allocations->is_removed);
        test_boss_stop_node(boss);
        ahead_ms += FENCE_AFTER_MS * 2 / 5;
        test_boss_start_node(boss);
    }
    while (test->node.allocations && !test->node.allocations->is_removed)
        test_node_run(test, 20);
    test_boss_open(boss);
}

static unsigned loop_writes; /* by the loop's thread */

ssize_t __real_pwrite(int fd, const void *bytes, size_t count, off_t offset);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset);

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t count, off_t offset)
{
    loop_writes += gettid() == getpid();
    return __real_pwrite(fd, bytes, count, offset);
}

/* A disk may hold up who writes even what need not be on it. */
static void test_keeps_contact_beside_the_loop(void **state)
{
    struct test_boss *boss = *state;
    uint64_t before_ms = contact_ms(boss);

    loop_writes = 0;
    while (contact_ms(boss) == before_ms)
        test_node_run(boss->test, 5);
    assert_int_equal(loop_writes, 0);
}

/* An answer says that the manager was there when its question was sent, not when a later one was. */
static void test_dates_contact_by_what_was_answered(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;
    const flyt_heartbeat_res beat = {.outcome = {FLYT_STATUS_OK, (char *)""}, .epoch = boss->epoch};
    const flyt_register_res registration = {
        .outcome = {FLYT_STATUS_OK, (char *)""}, .epoch = boss->epoch, .heartbeat_ms = 50, .client_lost_s = 33};

    boss->is_slow = true;
    while (!boss->beat)
        test_node_run(test, 5);
    uint64_t beat_ms = boot_ms(), before_ms = contact_ms(boss);
    while (boot_ms() <= beat_ms + 5)
        test_node_run(test, 5);
    test->node.ops->went_back_count++; /* it registers again, while the heartbeat is on its way */
    while (!boss->registration)
        test_node_run(test, 5);
    uint64_t registration_ms = boot_ms();
    flyt_call_reply(boss->beat, &beat);
    while (contact_ms(boss) == before_ms)
        test_node_run(test, 5);
    assert_in_range(contact_ms(boss), before_ms + 1, beat_ms);
    flyt_call_reply(boss->registration, &registration);
    while (contact_ms(boss) <= beat_ms)
        test_node_run(test, 5);
    assert_in_range(contact_ms(boss), beat_ms + 1, registration_ms);
    boss->is_slow = false;
}

/* What no leader can have come to is not carried out, and orders after it are. */
static void test_revisions_that_cannot_be(void **state)
{
    struct test_boss *boss = *state;

    assert_int_equal(test_boss_apply(boss, UINT64_MAX), FLYT_STATUS_INVALID);
    assert_null(flyt_node_allocation_find(&boss->test->node, 0x77));
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    assert_int_equal(test_boss_apply(boss, UINT64_MAX), FLYT_STATUS_INVALID);
    assert_int_equal(test_boss_apply(boss, FLYT_NODE_REVISION_MAX + 1), FLYT_STATUS_INVALID);
    assert_int_equal(flyt_node_allocation_find(&boss->test->node, 0x77)->now.revision, 1);
    assert_int_equal(test_boss_apply(boss, FLYT_NODE_REVISION_MAX), FLYT_STATUS_OK);
}

/* What an order has removed. */
static flyt_status take_away(struct test_boss *boss)
{
    u_quad_t id = 0x77;
    const flyt_apply_args args = {.epoch = boss->epoch, .removed = {1, &id}};

    test_boss_order(boss, FLYT_ORDER_APPLY, (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
                    sizeof(flyt_apply_res), test_boss_on_applied);
    return boss->order_status;
}

static unsigned saved_allocations(const struct test_boss *boss)
{
    struct flyt_node_state state;
    struct flyt_error err;
    bool is_new;

    assert_int_equal(flyt_node_state_read(boss->test->settings.state_dir, &err, &state, &is_new), 0);
    unsigned count = state.allocation_count;
    flyt_node_state_fini(&state);
    return count;
}

/* A state file that cannot be written: nothing is said to be gone that the file has, an event tells, and it is tried
 * again until it can be. */
static void test_says_nothing_that_is_not_saved(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;
    char part[512];

    snprintf(part, sizeof part, "%s/state.json.part", test->settings.state_dir);
    for (unsigned has_program = 0; has_program < 2; has_program++) {
        assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
        const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
        struct test_program vm = {.fd = -1};
        if (has_program)
            vm = test_node_connect(test, &credentials, NULL, false);
        assert_int_equal(saved_allocations(boss), 1);
        assert_int_equal(mkdir(part, 0700), 0);
        unsigned told_count = boss->unsaved_count;
        assert_int_equal(take_away(boss), FLYT_STATUS_UNAVAILABLE);
        assert_int_equal(saved_allocations(boss), 1);
        while (boss->unsaved_count == told_count)
            test_node_run(test, 20);
        assert_int_equal(take_away(boss), FLYT_STATUS_UNAVAILABLE);
        assert_int_equal(rmdir(part), 0);
        if (has_program) {
            while (test->node.is_unsaved)
                test_node_run(test, 20);
            close(vm.fd);
        } else {
            assert_int_equal(take_away(boss), FLYT_STATUS_OK);
        }
        assert_int_equal(saved_allocations(boss), 0);
    }
}

/* Who leads now is written when the disk can be written again: until then nobody gives orders, not who led before
 * either. */
static void test_follows_nobody_who_is_not_saved(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;
    char part[512];

    snprintf(part, sizeof part, "%s/state.json.part", test->settings.state_dir);
    test_boss_close(boss);
    assert_int_equal(mkdir(part, 0700), 0);
    test_boss_open(boss);
    boss->epoch = 4;
    unsigned registered = boss->register_count;
    while (!test->node.is_unsaved || boss->register_count == registered)
        test_node_run(test, 20);
    assert_int_equal(boss->written_epoch, 3);
    assert_int_equal(test->node.state.epoch, 4);
    for (unsigned i = 0; i < 2; i++) { /* nor when it has been tried again */
        assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_UNAVAILABLE);
        assert_false(flyt_node_manager_is_registered(boss->manager));
        test_node_run(test, FLYT_NODE_WRITE_AGAIN_MS + 500);
    }
    boss->epoch = 3;
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_STALE);
    boss->epoch = 4;
    assert_int_equal(rmdir(part), 0);
    while (!flyt_node_manager_is_registered(boss->manager))
        test_node_run(test, 20);
    assert_int_equal(boss->written_epoch, 4);
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
}

/* Who is connected to, and has come to lead anew meanwhile, has its epoch written before it gives orders. */
static void test_follows_who_leads_anew(void **state)
{
    struct test_boss *boss = *state;
    struct test_node *test = boss->test;

    boss->epoch = 4;
    unsigned registered = boss->register_count;
    boss->is_forgetful = true;
    while (boss->register_count == registered || !flyt_node_manager_is_registered(boss->manager))
        test_node_run(test, 20);
    assert_int_equal(test_boss_written_epoch(boss), 4);
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
}

static void set_group_size(struct test_boss *boss, unsigned group_size)
{
    const flyt_order_gpu_args args = {boss->epoch, boss->test->node.gpus.items[0].uuid, group_size};

    test_boss_order(boss, FLYT_ORDER_GPU_SET, (xdrproc_t)xdr_flyt_order_gpu_args, &args,
                    (xdrproc_t)xdr_flyt_order_gpu_res, sizeof(flyt_order_gpu_res), test_boss_on_gpu);
}

static void test_group_size(void **state)
{
    struct test_boss *boss = *state;

    set_group_size(boss, 3);
    assert_int_equal(boss->status, FLYT_STATUS_INVALID);
    set_group_size(boss, 2);
    assert_int_equal(boss->status, FLYT_STATUS_OK);
    assert_int_equal(boss->gpu.group_size, 2);
    assert_int_equal(boss->gpu.group_sms.group_sms_len, 66);
    assert_int_equal(boss->test->node.gpus.items[1].group_size, 8);
    /* It holds after a restart. */
    test_boss_stop_node(boss);
    test_boss_start_node(boss);
    boss->heartbeat_count = 0;
    test_node_until(boss->test, test_boss_is_registered, boss, "the registration");
    assert_int_equal(boss->inventory.gpus.gpus_val[0].group_size, 2);
    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    set_group_size(boss, 8);
    assert_int_equal(boss->status, FLYT_STATUS_IN_USE);
}

static void test_metrics(void **state)
{
    struct test_boss *boss = *state;
    struct flyt_metrics *registry = flyt_metrics_new();
    struct flyt_node_metrics *metrics = flyt_node_metrics_new(registry);

    assert_int_equal(test_boss_apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&test_boss_ticket);
    struct test_program vm = test_node_connect(boss->test, &credentials, NULL, false);
    assert_string_equal(test_program_ask(boss->test, &vm, "charge 0 4096"), "0");
    flyt_node_metrics_refresh(metrics, &boss->test->node);
    char *text = flyt_metrics_text(registry);
    assert_non_null(strstr(text,
                           "flyt_node_allocation_memory_used_bytes{allocation=\"0000000000000077\",vm_ip=\"10.1.1.1\","
                           "slot=\"0\"} 4096\n"));
    assert_non_null(strstr(text, "flyt_sessions_started_total 1\n"));
    assert_non_null(strstr(text, "program=\"test_program\""));
    free(text);
    close(vm.fd);
    test_node_until(boss->test, test_boss_has_no_session, boss, "a heartbeat without the session");
    while (flyt_node_allocation_find(&boss->test->node, 0x77)->session_count)
        test_node_run(boss->test, 20);
    flyt_node_metrics_refresh(metrics, &boss->test->node);
    text = flyt_metrics_text(registry);
    assert_null(strstr(text, "program=\"test_program\"")); /* what has gone is not shown for ever */
    free(text);
    flyt_node_metrics_free(metrics);
    flyt_metrics_free(registry);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_inventory, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_tells_its_driver, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_orders_and_figures, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_works_without_manager_and_tells_it_later, test_boss_set_up,
                                        test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_fences_itself, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_fences_itself_over_restarts, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_keeps_contact_beside_the_loop, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_dates_contact_by_what_was_answered, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_says_nothing_that_is_not_saved, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_revisions_that_cannot_be, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_follows_nobody_who_is_not_saved, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_follows_who_leads_anew, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_group_size, test_boss_set_up, test_boss_tear_down),
        cmocka_unit_test_setup_teardown(test_metrics, test_boss_set_up, test_boss_tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
