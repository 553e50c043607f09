#include "control/node/test/test_boss.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "rpc/transport/endpoint/listen.h"

static struct test_boss *boss_of(struct flyt_call *call)
{
    struct test_boss *boss = flyt_peer_user(flyt_call_peer(call));

    boss->peer = flyt_call_peer(call);
    return boss;
}

static void serve_hello(struct flyt_call *call, void *args)
{
    struct test_boss *boss = boss_of(call);
    const flyt_hello_args *hello = args;
    const flyt_hello_res res = {
        .outcome = {FLYT_STATUS_OK, (char *)""}, .build = (char *)"boss", .epoch = boss->epoch, .is_leader = TRUE};

    assert_int_equal(hello->kind, FLYT_PEER_NODE);
    assert_string_equal(hello->name, "testnode");
    flyt_call_reply(call, &res);
}

uint64_t test_boss_written_epoch(const struct test_boss *boss)
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

/* Keeps what came: the argument is emptied, so that it is not freed. */
static void serve_register(struct flyt_call *call, void *args)
{
    struct test_boss *boss = boss_of(call);
    flyt_register_res res = {.outcome = {FLYT_STATUS_OK, (char *)""},
                             .epoch = boss->epoch,
                             .heartbeat_ms = 50,
                             .client_lost_s = 33,
                             .allocations = {boss->entitled != NULL, boss->entitled}};

    xdr_free((xdrproc_t)xdr_flyt_register_args, &boss->inventory);
    boss->inventory = *(flyt_register_args *)args;
    memset(args, 0, sizeof boss->inventory);
    boss->written_epoch = test_boss_written_epoch(boss);
    boss->register_count++;
    boss->is_forgetful = false;
    if (boss->is_slow && !boss->registration)
        boss->registration = call;
    else
        flyt_call_reply(call, &res);
}

static void serve_heartbeat(struct flyt_call *call, void *args)
{
    struct test_boss *boss = boss_of(call);
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
    struct test_boss *boss = boss_of(call);
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
    struct test_boss *boss = boss_of(call);
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
    struct test_boss *boss = boss_of(call);
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
    struct test_boss *boss = user;

    if (boss->peer == peer)
        boss->peer = NULL;
}

void test_boss_open(struct test_boss *boss)
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

void test_boss_close(struct test_boss *boss)
{
    boss->door = flyt_door_free(boss->door);
    boss->peer = NULL;
    close(boss->listen_fd);
}

void test_boss_start_node(struct test_boss *boss)
{
    test_node_start(boss->test);
    assert_int_equal(flyt_node_manager_new(&boss->test->node, NULL, &boss->manager), 0);
    boss->test->node.hooks = (struct flyt_node_hooks){
        .user = boss->manager, .event = flyt_node_manager_event, .changed = flyt_node_manager_changed};
}

void test_boss_stop_node(struct test_boss *boss)
{
    boss->test->node.hooks = (struct flyt_node_hooks){0};
    boss->manager = flyt_node_manager_free(boss->manager);
    test_node_stop(boss->test);
}

bool test_boss_is_registered(struct test_node *test, void *user)
{
    struct test_boss *boss = user;

    return flyt_node_manager_is_registered(boss->manager) && boss->heartbeat_count;
}

int test_boss_set_up(void **state)
{
    struct test_boss *boss = calloc(1, sizeof *boss);

    boss->test = test_node_new();
    boss->epoch = 3;
    test_boss_open(boss);
    boss->urls[0] = boss->url;
    boss->test->settings.managers = (struct flyt_strings){boss->urls, 1};
    test_boss_start_node(boss);
    test_node_until(boss->test, test_boss_is_registered, boss, "the registration");
    *state = boss;
    return 0;
}

int test_boss_tear_down(void **state)
{
    struct test_boss *boss = *state;

    test_boss_stop_node(boss);
    test_boss_close(boss);
    xdr_free((xdrproc_t)xdr_flyt_register_args, &boss->inventory);
    xdr_free((xdrproc_t)xdr_flyt_heartbeat_args, &boss->figures);
    boss->test->settings.managers = (struct flyt_strings){0};
    test_node_free(boss->test);
    free(boss);
    return 0;
}

/* ---- orders ---- */

void test_boss_on_applied(void *user, int status, void *result)
{
    struct test_boss *boss = user;
    const flyt_apply_res *res = result;

    boss->has_outcome = true;
    boss->order_status = status ? (flyt_status)-1 : res->outcome.status;
    if (!status && res->uses.uses_len)
        boss->status = res->uses.uses_val[0].outcome.status;
}

void test_boss_on_outcome(void *user, int status, void *result)
{
    struct test_boss *boss = user;
    const flyt_outcome *outcome = result;

    boss->has_outcome = true;
    boss->status = status ? (flyt_status)-1 : outcome->status;
}

void test_boss_on_gpu(void *user, int status, void *result)
{
    struct test_boss *boss = user;
    const flyt_order_gpu_res *res = result;

    boss->has_outcome = true;
    boss->status = status ? (flyt_status)-1 : res->outcome.status;
    if (!status) {
        snprintf(boss->text, sizeof boss->text, "%s", res->outcome.text);
        boss->gpu = res->gpu;
    }
}

void test_boss_on_migration(void *user, int status, void *result)
{
    struct test_boss *boss = user;
    const flyt_order_migration_res *res = result;

    boss->has_outcome = true;
    boss->status = status ? (flyt_status)-1 : res->outcome.status;
    if (!status)
        boss->asked = res->use;
}

static bool has_outcome(struct test_node *test, void *user)
{
    return ((struct test_boss *)user)->has_outcome;
}

void test_boss_order(struct test_boss *boss, uint32_t procedure, xdrproc_t xdr_args, const void *args,
                     xdrproc_t xdr_res, size_t result_bytes, flyt_call_done_fn done)
{
    boss->has_outcome = false;
    boss->order_status = boss->status = (flyt_status)-2;
    assert_int_equal(flyt_peer_call(boss->peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, procedure, xdr_args, args,
                                    xdr_res, result_bytes, 10000, done, boss),
                     0);
    test_node_until(boss->test, has_outcome, boss, "the order's outcome");
}

flyt_allocation *test_boss_wish(struct test_boss *boss, uint64_t revision)
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

flyt_status test_boss_apply(struct test_boss *boss, uint64_t revision)
{
    const flyt_apply_args args = {.epoch = boss->epoch, .allocations = {1, test_boss_wish(boss, revision)}};

    test_boss_order(boss, FLYT_ORDER_APPLY, (xdrproc_t)xdr_flyt_apply_args, &args, (xdrproc_t)xdr_flyt_apply_res,
                    sizeof(flyt_apply_res), test_boss_on_applied);
    return boss->order_status ? boss->order_status : boss->status;
}

const struct test_wish test_boss_ticket = {.id = 0x77, .vm_ip = "10.1.1.1", .generation = 1};

bool test_boss_has_no_session(struct test_node *test, void *user)
{
    return ((struct test_boss *)user)->figures.sessions.sessions_len == 0;
}
