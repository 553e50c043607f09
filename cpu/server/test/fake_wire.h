/*
 * For tests: a program that speaks the wire's format by itself over a socket to a listener (fake_manager.h), one call
 * at a time. Functions fail the running test where something is not as it should be.
 */
#ifndef FLYT_SERVER_FAKE_WIRE_H
#define FLYT_SERVER_FAKE_WIRE_H

#include <stdbool.h>
#include <stdint.h>

#include "flyt.h"

enum { FAKE_WIRE_MESSAGE_BYTES = 1 << 20 };

struct fake_wire {
    int fd;
    uint32_t xid;
    unsigned char token[FLYT_TOKEN_BYTES]; /* of the session that the handshake has opened or named */
    uint64_t session_id;
    unsigned features;
    char refusal[FLYT_STRING_BYTES_MAX + 1];
    flyt_progress progress; /* of the last reply */
    /* Of the last one-way call that failed, as the server told it: its number and its result. */
    uint64_t failed_sequence;
    int failed_result;
    unsigned char message[FAKE_WIRE_MESSAGE_BYTES];
    size_t message_bytes;
};

/* Connects to a tcp URL and makes a handshake of the kind; token (FLYT_TOKEN_BYTES) may be NULL: an empty one. The
 * handshake's status; *wire is to be closed in every case. */
flyt_handshake_status fake_wire_open(struct fake_wire *wire, const char *url, flyt_connection_kind kind,
                                     const void *token);
void fake_wire_close(struct fake_wire *wire);
/* Sends a call. */
void fake_wire_send(struct fake_wire *wire, uint32_t procedure, xdrproc_t xdr_args, const void *args);
/* Sends a call and reads up to its reply, whose result and progress come first in *res (to be freed by xdr_free where
 * it has more). Returns the result. */
int fake_wire_call(struct fake_wire *wire, uint32_t procedure, xdrproc_t xdr_args, const void *args, xdrproc_t xdr_res,
                   void *res);
/* The second part of that: reads up to the reply of the call that was sent last. */
int fake_wire_await_result(struct fake_wire *wire, xdrproc_t xdr_res, void *res);
/* Reads up to a call of this procedure, whose arguments are decoded. */
void fake_wire_await_back(struct fake_wire *wire, uint32_t procedure, xdrproc_t xdr_args, void *args);
/* Reads what comes up to the end of the connection. */
void fake_wire_await_end(struct fake_wire *wire);

#define FAKE_WIRE_SEND(wire, PROCEDURE, name, ...)                                                                     \
    fake_wire_send(wire, PROCEDURE, (xdrproc_t)xdr_flyt_##name##_args, &(flyt_##name##_args){__VA_ARGS__})
/* res: a flyt_NAME_res. */
#define FAKE_WIRE_CALL(wire, PROCEDURE, name, res, ...)                                                                \
    fake_wire_call(wire, PROCEDURE, (xdrproc_t)xdr_flyt_##name##_args, &(flyt_##name##_args){__VA_ARGS__},             \
                   (xdrproc_t)xdr_flyt_##name##_res, res)

#endif
