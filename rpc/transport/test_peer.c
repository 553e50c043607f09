#include "rpc/transport/test_peer.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "flyt_signatures.h"
#include "rpc/base/descriptors.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/listen.h"

enum { CHUNK_BYTES = 1024 * 1024 };

void flyt_program_1(struct svc_req *request, SVCXPRT *xprt);

static void fail(const char *what)
{
    fprintf(stderr, "test peer: %s: %m\n", what);
    abort();
}

/* ---- calls ---- */

static void answer_handshake(struct test_link *link, flyt_handshake_args *args, flyt_handshake_res *res)
{
    struct test_peer *peer = link->peer;
    static const char build[] = "test peer";

    bool is_resuming = args->kind == FLYT_CONNECTION_RESUME;
    link->is_data = args->kind == FLYT_CONNECTION_DATA;
    const bool may_hold = link->is_data && link > &peer->links[peer->free_streams];
    if (may_hold && atomic_load(&peer->holds_streams))
        atomic_fetch_add(&peer->held_streams, 1);
    while (may_hold && atomic_load(&peer->holds_streams))
        usleep(1000);
    atomic_store(&peer->key, args->credentials.credentials_len ? (unsigned char)*args->credentials.credentials_val : 0);
    res->message = strdup("");
    res->build = strdup(build);
    res->session_id = 77;
    res->device_count = 2;
    res->driver_version = 13000;
    res->data_streams = peer->data_streams;
    res->features = peer->features;
    res->token.token_val = calloc(1, FLYT_TOKEN_BYTES);
    res->token.token_len = FLYT_TOKEN_BYTES;
    memset(res->token.token_val, 0x5a, FLYT_TOKEN_BYTES);
    if (memcmp(args->base_hash, peer->base_hash, FLYT_HASH_BYTES)) {
        free(res->message);
        res->message = strdup("the client's base protocol differs: upgrade the client");
        res->status = FLYT_HANDSHAKE_BASE_DIFFERS;
    } else if ((link->is_data || is_resuming) &&
               (args->token.token_len != FLYT_TOKEN_BYTES || args->token.token_val[0] != 0x5a)) {
        res->status = FLYT_HANDSHAKE_NO_SESSION;
    } else if (is_resuming && atomic_load(&peer->resume_status) != FLYT_HANDSHAKE_OK) {
        res->status = (flyt_handshake_status)atomic_load(&peer->resume_status);
        if (peer->resume_message) {
            free(res->message);
            res->message = strdup(peer->resume_message);
        }
    } else if (is_resuming && atomic_load(&peer->busy_count)) {
        atomic_fetch_sub(&peer->busy_count, 1);
        atomic_fetch_add(&peer->refused_count, 1);
        res->status = FLYT_HANDSHAKE_BUSY;
    }
    res->accepted.accepted_val = calloc(args->procedures.procedures_len + 1, sizeof(u_int));
    res->accepted.accepted_len =
        flyt_handshake_accept(args, peer->signatures, peer->signature_count, res->accepted.accepted_val);
}

/* Sends the answer with descriptors: one as a server does, any number as none should. */
static void send_handshake(struct test_link *link, flyt_handshake_res *res)
{
    struct test_peer *peer = link->peer;
    uint32_t xid = flyt_connection_xid(link->connection);
    void *record;
    size_t bytes;

    if (peer->handshake_fd_count == 1) {
        if (flyt_connection_reply_handshake(link->connection, xid, res, peer->handshake_fds[0]))
            fail("handshake");
        return;
    }
    if (flyt_handshake_encode_reply(xid, res, &record, &bytes) ||
        flyt_descriptors_send(flyt_connection_fd(link->connection), record, bytes, peer->handshake_fds,
                              peer->handshake_fd_count))
        fail("handshake");
    free(record);
}

static flyt_progress progress_of(const struct test_link *link)
{
    uint64_t executed_max = atomic_load(&link->peer->executed_max);
    uint64_t executed = link->received < executed_max ? link->received : executed_max;

    return (flyt_progress){.received = link->received, .executed = executed, .completed = executed};
}

/* The calls that do something here; all others are answered with zeros. Returns whether the dispatch answers. */
static bool serve_call(struct test_link *link, unsigned procedure, void *arguments, void *results, struct svc_req *req)
{
    struct test_peer *peer = link->peer;

    switch (procedure) {
    case FLYT_COPY_IN: {
        flyt_copy_in_args *args = arguments;
        if (args->data.data_len)
            memcpy(peer->memory + args->dst.address, args->data.data_val, args->data.data_len);
        return false;
    }
    case FLYT_COPY_OUT: {
        flyt_copy_out_args *args = arguments;
        flyt_copy_out_res *res = results;
        flyt_connection_reply(link->connection, flyt_connection_xid(link->connection), (xdrproc_t)xdr_flyt_copy_out_res,
                              res, peer->memory + args->src.address, args->src.width_bytes);
        return false;
    }
    case FLYT_COPY_OUT_TRANSFER: {
        flyt_copy_out_transfer_args *args = arguments;
        test_peer_send_chunks(peer, link, args->transfer_id, args->src.address, args->bytes);
        return false;
    }
    case FLYT_HOST_FUNCTION_LAUNCH: {
        flyt_host_function_launch_args *args = arguments;
        flyt_back_host_function call = {.function_id = args->function_id};
        flyt_connection_call_back(link->connection, FLYT_BACK_HOST_FUNCTION, (xdrproc_t)xdr_flyt_back_host_function,
                                  &call);
        return false;
    }
    }
    return flyt_procedure_has_reply(procedure);
}

/* A session that goes on. */
static bool_t serve_restoring(struct test_link *link, unsigned procedure, const void *args, void *res)
{
    struct test_peer *peer = link->peer;

    if (procedure == FLYT_SESSION_RESUME_BEGIN) {
        link->is_restoring = true;
    } else if (procedure == FLYT_SESSION_IS_WHOLE) {
        atomic_fetch_add(&peer->whole_count, 1);
        ((flyt_session_is_whole_res *)res)->is_whole = link->is_restoring = atomic_load(&peer->is_whole);
    } else if (procedure == FLYT_SESSION_LEFT_AT) {
        const struct flyt_call_state *left_at = peer->left_at;
        flyt_session_left_at_res *left = res;
        left->is_known = left_at != NULL;
        left->begun = left_at ? left_at->begun : 0;
        left->executed = left_at ? left_at->executed : 0;
        left->completed = left_at ? left_at->completed : 0;
        left->error_count = left_at ? left_at->error_count : 0;
    } else if (procedure == FLYT_SESSION_RESUME_END && atomic_load(&peer->unresumed_count)) {
        atomic_fetch_sub(&peer->unresumed_count, 1);
        ((flyt_session_resume_end_res *)res)->result = 1;
    } else if (procedure == FLYT_SESSION_RESUME_END) {
        uint64_t sequence = ((const flyt_session_resume_end_args *)args)->sequence;
        link->is_restoring = false;
        link->received = link->last_notice = sequence;
        atomic_store(&peer->resume_after, sequence);
    } else {
        atomic_fetch_add(&peer->restored_count, 1);
    }
    if (!flyt_procedure_has_reply(procedure))
        return FALSE;
    ((flyt_session_barrier_res *)res)->progress = progress_of(link);
    return TRUE;
}

bool_t flyt_test_serve(unsigned procedure, void *args, void *res, size_t res_bytes, struct svc_req *req)
{
    struct test_link *link = flyt_connection_user(req->rq_xprt);
    struct test_peer *peer = link->peer;

    memset(res, 0, res_bytes);
    if (procedure == FLYT_NULL)
        return TRUE;
    if (procedure == FLYT_HANDSHAKE) {
        answer_handshake(link, args, res);
        if (!peer->handshake_fd_count)
            return TRUE;
        send_handshake(link, res);
        return FALSE;
    }
    if (procedure == FLYT_QUERY) {
        ((flyt_query_res *)res)->build = strdup("test peer");
        return TRUE;
    }
    if (link->is_restoring || procedure == FLYT_SESSION_RESUME_BEGIN || procedure == FLYT_SESSION_IS_WHOLE ||
        procedure == FLYT_SESSION_LEFT_AT)
        return serve_restoring(link, procedure, args, res);
    atomic_fetch_add(&peer->call_count, 1);
    link->received++;
    if (flyt_procedure_has_reply(procedure)) /* every such result begins alike */
        ((flyt_session_barrier_res *)res)->progress = progress_of(link);
    if (peer->serve && !peer->serve(peer, link, procedure, args, res, req))
        return FALSE;
    return serve_call(link, procedure, args, res, req);
}

/* ---- chunks ---- */

/* Transfer ids are addresses here: where a chunk belongs. */
static void *chunk_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct test_link *link = user;
    uint64_t address = transfer_id + offset_bytes;

    while (atomic_load(&link->peer->holds_chunks))
        usleep(1000);

    return address + bytes <= link->peer->memory_bytes ? link->peer->memory + address : NULL;
}

static void chunk_done(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct test_link *link = user;

    atomic_fetch_add(&link->peer->chunk_bytes, bytes);
}

struct chunk_sender {
    struct test_peer *peer;
    struct flyt_connection *connection;
    uint64_t transfer_id, address;
    size_t bytes;
    _Atomic(size_t) *next;
};

static void *run_chunk_sender(void *argument)
{
    struct chunk_sender *self = argument;
    size_t offset;

    while ((offset = atomic_fetch_add(self->next, CHUNK_BYTES)) < self->bytes) {
        size_t left = self->bytes - offset;
        flyt_connection_send_chunk(self->connection, self->transfer_id, offset,
                                   self->peer->memory + self->address + offset,
                                   left < CHUNK_BYTES ? left : CHUNK_BYTES);
    }
    return NULL;
}

void test_peer_send_chunks(struct test_peer *peer, struct test_link *link, uint64_t transfer_id, uint64_t address,
                           size_t bytes)
{
    struct chunk_sender senders[TEST_PEER_CONNECTIONS_MAX];
    pthread_t threads[TEST_PEER_CONNECTIONS_MAX];
    _Atomic(size_t) next = 0;
    unsigned count = 0;

    pthread_mutex_lock(&peer->mutex);
    for (unsigned i = 0; i < peer->link_count; i++) {
        if (peer->links[i].is_data && !peer->links[i].is_cut)
            senders[count++].connection = peer->links[i].connection;
    }
    pthread_mutex_unlock(&peer->mutex);
    if (!count)
        senders[count++].connection = link->connection;
    for (unsigned i = 0; i < count; i++) {
        senders[i] = (struct chunk_sender){peer, senders[i].connection, transfer_id, address, bytes, &next};
        pthread_create(&threads[i], NULL, run_chunk_sender, &senders[i]);
    }
    for (unsigned i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

/* ---- connections ---- */

static void tell_idle(struct test_link *link)
{
    flyt_progress progress = progress_of(link);

    if (link->peer->is_mute || link->is_data || link->received == link->last_notice)
        return;
    link->last_notice = link->received;
    flyt_connection_call_back(link->connection, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
}

static void *run_link(void *argument)
{
    struct test_link *link = argument;

    for (;;) {
        int count = flyt_connection_receive(link->connection, false, FLYT_PROGRESS_CALLS, &link->end);
        if (count == FLYT_PROGRESS_CALLS)
            tell_idle(link);
        if (count == -EAGAIN) {
            tell_idle(link);
            flyt_connection_flush(link->connection);
            count = flyt_connection_receive(link->connection, true, 0, &link->end);
        }
        if (count < 0)
            break;
    }
    shutdown(flyt_connection_fd(link->connection), SHUT_RDWR);
    return NULL;
}

static void add_link(struct test_peer *peer, int fd, const void *record, size_t bytes)
{
    struct flyt_connection_config config = {.dispatch = flyt_program_1,
                                            .program = FLYT_PROGRAM,
                                            .version = FLYT_VERSION,
                                            .record_bytes_max = FLYT_RECORD_BYTES_MAX,
                                            .chunk_place = chunk_place,
                                            .chunk_done = chunk_done};

    pthread_mutex_lock(&peer->mutex);
    if (peer->link_count == TEST_PEER_CONNECTIONS_MAX) {
        close(fd);
    } else if (peer->link_count && peer->closes_count) {
        peer->closes_count--;
        close(fd);
    } else {
        struct test_link *link = &peer->links[peer->link_count];
        *link = (struct test_link){.peer = peer};
        config.user = link;
        flyt_socket_tune(fd);
        if (flyt_connection_new(fd, &config, &link->connection))
            fail("no memory");
        if (bytes && flyt_connection_preload(link->connection, record, bytes))
            fail("no memory");
        peer->link_count++;
        link->has_thread = !pthread_create(&link->thread, NULL, run_link, link);
    }
    pthread_mutex_unlock(&peer->mutex);
}

void test_peer_take(struct test_peer *peer, int fd, const void *record, size_t bytes)
{
    add_link(peer, fd, record, bytes);
}

static void *run_peer(void *argument)
{
    struct test_peer *peer = argument;
    int fd;

    while ((fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        add_link(peer, fd, NULL, 0);
    return NULL;
}

void test_peer_init(struct test_peer *peer)
{
    memset(peer, 0, sizeof *peer);
    peer->signatures = flyt_signatures;
    peer->signature_count = flyt_signature_count;
    peer->base_hash = flyt_base_hash;
    peer->executed_max = UINT64_MAX;
    pthread_mutex_init(&peer->mutex, NULL);
}

void test_peer_start(struct test_peer *peer, const char *url)
{
    struct flyt_error err;

    if (peer->memory_bytes && !(peer->memory = calloc(1, peer->memory_bytes)))
        fail("no memory");
    if (flyt_listen(url, &err, &peer->listen_fd, peer->url))
        fail(err.text);
    pthread_create(&peer->thread, NULL, run_peer, peer);
}

void test_peer_start_on(struct test_peer *peer, const char *scheme)
{
    char url[128] = "tcp://127.0.0.1:0";

    if (!strcmp(scheme, "unix"))
        snprintf(url, sizeof url, "unix:///tmp/flyt-test-peer-%d-%p", (int)getpid(), (void *)peer);
    test_peer_start(peer, url);
}

void test_peer_cut(struct test_peer *peer)
{
    pthread_mutex_lock(&peer->mutex);
    for (unsigned i = 0; i < peer->link_count; i++) {
        peer->links[i].is_cut = true;
        shutdown(flyt_connection_fd(peer->links[i].connection), SHUT_RDWR);
    }
    pthread_mutex_unlock(&peer->mutex);
}

void test_peer_deafen(struct test_peer *peer)
{
    shutdown(peer->listen_fd, SHUT_RDWR);
}

void test_peer_stop(struct test_peer *peer)
{
    test_peer_deafen(peer);
    pthread_join(peer->thread, NULL);
    test_peer_cut(peer);
    for (unsigned i = 0; i < peer->link_count; i++) {
        if (peer->links[i].has_thread)
            pthread_join(peer->links[i].thread, NULL);
    }
    for (unsigned i = 0; i < peer->link_count; i++)
        flyt_connection_free(peer->links[i].connection);
    close(peer->listen_fd);
    flyt_unlisten(peer->url);
    free(peer->memory);
    pthread_mutex_destroy(&peer->mutex);
}
