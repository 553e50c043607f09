/* Peers in clear, over unix sockets and tcp: calls both ways, their ends, refusals, bounds, broken peers. */
#include "control/base/test_door.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "rpc/base/clock.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/xdr_buffer.h"

struct fixture {
    sd_event *event;
    struct test_door door;
    struct test_side client;
    char folder[32];
    char unix_url[64];
};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    if (!f || sd_event_new(&f->event) < 0)
        return -1;
    snprintf(f->folder, sizeof f->folder, "/tmp/flyt-peer-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    snprintf(f->unix_url, sizeof f->unix_url, "unix://%s/socket", f->folder);
    test_door_init(&f->door, f->event, &test_program);
    test_side_init(&f->client, f->event, &test_program);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;

    flyt_peer_close(f->client.peer);
    test_door_close(&f->door);
    rmdir(f->folder);
    sd_event_unref(f->event);
    free(f);
    return 0;
}

/* A connected pair: f->client.peer and f->door.side.peer. */
static void connect_to(struct fixture *f, const char *url)
{
    struct flyt_peer *peer;
    struct flyt_error err = {0};
    unsigned before = f->door.side.ready_count, own_before = f->client.ready_count;

    if (!f->door.door)
        test_door_open(&f->door, url, NULL);
    if (flyt_peer_connect(f->door.url, NULL, &f->client.config, 0, &err, &peer))
        fail_msg("%s", err.text);
    test_run_until(f->event, f->client.ready_count > own_before && f->door.side.ready_count > before);
    assert_ptr_equal(f->client.peer, peer);
}

/* ---- calls ---- */

static void check_both_ways(struct fixture *f)
{
    struct test_outcomes forth = {0}, back = {0};

    assert_int_equal(test_call(f->client.peer, TEST_ECHO, 7, 60000, &forth), 0);
    assert_int_equal(test_call(f->door.side.peer, TEST_ECHO, 9, 60000, &back), 0);
    assert_int_equal(forth.done_count + back.done_count, 0);
    test_run_until(f->event, forth.done_count && back.done_count);
    assert_int_equal(forth.good_count, 1);
    assert_int_equal(forth.last_sequence, 7);
    assert_int_equal(back.good_count, 1);
    assert_int_equal(back.last_sequence, 9);
    assert_int_equal(f->client.measured_count, 2);
    assert_int_equal(f->client.failed_count, 0);
}

static void test_calls_both_ways_over_unix(void **state)
{
    struct fixture *f = *state;
    char address[64];

    connect_to(f, f->unix_url);
    const struct flyt_identity *identity = flyt_peer_identity(f->door.side.peer);
    snprintf(address, sizeof address, "unix uid=%u pid=%d", getuid(), getpid());
    assert_string_equal(identity->address, address);
    assert_int_equal(identity->uid, getuid());
    assert_int_equal(identity->pid, getpid());
    assert_int_equal(identity->role, FLYT_ROLE_OPERATOR);
    assert_int_equal(flyt_peer_identity(f->client.peer)->role, FLYT_ROLE_MANAGER);
    assert_string_equal(f->door.asked.address, address);
    check_both_ways(f);
}

static void test_calls_both_ways_over_tcp(void **state)
{
    struct fixture *f = *state;

    connect_to(f, "tcp://127.0.0.1:0");
    assert_int_equal(flyt_peer_identity(f->door.side.peer)->role, FLYT_ROLE_ANONYMOUS);
    assert_memory_equal(flyt_peer_identity(f->door.side.peer)->address, "127.0.0.1:", 10);
    check_both_ways(f);
}

static void test_calls_over_ipv6_and_a_name(void **state)
{
    struct fixture *f = *state;
    struct flyt_peer *peer;
    struct flyt_error err;
    char url[64];

    test_door_open(&f->door, "tcp://:0", NULL);
    snprintf(url, sizeof url, "tcp://localhost%s", strrchr(f->door.url, ':'));
    assert_int_equal(flyt_peer_connect(url, NULL, &f->client.config, 0, &err, &peer), 0);
    test_run_until(f->event, f->client.ready_count && f->door.side.ready_count);
    check_both_ways(f);
}

static void test_calls_before_ready_wait(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};
    struct flyt_peer *peer;
    struct flyt_error err;

    test_door_open(&f->door, f->unix_url, NULL);
    assert_int_equal(flyt_peer_connect(f->door.url, NULL, &f->client.config, 0, &err, &peer), 0);
    assert_int_equal(test_call(peer, TEST_NOTE, 1, 0, NULL), 0);
    assert_int_equal(test_call(peer, TEST_ECHO, 2, 0, &outcomes), 0);
    test_run_until(f->event, outcomes.done_count);
    assert_int_equal(outcomes.good_count, 1);
    assert_int_equal(f->door.side.note_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_calls_both_ways_over_unix, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls_both_ways_over_tcp, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls_over_ipv6_and_a_name, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_calls_before_ready_wait, set_up, tear_down),
    };

    return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
