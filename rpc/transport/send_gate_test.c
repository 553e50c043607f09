/*
 * Tests of a program that its server stops (FLYT_BACK_STOP): what was begun is sent whole, and nothing else is begun,
 * until it may go on, or its connection ends. What comes afterwards at another server is in moved_test.c.
 */
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
#include "rpc/base/log.h"
#include "rpc/transport/channel_state.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/test_pair.h"

enum {
    KIB = 1024,
    MIB = 1024 * KIB,
    SHORT_US = 20000, /* in which something that must not happen would have happened */
    THREADS = 8,
    TRANSFERS = 16, /* of one thread */
    LARGE_BYTES = FLYT_DATA_BYTES_MIN,
    SMALL_BYTES = 96 * KIB,
    CALLS_APART = 40,
    ROUNDS = 8
};

/* ---- a peer and a channel to it ---- */

struct pair {
    struct test_peer peer;
    struct test_client client;
    _Atomic(uint64_t) last;          /* the last call that came */
    _Atomic(uint64_t) stopped;       /* the number in the last session_stopped */
    _Atomic(uint64_t) stopped_at;    /* the number of that call */
    _Atomic(uint64_t) stopped_count; /* how many came */
    _Atomic(uint64_t) named_bytes;   /* of transfers that a call has named */
    _Atomic(uint64_t) bytes_at_stop; /* that had come over this connection and others with session_stopped */
    _Atomic(bool) is_still;          /* it has said that nothing comes */
    _Atomic(unsigned) wrong_count;   /* and something came, or not in order */
    _Atomic(bool) is_named[THREADS * TRANSFERS];
    _Atomic(uint64_t) held_xid; /* of the barrier that is not answered; 0: none has come */
    _Atomic(bool) holds_barriers;
};

static bool may_come_later(unsigned procedure)
{
    return procedure == FLYT_SESSION_STOPPED || procedure == FLYT_SESSION_ALL_SENT ||
           procedure == FLYT_HOST_FUNCTION_DONE;
}

static void note_stopped(struct pair *pair, const flyt_session_stopped_args *args, uint64_t sequence)
{
    atomic_store(&pair->bytes_at_stop, atomic_load(&pair->peer.chunk_bytes));
    atomic_store(&pair->stopped_at, sequence);
    atomic_fetch_add(&pair->stopped_count, 1);
    atomic_store(&pair->is_still, true);
    atomic_store(&pair->stopped, args->number); /* at last: it is waited for */
}

static void note_transfer(struct pair *pair, const flyt_copy_in_transfer_args *args)
{
    atomic_fetch_add(&pair->named_bytes, args->bytes);
    if (args->stream_id < THREADS * TRANSFERS)
        atomic_store(&pair->is_named[args->stream_id], true);
}

static bool serve(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                  struct svc_req *req)
{
    struct pair *pair = peer->user;
    uint64_t sequence = atomic_fetch_add(&pair->last, 1) + 1;

    if (link->received != sequence || flyt_connection_xid(link->connection) != (uint32_t)sequence ||
        (atomic_load(&pair->is_still) && !may_come_later(procedure)))
        atomic_fetch_add(&pair->wrong_count, 1);
    if (procedure == FLYT_SESSION_STOPPED)
        note_stopped(pair, args, sequence);
    if (procedure == FLYT_COPY_IN_TRANSFER)
        note_transfer(pair, args);
    if (procedure != FLYT_SESSION_BARRIER || !atomic_load(&pair->holds_barriers))
        return true;
    atomic_store(&pair->held_xid, flyt_connection_xid(link->connection));
    return false;
}

static struct pair *new_pair(unsigned data_streams)
{
    struct pair *pair = calloc(1, sizeof *pair);

    test_peer_init(&pair->peer);
    test_client_init(&pair->client);
    pair->peer.features = FLYT_FEATURE_RESUME;
    pair->peer.serve = serve;
    pair->peer.user = pair;
    pair->peer.data_streams = data_streams;
    pair->peer.memory_bytes = LARGE_BYTES;
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

/* ---- both sides ---- */

/* The peer's thread may send it before this one does, and the client may have hung up on it. */
static void tell(struct pair *pair, unsigned procedure, xdrproc_t xdr_args, void *args)
{
    struct flyt_connection *connection = pair->peer.links[0].connection;

    assert_int_equal(flyt_connection_call_back(connection, procedure, xdr_args, args), 0);
    flyt_connection_flush(connection);
}

static void tell_stop(struct pair *pair, uint64_t number)
{
    tell(pair, FLYT_BACK_STOP, (xdrproc_t)xdr_flyt_back_stop, &(flyt_back_stop){.number = number});
}

static void tell_go_on(struct pair *pair, uint64_t number)
{
    atomic_store(&pair->is_still, false);
    tell(pair, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &(flyt_back_stop){.number = number});
}

/* The server has stopped the program. */
static void stop_program(struct pair *pair, uint64_t number)
{
    tell_stop(pair, number);
    TEST_WAIT_UNTIL(atomic_load(&pair->stopped) >= number);
    assert_int_equal(atomic_load(&pair->stopped), number);
}

/* So many threads of the program are within a function of the channel. */
static void wait_inside(struct pair *pair, unsigned count)
{
    TEST_WAIT_UNTIL(atomic_load(&pair->client.channel->user_count) == count);
}

static int barrier(struct pair *pair)
{
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;

    return flyt_call_session_barrier(pair->client.channel, &args, &res);
}

static int launch(struct pair *pair)
{
    flyt_kernel_launch_args args = {.kernel_id = 1};

    return flyt_send_kernel_launch(pair->client.channel, &args, NULL);
}

static void *call_barrier(void *user)
{
    return barrier(user) ? NULL : user;
}

static void *call_launch(void *user)
{
    return launch(user) ? NULL : user;
}

/* Opens a group, and makes nothing of it. */
static void *begin_group(void *user)
{
    struct pair *pair = user;
    struct flyt_channel_group group;

    if (flyt_channel_group_begin(pair->client.channel, &group))
        return NULL;
    flyt_channel_group_end(pair->client.channel, &group);
    return user;
}

/* Waits before data streams are opened. */
static void *call_copy_out(void *user)
{
    struct pair *pair = user;
    flyt_copy_out_transfer_args args = {.transfer_id = 1, .bytes = LARGE_BYTES};

    args.src.address = pair->peer.memory_bytes - LARGE_BYTES; /* where nothing is copied to */

    return flyt_send_copy_out_transfer(pair->client.channel, &args, NULL) ? NULL : user;
}

static void *(*const callers[])(void *user) = {call_barrier, call_launch, begin_group, call_copy_out};
enum { CALLERS = sizeof callers / sizeof callers[0] };

static void start_callers(struct pair *pair, pthread_t *threads)
{
    for (unsigned i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, callers[i], pair), 0);
    wait_inside(pair, CALLERS);
}

/* Joins them; whether each has succeeded, or failed. */
static void join_callers(struct pair *pair, const pthread_t *threads, bool succeeds)
{
    for (unsigned i = 0; i < CALLERS; i++) {
        void *outcome;
        pthread_join(threads[i], &outcome);
        assert_ptr_equal(outcome, succeeds ? pair : NULL);
    }
}

/* ---- a program that does not pause ---- */

struct program {
    struct pair *pair;
    unsigned number;
    unsigned wrong_count;
    unsigned char *data;
    _Atomic(bool) *is_ending;
    _Atomic(uint64_t) round_count; /* calls since it was looked at */
};

static size_t bytes_of(unsigned transfer)
{
    return transfer % 2 ? LARGE_BYTES : SMALL_BYTES;
}

/* Where in the server's memory, which is also its number. */
static uint64_t place_of(unsigned transfer)
{
    return (uint64_t)transfer * LARGE_BYTES;
}

static int value_of(unsigned transfer)
{
    return (int)(1 + transfer % 255);
}

/* Some send the data first, as of images. */
static int send_transfer(struct program *self, unsigned transfer)
{
    struct flyt_channel *channel = self->pair->client.channel;
    size_t bytes = bytes_of(transfer);
    flyt_copy_in_transfer_args args = {.stream_id = transfer, .transfer_id = place_of(transfer), .bytes = bytes};
    bool is_first = transfer / 2 % 2;
    struct flyt_channel_group group, inner;

    memset(self->data, value_of(transfer), bytes);
    int status = flyt_channel_group_begin(channel, &group);
    if (status)
        return status;
    if (is_first)
        status = flyt_channel_send_data(channel, args.transfer_id, self->data, bytes);
    status |= flyt_channel_group_begin(channel, &inner);
    if (!status)
        flyt_channel_group_end(channel, &inner);
    status |= flyt_send_copy_in_transfer(channel, &args, NULL);
    if (!is_first)
        status |= flyt_channel_send_data(channel, args.transfer_id, self->data, bytes);
    flyt_channel_group_end(channel, &group);
    return status;
}

static void *run_program(void *user)
{
    struct program *self = user;
    unsigned transfer_count = 0;

    for (unsigned i = 0; !atomic_load(self->is_ending); i++) {
        int status;
        if (i % CALLS_APART == 0 && transfer_count < TRANSFERS)
            status = send_transfer(self, self->number * TRANSFERS + transfer_count++);
        else if (i % 11 == 0)
            status = barrier(self->pair);
        else
            status = launch(self->pair);
        self->wrong_count += status != FLYT_CHANNEL_OK;
        atomic_fetch_add(&self->round_count, 1);
    }
    return NULL;
}

/* Of each transfer there is all in the server's memory, or nothing. */
static void check_memory(struct pair *pair)
{
    static unsigned char zeros[LARGE_BYTES];

    for (unsigned transfer = 0; transfer < THREADS * TRANSFERS; transfer++) {
        const unsigned char *data = pair->peer.memory + place_of(transfer);
        size_t bytes = bytes_of(transfer);
        int value = atomic_load(&pair->is_named[transfer]) ? value_of(transfer) : 0;
        if (data[0] != value || memcmp(data, data + 1, bytes - 1) != 0)
            fail_msg("transfer %u is not %s", transfer, value ? "whole" : "away");
        assert_memory_equal(data + bytes, zeros, LARGE_BYTES - bytes);
    }
}

static void run_rounds(struct pair *pair, struct program *programs)
{
    for (uint64_t round = 1; round <= ROUNDS; round++) {
        for (unsigned i = 0; i < THREADS; i++) { /* each has done something in between */
            atomic_store(&programs[i].round_count, 0);
            TEST_WAIT_UNTIL(atomic_load(&programs[i].round_count) >= 1 + CALLS_APART / 2);
        }
        stop_program(pair, round);
        TEST_WAIT_UNTIL(atomic_load(&pair->peer.chunk_bytes) >= atomic_load(&pair->named_bytes));
        usleep(SHORT_US);
        assert_int_equal(atomic_load(&pair->peer.chunk_bytes), atomic_load(&pair->named_bytes));
        assert_int_equal(atomic_load(&pair->last), atomic_load(&pair->stopped_at));
        check_memory(pair);
        tell_go_on(pair, round);
    }
}

static void stop_threads(unsigned data_streams)
{
    struct pair *pair = new_pair(data_streams);
    struct program programs[THREADS];
    pthread_t threads[THREADS];
    _Atomic(bool) is_ending = false;

    pair->peer.memory_bytes = place_of(THREADS * TRANSFERS);
    start(pair);
    for (unsigned i = 0; i < THREADS; i++) {
        programs[i] = (struct program){.pair = pair, .number = i, .data = malloc(LARGE_BYTES), .is_ending = &is_ending};
        assert_int_equal(pthread_create(&threads[i], NULL, run_program, &programs[i]), 0);
    }
    run_rounds(pair, programs);
    atomic_store(&is_ending, true);
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(programs[i].wrong_count, 0);
        free(programs[i].data);
    }
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    assert_int_equal(atomic_load(&pair->stopped_count), ROUNDS);
    assert_int_equal(atomic_load(&pair->client.lost_count), 0);
    stop(pair);
}

static void test_threads_that_do_not_pause(void **state)
{
    for (unsigned data_streams = 0; data_streams <= 2; data_streams += 2)
        stop_threads(data_streams);
}

/* ---- what is begun ---- */

/* Its answer comes while the program stands still. */
static void test_a_call_that_waits_for_its_answer(void **state)
{
    struct pair *pair = new_pair(0);
    flyt_session_barrier_res res = {0};
    struct flyt_connection *connection;
    pthread_t thread, others[CALLERS];
    void *outcome;

    start(pair);
    atomic_store(&pair->holds_barriers, true);
    assert_int_equal(pthread_create(&thread, NULL, call_barrier, pair), 0);
    TEST_WAIT_UNTIL(atomic_load(&pair->held_xid) >= 1);
    atomic_store(&pair->holds_barriers, false);
    stop_program(pair, 1);
    wait_inside(pair, 1);
    connection = pair->peer.links[0].connection;
    assert_int_equal(flyt_connection_reply(connection, (uint32_t)atomic_load(&pair->held_xid),
                                           (xdrproc_t)xdr_flyt_session_barrier_res, &res, NULL, 0),
                     0);
    assert_int_equal(flyt_connection_flush(connection), 0);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, pair);
    start_callers(pair, others);
    usleep(SHORT_US);
    assert_int_equal(atomic_load(&pair->last), 2);
    tell_go_on(pair, 1);
    join_callers(pair, others, true);
    stop(pair);
}

/* ---- what several threads do together ---- */

static void *wait_for_hold(void *user)
{
    struct pair *pair = user;

    return flyt_channel_hold_wait(pair->client.channel) ? NULL : user;
}

static void test_what_threads_do_together_is_finished_first(void **state)
{
    struct pair *pair = new_pair(0);
    pthread_t at_gate[CALLERS], waiting;
    void *outcome;

    start(pair);
    struct flyt_channel *channel = pair->client.channel;
    assert_int_equal(flyt_channel_hold_begin(channel, false), FLYT_CHANNEL_OK);
    tell_stop(pair, 1);
    TEST_WAIT_UNTIL(atomic_load(&channel->gate.is_due));
    assert_int_equal(barrier(pair), 0); /* every call is made, */
    assert_int_equal(launch(pair), 0);
    assert_int_equal(flyt_channel_hold_begin(channel, false), FLYT_CHANNEL_STOPPED); /* nothing else begins, */
    assert_int_equal(flyt_channel_hold_begin(channel, true), FLYT_CHANNEL_OK);       /* and what is to end, does */
    flyt_channel_hold_end(channel);
    usleep(SHORT_US);
    assert_int_equal(atomic_load(&pair->stopped_count), 0);
    assert_int_equal(pthread_create(&waiting, NULL, wait_for_hold, pair), 0);
    wait_inside(pair, 1);
    flyt_channel_hold_end(channel);
    TEST_WAIT_UNTIL(atomic_load(&pair->stopped) == 1);
    assert_int_equal(flyt_channel_hold_begin(channel, true), FLYT_CHANNEL_STOPPED); /* there is nothing to join */
    for (unsigned i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&at_gate[i], NULL, callers[i], pair), 0);
    wait_inside(pair, CALLERS + 1);
    tell_go_on(pair, 1);
    join_callers(pair, at_gate, true);
    pthread_join(waiting, &outcome);
    assert_ptr_equal(outcome, pair);
    stop(pair);
}

static void test_a_stop_ends_before_that_is_finished(void **state)
{
    struct pair *pair = new_pair(0);

    start(pair);
    struct flyt_channel *channel = pair->client.channel;
    assert_int_equal(flyt_channel_hold_begin(channel, false), FLYT_CHANNEL_OK);
    tell_stop(pair, 1);
    TEST_WAIT_UNTIL(atomic_load(&channel->gate.is_due));
    tell_go_on(pair, 1);
    TEST_WAIT_UNTIL(!atomic_load(&channel->gate.is_due));
    flyt_channel_hold_end(channel);
    assert_int_equal(flyt_channel_hold_begin(channel, false), FLYT_CHANNEL_OK);
    flyt_channel_hold_end(channel);
    assert_int_equal(barrier(pair), 0);
    assert_int_equal(atomic_load(&pair->stopped_count), 0);
    stop_program(pair, 2);
    tell_go_on(pair, 2);
    stop(pair);
}

static void *send_much(void *user)
{
    struct pair *pair = user;
    struct flyt_channel *channel = pair->client.channel;
    flyt_copy_in_transfer_args args = {.stream_id = UINT64_MAX, .bytes = 32 * MIB};
    unsigned char *data = calloc(1, 32 * MIB);
    struct flyt_channel_group group;
    int status = flyt_channel_group_begin(channel, &group);

    status |= flyt_send_copy_in_transfer(channel, &args, NULL);
    status |= flyt_channel_send_data(channel, 0, data, 32 * MIB);
    flyt_channel_group_end(channel, &group);
    free(data);
    return status ? NULL : user;
}

/* The transfer is under way, and the server takes no more of it for now. */
static pthread_t begin_transfer(struct pair *pair)
{
    pthread_t thread;

    pair->peer.memory_bytes = 33 * MIB;
    atomic_store(&pair->peer.holds_chunks, true);
    start(pair);
    assert_int_equal(pthread_create(&thread, NULL, send_much, pair), 0);
    TEST_WAIT_UNTIL(flyt_channel_counts(pair->client.channel).sent_bytes >= 65536);
    return thread;
}

static void test_a_transfer_under_way_is_sent_whole(void **state)
{
    for (unsigned data_streams = 0; data_streams <= 2; data_streams += 2) {
        struct pair *pair = new_pair(data_streams);
        pthread_t thread = begin_transfer(pair);
        void *outcome;
        tell_stop(pair, 5);
        usleep(SHORT_US);
        assert_int_equal(atomic_load(&pair->stopped_count), 0);
        atomic_store(&pair->peer.holds_chunks, false);
        TEST_WAIT_UNTIL(atomic_load(&pair->stopped) >= 5);
        pthread_join(thread, &outcome);
        assert_ptr_equal(outcome, pair);
        if (!data_streams) /* it is all before that call */
            assert_int_equal(atomic_load(&pair->bytes_at_stop), 32 * MIB);
        TEST_WAIT_UNTIL(atomic_load(&pair->peer.chunk_bytes) >= 32 * MIB);
        tell_go_on(pair, 5);
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
        stop(pair);
    }
}

/* What the server sends over a stream that is being opened could be lost if the session were moved now. */
static void test_streams_that_are_being_opened(void **state)
{
    struct pair *pair = new_pair(2);
    pthread_t thread;
    void *outcome;
    start(pair);
    atomic_store(&pair->peer.holds_streams, true);
    assert_int_equal(pthread_create(&thread, NULL, call_copy_out, pair), 0);
    TEST_WAIT_UNTIL(atomic_load(&pair->peer.held_streams) > 0);
    tell_stop(pair, 5);
    usleep(SHORT_US);
    assert_int_equal(atomic_load(&pair->stopped_count), 0);
    atomic_store(&pair->peer.holds_streams, false);
    TEST_WAIT_UNTIL(atomic_load(&pair->stopped) >= 5);
    assert_int_equal(pair->client.channel->data.state, FLYT_DATA_OPEN); /* nobody changes it now */
    tell_go_on(pair, 5);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, pair);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    stop(pair);
}

/* What the server still needs comes while the program stands still: that a function was called, data that it asks for,
 * and that all has been sent. */
static void test_what_the_server_waits_for_passes(void **state)
{
    struct pair *pair = new_pair(2);
    static unsigned char data[LARGE_BYTES];
    flyt_host_function_launch_args function = {.function_id = 9};
    flyt_back_host_function call = {.function_id = 9};
    flyt_back_send_all all = {.number = 4};

    pair->client.answers_host_functions = true;
    start(pair);
    assert_int_equal(flyt_send_host_function_launch(pair->client.channel, &function, NULL), FLYT_CHANNEL_OK);
    test_client_wait(&pair->client, &pair->client.host_functions, 1);
    stop_program(pair, 1);
    uint64_t last = atomic_load(&pair->last);
    tell(pair, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function, &call);
    TEST_WAIT_UNTIL(atomic_load(&pair->last) >= last + 1);
    tell(pair, FLYT_BACK_SEND_ALL, (xdrproc_t)xdr_flyt_back_send_all, &all);
    TEST_WAIT_UNTIL(atomic_load(&pair->last) >= last + 2);
    memset(data, 7, sizeof data);
    assert_int_equal(flyt_channel_send_data(pair->client.channel, 0, data, sizeof data), FLYT_CHANNEL_OK);
    TEST_WAIT_UNTIL(atomic_load(&pair->peer.chunk_bytes) >= sizeof data);
    assert_memory_equal(pair->peer.memory, data, sizeof data);
    tell_go_on(pair, 1);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    stop(pair);
}

/* ---- notices that cross ---- */

/* It may go on before it has said that it stands still: then it does not say so any more. */
static void test_it_goes_on_before_it_has_stopped(void **state)
{
    struct pair *pair = new_pair(2);
    pthread_t thread = begin_transfer(pair), others[CALLERS];
    void *outcome;

    tell_stop(pair, 1);
    wait_inside(pair, 2); /* the group, and the transfer in it */
    usleep(SHORT_US);
    for (unsigned i = 0; i < CALLERS; i++)
        assert_int_equal(pthread_create(&others[i], NULL, callers[i], pair), 0);
    wait_inside(pair, 2 + CALLERS);
    tell_go_on(pair, 1);
    for (unsigned i = 0; i < CALLERS - 1; i++) { /* the last one waits for the data streams */
        pthread_join(others[i], &outcome);
        assert_ptr_equal(outcome, pair);
    }
    atomic_store(&pair->peer.holds_chunks, false);
    pthread_join(others[CALLERS - 1], &outcome);
    assert_ptr_equal(outcome, pair);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, pair);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    assert_int_equal(atomic_load(&pair->stopped_count), 0);
    stop_program(pair, 2);
    tell_go_on(pair, 2);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    assert_int_equal(atomic_load(&pair->stopped_count), 1);
    stop(pair);
}

/* The second one is what holds, answered or not; the end of the first one changes nothing. */
static void test_two_in_a_row(void **state)
{
    struct pair *pair = new_pair(2);
    pthread_t thread = begin_transfer(pair), others[CALLERS];
    void *outcome;

    tell_stop(pair, 1);
    tell_stop(pair, 2);
    usleep(SHORT_US);
    atomic_store(&pair->peer.holds_chunks, false);
    TEST_WAIT_UNTIL(atomic_load(&pair->stopped) >= 2);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, pair);
    assert_int_equal(atomic_load(&pair->stopped_count), 1);
    stop_program(pair, 3);
    start_callers(pair, others);
    tell(pair, FLYT_BACK_GO_ON, (xdrproc_t)xdr_flyt_back_stop, &(flyt_back_stop){.number = 2});
    usleep(SHORT_US);
    assert_int_equal(atomic_load(&pair->last), atomic_load(&pair->stopped_at));
    tell_go_on(pair, 3);
    join_callers(pair, others, true);
    stop(pair);
}

/* ---- ends ---- */

/* Who waits there gets to know that the connection is lost, or closed; a child that drops it harms nobody. */
static void test_who_waits_there_is_woken_by_the_end(void **state)
{
    for (int is_closed = 0; is_closed < 2; is_closed++) {
        struct pair *pair = new_pair(0);
        pthread_t threads[CALLERS];
        pair->peer.features = 0;
        start(pair);
        assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
        stop_program(pair, 1);
        start_callers(pair, threads);
        pid_t child = fork();
        if (!child) {
            flyt_channel_abandon(pair->client.channel);
            _exit(0);
        }
        int status = -1;
        waitpid(child, &status, 0);
        assert_int_equal(status, 0);
        if (is_closed)
            pair->client.channel = flyt_channel_close(pair->client.channel);
        else
            test_peer_cut(&pair->peer);
        join_callers(pair, threads, false);
        if (!is_closed)
            test_client_wait(&pair->client, &pair->client.lost_count, 1);
        assert_int_equal(atomic_load(&pair->last), 2);
        stop(pair);
    }
}

/* The server dies while its program stands still: the next one has not stopped it. */
static void test_another_server_has_not_stopped_it(void **state)
{
    struct pair *pair = new_pair(2);
    pthread_t threads[CALLERS];
    start(pair);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    stop_program(pair, 1);
    start_callers(pair, threads);
    TEST_WAIT_UNTIL(flyt_channel_progress(pair->client.channel).completed >= atomic_load(&pair->stopped_at));
    atomic_store(&pair->is_still, false);
    test_peer_cut(&pair->peer);
    join_callers(pair, threads, true);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    assert_int_equal(flyt_channel_counts(pair->client.channel).resumptions, 1);
    assert_int_equal(atomic_load(&pair->peer.whole_count), 1);
    stop(pair);
}

/* A server that did not announce the answer may not ask for it. */
static void test_a_server_without_the_answer(void **state)
{
    static const flyt_signature *all;
    struct pair *pair = new_pair(0);
    flyt_signature some[FLYT_SESSION_STOPPED];
    unsigned count = 0;

    all = pair->peer.signatures;
    for (unsigned i = 0; i < pair->peer.signature_count && all[i].procedure < FLYT_SESSION_STOPPED; i++)
        some[count++] = all[i];
    pair->peer.signatures = some;
    pair->peer.signature_count = count;
    start(pair);
    assert_int_equal(barrier(pair), FLYT_CHANNEL_OK);
    tell_stop(pair, 1);
    test_client_wait(&pair->client, &pair->client.lost_count, 1);
    assert_non_null(strstr(pair->client.lost_cause, "lacks the answer"));
    stop(pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads_that_do_not_pause),
        cmocka_unit_test(test_a_call_that_waits_for_its_answer),
        cmocka_unit_test(test_what_threads_do_together_is_finished_first),
        cmocka_unit_test(test_a_stop_ends_before_that_is_finished),
        cmocka_unit_test(test_a_transfer_under_way_is_sent_whole),
        cmocka_unit_test(test_streams_that_are_being_opened),
        cmocka_unit_test(test_what_the_server_waits_for_passes),
        cmocka_unit_test(test_it_goes_on_before_it_has_stopped),
        cmocka_unit_test(test_two_in_a_row),
        cmocka_unit_test(test_who_waits_there_is_woken_by_the_end),
        cmocka_unit_test(test_another_server_has_not_stopped_it),
        cmocka_unit_test(test_a_server_without_the_answer),
    };
    const struct CMUnitTest tcp_tests[] = {
        cmocka_unit_test(test_threads_that_do_not_pause),
        cmocka_unit_test(test_streams_that_are_being_opened),
        cmocka_unit_test(test_what_the_server_waits_for_passes),
        cmocka_unit_test(test_who_waits_there_is_woken_by_the_end),
        cmocka_unit_test(test_another_server_has_not_stopped_it),
    };
    int failures = 0;

    unsetenv("FLYT_LOG");
    flyt_log_init("gate-test", FLYT_LOG_WARN);
    scheme = "memory";
    failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    scheme = "tcp";
    failures += cmocka_run_group_tests_name(scheme, tcp_tests, NULL, NULL);
    scheme = "unix";
    failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    return failures;
}
