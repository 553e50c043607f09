/* The uplink: finds the leader among several managers, follows it, comes back after every kind of end. */
#include "control/base/test_door.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "control/base/uplink.h"

/* A cluster manager that only says HELLO. */
struct manager {
    struct test_door door;
    flyt_status status;
    bool is_leader;
    bool is_mute;
    char *leader; /* what it says of the leader; NULL: nothing */
    unsigned hello_count, accepted_count;
    unsigned char instance[FLYT_INSTANCE_BYTES];
    struct flyt_call *unanswered;
};

struct fixture {
    sd_event *event;
    struct manager managers[3];
    char *urls[4];
    struct flyt_strings list;
    struct flyt_uplink *uplink;
    unsigned up_count, down_count, order_count;
    uint64_t epoch;
};

static void serve_hello(struct flyt_call *call, void *args)
{
    const flyt_hello_args *hello = args;
    struct manager *manager = flyt_peer_user(flyt_call_peer(call));
    flyt_hello_res res = {.outcome = {.status = manager->status, .text = (char *)"as the test says"},
                          .build = (char *)"test",
                          .epoch = manager->is_leader || manager->leader ? 7 : 0,
                          .is_leader = manager->is_leader};
    manager->hello_count++;
    manager->door.side.peer = flyt_call_peer(call);
    assert_int_equal(hello->kind, FLYT_PEER_NODE);
    assert_string_equal(hello->name, "node-1");
    memcpy(manager->instance, hello->instance, sizeof manager->instance);
    if (manager->is_mute) {
        manager->unanswered = call;
        return;
    }
    res.leaders.leaders_len = manager->leader != NULL;
    res.leaders.leaders_val = &manager->leader;
    flyt_call_reply(call, &res);
}

static const struct flyt_procedure hello_procedures[] = {
    {FLYT_HELLO, "hello", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_hello_args, sizeof(flyt_hello_args),
     (xdrproc_t)xdr_flyt_hello_res, serve_hello},
    {.serve = NULL},
};
static const struct flyt_program hello_program = {FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, hello_procedures};

static void serve_leader(struct flyt_call *call, void *args)
{
    const flyt_leader_args *leader = args;
    struct fixture *f = flyt_uplink_user(call);
    flyt_outcome outcome = {.text = (char *)""};
    f->order_count++;
    flyt_uplink_follow(f->uplink, leader->leaders.leaders_val, leader->leaders.leaders_len);
    flyt_call_reply(call, &outcome);
}

static const struct flyt_procedure order_procedures[] = {
    {FLYT_ORDER_LEADER, "order_leader", FLYT_ROLE_ANY, (xdrproc_t)xdr_flyt_leader_args, sizeof(flyt_leader_args),
     (xdrproc_t)xdr_flyt_outcome, serve_leader},
    {.serve = NULL},
};
static const struct flyt_program order_program = {FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, order_procedures};

static void up(void *user, uint64_t epoch)
{
    struct fixture *f = user;
    f->up_count++;
    f->epoch = epoch;
}

static void down(void *user)
{
    ((struct fixture *)user)->down_count++;
}

static void manager_ended(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct manager *manager = user;
    if (manager->door.side.peer == peer)
        manager->door.side.peer = NULL;
}

static void manager_ready(struct flyt_peer *peer, void *user)
{
    ((struct manager *)user)->accepted_count++;
}

static void open_manager(struct fixture *f, unsigned i)
{
    struct manager *manager = &f->managers[i];
    test_door_init(&manager->door, f->event, &hello_program);
    manager->door.config.peer.user = manager;
    manager->door.config.peer.ready = manager_ready;
    manager->door.config.peer.ended = manager_ended;
    manager->door.config.peer.measured = NULL;
    test_door_open(&manager->door, f->urls[i] ? f->urls[i] : "tcp://127.0.0.1:0", NULL);
    free(f->urls[i]);
    f->urls[i] = strdup(manager->door.url);
}

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    if (!f || sd_event_new(&f->event) < 0)
        return -1;
    for (unsigned i = 0; i < 3; i++)
        open_manager(f, i);
    f->list = (struct flyt_strings){.items = f->urls, .count = 3};
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    assert_null(flyt_uplink_free(f->uplink));
    for (unsigned i = 0; i < 3; i++) {
        if (f->managers[i].unanswered)
            flyt_call_fail(f->managers[i].unanswered);
        test_door_close(&f->managers[i].door);
        free(f->urls[i]);
    }
    sd_event_unref(f->event);
    free(f);
    return 0;
}

static void begin(struct fixture *f)
{
    const struct flyt_uplink_config config = {.event = f->event,
                                              .managers = &f->list,
                                              .kind = FLYT_PEER_NODE,
                                              .name = "node-1",
                                              .orders = &order_program,
                                              .user = f,
                                              .up = up,
                                              .down = down};
    assert_int_equal(flyt_uplink_new(&config, &f->uplink), 0);
    assert_false(flyt_uplink_is_up(f->uplink));
}

static void goes_where_the_leader_is(void **state)
{
    struct fixture *f = *state;
    f->managers[0].leader = f->urls[2];
    f->managers[2].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count);
    assert_true(flyt_uplink_is_up(f->uplink));
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[2]);
    assert_string_equal(flyt_uplink_cause(f->uplink), "");
    assert_int_equal(f->epoch, 7);
    assert_int_equal(f->managers[0].hello_count, 1);
    assert_int_equal(f->managers[1].hello_count, 0);
}

static void tries_all_until_one_leads(void **state)
{
    struct fixture *f = *state;
    f->managers[0].status = FLYT_STATUS_DENIED;
    begin(f);
    test_run_until(f->event, f->managers[0].hello_count >= 2 && f->managers[1].hello_count >= 1);
    assert_int_equal(f->up_count, 0);
    assert_true(*flyt_uplink_cause(f->uplink));
    f->managers[1].is_leader = true;
    test_run_until(f->event, f->up_count);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[1]);
}

/* Both say that they lead, and one is of no use: the other one is asked, not the same again. */
static void leaves_for_another_one(void **state)
{
    struct fixture *f = *state;
    f->list.count = 2;
    f->managers[0].is_leader = f->managers[1].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count == 1);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[0]);
    flyt_uplink_leave(f->uplink, "it does not answer in time");
    assert_false(flyt_uplink_is_up(f->uplink));
    assert_int_equal(f->down_count, 1);
    assert_string_equal(flyt_uplink_cause(f->uplink), "it does not answer in time");
    test_run_until(f->event, f->up_count == 2);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[1]);
    assert_string_equal(flyt_uplink_cause(f->uplink), "");
    assert_int_equal(f->managers[0].hello_count, 1);
}

static void comes_back_after_the_leader_was_killed(void **state)
{
    struct fixture *f = *state;
    f->list.count = 1;
    f->managers[0].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count == 1);
    test_door_close(&f->managers[0].door);
    test_run_until(f->event, f->down_count == 1);
    assert_false(flyt_uplink_is_up(f->uplink));
    struct test_outcomes outcomes = {0};
    flyt_vm_report_args args = {0};
    assert_int_equal(flyt_uplink_call(f->uplink, FLYT_VM_REPORT, (xdrproc_t)xdr_flyt_vm_report_args, &args,
                                      (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), 1000, test_done_outcome,
                                      &outcomes),
                     -ENOTCONN);
    unsigned char instance[FLYT_INSTANCE_BYTES];
    memcpy(instance, f->managers[0].instance, sizeof instance);
    open_manager(f, 0);
    test_run_until(f->event, f->up_count == 2);
    assert_int_equal(flyt_uplink_connect_count(f->uplink), 2);
    assert_memory_equal(instance, f->managers[0].instance, sizeof instance); /* the same holder as before */
}

static void follows_an_order(void **state)
{
    struct fixture *f = *state;
    f->managers[0].is_leader = f->managers[1].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count == 1);
    struct test_outcomes outcomes = {0};
    flyt_leader_args args = {.leaders = {1, &f->urls[1]}};
    assert_int_equal(flyt_peer_call(f->managers[0].door.side.peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION,
                                    FLYT_ORDER_LEADER, (xdrproc_t)xdr_flyt_leader_args, &args,
                                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), 10000, test_done_outcome,
                                    &outcomes),
                     0);
    test_run_until(f->event, f->up_count == 2);
    assert_int_equal(f->down_count, 1);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[1]);
    assert_int_equal(f->order_count, 1);
}

/* Manager i tells its peer who leads. */
static void announce(struct fixture *f, unsigned i, unsigned leader, struct test_outcomes *outcomes)
{
    flyt_leader_args args = {.leaders = {1, &f->urls[leader]}};
    assert_int_equal(flyt_peer_call(f->managers[i].door.side.peer, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION,
                                    FLYT_ORDER_LEADER, (xdrproc_t)xdr_flyt_leader_args, &args,
                                    (xdrproc_t)xdr_flyt_outcome, sizeof(flyt_outcome), 10000, test_done_outcome,
                                    outcomes),
                     0);
}

/* The leader is gone, and its successor does not know it yet: that one's connection is used when it leads. */
static void waits_where_somebody_answers(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};
    f->list.count = 2;
    test_door_close(&f->managers[0].door);
    f->managers[1].leader = f->urls[0];
    begin(f);
    test_run_until(f->event, f->managers[1].hello_count == 3);
    assert_int_equal(f->managers[1].accepted_count, 1);
    assert_false(flyt_uplink_is_up(f->uplink));
    assert_true(*flyt_uplink_cause(f->uplink));
    f->managers[1].is_leader = true;
    announce(f, 1, 1, &outcomes);
    test_run_until(f->event, f->up_count);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[1]);
    assert_int_equal(f->managers[1].accepted_count, 1);
    assert_int_equal(f->down_count, 0);
    test_run_until(f->event, outcomes.good_count);
}

/* A manager that waits too says which of the others leads by now. */
static void leaves_where_it_waits_for_the_leader(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};
    test_door_close(&f->managers[1].door);
    test_door_close(&f->managers[2].door);
    begin(f);
    test_run_until(f->event, f->managers[0].hello_count == 1);
    open_manager(f, 2);
    f->managers[2].is_leader = true;
    announce(f, 0, 2, &outcomes);
    test_run_until(f->event, f->up_count);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[2]);
    test_run_until(f->event, !f->managers[0].door.side.peer);
    assert_int_equal(f->managers[0].accepted_count, 1);
}

static void the_kept_one_may_end(void **state)
{
    struct fixture *f = *state;
    test_door_close(&f->managers[1].door);
    f->list.count = 2;
    begin(f);
    test_run_until(f->event, f->managers[0].hello_count == 1);
    test_door_close(&f->managers[0].door);
    test_run_once(f->event);
    open_manager(f, 0);
    f->managers[0].is_leader = true;
    test_run_until(f->event, f->up_count);
    assert_int_equal(f->managers[0].accepted_count, 2);
}

/* It lost its lease and took it again: everything is said anew, on the same connection. */
static void comes_back_to_who_leads_again(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};
    f->managers[0].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count == 1);
    announce(f, 0, 0, &outcomes);
    test_run_until(f->event, f->up_count == 2);
    assert_int_equal(f->down_count, 1);
    assert_int_equal(f->managers[0].accepted_count, 1);
    assert_int_equal(f->managers[1].accepted_count, 0);
}

static void one_round_tries_each_once(void **state)
{
    struct fixture *f = *state;
    test_door_close(&f->managers[0].door);
    f->managers[1].status = FLYT_STATUS_DENIED;
    f->managers[2].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count);
    assert_int_equal(f->managers[1].hello_count, 1);
    assert_int_equal(f->managers[2].hello_count, 1);
}

/* Only who knows a leader speaks for the others. */
static void who_knows_nothing_is_not_believed(void **state)
{
    struct fixture *f = *state;
    f->managers[2].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[2]);
    assert_int_equal(f->managers[0].hello_count, 1);
    assert_int_equal(f->managers[1].hello_count, 1);
}

static void a_mute_manager_is_left(void **state)
{
    struct fixture *f = *state;
    f->managers[0].is_mute = true;
    f->managers[1].is_leader = true;
    begin(f);
    test_run_until(f->event, f->up_count);
    assert_string_equal(flyt_uplink_address(f->uplink), f->urls[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(goes_where_the_leader_is, set_up, tear_down),
        cmocka_unit_test_setup_teardown(tries_all_until_one_leads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_for_another_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(comes_back_after_the_leader_was_killed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(follows_an_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_mute_manager_is_left, set_up, tear_down),
        cmocka_unit_test_setup_teardown(waits_where_somebody_answers, set_up, tear_down),
        cmocka_unit_test_setup_teardown(leaves_where_it_waits_for_the_leader, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_kept_one_may_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(comes_back_to_who_leads_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(one_round_tries_each_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(who_knows_nothing_is_not_believed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
