/*
 * Tests of a session that goes on after a server has died in the midst of work, where the next one knows how far the
 * dead one had come (session_left_at): calls on their way are executed once, whoever sends them.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "rpc/transport/channel_state.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/test_pair.h"

enum { THREADS = 4, ROUNDS = 150, LAUNCHES = 3, CALLS = THREADS * ROUNDS * (LAUNCHES + 1), DEATHS = 8 };

struct pair {
    struct test_peer peer;
    struct test_client client;
    struct flyt_call_state left_at;
    pthread_mutex_t mutex;   /* a call is executed as a whole before its server dies, or not at all */
    _Atomic(uint64_t) last;  /* the last call that was executed, over all connections */
    _Atomic(uint64_t) limit; /* no call above it is executed: the server lives no longer */
    _Atomic(unsigned) dead;  /* connections up to this one have no server any more */
    _Atomic(bool) is_silent; /* calls are executed and not answered */
    _Atomic(unsigned) wrong_count;
    _Atomic(unsigned char) counts[CALLS + 1]; /* how often each call was executed */
    _Atomic(unsigned) lost_count;
};

static bool execute_locked(struct pair *pair, struct test_peer *peer, struct test_link *link)
{
    const uint64_t sequence = link->received;

    if (link < &peer->links[atomic_load(&pair->dead)] || sequence > atomic_load(&pair->limit))
        return false;
    if (sequence > CALLS || flyt_connection_xid(link->connection) != (uint32_t)sequence) {
        atomic_fetch_add(&pair->wrong_count, 1);
        return false;
    }
    atomic_fetch_add(&pair->counts[sequence], 1);
    atomic_store(&pair->last, sequence);
    return !atomic_load(&pair->is_silent);
}

static bool execute(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                    struct svc_req *req)
{
    struct pair *pair = peer->user;

    pthread_mutex_lock(&pair->mutex);
    const bool is_answered = execute_locked(pair, peer, link);
    pthread_mutex_unlock(&pair->mutex);
    return is_answered;
}

/* Over which endpoint all of this runs. */
static const char *scheme;

static struct pair *start(void)
{
    struct pair *pair = calloc(1, sizeof *pair);

    pthread_mutex_init(&pair->mutex, NULL);
    test_peer_init(&pair->peer);
    test_client_init(&pair->client);
    pair->peer.features = FLYT_FEATURE_RESUME;
    pair->peer.serve = execute;
    pair->peer.user = pair;
    pair->peer.left_at = &pair->left_at;
    atomic_store(&pair->limit, UINT64_MAX);
    test_pair_open(&pair->peer, &pair->client, scheme);
    return pair;
}

static void stop(struct pair *pair)
{
    test_pair_close(&pair->peer, &pair->client);
    assert_int_equal(atomic_load(&pair->wrong_count), 0);
    pthread_mutex_destroy(&pair->mutex);
    free(pair);
}

static int launch(struct pair *pair)
{
    flyt_kernel_launch_args args = {.kernel_id = 1};

    return flyt_send_kernel_launch(pair->client.channel, &args, NULL);
}

static int barrier(struct pair *pair)
{
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;

    return flyt_call_session_barrier(pair->client.channel, &args, &res);
}

/* No later call is executed by this server, nor told of. */
static void set_limit(struct pair *pair, uint64_t limit)
{
    atomic_store(&pair->limit, limit);
    atomic_store(&pair->peer.executed_max, limit);
}

/* The server dies, and another one goes on, up to a limit of its own: it has that before the client can come to it. */
static void replace(struct pair *pair, uint64_t limit)
{
    pthread_mutex_lock(&pair->mutex);
    pthread_mutex_lock(&pair->peer.mutex);
    atomic_store(&pair->dead, pair->peer.link_count);
    pthread_mutex_unlock(&pair->peer.mutex);
    atomic_store(&pair->limit, limit);
    pthread_mutex_unlock(&pair->mutex);
    test_peer_cut(&pair->peer);
    atomic_store(&pair->peer.executed_max, limit); /* of which the dead one told nothing */
}

static void *launch_much(void *user)
{
    struct pair *pair = user;

    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < LAUNCHES; i++)
            atomic_fetch_add(&pair->lost_count, launch(pair) != FLYT_CHANNEL_OK);
        atomic_fetch_add(&pair->lost_count, barrier(pair) != FLYT_CHANNEL_OK);
    }
    return NULL;
}

static bool is_given(struct flyt_channel *channel, uint64_t sequence)
{
    return atomic_load(&channel->written_sequence) >= sequence;
}

/* Servers die again and again while threads call without a pause: each call is executed once. */
static void test_calls_on_their_way_are_executed_once(void **state)
{
    struct pair *pair = start();
    struct flyt_channel *channel = pair->client.channel;
    pthread_t threads[THREADS];
    uint64_t limit = CALLS / (DEATHS + 1);

    set_limit(pair, limit);
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, launch_much, pair);
    for (uint64_t death = 1; death <= DEATHS; death++) {
        /* All up to there was executed, all answers have been taken, and something is on its way. */
        TEST_WAIT_UNTIL(atomic_load(&pair->last) == limit && atomic_load(&channel->first_awaited) > limit &&
                        is_given(channel, limit + 1));
        pair->left_at = (struct flyt_call_state){limit, limit, limit, 0};
        limit = death == DEATHS ? UINT64_MAX : limit + CALLS / (DEATHS + 1);
        replace(pair, limit);
        TEST_WAIT_UNTIL(flyt_channel_counts(channel).resumptions >= death || flyt_channel_is_lost(channel));
        assert_false(flyt_channel_is_lost(channel));
        assert_int_equal(atomic_load(&pair->peer.resume_after), pair->left_at.executed);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&pair->lost_count), 0);
    assert_int_equal(atomic_load(&pair->last), CALLS);
    for (unsigned i = 1; i <= CALLS; i++)
        assert_int_equal(atomic_load(&pair->counts[i]), 1);
    stop(pair);
}

static void *call_barrier(void *user)
{
    return barrier(user) == FLYT_CHANNEL_OK ? user : NULL;
}

/* What the server was in the midst of: a launch (call 52), or a barrier that a thread waits for. */
static void test_what_was_begun(void **state)
{
    static const struct {
        const char *word; /* of the error; NULL: it goes on */
        bool is_barrier, is_executed, is_known;
        struct flyt_call_state left_at;
        uint64_t after;
    } cases[] = {
        {NULL, false, false, true, {51, 51, 51, 0}, 51},
        {"a call was being executed", false, false, true, {52, 51, 51, 0}, 0},
        {"calls were not complete", false, true, true, {52, 52, 51, 0}, 0},
        {"an error of a call was not heard of", false, true, true, {52, 52, 52, 1}, 0},
        {NULL, false, true, true, {52, 52, 52, 0}, 52},
        {NULL, true, false, true, {51, 51, 51, 0}, 51},
        {NULL, true, false, true, {52, 51, 51, 0}, 51},
        {NULL, true, true, true, {52, 52, 52, 0}, 51},
        {"calls were not complete", true, false, true, {52, 51, 50, 0}, 0},
        {"calls were not complete", false, false, false, {51, 51, 51, 0}, 0},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pair *pair = start();
        struct flyt_channel *channel = pair->client.channel;
        pthread_t thread;
        void *outcome = pair;
        for (int call = 0; call < 50; call++)
            assert_int_equal(launch(pair), FLYT_CHANNEL_OK);
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
        pair->left_at = cases[i].left_at;
        pair->peer.left_at = cases[i].is_known ? &pair->left_at : NULL;
        set_limit(pair, cases[i].is_executed ? 52 : 51);
        atomic_store(&pair->peer.executed_max, 51);
        atomic_store(&pair->is_silent, true);
        if (cases[i].is_barrier)
            pthread_create(&thread, NULL, call_barrier, pair);
        else
            assert_int_equal(launch(pair), FLYT_CHANNEL_OK);
        if (!cases[i].is_barrier)
            assert_int_equal(flyt_channel_flush(channel), FLYT_CHANNEL_OK);
        TEST_WAIT_UNTIL(is_given(channel, 52) && atomic_load(&pair->last) >= atomic_load(&pair->limit));
        atomic_store(&pair->is_silent, false);
        replace(pair, UINT64_MAX);
        TEST_WAIT_UNTIL(flyt_channel_counts(channel).resumptions || flyt_channel_is_lost(channel));
        if (cases[i].is_barrier)
            pthread_join(thread, &outcome);
        if (flyt_channel_is_lost(channel) != (cases[i].word != NULL))
            fail_msg("case %zu: %s", i, pair->client.lost_cause);
        if (!cases[i].word) {
            assert_ptr_equal(outcome, pair);
            assert_int_equal(atomic_load(&pair->peer.resume_after), cases[i].after);
            assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
            assert_int_equal(atomic_load(&pair->last), 53);
            assert_int_equal(atomic_load(&pair->counts[52]), cases[i].is_executed && cases[i].after < 52 ? 2 : 1);
        } else {
            test_client_wait(&pair->client, &pair->client.lost_count, 1);
            assert_non_null(strstr(pair->client.lost_cause, "the server process ended while work was unfinished: "));
            assert_non_null(strstr(pair->client.lost_cause, cases[i].word));
            assert_int_equal(outcome == pair, !cases[i].is_barrier);
        }
        stop(pair);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_calls_on_their_way_are_executed_once),
        cmocka_unit_test(test_what_was_begun),
    };
    static const char *const schemes[] = {"tcp", "memory"};
    int failures = 0;

    for (unsigned i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        scheme = schemes[i];
        failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    }
    return failures;
}
