/*
 * Tests of what a channel keeps for sending again. The expected records are encoded here, by the RPC library's own
 * stream, in the order in which the calls are made.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include "flyt_client_calls.h"
#include "flyt_procedures.h"
#include "flyt_signatures.h"
#include "rpc/base/log.h"
#include "rpc/transport/endpoint/listen.h"
#include "rpc/transport/message.h"
#include "rpc/transport/test_pair.h"
#include "rpc/transport/test_values.h"

enum { RECORD_BYTES_MAX = 128 * 1024, CALLS_MAX = 100000, DATA_BYTES = 300 * 1024 };

/* What was sent: record by number. */
struct sent {
    struct {
        unsigned char *record;
        size_t bytes;
    } calls[CALLS_MAX + 1];
    uint64_t last;
};

struct fixture {
    struct test_peer peer;
    struct test_client client;
    struct sent sent;
    struct flyt_test_random random;
    pthread_mutex_t mutex;
    struct flyt_connection *connection; /* of a withheld reply */
    uint32_t withheld_xid;
    struct executed *executed;
};

/* Over which endpoint all of this runs. */
static const char *scheme;

static struct fixture *start(bool (*serve)(struct test_peer *peer, struct test_link *link, unsigned procedure,
                                           void *args, void *res, struct svc_req *req))
{
    struct fixture *self = calloc(1, sizeof *self);

    self->random.state = 77;
    pthread_mutex_init(&self->mutex, NULL);
    test_peer_init(&self->peer);
    test_client_init(&self->client);
    self->peer.memory_bytes = DATA_BYTES;
    self->peer.serve = serve;
    self->peer.user = self;
    test_pair_open(&self->peer, &self->client, scheme);
    return self;
}

static void stop(struct fixture *self)
{
    test_pair_close(&self->peer, &self->client);
    for (uint64_t i = 0; i <= self->sent.last; i++)
        free(self->sent.calls[i].record);
    pthread_mutex_destroy(&self->mutex);
    free(self);
}

/* ---- what is expected ---- */

static void note_sent(struct fixture *self, unsigned procedure, xdrproc_t xdr_args, void *args)
{
    static unsigned char buffer[RECORD_BYTES_MAX];
    struct sent *sent = &self->sent;
    XDR xdrs;
    struct rpc_msg message = {.rm_xid = (uint32_t)++sent->last, .rm_direction = CALL};

    assert_in_range(sent->last, 1, CALLS_MAX);
    message.rm_call.cb_rpcvers = RPC_MSG_VERSION;
    message.rm_call.cb_prog = FLYT_PROGRAM;
    message.rm_call.cb_vers = FLYT_VERSION;
    message.rm_call.cb_proc = procedure;
    message.rm_call.cb_cred = message.rm_call.cb_verf = _null_auth;
    xdrmem_create(&xdrs, (char *)buffer, sizeof buffer, XDR_ENCODE);
    assert_true(xdr_callmsg(&xdrs, &message) && xdr_args(&xdrs, args));
    size_t bytes = xdr_getpos(&xdrs);
    sent->calls[sent->last].record = malloc(bytes);
    sent->calls[sent->last].bytes = bytes;
    memcpy(sent->calls[sent->last].record, buffer, bytes);
}

static void send_one_way(struct fixture *self, unsigned procedure, xdrproc_t xdr_args, void *args)
{
    uint64_t sequence;

    note_sent(self, procedure, xdr_args, args);
    assert_int_equal(flyt_channel_send(self->client.channel, procedure, xdr_args, args, &sequence), FLYT_CHANNEL_OK);
    assert_int_equal(sequence, self->sent.last);
}

static void send_launch(struct fixture *self, unsigned params_bytes)
{
    char params[FLYT_PARAM_BYTES_MAX];
    flyt_kernel_launch_args args = {.stream_id = flyt_test_number(&self->random),
                                    .kernel_id = self->sent.last,
                                    .grid = {1, 2, 3},
                                    .params = {params_bytes, params}};

    flyt_test_bytes(&self->random, params, params_bytes);
    send_one_way(self, FLYT_KERNEL_LAUNCH, (xdrproc_t)xdr_flyt_kernel_launch_args, &args);
}

static void call_barrier(struct fixture *self)
{
    flyt_session_barrier_args args = {0};
    flyt_session_barrier_res res;

    note_sent(self, FLYT_SESSION_BARRIER, (xdrproc_t)xdr_flyt_session_barrier_args, &args);
    assert_int_equal(flyt_call_session_barrier(self->client.channel, &args, &res), FLYT_CHANNEL_OK);
}

/* ---- what is kept ---- */

struct check {
    struct fixture *self;
    uint64_t next, after;
    unsigned awaited_count, wrong_count;
};

static bool check_call(void *user, const struct flyt_channel_kept_call *call)
{
    struct check *check = user;
    const struct sent *sent = &check->self->sent;

    check->awaited_count += call->is_awaited;
    if (call->sequence <= check->after)
        check->wrong_count += !call->is_awaited || check->next != check->after + 1;
    else
        check->wrong_count += call->sequence != check->next++;
    if (call->sequence > sent->last || call->bytes != sent->calls[call->sequence].bytes ||
        memcmp(call->record, sent->calls[call->sequence].record, call->bytes) != 0 || (uintptr_t)call->record % 4 ||
        call->procedure != ntohl(((const uint32_t *)call->record)[5]))
        check->wrong_count++;
    return true;
}

/* What is kept above `after` is what was sent above it. Returns how many of the calls wait for a reply. */
static unsigned check_kept(struct fixture *self, uint64_t after)
{
    struct check check = {.self = self, .after = after, .next = after + 1};

    assert_int_equal(flyt_channel_kept(self->client.channel, after, check_call, &check), FLYT_CHANNEL_OK);
    assert_int_equal(check.wrong_count, 0);
    assert_int_equal(check.next, self->sent.last + 1);
    return check.awaited_count;
}

/* The calls that are not executed by what the channel knows. The number may rise in between; then another try. */
static void check_not_executed(struct fixture *self)
{
    for (;;) {
        uint64_t executed = flyt_channel_progress(self->client.channel).executed;
        if (flyt_channel_kept(self->client.channel, executed, NULL, NULL) == FLYT_CHANNEL_OK) {
            struct check check = {.self = self, .after = executed, .next = executed + 1};
            int status = flyt_channel_kept(self->client.channel, executed, check_call, &check);
            if (status == FLYT_CHANNEL_OK) {
                assert_int_equal(check.wrong_count, 0);
                assert_int_equal(check.next, self->sent.last + 1);
                return;
            }
        }
        assert_true(flyt_channel_progress(self->client.channel).executed > executed);
    }
}

/* Calls of every kind, with chunks and calls without number between them; the server is behind by any distance. */
static void test_exactly_what_is_not_executed_is_kept(void **state)
{
    struct fixture *self = start(NULL);
    struct flyt_test_random *random = &self->random;
    unsigned char *data = calloc(1, DATA_BYTES);

    atomic_store(&self->peer.executed_max, 0);
    for (unsigned i = 0; i < 12000; i++) {
        flyt_memory_free_args gone = {.address = i};
        flyt_copy_in_args copy = {.data = {flyt_test_number(random) % 5000, (char *)data}};
        flyt_query_res query = {0};
        switch (flyt_test_number(random) % 64) {
        case 0:
            call_barrier(self);
            break;
        case 1:
            assert_int_equal(flyt_channel_flush(self->client.channel), FLYT_CHANNEL_OK);
            break;
        case 2:
            assert_int_equal(
                flyt_channel_send_data(self->client.channel, 0, data, flyt_test_number(random) % DATA_BYTES),
                FLYT_CHANNEL_OK);
            break;
        case 3:
            assert_int_equal(flyt_channel_call(self->client.channel, FLYT_QUERY, (xdrproc_t)(void *)xdr_void, NULL,
                                               (xdrproc_t)xdr_flyt_query_res, &query),
                             FLYT_CHANNEL_OK);
            xdr_free((xdrproc_t)xdr_flyt_query_res, &query);
            break;
        case 4:
            send_launch(self, flyt_test_number(random) % FLYT_PARAM_BYTES_MAX & ~3u);
            break;
        case 5 ... 9:
            send_one_way(self, FLYT_COPY_IN, (xdrproc_t)xdr_flyt_copy_in_args, &copy);
            break;
        case 10 ... 30:
            send_one_way(self, FLYT_MEMORY_FREE, (xdrproc_t)xdr_flyt_memory_free_args, &gone);
            break;
        case 31: { /* the server gets on: behind by up to 1,000 calls */
            uint64_t behind = flyt_test_number(random) % 1000, last = self->sent.last;
            if (last > behind && last - behind > atomic_load(&self->peer.executed_max))
                atomic_store(&self->peer.executed_max, last - behind);
            break;
        }
        case 32:
            check_not_executed(self);
            break;
        default:
            send_launch(self, flyt_test_number(random) % 64 & ~3u);
        }
    }
    check_not_executed(self);
    atomic_store(&self->peer.executed_max, UINT64_MAX);
    call_barrier(self);
    assert_int_equal(flyt_channel_progress(self->client.channel).executed, self->sent.last);
    assert_int_equal(check_kept(self, self->sent.last), 0);
    call_barrier(self); /* written: what is executed is let go */
    assert_true(flyt_channel_kept_sums(self->client.channel).gone >= self->sent.last - 1);
    assert_int_equal(flyt_channel_kept(self->client.channel, self->sent.last - 2, NULL, NULL), FLYT_CHANNEL_GONE);
    free(data);
    stop(self);
}

/* ---- bounds ---- */

/* Nobody waits, memory stays bounded, what is kept is the newest without a hole, and it says that it is not all. */
static void exceed(unsigned params_bytes, unsigned count)
{
    struct fixture *self = start(NULL);
    uint64_t gone = 0;

    atomic_store(&self->peer.executed_max, 3);
    for (unsigned i = 0; i < count; i++) {
        send_launch(self, params_bytes);
        if (i % 64)
            continue;
        struct flyt_channel_kept_sums sums = flyt_channel_kept_sums(self->client.channel);
        assert_in_range(sums.bytes, 0, FLYT_KEPT_BYTES_MAX);
        assert_int_equal(sums.last, self->sent.last);
        assert_true(sums.gone >= gone);
        gone = sums.gone;
    }
    call_barrier(self);
    assert_true(gone > 3);
    assert_int_equal(flyt_channel_progress(self->client.channel).executed, 3);
    assert_int_equal(flyt_channel_kept(self->client.channel, 3, NULL, NULL), FLYT_CHANNEL_GONE);
    gone = flyt_channel_kept_sums(self->client.channel).gone;
    assert_int_equal(flyt_channel_kept(self->client.channel, gone - 1, NULL, NULL), FLYT_CHANNEL_GONE);
    check_kept(self, gone);
    /* As much as the bounds allow, but for buffers that are not full. */
    size_t kept_bytes = (self->sent.last - gone) * (4 + self->sent.calls[2].bytes);
    assert_true(self->sent.last - gone >= FLYT_KEPT_CALLS_MAX / 2 || kept_bytes >= FLYT_KEPT_BYTES_MAX / 8);
    assert_in_range(self->sent.last - gone, 1, FLYT_KEPT_CALLS_MAX + 3000);

    /* When the server has executed what was let go, the set is whole again. */
    atomic_store(&self->peer.executed_max, gone + (self->sent.last - gone) / 2);
    call_barrier(self);
    check_not_executed(self);
    atomic_store(&self->peer.executed_max, UINT64_MAX);
    call_barrier(self);
    for (unsigned i = 0; i < 100; i++)
        send_launch(self, 8);
    check_not_executed(self);
    call_barrier(self);
    stop(self);
}

static void test_beyond_the_bounds_the_oldest_go(void **state)
{
    exceed(4096, 3000);
    exceed(FLYT_PARAM_BYTES_MAX, 400);
    exceed(0, 60000);
}

/* ---- replies ---- */

/* Withholds the reply to stream_synchronize. */
static bool serve_withhold(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                           struct svc_req *req)
{
    struct fixture *self = peer->user;

    if (procedure != FLYT_STREAM_SYNCHRONIZE)
        return true;
    pthread_mutex_lock(&self->mutex);
    self->connection = link->connection;
    self->withheld_xid = flyt_connection_xid(link->connection);
    pthread_mutex_unlock(&self->mutex);
    return false;
}

static void *run_synchronize(void *argument)
{
    struct fixture *self = argument;
    flyt_stream_synchronize_args args = {.stream_id = 5};
    flyt_stream_synchronize_res res;

    return flyt_call_stream_synchronize(self->client.channel, &args, &res) == FLYT_CHANNEL_OK && res.result == 99
               ? argument
               : NULL;
}

static void test_a_call_is_kept_until_its_reply_has_come(void **state)
{
    struct fixture *self = start(serve_withhold);
    flyt_stream_synchronize_args args = {.stream_id = 5};
    flyt_stream_synchronize_res res = {.result = 99};
    uint32_t xid = 0;
    pthread_t thread;
    void *outcome;

    for (unsigned i = 0; i < 10; i++)
        send_launch(self, 8);
    note_sent(self, FLYT_STREAM_SYNCHRONIZE, (xdrproc_t)xdr_flyt_stream_synchronize_args, &args);
    pthread_create(&thread, NULL, run_synchronize, self);
    while (!xid) {
        usleep(200);
        pthread_mutex_lock(&self->mutex);
        xid = self->withheld_xid;
        pthread_mutex_unlock(&self->mutex);
    }
    assert_int_equal(xid, 11);
    for (unsigned i = 0; i < 2000; i++) {
        send_launch(self, 8);
        if (i % 100 == 0)
            call_barrier(self);
    }
    call_barrier(self);
    assert_int_equal(flyt_channel_progress(self->client.channel).executed, self->sent.last);
    assert_int_equal(check_kept(self, self->sent.last), 1); /* executed, and not answered */
    assert_int_equal(check_kept(self, 10), 1);
    flyt_connection_reply(self->connection, xid, (xdrproc_t)xdr_flyt_stream_synchronize_res, &res, NULL, 0);
    flyt_connection_flush(self->connection);
    pthread_join(thread, &outcome);
    assert_ptr_equal(outcome, self);
    assert_int_equal(check_kept(self, self->sent.last), 0);
    call_barrier(self);
    assert_true(flyt_channel_kept_sums(self->client.channel).gone >= self->sent.last - 1);
    stop(self);
}

/* ---- another server ---- */

enum { MOVE_AT = 1200, MOVE_LAST = 2500 };

/* What both servers have executed, as the programs of a move share it. */
struct executed {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    uint64_t last;
    unsigned wrong_count;
    bool is_over; /* the first server, which hangs, comes to its end */
};

/* Executes the session's call number `sequence`: each once, in order, as it was sent. */
static void execute(struct executed *executed, uint64_t sequence, struct test_link *link, unsigned procedure,
                    const void *args)
{
    bool is_wrong =
        sequence != executed->last + 1 || flyt_connection_xid(link->connection) != (uint32_t)sequence ||
        (procedure == FLYT_KERNEL_LAUNCH && ((const flyt_kernel_launch_args *)args)->kernel_id != sequence - 1);

    executed->wrong_count += is_wrong;
    executed->last = sequence;
    pthread_cond_broadcast(&executed->changed);
}

/* Executes MOVE_AT calls and then hangs, with a connection that still takes what is sent. */
static bool serve_and_hang(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                           struct svc_req *req)
{
    struct fixture *self = peer->user;
    struct executed *executed = self->executed;

    pthread_mutex_lock(&executed->mutex);
    while (executed->last >= MOVE_AT && !executed->is_over)
        pthread_cond_wait(&executed->changed, &executed->mutex);
    bool is_over = executed->is_over;
    if (!is_over)
        execute(executed, link->received, link, procedure, args);
    pthread_mutex_unlock(&executed->mutex);
    return !is_over && procedure != FLYT_STREAM_SYNCHRONIZE; /* whose reply gets lost */
}

/* Goes on behind MOVE_AT. */
static bool serve_the_rest(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                           struct svc_req *req)
{
    struct executed *executed = peer->user;

    pthread_mutex_lock(&executed->mutex);
    execute(executed, MOVE_AT + link->received, link, procedure, args);
    pthread_mutex_unlock(&executed->mutex);
    return true;
}

static void wait_executed(struct executed *executed, uint64_t number)
{
    pthread_mutex_lock(&executed->mutex);
    while (executed->last < number)
        pthread_cond_wait(&executed->changed, &executed->mutex);
    pthread_mutex_unlock(&executed->mutex);
}

static void send_record(int fd, const void *record, size_t bytes)
{
    uint32_t mark = htonl(0x80000000u | (uint32_t)bytes);

    assert_int_equal(send(fd, &mark, sizeof mark, MSG_NOSIGNAL), sizeof mark);
    assert_int_equal(send(fd, record, bytes, MSG_NOSIGNAL), bytes);
}

/* The xid of the next reply; the server's own calls are passed over. */
static uint32_t receive_reply(int fd)
{
    uint32_t words[16384], mark;

    for (;;) {
        assert_int_equal(recv(fd, &mark, sizeof mark, MSG_WAITALL), sizeof mark);
        size_t bytes = ntohl(mark) & 0x7fffffff;
        assert_in_range(bytes, 8, sizeof words);
        assert_int_equal(recv(fd, words, bytes, MSG_WAITALL), bytes);
        if (ntohl(words[1]) == REPLY)
            return ntohl(words[0]);
    }
}

/* A session's connection without a channel: connected, handshake made. */
static int connect_raw(const char *url)
{
    static unsigned char record[FLYT_HANDSHAKE_BYTES_MAX];
    flyt_handshake_args args = {.build = (char *)"", .program_name = (char *)"move", .kind = FLYT_CONNECTION_SESSION};
    struct flyt_bytes bytes = {.bytes_max = sizeof record};
    struct flyt_error err;
    XDR xdrs;
    int fd;

    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(flyt_call_head_put(&xdrs, 1, FLYT_PROGRAM, FLYT_VERSION, FLYT_HANDSHAKE) &&
                xdr_flyt_handshake_args(&xdrs, &args));
    assert_int_equal(flyt_connect(url, 5000, &err, &fd), 0);
    send_record(fd, bytes.data, bytes.used);
    assert_int_equal(receive_reply(fd), 1);
    flyt_bytes_fini(&bytes);
    return fd;
}

struct resend {
    int fd;
    uint64_t awaited[8];
    unsigned awaited_count, sent_count;
};

static bool resend_call(void *user, const struct flyt_channel_kept_call *call)
{
    struct resend *resend = user;

    assert_true(!call->is_awaited || resend->awaited_count < 8);
    if (call->is_awaited)
        resend->awaited[resend->awaited_count++] = call->sequence;
    if (call->sequence > MOVE_AT) {
        send_record(resend->fd, call->record, call->bytes);
        resend->sent_count++;
    }
    return true;
}

static void *run_call(void *argument)
{
    struct fixture *self = argument;
    flyt_memory_alloc_args args = {.bytes = 4096};
    flyt_memory_alloc_res res;

    return flyt_call_memory_alloc(self->client.channel, &args, &res) == FLYT_CHANNEL_LOST ? argument : NULL;
}

static void start_call(struct fixture *self, pthread_t *thread, void *(*run)(void *), unsigned procedure,
                       xdrproc_t xdr_args, void *args)
{
    note_sent(self, procedure, xdr_args, args);
    assert_int_equal(pthread_create(thread, NULL, run, self), 0);
    while (flyt_channel_kept_sums(self->client.channel).last < self->sent.last)
        usleep(100);
}

/* A server executes some calls and hangs; another that goes on from there gets the rest, from what is kept. */
static void test_another_server_goes_on_where_one_stopped(void **state)
{
    struct executed executed = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct fixture *self = start(serve_and_hang);
    struct test_peer *other = calloc(1, sizeof *other);
    flyt_stream_synchronize_args synchronize = {.stream_id = 5};
    flyt_memory_alloc_args alloc = {.bytes = 4096};
    struct resend resend = {0};
    pthread_t threads[3];
    void *outcome;

    self->executed = &executed;
    while (self->sent.last < 300)
        send_launch(self, 16);
    start_call(self, &threads[0], run_synchronize, FLYT_STREAM_SYNCHRONIZE, (xdrproc_t)xdr_flyt_stream_synchronize_args,
               &synchronize);
    while (self->sent.last < MOVE_LAST)
        send_launch(self, flyt_test_number(&self->random) % 64 & ~3u);
    for (unsigned i = 1; i < 3; i++)
        start_call(self, &threads[i], run_call, FLYT_MEMORY_ALLOC, (xdrproc_t)xdr_flyt_memory_alloc_args, &alloc);
    wait_executed(&executed, MOVE_AT);

    test_peer_init(other);
    other->serve = serve_the_rest;
    other->user = &executed;
    test_peer_start(other, "tcp://127.0.0.1:0");
    resend.fd = connect_raw(other->url);
    assert_int_equal(flyt_channel_kept(self->client.channel, MOVE_AT, resend_call, &resend), FLYT_CHANNEL_OK);
    wait_executed(&executed, MOVE_LAST + 2);
    assert_int_equal(resend.sent_count, MOVE_LAST + 2 - MOVE_AT);
    /* Executed and not answered; not executed. The replies to these come. */
    assert_int_equal(resend.awaited_count, 3);
    assert_int_equal(resend.awaited[0], 301);
    for (unsigned i = 1; i < 3; i++) {
        assert_int_equal(resend.awaited[i], MOVE_LAST + i);
        assert_int_equal(receive_reply(resend.fd), resend.awaited[i]);
    }
    assert_int_equal(executed.wrong_count, 0);
    assert_int_equal(executed.last, self->sent.last);
    close(resend.fd);
    test_peer_stop(other);
    free(other);

    test_peer_cut(&self->peer);
    pthread_mutex_lock(&executed.mutex);
    executed.is_over = true;
    pthread_cond_broadcast(&executed.changed);
    pthread_mutex_unlock(&executed.mutex);
    for (unsigned i = 0; i < 3; i++) {
        pthread_join(threads[i], &outcome);
        assert_ptr_equal(outcome, i ? self : NULL);
    }
    stop(self);
}

/* ---- threads ---- */

struct sender {
    struct fixture *self;
    unsigned number, failures;
};

static void *run_sender(void *argument)
{
    struct sender *sender = argument;
    struct flyt_channel *channel = sender->self->client.channel;
    flyt_session_barrier_args barrier = {0};
    flyt_session_barrier_res res;

    for (unsigned i = 0; i < 20000; i++) {
        flyt_memory_free_args args = {.address = (uint64_t)sender->number << 32 | i};
        sender->failures += flyt_channel_send(channel, FLYT_MEMORY_FREE, (xdrproc_t)xdr_flyt_memory_free_args, &args,
                                              NULL) != FLYT_CHANNEL_OK;
        if (i % 500 == 0)
            sender->failures += flyt_call_session_barrier(channel, &barrier, &res) != FLYT_CHANNEL_OK;
    }
    return NULL;
}

struct seen {
    uint64_t next;       /* number */
    uint64_t next_of[8]; /* of each thread; UINT64_MAX: none seen yet */
    unsigned wrong_count;
    unsigned free_args_at;
};

static bool check_order(void *user, const struct flyt_channel_kept_call *call)
{
    const uint32_t *words = call->record;
    struct seen *seen = user;

    if (seen->next && call->sequence != seen->next)
        seen->wrong_count += !call->is_awaited;
    seen->next = call->sequence + 1;
    if (call->procedure != FLYT_MEMORY_FREE)
        return true;
    uint32_t number = ntohl(words[seen->free_args_at]), index = ntohl(words[seen->free_args_at + 1]);
    if (number >= 8) {
        seen->wrong_count++;
        return true;
    }
    seen->wrong_count += seen->next_of[number] != UINT64_MAX && seen->next_of[number] != index;
    seen->next_of[number] = index + 1;
    return true;
}

/* Where a free call's address stands in its record, in words. */
static unsigned find_address(void)
{
    flyt_memory_free_args args = {.address = 0x1122334455667788};
    uint32_t words[64];
    XDR xdrs;

    xdrmem_create(&xdrs, (char *)words, sizeof words, XDR_ENCODE);
    assert_true(xdr_flyt_memory_free_args(&xdrs, &args));
    for (unsigned i = 0; i < xdr_getpos(&xdrs) / 4; i++) {
        if (ntohl(words[i]) == 0x11223344)
            return 10 + i; /* behind the call's head: RFC 5531, with empty credentials */
    }
    fail();
    return 0;
}

static void test_walks_while_threads_send(void **state)
{
    enum { THREADS = 4 };
    struct fixture *self = start(NULL);
    struct sender senders[THREADS];
    pthread_t threads[THREADS];
    unsigned walk_count = 0, free_args_at = find_address();

    for (unsigned i = 0; i < THREADS; i++) {
        senders[i] = (struct sender){.self = self, .number = i};
        pthread_create(&threads[i], NULL, run_sender, &senders[i]);
    }
    while (flyt_channel_kept_sums(self->client.channel).last < THREADS * 20000) {
        struct seen seen = {.free_args_at = free_args_at};
        memset(seen.next_of, 0xff, sizeof seen.next_of);
        uint64_t executed = flyt_channel_progress(self->client.channel).executed;
        int status = flyt_channel_kept(self->client.channel, executed, check_order, &seen);
        assert_true(status == FLYT_CHANNEL_OK || status == FLYT_CHANNEL_GONE);
        assert_int_equal(seen.wrong_count, 0);
        walk_count += status == FLYT_CHANNEL_OK && seen.next;
    }
    for (unsigned i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(senders[i].failures, 0);
    }
    assert_true(walk_count > 0);
    stop(self);
}

/* ---- the end ---- */

static void test_a_lost_channel_keeps_nothing(void **state)
{
    struct fixture *self = start(NULL);

    atomic_store(&self->peer.executed_max, 0);
    for (unsigned i = 0; i < 2000; i++)
        send_launch(self, 100);
    call_barrier(self);
    assert_true(flyt_channel_kept_sums(self->client.channel).bytes > 0);
    check_kept(self, 0);
    test_peer_cut(&self->peer);
    test_client_wait(&self->client, &self->client.lost_count, 1);
    assert_int_equal(flyt_channel_kept(self->client.channel, 0, NULL, NULL), FLYT_CHANNEL_LOST);
    assert_int_equal(flyt_channel_kept_sums(self->client.channel).bytes, 0);
    stop(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exactly_what_is_not_executed_is_kept),
        cmocka_unit_test(test_beyond_the_bounds_the_oldest_go),
        cmocka_unit_test(test_a_call_is_kept_until_its_reply_has_come),
        cmocka_unit_test(test_another_server_goes_on_where_one_stopped),
        cmocka_unit_test(test_walks_while_threads_send),
        cmocka_unit_test(test_a_lost_channel_keeps_nothing),
    };
    static const char *const schemes[] = {"unix", "tcp", "memory"};
    int failures = 0;

    unsetenv("FLYT_LOG");
    flyt_log_init("kept-test", FLYT_LOG_WARN);
    for (unsigned i = 0; i < sizeof schemes / sizeof schemes[0]; i++) {
        scheme = schemes[i];
        failures += cmocka_run_group_tests_name(scheme, tests, NULL, NULL);
    }
    return failures;
}
