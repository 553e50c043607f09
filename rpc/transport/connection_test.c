/* Tests of the server's connection with records made by hand, and with a stock rpcgen client over libtirpc. */
#include <arpa/inet.h>
#include <errno.h>
#include <malloc.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>
#include <rpc/rpc.h>
#include "flyt_procedures.h"
#include "flyt_signatures.h"
#include "rpc/base/url.h"
#include "rpc/transport/connection.h"
#include "rpc/transport/message.h"
#include "rpc/transport/test_peer.h"

void flyt_program_1(struct svc_req *request, SVCXPRT *xprt);

/* A connection whose dispatch is rpcgen's, and the other end of its socket. */
struct side {
    struct test_peer peer; /* for flyt_test_serve */
    struct test_link link;
    int fd;
    unsigned char chunk[256];
    size_t chunk_bytes;
    struct flyt_error err;
};

static void *place_chunk(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    struct side *side = (struct side *)((char *)user - offsetof(struct side, link));

    return bytes <= sizeof side->chunk ? side->chunk : NULL;
}

static void done_chunk(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    ((struct side *)((char *)user - offsetof(struct side, link)))->chunk_bytes += bytes;
}

static struct side *new_side(bool takes_chunks)
{
    struct side *side = calloc(1, sizeof *side);
    struct flyt_endpoint *endpoint;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    test_peer_init(&side->peer);
    side->peer.memory_bytes = 1 << 20;
    side->peer.memory = calloc(1, side->peer.memory_bytes);
    side->link.peer = &side->peer;
    side->fd = pair[1];
    struct flyt_connection_config config = {.dispatch = flyt_program_1,
                                            .program = FLYT_PROGRAM,
                                            .version = FLYT_VERSION,
                                            .user = &side->link,
                                            .record_bytes_max = FLYT_RECORD_BYTES_MAX,
                                            .chunk_place = takes_chunks ? place_chunk : NULL,
                                            .chunk_done = takes_chunks ? done_chunk : NULL};
    assert_int_equal(flyt_endpoint_of_socket(pair[0], &endpoint), 0);
    assert_int_equal(flyt_connection_new(endpoint, &config, &side->link.connection), 0);
    return side;
}

static void free_side(struct side *side)
{
    flyt_connection_free(side->link.connection);
    close(side->fd);
    free(side->peer.memory);
    pthread_mutex_destroy(&side->peer.mutex);
    free(side);
}

static int receive(struct side *side)
{
    return flyt_connection_receive(side->link.connection, false, 0, &side->err);
}

static void put_word(struct flyt_bytes *bytes, uint32_t word)
{
    assert_true(flyt_bytes_reserve(bytes, 4));
    word = htonl(word);
    memcpy(bytes->data + bytes->used, &word, 4);
    bytes->used += 4;
}

/* A whole call with its mark, xid 7. */
static struct flyt_bytes make_call(unsigned procedure, xdrproc_t xdr_args, void *args)
{
    struct flyt_bytes bytes = {.bytes_max = 8 << 20};
    XDR xdrs;

    put_word(&bytes, 0);
    flyt_xdr_encode_init(&xdrs, &bytes);
    assert_true(flyt_call_head_put(&xdrs, 7, FLYT_PROGRAM, FLYT_VERSION, procedure));
    if (xdr_args)
        assert_true(xdr_args(&xdrs, args));
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - 4));
    memcpy(bytes.data, &mark, 4);
    return bytes;
}

static void send_all(struct side *side, const void *data, size_t bytes)
{
    assert_int_equal(send(side->fd, data, bytes, MSG_NOSIGNAL), bytes);
}

/* The words of the reply that has come, after the mark. Returns how many. */
static unsigned take_reply(struct side *side, uint32_t *words, unsigned count_max)
{
    flyt_connection_flush(side->link.connection);
    ssize_t bytes = recv(side->fd, words, count_max * 4, MSG_DONTWAIT);
    if (bytes < 4)
        return 0;
    assert_int_equal((ntohl(words[0]) & 0x7fffffff) + 4, bytes);
    for (ssize_t i = 0; i < bytes / 4 - 1; i++)
        words[i] = ntohl(words[i + 1]);
    return (unsigned)bytes / 4 - 1;
}

/* ---- records ---- */

static void test_records_in_pieces(void **state)
{
    flyt_device_memory_info_args args = {.thread = 1, .device = 2};
    struct flyt_bytes call = make_call(FLYT_DEVICE_MEMORY_INFO, (xdrproc_t)xdr_flyt_device_memory_info_args, &args);
    struct side *side = new_side(false);
    uint32_t words[64];

    assert_int_equal(receive(side), -EAGAIN);
    for (size_t i = 0; i < call.used; i++) { /* byte after byte */
        send_all(side, call.data + i, 1);
        assert_int_equal(receive(side), i + 1 == call.used);
    }
    assert_true(take_reply(side, words, 64) >= 6);
    assert_int_equal(words[0], 7);

    /* Three records and a half in one piece. */
    unsigned char *many = malloc(4 * call.used);
    for (int i = 0; i < 4; i++)
        memcpy(many + (size_t)i * call.used, call.data, call.used);
    send_all(side, many, 3 * call.used + call.used / 2);
    assert_int_equal(flyt_connection_receive(side->link.connection, true, 2, &side->err), 2);
    assert_true(flyt_connection_has_record(side->link.connection));
    assert_int_equal(flyt_connection_receive(side->link.connection, true, 2, &side->err), 1);
    assert_false(flyt_connection_has_record(side->link.connection));
    send_all(side, many + call.used / 2, call.used - call.used / 2);
    assert_int_equal(receive(side), 1);
    shutdown(side->fd, SHUT_WR);
    assert_int_equal(receive(side), -EPIPE);
    free(many);
    flyt_bytes_fini(&call);
    free_side(side);
}

/* Cuts a record into fragments of the given length, as libtirpc's clients do. */
static struct flyt_bytes cut_into_fragments(const struct flyt_bytes *call, size_t fragment_bytes)
{
    struct flyt_bytes bytes = {.bytes_max = 64 << 20};

    for (size_t at = 4; at < call->used; at += fragment_bytes) {
        size_t left = call->used - at, part = left < fragment_bytes ? left : fragment_bytes;
        assert_true(flyt_bytes_reserve(&bytes, part + 4));
        uint32_t mark = htonl((uint32_t)part | (part == left ? 0x80000000u : 0));
        memcpy(bytes.data + bytes.used, &mark, 4);
        memcpy(bytes.data + bytes.used + 4, call->data + at, part);
        bytes.used += part + 4;
    }
    return bytes;
}

static void test_records_in_fragments(void **state)
{
    static const size_t sizes[] = {1, 2, 3, 4, 5, 40, 41, 1000};
    char data[1021];
    flyt_copy_in_args args = {.dst = {.address = 3}, .data = {sizeof data, data}};

    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 5);
    struct flyt_bytes call = make_call(FLYT_COPY_IN, (xdrproc_t)xdr_flyt_copy_in_args, &args);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct flyt_bytes cut = cut_into_fragments(&call, sizes[i]);
        struct side *side = new_side(false);
        send_all(side, cut.data, cut.used / 2);
        assert_int_equal(receive(side), 0);
        send_all(side, cut.data + cut.used / 2, cut.used - cut.used / 2);
        send_all(side, call.data, call.used); /* and one in a piece behind it */
        int count = 0, status;
        while ((status = receive(side)) >= 0)
            count += status;
        assert_int_equal(status, -EAGAIN);
        assert_int_equal(count, 2);
        assert_memory_equal(side->peer.memory + 3, data, sizeof data);
        free_side(side);
        flyt_bytes_fini(&cut);
    }
    flyt_bytes_fini(&call);
}

static void test_bad_records_end_the_connection(void **state)
{
    static const struct {
        uint32_t words[4];
        unsigned count;
        int status;
    } cases[] = {
        {{0x80000000u | (FLYT_RECORD_BYTES_MAX + 4)}, 1, -EMSGSIZE},
        {{0x7fffffffu}, 1, -EMSGSIZE},
        {{0xffffffffu}, 1, -EMSGSIZE},
        {{0x80000005u}, 1, -EBADMSG},          /* no multiple of 4 */
        {{0x80000000u}, 1, -EBADMSG},          /* empty: no call */
        {{0x80000008u, 7, 1}, 3, -EBADMSG},    /* a reply */
        {{0x80000008u, 7, 0}, 3, -EBADMSG},    /* cut off */
        {{0x8000000cu, 7, 0, 2}, 4, -EBADMSG}, /* cut off behind the RPC version */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flyt_bytes bytes = {.bytes_max = 64};
        struct side *side = new_side(false);
        for (unsigned j = 0; j < cases[i].count; j++)
            put_word(&bytes, cases[i].words[j]);
        send_all(side, bytes.data, bytes.used);
        assert_int_equal(receive(side), cases[i].status);
        assert_true(*side->err.text);
        flyt_bytes_fini(&bytes);
        free_side(side);
    }
    /* A flood of empty fragments. */
    struct side *side = new_side(false);
    unsigned char *zeros = calloc(1, 40000);
    send_all(side, zeros, 40000);
    assert_int_equal(receive(side), -EBADMSG);
    free(zeros);
    free_side(side);
}

/* ---- calls ---- */

static void test_rpc_errors_leave_the_connection_alive(void **state)
{
    static const struct {
        unsigned word;
        uint32_t value;
        uint32_t reply[6];
        unsigned reply_words;
    } cases[] = {
        {2, 3, {7, 1, 1, 0, 2, 2}, 6},              /* RPC version 3: RPC_MISMATCH, 2 to 2 */
        {3, 0x20000001, {7, 1, 0, 0, 0, 1}, 6},     /* program: PROG_UNAVAIL */
        {4, 9, {7, 1, 0, 0, 0, 2}, 8},              /* version: PROG_MISMATCH, 1 to 1 */
        {5, 9999, {7, 1, 0, 0, 0, 3}, 6},           /* procedure: PROC_UNAVAIL */
        {6, 6, {7, 1, 1, 1, AUTH_REJECTEDCRED}, 5}, /* RPCSEC_GSS */
    };
    struct side *side = new_side(false);
    uint32_t words[64];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct flyt_bytes call = make_call(FLYT_NULL, NULL, NULL);
        uint32_t value = htonl(cases[i].value);
        memcpy(call.data + 4 + 4 * cases[i].word, &value, 4);
        send_all(side, call.data, call.used);
        assert_int_equal(receive(side), 1);
        assert_int_equal(take_reply(side, words, 64), cases[i].reply_words);
        assert_memory_equal(words, cases[i].reply, 4 * (cases[i].reply_words < 6 ? cases[i].reply_words : 6));
        flyt_bytes_fini(&call);
    }
    struct flyt_bytes call = make_call(FLYT_NULL, NULL, NULL);
    send_all(side, call.data, call.used);
    assert_int_equal(receive(side), 1);
    assert_int_equal(take_reply(side, words, 64), 6);
    assert_int_equal(words[5], SUCCESS);
    flyt_bytes_fini(&call);
    free_side(side);
}

static void test_garbage_arguments_are_named_and_end_the_connection(void **state)
{
    flyt_device_memory_info_args args = {0};
    uint32_t words[64];

    for (int change = -4; change <= 4; change += 8) { /* too short, too long */
        struct flyt_bytes call = make_call(FLYT_DEVICE_MEMORY_INFO, (xdrproc_t)xdr_flyt_device_memory_info_args, &args);
        struct side *side = new_side(false);
        put_word(&call, 0);
        uint32_t bytes = (uint32_t)((int)call.used - 8 + change);
        uint32_t mark = htonl(0x80000000u | bytes);
        memcpy(call.data, &mark, 4);
        send_all(side, call.data, bytes + 4);
        assert_int_equal(receive(side), -EBADMSG);
        assert_non_null(strstr(side->err.text, "device_memory_info"));
        assert_int_equal(take_reply(side, words, 64), 6);
        assert_int_equal(words[5], GARBAGE_ARGS);
        flyt_bytes_fini(&call);
        free_side(side);
    }
}

/* rpcgen's dispatch forgets what was decoded before a failure; the connection does not. */
static void test_truncated_megabytes_leave_no_memory(void **state)
{
    flyt_handshake_args args = {.build = "b", .program_name = "p"};
    size_t before = 0;

    args.procedures.procedures_len = FLYT_PROCEDURES_MAX;
    args.procedures.procedures_val = calloc(FLYT_PROCEDURES_MAX, sizeof(flyt_signature));
    struct flyt_bytes call = make_call(FLYT_HANDSHAKE, (xdrproc_t)xdr_flyt_handshake_args, &args);
    char *payload = calloc(1, 1000000);
    flyt_copy_in_args copy = {.data = {1000000, payload}};
    struct flyt_bytes large = make_call(FLYT_COPY_IN, (xdrproc_t)xdr_flyt_copy_in_args, &copy);
    for (int i = 0; i < 1100; i++) {
        struct flyt_bytes *whole = i % 2 ? &call : &large;
        struct side *side = new_side(false);
        uint32_t mark =
            htonl(0x80000000u | (uint32_t)(whole->used - 4 - 4 * (unsigned)(i % 10 + 4))); /* behind the late fields */
        memcpy(whole->data, &mark, 4);
        assert_int_equal(flyt_connection_preload(side->link.connection, whole->data, whole->used), 0);
        assert_int_equal(receive(side), -EBADMSG);
        free_side(side);
        if (i == 99)
            before = mallinfo2().uordblks;
    }
    assert_true(mallinfo2().uordblks <= before + 4096);
    flyt_bytes_fini(&call);
    flyt_bytes_fini(&large);
    free(args.procedures.procedures_val);
    free(payload);
}

static void test_preloaded_handshake_is_answered(void **state)
{
    flyt_handshake_args args = {.build = "b", .program_name = "p"};
    struct side *side = new_side(false);
    uint32_t words[64];

    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    struct flyt_bytes call = make_call(FLYT_HANDSHAKE, (xdrproc_t)xdr_flyt_handshake_args, &args);
    /* A newer client's field at the end. */
    put_word(&call, 0x12345678);
    uint32_t mark = htonl(0x80000000u | (uint32_t)(call.used - 4));
    memcpy(call.data, &mark, 4);
    assert_int_equal(flyt_connection_preload(side->link.connection, call.data, call.used), 0);
    assert_int_equal(receive(side), 1);
    assert_true(take_reply(side, words, 64) > 10);
    assert_int_equal(words[5], SUCCESS);
    assert_int_equal(words[6], FLYT_HANDSHAKE_OK);
    flyt_bytes_fini(&call);
    free_side(side);
}

/* ---- deferred calls ---- */

static struct flyt_record *deferred;

static bool park_once(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                      struct svc_req *req)
{
    if (deferred)
        return true;
    deferred = flyt_connection_record(link->connection);
    return false;
}

static void test_deferred_call_is_dispatched_again(void **state)
{
    flyt_device_memory_info_args args = {.device = 3};
    struct flyt_bytes call = make_call(FLYT_DEVICE_MEMORY_INFO, (xdrproc_t)xdr_flyt_device_memory_info_args, &args);
    struct side *side = new_side(false);
    uint32_t words[64];

    side->peer.serve = park_once;
    deferred = NULL;
    send_all(side, call.data, call.used);
    assert_int_equal(receive(side), 1);
    assert_int_equal(take_reply(side, words, 64), 0);
    assert_non_null(deferred);
    assert_int_equal(deferred->xid, 7);
    assert_int_equal(deferred->procedure, FLYT_DEVICE_MEMORY_INFO);
    assert_int_equal(deferred->bytes, call.used - 4);
    flyt_connection_dispatch(side->link.connection, deferred);
    assert_true(take_reply(side, words, 64) > 6);
    assert_int_equal(words[0], 7);
    free(deferred);
    flyt_bytes_fini(&call);
    free_side(side);
}

/* ---- chunks ---- */

static void test_chunks_cut_and_whole(void **state)
{
    char data[] = "a chunk of data";
    flyt_chunk args = {.transfer_id = 1, .offset_bytes = 2, .data = {sizeof data, data}};
    struct flyt_bytes call = make_call(FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &args);
    struct flyt_bytes cut = cut_into_fragments(&call, 30);
    struct side *side = new_side(true);

    send_all(side, call.data, call.used);
    assert_int_equal(receive(side), 1);
    assert_string_equal((char *)side->chunk, data);
    for (size_t i = 0; i < call.used; i++) { /* byte after byte */
        send_all(side, call.data + i, 1);
        assert_int_equal(receive(side), i + 1 == call.used);
    }
    memset(side->chunk, 0, sizeof side->chunk);
    send_all(side, cut.data, cut.used); /* fragments: not cut, but taken */
    assert_int_equal(receive(side), 1);
    assert_string_equal((char *)side->chunk, data);
    assert_int_equal(side->chunk_bytes, 3 * sizeof data);

    char *large = calloc(1, 3000); /* no place: thrown away */
    args.data.data_val = large;
    args.data.data_len = 3000;
    struct flyt_bytes unwanted = make_call(FLYT_CHUNK, (xdrproc_t)xdr_flyt_chunk, &args);
    send_all(side, unwanted.data, unwanted.used);
    send_all(side, call.data, call.used);
    int count = 0, status;
    while ((status = receive(side)) >= 0)
        count += status;
    assert_int_equal(count, 2);
    free_side(side);

    side = new_side(false);
    send_all(side, call.data, call.used);
    assert_int_equal(receive(side), -EBADMSG);
    free_side(side);

    /* A length that contradicts the record's. */
    side = new_side(true);
    uint32_t length = htonl(sizeof data + 8);
    memcpy(call.data + 4 + FLYT_CHUNK_HEAD_BYTES - 4, &length, 4);
    send_all(side, call.data, call.used);
    assert_int_equal(receive(side), -EBADMSG);
    free_side(side);
    free(large);
    flyt_bytes_fini(&call);
    flyt_bytes_fini(&cut);
    flyt_bytes_fini(&unwanted);
}

static void test_sending_to_a_closed_peer(void **state)
{
    struct side *side = new_side(false);
    flyt_progress progress = {0};
    char byte = 0;

    close(side->fd);
    side->fd = -1;
    flyt_connection_call_back(side->link.connection, FLYT_BACK_PROGRESS, (xdrproc_t)xdr_flyt_progress, &progress);
    assert_int_equal(flyt_connection_flush(side->link.connection), -EPIPE);
    assert_int_equal(flyt_connection_send_chunk(side->link.connection, 1, 0, &byte, 1), -EPIPE);
    assert_int_equal(flyt_connection_reply(side->link.connection, 1, (xdrproc_t)xdr_flyt_progress, &progress, NULL, 0),
                     -EPIPE);
    assert_int_equal(receive(side), -EPIPE);
    free_side(side);
}

/* ---- a stock client ---- */

static CLIENT *stock_client(struct test_peer *peer, u_int fragment_bytes)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct flyt_url url;
    int fd = RPC_ANYSOCK;

    assert_int_equal(flyt_url_parse(peer->url, NULL, &url), 0);
    address.sin_port = htons(url.port);
    CLIENT *client = clnttcp_create(&address, FLYT_PROGRAM, FLYT_VERSION, &fd, fragment_bytes, fragment_bytes);
    assert_non_null(client);
    return client;
}

static void test_stock_rpcgen_client(void **state)
{
    struct test_peer *peer = calloc(1, sizeof *peer);
    flyt_handshake_args args = {.build = "stock", .program_name = "client"};
    flyt_handshake_res res = {0};
    flyt_query_res query = {0};
    flyt_signature *many = calloc(FLYT_PROCEDURES_MAX, sizeof *many);

    test_peer_init(peer);
    test_peer_start(peer, "tcp://127.0.0.1:0");
    for (int with_credentials = 0; with_credentials < 2; with_credentials++) {
        CLIENT *client = stock_client(peer, 512);
        if (with_credentials) {
            auth_destroy(client->cl_auth);
            client->cl_auth = authunix_create_default();
        }
        assert_int_equal(flyt_null_1(NULL, NULL, client), RPC_SUCCESS);
        assert_int_equal(flyt_query_1(NULL, &query, client), RPC_SUCCESS);
        assert_string_equal(query.build, "test peer");
        clnt_freeres(client, (xdrproc_t)xdr_flyt_query_res, (caddr_t)&query);

        /* 48 KiB in fragments of half a KiB. */
        memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
        memcpy(many, flyt_signatures, flyt_signature_count * sizeof *many);
        args.procedures.procedures_val = many;
        args.procedures.procedures_len = FLYT_PROCEDURES_MAX;
        assert_int_equal(flyt_handshake_1(&args, &res, client), RPC_SUCCESS);
        assert_int_equal(res.status, FLYT_HANDSHAKE_OK);
        assert_int_equal(res.accepted.accepted_len, flyt_signature_count);
        clnt_freeres(client, (xdrproc_t)xdr_flyt_handshake_res, (caddr_t)&res);

        struct timeval limit = {.tv_sec = 10};
        assert_int_equal(
            clnt_call(client, 9999, (xdrproc_t)(void *)xdr_void, NULL, (xdrproc_t)(void *)xdr_void, NULL, limit),
            RPC_PROCUNAVAIL);
        rpcvers_t version = 9;
        clnt_control(client, CLSET_VERS, (char *)&version);
        assert_int_equal(flyt_null_1(NULL, NULL, client), RPC_PROGVERSMISMATCH);
        version = FLYT_VERSION;
        clnt_control(client, CLSET_VERS, (char *)&version);
        assert_int_equal(flyt_null_1(NULL, NULL, client), RPC_SUCCESS);
        auth_destroy(client->cl_auth);
        clnt_destroy(client);
    }
    test_peer_stop(peer);
    free(peer);
    free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_records_in_pieces),
        cmocka_unit_test(test_records_in_fragments),
        cmocka_unit_test(test_bad_records_end_the_connection),
        cmocka_unit_test(test_rpc_errors_leave_the_connection_alive),
        cmocka_unit_test(test_garbage_arguments_are_named_and_end_the_connection),
        cmocka_unit_test(test_truncated_megabytes_leave_no_memory),
        cmocka_unit_test(test_preloaded_handshake_is_answered),
        cmocka_unit_test(test_deferred_call_is_dispatched_again),
        cmocka_unit_test(test_chunks_cut_and_whole),
        cmocka_unit_test(test_sending_to_a_closed_peer),
        cmocka_unit_test(test_stock_rpcgen_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
