/*
 * Tests of a session that goes on at another server in the middle of work: a server executes up to some call, says so,
 * and ends; the next one gets the calls behind it, each once and in order, while threads send and wait all the time.
 * Over a unix socket, over TCP, encrypted, and in memory.
 */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "rpc/base/log.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/test_pair.h"
#include "rpc/transport/test_values.h"

enum { THREADS = 4, CALLS = 5000 };

/* What all servers of the session have executed. */
struct session {
    pthread_mutex_t mutex;
    uint64_t last, stop_at; /* the server that is at it executes no call above stop_at */
    uint64_t next_of[THREADS];
    unsigned wrong_count, move_count;
    enum flyt_endpoint_end end; /* how a server ends its connection */
    struct flyt_test_random random;
};

struct fixture {
    struct test_peer peer;
    struct test_client client;
    struct session session;
    struct flyt_channel_handlers handlers;
};

/* ---- the servers ---- */

/* Says where it has stopped, and dies. */
static void stop_here(struct test_link *link, const struct session *session)
{
    char text[32];
    flyt_back_output output = {0};

    link->is_stopped = true;
    output.text.text_len = (u_int)snprintf(text, sizeof text, "%" PRIu64, session->last);
    output.text.text_val = text;
    flyt_connection_call_back(link->connection, FLYT_BACK_OUTPUT, (xdrproc_t)xdr_flyt_back_output, &output);
    flyt_connection_flush(link->connection);
    flyt_endpoint_shut(flyt_connection_endpoint(link->connection), session->end);
}

/* Which thread's which call this is: both calls say so, in different places. */
static uint64_t name_of(unsigned procedure, const void *args)
{
    return procedure == FLYT_MEMORY_ALLOC ? ((const flyt_memory_alloc_args *)args)->bytes
                                          : ((const flyt_memory_free_args *)args)->address;
}

static void execute_locked(struct session *session, struct test_link *link, unsigned procedure, const void *args,
                           void *res)
{
    uint64_t name = name_of(procedure, args);
    uint64_t thread = name >> 32;

    session->last++;
    session->wrong_count += flyt_connection_xid(link->connection) != (uint32_t)session->last;
    session->wrong_count += link->received != session->last;
    if (thread < THREADS)
        session->wrong_count += session->next_of[thread]++ != (uint32_t)name;
    else
        session->wrong_count++;
    if (procedure == FLYT_MEMORY_ALLOC)
        ((flyt_memory_alloc_res *)res)->address = name + 1;
}

static bool serve(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                  struct svc_req *req)
{
    struct session *session = peer->user;
    bool is_executed = false;

    if (link->is_stopped)
        return false;
    pthread_mutex_lock(&session->mutex);
    if (session->last < session->stop_at) {
        execute_locked(session, link, procedure, args, res);
        is_executed = true;
    } else {
        stop_here(link, session);
        session->stop_at = session->last + (session->move_count % 5 ? 300 + flyt_test_number(&session->random) % 1500
                                                                    : flyt_test_number(&session->random) % 3);
        session->move_count++;
    }
    pthread_mutex_unlock(&session->mutex);
    return is_executed;
}

/* ---- the client ---- */

/* What a server says before it ends. */
static void take_word(void *user, bool is_error, const char *text, size_t bytes)
{
    struct test_client *client = user;
    char number[32] = "";

    memcpy(number, text, bytes < sizeof number ? bytes : sizeof number - 1);
    flyt_channel_move_after(client->channel, strtoull(number, NULL, 10));
}

struct caller {
    struct flyt_channel *channel;
    uint64_t number;
    unsigned wrong_count;
};

static void *run_caller(void *user)
{
    struct caller *self = user;

    for (uint64_t i = 0; i < CALLS; i++) {
        uint64_t name = self->number << 32 | i;
        flyt_memory_free_args free_args = {.address = name};
        flyt_memory_alloc_args alloc_args = {.bytes = name};
        flyt_memory_alloc_res res;
        if ((i + self->number) % 97)
            self->wrong_count += flyt_send_memory_free(self->channel, &free_args, NULL) != FLYT_CHANNEL_OK;
        else
            self->wrong_count +=
                flyt_call_memory_alloc(self->channel, &alloc_args, &res) != FLYT_CHANNEL_OK || res.address != name + 1;
    }
    return NULL;
}

static struct fixture *start(const char *scheme)
{
    struct fixture *self = calloc(1, sizeof *self);

    pthread_mutex_init(&self->session.mutex, NULL);
    self->session.random.state = 99;
    self->session.stop_at = 700;
    self->session.end = FLYT_ENDPOINT_BOTH;
    test_peer_init(&self->peer);
    test_client_init(&self->client);
    self->peer.features = FLYT_FEATURE_RESUME;
    self->peer.serve = serve;
    self->peer.user = &self->session;
    self->handlers = test_client_handlers;
    self->handlers.output = take_word;
    self->client.config.handlers = &self->handlers;
    test_pair_open(&self->peer, &self->client, scheme);
    return self;
}

static void stop(struct fixture *self)
{
    test_pair_close(&self->peer, &self->client);
    pthread_mutex_destroy(&self->session.mutex);
    free(self);
}

static void move(const char *scheme)
{
    struct fixture *self = start(scheme);
    struct session *session = &self->session;
    struct caller callers[THREADS];
    pthread_t threads[THREADS];
    flyt_memory_alloc_args last_args = {.bytes = CALLS};
    flyt_memory_alloc_res res;

    for (unsigned i = 0; i < THREADS; i++) {
        callers[i] = (struct caller){.channel = self->client.channel, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, run_caller, &callers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].wrong_count, 0);
    }
    assert_int_equal(flyt_call_memory_alloc(self->client.channel, &last_args, &res), FLYT_CHANNEL_OK);
    pthread_mutex_lock(&session->mutex);
    assert_int_equal(session->wrong_count, 0);
    assert_int_equal(session->last, THREADS * CALLS + 1);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(session->next_of[i], CALLS + !i);
    assert_true(session->move_count >= 5);
    assert_int_equal(flyt_channel_counts(self->client.channel).resumptions, session->move_count);
    pthread_mutex_unlock(&session->mutex);
    assert_int_equal(atomic_load(&self->client.lost_count), 0);
    stop(self);
}

static void test_moves_over_a_unix_socket(void **state)
{
    move("unix");
}

static void test_moves_over_tcp(void **state)
{
    move("tcp");
}

static void test_moves_in_memory(void **state)
{
    move("memory");
}

static void test_moves_of_an_encrypted_session(void **state)
{
    move("tls");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moves_over_a_unix_socket),
        cmocka_unit_test(test_moves_over_tcp),
        cmocka_unit_test(test_moves_in_memory),
        cmocka_unit_test(test_moves_of_an_encrypted_session),
    };

    unsetenv("FLYT_LOG");
    flyt_log_init("move-test", FLYT_LOG_WARN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
