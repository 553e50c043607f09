/*
 * Tests of a session that goes on over another connection, after the end of a server that owed nothing, and of every
 * way in which it cannot. Moves in the middle of work are in move_test.c, the rule is tested in resume_rule_test.c.
 */
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
#include "rpc/base/log.h"
#include "rpc/transport/channel_state.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/progress_page.h"
#include "rpc/transport/test_pair.h"

enum { MIB = 1024 * 1024 };

/* ---- a peer and a channel to it ---- */

struct pair {
    struct test_peer peer;
    struct test_client client;
    _Atomic(uint64_t) last;        /* the last call that was executed, over all connections */
    _Atomic(unsigned) wrong_count; /* executed twice, left out, or in another order */
    _Atomic(bool) is_silent;       /* calls are not answered */
    _Atomic(bool) is_deaf;         /* no call is taken */
    _Atomic(bool) has_stopped;     /* the first server executes no call any more */
    _Atomic(uint64_t) all_sent;    /* the number in the last session_all_sent */
    struct flyt_progress_page *page;
    int page_fd;
};

static bool execute(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                    struct svc_req *req)
{
    struct pair *pair = peer->user;

    if (link == &peer->links[0] && atomic_load(&pair->has_stopped))
        return false;
    while (atomic_load(&pair->is_deaf))
        usleep(1000);
    uint64_t sequence = atomic_fetch_add(&pair->last, 1) + 1;
    if (procedure == FLYT_SESSION_ALL_SENT)
        atomic_store(&pair->all_sent, ((const flyt_session_all_sent_args *)args)->number);
    if (link->received != sequence || flyt_connection_xid(link->connection) != (uint32_t)sequence)
        atomic_fetch_add(&pair->wrong_count, 1);
    return !atomic_load(&pair->is_silent);
}

static struct pair *new_pair(void)
{
    struct pair *pair = calloc(1, sizeof *pair);

    test_peer_init(&pair->peer);
    test_client_init(&pair->client);
    pair->peer.features = FLYT_FEATURE_RESUME;
    pair->peer.serve = execute;
    pair->peer.user = pair;
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
    assert_int_equal(atomic_load(&pair->wrong_count), 0);
    free(pair);
}

static void launch(struct pair *pair)
{
    flyt_kernel_launch_args args = {.kernel_id = 1};

    assert_int_equal(flyt_send_kernel_launch(pair->client.channel, &args, NULL), FLYT_CHANNEL_OK);
}

static int barrier(struct pair *pair)
{
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;

    return flyt_call_session_barrier(pair->client.channel, &args, &res);
}

static void work(struct pair *pair)
{
    for (int i = 0; i < 50; i++)
        launch(pair);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
}

static void wait_resumed(struct pair *pair, uint64_t count)
{
    TEST_WAIT_UNTIL(flyt_channel_counts(pair->client.channel).resumptions >= count ||
                    flyt_channel_is_lost(pair->client.channel));
    assert_false(flyt_channel_is_lost(pair->client.channel));
}

/* The channel is lost, once, and says `word`. */
static void expect_lost(struct pair *pair, const char *word)
{
    test_client_wait(&pair->client, &pair->client.lost_count, 1);
    if (!strstr(pair->client.lost_cause, word))
        fail_msg("not \"%s\": %s", word, pair->client.lost_cause);
    assert_true(flyt_channel_is_lost(pair->client.channel));
    assert_int_equal(barrier(pair), FLYT_CHANNEL_LOST);
    assert_int_equal(flyt_channel_counts(pair->client.channel).resumptions, 0);
}

/* ---- it goes on ---- */

static void test_an_idle_session_goes_on(void **state)
{
    struct pair *pair = new_pair();
    char note[64];
    start(pair);
    for (uint64_t round = 1; round <= 4; round++) {
        work(pair);
        atomic_store(&pair->peer.driver_version, 12080 + (unsigned)round); /* the next node's */
        test_peer_cut(&pair->peer);
        wait_resumed(pair, round);
        assert_int_equal(flyt_channel_info(pair->client.channel)->driver_version, 12080 + round);
        assert_int_equal(atomic_load(&pair->peer.resume_after), 51 * round);
        assert_int_equal(atomic_load(&pair->peer.restored_count), 2 * round);
        snprintf(note, sizeof note, "resume %u; ", (unsigned)(51 * round));
        assert_non_null(strstr(pair->client.notices, note));
        assert_int_equal(flyt_channel_progress(pair->client.channel).completed, 51 * round);
    }
    work(pair);
    assert_int_equal(atomic_load(&pair->last), 5 * 51);
    assert_int_equal(flyt_channel_counts(pair->client.channel).resumptions, 4);
    assert_int_equal(atomic_load(&pair->client.lost_count), 0);
    assert_int_equal(flyt_channel_info(pair->client.channel)->session_id, 77);
    stop(pair);
}

/* The first call after the server's end finds that out itself: it is sent to the next one, once. */
static void test_a_call_into_the_void_is_sent_again(void **state)
{
    struct pair *pair = new_pair();
    uint64_t calls = 0;

    start(pair);
    for (uint64_t round = 1; round <= 20; round++) {
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
        test_peer_cut(&pair->peer);
        for (uint64_t i = 0; i < round; i++)
            launch(pair);
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
        calls += 2 + round;
        assert_int_equal(atomic_load(&pair->last), calls);
        assert_int_equal(flyt_channel_counts(pair->client.channel).resumptions, round);
    }
    stop(pair);
}

static void new_page(struct pair *pair)
{
    assert_int_equal(flyt_progress_page_new(&pair->page, &pair->page_fd), 0);
    pair->peer.handshake_fds = &pair->page_fd;
    pair->peer.handshake_fd_count = 1;
}

/* No message has told that the calls are complete: the page, which outlives its server, does. */
static void test_the_page_of_a_dead_server_is_believed(void **state)
{
    struct pair *pair = new_pair();
    uint64_t executed = 51;

    pair->peer.features |= FLYT_FEATURE_PROGRESS_PAGE;
    pair->peer.is_mute = true;
    new_page(pair);
    start(pair);
    work(pair);
    for (int i = 0; i < 10; i++)
        launch(pair);
    assert_int_equal(flyt_channel_flush(pair->client.channel), FLYT_CHANNEL_OK);
    executed += 10;
    TEST_WAIT_UNTIL(atomic_load(&pair->last) >= executed);
    struct flyt_progress_page *old = pair->page;
    int old_fd = pair->page_fd;
    atomic_store(&old->completed, executed);
    atomic_store(&old->streams[3], executed);
    new_page(pair);
    test_peer_cut(&pair->peer);
    wait_resumed(pair, 1);
    assert_int_equal(atomic_load(&pair->peer.resume_after), executed);
    launch(pair);
    assert_int_equal(flyt_channel_stream_known(pair->client.channel, 3, executed), FLYT_CHANNEL_DONE);
    assert_int_equal(flyt_channel_stream_known(pair->client.channel, 3, executed + 1), FLYT_CHANNEL_PENDING);
    atomic_store(&old->streams[3], executed + 1); /* nobody looks there any more */
    assert_int_equal(flyt_channel_stream_known(pair->client.channel, 3, executed + 1), FLYT_CHANNEL_PENDING);
    atomic_store(&pair->page->streams[3], executed + 1);
    assert_int_equal(flyt_channel_stream_known(pair->client.channel, 3, executed + 1), FLYT_CHANNEL_DONE);
    flyt_progress_page_unmap(old);
    flyt_progress_page_unmap(pair->page);
    close(old_fd);
    int fd = pair->page_fd;
    stop(pair);
    close(fd);
}

/* How many progress pages a client has mapped: the server's mapping, in this process too, can be written to. */
static unsigned count_mapped_pages(void)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned count = 0;

    assert_non_null(maps);
    while (fgets(line, sizeof line, maps))
        count += strstr(line, "flyt-progress") && strstr(line, " r--s ");
    fclose(maps);
    return count;
}

struct watcher {
    struct pair *pair;
    _Atomic(bool) is_over;
    _Atomic(uint64_t) answer_count;
};

/* Looks at the page all the time, also while another one takes its place. */
static void *watch(void *user)
{
    struct watcher *self = user;

    while (!atomic_load(&self->is_over)) {
        if (flyt_channel_progress(self->pair->client.channel).completed > atomic_load(&self->pair->last))
            atomic_fetch_add(&self->pair->wrong_count, 1);
        atomic_fetch_add(&self->answer_count, 1);
    }
    return NULL;
}

static void close_page(struct pair *pair)
{
    flyt_progress_page_unmap(pair->page);
    close(pair->page_fd);
}

/* The next server has a page, or none; the old server's is not there any more. */
static void replace_server(struct pair *pair, bool has_page, uint64_t round)
{
    close_page(pair);
    new_page(pair);
    if (!has_page)
        pair->peer.handshake_fd_count = 0;
    pair->peer.features = FLYT_FEATURE_RESUME | (has_page ? FLYT_FEATURE_PROGRESS_PAGE : 0);
    test_peer_cut(&pair->peer);
    wait_resumed(pair, round);
}

/* One page is mapped, however often the session has gone on, and it is the last server's. */
static void test_no_page_is_left_over(void **state)
{
    struct pair *pair = new_pair();
    struct watcher watcher = {.pair = pair};
    pthread_t thread;

    pair->peer.features |= FLYT_FEATURE_PROGRESS_PAGE;
    new_page(pair);
    start(pair);
    assert_int_equal(pthread_create(&thread, NULL, watch, &watcher), 0);
    for (uint64_t round = 1; round <= 30; round++) {
        bool has_page = round % 5;
        work(pair);
        uint64_t answers = atomic_load(&watcher.answer_count);
        replace_server(pair, has_page, round);
        assert_int_equal(count_mapped_pages(), 1);
        atomic_store(&pair->page->streams[4], 1000 * round);
        assert_int_equal(flyt_channel_stream_known(pair->client.channel, 4, 1000 * round),
                         has_page ? FLYT_CHANNEL_DONE : FLYT_CHANNEL_UNKNOWN);
        TEST_WAIT_UNTIL(atomic_load(&watcher.answer_count) > answers);
    }
    atomic_store(&watcher.is_over, true);
    pthread_join(thread, NULL);
    stop(pair);
    assert_int_equal(count_mapped_pages(), 0);
}

static void test_data_streams_open_again(void **state)
{
    struct pair *pair = new_pair();
    unsigned char *data = calloc(1, 4 * MIB);
    pair->peer.data_streams = 2;
    pair->peer.memory_bytes = 4 * MIB;
    start(pair);
    for (uint64_t round = 1; round <= 3; round++) {
        flyt_copy_out_transfer_args out = {.transfer_id = 1, .bytes = 4 * MIB};
        memset(data, (int)round, 4 * MIB);
        pair->client.place = calloc(1, 4 * MIB);
        pair->client.place_bytes = 4 * MIB;
        assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, data, 4 * MIB), FLYT_CHANNEL_OK);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, round * 4 * MIB);
        assert_int_equal(flyt_send_copy_out_transfer(pair->client.channel, &out, NULL), FLYT_CHANNEL_OK);
        assert_int_equal(flyt_channel_flush(pair->client.channel), FLYT_CHANNEL_OK);
        test_client_wait(&pair->client, &pair->client.chunk_bytes, round * 4 * MIB);
        assert_memory_equal(pair->client.place, data, 4 * MIB);
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
        test_peer_cut(&pair->peer);
        wait_resumed(pair, round);
        free(pair->client.place);
        pair->client.place = NULL;
    }
    assert_true(flyt_channel_counts(pair->client.channel).sent_bytes > 12 * MIB);
    assert_true(flyt_channel_counts(pair->client.channel).received_bytes > 12 * MIB);
    free(data);
    stop(pair);
}

static void count_done(void *user, uint64_t transfer_id, int status)
{
    atomic_fetch_add((_Atomic(uint64_t) *)user, status == FLYT_CHANNEL_OK);
}

/* Data that goes beside the call that names it, as the server grants it. */
static int send_while_restoring(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    _Atomic(uint64_t) done = 0;
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;

    unsigned char *data = malloc(4 * MIB);
    memset(data, 0x77, 4 * MIB);
    int status = flyt_channel_send_data_later(fresh, 0, data, 4 * MIB, count_done, (void *)&done);
    status |= flyt_call_memory_restore(fresh, &args, &res);
    TEST_WAIT_UNTIL(atomic_load(&done));
    free(data);
    return status;
}

static void test_data_goes_over_the_fresh_connection(void **state)
{
    struct pair *pair = new_pair();
    unsigned char *data = malloc(4 * MIB);
    pair->peer.data_streams = 2;
    pair->peer.memory_bytes = 4 * MIB;
    pair->client.resume = send_while_restoring;
    start(pair);
    for (uint64_t round = 1; round <= 3; round++) {
        work(pair);
        test_peer_cut(&pair->peer);
        wait_resumed(pair, round);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, (2 * round - 1) * 4 * MIB);
        memset(data, 0x77, 4 * MIB);
        assert_memory_equal(pair->peer.memory, data, 4 * MIB);
        memset(data, (int)round, 4 * MIB);
        assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, data, 4 * MIB), FLYT_CHANNEL_OK);
        test_client_wait(&pair->client, &pair->peer.chunk_bytes, 2 * round * 4 * MIB);
        assert_memory_equal(pair->peer.memory, data, 4 * MIB);
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    }
    free(data);
    stop(pair);
}

static void test_a_node_that_is_busy_is_asked_again(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    work(pair);
    atomic_store(&pair->peer.busy_count, 3);
    pair->peer.closes_count = 2;
    test_peer_cut(&pair->peer);
    work(pair);
    assert_int_equal(atomic_load(&pair->peer.refused_count), 3);
    assert_int_equal(pair->peer.closes_count, 0);
    assert_int_equal(flyt_channel_counts(pair->client.channel).resumptions, 1);
    stop(pair);
}

static struct flyt_connection *last_connection(struct pair *pair)
{
    pthread_mutex_lock(&pair->peer.mutex);
    struct flyt_connection *connection = pair->peer.links[pair->peer.link_count - 1].connection;
    pthread_mutex_unlock(&pair->peer.mutex);
    return connection;
}

/* The next server asks at once whether all has been sent; what leads to it takes little. */
static int restore_and_ask(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct flyt_connection *connection = last_connection(client->test);
    flyt_back_send_all all = {.number = 5};
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;
    int bytes = MIB / 16, fd = flyt_endpoint_fd(fresh->endpoint);

    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes))
        return flyt_error_set(err, -errno, "SO_SNDBUF");
    flyt_connection_call_back(connection, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &all);
    flyt_connection_flush(connection);
    return flyt_call_memory_restore(fresh, &args, &res); /* its answer comes behind the notice */
}

/* It gets more calls again than that takes, and reads none of them: what it says is heard all the same, with the
 * answer to that question behind those calls. */
static void test_a_server_that_does_not_read_is_heard(void **state)
{
    struct pair *pair = new_pair();
    uint64_t sent = 51;
    flyt_back_host_function call = {.function_id = 9};

    start(pair);
    pair->client.resume = restore_and_ask;
    pair->client.test = pair;
    work(pair);
    atomic_store(&pair->peer.executed_max, sent);
    atomic_store(&pair->has_stopped, true);
    for (; flyt_channel_counts(pair->client.channel).sent_bytes < MIB; sent++)
        launch(pair);
    atomic_store(&pair->is_deaf, true);
    flyt_channel_move_after(pair->client.channel, 51);
    test_peer_cut(&pair->peer);
    wait_resumed(pair, 1);
    atomic_store(&pair->peer.executed_max, UINT64_MAX);
    struct flyt_connection *connection = last_connection(pair);
    flyt_connection_call_back(connection, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &call);
    flyt_connection_flush(connection);
    test_client_wait(&pair->client, &pair->client.host_functions, 1);
    assert_int_equal(atomic_load(&pair->last), 51);
    atomic_store(&pair->is_deaf, false);
    test_client_wait(&pair->client, &pair->all_sent, 5);
    assert_int_equal(atomic_load(&pair->last), sent + 1);
    work(pair);
    assert_int_equal(atomic_load(&pair->last), sent + 52);
    stop(pair);
}

/* ---- it cannot ---- */

static void test_unfinished_calls_lose_it(void **state)
{
    struct pair *pair = new_pair();
    start(pair);
    work(pair);
    atomic_store(&pair->peer.executed_max, 60); /* of those that follow not all are executed */
    work(pair);
    test_peer_cut(&pair->peer);
    expect_lost(pair, "ended while work was unfinished: calls were not complete");
    assert_int_equal(atomic_load(&pair->client.resume_count), 0);
    stop(pair);
}

static void *call_barrier(void *user)
{
    return barrier(user) == FLYT_CHANNEL_LOST ? user : NULL;
}

static void wait_last(struct pair *pair, uint64_t last)
{
    test_client_wait(&pair->client, &pair->last, last);
}

static void test_a_missing_answer_loses_it(void **state)
{
    struct pair *pair = new_pair();
    pthread_t thread;
    void *outcome;

    start(pair);
    work(pair);
    atomic_store(&pair->is_silent, true);
    pthread_create(&thread, NULL, call_barrier, pair);
    wait_last(pair, 52); /* its notice says that the call is executed */
    test_peer_cut(&pair->peer);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, pair);
    expect_lost(pair, "ended while work was unfinished");
    stop(pair);
}

static void *send_much(void *user)
{
    struct pair *pair = user;
    unsigned char *data = calloc(1, 64 * MIB);
    int status = flyt_channel_send_data(pair->client.channel, 0, data, 64 * MIB);

    free(data);
    return status == FLYT_CHANNEL_LOST ? user : NULL;
}

static void test_a_transfer_under_way_loses_it(void **state)
{
    for (unsigned streams = 0; streams <= 2; streams += 2) {
        struct pair *pair = new_pair();
        pthread_t thread;
        void *outcome;
        pair->peer.data_streams = streams;
        atomic_store(&pair->peer.holds_chunks, true);
        start(pair);
        work(pair);
        pthread_create(&thread, NULL, send_much, pair);
        TEST_WAIT_UNTIL(flyt_channel_counts(pair->client.channel).sent_bytes >= 65536);
        test_peer_cut(&pair->peer);
        pthread_join(thread, &outcome);
        assert_ptr_equal(outcome, pair);
        expect_lost(pair, "ended while work was unfinished: a transfer was under way");
        atomic_store(&pair->peer.holds_chunks, false);
        stop(pair);
    }
}

static bool has_note(struct pair *pair, const char *word)
{
    pthread_mutex_lock(&pair->client.mutex);
    bool has = strstr(pair->client.notices, word);
    pthread_mutex_unlock(&pair->client.mutex);
    return has;
}

/* A server that says nothing of it, a program that cannot, and one that has failed: lost at once, as ever. */
static void test_who_cannot_go_on_is_lost(void **state)
{
    static struct flyt_channel_handlers without;

    for (int i = 0; i < 3; i++) {
        struct pair *pair = new_pair();
        without = test_client_handlers;
        without.resume = NULL;
        if (i == 0)
            pair->peer.features = 0;
        if (i == 1)
            pair->client.config.handlers = &without;
        start(pair);
        work(pair);
        if (i == 2) {
            flyt_back_fatal fatal = {.result = 700, .cause = (char *)"it was the program"};
            flyt_connection_call_back(pair->peer.links[0].connection, FLYT_BACK_FATAL, (xdrproc_t)xdr_flyt_back_fatal,
                                      &fatal);
            flyt_connection_flush(pair->peer.links[0].connection);
            TEST_WAIT_UNTIL(has_note(pair, "fatal 700"));
        }
        test_peer_cut(&pair->peer);
        expect_lost(pair, "the server closed the connection");
        assert_int_equal(atomic_load(&pair->client.resume_count), 0);
        stop(pair);
    }
}

static void test_a_protocol_error_is_final(void **state)
{
    struct pair *pair = new_pair();
    static const unsigned char nonsense[] = {0x80, 0, 0, 8, 0, 0, 0, 9, 0, 0, 0, 9};

    start(pair);
    work(pair);
    const struct iovec part = {(void *)nonsense, sizeof nonsense};
    struct flyt_endpoint *endpoint = flyt_connection_endpoint(pair->peer.links[0].connection);
    assert_int_equal(flyt_endpoint_write(endpoint, &part, 1, true), sizeof nonsense);
    expect_lost(pair, "malformed");
    assert_int_equal(atomic_load(&pair->client.resume_count), 0);
    stop(pair);
}

static void test_a_session_that_is_gone_is_lost(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    work(pair);
    atomic_store(&pair->peer.resume_status, FLYT_HANDSHAKE_NO_SESSION);
    test_peer_cut(&pair->peer);
    expect_lost(pair, "cannot go on at another one");
    assert_int_equal(atomic_load(&pair->client.resume_count), 0);
    stop(pair);
}

/* Both: what was unfinished here, and why its node could not go on with it, from which more might have been learnt. */
static void test_the_node_says_why_it_is_gone(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    work(pair);
    atomic_store(&pair->peer.executed_max, 60);
    work(pair);
    pair->peer.resume_message = "the session has ended: it had what cannot be kept";
    atomic_store(&pair->peer.resume_status, FLYT_HANDSHAKE_NO_SESSION);
    test_peer_cut(&pair->peer);
    expect_lost(pair,
                "while work was unfinished: calls were not complete (the session has ended: it had what cannot be "
                "kept)");
    assert_int_equal(atomic_load(&pair->client.resume_count), 0);
    stop(pair);
}

/* Nobody listens there any more: it is given up after a while. */
static void test_a_node_that_is_gone_is_given_up(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    work(pair);
    test_peer_deafen(&pair->peer);
    test_peer_cut(&pair->peer);
    expect_lost(pair, "cannot go on at another one: cannot connect");
    stop(pair);
}

static void test_another_kind_of_server_is_refused(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    work(pair);
    pair->peer.signature_count = flyt_signature_count - 1;
    test_peer_cut(&pair->peer);
    expect_lost(pair, "lacks procedure");
    stop(pair);
}

/* ---- the making of the objects ---- */

static int fail_to_restore(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    return flyt_error_set(err, -ENOSPC, "a sentence of the handler");
}

static int cut_while_restoring(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct pair *pair = client->test;
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;

    test_peer_cut(&pair->peer);
    assert_int_equal(flyt_call_memory_restore(fresh, &args, &res), FLYT_CHANNEL_LOST);
    return flyt_error_set(err, -EPIPE, "lost too");
}

static int restore_with_an_error(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct pair *pair = client->test;
    struct test_link *link = &pair->peer.links[pair->peer.link_count - 1];
    flyt_back_call_error error = {.sequence = 1, .result = 2};

    flyt_connection_call_back(link->connection, FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    flyt_connection_flush(link->connection);
    return 0;
}

static int restore_and_name_the_error(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;

    restore_with_an_error(client, fresh, err);
    flyt_call_session_barrier(fresh, &args, &res); /* the error came before the answer */
    pthread_mutex_lock(&client->mutex);
    bool is_told = strstr(client->notices, "error") != NULL;
    pthread_mutex_unlock(&client->mutex);
    return flyt_error_set(err, -EIO, is_told ? "a stream is refused" : "nothing was told");
}

static int use_the_channel_itself(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    assert_int_equal(barrier(client->test), FLYT_CHANNEL_LOST);
    return flyt_error_set(err, -EINVAL, "it does not hang");
}

static void test_what_cannot_be_made_again_is_lost(void **state)
{
    static const struct {
        int (*resume)(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err);
        const char *word;
    } cases[] = {{fail_to_restore, "a sentence of the handler"},
                 {cut_while_restoring, "lost too"},
                 {restore_with_an_error, "could not make the session's objects again"},
                 {restore_and_name_the_error, "a stream is refused"},
                 {use_the_channel_itself, "it does not hang"}};

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair *pair = new_pair();
        start(pair);
        pair->client.resume = cases[i].resume;
        pair->client.test = pair;
        work(pair);
        test_peer_cut(&pair->peer);
        expect_lost(pair, cases[i].word);
        stop(pair);
    }
}

/* ---- while it is away ---- */

static void wait_refused(struct pair *pair, unsigned count)
{
    TEST_WAIT_UNTIL(atomic_load(&pair->peer.refused_count) >= count);
}

static void *send_launches(void *user)
{
    struct pair *pair = user;
    flyt_kernel_launch_args args = {.kernel_id = 1};

    while (!flyt_send_kernel_launch(pair->client.channel, &args, NULL))
        continue;
    return user;
}

/* Threads that send and wait while the channel is away: they get LOST when it is lost, and when it is closed. */
static void test_who_waits_is_woken_by_the_end(void **state)
{
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        struct pair *pair = new_pair();
        pthread_t threads[4];
        void *outcome;
        start(pair);
        work(pair);
        atomic_store(&pair->peer.busy_count, UINT32_MAX);
        test_peer_cut(&pair->peer);
        wait_refused(pair, 1);
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, i % 2 ? call_barrier : send_launches, pair);
        wait_refused(pair, 2);
        if (is_closed) {
            pair->client.channel = flyt_channel_close(pair->client.channel);
        } else {
            atomic_store(&pair->peer.resume_status, FLYT_HANDSHAKE_DENIED);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], &outcome);
            assert_ptr_equal(outcome, pair);
        }
        if (!is_closed)
            expect_lost(pair, "cannot go on");
        assert_int_equal(atomic_load(&pair->client.lost_count), !is_closed);
        assert_int_equal(atomic_load(&pair->last), 51);
        stop(pair);
    }
}

static int wait_for_ever(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct pair *pair = client->test;
    flyt_query_res res = {0};

    atomic_fetch_add(&pair->peer.refused_count, 1); /* here: has come so far */
    while (
        !flyt_channel_call(fresh, FLYT_QUERY, (xdrproc_t)(void *)xdr_void, NULL, (xdrproc_t)xdr_flyt_query_res, &res))
        xdr_free((xdrproc_t)xdr_flyt_query_res, &res);
    return flyt_error_set(err, -EPIPE, "closed");
}

static void test_closing_ends_the_making_of_objects(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    pair->client.resume = wait_for_ever;
    pair->client.test = pair;
    work(pair);
    test_peer_cut(&pair->peer);
    wait_refused(pair, 1);
    pair->client.channel = flyt_channel_close(pair->client.channel);
    assert_int_equal(atomic_load(&pair->client.lost_count), 0);
    stop(pair);
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

/* In the handler: a child that drops the channel has none of its sockets, neither the old one nor the new one. */
static int fork_while_restoring(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    int status = -1, before = count_sockets();
    pid_t child = fork();

    if (!child) {
        flyt_channel_abandon(client->channel);
        _exit(before - count_sockets());
    }
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 2 ? 0 : flyt_error_set(err, -EBADF, "status %d", status);
}

static void test_a_child_keeps_no_socket(void **state)
{
    struct pair *pair = new_pair();

    start(pair);
    pair->client.resume = fork_while_restoring;
    work(pair);
    test_peer_cut(&pair->peer);
    work(pair);
    assert_int_equal(flyt_channel_counts(pair->client.channel).resumptions, 1);
    stop(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_idle_session_goes_on),
        cmocka_unit_test(test_a_call_into_the_void_is_sent_again),
        cmocka_unit_test(test_data_streams_open_again),
        cmocka_unit_test(test_data_goes_over_the_fresh_connection),
        cmocka_unit_test(test_a_node_that_is_busy_is_asked_again),
        cmocka_unit_test(test_a_server_that_does_not_read_is_heard),
        cmocka_unit_test(test_unfinished_calls_lose_it),
        cmocka_unit_test(test_a_missing_answer_loses_it),
        cmocka_unit_test(test_a_transfer_under_way_loses_it),
        cmocka_unit_test(test_who_cannot_go_on_is_lost),
        cmocka_unit_test(test_a_protocol_error_is_final),
        cmocka_unit_test(test_a_session_that_is_gone_is_lost),
        cmocka_unit_test(test_the_node_says_why_it_is_gone),
        cmocka_unit_test(test_another_kind_of_server_is_refused),
        cmocka_unit_test(test_what_cannot_be_made_again_is_lost),
        cmocka_unit_test(test_who_waits_is_woken_by_the_end),
        cmocka_unit_test(test_closing_ends_the_making_of_objects),
    };
    const struct CMUnitTest tcp_tests[] = {
        cmocka_unit_test(test_an_idle_session_goes_on),
        cmocka_unit_test(test_data_streams_open_again),
        cmocka_unit_test(test_data_goes_over_the_fresh_connection),
        cmocka_unit_test(test_unfinished_calls_lose_it),
        cmocka_unit_test(test_what_cannot_be_made_again_is_lost),
        cmocka_unit_test(test_closing_ends_the_making_of_objects),
    };
    /* Descriptors come through, and are looked at; and what is tried for FLYT_CHANNEL_RESUME_MS. */
    const struct CMUnitTest unix_tests[] = {
        cmocka_unit_test(test_the_page_of_a_dead_server_is_believed),
        cmocka_unit_test(test_no_page_is_left_over),
        cmocka_unit_test(test_a_node_that_is_gone_is_given_up),
        cmocka_unit_test(test_a_child_keeps_no_socket),
    };
    int failures = 0;

    unsetenv("FLYT_LOG");
    flyt_log_init("resume-test", FLYT_LOG_WARN);
    scheme = "memory";
    failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    scheme = "tcp";
    failures += cmocka_run_group_tests_name(scheme, tcp_tests, NULL, NULL);
    scheme = "unix";
    failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    return failures + cmocka_run_group_tests_name("unix only", unix_tests, NULL, NULL);
}
