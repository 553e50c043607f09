/*
 * Tests of the channel against servers that die, lie or fall silent: a bare endpoint that makes a good handshake and
 * then sends what the test wants. Whatever comes, every caller returns, `lost` is called once, and nothing hangs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "flyt_signatures.h"
#include "rpc/base/clock.h"
#include "rpc/base/log.h"
#include "rpc/transport/channel_state.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"
#include "rpc/transport/test_pair.h"
#include "rpc/transport/test_values.h"

/* Over which endpoint all of this runs. */
static const char *scheme;

/* ---- where bare servers listen ---- */

enum { ARRIVALS_MAX = 8 };

struct port {
    int listen_fd; /* -1: in memory */
    char url[FLYT_URL_TEXT_BYTES];
    struct flyt_memory_listener listener;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct flyt_endpoint *arrived[ARRIVALS_MAX]; /* in memory: those that nobody has accepted yet */
    unsigned arrived_count;
};

static void arrive(void *user, struct flyt_endpoint *endpoint)
{
    struct port *port = user;

    pthread_mutex_lock(&port->mutex);
    assert_true(port->arrived_count < ARRIVALS_MAX);
    port->arrived[port->arrived_count++] = endpoint;
    pthread_cond_signal(&port->changed);
    pthread_mutex_unlock(&port->mutex);
}

static int dial_port(void *user, const char *url, unsigned timeout_ms, struct flyt_error *err,
                     struct flyt_endpoint **ret_endpoint)
{
    struct port *port = user;

    return flyt_endpoint_in_memory(&port->listener, ret_endpoint);
}

static void open_port(struct port *port)
{
    struct flyt_error err;
    char url[100] = "tcp://127.0.0.1:0";

    *port = (struct port){.listen_fd = -1, .url = "memory", .listener = {.arrive = arrive, .user = port}};
    pthread_mutex_init(&port->mutex, NULL);
    pthread_cond_init(&port->changed, NULL);
    if (!strcmp(scheme, "memory"))
        return;
    if (!strcmp(scheme, "unix"))
        snprintf(url, sizeof url, "unix:///tmp/flyt-lost-test-%d", (int)getpid());
    assert_int_equal(flyt_listen(url, &err, &port->listen_fd, port->url), 0);
}

/* A connection to it, when there is one. */
static struct flyt_endpoint *accept_at(struct port *port)
{
    struct flyt_endpoint *endpoint;

    if (port->listen_fd >= 0) {
        int fd = accept(port->listen_fd, NULL, NULL);
        return fd < 0 || flyt_endpoint_of_socket(fd, &endpoint) ? NULL : endpoint;
    }
    pthread_mutex_lock(&port->mutex);
    while (!port->arrived_count)
        pthread_cond_wait(&port->changed, &port->mutex);
    endpoint = port->arrived[--port->arrived_count];
    pthread_mutex_unlock(&port->mutex);
    return endpoint;
}

static void close_port(struct port *port)
{
    while (port->arrived_count)
        flyt_endpoint_close(port->arrived[--port->arrived_count]);
    if (port->listen_fd >= 0) {
        close(port->listen_fd);
        flyt_unlisten(port->url);
    }
    pthread_cond_destroy(&port->changed);
    pthread_mutex_destroy(&port->mutex);
}

static void aim(struct flyt_channel_config *config, struct port *port)
{
    config->url = port->url;
    config->dial = port->listen_fd < 0 ? dial_port : NULL;
    config->dial_user = port;
}

static void put(struct flyt_endpoint *endpoint, const void *data, size_t bytes)
{
    const struct iovec part = {(void *)data, bytes};

    if (bytes)
        (void)!flyt_endpoint_write(endpoint, &part, 1, true);
}

/* Some of what comes. Whether anything has. */
static bool get(struct flyt_endpoint *endpoint)
{
    unsigned char buffer[65536];
    const struct iovec part = {buffer, sizeof buffer};

    return flyt_endpoint_read(endpoint, &part, 1, true) > 0;
}

/* ---- servers that lie ---- */

/* What the bare server sends after the first call that follows the handshake. */
struct liar {
    struct port port;
    pthread_t thread;
    const unsigned char *answer; /* sent when a call has come; NULL: none */
    size_t answer_bytes;
    const unsigned char *greeting; /* sent instead of the handshake's answer */
    size_t greeting_bytes;
    bool lingers; /* keeps the connection open until the client closes it */
};

static void send_handshake_reply(struct flyt_endpoint *endpoint, unsigned data_streams)
{
    u_int accepted[1024];
    flyt_handshake_res res = {.message = (char *)"", .build = (char *)"liar", .data_streams = data_streams};
    void *record;
    size_t bytes;

    for (unsigned i = 0; i < flyt_signature_count; i++)
        accepted[i] = flyt_signatures[i].procedure;
    res.accepted.accepted_val = accepted;
    res.accepted.accepted_len = flyt_signature_count;
    if (!flyt_handshake_encode_reply(0, &res, &record, &bytes)) {
        put(endpoint, record, bytes);
        free(record);
    }
}

static void *run_liar(void *argument)
{
    struct liar *liar = argument;
    struct flyt_endpoint *endpoint = accept_at(&liar->port);

    if (!endpoint)
        return NULL;
    if (get(endpoint)) {
        if (liar->greeting) {
            put(endpoint, liar->greeting, liar->greeting_bytes);
        } else {
            send_handshake_reply(endpoint, 0);
            if (get(endpoint) && liar->answer)
                put(endpoint, liar->answer, liar->answer_bytes);
        }
    }
    while (liar->lingers && get(endpoint))
        continue;
    flyt_endpoint_close(endpoint);
    return NULL;
}

static void start_liar(struct liar *liar)
{
    open_port(&liar->port);
    pthread_create(&liar->thread, NULL, run_liar, liar);
}

static void stop_liar(struct liar *liar)
{
    if (liar->port.listen_fd >= 0)
        shutdown(liar->port.listen_fd, SHUT_RDWR);
    pthread_join(liar->thread, NULL);
    close_port(&liar->port);
}

/* Makes one call to the liar; returns its status. The channel's end is checked when it was lost. */
static int call_liar(struct liar *liar, flyt_memory_alloc_res *res)
{
    struct test_client client;
    flyt_memory_alloc_args args = {.bytes = 1};

    test_client_init(&client);
    start_liar(liar);
    aim(&client.config, &liar->port);
    test_client_open(&client, liar->port.url);
    int status = flyt_call_memory_alloc(client.channel, &args, res);
    if (status == FLYT_CHANNEL_LOST) {
        assert_true(flyt_channel_is_lost(client.channel));
        test_client_wait(&client, &client.lost_count, 1);
        assert_true(*client.lost_cause);
        assert_int_equal(flyt_call_memory_alloc(client.channel, &args, res), FLYT_CHANNEL_LOST);
        assert_int_equal(flyt_channel_flush(client.channel), FLYT_CHANNEL_LOST);
        assert_int_equal(flyt_channel_send_data(client.channel, 1, "x", 1), FLYT_CHANNEL_LOST);
    }
    flyt_channel_close(client.channel);
    assert_int_equal(atomic_load(&client.lost_count), status == FLYT_CHANNEL_LOST);
    stop_liar(liar);
    test_client_fini(&client);
    return status;
}

/* Record marks and all. */
static struct flyt_bytes good_reply(void)
{
    flyt_memory_alloc_res res = {.address = 0x1234};
    struct flyt_bytes bytes = {.bytes_max = 4096};
    XDR xdrs;

    assert_true(flyt_bytes_reserve(&bytes, 4));
    bytes.used = 4;
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(flyt_reply_head_put(&xdrs, 1) && xdr_flyt_memory_alloc_res(&xdrs, &res));
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - 4));
    memcpy(bytes.data, &mark, 4);
    return bytes;
}

static void test_server_closes_at_every_byte(void **state)
{
    struct flyt_bytes reply = good_reply();
    flyt_memory_alloc_res res;

    for (size_t cut = 0; cut <= reply.used; cut++) {
        struct liar liar = {.answer = reply.data, .answer_bytes = cut, .lingers = cut == reply.used};
        int status = call_liar(&liar, &res);
        assert_int_equal(status, cut == reply.used ? FLYT_CHANNEL_OK : FLYT_CHANNEL_LOST);
    }
    assert_int_equal(res.address, 0x1234);
    flyt_bytes_fini(&reply);
}

static void test_wrong_replies(void **state)
{
    static const struct {
        size_t word; /* counted behind the mark */
        uint32_t value;
    } changes[] = {
        {0, 2},  /* a call that was not made */
        {1, 7},  /* neither call nor reply */
        {2, 1},  /* denied */
        {5, 1},  /* PROG_UNAVAIL */
        {5, 4},  /* GARBAGE_ARGS */
        {4, 99}, /* a verifier longer than the record */
    };
    flyt_memory_alloc_res res;

    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        struct flyt_bytes reply = good_reply();
        uint32_t value = htonl(changes[i].value);
        memcpy(reply.data + 4 + 4 * changes[i].word, &value, 4);
        struct liar liar = {.answer = reply.data, .answer_bytes = reply.used, .lingers = true};
        assert_int_equal(call_liar(&liar, &res), FLYT_CHANNEL_LOST);
        flyt_bytes_fini(&reply);
    }
    /* A word too many, and one too few. */
    for (int change = -4; change <= 4; change += 8) {
        struct flyt_bytes reply = good_reply();
        assert_true(flyt_bytes_reserve(&reply, 4));
        memset(reply.data + reply.used, 0, 4);
        uint32_t mark = htonl(0x80000000u | (uint32_t)((int)reply.used - 4 + change));
        memcpy(reply.data, &mark, 4);
        struct liar liar = {.answer = reply.data, .answer_bytes = reply.used + 4, .lingers = true};
        assert_int_equal(call_liar(&liar, &res), FLYT_CHANNEL_LOST);
        flyt_bytes_fini(&reply);
    }
}

static void test_garbage_instead_of_records(void **state)
{
    struct flyt_test_random random = {11};
    unsigned char garbage[300];
    flyt_memory_alloc_res res;

    for (int i = 0; i < 40; i++) {
        flyt_test_bytes(&random, garbage, sizeof garbage);
        if (i % 2) { /* with a good mark, so that the record itself is looked at */
            uint32_t mark = htonl(0x80000000u | (sizeof garbage - 4));
            memcpy(garbage, &mark, 4);
            if (i % 4 == 1)
                memset(garbage + 8, 0, 4); /* and as a call */
        }
        struct liar liar = {.answer = garbage, .answer_bytes = sizeof garbage};
        assert_int_equal(call_liar(&liar, &res), FLYT_CHANNEL_LOST);
    }
}

static void test_handshake_with_something_else(void **state)
{
    static const char http[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    static const unsigned char too_long[4] = {0xff, 0xff, 0xff, 0xff};
    struct flyt_channel_config config = {.handlers = &test_client_handlers};
    struct flyt_channel *channel = NULL;
    struct flyt_error err;

    for (int i = 0; i < 4; i++) {
        struct liar liar = {.lingers = i == 3, .greeting = (const unsigned char *)http};
        liar.greeting_bytes = i == 0 ? sizeof http : i == 1 ? 4 : 0;
        if (i == 1)
            liar.greeting = too_long;
        start_liar(&liar);
        aim(&config, &liar.port);
        config.connect_timeout_ms = i == 3 ? 300 : TEST_WAIT_MS;
        int status = flyt_channel_open(&config, &err, &channel);
        assert_int_equal(status, i < 2 ? -EPROTO : i == 2 ? -ECONNREFUSED : -ETIMEDOUT);
        assert_non_null(strstr(err.text, liar.port.url));
        stop_liar(&liar);
    }
    assert_null(channel);
}

/* ---- many callers, transfers ---- */

struct victim {
    struct flyt_channel *channel;
    int kind;
    int status;
    unsigned char *data;
};

static void *suffer(void *argument)
{
    struct victim *victim = argument;
    flyt_stream_synchronize_args args = {0};
    flyt_stream_synchronize_res res;
    flyt_kernel_launch_args launch = {0};

    if (victim->kind == 0) {
        victim->status = flyt_call_stream_synchronize(victim->channel, &args, &res);
    } else if (victim->kind == 1) {
        while (!(victim->status = flyt_send_kernel_launch(victim->channel, &launch, NULL)))
            continue;
    } else {
        while (!(victim->status = flyt_channel_send_data(victim->channel, 0, victim->data, 8 << 20)))
            continue;
    }
    return NULL;
}

static bool never_answer(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                         struct svc_req *req)
{
    return false;
}

static void count_later(void *user, uint64_t transfer_id, int status)
{
    if (status == FLYT_CHANNEL_LOST)
        atomic_fetch_add((_Atomic(uint64_t) *)user, 1);
}

static void test_everybody_wakes_when_the_server_dies(void **state)
{
    enum { VICTIMS = 9 };
    for (int is_closed_by_us = 0; is_closed_by_us < 2; is_closed_by_us++) {
        struct test_peer *peer = calloc(1, sizeof *peer);
        struct test_client client;
        struct victim victims[VICTIMS];
        pthread_t threads[VICTIMS];
        _Atomic(uint64_t) later = 0;
        unsigned char *data = calloc(1, 8 << 20);
        test_peer_init(peer);
        test_client_init(&client);
        peer->data_streams = 2;
        peer->serve = never_answer; /* and it has no memory: the transfers are thrown away */
        test_pair_open(peer, &client, scheme);
        for (int i = 0; i < VICTIMS; i++) {
            victims[i] = (struct victim){.channel = client.channel, .kind = i % 3, .data = data};
            pthread_create(&threads[i], NULL, suffer, &victims[i]);
        }
        usleep(100000);
        for (int i = 0; i < 50; i++) /* so many that not all can have gone out */
            flyt_channel_send_data_later(client.channel, 0, data, 8 << 20, count_later, (void *)&later);
        test_peer_cut(peer);
        for (int i = 0; i < VICTIMS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(victims[i].status, FLYT_CHANNEL_LOST);
        }
        if (!is_closed_by_us) {
            test_client_wait(&client, &client.lost_count, 1);
            assert_true(atomic_load(&later) > 0);
        }
        test_pair_close(peer, &client);
        free(peer);
        free(data);
    }
}

static void *close_channel(void *argument)
{
    flyt_channel_close(argument);
    return NULL;
}

/* A program that ends while one of its threads waits for the server. */
static void test_closing_wakes_callers(void **state)
{
    struct test_peer *peer = calloc(1, sizeof *peer);
    struct test_client client;
    pthread_t thread, closer;

    test_peer_init(peer);
    test_client_init(&client);
    peer->serve = never_answer;
    test_pair_open(peer, &client, scheme);
    struct victim victim = {.channel = client.channel};
    pthread_create(&thread, NULL, suffer, &victim);
    test_client_wait(&client, &peer->call_count, 1);
    pthread_create(&closer, NULL, close_channel, client.channel);
    pthread_join(thread, NULL);
    assert_int_equal(victim.status, FLYT_CHANNEL_LOST);
    pthread_join(closer, NULL);
    assert_int_equal(atomic_load(&client.lost_count), 0); /* it was no loss */
    client.channel = NULL;
    test_pair_close(peer, &client);
    free(peer);
}

/* ---- servers that say nothing more ---- */

/* Makes a good handshake on the first connection, never reads again and never takes another one. */
struct half_server {
    struct port port;
    struct flyt_endpoint *endpoint;
    unsigned data_streams;
    pthread_t thread;
};

static void *run_half_server(void *argument)
{
    struct half_server *server = argument;

    server->endpoint = accept_at(&server->port);
    if (server->endpoint && get(server->endpoint))
        send_handshake_reply(server->endpoint, server->data_streams);
    return NULL;
}

static void start_half_server(struct half_server *server, struct test_client *client, unsigned data_streams)
{
    open_port(&server->port);
    server->data_streams = data_streams;
    pthread_create(&server->thread, NULL, run_half_server, server);
    test_client_init(client);
    aim(&client->config, &server->port);
    test_client_open(client, server->port.url);
    pthread_join(server->thread, NULL);
}

static void stop_half_server(struct half_server *server, struct test_client *client)
{
    flyt_endpoint_close(server->endpoint);
    close_port(&server->port);
    test_client_fini(client);
}

/* A server that does not read must not keep the program from ending. */
static void test_closing_a_stuck_connection_takes_a_moment(void **state)
{
    flyt_copy_in_args args = {0};
    struct half_server server;
    struct test_client client;
    unsigned char buffer[65536];

    start_half_server(&server, &client, 0);
    /* The first fills what is taken; the last ones stay in the buffer. */
    memset(buffer, 0, sizeof buffer);
    args.data.data_val = (char *)buffer;
    args.data.data_len = 16384;
    assert_int_equal(flyt_send_copy_in(client.channel, &args, NULL), FLYT_CHANNEL_OK);
    args.data.data_len = 16;
    for (int i = 0; i < 100; i++)
        assert_int_equal(flyt_send_copy_in(client.channel, &args, NULL), FLYT_CHANNEL_OK);
    struct victim victim = {.channel = client.channel, .kind = 2, .data = calloc(1, 8 << 20)};
    pthread_t thread;
    pthread_create(&thread, NULL, suffer, &victim); /* blocks in its write */
    TEST_WAIT_UNTIL(atomic_load(&client.channel->gate.begun_count));
    usleep(50000);
    uint64_t start_ms = flyt_clock_ms();
    flyt_channel_flush(client.channel);
    flyt_channel_close(client.channel);
    assert_in_range(flyt_clock_ms() - start_ms, 0, 60000); /* the server reads nothing, for ever */
    pthread_join(thread, NULL);
    free(victim.data);
    stop_half_server(&server, &client);
}

/* ---- data streams that never open ---- */

/* Whoever waits for the streams hears of the connection's end at once, not after the time-out of connecting. */
static void test_the_end_does_not_wait_for_data_streams(void **state)
{
    for (int is_closed_by_us = 0; is_closed_by_us < 2; is_closed_by_us++) {
        struct half_server server;
        struct test_client client;
        _Atomic(uint64_t) later = 0;

        start_half_server(&server, &client, 2);
        unsigned char *data = calloc(1, 8 << 20);
        assert_int_equal(flyt_channel_send_data_later(client.channel, 1, data, 8 << 20, count_later, (void *)&later),
                         FLYT_CHANNEL_OK);
        usleep(50000);
        uint64_t start_ms = flyt_clock_ms();
        if (!is_closed_by_us) {
            flyt_endpoint_shut(server.endpoint, FLYT_ENDPOINT_BOTH);
            test_client_wait(&client, &client.lost_count, 1);
            assert_int_equal(atomic_load(&later), 1); /* told before the loss: the memory is free again */
        }
        flyt_channel_close(client.channel);
        assert_in_range(flyt_clock_ms() - start_ms, 0, 300000); /* connecting gives up after 10 minutes */
        assert_int_equal(atomic_load(&later), 1);
        free(data);
        stop_half_server(&server, &client);
    }
}

static int count_sockets(void)
{
    int count = 0;

    for (int fd = 0; fd < 256; fd++) {
        int type;
        socklen_t bytes = sizeof type;
        count += !getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes);
    }
    return count;
}

/* A child that is forked while data streams are being opened keeps none of the descriptors. */
static void test_a_fork_while_data_streams_open(void **state)
{
    struct half_server server;
    struct test_client client;
    _Atomic(uint64_t) later = 0;
    int status;

    int before = count_sockets();
    start_half_server(&server, &client, 2);
    unsigned char *data = calloc(1, 8 << 20);
    assert_int_equal(flyt_channel_send_data_later(client.channel, 1, data, 8 << 20, count_later, (void *)&later),
                     FLYT_CHANNEL_OK);
    usleep(50000);
    pid_t child = fork();
    if (!child) {
        flyt_channel_abandon(client.channel);
        close(flyt_endpoint_fd(server.endpoint));
        close(server.port.listen_fd);
        _exit(count_sockets() - before);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    flyt_channel_close(client.channel);
    free(data);
    stop_half_server(&server, &client);
}

static struct flyt_endpoint *connect_to(struct test_peer *peer)
{
    struct flyt_endpoint *endpoint;
    struct flyt_error err;
    int fd;

    if (peer->dial) {
        assert_int_equal(peer->dial(peer, peer->url, 2000, &err, &endpoint), 0);
        return endpoint;
    }
    assert_int_equal(flyt_connect(peer->url, 2000, &err, &fd), 0);
    assert_int_equal(flyt_endpoint_of_socket(fd, &endpoint), 0);
    return endpoint;
}

/* A mutating client cannot harm the others of a server. */
static void test_garbage_to_the_server(void **state)
{
    struct test_peer *peer = calloc(1, sizeof *peer);
    struct flyt_test_random random = {12};
    struct test_client client;
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;
    unsigned char garbage[500];

    test_peer_init(peer);
    test_client_init(&client);
    test_pair_open(peer, &client, scheme);
    for (int i = 0; i < 40; i++) {
        flyt_test_bytes(&random, garbage, sizeof garbage);
        uint32_t mark = htonl(0x80000000u | (sizeof garbage - 4));
        if (i % 2)
            memcpy(garbage, &mark, 4);
        struct flyt_endpoint *endpoint = connect_to(peer);
        put(endpoint, garbage, sizeof garbage);
        flyt_endpoint_close(endpoint);
        assert_int_equal(flyt_call_session_barrier(client.channel, &args, &res), FLYT_CHANNEL_OK);
    }
    test_pair_close(peer, &client);
    free(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_closes_at_every_byte),
        cmocka_unit_test(test_wrong_replies),
        cmocka_unit_test(test_garbage_instead_of_records),
        cmocka_unit_test(test_handshake_with_something_else),
        cmocka_unit_test(test_everybody_wakes_when_the_server_dies),
        cmocka_unit_test(test_closing_wakes_callers),
        cmocka_unit_test(test_closing_a_stuck_connection_takes_a_moment),
        cmocka_unit_test(test_the_end_does_not_wait_for_data_streams),
        cmocka_unit_test(test_garbage_to_the_server),
    };
    /* Its descriptors are sockets. */
    const struct CMUnitTest unix_tests[] = {cmocka_unit_test(test_a_fork_while_data_streams_open)};
    static const char *const schemes[] = {"memory", "tcp", "unix"};
    int failures = 0;

    unsetenv("FLYT_LOG");
    flyt_log_init("lost-test", FLYT_LOG_WARN);
    for (unsigned i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        scheme = schemes[i];
        failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    }
    return failures + cmocka_run_group_tests_name("unix only", unix_tests, NULL, NULL);
}
