/*
 * Mutated messages against the decoders of both sides, without sockets where that is possible: each round takes a valid
 * record (random values of a random procedure), damages it, and gives it
 *   - to the server's connection, through rpcgen's dispatch,
 *   - to the handshake decoder of a server's door,
 *   - to every XDR routine as bare arguments or results.
 * What is looked for are crashes, reads outside, leaks (with a sanitizer) and hangs; a damaged record may as well be
 * valid. The run depends on its seed alone.
 *
 * usage: wire-fuzz [SECONDS [SEED]]     (default: 3 seconds, seed 1)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "flyt_procedures.h"
#include "flyt_signatures.h"
#include "rpc/base/clock.h"
#include "rpc/transport/handshake.h"
#include "rpc/transport/message.h"
#include "rpc/transport/test_peer.h"
#include "rpc/transport/test_values.h"

enum { RECORD_BYTES_MAX = 1 << 20 };

void flyt_program_1(struct svc_req *request, SVCXPRT *xprt);

static struct flyt_test_random source = {1};
static uint64_t record_count, good_count;

static unsigned below(unsigned end)
{
    return (unsigned)(flyt_test_number(&source) >> 32) % end;
}

static const struct flyt_test_type *find_type(const char *name, const char *suffix)
{
    char wanted[128];

    snprintf(wanted, sizeof wanted, "%s_%s", name, suffix);
    for (unsigned i = 0; i < flyt_test_type_count; i++) {
        if (!strcmp(flyt_test_types[i].name, wanted))
            return &flyt_test_types[i];
    }
    return NULL;
}

/* A valid call of a random procedure, with its record mark. */
static struct flyt_bytes make_call(void)
{
    struct flyt_bytes bytes = {.bytes_max = RECORD_BYTES_MAX};
    unsigned procedure = below(4) ? flyt_signatures[below(flyt_signature_count)].procedure : below(4);
    const struct flyt_procedure *known = flyt_procedure_find(procedure);
    const struct flyt_test_type *type = find_type(known->name, "args");
    XDR xdrs;

    flyt_bytes_reserve(&bytes, 4);
    bytes.used = 4;
    flyt_xdr_encode_init(&xdrs, &bytes);
    flyt_call_head_put(&xdrs, below(100), FLYT_PROGRAM, FLYT_VERSION, procedure);
    if (type) {
        void *value = calloc(1, type->bytes);
        type->fill(&source, value);
        type->xdr(&xdrs, value);
        xdr_free(type->xdr, value);
        free(value);
    }
    uint32_t mark = htonl(0x80000000u | (uint32_t)(bytes.used - 4));
    memcpy(bytes.data, &mark, 4);
    return bytes;
}

/* Words that decoders stumble over. */
static uint32_t nasty_word(void)
{
    static const uint32_t words[] = {0,          1,          2,          3,          4,         5,     0x7fffffff,
                                     0x80000000, 0xffffffff, 0xfffffffc, 0x80000004, 4194304,   65536, 4194305,
                                     4096,       65537,      32764,      32765,      0x01000000};

    return htonl(words[below(sizeof words / sizeof words[0])]);
}

static void damage(unsigned char *data, size_t *bytes)
{
    for (unsigned changes = below(4); changes && *bytes >= 8; changes--) {
        size_t at = below((unsigned)*bytes);
        uint32_t word = nasty_word();
        switch (below(5)) {
        case 0: /* a bit */
            data[at] ^= (unsigned char)(1u << below(8));
            break;
        case 1: /* a word, in its place */
            memcpy(data + (at & ~(size_t)3) - (at >= *bytes - 4 ? 4 : 0), &word, 4);
            break;
        case 2: /* cut off */
            *bytes = at;
            break;
        case 3: /* a piece taken out */
            if (at + 4 < *bytes) {
                memmove(data + at, data + at + 4, *bytes - at - 4);
                *bytes -= 4;
            }
            break;
        default: /* a byte */
            data[at] = (unsigned char)flyt_test_number(&source);
        }
    }
    /* Mostly the mark is made right again, or nothing behind it would be looked at. */
    if (*bytes >= 4 && below(8)) {
        uint32_t mark = htonl(0x80000000u | (uint32_t)(*bytes - 4));
        memcpy(data, &mark, 4);
    }
}

/* ---- the targets ---- */

/* Calls are answered with zeros, nothing is done. */
static bool serve_nothing(struct test_peer *peer, struct test_link *link, unsigned procedure, void *args, void *res,
                          struct svc_req *req)
{
    good_count++;
    if (!flyt_procedure_has_reply(procedure))
        return false;
    flyt_connection_reply(link->connection, flyt_connection_xid(link->connection),
                          flyt_procedure_find(procedure)->xdr_res, res, NULL, 0);
    return false;
}

static void *place_nowhere(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    return NULL;
}

static void done_nothing(void *user, uint64_t transfer_id, uint64_t offset_bytes, size_t bytes)
{
    good_count++;
}

static void feed_connection(struct test_peer *peer, const unsigned char *data, size_t bytes)
{
    struct test_link link = {.peer = peer};
    struct flyt_connection_config config = {.dispatch = flyt_program_1,
                                            .program = FLYT_PROGRAM,
                                            .version = FLYT_VERSION,
                                            .user = &link,
                                            .record_bytes_max = FLYT_RECORD_BYTES_MAX,
                                            .chunk_place = place_nowhere,
                                            .chunk_done = done_nothing};
    struct flyt_endpoint *endpoint;
    struct flyt_error err;
    int pair[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
        abort();
    if (flyt_endpoint_of_socket(pair[0], &endpoint) || flyt_connection_new(endpoint, &config, &link.connection))
        abort();
    flyt_connection_preload(link.connection, data, bytes);
    while (flyt_connection_receive(link.connection, false, 0, &err) > 0)
        continue;
    flyt_connection_free(link.connection);
    close(pair[1]);
}

static void feed_handshake(const unsigned char *data, size_t bytes)
{
    flyt_handshake_args args;
    uint32_t xid;

    if (!flyt_handshake_decode(data, bytes, &xid, &args)) {
        u_int *accepted = malloc((args.procedures.procedures_len + 1) * sizeof *accepted);
        flyt_handshake_accept(&args, flyt_signatures, flyt_signature_count, accepted);
        free(accepted);
        xdr_free((xdrproc_t)xdr_flyt_handshake_args, &args);
        good_count++;
    }
}

static void feed_routine(void)
{
    const struct flyt_test_type *type = &flyt_test_types[below(flyt_test_type_count)];
    struct flyt_bytes bytes = {.bytes_max = RECORD_BYTES_MAX};
    void *value = calloc(1, type->bytes);
    XDR xdrs;

    flyt_bytes_reserve(&bytes, 8);
    bytes.used = 4;
    flyt_xdr_encode_init(&xdrs, &bytes);
    type->fill(&source, value);
    type->xdr(&xdrs, value);
    xdr_free(type->xdr, value);
    size_t length = bytes.used;
    damage(bytes.data, &length);
    if (length > 4) {
        /* In memory of exactly that length, so that a sanitizer sees a read behind it. */
        unsigned char *exact = malloc(length - 4);
        memcpy(exact, bytes.data + 4, length - 4);
        memset(value, 0, type->bytes);
        flyt_xdr_decode_init(&xdrs, exact, length - 4, NULL);
        good_count += type->xdr(&xdrs, value) ? 1 : 0;
        xdr_free(type->xdr, value);
        free(exact);
    }
    free(value);
    flyt_bytes_fini(&bytes);
}

int main(int argc, char **argv)
{
    unsigned seconds = argc > 1 ? (unsigned)atoi(argv[1]) : 3;
    struct test_peer peer;

    source.state = argc > 2 ? strtoull(argv[2], NULL, 0) | 1 : 1;
    test_peer_init(&peer);
    peer.serve = serve_nothing;
    for (uint64_t end_ms = flyt_clock_ms() + seconds * 1000ull; flyt_clock_ms() < end_ms;) {
        for (int i = 0; i < 100; i++, record_count++) {
            struct flyt_bytes call = make_call();
            size_t bytes = call.used;
            damage(call.data, &bytes);
            feed_connection(&peer, call.data, bytes);
            feed_handshake(call.data, bytes);
            feed_routine();
            flyt_bytes_fini(&call);
        }
    }
    printf("%" PRIu64 " rounds, %" PRIu64 " decoded all the same\n", record_count, good_count);
    return 0;
}
