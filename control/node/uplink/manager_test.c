/* Tests of what a node says to the cluster manager and does at its word, against a manager that only writes down. */
#include <errno.h>
#include <inttypes.h>
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
#include "control/node/model/writer.h"
#include "control/node/ops/migration.h"
#include "control/node/ops/ops.h"
#include "control/node/ops/receive.h"
#include "control/node/test/test_far.h"
#include "control/node/test/test_node.h"
#include "control/node/uplink/manager.h"
#include "control/node/uplink/report.h"
#include "rpc/base/machine.h"
#include "rpc/transport/endpoint/listen.h"

#define MIB (1ull << 20)

/* Longer than this process stands still. */
enum { FENCE_AFTER_MS = 100000 };

/* The cluster manager. */
struct boss {
    struct test_node *test;
    struct flyt_node_manager *manager;
    struct flyt_door *door;
    struct flyt_peer *peer;
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    char *urls[1];
    uint64_t epoch, written_epoch; /* written_epoch: by the node, when it registered */
    bool is_forgetful;             /* heartbeats are answered NOT_FOUND */
    bool is_slow;                  /* one heartbeat and one registration wait here for the test to answer them: */
    struct flyt_call *beat, *registration;
    flyt_allocation *entitled; /* of the node, told at registration; NULL: nothing */
    unsigned register_count, heartbeat_count, event_count;
    flyt_register_args inventory; /* the last one, owned */
    flyt_heartbeat_args figures;
    char last_event[128];
    unsigned unsaved_count; /* events of a state that is not saved */
    /* Of FLYT_NODE_MIGRATION. */
    unsigned migration_count, deaf_count; /* deaf_count: so many ends are not heard */
    flyt_migration_use migration;         /* the last one; its text is `text` */
    flyt_migration_use asked;             /* what an order was answered with */
    flyt_migration_phase awaited_phase;
    /* The last order's outcome. */
    bool has_outcome;
    flyt_status order_status, status;
    char text[256];
    flyt_gpu gpu;            /* of FLYT_ORDER_GPU_SET; its parts are not kept */
    char driver_version[64]; /* that it has told */
    unsigned cuda_version;
};

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

static struct boss *boss_of(struct flyt_call *call)
{
    struct boss *boss = flyt_peer_user(flyt_call_peer(call));

    boss->peer = flyt_call_peer(call);
    return boss;
}

static void serve_hello(struct flyt_call *call, void *args)
{
    struct boss *boss = boss_of(call);
    const flyt_hello_args *hello = args;
    const flyt_hello_res res = {
        .outcome = {FLYT_STATUS_OK, (char *)""}, .build = (char *)"boss", .epoch = boss->epoch, .is_leader = TRUE};

    assert_int_equal(hello->kind, FLYT_PEER_NODE);
    assert_string_equal(hello->name, "testnode");
    flyt_call_reply(call, &res);
}

/* Keeps what came: the argument is emptied, so that it is not freed. */
/* What a node manager that is killed now would find. */
static uint64_t written_epoch(const struct boss *boss)
{
    struct flyt_node_state state = {0};
    struct flyt_error err = {0};
    bool is_new;

    if (flyt_node_state_read(boss->test->settings.state_dir, &err, &state, &is_new))
        fail_msg("%s", err.text);
    uint64_t epoch = state.epoch;
    flyt_node_state_fini(&state);
    return epoch;
}

static void serve_register(struct flyt_call *call, void *args)
{
    struct boss *boss = boss_of(call);
    flyt_register_res res = {.outcome = {FLYT_STATUS_OK, (char *)""},
                             .epoch = boss->epoch,
                             .heartbeat_ms = 50,
                             .client_lost_s = 33,
                             .allocations = {boss->entitled != NULL, boss->entitled}};

    xdr_free((xdrproc_t)xdr_flyt_register_args, &boss->inventory);
    boss->inventory = *(flyt_register_args *)args;
    memset(args, 0, sizeof boss->inventory);
    boss->written_epoch = written_epoch(boss);
    boss->register_count++;
    boss->is_forgetful = false;
    if (boss->is_slow && !boss->registration)
        boss->registration = call;
    else
        flyt_call_reply(call, &res);
}

static void serve_heartbeat(struct flyt_call *call, void *args)
{
    struct boss *boss = boss_of(call);
    const flyt_heartbeat_res res = {
        .outcome = {boss->is_forgetful ? FLYT_STATUS_NOT_FOUND : FLYT_STATUS_OK, (char *)""}, .epoch = boss->epoch};

    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &boss->figures);
    boss->figures = *(flyt_heartbeat_args *)args;
    memset(args, 0, sizeof boss->figures);
    boss->heartbeat_count++;
    if (boss->is_slow && !boss->beat)
        boss->beat = call;
    else
        flyt_call_reply(call, &res);
}

static void serve_event(struct flyt_call *call, void *args)
{
    struct boss *boss = boss_of(call);
    const flyt_event *event = args;
    const flyt_outcome outcome = {FLYT_STATUS_OK, (char *)""};

    assert_string_equal(event->who, "node:testnode");
    assert_true(event->time_ms > 0);
    boss->event_count++;
    boss->unsaved_count += !strcmp(event->kind, "node.state_unsaved");
    snprintf(boss->last_event, sizeof boss->last_event, "%.40s", event->kind);
    flyt_call_reply(call, &outcome);
}

static void serve_migration(struct flyt_call *call, void *args)
{
    struct boss *boss = boss_of(call);
    const flyt_migration_use *use = args;
    flyt_outcome outcome = {FLYT_STATUS_OK, (char *)""};

    boss->migration_count++;
    boss->migration = *use;
    snprintf(boss->text, sizeof boss->text, "%s", use->outcome.text);
    if (use->phase >= FLYT_MIGRATION_DONE && boss->deaf_count) {
        boss->deaf_count--;
        outcome = (flyt_outcome){FLYT_STATUS_UNAVAILABLE, (char *)"not now"};
    }
    flyt_call_reply(call, &outcome);
}

static void serve_driver(struct flyt_call *call, void *args)
{
    struct boss *boss = boss_of(call);
    const flyt_driver_args *driver = args;

    snprintf(boss->driver_version, sizeof boss->driver_version, "%.60s", driver->driver_version);
    boss->cuda_version = driver->cuda_version;
    flyt_call_reply(call, &(flyt_outcome){FLYT_STATUS_OK, (char *)""});
}

static const struct flyt_procedure procedures[] = {
    {FLYT_HELLO, "hello", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_hello_args, sizeof(flyt_hello_args),
     (xdrproc_t)xdr_flyt_hello_res, serve_hello},
    {FLYT_NODE_REGISTER, "register", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_register_args, sizeof(flyt_register_args),
     (xdrproc_t)xdr_flyt_register_res, serve_register},
    {FLYT_NODE_HEARTBEAT, "heartbeat", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_heartbeat_args, sizeof(flyt_heartbeat_args),
     (xdrproc_t)xdr_flyt_heartbeat_res, serve_heartbeat},
    {FLYT_NODE_EVENT, "event", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_event, sizeof(flyt_event),
     (xdrproc_t)xdr_flyt_outcome, serve_event},
    {FLYT_NODE_DRIVER, "driver", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_driver_args, sizeof(flyt_driver_args),
     (xdrproc_t)xdr_flyt_outcome, serve_driver},
    {FLYT_NODE_MIGRATION, "migration", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_migration_use, sizeof(flyt_migration_use),
     (xdrproc_t)xdr_flyt_outcome, serve_migration},
    {.serve = NULL},
};
static const struct flyt_program program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, procedures};

static void on_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct boss *boss = user;

    if (boss->peer == peer)
        boss->peer = NULL;
}

static void open_office(struct boss *boss)
{
    const struct flyt_door_config config = {.peer = {.event = boss->test->event,
                                                     .serves = &program,
                                                     .record_bytes_max = FLYT_CONTROL_RECORD_BYTES_MAX,
                                                     .user = boss,
                                                     .ended = on_ended},
                                            .peers_max = 4,
                                            .anonymous_max = 4,
                                            .anonymous_ms = 60000};
    struct flyt_error err;
    char url[FLYT_URL_TEXT_BYTES];

    snprintf(url, sizeof url, "%s", *boss->url ? boss->url : "tcp://127.0.0.1:0");
    if (flyt_listen(url, &err, &boss->listen_fd, boss->url))
        fail_msg("%s", err.text);
    assert_int_equal(flyt_door_new(boss->listen_fd, NULL, &config, &boss->door), 0);
}

static void close_office(struct boss *boss)
{
    boss->door = flyt_door_free(boss->door);
    boss->peer = NULL;
    close(boss->listen_fd);
}

/* The node and its connection, whose settings name the one manager. */
static void start_node(struct boss *boss)
{
    test_node_start(boss->test);
    assert_int_equal(flyt_node_manager_new(&boss->test->node, NULL, &boss->manager), 0);
    boss->test->node.hooks = (struct flyt_node_hooks){
        .user = boss->manager, .event = flyt_node_manager_event, .changed = flyt_node_manager_changed};
}

static void stop_node(struct boss *boss)
{
    boss->test->node.hooks = (struct flyt_node_hooks){0};
    boss->manager = flyt_node_manager_free(boss->manager);
    test_node_stop(boss->test);
}

static bool is_registered(struct test_node *test, void *user)
{
    struct boss *boss = user;

    return flyt_node_manager_is_registered(boss->manager) && boss->heartbeat_count;
}

static int set_up(void **state)
{
    struct boss *boss = calloc(1, sizeof *boss);

    boss->test = test_node_new();
    boss->epoch = 3;
    open_office(boss);
    boss->urls[0] = boss->url;
    boss->test->settings.managers = (struct flyt_strings){boss->urls, 1};
    start_node(boss);
    test_node_until(boss->test, is_registered, boss, "the registration");
    *state = boss;
    return 0;
}

static int tear_down(void **state)
{
    struct boss *boss = *state;

    stop_node(boss);
    close_office(boss);
    xdr_free((xdrproc_t)xdr_flyt_register_args, &boss->inventory);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &boss->figures);
    boss->test->settings.managers = (struct flyt_strings){0};
    test_node_free(boss->test);
    free(boss);
    return 0;
}

/* ---- orders ---- */

static void on_applied(void *user, int status, void *result)
{
    struct boss *boss = user;
    const flyt_apply_res *res = result;

    boss->has_outcome = true;
    boss->order_status = status ? (flyt_status)-1 : res->outcome.status;
    if (!status && res->uses.uses_len)
        boss->status = res->uses.uses_val[0].outcome.status;
}

static void on_outcome(void *user, int status, void *result)
{
    struct boss *boss = user;
    const flyt_outcome *outcome = result;

    boss->has_outcome = true;
    boss->status = status ? (flyt_status)-1 : outcome->status;
}

static void on_gpu(void *user, int status, void *result)
{
    struct boss *boss = user;
    const flyt_order_gpu_res *res = result;

    boss->has_outcome = true;
    boss->status = status ? (flyt_status)-1 : res->outcome.status;
    if (!status) {
        snprintf(boss->text, sizeof boss->text, "%s", res->outcome.text);
        boss->gpu = res->gpu;
    }
}

static void on_migration(void *user, int status, void *result)
{
    struct boss *boss = user;
    const flyt_order_migration_res *res = result;

    boss->has_outcome = true;
    boss->status = status ? (flyt_status)-1 : res->outcome.status;
    if (!status)
        boss->asked = res->use;
}

static bool has_outcome(struct test_node *test, void *user)
{
    return ((struct boss *)user)->has_outcome;
}

static void order(struct boss *boss, uint32_t procedure, xdrproc_t xdr_args, const void *args, xdrproc_t xdr_res,
                  size_t result_bytes, flyt_call_done_fn done)
{
    boss->has_outcome = false;
    boss->order_status = boss->status = (flyt_status)-2;
    assert_int_equal(flyt_peer_call(boss->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, procedure, xdr_args, args,
                                    xdr_res, result_bytes, 10000, done, boss),
                     0);
    test_node_until(boss->test, has_outcome, boss, "the order's outcome");
}

/* An allocation of four groups and 100 MiB on GPU 0. Parts are static. */
static flyt_allocation *wish(struct boss *boss, uint64_t revision)
{
    static u_int groups[] = {0, 1, 2, 3};
    static flyt_slot slot;
    static flyt_allocation allocation;

    slot = (flyt_slot){.gpu_uuid = boss->test->node.gpus.items[0].uuid,
                       .sm_count = 32,
                       .sm_groups = {4, groups},
                       .memory_bytes = 100 * MIB};
    allocation = (flyt_allocation){.id = 0x77,
                                   .vm_ip = (char *)"10.1.1.1",
                                   .tenant = (char *)"t",
                                   .state = FLYT_ALLOCATION_ACTIVE,
                                   .revision = revision,
                                   .generation = 1,
                                   .sessions_max = 4,
                                   .slots = {1, &slot}};
    return &allocation;
}

static flyt_status apply(struct boss *boss, uint64_t revision)
{
    const flyt_apply_args args = {.epoch = boss->epoch, .allocations = {1, wish(boss, revision)}};

    order(boss, FLYT_ORDER_APPLY, (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
          sizeof(flyt_apply_res), on_applied);
    return boss->order_status ? boss->order_status : boss->status;
}

static const struct test_wish ticket = {.id = 0x77, .vm_ip = "10.1.1.1", .generation = 1};

static bool has_session(struct test_node *test, void *user)
{
    const struct boss *boss = user;

    return boss->figures.sessions.sessions_len == 1 && boss->figures.uses.uses_len == 1 &&
           boss->figures.uses.uses_val[0].session_count == 1 &&
           boss->figures.uses.uses_val[0].slots.slots_val[0].memory_used_bytes == 5 * MIB;
}

static bool has_no_session(struct test_node *test, void *user)
{
    return ((struct boss *)user)->figures.sessions.sessions_len == 0;
}

/* First where the network leads, then this machine's socket, which every user may connect to. */
static void expect_data_urls(const struct boss *boss)
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
    struct boss *boss = *state;
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
    return *((const struct boss *)user)->driver_version != 0;
}

/* What its driver is, with each registration; software GPUs have none. */
static void test_tells_its_driver(void **state)
{
    struct boss *boss = *state;
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
    struct boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&ticket);
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
    order(boss, FLYT_ORDER_SESSION_KILL, (xdrproc_t)xdr_flyt_order_session_args, &unknown, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    assert_int_equal(boss->status, FLYT_STATUS_NOT_FOUND);
    order(boss, FLYT_ORDER_SESSION_KILL, (xdrproc_t)xdr_flyt_order_session_args, &old, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    assert_int_equal(boss->status, FLYT_STATUS_STALE);
    order(boss, FLYT_ORDER_SESSION_KILL, (xdrproc_t)xdr_flyt_order_session_args, &known, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    assert_int_equal(boss->status, FLYT_STATUS_OK);
    assert_string_equal(test_program_ask(test, &vm, NULL), "killed: an operator has ended this session");
    test_node_until(test, has_no_session, boss, "a heartbeat without it");
    close(vm.fd);
}

static void test_works_without_manager_and_tells_it_later(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    close_office(boss);
    unsigned before = boss->event_count, registered = boss->register_count;
    const struct flyt_credentials credentials = test_node_credentials(&ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    assert_int_equal(vm.status, FLYT_HANDSHAKE_OK);
    open_office(boss);
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
    assert_int_equal(apply(boss, 2), FLYT_STATUS_STALE);
    boss->epoch = 4;
    assert_int_equal(apply(boss, 2), FLYT_STATUS_OK);
    assert_int_equal(flyt_node_allocation_find(&test->node, 0x77)->now.state, FLYT_ALLOCATION_ACTIVE);
    /* Forgotten: it registers again. */
    registered = boss->register_count;
    boss->entitled = wish(boss, 2);
    boss->is_forgetful = true;
    while (boss->register_count == registered)
        test_node_run(test, 20);
    close(vm.fd);
    while (boss->figures.sessions.sessions_len)
        test_node_run(test, 20);
}

/* As the node keeps it over restarts. */
static uint64_t contact_ms(const struct boss *boss)
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
    struct boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    test->settings.fence_after_ms = FENCE_AFTER_MS;
    for (unsigned i = 0; i < 3; i++) { /* heartbeats are answered */
        ahead_ms += FENCE_AFTER_MS / 2;
        uint64_t begin_ms = boot_ms();
        while (contact_ms(boss) < begin_ms)
            test_node_run(test, 5);
        assert_string_equal(test_program_ask(test, &vm, "charge 0 1"), "0");
    }
    close_office(boss);
    ahead_ms += FENCE_AFTER_MS / 2;
    test_node_run(test, 500);
    assert_string_equal(test_program_ask(test, &vm, "charge 0 1"), "0");
    ahead_ms += FENCE_AFTER_MS / 2 + 1000;
    assert_string_equal(test_program_ask(test, &vm, NULL),
                        "killed: the node has lost its cluster manager for too long");
    while (test->node.allocations)
        test_node_run(test, 20);
    close(vm.fd);
    open_office(boss);
    unsigned registered = boss->register_count;
    while (boss->register_count == registered)
        test_node_run(test, 20);
    assert_int_equal(boss->inventory.allocations.allocations_len, 0);
}

/* Restarts do not put the end off. */
static void test_fences_itself_over_restarts(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;

    test->settings.fence_after_ms = FENCE_AFTER_MS;
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    uint64_t begin_ms = boot_ms();
    while (contact_ms(boss) < begin_ms) /* heartbeats are answered */
        test_node_run(test, 5);
    close_office(boss);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(test->node.allocations && !test->node.allocations->is_removed);
        stop_node(boss);
        ahead_ms += FENCE_AFTER_MS * 2 / 5;
        start_node(boss);
    }
    while (test->node.allocations && !test->node.allocations->is_removed)
        test_node_run(test, 20);
    open_office(boss);
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
    struct boss *boss = *state;
    uint64_t before_ms = contact_ms(boss);

    loop_writes = 0;
    while (contact_ms(boss) == before_ms)
        test_node_run(boss->test, 5);
    assert_int_equal(loop_writes, 0);
}

/* An answer says that the manager was there when its question was sent, not when a later one was. */
static void test_dates_contact_by_what_was_answered(void **state)
{
    struct boss *boss = *state;
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
    struct boss *boss = *state;

    assert_int_equal(apply(boss, UINT64_MAX), FLYT_STATUS_INVALID);
    assert_null(flyt_node_allocation_find(&boss->test->node, 0x77));
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    assert_int_equal(apply(boss, UINT64_MAX), FLYT_STATUS_INVALID);
    assert_int_equal(apply(boss, FLYT_NODE_REVISION_MAX + 1), FLYT_STATUS_INVALID);
    assert_int_equal(flyt_node_allocation_find(&boss->test->node, 0x77)->now.revision, 1);
    assert_int_equal(apply(boss, FLYT_NODE_REVISION_MAX), FLYT_STATUS_OK);
}

/* What an order has removed. */
static flyt_status take_away(struct boss *boss)
{
    u_quad_t id = 0x77;
    const flyt_apply_args args = {.epoch = boss->epoch, .removed = {1, &id}};

    order(boss, FLYT_ORDER_APPLY, (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
          sizeof(flyt_apply_res), on_applied);
    return boss->order_status;
}

static unsigned saved_allocations(const struct boss *boss)
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
    struct boss *boss = *state;
    struct test_node *test = boss->test;
    char part[512];

    snprintf(part, sizeof part, "%s/state.json.part", test->settings.state_dir);
    for (unsigned has_program = 0; has_program < 2; has_program++) {
        assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
        const struct flyt_credentials credentials = test_node_credentials(&ticket);
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
    struct boss *boss = *state;
    struct test_node *test = boss->test;
    char part[512];

    snprintf(part, sizeof part, "%s/state.json.part", test->settings.state_dir);
    close_office(boss);
    assert_int_equal(mkdir(part, 0700), 0);
    open_office(boss);
    boss->epoch = 4;
    unsigned registered = boss->register_count;
    while (!test->node.is_unsaved || boss->register_count == registered)
        test_node_run(test, 20);
    assert_int_equal(boss->written_epoch, 3);
    assert_int_equal(test->node.state.epoch, 4);
    for (unsigned i = 0; i < 2; i++) { /* nor when it has been tried again */
        assert_int_equal(apply(boss, 1), FLYT_STATUS_UNAVAILABLE);
        assert_false(flyt_node_manager_is_registered(boss->manager));
        test_node_run(test, FLYT_NODE_WRITE_AGAIN_MS + 500);
    }
    boss->epoch = 3;
    assert_int_equal(apply(boss, 1), FLYT_STATUS_STALE);
    boss->epoch = 4;
    assert_int_equal(rmdir(part), 0);
    while (!flyt_node_manager_is_registered(boss->manager))
        test_node_run(test, 20);
    assert_int_equal(boss->written_epoch, 4);
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
}

/* Who is connected to, and has come to lead anew meanwhile, has its epoch written before it gives orders. */
static void test_follows_who_leads_anew(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;

    boss->epoch = 4;
    unsigned registered = boss->register_count;
    boss->is_forgetful = true;
    while (boss->register_count == registered || !flyt_node_manager_is_registered(boss->manager))
        test_node_run(test, 20);
    assert_int_equal(written_epoch(boss), 4);
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
}

static void set_group_size(struct boss *boss, unsigned group_size)
{
    const flyt_order_gpu_args args = {boss->epoch, boss->test->node.gpus.items[0].uuid, group_size};

    order(boss, FLYT_ORDER_GPU_SET, (xdrproc_t)xdr_flyt_order_gpu_args, &args, (xdrproc_t)xdr_flyt_order_gpu_res,
          sizeof(flyt_order_gpu_res), on_gpu);
}

static void test_group_size(void **state)
{
    struct boss *boss = *state;

    set_group_size(boss, 3);
    assert_int_equal(boss->status, FLYT_STATUS_INVALID);
    set_group_size(boss, 2);
    assert_int_equal(boss->status, FLYT_STATUS_OK);
    assert_int_equal(boss->gpu.group_size, 2);
    assert_int_equal(boss->gpu.group_sms.group_sms_len, 66);
    assert_int_equal(boss->test->node.gpus.items[1].group_size, 8);
    /* It holds after a restart. */
    stop_node(boss);
    start_node(boss);
    boss->heartbeat_count = 0;
    test_node_until(boss->test, is_registered, boss, "the registration");
    assert_int_equal(boss->inventory.gpus.gpus_val[0].group_size, 2);
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    set_group_size(boss, 8);
    assert_int_equal(boss->status, FLYT_STATUS_IN_USE);
}

static flyt_status migrate(struct boss *boss, uint64_t epoch, uint64_t id, uint64_t revision, unsigned gpu)
{
    const flyt_order_migrate_args args = {
        .epoch = epoch, .migration_id = id, .allocation = *wish(boss, revision), .bounds = {.stop_ms = 60000}};

    args.allocation.slots.slots_val[0].gpu_uuid = boss->test->node.gpus.items[gpu].uuid;
    order(boss, FLYT_ORDER_MIGRATE, (xdrproc_t)xdr_flyt_order_migrate_args, &args, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    return boss->status;
}

static flyt_status ask_migration(struct boss *boss, uint64_t id, bool cancel)
{
    const flyt_order_migration_args args = {boss->epoch, id, cancel};

    order(boss, FLYT_ORDER_MIGRATION, (xdrproc_t)xdr_flyt_order_migration_args, &args,
          (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res), on_migration);
    return boss->status;
}

static bool is_told_copying(struct test_node *test, void *user)
{
    return ((struct boss *)user)->migration.phase == FLYT_MIGRATION_COPYING;
}

static bool is_told_more(struct test_node *test, void *user)
{
    const struct boss *boss = user;

    return boss->migration_count >= 3;
}

static bool is_told_end(struct test_node *test, void *user)
{
    const struct boss *boss = user;

    return boss->migration.phase >= FLYT_MIGRATION_DONE && !boss->deaf_count;
}

static bool is_heard(struct test_node *test, void *user)
{
    return test->node.ops->operations[FLYT_NODE_OPERATION_MIGRATION]->is_told;
}

/* What is told of one, by whom it may be ordered, and that its end is told until it was heard. */
static void test_a_migration(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;
    struct flyt_metrics *registry = flyt_metrics_new();
    struct flyt_node_metrics *metrics = flyt_node_metrics_new(registry);

    test->node.metrics = metrics;
    test->node.observe = flyt_node_metrics_observe;
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    assert_int_equal(ask_migration(boss, 5, false), FLYT_STATUS_NOT_FOUND);
    const struct flyt_credentials credentials = test_node_credentials(&ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);
    assert_string_equal(test_program_ask(test, &vm, "extent 1 0 4096"), "0");
    assert_string_equal(test_program_ask(test, &vm, "busy 1"), "0");
    assert_int_equal(migrate(boss, boss->epoch - 1, 5, 2, 1), FLYT_STATUS_STALE);
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_int_equal(migrate(boss, boss->epoch, 6, 3, 1), FLYT_STATUS_CONFLICT);
    test_node_until(test, is_told_copying, boss, "that it copies");
    assert_true(boss->migration.id == 5 && boss->migration.allocation_id == 0x77);
    assert_int_equal(boss->migration.session_count, 1);
    boss->migration_count = 0;
    test_node_until(test, is_told_more, boss, "it is told again, though nothing has changed");
    assert_int_equal(ask_migration(boss, 5, false), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_COPYING);
    boss->deaf_count = 2;
    assert_int_equal(ask_migration(boss, 5, true), FLYT_STATUS_OK);
    test_node_until(test, is_told_end, boss, "its end");
    test_node_until(test, is_heard, boss, "that it was heard");
    assert_int_equal(boss->migration.phase, FLYT_MIGRATION_FAILED);
    assert_int_equal(boss->migration.outcome.status, FLYT_STATUS_CONFLICT);
    assert_non_null(strstr(boss->text, "an operator"));
    unsigned before = boss->migration_count;
    test_node_run(test, 2 * FLYT_NODE_MIGRATION_REPORT_MS + 500);
    assert_int_equal(boss->migration_count, before);
    assert_int_equal(ask_migration(boss, 5, true), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_FAILED);
    close(vm.fd);
    while (flyt_node_allocation_find(&test->node, 0x77)->session_count)
        test_node_run(test, 20);
    /* One that is done; another manager hears of it, too. */
    assert_int_equal(migrate(boss, boss->epoch, 7, 3, 1), FLYT_STATUS_OK);
    test_node_until(test, is_heard, boss, "that it was heard");
    assert_int_equal(boss->migration.phase, FLYT_MIGRATION_DONE);
    assert_string_equal(boss->text, "");
    boss->migration_count = 0;
    boss->is_forgetful = true;
    while (boss->migration_count < 2)
        test_node_run(test, 20);
    flyt_node_metrics_refresh(metrics, &test->node);
    flyt_node_metrics_refresh(metrics, &test->node); /* each is counted once */
    char *text = flyt_metrics_text(registry);
    assert_non_null(strstr(text, "flyt_node_migrations_total{outcome=\"done\"} 1\n"));
    assert_non_null(strstr(text, "flyt_node_migrations_total{outcome=\"failed\"} 1\n"));
    assert_non_null(strstr(text, "flyt_node_migration_standstill_seconds_count 1\n"));
    assert_non_null(strstr(text, "flyt_sessions_moved_total 0\n"));
    free(text);
    test->node.observe = NULL;
    test->node.metrics = flyt_node_metrics_free(metrics);
    flyt_metrics_free(registry);
}

/* ---- to another node ---- */

static flyt_status send_away(struct boss *boss, struct test_far *far, uint64_t epoch)
{
    const struct test_far_wish wish = {.stream_count = 1, .stop_ms = 60000};
    char *url;
    flyt_order_send_args args = test_far_args(far, &wish, &url);

    args.epoch = epoch;
    args.allocation_id = 0x77;
    order(boss, FLYT_ORDER_SEND, (xdrproc_t)xdr_flyt_order_send_args, &args, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    return boss->status;
}

static flyt_status switch_over(struct boss *boss, uint64_t epoch, uint64_t id)
{
    const flyt_order_switch_args args = {epoch, id, 1};

    order(boss, FLYT_ORDER_SWITCH, (xdrproc_t)xdr_flyt_order_switch_args, &args,
          (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res), on_migration);
    return boss->status;
}

static flyt_status send_back(struct boss *boss, uint64_t epoch, uint64_t id)
{
    const flyt_order_send_back_args args = {epoch, id, (char *)"nobody came"};

    order(boss, FLYT_ORDER_SEND_BACK, (xdrproc_t)xdr_flyt_order_send_back_args, &args, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    return boss->status;
}

static bool is_told_phase(struct test_node *test, void *user)
{
    struct boss *boss = user;

    return boss->migration.phase == boss->awaited_phase;
}

static void until_told(struct boss *boss, flyt_migration_phase phase)
{
    boss->awaited_phase = phase;
    test_node_until(boss->test, is_told_phase, boss, "that this phase is told");
}

static struct test_program begin_program(struct test_node *test)
{
    const struct flyt_credentials credentials = test_node_credentials(&ticket);
    struct test_program vm = test_node_connect(test, &credentials, NULL, false);

    assert_string_equal(test_program_ask(test, &vm, "extent 1 0 4096"), "0");
    assert_string_equal(test_program_ask(test, &vm, "write 1 4711"), "0");
    return vm;
}

/* All orders of the node that programs leave, and what it tells. */
static void test_to_another_node(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;
    struct test_far far;

    test_far_open(&far, test);
    assert_int_equal(send_away(boss, &far, boss->epoch), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(send_back(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    /* One within the node is another order's. */
    assert_int_equal(migrate(boss, boss->epoch, 5, 2, 1), FLYT_STATUS_OK);
    assert_int_equal(switch_over(boss, boss->epoch, 5), FLYT_STATUS_NOT_FOUND);
    assert_int_equal(send_back(boss, boss->epoch, 5), FLYT_STATUS_NOT_FOUND);
    until_told(boss, FLYT_MIGRATION_DONE);
    struct test_program vm = begin_program(test);
    assert_int_equal(send_away(boss, &far, boss->epoch - 1), FLYT_STATUS_STALE);
    assert_int_equal(send_away(boss, &far, boss->epoch), FLYT_STATUS_OK);
    test_far_take(&far, &vm);
    until_told(boss, FLYT_MIGRATION_ARRIVED);
    assert_true(boss->migration.id == TEST_MIGRATION_ID && boss->migration.allocation_id == 0x77);
    assert_int_equal(boss->migration.session_count, 1);
    assert_int_equal(switch_over(boss, boss->epoch - 1, TEST_MIGRATION_ID), FLYT_STATUS_STALE);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_SWITCHING);
    assert_string_equal(test_program_ask(test, &vm, NULL), "moved for ever");
    close(vm.fd);
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, true), FLYT_STATUS_CONFLICT);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_SWITCHING);
    test_node_until(test, has_no_session, boss, "a heartbeat without the session");
    test_node_remove_now(test, 0x77);
    until_told(boss, FLYT_MIGRATION_DONE);
    assert_true(boss->migration.standstill_us > 0);
    test_far_close(&far);
}

/* The switch comes to nothing. */
static void test_from_another_node_again(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;
    struct test_far far;

    test_far_open(&far, test);
    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    struct test_program vm = begin_program(test);
    assert_int_equal(send_away(boss, &far, boss->epoch), FLYT_STATUS_OK);
    test_far_take(&far, &vm);
    until_told(boss, FLYT_MIGRATION_ARRIVED);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_OK);
    assert_string_equal(test_program_ask(test, &vm, NULL), "moved for ever");
    close(vm.fd);
    assert_int_equal(send_back(boss, boss->epoch - 1, TEST_MIGRATION_ID), FLYT_STATUS_STALE);
    assert_int_equal(send_back(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_OK);
    test_node_come_back(test, &ticket, &vm);
    assert_string_equal(test_program_ask(test, &vm, "go_on"), "0");
    until_told(boss, FLYT_MIGRATION_FAILED);
    assert_non_null(strstr(boss->text, "nobody came"));
    assert_string_equal(test_program_ask(test, &vm, "read 1"), "4711");
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_CONFLICT);
    close(vm.fd);
    while (flyt_node_allocation_find(&test->node, 0x77)->session_count)
        test_node_run(test, 20);
    test_far_close(&far);
}

static flyt_status receive(struct boss *boss, uint64_t epoch)
{
    flyt_order_receive_args args = {.epoch = epoch, .migration_id = TEST_MIGRATION_ID, .allocation = *wish(boss, 1)};

    memset(args.secret, 7, sizeof args.secret);
    order(boss, FLYT_ORDER_RECEIVE, (xdrproc_t)xdr_flyt_order_receive_args, &args, (xdrproc_t)xdr_flyt_outcome,
          sizeof(flyt_outcome), on_outcome);
    return boss->status;
}

static bool has_registered_again(struct test_node *test, void *user)
{
    const struct boss *boss = user;

    return boss->register_count >= 2 && flyt_node_manager_is_registered(boss->manager);
}

static bool is_told_of(struct test_node *test, void *user)
{
    return ((const struct boss *)user)->figures.uses.uses_len == 1;
}

/* Before SWITCH it is no orphan to a cluster manager that does not know it, nor told of. */
static void test_from_another_node(void **state)
{
    struct boss *boss = *state;
    struct test_node *test = boss->test;

    assert_int_equal(receive(boss, boss->epoch - 1), FLYT_STATUS_STALE);
    assert_int_equal(receive(boss, boss->epoch), FLYT_STATUS_OK);
    until_told(boss, FLYT_MIGRATION_PREPARING);
    assert_true(boss->migration.id == TEST_MIGRATION_ID && boss->migration.allocation_id == 0x77);
    boss->is_forgetful = true;
    test_node_until(test, has_registered_again, boss, "another registration");
    assert_int_equal(boss->inventory.allocations.allocations_len, 0);
    const struct flyt_node_allocation *allocation = flyt_node_allocation_find(&test->node, 0x77);
    assert_int_equal(allocation->now.state, FLYT_ALLOCATION_ACTIVE);
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, false), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_PREPARING);
    assert_int_equal(switch_over(boss, boss->epoch - 1, TEST_MIGRATION_ID), FLYT_STATUS_STALE);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_CONFLICT); /* one is wanted */
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, true), FLYT_STATUS_OK);
    boss->deaf_count = 1; /* it is told once more */
    until_told(boss, FLYT_MIGRATION_FAILED);
    assert_non_null(strstr(boss->text, "the migration was ended"));
    assert_null(flyt_node_allocation_find(&test->node, 0x77));
    assert_int_equal(ask_migration(boss, TEST_MIGRATION_ID, true), FLYT_STATUS_OK);
    assert_int_equal(boss->asked.phase, FLYT_MIGRATION_FAILED);
    assert_int_equal(receive(boss, boss->epoch), FLYT_STATUS_CONFLICT);
    assert_int_equal(switch_over(boss, boss->epoch, TEST_MIGRATION_ID), FLYT_STATUS_CONFLICT);
    /* Without programs it is done at once. */
    flyt_node_receive_find(&test->node, TEST_MIGRATION_ID)->op.id = 1;
    assert_int_equal(receive(boss, boss->epoch), FLYT_STATUS_OK);
    const flyt_order_switch_args none = {boss->epoch, TEST_MIGRATION_ID, 0};
    order(boss, FLYT_ORDER_SWITCH, (xdrproc_t)xdr_flyt_order_switch_args, &none,
          (xdrproc_t)xdr_flyt_order_migration_res, sizeof(flyt_order_migration_res), on_migration);
    assert_int_equal(boss->status, FLYT_STATUS_OK);
    until_told(boss, FLYT_MIGRATION_DONE);
    test_node_until(test, is_told_of, boss, "the allocation in a heartbeat");
}

static void test_metrics(void **state)
{
    struct boss *boss = *state;
    struct flyt_metrics *registry = flyt_metrics_new();
    struct flyt_node_metrics *metrics = flyt_node_metrics_new(registry);

    assert_int_equal(apply(boss, 1), FLYT_STATUS_OK);
    const struct flyt_credentials credentials = test_node_credentials(&ticket);
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
    test_node_until(boss->test, has_no_session, boss, "a heartbeat without the session");
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
        cmocka_unit_test_setup_teardown(test_inventory, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_tells_its_driver, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_orders_and_figures, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_works_without_manager_and_tells_it_later, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fences_itself, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_fences_itself_over_restarts, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_keeps_contact_beside_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_dates_contact_by_what_was_answered, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_says_nothing_that_is_not_saved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_revisions_that_cannot_be, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_follows_nobody_who_is_not_saved, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_follows_who_leads_anew, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_group_size, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_migration, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_to_another_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_from_another_node_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_from_another_node, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_metrics, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
