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
#include "rpc/transport/endpoint/listen.h"

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
    link->is_main = !link->is_data;
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
    unsigned driver_version = atomic_load(&peer->driver_version);
    res->driver_version = driver_version ? driver_version : 13000;
    res->data_streams = peer->data_streams;
    res->features = peer->features;
    if (!link->is_data)
        atomic_store(&peer->heeds_grants, flyt_handshake_answer_window(args, peer->window_bytes, res) > 0);
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
    } else if (link->is_data && atomic_load(&peer->busy_data_count)) {
        atomic_fetch_sub(&peer->busy_data_count, 1);
        res->status = FLYT_HANDSHAKE_BUSY;
    } else if (is_resuming && atomic_load(&peer->busy_count)) {
        atomic_fetch_sub(&peer->busy_count, 1);
        atomic_fetch_add(&peer->refused_count, 1);
        res->status = FLYT_HANDSHAKE_BUSY;
    }
    if (res->status == FLYT_HANDSHAKE_OK &&
        flyt_handshake_answer_rows(args, peer->signatures, peer->signature_count, res))
        fail("handshake");
}

/* Sends the answer with descriptors: one as a server does, any number as none should. */
static void send_handshake(struct test_link *link, flyt_handshake_res *res)
{
    struct test_peer *peer = link->peer;
    uint32_t xid = flyt_connection_xid(link->connection);
    void *record;
    size_t bytes;

    if (peer->handshake_fd_count == 1) {
        if (flyt_connection_reply_handshake(link->connection, xid, res, peer->handshake_fds, 1))
            fail("handshake");
        return;
    }
    if (flyt_handshake_encode_reply(xid, res, &record, &bytes) ||
        flyt_descriptors_send(flyt_endpoint_fd(flyt_connection_endpoint(link->connection)), record, bytes,
                              peer->handshake_fds, peer->handshake_fd_count))
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
    } else if (procedure == FLYT_SESSION_RESUME_FAIL) {
        snprintf(peer->reason, sizeof peer->reason, "%s", ((const flyt_session_resume_fail_args *)args)->reason);
        atomic_fetch_add(&peer->reason_count, 1);
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

/* The main connection of the client that came last. */
static struct test_link *find_main_locked(struct test_peer *peer)
{
    struct test_link *link = NULL;

    for (unsigned i = 0; i < peer->link_count; i++)
        if (peer->links[i].is_main)
            link = &peer->links[i];
    return link;
}

/* How much of a transfer may come; NULL: it is none of the first. */
static uint64_t *find_granted_locked(struct test_peer *peer, uint64_t transfer_id)
{
    unsigned i = 0;

    while (i < peer->granted_count && peer->granted[i].transfer_id != transfer_id)
        i++;
    if (i == TEST_PEER_TRANSFERS_MAX)
        return NULL;
    if (i == peer->granted_count) {
        peer->granted_count++;
        peer->granted[i].transfer_id = transfer_id;
        peer->granted[i].end = peer->window_bytes;
    }
    return &peer->granted[i].end;
}

void test_peer_grant(struct test_peer *peer, uint64_t transfer_id, uint64_t offset_bytes, uint64_t bytes)
{
    flyt_back_grant grant = {.transfer_id = transfer_id, .offset_bytes = offset_bytes, .bytes = bytes};

    pthread_mutex_lock(&peer->mutex);
    struct flyt_connection *connection = find_main_locked(peer)->connection;
    uint64_t *granted = find_granted_locked(peer, transfer_id);
    if (granted && *granted < offset_bytes + bytes)
        *granted = offset_bytes + bytes;
    pthread_mutex_unlock(&peer->mutex);
    atomic_fetch_add(&peer->grant_count, 1);
    flyt_connection_call_back(connection, FLYT_BACK_GRANT, (xdrproc_t)xdr_flyt_back_grant, &grant);
    flyt_connection_flush(connection);
}

static void check_granted(struct test_peer *peer, uint64_t transfer_id, uint64_t end)
{
    if (!atomic_load(&peer->heeds_grants))
        return;
    pthread_mutex_lock(&peer->mutex);
    uint64_t *granted = find_granted_locked(peer, transfer_id);
    if (granted && *granted < end)
        atomic_fetch_add(&peer->ungranted_count, 1);
    pthread_mutex_unlock(&peer->mutex);
}

/* Transfer ids are addresses here: where a chunk belongs. */
static void *chunk_place(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct test_link *link = user;
    uint64_t address = transfer_id + offset_bytes;

    while (atomic_load(&link->peer->holds_chunks))
        usleep(1000);
    check_granted(link->peer, transfer_id, offset_bytes + bytes);
    return address + bytes <= link->peer->memory_bytes ? link->peer->memory + address : NULL;
}

static void chunk_done(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct test_link *link = user;
    struct test_peer *peer = link->peer;

    atomic_fetch_add(&peer->chunk_bytes, bytes);
    if (atomic_load(&peer->heeds_grants) &&
        !peer->is_own_granter) /* a window behind it; from the beginning on, for tests use an id again */
        test_peer_grant(peer, transfer_id, 0, offset_bytes + bytes + peer->window_bytes);
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
    flyt_endpoint_shut(flyt_connection_endpoint(link->connection), FLYT_ENDPOINT_BOTH);
    return NULL;
}

static void add_link(struct test_peer *peer, struct flyt_endpoint *endpoint, const void *record, size_t bytes)
{
    struct flyt_connection_config config = {.dispatch = flyt_program_1,
                                            .program = FLYT_PROGRAM,
                                            .version = FLYT_VERSION,
                                            .record_bytes_max = FLYT_RECORD_BYTES_MAX,
                                            .chunk_place = chunk_place,
                                            .chunk_done = chunk_done};

    pthread_mutex_lock(&peer->mutex);
    if (peer->link_count == TEST_PEER_CONNECTIONS_MAX) {
        flyt_endpoint_close(endpoint);
    } else if (peer->link_count && peer->closes_count) {
        peer->closes_count--;
        flyt_endpoint_close(endpoint);
    } else {
        struct test_link *link = &peer->links[peer->link_count];
        *link = (struct test_link){.peer = peer};
        config.user = link;
        if (flyt_connection_new(endpoint, &config, &link->connection))
            fail("no memory");
        if (bytes && flyt_connection_preload(link->connection, record, bytes))
            fail("no memory");
        peer->link_count++;
        link->has_thread = !pthread_create(&link->thread, NULL, run_link, link);
    }
    pthread_mutex_unlock(&peer->mutex);
}

void test_peer_take(struct test_peer *peer, struct flyt_endpoint *endpoint, const void *record, size_t bytes)
{
    add_link(peer, endpoint, record, bytes);
}

static void *run_peer(void *argument)
{
    struct test_peer *peer = argument;
    struct flyt_endpoint *endpoint;
    int fd;

    while ((fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
        if (atomic_load(&peer->is_deaf)) {
            close(fd);
            break;
        }
        flyt_socket_tune(fd);
        if (flyt_endpoint_of_socket(fd, &endpoint))
            fail("no memory");
        add_link(peer, endpoint, NULL, 0);
    }
    return NULL;
}

void test_peer_init(struct test_peer *peer)
{
    memset(peer, 0, sizeof *peer);
    peer->signatures = flyt_signatures;
    peer->signature_count = flyt_signature_count;
    peer->base_hash = flyt_base_hash;
    peer->executed_max = UINT64_MAX;
    peer->window_bytes = TEST_PEER_WINDOW_BYTES;
    pthread_mutex_init(&peer->mutex, NULL);
}

static void take_in_memory(void *user, struct flyt_endpoint *endpoint)
{
    add_link(user, endpoint, NULL, 0);
}

static int dial_in_memory(void *user, const char *url, unsigned timeout_ms, struct flyt_error *err,
                          struct flyt_endpoint **ret_endpoint)
{
    struct test_peer *peer = user;

    if (atomic_load(&peer->is_deaf))
        return flyt_error_set(err, -ECONNREFUSED, "cannot connect to %s: nobody listens", url);
    return flyt_endpoint_in_memory(&peer->memory_listener, ret_endpoint);
}

static void make_memory(struct test_peer *peer)
{
    if (peer->memory_bytes && !(peer->memory = calloc(1, peer->memory_bytes)))
        fail("no memory");
}

void test_peer_start(struct test_peer *peer, const char *url)
{
    struct flyt_error err;

    make_memory(peer);
    if (flyt_listen(url, &err, &peer->listen_fd, peer->url))
        fail(err.text);
    pthread_create(&peer->thread, NULL, run_peer, peer);
}

void test_peer_start_on(struct test_peer *peer, const char *scheme)
{
    char url[128] = "tcp://127.0.0.1:0";

    if (!strcmp(scheme, "memory")) {
        make_memory(peer);
        peer->dial = dial_in_memory;
        peer->memory_listener = (struct flyt_memory_listener){.arrive = take_in_memory, .user = peer};
        peer->listen_fd = -1;
        snprintf(peer->url, sizeof peer->url, "memory");
        return;
    }
    if (!strcmp(scheme, "unix"))
        snprintf(url, sizeof url, "unix:///tmp/flyt-test-peer-%d-%p", (int)getpid(), (void *)peer);
    test_peer_start(peer, url);
}

void test_peer_cut(struct test_peer *peer)
{
    pthread_mutex_lock(&peer->mutex);
    for (unsigned i = 0; i < peer->link_count; i++) {
        peer->links[i].is_cut = true;
        flyt_endpoint_shut(flyt_connection_endpoint(peer->links[i].connection), FLYT_ENDPOINT_BOTH);
    }
    pthread_mutex_unlock(&peer->mutex);
}

enum { DEAFEN_MS = 60000 };

void test_peer_deafen(struct test_peer *peer)
{
    struct flyt_error err;
    int fd;

    atomic_store(&peer->is_deaf, true);
    /* vsock's accept(2) goes on waiting: for this one. */
    if (peer->listen_fd >= 0 && shutdown(peer->listen_fd, SHUT_RDWR) && !flyt_connect(peer->url, DEAFEN_MS, &err, &fd))
        close(fd);
}

void test_peer_stop(struct test_peer *peer)
{
    test_peer_deafen(peer);
    if (peer->listen_fd >= 0)
        pthread_join(peer->thread, NULL);
    test_peer_cut(peer);
    for (unsigned i = 0; i < peer->link_count; i++) {
        if (peer->links[i].has_thread)
            pthread_join(peer->links[i].thread, NULL);
    }
    for (unsigned i = 0; i < peer->link_count; i++)
        flyt_connection_free(peer->links[i].connection);
    if (atomic_load(&peer->ungranted_count))
        fail("chunks came that were not granted");
    if (peer->listen_fd >= 0) {
        close(peer->listen_fd);
        flyt_unlisten(peer->url);
    }
    free(peer->memory);
    pthread_mutex_destroy(&peer->mutex);
}
