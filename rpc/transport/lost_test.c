/*
 * Tests of the channel against servers that die, lie or fall silent: a raw socket that makes a good handshake and then
 * sends what the test wants. Whatever comes, every caller returns, `lost` is called once, and nothing hangs.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
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
#include "rpc/transport/listen.h"
#include "rpc/transport/message.h"
#include "rpc/transport/test_client.h"
#include "rpc/transport/test_peer.h"
#include "rpc/transport/test_values.h"

/* What the raw server sends after the first call that follows the handshake. */
struct liar {
    int listen_fd;
    char url[FLYT_URL_TEXT_BYTES];
    pthread_t thread;
    const unsigned char *answer; /* sent when a call has come; NULL: none */
    size_t answer_bytes;
    const unsigned char *greeting; /* sent instead of the handshake's answer */
    size_t greeting_bytes;
    bool lingers; /* keeps the connection open until the client closes it */
};

static void send_handshake_reply(int fd, unsigned data_streams)
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
        (void)!send(fd, record, bytes, MSG_NOSIGNAL);
        free(record);
    }
}

static void *run_liar(void *argument)
{
    struct liar *liar = argument;
    unsigned char buffer[65536];

    int fd = accept(liar->listen_fd, NULL, NULL);
    if (fd < 0)
        return NULL;
    if (recv(fd, buffer, sizeof buffer, 0) > 0) {
        if (liar->greeting) {
            (void)!send(fd, liar->greeting, liar->greeting_bytes, MSG_NOSIGNAL);
        } else {
            send_handshake_reply(fd, 0);
            if (recv(fd, buffer, sizeof buffer, 0) > 0 && liar->answer)
                (void)!send(fd, liar->answer, liar->answer_bytes, MSG_NOSIGNAL);
        }
    }
    while (liar->lingers && recv(fd, buffer, sizeof buffer, 0) > 0)
        continue;
    close(fd);
    return NULL;
}

static void start_liar(struct liar *liar)
{
    struct flyt_error err;
    char url[100];

    snprintf(url, sizeof url, "unix:///tmp/flyt-lost-test-%d", (int)getpid());
    assert_int_equal(flyt_listen(url, &err, &liar->listen_fd, liar->url), 0);
    pthread_create(&liar->thread, NULL, run_liar, liar);
}

static void stop_liar(struct liar *liar)
{
    shutdown(liar->listen_fd, SHUT_RDWR);
    pthread_join(liar->thread, NULL);
    close(liar->listen_fd);
    flyt_unlisten(liar->url);
}

/* Makes one call to the liar; returns its status. The channel's end is checked when it was lost. */
static int call_liar(struct liar *liar, flyt_memory_alloc_res *res)
{
    struct test_client client;
    flyt_memory_alloc_args args = {.bytes = 1};

    test_client_init(&client);
    start_liar(liar);
    test_client_open(&client, liar->url);
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
        config.url = liar.url;
        config.connect_timeout_ms = i == 3 ? 300 : TEST_WAIT_MS;
        int status = flyt_channel_open(&config, &err, &channel);
        assert_int_equal(status, i < 2 ? -EPROTO : i == 2 ? -ECONNREFUSED : -ETIMEDOUT);
        assert_non_null(strstr(err.text, liar.url));
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
        char url[100];
        snprintf(url, sizeof url, "unix:///tmp/flyt-lost-test-%d", (int)getpid());
        test_peer_init(peer);
        peer->data_streams = 2;
        peer->serve = never_answer; /* and it has no memory: the transfers are thrown away */
        test_peer_start(peer, url);
        test_client_init(&client);
        test_client_open(&client, peer->url);
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
        flyt_channel_close(client.channel);
        test_peer_stop(peer);
        test_client_fini(&client);
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
    char url[100];

    snprintf(url, sizeof url, "unix:///tmp/flyt-lost-test-%d", (int)getpid());
    test_peer_init(peer);
    peer->serve = never_answer;
    test_peer_start(peer, url);
    test_client_init(&client);
    test_client_open(&client, peer->url);
    struct victim victim = {.channel = client.channel};
    pthread_create(&thread, NULL, suffer, &victim);
    test_client_wait(&client, &peer->call_count, 1);
    pthread_create(&closer, NULL, close_channel, client.channel);
    pthread_join(thread, NULL);
    assert_int_equal(victim.status, FLYT_CHANNEL_LOST);
    pthread_join(closer, NULL);
    assert_int_equal(atomic_load(&client.lost_count), 0); /* it was no loss */
    test_peer_stop(peer);
    test_client_fini(&client);
    free(peer);
}

/* A server that does not read must not keep the program from ending. */
static void test_closing_a_stuck_connection_takes_a_moment(void **state)
{
    flyt_copy_in_args args = {0};
    struct test_client client;
    struct flyt_error err;
    char url[100], text[FLYT_URL_TEXT_BYTES];
    unsigned char buffer[65536];
    int listen_fd;

    snprintf(url, sizeof url, "unix:///tmp/flyt-lost-test-%d", (int)getpid());
    assert_int_equal(flyt_listen(url, &err, &listen_fd, text), 0);
    pid_t child = fork();
    if (!child) { /* answers the handshake and never reads again */
        int fd = accept(listen_fd, NULL, NULL);
        if (recv(fd, buffer, sizeof buffer, 0) > 0)
            send_handshake_reply(fd, 0);
        pause();
        _exit(0);
    }
    test_client_init(&client);
    test_client_open(&client, text);
    /* The first fills what the socket takes; the last ones stay in the buffer. */
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
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    pthread_join(thread, NULL);
    free(victim.data);
    close(listen_fd);
    flyt_unlisten(text);
    test_client_fini(&client);
}

/* ---- data streams that never open ---- */

/* Makes a good handshake on the first connection and never accepts another. */
struct half_server {
    int listen_fd, fd;
    char url[FLYT_URL_TEXT_BYTES];
    pthread_t thread;
};

static void *run_half_server(void *argument)
{
    struct half_server *server = argument;
    unsigned char buffer[65536];

    server->fd = accept(server->listen_fd, NULL, NULL);
    if (server->fd >= 0 && recv(server->fd, buffer, sizeof buffer, 0) > 0)
        send_handshake_reply(server->fd, 2);
    return NULL;
}

static void start_half_server(struct half_server *server, struct test_client *client, const char *url)
{
    struct flyt_error err;

    assert_int_equal(flyt_listen(url, &err, &server->listen_fd, server->url), 0);
    pthread_create(&server->thread, NULL, run_half_server, server);
    test_client_init(client);
    test_client_open(client, server->url);
    pthread_join(server->thread, NULL);
}

static void stop_half_server(struct half_server *server, struct test_client *client)
{
    close(server->fd);
    close(server->listen_fd);
    flyt_unlisten(server->url);
    test_client_fini(client);
}

static void half_server_url(char *url, size_t bytes, int is_tcp)
{
    if (is_tcp)
        snprintf(url, bytes, "tcp://127.0.0.1:0");
    else
        snprintf(url, bytes, "unix:///tmp/flyt-lost-test-%d", (int)getpid());
}

/* Whoever waits for the streams hears of the connection's end at once, not after the time-out of connecting. */
static void test_the_end_does_not_wait_for_data_streams(void **state)
{
    for (int i = 0; i < 4; i++) {
        bool is_closed_by_us = i & 1;
        struct half_server server;
        struct test_client client;
        _Atomic(uint64_t) later = 0;
        char url[100];

        half_server_url(url, sizeof url, i & 2);
        start_half_server(&server, &client, url);
        unsigned char *data = calloc(1, 8 << 20);
        assert_int_equal(flyt_channel_send_data_later(client.channel, 1, data, 8 << 20, count_later, (void *)&later),
                         FLYT_CHANNEL_OK);
        usleep(50000);
        uint64_t start_ms = flyt_clock_ms();
        if (!is_closed_by_us) {
            shutdown(server.fd, SHUT_RDWR);
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
    char url[100];
    int status;

    int before = count_sockets();
    half_server_url(url, sizeof url, 0);
    start_half_server(&server, &client, url);
    unsigned char *data = calloc(1, 8 << 20);
    assert_int_equal(flyt_channel_send_data_later(client.channel, 1, data, 8 << 20, count_later, (void *)&later),
                     FLYT_CHANNEL_OK);
    usleep(50000);
    pid_t child = fork();
    if (!child) {
        flyt_channel_abandon(client.channel);
        close(server.fd);
        close(server.listen_fd);
        _exit(count_sockets() - before);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    flyt_channel_close(client.channel);
    free(data);
    stop_half_server(&server, &client);
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
    struct flyt_error err;
    int fd;

    test_peer_init(peer);
    test_peer_start(peer, "tcp://127.0.0.1:0");
    test_client_init(&client);
    test_client_open(&client, peer->url);
    for (int i = 0; i < 40; i++) {
        flyt_test_bytes(&random, garbage, sizeof garbage);
        uint32_t mark = htonl(0x80000000u | (sizeof garbage - 4));
        if (i % 2)
            memcpy(garbage, &mark, 4);
        assert_int_equal(flyt_connect(peer->url, 2000, &err, &fd), 0);
        (void)!send(fd, garbage, sizeof garbage, MSG_NOSIGNAL);
        close(fd);
        assert_int_equal(flyt_call_session_barrier(client.channel, &args, &res), FLYT_CHANNEL_OK);
    }
    flyt_channel_close(client.channel);
    test_peer_stop(peer);
    test_client_fini(&client);
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
        cmocka_unit_test(test_a_fork_while_data_streams_open),
        cmocka_unit_test(test_garbage_to_the_server),
    };

    unsetenv("FLYT_LOG");
    flyt_log_init("lost-test", FLYT_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
