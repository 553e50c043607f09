#include "cpu/server/test/fake_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#include "flyt_signatures.h"

enum { HEAD_BYTES = 40, REPLY_HEAD_BYTES = 24, WAIT_S = 60 };

static uint32_t word(const struct fake_wire *wire, size_t offset)
{
    uint32_t value;
    assert_true(offset + sizeof value <= wire->message_bytes);
    memcpy(&value, wire->message + offset, sizeof value);
    return ntohl(value);
}

void fake_wire_send(struct fake_wire *wire, uint32_t procedure, xdrproc_t xdr_args, const void *args)
{
    static char record[FAKE_WIRE_MESSAGE_BYTES];
    const uint32_t head[] = {0, ++wire->xid, 0, 2, FLYT_PROGRAM, FLYT_VERSION, procedure, 0, 0, 0, 0};
    XDR xdrs;
    for (size_t i = 0; i < sizeof head / sizeof head[0]; i++) {
        uint32_t value = htonl(head[i]);
        memcpy(record + 4 * i, &value, sizeof value);
    }
    xdrmem_create(&xdrs, record + 4 + HEAD_BYTES, sizeof record - 4 - HEAD_BYTES, XDR_ENCODE);
    assert_true(xdr_args(&xdrs, (void *)args));
    size_t bytes = HEAD_BYTES + xdr_getpos(&xdrs);
    uint32_t mark = htonl(0x80000000u | (uint32_t)bytes);
    memcpy(record, &mark, sizeof mark);
    assert_int_equal(send(wire->fd, record, bytes + 4, MSG_NOSIGNAL), bytes + 4);
}

/* The next message. False: the connection has ended. */
static bool receive(struct fake_wire *wire)
{
    uint32_t mark;
    if (recv(wire->fd, &mark, sizeof mark, MSG_WAITALL) != (ssize_t)sizeof mark)
        return false;
    wire->message_bytes = ntohl(mark) & 0x7fffffff;
    assert_true(wire->message_bytes <= sizeof wire->message);
    return recv(wire->fd, wire->message, wire->message_bytes, MSG_WAITALL) == (ssize_t)wire->message_bytes;
}

static void note_back(struct fake_wire *wire)
{
    flyt_back_call_error error = {0};
    XDR xdrs;
    if (word(wire, 20) != FLYT_BACK_CALL_ERROR)
        return;
    xdrmem_create(&xdrs, (char *)wire->message + HEAD_BYTES, (u_int)(wire->message_bytes - HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_flyt_back_call_error(&xdrs, &error));
    wire->failed_sequence = error.sequence;
    wire->failed_result = error.result;
}

/* Notices are taken note of up to the reply to the last call. */
static void await_reply(struct fake_wire *wire, xdrproc_t xdr_res, void *res)
{
    XDR xdrs;
    for (;;) {
        assert_true(receive(wire));
        if (word(wire, 4) == 1 && word(wire, 0) == wire->xid)
            break;
        note_back(wire);
    }
    xdrmem_create(&xdrs, (char *)wire->message + REPLY_HEAD_BYTES, (u_int)(wire->message_bytes - REPLY_HEAD_BYTES),
                  XDR_DECODE);
    assert_true(xdr_res(&xdrs, res));
}

int fake_wire_await_result(struct fake_wire *wire, xdrproc_t xdr_res, void *res)
{
    flyt_session_barrier_res common;
    XDR xdrs;
    await_reply(wire, xdr_res, res);
    xdrmem_create(&xdrs, (char *)wire->message + REPLY_HEAD_BYTES, (u_int)(wire->message_bytes - REPLY_HEAD_BYTES),
                  XDR_DECODE);
    assert_true(xdr_flyt_session_barrier_res(&xdrs, &common));
    wire->progress = common.progress;
    return common.result;
}

int fake_wire_call(struct fake_wire *wire, uint32_t procedure, xdrproc_t xdr_args, const void *args, xdrproc_t xdr_res,
                   void *res)
{
    fake_wire_send(wire, procedure, xdr_args, args);
    return fake_wire_await_result(wire, xdr_res, res);
}

void fake_wire_await_back(struct fake_wire *wire, uint32_t procedure, xdrproc_t xdr_args, void *args)
{
    XDR xdrs;
    do
        assert_true(receive(wire) && word(wire, 4) == 0);
    while (word(wire, 20) != procedure);
    xdrmem_create(&xdrs, (char *)wire->message + HEAD_BYTES, (u_int)(wire->message_bytes - HEAD_BYTES), XDR_DECODE);
    assert_true(xdr_args(&xdrs, args));
}

static void connect_to(struct fake_wire *wire, const char *url)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval limit = {.tv_sec = WAIT_S};
    unsigned port;
    assert_int_equal(sscanf(url, "tcp://127.0.0.1:%u", &port), 1);
    address.sin_port = htons((uint16_t)port);
    wire->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(wire->fd >= 0);
    setsockopt(wire->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(wire->fd, (struct sockaddr *)&address, sizeof address), 0);
}

flyt_handshake_status fake_wire_open(struct fake_wire *wire, const char *url, flyt_connection_kind kind,
                                     const void *token)
{
    char build[] = "test", program[] = "takeover";
    flyt_handshake_res res = {0};
    flyt_handshake_args args = {
        .build = build, .cuda_version = 13000, .pid = (u_int)getpid(), .program_name = program, .kind = kind};
    memset(wire, 0, sizeof *wire);
    connect_to(wire, url);
    memcpy(args.base_hash, flyt_base_hash, sizeof args.base_hash);
    args.procedures.procedures_val = (flyt_signature *)flyt_signatures;
    args.procedures.procedures_len = flyt_signature_count;
    args.token.token_val = (char *)token;
    args.token.token_len = token ? FLYT_TOKEN_BYTES : 0;
    fake_wire_send(wire, FLYT_HANDSHAKE, (xdrproc_t)xdr_flyt_handshake_args, &args);
    await_reply(wire, (xdrproc_t)xdr_flyt_handshake_res, &res);
    flyt_handshake_status status = res.status;
    snprintf(wire->refusal, sizeof wire->refusal, "%s", res.message);
    wire->session_id = res.session_id;
    wire->features = res.features;
    if (res.token.token_len == FLYT_TOKEN_BYTES)
        memcpy(wire->token, res.token.token_val, FLYT_TOKEN_BYTES);
    xdr_free((xdrproc_t)xdr_flyt_handshake_res, &res);
    return status;
}

void fake_wire_close(struct fake_wire *wire)
{
    close(wire->fd);
    wire->fd = -1;
}

void fake_wire_await_end(struct fake_wire *wire)
{
    while (receive(wire))
        ;
}
