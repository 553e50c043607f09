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
#include "rpc/base/url.h"
#include "rpc/transport/endpoint/listen.h"
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

/* A door gives a newcomer few turns of its loop to say who it is: from its connection on a peer takes one. */
static void test_the_first_call_follows_the_connection(void **state)
{
    enum { TURNS = 3 }; /* the name is looked up and the connection begun; it is made; the call is sent */
    struct fixture *f = *state;
    struct flyt_error err = {0};
    struct flyt_peer *peer;
    char data[16], url[FLYT_URL_BYTES_MAX + 1];
    int listen_fd;

    assert_int_equal(flyt_listen("tcp://127.0.0.1:0", &err, &listen_fd, url), 0);
    assert_int_equal(flyt_peer_connect(url, NULL, &f->client.config, 0, &err, &peer), 0);
    assert_int_equal(test_call(peer, TEST_NOTE, 1, 0, NULL), 0);
    for (unsigned turn = 0; turn < TURNS; turn++)
        test_run_once(f->event);
    int fd = accept(listen_fd, NULL, NULL);
    assert_true(fd >= 0);
    assert_true(recv(fd, data, sizeof data, MSG_DONTWAIT) > 0);
    flyt_close(fd);
    flyt_close(listen_fd);
}

static void test_a_thousand_calls_at_once(void **state)
{
    enum { COUNT = 1000 };
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    connect_to(f, f->unix_url);
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(test_call(f->client.peer, TEST_KEEP, i, 0, &outcomes), 0);
    for (unsigned i = 0; i < COUNT; i++) {
        test_run_until(f->event, f->door.side.kept_count);
        assert_true(f->door.side.kept_count <= FLYT_PEER_SERVING_MAX);
        test_answer(&f->door.side);
    }
    test_run_until(f->event, outcomes.done_count == COUNT);
    assert_int_equal(outcomes.good_count, COUNT);
    assert_int_equal(outcomes.last_sequence, COUNT - 1);
    assert_int_equal(f->door.side.served_count, COUNT);
}

/* Both ends have more calls under way than are served at once, and all of one end's wait: the other's pass. */
static void test_replies_pass_calls_that_wait(void **state)
{
    enum { COUNT = 300 };
    struct fixture *f = *state;
    struct test_outcomes kept = {0}, echoed = {0};

    connect_to(f, f->unix_url);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(test_call(f->client.peer, TEST_KEEP, i, 0, &kept), 0);
        assert_int_equal(test_call(f->door.side.peer, TEST_ECHO, i, 0, &echoed), 0);
    }
    test_run_until(f->event, echoed.good_count == COUNT);
    assert_int_equal(kept.done_count, 0);
    assert_int_equal(f->door.side.kept_count, FLYT_PEER_SERVING_MAX);
    f->client.peer = flyt_peer_close(f->client.peer);
    assert_int_equal(kept.done_count, COUNT);
    assert_int_equal(kept.last_status, -ECANCELED);
    while (f->door.side.kept_count)
        test_answer(&f->door.side);
}

static void test_calls_keep_their_order(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes kept = {0};

    connect_to(f, f->unix_url);
    for (unsigned i = 0; i < FLYT_PEER_SERVING_MAX + 1; i++)
        assert_int_equal(test_call(f->client.peer, TEST_KEEP, i, 0, &kept), 0);
    assert_int_equal(test_call(f->client.peer, TEST_NOTE, 5, 0, NULL), 0);
    test_run_until(f->event, f->door.side.kept_count == FLYT_PEER_SERVING_MAX);
    test_run_idle(f->event);
    assert_int_equal(f->door.side.note_count, 0); /* it was made after a call that waits */
    while (kept.done_count < FLYT_PEER_SERVING_MAX + 1) {
        test_run_until(f->event, f->door.side.kept_count || kept.done_count == FLYT_PEER_SERVING_MAX + 1);
        if (f->door.side.kept_count)
            test_answer(&f->door.side);
    }
    test_run_until(f->event, f->door.side.note_count);
    assert_int_equal(f->door.side.last_note, 5);
}

static void test_deadlines(void **state)
{
    enum { COUNT = FLYT_PEER_SERVING_MAX + 6 };
    struct fixture *f = *state;
    struct test_outcomes late = {0}, after = {0};

    connect_to(f, f->unix_url);
    for (unsigned i = 0; i < COUNT; i++) /* the last ones never get on the wire */
        assert_int_equal(test_call(f->client.peer, TEST_KEEP, i, 50, &late), 0);
    test_run_until(f->event, late.done_count == COUNT);
    assert_int_equal(late.good_count, 0);
    assert_int_equal(late.last_status, -ETIMEDOUT);
    assert_int_equal(f->client.failed_count, COUNT);
    assert_int_equal(f->door.side.kept_count, FLYT_PEER_SERVING_MAX);
    /* The late answers make room again and tell nobody. */
    assert_int_equal(test_call(f->client.peer, TEST_ECHO, 77, 60000, &after), 0);
    while (f->door.side.kept_count)
        test_answer(&f->door.side);
    test_run_until(f->event, after.done_count);
    assert_int_equal(after.last_sequence, 77);
    assert_int_equal(late.done_count, COUNT);
    assert_int_equal(f->door.side.served_count, FLYT_PEER_SERVING_MAX + 1);
}

static void call_void(struct flyt_peer *peer, uint32_t program, uint32_t version, uint32_t procedure, bool has_result,
                      struct test_outcomes *outcomes)
{
    assert_int_equal(flyt_peer_call(peer, program, version, procedure, NULL, NULL,
                                    has_result ? (xdrproc_t)xdr_flyt_outcome : NULL, sizeof(flyt_outcome), 60000,
                                    test_done_outcome, outcomes),
                     0);
}

static void expect_status(struct fixture *f, uint32_t program, uint32_t version, uint32_t procedure, int status)
{
    struct test_outcomes outcomes = {0};

    call_void(f->client.peer, program, version, procedure, true, &outcomes);
    test_run_until(f->event, outcomes.done_count);
    assert_int_equal(outcomes.last_status, status);
}

static void test_refusals_reach_the_caller(void **state)
{
    struct fixture *f = *state;

    connect_to(f, f->unix_url);
    expect_status(f, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_FAIL, -EPROTO);
    expect_status(f, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_WRONG, -EPROTO);
    expect_status(f, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, 999, -ENOSYS);
    expect_status(f, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION + 1, TEST_NODE, -ENOSYS);
    expect_status(f, FLYT_ORDER_PROGRAM, FLYT_ORDER_VERSION, TEST_NODE, -ENOSYS);
    expect_status(f, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_NODE, -EACCES);
    assert_int_equal(f->door.side.ended_count, 0);
    flyt_peer_set_identity(f->door.side.peer, FLYT_ROLE_NODE, "n1");
    expect_status(f, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_NODE, 0);
}

static void test_arguments_out_of_bounds_are_refused_here(void **state)
{
    struct fixture *f = *state;
    static char text[FLYT_TEXT_BYTES_MAX + 2];
    flyt_event event = {.text = text};
    struct test_outcomes outcomes = {0};

    connect_to(f, f->unix_url);
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(flyt_peer_call(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_ECHO,
                                    (xdrproc_t)xdr_flyt_event, &event, (xdrproc_t)xdr_flyt_event, sizeof event, 0,
                                    test_done, &outcomes),
                     -EINVAL);
    text[FLYT_TEXT_BYTES_MAX] = 0;
    assert_int_equal(flyt_peer_call(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_ECHO,
                                    (xdrproc_t)xdr_flyt_event, &event, (xdrproc_t)xdr_flyt_event, sizeof event, 0,
                                    test_done, &outcomes),
                     0);
    test_run_until(f->event, outcomes.done_count);
    assert_int_equal(outcomes.good_count, 1);
}

/* ---- ends ---- */

static void test_end_of_the_other_side_ends_calls(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    connect_to(f, f->unix_url);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(test_call(f->client.peer, TEST_KEEP, i, 0, &outcomes), 0);
    test_run_until(f->event, f->door.side.kept_count);
    f->door.side.peer = flyt_peer_close(f->door.side.peer);
    test_run_until(f->event, f->client.ended_count);
    assert_int_equal(outcomes.done_count, 100);
    assert_int_equal(outcomes.last_status, -EPIPE);
    assert_int_equal(f->client.cause.code, -EPIPE);
    assert_int_equal(f->door.side.ended_count, 0);
    assert_null(flyt_call_peer(f->door.side.kept[0]));
    assert_int_equal(flyt_call_identity(f->door.side.kept[0])->uid, getuid());
    while (f->door.side.kept_count)
        test_answer(&f->door.side);
}

static void done_then_close(void *user, int status, void *result)
{
    struct fixture *f = user;

    assert_int_equal(status, 0);
    f->client.peer = flyt_peer_close(f->client.peer);
}

static void test_peer_closed_by_a_result(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes others = {0};
    flyt_event event = {0};

    connect_to(f, f->unix_url);
    assert_int_equal(flyt_peer_call(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_ECHO,
                                    (xdrproc_t)xdr_flyt_event, &event, (xdrproc_t)xdr_flyt_event, sizeof event, 0,
                                    done_then_close, f),
                     0);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(test_call(f->client.peer, TEST_ECHO, i, 1000, &others), 0);
    test_run_until(f->event, f->door.side.ended_count);
    assert_int_equal(others.done_count, 100);
    assert_int_equal(others.last_status, -ECANCELED);
    assert_int_equal(f->client.ended_count, 0);
}

static void ended_then_reconnect(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct test_side *side = user;
    struct test_outcomes outcomes = {0};

    side->ended_count++;
    assert_int_equal(test_call(peer, TEST_ECHO, 0, 0, &outcomes), -EPIPE);
    assert_null(flyt_peer_close(peer)); /* harmless */
    side->peer = NULL;
}

static void test_ended_may_close_and_calls_are_refused_in_it(void **state)
{
    struct fixture *f = *state;

    f->client.config.ended = ended_then_reconnect;
    connect_to(f, f->unix_url);
    f->door.side.peer = flyt_peer_close(f->door.side.peer);
    test_run_until(f->event, f->client.ended_count);
    f->client.config.ended = NULL;
    connect_to(f, f->unix_url);
    check_both_ways(f);
}

static void test_answer_before_the_end_arrives(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    connect_to(f, "tcp://127.0.0.1:0");
    assert_int_equal(test_call(f->client.peer, TEST_KEEP, 0, 0, &outcomes), 0);
    call_void(f->client.peer, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, TEST_LAST, true, &outcomes);
    test_run_until(f->event, outcomes.done_count == 2 && f->client.ended_count);
    assert_int_equal(outcomes.good_count, 1);
    assert_int_equal(outcomes.last_status, -EPIPE);
    assert_int_equal(f->door.side.ended_count, 0);
    test_answer(&f->door.side);
}

static void test_door_goes_with_calls_under_way(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    connect_to(f, f->unix_url);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(test_call(f->client.peer, TEST_KEEP, i, 0, &outcomes), 0);
    assert_int_equal(test_call(f->door.side.peer, TEST_KEEP, 0, 0, &outcomes), 0);
    test_run_until(f->event, f->door.side.kept_count == 10 && f->client.kept_count == 1);
    struct flyt_call *calls[11];
    memcpy(calls, f->door.side.kept, 10 * sizeof calls[0]);
    calls[10] = f->client.kept[0];
    test_door_close(&f->door);
    assert_int_equal(outcomes.last_status, -ECANCELED);
    for (unsigned i = 0; i < 10; i++)
        flyt_call_done(calls[i]);
    test_run_until(f->event, f->client.ended_count);
    flyt_call_fail(calls[10]);
    assert_int_equal(outcomes.done_count, 11);
}

/* ---- other processes ---- */

/* A process that holds a connection, sends the beginning of a record and waits to be killed. */
static pid_t start_victim(const char *url)
{
    static const unsigned char half[] = {0x80, 0, 0, 100, 1, 2, 3};
    int ready[2];
    char byte;

    assert_int_equal(pipe(ready), 0);
    pid_t pid = fork();
    if (!pid) {
        int fd = test_raw_connect(url);
        if (write(fd, half, sizeof half) != sizeof half || write(ready[1], "r", 1) != 1)
            _exit(1);
        pause();
        _exit(0);
    }
    assert_true(pid > 0);
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return pid;
}

static void test_killed_process_ends_its_calls(void **state)
{
    struct fixture *f = *state;
    struct test_outcomes outcomes = {0};

    for (unsigned i = 0; i < 2; i++) {
        if (!f->door.door)
            test_door_open(&f->door, i ? "tcp://127.0.0.1:0" : f->unix_url, NULL);
        pid_t pid = start_victim(f->door.url);
        test_run_until(f->event, f->door.side.ready_count == i + 1);
        assert_int_equal(test_call(f->door.side.peer, TEST_ECHO, 1, 0, &outcomes), 0);
        test_run_idle(f->event);
        assert_int_equal(kill(pid, SIGKILL), 0);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
        test_run_until(f->event, f->door.side.ended_count == i + 1);
        assert_int_equal(outcomes.done_count, i + 1);
        assert_int_equal(outcomes.last_status, -EPIPE);
        test_door_close(&f->door);
    }
}

static void test_rpcinfo_gets_its_null_call_answered(void **state)
{
    struct fixture *f = *state;
    char command[256];
    int status = -1;

    if (access("/usr/sbin/rpcinfo", X_OK)) {
        print_message("rpcinfo is not installed\n");
        skip();
    }
    test_door_open(&f->door, "tcp://127.0.0.1:0", NULL);
    unsigned port = (unsigned)atoi(strrchr(f->door.url, ':') + 1);
    snprintf(command, sizeof command, "/usr/sbin/rpcinfo -a 127.0.0.1.%u.%u -T tcp %u %u >%s/said 2>&1", port >> 8,
             port & 255, FLYT_CONTROL_PROGRAM, FLYT_CONTROL_VERSION, f->folder);
    pid_t pid = fork();
    if (!pid) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    while (!waitpid(pid, &status, WNOHANG))
        sd_event_run(f->event, 10000);
    snprintf(command, sizeof command, "cat %s/said; rm -f %s/said", f->folder, f->folder);
    assert_int_equal(system(command), 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(f->door.side.ready_count, 1);
}

/* ---- connecting ---- */

static void expect_no_connection(struct fixture *f, const char *url, int code)
{
    struct flyt_error err = {0};
    struct test_outcomes outcomes = {0};
    struct flyt_peer *peer;
    unsigned before = f->client.ended_count;

    assert_int_equal(flyt_peer_connect(url, NULL, &f->client.config, 20000, &err, &peer), 0);
    assert_int_equal(test_call(peer, TEST_ECHO, 0, 0, &outcomes), 0);
    assert_int_equal(f->client.ended_count, before);
    test_run_until(f->event, f->client.ended_count > before);
    assert_int_equal(f->client.cause.code, code);
    assert_int_equal(outcomes.last_status, -EPIPE);
    assert_int_equal(f->client.ready_count, 0);
}

static void test_connecting_fails(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    struct flyt_peer *peer;
    char url[300];

    static const char *const bad[] = {"tcp://",          "http://x:1",         "tcp://127.0.0.1:0",
                                      "tcp://:77",       "tcp://192.0.2.1:77", "tcp://[2001:db8::1]:77",
                                      "unix://relative", "vsock://2:77"};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(flyt_peer_connect(bad[i], NULL, &f->client.config, 0, &err, &peer), -EINVAL);
        assert_string_not_equal(err.text, "");
    }
    expect_no_connection(f, f->unix_url, -ENOENT);
    test_door_open(&f->door, "tcp://127.0.0.1:0", NULL);
    strcpy(url, f->door.url);
    test_door_close(&f->door);
    expect_no_connection(f, url, -ECONNREFUSED);
    expect_no_connection(f, "tcp://nobody.invalid:77", -EHOSTUNREACH);
}

static void test_connecting_is_closed_at_any_time(void **state)
{
    struct fixture *f = *state;
    struct flyt_error err = {0};
    struct test_outcomes outcomes = {0};
    struct flyt_peer *peer;

    test_door_open(&f->door, "tcp://127.0.0.1:0", NULL);
    for (unsigned turns = 0; turns < 6; turns++) {
        for (unsigned is_name = 0; is_name < 2; is_name++) {
            assert_int_equal(flyt_peer_connect(is_name ? "tcp://nobody.invalid:77" : f->door.url, NULL,
                                               &f->client.config, 0, &err, &peer),
                             0);
            assert_int_equal(test_call(peer, TEST_ECHO, 0, 0, &outcomes), 0);
            for (unsigned i = 0; i < turns && !f->client.ended_count; i++)
                sd_event_run(f->event, 1000);
            if (!f->client.ended_count)
                flyt_peer_close(peer);
            f->client.ended_count = 0;
        }
    }
    f->client.peer = NULL;
    assert_int_equal(outcomes.done_count, 12);
    test_run_idle(f->event);
}

/* ---- many ---- */

static void visit_count(struct flyt_peer *peer, void *user)
{
    ++*(unsigned *)user;
    flyt_peer_close(peer);
}

static void close_one(struct flyt_peer *peer, void *user)
{
    flyt_peer_close(peer);
}

static void ended_closes_the_others(struct flyt_peer *peer, const struct flyt_error *cause, void *user)
{
    struct test_door *door = user;

    door->side.ended_count++;
    flyt_door_each(door->door, close_one, NULL);
}

/* More than are served in one turn end at one moment, and the first one takes the others with it. */
static void test_one_of_many_closes_the_others_in_its_turn(void **state)
{
    enum { COUNT = 100 };
    struct fixture *f = *state;
    int fds[COUNT];
    unsigned count = 0;

    f->door.config.peer.ended = ended_closes_the_others;
    test_door_open(&f->door, f->unix_url, NULL);
    for (unsigned i = 0; i < COUNT; i++)
        fds[i] = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.ready_count == COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
    test_run_until(f->event, f->door.side.ended_count == 1);
    test_run_idle(f->event);
    assert_int_equal(f->door.side.ended_count, 1);
    flyt_door_each(f->door.door, visit_count, &count);
    assert_int_equal(count, 0);
    fds[0] = test_raw_connect(f->door.url);
    test_run_until(f->event, f->door.side.ready_count == COUNT + 1);
    close(fds[0]);
    test_run_until(f->event, f->door.side.ended_count == 2);
}

static void test_a_thousand_idle_peers_wake_nobody(void **state)
{
    enum { COUNT = 1000 };
    struct fixture *f = *state;
    struct rlimit limit;
    int fds[COUNT];
    unsigned count = 0;

    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < 2 * COUNT + 64)
        skip();
    test_door_open(&f->door, f->unix_url, NULL);
    for (unsigned i = 0; i < COUNT; i++) {
        fds[i] = test_raw_connect(f->door.url);
        test_run_until(f->event, f->door.side.ready_count == i + 1);
    }
    test_run_idle(f->event);
    assert_int_equal(sd_event_run(f->event, 300000), 0); /* nothing happens: no timer, no descriptor */
    flyt_door_each(f->door.door, visit_count, &count);
    assert_int_equal(count, COUNT);
    for (unsigned i = 0; i < COUNT; i++)
        close(fds[i]);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_calls_both_ways_over_unix),
        TEST(test_calls_both_ways_over_tcp),
        TEST(test_calls_over_ipv6_and_a_name),
        TEST(test_calls_before_ready_wait),
        TEST(test_the_first_call_follows_the_connection),
        TEST(test_a_thousand_calls_at_once),
        TEST(test_replies_pass_calls_that_wait),
        TEST(test_calls_keep_their_order),
        TEST(test_deadlines),
        TEST(test_refusals_reach_the_caller),
        TEST(test_arguments_out_of_bounds_are_refused_here),
        TEST(test_end_of_the_other_side_ends_calls),
        TEST(test_peer_closed_by_a_result),
        TEST(test_ended_may_close_and_calls_are_refused_in_it),
        TEST(test_answer_before_the_end_arrives),
        TEST(test_door_goes_with_calls_under_way),
        TEST(test_killed_process_ends_its_calls),
        TEST(test_rpcinfo_gets_its_null_call_answered),
        TEST(test_connecting_fails),
        TEST(test_connecting_is_closed_at_any_time),
        TEST(test_one_of_many_closes_the_others_in_its_turn),
        TEST(test_a_thousand_idle_peers_wake_nobody),
    };

    return cmocka_run_group_tests_name("peer", tests, NULL, NULL);
}
