/*
 * Tests of a program that its server has stopped (send_gate_test.c) and moves away (FLYT_BACK_MOVED): the channel ends
 * the connection itself, and comes back, as often as it takes, to where it is told to look.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "rpc/base/log.h"
#include "rpc/transport/channel_state.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/progress_page.h"
#include "rpc/transport/test_client.h"
#include "rpc/transport/test_listener.h"
#include "rpc/transport/test_peer.h"

enum {
    LARGE_BYTES = 2 * FLYT_DATA_BYTES_MIN,
    UNTAKEN_BYTES = 64 * LARGE_BYTES,
    THREADS = 8,
    ROUNDS = 6,
    CALLS_APART = 30,
    PEERS = 2
};

/* ---- servers and a channel ---- */

struct stage {
    struct test_peer peers[PEERS]; /* it begins at the first one */
    struct test_client client;
    struct test_listener listener; /* before the first one, where it is encrypted */
    struct flyt_channel_handlers handlers;
    _Atomic(uint64_t) last; /* the last call that came, over all connections */
    _Atomic(uint64_t) stopped, stopped_at, all_sent, all_sent_at;
    _Atomic(unsigned) wrong_count; /* executed twice, left out, in another order, or while it stood still */
    _Atomic(bool) is_still, is_silent;
    _Atomic(unsigned) try_count; /* of `locate` or `resume` */
};

static bool serve(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                  struct svc_req *req)
{
    struct stage *stage = peer->user;
    uint64_t sequence = atomic_fetch_add(&stage->last, 1) + 1;

    if (link->received != sequence || flyt_connection_xid(link->connection) != (uint32_t)sequence ||
        atomic_load(&stage->is_still))
        atomic_fetch_add(&stage->wrong_count, 1);
    if (procedure == FLYT_SESSION_STOPPED) {
        atomic_store(&stage->is_still, true);
        atomic_store(&stage->stopped_at, sequence);
        atomic_store(&stage->stopped, ((const flyt_session_stopped_args *)args)->number);
    }
    if (procedure == FLYT_SESSION_ALL_SENT) {
        atomic_store(&stage->all_sent_at, sequence);
        atomic_store(&stage->all_sent, ((const flyt_session_all_sent_args *)args)->number);
    }
    return !atomic_load(&stage->is_silent);
}

static struct stage *new_stage(void)
{
    struct stage *stage = calloc(1, sizeof *stage);

    for (unsigned i = 0; i < PEERS; i++) {
        struct test_peer *peer = &stage->peers[i];
        test_peer_init(peer);
        peer->features = FLYT_FEATURE_RESUME;
        peer->serve = serve;
        peer->user = stage;
        peer->data_streams = 2;
        peer->memory_bytes = LARGE_BYTES;
    }
    test_client_init(&stage->client);
    stage->client.test = stage;
    stage->handlers = test_client_handlers;
    stage->client.config.handlers = &stage->handlers;
    return stage;
}

static void start(struct stage *stage, const char *scheme)
{
    for (unsigned i = 0; i < PEERS; i++)
        test_peer_start_on(&stage->peers[i], scheme);
    if (!strcmp(scheme, "tls")) {
        test_listener_open(&stage->listener, &stage->peers[0]);
        stage->client.config.credentials = &stage->listener.credentials;
    }
    stage->client.config.dial = stage->peers[0].dial;
    stage->client.config.dial_user = &stage->peers[0];
    test_client_open(&stage->client, stage->listener.greeter ? stage->listener.url : stage->peers[0].url);
}

static void stop(struct stage *stage)
{
    flyt_channel_close(stage->client.channel);
    if (stage->listener.greeter)
        test_listener_shut(&stage->listener);
    for (unsigned i = 0; i < PEERS; i++)
        test_peer_stop(&stage->peers[i]);
    test_client_fini(&stage->client);
    assert_int_equal(atomic_load(&stage->wrong_count), 0);
    free(stage);
}

static const char *const schemes[] = {"unix", "tcp", "tls", "memory"};
enum { SCHEMES = sizeof schemes / sizeof schemes[0] };

/* ---- what the server says ---- */

/*
 * Over the connection that the session has at this peer: the last one. The peer's thread may send it before this one
 * does, and a client that hears that it was moved hangs up: then there is nobody to flush to.
 */
static void tell(struct test_peer *peer, unsigned procedure, xdrproc_t xdr_args, void *args)
{
    struct flyt_connection *connection = NULL;

    pthread_mutex_lock(&peer->mutex);
    for (unsigned i = 0; i < peer->link_count; i++)
        if (peer->links[i].is_main)
            connection = peer->links[i].connection;
    pthread_mutex_unlock(&peer->mutex);
    assert_int_equal(flyt_connection_call_back(connection, procedure, xdr_args, args), 0);
    flyt_connection_flush(connection);
}

static void stop_program(struct stage *stage, struct test_peer *peer, uint64_t number)
{
    tell(peer, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &(flyt_back_stop){.number = number});
    TEST_WAIT_UNTIL(atomic_load(&stage->stopped) >= number);
}

static void tell_moved(struct stage *stage, struct test_peer *peer, uint64_t wait_ms, unsigned flags)
{
    flyt_back_moved moved = {.sequence = atomic_load(&stage->stopped_at), .wait_ms = wait_ms, .flags = flags};

    atomic_store(&stage->is_still, false);
    tell(peer, FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
}

/* ---- the program ---- */

static int launch(struct stage *stage)
{
    flyt_kernel_launch_args args = {.kernel_id = 1};

    return flyt_send_kernel_launch(stage->client.channel, &args, NULL);
}

static int barrier(struct stage *stage)
{
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;

    return flyt_call_session_barrier(stage->client.channel, &args, &res);
}

static void work(struct stage *stage)
{
    for (int i = 0; i < 20; i++)
        assert_int_equal(launch(stage), FLYT_CHANNEL_OK);
    assert_int_equal(barrier(stage), FLYT_CHANNEL_OK);
}

/* Stops a session that has done something, moves it, and works on: that waits until it has come back. */
static void move(struct stage *stage, uint64_t wait_ms, unsigned flags)
{
    work(stage);
    stop_program(stage, &stage->peers[0], atomic_load(&stage->stopped) + 1);
    tell_moved(stage, &stage->peers[0], wait_ms, flags);
}

static uint64_t resumptions(const struct stage *stage)
{
    return flyt_channel_counts(stage->client.channel).resumptions;
}

static void expect_lost(struct stage *stage, const char *word)
{
    test_client_wait(&stage->client, &stage->client.lost_count, 1);
    if (!strstr(stage->client.lost_cause, word))
        fail_msg("not \"%s\": %s", word, stage->client.lost_cause);
    assert_int_equal(barrier(stage), FLYT_CHANNEL_LOST);
    assert_int_equal(resumptions(stage), 0);
}

/* ---- it comes back ---- */

struct caller {
    struct stage *stage;
    _Atomic(bool) *is_ending;
    _Atomic(uint64_t) count;
    unsigned wrong_count;
};

static void *call(void *user)
{
    struct caller *self = user;

    while (!atomic_load(self->is_ending)) {
        uint64_t i = atomic_fetch_add(&self->count, 1);
        self->wrong_count += (i % 7 ? launch(self->stage) : barrier(self->stage)) != FLYT_CHANNEL_OK;
    }
    return NULL;
}

static void wait_calls(struct caller *callers)
{
    for (unsigned i = 0; i < THREADS; i++) {
        uint64_t first = atomic_load(&callers[i].count);
        TEST_WAIT_UNTIL(atomic_load(&callers[i].count) >= first + CALLS_APART);
    }
}

/* Every second time to a server that has everything. */
static void run_rounds(struct stage *stage, struct caller *callers)
{
    struct test_peer *peer = &stage->peers[0];
    unsigned whole = 0;

    for (uint64_t round = 1; round <= ROUNDS; round++) {
        bool is_whole = round % 2;
        char note[64];
        wait_calls(callers);
        atomic_store(&peer->is_whole, is_whole);
        stop_program(stage, peer, round);
        uint64_t after = atomic_load(&stage->stopped_at);
        tell_moved(stage, peer, 0, 0);
        wait_calls(callers);
        whole += is_whole;
        assert_int_equal(resumptions(stage), round);
        assert_int_equal(atomic_load(&peer->whole_count), round);
        assert_int_equal(atomic_load(&peer->restored_count), 2 * (round - whole));
        assert_int_equal(atomic_load(&peer->resume_after), after);
        snprintf(note, sizeof note, "%s %" PRIu64 "; ", is_whole ? "stay" : "resume", after);
        pthread_mutex_lock(&stage->client.mutex);
        assert_non_null(strstr(stage->client.notices, note));
        pthread_mutex_unlock(&stage->client.mutex);
    }
}

static void test_threads_go_on_behind_the_stop(void **state)
{
    for (unsigned scheme = 0; scheme < SCHEMES; scheme++) {
        struct stage *stage = new_stage();
        struct caller callers[THREADS] = {0};
        pthread_t threads[THREADS];
        _Atomic(bool) is_ending = false;
        start(stage, schemes[scheme]);
        for (unsigned i = 0; i < THREADS; i++) {
            callers[i] = (struct caller){.stage = stage, .is_ending = &is_ending};
            assert_int_equal(pthread_create(&threads[i], NULL, call, &callers[i]), 0);
        }
        run_rounds(stage, callers);
        atomic_store(&is_ending, true);
        for (unsigned i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(callers[i].wrong_count, 0);
        }
        assert_int_equal(barrier(stage), FLYT_CHANNEL_OK);
        assert_int_equal(atomic_load(&stage->client.lost_count), 0);
        stop(stage);
    }
}

/* Servers of builds that cannot say whether they have everything are given everything. */
static void test_a_server_that_is_not_asked(void **state)
{
    struct stage *stage = new_stage();
    struct test_peer *peer = &stage->peers[0];
    flyt_signature *some = calloc(peer->signature_count, sizeof *some);
    unsigned count = 0;

    for (unsigned i = 0; i < peer->signature_count; i++)
        if (peer->signatures[i].procedure != FLYT_SESSION_IS_WHOLE)
            some[count++] = peer->signatures[i];
    peer->signatures = some;
    peer->signature_count = count;
    atomic_store(&peer->is_whole, true);
    start(stage, "unix");
    move(stage, 0, 0);
    work(stage);
    assert_int_equal(atomic_load(&peer->whole_count), 0);
    assert_int_equal(atomic_load(&peer->restored_count), 2);
    stop(stage);
    free(some);
}

/* The page goes on, with errors that were heard long ago: it is believed. */
static void test_the_page_of_a_server_that_has_everything(void **state)
{
    struct stage *stage = new_stage();
    struct flyt_progress_page *page;
    flyt_back_call_error error = {.sequence = 1, .thread = 1, .result = 2};
    int page_fd;

    assert_int_equal(flyt_progress_page_new(&page, &page_fd), 0);
    stage->peers[0].features |= FLYT_FEATURE_PROGRESS_PAGE;
    stage->peers[0].handshake_fds = &page_fd;
    stage->peers[0].handshake_fd_count = 1;
    atomic_store(&stage->peers[0].is_whole, true);
    start(stage, "unix");
    atomic_store(&page->error_count, 1);
    tell(&stage->peers[0], FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
    move(stage, 0, 0);
    work(stage);
    atomic_store(&page->streams[3], 1000);
    assert_int_equal(flyt_channel_stream_known(stage->client.channel, 3, 1000), FLYT_CHANNEL_DONE);
    atomic_store(&page->error_count, 2); /* one that is on its way */
    assert_int_equal(flyt_channel_stream_known(stage->client.channel, 3, 1000), FLYT_CHANNEL_UNKNOWN);
    flyt_progress_page_unmap(page);
    stop(stage);
    close(page_fd);
}

/* ---- tries that fail ---- */

static int fail_and_fail(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct stage *stage = client->test;
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;
    flyt_back_call_error error = {.sequence = 1, .result = 2};

    switch (atomic_fetch_add(&stage->try_count, 1)) {
    case 0:
        return flyt_error_set(err, -EIO, "a module cannot be loaded");
    case 1:
        test_peer_cut(&stage->peers[0]);
        assert_int_equal(flyt_call_memory_restore(fresh, &args, &res), FLYT_CHANNEL_LOST);
        return flyt_error_set(err, -EPIPE, "lost too");
    case 2:
        tell(&stage->peers[0], FLYT_BACK_CALL_ERROR, (xdrproc_t)xdr_flyt_back_call_error, &error);
        break;
    default:
        break;
    }
    return flyt_call_memory_restore(fresh, &args, &res); /* its answer comes behind the error */
}

/* Refused, closed, not restored, cut, an error of a one-way call, an end that is refused twice: then it succeeds. */
static void test_what_fails_is_begun_anew(void **state)
{
    for (unsigned scheme = 0; scheme < SCHEMES; scheme++) {
        struct stage *stage = new_stage();
        struct test_peer *peer = &stage->peers[0];
        start(stage, schemes[scheme]);
        stage->client.resume = fail_and_fail;
        work(stage);
        stop_program(stage, peer, 1);
        atomic_store(&peer->busy_count, 3);
        peer->closes_count = 2;
        atomic_store(&peer->unresumed_count, 2);
        tell_moved(stage, peer, 0, 0);
        work(stage);
        assert_int_equal(atomic_load(&peer->refused_count), 3);
        assert_int_equal(peer->closes_count, 0);
        assert_int_equal(atomic_load(&peer->unresumed_count), 0);
        assert_int_equal(atomic_load(&stage->try_count), 6);
        assert_int_equal(resumptions(stage), 1);
        assert_int_equal(atomic_load(&stage->client.lost_count), 0);
        stop(stage);
    }
}

/* The target does not make it, and the server that was left has everything. */
static int fail_until_it_stays(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct stage *stage = client->test;

    if (!fresh)
        return 0;
    if (atomic_fetch_add(&stage->try_count, 1))
        atomic_store(&stage->peers[0].is_whole, true);
    return flyt_error_set(err, -EIO, "an address differs");
}

static void test_it_stays_where_it_was(void **state)
{
    struct stage *stage = new_stage();

    start(stage, "tcp");
    stage->client.resume = fail_until_it_stays;
    move(stage, 0, 0);
    work(stage);
    assert_int_equal(atomic_load(&stage->try_count), 2);
    assert_int_equal(atomic_load(&stage->peers[0].whole_count), 3);
    assert_int_equal(atomic_load(&stage->peers[0].restored_count), 0);
    assert_int_equal(atomic_load(&stage->peers[0].reason_count), 2);
    assert_string_equal(stage->peers[0].reason, "an address differs");
    assert_int_equal(resumptions(stage), 1);
    stop(stage);
}

/* ---- where it is ---- */

/* Nobody knows; nobody is there; not with these credentials; and then there. */
static int locate(void *user, unsigned attempt, struct flyt_channel_place *place, struct flyt_error *err)
{
    struct test_client *client = user;
    struct stage *stage = client->test;
    static const char nowhere[] = "unix:///tmp/flyt-moved-test-nowhere";
    static char key[2];

    if (strncmp(place->url, "unix:", 5) != 0 || place->credentials.data)
        atomic_fetch_add(&stage->wrong_count, 1);
    if (attempt != atomic_fetch_add(&stage->try_count, 1))
        atomic_fetch_add(&stage->wrong_count, 1);
    if (attempt == 0)
        return flyt_error_set(err, -EAGAIN, "nobody has decided");
    atomic_store(&stage->peers[1].resume_status, attempt == 2 ? FLYT_HANDSHAKE_DENIED : FLYT_HANDSHAKE_OK);
    snprintf(place->url, sizeof place->url, "%s", attempt == 1 ? nowhere : stage->peers[1].url);
    key[0] = (char)('0' + attempt);
    place->credentials.data = key;
    place->credentials.bytes = 1;
    return 0;
}

static void test_it_is_asked_where_it_is(void **state)
{
    struct stage *stage = new_stage();
    static unsigned char data[LARGE_BYTES];

    stage->handlers.locate = locate;
    start(stage, "unix");
    move(stage, 0, FLYT_MOVED_ASK_AGAIN);
    work(stage);
    assert_int_equal(atomic_load(&stage->try_count), 4);
    assert_int_equal(atomic_load(&stage->peers[1].restored_count), 2);
    assert_int_equal(atomic_load(&stage->peers[1].key), '3');
    assert_int_equal(stage->peers[0].link_count, 1);
    /* Data streams go there, too, and so does the next time, with these credentials. */
    memset(data, 7, sizeof data);
    assert_int_equal(flyt_channel_send_data(stage->client.channel, 0, data, sizeof data), FLYT_CHANNEL_OK);
    test_client_wait(&stage->client, &stage->peers[1].chunk_bytes, sizeof data);
    assert_memory_equal(stage->peers[1].memory, data, sizeof data);
    assert_int_equal(barrier(stage), FLYT_CHANNEL_OK);
    atomic_store(&stage->peers[1].key, 0);
    stop_program(stage, &stage->peers[1], 2);
    tell_moved(stage, &stage->peers[1], 0, 0);
    work(stage);
    assert_int_equal(resumptions(stage), 2);
    assert_int_equal(atomic_load(&stage->peers[1].key), '3');
    assert_int_equal(atomic_load(&stage->try_count), 4);
    stop(stage);
}

/* The old server says nothing any more; this one has what it had. */
static void die(struct stage *stage, struct flyt_call_state *left_at)
{
    const uint64_t sequence = atomic_load(&stage->stopped_at);

    *left_at = (struct flyt_call_state){sequence, sequence, sequence, 0};
    stage->peers[1].left_at = left_at;
    atomic_store(&stage->is_still, false);
    test_peer_cut(&stage->peers[0]);
}

static int locate_other(void *user, unsigned attempt, struct flyt_channel_place *place, struct flyt_error *err)
{
    struct stage *stage = ((struct test_client *)user)->test;

    atomic_fetch_add(&stage->try_count, 1);
    snprintf(place->url, sizeof place->url, "%s", stage->peers[1].url);
    return 0;
}

/* It had stopped, and its connection ends without a word: it may have been moved, and looks for itself there, too. What
 * it does not know to be complete it asks. */
static void test_it_looks_for_itself(void **state)
{
    static const unsigned answers[] = {FLYT_HANDSHAKE_BUSY, FLYT_HANDSHAKE_DENIED};

    for (unsigned i = 0; i < 2; i++) {
        struct stage *stage = new_stage();
        struct flyt_call_state left_at;
        stage->handlers.locate = locate_other;
        stage->peers[0].is_mute = true;
        start(stage, "unix");
        work(stage);
        atomic_store(&stage->peers[0].resume_status, answers[i]);
        stop_program(stage, &stage->peers[0], 1);
        die(stage, &left_at);
        work(stage);
        assert_int_equal(atomic_load(&stage->try_count), 1);
        assert_int_equal(atomic_load(&stage->peers[1].resume_after), left_at.executed);
        assert_int_equal(atomic_load(&stage->peers[1].whole_count), 1);
        assert_int_equal(resumptions(stage), 1);
        stop(stage);
    }
}

/* The same, and it was to be moved, which it has not heard: the server that it comes back to has everything. Whether it
 * knows that all is complete, or has to ask. */
static void test_it_has_not_heard_that_it_was_moved(void **state)
{
    for (unsigned is_mute = 0; is_mute < 2; is_mute++) {
        struct stage *stage = new_stage();
        struct test_peer *peer = &stage->peers[0];
        struct flyt_call_state left_at;
        stage->handlers.locate = locate_other;
        peer->is_mute = is_mute;
        start(stage, "unix");
        work(stage);
        stop_program(stage, peer, 1);
        atomic_store(&peer->is_whole, true);
        peer->left_at = &left_at;
        die(stage, &left_at);
        work(stage);
        assert_int_equal(atomic_load(&peer->whole_count), 1);
        assert_int_equal(atomic_load(&peer->restored_count), 0);
        assert_int_equal(atomic_load(&peer->resume_after), left_at.executed);
        assert_int_equal(atomic_load(&stage->peers[1].whole_count), 0);
        assert_int_equal(resumptions(stage), 1);
        stop(stage);
    }
}

/* The first server that takes it is lost: it is the first one's again. */
static int lose_the_other(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct stage *stage = client->test;
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;

    if (!fresh)
        return 0;
    test_peer_cut(&stage->peers[1]);
    assert_int_equal(flyt_call_memory_restore(fresh, &args, &res), FLYT_CHANNEL_LOST);
    atomic_store(&stage->peers[0].is_whole, true);
    atomic_store(&stage->peers[1].resume_status, FLYT_HANDSHAKE_BUSY);
    atomic_store(&stage->peers[0].resume_status, FLYT_HANDSHAKE_OK);
    return flyt_error_set(err, -EPIPE, "lost too");
}

static void test_it_comes_back_from_elsewhere(void **state)
{
    struct stage *stage = new_stage();
    struct flyt_call_state left_at;

    stage->handlers.locate = locate_other;
    stage->client.resume = lose_the_other;
    start(stage, "unix");
    work(stage);
    stop_program(stage, &stage->peers[0], 1);
    atomic_store(&stage->peers[0].resume_status, FLYT_HANDSHAKE_BUSY);
    die(stage, &left_at);
    work(stage);
    assert_int_equal(atomic_load(&stage->peers[1].whole_count), 1);
    assert_int_equal(atomic_load(&stage->peers[0].whole_count), 1);
    assert_int_equal(atomic_load(&stage->peers[0].resume_after), left_at.executed);
    assert_int_equal(resumptions(stage), 1);
    stop(stage);
}

/* It was not moved, and is not there any more. */
static void test_it_is_nowhere(void **state)
{
    struct stage *stage = new_stage();
    struct flyt_call_state left_at;

    stage->handlers.locate = locate_other;
    start(stage, "unix");
    work(stage);
    atomic_store(&stage->peers[0].resume_status, FLYT_HANDSHAKE_NO_SESSION);
    stop_program(stage, &stage->peers[0], 1);
    die(stage, &left_at);
    expect_lost(stage, "");
    assert_int_equal(atomic_load(&stage->try_count), 0);
    stop(stage);
}

/* What is there is what was there earlier. */
static void test_it_is_older(void **state)
{
    struct stage *stage = new_stage();
    struct flyt_call_state left_at;

    stage->handlers.locate = locate_other;
    start(stage, "unix");
    work(stage);
    atomic_store(&stage->peers[0].resume_status, FLYT_HANDSHAKE_BUSY);
    stage->peers[0].is_mute = true;
    stop_program(stage, &stage->peers[0], 1);
    left_at = (struct flyt_call_state){20, 20, 20, 0}; /* the barrier has told more */
    stage->peers[1].left_at = &left_at;
    atomic_store(&stage->is_still, false);
    test_peer_cut(&stage->peers[0]);
    expect_lost(stage, "");
    assert_int_equal(atomic_load(&stage->peers[1].resume_after), 0);
    stop(stage);
}

/* Where it was is where it goes on: it is looked for there first. */
static void test_it_is_where_it_was(void **state)
{
    struct stage *stage = new_stage();
    struct flyt_call_state left_at;

    stage->handlers.locate = locate_other;
    start(stage, "unix");
    work(stage);
    stop_program(stage, &stage->peers[0], 1);
    stage->peers[0].left_at = &left_at;
    die(stage, &left_at);
    work(stage);
    assert_int_equal(atomic_load(&stage->try_count), 0);
    assert_int_equal(atomic_load(&stage->peers[0].resume_after), left_at.executed);
    assert_int_equal(resumptions(stage), 1);
    stop(stage);
}

/* One that runs is where it was, or nowhere. */
static void test_one_that_runs_asks_nobody(void **state)
{
    struct stage *stage = new_stage();

    stage->handlers.locate = locate_other;
    start(stage, "unix");
    work(stage);
    atomic_store(&stage->peers[0].resume_status, FLYT_HANDSHAKE_NO_SESSION);
    test_peer_cut(&stage->peers[0]);
    expect_lost(stage, "cannot go on at another one: it refused");
    assert_int_equal(atomic_load(&stage->try_count), 0);
    stop(stage);
}

/* Without such a handler it is where it was. */
static void test_nobody_can_be_asked(void **state)
{
    struct stage *stage = new_stage();

    start(stage, "unix");
    move(stage, 0, FLYT_MOVED_ASK_AGAIN);
    work(stage);
    assert_int_equal(resumptions(stage), 1);
    stop(stage);
}

/* ---- it is lost ---- */

/* Nothing is said before that; whoever waits at the gate gets to know it. */
static void test_the_time_is_over(void **state)
{
    struct stage *stage = new_stage();

    start(stage, "unix");
    atomic_store(&stage->peers[0].busy_count, UINT32_MAX);
    move(stage, 300, 0);
    assert_int_equal(barrier(stage), FLYT_CHANNEL_LOST);
    expect_lost(stage, "the session was moved, and it cannot go on at another one");
    assert_true(atomic_load(&stage->peers[0].refused_count) > 1);
    assert_int_equal(atomic_load(&stage->client.resume_count), 0);
    stop(stage);
}

static void test_a_refusal_for_good(void **state)
{
    static const unsigned statuses[] = {FLYT_HANDSHAKE_NO_SESSION, FLYT_HANDSHAKE_DENIED, FLYT_HANDSHAKE_NO_DEVICE};

    for (unsigned i = 0; i < sizeof statuses / sizeof statuses[0]; i++) {
        struct stage *stage = new_stage();
        start(stage, "tcp");
        atomic_store(&stage->peers[0].resume_status, statuses[i]);
        move(stage, 0, 0); /* for ever, if it were another one */
        expect_lost(stage, "cannot go on at another one: it refused");
        stop(stage);
    }
}

static void *call_barrier(void *user)
{
    return barrier(user) == FLYT_CHANNEL_LOST ? user : NULL;
}

/* The server moves a session that it still owes an answer. */
static void test_a_missing_answer(void **state)
{
    struct stage *stage = new_stage();
    pthread_t thread;
    void *outcome;

    start(stage, "unix");
    atomic_store(&stage->is_silent, true);
    assert_int_equal(pthread_create(&thread, NULL, call_barrier, stage), 0);
    TEST_WAIT_UNTIL(atomic_load(&stage->last) >= 1);
    stop_program(stage, &stage->peers[0], 1);
    tell_moved(stage, &stage->peers[0], 0, 0);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, stage);
    expect_lost(stage, "the session was moved while work was unfinished: a call was not answered");
    stop(stage);
}

/* Before it has stopped, behind a stop that is over, and to where it has never been. */
static void test_moved_without_having_stopped(void **state)
{
    for (int i = 0; i < 3; i++) {
        struct stage *stage = new_stage();
        flyt_back_moved moved = {.sequence = 21};
        start(stage, "unix");
        work(stage);
        if (i)
            stop_program(stage, &stage->peers[0], 1);
        if (i == 1)
            tell(&stage->peers[0], FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &(flyt_back_stop){.number = 1});
        if (i == 2)
            moved.sequence = atomic_load(&stage->stopped_at) + 1;
        tell(&stage->peers[0], FLYT_BACK_MOVED, (xdrproc_t)xdr_flyt_back_moved, &moved);
        expect_lost(stage, "moved a program that had not stopped there");
        assert_int_equal(atomic_load(&stage->client.resume_count), 0);
        stop(stage);
    }
}

/* While nobody lets it in, for ever. */
static void test_closing_ends_it(void **state)
{
    struct stage *stage = new_stage();

    start(stage, "tcp");
    atomic_store(&stage->peers[0].busy_count, UINT32_MAX);
    move(stage, 0, 0);
    TEST_WAIT_UNTIL(atomic_load(&stage->peers[0].refused_count) >= 3);
    stage->client.channel = flyt_channel_close(stage->client.channel);
    assert_int_equal(atomic_load(&stage->client.lost_count), 0);
    stop(stage);
}

/* Stopped again by the next server before the channel has even taken over its connection. */
static int stop_while_restoring(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct stage *stage = client->test;
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;

    if (!atomic_fetch_add(&stage->try_count, 1))
        tell(&stage->peers[0], FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &(flyt_back_stop){.number = 9});
    return flyt_call_memory_restore(fresh, &args, &res); /* its answer comes behind the notice */
}

static void *send_large(void *user)
{
    static unsigned char data[UNTAKEN_BYTES]; /* more than the sockets take; the peer has no place for it */
    struct stage *stage = user;

    return flyt_channel_send_data(stage->client.channel, 0, data, sizeof data) ? NULL : user;
}

/* Data of a call from before the stop goes behind session_stopped. The server has it when it moves the session, but who
 * has sent it may not have got that far: here because the last of it is read late. */
static void test_who_has_sent_data_is_waited_for(void **state)
{
    static const struct timespec pause = {.tv_nsec = 200000};
    struct stage *stage = new_stage();
    struct test_peer *peer = &stage->peers[0];
    pthread_t thread;
    void *outcome;

    peer->window_bytes = UNTAKEN_BYTES;
    start(stage, "unix");
    assert_ptr_equal(send_large(stage), stage); /* the data streams are open */
    atomic_store(&peer->holds_chunks, true);
    work(stage);
    stop_program(stage, peer, 1);
    assert_int_equal(pthread_create(&thread, NULL, send_large, stage), 0);
    while (!atomic_load(&stage->client.channel->gate.begun_count)) /* it does not end while chunks are held */
        nanosleep(&pause, NULL);
    tell_moved(stage, peer, 0, 0);
    while (!flyt_channel_is_away(stage->client.channel) && !flyt_channel_is_lost(stage->client.channel))
        nanosleep(&pause, NULL);
    atomic_store(&peer->holds_chunks, false);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, stage);
    work(stage);
    assert_int_equal(resumptions(stage), 1);
    assert_int_equal(atomic_load(&stage->client.lost_count), 0);
    stop(stage);
}

static void *call_launch(void *user)
{
    return launch(user) ? NULL : user;
}

static void test_the_next_server_stops_it_at_once(void **state)
{
    struct stage *stage = new_stage();
    pthread_t thread;
    void *outcome;

    start(stage, "unix");
    stage->client.resume = stop_while_restoring;
    work(stage);
    stop_program(stage, &stage->peers[0], 1);
    assert_int_equal(pthread_create(&thread, NULL, call_launch, stage), 0);
    tell_moved(stage, &stage->peers[0], 0, 0);
    TEST_WAIT_UNTIL(atomic_load(&stage->stopped) >= 9);
    assert_int_equal(atomic_load(&stage->stopped_at), 23); /* nothing in between */
    tell_moved(stage, &stage->peers[0], 0, 0);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, stage);
    assert_int_equal(barrier(stage), FLYT_CHANNEL_OK);
    assert_int_equal(resumptions(stage), 2);
    stop(stage);
}

/* The next server wants all calls before the channel has taken over its connection: the answer counts for it as one of
 * the session's calls, so it is to be one here. */
static int ask_while_restoring(struct test_client *client, struct flyt_channel *fresh, struct flyt_error *err)
{
    struct stage *stage = client->test;
    flyt_memory_restore_args args = {0};
    flyt_memory_restore_res res;

    tell(&stage->peers[0], FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &(flyt_back_send_all){.number = 5});
    return flyt_call_memory_restore(fresh, &args, &res); /* its answer comes behind the notice */
}

static void test_the_next_server_asks_for_all_at_once(void **state)
{
    struct stage *stage = new_stage();

    start(stage, "unix");
    stage->client.resume = ask_while_restoring;
    work(stage);
    stop_program(stage, &stage->peers[0], 1);
    tell_moved(stage, &stage->peers[0], 0, 0);
    TEST_WAIT_UNTIL(atomic_load(&stage->all_sent) >= 5);
    assert_int_equal(atomic_load(&stage->all_sent_at), atomic_load(&stage->stopped_at) + 1);
    work(stage); /* with the numbers that the server expects */
    stop_program(stage, &stage->peers[0], 2);
    stage->client.resume = NULL;
    tell_moved(stage, &stage->peers[0], 0, 0);
    work(stage);
    assert_int_equal(resumptions(stage), 2);
    stop(stage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_go_on_behind_the_stop),
        cmocka_unit_test(test_a_server_that_is_not_asked),
        cmocka_unit_test(test_the_page_of_a_server_that_has_everything),
        cmocka_unit_test(test_what_fails_is_begun_anew),
        cmocka_unit_test(test_it_stays_where_it_was),
        cmocka_unit_test(test_it_is_asked_where_it_is),
        cmocka_unit_test(test_it_looks_for_itself),
        cmocka_unit_test(test_it_has_not_heard_that_it_was_moved),
        cmocka_unit_test(test_it_comes_back_from_elsewhere),
        cmocka_unit_test(test_it_is_nowhere),
        cmocka_unit_test(test_it_is_older),
        cmocka_unit_test(test_it_is_where_it_was),
        cmocka_unit_test(test_one_that_runs_asks_nobody),
        cmocka_unit_test(test_nobody_can_be_asked),
        cmocka_unit_test(test_the_time_is_over),
        cmocka_unit_test(test_a_refusal_for_good),
        cmocka_unit_test(test_a_missing_answer),
        cmocka_unit_test(test_moved_without_having_stopped),
        cmocka_unit_test(test_closing_ends_it),
        cmocka_unit_test(test_who_has_sent_data_is_waited_for),
        cmocka_unit_test(test_the_next_server_stops_it_at_once),
        cmocka_unit_test(test_the_next_server_asks_for_all_at_once),
    };

    unsetenv("FLYT_LOG");
    flyt_log_init("moved-test", FLYT_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
