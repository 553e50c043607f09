/* Tests of the client's channel against a peer in the same process, over each kind of endpoint. Raw servers that
 * misbehave are in lost_test.c. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "flyt_procedures.h"
#include "flyt_signatures.h"
#include "rpc/base/log.h"
#include "rpc/base/sha256.h"
#include "rpc/transport/test_pair.h"
#include "rpc/transport/test_values.h"

enum { MIB = 1024 * 1024 };

/* A peer and a channel to it. */
struct pair {
    struct test_peer peer;
    struct test_client client;
};

static struct pair *new_pair(void)
{
    struct pair *pair = calloc(1, sizeof *pair);

    test_peer_init(&pair->peer);
    test_client_init(&pair->client);
    return pair;
}

/* Over which endpoint all of this runs. */
static const char *scheme;

static void start(struct pair *pair)
{
    test_pair_open(&pair->peer, &pair->client, scheme);
}

static void stop(struct pair *pair)
{
    test_pair_close(&pair->peer, &pair->client);
    free(pair);
}

/* ---- opening ---- */

static void test_open_tells_what_the_handshake_said(void **state)
{
    struct pair *pair = new_pair();
    start(pair);
    const struct flyt_channel_info *info = flyt_channel_info(pair->client.channel);
    assert_int_equal(info->session_id, 77);
    assert_int_equal(info->device_count, 2);
    assert_int_equal(info->driver_version, 13000);
    assert_string_equal(info->server_build, "test peer");
    assert_false(flyt_channel_is_lost(pair->client.channel));
    assert_true(flyt_channel_has(pair->client.channel, FLYT_KERNEL_LAUNCH));
    assert_false(flyt_channel_has(pair->client.channel, 4000000));
    stop(pair);
    assert_null(flyt_channel_close(NULL));
    flyt_channel_abandon(NULL);
}

static void test_open_says_what_is_wrong(void **state)
{
    struct flyt_channel_config config = {.handlers = &test_client_handlers, .connect_timeout_ms = 2000};
    static const unsigned char other_hash[FLYT_HASH_BYTES] = {1};
    struct pair *pair = new_pair();
    struct flyt_channel *channel = NULL;
    struct flyt_error err;

    config.url = "nonsense";
    assert_int_equal(flyt_channel_open(&config, &err, &channel), -EINVAL);
    config.url = "unix:///tmp/flyt-nobody-is-here";
    assert_int_equal(flyt_channel_open(&config, &err, &channel), -ENOENT);
    assert_non_null(strstr(err.text, "/tmp/flyt-nobody-is-here"));
    config.url = "tcp://127.0.0.1:1";
    assert_int_equal(flyt_channel_open(&config, &err, &channel), -ECONNREFUSED);
    pair->peer.base_hash = other_hash;
    test_peer_start_on(&pair->peer, "unix");
    config.url = pair->peer.url;
    assert_int_equal(flyt_channel_open(&config, &err, &channel), -EPROTO);
    assert_non_null(strstr(err.text, "upgrade"));
    assert_non_null(strstr(err.text, pair->peer.url));
    assert_null(channel);
    test_peer_stop(&pair->peer);
    test_client_fini(&pair->client);
    free(pair);
}

static void test_signatures_decide_what_is_supported(void **state)
{
    struct pair *pair = new_pair();
    flyt_signature *theirs = malloc(sizeof *theirs * flyt_signature_count);
    unsigned count = 0;

    for (unsigned i = 0; i < flyt_signature_count; i++) {
        if (flyt_signatures[i].procedure == FLYT_STREAM_QUERY) /* a row that the server lacks */
            continue;
        theirs[count] = flyt_signatures[i];
        if (theirs[count].procedure == FLYT_KERNEL_LAUNCH) /* one that means another layout */
            theirs[count].signature ^= 1;
        count++;
    }
    pair->peer.signatures = theirs;
    pair->peer.signature_count = count;
    start(pair);
    struct flyt_channel *channel = pair->client.channel;
    flyt_stream_query_args query = {0};
    flyt_stream_query_res query_res;
    flyt_kernel_launch_args launch = {0};
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res barrier_res;
    assert_int_equal(flyt_call_stream_query(channel, &query, &query_res), FLYT_CHANNEL_UNSUPPORTED);
    assert_int_equal(flyt_send_kernel_launch(channel, &launch, NULL), FLYT_CHANNEL_UNSUPPORTED);
    assert_false(flyt_channel_has(channel, FLYT_KERNEL_LAUNCH));
    assert_int_equal(flyt_call_session_barrier(channel, &barrier, &barrier_res), FLYT_CHANNEL_OK);
    stop(pair);

    /* And the other way round: the client's tables are older. */
    pair = new_pair();
    pair->client.config.signatures = theirs;
    pair->client.config.signature_count = count;
    start(pair);
    assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &launch, NULL), FLYT_CHANNEL_UNSUPPORTED);
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &barrier_res), FLYT_CHANNEL_OK);
    stop(pair);
    free(theirs);
}

/* ---- calls ---- */

/* Every reply of a table's procedure passes through the channel as its own XDR routine encodes it. */
static void test_every_procedure_is_answered(void **state)
{
    struct pair *pair = new_pair();
    start(pair);
    for (unsigned i = 0; i < flyt_signature_count; i++) {
        unsigned procedure = flyt_signatures[i].procedure;
        const struct flyt_procedure *known = flyt_procedure_find(procedure);
        if (known->has_payload || procedure == FLYT_COPY_OUT_TRANSFER || procedure == FLYT_HOST_FUNCTION_LAUNCH)
            continue;
        void *args = calloc(1, known->args_bytes), *res = calloc(1, known->res_bytes + 1);
        if (procedure == FLYT_LIBRARY_GLOBAL)
            ((flyt_library_global_args *)args)->name = strdup("");
        int status = known->xdr_res ? flyt_channel_call(pair->client.channel, procedure, known->xdr_args, args,
                                                        known->xdr_res, res)
                                    : flyt_channel_send(pair->client.channel, procedure, known->xdr_args, args, NULL);
        if (status)
            fail_msg("%s: %d", known->name, status);
        if (known->xdr_res)
            xdr_free(known->xdr_res, res);
        xdr_free(known->xdr_args, args);
        free(args);
        free(res);
    }
    stop(pair);
}

/* The reply names the arguments. */
static bool serve_sum(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                      struct svc_req *req)
{
    if (procedure == FLYT_MEMORY_ALLOC) {
        const flyt_memory_alloc_args *alloc = args;
        ((flyt_memory_alloc_res *)res)->address = alloc->bytes * 3 + alloc->device;
    }
    return true;
}

struct caller {
    struct flyt_channel *channel;
    unsigned number, count;
    unsigned failures;
};

static void *call_often(void *argument)
{
    struct caller *caller = argument;
    flyt_memory_alloc_args args = {.device = caller->number};
    flyt_memory_free_args gone = {0};
    flyt_memory_alloc_res res;

    for (unsigned i = 0; i < caller->count; i++) {
        args.bytes = i;
        if (flyt_call_memory_alloc(caller->channel, &args, &res) || res.address != (uint64_t)i * 3 + caller->number)
            caller->failures++;
        if (i % 3 == 0 && flyt_send_memory_free(caller->channel, &gone, NULL))
            caller->failures++;
    }
    return NULL;
}

static void test_threads_get_their_own_replies(void **state)
{
    enum { THREADS = 12 };
    struct pair *pair = new_pair();
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    pair->peer.serve = serve_sum;
    start(pair);
    for (unsigned j = 0; j < THREADS; j++) {
        callers[j] = (struct caller){.channel = pair->client.channel, .number = j, .count = 400};
        pthread_create(&threads[j], NULL, call_often, &callers[j]);
    }
    for (unsigned j = 0; j < THREADS; j++) {
        pthread_join(threads[j], NULL);
        assert_int_equal(callers[j].failures, 0);
    }
    struct flyt_channel_counts counts = flyt_channel_counts(pair->client.channel);
    assert_int_equal(counts.replies, THREADS * 400);
    assert_int_equal(counts.calls, THREADS * (400 + 134));
    stop(pair);
}

/* Answers in the opposite order, when HELD calls have come. */
enum { HELD = 6 };

struct held_calls {
    uint32_t xids[HELD];
    uint64_t addresses[HELD];
    unsigned count;
};

static bool serve_backwards(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                            struct svc_req *req)
{
    struct held_calls *held = peer->user;
    const flyt_memory_alloc_args *alloc = args;

    if (procedure != FLYT_MEMORY_ALLOC)
        return true;
    held->xids[held->count] = flyt_connection_xid(link->connection);
    held->addresses[held->count++] = alloc->bytes * 3 + alloc->device;
    if (held->count == HELD) {
        while (held->count) {
            flyt_memory_alloc_res late = {.address = held->addresses[--held->count]};
            flyt_connection_reply(link->connection, held->xids[held->count], (xdrproc_t)xdr_flyt_memory_alloc_res,
                                  &late, NULL, 0);
        }
    }
    return false;
}

static void test_replies_in_any_order(void **state)
{
    struct pair *pair = new_pair();
    struct held_calls held = {.count = 0};
    struct caller callers[HELD];
    pthread_t threads[HELD];

    pair->peer.serve = serve_backwards;
    pair->peer.user = &held;
    start(pair);
    for (unsigned j = 0; j < HELD; j++) {
        callers[j] = (struct caller){.channel = pair->client.channel, .number = j, .count = 50};
        pthread_create(&threads[j], NULL, call_often, &callers[j]);
    }
    for (unsigned j = 0; j < HELD; j++) {
        pthread_join(threads[j], NULL);
        assert_int_equal(callers[j].failures, 0);
    }
    stop(pair);
}

static bool serve_refusal(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                          struct svc_req *req)
{
    if (procedure != FLYT_STREAM_QUERY)
        return true;
    svcerr_noproc(req->rq_xprt);
    return false;
}

static void test_unavailable_procedure_costs_no_connection(void **state)
{
    struct pair *pair = new_pair();
    flyt_stream_query_args query = {0};
    flyt_stream_query_res query_res;
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res barrier_res;

    pair->peer.serve = serve_refusal;
    start(pair);
    assert_int_equal(flyt_call_stream_query(pair->client.channel, &query, &query_res), FLYT_CHANNEL_UNSUPPORTED);
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &barrier_res), FLYT_CHANNEL_OK);
    stop(pair);
}

static void test_arguments_beyond_bounds_are_not_sent(void **state)
{
    struct pair *pair = new_pair();
    char *params = calloc(1, FLYT_PARAM_BYTES_MAX + 1);
    flyt_kernel_launch_args launch = {.params = {FLYT_PARAM_BYTES_MAX, params}};
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;
    uint64_t first, second;

    start(pair);
    assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &launch, &first), FLYT_CHANNEL_OK);
    launch.params.params_len++;
    assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &launch, NULL), FLYT_CHANNEL_UNSUPPORTED);
    launch.params.params_len--;
    assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &launch, &second), FLYT_CHANNEL_OK);
    assert_int_equal(second, first + 1);
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &res), FLYT_CHANNEL_OK);
    stop(pair);
    free(params);
}

/* ---- one-way calls ---- */

struct order {
    uint64_t next;
    _Atomic(uint64_t) seen;
    unsigned failures;
};

static bool serve_order(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                        struct svc_req *req)
{
    struct order *order = peer->user;

    if (procedure == FLYT_KERNEL_LAUNCH) {
        const flyt_kernel_launch_args *launch = args;
        if (launch->stream_id != order->next++ || (uint32_t)link->received != flyt_connection_xid(link->connection))
            order->failures++;
        atomic_store(&order->seen, order->next);
    }
    return true;
}

static void test_one_way_calls_keep_their_order(void **state)
{
    enum { CALLS = 100000 };
    struct pair *pair = new_pair();
    struct order order = {.next = 0};
    flyt_kernel_launch_args launch = {0};
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;
    pair->peer.serve = serve_order;
    pair->peer.user = &order;
    start(pair);
    for (uint64_t j = 0; j < CALLS; j++) {
        uint64_t sequence;
        launch.stream_id = j;
        assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &launch, &sequence), FLYT_CHANNEL_OK);
        assert_int_equal(sequence, j + 1);
    }
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &res), FLYT_CHANNEL_OK);
    assert_int_equal(order.next, CALLS);
    assert_int_equal(order.failures, 0);
    assert_int_equal(flyt_channel_progress(pair->client.channel).executed, CALLS + 1);
    /* Many calls per write: that is the point. */
    assert_true(flyt_channel_counts(pair->client.channel).writes < CALLS / 4);
    stop(pair);
}

/* Nothing waits for ever in the buffer: neither when the server tells that it is idle, nor when it says nothing. */
static void test_one_way_calls_arrive_by_themselves(void **state)
{
    for (int is_mute = 0; is_mute < 2; is_mute++) {
        struct pair *pair = new_pair();
        struct order order = {.next = 0};
        flyt_kernel_launch_args launch = {0};
        pair->peer.serve = serve_order;
        pair->peer.user = &order;
        pair->peer.is_mute = is_mute;
        start(pair);
        for (unsigned round = 1; round <= 30; round++) {
            for (unsigned j = 0; j < 5; j++, launch.stream_id++)
                assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &launch, NULL), FLYT_CHANNEL_OK);
            TEST_WAIT_UNTIL(atomic_load(&order.seen) >= round * 5);
            usleep(round * 1000); /* from busy to asleep */
        }
        assert_int_equal(order.failures, 0);
        stop(pair);
    }
}

static void test_buffered_calls_go_out_together(void **state)
{
    struct pair *pair = new_pair();
    struct order order = {.next = 0};
    flyt_kernel_launch_args launch = {0};

    pair->peer.serve = serve_order;
    pair->peer.user = &order;
    pair->peer.is_mute = true;
    start(pair);
    flyt_send_kernel_launch(pair->client.channel, &launch, NULL);
    TEST_WAIT_UNTIL(atomic_load(&order.seen) >= 1);
    uint64_t before = flyt_channel_counts(pair->client.channel).writes;
    for (launch.stream_id = 1; launch.stream_id < 50; launch.stream_id++)
        flyt_send_kernel_launch(pair->client.channel, &launch, NULL);
    assert_int_equal(flyt_channel_flush(pair->client.channel), FLYT_CHANNEL_OK);
    TEST_WAIT_UNTIL(atomic_load(&order.seen) >= 50);
    /* One for the flush, and a few where the tick of a slow machine came in between. */
    assert_in_range(flyt_channel_counts(pair->client.channel).writes - before, 1, 10);
    stop(pair);
}

/* ---- payloads ---- */

static void test_inline_payloads_both_ways(void **state)
{
    static const size_t sizes[] = {0, 1, 2, 3, 4, 5, 63, 64, 65, 1000, 4095, 4096, 4097, 65535, 65536};
    struct pair *pair = new_pair();
    struct flyt_test_random random = {5};
    char *out = malloc(FLYT_INLINE_BYTES_MAX), *back = malloc(FLYT_INLINE_BYTES_MAX + 1);
    pair->peer.memory_bytes = MIB;
    start(pair);
    for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++) {
        flyt_copy_in_args in = {.dst = {.address = j * 7}, .data = {(u_int)sizes[j], out}};
        flyt_copy_out_args args = {.src = {.address = j * 7, .width_bytes = sizes[j]}};
        flyt_copy_out_res res;
        flyt_test_bytes(&random, out, sizes[j]);
        back[sizes[j]] = 'x';
        assert_int_equal(flyt_send_copy_in(pair->client.channel, &in, NULL), FLYT_CHANNEL_OK);
        assert_int_equal(flyt_call_copy_out(pair->client.channel, &args, &res, back, sizes[j]), FLYT_CHANNEL_OK);
        assert_int_equal(res.data.data_len, sizes[j]);
        assert_null(res.data.data_val);
        assert_memory_equal(out, back, sizes[j]);
        assert_int_equal(back[sizes[j]], 'x');
    }
    stop(pair);
    free(out);
    free(back);
}

static void test_payload_longer_than_its_room_ends_the_connection(void **state)
{
    static const size_t sizes[] = {1, 100, 70000};
    for (int i = 0; i < 3; i++) {
        struct pair *pair = new_pair();
        char *back = calloc(1, sizes[i]);
        flyt_copy_out_args args = {.src = {.width_bytes = sizes[i]}};
        flyt_copy_out_res res;
        pair->peer.memory_bytes = MIB;
        start(pair);
        assert_int_equal(flyt_call_copy_out(pair->client.channel, &args, &res, back, sizes[i] - 1), FLYT_CHANNEL_LOST);
        xdr_free((xdrproc_t)xdr_flyt_copy_out_res, &res);
        assert_int_equal(back[sizes[i] - 1], 0);
        stop(pair);
        free(back);
    }
}

/* ---- transfers ---- */

static void transfer_both_ways(unsigned streams, size_t bytes)
{
    struct pair *pair = new_pair();
    struct flyt_test_random random = {6};
    unsigned char *out = malloc(bytes), *back = calloc(1, bytes);
    unsigned char sent[FLYT_SHA256_BYTES], received[FLYT_SHA256_BYTES];

    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        uint64_t number = flyt_test_number(&random);
        memcpy(out + i, &number, 8);
    }
    flyt_sha256_of(out, bytes, sent);
    pair->peer.memory_bytes = bytes;
    pair->peer.data_streams = streams;
    start(pair);
    assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, out, bytes), FLYT_CHANNEL_OK);
    memset(out, 0, bytes); /* it has been read */
    test_client_wait(&pair->client, &pair->peer.chunk_bytes, bytes);

    flyt_copy_out_transfer_args args = {.transfer_id = 9, .bytes = bytes};
    pair->client.place = back;
    pair->client.place_bytes = bytes;
    assert_int_equal(flyt_send_copy_out_transfer(pair->client.channel, &args, NULL), FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_flush(pair->client.channel), FLYT_CHANNEL_OK);
    test_client_wait(&pair->client, &pair->client.chunk_bytes, bytes);
    flyt_sha256_of(back, bytes, received);
    assert_memory_equal(sent, received, sizeof sent);

    assert_int_equal(pair->peer.link_count, 1 + (streams < 4 ? streams : 4));
    stop(pair);
    free(out);
    free(back);
}

static void test_transfers_over_data_streams(void **state)
{
    transfer_both_ways(8, (size_t)16 * MIB + 3);
    transfer_both_ways(1, (size_t)8 * MIB + 1);
}

static void test_transfers_over_the_main_connection(void **state)
{
    transfer_both_ways(0, (size_t)8 * MIB + 2);
}

/* Who listens goes away and comes back while data streams are opened, and does not know the session at once: all of
 * them come to be. */
static void test_data_streams_wait_for_a_restart(void **state)
{
    static unsigned char data[4 * MIB];
    struct pair *pair = new_pair();

    pair->peer.memory_bytes = sizeof data;
    pair->peer.data_streams = 4;
    pair->peer.closes_count = 3;
    pair->peer.busy_data_count = 2;
    start(pair);
    memset(data, 0xa7, sizeof data);
    assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, data, sizeof data), FLYT_CHANNEL_OK);
    test_client_wait(&pair->client, &pair->peer.chunk_bytes, sizeof data);
    assert_memory_equal(pair->peer.memory, data, sizeof data);
    assert_int_equal(pair->peer.closes_count, 0);
    assert_int_equal(pair->peer.busy_data_count, 0);
    assert_int_equal(pair->peer.link_count, 1 + 2 + 4);
    stop(pair);
}

static void count_done(void *user, uint64_t transfer_id, int status)
{
    atomic_fetch_add((_Atomic(uint64_t) *)user, status ? 1000000 : 1);
}

/* Small calls pass between the chunks of many transfers, from several threads. */
static void test_transfers_in_the_background(void **state)
{
    enum { TRANSFERS = 20 };
    for (unsigned streams = 0; streams < 4; streams += 3) {
        struct pair *pair = new_pair();
        _Atomic(uint64_t) done = 0;
        size_t each = 3 * MIB + 5;
        unsigned char *data = malloc(TRANSFERS * each);
        struct caller caller = {.number = 3, .count = 200};
        for (size_t i = 0; i < TRANSFERS * each; i++)
            data[i] = (unsigned char)(i * 31 >> 3);
        pair->peer.memory_bytes = TRANSFERS * each;
        pair->peer.data_streams = streams;
        pair->peer.serve = serve_sum;
        start(pair);
        for (unsigned i = 0; i < TRANSFERS; i++)
            assert_int_equal(flyt_channel_send_data_later(pair->client.channel, i * each, data + i * each, each,
                                                          count_done, (void *)&done),
                             FLYT_CHANNEL_OK);
        caller.channel = pair->client.channel;
        call_often(&caller);
        assert_int_equal(caller.failures, 0);
        test_client_wait(&pair->client, &done, TRANSFERS);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, TRANSFERS * each);
        assert_memory_equal(pair->peer.memory, data, TRANSFERS * each);
        stop(pair);
        free(data);
    }
}

struct striped {
    const unsigned char *rows;
    size_t width, pitch;
    _Atomic(uint64_t) done;
};

static void pack_rows(void *user, uint64_t offset_bytes, void *place, size_t bytes)
{
    const struct striped *striped = user;
    unsigned char *to = place;

    for (size_t i = 0; i < bytes; i++, offset_bytes++)
        to[i] = striped->rows[offset_bytes / striped->width * striped->pitch + offset_bytes % striped->width];
}

static void striped_done(void *user, uint64_t transfer_id, int status)
{
    count_done(&((struct striped *)user)->done, transfer_id, status);
}

/* Over data streams and over the main connection. */
static void test_data_is_packed_when_it_is_sent(void **state)
{
    enum { ROWS = 3001, WIDTH = 2000, PITCH = 2048 };
    for (unsigned streams = 0; streams < 4; streams += 3) {
        struct pair *pair = new_pair();
        unsigned char *rows = malloc(ROWS * PITCH);
        struct striped striped = {.rows = rows, .width = WIDTH, .pitch = PITCH};
        for (size_t i = 0; i < ROWS * PITCH; i++)
            rows[i] = i % PITCH < WIDTH ? (unsigned char)(i / PITCH * 7 + i % PITCH) : 0xee;
        pair->peer.memory_bytes = ROWS * WIDTH;
        pair->peer.data_streams = streams;
        start(pair);
        assert_int_equal(
            flyt_channel_send_packed_later(pair->client.channel, 0, pack_rows, ROWS * WIDTH, striped_done, &striped),
            FLYT_CHANNEL_OK);
        test_client_wait(&pair->client, &striped.done, 1);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, ROWS * WIDTH);
        for (size_t row = 0; row < ROWS; row++)
            assert_memory_equal(pair->peer.memory + row * WIDTH, rows + row * PITCH, WIDTH);
        stop(pair);
        free(rows);
    }
}

/* What comes over a stream is read while another one is still being opened. */
static void test_a_stream_is_read_before_all_are_open(void **state)
{
    struct pair *pair = new_pair();
    _Atomic(uint64_t) done = 0;
    unsigned char *data = calloc(1, 8 * MIB), back[4096] = {0};

    pair->peer.memory_bytes = 8 * MIB;
    pair->peer.data_streams = 2;
    pair->peer.free_streams = 1;
    atomic_store(&pair->peer.holds_streams, true);
    start(pair);
    memset(pair->peer.memory, 7, sizeof back);
    pair->client.place = back;
    pair->client.place_bytes = sizeof back;
    assert_int_equal(flyt_channel_send_data_later(pair->client.channel, 0, data, 8 * MIB, count_done, (void *)&done),
                     FLYT_CHANNEL_OK);
    TEST_WAIT_UNTIL(atomic_load(&pair->peer.held_streams) == 1);
    assert_int_equal(flyt_connection_send_chunk(pair->peer.links[1].connection, 9, 0, pair->peer.memory, sizeof back),
                     0);
    test_client_wait(&pair->client, &pair->client.chunk_bytes, sizeof back);
    assert_int_equal(back[0] + back[sizeof back - 1], 14);
    assert_int_equal(atomic_load(&done), 0);
    atomic_store(&pair->peer.holds_streams, false);
    test_client_wait(&pair->client, &done, 1);
    stop(pair);
    free(data);
}

/* ---- what the server calls ---- */

static void test_host_functions_during_calls_and_in_between(void **state)
{
    enum { FUNCTIONS = 200 };
    struct pair *pair = new_pair();
    flyt_host_function_launch_args launch = {0};
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;
    start(pair);
    pair->client.answers_host_functions = true; /* the handler sends a one-way call */
    for (unsigned j = 0; j < FUNCTIONS; j++) {
        launch.function_id = j;
        assert_int_equal(flyt_send_host_function_launch(pair->client.channel, &launch, NULL), FLYT_CHANNEL_OK);
        if (j % 3 == 0)
            assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &res), FLYT_CHANNEL_OK);
        if (j % 50 == 0)
            usleep(15000);
    }
    /* Nobody calls any more: the background thread hears of the rest. */
    test_client_wait(&pair->client, &pair->client.host_functions, FUNCTIONS);
    test_client_wait(&pair->client, &pair->peer.call_count, 2 * FUNCTIONS + FUNCTIONS / 3 + 1);
    stop(pair);
}

static bool serve_notices(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                          struct svc_req *req)
{
    flyt_back_output output = {.text = {5, "hello"}}, error_output = {.is_error = 1, .text = {4, "oops"}};
    flyt_back_call_error error = {.sequence = 4, .thread = 5, .result = 6};
    flyt_back_credit credit = {.stream_id = 7, .executed_calls = 8};
    flyt_back_pull pull = {.transfer_id = 9};
    flyt_back_transfer_failed failed = {.transfer_id = 10, .result = 11};
    flyt_back_fatal fatal = {.result = 12, .cause = "because"};
    struct flyt_connection *connection = link->connection;

    flyt_connection_call_back(connection, FLYT_BACK_NULL, (xdrproc_t)(void *)xdr_void, NULL);
    flyt_connection_call_back(connection, FLYT_BACK_OUTPUT, (xdrproc_t)xdr_flyt_back_output, &output);
    flyt_connection_call_back(connection, FLYT_BACK_OUTPUT, (xdrproc_t)xdr_flyt_back_output, &error_output);
    flyt_connection_call_back(connection, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    flyt_connection_call_back(connection, FLYT_BACK_CREDIT, (xdrproc_t)xdr_flyt_back_credit, &credit);
    flyt_connection_call_back(connection, FLYT_BACK_PULL, (xdrproc_t)xdr_flyt_back_pull, &pull);
    flyt_connection_call_back(connection, FLYT_BACK_TRANSFER_FAILED, (xdrproc_t)xdr_flyt_back_transfer_failed, &failed);
    flyt_connection_call_back(connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal, &fatal);
    flyt_connection_send_chunk(connection, 21, 4, "0123", 4);
    return true;
}

static void test_every_notice_reaches_its_handler(void **state)
{
    struct pair *pair = new_pair();
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;
    char place[16] = {0};

    pair->peer.serve = serve_notices;
    pair->client.place = (unsigned char *)place;
    pair->client.place_bytes = sizeof place;
    start(pair);
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &res), FLYT_CHANNEL_OK);
    assert_string_equal(pair->client.notices,
                        "output hello; error output oops; error 4 5 6; credit 7 8; pull 9; failed 10 11; "
                        "fatal 12 because; chunk 21 4 4; ");
    assert_memory_equal(place + 4, "0123", 4);
    stop(pair);
}

/* ---- the server asks for everything ---- */

enum { ASKED_THREADS = 4, ASKED_CALLS = 3000, ASKED_EVERY = 64, ASKED_WAITING_MAX = 32 };

/* One-way calls of several threads, each of which says how many have returned. Arrival is the peer's thread's. */
struct asking {
    struct flyt_channel *channel;
    _Atomic(unsigned) returned[ASKED_THREADS];
    unsigned arrived[ASKED_THREADS];
    unsigned expected[ASKED_WAITING_MAX][ASKED_THREADS]; /* by notice: had returned when it was sent */
    _Atomic(uint64_t) asked, answered, wrong;
};

static void ask(struct asking *self, struct test_link *link)
{
    uint64_t asked = atomic_load(&self->asked);

    if (asked - atomic_load(&self->answered) == ASKED_WAITING_MAX)
        return;
    for (unsigned i = 0; i < ASKED_THREADS; i++)
        self->expected[asked % ASKED_WAITING_MAX][i] = atomic_load(&self->returned[i]);
    flyt_back_send_all back = {.number = asked + 1};
    atomic_store(&self->asked, asked + 1);
    flyt_connection_call_back(link->connection, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &back);
    flyt_connection_flush(link->connection);
}

static bool serve_asking(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                         struct svc_req *req)
{
    struct asking *self = peer->user;

    if (procedure == FLYT_MEMORY_FREE) {
        unsigned thread = ((flyt_memory_free_args *)args)->thread;
        /* Order holds for each of them anyway. */
        if (((flyt_memory_free_args *)args)->address != self->arrived[thread]++)
            atomic_fetch_add(&self->wrong, 1);
    } else if (procedure == FLYT_SESSION_ALL_SENT) {
        uint64_t before = atomic_load(&self->answered);
        if (((flyt_session_all_sent_args *)args)->number != before + 1)
            atomic_fetch_add(&self->wrong, 1);
        for (unsigned i = 0; i < ASKED_THREADS; i++)
            if (self->arrived[i] < self->expected[before % ASKED_WAITING_MAX][i])
                atomic_fetch_add(&self->wrong, 1);
        atomic_store(&self->answered, before + 1);
        return true;
    }
    if (procedure == FLYT_SESSION_BARRIER || link->received % ASKED_EVERY == 0)
        ask(self, link);
    /* A peer that falls behind: senders meet a full socket while the notices come. */
    if (link->received % 1000 == 0)
        usleep(2000);
    return true;
}

struct asked_sender {
    struct asking *asking;
    unsigned thread;
};

static void *send_while_asked(void *argument)
{
    const struct asked_sender *self = argument;
    struct flyt_channel *channel = self->asking->channel;
    static char data[32768];

    for (unsigned i = 0; i < ASKED_CALLS; i++) {
        flyt_memory_free_args args = {.thread = self->thread, .address = i};
        if (flyt_send_memory_free(channel, &args, NULL))
            atomic_fetch_add(&self->asking->wrong, 1);
        atomic_store(&self->asking->returned[self->thread], i + 1);
        /* One waits for replies, and is then the reader; one fills the buffer with much. */
        if (self->thread == 1 && i % 16 == 0) {
            flyt_session_barrier_args barrier = {0};
            flyt_session_barrier_res res;
            if (flyt_call_session_barrier(channel, &barrier, &res))
                atomic_fetch_add(&self->asking->wrong, 1);
        } else if (self->thread == 2) {
            flyt_copy_in_args copy = {.dst = {.width_bytes = sizeof data}, .data = {sizeof data, data}};
            if (flyt_send_copy_in(channel, &copy, NULL))
                atomic_fetch_add(&self->asking->wrong, 1);
        }
    }
    return NULL;
}

static void test_all_is_sent_when_the_server_asks(void **state)
{
    struct pair *pair = new_pair();
    struct asking asking = {0};
    struct asked_sender senders[ASKED_THREADS];
    pthread_t threads[ASKED_THREADS];
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;

    pair->peer.serve = serve_asking;
    pair->peer.user = &asking;
    pair->peer.is_mute = true; /* says nothing that would make the client send by itself */
    pair->peer.memory_bytes = 1 * MIB;
    start(pair);
    asking.channel = pair->client.channel;
    for (unsigned j = 0; j < ASKED_THREADS; j++) {
        senders[j] = (struct asked_sender){&asking, j};
        assert_int_equal(pthread_create(&threads[j], NULL, send_while_asked, &senders[j]), 0);
    }
    for (unsigned j = 0; j < ASKED_THREADS; j++)
        pthread_join(threads[j], NULL);
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &res), FLYT_CHANNEL_OK);
    /* The last notices come when nobody calls any more. */
    test_client_wait(&pair->client, &asking.answered, atomic_load(&asking.asked));
    assert_true(atomic_load(&asking.asked) > ASKED_THREADS);
    assert_int_equal(asking.wrong, 0);
    for (unsigned j = 0; j < ASKED_THREADS; j++)
        assert_int_equal(asking.arrived[j], ASKED_CALLS);
    stop(pair);
}

/* ---- fork, and the RPC library's own handle ---- */

static void test_forked_child_lets_go(void **state)
{
    struct pair *pair = new_pair();
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;
    int status;

    pair->peer.data_streams = 2;
    pair->peer.memory_bytes = 2 * MIB;
    start(pair);
    unsigned char *data = calloc(1, 2 * MIB);
    assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, data, 2 * MIB), FLYT_CHANNEL_OK);
    pid_t child = fork();
    if (!child) {
        flyt_channel_abandon(pair->client.channel);
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(flyt_call_session_barrier(pair->client.channel, &barrier, &res), FLYT_CHANNEL_OK);
    stop(pair);
    free(data);
}

static void test_client_handle_for_rpcgen_stubs(void **state)
{
    struct pair *pair = new_pair();
    flyt_device_memory_info_args args = {0};
    flyt_device_memory_info_res res = {0};
    flyt_memory_free_args gone = {0};
    flyt_query_res query = {0};
    int fd = -1;

    start(pair);
    CLIENT *client = flyt_channel_client(pair->client.channel);
    assert_non_null(client);
    assert_int_equal(flyt_null_1(NULL, NULL, client), RPC_SUCCESS);
    assert_int_equal(flyt_query_1(NULL, &query, client), RPC_SUCCESS);
    assert_string_equal(query.build, "test peer");
    assert_true(clnt_freeres(client, (xdrproc_t)xdr_flyt_query_res, (caddr_t)&query));
    assert_int_equal(flyt_device_memory_info_1(&args, &res, client), RPC_SUCCESS);
    assert_int_equal(flyt_memory_free_1(&gone, NULL, client), RPC_SUCCESS); /* one-way */
    assert_true(clnt_control(client, CLGET_FD, &fd));
    assert_int_equal(fd >= 0, strcmp(scheme, "memory") != 0);
    test_peer_cut(&pair->peer);
    while (flyt_null_1(NULL, NULL, client) == RPC_SUCCESS)
        usleep(100);
    struct rpc_err error;
    clnt_geterr(client, &error);
    assert_int_equal(error.re_status, RPC_CANTRECV);
    clnt_destroy(client);
    stop(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open_tells_what_the_handshake_said),
        cmocka_unit_test(test_open_says_what_is_wrong),
        cmocka_unit_test(test_signatures_decide_what_is_supported),
        cmocka_unit_test(test_every_procedure_is_answered),
        cmocka_unit_test(test_threads_get_their_own_replies),
        cmocka_unit_test(test_replies_in_any_order),
        cmocka_unit_test(test_unavailable_procedure_costs_no_connection),
        cmocka_unit_test(test_arguments_beyond_bounds_are_not_sent),
        cmocka_unit_test(test_one_way_calls_keep_their_order),
        cmocka_unit_test(test_one_way_calls_arrive_by_themselves),
        cmocka_unit_test(test_buffered_calls_go_out_together),
        cmocka_unit_test(test_inline_payloads_both_ways),
        cmocka_unit_test(test_payload_longer_than_its_room_ends_the_connection),
        cmocka_unit_test(test_transfers_over_data_streams),
        cmocka_unit_test(test_data_streams_wait_for_a_restart),
        cmocka_unit_test(test_a_stream_is_read_before_all_are_open),
        cmocka_unit_test(test_transfers_over_the_main_connection),
        cmocka_unit_test(test_transfers_in_the_background),
        cmocka_unit_test(test_data_is_packed_when_it_is_sent),
        cmocka_unit_test(test_host_functions_during_calls_and_in_between),
        cmocka_unit_test(test_every_notice_reaches_its_handler),
        cmocka_unit_test(test_all_is_sent_when_the_server_asks),
        cmocka_unit_test(test_forked_child_lets_go),
        cmocka_unit_test(test_client_handle_for_rpcgen_stubs),
    };

    static const char *const schemes[] = {"unix", "tcp", "tls", "memory"};
    int failures = 0;

    flyt_log_init("channel-test", FLYT_LOG_WARN);
    for (unsigned i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        scheme = schemes[i];
        failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    }
    return failures;
}
