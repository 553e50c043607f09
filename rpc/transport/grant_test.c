/*
 * Tests of grants: a client sends of a transfer what the server has granted, and no more; to and from ends that know
 * nothing of them all goes as ever. (Every test of the channel has a peer with a small window, and fails where a chunk
 * comes that was not granted.)
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/test_pair.h"

enum { MIB = 1024 * 1024, BYTES = 5 * MIB + 123, WINDOW = TEST_PEER_WINDOW_BYTES };

struct pair {
    struct test_peer peer;
    struct test_client client;
    unsigned char *data;
    _Atomic(uint64_t) done_count;
    _Atomic(int) status;
};

static const char *scheme;

static struct pair *open_pair(unsigned data_streams, uint64_t window_bytes)
{
    struct pair *pair = calloc(1, sizeof *pair);

    test_peer_init(&pair->peer);
    test_client_init(&pair->client);
    pair->peer.data_streams = data_streams;
    pair->peer.window_bytes = window_bytes;
    pair->peer.memory_bytes = 8 * BYTES;
    pair->data = malloc(BYTES);
    for (size_t i = 0; i < BYTES; i++)
        pair->data[i] = (unsigned char)(i * 13 >> 4);
    test_pair_open(&pair->peer, &pair->client, scheme);
    return pair;
}

static void close_pair(struct pair *pair)
{
    test_pair_close(&pair->peer, &pair->client);
    free(pair->data);
    free(pair);
}

static void count(void *user, uint64_t transfer_id, int status)
{
    struct pair *pair = user;

    atomic_store(&pair->status, status);
    atomic_fetch_add(&pair->done_count, 1);
}

static void send_later(struct pair *pair, uint64_t transfer_id)
{
    assert_int_equal(flyt_channel_send_data_later(pair->client.channel, transfer_id, pair->data, BYTES, count, pair),
                     FLYT_CHANNEL_OK);
}

static void expect_all(struct pair *pair, uint64_t transfer_id, uint64_t count_before)
{
    test_client_wait(&pair->client, &pair->peer.chunk_bytes, count_before + BYTES);
    assert_memory_equal(pair->peer.memory + transfer_id, pair->data, BYTES);
}

/* A call that is answered: whatever else came before it has been read. */
static void make_sure(struct pair *pair)
{
    flyt_query_res res = {0};

    assert_int_equal(flyt_channel_call(pair->client.channel, FLYT_QUERY, (xdrproc_t)(void *)xdr_void, NULL,
                                       (xdrproc_t)xdr_flyt_query_res, &res),
                     FLYT_CHANNEL_OK);
    xdr_free((xdrproc_t)xdr_flyt_query_res, &res);
}

/* Of each transfer no byte behind the window, until the server grants some: one that gets all does not wait for the
 * other one. */
static void test_no_more_than_was_granted(void **state)
{
    for (unsigned data_streams = 0; data_streams <= 2; data_streams += 2) {
        struct pair *pair = open_pair(data_streams, WINDOW);
        struct test_peer *peer = &pair->peer;
        peer->is_own_granter = true;
        send_later(pair, 0);
        send_later(pair, BYTES);
        test_client_wait(&pair->client, &peer->chunk_bytes, 2 * WINDOW);
        make_sure(pair);
        assert_int_equal(atomic_load(&peer->chunk_bytes), 2 * WINDOW);
        test_peer_grant(peer, BYTES, WINDOW, 1000);
        test_client_wait(&pair->client, &peer->chunk_bytes, 2 * WINDOW + 1000);
        test_peer_grant(peer, BYTES, 0, UINT64_MAX);
        test_client_wait(&pair->client, &peer->chunk_bytes, WINDOW + BYTES);
        test_client_wait(&pair->client, &pair->done_count, 1);
        assert_memory_equal(peer->memory + BYTES, pair->data, BYTES);
        test_peer_grant(peer, 0, WINDOW, BYTES - WINDOW);
        test_peer_grant(peer, 0, BYTES, 7); /* there is no more of it */
        test_client_wait(&pair->client, &pair->done_count, 2);
        expect_all(pair, 0, BYTES);
        close_pair(pair);
    }
}

/* Two threads that send at a time, over data streams and over the main connection. */
static void *send_four(void *user)
{
    struct pair *pair = user;
    int status = FLYT_CHANNEL_OK;

    for (unsigned i = 0; i < 4 && !status; i++) {
        uint64_t transfer_id = atomic_fetch_add(&pair->done_count, 1);
        status = flyt_channel_send_data(pair->client.channel, transfer_id * BYTES, pair->data, BYTES);
    }
    atomic_store(&pair->status, status);
    return NULL;
}

static void test_threads_that_send(void **state)
{
    for (unsigned data_streams = 0; data_streams <= 3; data_streams += 3) {
        struct pair *pair = open_pair(data_streams, WINDOW);
        pthread_t threads[2];
        for (unsigned i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, send_four, pair), 0);
        for (unsigned i = 0; i < 2; i++)
            pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&pair->status), FLYT_CHANNEL_OK);
        expect_all(pair, 0, 7 * (uint64_t)BYTES);
        assert_true(atomic_load(&pair->peer.grant_count) > 8);
        close_pair(pair);
    }
}

/* A server that tells no window grants nothing, and gets all. */
static void test_a_server_without_grants(void **state)
{
    for (unsigned data_streams = 0; data_streams <= 2; data_streams += 2) {
        struct pair *pair = open_pair(data_streams, 0);
        assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, pair->data, BYTES), FLYT_CHANNEL_OK);
        expect_all(pair, 0, 0);
        assert_int_equal(atomic_load(&pair->peer.grant_count), 0);
        close_pair(pair);
    }
}

/* A client that does not say that it heeds grants is told no window. */
static void test_a_client_without_grants(void **state)
{
    char feature[FLYT_LATE_NUMBER_BYTES], other[] = "1234567890";
    flyt_handshake_args args = {0};
    flyt_handshake_res res = {0};

    assert_int_equal(flyt_handshake_answer_window(&args, WINDOW, &res), 0);
    args.features = flyt_handshake_put_number(UINT64_MAX - FLYT_CLIENT_HEEDS_GRANTS, feature);
    assert_int_equal(flyt_handshake_answer_window(&args, WINDOW, &res), 0);
    args.features = (flyt_late_bytes){.flyt_late_bytes_len = sizeof other, .flyt_late_bytes_val = other};
    assert_int_equal(flyt_handshake_answer_window(&args, WINDOW, &res), 0);
    assert_int_equal(res.window.flyt_late_bytes_len, 0);
    args.features = flyt_handshake_put_number(FLYT_CLIENT_HEEDS_GRANTS | 8, feature);
    assert_int_equal(flyt_handshake_answer_window(&args, WINDOW, &res), WINDOW);
    assert_int_equal(flyt_handshake_number(&res.window), WINDOW);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
}

/* Grants that cannot be. */
static void test_a_grant_that_leaves_a_hole(void **state)
{
    static const struct {
        uint64_t offset_bytes, bytes;
    } grants[] = {{WINDOW + 1, 10}, {UINT64_MAX, 1}, {WINDOW, UINT64_MAX}};

    for (unsigned i = 0; i < sizeof grants / sizeof grants[0]; i++) {
        struct pair *pair = open_pair(2, WINDOW);
        pair->peer.is_own_granter = true;
        send_later(pair, 0);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, WINDOW);
        test_peer_grant(&pair->peer, BYTES, 4 * MIB, 8); /* of a transfer that is over, as far as anybody knows */
        make_sure(pair);
        test_peer_grant(&pair->peer, 0, grants[i].offset_bytes, grants[i].bytes);
        test_client_wait(&pair->client, &pair->client.lost_count, 1);
        assert_non_null(strstr(pair->client.lost_cause, "granted"));
        assert_int_equal(atomic_load(&pair->status), FLYT_CHANNEL_LOST);
        close_pair(pair);
    }
}

/* Who waits for a grant is woken by the end. */
static void test_the_end_wakes_who_waits(void **state)
{
    for (unsigned data_streams = 0; data_streams <= 2; data_streams += 2) {
        struct pair *pair = open_pair(data_streams, WINDOW);
        pthread_t thread;
        pair->peer.is_own_granter = true;
        assert_int_equal(pthread_create(&thread, NULL, send_four, pair), 0);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, WINDOW);
        test_peer_cut(&pair->peer);
        pthread_join(thread, NULL);
        assert_int_equal(atomic_load(&pair->status), FLYT_CHANNEL_LOST);
        close_pair(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_more_than_was_granted),   cmocka_unit_test(test_threads_that_send),
        cmocka_unit_test(test_a_server_without_grants),    cmocka_unit_test(test_a_client_without_grants),
        cmocka_unit_test(test_a_grant_that_leaves_a_hole), cmocka_unit_test(test_the_end_wakes_who_waits),
    };
    static const char *const schemes[] = {"unix", "tcp", "tls", "memory"};
    int failures = 0;

    flyt_log_init("grant-test", FLYT_LOG_WARN);
    for (unsigned i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        scheme = schemes[i];
        failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    }
    return failures;
}
